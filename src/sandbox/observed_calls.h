// Which arguments of an observed system call say what it would change. Tables, so that adding a call is adding a line.
#pragma once

#include <cstdint>

namespace caisson::sandbox {

inline constexpr int8_t kNoArgument = -1;

enum class Target : uint8_t {
  kExisting,   // the file itself; a trailing symbolic link is followed
  kEntry,      // the directory entry; a trailing symbolic link is not followed
  kDirectory,  // a new directory: asking for one that exists changes nothing
};

// A call that names a file by path, or by descriptor when `path` is kNoArgument.
struct PathCall {
  int32_t number;
  Target target;
  int8_t directory;  // argument with the directory descriptor; kNoArgument: the working directory
  int8_t path;       // argument with the path; kNoArgument: `directory` is the file itself
};

enum class AddressAt : uint8_t { kArgument, kMessage, kMessageVector };

// A call that names a peer.
struct AddressCall {
  int32_t number;
  AddressAt where;
  int8_t address;  // kArgument: pointer; otherwise the message or vector
  int8_t length;   // kArgument: length; kMessageVector: count
};

// The lines for a call, at most two (rename has two paths); nullptr when it is not of that kind.
const PathCall* FindPathCalls(int32_t number, int* count);
const AddressCall* FindAddressCall(int32_t number);

}  // namespace caisson::sandbox

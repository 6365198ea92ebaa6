// Tables of the arguments of an observed system call that name what it would change. A new call needs only a new line.
#pragma once

#include <cstdint>

namespace caisson::sandbox {

inline constexpr int8_t kNoArgument = -1;

enum class Target : uint8_t {
  kOpened,     // the open flags say whether a final symbolic link is followed
  kExisting,   // the file itself; a final symbolic link is followed
  kLink,       // the link itself, unless a slash behind its name makes the kernel follow it
  kEntry,      // the directory entry; the kernel never follows a final symbolic link, slash or not
  kDirectory,  // a new directory: creating one that exists changes nothing
};

// A call that names a file by path, or by descriptor when `path` is kNoArgument.
struct PathCall {
  int32_t number;
  Target target;
  int8_t directory;            // argument with the directory descriptor; kNoArgument: the working directory
  int8_t path;                 // argument with the path; kNoArgument: `directory` is the file itself
  int8_t flags = kNoArgument;  // argument with open flags (kOpened), or with AT_SYMLINK_NOFOLLOW (kExisting)
};

enum class AddressAt : uint8_t { kArgument, kMessage, kMessageVector };

// A call that names a peer.
struct AddressCall {
  int32_t number;
  AddressAt where;
  int8_t address;  // kArgument: pointer; otherwise the message or vector
  int8_t length;   // kArgument: length; kMessageVector: count
};

// The entries for a call, at most two (rename has two paths); nullptr when the call is not of that kind.
const PathCall* FindPathCalls(int32_t number, int* count);
const AddressCall* FindAddressCall(int32_t number);

}  // namespace caisson::sandbox

// Who owns a container: the process that started it. Containers and directories carry this as text, so that a later
// start can remove what a killed process left, and nothing of a process that is alive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace caisson::runtime::engine {

struct Owner {
  std::string boot;  // of the kernel
  std::string pid_namespace;
  int64_t pid = 0;      // in that namespace
  int64_t started = 0;  // in ticks since boot: tells a process from a later one with its number

  std::string ToText() const;  // "boot/namespace/pid/started"
};

Result<Owner> ThisProcess();
// Absent when the text is not an owner's.
std::optional<Owner> ParseOwner(std::string_view text);

enum class Fate { kAlive, kDead, kUnknown };  // kUnknown: of another boot, machine or pid namespace
Fate FateOf(const Owner& owner, const Owner& self);
// The same for a process of our own pid namespace.
Fate FateOf(int64_t pid, int64_t started);

}  // namespace caisson::runtime::engine

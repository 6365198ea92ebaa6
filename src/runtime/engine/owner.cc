#include "runtime/engine/owner.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "linux/files.h"

namespace caisson::runtime::engine {

namespace {

bool ParseNumber(std::string_view text, int64_t& number) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  return fault == std::errc() && end == text.data() + text.size() && number > 0;
}

// Field 22 of /proc/PID/stat. The name of the program, in parentheses, may hold anything.
std::optional<int64_t> ReadStarted(const std::string& process) {
  const Result<std::string> stat = linux_sys::ReadSmallFile(AT_FDCWD, ("/proc/" + process + "/stat").c_str());
  if (!stat) return std::nullopt;
  std::string_view rest = *stat;
  const size_t name_end = rest.rfind(')');
  if (name_end == rest.npos) return std::nullopt;
  rest.remove_prefix(name_end + 1);
  for (int field = 3; field <= 22; ++field) {
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(' ')));
    const std::string_view word = rest.substr(0, rest.find(' '));
    int64_t number = 0;
    if (field == 22) return ParseNumber(word, number) ? std::optional(number) : std::nullopt;
    rest.remove_prefix(word.size());
  }
  return std::nullopt;
}

}  // namespace

std::string Owner::ToText() const {
  return boot + "/" + pid_namespace + "/" + std::to_string(pid) + "/" + std::to_string(started);
}

Result<Owner> ThisProcess() {
  Owner self;
  CAISSON_TRY(self.boot, linux_sys::ReadSmallFile(AT_FDCWD, "/proc/sys/kernel/random/boot_id"));
  while (!self.boot.empty() && self.boot.back() == '\n') self.boot.pop_back();
  char target[64];
  const ssize_t size = ::readlink("/proc/self/ns/pid", target, sizeof(target));
  if (size <= 0) return Error::System(errno, "read /proc/self/ns/pid");
  self.pid_namespace.assign(target, static_cast<size_t>(size));
  self.pid = ::getpid();
  const std::optional<int64_t> started = ReadStarted("self");
  if (!started) return Error::System(EPROTO, "read /proc/self/stat");
  self.started = *started;
  return self;
}

std::optional<Owner> ParseOwner(std::string_view text) {
  std::array<std::string_view, 4> words;
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = text.substr(0, text.find('/'));
    const bool last = i + 1 == words.size();
    if (words[i].empty() || (words[i].size() == text.size()) != last) return std::nullopt;
    text.remove_prefix(std::min(text.size(), words[i].size() + 1));
  }
  Owner owner;
  owner.boot = words[0];
  owner.pid_namespace = words[1];
  if (!ParseNumber(words[2], owner.pid) || !ParseNumber(words[3], owner.started)) return std::nullopt;
  return owner;
}

Fate FateOf(int64_t pid, int64_t started) {
  return ReadStarted(std::to_string(pid)) == started ? Fate::kAlive : Fate::kDead;
}

Fate FateOf(const Owner& owner, const Owner& self) {
  if (owner.boot != self.boot || owner.pid_namespace != self.pid_namespace) return Fate::kUnknown;
  return FateOf(owner.pid, owner.started);
}

}  // namespace caisson::runtime::engine

#include "runtime/kubernetes/owner.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include "linux/files.h"

namespace caisson::runtime::kubernetes {

namespace {

// The 22nd field of /proc/PID/stat; empty when there is no such process.
std::string StartOf(const std::string& pid) {
  const Result<std::string> stat = linux_sys::ReadSmallFile(AT_FDCWD, ("/proc/" + pid + "/stat").c_str());
  if (!stat) return "";
  size_t at = stat->rfind(')');  // the name before it may have any character
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat->find(' ', at + 1);
  if (at == std::string::npos) return "";
  return stat->substr(at + 1, stat->find(' ', at + 1) - at - 1);
}

}  // namespace

std::string ThisMachine() {
  const Result<std::string> boot = linux_sys::ReadSmallFile(AT_FDCWD, "/proc/sys/kernel/random/boot_id");
  struct stat processes {};
  ::stat("/proc/self/ns/pid", &processes);
  return (boot ? boot->substr(0, 36) : "unknown") + "." + std::to_string(processes.st_ino);
}

std::string ThisOwner() {
  const std::string pid = std::to_string(::getpid());
  return pid + "." + StartOf(pid);
}

bool MayBeAlive(const std::string& owner) {
  const size_t dot = owner.find('.');
  int64_t pid = 0;
  const auto [end, error] = std::from_chars(owner.data(), owner.data() + std::min(dot, owner.size()), pid);
  if (dot == std::string::npos || error != std::errc() || end != owner.data() + dot || pid <= 0) return true;
  return StartOf(std::to_string(pid)) == owner.substr(dot + 1);
}

}  // namespace caisson::runtime::kubernetes

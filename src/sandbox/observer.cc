#include "sandbox/observer.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "linux/syscall_names.h"
#include "sandbox/mutation.h"
#include "sandbox/observed_memory.h"

namespace caisson::sandbox {

namespace {

constexpr char kWriteElsewhere[] = "write below /scratch or /tmp instead";

// The memory of a process, as a debugger reads it.
ReadMemory MemoryOf(pid_t pid) {
  return [pid](uint64_t address, void* to, size_t size) {
    struct iovec local {
      to, size
    };
    struct iovec remote {
      reinterpret_cast<void*>(address), size  // NOLINT(performance-no-int-to-ptr): another process's address
    };
    return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
  };
}

std::string Hex(uint64_t value) {
  char digits[19] = "0x";
  const auto end = std::to_chars(digits + 2, digits + sizeof(digits), value, 16).ptr;
  return std::string(digits, end);
}

bool IsHarmlessDevice(const std::string& path) {
  static constexpr const char* kDevices[] = {"/dev/null",    "/dev/zero", "/dev/full", "/dev/random",
                                             "/dev/urandom", "/dev/tty",  "/dev/ptmx"};
  return std::any_of(std::begin(kDevices), std::end(kDevices), [&](const char* device) { return path == device; }) ||
         IsBelow(path, "/dev/pts");
}

// Files of /proc/PID that programs write to tune themselves. Refused all the same (/proc is read-only), but nobody's
// harm.
bool IsSelfTuning(const std::string& path) {
  if (!IsBelow(path, "/proc")) return false;
  const std::string name = path.substr(path.rfind('/') + 1);
  return name == "comm" || name == "oom_score_adj" || name == "coredump_filter" || name == "timerslack_ns";
}

}  // namespace

Observer::Observer(UniqueFd listener, UniqueFd root, const SeccompProgram& program, Options options)
    : listener_(std::move(listener)), paths_(std::move(root)), program_(program), options_(std::move(options)) {
  // Linux 6.6: wake us on the CPU of the call, an order of magnitude cheaper than waking another one. Older kernels say
  // EINVAL, and then it is only slower.
  ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
}

Observer::Seen Observer::HandleOne(const std::function<void()>& before_thread) {
  struct seccomp_notif notification {};
  Seen seen;
  // ENOENT: the caller was killed before we looked. Nothing was attempted that returned.
  if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, &notification) != 0) return seen;
  const NotifyRule* rule = FindNotifyRule(program_, notification.data);
  struct seccomp_notif_resp response {};
  response.id = notification.id;
  if (rule == nullptr) {
    // The filter and its rules come from one file and a test compares them; if they ever disagree, refuse.
    response.error = -ENOSYS;
  } else if (rule->disposition == Disposition::kObserve) {
    if (rule->violation_class == ViolationClass::kProcessLimit) {
      before_thread();
    } else {
      seen.violation = Judge(notification, *rule);
    }
    response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  } else {
    seen.violation = Describe(notification, *rule);
    if (rule->disposition == Disposition::kKill && !CAISSON_LEFT_OUT("denial")) {
      seen.kill = true;
      return seen;  // never answered: the call stays blocked until the sandbox is dead
    }
    response.error = -static_cast<int>(rule->errno_value);
    if (CAISSON_LEFT_OUT("denial")) {
      response.error = 0;
      response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    }
  }
  ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &response);
  return seen;
}

Violation Observer::Describe(const struct seccomp_notif& notification, const NotifyRule& rule) const {
  Violation violation;
  violation.violation_class = rule.violation_class;
  violation.reason = rule.reason;
  violation.confidence = Confidence::kProven;
  violation.pid = InsidePid(static_cast<pid_t>(notification.pid));
  if (rule.number == kForeignArchitecture) {
    violation.evidence.emplace_back("architecture", Hex(notification.data.arch));
    violation.evidence.emplace_back("syscall_number", int64_t{notification.data.nr});
  } else {
    const char* name = linux_sys::SyscallName(notification.data.nr);
    violation.evidence.emplace_back("syscall", name != nullptr ? name : std::to_string(notification.data.nr));
    violation.evidence.emplace_back("syscall_number", int64_t{notification.data.nr});
  }
  std::string arguments;
  for (const uint64_t argument : notification.data.args) arguments += (arguments.empty() ? "" : " ") + Hex(argument);
  violation.evidence.emplace_back("arguments", arguments);
  violation.evidence.emplace_back("answer", rule.disposition == Disposition::kKill
                                                ? std::string("killed")
                                                : std::string(::strerrorname_np(rule.errno_value)));
  return violation;
}

std::optional<Violation> Observer::Judge(const struct seccomp_notif& notification, const NotifyRule& rule) const {
  std::optional<Violation> violation;
  int count = 0;
  if (const PathCall* call = FindPathCalls(notification.data.nr, &count)) {
    for (int i = 0; i < count && !violation; ++i) violation = JudgeWrite(notification, call[i]);
  } else if (notification.data.nr == SYS_bind) {
    violation = JudgeBind(notification);
  } else if (const AddressCall* address = FindAddressCall(notification.data.nr)) {
    violation = JudgeAddress(notification, *address);
  }
  if (!violation) return std::nullopt;
  // The process may have died and its number been given away while we read; then what we read was somebody else's.
  if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_ID_VALID, &notification.id) != 0) return std::nullopt;
  violation->violation_class = rule.violation_class;
  if (violation->reason.empty()) violation->reason = rule.reason;
  violation->pid = InsidePid(static_cast<pid_t>(notification.pid));
  const char* name = linux_sys::SyscallName(notification.data.nr);
  violation->evidence.emplace(violation->evidence.begin(), "syscall", name != nullptr ? name : "unknown");
  return violation;
}

bool Observer::MayBeWritten(const InsidePaths::Resolved& file) const {
  if (!file.is_file_system || IsHarmlessDevice(file.path) || IsSelfTuning(file.path)) return true;
  for (const std::string& prefix : options_.writable) {
    if (IsBelow(file.path, prefix)) return true;
  }
  for (const std::string& component : options_.ignored_components) {
    if ((file.path + "/").find("/" + component + "/") != std::string::npos) return true;
  }
  return false;
}

std::optional<Violation> Observer::JudgeWrite(const struct seccomp_notif& notification, const PathCall& call) const {
  const pid_t pid = static_cast<pid_t>(notification.pid);
  const auto& args = notification.data.args;
  const ReadMemory memory = MemoryOf(pid);
  // The filter lets the other opens through when their flags only read.
  if (notification.data.nr == SYS_openat2 && !OpensForWriting(memory, args)) return std::nullopt;
  const int directory = call.directory == kNoArgument ? AT_FDCWD : static_cast<int>(args[call.directory]);
  InsidePaths::Resolved file;
  if (call.path == kNoArgument || args[call.path] == 0) {
    file = paths_.OfDescriptor(pid, directory);
  } else {
    const std::optional<std::string> path = ReadPath(memory, args[call.path]);
    if (!path) return std::nullopt;  // the kernel will say EFAULT or ENAMETOOLONG: nothing was named
    if (path->empty()) {
      file = paths_.OfDescriptor(pid, directory);
    } else {
      const std::string base = (*path)[0] == '/' ? "" : paths_.DirectoryOf(pid, directory);
      // Deeper than the kernel can name: only what can be written can be made that deep.
      if (base.empty() && (*path)[0] != '/') return std::nullopt;
      file = paths_.Resolve(pid, base, *path, call.target == Target::kExisting);
    }
  }
  Violation violation;
  violation.confidence = Confidence::kObserved;
  if (notification.data.nr == SYS_fallocate && AllocatesMoreThan(options_.scratch_bytes, args)) {
    violation.reason = "scratch_limit";
    violation.confidence = Confidence::kProven;  // the size is in the registers
    violation.limit = options_.scratch_bytes;
    violation.evidence.emplace_back("bytes_asked_for", static_cast<int64_t>(args[3]));
  } else if (MayBeWritten(file) || (call.target == Target::kDirectory && file.exists)) {
    return std::nullopt;
  }
  violation.evidence.emplace_back("path", file.path);
  if (notification.data.nr == SYS_openat) violation.evidence.emplace_back("flags", Hex(args[2]));
  if (notification.data.nr == SYS_open) violation.evidence.emplace_back("flags", Hex(args[1]));
  if (violation.reason.empty()) violation.suggestion = kWriteElsewhere;
  return violation;
}

// Binding a unix socket to a path makes a file there.
std::optional<Violation> Observer::JudgeBind(const struct seccomp_notif& notification) const {
  const pid_t pid = static_cast<pid_t>(notification.pid);
  const std::optional<std::string> path = ReadBoundPath(MemoryOf(pid), notification.data.args);
  if (!path) return std::nullopt;
  const std::string base = (*path)[0] == '/' ? "" : paths_.DirectoryOf(pid, AT_FDCWD);
  if (base.empty() && (*path)[0] != '/') return std::nullopt;
  const InsidePaths::Resolved file = paths_.Resolve(pid, base, *path, false);
  if (MayBeWritten(file)) return std::nullopt;
  Violation violation;
  violation.confidence = Confidence::kObserved;
  violation.evidence.emplace_back("path", file.path);
  violation.suggestion = kWriteElsewhere;
  return violation;
}

std::optional<Violation> Observer::JudgeAddress(const struct seccomp_notif& notification,
                                                const AddressCall& call) const {
  const std::optional<Peer> peer =
      FindOutsidePeer(MemoryOf(static_cast<pid_t>(notification.pid)), call, notification.data.args);
  if (!peer) return std::nullopt;
  Violation violation;
  violation.confidence = Confidence::kObserved;
  violation.evidence.emplace_back("address", peer->address);
  violation.evidence.emplace_back("port", int64_t{peer->port});
  violation.suggestion = "the sandbox has no network; only its own loopback can be reached";
  return violation;
}

}  // namespace caisson::sandbox

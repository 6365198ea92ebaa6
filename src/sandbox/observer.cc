#include "sandbox/observer.h"

#include <fcntl.h>
#include <linux/openat2.h>
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
constexpr char kNoNetwork[] = "the sandbox has no network; only its own loopback can be reached";

constexpr char kNotServed[] =
    "only destinations that the policy allows can be reached, by their name and at the ports that it lists";

std::string Hex(uint64_t value) {
  char digits[19] = "0x";
  const auto end = std::to_chars(digits + 2, digits + sizeof(digits), value, 16).ptr;
  return std::string(digits, end);
}

std::string AllRegisters(const struct seccomp_data& data) {
  std::string registers;
  for (const uint64_t argument : data.args) registers += (registers.empty() ? "" : " ") + Hex(argument);
  return registers;
}

}  // namespace

// The registers and the memory of one call.
class Observer::Arguments {
 public:
  explicit Arguments(const struct seccomp_notif& notification)
      : pid_(static_cast<pid_t>(notification.pid)), data_(notification.data) {
    memory_ = [this](uint64_t address, void* to, size_t size) {
      if (Read(address, to, size)) return true;
      unreadable_ = address;
      return false;
    };
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  pid_t pid() const { return pid_; }
  int32_t number() const { return data_.nr; }
  Registers registers() const { return data_.args; }
  const struct seccomp_data& data() const { return data_; }
  const ReadMemory& memory() const { return memory_; }
  // The last address that could not be read.
  std::optional<uint64_t> unreadable() const { return unreadable_; }

 private:
  bool Read(uint64_t address, void* to, size_t size) {
    struct iovec local {
      to, size
    };
    struct iovec remote {
      reinterpret_cast<void*>(address), size  // NOLINT(performance-no-int-to-ptr): another process's address
    };
    if (::process_vm_readv(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size)) return true;
    if (CAISSON_LEFT_OUT("unreadable_arguments")) return false;
    // SECURITY: the processor, and so the kernel, can read a page that is mapped write-only. process_vm_readv respects
    // the protection of the mapping; /proc/PID/mem ignores it.
    if (!file_) file_ = UniqueFd(::open(("/proc/" + std::to_string(pid_) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
    return file_ && ::pread(file_.get(), to, size, static_cast<off_t>(address)) == static_cast<ssize_t>(size);
  }

  const pid_t pid_;
  const struct seccomp_data& data_;
  ReadMemory memory_;
  UniqueFd file_;
  std::optional<uint64_t> unreadable_;
};

Observer::Observer(UniqueFd listener, UniqueFd root, const SeccompProgram& program, Options options)
    : listener_(std::move(listener)),
      paths_(std::move(root), options.writable),
      program_(program),
      options_(std::move(options)) {
  // Linux 6.6: wakes the supervisor on the CPU of the call, which is an order of magnitude cheaper than waking another
  // CPU. Older kernels answer EINVAL, and observation is only slower.
  ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
}

Observer::Seen Observer::HandleOne(const std::function<void()>& before_thread) {
  struct seccomp_notif notification {};
  Seen seen;
  // ENOENT: the calling process was killed before we looked, so its call never returned.
  if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, &notification) != 0) return seen;
  const NotifyRule* rule = FindNotifyRule(program_, notification.data);
  struct seccomp_notif_resp response {};
  response.id = notification.id;
  if (rule == nullptr) {
    // The filter and its rules come from one file, and a test compares them; if they ever disagree, the call is
    // refused.
    response.error = -ENOSYS;
  } else if (rule->disposition == Disposition::kObserve) {
    if (rule->violation_class == ViolationClass::kProcessLimit) {
      before_thread();
    } else {
      Judgement judgement = Judge(notification, *rule);
      seen.violation = std::move(judgement.violation);
      response.error = -judgement.error;
    }
    if (response.error == 0) response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
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
  violation.evidence.emplace_back("arguments", AllRegisters(notification.data));
  violation.evidence.emplace_back("answer", rule.disposition == Disposition::kKill
                                                ? std::string("killed")
                                                : std::string(::strerrorname_np(rule.errno_value)));
  return violation;
}

namespace {

Violation Observed() {
  Violation violation;
  violation.confidence = Confidence::kObserved;
  return violation;
}

// The violation for an argument that could not be read or named; only its registers are known.
Violation Unreadable(const struct seccomp_data& data, std::optional<uint64_t> address) {
  Violation violation;
  violation.reason = "unreadable";
  violation.confidence = Confidence::kProven;
  violation.evidence.emplace_back("arguments", AllRegisters(data));
  if (address) violation.evidence.emplace_back("address", Hex(*address));
  violation.suggestion = "an argument of this call could not be read, so what it names is not known";
  return violation;
}

// No process without privileges can map the first page (vm.mmap_min_addr), so a pointer there names nothing.
bool IsNull(uint64_t address) { return address < 4096; }

}  // namespace

Observer::Judgement Observer::Judge(const struct seccomp_notif& notification, const NotifyRule& rule) {
  const Arguments arguments(notification);
  Judgement judgement;
  int count = 0;
  if (const PathCall* call = FindPathCalls(notification.data.nr, &count)) {
    for (int i = 0; i < count && !judgement.violation && judgement.error == 0; ++i)
      judgement = JudgeWrite(arguments, call[i]);
  } else if (notification.data.nr == SYS_bind) {
    judgement = JudgeBind(arguments);
  } else if (const AddressCall* address = FindAddressCall(notification.data.nr)) {
    judgement = JudgeAddress(arguments, *address);
  } else {
    judgement.violation = Unreadable(notification.data, std::nullopt);
  }
  if (const auto address = arguments.unreadable(); address && !CAISSON_LEFT_OUT("unreadable_arguments")) {
    // The kernel's answer if it cannot read the argument either. If it can by now, the answer is still a refusal.
    judgement.error = EFAULT;
    if (!judgement.violation && !IsNull(*address)) judgement.violation = Unreadable(notification.data, address);
  }
  // The process may have died and its pid been reused while we read; then we read another process's memory.
  if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_ID_VALID, &notification.id) != 0) return {};
  if (!judgement.violation) return judgement;
  Violation& violation = *judgement.violation;
  violation.violation_class = rule.violation_class;
  if (violation.reason.empty()) violation.reason = rule.reason;
  violation.pid = InsidePid(arguments.pid());
  const char* name = linux_sys::SyscallName(notification.data.nr);
  violation.evidence.emplace(violation.evidence.begin(), "syscall", name != nullptr ? name : "unknown");
  return judgement;
}

bool Observer::MayBeWritten(const InsidePaths::Resolved& file) const {
  return !file.is_file_system || sandbox::MayBeWritten(options_, file.path);
}

Observer::Judgement Observer::JudgeWrite(const Arguments& arguments, const PathCall& call) const {
  const Registers args = arguments.registers();
  OpenHow how;
  if (call.target == Target::kOpened) {
    const std::optional<OpenHow> read = ReadOpenHow(arguments.memory(), call, args);
    if (!read || !OpensForWriting(read->flags)) return {};
    how = *read;
  }
  const int directory = call.directory == kNoArgument ? AT_FDCWD : static_cast<int>(args[call.directory]);
  const bool empty_means_descriptor =
      call.target == Target::kExisting && call.flags != kNoArgument && (args[call.flags] & AT_EMPTY_PATH) != 0;
  const bool null_means_descriptor =
      empty_means_descriptor || call.number == SYS_utimensat || call.number == SYS_futimesat;
  if (call.path == kNoArgument || (args[call.path] == 0 && null_means_descriptor)) {
    return JudgeFile(arguments, call, paths_.OfDescriptor(arguments.pid(), directory), 0);
  }
  const auto read_path = [&] { return ReadPath(arguments.memory(), args[call.path]); };
  std::optional<std::string> path = read_path();
  // The path is too long, unless it is unreadable.
  if (!path) return {std::nullopt, ENAMETOOLONG};
  if (path->empty()) {
    // Without the flag the kernel answers ENOENT.
    if (!empty_means_descriptor) return {};
    return JudgeFile(arguments, call, paths_.OfDescriptor(arguments.pid(), directory), 0);
  }
  Judgement judgement = JudgePath(arguments, call, *path, how);
  if (judgement.violation || judgement.error != 0) return judgement;
  // SECURITY: another thread may switch the path back and forth, so that we see one value and the kernel the other. A
  // second look does not prevent that, but makes it a gamble that a workload loses when it repeats the attempt.
  const std::optional<std::string> again = read_path();
  if (!again || *again == *path || again->empty()) return judgement;
  return JudgePath(arguments, call, *again, how);
}

Observer::Judgement Observer::JudgePath(const Arguments& arguments, const PathCall& call, const std::string& path,
                                        const OpenHow& how) const {
  const Registers args = arguments.registers();
  const int directory = call.directory == kNoArgument ? AT_FDCWD : static_cast<int>(args[call.directory]);
  const bool slash_behind = path.back() == '/';
  bool follow = false;
  switch (call.target) {
    case Target::kOpened: {
      constexpr uint64_t kNew = O_CREAT | O_EXCL;
      follow = (how.flags & kNew) != kNew && ((how.flags & O_NOFOLLOW) == 0 || slash_behind);
      break;
    }
    case Target::kExisting:
      follow = call.flags == kNoArgument || (args[call.flags] & AT_SYMLINK_NOFOLLOW) == 0 || slash_behind;
      break;
    case Target::kLink:
      follow = slash_behind;
      break;
    case Target::kEntry:
    case Target::kDirectory:
      break;
  }
  const bool in_root = (how.resolve & RESOLVE_IN_ROOT) != 0;
  return JudgeFile(arguments, call, paths_.Resolve({arguments.pid(), directory, in_root}, path, follow), how.flags);
}

Observer::Judgement Observer::JudgeFile(const Arguments& arguments, const PathCall& call,
                                        const InsidePaths::Resolved& file, uint64_t open_flags) const {
  using Presence = InsidePaths::Presence;
  const Registers args = arguments.registers();
  if (file.error != 0) return {std::nullopt, file.error};
  if (!file.named) return {Unreadable(arguments.data(), std::nullopt)};
  Violation violation = Observed();
  if (call.number == SYS_fallocate && AllocatesMoreThan(options_.scratch_bytes, args)) {
    violation.reason = "scratch_limit";
    violation.confidence = Confidence::kProven;  // the size is in the registers
    violation.limit = options_.scratch_bytes;
    violation.evidence.emplace_back("bytes_asked_for", static_cast<int64_t>(args[3]));
  } else if (MayBeWritten(file)) {
    return {};
  } else if (call.target == Target::kDirectory && file.presence == Presence::kThere) {
    return {};
  } else if (call.target == Target::kOpened) {
    // A file that does not exist is written only if the call creates it; a file that exists is not created again. In
    // /proc a file may exist a moment later, when another thread has opened a descriptor; and an open for writing in
    // /sys addresses the kernel.
    const bool lasts = !IsBelow(file.path, "/proc") && !IsBelow(file.path, "/sys");
    if ((open_flags & O_CREAT) == 0 && file.presence == Presence::kMissing && lasts) return {};
    if ((open_flags & (O_ACCMODE | O_TRUNC)) == 0 && file.presence == Presence::kThere) return {};
  }
  violation.evidence.emplace_back("path", file.path);
  if (call.target == Target::kOpened) violation.evidence.emplace_back("flags", Hex(open_flags));
  if (violation.reason.empty()) violation.suggestion = kWriteElsewhere;
  return {std::move(violation)};
}

// Binding a unix socket to a path creates a file there.
Observer::Judgement Observer::JudgeBind(const Arguments& arguments) const {
  const std::optional<std::string> path = ReadBoundPath(arguments.memory(), arguments.registers());
  if (!path) return {};
  constexpr PathCall kBind{SYS_bind, Target::kEntry, kNoArgument, 1};
  return JudgeFile(arguments, kBind, paths_.Resolve({arguments.pid(), AT_FDCWD}, *path, false), 0);
}

Observer::Judgement Observer::JudgeAddress(const Arguments& arguments, const AddressCall& call) {
  // Opened while the calling process waits, because that process keeps the namespace alive.
  if (!routes_.is_open() && !routes_.Open(arguments.pid())) routes_unreadable_ = true;
  std::optional<Peer> peer = FindOutsidePeer(arguments.memory(), call, arguments.registers(), options_.is_served);
  if (!peer) return {};
  ++peers_seen_;
  Violation violation = Observed();
  violation.evidence.emplace_back("address", std::move(peer->address));
  violation.evidence.emplace_back("port", int64_t{peer->port});
  const std::string name = peer->ipv4 && options_.name_at ? options_.name_at(*peer->ipv4) : "";
  if (!name.empty()) violation.evidence.emplace_back("name", name);
  violation.suggestion = options_.is_served ? kNotServed : kNoNetwork;
  return {std::move(violation)};
}

std::optional<Violation> Observer::FindUnseenPeers() {
  if (CAISSON_LEFT_OUT("route_counters") || !(routes_.is_open() || routes_unreadable_)) return std::nullopt;
  const std::optional<int64_t> unrouted = routes_unreadable_ ? std::nullopt : routes_.Read();
  const int64_t before = unrouted_, seen = peers_seen_;
  unrouted_ = unrouted.value_or(unrouted_);
  peers_seen_ = 0;
  if (unrouted && *unrouted - before <= seen) return std::nullopt;
  Violation violation;
  violation.violation_class = ViolationClass::kNetworkAccess;
  violation.reason = unrouted ? "net.unrouted" : "unreadable";
  if (unrouted) {
    violation.evidence.emplace_back("unrouted_before", before);
    violation.evidence.emplace_back("unrouted_after", *unrouted);
    violation.evidence.emplace_back("seen_calls", seen);
  } else {
    violation.evidence.emplace_back("counter", "OutNoRoutes");
  }
  violation.suggestion = kNoNetwork;
  return violation;
}

}  // namespace caisson::sandbox

#include "runtime/oci/trace_judge.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "linux/syscall_names.h"
#include "sandbox/inside_paths.h"
#include "sandbox/observed_memory.h"
#include "sandbox/probes.h"

namespace caisson::runtime::oci {

namespace {

constexpr char kWriteElsewhere[] = "write below /scratch or /tmp instead";
constexpr char kNoNetwork[] = "the sandbox has no network; only its own loopback can be reached";

// Calls that gVisor reports with their path or address.
constexpr int32_t kDescribedCalls[] = {SYS_open, SYS_openat, SYS_creat, SYS_connect, SYS_bind};
constexpr int32_t kForks[] = {SYS_clone, SYS_fork, SYS_vfork, SYS_clone3};

template <size_t kCount>
bool Lists(const int32_t (&list)[kCount], int32_t number) {
  return std::find(std::begin(list), std::end(list), number) != std::end(list);
}

std::string Hex(uint64_t value) {
  char digits[19] = "0x";
  const auto end = std::to_chars(digits + 2, digits + sizeof(digits), value, 16).ptr;
  return std::string(digits, end);
}

std::string NameOfError(int error) {
  const char* name = ::strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}

std::string NameOfCall(int32_t number) {
  const char* name = linux_sys::SyscallName(number);
  return name != nullptr ? name : std::to_string(number);
}

Violation Describe(const TraceEvent& event) {
  Violation violation;
  violation.confidence = Confidence::kProven;
  violation.pid = event.pid;
  violation.source = EvidenceSource::kOutside;
  violation.evidence.emplace_back("syscall", NameOfCall(event.number));
  return violation;
}

void AddRegisters(Violation& violation, const TraceEvent& event) {
  std::string registers;
  for (const uint64_t argument : event.arguments) registers += (registers.empty() ? "" : " ") + Hex(argument);
  violation.evidence.emplace_back("arguments", std::move(registers));
}

void AddAnswer(Violation& violation, const TraceEvent& event) {
  violation.evidence.emplace_back("answer", NameOfError(event.error));
}

// Absolute and without "." and "..". A path that gVisor could not name begins without a slash and stays so.
std::string PathOf(const TraceEvent& event, const std::string& path) {
  if (!path.empty() && path[0] == '/') return sandbox::NormalizePath(path);
  const bool from_cwd = event.number != SYS_openat || static_cast<int32_t>(event.arguments[0]) == AT_FDCWD;
  const std::string& base = from_cwd ? event.cwd : event.directory;
  if (base.empty() || base[0] != '/') return "";
  return sandbox::NormalizePath(base + "/" + path);
}

// The address of connect or bind as memory, for the functions that read it there.
constexpr uint64_t kAddressAt = 0x10000;
sandbox::ReadMemory MemoryOf(const TraceEvent& event) {
  return [&event](uint64_t address, void* to, size_t size) {
    if (address < kAddressAt || address - kAddressAt > event.address.size() ||
        size > event.address.size() - (address - kAddressAt))
      return false;
    std::memcpy(to, event.address.data() + (address - kAddressAt), size);
    return true;
  };
}

// The errors with which a kernel refuses a write for its place, by the call. EPERM also means "not the owner": of chmod
// and utime only foreign files have it, of chown every file does (cp -p asks for the source's owner and does without).
bool RefusesPlace(int32_t number, int error) {
  if (error == EROFS || error == EACCES) return true;
  constexpr int32_t kOwnersOnly[] = {SYS_chmod,  SYS_fchmod,    SYS_fchmodat, SYS_utime,
                                     SYS_utimes, SYS_futimesat, SYS_utimensat};
  return error == EPERM && Lists(kOwnersOnly, number);
}

}  // namespace

TraceJudge::TraceJudge(const sandbox::SeccompProgram& program, std::unique_ptr<sandbox::ExtendedProgram> extended,
                       Options options)
    : extended_(std::move(extended)),
      program_(extended_ ? extended_->program() : program),
      options_(std::move(options)) {}

std::vector<int32_t> TraceJudge::RawCalls() const {
  std::vector<int32_t> numbers(std::begin(kForks), std::end(kForks));
  for (const sandbox::NotifyRule& rule : program_.rules) {
    if (rule.number > 0 && !Lists(kDescribedCalls, rule.number)) numbers.push_back(rule.number);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

bool TraceJudge::IsRefusedFork(const TraceEvent& event) { return event.error == EAGAIN && Lists(kForks, event.number); }

std::optional<Violation> TraceJudge::Judge(const TraceEvent& event) const {
  struct seccomp_data data {};
  data.nr = event.number;
  data.arch = AUDIT_ARCH_X86_64;
  std::copy(event.arguments.begin(), event.arguments.end(), data.args);
  if ((sandbox::RunFilter(program_, data) & SECCOMP_RET_ACTION_FULL) != SECCOMP_RET_USER_NOTIF) return std::nullopt;
  const sandbox::NotifyRule* rule = sandbox::FindNotifyRule(program_, data);
  if (rule == nullptr) return std::nullopt;
  if (rule->disposition != sandbox::Disposition::kObserve) return JudgeForbidden(event, *rule);
  std::optional<Violation> violation;
  if (rule->violation_class == ViolationClass::kFilesystemWrite) violation = JudgeWrite(event);
  if (rule->violation_class == ViolationClass::kNetworkAccess) violation = JudgePeer(event);
  if (!violation) return std::nullopt;
  violation->violation_class = rule->violation_class;
  if (violation->reason.empty()) violation->reason = rule->reason;
  return violation;
}

// SECURITY: the registers decide, as in the filter. gVisor's answer decides nothing but whether the command may go on.
std::optional<Violation> TraceJudge::JudgeForbidden(const TraceEvent& event, const sandbox::NotifyRule& rule) const {
  Violation violation = Describe(event);
  violation.violation_class = rule.violation_class;
  violation.reason = rule.reason;
  violation.evidence.emplace_back("syscall_number", int64_t{event.number});
  AddRegisters(violation, event);
  violation.evidence.emplace_back("answer", event.error != 0 ? NameOfError(event.error) : "granted");
  const bool granted = event.error == 0 && sandbox::FindProbe(options_.probes, violation) == nullptr;
  if (granted || rule.disposition == sandbox::Disposition::kKill) violation.evidence.back().second = "killed";
  return violation;
}

// Whether an error of a call at this path says nothing about the place: it may be written, and the path is what it
// seems. A writable place is never read-only, so EROFS there means that the path led elsewhere.
bool TraceJudge::IsKnownWritable(const std::string& path, int error) const {
  if (!sandbox::MayBeWritten(options_, path)) return false;
  const bool below = std::any_of(options_.writable.begin(), options_.writable.end(),
                                 [&](const std::string& place) { return sandbox::IsBelow(path, place); });
  if (!below) return true;
  if (error == EROFS) return false;
  return !options_.leads_through_link || !options_.leads_through_link(path);
}

std::optional<Violation> TraceJudge::JudgeWrite(const TraceEvent& event) const {
  if (event.number == SYS_fallocate) {
    __u64 arguments[6];
    std::copy(event.arguments.begin(), event.arguments.end(), arguments);
    if (sandbox::AllocatesMoreThan(options_.scratch_bytes, arguments)) {
      Violation violation = Describe(event);
      violation.reason = "scratch_limit";
      violation.limit = options_.scratch_bytes;
      violation.evidence.emplace_back("bytes_asked_for", static_cast<int64_t>(event.arguments[3]));
      return violation;
    }
  }
  if (event.error == 0) return std::nullopt;
  if (event.number == SYS_open || event.number == SYS_openat || event.number == SYS_creat) return JudgeOpen(event);
  if (event.number != SYS_bind) return JudgePathlessWrite(event);
  const __u64 arguments[6] = {0, kAddressAt, event.address.size(), 0, 0, 0};
  const std::optional<std::string> bound = sandbox::ReadBoundPath(MemoryOf(event), arguments);
  if (!bound || !RefusesPlace(event.number, event.error)) return std::nullopt;
  const std::string path = PathOf(event, *bound);
  if (!path.empty() && IsKnownWritable(path, event.error)) return std::nullopt;
  Violation violation = Describe(event);
  violation.evidence.emplace_back("path", path.empty() ? *bound : path);
  AddAnswer(violation, event);
  violation.suggestion = kWriteElsewhere;
  return violation;
}

std::optional<Violation> TraceJudge::JudgeOpen(const TraceEvent& event) const {
  uint64_t flags = O_CREAT | O_WRONLY | O_TRUNC;
  if (event.number == SYS_open) flags = event.arguments[1];
  if (event.number == SYS_openat) flags = event.arguments[2];
  if (!sandbox::OpensForWriting(flags)) return std::nullopt;
  // Errors that say nothing about the file: no other argument would have helped.
  constexpr int32_t kNotAboutTheFile[] = {ELOOP, ENAMETOOLONG, EFAULT, EMFILE, ENFILE, EINTR, EBADF};
  if (Lists(kNotAboutTheFile, event.error)) return std::nullopt;
  const std::string path = PathOf(event, event.path);
  if (!path.empty()) {
    if (IsKnownWritable(path, event.error)) return std::nullopt;
    // As sandbox/observer.cc: a file that does not exist is written only if the call creates it; what exists is not
    // created again; files of /proc and /sys come and go.
    const bool lasts = !sandbox::IsBelow(path, "/proc") && !sandbox::IsBelow(path, "/sys");
    const bool missing = event.error == ENOENT || event.error == ENOTDIR;
    if (missing && (flags & O_CREAT) == 0 && lasts) return std::nullopt;
    if (event.error == EEXIST && (flags & (O_ACCMODE | O_TRUNC)) == 0) return std::nullopt;
    if (missing && sandbox::MayBeWritten(options_, path)) return std::nullopt;
  }
  Violation violation = Describe(event);
  violation.evidence.emplace_back("path", path.empty() ? event.path : path);
  violation.evidence.emplace_back("flags", Hex(flags));
  AddAnswer(violation, event);
  violation.suggestion = kWriteElsewhere;
  return violation;
}

std::optional<Violation> TraceJudge::JudgePathlessWrite(const TraceEvent& event) const {
  if (!RefusesPlace(event.number, event.error)) return std::nullopt;
  Violation violation = Describe(event);
  AddRegisters(violation, event);
  AddAnswer(violation, event);
  violation.suggestion = kWriteElsewhere;
  return violation;
}

std::optional<Violation> TraceJudge::JudgePeer(const TraceEvent& event) const {
  Violation violation = Describe(event);
  if (event.number == SYS_connect) {
    const sandbox::AddressCall* call = sandbox::FindAddressCall(event.number);
    const __u64 arguments[6] = {0, kAddressAt, event.address.size(), 0, 0, 0};
    const std::optional<sandbox::Peer> peer = sandbox::FindOutsidePeer(MemoryOf(event), *call, arguments);
    if (!peer) return std::nullopt;
    violation.evidence.emplace_back("address", peer->address);
    violation.evidence.emplace_back("port", int64_t{peer->port});
  } else {
    // gVisor's network has no route but to its own loopback. EACCES: a broadcast.
    constexpr int32_t kUnreachable[] = {ENETUNREACH, EHOSTUNREACH, ENETDOWN, EHOSTDOWN, EACCES};
    if (!Lists(kUnreachable, event.error)) return std::nullopt;
  }
  violation.evidence.emplace_back("answer", event.error != 0 ? NameOfError(event.error) : "granted");
  violation.suggestion = kNoNetwork;
  return violation;
}

}  // namespace caisson::runtime::oci

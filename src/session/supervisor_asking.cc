// ask.sock: where programs inside ask (session/ask_request.h). The session's directory holds a directory of its own for
// it, which is shown inside, read-only, at /run/caisson: the socket, and the programs that write to it.
//
// SECURITY: bytes from this socket ask and nothing else. Each connection brings one bounded line, in bounded time.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "linux/files.h"
#include "policy/network_plan.h"
#include "policy/syntax.h"
#include "session/supervisor.h"

namespace caisson::session {

namespace {

constexpr char kInside[] = "/run/caisson";
constexpr char kProgram[] = "caisson-ask";
// Programs that agents call by habit: each is the same program, which says what to ask for instead.
constexpr const char* kStandIns[] = {"sudo", "apt", "apt-get"};
constexpr size_t kMostAskers = 32;
constexpr int64_t kLineMs = 10'000;
constexpr int64_t kMaxProgramBytes = int64_t{64} << 20;

int64_t NowMs() { return MonotonicNanos() / 1'000'000; }

// Lies beside this program, like the other helpers.
Result<UniqueFd> OpenProgram() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0 || size == sizeof(path)) return Error::System(size < 0 ? errno : ENAMETOOLONG, "read /proc/self/exe");
  const std::string self(path, static_cast<size_t>(size));
  return linux_sys::Open(self.substr(0, self.rfind('/') + 1) + kProgram, O_RDONLY);
}

Status CopyProgram(const UniqueFd& program, int directory) {
  struct stat info {};
  if (::fstat(program.get(), &info) != 0 || info.st_size > kMaxProgramBytes)
    return Error::System(errno, std::string("read ") + kProgram);
  CAISSON_TRY(const std::string bytes, linux_sys::ReadAt(program.get(), 0, info.st_size));
  ::unlinkat(directory, kProgram, 0);
  const UniqueFd copy(::openat(directory, kProgram, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755));
  if (!copy || ::fchmod(copy.get(), 0755) != 0) return Error::System(errno, std::string("copy ") + kProgram);
  return linux_sys::WriteAll(copy.get(), bytes);
}

// Where a variable holds the path of programs, ours come first.
void PutFirst(std::vector<std::pair<std::string, std::string>>& environment) {
  for (auto& [name, value] : environment) {
    if (name == "PATH") value = std::string(kInside) + "/bin:" + value;
  }
}

}  // namespace

Status Supervisor::OfferAsking(policy::RunPlan& plan) {
  if (!plan.profile.approvals.offered()) return {};
  for (const policy::PlannedMount& mount : plan.mounts) {
    if (!policy::IsAtOrBelow(kInside, mount.target) && !policy::IsAtOrBelow(mount.target, kInside)) continue;
    record_.notices.push_back("programs inside cannot ask for anything, because a mount takes " + std::string(kInside));
    return {};
  }
  const Result<UniqueFd> program = OpenProgram();
  if (!program) {
    record_.notices.push_back("programs inside cannot ask for anything: " + program.error().message);
    return {};
  }
  for (const char* name : {"inside", "inside/bin"}) {
    if ((::mkdirat(directory_.fd(), name, 0755) != 0 && errno != EEXIST) ||
        ::fchmodat(directory_.fd(), name, 0755, 0) != 0)
      return Error::System(errno, "make " + directory_.File(name));
  }
  CAISSON_TRY(const UniqueFd programs, linux_sys::OpenAt(directory_.fd(), "inside/bin", O_RDONLY | O_DIRECTORY));
  CAISSON_TRY_VOID(CopyProgram(*program, programs.get()));
  for (const char* name : kStandIns) {
    if (::symlinkat(kProgram, programs.get(), name) != 0 && errno != EEXIST)
      return Error::System(errno, std::string("make ") + name);
  }
  CAISSON_TRY_VOID(ListenForAskers());
  policy::JudgedPath own;
  CAISSON_TRY(own.fd, linux_sys::OpenAt(directory_.fd(), "inside", O_PATH | O_DIRECTORY | O_NOFOLLOW));
  own.canonical = directory_.File("inside");
  own.is_directory = true;
  plan.mounts.push_back({std::move(own), kInside, policy::Access::kReadOnly});
  PutFirst(plan.profile.environment);
  if (plan.image) PutFirst(plan.image->environment);
  return {};
}

Status Supervisor::ListenForAskers() {
  if (ask_listener_) return {};  // the plan is a second try
  ask_listener_.Reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/inside/ask.sock", directory_.fd());
  ::unlinkat(directory_.fd(), "inside/ask.sock", 0);
  // Every user inside may ask; outside, the session's directory keeps others away.
  const mode_t mask = ::umask(0111);
  const bool bound =
      ask_listener_ && ::bind(ask_listener_.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) == 0;
  ::umask(mask);
  if (!bound || ::listen(ask_listener_.get(), 16) != 0) return Error::System(errno, "make ask.sock");
  reactor_.Add(ask_listener_.get(), EPOLLIN, [this](uint32_t) { OnAsker(); });
  return {};
}

void Supervisor::OnAsker() {
  UniqueFd socket(::accept4(ask_listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket || askers_.size() >= kMostAskers) return;
  const uint64_t number = ++last_asker_;
  Asker& asker = askers_[number];
  asker.socket = std::move(socket);
  asker.until_ms = NowMs() + kLineMs;
  asker.tag = reactor_.Add(asker.socket.get(), EPOLLIN, [this, number](uint32_t) { OnAskerBytes(number); });
}

void Supervisor::OnAskerBytes(uint64_t number) {
  Asker& asker = askers_.at(number);
  char bytes[kMaxAskBytes];
  const ssize_t count = ::recv(asker.socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // A program that leaves gives up waiting, not its question.
  if (count <= 0 || asker.asked) return DropAsker(number);
  asker.line.append(bytes, static_cast<size_t>(count));
  const size_t end = asker.line.find('\n');
  if (end == std::string::npos && asker.line.size() <= kMaxAskBytes) return;
  asker.asked = true;
  // While a client reads the session's files nothing inside runs, and what came before waits for its answer.
  const std::string line = asker.line.substr(0, end);
  TakeAsk(number, line);
}

void Supervisor::TakeAsk(uint64_t number, std::string_view line) {
  const Result<AskRequest> request = ParseAskRequest(line);
  if (!request) return AnswerAsker(number, false, request.error().message);
  if (Approval* equal = approvals_->FindEqual(*request, "")) {
    equal->askers.insert(number);
    return;
  }
  if (!approvals_->MayAsk(NowMs()))
    return AnswerAsker(number, false, "too many questions in a minute; wait, and ask for what is needed most");
  const Result<JudgedPolicy> policy = JudgePolicy(request_, directory_, *runtimes_);
  if (!policy) return AnswerAsker(number, false, "the policy cannot be read");
  const Result<AskEffect> effect = JudgeAsk(*request, policy->profile);
  if (!effect) return AnswerAsker(number, false, effect.error().message);
  bool known = !effect->entries.empty();
  for (const std::string& entry : effect->entries) known = known && policy::Covers(profile_.network, entry);
  if (known) return AnswerAsker(number, true, request->what + " is allowed already");
  Approval approval;
  approval.request = *request;
  const bool asks = effect->escalation == policy::Escalation::kAsk;
  if (asks && !request_.attended)
    return AnswerAsker(number, false, "no person can be asked: the session was opened without --ask");
  approval.askers.insert(number);
  Approval* asked = Ask(std::move(approval), policy->digest);
  if (asked == nullptr) return AnswerAsker(number, false, "the question could not be recorded");
  if (asks) return;
  const Approval taken = approvals_->Take(asked->id);
  Status granted = CloseApproval(taken, SessionEventType::kApprovalGranted, {{"scope", "session"}, {"by", "policy"}});
  if (granted) granted = Grant(taken, *effect, NetworkAnswer::Scope::kSession);
  AnswerAsker(number, static_cast<bool>(granted), granted ? request->what : granted.error().message);
}

void Supervisor::AnswerAsker(uint64_t number, bool granted, const std::string& text) {
  const auto found = askers_.find(number);
  if (found == askers_.end()) return;
  const std::string line = (granted ? "granted " : "denied ") + text + "\n";
  (void)!::send(found->second.socket.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  DropAsker(number);
}

void Supervisor::DropAsker(uint64_t number) {
  const auto found = askers_.find(number);
  if (found == askers_.end()) return;
  reactor_.Remove(found->second.tag);
  askers_.erase(found);
}

void Supervisor::DropLateAskers(int64_t now_ms) {
  for (auto at = askers_.begin(); at != askers_.end();) {
    const uint64_t number = at->first;
    const bool late = !at->second.asked && at->second.until_ms <= now_ms;
    ++at;
    if (late) DropAsker(number);
  }
}

}  // namespace caisson::session

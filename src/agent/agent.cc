#include "agent/agent.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/channel.h"
#include "agent/protocol.h"
#include "agent/witness.h"
#include "base/clock.h"
#include "linux/files.h"
#include "linux/syscalls.h"
#include "sandbox/mount_fd.h"

namespace caisson::agent {

namespace {

// The capabilities in any set of this process.
Result<uint64_t> ReadCapabilities() {
  CAISSON_TRY(const std::string status, linux_sys::ReadSmallFile(AT_FDCWD, "/proc/self/status", 8192));
  uint64_t all = 0;
  for (const char* set : {"\nCapInh:\t", "\nCapPrm:\t", "\nCapEff:\t", "\nCapBnd:\t", "\nCapAmb:\t"}) {
    const size_t at = status.find(set);
    uint64_t value = 0;
    // gVisor's kernel does not show the ambient set, which is never more than the permitted one.
    if (at == std::string::npos && std::string_view(set) == "\nCapAmb:\t") continue;
    if (at == std::string::npos ||
        std::from_chars(status.data() + at + 9, status.data() + status.size(), value, 16).ec != std::errc())
      return Error::System(EPROTO, "read the capabilities of the agent");
    all |= value;
  }
  return all;
}

bool HasOnlyLoopback() {
  struct if_nameindex* const interfaces = ::if_nameindex();
  if (interfaces == nullptr) return false;
  bool only = true;
  for (const struct if_nameindex* one = interfaces; one->if_index != 0; ++one)
    only &= std::string_view(one->if_name) == "lo";
  ::if_freenameindex(interfaces);
  return only;
}

// Sockets at the address that /etc/resolv.conf names. The walls outside have raised the loopback; where they have not,
// and the agent may, it does.
Result<std::unique_ptr<sandbox::DnsServer>> OpenNames() {
  sandbox::DnsSockets sockets;
  if (sandbox::RaiseLoopbackHere(sockets) != 0) {
    for (const int fd : {sockets.datagrams, sockets.listener}) {
      if (fd >= 0) ::close(fd);
    }
    struct sockaddr_in address {};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    address.sin_addr.s_addr = htonl(0x7f000035);  // 127.0.0.53
    sockets.datagrams = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockets.listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    for (const int fd : {sockets.datagrams, sockets.listener}) {
      if (fd < 0 || ::bind(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) != 0)
        return Error::System(errno, "wall names: listen at 127.0.0.53:53 inside the container");
    }
    if (::listen(sockets.listener, 8) != 0) return Error::System(errno, "wall names: listen");
  }
  return std::make_unique<sandbox::DnsServer>(UniqueFd(sockets.datagrams), UniqueFd(sockets.listener));
}

// True for an interface that is down; one whose state cannot be read counts as up.
bool IsDown(const std::string& name) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  struct ifreq request {};
  name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  return socket && ::ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) == 0;
}

// Lets nproc and thread pools see as many CPUs as the quota covers. This limits nothing by itself: the quota does.
void ChooseCpus(sandbox::SetupContext& context) {
  cpu_set_t available;
  if (::sched_getaffinity(0, sizeof(available), &available) != 0) return;
  const int count = CPU_COUNT(&available);
  const int wanted = static_cast<int>((context.spec->limits.cpu_millis + 999) / 1000);
  if (wanted >= count) return;
  // Neighbouring containers start at different CPUs.
  int skip = static_cast<int>(MonotonicNanos() / 1000 % count);
  CPU_ZERO(&context.cpus);
  for (int taken = 0, cpu = 0; taken < wanted; cpu = (cpu + 1) % CPU_SETSIZE) {
    if (!CPU_ISSET(cpu, &available) || skip-- > 0) continue;
    CPU_SET(cpu, &context.cpus);
    ++taken;
  }
  context.restrict_cpus = true;
}

// The interfaces of the network namespace besides the loopback, up or not: the workload's peers are behind them.
Result<std::vector<std::string>> ListInterfaces() {
  struct if_nameindex* const list = ::if_nameindex();
  if (list == nullptr) return Error::System(errno, "wall network: list the interfaces");
  std::vector<std::string> names;
  for (const struct if_nameindex* entry = list; entry->if_index != 0; ++entry) {
    if (std::string_view(entry->if_name) != "lo") names.emplace_back(entry->if_name);
  }
  ::if_freenameindex(list);
  // Tunnels that every namespace of some kernels has; they are down, and nothing inside can raise them.
  names.erase(std::remove_if(names.begin(), names.end(), IsDown), names.end());
  return names;
}

class Agent {
 public:
  Agent(int input, int output) : channel_(input, output) {}

  Status Run(bool await_greeting) {
    if (await_greeting) {
      CAISSON_TRY(const Frame greeting, channel_.Await());
      if (greeting.kind != Kind::kGreet) return Error::Invalid("greeting: expected first");
    }
    channel_.Send(Kind::kHello, EncodeNumber(kProtocolVersion));
    CAISSON_TRY_VOID(TakePlan());
    CAISSON_TRY_VOID(Prepare());
    for (;;) {
      CAISSON_TRY(const Frame frame, channel_.Await());
      CAISSON_TRY_VOID(Answer(frame));
    }
  }
  // Tells why the agent ends; a runtime that is gone does not need it.
  void Report(const Error& error) {
    channel_.Send(Kind::kError, std::string_view(Encode(error)));
    channel_.FlushAll();
  }

 private:
  Status TakePlan();
  Status TakeWorkspace();
  Status WritePiece(int workspace, const FilePiece& piece);
  Status Prepare();
  Status Answer(const Frame& frame);
  sandbox::Collected Collect(const std::vector<std::string>& globs) const;

  Channel channel_;
  Place place_;
  UniqueFd children_;
  UniqueFd open_file_;  // of the workspace, which the next piece may continue
  std::string open_path_;
  Ready ready_;
};

Status Agent::TakePlan() {
  CAISSON_TRY(const Frame frame, channel_.Await());
  if (frame.kind != Kind::kPlan) return Error::Invalid("plan: expected first");
  CAISSON_TRY(place_.plan, DecodePlan(frame.body));
  sandbox::Spec& spec = place_.plan.spec;
  // The steps of the workload's process find here what Landlock must let it write.
  for (const ShownTree& mount : place_.plan.mounts) {
    sandbox::Mount shown;
    shown.target = mount.target;
    shown.access = mount.access;
    if (mount.target == "/workspace")
      spec.workspace = std::move(shown);
    else
      spec.mounts.push_back(std::move(shown));
  }
  return TakeWorkspace();
}

Status Agent::TakeWorkspace() {
  const UniqueFd workspace(::open("/workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!workspace) return Error::System(errno, "open /workspace");
  for (;;) {
    CAISSON_TRY(const Frame frame, channel_.Await());
    if (frame.kind == Kind::kBegin) break;
    if (frame.kind != Kind::kFile) return Error::Invalid("file: expected");
    CAISSON_TRY(const FilePiece piece, DecodeFilePiece(frame.body));
    Status written = WritePiece(workspace.get(), piece);
    if (!written) return std::move(written).error().In("write the workspace");
  }
  open_file_.Reset();
  return {};
}

Status Agent::WritePiece(int workspace, const FilePiece& piece) {
  if (piece.continues) {
    if (!open_file_ || open_path_ != piece.path) return Error::Invalid("file: continues another");
    return linux_sys::WriteAll(open_file_.get(), piece.bytes);
  }
  open_file_.Reset();
  // Every look-up stays below the workspace and follows no link, whatever the pieces before have created.
  const size_t slash = piece.path.rfind('/');
  UniqueFd parent;
  if (slash == std::string::npos)
    parent = UniqueFd(::fcntl(workspace, F_DUPFD_CLOEXEC, 3));
  else
    parent = sandbox::MakeDirectories(workspace, std::string_view(piece.path).substr(0, slash));
  if (!parent) return Error::System(errno, piece.path);
  const char* name = piece.path.c_str() + (slash == std::string::npos ? 0 : slash + 1);
  if (piece.kind == sandbox::FileKind::kDirectory) {
    if (!sandbox::MakeDirectories(workspace, piece.path)) return Error::System(errno, piece.path);
    return {};
  }
  if (piece.kind == sandbox::FileKind::kSymlink) {
    if (::symlinkat(piece.bytes.c_str(), parent.get(), name) != 0) return Error::System(errno, piece.path);
    return {};
  }
  open_file_ = UniqueFd(::openat(parent.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!open_file_ || ::fchmod(open_file_.get(), piece.mode) != 0) return Error::System(errno, piece.path);
  open_path_ = piece.path;
  return linux_sys::WriteAll(open_file_.get(), piece.bytes);
}

Status Agent::Prepare() {
  const Plan& plan = place_.plan;
  sandbox::Spec& spec = place_.plan.spec;
  place_.context.spec = &spec;
  place_.context.limit_processes_by_rlimit = plan.limit_processes_by_rlimit;
  place_.context.kernel_lacks_limits = plan.commands_become_user;
  place_.context.landlock_abi = ready_.landlock_abi = spec.landlock ? linux_sys::LandlockAbi() : 0;
  if (spec.landlock && ready_.landlock_abi == 0) {
    const bool guards_workspace = !plan.workspace_is_mounted && !spec.workspace_files_writable;
    if (!spec.allow_no_landlock || guards_workspace) {
      return Error::Unsupported("wall landlock: this kernel has no Landlock" +
                                std::string(guards_workspace
                                                ? ", which alone keeps the workspace unchanged in this runtime"
                                                : "; use a profile whose allow_degraded lists landlock"));
    }
    ready_.degraded.emplace_back("landlock: not in this kernel");
  }
  ChooseCpus(place_.context);
  if (plan.watch_limits && spec.seccomp_watched == nullptr)
    return Error::Unsupported("wall cgroup: the filter has no variant that counts processes");
  place_.extended = sandbox::ChooseFilter(spec, plan.watch_limits);
  ready_.filter = plan.observe;
  if (plan.serve_names) {
    CAISSON_TRY(place_.names, OpenNames());
    ready_.serves_names = true;
    if (plan.commands_become_user && place_.names->dropped() < 0) {
      place_.dropped_queries = -1;
      ready_.degraded.emplace_back("names: this kernel does not count look-ups that were dropped");
    }
  }
  place_.root = UniqueFd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!place_.root) return Error::System(errno, "open /");
  std::vector<const char*> areas = {"/scratch"};
  if (spec.writable_tmp) areas.push_back("/tmp");
  if (spec.writable_shm) areas.push_back("/dev/shm");
  if (!plan.workspace_is_mounted && spec.workspace_files_writable) areas.push_back("/workspace");
  std::vector<dev_t> known;
  for (const char* path : areas) {
    UniqueFd area(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat info {};
    if (!area || ::fstat(area.get(), &info) != 0) return Error::System(errno, std::string("open ") + path);
    const bool shared = plan.one_scratch && !known.empty();
    if (shared || std::find(known.begin(), known.end(), info.st_dev) != known.end()) continue;
    known.push_back(info.st_dev);
    place_.areas.push_back(std::move(area));
  }
  if (plan.watch_limits) {
    CAISSON_TRY(place_.watch, LimitWatch::Make(spec.limits, known.front()));
  }
  if (plan.in_pod) {
    CAISSON_TRY(ready_.interfaces, ListInterfaces());
    place_.group = OwnGroup::Open();
    UniqueFd processes(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!processes) return Error::System(errno, "open /proc");
    place_.meter.emplace(sandbox::TreeMeter::Views{std::move(processes), {}, {}, 0});
  }
  // What the walls outside left is given up now, unless the processes of the commands give it up: the agent needs
  // nothing.
  if (!plan.commands_become_user) {
    (void)sandbox::steps::LimitCapabilities(place_.context);
    if (const int error = sandbox::steps::DropCapabilities(place_.context); error != 0)
      return Error::System(error, "wall capabilities");
  }
  if (const int error = sandbox::steps::ForbidNewPrivileges(place_.context); error != 0)
    return Error::System(error, "wall no_new_privs");
  ready_.no_new_privileges = ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
  CAISSON_TRY(ready_.capabilities, ReadCapabilities());
  struct statvfs root {};
  ready_.read_only_root = ::statvfs("/", &root) == 0 && (root.f_flag & ST_RDONLY) != 0;
  ready_.only_loopback = HasOnlyLoopback();

  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_SETMASK, &children, nullptr);
  children_ = UniqueFd(::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!children_) return Error::System(errno, "watch the command's process");
  place_.children_fd = children_.get();
  channel_.Send(Kind::kReady, Encode(ready_));
  return {};
}

Status Agent::Answer(const Frame& frame) {
  switch (frame.kind) {
    case Kind::kExecute: {
      CAISSON_TRY(const Execute execute, DecodeExecute(frame.body));
      CAISSON_TRY(const Outcome outcome, RunWitnessed(place_, channel_, execute));
      channel_.Send(Kind::kOutcome, Encode(outcome));
      return {};
    }
    case Kind::kCollect: {
      CAISSON_TRY(const std::vector<std::string> globs, DecodeGlobs(frame.body));
      channel_.Send(Kind::kCollected, Encode(Collect(globs)));
      return {};
    }
    case Kind::kInput:  // for a command that has ended meanwhile
    case Kind::kInputEnd:
    case Kind::kSignal:
    case Kind::kResize:
    case Kind::kStop:
      return {};
    default:
      return Error::Invalid("frame: not one that a runtime sends now");
  }
}

sandbox::Collected Agent::Collect(const std::vector<std::string>& globs) const {
  const auto wanted = [&](const std::string& path) {
    return std::any_of(globs.begin(), globs.end(),
                       [&](const std::string& glob) { return sandbox::MatchesGlob(path, glob); });
  };
  const sandbox::Spec& spec = place_.plan.spec;
  std::vector<const char*> places = {"/scratch"};
  if (spec.workspace ? spec.workspace->access != sandbox::Access::kReadOnly : spec.workspace_files_writable)
    places.push_back("/workspace");
  sandbox::Collected collected;
  for (const char* path : places) {
    const UniqueFd directory(::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (directory)
      sandbox::CollectFiles(directory.get(), path, wanted, {}, collected);
    else
      collected.skipped.push_back(std::string(path) + ": cannot be opened");
  }
  return collected;
}

}  // namespace

int Serve(int input, int output, bool await_greeting) {
  // SECURITY: from here on no process of our own user may inspect this one, or take its descriptors.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return 1;
  // SECURITY: PID 1 has no handlers, so no signal from inside reaches it.
  struct sigaction reset {};
  reset.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &reset, nullptr);
  Agent agent(input, output);
  const Status status = agent.Run(await_greeting);
  agent.Report(status.error());
  return 0;
}

}  // namespace caisson::agent

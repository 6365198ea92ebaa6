#include "runtime/oci/container.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "linux/files.h"
#include "linux/syscalls.h"

namespace caisson::runtime::oci {

namespace {

constexpr int64_t kCreateMs = 30'000;
constexpr int kEndMs = 10'000;

}  // namespace

OciContainer::~OciContainer() {
  OciContainer::Kill();
  state_.reset();
}

Status OciContainer::Create(const std::vector<std::string>& options, const std::vector<PrivateMount>& mounts) {
  CAISSON_TRY(witnessed::AgentPipes pipes, MakePipes());
  const std::string pid_file = state_->directory() + "/pid";
  std::vector<std::string> command = state_->Invocation();
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(),
                 {"run", "--detach", "--bundle", state_->directory(), "--pid-file", pid_file, state_->id()});
  CAISSON_TRY(const bool created, RunProgram(command, {pipes.input.get(), pipes.output.get()}, mounts, kCreateMs));
  if (!created) {
    return Error::Unsupported("runtime " + runtime_ + ": " + command[0] +
                              " could not start the container: " + state_->ReadLog());
  }
  CAISSON_TRY(const std::string text, linux_sys::ReadSmallFile(AT_FDCWD, pid_file.c_str()));
  if (std::from_chars(text.data(), text.data() + text.size(), pid_).ec != std::errc() || pid_ <= 1)
    return Error::System(EPROTO, "runtime " + runtime_ + ": the container has no process number");
  process_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!process_) return Error::System(errno, "runtime " + runtime_ + ": the container ended at once");
  CAISSON_TRY(counters_, witnessed::CgroupCounters::Of(pid_));
  return {};
}

Result<std::optional<sandbox::GroupCounters>> OciContainer::ReadCounters() {
  CAISSON_TRY(sandbox::GroupCounters counters, counters_->Read());
  return std::optional<sandbox::GroupCounters>(counters);
}

// The group, and its counters with it, stay until the state is removed.
void OciContainer::Kill() {
  CloseStreams();
  if (!process_) return;
  linux_sys::PidfdSendSignal(process_.get(), SIGKILL);
  struct pollfd wait {
    process_.get(), POLLIN, 0
  };
  ::poll(&wait, 1, kEndMs);
  process_.Reset();
}

bool OciContainer::is_running() const {
  struct pollfd wait {
    process_.get(), POLLIN, 0
  };
  return process_ && ::poll(&wait, 1, 0) == 0;
}

}  // namespace caisson::runtime::oci

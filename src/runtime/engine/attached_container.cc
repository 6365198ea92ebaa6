#include "runtime/engine/attached_container.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "linux/files.h"

namespace caisson::runtime::engine {

Result<std::unique_ptr<AttachedContainer>> AttachedContainer::Start(const Api& api, std::unique_ptr<State> state,
                                                                    const std::string& document) {
  std::unique_ptr<AttachedContainer> container(new AttachedContainer(api, std::move(state)));
  CAISSON_TRY_VOID(container->Create(document));
  return container;
}

Status AttachedContainer::Create(const std::string& document) {
  CAISSON_TRY_VOID(state_->StartCleanup());
  CAISSON_TRY(id_, api_.Create(state_->name(), document));
  // Before the start: an engine does not keep what was written earlier.
  CAISSON_TRY(AttachedStream stream, api_.Attach(id_));
  socket_ = std::move(stream.socket);
  first_ = std::move(stream.first);
  CAISSON_TRY_VOID(api_.Start(id_));
  state_->HideTrees();
  return FindProcess();
}

// An engine may be in another pid namespace, or this process may see the engine's socket alone: a number is believed
// only if the kernel says that this process is in the container's group, which carries the container's id.
Status AttachedContainer::FindProcess() {
  CAISSON_TRY(const ContainerState state, api_.Inspect(id_));
  if (!state.running)
    return Error::Unsupported("runtime container: the container ended at once" +
                              (state.error.empty() ? "" : ": " + state.error));
  if (state.pid == 0) return {};
  const Result<std::string> groups =
      linux_sys::ReadSmallFile(AT_FDCWD, ("/proc/" + std::to_string(state.pid) + "/cgroup").c_str());
  if (!groups || groups->find(id_) == std::string::npos) return {};
  CAISSON_TRY(group_, witnessed::CgroupCounters::Of(state.pid));
  CAISSON_TRY(last_, group_->Read());
  pid_ = state.pid;
  return {};
}

Status AttachedContainer::TakeBytes(std::string_view bytes, agent::FrameReader& frames) {
  return decoder_.Take(bytes, [&](StreamDecoder::Stream stream, std::string_view piece) {
    // The agent sends nothing on standard error; what arrives there is no frame.
    if (stream == StreamDecoder::Stream::kOutput) frames.Append(piece);
  });
}

Result<bool> AttachedContainer::Read(agent::FrameReader& frames) {
  if (!first_.empty()) CAISSON_TRY_VOID(TakeBytes(std::exchange(first_, ""), frames));
  if (!socket_) return false;
  char chunk[size_t{64} << 10];
  for (int turns = 0; turns < 16; ++turns) {
    const ssize_t size = ::recv(socket_.get(), chunk, sizeof(chunk), MSG_DONTWAIT);
    if (size == 0 || (size < 0 && errno == ECONNRESET)) return false;
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (size < 0) return Error::System(errno, "read from the agent");
    CAISSON_TRY_VOID(TakeBytes({chunk, static_cast<size_t>(size)}, frames));
    if (frames.waiting() > agent::kMaxBodyBytes) return true;
  }
  return true;
}

Result<size_t> AttachedContainer::Write(std::string_view bytes) {
  if (!socket_) return bytes.size();
  const ssize_t size = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size >= 0) return static_cast<size_t>(size);
  if (errno == EAGAIN || errno == EINTR) return size_t{0};
  return bytes.size();  // the agent is gone, which the other direction tells
}

Result<std::optional<sandbox::GroupCounters>> AttachedContainer::ReadCounters() {
  if (!group_) return std::optional<sandbox::GroupCounters>();
  if (!ended_) {
    if (Result<sandbox::GroupCounters> read = group_->Read())
      last_ = *read;
    else
      CAISSON_TRY_VOID(LearnEnd());
  }
  return std::optional<sandbox::GroupCounters>(last_);
}

Status AttachedContainer::LearnEnd() {
  ended_ = true;
  CAISSON_TRY_VOID(api_.Kill(id_));
  CAISSON_TRY(const ContainerState state, api_.Inspect(id_));
  // A container that runs out of memory is not used any longer, so this is the first time.
  if (state.oom_killed) last_.oom_kills = std::max<int64_t>(last_.oom_kills, 1);
  return {};
}

void AttachedContainer::Kill() {
  if (!ended_) {
    if (Result<sandbox::GroupCounters> read = group_ ? group_->Read() : sandbox::GroupCounters()) last_ = *read;
    (void)LearnEnd();  // the container is removed in any case
  }
  socket_.Reset();
}

}  // namespace caisson::runtime::engine

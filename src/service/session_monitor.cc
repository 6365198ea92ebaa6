#include "service/session_monitor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "service/log.h"

namespace caisson::service {

namespace {

constexpr uint64_t kInotifyTag = 1;
constexpr uint64_t kWakeTag = 2;
constexpr uint32_t kRecordChanges = IN_MOVED_TO | IN_CREATE | IN_ONLYDIR;
constexpr uint32_t kOutputChanges = IN_MOVED_TO | IN_MODIFY | IN_ONLYDIR;
constexpr int kPipeBytes = 1 << 20;

bool Add(int epoll, int fd, uint32_t events, uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Result<std::unique_ptr<SessionMonitor>> SessionMonitor::Start(std::shared_ptr<Changes> changes) {
  std::unique_ptr<SessionMonitor> monitor(new SessionMonitor());
  monitor->changes_ = std::move(changes);
  monitor->epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  monitor->inotify_.Reset(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  monitor->wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!monitor->epoll_ || !monitor->inotify_ || !monitor->wake_ ||
      !Add(monitor->epoll_.get(), monitor->inotify_.get(), EPOLLIN, kInotifyTag) ||
      !Add(monitor->epoll_.get(), monitor->wake_.get(), EPOLLIN, kWakeTag)) {
    return Error::System(errno, "watch the directories of sessions (fs.inotify.max_user_instances may be too small)");
  }
  monitor->thread_ = std::thread([raw = monitor.get()] { raw->Run(); });
  return monitor;
}

SessionMonitor::~SessionMonitor() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void SessionMonitor::AddWatch(const std::string& id, const std::string& path, bool commands) {
  const int watch = ::inotify_add_watch(inotify_.get(), path.c_str(), commands ? kOutputChanges : kRecordChanges);
  if (watch >= 0) {
    watched_[watch] = {id, path, commands};
  } else if (errno != ENOENT) {
    LogLine("warning", "a session's directory cannot be watched; its clients wait longer",
            {{"session", id}, {"cause", std::strerror(errno)}});
  }
}

void SessionMonitor::Watch(const std::string& id, const std::string& path) {
  const std::lock_guard lock(mutex_);
  AddWatch(id, path, false);
  AddWatch(id, path + "/commands", true);
}

void SessionMonitor::Forget(const std::string& id) {
  const std::lock_guard lock(mutex_);
  for (auto it = watched_.begin(); it != watched_.end();) {
    if (it->second.id == id) {
      ::inotify_rm_watch(inotify_.get(), it->first);
      it = watched_.erase(it);
    } else {
      ++it;
    }
  }
  for (auto it = inputs_.begin(); it != inputs_.end();) it = it->first.first == id ? inputs_.erase(it) : std::next(it);
}

void SessionMonitor::OnChanges() {
  alignas(inotify_event) std::array<char, 65536> buffer;
  std::set<std::string> changed;
  for (;;) {
    const ssize_t count = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (count <= 0) break;
    const std::lock_guard lock(mutex_);
    for (ssize_t at = 0; at < count;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      if ((event->mask & IN_Q_OVERFLOW) != 0) {
        for (const auto& [watch, directory] : watched_) changed.insert(directory.id);
        continue;
      }
      const auto found = watched_.find(event->wd);
      if (found == watched_.end()) continue;
      const WatchedDirectory directory = found->second;
      if ((event->mask & IN_IGNORED) != 0) {
        watched_.erase(found);
        continue;
      }
      changed.insert(directory.id);
      const bool is_commands = event->len > 0 && std::strcmp(event->name, "commands") == 0;
      if (!directory.commands && is_commands) AddWatch(directory.id, directory.path + "/commands", true);
    }
  }
  for (const std::string& id : changed) changes_->Notify(id);
}

bool SessionMonitor::HasInput(const std::string& id, int64_t command) const {
  const std::lock_guard lock(mutex_);
  return inputs_.count({id, command}) != 0;
}

void SessionMonitor::AddInput(const std::string& id, int64_t command, UniqueFd pipe) {
  ::fcntl(pipe.get(), F_SETFL, ::fcntl(pipe.get(), F_GETFL) | O_NONBLOCK);
  ::fcntl(pipe.get(), F_SETPIPE_SZ, kPipeBytes);  // fewer turns; a refusal costs nothing else
  const std::lock_guard lock(mutex_);
  Input& input = inputs_[{id, command}];
  input = {};
  input.pipe = std::move(pipe);
}

bool SessionMonitor::Push(Input& input, const Key& key) {
  while (input.sent < input.pending.size()) {
    const ssize_t count =
        ::write(input.pipe.get(), input.pending.data() + input.sent, input.pending.size() - input.sent);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (input.waits) return true;
      const uint64_t tag = ++last_tag_;
      tags_[tag] = key;
      input.waits = Add(epoll_.get(), input.pipe.get(), EPOLLOUT, tag);
      return input.waits;
    }
    if (count < 0) return false;  // the command ended, or reads no more
    input.sent += static_cast<size_t>(count);
  }
  input.pending = std::string();
  input.sent = 0;
  if (input.waits) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, input.pipe.get(), nullptr);
  input.waits = false;
  return !input.end;
}

Status SessionMonitor::Feed(const std::string& id, int64_t command, std::string bytes, bool end) {
  const std::lock_guard lock(mutex_);
  const Key key{id, command};
  const auto found = inputs_.find(key);
  if (found == inputs_.end() || found->second.end)
    return Error::NotFound("command " + std::to_string(command) + " takes no input any more");
  Input& input = found->second;
  const size_t waiting = input.pending.size() - input.sent;
  if (waiting > 0 && waiting + bytes.size() > kMostPending)
    return Error::Exhausted("command " + std::to_string(command) + " has not read what was sent before");
  input.pending.erase(0, std::exchange(input.sent, 0));
  input.pending += bytes;
  input.end = end;
  if (!Push(input, key)) inputs_.erase(found);
  return {};
}

void SessionMonitor::Run() {
  std::array<epoll_event, 64> events;
  while (!stopping_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
      if (tag == kWakeTag) continue;
      if (tag == kInotifyTag) {
        OnChanges();
        continue;
      }
      const std::lock_guard lock(mutex_);
      const auto key = tags_.find(tag);
      if (key == tags_.end()) continue;
      const auto input = inputs_.find(key->second);
      // The descriptor of a removed input left the epoll instance when it was closed.
      if (input == inputs_.end() || !Push(input->second, key->second)) {
        if (input != inputs_.end()) inputs_.erase(input);
        tags_.erase(key);
      } else if (!input->second.waits) {
        tags_.erase(key);
      }
    }
  }
}

}  // namespace caisson::service

// A thin layer over epoll: descriptors with the wanted events, each identified by a small number.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"

namespace caisson::linux_sys {

class EventLoop {
 public:
  EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

  int fd() const { return epoll_.get(); }

  // False when the descriptor cannot be waited for (a regular file: it is always ready).
  bool Watch(int fd, uint32_t events, uint32_t tag) {
    struct epoll_event event {};
    event.events = events;
    event.data.u32 = tag;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return true;
    return errno == EEXIST && ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0;
  }
  void Forget(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  // Waits at most `timeout_ms` (-1: for ever) and returns what is ready.
  std::span<const struct epoll_event> Wait(int timeout_ms) {
    const int count = ::epoll_wait(epoll_.get(), ready_.data(), static_cast<int>(ready_.size()), timeout_ms);
    return {ready_.data(), static_cast<size_t>(count < 0 ? 0 : count)};
  }

 private:
  UniqueFd epoll_;
  std::array<struct epoll_event, 16> ready_{};
};

}  // namespace caisson::linux_sys

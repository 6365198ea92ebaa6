// Callbacks for descriptors, over one epoll instance. Thread: one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "linux/event_loop.h"

namespace caisson::session {

class Reactor {
 public:
  using Callback = std::function<void(uint32_t events)>;

  // Calls `callback` whenever the descriptor has one of `events`. Returns the number by which it is changed and
  // removed; 0 when the descriptor cannot be waited for. The descriptor must be removed before it is closed.
  uint32_t Add(int fd, uint32_t events, Callback callback) {
    const uint32_t tag = ++last_tag_;
    if (!loop_.Watch(fd, events, tag)) return 0;
    entries_[tag] = {fd, std::move(callback)};
    return tag;
  }
  void Change(uint32_t tag, uint32_t events) {
    if (const auto entry = entries_.find(tag); entry != entries_.end()) loop_.Watch(entry->second.fd, events, tag);
  }
  // Also from within a callback, and for 0 or a number that was removed before.
  void Remove(uint32_t& tag) {
    if (const auto entry = entries_.find(tag); entry != entries_.end()) {
      loop_.Forget(entry->second.fd);
      entries_.erase(entry);
    }
    tag = 0;
  }

  // Waits at most `timeout_ms` (-1: for ever) and calls what is ready.
  void Turn(int timeout_ms) {
    for (const struct epoll_event& event : loop_.Wait(timeout_ms)) {
      // An earlier callback of this turn may have removed it. Numbers are never used again.
      const auto entry = entries_.find(event.data.u32);
      if (entry == entries_.end()) continue;
      const Callback callback = entry->second.callback;  // may remove itself
      callback(event.events);
    }
  }

 private:
  struct Entry {
    int fd = -1;
    Callback callback;
  };

  linux_sys::EventLoop loop_;
  std::map<uint32_t, Entry> entries_;
  uint32_t last_tag_ = 0;
};

}  // namespace caisson::session

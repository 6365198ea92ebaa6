#include "launcher/pool.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/supervisor.h"
#include "linux/files.h"

namespace caisson::launcher {

namespace {

constexpr int64_t kSecondMs = 1000;
constexpr int64_t kPausesPerWork = 3;
constexpr int64_t kLongestPauseMs = 60'000;

// -1 when the kernel does not say.
int64_t AvailableBytes() {
  const Result<std::string> text = linux_sys::ReadSmallFile(AT_FDCWD, "/proc/meminfo", 4096);
  constexpr std::string_view kKey = "MemAvailable:";
  const size_t at = text ? text->find(kKey) : std::string::npos;
  if (at == std::string::npos) return -1;
  const size_t digits = text->find_first_not_of(' ', at + kKey.size());
  int64_t kibibytes = -1;
  if (digits != std::string::npos) std::from_chars(text->data() + digits, text->data() + text->size(), kibibytes);
  return kibibytes < 0 ? -1 : kibibytes * 1024;
}

}  // namespace

void Demand::Taken(int64_t now_ms) {
  const int64_t number = now_ms / kSecondMs;
  Second& second = seconds_[static_cast<size_t>(number) % seconds_.size()];
  if (second.number != number) second = {number, 0};
  ++second.taken;
}

size_t Demand::Busiest(int64_t now_ms) const {
  const int64_t now = now_ms / kSecondMs;
  size_t busiest = 0;
  for (const Second& second : seconds_) {
    if (second.number > now - static_cast<int64_t>(seconds_.size())) busiest = std::max(busiest, second.taken);
  }
  return busiest;
}

size_t Pool::Wanted(int64_t now_ms) {
  if (now_ms >= next_look_ms_) {
    const int64_t available = AvailableBytes();
    memory_is_short_ = available >= 0 && available < options_.reserve_bytes;
    next_look_ms_ = now_ms + kSecondMs;
  }
  return memory_is_short_ ? 0 : std::clamp<size_t>(demand_.Busiest(now_ms), 1, options_.most);
}

bool Pool::IsPreparing() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& entry) { return entry.second.state == Member::State::kPreparing; });
}

pid_t Pool::HandOver(const Opening& opening, int64_t now_ms) {
  demand_.Taken(now_ms);
  for (const auto& [pid, member] : members_) {
    // One that has just died cannot be told; its end will be.
    if (member.state != Member::State::kReady || !PassOn(member.leash.get(), opening)) continue;
    const pid_t taken = pid;
    members_.erase(taken);
    return taken;
  }
  return -1;
}

int64_t Pool::Turn(int64_t now_ms) {
  if (options_.most == 0) return -1;
  const size_t wanted = Wanted(now_ms);
  if (IsPreparing()) return kSecondMs;
  while (members_.size() > wanted) members_.erase(members_.begin());
  if (members_.size() == wanted) return kSecondMs;
  if (now_ms < next_ms_) return std::min(next_ms_ - now_ms, kSecondMs);
  Park(now_ms);
  return kSecondMs;
}

void Pool::Park(int64_t now_ms) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ServeParked(ForgetLauncher(launcher, std::move(theirs), "caisson-parked"));
    ::_exit(0);
  }
  next_ms_ = now_ms + kSecondMs;
  if (pid < 0) return;
  loop_.Watch(ours.get(), EPOLLIN, first_tag_ + static_cast<uint32_t>(ours.get()));
  members_.emplace(pid, Member{std::move(ours), Member::State::kPreparing, now_ms});
}

void Pool::OnReadable(int leash, int64_t now_ms) {
  const auto member = std::find_if(members_.begin(), members_.end(),
                                   [&](const auto& entry) { return entry.second.leash.get() == leash; });
  if (member == members_.end()) return;
  char ready;
  if (::recv(leash, &ready, sizeof(ready), MSG_DONTWAIT) != 1) {
    // Nothing more comes this way; that it has ended will be told.
    member->second.state = Member::State::kGone;
    return loop_.Forget(leash);
  }
  member->second.state = Member::State::kReady;
  failures_ = 0;
  next_ms_ = now_ms + kPausesPerWork * std::max<int64_t>(now_ms - member->second.begun_ms, 1);
}

bool Pool::OnEnded(pid_t pid, int64_t now_ms) {
  const auto member = members_.find(pid);
  if (member == members_.end()) return false;
  members_.erase(member);
  failures_ = std::min(failures_ + 1, 16);
  next_ms_ = now_ms + std::min(kLongestPauseMs, int64_t{10} << failures_);
  std::fprintf(stderr, "caisson-launcher: parked supervisor %d ended before it was used; %zu so far\n", pid, ++died_);
  return true;
}

void Pool::Drain() { members_.clear(); }

}  // namespace caisson::launcher

#include "launcher/pool.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "linux/files.h"

namespace caisson::launcher {

namespace {

constexpr int64_t kSecondMs = 1000;
constexpr int64_t kPausesPerWork = 3;
constexpr int64_t kLongestPauseMs = 60'000;

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
    const Result<int64_t> available = linux_sys::AvailableMemory();
    memory_is_short_ = !available || *available < options_.reserve_bytes;
    next_look_ms_ = now_ms + kSecondMs;
  }
  return memory_is_short_ ? 0 : std::clamp<size_t>(demand_.Busiest(now_ms), 1, options_.most);
}

bool Pool::IsPreparing() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& entry) { return entry.second.pid < 0; });
}

Pool::Counts Pool::counts() const {
  Counts counts = counts_;
  for (const auto& entry : members_) ++(entry.second.pid < 0 ? counts.preparing : counts.ready);
  return counts;
}

pid_t Pool::HandOver(const RunRequest& run_request, int64_t now_ms) {
  if (options_.most == 0) return kNobody;
  demand_.Taken(now_ms);
  for (auto member = members_.begin(); member != members_.end(); ++member) {
    // A member that has just died cannot take the run; OnReadable will handle its end.
    if (member->second.pid < 0 || !PassOn(member->second.control_socket.get(), run_request)) continue;
    const pid_t taken = member->second.pid;
    members_.erase(member);
    ++counts_.taken;
    if (members_.empty() && failures_ == 0) next_ms_ = now_ms;
    return taken;
  }
  ++counts_.missed;
  return options_.on_demand && !memory_is_short_ && MakeFor(run_request, now_ms) ? kComing : kNobody;
}

bool Pool::MakeFor(const RunRequest& run_request, int64_t now_ms) {
  const int control_socket = Park(now_ms);
  if (control_socket < 0) return false;
  // The new member finds the run waiting when it is ready. If it dies first, the run's connection closes with it.
  members_[control_socket].taken = PassOn(control_socket, run_request).has_value();
  return members_[control_socket].taken;
}

size_t Pool::coming() const { return TakenControlSockets().size(); }

std::vector<struct pollfd> Pool::TakenControlSockets() const {
  std::vector<struct pollfd> control_sockets;
  for (const auto& [control_socket, member] : members_) {
    if (member.taken) control_sockets.push_back({control_socket, POLLIN, 0});
  }
  return control_sockets;
}

std::vector<pid_t> Pool::TakeBegun(int64_t now_ms) {
  for (const struct pollfd& wait : TakenControlSockets()) OnReadable(wait.fd, now_ms);
  return std::exchange(begun_, {});
}

std::vector<pid_t> Pool::AwaitBegun(int64_t now_ms) {
  // Each member reports its process number or ends: set-up has a time limit.
  for (auto waits = TakenControlSockets(); !waits.empty(); waits = TakenControlSockets()) {
    ::poll(waits.data(), waits.size(), -1);
    for (const struct pollfd& wait : waits) OnReadable(wait.fd, now_ms);
  }
  return std::exchange(begun_, {});
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

int Pool::Park(int64_t now_ms) {
  next_ms_ = now_ms + kSecondMs;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  UniqueFd ours(ends[0]);
  if (!make_(UniqueFd(ends[1]))) return -1;
  const int number = ours.get();
  loop_.Watch(number, EPOLLIN, first_tag_ + static_cast<uint32_t>(number));
  members_.emplace(number, Member{std::move(ours), -1, now_ms, false});
  return number;
}

void Pool::OnReadable(int control_socket, int64_t now_ms) {
  const auto found = members_.find(control_socket);
  if (found == members_.end()) return;
  Member& member = found->second;
  pid_t pid = -1;
  const ssize_t size = ::recv(control_socket, &pid, sizeof(pid), MSG_DONTWAIT);
  if (size < 0 && errno == EAGAIN) return;
  if (size == sizeof(pid) && member.pid < 0) {
    failures_ = 0;
    if (member.taken) {
      begun_.push_back(pid);
      members_.erase(found);
      if (!IsPreparing()) next_ms_ = now_ms;
      return;
    }
    member.pid = pid;
    next_ms_ = now_ms + (members_.size() == 1 ? 0 : kPausesPerWork * std::max<int64_t>(now_ms - member.begun_ms, 1));
    return;
  }
  // The member closed its end of the socket, so it has ended.
  failures_ = std::min(failures_ + 1, 16);
  next_ms_ = now_ms + std::min(kLongestPauseMs, int64_t{10} << failures_);
  const std::string which = member.pid < 0 ? "that was being made" : std::to_string(member.pid);
  std::fprintf(stderr, "caisson-launcher: parked supervisor %s ended before it was used; %llu so far\n", which.c_str(),
               static_cast<unsigned long long>(++counts_.died));
  members_.erase(found);
}

}  // namespace caisson::launcher

#include "launcher/pool.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

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
  return std::any_of(members_.begin(), members_.end(), [](const auto& entry) { return entry.second.pid < 0; });
}

Pool::Counts Pool::counts() const {
  Counts counts = counts_;
  for (const auto& entry : members_) ++(entry.second.pid < 0 ? counts.preparing : counts.ready);
  return counts;
}

pid_t Pool::HandOver(const Opening& opening, int64_t now_ms) {
  if (options_.most == 0) return kNobody;
  demand_.Taken(now_ms);
  for (auto member = members_.begin(); member != members_.end(); ++member) {
    // One that has just died cannot be told; its end will be.
    if (member->second.pid < 0 || !PassOn(member->second.leash.get(), opening)) continue;
    const pid_t taken = member->second.pid;
    members_.erase(member);
    ++counts_.taken;
    if (members_.empty() && failures_ == 0) next_ms_ = now_ms;
    return taken;
  }
  ++counts_.missed;
  return options_.on_demand && !memory_is_short_ && MakeFor(opening, now_ms) ? kComing : kNobody;
}

bool Pool::MakeFor(const Opening& opening, int64_t now_ms) {
  const int leash = Park(now_ms);
  if (leash < 0) return false;
  // It finds the run waiting when it is ready. If it dies first, the run's connection closes with it.
  members_[leash].taken = PassOn(leash, opening).has_value();
  return members_[leash].taken;
}

size_t Pool::coming() const { return TakenLeashes().size(); }

std::vector<struct pollfd> Pool::TakenLeashes() const {
  std::vector<struct pollfd> leashes;
  for (const auto& [leash, member] : members_) {
    if (member.taken) leashes.push_back({leash, POLLIN, 0});
  }
  return leashes;
}

std::vector<pid_t> Pool::TakeBegun(int64_t now_ms) {
  for (const struct pollfd& wait : TakenLeashes()) OnReadable(wait.fd, now_ms);
  return std::exchange(begun_, {});
}

std::vector<pid_t> Pool::AwaitBegun(int64_t now_ms) {
  // Each says who it is, or goes: setting up has a time limit.
  for (auto waits = TakenLeashes(); !waits.empty(); waits = TakenLeashes()) {
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

void Pool::OnReadable(int leash, int64_t now_ms) {
  const auto found = members_.find(leash);
  if (found == members_.end()) return;
  Member& member = found->second;
  pid_t pid = -1;
  const ssize_t size = ::recv(leash, &pid, sizeof(pid), MSG_DONTWAIT);
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
  // Its other end is closed: it is gone.
  failures_ = std::min(failures_ + 1, 16);
  next_ms_ = now_ms + std::min(kLongestPauseMs, int64_t{10} << failures_);
  const std::string which = member.pid < 0 ? "that was being made" : std::to_string(member.pid);
  std::fprintf(stderr, "caisson-launcher: parked supervisor %s ended before it was used; %llu so far\n", which.c_str(),
               static_cast<unsigned long long>(++counts_.died));
  members_.erase(found);
}

}  // namespace caisson::launcher

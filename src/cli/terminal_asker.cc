#include "cli/terminal_asker.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"

namespace caisson::cli {

namespace {
constexpr size_t kMostInAMinute = 10;
constexpr int64_t kMinuteNs = 60'000'000'000;
constexpr int64_t kAnswerMs = 60'000;
constexpr size_t kMaxLine = 256;
}  // namespace

std::unique_ptr<TerminalAsker> TerminalAsker::Open() {
  std::unique_ptr<TerminalAsker> asker(new TerminalAsker);
  asker->terminal_.Reset(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  asker->timer_.Reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  asker->wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  asker->ready_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!asker->terminal_ || !asker->timer_ || !asker->wake_ || !asker->ready_) return nullptr;
  for (const UniqueFd* fd : {&asker->terminal_, &asker->timer_, &asker->wake_}) {
    struct epoll_event event {};
    event.events = EPOLLIN;
    if (::epoll_ctl(asker->ready_.get(), EPOLL_CTL_ADD, fd->get(), &event) != 0) return nullptr;
  }
  return asker;
}

void TerminalAsker::Say(const std::string& text) const { (void)!::write(terminal_.get(), text.data(), text.size()); }

void TerminalAsker::SetTimer(int64_t ms) const {
  struct itimerspec when {};
  when.it_value.tv_sec = ms / 1000;
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

// SECURITY: the workload chose the name; what a terminal would obey is shown as text.
void TerminalAsker::Show() {
  if (waiting_.empty()) return SetTimer(0);
  const NetworkQuestion& question = waiting_.front();
  // What was typed before the question was seen does not answer it.
  ::tcflush(terminal_.get(), TCIFLUSH);
  line_.clear();
  Say("caisson: a program wants to reach " + EscapeForTerminal(question.name) + ":" + std::to_string(question.port) +
      " (" + EscapeForTerminal(question.protocol) +
      "), which no rule lists. Allow it [o]nce, for this [s]ession, or [N]ot? ");
  SetTimer(kAnswerMs);
}

void TerminalAsker::Ask(const NetworkQuestion& question) {
  const int64_t now = MonotonicNanos();
  while (!asked_at_.empty() && asked_at_.front() + kMinuteNs <= now) asked_at_.pop_front();
  if (asked_at_.size() >= kMostInAMinute) {
    refused_.push_back(question.id);
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
    return;
  }
  asked_at_.push_back(now);
  waiting_.push_back(question);
  if (waiting_.size() == 1) Show();
}

std::optional<NetworkAnswer> TerminalAsker::Answer(NetworkAnswer::Scope scope) {
  const NetworkAnswer answer{waiting_.front().id, scope};
  waiting_.pop_front();
  Show();
  return answer;
}

std::optional<NetworkAnswer> TerminalAsker::Take() {
  if (!refused_.empty()) {
    const NetworkAnswer answer{refused_.front(), NetworkAnswer::Scope::kDeny};
    refused_.pop_front();
    uint64_t count;
    if (refused_.empty()) (void)!::read(wake_.get(), &count, sizeof(count));
    return answer;
  }
  uint64_t expirations = 0;
  if (::read(timer_.get(), &expirations, sizeof(expirations)) == sizeof(expirations) && !waiting_.empty()) {
    Say("\ncaisson: no answer, so it is denied\n");
    return Answer(NetworkAnswer::Scope::kDeny);
  }
  char text[kMaxLine];
  const ssize_t size = ::read(terminal_.get(), text, sizeof(text));
  if (size <= 0 || waiting_.empty()) return std::nullopt;
  if (line_.size() < kMaxLine) line_.append(text, static_cast<size_t>(size));
  if (line_.find('\n') == std::string::npos) return std::nullopt;
  const char first = line_[0];
  return Answer(first == 's' || first == 'S'   ? NetworkAnswer::Scope::kSession
                : first == 'o' || first == 'O' ? NetworkAnswer::Scope::kOnce
                                               : NetworkAnswer::Scope::kDeny);
}

void TerminalAsker::Withdraw() {
  if (!waiting_.empty()) Say("\n");
  waiting_.clear();
  refused_.clear();
  SetTimer(0);
}

}  // namespace caisson::cli

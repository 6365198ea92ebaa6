// Joins the streams of a session's command to ours.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/utf8.h"
#include "cli/flags.h"
#include "cli/session.h"
#include "cli/session_prompt.h"
#include "linux/files.h"
#include "linux/terminal.h"
#include "session/terminal_filter.h"

namespace caisson::cli {

using nlohmann::json;

namespace {

constexpr size_t kPieceBytes = 65536;
// Typed behind all but the last of the keys that detach: ctrl-p ctrl-y.
constexpr char kPromptKey = 0x19;

// Copies from one descriptor to another as both are ready. The target is ours and may be shared with other programs, so
// it is not made non-blocking: it is written to only when poll says that it takes something.
class OutputJoint {
 public:
  OutputJoint(UniqueFd source, int target, bool filtered) : source_(std::move(source)), target_(target) {
    if (filtered) filter_.emplace(session::FilterStrength::kAttach);
  }
  bool open() const { return source_.valid() || !pending_.empty(); }
  bool broken() const { return broken_; }

  void Fill(struct pollfd& in, struct pollfd& out) const {
    in = {pending_.empty() && source_ ? source_.get() : -1, POLLIN, 0};
    out = {pending_.empty() ? -1 : target_, POLLOUT, 0};
  }
  void Handle(const struct pollfd& in, const struct pollfd& out) {
    if (in.fd >= 0 && in.revents != 0) Read();
    if (out.fd >= 0 && out.revents != 0) Write();
  }

 private:
  void Read() {
    std::array<char, kPieceBytes> buffer;
    const ssize_t count = ::read(source_.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) return;
    if (count <= 0) {
      source_.Reset();
      if (filter_) pending_ = filter_->Finish();
      return;
    }
    const std::string_view bytes(buffer.data(), static_cast<size_t>(count));
    pending_ = filter_ ? filter_->Filter(bytes) : std::string(bytes);
    if (!pending_.empty()) Write();
  }
  void Write() {
    // A pipe takes at least PIPE_BUF bytes when it is ready.
    const ssize_t count = ::write(target_, pending_.data(), std::min<size_t>(pending_.size(), 4096));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count < 0) {
      broken_ = true;
      source_.Reset();
      pending_.clear();
      return;
    }
    pending_.erase(0, static_cast<size_t>(count));
  }

  UniqueFd source_;
  int target_;
  std::string pending_;
  bool broken_ = false;
  std::optional<session::TerminalFilter> filter_;
};

class InputJoint {
 public:
  InputJoint(UniqueFd target, std::string detach_keys)
      : target_(std::move(target)), keys_(std::move(detach_keys)), open_(target_.valid() || !keys_.empty()) {}
  bool detached() const { return detached_; }
  // The keys that open the prompt were typed since the last call.
  bool TakePromptKeys() { return std::exchange(prompt_keys_, false); }
  // What is typed is for the prompt, and the command gets none of it.
  void Divert(bool on) { diverts_ = on; }
  std::string TakeDiverted() { return std::exchange(diverted_, {}); }
  bool ended() const { return std::exchange(ended_, false); }
  void Close() {
    open_ = false;
    pending_.clear();
    target_.Reset();
  }

  void Fill(struct pollfd& in, struct pollfd& out) const {
    in = {open_ && (diverts_ || pending_.empty()) ? STDIN_FILENO : -1, POLLIN, 0};
    out = {pending_.empty() || !target_ ? -1 : target_.get(), POLLOUT, 0};
  }
  void Handle(const struct pollfd& in, const struct pollfd& out) {
    if (in.fd >= 0 && in.revents != 0) Read();
    if (out.fd >= 0 && out.revents != 0) Write();
  }

 private:
  void Read() {
    std::array<char, kPieceBytes> buffer;
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) {
      open_ = false;
      ended_ = true;
      if (keys_.empty()) target_.Reset();
      return;
    }
    if (diverts_) {
      diverted_.append(buffer.data(), static_cast<size_t>(count));
      return;
    }
    for (const char c : std::string_view(buffer.data(), static_cast<size_t>(count))) {
      if (keys_.size() > 1 && matched_ == keys_.size() - 1 && c == kPromptKey) {
        matched_ = 0;
        prompt_keys_ = true;
        break;  // what came with them was not typed as an answer
      }
      if (!keys_.empty() && c == keys_[matched_]) {
        if (++matched_ == keys_.size()) {
          detached_ = true;
          return;
        }
        continue;
      }
      pending_ += keys_.substr(0, matched_);  // they were typed, after all
      matched_ = !keys_.empty() && c == keys_[0] ? 1 : 0;
      if (matched_ == 0) pending_ += c;
    }
    if (!target_) pending_.clear();  // only the keys that detach are looked for
    if (!pending_.empty()) Write();
  }
  void Write() {
    const ssize_t count = ::write(target_.get(), pending_.data(), std::min<size_t>(pending_.size(), 4096));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count < 0) return Close();
    pending_.erase(0, static_cast<size_t>(count));
  }

  UniqueFd target_;
  const std::string keys_;
  size_t matched_ = 0;
  std::string pending_;
  bool open_, detached_ = false;
  bool prompt_keys_ = false, diverts_ = false;
  std::string diverted_;
  mutable bool ended_ = false;
};

// Our terminal while only keys are watched on it: without echo and line editing, but Ctrl-C still works.
class KeyTerminal {
 public:
  KeyTerminal() {
    if (::tcgetattr(STDIN_FILENO, &saved_) != 0) return;
    struct termios keys = saved_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
    keys.c_iflag &= ~static_cast<tcflag_t>(IXON);
    active_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
  }
  ~KeyTerminal() {
    if (active_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_);
  }
  KeyTerminal(const KeyTerminal&) = delete;
  KeyTerminal& operator=(const KeyTerminal&) = delete;

 private:
  struct termios saved_ {};
  bool active_ = false;
};

void TellOfEvent(const json& event, bool raw) {
  const char* end = raw ? "\r\n" : "\n";
  std::string line;
  if (event["event"] == "gap") {
    line = "[" + std::to_string(event.value("bytes", int64_t{0})) + " bytes of output were missed here]";
  } else if (event["event"] == "network_denied" && ::isatty(STDERR_FILENO)) {
    // For people; programs find it in the log and keep an unmixed standard error.
    const json use = event.value("network", json::object());
    const int port = use.value("port", 0);
    line = "network: " + use.value("name", std::string("?")) + (port > 0 ? ":" + std::to_string(port) : "") +
           " is not allowed; open the session with --allow-domain to allow it";
  } else {
    return;
  }
  std::fprintf(stderr, "caisson: %s%s", EscapeForTerminal(line).c_str(), end);
}

}  // namespace

std::pair<uint16_t, uint16_t> WindowSize() {
  struct winsize size {};
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) return {size.ws_row, size.ws_col};
  }
  return {24, 80};
}

Result<std::string> ParseKeys(const std::string& text) {
  std::string keys;
  for (size_t begin = 0; begin < text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, comma - begin);
    if (word.size() == 1)
      keys += word;
    else if (word.size() == 6 && word.compare(0, 5, "ctrl-") == 0 && word[5] >= '@' && word[5] <= 'z')
      keys += static_cast<char>(word[5] & 0x1f);
    else
      return Error::Invalid("--detach-keys " + EscapeForTerminal(text) + ": expected keys like ctrl-p,ctrl-q");
    begin = comma + 1;
  }
  return keys;
}

Result<Followed> Follow(session::Client& client, session::RemoteCommand command, const FollowOptions& options) {
  const UniqueFd signals(TakeSignals());
  std::optional<linux_sys::RawTerminal> raw;
  std::optional<KeyTerminal> keys;
  if (options.terminal && ::isatty(STDIN_FILENO))
    raw.emplace();
  else if (!options.detach_keys.empty())
    keys.emplace();
  const bool error_is_terminal = ::isatty(STDERR_FILENO) != 0;
  OutputJoint output(std::move(command.output), STDOUT_FILENO, options.filtered && ::isatty(STDOUT_FILENO));
  OutputJoint error(std::move(command.error), STDERR_FILENO, options.filtered && error_is_terminal);
  InputJoint input(std::move(command.input), options.detach_keys);
  ApprovalPrompt prompt(client, options.session, raw.has_value() || keys.has_value());
  Followed followed;
  bool supervised = true;
  if (options.terminal) {
    const auto [rows, columns] = WindowSize();
    CAISSON_TRY_VOID(client.Tell("resize", {{"command", command.number}, {"rows", rows}, {"columns", columns}}));
  }
  while (true) {
    // Events may have come together with an earlier reply.
    while (std::optional<json> event = client.TakeEvent()) {
      if ((*event)["event"] == "ended" && event->value("command", uint32_t{0}) == command.number)
        followed.end = *std::move(event);
      else if (!prompt.Take(*event))
        TellOfEvent(*event, raw.has_value());
    }
    if (input.TakePromptKeys()) prompt.Open();
    if (prompt.is_open()) prompt.Type(input.TakeDiverted());
    input.Divert(prompt.is_open());
    if (followed.end && !prompt.is_open()) input.Close();
    if ((followed.end || !supervised) && !output.open() && !error.open()) break;
    if (output.broken()) return followed;  // our reader is gone: so are we, and with us the command
    std::array<struct pollfd, 8> wait{};
    // SECURITY: while the prompt is open the command's output waits, so nothing of it stands between question and
    // answer.
    wait.fill({-1, 0, 0});
    if (!prompt.is_open()) {
      output.Fill(wait[0], wait[1]);
      error.Fill(wait[2], wait[3]);
    }
    input.Fill(wait[4], wait[5]);
    wait[6] = {supervised ? client.fd() : -1, POLLIN, 0};
    wait[7] = {signals.get(), POLLIN, 0};
    if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return Error::System(errno, "poll");
    output.Handle(wait[0], wait[1]);
    error.Handle(wait[2], wait[3]);
    input.Handle(wait[4], wait[5]);
    if (input.detached()) {
      CAISSON_TRY_VOID(client.Call("detach", {{"command", command.number}}));
      followed.detached = true;
      return followed;
    }
    if (options.terminal && input.ended()) CAISSON_TRY_VOID(client.Tell("input_end", {{"command", command.number}}));
    if (wait[6].revents != 0) {
      CAISSON_TRY(supervised, client.Receive());
    }
    if (wait[7].revents != 0) {
      struct signalfd_siginfo info {};
      if (::read(signals.get(), &info, sizeof(info)) != ssize_t{sizeof(info)}) continue;
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGWINCH) {
        const auto [rows, columns] = WindowSize();
        if (options.terminal)
          CAISSON_TRY_VOID(client.Tell("resize", {{"command", command.number}, {"rows", rows}, {"columns", columns}}));
        continue;
      }
      // Hanging up a terminal detaches; the session is there for that.
      if (signal == SIGHUP && options.terminal) {
        (void)client.Call("detach", {{"command", command.number}});
        followed.detached = true;
        return followed;
      }
      if (!followed.end && supervised)
        CAISSON_TRY_VOID(client.Tell("signal", {{"command", command.number}, {"signal", signal}}));
    }
  }
  return followed;
}

void ExplainEnd(const json& end, const std::string& program) {
  const std::string ending = end.value("ending", "");
  if (ending == "not_executable") {
    const int error = end.value("exec_errno", 0);
    Complain(program + ": " +
             (error == ENOENT ? "not found in the sandbox, or its interpreter is not there" : std::strerror(error)));
  } else if (ending == "timeout") {
    Complain("TimeoutViolation: the command ran longer than its time limit and was ended; the session goes on");
  } else if (ending == "output_limit") {
    Complain("OutputLimitViolation: the command wrote more than output_bytes and was ended; the session goes on");
  } else if (ending == "scratch_limit") {
    Complain("FilesystemWriteViolation: scratch_limit: the session's changes take more of the disk than --disk allows");
  } else if (ending == "memory_limit") {
    Complain("MemoryLimitViolation: the session used more than its memory limit");
  }
}

}  // namespace caisson::cli

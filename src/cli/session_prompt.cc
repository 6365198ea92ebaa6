#include "cli/session_prompt.h"

#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/utf8.h"

namespace caisson::cli {

using nlohmann::json;

// SECURITY: the supervisor quotes what the workload chose; a client does not rely on it.
void ApprovalPrompt::Say(const std::string& line) const {
  std::fprintf(stderr, "caisson: %s%s", EscapeForTerminal(line).c_str(), keys_ ? "\r\n" : "\n");
}

bool ApprovalPrompt::Take(const json& event) {
  const std::string kind = event.value("event", "");
  if (kind == "approval_closed") {
    const std::string id = event.value("approval_id", "");
    const bool shown = open_ && !waiting_.empty() && waiting_.front().id == id;
    waiting_.erase(
        std::remove_if(waiting_.begin(), waiting_.end(), [&](const Question& question) { return question.id == id; }),
        waiting_.end());
    if (shown) {
      open_ = false;
      std::fputs("\r\n", stderr);
      Say("the question is answered, or its time is over");
    }
    return true;
  }
  if (kind != "approval") return false;
  const json approval = event.value("approval", json::object());
  waiting_.push_back({approval.value("approval_id", ""), event.value("text", "")});
  // Programs keep an unmixed standard error; the log and `session approvals` have the question.
  if (::isatty(STDERR_FILENO) == 0) return true;
  Say(waiting_.back().text);
  Say((keys_ ? "it waits for your answer: ctrl-p ctrl-y, or " : "it waits for your answer: ") +
      ("caisson session approve " + session_ + " " + waiting_.back().id));
  return true;
}

void ApprovalPrompt::Open() {
  if (waiting_.empty()) return Say("nothing waits for an answer");
  // What was typed before the question was seen does not answer it.
  ::tcflush(STDIN_FILENO, TCIFLUSH);
  open_ = true;
  std::fputs("\r\n", stderr);
  Say(waiting_.front().text);
  std::fputs("caisson: allow it [o]nce, for this [s]ession, or [n]ot? Any other key leaves it open. ", stderr);
}

void ApprovalPrompt::Type(std::string_view keys) {
  if (keys.empty()) return;
  open_ = false;
  const char key = keys[0];
  const bool allows = key == 'o' || key == 'O' || key == 's' || key == 'S';
  const bool denies = key == 'n' || key == 'N';
  std::fprintf(stderr, "%s\r\n", allows ? "allowed" : denies ? "denied" : "left open");
  if (!allows && !denies) return;
  const std::string id = waiting_.front().id;
  const Result<json> answered =
      denies ? client_.Deny(id, "") : client_.Approve(id, key == 's' || key == 'S' ? "session" : "once");
  if (!answered) Say(answered.error().message);
}

}  // namespace caisson::cli

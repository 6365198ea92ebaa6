// Questions of a session at a terminal that follows one of its commands. A question is announced in one line; keys that
// only this program reads open the prompt, and while it is open nothing of the command is shown and nothing typed
// reaches the command. Output that looks like a prompt therefore gets what is typed as input, and answers nothing.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "session/client.h"

namespace caisson::cli {

class ApprovalPrompt {
 public:
  // `session`: how messages call it. `keys`: the terminal's keys come one by one, so the prompt can be opened here.
  ApprovalPrompt(session::Client& client, std::string session, bool keys)
      : client_(client), session_(std::move(session)), keys_(keys) {}

  // False: the event is about something else.
  bool Take(const nlohmann::json& event);
  void Open();
  bool is_open() const { return open_; }
  // What was typed while it is open. One key answers.
  void Type(std::string_view keys);

 private:
  struct Question {
    std::string id, text;
  };
  void Say(const std::string& line) const;

  session::Client& client_;
  const std::string session_;
  const bool keys_;
  bool open_ = false;
  std::deque<Question> waiting_;
};

}  // namespace caisson::cli

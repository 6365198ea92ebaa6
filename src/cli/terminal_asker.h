// Asks the user of a terminal about destinations that no rule mentions. Questions are shown one after the other; a line
// that begins with "o" allows one connection, with "s" every further one of this run, anything else denies.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "base/network_asker.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace caisson::cli {

class TerminalAsker : public NetworkAsker {
 public:
  // Uses the controlling terminal; nullptr when there is none.
  static std::unique_ptr<TerminalAsker> Open();

  void Ask(const NetworkQuestion& question) override;
  int fd() const override { return ready_.get(); }
  std::optional<NetworkAnswer> Take() override;
  void Withdraw() override;

 private:
  TerminalAsker() = default;
  void Show();
  void Say(const std::string& text) const;
  std::optional<NetworkAnswer> Answer(NetworkAnswer::Scope scope);
  void SetTimer(int64_t ms) const;

  UniqueFd terminal_, timer_, wake_;
  UniqueFd ready_;                       // an epoll of the three
  std::deque<NetworkQuestion> waiting_;  // the first is shown
  std::deque<uint32_t> refused_;         // beyond the most questions in a minute
  std::deque<int64_t> asked_at_;         // in the last minute
  std::string line_;
};

}  // namespace caisson::cli

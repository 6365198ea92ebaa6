// Our own terminal, switched to raw mode while a sandbox's terminal is joined to it.
#pragma once

#include <termios.h>
#include <unistd.h>

namespace caisson::linux_sys {

class RawTerminal {
 public:
  // Does nothing when standard input is not a terminal.
  RawTerminal() {
    if (::tcgetattr(STDIN_FILENO, &saved_) != 0) return;
    struct termios raw = saved_;
    ::cfmakeraw(&raw);
    active_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  }
  ~RawTerminal() {
    if (active_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  struct termios saved_ {};
  bool active_ = false;
};

}  // namespace caisson::linux_sys

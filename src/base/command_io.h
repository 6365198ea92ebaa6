// Where the standard streams of one command lead. The caller chooses for each command; nothing is ever taken from the
// caller's own descriptors 0, 1 and 2 unless it names them here.
//
// Every byte passes through the supervisor, which counts it against the output limit: a command never holds a
// descriptor of the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/outcome.h"

namespace caisson {

struct CommandIo {
  enum class Kind : uint8_t {
    kCapture,      // the outcome holds what was written, within the output limit
    kDescriptors,  // copied from and to the three descriptors, as it comes
    kTerminal,     // a pseudo-terminal of the sandbox's own, joined to the first two descriptors
  };
  using OnOutput = std::function<void(OutputStream, std::string_view)>;

  static CommandIo Capture(std::optional<std::string> input = std::nullopt, OnOutput on_output = {}) {
    CommandIo io;
    io.input = std::move(input);
    io.on_output = std::move(on_output);
    return io;
  }
  // Borrowed until Execute returns. A negative one stands for /dev/null.
  static CommandIo Descriptors(int input, int output, int error) {
    CommandIo io;
    io.kind = Kind::kDescriptors;
    io.stdin_fd = input;
    io.stdout_fd = output;
    io.stderr_fd = error;
    return io;
  }
  // `input` is also asked for the size of the window.
  static CommandIo Terminal(int input, int output) {
    CommandIo io = Descriptors(input, output, -1);
    io.kind = Kind::kTerminal;
    return io;
  }

  Kind kind = Kind::kCapture;
  std::optional<std::string> input;  // kCapture: all of standard input; absent: /dev/null
  OnOutput on_output;                // kCapture: told of each piece as it arrives, within the output limit
  int stdin_fd = -1, stdout_fd = -1, stderr_fd = -1;
};

}  // namespace caisson

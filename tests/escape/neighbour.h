// For judges: a process that stays while another one searches for it or is disturbed by it. In a sandbox, or bare for
// the control. Its probe does its work, calls SayReadyAndWait, and ends when the judge releases it.
//
//   Neighbour a = Neighbour::InSandbox(host, "D03/make", {{"SELFTEST_KEY", key}});
//   if (!a.ready()) return Broken("...: " + a.End().process.err);
//   const Outcome b = host.Run({.command = host.ProbeCommand("D03/find")});
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "escape/canaries.h"
#include "escape/host.h"

namespace caisson::escape {

using Environment = std::vector<std::pair<std::string, std::string>>;

// In the probe. In Python: print('READY', flush=True); sys.stdin.read()
inline void SayReadyAndWait() {
  std::puts("READY");
  std::fflush(stdout);
  char byte;
  while (::read(0, &byte, 1) > 0) {
  }
}

class Neighbour {
 public:
  static Neighbour InSandbox(Host& host, const std::string& attempt_id, const Environment& env = {},
                             const std::vector<std::string>& flags = {}) {
    Pipe pipe;
    Sandbox sandbox = host.Start(
        {.command = host.ProbeCommand(attempt_id), .flags = flags, .env = env, .standard_input = pipe.read_end.get()});
    return Neighbour(host, std::move(sandbox), std::move(pipe.write_end));
  }

  static Neighbour Bare(Host& host, const std::string& attempt_id, const Environment& env = {}) {
    Command command;
    command.argv = host.ControlCommand(attempt_id);
    command.env = env;
    command.env.emplace_back("CAISSON_CONTROL_DIRECTORY", host.MakeDirectory());
    if (host.canaries() != nullptr) {
      for (auto& variable : host.canaries()->Environment(true)) command.env.push_back(std::move(variable));
    }
    Pipe pipe;
    command.standard_input = pipe.read_end.get();
    return Neighbour(host, {Process::Start(command), ""}, std::move(pipe.write_end));
  }

  bool ready() const { return ready_; }
  Process& process() { return sandbox_.process; }

  // Releases it and waits for its end.
  Outcome End(int timeout_ms = kPatienceMs) {
    hold_.Reset();
    return host_.Finish(std::move(sandbox_), timeout_ms);
  }

 private:
  struct Pipe {
    UniqueFd read_end, write_end;
    Pipe() {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0) return;
      read_end.Reset(ends[0]);
      write_end.Reset(ends[1]);
    }
  };

  Neighbour(Host& host, Sandbox sandbox, UniqueFd hold)
      : host_(host), sandbox_(std::move(sandbox)), hold_(std::move(hold)) {
    std::string line;
    ready_ = sandbox_.process.ReadLine(&line, kPatienceMs) && line == "READY";
  }

  Host& host_;
  Sandbox sandbox_;
  UniqueFd hold_;  // its standard input closes with this object
  bool ready_ = false;
};

// The same attempt bare, with an environment.
inline std::optional<Observation> SawBare(Host& host, const std::string& attempt_id, const Environment& env = {}) {
  Command command;
  command.argv = host.ControlCommand(attempt_id);
  command.env = env;
  command.env.emplace_back("CAISSON_CONTROL_DIRECTORY", host.MakeDirectory());
  Outcome outcome;
  outcome.process = Process::Start(command).Finish(kPatienceMs);
  return outcome.Saw(attempt_id);
}

}  // namespace caisson::escape

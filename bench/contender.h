// The subject of the C++ benchmarks: one program, run bare or in a sandbox, with the clock read at each step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/plan.h"
#include "runtime/runtime.h"

namespace caisson::bench {

// A program and how it is started bare and inside. Its file, if it has one, is a workspace file inside.
struct Program {
  std::vector<std::string> bare;
  std::vector<std::string> inside;
  std::vector<policy::PlannedFile> files;
  std::vector<std::string> least;  // a program of the same interpreter that does nothing; empty: there is none
};

// "true" is /bin/true; anything else is the path of a Python file.
Result<Program> ReadProgram(const std::string& name);

policy::RunPlan PlanOf(const Program& program);

// Nanoseconds of one run, measured from before the request.
struct Steps {
  int64_t start = 0;          // until the sandbox is set up
  int64_t command = 0;        // from there until its result is known
  int64_t removal = 0;        // from there until nothing is left
  std::string made = "bare";  // index into policy::kStartNames: how much of the sandbox existed before the request

  int64_t result() const { return start + command; }
  int64_t whole() const { return start + command + removal; }
};

// Runs the program once; anything but exit code 0 is an error.
Result<Steps> RunInside(runtime::Runtime& runtime, const Program& program);
// posix_spawn and wait, streams to /dev/null; all of the time counts as `command`.
Result<Steps> RunBare(const Program& program);

// [1, 2, 3]
std::string JsonOf(const std::vector<int64_t>& values);

}  // namespace caisson::bench

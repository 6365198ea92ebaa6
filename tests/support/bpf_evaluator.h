// Runs a seccomp program the way the kernel does, so that a test can ask what it says about a call without making it.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace caisson::support {

class BpfEvaluator {
 public:
  // The program must outlive the evaluator.
  explicit BpfEvaluator(std::span<const sock_filter> program);

  // What is wrong with the program, or an empty string. As strict as the kernel about jumps, loads and the end of the
  // program, and stricter about instructions: only those a filter of ours may consist of are known.
  std::string Validate() const;

  // The returned action with its data, or nothing when the program does something invalid on the way.
  std::optional<uint32_t> Run(const seccomp_data& data);

  // The instructions that no call of Run has executed.
  std::vector<size_t> NeverExecuted() const;

 private:
  std::span<const sock_filter> program_;
  std::vector<bool> executed_;
};

}  // namespace caisson::support

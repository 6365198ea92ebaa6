#include "support/bpf_evaluator.h"

#include <cstring>

namespace caisson::support {
namespace {

constexpr unsigned kLoadWord = BPF_LD | BPF_W | BPF_ABS;
constexpr unsigned kAnd = BPF_ALU | BPF_AND | BPF_K;
constexpr unsigned kJumpAlways = BPF_JMP | BPF_JA;
constexpr unsigned kJumpEqual = BPF_JMP | BPF_JEQ | BPF_K;
constexpr unsigned kJumpGreater = BPF_JMP | BPF_JGT | BPF_K;
constexpr unsigned kJumpGreaterEqual = BPF_JMP | BPF_JGE | BPF_K;
constexpr unsigned kJumpSet = BPF_JMP | BPF_JSET | BPF_K;
constexpr unsigned kReturn = BPF_RET | BPF_K;

bool LoadIsValid(uint32_t offset) {
  return offset % sizeof(uint32_t) == 0 && offset <= sizeof(seccomp_data) - sizeof(uint32_t);
}

uint32_t LoadWord(const seccomp_data& data, uint32_t offset) {
  uint32_t word;
  std::memcpy(&word, reinterpret_cast<const char*>(&data) + offset, sizeof(word));
  return word;
}

}  // namespace

BpfEvaluator::BpfEvaluator(std::span<const sock_filter> program) : program_(program), executed_(program.size()) {}

std::string BpfEvaluator::Validate() const {
  if (program_.empty() || program_.size() > BPF_MAXINSNS) return "length " + std::to_string(program_.size());
  for (size_t i = 0; i < program_.size(); ++i) {
    const sock_filter& instruction = program_[i];
    const size_t left = program_.size() - i - 1;  // the greatest distance from the next instruction, plus one
    const std::string at = " at " + std::to_string(i);
    switch (instruction.code) {
      case kLoadWord:
        if (!LoadIsValid(instruction.k)) return "load out of range" + at;
        break;
      case kAnd:
      case kReturn:
        break;
      case kJumpAlways:
        if (instruction.k >= left) return "jump out of range" + at;
        break;
      case kJumpEqual:
      case kJumpGreater:
      case kJumpGreaterEqual:
      case kJumpSet:
        if (instruction.jt >= left || instruction.jf >= left) return "jump out of range" + at;
        break;
      default:
        return "unknown instruction " + std::to_string(instruction.code) + at;
    }
  }
  return program_.back().code == kReturn ? "" : "the end is not a return";
}

std::optional<uint32_t> BpfEvaluator::Run(const seccomp_data& data) {
  uint32_t accumulator = 0;
  size_t next = 0;
  // Every instruction moves forward, so this ends.
  while (next < program_.size()) {
    const sock_filter& instruction = program_[next];
    executed_[next] = true;
    ++next;
    bool condition = false;
    switch (instruction.code) {
      case kLoadWord:
        if (!LoadIsValid(instruction.k)) return std::nullopt;
        accumulator = LoadWord(data, instruction.k);
        continue;
      case kAnd:
        accumulator &= instruction.k;
        continue;
      case kReturn:
        return instruction.k;
      case kJumpAlways:
        next += instruction.k;
        continue;
      case kJumpEqual:
        condition = accumulator == instruction.k;
        break;
      case kJumpGreater:
        condition = accumulator > instruction.k;
        break;
      case kJumpGreaterEqual:
        condition = accumulator >= instruction.k;
        break;
      case kJumpSet:
        condition = (accumulator & instruction.k) != 0;
        break;
      default:
        return std::nullopt;
    }
    next += condition ? instruction.jt : instruction.jf;
  }
  return std::nullopt;
}

std::vector<size_t> BpfEvaluator::NeverExecuted() const {
  std::vector<size_t> missing;
  for (size_t i = 0; i < executed_.size(); ++i) {
    if (!executed_[i]) missing.push_back(i);
  }
  return missing;
}

}  // namespace caisson::support

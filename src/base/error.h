// A failure of Caisson or its caller: one of the four channels that are never mixed.
//
//   Error            an operation failed: bad input, a refusal, a missing wall, a system error   (this file)
//   CommandOutcome   how a command of the workload ended                                         (base/outcome.h)
//   Decision         what policy decided about a request, with rules and reasons                 (policy/decision.h)
//   CAISSON_CHECK    a bug in Caisson: abort                                                     (base/check.h)
#pragma once

#include <string>
#include <utility>

namespace caisson {

enum class ErrorKind {
  kInvalid,      // the caller's input is wrong; the message names the field or path
  kDenied,       // policy refused, or the caller lacks a right
  kUnsupported,  // this machine or program cannot do what was asked for, such as build a wall
  kSystem,       // the machine failed: a system call, a database, a launcher
  kNotFound,     // the object does not exist, or the caller may not know of it
  kConflict,     // the request does not fit the current state
  kExhausted,    // a bound is reached; the same request may succeed later
};

struct Error {
  ErrorKind kind = ErrorKind::kSystem;
  int errno_value = 0;  // 0 if no system call failed
  std::string message;  // names the cause and, if there is one, the fix

  static Error Invalid(std::string message) { return {ErrorKind::kInvalid, 0, std::move(message)}; }
  static Error Denied(std::string message) { return {ErrorKind::kDenied, 0, std::move(message)}; }
  static Error Unsupported(std::string message) { return {ErrorKind::kUnsupported, 0, std::move(message)}; }
  static Error NotFound(std::string message) { return {ErrorKind::kNotFound, 0, std::move(message)}; }
  static Error Conflict(std::string message) { return {ErrorKind::kConflict, 0, std::move(message)}; }
  static Error Exhausted(std::string message) { return {ErrorKind::kExhausted, 0, std::move(message)}; }
  // `what` names the failed action: "open /dev/null". The errno's text is appended.
  static Error System(int errno_value, std::string what);

  // The same error, with `context` in front of its message.
  Error In(const std::string& context) && {
    message = context + ": " + message;
    return std::move(*this);
  }
};

}  // namespace caisson

// What went wrong on our side: one of the four channels that are never mixed.
//
//   Error      we failed (this file)
//   Outcome    the workload's fate             (sandbox/outcome.h)
//   Decision   policy said no, with reasons    (policy/)
//   CHECK      a bug of ours: abort            (base/check.h)
#pragma once

#include <string>
#include <utility>

namespace caisson {

enum class ErrorKind {
  kInvalid,      // the caller's input is wrong; the message names the field or path
  kDenied,       // policy refused
  kUnsupported,  // this machine cannot build a wall that was asked for
  kSystem,       // a system call failed where it should not have
  kNotFound,     // there is no such thing, or none the caller may know of
  kConflict,     // what was asked does not fit the state things are in
  kExhausted,    // a bound is reached; the same may succeed later
};

struct Error {
  ErrorKind kind = ErrorKind::kSystem;
  int errno_value = 0;  // 0 when no system call is to blame
  std::string message;  // names the cause and, where there is one, the fix

  static Error Invalid(std::string message) { return {ErrorKind::kInvalid, 0, std::move(message)}; }
  static Error Denied(std::string message) { return {ErrorKind::kDenied, 0, std::move(message)}; }
  static Error Unsupported(std::string message) { return {ErrorKind::kUnsupported, 0, std::move(message)}; }
  static Error NotFound(std::string message) { return {ErrorKind::kNotFound, 0, std::move(message)}; }
  static Error Conflict(std::string message) { return {ErrorKind::kConflict, 0, std::move(message)}; }
  static Error Exhausted(std::string message) { return {ErrorKind::kExhausted, 0, std::move(message)}; }
  // `what` reads as the failed deed: "open /dev/null". The errno's text is appended.
  static Error System(int errno_value, std::string what);

  // The same error, with `context` in front of its message.
  Error In(const std::string& context) && {
    message = context + ": " + message;
    return std::move(*this);
  }
};

}  // namespace caisson

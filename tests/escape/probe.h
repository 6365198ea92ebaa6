// For the probes of a row: functions to make attempts and report observations. Runs: in the sandbox, and bare as the
// control.
#pragma once

#include <string>
#include <string_view>

#include "escape/row.h"

namespace caisson::escape {

Observation Blocked(int error, std::string detail = {});
Observation Escaped(std::string detail);
Observation Partial(std::string detail);
Observation NotApplicable(std::string why);

// A system call by its number, without the C library's checks. The result, or the negative errno.
template <typename... Arguments>
long Call(long number, Arguments... arguments);

// Escaped, with `what` was reached, when `result` is not negative; else blocked with that errno.
Observation FromCall(long result, std::string what);

// For a call that was given arguments the kernel cannot accept: one of `reached` shows that the kernel looked at it
// (escaped), anything else is a refusal.
Observation FromHarmlessCall(long result, std::initializer_list<int> reached, std::string what);

// For a call that the sandbox must answer with a kill: any answer of the kernel is an escape. Use arguments that do
// nothing.
Observation Survived(long result, std::string what);

// Many tries in one attempt, where none may work.
class Tally {
 public:
  void Add(std::string_view name, const Observation& observation);
  void Add(std::string_view name, long result) { Add(name, FromCall(result, {})); }
  // Blocked if every try was, with the first errno; escaped if every try was; else partial, which is a failure inside
  // and proves too little outside. So one refused try cannot hide another that worked.
  Observation Sum() const;
  // For sweeps over things not every kernel has: one success is an escape.
  Observation SumAny() const;

 private:
  int tries_ = 0, blocked_ = 0, first_error_ = 0;
  std::string worked_, refused_;
};

// How a child ended.
struct Ended {
  bool exited = false;  // by itself, with `code`
  int code = 0;
  int signal = 0;
  bool started = false;
};
// Forks, runs `body` in the child, whose value is the exit code, and waits. SIGALRM ends it after `seconds`.
Ended InChild(const std::function<int()>& body, unsigned seconds = 5);

// The whole of a small file, or empty.
std::string ReadText(const std::string& path);
bool WriteText(const std::string& path, std::string_view text, int* error = nullptr);

// Of the canaries outside: "FILE" (path of a file that no process inside may reach), "PORT" (a listener on the host's
// loopback), "ABSTRACT" (name of an abstract unix socket that listens on the host), "SECRET" (bytes of FILE, only in
// the control). Given as CAISSON_CANARY_* in the environment; empty when it is not set.
std::string Canary(const char* name);

// True in the control. Only for what must not be done to a host that is not ours, such as loading kernel modules.
bool IsControl();

// A directory in which a probe may write: /scratch inside, a temporary one of its own outside.
std::string WritableDirectory();

// What python attempts start with: blocked(error, detail), escaped(detail), partial(detail), not_applicable(why), each
// of which prints the line and ends the program; canary(name); and the usual modules.
extern const char kPythonPrelude[];

// The line that the harness reads: PROBE A04/setup BLOCKED errno=38 detail=...
std::string FormatLine(const std::string& attempt_id, const Observation& observation);

namespace internal {
long RawCall(long number, long a, long b, long c, long d, long e, long f);
template <typename T>
long AsRegister(T value) {
  if constexpr (std::is_pointer_v<T> || std::is_null_pointer_v<T>) {
    return reinterpret_cast<long>(value);
  } else {
    return static_cast<long>(value);
  }
}
}  // namespace internal

template <typename... Arguments>
long Call(long number, Arguments... arguments) {
  static_assert(sizeof...(arguments) <= 6);
  long registers[6] = {};
  size_t i = 0;
  ((registers[i++] = internal::AsRegister(arguments)), ...);
  return internal::RawCall(number, registers[0], registers[1], registers[2], registers[3], registers[4], registers[5]);
}

}  // namespace caisson::escape

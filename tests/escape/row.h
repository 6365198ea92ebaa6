// A row of the escape suite: one technique of hostile code, and the required outcome.
//
// One file per row, named after it (a04_io_uring.cc), holding the probes and one registration:
//
//   Observation Ring() { return FromCall(Call(SYS_io_uring_setup, 8, &parameters), "made a ring"); }
//
//   const Registration kRow(Row{
//       .id = "A04",
//       .title = "io_uring does its work outside the filter",
//       .severity = Severity::kEscape,
//       .walls = {"seccomp"},
//       .attempts = {{.name = "setup", .probe = Ring, .expect = {.errnos = {ENOSYS}}}},
//   });
//
// Nothing else lists it: the build takes every file of that form. An attempt is run twice by the harness, each time as
// a process of its own (caisson-selftest --probe A04/setup): first without a sandbox, where it must escape, or the row
// proves nothing and is skipped; then in a sandbox, where it must be blocked as `expect` says. So a probe should detect
// success by its effect, and must not depend on where it runs. A technique that ends the sandbox is a separate attempt.
//
// SAFETY: controls run on a machine other people use. A harmful technique is tried either in its own namespaces
// (Place::kOwnNamespaces) or with arguments that the kernel refuses after it has examined them (reaches_kernel).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace caisson::escape {

// What the program saw.
enum class Seen {
  kBlocked,        // it did not work; `error` is the kernel's answer
  kEscaped,        // it worked
  kPartial,        // it did not work, but left or revealed something
  kNotApplicable,  // it could not be tried: proves nothing
};

struct Observation {
  Seen seen = Seen::kNotApplicable;
  int error = 0;
  std::string detail;
};

// The impact of an escape of this kind; the classes are gVisor's.
enum class Severity {
  kEscape,
  kHostLeak,
  kExfiltration,
  kLateral,
  kHostDenial,  // denial of service to the host
  kPeerDenial,  // to another sandbox
  kSelfDenial,  // to itself: must end as a clean limit verdict
  kIntegrity,   // a verdict or data that lies
};

// A violation that Caisson must report. Violations that an attempt does not list must not be reported.
struct Report {
  std::string violation_class;  // "SyscallViolation"
  std::string reason;           // "syscall.ptrace"
  std::string syscall = {};     // in the evidence; empty: not looked at
  bool optional = false;        // may also be absent
};

enum class Death { kNever, kPossible, kRequired };  // by SIGSYS or SIGKILL

struct ParkedSetup {
  std::vector<int> errnos = {};      // permitted errnos of "blocked"; empty: any
  Death death = Death::kNever;       // a program that died this way was blocked too
  std::vector<Report> reports = {};  // empty: contained without a violation
  std::string failure_class = {};    // of the result; empty: that of a report, or none
};

enum class Place {
  kHere,           // as the caller of the harness
  kOrdinaryUser,   // as the user "nobody" if root runs the harness: for attempts that succeed because of root
  kOwnNamespaces,  // with all capabilities in fresh user, mount, uts, ipc and network namespaces
};

struct Control {
  Place place = Place::kHere;
  bool reaches_kernel = false;  // the probe is harmless: it shows only that the kernel examines the call
};

struct Attempt {
  std::string name = {};                    // unique in the row; may be empty when there is only one
  std::function<Observation()> probe = {};  // this, or
  std::string python = {};                  // a program for python3; see kPythonPrelude in probe.h
  Control control = {};
  ParkedSetup expect = {};
  std::vector<std::string> flags = {};  // more flags for `caisson run`
  bool judge_only = false;              // a tool of the row's judge: not tried by itself
};

enum class Verdict { kPass, kFail, kSkip };

// A judge's finding. A judge decides from the host's view, where no single probe can decide.
struct Judgement {
  Verdict verdict = Verdict::kSkip;
  std::string detail;
};

inline Judgement Held(std::string detail) { return {Verdict::kPass, std::move(detail)}; }
inline Judgement Broken(std::string detail) { return {Verdict::kFail, std::move(detail)}; }
inline Judgement Vacuous(std::string why) { return {Verdict::kSkip, std::move(why)}; }

class Host;  // host.h: starts sandboxes and controls

struct Row {
  std::string id;     // "A04"; its letter is the group
  std::string title;  // the technique, in one line
  Severity severity = Severity::kEscape;
  std::vector<std::string> walls;  // whose removal turns this row red
  std::vector<Attempt> attempts = {};
  std::function<Judgement(Host&)> judge = {};  // after the attempts; must bring its own control
};

const char* Name(Seen seen);
const char* Name(Severity severity);
const char* Name(Verdict verdict);

// Every row, in order of its id.
const std::vector<Row>& Rows();
// "A04/setup", or "A04" for an attempt without a name.
std::string AttemptId(const Row& row, const Attempt& attempt);
const Attempt* FindAttempt(const std::string& attempt_id);

class Registration {
 public:
  explicit Registration(Row row);
};

}  // namespace caisson::escape

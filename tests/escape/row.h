// A row of the escape suite: one thing hostile code tries, and what must come of it.
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
// a process of its own (caisson-selftest --probe A04/setup): first with nothing in its way, where it must escape, or
// the row proves nothing and is skipped; then in a sandbox, where it must be blocked as `expect` says. So a probe must
// tell success by its effect where it can, and must not care where it runs. What would end the sandbox is an attempt of
// its own.
//
// SAFETY: controls run on a machine other people use. What would harm it is either tried in namespaces of its own
// (Place::kOwnNamespaces) or with arguments the kernel refuses after having looked at them (reaches_kernel).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace caisson::escape {

// What the program saw.
enum class Seen {
  kBlocked,        // it did not work; `error` says what the kernel said
  kEscaped,        // it worked
  kPartial,        // it did not work, but left or learnt something it should not have
  kNotApplicable,  // it could not be tried: proves nothing
};

struct Observation {
  Seen seen = Seen::kNotApplicable;
  int error = 0;
  std::string detail;
};

// What an escape of this kind would mean; the classes are gVisor's.
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

// A violation that Caisson must report. What an attempt does not list must not be reported.
struct Report {
  std::string violation_class;  // "SyscallViolation"
  std::string reason;           // "syscall.ptrace"
  std::string syscall = {};     // in the evidence; empty: not looked at
  bool optional = false;        // may also be absent
};

enum class Death { kNever, kPossible, kRequired };  // by SIGSYS or SIGKILL

struct Expectation {
  std::vector<int> errnos = {};      // what "blocked" may say; empty: anything
  Death death = Death::kNever;       // a program that died this way was blocked too
  std::vector<Report> reports = {};  // empty: contained without a violation
  std::string failure_class = {};    // of the result; empty: that of a report, or none
};

enum class Place {
  kHere,           // as the caller of the harness
  kOrdinaryUser,   // as nobody when root runs the harness: where being root would explain a success
  kOwnNamespaces,  // with all capabilities in fresh user, mount, uts, ipc and network namespaces
};

struct Control {
  Place place = Place::kHere;
  bool reaches_kernel = false;  // the probe harms nobody: it shows only that the kernel looks at the call
};

struct Attempt {
  std::string name = {};                    // unique in the row; may be empty when there is only one
  std::function<Observation()> probe = {};  // this, or
  std::string python = {};                  // a program for python3; see kPythonPrelude in probe.h
  Control control = {};
  Expectation expect = {};
  std::vector<std::string> flags = {};  // more flags for `caisson run`
  bool judge_only = false;              // a tool of the row's judge: not tried by itself
};

enum class Verdict { kPass, kFail, kSkip };

// What a judge found. A judge decides from the host's view, for what no single probe can tell.
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

// caisson-selftest: attacks a Caisson from inside and checks from outside that it held.
//
// One program in two parts: on the host it is the harness, and inside it is the probe (--probe ID). It treats Caisson
// as a black box and runs the program that users run.
#include <limits.h>
#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "escape/probe.h"
#include "escape/runtimes.h"
#include "escape/suite.h"

namespace caisson::escape {

namespace {

enum ExitCode { kHeldAll = 0, kBroken = 1, kUsage = 2, kInfrastructure = 4 };

int Complain(const std::string& message, ExitCode code) {
  std::fprintf(stderr, "caisson-selftest: %s\n", message.c_str());
  return code;
}

int RunProbe(const std::string& attempt_id) {
  const Attempt* attempt = FindAttempt(attempt_id);
  if (attempt == nullptr || !attempt->probe) return Complain("there is no probe " + attempt_id, kUsage);
  const Observation observation = attempt->probe();
  std::puts(FormatLine(attempt_id, observation).c_str());
  return 0;
}

std::string OwnDirectory() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string program(path, size > 0 ? static_cast<size_t>(size) : 0);
  return program.substr(0, program.rfind('/'));
}

// Beside us, or where an installation puts it.
std::string FindCaisson() {
  for (const char* place : {"/caisson", "/../../bin/caisson"}) {
    const std::string path = OwnDirectory() + place;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

std::vector<std::string> Split(const std::vector<std::string>& lists) {
  std::vector<std::string> items;
  for (const std::string& list : lists) {
    std::istringstream stream(list);
    for (std::string item; std::getline(stream, item, ',');) items.push_back(item);
  }
  return items;
}

struct Flags {
  std::vector<std::string> groups, rows;
  std::string caisson, runtime = "native";
  bool json = false, list = false, keep_going = true;
};

// The rows asked for; an error names what there is none of.
std::vector<const Row*> Choose(const Flags& flags, std::string* error) {
  const std::vector<std::string> groups = Split(flags.groups), ids = Split(flags.rows);
  std::vector<const Row*> chosen;
  const auto wanted = [&](const Row& row) {
    if (groups.empty() && ids.empty()) return true;
    return std::find(groups.begin(), groups.end(), row.id.substr(0, 1)) != groups.end() ||
           std::find(ids.begin(), ids.end(), row.id) != ids.end();
  };
  for (const Row& row : Rows()) {
    if (wanted(row)) chosen.push_back(&row);
  }
  for (const std::string& group : groups) {
    if (std::none_of(Rows().begin(), Rows().end(), [&](const Row& row) { return row.id.substr(0, 1) == group; }))
      *error = "there is no group " + group;
  }
  for (const std::string& id : ids) {
    if (std::none_of(Rows().begin(), Rows().end(), [&](const Row& row) { return row.id == id; }))
      *error = "there is no row " + id;
  }
  return chosen;
}

std::string Version(const std::string& caisson) {
  std::string text = Process::Start({.argv = {caisson, "--version"}}).Finish(kPatienceMs).out;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.rfind("caisson ", 0) == 0 ? text.substr(8) : text;
}

int RunSuite(const Flags& flags, const std::vector<const Row*>& rows, const std::string& caisson) {
  Host host(caisson, flags.runtime);
  Canaries canaries(host.directory(), {caisson, host.selftest(), "/usr/bin/env", "/usr/bin/python3", "/bin/sh"});
  host.UseCanaries(&canaries);
  // A machine that cannot start a sandbox proves nothing.
  const Outcome first = host.Run({.command = {"/workspace/caisson-selftest", "--list"}});
  if (!first.result || first.result->status != "pass") {
    const std::string why = first.result ? first.result->message : "";
    return Complain("no sandbox can be started here: " + (why.empty() ? first.process.err : why), kInfrastructure);
  }
  struct utsname name {};
  ::uname(&name);
  const Machine machine{name.release, Version(caisson), caisson, flags.runtime, ::geteuid() == 0};
  const bool colour = ::isatty(STDOUT_FILENO) && ::getenv("NO_COLOR") == nullptr;
  const bool progress = ::isatty(STDERR_FILENO) && !flags.json;
  const int64_t start = NowMs();
  std::vector<RowOutcome> outcomes;
  for (const Row* row : rows) {
    if (progress) std::fprintf(stderr, "\r\033[K%s  %s ...", row->id.c_str(), row->title.c_str());
    const std::string reason = WhyNotIn(flags.runtime, row->id);
    outcomes.push_back(reason.empty() ? RunRow(*row, host, canaries) : SkipRow(*row, reason));
    if (progress) std::fputs("\r\033[K", stderr);
    if (!flags.json) std::fputs(DescribeRow(outcomes.back(), colour).c_str(), stdout);
    std::fflush(stdout);
  }
  std::fputs((flags.json ? ToJson(outcomes, machine) : DescribeSummary(outcomes, NowMs() - start)).c_str(), stdout);
  const bool broken = std::any_of(outcomes.begin(), outcomes.end(),
                                  [](const RowOutcome& outcome) { return outcome.verdict == Verdict::kFail; });
  return broken ? kBroken : kHeldAll;
}

int Main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--probe") return RunProbe(argv[2]);
  Flags flags;
  CLI::App app("Attack the sandbox from inside and check from outside that it held.", "caisson selftest");
  app.add_option("--group", flags.groups, "Only these groups, for example A or A,B");
  app.add_option("--row", flags.rows, "Only these rows, for example A04");
  app.add_option("--caisson", flags.caisson, "The program to attack; default: the one beside this program")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--runtime", flags.runtime,
                 "The runtime to attack: native (default), container, oci, gvisor, microvm, kubernetes")
      ->check(CLI::IsMember(RuntimeNames()));
  app.add_flag("--json", flags.json, "Print one JSON document and nothing else");
  app.add_flag("--list", flags.list, "List the rows and stop");
  app.add_flag("--keep-going", flags.keep_going, "Accepted for habit: a failing row never stops the others");
  app.footer(
      "Every row runs its attack without a sandbox first; where it does not work even so, the row is skipped.\n"
      "Exit codes: 0 every row that can run here held, 1 a row failed, 2 usage, 4 no sandbox can be started.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kHeldAll;
  } catch (const CLI::ParseError& error) {
    return Complain(error.what(), kUsage);
  }
  std::string error;
  const std::vector<const Row*> rows = Choose(flags, &error);
  if (!error.empty()) return Complain(error + " (see: --list)", kUsage);
  if (flags.list) {
    for (const Row* row : rows) std::printf("%s  %s  (%s)\n", row->id.c_str(), row->title.c_str(), Name(row->severity));
    return kHeldAll;
  }
  const std::string caisson = flags.caisson.empty() ? FindCaisson() : flags.caisson;
  if (caisson.empty() || ::access(caisson.c_str(), X_OK) != 0)
    return Complain("no caisson program beside this one; name it with --caisson", kInfrastructure);
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return RunSuite(flags, rows, caisson);
  } catch (const std::exception& failure) {
    return Complain(failure.what(), kInfrastructure);
  }
}

}  // namespace

}  // namespace caisson::escape

int main(int argc, char** argv) { return caisson::escape::Main(argc, argv); }

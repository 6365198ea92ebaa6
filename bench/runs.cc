// The cost of a run for a program that requests it, such as a service: no command line, no program start.
//
//   bench_runs [--json] turns ROUNDS PROGRAM [NAME=SOCKET…]
//       bare (posix_spawn and wait), in this process and by each launcher, in turns, so that other load affects all
//       alike; for a Python file also an interpreter that does nothing. Nanoseconds of the parts of a run: until the
//       sandbox is set up, the command, and until everything is removed. The result is available after the first two.
//   bench_runs [--json] sustained SECONDS CLIENTS PROGRAM bare|SOCKET
//       as many runs as CLIENTS threads complete; each waits until its run is removed before it requests the next.
//   bench_runs crowd SIZE PROBES SOCKET
//       see crowd.h
//
// PROGRAM is `true` or the path of a Python file. Without --json medians are printed for people, in microseconds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "contender.h"
#include "crowd.h"
#include "runtime/native/launched.h"
#include "runtime/native/native.h"

namespace {

using namespace caisson;
using bench::Program;
using bench::Steps;

// Name and samples, as they are printed.
using Column = std::pair<const char*, std::vector<int64_t>>;

std::vector<Column> ColumnsOf(const std::vector<Steps>& runs) {
  std::vector<Column> columns = {{"start", {}}, {"command", {}}, {"result", {}}, {"removal", {}}, {"whole", {}}};
  for (const Steps& steps : runs) {
    const int64_t values[] = {steps.start, steps.command, steps.result(), steps.removal, steps.whole()};
    for (size_t i = 0; i < columns.size(); ++i) columns[i].second.push_back(values[i]);
  }
  return columns;
}

void PrintForPeople(const std::string& name, const std::vector<Steps>& runs) {
  for (Column& column : ColumnsOf(runs)) {
    std::vector<int64_t>& values = column.second;
    std::sort(values.begin(), values.end());
    const auto at = [&](size_t percent) {
      return static_cast<long long>(values[values.size() * percent / 100] / 1000);
    };
    std::printf("%-24s %-9s median %6lld  p10 %6lld  p95 %6lld\n", name.c_str(), column.first, at(50), at(10), at(95));
  }
}

// How many runs had which start: {"cold": 1, "parked": 9}
std::string JsonOfCounts(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [name, count] : counts)
    text += (text.empty() ? "{\"" : ", \"") + name + "\": " + std::to_string(count);
  return text.empty() ? "{}" : text + "}";
}

std::string JsonOfRuns(const std::string& name, const std::vector<Steps>& runs) {
  std::string text = "\"" + name + "\": {";
  for (const Column& column : ColumnsOf(runs))
    text += "\"" + std::string(column.first) + "\": " + bench::JsonOf(column.second) + ", ";
  std::map<std::string, int64_t> made;
  for (const Steps& steps : runs) ++made[steps.made];
  return text + "\"made\": " + JsonOfCounts(made) + "}";
}

struct Contender {
  std::string name;
  std::function<Result<Steps>(const Program&)> run;
  std::vector<Steps> runs;
};

Contender Inside(std::string name, const std::shared_ptr<runtime::Runtime>& runtime) {
  return {std::move(name), [runtime](const Program& program) { return bench::RunInside(*runtime, program); }, {}};
}

Status Turns(int rounds, const Program& program, const std::vector<std::string>& launchers, bool json) {
  std::vector<Contender> contenders = {{"bare", bench::RunBare, {}},
                                       Inside("in process", runtime::native::MakeNativeRuntime())};
  if (!program.least.empty()) {
    contenders.push_back({"python3 -I -S -c pass",
                          [](const Program& one) {
                            return bench::RunBare({one.least, {}, {}, {}});
                          },
                          {}});
  }
  for (const std::string& launcher : launchers) {
    const size_t equals = launcher.find('=');
    if (equals == std::string::npos) return Error::Invalid("bench_runs: " + launcher + " is not NAME=SOCKET");
    contenders.push_back(
        Inside(launcher.substr(0, equals), runtime::native::MakeLaunchedRuntime(launcher.substr(equals + 1))));
  }
  for (int round = 0; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      CAISSON_TRY(const Steps steps, contender.run(program));
      contender.runs.push_back(steps);
    }
  }
  std::string text;
  for (const Contender& contender : contenders) {
    if (!json) PrintForPeople(contender.name, contender.runs);
    text += (text.empty() ? "{" : ", ") + JsonOfRuns(contender.name, contender.runs);
  }
  if (json) std::printf("%s}\n", text.c_str());
  return {};
}

Status Sustained(double seconds, int clients, const Program& program, const std::string& where, bool json) {
  Contender contender = where == "bare" ? Contender{where, bench::RunBare, {}}
                                        : Inside(where, runtime::native::MakeLaunchedRuntime(where));
  std::mutex mutex;
  Status failed;
  std::map<std::string, int64_t> made;
  int64_t ended = 0;
  const int64_t begin = MonotonicNanos();
  const int64_t deadline = begin + static_cast<int64_t>(seconds * 1e9);
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&] {
      while (MonotonicNanos() < deadline) {
        const Result<Steps> steps = contender.run(program);
        const std::lock_guard lock(mutex);
        if (!steps) failed = steps.error();
        if (!failed) return;
        ++ended;
        ++made[steps->made];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CAISSON_TRY_VOID(failed);
  const double rate = static_cast<double>(ended) * 1e9 / static_cast<double>(MonotonicNanos() - begin);
  if (json) {
    std::printf("{\"per_second\": %.3f, \"made\": %s}\n", rate, JsonOfCounts(made).c_str());
  } else {
    std::printf("%.1f/s, %s\n", rate, JsonOfCounts(made).c_str());
  }
  return {};
}

Status Main(std::vector<std::string> words) {
  const bool json = !words.empty() && words[0] == "--json";
  if (json) words.erase(words.begin());
  const std::string mode = words.empty() ? "" : words[0];
  if (mode == "turns" && words.size() >= 3) {
    CAISSON_TRY(const Program program, bench::ReadProgram(words[2]));
    return Turns(std::atoi(words[1].c_str()), program, {words.begin() + 3, words.end()}, json);
  }
  if (mode == "sustained" && words.size() == 5) {
    CAISSON_TRY(const Program program, bench::ReadProgram(words[3]));
    return Sustained(std::atof(words[1].c_str()), std::atoi(words[2].c_str()), program, words[4], json);
  }
  if (mode == "crowd" && words.size() == 4) {
    const std::unique_ptr<runtime::Runtime> runtime = runtime::native::MakeLaunchedRuntime(words[3]);
    return bench::HoldCrowd(*runtime, std::atoi(words[1].c_str()), std::atoi(words[2].c_str()));
  }
  return Error::Invalid("bench_runs: turns, sustained or crowd; the head of bench/runs.cc says how");
}

}  // namespace

int main(int argc, char** argv) {
  const Status done = Main({argv + 1, argv + argc});
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}

#include "contender.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "policy/profile.h"

namespace caisson::bench {
namespace {

constexpr char kPython[] = "/usr/bin/python3";

Error Failed(const std::string& what) { return Error::Invalid("bench: " + what); }

}  // namespace

Result<Program> ReadProgram(const std::string& name) {
  if (name == "true") return Program{{"/bin/true"}, {"/bin/true"}, {}, {}};
  std::ifstream file(name, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return Failed(name + " cannot be read");
  return Program{{kPython, name},
                 {kPython, "/workspace/main.py"},
                 {{"main.py", std::move(text), 0644, policy::FileKind::kRegular}},
                 {kPython, "-I", "-S", "-c", "pass"}};
}

policy::RunPlan PlanOf(const Program& program) {
  policy::RunPlan plan;
  plan.profile = *policy::FindBuiltIn("balanced");
  plan.limits = plan.profile.limits;
  plan.workspace_files = program.files;
  policy::PlannedCommand command;
  command.argv = program.inside;
  plan.commands.push_back(std::move(command));
  return plan;
}

Result<Steps> RunInside(runtime::Runtime& runtime, const Program& program) {
  runtime::ExecuteOptions options;
  options.timeout_ms = 30'000;
  options.last = true;
  policy::RunPlan plan = PlanOf(program);
  const int64_t begin = MonotonicNanos();
  CAISSON_TRY(std::unique_ptr<runtime::Run> run, runtime.Start(std::move(plan)));
  const int64_t started = MonotonicNanos();
  CAISSON_TRY(const CommandOutcome outcome, run->Execute({program.inside, {}}, CommandIo::Capture(), options));
  const int64_t ended = MonotonicNanos();
  if (outcome.exit_code != 0) return Failed("the command failed inside");
  std::string made = run->isolation().start;
  run.reset();
  return Steps{started - begin, ended - started, MonotonicNanos() - ended, std::move(made)};
}

Result<Steps> RunBare(const Program& program) {
  std::vector<char*> argv;
  for (const std::string& word : program.bare) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int fd = 0; fd < 3; ++fd) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  // A session of its own, as sandboxes have: the scheduler shares a busy machine between sessions, not between
  // processes.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t child = 0;
  const int64_t begin = MonotonicNanos();
  const int error = posix_spawn(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return Error::System(error, program.bare[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return Error::System(errno, "waitpid");
  }
  const int64_t ended = MonotonicNanos();
  if (status != 0) return Failed("the command failed bare");
  return Steps{0, ended - begin, 0, "bare"};
}

std::string JsonOf(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (const int64_t value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "]";
}

}  // namespace caisson::bench

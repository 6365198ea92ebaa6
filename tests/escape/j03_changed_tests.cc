// Changes the tests instead of passing them: the files themselves, what their interpreter loads on its way to them, the
// programs that run them, or the environment that all of these read.
#include <nlohmann/json.hpp>
#include <string>

#include "escape/host.h"
#include "escape/probe.h"

namespace caisson::escape {

namespace {

using nlohmann::json;

// The entry file runs before the tests do, as the same user and in the same sandbox.
const char kWriteTests[] = R"(
import os
for path in ('/workspace/test_it.py', '/workspace/conftest.py', '/workspace/sitecustomize.py', '/workspace/pytest.ini'):
    try:
        with open(path, 'w') as file: file.write('')
        print('WROTE', path)
    except OSError: pass
for change in (lambda: os.unlink('/workspace/test_it.py'), lambda: os.rename('/workspace', '/tmp/w'),
               lambda: os.chmod('/workspace/test_it.py', 0), lambda: os.utime('/workspace/test_it.py', (0, 0)),
               lambda: os.truncate('/workspace/test_it.py', 0)):
    try:
        change()
        print('WROTE')
    except OSError: pass
)";

// Everything that is looked for in a home directory, a temporary one, or the environment.
const char kPlant[] = R"(
import glob, os, sys
end = 'import os\nos._exit(0)\n'
def plant(path, text=end):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w') as file: file.write(text)
    os.chmod(path, 0o755)
version = f'python{sys.version_info.major}.{sys.version_info.minor}'
for home in ('/scratch', '/tmp', '/dev/shm'):
    site = f'{home}/.local/lib/{version}/site-packages'
    for name in ('sitecustomize.py', 'usercustomize.py', 'pytest.py', 'unittest.py', 'conftest.py', 'os.py', 'encodings.py'):
        plant(f'{home}/{name}'); plant(f'{site}/{name}')
    plant(f'{site}/x.pth', 'import os; os._exit(0)\n')
    plant(f'{home}/.pythonrc'); plant(f'{home}/pyvenv.cfg', f'home = {home}\n')
    plant(f'{home}/pytest.ini', '[pytest]\naddopts = --collect-only\n')
    plant(f'{home}/.config/pytest.ini', '[pytest]\naddopts = --collect-only\n')
    plant(f'{home}/setup.cfg', '[tool:pytest]\naddopts = --collect-only\n')
    for name in ('python3', 'pytest', 'sh', 'gcc'): plant(f'{home}/.local/bin/{name}', '#!/bin/true\n'); plant(f'{home}/bin/{name}', '#!/bin/true\n')
    for name in ('.bashrc', '.profile', '.bash_profile'): plant(f'{home}/{name}', 'exit 0\n')
os.environ['PYTHONPATH'] = os.environ['LD_PRELOAD'] = os.environ['BASH_ENV'] = '/scratch'
os.environ['PYTEST_ADDOPTS'] = '--collect-only'
)";

// Variables of the caller's environment that change interpreters, loaders, shells, compilers and git.
constexpr const char* kVariables[] = {"PYTHONPATH",
                                      "PYTHONHOME",
                                      "PYTHONSTARTUP",
                                      "PYTEST_ADDOPTS",
                                      "LD_PRELOAD",
                                      "LD_LIBRARY_PATH",
                                      "LD_AUDIT",
                                      "BASH_ENV",
                                      "ENV",
                                      "NODE_OPTIONS",
                                      "PERL5OPT",
                                      "PERL5LIB",
                                      "RUBYOPT",
                                      "CC",
                                      "GCC_EXEC_PREFIX",
                                      "COMPILER_PATH",
                                      "CPATH",
                                      "LIBRARY_PATH",
                                      "GIT_CONFIG",
                                      "GIT_DIR",
                                      "GIT_EXEC_PATH",
                                      "GIT_CONFIG_GLOBAL",
                                      "GIT_SSH_COMMAND"};

// Which programs a later check would run after an earlier one has put its own everywhere it could.
const char kFind[] = R"(
for name in python3 pytest sh bash gcc cc make git; do command -v "$name"; done
exit 0
)";

std::string FaultInEnvironment(Host& host) {
  Command command;
  for (const char* variable : kVariables) command.env.emplace_back(variable, "/nowhere/selftest");
  // The loader complains of what it cannot load, and goes on.
  command.argv = {"env"};
  if (Process::Start(command).Finish(kPatienceMs).out.find("PERL5LIB=/nowhere/selftest") == std::string::npos)
    return "vacuous";
  command.argv = {host.caisson(), "run", "--quiet", "--", "env"};
  const Finished inside = Process::Start(command).Finish(kPatienceMs);
  if (inside.out.find("HOME=") == std::string::npos) return "the environment cannot be read: " + inside.err;
  return inside.out.find("/nowhere/selftest") == std::string::npos ? "" : "the caller's environment went in";
}

std::string FaultInPrograms(Host& host) {
  const auto check = [](const char* name, const json& argv) {
    return json{{"name", name}, {"tier", "run"}, {"argv", argv}};
  };
  const json request = {
      {"source", {{"files", {{"file", "x"}}}}},
      {"checks", {check("plant", {"python3", "-I", "-c", kPlant}), check("find", {"sh", "-c", kFind})}}};
  const Outcome run = host.Verify(request.dump());
  if (!run.result || run.result->status != "pass") return "programs cannot be looked for: " + run.process.err;
  if (run.result->stdout_text.find("/python3") == std::string::npos) return "vacuous";
  for (const char* planted : {"/scratch/", "/tmp/", "/dev/shm/"}) {
    if (run.result->stdout_text.find(planted) != std::string::npos)
      return "a planted program would be run: " + run.result->stdout_text;
  }
  return "";
}

Outcome Test(Host& host, const std::string& entry) {
  const std::string tests = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.fail()\n";
  return host.Verify(json{{"source", {{"files", {{"main.py", entry}, {"test_it.py", tests}}}}}}.dump());
}

Judgement JudgeTests(Host& host) {
  const Outcome control = Test(host, "pass\n");
  if (!control.result || control.result->status != "fail" ||
      control.result->stderr_text.find("main.py") != std::string::npos)
    return Vacuous("tests cannot be run here: " + control.process.err);
  const Outcome planted = Test(host, kPlant);
  if (!planted.result || planted.result->status != "fail" || planted.result->failure_class != "CheckFailed")
    return Broken(
        "what an earlier check left behind changed the tests: " +
        (planted.result ? planted.result->status + " " + planted.result->failure_class : planted.process.err));
  // The entry file must have run to its end, or nothing was planted.
  if (json::parse(planted.result->text)["tier"] != "test")
    return Vacuous("the plant did not run: " + planted.result->stderr_text);
  const Outcome written = Test(host, kWriteTests);
  if (!written.result || written.result->stdout_text.find("WROTE") != std::string::npos)
    return Broken("the tests were changed: " + written.process.out.substr(0, 400));
  if (written.result->Find("FilesystemWriteViolation", "fs.write") == nullptr ||
      written.result->failure_class != "FilesystemWriteViolation")
    return Broken("the attempt to change them is not reported: " + written.result->failure_class);
  // The verified source is the hashed one, whatever happened meanwhile: only the entry file differs between the two.
  const auto digest = [](const Outcome& run) { return json::parse(run.result->text).value("source_digest", ""); };
  if (digest(written).size() != 64 || digest(written) != digest(Test(host, kWriteTests)) ||
      digest(written) == digest(control)) {
    return Broken("the digest is not that of the source");
  }
  for (auto* fault_in : {FaultInEnvironment, FaultInPrograms}) {
    const std::string fault = fault_in(host);
    if (fault == "vacuous") return Vacuous("nothing could be planted here");
    if (!fault.empty()) return Broken(fault);
  }
  return Held("the tests that ran are the ones that were given");
}

const Registration kRow(Row{
    .id = "J03",
    .title = "changing the tests, their settings, or their interpreter",
    .severity = Severity::kIntegrity,
    .walls = {"read-only workspace", "environment is made up", "isolated interpreter"},
    .judge = JudgeTests,
});

}  // namespace

}  // namespace caisson::escape

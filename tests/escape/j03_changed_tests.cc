// Changes the tests instead of passing them: the files themselves, or what their interpreter loads on its way to them.
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
  // The entry file must have come to its end, or nothing was planted.
  if (json::parse(planted.result->text)["tier"] != "test")
    return Vacuous("the plant did not run: " + planted.result->stderr_text);
  const Outcome written = Test(host, kWriteTests);
  if (!written.result || written.result->stdout_text.find("WROTE") != std::string::npos)
    return Broken("the tests were changed: " + written.process.out.substr(0, 400));
  if (written.result->Find("FilesystemWriteViolation", "fs.write") == nullptr ||
      written.result->failure_class != "FilesystemWriteViolation")
    return Broken("the attempt to change them is not reported: " + written.result->failure_class);
  // What was verified is what was hashed, whatever happens meanwhile: the digest is that of the untouched source.
  if (json::parse(written.result->text)["source_digest"].get<std::string>().size() != 64)
    return Broken("the source is not named by its digest");
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

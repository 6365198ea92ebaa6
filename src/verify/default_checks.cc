#include "verify/default_checks.h"

#include <algorithm>

namespace caisson::verify {

namespace {

// Compiles every file and runs none of it. Isolated (-I) and without site (-S), so nothing of the source is imported.
// Modules that only a failure needs are imported on failure: importing them takes longer than everything else.
constexpr char kSyntaxCheck[] = R"py(import os, sys
failed = False
for top, directories, files in os.walk("/workspace"):
    directories[:] = sorted(d for d in directories if d != ".git")
    for name in sorted(files):
        if not name.endswith(".py"):
            continue
        path = os.path.join(top, name)
        try:
            with open(path, "rb") as file:
                compile(file.read(), path, "exec", dont_inherit=True)
        except OSError as error:
            failed = True
            print(f"{path}: {error}", file=sys.stderr)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
            failed = True
            import traceback
            traceback.print_exc()
            if not isinstance(error, SyntaxError) or error.filename != path:
                print(f"in {path}", file=sys.stderr)
sys.exit(1 if failed else 0)
)py";

// Runs the tests in a child and passes on its exit status, with one exception: exit code 0 counts only together with
// the child's message that the runner finished. Code under test that ends the process with success before that
// (os._exit(0), by accident or not) has not passed. The code runs in the runner's process, so code that deliberately
// forges the message succeeds.
//
// pytest is located before the source can be imported, so a pytest.py in the source is not mistaken for it.
constexpr char kTestCheck[] = R"py(import os, signal, sys

def run_tests():
    import importlib.util
    if importlib.util.find_spec("pytest"):
        import pytest
        sys.path.insert(0, "/workspace")
        return int(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir=/workspace", "/workspace"]))
    import unittest
    sys.path.insert(0, "/workspace")
    suite = unittest.TestSuite()
    for pattern in ("test_*.py", "*_test.py"):
        suite.addTests(unittest.TestLoader().discover("/workspace", pattern=pattern))
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    if result.testsRun == 0:
        print("no tests were found", file=sys.stderr)
        return 5
    return 0 if result.wasSuccessful() else 1

def main():
    nonce = os.urandom(16).hex()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = run_tests()
        # With the number of this process: copies of it, made by tests that fork, do not speak for it.
        os.write(writer, f"{nonce} {os.getpid()} {code}\n".encode())
        sys.exit(code)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    # What the child wrote is there now; others may hold the pipe open for ever.
    os.set_blocking(reader, False)
    try:
        words = os.read(reader, 65536).decode("ascii", "replace").split("\n")
    except BlockingIOError:
        words = []
    said = [int(word.split()[2]) for word in words if word.startswith(f"{nonce} {child} ")]
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != signal.SIGKILL:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    if not said and os.WEXITSTATUS(status) == 0:
        print("incomplete: the tests ended before the test runner did", file=sys.stderr)
        sys.exit(70)
    sys.exit(os.WEXITSTATUS(status) or said[0])

main()
)py";
static_assert(kIncompleteExitCode == 70);

bool EndsWith(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() && text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

bool IsTest(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return EndsWith(name, "_test.py") || (name.compare(0, 5, "test_") == 0 && EndsWith(name, ".py"));
}

// "" when there is none.
std::string FindEntry(const std::vector<std::string>& names) {
  for (const char* name : {"main.py", "__main__.py"}) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  }
  std::vector<std::string> candidates;
  for (const std::string& name : names) {
    if (name.find('/') == std::string::npos && EndsWith(name, ".py") && !IsTest(name)) candidates.push_back(name);
  }
  return candidates.size() == 1 ? candidates[0] : "";
}

Check MakeCheck(const char* tier, std::vector<std::string> argv) {
  Check check;
  check.name = tier;
  check.tier = tier;
  check.argv = std::move(argv);
  return check;
}

}  // namespace

Result<DefaultChecks> ChooseChecks(const std::vector<std::string>& names, const std::string& given_file) {
  const bool any_python =
      std::any_of(names.begin(), names.end(), [](const std::string& name) { return EndsWith(name, ".py"); });
  if (!any_python) {
    return Error::Invalid(
        "no Python file to verify; for another language write a request with explicit checks (caisson verify --help "
        "shows one)");
  }
  const std::string entry = given_file.empty() ? FindEntry(names) : given_file;
  const bool tests = given_file.empty() && std::any_of(names.begin(), names.end(), IsTest);
  if (entry.empty() && !tests) {
    return Error::Invalid(
        "no entry file: expected main.py, __main__.py or a single .py file at the top; name the file, or write a "
        "request with explicit checks");
  }
  DefaultChecks chosen;
  chosen.checks.push_back(MakeCheck("syntax", {"python3", "-I", "-S", "-B", "-c", kSyntaxCheck}));
  if (entry.empty()) {
    chosen.skipped.push_back({"run", "run", "no entry file"});
  } else {
    chosen.checks.push_back(MakeCheck("run", {"python3", "/workspace/" + entry}));
  }
  if (tests) chosen.checks.push_back(MakeCheck("test", {"python3", "-I", "-B", "-c", kTestCheck}));
  return chosen;
}

}  // namespace caisson::verify

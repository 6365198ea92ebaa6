"""Third-party programs behave inside the sandbox as they do outside.

CPython's own tests, a build of GoogleTest from its Debian sources, git, node's test runner: the same command runs as an
ordinary user outside and inside, and its reports are compared item by item. tests/support/real_programs/differences.py
lists the intended differences; stress-ng shows that limits end programs that do not end by themselves.

CAISSON_REAL_PROGRAMS=1 runs the long ones too: CPython's own tests, a build of GoogleTest and stress-ng. With =all more
modules of CPython's tests are run, which takes about ten minutes.
"""

import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "support" / "real_programs")]
from caisson import CallerCase, Leftovers, both_callers, need_tool, skip
from differences import DIFFERENCES, FATAL, NOTICES

PROGRAMS = TESTS / "support" / "real_programs"
DOCUMENT = TESTS.parent / "docs" / "user" / "compatibility.md"
PYTHON = "/usr/bin/python3.11"
ALL = os.environ.get("CAISSON_REAL_PROGRAMS") == "all"


class Long:
    """In front of a test class that takes minutes."""

    @classmethod
    def setUpClass(cls):
        if not os.environ.get("CAISSON_REAL_PROGRAMS"):
            skip("real_programs", f"{cls.__name__} takes minutes; set CAISSON_REAL_PROGRAMS=1")
        super().setUpClass()

PROFILE = """\
version: 1
name: real-programs
extends: balanced
on_violation: report
limits: {command_timeout_ms: 900s, budget_ms: 900s, processes: 512, memory_bytes: 1GiB, output_bytes: 64MiB}
"""

# Groups run side by side: most of these tests wait for something most of the time.
GROUPS = [
    ["test_os", "test_tempfile", "test_threading", "test_asyncio.test_subprocess", "test_asyncio.test_streams"],
    ["test_socket", "test_asyncio.test_unix_events", "test_asyncio.test_base_events"],
    ["test_subprocess", "test_multiprocessing_spawn"],
    ["test_multiprocessing_fork"],
]
MORE_GROUPS = [
    ["test_asyncio", "test_posix", "test_shutil", "test_mmap", "test_select", "test_selectors", "test_epoll"],
    ["test_signal", "test_multiprocessing_forkserver", "test_fcntl", "test_resource", "test_pathlib"],
]
# Left out of the short run because they take seconds each and show nothing that others do not.
SLOW = [
    "test.test_multiprocessing_*.With[TM]*",  # by threads and by managers; processes are what is different here
    "test.test_multiprocessing_spawn.Test*",
    "test.test_multiprocessing_spawn.WithProcessesTest[BCFHLMS]*",
    "test.test_multiprocessing_spawn.WithProcessesTestPo*",
    "test.test_multiprocessing_*.test_many_processes",
    "test.test_multiprocessing_*.TestWait.*",
    "test.test_multiprocessing_*.TestResourceTracker.*",
    "test.test_multiprocessing_*Barrier.test_thousand",
    "test.test_multiprocessing_*Finalize.test_thread_safety",
    "test.test_*.*_timeout",
    "test.test_socket.*Timeout*",
]


def bare_environment(home):
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "USER": "nobody",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
    }


class Twice(CallerCase):
    """Runs one command outside, as the caller's user, and inside."""

    AS_USER = True

    def outside(self, *command, cwd=None, timeout=600):
        place = cwd or self.directory()
        return subprocess.run(
            ["prlimit", "--nofile=1024:", *self.as_caller(*command)],  # as inside
            cwd=place,
            env=bare_environment(place),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    def inside(self, *command, flags=(), timeout=600):
        """The finished process and the result document."""
        path = self.directory() / "result.json"
        done = self.caisson("run", "--result", path, *flags, "--", *command, timeout=timeout)
        self.assertTrue(path.exists(), done.stderr.decode(errors="replace"))
        return done, self.read_result(path.read_text())

    def programs(self):
        """A copy of the programs that the caller can read wherever the repository is."""
        return self.directory({path.name: path.read_bytes() for path in PROGRAMS.iterdir() if path.is_file()})

    def assert_same_output(self, outside, inside):
        self.assertEqual(outside.returncode, 0, outside.stderr.decode(errors="replace")[-3000:])
        self.assertEqual(inside.returncode, 0, inside.stderr.decode(errors="replace")[-3000:])
        self.assertEqual(outside.stdout.decode().splitlines(), inside.stdout.decode().splitlines())


def read_outcomes(text, where):
    outcomes = {}
    for line in text.decode().splitlines():
        test, outcome, detail, _ = json.loads(line)
        outcomes[test] = (outcome, detail)
    if outcomes.pop("", None) is None:
        raise AssertionError(f"the tests did not come to an end {where}")
    return outcomes


def outcome_of(outcomes, test):
    """A test whose class or module was skipped or failed as a whole has that outcome."""
    if test in outcomes:
        return outcomes[test]
    class_name = test.rpartition(".")[0]
    for holder in (f"setUpClass ({class_name})", f"setUpModule ({class_name.rpartition('.')[0]})"):
        if holder in outcomes:
            return outcomes[holder]
    return ("absent", "")


def covered(entry, test):
    return any(fnmatch.fnmatchcase(test, pattern) for pattern in entry.tests)


def explained(test, detail):
    return any(covered(entry, test) and re.search(entry.says, detail) for entry in DIFFERENCES)


def different(outside, inside):
    tests = {test for test in outside.keys() | inside.keys() if "(" not in test}
    return {
        test: (outcome_of(outside, test), outcome_of(inside, test))
        for test in sorted(tests)
        if outcome_of(outside, test)[0] != outcome_of(inside, test)[0]
    }


class CPython(Long, Twice):
    """CPython's own tests of the modules that ask most of a kernel."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        found = subprocess.run([PYTHON, "-c", "import test.test_os"], capture_output=True, check=False) if os.path.exists(PYTHON) else None
        if found is None or found.returncode != 0:
            skip("cpython_tests", "the package libpython3.11-testsuite is not installed")

    def both(self, modules, options=(), profile=PROFILE):
        programs, rules = self.programs(), self.directory({"profile.yaml": profile}) / "profile.yaml"
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            outside = pool.submit(self.outside, PYTHON, programs / "outcomes.py", *options, *modules, timeout=900)
            inside = pool.submit(
                self.inside, PYTHON, "outcomes.py", *options, *modules,
                flags=("--profile", rules, "--workspace", programs), timeout=900,
            )  # fmt: skip
            done, (run, result) = outside.result(), inside.result()
        self.assertEqual(result["terminal_event"], "completed", self.story(result) + run.stderr.decode(errors="replace")[-3000:])
        return read_outcomes(done.stdout, "outside"), read_outcomes(run.stdout, "inside")

    def test_every_difference_is_explained(self):
        groups = GROUPS + MORE_GROUPS if ALL else GROUPS
        options = [word for pattern in ([] if ALL else SLOW) for word in ("-x", pattern)]
        outside, inside = {}, {}
        with concurrent.futures.ThreadPoolExecutor(len(GROUPS)) as pool:
            for out, into in pool.map(lambda modules: self.both(modules, options), groups):
                outside |= out
                inside |= into
        self.assertGreater(len(outside), 1500)
        self.assertGreater(sum(outcome == "ok" for outcome, _ in inside.values()), 1200)
        unexplained = {test: pair for test, pair in different(outside, inside).items() if not explained(test, pair[1][1])}
        # These tests wait fixed times, and the machine may be busy. What differs by chance does not differ each time.
        for _ in range(2):
            if unexplained:
                print(f"again: {sorted(unexplained)}", file=sys.stderr, flush=True)
                chosen = [word for test in unexplained for word in ("-m", test)]
                again = different(*self.both(sorted({self.module(test) for test in unexplained}), chosen))
                unexplained = {test: again[test] for test in unexplained if test in again}
        self.assertEqual(unexplained, {}, "neither the same nor in differences.py: test, outside, inside")
        with self.subTest("no entry is stale"):
            for entry in (entry for entry in DIFFERENCES if ALL or not entry.long_run):
                outcomes = [inside[test][0] for test in inside if covered(entry, test)]
                self.assertTrue(set(outcomes) - {"ok"}, f"{entry.name}: covers {len(outcomes)} tests, all of which pass inside")
        print(f"{len(inside)} tests, {len(different(outside, inside))} differ as explained", file=sys.stderr)

    @staticmethod
    def module(test):
        words = test.split(".")
        return ".".join(words[1 : 3 if words[1] == "test_asyncio" else 2])

    def test_the_profile_lines_of_an_entry_help(self):
        for entry in DIFFERENCES:
            if entry.profile:
                with self.subTest(entry.name):
                    options = [word for pattern in entry.tests for word in ("-m", pattern)]
                    modules = sorted({self.module(pattern) for pattern in entry.tests})
                    outside, inside = self.both(modules, options, f"{PROFILE}{entry.profile}\n")
                    self.assertTrue(inside)
                    self.assertEqual(different(outside, inside), {})


class Builds(Long, Twice):
    def test_googletest_from_its_debian_sources(self):
        """Configured, built in place and tested: the compiler makes the same bytes, and the tests the same report."""
        need_tool("gcc", "g++", "make", "cmake")
        if not os.path.exists("/usr/src/googletest/googletest/test"):
            skip("gcc", "the package googletest (of libgtest-dev) is not installed")
        script = (PROGRAMS / "googletest.sh").read_text()
        trees = []
        for _ in range(2):
            tree = self.directory() / "source"
            shutil.copytree("/usr/src/googletest", tree)
            for path in (tree, *tree.rglob("*")):
                self.give(path)
            trees.append(tree)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            outside = pool.submit(self.outside, "sh", "-c", script, cwd=trees[0])
            done, result = self.inside("sh", "-c", script, flags=("--timeout", "600s", "--workspace", f"{trees[1]}:cow"))
        self.assert_same_output(outside.result(), done)
        self.assert_passes(result)
        self.assertIn(b"DeathTest", done.stdout)
        self.assertEqual(subprocess.run(["diff", "-r", "/usr/src/googletest", trees[1]], capture_output=True, check=False).stdout, b"")


@both_callers
class Git:
    def test_the_same_objects(self):
        need_tool("git", "git")
        script = (PROGRAMS / "git.sh").read_text()
        outside = Twice.outside(self, "sh", "-c", script)
        done, result = Twice.inside(self, "sh", "-c", script, flags=("-w", "/scratch"))
        Twice.assert_same_output(self, outside, done)
        self.assert_passes(result)
        self.assertGreater(len(done.stdout.splitlines()), 100)


class Node(Twice):
    def test_its_test_runner(self):
        if not os.path.exists("/usr/bin/node"):
            skip("node", "/usr/bin/node is not installed")
        version = subprocess.run(["/usr/bin/node", "--version"], capture_output=True, text=True, check=True).stdout
        if int(re.match(r"v(\d+)", version)[1]) < 20:
            skip("node", f"node {version.strip()} cannot report as TAP; 20 can")
        command = ("node", "--test", "--test-reporter", "tap", "sample.test.mjs")
        outside = self.outside(*command, cwd=self.programs())
        done, result = self.inside(*command, flags=("--workspace", self.programs()))
        self.assert_passes(result)

        def report(output):
            return re.findall(r"^ *((?:not )?ok \d+ .*|# (?!duration).*)$", output.decode(), re.M)

        self.assertEqual(report(outside.stdout), report(done.stdout))
        self.assertEqual(sum(line.startswith("ok") for line in report(done.stdout)), 9, done.stdout.decode())


class Stress(Long, Twice):
    """stress-ng asks for more than there is. A limit answers, the verdict says which, and nothing is left on the host."""

    LIMITS = ("--timeout", "15s", "--memory", "256M", "--pids-limit", "64", "--scratch", "64M", "-w", "/scratch")
    # stressor -> the verdicts that are right: a class, or None for success
    STRESSORS = {
        "--vforkmany 1": {None, "ProcessLimitViolation"},
        "--sem 1 --sem-sysv 1": {None},
        "--pipe 1": {None},
        "--vm 2 --vm-bytes 2G --vm-populate": {"MemoryLimitViolation"},
        "--hdd 1 --hdd-bytes 1G": {"FilesystemWriteViolation"},
        "--shm 1": {"FilesystemWriteViolation", "MemoryLimitViolation"},
        # These two try every forbidden thing they know after each fork.
        "--fork 2": {"SyscallViolation"},
        "--pthread 1": {"SyscallViolation", "ProcessLimitViolation"},
        # Slow by itself where it may not end in time: its files are many and it removes them one by one.
        "--dentry 1 --dentries 2000": {None, "FilesystemWriteViolation", "TimeoutViolation"},
    }

    def test_limits_answer(self):
        need_tool("stress-ng", "stress-ng")
        for stressor, verdicts in self.STRESSORS.items():
            with self.subTest(stressor=stressor):
                before = Leftovers(self.binary)
                shared = {path: pathlib.Path(path).read_text() for path in ("/proc/sysvipc/sem", "/proc/sysvipc/shm", "/proc/sysvipc/msg")}
                done, result = self.inside("stress-ng", *stressor.split(), "--timeout", "2", "--oomable", flags=self.LIMITS, timeout=60)
                self.assertIn(result["failure_class"], verdicts, self.story(result) + done.stderr.decode(errors="replace")[-1500:])
                before.assert_none()
                for path, text in shared.items():
                    self.assertEqual(len(pathlib.Path(path).read_text().splitlines()), len(text.splitlines()), path)


class Notices(Twice):
    """What docs/user/compatibility.md says that a program may notice is so."""

    PREFACE = (
        "import ctypes, errno, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(*words): return '' if libc.syscall(*words) >= 0 else errno.errorcode[ctypes.get_errno()]\n"
    )

    def test_each_is_true(self):
        rules = self.directory({"profile.yaml": PROFILE}) / "profile.yaml"
        for notice in NOTICES:
            with self.subTest(notice.sees):
                program = f"{self.PREFACE}raise SystemExit(0 if {notice.probe} else 'it is not so')\n"
                done, _ = self.inside("python3", "-c", program, flags=("--profile", rules))
                self.assertEqual(done.returncode, 0, done.stderr.decode())

    def test_fatal_calls(self):
        for name, number in FATAL.items():
            with self.subTest(name):
                done, result = self.inside("python3", "-c", f"{self.PREFACE}call({number}, 0, 0, 0)")
                self.assertEqual((done.returncode, result["failure_class"]), (159, "SyscallViolation"))


class Document(unittest.TestCase):
    """The tables of docs/user/compatibility.md are what differences.py says."""

    def assert_table(self, mark, rows):
        table = re.search(rf"<!-- {mark} -->\n(.*?)<!-- /{mark} -->", DOCUMENT.read_text(), re.S)[1]
        self.assertEqual(table.splitlines(), [re.sub(r" +", " ", f"| {' | '.join(row)} |") for row in rows])

    def test_differences(self):
        rows = [(entry.name, entry.reason, f"`{entry.profile}`" if entry.profile else "") for entry in DIFFERENCES]
        self.assert_table("differences", [("what", "why", "profile line that changes it"), ("---",) * 3, *rows])

    def test_notices(self):
        rows = [(notice.sees, notice.because, notice.instead) for notice in NOTICES]
        rows.append((f"its end (exit 159) at {', '.join(f'`{name}`' for name in FATAL)}", "nothing ordinary calls them", ""))
        self.assert_table("notices", [("a program sees", "because", "so"), ("---",) * 3, *rows])


if __name__ == "__main__":
    unittest.main()

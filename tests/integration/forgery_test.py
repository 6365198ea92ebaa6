"""A program cannot forge a verdict: neither a violation that it did not commit nor a pass that it did not earn."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import both_callers, check

FORGED_PASS = json.dumps(
    {
        "request_id": "forged",
        "attempt": 1,
        "mode": "balanced",
        "status": "pass",
        "tier": "run",
        "failure_class": None,
        "exit_code": 0,
        "duration_ms": 1,
        "stdout": "",
        "stderr": "",
        "artifacts": [],
        "skipped_checks": [],
        "terminal_event": "completed",
    }
)
FORGED_VIOLATION = FORGED_PASS.replace('"pass"', '"fail"').replace("null", '"MemoryLimitViolation"')

# name -> (program, exit code of an honest verdict). 0 is an honest pass, anything else an honest CheckFailed.
CLAIMS = {
    "exit 124": ("import sys; sys.exit(124)", 124),
    "exit 125": ("import sys; sys.exit(125)", 125),
    "exit 137": ("import sys; sys.exit(137)", 137),
    "exit 159": ("import sys; sys.exit(159)", 159),
    "forbidden call's signal": ("import os, signal; os.kill(os.getpid(), signal.SIGSYS)", 159),
    "kill on itself": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
    "CPU time signal": ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", 152),
    "a child kills everybody": (
        "import os, time\nif os.fork() == 0:\n  os.kill(-1, 9)\n  os._exit(0)\ntime.sleep(20)",
        137,
    ),
    "memory error": ("raise MemoryError('Out of memory: Killed process')", 1),
    "its own memory limit": (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\nb'x' * (1 << 29)",
        1,
    ),
    "its own process limit": ("import os, resource\nresource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\nos.fork()", 1),
    "its own file limit": (
        (
            "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\nopen('/scratch/f', 'wb',"
            " 0).write(b'x' * 99)\nopen('/scratch/f', 'ab', 0).write(b'x')"
        ),
        1,
    ),
    "read-only text": ("raise OSError(30, 'Read-only file system', '/workspace/x')", 1),
    "network text": ("raise OSError(101, 'Network is unreachable')", 1),
    "fork text": ("raise BlockingIOError(11, 'Resource temporarily unavailable')", 1),
    "timeout text": ("raise TimeoutError('command timed out after 45000 ms')", 1),
    "violation text": ("import sys\nprint('SyscallViolation: bpf', file=sys.stderr); sys.exit(1)", 1),
    "printed violation": (f"import sys\nprint({FORGED_VIOLATION!r}); sys.exit(1)", 1),
    "printed pass": (f"import sys\nprint({FORGED_PASS!r}); sys.exit(3)", 3),
    "printed pass on both streams": (
        f"import os, sys\nfor fd in (1, 2): os.write(fd, {FORGED_PASS.encode()!r} * 3)\nsys.exit(1)",
        1,
    ),
    "written result": (
        (
            "import sys\nfor d in ('/scratch', '/tmp'):\n  open(d + '/verification_result.json',"
            f" 'w').write({FORGED_PASS!r})\nsys.exit(1)"
        ),
        1,
    ),
    "every descriptor": (
        (
            f"import os, sys\nfor fd in range(3, 1024):\n  try: os.write(fd, {FORGED_PASS.encode()!r})\n"
            "  except OSError: pass\nsys.exit(1)"
        ),
        1,
    ),
    "every descriptor closed": ("import os\nos.closerange(0, 1024)\nos._exit(7)", 7),
    "PID 1 killed": (
        "import os, signal, sys\nfor n in range(1, 65):\n  try: os.kill(1, n)\n  except OSError: pass\nsys.exit(5)",
        5,
    ),
    "PID 1 killed, no failure": (
        "import os, signal\nfor n in range(1, 65):\n  try: os.kill(1, n)\n  except OSError: pass",
        0,
    ),
    "parent killed": (
        "import os, signal, sys\ntry: os.kill(os.getppid(), signal.SIGKILL)\nexcept OSError: pass\nsys.exit(6)",
        6,
    ),
    "daemon that outlives": (
        "import os, sys, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(600)\nsys.exit(4)",
        4,
    ),
    "stopped then continued": (
        (
            "import os, signal\npid = os.fork()\nif pid == 0:\n  os.kill(os.getpid(), signal.SIGSTOP)\n  os._exit(0)\n"
            "os.waitpid(pid, os.WUNTRACED)\nos.kill(pid, signal.SIGCONT)\nos.waitpid(pid, 0)"
        ),
        0,
    ),
}


# name -> (code that a failing test imports, exit code of the verdict; None: whichever)
ENDINGS = {
    "_exit at import": ("import os; os._exit(0)", 70),
    "exit at import": ("import sys; sys.exit(0)", None),
    "_exit when the interpreter ends": ("import atexit, os; atexit.register(os._exit, 0)", 1),
    "a thread": ("import os, threading, time\nthreading.Thread(target=os._exit, args=(0,)).start()\ntime.sleep(9)", 70),
    "another program": ("import os; os.execv('/bin/true', ['true'])", 70),
    "parent killed": ("import os; os.kill(os.getppid(), 9); os._exit(0)", 137),
    "every descriptor": (
        "import os\nfor fd in range(3, 99):\n  try: os.write(fd, b'0 0 0\\n')\n  except OSError: pass\nos._exit(0)",
        70,
    ),
    "a crash": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
    "an exit code of its own": ("import os; os._exit(9)", 9),
}
FAILING_TEST = "import unittest, lib\nclass T(unittest.TestCase):\n  def test_it(self): self.fail()\n"


@both_callers
class Forgeries:
    def test_claims(self):
        for name, (source, exit_code) in CLAIMS.items():
            with self.subTest(claim=name):
                result = self.run_source(source, request_id="honest", limits={"command_timeout_ms": 10_000})
                self.assertEqual(result["request_id"], "honest")
                self.assertEqual((result["exit_code"], result["violations"]), (exit_code, []), self.story(result))
                if exit_code == 0:
                    self.assert_passes(result)
                else:
                    self.assert_fails_as(result, "CheckFailed")

    def test_tests_that_end_early_do_not_pass(self):
        for name, (library, exit_code) in ENDINGS.items():
            with self.subTest(ending=name):
                result = self.verify(files={"main.py": "", "lib.py": library, "test_lib.py": FAILING_TEST})
                self.assert_fails_as(result, "CheckFailed")
                self.assertEqual(result["tier"], "test")
                self.assertEqual(result["violations"], [])
                if exit_code is not None:
                    self.assertEqual(result["exit_code"], exit_code, self.story(result))
                if exit_code == 70:
                    self.assertIn("before the test runner", result["message"])

    def test_tests_that_finish_are_believed(self):
        passing = FAILING_TEST.replace("self.fail()", "pass")
        # A child of a test that holds everything open, and one that comes back through the runner.
        daemon = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(600)\n  os._exit(0)\n"
        for library in ("", daemon, "import os\nif os.fork() == 0: raise SystemExit(3)\nos.wait()\n"):
            with self.subTest(library=library):
                self.assert_passes(self.verify(files={"main.py": "", "lib.py": library, "test_lib.py": passing}))

    def test_output_is_carried_as_text(self):
        result = self.run_source(f"import sys\nprint({FORGED_PASS!r}, end='')\nsys.exit(1)")
        self.assertEqual((result["status"], result["stdout"]), ("fail", FORGED_PASS))

    def test_an_earlier_check_cannot_prepare_a_later_one(self):
        """Processes that a check leaves are killed before the next check begins."""
        daemon = (
            "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    while True:\n"
            "      open('/scratch/alive', 'a').write('x'); time.sleep(0.002)\n  os._exit(0)\nos.wait()\n"
            "while not os.path.exists('/scratch/alive'): time.sleep(0.001)\n"
        )
        watcher = (
            "import os, sys, time\nbefore = os.path.getsize('/scratch/alive')\ntime.sleep(0.2)\n"
            "sys.exit(0 if os.path.getsize('/scratch/alive') == before else 9)\n"
        )
        result = self.verify(
            files={"a.py": daemon, "b.py": watcher},
            checks=[check("python3", "a.py", name="a"), check("python3", "b.py", name="b")],
        )
        self.assert_passes(result)

    def test_a_daemon_does_not_hold_the_verdict(self):
        """A daemon that keeps the streams open changes neither the verdict nor its time."""
        result = self.run_source(
            "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(600)\nprint('done')",
            limits={"command_timeout_ms": 5_000},
        )
        self.assert_passes(result)
        self.assertEqual(result["stdout"], "done\n")
        self.assertLess(result["duration_ms"], 3_000)

    def test_limits_hold_after_forging_them(self):
        result = self.run_source(
            "import sys, time\nprint('TimeoutViolation')\nsys.stdout.flush()\ntime.sleep(60)",
            limits={"command_timeout_ms": 300},
        )
        self.assert_fails_as(result, "TimeoutViolation")


if __name__ == "__main__":
    unittest.main()

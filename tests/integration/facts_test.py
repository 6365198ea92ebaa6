"""The facts in a result: every kind of violation is there, usage belongs to its own check, and limits on CPU time and
stack decide as they say. Knows nothing of how the sandbox was started."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import REPOSITORY, Running, both_callers, check

BASE = "version: 1\nname: mine\nextends: balanced\n"
MIB = 1 << 20
NEEDED = json.loads((REPOSITORY / "schemas/profile.schema.json").read_text())["properties"]["seccomp"]["properties"]["deny"][
    "items"
]["not"]["enum"]

FLOOD = """
import ctypes, socket
for i in range({writes}):
    try: open(f'/usr/lib/planted-{{i}}', 'w')
    except OSError: pass
try: socket.create_connection(('192.0.2.1', 80), 1)
except OSError: pass
ctypes.CDLL(None).ptrace(0, 0, 0, 0)
"""
BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"


def tiny_program(number=231):
    """A program without a loader or library, whose only call is exit_group(0)."""
    code = b"\xb8" + number.to_bytes(4, "little") + b"\x31\xff\x0f\x05"
    size, base = 120 + len(code), 0x400000
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + b"".join(
        value.to_bytes(width, "little")
        for value, width in ((2, 2), (62, 2), (1, 4), (base + 120, 8), (64, 8), (0, 8), (0, 4), (64, 2), (56, 2), (1, 2),
                             (0, 2), (0, 2), (0, 2))
    )  # fmt: skip
    segment = b"".join(
        value.to_bytes(width, "little")
        for value, width in ((1, 4), (5, 4), (0, 8), (base, 8), (base, 8), (size, 8), (size, 8), (4096, 8))
    )
    return header + segment + code


class Profiles:
    def profile(self, lines):
        return self.directory({"mine.yaml": BASE + lines}) / "mine.yaml"

    def under(self, lines, source, **options):
        return self.run_source(source, flags=("--profile", self.profile(lines)), **options)

    @staticmethod
    def counts(result):
        total = {}
        for violation in result["violations"]:
            total[violation["class"]] = total.get(violation["class"], 0) + violation["count"]
        return total


@both_callers
class Violations(Profiles):
    def test_many_of_one_kind_hide_no_other(self):
        for writes in (64, 500):
            with self.subTest(writes=writes):
                result = self.under("on_violation: report\n", FLOOD.format(writes=writes))
                self.assertEqual(result["status"], "pass", self.story(result))
                counts = self.counts(result)
                self.assertEqual(counts["FilesystemWriteViolation"], writes)
                self.assertEqual(counts["NetworkAccessViolation"], 1)
                self.assertEqual(counts["SyscallViolation"], 1)
                self.assertLess(len(result["violations"]), 64)

    def test_events_are_bounded_and_show_every_class(self):
        events = self.directory({}) / "events"
        result = self.run_source(
            FLOOD.format(writes=300),
            flags=("--profile", self.profile("on_violation: report\n"), "--events", events),
        )
        told = [json.loads(line) for line in events.read_text().splitlines()]
        told = [event["violation"] for event in told if event["type"] == "violation"]
        self.assertEqual({one["class"] for one in told}, {one["class"] for one in result["violations"]})
        self.assertEqual(len(told), len(result["violations"]))
        self.assertLess(len(told), 64)

    def test_what_ended_the_check_is_listed(self):
        # One of the same kind as many before it, which were refused and did not end anything.
        source = (
            "import ctypes\nlibc = ctypes.CDLL(None)\n"
            "for i in range(200): libc.syscall(298, 0, 0, 0, 0, 0)\n"  # perf_event_open: syscall.kernel, denied
            "libc.syscall(321, 0, 0, 0)\n"  # bpf: syscall.kernel, killed
        )
        result = self.under("on_violation: report\n", source)
        self.assert_fails_as(result, "SyscallViolation")
        self.assertEqual(result["violations"][-1]["evidence"]["syscall"], "bpf", self.story(result))
        self.assertEqual(result["violations"][-1]["evidence"]["answer"], "killed")
        self.assertEqual(self.counts(result)["SyscallViolation"], 201)
        late = FLOOD.format(writes=200) + "while True: pass\n"
        result = self.under("on_violation: report\nlimits: {command_timeout_ms: 2s}\n", late)
        self.assert_fails_as(result, "TimeoutViolation")
        self.assertEqual(result["violations"][-1]["reason"], "command_timeout_ms")

    def test_a_plain_failure_is_a_failed_check(self):
        source = "try: open('/usr/lib/planted', 'w')\nexcept OSError: pass\nraise SystemExit(3)\n"
        reported = self.under("on_violation: report\n", source)
        self.assert_fails_as(reported, "CheckFailed")
        self.assertEqual(reported["terminal_event"], "check_failed")
        self.assertEqual(self.counts(reported), {"FilesystemWriteViolation": 1})
        self.assert_fails_as(self.run_source(source), "FilesystemWriteViolation")


@both_callers
class Usage(Profiles):
    def checks(self, *sources):
        files = {f"{i}.py": source for i, source in enumerate(sources)}
        listed = [check("python3", f"{i}.py", name=f"c{i}") for i in range(len(sources))]
        result = self.verify(files=files, checks=listed)
        self.assertEqual(result["status"], "pass", self.story(result))
        return result["usage"], [one["usage"] for one in result["checks"]]

    def test_peaks_belong_to_their_check(self):
        big = "import time\nx = bytearray(300 << 20)\nx[::4096] = x[::4096]\ntime.sleep(.2)\n"
        many = "import os, time\nfor _ in range(30):\n    if os.fork() == 0: time.sleep(.5); os._exit(0)\nfor _ in range(30): os.wait()\n"
        whole, (first, second, third, last) = self.checks(big, "pass", many, "pass")
        self.assertGreater(first["peak_memory_bytes"], 250 * MIB)
        # Absent where the kernel does not know it, and never the first one's.
        self.assertLess(second.get("peak_memory_bytes", 0), 150 * MIB)
        self.assertGreaterEqual(third["processes_peak"], 25)
        for small in (first, second, last):
            self.assertLess(small.get("processes_peak", 0), 10)
        self.assertGreater(whole["peak_memory_bytes"], 250 * MIB)
        self.assertGreaterEqual(whole["processes_peak"], 25)

    def test_cpu_time_belongs_to_its_check(self):
        whole, (first, second) = self.checks(BURN.format(seconds=1), "pass")
        self.assertGreaterEqual(first["cpu_ms"], 900)
        self.assertLess(second["cpu_ms"], 600)
        self.assertEqual(whole["cpu_ms"], first["cpu_ms"] + second["cpu_ms"])


@both_callers
class CpuTime(Profiles):
    def assert_out_of_cpu_time(self, result, limit):
        self.assert_fails_as(result, "TimeoutViolation")
        (found,) = [one for one in result["violations"] if one["class"] == "TimeoutViolation"]
        self.assertEqual((found["reason"], found["limit"]), ("cpu_time_ms", limit))
        self.assertGreaterEqual(found["evidence"]["cpu_ms"], limit)

    def test_a_request_may_set_it(self):
        self.assert_out_of_cpu_time(self.run_source("while True: pass", limits={"cpu_time_ms": 500}), 500)
        self.assert_passes(self.run_source("import time\ntime.sleep(1.5)", limits={"cpu_time_ms": 1000}))

    def test_children_count(self):
        source = "import os\nfor _ in range(2):\n    if os.fork() == 0:\n        while True: pass\nos.wait()\n"
        self.assert_out_of_cpu_time(self.run_source(source, limits={"cpu_time_ms": 600}), 600)

    def test_children_that_nobody_waits_for_count(self):
        source = (
            "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
            "while True:\n    if os.fork() == 0:\n        end = time.process_time() + .1\n"
            "        while time.process_time() < end: pass\n        os._exit(0)\n    time.sleep(.1)\n"
        )
        self.assert_out_of_cpu_time(self.run_source(source, limits={"cpu_time_ms": 1000}), 1000)

    def test_each_check_has_its_own(self):
        burn = check("python3", "main.py")
        result = self.verify(
            BURN.format(seconds=0.7), checks=[burn | {"name": name} for name in ("a", "b", "c")], limits={"cpu_time_ms": 1500}
        )
        self.assert_passes(result)

    def test_a_program_that_ends_by_itself_is_judged_too(self):
        result = self.run_source(BURN.format(seconds=0.3), limits={"cpu_time_ms": 100})
        self.assert_out_of_cpu_time(result, 100)

    def test_only_tightened(self):
        lines = "limits: {cpu_time_ms: 1s}\n"
        self.assert_out_of_cpu_time(self.under(lines, "while True: pass"), 1000)
        wider = self.under(lines, "pass", limits={"cpu_time_ms": 2000})
        self.assertEqual(wider["status"], "rejected", self.story(wider))
        self.assertIn("cpu_time_ms", wider["message"])


@both_callers
class Stack(Profiles, Running):
    LIMITS = "import resource\nprint(*resource.getrlimit(resource.RLIMIT_STACK))\n"

    def test_default_and_request(self):
        self.assertEqual(self.run_source(self.LIMITS)["stdout"], f"{8 * MIB} {8 * MIB}\n")
        self.assertEqual(self.run_source(self.LIMITS, limits={"stack_bytes": 2 * MIB})["stdout"], f"{2 * MIB} {2 * MIB}\n")
        wider = self.run_source("pass", limits={"stack_bytes": 9 * MIB})
        self.assertEqual(wider["status"], "rejected", self.story(wider))

    def test_cannot_be_raised_from_inside(self):
        source = "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (64 << 20, 64 << 20))\n"
        self.assert_fails_as(self.run_source(source), "CheckFailed")

    def test_smallest(self):
        done = self.caisson("run", "--stack", "64K", "--", "/bin/true")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_depth_follows_it(self):
        # In the main thread, where the stack grows by itself: C calls Python, which calls C.
        source = (
            "import ctypes, sys\n"
            "compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)\n"
            "sys.setrecursionlimit(1 << 30)\n"
            "libc = ctypes.CDLL(None)\n"
            "depth = 0\n"
            "def down(a, b):\n"
            "    global depth\n"
            "    depth += 1\n"
            "    if depth < int(sys.argv[1]): libc.qsort(two, 2, 4, callback)\n"
            "    return 0\n"
            "two = (ctypes.c_int * 2)()\n"
            "callback = compare(down)\n"
            "libc.qsort(two, 2, 4, callback)\n"
            "print('reached')\n"
        )
        run = lambda depth, size: self.verify(  # noqa: E731
            source, checks=[check("python3", "main.py", str(depth))], flags=("--stack", size)
        )
        shallow = run(50, "1M")
        self.assertEqual(shallow["stdout"], "reached\n", self.story(shallow))
        deep = run(4000, "1M")
        self.assert_fails_as(deep, "CheckFailed")
        self.assertEqual(deep["checks"][0]["signal"], 11, self.story(deep))
        roomy = run(4000, "256M")
        self.assertEqual(roomy["stdout"], "reached\n", self.story(roomy))


@both_callers
class Denied(Profiles):
    def test_what_the_first_process_needs_cannot_be_denied(self):
        for name in NEEDED:
            with self.subTest(name):
                profile = self.profile(f"seccomp: {{deny: [{name}]}}\n")
                checked = self.caisson("policy", "check", profile)
                self.assertEqual(checked.returncode, 1)
                self.assertIn(f'"{name}" cannot be denied', (checked.stdout + checked.stderr).decode())
                # Nor does it get as far as a sandbox.
                done = self.caisson("run", "--profile", profile, "--", "/bin/echo", "ran")
                self.assertEqual((done.returncode, done.stdout), (125, b""))
                self.assertIn(f'"{name}" cannot be denied', done.stderr.decode())

    def test_everything_else_can(self):
        names = []
        for line in pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read_text().splitlines():
            words = line.split()
            if len(words) == 3 and words[1].startswith("__NR_") and words[1][5:] not in NEEDED:
                names.append(words[1][5:])
        profile = self.profile("seccomp: {deny: [" + ", ".join(names) + "]}\n")
        source = self.directory({"tiny": tiny_program()})
        (source / "tiny").chmod(0o755)
        checks = [check("/workspace/tiny", name=name) for name in ("a", "b")]
        self.assert_passes(self.verify(path=source, checks=checks, flags=("--profile", profile)))
        # The control: a program that makes more calls is refused them, and it is said.
        result = self.verify("pass", checks=[check("/bin/true")], flags=("--profile", profile))
        self.assertEqual(result["violations"][0]["reason"], "syscall.profile", self.story(result))

    def test_an_interpreter_makes_no_call_before_the_program(self):
        # In every start the program's own call is the only one recorded.
        lines = "on_violation: report\nseccomp: {deny: [getppid]}\n"
        result = self.under(lines, "import os\nprint('before')\nos.getppid()\n")
        self.assertEqual(self.counts(result), {"SyscallViolation": 1}, self.story(result))


if __name__ == "__main__":
    unittest.main()

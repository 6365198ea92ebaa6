"""The runtime microvm from outside: its verdicts, its report, its mounts, and what is left when its owner is killed.

Every test boots a machine, which takes seconds where the processor is emulated. CAISSON_MICROVM_ALL=1 runs the gates, the
forgeries and the conformance suite there too.
"""

import os
import pathlib
import secrets
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import microvm
from caisson import CallerCase, Leftovers, check, end, skip, wait_until

FLAGS = ("--runtime", "microvm")
BOOT_SECONDS = 150
LIMITS = {"command_timeout_ms": 40_000, "memory_bytes": 192 << 20, "processes": 64, "output_bytes": 1 << 20, "cpu": 1}


def machines(of):
    """The machines that descend from process `of`: their QEMU processes."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path("/proc", entry, "stat").read_text()
            parents[int(entry)] = (int(stat.rsplit(")", 1)[1].split()[1]), os.readlink(f"/proc/{entry}/exe"))
        except OSError:
            continue
    found = []
    for pid, (_, program) in parents.items():
        at = pid
        while at in parents and at != of:
            at = parents[at][0]
        if at == of and "qemu-system" in program:
            found.append(pid)
    return found


class Microvm(CallerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        microvm.prepare_or_skip(skip)

    def attack(self, source, **limits):
        return self.verify(
            files={"main.py": source}, checks=[check("python3", "-S", "main.py")], limits=LIMITS | limits, flags=FLAGS, timeout=300
        )

    def violation(self, result, failure_class):
        self.assert_fails_as(result, failure_class)
        return [v for v in result["violations"] if v["class"] == failure_class][0]

    def test_the_report(self):
        source = """
import os, socket
print(open('/proc/version').read())
for attempt in (lambda: socket.create_connection(('192.0.2.1', 80), timeout=5), lambda: open('/usr/planted', 'w')):
    try: attempt()
    except OSError as error: print(error)
"""
        result = self.attack(source)
        seen = {violation["class"]: violation["evidence"]["source"] for violation in result["violations"]}
        self.assertEqual(seen, {"NetworkAccessViolation": "inside", "FilesystemWriteViolation": "inside"}, self.story(result))
        self.assertNotIn(os.uname().release, result["stdout"])
        isolation = result["isolation"]
        self.assertEqual((isolation["runtime"], isolation["cannot_observe"]), ("microvm", []))
        self.assertEqual(isolation["capabilities"], [])
        walls = {wall["wall"]: wall for wall in isolation["walls"]}
        self.assertEqual({name for name, wall in walls.items() if wall["state"] != "enforced"}, set(), isolation["walls"])
        emulated = any(line.startswith("accel:") for line in isolation["degraded"])
        self.assertEqual(emulated, "emulated" in walls["machine"]["evidence"])

    def test_valid_program_and_its_files(self):
        result = self.verify(
            files={"main.py": "import os\nos.makedirs('/scratch/out')\nopen('/scratch/out/made', 'w').write(open('data/in').read())\n"
                              "print('hello')\n", "data/in": "kept " * 20_000},
            checks=[check("python3", "main.py"), check("python3", "-c", "print(open('/scratch/out/made').read(4))", name="again")],
            flags=FLAGS, timeout=300, limits=LIMITS,
        )  # fmt: skip
        self.assert_passes(result)
        self.assertEqual([done["exit_code"] for done in result["checks"]], [0, 0])

    def test_memory(self):
        violation = self.violation(self.attack("x = b'x' * (1 << 30)\n"), "MemoryLimitViolation")
        self.assertEqual(violation["evidence"]["source"], "inside")

    def test_processes(self):
        source = "import os, time\nfor _ in range(300):\n    if os.fork() == 0: time.sleep(60)\n"
        self.violation(self.attack(source), "ProcessLimitViolation")

    def test_time(self):
        violation = self.violation(self.attack("while True: pass\n", command_timeout_ms=3000), "TimeoutViolation")
        self.assertEqual(violation["evidence"]["source"], "outside")

    def test_output(self):
        violation = self.violation(self.attack("while True: print('x' * 4000)\n"), "OutputLimitViolation")
        self.assertEqual(violation["evidence"]["source"], "outside")

    def test_system_call(self):
        source = "import ctypes\nctypes.CDLL(None).syscall(321, 0, 0, 0)\n"  # bpf
        self.violation(self.attack(source), "SyscallViolation")

    def test_trees_of_the_host(self):
        trees = {access: self.directory({"file": "old\n"}) for access in ("ro", "cow", "rw")}
        script = "cat file; echo new > file && cat file; true"
        mounts = [word for access, tree in trees.items() for word in ("-v", f"{tree}:/data/{access}:{access}")]
        done = self.caisson(
            "run", *FLAGS, *mounts, "--", "sh", "-c", f"for a in ro cow rw; do cd /data/$a; {script}; done", timeout=300
        )
        self.assertEqual(done.stdout.decode(), "old\nold\nnew\nold\nnew\n", done.stderr)
        kept = {access: (tree / "file").read_text() for access, tree in trees.items()}
        self.assertEqual(kept, {"ro": "old\n", "cow": "old\n", "rw": "new\n"})

    def test_input_and_exit_code(self):
        done = self.caisson("run", *FLAGS, "--", "sh", "-c", "cat; echo error >&2; exit 7", input=b"x" * 300_000, timeout=300)
        self.assertEqual((done.returncode, len(done.stdout)), (7, 300_000), done.stderr)
        self.assertIn(b"error", done.stderr)

    def test_an_ordinary_user_is_refused_before_anything_runs(self):
        self.__class__.AS_USER = True
        try:
            done = self.caisson("run", *FLAGS, "--", "true", cwd="/")
        finally:
            self.__class__.AS_USER = False
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"needs root", done.stderr)

    def test_a_lost_machine_is_never_a_pass(self):
        result_file = self.home / f"result-{secrets.token_hex(4)}.json"
        process = self.popen("run", *FLAGS, "--result", str(result_file), "--", "sh", "-c", "echo running; sleep 300", stdout=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(end, process)
        self.assertEqual(os.read(process.stdout.fileno(), 8), b"running\n")
        (machine,) = machines(process.pid)
        os.kill(machine, signal.SIGKILL)
        self.assertNotEqual(process.wait(timeout=60), 0)
        result = self.read_result(result_file.read_bytes())
        self.assertEqual(result["status"], "error", self.story(result))

    def test_killed_it_leaves_nothing(self):
        left = Leftovers(self.binary)
        for wait_for_workload in (False, True):
            with self.subTest(wait_for_workload=wait_for_workload):
                process = self.popen("run", *FLAGS, "--", "sh", "-c", "echo running; sleep 300", stdout=subprocess.PIPE)
                self.addCleanup(process.stdout.close)
                self.addCleanup(end, process)
                wait_until(lambda: bool(machines(process.pid)) or "no QEMU yet", BOOT_SECONDS, "the machine starts")
                if wait_for_workload:
                    self.assertEqual(os.read(process.stdout.fileno(), 8), b"running\n")
                found = machines(process.pid)
                process.send_signal(signal.SIGKILL)
                process.wait(timeout=10)
                wait_until(lambda: not [pid for pid in found if os.path.exists(f"/proc/{pid}")] or found, 15, "machines left")
                left.assert_none(15)


if __name__ == "__main__":
    unittest.main()

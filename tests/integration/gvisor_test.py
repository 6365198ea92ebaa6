"""The runtime gvisor from outside: its report, who holds the evidence, and what is left when its owner is killed."""

import json
import os
import pathlib
import secrets
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import CallerCase, end, processes, skip, wait_until

GROUPS = [path for path in pathlib.Path("/sys/fs/cgroup").glob("*") if path.is_dir()] + [pathlib.Path("/sys/fs/cgroup")]
STATE = pathlib.Path("/run/caisson-gvisor")
GVISOR = ("--runtime", "gvisor")


def own_groups():
    """The cgroups of containers; another slot's number may belong to somebody else."""
    return {str(path) for group in GROUPS for path in group.glob("caisson-*.oci")}


def sandboxes():
    """The processes of gVisor's whose state is ours."""
    return {pid for pid in processes(f"--root={STATE}")}


class Gvisor(CallerCase):
    def setUp(self):
        if not any(os.access(f"/usr/{place}/runsc", os.X_OK) for place in ("sbin", "bin", "local/sbin", "local/bin")):
            skip("gvisor", "runsc is not installed")

    def run_gvisor(self, *arguments, **options):
        return self.caisson("run", *GVISOR, *arguments, **options)

    def verify_gvisor(self, source, **options):
        return self.verify(source, flags=GVISOR, **options)

    def only(self, result, name):
        violations = [v for v in result["violations"] if v["class"] == name]
        self.assertTrue(violations, result)
        return violations[0]

    def test_the_report_says_what_stands_and_who_saw(self):
        result = self.verify_gvisor("open('/usr/planted', 'w')\n")
        self.assert_fails_as(result, "FilesystemWriteViolation")
        evidence = self.only(result, "FilesystemWriteViolation")["evidence"]
        self.assertEqual((evidence["source"], evidence["path"]), ("outside", "/usr/planted"))
        self.assertIn(evidence["answer"], ("EACCES", "EROFS"))
        isolation = result["isolation"]
        self.assertEqual((isolation["runtime"], isolation["cannot_observe"]), ("gvisor", []))
        self.assertEqual(isolation["capabilities"], [])
        walls = {wall["wall"]: wall["state"] for wall in isolation["walls"]}
        for wall in ("kernel", "namespaces.user", "namespaces.network", "seccomp", "no_new_privileges", "limits.memory_bytes"):
            self.assertEqual(walls[wall], "enforced", wall)
        self.assertEqual(walls["landlock"], "not_applicable")
        self.assertNotEqual(isolation["host_uid"], 0)

    def test_the_kernel_is_another(self):
        done = self.run_gvisor("--", "sh", "-c", "cat /proc/version; id -u; id -G; grep Cap /proc/self/status")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(os.uname().release, done.stdout.decode())
        version, user, groups, *capabilities = done.stdout.decode().splitlines()
        self.assertEqual((user, groups), ("1000", "1000"))
        for line in capabilities:
            self.assertEqual(int(line.split()[1], 16), 0, line)

    def test_calls_without_a_path_are_seen(self):
        for source, call in (
            ("import os\ntry: os.mkdir('/usr/planted')\nexcept OSError: pass\n", "mkdir"),
            ("import os\ntry: os.unlink('/usr/bin/env')\nexcept OSError: pass\n", "unlink"),
            ("import os\ntry: os.chmod('/usr/bin/env', 0o777)\nexcept OSError: pass\n", "chmod"),
        ):
            with self.subTest(call=call):
                result = self.verify_gvisor(source)
                self.assert_fails_as(result, "FilesystemWriteViolation")
                evidence = self.only(result, "FilesystemWriteViolation")["evidence"]
                self.assertEqual((evidence["source"], evidence["syscall"]), ("outside", call))

    def test_a_link_hides_nothing(self):
        result = self.verify_gvisor(
            "import os\nos.symlink('/usr', '/scratch/link')\n"
            "try: open('/scratch/link/planted', 'w')\nexcept OSError: pass\n"
        )
        self.assert_fails_as(result, "FilesystemWriteViolation")

    def test_peers_are_seen_outside(self):
        for source, known in (
            ("import socket\ns = socket.socket()\ntry: s.connect(('93.184.216.34', 80))\nexcept OSError: pass\n", True),
            ("import socket\ns = socket.socket(type=2)\ntry: s.sendto(b'x', ('192.0.2.1', 9))\nexcept OSError: pass\n", False),
        ):
            with self.subTest(source=source):
                result = self.verify_gvisor(source)
                self.assert_fails_as(result, "NetworkAccessViolation")
                evidence = self.only(result, "NetworkAccessViolation")["evidence"]
                self.assertEqual(evidence["source"], "outside")
                self.assertEqual("address" in evidence, known)

    def test_what_gvisor_would_grant_ends_the_command(self):
        result = self.verify_gvisor(
            "import ctypes, time\nctypes.CDLL(None).syscall(272, 0x10000000)\ntime.sleep(30)\nprint('went on')\n"
        )
        self.assert_fails_as(result, "SyscallViolation")
        evidence = self.only(result, "SyscallViolation")["evidence"]
        self.assertEqual((evidence["syscall"], evidence["answer"], evidence["source"]), ("unshare", "killed", "outside"))
        self.assertLess(result["duration_ms"], 25_000)

    def test_the_agent_is_out_of_reach(self):
        result = self.verify_gvisor(
            "import os\n"
            "def refused(attempt):\n"
            "    try: attempt()\n"
            "    except OSError: return\n"
            "    raise SystemExit('granted')\n"
            "for number in (9, 15, 19): refused(lambda: os.kill(1, number))\n"
            "for name in ('mem', 'root/usr', 'cwd/usr', 'exe'): refused(lambda: os.open('/proc/1/' + name, os.O_RDONLY))\n"
            # gVisor lets other users list the descriptors; the agent's streams are sockets, which cannot be opened.
            "streams = [n for n in os.listdir('/proc/1/fd') if int(n) > 2 and os.readlink('/proc/1/fd/' + n).startswith('host:')]\n"
            "assert len(streams) >= 2, streams\n"
            "for number in streams: refused(lambda: os.open('/proc/1/fd/' + number, os.O_RDONLY))\n"
        )
        self.assertEqual(result["status"], "pass", result["stderr"])

    def test_limits_are_known_outside(self):
        memory = self.verify_gvisor("x = b'x' * (1 << 30)\n", limits={"memory_bytes": 128 << 20})
        self.assert_fails_as(memory, "MemoryLimitViolation")
        evidence = self.only(memory, "MemoryLimitViolation")["evidence"]
        self.assertEqual(evidence["source"], "outside")
        self.assertGreater(evidence["oom_kill_after"], evidence["oom_kill_before"])
        bomb = self.verify_gvisor(
            "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(30)\n", limits={"processes": 20}
        )
        self.assert_fails_as(bomb, "ProcessLimitViolation")
        evidence = self.only(bomb, "ProcessLimitViolation")["evidence"]
        self.assertEqual(evidence["source"], "outside")

    def test_trees_of_the_host(self):
        tree = self.directory({"file": "old\n"})
        script = "cat /data/file; echo new > /data/file && cat /data/file; true"
        for access, seen, kept in (("ro", "old\n", "old\n"), ("cow", "old\nnew\n", "old\n"), ("rw", "old\nnew\n", "new\n")):
            with self.subTest(access=access):
                (tree / "file").write_text("old\n")
                done = self.run_gvisor("-v", f"{tree}:/data:{access}", "--", "sh", "-c", script)
                self.assertEqual(done.stdout.decode(), seen, done.stderr)
                self.assertEqual((tree / "file").read_text(), kept)

    def test_strict_chooses_it(self):
        done = self.caisson("run", "--profile", "strict", "--", "sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7, done.stderr)
        planned = self.caisson("run", "--profile", "strict", "--dry-run", "--", "true")
        self.assertEqual(json.loads(planned.stdout)["runtime"], "gvisor")

    def test_killed_it_leaves_nothing(self):
        before = own_groups()
        for round_ in range(4):
            with self.subTest(round=round_):
                running = sandboxes()
                marker = secrets.token_hex(8)
                process = self.popen("run", *GVISOR, "--", "sh", "-c", f"echo {marker}; (setsid sleep 300 &) ; sleep 300")
                self.addCleanup(end, process)
                if round_ % 2 == 0:
                    wait_until(lambda: bool(sandboxes() - running) or "none", 30, "the sandbox runs")
                process.send_signal(signal.SIGKILL)
                process.wait(timeout=10)
                wait_until(lambda: sandboxes() <= running or sandboxes(), 20, "processes left")

        # runsc takes some seconds to forget a sandbox, and may be killed while it makes one. What is left then, the next
        # start removes.
        def left():
            self.assertEqual(self.run_gvisor("--", "true").returncode, 0)
            remains = [*STATE.iterdir(), *(own_groups() - before)]
            return remains or True

        wait_until(left, 60, "left behind")


if __name__ == "__main__":
    unittest.main()

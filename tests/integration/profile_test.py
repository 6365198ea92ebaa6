"""One line of a profile changes what is enforced: a test for each kind of line, against the running program.

Each test has its own control: the same program under `balanced`, which must behave differently.
"""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import both_callers, check

BASE = "version: 1\nname: mine\nextends: balanced\n"


@both_callers
class Lines:
    def profile(self, lines, base=BASE):
        return self.directory({"mine.yaml": base + lines}) / "mine.yaml"

    def run_under(self, lines, source, flags=()):
        """The results of a Python program under balanced, and under balanced with `lines` changed."""
        both = []
        for more in ((), ("--profile", self.profile(lines))):
            both.append(self.verify(source, checks=[check("python3", "main.py")], flags=(*more, *flags)))
        return both

    def assert_lost(self, result, wall):
        self.assertIn(wall, [line.split(":")[0] for line in result["isolation"]["degraded"]])

    def assert_refused(self, lines, wall):
        """The native runtime does not run without that wall, and says so before anything starts."""
        profile = self.profile(lines)
        events = self.directory({}) / "events"
        result = self.verify("print('ran')", flags=("--profile", profile, "--events", events))
        self.assertEqual(result["status"], "rejected", result)
        self.assertIn(wall, result["message"])
        self.assertNotIn("sandbox_started", events.read_text())
        checked = self.caisson("policy", "check", profile)
        self.assertEqual(checked.returncode, 1)
        self.assertIn(wall, checked.stdout.decode())

    def test_structural_namespaces_cannot_be_left_out(self):
        everything = ["user", "pid", "mount", "network", "ipc", "uts", "cgroup", "time"]
        for name in ("user", "pid", "mount", "network"):
            with self.subTest(name):
                left = ", ".join(other for other in everything if other != name)
                self.assert_refused(f"namespaces: [{left}]\n", f"namespaces.{name}")

    def test_other_namespaces(self):
        everything = ["user", "pid", "mount", "network", "ipc", "uts", "cgroup", "time"]
        for name in ("ipc", "uts", "cgroup", "time"):
            with self.subTest(name):
                left = ", ".join(other for other in everything if other != name)
                source = f"import os\nprint(os.readlink('/proc/self/ns/{name}'))"
                before, after = self.run_under(f"namespaces: [{left}]\n", source)
                host = os.readlink(f"/proc/self/ns/{name}")
                self.assertNotEqual(before["stdout"].strip(), host)
                self.assertEqual(after["stdout"].strip(), host)
                self.assertNotIn(name, after["isolation"]["namespaces"])
                self.assert_lost(after, f"namespaces.{name}")

    def test_system_paths(self):
        source = "import os\nprint(os.path.exists('/usr/share'), os.path.exists('/sbin'))"
        before, after = self.run_under("system_paths: [/usr, /bin, /lib, /lib64]\n", source)
        self.assertEqual((before["stdout"], after["stdout"]), ("True True\n", "True False\n"))

    def test_etc_paths(self):
        source = "import os\nprint(os.path.exists('/etc/alternatives'), os.path.exists('/etc/debian_version'))"
        before, after = self.run_under("etc_paths: [/etc/ld.so.cache, /etc/debian_version]\n", source)
        self.assertEqual((before["stdout"], after["stdout"]), ("True False\n", "False True\n"))
        self.assert_lost(after, "etc_paths./etc/debian_version")

    def test_devices(self):
        source = "import os\nprint(sorted(os.listdir('/dev')))"
        before, after = self.run_under('devices: ["null"]\n', source)
        self.assertIn("zero", before["stdout"])
        self.assertNotIn("zero", after["stdout"])

    def test_proc(self):
        source = "import os\nprint(os.path.exists('/proc/meminfo'), os.path.exists('/proc/modules') and len(open('/proc/modules').read()))"
        before, after = self.run_under("proc: {subset: pids}\n", source)
        self.assertTrue(before["stdout"].startswith("True"), before["stdout"])
        self.assertTrue(after["stdout"].startswith("False"), after["stdout"])
        source = "print(len(open('/proc/interrupts').read()) > 0)"
        before, after = self.run_under("proc: {masked_files: []}\n", source)
        self.assertEqual((before["stdout"], after["stdout"]), ("False\n", "True\n"))
        self.assert_lost(after, "proc.masked_files.interrupts")
        source = "import os\nprint(len(os.listdir('/proc/fs')) > 0)"
        before, after = self.run_under("proc: {masked_directories: []}\n", source)
        self.assertEqual((before["stdout"], after["stdout"]), ("False\n", "True\n"))

    def test_mounts(self):
        data = self.directory({"word": "hello"})
        lines = f"mounts:\n  - source: {data}\n    target: /data\n    access: "
        for access, wrote in (("ro", False), ("cow", True), ("rw", True)):
            with self.subTest(access):
                source = (
                    "try:\n    open('/data/new', 'w').write('x'); print('wrote')\n"
                    "except OSError: print('no')\nprint(open('/data/word').read())"
                )
                before, after = self.run_under(lines + access + "\n", source)
                self.assertNotIn("hello", before["stdout"])
                self.assertIn("hello", after["stdout"])
                self.assertEqual("wrote" in after["stdout"], wrote)
                self.assertEqual((data / "new").exists(), access == "rw")
                self.assert_lost(after, "mounts./data")

    def test_workspace(self):
        source = "open('/workspace/new', 'w').write('x')\nprint('wrote')"
        before, after = self.run_under("workspace: cow\n", source)
        self.assert_fails_as(before, "FilesystemWriteViolation")
        self.assert_passes(after)
        self.assert_lost(after, "workspace")

    def test_writable_paths(self):
        for path in ("/tmp", "/dev/shm"):
            with self.subTest(path):
                rest = {"/tmp": "/dev/shm", "/dev/shm": "/tmp"}[path]
                source = f"open('{path}/new', 'w').write('x')\nprint('wrote')"
                before, after = self.run_under(f"writable_paths: [/scratch, {rest}]\n", source)
                self.assert_passes(before)
                self.assert_fails_as(after, "FilesystemWriteViolation")

    def test_seccomp_filter(self):
        source = "import os\nos.close(os.memfd_create('x'))"
        cgroup = "" if self.verify("")["isolation"]["degraded"] else "seccomp: {filter: strict}\n"
        if cgroup:  # without cgroups there is no counting variant of the strict filter
            before, after = self.run_under(cgroup, source)
            self.assert_passes(before)
            self.assert_fails_as(after, "SyscallViolation")
        self.assert_refused("seccomp: {filter: none}\n", "seccomp.filter")

    def test_seccomp_allow_and_deny(self):
        trace = "import ctypes\nprint(ctypes.CDLL(None).ptrace(0, 0, 0, 0))"
        before, after = self.run_under("seccomp: {allow: [ptrace]}\n", trace)
        self.assert_fails_as(before, "SyscallViolation")
        self.assertEqual((after["status"], after["stdout"]), ("pass", "0\n"))
        self.assert_lost(after, "seccomp.allow.ptrace")
        before, after = self.run_under("seccomp: {deny: [getpriority]}\n", "import os\nos.getpriority(os.PRIO_PROCESS, 0)")
        self.assert_passes(before)
        self.assert_fails_as(after, "SyscallViolation")
        self.assertEqual(after["violations"][0]["reason"], "syscall.profile")
        self.assertEqual(after["violations"][0]["evidence"]["syscall"], "getpriority")

    def test_landlock(self):
        before, after = self.run_under("landlock: false\n", "print(1)")
        if before["isolation"]["landlock_abi"] == 0:
            self.skipTest("*** this kernel has no Landlock ***")
        self.assertEqual(after["isolation"]["landlock_abi"], 0)
        self.assert_lost(after, "landlock")

    def test_walls_that_must_stay(self):
        self.assert_refused("capabilities: [CAP_NET_RAW]\n", "capabilities.CAP_NET_RAW")
        self.assert_refused("no_new_privileges: false\n", "no_new_privileges")

    def test_network(self):
        _, after = self.run_under("network: {mode: allowlist, allow: [example.org]}\n", "print(1)")
        self.assert_lost(after, "network.mode")

    def test_strength(self):
        result = self.verify("print(1)", flags=("--runtime", "native", "--profile", self.profile("strength: microvm\n")))
        self.assertEqual((result["status"], result["decision"]["required_strength"]), ("rejected", "microvm"))

    def test_limits(self):
        timeout = self.verify(
            "while True: pass", checks=[check("python3", "main.py")],
            flags=("--profile", self.profile("limits: {command_timeout_ms: 200ms}\n")),
        )
        self.assert_fails_as(timeout, "TimeoutViolation")
        budget = self.verify("while True: pass", flags=("--profile", self.profile("limits: {budget_ms: 400ms}\n")))
        self.assert_fails_as(budget, "TimeoutViolation")
        for lines, source, failure in (
            ("memory_bytes: 64MiB", "x = bytearray(200 << 20)\nx[::4096] = x[::4096]", "MemoryLimitViolation"),
            ("processes: 8", "import os, time\nfor _ in range(30):\n    if os.fork() == 0: time.sleep(5); os._exit(0)", "ProcessLimitViolation"),
            ("output_bytes: 1000", "print('x' * 5000)", "OutputLimitViolation"),
            ("scratch_bytes: 1MiB", "open('/scratch/x', 'wb').write(bytes(3 << 20))", "FilesystemWriteViolation"),
            ("scratch_inodes: 64", "for i in range(200): open(f'/scratch/{i}', 'w').close()", "FilesystemWriteViolation"),
        ):
            with self.subTest(lines):
                before, after = self.run_under(f"limits: {{{lines}}}\n", source)
                self.assertNotEqual(before["failure_class"], failure, self.story(before))
                self.assert_fails_as(after, failure)
        before, after = self.run_under("limits: {cpu: 1}\n", "import os\nprint(len(os.sched_getaffinity(0)))")
        self.assertEqual(after["stdout"], "1\n")

    def test_a_higher_limit_is_a_loss(self):
        result = self.verify("print(1)", flags=("--profile", self.profile("limits: {processes: 300}\n")))
        self.assert_passes(result)
        self.assert_lost(result, "limits.processes")

    def test_environment(self):
        source = "import os\nprint(os.environ.get('COLOUR'), os.environ.get('SHELL'), os.environ.get('HOME'))"
        before, after = self.run_under("environment: {COLOUR: blue, SHELL: null}\n", source)
        self.assertEqual((before["stdout"], after["stdout"]), ("None /bin/sh /scratch\n", "blue None /scratch\n"))

    def test_ignored_writes(self):
        source = "import contextlib\nwith contextlib.suppress(OSError): open('/workspace/.mycache', 'w')\n"
        before, after = self.run_under("ignored_writes: [.mycache]\n", source)
        self.assert_fails_as(before, "FilesystemWriteViolation")
        self.assert_passes(after)

    def test_probes(self):
        source = "import contextlib, os\nwith contextlib.suppress(OSError): os.mkdir('/var/lib/mine')\n"
        before, after = self.run_under("probes: [{write: /var/lib/mine, why: my program}]\n", source)
        self.assert_fails_as(before, "FilesystemWriteViolation")
        self.assert_passes(after)
        (notice,) = after["notices"]
        self.assertEqual((notice["probe"], notice["why"], notice["count"]), ("/var/lib/mine", "my program", 1))
        self.assert_lost(after, "probes./var/lib/mine")

    def test_on_violation(self):
        source = "import contextlib\nwith contextlib.suppress(OSError): open('/workspace/x', 'w')\n"
        before, after = self.run_under("on_violation: report\n", source)
        self.assert_fails_as(before, "FilesystemWriteViolation")
        self.assertEqual((after["status"], after["violations"][0]["class"]), ("pass", "FilesystemWriteViolation"))
        self.assert_lost(after, "on_violation")

    def test_allow_degraded(self):
        degraded = [line for line in self.verify("")["isolation"]["degraded"] if line.startswith("cgroup")]
        result = self.verify("print(1)", flags=("--profile", self.profile("allow_degraded: []\n")))
        self.assertEqual(result["status"], "error" if degraded else "pass")

    def test_project(self):
        project = self.directory({"open/a": "1", "closed/b": "2", "open/secret/c": "3"})
        lines = (
            f"project:\n  root_path: {project}\n  allowed_paths:\n    - {{path: open, access: cow}}\n"
            "  denied_paths: [open/secret]\n"
        )
        profile = self.profile(lines)
        for source, access, status in (
            ("open/a", "ro", "pass"), ("open", "ro", "rejected"), ("closed", "ro", "rejected"),
            ("open/secret", "ro", "rejected"), ("open/a", "rw", "rejected"), ("open/../closed", "ro", "rejected"),
        ):
            with self.subTest(f"{source}:{access}"):
                result = self.verify(
                    "print(1)", flags=("--profile", profile),
                    mounts=[{"source": str(project / source), "target": "/data", "access": access}],
                )
                self.assertEqual(result["status"], status, result.get("message"))

    def test_the_result_carries_what_was_applied(self):
        result = self.verify("print(1)", flags=("--profile", self.profile("limits: {processes: 100}\nlandlock: false\n")))
        self.assertEqual((result["policy"]["limits"]["processes"], result["policy"]["landlock"]), (100, False))

    def test_digest_follows_the_policy_and_nothing_else(self):
        def digest(lines, base=BASE):
            return self.verify("print(1)", flags=("--profile", self.profile(lines, base)))["policy_digest"]

        first = digest("")
        self.assertEqual(first, self.verify("print(1)")["policy_digest"])
        self.assertEqual(first, digest("description: another text\n"))
        self.assertEqual(first, digest("", BASE.replace("mine", "yours")))
        self.assertEqual(first, digest("limits: {memory_bytes: 1024MiB}\n"))
        for lines in ("landlock: false\n", "limits: {processes: 255}\n", "environment: {A: b}\n", "on_violation: report\n"):
            self.assertNotEqual(first, digest(lines), lines)


if __name__ == "__main__":
    unittest.main()

"""The operator's documents, done: the runbook's commands in the state they are for, and each row of the walls table.

A block of docs/operator/runbook.md after a line "<!-- runbook: NAME -->" is run here by bash, one command after the other.
"""

import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import REPOSITORY, CallerCase, Leftovers, both_callers, cgroups, end, foreign_cgroup, need_tool
from caisson import processes, skip, wait_until

RUNBOOK = (REPOSITORY / "docs/operator/runbook.md").read_text(encoding="utf-8")
SPEC = (REPOSITORY / "docs/operator/isolation-spec.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^<!-- runbook: ([\w-]+) -->\n```sh\n(.*?)^```$", RUNBOOK, re.M | re.S))
DONE = {"throttled", "no-user-namespaces", "degraded", "leftovers"}


class Procedures(CallerCase):
    def commands(self, name):
        return BLOCKS[name].splitlines()

    def shell(self, command, prefix=()):
        """One command of the runbook, as the caller, in a directory where the documents are too."""
        variables = self.environment({"PATH": f"{self.binary.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"})
        return subprocess.run(
            self.as_caller(*prefix, "bash", "-c", command), cwd=self.place, env=variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
        )  # fmt: skip

    def setUp(self):
        self.place = self.directory()
        shutil.copytree(REPOSITORY / "docs", self.place / "docs")
        for path in [self.place / "docs", *(self.place / "docs").rglob("*")]:
            self.give(path)


class AsRoot(Procedures):
    def driver(self):
        done = self.caisson("run", "--json", "--", "true")
        return json.loads(done.stdout)["isolation"]["cgroup"]["driver"]

    def test_every_block_has_its_test(self):
        self.assertEqual(set(BLOCKS), DONE)

    def test_throttled(self):
        if self.driver() == "none":
            skip("root", "no cgroup can be made here, so nothing is throttled")
        run, read = self.commands("throttled")
        self.assertEqual(self.shell(run).returncode, 0)
        cpu_ms, throttled_ms = map(int, self.shell(read).stdout.split())
        self.assertGreater(cpu_ms, 0)
        self.assertGreater(throttled_ms, 0)

    def test_leftovers(self):
        if self.driver() == "none":
            skip("root", "no cgroup can be made here, so none can be left")
        marker = f"marker-{secrets.token_hex(8)}"
        before = Leftovers(self.binary, marker)
        process = self.popen("run", "--", "bash", "-c", "while :; do (exec -a $0-sleep sleep 1); done", marker, stdin=subprocess.DEVNULL)
        self.addCleanup(end, process)
        workload = f"{marker}-sleep".encode()
        wait_until(lambda: any(line.startswith(workload) for line in processes(marker).values()), 10, "the workload runs")
        (cleanup,) = self.cleanups()
        os.kill(cleanup, signal.SIGSTOP)  # so that it cannot act between the two kills
        process.send_signal(signal.SIGKILL)
        os.kill(cleanup, signal.SIGKILL)
        process.wait(timeout=5)
        wait_until(lambda: processes(marker, self.binary) == {} or processes(marker, self.binary), 5, "processes")
        stale = {path for path in cgroups() - before.groups if not foreign_cgroup(path, self.binary)}
        self.assertTrue(stale, "nothing was stale: this test has tested nothing")
        look, run, again = self.commands("leftovers")
        self.assertLessEqual(stale, set(self.shell(look).stdout.split()))
        self.assertEqual(self.shell(run).returncode, 0)
        # Another run may have taken the number since; then the group is not ours any more.
        left = stale & set(self.shell(again).stdout.split())
        self.assertEqual({path for path in left if not foreign_cgroup(path, self.binary)}, set())
        before.assert_none()

    def cleanups(self):
        found = []
        for pid in processes(executable=self.binary):
            try:
                if pathlib.Path("/proc", str(pid), "comm").read_text().strip() == "caisson-cleanup":
                    found.append(pid)
            except OSError:
                pass
        return found

    def test_pid_1_killed_from_outside(self):
        result = self.place / "result.json"
        process = self.popen("run", "--result", result, "--", "sh", "-c", "echo ready; sleep 60; :",
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        self.addCleanup(end, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        inside = [pid for pid in children if self.inside_pid(pid) == "1"]
        self.assertEqual(len(inside), 1, children)
        os.kill(int(inside[0]), signal.SIGKILL)
        self.assertEqual(process.wait(timeout=10), 125)
        document = self.read_result(result.read_text())
        self.assertEqual((document["status"], document["failure_class"], document["terminal_event"]),
                         ("error", "InfrastructureError", "error"))  # fmt: skip
        self.assertIn("PID 1 of the sandbox was killed from outside", document["message"])
        self.assertIn("PID 1 of the sandbox was killed from outside", RUNBOOK)

    @staticmethod
    def inside_pid(pid):
        return re.search(r"^NSpid:.*\s(\d+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]


class AsUser(Procedures):
    AS_USER = True

    def test_no_user_namespaces(self):
        need_tool("user", "unshare")
        # A new user namespace has its own settings: there user namespaces can be switched off for this test alone.
        prefix = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c",
                  'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"', "sh")  # fmt: skip
        if self.shell("true", prefix).returncode != 0:
            skip("user", "user namespaces cannot be made or switched off here")
        run, doctor, settings = self.commands("no-user-namespaces")
        done = self.shell(run, prefix)
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stdout, r"wall namespaces: clone3: No space left on device; .*user\.max_\*_namespaces")
        done = self.shell(doctor, prefix)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"missing +sandbox +wall namespaces")
        self.assertIn("user.max_user_namespaces = 0", self.shell(settings, prefix).stdout)
        self.assertIn('"No space left on device" from `clone3`', RUNBOOK)

    def test_degraded(self):
        doctor, isolation, strict = self.commands("degraded")
        driver, *walls = self.shell(isolation).stdout.splitlines()
        if driver != "none":
            skip("user", f"this user has a cgroup ({driver}), so nothing is degraded")
        self.assertRegex(walls[0], "^cgroup: limits are watched, not enforced by a cgroup")
        self.assertRegex(self.shell(doctor).stdout, r"^degraded +cgroup +driver none\n +fix: cgroup: limits are watched")
        done = self.shell(strict)
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stdout, "wall cgroup: .*allow_degraded lists cgroup")


@both_callers
class Walls:
    """Every row of "Which walls may be given up"."""

    def rows(self):
        text = SPEC[SPEC.index("## Which walls may be given up") : SPEC.index("## System calls")]
        rows = re.findall(r"^\| (\w+) \| `(.+?)` \| `(.+?)` \| (.+?) \| (runs|refused) \|$", text, re.M)
        self.assertGreater(len(rows), 20)
        return rows

    def profile(self, base, change):
        lines = change[1:-1] if change.startswith("{") else change
        return self.directory({"row.yaml": f"{{version: 1, name: row, extends: {base}, {lines}}}\n"}) / "row.yaml"

    def test_rows(self):
        has_cgroup = json.loads(self.caisson("run", "--json", "--", "true").stdout)["isolation"]["cgroup"]["driver"] != "none"
        for base, change, wall, lost, native in self.rows():
            with self.subTest(base=base, change=change):
                path = self.profile(base, change)
                done = self.caisson("policy", "check", "--json", path)
                found = {loss["wall"]: loss for loss in json.loads(done.stdout)["lost"]}
                self.assertIn(wall, found)
                self.assertEqual(found[wall]["lost"], lost)
                self.assertEqual(found[wall]["native_runs"], native == "runs")
                self.assertEqual(done.returncode, 0 if native == "runs" else 1)
                result = path.with_name("result.json")
                ran = self.caisson("run", "--profile", path, "--result", result, "--", "true")
                if native == "refused" or (base == "strict" and not has_cgroup):
                    self.assertEqual(ran.returncode, 125)
                    continue
                self.assertEqual(ran.returncode, 0, ran.stderr)
                degraded = self.read_result(result.read_text())["isolation"]["degraded"]
                self.assertIn(f"{wall}: given up by the profile; {lost}", degraded)


@both_callers
class FaultyFiles:
    """Refused before anything runs, with file, line and column."""

    FAULTS = {
        "unknown key": ("limit: {cpu: 1}\n", ':4:1: unknown key "limit"; did you mean "limits"?'),
        "given twice": ("landlock: true\nlandlock: false\n", ':5:1: "landlock" is given twice'),
        "anchor": ("limits: &a {cpu: 1}\n", ":4:9: anchors"),
        "alias": ("limits: *a\n", ":4:"),
        "tag": ("landlock: !!bool true\n", ":4:11: tags"),
        "tab": ("limits:\n\tcpu: 1\n", ":5:1: a tab"),
        "second document": ("---\nversion: 1\n", "second document"),
        "misspelt call": ("seccomp: {allow: [ptrase]}\n", 'did you mean "ptrace"?'),
        "both": ("seccomp: {allow: [ptrace], deny: [ptrace]}\n", "both allowed and denied"),
        "too much": ("limits: {processes: 99999999}\n", "out of range"),
        "secret": ("etc_paths: [/etc/shadow]\n", "holds secrets of the host"),
    }

    def test_profiles(self):
        for name, (lines, message) in self.FAULTS.items():
            with self.subTest(name):
                path = self.directory({"p.yaml": "version: 1\nname: p\nextends: balanced\n" + lines}) / "p.yaml"
                for arguments, code in (
                    (("policy", "check", path), 1),
                    (("run", "--profile", path, "--", "true"), 125),
                    (("verify", "--profile", path, REPOSITORY / "examples/hello.py"), 2),
                ):
                    done = self.caisson(*arguments)
                    self.assertEqual(done.returncode, code, done.stderr)
                    self.assertIn(f"{path}", done.stderr.decode())
                    self.assertIn(message, done.stderr.decode())
                    self.assertEqual(done.stdout, b"")

    def test_policies(self):
        for lines, message in (
            ("rules: []\n", "unknown key"),
            ("risk: []\noverrides: [{id: a}]\n", "an override needs reason"),
            ("risk: [{id: a, strength: native}]\n", "a rule needs id, strength and why"),
        ):
            with self.subTest(lines):
                text = "version: 1\nkind: policy\nname: p\nlock_owner: o\n" + lines
                path = self.directory({"p.yaml": text}) / "p.yaml"
                self.assertEqual(self.caisson("policy", "check", path).returncode, 1)
                done = self.caisson("run", "--policy", path, "--", "true")
                self.assertEqual(done.returncode, 125)
                self.assertIn(message, done.stderr.decode())


del Procedures, CallerCase  # or unittest would run what is only inherited from

if __name__ == "__main__":
    unittest.main()

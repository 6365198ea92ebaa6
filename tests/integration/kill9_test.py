"""Killed with SIGKILL at any moment, the program leaves no process, mount, cgroup or file behind.

CAISSON_KILL9_ROUNDS says how many moments are tried for each caller (default 60), CAISSON_KILL9_SEED which.
"""

import ctypes
import os
import pathlib
import random
import secrets
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import STARTED_BY_ROOT, Leftovers, both_callers, cgroups, end, find_binary, foreign_cgroup
from caisson import processes, wait_until

ROUNDS = int(os.environ.get("CAISSON_KILL9_ROUNDS", "60"))
SEED = int(os.environ.get("CAISSON_KILL9_SEED", "20240607"))
LEAST_SPREAD_SECONDS = 0.040

# Forks, daemonises and writes, and keeps at it. The marker is in every command line.
WORKLOAD = """
for n in 1 2 3; do
  (setsid bash -c 'while :; do sleep 0.01; done' MARKER &)
  (exec -a MARKER-sleeper sleep 300) &
done
while :; do (exec -a MARKER-child sleep 0.005) & echo x > /scratch/f; wait $!; done
"""

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
# A private /tmp would hide a checkout below /tmp; without it, files of other programs cannot be told from leftovers.
PRIVATE_TMP = STARTED_BY_ROOT and pathlib.Path("/tmp") not in find_binary().parents


def setUpModule():
    """Gives this test a /tmp of its own, so that every file in it is the program's. The locks in /run stay shared."""
    if not PRIVATE_TMP:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    # One after the other: a mount without the step before it would be the whole machine's.
    for step in (
        lambda: libc.unshare(CLONE_NEWNS),
        lambda: libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None),
        lambda: libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b"mode=1777"),
    ):
        if step() != 0:
            raise OSError(ctypes.get_errno(), "cannot have a private /tmp")


def files_in(*directories):
    """All files there but the locks that the program keeps."""
    allowed = {"/run/caisson", "/run/caisson/slots", f"/tmp/caisson-{os.geteuid()}", "/tmp/caisson-65534"}
    readable = [top for top in directories if os.access(top, os.R_OK)]  # /run/caisson is root's own
    return {f"{top}/{name}" for top in readable for name in os.listdir(top)} - allowed


@both_callers
class Killed:
    def setUp(self):
        self.marker = f"marker-{secrets.token_hex(8)}"
        self.before = Leftovers(self.binary, self.marker)
        self.places = ["/run", "/run/caisson", str(self.home)] + (["/tmp"] if PRIVATE_TMP else [])
        self.files = files_in(*self.places)

    def start(self, *flags, **streams):
        streams.setdefault("stdout", subprocess.DEVNULL)
        process = self.popen(
            "run",
            *flags,
            "--",
            "bash",
            "-c",
            WORKLOAD.replace("MARKER", self.marker),
            self.marker,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **streams,
        )
        self.addCleanup(end, process)
        return process

    def assert_nothing_left(self):
        self.before.assert_none(seconds=5)
        self.assertEqual(files_in(*self.places) - self.files, set())

    def test_at_random_moments(self):
        moments = random.Random(SEED)
        reached = 0
        place = self.directory({"f": "x"})
        self.files = files_in(*self.places)
        # Moments must fall before, during and after set-up, however slow this build and this machine are.
        begin = time.monotonic()
        self.assertEqual(self.popen("run", "--", "true", stdin=subprocess.DEVNULL).wait(timeout=30), 0)
        spread = max(LEAST_SPREAD_SECONDS, 3 * (time.monotonic() - begin))
        for number in range(ROUNDS):
            delay = moments.random() * spread
            flags = [[], ["--workspace", f"{place}:cow"], ["-v", f"{place}:/data", "--cpus", "1"]][number % 3]
            with self.subTest(round=number, delay_ms=round(delay * 1000, 2), flags=flags):
                process = self.start(*flags)
                time.sleep(delay)  # the moment itself, not a wait for something
                reached += len(processes(self.marker)) > 3
                process.send_signal(signal.SIGKILL)
                self.assertEqual(process.wait(timeout=5), -signal.SIGKILL)
                self.assert_nothing_left()
        self.assertGreater(reached, ROUNDS // 20, "hardly any round got as far as a running workload: widen the spread")

    def test_in_full_swing(self):
        process = self.start()
        wait_until(lambda: len(processes(self.marker)) > 8, 10, "the workload runs")
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=5)
        self.assert_nothing_left()

    def test_verification(self):
        place = self.directory(
            {"main.py": f"import subprocess\nsubprocess.run(['bash', '-c', 'sleep 300; true', '{self.marker}'])\n"}
        )
        self.files = files_in(*self.places)
        process = self.popen("verify", "--json", place / "main.py", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(end, process)
        wait_until(
            lambda: any(command.startswith(b"bash") for command in processes(self.marker).values()),
            10,
            "the workload runs",
        )
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=5)
        self.assert_nothing_left()

    def test_on_its_own_session_leader(self):
        """Killed together with its whole process group, as by a terminal that closes."""
        process = self.start(start_new_session=True)
        wait_until(lambda: len(processes(self.marker)) > 8, 10, "the workload runs")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=5)
        self.assert_nothing_left()

    def test_together_with_the_keeper(self):
        """The next run cleans up after a run whose cleanup process was killed too."""
        if self.AS_USER and self.caisson("run", "--result", self.home / "r.json", "--", "true").returncode == 0:
            driver = self.read_result((self.home / "r.json").read_text())["isolation"]["cgroup"]["driver"]
            (self.home / "r.json").unlink()
            if driver == "none":
                self.assertEqual(cgroups() - self.before.groups, set())
                return  # no cgroups, so no cleanup and nothing stale
        process = self.start()
        wait_until(lambda: len(processes(self.marker)) > 8, 10, "the workload runs")
        cleanups = [pid for pid in processes(executable=self.binary) if self.name_of(pid) == "caisson-cleanup"]
        self.assertEqual(len(cleanups), 1)
        os.kill(cleanups[0], signal.SIGSTOP)  # so that it cannot act between the two kills
        process.send_signal(signal.SIGKILL)
        os.kill(cleanups[0], signal.SIGKILL)
        process.wait(timeout=5)
        wait_until(
            lambda: processes(self.marker, self.binary) == {} or processes(self.marker, self.binary), 5, "processes"
        )
        stale = {path for path in cgroups() - self.before.groups if not foreign_cgroup(path, self.binary)}
        self.assertTrue(stale, "nothing was stale: this test has tested nothing")
        self.assertEqual(self.caisson("run", "--", "true").returncode, 0)
        self.assert_nothing_left()

    @staticmethod
    def name_of(pid):
        try:
            return pathlib.Path("/proc", str(pid), "comm").read_text().strip()
        except OSError:
            return ""


if __name__ == "__main__":
    unittest.main()

"""A fuzzer for the observer: random observed calls in sandboxes, compared with what the kernel answered.

Short by default; CAISSON_OBSERVER_FUZZ_SECONDS=3600 runs it that long. Each run prints the seed that repeats it.
"""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import CallerCase, workbench

SECONDS = float(os.environ.get("CAISSON_OBSERVER_FUZZ_SECONDS", "24"))
CALLS = 1500
NETWORK = ("net.connect", "net.send", "net.unrouted", "unreadable")


class ObserverFuzz:
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = pathlib.Path(workbench().root) / f"observer-fuzz-{cls.__name__}"
        cls.directory.mkdir(exist_ok=True)
        shutil.copy(os.environ["CAISSON_OBSERVER_FUZZ"], cls.directory / "observer_fuzz")
        for path in (cls.directory, cls.directory / "observer_fuzz"):
            path.chmod(0o755)

    def fuzz(self, mode, seed):
        """What the program counted, and the result."""
        result = pathlib.Path(self.home) / "fuzz-result.json"
        done = subprocess.run(
            self.command("run", "--quiet", "--result", str(result), "--workspace", str(self.directory), "--",
                         "/workspace/observer_fuzz", mode, str(seed), str(CALLS)),
            env=self.environment({}), cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True, timeout=300,
        )
        counted = re.search(rb"refused_writes=(\d+) refused_peers=(\d+)", done.stdout)
        self.assertTrue(counted, f"{mode} {seed}: {done.stdout!r} {done.stderr!r}")
        return int(counted[1]), int(counted[2]), json.loads(result.read_text())

    def recorded(self, result, violation_class, reasons):
        total = 0
        for violation in result["violations"]:
            if violation["class"] != violation_class or violation["reason"] not in reasons:
                continue
            evidence = violation["evidence"]
            if violation["reason"] == "net.unrouted":
                total += evidence["unrouted_after"] - evidence["unrouted_before"] - evidence["seen_calls"]
            else:
                total += violation.get("count", 1)
        return total

    def seeds(self, share):
        """Seeds until this test's share of the time is over."""
        start, end = random.SystemRandom().randrange(1 << 31), time.monotonic() + SECONDS * share / 2
        yield start
        while time.monotonic() < end:
            start += 1
            yield start

    def test_what_the_walls_refuse_is_recorded(self):
        for seed in self.seeds(0.5):
            writes, peers, result = self.fuzz("strict", seed)
            with self.subTest(mode="strict", seed=seed):
                self.assertGreater(writes, 0)
                self.assertGreater(peers, 0)
                self.assertEqual(result["status"], "fail")
                self.assertGreaterEqual(
                    self.recorded(result, "FilesystemWriteViolation", ("fs.write", "unreadable")), writes)
                self.assertGreaterEqual(self.recorded(result, "NetworkAccessViolation", NETWORK), peers)

    def test_changing_arguments(self):
        for seed in self.seeds(0.25):
            writes, peers, result = self.fuzz("racing", seed)
            with self.subTest(mode="racing", seed=seed):
                self.assertGreater(writes, 0)
                self.assertGreater(self.recorded(result, "FilesystemWriteViolation", ("fs.write", "unreadable")), 0)
                # The kernel itself counts these attempts.
                self.assertGreaterEqual(self.recorded(result, "NetworkAccessViolation", NETWORK), peers)

    def test_benign_calls_are_not_reported(self):
        for seed in self.seeds(0.25):
            writes, peers, result = self.fuzz("benign", seed)
            with self.subTest(mode="benign", seed=seed):
                self.assertEqual((writes, peers), (0, 0))
                self.assertEqual((result["status"], result["violations"]), ("pass", []))


class AsRoot(ObserverFuzz, CallerCase):
    AS_USER = False


class AsUser(ObserverFuzz, CallerCase):
    AS_USER = True


if __name__ == "__main__":
    unittest.main()

"""The AppArmor profile that `caisson policy render` writes, loaded and enforced by a stock Debian kernel.

A golden file shows only that the text stays as it is, and the parser only that it is well-formed. Here the kernel
decides: a workload works under the profile, and a denied action works without it. Skipped without QEMU, unless
CAISSON_MUST_RUN lists "vm".
"""

import errno
import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

SECONDS = 300  # an idle machine needs a tenth of it
ENFORCED = "caisson-balanced (enforce)"
# AppArmor says EACCES, but for what it takes a capability to ask for.
OTHER_ERRORS = {"capability": errno.EPERM, "mount": errno.EPERM}


class AppArmor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = machine.execute(machine.prepare_or_skip(), ["python3", "-B", "tests/vm/apparmor_probes.py"], timeout=SECONDS)
        if done.exit_code != 0:
            raise AssertionError(done.stderr.decode(errors="replace")[-4000:])
        cls.report = json.loads(done.stdout)

    def test_the_kernel_takes_it(self):
        self.assertEqual(self.report["loading"][0], 0, self.report["loading"][1])
        self.assertEqual(self.report["loaded"], [ENFORCED])

    def test_a_workload_works_under_it(self):
        self.assertEqual(self.report["confined"]["legit"], [0, ENFORCED, ""])
        self.assertEqual(self.report["seen_from_outside"], ENFORCED)
        self.assertEqual(self.report["bare"]["legit"], [0, "unconfined", ""])

    def test_what_it_denies_works_without_it(self):
        self.assertGreater(len(self.report["bare"]["attempts"]), 10)
        for name, error in self.report["bare"]["attempts"].items():
            with self.subTest(name):
                self.assertEqual(error, 0, "the control does not work, so nothing is shown")
                refused = self.report["confined"]["attempts"][name]
                self.assertEqual(refused, OTHER_ERRORS.get(name, errno.EACCES), os.strerror(refused))


if __name__ == "__main__":
    unittest.main()

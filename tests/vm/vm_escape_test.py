"""The escape suite on a stock Debian kernel with pure cgroup v2, as root and as an ordinary user.

Emulation is an order of magnitude slower than a processor, so rows that need seconds of it are left to the machine
itself (SLOW_ROWS). CAISSON_VM_ROWS=all runs them too; VM_EVIDENCE=DIR keeps the documents for tests/escape/evidence.py.
"""

import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

SECONDS = 1500
SLOW_ROWS = set()


def rows():
    """The rows to run there, as --row takes them."""
    selftest = machine.CHECKOUT / "build/release/src/caisson-selftest"
    import subprocess

    listed = subprocess.run([selftest, "--list"], capture_output=True, text=True, check=True).stdout
    every = [line.split()[0] for line in listed.splitlines()]
    return every if os.environ.get("CAISSON_VM_ROWS") == "all" else [row for row in every if row not in SLOW_ROWS]


class EscapeInTheMachine(unittest.TestCase):
    def attack(self, who):
        try:
            image = machine.prepare()
            result = machine.execute(image, ["caisson", "selftest", "--json", "--row", ",".join(rows())], who, SECONDS)
        except machine.Unavailable as error:
            if "vm" in os.environ.get("CAISSON_MUST_RUN", "").split(","):
                raise AssertionError(f"vm tests must run here, but: {error}") from error
            raise unittest.SkipTest(f"*** NOT TESTED (vm): {error} ***") from error
        self.assertIn(result.exit_code, (0, 1), result.stderr.decode(errors="replace")[-2000:])
        document = json.loads(result.stdout)
        if os.environ.get("VM_EVIDENCE"):
            pathlib.Path(os.environ["VM_EVIDENCE"], f"vm-{who}.json").write_text(json.dumps(document))
        self.assertGreaterEqual(len(document["rows"]), 60)
        self.assertGreater(document["summary"]["passed"], 0.8 * len(document["rows"]))
        for row in document["rows"]:
            with self.subTest(row["id"], title=row["title"]):
                self.assertNotEqual(row["verdict"], "FAIL", row["summary"])

    def test_as_root(self):
        self.attack("root")

    def test_as_user(self):
        self.attack("user")


if __name__ == "__main__":
    unittest.main()

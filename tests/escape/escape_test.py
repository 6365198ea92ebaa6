"""Runs the escape suite as one kind of caller, root or user (the first argument), one sub-test a row.

CAISSON_MUST_RUN=escape turns a suite that is not there into a failure, escape-rows-root a row that could not run as root.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import REPOSITORY, CallerCase, skip, workbench

CALLER = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1] in ("root", "user") else "root"


class Escape(CallerCase):
    AS_USER = CALLER == "user"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The suite of a release build attacks any build of the program.
        selftest = REPOSITORY / "build/release/src/caisson-selftest"
        if not os.access(selftest, os.X_OK):
            skip("escape", f"{selftest} is not built")
        cls.selftest = workbench().root / "caisson-selftest"
        shutil.copyfile(selftest, cls.selftest)
        cls.selftest.chmod(0o755)

    def selftest_command(self, *flags, timeout=300):
        return subprocess.run(
            self.command("selftest", *flags),
            # Some of root's controls are an ordinary user's, who must get at what they execute.
            env=self.environment({} if self.AS_USER else {"TMPDIR": str(workbench().root)}),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
        )

    def test_rows(self):
        done = self.selftest_command("--json")
        self.assertIn(done.returncode, (0, 1), done.stderr.decode(errors="replace"))
        document = json.loads(done.stdout)
        self.assertGreaterEqual(len(document["rows"]), 30)
        for row in document["rows"]:
            with self.subTest(row=row["id"], title=row["title"]):
                if row["verdict"] == "SKIP":
                    skip(f"escape-rows-{CALLER}", f"{row['id']}: {row['summary']}")
                self.assertEqual(row["verdict"], "PASS", f"{row['id']}: {row['summary']}")
        self.assertEqual(done.returncode, 0)

    def test_usage(self):
        for flags in (["--row", "Z99"], ["--group", "Z"], ["--runtime", "other"], ["--nonsense"]):
            with self.subTest(flags=flags):
                self.assertEqual(self.selftest_command(*flags).returncode, 2)
        self.assertEqual(self.selftest_command("--row", "A04", "--caisson", "/nowhere").returncode, 4)
        self.assertEqual(self.selftest_command("--row", "A04", "--caisson", "/bin/true").returncode, 4)
        listed = self.selftest_command("--list", "--group", "A,B")
        self.assertEqual(listed.returncode, 0)
        rows = list((REPOSITORY / "tests/escape").glob("[ab][0-9][0-9]_*.cc"))
        self.assertEqual(len(listed.stdout.splitlines()), len(rows))

    def test_one_row_for_a_person(self):
        done = self.selftest_command("--row", "A04")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertTrue(done.stdout.startswith(b"A04  PASS  "), done.stdout)


if __name__ == "__main__":
    unittest.main()

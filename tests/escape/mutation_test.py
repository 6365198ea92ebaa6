"""Shows that the escape suite can fail: each wall is left out in turn, and the rows named for it must fail.

Uses caisson-mutable, the only program in which a wall can be left out (CAISSON_MUTATE); that the release
program has no such switch is checked here too. A mutation runs only the rows named for it.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import REPOSITORY, STARTED_BY_ROOT, skip
from mutations import MUTATIONS, SESSION_MUTATIONS

MUTANT = REPOSITORY / "build/release/src/caisson-mutable"
RELEASE = REPOSITORY / "build/release/src/caisson"
SELFTEST = REPOSITORY / "build/release/src/caisson-selftest"
# Rows that need servers outside are tests of this file, named after them.
EGRESS_ROWS = pathlib.Path(__file__).with_name("egress_walls_test.py")


def run_egress_row(row, wall):
    done = subprocess.run(
        ["/usr/bin/python3", "-B", EGRESS_ROWS, "-k", f"test_{row}_"],
        env=os.environ | {"CAISSON_MUTATE": wall, "CAISSON_BIN": str(MUTANT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=600,
    )
    story = done.stderr.decode(errors="replace")
    if "Ran 1 test" not in story or "skipped" in story:
        raise AssertionError(story)
    return "PASS" if done.returncode == 0 else "FAIL", story[-2000:]


def run_rows(rows, wall=""):
    """The verdict of each row with `wall` left out, and why."""
    outside = [row for row in rows if f"test_{row}_" in EGRESS_ROWS.read_text()]
    verdicts = {row: run_egress_row(row, wall) for row in outside}
    rows = [row for row in rows if row not in outside]
    return verdicts | (run_probe_rows(rows, wall) if rows else {})


def run_probe_rows(rows, wall):
    done = subprocess.run(
        [SELFTEST, "--caisson", MUTANT, "--json", "--row", ",".join(rows)],
        env=os.environ | {"CAISSON_MUTATE": wall},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=600,
    )
    if done.returncode not in (0, 1):
        raise AssertionError(done.stderr.decode(errors="replace"))
    return {row["id"]: (row["verdict"], row["summary"]) for row in json.loads(done.stdout)["rows"]}


class Mutation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not STARTED_BY_ROOT:
            skip("mutation", "walls are left out as root only: a user's own processes would be in reach")
        for program in (MUTANT, SELFTEST):
            if not os.access(program, os.X_OK):
                skip("mutation", f"{program} is not built; ./dev test builds it")

    def test_rows_hold_when_nothing_is_left_out(self):
        rows = sorted({row for mutation in MUTATIONS for row in mutation.rows})
        for row, (verdict, summary) in run_rows(rows).items():
            with self.subTest(row):
                self.assertEqual(verdict, "PASS", summary)

    def test_every_wall_is_missed(self):
        for mutation in MUTATIONS:
            with self.subTest(mutation.wall):
                self.assertTrue(mutation.rows, "a wall that no row notices is a missing row")
                for row, (verdict, summary) in run_rows(mutation.rows, mutation.wall).items():
                    self.assertEqual(verdict, "FAIL", f"{row} does not notice that {mutation.wall} is gone: {summary}")

    def test_every_switch_is_listed(self):
        source = "".join(path.read_text() for path in (REPOSITORY / "src").rglob("*.cc"))
        switches = set(re.findall(r'CAISSON_LEFT_OUT\("(\w+)"\)', source)) | set(
            re.findall(r'std::pair\{"(\w+_namespace)", CLONE_NEW', source)
        )
        self.assertEqual(switches, {wall for mutation in MUTATIONS + SESSION_MUTATIONS for wall in mutation.wall.split(",")})


class Release(unittest.TestCase):
    def test_the_switch_is_not_in_release_programs(self):
        if not RELEASE.exists():
            skip("mutation", "the release program is not built")
        program = RELEASE.read_bytes()
        for text in [b"CAISSON_MUTATE"] + [m.wall.encode() for m in MUTATIONS + SESSION_MUTATIONS if m.unique]:
            self.assertFalse(text in program, text)


if __name__ == "__main__":
    unittest.main()

"""The host's own suites again on a stock Debian kernel: unit tests of the core and the escape suite as root and as a
user, and integration suites.

One boot for each. Emulation is slow, so by default the escape suite runs the rows whose outcome depends most on the
kernel: namespaces, mounts, cgroup v2, seccomp's listener, Landlock, what ends with PID 1. CAISSON_VM_ALL=1 runs every
row, and more integration suites. What came of the rows is printed as a table, and kept in build/vm/escape-root.json,
escape-user.json and escape-delegated.json, from which tests/escape/evidence.py --add takes it.

Without QEMU the tests are skipped, unless CAISSON_MUST_RUN lists "vm".
"""

import json
import os
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

EVERY_ROW = bool(os.environ.get("CAISSON_VM_ALL"))
ROWS = (
    "A01 A02 A04 A05 A06 A07 A10 A12 A17 B01 B04 B05 B06 B07 C03 C07 C10 D02 D05 E01 E05 E09 F01 F14 H02 J02".split()
)
BOOT_SECONDS = 120
ROW_SECONDS = 90  # a busy machine needs half of it
UNITS = "base_test sandbox_test setup_fault_test launcher_unit_test runtime_conformance".split()
UNITS_SECONDS = 300
LAUNCHER = "build/release/src/caisson-launcher"
# Both callers each. The first is short enough to be run always; the gates alone take ten minutes.
INTEGRATION = ("isolation", "gates", "forgery", "run", "run_ending", "bad_input", "path_policy", "profile", "kill9")
SUITE_SECONDS = 1800

CALLERS = ("root", "user", "delegated")  # the last is a user with a delegated cgroup
VERDICTS = {}  # row -> {identity: (verdict, milliseconds)}


def tearDownModule():
    """The table: a row a line, a column for each caller."""
    if not VERDICTS:
        return
    print("\nrow   " + "".join(f"{who:<16}" for who in CALLERS), file=sys.stderr)
    for row, columns in sorted(VERDICTS.items()):
        cells = [f"{columns[one][0]} {columns[one][1] / 1000:6.1f} s" if one in columns else "" for one in CALLERS]
        print(f"{row}   " + "".join(f"{cell:<16}" for cell in cells), file=sys.stderr)


class Escape(unittest.TestCase):
    def attack(self, identity, rows=ROWS):
        command = ["caisson", "selftest", "--json"]
        if not EVERY_ROW:
            command += ["--row", ",".join(rows)]
        timeout = BOOT_SECONDS + ROW_SECONDS * (100 if EVERY_ROW else len(rows))
        done = machine.execute(machine.prepare_or_skip(), command, identity=identity, timeout=timeout)
        self.assertIn(done.exit_code, (0, 1), done.stderr.decode(errors="replace"))
        (machine.CACHE / f"escape-{identity}.json").write_bytes(done.stdout)
        document = json.loads(done.stdout)
        self.assertRegex(document["kernel"], r"^\d+\.\d+\..*-cloud-amd64$")
        self.assertEqual(document["root"], identity == "root")
        if not EVERY_ROW:
            self.assertEqual([row["id"] for row in document["rows"]], rows)
        for row in document["rows"]:
            VERDICTS.setdefault(row["id"], {})[identity] = (row["verdict"], row["duration_ms"])
            with self.subTest(row=row["id"], title=row["title"]):
                self.assertIn(row["verdict"], ("PASS", "SKIP"), row["summary"])
                self.assertTrue(row["verdict"] == "PASS" or row["summary"], "a row is skipped without a reason")
        return document

    def test_as_root(self):
        document = self.attack("root")
        if not EVERY_ROW:  # chosen because they can be tried there
            self.assertEqual([row["id"] for row in document["rows"] if row["verdict"] == "SKIP"], [])

    def test_as_user(self):
        self.attack("user")

    def test_as_user_with_a_cgroup(self):
        document = self.attack("delegated", "F01 F04 F10".split())  # which show the limits that need one
        self.assertEqual([row["id"] for row in document["rows"] if row["verdict"] == "SKIP"], [])


class Units(unittest.TestCase):
    """The unit tests of what talks to the kernel, from the build with its assertions and fault hooks on."""

    def run_all(self, identity):
        programs = [f"build/dev/tests/{name}" for name in UNITS]
        script = 'for program in "$@"; do "$program" --gtest_brief=1 || exit 1; done'
        command = ["env", f"CAISSON_LAUNCHER_BIN={LAUNCHER}", "CAISSON_RUNTIME=launched", "sh", "-c", script, "units", *programs]
        done = machine.execute(machine.prepare_or_skip(), command, identity=identity, timeout=BOOT_SECONDS + UNITS_SECONDS,
                               files=[*programs, LAUNCHER])
        report = (done.stdout + done.stderr).decode(errors="replace")
        self.assertEqual(done.exit_code, 0, report[-8000:])
        self.assertEqual(len(re.findall(r"\d+ tests? from \d+ test suites? ran", report)), len(UNITS), report)
        print("\n" + report, file=sys.stderr)

    def test_as_root(self):
        self.run_all("root")

    def test_as_user(self):
        self.run_all("user")


class Integration(unittest.TestCase):
    def run_suite(self, name):
        command = ["python3", "-B", f"tests/integration/{name}_test.py"]
        done = machine.execute(machine.prepare_or_skip(), command, timeout=BOOT_SECONDS + SUITE_SECONDS)
        report = done.stderr.decode(errors="replace")
        self.assertEqual(done.exit_code, 0, report[-8000:])
        self.assertRegex(report, r"Ran \d+ tests")
        print(f"\n{name}: {report[report.rindex('Ran '):]}", file=sys.stderr)


for suite in INTEGRATION if EVERY_ROW else INTEGRATION[:1]:
    setattr(Integration, f"test_{suite}", lambda self, suite=suite: self.run_suite(suite))


if __name__ == "__main__":
    unittest.main()

"""Runs modules of CPython's own test package and writes each test's outcome to standard output, one JSON array a line:
its id, what became of it, what it said, and how many seconds it took.

    python3.11 outcomes.py [-m PATTERN]... [-x PATTERN]... MODULE...

The same file runs inside and outside of the sandbox. It stands in for `python3 -m test`, whose report a person reads and
whose XML report breaks on tests that replace sys.stderr. As there, resources (network, audio, much memory) are off
unless they are asked for, and they are not. What the tests print goes to standard error.
"""

import argparse
import faulthandler
import fnmatch
import json
import os
import sys
import tempfile
import time
import unittest

from test import support


class Recorder(unittest.TextTestResult):
    """Knows the worst that happened to each test; a subtest that fails is its test failing."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.outcomes = {}
        self.began, self.seconds = {}, {}

    def startTest(self, test):
        super().startTest(test)
        self.began[test.id()] = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        self.seconds[test.id()] = time.monotonic() - self.began[test.id()]

    def note(self, test, outcome, detail=""):
        if self.outcomes.get(test.id(), ("ok", ""))[0] in ("ok", "skipped"):
            self.outcomes[test.id()] = (outcome, detail)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.outcomes.setdefault(test.id(), ("ok", ""))

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "failed", f"{err[0].__name__}: {err[1]}")

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed", f"{err[0].__name__}: {err[1]}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        # A skipped subtest is reported by itself; the test it belongs to is what can be compared.
        self.note(getattr(test, "test_case", test), "skipped", reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "unexpected success")


def every_test(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from every_test(item)
        else:
            yield item


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", action="append", default=[])
    parser.add_argument("-x", action="append", default=[])
    parser.add_argument("module", nargs="+")
    wanted = parser.parse_args()
    support.use_resources = []
    support.verbose = False
    faulthandler.enable()
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in wanted.module:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            os.chdir(place)
            try:
                tests = unittest.defaultTestLoader.loadTestsFromName(f"test.{name}")
            except unittest.SkipTest as why:
                print(json.dumps([f"test.{name}", "skipped", str(why), 0]), file=report, flush=True)
                continue
            chosen = unittest.TestSuite(
                test
                for test in every_test(tests)
                if (not wanted.m or any(fnmatch.fnmatchcase(test.id(), pattern) for pattern in wanted.m))
                and not any(fnmatch.fnmatchcase(test.id(), pattern) for pattern in wanted.x)
            )
            result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Recorder).run(chosen)
            for test, (outcome, detail) in result.outcomes.items():
                print(json.dumps([test, outcome, detail[:300], round(result.seconds.get(test, 0), 1)]), file=report, flush=True)
            support.reap_children()
            os.chdir("/")
    print(json.dumps(["", "finished", "", 0]), file=report, flush=True)


if __name__ == "__main__":
    main()

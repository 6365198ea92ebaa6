"""The rows that attack the service from outside: group I. The attempts are in the test files of each part; this file
lists the tests of each row and runs them as one.
"""

import importlib.util
import pathlib
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS / "integration"), str(TESTS / "service")]

ROWS = {
    "I01 names in the Host header: foreign, rebound, missing, twice, absolute": ["integration/service_api_test.py I01HostTest"],
    "I02 requests that another site's page makes": ["integration/service_api_test.py I02OriginTest"],
    "I03 who may connect, with which token, and guessing": [
        "integration/service_api_test.py I03AccessTest", "integration/service_api_test.py I03GuessingTest"],
    "I04 requests that two readers read differently, and slow ones": ["integration/service_api_test.py I04ParserTest"],
    "I05 bodies: large, cut off, packed, deep, doubled, not UTF-8": ["integration/service_api_test.py I05BodyTest"],
    "I06 approvals: replayed, swapped, late, one's own, raced": ["service/service_test.py Approvals"],
    "I07 idempotency keys: other bodies, other tenants, all at once, after a restart": ["service/service_test.py Idempotency"],
    "I08 the audit log: injected, cut, edited, reordered, torn": ["integration/audit_command_test.py AuditVerify"],
    "I09 answers: binary output that grows, readers that do not read": ["service/bounds_test.py I09Answers"],
    "I10 quotas: a tenant's own, the machine's, and a launcher that is away": ["service/bounds_test.py I10Quotas"],
    "I11 another tenant's archive by its hash": ["service/bounds_test.py I11Blobs"],
    "I12 connections, streams, bodies and callbacks: too many, slow, without credentials": [
        "service/bounds_test.py I12Connections"],
    "I13 paths of the machine in messages to tenants": ["service/bounds_test.py I13Messages"],
    "I14 decisions raced: which of them is recorded": ["service/bounds_test.py I14Decisions"],
    "I15 archives: layers of compression, names in other forms of Unicode": ["service/bounds_test.py I15Archives"],
}


def load(place):
    file, name = place.split()
    key = pathlib.Path(file).stem
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, TESTS / file)
        sys.modules[key] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[key])
    return unittest.defaultTestLoader.loadTestsFromTestCase(getattr(sys.modules[key], name))


def main():
    broken = []
    for row, places in ROWS.items():
        suite = unittest.TestSuite(load(place) for place in places)
        assert suite.countTestCases() > 0, row
        result = unittest.TextTestRunner(verbosity=1).run(suite)
        held = result.wasSuccessful() and not result.skipped
        print(f"{row.split()[0]}  {'PASS' if held else 'FAIL'}  {row[4:]}", flush=True)
        if not held:
            broken.append(row)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

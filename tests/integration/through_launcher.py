"""Runs another suite with every sandbox made by a launcher: through_launcher.py START SUITE.py [unittest arguments].

START is how sandboxes start: cold, parked or zygote. The suite lies in any folder of tests/ and knows nothing of it. The
launcher is root's when the tests are, and serves the ordinary user too, as it would serve the service.
"""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import ORDINARY_ID, STARTED_BY_ROOT, skip
from launcher import Launcher, find_launcher


START_FLAGS = {"cold": [], "parked": ["--park", "8"], "zygote": ["--park", "8", "--python", "json,re,unittest"]}


def main():
    start, suite, *arguments = sys.argv[1:]
    if start == "zygote" and not find_launcher().with_name("caisson_zygote.so").exists():
        skip("zygote", "this build has no caisson_zygote.so: an interpreter cannot load what a sanitizer has instrumented")
    launcher = Launcher(
        not STARTED_BY_ROOT, *START_FLAGS[start], *(["--allow-uid", ORDINARY_ID] if STARTED_BY_ROOT else [])
    )
    try:
        (path,) = pathlib.Path(__file__).parents[1].glob(f"*/{suite}")
        environment = os.environ | {"CAISSON_LAUNCHER": str(launcher.socket), "CAISSON_START": start}
        code = subprocess.run([sys.executable, "-B", path, *arguments], env=environment, check=False).returncode
    finally:
        ended = launcher.end()
    sys.stderr.write(launcher.log.read_text())
    return code or ended


if __name__ == "__main__":
    try:
        sys.exit(main())
    except unittest.SkipTest as reason:
        print(reason)
        sys.exit(77)  # as tests/CMakeLists.txt has it

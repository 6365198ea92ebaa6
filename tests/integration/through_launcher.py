"""Runs another suite with every sandbox made by a launcher: through_launcher.py SUITE.py [unittest arguments].

The launcher is root's when the tests are, and serves the ordinary user too, as it would serve the service. With
CAISSON_PARK=N it keeps up to N supervisors parked.
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import ORDINARY_ID, STARTED_BY_ROOT
from launcher import Launcher


def main():
    flags = ["--park", os.environ.get("CAISSON_PARK", "0")]
    launcher = Launcher(not STARTED_BY_ROOT, *flags, *(["--allow-uid", ORDINARY_ID] if STARTED_BY_ROOT else []))
    try:
        suite = pathlib.Path(__file__).with_name(sys.argv[1])
        environment = os.environ | {"CAISSON_LAUNCHER": str(launcher.socket)}
        code = subprocess.run([sys.executable, "-B", suite, *sys.argv[2:]], env=environment, check=False).returncode
    finally:
        ended = launcher.end()
    sys.stderr.write(launcher.log.read_text())
    return code or ended


if __name__ == "__main__":
    sys.exit(main())

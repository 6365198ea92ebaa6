"""Runs another suite beside a Docker engine of its own: through_engine.py KIND SUITE.py [unittest arguments], or a program
that is not such a suite: through_engine.py KIND PROGRAM [arguments]. KIND is root or rootless: who runs the engine, and with it the
suite's sandboxes. The suite finds the engine in DOCKER_HOST."""

import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from docker import Docker, RootlessDocker


def main():
    kind, suite, *arguments = sys.argv[1:]
    command = [suite]
    if suite.endswith(".py"):
        (path,) = pathlib.Path(__file__).parents[1].glob(f"*/{suite}")
        command = [sys.executable, "-B", path]
    with {"root": Docker, "rootless": RootlessDocker}[kind]() as engine:
        code = subprocess.run([*command, *arguments], env=os.environ | engine.environment, check=False).returncode
        left = engine.containers()
    if left:
        print(f"containers left behind: {left}", file=sys.stderr)
    return code or bool(left)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except unittest.SkipTest as reason:
        print(reason)
        sys.exit(77)  # as tests/CMakeLists.txt has it

"""What tests of the runtime microvm need: QEMU, and a kernel in build/microvm, which is made if need be."""

import os
import pathlib
import shutil
import subprocess
import unittest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
KERNEL = CHECKOUT / "build" / "microvm"
ALL = bool(os.environ.get("CAISSON_MICROVM_ALL"))


def prepare_or_skip(skip):
    """Sets CAISSON_MICROVM for the programs under test."""
    if not shutil.which("qemu-system-x86_64") or not any(
        os.access(path, os.X_OK) for path in ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")
    ):
        skip("microvm", "QEMU is not installed: apt-get install --no-install-recommends qemu-system-x86")
    if "CAISSON_MICROVM" in os.environ:
        return
    made = subprocess.run(
        ["/usr/bin/python3", "-B", CHECKOUT / "tools" / "microvm_kernel.py", KERNEL], stderr=subprocess.PIPE, text=True, check=False
    )
    if made.returncode != 0:
        skip("microvm", made.stderr)
    os.environ["CAISSON_MICROVM"] = str(KERNEL)


def skip_long(name):
    if not ALL:
        raise unittest.SkipTest(f"{name} in virtual machines takes many minutes; set CAISSON_MICROVM_ALL=1")

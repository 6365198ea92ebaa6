#!/usr/bin/env python3
"""Prepares the kernel for `caisson run --runtime microvm`, without installing it as a kernel of this machine.

  tools/microvm_kernel.py [DIRECTORY]    default: $XDG_CACHE_HOME/caisson/microvm, or ~/.cache/caisson/microvm

Downloads Debian's kernel for clouds with apt-get, unpacks it and keeps vmlinux, which boots faster than the compressed
form, and the modules. Does nothing when the directory has a kernel. Needs root only for `apt-get update`.
"""

import fcntl
import lzma
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

PACKAGE = "linux-image-cloud-amd64"  # depends on the newest of the release
MODULES = ("drivers/virtio/virtio", "drivers/virtio/virtio_ring", "drivers/virtio/virtio_pci",
           "drivers/virtio/virtio_pci_legacy_dev", "drivers/virtio/virtio_pci_modern_dev", "drivers/char/virtio_console",
           "fs/fuse/fuse", "fs/fuse/virtiofs", "fs/overlayfs/overlay")  # fmt: skip


def call(*command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"microvm_kernel: {' '.join(command)} failed:\n{done.stdout.decode(errors='replace')[-2000:]}")
    return done.stdout.decode(errors="replace")


def newest():
    for line in call("apt-cache", "depends", PACKAGE).splitlines():
        if "Depends: linux-image-" in line:
            return line.split("Depends: ")[1].strip()
    return None


def decompress(image):
    """The ELF file in a bzImage, or None if it cannot be unpacked here. Documentation/arch/x86/boot.rst names the fields."""
    if image[0x202:0x206] != b"HdrS":
        return None
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[(sectors + 1) * 512 + offset :][:length]
    kernel = b""
    if payload[:6] == b"\xfd7zXZ\0":
        kernel = lzma.LZMADecompressor().decompress(payload)
    elif payload[:4] == b"\x02!L\x18" and shutil.which("lz4"):
        # The last four bytes are the size of the whole.
        kernel = subprocess.run(["lz4", "-dc"], input=payload[:-4], stdout=subprocess.PIPE, check=False).stdout
    return kernel if kernel[:4] == b"\x7fELF" else None


def build(directory):
    package = newest()
    if package is None and os.geteuid() == 0:
        call("apt-get", "update", "-qq")
        package = newest()
    if package is None:
        raise SystemExit(f"microvm_kernel: apt knows no {PACKAGE}; as root: apt-get update")
    work = pathlib.Path(tempfile.mkdtemp(dir=directory.parent, prefix="microvm-"))
    try:
        call("apt-get", "-o", "APT::Sandbox::User=root", "download", package, cwd=work)
        (archive,) = work.glob("*.deb")
        call("dpkg", "-x", str(archive), str(work / "tree"))
        made = work / "made"
        made.mkdir()
        (image,) = (work / "tree" / "boot").glob("vmlinuz-*")
        kernel = decompress(image.read_bytes())
        (made / ("vmlinuz" if kernel is None else "vmlinux")).write_bytes(kernel or image.read_bytes())
        (modules,) = (work / "tree").glob("**/lib/modules/*/kernel")
        for name in MODULES:
            for path in modules.glob(name + ".ko*"):
                target = made / "modules" / "kernel" / path.relative_to(modules)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        for path in (made, *made.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        made.rename(directory)  # last, so that a directory of that name is always complete
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return package


def main():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else cache / "caisson" / "microvm"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.parent / ".microvm.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():
            print(f"{build(directory)}: in {directory}", file=sys.stderr)


main()

"""A throw-away Debian machine in QEMU: stock kernel, disk root, pure cgroup v2, no network device.

  image = prepare()                        # minutes the first time, nothing afterwards: kept in build/vm/
  result = execute(image, ["caisson", "doctor"], identity="user", timeout=120)
  result.exit_code, result.stdout, result.stderr

Needs Debian 12 (bookworm). Preparing installs the tools below with apt-get and so needs root; executing does not.
KVM is not used: every machine that can run the tests can run these, and the kernel under test is the stock one.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import lzma
import os
import pathlib
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from caisson import skip  # noqa: E402

CHECKOUT = HERE.parent.parent
CACHE = CHECKOUT / "build" / "vm"
PROGRAM = "build/release/src/caisson"
SUITE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

HOST_PACKAGES = {  # a program of each, and the package that has it
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "depmod": "kmod",
    "cpio": "cpio",
}
GUEST_PACKAGES = ("bash", "coreutils", "util-linux", "mount", "procps", "kmod", "iproute2", "python3", "python3-jsonschema",
                  "apparmor", "g++", "libyaml-cpp0.7", "openssl")
KERNEL_PACKAGE = "linux-image-cloud-amd64"  # depends on the newest; its kernel reaches init in seconds under emulation
BOOT_MODULES = ("virtio_pci", "virtio_blk", "virtio_console")
PAYLOAD = ("tests", "schemas", "examples")

MEMORY = "2G"
CPUS = 2
MAX_OUTPUT_BYTES = 64 << 20
KEPT_CONSOLE_BYTES = 64 << 10


class Unavailable(Exception):
    """The machine is not available here; the message says what to do."""


@dataclasses.dataclass
class Image:
    kernel: pathlib.Path
    initramfs: pathlib.Path
    disk: pathlib.Path


@dataclasses.dataclass
class Result:
    exit_code: int
    stdout: bytes
    stderr: bytes


class Failed(Exception):
    """The machine did not deliver an exit code: it hung, crashed or said too much. `timed_out` tells which."""

    def __init__(self, message, timed_out=False):
        super().__init__(message)
        self.timed_out = timed_out


# --- Preparing ---------------------------------------------------------------------------------------------------------


def say(text):
    print("vm: " + text, file=sys.stderr, flush=True)


def call(*command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode != 0:
        tail = done.stdout.decode(errors="replace")[-2000:]
        raise Unavailable(f"{command[0]} failed with exit code {done.returncode}:\n{tail}")
    return done.stdout.decode(errors="replace")


def find_program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def install_tools():
    missing = sorted({package for program, package in HOST_PACKAGES.items() if not find_program(program)})
    if not missing:
        return
    wanted = "apt-get install -y --no-install-recommends " + " ".join(missing)
    if os.geteuid() != 0 or not find_program("apt-get"):
        raise Unavailable("these are needed and not installed; as root: " + wanted)
    say(wanted)
    call("apt-get", "update", "-qq")
    call(*wanted.split(), env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})


def download(package, directory, *options):
    """Unpacks a package without installing it: this host must not get another kernel in its /boot."""
    with tempfile.TemporaryDirectory() as temporary:
        call("apt-get", *options, "-o", "APT::Sandbox::User=root", "download", package, cwd=temporary)
        call("dpkg", "-x", *(str(path) for path in pathlib.Path(temporary).glob("*.deb")), str(directory))


def backports_options(directory):
    """Makes apt see the backports, from the mirror that this host uses, without a change to what the host has set up."""
    mirrors = call("apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {SUITE}", "Created-By: Packages").split()
    if not mirrors:
        raise Unavailable(f"apt has no source of {SUITE}")
    (directory / "lists" / "partial").mkdir(parents=True)
    source = directory / "backports.list"
    source.write_text(f"deb [signed-by={KEYRING}] {mirrors[0]} {SUITE}-backports main\n", encoding="ascii")
    settings = {"Dir::Etc::SourceList": source, "Dir::Etc::SourceParts": "-", "Dir::State::Lists": directory / "lists",
                "Dir::Cache": directory / "cache", "APT::Sandbox::User": "root"}
    return [option for name, value in settings.items() for option in ("-o", f"{name}={value}")]


def newest_kernel(*options):
    for line in call("apt-cache", *options, "depends", KERNEL_PACKAGE).splitlines():
        if "Depends: linux-image-" in line:
            return line.split("linux-image-")[1].strip()
    raise Unavailable(f"apt knows no {KERNEL_PACKAGE}; as root: apt-get update")


def build_initramfs(kernel_tree, version, work, target):
    tree = work / "initramfs"
    for directory in ("bin", "dev", "root", "modules"):
        (tree / directory).mkdir(parents=True)
    download("busybox-static", work / "busybox")
    shutil.copy2(work / "busybox" / "bin" / "busybox", tree / "bin" / "busybox")
    shutil.copy2(HERE / "guest_initramfs", tree / "init")
    order = []
    for module in BOOT_MODULES:
        listing = call("modprobe", "-d", str(kernel_tree), "-S", version, "-C", "/dev/null", "--show-depends", module)
        order += [line.split()[1] for line in listing.splitlines() if line.startswith("insmod")]
    for number, path in enumerate(dict.fromkeys(order)):
        module = pathlib.Path(path).read_bytes()
        if path.endswith(".xz"):  # as newer kernels have them; busybox's insmod does not
            module = lzma.decompress(module)
        (tree / "modules" / f"{number:02}-{pathlib.Path(path).name.removesuffix('.xz')}").write_bytes(module)
    with open(target, "wb") as output:
        names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=tree, input=names.encode(), stdout=output, check=True)


def build(directory, version):
    if os.geteuid() != 0:
        raise Unavailable("there is no image in build/vm yet; building it needs root, for example: sudo tests/vm/run true")
    work = pathlib.Path(tempfile.mkdtemp(dir=CACHE, prefix="work-"))
    try:
        options = backports_options(work / "apt") if version == "backports" else []
        call("apt-get", *options, "update", "-qq")
        version = newest_kernel(*options) if version in (None, "backports") else version
        say(f"building the image with kernel {version}; this is done once")
        kernel_tree, root = work / "kernel", work / "root"
        download(f"linux-image-{version}", kernel_tree, *options)
        call("depmod", "-b", str(kernel_tree), version)
        build_initramfs(kernel_tree, version, work, work / "initramfs.cpio")
        call("mmdebstrap", "--mode=root", "--variant=essential", "--include=" + ",".join(GUEST_PACKAGES), SUITE, str(root))
        # The kernel loads overlayfs and others on demand, as on any host, so all of its modules are there.
        shutil.copytree(kernel_tree / "lib" / "modules", root / "usr" / "lib" / "modules")
        call("mke2fs", "-q", "-t", "ext4", "-d", str(root), "-E", "lazy_itable_init=1", str(work / "root.ext4"), "1500M")
        shutil.copy2(kernel_tree / "boot" / f"vmlinuz-{version}", work / "vmlinuz")
        for part in (kernel_tree, root, work / "initramfs", work / "busybox", work / "apt"):
            shutil.rmtree(part, ignore_errors=True)
        work.chmod(0o755)
        work.rename(directory)  # last, so that a directory of that name is always complete
    finally:
        shutil.rmtree(work, ignore_errors=True)


def prepare(version=None):
    """The image with a kernel, built if need be: of that version, "6.1.0-18-cloud-amd64" say, the newest of the release,
    or, for "backports", the newest that Debian has made for it."""
    install_tools()
    CACHE.mkdir(parents=True, exist_ok=True)
    recipe = b"".join(path.read_bytes() for path in (HERE / "machine.py", HERE / "guest_initramfs"))
    key = hashlib.sha256(recipe + " ".join(GUEST_PACKAGES).encode()).hexdigest()[:16]
    directory = CACHE / f"{version or 'newest'}-{key}"
    if not directory.is_dir():
        with open(CACHE / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.is_dir():
                build(directory, version)
                for old in set(CACHE.glob(f"{version or 'newest'}-????????????????")) - {directory}:
                    shutil.rmtree(old)  # a machine that still runs on it has it open
    return Image(directory / "vmlinuz", directory / "initramfs.cpio", directory / "root.ext4")


def prepare_or_skip():
    """For tests: the kernel that CAISSON_VM_KERNEL names, or the newest. Where it cannot be had the test is skipped, or
    failed if CAISSON_MUST_RUN lists "vm"."""
    try:
        return prepare(os.environ.get("CAISSON_VM_KERNEL"))
    except Unavailable as error:
        skip("vm", str(error))


# --- Executing ---------------------------------------------------------------------------------------------------------


def pack_payload(path, request, files):
    program = pathlib.Path(os.environ.get("CAISSON_BIN", CHECKOUT / PROGRAM))
    if not program.is_file():
        raise Unavailable(f"no program at {program}; build it: cmake --preset release && cmake --build --preset release, or set CAISSON_BIN")

    def as_root(member):
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        return None if "__pycache__" in member.name else member

    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in PAYLOAD:
            archive.add(CHECKOUT / name, arcname=name, filter=as_root)
        archive.add(program.resolve(), arcname=PROGRAM, filter=as_root)
        selftest = program.resolve().with_name("caisson-selftest")
        if selftest.is_file():
            archive.add(selftest, arcname=PROGRAM + "-selftest", filter=as_root)
        for name in files:
            archive.add(CHECKOUT / name, arcname=name, filter=as_root)
        text = json.dumps(request).encode()
        member = tarfile.TarInfo("request.json")
        member.size, member.mode = len(text), 0o644
        archive.addfile(member, io.BytesIO(text))


def qemu_command(image, payload, frames_fd, console_fd):
    # The parent-death signal is what ends QEMU when we are killed ourselves.
    return [
        "setpriv", "--pdeathsig", "KILL", "nice", "-n", "5",
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none", "-nic", "none",
        "-accel", "tcg", "-machine", "q35", "-cpu", "max,la57=off", "-smp", str(CPUS), "-m", MEMORY,
        "-kernel", str(image.kernel), "-initrd", str(image.initramfs),
        "-append", "console=ttyS0 quiet panic=-1",
        "-drive", f"if=none,id=root,format=raw,snapshot=on,file={image.disk}", "-device", "virtio-blk-pci,drive=root",
        "-drive", f"if=none,id=payload,format=raw,readonly=on,file={payload}", "-device", "virtio-blk-pci,drive=payload",
        "-chardev", f"file,id=console,path=/proc/self/fd/{console_fd}", "-serial", "chardev:console",
        "-chardev", f"file,id=frames,path=/proc/self/fd/{frames_fd}",
        "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=frames,name=caisson",
    ]


class Receiver:
    """Takes the frames of guest_agent.py apart."""

    def __init__(self, on_output):
        self.streams = {b"o": bytearray(), b"e": bytearray()}
        self.exit_code = None
        self._on_output = on_output
        self._pending = bytearray()

    def feed(self, data):
        self._pending += data
        while len(self._pending) >= 5 and self.exit_code is None:
            kind, size = bytes(self._pending[:1]), struct.unpack(">I", self._pending[1:5])[0]
            if kind not in (b"o", b"e", b"x") or size > MAX_OUTPUT_BYTES:
                raise Failed("the machine sent something that is no frame")
            if len(self._pending) < 5 + size:
                return
            body = bytes(self._pending[5:5 + size])
            del self._pending[:5 + size]
            if kind == b"x":
                self.exit_code = int(body)
                return
            self.streams[kind] += body
            if sum(map(len, self.streams.values())) > MAX_OUTPUT_BYTES:
                raise Failed(f"the command wrote more than {MAX_OUTPUT_BYTES} bytes")
            if self._on_output:
                self._on_output(kind == b"e", body)


def receive(frames, console, receiver, deadline):
    """Reads until the exit code is there; returns what the console said."""
    log = bytearray()
    with selectors.DefaultSelector() as selector:
        for pipe in (frames, console):
            selector.register(pipe, selectors.EVENT_READ)
        while receiver.exit_code is None and selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failed("time limit reached; the console's last words:\n" + log.decode(errors="replace")[-2000:], timed_out=True)
            for key, _ in selector.select(left):
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fileobj is frames:
                    receiver.feed(data)
                else:
                    log += data
                    del log[:-KEPT_CONSOLE_BYTES]
    return log


def execute(image, argv, identity="root", timeout=240, on_output=None, files=()):
    """Boots, runs argv as "root", "user" (uid 1000) or "delegated" (a user with a delegated cgroup), switches off.
    on_output(is_stderr, bytes) sees output as it comes. The guest has the tests, the program and these `files` where the
    checkout has them."""
    if not find_program("qemu-system-x86_64"):
        raise Unavailable("qemu-system-x86_64 is not installed")
    with contextlib.ExitStack() as stack:
        temporary = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="caisson-vm-")))
        pack_payload(temporary / "payload.tar", {"argv": argv, "as": identity}, files)
        frames_end, frames_fd = os.pipe()
        console_end, console_fd = os.pipe()
        frames = stack.enter_context(open(frames_end, "rb", buffering=0))
        console = stack.enter_context(open(console_end, "rb", buffering=0))
        errors = stack.enter_context(open(temporary / "qemu.log", "w+b"))
        machine = subprocess.Popen(
            qemu_command(image, temporary / "payload.tar", frames_fd, console_fd),
            stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, pass_fds=(frames_fd, console_fd), start_new_session=True,
            env=os.environ | {"TMPDIR": str(temporary)},  # for the snapshot, so that it goes when we go
        )
        stack.callback(machine.wait)
        stack.callback(machine.send_signal, signal.SIGKILL)
        os.close(frames_fd)
        os.close(console_fd)
        receiver = Receiver(on_output)
        log = receive(frames, console, receiver, time.monotonic() + timeout)
        if receiver.exit_code is None:
            errors.seek(0)
            raise Failed("the machine ended without an exit code:\n" + (errors.read() + bytes(log)).decode(errors="replace")[-4000:])
        return Result(receiver.exit_code, bytes(receiver.streams[b"o"]), bytes(receiver.streams[b"e"]))

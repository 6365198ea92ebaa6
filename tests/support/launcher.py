"""Starts a caisson-launcher for tests, and talks to it as a client that breaks the protocol."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess

from caisson import ORDINARY_ID, STARTED_BY_ROOT, find_binary, wait_until, workbench

KIND_OPEN, KIND_START, KIND_EXECUTE, KIND_COLLECT = 0x80, 0x81, 0x82, 0x83
KIND_ERROR = 0x8B
VERSION = 5
WARMEST = 2


def find_launcher():
    named = os.environ.get("CAISSON_LAUNCHER_BIN")
    path = pathlib.Path(named) if named else find_binary().parent / "caisson-launcher"
    if os.access(path, os.X_OK):
        return path.resolve()
    raise SystemExit("caisson-launcher is not built; build it or set CAISSON_LAUNCHER_BIN")


def as_user(command):
    return ["setpriv", f"--reuid={ORDINARY_ID}", f"--regid={ORDINARY_ID}", "--clear-groups", *command]


class Launcher:
    """A launcher that listens at `socket`, run by root or by the ordinary user."""

    _count = 0

    def __init__(self, run_by_user, *flags):
        Launcher._count += 1
        bench = workbench()
        self.binary = bench.root / "launcher"
        if not self.binary.exists():
            shutil.copyfile(find_launcher(), self.binary)
            self.binary.chmod(0o755)
            for part in ("caisson_zygote.so", "caisson-zygote.py"):
                if (source := find_launcher().with_name(part)).exists():
                    shutil.copyfile(source, self.binary.with_name(part))
        # In a directory of its own: root's launcher may serve a user who cannot look into root's home.
        directory = bench.root / f"launcher-{Launcher._count}"
        directory.mkdir(mode=0o755)
        if run_by_user and STARTED_BY_ROOT:
            os.chown(directory, ORDINARY_ID, ORDINARY_ID)
        self.socket = directory / "socket"
        command = [str(self.binary), "--socket", str(self.socket), *map(str, flags)]
        environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
        self.log = directory / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                as_user(command) if run_by_user and STARTED_BY_ROOT else command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        wait_until(lambda: self.listens() or self.log.read_text(), 10, "the launcher listens")

    def listens(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    @property
    def pid(self):
        return self.process.pid

    def supervisors(self):
        """Process numbers of the runs it has now."""
        text = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=10)

    def end(self):
        """As an operator would; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=10)


class RawClient:
    """The client's side of the protocol, byte by byte."""

    def __init__(self, path):
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.connect(str(path))

    def open(self, version=VERSION):
        """Our end of a new run's connection."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self.control, [bytes([KIND_OPEN, 0]) + version.to_bytes(8, "little") + bytes([WARMEST])], [theirs.fileno()])
        ours.settimeout(30)
        return ours

    @staticmethod
    def last_words(run):
        """The message of the error that ends the run."""
        packet = run.recv(1 << 17)
        if not packet or packet[0] != KIND_ERROR:
            raise AssertionError(f"expected an error, got {packet[:64]!r}")
        if run.recv(1 << 17) != b"":
            raise AssertionError("the supervisor goes on after an error")
        return packet[15:].decode(errors="replace")  # behind the header, the kind, the errno and the length

    def close(self):
        self.control.close()

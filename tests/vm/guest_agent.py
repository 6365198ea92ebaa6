"""Inside the virtual machine: runs the requested command and sends what it says and how it ends to the host.

Everything goes through one virtio port, as frames of one kind byte, a 32-bit big-endian length, and that many bytes:
  o  standard output      e  standard error      x  exit code in decimal, the last frame
One ordered channel, so that a frame "x" proves that nothing before it is missing; length-prefixed, so that no output can
be mistaken for the end.
"""

import glob
import json
import os
import pathlib
import selectors
import struct
import subprocess
import time

from delegation import CGROUPS, delegate

CHECKOUT = pathlib.Path("/srv/caisson")
LINGER_SECONDS = 2  # for output of processes that outlive the command
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "CAISSON_BIN": str(CHECKOUT / "build/release/src/caisson"),
    "PYTHONDONTWRITEBYTECODE": "1",
}
ROOT = {"HOME": "/root", "USER": "root"}
USER = {"HOME": "/home/user", "USER": "user", "XDG_RUNTIME_DIR": "/run/user/1000"}
IDENTITIES = {  # who, and how the group to be in is made or found
    "root": (0, ROOT, lambda: "user.slice/user-0.slice/session-1.scope"),
    "user": (1000, USER, lambda: "user.slice/user-1000.slice/session-1.scope"),
    "delegated": (1000, USER, lambda: delegate("delegated", ["memory", "pids", "cpu"])),
}


def open_port():
    for name in glob.glob("/sys/class/virtio-ports/*/name"):
        if pathlib.Path(name).read_text().strip() == "caisson":
            return open("/dev/" + name.split("/")[-2], "wb", buffering=0)
    raise SystemExit("guest_agent: no virtio port named caisson")


def send(port, kind, data):
    frame = kind + struct.pack(">I", len(data)) + data
    while frame:
        frame = frame[port.write(frame):]


def start(request):
    uid, variables, find_group = IDENTITIES[request["as"]]
    group = CGROUPS / find_group() / "cgroup.procs"

    def join_session():
        group.write_text("0")  # before the identity changes: only root may

    # "user" of Popen is applied before preexec_fn, so the change of identity is left to setpriv.
    become = [] if uid == 0 else ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]
    return subprocess.Popen(
        become + request["argv"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=CHECKOUT,
        env=ENVIRONMENT | variables,
        preexec_fn=join_session,
    )


def forward(command, port):
    with selectors.DefaultSelector() as selector:
        selector.register(command.stdout, selectors.EVENT_READ, b"o")
        selector.register(command.stderr, selectors.EVENT_READ, b"e")
        give_up = None
        while selector.get_map():
            for key, _ in selector.select(0.1):
                data = os.read(key.fd, 65536)
                if data:
                    send(port, key.data, data)
                else:
                    selector.unregister(key.fileobj)
            if give_up is None and command.poll() is not None:
                give_up = time.monotonic() + LINGER_SECONDS
            if give_up is not None and time.monotonic() > give_up:
                break
    status = command.wait()
    return status if status >= 0 else 128 - status


def main():
    port = open_port()
    request = json.loads((CHECKOUT / "request.json").read_text(encoding="utf-8"))
    try:
        exit_code = forward(start(request), port)
    except OSError as error:
        send(port, b"e", f"guest_agent: {request['argv'][0]}: {error.strerror}\n".encode())
        exit_code = 127
    send(port, b"x", str(exit_code).encode())


main()

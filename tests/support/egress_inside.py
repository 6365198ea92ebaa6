"""Runs inside a fresh network namespace, for tests/support/egress.py: makes what PID 1 of a sandbox makes, hands the sockets
out, then starts the programs it is told to.

  egress_inside.py FD       FD is a unix stream socket: descriptors go out over it, commands come in, one JSON object a line
  egress_inside.py --own ADDRESS PROGRAM    not a sandbox but a host: gives lo the address and becomes the program
"""

import array
import base64
import ctypes
import fcntl
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile

SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
UNBOUND = 200


def interface(name, address=None, mask=None):
    """lo, up, with an address."""
    def packed(ip):
        return struct.pack("16sH2s4s8s", name.encode(), socket.AF_INET, b"\0\0", socket.inet_aton(ip), b"")

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        if address:
            fcntl.ioctl(control, SIOCSIFADDR, packed(address))
            fcntl.ioctl(control, SIOCSIFNETMASK, packed(mask))
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14s", name.encode(), 0x49, b""))  # up, loopback, running


def resolv_conf():
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.NamedTemporaryFile("w", prefix="caisson-test-resolv-", dir="/tmp", delete=False) as file:
        file.write("nameserver 127.0.0.53\noptions timeout:2 attempts:1\n")
    os.chmod(file.name, 0o644)
    target = os.path.realpath("/etc/resolv.conf")
    for source, where, flags in ((None, "/", MS_REC | MS_PRIVATE), (file.name, target, MS_BIND)):
        if libc.mount(source and source.encode(), where.encode(), None, flags, None) != 0:
            raise OSError(ctypes.get_errno(), f"mount {where}")
    pathlib.Path(file.name).unlink()


def sandbox(control):
    interface("lo")
    interface("lo:1", "198.18.0.1", "255.254.0.0")
    resolv_conf()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.53", 53))
    tcp = socket.socket()
    tcp.bind(("127.0.0.53", 53))
    tcp.listen(16)
    proxy = socket.socket()
    proxy.bind(("127.0.0.1", 3128))
    proxy.listen(16)
    sockets = [udp, tcp, proxy, *(socket.socket() for _ in range(UNBOUND))]
    for at in range(0, len(sockets), 50):
        fds = array.array("i", [one.fileno() for one in sockets[at : at + 50]])
        control.sendmsg([b"s"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        control.recv(1)
    for one in sockets:
        one.close()
    control.sendall(b".")
    for line in control.makefile("r"):
        order = json.loads(line)
        try:
            done = subprocess.run(order["argv"], input=base64.b64decode(order["stdin"]), capture_output=True, check=False,
                                  timeout=order["seconds"])  # fmt: skip
            answer = [done.returncode, *(base64.b64encode(stream).decode() for stream in (done.stdout, done.stderr))]
        except subprocess.TimeoutExpired as late:
            answer = [-1, base64.b64encode(late.stdout or b"").decode(), base64.b64encode(b"timeout").decode()]
        control.sendall(json.dumps(answer).encode() + b"\n")


if sys.argv[1] == "--own":
    interface("lo")
    interface("lo:1", sys.argv[2], "255.255.255.255")
    os.execv(sys.argv[3], sys.argv[3:])
else:
    sandbox(socket.socket(fileno=int(sys.argv[1])))

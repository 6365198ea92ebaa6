"""Rows about a sandbox with a network that need name servers and servers outside: each test has a network of its own, in which
everything that leaves the sandbox is seen. The control of each row is a name that may be reached, in the same run."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import REPOSITORY, STARTED_BY_ROOT, skip

BINARY = pathlib.Path(os.environ.get("CAISSON_BIN", REPOSITORY / "build/release/src/caisson")).resolve()

PROFILE = """
version: 1
name: walls
extends: balanced
on_violation: report
network:
  mode: allowlist
  allow: ["tcp://good.example:8080", "tcp://bad.example:8080", "tcp://turns.example:8080"]
  private_ranges: [127.0.0.1]
"""

# Runs as root in a network and a mount namespace of its own. Reads a program for the sandbox; prints what was seen outside.
OUTSIDE = r"""
import ctypes, fcntl, json, os, pathlib, socket, struct, subprocess, sys, threading
binary, profile, resolv, code = sys.argv[1:5]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14s", b"lo", 0x49, b""))
libc = ctypes.CDLL(None)
assert libc.mount(None, b"/", None, 16384 | 1 << 18, None) == 0
assert libc.mount(resolv.encode(), os.path.realpath("/etc/resolv.conf").encode(), None, 4096, None) == 0
asked, reached = [], []
answers = {"good.example": ["127.0.0.1"], "bad.example": ["127.0.0.2"], "turns.example": ["127.0.0.1", "127.0.0.2"]}
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))
def answer():
    while True:
        packet, peer = names.recvfrom(2000)
        labels, at = [], 12
        while packet[at]:
            labels.append(packet[at + 1 : at + 1 + packet[at]].decode())
            at += 1 + packet[at]
        name, kind = ".".join(labels), packet[at + 2]
        asked.append(name)
        found = answers.get(name, []) if kind == 1 else []
        record = b""
        if found:
            address = found.pop(0) if len(found) > 1 else found[0]
            record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(address)
        names.sendto(packet[:2] + struct.pack(">HHHHH", 0x8180, 1, 1 if record else 0, 0, 0) + packet[12 : at + 5] + record, peer)
def serve(address):
    server = socket.create_server((address, 8080))
    def run():
        while True:
            peer, _ = server.accept()
            reached.append(address)
            peer.sendall(b"hello")
            peer.close()
    threading.Thread(target=run, daemon=True).start()
threading.Thread(target=answer, daemon=True).start()
serve("127.0.0.1")
serve("127.0.0.2")
walls = []
process = subprocess.Popen([binary, "run", "--json", "--profile", profile, "--", "python3", "-S", "-c", code], stdout=subprocess.PIPE,
                           stdin=subprocess.PIPE)
if "input()" in code:
    # The program inside waits: look at the processes that serve it.
    def read(path):
        try: return pathlib.Path(path).read_text()
        except OSError: return ""  # the process has ended
    def below(pid):
        for child in read(f"/proc/{pid}/task/{pid}/children").split():
            yield int(child)
            yield from below(int(child))
    import time
    end = time.monotonic() + 20
    while len(walls) < 2 and time.monotonic() < end:
        walls = []
        for pid in below(process.pid):
            status = dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
            try: program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            except OSError: continue
            if program.startswith("caisson-egress") and status.get("Seccomp", "0").strip() == "2":
                walls.append([status["Uid"].split()[0], status["CapEff"].strip(), status["NoNewPrivs"].strip()])
out, _ = process.communicate(b"\n", timeout=60)
print(json.dumps({"asked": asked, "reached": reached, "walls": walls, "result": json.loads(out)}))
"""

INSIDE = """
import socket
def look_up(name):
    try: return socket.getaddrinfo(name, 8080, socket.AF_INET)[0][4][0]
    except OSError: return None
def talk(name):
    try:
        with socket.create_connection((name, 8080), 5) as peer: return peer.recv(9).decode()
    except OSError: return None
"""


@unittest.skipUnless(STARTED_BY_ROOT, "*** NOT TESTED (root): needs a network namespace of its own ***")
class Walls(unittest.TestCase):
    def outside(self, code):
        if not os.access(BINARY, os.X_OK):
            skip("escape", f"{BINARY} is not built")
        with tempfile.TemporaryDirectory(dir="/tmp") as top:
            files = pathlib.Path(top)
            (files / "profile.yaml").write_text(PROFILE)
            (files / "resolv.conf").write_text("nameserver 127.0.0.1\n")
            done = subprocess.run(["unshare", "--net", "--mount", "/usr/bin/python3", "-B", "-c", OUTSIDE, BINARY, files / "profile.yaml",
                                   files / "resolv.conf", INSIDE + code],
                                  env={**os.environ, "CAISSON_URL": "none"}, capture_output=True, timeout=120, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)

    def test_G41_names_that_are_not_allowed_are_asked_for_nowhere(self):
        seen = self.outside("print(look_up('secret.evil.example'), look_up('secret.good.example'), talk('good.example'))")
        self.assertEqual(seen["result"]["stdout"], "None None hello\n")
        self.assertEqual(set(seen["asked"]), {"good.example"})

    def test_G42_a_look_up_alone_leaves_nothing(self):
        seen = self.outside("print(look_up('bad.example') is not None, talk('good.example'))")
        self.assertEqual(seen["result"]["stdout"], "True hello\n")
        self.assertEqual(set(seen["asked"]), {"good.example"})

    def test_G43_the_address_that_was_checked_is_dialled(self):
        seen = self.outside("print(talk('turns.example'))")
        self.assertEqual((seen["result"]["stdout"], seen["reached"]), ("hello\n", ["127.0.0.1"]))

    def test_G44_an_address_that_may_not_be_dialled(self):
        seen = self.outside("print(talk('bad.example'), talk('good.example'))")
        self.assertEqual((seen["result"]["stdout"], seen["reached"]), ("None hello\n", ["127.0.0.1"]))
        self.assertIn("address_loopback", [one["evidence"].get("decision") for one in seen["result"]["violations"]])

    def test_G45_the_relay_and_the_resolver_are_nobody(self):
        seen = self.outside("print(talk('good.example')); input()")
        self.assertEqual(seen["walls"], [["65534", "0000000000000000", "1"]] * 2)


if __name__ == "__main__":
    unittest.main()

"""Drives caisson-egress as the supervisor of a sandbox will: a network namespace whose sockets were handed out, and the
owner's end of the control socket. The wire format is written down here a second time, on purpose: the product's own
description is what is tested.
"""

import array
import base64
import contextlib
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
SETTINGS, RULE, GRANT, HOST, NAMESERVER, DNS, PROXY, START, LISTENER, FINISH = range(1, 11)
READY, BIND, EVENT, TOTALS, FAULT = range(32, 37)
WHAT = ("lookup", "opened", "closed", "refused")
TOTAL_NAMES = ("questions", "questions_denied", "questions_malformed", "connections", "refused", "bytes_in", "bytes_out",
               "events_unlisted")  # fmt: skip
DEFAULTS = {
    "pool": 0xC6120000, "pool_bits": 15, "reserved": 2, "uid": 65534, "gid": 65534, "max_connections": 256,
    "connections_per_second": 1000, "max_bytes": 0, "bytes_per_second": 0, "names_per_wildcard": 64,
    "first_bytes_ms": 1500, "connect_ms": 3000,
}  # fmt: skip
SECONDS = 30


def find_egress():
    named = os.environ.get("CAISSON_EGRESS_BIN")
    caisson = os.environ.get("CAISSON_BIN")
    root = HERE.parents[1]
    places = [named] if named else [
        *([pathlib.Path(caisson).parent / "caisson-egress"] if caisson else []),
        root / "build/release/src/caisson-egress", root / "build/dev/src/caisson-egress"]  # fmt: skip
    for place in places:
        if os.access(place, os.X_OK):
            return pathlib.Path(place).resolve()
    raise SystemExit("caisson-egress is not built")


def text(value):
    value = value.encode()
    return struct.pack("<H", len(value)) + value


class Namespace:
    """A sandbox's network: lo with the pool, and everything that PID 1 would have handed out."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        self.process = subprocess.Popen(
            ["unshare", *user, "--net", "--mount", "/usr/bin/python3", "-B", str(HERE / "egress_inside.py"), str(theirs.fileno())],
            pass_fds=(theirs.fileno(),))  # fmt: skip
        theirs.close()
        self.control = ours
        ours.settimeout(SECONDS)
        self.sockets = []
        while True:
            data, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(50 * 4))
            if data == b".":
                break
            if not data:
                raise AssertionError("the namespace could not be made")
            for _, _, fds in ancillary:
                numbers = array.array("i")
                numbers.frombytes(fds)
                self.sockets += [socket.socket(fileno=fd) for fd in numbers]
            ours.sendall(b"+")
        self.lines = ours.makefile("r")
        self.udp, self.tcp, self.proxy, *self.unbound = self.sockets

    def run(self, argv, stdin=b"", seconds=SECONDS):
        self.control.settimeout(seconds + SECONDS)
        order = {"argv": argv, "stdin": base64.b64encode(stdin).decode(), "seconds": seconds}
        self.control.sendall(json.dumps(order).encode() + b"\n")
        code, out, err = json.loads(self.lines.readline())
        return code, base64.b64decode(out), base64.b64decode(err).decode(errors="replace")

    def python(self, code, seconds=SECONDS):
        """What the program printed, read as JSON."""
        status, out, err = self.run(["/usr/bin/python3", "-B", "-c", code], seconds=seconds)
        if status != 0:
            raise AssertionError(err)
        return json.loads(out)

    def close(self):
        for one in (self.lines, self.control, *self.sockets):
            one.close()
        self.process.wait(SECONDS)


class Egress:
    """caisson-egress with this process as its owner."""

    def __init__(self, namespace, allow=(), deny=(), grants=("127.0.0.0/8",), hosts=(), nameservers=(), proxy=False, command=(),
                 **settings):  # fmt: skip
        self.namespace = namespace
        self.events, self.binds, self.totals, self.faults = [], [], None, []
        self.changed = threading.Condition()
        self.refuse_binds = 0
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = ours
        self.process = subprocess.Popen([*command, str(find_egress())], stdin=theirs, stdout=subprocess.DEVNULL)
        theirs.close()
        values = {**DEFAULTS, **settings}
        self.send(SETTINGS, struct.pack("<IBIIIIIQQIII", *(values[name] for name in DEFAULTS)))
        for flag, rules in ((1, allow), (0, deny)):
            for rule in rules:
                self.send(RULE, bytes([flag]) + text(rule) + text(""))
        for one in grants:
            self.send(GRANT, text(one))
        for name, address in hosts:
            self.send(HOST, text(name) + text(address))
        for address, port in nameservers:
            self.send(NAMESERVER, text(address) + struct.pack("<H", port))
        self.send(DNS, b"", [namespace.udp, namespace.tcp])
        if proxy:
            self.send(PROXY, b"", [namespace.proxy])
        self.send(START)
        self.landlock = None
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.wait(lambda: self.landlock is not None or self.faults)

    def send(self, kind, body=b"", sockets=()):
        fds = array.array("i", [one.fileno() for one in sockets])
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if sockets else []
        self.control.sendmsg([bytes([kind]) + body], ancillary)

    def read(self):
        while True:
            try:
                frame = self.control.recv(65536)
            except OSError:
                frame = b""
            if not frame:
                return
            with self.changed:
                self.take(frame[0], frame[1:])
                self.changed.notify_all()

    def take(self, kind, body):
        if kind == READY:
            self.landlock = body[0]
        elif kind == BIND:
            number, address, port = struct.unpack_from("<IIH", body)
            self.bind(number, socket.inet_ntoa(struct.pack(">I", address)), port)
        elif kind == EVENT:
            what, allowed, connection, count, port, into, out, duration = struct.unpack_from("<BBIIHQQQ", body)
            rest, texts = body[36:], []
            while rest:
                size = struct.unpack_from("<H", rest)[0]
                texts.append(rest[2 : 2 + size].decode())
                rest = rest[2 + size :]
            names = ("name", "protocol", "address", "rule", "reason")
            self.events.append({"what": WHAT[what], "allowed": bool(allowed), "connection": connection, "count": count, "port": port,
                                "bytes_in": into, "bytes_out": out, "duration_us": duration, **dict(zip(names, texts, strict=True))})  # fmt: skip
        elif kind == TOTALS:
            self.totals = dict(zip(TOTAL_NAMES, struct.unpack("<8Q", body), strict=True))
        elif kind == FAULT:
            self.faults.append(body[2:].decode())

    def bind(self, number, address, port):
        """What the supervisor does: one of the sandbox's sockets is bound, from outside, and handed over."""
        self.binds.append((address, port))
        one = self.namespace.unbound.pop()
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((address, port))
            one.listen(1024)
        except OSError as error:
            self.send(LISTENER, struct.pack("<II", number, error.errno))
        else:
            self.send(LISTENER, struct.pack("<II", number, 0), [one])
        one.close()

    def wait(self, condition, seconds=SECONDS):
        end = time.monotonic() + seconds
        with self.changed:
            while not condition():
                if not self.changed.wait(end - time.monotonic()):
                    raise AssertionError(f"not seen in time; events: {self.events}")

    def wait_event(self, **wanted):
        found = []

        def seen():
            found[:] = [event for event in self.events if all(event[key] == value for key, value in wanted.items())]
            return found

        self.wait(seen)
        return found[0]

    def finish(self):
        self.send(FINISH)
        self.wait(lambda: self.totals is not None)
        return self.totals

    def resident_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))

    def resolver_pid(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii").split()[0])

    def close(self):
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)
        self.process.wait(SECONDS)
        self.reader.join(SECONDS)
        self.control.close()


class NameServer:
    """A DNS server outside that counts what it is asked. `answers`: name -> list of replies, used in turn, the last for ever;
    a reply is a list of addresses and ("alias", name)."""

    def __init__(self, answers):
        self.answers = {name: list(replies) for name, replies in answers.items()}
        self.asked = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address = self.socket.getsockname()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    @staticmethod
    def wire(name):
        return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"

    def serve(self):
        while True:
            try:
                packet, peer = self.socket.recvfrom(4096)
            except OSError:
                return
            if packet == b"stop":
                return
            labels, at = [], 12
            while packet[at]:
                labels.append(packet[at + 1 : at + 1 + packet[at]].decode())
                at += 1 + packet[at]
            name, kind = ".".join(labels), struct.unpack_from(">H", packet, at + 1)[0]
            self.asked.append((name, kind))
            replies = self.answers.get(name)
            reply = [] if not replies else replies[0]
            if replies and len(replies) > 1 and kind == 1:
                replies.pop(0)
            records, owner = b"", name
            count = 0
            for one in reply:
                if isinstance(one, tuple):
                    data, code = self.wire(one[1]), 5
                else:
                    code = 28 if ":" in one else 1
                    data = socket.inet_pton(socket.AF_INET6 if code == 28 else socket.AF_INET, one)
                if code in (5, kind):
                    records += self.wire(owner) + struct.pack(">HHIH", code, 1, 0, len(data)) + data
                    count += 1
                if code == 5:
                    owner = one[1]
            flags = 0x8180 if replies else 0x8183
            header = packet[:2] + struct.pack(">HHHHH", flags, 1, count, 0, 0)
            self.socket.sendto(header + packet[12 : at + 5] + records, peer)

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"stop", self.address)
        self.thread.join(SECONDS)
        self.socket.close()


class Server:
    """A TCP server outside, on its own thread; `serve(connection)` handles each in a thread of its own."""

    def __init__(self, serve, context=None):
        self.serve, self.context = serve, context
        self.accepted = 0
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.socket.getsockname()[1]
        self.closing = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            if self.closing:
                connection.close()
                return
            self.accepted += 1
            threading.Thread(target=self.handle, args=(connection,), daemon=True).start()

    def handle(self, connection):
        try:
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            self.serve(connection)
        except (OSError, ValueError) as error:
            print(f"server: {error}", file=sys.stderr)
        finally:
            connection.close()

    def close(self):
        self.closing = True
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
        self.thread.join(SECONDS)
        self.socket.close()

"""caisson-egress from outside: real clients in a network namespace like a sandbox's, real servers outside it, and this test in
the place of the supervisor. As root, and by AsUserTest the same as an ordinary user."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.caisson import ORDINARY_ID, STARTED_BY_ROOT, skip  # noqa: E402
from support.egress import SECONDS, Egress, NameServer, Namespace, Server, find_egress  # noqa: E402

# Helpers for the programs that run inside.
INSIDE = r"""
import json, socket, struct, ssl, sys, time
def wire(name): return b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0"
def query(name, kind=1, number=7, extra=b"", counts=(1, 0, 0, 0)):
    return struct.pack(">HHHHHH", number, 0x100, *counts) + wire(name) + struct.pack(">HH", kind, 1) + extra
def ask(packet, seconds=2):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(seconds); s.connect(("127.0.0.53", 53)); s.send(packet)
        try: a = s.recv(4096)
        except TimeoutError: return None
    return [a[3] & 15, struct.unpack_from(">H", a, 6)[0], a[12:].hex()]
def talk(address, data, seconds=5, size=65536, end=False):
    got = b""
    try: s = socket.create_connection(address, timeout=seconds)
    except ConnectionResetError: return "<reset>"
    with s:
        try:
            s.sendall(data)
            if end: s.shutdown(socket.SHUT_WR)
            while part := s.recv(size):
                got += part
            return got.decode("latin-1") + "<end>"
        except TimeoutError: return got.decode("latin-1") + "<timeout>"
        except OSError: return got.decode("latin-1") + "<reset>"  # the reset came before sending or shutting down
def hello(*names, pad=0, raw=None):
    entries = b"".join(b"\0" + struct.pack(">H", len(n)) + n for n in names)
    sni = struct.pack(">H", len(entries)) + entries
    extensions = struct.pack(">HH", 0, len(sni)) + sni if names else b""
    if raw is not None: extensions = raw
    extensions += struct.pack(">HH", 51, pad) + b"k" * pad
    body = b"\3\3" + b"r" * 32 + b"\0" + b"\0\2\x13\1" + b"\1\0" + struct.pack(">H", len(extensions)) + extensions
    message = b"\1" + struct.pack(">I", len(body))[1:] + body
    return b"".join(b"\x16\3\1" + struct.pack(">H", len(p)) + p for p in (message[i:i + 16000] for i in range(0, len(message), 16000)))
def show(value): print(json.dumps(value))
"""


def echo(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)


def read_head(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return data, b""
        data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


class Web:
    """A plain HTTP server that remembers the requests it saw: lengths and chunks are its own reading of the standard."""

    def __init__(self):
        self.requests = []
        self.server = Server(self.serve)
        self.port = self.server.port

    def serve(self, connection):
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                part = connection.recv(65536)
                if not part:
                    return
                data += part
            head, _, data = data.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
            body = b""
            if fields.get(b"upgrade") == b"websocket":
                connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + data)
                return echo(connection)
            if fields.get(b"transfer-encoding") == b"chunked":
                while b"0\r\n\r\n" not in data:
                    data += connection.recv(65536)
                body, _, data = data.partition(b"0\r\n\r\n")
            length = int(fields.get(b"content-length", 0))
            while len(data) < length:
                data += connection.recv(65536)
            body, data = (data[:length], data[length:]) if length else (body, data)
            self.requests.append((head.split(b"\r\n")[0].decode(), body))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")

    def close(self):
        self.server.close()


class EgressCase(unittest.TestCase):
    def setUp(self):
        self.namespace = Namespace()
        self.addCleanup(self.namespace.close)

    def start(self, **settings):
        egress = Egress(self.namespace, **settings)
        self.addCleanup(egress.close)
        self.assertEqual(egress.faults, [])
        return egress

    def serve(self, handler, context=None):
        server = Server(handler, context)
        self.addCleanup(server.close)
        return server

    def name_server(self, answers):
        server = NameServer(answers)
        self.addCleanup(server.close)
        return server

    def inside(self, code, seconds=SECONDS):
        return self.namespace.python(INSIDE + code, seconds)

    def web(self):
        web = Web()
        self.addCleanup(web.close)
        return web


class DnsTest(EgressCase):
    def test_allowed_and_denied_names(self):
        """Cases 1, 2, 9, 10, 11, 13: what is not listed is NXDOMAIN, and nothing of it leaves."""
        outside = self.name_server({})
        egress = self.start(allow=["api.allowed.test", "*.below.test", "**.both.test"], deny=["evil.both.test"],
                            nameservers=[outside.address])  # fmt: skip
        answers = self.inside("""
names = ["api.allowed.test", "Api.Allowed.TEST", "SECRET.evil.com", "SECRET.api.allowed.test", "below.test", "a.b.below.test",
         "evilbelow.test", "both.test", "x.both.test", "evil.both.test", "xn--pi-6kc1b.allowed.test"]
show({name: ask(query(name)) for name in names})""")
        allowed = {name for name, (code, count, _) in answers.items() if code == 0 and count == 1}
        self.assertEqual(allowed, {"api.allowed.test", "Api.Allowed.TEST", "a.b.below.test", "both.test", "x.both.test"})
        self.assertTrue(all(code == 3 for name, (code, _, _) in answers.items() if name not in allowed))
        self.assertEqual(answers["api.allowed.test"][2][-8:], answers["Api.Allowed.TEST"][2][-8:])
        self.assertTrue(answers["api.allowed.test"][2].endswith("0000001e0004c6120002"), "TTL 30, the pool's first address")
        self.assertEqual(egress.wait_event(name="evil.both.test")["reason"], "denied_by_rule")
        self.assertEqual(egress.wait_event(name="secret.evil.com")["reason"], "not_listed")
        self.assertEqual(outside.asked, [])
        self.assertEqual(sorted(egress.binds)[0], ("198.18.0.2", 443))

    def test_other_types_and_reverse(self):
        """Case 4: an allowed name has an A record and nothing else; TXT, ANY and HTTPS questions go nowhere."""
        outside = self.name_server({})
        egress = self.start(allow=["api.allowed.test"], nameservers=[outside.address])
        answers = self.inside("""
show([[ask(query("api.allowed.test", kind))[:2] for kind in (16, 10, 255, 28, 65, 15)], ask(query("2.0.18.198.in-addr.arpa", 12)),
      ask(query("9.9.18.198.in-addr.arpa", 12)), ask(query("1.0.0.127.in-addr.arpa", 12)), ask(query("localhost")),
      ask(query("a.localhost", 28))])""")
        self.assertEqual(answers[0], [[0, 0]] * 6)
        self.assertEqual(answers[1][:2], [0, 1])
        self.assertIn(b"\3api\7allowed\4test\0".hex(), answers[1][2])
        self.assertEqual(answers[2][0], 3)
        self.assertEqual([one[:2] for one in answers[3:]], [[0, 1]] * 3)
        denied = [event["name"] for event in egress.events if not event["allowed"]]
        self.assertEqual(denied, ["9.9.18.198.in-addr.arpa"], "loopback is no violation")
        self.assertEqual(outside.asked, [])

    def test_malformed(self):
        """Case 5."""
        outside = self.name_server({})
        egress = self.start(allow=["a.test"], nameservers=[outside.address])
        answers = self.inside(r"""
good = query("a.test")
record = wire("a.test") + struct.pack(">HHIH", 1, 1, 0, 4) + b"abcd"
edns = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)
cases = [good[:4] + b"\0\2" + good[6:] + good[12:], struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",
         struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + b"\x40" + b"a" * 64 + b"\0\0\1\0\1",
         query("a.test", extra=record, counts=(1, 0, 0, 1)), query("a.test", extra=record, counts=(1, 1, 0, 0)),
         query("a.test", extra=b"x"), good[:-1], struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + wire(".".join(["a" * 60] * 5)) + b"\0\1\0\1"]
silent = [b"", b"abc", good[:2] + b"\x81\x80" + good[4:], good + b"x" * 2000]
show([[ask(c)[:2] for c in cases], [ask(c, 0.3) for c in silent], ask(query("a.test", extra=edns, counts=(1, 0, 0, 1)))[:2], ask(good)[:2]])""")
        self.assertEqual(answers, [[[1, 0]] * 8, [None] * 4, [0, 1], [0, 1]])
        self.assertGreaterEqual(egress.finish()["questions_malformed"], 11)
        self.assertEqual(outside.asked, [])

    def test_over_tcp(self):
        egress = self.start(allow=["a.test"], nameservers=[("127.0.0.1", 9)])
        answers = self.inside(r"""
def tcp(*packets):
    with socket.create_connection(("127.0.0.53", 53), timeout=5) as s:
        for p in packets: s.sendall(struct.pack(">H", len(p)) + p)
        got = b""
        while len(got) < 2 or len(got) < 2 + struct.unpack_from(">H", got)[0]:
            try: part = s.recv(4096)
            except ConnectionResetError: part = b""
            if not part: return "closed"
            got += part
        return got[5] & 15
show([tcp(query("a.test")), tcp(query("b.test")), tcp(b"x" * 2000)])""")
        self.assertEqual(answers, [0, 3, "closed"])
        self.assertEqual(egress.wait_event(name="b.test")["reason"], "not_listed")

    def test_name_limit_of_a_wildcard(self):
        """Case 3."""
        egress = self.start(allow=["*.x.test", "spelled.x.test"], names_per_wildcard=64, nameservers=[("127.0.0.1", 9)])
        codes = self.inside('show([ask(query(f"n{i}.x.test"))[0] for i in range(66)] + [ask(query(n))[0] for n in ("n3.x.test", "spelled.x.test")])')
        self.assertEqual(codes, [0] * 64 + [3, 3] + [0, 0])
        self.assertEqual(egress.wait_event(name="n64.x.test")["reason"], "name_limit")

    def test_flood(self):
        """Case 6: memory stays flat, everything is counted, answers continue."""
        outside = self.name_server({})
        egress = self.start(allow=["a.test"], nameservers=[outside.address])
        self.inside('show(ask(query("a.test")))')
        before = egress.resident_kib()
        answer = self.inside("""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("127.0.0.53", 53)); s.setblocking(False)
sent = 0
for i in range(100000):
    try: s.send(query(f"n{i}.flood.test")); sent += 1
    except BlockingIOError: pass
    try:
        while True: s.recv(512)
    except (BlockingIOError, ConnectionError): pass
for attempt in range(20):  # as resolvers do: a datagram may be lost while the socket is full
    if answer := ask(query("a.test")): break
show([sent, answer and answer[:2]])""", seconds=120)
        self.assertEqual(answer[1], [0, 1])
        self.assertLess(egress.resident_kib() - before, 4096)
        totals = egress.finish()
        self.assertGreater(totals["questions_denied"], 1000)
        self.assertEqual(totals["questions_denied"] - totals["events_unlisted"], 512)
        self.assertLess(len(egress.events), 600)
        self.assertEqual(outside.asked, [], "not one of them left")

    def test_pool_exhausted(self):
        """A pool of four addresses has one left for names. The second name is refused, the first goes on."""
        egress = self.start(allow=["a.test", "b.test"], pool=0xC6120000, pool_bits=30, nameservers=[("127.0.0.1", 9)])
        self.assertEqual(self.inside('show([ask(query(n))[0] for n in ("a.test", "b.test", "a.test")])'), [0, 3, 0])
        self.assertEqual(egress.wait_event(name="b.test")["reason"], "pool_exhausted")

    def test_more_listeners_than_the_owner_has_answered(self):
        """Names are asked for faster than listeners are made: only some requests for them wait at the owner."""
        waiting, most = [], []
        answer = Egress.bind

        def bind(egress, number, address, port):
            waiting.append((number, address, port))
            most.append(len(waiting))

        Egress.bind = bind
        self.addCleanup(setattr, Egress, "bind", answer)
        egress = self.start(allow=[f"*.x{i}.test" for i in range(3)], nameservers=[("127.0.0.1", 9)])
        code = """
connections = [socket.create_connection(("127.0.0.53", 53), timeout=10) for _ in range(3)]
for i, s in enumerate(connections):
    s.sendall(b"".join(struct.pack(">H", len(q)) + q for q in (query(f"n{n}.x{i}.test") for n in range(60))))
got = [b""] * 3
for i, s in enumerate(connections):
    while got[i].count(bytes.fromhex("0000001e0004c612")) < 60: got[i] += s.recv(65536)
show(True)"""
        def serve():
            end = time.monotonic() + SECONDS
            answered = 0
            while answered < 180 and time.monotonic() < end:
                time.sleep(0.002)
                if waiting and (len(waiting) >= 32 or answered + len(waiting) == 180):
                    with egress.changed:
                        batch, waiting[:] = list(waiting), []
                    for one in batch:
                        answer(egress, *one)
                        answered += 1

        server = threading.Thread(target=serve)
        server.start()
        self.assertTrue(self.inside(code))
        server.join(SECONDS)
        self.assertEqual(max(most), 32)

    def test_workload_sits_at_the_address(self):
        """Case 38: own harm only, and an event."""
        egress = self.start(allow=["a.test"], nameservers=[("127.0.0.1", 9)])
        code = self.inside("""
s = socket.socket(); s.bind(("198.18.0.2", 443)); s.listen()
show(ask(query("a.test"))[0])""")
        self.assertEqual(code, 2)
        self.assertEqual(egress.wait_event(what="refused")["reason"], "listener_taken")

    def test_no_route(self):
        """Case 7: literal addresses are unreachable at once."""
        self.start(allow=["a.test"], nameservers=[("127.0.0.1", 9)])
        errors = self.inside("""
out = []
for family, address in ((socket.AF_INET, ("8.8.8.8", 53)), (socket.AF_INET, ("169.254.169.254", 80)), (socket.AF_INET6, ("2001:db8::1", 853))):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as s:
            try: s.connect(address); out.append("connected")
            except OSError as e: out.append(e.strerror)
show(out)""")
        self.assertEqual(set(errors) - {"Network is unreachable", "Cannot assign requested address"}, set())


class TlsTest(EgressCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-egress-", dir="/tmp"))
        cls.place.chmod(0o755)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-keyout", cls.place / "key.pem", "-out", cls.place / "cert.pem", "-subj", "/CN=test",
                        "-addext", "subjectAltName=DNS:web.test,DNS:other.test"], check=True, capture_output=True)  # fmt: skip
        cls.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        cls.context.load_cert_chain(cls.place / "cert.pem", cls.place / "key.pem")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.place)

    def secure(self, size=1000):
        def serve(connection):
            read_head(connection)
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode() + b"x" * size)

        server = self.serve(serve, self.context)
        egress = self.start(allow=[f"tls://web.test:{server.port}"], hosts=[("web.test", "127.0.0.1")])
        return server, egress

    def test_curl(self):
        server, egress = self.secure(5_000_000)
        url = f"https://web.test:{server.port}/"
        code, out, err = self.namespace.run(["curl", "-sS", "--cacert", str(self.place / "cert.pem"), url])
        self.assertEqual((code, len(out), err), (0, 5_000_000, ""))
        closed = egress.wait_event(what="closed")
        self.assertEqual((closed["name"], closed["port"], closed["protocol"], closed["address"], closed["rule"]),
                         ("web.test", server.port, "tls", "127.0.0.1", f"tls://web.test:{server.port}"))  # fmt: skip
        self.assertGreater(closed["bytes_in"], 5_000_000)
        self.assertGreater(closed["bytes_out"], 200)
        self.assertGreater(closed["duration_us"], 0)
        # Cases 24 and QUIC: another port of an allowed name.
        refused = self.namespace.run(["curl", "-sS", f"https://web.test:{server.port + 1}/"])
        self.assertEqual(refused[0], 7, refused)
        code, _, err = self.namespace.run(["curl", "-sS", "https://nothing.test/"])
        self.assertEqual(code, 6, err)

    def test_other_clients(self):
        """Programs that know nothing of proxies: each fetches by name what is allowed, and fails at once by any other."""
        site = self.place / "site"
        if not site.exists():
            work = self.place / "work"
            git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
            subprocess.run([*git, "init", "-q", work], check=True)
            (work / "file").write_text("content\n", encoding="ascii")
            subprocess.run([*git, "-C", work, "add", "file"], check=True)
            subprocess.run([*git, "-C", work, "commit", "-q", "-m", "one"], check=True)
            subprocess.run([*git, "clone", "-q", "--bare", work, site / "repo.git"], check=True)
            subprocess.run(["git", "-C", site / "repo.git", "update-server-info"], check=True)

        def serve(connection):
            head, _ = read_head(connection)
            if not head:
                return
            path = site / head.split()[1].decode().split("?")[0].lstrip("/")
            body = path.read_bytes() if path.is_file() else b""
            status = b"200 OK" if path.is_file() else b"404 Not Found"
            connection.sendall(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

        server = self.serve(serve, self.context)
        self.start(allow=[f"tls://web.test:{server.port}"], hosts=[("web.test", "127.0.0.1")])
        cert, clone = self.place / "cert.pem", tempfile.mkdtemp(prefix="clone-", dir=self.place)
        fetch = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t)).catch(e => {console.error(e.cause.code); process.exit(6)})"
        python = "import ssl, sys, urllib.request as u; print(u.urlopen(sys.argv[1], context=ssl.create_default_context(cafile=sys.argv[2])).read().decode())"
        clients = {
            "git": lambda url: ["env", f"GIT_SSL_CAINFO={cert}", "git", "ls-remote", url.removesuffix("/HEAD")],
            "wget": lambda url: ["wget", "-q", "-O", "-", "--tries=1", f"--ca-certificate={cert}", url],
            "node": lambda url: ["env", f"NODE_EXTRA_CA_CERTS={cert}", "node", "-e", fetch, url],
            "python3": lambda url: ["/usr/bin/python3", "-c", python, url, str(cert)],
        }
        for name, command in clients.items():
            if not os.access(f"/usr/bin/{name}", os.X_OK):
                print(f"*** NOT TESTED: /usr/bin/{name} is not installed ***", file=sys.stderr)
                continue
            with self.subTest(name):
                code, out, err = self.namespace.run(command(f"https://web.test:{server.port}/repo.git/HEAD"))
                self.assertEqual(code, 0, err)
                self.assertIn(b"refs/heads/main", out)
                begin = time.monotonic()
                code, out, err = self.namespace.run(command(f"https://denied.test:{server.port}/repo.git/HEAD"))
                self.assertNotEqual(code, 0)
                self.assertLess(time.monotonic() - begin, 10)
        url = f"https://web.test:{server.port}/repo.git"
        code, _, err = self.namespace.run(["env", f"GIT_SSL_CAINFO={cert}", "git", "clone", "-q", url, clone])
        self.assertEqual(code, 0, err)
        self.assertEqual(pathlib.Path(clone, "file").read_text(encoding="ascii"), "content\n")

    def test_server_name(self):
        """Case 25: another name, none, two, an address, a NUL: closed, and nothing is dialled. Case 27: no TLS at all."""
        server, egress = self.secure()
        outcomes = self.inside(f"""
a = ("web.test", {server.port})
two = struct.pack(">HH", 0, 13) + struct.pack(">H", 11) + b"\\0\\0\\x08web.test"
cases = dict(sni_mismatch=hello(b"other.test"), sni_missing=hello(), sni_malformed=hello(b"web.test", b"web.test"),
             twice=hello(raw=two * 2), nul=hello(b"web.test\\0.evil.test"), dot=hello(b"web.test."), ip=hello(b"127.0.0.1"),
             http=b"GET / HTTP/1.1\\r\\nHost: web.test\\r\\n\\r\\n", ssh=b"SSH-2.0-OpenSSH_9.2\\r\\n", sslv2=b"\\x80\\x2e\\1\\3\\1" + b"x" * 44,
             big=hello(b"web.test", pad=16400), silent=b"\\x16\\3\\1")
show({{name: talk(a, data) for name, data in cases.items()}})""", seconds=60)
        for name, outcome in outcomes.items():
            self.assertRegex(outcome, r"^(\x15\x03\x01\x00\x02\x02[\x28\x70])?<(end|reset)>$", name)
        self.assertEqual(server.accepted, 0)
        reasons = {event["reason"] for event in egress.events if event["what"] == "refused"}
        self.assertEqual(reasons, {"sni_mismatch", "sni_missing", "sni_malformed", "not_tls", "oversized_client_hello", "first_bytes_timeout"})
        self.assertFalse(any(event["allowed"] for event in egress.events if event["what"] == "refused"))

    def test_second_client_hello(self):
        """A server may ask for a second ClientHello and then takes the name from it: it must be the same name."""
        retry = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
        message = b"\3\3" + retry + b"\0" + b"\x13\1" + b"\0" + struct.pack(">HHHHHH", 12, 43, 2, 0x0304, 51, 2) + b"\0\x17"
        answer = b"\x16\3\3" + struct.pack(">H", len(message) + 4) + b"\2" + struct.pack(">I", len(message))[1:] + message
        heard = []

        def serve(connection):
            data = connection.recv(65536)
            connection.sendall(answer[:7])
            time.sleep(0.05)
            connection.sendall(answer[7:])
            with contextlib.suppress(OSError):
                while part := connection.recv(65536):
                    data += part
                    if b"finished" in data:
                        connection.sendall(b"served")
                        break
            heard.append(data)

        server = self.serve(serve)
        egress = self.start(allow=[f"tls://web.test:{server.port}"], hosts=[("web.test", "127.0.0.1")])
        outcomes = self.inside(f"""
def twice(second, early=b"", at_once=False):
    with socket.create_connection(("web.test", {server.port}), timeout=10) as s:
        s.sendall(hello(b"web.test") + early + (second if at_once else b""))
        got = b""
        try:
            while len(got) < {len(answer)}: got += s.recv(65536)
            if not at_once: s.sendall(second)
            while part := s.recv(65536): got += part
        except OSError: pass
        return got[{len(answer)}:].decode("latin-1")
ccs, data = b"\\x14\\3\\3\\0\\1\\1", b"\\x17\\3\\3\\0\\5early"
end = b"\\x17\\3\\3\\0\\x08finished"
records = b"".join(b"\\x16\\3\\3\\0\\1" + bytes([b]) for b in hello(b"other.test")[5:])
show([twice(ccs + hello(b"web.test") + end), twice(ccs + hello(b"web.test") + end, data, True),
      twice(ccs + hello(b"other.test") + end), twice(ccs + hello(b"other.test") + end, data, True), twice(records + end),
      twice(hello() + end), twice(b"\\x16\\3\\3\\0\\1\\1"), twice(b"GET / HTTP/1.1")])""", seconds=60)
        self.assertEqual(outcomes[:2], ["served"] * 2)
        self.assertNotIn("served", outcomes[2:])
        egress.wait(lambda: len([one for one in egress.events if one["what"] == "closed"]) == 8)
        self.assertFalse([one for one in heard if b"other.test" in one])
        reasons = {event["reason"] for event in egress.events if event["what"] == "refused"}
        self.assertEqual(reasons, {"sni_mismatch", "sni_missing", "first_bytes_timeout", "not_tls"})
        # The same from a real client and server: the client's first key share is for a group that the server does not take.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.place / "cert.pem", self.place / "key.pem")
        context.set_ecdh_curve("secp384r1")
        real = self.serve(lambda connection: (connection.recv(100), connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nretried")), context)
        self.namespace.close()
        self.setUp()
        self.start(allow=[f"tls://web.test:{real.port}"], hosts=[("web.test", "127.0.0.1")])
        code, out, err = self.namespace.run(["curl", "-sS", "--cacert", str(self.place / "cert.pem"), f"https://web.test:{real.port}/"])
        self.assertEqual((code, out), (0, b"retried"), err)

    def test_openssl_client(self):
        server, egress = self.secure()
        code, _, err = self.namespace.run(["openssl", "s_client", "-connect", f"web.test:{server.port}", "-servername", "other.test"])
        self.assertNotEqual(code, 0)
        self.assertIn("unrecognized name", err)
        self.assertEqual(egress.wait_event(what="refused")["reason"], "sni_mismatch")
        self.assertEqual(server.accepted, 0)

    def test_fragments(self):
        """Case 26: one byte at a time, records of one byte, and a post-quantum size, each byte for byte."""
        server = self.serve(echo)
        self.start(allow=[f"tls://web.test:{server.port}"], hosts=[("web.test", "127.0.0.1")], first_bytes_ms=10000)
        whole = self.inside(f"""
def slowly(data):
    with socket.create_connection(("web.test", {server.port}), timeout=20) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)): s.send(data[i:i + 1])
        got = b""
        while len(got) < len(data): got += s.recv(65536)
        return got == data
small, large = hello(b"WEB.test"), hello(b"web.test", pad=1800)
records = b"".join(b"\\x16\\3\\1\\0\\1" + bytes([b]) for b in small[5:])
show([slowly(small), slowly(records), slowly(large), len(large) > 1800])""")
        self.assertEqual(whole, [True] * 4)


class HttpTest(EgressCase):
    def setUp(self):
        super().setUp()
        self.site = self.web()
        self.egress = self.start(allow=[f"http://web.test:{self.site.port}"], hosts=[("web.test", "127.0.0.1")])
        self.at = f'("web.test", {self.site.port})'
        self.host = f"web.test:{self.site.port}"

    def talk(self, *requests):
        return self.inside(f"show([talk({self.at}, r.encode('latin-1')) for r in json.loads({json.dumps(json.dumps(requests))})])", seconds=60)

    def test_curl(self):
        code, out, err = self.namespace.run(["curl", "-sS", "-d", "a" * 5000, f"http://{self.host}/one", f"http://{self.host}/two"])
        self.assertEqual((code, out, err), (0, b"ok\nok\n", ""))
        chunked = self.namespace.run(["curl", "-sS", "-H", "Transfer-Encoding: chunked", "-T", "-", f"http://{self.host}/three"], b"z" * 70000)
        self.assertEqual(chunked[:2], (0, b"ok\n"))
        self.assertEqual([line.split()[1] for line, _ in self.site.requests], ["/one", "/two", "/three"])

    def test_second_request_for_another_host(self):
        """Case 29, in one packet and in two, and with the first answer still to come."""
        good = f"GET /good HTTP/1.1\r\nHost: {self.host}\r\n\r\n"
        bad = "GET /bad HTTP/1.1\r\nHost: evil.test\r\n\r\n"
        together, alone = self.talk(good + bad, bad)
        self.assertRegex(together, r"(?s)^HTTP/1.1 200 OK.*ok\nHTTP/1.1 403 Forbidden.*host_mismatch\n<end>$")
        self.assertRegex(alone, r"(?s)^HTTP/1.1 403 Forbidden.*<end>$")
        later = self.inside(f"""
s = socket.create_connection({self.at}, timeout=10)
s.sendall({good.encode()!r}); first = s.recv(4096).decode(); s.sendall({bad.encode()!r})
rest = b""
while part := s.recv(4096): rest += part
show([first, rest.decode()])""")
        self.assertIn("200 OK", later[0])
        self.assertTrue(later[1].startswith("HTTP/1.1 403 Forbidden"), later)
        self.assertEqual({line for line, _ in self.site.requests}, {"GET /good HTTP/1.1"})
        self.assertEqual(self.egress.wait_event(what="refused")["reason"], "host_mismatch")

    def test_ambiguous_requests(self):
        """Case 30: each is refused whole, and no byte of it leaves."""
        head = f"POST / HTTP/1.1\r\nHost: {self.host}\r\n"
        bad = [
            head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            head + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            head + "Content-Length: 3, 3\r\n\r\nabc",
            head + "Content-Length: +3\r\n\r\nabc",
            head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            head + "X: a\r\n b\r\n\r\n",
            head + "X: a\nY: b\r\n\r\n",
            head + "X: a\rY: b\r\n\r\n",
            head + "X: a\0b\r\n\r\n",
            head + f"Host: {self.host}\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            f"GET http://evil.test/ HTTP/1.1\r\nHost: {self.host}\r\n\r\n",
            f"GET  / HTTP/1.1\r\nHost: {self.host}\r\n\r\n",
            f"GET / HTTP/2.0\r\nHost: {self.host}\r\n\r\n",
            f"GET /\r\nHost: {self.host}\r\n\r\n",
            f"\r\nGET / HTTP/1.1\r\nHost: {self.host}\r\n\r\n",
            head + "Transfer-Encoding: \xa0chunked\r\n\r\n0\r\n\r\n",
            head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
            head + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            head.replace("1.1", "1.0") + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            head + "Content-Length: 0x3\r\n\r\nabc",
            head + "Content-Length: 3\x0b\r\n\r\nabc",
            head + "\tContent-Length: 3\r\n\r\nabc",
            head + "Content-Length: 9999999999999999999\r\n\r\nabc",
            head + ": x\r\n\r\n",
            f"GET http://{self.host}@evil.test/ HTTP/1.1\r\nHost: {self.host}\r\n\r\n",
            f"GET http://evil.test#@{self.host}/ HTTP/1.1\r\nHost: {self.host}\r\n\r\n",
            f"GET https://{self.host}/ HTTP/1.1\r\nHost: {self.host}\r\n\r\n",
            f"GET evil.test:80 HTTP/1.1\r\nHost: {self.host}\r\n\r\n",
            f"POST /ws HTTP/1.1\r\nHost: {self.host}\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n\r\nabc",
        ]
        for request, outcome in zip(bad, self.talk(*bad), strict=True):
            self.assertRegex(outcome, r"(?s)^HTTP/1.1 400 Bad Request.*<end>$", request)
        self.assertEqual(self.site.server.accepted, 0)

    def test_connect_is_refused(self):
        self.assertRegex(self.talk(f"CONNECT evil.test:443 HTTP/1.1\r\nHost: {self.host}\r\n\r\n")[0], "^HTTP/1.1 403")

    def test_head_limits(self):
        """Case 31: a large head is 431, a slow one ends."""
        huge, slow = self.inside(f"""
huge = b"GET / HTTP/1.1\\r\\nHost: {self.host}\\r\\nX: " + b"a" * 1000000 + b"\\r\\n\\r\\n"
show([talk({self.at}, huge), talk({self.at}, b"GET / HT")])""")
        self.assertRegex(huge, "^HTTP/1.1 431")
        self.assertRegex(slow, "^HTTP/1.1 408")
        self.assertEqual(self.site.server.accepted, 0)

    def test_request_inside_a_body(self):
        """Case 32: a body is a body; what follows it is judged."""
        inner = "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n"
        sized = f"POST /a HTTP/1.1\r\nHost: {self.host}\r\nContent-Length: {len(inner)}\r\n\r\n{inner}"
        chunked = f"POST /b HTTP/1.1\r\nHost: {self.host}\r\nTransfer-Encoding: chunked\r\n\r\n{len(inner):x}\r\n{inner}\r\n0\r\n\r\n"
        last = f"GET /c HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n\r\n"
        outcome, smuggled, extension = self.talk(sized + chunked + last + inner, sized + inner, chunked.replace("0\r\n\r\n", "0;x=y\r\n\r\n"))
        self.assertEqual(outcome.count("200 OK"), 3)
        self.assertIn("403 Forbidden", outcome)
        self.assertRegex(smuggled, r"(?s)200 OK.*403 Forbidden")
        self.assertNotIn("200 OK", extension)
        self.assertEqual([line.split()[1] for line, _ in self.site.requests], ["/a", "/b", "/c", "/a"])
        self.assertEqual(self.site.requests[0][1].decode(), inner)

    def test_websocket(self):
        """Case 35: after the server has switched, bytes are bytes. Before, and if it does not, they are judged."""
        upgrade = f"GET /ws HTTP/1.1\r\nHost: {self.host}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
        got = self.inside(f"""
s = socket.create_connection({self.at}, timeout=10)
s.sendall({upgrade.encode()!r} + b"early"); data = b""
while b"early" not in data: data += s.recv(4096)
frames = bytes(range(256)) * 400
s.sendall(frames); back = b""
while len(back) < len(frames): back += s.recv(65536)
show([data.decode().split("\\r\\n")[0], back == frames])""")
        self.assertEqual(got, ["HTTP/1.1 101 Switching Protocols", True])
        plain = upgrade.replace("Upgrade: websocket", "Upgrade: h2c") + "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        self.assertRegex(self.talk(plain)[0], r"(?s)200 OK.*400 Bad Request")


class ProxyTest(EgressCase):
    def test_connect(self):
        """Cases 16, 17: addresses in every spelling are refused; names are decided by the same rules."""
        server = self.serve(echo)
        egress = self.start(allow=[f"tcp://echo.test:{server.port}", "tls.test"], hosts=[("echo.test", "127.0.0.1"), ("tls.test", "127.0.0.1")],
                            proxy=True)  # fmt: skip
        answers = self.inside(f"""
p = ("127.0.0.1", 3128)
def connect(to, more=b""): return talk(p, f"CONNECT {{to}} HTTP/1.1\\r\\nHost: {{to}}\\r\\n\\r\\n".encode() + more, end=True)
bad = ["1.2.3.4:443", "2130706433:443", "0x7f.1:443", "0177.0.0.1:443", "127.1:443", "[::ffff:169.254.169.254]:80", "[fe80::1%25lo]:443",
       "echo.test:1", "evil.test:443", "echo.test", "a@echo.test:{server.port}", "127.0.0.1:{server.port}"]
show([[connect(b).split("\\r\\n")[0] for b in bad], connect("Echo.Test:{server.port}", b"hello"), connect("tls.test:443", hello(b"evil.test")),
      talk(p, b"GET http://echo.test/ HTTP/1.1\\r\\n\\r\\n").split("\\r\\n")[0]])""")
        self.assertEqual(answers[0], ["HTTP/1.1 403 Forbidden"] * 12)
        self.assertTrue(answers[1].startswith("HTTP/1.1 200") and answers[1].endswith("hello<end>"), answers[1])
        self.assertIn("\x15\x03\x01", answers[2])
        self.assertTrue(answers[3].startswith("HTTP/1.1 405"))
        self.assertEqual(server.accepted, 1)
        self.assertEqual(egress.wait_event(name="evil.test")["reason"], "not_listed")
        self.assertEqual(egress.wait_event(name="tls.test")["reason"], "sni_mismatch")

    def test_socks(self):
        """Case 18: names only, connections only."""
        server = self.serve(echo)
        self.start(allow=[f"tcp://echo.test:{server.port}"], hosts=[("echo.test", "127.0.0.1")], proxy=True)
        answers = self.inside(f"""
p, port = ("127.0.0.1", 3128), struct.pack(">H", {server.port})
def socks(request): return talk(p, b"\\5\\1\\0" + request, end=True)[:14]
name = b"\\3\\x09echo.test" + port
show([socks(b"\\5\\1\\0" + name + b"hi"), socks(b"\\5\\1\\0\\1\\x7f\\0\\0\\1" + port), socks(b"\\5\\1\\0\\4" + b"\\0" * 16 + port),
      socks(b"\\5\\2\\0" + name), socks(b"\\5\\3\\0" + name), socks(b"\\5\\1\\0\\3\\x09evil.test" + port), talk(p, b"\\5\\1\\2")[:2],
      socks(b"\\5\\1\\0\\3\\x09127.0.0.1" + port)])""")
        codes = [answer[3:4] for answer in answers[:6]]
        self.assertEqual(codes, ["\0", "\x08", "\x08", "\x07", "\x07", "\x02"])
        self.assertTrue(answers[0].endswith("hi"), answers[0])
        self.assertEqual(answers[6], "\x05\xff")
        self.assertEqual(answers[7][3:4], "\x02")
        self.assertEqual(server.accepted, 1)
        code, out, err = self.namespace.run(["curl", "-sS", "--max-time", "5", "-x", "socks5h://127.0.0.1:3128", "http://evil.test/"])
        self.assertEqual(code, 97, (out, err))


class DialTest(EgressCase):
    def dial(self, answers, rules=None, **settings):
        self.outside = self.name_server(answers)
        self.server = self.serve(echo)
        rules = rules or [f"tcp://{name}:{self.server.port}" for name in answers]
        return self.start(allow=rules, nameservers=[self.outside.address], **settings)

    def reach(self, name):
        return self.inside(f'show(talk(("{name}", {self.server.port}), b"hi", end=True))')

    def test_bad_addresses(self):
        """Cases 19, 20, 22: refused after resolution, whichever of the addresses is the bad one."""
        cases = {
            "metadata.test": (["169.254.169.254"], "address_metadata"),
            "private.test": (["10.0.0.1"], "address_private"),
            "six.test": (["::1"], "address_loopback"),
            "nat64.test": (["64:ff9b::a00:1"], "address_private"),
            "mapped.test": (["::ffff:10.0.0.1"], "address_private"),
            "mixed.test": (["127.0.0.1", "10.0.0.1"], "address_private"),
            "mixed6.test": (["127.0.0.1", "fd00::1"], "address_private"),
            "alias.test": ([("alias", "internal.corp.test"), "10.1.1.1"], "address_private"),
            "pool.test": (["198.18.0.2"], "address_benchmark"),
            "zero.test": (["0.0.0.0"], "address_unspecified"),
        }
        egress = self.dial({name: [answer] for name, (answer, _) in cases.items()}, grants=["127.0.0.0/8", "169.254.0.0/16"])
        for name, (_, reason) in cases.items():
            self.assertEqual(self.reach(name), "<reset>", name)
            event = egress.wait_event(what="refused", name=name)
            self.assertEqual((event["reason"], event["allowed"]), (reason, False), name)
        self.assertEqual(self.server.accepted, 0)

    def test_one_resolution(self):
        """Case 21: public, then private: what was checked is what is dialled; the second look-up is judged again."""
        egress = self.dial({"flip.test": [["127.0.0.1"], ["10.0.0.1"]]})
        self.assertEqual(self.reach("flip.test"), "hi<end>")
        self.assertEqual(len([one for one in self.outside.asked if one == ("flip.test", 1)]), 1)
        self.assertEqual(self.reach("flip.test"), "<reset>")
        self.assertEqual(egress.wait_event(what="refused")["reason"], "address_private")

    def test_denied_address_behind_a_name(self):
        egress = self.dial({"a.test": [["127.0.0.9"]]}, deny=["127.0.0.9"])
        self.assertEqual(self.reach("a.test"), "<reset>")
        event = egress.wait_event(what="refused")
        self.assertEqual((event["reason"], event["rule"]), ("denied_by_rule", "127.0.0.9"))

    def test_name_server_that_is_silent(self):
        """The connection ends when its time is over, and others are served meanwhile."""
        silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(silent.close)
        silent.bind(("127.0.0.1", 0))
        server = self.serve(echo)
        egress = self.start(allow=[f"tcp://slow.test:{server.port}", f"tcp://s.test:{server.port}"], hosts=[("s.test", "127.0.0.1")],
                            nameservers=[silent.getsockname()], connect_ms=1500)  # fmt: skip
        got = self.inside(f"""
begin = time.monotonic()
slow = socket.create_connection(("slow.test", {server.port}), timeout=10)
fast = talk(("s.test", {server.port}), b"hi", end=True); quick = time.monotonic() - begin
try: slow.recv(1); outcome = "end"
except ConnectionResetError: outcome = "reset"
show([fast, quick < 1, outcome, 1 < time.monotonic() - begin < 8])""")
        self.assertEqual(got, ["hi<end>", True, "reset", True])
        event = egress.wait_event(what="refused", name="slow.test")
        self.assertEqual((event["reason"], event["allowed"]), ("connect_timeout", True))

    def test_without_grant(self):
        egress = self.dial({"a.test": [["127.0.0.1"]]}, grants=[])
        self.assertEqual(self.reach("a.test"), "<reset>")
        self.assertEqual(egress.wait_event(what="refused")["reason"], "address_loopback")
        self.assertEqual(self.server.accepted, 0)

    def test_next_address(self):
        egress = self.dial({"two.test": [["127.0.0.3", "127.0.0.1"]], "none.test": [[]]})
        self.assertEqual(self.reach("two.test"), "hi<end>")
        self.assertEqual(egress.wait_event(what="opened")["address"], "127.0.0.1")
        self.assertEqual(self.reach("none.test"), "<reset>")
        event = egress.wait_event(what="refused")
        self.assertEqual((event["reason"], event["allowed"]), ("no_address", True))

    def test_literal_rule(self):
        """An address that a rule names stands on the sandbox's lo, and needs no look-up."""
        server = self.serve(echo)
        egress = self.start(allow=[f"198.18.3.4:{server.port}"], grants=["198.18.3.4"], nameservers=[("127.0.0.1", 9)])
        egress.wait(lambda: egress.binds)
        self.assertEqual(egress.binds, [("198.18.3.4", server.port)])
        self.assertEqual(self.inside(f'show(talk(("198.18.3.4", {server.port}), b""))')[-1], ">")
        self.assertEqual(egress.wait_event(what="refused")["address"], "198.18.3.4")

    @unittest.skipUnless(STARTED_BY_ROOT, "makes a host's network of its own, which a user's namespace could not leave again")
    def test_own_public_address(self):
        """Case 23: a public address that is the host's own."""
        inside = pathlib.Path(__file__).resolve().parents[1] / "support/egress_inside.py"
        command = ["unshare", "--net", "/usr/bin/python3", "-B", str(inside), "--own", "93.184.216.34"]
        egress = self.start(command=command, allow=["tcp://own.test:22", "tcp://far.test:22"], grants=[],
                            hosts=[("own.test", "93.184.216.34"), ("far.test", "93.184.216.35")])  # fmt: skip
        self.inside('show([talk((n, 22), b"") for n in ("own.test", "far.test")])')
        self.assertEqual(egress.wait_event(what="refused", name="own.test")["reason"], "address_own")
        self.assertEqual(egress.wait_event(what="refused", name="far.test")["reason"], "unreachable")


class RelayTest(EgressCase):
    def tcp(self, serve, **settings):
        server = self.serve(serve)
        egress = self.start(allow=[f"tcp://s.test:{server.port}"], hosts=[("s.test", "127.0.0.1")], **settings)
        return server, egress, f'("s.test", {server.port})'

    def test_half_close(self):
        """Case 33."""
        def until_end(connection):
            total = 0
            while data := connection.recv(65536):
                total += len(data)
            connection.sendall(str(total).encode())

        def first_end(connection):
            connection.sendall(b"all I have")
            connection.shutdown(socket.SHUT_WR)
            self.assertEqual(len(b"".join(iter(lambda: connection.recv(65536), b""))), 100000)
            self.heard = True

        _, _, at = self.tcp(until_end)
        self.assertEqual(self.inside(f'show(talk({at}, b"x" * 3000000, end=True))'), "3000000<end>")
        self.heard = False
        server = self.serve(first_end)
        self.namespace.close()
        self.setUp()
        egress = self.start(allow=[f"tcp://s.test:{server.port}"], hosts=[("s.test", "127.0.0.1")])
        got = self.inside(f"""
s = socket.create_connection(("s.test", {server.port}), timeout=10)
got = b""
while part := s.recv(4096): got += part
s.sendall(b"y" * 100000); s.close(); show(got.decode())""")
        self.assertEqual(got, "all I have")
        egress.wait_event(what="closed", bytes_out=100000)
        end = time.monotonic() + SECONDS
        while not self.heard and time.monotonic() < end:
            time.sleep(0.01)
        self.assertTrue(self.heard)

    def test_reset_either_way(self):
        """Case 33: a reset arrives as a reset, and no descriptor stays."""
        seen = []

        def serve(connection):
            if connection.recv(1) == b"r":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            connection.sendall(b"!")
            try:
                seen.append(connection.recv(100))
            except ConnectionResetError:
                seen.append("reset")

        _, egress, at = self.tcp(serve)
        before = len(os.listdir(f"/proc/{egress.process.pid}/fd")) if STARTED_BY_ROOT else 0
        self.assertEqual(self.inside(f'show(talk({at}, b"r"))'), "<reset>")
        self.inside(f"""
s = socket.create_connection({at}); s.sendall(b"c"); s.recv(1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); s.close(); show(1)""")
        egress.wait(lambda: len([one for one in egress.events if one["what"] == "closed"]) == 2)
        end = time.monotonic() + SECONDS
        while not seen and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(seen, ["reset"])
        if STARTED_BY_ROOT:
            self.assertEqual(len(os.listdir(f"/proc/{egress.process.pid}/fd")), before + 1, "the listener of the name")

    def test_answer_before_a_reset(self):
        """A server that answers and closes while the client still sends: the answer arrives, then the reset."""
        def serve(connection):
            connection.recv(1)
            connection.sendall(b"enough" * 1000)  # and what it did not read makes its end a reset

        _, _, at = self.tcp(serve)
        got = self.inside(f"""
s = socket.create_connection({at}, timeout=10)
got = b""
try:
    s.sendall(b"x" * 20000)
    while part := s.recv(65536): got += part
except (ConnectionResetError, BrokenPipeError): got += b"<reset>"
show(got.decode())""")
        self.assertEqual(got, "enough" * 1000 + "<reset>")

    def test_many_connections(self):
        """Case 34: a thousand connections that never read, in 32 MiB; one more is refused, and the others are served."""
        server, egress, at = self.tcp(echo, max_connections=1000, connections_per_second=100000)
        got = self.inside(f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
all = [socket.create_connection({at}, timeout=10) for _ in range(1000)]
for s in all:
    s.setblocking(False)
    try: s.send(b"x" * 100000)
    except BlockingIOError: pass
extra = talk({at}, b"hi")
all[7].setblocking(True); ok = all[7].recv(5)
for s in all[500:]: s.close()
show([extra, ok.decode(), open("/dev/null").close()])
sys.stdout.flush()
""", seconds=120)
        self.assertEqual(got[:2], ["<reset>", "xxxxx"])
        self.assertEqual(egress.wait_event(what="refused")["reason"], "connection_limit")
        status = pathlib.Path(f"/proc/{egress.process.pid}/status").read_text(encoding="ascii")
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        self.assertLess(peak, 32 << 10)
        print(f"1000 connections: {peak} KiB at most", file=sys.stderr)

    def test_connections_that_send_nothing(self):
        """Half-open connections hold their places until their time is over; then others are served again."""
        server = self.serve(echo)
        egress = self.start(allow=[f"tls://s.test:{server.port}"], hosts=[("s.test", "127.0.0.1")], max_connections=50)
        got = self.inside(f"""
at = ("s.test", {server.port})
idle = [socket.create_connection(at, timeout=10) for _ in range(50)]
refused = talk(at, hello(b"s.test"))
time.sleep(1.6)  # first_bytes_ms
with socket.create_connection(at, timeout=10) as s:
    s.sendall(hello(b"s.test")); served = len(s.recv(65536)) > 0
show([refused, served])""")
        self.assertEqual(got, ["<reset>", True])
        self.assertEqual(egress.wait_event(what="refused", reason="first_bytes_timeout")["allowed"], False)
        self.assertEqual(egress.wait_event(what="refused", reason="connection_limit")["allowed"], False)

    def test_rates_and_bounds(self):
        _, egress, at = self.tcp(echo, connections_per_second=5)
        outcomes = self.inside(f'show([talk({at}, b"a", end=True) for _ in range(12)])')
        self.assertIn("<reset>", outcomes)
        self.assertGreaterEqual(outcomes.count("a<end>"), 5)
        self.assertEqual(egress.wait_event(what="refused")["reason"], "connection_rate")
        repeated = egress.finish()["refused"]
        self.assertEqual([event["count"] for event in egress.events if event["what"] == "refused"][-1], repeated)

    def test_byte_limit(self):
        _, egress, at = self.tcp(echo, max_bytes=1_000_000)
        self.assertIn("<reset>", self.inside(f'show(talk({at}, b"a" * 3000000)[-7:])'))
        self.assertEqual(egress.wait_event(what="closed")["reason"], "byte_limit")
        self.assertEqual(egress.wait_event(what="refused", reason="byte_limit")["address"], "127.0.0.1", "the connection that was cut")
        self.assertEqual(self.inside(f'show(talk({at}, b"a"))'), "<reset>")
        self.assertEqual(egress.wait_event(what="refused", address="")["reason"], "byte_limit")

    def test_byte_rate(self):
        _, _, at = self.tcp(echo, bytes_per_second=2_000_000)
        seconds, size = self.inside(f"""
begin = time.monotonic(); got = talk({at}, b"a" * 1500000, seconds=20, end=True)
show([time.monotonic() - begin, len(got)])""")
        self.assertEqual(size, 1_500_005)
        self.assertGreater(seconds, 1.0)


class ProcessTest(EgressCase):
    def test_walls(self):
        egress = self.start(allow=["a.test"], nameservers=[("127.0.0.1", 9)])
        self.assertGreaterEqual(egress.landlock, 0)
        for pid in (egress.process.pid, egress.resolver_pid()):
            lines = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
            status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            self.assertEqual(status["Seccomp"], "2")
            self.assertEqual(status["NoNewPrivs"], "1")
            self.assertEqual({int(status[f"Cap{kind}"], 16) for kind in ("Prm", "Eff", "Inh")}, {0})
            self.assertEqual(status["Uid"].split(), [str(ORDINARY_ID)] * 4 if STARTED_BY_ROOT else [str(os.geteuid())] * 4)
            if STARTED_BY_ROOT:
                self.assertEqual(status["Groups"].strip(), "")
                if pid != egress.process.pid:
                    self.assertEqual(os.listdir(f"/proc/{pid}/fd"), ["3"], "the resolver has its end of one socket and nothing else")
                kinds = {os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0] for fd in os.listdir(f"/proc/{pid}/fd") if int(fd) > 2}
                self.assertLessEqual(kinds, {"socket", "anon_inode"})

    def test_ends_with_its_owner(self):
        egress = self.start(allow=["a.test"], nameservers=[("127.0.0.1", 9)])
        resolver = os.pidfd_open(egress.resolver_pid())
        egress.control.shutdown(socket.SHUT_RDWR)
        self.assertEqual(egress.process.wait(SECONDS), 0)
        signal_ready = __import__("select").select([resolver], [], [], SECONDS)[0]
        os.close(resolver)
        self.assertTrue(signal_ready, "the resolver outlived its owner")

    def test_ends_with_its_resolver(self):
        egress = self.start(allow=["a.test"], nameservers=[("127.0.0.1", 9)])
        os.kill(egress.resolver_pid(), signal.SIGKILL)
        self.assertEqual(egress.process.wait(SECONDS), 1)

    def test_bad_configurations(self):
        for rules, fault in ((["*"], "wildcard"), (["*.com"], "too wide"), (["bücher.test"], "xn--bcher-kva.test"), (["a.test:22"], "tcp://a.test:22")):
            egress = Egress(self.namespace, allow=rules)
            self.addCleanup(egress.close)
            self.assertIn(fault, "".join(egress.faults))
            self.assertEqual(egress.process.wait(SECONDS), 1)

    def test_without_an_owner(self):
        done = subprocess.run([str(find_egress())], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=SECONDS)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("part of caisson", done.stderr)


class AsUserTest(unittest.TestCase):
    """The same without root."""

    def test_everything(self):
        if not STARTED_BY_ROOT:
            skip("user", "these tests are the user's already")
        place = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-egress-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, place)
        place.chmod(0o755)
        shutil.copy(find_egress(), place / "caisson-egress")
        tests = pathlib.Path(__file__).resolve().parents[1]
        shutil.copytree(tests / "support", place / "support", ignore=shutil.ignore_patterns("__pycache__", "real_programs"))
        (place / "integration").mkdir()
        shutil.copy(__file__, place / "integration")
        classes = ["DnsTest", "TlsTest", "HttpTest", "ProxyTest", "DialTest", "RelayTest", "ProcessTest"]
        done = subprocess.run(
            ["setpriv", "--reuid", str(ORDINARY_ID), "--regid", str(ORDINARY_ID), "--clear-groups", "/usr/bin/python3", "-B",
             str(place / "integration" / pathlib.Path(__file__).name), *classes],
            env=dict(os.environ, CAISSON_EGRESS_BIN=str(place / "caisson-egress"), HOME="/tmp"), cwd="/tmp", capture_output=True, text=True,
            timeout=600, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"Ran [3-9]\d tests")


if __name__ == "__main__":
    unittest.main()

"""A sandbox with an allowlist: programs inside reach what the policy lists, by name, and nothing else; every attempt is in the
result. Servers are on this machine's loopback, which the profile of the test lists as a private range."""

import contextlib
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import STARTED_BY_ROOT, CallerCase, Leftovers, both_callers, check, end, need_tool, processes, validate, wait_until, workbench

PROFILE = """
version: 1
name: network-test
extends: balanced
network:
  mode: allowlist
  allow: ["http://web.test:{http}", "tls://secure.test:{tls}", "tcp://raw.test:{raw}", "http://*.wild.test:{http}",
          "http://inner.test:{http}", "http://cloud.test:{http}"]
  deny: [no.wild.test]
  private_ranges: [127.0.0.1]
  hosts: {{web.test: 127.0.0.1, secure.test: 127.0.0.1, raw.test: 127.0.0.1, a.wild.test: 127.0.0.1, no.wild.test: 127.0.0.1,
          inner.test: 10.9.8.7, cloud.test: 169.254.169.254}}
"""

# What programs inside use. `tried` says how an attempt ended.
INSIDE = """
import json, os, socket, ssl, struct, sys, time
def tried(deed):
    try: return deed()
    except OSError as error: return type(error).__name__ if not error.errno else os.strerror(error.errno)
def show(value): print(json.dumps(value))
def talk(address, data, seconds=10):
    with socket.create_connection(address, seconds) as peer:
        peer.sendall(data)
        got = b""
        while part := peer.recv(65536): got += part
        return got.decode("latin-1")
def request(host): return f"GET / HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n".encode()
"""


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Outside:
    """Servers of this machine, shared by all tests: HTTP, the same behind TLS, and one that echoes."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-", dir="/tmp"))
        (self.directory / "page.txt").write_text("a page\n")
        certificate, key = self.directory / "certificate.pem", self.directory / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", "/CN=secure.test", "-addext", "subjectAltName=DNS:secure.test", "-keyout", key, "-out", certificate],
            check=True, capture_output=True)  # fmt: skip
        self.certificate = certificate.read_text()
        self.seen = []
        seen, directory = self.seen, self.directory

        class Counting(Handler):
            def __init__(self, *arguments):
                super().__init__(*arguments, directory=str(directory))

            def do_GET(self):
                seen.append(self.headers.get("Host"))
                super().do_GET()

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
        self.tls = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.tls.socket = context.wrap_socket(self.tls.socket, server_side=True)
        self.raw = socket.create_server(("127.0.0.1", 0), backlog=64)
        for target in (self.http.serve_forever, self.tls.serve_forever, self.echo):
            threading.Thread(target=target, daemon=True).start()
        self.ports = {"http": self.http.server_port, "tls": self.tls.server_port, "raw": self.raw.getsockname()[1]}

    def echo(self):
        while True:
            connection, _ = self.raw.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    @staticmethod
    def answer(connection):
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"hello\n")
            while data := connection.recv(65536):
                connection.sendall(data)


_outside = None


def outside():
    global _outside
    if _outside is None:
        _outside = Outside()
        unittest.addModuleCleanup(shutil.rmtree, _outside.directory, ignore_errors=True)
    return _outside


class NetworkCase:
    def setUp(self):
        super().setUp()
        self.outside = outside()
        self.ports = self.outside.ports
        self.files = self.directory({"profile.yaml": PROFILE.format(**self.ports), "ca.pem": self.outside.certificate})

    def inside(self, *argv, flags=(), timeout=60):
        done = self.caisson("run", "--json", "--profile", self.files / "profile.yaml", "--workspace", self.files, *flags, "--",
                            *argv, timeout=timeout)  # fmt: skip
        self.assertNotEqual(done.stdout, b"", done.stderr)
        return self.read_result(done.stdout)

    def python(self, code, **options):
        result = self.inside("python3", "-S", "-c", INSIDE + f"ports = {self.ports!r}\n" + code, **options)
        self.assertEqual(result["exit_code"], 0, self.story(result))
        return json.loads(result["stdout"]), result

    def uses(self, result, **wanted):
        return [use for use in result.get("network", []) if all(use[key] == value for key, value in wanted.items())]

    def assert_denied(self, result, name, reason, **evidence):
        found = [one["evidence"] for one in result["violations"] if one["evidence"].get("name") == name]
        self.assertTrue(found, self.story(result))
        self.assertIn(reason, [one.get("decision") for one in found], self.story(result))
        for key, value in evidence.items():
            self.assertIn(value, [one.get(key) for one in found])


@both_callers
class Allowed(NetworkCase):
    def page(self, *argv):
        result = self.inside(*argv)
        self.assertEqual(result["stdout"], "a page\n", self.story(result))
        self.assert_passes(result)
        return result

    def test_an_http_client_without_settings(self):
        result = self.page("python3", "-S", "-c", "import urllib.request as u; print(u.urlopen('http://web.test:%d/page.txt')"
                           ".read().decode(), end='')" % self.ports["http"])  # fmt: skip
        (use,) = self.uses(result, name="web.test", protocol="http")
        self.assertEqual((use["decision"], use["port"], use["address"], use["connections"]),
                         ("allowed", self.ports["http"], "127.0.0.1", 1))  # fmt: skip
        self.assertEqual(use["rule"], f"http://web.test:{self.ports['http']}")
        self.assertGreater(use["bytes_in"], 7)
        self.assertGreater(use["bytes_out"], 20)

    def test_clients_of_other_makers(self):
        http, tls = (f"http://web.test:{self.ports['http']}/page.txt", f"https://secure.test:{self.ports['tls']}/page.txt")
        for tool, command in (
            ("curl", ["curl", "-sS", http]),
            ("curl", ["curl", "-sS", "--cacert", "/workspace/ca.pem", tls]),
            ("wget", ["wget", "-qO-", http]),
            ("wget", ["wget", "-qO-", "--ca-certificate=/workspace/ca.pem", tls]),
            ("node", ["node", "-e", f"fetch('{http}').then(r => r.text()).then(t => process.stdout.write(t))"]),
        ):
            with self.subTest(command=command), contextlib.suppress(unittest.SkipTest):
                need_tool(tool, tool)
                self.page(*command)

    def test_git_over_https(self):
        need_tool("git", "git")
        repository = self.outside.directory / f"repository-{self.AS_USER}.git"
        work = self.directory()
        script = (f"cd {work} && git init -q . && echo text > file && git add file && "
                  "git -c user.name=t -c user.email=t@t commit -qm one && "
                  f"git clone -q --bare . {repository} && git -C {repository} update-server-info")  # fmt: skip
        subprocess.run(["sh", "-c", script], check=True, capture_output=True, env=os.environ | {"HOME": str(work), "GIT_CONFIG_COUNT": "1",
                       "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"})  # fmt: skip
        result = self.inside("sh", "-c", "git -c http.sslCAInfo=/workspace/ca.pem clone -q "
                             f"https://secure.test:{self.ports['tls']}/{repository.name} /scratch/clone && cat /scratch/clone/file")  # fmt: skip
        self.assertEqual(result["stdout"], "text\n", self.story(result))
        self.assert_passes(result)

    def test_a_server_that_speaks_first(self):
        got, result = self.python("""
with socket.create_connection(("raw.test", ports["raw"]), 10) as peer:
    first = peer.recv(100).decode()
    peer.sendall(b"x" * 300000); peer.shutdown(socket.SHUT_WR)
    got = b""
    while part := peer.recv(65536): got += part
show([first, len(got)])""")
        self.assertEqual(got, ["hello\n", 300000])
        (use,) = self.uses(result, name="raw.test", protocol="tcp")
        self.assertEqual((use["bytes_in"], use["bytes_out"]), (300006, 300000))

    def test_names_below_a_wildcard(self):
        got, result = self.python("""show([tried(lambda: talk((name, ports["http"]), request(name))[:15]) for name in
            ("a.wild.test", "A.Wild.Test.")])""")
        self.assertEqual(got[0], "HTTP/1.0 200 OK")
        self.assertEqual(len(self.uses(result, name="a.wild.test", protocol="dns", decision="allowed")), 1)

    def test_what_a_command_sent_before_it_ended_arrives(self):
        before = len(self.outside.seen)
        self.python("""
s = socket.create_connection(("web.test", ports["http"]), 10)
s.sendall(request("web.test"))
show(1)
os._exit(0)""".replace("os._exit(0)", "sys.stdout.flush(); os._exit(0)"))
        wait_until(lambda: len(self.outside.seen) > before or len(self.outside.seen), 10, "the request arrives")

    def test_each_check_has_its_own_record(self):
        program = INSIDE + f"tried(lambda: socket.getaddrinfo(sys.argv[1], 80))\ntalk(('web.test', {self.ports['http']}), request('web.test'))"
        profiles = self.directory({"network-test.yaml": PROFILE.format(**self.ports) + "on_violation: report\n"})
        result = self.verify(program, profile="network-test", flags=("--profiles", profiles),
                             checks=[check("python3", "-S", "main.py", f"{name}.example", name=name) for name in ("one", "two")])  # fmt: skip
        for name in ("one", "two"):
            denied = [use["name"] for use in self.uses(result, check=name, decision="denied")]
            self.assertEqual(denied, [f"{name}.example"], self.story(result))
            self.assertEqual(len(self.uses(result, check=name, name="web.test", protocol="http")), 1)

    def test_events(self):
        events = self.files / "events.jsonl"
        self.inside("python3", "-S", "-c", INSIDE + f"talk(('web.test', {self.ports['http']}), request('web.test'))\n"
                    "tried(lambda: socket.getaddrinfo('evil.example', 80))", flags=("--events", events))  # fmt: skip
        told = [json.loads(line) for line in events.read_text().splitlines()]
        for event in told:
            validate(event, "lifecycle_event.schema.json")
        self.assertIn("web.test", [event["network"]["name"] for event in told if event["type"] == "network_allowed"])
        self.assertIn("evil.example", [event["network"]["name"] for event in told if event["type"] == "network_denied"])


@both_callers
class Denied(NetworkCase):
    """The cases of the design, through a sandbox: nothing leaves, the attempt is named, nothing hangs."""

    def test_names_that_are_not_listed(self):
        names = ["SECRET.evil.example", "SECRET.web.test", "wild.test", "evilwild.test", "xn--wb-lha.test"]
        got, result = self.python(f"""
start = time.monotonic()
show([[tried(lambda: socket.getaddrinfo(name, 80)) for name in {names!r}], time.monotonic() - start])""")
        self.assertEqual([one for one in got[0] if one != "gaierror" and "known" not in str(one)], [], got)
        self.assertLess(got[1], 5)
        for name in names:
            self.assert_denied(result, name.lower(), "not_listed")
        self.assertEqual(result["failure_class"], "NetworkAccessViolation")

    def test_a_deny_rule_beats_a_wildcard(self):
        got, result = self.python("""show(tried(lambda: socket.getaddrinfo("no.wild.test", 80)))""")
        self.assert_denied(result, "no.wild.test", "denied_by_rule", rule="no.wild.test")

    def test_addresses_that_no_name_stands_for(self):
        got, result = self.python("""show([tried(lambda: talk((address, port), b"x", 3)) for address, port in
            (("127.0.0.1", ports["http"]), ("8.8.8.8", 53), ("169.254.169.254", 80), ("198.18.7.7", 80), ("2001:db8::1", 443))])""")
        self.assertEqual(got, ["Connection refused", "Network is unreachable", "Network is unreachable", "Connection refused",
                               got[4]])  # fmt: skip
        self.assertNotIn("hello", str(got))
        addresses = {one["evidence"].get("address") for one in result["violations"]}
        self.assertLessEqual({"8.8.8.8", "169.254.169.254", "198.18.7.7"}, addresses)

    def test_another_port_of_an_allowed_name(self):
        got, result = self.python("""show(tried(lambda: talk(("web.test", 444), b"x", 3)))""")
        self.assertEqual(got, "Connection refused")
        (violation,) = result["violations"]
        self.assertEqual((violation["evidence"]["name"], violation["evidence"]["port"]), ("web.test", 444))

    def test_tls_for_another_name_or_none(self):
        got, result = self.python("""
def hello(name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("secure.test", ports["tls"]), 10) as peer: context.wrap_socket(peer, server_hostname=name)
    return "reached"
show([tried(lambda: hello("secure.test")), tried(lambda: hello("evil.example")), tried(lambda: hello(None)),
      tried(lambda: talk(("secure.test", ports["tls"]), b"SSH-2.0-x" + b"\\r\\n"))])""")
        self.assertEqual(got[0], "reached")
        self.assertNotIn("reached", got[1:])
        for reason in ("sni_mismatch", "sni_missing", "not_tls"):
            self.assert_denied(result, "secure.test", reason)

    def test_http_for_another_host(self):
        before = list(self.outside.seen)
        got, result = self.python("""show([talk(("web.test", ports["http"]), request("evil.example"))[:12],
            talk(("web.test", ports["http"]), request("web.test").replace(b"Connection: close", b"X: y") + request("evil.example"))])""")
        self.assertEqual(got[0], "HTTP/1.1 403")
        self.assertIn("403", got[1])
        self.assertNotIn("evil.example", self.outside.seen[len(before) :])
        self.assert_denied(result, "web.test", "host_mismatch")

    def test_names_that_lead_to_other_addresses(self):
        got, result = self.python("""show([tried(lambda: talk((name, ports["http"]), request(name)))[:12] for name in
            ("inner.test", "cloud.test")])""")
        self.assertEqual(got, ["HTTP/1.1 403", "HTTP/1.1 403"])
        self.assert_denied(result, "inner.test", "address_private", address="10.9.8.7")
        self.assert_denied(result, "cloud.test", "address_metadata", address="169.254.169.254")

    def test_its_own_loopback_is_its_own(self):
        """No listener but those of names: one at all addresses would take what is sent to 127.0.0.1."""
        got, _ = self.python("""
address = socket.getaddrinfo("web.test", ports["http"])[0][4]
show([tried(lambda: talk(("127.0.0.1", ports["http"]), b"x", 3)), tried(lambda: talk((address[0][:-1] + "9", ports["http"]), b"x", 3))])""")
        self.assertEqual(got, ["Connection refused", "Connection refused"])

    def test_a_workload_that_listens_first_harms_itself(self):
        got, result = self.python("""
s = socket.socket(); s.bind(("198.18.0.2", ports["http"])); s.listen()
show(tried(lambda: socket.getaddrinfo("web.test", ports["http"])) is not None)""")
        self.assert_denied(result, "web.test", "listener_taken")

    def test_the_pool_of_another_sandbox(self):
        other = self.popen("run", "--profile", self.files / "profile.yaml", "--", "python3", "-S", "-c",
                           "import socket, time\nsocket.getaddrinfo('web.test', 80)\nprint('up', flush=True)\ntime.sleep(60)",
                           stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        self.addCleanup(end, other)
        self.assertEqual(other.stdout.readline(), b"up\n")
        got, _ = self.python("""show(tried(lambda: talk(("198.18.0.2", ports["http"]), b"x", 3)))""")
        self.assertEqual(got, "Connection refused")

    def test_questions_that_nobody_waits_for(self):
        packet = "b'\\\\x12\\\\x34\\\\x01\\\\0\\\\0\\\\x01\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\\\\x06secret\\\\x07example\\\\0\\\\0\\\\x01\\\\0\\\\x01'".replace("\\\\", "\\")
        _, result = self.python(f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto({packet}, ("127.0.0.53", 53))
show(1)""")
        self.assert_denied(result, "secret.example", "not_listed")

    def test_other_record_types_and_malformed_questions(self):
        got, result = self.python("""
def ask(packet):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3); s.sendto(packet, ("127.0.0.53", 53)); answer = s.recv(2000)
    return [answer[3] & 15, answer[7]]
def question(kind, count=1, name=b"\\3web\\4test\\0"): return struct.pack(">HHHHHH", 1, 256, count, 0, 0, 0) + (name + struct.pack(">HH", kind, 1)) * count
show([ask(question(kind)) for kind in (1, 16, 10, 255, 65, 28)] + [ask(question(1, 2)), ask(question(1, 1, b"\\300\\14"))])""")
        self.assertEqual(got, [[0, 1], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [1, 0], [1, 0]])

    def test_a_thousand_names(self):
        got, result = self.python("""
for i in range(1000): tried(lambda: socket.getaddrinfo(f"n{i}.evil.example", 80, socket.AF_INET))
show(tried(lambda: talk(("web.test", ports["http"]), request("web.test"))[:15]))""")
        self.assertEqual(got, "HTTP/1.0 200 OK")
        attempts = sum(one["count"] for one in result["violations"])
        self.assertGreaterEqual(attempts, 1000, self.story(result))
        self.assertLess(len(result["violations"]), 64)

    def test_more_names_at_once_than_a_socket_holds(self):
        """A thousand listeners are asked for at once, and denied names besides: the supervisor and egress must not wait for each other."""
        rules = ", ".join(f'"http://*.w{number}.test:{self.ports["http"]}"' for number in range(16))
        (self.files / "profile.yaml").write_text(
            PROFILE.format(**self.ports).replace("allow: [", f"allow: [{rules}, ") + "on_violation: report\n")
        got, result = self.python("""
def question(name):
    wire = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\\0"
    packet = struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + wire + struct.pack(">HH", 1, 1)
    return struct.pack(">H", len(packet)) + packet
talk(("web.test", ports["http"]), request("web.test"))
connections = [socket.create_connection(("127.0.0.53", 53)) for _ in range(16)]
for i, connection in enumerate(connections):
    connection.sendall(b"".join(question(f"n{n}.w{i}.test") + question(f"n{n}.e{i}.evil.example") for n in range(64)))
show(True); sys.stdout.flush(); os._exit(0)""", timeout=45)
        self.assertTrue(got)
        self.assertEqual(result["status"], "pass", self.story(result))
        self.assertEqual(len([use for use in result["network"] if use["name"] == "web.test" and use["protocol"] == "http"]), 1)
        # How many were read before the program ended is a matter of timing.
        self.assertGreater(sum(one["count"] for one in result["violations"]), 0)


@both_callers
class Policy(NetworkCase):
    def plan(self, *flags):
        done = self.caisson("run", "--dry-run", *flags, "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_the_command_line_is_a_grant(self):
        plan = self.plan("--network", "allowlist", "--allow-domain", "Example.org", "--allow-domain", "class:packages:pypi",
                         "--deny-domain", "www.example.org")  # fmt: skip
        self.assertEqual(plan["policy"]["network"]["allow"], ["example.org", "class:packages:pypi"])
        self.assertEqual(plan["policy"]["network"]["deny"], ["www.example.org"])
        self.assertIn("network", [rule["id"] for rule in plan["decision"]["rules"]])
        self.assertEqual([one["kind"] for one in plan["decision"]["overrides"]], ["allow_network"] * 2)

    def test_what_is_refused(self):
        for flags, text in (
            (["--network", "none", "--allow-domain", "example.org"], "needs --network allowlist"),
            (["--network", "allowlist"], "lists no destination"),
            (["--network", "allowlist", "--allow-domain", "*.com"], "--allow-domain: *.com"),
            (["--network", "allowlist", "--allow-domain", "b\u00fccher.example"], "xn--bcher-kva.example"),
            (["--network", "host"], "--network"),
        ):
            with self.subTest(flags=flags):
                done = self.caisson("run", *flags, "--", "true")
                self.assertEqual(done.returncode, 125)
                self.assertIn(text, done.stderr.decode())

    def test_a_request_may_ask_for_less_and_not_for_more(self):
        profiles = self.directory({"network-test.yaml": PROFILE.format(**self.ports)})
        ask = dict(profile="network-test", flags=("--profiles", profiles, "--approve", "network"), checks=[check("true")])
        web = f"http://web.test:{self.ports['http']}"
        result = self.verify("", network={"mode": "allowlist", "allow": [web]}, **ask)
        self.assertEqual((result["status"], result["policy"]["network"]["allow"]), ("pass", [web]))
        result = self.verify("", network={"mode": "none"}, **ask)
        self.assertEqual((result["status"], result["policy"]["network"]["mode"]), ("pass", "none"))
        result = self.verify("", network={"mode": "allowlist", "allow": ["example.org"]}, **ask)
        self.assertEqual(result["status"], "rejected")
        self.assertIn("example.org", result["message"])

    def test_a_request_that_asks_needs_approval(self):
        profiles = self.directory({"network-test.yaml": PROFILE.format(**self.ports)})
        result = self.verify("", profile="network-test", flags=("--profiles", profiles), checks=[check("true")],
                             network={"mode": "allowlist"})  # fmt: skip
        self.assertEqual(result["status"], "rejected")
        self.assertIn("--approve network", result["message"])

    def test_explain(self):
        for host, allowed in ((f"web.test:{self.ports['http']}", "may be reached"), ("web.test:444", "cannot be reached"),
                              ("no.wild.test:%d" % self.ports["http"], "network.deny")):  # fmt: skip
            done = self.caisson("policy", "explain", "--profile", self.files / "profile.yaml", "--host", host)
            self.assertIn(allowed, done.stdout.decode(), done.stderr)


@both_callers
class Ending(NetworkCase):
    def start(self):
        marker = f"marker-{os.urandom(6).hex()}"
        process = self.popen("run", "--profile", self.files / "profile.yaml", "--", "sh", "-c",
                             "getent hosts web.test >/dev/null; echo up; sleep 300; true", marker,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        self.addCleanup(end, process)
        self.assertEqual(process.stdout.readline(), b"up\n")
        return process, marker

    def relays(self):
        return processes(executable=workbench().root / "caisson-egress")

    def test_nothing_is_left_after_kill_9(self):
        if "CAISSON_LAUNCHER" in os.environ:
            self.skipTest("the supervisor is the launcher's")
        if not STARTED_BY_ROOT:
            self.skipTest("the relay hides which program it executes from other processes of its user")
        before = set(self.relays())
        process, marker = self.start()
        self.assertTrue(set(self.relays()) - before)
        left = Leftovers(None, marker)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        wait_until(lambda: not set(self.relays()) - before, 10, "the egress process ends")
        left.assert_none(10)

    def test_a_relay_that_dies_is_no_pass(self):
        if "CAISSON_LAUNCHER" in os.environ:
            self.skipTest("the egress process is the launcher's")
        if not STARTED_BY_ROOT:
            self.skipTest("needs root to find the process of another user")
        before = set(self.relays())
        process, _ = self.start()
        for pid in set(self.relays()) - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, complaint = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 125, complaint)
        self.assertIn(b"caisson-egress ended", complaint)


# Runs as root in a network namespace whose loopback is all there is: a name server that counts, and every packet.
CAPTURE = """
import ctypes, fcntl, json, os, pathlib, socket, struct, subprocess, sys
binary, profile, resolv = sys.argv[1:4]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14s", b"lo", 0x49, b""))
libc = ctypes.CDLL(None)
assert libc.mount(None, b"/", None, 16384 | 1 << 18, None) == 0
assert libc.mount(resolv.encode(), os.path.realpath("/etc/resolv.conf").encode(), None, 4096, None) == 0
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.bind(("lo", 0))
packets.setblocking(False)
def seen():
    count = 0
    while True:
        try: packets.recv(65536)
        except BlockingIOError: return count
        count += 1
def run(lines):
    command = [binary, "run", "--json", "--profile", profile, "--", "python3", "-S", "-c", chr(10).join(lines)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
denied = run(["import socket",
    "for i in range(10000):",
    "    try: socket.getaddrinfo(f'n{i}.evil.example', 443, socket.AF_INET)",
    "    except OSError: pass",
    "for address in ('8.8.8.8', '192.0.2.1'):",
    "    try: socket.create_connection((address, 53), 1)",
    "    except OSError: pass"])
quiet = seen()
run(["import socket", "try:",
    "    with socket.create_connection(('asked.example', 80), 3) as peer:",
    "        peer.sendall(bytes.fromhex('474554202f20485454502f312e310d0a486f73743a2061736b65642e6578616d706c650d0a0d0a'))",
    "        peer.settimeout(3)",
    "        peer.recv(1)",
    "except OSError: pass"])
print(json.dumps([quiet, seen() > 0, sum(one["count"] for one in denied["violations"]), denied["exit_code"]]))
"""


@unittest.skipUnless(STARTED_BY_ROOT, "*** NOT TESTED (root): needs a network namespace of its own ***")
class Captured(CallerCase):
    def test_denied_names_send_no_packet(self):
        if "CAISSON_LAUNCHER" in os.environ:
            self.skipTest("the launcher is in another network")
        files = self.directory({
            "profile.yaml": "version: 1\nname: captured\nextends: balanced\nnetwork: {mode: allowlist, allow: [\"asked.example:80\"]}\n",
            "resolv.conf": "nameserver 127.0.0.1\n"})  # fmt: skip
        done = subprocess.run(["unshare", "--net", "--mount", "/usr/bin/python3", "-B", "-c", CAPTURE, self.binary,
                               files / "profile.yaml", files / "resolv.conf"],
                              env=self.environment(), capture_output=True, timeout=120, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        packets, control, attempts, code = json.loads(done.stdout)
        self.assertEqual((packets, control, code), (0, True, 0))
        self.assertGreaterEqual(attempts, 10_000)


if __name__ == "__main__":
    unittest.main()

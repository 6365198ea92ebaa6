"""What a sandbox with a network has besides destinations: a port of the host, a server that is reached from outside, secrets
that never enter, and quotas. Servers are on this machine's loopback."""

import base64
import contextlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import STARTED_BY_ROOT, both_callers, check, end, need_tool, wait_until

SECRET = "real-secret-0b5e5f1d"

PROFILE = """
version: 1
name: access-test
extends: balanced
network:
  mode: allowlist
  allow: ["http://plain.test:{plain}", "tcp://echo.test:{echo}"]
  private_ranges: [127.0.0.1]
  hosts: {{api.test: 127.0.0.1, other.test: 127.0.0.1, plain.test: 127.0.0.1, echo.test: 127.0.0.1}}
"""

CREDENTIALS = """
version: 1
kind: credentials
credentials:
  api:
    host: api.test
    port: {api}
    path: /v1/
    header: Authorization
    environment: API_TOKEN
    secret: {secret}
    ca_file: {directory}/ca.pem
    git: read
  untrusted:
    host: other.test
    port: {api}
    header: X-Key
    value: "{{secret}}"
    secret: {{file: {directory}/secret}}
"""


class Outside:
    """An HTTPS server that remembers requests, a plain one, and one that echoes."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-", dir="/tmp"))
        self.directory.chmod(0o755)
        certificate, key = self.directory / "ca.pem", self.directory / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", "/CN=api.test", "-addext", "subjectAltName=DNS:api.test", "-keyout", key, "-out", certificate],
            check=True, capture_output=True)  # fmt: skip
        certificate.chmod(0o644)
        self.requests = []
        requests = self.requests

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                requests.append((self.command, self.path, dict(self.headers), body))
                answer = b"answer\n" if not self.path.endswith("/large") else bytes(3_000_000)
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_PUT = do_GET

            def log_message(self, *_):
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.api = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.api.socket = context.wrap_socket(self.api.socket, server_side=True)
        self.plain = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.echo = socket.create_server(("127.0.0.1", 0), backlog=64)
        for target in (self.api.serve_forever, self.plain.serve_forever, self.serve_echo):
            threading.Thread(target=target, daemon=True).start()
        self.ports = {"api": self.api.server_port, "plain": self.plain.server_port, "echo": self.echo.getsockname()[1]}

    def serve_echo(self):
        while True:
            connection, _ = self.echo.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    @staticmethod
    def answer(connection):
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                connection.sendall(data)


_outside = None


def outside():
    global _outside
    if _outside is None:
        _outside = Outside()
        unittest.addModuleCleanup(shutil.rmtree, _outside.directory, ignore_errors=True)
    return _outside


class AccessCase:
    def setUp(self):
        super().setUp()
        self.outside = outside()
        self.ports = self.outside.ports
        self.files = self.directory({"profile.yaml": PROFILE.format(**self.ports), "secret": SECRET + "\n",
                                     "ca.pem": (self.outside.directory / "ca.pem").read_text()})  # fmt: skip
        self.give(self.files / "secret", 0o600)

    def inside(self, *argv, flags=(), profile="profile.yaml", **options):
        done = self.caisson("run", "--json", "--profile", self.files / profile, *flags, "--", *argv, **options)
        self.assertNotEqual(done.stdout, b"", done.stderr)
        return self.read_result(done.stdout)

    def uses(self, result, **wanted):
        return [use for use in result.get("network", []) if all(use[key] == value for key, value in wanted.items())]

    def decisions(self, result):
        return [one["evidence"].get("decision") for one in result["violations"]]


@both_callers
class HostPort(AccessCase):
    TALK = "import socket, sys\nwith socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5) as s:\n s.sendall(b'ping'); print(s.recv(9))"

    def test_one_port_is_shown_and_no_other(self):
        result = self.inside("python3", "-S", "-c", self.TALK, str(self.ports["echo"]), flags=("--host-port", self.ports["echo"]))
        self.assertEqual(result["stdout"], "b'ping'\n", self.story(result))
        self.assert_passes(result)
        (use,) = self.uses(result, port=self.ports["echo"])
        self.assertEqual((use["rule"], use["bytes_in"], use["bytes_out"]), (f"host_port {self.ports['echo']}", 4, 4))
        other = self.inside("python3", "-S", "-c", self.TALK, str(self.ports["plain"]), flags=("--host-port", self.ports["echo"]))
        self.assertIn("refused", other["stderr"])

    def test_policy_judges_it(self):
        rules = self.directory({"policy.yaml": "version: 1\nkind: policy\nname: ours\nlock_owner: us\nrisk: []\n"})
        done = self.caisson("run", "--policy", rules / "policy.yaml", "--host-port", "5432", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"allow_host_port", done.stderr)
        granted = (rules / "policy.yaml").read_text() + (
            "overrides:\n  - {id: db, role: builder, reason: tests need it, granted_by: us, expires: 2099-01-01T00:00:00Z,\n"
            "     grant: {allow_host_port: [5432]}}\n")  # fmt: skip
        (rules / "policy.yaml").write_text(granted)
        done = self.caisson("run", "--policy", rules / "policy.yaml", "--role", "builder", "--host-port", "5432", "--dry-run", "--", "true")
        plan = json.loads(done.stdout)
        self.assertEqual(plan["policy"]["network"]["host_ports"], [5432], done.stderr)
        self.assertIn("allow_host_port", [one["kind"] for one in plan["decision"]["overrides"]])

    def test_none_means_none(self):
        done = self.caisson("run", "--network", "none", "--host-port", "5432", "--", "true")
        self.assertEqual(done.returncode, 125, done.stderr)


@both_callers
class Forward(AccessCase):
    SERVE = """
import socket, sys
family = socket.AF_INET6 if len(sys.argv) > 2 else socket.AF_INET
server = socket.socket(family)
server.bind(("::1" if len(sys.argv) > 2 else "127.0.0.1", int(sys.argv[1])))
server.listen()
print("up", flush=True)
connection, peer = server.accept()
data = b""
while part := connection.recv(65536): data += part
connection.sendall(peer[0].encode() + b" " + data.upper())
connection.close()
"""

    def free_port(self):
        with socket.create_server(("127.0.0.1", 0)) as one:
            return one.getsockname()[1]

    def serve(self, *arguments, flags=()):
        process = self.popen("run", *flags, "--", "python3", "-S", "-c", self.SERVE, *arguments,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        self.addCleanup(end, process)
        self.assertEqual(process.stdout.readline(), b"up\n")
        return process

    def talk(self, port, data):
        with socket.create_connection(("127.0.0.1", port), 10) as peer:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            got = b""
            while part := peer.recv(65536):
                got += part
            return got

    def test_a_server_inside_is_reached(self):
        for arguments, source in ((["3000"], b"127.0.0.1"), (["3000", "ipv6"], b"::1")):
            with self.subTest(arguments):
                port, result = self.free_port(), self.home / f"result-{os.urandom(4).hex()}"
                process = self.serve(*arguments, flags=("--forward", f"{port}:3000", "--result", result))
                self.assertEqual(self.talk(port, b"x" * 200_000), source + b" " + b"X" * 200_000)
                _, complaint = process.communicate(timeout=20)
                self.assertEqual(process.returncode, 0, complaint)
                (use,) = [use for use in json.loads(result.read_text())["network"] if use["decision"] == "allowed" and use["bytes_in"]]
                self.assertEqual((use["rule"], use["port"], use["bytes_in"]), (f"forward {port}", 3000, 200_000))

    def test_nothing_can_be_reached_from_inside_by_it(self):
        port = self.free_port()
        done = self.caisson("run", "--json", "--forward", str(port), "--", "getent", "hosts", "evil.example")
        result = self.read_result(done.stdout)
        self.assertEqual(result["failure_class"], "NetworkAccessViolation")

    def test_a_port_that_is_taken(self):
        done = self.caisson("run", "--forward", str(self.ports["echo"]), "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"listen at 127.0.0.1", done.stderr)

    def test_the_port_ends_with_the_run(self):
        port = self.free_port()
        process = self.serve("3000", flags=("--forward", f"{port}:3000"))
        end(process)

        def is_closed():
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) != 0

        wait_until(is_closed, 10, "the port is closed")


@both_callers
class Credential(AccessCase):
    def with_secret(self, *argv, secret=None, credential=("api",), env=None, **options):
        source = secret or f"{{file: {self.files}/secret}}"
        (self.files / "credentials.yaml").write_text(CREDENTIALS.format(secret=source, directory=self.files, **self.ports))
        flags = ["--credentials", self.files / "credentials.yaml"]
        for name in credential:
            flags += ["--credential", name]
        before = len(self.outside.requests)
        result = self.inside(*argv, flags=flags, env=env, **options)
        return result, self.outside.requests[before:]

    def curl(self, *arguments, path="/v1/thing", host="api.test"):
        need_tool("curl", "curl")
        words = " ".join(f"'{one}'" if "$" not in one else f'"{one}"' for one in arguments)
        return f"curl -sS -m 20 {words} https://{host}:{self.ports['api']}{path}"

    def test_the_secret_is_put_in_and_never_enters(self):
        look = f"""
import os, pathlib
found = []
for path in ["/proc/self/environ", "/proc/self/cmdline", "/proc/1/environ", "/proc/1/cmdline", *map(str, pathlib.Path("/etc").rglob("*")), *map(str, pathlib.Path("/run").rglob("*"))]:
    try: text = open(path, "rb").read()
    except OSError: continue
    if {SECRET[::-1]!r}[::-1].encode() in text: found.append(path)
print(found)"""
        script = self.curl("-H", "Authorization: Bearer $API_TOKEN", "-d", "placeholder in a body is text: $API_TOKEN") + f"\npython3 -S -c '{look}'"
        script = script.replace(repr(SECRET[::-1]), '"' + SECRET[::-1] + '"')
        result, requests = self.with_secret("sh", "-c", script)
        self.assertEqual(result["stdout"], "answer\n[]\n", self.story(result))
        self.assert_passes(result)
        ((method, path, headers, body),) = requests
        self.assertEqual((method, path, headers["Authorization"]), ("POST", "/v1/thing", f"Bearer {SECRET}"))
        self.assertIn(b"caisson-placeholder-", body)
        self.assertNotIn(SECRET, json.dumps(result))
        (use,) = self.uses(result, protocol="credential")
        self.assertEqual((use["name"], use["rule"], use["decision"]), ("api.test", "api", "allowed"))

    def test_sources(self):
        for secret, env in (("{environment: MY_SECRET}", {"MY_SECRET": SECRET}), ('{command: [/bin/sh, -c, "echo $PART-0b5e5f1d"]}', {"PART": "real-secret"})):
            with self.subTest(secret):
                result, requests = self.with_secret("sh", "-c", self.curl("-H", "Authorization: $API_TOKEN"), secret=secret, env=env)
                self.assertEqual(requests[0][2]["Authorization"], SECRET, self.story(result))
        os.chmod(self.files / "secret", 0o644)
        done = self.caisson("run", "--profile", self.files / "profile.yaml", "--credentials", self.files / "credentials.yaml",
                            "--credential", "untrusted", "--", "true")  # fmt: skip
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"chmod 600", done.stderr)
        self.assertNotIn(SECRET.encode(), done.stderr)

    def test_the_memory_of_the_supervisor_and_pid_1_has_no_secret(self):
        if not STARTED_BY_ROOT or "CAISSON_LAUNCHER" in os.environ:
            self.skipTest("needs root to read the memory of processes")
        (self.files / "credentials.yaml").write_text(CREDENTIALS.format(secret="{environment: MY_SECRET}", directory=self.files, **self.ports))
        process = self.popen("run", "--profile", self.files / "profile.yaml", "--credentials", self.files / "credentials.yaml",
                             "--credential", "api", "--", "sh", "-c", "echo up; exec sleep 60", env={"MY_SECRET": SECRET},
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        self.addCleanup(end, process)
        self.assertEqual(process.stdout.readline(), b"up\n")
        pids, waiting = {}, [process.pid]
        while waiting:
            pid = waiting.pop()
            pids[pid] = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            waiting += map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        holders = {name for pid, name in pids.items() if self.has(pid, SECRET.encode())}
        self.assertIn("caisson-egress", pids.values())
        # The resolver is a caisson-egress too; that exactly one of them holds it is checked by its number.
        self.assertEqual(holders, {"caisson-egress"})
        self.assertEqual(len([pid for pid in pids if self.has(pid, SECRET.encode())]), 1)

    @staticmethod
    def has(pid, text):
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                place, rights, *_ = line.split()
                start, stop = (int(number, 16) for number in place.split("-"))
                if "r" not in rights or "[v" in line:
                    continue
                with contextlib.suppress(OSError):
                    memory.seek(start)
                    if text in memory.read(stop - start):
                        return True
        return False

    def test_the_placeholder_elsewhere(self):
        plain = f"http://plain.test:{self.ports['plain']}/"
        basic = "Authorization: Basic $(printf user:$API_TOKEN | base64 -w0)"
        for command, reason in (
            (self.curl("-H", "Authorization: Bearer $API_TOKEN", path="/v2/thing"), "placeholder_misplaced"),
            (self.curl("-H", "X-Copy: $API_TOKEN"), "placeholder_misplaced"),
            (self.curl(path="/v1/?q=") + "$API_TOKEN", "placeholder_misplaced"),
            (f'curl -sS -m 20 -H "Authorization: $API_TOKEN" {plain}', "placeholder_misplaced"),
            (f'curl -sS -m 20 -H "{basic}" {plain}', "placeholder_misplaced"),
            (self.curl("--path-as-is", "-H", "Authorization: $API_TOKEN", path="/v1/../v2/"), "ambiguous_path"),
            (self.curl("-H", "Host: other.test"), "host_mismatch"),
            (self.curl("-X", "POST", path="/v1/a.git/git-receive-pack"), "git_write"),
        ):
            with self.subTest(command):
                result, requests = self.with_secret("sh", "-c", command)
                self.assertEqual(requests, [])
                self.assertIn(reason, self.decisions(result), self.story(result))
                self.assertIn("caisson: " + reason, result["stdout"])

    def test_basic_authentication_and_fetching(self):
        command = self.curl("-u", "user:$API_TOKEN", path="/v1/a.git/info/refs?service=git-upload-pack")
        result, requests = self.with_secret("sh", "-c", command)
        self.assertEqual(requests[0][2]["Authorization"], "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode(), self.story(result))

    def test_large_answers_and_kept_connections(self):
        url = f"https://api.test:{self.ports['api']}/v1/"
        result, requests = self.with_secret("sh", "-c", f'curl -sS -m 30 -H "Authorization: $API_TOKEN" {url}large {url}a {url}b | wc -c')
        self.assertEqual(result["stdout"].strip(), str(3_000_000 + 14), self.story(result))
        self.assertEqual({headers["Authorization"] for _, _, headers, _ in requests}, {SECRET})
        self.assertEqual(len(self.uses(result, protocol="tls", name="api.test")), 1)

    def test_a_server_that_cannot_be_trusted(self):
        result, requests = self.with_secret("sh", "-c", self.curl(host="other.test"), credential=("untrusted",))
        self.assertEqual(requests, [])
        self.assertIn("upstream_certificate", result["stdout"], self.story(result))

    def test_clients_trust_the_sandbox_and_the_world(self):
        url = f"https://api.test:{self.ports['api']}/v1/"
        python = f"import os, urllib.request as u; print(u.urlopen(u.Request('{url}', headers={{'Authorization': os.environ['API_TOKEN']}})).read())"
        node = f"fetch('{url}', {{headers: {{authorization: process.env.API_TOKEN}}}}).then(r => r.text()).then(t => process.stdout.write(t))"
        for tool, command in (("python3", ["python3", "-S", "-c", python]), ("node", ["node", "-e", node]),
                              ("wget", ["sh", "-c", f'wget -qO- --header "Authorization: $API_TOKEN" {url}'])):  # fmt: skip
            with self.subTest(tool), contextlib.suppress(unittest.SkipTest):
                need_tool(tool, tool)
                result, requests = self.with_secret(*command)
                self.assertIn("answer", result["stdout"], self.story(result))
                self.assertEqual({key.lower(): value for key, value in requests[0][2].items()}["authorization"], SECRET)
        roots = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
        if roots.exists():
            result, _ = self.with_secret("sh", "-c", "grep -c BEGIN $SSL_CERT_FILE; cmp $SSL_CERT_FILE /etc/ssl/certs/ca-certificates.crt")
            self.assertEqual(result["stdout"].strip(), str(roots.read_text().count("BEGIN") + 1), self.story(result))

    def test_http_2_is_not_offered_and_other_protocols_end(self):
        script = f"""
import socket, ssl
context = ssl.create_default_context()
context.set_alpn_protocols(["h2"])
try:
    context.wrap_socket(socket.create_connection(("api.test", {self.ports["api"]}), 10), server_hostname="api.test")
    print("h2")
except ssl.SSLError as error: print("refused")
context.set_alpn_protocols(["h2", "http/1.1"])
peer = context.wrap_socket(socket.create_connection(("api.test", {self.ports["api"]}), 10), server_hostname="api.test")
print(peer.selected_alpn_protocol())
peer.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n")
print(peer.recv(12).decode())"""
        result, requests = self.with_secret("python3", "-S", "-c", script)
        self.assertEqual(result["stdout"].split("\n")[:3], ["refused", "http/1.1", "HTTP/1.1 400"], self.story(result))
        self.assertEqual(requests, [])

    def test_requests_need_a_grant(self):
        (self.files / "credentials.yaml").write_text(CREDENTIALS.format(secret=f"{{file: {self.files}/secret}}", directory=self.files, **self.ports))
        profiles = self.directory({"access-test.yaml": PROFILE.format(**self.ports)})
        result = self.verify("", profile="access-test", flags=("--profiles", profiles, "--approve", "network",
                             "--credentials", self.files / "credentials.yaml"), checks=[check("true")],
                             network={"mode": "allowlist", "credentials": ["api"]})  # fmt: skip
        self.assertEqual(result["status"], "rejected")
        self.assertIn("network.credentials: api", result["message"])


@both_callers
class Quota(AccessCase):
    def limited(self, limits):
        (self.files / "limited.yaml").write_text(PROFILE.format(**self.ports) + f"  limits: {limits}\n")
        return "limited.yaml"

    def test_bytes(self):
        code = f"""
import socket
with socket.create_connection(("echo.test", {self.ports["echo"]}), 10) as peer:
    try:
        while True: peer.sendall(bytes(65536)); peer.recv(65536)
    except OSError: pass"""
        result = self.inside("python3", "-S", "-c", code, profile=self.limited("{bytes: 1MiB}"))
        (use,) = self.uses(result, name="echo.test", protocol="tcp", decision="allowed")
        self.assertLess(use["bytes_in"] + use["bytes_out"], (1 << 20) + (1 << 19))
        result = self.inside("python3", "-S", "-c", code + f"\ntry: socket.create_connection(('echo.test', {self.ports['echo']}), 10).recv(1)\nexcept OSError: pass",
                             profile="limited.yaml")  # fmt: skip
        self.assertIn("byte_limit", self.decisions(result), self.story(result))

    def test_connections_at_a_time_and_in_a_second(self):
        code = f"""
import socket
peers = []
for _ in range(6):
    try: peers.append(socket.create_connection(("echo.test", {self.ports["echo"]}), 10)); peers[-1].sendall(b"x"); peers[-1].recv(1)
    except OSError: pass"""
        for limits, reason in (("{connections: 2}", "connection_limit"), ("{connections_per_second: 1}", "connection_rate")):
            with self.subTest(limits):
                result = self.inside("python3", "-S", "-c", code, profile=self.limited(limits))
                self.assertIn(reason, self.decisions(result), self.story(result))


@both_callers
class Asked(AccessCase):
    """The user of a terminal decides about destinations that no rule mentions."""

    def attended(self, code, answers, profile_extra=""):
        """Runs a program on a terminal of its own; `answers` are typed one after the other, each when a question stands there."""
        (self.files / "ask.yaml").write_text(PROFILE.format(**self.ports).replace("hosts: {", "ask: true\n  hosts: {new.test: 127.0.0.1, inner.test: 10.9.8.7, ") + profile_extra)
        result = self.files / "result.json"
        master, slave = os.openpty()
        # It opens its controlling terminal by name, so it needs a session of its own.
        command = self.command("run", "--profile", self.files / "ask.yaml", "--result", result, "--", "python3", "-S", "-c", code)
        process = subprocess.Popen(["setsid", "--ctty", *command], env=self.environment(), cwd=self.home, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.addCleanup(end, process)
        shown, answered = b"", 0
        with contextlib.suppress(OSError):
            while data := os.read(master, 65536):
                shown += data
                if shown.count(b"[N]ot? ") > answered and answered < len(answers):
                    os.write(master, answers[answered] + b"\n")
                    answered += 1
        os.close(master)
        process.wait(30)
        return shown.decode(errors="replace"), json.loads(result.read_text()) if result.exists() else None

    TALK = """
import socket
def talk(name):
    try:
        with socket.create_connection((name, 80), 20) as s:
            s.sendall(f"GET / HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n".encode())
            return s.recv(12).decode()
    except OSError as error: return type(error).__name__
"""

    def setUp(self):
        super().setUp()
        if "CAISSON_LAUNCHER" in os.environ:
            self.skipTest("a launcher passes no questions on")
        need_tool("setsid", "setsid")

    def test_no_is_remembered_and_told(self):
        shown, result = self.attended(self.TALK + "print(talk('new.test'), talk('new.test'))", [b"n"])
        self.assertEqual(shown.count("wants to reach new.test:80 (http)"), 1, shown)
        self.assertIn("HTTP/1.1 403 HTTP/1.1 403", shown)
        self.assertIn("not_approved", self.decisions(result))
        self.assertEqual(result["failure_class"], "NetworkAccessViolation")

    def test_yes_for_once_and_for_the_session(self):
        shown, result = self.attended(self.TALK + "print(talk('new.test'), talk('new.test'))", [b"o", b"n"])
        self.assertEqual(shown.count("wants to reach new.test:80"), 2, shown)
        self.assertEqual(self.decisions(result), ["not_approved"])
        (use,) = self.uses(result, name="new.test", reason="not_approved")
        self.assertEqual(use["connections"], 1)
        shown, result = self.attended(self.TALK + "print(talk('new.test'), talk('new.test'))", [b"s"])
        self.assertEqual(shown.count("wants to reach new.test:80"), 1, shown)
        self.assertEqual(self.decisions(result), [], shown)

    def test_private_addresses_and_deny_rules_are_not_askable(self):
        shown, result = self.attended(self.TALK + "print(talk('inner.test'), talk('no.test'))", [b"s"], "  deny: [no.test]\n")
        self.assertEqual(shown.count("wants to reach"), 1, shown)
        self.assertIn("address_private", self.decisions(result))
        self.assertIn("denied_by_rule", self.decisions(result))

    def test_ten_questions_in_a_minute(self):
        shown, result = self.attended(self.TALK + "for i in range(13): talk(f'n{i}.test')", [b"n"] * 13)
        self.assertEqual(shown.count("wants to reach"), 10, shown)

    def test_unattended_means_no_at_once(self):
        (self.files / "ask.yaml").write_text(PROFILE.format(**self.ports).replace("hosts: {", "ask: true\n  hosts: {"))
        result = self.inside("getent", "hosts", "new.test", profile="ask.yaml")
        self.assertEqual(result["exit_code"], 2)
        self.assertIn("not_listed", self.decisions(result))


if __name__ == "__main__":
    unittest.main()

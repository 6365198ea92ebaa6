"""What reaches out of a session while it runs, and what a person decides about it: questions about hosts, caisson-ask, ports that
are forwarded, and commits that travel as bundles. As root and as an ordinary user."""

import contextlib
import http.server
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from caisson import STARTED_BY_ROOT, both_callers, end, need_tool, skip, validate, wait_until
from session_test import Sessions
from terminal_test import Terminal

OUTSIDE = "127.0.0.77"  # of this machine, and not its only loopback address

PROFILE = """
version: 1
name: asking
extends: session
network:
  mode: allowlist
  ask: true
  private_ranges: [{address}]
  hosts: {{new.test: {address}, other.test: {address}, never.test: {address}}}
  deny: [{deny}]
approvals: {{network: {network}, wait_ms: {wait}}}
"""

TALK = """
import socket, sys
def talk(name, seconds=30):
    try:
        with socket.create_connection((name, 80), seconds) as s:
            s.sendall(f"GET / HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n".encode())
            return s.recv(12).decode()
    except OSError as error: return type(error).__name__
print(*[talk(name) for name in sys.argv[1:]])
"""
GOOD, REFUSED = "HTTP/1.1 204\n", "HTTP/1.1 403\n"


class Server:
    """A web server at a port, or at any."""

    def __init__(self, port=0):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.send_response_only(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((OUTSIDE, port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Asking(Sessions):
    """A session that asks, and helpers for the person who is asked."""

    def profile(self, wait="60s", network="ask", deny="never.test"):
        path = self.place / "asking.yaml"
        path.write_text(PROFILE.format(address=OUTSIDE, wait=wait, network=network, deny=deny))
        return self.give(path)

    def open_asking(self, *flags, **settings):
        return self.open(None, "--name", "asks", "--profile", self.profile(**settings), "--ask", *flags)

    def start(self, *command):
        """Runs a command in the session without waiting for it."""
        return self.session("exec", "asks", "--detach", "--", *command).stdout.decode().strip()

    def talk(self, *names):
        return self.start("python3", "-S", "-c", TALK, *names)

    def finish(self, number):
        """What the command wrote."""
        done = self.caisson("session", "attach", "asks", number)
        return done.stdout.decode()

    def waiting(self):
        document = json.loads(self.session("approvals", "asks", "--json").stdout)["approvals"]
        for one in document:
            validate(one, "session_approval.schema.json")
        return document

    def await_question(self, count=1):
        wait_until(lambda: len(self.waiting()) >= count, 20, "no question")
        return self.waiting()

    def approve(self, approval, *flags, code=0):
        return self.session("approve", "asks", approval["approval_id"], *flags, code=code)

    def deny(self, approval, *flags):
        return self.session("deny", "asks", approval["approval_id"], *flags)

    def kinds(self, *types):
        return [event["type"] for event in self.events("asks") if event["type"].startswith(types or "approval_")]


@both_callers
class Questions(Asking):
    """Hosts that no rule lists, and a person at another terminal."""

    def setUp(self):
        super().setUp()
        if not STARTED_BY_ROOT:
            skip("root", "only ports 80 and 443 are asked about, and a server there needs root")
        self.server = Server(80)
        self.addCleanup(self.server.close)

    def test_once_for_the_session_and_never(self):
        self.open_asking()
        number = self.talk("new.test")
        (question,) = self.await_question()
        self.assertEqual((question["kind"], question["what"], question["protocol"]), ("network", "new.test:80", "http"))
        listed = self.session("approvals").stdout.decode()
        self.assertIn("a program wants to reach new.test:80 (http), which no rule lists", listed)
        self.approve(question)
        self.assertEqual(self.finish(number), GOOD)
        number = self.talk("new.test", "new.test")  # once is used up
        self.approve(self.await_question()[0], "--scope", "session")
        self.assertEqual(self.finish(number), "HTTP/1.1 204 HTTP/1.1 204\n")
        number = self.talk("other.test", "other.test")
        self.deny(self.await_question()[0], "--reason", "no need")
        self.assertEqual(self.finish(number), "HTTP/1.1 403 HTTP/1.1 403\n")
        self.assertEqual(self.waiting(), [], "a denial is remembered")
        self.assertEqual(self.finish(self.talk("never.test")).strip(), "gaierror", "what a rule denies is not asked about")
        self.assertEqual(self.kinds(), ["approval_requested", "approval_granted"] * 2 + ["approval_requested", "approval_denied"])
        granted = [event for event in self.events("asks") if event["type"] == "approval_granted"]
        self.assertEqual([(event["scope"], event["what"]) for event in granted], [("once", "new.test:80"), ("session", "new.test:80")])
        self.session("approve", "asks", question["approval_id"], code=125)  # answered already
        self.session("stop", "asks")
        log = self.place / "sessions" / self.show("asks")["id"] / "events.jsonl"
        self.assertEqual(self.caisson("audit", "verify", log).returncode, 0)

    def test_equal_questions_are_one_and_the_decision_outlives_the_connection(self):
        self.open_asking()
        numbers = [self.talk("new.test"), self.talk("new.test")]
        self.await_question()
        impatient = self.start("python3", "-S", "-c", TALK.replace("seconds=30", "seconds=0.5"), "new.test")
        self.assertEqual(self.finish(impatient), "TimeoutError\n")
        (question,) = self.waiting()
        self.approve(question, "--scope", "session")
        self.assertEqual([self.finish(number) for number in numbers], [GOOD, GOOD])
        number = self.start("python3", "-S", "-c", TALK.replace("seconds=30", "seconds=0.5"), "other.test")
        (question,) = self.await_question()
        self.assertEqual(self.finish(number), "TimeoutError\n")
        self.approve(question)  # the client has left
        self.assertEqual(self.finish(self.talk("other.test")), GOOD, "its next try passes")
        number = self.talk("other.test")
        self.deny(self.await_question()[0])
        self.assertEqual(self.finish(number), REFUSED, "once")

    def test_policy_changed_meanwhile(self):
        self.open_asking()
        number = self.talk("new.test")
        (question,) = self.await_question()
        self.profile(deny="never.test, more.test")
        done = self.approve(question, code=5)
        (again,) = self.waiting()
        self.assertNotEqual(again["approval_id"], question["approval_id"])
        self.assertIn(again["approval_id"].encode(), done.stderr)
        self.approve(again)
        self.assertEqual(self.finish(number), GOOD)
        self.assertEqual(self.kinds(), ["approval_requested", "approval_expired", "approval_requested", "approval_granted"])
        number = self.talk("other.test")
        (question,) = self.await_question()
        self.profile(deny="never.test, other.test")
        self.approve(question, code=5)
        self.assertEqual((self.waiting(), self.finish(number)), ([], REFUSED), "a rule denies it now")

    def test_no_answer_and_too_many_questions(self):
        self.open_asking(wait="300ms")
        self.assertEqual(self.finish(self.talk("new.test", "new.test")), "HTTP/1.1 403 HTTP/1.1 403\n")
        self.assertEqual(self.kinds(), ["approval_requested", "approval_expired"] * 2, "the next try is asked about again")
        self.finish(self.talk(*[f"n{number}.test" for number in range(12)]))
        self.assertEqual(len(self.kinds("approval_requested")), 10)

    def test_unattended(self):
        self.open(None, "--name", "asks", "--profile", self.profile())
        started = time.monotonic()
        self.assertEqual(self.finish(self.talk("new.test")), "gaierror\n")
        self.assertLess(time.monotonic() - started, 10)
        self.assertEqual(self.waiting(), [])
        denied = [event["network"]["reason"] for event in self.events("asks") if event["type"] == "network_denied"]
        self.assertIn("not_listed", denied)

    def test_the_attached_terminal(self):
        self.open_asking()
        command = self.command("session", "exec", "asks", "-t", "--", "python3", "-S", "-c", "input('ready? ')\n" + TALK, "new.test")
        screen = Terminal(command, self.environment())
        self.addCleanup(screen.close)
        screen.read_until(rb"ready\? ")
        screen.type(b"\x10\x19")
        screen.read_until(rb"nothing waits for an answer")
        screen.type(b"go\r")
        screen.read_until(rb"a program wants to reach new.test:80 \(http\)")
        screen.type(b"\x10\x19")
        screen.read_until(rb"allow it \[o\]nce, for this \[s\]ession, or \[n\]ot\?")
        screen.type(b"o")
        screen.read_until(rb"HTTP/1.1 204")
        self.assertEqual(screen.wait(), 0)
        self.assertEqual(self.kinds(), ["approval_requested", "approval_granted"])
        shown = self.session("log", "asks", "1").stdout
        self.assertNotIn(b"wants to reach", shown, "the command's own terminal has no part of it")
        self.assertNotIn(b"\x10", shown)


@both_callers
class FromInside(Asking):
    """caisson-ask, and the programs that say what to ask for."""

    def ask(self, *words, code, expect=""):
        done = self.session("exec", "asks", "--", "caisson-ask", *words, code=code)
        self.assertIn(expect, done.stdout.decode() + done.stderr.decode())

    def test_a_host_is_allowed_live(self):
        server = Server()
        self.addCleanup(server.close)
        self.open_asking()
        fetch = ["python3", "-S", "-c", f"import urllib.request; print(urllib.request.urlopen('http://new.test:{server.port}/', timeout=20).status)"]
        self.session("exec", "asks", "--", *fetch, code=1)
        number = self.start("caisson-ask", "network", f"http://new.test:{server.port}", "for", "the", "tests")
        (question,) = self.await_question()
        self.assertEqual((question["protocol"], question["reason"]), (None, "for the tests"))
        self.assertIn('it says: "for the tests"', self.session("approvals", "asks").stdout.decode())
        self.approve(question)
        self.assertEqual(self.finish(number), f"granted http://new.test:{server.port}\n")
        self.assertEqual(self.run_in("asks", *fetch), "204\n")
        self.ask("network", f"http://new.test:{server.port}", code=0, expect="allowed already")
        self.assertIn(f"http://new.test:{server.port}", self.show("asks")["network"]["allow"])
        number = self.start("caisson-ask", "network", "other.test")
        self.deny(self.await_question()[0], "--reason", "use the mirror")
        self.assertEqual(self.finish(number), "denied the approver denied it: use the mirror\n")
        for what, expect in (("never.test", "denies never.test"), ("192.0.2.1:80", "name the host"), ("*", "denied")):
            self.ask("network", what, code=1, expect=expect)

    def test_more_time_and_what_cannot_be_had(self):
        self.open_asking("--ttl", "1h")
        before = self.show("asks")["expires_at"]
        number = self.start("caisson-ask", "time", "2h")
        self.approve(self.await_question()[0])
        self.assertEqual(self.finish(number), "granted 2h\n")
        self.assertGreater(self.show("asks")["expires_at"], before)
        number = self.start("caisson-ask", "time", "20h")
        self.approve(self.await_question()[0], code=125)
        self.assertIn("at most", self.finish(number))
        for words, expect in ((("memory", "4G"), "--memory 4G"), (("mount", "/srv"), "-v /srv:/srv:ro"), (("host_port", "5432"), "--host-port"),
                              (("credential", "github"), "--credential github"), (("install", "nothing"), "names no class")):  # fmt: skip
            self.ask(*words, code=1, expect=expect)
        for program in ("sudo", "apt", "apt-get"):
            done = self.session("exec", "asks", "--", program, "install", "x", code=1)
            self.assertIn(b"caisson-ask", done.stderr)

    def test_unattended_and_by_policy(self):
        self.open(None, "--name", "asks", "--profile", self.profile())
        self.ask("network", "new.test", code=1, expect="no person can be asked")
        self.session("stop", "asks")
        self.session("rm", "asks")
        self.open(None, "--name", "asks", "--profile", self.profile(network="allow"))
        self.ask("network", "new.test", code=0, expect="granted new.test")
        self.assertEqual(self.kinds(), ["approval_requested", "approval_granted"])
        self.session("stop", "asks")
        self.session("rm", "asks")
        self.open(None, "--name", "asks")
        self.ask("network", "new.test", code=1, expect="opened without a network")

    def test_hostile_lines(self):
        self.open_asking()
        script = r"""
import socket
def ask(data, wait=True):
    s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect("/run/caisson/ask.sock")
    try: s.sendall(data)
    except OSError: return "closed"
    return s.recv(4096).decode() if wait else s
for line in (b"\n", b"approve apr_1\n", b"network \x1b]0;x\x07.test\n", b"network a.test \x1b[2J\n", b"x" * 5000, b"network " + b"a" * 400 + b"\n", b"\0\n"):
    print(ask(line).split()[:1])
idle = [ask(b"netw", False) for _ in range(40)]
print("end")
"""
        self.assertEqual(self.run_in("asks", "python3", "-S", "-c", script), "['denied']\n" * 7 + "end\n")
        self.assertEqual(self.waiting(), [])
        self.assertEqual(self.run_in("asks", "sh", "-c", "ls /run/caisson; touch /run/caisson/x 2>/dev/null || echo no"), "ask.sock\nbin\nno\n")


@both_callers
class Ports(Sessions):
    def test_forward(self):
        self.open(None, "--name", "web")
        self.run_in("web", "sh", "-c", "echo inside > page.txt")
        self.session("exec", "web", "--detach", "--", "python3", "-m", "http.server", "8123", "--bind", "127.0.0.1")
        forward = subprocess.Popen(self.command("session", "forward", "web", "0:8123", "--json"), env=self.environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=self.home)  # fmt: skip
        self.addCleanup(forward.stdout.close)
        self.addCleanup(end, forward)
        text = b""
        while not text.endswith(b"\n}\n"):
            text += forward.stdout.readline()
        port = json.loads(text)["forwards"][0]["port"]

        def page():
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/page.txt", timeout=10).read() == b"inside\n"

        wait_until(page, 20, "the server inside is not reached")
        forward.terminate()
        self.assertEqual(forward.wait(20), 0)

        def closed():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) != 0

        wait_until(closed, 20, "the port outlives its command")
        forward = subprocess.Popen(self.command("session", "forward", "web", f"{port}:8123"), env=self.environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.home)  # fmt: skip
        self.addCleanup(forward.stdout.close)
        self.addCleanup(end, forward)
        self.assertIn(str(port).encode(), forward.stdout.readline())
        wait_until(page, 20, "the server inside is not reached again")
        self.session("stop", "web")
        self.assertEqual(forward.wait(20), 0)
        self.assertTrue(closed())
        self.assertIn("port_forwarded", [event["type"] for event in self.events("web")])
        self.session("forward", "web", "8123", code=125)


@both_callers
class Commits(Sessions):
    IDENTITY = "git config --global user.email a@example.org; git config --global user.name a; git config --global safe.directory '*'; "

    def setUp(self):
        super().setUp()
        need_tool("git", "git")
        self.project = self.directory({"a.txt": "one\n"})
        self.git("init", "-q", "-b", "main")
        self.git("add", "a.txt")
        self.git("-c", "user.email=a@example.org", "-c", "user.name=a", "commit", "-qm", "first")
        self.proof = self.place / "ran"
        hook = self.project / ".git/hooks/reference-transaction"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho ran >> {self.proof}\nexit 0\n")  # inside there is no such place
        hook.chmod(0o755)
        for path in [self.project, *self.project.rglob("*")]:
            self.give(path)
        self.open(self.project, "--name", "commits", "-e", "HOME=/tmp")

    def git(self, *arguments):
        done = subprocess.run(["git", "-c", "safe.directory=*", "-C", self.project, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def test_travel_as_a_bundle(self):
        self.assertEqual(json.loads(self.session("commits", "commits", "--json").stdout)["refs"], [])
        self.run_in("commits", "sh", "-c", self.IDENTITY + "echo two > a.txt; git commit -qam second; git checkout -qb side; echo s > s; git add s; git commit -qm third")
        document = json.loads(self.session("commits", "commits", "--json").stdout)
        prefix = f"refs/caisson/{document['id']}/"
        self.assertEqual([one["ref"] for one in document["refs"]], [prefix + "main", prefix + "side"])
        self.assertEqual(self.git("log", "--format=%s", prefix + "side").split(), ["third", "second", "first"])
        self.assertEqual(self.git("log", "--format=%s", "main"), "first", "branches of the project stay")
        self.assertFalse(self.proof.exists(), "a hook ran")
        self.git("update-ref", "refs/control", "HEAD")
        self.assertTrue(self.proof.exists(), "the control: the hook works")
        self.run_in("commits", "git", "commit", "-q", "--allow-empty", "-m", "fourth")
        self.assertIn(b"side", self.session("apply", "commits").stderr)
        self.assertEqual(self.git("log", "-1", "--format=%s", prefix + "side"), "fourth")
        self.assertEqual(self.git("log", "--format=%s", "main"), "first")
        self.assertEqual((self.project / "a.txt").read_text(), "two\n")

    def test_git_checks_what_comes(self):
        # A tree with an entry named .git, which would be written over a repository.
        self.run_in("commits", "sh", "-c", self.IDENTITY + "t=$(printf '100644 blob %s\\t.git\\n' $(git hash-object -w a.txt) | git mktree) && "
                    "git update-ref refs/heads/evil $(git commit-tree -p HEAD -m evil $t)")  # fmt: skip
        done = self.session("commits", "commits", code=125)
        self.assertIn(b"refused by git", done.stderr)
        self.assertEqual(self.git("for-each-ref", "refs/caisson"), "")


if __name__ == "__main__":
    unittest.main()

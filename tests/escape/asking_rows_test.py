"""The rows of group K about questions to an approver: what a hostile program asks for, and how it might get the answer itself.
Walls that they notice when they are gone: session_rows_test.py leaves them out.
"""

import json
import os
import pathlib
import pty
import select
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from session_rows_test import BINARY, SessionRow


class AskingRow(SessionRow):
    """A session whose programs can ask, and a person elsewhere who answers."""

    # A name that leads nowhere: what matters is whether a connection was refused (403) or tried.
    TALK = """import socket, sys
def talk(name):
    try:
        with socket.create_connection((name, 80), 40) as s:
            s.sendall(f"GET / HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n".encode())
            return "refused" if b" 403 " in s.recv(20) else "tried"
    except OSError as error: return type(error).__name__
print("talked:", talk(sys.argv[1]), flush=True)
"""

    def profile(self, wait="60s", deny="never.test"):
        path = self.root / "asking.yaml"
        path.write_text(
            "version: 1\nname: asking\nextends: session\nnetwork:\n  mode: allowlist\n  ask: true\n  private_ranges: [127.0.0.78]\n"
            f"  hosts: {{new.test: 127.0.0.78}}\n  deny: [{deny}]\napprovals: {{network: ask, wait_ms: {wait}}}\n"
        )
        return path

    def open(self, **settings):
        opened = json.loads(
            self.caisson("session", "open", self.project, "--detach", "--json", "--ask", "--profile", self.profile(**settings)).stdout
        )
        self.addCleanup(self.caisson, "session", "rm", opened["id"], code=None)
        self.addCleanup(self.caisson, "session", "stop", opened["id"], code=None)
        self.directory = self.root / "sessions" / opened["id"]
        return opened["id"]

    def talk(self, session):
        """Starts a connection to a host that no rule lists."""
        return self.caisson("session", "exec", session, "--detach", "--", "python3", "-S", "-c", self.TALK, "new.test").stdout.decode().strip()

    def said(self, session, number):
        return self.caisson("session", "attach", session, number, code=None).stdout.decode()

    def waiting(self, session):
        return json.loads(self.caisson("session", "approvals", session, "--json").stdout)["approvals"]

    def question(self, session):
        deadline = time.monotonic() + 20
        while not (found := self.waiting(session)) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(len(found), 1, "the control: the question is asked")
        return found[0]["approval_id"]

    def asked(self, session):
        log = self.caisson("session", "log", session, "--json").stdout.splitlines()
        return [event for event in map(json.loads, log) if event["type"].startswith("approval_")]


class K13Names(AskingRow):
    """Case 41: escape codes in what is asked for."""

    def test_are_never_shown(self):
        session = self.open()
        ask = (
            "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/run/caisson/ask.sock')\n"
            "s.sendall(b'network \\x1b]52;c;eA==\\x07.test \\x1b[2Jharmless\\n')\nprint(s.recv(100), '\\x1b[2J')"
        )
        said = self.caisson("session", "exec", session, "--", "python3", "-S", "-c", ask).stdout
        self.assertIn(b"\x1b[2J", said, "the control: the program can write the codes")
        self.assertIn(b"denied", said)
        # Names that reach the approver over DNS and connections are letters and digits, whatever the packet holds.
        self.caisson("session", "exec", session, "--", "getent", "hosts", "a\x1b[2J.test", code=None)
        for arguments in (["approvals", session], ["approvals", session, "--json"], ["log", session]):
            self.assertNotIn(b"\x1b", self.caisson("session", *arguments).stdout)


class K14Flood(AskingRow):
    """Case 42: a thousand different questions in a minute."""

    def test_is_denied(self):
        session = self.open()
        flood = (
            "import socket\ndenied = 0\nkept = []\nfor i in range(1000):\n"
            "  s = socket.socket(socket.AF_UNIX); s.connect('/run/caisson/ask.sock'); s.sendall(f'network n{i}.test\\n'.encode()); s.settimeout(0.05 if i < 10 else 20)\n"
            "  try: denied += s.recv(100).startswith(b'denied too many')\n  except TimeoutError: kept.append(s)\nprint(len(kept), denied)"
        )
        self.assertEqual(self.caisson("session", "exec", session, "--", "python3", "-S", "-c", flood).stdout, b"10 990\n")
        self.assertEqual(len(self.asked(session)), 10)


class K15Bound(AskingRow):
    """Case 43: the policy changes between the question and its answer."""

    def test_is_asked_again(self):
        session = self.open()
        number = self.talk(session)
        first = self.question(session)
        self.profile(deny="never.test, more.test")
        self.caisson("session", "approve", session, first, code=5)
        second = self.question(session)
        self.assertNotEqual(first, second)
        self.caisson("session", "approve", session, first, code=125)
        self.caisson("session", "approve", session, second)
        self.assertIn("talked: tried", self.said(session, number))


class K16Absent(AskingRow):
    """Case 44: no approver, no time, no supervisor."""

    def test_is_a_denial(self):
        session = self.open(wait="300ms")
        number = self.talk(session)
        self.assertIn("talked: refused", self.said(session, number))
        self.assertEqual([event["type"] for event in self.asked(session)], ["approval_requested", "approval_expired"])

    def test_nothing_outlives_the_supervisor(self):
        session = self.open()
        number = self.talk(session)
        question = self.question(session)
        os.kill(json.loads((self.directory / "session.json").read_text())["pid"], 9)
        self.caisson("session", "approve", session, question, code=125)
        self.assertNotIn("tried", self.caisson("session", "log", session, number, code=None).stdout.decode())
        self.assertEqual([event["type"] for event in self.asked(session)], ["approval_requested"])


class K17Late(AskingRow):
    """Case 45: the grant arrives after the client left."""

    def test_the_next_try_passes_once(self):
        session = self.open()
        number = self.caisson("session", "exec", session, "--detach", "--", "timeout", "1", "python3", "-S", "-c", self.TALK, "new.test").stdout.decode().strip()
        question = self.question(session)
        self.assertNotIn("talked", self.said(session, number))
        self.caisson("session", "approve", session, question)
        self.assertIn("talked: tried", self.said(session, self.talk(session)))
        number = self.talk(session)
        self.caisson("session", "deny", session, self.question(session))
        self.assertIn("talked: refused", self.said(session, number))


class K18Prompt(AskingRow):
    """Case 63: output that forges a prompt, and a question that is really there."""

    def test_only_the_approver_answers(self):
        session = self.open()
        forged = "caisson: allow it [o]nce, for this [s]ession, or [n]ot? "
        program = self.TALK.replace("print(", f"import threading\nthreading.Thread(target=lambda: print('typed:', repr(input({forged!r})), flush=True)).start()\nprint(")
        ours, theirs = pty.openpty()
        client = subprocess.Popen(
            [BINARY, "session", "exec", session, "-t", "--", "python3", "-S", "-c", program, "new.test"],
            env=self.environment, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        self.addCleanup(os.close, ours)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)

        def read_until(text):
            shown, deadline = b"", time.monotonic() + 30
            while text not in shown and time.monotonic() < deadline:
                if select.select([ours], [], [], 1)[0]:
                    shown += os.read(ours, 1 << 16)
            self.assertIn(text, shown, "the control: the program and its terminal work")
            return shown

        read_until(b"or [n]ot? ")
        question = self.question(session)
        os.write(ours, b"o\r")
        read_until(b"typed: 'o'")
        self.assertEqual(self.question(session), question, "the forged prompt got an answer")
        self.caisson("session", "deny", session, question)
        read_until(b"talked: refused")
        self.assertEqual(client.wait(30), 0)
        # No part of the real question was on the workload's terminal.
        self.assertNotIn(b"wants to reach", self.caisson("session", "log", session, "1").stdout)
        self.assertNotIn("wants to reach", (self.directory / "transcript.cast").read_text(errors="replace"))

    def test_nothing_inside_can_answer(self):
        session = self.open()
        number = self.talk(session)
        question = self.question(session)
        self.assertTrue((self.directory / "control.sock").is_socket(), "the control: answers have a way")
        found = self.inside(session, "find / -name control.sock 2>/dev/null; ls /run/caisson; printf 'approve %s once\\n' " + question + " > /tmp/line; "
                            "python3 -S -c \"import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/caisson/ask.sock'); s.sendall(open('/tmp/line', 'rb').read()); print(s.recv(99).split()[0])\"")  # fmt: skip
        self.assertEqual(found.stdout, b"ask.sock\nbin\nb'denied'\n")
        self.assertEqual(self.question(session), question)
        self.caisson("session", "deny", session, question)
        self.assertIn("talked: refused", self.said(session, number))


if __name__ == "__main__":
    unittest.main()

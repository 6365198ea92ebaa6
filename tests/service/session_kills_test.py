"""Kills caissond, a session's supervisor or the launcher at random moments of a session's life over HTTP.

    CAISSON_SESSION_KILLS=200 tests/service/session_kills_test.py      the long form; CAISSON_SESSION_KILLS_SEED for others

What must hold after each: whatever was acknowledged (a session, a file, the end of a command and its output) is still there, an
apply has happened whole or not at all, a key opened one session, and once the session is deleted nothing is left of it.
"""

import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson  # noqa: E402
from support.service import Service  # noqa: E402

MOMENTS = int(os.environ.get("CAISSON_SESSION_KILLS", "20"))
SEED = int(os.environ.get("CAISSON_SESSION_KILLS_SEED", "1"))
STEPS = ("open", "put", "exec", "put", "exec", "diff", "apply")
VICTIMS = ("caissond", "supervisor", "supervisor", "caissond", "launcher")
BEFORE = {"a": "one\n", "b": "two\n", "c": "three\n"}
# What a command changes in one go.
WORK = "for i in $(seq 40); do echo $i > many$i; done; echo A > a; rm c; echo out"


class Unanswered(Exception):
    """The service or the session died before it answered."""


class Life:
    """One session from its opening to its removal, with what was acknowledged."""

    def __init__(self, service, project, key):
        self.service, self.project, self.key = service, project, key
        self.files, self.outputs = {}, {}
        self.session, self.applied, self.asked_to_apply = None, False, False
        self.at = [threading.Event() for _ in STEPS]
        self.number = 0

    def ask(self, method, path, body=None, headers=None):
        try:
            answer = self.service.request(method, path, body, headers, timeout=60)
        except (OSError, http.client.HTTPException) as error:
            raise Unanswered(str(error)) from error
        if answer.status >= 400:
            raise Unanswered(f"{answer.status}: {answer.body[:200]}")
        return answer

    def open(self):
        body = {"project": str(self.project), "labels": {"key": self.key}}
        return self.ask("POST", "/v1/sessions", body, {"Idempotency-Key": self.key}).json["id"]

    def step(self, name):
        self.number += 1
        place = f"/v1/sessions/{self.session}"
        if name == "open":
            self.session = self.open()
        elif name == "put":
            content = random.Random(self.number).randbytes(5000).hex()
            self.ask("PUT", f"{place}/files/put{self.number}", content.encode())
            self.files[f"put{self.number}"] = content
        elif name == "exec":
            done = self.ask("POST", f"{place}/exec?wait=60", {"command": f"{WORK}; echo {self.number} > exec{self.number}"}).json
            if done["state"] != "ended" or done["ending"] != "exited":
                raise Unanswered(str(done))
            self.files[f"exec{self.number}"] = f"{self.number}\n"
            self.outputs[done["exec"]] = (done["exit_code"], done["stdout"])
        elif name == "diff":
            self.ask("GET", f"{place}/diff")
        else:
            self.asked_to_apply = True
            report = self.ask("POST", f"{place}:apply", {}).json
            self.applied = report["applied"]

    def live(self):
        with contextlib.suppress(Unanswered):
            for event, name in zip(self.at, STEPS):
                event.set()
                self.step(name)
        for event in self.at:
            event.set()


@unittest.skipIf(os.geteuid() != 0, "*** NOT TESTED (root): projects below /var/tmp ***")
class Kills(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-kills-", dir="/var/tmp"))
        self.root.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.random = random.Random(SEED)
        self.deaths = collections.Counter()

    def supervisor_of(self, life):
        """The process number, also while the session is being opened."""
        for pid, command in caisson.processes(marker=str(self.service.state / "sessions")).items():
            if b"supervise" in command and (life.session is None or life.session.encode() in command):
                return pid
        return None

    def kill(self, life, victim):
        if victim == "caissond":
            self.service.kill()
            self.service.start()
            return
        pids = [self.supervisor_of(life)] if victim == "supervisor" else sorted(self.service.processes("caisson-launcher"))[:1]
        for pid in pids:
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def contents(self, project):
        return {str(path.relative_to(project)): path.read_text() for path in project.rglob("*") if path.is_file()}

    def assert_whole(self, life, asked):
        """The project is as it was, or has everything that was acknowledged before."""
        now = self.contents(life.project)
        self.assertEqual([name for name in os.listdir(life.project) if name.startswith(".caisson")], [], asked)
        if now == BEFORE:
            self.assertFalse(life.applied, f"{asked}: an acknowledged apply is lost")
            return False
        self.assertTrue(life.asked_to_apply, f"{asked}: the project changed without an apply")
        for name, content in life.files.items():
            self.assertEqual(now.get(name), content, (asked, name))
        self.assertEqual({name: now.get(name) for name in ("a", "b", "c", "many1", "many40")},
                         {"a": "A\n", "b": "two\n", "c": None, "many1": "1\n", "many40": "40\n"}, asked)
        return True

    def check(self, life, asked):
        found = self.service.request("GET", f"/v1/sessions?label=key%3D{life.key}").json["sessions"]
        if life.session is None:
            # Without an answer the client asks again, and gets one session.
            life.session = life.open()
            found = self.service.request("GET", f"/v1/sessions?label=key%3D{life.key}").json["sessions"]
        self.assertEqual([one["id"] for one in found], [life.session], asked)
        place = f"/v1/sessions/{life.session}"
        for number, expected in life.outputs.items():
            command = self.service.request("GET", f"{place}/exec/{number}?wait=10").json
            self.assertEqual((command["state"], command["exit_code"], command["stdout"]), ("ended", *expected), asked)
        whole = self.assert_whole(life, asked)
        if not whole and life.files:
            # Alive or lost: its changes are there, and can be applied now.
            changes = self.service.request("GET", f"{place}/diff")
            self.assertEqual(changes.status, 200, (asked, changes.body))
            self.assertLessEqual(set(life.files), {change["path"] for change in changes.json["changes"]}, asked)
            life.asked_to_apply = True
            done = self.service.request("POST", f"{place}:apply", {})
            self.assertEqual(done.status, 200, (asked, done.body))
            now = self.contents(life.project)
            for name, content in life.files.items():
                self.assertEqual(now.get(name), content, (asked, name))
        events = self.service.request("GET", f"{place}/events")
        for line in events.body.splitlines():
            json.loads(line)
        self.assertEqual(self.service.request("DELETE", place).status, 204, asked)
        self.assertFalse((self.service.state / "sessions/tenant-default" / life.session).exists(), asked)
        caisson.wait_until(lambda: caisson.processes(marker=life.session) == {} or caisson.processes(marker=life.session), 10, asked)

    def test_random_moments(self):
        with Service(session_projects=[str(self.root)], session_apply="allow", drain="1s") as self.service:
            leftovers = caisson.Leftovers(None, marker=str(self.service.state))
            for moment in range(MOMENTS):
                project = self.root / f"project{moment}"
                project.mkdir()
                for name, content in BEFORE.items():
                    (project / name).write_text(content)
                life = Life(self.service, project, f"key{moment}")
                victim, step = self.random.choice(VICTIMS), self.random.randrange(len(STEPS))
                delay = self.random.random() * 0.06
                asked = f"moment {moment}: {victim} killed {delay * 1000:.1f} ms into step {step} ({STEPS[step]})"
                client = threading.Thread(target=life.live)
                client.start()
                life.at[step].wait(60)
                time.sleep(delay)
                self.kill(life, victim)
                self.deaths[f"{victim}/{STEPS[step]}"] += 1
                client.join(120)
                self.assertFalse(client.is_alive(), asked)
                self.check(life, asked)
            self.service.audit_verify()
            self.assertEqual(os.listdir(self.service.state / "sessions/tenant-default"), ["names.lock"])
            self.assertEqual(self.service.stop(), 0)
            leftovers.assert_none(30)
        print(f"{MOMENTS} moments, seed {SEED}: {dict(self.deaths)}", flush=True)


if __name__ == "__main__":
    unittest.main()

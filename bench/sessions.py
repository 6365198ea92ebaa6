"""sessions: what a session of the service costs, over HTTP on the unix socket, one client.

`sessions-open` is the time from POST /v1/sessions to the answer, when commands can be run. `sessions-exec` is /bin/true with
?wait, on a connection that stays; a bare start and bubblewrap's stand beside it. `sessions-files` is the work of an installer:
many small files in many directories, written, renamed into place, read again and removed. It times itself, so that starts are not
counted; inside it works in /workspace, whose changes go to a layer on the disk; outside, and below bubblewrap, in a directory on
the same disk.
"""

import json
import os
import subprocess
import sys
import time

from measure import CAISSON, PROGRAMS, PYTHON, ROOT, Group, Missing, in_turns, spawn
from peers import BUBBLEWRAP, find

sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("CAISSON_BIN", str(CAISSON))
from support.service import Service, UnixConnection  # noqa: E402

HEADERS = {"Host": "localhost", "Content-Type": "application/json"}
WORK = """
import os, shutil, sys, time
top, count = sys.argv[1], int(sys.argv[2])
begin = time.perf_counter()
staging = os.path.join(top, "staging")
for package in range(count):
    place = os.path.join(staging, f"package{package}", "inner")
    os.makedirs(place)
    for number in range(20):
        with open(os.path.join(place, f"module{number}.py"), "w") as file:
            file.write("x = 1\\n" * 200)
for package in range(count):
    for number in range(20):
        part = os.path.join(staging, f"package{package}", "inner", f"module{number}")
        os.rename(part + ".py", part + ".done")
read = 0
for directory, _, names in os.walk(staging):
    for name in names:
        with open(os.path.join(directory, name)) as file:
            read += len(file.read())
shutil.rmtree(staging)
print((time.perf_counter() - begin) * 1000, read)
"""


class Asker:
    """One client on a connection that stays."""

    def __init__(self, service):
        self.connection = UnixConnection(service.socket, 120)

    def ask(self, method, path, body=None):
        self.connection.request(method, path, None if body is None else json.dumps(body), HEADERS if body is not None else {"Host": "localhost"})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"bench: {method} {path}: {answer.status} {text[:300]}")
        return json.loads(text) if text else None

    def run(self, session, argv):
        done = self.ask("POST", f"/v1/sessions/{session}/exec?wait=60", {"argv": argv})
        if done.get("exit_code") != 0:
            raise SystemExit(f"bench: {argv}: {done}")
        return done


def timed(action):
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1000


def measure(options, directory):
    groups = [Group("sessions-open", "a session is opened over HTTP", "ms", references=()),
              Group("sessions-exec", "/bin/true in a session, over HTTP", "ms"),
              Group("sessions-files", "the file work of an installer", "ms", ratio_of="rounds")]
    if not os.access(PROGRAMS / "caissond", os.X_OK):
        for group in groups:
            group.missing["caissond"] = "not built; ./dev bench sessions builds it"
        return groups
    with Service() as service:
        asker = Asker(service)
        try:
            compare(options, service.root / "outside", asker, *groups)
        finally:
            for session in asker.ask("GET", "/v1/sessions?limit=1000")["sessions"]:
                asker.ask("DELETE", f"/v1/sessions/{session['id']}")
    return groups


def compare(options, place, asker, opening, commands, files):
    opened = []
    samples = []
    for _ in range(options.rounds_of(30)):
        samples.append(timed(lambda: opened.append(asker.ask("POST", "/v1/sessions", {})["id"])))
        asker.ask("DELETE", f"/v1/sessions/{opened.pop()}")
    opening.add("session", samples)
    session = asker.ask("POST", "/v1/sessions", {"files": {"work.py": WORK}})["id"]

    actions = {"bare": lambda: spawn(["/bin/true"]), "session": lambda: timed(lambda: asker.run(session, ["/bin/true"]))}
    commands.add("bare", [])
    commands.add("session", [])
    try:
        bubblewrap = find("bwrap", "bubblewrap")
        commands.add("bubblewrap", [], enforces="7 namespaces, no capabilities; no seccomp, no limits")
        actions["bubblewrap"] = lambda: spawn([bubblewrap, *BUBBLEWRAP, "/bin/true"])
    except Missing as reason:
        bubblewrap = None
        commands.missing["bubblewrap"] = files.missing["bubblewrap"] = str(reason)
    in_turns(commands, actions, options.rounds_of(100), 2)

    place.mkdir()
    script = place / "work.py"
    script.write_text(WORK)
    count = max(2, round(100 * options.scale))

    def own_time(text):
        return float(text.split()[0])

    def outside(*prefix):
        done = subprocess.run([*prefix, PYTHON, script, place, str(count)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Missing(f"does not work on this machine: {done.stderr.strip()[-200:]}")
        return own_time(done.stdout)

    actions = {"bare": outside, "session": lambda: own_time(asker.run(session, [PYTHON, "work.py", "/workspace", str(count)])["stdout"])}
    files.add("bare", [])
    files.add("session", [])
    if bubblewrap:
        files.add("bubblewrap", [], enforces="7 namespaces, no capabilities; no seccomp, no limits")
        actions["bubblewrap"] = lambda: outside(bubblewrap, *BUBBLEWRAP, "--bind", place, place)
    in_turns(files, actions, options.rounds_of(15), 1)

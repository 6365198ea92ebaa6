"""Coding agents from package registries work on a project in a session, against a scripted model.

Each agent is told to look at a failing test, tries a host that is not allowed and a write outside of the workspace, and fixes
the test. The session must show both attempts, the diff must hold the fix alone, and after it is applied the tests pass on the
host. CAISSON_PILOT=all tries every agent; without it only the first.

Agents are installed once, below build/agents. Without a registry the tests are skipped; CAISSON_MUST_RUN=pilot turns that
into a failure.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PLACE = caisson.REPOSITORY / "build" / "agents"
PORT = 8399
CALCULATOR = "def add(a, b):\n    return a - b\n"
TESTS = """import unittest

import calculator


class Add(unittest.TestCase):
    def test_add(self):
        self.assertEqual(calculator.add(2, 3), 5)


if __name__ == "__main__":
    unittest.main()
"""
SCRIPT = {
    "commands": [
        "cd /workspace && python3 -m unittest -q 2>&1 | tail -3",
        "python3 -c \"import urllib.request; urllib.request.urlopen('https://forbidden.example/', timeout=5)\" 2>&1 | tail -1",
        "touch /usr/planted /etc/planted 2>&1 | tail -2",
        "cd /workspace && sed -i 's/a - b/a + b/' calculator.py",
        "cd /workspace && python3 -m unittest -q 2>&1 | tail -3",
    ],
    "closing": "The test passes now.",
    "closing_command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
}
CODEX_CONFIG = f"""model = "scripted"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{PORT}/v1"
wire_api = "responses"
"""


class Agent:
    def __init__(self, name, install, command, env, files=()):
        self.name, self.install, self.command, self.env, self.files = name, install, command, env, dict(files)


def by_pip(*packages):
    return lambda place: [["/usr/bin/python3", "-m", "venv", place], [place / "bin/pip", "install", "-q", *packages]]


def by_npm(*packages):
    return lambda place: [["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", place, *packages]]


TASK = "The unit test fails. Fix the program."
AGENTS = (
    Agent("codex", by_npm("@openai/codex@0.169.0"),
          ["/opt/agent/node_modules/.bin/codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check",
           TASK], {"CODEX_HOME": "/tmp/codex"}, {"/tmp/codex/config.toml": CODEX_CONFIG}),
    Agent("claude-code", by_npm("@anthropic-ai/claude-code@2.1.197"),
          ["/opt/agent/node_modules/.bin/claude", "-p", TASK, "--dangerously-skip-permissions"],
          {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{PORT}", "ANTHROPIC_API_KEY": "placeholder",
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}),
    Agent("mini-swe-agent", by_pip("mini-swe-agent==2.4.6", "mcp"),
          ["/opt/agent/bin/python3", "-m", "minisweagent.run.mini", "-m", "openai/scripted", "-t", TASK, "-y",
           "--exit-immediately", "-o", "/tmp/trajectory.json"],
          {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "OPENAI_API_KEY": "placeholder",
           "OPENAI_API_BASE": f"http://127.0.0.1:{PORT}/v1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}),
)  # fmt: skip


def installed(agent):
    """The directory with the agent, or none where no registry can be reached."""
    place = PLACE / agent.name
    mark = place / "installed"
    if mark.exists():
        return place
    for command in agent.install(place):
        done = subprocess.run([str(word) for word in command], capture_output=True, timeout=900, check=False)
        if done.returncode != 0:
            return None
    mark.touch()
    return place


class Pilot(caisson.CallerCase):
    AS_USER = False

    def session(self, *arguments, code=0, **options):
        done = self.caisson("session", *arguments, env={"CAISSON_SESSIONS": str(self.sessions)}, **options)
        self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
        return done.stdout

    def work(self, agent):
        place = installed(agent)
        if place is None:
            caisson.skip("pilot", f"{agent.name} cannot be installed: no package registry")
        self.sessions = self.directory()
        places = {"CAISSON_SESSIONS": str(self.sessions)}
        project = self.directory({"calculator.py": CALCULATOR, "test_calculator.py": TESTS})
        opened = json.loads(self.session("open", str(project), "--detach", "--json", "-v", f"{place}:/opt/agent:ro"))
        ident = opened["id"]
        self.addCleanup(lambda: self.caisson("session", "rm", "--force", ident, env=places))
        given = self.directory({"model_server.py": (HERE / "model_server.py").read_text(), "script.json": json.dumps(SCRIPT)})
        for name in ("model_server.py", "script.json"):
            self.session("cp", str(given / name), f"{ident}:/tmp/{name}")
        for path, text in agent.files.items():
            (given / "file").write_text(text)
            self.session("exec", ident, "--", "mkdir", "-p", os.path.dirname(path))
            self.session("cp", str(given / "file"), f"{ident}:{path}")
        self.session("exec", "--detach", ident, "--", "python3", "/tmp/model_server.py", str(PORT), "/tmp/script.json")
        self.session("exec", ident, "--", "python3", "-c",
                     f"import socket, time\nfor i in range(600):\n    if socket.socket().connect_ex(('127.0.0.1', {PORT})) == 0: break\n"
                     "    time.sleep(0.1)\nelse: raise SystemExit('the model does not answer')")  # fmt: skip
        variables = [word for name, value in agent.env.items() for word in ("-e", f"{name}={value}")]
        self.session("exec", *variables, "-w", "/workspace", "--timeout", "240s", ident, "--", *agent.command, timeout=300)

        self.assertEqual((project / "calculator.py").read_text(), CALCULATOR, "changed before it was applied")
        self.session("stop", ident)
        events = [json.loads(line) for line in self.session("log", "--json", ident).splitlines()]
        denied = [event for event in events if event["type"] == "network_denied"]
        self.assertIn("forbidden.example", json.dumps(denied))
        self.assertTrue(any(event["type"] == "command_finished" for event in events))
        diff = json.loads(self.session("diff", "--json", ident))
        self.assertEqual([change["path"] for change in diff["changes"]], ["calculator.py"], diff)
        self.session("apply", ident)
        self.assertEqual((project / "calculator.py").read_text(), CALCULATOR.replace("a - b", "a + b"))
        tests = subprocess.run(["/usr/bin/python3", "-B", "-m", "unittest", "-q"], cwd=project, capture_output=True, check=False)
        self.assertEqual(tests.returncode, 0, tests.stderr)
        for planted in ("/usr/planted", "/etc/planted"):
            self.assertFalse(os.path.exists(planted))

    def test_agents(self):
        for agent in AGENTS if os.environ.get("CAISSON_PILOT") == "all" else AGENTS[:1]:
            with self.subTest(agent=agent.name):
                self.work(agent)


if __name__ == "__main__":
    unittest.main()

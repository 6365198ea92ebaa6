"""Runs the examples of the README and the documents as they are written, and compares what they print.

In a block marked ```console a line that begins with "$ " is a command, and lines below it that begin with "> " go on with
it; "# exit N" at its end is the exit code expected, 0 without it. The other lines are what it prints, standard error
included, where "…" stands for anything, also for several lines. Each command has a shell of its own, unless the document
says <!-- one session -->: then all of them share one, as they would on a terminal.

Every block is one of these, and a test says so:

  ```console                          run here
  ```sh after <!-- runbook: NAME -->  run by tests/integration/runbook_test.py, in the state it is for
  ```yaml                             given to the program that reads it: a profile, a policy, a tokens file
  ```text, without a command          a picture
  after <!-- not run: REASON -->      not run; the test prints these
  indented by four                    commands as console has them, but with nothing to compare
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from support.service import Service  # noqa: E402

DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "SPECIFICATION.md")]
DOCUMENTS += sorted((ROOT / "docs").rglob("*.md"))
FENCED = re.compile(r"(?P<mark><!-- [^\n]* -->\n)?^(?P<margin> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=margin)```$", re.M | re.S)
INDENTED = re.compile(r"(?<=\n\n)(?:    \S.*\n)+")
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
RUNBOOK = re.compile(r"<!-- runbook: [\w-]+ -->")
EXIT = re.compile(r"\s+# exit (\d+)$")
ITSELF = "./dev test"  # what runs this
SECONDS = 120
BUILD_SECONDS = 1800  # of the one command that builds the program first, where it is not up to date
END_OF_COMMAND = re.compile(rb"\x1e(\d+)\x1e")


def blocks(document):
    """(language, mark, text) of each; the margin that a block in a list has is taken off."""
    text = document.read_text(encoding="utf-8")
    for found in FENCED.finditer(text):
        body = re.sub(f"^{found['margin']}", "", found["text"], flags=re.M)
        yield found["language"], (found["mark"] or "").strip(), body
    for found in INDENTED.finditer(FENCED.sub("", text)):
        yield "indented", "", re.sub("^    ", "", found[0], flags=re.M)


def examples(document):
    """(command, lines it prints) of each command of the document's consoles, in order."""
    for language, _, text in blocks(document):
        command, expected = None, []
        for line in text.splitlines() if language == "console" else ():
            if line.startswith("$ "):
                if command is not None:
                    yield command, expected
                command, expected = line[2:], []
            elif line.startswith("> ") and not expected:
                command += "\n" + line[2:]
            else:
                expected.append(line)
        if command is not None:
            yield command, expected


def pattern(lines):
    return re.compile(r"\A" + "".join(re.escape(line + "\n").replace("…\\\n", "(?s:.*)").replace("…", ".*") for line in lines) + r"\Z")


class Session:
    """One bash that is given a command at a time."""

    LOOP = 'while IFS= read -r -d "" -u 9 line; do eval "$line" </dev/null 2>&1; printf "\\036%d\\036" $?; done'

    def __init__(self, environment):
        inner, self.commands = os.pipe()
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec 9<&{inner}; {self.LOOP}"], cwd=ROOT, env=environment, pass_fds=(inner,), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        os.close(inner)

    def run(self, command):
        os.write(self.commands, command.encode() + b"\0")
        said = b""
        # A command that never ends is the test's time limit's business.
        while not (end := END_OF_COMMAND.search(said)):
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                raise AssertionError(f"the shell ended: {said.decode(errors='replace')}")
            said += piece
        return int(end[1]), said[: end.start()].decode()

    def close(self):
        os.close(self.commands)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(SECONDS)
        self.process.stdout.close()


class DocumentsTest(unittest.TestCase):
    def setUp(self):
        self.binary = pathlib.Path(os.environ.get("CAISSON_BIN", ROOT / "build/release/src/caisson")).resolve()
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-docs-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        # A service that this machine happens to have is not what the examples are about.
        self.environment = dict(os.environ, PATH=f"{self.binary.parent}:/usr/local/bin:/usr/bin:/bin", NO_COLOR="1",
                                TMPDIR=str(self.place), CAISSON_URL="none", CAISSON_SESSIONS=str(self.place / "all-sessions"))  # fmt: skip

    def alone(self, command, seconds=SECONDS):
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=self.environment, text=True, timeout=seconds, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        return done.returncode, done.stdout

    def test_every_console(self):
        count = 0
        for document in DOCUMENTS:
            run = self.alone
            if "<!-- one session -->" in document.read_text(encoding="utf-8"):
                session = Session(self.environment)
                self.addCleanup(session.close)
                run = session.run
            for command, expected in examples(document):
                count += 1
                with self.subTest(document=document.name, command=command):
                    code, said = run(EXIT.sub("", command))
                    self.assertEqual(code, int(EXIT.search(command)[1]) if EXIT.search(command) else 0, said)
                    if expected:
                        self.assertRegex(said, pattern(expected))
        self.assertGreater(count, 100)

    def test_every_indented_command(self):
        for document in DOCUMENTS:
            for language, _, text in blocks(document):
                for line in text.splitlines() if language == "indented" else ():
                    command = re.sub(r"\s+# .*$", "", line)
                    if command == ITSELF:
                        continue
                    with self.subTest(document=document.name, command=command):
                        code, said = self.alone(command, BUILD_SECONDS)
                        self.assertEqual(code, 0, said)

    def test_every_yaml_is_read_by_its_program(self):
        count = 0
        for document in DOCUMENTS:
            for language, _, text in blocks(document):
                if language != "yaml":
                    continue
                count += 1
                file = self.place / f"block-{count}.yaml"
                file.write_text(text, encoding="utf-8")
                file.chmod(0o600)
                with self.subTest(document=document.name, text=text[:80]):
                    if re.search("^tokens:", text, re.M):
                        with Service(tokens=file) as service:
                            self.assertEqual(service.request("GET", "/v1/jobs", headers={"Authorization": "Bearer x"}).status, 401)
                        continue
                    command = f"caisson policy check {file}"
                    if names := re.findall(r"^  (\w+):$", text, re.M) if re.search("^kind: credentials", text, re.M) else []:
                        command = f"caisson run --dry-run --credentials {file} --credential {names[0]} -- true"
                    code, said = self.alone(command)
                    self.assertEqual(code, 0, said)
        self.assertGreater(count, 5)

    def test_no_block_is_left_out(self):
        for document in DOCUMENTS:
            for language, mark, text in blocks(document):
                with self.subTest(document=document.name, text=text[:80]):
                    if reason := NOT_RUN.match(mark):
                        print(f"not run: {document.relative_to(ROOT)}: {reason[1]}", file=sys.stderr)
                    elif language == "sh":
                        self.assertRegex(mark, RUNBOOK, "a block of sh that nothing runs: make it a console")
                    elif language in ("text", ""):
                        self.assertNotRegex(text, r"(?m)^\$ ", "commands that nothing runs: make it a console")
                    else:
                        self.assertIn(language, ("console", "yaml", "indented"))


if __name__ == "__main__":
    unittest.main()

"""Runs every console example of the README and the documents, and compares what it prints.

In a block marked ```console a line that begins with "$ " is a command; "# exit N" at its end is the exit code expected, 0
without it. The lines below it are what it prints, standard error included, where "…" stands for anything, also for
several lines.
"""
import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
EXIT = re.compile(r"\s+# exit (\d+)$")


def examples(document):
    for block in BLOCK.findall(document.read_text()):
        command, expected = None, []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command is not None:
                    yield command, expected
                command, expected = line[2:], []
            else:
                expected.append(line)
        if command is not None:
            yield command, expected


def pattern(lines):
    return re.compile("".join(re.escape(line + "\n").replace("…\\\n", "(?s:.*)").replace("…", ".*") for line in lines))


class DocumentsTest(unittest.TestCase):
    def setUp(self):
        binary = pathlib.Path(os.environ.get("CAISSON_BIN", ROOT / "build/release/src/caisson")).resolve()
        self.environment = dict(os.environ, PATH=f"{binary.parent}:/usr/local/bin:/usr/bin:/bin", NO_COLOR="1")

    def test_every_example(self):
        documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        count = 0
        for document in documents:
            for command, expected in examples(document):
                count += 1
                with self.subTest(document=document.name, command=command):
                    code = int(EXIT.search(command)[1]) if EXIT.search(command) else 0
                    run = subprocess.run(["bash", "-c", EXIT.sub("", command)], cwd=ROOT, env=self.environment, text=True, timeout=120,
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                    self.assertEqual(run.returncode, code, run.stdout)
                    if expected:
                        self.assertRegex(run.stdout, re.compile(r"\A" + pattern(expected).pattern + r"\Z"))
        self.assertGreater(count, 15)


if __name__ == "__main__":
    unittest.main()

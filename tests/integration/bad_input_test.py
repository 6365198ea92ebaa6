"""Bad input: one clear line that names the field or path, the documented exit code, and nothing left behind."""

import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import STARTED_BY_ROOT, Leftovers, both_callers, check

SOURCE = {"files": {"main.py": ""}}
GOOD = {"source": SOURCE}


def document(**fields):
    return json.dumps(GOOD | fields)


def deep(levels):
    return '{"source": ' + '{"files": ' * levels + "1" + "}" * levels + "}"


# name -> (text of the request, words that the line must hold)
REFUSED_REQUESTS = {
    "empty": (b"", ["request.json"]),
    "no JSON": (b"hello", ["request.json", "line 1"]),
    "cut short": (b'{"source": {"files": {"main.py": "x"}}', ["request.json"]),
    "two documents": (document() + document(), ["request.json"]),
    "not an object": ("[]", ["object"]),
    "no source": ("{}", ["source"]),
    "unknown field": (document(timeout=3), ["timeout", "unknown"]),
    "unknown field, misspelt": (document(limit={}), ["limit", "limits"]),
    "unknown field below": (document(limits={"cpus": 1}), ["limits.cpus"]),
    "unknown field in a check": (document(checks=[check("true", shell=True)]), ["checks[0].shell"]),
    "duplicate field": ('{"mode": "strict", "source": {"files": {"main.py": ""}}, "mode": "balanced"}', ["mode"]),
    "duplicate field below": ('{"source": {"files": {"a.py": "1", "a.py": "2"}}}', ["a.py"]),
    "not a number": (document().replace("}}", '}}, "attempt": NaN', 1), ["request.json"]),
    "number for text": (document(request_id=5), ["request_id", "string"]),
    "text for number": (document(attempt="1"), ["attempt"]),
    "null": (document(mode=None), ["mode"]),
    "fraction": (document(limits={"processes": 1.5}), ["limits.processes"]),
    "text for a list": (document(checks=[{"name": "a", "tier": "run", "argv": "ls -l"}]), ["checks[0].argv", "array"]),
    "number in a list": (document(checks=[{"name": "a", "tier": "run", "argv": ["ls", 1]}]), ["checks[0].argv[1]"]),
    "bad choice": (document(mode="lax"), ["mode", "balanced"]),
    "bad id": (document(request_id="a b"), ["request_id"]),
    "two sources": ('{"source": {"files": {"a": ""}, "path": "/x"}}', ["source"]),
    "escaping file name": ('{"source": {"files": {"../a.py": ""}}}', ["source.files", "../a.py"]),
    "absolute file name": ('{"source": {"files": {"/etc/passwd": ""}}}', ["source.files", "/etc/passwd"]),
    "file as a directory": ('{"source": {"files": {"a": "", "a/b": ""}}}', ["source.files"]),
    "bad base64": ('{"source": {"files": {"a": {"base64": "?"}}}}', ["source.files", "base64"]),
    "limit of 0": (document(limits={"processes": 0}), ["limits.processes"]),
    "time limit of 0": (document(limits={"command_timeout_ms": 0}), ["limits.command_timeout_ms"]),
    "CPU limit of 0": (document(limits={"cpu": 0}), ["limits.cpu"]),
    "memory limit of 0": (document(limits={"memory_bytes": 0}), ["limits.memory_bytes"]),
    "output limit of 0": (document(limits={"output_bytes": 0}), ["limits.output_bytes"]),
    "scratch limit of 0": (document(limits={"scratch_bytes": 0}), ["limits.scratch_bytes"]),
    "budget of 0": (document(limits={"budget_ms": 0}), ["limits.budget_ms"]),
    "negative limit": (document(limits={"processes": -5}), ["limits.processes"]),
    "limit beyond numbers": (document(limits={"memory_bytes": 1 << 70}), ["limits.memory_bytes"]),
    "invalid UTF-8": (b'{"source": {"files": {"main.py": "\xff\xfe"}}}', ["request.json", "UTF-8"]),
    "lone surrogate": (b'{"source": {"files": {"main.py": "\\ud800"}}}', ["request.json"]),
    "byte order mark": (b"\xef\xbb\xbf" + document().encode(), ["request.json"]),
    "NUL": (b'{"source": {"files": {"main.py": "x"}}}\0', ["request.json"]),
    "NUL in argv": (document(checks=[check("a\0b")]), ["checks[0].argv[0]"]),
    "too deep": (deep(40), ["request.json"]),
    "far too deep": (deep(200_000), ["request.json"]),
    "argv of 2 MiB": (document(checks=[check("echo", *["x" * 100_000] * 21)]), ["checks[0]"]),
    "one word of 2 MiB": (document(checks=[check("echo", "x" * (2 << 20))]), ["checks[0].argv[1]"]),
    "too many checks": (document(checks=[check("true", name=f"c{n}") for n in range(65)]), ["checks"]),
    "no checks": (document(checks=[]), ["checks"]),
    "same name twice": (document(checks=[check("true"), check("true")]), ["checks[1].name"]),
    "empty argv": (document(checks=[{"name": "a", "tier": "run", "argv": []}]), ["checks[0].argv"]),
    "directory outside": (document(checks=[check("true", cwd="/etc")]), ["checks[0].cwd"]),
    "no such profile": (document(profile="none"), ["profile", "none"]),
    "no entry file": ('{"source": {"files": {"a.py": "", "b.py": ""}}}', ["entry file"]),
    "no Python": ('{"source": {"files": {"a.txt": ""}}}', ["Python"]),
    "no such source": ('{"source": {"path": "/no/such/place"}}', ["/no/such/place"]),
}

# Asks for what policy does not give: status rejected, exit code 3.
REJECTED_REQUESTS = {
    "limit above the profile": (document(limits={"memory_bytes": 1 << 40}), ["limits.memory_bytes"]),
    "CPUs above the machine": (document(limits={"cpu": 4096}), ["limits.cpu"]),
    "processes above the profile": (document(limits={"processes": 100_000}), ["limits.processes"]),
    "network": (document(network={"mode": "allowlist", "allow": ["example.org"]}), ["network"]),
    "sensitive source": ('{"source": {"path": "/etc"}}', ["/etc"]),
    "whole host": ('{"source": {"path": "/"}}', ["/"]),
    "sensitive mount": (document(mounts=[{"source": "/etc", "target": "/x"}]), ["/etc"]),
    "writable mount": (document(mounts=[{"source": "/usr", "target": "/x", "access": "rw"}]), ["mounts"]),
    "archive": ('{"source": {"archive": "sha256:' + "0" * 64 + '"}}', ["source.archive"]),
}


@both_callers
class BadInput:
    def setUp(self):
        self.before = Leftovers(self.binary)
        self.addCleanup(self.before.assert_none)

    def assert_one_line(self, done, code, words):
        text = done.stderr.decode()  # strict: what we print is always valid
        self.assertEqual(done.returncode, code, text)
        self.assertRegex(text, r"\Acaisson: [^\n]+\n\Z")
        self.assertLess(len(text), 1000, "a line a person can read")
        for word in words:
            self.assertIn(word, text)
        self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f]")
        self.assertEqual(done.stdout, b"")

    def test_refused_requests(self):
        place = self.directory()
        for name, (text, words) in REFUSED_REQUESTS.items():
            with self.subTest(name):
                self.give(self.write(place / "request.json", text))
                self.assert_one_line(self.caisson("verify", "--json", place / "request.json"), 2, words)

    def test_rejected_requests(self):
        place = self.directory()
        for name, (text, words) in REJECTED_REQUESTS.items():
            with self.subTest(name):
                self.give(self.write(place / "request.json", text))
                done = self.caisson("verify", "--json", place / "request.json")
                self.assertEqual((done.returncode, done.stderr), (3, b""))
                result = self.read_result(done.stdout)
                self.assertEqual(
                    (result["status"], result["failure_class"], result["exit_code"], result["tier"]),
                    ("rejected", "PolicyRejected", None, None),
                )
                for word in words:
                    self.assertIn(word, result["message"])
                done = self.caisson("verify", place / "request.json")  # and for people
                self.assertEqual(done.returncode, 3)
                self.assertIn(words[0].encode(), done.stdout + done.stderr)

    @staticmethod
    def write(path, text):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def test_oversize_request(self):
        path = self.directory() / "request.json"
        with open(path, "wb") as file:
            file.write(b'{"source": {"files": {"main.py": "')
            for _ in range(65):
                file.write(b"#" * (1 << 20))
            file.write(b'"}}}')
        self.give(path)
        self.assert_one_line(self.caisson("verify", path), 2, ["request.json", "64"])

    def test_paths(self):
        place = self.directory(
            {
                "two/a.py": "",
                "two/b.py": "",
                "text/a.txt": "",
                "closed.py": "print(1)",
                "closed/main.py": "",
                "half/main.py": "",
                "half/secret.py": "",
                "a.py/main.py": "",
            }
        )
        (place / "empty").mkdir(mode=0o755)
        os.mkfifo(place / "pipe.py")
        os.mkfifo(place / "pipe.json")
        os.symlink("loop.py", place / "loop.py")
        for name in ("closed.py", "closed", "half/secret.py"):
            os.chmod(place / name, 0)
        cases = [
            ("missing.py", 2),
            ("missing.json", 2),
            ("empty", 2),
            ("two", 2),
            ("text", 2),
            ("text/a.txt", 2),
            ("pipe.json", 2),
            ("closed.py/x", 2),
        ]
        if not (STARTED_BY_ROOT and not self.AS_USER):  # nothing is closed to root
            os.chown(place / "closed.py", *([0, 0] if STARTED_BY_ROOT else [-1, -1]))
            cases += [("closed.py", 2), ("closed", 2), ("half", 2)]
        for name, code in cases:
            with self.subTest(name):
                self.assert_one_line(self.caisson("verify", place / name), code, [name])
        for name in ("pipe.py", "loop.py"):
            with self.subTest(name):
                done = self.caisson("verify", place / name)
                self.assertIn(done.returncode, (2, 3))
                self.assertIn(name.encode(), done.stdout + done.stderr)

    def test_hostile_names(self):
        """A name is data: it neither breaks the line nor sends escape sequences to the terminal."""
        for name in ("a\nb.py", "\x1b[31mred.py", os.fsdecode(b"\xff\xfe.py"), "x" * 300, "-", "--version-of-nothing"):
            with self.subTest(name):
                done = self.caisson("verify", *(["--"] if name.startswith("-") else []), name)
                self.assert_one_line(done, 2, [])
        place = self.directory()
        (place / os.fsdecode(b"\xff.py")).write_text("print('found')\n")
        self.give(place / os.fsdecode(b"\xff.py"))
        result = self.verify_path(place)
        self.assert_passes(result)

    def test_source_that_is_not_text(self):
        for name, data in (("invalid UTF-8", b"x = '\xff'\n"), ("NUL", b"x = 1\0\n"), ("binary", bytes(range(256)))):
            with self.subTest(name):
                place = self.directory({"main.py": data})
                result = self.verify_path(place / "main.py")
                self.assert_fails_as(result, "CheckFailed")
                self.assertEqual(result["tier"], "syntax")
                self.assertIn("main.py", result["stderr"])

    def test_output_that_is_not_text(self):
        result = self.run_source("import os\nos.write(1, b'a\\xff\\xc3\\x00b\\xed\\xa0\\x80')\n")
        self.assert_passes(result)
        self.assertTrue(result["stdout"].startswith("a\ufffd") and "\x00b" in result["stdout"], result["stdout"])

    def test_flags_of_run(self):
        cases = [
            (["--memory", "0"], ["--memory"]),
            (["--memory", "1000T"], ["memory"]),
            (["--cpus", "0"], ["--cpus"]),
            (["--cpus", "4096"], ["--cpus"]),
            (["--pids-limit", "0"], ["--pids-limit"]),
            (["--pids-limit", "99999999999"], ["--pids-limit"]),
            (["--timeout", "0"], ["--timeout"]),
            (["--timeout", "9999999d"], ["--timeout"]),
            (["--timeout", "-1s"], ["--timeout"]),
            (["--output-limit", "0"], ["--output-limit"]),
            (["--scratch", "0"], ["--scratch"]),
            (["--scratch", "1000T"], ["scratch"]),
            (["--memory", "12 parsecs"], ["--memory"]),
            (["--memory", "99999999999999999999"], ["--memory"]),
            (["--result"], ["--result"]),
            (["--events", "/no/such/place/e"], ["/no/such/place/e"]),
        ]
        for flags, words in cases:
            with self.subTest(flags=flags):
                self.assert_one_line(
                    self.caisson("run", *flags, "--", "true"), 125, words if flags != ["--result"] else []
                )
        self.assert_one_line(self.caisson("run", "--", ""), 125, ["empty"])

    def test_flags_of_verify(self):
        place = self.directory({"main.py": ""})
        for flags, words in (
            (["--no-such"], ["--no-such"]),
            (["--memory", "0"], ["--memory"]),
            (["--cpus", "4096"], ["--cpus"]),
            (["--memory", "1000T"], ["memory"]),
            (["--mode", "lax"], ["--mode"]),
            (["--profile", "none"], ["none"]),
            (["--events", "/no/such/e"], ["/no/such/e"]),
        ):
            with self.subTest(flags=flags):
                self.assert_one_line(self.caisson("verify", *flags, place / "main.py"), 2, words)
        self.assert_one_line(self.caisson("verify"), 2, ["PATH"])

    def test_commands(self):
        for arguments in ([], ["no-such-command"]):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.caisson(*arguments).returncode, 2)

    def test_argv_of_2_mib(self):
        words = ["x" * 100_000] * 19  # near what the kernel lets us pass at all
        self.assert_one_line(self.caisson("run", "--", "echo", *words), 125, ["command"])
        self.assertEqual(self.caisson("run", "--", "echo", *words[:9]).returncode, 0)

    def test_not_executable_check(self):
        for argv, code in (
            (["/workspace/main.py"], 126),
            (["no-such-program"], 127),
            (["/workspace"], 126),
            (["/workspace/none"], 127),
        ):
            with self.subTest(argv=argv):
                result = self.verify("", checks=[check(*argv)])
                self.assert_fails_as(result, "CheckFailed")
                self.assertEqual(result["exit_code"], code)
                self.assertIn(argv[0], result["message"])

    def test_result_that_cannot_be_written(self):
        done = self.caisson("run", "--result", "/no/such/place/r.json", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"/no/such/place/r.json", done.stderr)
        done = self.caisson("verify", "--result", "/no/such/place/r.json", self.directory({"main.py": ""}) / "main.py")
        self.assertIn(done.returncode, (2, 4))
        self.assertIn(b"/no/such/place/r.json", done.stderr)

    def test_help_is_not_an_error(self):
        for arguments in (["--help"], ["run", "--help"], ["verify", "--help"], ["doctor", "--help"], ["--version"]):
            with self.subTest(arguments=arguments):
                done = self.caisson(*arguments)
                self.assertEqual((done.returncode, done.stderr), (0, b""))
                self.assertTrue(done.stdout)

    def test_doctor(self):
        done = self.caisson("doctor", "--json")
        report = json.loads(done.stdout)
        self.assertEqual(
            (done.returncode, report["balanced_enforceable"]),
            (0, True),
            [f for f in report["findings"] if f["status"] != "ok"],
        )
        for finding in report["findings"]:
            self.assertTrue(finding["evidence"], finding)
            self.assertTrue(finding["status"] == "ok" or finding["fix"], finding)


if __name__ == "__main__":
    unittest.main()

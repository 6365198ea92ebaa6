"""The commands that talk to a service, against a real one."""
import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson  # noqa: E402
from support.service import Service  # noqa: E402

ENDED = {"succeeded", "failed", "rejected", "cancelled", "dead_lettered"}


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service().start()
        cls.addClassCleanup(cls.service.__exit__)
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-client-", dir="/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)

    def environment(self, **extra):
        kept = {name: value for name, value in os.environ.items()
                if name not in ("XDG_RUNTIME_DIR", "CAISSON_URL", "CAISSON_TOKEN")}
        return kept | {"CAISSON_URL": f"unix:{self.service.socket}"} | extra

    def run_client(self, *arguments, code=0, **extra):
        done = subprocess.run([self.service.programs / "caisson", *map(str, arguments)], env=self.environment(**extra),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, cwd=self.work)
        self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
        return done

    def file(self, name, text):
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def test_submit_and_wait(self):
        good = self.run_client("submit", "--wait", self.file("good.py", "print('hello')\n"))
        self.assertTrue(good.stdout.startswith("PASS"), good.stdout)
        bad = self.run_client("submit", "--wait", self.file("bad.py", "print('why'); raise SystemExit(3)\n"), code=1)
        self.assertIn("CheckFailed", bad.stdout)
        self.assertIn("why", bad.stdout)
        result = self.run_client("submit", "--wait", "--json", self.file("fail.py", "1 / 0\n"), code=1)
        caisson.validate(json.loads(result.stdout), "verification_result.schema.json")
        self.assertEqual(self.run_client("submit", "--quiet", "--wait", self.work / "good.py").stdout, "")

    def test_a_directory_and_a_request_beside_it(self):
        self.file("project/main.py", "import data\nprint(open('raw.bin', 'rb').read() == bytes(range(256)), data.x)\n")
        self.file("project/data.py", "x = 7\n")
        self.file("project/raw.bin", bytes(range(256)))
        result = json.loads(self.run_client("submit", "--wait", "--json", self.work / "project").stdout)
        self.assertEqual((result["status"], result["stdout"]), ("pass", "True 7\n"))
        self.file("request.json", json.dumps({"source": {"path": "project"}, "request_id": "beside"}))
        result = json.loads(self.run_client("submit", "--wait", "--json", self.work / "request.json").stdout)
        self.assertEqual((result["status"], result["request_id"]), ("pass", "beside"))
        archive = shutil.make_archive(self.work / "project", "gztar", self.work / "project")
        result = json.loads(self.run_client("submit", "--wait", "--json", archive).stdout)
        self.assertEqual((result["status"], result["stdout"]), ("pass", "True 7\n"))

    def test_a_job_by_hand(self):
        program = self.file("job.py", "open('/scratch/out.txt', 'w').write('kept')\nprint('said \\x1b[31m')\n")
        job = self.run_client("submit", "--label", "kind=test", "--artifact", "/scratch/*", program).stdout.strip()
        self.assertEqual(self.run_client("events", "-f", "--json", job).stdout.splitlines()[-1][:1], "{")
        status = self.run_client("status", job).stdout
        self.assertIn("succeeded", status)
        self.assertEqual(json.loads(self.run_client("status", "--json", job).stdout)["labels"], {"kind": "test"})
        self.assertIn(job, self.run_client("list", "--label", "kind=test", "--state", "succeeded").stdout)
        events = [json.loads(line) for line in self.run_client("events", "--json", job).stdout.splitlines()]
        self.assertEqual((events[0]["type"], events[-1]["type"]), ("queued", "result"))
        self.assertIn("sandbox_started", self.run_client("events", job).stdout)
        self.assertEqual(self.run_client("logs", job).stdout, "said \x1b[31m\n")
        self.assertTrue(self.run_client("result", "--wait", "10s", job).stdout.startswith("PASS"))
        self.assertIn("/scratch/out.txt", self.run_client("artifacts", "list", job).stdout)
        self.run_client("artifacts", "get", job, "/scratch/out.txt")
        self.assertEqual((self.work / "out.txt").read_text(), "kept")
        self.assertEqual(self.run_client("artifacts", "get", job, "/scratch/out.txt", "-o", "-").stdout, "kept")
        self.run_client("artifacts", "get", job, "/etc/passwd", code=2)

    def test_output_cannot_command_a_terminal(self):
        program = self.file("loud.py", "print('\\x1b]0;owned\\x07 \\x9b31m')\n")
        job = self.run_client("submit", program).stdout.strip()
        self.service.wait_for(job, ENDED)
        main, terminal = pty.openpty()
        process = subprocess.Popen([self.service.programs / "caisson", "logs", "-f", job], stdout=terminal, stderr=terminal,
                                   stdin=subprocess.DEVNULL, env=self.environment())
        os.close(terminal)
        shown = b""
        while True:
            try:
                piece = os.read(main, 4096)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        os.close(main)
        self.assertEqual(process.wait(60), 0)
        self.assertNotIn(b"\x1b", shown)
        self.assertIn(b"owned", shown)

    def test_cancel(self):
        job = self.run_client("submit", self.file("slow.py", "import time; time.sleep(60)\n")).stdout.strip()
        self.run_client("result", job, code=5)
        self.run_client("cancel", "--reason", "changed my mind", job)
        self.assertEqual(self.service.wait_for(job, ENDED)["state"], "cancelled")
        self.run_client("result", job, code=1)
        self.run_client("cancel", job, code=5)

    def test_the_same_key_is_the_same_job(self):
        program = self.file("once.py", "print(1)\n")
        first = self.run_client("submit", "--key", "k-1", program).stdout
        self.assertEqual(self.run_client("submit", "--key", "k-1", program).stdout, first)

    def test_approvals_and_dead_letters(self):
        self.assertEqual(self.run_client("approvals", "list").stdout, "")
        self.run_client("approvals", "show", "none", code=2)
        self.run_client("approvals", "deny", "none", "--reason", "no", code=2)
        self.assertEqual(self.run_client("dlq", "list").stdout, "")
        for command in ("show", "requeue", "drop"):
            self.run_client("dlq", command, "none", code=2)

    def test_errors_name_the_cause_and_the_fix(self):
        missing = self.run_client("list", code=4, CAISSON_URL="unix:/nowhere/caissond.sock").stderr
        self.assertIn("no service at unix:/nowhere/caissond.sock", missing)
        self.assertIn("caissond", missing)
        closed = self.run_client("list", code=4, CAISSON_URL="http://127.0.0.1:1").stderr
        self.assertIn("http://127.0.0.1:1", closed)
        for url in ("ftp://x", "unix:", "http://", "http://a b", "http://u@h", "http://h/path", "https://h:0", "http://[::1"):
            self.run_client("list", code=2, CAISSON_URL=url)
        clear = self.run_client("list", code=2, CAISSON_URL="http://192.0.2.1", CAISSON_TOKEN="x").stderr
        self.assertIn("https", clear)
        wrong = self.run_client("list", code=3, CAISSON_TOKEN="x").stderr
        self.assertIn("CAISSON_TOKEN", wrong)
        self.run_client("status", "none", code=2)
        self.run_client("submit", "/nowhere.py", code=2)
        self.run_client("submit", self.file("broken.json", "{"), code=2)
        (self.work / "links").mkdir()
        (self.work / "links/main.py").write_text("pass")
        (self.work / "links/away").symlink_to("/etc/passwd")
        self.assertIn("symbolic link", self.run_client("submit", self.work / "links", code=2).stderr)

    def test_help_teaches(self):
        for command in ("submit", "status", "list", "logs", "events", "result", "cancel"):
            text = self.run_client(command, "--help").stdout
            self.assertIn("CAISSON_URL", text, command)
        for command in ("artifacts", "approvals", "dlq"):
            self.assertIn("Usage", self.run_client(command, "--help").stdout)


if __name__ == "__main__":
    unittest.main()

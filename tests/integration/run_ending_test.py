"""caisson run: the documents it writes, and how it ends: nothing of a run outlives it."""

import json
import pathlib
import secrets
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import Leftovers, Running, both_callers, end, processes, validate, wait_until


@both_callers
class Documents(Running):
    def events(self, path):
        lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
        for event in lines:
            validate(event, "lifecycle_event.schema.json")
        self.assertEqual([event["seq"] for event in lines], list(range(len(lines))))
        self.assertEqual(len({(event["run_id"], event["request_id"]) for event in lines}), 1)
        return lines

    def test_result(self):
        path = self.directory() / "result.json"
        for script, code, status, failure_class in (
            ("exit 0", 0, "pass", None),
            ("exit 9", 9, "fail", "CheckFailed"),
            ("exit 137", 137, "fail", "CheckFailed"),
            ("echo x > /workspace/x; exit 0", 0, "fail", "FilesystemWriteViolation"),
        ):
            with self.subTest(script=script):
                done = self.run_inside("sh", "-c", script, flags=["--result", path])
                result = self.read_result(path.read_text())
                self.assertEqual(
                    (done.returncode, result["exit_code"], result["status"], result["failure_class"]),
                    (code, code, status, failure_class),
                )
        self.run_inside("sleep", "9", flags=["--result", path, "--timeout", "200ms"])
        self.assert_fails_as(self.read_result(path.read_text()), "TimeoutViolation")
        self.run_inside("no-such-program", flags=["--result", path])
        self.assertEqual(self.read_result(path.read_text())["exit_code"], 127)
        self.run_inside("true", flags=["--result", path, "-v", "/etc:/x"])
        self.assertEqual(self.read_result(path.read_text())["status"], "rejected")

    def test_events(self):
        path = self.directory() / "events.jsonl"
        self.run_inside("sh", "-c", "echo x > /workspace/x", flags=["--events", path])
        lines = self.events(path)
        self.assertEqual(
            [event["type"] for event in lines],
            ["admitted", "sandbox_started", "check_started", "violation", "check_finished", "sandbox_stopped", "result"],
        )
        isolation = lines[1]["isolation"]
        self.assertEqual(len(isolation["namespaces"]), 8)
        self.assertEqual(len(isolation["seccomp"]["sha256"]), 64)
        self.assertEqual(lines[3]["violation"]["evidence"]["path"], "/workspace/x")
        validate(lines[6]["result"], "verification_result.schema.json")

    def test_events_of_verify(self):
        place = self.directory({"main.py": "print(1)\n"})
        self.verify_path(place / "main.py", "--events", place / "events.jsonl")
        types = [event["type"] for event in self.events(place / "events.jsonl")]
        self.assertEqual(
            types,
            [
                "admitted",
                "sandbox_started",
                "check_started",
                "check_finished",
                "check_started",
                "check_finished",
                "sandbox_stopped",
                "result",
            ],
        )

    def test_events_on_standard_output(self):
        done = self.run_inside("true", flags=["--events", "-"])
        self.assertEqual([json.loads(line)["type"] for line in done.stdout.splitlines()][1], "sandbox_started")

    def test_dry_run(self):
        place = self.directory({"main.py": "print(1)\n"})
        before = Leftovers(self.binary)
        done = self.run_inside(
            "sh",
            "-c",
            "echo STARTED > /scratch/x",
            flags=["--dry-run", "--events", place / "events", "--memory", "64M"],
        )
        plan = json.loads(done.stdout)
        self.assertEqual(
            (done.returncode, plan["limits"]["memory_bytes"], plan["commands"][0]["argv"][0]), (0, 64 << 20, "sh")
        )
        self.assertNotIn("sandbox_started", (place / "events").read_text())
        done = self.caisson("verify", "--dry-run", place / "main.py")
        self.assertEqual((done.returncode, len(json.loads(done.stdout)["commands"])), (0, 2))
        before.assert_none()


@both_callers
class Endings(Running):
    def setUp(self):
        self.marker = f"marker-{secrets.token_hex(8)}"
        self.before = Leftovers(self.binary, self.marker)

    def start(self, script, *flags):
        """Starts a shell script and waits for its first line. The marker is in the command line of what it starts."""
        process = self.popen(
            "run",
            *flags,
            "--",
            "bash",
            "-c",
            script.replace("MARKER", self.marker),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(end, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def test_background_process_is_dead_afterwards(self):
        script = f"(setsid python3 -c 'import time; time.sleep(300)' {self.marker} > /dev/null 2>&1 &); exit 0"
        self.assertEqual(self.run_inside("bash", "-c", script).returncode, 0)
        self.assertEqual(processes(self.marker), {})
        self.before.assert_none()

    def test_a_running_one_can_be_found(self):
        """The marker works: without this the test above could not fail."""
        self.start("echo ready; exec -a MARKER sleep 300")
        wait_until(lambda: len(processes(self.marker)) > 0, 5, "a process with the marker")

    def test_forwarded_signals(self):
        for number, name in (
            (signal.SIGINT, "INT"),
            (signal.SIGTERM, "TERM"),
            (signal.SIGHUP, "HUP"),
            (signal.SIGUSR1, "USR1"),
        ):
            with self.subTest(signal=name):
                process = self.start(
                    f"trap 'echo got {name}; exit 33' {name}; echo ready; while :; do sleep 0.05; done # MARKER"
                )
                process.send_signal(number)
                self.assertEqual(process.stdout.read(), f"got {name}\n".encode())
                self.assertEqual(process.wait(timeout=5), 33)
                self.before.assert_none()

    def test_unhandled_signals_end_it(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                process = self.start("echo ready; exec -a MARKER sleep 300")
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=5), 128 + number)
                self.before.assert_none()

    def test_ignored_signals_end_it_all_the_same(self):
        for count in (1, 2):
            with self.subTest(signals=count):
                process = self.start(
                    "trap '' TERM INT; echo ready; (exec -a MARKER sleep 300) & while :; do sleep 0.05; done"
                )
                for _ in range(count):
                    process.send_signal(signal.SIGTERM)
                    time.sleep(0.05)  # two signals of one kind at the same moment are one
                process.wait(timeout=8)
                self.assertNotEqual(process.returncode, 0)
                self.before.assert_none()

    def test_cancelled_verification(self):
        place = self.directory({"main.py": f"import subprocess\nsubprocess.run(['sleep', '300'])  # {self.marker}\n"})
        process = self.popen(
            "verify",
            "--json",
            "--events",
            place / "events",
            place / "main.py",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(end, process)
        wait_until(
            lambda: (place / "events").exists() and '"run"' in (place / "events").read_text(),
            10,
            "the check has not started",
        )
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=5)
        result = self.read_result(output)
        self.assertEqual(
            (result["status"], result["terminal_event"], process.returncode), ("cancelled", "cancelled", 1)
        )
        self.before.assert_none()


if __name__ == "__main__":
    unittest.main()

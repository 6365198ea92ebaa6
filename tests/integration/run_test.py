"""caisson run: what passes through, what does not, exit codes, and that nothing is left."""

import hashlib
import os
import pathlib
import secrets
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import Running, both_callers, end


@both_callers
class ExitCodes(Running):
    def test_own_code_passes_through(self):
        for code in (0, 1, 2, 42, 123, 124, 125, 126, 127, 137, 159, 255):
            with self.subTest(code=code):
                self.assertEqual(self.run_inside("sh", "-c", f"exit {code}").returncode, code)

    def test_flags_end_at_the_command(self):
        self.assertEqual(self.caisson("run", "sh", "-c", "exit 3").returncode, 3)
        self.assertEqual(self.caisson("run", "--", "echo", "--timeout", "-e", "--").stdout, b"--timeout -e --\n")

    def test_timeout(self):
        began = time.monotonic()
        done = self.run_inside("sleep", "60", flags=["--timeout", "300ms"])
        self.assertEqual(done.returncode, 124)
        self.assertIn(b"TimeoutViolation", done.stderr)
        self.assertLess(time.monotonic() - began, 3)

    def test_refusals(self):
        place = self.directory()
        for flags in (
            ["--no-such-flag"],
            ["--network", "host"],
            ["--allow-domain", "*.com"],
            ["--network", "none", "--allow-domain", "example.org"],
            ["--mode", "lax"],
            ["--profile", "none"],
            ["--memory", "much"],
            ["--timeout", "0"],
            ["--cpus", "-1"],
            ["-v", "nonsense"],
            ["-v", f"{place}:/x:wild"],
            ["-v", "/no/such/place:/x"],
            ["-v", f"{place}:/usr/x"],
            ["-v", f"{place}:relative"],
            ["-v", "/etc:/x"],
            ["-v", "/:/x"],
            ["-v", "/proc:/x"],
            ["-w", "/etc"],
            ["-w", "relative"],
            ["-e", "=x"],
            ["-e", "NO_SUCH_VARIABLE_HERE"],
            ["--workspace", "/no/such/place"],
        ):
            with self.subTest(flags=flags):
                done = self.run_inside("echo", "STARTED", flags=flags)
                self.assertEqual((done.returncode, done.stdout), (125, b""), done.stderr)
                self.assertRegex(done.stderr.decode(), r"\Acaisson: [^\n]+\n\Z")
        self.assertEqual(self.caisson("run").returncode, 125)

    def test_not_executable_and_not_found(self):
        place = self.directory({"plain.txt": "text\n", "bad": b"\0\1\2", "orphan.sh": "#!/no/such/interpreter\n"})
        for name, mode, code in (
            ("plain.txt", 0o644, 126),
            ("bad", 0o755, 126),
            (".", 0o755, 126),
            ("missing", 0, 127),
            ("orphan.sh", 0o755, 127),
            ("plain.txt/x", 0o644, 127),
        ):
            with self.subTest(name=name):
                if mode and name != "." and "/" not in name:
                    self.give(place / name, mode)
                done = self.run_inside(f"/workspace/{name}", flags=["--workspace", place])
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(done.stderr.decode(), r"\Acaisson: [^\n]+\n\Z")
        self.assertEqual(self.run_inside("no-such-program").returncode, 127)

    def test_signals(self):
        for number in (1, 2, 3, 6, 9, 11, 15):
            with self.subTest(signal=number):
                self.assertEqual(
                    self.run_inside(
                        "python3",
                        "-Sc",
                        f"import os, signal; signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), {number})",
                    ).returncode,
                    128 + number,
                )

    def test_memory_limit(self):
        done = self.run_inside(
            "python3", "-Sc", "b = [b'x' * (8 << 20) for _ in range(400)]", flags=["--memory", "64M"]
        )
        self.assertEqual(done.returncode, 137)
        self.assertIn(b"MemoryLimitViolation", done.stderr)

    def test_forbidden_call(self):
        done = self.run_inside(
            "python3", "-Sc", "import ctypes; ctypes.CDLL(None).syscall(321, 0, 0, 0); print('survived')"
        )
        self.assertEqual((done.returncode, done.stdout), (159, b""))
        self.assertIn(b"bpf", done.stderr)


@both_callers
class Streams(Running):
    def test_pipe(self):
        self.assertEqual(self.run_inside("tr", "a-z", "A-Z", input=b"typed").stdout, b"TYPED")

    def test_file(self):
        source = self.directory({"f": "from a file"}) / "f"
        with open(source, "rb") as file:
            self.assertEqual(self.run_inside("cat", stdin=file).stdout, b"from a file")

    def test_large_round_trip(self):
        data = secrets.token_bytes(5 << 20)
        done = self.run_inside("cat", input=data)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(hashlib.sha256(done.stdout).digest(), hashlib.sha256(data).digest())

    def test_nothing_to_read(self):
        self.assertEqual(self.output_of("wc", "-c", stdin=subprocess.DEVNULL), "0\n")

    def test_closed_input(self):
        command = ["sh", "-c", 'exec "$@" <&-', "sh", *self.command("run", "--", "sh", "-c", "cat; echo rest")]
        done = subprocess.run(
            command, env=self.environment(), cwd=self.home, capture_output=True, timeout=30, check=False
        )
        self.assertEqual((done.returncode, done.stdout), (0, b"rest\n"), done.stderr)

    def test_unread_input_does_not_hang(self):
        self.assertEqual(self.run_inside("true", input=b"x" * (1 << 20), timeout=20).returncode, 0)

    def test_silent_input_does_not_hang(self):
        """A pipe that stays open without data must not keep a finished command waiting."""
        process = self.popen("run", "--", "echo", "done", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(end, process)
        self.assertEqual(process.wait(timeout=10), 0)

    def test_streams_stay_apart(self):
        done = self.run_inside("sh", "-c", "echo out; echo err >&2; echo out; echo err >&2")
        self.assertEqual((done.stdout, done.stderr), (b"out\nout\n", b"err\nerr\n"))

    def test_reader_that_leaves(self):
        """caisson run -- yes | head -1"""
        began = time.monotonic()
        process = self.popen(
            "run", "--", "yes", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.addCleanup(end, process)
        self.assertEqual(process.stdout.readline(), b"y\n")
        process.stdout.close()
        process.wait(timeout=10)
        self.assertLess(time.monotonic() - began, 5)

    def test_output_limit(self):
        done = self.run_inside("yes", flags=["--output-limit", "64K"], timeout=20)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"OutputLimitViolation", done.stderr)
        self.assertLessEqual(len(done.stdout), 64 << 10)

    def test_orphan_that_holds_the_pipe(self):
        began = time.monotonic()
        done = self.run_inside("sh", "-c", "setsid sleep 300 & echo done")
        self.assertEqual((done.returncode, done.stdout), (0, b"done\n"))
        self.assertLess(time.monotonic() - began, 5)


@both_callers
class Views(Running):
    def test_environment(self):
        inside = self.output_of(
            "env", flags=["-e", "A=1=2", "-e", "PASSED"], env={"SECRET_HERE": "x", "PASSED": "mine", "LD_PRELOAD": ""}
        )
        lines = inside.splitlines()
        self.assertIn("A=1=2", lines)
        self.assertIn("PASSED=mine", lines)
        self.assertNotIn("SECRET_HERE", inside)
        self.assertNotIn(str(self.home), inside)
        self.assertEqual(self.output_of("env", flags=["-e", "PATH=/usr/bin"]).count("PATH="), 1)

    def test_working_directory(self):
        self.assertEqual(self.output_of("pwd"), "/workspace\n")
        self.assertEqual(self.output_of("pwd", flags=["-w", "/scratch"]), "/scratch\n")
        self.assertEqual(
            self.output_of("pwd", flags=["-v", f"{self.directory({'d/f': ''})}:/data", "-w", "/data/d"]), "/data/d\n"
        )

    def write_into(self, flags, target):
        script = (
            f"cat {target}/f; echo new > {target}/new && echo changed > {target}/f && mkdir {target}/d && rm"
            f" {target}/gone && cat {target}/f"
        )
        return self.run_inside("sh", "-c", script, flags=flags)

    def views(self, make_flags, target):
        for access in ("ro", "cow", "rw"):
            with self.subTest(access=access):
                place = self.directory({"f": "old\n", "gone": ""})
                done = self.write_into(make_flags(place, access), target)
                self.assertTrue(done.stdout.startswith(b"old\n"), done.stderr)
                after = sorted(os.listdir(place))
                if access == "rw":
                    self.assertEqual((done.returncode, done.stdout), (0, b"old\nchanged\n"), done.stderr)
                    self.assertEqual((after, (place / "f").read_text()), (["d", "f", "new"], "changed\n"))
                    for name in ("d", "new", "f"):
                        self.assertEqual((place / name).stat().st_uid, self.caller_id, name)
                else:
                    self.assertEqual((after, (place / "f").read_text()), (["f", "gone"], "old\n"))
                    if access == "cow":
                        self.assertEqual((done.returncode, done.stdout), (0, b"old\nchanged\n"), done.stderr)
                        self.assertNotIn(b"Violation", done.stderr)
                    else:
                        self.assertNotEqual(done.returncode, 0)
                        self.assertIn(f"path={target}/new".encode(), done.stderr)

    def test_volume(self):
        self.views(lambda place, access: ["-v", f"{place}:/data:{access}"], "/data")

    def test_workspace(self):
        self.views(lambda place, access: ["--workspace", f"{place}:{access}"], "/workspace")

    def test_read_only_is_the_default(self):
        place = self.directory({"f": "old\n", "gone": ""})
        for flags, target in ((["-v", f"{place}:/data"], "/data"), (["--workspace", place], "/workspace")):
            self.assertNotEqual(self.write_into(flags, target).returncode, 0)
        self.assertEqual(sorted(os.listdir(place)), ["f", "gone"])

    def test_one_file(self):
        place = self.directory({"f": "old\n"})
        self.assertEqual(self.output_of("cat", "/data/x", flags=["-v", f"{place / 'f'}:/data/x"]), "old\n")
        self.output_of("sh", "-c", "echo new > /data/x", flags=["-v", f"{place / 'f'}:/data/x:rw"])
        self.assertEqual((place / "f").read_text(), "new\n")

    def test_scratch_is_private_and_gone(self):
        marker = f"marker-{secrets.token_hex(8)}"
        self.assertEqual(
            self.output_of("sh", "-c", f"echo x > /scratch/{marker}; echo x > /tmp/{marker}; ls /scratch"),
            f"{marker}\n",
        )
        self.assertEqual(self.output_of("ls", "/scratch", "/tmp"), "/scratch:\n\n/tmp:\n")
        self.assertFalse(os.path.exists(f"/tmp/{marker}"))


if __name__ == "__main__":
    unittest.main()

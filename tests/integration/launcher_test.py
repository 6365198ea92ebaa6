"""caisson-launcher: sandboxes created by another process are equal, end as reliably, and give their clients no rights.

Each class runs three times: everything as root, everything as an ordinary user, and an ordinary user served by root's
launcher.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import attacks
from caisson import ORDINARY_ID, STARTED_BY_ROOT, CallerCase, check, end, processes, wait_until
from launched_case import LaunchedCase, three_ways
from launcher import KIND_EXECUTE, KIND_START, VERSION, Launcher, RawClient

LIMITS = {
    "command_timeout_ms": 10_000,
    "memory_bytes": 128 << 20,
    "processes": 24,
    "output_bytes": 1 << 16,
    "scratch_bytes": 8 << 20,
}


@three_ways
class Same:
    """The same request, in this process and through the launcher."""

    def facts(self, result):
        """What does not depend on the moment or on how limits are measured."""
        facts = {key: result.get(key) for key in ("status", "failure_class", "exit_code", "tier", "terminal_event")}
        facts["message"] = result.get("message")
        facts["checks"] = [(done["name"], done["exit_code"], done["signal"]) for done in result["checks"]]
        facts["violations"] = sorted({(found["class"], found["reason"]) for found in result["violations"]})
        facts["artifacts"] = [(made["path"], made["sha256"]) for made in result["artifacts"]]
        facts["skipped"] = result["skipped_checks"], result.get("skipped_artifacts")
        facts["digests"] = result["source_digest"], result["policy_digest"]
        if result["failure_class"] != "OutputLimitViolation":  # what is kept of a flood is a matter of the moment
            facts["output"] = result["stdout"], result["stderr"], result["output"]
        if self.LAUNCHER_BY_USER == self.AS_USER:
            facts["isolation"] = {key: value for key, value in result["isolation"].items() if key != "host_uid"}
        return facts

    def compare(self, source, limits=None, **options):
        options.setdefault("checks", [check("python3", "-S", "main.py")])
        options["files"] = {"main.py": attacks.program(source, "plain"), "data/old.txt": "old\n"}
        options["limits"] = LIMITS | (limits or {})
        launched = self.verify(**options)
        self.through_launcher = False
        own = self.verify(**options)
        self.through_launcher = True
        self.assertEqual(self.facts(launched), self.facts(own))
        return launched

    def test_pass(self):
        self.assert_passes(self.compare("print('hello'); sys.stderr.write('there')"))

    def test_failed_check_and_what_is_skipped(self):
        checks = [check("false", name="first"), check("true", name="second")]
        self.assert_fails_as(self.compare("", checks=checks), "CheckFailed")

    def test_several_checks_in_one_sandbox(self):
        checks = [
            check("sh", "-c", "echo $RANDOM > /scratch/kept; cat /scratch/kept > /dev/null", name="write"),
            check("test", "-s", "/scratch/kept", name="read"),
        ]
        self.assert_passes(self.compare("", checks=checks))

    def test_standard_input(self):
        checks = [check("sh", "-c", "cat; wc -c < main.py > /dev/null", stdin="line\n" * 50_000)]
        result = self.compare("", checks=checks, limits={"output_bytes": 1 << 20})
        self.assertEqual(result["stdout"], "line\n" * 50_000)

    def test_each_class_of_violation(self):
        for failure_class, source, limits in (
            ("TimeoutViolation", attacks.SPIN, {"command_timeout_ms": 300}),
            ("MemoryLimitViolation", attacks.ALLOCATIONS, {"memory_bytes": 64 << 20}),
            ("ProcessLimitViolation", attacks.SLEEPING_FORKS, {}),
            ("OutputLimitViolation", "while True: print('x' * 1000)", {}),
            ("NetworkAccessViolation", "socket.socket().connect_ex(('192.0.2.1', 80))", {}),
            ("FilesystemWriteViolation", "try: open('/workspace/new', 'w')\nexcept OSError: pass", {}),
            ("SyscallViolation", "call(101, 0, 0, 0, 0)", {}),
        ):
            with self.subTest(failure_class):
                self.assert_fails_as(self.compare(source, limits=limits), failure_class)

    def test_artifacts(self):
        source = (
            "open('/scratch/out.txt', 'w').write('kept')\nopen('/scratch/big', 'wb').write(bytes(3 << 20))\n"
            "os.symlink('/etc/passwd', '/scratch/link')"
        )
        result = self.compare(source, artifacts=["/scratch/**"])
        self.assertEqual([made["path"] for made in result["artifacts"]], ["/scratch/big", "/scratch/out.txt"])

    def test_large_source(self):
        blob = {f"f{n}.txt": "x" * 700_000 for n in range(4)}
        checks = [check("sh", "-c", "cat f?.txt | wc -c")]
        results = self.verify(files=blob, checks=checks)
        self.assert_passes(results)
        self.assertEqual(results["stdout"].strip(), "2800000")

    def test_a_program_that_is_not_there(self):
        self.compare("", checks=[check("no-such-program")])

    def test_workspace_and_volumes(self):
        place = self.directory({"f": "old\n"})
        for access, expected in (("ro", b"old\n"), ("cow", b"new\n"), ("rw", b"new\n")):
            with self.subTest(access):
                done = self.caisson(
                    *("run", "--workspace", f"{place}:{access}", "--", "sh", "-c"),
                    "echo new 2>/dev/null > f; cat f",
                )
                self.assertEqual(done.stdout, expected, done.stderr)
                self.assertEqual((place / "f").read_text(), "new\n" if access == "rw" else "old\n")
        done = self.caisson("run", "-v", f"{place}:/data", "--", "cat", "/data/f")
        self.assertEqual(done.stdout, b"new\n", done.stderr)

    def test_streams_pass_through(self):
        done = self.caisson("run", "--", "sh", "-c", "cat; echo problem >&2; exit 3", input=b"x" * 300_000)
        self.assertEqual((done.returncode, done.stdout), (3, b"x" * 300_000))
        self.assertIn(b"problem", done.stderr)

    def test_doctor(self):
        done = self.caisson("doctor", "--json", timeout=120)
        report = json.loads(done.stdout)
        self.assertEqual((done.returncode, report["balanced_enforceable"]), (0, True), done.stdout)


@three_ways
class Ending:
    """Whichever process ends, and however: nothing is left, and other runs are not disturbed."""

    def test_twenty_at_a_time(self):
        def one(number):
            done = self.caisson("run", "--", "sh", "-c", f"sleep 0.2; echo {number}; exit {number}")
            return done.returncode, done.stdout

        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            results = list(pool.map(one, range(20)))
        self.assertEqual(results, [(number, f"{number}\n".encode()) for number in range(20)])
        wait_until(lambda: self.launcher.supervisors() == [], 10, "supervisors are gone")
        self.assert_nothing_left()

    def test_launcher_killed(self):
        process = self.start_sleeper()
        self.launcher.kill()
        self.assert_lost(process)
        self.assert_nothing_left()

    def test_launcher_asked_to_end(self):
        process = self.start_sleeper()
        self.assertEqual(self.launcher.end(), 0)
        self.assert_lost(process)
        self.assertFalse(self.launcher.socket.exists())
        self.assert_nothing_left()

    def test_client_killed(self):
        process = self.start_sleeper()
        process.kill()
        process.wait(timeout=10)
        wait_until(lambda: self.launcher.supervisors() == [], 10, "the supervisor is gone")
        self.assert_nothing_left()
        self.assert_still_serves()

    def test_one_supervisor_killed(self):
        first = self.start_sleeper()
        (its_supervisor,) = self.launcher.supervisors()
        second = self.popen("run", "--", "sh", "-c", "read x; echo $x", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(end, second)
        wait_until(lambda: len(self.launcher.supervisors()) == 2, 30, "two supervisors")
        os.kill(its_supervisor, signal.SIGKILL)
        self.assert_lost(first)
        self.assertEqual(second.communicate(b"unharmed\n", timeout=30)[0], b"unharmed\n")
        self.assertIn(f"supervisor {its_supervisor} was ended by signal 9", self.launcher.log.read_text())
        self.assert_nothing_left()

    def test_cancelled(self):
        process = self.start_sleeper()
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        self.assertEqual(self.read_result(output)["status"], "cancelled")
        self.assert_nothing_left()

    def test_signals_are_passed_on(self):
        script = "trap 'echo got it; exit 9' TERM; echo up; while :; do sleep 0.05; done"
        process = self.popen("run", "--", "sh", "-c", script, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(end, process)
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.communicate(timeout=30)[0], b"got it\n")
        self.assertEqual(process.returncode, 9)

    def test_a_second_launcher_takes_over(self):
        self.launcher.kill()
        stale = self.launcher.socket
        self.assertTrue(stale.exists())
        done = self.caisson("run", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(str(stale).encode(), done.stderr)
        command = [str(self.launcher.binary), "--socket", str(stale)]
        fresh = subprocess.Popen(self.as_caller(*command) if self.LAUNCHER_BY_USER else command)
        self.addCleanup(end, fresh)
        wait_until(self.launcher.listens, 10, "the second launcher listens")
        third = subprocess.run(
            self.as_caller(*command) if self.LAUNCHER_BY_USER else command, capture_output=True, check=False, timeout=30
        )
        self.assertEqual(third.returncode, 1)
        self.assertIn(b"another launcher listens there", third.stderr)


@three_ways
class Bounded:
    FLAGS = ("--max-runs", 1)

    def test_more_runs_than_it_may_have(self):
        process = self.start_sleeper()
        done = self.caisson("run", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"as many as it may", done.stderr)
        process.kill()
        process.wait(timeout=10)
        wait_until(lambda: self.launcher.supervisors() == [], 10, "the supervisor is gone")
        self.assert_still_serves()


class Members:
    """Helpers for tests of parked supervisors."""

    def parked(self):
        """Process numbers of supervisors that wait for a run."""
        return [pid for pid in self.launcher.supervisors() if self.name_of(pid) == "caisson-parked"]

    @staticmethod
    def name_of(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            return ""

    def start_of_run(self):
        result = self.run_source("print(1)")
        self.assert_passes(result)
        return result["isolation"]["start"]

    def use_member(self):
        """Waits until there is one, and uses it; its process number."""

        def use():
            members = set(self.parked())
            if not members or self.start_of_run() != "parked":
                return False
            self.used = members - set(self.parked())
            return len(self.used) == 1 or self.used

        wait_until(use, 30, "a run in a parked sandbox")
        return self.used.pop()


@three_ways
class Parked(Members):
    FLAGS = ("--park", 4)

    def test_members_are_used_once_and_replaced(self):
        used = [self.use_member() for _ in range(4)]
        self.assertEqual(len(set(used)), 4, "a member was used twice")
        wait_until(lambda: not set(used) & set(self.launcher.supervisors()), 10, "used members are gone")
        wait_until(lambda: len(self.parked()) > 0, 10, "there is another")

    def test_the_walls_are_the_same(self):
        script = (
            "import os\nfor n in sorted(os.listdir('/proc/self/ns')): print(n)\n"
            "print(open('/proc/net/unix').read().count('\\n'), open('/proc/net/dev').read().count(':'),"
            " open('/proc/self/status').read().count('0000000000000000'))\n"
            "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
            "socket.create_connection(s.getsockname()); print('loopback works')\n"
            "try: socket.socket().bind(('127.0.0.1', 80))\nexcept OSError as e: print(e.errno)"
        )
        host = os.readlink("/proc/self/ns/net")

        def compare():
            parked = self.run_source(script + "\nprint(os.readlink('/proc/self/ns/net'))")
            if parked["isolation"]["start"] != "parked":
                return False
            self.through_launcher = False
            cold = self.run_source(script + "\nprint(os.readlink('/proc/self/ns/net'))")
            self.through_launcher = True
            parked_lines, cold_lines = parked["stdout"].splitlines(), cold["stdout"].splitlines()
            self.assertEqual(parked_lines[:-1], cold_lines[:-1])
            self.assertNotIn(host, (parked_lines[-1], cold_lines[-1]))
            self.assertNotEqual(parked_lines[-1], cold_lines[-1])
            self.assertEqual(parked["isolation"]["namespaces"], cold["isolation"]["namespaces"])
            return True

        wait_until(compare, 30, "a run in a parked sandbox")

    def test_network_is_still_watched(self):
        def attempt():
            result = self.run_source("import socket\ntry: socket.getaddrinfo('example.org', 1)\nexcept OSError: pass")
            self.assert_fails_as(result, "NetworkAccessViolation")
            return result["isolation"]["start"] == "parked"

        wait_until(attempt, 30, "a run in a parked sandbox")

    def test_a_member_that_dies_is_replaced(self):
        wait_until(lambda: len(self.parked()) == 1, 10, "a member")
        (member,) = self.parked()
        self.use_member()
        wait_until(lambda: len(self.parked()) > 0, 10, "a member")
        victim = self.parked()[0]
        os.kill(victim, signal.SIGKILL)
        # It is called what its comm says a moment before the launcher knows its number.
        notice = re.compile(f"parked supervisor ({victim}|that was being made) ended")
        wait_until(lambda: bool(notice.search(self.launcher.log.read_text())), 10, "it is noticed")
        self.assertNotIn(self.use_member(), (victim, member))
        self.launcher.end()
        self.assert_nothing_left()

    def test_the_pool_follows_demand(self):
        wait_until(lambda: len(self.parked()) == 1, 10, "one member without requests")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda _: self.caisson("run", "--", "true").returncode, range(24)))
        self.assertEqual(done, [0] * 24)
        wait_until(lambda: len(self.parked()) > 1 or self.parked(), 30, "more members")
        self.assertLessEqual(len(self.parked()), 4)

    def test_nothing_is_left_of_an_ended_launcher(self):
        self.use_member()
        wait_until(lambda: len(self.parked()) > 0, 10, "a member")
        self.assertEqual(self.launcher.end(), 0)
        self.assert_nothing_left()

    def test_nothing_is_left_of_a_killed_launcher(self):
        self.use_member()
        wait_until(lambda: len(self.parked()) > 0, 10, "a member")
        self.launcher.kill()
        self.assert_nothing_left()


@three_ways
class WithoutMemory(Members):
    FLAGS = ("--park", 4, "--park-reserve", 1 << 60)

    def test_no_member_while_memory_is_short(self):
        for _ in range(3):
            self.assertEqual(self.start_of_run(), "cold")
            self.assertEqual(self.parked(), [])


@three_ways
class Hostile:
    """A client that breaks the protocol loses its run, and nothing else happens."""

    def setUp(self):
        super().setUp()
        if self.AS_USER and STARTED_BY_ROOT:
            os.setegid(ORDINARY_ID)
            os.seteuid(ORDINARY_ID)
        try:
            self.client = RawClient(self.launcher.socket)
        finally:
            if self.AS_USER and STARTED_BY_ROOT:
                os.seteuid(0)
                os.setegid(0)
        self.addCleanup(self.client.close)

    def test_garbage_instead_of_a_request(self):
        with open("/dev/null") as null, socket.socket() as tcp:
            for data, fds in (
                (b"x", []),
                (b"\x80\x00" + bytes(8), []),
                (b"\x80\x00" + (1).to_bytes(8, "little"), [null.fileno()]),
                (b"\x80\x00" + (1).to_bytes(8, "little"), [tcp.fileno()]),
                (b"\x80\x00" + (1).to_bytes(8, "little"), [null.fileno()] * 100),
                (b"\x81\x00", [null.fileno()]),
                (os.urandom(60_000), [null.fileno()]),
            ):
                socket.send_fds(self.client.control, [data], fds)
        self.assert_still_serves()
        wait_until(lambda: self.launcher.supervisors() == [], 10, "supervisors are gone")
        held = os.listdir(f"/proc/{self.launcher.pid}/fd")
        self.assertLess(len(held), 10, held)

    def test_another_version(self):
        with self.client.open(version=99) as run:
            self.assertIn(f"version {VERSION}", self.client.last_words(run))

    def test_garbage_instead_of_a_start(self):
        for packet, words in (
            (b"x", "frame: of no known kind"),
            (bytes([KIND_EXECUTE, 0]) + bytes(64), "start: expected first"),
            (bytes([KIND_START, 0]), "start.workspace_files: is cut off"),
            (bytes([KIND_START, 0]) + b"\xff" * 4096, "start.workspace_files: is 4294967295"),
            (bytes([KIND_START, 1]) + (1 << 20).to_bytes(8, "little"), "frame: its body is nowhere"),
            (bytes([KIND_START, 0]) + bytes(120_000), "frame: longer than any can be"),
        ):
            with self.subTest(words), self.client.open() as run:
                run.send(packet)
                self.assertIn(words, self.client.last_words(run))
        self.assert_still_serves()

    def test_random_starts(self):
        for size in (10, 100, 1000, 10_000):
            with self.client.open() as run:
                run.send(bytes([KIND_START, 0]) + os.urandom(size))
                self.assertIn("start.", self.client.last_words(run))
        self.assert_still_serves()

    def test_descriptors_nobody_asked_for(self):
        with open("/dev/null") as null, self.client.open() as run:
            socket.send_fds(run, [bytes([KIND_START, 1]) + (4096).to_bytes(8, "little")], [null.fileno()] * 20)
            self.assertIn("not in a sealed memfd", self.client.last_words(run))

    def test_silence_and_absence(self):
        runs = [self.client.open() for _ in range(5)]
        wait_until(lambda: len(self.launcher.supervisors()) == 5, 10, "supervisors wait")
        self.assert_still_serves()
        for run in runs:
            run.close()
        wait_until(lambda: self.launcher.supervisors() == [], 10, "supervisors are gone")

    def test_a_supervisor_holds_only_its_own(self):
        first, second = self.client.open(), self.client.open()
        wait_until(lambda: len(self.launcher.supervisors()) == 2, 10, "supervisors wait")
        for pid in self.launcher.supervisors():

            def only_its_own(pid=pid):
                held = {int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
                return True if sorted(held) == [0, 1, 2, 3] and held[3].startswith("socket:") else held

            wait_until(only_its_own, 10, "descriptors")
            self.assertEqual(pathlib.Path(f"/proc/{pid}/comm").read_text(), "caisson-run\n")
        first.close()
        second.close()


class Rights(LaunchedCase):
    """Root's launcher with an ordinary user as its client: the user gains no right."""

    AS_USER = True

    def place(self):
        """A directory of root's that every user may enter, with files of both."""
        top = self.directory({"mine": "mine\n"})
        os.chown(top, 0, 0)
        top.chmod(0o755)
        (top / "mine").chmod(0o600)
        (top / "secret").write_text("secret\n")
        (top / "secret").chmod(0o600)
        (top / "public").write_text("public\n")
        return top

    def test_reading_and_writing_as_oneself(self):
        top = self.place()
        for access in ("ro", "rw"):
            with self.subTest(access):
                script = (
                    "cat /data/mine /data/public; cat /data/secret; echo x > /data/new; echo x > /data/public;"
                    " echo x >> /data/mine; true"
                )
                done = self.caisson("run", "-v", f"{top}:/data:{access}", "--", "sh", "-c", script)
                self.assertTrue(done.stdout.startswith(b"mine\n"), done)
                self.assertIn(b"public\n", done.stdout)
                self.assertNotIn(b"secret\n", done.stdout)
                self.assertFalse((top / "new").exists())
                self.assertEqual((top / "public").read_text(), "public\n")
                self.assertEqual((top / "mine").read_text(), "mine\nx\n" if access == "rw" else "mine\n")

    def test_others_are_not_served(self):
        with_nobody = Launcher(False)
        self.addCleanup(with_nobody.end)
        environment = CallerCase.environment(self, {"CAISSON_LAUNCHER": str(with_nobody.socket)})
        done = subprocess.run(self.command("run", "--", "true"), env=environment, capture_output=True, cwd=self.home)
        self.assertEqual(done.returncode, 125)
        self.assertIn(str(with_nobody.socket).encode(), done.stderr)
        self.assertIn(b"--allow-uid", done.stderr)
        os.chmod(with_nobody.socket, 0o666)  # even if the file's mode permits it
        done = subprocess.run(self.command("run", "--", "true"), env=environment, capture_output=True, cwd=self.home)
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"the launcher was lost", done.stderr)

    def test_a_user_cannot_open_his_launcher_to_others(self):
        command = self.as_caller(self.launcher.binary, "--socket", self.home / "s", "--allow-uid", "1")
        done = subprocess.run(command, capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"only for a launcher that is root", done.stderr)


class CommandLine(LaunchedCase):
    AS_USER = True
    LAUNCHER_BY_USER = True

    def test_it_explains_itself(self):
        done = subprocess.run([self.launcher.binary, "--help"], capture_output=True, check=True)
        self.assertIn(b"--max-runs", done.stdout)
        for arguments in (["--fd", "999"], ["--socket"], ["--nonsense", "1"], ["--socket", "a", "--max-runs", "many"]):
            done = subprocess.run([self.launcher.binary, *arguments], capture_output=True, check=False)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(b"see: caisson-launcher --help", done.stderr)

    def test_no_launcher_is_no_reason_to_run_without(self):
        for command, code in ((["run", "--", "echo", "ran"], 125), (["doctor"], 1)):
            done = self.caisson(*command, env={"CAISSON_LAUNCHER": "/nonexistent/socket"})
            self.assertEqual(done.returncode, code)
            self.assertIn(b"/nonexistent/socket", done.stderr + done.stdout)
            self.assertNotIn(b"ran\n", done.stdout)
        place = self.directory({"main.py": "print(1)\n"})
        result = self.verify_path(place / "main.py", env={"CAISSON_LAUNCHER": "/nonexistent/socket"})
        self.assertEqual(result["status"], "error")
        self.assertIn("/nonexistent/socket", result["message"])


if __name__ == "__main__":
    unittest.main()

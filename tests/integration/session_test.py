"""caisson session: a sandbox that stays, from open to apply or discard, as root and as an ordinary user."""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from caisson import ORDINARY_ID, STARTED_BY_ROOT, Leftovers, both_callers, processes, skip, validate, wait_until
from terminal_test import Terminal


class Sessions:
    """How a mixin for `both_callers` uses sessions: each test has a place of its own for them."""

    def setUp(self):
        self.before = Leftovers(self.binary)
        self.place = self.directory()
        self.addCleanup(self.end_all)

    def environment(self, extra=None):
        return super().environment({"CAISSON_SESSIONS": str(self.place / "sessions")} | (extra or {}))

    def end_all(self):
        """Ends what a failed test left; only this test's place is looked at."""
        for record in self.place.glob("sessions/ses_*/session.json"):
            pid = json.loads(record.read_text())["pid"]
            # Not the cleanup process, which has the same command line.
            if str(record.parent).encode() in processes(marker="supervise").get(pid, b""):
                os.kill(pid, signal.SIGKILL)
        self.before.assert_none(20)

    def session(self, *arguments, code=0, **options):
        done = self.caisson("session", *arguments, **options)
        self.assertEqual(done.returncode, code, (arguments, done.stdout[-2000:], done.stderr.decode(errors="replace")))
        return done

    def open(self, project=None, *flags):
        """Opens a detached session and returns its document."""
        where = [project] if project is not None else ["--empty"]
        document = json.loads(self.session("open", *where, "--detach", "--json", *flags).stdout)
        validate(document, "session.schema.json")
        return document

    def run_in(self, identity, *command, flags=(), code=0, **options):
        return self.session("exec", identity, *flags, "--", *command, code=code, **options).stdout.decode()

    def show(self, identity):
        document = json.loads(self.session("show", identity, "--json").stdout)
        validate(document, "session.schema.json")
        return document

    def state(self, identity):
        return self.show(identity)["state"]

    def events(self, identity):
        return [json.loads(line) for line in self.session("log", identity, "--json").stdout.splitlines()]

    def supervisor(self, identity):
        return self.show(identity)["pid"]


@both_callers
class Life(Sessions):
    def test_from_open_to_apply(self):
        project = self.directory({"a.txt": "one\n", "gone.txt": "x\n", "sub/b.txt": "two\n"})
        document = self.open(project, "--name", "life")
        self.assertEqual((document["name"], document["state"], document["workspace"]), ("life", "idle", str(project)))
        self.assertEqual(document["workspace_mode"], "cow", document["notices"])
        self.assertEqual(self.run_in("life", "cat", "a.txt"), "one\n")
        self.run_in(document["id"], "sh", "-c", "echo changed > a.txt; rm gone.txt; mkdir new; echo n > new/n.txt")
        self.assertEqual((project / "a.txt").read_text(), "one\n", "the project itself must not change")
        self.assertEqual(self.run_in(document["id"][:9], "cat", "new/n.txt"), "n\n", "files stay between commands")
        stat_text = self.session("diff", "life", "--stat").stdout.decode()
        for line in ("a.txt", "gone.txt", "new/n.txt"):
            self.assertIn(line, stat_text)
        self.assertIn("+changed", self.session("diff", "life").stdout.decode())
        changes = json.loads(self.session("diff", "life", "--json").stdout)["changes"]
        self.assertEqual({change["path"]: change["kind"] for change in changes},
                         {"a.txt": "modified", "gone.txt": "deleted", "new": "added", "new/n.txt": "added"})  # fmt: skip
        self.session("apply", "life")
        self.assertEqual((project / "a.txt").read_text(), "changed\n")
        self.assertEqual((project / "new/n.txt").read_text(), "n\n")
        self.assertFalse((project / "gone.txt").exists())
        self.assertEqual((project / "new/n.txt").stat().st_uid, project.stat().st_uid)
        self.assertEqual(self.state("life"), "applied")
        types = [event["type"] for event in self.events("life")]
        self.assertEqual(types[0], "session_opened")
        for expected in ("command_started", "command_finished", "diff_computed", "applied", "session_stopped"):
            self.assertIn(expected, types)
        self.session("rm", "life")
        self.session("show", "life", code=125)

    def test_discard(self):
        project = self.directory({"a.txt": "one\n"})
        self.open(project, "--name", "drop")
        self.run_in("drop", "sh", "-c", "echo two > a.txt; mkdir -m 000 locked")
        self.session("discard", "drop")
        self.assertEqual((project / "a.txt").read_text(), "one\n")
        self.assertEqual(self.state("drop"), "discarded")
        self.session("diff", "drop", code=125)
        self.session("apply", "drop", code=125)

    def test_conflict_changes_nothing(self):
        project = self.directory({"a.txt": "one\n", "b.txt": "one\n"})
        self.open(project, "--name", "torn")
        self.run_in("torn", "sh", "-c", "echo inside > a.txt; echo inside > b.txt")
        (project / "a.txt").write_text("outside\n")
        done = self.session("apply", "torn", code=5)
        self.assertIn(b"a.txt", done.stderr)
        self.assertEqual((project / "a.txt").read_text(), "outside\n")
        self.assertEqual((project / "b.txt").read_text(), "one\n")
        self.assertEqual(self.state("torn"), "idle", "a conflict does not end a session")
        types = [event["type"] for event in self.events("torn")]
        self.assertIn("apply_begun", types)
        self.assertIn("apply_failed", types)
        self.assertNotIn("applied", types, "the log records what did not happen")
        report = json.loads(self.session("apply", "torn", "--json", code=5).stdout)
        self.assertEqual((report["applied"], [one["path"] for one in report["conflicts"]]), (False, ["a.txt"]))
        self.session("apply", "torn", "--only", "b.txt")
        self.assertEqual((project / "b.txt").read_text(), "inside\n")
        self.session("stop", "torn")
        self.assertEqual(self.state("torn"), "stopped")

    def test_patch_leaves_the_project(self):
        project = self.directory({"a.txt": "one\n"})
        self.open(project, "--name", "paper")
        self.run_in("paper", "sh", "-c", "echo two > a.txt")
        patch = self.session("apply", "paper", "--patch", "-").stdout.decode()
        self.assertIn("-one\n+two\n", patch)
        self.assertEqual((project / "a.txt").read_text(), "one\n")

    def test_private_copy(self):
        project = self.directory({"a.txt": "one\n", "sub/b.txt": "two\n"})
        document = self.open(project, "--workspace", "copy", "--name", "copy")
        self.assertEqual(document["workspace_mode"], "copy")
        self.run_in("copy", "sh", "-c", "echo changed > a.txt; mv sub moved")
        changes = json.loads(self.session("diff", "copy", "--json").stdout)["changes"]
        self.assertIn("a.txt", [change["path"] for change in changes])
        self.assertEqual((project / "a.txt").read_text(), "one\n")
        self.session("apply", "copy")
        self.assertEqual((project / "a.txt").read_text(), "changed\n")
        self.assertEqual((project / "moved/b.txt").read_text(), "two\n")

    def test_empty_and_no_project(self):
        document = self.open(None, "--name", "bare")
        self.assertIsNone(document["workspace"])
        self.assertEqual(self.run_in("bare", "sh", "-c", "ls -A; echo x > f; ls"), "f\n")
        self.session("apply", "bare", code=125)
        self.assertIn("f", self.session("diff", "bare", "--stat").stdout.decode())

    def test_fork(self):
        project = self.directory({"a.txt": "one\n", "b.txt": "b\n"})
        self.open(project, "--name", "first")
        self.run_in("first", "sh", "-c", "echo forked > a.txt; rm b.txt")
        document = json.loads(self.session("fork", "first", "--name", "second", "--json").stdout)
        self.assertNotEqual(document["id"], self.show("first")["id"])
        self.assertEqual(self.run_in("second", "sh", "-c", "cat a.txt; ls"), "forked\na.txt\n")
        self.run_in("second", "sh", "-c", "echo second > a.txt")
        self.assertEqual(self.run_in("first", "cat", "a.txt"), "forked\n")

    def test_list_and_names(self):
        project = self.directory()
        first = self.open(project, "--name", "twin")
        done = self.session("open", project, "--name", "twin", "--detach", code=125)
        self.assertIn(b"twin", done.stderr)
        self.session("stop", "twin")
        second = self.open(project, "--name", "twin")
        self.assertEqual(self.show("twin")["id"], second["id"], "the living one has the name")
        listed = json.loads(self.session("list", "--json").stdout)["sessions"]
        self.assertEqual({one["id"]: one["state"] for one in listed}, {first["id"]: "stopped", second["id"]: "idle"})
        self.session("rm", second["id"], code=125)
        self.session("rm", "--force", second["id"], first["id"])
        self.assertEqual(json.loads(self.session("list", "--json").stdout)["sessions"], [])
        self.assertEqual([entry for entry in os.listdir(self.place / "sessions") if entry.startswith("ses_")], [])

    def test_refusals(self):
        project = self.directory()
        for flags in (["/etc"], ["/no/such/place"], [project, "--ttl", "0"], [project, "--name", "NO"], [project, "--profile", "none"],
                      [project, "--allow-domain", "*.com"], [project, "--memory", "1"], [self.place]):  # fmt: skip
            with self.subTest(flags=flags):
                done = self.session("open", *flags, "--detach", code=125)
                self.assertRegex(done.stderr.decode(), r"\Acaisson: [^\n]+\n\Z")
        self.assertEqual(json.loads(self.session("list", "--json").stdout)["sessions"], [])
        for arguments in (["exec", "none", "--", "true"], ["stop", "none"], ["exec"], ["no-such"], ["diff"]):
            self.assertIn(self.caisson("session", *arguments).returncode, (2, 125), arguments)

    def test_open_with_a_command(self):
        project = self.directory({"a.txt": "one\n"})
        done = self.session("open", project, "--name", "once", "--", "sh", "-c", "cat; echo two > a.txt; exit 7", code=7, input=b"typed\n")
        self.assertEqual(done.stdout, b"typed\n")
        self.assertIn(b"caisson session apply", done.stderr)
        self.assertEqual(self.state("once"), "stopped")
        self.session("apply", "once")
        self.assertEqual((project / "a.txt").read_text(), "two\n")


@both_callers
class Commands(Sessions):
    def setUp(self):
        super().setUp()
        self.open(self.directory({"a.txt": "one\n"}), "--name", "work", "-e", "GIVEN=here")

    def test_streams_and_exit_codes(self):
        done = self.session("exec", "work", "--", "sh", "-c", "cat; echo error >&2; exit 3", code=3, input=b"in\n" * 100000)
        self.assertEqual((done.stdout, done.stderr), (b"in\n" * 100000, b"error\n"))
        self.run_in("work", "no-such-program", code=127)
        self.run_in("work", "/workspace/a.txt", code=126)
        self.run_in("work", "sh", "-c", "kill -TERM $$", code=143)
        self.run_in("work", "true", flags=["-w", "/no/such"], code=125)
        self.assertEqual(self.run_in("work", "pwd", flags=["-w", "/usr/bin"]), "/usr/bin\n")
        self.assertEqual(self.run_in("work", "sh", "-c", "echo $GIVEN $MORE; pwd", flags=["-e", "MORE=too", "-w", "/tmp"]), "here too\n/tmp\n")
        self.assertEqual([one["exit_code"] for one in self.show("work")["command_list"]][:3], [3, 127, 126])

    def test_arguments_of_any_bytes(self):
        done = self.session("exec", "work", "--", "printf", "%s", os.fsdecode(b"\xff\x01 'x'"))
        self.assertEqual(done.stdout, b"\xff\x01 'x'")

    def test_timeout_ends_the_command_and_not_the_session(self):
        self.run_in("work", "sh", "-c", "sleep 1000 & setsid sleep 1001 & sleep 1002", flags=["--timeout", "500ms"], code=124)
        wait_until(lambda: "sleep 100" not in self.run_in("work", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '") or "sleep lives", 10, "tree")
        violations = [event["violation"]["class"] for event in self.events("work") if event["type"] == "violation"]
        self.assertIn("TimeoutViolation", violations)
        self.assertEqual(self.state("work"), "idle")

    def test_processes_live_between_commands(self):
        self.run_in("work", "sh", "-c", "cd /tmp; setsid python3 -u -m http.server 8000 --bind 127.0.0.1 >/tmp/log 2>&1 &")
        fetch = "import urllib.request, time\nfor _ in range(100):\n  try: print(urllib.request.urlopen('http://127.0.0.1:8000').status); break\n  except OSError: time.sleep(0.1)"
        self.assertEqual(self.run_in("work", "python3", "-c", fetch), "200\n")

    def test_detached_command_and_attach(self):
        number = self.session("exec", "work", "--detach", "--", "sh", "-c", "echo early; cat /tmp/go 2>/dev/null; until [ -e /tmp/go ]; do sleep 0.05; done; echo late; exit 9").stdout.decode().strip()
        self.assertEqual(self.state("work"), "running")
        process = self.popen("session", "attach", "work", number, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"early\n")
        self.run_in("work", "touch", "/tmp/go")
        rest, _ = process.communicate(timeout=30)
        self.assertEqual((rest, process.returncode), (b"late\n", 9))
        self.assertEqual(self.session("log", "work", number).stdout, b"early\nlate\n")

    def test_much_output_is_kept_in_part(self):
        script = "import sys\nfor i in range(400000): print(f'line {i:08}')"
        done = self.session("exec", "work", "--", "python3", "-c", script)
        self.assertEqual(len(done.stdout), 400000 * 14)
        kept = self.session("log", "work", "1")
        self.assertIn(b"line 00000000\n", kept.stdout)
        self.assertTrue(kept.stdout.endswith(b"line 00399999\n"))
        self.assertLess(len(kept.stdout), 3 << 20)
        self.assertIn(b"not kept", kept.stderr)

    def test_slow_reader_slows_only_its_command(self):
        slow = self.popen("session", "exec", "work", "--", "sh", "-c", "head -c 5000000 /dev/zero", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(slow.wait)
        self.assertEqual(self.run_in("work", "echo", "quick"), "quick\n")
        self.assertIsNone(slow.poll())
        data, _ = slow.communicate(timeout=30)
        self.assertEqual(len(data), 5000000)

    def test_killed_client_ends_its_command(self):
        client = self.popen("session", "exec", "work", "--", "sh", "-c", "echo up; exec sleep 1000", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.assertEqual(client.stdout.readline(), b"up\n")
        client.kill()
        client.wait()
        client.stdout.close()
        wait_until(lambda: self.state("work") == "idle" or self.state("work"), 10, "command ends")

    def test_signals_reach_the_command(self):
        client = self.popen("session", "exec", "work", "--", "sh", "-c", "trap 'echo caught; exit 4' TERM; echo up; while :; do sleep 0.05; done",
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # fmt: skip
        self.assertEqual(client.stdout.readline(), b"up\n")
        wait_until(lambda: bool(processes(marker="session")) or "no client", 5, "client")
        for pid, command in processes(marker="exec\0work").items():
            if command.startswith(str(self.binary).encode()):
                os.kill(pid, signal.SIGTERM)
        self.assertEqual(client.communicate(timeout=20)[0], b"caught\n")
        self.assertEqual(client.returncode, 4)

    def test_copies_with_hostile_names(self):
        source = self.directory({"plain": "p", "sub/deep": "d"})
        (source / "link").symlink_to("/etc/passwd")
        self.session("cp", source, "work:/workspace/in")
        self.assertEqual(self.run_in("work", "sh", "-c", "cat in/plain in/sub/deep; readlink in/link"), "pd/etc/passwd\n")
        make = "import os\nos.makedirs('/workspace/out')\nfor n in [b'-rf', b'a\\nb', b'\\x1b[31m', b'\\xff\\xfe', b'x' * 255]: open(b'/workspace/out/' + n, 'w').write('y')\nos.symlink('/etc', '/workspace/out/way'); os.mkfifo('/workspace/out/pipe')"
        self.run_in("work", "python3", "-c", make)
        target = self.directory()
        done = self.session("cp", "work:out", f"{target}/out")
        names = sorted(os.listdir(os.fsencode(target / "out")))
        self.assertEqual(names, sorted([b"-rf", b"a\nb", b"\x1b[31m", b"\xff\xfe", b"x" * 255, b"way"]))
        self.assertIn(b"pipe", done.stderr)
        self.assertEqual(os.readlink(target / "out/way"), "/etc")
        self.assertEqual({event["type"] for event in self.events("work")} & {"file_in", "file_out"}, {"file_in", "file_out"})

    def test_copy_out_follows_no_planted_link(self):
        target = self.directory({"kept": "host\n"})
        (target / "dir").mkdir()
        self.give(target / "dir")
        (target / "dir/f").symlink_to(target / "kept")
        self.run_in("work", "sh", "-c", "mkdir dir; echo inside > dir/f")
        self.session("cp", "work:dir", target)
        self.assertEqual((target / "kept").read_text(), "host\n")
        self.assertFalse((target / "dir/f").is_symlink())

    def test_network_denial_is_shown(self):
        self.run_in("work", "python3", "-c", "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError: pass")
        kinds = [event["type"] for event in self.events("work")]
        self.assertTrue({"network_denied", "violation"} & set(kinds), kinds)

    def test_output_limit(self):
        self.session("stop", "work")
        self.open(None, "--name", "small", "--output-limit", "100K")
        code = self.caisson("session", "exec", "small", "--", "sh", "-c", "yes").returncode
        self.assertNotEqual(code, 0)
        classes = [event["violation"]["class"] for event in self.events("small") if event["type"] == "violation"]
        self.assertIn("OutputLimitViolation", classes)
        self.assertEqual(self.run_in("small", "echo", "on"), "on\n")

    def test_disk_limit(self):
        self.session("stop", "work")
        self.open(self.directory(), "--name", "full", "--disk", "4M")
        script = "import time\nfor i in range(1000):\n  open(f'/workspace/{i}', 'wb').write(b'x' * 1000000); time.sleep(0.05)"
        self.assertNotEqual(self.caisson("session", "exec", "full", "--", "python3", "-c", script).returncode, 0)
        reasons = [event["violation"]["reason"] for event in self.events("full") if event["type"] == "violation"]
        self.assertIn("scratch_limit", reasons)


@both_callers
class Terminals(Sessions):
    def setUp(self):
        super().setUp()
        self.project = self.directory({"a.txt": "one\n"})

    def terminal(self, *arguments):
        terminal = Terminal(self.command("session", *arguments), self.environment({"TERM": "xterm", "SHELL": "/bin/sh"}))
        self.addCleanup(terminal.close)
        return terminal

    def test_size_detach_and_attach(self):
        self.open(self.project, "--name", "tty")
        terminal = self.terminal("exec", "-t", "tty", "--", "sh")
        terminal.type(b"stty size; tty\n")
        terminal.read_until(rb"33 101")
        terminal.resize(50, 140)
        wait_until(lambda: self.resized(terminal), 10, "size")
        terminal.type(b"echo before-$((1+1))\n")
        terminal.read_until(rb"before-2")
        terminal.type(b"\x10\x11")
        self.assertEqual(terminal.wait(), 0)
        self.assertEqual(self.state("tty"), "running")
        again = self.terminal("attach", "tty")
        again.read_until(rb"before-2")
        watcher = self.terminal("attach", "tty")
        watcher.read_until(rb"another terminal has the input")
        again.type(b"echo seen-$((2+2)); exit 6\n")
        watcher.read_until(rb"seen-4")
        self.assertEqual(again.wait(), 6)
        self.assertEqual(watcher.wait(), 6)

    @staticmethod
    def resized(terminal):
        terminal.text = b""
        terminal.type(b"stty size\n")
        terminal.read_until(rb"\d+ \d+\r")
        return b"50 140" in terminal.text or terminal.text

    def test_open_asks_at_the_end(self):
        for answer, expected, state in ((b"a\n", "two\n", "applied"), (b"k\n", "one\n", "stopped"), (b"d\n", "one\n", "discarded")):
            with self.subTest(answer=answer):
                (self.project / "a.txt").write_text("one\n")
                terminal = self.terminal("open", str(self.project), "--name", f"ask-{state}")
                terminal.type(b"echo two > a.txt; exit 3\n")
                terminal.read_until(rb"a.txt[\s\S]*\[a/k/d\] ", 30)
                terminal.type(answer)
                self.assertEqual(terminal.wait(), 3)
                self.assertEqual((self.project / "a.txt").read_text(), expected)
                self.assertEqual(self.state(f"ask-{state}"), state)

    def test_interrupt_key(self):
        self.open(self.project, "--name", "keys")
        terminal = self.terminal("exec", "-t", "keys", "--", "python3", "-uc",
                                 "import time\ntry:\n  print('ready'); time.sleep(60)\nexcept KeyboardInterrupt:\n  raise SystemExit(7)")  # fmt: skip
        terminal.read_until(rb"ready")
        terminal.type(b"\x03")
        self.assertEqual(terminal.wait(), 7)

    def test_attach_removes_hostile_sequences(self):
        self.open(self.project, "--name", "evil")
        number = self.session("exec", "evil", "--detach", "--", "sh", "-c", r"printf '\033]52;c;aGk=\007shown\033[6n'; sleep 1000").stdout.decode().strip()
        terminal = self.terminal("attach", "evil", number)
        terminal.read_until(rb"shown")
        terminal.type(b"\x10\x11")
        terminal.wait()
        self.assertNotIn(b"]52;", terminal.text)
        self.assertNotIn(b"\x1b[6n", terminal.text)
        self.assertIn(b"\\u001b]52", (self.place / "sessions" / self.show("evil")["id"] / "transcript.cast").read_bytes())

    def test_replay(self):
        self.open(self.project, "--name", "film")
        self.run_in("film", "echo", "picture")
        self.session("stop", "film")
        self.assertIn(b"picture", self.session("replay", "film", "--speed", "0").stdout)


@both_callers
class Endings(Sessions):
    def test_idle_and_ttl(self):
        project = self.directory()
        self.open(project, "--name", "idle", "--idle", "300ms")
        wait_until(lambda: self.state("idle") == "stopped" or self.state("idle"), 10, "idle end")
        self.assertEqual(self.show("idle")["reason"], "idle")
        self.open(project, "--name", "ttl", "--ttl", "1s")
        done = self.caisson("session", "exec", "ttl", "--", "sleep", "1000")
        self.assertNotEqual(done.returncode, 0)
        wait_until(lambda: self.state("ttl") == "stopped" or self.state("ttl"), 10, "ttl end")
        self.assertEqual(self.show("ttl")["reason"], "ttl")
        self.assertEqual(self.events("ttl")[-1]["type"], "session_stopped")

    def test_killed_supervisor(self):
        project = self.directory({"a.txt": "one\n"})
        for moment in ("idle", "running", "held"):
            with self.subTest(moment=moment):
                self.open(project, "--name", moment)
                self.run_in(moment, "sh", "-c", f"echo {moment} > a.txt")
                client = None
                if moment != "idle":
                    client = self.popen("session", "exec", moment, "--", "sh", "-c", "echo up; exec sleep 1000", stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
                    self.assertEqual(client.stdout.readline(), b"up\n")
                pid = self.supervisor(moment)
                if moment == "held":
                    os.kill(pid, signal.SIGSTOP)
                os.kill(pid, signal.SIGKILL)
                if client is not None:
                    self.assertEqual(client.wait(timeout=20), 125)
                    client.stdout.close()
                self.before.assert_none(20)
                self.assertEqual(self.state(moment), "lost")
                self.session("exec", moment, "--", "true", code=125)
                self.assertIn("a.txt", self.session("diff", moment, "--stat").stdout.decode())
                self.assertEqual(self.events(moment)[0]["type"], "session_opened")
        self.session("apply", "running")
        self.assertEqual((project / "a.txt").read_text(), "running\n")
        self.assertEqual(self.state("running"), "applied")

    def test_terminated_supervisor_stops(self):
        self.open(self.directory(), "--name", "term")
        os.kill(self.supervisor("term"), signal.SIGTERM)
        wait_until(lambda: self.state("term") == "stopped" or self.state("term"), 10, "stop")
        self.before.assert_none(20)

    def test_another_user_is_refused(self):
        if not STARTED_BY_ROOT:
            skip("root", "needs two users")
        document = self.open(self.directory(), "--name", "mine")
        other = 65533 if self.AS_USER else ORDINARY_ID
        socket = self.place / "sessions" / document["id"] / "control.sock"
        for path in (self.place, *self.place.parents, self.place / "sessions", socket.parent):
            if str(path).startswith(str(self.home)) or path == self.home:
                os.chmod(path, os.stat(path).st_mode | 0o055)
                self.addCleanup(os.chmod, path, os.stat(path).st_mode & ~0o055)
        os.chmod(socket, 0o666)
        script = f"import socket\ns = socket.socket(socket.AF_UNIX); s.connect({str(socket)!r})\ns.settimeout(5)\nprint(s.recv(1))"
        done = subprocess.run(["setpriv", f"--reuid={other}", f"--regid={other}", "--clear-groups", "/usr/bin/python3", "-c", script], capture_output=True, check=False)
        self.assertEqual(done.stdout, b"b''\n", done.stderr)
        self.assertEqual(self.run_in("mine", "echo", "alive"), "alive\n")

    def test_state_directory_is_private(self):
        document = self.open(self.directory())
        directory = self.place / "sessions" / document["id"]
        self.assertEqual(stat.S_IMODE(directory.stat().st_mode), 0o700)
        for name in ("session.json", "events.jsonl", "transcript.cast", "request.json", "control.sock"):
            self.assertEqual((directory / name).stat().st_mode & 0o077, 0, name)


if __name__ == "__main__":
    unittest.main()

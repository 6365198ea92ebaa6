"""The rows that attack a person through a session: group K. A hostile program works in the session; what it leaves is
looked at, replayed and applied with the command line, as a person would. Each row first shows that its attack works on
somebody who does the same without the wall.

Some walls are races or crashes that only a test inside the program can time: those rows name tests of session_test.
Without a row: writes during a diff (the session is paused, which the tests of live runs show). Questions to an approver have
theirs in asking_rows_test.py.
"""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import tty
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import ORDINARY_ID, REPOSITORY, STARTED_BY_ROOT, need_tool, skip
from mutations import SESSION_MUTATIONS

MUTANT = REPOSITORY / "build/release/src/caisson-mutable"
BINARY = os.environ.get("CAISSON_BIN", str(REPOSITORY / "build/release/src/caisson"))
UNIT_TESTS = os.environ.get("CAISSON_SESSION_TEST", str(REPOSITORY / "build/dev/tests/session_test"))

# What a terminal obeys and nobody wants: clipboard, link, title, font, report, string sequences, in both spellings.
HOSTILE_OUTPUT = (
    b"\x1b]52;c;cm0gLXJmIH4K\x07", b"\x1b]8;;http://evil.example/\x1b\\", b"\x1b]0;title\x07\x1b[21t", b"\x1bP$qm\x1b\\",
    b"\x1b_Gi=1;AAAA\x1b\\", b"\x1b^pm\x1b\\", b"\x1bXsos\x1b\\", b"\x1b[6n", b"\x1b[c", b"\x1b[>q", b"\x05", b"\x1b]50;fixed\x07",
    b"\xc2\x9d52;c;eA==\xc2\x9c", b"\xc2\x9b6n", b"\x9b6n",
)  # fmt: skip
OBEYED = re.compile(rb"\x1b[\]P_^Xk]|\x1b\[[0-9;?>=]*[nctq]|\x05|\xc2[\x80-\x9f]|[^\xc2-\xf4\x80-\xbf][\x80-\x9f]")


class SessionRow(unittest.TestCase):
    """A project and a session on it."""

    def setUp(self):
        listed = subprocess.run([BINARY, "session", "list", "--json"], capture_output=True, timeout=60)
        if listed.returncode != 0:
            skip("session", f"{BINARY} has no sessions here: {listed.stderr.decode(errors='replace').strip()}")
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-session-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.project = self.root / "project"
        self.project.mkdir()
        self.canary = self.root / "canary"
        self.canary.mkdir()
        (self.canary / "passwd").write_text("the host's\n")
        self.environment = os.environ | {"CAISSON_SESSIONS": str(self.root / "sessions"), "HOME": str(self.root)}

    def caisson(self, *arguments, code=0, **more):
        run = subprocess.run(
            [BINARY, *map(str, arguments)], env=self.environment, capture_output=True, timeout=120, stdin=subprocess.DEVNULL, **more
        )
        if code is not None:
            self.assertEqual(run.returncode, code, (arguments, run.stdout[-2000:], run.stderr[-2000:]))
        return run

    def open(self):
        opened = json.loads(self.caisson("session", "open", self.project, "--detach", "--json").stdout)
        self.addCleanup(self.caisson, "session", "rm", opened["id"], code=None)
        self.addCleanup(self.caisson, "session", "stop", opened["id"], code=None)
        self.directory = self.root / "sessions" / opened["id"]
        return opened["id"]

    def inside(self, session, script, code=0):
        return self.caisson("session", "exec", session, "--", "/bin/sh", "-c", script, code=code)

    def apply(self, session, *flags, code=0):
        run = self.caisson("session", "apply", session, "--json", *flags, code=code)
        return json.loads(run.stdout)

    def upper(self):
        """What the session changed, as the host has it."""
        for name in ("layer/upper", "copy"):
            if (self.directory / name).is_dir():
                return self.directory / name
        self.fail(f"{self.directory} has no changes")

    def apply_by_hand(self):
        """What a person without the command would do: copy what the session left over a copy of the project."""
        target = self.root / "by_hand"
        shutil.copytree(self.project, target, symlinks=True)
        for folder, folders, files in os.walk(self.upper()):
            below = pathlib.Path(folder).relative_to(self.upper())
            for name in folders:
                (target / below / name).mkdir(exist_ok=True)
            for name in files:
                source = pathlib.Path(folder) / name
                if source.is_file():
                    with contextlib.suppress(OSError):
                        shutil.copyfile(source, target / below / name)
                        shutil.copymode(source, target / below / name)
        return target

    def on_terminal(self, *arguments, until):
        """What the program writes to a terminal, up to a text; and its messages."""
        ours, theirs = pty.openpty()
        tty.setraw(theirs)
        with tempfile.TemporaryFile() as errors:
            client = subprocess.Popen(
                [BINARY, "session", *map(str, arguments)], env=self.environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=errors
            )
            os.close(theirs)
            output = b""
            deadline = time.monotonic() + 60
            while until not in output and time.monotonic() < deadline:
                if not select.select([ours], [], [], 1)[0]:
                    continue
                try:
                    output += os.read(ours, 1 << 16)
                except OSError:  # it has ended
                    break
            client.kill()
            client.wait()
            os.close(ours)
            errors.seek(0)
            return output, errors.read()

    def unit_tests(self, *names):
        """Tests of session_test, which time what cannot be timed from outside."""
        if not os.access(UNIT_TESTS, os.X_OK):
            skip("session", f"{UNIT_TESTS} is not built")
        chosen = ":".join(f"ApplyTest.{name}" for name in names)
        run = subprocess.run([UNIT_TESTS, f"--gtest_filter={chosen}"], capture_output=True, text=True, timeout=300)
        self.assertEqual(run.returncode, 0, run.stdout[-4000:])
        self.assertEqual(run.stdout.count("[       OK ]"), len(names), run.stdout[-4000:])


class K01Links(SessionRow):
    """Case 46: a link that leaves the project, and a file below what was a link."""

    def test_no_write_goes_through_a_link(self):
        (self.project / "out").symlink_to(self.canary)
        session = self.open()
        self.inside(session, f"rm out && mkdir out && echo evil > out/passwd && ln -s {self.canary} leaving")
        by_hand = self.apply_by_hand()
        self.assertEqual((self.canary / "passwd").read_text(), "evil\n", f"the control: {by_hand}")
        (self.canary / "passwd").write_text("the host's\n")
        report = self.apply(session)
        self.assertEqual((self.canary / "passwd").read_text(), "the host's\n")
        self.assertIn("leaving", [refused["path"] for refused in report["refused"]])
        self.assertFalse((self.project / "leaving").is_symlink())

    def test_races_with_the_host(self):
        """Case 47."""
        self.unit_tests("AParentReplacedByALinkIsNotFollowed", "NothingIsWrittenThroughAPlantedLink")


class K02Drift(SessionRow):
    """Cases 48 to 51: the host changed meanwhile. Exit code 5, and not one byte of the host is lost."""

    def drift(self, before, inside, meanwhile, lost):
        """`lost` is what the host must keep, and what copying by hand destroys."""
        before()
        session = self.open()
        self.inside(session, inside)
        meanwhile()
        kept = lost(self.project)
        self.assertNotEqual(lost(self.apply_by_hand()), kept, "the control")
        snapshot = sorted((str(path), path.is_file() and path.read_bytes()) for path in self.project.rglob("*"))
        report = self.apply(session, code=5)
        self.assertFalse(report["applied"])
        self.assertTrue(report["conflicts"])
        after = sorted((str(path), path.is_file() and path.read_bytes()) for path in self.project.rglob("*"))
        self.assertEqual(after, snapshot, "something was changed")

    def test_an_edited_file(self):
        file = self.project / "a"
        self.drift(
            lambda: file.write_text("1\n"),
            "echo session > a; echo new > b",
            lambda: file.write_text("the host's\n"),
            lambda tree: (tree / "a").read_text(),
        )

    def test_a_new_directory_that_the_host_made_too(self):
        def meanwhile():
            (self.project / "d").mkdir()
            (self.project / "d/f").write_text("the host's\n")

        self.drift(lambda: None, "mkdir d; echo session > d/f", meanwhile, lambda tree: (tree / "d/f").read_text())

    def test_races_with_the_host(self):
        self.unit_tests(
            "AHostEditBetweenJudgementAndSwapIsAConflict", "AFileThatTheHostAddedToADeletedDirectorySurvives"
        )


class K03Kinds(SessionRow):
    """Cases 52 and 53: set-user-id programs, pipes and sockets."""

    def test_are_refused_and_do_not_block(self):
        session = self.open()
        self.inside(
            session,
            "cp /bin/true suid; chmod 4755 suid || chmod 755 suid; mkfifo pipe;"
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")' || true; echo fine > fine",
        )
        self.assertTrue(stat.S_ISFIFO((self.upper() / "pipe").stat().st_mode), "the control: the pipe is there")
        if (self.upper() / "suid").stat().st_mode & stat.S_ISUID:
            self.assertTrue((self.apply_by_hand() / "suid").stat().st_mode & stat.S_ISUID, "the control")
        report = self.apply(session)
        refused = {entry["path"] for entry in report["refused"]}
        self.assertIn("pipe", refused)
        self.assertEqual((self.project / "fine").read_text(), "fine\n")
        for path in self.project.rglob("*"):
            info = path.lstat()
            self.assertTrue(stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode), path)
            self.assertFalse(info.st_mode & (stat.S_ISUID | stat.S_ISGID), path)


class K04Names(SessionRow):
    """Case 54: names that a terminal or a command would obey."""

    NAMES = [b"line\nbreak", b"esc\x1b]0;owned\x07", b"\xe2\x80\xaertl", b"bad\xff\xfe", b"-rf", b"x" * 255]

    def test_are_quoted_and_applied_exactly(self):
        session = self.open()
        for name in self.NAMES:
            quoted = b"'" + name + b"'"
            self.caisson("session", "exec", session, "--", "/bin/sh", "-c", os.fsdecode(b"echo x > ./" + quoted))
        self.assertIn(b"\x1b]0;owned\x07", b"\n".join(os.listdir(bytes(self.upper()))), "the control: a listing is obeyed")
        for flags in ([], ["--stat"], ["--json"]):
            shown = self.caisson("session", "diff", session, *flags)
            for output in (shown.stdout, shown.stderr):
                self.assertNotIn(b"\x1b", output)
                self.assertNotIn(b"\xe2\x80\xae", output) if flags != ["--json"] else None
        self.caisson("session", "apply", session)
        self.assertEqual(sorted(os.listdir(bytes(self.project))), sorted(self.NAMES))


class K05Git(SessionRow):
    """Case 56: a repository whose settings run programs of the host's git."""

    def test_nothing_of_it_runs_on_the_host(self):
        need_tool("git", "git")
        proof = self.root / "ran"
        session = self.open()
        self.inside(
            session,
            "git init -q . && git config user.email a@b && git config user.name a && echo 1 > f && git add f && git commit -qm 1;"
            f"printf '#!/bin/sh\\necho ran >> {proof}\\n' > evil.sh; chmod +x evil.sh;"
            "git config core.fsmonitor \"$PWD/evil.sh\"; git config diff.external \"$PWD/evil.sh\";"
            "git config filter.x.clean \"$PWD/evil.sh\"; echo '* filter=x' > .gitattributes;"
            "cp evil.sh .git/hooks/pre-commit; cp evil.sh .git/hooks/post-checkout; echo 2 > f",
        )
        # The control: the same repository on the host, where its owner looks at it with git.
        repository = self.root / "looked_at"
        shutil.copytree(self.upper(), repository, symlinks=True)
        config = repository / ".git/config"
        config.write_text(config.read_text().replace("/workspace", str(repository)))
        subprocess.run(["git", "-C", repository, "status"], env=self.environment, capture_output=True, timeout=60)
        self.assertTrue(proof.exists(), "the control: git ran the program")
        proof.unlink()
        config = self.upper() / ".git/config"
        config.write_text(config.read_text().replace("/workspace", str(self.upper())))
        for arguments in (["diff"], ["diff", "--stat"], ["diff", "--json"], ["show"], ["list"], ["apply"]):
            self.caisson("session", arguments[0], *([session] if arguments[0] != "list" else []), *arguments[1:])
        self.assertFalse(proof.exists(), "a program of the session ran on the host")
        self.assertEqual((self.project / "f").read_text(), "2\n")
        self.assertFalse((self.project / ".git").exists())


class K06Overlay(SessionRow):
    """Case 55: marks of the overlay that the workload forges."""

    def test_forged_marks_delete_nothing(self):
        (self.project / "d").mkdir()
        (self.project / "d/old").write_text("the host's\n")
        session = self.open()
        made = self.inside(
            session,
            "python3 -c 'import os; os.setxattr(\"d\", \"user.overlay.opaque\", b\"y\"); open(\"d/new\", \"w\").write(\"x\")'",
            code=None,
        )
        if made.returncode != 0:
            self.inside(session, "printf x > d/new")
        else:
            marks = os.listxattr(self.upper() / "d")
            self.assertTrue(any(mark.startswith("user.overlay") for mark in marks), "the control: a mark is there")
        self.apply(session)
        self.assertEqual((self.project / "d/old").read_text(), "the host's\n")
        self.assertEqual((self.project / "d/new").read_text(), "x")


class K07Sizes(SessionRow):
    """Case 57: a file of a terabyte that takes no room, and a deep tree."""

    def test_the_diff_is_bounded(self):
        session = self.open()
        self.inside(session, "truncate -s 1T huge 2>/dev/null || truncate -s 1G huge", code=None)
        self.inside(
            session,
            "python3 -c 'import os\nfor i in range(3000):\n os.mkdir(\"d\"); os.chdir(\"d\")' 2>/dev/null || mkdir -p d/d/d/d",
            code=None,
        )
        self.assertGreaterEqual((self.upper() / "huge").stat().st_size, 1 << 30, "the control: larger than could be read in time")
        run = self.caisson("session", "diff", session, "--stat", code=None)  # within caisson()'s time-out
        self.assertLess(len(run.stdout) + len(run.stderr), 1 << 24)
        self.caisson("session", "list")


class K08Crashes(SessionRow):
    """Cases 59 and 60: killed or out of space in the middle of an apply."""

    def test_all_or_nothing(self):
        self.unit_tests("KilledBeforeAnyStepItIsAllOrNothing", "ARecoveryThatIsKilledCanBeRepeated", "AFullDiskLeavesTheProjectAsItWas")


class K09Terminal(SessionRow):
    """Cases 61 and 62: output that a terminal obeys, on replay and attach. The stored file keeps it."""

    def played(self, session, number):
        return {
            "replay": self.on_terminal("replay", session, "--speed", "1000", until=b"END")[0],
            "attach": self.on_terminal("attach", session, number, until=b"END")[0],
            "log": self.on_terminal("log", session, number, until=b"END")[0],
        }

    def printed(self, data):
        session = self.open()
        (self.project / "print.py").write_text(f"import sys\nsys.stdout.buffer.write({data!r})\n")
        started = json.loads(
            self.caisson("session", "exec", session, "--detach", "--json", "--", "/bin/sh", "-c", "python3 print.py; exec sleep 600").stdout
        )
        self.wait_for(session, b"END")
        return session, started["command"]

    def wait_for(self, session, text):
        for _ in range(600):
            if text in self.caisson("session", "log", session, "1", code=None).stdout:
                return
            subprocess.run(["sleep", "0.1"], check=True)
        self.fail(f"{text} was not printed")

    def test_hostile_sequences_are_inert(self):
        data = b"BEGIN" + b"|".join(HOSTILE_OUTPUT) + b"END\n"
        self.assertTrue(OBEYED.search(data), "the control: printed as it is, a terminal obeys it")
        session, number = self.printed(data)
        kept = (self.directory / "transcript.cast").read_bytes()
        self.assertIn(b"\\u001b]52;c;cm0gLXJmIH4K", kept)
        for how, output in self.played(session, number).items():
            self.assertIn(b"BEGIN", output, how)
            self.assertIn(b"END", output, how)
            self.assertIsNone(OBEYED.search(output), (how, output))

    def test_an_unterminated_sequence_hides_nothing(self):
        session, number = self.printed(b"BEGIN\x1b]52;c;" + b"A" * 1000 + b"\nLATER\x1b_\x1b[31mEND\n")
        for how, output in self.played(session, number).items():
            self.assertIn(b"LATER", output, how)
            self.assertIn(b"END", output, how)


class K10Record(SessionRow):
    """Case 64: the record is edited or cut."""

    def test_verification_names_the_line(self):
        session = self.open()
        for _ in range(3):
            self.inside(session, "seq 1 100")
        self.caisson("session", "stop", session)
        events, cast = self.directory / "events.jsonl", self.directory / "transcript.cast"
        head = json.loads(events.read_text().splitlines()[-1])
        verify = lambda code: json.loads(
            self.caisson("audit", "verify", events, "--json", "--head", f"{head['seq']}:{head['hash']}", code=code).stdout
        )
        self.assertTrue(verify(0)["transcript"]["intact"], "the control: intact as it was written")
        whole = events.read_text()
        lines = whole.splitlines(keepends=True)
        events.write_text("".join(lines[:1] + [lines[1].replace('"seq"', '"s-q"', 1)] + lines[2:]))
        self.assertEqual(verify(1)["fault"]["line"], 2)
        events.write_text("".join(lines[:2] + lines[3:]))
        self.assertEqual(verify(1)["fault"]["line"], 3)
        events.write_text("".join(lines[:-1]))
        self.assertEqual(verify(1)["fault"], verify(1)["fault"] | {"line": len(lines), "cause": "truncated"})
        events.write_text(whole)
        text = cast.read_bytes()
        parts = text.splitlines(keepends=True)
        edited = next(i for i, line in enumerate(parts) if b'"o"' in line)
        cast.write_bytes(b"".join(parts[:edited] + [parts[edited].replace(b"1", b"2", 1)] + parts[edited + 1 :]))
        self.assertIn(verify(1)["transcript"]["fault"]["line"], (edited + 1,))
        cast.write_bytes(b"".join(parts[:-2]))
        self.assertEqual(verify(1)["transcript"]["fault"]["line"], len(parts) - 1)


class K11Clients(SessionRow):
    """Case 65: another user at the session's socket."""

    def test_only_the_owner(self):
        if not STARTED_BY_ROOT:
            skip("root", "another user's process needs root")
        session = self.open()
        path = str(self.directory / "control.sock")
        connect = (
            "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(20)\ns.connect(sys.argv[1])\n"
            "body = b'{\"request\":\"status\"}'\n"
            "s.sendall(len(body).to_bytes(4, 'little') + (0).to_bytes(4, 'little') + body)\nsys.stdout.buffer.write(s.recv(65536))\n"
        )
        run = lambda **who: subprocess.run([sys.executable, "-c", connect, path], capture_output=True, timeout=60, **who)
        for folder in (self.root, self.root / "sessions", self.directory):
            folder.chmod(0o755)  # a careless owner
        os.chmod(path, 0o666)
        self.assertIn(session.encode(), run().stdout, "the control: the owner is answered")
        self.assertEqual(run(user=ORDINARY_ID, group=ORDINARY_ID, extra_groups=[]).stdout, b"")


class K12Gap(SessionRow):
    """Case 66: ten megabytes while nobody watches."""

    def test_runs_on_and_states_the_gap(self):
        session = self.open()
        self.caisson(
            "session", "exec", session, "--detach", "--", "/bin/sh", "-c", "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo LAST; exec sleep 600"
        )
        output, messages = self.on_terminal("attach", session, 1, until=b"LAST")
        self.assertIn(b"LAST", output)
        self.assertLess(len(output), 10_000_000)
        output, messages = self.on_terminal("attach", session, 1, until=b"LAST")  # nobody watched what this one missed
        self.assertIn(b"LAST", output)
        self.assertLess(len(output), 2 << 20)
        self.assertIn(b"not kept", messages)


class K19Writers(SessionRow):
    """Case 65: two terminals that both would type."""

    def test_one_types(self):
        session = self.open()
        terminals = []
        for arguments in (["exec", session, "-t", "--", "cat"], ["attach", session]):
            ours, theirs = pty.openpty()
            terminals.append(ours)
            self.addCleanup(os.close, ours)
            client = subprocess.Popen([BINARY, "session", *arguments], env=self.environment, stdin=theirs, stdout=theirs, stderr=theirs)
            os.close(theirs)
            self.addCleanup(client.wait)
            self.addCleanup(client.kill)
            os.write(ours, b"from %d\r" % len(terminals))
            shown, deadline = b"", time.monotonic() + 20
            expected = b"from 1\r\nfrom 1" if len(terminals) == 1 else b"only watches"
            while expected not in shown and time.monotonic() < deadline:
                if select.select([ours], [], [], 1)[0]:
                    shown += os.read(ours, 1 << 16)
            self.assertIn(expected, shown, "the control: the first one types" if len(terminals) == 1 else "")
        os.write(terminals[1], b"from the second\r")
        os.write(terminals[0], b"again\r")
        shown, deadline = b"", time.monotonic() + 20
        while shown.count(b"again") < 2 and time.monotonic() < deadline:
            if select.select([terminals[0]], [], [], 1)[0]:
                shown += os.read(terminals[0], 1 << 16)
        self.assertEqual((shown.count(b"again"), shown.count(b"from the second")), (2, 0))


class Mutations(unittest.TestCase):
    """Without the wall, the rows named for it must fail."""

    def test_every_wall_is_missed(self):
        if not os.access(MUTANT, os.X_OK):
            skip("mutation", f"{MUTANT} is not built; ./dev test builds it")
        files = [pathlib.Path(__file__), pathlib.Path(__file__).with_name("asking_rows_test.py")]
        for mutation in SESSION_MUTATIONS:
            for row in mutation.rows:
                file, name = next((file, found[0]) for file in files if (found := re.findall(rf"(?m)^class ({row}\w+)", file.read_text())))
                environment = os.environ | {"CAISSON_BIN": str(MUTANT), "CAISSON_MUTATE": mutation.wall}
                run = subprocess.run(
                    [sys.executable, "-B", file, name], env=environment, capture_output=True, text=True, timeout=900
                )
                with self.subTest(mutation.wall, row=row):
                    self.assertIn("FAILED (", run.stderr, f"{row} does not notice that {mutation.wall} is gone")
                    self.assertNotIn("the control", run.stderr)


if __name__ == "__main__":
    unittest.main()

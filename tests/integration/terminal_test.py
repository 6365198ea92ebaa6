"""caisson run -t: a real terminal, with its size, its signals and its line discipline."""

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import secrets
import select
import signal
import struct
import sys
import termios
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import Leftovers, both_callers


class Terminal:
    """A program on a terminal of ours: what a person would see and type."""

    def __init__(self, command, environment, rows=33, columns=101):
        self.text = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                # The size must be there before the program looks.
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                os.execvpe(command[0], command, environment)
            finally:
                os._exit(99)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, data):
        os.write(self.fd, data)

    def read_until(self, pattern, seconds=10):
        """Everything on the screen so far, once it matches."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"no {pattern!r} within {seconds} s; the screen shows {self.text!r}")
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # EIO: the other end is closed
                data = b""
            if not data:
                raise AssertionError(f"ended without {pattern!r}; the screen shows {self.text!r}")
            self.text += data
        return self.text

    def wait(self, seconds=10):
        """The exit code. Keeps reading: a program may be waiting for its output to be taken."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = None
                self.read_rest()
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.01)[0]:
                try:
                    self.text += os.read(self.fd, 65536)
                except OSError:
                    pass
        raise AssertionError(f"still running after {seconds} s; the screen shows {self.text!r}")

    def read_rest(self):
        """What it wrote last is still in the terminal when it is gone; the end shows as an error."""
        with contextlib.suppress(OSError):
            while chunk := os.read(self.fd, 65536):
                self.text += chunk

    def close(self):
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@both_callers
class OnATerminal:
    def setUp(self):
        self.before = Leftovers(self.binary)

    def open(self, *command, flags=()):
        terminal = Terminal(self.command("run", "-t", *flags, "--", *command), self.environment({"TERM": "xterm"}))
        self.addCleanup(terminal.close)
        return terminal

    def test_it_is_a_terminal(self):
        terminal = self.open(
            "python3",
            "-c",
            "import os, sys; print([os.isatty(n) for n in range(3)], os.ttyname(0), os.tcgetpgrp(0) == os.getpgrp());"
            "open('/dev/tty', 'w').write('to the terminal\\n'); sys.exit(5)",
        )
        self.assertEqual(terminal.wait(), 5)
        self.assertIn(b"[True, True, True] /dev/pts/0 True", terminal.text)
        self.assertIn(b"to the terminal", terminal.text)

    def test_without_it_there_is_none(self):
        done = self.caisson(
            "run",
            "--",
            "python3",
            "-c",
            "import errno, os\nprint([os.isatty(n) for n in range(3)])\n"
            "try: os.open('/dev/tty', os.O_RDWR)\nexcept OSError as error: print(errno.errorcode[error.errno])",
        )
        self.assertEqual(done.stdout, b"[False, False, False]\nENXIO\n")

    def test_size_and_its_changes(self):
        terminal = self.open(
            "python3",
            "-uc",
            # Not pause: Python can miss a signal that comes just before it, and run no handler until the next.
            "import os, signal, time\nsignal.signal(signal.SIGWINCH, lambda *_: print('changed', *os.get_terminal_size()))\n"
            "print('size', *os.get_terminal_size())\nwhile True: time.sleep(0.05)",
        )
        terminal.read_until(rb"size 101 33")
        terminal.resize(50, 140)
        terminal.read_until(rb"changed 140 50")
        terminal.resize(24, 80)
        terminal.read_until(rb"changed 80 24")

    def test_interrupt_key(self):
        terminal = self.open(
            "python3",
            "-uc",
            "import time\ntry:\n  print('ready'); time.sleep(60)\nexcept KeyboardInterrupt:\n  print('interrupted');"
            " raise SystemExit(7)",
        )
        terminal.read_until(rb"ready")
        terminal.type(b"\x03")
        terminal.read_until(rb"interrupted")
        self.assertEqual(terminal.wait(), 7)
        self.before.assert_none()

    def test_shell_with_jobs(self):
        word = secrets.token_hex(4).encode()
        terminal = self.open("bash", "--norc", "-i")
        terminal.read_until(rb"[$#] ")
        # Nothing is typed ahead: what arrives while bash changes the terminal's mode is lost on any terminal.
        # Written at one go: the job may be stopped in the middle of a print. Short sleeps: a signal that comes just before
        # Python goes to sleep again is noticed when that sleep ends.
        job = (
            "import os, signal, time; signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'job ' + b'on')); "
            "os.write(1, b'job ' + b'up'); any(time.sleep(0.1) for _ in iter(int, 1))"
        )
        terminal.type(f'python3 -c "{job}"\n'.encode())
        terminal.read_until(rb"job up")
        terminal.type(b"\x1a")  # stops the job, not us
        terminal.read_until(rb"Stopped(?s:.*)[$#] ")
        terminal.type(b"echo $((40 + 2))-" + word + b"\n")
        terminal.read_until(b"42-" + word + rb"(?s:.*)[$#] ")
        terminal.type(b"fg\n")
        terminal.read_until(rb"job on")
        terminal.type(b"\x03")
        terminal.read_until(rb"KeyboardInterrupt(?s:.*)[$#] ")
        terminal.type(b"exit 4\n")
        self.assertEqual(terminal.wait(), 4)

    def test_end_of_input_and_echo(self):
        terminal = self.open("cat")
        terminal.type(b"line\n")
        terminal.read_until(rb"line\r\nline\r\n")
        terminal.type(b"\x04")
        self.assertEqual(terminal.wait(), 0)
        self.before.assert_none()

    def test_our_terminal_is_as_before(self):
        """Whatever the workload does, the caller's terminal is restored to its earlier mode."""
        for script, code in (("stty raw -echo; exit 3", 3), ("kill -9 $$", 137), ("sleep 60", 124)):
            with self.subTest(script=script):
                terminal = Terminal(
                    [
                        "sh",
                        "-c",
                        'stty -a | md5sum; "$@"; echo "code $?"; stty -a | md5sum; echo end',
                        "sh",
                        *self.command("run", "-t", "--timeout", "700ms", "--", "sh", "-c", script),
                    ],
                    self.environment({"TERM": "xterm"}),
                )
                self.addCleanup(terminal.close)
                screen = terminal.read_until(rb"end\r\n")
                self.assertIn(f"code {code}".encode(), screen)
                self.assertEqual(len(set(re.findall(rb"[0-9a-f]{32}", screen))), 1, screen)

    def test_typing_into_the_terminal_is_refused(self):
        terminal = self.open(
            "python3",
            "-c",
            "import fcntl, sys, termios\nfor c in b'id\\n':\n  try: fcntl.ioctl(0, termios.TIOCSTI, bytes([c]))\n"
            "  except OSError as e: print('refused', e.errno)",
        )
        terminal.wait()
        self.assertIn(b"refused 1", terminal.text)
        self.assertIn(b"SyscallViolation", terminal.text)


if __name__ == "__main__":
    unittest.main()

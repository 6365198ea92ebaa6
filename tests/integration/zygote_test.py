"""Python forked from a warm interpreter: it behaves as an executed interpreter, shares nothing with its siblings, and
its changes are never visible to the next.
"""

import hashlib
import json
import os
import pathlib
import re
import secrets
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import check, skip, wait_until
from launched_case import LaunchedCase, three_ways
from launcher import find_launcher

# What a program can tell of itself, one each: the same text has to come out of both kinds of start.
PROGRAMS = {
    "names": "print(__name__, __file__, __spec__, __doc__, __package__, type(__loader__).__name__, sorted(globals()))",
    "arguments": "import sys; print(sys.argv, sys.orig_argv, sys.path, sys.executable, sys.flags, sys.prefix)",
    "environment": "import os; print(sorted(os.environ.items()), os.getcwd(), os.umask(0))",
    "exit number": "import sys; sys.exit(7)",
    "exit large number": "import sys; sys.exit(256 + 9)",
    "exit text": "import sys; sys.exit('a reason')",
    "exit none": "import sys; print('x', end=''); sys.exit()",
    "exit in a function": "def f():\n    raise SystemExit(4)\nf()",
    "hard exit": "import os; print('lost', end=''); os._exit(6)",
    "exception": "def f(x):\n    return 1 / x\nprint('before')\nf(0)",
    "chained exception": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e",
    "syntax error": "print('never')\nx = = 1\n",
    "indentation error": "if True:\nprint(1)\n",
    "nul byte": "print(1)\0\n",
    "exception hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1/0",
    "interrupted": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(10)",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nimport time; time.sleep(10)",
    "signals": "import signal; print([(s.name, signal.getsignal(s)) for s in signal.Signals"
    " if not callable(signal.getsignal(s))], signal.getsignal(signal.SIGINT).__name__)",
    "signal mask": "print([l for l in open('/proc/self/status') if l.startswith('Sig') and 'SigQ' not in l])",
    "at exit": "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\nprint('main')",
    "at exit error": "import atexit\natexit.register(divmod, 1, 0)\nprint('main')",
    "finalizers": "class A:\n    def __del__(self): print('del', self.n)\na = A(); a.n = 1\nb = A(); b.n = 2; b.b = b",
    "threads at the end": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('main')",
    "main thread": "import threading; t = threading.current_thread()\n"
    "print(t.name, t is threading.main_thread(), threading.active_count(), t.native_id == threading.get_native_id())",
    "warnings": "import warnings\nwarnings.warn('old', DeprecationWarning)\nwarnings.warn('odd')\nprint(warnings.filters)",
    "resource warning": "import warnings\nwarnings.simplefilter('always')\nopen('/etc/hosts')\n",
    "cookie": b"# -*- coding: latin-1 -*-\nprint('\xe4', len('\xe4'))\n",
    "byte order mark": b"\xef\xbb\xbfprint('\xc3\xa4')\n",
    "bad encoding": b"print('\xff')\n",
    "streams": "import sys\nfor s in (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__):\n"
    "    print(s, s.line_buffering, s.errors, s.newlines, s.isatty(), s.fileno(), s.buffer.raw.name)",
    "encodings": "import sys, locale; print(sys.getfilesystemencoding(), locale.getpreferredencoding(),"
    " locale.setlocale(locale.LC_ALL), sys.getdefaultencoding())",
    "undecodable output": "print('\\udcff')",
    "order of streams": "import sys\nprint('a')\nprint('b', file=sys.stderr)\nsys.stdout.write('c')",
    "input": "import sys; print(repr(sys.stdin.read()))",
    "stack": "import traceback, inspect, sys\ndef f():\n    traceback.print_stack(); print(len(inspect.stack()))\nf()\n"
    "print(sys._getframe().f_back)",
    "recursion": "import sys\ndef f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n        return n\n"
    "print(sys.getrecursionlimit(), f(0))",
    "main module": "import __main__, sys, pickle\nclass A: pass\nprint(__main__.A is A, sys.modules['__main__'] is __main__,"
    " pickle.loads(pickle.dumps(A())).__class__)",
    "import beside": "import beside; print(beside.__file__, beside.value)",
    "annotations": "x: int = 1\nprint(__annotations__)",
    "builtins": "import builtins; print(type(__builtins__), exit, quit, sorted(vars(builtins)))",
    "descriptors": "import os; print(sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')))",
    "identity": "import os; print(os.getuid(), os.getgid(), os.getgroups(), os.getppid(), os.getsid(0), os.getpgid(0))",
    "walls": "print([l for l in open('/proc/self/status') if l.split(':')[0] in "
    "('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp', 'Uid', 'Gid', 'Groups')])",
    "limits": "import resource; print([(n, resource.getrlimit(getattr(resource, n))) for n in dir(resource)"
    " if n.startswith('RLIMIT_') and n != 'RLIMIT_NPROC'])",
    "looks into itself": "open('/proc/self/mem', 'rb').close(); open('/proc/self/environ', 'rb').close(); print('may')",
    "looks into PID 1": "try:\n    open('/proc/1/mem', 'rb')\nexcept OSError as e:\n    print(e)",
    "subprocess": "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(6 * 7)'],"
    " capture_output=True, text=True).stdout)",
    "multiprocessing": "import multiprocessing\nif __name__ == '__main__':\n"
    "    for way in ('fork', 'spawn'):\n"
    "        with multiprocessing.get_context(way).Pool(2) as pool: print(pool.map(abs, [-1, -2]))",
    "asynchronous": "import asyncio\nasync def f(): await asyncio.sleep(0.01); return 3\nprint(asyncio.run(f()))",
    "name": "print(open('/proc/self/comm').read(), __import__('os').readlink('/proc/self/exe'))",
    "shown": "print(open('/proc/self/cmdline').read().rstrip('\\0').split('\\0'))",
    "clock": "import time; print(time.process_time() < 5, time.tzname)",
    "closed output": "import sys, os\nos.close(1)\nprint('x')",
    "full output": "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('x')",
}
COMMANDS = {
    "module": ["-m", "beside", "a", "b"],
    "package": ["-m", "package"],
    "missing module": ["-m", "no_such_module"],
    "unit tests": ["-m", "unittest", "-q", "test_it"],
    "text": ["-c", "import sys; print(sys.argv, sys.path, __name__, sys.flags)", "a"],
    "text that fails": ["-c", "1/0"],
    "isolated": ["-I", "-c", "import sys; print(sys.path, sys.flags, sys.dont_write_bytecode)"],
    "isolated file": ["-I", "main.py"],
    "bare": ["-I", "-S", "-B", "-c", "import sys; print(sys.path, sys.flags)\nprint(exit)"],
}
SUPPORT_FILES = {
    "beside.py": "import sys\nvalue = 42\nif __name__ == '__main__': print(sys.argv, sys.path, __file__, __spec__.name)\n",
    "package/__init__.py": "",
    "package/__main__.py": "import sys; print(__name__, __package__, sys.argv)\n",
    "test_it.py": "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertTrue(1)\n",
}
FACTS = ("status", "exit_code", "failure_class", "terminal_event", "stdout", "stderr", "violations")


class ZygoteCase:
    FLAGS = ("--park", 4, "--python", "json,re,unittest")

    @classmethod
    def setUpClass(cls):
        if not find_launcher().with_name("caisson_zygote.so").exists():
            skip("zygote", "this build has no caisson_zygote.so: an interpreter cannot load what is instrumented")
        super().setUpClass()

    def forked(self, **request):
        """The result of a run that began in a fork of the interpreter."""

        def attempt():
            self.result = self.verify(**request)
            return self.result["isolation"]["start"] == "zygote"

        wait_until(attempt, 30, "a run from the zygote")
        return self.result

    def forked_text(self, text, **request):
        return self.forked(text=text, checks=[check("python3", "main.py")], **request)

    def executed(self, **request):
        self.through_launcher = False
        try:
            return self.verify(**request)
        finally:
            self.through_launcher = True

    def zygote(self):
        """The process number of the interpreter that is forked from."""
        for pid in self.launcher.supervisors():
            if pathlib.Path(f"/proc/{pid}/comm").read_text() == "python3\n":
                return pid
        return None


@three_ways
class Behaviour(ZygoteCase):
    def compare(self, name, files, command, **more):
        request = {"files": files, "checks": [check("python3", *command, **more)]}
        forked, executed = self.forked(**request), self.executed(**request)
        for result in (forked, executed):
            result["stderr"] = re.sub(r"(Ran 1 test) in \S+", r"\1", result["stderr"])
            for violation in result["violations"]:
                violation.pop("time_ms", None)
        self.assertEqual({key: forked[key] for key in FACTS}, {key: executed[key] for key in FACTS}, name)

    def test_files(self):
        for name, text in PROGRAMS.items():
            with self.subTest(program=name):
                if isinstance(text, bytes):
                    files = SUPPORT_FILES | {"main.py": {"base64": __import__("base64").b64encode(text).decode()}}
                else:
                    files = SUPPORT_FILES | {"main.py": text}
                self.compare(name, files, ["main.py", "argument", "-x"], stdin="some input\n")

    def test_without_input(self):
        for name in ("input", "streams"):
            with self.subTest(program=name):
                self.compare(name, {"main.py": PROGRAMS[name]}, ["main.py"])

    def test_other_commands(self):
        for name, command in COMMANDS.items():
            with self.subTest(command=name):
                self.compare(name, SUPPORT_FILES | {"main.py": "import sys; print(sys.path, sys.argv)"}, command)

    def test_what_it_cannot_take_up_is_executed(self):
        for command in (["-X", "utf8", "main.py"], ["-u", "main.py"], ["package"], ["nowhere.py"], ["--version"]):
            with self.subTest(command=command):
                self.compare("other", SUPPORT_FILES | {"main.py": "import sys; print(sys.flags)"}, command)
        variable = {"PYTHONHASHSEED": "5"}
        request = {
            "files": {"main.py": "import sys; print(hash('a'), sys.flags.hash_randomization)"},
            "checks": [check("python3", "main.py", env=variable)],
        }
        self.assertEqual(self.forked(**request)["stdout"], self.executed(**request)["stdout"])


@three_ways
class Siblings(ZygoteCase):
    def test_nothing_random_is_shared(self):
        text = "import random, uuid, secrets, tempfile\nprint(random.random(), uuid.uuid4(), secrets.token_hex(), tempfile.mktemp())"
        first, second = (self.forked_text(text)["stdout"].split() for _ in range(2))
        for one, other in zip(first, second):
            self.assertNotEqual(one, other)

    def test_what_one_does_to_itself_the_next_does_not_see(self):
        attack = (
            "import builtins, sys, os, json, re, ctypes, signal, resource\n"
            "builtins.print_was = print\nbuiltins.len = lambda x: 42\njson.dumps = None\nsys.path[:] = ['/nowhere']\n"
            "sys.modules['re'] = None\nos.environ['MARK'] = 'x'\nos.umask(0)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "for pid in (1, -1, os.getppid()):\n"
            "    for s in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):\n"
            "        try: os.kill(pid, s) if pid != -1 else None\n"
            "        except OSError: pass\n"
            "kept = []\n"
            "try:\n"
            "    while True: kept.append(os.open('/dev/null', os.O_RDONLY))\n"
            "except OSError: pass\n"
            "for fd in kept: os.close(fd)\n"
            "def scribble():\n"
            "    memory = os.open('/proc/self/mem', os.O_RDWR)\n"
            "    for line in open('/proc/self/maps').read().splitlines():\n"
            "        where, rights = line.split()[:2]\n"
            "        if 'w' not in rights or 'stack' in line: continue\n"
            "        start, end = (int(n, 16) for n in where.split('-'))\n"
            "        try: os.pwrite(memory, b'\\xcc' * (end - start), start)\n"
            "        except OSError: pass\n"
            "sys.stdout.write('attacking\\n'); sys.stdout.flush()\n"
            "scribble()\n"
        )
        healthy = (
            "import builtins, sys, os, json, re, signal\n"
            "print(hasattr(builtins, 'print_was'), len('abc'), json.dumps([1]), bool(re.match('a', 'a')),"
            " '/nowhere' in sys.path, os.environ.get('MARK'), signal.getsignal(signal.SIGTERM), oct(os.umask(0o22)))"
        )
        before = self.forked_text(healthy)
        self.assert_passes(before)
        for _ in range(3):
            self.assertIn("attacking", self.forked_text(attack)["stdout"])
            after = self.forked_text(healthy)
            self.assert_passes(after)
            self.assertEqual(after["stdout"], before["stdout"])

    def test_its_memory_tells_nothing_of_the_host(self):
        """The place of the project on the host is known to those who mount it; the workload is forked from one of them."""
        token = "zq" + secrets.token_hex(16)
        project = self.directory({f"{token}/main.py": SEARCH, f"{token}/other": "x"}) / token
        digest = hashlib.sha256(token.encode()).hexdigest()
        self.assertRegex(self.forked_in(project, digest), r"^searched [1-9]\d* KiB, found nothing\n$")
        # The search is one that finds: what is there is seen.
        self.assertIn("found it", self.forked_in(project, digest, token))

    def forked_in(self, project, *arguments):
        """What main.py prints, forked, with the directory mounted."""
        result = self.directory() / "result.json"

        def attempt():
            done = self.caisson("run", "--workspace", project, "--result", result, "--", "python3", "main.py", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.output = done.stdout.decode()
            return json.loads(result.read_bytes())["isolation"]["start"] == "zygote"

        wait_until(attempt, 30, "a run from the zygote")
        return self.output


# Looks for a word by its digest, so as not to have it in its own memory.
SEARCH = r"""
import hashlib, os, re, sys
memory = os.open("/proc/self/mem", os.O_RDONLY)
size = 0
for line in open("/proc/self/maps"):
    where, rights = line.split()[:2]
    start, end = (int(n, 16) for n in where.split("-"))
    if "r" not in rights or "[v" in line:
        continue
    try:
        data = os.pread(memory, end - start, start)
    except OSError:
        continue
    size += len(data)
    for word in re.findall(rb"zq[0-9a-f]{32}", data):
        if hashlib.sha256(word).hexdigest() == sys.argv[1]:
            print("found it", line)
            sys.exit(0)
print(f"searched {size // 1024} KiB, found nothing")
"""


@three_ways
class Lifetime(ZygoteCase):
    def test_members_are_used_once(self):
        text = "import os; print(os.readlink('/proc/self/ns/pid'), os.readlink('/proc/self/ns/mnt'))"
        seen = [self.forked_text(text)["stdout"] for _ in range(5)]
        self.assertEqual(len(set(seen)), 5, seen)

    def test_an_interpreter_that_dies_is_replaced(self):
        self.forked_text("print(1)")
        wait_until(lambda: self.zygote() is not None, 10, "an interpreter")
        victim = self.zygote()
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: f"the interpreter {victim} ended" in self.launcher.log.read_text(), 10, "it is noticed")
        wait_until(lambda: self.zygote() not in (None, victim), 20, "there is another")
        for _ in range(6):  # those forked from the first one, and then from the other
            self.assert_passes(self.forked_text("print(1)"))
        self.launcher.end()
        self.assert_nothing_left()

    def test_nothing_is_left_of_a_killed_launcher(self):
        self.forked_text("print(1)")
        self.launcher.kill()
        self.assert_nothing_left()

    def test_a_profile_can_demand_less(self):
        for start in ("cold", "parked"):
            profile = self.directory(
                {"own.yaml": f"version: 1\nname: own\nextends: balanced\ndescription: test\nstart: {start}\n"}
            )
            request = {"source": {"files": {"main.py": "print(1)"}}, "profile": "own"}
            document = self.directory({"request.json": json.dumps(request)}) / "request.json"

            def as_demanded(start=start, document=document, profile=profile):
                result = self.verify_path(document, "--profiles", profile)
                self.assert_passes(result)
                self.assertNotEqual(result["isolation"]["start"], "zygote")
                return result["isolation"]["start"] == start

            wait_until(as_demanded, 30, f"a start that is {start}")


if __name__ == "__main__":
    unittest.main()

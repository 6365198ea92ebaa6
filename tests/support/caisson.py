"""Helpers of the integration tests: start the program as root or as an ordinary user, and look at what it leaves.

Nothing here knows how the program works inside. CAISSON_BIN names the program under test. CAISSON_TEST_RUNTIME names
the runtime that every run and verification uses instead of native. CAISSON_MUST_RUN lists the kinds of tests that may
not be skipped: root, user, node, java, gcc, git, pytest, jsonschema, bash, escape, wheels, npm, oci, gvisor, docker, microvm,
kubernetes, egress_clients.
"""

import atexit
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import microvm  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SCHEMAS = REPOSITORY / "schemas"
TEST_DIRECTORIES = ("/tmp/caisson-test-", "/tmp/caisson-vm-", "/tmp/caisson-postgres-", "/tmp/caisson-tour-")  # the tests' own
ORDINARY_ID = 65534  # nobody: exists everywhere and owns nothing
STARTED_BY_ROOT = os.geteuid() == 0
RUNTIME = os.environ.get("CAISSON_TEST_RUNTIME", "native")
ROOTLESS = os.environ.get("CAISSON_TEST_ENGINE") == "rootless"  # the ordinary user's own engine
RUNTIME_FLAGS = () if RUNTIME == "native" else ("--runtime", RUNTIME)
EXIT_CODES = {"pass": 0, "fail": 1, "cancelled": 1, "rejected": 3, "error": 4}
VIOLATIONS = {
    "TimeoutViolation": "timeout",
    "MemoryLimitViolation": "memory_limit",
    "ProcessLimitViolation": "process_limit",
    "OutputLimitViolation": "output_limit",
    "NetworkAccessViolation": "network_denied",
    "FilesystemWriteViolation": "write_denied",
    "SyscallViolation": "syscall_denied",
}


def skip(kind, reason):
    """Skips the running test, or fails it when CAISSON_MUST_RUN says that this kind must run."""
    if kind in os.environ.get("CAISSON_MUST_RUN", "").split(","):
        raise AssertionError(f"{kind} tests must run here, but: {reason}")
    raise unittest.SkipTest(f"*** NOT TESTED ({kind}): {reason} ***")


def need_tool(kind, *programs):
    """Skips unless every program is where the sandbox, too, finds it."""
    for program in programs:
        if not os.access(f"/usr/bin/{program}", os.X_OK):
            skip(kind, f"/usr/bin/{program} is not installed")


try:
    from jsonschema import Draft202012Validator, RefResolver
except ImportError:
    Draft202012Validator = None


def validate(document, schema_name):
    if Draft202012Validator is None:
        skip("jsonschema", "python3-jsonschema is not installed")
    # They refer to one another by name; nothing is fetched.
    published = {schema["$id"]: schema for schema in (json.loads(path.read_text()) for path in SCHEMAS.glob("*.json"))}
    schema = json.loads((SCHEMAS / schema_name).read_text())
    validator = Draft202012Validator(schema, resolver=RefResolver.from_schema(schema, store=published))
    errors = [
        f"{'/'.join(map(str, error.path))}: {error.message}"
        for error in validator.iter_errors(document)
    ]
    if errors:
        raise AssertionError(f"not valid by {schema_name}: " + "; ".join(errors))


def find_binary():
    named = os.environ.get("CAISSON_BIN")
    for path in [named] if named else [REPOSITORY / "build/release/src/caisson", REPOSITORY / "build/dev/src/caisson"]:
        if os.access(path, os.X_OK):
            return pathlib.Path(path).resolve()
    raise SystemExit("caisson is not built; build it or set CAISSON_BIN")


class Workbench:
    """One directory for a test process: a copy of the program that every user may run, and a directory for each caller.

    The copy also makes this run's processes recognisable: no other run on the machine executes that file.
    """

    def __init__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-", dir="/tmp"))
        atexit.register(shutil.rmtree, self.root, ignore_errors=True)
        self.root.chmod(0o755)
        self.binary = self.root / "caisson"
        self.intake = self.root / "caisson-intake"  # unpacks archives; the program looks for it beside itself
        egress = self.root / "caisson-egress"  # relays for sandboxes with a network; likewise
        agent = self.root / "caisson-agent"  # the witness inside containers; likewise
        ask = self.root / "caisson-ask"  # what programs in sessions ask with; likewise
        # A stock kernel's guest has the program alone.
        for source, copy in ((find_binary(), self.binary), (find_binary().with_name("caisson-intake"), self.intake),
                             (find_binary().with_name("caisson-egress"), egress),
                             (find_binary().with_name("caisson-agent"), agent),
                             (find_binary().with_name("caisson-ask"), ask)):  # fmt: skip
            if copy != self.binary and not source.exists():
                continue
            shutil.copyfile(source, copy)
            copy.chmod(0o755)

    def home(self, as_user):
        home = self.root / ("user" if as_user else "caller")
        if not home.exists():
            home.mkdir(mode=0o700)
            if as_user and STARTED_BY_ROOT:
                os.chown(home, ORDINARY_ID, ORDINARY_ID)
        return home


_workbench = None


def workbench():
    global _workbench
    if _workbench is None:
        _workbench = Workbench()
    return _workbench


def wait_until(condition, seconds, what):
    """Waits for a condition to become true; what it still returns at the deadline is the failure's text."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value is True:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: still {value!r} after {seconds} s")
        time.sleep(0.01)


def processes(marker=None, executable=None):
    """Processes of the whole machine with `marker` in their command line, or that execute the file `executable`."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command = pathlib.Path("/proc", entry, "cmdline").read_bytes()
            if marker is not None and marker.encode() in command:
                found[int(entry)] = command
            if executable is not None and os.readlink(f"/proc/{entry}/exe").startswith(str(executable)):
                found[int(entry)] = command or pathlib.Path("/proc", entry, "comm").read_bytes()
    return found


def cgroups():
    """Every caisson-* group of every hierarchy, but for those of suites that run beside this one (support/own_machine)."""
    found = set()
    for directory, children, _ in os.walk("/sys/fs/cgroup"):
        children[:] = [child for child in children if not child.startswith("own-machine-")]
        found.update(os.path.join(directory, child) for child in children if child.startswith("caisson-"))
    return found


def foreign_cgroup(path, executable):
    """True for a group whose processes belong to another run of the program on this machine."""
    with contextlib.suppress(OSError):
        for pid in pathlib.Path(path, "cgroup.procs").read_text().split():
            if int(pid) not in processes(executable=executable):
                return True
    return False


class Leftovers:
    """What the machine looked like before; `assert_none` waits until it looks so again."""

    def __init__(self, executable, marker=None):
        self.executable, self.marker = executable, marker
        self.groups, self.mounts, self.files = cgroups(), self._mounts(), self._files()

    @staticmethod
    def _mounts():
        return pathlib.Path("/proc/self/mountinfo").read_text()

    @staticmethod
    def _files():
        allowed = {"/run/caisson", "/run/caisson-oci", "/run/caisson-gvisor", "/run/caisson-container", "/run/caisson/slots", "/run/caisson/microvm-without-kvm",
                   f"/tmp/caisson-{ORDINARY_ID}", f"/tmp/caisson-container-{ORDINARY_ID}", f"/tmp/caisson-{os.geteuid()}"}  # fmt: skip
        found = set()
        for top in ("/tmp", "/run", "/run/caisson", "/dev/shm"):
            with contextlib.suppress(OSError):
                found.update(f"{top}/{name}" for name in os.listdir(top))
        # Of files in shared directories only those that carry our name can be told from other people's.
        return {path for path in found - allowed if "caisson" in path and not path.startswith(TEST_DIRECTORIES)}

    def remaining(self):
        left = []
        left += [f"process {pid} {command!r}" for pid, command in processes(self.marker, self.executable).items()]
        left += [f"cgroup {path}" for path in cgroups() - self.groups if not foreign_cgroup(path, self.executable)]
        left += ["the mount table differs"] if self._mounts() != self.mounts else []
        left += [f"file {path}" for path in self._files() - self.files]
        return left or True

    def assert_none(self, seconds=5):
        wait_until(self.remaining, seconds, "left behind")


class CallerCase(unittest.TestCase):
    """A test class that runs the program as one kind of caller; see both_callers."""

    AS_USER = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not cls.AS_USER and not STARTED_BY_ROOT:
            skip("root", f"{cls.__name__} needs the tests to be started by root")
        if RUNTIME != "native" and cls.AS_USER != ROOTLESS:
            raise unittest.SkipTest(f"the runtime {RUNTIME} is tested for {'an ordinary user' if ROOTLESS else 'root'} here")
        if RUNTIME == "oci" and not any(shutil.which(program) for program in ("runc", "crun")):
            skip("oci", "neither runc nor crun is installed")
        if RUNTIME == "microvm":
            microvm.skip_long(cls.__name__)
            microvm.prepare_or_skip(skip)
        if RUNTIME == "gvisor" and not shutil.which("runsc"):
            skip("gvisor", "runsc is not installed")
        if cls.AS_USER and STARTED_BY_ROOT and shutil.which("setpriv") is None:
            skip("user", f"{cls.__name__} needs setpriv (package util-linux)")
        cls.home = workbench().home(cls.AS_USER)
        cls.binary = workbench().binary
        cls.caller_id = ORDINARY_ID if cls.AS_USER and STARTED_BY_ROOT else os.geteuid()

    def inside_user_is_caller(self):
        """Not where root makes the sandbox, be it root's launcher."""
        return self.AS_USER and not (STARTED_BY_ROOT and "CAISSON_LAUNCHER" in os.environ)

    def give(self, path, mode=None):
        """Makes `path` the caller's own."""
        if self.AS_USER and STARTED_BY_ROOT:
            os.chown(path, ORDINARY_ID, ORDINARY_ID, follow_symlinks=False)
        if mode is not None:
            os.chmod(path, mode)
        return pathlib.Path(path)

    def directory(self, files=None):
        """A new directory of the caller's with these files (name -> text or bytes)."""
        top = self.give(tempfile.mkdtemp(dir=self.home))
        self.addCleanup(shutil.rmtree, top, ignore_errors=True)
        for name, content in (files or {}).items():
            path = top / name
            for parent in reversed(path.relative_to(top).parents[:-1]):
                (top / parent).mkdir(exist_ok=True)
                self.give(top / parent)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            self.give(path)
        return top

    def as_caller(self, *command):
        """The command line that runs a command as this class's caller."""
        command = [str(word) for word in command]
        if self.AS_USER and STARTED_BY_ROOT:
            return ["setpriv", f"--reuid={ORDINARY_ID}", f"--regid={ORDINARY_ID}", "--clear-groups", *command]
        return command

    def command(self, *arguments):
        return self.as_caller(self.binary, *arguments)

    def environment(self, extra=None):
        variables = {
            name: value for name, value in os.environ.items() if name not in ("XDG_RUNTIME_DIR", "CAISSON_BIN")
        }
        # A service that this machine happens to have is not what is tested.
        variables |= {"HOME": str(self.home), "TMPDIR": str(self.home), "CAISSON_URL": "none"}
        return variables | (extra or {})

    def popen(self, *arguments, env=None, **options):
        options.setdefault("cwd", self.home)
        return subprocess.Popen(self.command(*arguments), env=self.environment(env), **options)

    def caisson(self, *arguments, env=None, timeout=60, **options):
        """Runs the program to its end, whatever that is. Its streams are captured as bytes."""
        if "stdin" not in options and "input" not in options:
            options["stdin"] = subprocess.DEVNULL
        options.setdefault("cwd", self.home)
        return subprocess.run(
            self.command(*arguments),
            env=self.environment(env),
            timeout=timeout,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def read_result(self, text):
        result = json.loads(text)
        validate(result, "verification_result.schema.json")
        if result["failure_class"] in VIOLATIONS:
            self.assertEqual(result["terminal_event"], VIOLATIONS[result["failure_class"]])
            self.assertIn(result["failure_class"], [violation["class"] for violation in result["violations"]])
        return result

    def verify_path(self, path, *flags, timeout=120, env=None):
        done = self.caisson("verify", "--json", *RUNTIME_FLAGS, *flags, path, timeout=timeout, env=env)
        self.assertIn(done.returncode, (0, 1, 3, 4), done.stderr.decode(errors="replace"))
        result = self.read_result(done.stdout)
        self.assertEqual(done.returncode, EXIT_CODES[result["status"]], result)
        return result

    def verify(self, text=None, *, files=None, path=None, checks=None, limits=None, flags=(), timeout=120, **fields):
        """The result of a request for a Python program's text, for `files`, or for the directory `path`."""
        request = dict(fields)
        request["source"] = {"path": str(path)} if path else {"files": files or {"main.py": text}}
        if checks is not None:
            request["checks"] = checks
        if limits is not None:
            request["limits"] = limits
        document = self.directory({"request.json": json.dumps(request)}) / "request.json"
        return self.verify_path(document, *flags, timeout=timeout)

    def run_source(self, source, **options):
        """Like verify, but without the syntax check, to be quick."""
        return self.verify(source, checks=[check("python3", "main.py")], **options)

    def assert_passes(self, result):
        self.assertEqual((result["status"], result["violations"]), ("pass", []), self.story(result))

    def assert_fails_as(self, result, failure_class):
        self.assertEqual((result["status"], result["failure_class"]), ("fail", failure_class), self.story(result))

    @staticmethod
    def story(result):
        return json.dumps(
            {
                key: result.get(key)
                for key in ("status", "failure_class", "exit_code", "stdout", "stderr", "violations", "message")
            },
            indent=1,
        )[:6000]


class Running:
    """How a mixin for `both_callers` uses caisson run."""

    def run_inside(self, *command, flags=(), **options):
        return self.caisson("run", *RUNTIME_FLAGS, *flags, "--", *command, **options)

    def output_of(self, *command, flags=(), **options):
        done = self.run_inside(*command, flags=flags, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()


def check(*argv, name="run", tier="run", **fields):
    return {"name": name, "tier": tier, "argv": list(argv), **fields}


def both_callers(mixin):
    """Makes two test classes of a mixin: one runs the program as root, one as an ordinary user."""
    module = sys.modules[mixin.__module__]
    for suffix, as_user in (("AsRoot", False), ("AsUser", True)):
        name = mixin.__name__ + suffix
        setattr(module, name, type(name, (mixin, CallerCase), {"AS_USER": as_user, "__module__": mixin.__module__}))
    return mixin


def end(process):
    """Ends a process that a test has started and that may still run."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait(timeout=10)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()

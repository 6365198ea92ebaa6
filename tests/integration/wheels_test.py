"""Packages from PyPI and tools from npm behave inside as they do outside, without a violation.

tests/programs/wheels.py and tests/programs/npm_tools.py have the packages and a little use of each. Each program runs once
outside and once inside; exit code and output must be equal, and the result must have no violation. What differs on purpose
is in DIFFERENCES and in docs/user/compatibility.md.

A short list runs in every run, the whole with CAISSON_ALL_WHEELS=1; CAISSON_TORCH=1 takes PyTorch's wheel along. Packages are
installed once below build/programs and found there again. Without a registry the tests are skipped, loudly. PyTorch is also
tested as Debian packages it, which needs no libraries for graphics cards.
"""

import concurrent.futures
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "programs")]
import npm_tools
import wheels
from caisson import REPOSITORY, STARTED_BY_ROOT, CallerCase, check, need_tool, skip

INSTALLED = REPOSITORY / "build" / "programs"
CONSTRAINTS = TESTS / "programs" / "constraints.txt"
DOCUMENT = REPOSITORY / "docs" / "user" / "compatibility.md"
ALL = bool(os.environ.get("CAISSON_ALL_WHEELS"))
PYTHON = "/usr/bin/python3"

# Program → (what its output differs in: a pattern that is taken out of both, the document's words).
DIFFERENCES = {}


def install(kind, names, command):
    """The directory in which `command(directory)` has installed these packages, now or in an earlier run."""
    text = "\n".join(sorted(names)) + CONSTRAINTS.read_text()
    place = INSTALLED / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if place.exists():
        return place
    INSTALLED.mkdir(parents=True, exist_ok=True)
    unfinished = pathlib.Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=INSTALLED))
    try:
        done = subprocess.run(command(unfinished), cwd=unfinished, capture_output=True, text=True, timeout=3000, check=False)
        if done.returncode != 0:
            skip(kind, f"the packages cannot be installed: {done.stderr.strip()[-600:]}")
        unfinished.chmod(0o755)
        unfinished.rename(place)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return place


def install_wheels(names):
    return install(
        "wheels",
        names,
        lambda place: [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        + ["--root-user-action=ignore", "--only-binary=:all:", f"--target={place}", f"--constraint={CONSTRAINTS}", *names],
    )


def install_tools(packages):
    def command(place):
        (place / "package.json").write_text('{"private": true}')
        return ["/usr/bin/npm", "install", "--silent", "--no-audit", "--no-fund", "--no-progress", *packages]

    return install("npm", packages, command)


class Twice(CallerCase):
    """Runs one program outside and inside and compares."""

    AS_USER = not STARTED_BY_ROOT
    KIND = ""

    def outside(self, command, environment):
        """With a /tmp, a loopback and processes of its own, as inside, and otherwise as the caller has the machine."""
        # A checkout below /tmp is shown again in the new one.
        prepare = (
            'exec 9<"$0"; mount -t tmpfs tmpfs /tmp && ip link set lo up; '
            '[ -e "$0" ] || { mkdir -p "$0" && mount --no-canonicalize --bind /proc/self/fd/9 "$0"; }; '
            'exec 9<&-; mkdir -p /tmp/work && cd /tmp/work && exec "$@"'
        )
        return subprocess.run(
            ["unshare", "-mnpf", "--mount-proc", "--kill-child", *([] if STARTED_BY_ROOT else ["-Ur"]), "sh", "-c", prepare, str(REPOSITORY), *command],
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp/work", "LANG": "C.UTF-8"} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
            check=False,
        )

    def inside(self, command, mount, environment, flags=()):
        path = self.directory() / "result.json"
        done = self.caisson(
            *("run", "--result", path, "--memory", "2G", "--timeout", "300s", "-w", "/scratch", "-v", mount, *flags),
            *(word for name, value in environment.items() for word in ("-e", f"{name}={value}")),
            *("--", *command),
            timeout=600,
        )
        self.assertTrue(path.exists(), done.stderr.decode(errors="replace"))
        return done, self.read_result(path.read_text())

    def compare(self, name, outside, inside, result):
        self.assertEqual(outside.returncode, 0, f"{name} fails outside: {outside.stderr.decode(errors='replace')[-2000:]}")
        self.assertEqual((result["status"], result["violations"]), ("pass", []), self.story(result)[-4000:])
        pattern = DIFFERENCES[name][0] if name in DIFFERENCES else "(?!)"
        texts = [re.sub(pattern, "", done.stdout.decode(errors="replace")) for done in (outside, inside)]
        self.assertEqual(*texts)

    def run_all(self, names, run):
        """`run(name)` for each, two at a time, and what it returned compared one by one."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name, finished in [(name, pool.submit(run, name)) for name in names]:
                with self.subTest(name):
                    self.compare(name, *finished.result())


class Wheels(Twice):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True, check=False).returncode != 0:
            skip("wheels", "the package python3-pip is not installed")
        cls.programs = wheels.programs()
        cls.names = list(cls.programs) if ALL else wheels.SHORT
        needed = [*cls.names, *wheels.ALSO]
        if os.environ.get("CAISSON_TORCH"):
            cls.programs["torch"] = wheels.TORCH
            cls.names, needed = [*cls.names, "torch"], [*needed, "torch"]
        cls.place = install_wheels(needed)

    def python(self, name, flags=()):
        """Outside, inside, and the result."""
        variables = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1", "MPLBACKEND": "agg"}
        program = self.programs[name]
        outside = self.outside([PYTHON, "-c", program], variables | {"PYTHONPATH": str(self.place)})
        return outside, *self.inside_only(program, flags)

    def inside_only(self, program, flags=()):
        return self.inside([PYTHON, "-c", program], f"{self.place}:/wheels:ro", {"PYTHONPATH": "/wheels"}, flags)

    def test_enough_are_listed(self):
        self.assertGreaterEqual(len(wheels.programs()), 100)
        self.assertEqual(set(wheels.SHORT) - set(wheels.programs()), set())

    def test_each_does_inside_what_it_does_outside(self):
        self.run_all(self.names, self.python)

    def test_a_verification_with_numpy_passes_and_tells(self):
        """As a submitter has it: a request with a mount, and the notices in the result."""
        result = self.verify(
            self.programs["numpy"],
            checks=[check("python3", "main.py", env={"PYTHONPATH": "/wheels"})],
            mounts=[{"source": str(self.place), "target": "/wheels", "access": "ro"}],
        )
        self.assert_passes(result)
        notices = {notice["probe"]: notice for notice in result["notices"]}
        self.assertEqual(set(notices), {"syscall.numa"}, result["notices"])
        self.assertEqual(notices["syscall.numa"]["evidence"]["syscall"], "mbind")
        self.assertGreaterEqual(notices["syscall.numa"]["count"], 1)

    def test_a_write_beside_the_notices_still_fails(self):
        program = "import numpy, contextlib\nwith contextlib.suppress(OSError): open('/usr/bin/fresh', 'w')\n"
        _, result = self.inside_only(program)
        self.assert_fails_as(result, "FilesystemWriteViolation")
        self.assertEqual([violation["evidence"]["path"] for violation in result["violations"]], ["/usr/bin/fresh"])

    def test_differences_are_documented(self):
        for name, (_, words) in DIFFERENCES.items():
            self.assertIn(words, DOCUMENT.read_text(), name)


class DebianTorch(Twice):
    def test_torch_does_inside_what_it_does_outside(self):
        if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            skip("torch", "the package python3-torch is not installed")
        command = [PYTHON, "-c", wheels.TORCH]
        outside = self.outside(command, {})
        path = self.directory() / "result.json"
        inside = self.caisson("run", "--result", path, "--memory", "2G", "--timeout", "300s", "-w", "/scratch", "--", *command, timeout=600)
        self.compare("torch", outside, inside, self.read_result(path.read_text()))


class Tools(Twice):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        need_tool("npm", "node", "npm")
        cls.tools = npm_tools.tools()
        cls.names = list(cls.tools) if ALL else npm_tools.SHORT
        cls.place = install_tools(sorted({package for name in cls.names for package in cls.tools[name][0]}))

    def tool(self, name):
        def variables(modules):
            return {"NODE_PATH": modules, "PATH": f"{modules}/.bin:/usr/local/bin:/usr/bin:/bin"}

        command = ["sh", "-c", "mkdir work; cd work; exec sh -c \"$0\"", self.tools[name][1]]
        outside = self.outside(command, variables(f"{self.place}/node_modules"))
        mount = f"{self.place}/node_modules:/npm/node_modules:ro"
        return outside, *self.inside(command, mount, variables("/npm/node_modules"))

    def test_enough_are_listed(self):
        self.assertGreaterEqual(len(npm_tools.tools()), 30)
        self.assertEqual(set(npm_tools.SHORT) - set(npm_tools.tools()), set())

    def test_each_does_inside_what_it_does_outside(self):
        self.run_all(self.names, self.tool)


if __name__ == "__main__":
    unittest.main()

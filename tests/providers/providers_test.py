"""Suites that others wrote for sandbox providers, against sessions of a real caissond.

tests/providers/caisson_client.py is a client of the HTTP API; inspect_provider.py, deepagents_provider.py and
pydantic_provider.py make it a sandbox of Inspect, LangChain's deepagents and Pydantic AI. Each of these projects publishes the
tests that a provider must pass; tests/providers/suites has what they need to run here.

The packages of requirements.txt, with the versions of constraints.txt, are installed once, into an environment below the
user's cache directory. Without a registry the tests are skipped; CAISSON_MUST_RUN=providers turns that into a failure.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
import caisson_client  # noqa: E402
from support import caisson  # noqa: E402
from support.service import Service  # noqa: E402

REQUIREMENTS, CONSTRAINTS = HERE / "requirements.txt", HERE / "constraints.txt"
# Suite → (how many of its tests must pass, those that do not apply or must fail: what a session does not do on purpose).
SUITES = {
    "inspect": (43, {"test_exec_as_user"}),
    "deepagents": (86, set()),
    "pydantic": (37, {"test_native_realpath_keeps_the_working_dir_and_missing_names"}),
}


def environment():
    """The directory of the virtual environment, made now or in an earlier run."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "caisson-tests"
    text = REQUIREMENTS.read_text() + CONSTRAINTS.read_text() + sys.version
    place = cache / f"providers-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "providers.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / "installed").exists():
            return place
        shutil.rmtree(place, ignore_errors=True)
        for command in (
            ["/usr/bin/python3", "-m", "venv", place],
            [place / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--only-binary=:all:",
             "-r", REQUIREMENTS, "-c", CONSTRAINTS],
        ):  # fmt: skip
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1500, check=False)
            if done.returncode != 0:
                caisson.skip("providers", f"the packages cannot be installed: {(done.stderr or done.stdout).strip()[-600:]}")
        (place / "installed").touch()
    return place


class Providers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.environment = environment()
        cls.service = Service(session_file_bytes="128M")
        cls.service.start()
        cls.addClassCleanup(cls.service.__exit__)
        cls.url = f"unix:{cls.service.socket}"
        cls.addClassCleanup(cls.end_all)
        cls.results = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-providers-"))
        cls.addClassCleanup(shutil.rmtree, cls.results)
        # Side by side: most of their time is waiting for time limits.
        cls.running = {suite: cls.start(suite) for suite in SUITES}

    @classmethod
    def end_all(cls):
        for session in cls.service.request("GET", "/v1/sessions?limit=1000").json["sessions"]:
            cls.service.request("DELETE", f"/v1/sessions/{session['id']}")

    @classmethod
    def start(cls, suite):
        with open(cls.results / f"{suite}.log", "wb") as log:
            process = subprocess.Popen(
                [cls.environment / "bin/python3", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore",
                 "-o", "python_files=*_suite.py", "-o", f"asyncio_mode={'auto' if suite == 'deepagents' else 'strict'}",
                 f"--rootdir={HERE / 'suites'}", f"--junit-xml={cls.results / suite}.xml", str(HERE / "suites" / f"{suite}_suite.py")],
                env={**os.environ, "PYTHONPATH": str(HERE), "CAISSON_URL": cls.url, "HOME": str(cls.results)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cls.results)  # fmt: skip
        cls.addClassCleanup(process.kill)
        return process

    def passes(self, suite):
        self.running[suite].wait(300)
        log = (self.results / f"{suite}.log").read_text(errors="replace")
        path = self.results / f"{suite}.xml"
        self.assertTrue(path.exists(), log[-8000:])
        outcomes = {"passed": set(), "failure": set(), "error": set(), "skipped": set()}
        for case in xml.etree.ElementTree.parse(path).iter("testcase"):
            kinds = [kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None]
            outcomes[kinds[0] if kinds else "passed"].add(case.get("name").split("[")[0] if suite == "inspect" else case.get("name"))
        expected, refused = SUITES[suite]
        self.assertEqual(outcomes["failure"] | outcomes["error"], set(), log[-12000:])
        self.assertEqual(outcomes["skipped"], refused, log[-4000:])
        self.assertEqual(len(outcomes["passed"]), expected, log[-4000:])

    def test_inspect(self):
        self.passes("inspect")

    def test_deepagents(self):
        self.passes("deepagents")

    def test_pydantic_ai(self):
        self.passes("pydantic")

    def test_the_client_itself(self):
        client = caisson_client.Client(self.url)
        with client.open(files={"a/b.txt": "one"}) as session:
            self.assertEqual(session.read("a/b.txt"), b"one")
            session.write("run.sh", "#!/bin/sh\necho ran", 0o755)
            self.assertEqual(session.run(["./run.sh"]).text, "ran\n")
            with session.fork() as fork:
                self.assertEqual(fork.run("cat a/b.txt; ./run.sh").text, "oneran\n")
                fork.put_archive(session.get_archive("/workspace/a"), "/tmp/copy")
                self.assertEqual(fork.read("/tmp/copy/b.txt"), b"one")
            self.assertEqual({change["path"] for change in session.diff()["changes"]}, {"run.sh"})
        with self.assertRaises(caisson_client.SessionGone):
            session.run(["true"])
        with self.assertRaises(caisson_client.SessionGone):
            session.read("a/b.txt")


if __name__ == "__main__":
    unittest.main()

"""The runtime container from outside, with a Docker engine of its own: its report, its mounts, and what is left when its
owner is killed."""

import json
import os
import pathlib
import random
import secrets
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import CallerCase, Leftovers, end, processes, wait_until
from docker import Docker, RootlessDocker

DIRECTORY = pathlib.Path("/run/caisson-container")


class Container(CallerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.engine = cls.enterClassContext(Docker())

    def environment(self, extra=None):
        return super().environment(self.engine.environment | (extra or {}))

    def run_in_container(self, *arguments, **options):
        return self.caisson("run", "--runtime", "container", *arguments, **options)

    def remaining(self):
        """True when nothing of any run is left: in the engine, below /run and in the mount table."""
        left = [*self.engine.containers()]
        left += [str(path) for path in DIRECTORY.iterdir()] if DIRECTORY.exists() else []
        left += [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(DIRECTORY) in line]
        return left or True

    def test_the_report_comes_from_the_kernel(self):
        result = self.verify("open('/usr/planted', 'w')\n", flags=("--runtime", "container"))
        self.assert_fails_as(result, "FilesystemWriteViolation")
        self.assertEqual(result["violations"][0]["evidence"]["source"], "inside")
        isolation = result["isolation"]
        self.assertEqual((isolation["runtime"], isolation["cannot_observe"]), ("container", []))
        self.assertEqual(isolation["capabilities"], [])
        walls = {wall["wall"]: wall["state"] for wall in isolation["walls"]}
        self.assertEqual(
            {name for name, state in walls.items() if state != "enforced"},
            {"namespaces.user", "namespaces.time"},
            isolation["walls"],
        )
        for wall in ("namespaces.user", "namespaces.time"):
            self.assertTrue(any(line.startswith(wall) for line in isolation["degraded"]), isolation["degraded"])

    def test_no_user_of_the_host_is_inside(self):
        first, second = (self.run_in_container("--", "sh", "-c", "id -u; id -un").stdout.split() for _ in range(2))
        self.assertEqual((first[1], second[1]), (b"user", b"user"))
        self.assertNotEqual(first[0], second[0])
        self.assertGreater(int(first[0]), 1 << 30)

    def test_a_limit_is_known_outside(self):
        for kept_alive in ("", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'x = b\"x\" * (1 << 30)'])\n"):
            with self.subTest(child=bool(kept_alive)):
                result = self.verify(
                    kept_alive or "x = b'x' * (1 << 30)\n",
                    flags=("--runtime", "container"),
                    limits={"memory_bytes": 128 << 20},
                )
                self.assert_fails_as(result, "MemoryLimitViolation")
                (violation,) = [v for v in result["violations"] if v["class"] == "MemoryLimitViolation"]
                self.assertEqual(violation["evidence"]["source"], "outside")
                self.assertGreater(violation["evidence"]["oom_kill_after"], violation["evidence"]["oom_kill_before"])

    def test_trees_of_the_host(self):
        tree = self.directory({"file": "old\n"})
        script = "cat /data/file; echo new > /data/file && cat /data/file; true"
        for access, seen, kept in (("ro", "old\n", "old\n"), ("cow", "old\nnew\n", "old\n"), ("rw", "old\nnew\n", "new\n")):
            with self.subTest(access=access):
                (tree / "file").write_text("old\n")
                done = self.run_in_container("-v", f"{tree}:/data:{access}", "--", "sh", "-c", script)
                self.assertEqual(done.stdout.decode(), seen, done.stderr)
                self.assertEqual((tree / "file").read_text(), kept)
                self.assertEqual(list(tree.iterdir()), [tree / "file"])
        wait_until(self.remaining, 10, "left behind")

    def test_large_input_and_artifacts_travel_through_the_stream(self):
        blob = secrets.token_bytes(3 << 20)
        done = self.run_in_container("--", "sh", "-c", "cat > /scratch/x; cat /scratch/x", input=blob)
        self.assertEqual((done.returncode, done.stdout == blob), (0, True), done.stderr)

    def test_its_first_process_tells_nothing_and_no_file_of_the_image_is_writable(self):
        script = "tr '\\0' ' ' < /proc/1/cmdline; for p in / /etc /usr /.caisson /var /run; do touch $p/x 2>/dev/null && echo $p; done; true"
        done = self.run_in_container("--", "sh", "-c", script)
        self.assertEqual(done.stdout.decode().split(), [], done.stderr)

    def test_killed_it_leaves_nothing(self):
        tree = self.directory({"file": "kept\n"})
        for round_ in range(int(os.environ.get("CAISSON_KILL_ROUNDS", "8"))):
            with self.subTest(round=round_):
                marker = f"engine-{secrets.token_hex(8)}"
                process = self.popen(
                    "run", "--runtime", "container", "-v", f"{tree}:/data:rw", "--",
                    "sh", "-c", f"(setsid sh -c 'sleep 300' {marker} &) ; sleep 300", marker,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                self.addCleanup(end, process)
                if round_ == 0:
                    wait_until(lambda: len(processes(marker)) >= 3 or processes(marker), 30, "the workload runs")
                else:
                    time.sleep(random.uniform(0, 1.0))  # any moment of a start
                process.send_signal(signal.SIGKILL)
                process.wait(timeout=10)
                wait_until(lambda: not processes(marker) or processes(marker), 30, "processes left")
        self.assertEqual(self.run_in_container("--", "true").returncode, 0)
        wait_until(self.remaining, 30, "left behind")
        self.assertEqual((tree / "file").read_text(), "kept\n")

    def test_cancelled_it_leaves_nothing(self):
        leftovers = Leftovers(self.binary)
        for sent in (signal.SIGTERM, signal.SIGINT):
            process = self.popen("run", "--runtime", "container", "--", "sh", "-c", "trap '' TERM INT; echo up; sleep 300",
                                 stdout=subprocess.PIPE)  # fmt: skip
            self.addCleanup(end, process)
            self.assertEqual(process.stdout.readline(), b"up\n")
            process.send_signal(sent)
            process.send_signal(sent)
            process.wait(timeout=30)
        wait_until(self.remaining, 10, "left behind")
        leftovers.assert_none()

    def test_the_sweep_takes_only_what_has_no_owner(self):
        """What a killed run left together with its cleanup process, and a container whose owner lives."""
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
        started = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        self.assertEqual(self.run_in_container("--", "true").returncode, 0)  # loads the image
        _, images = self.engine.call("GET", "/images/json")
        owners = {
            "orphan": f"{boot}/{namespace}/{os.getpid()}/1",
            "owned": f"{boot}/{namespace}/{os.getpid()}/{started}",
            "unknown": f"{boot}/pid:[1]/{os.getpid()}/1",
            "nonsense": "x",
        }
        for name, owner in owners.items():
            status, answer = self.engine.call("POST", f"/containers/create?name={name}", {
                "Image": images[0]["Id"], "Cmd": ["/.caisson/agent"], "Labels": {"org.caisson.owner": owner},
            })  # fmt: skip
            self.assertEqual(status, 201, answer)
        status, answer = self.engine.call("POST", "/containers/create?name=foreign", {"Image": images[0]["Id"], "Cmd": ["x"]})
        self.assertEqual(status, 201, answer)
        stale = DIRECTORY / f"caisson-{os.getpid()}-1-0123456789abcdef"
        stale.mkdir()
        (stale / "0").write_text("left\n")
        self.assertEqual(self.run_in_container("--", "true").returncode, 0)
        self.assertEqual(set(self.engine.containers()), {"owned", "unknown", "nonsense", "foreign"})
        self.assertFalse(stale.exists())
        for name in self.engine.containers():
            self.engine.call("DELETE", f"/containers/{name}?force=1")

    def test_without_an_engine_the_message_names_the_socket_and_the_fix(self):
        done = self.run_in_container("--", "true", env={"DOCKER_HOST": "unix:///tmp/no-engine.sock"})
        self.assertEqual(done.returncode, 125)
        for part in (b"/tmp/no-engine.sock", b"fix: apt-get install docker.io", b"DOCKER_HOST=unix:///"):
            self.assertIn(part, done.stderr)
        done = self.run_in_container("--", "true", env={"DOCKER_HOST": "tcp://192.0.2.1:2375"})
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"tcp://192.0.2.1:2375", done.stderr)

    def test_doctor_tries_it(self):
        findings = json.loads(self.caisson("doctor", "--json").stdout)["findings"]
        (finding,) = [finding for finding in findings if finding["mechanism"] == "runtime.container"]
        self.assertEqual(finding["status"], "ok", finding)

    def test_dry_run_names_the_runtime(self):
        done = self.run_in_container("--dry-run", "--", "true")
        self.assertEqual(json.loads(done.stdout)["runtime"], "container")


class Rootless(CallerCase):
    """An ordinary user's own engine, which takes limits and enforces none."""

    AS_USER = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.engine = cls.enterClassContext(RootlessDocker())

    def environment(self, extra=None):
        return super().environment(self.engine.environment | (extra or {}))

    def test_limits_are_watched_and_the_report_says_so(self):
        result = self.verify(
            "x = b'x' * (1 << 30)\n", flags=("--runtime", "container"), limits={"memory_bytes": 128 << 20}
        )
        self.assert_fails_as(result, "MemoryLimitViolation")
        self.assertEqual(result["violations"][0]["evidence"]["source"], "inside")
        isolation = result["isolation"]
        self.assertEqual(isolation["cgroup"]["driver"], "none")
        walls = {wall["wall"]: wall["state"] for wall in isolation["walls"]}
        self.assertEqual((walls["limits.memory_bytes"], walls["limits.processes"], walls["limits.cpu"]),
                         ("watched", "watched", "absent"))  # fmt: skip
        for lost in ("cgroup:", "cpu:", "walls:", "workspace:", "namespaces.time:"):
            self.assertTrue(any(line.startswith(lost) for line in isolation["degraded"]), (lost, isolation["degraded"]))

    def test_a_profile_that_needs_a_cgroup_is_refused(self):
        profile = self.directory({"p.yaml": "version: 1\nname: p\nextends: balanced\nallow_degraded: []\n"}) / "p.yaml"
        done = self.caisson("run", "--runtime", "container", "--profile", profile, "--", "true")
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn(b"wall cgroup", done.stderr)
        self.assertIn(b"allow_degraded", done.stderr)
        self.assertEqual(self.engine.containers(), {})

    def test_trees_of_the_host_are_refused(self):
        done = self.caisson("run", "--runtime", "container", "-v", f"{self.directory({})}:/data:ro", "--", "true")
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn(b"only when root starts it", done.stderr)

    def test_killed_it_leaves_nothing(self):
        for _ in range(4):
            process = self.popen("run", "--runtime", "container", "--", "sleep", "300", stderr=subprocess.DEVNULL)
            self.addCleanup(end, process)
            time.sleep(random.uniform(0, 0.8))  # any moment of a start
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=10)
        self.assertEqual(self.caisson("run", "--runtime", "container", "--", "true").returncode, 0)
        wait_until(lambda: self.engine.containers() == {} or self.engine.containers(), 30, "containers left")


if __name__ == "__main__":
    unittest.main()

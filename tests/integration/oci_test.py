"""The runtime oci from outside: its report, its mounts, and what is left when its owner is killed."""

import json
import os
import pathlib
import secrets
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import CallerCase, end, processes, skip, wait_until

GROUPS = [path for path in pathlib.Path("/sys/fs/cgroup").glob("*") if path.is_dir()] + [pathlib.Path("/sys/fs/cgroup")]


def own_groups():
    """The cgroups of containers; another slot's number may belong to somebody else."""
    return {str(path) for group in GROUPS for path in group.glob("caisson-*.oci")}


class Oci(CallerCase):
    def setUp(self):
        if not any(os.access(f"/usr/{place}/runc", os.X_OK) for place in ("sbin", "bin", "local/sbin", "local/bin")):
            skip("oci", "runc is not installed")

    def run_oci(self, *arguments, **options):
        return self.caisson("run", "--runtime", "oci", *arguments, **options)

    def test_the_report_comes_from_the_kernel(self):
        result = self.verify("open('/usr/planted', 'w')\n", flags=("--runtime", "oci"))
        self.assert_fails_as(result, "FilesystemWriteViolation")
        self.assertEqual(result["violations"][0]["evidence"]["source"], "inside")
        isolation = result["isolation"]
        self.assertEqual((isolation["runtime"], isolation["cannot_observe"]), ("oci", []))
        self.assertEqual(isolation["capabilities"], [])
        walls = {wall["wall"]: wall["state"] for wall in isolation["walls"]}
        self.assertEqual(
            {name for name, state in walls.items() if state != "enforced"}, {"namespaces.time"}, isolation["walls"]
        )
        self.assertTrue(any(line.startswith("namespaces.time") for line in isolation["degraded"]))

    def test_a_limit_is_known_outside(self):
        result = self.verify(
            "x = b'x' * (1 << 30)\n", flags=("--runtime", "oci"), limits={"memory_bytes": 128 << 20}
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
                done = self.run_oci("-v", f"{tree}:/data:{access}", "--", "sh", "-c", script)
                self.assertEqual(done.stdout.decode(), seen, done.stderr)
                self.assertEqual((tree / "file").read_text(), kept)

    def test_an_ordinary_user_is_refused_before_anything_runs(self):
        self.__class__.AS_USER = True
        try:
            done = self.caisson("run", "--runtime", "oci", "--", "true", cwd="/")
        finally:
            self.__class__.AS_USER = False
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"needs root", done.stderr)

    def test_killed_it_leaves_nothing(self):
        for round_ in range(6):
            with self.subTest(round=round_):
                marker = f"oci-{secrets.token_hex(8)}"
                before = own_groups()
                process = self.popen(
                    "run", "--runtime", "oci", "--", "sh", "-c", f"(setsid sh -c 'sleep 300' {marker} &) ; sleep 300", marker,
                )  # fmt: skip
                self.addCleanup(end, process)
                if round_ % 2 == 0:
                    wait_until(lambda: len(processes(marker)) >= 3 or processes(marker), 30, "the workload runs")
                process.send_signal(signal.SIGKILL)
                process.wait(timeout=10)
                wait_until(lambda: processes(marker) or True, 15, "processes left")
                wait_until(lambda: own_groups() <= before or own_groups(), 15, "groups left")
        self.assertEqual(self.run_oci("--", "true").returncode, 0)
        directories = pathlib.Path("/run/caisson-oci")
        wait_until(lambda: not list(directories.iterdir()) or list(directories.iterdir()), 15, "directories left")

    def test_dry_run_names_the_runtime(self):
        done = self.run_oci("--dry-run", "--", "true")
        self.assertEqual(json.loads(done.stdout)["runtime"], "oci")


if __name__ == "__main__":
    unittest.main()

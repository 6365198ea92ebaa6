"""The program on a stock Debian kernel with pure cgroup v2: as root, as a user, with a delegated cgroup, and refused.

One boot for everything: probes.py tries all of it out inside and prints what happened; here that is judged. Takes about
two minutes, and one more the first time. Without QEMU the tests are skipped, unless CAISSON_MUST_RUN lists "vm".
"""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

PROBE_SECONDS = 600  # an idle machine needs a fifth of it
WHO = ("root", "user", "delegated")
RECORDS = {}

# Exit code, failure class, terminal event, reason of the violation.
VIOLATIONS = {
    "timeout": (124, "TimeoutViolation", "timeout", "command_timeout_ms"),
    "memory_bomb": (137, "MemoryLimitViolation", "memory_limit", "limit.mem"),
    "fork_bomb": (137, "ProcessLimitViolation", "process_limit", "limit.pids"),
    "output_bomb": (137, "OutputLimitViolation", "output_limit", "limit.output"),
    "write_workspace": (2, "FilesystemWriteViolation", "write_denied", "fs.write"),
    "dns": (1, "NetworkAccessViolation", "network_denied", "net.dns"),
    "connect": (1, "NetworkAccessViolation", "network_denied", "net.connect"),
    "ptrace": (1, "SyscallViolation", "syscall_denied", "syscall.ptrace"),
    "mount": (1, "SyscallViolation", "syscall_denied", "syscall.mount"),
    "bpf": (159, "SyscallViolation", "syscall_denied", "syscall.kernel"),
}
CHANGED_FILES = (
    "./appended ./directory ./emptied ./emptied/old ./hard ./kept ./link ./named ./new_name ./replaced ./truncated "
    "changed\noriginal\nmore\nanew\no"
)
CHANGED_DIRECTORIES = (
    "./appended ./hollow ./kept ./moved ./moved/added ./moved/file ./old_name ./removed ./replaced ./truncated "
)


def setUpModule():
    image = machine.prepare_or_skip()
    result = machine.execute(image, ["python3", "-B", "tests/vm/probes.py"], timeout=PROBE_SECONDS)
    for line in result.stdout.decode().splitlines():
        record = json.loads(line)
        RECORDS[record["who"], record["case"]] = record
    if result.exit_code != 0 or ("machine", "end") not in RECORDS:
        raise AssertionError("probes.py did not reach its end:\n" + result.stderr.decode(errors="replace")[-4000:])


class VmTest(unittest.TestCase):
    maxDiff = None

    def record(self, who, case):
        self.assertIn((who, case), RECORDS)
        return RECORDS[who, case]

    def isolation(self, record):
        self.assertIsNotNone(record["result"], record["stderr"])
        self.assertIsNotNone(record["result"].get("isolation"), record["stderr"])
        return record["result"]["isolation"]

    def everybody(self, *cases, judge, who=WHO):
        """Calls judge(who, record) for each of those, in a sub-test of its own."""
        for one in who:
            for case in cases:
                with self.subTest(who=one, case=case):
                    judge(one, self.record(one, case))


class Isolation(VmTest):
    def test_doctor_finds_the_balanced_profile_enforceable(self):
        def judge(who, record):
            findings = {finding["mechanism"]: finding for finding in json.loads(record["stdout"])["findings"]}
            bad = {name: finding for name, finding in findings.items() if finding["status"] != "ok"}
            for runtime in ("oci", "gvisor", "container", "microvm", "kubernetes"):  # the guest has nothing that they need
                self.assertEqual(bad.pop("runtime." + runtime)["status"], "degraded")
            if who == "user":
                self.assertEqual(bad.pop("cgroup")["status"], "degraded")
            self.assertEqual((bad, record["exit_code"]), ({}, 0))

        self.everybody("doctor", judge=judge)

    def test_advice_is_given_only_where_something_is_wrong(self):
        def judge(_, record):
            for finding in json.loads(record["stdout"])["findings"]:
                if finding["status"] == "ok":
                    self.assertIsNone(finding["fix"], finding["mechanism"])

        self.everybody("doctor", judge=judge)

    def test_every_wall_stands_where_a_cgroup_can_be_made(self):
        def judge(_, record):
            isolation = self.isolation(record)
            self.assertEqual((record["exit_code"], isolation["cgroup"]["driver"], isolation["degraded"]), (0, "v2", []))
            self.assertGreaterEqual(isolation["landlock_abi"], 1)
            self.assertEqual(record["stderr"], "")

        self.everybody("true", judge=judge, who=("root", "delegated"))

    def test_missing_cgroup_is_named(self):
        record = self.record("user", "true")
        isolation = self.isolation(record)
        self.assertEqual((record["exit_code"], isolation["cgroup"]["driver"]), (0, "none"))
        names = [wall.split(":")[0] for wall in isolation["degraded"]]
        self.assertEqual(names, ["cgroup", "cpu", "shared_memory", "pipes", "kernel_memory"])
        self.assertIn("not delegated", isolation["degraded"][0])

    def test_root_gets_ids_of_its_own_and_a_user_keeps_his(self):
        def judge(_, record):
            self.assertEqual(self.isolation(record)["host_uid"], 1000)

        self.assertGreater(self.isolation(self.record("root", "true"))["host_uid"], 65536)
        self.everybody("true", judge=judge, who=("user", "delegated"))

    def test_hello_passes(self):
        def judge(_, record):
            document = json.loads(record["stdout"])
            self.assertEqual((record["exit_code"], document["status"], document["violations"]), (0, "pass", []))

        self.everybody("hello", judge=judge)

    def test_delegation_without_the_cpu_controller_is_used_or_named(self):
        record = self.record("no_cpu", "true")
        self.assertEqual((record["exit_code"], record["stderr"]), (0, ""))
        self.assertTrue(any("cpu" in wall for wall in self.isolation(record)["degraded"]))

    def test_privileged_container_is_used_or_named(self):
        record = self.record("container", "true")
        self.assertEqual((record["exit_code"], record["stderr"]), (0, ""))
        isolation = self.isolation(record)
        self.assertTrue(isolation["cgroup"]["driver"] == "v2" or isolation["degraded"])

    def test_without_user_namespaces_it_refuses_and_names_the_setting(self):
        setting = "kernel.unprivileged_userns_clone=1"
        run, doctor, verify = (self.record("no_userns", case) for case in ("true", "doctor", "hello"))
        self.assertEqual((run["exit_code"], doctor["exit_code"], verify["exit_code"]), (125, 1, 4))
        self.assertIn(setting, run["stderr"])
        self.assertIn(setting, doctor["stdout"])
        self.assertIn(setting, verify["stdout"])
        self.assertEqual(json.loads(verify["stdout"])["status"], "error")
        self.assertFalse(json.loads(doctor["stdout"])["balanced_enforceable"])


class Violations(VmTest):
    def test_each_is_caught_and_named(self):
        def judge(_, record):
            exit_code, failure_class, event, reason = VIOLATIONS[record["case"]]
            document = record["result"]
            self.assertIsNotNone(document, record["stderr"])
            self.assertEqual((record["exit_code"], document["status"], document["failure_class"], document["terminal_event"]),
                             (exit_code, "fail", failure_class, event))
            self.assertIn((failure_class, reason), [(one["class"], one["reason"]) for one in document["violations"]])

        self.everybody(*VIOLATIONS, judge=judge)

    def test_nothing_is_left_behind(self):
        def judge(_, record):
            self.assertEqual(record["facts"], [])

        self.everybody("left_groups", judge=judge)

    def test_nothing_outlives_a_killed_supervisor(self):
        def judge(_, record):
            self.assertEqual(record["facts"], {"started": True, "processes": [], "groups": []})

        self.everybody("supervisor_killed", judge=judge)

    def test_nothing_outlives_a_supervisor_killed_while_setting_up(self):
        self.assertEqual(self.record("root", "killed_early")["facts"], {"processes": [], "groups": []})


class Directories(VmTest):
    def refused_with_advice(self, who, record):
        """Before Linux 6.3 no tmpfs can be id-mapped, which root's sandboxes need. Then the refusal must say so."""
        if who != "root" or record["exit_code"] != 125:
            return False
        self.assertRegex(record["stderr"], "tmpfs.*6\\.3")
        return True

    def test_copy_on_write_of_files(self):
        def judge(who, record):
            if not self.refused_with_advice(who, record):
                self.assertEqual((record["stderr"], record["exit_code"], record["stdout"]), ("", 0, CHANGED_FILES))
            self.assertTrue(record["facts"]["unchanged"])

        self.everybody("cow_files_disk", "cow_files_tmpfs", judge=judge)

    def test_copy_on_write_of_directories(self):
        def judge(who, record):
            if not self.refused_with_advice(who, record):
                self.assertEqual((record["stderr"], record["exit_code"], record["stdout"]), ("", 0, CHANGED_DIRECTORIES))
            self.assertTrue(record["facts"]["unchanged"])

        self.everybody("cow_directories_disk", "cow_directories_tmpfs", judge=judge)

    def test_read_only_volume(self):
        def judge(who, record):
            if not self.refused_with_advice(who, record):
                self.assertEqual((record["exit_code"], record["stdout"]), (2, "original\n"))
                self.assertEqual(record["result"]["failure_class"], "FilesystemWriteViolation")
            self.assertTrue(record["facts"]["unchanged"])

        self.everybody("volume_ro_disk", "volume_ro_tmpfs", judge=judge)

    def test_writable_volume_keeps_the_owner_of_the_directory(self):
        def judge(who, record):
            if self.refused_with_advice(who, record):
                return
            owner = 0 if who == "root" else 1000
            self.assertEqual((record["stderr"], record["exit_code"], record["stdout"]), ("", 0, "original\n"))
            self.assertEqual(record["facts"], {"owner": [owner, owner], "content": "x\n"})

        self.everybody("volume_rw_disk", "volume_rw_tmpfs", judge=judge)


if __name__ == "__main__":
    unittest.main()

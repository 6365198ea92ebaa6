"""The view from inside: what a workload can see, and what the result says about the walls."""

import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import both_callers, check, end, processes

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")


@both_callers
class Inside:
    def look(self, expression, flags=(), modules="os, sys, json, pathlib, socket, stat"):
        """The value of a Python expression inside."""
        done = self.caisson("run", *flags, "--", "python3", "-c", f"import {modules}\nprint(json.dumps({expression}))")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def status(self):
        return dict(
            line.split(":\t", 1) for line in self.look("pathlib.Path('/proc/self/status').read_text()").splitlines()
        )

    def test_namespaces(self):
        inside = self.look(f"{{n: os.readlink(f'/proc/self/ns/{{n}}') for n in {NAMESPACES!r}}}")
        for name in NAMESPACES:
            self.assertNotEqual(inside[name], os.readlink(f"/proc/self/ns/{name}"), name)

    def test_privileges(self):
        status = self.status()
        for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[field], 16), 0, field)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        self.assertEqual(status["Uid"].split(), ["1000"] * 4)
        self.assertEqual(status["Gid"].split(), ["1000"] * 4)
        if not self.AS_USER:
            self.assertEqual(status["Groups"].split(), [])
        self.assertNotIn("0", status["Groups"].split())

    def test_dangerous_programs_give_nothing(self):
        """A set-user-id program inside stays what its caller is."""
        self.assertEqual(self.look("[os.stat('/proc/self').st_uid, os.getuid(), os.geteuid()]"), [1000] * 3)
        mounts = self.look("pathlib.Path('/proc/self/mountinfo').read_text()").splitlines()
        for mount in mounts:
            options = mount.split()[5].split(",")
            self.assertIn("nosuid", options, mount)
            if mount.split()[4] not in (
                "/dev/null",
                "/dev/zero",
                "/dev/full",
                "/dev/random",
                "/dev/urandom",
                "/dev/tty",
                "/dev/pts",
            ) and not mount.split()[4].startswith("/proc/"):
                self.assertIn("nodev", options, mount)

    def test_descriptors(self):
        with open("/dev/null", "rb") as null:
            os.set_inheritable(null.fileno(), True)  # of ours, left open on purpose
            done = self.caisson(
                "run", "--", "python3", "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))", close_fds=False
            )
        # 3 is the listing's own.
        self.assertEqual(done.stdout, b"['0', '1', '2', '3']\n")

    def test_processes(self):
        self.assertEqual(
            self.look("sorted(int(n) for n in os.listdir('/proc') if n.isdigit()) + [os.getpid()]"), [1, 2, 2]
        )
        self.assertEqual(self.look("os.getppid()"), 1)

    def test_pid_1_tells_nothing(self):
        done = self.caisson(
            "run",
            "--",
            "python3",
            "-c",
            "import os\ndef reads(p):\n  p = f'/proc/1/{p}'\n  try:\n    return bool(os.listdir(p) if os.path.isdir(p)"
            " else open(p, 'rb').read(1))\n  except OSError: return False\nprint([p for p in ('environ', 'maps', 'mem',"
            " 'root', 'cwd', 'fd', 'fdinfo', 'auxv', 'map_files', 'stack') if reads(p)])",
            env={"SECRET_HERE": "x"},
        )
        self.assertEqual(done.stdout, b"[]\n", done.stderr)

    def test_tree(self):
        self.assertEqual(
            set(self.look("os.listdir('/')")) - {"lib32", "libx32", "lib64", ".empty"},
            {"bin", "dev", "etc", "lib", "proc", "run", "sbin", "scratch", "tmp", "usr", "var", "workspace"},
        )
        self.assertEqual(
            self.look(
                "[p for p in ('/sys', '/root', '/home', '/boot', '/mnt', '/opt', '/srv', '/var/lib') if"
                " os.path.exists(p)]"
            ),
            [],
        )
        self.assertEqual(
            self.look("sorted(os.listdir('/dev'))"),
            ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"],
        )
        self.assertEqual(self.look("os.listdir('/dev/pts')"), ["ptmx"])  # the host's terminals are not there
        self.assertEqual(
            self.look("[os.listdir(p) for p in ('/run', '/workspace', '/scratch', '/tmp', '/var/cache')]"), [[]] * 5
        )
        self.assertNotIn("root:$", self.look("pathlib.Path('/etc/passwd').read_text()"))
        self.assertFalse(self.look("os.path.exists('/etc/shadow')"))

    def test_nothing_is_writable_but_scratch(self):
        writable = self.look(
            "[t for t, d, f in os.walk('/') if not t.startswith(('/proc', '/usr/share', '/usr/lib')) and os.access(t,"
            " os.W_OK)]"
        )
        self.assertEqual({path for path in writable if not path.startswith(("/scratch", "/tmp", "/dev/shm"))}, set())

    def test_masked_proc(self):
        for name in ("kcore", "kmsg", "kallsyms", "keys", "timer_list", "sysrq-trigger", "interrupts", "modules"):
            with self.subTest(name):
                if os.path.exists(f"/proc/{name}"):
                    self.assertEqual(
                        self.look(
                            f"os.path.isfile('/proc/{name}') and os.access('/proc/{name}', os.R_OK) and"
                            f" open('/proc/{name}').read(9) or ''"
                        ),
                        "",
                    )

    def test_mount_table_names_no_host_path(self):
        place = self.directory({"d/f": "x"})
        result = self.verify(path=place, checks=[check("cat", "/proc/self/mountinfo")])
        self.assertIn(" /workspace ", result["stdout"])
        self.assertNotIn(place.name, result["stdout"])

    def test_network(self):
        self.assertEqual(self.look("[n for _, n in socket.if_nameindex()]"), ["lo"])
        self.assertNotEqual(self.look("socket.gethostname()"), os.uname().nodename)
        abstract = f"\0caisson-{secrets.token_hex(8)}"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(abstract)
            server.listen()
            self.assertNotEqual(self.look(f"socket.socket(socket.AF_UNIX).connect_ex({abstract!r})"), 0)

    def test_host_identity(self):
        marker = f"marker-{secrets.token_hex(8)}"
        seen = []
        for _ in range(2):
            process = self.popen(
                "run",
                "--",
                "python3",
                "-c",
                "import time; print('ready', flush=True); time.sleep(60)",
                marker,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
            self.addCleanup(end, process)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            workloads = [pid for pid, command in processes(marker).items() if command.startswith(b"python3")]
            seen.append({os.stat(f"/proc/{pid}").st_uid for pid in workloads})
        self.assertNotIn(0, seen[0] | seen[1])
        if self.inside_user_is_caller():
            self.assertEqual(seen[0] | seen[1], {self.caller_id})
        else:
            self.assertEqual([len(uids) for uids in (seen[0], seen[1], seen[0] | seen[1])], [1, 2, 2], seen)

    def test_source_that_only_the_caller_reads(self):
        place = self.directory({"main.py": "print(open('/workspace/data/secret').read())\n", "data/secret": "readable"})
        for path in ("main.py", "data/secret"):
            self.give(place / path, 0o600)
        self.give(place / "data", 0o700)
        self.give(place, 0o700)
        result = self.verify_path(place)
        self.assert_passes(result)
        self.assertEqual(result["stdout"], "readable\n")
        for flags in (["--workspace", place], ["--workspace", f"{place}:cow"]):
            done = self.caisson("run", *flags, "--", "python3", "main.py")
            self.assertEqual(done.stdout, b"readable\n", done.stderr)

    def test_links_in_the_source_do_not_lead_out(self):
        place = self.directory(
            {
                "main.py": (
                    "import os\nfor name in ('passwd', 'up'):\n  print(os.path.exists(name) and 'root:x:0:0:root:/root'"
                    " in open(name).read())\n"
                )
            }
        )
        os.symlink("/etc/passwd", place / "passwd")
        os.symlink("../../../../../../../etc/passwd", place / "up")
        result = self.verify_path(place)
        self.assertEqual(result["stdout"], "False\nFalse\n", self.story(result))

    def test_result_tells_the_walls(self):
        isolation = self.verify("print(1)")["isolation"]
        self.assertEqual(isolation["runtime"], "native")
        self.assertEqual(
            sorted(isolation["namespaces"]), ["cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"]
        )
        # Where no cgroup counts processes, the filter is the one that lets the supervisor count them.
        counted = isolation["cgroup"]["driver"] != "none"
        self.assertEqual(isolation["seccomp"]["profile"], "balanced" if counted else "balanced-watched")
        self.assertGreater(isolation["landlock_abi"], 0)
        if self.inside_user_is_caller():
            self.assertEqual(isolation["host_uid"], self.caller_id)
        else:
            self.assertGreater(isolation["host_uid"], 65536)
            self.assertNotEqual(isolation["cgroup"]["driver"], "none")
            self.assertEqual(isolation["degraded"], [])
        self.assertEqual(isolation["cgroup"]["driver"] == "none", bool(isolation["degraded"]))

    def test_every_wall_has_a_state_and_its_evidence(self):
        result = self.verify("print(open('/proc/self/status').read())")
        isolation = result["isolation"]
        walls = {one["wall"]: one["state"] for one in isolation["walls"]}
        self.assertTrue(all(one["evidence"] for one in isolation["walls"]))
        counted = isolation["cgroup"]["driver"] != "none"
        namespaces = ("user", "pid", "mount", "network", "ipc", "uts", "cgroup", "time")
        self.assertEqual(
            walls,
            {
                **{f"namespaces.{name}": "enforced" for name in namespaces},
                **{f"limits.{name}": "enforced" if counted else "watched" for name in ("memory_bytes", "processes")},
                "limits.cpu": "absent" if any(one.startswith("cpu:") for one in isolation["degraded"]) else "enforced",
                "id_range": "absent" if self.inside_user_is_caller() else "enforced",
                **dict.fromkeys(
                    ("no_new_privileges", "capabilities", "seccomp", "landlock", "read_only_root", "rlimits"), "enforced"
                ),
            },
        )
        self.assertEqual(isolation["cannot_observe"], [])
        # The same that the workload sees of itself.
        inside = dict(line.split(":\t", 1) for line in result["stdout"].splitlines() if ":\t" in line)
        self.assertEqual(isolation["no_new_privs"], inside["NoNewPrivs"] == "1")
        self.assertEqual(isolation["capabilities"] == [], int(inside["CapBnd"], 16) == 0)
        self.assertEqual(inside["Seccomp"], "2")

    def test_a_wall_given_up_is_absent(self):
        profile = self.directory({"p.yaml": "version: 1\nname: mine\nextends: balanced\nnamespaces: [user, pid, mount, "
                                            "network, uts, cgroup, time]\nlandlock: false\n"}) / "p.yaml"  # fmt: skip
        isolation = self.verify("print(1)", flags=("--profile", profile))["isolation"]
        absent = {one["wall"] for one in isolation["walls"] if one["state"] == "absent"}
        self.assertLessEqual({"namespaces.ipc", "landlock"}, absent)
        self.assertNotIn("ipc", isolation["namespaces"])

    def test_digests(self):
        first, again, other = (
            self.verify("print(1)"),
            self.verify("print(1)"),
            self.verify("print(2)", limits={"cpu": 1}),
        )
        self.assertEqual(
            (first["source_digest"], first["policy_digest"]), (again["source_digest"], again["policy_digest"])
        )
        self.assertNotEqual(first["source_digest"], other["source_digest"])
        self.assertNotEqual(first["policy_digest"], other["policy_digest"])

    def test_strict_refuses_a_shared_kernel(self):
        result = self.verify("print(1)", mode="strict", flags=("--runtime", "native"))
        self.assertEqual((result["status"], result["failure_class"]), ("rejected", "PolicyRejected"))
        self.assertIn("gvisor", result["message"])
        self.assertEqual(result["decision"]["required_strength"], "gvisor")
        self.assertEqual(self.caisson("run", "--mode", "strict", "--runtime", "native", "--", "true").returncode, 125)

    def test_a_runtime_by_name_may_only_strengthen(self):
        self.assertEqual(self.caisson("run", "--runtime", "native", "--", "true").returncode, 0)
        # Not another one instead of the one that is named.
        unset = {"CAISSON_KUBERNETES": "/nonexistent"}
        done = self.caisson("run", "--runtime", "kubernetes", "--", "true", env=unset)
        self.assertEqual(done.returncode, 125)
        self.assertIn("/nonexistent", done.stderr.decode())
        result = self.verify("print(1)", mode="strict", flags=("--runtime", "native"))
        self.assertEqual(result["status"], "rejected")
        self.assertIn("needs the strength gvisor and the runtime native gives native", result["message"])
        self.assertEqual(self.verify("print(1)", flags=("--runtime", "native"))["decision"]["runtime"], "native")
        self.assertEqual(self.caisson("run", "--runtime", "docker", "--", "true").returncode, 125)

    def test_walls_of_strict_on_the_native_runtime(self):
        profile = self.directory({"p.yaml": "version: 1\nname: strict-here\nextends: strict\nstrength: native\n"}) / "p.yaml"
        source = "import os\nprint(sorted(n for n in os.listdir('/proc') if not n.isdigit()))"
        result = self.verify(source, flags=("--profile", profile))
        if self.verify("print(1)")["isolation"]["degraded"]:  # no cgroup: balanced accepts that, strict does not
            self.assertEqual(
                (result["status"], result["failure_class"], result["exit_code"]), ("error", "InfrastructureError", None)
            )
            self.assertIn("cgroup", result["message"])
        else:
            self.assert_passes(result)
            self.assertEqual(result["isolation"]["seccomp"]["profile"], "strict")
            self.assertIn("strength", " ".join(result["isolation"]["degraded"]))
            self.assertNotIn("meminfo", result["stdout"])

    def test_resource_limits(self):
        limits = self.look(
            "{n: resource.getrlimit(getattr(resource, n))[1] for n in ('RLIMIT_CORE', 'RLIMIT_NOFILE')}",
            modules="json, resource",
        )
        self.assertLessEqual(limits["RLIMIT_CORE"], 1)
        self.assertLessEqual(limits["RLIMIT_NOFILE"], 4096)


if __name__ == "__main__":
    unittest.main()

"""Forbidden paths: refused before anything starts, however they are spelt, and even while they change."""

import ctypes
import json
import os
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from caisson import both_callers, check, processes

RENAME_EXCHANGE = 2
AT_FDCWD = -100


@both_callers
class Paths:
    def ask(self, source, access="ro", **options):
        events = self.directory({}) / "events"
        result = self.verify(
            "print('ran')", checks=[check("python3", "main.py")], flags=("--events", events, *options.pop("flags", ())),
            mounts=[{"source": str(source), "target": "/data", "access": access}], **options,
        )
        return result, events.read_text()

    def test_nothing_starts(self):
        home = self.directory({".ssh/id": "secret"})
        link = self.directory({}) / "link"
        link.symlink_to("/etc")
        places = ["/", "/etc", "/proc", "/sys", "/dev", "/run", "/etc/../etc/ssl", "//etc//", "/usr/../etc", home,
                  home / ".ssh", home / ".ssh/id", link, link / "passwd", "/var/lib/docker", "/var"]
        for place in places:
            if not os.path.exists(place):
                continue
            with self.subTest(str(place)):
                result, events = self.ask(place)
                self.assertEqual((result["status"], result["failure_class"]), ("rejected", "PolicyRejected"), result)
                self.assertIn("path policy", result["message"])
                self.assertEqual(result["checks"], [])
                self.assertNotIn("sandbox_started", events)
                self.assertIn('"rejected"', events)
                self.assertEqual(processes(executable=self.binary), {})

    def test_magic_links(self):
        for place in ("/proc/self/root", "/proc/self/root/tmp", "/proc/self/cwd", "/dev/fd/0", f"/proc/{os.getpid()}/cwd"):
            with self.subTest(place):
                done = self.caisson("run", "-v", f"{place}:/data", "--", "true")
                self.assertEqual(done.returncode, 125, done.stderr)

    def test_look_alikes(self):
        top = self.directory({"ws/a": "1", "ws2/b": "2"})
        lines = f"version: 1\nname: p\nextends: balanced\nproject:\n  root_path: {top}\n  allowed_paths: [{{path: ws}}]\n"
        profile = self.directory({"p.yaml": lines}) / "p.yaml"
        self.assertEqual(self.ask(top / "ws", flags=("--profile", profile))[0]["status"], "pass")
        self.assertEqual(self.ask(top / "ws2", flags=("--profile", profile))[0]["status"], "rejected")
        (top / "ws/out").symlink_to(top / "ws2")
        self.assertEqual(self.ask(top / "ws/out", flags=("--profile", profile))[0]["status"], "rejected")

    def test_writing_needs_a_grant(self):
        place = self.directory({"a": "1"})
        result, _ = self.ask(place, "rw")
        self.assertEqual(result["status"], "rejected")
        rules = (
            "version: 1\nkind: policy\nname: test\nlock_owner: me\nrisk:\n  - {id: any, strength: native, why: test}\n"
            "  - {id: writes, when: {asks: [rw_mount]}, strength: native, approval: owner, why: it stays}\n"
            "overrides:\n  - {id: w, role: builder, reason: builds here, granted_by: me, expires: EXPIRES, "
            f"grant: {{write_path: {place}}}}}\n"
        )
        good = self.directory({"policy.yaml": rules.replace("EXPIRES", "2999-01-01T00:00:00Z")}) / "policy.yaml"
        late = self.directory({"policy.yaml": rules.replace("EXPIRES", "2001-01-01T00:00:00Z")}) / "policy.yaml"
        for flags, status in (
            (("--policy", good), "rejected"),  # another role
            (("--policy", late, "--role", "builder", "--approve", "writes"), "rejected"),  # over
            (("--policy", good, "--role", "builder"), "rejected"),  # not approved
            (("--policy", good, "--role", "builder", "--approve", "writes"), "pass"),
        ):
            result, events = self.ask(place, "rw", flags=flags)
            self.assertEqual(result["status"], status, (flags, result.get("message")))
        self.assertEqual(result["decision"]["overrides"][0]["id"], "w")
        self.assertEqual(result["decision"]["approvals"][0]["given_by"], f"uid {self.caller_id}")
        self.assertIn('"overrides":[{', events)

    def test_what_was_decided_is_in_the_audit_log(self):
        place = self.directory({"a": "1"})
        log = self.directory({}) / "audit.jsonl"
        self.ask(place, "rw", flags=("--audit", log))
        self.ask(place, "ro", flags=("--audit", log, "--memory", "1500M"))
        records = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual([record["type"] for record in records], ["reject", "result", "admit", "result"])
        self.assertEqual(records[2]["details"]["overrides"][0]["kind"], "raise_limit")
        self.assertEqual(self.caisson("audit", "verify", log).returncode, 0)
        # An action that cannot be recorded does not happen.
        full = self.caisson("run", "--audit", "/dev/full", "--", "echo", "ran")
        self.assertEqual((full.returncode, full.stdout), (125, b""))

    def test_a_sensitive_place_by_name_only(self):
        rules = (
            "version: 1\nkind: policy\nname: test\nlock_owner: me\nrisk:\n  - {id: any, strength: native, why: test}\n"
            "overrides:\n  - {id: s, role: reader, reason: needed, granted_by: me, expires: 2999-01-01T00:00:00Z, "
            "grant: {sensitive_path: {path: /etc/ssl, access: ro}}}\n"
        )
        policy = self.directory({"policy.yaml": rules}) / "policy.yaml"
        flags = ("--policy", policy, "--role", "reader")
        self.assertEqual(self.ask("/etc/ssl", flags=flags)[0]["status"], "pass")
        for other in ("/etc", "/etc/ssl/certs", "/etc/alternatives"):
            self.assertEqual(self.ask(other, flags=flags)[0]["status"], "rejected", other)

    def test_a_bind_mount_is_the_same_place(self):
        if self.AS_USER:
            self.skipTest("bind mounts are root's to make")
        point = self.directory({"x/keep": ""})
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"/etc/ssl", str(point / "x").encode(), None, 4096, None) != 0:
            self.fail(os.strerror(ctypes.get_errno()))
        try:
            for place in (point / "x", point / "x/certs", point):
                result, _ = self.ask(place)
                self.assertEqual(result["status"], "rejected", place)
        finally:
            libc.umount2(str(point / "x").encode(), 2)

    def test_swapping_the_path_while_it_is_judged(self):
        """A directory is exchanged with a link to a forbidden one, as fast as possible; the secret never shows."""
        top = self.directory({"good/word": "harmless", "home/.ssh/word": "secret"})
        (top / "bad").symlink_to(top / "home/.ssh")
        self.give(top / "bad")
        libc = ctypes.CDLL(None)
        stop = threading.Event()
        a, b = str(top / "good").encode(), str(top / "bad").encode()

        def swap():
            while not stop.is_set():
                libc.renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE)

        seen = {"harmless": 0, "refused": 0}
        thread = threading.Thread(target=swap)
        thread.start()
        try:
            for _ in range(60):
                done = self.caisson("run", "-v", f"{top / 'good'}:/data", "--", "cat", "/data/word")
                self.assertNotIn(b"secret", done.stdout + done.stderr)
                seen["harmless" if b"harmless" in done.stdout else "refused"] += 1
        finally:
            stop.set()
            thread.join()
        self.assertGreater(seen["harmless"], 0, seen)
        self.assertGreater(seen["refused"], 0, seen)


if __name__ == "__main__":
    unittest.main()

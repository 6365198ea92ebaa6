"""Test classes whose sandboxes are made by a launcher of their own."""

import secrets
import subprocess
import sys

from caisson import ORDINARY_ID, STARTED_BY_ROOT, CallerCase, Leftovers, end, processes, skip, wait_until
from launcher import Launcher


class LaunchedCase(CallerCase):
    LAUNCHER_BY_USER = False
    FLAGS = ()
    through_launcher = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not cls.LAUNCHER_BY_USER and not STARTED_BY_ROOT:
            skip("root", f"{cls.__name__} needs the tests to be started by root")

    def setUp(self):
        self.launcher = self.start_launcher(*self.FLAGS)
        self.marker = f"marker-{secrets.token_hex(8)}"
        self.before = Leftovers(None, self.marker)

    def start_launcher(self, *flags):
        if self.AS_USER and not self.LAUNCHER_BY_USER:
            flags = (*flags, "--allow-uid", ORDINARY_ID)
        launcher = Launcher(self.LAUNCHER_BY_USER, *flags)
        self.addCleanup(launcher.end)
        return launcher

    def environment(self, extra=None):
        own = {"CAISSON_LAUNCHER": str(self.launcher.socket)} if self.through_launcher else {}
        return super().environment(own | (extra or {}))

    def start_sleeper(self, *flags):
        """A verification that goes on until it is ended; its workload carries the marker."""
        text = f"import subprocess\nsubprocess.run(['sh', '-c', 'echo up; sleep 300; true', '{self.marker}'])\n"
        place = self.directory({"main.py": text})
        process = self.popen(
            "verify",
            "--json",
            *flags,
            place / "main.py",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(end, process)
        wait_until(self.is_asleep, 30, "the workload runs")
        return process

    def is_asleep(self):
        return any(command.startswith(b"sh\0-c") for command in processes(self.marker).values())

    def assert_still_serves(self):
        done = self.caisson("run", "--", "echo", "alive")
        self.assertEqual((done.returncode, done.stdout), (0, b"alive\n"), done.stderr)

    def assert_lost(self, process):
        output, _ = process.communicate(timeout=30)
        result = self.read_result(output)
        self.assertEqual((process.returncode, result["status"]), (4, "error"))
        self.assertIn("the launcher was lost", result["message"])

    def assert_nothing_left(self):
        self.before.assert_none(seconds=10)


def three_ways(mixin):
    module = sys.modules[mixin.__module__]
    for suffix, client_is_user, launcher_is_user in (
        ("AsRoot", False, False),
        ("AsUser", True, True),
        ("Served", True, False),
    ):
        name = mixin.__name__ + suffix
        members = {"AS_USER": client_is_user, "LAUNCHER_BY_USER": launcher_is_user, "__module__": mixin.__module__}
        setattr(module, name, type(name, (mixin, LaunchedCase), members))
    return mixin

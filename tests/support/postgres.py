"""A real PostgreSQL server for a test: its own data directory, reachable through a unix socket in it and nowhere else."""

import glob
import os
import pathlib
import shutil
import subprocess
import tempfile

from support import caisson


def programs():
    """The directory of the newest installed server, or None."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
    return pathlib.Path(found[-1]) if found else None


class Postgres:
    """`with Postgres() as server:`; `server.database()` is a connection string."""

    def __init__(self):
        self.bin = programs()
        if self.bin is None:
            caisson.skip("postgres", "the package postgresql is not installed")
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-pg-", dir="/tmp"))
        # The server refuses to run as root.
        self.as_user = []
        if caisson.STARTED_BY_ROOT:
            user = str(caisson.ORDINARY_ID)
            os.chown(self.root, caisson.ORDINARY_ID, caisson.ORDINARY_ID)
            self.as_user = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
        self._run("initdb", "-D", self.root / "data", "-U", "caisson", "-A", "trust", "--no-sync", "-E", "UTF8")
        with open(self.root / "data/postgresql.conf", "a") as settings:
            settings.write(f"listen_addresses = ''\nunix_socket_directories = '{self.root}'\nmax_connections = 60\n")

    def _run(self, program, *arguments):
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": str(self.root)}
        subprocess.run([*self.as_user, self.bin / program, *arguments], check=True, cwd=self.root, env=environment,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def start(self):
        self._run("pg_ctl", "-D", self.root / "data", "-l", self.root / "log", "-w", "-t", "60", "start")

    def kill(self):
        """As a crash does: nothing is written that was not."""
        self._run("pg_ctl", "-D", self.root / "data", "-m", "immediate", "-w", "stop")

    def database(self):
        return f"host={self.root} user=caisson dbname=postgres"

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_):
        try:
            self.kill()
        except subprocess.CalledProcessError:
            pass  # a test may have stopped it
        shutil.rmtree(self.root, ignore_errors=True)

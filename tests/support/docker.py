"""A Docker engine for a test: its own data, its own socket and its own cgroups; nothing of it stays."""

import contextlib
import http.client
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile

from caisson import ORDINARY_ID, STARTED_BY_ROOT, skip, wait_until

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class _Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self.path))


class Docker:
    """`with Docker() as engine:`; `engine.environment` names its socket to the program."""

    def __init__(self):
        if not STARTED_BY_ROOT:
            skip("docker", "an engine of its own needs the tests to be started by root")
        if shutil.which("dockerd", path=PATH) is None:
            skip("docker", "dockerd is not installed (package docker.io)")
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-docker-", dir="/tmp"))
        self.root.chmod(0o755)
        self.socket = self.root / "docker.sock"
        self.environment = {"DOCKER_HOST": f"unix://{self.socket}"}
        self.group = f"docker-test-{os.getpid()}"
        self.log = self.root / "log"
        self.process = None

    def command(self):
        return ["dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--data-root", self.root / "data",
                "--exec-root", self.root / "exec", "--pidfile", self.root / "pid", "--cgroup-parent", f"/{self.group}",
                "-H", f"unix://{self.socket}"]  # fmt: skip

    def __enter__(self):
        try:
            with open(self.log, "wb") as log:
                self.process = subprocess.Popen(
                    list(map(str, self.command())), env={"PATH": PATH, "HOME": str(self.root)}, cwd=self.root,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            wait_until(lambda: self._answers() or self.log.read_text()[-2000:], 60, "the engine answers")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"dockerd ended: {self.log.read_text()[-2000:]}")
        with contextlib.suppress(OSError):
            return self.call("GET", "/_ping")[0] == 200
        return False

    def call(self, method, target, document=None):
        """The status and the decoded body of an answer."""
        connection = _Connection(self.socket)
        with contextlib.closing(connection):
            body = json.dumps(document) if document is not None else None
            connection.request(method, target, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def containers(self):
        """All containers, by name, with their state."""
        status, listed = self.call("GET", "/containers/json?all=1")
        assert status == 200, listed
        return {entry["Names"][0].lstrip("/"): entry["State"] for entry in listed}

    def __exit__(self, *_):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=30)
        mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self.root}/")]):
            subprocess.run(["umount", "-l", mount], check=False)
        for hierarchy in [pathlib.Path("/sys/fs/cgroup"), *pathlib.Path("/sys/fs/cgroup").glob("*/")]:
            with contextlib.suppress(OSError):
                (hierarchy / self.group).rmdir()
        shutil.rmtree(self.root, ignore_errors=True)


class RootlessDocker(Docker):
    """The same, run by the ordinary user in a user namespace of rootlesskit's, without cgroups. The host's list of
    subordinate ids stays as it is: the engine sees another."""

    SCRIPT = """
        mount --make-rprivate /
        for list in subuid subgid; do mount --bind "$0/$list" /etc/$list; done
        exec setpriv --reuid=$1 --regid=$1 --clear-groups env HOME="$0/home" XDG_RUNTIME_DIR="$0/run" \
            rootlesskit --state-dir="$0/run/rootlesskit" --net=host --pidns --copy-up=/etc --copy-up=/run --propagation=rslave \
            sh -c 'rm -f /run/docker /run/containerd /run/xtables.lock; exec "$@"' sh \
            dockerd --rootless --iptables=false --ip6tables=false --bridge=none --data-root "$0/home/data" \
                --exec-root "$0/run/docker" --pidfile "$0/run/pid" -H "unix://$2"
    """

    def __init__(self):
        super().__init__()
        for program, package in (("rootlesskit", "rootlesskit"), ("newuidmap", "uidmap"), ("setpriv", "util-linux")):
            if shutil.which(program, path=PATH) is None:
                shutil.rmtree(self.root)
                skip("docker", f"{program} is not installed (package {package})")
        for name in ("home", "run"):
            (self.root / name).mkdir(mode=0o700)
            os.chown(self.root / name, ORDINARY_ID, ORDINARY_ID)
        for name in ("subuid", "subgid"):
            (self.root / name).write_text(f"{pwd.getpwuid(ORDINARY_ID).pw_name}:2000000:65536\n")
        self.socket = self.root / "run/docker.sock"
        self.environment = {"DOCKER_HOST": f"unix://{self.socket}", "CAISSON_TEST_ENGINE": "rootless"}

    def command(self):
        return ["unshare", "--mount", "sh", "-ec", self.SCRIPT, self.root, ORDINARY_ID, self.socket]

"""Other sandboxes that start /bin/true, each asked for what it can enforce that comes nearest to Caisson.

A peer is a function that makes ready what it needs in a directory, leaves on the stack how that is undone, and returns a
Peer; it raises Missing with the reason if it is not available. Peers come from Debian's packages; `./dev bench peers`
(fetch_peers.py) puts those that Debian does not have, or whose package starts a service, below build/peers.
"""

import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import typing

import bpf
from measure import ROOT, Missing, first_line, spawn, wait_until

TARGET = "/bin/true"
FETCHED = ROOT / "build/peers"
MEMORY, PROCESSES = 1 << 30, 256
FETCH = "get it: ./dev bench peers"


@dataclasses.dataclass
class Peer:
    run: typing.Callable  # milliseconds of one start
    enforces: str
    version: str


def find(program, package=None):
    """Where a program is, fetched or installed."""
    for place in (FETCHED, FETCHED / "docker/usr/bin", FETCHED / "docker/usr/sbin"):
        if (place / program).is_file():
            return str(place / program)
    found = shutil.which(program)
    if found is None:
        raise Missing(f"not installed; {f'apt-get install {package}' if package else FETCH}")
    return found


def need_root():
    if os.geteuid() != 0:
        raise Missing("only root can use it here")


BUBBLEWRAP = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr",
              "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
              "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]


def bubblewrap(directory, stack):
    argv = [find("bwrap", "bubblewrap"), *BUBBLEWRAP, TARGET]
    return Peer(lambda: spawn(argv), "7 namespaces, no capabilities; no seccomp, no limits", first_line(argv[0], "--version"))


def bubblewrap_seccomp(directory, stack):
    program, filter_file = find("bwrap", "bubblewrap"), directory / "filter.bpf"
    bpf.compile_to(filter_file)
    argv = [program, *BUBBLEWRAP, "--seccomp", "9", TARGET]
    opened = [(os.POSIX_SPAWN_OPEN, 9, str(filter_file), os.O_RDONLY, 0)]
    return Peer(lambda: spawn(argv, file_actions=opened), "7 namespaces, no capabilities, Caisson's seccomp allowlist without observation; no limits",
                first_line(program, "--version"))


def firejail(directory, stack):
    argv = [find("firejail", "firejail"), "--quiet", "--noprofile", "--net=none", "--caps.drop=all", "--seccomp", "--nonewprivs", TARGET]
    return Peer(lambda: spawn(argv), "5 namespaces, no capabilities, seccomp denylist; no limits",
                first_line(argv[0], "--version"))


def bundle(directory, seccomp):
    """An OCI bundle: the host's /usr read-only, no capabilities, memory and process limits."""
    rootfs = directory / "rootfs"
    for name in ("usr", "proc", "dev", "tmp", "sys"):
        (rootfs / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (rootfs / name).symlink_to(f"usr/{name}")
    subprocess.run([find("runc", "runc"), "spec", "-b", directory], check=True, capture_output=True)
    config = json.loads((directory / "config.json").read_text())
    config["process"].update({"terminal": False, "args": [TARGET], "noNewPrivileges": True, "cwd": "/", "capabilities": {}})
    config["mounts"] = [mount for mount in config["mounts"] if mount["destination"] in ("/proc", "/dev")]
    config["mounts"].append({"destination": "/usr", "source": "/usr", "type": "bind", "options": ["rbind", "ro", "nosuid"]})
    config["linux"]["resources"] = {"memory": {"limit": MEMORY}, "pids": {"limit": PROCESSES}}
    if seccomp:
        config["linux"]["seccomp"] = bpf.rendered()
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def container_namespaces():
    """What the runtimes unshare by default: they leave the cgroup namespace out unless cgroup v2 is alone."""
    return "6 namespaces" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "5 namespaces"


def oci(runtime):
    def prepare(directory, stack):
        need_root()
        program = find(runtime, runtime)
        argv = [program, "--root", str(directory / "state"), "run", "-b", str(bundle(directory / "bundle", seccomp=True)),
                f"bench-{runtime}-{os.getpid()}"]
        return Peer(lambda: spawn(argv), f"{container_namespaces()}, no capabilities, Caisson's seccomp allowlist without observation, "
                    "memory and process limits; root inside is root outside", first_line(program, "--version"))
    return prepare


def gvisor(directory, stack):
    need_root()
    program = find("runsc")
    state = directory / "state"
    stack.callback(unmount_below, directory)
    argv = [program, "--root", str(state), "--network=none", "--platform=systrap", "run", "-bundle",
            str(bundle(directory / "bundle", seccomp=False)), f"bench-runsc-{os.getpid()}"]
    version = FETCHED / "runsc.version"
    return Peer(lambda: spawn(argv), f"a kernel of its own in user space (systrap), {container_namespaces()}, no capabilities, memory and process limits",
                version.read_text().strip() if version.exists() else first_line(program, "--version"))


def docker(directory, stack):
    need_root()
    daemon, client = find("dockerd"), find("docker")
    socket_path = directory / "docker.sock"
    environment = {**os.environ, "PATH": f"{pathlib.Path(daemon).parent}:{FETCHED / 'docker/usr/bin'}:{os.environ['PATH']}"}
    with open(directory / "dockerd.log", "wb") as log:
        process = subprocess.Popen([daemon, "--iptables=false", "--ip6tables=false", "--bridge=none", "--data-root", directory / "data",
                                    "--exec-root", directory / "exec", "-H", f"unix://{socket_path}", "-p", directory / "pid"],
                                   env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    stack.callback(unmount_below, directory)
    stack.callback(stop, process)
    command = [client, "-H", f"unix://{socket_path}"]
    wait_until(lambda: process.poll() is not None or answers(socket_path), 60, "an answer of dockerd")
    if process.poll() is not None:
        raise Missing(f"dockerd does not start: {(directory / 'dockerd.log').read_text().strip().splitlines()[-1]}")
    archive = directory / "image.tar"
    subprocess.run(["tar", "-C", small_root(directory / "image"), "-cf", archive, "."], check=True)
    subprocess.run([*command, "import", archive, "caisson-bench"], check=True, capture_output=True)
    argv = [*command, "run", "--rm", "--network", "none", "--memory", str(MEMORY), "--pids-limit", str(PROCESSES), "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--read-only", "caisson-bench", TARGET]
    return Peer(lambda: spawn(argv), f"{container_namespaces()}, no capabilities, its default seccomp profile, memory and process limits; "
                "root inside is root outside", first_line(daemon, "--version"))


def answers(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def small_root(directory):
    """A root file system with the target and its libraries."""
    listed = subprocess.run(["ldd", TARGET], capture_output=True, text=True, check=True).stdout
    for path in [TARGET, *re.findall(r"/[^ )]+", listed)]:
        place = directory / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return directory


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def unmount_below(directory):
    """Unmounts the leftovers of a daemon that was stopped in the middle of its work or never cleans up."""
    places = [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    for place in reversed([place for place in places if place.startswith(f"{directory}/")]):
        subprocess.run(["umount", place], check=False, capture_output=True)


def go_judge(directory, stack):
    """A service: asked over a connection that is kept, so that no client program starts. That is in its favour."""
    need_root()
    program = find("go-judge")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    prefix = f"bench-go-judge-{os.getpid()}"
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen([program, "-http-addr", f"127.0.0.1:{port}", "-silent", "-release", "-cgroup-prefix", prefix],
                                   cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    stack.callback(remove_groups, prefix)
    stack.callback(stop, process)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    stack.callback(connection.close)
    wait_until(lambda: process.poll() is not None or listens(port), 20, "an answer of go-judge")
    body = json.dumps({"cmd": [{"args": [TARGET], "cpuLimit": 10_000_000_000, "memoryLimit": MEMORY, "procLimit": PROCESSES,
                                "files": [{"content": ""}, {"name": "stdout", "max": 10240}, {"name": "stderr", "max": 10240}]}]})

    def run():
        begin = time.perf_counter()
        connection.request("POST", "/run", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        elapsed = (time.perf_counter() - begin) * 1000
        if answer[0]["status"] != "Accepted":
            raise Missing(f"does not work on this machine: {answer[0].get('error', answer[0]['status'])}")
        return elapsed

    version = FETCHED / "go-judge.version"
    return Peer(run, "7 namespaces, no capabilities, memory and process limits; no seccomp unless configured; the container is used again",
                version.read_text().strip() if version.exists() else "unknown")


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def remove_groups(prefix):
    """The daemon leaves its cgroups behind; its containers outlive it by a moment."""
    def gone():
        groups = [top for top, _, _ in os.walk("/sys/fs/cgroup", topdown=False) if f"/{prefix}" in top]
        for group in groups:
            with contextlib.suppress(OSError):
                os.rmdir(group)
        return not groups
    wait_until(gone, 20, "the end of go-judge's containers")


def nsjail(directory, stack):
    raise Missing("not packaged by Debian 12, and not to be had from a registry of packages")


PEERS = {"bubblewrap": bubblewrap, "bubblewrap + seccomp": bubblewrap_seccomp, "firejail": firejail, "runc": oci("runc"),
         "crun": oci("crun"), "docker run": docker, "gVisor runsc": gvisor, "go-judge": go_judge, "nsjail": nsjail}

"""egress: what a connection costs that a sandbox's allowlist lets through, compared with no sandbox and with other ways out.

A server on this machine's loopback (traffic.c) is reached by the same client: directly; inside a sandbox by the listed name; in
network namespaces of pasta (its spliced loopback) and slirp4netns; and through CONNECT of tinyproxy, from no sandbox. Each
sample is one client that times itself once its name is resolved. The client inside has no settings; Caisson alone judges names
and records each connection. Memory is the proportional share (PSS) of the processes that relay, with connections that have each
carried a byte.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

from measure import CAISSON, Contender, Group, Missing, caisson_version, first_line, in_turns, p50, spawn, wait_until

HERE = pathlib.Path(__file__).resolve().parent
PROFILE = """
version: 1
name: bench
extends: balanced
network:
  mode: allowlist
  allow: ["tcp://raw.test:{port}", "http://web.test:{port}"]
  private_ranges: [127.0.0.1]
  hosts: {{raw.test: 127.0.0.1, web.test: 127.0.0.1}}
  limits: {{connections: 4096, connections_per_second: 100000}}
"""
TINYPROXY = "Port {port}\nListen 127.0.0.1\nAllow 127.0.0.1\nMaxClients 2000\nTimeout 600\nLogLevel Critical\nPidFile \"{pid}\"\n"
ENFORCES = {
    "bare": "nothing",
    "caisson": "an allowlist of names, ports and protocols; every connection recorded",
    "pasta": "one forwarded port",
    "slirp4netns": "nothing: any address",
    "tinyproxy": "ports of CONNECT; programs must ask it",
}
# Name -> (title, unit, work at full size, better, what Caisson's ratio to bare should be).
WORK = {
    "connect": ("a new connection until its first byte is back", "µs", 300, "lower", None),
    "request": ("HTTP requests on one connection, each after the answer to the one before", "per second", 5000, "higher", None),
    "down": ("1 GB to the client on one connection", "GB/s", 1_000_000_000, "higher", 0.5),
    "up": ("1 GB from the client on one connection", "GB/s", 1_000_000_000, "higher", 0.5),
}
STALL_SECONDS = 30
MOST_ADDED_US, MOST_MIB, MOST_START_MS, CONNECTIONS = 150, 32, 1, 1000


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def need(program, package):
    path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if path is None:
        raise Missing(f"not installed; apt-get install {package}")
    return path


class Place:
    """The server, the client program and how each contender reaches the server with it."""

    def __init__(self, directory, stack):
        self.directory, self.stack = pathlib.Path(directory), stack
        self.port = free_port()
        self.program = self.directory / "traffic"
        subprocess.run(["gcc", "-O2", "-pthread", "-o", self.program, HERE / "traffic.c"], check=True)
        self.server = self.start([self.program, "serve", str(self.port)], stdout=subprocess.PIPE)
        if self.server.stdout.readline() != b"up\n":
            raise SystemExit("bench: the server did not start")
        (self.directory / "bench.yaml").write_text(PROFILE.format(port=self.port))
        self.made = {}

    def start(self, argv, **options):
        process = subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        self.stack.callback(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()

    def argv(self, contender, mode, amount):
        """The command line of a client; raises Missing."""
        return getattr(self, contender)(mode, str(amount))

    def bare(self, mode, amount):
        return [str(self.program), mode, "127.0.0.1", str(self.port), amount]

    def caisson(self, mode, amount):
        name = "web.test" if mode == "request" else "raw.test"
        return [str(CAISSON), "run", "--quiet", "--timeout", "10m", "--profile", str(self.directory / "bench.yaml"), "--workspace",
                str(self.directory), "--", "/workspace/traffic", mode, name, str(self.port), amount]  # fmt: skip

    def pasta(self, mode, amount):
        # As root it would become nobody, who cannot enter the directory of the benchmark's caller.
        return [need("pasta", "passt"), "--quiet", "--runas", "0", "--tcp-ns", str(self.port), "--tcp-ports", "none", "--udp-ports", "none",
                "--udp-ns", "none", "--", *self.bare(mode, amount)]  # fmt: skip

    def slirp4netns(self, mode, amount):
        if "slirp4netns" not in self.made:
            program = need("slirp4netns", "slirp4netns")
            holder = self.start(["unshare", "--user", "--map-root-user", "--net", "sleep", "infinity"])
            mine = os.readlink("/proc/self/ns/net")
            wait_until(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != mine, 10, "a network namespace")
            relay = self.start([program, "--configure", "--mtu=65520", str(holder.pid), "tap0"], stdout=subprocess.DEVNULL)
            enter = ["nsenter", "--preserve-credentials", "--user", "--net", "--target", str(holder.pid)]
            wait_until(lambda: b"10.0.2.100" in subprocess.run([*enter, "ip", "-4", "address"], capture_output=True, check=False).stdout, 10,
                       "the address of slirp4netns")  # fmt: skip
            self.made["slirp4netns"] = (enter, relay.pid)
        enter, _ = self.made["slirp4netns"]
        return [*enter, str(self.program), mode, "10.0.2.2", str(self.port), amount]  # the host's loopback, by slirp's own name

    def tinyproxy(self, mode, amount):
        if "tinyproxy" not in self.made:
            program, port = need("tinyproxy", "tinyproxy"), free_port()
            settings = self.directory / "tinyproxy.conf"
            settings.write_text(TINYPROXY.format(port=port, pid=self.directory / "tinyproxy.pid"))
            process = self.start([program, "-d", "-c", settings], stdout=subprocess.DEVNULL)

            def answers():
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    return True
                return False

            wait_until(answers, 10, "tinyproxy")
            self.made["tinyproxy"] = (port, process.pid)
        return [*self.bare(mode, amount), str(self.made["tinyproxy"][0])]

    def relays(self, contender, client):
        """The processes that relay for the client that runs now."""
        if contender in self.made:
            return [self.made[contender][1]]
        return [pid for pid in [client, *below(client)] if re.match(r"caisson-egress|pasta|passt", name_of(pid))]


def name_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def below(pid):
    with contextlib.suppress(OSError):
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)
            yield from below(int(child))


def pss_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0


class Stalled(Exception):
    pass


def sample(argv):
    """What the client printed. Ends a client that makes no progress, with all that it started."""
    environment = {name: value for name, value in os.environ.items() if name != "CAISSON_LAUNCHER"} | {"CAISSON_URL": "none"}
    client = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
                              stdin=subprocess.DEVNULL)  # fmt: skip
    try:
        out, complaint = client.communicate(timeout=STALL_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(client.pid, signal.SIGKILL)
        client.communicate()
        raise Stalled from None
    if client.returncode != 0 or not out:
        raise Missing(f"does not work on this machine: {(complaint.strip().splitlines() or [f'exit {client.returncode}'])[-1]}")
    return float(out.split()[-1])


def sampler(group, name, argv):
    """A sample of one contender. One that stalls has moved nothing in that round; the group says how often."""
    def take():
        try:
            return sample(argv)
        except Stalled:
            if group.better == "lower":
                raise Missing(f"stalled for {STALL_SECONDS} s") from None
            group.notes.append(f"{name} stalled in a round for {STALL_SECONDS} s, which counts as 0")
            return 0.0
    return take


def versions():
    return {"bare": "", "caisson": caisson_version(), "pasta": first_line("pasta", "--version"),
            "slirp4netns": first_line("slirp4netns", "--version"), "tinyproxy": first_line("tinyproxy", "-v")}  # fmt: skip


def contenders(group, place, mode, amount, told):
    """What of the contenders works here, by name; the group says what does not, and why."""
    found = {}
    for name, enforces in ENFORCES.items():
        try:
            found[name] = place.argv(name, mode, amount)
        except Missing as reason:
            group.missing[name] = str(reason)
            continue
        group.contenders[name] = Contender(enforces, told[name])
    return found


def measure(options, directory):
    groups = []
    with contextlib.ExitStack() as stack:
        place, told = Place(directory, stack), versions()
        for mode, (title, unit, amount, better, goal) in WORK.items():
            goals = {"caisson": {"bare": goal}} if goal else {}
            group = Group(f"egress-{mode}", title, unit, better=better, goals=goals)
            found = contenders(group, place, mode, max(1, round(amount * options.scale)), told)
            in_turns(group, {name: sampler(group, name, argv) for name, argv in found.items()}, options.rounds_of(15), warm_up=1)
            if mode == "connect" and "caisson" in group.contenders:
                added = p50(group.contenders["caisson"].samples) - p50(group.contenders["bare"].samples)
                verdict = "reached" if added <= MOST_ADDED_US else "missed"
                group.notes.append(f"Caisson adds {added:.0f} µs to a connection; goal: at most {MOST_ADDED_US} µs, {verdict}")
            groups.append(group)
        groups += [hold(options, place, told), start(options)]
    return groups


def hold(options, place, told):
    count = max(1, round(CONNECTIONS * options.scale))
    group = Group("egress-memory", f"memory of what relays {count} connections", "MiB", references=())
    for name, argv in contenders(group, place, "hold", count, told).items():
        if name == "bare":
            del group.contenders[name]
            continue
        client = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
                                  env=os.environ | {"CAISSON_URL": "none"})  # fmt: skip
        try:
            if client.stdout.readline() != b"held\n":
                group.missing[name] = f"does not hold {count} connections"
                del group.contenders[name]
                continue
            group.contenders[name].samples.append(sum(pss_mib(pid) for pid in place.relays(name, client.pid)))
        finally:
            client.stdin.close()
            client.stdout.close()
            client.wait()
    if "caisson" in group.contenders:
        used = p50(group.contenders["caisson"].samples)
        group.notes.append(f"goal for Caisson: at most {MOST_MIB} MiB, {'reached' if used <= MOST_MIB else 'missed'}")
    return group


def start(options):
    """What a network adds to the cold start of a sandbox."""
    group = Group("egress-start", "caisson run -- /bin/true with an allowlist, from the shell's point of view", "ms", references=("no network",))
    flags = {"no network": [], "an allowlist of one name": ["--allow-domain", "example.org"],
             "an allowlist of 100 names": [word for number in range(100) for word in ("--allow-domain", f"n{number}.example.org")]}  # fmt: skip
    environment = os.environ | {"CAISSON_URL": "none"}
    for name in flags:
        group.contenders[name] = Contender("", caisson_version())
    in_turns(group, {name: lambda words=words: spawn([str(CAISSON), "run", *words, "--", "/bin/true"], environment) for name, words in flags.items()},
             options.rounds_of(60), warm_up=3)  # fmt: skip
    if len(group.contenders) == len(flags):
        added = p50(group.contenders["an allowlist of one name"].samples) - p50(group.contenders["no network"].samples)
        group.notes.append(f"An allowlist adds {added:.1f} ms; goal: at most {MOST_START_MS} ms, {'reached' if added <= MOST_START_MS else 'missed'}")
    return group

"""Start benchmark: how long `/bin/true` takes from the shell's point of view, bare and inside each sandbox.

    ./dev bench                     all peers that are installed, 100 rounds
    ./dev bench --rounds 300 --json out.json

Method. Every round starts each contender once, in a random order, so that whatever else the machine does hits all alike.
A contender is started with posix_spawn from this process and its end is waited for; nothing is piped. The first rounds
are thrown away. The table gives the median, the 10th and 90th percentile, and the ratio of medians to the bare start and
to bubblewrap in the same run. What each contender was asked to enforce is printed beside its numbers: they are not equal,
and Caisson is asked for the most.
"""
import argparse
import json
import os
import pathlib
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CAISSON = ROOT / "build/release/src/caisson"
TARGET = "/bin/true"
WARM_UP = 10


def version(command):
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=10)
        return (output.stdout or output.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return "unknown"


def oci_bundle(directory):
    """A bundle whose root is the host's /usr, read-only, with the runtimes' default namespaces, a seccomp filter-less
    process without capabilities, and memory and pids limits."""
    rootfs = directory / "rootfs"
    for name in ("usr", "proc", "dev", "tmp", "sys"):
        (rootfs / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (rootfs / name).symlink_to(f"usr/{name}")
    subprocess.run(["runc", "spec", "-b", str(directory)], check=True, capture_output=True)
    config = json.loads((directory / "config.json").read_text())
    config["process"].update({"terminal": False, "args": [TARGET], "noNewPrivileges": True, "cwd": "/"})
    config["process"]["capabilities"] = {}
    config["mounts"] = [m for m in config["mounts"] if m["destination"] in ("/proc", "/dev")]
    config["mounts"].append({"destination": "/usr", "source": "/usr", "type": "bind", "options": ["rbind", "ro", "nosuid"]})
    config["linux"]["resources"] = {"memory": {"limit": 1 << 30}, "pids": {"limit": 256}}
    (directory / "config.json").write_text(json.dumps(config))


def contenders(directory):
    """name -> (argv, what it enforces, version), and name -> reason for what is missing."""
    present = {"bare": ([TARGET], "nothing", platform.release())}
    missing = {}
    present["caisson"] = ([str(CAISSON), "run", "--quiet", "--", TARGET],
                          "8 namespaces, seccomp allowlist with observation, Landlock, memory/pids limits, own uid range",
                          version([str(CAISSON), "--version"]))
    if shutil.which("bwrap"):
        present["bubblewrap"] = (["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr",
                                  "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
                                  "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", TARGET],
                                 "7 namespaces, no seccomp, no limits", version(["bwrap", "--version"]))
    else:
        missing["bubblewrap"] = "not installed"
    if shutil.which("firejail"):
        present["firejail"] = (["firejail", "--quiet", "--noprofile", "--net=none", "--caps.drop=all", "--seccomp", "--nonewprivs", TARGET],
                               "pid, mount, net namespaces, seccomp denylist, no limits", version(["firejail", "--version"]))
    else:
        missing["firejail"] = "not installed"
    for runtime in ("runc", "crun"):
        if not shutil.which(runtime):
            missing[runtime] = "not installed"
            continue
        if os.geteuid() != 0:
            missing[runtime] = "needs root"
            continue
        bundle = directory / runtime
        bundle.mkdir()
        try:
            oci_bundle(bundle)
        except (OSError, KeyError, ValueError) as error:
            missing[runtime] = f"no bundle: {error}"
            continue
        present[runtime] = ([runtime, "run", "-b", str(bundle), f"bench-{runtime}-{os.getpid()}"],
                            "6 namespaces, memory/pids limits, no seccomp", version([runtime, "--version"]))
    missing["nsjail"] = "not packaged by Debian 12" if not shutil.which("nsjail") else "installed but not asked for"
    return present, missing


def start(argv, devnull):
    path = argv[0] if "/" in argv[0] else shutil.which(argv[0])
    actions = [(os.POSIX_SPAWN_DUP2, devnull, 0), (os.POSIX_SPAWN_DUP2, devnull, 1), (os.POSIX_SPAWN_DUP2, devnull, 2)]
    begin = time.perf_counter()
    pid = os.posix_spawn(path, argv, os.environ, file_actions=actions)
    _, status = os.waitpid(pid, 0)
    return (time.perf_counter() - begin) * 1000, os.waitstatus_to_exitcode(status)


def percentile(values, fraction):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    if not CAISSON.exists():
        sys.exit("bench: build first: ./dev build")
    with tempfile.TemporaryDirectory(prefix="caisson-bench-") as name, open(os.devnull, "r+b") as null:
        present, missing = contenders(pathlib.Path(name))
        for contender in list(present):
            _, code = start(present[contender][0], null.fileno())
            if code != 0:
                missing[contender] = f"does not work on this machine (exit {code})"
                del present[contender]
        times = {contender: [] for contender in present}
        for round_number in range(WARM_UP + arguments.rounds):
            if sys.stderr.isatty():
                print(f"\rround {round_number + 1}/{WARM_UP + arguments.rounds}", end="", file=sys.stderr)
            for contender in random.sample(list(present), len(present)):
                elapsed, code = start(present[contender][0], null.fileno())
                if code != 0:
                    sys.exit(f"bench: {contender} failed with exit {code} in round {round_number}")
                if round_number >= WARM_UP:
                    times[contender].append(elapsed)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    report(times, present, missing, arguments)


def report(times, present, missing, arguments):
    medians = {contender: statistics.median(values) for contender, values in times.items()}
    print(f"{TARGET}, {arguments.rounds} interleaved rounds, kernel {platform.release()}, {os.cpu_count()} CPUs, "
          f"{'root' if os.geteuid() == 0 else 'ordinary user'}\n")
    print(f"{'':12} {'median':>8} {'p10':>8} {'p90':>8} {'× bare':>7} {'× bwrap':>8}  enforces")
    rows = []
    for contender in sorted(medians, key=medians.get):
        values = times[contender]
        to_bare = medians[contender] / medians["bare"]
        to_bwrap = medians[contender] / medians["bubblewrap"] if "bubblewrap" in medians else None
        rows.append({"name": contender, "median_ms": medians[contender], "p10_ms": percentile(values, .1), "p90_ms": percentile(values, .9),
                     "to_bare": to_bare, "to_bubblewrap": to_bwrap, "enforces": present[contender][1], "version": present[contender][2]})
        shown = f"{to_bwrap:8.2f}" if to_bwrap is not None else f"{'-':>8}"
        print(f"{contender:12} {medians[contender]:6.2f}ms {percentile(values, .1):6.2f}ms {percentile(values, .9):6.2f}ms {to_bare:7.2f} "
              f"{shown}  {present[contender][1]}")
    for contender, reason in missing.items():
        print(f"{contender:12} not measured: {reason}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"kernel": platform.release(), "cpus": os.cpu_count(), "rounds": arguments.rounds,
                                                            "contenders": rows, "not_measured": missing}, indent=2) + "\n")


if __name__ == "__main__":
    main()

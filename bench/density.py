"""density: many sandboxes alive at once behind one launcher.

bench_runs starts them one after the other and holds them; each has a shell's `sleep` in it. Then this program reads the
private memory of their processes (smaps_rollup, Private_*), the memory that the kernel has taken since (/proc/meminfo)
and the CPU time that idle sandboxes use (the supervisors sample their limits), times further starts beside them, and
ends all at once. Nothing may be left.
"""

import contextlib
import json
import os
import pathlib
import resource
import subprocess
import time

from launchers import Launchers, Variant
from measure import RUNS, Group, Missing, progress, wait_until

ROLES = ("supervisor", "cleanup", "PID 1")
KERNEL = ("Slab", "KernelStack", "PageTables", "Percpu")
SPARE_RUNS = 32  # probes beside the crowd


def measure(options, directory):
    size = options.sandboxes
    # A launcher and its client hold a few descriptors for each run.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    variant = Variant("launcher", ("--max-runs", str(size + SPARE_RUNS)), "")
    memory = Group("density-memory", f"memory of one of {size} live sandboxes", "KiB", references=())
    start = Group("density-start", f"/bin/true in a new sandbox beside {size} live ones, until its result is known", "ms", references=("alone",))
    end = Group("density-end", f"{size} live sandboxes ended and removed", "ms", references=())
    idle = Group("density-cpu", f"CPU time of one of {size} live sandboxes in which nothing happens", "ms per second", references=())
    crowd = Group("density-crowd", f"the {size} themselves, from asked for until their shell speaks", "ms", references=("first tenth",))
    groups = [memory, idle, start, crowd, end]
    with Launchers(directory, variants=(variant,)) as launchers:
        if launchers.missing:
            for group in groups:
                group.missing.update(launchers.missing)
            return groups
        try:
            hold(options, size, launchers, groups)
        except Missing as reason:
            for group in groups:
                group.missing["caisson"] = str(reason)
    return groups


def hold(options, size, launchers, groups):
    memory, idle, start, own, end = groups
    launcher = launchers.processes["launcher"].pid
    groups_before, kernel_before = cgroups(), meminfo()
    with subprocess.Popen([RUNS, "crowd", str(size), str(options.rounds_of(20)), launchers.sockets["launcher"]], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as crowd:
        progress(f"density: {size} sandboxes")
        alone, alive = line_of(crowd), line_of(crowd)
        kernel_during = meminfo()
        if supervisors(launcher):
            fill_memory(memory, launcher, size, kernel_before, kernel_during)
            idle.add("supervisor", cpu_of(supervisors(launcher), options.seconds))
        else:
            for group in (memory, idle):
                group.missing["supervisor"] = "only root can look at the processes of a sandbox"
        crowd.stdin.write("\n")
        crowd.stdin.flush()
        ended = line_of(crowd)
    wait_until(lambda: not children(launcher) and cgroups() <= groups_before, 30, "the removal of every process and cgroup")
    start.add("alone", milliseconds(alone["alone"]))
    start.add(f"beside {size}", milliseconds(alive["beside"]))
    tenth = max(1, size // 10)
    own.add("first tenth", milliseconds(alive["starts"][:tenth]))
    own.add("last tenth", milliseconds(alive["starts"][-tenth:]))
    end.add("all", milliseconds(ended["end"]))
    end.notes.append("nothing was left: no process of the launcher's, no cgroup")
    progress("")


def milliseconds(nanos):
    return [value / 1e6 for value in nanos]


def line_of(crowd):
    line = crowd.stdout.readline()
    if not line:
        raise Missing(f"the sandboxes cannot be started: {crowd.stderr.read().strip()}")
    return json.loads(line)


def fill_memory(group, launcher, size, before, during):
    private, whole = {role: [] for role in (*ROLES, "workload")}, []
    for supervisor in supervisors(launcher):
        found = {"supervisor": private_kib(supervisor)}
        for pid in descendants(supervisor):
            role = role_of(pid)
            if role:
                found[role] = found.get(role, 0) + private_kib(pid)
        for role, kib in found.items():
            private[role].append(kib)
        whole.append(sum(kib for role, kib in found.items() if role != "workload"))
    for role, samples in private.items():
        if samples:
            group.add(f"private, {role}", samples)
        else:
            group.missing[f"private, {role}"] = "no such process was found"
    group.add("private, all but the workload", whole)
    grown = sum(during[name] - before[name] for name in KERNEL)
    group.add("kernel (Slab, KernelStack, PageTables, Percpu)", [max(0, grown) / size])
    group.add("MemAvailable less, workload included", [max(0, before["MemAvailable"] - during["MemAvailable"]) / size])
    group.notes.append("the last two are differences of the whole machine's, divided by the number of sandboxes")


def supervisors(launcher):
    """Those with a sandbox; a probe's may be about to end."""
    return [pid for pid in children(launcher) if any(role_of(below) == "PID 1" for below in descendants(pid))]


def cpu_of(pids, seconds):
    """Milliseconds of CPU time each used in a second."""
    def nanos():
        used = {}
        for pid in pids:
            with contextlib.suppress(OSError):
                used[pid] = int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        return used
    before, begin = nanos(), time.perf_counter()
    time.sleep(seconds)
    after, elapsed = nanos(), time.perf_counter() - begin
    return [(after[pid] - before[pid]) / 1e6 / elapsed for pid in after if pid in before]


def role_of(pid):
    """PID 1 of its namespace, the workload behind it, or the cleanup process, which lives in the host's namespace."""
    with contextlib.suppress(OSError, StopIteration):
        status = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
        numbers = next(line for line in status if line.startswith("NSpid:")).split()[1:]
        own = pathlib.Path("/proc/self/ns/pid").stat().st_ino == pathlib.Path(f"/proc/{pid}/ns/pid").stat().st_ino
        return "cleanup" if own else "PID 1" if numbers[-1] == "1" else "workload"
    return None


def private_kib(pid):
    total = 0
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_"):
                total += int(line.split()[1])
    return total


def children(pid):
    with contextlib.suppress(OSError):
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descendants(pid):
    found = children(pid)
    for child in found:
        found += children(child)
    return found


def meminfo():
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines)}


def cgroups():
    found = set()
    for top, directories, _ in os.walk("/sys/fs/cgroup"):
        found.update(os.path.join(top, name) for name in directories if name.startswith("caisson-"))
    return found

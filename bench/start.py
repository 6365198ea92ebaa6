"""start: how long /bin/true takes, bare and inside each sandbox.

From the shell's point of view: each contender is a program started with posix_spawn whose end is waited for; nothing is
piped. And from inside a C++ program (bench_runs), where no client program starts: until the result is known, and until
nothing is left of the sandbox.
"""

import contextlib
import json
import os
import pathlib
import platform
import subprocess

import peers
from launchers import Launchers
from measure import CAISSON, RUNS, Contender, Group, Missing, caisson_version, in_turns, spawn

WALLS = "8 namespaces, seccomp allowlist with observation, Landlock, memory and process limits, a user id range of its own"


def measure(options, directory):
    with Launchers(directory) as launchers:
        return [from_the_shell(options, directory, launchers),
                *from_a_program(options, launchers, "true", goals={"launcher": {"bare": 2.5}, "parked launcher": {"bare": 1.5}})]


def from_the_shell(options, directory, launchers):
    group = Group("start", "/bin/true from the shell's point of view", "ms", references=("bare", "bubblewrap"),
                  goals={"caisson": {"bare": 4, "bubblewrap": 0.5}})
    actions = {}

    def add(name, action, enforces, version):
        actions[name] = action
        group.contenders[name] = Contender(enforces, version)

    with contextlib.ExitStack() as stack:
        add("bare", lambda: spawn([peers.TARGET]), "nothing", f"Linux {platform.release()}")
        for name, action in caisson_actions(["run", "--quiet", "--", peers.TARGET], launchers).items():
            add(name, action, WALLS + (f"; {launchers.what(name.split(', ')[1])}" if ", " in name else ""), caisson_version())
        for name, prepare in peers.PEERS.items():
            place = pathlib.Path(directory) / name.replace(" ", "-")
            place.mkdir()
            try:
                peer = prepare(place, stack)
                add(name, peer.run, peer.enforces, peer.version)
            except Missing as reason:
                group.missing[name] = str(reason)
        group.missing.update({f"caisson, {name}": reason for name, reason in launchers.missing.items()})
        in_turns(group, actions, options.rounds_of(100), warm_up=options.rounds_of(10))
    return group


def caisson_actions(arguments, launchers):
    """The program itself, and once for each launcher: name -> action."""
    argv = [str(CAISSON), *map(str, arguments)]
    alone = {name: value for name, value in os.environ.items() if name != "CAISSON_LAUNCHER"}
    actions = {"caisson": lambda: spawn(argv, alone)}
    for name, path in launchers.sockets.items():
        actions[f"caisson, {name}"] = lambda path=path: spawn(argv, {**alone, "CAISSON_LAUNCHER": path})
    return actions


def told(contender, made):
    """How many runs found something that had been made before, for those that could."""
    if set(made) <= {"bare", "cold"}:
        return []
    return [f"{contender}: of {sum(made.values())} runs " + ", ".join(f"{count} {name}" for name, count in sorted(made.items()))]


PHASES = {"result": "until its result is known", "whole": "until nothing is left of it"}


LEAST = "python3 -I -S -c pass"  # as bench/runs.cc calls it


def from_a_program(options, launchers, program, what="/bin/true", name="start", goals=None):
    """The same from C++: one process that asks for runs, measured by bench_runs in turns. `goals` are for the result."""
    sockets = [f"{launcher}={path}" for launcher, path in launchers.sockets.items()]
    rounds = options.rounds_of(100)
    done = subprocess.run([RUNS, "--json", "turns", str(rounds), program, *sockets], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: bench_runs failed: {done.stderr.strip()}")
    measured = json.loads(done.stdout)
    groups = []
    for phase, meaning in PHASES.items():
        group = Group(f"{name}-program-{phase}", f"{what} asked for by a running program, {meaning}", "ms",
                      references=("bare", LEAST) if LEAST in measured else ("bare",),
                      goals=(goals or {}) if phase == "result" else {})
        for contender, columns in measured.items():
            group.add(contender, [nanos / 1e6 for nanos in columns[phase]], "nothing" if contender in ("bare", LEAST) else WALLS, "")
            group.notes += told(contender, columns["made"])
        group.missing.update(launchers.missing)
        groups.append(group)
    return groups

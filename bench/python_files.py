"""python: what a verification of a Python file costs compared with running the file.

`caisson verify FILE.py` compiles the file in the sandbox (check "syntax") and then runs it (check "run"): it starts the
interpreter twice where the bare contender starts it once. The groups asked for by a program run it once.
"""

import collections
import json
import os
import pathlib
import subprocess
import threading
import time

from launchers import WITH_NUMPY, Launchers
from measure import PYTHON, RUNS, Contender, Group, caisson_version, in_turns, progress, spawn
from start import LEAST, WALLS, caisson_actions, from_a_program, told

TRIVIAL = "print(6 * 7)\n"
FILES = {
    "trivial": (TRIVIAL, "a trivial file"),
    "imports": ("import json, re, unittest\n" + TRIVIAL, "a file that imports json, re, unittest"),
    "numpy": ("import numpy\nassert numpy.arange(7).sum() == 21\n" + TRIVIAL, "a file that imports numpy"),
}

HAS_NUMPY = subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True, check=False).returncode == 0


def measure(options, directory):
    for name, (text, _) in FILES.items():
        path = file_of(directory, name)
        path.parent.mkdir()
        path.write_text(text)
    trivial, groups = str(file_of(directory, "trivial")), []
    with Launchers(directory) as launchers:
        groups += [verify(options, directory, launchers, name) for name in ("trivial", "imports")]
        groups += from_a_program(options, launchers, trivial, "python3 with a trivial file", "python",
                                 goals={"Python launcher": {LEAST: 0.35}})
        groups += [sustained_verifications(options, trivial, launchers), sustained_runs(options, trivial, launchers)]
    if not HAS_NUMPY:
        missing = Group("python-numpy", FILES["numpy"][1], "ms")
        missing.missing["bare"] = "numpy cannot be imported; apt-get install python3-numpy"
        return [*groups, missing]
    with Launchers(directory, variants=(WITH_NUMPY,)) as launchers:
        groups.append(verify(options, directory, launchers, "numpy"))
        groups += from_a_program(options, launchers, str(file_of(directory, "numpy")), "python3 with a file that imports numpy",
                                 "numpy", goals={WITH_NUMPY.name: {"bare": 0.1}})
    return groups


def file_of(directory, name):
    """Each alone in its directory, which is where it looks for modules first: a numpy.py there would import itself."""
    return pathlib.Path(directory) / f"python-{name}" / "main.py"


def verify(options, directory, launchers, name):
    path = file_of(directory, name)
    group = Group(f"python-{name}", f"caisson verify of {FILES[name][1]}, from the shell's point of view", "ms")
    actions = {"bare": lambda: spawn([PYTHON, str(path)])}
    group.contenders["bare"] = Contender("nothing", f"Python {'.'.join(map(str, version()))}")
    if name == "trivial":
        actions["bare, no file, no site"] = lambda: spawn([PYTHON, "-I", "-S", "-c", "pass"])
        group.contenders["bare, no file, no site"] = Contender("nothing; the least an interpreter costs")
    for contender, action in caisson_actions(["verify", "--quiet", path], launchers).items():
        actions[contender] = action
        group.contenders[contender] = Contender(WALLS, caisson_version())
    group.missing.update({f"caisson, {launcher}": reason for launcher, reason in launchers.missing.items()})
    in_turns(group, actions, options.rounds_of(40), warm_up=options.rounds_of(3))
    return group


def version():
    printed = subprocess.run([PYTHON, "-c", "import sys; print(*sys.version_info[:3])"], capture_output=True, text=True, check=True)
    return printed.stdout.split()


def clients():
    return 2 * os.cpu_count()


def in_windows(group, options, actions):
    """One window of each a round: `actions` are name -> function that is given seconds and returns how many a second."""
    for number in range(options.rounds_of(5)):
        for name, action in actions.items():
            progress(f"{group.name}: window {number + 1}, {name}")
            group.contenders[name].samples.append(action(options.seconds))
    progress("")


def sustained_verifications(options, path, launchers):
    group = Group("python-sustained", f"caisson verify of a trivial file from {clients()} clients at once", "per second", better="higher")
    starts = {"bare": lambda: spawn([PYTHON, path]), **caisson_actions(["verify", "--quiet", path], launchers)}
    for name in starts:
        group.contenders[name] = Contender("nothing" if name == "bare" else WALLS)
    in_windows(group, options, {name: lambda seconds, start=start: rate(start, seconds) for name, start in starts.items()})
    return group


def rate(start, seconds):
    ended, begin = [0] * clients(), time.perf_counter()

    def client(number):
        while time.perf_counter() < begin + seconds:
            start()
            ended[number] += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(ended) / (time.perf_counter() - begin)


LOOP = "bare, one after the other"


def sustained_runs(options, path, launchers):
    group = Group("python-program-sustained", f"python3 with a trivial file, asked for by {clients()} threads of a running program",
                  "per second", better="higher", references=(LOOP, "bare"), goals={"Python launcher": {LOOP: 3}})
    actions, made = {}, {}

    def runs(where, threads):
        def window(seconds):
            done = subprocess.run([RUNS, "--json", "sustained", str(seconds), str(threads), path, where], capture_output=True,
                                  text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"bench: bench_runs failed: {done.stderr.strip()}")
            result = json.loads(done.stdout)
            made.setdefault(where, collections.Counter()).update(result["made"])
            return result["per_second"]
        return window

    for name, where in {LOOP: "bare", "bare": "bare", **launchers.sockets}.items():
        actions[name] = runs(where, 1 if name == LOOP else clients())
        group.contenders[name] = Contender("nothing" if where == "bare" else WALLS)
    group.missing.update(launchers.missing)
    in_windows(group, options, actions)
    for name, where in launchers.sockets.items():
        group.notes += told(name, made[where])
    return group

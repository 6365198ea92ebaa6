"""Groups of contenders that do the same work, measured in turns, and what is computed from the samples.

A Group is one comparison: contenders by name, each with what it was asked to enforce, its version and its samples, and,
by name, the reason why others are missing. Ratios are to the group's references; the first of them is the bare cost of
the same work and stands for 1.
"""

import dataclasses
import math
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = pathlib.Path(os.environ.get("CAISSON_BENCH_PROGRAMS", ROOT / "build/release/src"))
CAISSON = PROGRAMS / "caisson"
RUNS = PROGRAMS / "bench_runs"
PYTHON = "/usr/bin/python3"


class Missing(Exception):
    """A contender that cannot be measured here; the text says why, and how to get it."""


@dataclasses.dataclass
class Contender:
    enforces: str = ""
    version: str = ""
    samples: list = dataclasses.field(default_factory=list)


def p50(samples):
    return statistics.median(samples)


def p95(samples):
    return sorted(samples)[math.ceil(0.95 * len(samples)) - 1]


@dataclasses.dataclass
class Group:
    name: str
    title: str
    unit: str
    references: tuple = ("bare",)
    better: str = "lower"
    ratio_of: str = "medians"  # or "rounds": the median of each round's ratio, when a round's samples were taken together
    goals: dict = dataclasses.field(default_factory=dict)  # contender -> {reference: the ratio it should not be worse than}
    contenders: dict = dataclasses.field(default_factory=dict)
    missing: dict = dataclasses.field(default_factory=dict)
    notes: list = dataclasses.field(default_factory=list)

    def add(self, name, samples, enforces="", version=""):
        self.contenders[name] = Contender(enforces, version, list(samples))

    def ratio(self, name, reference):
        samples, base = self.contenders[name].samples, self.contenders[reference].samples
        if self.ratio_of == "rounds":
            return p50([mine / theirs for mine, theirs in zip(samples, base)])
        return p50(samples) / p50(base)

    def ratios(self, name):
        return {reference: self.ratio(name, reference) for reference in self.references if reference in self.contenders}

    def document(self):
        contenders = [{"name": name, "enforces": it.enforces, "version": it.version, "p50": p50(it.samples), "p95": p95(it.samples),
                       "ratios": self.ratios(name), "goals": self.goals.get(name, {}), "samples": it.samples}
                      for name, it in self.contenders.items() if it.samples]
        return {"name": self.name, "title": self.title, "unit": self.unit, "better": self.better, "references": list(self.references),
                "ratio_of": self.ratio_of, "contenders": contenders, "missing": self.missing, "notes": self.notes}


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:100]}", end="", file=sys.stderr, flush=True)


def in_turns(group, actions, rounds, warm_up):
    """Takes one sample of each contender a round, in random order, so that other load affects all alike.

    `actions` are name -> function that returns a sample. One that fails in its first round is missing, with the reason; a
    failure later ends the benchmark, for then the samples before it are not to be trusted either."""
    actions = dict(actions)
    for number in range(warm_up + rounds):
        progress(f"{group.name}: round {number + 1} of {warm_up + rounds}")
        for name in random.sample(list(actions), len(actions)):
            try:
                sample = actions[name]()
            except Missing as reason:
                if number > 0:
                    raise SystemExit(f"bench: {name} failed in round {number}: {reason}") from None
                group.missing[name] = str(reason)
                del actions[name], group.contenders[name]
                continue
            if number >= warm_up:
                group.contenders[name].samples.append(sample)
    progress("")


NULL = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]


def spawn(argv, environment=None, file_actions=(), code=0):
    """posix_spawn and wait, nothing piped: milliseconds as the shell sees them.

    Each in a session of its own, as sandboxes make themselves one: the scheduler shares a busy machine between sessions
    (sched_autogroup), and what stays in ours would get less of it."""
    path = argv[0] if "/" in argv[0] else shutil.which(argv[0])
    environment = os.environ if environment is None else environment
    begin = time.perf_counter()
    pid = os.posix_spawn(path, argv, environment, file_actions=[*NULL, *file_actions], setsid=True)
    _, status = os.waitpid(pid, 0)
    elapsed = (time.perf_counter() - begin) * 1000
    if os.waitstatus_to_exitcode(status) != code:
        raise Missing(f"does not work on this machine: {last_words(argv, environment, file_actions) or f'wait status {status}'}")
    return elapsed


def last_words(argv, environment, file_actions):
    """What it says when it fails: run once more, with its standard error kept."""
    read, write = os.pipe()
    path = argv[0] if "/" in argv[0] else shutil.which(argv[0])
    pid = os.posix_spawn(path, argv, environment, file_actions=[*NULL, *file_actions, (os.POSIX_SPAWN_DUP2, write, 2)])
    os.close(write)
    with open(read, "rb") as stream:
        text = stream.read().decode(errors="replace").strip()
    os.waitpid(pid, 0)
    return text.splitlines()[-1] if text else ""


def first_line(*argv):
    """What a program says of its version."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return next(iter((done.stdout or done.stderr).strip().splitlines()), "unknown")


def caisson_version():
    return first_line(CAISSON, "--version")


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Missing(f"{what} did not come within {seconds} s")
        time.sleep(0.01)

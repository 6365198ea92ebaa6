"""steady: what work costs inside, once the sandbox stands, compared with the same work outside.

Each workload times itself (steady_inside.py, calls.c), so that the start is not counted. A round does it once inside and
once outside, in random order, and the ratio is the median of the rounds' ratios. Inside it writes to /scratch, a tmpfs;
outside to a directory on a tmpfs too. What comes out must be the same.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile

from measure import CAISSON, PYTHON, Contender, Group, Missing, caisson_version, in_turns
from start import WALLS

HERE = pathlib.Path(__file__).resolve().parent
# Workload -> (title by measure, most that it may cost, as a ratio).
WORKLOADS = {
    "python_loop": ({"python_loop": "a loop in Python"}, 1.01),
    "c_loop": ({"c_loop": "a loop in C"}, 1.01),
    "gcc": ({"gcc": "eight C files compiled and linked"}, 1.05),
    "git_clone": ({"git_clone": "git clone of a local repository with 2,000 files"}, 1.15),
    "files": ({name: f"{name} on tmpfs" for name in ("10,000 files written", "10,000 files read", "10,000 files removed")}, 1.15),
}
LOOP = """#include <stdio.h>
#include <stdlib.h>
int main(int count, char** words) {
  unsigned long long x = 88172645463325252ull;
  for (long i = count > 1 ? atol(words[1]) : 1; i > 0; --i) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; }
  printf("%llu", x);
}
"""


def measure(options, directory):
    place = pathlib.Path(directory) / "workspace"
    prepare(place, options.scale)
    groups = []
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="caisson-bench-", dir=tmpfs()))
        for name, (titles, goal) in WORKLOADS.items():
            groups += compare(name, titles, goal, options, place, scratch)
        groups += compare_calls(options, place, scratch)
    return groups


def tmpfs():
    """A directory on the same kind of file system as /scratch."""
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, place, kind, flags, *_ = line.split()
        if kind == "tmpfs" and place in ("/dev/shm", "/run/shm", "/tmp") and "rw" in flags.split(",") and os.access(place, os.W_OK):
            return place
    raise SystemExit("bench: no writable tmpfs at /dev/shm or /tmp to compare /scratch with")


def prepare(place, scale):
    """What the workloads need, the same bytes every time."""
    place.mkdir(mode=0o755)
    shutil.copy(HERE / "steady_inside.py", place)
    (place / "loop.c").write_text(LOOP)
    for source, program in ((place / "loop.c", "loop"), (HERE / "calls.c", "calls")):
        subprocess.run(["gcc", "-O2", "-static", "-o", place / program, source], check=True)
    chance = random.Random(1)
    sources = place / "source"
    sources.mkdir()
    for number in range(8):
        (sources / f"part{number}.c").write_text(c_source(number, chance, round(50 * scale)))
    repository = place / "repository"
    for number in range(round(2000 * scale)):
        path = repository / f"{number % 40}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(chance.randrange(200, 4000)))
    git = ["git", "-C", repository, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "files"]):
        subprocess.run([*git, *command], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["chmod", "-R", "go+rX", place], check=True)


def c_source(number, chance, functions):
    """That many functions; the first file has main."""
    body = ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>"]
    for function in range(max(2, functions)):
        a, b, c = (chance.randrange(1, 1000) for _ in range(3))
        body.append(f"int f{number}_{function}(int n, const char* s) {{\n  int t = {a};\n  for (int i = 0; i < n; ++i) {{\n"
                    f"    if (s[i % {b}] == 'x') t += i * {c}; else t ^= (int)strlen(s) + i;\n"
                    f"    switch (t & 7) {{ case 1: t += {a}; break; case 3: t *= {b}; break; default: t -= {c}; }}\n  }}\n"
                    f"  return t;\n}}")
    if number == 0:
        body.append('int main(void) { printf("%d\\n", f0_1(10, "xyz")); return 0; }')
    return "\n".join(body) + "\n"


def argv_of(side, place, program, *arguments):
    if side == "bare":
        return [program.format(place), *(argument.format(place) for argument in arguments)]
    inside = [program.format("/workspace"), *(argument.format("/workspace") for argument in arguments)]
    return [str(CAISSON), "run", "--quiet", "--timeout", "10m", "--workspace", str(place), "--", *inside]


def output_of(argv):
    environment = {name: value for name, value in os.environ.items() if name != "CAISSON_LAUNCHER"}
    # A session of its own on both sides: see measure.spawn.
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, start_new_session=True)
    if not done.stdout:
        raise Missing(f"does not work on this machine: {done.stderr.strip() or f'exit {done.returncode}'}")
    return json.loads(done.stdout.splitlines()[-1])


def compare_columns(groups, options, rounds, measurement):
    """Fills groups by name from `measurement(side)`, which returns one sample for each of them."""
    whole = Group(next(iter(groups.values())).name, "", "")
    whole.contenders = {side: Contender() for side in ("bare", "caisson")}
    in_turns(whole, {side: lambda side=side: measurement(side) for side in whole.contenders}, options.rounds_of(rounds), warm_up=1)
    for name, group in groups.items():
        group.missing.update(whole.missing)
        for side, contender in whole.contenders.items():
            group.add(side, [sample[name] for sample in contender.samples], "nothing" if side == "bare" else WALLS,
                      "" if side == "bare" else caisson_version())
    return list(groups.values())


def compare(name, titles, goal, options, place, scratch):
    groups = {measure: Group(f"steady-{measure.replace(' ', '-').replace(',', '')}", title, "ms", ratio_of="rounds",
                             goals={"caisson": {"bare": goal}}) for measure, title in titles.items()}
    digests = set()

    def measurement(side):
        argv = argv_of(side, place, PYTHON, "{}/steady_inside.py", name, scratch if side == "bare" else "/scratch", str(options.scale))
        result = output_of(argv)
        digests.add(result["digest"])
        if len(digests) != 1:
            raise SystemExit(f"bench: {name} gives other bytes inside than outside")
        return {measure: seconds * 1000 for measure, seconds in result["seconds"].items()}

    return compare_columns(groups, options, 15, measurement)


CALLS = {
    "getppid": "getppid",
    "open to read, close": "a file opened to read and closed (two calls)",
    "open to write, close": "a file opened to write, as it may be, and closed (two calls, one observed)",
    "open to write, refused": "an open to write that is refused (observed)",
    "connect, refused": "a connect that is refused (observed)",
}


def compare_calls(options, place, scratch):
    groups = {call: Group(f"call-{call.replace(', ', '-').replace(' ', '-')}", f"one system call: {title}", "ns", ratio_of="rounds")
              for call, title in CALLS.items()}
    return compare_columns(groups, options, 15, lambda side: output_of(
        argv_of(side, place, "{}/calls", str(options.scale), scratch if side == "bare" else "/scratch")))

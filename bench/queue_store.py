"""queue: the store alone, by queue_bench (bench/queue.cc), a few times over."""

import json
import os
import pathlib
import subprocess

from measure import ROOT, Group, progress

PROGRAM = pathlib.Path(os.environ.get("CAISSON_QUEUE_BENCH", ROOT / "build/dev/tests/queue_bench"))


def measure(options, directory):
    group = Group("queue", "jobs submitted, claimed, advanced and finished by the store alone, every commit on the disk", "per second",
                  references=(), better="higher")
    if not PROGRAM.exists():
        group.missing["queue_bench"] = "not built; ./dev bench queue builds it"
        return [group]
    for number in range(options.rounds_of(3)):
        progress(f"queue: round {number + 1}")
        done = subprocess.run([PROGRAM, str(max(1, round(options.seconds)))], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench: queue_bench failed: {done.stderr.strip()}")
        for row in json.loads(done.stdout.splitlines()[-1])["measurements"]:
            name = f"{row['store']}, {row['clients']} client{'s' if row['clients'] > 1 else ''}"
            if name not in group.contenders:
                group.add(name, [])
            group.contenders[name].samples.append(row["jobs_per_second"])
        if "without PostgreSQL" in done.stderr:
            group.missing["PostgreSQL"] = done.stderr.strip().splitlines()[-1]
    progress("")
    return [group]

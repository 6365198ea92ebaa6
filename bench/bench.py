#!/usr/bin/python3 -B
"""Every benchmark of Caisson: ./dev bench [PART…] [OPTIONS].

    ./dev bench                     all parts
    ./dev bench start steady        these: start, python, steady, density, service, queue, egress
    ./dev bench --rounds 300        three times as many rounds as usual, in all parts
    ./dev bench --publish           and put the tables and the plot into the documents (all parts, nothing quick)
    ./dev bench peers               fetch the peers that Debian does not install (below build/peers)

Contenders of one comparison are measured in turns, in random order within a round, so that other load on the machine
affects all alike. Numbers are the median and the 95th percentile; ratios are to the bare cost of the same work in the
same rounds. The tables also print what each contender was asked to enforce. Each part's method is in the head of its
file.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import sys
import tempfile
import time

import density
import egress
import plot
import publish
import python_files
import queue_store
import service
import start
import steady
from measure import CAISSON, ROOT, RUNS, caisson_version

PARTS = {"start": start, "python": python_files, "steady": steady, "density": density, "service": service, "queue": queue_store,
         "egress": egress}
QUICK_ROUNDS = 2


def parse(words):
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all of them unless named")
    parser.add_argument("--rounds", type=int, default=100, help="100 is each part's usual number")
    parser.add_argument("--quick", action="store_true", help="two rounds of everything: does it work, not how fast is it")
    parser.add_argument("--seconds", type=float, default=3, help="of a window in which throughput is counted")
    parser.add_argument("--sandboxes", type=int, default=1000, help="alive at once, for density")
    parser.add_argument("--jobs", type=int, default=300, help="of the service, for each number of clients")
    parser.add_argument("--clients", default="1,8,64", help="of the service")
    parser.add_argument("--store", default="sqlite,postgres", help="of the service")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "build/bench/results.json", help="where the numbers go; the plot beside it")
    parser.add_argument("--publish", action="store_true", help="write the tables into the documents")
    options = parser.parse_args(words)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}: {', '.join(PARTS)}")
    if options.publish and (options.parts or options.quick):
        parser.error("--publish is for all parts, with all their rounds")
    if options.quick:
        options.seconds, options.sandboxes, options.jobs, options.clients = 0.3, 4, 4, "1,2"
    options.scale = 0.02 if options.quick else 1  # of work that has a size
    options.clients = [int(number) for number in options.clients.split(",")]
    options.stores = options.store.split(",")
    options.rounds_of = lambda usual: min(usual, QUICK_ROUNDS) if options.quick else max(3, round(usual * options.rounds / 100))
    return options


def field(path, name):
    """The value of the first line `name: value` of a file of /proc."""
    for line in pathlib.Path(path).read_text().splitlines():
        if line.split(":")[0].strip() == name:
            return line.split(":", 1)[1].strip()
    return "unknown"


def busy(seconds=1):
    """The share of all CPUs that others use."""
    def ticks():
        values = [int(value) for value in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(values), values[3] + values[4]
    whole, idle = ticks()
    time.sleep(seconds)
    whole_later, idle_later = ticks()
    return 1 - (idle_later - idle) / max(1, whole_later - whole)


def machine():
    return {"cpu": field("/proc/cpuinfo", "model name"), "cores": os.cpu_count(),
            "memory_mib": int(field("/proc/meminfo", "MemTotal").split()[0]) // 1024, "kernel": platform.release(),
            "system": platform.freedesktop_os_release().get("PRETTY_NAME", "unknown"),
            "caller": "root" if os.geteuid() == 0 else "ordinary user",
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "busy_before": busy()}


def main():
    options = parse(sys.argv[1:])
    for program in (CAISSON, RUNS):
        if not program.exists():
            sys.exit(f"bench: {program} is not built; ./dev bench builds it")
    results = {"command": shlex.join(["./dev", "bench", *sys.argv[1:]]), "caisson": caisson_version(), "machine": machine(),
               "quick": options.quick, "parts": {}}
    print(publish.heading(results), flush=True)
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="caisson-bench-") as directory:
            pathlib.Path(directory).chmod(0o755)
            groups = [group.document() for group in PARTS[name].measure(options, directory)]
        results["parts"][name] = groups
        for group in groups:
            print(publish.text_table(group), flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1) + "\n")
    drawing = options.json.with_suffix(".svg")
    drawing.write_text(plot.draw(results))
    print(f"numbers: {options.json}\nplot: {drawing}")
    if options.publish:
        publish.publish(results)


if __name__ == "__main__":
    main()

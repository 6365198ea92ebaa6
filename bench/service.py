#!/usr/bin/python3 -B
"""What the service costs: from submitting a trivial job to having its result, and jobs per second.

    bench/service.py [--clients 1,8,64] [--jobs N] [--store sqlite,postgres]      (./dev bench service)

Each job runs /bin/true in a sandbox with all walls. Clients submit with ?wait=60s over the unix socket, each on a
connection of its own, and submit again when they have the result. `sandbox` is the time the result itself states for
its run; `added` is all the rest: HTTP, queue, two commits that reach the disk (the job is taken, the job ended), audit
records that do as well, and the wait for a worker. With more clients than workers that wait is most of it.

`disk` is the median of a 4 KiB write with fdatasync beside the database, measured before: the floor of each commit.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("CAISSON_BIN", str(ROOT / "build/release/src/caisson"))
from support import postgres  # noqa: E402
from support.service import Service, UnixConnection  # noqa: E402

BODY = json.dumps({"source": {"files": {"main.py": ""}},
                   "checks": [{"name": "true", "tier": "run", "argv": ["/bin/true"]}]})
HEADERS = {"Host": "localhost", "Content-Type": "application/json"}


def disk(directory):
    times = []
    path = directory / "probe"
    with open(path, "wb", buffering=0) as file:
        for _ in range(100):
            begin = time.perf_counter()
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begin)
    path.unlink()
    return statistics.median(times) * 1e3


def measure(service, clients, jobs):
    latencies, sandbox, lock = [], [], threading.Lock()

    def client(count):
        connection = UnixConnection(service.socket, 120)
        for _ in range(count):
            begin = time.perf_counter()
            connection.request("POST", "/v1/jobs?wait=60s", BODY, HEADERS)
            answer = connection.getresponse()
            document = json.loads(answer.read())
            took = (time.perf_counter() - begin) * 1e3
            if answer.status != 200 or document["status"] != "pass":
                raise SystemExit(f"{answer.status}: {document}")
            with lock:
                latencies.append(took)
                sandbox.append(document["duration_ms"])

    threads = [threading.Thread(target=client, args=(max(1, jobs // clients),)) for _ in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    latencies.sort()
    added = sorted(took - ran for took, ran in zip(latencies, sorted(sandbox)))
    return {"clients": clients, "jobs": len(latencies), "per_second": len(latencies) / seconds,
            "p50_ms": statistics.median(latencies), "p99_ms": latencies[int(len(latencies) * 0.99)],
            "sandbox_p50_ms": statistics.median(sandbox), "added_p50_ms": statistics.median(added)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--store", default="sqlite,postgres")
    parser.add_argument("--json", help="also write the numbers to this file")
    options = parser.parse_args()
    print(f"{platform.node()}, {os.cpu_count()} CPUs, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
    rows = []
    for name in options.store.split(","):
        server = postgres.Postgres() if name == "postgres" else None
        if server:
            server.__enter__()
        try:
            keys = {"database": server.database()} if server else {}
            with Service(lease="15s", **keys) as service:
                floor = disk(service.root)
                measure(service, 1, 20)
                for clients in map(int, options.clients.split(",")):
                    row = {"store": name, "disk_ms": floor, **measure(service, clients, options.jobs)}
                    rows.append(row)
                    print("{store:9} {clients:3} clients  {per_second:7.1f} jobs/s  p50 {p50_ms:7.1f} ms  p99 {p99_ms:7.1f} ms  "
                          "sandbox {sandbox_p50_ms:5.1f} ms  added {added_p50_ms:7.1f} ms  disk {disk_ms:4.1f} ms".format(**row),
                          flush=True)
        finally:
            if server:
                server.__exit__()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

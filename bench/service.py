"""service: the time from submitting a trivial job to its result, and jobs per second.

Each job runs /bin/true in a sandbox with all walls. Clients submit with ?wait=60s over the unix socket, each on a
connection of its own, and submit again when they have the result. `sandbox` is the time that the results state for their
runs; all the rest is HTTP, queue, two commits that reach the disk (the job is taken, the job ended), audit records that do
as well, and the wait for a worker. With more clients than workers that wait is most of it. `disk` is a 4 KiB write with
fdatasync beside the database, measured before: the floor of each commit.
"""

import contextlib
import json
import os
import sys
import threading
import time
import unittest

from measure import CAISSON, PROGRAMS, ROOT, Group, progress

sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("CAISSON_BIN", str(CAISSON))
from support import postgres  # noqa: E402
from support.service import Service, UnixConnection  # noqa: E402

STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
BODY = json.dumps({"source": {"files": {"main.py": ""}},
                   "checks": [{"name": "true", "tier": "run", "argv": ["/bin/true"]}]})
HEADERS = {"Host": "localhost", "Content-Type": "application/json"}


def measure(options, directory):
    rate = Group("service-rate", "trivial jobs submitted and waited for", "per second", references=(), better="higher")
    groups = []
    for store in options.stores:
        group = Group(f"service-{store}", f"a trivial job from submit to result, one client, {STORES[store]}", "ms", references=("sandbox",))
        groups.append(group)
        if not os.access(PROGRAMS / "caissond", os.X_OK):
            group.missing["caissond"] = "not built; ./dev bench service builds it"
            continue
        try:
            serve(options, store, group, rate)
        except unittest.SkipTest as reason:
            group.missing[STORES[store]] = str(reason)
    if not rate.contenders:
        rate.missing["caissond"] = "no store could be measured"
    return [*groups, rate]


def serve(options, store, group, rate):
    with contextlib.ExitStack() as stack:
        keys = {"database": stack.enter_context(postgres.Postgres()).database()} if store == "postgres" else {}
        service = stack.enter_context(Service(lease="15s", **keys))
        group.add("disk", disk(service.root))
        ask(service, 1, options.rounds_of(20))
        for clients in options.clients:
            progress(f"service: {STORES[store]}, {clients} clients")
            latencies, sandbox, seconds = ask(service, clients, options.jobs)
            if clients == 1:
                group.add("sandbox", sandbox)
                group.add("submit to result", latencies)
            rate.add(f"{STORES[store]}, {clients} client{'s' if clients > 1 else ''}", [len(latencies) / seconds])
    progress("")


def disk(directory):
    times = []
    path = directory / "probe"
    with open(path, "wb", buffering=0) as file:
        for _ in range(100):
            begin = time.perf_counter()
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - begin) * 1e3)
    path.unlink()
    return times


def ask(service, clients, jobs):
    """Milliseconds of each job, what each says its sandbox took, and the seconds of all."""
    latencies, sandbox, lock, faults = [], [], threading.Lock(), []

    def client(count):
        connection = UnixConnection(service.socket, 120)
        for _ in range(count):
            begin = time.perf_counter()
            connection.request("POST", "/v1/jobs?wait=60s", BODY, HEADERS)
            answer = connection.getresponse()
            document = json.loads(answer.read())
            took = (time.perf_counter() - begin) * 1e3
            if answer.status != 200 or document["status"] != "pass":
                faults.append(f"{answer.status}: {document}")
                return
            with lock:
                latencies.append(took)
                sandbox.append(document["duration_ms"])

    threads = [threading.Thread(target=client, args=(max(1, jobs // clients),)) for _ in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise SystemExit(f"bench: a job failed: {faults[0]}")
    return latencies, sandbox, time.perf_counter() - begin

"""Kills caissond, launchers, supervisors and PostgreSQL at random while jobs run, and checks that nothing was lost.

    tests/service/chaos_test.py --jobs 1000 --seed 7      by hand: one round on each database
    CAISSON_CHAOS_JOBS=1000 ./dev test chaos              the same as a test

The moments and the victims follow from the seed. What must hold at the end: each idempotency key has exactly one job,
each job exactly one result, the audit chain is intact, and no process, cgroup or mount is left.
"""

import argparse
import collections
import contextlib
import http.client
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson, postgres  # noqa: E402
from support.service import Service  # noqa: E402

# What the jobs do, with the state each must end in whatever happens on the way.
PROGRAMS = [
    ("print('hello')", "succeeded"),
    ("raise SystemExit(3)", "failed"),
    ("import time; time.sleep(0.3); print('slow')", "succeeded"),
    ("open('/workspace/x', 'w')", "failed"),
    ("import os; os.fork(); print('two')", "succeeded"),
]
CLIENTS = 4


class Round:
    def __init__(self, jobs, seed, server=None, **keys):
        self.random = random.Random(seed)
        self.jobs = jobs
        self.server = server
        if server:
            keys["database"] = server.database()
        # Deaths that the chaos causes are many more than a job should have to survive in life.
        self.service = Service(workers=4, max_attempts=100, drain="1s", **keys)
        self.ids = {}
        self.stop = threading.Event()
        self.deaths = collections.Counter()
        self.lock = threading.Lock()

    def submit(self, client):
        for number in range(client, self.jobs, CLIENTS):
            program, _ = PROGRAMS[number % len(PROGRAMS)]
            while not self.stop.is_set():
                # A client without an answer asks again with the same key.
                with contextlib.suppress(OSError, http.client.HTTPException):
                    answer = self.service.submit(program, key=f"key-{number}")
                    if answer.status in (200, 202):
                        with self.lock:
                            self.ids.setdefault(number, set()).add(answer.json["job_id"])
                        break
                    if answer.status not in (429, 500, 503):
                        raise AssertionError(f"{answer.status}: {answer.body}")
                time.sleep(0.05)

    def kill_something(self):
        victims = ["caissond", "caisson-launcher", "supervisor"] + (["postgres"] if self.server else [])
        victim = self.random.choice(victims)
        self.deaths[victim] += 1
        if victim == "caissond":
            self.service.kill()
            self.service.start()
        elif victim == "postgres":
            self.server.kill()
            time.sleep(self.random.random())
            self.server.start()
        else:
            # The launcher and the supervisors it forked are one program: the oldest is the launcher.
            pids = sorted(self.service.processes("caisson-launcher"))[:1]
            with contextlib.suppress(OSError):
                if victim == "supervisor" and pids:  # or what else it has: parked ones, an interpreter
                    children = pathlib.Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text().split()
                    pids = [int(pid) for pid in children]
                if pids:
                    os.kill(self.random.choice(pids), signal.SIGKILL)

    def ended(self):
        counts = collections.Counter()
        cursor = ""
        while True:
            page = self.service.request("GET", f"/v1/jobs?limit=500{cursor}").json
            counts.update(job["state"] for job in page["jobs"])
            if not page.get("next_cursor"):
                break
            cursor = f"&cursor={page['next_cursor']}"
        done = sum(counts[state] for state in ("succeeded", "failed", "rejected", "cancelled", "dead_lettered"))
        return True if done == self.jobs else dict(counts)

    def check(self):
        for number in range(self.jobs):
            ids = self.ids[number]
            assert len(ids) == 1, f"key-{number} has the jobs {ids}"
            (job_id,) = ids
            job = self.service.job(job_id)
            assert job["state"] == PROGRAMS[number % len(PROGRAMS)][1], job
            results = [event for event in self.service.events(job_id) if event["type"] == "result"]
            assert len(results) == 1, f"{job_id} has {len(results)} results"
        assert len({next(iter(ids)) for ids in self.ids.values()}) == self.jobs
        self.service.audit_verify()

    def run(self):
        leftovers = caisson.Leftovers(None, marker=str(self.service.state))
        with self.service as service:
            clients = [threading.Thread(target=self.submit, args=(client,)) for client in range(CLIENTS)]
            for client in clients:
                client.start()
            # About one death for every eight jobs, and never fewer than one of each kind can be expected.
            for _ in range(max(12, self.jobs // 8)):
                time.sleep(self.random.uniform(0.05, 0.6))
                self.kill_something()
            for client in clients:
                client.join()
            caisson.wait_until(self.ended, 120 + self.jobs, "jobs end")
            self.check()
            retries = service.metric('caisson_attempts_failed_total{cause="lost_worker"}')
            self.stop.set()
            assert service.stop() == 0
            leftovers.assert_none(30)
        return retries


def has_zygote():
    return (caisson.find_binary().parent / "caisson_zygote.so").exists()


class Chaos(unittest.TestCase):
    JOBS = int(os.environ.get("CAISSON_CHAOS_JOBS", "40"))
    SEED = int(os.environ.get("CAISSON_CHAOS_SEED", "1"))

    def one(self, server=None, **keys):
        chaos = Round(self.JOBS, self.SEED, server, **keys)
        chaos.run()
        print(f"{self.JOBS} jobs, seed {self.SEED}, deaths {dict(chaos.deaths)}: none lost, none doubled", flush=True)
        self.assertGreater(sum(chaos.deaths.values()), 0)

    def test_sqlite(self):
        self.one()

    def test_warm_starts(self):
        self.one(parked=4, **({"python_modules": ["json"]} if has_zygote() else {}))

    def test_postgres(self):
        with postgres.Postgres() as server:
            self.one(server)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=Chaos.JOBS)
    parser.add_argument("--seed", type=int, default=Chaos.SEED)
    options, rest = parser.parse_known_args()
    Chaos.JOBS, Chaos.SEED = options.jobs, options.seed
    unittest.main(argv=[sys.argv[0], *rest])

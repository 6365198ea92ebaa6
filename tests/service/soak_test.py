"""Many jobs, one service: memory and descriptors of caissond and its launcher stay where they were.

CAISSON_SOAK_JOBS=10000 runs the long one. Memory is compared between the end of the first quarter, when caches and
pools have their size, and the end; the allowance covers what the allocator keeps from one peak to the next.
"""

import json
import os
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson  # noqa: E402
from support.service import Service, UnixConnection  # noqa: E402

# What an AddressSanitizer keeps back of freed memory is not the service's.
os.environ.setdefault("ASAN_OPTIONS", "quarantine_size_mb=1:thread_local_quarantine_size_kb=16")
JOBS = int(os.environ.get("CAISSON_SOAK_JOBS", "200"))
CLIENTS = 8
ALLOWED_GROWTH = 8 << 20
BODY = json.dumps({"source": {"files": {"main.py": "print('x' * 1000)"}},
                   "checks": [{"name": "echo", "tier": "run", "argv": ["/bin/echo", "hello"]}]})


def allowed_growth(pid):
    """What a sanitizer keeps beside every byte grows with the byte. Nothing else reserves terabytes for it."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[0])
    return ALLOWED_GROWTH * (8 if pages * os.sysconf("SC_PAGESIZE") > 1 << 40 else 1)


def size_of(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
        memory = next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return memory, len(os.listdir(f"/proc/{pid}/fd"))


class Soak(unittest.TestCase):
    def run_jobs(self, service, count):
        def client(share):
            connection = UnixConnection(service.socket, 120)
            for _ in range(share):
                connection.request("POST", "/v1/jobs?wait=60s", BODY, {"Host": "localhost", "Content-Type": "application/json"})
                answer = connection.getresponse()
                document = json.loads(answer.read())
                if document.get("status") != "pass":
                    faults.append(document)
            connection.close()
        faults = []
        threads = [threading.Thread(target=client, args=(count // CLIENTS,)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])

    def measure(self, service):
        # Between jobs, when nothing of a run is left.
        caisson.wait_until(lambda: service.metric('caisson_workers{state="busy"}') == 0 or "busy", 30, "idle")
        caisson.wait_until(lambda: len(service.processes("caisson-launcher")) == 1 or "runs", 30, "no supervisor is left")
        return {name: size_of(min(service.processes(name))) for name in ("caissond", "caisson-launcher")}

    def test_nothing_grows(self):
        with Service(max_queue=0) as service:
            self.run_jobs(service, JOBS // 4)
            before = self.measure(service)
            self.run_jobs(service, JOBS - JOBS // 4)
            after = self.measure(service)
            for name in before:
                print(f"{name}: {before[name][0] >> 10} KiB, {before[name][1]} descriptors after {JOBS // 4} jobs; "
                      f"{after[name][0] >> 10} KiB, {after[name][1]} after {JOBS}", flush=True)
                self.assertLessEqual(after[name][0], before[name][0] + allowed_growth(min(service.processes(name))), name)
                self.assertLessEqual(after[name][1], before[name][1] + 2, name)


if __name__ == "__main__":
    unittest.main()

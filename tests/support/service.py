"""Starts caissond and talks to it, as its clients do."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from support import caisson


def memory_scale(pid):
    """What a sanitizer keeps beside every byte counts too: a program with one may have eight times the memory. Nothing else
    reserves terabytes."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[0])
    return 8 if pages * os.sysconf("SC_PAGESIZE") > 1 << 40 else 1


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Service:
    """A caissond with a state directory of its own. `with Service() as service:` starts and drains it."""

    def __init__(self, root=None, node="one", **keys):
        self.programs = caisson.find_binary().parent
        if not os.access(self.programs / "caissond", os.X_OK):
            raise SystemExit("caissond is not built")
        self.owns_root = root is None
        self.root = pathlib.Path(root or tempfile.mkdtemp(prefix="caisson-test-service-", dir="/tmp"))
        self.state = self.root / node
        self.socket = self.state / "caissond.sock"
        self.audit = self.state / "audit.jsonl"
        self.log = self.root / f"{node}.log"
        self.config = self.root / f"{node}.yaml"
        self.process = None
        # Short, so that tests of what happens after them need not wait.
        settings = {"state_dir": self.state, "node": node, "lease": "2s", "retry_initial": "50ms", "retry_max": "1s"}
        settings.update(keys)
        self.config.write_text("".join(f"{key}: {self._yaml(value)}\n" for key, value in settings.items()))

    @staticmethod
    def _yaml(value):
        if isinstance(value, (list, dict)):
            return json.dumps(value)
        return f"'{value}'" if isinstance(value, str) else str(value)

    def start(self, *flags):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.programs / "caissond", "--config", self.config, *flags],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        caisson.wait_until(self._answers, 60, "caissond starts")
        return self

    def _answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"caissond ended with {self.process.returncode}:\n{self.log.read_text()}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.request("GET", "/healthz").status == 200
        return False

    def stop(self, signal_number=signal.SIGTERM, seconds=60):
        if self.process is None:
            return None
        self.process.send_signal(signal_number)
        code = self.process.wait(seconds)
        self.process = None
        return code

    def kill(self):
        return self.stop(signal.SIGKILL)

    def request(self, method, path, body=None, headers=None, timeout=60):
        connection = UnixConnection(self.socket, timeout)
        sent = {"Host": "localhost", **(headers or {})}
        if body is not None:
            body = body if isinstance(body, (bytes, str)) else json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def submit(self, program, key=None, wait=None, **fields):
        """Submits one Python program; gives the answer."""
        body = {"source": {"files": {"main.py": program}}, **fields}
        headers = {"Idempotency-Key": key} if key else {}
        return self.request("POST", "/v1/jobs" + (f"?wait={wait}" if wait else ""), body, headers)

    def job(self, job_id):
        return self.request("GET", f"/v1/jobs/{job_id}").json

    def wait_for(self, job_id, states, seconds=60):
        states = {states} if isinstance(states, str) else set(states)
        deadline = time.monotonic() + seconds
        while True:
            job = self.job(job_id)
            if job["state"] in states:
                return job
            if time.monotonic() > deadline:
                raise AssertionError(f"job {job_id} is still {job['state']}, not {states}")
            time.sleep(0.02)

    def events(self, job_id):
        return self.request("GET", f"/v1/jobs/{job_id}/events?limit=1000").json["events"]

    def metric(self, name):
        """The value of a series, spelt as /metrics has it; 0 when it is absent."""
        for line in self.request("GET", "/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def processes(self, program):
        """Process numbers of this service's own `caissond`, `caisson-launcher` …: those started with its state."""
        found = []
        for pid, command in caisson.processes(marker=str(self.state)).items():
            if os.path.basename(command.split(b"\0")[0].decode()) == program:
                found.append(pid)
        return found

    def audit_verify(self):
        done = subprocess.run([self.programs / "caisson", "audit", "verify", self.audit], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()
            if self.process is not None:
                self.kill()
        if self.owns_root:
            # Sessions outlive their service; those of a directory that goes away have no other end.
            for pid, command in caisson.processes(marker=f"{self.root}/").items():
                if b"supervise" in command:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.root, ignore_errors=True)

"""One tenant abuses the service in every way at once, at full speed; the other one is not disturbed.

The quiet tenant submits small jobs, one after the other, first alone and then beside the abuse. Nothing of it may fail, and
caissond stays below 128 MiB. Both distributions of submit-to-result are printed; how far they are apart depends on how
many CPUs the machine has for the abuser's own programs, so the ratio is asserted only where CAISSON_ABUSE_RATIO says so.

CAISSON_ABUSE_SECONDS=600 runs the long form.

The abuser is a process of its own: threads beside the quiet tenant's client would share Python's interpreter lock with it,
and the measured delay would be the client's.
"""

import contextlib
import hashlib
import http.client
import http.server
import io
import json
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson  # noqa: E402
from support.service import Service, memory_scale  # noqa: E402
from support.tokens import port_of  # noqa: E402

SECONDS = float(os.environ.get("CAISSON_ABUSE_SECONDS", "45"))
RATIO = float(os.environ.get("CAISSON_ABUSE_RATIO", "0"))
MIB = 1 << 20
MOST_MEMORY = 128 * MIB
INSTALL = [{"name": "install", "tier": "run", "argv": ["/usr/bin/pip", "install", "nothing"]}]


def files(program, **fields):
    return {"source": {"files": {"main.py": program}}, **fields}


def memory_of(pid):
    """What caissond holds now, and the most it ever held."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return tuple(int(next(line for line in status.splitlines() if line.startswith(name)).split()[1]) * 1024
                 for name in ("VmRSS:", "VmHWM:"))


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("nan")


def gzip_layers():
    data = b"x" * 2048
    for _ in range(24):
        packer = zlib.compressobj(1, zlib.DEFLATED, -15)
        data = (b"\x1f\x8b\x08\x08" + bytes(5) + b"\xff" + b"q" * MIB + b"\0" + packer.compress(data) + packer.flush()
                + struct.pack("<LL", zlib.crc32(data), len(data)))
    return data


def tar_of(name, data):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Abuser:
    """Every method is one kind of abuse, repeated by a thread of its own until the end."""

    def __init__(self, port, token, callback, victim_hash):
        self.port, self.token, self.callback, self.victim_hash = port, token, callback, victim_hash
        self.stop = threading.Event()
        self.counts = {}
        self.leaks = []
        self.kept = threading.Semaphore(600)
        self.random = random.Random(1)
        self.layers, self.noise = gzip_layers(), os.urandom(4 * MIB)

    def ask(self, method, path, body=None, headers=None, timeout=20):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout, source_address=("127.0.0.2", 0))
        sent = {"Authorization": self.token, **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def submit(self, body):
        status, answer = self.ask("POST", "/v1/jobs", body)
        return json.loads(answer)["job_id"] if status == 202 else None

    def hold(self, data, seconds, address="127.0.0.2"):
        """A connection that sends, reads nothing, and stays."""
        with contextlib.suppress(OSError):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.bind((address, 0))
            connection.settimeout(5)
            connection.connect(("127.0.0.1", self.port))
            connection.sendall(data)
            threading.Timer(seconds, connection.close).start()

    def head(self, method, path, more="", token=True):
        line = f"Authorization: {self.token}\r\n" if token else ""
        return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{line}{more}\r\n".encode()

    # --- the kinds

    def binary_output(self):
        job = self.submit(files("import sys; sys.stdout.buffer.write(bytes(9 << 20))"))
        if job:
            self.jobs = [*getattr(self, "jobs", [])[-20:], job]
        time.sleep(0.2)

    def slow_readers(self):
        for job in list(getattr(self, "jobs", [])):
            for path in ("result", "logs?follow=true", "events"):
                self.hold(self.head("GET", f"/v1/jobs/{job}/{path}"), 15)
        time.sleep(0.3)

    def event_streams(self):
        job = self.submit(files("while True: print('x' * 50)", limits={"command_timeout_ms": 3000}))
        for _ in range(8):
            if job:
                self.hold(self.head("GET", f"/v1/jobs/{job}/events", "Accept: text/event-stream\r\n"), 10)
                self.hold(self.head("GET", f"/v1/jobs/{job}/logs?follow=true"), 10)
        time.sleep(0.5)

    def slow_bodies(self):
        more = f"Content-Type: application/octet-stream\r\nContent-Length: {60 * MIB}\r\n"
        self.hold(self.head("POST", "/v1/archives", more) + b"x" * 1000, 20)
        more = f"Content-Type: application/json\r\nContent-Length: {9 * MIB}\r\n"
        self.hold(self.head("POST", "/v1/jobs", more) + b"{", 20)
        time.sleep(0.05)

    def anonymous(self):
        for i in range(2, 6):
            self.hold(self.head("GET", "/v1/jobs", token=False)[:-2], 20, f"127.0.0.{i}")

    def fill_quota(self):
        self.ask("POST", "/v1/archives", self.noise + os.urandom(16), {"Content-Type": "application/octet-stream"})
        time.sleep(0.1)

    def large_requests(self):
        self.ask("POST", "/v1/jobs", files("pass\n" + "#" * (9 * MIB)))
        time.sleep(0.2)

    def layers_of_gzip(self):
        status, answer = self.ask("POST", "/v1/archives", self.layers, {"Content-Type": "application/octet-stream"})
        if status == 201:
            self.submit({"source": {"archive": json.loads(answer)["archive"]}})
        time.sleep(0.1)

    def callbacks(self):
        self.submit(files("print(1)", callback_url=self.callback))
        time.sleep(0.1)

    def foreign_hashes(self):
        status, answer = self.ask("POST", "/v1/jobs", {"source": {"archive": self.victim_hash}})
        none = self.ask("POST", "/v1/jobs", {"source": {"archive": "sha256:" + "0" * 64}})
        if status == 202 or (status == none[0] == 422 and answer != none[1]):
            self.leaks.append((status, answer, none))
        time.sleep(0.05)

    def listings(self):
        self.ask("GET", "/v1/jobs?limit=1000")

    def approvals(self):
        self.submit(files("print(1)", checks=INSTALL))
        self.ask("GET", "/v1/approvals")
        time.sleep(0.1)

    KINDS = ("binary_output", "slow_readers", "event_streams", "slow_bodies", "anonymous", "fill_quota", "large_requests",
             "layers_of_gzip", "callbacks", "foreign_hashes", "listings", "approvals")

    def run(self, kind):
        while not self.stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError):
                getattr(self, kind)()
            self.counts[kind] = self.counts.get(kind, 0) + 1

    def abuse_until_input_ends(self):
        """Runs: the abuser's process. Prints what it did when its standard input ends."""
        os.nice(19)  # a real one has a machine of its own: its client does not compete for the processors
        threads = [threading.Thread(target=self.run, args=(kind,), daemon=True) for kind in self.KINDS]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self.stop.set()
        for thread in threads:
            thread.join(60)
        print(json.dumps({"counts": self.counts, "leaks": repr(self.leaks) if self.leaks else None}), flush=True)
        os._exit(0)  # without waiting for connections that are held on purpose


class AbuserProcess:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, "-B", __file__, "abuse", json.dumps(arguments)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self):
        answer, _ = self.process.communicate(timeout=120)
        report = json.loads(answer)
        self.counts, self.leaks = report["counts"], report["leaks"]


class Abuse(unittest.TestCase):
    def tokens(self, service):
        lines, headers = ["version: 1", "tokens:"], {}
        for name in ("quiet", "abuser"):
            token = hashlib.sha256(name.encode()).hexdigest()
            headers[name] = f"Bearer {token}"
            lines += [f"  - name: {name}", f"    tenant: {name}", "    rights: [submit, read, approve]",
                      f"    sha256: {hashlib.sha256(token.encode()).hexdigest()}"]
        file = service.root / "tokens.yaml"
        file.touch(mode=0o600)
        file.write_text("\n".join(lines) + "\n")
        with open(service.config, "a", encoding="utf-8") as config:
            config.write(f"tokens: {file}\n")
        return headers

    def quiet_jobs(self, seconds, watch=lambda: None):
        """Small jobs, one after the other; gives how long each took, and what failed."""
        took, faults, number = [], [], 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            number += 1
            began = time.monotonic()
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
                connection.request("POST", "/v1/jobs?wait=60s", json.dumps(files(f"print({number})")),
                                   {"Authorization": self.headers["quiet"], "Content-Type": "application/json"})
                answer = connection.getresponse()
                result = json.loads(answer.read())
                connection.close()
                if result.get("status") != "pass" or result["stdout"] != f"{number}\n":
                    faults.append((answer.status, result.get("status"), result.get("detail"), result.get("state")))
            except (OSError, http.client.HTTPException, ValueError) as fault:
                faults.append(repr(fault))
            took.append(time.monotonic() - began)
            watch()
        return took, faults

    def test_the_other_tenant_goes_on(self):
        done = threading.Event()

        class Slow(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                done.wait(12)
                self.send_response(500)
                self.end_headers()

            def log_message(self, *_):
                pass

        receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        self.addCleanup(receiver.server_close)
        self.addCleanup(receiver.shutdown)
        self.addCleanup(done.set)
        service = Service(listen="127.0.0.1:0", workers=2, tenant_concurrency=1, blob_quota="8G",
                          blob_quota_per_tenant="256M", max_queue_per_tenant=200, callback_allow=["127.0.0.1"])
        self.addCleanup(service.__exit__)
        (service.root / "secret").write_text("a secret of some length\n")
        with open(service.config, "a", encoding="utf-8") as config:
            config.write(f"callback_secret: {service.root / 'secret'}\n")
        self.headers = self.tokens(service)
        service.start()
        self.port = port_of(service)
        pid = service.process.pid
        self.quiet_jobs(3)  # everything has been done once
        alone, faults = self.quiet_jobs(max(10.0, SECONDS / 6))
        self.assertEqual(faults, [])
        before = memory_of(pid)
        own = hashlib.sha256(b"quiet").hexdigest()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/v1/archives", tar_of("main.py", b"print('secret of " + own.encode() + b"')\n"),
                           {"Authorization": self.headers["quiet"], "Content-Type": "application/octet-stream"})
        archive = json.loads(connection.getresponse().read())["archive"]
        connection.close()

        abuser = AbuserProcess(self.port, self.headers["abuser"], f"http://127.0.0.1:{receiver.server_port}/slow", archive)
        sizes, red = [], []

        def watch():
            sizes.append(memory_of(pid)[0])
            if service.request("GET", "/readyz").status != 200:
                red.append(time.monotonic())

        try:
            beside, faults = self.quiet_jobs(SECONDS, watch)
        finally:
            abuser.end()
        most, allowed = memory_of(pid)[1], MOST_MEMORY * memory_scale(pid)
        ratio = percentile(beside, 0.99) / percentile(alone, 0.99)
        for name, took in (("alone", alone), ("beside the abuse", beside)):
            print(f"{name}: {len(took)} jobs, p50 {percentile(took, 0.5) * 1e3:.0f} ms, p99 {percentile(took, 0.99) * 1e3:.0f} ms, "
                  f"longest {max(took) * 1e3:.0f} ms")
        print(f"p99 beside / alone: {ratio:.2f}; caissond: {before[0] / MIB:.0f} MiB before, {max(sizes) / MIB:.0f} MiB during, "
              f"at most {most / MIB:.0f} MiB; the abuse: {abuser.counts}", flush=True)
        self.assertEqual(faults, [], "the quiet tenant's jobs")
        self.assertIsNone(abuser.leaks, "what the abuser learned")
        self.assertEqual(red, [], "not ready")
        self.assertLess(most, allowed)
        for kind in Abuser.KINDS:
            self.assertGreater(abuser.counts.get(kind, 0), 0, f"{kind} was not tried")
        if RATIO:
            self.assertLess(ratio, RATIO)
        self.assertEqual([job for job in service.request("GET", "/v1/jobs?state=dead_lettered&limit=1000").json["jobs"]
                          if job["tenant"] == "quiet"], [])
        service.audit_verify()


if __name__ == "__main__":
    if sys.argv[1:2] == ["abuse"]:
        Abuser(*json.loads(sys.argv[2])).abuse_until_input_ends()
    unittest.main()

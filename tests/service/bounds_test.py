"""Limits on what one tenant, or a caller without credentials, can do to others: rows I09 to I15.

Each class has a control: the same thing done within its bounds works.
"""

import base64
import concurrent.futures
import contextlib
import fcntl
import gzip
import hashlib
import http.client
import http.server
import io
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
import unittest
import zipfile
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson  # noqa: E402
from support.service import Answer, Service, memory_scale  # noqa: E402
from support.tokens import port_of  # noqa: E402

ENDS = {"succeeded", "failed", "rejected", "cancelled", "dead_lettered"}
MIB = 1 << 20
HELLO = {"source": {"files": {"main.py": "print('hello')\n"}}}


def memory_of(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


class TenantCase(unittest.TestCase):
    """A service with a port, and the tenants ann and bob, who may do everything but administer."""

    PEOPLE = {"ann": "a", "bob": "b", "amy": "a"}

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def serve(self, **keys):
        service = Service(listen="127.0.0.1:0", **keys)
        lines, self.tokens = ["version: 1", "tokens:"], {}
        for name, tenant in self.PEOPLE.items():
            token = hashlib.sha256(name.encode()).hexdigest()
            self.tokens[name] = {"Authorization": f"Bearer {token}"}
            lines += [f"  - name: {name}", f"    tenant: {tenant}", "    rights: [submit, read, approve]",
                      f"    sha256: {hashlib.sha256(token.encode()).hexdigest()}"]
        file = service.root / "tokens.yaml"
        file.touch(mode=0o600)
        file.write_text("\n".join(lines) + "\n")
        with open(service.config, "a", encoding="utf-8") as config:
            config.write(f"tokens: {file}\n")
        self.stack.enter_context(service)
        self.port = port_of(service)
        self.pid = service.process.pid
        return service

    def ask(self, who, method, path, body=None, headers=None, address="127.0.0.1", timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout, source_address=(address, 0))
        sent = {**(self.tokens[who] if who else {}), **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body, sent)
            reply = connection.getresponse()
            return Answer(reply.status, reply.headers, reply.read())
        finally:
            connection.close()

    def run_job(self, who, program, **fields):
        answer = self.ask(who, "POST", "/v1/jobs", {"source": {"files": {"main.py": program}}, **fields})
        self.assertEqual(answer.status, 202, answer.body)
        return self.await_end(who, answer.json["job_id"])

    def await_end(self, who, job_id, seconds=60):
        deadline = time.monotonic() + seconds
        while True:
            job = self.ask(who, "GET", f"/v1/jobs/{job_id}").json
            if job["state"] in ENDS:
                return job
            self.assertLess(time.monotonic(), deadline, job)
            time.sleep(0.05)

    def send(self, data, address="127.0.0.1"):
        """A connection that sent `data` and reads nothing."""
        connection = socket.socket()
        self.stack.callback(connection.close)
        connection.bind((address, 0))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", self.port))
        connection.sendall(data)
        return connection

    def head(self, who, method, path, more=""):
        token = f"Authorization: {self.tokens[who]['Authorization']}\r\n" if who else ""
        return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{token}{more}\r\n".encode()


class I09Answers(TenantCase):
    def test_binary_output_does_not_explode(self):
        service = self.serve()
        cases = {
            "NUL": "import sys; sys.stdout.buffer.write(bytes(9 << 20))",
            "no UTF-8": "import sys; sys.stdout.buffer.write(b'\\xff\\x80' * (9 << 19))",
            "escapes": "import sys; sys.stderr.buffer.write(b'\\x1b' * (9 << 20))",
        }
        expected = {"NUL": bytes(9 * MIB), "no UTF-8": b"\xff\x80" * (9 << 19), "escapes": b"\x1b" * (9 * MIB)}
        for name, program in cases.items():
            with self.subTest(name):
                job = self.run_job("ann", program)
                self.assertEqual(job["state"], "succeeded", job)
                body = self.ask("ann", "GET", f"/v1/jobs/{job['job_id']}/result").body
                self.assertLess(len(body), 16 * MIB)
                result = json.loads(body)
                caisson.validate(result, "verification_result.schema.json")
                stream = "stderr" if name == "escapes" else "stdout"
                self.assertEqual(base64.b64decode(result[stream + "_base64"]), expected[name])
                self.assertLess(len(result[stream]), MIB)
                self.assertIn("binary output", result[stream])
                # The log is what was written.
                self.assertEqual(self.ask("ann", "GET", f"/v1/jobs/{job['job_id']}/logs").body, expected[name])
                events = self.ask("ann", "GET", f"/v1/jobs/{job['job_id']}/events").json["events"]
                self.assertEqual(events[-1]["result"], result)
        service.audit_verify()

    def test_text_is_text(self):
        self.serve()
        text = "h\u00e9llo \U0001f600\t\"quoted\" \\ back\n" * 3000 + "\x01\x02"
        job = self.run_job("ann", f"print({text!r}, end='')")
        result = self.ask("ann", "GET", f"/v1/jobs/{job['job_id']}/result").json
        self.assertEqual(result["stdout"], text)
        self.assertNotIn("stdout_base64", result)
        self.assertEqual(self.ask("ann", "GET", f"/v1/jobs/{job['job_id']}/logs?stream=stdout").body, text.encode())
        self.assertEqual(self.ask("ann", "GET", f"/v1/jobs/{job['job_id']}/logs?from=6").body, text.encode()[6:])

    def test_slow_readers_cost_no_memory_and_are_dropped(self):
        self.serve()
        job = self.run_job("ann", "print('x' * (9 << 20))")
        path = f"/v1/jobs/{job['job_id']}/result"
        before = memory_of(self.pid)
        readers = [self.send(self.head("ann", "GET", path)) for _ in range(24)]
        readers += [self.send(self.head("ann", "GET", f"/v1/jobs/{job['job_id']}/logs?follow=true")) for _ in range(24)]
        readers += [self.send(self.head("ann", "GET", f"/v1/jobs/{job['job_id']}/events")) for _ in range(24)]
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            self.assertLess(memory_of(self.pid), 128 * MIB * memory_scale(self.pid))
            time.sleep(0.1)
        self.assertLess(memory_of(self.pid), before + 24 * MIB * memory_scale(self.pid))
        # One byte now and then is not progress: they are gone long before they have all of it.
        closed = 0
        deadline = time.monotonic() + 40
        left = list(readers)
        while left and time.monotonic() < deadline:
            for reader in list(left):
                try:
                    reader.settimeout(0.01)
                    if reader.recv(1) == b"":
                        left.remove(reader)
                except socket.timeout:
                    pass
                except OSError:
                    left.remove(reader)
            # What the kernel still holds is read before the end is seen.
            for reader in list(left):
                state = pathlib.Path(f"/proc/{self.pid}/net/tcp").read_text(encoding="ascii")
                if f":{reader.getsockname()[1]:04X} " not in state.split("\n", 1)[1] or self.half_closed(reader, state):
                    left.remove(reader)
            closed = len(readers) - len(left)
        self.assertEqual(closed, len(readers))
        # Control: a client that reads gets all of it.
        self.assertGreater(len(self.ask("ann", "GET", path).body), 9 * MIB)

    @staticmethod
    def half_closed(reader, table):
        """The server's end of the connection is no longer established (01)."""
        port = f":{reader.getsockname()[1]:04X}"
        for line in table.splitlines()[1:]:
            fields = line.split()
            if fields[2].endswith(port):
                return fields[3] != "01"
        return True


class I10Quotas(TenantCase):
    OUTPUT = "import os, sys; sys.stdout.write(os.urandom(1 << 19).hex())"

    def test_one_tenants_quota_is_its_own(self):
        service = self.serve(blob_quota_per_tenant="6M")
        refused = None
        for _ in range(12):
            answer = self.ask("ann", "POST", "/v1/jobs", {"source": {"files": {"main.py": self.OUTPUT}}})
            if answer.status != 202:
                refused = answer
                break
            self.assertEqual(self.await_end("ann", answer.json["job_id"])["state"], "succeeded")
        self.assertIsNotNone(refused, "twelve results fit into six megabytes")
        self.assertEqual(refused.status, 429)
        self.assertIn("blob_quota_per_tenant", refused.json["detail"])
        self.assertNotIn(str(service.state), refused.body.decode())
        archive = self.ask("ann", "POST", "/v1/archives", os.urandom(MIB), {"Content-Type": "application/octet-stream"})
        self.assertEqual((archive.status, "blob_quota_per_tenant" in archive.json["detail"]), (429, True))
        # The other tenant notices nothing.
        self.assertEqual(self.run_job("bob", self.OUTPUT)["state"], "succeeded")
        self.assertEqual(self.ask(None, "GET", "/readyz").status, 200)

    def test_an_accepted_job_keeps_its_verdict_without_room(self):
        self.serve(blob_quota_per_tenant="1M")
        program = ("import os, sys, pathlib; pathlib.Path('/scratch/a').write_bytes(os.urandom(3 << 19)); "
                   "sys.stdout.write(os.urandom(1 << 20).hex())")
        job = self.run_job("ann", program, artifacts=["/scratch/*"])
        self.assertEqual((job["state"], job["attempt"]), ("succeeded", 1), job)
        result = self.ask("ann", "GET", f"/v1/jobs/{job['job_id']}/result").json
        caisson.validate(result, "verification_result.schema.json")
        self.assertEqual((result["status"], result["artifacts"]), ("pass", []))
        self.assertIn("blob_quota_per_tenant", result["skipped_artifacts"][0])
        self.assertIn("blob_quota_per_tenant", result["message"])
        self.assertTrue(result["output"]["truncated"])

    def test_a_large_request_is_the_tenants_blob(self):
        """It runs, can be looked at as a dead letter, counts against the quota, and goes with its job's other blobs."""
        service = self.serve(blob_quota_per_tenant="6M", max_attempts=1)
        program = "print(42)\n#" + "x" * (4 * MIB)
        job = self.run_job("ann", program)
        self.assertEqual(self.ask("ann", "GET", f"/v1/jobs/{job['job_id']}/result").json["stdout"], "42\n")
        # SQLite, whose only writer serves all tenants, did not see it.
        self.assertLess(sum(file.stat().st_size for file in service.state.glob("caisson.db*")), 4 * MIB)
        refused = self.ask("ann", "POST", "/v1/jobs", {"source": {"files": {"main.py": program + "y"}}})
        self.assertEqual((refused.status, "blob_quota_per_tenant" in refused.json["detail"]), (429, True))
        letter = self.ask("bob", "POST", "/v1/jobs", {"source": {"files": {"main.py": "import time; time.sleep(600)\n#" + "x" * MIB}}})
        service.wait_for(letter.json["job_id"], "running")
        os.kill(min(service.processes("caisson-launcher")), 9)
        self.assertEqual(self.await_end("bob", letter.json["job_id"])["state"], "dead_lettered")
        document = self.ask("bob", "GET", f"/v1/dlq/{letter.json['job_id']}").json
        self.assertEqual(len(document["job"]["request"]["source"]["files"]["main.py"]), MIB + 30)

    def test_a_full_machine_makes_jobs_wait(self):
        service = self.serve(blob_quota="2M", max_attempts=1)
        gate = service.root / "gate"
        first = self.ask("bob", "POST", "/v1/jobs", {"source": {"files": {"main.py": "import time; time.sleep(3)\n" + self.OUTPUT}}})
        # Another tenant fills the machine while the job runs.
        service.wait_for(first.json["job_id"], "running")
        while self.ask("ann", "POST", "/v1/archives", os.urandom(MIB),
                       {"Content-Type": "application/octet-stream"}).status == 201:
            pass
        gate.touch()
        caisson.wait_until(lambda: self.ask(None, "GET", "/readyz").status == 503 or "green", 10, "not ready")
        refused = self.ask("bob", "POST", "/v1/jobs", HELLO)
        self.assertEqual(refused.status, 429)
        self.assertNotIn(str(service.state), refused.body.decode())
        time.sleep(6)
        job = service.job(first.json["job_id"])
        self.assertNotIn(job["state"], ENDS, "the operator's full disk ended a tenant's job")
        self.assertEqual((job["attempt"], job["attempts"]), (1, []))
        service.stop()
        text = service.config.read_text().replace("blob_quota: '2M'", "blob_quota: '200M'")
        service.config.write_text(text)
        service.start()
        self.port = port_of(service) if text.count("listen") == 0 else int(re.findall(r'"port":"(\d+)"', service.log.read_text())[-1])
        job = service.wait_for(first.json["job_id"], ENDS)
        self.assertEqual((job["state"], job["attempt"]), ("succeeded", 1), job)

    def test_a_launcher_that_is_away_costs_no_attempt(self):
        service = self.serve(max_attempts=1)
        self.assertEqual(self.run_job("ann", "print(1)")["state"], "succeeded")
        launcher = min(service.processes("caisson-launcher"))
        # Whatever the guard starts dies at once: jobs wait.
        hidden = service.state / "launcher.sock"
        os.kill(launcher, 19)
        hidden.rename(service.state / "launcher.away")
        try:
            answer = self.ask("bob", "POST", "/v1/jobs", HELLO)
            self.assertEqual(answer.status, 202)
            caisson.wait_until(lambda: self.ask(None, "GET", "/readyz").status == 503 or "green", 10, "not ready")
            time.sleep(3)
            self.assertEqual(service.job(answer.json["job_id"])["attempt"], 1)
            self.assertNotIn(service.job(answer.json["job_id"])["state"], ENDS)
        finally:
            (service.state / "launcher.away").rename(hidden)
            os.kill(launcher, 18)
        self.assertEqual(service.wait_for(answer.json["job_id"], ENDS)["state"], "succeeded")


class I11Blobs(TenantCase):
    @staticmethod
    def archive(text="print('secret')\n"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            info = tarfile.TarInfo("main.py")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
        return out.getvalue()

    def test_an_archive_belongs_to_its_tenant(self):
        self.serve()
        data = self.archive()
        sent = self.ask("ann", "POST", "/v1/archives", data, {"Content-Type": "application/octet-stream"})
        self.assertEqual(sent.status, 201, sent.body)
        request = {"source": {"archive": sent.json["archive"]}}
        # A caller of the same tenant may use it.
        own = self.ask("amy", "POST", "/v1/jobs", request)
        self.assertEqual(own.status, 202, own.body)
        self.assertEqual(self.await_end("amy", own.json["job_id"])["state"], "succeeded")
        # Another tenant cannot, and gets the same answer for a hash that does not exist.
        other = self.ask("bob", "POST", "/v1/jobs", request)
        nobody = self.ask("bob", "POST", "/v1/jobs", {"source": {"archive": "sha256:" + "0" * 64}})
        self.assertEqual((other.status, other.body), (422, nobody.body))
        # Sending the archive reveals nothing either; afterwards it belongs to that tenant too.
        again = self.ask("bob", "POST", "/v1/archives", data, {"Content-Type": "application/octet-stream"})
        self.assertEqual((again.status, again.json), (201, sent.json))
        job = self.ask("bob", "POST", "/v1/jobs", request)
        self.assertEqual(self.await_end("bob", job.json["job_id"])["state"], "succeeded")


class I12Connections(TenantCase):
    def test_callers_without_credentials_do_not_fill_the_places(self):
        service = self.serve()
        held = []
        for i in range(700):
            with contextlib.suppress(OSError):
                held.append(self.send(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n", f"127.0.0.{2 + i % 4}"))
        # The operator, a caller of another address, and one of the same.
        self.assertEqual(service.request("GET", "/v1/jobs").status, 200)
        self.assertEqual(self.ask("bob", "GET", "/v1/jobs", address="127.0.0.9").status, 200)
        self.assertEqual(self.ask("bob", "GET", "/v1/jobs", address="127.0.0.2").status, 200)
        self.assertEqual(self.ask(None, "GET", "/healthz", address="127.0.0.9").status, 200)
        self.assertGreater(len(held), 600)

    def test_a_tenant_has_its_share_of_connections_streams_and_bodies(self):
        service = self.serve()
        job = self.ask("ann", "POST", "/v1/jobs", {"source": {"files": {"main.py": "import time; time.sleep(30)"}}}).json
        events = self.head("ann", "GET", f"/v1/jobs/{job['job_id']}/events", "Accept: text/event-stream\r\n")
        body = self.head("ann", "POST", "/v1/archives",
                         f"Content-Type: application/octet-stream\r\nContent-Length: {2 * MIB}\r\n")
        # More streams than a tenant may have; with the bodies, which all fit, more connections than it may have.
        # A busy service closes the oldest connections that it has not read from yet, so they are sent until it refuses.
        def send_more():
            for data in (events, body + b"x") * 15:
                with contextlib.suppress(OSError):
                    self.send(data)
            return self.ask("ann", "GET", "/v1/jobs").status == 429 or "not refused"

        caisson.wait_until(send_more, 25, "the tenant has more connections than its share")
        # All others continue, with their own streams and bodies.
        self.assertEqual(self.run_job("bob", "print(1)")["state"], "succeeded")
        data = os.urandom(8 * MIB)
        sent = self.ask("bob", "POST", "/v1/archives", data, {"Content-Type": "application/octet-stream"})
        self.assertEqual(sent.json["sha256"], hashlib.sha256(data).hexdigest())
        waited = self.ask("bob", "POST", "/v1/jobs?wait=30s", HELLO)
        self.assertEqual(waited.json["status"], "pass")
        self.assertEqual(service.request("GET", "/readyz").status, 200)
        self.assertLess(memory_of(self.pid), 128 * MIB * memory_scale(self.pid))

    def test_callbacks_of_one_tenant_do_not_hold_up_others(self):
        stop = threading.Event()
        self.stack.callback(stop.set)
        got = []

        class Receiver(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                if "slow" in self.path:
                    stop.wait(30)
                got.append(self.path)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        self.stack.callback(receiver.server_close)
        self.stack.callback(receiver.shutdown)
        root = pathlib.Path(self.stack.enter_context(caisson.tempfile.TemporaryDirectory(prefix="caisson-test-")))
        (root / "secret").write_text("a secret of some length\n")
        service = self.serve(callback_secret=root / "secret", callback_allow=["127.0.0.1"])
        url = f"http://127.0.0.1:{receiver.server_port}"
        for _ in range(12):
            self.run_job("ann", "print(1)", callback_url=url + "/slow")
        began = time.monotonic()
        self.run_job("bob", "print(1)", callback_url=url + "/quick")
        caisson.wait_until(lambda: "/quick" in got or got, 20, "the other tenant's callback")
        self.assertLess(time.monotonic() - began, 8)
        stop.set()
        self.assertIsNotNone(service.process)


class I13Messages(TenantCase):
    def test_paths_of_the_machine_are_not_told(self):
        service = self.serve(max_attempts=2)
        answers = []
        job_id = self.ask("ann", "POST", "/v1/jobs", {"source": {"files": {"main.py": "import time; time.sleep(600)"}}}).json["job_id"]
        for attempt in (1, 2):
            caisson.wait_until(lambda: (lambda job: (job["state"], job["attempt"]) == ("running", attempt) or job)(
                service.job(job_id)), 30, "attempt runs")
            os.kill(min(service.processes("caisson-launcher")), 9)
        self.assertEqual(self.await_end("ann", job_id)["state"], "dead_lettered")
        for path in (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/events", f"/v1/jobs/{job_id}/result", f"/v1/dlq/{job_id}",
                     f"/v1/jobs/{job_id}/logs"):
            answers.append(self.ask("ann", "GET", path).body.decode())
        answers.append(self.ask("ann", "POST", "/v1/jobs", {"source": {"path": "/etc"}}).body.decode())
        for text in answers:
            for secret in (str(service.root), str(service.programs), "launcher.sock"):
                self.assertNotIn(secret, text)
        # Control: the operator finds the cause.
        self.assertIn(job_id + ".1", service.log.read_text())


class I14Decisions(TenantCase):
    PEOPLE = {"ann": "a", "bob": "a", "amy": "a"}
    INSTALL = [{"name": "install", "tier": "run", "argv": ["/usr/bin/pip", "install", "nothing"]}]

    def records(self, service, kind):
        lines = [json.loads(line) for line in service.audit.read_text().splitlines()]
        return [line for line in lines if line["type"] == kind]

    def test_only_the_decision_that_counts_is_recorded(self):
        service = self.serve()
        for _ in range(12):
            answer = self.ask("ann", "POST", "/v1/jobs", {**HELLO, "checks": self.INSTALL})
            job = service.wait_for(answer.json["job_id"], "awaiting_approval")
            question = service.request("GET", f"/v1/approvals/{job['approval_id']}").json["question"]
            body = {"plan_digest": question["plan_digest"], "nonce": question["nonce"], "reason": "because"}
            path = f"/v1/approvals/{job['approval_id']}"
            barrier = threading.Barrier(3)

            def decide(who, verb):
                barrier.wait()
                return verb, self.ask(who, "POST", f"{path}:{verb}", body).status

            def cancel():
                barrier.wait()
                return "cancel", self.ask("ann", "POST", f"/v1/jobs/{job['job_id']}:cancel", {}).status

            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                runs = [pool.submit(decide, "bob", "grant"), pool.submit(decide, "amy", "deny"), pool.submit(cancel)]
                answers = dict(run.result() for run in runs)
            self.await_end("ann", job["job_id"])
            decided = [one["details"]["decision"] for one in self.records(service, "approval")
                       if one["details"]["approval_id"] == job["approval_id"] and one["details"]["decision"] != "requested"]
            expected = [name for verb, name in (("grant", "granted"), ("deny", "denied")) if answers[verb] == 200]
            self.assertEqual(decided, expected, answers)
            self.assertLessEqual(len(expected), 1, answers)
            cancelled = [one for one in self.records(service, "cancel") if one["run_id"] == job["job_id"]]
            self.assertEqual(len(cancelled), 1 if answers["cancel"] == 202 else 0, answers)
        service.audit_verify()

    def test_a_decision_is_recorded_before_its_job_runs(self):
        service = self.serve()
        answer = self.ask("ann", "POST", "/v1/jobs", {**HELLO, "checks": self.INSTALL})
        job = service.wait_for(answer.json["job_id"], "awaiting_approval")
        question = service.request("GET", f"/v1/approvals/{job['approval_id']}").json["question"]
        body = {"plan_digest": question["plan_digest"], "nonce": question["nonce"], "reason": "because"}
        self.assertEqual(self.ask("bob", "POST", f"/v1/approvals/{job['approval_id']}:grant", body).status, 200)
        self.await_end("ann", job["job_id"])
        order = [(one["type"], one["details"].get("decision")) for one in
                 (json.loads(line) for line in service.audit.read_text().splitlines()) if one["run_id"] == job["job_id"]]
        self.assertEqual(order[:3], [("approval", "requested"), ("approval", "granted"), ("admit", None)])


class I15Archives(TenantCase):
    @staticmethod
    def layers():
        """Layers of gzip, each behind a file name of megabytes, which a reader has to keep to see what comes behind it."""
        data = I11Blobs.archive()
        for _ in range(24):
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            data = (b"\x1f\x8b\x08\x08" + bytes(5) + b"\xff" + b"q" * (4 * MIB) + b"\0" + packer.compress(data) + packer.flush()
                    + struct.pack("<LL", zlib.crc32(data), len(data)))
        return data

    def put(self, who, data):
        sent = self.ask(who, "POST", "/v1/archives", data, {"Content-Type": "application/octet-stream"})
        self.assertEqual(sent.status, 201, sent.body)
        return sent.json["archive"]

    def test_layers_of_compression_are_not_followed(self):
        """The same holds for a gzip file that unpacks to itself: the second layer is seen, and not opened."""
        service = self.serve()
        data = self.layers()
        archive = self.put("ann", data)
        began = time.monotonic()
        job = self.ask("ann", "POST", "/v1/jobs", {"source": {"archive": archive}}).json
        job = self.await_end("ann", job["job_id"])
        self.assertEqual(job["state"], "rejected")
        self.assertLess(time.monotonic() - began, 2)
        result = self.ask("ann", "GET", f"/v1/jobs/{job['job_id']}/result").json
        self.assertIn("more than once", result["message"])
        used = self.cpu_of_helper(service, data)
        self.assertLess(used[0], 0.5, "CPU seconds")
        self.assertLess(used[1], 64 * MIB, "bytes of memory")

    def cpu_of_helper(self, service, data):
        """What caisson-intake takes for an archive."""
        fd = os.memfd_create("archive", os.MFD_ALLOW_SEALING)
        os.write(fd, data)
        fcntl.fcntl(fd, 1033, 0x0F)
        limits = "4096,33554432,33554432,1024,64,100,1048576"
        # From a small process: what the one that forks has had in memory counts as its child's.
        measure = ("import os, sys\n"
                   "child = os.fork()\n"
                   "if child == 0:\n"
                   "    os.dup2(os.open('/dev/null', os.O_WRONLY), 1)\n"
                   "    os.execv(sys.argv[1], sys.argv[1:])\n"
                   "usage = os.wait4(child, 0)[2]\n"
                   "print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)\n")
        done = subprocess.run(["/usr/bin/python3", "-c", measure, service.programs / "caisson-intake", "any", limits],
                              stdin=fd, capture_output=True, check=True)
        os.close(fd)
        seconds, memory = done.stdout.split()
        return float(seconds), int(memory)

    def test_names_are_bytes(self):
        """A decomposed name (NFD) stays as it is, in every kind of archive, and so does the digest of the tree."""
        self.serve()
        name = "data/e\u0301\u1100\u1161.txt"
        program = f"import os\nprint(ascii(sorted(os.listdir('data'))), open({name!r}).read())\n"
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path, text in (("main.py", program), (name, "found")):
                info = tarfile.TarInfo(path)
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("main.py", program)
            archive.writestr(name, "found")
        sources = {
            "files": {"source": {"files": {"main.py": program, name: "found"}}},
            "pax": {"source": {"archive": self.put("ann", out.getvalue())}},
            "gzip": {"source": {"archive": self.put("ann", gzip.compress(out.getvalue()))}},
            "zip": {"source": {"archive": self.put("ann", packed.getvalue())}},
        }
        digests = {}
        for kind, request in sources.items():
            result = self.ask("ann", "POST", "/v1/jobs?wait=30s", request).json
            self.assertEqual(result.get("status"), "pass", (kind, result))
            self.assertIn("found", result["stdout"])
            self.assertIn("e\\u0301", result["stdout"])
            digests[kind] = result["source_digest"]
        # A tree of files has no directories of its own; that of an archive has.
        del digests["files"]
        self.assertEqual(len(set(digests.values())), 1, digests)


if __name__ == "__main__":
    unittest.main()

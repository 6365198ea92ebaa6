"""Jobs with a network through the service: what they reach is in their result and their events, and each tenant's use of the network is
counted and bounded. The server is on this machine's loopback, which the profile of the test lists as a private range."""

import contextlib
import http.server
import pathlib
import re
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from service_test import ENDS, ServiceCase, tokens  # noqa: E402
from support import caisson  # noqa: E402

PROFILE = """
version: 1
name: networked
extends: balanced
on_violation: report
network:
  mode: allowlist
  allow: ["http://web.test:{port}"]
  private_ranges: [127.0.0.1]
  hosts: {{web.test: 127.0.0.1}}
"""
FETCH = """
import socket, urllib.request
def fetch(path): return len(urllib.request.urlopen("http://web.test:{port}" + path).read())
"""


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        if self.path == "/wait":
            self.wfile.write(b"held")
            self.wfile.flush()
            self.server.held.set()
            self.server.released.wait(60)
        with contextlib.suppress(OSError):
            self.wfile.write(bytes(int(self.path[1:])) if self.path[1:].isdigit() else b"")


class NetworkCase(ServiceCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.stack.enter_context(caisson.tempfile.TemporaryDirectory(prefix="caisson-test-")))
        self.root.chmod(0o755)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.held, self.server.released = threading.Event(), threading.Event()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.released.set)
        self.port = self.server.server_port
        (self.root / "profiles").mkdir()
        (self.root / "profiles/networked.yaml").write_text(PROFILE.format(port=self.port))
        self.people = tokens(self.root / "tokens", ann=("one", ["submit", "read", "metrics"]), bob=("two", ["submit", "read"]))

    def start(self, **keys):
        return self.serve(tokens=self.root / "tokens", profiles=str(self.root / "profiles"), **keys)

    def submit(self, service, code, who="ann"):
        body = {"source": {"files": {"main.py": FETCH.format(port=self.port) + code}}, "profile": "networked",
                "checks": [{"name": "run", "tier": "run", "argv": ["python3", "-S", "main.py"]}]}  # fmt: skip
        answer = service.request("POST", "/v1/jobs", body, self.people[who])
        self.assertEqual(answer.status, 202, answer.body)
        return answer.json["job_id"]

    def result(self, service, code, who="ann"):
        job = service.wait_for(self.submit(service, code, who), ENDS)
        return service.request("GET", f"/v1/jobs/{job['job_id']}/result", headers=self.people[who]).json

    def metric(self, service, name, labels):
        text = service.request("GET", "/metrics", headers=self.people["ann"]).body.decode()
        found = re.search(rf"^{name}{{{re.escape(labels)}}} (\S+)$", text, re.MULTILINE)
        return float(found.group(1)) if found else 0


class Networked(NetworkCase):
    def test_a_job_reaches_what_its_profile_lists(self):
        service = self.start()
        result = self.result(service, """
print(fetch("/50000"))
for name in ("evil.example", "other.example"):
    try: socket.getaddrinfo(name, 80, socket.AF_INET)
    except OSError as error: print("no")
""")
        caisson.validate(result, "verification_result.schema.json")
        self.assertEqual((result["status"], result["stdout"]), ("pass", "50000\nno\nno\n"), result)
        (use,) = [one for one in result["network"] if one["protocol"] == "http"]
        self.assertEqual((use["name"], use["port"], use["address"], use["decision"], use["connections"]),
                         ("web.test", self.port, "127.0.0.1", "allowed", 1))  # fmt: skip
        self.assertEqual({one["name"] for one in result["network"] if one["decision"] == "denied"}, {"evil.example", "other.example"})
        events = service.request("GET", "/v1/jobs?limit=1", headers=self.people["ann"]).json["jobs"][0]["job_id"]
        events = service.request("GET", f"/v1/jobs/{events}/events?limit=1000", headers=self.people["ann"]).json["events"]
        for event in events:
            caisson.validate(event, "lifecycle_event.schema.json")
        self.assertIn("web.test", [one["network"]["name"] for one in events if one["type"] == "network_allowed"])
        self.assertIn("evil.example", [one["network"]["name"] for one in events if one["type"] == "network_denied"])
        self.assertEqual(self.metric(service, "caisson_network_connections_total", 'tenant="one",decision="allowed"'), 1)
        self.assertEqual(self.metric(service, "caisson_network_connections_total", 'tenant="one",decision="denied"'), 2)
        self.assertEqual(self.metric(service, "caisson_network_bytes_total", 'tenant="one",direction="in"'), use["bytes_in"])
        self.assertEqual(self.metric(service, "caisson_network_bytes_total", 'tenant="one",direction="out"'), use["bytes_out"])
        self.assertGreater(use["bytes_in"], 50000)
        self.assertEqual(self.metric(service, "caisson_network_connections_total", 'tenant="two",decision="allowed"'), 0)
        service.audit_verify()

    def test_the_bytes_of_a_tenant(self):
        """The job that reaches the bound loses its connections; the next one is rejected; other tenants are not concerned."""
        service = self.start(network_bytes_per_tenant="1M")
        first = self.result(service, "print(fetch('/300000'))")
        self.assertEqual(first["stdout"], "300000\n", first)
        second = self.result(service, "try: print(fetch('/5000000'))\nexcept OSError as error: print('cut')\nexcept Exception as error: print('cut')")
        self.assertEqual(second["stdout"], "cut\n", second)
        self.assertIn("byte_limit", [one["evidence"].get("decision") for one in second["violations"]])
        third = self.result(service, "print(fetch('/1'))")
        self.assertEqual((third["status"], third["failure_class"]), ("rejected", "PolicyRejected"), third)
        self.assertIn("network_bytes_per_tenant", third["message"])
        other = self.result(service, "print(fetch('/1000'))", "bob")
        self.assertEqual((other["status"], other["stdout"]), ("pass", "1000\n"), other)

    def test_the_connections_of_a_tenant(self):
        """A job that finds none left waits for the one that has them, and no attempt is counted."""
        service = self.start(network_connections_per_tenant=4, workers=2)
        holder = self.submit(service, "print(fetch('/wait'))")
        self.assertTrue(self.server.held.wait(30))
        waits = self.submit(service, "print(fetch('/7'))")

        def postponed():
            events = service.request("GET", f"/v1/jobs/{waits}/events?limit=1000", headers=self.people["ann"]).json["events"]
            return "retry_scheduled" in [one["type"] for one in events] or events

        caisson.wait_until(postponed, 30, "the second job waits")
        other = self.result(service, "print(fetch('/8'))", "bob")
        self.assertEqual(other["stdout"], "8\n", other)
        self.server.released.set()
        self.assertEqual(service.wait_for(holder, ENDS)["state"], "succeeded")
        job = service.wait_for(waits, ENDS)
        self.assertEqual((job["state"], job["attempt"]), ("succeeded", 1), job)


if __name__ == "__main__":
    unittest.main()

"""The service's HTTP API from outside: authentication, refusals and answers.

Rows I01 to I05 and I09 of the attack catalogue are the classes named after them.
"""
import hashlib
import http.client
import json
import os
import pathlib
import re
import secrets
import socket
import stat
import subprocess
import sys
import threading
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson  # noqa: E402
from support.service import Answer, Service  # noqa: E402
from support.tokens import TOKENS, give_tokens, port_of  # noqa: E402

ENDED = ("succeeded", "failed", "rejected", "cancelled", "dead_lettered")


class ApiCase(unittest.TestCase):
    """One service for all tests of a class, with a TCP port and the tokens above."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(listen="127.0.0.1:0", allowed_hosts=["runner.example.org"])
        cls.addClassCleanup(cls.service.__exit__)
        give_tokens(cls.service)
        cls.service.start()
        cls.port = port_of(cls.service)

    def connect(self, tcp=True):
        if tcp:
            return socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(str(self.service.socket))
        return connection

    def raw(self, data, tcp=False):
        """Sends bytes as they are and gives everything that came back until the server closed."""
        with self.connect(tcp) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # refused before it was read
            answer = b""
            while True:
                try:
                    piece = connection.recv(65536)
                except ConnectionResetError:
                    return answer
                if not piece:
                    return answer
                answer += piece

    def statuses(self, answer):
        return [int(status) for status in re.findall(rb"(?:^|\r\n\r\n|\})HTTP/1\.1 (\d+) ", answer)]

    def ask(self, method, path, body=None, token="course", headers=None):
        """A request over TCP."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Authorization": f"Bearer {TOKENS[token]}"} if token else {}
        if body is not None:
            sent["Content-Type"] = "application/json"
            body = body if isinstance(body, (bytes, str)) else json.dumps(body)
            body = body.encode() if isinstance(body, str) else body
        sent.update(headers or {})
        try:
            connection.request(method, path, body, {name: value for name, value in sent.items() if value is not None})
            reply = connection.getresponse()
            return Answer(reply.status, reply.headers, reply.read())
        finally:
            connection.close()

    def jobs(self):
        return len(self.service.request("GET", "/v1/jobs?limit=1000").json["jobs"])

    def assert_problem(self, answer, status, field=None):
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/problem+json")
        problem = answer.json
        self.assertEqual(problem["status"], status)
        self.assertTrue(problem["type"].startswith("urn:caisson:problem:"))
        if field is not None:
            self.assertEqual(problem.get("field"), field, problem)
        return problem


REQUEST = {"source": {"files": {"main.py": "print(6 * 7)\n"}}}


class I01HostTest(ApiCase):
    def host(self, value, tcp):
        return self.raw(
            b"GET /version HTTP/1.1\r\nHost: " + value + b"\r\nConnection: close\r\n\r\n", tcp
        )

    def test_names_of_the_service(self):
        for tcp in (False, True):
            for host in (b"localhost", b"127.0.0.1", b"[::1]", b"localhost:%d" % self.port, b"runner.example.org"):
                self.assertEqual(self.statuses(self.host(host, tcp)), [200], host)

    def test_other_names(self):
        for tcp in (False, True):
            for host in (b"evil.com", b"localhost.evil.com", b"evil.com:80", b"rebind.127.0.0.1.nip.io", b"0.0.0.0",
                         b"localhost.", b"runner.example.org.evil.com", b"localhost:80:80"):
                self.assertEqual(self.statuses(self.host(host, tcp)), [421], host)

    def test_a_page_that_rebinds_gets_no_further_with_a_token(self):
        answer = self.ask("POST", "/v1/jobs", REQUEST, headers={"Host": "evil.com"})
        self.assert_problem(answer, 421)

    def test_missing_twice_and_absolute(self):
        before = self.jobs()
        for head in (b"GET /version HTTP/1.1\r\n\r\n",
                     b"GET /version HTTP/1.1\r\nHost:\r\n\r\n",
                     b"GET /version HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n\r\n",
                     b"GET http://localhost/version HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     b"GET http://evil.com/version HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            self.assertEqual(self.statuses(self.raw(head)), [400], head)
        self.assertEqual(self.jobs(), before)


class I02OriginTest(ApiCase):
    def test_forms_and_other_sites(self):
        before = self.jobs()
        own = f"http://127.0.0.1:{self.port}"
        for headers, status in (
            ({"Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
            ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
            ({"Content-Type": None}, 415),
            ({"Content-Type": "application/jsonx"}, 415),
            ({"Origin": "null"}, 403),
            ({"Origin": "https://evil.com"}, 403),
            ({"Origin": own + ".evil.com"}, 403),
            ({"Origin": "http://localhost:1"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Origin": own, "Sec-Fetch-Site": "cross-site"}, 403),
        ):
            answer = self.ask("POST", "/v1/jobs", REQUEST, headers=headers)
            self.assert_problem(answer, status)
            self.assertIsNone(answer.headers.get("Access-Control-Allow-Origin"))
        self.assertEqual(self.jobs(), before)
        self.assertEqual(self.ask("POST", "/v1/jobs", REQUEST, headers={"Origin": own}).status, 202)

    def test_preflight(self):
        answer = self.ask("OPTIONS", "/v1/jobs", token=None, headers={
            "Origin": "https://evil.com", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization"})
        self.assert_problem(answer, 403)
        self.assertFalse([name for name in answer.headers if name.lower().startswith("access-control")])

    def test_event_streams_and_upgrades_of_other_sites(self):
        answer = self.ask("GET", "/v1/jobs/none/events", headers={"Accept": "text/event-stream", "Origin": "null"})
        self.assert_problem(answer, 403)
        answer = self.ask("GET", "/v1/jobs", headers={"Upgrade": "websocket", "Connection": "Upgrade",
                                                       "Sec-WebSocket-Key": "x", "Origin": "https://evil.com"})
        self.assert_problem(answer, 403)


class I03AccessTest(ApiCase):
    def test_where_it_listens(self):
        mode = os.stat(self.service.socket).st_mode
        self.assertEqual((stat.S_ISSOCK(mode), stat.S_IMODE(mode)), (True, 0o600))
        inodes = set()
        for fd in os.listdir(f"/proc/{self.service.process.pid}/fd"):
            try:
                link = os.readlink(f"/proc/{self.service.process.pid}/fd/{fd}")
            except FileNotFoundError:
                continue  # closed meanwhile
            inodes.update(re.findall(r"socket:\[(\d+)\]", link))
        listening = []
        for table in ("tcp", "tcp6"):
            for line in pathlib.Path(f"/proc/{self.service.process.pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and words[9] in inodes:
                    listening.append(words[1])
        self.assertEqual(listening, [f"0100007F:{self.port:04X}"])

    def test_it_does_not_start_open(self):
        tokens = self.service.root / "tokens.yaml"
        for settings, word in (
            ({"listen": "127.0.0.1:0"}, "tokens"),
            ({"listen": "0.0.0.0:0", "tokens": tokens}, "tls_certificate"),
            ({"listen": "[::]:0", "tokens": tokens}, "tls_certificate"),
        ):
            refused = Service(**settings)
            self.addCleanup(refused.__exit__)
            with self.assertRaises(AssertionError) as caught:
                refused.start()
            refused.process = None
            self.assertIn(word, str(caught.exception))

    def test_without_valid_credentials(self):
        details = set()
        for header in (None, "Bearer", "Bearer x", f"Bearer {TOKENS['expired']}", f"Basic {TOKENS['course']}",
                       f"Bearer {TOKENS['course']}0", f"Bearer {TOKENS['course'][:-1]}", "Bearer " + "a" * 4000,
                       f"Bearer {hashlib.sha256(TOKENS['course'].encode()).hexdigest()}"):
            answer = self.ask("GET", "/v1/jobs", token=None, headers={"Authorization": header})
            problem = self.assert_problem(answer, 401)
            self.assertIn("Bearer", answer.headers["WWW-Authenticate"])
            details.add(problem["detail"])
        self.assertEqual(len(details), 1)

    def test_what_anybody_may_see(self):
        for path in ("/healthz", "/version", "/openapi.yaml", "/verification_result.schema.json"):
            self.assertEqual(self.ask("GET", path, token=None).status, 200, path)
        self.assertEqual(self.ask("GET", "/readyz", token=None).json, {"ready": True})
        self.assertIn("checks", self.ask("GET", "/readyz", token="operator").json)
        for path in ("/metrics", "/v1/jobs", "/v1/dlq", "/v1/approvals", "/v1/jobs/x", "/nothing"):
            self.assertEqual(self.ask("GET", path, token=None).status, 401, path)

    def test_rights(self):
        self.assert_problem(self.ask("POST", "/v1/jobs", REQUEST, token="reader"), 403)
        self.assert_problem(self.ask("GET", "/v1/jobs", token="scraper"), 403)
        self.assert_problem(self.ask("GET", "/metrics", token="course"), 403)
        self.assertEqual(self.ask("GET", "/metrics", token="scraper").status, 200)
        self.assert_problem(self.ask("POST", "/v1/dlq/x:requeue", token="course"), 403)

    def test_tenants_see_their_own(self):
        job = self.ask("POST", "/v1/jobs", REQUEST).json
        path = f"/v1/jobs/{job['job_id']}"
        self.assertEqual(job["tenant"], "course-7")
        self.assertEqual(self.ask("GET", path, token="reader").status, 200)
        self.assertEqual(self.ask("GET", path, token="operator").status, 200)
        for suffix in ("", "/result", "/events", "/logs", "/artifacts/x", "/attestation"):
            self.assert_problem(self.ask("GET", path + suffix, token="other"), 404)
        self.assert_problem(self.ask("POST", path + ":cancel", token="other"), 404)
        listed = self.ask("GET", "/v1/jobs?tenant=course-7", token="other").json["jobs"]
        self.assertNotIn(job["job_id"], [one["job_id"] for one in listed])

    def test_a_path_of_the_machine_is_for_admins(self):
        self.assert_problem(self.ask("POST", "/v1/jobs", {"source": {"path": "/etc"}}), 403, "source.path")


class I03GuessingTest(ApiCase):
    def test_failures_are_limited(self):
        seen = {self.ask("GET", "/v1/jobs", token=None, headers={"Authorization": "Bearer no"}).status for _ in range(60)}
        self.assertEqual(seen, {401, 429})
        self.assertEqual(self.ask("GET", "/v1/jobs").status, 200)


class I04ParserTest(ApiCase):
    # An acceptable request after each refused one: it must never be executed.
    def second(self):
        body = json.dumps({**REQUEST, "request_id": "smuggled"}).encode()
        return (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d"
                b"\r\n\r\n%s") % (len(body), body)

    def assert_refused(self, data, *expected):
        before = self.jobs()
        for tcp in (False, True):
            answer = self.raw(data + self.second(), tcp)
            statuses = self.statuses(answer)
            self.assertEqual(len(statuses), 1, (data, answer))
            self.assertIn(statuses[0], expected, (data, answer))
            self.assertIn(b"Connection: close", answer)
        self.assertEqual(self.jobs(), before, data)

    def test_smuggling(self):
        post = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        second = self.second()
        for lines in (
            b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
            b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(second),
            b"Content-Length: 0, %d\r\n\r\n" % len(second),
            b"Content-Length: +0\r\n\r\n",
            b"Content-Length: 0x0\r\n\r\n",
            b"Content-Length : 0\r\n\r\n",
            b"Content-Length\r\n : 0\r\n\r\n",
            b"Content-Length: 0\r\n Transfer-Encoding: chunked\r\n\r\n",
            b"Content-Length: 0\x00\r\n\r\n",
            b"Content-Length: 0\n\r\n",
            b"Content-Length: 0\r\n\n",
            b"X: y\rContent-Length: 0\r\n\r\n",
        ):
            self.assert_refused(post + lines, 400)
        for lines in (b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                      b"Transfer-Encoding: chunked\r\n\r\n2;ext=\"\r\n\"\r\n{}\r\n0\r\n\r\n",
                      b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
                      b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"):
            self.assert_refused(post + lines, 411, 400)

    def test_what_is_not_http(self):
        self.assert_refused(b"GET /version\r\n", 400)
        self.assert_refused(b"\r\nGET /version HTTP/1.1\r\nHost: localhost\r\n\r\n", 400)
        self.assert_refused(b"GET /version HTTP/1.0\r\nHost: localhost\r\n\r\n", 505)
        self.assert_refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505)
        self.assert_refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 400)
        self.assert_refused(b"GET /version HTTP/1.1\r\nHost: localhost\r\nExpect: magic\r\n\r\n", 417)
        self.assert_refused(b"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400)

    def test_large_heads(self):
        self.assert_refused(b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414)
        self.assert_refused(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n", 431)
        self.assert_refused(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431)

    def test_a_body_that_is_refused_is_not_a_request(self):
        for head in (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n",
                     b"POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\n",
                     b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n",
                     b"POST /v1/jobs HTTP/1.1\r\nHost: evil.com\r\nContent-Type: application/json\r\n",
                     b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n"):
            self.assert_refused(head + b"Content-Length: %d\r\n\r\n" % len(self.second()), 400, 401, 404, 415, 421)

    def test_good_requests_behind_one_another(self):
        answer = self.raw(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2 +
                          b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" +
                          b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertEqual(self.statuses(answer), [200, 200, 200])

    def test_slowloris(self):
        """Heads that never end take their connections and nothing else, and are cut off."""
        slow = [self.connect() for _ in range(40)]
        try:
            for connection in slow:
                connection.sendall(b"GET /version HTTP/1.1\r\nHost: loc")
            self.assertEqual(self.ask("GET", "/version", token=None).status, 200)
            for connection in slow:
                connection.settimeout(60)
                data = b""
                while piece := connection.recv(4096):
                    data += piece
                self.assertEqual(self.statuses(data), [408])
        finally:
            for connection in slow:
                connection.close()

    def test_expect(self):
        body = json.dumps(REQUEST).encode()
        head = (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
                b"Expect: 100-continue\r\nConnection: close\r\n\r\n") % len(body)
        with self.connect(tcp=False) as connection:
            connection.sendall(head)
            self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 100 "))
            connection.sendall(body)
            self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 202 "))
        refused = self.raw(head.replace(b"application/json", b"text/plain"))
        self.assertEqual(self.statuses(refused), [415])


class I05BodyTest(ApiCase):
    def test_what_is_not_json(self):
        before = self.jobs()
        good = '"source": {"files": {"main.py": "pass"}}'
        for body in (
            "", "{", "[]x", "{} {}", "{" + good + "} ", "\ufeff{" + good + "}", "nul", "{'source': 1}",
            "{" + good + ", " + good + "}",
            '{"source": {"files": {"a": "1", "a": "2"}}}',
            "{" + good + ', "priority": NaN}', "{" + good + ', "priority": Infinity}', "{" + good + ', "priority": 1e999}',
            "{" + good + ', "priority": 123456789012345678901234567890}',
            "[" * 100000 + "]" * 100000, '{"a":' * 100000 + "1" + "}" * 100000,
            '{"source": {"files": {"a": "\\ud800"}}}',
            b'{"source": {"files": {"a": "\xff\xfe"}}}', b'{"source": {"files": {"a": "\x00"}}}',
            "{" + good, "{" + good + "}garbage", "{" + good + "}\x00",
        ):
            answer = self.ask("POST", "/v1/jobs", body)
            # Blanks behind a document are no part of it.
            self.assertEqual(answer.status, 202 if body == "{" + good + "} " else 400, (body[:80], answer.body))
        self.assertEqual(self.jobs(), before + 1)

    def test_well_formed_and_wrong(self):
        for fields, field in (
            ({"priority": 1000}, "priority"), ({"nonsense": 1}, "nonsense"), ({"limits": {"cpu": "x"}}, "limits.cpu"),
            ({"source": {}}, "source"), ({"source": {"files": {"../a": ""}}}, 'source.files["../a"]'),
            ({"checks": [{"name": "a", "tier": "run", "argv": []}]}, "checks[0].argv"),
        ):
            self.assert_problem(self.ask("POST", "/v1/jobs", {**REQUEST, **fields}), 422, field)
        answer = self.ask("POST", "/v1/jobs", '{"source": {"files": {"main.py": "pass"}}, "priority": -0}')
        self.assertEqual(answer.status, 202, answer.body)

    def test_never_an_empty_body(self):
        for path in ("/v1/jobs", "/v1/jobs:batch", "/v1/archives", "/v1/approvals/x:grant"):
            self.assert_problem(self.ask("POST", path, token="operator"), 400)
        self.assert_problem(self.ask("POST", "/v1/jobs", "{}"), 422, "source")

    def test_size(self):
        head = (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n")
        self.assertEqual(self.statuses(self.raw(head % ((64 << 20) + 1))), [413])
        self.assertEqual(self.statuses(self.raw(head % (10 ** 14))), [413])
        self.assertEqual(self.statuses(self.raw(head % 1000 + b"{")), [400])
        large = {**REQUEST, "source": {"files": {"main.py": "pass\n", "data.txt": "x" * (8 << 20)}}}
        self.assertEqual(self.ask("POST", "/v1/jobs", large).status, 202)

    def test_encodings(self):
        for encoding in ("gzip", "deflate", "br", "gzip, identity"):
            answer = self.ask("POST", "/v1/jobs", b"\x1f\x8b" + b"\0" * 100, headers={"Content-Encoding": encoding})
            self.assert_problem(answer, 415)


class JobsTest(ApiCase):
    def test_from_submission_to_result(self):
        answer = self.ask("POST", "/v1/jobs", {**REQUEST, "request_id": "r-1", "labels": {"student": "42"}})
        self.assertEqual(answer.status, 202, answer.body)
        job = answer.json
        path = answer.headers["Location"]
        self.assertEqual(path, f"/v1/jobs/{job['job_id']}")
        for name, value in (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")):
            self.assertEqual(answer.headers[name], value)
        self.assertRegex(answer.headers["X-Request-Id"], "^[0-9a-f]{24}$")
        result = self.ask("GET", path + "/result?wait=60s").json
        caisson.validate(result, "verification_result.schema.json")
        self.assertEqual((result["status"], result["stdout"], result["request_id"]), ("pass", "42\n", "r-1"))
        self.assertEqual(self.ask("GET", path).json["state"], "succeeded")
        self.assertEqual(self.ask("GET", path + "/logs").body, b"42\n")
        self.assertEqual(self.ask("GET", path + "/logs?from=1").body, b"2\n")
        self.assertEqual(self.ask("GET", path + "/logs?stream=stderr").body, b"")
        for query in ("label=student%3D42", "request_id=r-1", "state=succeeded,failed"):
            listed = self.ask("GET", f"/v1/jobs?{query}").json["jobs"]
            self.assertIn(job["job_id"], [one["job_id"] for one in listed], query)
        self.assertEqual(self.ask("GET", "/v1/jobs?label=student%3D43").json["jobs"], [])

    def test_waiting(self):
        answer = self.ask("POST", "/v1/jobs?wait=60s", REQUEST)
        self.assertEqual((answer.status, answer.json["status"]), (200, "pass"))
        self.assertIn("/v1/jobs/", answer.headers["Location"])
        slow = {"source": {"files": {"main.py": "import time; time.sleep(30)"}}}
        answer = self.ask("POST", "/v1/jobs?wait=100ms", slow)
        self.assertEqual(answer.status, 202)
        path = answer.headers["Location"]
        self.assert_problem(self.ask("GET", path + "/result"), 409)
        self.assert_problem(self.ask("GET", path + "/result?wait=1ms"), 409)
        cancelled = self.ask("POST", path + ":cancel", {"reason": "too slow"})
        self.assertEqual(cancelled.status, 202, cancelled.body)
        result = self.ask("GET", path + "/result?wait=60s")
        self.assertEqual((result.status, result.json["status"]), (200, "cancelled"))
        self.assert_problem(self.ask("POST", path + ":cancel"), 409)
        for bad in ("61s", "-1s", "x", "1h"):
            self.assert_problem(self.ask("POST", f"/v1/jobs?wait={bad}", REQUEST), 400, "wait")

    def test_events_as_they_happen(self):
        program = "import sys, time\nfor i in range(3):\n  print(i, flush=True); time.sleep(0.2)\n"
        job = self.ask("POST", "/v1/jobs", {"source": {"files": {"main.py": program}}}).json
        path = f"/v1/jobs/{job['job_id']}"
        stream = self.ask("GET", path + "/events", headers={"Accept": "text/event-stream"})
        self.assertEqual(stream.headers["Content-Type"], "text/event-stream")
        events = self.sse(stream.body)
        self.assertEqual([seq for seq, _, _ in events], list(range(1, len(events) + 1)))
        self.assertEqual((events[0][1], events[-1][1]), ("queued", "result"))
        self.assertIn("sandbox_started", [kind for _, kind, _ in events])
        for seq, kind, event in events:
            caisson.validate(event, "lifecycle_event.schema.json")
            self.assertEqual((event["seq"], event["type"], event["run_id"]), (seq, kind, job["job_id"]))
        listed = self.ask("GET", path + "/events?limit=1000").json
        self.assertEqual(listed["events"], [event for _, _, event in events])
        self.assertEqual(listed["next_after"], events[-1][0])
        # Going on where a connection was lost.
        rest = self.ask("GET", path + "/events", headers={"Accept": "text/event-stream", "Last-Event-ID": "2"})
        self.assertEqual(self.sse(rest.body), events[2:])
        over = self.ask("GET", path + "/events", headers={"Accept": "text/event-stream",
                                                            "Last-Event-ID": str(events[-1][0])})
        self.assertEqual(self.sse(over.body), [])
        self.assert_problem(self.ask("GET", path + "/events", headers={"Accept": "text/event-stream",
                                                                         "Last-Event-ID": "x"}), 400)

    @staticmethod
    def sse(body):
        events = []
        for block in body.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "data" in fields:
                events.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
        return events

    def test_logs_as_they_come(self):
        program = "import sys\nprint('first', flush=True)\nsys.stdin.read()\nimport time; time.sleep(3)\nprint('last')\n"
        job = self.ask("POST", "/v1/jobs", {"source": {"files": {"main.py": program}}}).json
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", f"/v1/jobs/{job['job_id']}/logs?follow=1",
                           headers={"Authorization": f"Bearer {TOKENS['course']}"})
        reply = connection.getresponse()
        self.assertEqual(reply.readline(), b"first\n")
        self.assertNotIn(self.service.job(job["job_id"])["state"], ENDED)  # it came while the job ran
        self.assertEqual(reply.read(), b"last\n")

    def test_artifacts(self):
        program = "open('/scratch/a b.txt', 'w').write('hello'); open('/scratch/page.html', 'w').write('<script>')\n"
        answer = self.ask("POST", "/v1/jobs?wait=60s", {"source": {"files": {"main.py": program}},
                                                          "artifacts": ["/scratch/*"]})
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(len(answer.json["artifacts"]), 2, answer.json)
        path = answer.headers["Location"] + "/artifacts/"
        for artifact in answer.json["artifacts"]:
            got = self.ask("GET", path + urllib.parse.quote(artifact["path"], safe=""))
            self.assertEqual(got.status, 200, got.body)
            self.assertEqual(hashlib.sha256(got.body).hexdigest(), artifact["sha256"])
            self.assertEqual(got.headers["Content-Type"], "application/octet-stream")
            self.assertTrue(got.headers["Content-Disposition"].startswith("attachment;"))
            self.assertIn("sandbox", got.headers["Content-Security-Policy"])
            self.assertEqual(got.headers["X-Content-Type-Options"], "nosniff")
        for other in ("..%2F..%2Fetc%2Fpasswd", "%2Fscratch%2F..%2F..%2Fetc%2Fpasswd", "../../../etc/passwd", "%2Fetc%2Fpasswd",
                      "x", "%2Fscratch", "a%20b.txt", "%2Fscratch%2Fa%20b.txt%2F", "..", "%2e%2e", "%00", "%ff"):
            self.assert_problem(self.ask("GET", path + other), 404)
        self.assert_problem(self.ask("GET", path), 404)

    def test_idempotency(self):
        headers = {"Idempotency-Key": "key-1"}
        first = self.ask("POST", "/v1/jobs", REQUEST, headers=headers)
        again = self.ask("POST", "/v1/jobs", REQUEST, headers=headers)
        self.assertEqual(again.json["job_id"], first.json["job_id"])
        self.assertEqual((first.headers.get("Idempotency-Replayed"), again.headers.get("Idempotency-Replayed")),
                         (None, "true"))
        self.assert_problem(self.ask("POST", "/v1/jobs", {**REQUEST, "priority": 1}, headers=headers), 409)
        other = self.ask("POST", "/v1/jobs", REQUEST, token="other", headers=headers)
        self.assertNotEqual(other.json["job_id"], first.json["job_id"])
        for bad in ("", "a b", "x" * 256):
            self.assertIn(self.ask("POST", "/v1/jobs", REQUEST, headers={"Idempotency-Key": bad}).status, (400,))
        ids = []
        threads = [threading.Thread(target=lambda: ids.append(
            self.ask("POST", "/v1/jobs", REQUEST, headers={"Idempotency-Key": "key-2"}).json["job_id"])) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(ids), len(set(ids))), (20, 1))

    def test_batches(self):
        answer = self.ask("POST", "/v1/jobs:batch", [REQUEST, {"source": {}}, {**REQUEST, "request_id": "b-3"}])
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual([one["status"] for one in answer.json["answers"]], [202, 422, 202])
        self.assertEqual(answer.json["answers"][1]["problem"]["field"], "source")
        self.assertEqual(answer.json["answers"][2]["job"]["request_id"], "b-3")
        for bad, status in (([], 422), ({}, 422), ([REQUEST] * 1001, 422), ("[1,", 400)):
            self.assert_problem(self.ask("POST", "/v1/jobs:batch", bad), status)

    def test_pages(self):
        for number in range(5):
            self.ask("POST", "/v1/jobs", {**REQUEST, "labels": {"page": "yes"}, "request_id": f"p-{number}"})
        seen, cursor = [], ""
        while True:
            page = self.ask("GET", f"/v1/jobs?label=page%3Dyes&limit=2{cursor}").json
            self.assertLessEqual(len(page["jobs"]), 2)
            seen += [job["request_id"] for job in page["jobs"]]
            if "next_cursor" not in page:
                break
            cursor = "&cursor=" + page["next_cursor"]
        self.assertEqual(seen, [f"p-{number}" for number in reversed(range(5))])
        for query in ("limit=0", "limit=1001", "limit=x", "state=nonsense", "label=x", "cursor=%2F", "unknown=1",
                      "limit=1&limit=2", "request_id=%ff", "tenant=a%20b"):
            self.assert_problem(self.ask("GET", f"/v1/jobs?{query}"), 400)

    def test_archives(self):
        data = secrets.token_bytes(1000)
        answer = self.ask("POST", "/v1/archives", data, headers={"Content-Type": "application/octet-stream"})
        self.assertEqual(answer.status, 201, answer.body)
        self.assertEqual(answer.json["sha256"], hashlib.sha256(data).hexdigest())
        self.assert_problem(self.ask("POST", "/v1/archives", data), 415)
        unknown = {"source": {"archive": "sha256:" + "0" * 64}}
        self.assert_problem(self.ask("POST", "/v1/jobs", unknown), 422, "source.archive")

    def test_methods_and_paths(self):
        answer = self.ask("PATCH", "/v1/jobs")
        self.assert_problem(answer, 405)
        self.assertEqual(answer.headers["Allow"], "POST, GET")
        for path in ("/", "/v1", "/v1/", "/v1/jobs/", "/v1//jobs", "/V1/jobs", "/v1/jobs/a/b", "/v1/jobs/a:b", "/v1/jobs/%2e%2e",
                     "/v1/dlq/x", "/v1/approvals/x", "/v1/jobs/" + "a" * 129):
            self.assert_problem(self.ask("GET", path), 404)
        answer = self.ask("HEAD", "/version")
        self.assertEqual((answer.status, answer.body), (405, b""))

    def test_it_is_counted(self):
        self.ask("GET", "/v1/jobs/none")
        metrics = self.ask("GET", "/metrics", token="scraper").body.decode()
        self.assertRegex(metrics, r'caisson_http_requests_total\{[^}]*route="/v1/jobs/\{id\}"[^}]*\}')


class TlsTest(unittest.TestCase):
    def test_only_tls_of_today(self):
        caisson.need_tool("tls", "openssl")
        service = Service(listen="127.0.0.1:0")
        self.addCleanup(service.__exit__)
        key, certificate = service.root / "key.pem", service.root / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
        key.chmod(0o600)
        give_tokens(service, tls_certificate=certificate, tls_key=key)
        service.start()
        port = port_of(service)
        handshake = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", certificate, "-verify_return_error"]
        for flag, works in (("-tls1_3", True), ("-tls1_2", True), ("-tls1_1", False)):
            done = subprocess.run([*handshake, flag, "-cipher", "DEFAULT:@SECLEVEL=0"], input=b"", capture_output=True)
            self.assertEqual(done.returncode == 0, works, (flag, done.stderr))
        environment = os.environ | {"CAISSON_URL": f"https://localhost:{port}", "CAISSON_TOKEN": TOKENS["course"],
                                    "SSL_CERT_FILE": str(certificate)}
        command = [service.programs / "caisson", "list", "--json"]
        done = subprocess.run(command, env=environment, capture_output=True)
        self.assertEqual((done.returncode, json.loads(done.stdout)), (0, {"jobs": []}), done.stderr)
        # A certificate without a trusted issuer, and one for another name.
        for change in ({"SSL_CERT_FILE": "/dev/null"}, {"CAISSON_URL": f"https://127.0.0.2:{port}"}):
            done = subprocess.run(command, env=environment | change, capture_output=True)
            self.assertEqual(done.returncode, 4, done.stdout)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
            plain.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertNotIn(b"200", plain.recv(4096))


if __name__ == "__main__":
    unittest.main()

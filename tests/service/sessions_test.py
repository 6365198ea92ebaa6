"""Agent sessions over HTTP, against a real caissond and real supervisors."""

import base64
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import sys
import threading
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from service_test import tokens  # noqa: E402
from support import caisson  # noqa: E402
from support.service import Service, UnixConnection  # noqa: E402

OCTETS = {"Content-Type": "application/octet-stream"}


class SessionCase(unittest.TestCase):
    KEYS = {}

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def serve(self, **keys):
        service = self.stack.enter_context(Service(**{**self.KEYS, **keys}))
        # Sessions outlive their service unless they are told to end.
        self.stack.callback(self.end_all, service)
        return service

    @staticmethod
    def end_all(service):
        if service.process is None:
            return
        for session in service.request("GET", "/v1/sessions?limit=1000").json["sessions"]:
            service.request("DELETE", f"/v1/sessions/{session['id']}")

    def open(self, service, headers=None, **body):
        answer = service.request("POST", "/v1/sessions", body, headers)
        self.assertEqual(answer.status, 201, answer.body)
        self.assertEqual(answer.headers["Location"], f"/v1/sessions/{answer.json['id']}")
        return answer.json["id"]

    def run_in(self, service, session, *argv, wait="60", headers=None, **body):
        body = {"argv": list(argv), **body} if argv else body
        answer = service.request("POST", f"/v1/sessions/{session}/exec?wait={wait}", body, headers, timeout=120)
        self.assertIn(answer.status, (200, 202), answer.body)
        return answer.json

    def state(self, service, session):
        return service.request("GET", f"/v1/sessions/{session}").json["state"]


class Life(SessionCase):
    def test_a_session_keeps_its_files_between_commands_until_it_is_deleted(self):
        service = self.serve()
        session = self.open(service, name="mine", labels={"who": "test"}, files={"a/b.txt": "begun", "c": {"base64": "AAE="}})
        shown = service.request("GET", f"/v1/sessions/{session}").json
        self.assertEqual((shown["name"], shown["state"], shown["labels"]), ("mine", "idle", {"who": "test"}))
        done = self.run_in(service, session, command="cat a/b.txt; echo x > new; echo y > /tmp/kept; wc -c < c; echo e >&2; exit 3")
        self.assertEqual((done["exit_code"], done["ending"], done["stdout"].split(), done["stderr"]),
                         (3, "exited", ["begun2"], "e\n"))
        self.assertFalse(done["truncated"])
        done = self.run_in(service, session, "cat", "new", "/tmp/kept")
        self.assertEqual(done["stdout"], "x\ny\n")
        self.assertEqual(done["exec"], 2)
        stopped = service.request("POST", f"/v1/sessions/{session}:stop")
        self.assertEqual((stopped.status, stopped.json["state"]), (200, "stopped"))
        again = service.request("POST", f"/v1/sessions/{session}/exec", {"argv": ["true"]})
        self.assertEqual(again.status, 409, again.body)
        # What was recorded stays.
        self.assertEqual(service.request("GET", f"/v1/sessions/{session}/exec/2").json["stdout"], "x\ny\n")
        events = [json.loads(line) for line in service.request("GET", f"/v1/sessions/{session}/events").body.splitlines()]
        self.assertEqual((events[0]["type"], events[-1]["type"]), ("session_opened", "session_stopped"))
        self.assertIn(b"begun", service.request("GET", f"/v1/sessions/{session}/transcript").body)
        self.assertEqual(service.request("DELETE", f"/v1/sessions/{session}").status, 204)
        self.assertEqual(service.request("GET", f"/v1/sessions/{session}").status, 404)
        self.assertEqual(list((service.state / "sessions" / "tenant-default").glob("ses_*")), [])
        service.audit_verify()
        steps = [json.loads(line)["details"]["step"] for line in service.audit.read_text().splitlines()]
        self.assertEqual(steps, ["opened", "stopped", "removed"])
        for line in service.audit.read_text().splitlines():
            caisson.validate(json.loads(line), "audit_record.schema.json")

    def test_the_same_key_and_body_are_the_same_session(self):
        service = self.serve()
        key = {"Idempotency-Key": "once"}
        first = service.request("POST", "/v1/sessions", {"name": "a"}, key)
        second = service.request("POST", "/v1/sessions", {"name": "a"}, key)
        self.assertEqual((first.status, second.status), (201, 200), second.body)
        self.assertEqual(first.json["id"], second.json["id"])
        self.assertEqual(second.headers["Idempotency-Replayed"], "true")
        self.assertEqual(service.request("POST", "/v1/sessions", {"name": "b"}, key).status, 409)
        # Also at the same time, and after a restart.
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(
            service.request("POST", "/v1/sessions", {"files": {"x": "y"}}, {"Idempotency-Key": "many"}))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len({answer.json["id"] for answer in answers}), 1)
        service.stop()
        service.start()
        self.assertEqual(service.request("POST", "/v1/sessions", {"name": "a"}, key).json["id"], first.json["id"])

    def test_faults_are_named(self):
        service = self.serve()
        for body, field in [({"nmae": "x"}, "nmae"), ({"files": {"../x": ""}}, 'files["../x"]'), ({"idle_ms": 0}, "idle_ms"),
                            ({"env": {"a-b": "c"}}, "env"), ({"name": "UPPER"}, "name"), ({"limits": {"cpu": 0}}, "limits.cpu"),
                            ({"project": "relative"}, "project"), ({"profile": "../x"}, "profile")]:
            answer = service.request("POST", "/v1/sessions", body)
            self.assertEqual(answer.status, 422, (body, answer.body))
            self.assertIn(field, answer.json["detail"])
        self.assertEqual(service.request("POST", "/v1/sessions", "{").status, 400)
        self.assertEqual(service.request("POST", "/v1/sessions", {"limits": {"memory_bytes": 1 << 60}}).status, 422)
        self.assertEqual(service.request("GET", "/v1/sessions").json["sessions"], [])
        session = self.open(service)
        for body in [{}, {"argv": []}, {"argv": ["a"], "command": "b"}, {"argv": ["true"], "user": "root"},
                     {"argv": ["true"], "cwd": "none-such"}, {"argv": ["true"], "cwd": "/etc/passwd"}, {"argv": ["\0"]}]:
            answer = service.request("POST", f"/v1/sessions/{session}/exec", body)
            self.assertEqual(answer.status, 422, (body, answer.body))
        self.assertEqual(service.request("GET", f"/v1/sessions/{session}/exec/99").status, 404)
        self.assertEqual(service.request("POST", f"/v1/sessions/{session}:extend", {"ttl_ms": 1 << 62}).status, 422)
        longer = service.request("POST", f"/v1/sessions/{session}:extend", {"idle_ms": 7_200_000})
        self.assertEqual((longer.status, longer.json["idle_ms"]), (200, 7_200_000))

    def test_pages_and_filters(self):
        service = self.serve()
        ids = [self.open(service, labels={"n": str(i)}) for i in range(3)]
        service.request("POST", f"/v1/sessions/{ids[1]}:stop")
        page = service.request("GET", "/v1/sessions?limit=2").json
        rest = service.request("GET", f"/v1/sessions?limit=2&cursor={page['next_cursor']}").json
        self.assertEqual({one["id"] for one in page["sessions"] + rest["sessions"]}, set(ids))
        self.assertNotIn("next_cursor", rest)
        for query, expected in [("state=stopped", [ids[1]]), ("label=n%3D2", [ids[2]]), ("state=lost", [])]:
            found = service.request("GET", f"/v1/sessions?{query}").json["sessions"]
            self.assertEqual([one["id"] for one in found], expected)
        self.assertEqual(service.request("GET", "/v1/sessions?state=gone").status, 400)
        self.assertEqual(service.metric('caisson_sessions{state="idle"}'), 2)

    def test_tenants_do_not_see_or_starve_each_other(self):
        root = pathlib.Path(self.stack.enter_context(caisson.tempfile.TemporaryDirectory(prefix="caisson-test-")))
        people = tokens(root / "tokens.yaml", ann=("a", ["submit", "read"]), bob=("b", ["submit", "read"]),
                        eve=("a", ["read"]))
        service = self.serve(tokens=root / "tokens.yaml", sessions=3, sessions_per_tenant=2)
        session = self.open(service, people["ann"], name="same")
        other = self.open(service, people["bob"], name="same")
        for method, path, body in [("GET", "", None), ("DELETE", "", None), ("POST", ":stop", None), ("POST", ":discard", None),
                                   ("POST", "/exec", {"argv": ["true"]}), ("GET", "/exec/1", None), ("GET", "/files/x", None),
                                   ("GET", "/diff", None), ("GET", "/events", None), ("GET", "/transcript", None),
                                   ("POST", ":fork", None), ("POST", ":extend", {"idle_ms": 5000}), ("GET", "/files", None),
                                   ("GET", "/archive", None), ("PUT", "/archive", b"x"), ("PUT", "/files/x", b"x"),
                                   ("DELETE", "/files/x", None), ("GET", "/exec/1/stream", None), ("POST", ":apply", {}),
                                   ("POST", "/exec/1/stdin", None), ("POST", "/exec/1:signal", {"signal": 9})]:
            answer = service.request(method, f"/v1/sessions/{session}{path}", body, people["bob"])
            # Without the right to approve, an apply says so before it looks for the session.
            self.assertEqual(answer.status, 403 if path == ":apply" else 404, (method, path, answer.body))
        self.assertEqual([one["id"] for one in service.request("GET", "/v1/sessions", None, people["bob"]).json["sessions"]],
                         [other])
        self.assertEqual(service.request("POST", "/v1/sessions", {}, people["eve"]).status, 403)
        self.assertEqual(service.request("POST", f"/v1/sessions/{session}/exec", {"argv": ["true"]}, people["eve"]).status, 403)
        self.open(service, people["ann"])
        for who in ("ann", "bob"):  # ann's own bound; the bound of all
            full = service.request("POST", "/v1/sessions", {}, people[who])
            self.assertEqual(full.status, 429, full.body)
            self.assertIn("Retry-After", full.headers)
        service.request("POST", f"/v1/sessions/{session}:stop", None, people["ann"])
        self.open(service, people["ann"])

    def test_projects_only_where_the_operator_allows_them(self):
        root = pathlib.Path(self.stack.enter_context(caisson.tempfile.TemporaryDirectory(prefix="caisson-test-", dir="/var/tmp")))
        root.chmod(0o755)
        allowed, other = root / "allowed", root / "other"
        for directory in (allowed, other):
            directory.mkdir()
            (directory / "file").write_text("host\n")
        (allowed / "out").symlink_to(other)
        people = tokens(root / "tokens.yaml", ann=("a", ["submit", "read"]), boss=("a", ["read", "approve"]))
        service = self.serve(tokens=root / "tokens.yaml", session_projects=[str(allowed)], session_apply="allow")
        for project in (other, allowed / "out", allowed / ".." / "other", "/etc"):
            answer = service.request("POST", "/v1/sessions", {"project": str(project)}, people["ann"])
            self.assertIn(answer.status, (403, 422), (project, answer.body))
        session = self.open(service, people["ann"], project=str(allowed))
        self.run_in(service, session, command="echo inside > file; echo n > new", headers=people["ann"])
        self.assertEqual((allowed / "file").read_text(), "host\n")
        diff = service.request("GET", f"/v1/sessions/{session}/diff", None, people["ann"])
        self.assertEqual(diff.status, 200, diff.body)
        self.assertEqual([change["path"] for change in diff.json["changes"]], ["file", "new"])
        patch = service.request("GET", f"/v1/sessions/{session}/diff", None, {**people["ann"], "Accept": "text/x-diff"})
        self.assertIn(b"+inside", patch.body)
        self.assertEqual(service.request("POST", f"/v1/sessions/{session}:apply", {}, people["ann"]).status, 403)
        stale = service.request("POST", f"/v1/sessions/{session}:apply", {"diff_digest": "0" * 64}, people["boss"])
        self.assertEqual(stale.status, 409, stale.body)
        done = service.request("POST", f"/v1/sessions/{session}:apply", {}, people["boss"])
        self.assertEqual((done.status, done.json["paths"]), (200, ["file", "new"]), done.body)
        self.assertEqual((allowed / "file").read_text(), "inside\n")
        self.assertEqual(service.request("GET", f"/v1/sessions/{session}", None, people["ann"]).json["state"], "applied")

    def test_a_restart_keeps_living_sessions_and_a_dead_supervisor_is_lost(self):
        service = self.serve()
        session, doomed = self.open(service), self.open(service)
        started = self.run_in(service, session, command="echo first; sleep 1000", wait="0")
        self.assertEqual(started["state"], "running")
        service.kill()
        service.start()
        self.assertEqual(self.state(service, session), "running")
        self.assertEqual(self.run_in(service, session, "echo", "again")["stdout"], "again\n")
        self.assertEqual(service.request("POST", f"/v1/sessions/{session}/exec/1:signal", {"signal": "TERM"}).status, 200)
        ended = service.request("GET", f"/v1/sessions/{session}/exec/1?wait=60").json
        self.assertEqual((ended["ending"], ended["exit_code"], ended["stdout"]), ("signaled", 143, "first\n"))
        record = json.loads((service.state / "sessions/tenant-default" / doomed / "session.json").read_text())
        os.kill(record["pid"], signal.SIGKILL)
        caisson.wait_until(lambda: self.state(service, doomed) == "lost", 30, "the session is lost")
        self.assertEqual(service.request("POST", f"/v1/sessions/{doomed}/exec", {"argv": ["true"]}).status, 409)
        self.assertEqual(service.request("DELETE", f"/v1/sessions/{doomed}").status, 204)

    def test_a_session_ends_when_it_is_idle_or_its_time_is_over(self):
        service = self.serve()
        idle, working, busy = (self.open(service, idle_ms=1500), self.open(service, idle_ms=1500), self.open(service, ttl_ms=4000))
        self.run_in(service, working, "sleep", "1000", wait="0")
        self.run_in(service, busy, "sleep", "1000", wait="0")
        # Its owner is gone. Looking at it does not keep it alive; a running command does, up to its time to live.
        caisson.wait_until(lambda: self.state(service, idle) == "stopped", 30, "the idle session ends")
        self.assertEqual(service.request("GET", f"/v1/sessions/{idle}").json["reason"], "idle")
        self.assertEqual(self.state(service, working), "running")
        caisson.wait_until(lambda: self.state(service, busy) == "stopped", 30, "the session ends with its time")
        self.assertEqual(service.request("GET", f"/v1/sessions/{busy}/exec/1").json["ending"], "cancelled")
        self.assertEqual(self.state(service, working), "running")
        for session in (idle, busy):
            self.assertEqual(service.request("POST", f"/v1/sessions/{session}:extend", {"idle_ms": 60000}).status, 409)
            self.assertEqual(caisson.processes(marker=session), {}, "processes are left")

    def test_states_follow_what_happens(self):
        service = self.serve()
        session = self.open(service)
        self.assertEqual(self.state(service, session), "idle")
        self.run_in(service, session, command="echo x > made; sleep 1000", wait="0")
        self.assertEqual(self.state(service, session), "running")
        service.request("POST", f"/v1/sessions/{session}/exec/1:signal", {"signal": "KILL"})
        service.request("GET", f"/v1/sessions/{session}/exec/1?wait=60")
        caisson.wait_until(lambda: self.state(service, session) == "idle", 30, "the session is idle again")
        self.assertEqual(service.request("POST", f"/v1/sessions/{session}:stop").json["state"], "stopped")
        self.assertEqual(service.request("POST", f"/v1/sessions/{session}:stop").json["state"], "stopped")
        self.assertEqual([change["path"] for change in service.request("GET", f"/v1/sessions/{session}/diff").json["changes"]],
                         ["made"])
        for _ in range(2):
            self.assertEqual(service.request("POST", f"/v1/sessions/{session}:discard").json["state"], "discarded")
        self.assertEqual(service.request("GET", f"/v1/sessions/{session}/diff").status, 409)
        self.assertEqual(service.request("POST", f"/v1/sessions/{session}:fork").status, 409)
        # One whose first process is killed from outside has failed.
        broken = self.open(service)
        record = json.loads((service.state / "sessions/tenant-default" / broken / "session.json").read_text())
        children = pathlib.Path(f"/proc/{record['pid']}/task/{record['pid']}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        caisson.wait_until(lambda: self.state(service, broken) == "failed", 30, "the session has failed")

    def test_a_fork_begins_with_the_changes_and_goes_its_own_way(self):
        service = self.serve()
        session = self.open(service, files={"kept": "k", "gone": "g", "dir/changed": "c"}, labels={"a": "b"}, env={"WHO": "me"})
        self.run_in(service, session, command="rm gone; echo new > dir/changed; mkdir made; echo x > made/x; echo t > /tmp/t")
        first = service.request("POST", f"/v1/sessions/{session}:fork", {"name": "copy"}, {"Idempotency-Key": "f"})
        again = service.request("POST", f"/v1/sessions/{session}:fork", {"name": "copy"}, {"Idempotency-Key": "f"})
        other = service.request("POST", "/v1/sessions", {}, {"Idempotency-Key": "f"})
        self.assertEqual((first.status, again.status, other.status), (201, 200, 409), first.body)
        fork = first.json["id"]
        self.assertEqual((again.json["id"], first.json["name"], first.json["labels"], first.json["forked_from"]),
                         (fork, "copy", {"a": "b"}, session))
        show = "find . -type f | sort; cat dir/changed kept made/x; echo $WHO; ls /tmp"
        self.assertEqual(self.run_in(service, fork, command=show)["stdout"], "./dir/changed\n./kept\n./made/x\nnew\nkx\nme\n")
        diffs = [service.request("GET", f"/v1/sessions/{one}/diff").json["changes"] for one in (session, fork)]
        self.assertEqual([change["path"] for change in diffs[0]], ["dir/changed", "gone", "made", "made/x"])
        self.assertEqual([change["path"] for change in diffs[1]], [change["path"] for change in diffs[0]])
        self.run_in(service, fork, command="echo fork > kept; rm -r made")
        self.run_in(service, session, command="echo first > kept")
        self.assertEqual(self.run_in(service, fork, command="cat kept; ls")["stdout"], "fork\ndir\nkept\n")
        self.assertEqual(self.run_in(service, session, command="cat kept; ls")["stdout"], "first\ndir\nkept\nmade\n")
        # What was stopped can be forked; who is no more cannot.
        service.request("POST", f"/v1/sessions/{session}:stop")
        late = service.request("POST", f"/v1/sessions/{session}:fork")
        self.assertEqual(late.status, 201, late.body)
        self.assertEqual(self.run_in(service, late.json["id"], "cat", "kept")["stdout"], "first\n")
        service.request("DELETE", f"/v1/sessions/{session}")
        self.assertEqual(service.request("POST", f"/v1/sessions/{session}:fork").status, 404)
        self.assertEqual(self.run_in(service, fork, "cat", "kept")["stdout"], "fork\n")
        for body in ({"nmae": "x"}, {"ttl_ms": 0}, {"labels": []}, {"files": {}}):
            self.assertEqual(service.request("POST", f"/v1/sessions/{fork}:fork", body).status, 422, body)

    def test_many_sessions_at_once(self):
        """CAISSON_MANY_SESSIONS=100 for the long form."""
        count = int(os.environ.get("CAISSON_MANY_SESSIONS", "20"))
        service = self.serve(sessions=count, sessions_per_tenant=count, sessions_kept_per_tenant=2 * count)

        def all_at_once(work, items):
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                return list(pool.map(work, items))

        sessions = all_at_once(lambda number: self.open(service, files={"n": str(number)}), range(count))
        self.assertEqual(service.request("POST", "/v1/sessions", {}).status, 429)
        # One command runs in each of them all the time.
        all_at_once(lambda one: self.run_in(service, one, "sleep", "1000", wait="0"), sessions)
        listed = service.request("GET", "/v1/sessions?state=running&limit=1000").json["sessions"]
        self.assertEqual({one["id"] for one in listed}, set(sessions))

        def use(number):
            path = f"/v1/sessions/{sessions[number]}/files/data"
            content = os.urandom(20000)
            self.assertEqual(service.request("PUT", path, content).status, 200)
            done = self.run_in(service, sessions[number], command="cat n; wc -c < data; echo changed > n")
            self.assertEqual(done["stdout"].split(), [f"{number}20000"], done)
            self.assertEqual(service.request("GET", path).body, content)
            diff = service.request("GET", f"/v1/sessions/{sessions[number]}/diff").json["changes"]
            self.assertEqual([change["path"] for change in diff], ["data", "n"])

        all_at_once(use, range(count))
        statuses = all_at_once(lambda one: service.request("DELETE", f"/v1/sessions/{one}").status, sessions)
        self.assertEqual(statuses, [204] * count)
        self.assertEqual(os.listdir(service.state / "sessions/tenant-default"), ["names.lock"])
        self.assertEqual(caisson.processes(marker=str(service.state / "sessions")), {})

    def test_sessions_end_with_the_service_where_it_is_told_so(self):
        service = self.serve(sessions_on_stop="end")
        session = self.open(service)
        service.stop()
        service.start()
        self.assertEqual(self.state(service, session), "stopped")


class Commands(SessionCase):
    def stream(self, service, path, last=None):
        """Server-sent events of a command as (id, type, data), to the end."""
        connection = UnixConnection(service.socket, 120)
        self.addCleanup(connection.close)
        connection.request("GET", path, headers={"Host": "localhost", **({"Last-Event-ID": last} if last else {})})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        event = {}
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
            elif "data" in event:
                yield event["id"], event["event"], json.loads(event["data"])
                event = {}

    def test_output_is_streamed_and_resumed(self):
        service = self.serve()
        session = self.open(service)
        number = self.run_in(service, session, stdin_open=True, wait="0",
                             command="echo one; read line; echo \"$line\" >&2; printf '\\377'")["exec"]
        path = f"/v1/sessions/{session}/exec/{number}"
        events = self.stream(service, f"{path}/stream")
        first = next(events)
        self.assertEqual(first[1:], ("stdout", {"offset": 0, "text": "one\n"}))
        sent = service.request("POST", f"{path}/stdin?eof=1", "tw\u00f6\n".encode(), OCTETS)
        self.assertEqual(sent.status, 202, sent.body)
        rest = list(events)
        self.assertEqual(rest[-1][1], "end")
        self.assertEqual(rest[-1][2]["exit_code"], 0)
        self.assertIn(("stderr", {"offset": 0, "text": "tw\u00f6\n"}), [event[1:] for event in rest])
        self.assertIn(("stdout", {"offset": 4, "base64": "/w=="}), [event[1:] for event in rest])
        again = list(self.stream(service, f"{path}/stream", first[0]))
        self.assertNotIn({"offset": 0, "text": "one\n"}, [event[2] for event in again])
        self.assertEqual([event[1] for event in again], ["stdout", "stderr", "end"])
        result = service.request("GET", path).json
        self.assertEqual(base64.b64decode(result["stdout_base64"]), b"one\n\xff")
        self.assertEqual(service.request("POST", f"{path}/stdin", b"x", OCTETS).status, 409)
        self.assertEqual(service.request("POST", f"{path}:signal", {"signal": "TERM"}).status, 409)
        self.assertEqual(service.request("GET", f"{path}/stream", None, {"Last-Event-ID": "x"}).status, 400)

    def test_long_output_is_bounded_and_says_so(self):
        service = self.serve()
        session = self.open(service)
        done = self.run_in(service, session, command="head -c 5000000 /dev/zero | tr '\\0' a; echo end")
        self.assertEqual((done["exit_code"], done["truncated"], done["stdout_bytes"]), (0, True, 5000004))
        self.assertTrue(done["stdout"].endswith("aend\n"))
        self.assertLess(len(done["stdout"]), 3 << 20)
        events = list(self.stream(service, f"/v1/sessions/{session}/exec/1/stream"))
        seen = 0
        for _, kind, data in events[:-1]:
            self.assertEqual((kind, data["offset"]), ("stdout", seen + data.get("missing", 0)))
            seen = data["offset"] + len(data["text"])
        self.assertEqual(seen, 5000004)
        self.assertEqual(sum(1 for event in events if "missing" in event[2]), 1)

    def test_input_larger_than_any_pipe(self):
        service = self.serve()
        session = self.open(service)
        text = "0123456789abcdef" * (300 << 10)
        done = self.run_in(service, session, "wc", "-c", stdin=text)
        self.assertEqual(done["stdout"].strip(), str(len(text)))
        # One that does not read is no one else's trouble.
        self.run_in(service, session, "sleep", "1000", stdin=text, wait="0")
        self.assertEqual(self.run_in(service, session, "cat", stdin={"base64": "aGk="})["stdout"], "hi")

    def test_time_limits_and_unknown_programs(self):
        service = self.serve()
        session = self.open(service)
        late = self.run_in(service, session, "sleep", "1000", timeout_ms=300)
        self.assertEqual((late["exit_code"], late["ending"]), (124, "timeout"))
        self.assertEqual(self.run_in(service, session, "no-such-program")["exit_code"], 127)
        done = self.run_in(service, session, "sh", "-c", "echo $A; pwd", env={"A": "b c"}, cwd="/tmp")
        self.assertEqual(done["stdout"], "b c\n/tmp\n")


class Files(SessionCase):
    def url(self, session, path):
        return f"/v1/sessions/{session}/files/{urllib.parse.quote_from_bytes(path, safe=b'/')}"

    def test_bytes_go_in_and_out(self):
        service = self.serve()
        session = self.open(service)
        large = os.urandom(3 << 20)
        for path, inside, content in [(b"plain.txt", "/workspace/plain.txt", b"hi"), (b"deep/er/x", "/workspace/deep/er/x", large),
                                      (b"/tmp/abs", "/tmp/abs", b""), (b"workspace/w", "/workspace/w", b"w"),
                                      (b"a b%2F?\n\xff\xc3", None, b"odd"), ("ü+%".encode(), "/workspace/ü+%", b"u")]:
            put = service.request("PUT", self.url(session, path), content)
            self.assertEqual(put.status, 200, (path, put.body))
            got = service.request("GET", self.url(session, path))
            self.assertEqual((got.status, got.body == content, got.headers["X-Caisson-Mode"]), (200, True, "0644"), path)
            if inside:
                done = self.run_in(service, session, "stat", "-c", "%s", inside)
                self.assertEqual(done["stdout"].strip(), str(len(content)))
        self.assertEqual(service.request("PUT", self.url(session, b"run.sh") + "?mode=0755", b"#!/bin/sh\necho ran\n").status, 200)
        self.assertEqual(self.run_in(service, session, "./run.sh")["stdout"], "ran\n")
        listed = service.request("GET", f"/v1/sessions/{session}/files?list=/workspace").json["entries"]
        names = {entry["name"] if isinstance(entry["name"], str) else base64.b64decode(entry["name"]["base64"]): entry
                 for entry in listed}
        self.assertEqual((names["deep"]["type"], names["run.sh"]["mode"], names["w"]["size"]), ("directory", 0o755, 1))
        self.assertIn(b"a b%2F?\n\xff\xc3", names)
        self.assertEqual(service.request("DELETE", self.url(session, b"deep")).status, 204)
        self.assertEqual(service.request("GET", self.url(session, b"deep/er/x")).status, 404)
        self.assertEqual(service.request("DELETE", self.url(session, b"deep")).status, 404)

    def test_directories_and_what_is_in_the_way(self):
        service = self.serve()
        session = self.open(service)
        put = lambda path, query="", body=b"": service.request("PUT", self.url(session, path) + query, body)  # noqa: E731
        for _ in range(2):
            made = put(b"a/b/c", "?type=directory&mode=0700")
            self.assertEqual((made.status, made.json["type"]), (200, "directory"), made.body)
        self.run_in(service, session, command="echo x > file; ln -s a dir; ln -s none dangling; ln -s loop loop; "
                    "touch shut; chmod 0 shut; mkdir sealed; chmod 500 sealed; mkfifo pipe")
        for path, query, body, status, name in [
                (b"file", "?type=directory", b"", 409, "EEXIST"), (b"file/x", "?type=directory", b"", 409, "ENOTDIR"),
                (b"file/x", "", b"x", 409, "ENOTDIR"), (b"a", "", b"x", 409, "EISDIR"), (b"shut", "", b"x", 403, "EACCES"),
                (b"sealed/x", "", b"x", 403, "EACCES"), (b"/usr/x", "", b"x", 403, None), (b"loop", "", b"x", 422, "ELOOP")]:
            answer = put(path, query, body)
            self.assertEqual(answer.status, status, (path, answer.body))
            self.assertEqual(answer.json.get("errno"), name) if name else self.assertIn(answer.json["errno"], ("EROFS", "EACCES"))
        self.assertEqual(put(b"a/d", "?type=directory", b"x").status, 400)
        self.assertEqual(put(b"a/d", "?type=pipe").status, 400)

        def stat(path):
            return service.request("GET", f"/v1/sessions/{session}/files?stat={urllib.parse.quote(path, safe='')}")

        self.assertEqual((stat("/workspace/a/b/c").json["type"], stat("a/b/c").json["mode"]), ("directory", 0o700))
        self.assertEqual((stat("file").json["size"], stat("file").json["path"]), (2, "/workspace/file"))
        for path, kind in [("dir", "directory"), ("dangling", None), ("loop", None)]:
            self.assertEqual((stat(path).json["type"], stat(path).json["target_type"]), ("link", kind), path)
        self.assertEqual(stat("/").json["type"], "directory")
        for path, status, name in [("nothing", 404, "ENOENT"), ("file/x", 409, "ENOTDIR")]:
            self.assertEqual((stat(path).status, stat(path).json["errno"]), (status, name))
        listed = service.request("GET", f"/v1/sessions/{session}/files?list=file")
        self.assertEqual((listed.status, listed.json["errno"]), (409, "ENOTDIR"))
        self.assertEqual(service.request("GET", f"/v1/sessions/{session}/files?list=a&stat=a").status, 400)
        for path, status, name in [(b"a", 409, "EISDIR"), (b"shut", 403, "EACCES"), (b"no", 404, "ENOENT")]:
            got = service.request("GET", self.url(session, path))
            self.assertEqual((got.status, got.json["errno"]), (status, name))

    def test_ranges(self):
        service = self.serve()
        session = self.open(service, files={"f": "0123456789"})
        for field, status, body in [("bytes=2-4", 206, b"234"), ("bytes=7-", 206, b"789"), ("bytes=-3", 206, b"789"),
                                    ("bytes=5-99", 206, b"56789"), ("bytes=10-", 416, None), ("bytes=3-1", 200, b"0123456789"),
                                    ("bytes=0-1,3-4", 200, b"0123456789"), ("lines=1-2", 200, b"0123456789")]:
            got = service.request("GET", self.url(session, b"f"), None, {"Range": field})
            self.assertEqual(got.status, status, field)
            if body is not None:
                self.assertEqual(got.body, body, field)
            if status == 206:
                self.assertTrue(got.headers["Content-Range"].endswith("/10"))

    def test_paths_do_not_lead_out(self):
        service = self.serve(session_file_bytes="1M")
        session = self.open(service)
        self.run_in(service, session, command="ln -s /etc/passwd link; ln -s / root; mkfifo pipe; mkdir shut; ln -s loop loop")
        with open("/etc/passwd", "rb") as file:
            host = file.read()
        for path in (b"link", b"root/etc/passwd", b"//etc/passwd"):
            got = service.request("GET", self.url(session, path))
            self.assertNotEqual(got.body, host, path)
        for path in (b"root/etc/passwd", b"root/etc/new", b"root/usr/new", b"/proc/1/mem", b"root/dev/null"):
            self.assertGreaterEqual(service.request("PUT", self.url(session, path), b"evil").status, 400, path)
        with open("/etc/passwd", "rb") as file:
            self.assertEqual(file.read(), host)
        for path, method in [(b"../x", "GET"), (b"a/../../x", "PUT"), (b"./x", "GET"), (b"pipe", "GET"), (b"pipe", "PUT"),
                             (b"loop", "GET"), (b"shut", "GET"), (b"x" * 256, "GET"), (b"n" * 300 + b"/x", "PUT")]:
            answer = service.request(method, self.url(session, path), b"x" if method == "PUT" else None)
            self.assertIn(answer.status, (403, 404, 409, 422), (path, answer.status, answer.body))
        self.assertEqual(service.request("GET", f"/v1/sessions/{session}/files/a%00b").status, 404)
        self.assertEqual(service.request("PUT", self.url(session, b"big"), b"x" * (1 << 20)).status, 200)
        self.assertEqual(service.request("PUT", self.url(session, b"big"), b"x" * ((1 << 20) + 1)).status, 413)

    def test_what_is_sent_in_counts_as_the_sessions_own(self):
        service = self.serve()
        session = self.open(service, limits={"scratch_bytes": 4 << 20})
        statuses = [service.request("PUT", self.url(session, b"f%d" % i), b"x" * (1 << 20)).status for i in range(6)]
        self.assertEqual(statuses[:3], [200] * 3)
        self.assertEqual(statuses[-1], 429)


if __name__ == "__main__":
    unittest.main()

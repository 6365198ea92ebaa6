"""The service from outside: the fate of jobs, also through failures. Runs on SQLite and on PostgreSQL."""

import concurrent.futures
import contextlib
import hashlib
import hmac
import http.server
import io
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson, postgres  # noqa: E402
from support.service import Service  # noqa: E402

ENDS = {"succeeded", "failed", "rejected", "cancelled", "dead_lettered"}
# A policy that demands an approval for an ordinary request.
INSTALL = [{"name": "install", "tier": "run", "argv": ["/usr/bin/pip", "install", "nothing"]}]


def tokens(path, **people):
    """A tokens file; gives a header for each name. `people` are name=(tenant, rights)."""
    lines, headers = ["version: 1", "tokens:"], {}
    for name, (tenant, rights) in people.items():
        token = hashlib.sha256(name.encode()).hexdigest()
        headers[name] = {"Authorization": f"Bearer {token}"}
        lines += [f"  - name: {name}", f"    tenant: {tenant}", f"    rights: [{', '.join(rights)}]",
                  f"    sha256: {hashlib.sha256(token.encode()).hexdigest()}"]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return headers


class ServiceCase(unittest.TestCase):
    KEYS = {}

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def serve(self, **keys):
        return self.stack.enter_context(Service(**{**self.KEYS, **keys}))

    def ends(self, service, answer, state):
        self.assertIn(answer.status, (200, 202), answer.body)
        job = service.wait_for(answer.json["job_id"], ENDS)
        self.assertEqual(job["state"], state, job)
        return job


class Jobs(ServiceCase):
    def test_verdicts_become_states_and_results_are_whole(self):
        service = self.serve()
        for program, state, failure in [("print('hi')", "succeeded", None), ("1/0", "failed", "CheckFailed"),
                                        ("open('/workspace/x','w')", "failed", "FilesystemWriteViolation")]:
            job = self.ends(service, service.submit(program), state)
            result = service.request("GET", f"/v1/jobs/{job['job_id']}/result").json
            caisson.validate(result, "verification_result.schema.json")
            self.assertEqual(result["failure_class"], failure)
            events = service.events(job["job_id"])
            for event in events:
                caisson.validate(event, "lifecycle_event.schema.json")
            self.assertEqual([event["seq"] for event in events], list(range(1, len(events) + 1)))
            self.assertEqual(events[0]["type"], "queued")
            self.assertEqual(events[-1]["type"], "result")
            self.assertEqual(events[-1]["result"], result)
        service.audit_verify()

    def test_waiting_gives_the_result(self):
        service = self.serve()
        answer = service.submit("print('now')", wait="30s")
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json["stdout"], "now\n")

    def test_what_policy_refuses_is_rejected_and_what_is_no_request_is_not_taken(self):
        service = self.serve()
        self.ends(service, service.submit("1", mode="strict"), "rejected")
        refused = service.submit("1", limits={"memory_bytes": 0})
        self.assertIn(refused.status, (400, 422))
        self.assertIn("memory_bytes", refused.json["detail"])
        self.assertEqual(service.request("POST", "/v1/jobs", "{").status, 400)

    def test_installed_rules_are_obeyed(self):
        """Without the key `policy`, the rules of /etc/caisson/policy.yaml count, as they do for the command line."""
        if os.geteuid() != 0:
            caisson.skip("root", "only root can show a service another /etc")
        root = pathlib.Path(self.stack.enter_context(caisson.tempfile.TemporaryDirectory(prefix="caisson-test-")))
        for name in ("etc/caisson", "work"):
            (root / name).mkdir(parents=True)
        rules = "version: 1\nkind: policy\nname: ours\nlock_owner: us\nrisk:\n  - {id: all, strength: microvm, why: because}\n"
        (root / "etc/caisson/policy.yaml").write_text(rules)
        service = Service()
        self.addCleanup(service.__exit__)
        shown = service.programs / "caissond"
        wrapper = root / "caissond"
        wrapper.write_text("#!/bin/sh\nmount -t overlay overlay -o "
                           f"lowerdir=/etc,upperdir={root}/etc,workdir={root}/work /etc && exec {shown} \"$@\"\n")
        wrapper.chmod(0o755)
        with open(service.log, "ab") as log:
            service.process = subprocess.Popen(["unshare", "-m", wrapper, "--config", service.config], stdin=subprocess.DEVNULL,
                                               stdout=log, stderr=log, start_new_session=True)
        caisson.wait_until(service._answers, 60, "caissond starts")
        self.ends(service, service.submit("print(1)"), "rejected")

    def test_artifacts_and_archives(self):
        service = self.serve()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            program = b"open('/scratch/out.txt','w').write('kept')"
            entry = tarfile.TarInfo("main.py")
            entry.size = len(program)
            archive.addfile(entry, io.BytesIO(program))
        sent = service.request("POST", "/v1/archives", packed.getvalue(), {"Content-Type": "application/octet-stream"})
        self.assertIn(sent.status, (200, 201), sent.body)
        digest = hashlib.sha256(packed.getvalue()).hexdigest()
        answer = service.request("POST", "/v1/jobs", {"source": {"archive": f"sha256:{digest}"},
                                                      "artifacts": ["/scratch/*.txt"]})
        job = self.ends(service, answer, "succeeded")
        got = service.request("GET", f"/v1/jobs/{job['job_id']}/artifacts/scratch/out.txt")
        self.assertEqual((got.status, got.body), (200, b"kept"))
        self.assertIn("attachment", got.headers["Content-Disposition"])
        missing = service.request("POST", "/v1/jobs", {"source": {"archive": "sha256:" + "0" * 64}})
        self.assertIn(missing.status, (400, 422))

    def test_output_can_be_followed_while_it_comes(self):
        service = self.serve()
        program = "import sys,time\nprint('first', flush=True)\nwhile True: time.sleep(1)"
        job_id = service.submit(program).json["job_id"]

        def text():
            return service.request("GET", f"/v1/jobs/{job_id}/logs").body
        caisson.wait_until(lambda: b"first" in text() or text(), 30, "output shows")
        self.assertEqual(service.job(job_id)["state"], "running")
        self.assertEqual(service.request("POST", f"/v1/jobs/{job_id}:cancel", {}).status // 100, 2)
        self.assertEqual(service.wait_for(job_id, ENDS)["state"], "cancelled")

    def test_doctor_asks_the_service(self):
        service = self.serve()
        doctor = [caisson.find_binary(), "doctor", "--service", "--url", f"unix:{service.socket}"]
        healthy = subprocess.run(doctor, capture_output=True, text=True)
        self.assertEqual(healthy.returncode, 0, healthy.stdout + healthy.stderr)
        for part in ("store", "audit", "launcher", "memory"):
            self.assertRegex(healthy.stdout, f"(?m)^ok +{part}")
        service.stop()
        self.assertEqual(subprocess.run(doctor, capture_output=True).returncode, 4)

    def test_large_results_are_whole(self):
        service = self.serve()
        job = self.ends(service, service.submit("print('x' * 300000)"), "succeeded")
        result = service.request("GET", f"/v1/jobs/{job['job_id']}/result").json
        self.assertEqual(len(result["stdout"]), 300001)

    def test_results_are_signed(self):
        directory = pathlib.Path(self.stack.enter_context(caisson.tempfile.TemporaryDirectory(prefix="caisson-test-")))
        program = caisson.find_binary()
        subprocess.run([program, "attest", "keygen", "--out", directory / "key"], check=True, capture_output=True)
        service = self.serve(signing_key=directory / "key")
        job = self.ends(service, service.submit("print(1)"), "succeeded")
        (directory / "result.json").write_bytes(service.request("GET", f"/v1/jobs/{job['job_id']}/result").body)
        (directory / "envelope").write_bytes(service.request("GET", f"/v1/jobs/{job['job_id']}/attestation").body)
        public = next(path for path in directory.iterdir() if "pub" in path.name)
        checked = subprocess.run([program, "attest", "verify", "--key", public, directory / "envelope", "--result",
                                  directory / "result.json"], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


class Idempotency(ServiceCase):
    def test_one_key_is_one_job(self):
        service = self.serve()
        with concurrent.futures.ThreadPoolExecutor(25) as pool:
            answers = list(pool.map(lambda _: service.submit("print(1)", key="k"), range(100)))
        self.assertEqual({answer.status for answer in answers} - {200, 202}, set())
        self.assertEqual(len({answer.json["job_id"] for answer in answers}), 1)
        self.assertEqual(service.submit("print(2)", key="k").status, 409)
        job = self.ends(service, answers[0], "succeeded")
        service.kill()
        service.start()
        self.assertEqual(service.submit("print(1)", key="k").json["job_id"], job["job_id"])
        self.assertEqual(len(service.request("GET", "/v1/jobs").json["jobs"]), 1)

    def test_keys_of_tenants_are_their_own(self):
        root = pathlib.Path(self.stack.enter_context(caisson.tempfile.TemporaryDirectory(prefix="caisson-test-")))
        people = tokens(root / "tokens", ann=("a", ["submit", "read"]), bob=("b", ["submit", "read"]))
        service = self.serve(tokens=root / "tokens")
        body = {"source": {"files": {"main.py": "print(1)"}}}
        ids = {}
        for name in ("ann", "bob"):
            answer = service.request("POST", "/v1/jobs", body, {**people[name], "Idempotency-Key": "k"})
            self.assertEqual(answer.status, 202, answer.body)
            ids[name] = answer.json["job_id"]
        self.assertNotEqual(ids["ann"], ids["bob"])
        for path in ("", "/result", "/events", "/logs"):
            answer = service.request("GET", f"/v1/jobs/{ids['ann']}{path}", headers=people["bob"])
            self.assertEqual(answer.status, 404, path)
        self.assertEqual(service.request("POST", f"/v1/jobs/{ids['ann']}:cancel", {}, people["bob"]).status, 404)
        paths = service.request("POST", "/v1/jobs", {"source": {"path": "/etc"}}, people["ann"])
        self.assertEqual(paths.status, 403, paths.body)


class Queue(ServiceCase):
    def test_a_full_queue_says_when_to_come_back(self):
        service = self.serve(workers=1, max_queue=2)
        sleepy = "import time; time.sleep(60)"
        first = service.submit(sleepy).json["job_id"]
        service.wait_for(first, "running")
        for _ in range(2):
            self.assertEqual(service.submit(sleepy).status, 202)
        full = service.submit(sleepy)
        self.assertEqual(full.status, 429, full.body)
        self.assertGreater(int(full.headers["Retry-After"]), 0)
        for job in service.request("GET", "/v1/jobs").json["jobs"]:
            service.request("POST", f"/v1/jobs/{job['job_id']}:cancel", {"reason": "enough"})
        for job in service.request("GET", "/v1/jobs").json["jobs"]:
            self.assertEqual(service.wait_for(job["job_id"], ENDS)["state"], "cancelled")
        caisson.wait_until(lambda: not caisson.processes("time.sleep(60)") or "running", 30, "sandboxes stop")

    def test_a_deadline_that_passes_in_the_queue_is_a_dead_letter(self):
        service = self.serve(workers=1)
        busy = service.submit("import time; time.sleep(60)").json["job_id"]
        service.wait_for(busy, "running")
        soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
        late = service.submit("print(1)", deadline=soon).json["job_id"]
        self.assertEqual(service.wait_for(late, ENDS)["state"], "dead_lettered")
        letter = service.request("GET", f"/v1/dlq/{late}").json
        self.assertEqual(letter["reason"], "deadline_passed")
        service.request("POST", f"/v1/jobs/{busy}:cancel", {})

    def test_the_first_of_equals_is_the_one_with_the_higher_priority(self):
        service = self.serve(workers=1)
        busy = service.submit("import time; time.sleep(1.5)").json["job_id"]
        service.wait_for(busy, "running")
        low = service.submit("print(1)", priority=-5).json["job_id"]
        high = service.submit("print(2)", priority=5).json["job_id"]
        service.wait_for(low, "succeeded")
        self.assertLess(service.job(high)["finished_at"], service.job(low)["finished_at"])


class Deaths(ServiceCase):
    SLEEP = "import time; time.sleep(3); print('done')"

    def test_a_killed_service_takes_its_sandboxes_along_and_runs_the_job_again(self):
        service = self.serve()
        marker = f"marker-{os.getpid()}"
        job_id = service.submit(f"# {marker}\nimport time; time.sleep(4); print('done')").json["job_id"]
        service.wait_for(job_id, "running")
        service.kill()
        caisson.wait_until(lambda: not service.processes("caisson-launcher") or "launcher lives", 10, "launcher ends")
        service.start()
        job = service.wait_for(job_id, ENDS)
        self.assertEqual((job["state"], job["attempt"]), ("succeeded", 2))
        self.assertEqual(job["attempts"][0]["cause"], "lost_worker")
        result = service.request("GET", f"/v1/jobs/{job_id}/result").json
        self.assertEqual(result["attempt"], 2)

    def test_a_killed_launcher_is_replaced_and_the_job_runs_again(self):
        service = self.serve()
        job_id = service.submit(self.SLEEP).json["job_id"]
        service.wait_for(job_id, "running")
        os.kill(min(service.processes("caisson-launcher")), signal.SIGKILL)
        job = service.wait_for(job_id, ENDS)
        self.assertEqual((job["state"], job["attempt"]), ("succeeded", 2))
        self.assertEqual(job["attempts"][0]["cause"], "infrastructure_error")
        self.assertGreaterEqual(service.metric("caisson_launcher_restarts_total"), 1)

    def test_what_never_works_becomes_a_dead_letter_that_can_be_requeued_and_dropped(self):
        service = self.serve(max_attempts=2)
        job_id = service.submit("import time; time.sleep(600)").json["job_id"]
        for attempt in (1, 2):
            caisson.wait_until(lambda: (lambda job: (job["state"], job["attempt"]) == ("running", attempt) or job)(
                service.job(job_id)), 30, "attempt runs")
            os.kill(min(service.processes("caisson-launcher")), signal.SIGKILL)
        self.assertEqual(service.wait_for(job_id, ENDS)["state"], "dead_lettered")
        letter = service.request("GET", f"/v1/dlq/{job_id}").json
        self.assertEqual(letter["reason"], "attempts_exhausted")
        self.assertEqual([one["attempt"] for one in letter["history"]], [1, 2])
        self.assertEqual([job["job_id"] for job in service.request("GET", "/v1/dlq").json["jobs"]], [job_id])
        self.assertEqual(service.request("POST", f"/v1/dlq/{job_id}:requeue").status // 100, 2)
        service.wait_for(job_id, "running")
        self.assertEqual(service.request("DELETE", f"/v1/dlq/{job_id}").status, 409)
        service.request("POST", f"/v1/jobs/{job_id}:cancel", {})
        service.wait_for(job_id, "cancelled")

    def test_a_drain_lets_short_jobs_end_and_keeps_long_ones(self):
        service = self.serve(drain="4s")
        short = service.submit("import time; time.sleep(1); print('short')").json["job_id"]
        long = service.submit("import time; time.sleep(8); print('long')").json["job_id"]
        for job_id in (short, long):
            service.wait_for(job_id, "running")
        self.assertEqual(service.stop(), 0)
        service.start()
        self.assertEqual(service.job(short)["state"], "succeeded")
        job = service.wait_for(long, ENDS)
        self.assertEqual((job["state"], job["attempt"]), ("succeeded", 1))


class Pools(ServiceCase):
    """Sandboxes kept ready: used, replaced when they die, and shown in the metrics."""

    def setUp(self):
        super().setUp()
        if not (caisson.find_binary().parent / "caisson_zygote.so").exists():
            caisson.skip("zygote", "this build has no caisson_zygote.so: an interpreter cannot load what is instrumented")
        self.service = self.serve(parked=4, python_modules=["json", "re"])

    def start_of_job(self):
        answer = self.service.submit("import json; print(json.dumps([1]))", wait="30s")
        self.assertEqual((answer.status, answer.json["status"]), (200, "pass"), answer.body)
        return answer.json["isolation"]["start"]

    def test_jobs_start_in_them(self):
        ready = 'caisson_pool_members{start="zygote",state="ready"}'
        caisson.wait_until(lambda: self.service.metric(ready) >= 1, 30, "members are shown")
        self.assertEqual(self.start_of_job(), "zygote")
        self.assertGreaterEqual(self.service.metric('caisson_pool_taken_total{start="zygote"}'), 1)

    def test_deaths_are_counted_and_made_good(self):
        caisson.wait_until(lambda: self.start_of_job() == "zygote", 30, "a job forked from the interpreter")
        launcher = min(self.service.processes("caisson-launcher"))
        children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children")

        def named(name):
            return [int(pid) for pid in children.read_text().split()
                    if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name]

        def died():
            return sum(self.service.metric(f'caisson_pool_died_total{{start="{start}"}}') for start in ("parked", "zygote"))

        caisson.wait_until(lambda: len(named("caisson-parked")) > 0, 30, "a member")
        os.kill(named("caisson-parked")[0], signal.SIGKILL)
        caisson.wait_until(lambda: died() == 1, 30, "its death is counted")
        os.kill(named("python3")[0], signal.SIGKILL)
        caisson.wait_until(lambda: self.service.metric("caisson_interpreters_died_total") == 1, 30, "its death is counted")
        for _ in range(8):
            self.start_of_job()
        caisson.wait_until(lambda: self.start_of_job() == "zygote", 30, "a job forked from the next interpreter")


class Approvals(ServiceCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.stack.enter_context(caisson.tempfile.TemporaryDirectory(prefix="caisson-test-")))
        self.people = tokens(self.root / "tokens", ann=("t", ["submit", "read", "approve"]),
                             bob=("t", ["approve", "read"]), cem=("t", ["approve"]), eve=("t", ["submit", "read"]))

    def ask(self, service, who="ann"):
        body = {"source": {"files": {"main.py": "print(1)"}}, "checks": INSTALL}
        answer = service.request("POST", "/v1/jobs", body, self.people[who])
        self.assertEqual(answer.status, 202, answer.body)
        job = service.wait_for(answer.json["job_id"], "awaiting_approval")
        approval = service.request("GET", f"/v1/approvals/{job['approval_id']}").json
        caisson.validate(approval["question"], "approval.schema.json")
        return job["job_id"], approval

    def answer(self, service, who, approval, verb="grant", **changes):
        question = approval["question"]
        body = {"plan_digest": question["plan_digest"], "nonce": question["nonce"], "reason": "because", **changes}
        return service.request("POST", f"/v1/approvals/{approval['approval_id']}:{verb}", body, self.people[who])

    def test_another_person_grants_and_only_once(self):
        service = self.serve(tokens=self.root / "tokens")
        job_id, approval = self.ask(service)
        self.assertEqual(self.answer(service, "ann", approval).status, 403)
        self.assertEqual(self.answer(service, "eve", approval).status, 403)
        self.assertEqual(self.answer(service, "bob", approval, plan_digest="0" * 64).status, 409)
        self.assertEqual(self.answer(service, "bob", approval, nonce="0" * 32).status, 409)
        self.assertEqual(service.job(job_id)["state"], "awaiting_approval")
        self.assertEqual(self.answer(service, "bob", approval).status, 200)
        self.assertEqual(self.answer(service, "cem", approval).status, 409)
        self.assertIn(service.wait_for(job_id, ENDS)["state"], ("failed", "succeeded"))
        self.assertTrue(service.request("GET", f"/v1/approvals/{approval['approval_id']}").json["used"])
        types = [event["type"] for event in service.events(job_id)]
        self.assertEqual([one for one in types if "approval" in one], ["approval_requested", "approval_granted"])
        service.audit_verify()

    def test_a_denial_ends_it(self):
        service = self.serve(tokens=self.root / "tokens")
        job_id, approval = self.ask(service)
        self.assertEqual(self.answer(service, "bob", approval, "deny").status, 200)
        self.assertEqual(service.wait_for(job_id, ENDS)["state"], "rejected")
        self.assertEqual(self.answer(service, "cem", approval).status, 409)

    def test_two_must_agree_where_two_are_asked_for(self):
        service = self.serve(tokens=self.root / "tokens", approval_quorum=2)
        job_id, approval = self.ask(service, "eve")
        self.assertEqual(self.answer(service, "bob", approval).status, 200)
        self.assertEqual(self.answer(service, "bob", approval).status, 409)
        self.assertEqual(service.job(job_id)["state"], "awaiting_approval")
        self.assertEqual(self.answer(service, "cem", approval).status, 200)
        self.assertIn(service.wait_for(job_id, ENDS)["state"], ("failed", "succeeded"))

    def test_silence_is_no(self):
        service = self.serve(tokens=self.root / "tokens", approval_ttl="1s")
        job_id, approval = self.ask(service)
        self.assertEqual(service.wait_for(job_id, ENDS)["state"], "rejected")
        self.assertEqual(self.answer(service, "bob", approval).status, 409)
        self.assertIn("approval_expired", [event["type"] for event in service.events(job_id)])

    def test_a_cancelled_job_cannot_be_approved(self):
        service = self.serve(tokens=self.root / "tokens")
        job_id, approval = self.ask(service)
        self.assertEqual(service.request("POST", f"/v1/jobs/{job_id}:cancel", {}).status // 100, 2)
        self.assertEqual(service.job(job_id)["state"], "cancelled")
        self.assertEqual(self.answer(service, "bob", approval).status, 409)


class Callbacks(ServiceCase):
    def setUp(self):
        super().setUp()
        self.got = []
        test = self

        class Receiver(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                test.got.append((self.path, dict(self.headers), body))
                self.send_response(500 if len(test.got) == 1 else 204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=self.receiver.serve_forever, daemon=True).start()
        self.addCleanup(self.receiver.server_close)
        self.addCleanup(self.receiver.shutdown)
        self.url = f"http://127.0.0.1:{self.receiver.server_port}/hook?x=1"
        self.root = pathlib.Path(self.stack.enter_context(caisson.tempfile.TemporaryDirectory(prefix="caisson-test-")))
        (self.root / "secret").write_text("a secret of some length\n")

    def test_the_result_is_sent_signed_and_again_until_it_is_taken(self):
        service = self.serve(callback_secret=self.root / "secret", callback_allow=["127.0.0.1"])
        job = self.ends(service, service.submit("print(1)", callback_url=self.url), "succeeded")
        caisson.wait_until(lambda: len(self.got) >= 2 or len(self.got), 30, "callbacks come")
        result = service.request("GET", f"/v1/jobs/{job['job_id']}/result").body
        for path, headers, body in self.got:
            self.assertEqual((path, body), ("/hook?x=1", result))
            stamp, mac = (part.split("=", 1)[1] for part in headers["Caisson-Signature"].split(","))
            expected = hmac.new(b"a secret of some length", stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
            self.assertEqual(mac, expected)
            self.assertEqual(headers["Caisson-Job"], job["job_id"])

    def test_private_addresses_are_not_reached(self):
        service = self.serve(callback_secret=self.root / "secret")
        self.ends(service, service.submit("print(1)", callback_url=self.url), "succeeded")
        caisson.wait_until(lambda: service.metric('caisson_callbacks_total{outcome="refused"}') == 1 or "not yet", 30,
                           "callback is refused")
        self.assertEqual(self.got, [])


class OnPostgres(ServiceCase):
    """The parts where the database matters, with two services on one."""

    @classmethod
    def setUpClass(cls):
        cls.server = postgres.Postgres()
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def test_two_share_the_work_and_one_dies(self):
        jobs = int(os.environ.get("CAISSON_SHARED_JOBS", "60"))
        database = self.server.database()
        one = self.serve(node="one", database=database, workers=2)
        two = self.serve(node="two", database=database, workers=2)
        ids = [service.submit("print('x')", key=f"shared-{number}").json["job_id"]
               for number, service in zip(range(jobs), [one, two] * jobs)]

        def ended():
            page = two.request("GET", "/v1/jobs?limit=1000").json["jobs"]
            return sum(job["state"] in ENDS for job in page if job["job_id"] in ids)
        caisson.wait_until(lambda: ended() >= jobs // 2 or ended(), 120, "half is done")
        one.kill()
        caisson.wait_until(lambda: ended() == jobs or ended(), 180, "all are done")
        for job_id in ids:
            job = two.job(job_id)
            self.assertEqual(job["state"], "succeeded")
            self.assertEqual(sum(event["type"] == "result" for event in two.events(job_id)), 1)
        self.assertEqual(len(set(ids)), jobs)

    def test_a_database_that_goes_away_and_comes_back(self):
        service = self.serve(node="three", database=self.server.database())
        before = service.submit("import time; time.sleep(2); print(1)").json["job_id"]
        service.wait_for(before, "running")
        self.server.kill()
        self.assertEqual(service.request("GET", "/readyz").status, 503)
        self.assertGreaterEqual(service.submit("print(1)").status, 500)
        self.server.start()
        caisson.wait_until(lambda: service.request("GET", "/readyz").status == 200 or "not ready", 30, "ready again")
        self.assertEqual(service.wait_for(before, ENDS)["state"], "succeeded")
        self.ends(service, service.submit("print(2)"), "succeeded")


if __name__ == "__main__":
    unittest.main()

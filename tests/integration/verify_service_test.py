"""caisson verify where a service is running: the same verdicts, a line that says so, and no second run when it fails."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson  # noqa: E402
from support.service import Service  # noqa: E402

# The members of a result that depend only on the source and the verdict. The others may differ between machines and
# runs.
SAME = ("status", "failure_class", "terminal_event", "tier", "exit_code", "source_digest", "skipped_checks", "mode")
FOREIGN_ID = 12345  # neither root nor the user that runs this test
SLOW = "import time\ntime.sleep(600)\n"


class Case(unittest.TestCase):
    def setUp(self):
        if os.path.exists("/run/caisson/caissond.sock"):
            caisson.skip("service", "this machine has a service of its own, which would be found too")
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="caisson-test-verify-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.place.chmod(0o755)
        # Where a user's own caissond listens, as $XDG_RUNTIME_DIR has it.
        self.runtime = self.place / "run"
        (self.runtime / "caisson").mkdir(parents=True)
        self.socket = self.runtime / "caisson/caissond.sock"

    def service(self, **keys):
        service = Service(socket=str(self.socket), **keys)
        service.socket = self.socket
        self.addCleanup(service.__exit__)
        return service.start()

    def file(self, name, text, mode=0o644):
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def environment(self, **extra):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CAISSON_")}
        return kept | {"XDG_RUNTIME_DIR": str(self.runtime)} | extra

    def popen(self, *arguments, prefix=(), binary=None, **extra):
        return subprocess.Popen([*prefix, str(binary or caisson.find_binary()), "verify", *map(str, arguments)], cwd=self.place,
                                env=self.environment(**extra), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)  # fmt: skip

    def verify(self, *arguments, code=0, **options):
        process = self.popen(*arguments, **options)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, (arguments, out, err))
        return out, err

    def result(self, *arguments, **options):
        """The result document, and whether a service made it."""
        out, err = self.verify("--json", *arguments, **options)
        document = json.loads(out)
        caisson.validate(document, "verification_result.schema.json")
        return document, "verifying at the service" in err

    def jobs(self, service):
        return service.request("GET", "/v1/jobs").json["jobs"]


class SameVerdicts(Case):
    def assert_same(self, *arguments, code):
        here, at_service = self.result("--local", *arguments, code=code)
        self.assertFalse(at_service)
        there, at_service = self.result(*arguments, code=code)
        self.assertTrue(at_service)
        self.assertEqual({name: there[name] for name in SAME}, {name: here[name] for name in SAME})
        said = [re.sub(r"in [\d.]+s", "", one["stdout"]) for one in (there, here)]  # pytest's own time
        self.assertEqual(said[0], said[1])
        return there

    def test_with_and_without(self):
        self.service()
        request = {"source": {"files": {"main.py": SLOW}}, "limits": {"command_timeout_ms": 1000}}
        self.file("slow.json", json.dumps(request))
        self.file("install.json", json.dumps({"source": {"files": {"main.py": ""}}, "limits": {"memory_bytes": 1 << 45}}))
        self.file("tests/test_it.py", "def test_it(): assert True\n")
        self.file("tree/main.py", "import os, subprocess\nprint(subprocess.check_output(['./tool']), os.readlink('same'))\n")
        self.file("tree/tool", "#!/bin/sh\necho ran\n", 0o755)
        self.file("tree/" + "n" * 120, "a long name")
        (self.place / "tree/same").symlink_to("tool")
        (self.place / "tree/far").symlink_to("n" * 120)
        (self.place / "tree/empty").mkdir()
        shutil.make_archive(self.place / "packed", "gztar", self.place / "tree")
        for arguments, code, failure_class in (
            ([self.file("pass.py", "print('fine')\n")], 0, None),
            ([self.file("fail.py", "print('why'); raise SystemExit(3)\n")], 1, "CheckFailed"),
            ([self.file("syntax.py", "def :\n")], 1, "CheckFailed"),
            (["slow.json"], 1, "TimeoutViolation"),
            (["--timeout", "1s", self.file("slow.py", SLOW)], 1, "TimeoutViolation"),
            ([self.file("net.py", "import socket; socket.create_connection(('192.0.2.1', 1))")], 1, "NetworkAccessViolation"),
            (["install.json"], 3, "PolicyRejected"),
            (["tests"], 0, None),
            (["tree"], 0, None),
            (["packed.tar.gz"], 0, None),
        ):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.assert_same(*arguments, code=code)["failure_class"], failure_class)

    def test_what_is_said_and_written(self):
        self.service()
        program = self.file("fail.py", "print('why'); raise SystemExit(3)\n")
        out, err = self.verify("--result", "r.json", "--events", "e.jsonl", program, code=1)
        self.assertEqual(err, f"caisson: verifying at the service unix:{self.socket}\n")
        here = self.verify("--local", program, code=1)[0]
        self.assertEqual([line.split("  ")[:-1] for line in out.splitlines() if "exit" in line],
                         [line.split("  ")[:-1] for line in here.splitlines() if "exit" in line])  # fmt: skip
        result = json.loads((self.place / "r.json").read_text())
        events = [json.loads(line) for line in (self.place / "e.jsonl").read_text().splitlines()]
        self.assertEqual((events[0]["type"], events[-1]["type"]), ("queued", "result"))
        self.assertEqual(events[-1]["result"], result)
        self.assertEqual(self.verify("--quiet", program, code=1), ("", ""))

    def test_a_request_of_ones_own_is_sent_as_it_is(self):
        service = self.service()
        self.file("named.json", json.dumps({"request_id": "mine", "labels": {"a": "b"}, "source": {"path": "tree"}}))
        self.file("tree/main.py", "print(1)\n")
        self.assertEqual(self.result("named.json")[0]["request_id"], "mine")
        self.assertEqual([(job["request_id"], job["labels"]) for job in self.jobs(service)], [("mine", {"a": "b"})])


    def test_an_approval_is_waited_for(self):
        service = self.service()
        self.file("install.json", json.dumps({"source": {"files": {"main.py": ""}}, "checks": [
            {"name": "install", "tier": "run", "argv": ["/usr/bin/python3", "-m", "pip", "install", "left-pad"]}]}))  # fmt: skip
        process = self.popen("--json", "install.json")
        self.addCleanup(caisson.end, process)
        caisson.wait_until(lambda: [job["state"] for job in self.jobs(service)] == ["awaiting_approval"], 60, "it waits")
        (approval,) = service.request("GET", "/v1/approvals").json["approvals"]
        subprocess.run([caisson.find_binary(), "approvals", "deny", approval["approval_id"], "--reason", "no"], check=True,
                       env=self.environment(CAISSON_URL=f"unix:{self.socket}"), stdout=subprocess.DEVNULL)  # fmt: skip
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, json.loads(out)["status"]), (3, "rejected"))
        self.assertIn(f"waits for approval; see: caisson approvals show {approval['approval_id']}", err)


class WhatOnlyThisProcessCanDo(Case):
    def test_it_is_done_here_and_said(self):
        service = self.service()
        program = self.file("main.py", "print(1)\n")
        self.file("own.yaml", "version: 1\nname: own\nextends: balanced\n")
        self.file("out/main.py", "print(1)\n")
        (self.place / "out/away").symlink_to("/etc/passwd")
        self.file("mounts.json", json.dumps({"source": {"files": {"main.py": ""}}, "mounts": [{"source": str(self.place / "out"), "target": "/x"}]}))
        for arguments, word in (
            (["--dry-run", program], "--dry-run"),
            (["--audit", "audit.jsonl", program], "--audit"),
            (["--artifacts", "kept", program], "--artifacts"),
            (["--profile", "own.yaml", program], "--profile"),
            (["--memory", "2G", program], "memory_bytes"),
            (["out"], "away"),
            (["mounts.json"], "mounts"),
        ):
            with self.subTest(arguments=arguments):
                _, err = self.verify(*arguments)
                self.assertRegex(err, f"^caisson: not at the service unix:{self.socket}: .*{word}.*; verifying here\n$")
                _, err = self.verify("--service", *arguments, code=2)
                self.assertIn(word, err)
        self.assertEqual(self.jobs(service), [])

    def test_faults_are_told_as_ever(self):
        self.service()
        self.file("broken.json", "{")
        for name in ("nowhere.py", "broken.json"):
            with self.subTest(name=name):
                out, err = self.verify(name, code=2)
                self.assertEqual((out, err.count("\n")), ("", 1), err)
                self.assertIn(name, err)


class Choice(Case):
    def test_flags(self):
        self.service()
        program = self.file("main.py", "print(1)\n")
        self.assertTrue(self.result(program)[1])
        self.assertTrue(self.result("--service", program)[1])
        self.assertEqual(self.verify("--local", program)[1], "")
        self.assertEqual(self.verify(program, CAISSON_URL="none")[1], "")
        self.verify("--local", "--service", program, code=2)

    def test_without_a_service(self):
        program = self.file("main.py", "print(1)\n")
        self.assertEqual(self.verify(program)[1], "")
        self.assertIn("start one with: caissond", self.verify("--service", program, code=4)[1])
        self.assertIn("CAISSON_URL", self.verify("--service", program, code=4, CAISSON_URL="none")[1])
        out, err = self.verify("--json", program, code=4, CAISSON_URL=f"unix:{self.socket}")
        self.assertEqual(out, "")
        self.assertIn(f"no service at unix:{self.socket}", err)
        self.assertIn("--local", err)

    def test_a_socket_that_nobody_listens_at(self):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(self.socket))
        program = self.file("main.py", "print(1)\n")
        self.assertEqual(self.verify(program)[1], "")
        self.assertIn(str(self.socket), self.verify("--service", program, code=4)[1])

    def test_one_that_listens_and_says_nothing(self):
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(self.socket))
            mute.listen()
            self.assertIn("verifying here", self.verify(self.file("main.py", "print(1)\n"))[1])

    @unittest.skipUnless(caisson.STARTED_BY_ROOT, "only root can make files of others")
    def test_a_socket_of_somebody_else_is_not_trusted(self):
        service = self.service()
        program = self.file("main.py", "print(1)\n")
        for path in (self.socket, self.socket.parent):
            with self.subTest(path=path.name):
                os.chown(path, FOREIGN_ID, FOREIGN_ID)
                self.assertRegex(self.verify(program)[1], rf"belongs to user {FOREIGN_ID}.*; verifying here\n$")
                self.verify("--service", program, code=4)
                self.assertTrue(self.result(program, CAISSON_URL=f"unix:{self.socket}")[1])  # named, so trusted
                os.chown(path, 0, 0)
        self.assertEqual(len(self.jobs(service)), 2)

    @unittest.skipUnless(caisson.STARTED_BY_ROOT, "needs two users")
    def test_a_service_for_others_is_no_error(self):
        self.service()
        become = ("setpriv", f"--reuid={caisson.ORDINARY_ID}", f"--regid={caisson.ORDINARY_ID}", "--clear-groups")
        caller = {"prefix": become, "binary": caisson.workbench().binary, "HOME": str(caisson.workbench().home(True))}
        program = self.file("main.py", "print(1)\n")
        self.assertEqual(self.verify(program, **caller)[1], "")
        self.assertIn("not allowed to open", self.verify("--service", program, code=4, **caller)[1])


class Failures(Case):
    def running(self, service, process):
        """Waits for verify's job to run."""
        def state():
            if process.poll() is not None:
                raise AssertionError(process.communicate())
            return [job["state"] for job in self.jobs(service)] == ["running"]

        caisson.wait_until(state, 60, "the job runs")

    def test_a_service_that_dies_on_the_way(self):
        service = self.service()
        process = self.popen("--json", self.file("slow.py", SLOW))
        self.addCleanup(caisson.end, process)
        self.running(service, process)
        (job,) = self.jobs(service)
        service.kill()
        out, err = process.communicate(timeout=120)
        self.assertEqual((process.returncode, out), (4, ""), err)
        self.assertIn(f"unix:{self.socket}", err)
        self.assertIn(job["job_id"], err)

    def test_one_that_comes_back_goes_on(self):
        service = self.service()
        process = self.popen("--json", self.file("slow.json", json.dumps(
            {"source": {"files": {"main.py": "import time; time.sleep(3); print('end')\n"}}})))  # fmt: skip
        self.addCleanup(caisson.end, process)
        self.running(service, process)
        service.kill()
        service.start()
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(json.loads(out)["stdout"], "end\n")

    def test_one_that_is_draining_is_not_used(self):
        service = self.service(drain="10m")
        process = self.popen(self.file("slow.py", SLOW))
        self.addCleanup(caisson.end, process)
        self.running(service, process)
        service.process.send_signal(signal.SIGTERM)
        program = self.file("main.py", "print(1)\n")

        def refused():
            done = self.popen("--service", program)
            said = done.communicate(timeout=60)
            return True if done.returncode == 4 else said

        caisson.wait_until(refused, 60, "the service takes no more jobs")
        self.assertFalse(self.result(program)[1])
        service.kill()

    def test_an_interrupt_cancels_the_job(self):
        service = self.service()
        process = self.popen("--json", self.file("slow.py", SLOW))
        self.addCleanup(caisson.end, process)
        self.running(service, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, json.loads(out)["status"]), (1, "cancelled"), err)
        self.assertEqual([job["state"] for job in self.jobs(service)], ["cancelled"])


if __name__ == "__main__":
    unittest.main()

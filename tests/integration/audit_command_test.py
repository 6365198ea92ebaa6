"""caisson audit verify, on a log that this test writes and hashes itself, as the documents describe it."""

import hashlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("CAISSON_BIN", ROOT / "build/release/src/caisson")
EXAMPLE = ROOT / "examples/audit.jsonl"


def canonical(record):
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sealed(record):
    record = {name: value for name, value in record.items() if name != "hash"}
    return {**record, "hash": hashlib.sha256((record["prev"] + canonical(record)).encode()).hexdigest()}


def chain(count):
    records = []
    for seq in range(count):
        records.append(
            sealed(
                {
                    "schema_version": 1,
                    "seq": seq,
                    "time": f"2030-01-31T12:00:00.{seq % 1000:03}Z",
                    "type": "cancel",
                    "actor": {"subject": "uid:1000", "role": "operator"},
                    "request_id": f"req-{seq}",
                    "details": {"reason": f'„{seq}“ \\ "quoted" 𝄞'},
                    "prev": records[-1]["hash"] if records else "0" * 64,
                }
            )
        )
    return records


class AuditCommand(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name) / "audit.jsonl"

    def caisson(self, *arguments):
        return subprocess.run(
            [BINARY, "audit", *map(str, arguments)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60
        )


class AuditVerify(AuditCommand):
    def judge(self, records, *flags, tail=""):
        """Exit code, cause and line."""
        self.path.write_text("".join(canonical(record) + "\n" for record in records) + tail, encoding="utf-8")
        run = self.caisson("verify", self.path, "--json", *flags)
        finding = json.loads(run.stdout)
        self.assertEqual(finding["intact"], run.returncode == 0)
        self.assertEqual(finding["fault"] is None, run.returncode == 0)
        plain = self.caisson("verify", self.path, *flags)
        self.assertEqual(plain.returncode, run.returncode)
        if run.returncode == 0:
            self.assertEqual(finding["records"], len(records))
            self.assertIn("INTACT", plain.stdout)
            return 0, None, None
        fault = finding["fault"]
        self.assertIn(f"line {fault['line']}: {fault['cause']}: {fault['message']}", plain.stdout)
        return run.returncode, fault["cause"], fault["line"]

    def test_intact(self):
        for count in (0, 1, 2, 5000):  # the last fills several reads
            self.assertEqual(self.judge(chain(count)), (0, None, None))

    def test_every_way_to_tamper(self):
        records = chain(6)
        edited = [dict(record) for record in records]
        edited[2]["request_id"] = "req-other"
        self.assertEqual(self.judge(edited), (1, "edited", 3))
        edited[2] = sealed(edited[2])
        self.assertEqual(self.judge(edited), (1, "replaced", 4))
        self.assertEqual(self.judge(records[:2] + records[3:]), (1, "missing", 3))
        self.assertEqual(self.judge(records[1:]), (1, "missing", 1))
        self.assertEqual(self.judge([records[i] for i in (0, 1, 3, 2, 4, 5)]), (1, "reordered", 3))
        self.assertEqual(self.judge(records[:3] + records[2:]), (1, "reordered", 4))
        self.assertEqual(self.judge(records, tail='{"schema_version":1,'), (1, "torn", 7))
        self.assertEqual(self.judge(records, tail="x" * 200_000 + "\n"), (1, "malformed", 7))
        self.assertEqual(self.judge(records, tail=json.dumps(records[0]) + "\n"), (1, "malformed", 7))
        self.assertEqual(self.judge(records, tail="\n"), (1, "malformed", 7))

    def test_a_cut_end_shows_against_a_head(self):
        records = chain(6)
        head = lambda seq: ("--head", f"{seq}:{records[seq]['hash']}")
        self.assertEqual(self.judge(records, *head(5)), (0, None, None))
        self.assertEqual(self.judge(records, *head(2)), (0, None, None))
        self.assertEqual(self.judge(records[:4]), (0, None, None))
        self.assertEqual(self.judge(records[:4], *head(5)), (1, "truncated", 5))
        self.assertEqual(self.judge([], *head(0)), (1, "truncated", 1))
        self.assertEqual(self.judge(records, "--head", "2:" + "a" * 64), (1, "replaced", 3))

    def test_prints_the_head_for_the_next_time(self):
        records = chain(3)
        self.judge(records)
        printed = self.caisson("verify", self.path).stdout.split()[-1]
        self.assertEqual(printed, f"2:{records[2]['hash']}")
        self.assertEqual(json.loads(self.caisson("verify", self.path, "--json").stdout)["head"], {"seq": 2, "hash": records[2]["hash"]})

    def test_usage(self):
        for arguments in ([], ["verify"], ["repair", EXAMPLE], ["verify", EXAMPLE, "--head", "5"], ["verify", EXAMPLE, "--fix"],
                          ["verify", EXAMPLE, "--head", "1:" + "A" * 64], ["verify", "no-such-file"], ["verify", "/"],
                          ["verify", "/dev/null"]):  # fmt: skip
            run = self.caisson(*arguments)
            self.assertEqual((run.returncode, run.stdout), (2, ""), arguments)
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
            self.assertTrue(run.stderr.startswith("caisson: "), run.stderr)

    def test_hostile_bytes_do_not_reach_the_terminal(self):
        self.path.write_bytes(b'{"\x1b[2J": 1}\n')
        run = self.caisson("verify", self.path)
        self.assertEqual(run.returncode, 1)
        self.assertNotIn("\x1b", run.stdout)


def session(transcript):
    """The events of a session with this transcript."""
    whole = {"lines": transcript.count(b"\n"), "bytes": len(transcript), "sha256": hashlib.sha256(transcript).hexdigest()}
    events = []
    for kind, members in [
        ("session_opened", {"project": "/home/zoë/p", "profile": "session"}),
        ("command_started", {"command": 1}),
        ("command_finished", {"command": 1, "exit_code": 0}),
        ("session_stopped", {"reason": "requested", "transcript": whole}),
        ("applied", {"diff_digest": "d" * 64}),
    ]:
        events.append(
            sealed(
                {
                    "schema_version": 1,
                    "seq": len(events),
                    "time": "2030-01-31T12:00:00.000Z",
                    "session_id": "s-1",
                    "type": kind,
                    "prev": events[-1]["hash"] if events else "0" * 64,
                    **members,
                }
            )
        )
    return events


class SessionVerify(AuditCommand):
    """The events of a session and its transcript, which this test writes and hashes itself."""

    TRANSCRIPT = b'{"version":3,"term":{"cols":80,"rows":24}}\n[0.0,"m","make"]\n[0.1,"o","hello\\r\\n"]\n[0.1,"x","0"]\n'

    def verify(self, events, transcript, *flags):
        """Exit code, the faulty line of the events, and that of the transcript."""
        self.path.write_text("".join(canonical(event) + "\n" for event in events), encoding="utf-8")
        self.path.with_name("transcript.cast").write_bytes(transcript)
        run = self.caisson("verify", self.path, "--json", *flags)
        found = json.loads(run.stdout)
        self.assertEqual(found["intact"], run.returncode == 0, run.stdout)
        plain = self.caisson("verify", self.path, *flags)
        self.assertEqual(plain.returncode, run.returncode)
        self.assertEqual("BROKEN" in plain.stdout, run.returncode == 1)
        line = lambda part: part and part["fault"] and part["fault"]["line"]
        return run.returncode, line(found), line(found["transcript"])

    def test_the_record_of_a_session(self):
        text, events = self.TRANSCRIPT, session(self.TRANSCRIPT)
        self.assertEqual(self.verify(events, text), (0, None, None))
        edited = [dict(event) for event in events]
        edited[2]["exit_code"] = 1
        self.assertEqual(self.verify(edited, text), (1, 3, None))
        self.assertEqual(self.verify(events[:1] + events[2:], text), (1, 2, None))
        head = ("--head", f"4:{events[4]['hash']}")
        self.assertEqual(self.verify(events, text, *head), (0, None, None))
        self.assertEqual(self.verify(events[:4], text, *head), (1, 5, None))
        lines = text.splitlines(keepends=True)
        self.assertEqual(self.verify(events, b"".join(lines[:3])), (1, None, 4))
        self.assertEqual(self.verify(events, text + b'[0.1,"o","forged"]\n'), (1, None, 5))
        self.assertEqual(self.verify(events, text.replace(b"hello", b"hullo")), (1, None, 1))
        self.assertEqual(self.verify(events, text.replace(b'"x"', b"x")), (1, None, 4))

    def test_a_missing_transcript_is_missed(self):
        self.verify(session(self.TRANSCRIPT), self.TRANSCRIPT)
        self.path.with_name("transcript.cast").unlink()
        run = self.caisson("verify", self.path)
        self.assertEqual(run.returncode, 1)
        self.assertIn("BROKEN  transcript.cast", run.stdout)


if __name__ == "__main__":
    unittest.main()

"""caisson attest, against the openssl program and an encoding of DSSE written here a second time."""

import base64
import hashlib
import json
import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("CAISSON_BIN", ROOT / "build/release/src/caisson")
TYPE = "application/vnd.in-toto+json"


def pae(kind, body):
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(body), body)


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Attestations(unittest.TestCase):
    """A key, a result, and the attestation of the one with the other."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        here = pathlib.Path(cls.directory.name)
        cls.key, cls.public, cls.result, cls.envelope = here / "key", here / "key.pub", here / "result.json", here / "envelope.json"
        cls.run_ok(cls, "attest", "keygen", "--out", cls.key)
        cls.run_ok(cls, "verify", "--quiet", ROOT / "examples/hello.py", "--result", cls.result)
        cls.run_ok(cls, "attest", "sign", "--key", cls.key, cls.result, "--out", cls.envelope)

    def caisson(self, *arguments):
        return subprocess.run(
            [BINARY, *map(str, arguments)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60
        )

    def run_ok(self, *arguments):
        run = Attestations.caisson(self, *arguments)
        assert run.returncode == 0, run.stderr
        return run

    def scratch(self, name, data):
        path = pathlib.Path(self.directory.name) / f"{self.id().rpartition('.')[2]}-{name}"
        path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        return path

    def judge(self, envelope, *flags):
        """The finding; the two ways to print it must agree."""
        run = self.caisson("attest", "verify", "--key", self.public, "--json", envelope, *flags)
        finding = json.loads(run.stdout)
        plain = self.caisson("attest", "verify", "--key", self.public, envelope, *flags)
        self.assertEqual((run.returncode, plain.returncode), (0, 0) if finding["intact"] else (1, 1))
        if finding["intact"]:
            self.assertTrue(plain.stdout.startswith("INTACT"), plain.stdout)
            self.assertIn(finding["key_id"], plain.stdout)
            return None
        self.assertIn(f"BROKEN  {envelope}  {finding['fault']['cause']}: ", plain.stdout)
        self.assertIsNone(finding["statement"])
        return finding["fault"]["cause"]


class Command(Attestations):
    def test_key_files(self):
        self.assertEqual(stat.S_IMODE(self.key.stat().st_mode), 0o600)
        again = self.caisson("attest", "keygen", "--out", self.key)
        self.assertEqual(again.returncode, 2)
        self.assertIn("exists already", again.stderr)

    def test_a_key_that_others_can_read(self):
        loose = self.scratch("key", self.key.read_bytes())
        loose.chmod(0o644)
        run = self.caisson("attest", "sign", "--key", loose, self.result)
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn(f"chmod 600 {loose}", run.stderr)

    def test_the_statement_is_about_this_result(self):
        document = json.loads(self.result.read_text())
        statement = json.loads(base64.b64decode(json.loads(self.envelope.read_text())["payload"]))
        self.assertEqual(statement["subject"], [{"name": "source", "digest": {"sha256": document["source_digest"]}}])
        predicate = statement["predicate"]
        for name in ("request_id", "attempt", "status", "failure_class", "tier", "host"):
            self.assertEqual(predicate[name], document[name], name)
        verdict = {name: document[name] for name in ("status", "failure_class", "terminal_event", "tier", "exit_code")}
        self.assertEqual(
            predicate["digests"],
            {
                "source": document["source_digest"],
                "policy": document["policy_digest"],
                "isolation": sha256(canonical(document["isolation"])),
                "verdict": sha256(canonical(verdict)),
                "result": sha256(self.result.read_bytes()),
            },
        )

    def test_verify(self):
        self.assertIsNone(self.judge(self.envelope))
        self.assertIsNone(self.judge(self.envelope, "--result", self.result))
        reformatted = self.scratch("result", json.loads(self.result.read_text()))
        self.assertEqual(self.judge(self.envelope, "--result", reformatted), "other_result")

    def test_every_way_to_tamper(self):
        envelope = json.loads(self.envelope.read_text())
        payload = base64.b64decode(envelope["payload"])
        changed = payload.replace(b'"status":"pass"', b'"status":"fail"')
        self.assertNotEqual(changed, payload)
        encode = lambda data: base64.b64encode(data).decode()
        for cause, forged in {
            "bad_signature": {**envelope, "payload": encode(changed)},
            "payload_type": {**envelope, "payloadType": "application/json"},
            "unknown_key": {**envelope, "signatures": [{**envelope["signatures"][0], "keyid": "0" * 64}]},
            "malformed": {**envelope, "payload": envelope["payload"] + "\n"},
        }.items():
            self.assertEqual(self.judge(self.scratch(cause, forged)), cause)
        twice = self.envelope.read_text().replace('{"payload"', '{"payload":"e30=","payload"')
        self.assertEqual(self.judge(self.scratch("twice", twice.encode())), "malformed")
        self.assertEqual(self.judge(self.scratch("hostile", b'{"\x1b[2J": ')), "malformed")

    def test_another_key(self):
        other = pathlib.Path(self.directory.name) / "other"
        self.run_ok("attest", "keygen", "--out", other)
        foreign = self.caisson("attest", "verify", "--key", f"{other}.pub", self.envelope)
        self.assertEqual(foreign.returncode, 1)
        self.assertIn("unknown_key", foreign.stdout)
        both = self.caisson("attest", "verify", "--key", f"{other}.pub", "--key", self.public, self.envelope)
        self.assertEqual(both.returncode, 0, both.stdout)

    def test_a_rejection_can_be_signed(self):
        request = self.scratch("request.json", {"source": {"path": "/proc"}})
        result = pathlib.Path(self.directory.name) / "rejected.json"
        self.assertEqual(self.caisson("verify", "--quiet", request, "--result", result).returncode, 3)
        envelope = self.scratch("envelope", self.run_ok("attest", "sign", "--key", self.key, result).stdout.encode())
        self.assertIsNone(self.judge(envelope, "--result", result))

    def test_usage(self):
        for arguments in ([], ["sign"], ["forge"], ["keygen"], ["sign", "--key", self.key, "no-such-file"], ["sign", "--key", self.key, "/dev/null"],
                          ["sign", "--key", self.public, self.result], ["sign", "--key", self.key, self.envelope],
                          ["verify", self.envelope], ["verify", "--key", self.key, self.envelope], ["verify", "--key", self.public, "/"],
                          ["keygen", "--out", "/no/such/directory/key"]):  # fmt: skip
            run = self.caisson("attest", *arguments)
            self.assertEqual((run.returncode, run.stdout), (2, ""), arguments)
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
            self.assertTrue(run.stderr.startswith("caisson: "), run.stderr)

    def test_no_configuration_is_obeyed(self):
        """OpenSSL loads the libraries its configuration names, and the environment names the configuration."""
        config = self.scratch("conf", b"openssl_conf = i\n[i]\nproviders = p\n[p]\nevil = e\n[e]\nmodule = /nonexistent.so\nactivate = 1\n")
        run = subprocess.run(
            [BINARY, "attest", "verify", "--key", self.public, self.envelope],
            env={**os.environ, "OPENSSL_CONF": str(config)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
        )  # fmt: skip
        self.assertEqual((run.returncode, run.stderr), (0, b""))


class AgainstOpenssl(Attestations):
    """Two programs mean the same by a key and a signature."""

    def openssl(self, *arguments, data=b""):
        return subprocess.run(["openssl", *map(str, arguments)], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)

    def test_openssl_checks_our_signature(self):
        envelope = json.loads(self.envelope.read_text())
        message = self.scratch("message", pae(envelope["payloadType"], base64.b64decode(envelope["payload"])))
        signature = self.scratch("signature", base64.b64decode(envelope["signatures"][0]["sig"]))
        check = ["pkeyutl", "-verify", "-pubin", "-inkey", self.public, "-rawin", "-in", message, "-sigfile", signature]
        self.assertEqual(self.openssl(*check).returncode, 0)
        message.write_bytes(message.read_bytes()[:-1])
        self.assertNotEqual(self.openssl(*check).returncode, 0)

    def test_openssl_names_the_key_alike(self):
        der = self.openssl("pkey", "-in", self.key, "-pubout", "-outform", "DER").stdout
        self.assertEqual(json.loads(self.envelope.read_text())["signatures"][0]["keyid"], sha256(der))

    def test_we_check_what_openssl_signed(self):
        key, public = self.scratch("key", b""), self.scratch("public", b"")
        self.assertEqual(self.openssl("genpkey", "-algorithm", "ed25519", "-out", key).returncode, 0)
        key.chmod(0o600)
        self.assertEqual(self.openssl("pkey", "-in", key, "-pubout", "-out", public).returncode, 0)
        body = base64.b64decode(json.loads(self.envelope.read_text())["payload"])
        message = self.scratch("message", pae(TYPE, body))
        signed = self.openssl("pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", message)
        envelope = self.scratch(
            "envelope",
            {
                "payload": base64.urlsafe_b64encode(body).decode(),
                "payloadType": TYPE,
                "signatures": [{"sig": base64.b64encode(signed.stdout).decode()}],
            },
        )
        run = self.caisson("attest", "verify", "--key", public, envelope, "--result", self.result)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        # And a key of theirs signs for us.
        self.run_ok("attest", "sign", "--key", key, self.result)

    def test_a_statement_about_a_session(self):
        schema = json.loads((ROOT / "schemas/session_statement.schema.json").read_text(encoding="utf-8"))
        statement = schema["examples"][0]
        other = json.loads(json.dumps(statement))
        other["subject"][0]["digest"]["sha256"] = "f" * 64  # not the transcript that the predicate names
        for document, is_intact in ((statement, True), (other, False)):
            body = canonical(document)
            message = self.scratch("message", pae(TYPE, body))
            signed = self.openssl("pkeyutl", "-sign", "-inkey", self.key, "-rawin", "-in", message).stdout
            encode = lambda data: base64.b64encode(data).decode()
            envelope = self.scratch(
                "envelope", {"payload": encode(body), "payloadType": TYPE, "signatures": [{"sig": encode(signed)}]}
            )
            run = self.caisson("attest", "verify", "--key", self.public, "--json", envelope)
            found = json.loads(run.stdout)
            self.assertEqual((run.returncode, found["intact"]), (0, True) if is_intact else (1, False))
            self.assertEqual(found["statement"], document if is_intact else None)
            plain = self.caisson("attest", "verify", "--key", self.public, envelope)
            self.assertIn(document["predicate"]["session_id"] if is_intact else "BROKEN", plain.stdout)
            # It says nothing about a result.
            with_result = self.caisson("attest", "verify", "--key", self.public, envelope, "--result", self.result)
            self.assertEqual(with_result.returncode, 2)


if __name__ == "__main__":
    unittest.main()

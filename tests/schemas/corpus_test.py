"""The published schemas, judged by a validator that shares no code with the program.

corpus/ has a folder for each schema that the program also reads (corpus.py says how). The unit tests give the same
documents to the program's own parsers; together they show that schema and parser agree.
"""

import copy
import json
import pathlib
import re
import unittest

import corpus
from jsonschema import Draft202012Validator, RefResolver

HERE = pathlib.Path(__file__).resolve().parent
SCHEMAS = HERE.parent.parent / "schemas"

RESULT = {
    "schema_version": 1,
    "request_id": "req-1",
    "attempt": 1,
    "mode": "balanced",
    "status": "fail",
    "tier": "run",
    "failure_class": "FilesystemWriteViolation",
    "exit_code": 1,
    "duration_ms": 42,
    "stdout": "",
    "stderr": "",
    "artifacts": [{"path": "/scratch/a", "bytes": 1, "sha256": "0" * 64, "ref": "a"}],
    "skipped_checks": [{"name": "test", "tier": "test", "reason": "an earlier check failed"}],
    "terminal_event": "write_denied",
    "violations": [
        {
            "class": "FilesystemWriteViolation",
            "reason": "write_outside",
            "confidence": "observed",
            "time_ms": 3,
            "pid": 2,
            "evidence": {"path": "/etc/passwd", "syscall": "openat", "flags": 577},
        }
    ],
    "output": {"truncated": False, "bytes_total": 0},
}

EVENT = {
    "schema_version": 1,
    "seq": 0,
    "time": "2030-01-01T00:00:00.000Z",
    "run_id": "run-1",
    "request_id": "req-1",
    "type": "queued",
}


def load_schema(name):
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))


def validator_of(name):
    """Schemas name one another by $id; nothing is fetched."""
    published = {schema["$id"]: schema for schema in map(load_schema, schema_names())}
    schema = load_schema(name)
    return Draft202012Validator(schema, resolver=RefResolver.from_schema(schema, store=published))


def schema_names():
    return sorted(path.name.removesuffix(".schema.json") for path in SCHEMAS.glob("*.schema.json"))


def corpora():
    """The schemas of JSON documents; profile_corpus_test.py judges those of YAML."""
    return [schema for schema in corpus.schemas() if schema not in corpus.YAML_SCHEMAS]


def documents(schema, verdict):
    """(name, text) of each case."""
    found = [(name, content.decode()) for name, content in corpus.cases(schema, verdict).items()]
    assert found, f"no cases in {schema}/{verdict}.yaml"
    return found


class SchemaFiles(unittest.TestCase):
    def test_each_is_a_valid_schema_with_a_urn(self):
        paths = sorted(SCHEMAS.glob("*.schema.json"))
        self.assertGreaterEqual(len(paths), 3)
        for path in paths:
            with self.subTest(path.name):
                schema = json.loads(path.read_text(encoding="utf-8"))
                Draft202012Validator.check_schema(schema)
                self.assertEqual(schema["$schema"], "https://json-schema.org/draft/2020-12/schema")
                self.assertRegex(schema["$id"], r"^urn:caisson:schema:[a-z_]+:[0-9]+$")
                self.assertTrue(schema["title"] and schema["description"])

    def test_patterns_mean_the_same_to_every_reader(self):
        """To Python a bare $ also matches before a trailing newline; to ECMA 262, which the standard names, it does not."""

        def patterns(node):
            if isinstance(node, dict):
                if isinstance(node.get("pattern"), str):
                    yield node["pattern"]
                for value in node.values():
                    yield from patterns(value)
            elif isinstance(node, list):
                for value in node:
                    yield from patterns(value)

        for name in schema_names():
            for pattern in patterns(load_schema(name)):
                with self.subTest(pattern):
                    re.compile(pattern)
                    self.assertTrue(pattern.startswith("^") and pattern.endswith("$"))
                    for anchor in re.finditer(r"\$(?=[)|]|\Z)", pattern):
                        self.assertTrue(pattern[: anchor.start()].endswith(r"(?!\n)"))

    def test_examples_are_valid(self):
        for name in schema_names():
            for index, example in enumerate(load_schema(name).get("examples", [])):
                with self.subTest(schema=name, example=index):
                    validator_of(name).validate(example)


class Corpus(unittest.TestCase):
    def test_valid_documents_are_accepted(self):
        for schema in corpora():
            validator = validator_of(schema)
            for name, text in documents(schema, "valid"):
                with self.subTest(schema=schema, document=name):
                    validator.validate(json.loads(text))

    def test_invalid_documents_are_refused(self):
        for schema in corpora():
            validator = validator_of(schema)
            for name, text in documents(schema, "invalid"):
                with self.subTest(schema=schema, document=name):
                    self.assertFalse(validator.is_valid(json.loads(text)))


class ResultSchema(unittest.TestCase):
    def setUp(self):
        self.schema = load_schema("verification_result")
        self.validator = validator_of("verification_result")

    def refuses(self, **changes):
        self.assertFalse(self.validator.is_valid({**copy.deepcopy(RESULT), **changes}), changes)

    def test_accepts_a_result(self):
        self.validator.validate(RESULT)
        self.validator.validate({**RESULT, "a_later_member": {}})

    def test_needs_every_required_member(self):
        self.assertEqual(len(self.schema["required"]), 13)
        for name in self.schema["required"]:
            with self.subTest(name):
                self.assertFalse(self.validator.is_valid({k: v for k, v in RESULT.items() if k != name}))

    def test_refuses_wrong_members(self):
        self.refuses(schema_version="1")
        self.refuses(schema_version=2)
        self.refuses(status="ok")
        self.refuses(failure_class="Timeout")
        self.refuses(terminal_event="done")
        self.refuses(exit_code="1")
        self.refuses(tier=1)
        self.refuses(duration_ms=-1)
        self.refuses(artifacts=[{"path": "/scratch/a"}])
        self.refuses(skipped_checks=["test"])
        self.refuses(output={"truncated": 0, "bytes_total": 0})

    def test_refuses_untyped_violations(self):
        good = RESULT["violations"][0]
        for name in ("class", "reason", "confidence", "time_ms", "pid", "evidence"):
            self.refuses(violations=[{k: v for k, v in good.items() if k != name}])
        self.refuses(violations=[{**good, "confidence": "sure"}])
        self.refuses(violations=[{**good, "class": "CheckFailed"}])
        self.refuses(violations=[{**good, "evidence": {"path": ["a"]}}])
        self.refuses(violations=[{**good, "extra": 1}])

    def test_status_and_class_agree(self):
        self.validator.validate({**RESULT, "status": "pass", "failure_class": None, "terminal_event": "completed"})
        self.refuses(status="pass", failure_class="CheckFailed", terminal_event="completed")
        self.refuses(status="fail", failure_class=None)
        self.refuses(status="fail", terminal_event="completed")
        self.refuses(status="rejected", failure_class="CheckFailed", terminal_event="rejected")
        self.refuses(status="error", failure_class="InfrastructureError", terminal_event="timeout")


class EventSchema(unittest.TestCase):
    def setUp(self):
        self.schema = load_schema("lifecycle_event")
        self.validator = validator_of("lifecycle_event")

    def test_accepts_every_type(self):
        for kind in self.schema["properties"]["type"]["enum"]:
            self.validator.validate({**EVENT, "type": kind, "detail": "of its own"})

    def test_needs_every_required_member(self):
        for name in EVENT:
            self.assertFalse(self.validator.is_valid({k: v for k, v in EVENT.items() if k != name}), name)

    def test_refuses_wrong_members(self):
        for change in ({"type": "started"}, {"seq": -1}, {"time": "yesterday"}, {"schema_version": "1"}):
            self.assertFalse(self.validator.is_valid({**EVENT, **change}), change)


class SessionDiffSchema(unittest.TestCase):
    """session_test validates what the program writes; these cases show that the schema can refuse."""

    def setUp(self):
        self.schema = load_schema("session_diff")
        self.validator = validator_of("session_diff")
        self.diff = self.schema["examples"][0]
        self.added, self.modified = self.diff["changes"]

    def change(self, change, **members):
        return {**self.diff, "changes": [{**change, **members}]}

    def accepts(self, document):
        self.assertEqual([error.message for error in self.validator.iter_errors(document)], [])

    def refuses(self, document):
        self.assertFalse(self.validator.is_valid(document), document)

    def test_valid_documents_are_accepted(self):
        self.accepts(self.diff)
        self.accepts({**self.diff, "changes": [], "a_later_member": 1})
        link = {"type": "link", "mode": "0777", "link_target": "\ufffd", "link_target_base64": "/w=="}
        self.accepts(self.change(self.added, path="\ufffd", path_base64="/w==", after=link))
        self.accepts(self.change(self.added, host_removed=True))
        for kind in ("directory", "fifo", "socket", "device"):
            self.accepts(self.change(self.added, after={"type": kind, "mode": "0755"}))
        self.accepts(self.change(self.modified, kind="deleted", after={"type": "absent"}))
        self.accepts(self.change(self.modified, kind="type", after=link))
        unread = {"type": "file", "mode": "4755", "bytes": 1 << 40}
        for reason in self.schema["$defs"]["change"]["properties"]["refused"]["enum"]:
            self.accepts(self.change(self.added, refused=reason, after=unread))

    def test_needs_every_required_member(self):
        for name in self.schema["required"]:
            self.refuses({k: v for k, v in self.diff.items() if k != name})
        for name in self.diff["summary"]:
            self.refuses({**self.diff, "summary": {k: v for k, v in self.diff["summary"].items() if k != name}})
        for name in self.added:
            self.refuses({**self.diff, "changes": [{k: v for k, v in self.added.items() if k != name}]})
        for name in ("type", "mode", "bytes"):
            self.refuses(self.change(self.added, after={k: v for k, v in self.added["after"].items() if k != name}))

    def test_refuses_wrong_members(self):
        for change in ({"schema_version": 2}, {"schema_version": "1"}, {"digest": "0" * 63}, {"changes": {}}):
            self.refuses({**self.diff, **change})
        self.refuses({**self.diff, "summary": {**self.diff["summary"], "added": -1}})
        wrong = (
            {"path": ""},
            {"path_base64": "/w"},
            {"kind": "renamed"},
            {"flags": ["dangerous"]},
            {"flags": ["git", "git"]},
            {"refused": ""},
            {"refused": "link_leaves_tree"},
            {"host_removed": False},
        )
        for members in wrong:
            self.refuses(self.change(self.added, **members))
        for facts in ({"mode": "644"}, {"mode": "0888"}, {"bytes": -1}, {"sha256": ""}, {"link_target": "x"}, {"type": "pipe"}):
            self.refuses(self.change(self.added, after={**self.added["after"], **facts}))
        self.refuses(self.change(self.added, after={"type": "link", "mode": "0777"}))
        self.refuses(self.change(self.added, after={"type": "directory", "mode": "0755", "bytes": 1}))

    def test_kind_and_entries_agree(self):
        absent, file = self.added["before"], self.added["after"]
        self.refuses(self.change(self.added, before=file))
        self.refuses(self.change(self.added, after=absent))
        for kind in ("deleted", "modified", "mode", "type"):
            self.refuses(self.change(self.added, kind=kind))
        self.refuses(self.change(self.modified, kind="deleted"))
        for kind in ("modified", "mode", "type"):
            self.refuses(self.change(self.modified, kind=kind, after=absent))


if __name__ == "__main__":
    unittest.main()

"""Schema and parser on documents that no person wrote: every valid document of the corpus, changed in one place.

The parser may never accept what the schema refuses. It may refuse what the schema accepts only for a reason listed here,
each one something that JSON Schema cannot say.
"""

import copy
import json
import os
import re
import subprocess
import unittest

from corpus_test import corpora, documents, validator_of

STRICTER = [
    r"must be (an RFC 3339 timestamp|a time in UTC)",  # a date that no calendar has
    r"is beyond max_attempts",
    r"attempts are not in order",
    r"has attempts that the job did not come to",
    r"idempotency_key: differs from the message's own",
    r"must be later than requested_at",
    r"is the (name of an earlier check|target of an earlier mount)",
    r"is a file, but .* needs a directory there",
    r"takes \d+ bytes; (at most|the kernel takes less than)",  # bytes, where a schema counts characters
    r"argv and env together take",
    r"looks like an IP address|has a wildcard in an IP address|is longer than 253 bytes|has a label longer than",
    r"is too wide: anyone can register|names no class of destinations|is the sandbox's own loopback",
    r"needs a port: an address|TLS to an address carries no server name|is no IPv6 address",
    r"is not what predicate.(digests|transcript) says it is",
    r"number is too large|expected an integer, found a number",  # beyond what 64 bits hold
]

VALUES = [None, True, False, 0, 1, -1, 1.5, 101, 2**53, 10**17, "", "x", "\n", "a b", "é", [], {}, ["x"], {"x": 1}]


def variants(value):
    """What else could stand in place of a value."""
    yield from VALUES
    if isinstance(value, str):
        yield from (value + "\n", "\n" + value, value + "\0", value + " ", value + "\x7f", value + "é", value.upper(), value.lower())
        yield from (value[:-1], value + value, value.replace("0", "9"), value.replace("-", "_"), value * 40, (value or "x") * 600)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from (value + 1, value - 1, value * 100, float(value), value + 0.5, str(value))
    if isinstance(value, list):
        yield from (value + value[:1], value * 20, value * 101, value[::-1], value + [None])
    if isinstance(value, dict):
        yield {**value, "unknown": 1}
        yield {**value, "": None}


def places(node, path=()):
    yield path
    # Beyond the second, elements of a list are like those before.
    members = node.items() if isinstance(node, dict) else enumerate(node[:2]) if isinstance(node, list) else ()
    for key, value in members:
        yield from places(value, path + (key,))


def changed(document, path, *replacement):
    """A copy with another value at `path`, or without one."""
    if not path:
        return replacement[0]
    key, *rest = path
    document = copy.copy(document)
    if rest:
        document[key] = changed(document[key], rest, *replacement)
    elif replacement:
        document[key] = replacement[0]
    else:
        del document[key]
    return document


def value_at(document, path):
    for key in path:
        document = document[key]
    return document


def mutants(schema):
    """Each change is tried once in each kind of document, not in every document of the kind."""
    seen = set()
    for _, text in documents(schema, "valid"):
        document = json.loads(text)
        kind = document.get("kind", document.get("type"))
        for path in places(document):
            changes = [(variant,) for variant in variants(value_at(document, path))] + ([()] if path else [])
            for change in changes:
                what = (kind, path, json.dumps(change))
                if what not in seen:
                    seen.add(what)
                    yield json.dumps(changed(document, path, *change))


def judge(schema, texts):
    binary = os.environ.get("CAISSON_JUDGE", "build/dev/tests/schema_judge")
    lines = "".join(f"{schema}\t{text}\n" for text in texts)
    run = subprocess.run([binary], input=lines, text=True, encoding="utf-8", stdout=subprocess.PIPE, check=True)
    return run.stdout.split("\n")[:-1]


class Agreement(unittest.TestCase):
    def test_on_changed_documents(self):
        for schema in corpora():
            texts = list(mutants(schema))
            validator = validator_of(schema)
            verdicts = judge(schema, texts)
            self.assertEqual(len(verdicts), len(texts))
            accepted = 0
            for text, verdict in zip(texts, verdicts):
                accepts = validator.is_valid(json.loads(text))
                accepted += accepts
                if accepts == (verdict == "accepted"):
                    continue
                stricter = accepts and any(re.search(reason, verdict) for reason in STRICTER)
                with self.subTest(schema=schema, document=text[:2000]):
                    self.assertTrue(stricter, f"schema: {'accepted' if accepts else 'refused'}, parser: {verdict}")
            print(f"{schema}: {len(texts)} documents, {accepted} of them valid")
            self.assertGreater(accepted, 50)


if __name__ == "__main__":
    unittest.main()

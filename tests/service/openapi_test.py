"""schemas/openapi.yaml against the service it describes.

Every operation is asked with inputs made from its own description, good ones and ones that break one rule each, and
with what no description foresees. Each answer's status must be one the description lists for the operation, its body
must be of the type and the schema listed for that status, and none may be a 5xx that says the service failed.

With CAISSON_SCHEMATHESIS=1 the same is done by schemathesis, installed as tests/service/requirements.txt pins it.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import caisson  # noqa: E402
from support.service import Service  # noqa: E402
from support.tokens import TOKENS, give_tokens, port_of  # noqa: E402

try:
    import jsonschema
    import yaml
except ImportError as missing:
    jsonschema, missing_module = None, missing.name

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "schemas"
BASE = "file:///schemas/openapi.yaml"
METHODS = ("get", "put", "post", "delete", "patch")
# What any path can answer because the request broke HTTP's own rules: the description's introduction names them.
EVERYWHERE = {400, 408, 411, 413, 414, 417, 431, 505}


# One that says something in every place.
REQUEST = {
    "request_id": "r-1", "attempt": 1, "mode": "balanced", "profile": "balanced",
    "source": {"files": {"main.py": "print(1)", "raw": {"base64": "AAE="}}},
    "checks": [{"name": "run", "tier": "run", "argv": ["python3", "main.py"], "env": {"A": "b"}, "stdin": "x",
                "timeout_ms": 1000, "cwd": "/scratch"}],
    "limits": {"memory_bytes": 1 << 28, "processes": 16}, "network": {"mode": "none"}, "mounts": [],
    "artifacts": ["/scratch/*"], "priority": 1, "labels": {"a": "b"}, "deadline": "2099-01-01T00:00:00Z",
}


class Description:
    def __init__(self, text):
        self.document = yaml.safe_load(text)
        self.store = {BASE: self.document}
        for file in SCHEMAS.glob("*.schema.json"):
            schema = json.loads(file.read_text())
            self.store[f"file:///schemas/{file.name}"] = schema
            self.store[schema["$id"]] = schema

    def resolver(self):
        # A new one each time: it remembers the scope of what it resolved last.
        return jsonschema.RefResolver(BASE, self.document, store=self.store)

    def resolve(self, value):
        while isinstance(value, dict) and "$ref" in value:
            value = self.resolver().resolve(value["$ref"])[1]
        return value

    def operations(self):
        for path, item in self.document["paths"].items():
            item = self.resolve(item)
            for method in METHODS:
                if method in item:
                    parameters = [self.resolve(one) for one in item.get("parameters", []) + item[method].get("parameters", [])]
                    yield path, method.upper(), item[method], parameters

    def errors(self, value, schema):
        validator = jsonschema.Draft202012Validator(schema, resolver=self.resolver())
        return [error.message for error in validator.iter_errors(value)]

    def fault(self, operation, answer):
        """What is wrong with an answer by this description, or None."""
        listed = operation["responses"].get(str(answer.status))
        if listed is None:
            return None if answer.status in EVERYWHERE else f"status {answer.status} is not listed"
        content = self.resolve(listed).get("content")
        if content is None:
            return None if not answer.body else "a body where none is listed"
        kind = answer.headers["Content-Type"].split(";")[0]
        if kind not in content:
            return f"type {kind} is not listed for {answer.status}"
        for name, header in self.resolve(listed).get("headers", {}).items():
            value = answer.headers.get(name)
            faults = [] if value is None else self.errors(
                int(value) if self.resolve(header)["schema"].get("type") == "integer" else value,
                self.resolve(header)["schema"])
            if faults:
                return f"header {name}: {faults}"
        if kind.endswith("json") and "schema" in content[kind]:
            return "; ".join(self.errors(answer.json, content[kind]["schema"])) or None
        return None


class Inputs:
    """Values for parameters and bodies, made from their schemas."""

    def __init__(self, description, known, seed=7):
        self.description, self.known, self.random = description, known, random.Random(seed)

    def good(self, parameter):
        schema = self.description.resolve(parameter["schema"])
        name = parameter["name"]
        if name in self.known:
            return [self.known[name], "none-such"] if name == "id" else [self.known[name]]
        for listed in ("enum", "examples"):
            if listed in schema:
                return schema[listed]
        if schema.get("type") == "integer":
            return [schema.get("minimum", 0), schema.get("default", 1), schema.get("maximum", 10 ** 15)]
        if schema.get("type") == "boolean":
            return ["true", "false"]
        return {"wait": ["1ms", "0s", "0.001"], "state": ["queued", "running,failed"], "label": ["a=b", "ü=%", "a="],
                "Idempotency-Key": ["k", "!~" * 100]}.get(name, ["a", "A.b_c-1", "x" * 128])

    def bad(self, parameter):
        schema = self.description.resolve(parameter["schema"])
        candidates = ["", " ", "-1", "1001", "9" * 30, "1e3", "0x1", "null", "true", "NaN", "a b", "é", "%", "\u202e", "'\";--",
                      "../..", "x" * 300, "=", ",", "queued,", "30 s", "61s"]
        if schema.get("type") == "integer":
            return [text for text in candidates if not re.fullmatch(r"\d+", text) or
                    not schema.get("minimum", 0) <= int(text) <= schema.get("maximum", 2 ** 63 - 1)]
        if schema.get("type") == "boolean":
            return [text for text in candidates if text != "true"]
        if "enum" in schema:
            return candidates
        return [text for text in candidates if self.description.errors(text, schema)]

    def bodies(self, schema):
        """(body, whether it is good by its schema) pairs."""
        schema = self.description.resolve(schema)
        if schema.get("type") == "array":
            for body, good in self.bodies(schema["items"]):
                yield [body], None
            yield from (([], False), ({}, False), (None, False), ([1], None), ([[]], None))
            return
        example = self.example(schema)
        yield example, True
        for name in example:
            yield {key: value for key, value in example.items() if key != name}, None
            for wrong in (None, True, -1, 1.5, 10 ** 18, "", "\u0000", [], {}, [None], {"": ""}, "x" * 5000):
                yield {**example, name: wrong}, None
        for nonsense in (None, 1, "text", [], [{}], {"unknown": 1}, {}):
            yield nonsense, None

    def example(self, schema):
        if "source" in schema.get("properties", {}):
            return REQUEST
        values = {"plan_digest": "0" * 64, "nonce": "a" * 32, "reason": "because",
                  "idle_ms": 5000, "ttl_ms": 60000, "labels": {"a": "b"}, "env": {"A": "b"}, "argv": ["true"], "cwd": "/tmp",
                  "stdin": "x", "timeout_ms": 1000, "signal": "TERM", "diff_digest": "0" * 64}
        return {name: values[name] for name in schema.get("properties", {}) if name in values}


@unittest.skipIf(jsonschema is None, "*** NOT TESTED (jsonschema): python3-jsonschema or python3-yaml is missing ***")
class OpenApiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(max_queue=100000).start()
        cls.addClassCleanup(cls.service.__exit__)
        served = cls.service.request("GET", "/openapi.yaml")
        cls.description = Description(served.body)
        ended = cls.service.submit("open('/scratch/out.txt', 'w').write('x')", wait="60s", artifacts=["/scratch/*"])
        assert ended.status == 200, ended.body
        cls.known = {"id": ended.headers["Location"].rsplit("/", 1)[1], "path": "/scratch/out.txt", "n": "1"}
        cls.inputs = Inputs(cls.description, cls.known)
        cls.served = served

    def ask(self, path, method, operation, values, body=None, content_type="application/json"):
        query, headers = [], {}
        for parameter, value in values:
            value = str(value)
            if parameter["in"] == "path":
                path = path.replace("{%s}" % parameter["name"], urllib.parse.quote(value, safe=""))
            elif parameter["in"] == "query":
                query.append((parameter["name"], value))
            else:
                headers[parameter["name"]] = value.encode()
        if query:
            path += "?" + urllib.parse.urlencode(query)
        if body is not None:
            headers["Content-Type"] = content_type
        answer = self.service.request(method, path, body, headers)
        fault = self.description.fault(operation, answer)
        if fault is None and answer.status >= 500 and not (path == "/readyz" and answer.status == 503):
            fault = "the service failed"
        self.assertIsNone(fault, f"{method} {path} {headers} {str(body)[:200]}: {answer.status} {answer.body[:500]}")
        for name, value in (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")):
            self.assertEqual(answer.headers[name], value, path)
        self.assertTrue(answer.headers["X-Request-Id"])
        answer.body.decode()  # all of it is UTF-8 here
        return answer

    def required(self, parameters):
        return [(one, self.inputs.good(one)[0]) for one in parameters if one.get("required")]

    def test_it_is_what_the_repository_has(self):
        self.assertEqual(self.served.body, (SCHEMAS / "openapi.yaml").read_bytes())
        for file in ("verification_request", "verification_result", "lifecycle_event", "approval", "runner_api_contract",
                     "audit_record"):
            answer = self.service.request("GET", f"/{file}.schema.json")
            self.assertEqual(answer.body, (SCHEMAS / f"{file}.schema.json").read_bytes())

    def test_every_reference_leads_somewhere(self):
        def walk(value):
            if isinstance(value, dict):
                if isinstance(value.get("$ref"), str):
                    self.description.resolver().resolve(value["$ref"])
                for member in value.values():
                    walk(member)
            elif isinstance(value, list):
                for member in value:
                    walk(member)
        walk(self.description.document)
        ids = [operation.get("operationId") for _, _, operation, _ in self.description.operations()]
        named = [one for one in ids if one]
        self.assertEqual(len(named), len(set(named)))

    def test_paths_take_the_methods_that_are_listed(self):
        methods = {}
        for path, method, _, _ in self.description.operations():
            methods.setdefault(path, set()).add(method)
        for path, listed in methods.items():
            concrete = path.replace("{id}", self.known["id"]).replace("{path}", "x").replace("{n}", "1")
            answer = self.service.request("PATCH", concrete)
            self.assertEqual((answer.status, set(answer.headers["Allow"].split(", "))), (405, listed), path)

    def test_good_parameters(self):
        for path, method, operation, parameters in self.description.operations():
            if "requestBody" in operation or method == "DELETE":
                continue
            with self.subTest(f"{method} {path}"):
                required = self.required(parameters)
                self.ask(path, method, operation, required)
                for parameter in parameters:
                    for value in self.inputs.good(parameter):
                        others = [(one, given) for one, given in required if one is not parameter]
                        answer = self.ask(path, method, operation, others + [(parameter, value)])
                        if value != "none-such":
                            self.assertNotEqual(answer.status, 400, f"{path} {parameter['name']}={value}: {answer.body}")

    def test_bad_parameters(self):
        for path, method, operation, parameters in self.description.operations():
            for parameter in parameters:
                body = json.dumps({"source": {"files": {"main.py": "pass"}}}) if "requestBody" in operation else None
                with self.subTest(f"{method} {path} {parameter['name']}"):
                    for value in self.inputs.bad(parameter):
                        if parameter["in"] == "header" and not value.strip().isascii():
                            continue
                        others = [(one, given) for one, given in self.required(parameters) if one is not parameter]
                        answer = self.ask(path, method, operation, others + [(parameter, value)], body)
                        self.assertIn(answer.status // 100, (4,), f"{path} {parameter['name']}={value!r}: {answer.body[:300]}")

    def test_bodies(self):
        for path, method, operation, parameters in self.description.operations():
            if "requestBody" not in operation:
                continue
            content = self.description.resolve(operation["requestBody"])["content"]
            if "application/json" not in content:
                continue
            with self.subTest(f"{method} {path}"):
                for body, good in self.inputs.bodies(content["application/json"]["schema"]):
                    answer = self.ask(path, method, operation, self.required(parameters), json.dumps(body))
                    if good is False or self.description.errors(body, content["application/json"]["schema"]):
                        batch = isinstance(body, list) and len(body) == 1
                        self.assertIn(answer.status, (200, 422) if batch else (422,), (body, answer.body[:300]))
                    if good is True:
                        self.assertNotIn(answer.status, (400, 422), (body, answer.body[:300]))

    def takes_json(self, operation):
        body = self.description.resolve(operation.get("requestBody", {}))
        return "application/json" in body.get("content", {})

    def test_what_nobody_foresees(self):
        chance = random.Random(7)
        for path, method, operation, parameters in self.description.operations():
            with self.subTest(f"{method} {path}"):
                required = self.required(parameters)
                for body in (b"{", b"\xff", b'{"a":1,"a":2}', b"[" * 1000, b"null", bytes(chance.randbytes(100)), b"{}\0"):
                    answer = self.ask(path, method, operation, required, body)
                    self.assertIn(answer.status // 100, (4,), (path, body))
                if "requestBody" in operation:
                    for kind in () if method == "PUT" else ("text/plain", "application/xml", "application/json; charset=latin1", "x"):
                        self.assertEqual(self.ask(path, method, operation, required, b"{}", kind).status, 415)
                answer = self.ask(path, method, operation, required + [({"name": "surprise", "in": "query"}, "1")],
                                  b"[]" if self.takes_json(operation) else None)
                self.assertEqual(answer.status, 400, path)

    def test_schemathesis(self):
        if os.environ.get("CAISSON_SCHEMATHESIS") != "1":
            caisson.skip("schemathesis", "CAISSON_SCHEMATHESIS=1 installs and runs it")
        service = Service(listen="127.0.0.1:0", max_queue=100000)
        self.addCleanup(service.__exit__)
        give_tokens(service)
        service.start()
        place = service.root / "venv"
        subprocess.run([sys.executable, "-m", "venv", place], check=True, capture_output=True)
        subprocess.run([place / "bin/pip", "install", "--quiet", "--require-virtualenv", "-r",
                        pathlib.Path(__file__).with_name("requirements.txt")], check=True)
        checks = ("not_a_server_error", "status_code_conformance", "content_type_conformance",
                  "response_headers_conformance", "response_schema_conformance")
        done = subprocess.run(
            [place / "bin/schemathesis", "run", f"http://127.0.0.1:{port_of(service)}/openapi.yaml", "--checks",
             ",".join(checks), "--header", f"Authorization: Bearer {TOKENS['operator']}", "--max-examples", "50",
             "--seed", "7", "--no-color"], cwd=service.root, capture_output=True, text=True, timeout=3000)
        self.assertEqual(done.returncode, 0, done.stdout[-8000:] + done.stderr[-4000:])


if __name__ == "__main__":
    unittest.main()

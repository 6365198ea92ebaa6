"""Profiles and policies, read by the program and judged by the published schemas: both must say the same.

A refused document says in its first line where the fault is and what the message must hold. Documents that only the
parser can refuse (invalid_parser_only.yaml) must be accepted by the schema: a fault that the schema can express belongs
into invalid.yaml.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import corpus
import yaml
from jsonschema import Draft202012Validator, ValidationError, validators

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCRATCH = tempfile.TemporaryDirectory()
PROGRAM = os.environ["CAISSON_BIN"]

# How the program reads each kind of document.
COMMANDS = {"profile": ["policy", "show"], "policy": ["policy", "check"]}
LEAST = {"profile": {"valid": 20, "invalid": 60}, "policy": {"valid": 10, "invalid": 30}}

# Where a plain scalar is a number or a truth value; everywhere else the program takes it for the text it is.
LIMITS = [
    "command_timeout_ms",
    "budget_ms",
    "cpu",
    "memory_bytes",
    "processes",
    "output_bytes",
    "scratch_bytes",
    "scratch_inodes",
    "cpu_time_ms",
    "stack_bytes",
]
TYPED = re.compile(r"\.version|\.landlock|\.no_new_privileges|\.network\.(ask|host_ports\[\]|limits\.\w+)|.*\.(limits|raise_limit)\.(" + "|".join(LIMITS) + ")")


def construct(node, path=""):
    """Nodes of python3-yaml as the program sees them: text is text, and only these words are something else."""
    if isinstance(node, yaml.SequenceNode):
        return [construct(item, f"{path}[]") for item in node.value]
    if isinstance(node, yaml.MappingNode):
        members = {}
        for key, value in node.value:
            name = construct(key)
            members["" if name is None else name] = construct(value, f"{path}.{name}")
        return members
    text, plain = node.value, node.style is None
    if plain and text in ("", "~", "null", "Null", "NULL"):
        return None
    if plain and TYPED.fullmatch(path):
        if text in ("true", "false"):
            return text == "true"
        if re.fullmatch("[0-9]+", text):
            return int(text)
        if re.fullmatch(r"[0-9]*\.[0-9]+", text):
            return float(text)
    return text


def load(text):
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        raise yaml.YAMLError("no document")
    return construct(root)


def pattern(_validator, expression, instance, _schema):
    # In Python "$" also stands before a newline at the end, in a schema it does not.
    if isinstance(instance, str) and not re.search(expression.replace("$", r"\Z"), instance):
        yield ValidationError(f"{instance!r} does not match {expression!r}")


Validator = validators.extend(Draft202012Validator, {"pattern": pattern})


def validator_of(kind):
    return Validator(json.loads((ROOT / f"schemas/{kind}.schema.json").read_text(encoding="utf-8")))


def documents(kind, group):
    """The cases as files, because the program reads files."""
    folder = pathlib.Path(SCRATCH.name, kind, group)
    if not folder.exists():
        folder.mkdir(parents=True)
        for name, content in corpus.cases(kind, group).items():
            folder.joinpath(f"{name}.yaml").write_bytes(content)
    return sorted(folder.iterdir())


def document(kind, group, name):
    documents(kind, group)
    return pathlib.Path(SCRATCH.name, kind, group, f"{name}.yaml")


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=60, check=False, **options)


def read(kind, path):
    return run(*COMMANDS[kind], str(path), "--profiles", "/nonexistent")


class Reading(unittest.TestCase):
    def refused(self, kind, path, place, words=""):
        """One line that says where, exit code 1, and nothing that looks like a profile."""
        answer = read(kind, path)
        error = answer.stderr.decode()
        self.assertEqual((answer.returncode, answer.stdout), (1, b""), error)
        self.assertEqual(error.count("\n"), 1, error)
        self.assertTrue(error.startswith(f"caisson: {path}:{place}"), f"{error} is not at {place}")
        self.assertIn(words, error)


class Corpus(Reading):
    def refused_as_it_says(self, kind, path):
        first = path.read_bytes().split(b"\n")[0].decode()
        place, words = re.fullmatch(r"# refused at (\d+:\d+:) ?(.*?)\r?", first).groups()
        self.refused(kind, path, place, words)

    def test_there_are_enough(self):
        for kind, groups in LEAST.items():
            for group, least in groups.items():
                self.assertGreaterEqual(len(documents(kind, group)), least)

    def test_valid_documents_are_accepted_by_both(self):
        for kind in COMMANDS:
            validator = validator_of(kind)
            for path in documents(kind, "valid"):
                with self.subTest(f"{kind}/{path.name}"):
                    answer = read(kind, path)
                    self.assertEqual((answer.returncode, answer.stderr), (0, b""))
                    validator.validate(load(path.read_text(encoding="utf-8")))

    def test_invalid_documents_are_refused_by_both(self):
        for kind in COMMANDS:
            validator = validator_of(kind)
            for path in documents(kind, "invalid"):
                with self.subTest(f"{kind}/{path.name}"):
                    self.refused_as_it_says(kind, path)
                    self.assertFalse(validator.is_valid(load(path.read_text(encoding="utf-8"))))

    def test_what_only_the_parser_can_refuse(self):
        for kind in COMMANDS:
            validator = validator_of(kind)
            for path in documents(kind, "invalid_parser_only"):
                with self.subTest(f"{kind}/{path.name}"):
                    self.refused_as_it_says(kind, path)
                    try:
                        document = load(path.read_text(encoding="utf-8"))
                    except (yaml.YAMLError, RecursionError):
                        continue  # no schema is asked about what is no YAML
                    unknown = path.name in ("alias_bomb.yaml", "nested_too_deep.yaml")
                    self.assertTrue(unknown or validator.is_valid(document))

    def test_built_in_files_are_valid(self):
        for path in sorted((ROOT / "profiles").glob("*.yaml")):
            if path.name == "destinations.yaml":
                continue  # only the build reads it, and fails when it is wrong
            with self.subTest(path.name):
                kind = "policy" if path.name == "policy.yaml" else "profile"
                validator_of(kind).validate(load(path.read_text(encoding="utf-8")))

    def test_what_is_shown_is_valid_and_reads_back(self):
        validator = validator_of("profile")
        with tempfile.TemporaryDirectory() as directory:
            for path in documents("profile", "valid"):
                with self.subTest(path.name):
                    shown = read("profile", path).stdout
                    validator.validate(load(shown.decode()))
                    again = pathlib.Path(directory, "again.yaml")
                    again.write_bytes(shown)
                    self.assertEqual(read("profile", again).stdout, shown)


class GeneratedFiles(Reading):
    """What is too large, or is nothing without other files."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)

    def write(self, name, text):
        path = self.directory / f"{name}.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def profile(self, name, extends, more=""):
        return self.write(name, f"version: 1\nname: {name}\nextends: {extends}\n{more}")

    def test_chain_of_own_profiles(self):
        self.profile("grandparent", "balanced", "limits: {cpu: 1}\nenvironment: {A: a, B: b}\n")
        self.profile("parent", "grandparent", "limits: {processes: 7}\nenvironment: {A: null}\n")
        answer = read("profile", self.profile("child", "parent", "environment: {B: c}\n"))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        shown = yaml.safe_load(answer.stdout)
        self.assertEqual((shown["limits"]["cpu"], shown["limits"]["processes"]), (1.0, 7))
        self.assertEqual((shown["environment"].get("A"), shown["environment"]["B"]), (None, "c"))
        self.assertEqual(shown["extends"], "balanced")

    def test_a_fault_of_the_parent_is_told_at_the_parent(self):
        parent = self.profile("parent", "balanced", "landlok: false\n")
        answer = read("profile", self.profile("child", "parent"))
        self.assertEqual((answer.returncode, answer.stdout), (1, b""))
        self.assertIn(f'{parent}:4:1: unknown key "landlok"; did you mean "landlock"?', answer.stderr.decode())

    def test_circle_of_profiles(self):
        self.profile("a", "b")
        self.profile("b", "c")
        path = self.profile("c", "a")
        answer = read("profile", path)
        self.assertEqual((answer.returncode, answer.stdout), (1, b""))
        said = f"{self.directory}/b.yaml:3:10: extends runs in a circle: c -> a -> b -> c"
        self.assertIn(said, answer.stderr.decode())

    def test_chain_too_long(self):
        for i in range(12):
            path = self.profile(f"p{i}", f"p{i - 1}" if i else "balanced")
        answer = read("profile", path)
        self.assertEqual((answer.returncode, answer.stdout), (1, b""))
        self.assertIn(":3:10: extends goes too deep: p11 -> p10", answer.stderr.decode())

    def test_ten_megabytes(self):
        for kind in COMMANDS:
            for text in (b"#" * 10_000_000, b"a: b\n" * 2_000_000, b"[" * 10_000_000, b"- " * 5_000_000):
                self.refused(kind, self.write("big", text), " larger than 256 KiB")

    def test_worst_of_the_allowed_size(self):
        size = 256 << 10
        for text in "a: b\n [ { - ? ' \" &a *a ! | \n a:\n é".split(" "):
            for unit in (text.encode(), text.encode() + b" "):
                self.refused("profile", self.write("big", unit * (size // len(unit))), "")
        keys = "".join(f"k{i}: 1\n" for i in range(25_000))
        self.refused("profile", self.write("big", keys), "1025:1: too many keys")

    def test_bytes_that_are_no_text(self):
        for text in (b"version: 1\nname: \xff\n", b"version: 1\nname: \xed\xa0\x80\n", b"version: 1\nname: \xc0\xaf\n"):
            self.refused("profile", self.write("bytes", text), "2:7: not UTF-8 text")
        self.refused("profile", self.write("nul", b"version: 1\nname: a\0b\n"), "2:8: an invisible character, \\x00")
        self.refused("profile", self.write("utf16", "version: 1\n".encode("utf-16")), "1:1: not UTF-8 text")

    def test_what_is_no_file(self):
        self.refused("profile", self.directory, " not a regular file")
        self.refused("profile", self.directory / "missing.yaml", " No such file or directory")
        os.mkfifo(self.directory / "fifo.yaml")
        self.refused("policy", self.directory / "fifo.yaml", " not a regular file")

    def test_a_policy_is_no_profile_and_the_other_way_round(self):
        rules = document("policy", "valid", "smallest")
        self.refused("profile", rules, "3:7: ", '"policy" is not one of profile')
        answer = run("policy", "list", "--policy", str(document("profile", "valid", "smallest")))
        self.assertEqual((answer.returncode, answer.stdout, answer.stderr.count(b"\n")), (1, b"", 1))


if __name__ == "__main__":
    unittest.main()

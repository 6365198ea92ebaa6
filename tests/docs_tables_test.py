"""The operator's documents say what the profiles, the source and a running sandbox say.

The tables themselves are made by tools/doc_tables.py and only compared here; what that program has to write by itself
(mechanisms, mount flags, kernel versions, package names) is compared with where it comes from.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "vm")]
from caisson import skip  # noqa: E402

SPEC = [ROOT / "docs/operator/isolation-spec.md", ROOT / "docs/operator/isolation-reference.md"]
MATRIX = ROOT / "docs/operator/host-matrix.md"


def read(*paths):
    return "\n".join((ROOT / path).read_text(encoding="utf-8") for path in paths)


def strings_in(text):
    return set(re.findall(r'"([^"\n]*)"', text))


def source_list(path, name):
    """The string literals of one C++ array."""
    return strings_in(re.search(rf"{name}\[\] = \{{(.*?)\}};", read(path), re.S)[1])


class GeneratedTables(unittest.TestCase):
    def tool(self, *arguments):
        if importlib.util.find_spec("yaml") is None:
            skip("yaml", "python3-yaml is not installed")
        return subprocess.run(
            ["/usr/bin/python3", "-B", ROOT / "tools/doc_tables.py", *arguments], text=True, capture_output=True, check=False
        )

    def test_they_are_up_to_date(self):
        done = self.tool("--check")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_an_unknown_table_is_refused(self):
        self.assertIn("there is no table", self.tool("no-such-table").stderr)

    def test_mechanisms_are_the_ones_in_the_source(self):
        source = read("src/sandbox/limit_group.cc", "src/sandbox/setup_privileges.cc", "src/sandbox/setup_mounts.cc")
        words = set(re.findall(r"`((?:cpu|memory|pids)\.[\w.]+|RLIMIT_\w+|nr_inodes|oom_kill)`", self.tool("limits").stdout))
        self.assertGreater(len(words), 8)
        self.assertEqual({word for word in words if word not in source}, set())


class IsolationSpec(unittest.TestCase):
    page = "\n".join(path.read_text(encoding="utf-8") for path in SPEC)

    def test_every_key_is_explained(self):
        """Keys as the reader knows them, so also those that no built-in profile uses."""
        reader = read("src/policy/profile_reader.cc")
        keys = set(re.findall(r'^\s*\{"(\w+)",(?! ")', reader, re.M))
        keys -= {"source", "target", "access", "path", "reason", "write", "why"}  # of the items of lists
        self.assertGreater(len(keys), 30)
        explained = {row.rsplit(".", 1)[-1] for row in re.findall(r"^\| `([\w.]+)` \|", self.page, re.M)}
        top_level = {row.split(".")[0] for row in re.findall(r"^\| `([\w.*]+)` \|", self.page, re.M)}
        self.assertEqual(keys - explained - top_level, set())

    def test_sensitive_places_are_listed(self):
        for name in ("kSensitiveTrees", "kCredentialDirectories"):
            places = source_list("src/policy/path_policy.cc", name)
            self.assertGreater(len(places), 5)
            self.assertEqual({place for place in places if f"`{place}`" not in self.page}, set())

    def test_override_types_and_asks_are_listed(self):
        for path, name in (("src/policy/overrides.cc", "kKinds"), ("src/policy/rules.cc", "kSources")):
            words = source_list(path, name)
            self.assertEqual({word for word in words if f"`{word}`" not in self.page}, set())

    def test_mounts_of_a_running_sandbox_are_in_the_table(self):
        binary = os.environ.get("CAISSON_BIN", str(ROOT / "build/release/src/caisson"))
        if not os.access(binary, os.X_OK):
            skip("sandbox", f"{binary} is not built")
        rows = re.search(r"<!-- table: mounts -->\n(.*?)<!-- /table -->", self.page, re.S)[1].splitlines()[2:]
        flags = {}
        for row in rows:
            places, _, given = (cell.strip() for cell in row.strip("|").split(" | "))
            flags |= {place: set(given.split(", ")) for place in re.findall(r"`([^`]+)`", places)}
        done = subprocess.run(
            [binary, "run", "--cpus", "1", "--", "cat", "/proc/self/mountinfo"], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
        )
        seen = 0
        for line in done.stdout.splitlines():
            point, options = line.split()[4:6]
            with self.subTest(point=point):
                self.assertIn(point, flags)
                known = set(options.split(",")) & {"ro", "rw", "nosuid", "nodev", "noexec"}
                # A device must not be nodev, and rw is what is not said.
                self.assertEqual(known - {"rw"}, flags[point] - {"rw"})
                seen += 1
        self.assertGreater(seen, 15)


class HostMatrix(unittest.TestCase):
    page = MATRIX.read_text(encoding="utf-8") if MATRIX.exists() else ""
    packages = set(re.findall(r"^\| `([a-z0-9.+-]+)` \| [0-9]", page, re.M))

    def test_no_package_is_missing(self):
        used = set()
        for line in re.findall(r"^\w+_packages=\(([^)]*)\)", read("dev"), re.M):
            used.update(line.split())
        self.assertGreater(len(used), 15)
        import machine

        used |= set(machine.HOST_PACKAGES.values()) | set(machine.GUEST_PACKAGES) | {machine.KERNEL_PACKAGE}
        self.assertEqual(used - self.packages, set())

    def test_no_build_library_is_missing(self):
        """What CMake looks for, by the package that has it."""
        package_of = {
            "seccomp": "libseccomp-dev", "yaml-cpp": "libyaml-cpp-dev", "nlohmann_json": "nlohmann-json3-dev",
            "OpenSSL": "libssl-dev", "GTest": "libgtest-dev", "CLI11": "libcli11-dev", "Boost": "libboost-dev",
            "SQLite3": "libsqlite3-dev", "PostgreSQL": "libpq-dev", "archive": "libarchive-dev",
        }  # fmt: skip
        files = [path.relative_to(ROOT) for path in ROOT.rglob("CMakeLists.txt") if "build" not in path.relative_to(ROOT).parts]
        text = read(*files)
        found = set(re.findall(r"find_package\((\w+)", text))
        found |= {name.removeprefix("lib").removesuffix(".a") for name in re.findall(r"find_library\(\w+ ([\w.-]+)", text)}
        self.assertGreaterEqual(len(found), 4)
        for name in found - {"Threads", "Python3"}:
            with self.subTest(library=name):
                self.assertIn(package_of[name], self.packages)

    def test_oldest_kernel_is_the_one_doctor_asks_for(self):
        major, minor = re.search(r"major == (\d+) && minor >= (\d+)", read("src/cli/doctor.cc")).groups()
        self.assertIn(f"Linux {major}.{minor}", self.page)


class Links(unittest.TestCase):
    def test_every_relative_link_leads_somewhere(self):
        for document in [ROOT / "README.md", ROOT / "SPECIFICATION.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]:
            text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.S)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                with self.subTest(document=document.name, target=target):
                    path, _, anchor = target.partition("#")
                    file = (document.parent / path).resolve() if path else document
                    self.assertTrue(file.exists(), file)
                    if anchor:
                        heads = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
                        slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
                        self.assertIn(anchor, slugs)

    def test_source_files_named_exist(self):
        """`src/…`, `tests/…` and the like in the documents are paths of this repository."""
        for document in sorted((ROOT / "docs").rglob("*.md")):
            text = document.read_text(encoding="utf-8")
            for path in set(re.findall(r"`((?:src|tests|tools|profiles|schemas|docs|examples|fuzz|bench)/[\w./-]+)`", text)):
                with self.subTest(document=document.name, path=path):
                    self.assertTrue((ROOT / path).exists() or (ROOT / f"{path}.cc").exists())

    def test_tests_named_exist(self):
        """A test named in the threat model or the specification is a file of that name."""
        files = {path.stem for top in ("tests", "src") for path in (ROOT / top).rglob("*_test.*")}
        files |= set(re.findall(r"\w+_test", read("tests/CMakeLists.txt")))
        for document in (ROOT / "SPECIFICATION.md", *sorted((ROOT / "docs").rglob("*.md"))):
            for name in set(re.findall(r"`(\w+_test)`", document.read_text(encoding="utf-8"))):
                with self.subTest(document=document.name, test=name):
                    self.assertIn(name, files)


if __name__ == "__main__":
    unittest.main()

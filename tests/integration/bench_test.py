"""The benchmark itself: every part runs, its numbers follow from its samples, and what is missing says why.

Times are not asserted: two rounds beside other tests say nothing about them.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import plot
import publish

PARTS = ["start", "python", "steady", "density", "service", "queue", "egress"]
OURS = {"start": "caisson", "python-trivial": "caisson", "steady-gcc": "caisson", "density-start": "alone", "service-sqlite": "sandbox",
        "egress-connect": "caisson"}


class BenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(prefix="caisson-test-", dir="/tmp")
        cls.addClassCleanup(cls.place.cleanup)
        numbers = pathlib.Path(cls.place.name) / "results.json"
        done = subprocess.run(["/usr/bin/python3", "-B", ROOT / "bench/bench.py", "--quick", "--json", numbers], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        cls.printed = done.stdout
        if done.returncode != 0:
            raise AssertionError(f"the benchmark failed:\n{done.stdout}")
        cls.results = json.loads(numbers.read_text())
        cls.drawing = numbers.with_suffix(".svg").read_text()

    def groups(self):
        return [group for part in self.results["parts"].values() for group in part]

    def test_every_part_is_there(self):
        self.assertEqual(list(self.results["parts"]), PARTS)
        for group in self.groups():
            self.assertTrue(group["contenders"] or group["missing"], group["name"])
            self.assertIn(group["title"], self.printed)
        names = {group["name"]: {it["name"] for it in group["contenders"]} for group in self.groups()}
        for group, contender in OURS.items():
            self.assertIn(contender, names[group])

    def test_numbers_follow_from_samples(self):
        for group in self.groups():
            samples = {it["name"]: it["samples"] for it in group["contenders"]}
            for it in group["contenders"]:
                with self.subTest(group=group["name"], contender=it["name"]):
                    self.assertGreaterEqual(len(it["samples"]), 1)
                    self.assertTrue(all(sample >= 0 for sample in it["samples"]))
                    self.assertAlmostEqual(it["p50"], statistics.median(it["samples"]))
                    self.assertIn(it["p95"], it["samples"])
                    self.assertGreaterEqual(it["p95"], it["p50"])
                    self.assertEqual(set(it["ratios"]), set(group["references"]) & set(samples))
                    for reference, ratio in it["ratios"].items():
                        self.assertAlmostEqual(ratio, self.ratio(group, it["samples"], samples[reference]))

    @staticmethod
    def ratio(group, mine, theirs):
        if group["ratio_of"] == "rounds":
            return statistics.median(a / b for a, b in zip(mine, theirs))
        return statistics.median(mine) / statistics.median(theirs)

    def test_what_is_missing_says_why(self):
        for group in self.groups():
            for name, reason in group["missing"].items():
                self.assertGreater(len(reason), 10, (group["name"], name))
                self.assertNotIn(name, {it["name"] for it in group["contenders"]})

    def test_the_start_says_what_was_enforced_by_which_version(self):
        start = self.results["parts"]["start"][0]
        for it in start["contenders"]:
            self.assertTrue(it["enforces"] and it["version"], it["name"])
        expected = {"bare", "caisson", "bubblewrap", "firejail", "runc", "crun", "docker run", "gVisor runsc", "go-judge", "nsjail"}
        self.assertLessEqual(expected, {it["name"] for it in start["contenders"]} | set(start["missing"]))

    def test_the_machine_is_named(self):
        for name in ("cpu", "cores", "memory_mib", "kernel", "date"):
            self.assertTrue(self.results["machine"][name], name)

    def test_the_drawing_is_well_formed_and_has_a_bar_for_every_ratio(self):
        root = ElementTree.fromstring(self.drawing)
        bars = root.findall("{http://www.w3.org/2000/svg}rect")[1:]  # behind the background
        self.assertEqual(len(bars), sum(len(bars) for _, bars in plot.panels(self.results)))
        self.assertGreater(len(bars), 10)

    def test_tables_are_put_between_the_markers(self):
        for document in (publish.DOCUMENT, publish.README):
            copy = pathlib.Path(self.place.name) / document.name
            copy.write_text(document.read_text())
            publish.put(copy, publish.document_tables(self.results))
            text = copy.read_text()
            self.assertIn("/bin/true from the shell's point of view", text)
            self.assertTrue(text.startswith(document.read_text().split(publish.BEGIN)[0]))
            self.assertTrue(text.endswith(document.read_text().split(publish.END)[1]))
            publish.put(copy, "nothing")
            self.assertNotIn("from the shell's point of view", text.split(publish.BEGIN)[0] + copy.read_text().split(publish.BEGIN)[1])
        self.assertIn("caisson run", publish.readme_table(self.results))

    def test_a_document_without_its_markers_is_refused(self):
        document = pathlib.Path(self.place.name) / "plain.md"
        document.write_text("no place here\n")
        with self.assertRaises(SystemExit):
            publish.put(document, "table")
        self.assertEqual(document.read_text(), "no place here\n")


class UsageTest(unittest.TestCase):
    def bench(self, *words):
        return subprocess.run(["/usr/bin/python3", "-B", ROOT / "bench/bench.py", *words], capture_output=True, text=True, check=False)

    def test_unknown_part(self):
        done = self.bench("nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no part 'nothing'", done.stderr)

    def test_only_the_whole_is_published(self):
        for words in (["start", "--publish"], ["--quick", "--publish"]):
            self.assertEqual(self.bench(*words).returncode, 2)


if __name__ == "__main__":
    unittest.main()

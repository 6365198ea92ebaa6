"""ARCHITECTURE.md names real places: every file:function in it exists, and every path."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()


class Architecture(unittest.TestCase):
    def test_functions_exist(self):
        named = re.findall(r"`(src/[\w/]+\.cc):(\w+)`", TEXT)
        self.assertGreater(len(named), 15)
        for file, function in named:
            with self.subTest(file=file, function=function):
                source = (ROOT / file).read_text()
                # A definition: the name, its parameters, and a body.
                self.assertRegex(source, rf"(?m)^[^\n;=]*\b{function}\([^;{{}}]*\)[^;{{}}]*\{{")

    def test_paths_exist(self):
        for path in re.findall(r"`((?:src|tests|docs|profiles|tools|schemas)/[\w/.*-]*)`", TEXT):
            with self.subTest(path=path):
                self.assertTrue(list(ROOT.glob(path.rstrip("/"))), path)

    def test_links_exist(self):
        for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", TEXT):
            with self.subTest(link=link):
                self.assertTrue((ROOT / link).exists(), link)


if __name__ == "__main__":
    unittest.main()

"""Keeps the retired words of docs/glossary.md out of identifiers, comments and documents."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLOSSARY = ROOT / "docs/glossary.md"

# Places that still have retired words. A place without one must leave the list.
PENDING_NAMES = ["src/egress/", "src/launcher/"]
PENDING_PROSE = [
    "docs/operator/isolation-spec.md",
]


def retired(where):
    rows = re.findall(rf"^\| {where} \| ([^|]+) \|", GLOSSARY.read_text(encoding="utf-8"), re.M)
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)}


def tracked(*patterns):
    """Files of the repository; without git, as in an unpacked source archive, all files that match."""
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    found = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.rglob(pattern)}
    return sorted(str(path) for path in found if "build" not in path.parts)


STRINGS = r'R"(?P<end>\w*)\((?s:.*?)\)(?P=end)"|"(?:[^"\\\n]|\\.)*"'


def names_in(text):
    """The words that identifiers consist of: FirstProcess is `first`, `process` and `firstprocess`."""
    text = re.sub(rf"{STRINGS}|//[^\n]*", " ", text)
    for name in set(re.findall(r"[A-Za-z_]\w*", text)):
        words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
        yield from words
        yield from (first + second for first, second in zip(words, words[1:]))
        yield from (word.removesuffix("s") for word in words)


def prose_in(name, text):
    if name.endswith(".md"):
        text = re.sub(r"^ *```.*?^ *```", " ", text, flags=re.M | re.S)
    else:
        text = "\n".join(re.findall(r"//[^\n]*", re.sub(STRINGS, " ", text)))
    text = re.sub(r"`[^`\n]*`|\"[^\"\n]*\"", " ", text)  # quoted, it is a name: the user "nobody"
    return set(re.findall(r"[a-z]+", text.lower()))


class RetiredWords(unittest.TestCase):
    def check(self, files, words, pending, words_in):
        self.assertGreater(len(words), 7)
        self.assertGreater(len(files), 100)
        still = set()
        for name in files:
            found = sorted(words & set(words_in(name, (ROOT / name).read_text(encoding="utf-8"))))
            place = next((place for place in pending if name.startswith(place)), None)
            if found and place:
                still.add(place)
            elif found:
                with self.subTest(file=name):
                    self.fail(f"{', '.join(found)}: retired; docs/glossary.md says what to write instead")
        self.assertEqual(still, set(pending), "places without a retired word: take them off the list")

    def test_no_name_is_made_of_them(self):
        files = tracked("*.cc", "*.h")
        self.check(files, retired("name"), PENDING_NAMES, lambda _, text: names_in(text))

    def test_no_comment_or_document_has_them(self):
        files = [name for name in tracked("*.cc", "*.h", "*.md") if name != "CHANGELOG.md"]
        self.check(files, retired("prose"), PENDING_PROSE, prose_in)

    def test_the_search_finds(self):
        self.assertIn("berth", set(names_in("UniqueBerth MakeBerths();")))
        self.assertIn("firstprocess", set(names_in("int first_process_;")))
        self.assertNotIn("ground", set(names_in('int background; // ground\nText("ground");')))
        self.assertIn("nobody", prose_in("a.cc", "int a;  // as nobody knows"))
        self.assertNotIn("nobody", prose_in("a.cc", '// the user "nobody"'))


if __name__ == "__main__":
    unittest.main()

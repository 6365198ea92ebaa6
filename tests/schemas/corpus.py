"""The cases that schemas and parsers are judged by: corpus/SCHEMA/VERDICT.yaml, a map from a case's name to its document.

A document is the exact text that a parser reads, so it is written as a block (`|`, or `|-` without a newline at its end),
in double quotes where it holds characters that a block cannot, or as `!!binary` where it is no UTF-8 text.

Verdicts: `valid`; `invalid`; `invalid_parser_only` for faults that a schema cannot express, or that readers of JSON
disagree about.

To add cases, write them by hand, or write each document to corpus/SCHEMA/VERDICT/NAME.json (or .yaml) and run
`python3 tests/schemas/corpus.py`, which moves such files into the maps.
"""

import base64
import pathlib
import re

import yaml

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
VERDICTS = ("valid", "invalid", "invalid_parser_only")
YAML_SCHEMAS = ("policy", "profile")  # the documents of the other schemas are JSON

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def schemas():
    return sorted(folder.name for folder in CORPUS.iterdir())


def cases(schema, verdict):
    """{name: bytes}, in the order of names. A name that is there twice is an error."""
    text = (CORPUS / schema / f"{verdict}.yaml").read_text(encoding="utf-8")
    members = yaml.compose(text, Loader=Loader).value
    names = [key.value for key, _ in members]
    assert names == sorted(set(names)), f"{schema}/{verdict}.yaml: names are not unique and in order"
    return {
        key.value: base64.b64decode(value.value) if value.tag.endswith(":binary") else value.value.encode()
        for key, value in members
    }


def entry(name, content):
    """One case as the maps write it."""
    name = f'"{name}"' if name == "null" else name  # bare, it is no text
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"{name}: !!binary {base64.b64encode(content).decode()}\n"
    if not text.strip() or text[0] == " " or not text.replace("\n", "").isprintable():
        return f"{name}: " + yaml.dump(text, default_style='"', width=1 << 20)
    style = "|-" if not text.endswith("\n") else "|+" if text.endswith("\n\n") else "|"
    return f"{name}: {style}\n" + re.sub(r"(?m)^(?=.)", "  ", text) + ("" if text.endswith("\n") else "\n")


def fold(schema, verdict):
    """Moves the files of corpus/SCHEMA/VERDICT/ into the map; a file replaces the case of its name."""
    folder = CORPUS / schema / verdict
    files = sorted(folder.glob("*.*"))
    if not files:
        return
    target = CORPUS / schema / f"{verdict}.yaml"
    found = cases(schema, verdict) if target.exists() else {}
    found.update((file.stem, file.read_bytes()) for file in files)
    target.write_text("".join(entry(name, found[name]) for name in sorted(found)), encoding="utf-8")
    assert cases(schema, verdict) == found
    for file in files:
        file.unlink()
    folder.rmdir()
    print(f"{schema}/{verdict}.yaml: {len(files)} cases taken in, {len(found)} in all")


if __name__ == "__main__":
    for each in schemas():
        for judged in VERDICTS:
            fold(each, judged)

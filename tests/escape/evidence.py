#!/usr/bin/python3 -B
"""Writes docs/design/escape-evidence.md: row, technique, wall that stopped it, kernels; and what each removed wall turns red.

  tests/escape/evidence.py --add RESULT.json…   keep the verdicts of `caisson selftest --json` documents, and of egress_rows_test.py --json
  tests/escape/evidence.py                      write the page from what is kept
  tests/escape/evidence.py --check              fail when the page is not what would be written

What is kept is tests/escape/evidence.json: one column per kernel and caller; a document named *-delegated.json is of a
user who has a cgroup.
"""

import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from mutations import MUTATIONS  # noqa: E402

KEPT = HERE / "evidence.json"
PAGE = HERE.parents[1] / "docs/design/escape-evidence.md"
BY_HAND = HERE / "by_hand.md"

HEAD = """# Escape evidence

Written by `tests/escape/evidence.py` from runs of `caisson selftest --json`; do not edit. A row is one thing hostile code
tries (`tests/escape/`, one file each). Each attempt of a row runs first with nothing in its way, where it must work, and
then in a sandbox, where it must not; Caisson's report and the host's canaries are checked as well. `PASS` means that all
of that held. An attempt that cannot work on a machine even without a sandbox proves nothing there and is left out of the
row; a row of which nothing could be tried is a `SKIP`.

The rows from G41 on attack a sandbox with a network. They need name servers and servers outside, so they are suites with a
network of their own (`tests/escape/egress_rows_test.py` lists the tests of each) and no part of `caisson selftest`. Their
control is a destination that the rules allow, reached in the same run. They run by root, and most of them in sandboxes of root
and of an ordinary user: one verdict stands for both. Socket families (G96) and unix sockets (G97) are the rows A14, D01, D02 and D06.

Run it on your machine: `caisson selftest`. The columns 6.1 are Debian 12's own kernel in an emulated machine
(`CAISSON_VM_ALL=1`). The newer one of its backports, 6.12.95, has no column: under QEMU 7.2 no boot of it reached the
suite on 2026-11-16. It oopses early; one trace points at the flags after an emulated `cmpxchg16b`, which is not confirmed.

"""


def column(document, file):
    release = re.match(r"\d+\.\d+", document["kernel"]).group(0)
    delegated = " with a cgroup" if pathlib.Path(file).stem.endswith("-delegated") else ""
    return f"{release} {'root' if document['root'] else 'user'}{delegated}"


def add(files):
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"rows": {}}
    for file in files:
        document = json.loads(pathlib.Path(file).read_text())
        for row in document["rows"]:
            entry = kept["rows"].setdefault(row["id"], {"runs": {}})
            entry |= {"title": row["title"], "severity": row["severity"], "walls": row["walls"]}
            stopped = sorted({a["stopped_by"] for a in row["attempts"] if a.get("stopped_by")})
            run = {"verdict": row["verdict"], "stopped_by": stopped}
            if row["verdict"] != "PASS":
                run["reason"] = " ".join(re.sub(r"/\S*/caisson-selftest-\w+", "…", row["summary"]).split())
            entry["runs"][column(document, file)] = run
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def in_order(rows):
    return sorted(rows.items(), key=lambda item: (item[0][0], int(item[0][1:])))


def page():
    rows = json.loads(KEPT.read_text())["rows"]
    columns = sorted({name for row in rows.values() for name in row["runs"]}, reverse=True)
    lines = ["## Rows", "", "| row | technique | severity | walls | " + " | ".join(columns) + " |", "|---" * (4 + len(columns)) + "|"]
    for name, row in in_order(rows):
        verdicts = [row["runs"].get(one, {}).get("verdict", "") for one in columns]
        lines.append(f"| {name} | {row['title']} | {row['severity']} | {', '.join(row['walls'])} | {' | '.join(verdicts)} |")
    lines += ["", "## Not shown", ""]
    lines += ["Where a row is not a `PASS`, and why.", "", "| row | kernel and caller | verdict | reason |", "|---|---|---|---|"]
    for name, row in in_order(rows):
        for one in columns:
            run = row["runs"].get(one, {"verdict": "PASS"})
            if run["verdict"] != "PASS":
                lines.append(f"| {name} | {one} | {run['verdict']} | {run.get('reason', '').replace('|', '/')} |")
    lines += ["", "## Walls left out", ""]
    lines += ["`caisson-mutable`, which only tests build, can leave out one wall at a time. These rows turn red; `mutation_test` shows it.", ""]
    lines += ["| wall | what is left out | rows that notice |", "|---|---|---|"]
    lines += [f"| {one.wall} | {one.what} | {', '.join(one.rows)} |" for one in MUTATIONS]
    lines += ["", BY_HAND.read_text().strip()] if BY_HAND.exists() else []
    return HEAD + "\n".join(lines) + "\n"


def main(arguments):
    if arguments[:1] == ["--add"]:
        add(arguments[1:])
    if arguments == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != page():
            sys.exit(f"{PAGE.name} is stale; run tests/escape/evidence.py")
        return
    PAGE.write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])

#!/usr/bin/python3 -B
"""Results as tables: for the terminal, and between the markers of the documents, so that no number is copied by hand.

    bench/publish.py [RESULTS.json]     put earlier results into the documents once more (./dev bench --publish does it)
"""

import json
import pathlib
import re
import sys

import plot
from measure import ROOT

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
DOCUMENT = ROOT / "docs/design/performance.md"
DRAWING = ROOT / "docs/design/performance.svg"
README = ROOT / "README.md"
# What the README shows: group, contender, what it is called there.
SUMMARY = (
    ("start", "caisson", "`caisson run -- /bin/true`"),
    ("start", "caisson, launcher", "the same through a launcher"),
    ("start", "caisson, parked launcher", "the same, prepared ahead"),
    ("start", "bubblewrap", "bubblewrap (no filter, no limits)"),
    ("start", "runc", "runc"),
    ("start", "docker run", "docker run"),
    ("start", "gVisor runsc", "gVisor runsc"),
    ("start-program-result", "parked launcher", "`/bin/true` for a running program, prepared ahead"),
    ("python-trivial", "caisson", "`caisson verify` of a trivial Python file (starts Python twice)"),
    ("python-trivial", "caisson, Python launcher", "the same, forked from a warm interpreter"),
    ("python-program-result", "Python launcher", "a trivial Python file for a running program, forked"),
    ("numpy-program-result", "NumPy launcher", "a Python file that imports numpy, forked"),
    ("steady-python_loop", "caisson", "a loop in Python, inside"),
    ("steady-gcc", "caisson", "a C build, inside"),
    ("steady-git_clone", "caisson", "git clone, inside"),
)


def number(value):
    if value >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def heading(results):
    it = results["machine"]
    said = (f"{results['caisson']}, measured {it['date']} with `{results['command']}` on {it['cpu']}, {it['cores']} cores, "
            f"{it['memory_mib'] / 1024:.0f} GiB, {it['system']}, Linux {it['kernel']}, as {it['caller']}")
    return said + (f". {warning(results)}" if warning(results) else "")


def warning(results):
    """Times taken on a busy machine are mostly the wait for a turn: ratios of short work, and of work that hands over to the
    supervisor, are then far too large."""
    share = results["machine"]["busy_before"]
    return f"**Not a quiet machine: {share:.0%} of its CPU time was others' before; do not quote these numbers**" if share > 0.1 else ""


def ordered(group):
    return sorted(group["contenders"], key=lambda it: it["p50"], reverse=group["better"] == "higher")


def ratio_cells(group, contender):
    return [number(contender["ratios"][name]) if name in contender["ratios"] else "–" for name in group["references"]]


def judged(group, contender):
    """Its goals, and whether its ratios reach them."""
    said = []
    for reference, bound in contender["goals"].items():
        if reference not in contender["ratios"]:
            continue
        lower = group["better"] == "lower"
        ratio = contender["ratios"][reference]
        reached = ratio <= bound if lower else ratio >= bound
        said.append(f"{'reached' if reached else 'missed'}: at {'most' if lower else 'least'} {bound:g} × {reference}")
    return "; ".join(said)


def text_table(group):
    width = max([len(it["name"]) for it in group["contenders"]] + [len(name) for name in group["missing"]], default=10) + 1
    columns = [max(14, len(name) + 4) for name in group["references"]]
    heads = "".join(f"{'× ' + name:>{column}}" for name, column in zip(group["references"], columns))
    lines = ["", f"{group['title']} ({group['unit']})", f"{'':{width}}{'median':>10}{'p95':>10}{heads}"]
    for it in ordered(group):
        ratios = "".join(f"{cell:>{column}}" for cell, column in zip(ratio_cells(group, it), columns))
        lines.append(f"{it['name']:{width}}{number(it['p50']):>10}{number(it['p95']):>10}{ratios}  {judged(group, it) or it['enforces']}".rstrip())
    lines += [f"{name:{width}}not measured: {reason}" for name, reason in group["missing"].items()]
    return "\n".join(lines + [f"  {note}" for note in group["notes"]])


def markdown_table(group):
    enforces = len({it["enforces"] for it in group["contenders"]} - {"", "nothing"}) > 1
    heads = ["", "median", "p95", *(f"× {name}" for name in group["references"])]
    heads += ["asked to enforce", "version"] if enforces else []
    goals = any(it["goals"] for it in group["contenders"])
    heads += ["goal"] if goals else []
    lines = [f"#### {group['title']}", "", f"In {group['unit']}{'' if group['better'] == 'lower' else '; more is better'}.", "",
             "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for it in ordered(group):
        cells = [it["name"], number(it["p50"]), number(it["p95"]), *ratio_cells(group, it)]
        cells += [it["enforces"], it["version"]] if enforces else []
        cells += [judged(group, it)] if goals else []
        lines.append("| " + " | ".join(cells) + " |")
    said = [f"- Not measured: {name}: {reason}." for name, reason in group["missing"].items()]
    said += [f"- {note[0].upper()}{note[1:]}." for note in group["notes"]]
    return "\n".join([*lines, "", *said]).rstrip()


def document_tables(results):
    parts = [f"{heading(results)}.", "", f"![ratios to the bare cost of the same work]({DRAWING.name})"]
    for name, groups in results["parts"].items():
        parts += ["", f"### Part {name}", "", "\n\n".join(markdown_table(group) for group in groups)]
    return "\n".join(parts)


def readme_table(results):
    contenders = {(group["name"], it["name"]): (group, it) for groups in results["parts"].values() for group in groups
                  for it in group["contenders"]}
    lines = ["| | median | × bare | × bubblewrap |", "|---|---|---|---|"]
    for group_name, name, called in SUMMARY:
        if (group_name, name) not in contenders:
            continue
        group, it = contenders[group_name, name]
        ratios = [number(it["ratios"][reference]) if reference in it["ratios"] else "" for reference in ("bare", "bubblewrap")]
        lines.append(f"| {called} | {number(it['p50'])} {group['unit']} | {ratios[0]} | {ratios[1]} |")
    machine = results["machine"]
    return "\n".join([*lines, "", f"Measured {machine['date']}, {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}. {warning(results)}".rstrip()])


def put(path, text):
    """Replaces what is between the document's markers."""
    whole = path.read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.S)
    if len(pattern.findall(whole)) != 1:
        raise SystemExit(f"bench: {path} must have one place between {BEGIN} and {END}")
    path.write_text(pattern.sub(lambda _: f"{BEGIN}\n{text}\n{END}", whole))


def publish(results):
    put(DOCUMENT, document_tables(results))
    put(README, readme_table(results))
    DRAWING.write_text(plot.draw(results))
    print(f"published: {DOCUMENT}, {README}, {DRAWING}")


if __name__ == "__main__":
    publish(json.loads(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/bench/results.json").read_text()))

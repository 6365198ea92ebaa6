"""The ratios as one drawing: a panel for each comparison with a bare contender, a bar for each other one, a logarithmic
scale.

Bars begin at the bare cost of the same work and grow to the right when it costs more; for throughput the ratio is turned
round, so that longer is worse there too. SVG by hand: it needs no library and can be read in a review.
"""

import math
from xml.sax.saxutils import escape

from launchers import VARIANTS, WITH_NUMPY

WIDTH, LEFT, RIGHT = 980, 300, 90
BAR, GAP, HEAD, FOOT, TOP = 18, 6, 40, 22, 70
OURS, OTHERS, GOAL = "#1f6f8b", "#b9b4a7", "#b3261e"
OUR_NAMES = ("caisson", "in process", *(variant.name for variant in (*VARIANTS, WITH_NUMPY)))


def panels(results):
    """(title, [(name, ratio, goal, is it ours)]): one for each comparison with a bare contender, and one for each part's
    comparisons of nothing but inside and outside."""
    found = []
    for part, groups in results["parts"].items():
        pairs = []
        for group in groups:
            if "bare" not in group["references"]:
                continue
            others = [it for it in group["contenders"] if it["name"] != "bare" and "bare" in it["ratios"]]
            if [it["name"] for it in others] == ["caisson"]:
                pairs.append((called(group["name"]), cost(group, others[0]), goal(group, others[0]), True))
            elif others:
                bars = [(it["name"], cost(group, it), goal(group, it), it["name"].startswith(OUR_NAMES)) for it in others]
                found.append((group["title"], sorted(bars, key=lambda bar: bar[1])))
        if pairs:
            found.append((f"{part}: the same work inside, once the sandbox stands (red: the goal)", pairs))
    return found


def cost(group, contender):
    ratio = contender["ratios"]["bare"]
    return ratio if group["better"] == "lower" else 1 / max(ratio, 0.001)  # a contender may have stalled


def goal(group, contender):
    ratio = contender["goals"].get("bare")
    return ratio if ratio is None or group["better"] == "lower" else 1 / ratio


def called(name):
    return name.removeprefix("steady-").replace("_", " ").replace("-", " ")


def ticks(low, high):
    steps = [value * 10 ** power for power in range(-3, 6) for value in (1, 2, 5)]
    inside = [step for step in steps if low <= step <= high]
    return inside if len(inside) <= 8 else [step for step in inside if math.log10(step) == int(math.log10(step))]


def draw(results):
    rows, y = [], TOP
    for title, bars in panels(results):
        rows += panel(title, bars, y)
        y += HEAD + len(bars) * (BAR + GAP) + FOOT
    machine = results["machine"]
    caption = f"{machine['date']}, {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}"
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
            'font-family="sans-serif" font-size="13" fill="#222">',
            f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>',
            text(20, 28, "Cost compared with the same work bare (bare = 1, logarithmic; shorter is better)", size=17),
            text(20, 50, caption, colour="#666")]
    return "\n".join([*head, *rows, "</svg>"]) + "\n"


def panel(title, bars, y):
    low = min(1, *(ratio for _, ratio, _, _ in bars)) / 1.02
    high = max(2, *(ratio for _, ratio, _, _ in bars), *(goal or 1 for _, _, goal, _ in bars)) * 1.05

    def x(value):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / low) / math.log(high / low)

    bottom = y + HEAD + len(bars) * (BAR + GAP)
    rows = [text(20, y + 22, title, size=14, weight="bold")]
    for step in ticks(low, high):
        rows.append(f'<line x1="{x(step):.1f}" x2="{x(step):.1f}" y1="{y + HEAD - 6}" y2="{bottom}" stroke="#ddd"/>')
        rows.append(text(x(step), bottom + 12, f"{step:g} ×", size=11, anchor="middle", colour="#888"))
    for number, (name, ratio, goal, ours) in enumerate(bars):
        top = y + HEAD + number * (BAR + GAP)
        left, right = sorted((x(1), x(ratio)))
        rows.append(text(LEFT - 8, top + 14, name, anchor="end"))
        rows.append(f'<rect x="{left:.1f}" y="{top}" width="{max(1.5, right - left):.1f}" height="{BAR}" fill="{OURS if ours else OTHERS}"/>')
        rows.append(text(max(right, x(1)) + 6, top + 14, f"{ratio:.3g} ×" if ratio >= 1.1 else f"{ratio:.3f} ×"))
        if goal:
            rows.append(f'<line x1="{x(goal):.1f}" x2="{x(goal):.1f}" y1="{top - 3}" y2="{top + BAR + 3}" stroke="{GOAL}" stroke-width="2"/>')
    return rows


def text(x, y, words, size=13, anchor="start", colour="#222", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}">'
            f'{escape(words)}</text>')

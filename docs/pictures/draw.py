#!/usr/bin/env python3
"""Draws each picture of this folder from its text: `NAME.txt` becomes `NAME.svg`.

    docs/pictures/draw.py           draw all of them again
    docs/pictures/draw.py --check   exit 1 and name the pictures that are not what their text says

A text has one statement a line; `#` begins a comment, `|` breaks a label into lines.

    box ID COLUMN,ROW WIDTHxHEIGHT [KIND] : TITLE | LINE | ...    a box on a grid of cells
    arrow ID -> ID [right|left] : LABEL                           from box to box; `<->` points both ways
    lane ID : TITLE                                               a lifeline; then lines from top to bottom:
    send ID -> ID : LABEL                                         a message between lanes
    note ID : LABEL                                               what happens in a lane

KIND is `plain` (default), `strong`, `quiet` or `end`. A picture has boxes and arrows, or lanes, sends and notes.
"""

import re
import sys
from html import escape
from pathlib import Path

CELL_W, CELL_H, MARGIN = 92, 58, 16
LANE_W, LANE_STEP = 220, 46
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2430; }
  .title { font-weight: 600; font-size: 14px; }
  .label { font-size: 12px; fill: #4a5264; }
  .box { fill: #ffffff; stroke: #8892a6; stroke-width: 1.2; }
  .strong { fill: #e8f0ff; stroke: #3b6fd8; }
  .quiet { fill: #f6f7f9; stroke: #b9c0cd; }
  .end { fill: #eef7ee; stroke: #4c9a5b; }
  .line { stroke: #5b6579; stroke-width: 1.3; fill: none; }
  .lane { stroke: #b9c0cd; stroke-width: 1.2; stroke-dasharray: 4 4; }
  .back { fill: #ffffff; }
  .tip { fill: #5b6579; }
"""


class Wrong(Exception):
    """A line that is not a statement, with its number."""


def read(text):
    """The statements of a text, as tuples of the word and its parts."""
    forms = {
        "box": r"(\S+)\s+([\d.]+),([\d.]+)\s+([\d.]+)x([\d.]+)(?:\s+(\w+))?\s*:\s*(.+)",
        "arrow": r"(\S+)\s+(<?->)\s+(\S+)(?:\s+(right|left))?\s*:\s*(.*)",
        "lane": r"(\S+)\s*:\s*(.+)",
        "send": r"(\S+)\s+->\s+(\S+)\s*:\s*(.+)",
        "note": r"(\S+)\s*:\s*(.+)",
    }
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        found = re.fullmatch(forms.get(word, r"(?!)"), rest.strip())
        if not found:
            raise Wrong(f"line {number} is not a statement: {line}")
        yield (word, *found.groups())


def lines_of(label):
    return [part.strip() for part in label.split("|")] if label else []


def write_text(x, y, lines, first):
    """Lines of text around a point: the first in a class of its own, the others as labels."""
    top = y - 8 * (len(lines) - 1) + 4
    for n, line in enumerate(lines):
        name = first if n == 0 else "label"
        yield (f'<text class="{name}" x="{x:g}" y="{top + 16 * n:g}" text-anchor="middle">{escape(line)}</text>')


def edge(box, toward):
    """Where a line from the middle of a box to a point leaves the box."""
    x, y, w, h = box
    dx, dy = toward[0] - x, toward[1] - y
    scale = min(w / 2 / abs(dx) if dx else 1e9, h / 2 / abs(dy) if dy else 1e9)
    return x + dx * scale, y + dy * scale


def arrow(boxes, start, heads, end, side, label):
    a, b = boxes[start], boxes[end]
    overlap_x = min(a[0] + a[2] / 2, b[0] + b[2] / 2) - max(a[0] - a[2] / 2, b[0] - b[2] / 2)
    overlap_y = min(a[1] + a[3] / 2, b[1] + b[3] / 2) - max(a[1] - a[3] / 2, b[1] - b[3] / 2)
    shift = {"right": 14, "left": -14, None: 0}[side]
    if overlap_x > 0:
        x = (max(a[0] - a[2] / 2, b[0] - b[2] / 2) + overlap_x / 2) + shift
        down = 1 if b[1] > a[1] else -1
        ends = (x, a[1] + down * a[3] / 2), (x, b[1] - down * b[3] / 2)
    elif overlap_y > 0:
        y = (max(a[1] - a[3] / 2, b[1] - b[3] / 2) + overlap_y / 2) + shift
        right = 1 if b[0] > a[0] else -1
        ends = (a[0] + right * a[2] / 2, y), (b[0] - right * b[2] / 2, y)
    else:
        ends = edge(a, b[:2]), edge(b, a[:2])
    (x1, y1), (x2, y2) = ends
    begins = ' marker-start="url(#tip)"' if heads.startswith("<") else ""
    yield f'<path class="line" d="M{x1:g} {y1:g} L{x2:g} {y2:g}" marker-end="url(#tip)"{begins}/>'
    yield from backed((x1 + x2) / 2, (y1 + y2) / 2, lines_of(label))


def backed(x, y, lines):
    """A label that covers the line below it."""
    if not lines:
        return
    width = 7 * max(map(len, lines)) + 8
    height = 16 * len(lines) + 2
    yield f'<rect class="back" x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}"/>'
    yield from write_text(x, y, lines, first="label")


def boxes_and_arrows(statements):
    boxes, drawn = {}, []
    for word, name, column, row, width, height, kind, label in (s for s in statements if s[0] == "box"):
        x, y = MARGIN + float(column) * CELL_W, MARGIN + float(row) * CELL_H
        w, h = float(width) * CELL_W, float(height) * CELL_H
        boxes[name] = (x + w / 2, y + h / 2, w, h)
        drawn.append(f'<rect class="box {kind or ""}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="7"/>')
        drawn += write_text(x + w / 2, y + h / 2, lines_of(label), first="title")
    for word, start, heads, end, side, label in (s for s in statements if s[0] == "arrow"):
        drawn += arrow(boxes, start, heads, end, side, label)
    right = max(x + w / 2 for x, _, w, _ in boxes.values())
    bottom = max(y + h / 2 for _, y, _, h in boxes.values())
    return right + MARGIN, bottom + MARGIN, drawn


def sequence(statements):
    lanes, drawn, y = {}, [], MARGIN + 56
    for word, name, title in (s for s in statements if s[0] == "lane"):
        lanes[name] = (MARGIN + LANE_W * (len(lanes) + 0.5), title)
    for word, *parts in (s for s in statements if s[0] != "lane"):
        lines = lines_of(parts[-1])
        y += 8 * (len(lines) - 1)
        if word == "send":
            (x1, _), (x2, _) = lanes[parts[0]], lanes[parts[1]]
            drawn.append(f'<path class="line" d="M{x1:g} {y + 10:g} L{x2:g} {y + 10:g}" marker-end="url(#tip)"/>')
            drawn += backed((x1 + x2) / 2, y - 6 * len(lines), lines)
        else:
            x, width = lanes[parts[0]][0], LANE_W - 24
            height = 16 * len(lines) + 10
            drawn.append(f'<rect class="box quiet" x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}" rx="5"/>')
            drawn += write_text(x, y, lines, first="label")
        y += LANE_STEP + 8 * (len(lines) - 1)
    lines = []
    for x, title in lanes.values():
        lines.append(f'<line class="lane" x1="{x:g}" y1="{MARGIN + 30}" x2="{x:g}" y2="{y - 12:g}"/>')
        lines.append(f'<rect class="box strong" x="{x - 96:g}" y="{MARGIN}" width="192" height="32" rx="7"/>')
        lines += write_text(x, MARGIN + 16, [title], first="title")
    return MARGIN * 2 + LANE_W * len(lanes), y, lines + drawn


def svg(text):
    statements = list(read(text))
    draw = sequence if any(s[0] == "lane" for s in statements) else boxes_and_arrows
    width, height, drawn = draw(statements)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        f'<rect class="back" width="{width:g}" height="{height:g}"/>',
    )
    return "\n".join((*head, *drawn, "</svg>")) + "\n"


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = []
    for source in sorted(Path(__file__).parent.glob("*.txt")):
        try:
            drawn = svg(source.read_text())
        except (Wrong, KeyError) as wrong:
            sys.exit(f"{source}: {wrong}")
        picture = source.with_suffix(".svg")
        if not picture.exists() or picture.read_text() != drawn:
            stale.append(picture.name)
            if not check:
                picture.write_text(drawn)
    if check and stale:
        sys.exit(f"not what their text says: {', '.join(stale)}; run docs/pictures/draw.py")


if __name__ == "__main__":
    main()

"""The picture of docs/times.md: a product order and a frontier, each cell as the engine's own functions judge its time."""

from ddcli.engine.times import Frontier, box, less_equal
from ddcli.render.drawing import with_plain_colours

SIDE, COLUMNS, ROWS = 34, 7, 6
"""The side of a cell in pixels, and the times that a panel shows: (0, 0) to (6, 5)."""
TIME, CORNER = (3, 2), (4, 3)
"""The time that the left panel compares with all others, and the box that a run closes in the right one."""
NAME = 'role="img" aria-labelledby="times-title"'
LEFT, TOP, GAP = 40, 62, 96
STYLE = """<style>.times { --paper: #fff; --ink: #1d2430; --faint: #667085; --edge: #cbd5e1; --before: #dbe7ff; --after: #fff0d6;
  --apart: #fff; --mark: #1d4ed8; }
@media (prefers-color-scheme: dark) { .times { --paper: #11151c; --ink: #e6eaf0; --faint: #98a2b3; --edge: #3b4554; --before: #1f3157;
  --after: #43351c; --apart: #11151c; --mark: #8ab4ff; } }
.times { background: var(--paper); } .times text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: var(--ink);
  text-anchor: middle; } .times .title { font-weight: 700; text-anchor: start; } .times .note { fill: var(--faint); text-anchor: start; }
.times .axis { fill: var(--faint); } .times rect { stroke: var(--edge); } .times .before { fill: var(--before); }
.times .after { fill: var(--after); } .times .apart { fill: var(--apart); } .times path { stroke: var(--mark); stroke-width: 3; fill: none; }
.times .mark { fill: none; stroke: var(--mark); stroke-width: 3; } .times .paper { fill: var(--paper); stroke: none; }</style>"""


def compared(time):
    """Return how a time is to `TIME`: at or before it, at or after it, or neither."""
    if less_equal(time, TIME):
        return "before"
    return "after" if less_equal(TIME, time) else "apart"


def closed(time, frontier):
    """Return whether a frontier has closed a time, or still allows it."""
    return "after" if frontier.less_equal(time) else "before"


def diagram():
    """Return the picture as SVG."""
    frontier = box(CORNER)
    width, height = LEFT + 2 * COLUMNS * SIDE + GAP + 44, TOP + ROWS * SIDE + 76
    size = f'width="{width}" height="{height}"'
    second = LEFT + COLUMNS * SIDE + GAP
    lines = [
        f'<svg class="times" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} {NAME}>',
        '<title id="times-title">Times of two coordinates: a product order, and the frontier after a run</title>',
        with_plain_colours(STYLE),
        f'<rect class="paper" {size}/>',
        *panel(LEFT, f"the order, seen from {TIME}", compared),
        cell(LEFT, TIME, "mark"),
        *legend(
            LEFT,
            [
                ("before", f"at or before {TIME}"),
                ("after", f"at or after {TIME}"),
                ("apart", "neither: not comparable"),
            ],
        ),
        *panel(second, f"after dd run --until {CORNER[0]},{CORNER[1]}", lambda time: closed(time, frontier)),
        edge(second, frontier),
        *legend(second, [("before", "closed"), ("after", "open"), (None, "the frontier")]),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def panel(left, title, kind):
    """Return a panel's title, axes and cells, each cell of its kind."""
    yield f'<text class="title" x="{left}" y="20">{title}</text>'
    yield f'<text class="note" x="{left - 30}" y="{TOP - 14}">version</text>'
    for day in range(COLUMNS):
        yield f'<text class="axis" x="{left + day * SIDE + SIDE // 2}" y="{TOP + ROWS * SIDE + 16}">{day}</text>'
        yield from (cell(left, (day, version), kind((day, version))) for version in range(ROWS))
    for version in range(ROWS):
        yield f'<text class="axis" x="{left - 12}" y="{row(version) + SIDE // 2 + 4}">{version}</text>'
    yield f'<text class="note" x="{left + COLUMNS * SIDE + 6}" y="{TOP + ROWS * SIDE + 16}">day</text>'


def cell(left, time, kind):
    """Return the cell of a time."""
    return f'<rect class="{kind}" x="{left + time[0] * SIDE}" y="{row(time[1])}" width="{SIDE}" height="{SIDE}"/>'


def row(version):
    """Return the upper edge of a version's row: versions grow upwards."""
    return TOP + (ROWS - 1 - version) * SIDE


def edge(left, frontier: Frontier):
    """Return the line between the closed and the open times."""
    ((day, version),) = frontier.corners()
    return f'<path d="M{left} {row(version - 1)} h{day * SIDE} V{TOP + ROWS * SIDE}"/>'


def legend(left, entries):
    """Return the meaning of colours, side by side under a panel; of no colour a line's."""
    for at, (kind, text) in enumerate(entries):
        top = TOP + ROWS * SIDE + 26 + 16 * at
        if kind is None:
            yield f'<path d="M{left} {top + 6} h12"/>'
        else:
            yield f'<rect class="{kind}" x="{left}" y="{top}" width="12" height="12"/>'
        yield f'<text class="note" x="{left + 20}" y="{top + 10}">{text}</text>'

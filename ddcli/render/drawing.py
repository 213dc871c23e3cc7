"""A view as a drawing: as SVG, with the size of each box for its words and its place; and as a Mermaid flowchart, which GitHub shows in Markdown.

Words are in a font of fixed width, so that their width is known without the font: a cell is at most 0.61 of the font's size in
all fonts of the style. Every text from outside is escaped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.render.layout import Box, PlacedScope, Point, Rect, layout
from ddcli.render.units import cells, clipped, flow, loop_title, spent, wrapped
from ddcli.screen import markup, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddcli.render.layout import Line
    from ddcli.render.view import OperatorView, View


FONT = 12.0
CELL = FONT * 0.62
ROW = 16.0
PAD_X, PAD_Y = 10.0, 8.0
MOST = 38
"""The most columns of a box's words."""
LEAST_WIDTH = 96.0

STYLE = """
.dd { --paper: #fff; --ink: #1d2430; --faint: #667085; --line: #98a2b3; --box: #f8fafc; --edge: #cbd5e1; --state: #eef4ff;
  --state-edge: #7aa2e3; --input: #effaf3; --input-edge: #6fbf8b; --output: #fff6e8; --output-edge: #e0a44c; --loop: #64748b0f;
  --loop-edge: #94a3b8; --name: #1d4ed8; --back: #b4539a; --hot: #1d4ed8; }
@media (prefers-color-scheme: dark) { .dd { --paper: #11151c; --ink: #e6eaf0; --faint: #98a2b3; --line: #667085; --box: #1b212b;
  --edge: #3b4554; --state: #1a2740; --state-edge: #4b74b8; --input: #16291f; --input-edge: #3f8a5b; --output: #2f2617;
  --output-edge: #a8752a; --loop: #94a3b80f; --loop-edge: #4b5666; --name: #8ab4ff; --back: #d283be; --hot: #8ab4ff; } }
.dd svg, svg.dd { background: var(--paper); }
.dd text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace; fill: var(--ink);
  white-space: pre; }
.dd .kind { font-weight: 700; } .dd .name { fill: var(--name); font-weight: 700; } .dd .says { fill: var(--faint); }
.dd .box rect { fill: var(--box); stroke: var(--edge); }
.dd .keeps rect { fill: var(--state); stroke: var(--state-edge); }
.dd .input rect { fill: var(--input); stroke: var(--input-edge); } .dd .output rect { fill: var(--output); stroke: var(--output-edge); }
.dd .shared rect.twin { fill: none; } .dd .shared rect { stroke-width: 1.5; }
.dd .loop rect { fill: var(--loop); stroke: var(--loop-edge); stroke-dasharray: 5 4; } .dd .loop text { fill: var(--faint); }
.dd .lines path { fill: none; stroke: var(--line); stroke-width: 1.4; } .dd .lines path.back { stroke: var(--back); stroke-dasharray: 4 3; }
.dd marker path { fill: var(--line); } .dd marker.back path { fill: var(--back); } .dd .paper { fill: var(--paper); }
""".strip()


def with_plain_colours(style: str) -> str:
    """Return a style in which each colour by a variable follows the plain one: programs that know no variables ignore the second.

    >>> with_plain_colours(".a { --ink: #123; } .a { fill: var(--ink); }")
    '.a { --ink: #123; } .a { fill: #123; fill: var(--ink); }'
    """
    plain: dict[str, str] = {}
    for name, colour in re.findall(r"--([a-z-]+): (#[0-9a-f]+)", style):
        plain.setdefault(name, colour)  # the light scheme comes first
    return re.sub(r"([a-z-]+): var\(--([a-z-]+)\)", lambda found: f"{found[1]}: {plain[found[2]]}; {found[0]}", style)


@dataclass(frozen=True)
class BoxText:
    """The text in a box: the operator's kind, its name in the file, its description, and its counts."""

    kind: str
    name: str
    says: list[str]
    counted: list[str]

    @property
    def columns(self) -> int:
        """The width in columns of letters."""
        head = cells(self.kind) + (cells(self.name) + 2 if self.name else 0)
        return max([head, *map(cells, self.says), *map(cells, self.counted)])

    @property
    def rows(self) -> int:
        """The height in rows."""
        return 1 + len(self.says) + len(self.counted)


@dataclass(frozen=True)
class Drawing:
    """A view with its boxes' texts and places."""

    view: View
    words: dict[str, BoxText]
    titles: dict[str, str]
    layout: PlacedScope


def draw(view: View) -> Drawing:
    """Return a drawing of a view."""
    counts = view.counts()
    words = {each.id: words_of(view, each) for each in view.operators}
    titles = {each.id: clipped(loop_title(each, counts.get(each.id)), 2 * MOST) for each in view.loops}
    items = [
        Box(
            each.id,
            max(LEAST_WIDTH, words[each.id].columns * CELL + 2 * PAD_X),
            words[each.id].rows * ROW + 2 * PAD_Y,
            each.loop,
        )
        for each in view.operators
    ]
    groups = [
        Box(each.id, cells(titles[each.id]) * CELL + 8, ROW + PAD_Y, each.parent, each.feedback) for each in view.loops
    ]
    edges = [(source, each.id) for each in view.operators for source in each.inputs]
    return Drawing(view, words, titles, layout(items, groups, edges))


def words_of(view: View, operator: OperatorView) -> BoxText:
    """Return the text in the box of an operator."""
    count = view.counts().get(operator.id)
    kind = f"{operator.kind}, shared by {len(operator.readers)}" if operator.shared else operator.kind
    name = clipped(", ".join(operator.names), MOST - cells(kind) - 2)
    counted = [flow(count, operator)] if count and (count.rows_in or count.rows_out) else []
    if words := spent(count, operator.held):
        counted.append(words)
    if view.run and not counted and operator.kind != "output":
        counted.append("nothing new")
    return BoxText(clipped(kind, MOST), name, wrapped(operator.says, MOST, 3), counted)


def svg(drawing: Drawing, *, alone: bool = True, of: str = "Operators") -> str:
    """Return a drawing as SVG: a file of its own (`alone`), with the style, or a part of a page that has the style, with names of its own for its arrows."""
    placed, view = drawing.layout, drawing.view
    width, height, role = round(placed.width), round(placed.height), "img" if alone else "group"
    head = f'<svg class="dd" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="{role}" aria-labelledby="{of}-title">'
    parts = [head, f'<title id="{of}-title">{of} of {markup(view.name)}</title>']
    if alone:
        parts.append(f"<style>{with_plain_colours(STYLE)}</style>")
        parts.append(f'<rect class="paper" width="{width}" height="{height}"/>')
    parts.append(f"<defs>{_marker(f'{of}-arrow', '')}{_marker(f'{of}-arrow-back', 'back')}</defs>")
    outer_first = sorted(view.loops, key=lambda each: -placed.groups[each.id].width * placed.groups[each.id].height)
    parts += [_loop(placed.groups[each.id], drawing.titles[each.id]) for each in outer_first]
    numbers = {each.id: at for at, each in enumerate(view.operators)}
    parts += ['<g class="lines">', *(_line(each, numbers, of) for each in placed.lines), "</g>"]
    button = "" if alone else 'tabindex="0" role="button" '
    parts += [
        _box(each, drawing.words[each.id], placed.items[each.id], at, button) for at, each in enumerate(view.operators)
    ]
    return "\n".join([*parts, "</svg>"])


def _marker(name: str, style: str) -> str:
    return (
        f'<marker id="{name}" class="{style}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker>'
    )


def _loop(rect: Rect, title: str) -> str:
    return (
        f'<g class="loop">{_rect(rect, 10)}<text x="{rect.x + 14:.1f}" y="{rect.y + 18:.1f}">{markup(title)}</text></g>'
    )


def _rect(rect: Rect, radius: float, style: str = "") -> str:
    marked = f' class="{style}"' if style else ""
    return f'<rect{marked} x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.width:.1f}" height="{rect.height:.1f}" rx="{radius:g}"/>'


def _box(operator: OperatorView, words: BoxText, rect: Rect, number: int, button: str) -> str:
    marks = {"input": operator.kind == "input", "output": operator.kind == "output", "keeps": operator.keeps}
    styles = " ".join(["box", *(name for name, there in {**marks, "shared": operator.shared}.items() if there)])
    title = " ".join(filter(None, [words.kind, words.name, *words.says, *words.counted]))
    twin = _rect(Rect(rect.x + 3, rect.y + 3, rect.width - 6, rect.height - 6), 4, "twin") if operator.shared else ""
    x, y = rect.x + PAD_X, rect.y + PAD_Y + FONT
    head = f'<tspan class="kind">{markup(words.kind)}</tspan>'
    head += f'  <tspan class="name">{markup(words.name)}</tspan>' if words.name else ""
    lines = [f'<text x="{x:.1f}" y="{y:.1f}">{head}</text>']
    for at, (style, line) in enumerate(
        [*(("says", s) for s in words.says), *(("count", c) for c in words.counted)], start=1
    ):
        lines.append(f'<text class="{style}" x="{x:.1f}" y="{y + at * ROW:.1f}">{markup(line)}</text>')
    # A number instead of the id: an output's id has a name from the file.
    return f'<g class="{styles}" {button}data-n="{number}"><title>{markup(title)}</title>{_rect(rect, 6)}{twin}{"".join(lines)}</g>'


def _line(line: Line, numbers: Mapping[str, int], of: str) -> str:
    ends = f'data-from="{numbers[line.source]}"' + (f' data-to="{numbers[line.target]}"' if line.target else "")
    if line.back:
        return f'<path class="back" {ends} d="{_corners(line.points, 6)}" marker-end="url(#{of}-arrow-back)"/>'
    start, bend, end, *rest = line.points
    middle = (bend.y + end.y) / 2
    path = f"M{start.x:.1f} {start.y:.1f}V{bend.y:.1f}"
    if abs(bend.x - end.x) < 0.5:
        path += f"L{end.x:.1f} {end.y:.1f}"
    else:
        path += f"C{bend.x:.1f} {middle:.1f} {end.x:.1f} {middle:.1f} {end.x:.1f} {end.y:.1f}"
    path += "".join(f"V{point.y:.1f}" for point in rest)
    arrow = f' marker-end="url(#{of}-arrow)"' if line.target else ""
    return f'<path {ends} d="{path}"{arrow}/>'


def _corners(points: tuple[Point, ...], radius: float) -> str:
    """Return a path along points, of vertical and horizontal lines with round corners."""
    path = f"M{points[0].x:.1f} {points[0].y:.1f}"
    for before, at, after in zip(points, points[1:], points[2:], strict=False):
        reach = [min(radius, (abs(one.x - at.x) + abs(one.y - at.y)) / 2) for one in (before, after)]
        into, out = (_towards(at, one, far) for one, far in zip((before, after), reach, strict=True))
        path += f"L{into.x:.1f} {into.y:.1f}Q{at.x:.1f} {at.y:.1f} {out.x:.1f} {out.y:.1f}"
    return path + f"L{points[-1].x:.1f} {points[-1].y:.1f}"


def _towards(at: Point, other: Point, far: float) -> Point:
    length = abs(other.x - at.x) + abs(other.y - at.y)
    share = far / length if length else 0.0
    return Point(at.x + (other.x - at.x) * share, at.y + (other.y - at.y) * share)


STYLES = {
    "input": "fill:#effaf3,stroke:#6fbf8b,color:#1d2430",
    "output": "fill:#fff6e8,stroke:#e0a44c,color:#1d2430",
    "keeps": "fill:#eef4ff,stroke:#7aa2e3,color:#1d2430",
    "shared": "fill:#eef4ff,stroke:#1d4ed8,stroke-width:3px,color:#1d2430",
}


def mermaid(view: View) -> list[str]:
    """Return a view as the lines of a flowchart."""
    names = {each.id: f"n{at}" for at, each in enumerate(view.operators)}
    lines = ["flowchart TD", *_scope(view, names, None, "  ")]
    for each in view.operators:
        lines += [f"  {names[source]} --> {names[each.id]}" for source in dict.fromkeys(each.inputs)]
    for loop in view.loops:
        lines += [f"  {names[source]} -. next round .-> {names[target]}" for source, target in loop.feedback]
    for style, definition in STYLES.items():
        if those := [names[each.id] for each in view.operators if _style(each) == style]:
            lines += [f"  classDef {style} {definition}", f"  class {','.join(those)} {style}"]
    return lines


def _scope(view: View, names: dict[str, str], scope: str | None, indent: str) -> Iterator[str]:
    """Yield the lines of a loop's operators, and of the loops in it as subgraphs."""
    counts = view.counts()
    for each in view.operators:
        if each.loop == scope:
            words = words_of(view, each)
            head = f"<b>{as_label(words.kind)}</b>" + (f" {as_label(words.name)}" if words.name else "")
            yield f'{indent}{names[each.id]}["{"<br/>".join([head, *map(as_label, [*words.says, *words.counted])])}"]'
    for at, loop in enumerate(view.loops):
        if loop.parent == scope:
            yield f'{indent}subgraph l{at}["{as_label(loop_title(loop, counts.get(loop.id)))}"]'
            yield from _scope(view, names, loop.id, indent + "  ")
            yield f"{indent}end"


def _style(operator: OperatorView) -> str:
    if operator.kind in ("input", "output"):
        return operator.kind
    return "shared" if operator.shared else "keeps" if operator.keeps else ""


def as_label(text: str) -> str:
    """Return a text with characters that mean something in Mermaid or HTML as character codes."""
    return "".join(
        letter if letter.isalnum() or letter in " ,.:+-_=/*·→()" else f"#{ord(letter)};" for letter in visible(text)
    )

"""A view as one HTML page without other files: the drawing, each operator's details on a click, and the last runs as small plots.

No text of the pipeline is part of the script, and all of it is escaped; the page's security policy forbids it to load anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.job.summary import size_of
from ddcli.plan.operators.table import OPERATORS
from ddcli.render.drawing import STYLE, draw, svg
from ddcli.render.lineage import tables
from ddcli.render.units import amount, clipped, duration, loop_title
from ddcli.render.view import folded, run_json
from ddcli.screen import markup, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ddcli.engine.counts import RowCounts
    from ddcli.render.drawing import Drawing
    from ddcli.render.lineage import LineageReport
    from ddcli.render.view import OperatorView, View

MEANINGS = {
    "arrange": "Keeps all rows in the state, sorted by these columns, so that the operators below find the rows of a key without reading the others.",
    "choose": "Keeps the changed rows that are cheaper to join with this collection first.",
    "concat": "Puts the rows of several collections together; equal rows stay apart (`union all`).",
    "consolidate": "Adds up the changes of equal rows: what one change adds and another removes is gone.",
    "contents": "Reads rows that the state already holds, in place of computing them again.",
    "count matches": "Counts the rows that each changed row would be joined with, to choose the cheaper order of joins.",
    "delay": "Keeps changes that lie in the future until their time comes.",
    "delta join": "Puts together the joins of the changes of each collection, without keeping the rows of joins in between.",
    "filter on read": "Keeps the rows for which the condition is true, as they are read from an arrangement: it needs no copy of them.",
    "half join": "Joins the changed rows of one collection with the rows of another.",
    "input": "Reads what is new in the input since the last run.",
    "join": "Pairs each row with the rows of the other side that have equal values in these columns. A change on either side looks up its partners in the arrangement of the other.",
    "leave": "Takes the rows of the loop's last round out of the loop.",
    "loop": "Repeats its operators until nothing changes, or for a stated number of rounds.",
    "memo": "Keeps what a function has returned for each row, and calls it only for rows that are new to it. A row that goes takes back what was returned.",
    "once": "Keeps a row from the first time at which it exists, for good.",
    "order": "Adds columns that sort as an `order by` does: text, descending columns and nulls become integers.",
    "output": "Writes the changes of the collection to the output.",
    "project": "Keeps some of the columns, or gives them other names; it computes nothing.",
    "reduce": "Computes one row for each group, such as counts, sums or the smallest value. After a change it computes only the groups that changed, and replaces their rows.",
    "snapshots": "Compares each new snapshot of the input with the one before; the rows that came or went are the changes.",
    "subtract": "Removes the rows of one collection from another, as often as they are there.",
    "upserts": "Keeps the newest row of each key: a row with a known key replaces the row before it.",
    "variable": "Holds the loop's rows as the round before left them.",
    "watch": "Keeps the input's rows to find an error: a row that is removed more often than it was added.",
}
"""The work of each kind of operator that is not in the table of operators, or that has more to explain; a chain of fused steps has all their kinds, joined by " + "."""

BOUNDS = {
    "change": "Its work grows with the change alone.",
    "output": "Its work grows with the change and the rows that it emits.",
    "groups": "For a changed row it may read all rows of the row's group.",
    "partition": "For a changed row it may read all rows of the row's partition.",
    "everything": "For any change it may read all of its rows.",
}
"""The bound of an operator's work, by its class."""


def meaning(kind: str, work: str | None) -> list[str]:
    """Return sentences on the work of an operator of a kind, and on the bound of it; a kind without a sentence of its own has none.

    >>> meaning("filter + project", "change")[1:]
    ['Keeps some of the columns, or gives them other names; it computes nothing.', 'Its work grows with the change alone.']
    """
    found = []
    for word in kind.split(" + "):
        if word in MEANINGS:
            found.append(MEANINGS[word])
        elif word in OPERATORS:
            found.append(OPERATORS[word].about)
    return found + ([BOUNDS[work]] if work in BOUNDS else [])


PLOT_WIDTH, PLOT_HEIGHT = 220, 44
SHOWN_RUNS = 12
"""The most runs in an operator's details."""

LOOK = """
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.45 system-ui, sans-serif; }
.dd { background: var(--paper); color: var(--ink); }
header, main, footer { padding: 0 1.5rem; }
h1 { font-size: 1.35rem; margin: 1.1rem 0 .2rem; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 1.4rem 0 .5rem; }
p { margin: .2rem 0; color: var(--faint); }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0; }
figure { margin: 0; padding: .6rem .8rem; border: 1px solid var(--edge); border-radius: 8px; background: var(--box); }
figcaption { font-size: .85rem; color: var(--faint); } figcaption b { color: var(--ink); }
.dd .plot { background: none; } .plot polyline { fill: none; stroke: var(--hot); stroke-width: 1.6; } .plot circle { fill: var(--hot); }
.pane { overflow: auto; border: 1px solid var(--edge); border-radius: 8px; height: 80vh; }
.pane svg { display: block; margin: 0 auto; max-width: none; }
.bar { display: flex; gap: .4rem; margin-bottom: .5rem; } .bar span { flex: 1; }
.bar button { font: inherit; font-size: .88rem; padding: .15rem .7rem; border: 1px solid var(--edge); border-radius: 6px; background: var(--box); color: var(--ink); cursor: pointer; }
.bar button[aria-pressed=true] { border-color: var(--hot); color: var(--hot); }
.box.apart, .lines path.apart { opacity: .25; }
.split { display: grid; grid-template-columns: minmax(0, 1fr) 22rem; gap: 1rem; align-items: start; }
aside { position: sticky; top: 1rem; border: 1px solid var(--edge); border-radius: 8px; padding: .8rem 1rem; background: var(--box);
  max-height: 86vh; overflow: auto; overflow-wrap: anywhere; }
@media (max-width: 900px) { .split { grid-template-columns: minmax(0, 1fr); } aside { position: static; } }
.dd .meaning { color: var(--ink); margin: .4rem 0; }
aside h3 { margin: .1rem 0 .4rem; font-size: 1rem; } aside h3 b { color: var(--name); }
dl { display: grid; grid-template-columns: auto 1fr; gap: .15rem .8rem; margin: .5rem 0; } dt { color: var(--faint); } dd { margin: 0; }
table { border-collapse: collapse; font-size: .86rem; } .wide { overflow-x: auto; }
th, td { padding: .22rem .7rem .22rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--edge); }
th { color: var(--faint); font-weight: 600; } th.word, td.word { text-align: left; }
td button, aside button { all: unset; cursor: pointer; color: var(--name); } td button:focus-visible, aside button:focus-visible { outline: 2px solid var(--hot); }
.box { cursor: pointer; } .box:focus { outline: none; } .box:focus-visible > rect:first-of-type, .box.chosen > rect:first-of-type { stroke: var(--hot); stroke-width: 2.5; }
.lines path.chosen { stroke: var(--hot); stroke-width: 2.4; }
details table { margin: .6rem 0; } details th, details td { text-align: left; white-space: normal; } details a { color: var(--name); } details tr:target { background: color-mix(in srgb, var(--hot) 15%, transparent); }
footer { padding: 1rem 1.5rem 2rem; font-size: .85rem; }
""".strip()

SCRIPT = """
const panes = [...document.querySelectorAll('.pane')], details = [...document.querySelectorAll('aside section')];
const choices = [...document.querySelectorAll('.bar button[data-pane]')];
const boxesOf = pane => [...pane.querySelectorAll('.box')], linesOf = pane => [...pane.querySelectorAll('.lines path')];
let open = panes.find(pane => !pane.hidden);
function show(name) {
  for (const pane of panes) pane.hidden = pane.dataset.pane !== name;
  for (const button of choices) button.setAttribute('aria-pressed', button.dataset.pane === name);
  open = panes.find(pane => !pane.hidden);
}
function choose(pane, n) {
  for (const box of boxesOf(pane)) { box.classList.toggle('chosen', box.dataset.n === n); box.setAttribute('aria-pressed', box.dataset.n === n); }
  for (const line of linesOf(pane)) line.classList.toggle('chosen', line.dataset.from === n || line.dataset.to === n);
  for (const part of details) part.hidden = part.dataset.n !== n || part.dataset.of !== pane.dataset.pane;
}
const sizeOf = svg => svg.viewBox.baseVal;
function zoom(pane, scale) {
  const svg = pane.querySelector('svg');
  pane.dataset.scale = Math.min(4, Math.max(.05, scale));
  svg.setAttribute('width', sizeOf(svg).width * pane.dataset.scale);
  svg.setAttribute('height', sizeOf(svg).height * pane.dataset.scale);
}
function fit(pane) {
  const {width, height} = sizeOf(pane.querySelector('svg'));
  zoom(pane, Math.min(1, (pane.clientWidth - 4) / width, (pane.clientHeight - 4) / height));
}
function goTo(pane, n) {
  const box = boxesOf(pane).find(each => each.dataset.n === n);
  box.scrollIntoView({block: 'center', inline: 'center'});
  box.focus();
}
function light(pane, some) {
  for (const box of boxesOf(pane)) box.classList.toggle('apart', some !== null && !some.includes(box.dataset.n));
  for (const line of linesOf(pane)) line.classList.toggle('apart', some !== null && !some.includes(line.dataset.from));
}
function unfold(numbers) {
  show('operators');
  zoom(open, 1);
  light(open, numbers);
  choose(open, numbers[numbers.length - 1]);
  goTo(open, numbers[numbers.length - 1]);
}
for (const pane of panes) for (const box of boxesOf(pane)) {
  box.addEventListener('click', () => choose(pane, box.dataset.n));
  box.addEventListener('keydown', event => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(pane, box.dataset.n); } });
  box.addEventListener('dblclick', () => {
    const button = details.find(part => part.dataset.of === pane.dataset.pane && part.dataset.n === box.dataset.n)?.querySelector('button[data-all]');
    if (button) button.click();
  });
}
for (const button of choices) button.addEventListener('click', () => { show(button.dataset.pane); light(open, null); fit(open); });
for (const button of document.querySelectorAll('.bar button[data-zoom]')) button.addEventListener('click', () => {
  if (button.dataset.zoom === 'fit') fit(open); else zoom(open, (open.dataset.scale ?? 1) * button.dataset.zoom);
});
for (const button of document.querySelectorAll('button[data-all]')) button.addEventListener('click', () => unfold(button.dataset.all.split(' ')));
for (const button of document.querySelectorAll('td button, aside button[data-n]')) button.addEventListener('click', () => {
  show('operators');
  light(open, null);
  choose(open, button.dataset.n);
  goTo(open, button.dataset.n);
});
for (const pane of panes) pane.addEventListener('wheel', event => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoom(pane, (pane.dataset.scale ?? 1) * (event.deltaY < 0 ? 1.15 : 1 / 1.15));
}, {passive: false});
fit(open);
""".strip()


BAR = (
    '<div class="bar"><button type="button" data-pane="collections" aria-pressed="true">Collections</button>'
    '<button type="button" data-pane="operators" aria-pressed="false">Operators</button><span></span>'
    '<button type="button" data-zoom="0.8" aria-label="smaller">&minus;</button><button type="button" data-zoom="1.25" aria-label="larger">+</button>'
    '<button type="button" data-zoom="fit">Fit</button></div>'
)


def page(drawing: Drawing, lineage: LineageReport | None = None) -> str:
    """Return a drawing as an HTML page, with the lineage of the outputs' columns, if it is given."""
    view, name = drawing.view, markup(drawing.view.name)
    collections, members = folded(view)
    above = draw(collections)
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<link rel="icon" href="data:,">',
            f"<title>{name}: operators</title>",
            f"<style>{STYLE}\n{LOOK}</style></head>",
            f'<body class="dd"><header><h1>{name}</h1>{_about(view)}</header>',
            "<main>",
            _plots(view),
            '<div class="split">',
            f"<div>{BAR}",
            f'<div class="pane overview" data-pane="collections" tabindex="0" role="region" aria-label="The graph of collections">{svg(above, alone=False, of="Collections")}</div>',
            f'<div class="pane graph" data-pane="operators" hidden tabindex="0" role="region" aria-label="The operator graph">{svg(drawing, alone=False)}</div>',
            "</div>",
            _details(drawing, collections, members),
            "</div>",
            "<h2>Operators</h2>",
            _table(view),
            _loops(view),
            *_lineage(lineage),
            "</main>",
            "<footer><p>Seconds are summed over all threads. A shared arrangement has a double border.</p></footer>",
            f"<script>{SCRIPT}</script>",
            "</body></html>",
        ]
    )


def _lineage(report: LineageReport | None) -> Iterator[str]:
    if report is not None:
        yield '<h2>Columns</h2><details class="wide"><summary>The columns of inputs that each column comes from</summary>'
        yield from tables(report)
        yield "</details>"


def _about(view: View) -> str:
    operators = sum(each.kind != "output" for each in view.operators)
    shared = sum(each.shared for each in view.operators)
    words = [f"{operators} {plural(operators, 'operator')}"]
    if view.loops:
        words.append(f"{len(view.loops)} {plural(len(view.loops), 'loop')}")
    if shared:
        words.append(f"{shared} shared {plural(shared, 'arrangement')}")
    if view.run:
        words.append(f"last run {markup(view.run.began)}, {duration(view.run.seconds)}")
    else:
        words.append("not run yet")
    return f"<p>{', '.join(words)}</p>"


# --- runs -------------------------------------------------------------------------------------------------------------


def _plots(view: View) -> str:
    """Return the last runs as small plots."""
    runs = [run_json(run) for run in view.runs]
    if not runs:
        return ""
    shown: list[tuple[str, str, Callable[[float], str]]] = [
        ("rows read", "rows_read", amount),
        ("rows written", "rows_written", amount),
        ("time", "seconds", duration),
        ("state", "state_bytes", size_of),
    ]
    title = f"the last {len(runs)} runs" if len(runs) > 1 else "the only run"
    figures = [_figure(name, [float(run[key]) for run in runs], text) for name, key, text in shown]
    return f'<section aria-label="{title}" class="plots">{"".join(figures)}</section>'


def _figure(name: str, values: Sequence[float], text: Callable[[float], str]) -> str:
    words = f"{name}: {text(values[-1])}" + (
        f", at least {text(min(values))}, at most {text(max(values))}" if len(values) > 1 else ""
    )
    span = f" ({text(min(values))} to {text(max(values))})" if len(values) > 1 else ""
    return f"<figure>{sparkline(values, words)}<figcaption><b>{text(values[-1])}</b> {name}{span}</figcaption></figure>"


def sparkline(values: Sequence[float], words: str, width: int = PLOT_WIDTH, height: int = PLOT_HEIGHT) -> str:
    """Return values over time as a small plot from zero up, the last one marked; `words` is its text for screen readers."""
    top, edge = max(values) or 1.0, 4
    step = (width - 2 * edge) / max(len(values) - 1, 1)
    points = [(edge + at * step, height - edge - (height - 2 * edge) * value / top) for at, value in enumerate(values)]
    x, y = points[-1]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<svg class="plot" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img"><title>{markup(words)}</title>'
        f'<polyline points="{path}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/></svg>'
    )


# --- operators --------------------------------------------------------------------------------------------------------


def _details(drawing: Drawing, collections: View, members: Sequence[Sequence[int]]) -> str:
    """Return the details of each collection and operator, which are hidden until it is chosen; `members` are the numbers of each collection's operators."""
    view = drawing.view
    numbers = {each.id: at for at, each in enumerate(view.operators)}
    parts = [
        '<aside aria-live="polite"><section data-n=""><h3>Details</h3><p>Choose a collection; a double click unfolds its operators.</p></section>'
    ]
    parts += [_unfolding(view, collections, numbers, at) for at, numbers in enumerate(members)]
    for at, each in enumerate(view.operators):
        names = ", ".join(each.names)
        plain = " ".join(meaning(each.kind, each.work))
        description = "".join(f"<p>{markup(line)}</p>" for line in each.says)
        description += f'<p class="meaning">{markup(plain)}</p>'
        held = None
        if each.held:
            held = f"{each.held.rows:,} rows, {size_of(each.held.bytes)} in {each.held.files} {plural(each.held.files, 'file')}"
        expected = None if each.estimated is None else f"{each.estimated:,} rows out of the last run"
        facts = _facts(each, lambda name: _title_of(view, numbers, name), state=held, expected=expected)
        head = markup(each.kind) + (f" <b>{markup(names)}</b>" if names else "")
        parts.append(
            f'<section data-of="operators" data-n="{at}" hidden><h3>{head}</h3>{description}{facts}{_history(view, each)}</section>'
        )
    return "".join([*parts, "</aside>"])


def _unfolding(view: View, collections: View, numbers: Sequence[int], at: int) -> str:
    """Return the details of a collection, with a button that unfolds it, and one for each of its operators."""
    box = collections.operators[at]
    names = {each.id: " ".join(each.names) for each in collections.operators}
    held = f"{box.held.rows:,} rows, {size_of(box.held.bytes)}" if box.held else None
    facts = _facts(box, names.__getitem__, state=held)
    places = {each.id: number for number, each in enumerate(view.operators)}
    listed = "".join(
        f'<li><button type="button" data-n="{number}">{markup(_title_of(view, places, view.operators[number].id))}</button></li>'
        for number in numbers
    )
    unfold = f'<button type="button" data-all="{" ".join(map(str, numbers))}">Unfold its operators</button>'
    head = f"{markup(box.kind)} <b>{markup(', '.join(box.names))}</b>"
    return f'<section data-of="collections" data-n="{at}" hidden><h3>{head}</h3><p>{unfold}</p>{facts}<ol>{listed}</ol></section>'


def _facts(box: OperatorView, title: Callable[[str], str], **more: str | None) -> str:
    """Return the list of what a box reads, what reads it, and its columns, and more facts; an empty one is left out."""
    columns = ", ".join(f"{column} {kind}" for column, kind in box.columns.items())
    facts = {"reads": ", ".join(map(title, box.inputs)), "read by": ", ".join(map(title, box.readers))}
    listed = (facts | {"columns": columns} | more).items()
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{markup(value)}</dd>' for name, value in listed if value)}</dl>"


def _title_of(view: View, numbers: dict[str, int], name: str) -> str:
    operator = view.operators[numbers[name]]
    return " ".join([operator.kind, *(operator.names[:1] or operator.says[:1])])


def _history(view: View, operator: OperatorView) -> str:
    """Return the counts of an operator in the last runs."""
    counted = [(run, view.counts(run).get(operator.id)) for run in view.runs]
    known = [(run, count) for run, count in counted if count]
    if not known:
        return ""
    plot = sparkline([count.rows_out if count else 0 for _, count in counted], "rows out, run by run", 180, 32)
    head = "".join(f"<th>{word}</th>" for word in ("run", "in", "out", "+", "-", "time"))
    rows = [f"<tr><td>{run.number}</td>{_numbers(count)}</tr>" for run, count in reversed(known[-SHOWN_RUNS:])]
    return f'{plot}<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _numbers(count: RowCounts | None) -> str:
    if count is None:
        return "<td></td>" * 5
    values: Iterable[str] = (
        f"{count.rows_in:,}" if count.rows_in else "",
        f"{count.rows_out:,}",
        f"{count.inserted:,}",
        f"{count.retracted:,}",
        duration(count.seconds) if count.seconds else "",
    )
    return "".join(f"<td>{value}</td>" for value in values)


def _table(view: View) -> str:
    """Return the table of all operators with their numbers."""
    counts = view.counts()
    words = ("operator", "collection", "how")
    numbers = ("rows in", "rows out", "+", "-", "time", "state rows", "state")
    head = "".join([*(f'<th class="word">{word}</th>' for word in words), *(f"<th>{word}</th>" for word in numbers)])
    rows = []
    for at, each in enumerate(view.operators):
        held = f"<td>{each.held.rows:,}</td><td>{size_of(each.held.bytes)}</td>" if each.held else "<td></td><td></td>"
        kind = each.kind + (f", shared by {len(each.readers)}" if each.shared else "")
        rows.append(
            f'<tr><td class="word"><button type="button" data-n="{at}">{markup(kind)}</button></td>'
            f'<td class="word">{markup(", ".join(each.names))}</td><td class="word">{markup(clipped("; ".join(each.says), 90))}</td>'
            f"{_numbers(counts.get(each.id))}{held}</tr>"
        )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _loops(view: View) -> str:
    """Return the table of loops: the turns of their bodies, and the rows of each round."""
    counts = view.counts()
    head = "".join(f'<th class="word">{word}</th>' for word in ("loop", "rows of each round"))
    rows = []
    for each in view.loops:
        count = counts.get(each.id)
        plot = ""
        if count and count.rounds:
            words = f"rows of each round: {', '.join(map(amount, count.rounds))}"
            plot = sparkline([float(rows) for rows in count.rounds], words, 180, 32)
        rows.append(f'<tr><td class="word">{markup(loop_title(each, count))}</td><td class="word">{plot}</td></tr>')
    if not rows:
        return ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<h2>Loops</h2><div class="wide">{table}</div>'

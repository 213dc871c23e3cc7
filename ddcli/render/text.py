"""A view on a terminal, and the profile of a run: a row for each operator.

A view has its rows from inputs to outputs, with lanes beside them for collections that are still read: a lane begins at an operator, passes the readers of its collection, and ends at
the last of them. Loops are boxes around rows. A profile has the operators by their time, as a table or as JSON.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from ddcli.dataclass import dataclass
from ddcli.engine.counts import Counts
from ddcli.job.summary import RunRecord
from ddcli.render.units import amount, cells, clipped, duration, flow, loop_title, spent, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.job.summary import RunSummary
    from ddcli.render.view import OperatorView, View


Step = tuple[Literal["row", "open", "close"], str]
"""An operator by its id, or the start or end of a loop."""


class Visit(NamedTuple):
    """The next operator or loop of a scope."""

    name: str | None
    scope: str | None


def ordered(view: View) -> list[Step]:
    """Return operators and loops in their order."""
    return list(_Ordering(view).steps())


class _Ordering:
    """A walk from the outputs up: each operator comes before its readers, right before the first of them."""

    def __init__(self, view: View) -> None:
        self.reads = {each.id: each.inputs for each in view.operators}
        self.ends = [each.id for each in view.operators if not each.readers]
        # The loop around each operator and loop, and the members of each loop.
        self.around = {each.id: each.loop for each in view.operators} | {each.id: each.parent for each in view.loops}
        self.inside: dict[str | None, list[str]] = defaultdict(list)
        for name, scope in self.around.items():
            self.inside[scope].append(name)
        self.done: set[str] = set()

    def steps(self) -> Iterator[Step]:
        """Yield the steps of the outermost operators and loops, and of all members of these."""
        for name in [*self.ends, *self.inside[None]]:
            visits = [self._visit(self._holder(name, None), None)]
            while visits:
                step = next(visits[-1], None)
                if step is None:
                    visits.pop()
                elif isinstance(step, Visit):
                    visits.append(self._visit(step.name, step.scope))
                else:
                    yield step

    def _visit(self, name: str | None, scope: str | None) -> Iterator[Step | Visit]:
        """Yield visits of the predecessors of an operator or loop of a scope, then itself; nothing if it is outside, or done.

        Visits are yielded, not recursive calls: a chain of operators may be longer than the stack.
        """
        if name is None or name in self.done:
            return
        self.done.add(name)
        for member in self._members(name):
            for source in self.reads[member]:
                yield Visit(self._holder(source, scope), scope)
        if name in self.reads:
            yield "row", name
            return
        yield "open", name
        for each in self.inside[name]:
            yield Visit(each, name)
        yield "close", name

    def _members(self, name: str) -> Iterator[str]:
        """Yield an operator itself, or all operators in a loop."""
        if name in self.reads:
            yield name
        for each in self.inside[name]:
            yield from self._members(each)

    def _holder(self, name: str, scope: str | None) -> str | None:
        """Return the operator if it is in the scope itself, else the loop of the scope that contains it; None if it is outside the scope."""
        at: str | None = name
        while at is not None and self.around[at] != scope:
            at = self.around[at]
        return at


LEAST = 30
"""The least columns for words beside lanes."""
# (up, down, left, right): the piece of line with these ends
PIECES = {
    (False, True, False, True): "╭",
    (False, True, True, False): "╮",
    (True, False, False, True): "╰",
    (True, False, True, False): "╯",
    (True, True, False, True): "├",
    (True, True, True, False): "┤",
    (False, True, True, True): "┬",
    (True, False, True, True): "┴",
    (True, True, True, True): "┼",
}
SIGNS = {"input": "○", "output": "◎", "variable": "↻"}
PLAIN = str.maketrans(
    dict.fromkeys("╭╮╰╯├┤┬┴┼", "+") | dict(zip("│─○◎●■↻┆·…µ", "|-o@*#~:.~u", strict=True)) | {"→": "->"}
)
STYLES = {"kind": {"bold": True}, "name": {"fg": "cyan"}, "counted": {"dim": True}, "loop": {"fg": "yellow"}}


def text(view: View, width: int = 100, *, ascii_only: bool = False) -> list[str]:
    """Return a view as lines of at most `width` columns (more, if many lanes are open at once), styled for a terminal."""
    rows = list(_rows(view))
    room = 2 * max((len(lanes) // 2 for lanes, _ in rows), default=0) + 2
    lines = [(lanes.ljust(room) + _styled(words, max(LEAST, width - room))).rstrip() for lanes, words in rows]
    return [line.translate(PLAIN) if ascii_only else line for line in lines]


Words = list[tuple[str, str]]
"""The words of a line, each with its style."""


def _styled(words: Words, most: int) -> str:
    """Return words as one line, as far as they fit."""
    parts, left = [], most
    for at, (word, style) in enumerate(words):
        shown = clipped(word, left)
        parts.append(click.style(shown, **STYLES.get(style, {})) if style in STYLES else shown)  # type: ignore[arg-type]
        left -= cells(shown)
        if left < 2 and at + 1 < len(words):
            break
    return "".join(parts).rstrip()


def _rows(view: View) -> Iterator[tuple[str, Words]]:
    """Yield the rows of a view: lanes, and the words beside them."""
    operators = {each.id: each for each in view.operators}
    loops = {each.id: each for each in view.loops}
    becomes = {source: target for loop in view.loops for source, target in loop.feedback}
    lanes, counts, frame = _Lanes({each.id: len(each.readers) for each in view.operators}), view.counts(), ""
    for what, name in ordered(view):
        if what == "open":
            yield lanes.rest(), [(frame + "╭ ", ""), (loop_title(loops[name], counts.get(name)), "loop")]
            frame += "┆ "
        elif what == "close":
            frame = frame[:-2]
            yield lanes.rest(), [(frame + "╰", "")]
        else:
            operator, count = operators[name], counts.get(name)
            beside = lanes.enter(operator)
            words = [_head(operator)]
            flowed = flow(count, operator) if count and count.rows_out + count.rows_in else ""
            if counted := " · ".join(filter(None, [flowed, spent(count, operator.held)])):
                words.append([(counted, "counted")])
            if name in becomes:
                words.append([(f"↻ is {', '.join(operators[becomes[name]].names)} in the next round", "loop")])
            for at, line in enumerate(words):
                for extra in beside[:-1] if not at else ():
                    yield extra, [(frame, "")]
                yield lanes.rest() if at else beside[-1], [(frame, ""), *line]


def _head(operator: OperatorView) -> Words:
    words = [(operator.kind, "kind")]
    if operator.names:
        words.append((f"  {', '.join(operator.names)}", "name"))
    if operator.shared:
        words.append((f"  shared by {len(operator.readers)}", ""))
    if operator.says:
        words.append((f"  {'; '.join(operator.says)}", ""))
    return words


@dataclass
class _Lanes:
    """The collections that are still to be read, side by side; `waiting` has the number of readers to come."""

    waiting: dict[str, int]
    lanes: list[str | None] = field(default_factory=list)

    def rest(self) -> str:
        """Return the line on which all lanes continue."""
        return " ".join("│" if lane else " " for lane in self.lanes)

    def enter(self, operator: OperatorView) -> list[str]:
        """Join the lanes that an operator reads, open a lane for it, and return the lines for both, the last with its sign."""
        inputs = list(dict.fromkeys(operator.inputs))
        before = list(self.lanes)
        read = [self.lanes.index(source) for source in inputs]
        for source, at in zip(inputs, read, strict=True):
            self.waiting[source] -= 1
            if not self.waiting[source]:
                self.lanes[at] = None
        free = [at for at in read if self.lanes[at] is None] or [
            at for at, lane in enumerate(self.lanes) if lane is None
        ]
        own = min(free, default=len(self.lanes))
        if own == len(self.lanes):
            self.lanes.append(None)
        self.lanes[own] = operator.id
        lines = [] if not read or read == [own] else [self._across(before, read, own)]
        lines.append(self.rest())
        sign = "■" if operator.keeps else SIGNS.get(operator.kind, "●")
        lines[-1] = lines[-1][: 2 * own] + sign + lines[-1][2 * own + 1 :]
        if not self.waiting[operator.id]:
            self.lanes[own] = None
        while self.lanes and self.lanes[-1] is None:
            self.lanes.pop()
        return lines

    def _across(self, before: Sequence[str | None], read: Sequence[int], own: int) -> str:
        """Return the line that joins lanes to the operator at `own`; it passes behind lanes that the operator doesn't read."""
        first, last = min(*read, own), max(*read, own)
        parts = []
        for at, lane in enumerate(self.lanes):
            above = at < len(before) and before[at] is not None
            if at in read or at == own:
                # If the operator takes the place of a lane that it doesn't read, that lane has ended before.
                up = above and (at in read or before[at] == lane)
                parts.append(PIECES[up, lane is not None, at > first, at < last])
            else:
                parts.append("│" if lane else "─" if first < at < last else " ")
            parts.append("─" if first <= at < last else " ")
        return "".join(parts).rstrip()


MOST, NARROWEST = 60, 24
"""The columns of an operator's words without a terminal, and the least on a narrow one."""
MARGIN = "  "
LEFT_OUT = (("rows/s",), ("+", "-"), ("in", "out"))
"""The columns that a narrow table leaves out, in this order."""
NUMBERS = ("rows_in", "rows_out", "inserted", "retracted")
HEAD = ("time", "share", "in", "out", "+", "-", "rows/s", "operator")


@dataclass(frozen=True)
class Profile:
    """A run's operators, the slowest first; its loops in words; its seconds by the clock.

    An operator, as JSON has it, has the rows through it, its seconds, summed over threads, and their share of the seconds of all operators.
    An input's seconds are spent on reading it, an output's on writing it; an arrangement's include writing its state.
    """

    operators: list[dict[str, Any]]
    loops: list[str]
    seconds: float

    def lines(self, columns: int | None = None) -> list[str]:
        """Return a table of at most this many columns; nothing for a run that stepped no operator.

        A narrow table leaves out numbers before it cuts words.
        """
        if not self.operators:
            return []
        rows = [HEAD, *map(_row, self.operators)]
        kept = list(range(len(HEAD) - 1))
        widths = [max(cells(row[at]) for row in rows) for at in kept]
        most = MOST
        if columns is not None:
            for names in ((), *LEFT_OUT):
                kept = [at for at in kept if HEAD[at] not in names]
                most = columns - len(MARGIN) - sum(widths[at] + 2 for at in kept)
                if most >= NARROWEST:
                    break
        table = [
            "  ".join([*(_right(row[at], widths[at]) for at in kept), clipped(row[-1], max(NARROWEST, most))])
            for row in rows
        ]
        total = sum(each["seconds"] for each in self.operators)
        last = f"{duration(total)} in operators, all threads together; {duration(self.seconds)} by the clock"
        others = [*self.loops, last]
        if columns is not None:
            others = [
                part for line in others for part in wrapped([line], max(NARROWEST, columns - len(MARGIN)), len(line))
            ]
        return [MARGIN + line for line in [*table, *others]]


def profile(view: View, summary: RunSummary) -> Profile:
    """Return the profile of a pipeline's run."""
    run = RunRecord(0, "", summary.to_json(), summary.counts or Counts())
    counts = view.counts(run)
    counted = [(each, counts[each.id]) for each in view.operators if each.id in counts]
    total = sum(count.seconds for _, count in counted) or 1.0
    found = [
        {name: getattr(each, name) for name in ("id", "kind", "names", "says")}
        | {name: getattr(count, name) for name in (*NUMBERS, "seconds")}
        | {"share": count.seconds / total}
        for each, count in counted
    ]
    loops = [loop_title(each, counts[each.id]) for each in view.loops if each.id in counts]
    return Profile(sorted(found, key=lambda each: -each["seconds"]), loops, summary.seconds)


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    seconds, numbers = each["seconds"], [each[name] for name in NUMBERS]
    rate = max(numbers[:2]) / seconds if seconds else 0.0
    words = " ".join(filter(None, [each["kind"], ", ".join(each["names"]), "; ".join(each["says"])]))
    counts = (f"{number:,}" for number in numbers)
    return duration(seconds), f"{each['share']:.0%}", *counts, amount(rate) if rate else "", words


def _right(text: str, width: int) -> str:
    return " " * (width - cells(text)) + text

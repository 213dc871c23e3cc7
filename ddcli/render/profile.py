"""The profile of a run: its operators by their time, as a table or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.counts import Counts
from ddcli.render.units import amount, cells, clipped, duration, loop_title, wrapped
from ddcli.store.state.runs import RunRecord

if TYPE_CHECKING:
    from ddcli.job.summary import RunSummary
    from ddcli.render.view import View

MOST, LEAST = 60, 24
"""The columns of an operator's words without a terminal, and the least on a narrow one."""
MARGIN = "  "
LEFT_OUT = (("rows/s",), ("+", "-"), ("in", "out"))
"""The columns that a narrow table leaves out, in this order."""
HEAD = ("time", "share", "in", "out", "+", "-", "rows/s", "operator")


@frozen
class Spent:
    """An operator, the rows through it, its seconds, summed over threads, and their share of the seconds of all operators.

    An input's seconds are spent on reading it, an output's on writing it; an arrangement's include writing its state.
    """

    id: str
    kind: str
    names: tuple[str, ...]
    says: tuple[str, ...]
    rows_in: int
    rows_out: int
    inserted: int
    retracted: int
    seconds: float
    share: float


@dataclass(frozen=True)
class Profile:
    """A run's operators, the slowest first; its loops in words; its seconds by the clock."""

    operators: list[Spent]
    loops: list[str]
    seconds: float

    def to_json(self) -> list[dict[str, Any]]:
        """Return the operators as JSON."""
        return [asdict(each) for each in self.operators]

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
                if most >= LEAST:
                    break
        table = [
            "  ".join([*(_right(row[at], widths[at]) for at in kept), clipped(row[-1], max(LEAST, most))])
            for row in rows
        ]
        total = sum(each.seconds for each in self.operators)
        last = f"{duration(total)} in operators, all threads together; {duration(self.seconds)} by the clock"
        others = [*self.loops, last]
        if columns is not None:
            others = [part for line in others for part in wrapped([line], max(LEAST, columns - len(MARGIN)), len(line))]
        return [MARGIN + line for line in [*table, *others]]


def profile(view: View, summary: RunSummary) -> Profile:
    """Return the profile of a pipeline's run."""
    run = RunRecord(0, "", summary.to_json(), summary.counts or Counts())
    counts = view.counts(run)
    counted = [(each, counts[each.id]) for each in view.operators if each.id in counts]
    total = sum(count.seconds for _, count in counted) or 1.0
    found = [
        Spent(
            each.id,
            each.kind,
            each.names,
            each.says,
            count.rows_in,
            count.rows_out,
            count.inserted,
            count.retracted,
            count.seconds,
            count.seconds / total,
        )
        for each, count in counted
    ]
    loops = [loop_title(each, counts[each.id]) for each in view.loops if each.id in counts]
    return Profile(sorted(found, key=lambda each: -each.seconds), loops, summary.seconds)


def _row(each: Spent) -> tuple[str, ...]:
    rate = max(each.rows_in, each.rows_out) / each.seconds if each.seconds else 0.0
    words = " ".join(filter(None, [each.kind, ", ".join(each.names), "; ".join(each.says)]))
    numbers = (each.rows_in, each.rows_out, each.inserted, each.retracted)
    return (
        duration(each.seconds),
        f"{each.share:.0%}",
        *(f"{number:,}" for number in numbers),
        amount(rate) if rate else "",
        words,
    )


def _right(text: str, width: int) -> str:
    return " " * (width - cells(text)) + text

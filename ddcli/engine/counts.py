"""The counts of each operator: rows in and out, insertions among them, seconds; and the progress of a run as it counts.

All counts are sums, so the counts of shards, rounds and tasks add up. A count reads one lane of an operator's updates, and the clock twice a step: it is always on if a
run is recorded. Counts have the operator's name, the same in all processes that step a shard of it. Workers, in one thread or several, only report progress; a higher room displays it.
"""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any, Self

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable


OUTPUT = "output:"
"""The prefix of the names of the places that consolidate an output's records and write them."""
ROUNDS = 64
"""Rounds of a loop whose rows are counted one by one; the rows of later rounds are counted with the last of these."""


@dataclass(slots=True)
class RowCounts:
    """The rows that one operator read and emitted. `inserted` are the rows out with a positive diff; all others retract.

    `rows_read` are the rows of its state that it evaluated: for a reduction the rows of the groups that changed, for a window also the rows around a
    change, for snapshots the last table. Sums, and operators in a loop, count none. `seconds` add up all threads, while the operator stepped, took its rows in, or waited for the interpreter.
    `rows_scanned` are the rows of an arrangement in files whose keys were compared with the keys that readers looked up; they depend on the layout of the files, and
    no budget counts them.
    A loop has the number of `turns` of its body, and the rows that the body's operators emitted in each round (`rounds`).
    """

    rows_in: int = 0
    rows_out: int = 0
    inserted: int = 0
    seconds: float = 0.0
    turns: int = 0
    rounds: list[int] = field(default_factory=list)
    rows_read: int = 0
    rows_scanned: int = 0

    @property
    def retracted(self) -> int:
        """Rows out with a negative diff."""
        return self.rows_out - self.inserted

    @property
    def rows(self) -> int:
        """The rows in, the rows out and the rows read, together."""
        return self.rows_in + self.rows_out + self.rows_read

    def add(self, other: RowCounts) -> None:
        """Add the counts of another shard, round or task of the operator."""
        self.rows_in += other.rows_in
        self.rows_out += other.rows_out
        self.inserted += other.inserted
        self.seconds += other.seconds
        self.turns += other.turns
        self.rows_read += other.rows_read
        self.rows_scanned += other.rows_scanned
        for number, rows in enumerate(other.rounds):
            self.add_round(number, rows)

    def turn(self, number: int, rows: int) -> None:
        """Count a turn of a loop's body, in the round `number`."""
        self.turns += 1
        self.add_round(number, rows)

    def add_round(self, number: int, rows: int) -> None:
        """Note rows that the body's operators emitted in a round."""
        at = min(number, ROUNDS - 1)
        if at >= len(self.rounds):
            self.rounds += [0] * (at + 1 - len(self.rounds))
        self.rounds[at] += rows

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


class Counts(dict[str, RowCounts]):
    """The counts of operators, by name."""

    @classmethod
    def of(cls, counted: Iterable[tuple[str, RowCounts]]) -> Self:
        """Return the sums of counts by name; a name may come several times."""
        found = cls()
        for name, count in counted:
            found.note(name, count)
        return found

    def note(self, name: str, count: RowCounts) -> None:
        """Add to the count of one operator."""
        known = self.get(name)
        if known is None:
            self[name] = replace(count, rounds=list(count.rounds))
        else:
            known.add(count)

    def since(self, before: Counts) -> Counts:
        """Return the rows and seconds that were counted since `before`."""
        return Counts(
            {
                name: RowCounts(
                    count.rows_in - (then := before.get(name, RowCounts())).rows_in,
                    count.rows_out - then.rows_out,
                    count.inserted - then.inserted,
                    count.seconds - then.seconds,
                    rows_read=count.rows_read - then.rows_read,
                    turns=count.turns,
                )
                for name, count in self.items()
            }
        )

    def add(self, other: Counts) -> None:
        """Add counts that were taken elsewhere."""
        for name, count in other.items():
            self.note(name, count)


class Progress:
    """Receives notifications of a run while it works; this one ignores them.

    A run does one stage after the other, and a stage is done when all of its tasks are. Nothing depends on a notification: it may
    come late or not at all, so a call returns at once and raises nothing. Any thread may call.
    """

    def begin(self, what: str, tasks: int | None = None) -> None:
        """Begin a stage, described for a person, with the number of its tasks where it is known; the previous stage has ended."""

    def advance(self, tasks: int = 1) -> None:
        """Count more finished tasks of the stage."""

    def follow(self, done: int, active: int, failed: int) -> None:
        """Take the numbers of the stage's tasks that are done, that run, and that have failed so far; some may be tried again."""

    def read(self, rows: int, size: int = 0) -> None:
        """Count more rows of inputs that were read, in `size` bytes of files."""

    def wrote(self, rows: int, size: int = 0) -> None:
        """Count more rows of outputs or state that were written, in `size` bytes of files."""

    def end(self) -> None:
        """End: the run is done, or has failed."""


SILENT = Progress()

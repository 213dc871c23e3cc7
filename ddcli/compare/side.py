"""An open side of a comparison: rows with multiplicities, read in batches."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine.times import BEYOND
from ddcli.errors import DdError, InputError, first_line
from ddcli.screen import near
from ddcli.store.files.access import real
from ddcli.store.files.objects import locate
from ddcli.store.log.progress import read_owned
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.runs import run_text
from ddcli.store.tables.files import READ_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.store.state.entries import ReplacedFile
    from ddcli.store.tables.input_path import Partition

    Files = tuple[tuple[Path, Partition], ...]
    """The files of a table, each with the columns of its path."""

NOTED = 5
"""The runs, and the files of each, that notes name."""
WEIGHT = "\0weight"
"""The name of the column with the rows' multiplicities."""


@dataclass(frozen=True)
class Side:
    """One open side: its rows, from all `scans`, have its columns and `WEIGHT`; `kind` describes it in words.

    `columns` is None for an empty log without files, whose columns are unknown. `keep` selects the rows that count, and `at` is the
    time that a log is read as of, by column. If `sliced`, any rows can be read without those before them. `refuse` turns an
    error of reading into an error for the user.
    """

    label: str
    kind: str
    columns: Mapping[str, pl.DataType] | None
    scans: Sequence[pl.LazyFrame]
    keep: pl.Expr | None = None
    sliced: bool = False
    at: Mapping[str, pl.Series] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_log: bool = False
    log: Path | None = None
    """The directory of a log."""
    files: Files = ()
    refuse: Callable[[BaseException], DdError | None] = lambda _: None

    def batches(self, columns: Sequence[pl.Expr], most: int) -> Iterator[pl.DataFrame]:
        """Yield the rows, about `most` at a time, in these columns and `WEIGHT`.

        They are read slice by slice if possible: a streaming query reads some 300 MB ahead of its consumer.
        """
        try:
            if self.sliced:
                for piece in _pieces(self.scans, most):
                    yield self._wanted(piece, columns).collect()
            else:
                wanted = self._wanted(pl.concat(self.scans), columns)
                yield from wanted.collect_batches(chunk_size=most, maintain_order=False, engine="streaming")
        except (OSError, *READ_ERRORS) as error:
            raise self._failure(error) from None

    def count(self) -> int:
        """Return the number of rows."""
        try:
            rows: int = pl.concat(self.scans).select(pl.len()).collect(engine="streaming").item()
        except (OSError, *READ_ERRORS) as error:
            raise self._failure(error) from None
        return rows

    def _wanted(self, rows: pl.LazyFrame, columns: Sequence[pl.Expr]) -> pl.LazyFrame:
        return (rows if self.keep is None else rows.filter(self.keep)).select(*columns, WEIGHT)

    def _failure(self, error: BaseException) -> DdError:
        return self.refuse(error) or InputError(
            f"the rows can't be compared: {first_line(error)}",
            place=self.label,
            hint="a value may be out of the range of the type in which the sides are compared: see `--ignore`",
        )


def replaced_between(a: Side, b: Side) -> Iterator[str]:
    """Yield notes on the files that runs replaced or withdrew between the times of two sides, if both are one log of a pipeline."""
    if a.log is None or a.log != b.log or len(a.at) > 1 or len(b.at) > 1:
        return
    _, owner = read_owned(a.log)
    if owner is None:
        return
    state = real(locate(a.log, owner.path))
    try:
        manifest = read_newest(state)
    except DdError:
        return  # the state may be elsewhere
    if manifest is None or manifest.identity != owner.state:
        return
    lower, upper = sorted(next((int(each.to_physical()[0]) for each in side.at.values()), BEYOND) for side in (a, b))
    found: dict[tuple[int, str], list[ReplacedFile]] = {}
    for name, entry in manifest.inputs.items():
        for each in entry.replaced:
            if lower < each.until <= upper:
                found.setdefault((each.commit, name), []).append(each)
    for (_, name), replaced in sorted(found.items())[-NOTED:]:
        more = f" and {len(replaced) - NOTED:,} more files" if len(replaced) > NOTED else ""
        files = ", ".join(map(near, sorted(each.path for each in replaced)[:NOTED]))
        yield f"the run of {run_text(state, manifest, replaced[0])} replaced or withdrew {files}{more} of {name}"
    if len(found) > NOTED:
        yield f"{len(found) - NOTED:,} earlier runs replaced or withdrew files, too"


def _pieces(scans: Sequence[pl.LazyFrame], most: int) -> Iterator[pl.LazyFrame]:
    """Cut scans into pieces of at most `most` rows; small scans are concatenated."""
    counts = [frame.item() for frame in pl.collect_all([scan.select(pl.len()) for scan in scans])]
    together: list[pl.LazyFrame] = []
    room = most
    for scan, rows in zip(scans, counts, strict=True):
        if together and rows > room:
            yield pl.concat(together)
            together, room = [], most
        if rows > most:
            yield from (scan.slice(first, most) for first in range(0, rows, most))
        else:
            together.append(scan)
            room -= rows
    if together:
        yield pl.concat(together)

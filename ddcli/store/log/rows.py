"""Rows of a log's files as updates: interpreted by the format, in the declared types, without nulls where none are allowed.

A person chooses some of them by a condition over their columns, a `RowCondition`.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine.arrow import series_of
from ddcli.engine.lanes import Columns, encode_column
from ddcli.engine.pool import PUBLIC, Pool
from ddcli.errors import InputError
from ddcli.expressions.stage import Evaluation, evaluation
from ddcli.expressions.tree import Call, Case
from ddcli.expressions.types import from_polars
from ddcli.store.formats.base import BadRow
from ddcli.store.log.pieces import physical
from ddcli.store.log.schema import INT64
from ddcli.store.tables.files import row_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Layout, Matrix
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Type
    from ddcli.store.formats.base import ConvertedRows, Format, SnapshotsFormat
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.tables.files import Tables
    from ddcli.store.tables.kinds import Footer


NULL = "a null, where none may be"
BLOCK = 1 << 15
"""The rows whose times and diffs are put together while they are in the cache."""
PRESENT, ORDER, MOMENT, SEQUENCE = BESIDE = "$present", "$order", "$moment", "$sequence"
"""The columns of upserts beside their data: whether the key has a record, and the order that decides at one time."""


class Rows(NamedTuple):
    """Updates: data columns, times as columns of physical integers, diffs.

    Columns stay in the chunks in which they were read: to put 10 M integers in one piece costs 50 ms in fresh memory alone.
    """

    frame: pl.DataFrame
    diffs: pl.Series
    times: pl.DataFrame
    rows: pl.Series | None = None
    """The numbers of the rows that these came from, of those that were read; None: all, in order."""

    def chosen(self, mask: pl.Series) -> Rows:
        """Return the updates for which the mask is true."""
        rows = pl.arange(len(mask), eager=True) if self.rows is None else self.rows
        return Rows(self.frame.filter(mask), self.diffs.filter(mask), self.times.filter(mask), rows.filter(mask))

    def matrix(self, layout: Layout, pool: Pool) -> Matrix:
        """Return `[data lanes | time lanes | diff]`, the data as a layout has it."""
        return self.updates(layout, pool).matrix()

    def updates(self, layout: Layout, pool: Pool) -> Columns:
        """Return the updates with their data in the columns that were read."""
        tail = np.empty((len(self.diffs), self.times.width + 1), np.int64)
        lanes = [*self.times, self.diffs]
        assert {*map(len, lanes)} == {len(tail)}
        for row in range(0, len(tail), BLOCK):
            for lane, series in enumerate(lanes):
                tail[row : row + BLOCK, lane] = series.slice(row, BLOCK).to_numpy()
        return Columns(self.frame, layout, pool, tail)


def joined(reads: Sequence[Rows]) -> Rows:
    """Return the updates of several reads together."""
    frames, diffs, times = ([getattr(rows, name) for rows in reads] for name in ("frame", "diffs", "times"))
    return Rows(pl.concat(frames), pl.concat(diffs), pl.concat(times))


@dataclass(frozen=True)
class RowReader:
    """Reads rows of files as updates of a log."""

    tables: Tables
    log: Format
    schema: LogSchema

    def read(
        self,
        paths: Sequence[Path],
        found: Footer,
        columns: Sequence[str],
        piece: tuple[int | None, int],
        times: pl.DataFrame | None,
        inside: pl.Expr | None,
        arrived: pl.Series | int | None = None,
        *,
        filled: bool = True,
    ) -> Rows:
        """Return updates of files of one kind: the rows (first, count), or (None, count) all of them.

        `times` are their times, if they are known already; `inside` is the condition on times of the rows to take. `arrived` decides
        which rows are newer, where times don't: their numbers in the order of arrival, or the order of the table that counts. `filled`: columns that are never null have some value where a key is deleted.
        """
        first, count = piece
        columns, names = self.names(columns, found, () if times is not None else self.schema.time)
        raw = pl.DataFrame(height=count)
        if names:
            raw = self.tables.collect(paths, names, None if first is None else (first, count))
        if raw.height != count:
            raise InputError("the file changed while it was read", place=str(paths[0]), hint="run again")
        if times is None:
            times = physical(self.tables, paths, raw, self.schema.time)
        if inside is not None:
            mask = times.select(inside).to_series()
            raw, times = raw.filter(mask), times.filter(mask)
            if isinstance(arrived, pl.Series):
                arrived = arrived.filter(mask)
        try:
            turned = self.log.turn(raw, columns)
            sequence = arrived if isinstance(arrived, pl.Series) else None
            typed = self._typed(paths, turned, columns, sequence, times, filled=filled)
            rows = Rows(*typed, times if turned.rows is None else times[turned.rows], turned.rows)
            return rows.chosen(self._order(rows.frame) == arrived) if isinstance(arrived, int) else rows
        except BadRow:
            self._find(paths, columns, names)
            raise

    def names(self, columns: Sequence[str], found: Footer, also: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the data columns that are needed to compute some, and the columns of a file to read for them, with others."""
        wanted = self.log.wanted([name for name in columns if name not in BESIDE])
        return wanted, list(dict.fromkeys([*self.log.reads(wanted, found), *also]))

    def judge(self, path: Path, turned: ConvertedRows) -> None:
        """Raise `BadRow` for rows of one file that mean nothing, with the numbers in `turned`."""
        columns = [name for name in turned.frame.columns if name in self.schema.columns or name in self.schema.time]
        frame, _ = self._typed([path], turned, columns)
        if self.log.tables and self.log.judges:
            self._order(frame)

    def greatest(self, path: Path, raw: pl.DataFrame, first: int = 0) -> int:
        """Return the greatest order of rows of a file of tables; `first` is the number of the first of them there."""
        columns = raw.columns
        kinds = self.schema.columns | self.schema.time
        frame = pl.DataFrame([self.tables.fit([path], raw[name], kinds[name]) for name in columns])
        try:
            return int(self._order(frame).max())  # type: ignore[arg-type]
        except BadRow as bad:
            raise self._error(path, first + bad.row, bad) from None

    def _order(self, frame: pl.DataFrame) -> pl.Series:
        """Return the orders of tables' rows as integers of the same order."""
        return _as_lane(cast("SnapshotsFormat", self.log).ordered(frame))

    def _typed(
        self,
        paths: Sequence[Path],
        turned: ConvertedRows,
        columns: Sequence[str],
        sequence: pl.Series | None = None,
        times: pl.DataFrame | None = None,
        *,
        filled: bool = True,
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return data in its types, with the columns of upserts, and diffs; raises `BadRow` with the row of `turned`."""
        kinds = self.schema.columns | self.schema.time
        beside = [name for name in turned.frame.columns if name not in kinds]
        series = [self.tables.fit(paths, turned.frame[name], kinds[name]) for name in columns]
        frame = (
            pl.DataFrame([*series, *(turned.frame[name] for name in beside)])
            if series
            else pl.DataFrame(height=turned.frame.height)
        )
        present, order = self.log.upserted(frame) or (None, None)
        for name in columns:
            if kinds[name].nullable or not frame[name].null_count():
                continue
            null = frame[name].is_null()
            if present is not None and name not in self.log.key:
                null &= present
            if null.any():
                raise NullValue(null.arg_true(), "column", name)
        diffs = turned.diffs
        if diffs is None:
            diffs = pl.repeat(1, frame.height, dtype=pl.Int64, eager=True)
        elif diffs.null_count():
            raise NullValue(diffs.is_null().arg_true(), "diff column", diffs.name)
        if present is not None:
            frame = frame.with_columns(
                *(
                    _valued(name, kinds[name])
                    for name in columns
                    if filled and not kinds[name].nullable and frame[name].null_count()
                ),
                present.cast(pl.Int64).alias(PRESENT),
                *self._ordered(frame, turned, order, sequence, times),
            )
        return frame, self.tables.fit(paths, diffs, INT64)

    def _ordered(
        self,
        frame: pl.DataFrame,
        turned: ConvertedRows,
        order: pl.Series | None,
        sequence: pl.Series | None,
        times: pl.DataFrame | None,
    ) -> Iterator[pl.Series]:
        """Yield the keys that decide among rows of a key: their own order, their own time, and the order in which they arrived."""
        none = pl.zeros(frame.height, pl.Int64, eager=True)

        def of_rows(given: pl.Series | None) -> pl.Series:
            return none if given is None else given if turned.rows is None else given[turned.rows]

        if not self.log.lasting:
            yield of_rows(sequence).alias(ORDER) if order is None else _as_lane(order)
            return
        yield none.alias(ORDER) if order is None else _as_lane(order)
        yield of_rows(None if times is None else times.to_series()).alias(MOMENT)
        yield of_rows(sequence).alias(SEQUENCE)

    def _find(self, paths: Sequence[Path], columns: Sequence[str], names: Sequence[str]) -> None:
        """Raise the error of the first file that has a meaningless row, with the row's number in that file."""
        for path in paths:
            raw, turned = self.tables.collect([path], names), None
            try:
                turned = self.log.turn(raw, columns)
                self._typed([path], turned, columns)
            except BadRow as bad:
                row = bad.row if turned is None or turned.rows is None else turned.rows[bad.row]
                raise self._error(path, row, bad) from None

    def _error(self, path: Path, row: int, bad: BadRow) -> InputError:
        """Return the error of a row of a file, for people."""
        if isinstance(bad, NullValue):
            return self.tables.null(path, row, bad.what, bad.name)
        where = self.tables.place(path, row)
        words = row_words(row, where)
        return InputError(f"{words}: {bad.problem}" if words else bad.problem, place=where, hint=bad.hint)


def _valued(name: str, kind: Type) -> pl.Expr:
    """Return a column with some value for its nulls: they are in rows that delete a key, where the value is ignored."""
    return pl.when(pl.col(name).is_not_null()).then(pl.col(name)).otherwise(_filler(kind)).alias(name)


def _filler(kind: Type) -> pl.Expr:
    """Return some value of a type."""
    if kind.fields:
        return pl.struct(_filler(inner).alias(name) for name, inner in kind.fields)
    fillers: dict[str, Any] = {"string": "", "binary": b"", "list": [], "bool": False}
    return pl.lit(fillers.get(kind.kind, 0)).cast(kind.to_polars())


def _as_lane(order: pl.Series) -> pl.Series:
    """Return an order as integers of the same order."""
    kind = from_polars(order.dtype, nullable=False)
    assert kind is not None, f"an order of {order.dtype}"
    lane = np.empty((len(order), 1), np.int64)
    encode_column(order, kind, Pool(PUBLIC), lane)
    return series_of(ORDER, lane[:, 0])


class NullValue(BadRow):
    """Rows with a null where none may be, with the column's name, and the word `what` for it in messages."""

    def __init__(self, rows: pl.Series, what: str, name: str) -> None:
        super().__init__(rows, NULL, "")
        self.what, self.name = what, name


HOLDS = "holds"


@dataclass(frozen=True)
class RowCondition:
    """A condition over the columns of a log, which are `known`. Rows of a log with a `key` may have values in that alone."""

    expression: Expression
    known: frozenset[str]
    key: frozenset[str] = frozenset()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(sorted(self.expression.columns()))

    @property
    def sees_nulls(self) -> bool:
        """Return whether the condition may be true or false for a null, not only null: `x is null` holds for a value that can't be read, though the value is unknown."""
        passing = _passing()
        return any(
            isinstance(node, Case) or (isinstance(node, Call) and node.function not in passing)
            for node in self.expression.walk()
        )

    @cached_property
    def _evaluation(self) -> Evaluation:
        return evaluation([(HOLDS, self.expression)])

    def of(self, frame: pl.DataFrame) -> pl.Series:
        """Return for each row whether the condition holds; null where a value that it reads is null.

        A row that deletes a key has nothing but the key: its other columns have fillers.
        """
        if PRESENT in frame.columns:
            others = [name for name in self.columns if name not in self.key]
            frame = frame.with_columns(pl.when(pl.col(PRESENT) != 0).then(pl.col(name)).alias(name) for name in others)
        return self._evaluation.run(frame.select(self.columns)).to_series()

    def keeps(self, frame: pl.DataFrame) -> pl.Series:
        """Return for each row whether it is left where all are dropped for which the condition holds."""
        return ~self.of(frame).fill_null(value=False)


@dataclass(frozen=True)
class RowChange:
    """New values of some columns, in the rows for which a condition holds, or in all. The values have the columns' types; keys and orders stay."""

    values: tuple[tuple[str, Expression], ...]
    where: RowCondition | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads and sets."""
        read = {name for _, value in self.values for name in value.columns()}
        where = self.where.columns if self.where is not None else ()
        return tuple(sorted({name for name, _ in self.values} | read | {*where}))

    @cached_property
    def _evaluation(self) -> Evaluation:
        return evaluation(self.values)

    def concerns(self, frame: pl.DataFrame) -> pl.Series:
        """Return for each row whether it gets new values: rows that delete a key have none."""
        found = pl.repeat(value=True, n=frame.height, dtype=pl.Boolean, eager=True)
        if PRESENT in frame.columns:
            found = frame[PRESENT] != 0
        return found if self.where is None else found & self.where.of(frame).fill_null(value=False)

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with their new values. Raises InputError where one can't be computed."""
        concerned = self.concerns(frame)
        if not concerned.any():
            return frame
        new = self._evaluation.run(frame.filter(concerned).select(self.columns))
        at = concerned.cum_sum().cast(pl.Int64) - 1
        return frame.with_columns(
            pl.select(pl.when(concerned).then(new[name].gather(at.clip(lower_bound=0))).otherwise(frame[name]))
            .to_series()
            .alias(name)
            for name, _ in self.values
        )


@cache
def _passing() -> frozenset[str]:
    """Return the functions that are null for a null, or whose value doesn't depend on it (`false and null`)."""
    from ddcli.expressions.functions import ARITHMETIC, TEXT
    from ddcli.expressions.time_functions import TIME

    strict = {function.name for function in (*ARITHMETIC, *TEXT, *TIME)} - {"concat_ws"}
    return frozenset(strict | {"=", "<>", "<", "<=", ">", ">=", "in", "and", "or", "not"})

"""Sides that are open, as rows with multiplicities, and the differences between them by the definition, on frames with all rows of their keys.

Changes are rows of these columns: `change` (added, removed, changed), `count`, the key's as `key.NAME`, the others as `old.NAME`
and `new.NAME`, null on a side without a row, and `is.NAME`: true for the changed cells of a changed row.
"""

from __future__ import annotations

from dataclasses import field
from decimal import ROUND_FLOOR, Decimal
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from ddcli.compare.columns import type_name
from ddcli.dataclass import dataclass
from ddcli.engine.times import BEYOND
from ddcli.errors import DdError, InputError, UsageError, first_line
from ddcli.job.summary import run_text
from ddcli.screen import near, shell
from ddcli.store.files.access import locate, real
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import read_owned
from ddcli.store.tables.kinds import READ_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.compare.columns import Compared, Tolerance
    from ddcli.expressions.types import Schema

    Nearness = Callable[[pl.Expr, pl.Expr], pl.Expr]
    """Returns for a column of each side whether its values are near each other."""
    from ddcli.store.state.entries import ReplacedFile
    from ddcli.store.tables.input_path import Partition


if TYPE_CHECKING:
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

    @property
    def known(self) -> Mapping[str, pl.DataType]:
        """The types of its columns, as far as they are known."""
        return self.columns or {}

    @property
    def texts(self) -> Mapping[str, pl.LazyFrame]:
        """The columns of text without types: none, as it is open."""
        return {}

    def open(self, types: Schema, origin: str) -> Side:
        """Return itself: a frame of a program, or a log without updates, needs no types."""
        return self

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


PER_UNIT = {"ns": 1, "us": 10**3, "ms": 10**6}
DAY = 86_400 * 10**9


def nearness(name: str, dtype: pl.DataType, tolerance: Tolerance) -> Nearness:
    """Return whether values of a column are within a tolerance; null, infinities and NaN are near no value. Raises UsageError for one that doesn't fit the column's type.

    Integers, decimals and times are subtracted exactly; floats, and all values compared with a share, as floats.
    """
    timed = dtype.is_temporal()
    if not (timed or dtype.is_numeric()):
        raise UsageError(f"'{name}' is {type_name(dtype)}, and can't have a tolerance: only numbers and times can")
    if timed != tolerance.lasting:
        hint = (
            f"write it as `--tolerance {shell(f'{name}=5s')}`"
            if timed
            else f"write it as `--tolerance {shell(f'{name}=0.01')}` or `{shell(f'{name}=1%')}`"
        )
        raise UsageError(
            f"'{name}' is {type_name(dtype)}: its tolerance must be {'a duration' if timed else 'a number or a share'}",
            hint=hint,
        )
    if tolerance.relative or dtype.is_float():
        return partial(_is_near, limit=tolerance.limit, share=tolerance.relative)
    if isinstance(dtype, pl.Decimal):
        return partial(_is_exactly_near, limit=tolerance.limit.scaleb(dtype.scale))
    unit = getattr(dtype, "time_unit", None)
    size = DAY if dtype == pl.Date else PER_UNIT[unit] if unit else 1
    return partial(_is_exactly_near, limit=tolerance.limit / size)


def _is_near(a: pl.Expr, b: pl.Expr, *, limit: Decimal, share: bool) -> pl.Expr:
    """Return whether values, as floats, are no further apart than a limit, or a share of the larger one."""
    a, b = a.cast(pl.Float64), b.cast(pl.Float64)
    most = pl.lit(float(limit))
    if share:
        most *= pl.max_horizontal(a.abs(), b.abs())
    return (a.is_finite() & b.is_finite() & ((a - b).abs() <= most)).fill_null(value=False)


def _is_exactly_near(a: pl.Expr, b: pl.Expr, *, limit: Decimal) -> pl.Expr:
    """Return whether values, as in memory, are no further apart than a limit."""
    apart = a.to_physical().cast(pl.Int128) - b.to_physical().cast(pl.Int128)
    most = int(limit.to_integral_value(ROUND_FLOOR))
    return (apart.abs() <= pl.lit(most, pl.Int128)).fill_null(value=False)


CHANGE, COUNT = "change", "count"
ADDED, REMOVED, CHANGED = "added", "removed", "changed"
KEY, OLD, NEW, IS = "key.", "old.", "new.", "is."
OLDS, NEWS, END, ID = "\0olds", "\0news", "\0end", "\0id"
"""The columns with the counts of an old and of a new row, the end of its range, and the number of its key."""
CHANGES = pl.Enum([REMOVED, CHANGED, ADDED])


def no_changes(compared: Compared) -> pl.DataFrame:
    """Return an empty frame of changes."""
    types = compared.types
    return pl.DataFrame(
        schema={CHANGE: CHANGES, COUNT: pl.Int64()}
        | {KEY + name: types[name] for name in compared.key}
        | {prefix + name: types[name] for name in compared.values for prefix in (OLD, NEW)}
        | {IS + name: pl.Boolean() for name in compared.values}
    )


@dataclass(frozen=True)
class RecordMatcher:
    """The comparison of rows `[compared columns, WEIGHT]` of both sides. `near` has the columns with tolerances. `exactly`: weights may be
    so large that sums need 128 bits.
    """

    compared: Compared
    near: Mapping[str, Nearness]
    exactly: bool

    def changes(self, a: Sequence[pl.DataFrame], b: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the changes that turn A's rows into B's. These must have all rows of each key."""
        removed, added = self._different(a, b)
        if not self.compared.key:
            none = pl.lit(None, pl.Int64)
            one = removed.with_columns(none.alias(NEWS))
            other = added.with_columns(none.alias(OLDS))
            return self._changed(pl.concat([one, other], how="diagonal"))
        key = self._key
        many = pl.concat(
            [
                side.filter(pl.struct(key).is_duplicated() | (pl.col(count) > 1)).select(key)
                for side, count in ((removed, OLDS), (added, NEWS))
            ]
        ).unique()
        pairs = []
        if many.height:
            repeated = [side.join(many, on=key, how="semi", nulls_equal=True) for side in (removed, added)]
            pairs.append(self._in_order(*repeated))
            removed, added = (side.join(many, on=key, how="anti", nulls_equal=True) for side in (removed, added))
        pairs.append(removed.join(added, on=key, how="full", nulls_equal=True, coalesce=True))
        return self._changed(pl.concat(pairs, how="diagonal"))

    def repeated(self, rows: Sequence[pl.DataFrame]) -> int:
        """Return the number of keys that one side has more than once."""
        key = list(self.compared.key)
        weights = pl.concat(rows).select(*key, self._weight)
        whole = pl.col(key[0]) if len(key) == 1 else pl.struct(key)
        if not self.exactly and weights.select(whole.n_unique()).item() == weights.height:
            return 0
        return weights.group_by(key).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) > 1).height

    @property
    def _weight(self) -> pl.Expr:
        return pl.col(WEIGHT).cast(pl.Int128 if self.exactly else pl.Int64)

    @property
    def _key(self) -> list[str]:
        return [KEY + name for name in self.compared.key]

    def _different(self, a: Sequence[pl.DataFrame], b: Sequence[pl.DataFrame]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the multiset differences A - B and B - A: records with their surplus."""
        weight = self._weight
        rows = [*(frame.with_columns(weight * -1) for frame in a), *(frame.with_columns(weight) for frame in b)]
        summed = pl.concat(rows).group_by(self.compared.names).agg(pl.col(WEIGHT).sum())
        differing = summed.filter(pl.col(WEIGHT) != 0)
        sides = []
        for prefix, count, more in ((OLD, OLDS, pl.col(WEIGHT) * -1), (NEW, NEWS, pl.col(WEIGHT))):
            key = [pl.col(name).alias(KEY + name) for name in self.compared.key]
            values = [pl.col(name).alias(prefix + name) for name in self.compared.values]
            sides.append(differing.filter(more > 0).select(*key, *values, more.cast(pl.Int64).alias(count)))
        return sides[0], sides[1]

    def _in_order(self, removed: pl.DataFrame, added: pl.DataFrame) -> pl.DataFrame:
        """Pair the removed rows of each key with the added ones, in order, each as often as its multiplicity.

        A row covers a range of positions, up to `END`; a pair ends where a range of either side ends.
        """
        # Keys are numbered by grouping, because an inner join of one row with one row doesn't match NaN.
        both = pl.concat([removed, added], how="diagonal").with_row_index(ID)
        both = both.with_columns(pl.col(ID).min().over(self._key))
        sides = []
        for prefix, count in ((OLD, OLDS), (NEW, NEWS)):
            values = [prefix + name for name in self.compared.values]
            rows = (
                both.filter(pl.col(count).is_not_null()).select(ID, *values, count).sort(ID, *values, nulls_last=True)
            )
            sides.append(rows.with_columns(pl.col(count).cum_sum().over(ID).alias(END)))
        ends = pl.concat([side.select(ID, END) for side in sides]).unique().sort(ID, END)
        length = pl.col(END) - pl.col(END).shift(1, fill_value=0).over(ID)
        pairs = ends.with_columns(length.alias(COUNT))
        for side in sides:
            pairs = pairs.join_asof(side, on=END, by=ID, strategy="forward", check_sortedness=False)
        counts = [pl.when(pl.col(side).is_not_null()).then(COUNT).alias(side) for side in (OLDS, NEWS)]
        keys = both.select(ID, *self._key).unique(ID)
        return pairs.with_columns(counts).drop(END, COUNT).join(keys, on=ID).drop(ID)

    def _changed(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Return pairs as changes, without pairs whose cells are all the same within their tolerances."""
        values = self.compared.values
        old, new = pl.col(OLDS), pl.col(NEWS)
        change = (
            pl.when(old.is_null())
            .then(pl.lit(ADDED))
            .when(new.is_null())
            .then(pl.lit(REMOVED))
            .otherwise(pl.lit(CHANGED))
        )
        changes = pairs.select(
            change.cast(CHANGES).alias(CHANGE),
            pl.coalesce(old, new).alias(COUNT),
            *self._key,
            *(pl.col(prefix + name) for name in values for prefix in (OLD, NEW)),
            *((old.is_not_null() & new.is_not_null() & self._differs(name)).alias(IS + name) for name in values),
        )
        return changes.filter(
            (pl.col(CHANGE) != CHANGED) | pl.any_horizontal(pl.lit(False), *(IS + name for name in values))
        )

    def _differs(self, name: str) -> pl.Expr:
        a, b = pl.col(OLD + name), pl.col(NEW + name)
        differs = a.ne_missing(b)
        return differs & ~self.near[name](a, b) if name in self.near else differs

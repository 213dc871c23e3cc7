"""The differences between rows of both sides by the definition, on frames with all rows of their keys.

Changes are rows of these columns: `change` (added, removed, changed), `count`, the key's as `key.NAME`, the others as `old.NAME`
and `new.NAME`, null on a side without a row, and `is.NAME`: true for the changed cells of a changed row.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Literal

import polars as pl

from ddcli.compare.columns import type_name
from ddcli.compare.side import WEIGHT
from ddcli.dataclass import dataclass, frozen
from ddcli.errors import UsageError
from ddcli.screen import shell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.compare.columns import Compared
    from ddcli.compare.settings import Tolerance

PER_UNIT = {"ns": 1, "us": 10**3, "ms": 10**6}
DAY = 86_400 * 10**9


@frozen
class Bound:
    """A tolerance for values of a type, which are subtracted exactly, as in memory, or as floats; a `share` is of the larger value."""

    how: Literal["exact", "float", "share"]
    limit: Decimal


def bound(name: str, dtype: pl.DataType, tolerance: Tolerance) -> Bound:
    """Return the bound for a column. Raises UsageError for a tolerance that doesn't fit the column's type.

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
    if tolerance.relative:
        return Bound("share", tolerance.limit)
    if dtype.is_float():
        return Bound("float", tolerance.limit)
    if isinstance(dtype, pl.Decimal):
        return Bound("exact", tolerance.limit.scaleb(dtype.scale).to_integral_value(ROUND_FLOOR))
    unit = getattr(dtype, "time_unit", None)
    size = DAY if dtype == pl.Date else PER_UNIT[unit] if unit else 1
    return Bound("exact", (tolerance.limit / size).to_integral_value(ROUND_FLOOR))


def is_within(a: pl.Expr, b: pl.Expr, most: Bound) -> pl.Expr:
    """Return whether values are no further apart than a bound; null, infinities and NaN are near no value."""
    if most.how == "exact":
        apart = a.to_physical().cast(pl.Int128) - b.to_physical().cast(pl.Int128)
        return (apart.abs() <= pl.lit(int(most.limit), pl.Int128)).fill_null(value=False)
    a, b = a.cast(pl.Float64), b.cast(pl.Float64)
    limit = pl.lit(float(most.limit))
    if most.how == "share":
        limit *= pl.max_horizontal(a.abs(), b.abs())
    return (a.is_finite() & b.is_finite() & ((a - b).abs() <= limit)).fill_null(value=False)


CHANGE, COUNT = "change", "count"
ADDED, REMOVED, CHANGED = "added", "removed", "changed"
KEY, OLD, NEW, IS = "key.", "old.", "new.", "is."
OLDS, NEWS, END, ID = "\0olds", "\0news", "\0end", "\0id"
"""The columns with the counts of an old and of a new row, the end of its range, and the number of its key."""
CHANGES = pl.Enum([REMOVED, CHANGED, ADDED])


@dataclass(frozen=True)
class RecordMatcher:
    """The comparison of rows `[compared columns, WEIGHT]` of both sides. `bounds` are the tolerances, by column. `exactly`: weights may be
    so large that sums need 128 bits.
    """

    compared: Compared
    bounds: Mapping[str, Bound]
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
        return differs & ~is_within(a, b, self.bounds[name]) if name in self.bounds else differs

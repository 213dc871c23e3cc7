"""The history of an output: a row for each interval of time in which a record held, with its beginning and its end.

It follows from the log alone. A commit changes the intervals of the keys whose records it changes, at whatever times: so a correction of the past
rewrites the intervals concerned. These keys' updates are looked up in an arrangement that the state keeps of the output, by the key and with all times.
Where it has no such past, as it was built later than the log, or a key has a null, they are looked up in all files of the log: of other rows only the keys are decoded.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.errors import EngineError
from ddcli.expressions.types import Type
from ddcli.store.log.writer import output_frame
from ddcli.store.targets.change import DIFF, Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.expressions.types import Schema
    from ddcli.store.batch.key_lookup import KeyLookup
    from ddcli.store.state.entries import FileEntry

FROM, TO, CURRENT = "valid_from", "valid_to", "is_current"
OWN = (FROM, TO, CURRENT)
"""The columns that a history has beside its records' columns."""


def history_columns(record: Schema, time: Schema) -> Schema:
    """Return the columns of a history of records with these columns; the end of an interval that lasts is null."""
    (kind,) = time.values()
    return record | {FROM: kind.required(), TO: kind.or_null(), CURRENT: Type("bool")}


class Overlap(Exception):
    """Two records of one key hold at one time, or one has a negative multiplicity: the key, and when."""

    def __init__(self, key: dict[str, object], at: object, *, negative: bool = False) -> None:
        super().__init__()
        self.key, self.at, self.negative = key, at, negative


def intervals(updates: pl.DataFrame, time: str, key: Sequence[str], track: Sequence[str] = ()) -> pl.DataFrame:
    """Return the intervals of the records of a log's updates, which have all times of their keys.

    Consecutive intervals of a key whose records have the same values in the columns `track` are one, with the last of these records. Raises
    Overlap where a key has several records at one time, or fewer than none.
    """
    record = [name for name in updates.columns if name not in (time, DIFF)]
    net = updates.group_by([*record, time], maintain_order=True).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
    net = net.sort(time, maintain_order=True).with_columns(
        pl.col(DIFF).cum_sum().over(record).alias("there"), pl.col(time).shift(-1).over(record).alias(TO)
    )
    if (wrong := net.filter(~pl.col("there").is_in([0, 1]))).height:
        raise Overlap(wrong.select(key).row(0, named=True), wrong[time][0], negative=wrong["there"][0] < 0)
    found = net.filter(pl.col("there") == 1).rename({time: FROM}).select(*record, FROM, TO)
    found = found.sort(FROM, maintain_order=True).with_columns(
        pl.col(FROM).shift(-1).over(key).alias("next"), pl.col(TO).shift(1).over(key).alias("before")
    )
    if (
        wrong := found.filter(pl.col("next").is_not_null() & (pl.col(TO).is_null() | (pl.col(TO) > pl.col("next"))))
    ).height:
        raise Overlap(wrong.select(key).row(0, named=True), wrong["next"][0])
    if track:
        same = [pl.col(name).eq_missing(pl.col(name).shift(1).over(key)) for name in track]
        begins = ~(pl.col("before").eq_missing(pl.col(FROM)) & pl.all_horizontal(same))
        found = found.with_columns(begins.cast(pl.Int64).cum_sum().over(key).alias("number"))
        others = [name for name in record if name not in key]
        found = found.group_by([*key, "number"], maintain_order=True).agg(
            *(pl.col(name).last() for name in others), pl.col(FROM).first(), pl.col(TO).last()
        )
    return found.select(*record, FROM, TO, pl.col(TO).is_null().alias(CURRENT))


def _like(keys: pl.DataFrame) -> pl.Expr:
    """Return a condition that all rows with some keys fulfil, and few others. It leaves out columns for which equality is another one there."""
    plain = [column for column in keys if column.dtype in (pl.Int64, pl.String, pl.Date)]
    return pl.all_horizontal(True, *(pl.col(each.name).is_in(each.implode(), nulls_equal=True) for each in plain))


@dataclass
class HistoryChange(Change):
    """The change of a history: the intervals that the updates of some files of a log begin, end or rewrite.

    `schema` has the columns of the history, `log_files` are all files of the log, oldest first; `files` are the last of them.
    """

    log_files: Sequence[FileEntry] = ()
    key: Sequence[str] = ()
    track: Sequence[str] = ()
    lookup: KeyLookup | None = None
    """The arrangement of the output by the key, with all times up to the last commit."""
    _record: Schema = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._record = {name: kind for name, kind in self.schema.items() if name not in OWN}
        super().__post_init__()

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the rows of the history that come, with the diff 1, and those that go, with -1."""
        if self.whole:
            yield self._intervals(pl.concat([self.rows(file, self._record) for file in self.log_files]), 1)
            return
        known, *newer = [self.rows(file, self._record) for file in self.files]
        newer = [known[self.known :], *newer]
        keys = pl.concat(newer).select(self.key).unique()
        if self.lookup is not None and not keys.select(pl.any_horizontal(pl.all().is_null().any())).item():
            now = self._arranged(self.lookup, keys)
            yield self._intervals(now, 1)
            yield self._intervals(pl.concat([now, *(frame.with_columns(-pl.col(DIFF)) for frame in newer)]), -1)
            return
        before = self.log_files[: len(self.log_files) - len(self.files)]
        found = [known[: self.known], *(self.rows(file, self._record, _like(keys)) for file in before)]
        older = pl.concat([frame.join(keys, on=self.key, how="semi", nulls_equal=True) for frame in found])
        yield self._intervals(pl.concat([older, *newer]), 1)
        yield self._intervals(older, -1)

    def _arranged(self, lookup: KeyLookup, keys: pl.DataFrame) -> pl.DataFrame:
        """Return all updates of some keys by the arrangement, as the log would have them."""
        found = lookup.updates(lookup.entry.key, keys)
        return self.typed(
            output_frame(found, lookup.layout.record, lookup.pool, self.time).lazy(), self._record
        ).collect()

    def _intervals(self, updates: pl.DataFrame, diff: int) -> pl.DataFrame:
        (time,) = self.time
        try:
            found = intervals(updates, time, self.key, self.track)
        except Overlap as overlap:
            key = ", ".join(f"{name} = {value}" for name, value in overlap.key.items())
            if overlap.negative:
                raise EngineError(
                    f"output '{self.output}' has a record with a negative multiplicity at {overlap.at}, and a history can't hold it: {key}",
                    hint="the run is committed, and the table stays as it was; withdraw the file with the retraction: `dd retract PIPELINE FILE`, then `dd state reopen`",
                ) from None
            raise EngineError(
                f"output '{self.output}' has two records of one key at {overlap.at}, and a history has one: {key}",
                hint="the run is committed, and the table stays as it was; name more columns in `key`, or keep one record of a key: `- top_k: {k: 1, ...}`",
            ) from None
        return found.with_columns(pl.lit(diff, pl.Int64).alias(DIFF))

"""The change that a table has to take in: the updates of a log's files after those that it has, or of all files in place of its contents; or the intervals of a history.

A history has a row for each interval of time in which a record held, with its beginning and its end. It follows from the log alone. A commit changes the intervals of the keys
whose records it changes, at whatever times: so a correction of the past rewrites the intervals concerned. These keys' updates are looked up in an arrangement that the state keeps
of the output, by the key and with all times. Where it has no such past, as it was built later than the log, or a key has a null, they are looked up in all files of the log: of
other rows only the keys are decoded.

A history may begin with rows from before the log, as dbt has kept them. They are updates like others, and all end with the log's first update: a record that
the log has then lasts on, as its end and its beginning cancel.
"""

from __future__ import annotations

import io
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode, encode
from ddcli.engine.pool import Pool
from ddcli.engine.times import LEAST
from ddcli.errors import EngineError, first_line
from ddcli.expressions.types import Type, in_order, in_utc
from ddcli.privacy import previewed
from ddcli.store.batch.checked_files import read_checked
from ddcli.store.files.objects import ObjectPath
from ddcli.store.log.writer import DIFF, in_columns, output_frame
from ddcli.store.parquet.pages import PartialParquet
from ddcli.store.targets.mark import COMMITTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Lanes
    from ddcli.expressions.types import RowOrder, Schema
    from ddcli.store.batch.stored_batch import KeyLookup
    from ddcli.store.state.entries import FileEntry

MOST = 1 << 32
"""The rows of a table, at most: a record is written as often as its multiplicity."""


@dataclass
class Change:
    """Some files of an output's log, oldest first, without the first `known` rows of the first one, which the table has.

    `whole`: these are all files, and replace the table's contents.

    `table`: it has the contents of the log, without times. `schema` are the columns of the contents, `time` the columns of times. `order` is
    that in which contents are written. `former` are the columns that the table has by its last commit, if these are others: it gets the new ones first.
    `footer` is metadata for files of the table.
    """

    output: str
    log: Path
    files: Sequence[FileEntry]
    schema: Schema
    time: Schema
    secret: bytes
    whole: bool
    table: bool
    known: int = 0
    order: RowOrder = ()
    former: Schema | None = None
    footer: Mapping[str, str] = field(default_factory=dict)
    layout: Layout = field(init=False)
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.layout, self.pool = Layout(self.schema), Pool(self.secret)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task on another machine gets: a pool of its own, without values."""
        return {**self.__dict__, "pool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.pool = Pool(self.secret)

    @property
    def columns(self) -> Schema:
        """The columns that the table has."""
        return self.schema if self.table else self.schema | self.time | {DIFF: Type("int64")}

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the updates of each file: data, times, diff."""
        for at, file in enumerate(self.files):
            yield self.rows(file, self.schema)[0 if at else self.known :]

    def rows(self, file: FileEntry, schema: Schema, where: pl.Expr | bool = True) -> pl.DataFrame:
        """Return the updates of a file, whose records have these columns. Of rows that don't fulfil a condition only its columns are decoded."""
        frame = self.typed(pl.scan_parquet(io.BytesIO(read_checked(self.log / file.name, file))), schema)
        return (frame if where is True else frame.filter(where)).collect()

    def typed(self, frame: pl.LazyFrame, schema: Schema) -> pl.LazyFrame:
        """Return updates of a log, whose records have these columns, with the types of a table."""
        # The log has the zone of the pipeline, tables have instants of UTC.
        there = frame.collect_schema().names()
        kinds = {name: kind for name, kind in schema.items() if in_utc(kind) == kind or name not in there}
        return in_columns(frame, kinds).select(*schema, *self.time, DIFF)

    def updates(self) -> Lanes:
        """Return the updates of all files without their times, as a consolidated matrix `[data | diff]`.

        For a whole log these are the contents, and a record with a negative multiplicity is refused (EngineError).
        """
        summed = np.empty((0, self.layout.width + 1), np.int64)
        for frame in self.frames():
            part = self.encoded(frame, frame.get_column(DIFF).to_numpy())
            summed = kernels.consolidate(kernels.concat([summed, part]))
        if self.whole:
            self.refuse_negative(summed)
        return summed

    def difference(self, frames: Iterable[pl.DataFrame]) -> Lanes:
        """Return the difference of a table with these rows to the contents of a whole log, as `Target.difference` does."""
        matrix = self.updates()
        for frame in frames:
            matrix = self.added(matrix, frame, -1)
        return matrix

    def added(self, matrix: Lanes, frame: pl.DataFrame, times: int) -> Lanes:
        """Return a matrix, consolidated, with some rows of the table added to it this many times each."""
        rows = self.encoded(frame, np.full(frame.height, times, np.int64))
        return kernels.consolidate(kernels.concat([matrix, rows]))

    def encoded(self, frame: pl.DataFrame, diffs: np.ndarray) -> Lanes:
        """Return rows with their diffs as a matrix. A file of the table may lack columns that came later."""
        frame = in_columns(frame, self.schema)
        matrix = np.empty((frame.height, self.layout.width + 1), np.int64)
        matrix[:, -1] = diffs
        encode(frame, self.layout, self.pool, matrix)
        return matrix

    def refuse_negative(self, matrix: Lanes) -> None:
        """Refuse records with a negative multiplicity (EngineError), and more rows than a table may have."""
        negative = matrix[matrix[:, -1] < 0]
        if len(negative):
            raise self.negative_error(self.shown(negative))
        if matrix[:, -1].sum(dtype=object) > MOST:
            raise EngineError(f"output '{self.output}' has more than {MOST} rows, and a table can't hold them")

    def negative_error(self, shown: str) -> EngineError:
        """Return the error for a record with a negative multiplicity."""
        return EngineError(
            f"output '{self.output}' has a record with a negative multiplicity, and a table can't hold it: {shown}",
            hint=f"{COMMITTED}; retract no more than there is, then run again",
        )

    def check_keys(self, added: Lanes, unique: Sequence[str], place: str) -> None:
        """Refuse new rows for which a key is not enough: two of one key, or one of a key with a null."""
        if not unique or not len(added):
            return
        keys = decode(added, self.layout, self.pool).select(unique)
        twice = keys.is_duplicated() | pl.Series(added[:, -1] > 1)
        empty = keys.select(pl.any_horizontal(pl.all().is_null())).to_series()
        for wrong, problem in ((empty, "a record has a null in its key"), (twice, "several records have one key")):
            if wrong.any():
                row = added[[np.flatnonzero(wrong.to_numpy())[0]]]
                raise self.key_error(problem, self.shown(row, unique), place)

    def key_error(self, problem: str, shown: str, place: str) -> EngineError:
        """Return the error for a record whose key is not enough."""
        hint = f"{COMMITTED}; name other columns under `key`, or leave it out"
        return EngineError(f"{problem}: {shown}", place=place, hint=hint)

    def shown(self, matrix: Lanes, columns: Sequence[str] = ()) -> str:
        """Return the first record of a matrix, or these of its columns, as a message shows it."""
        record = decode(matrix[:1], self.layout, self.pool).select(columns or pl.all()).row(0, named=True)
        return ", ".join(f"{name} = {value}" for name, value in previewed(record).items())

    def decoded(self, matrix: Lanes) -> pl.DataFrame:
        """Return the records of a matrix as rows, each as often as its multiplicity, in the order of the contents if they have one."""
        if len(matrix) and (matrix[:, -1] != 1).any():
            matrix = np.repeat(matrix, matrix[:, -1], axis=0)
        return in_order(decode(matrix, self.layout, self.pool), self.order)


FROM, TO, CURRENT = "valid_from", "valid_to", "is_current"
OWN = (FROM, TO, CURRENT)
"""The columns that a history has beside its records' columns."""
DBT, DELETED = "dbt_", "dbt_is_deleted"
"""The prefix of dbt's own columns of a snapshot, and the one that marks its rows without a record."""


def history_columns(record: Schema, time: Schema) -> Schema:
    """Return the columns of a history of records with these columns; the end of an interval that lasts is null."""
    (kind,) = time.values()
    return record | {FROM: kind.required(), TO: kind.or_null(), CURRENT: Type("bool")}


def read_beginning(path: Path, columns: Schema, keys: pl.DataFrame | None = None, *, rows: bool = True) -> pl.DataFrame:
    """Return the rows of a history that a Parquet file has, `columns` with the ends alone of theirs; of some keys those that have these, and perhaps others.

    Of other rows only the keys are decoded, and in an object store only row groups that may have them are read. Raises EngineError for a file
    without these columns. Without `rows` the columns alone are read.
    """
    kinds = {name: kind.to_polars() for name, kind in columns.items() if name != CURRENT}
    try:
        source = _source(path)
        there = _scanned(source).collect_schema()
        own = {name: name if name in there else DBT + name for name in (FROM, TO)}
        if lacking := [own.get(name, name) for name in kinds if own.get(name, name) not in there]:
            problem = f"the file has no column '{lacking[0]}', and the history begins from it"
            raise EngineError(problem, place=str(path), hint=f"it has {', '.join(there)}")
        for name, kind in kinds.items():
            if there[own.get(name, name)].is_temporal() != kind.is_temporal():
                problem = f"'{own.get(name, name)}' is {there[own.get(name, name)]} in the file, and {columns[name]} in the history"
                raise EngineError(problem, place=str(path), hint="write the file again with this type")
        sources = {name: pl.col(own.get(name, name)) for name in kinds}
        # A condition is asked before a row is decoded only if its column needs no cast.
        made = [
            (source if there[own.get(name, name)] == kinds[name] else source.cast(kinds[name])).alias(name)
            for name, source in sources.items()
        ]
        marks = [DELETED] if DELETED in there and DELETED not in kinds else []

        def chosen(frame: pl.LazyFrame) -> pl.LazyFrame:
            there = frame.filter(pl.col(DELETED).cast(pl.String).str.to_lowercase().ne_missing("true"))
            found = (there if marks else frame).select(made)
            return found if keys is None else found.filter(_like(keys))

        if not rows:
            return pl.DataFrame(schema=kinds)
        if not isinstance(source, PartialParquet):
            return chosen(_scanned(source)).collect()
        wanted = [own.get(name, name) for name in kinds] + marks
        if keys is None:
            return chosen(source.scan(wanted)).collect()
        names = _like(keys).meta.root_names()
        parts = [pl.DataFrame(schema=kinds)]
        for group in source.groups:
            if all(source.may_have(group, keys[name]) for name in names):
                among = chosen(source.scan([*names, *marks], group)).select(names).head(1).collect()
                parts += [chosen(source.scan(wanted, group)).collect()] if among.height or not names else []
        return pl.concat(parts)
    except (OSError, pl.exceptions.PolarsError) as error:
        problem = f"the history begins from this file, which can't be read: {first_line(error)}"
        raise EngineError(problem, place=str(path), hint="put it there, or leave `begin` out") from None


def _source(path: Path) -> Path | PartialParquet:
    """Return what the columns of a file are read from. Raises OSError, also for a directory, whose files polars would read."""
    if isinstance(path, ObjectPath):
        return PartialParquet(path)
    with path.open("rb"):
        return path


def _scanned(source: Path | PartialParquet, columns: Sequence[str] = ()) -> pl.LazyFrame:
    """Return the rows of a file, of an object those columns."""
    if isinstance(source, PartialParquet):
        return source.scan(columns)
    return pl.scan_parquet(source, glob=False, hive_partitioning=False)


def _least(file: FileEntry) -> int:
    """Return a time before which a file of a log has no update. One of a rebuild, or of a reopening, may have all times."""
    advances = file.lower is not None and (not file.upper or file.lower[0] < file.upper[0])
    return file.lower[0][0] if file.lower is not None and advances else LEAST


def _like(keys: pl.DataFrame) -> pl.Expr:
    """Return a condition that all rows with some keys fulfil, and few others. It leaves out columns in which polars compares values differently."""
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
    begin: Path | None = None
    """The file with the rows from before the log."""
    _record: Schema = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._record = {name: kind for name, kind in self.schema.items() if name not in OWN}
        super().__post_init__()

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the rows of the history that come, with the diff 1, and those that go, with -1."""
        if self.whole:
            log = [self.rows(file, self._record) for file in self.log_files]
            yield self._intervals(pl.concat([*self._before_log(self._beginning(), self._first([], log)), *log]), 1)
            return
        known, *newer = [self.rows(file, self._record) for file in self.files]
        newer = [known[self.known :], *newer]
        keys = pl.concat(newer).select(self.key).unique()
        before = self.log_files[: len(self.log_files) - len(self.files)]
        former = self._first(before, [known[: self.known]])
        first = self._first(before, [known[: self.known], *newer])
        if first != former:  # all rows from before the log end at another time
            keys = pl.concat([keys, *(frame.select(self.key) for frame in self._beginning())]).unique()
        earlier = self._beginning(keys)
        past, past_before = self._before_log(earlier, first), self._before_log(earlier, former)
        if self.lookup is not None and not keys.select(pl.any_horizontal(pl.all().is_null().any())).item():
            now = self._arranged(self.lookup, keys)
            yield self._intervals(pl.concat([*past, now]), 1)
            undone = [frame.with_columns(-pl.col(DIFF)) for frame in newer]
            yield self._intervals(pl.concat([*past_before, now, *undone]), -1)
            return
        found = [known[: self.known], *(self.rows(file, self._record, _like(keys)) for file in before)]
        older = pl.concat([frame.join(keys, on=self.key, how="semi", nulls_equal=True) for frame in found])
        yield self._intervals(pl.concat([*past, older, *newer]), 1)
        yield self._intervals(pl.concat([*past_before, older]), -1)

    def _beginning(self, keys: pl.DataFrame | None = None) -> list[pl.DataFrame]:
        """Return the rows from before the log, of some keys or all, in a frame; none without a file of them."""
        if self.begin is None:
            return []
        if keys is None:
            return [read_beginning(self.begin, self.schema)]
        found = read_beginning(self.begin, self.schema, keys)
        return [found.join(keys, on=self.key, how="semi", nulls_equal=True)]

    def _first(self, files: Sequence[FileEntry], frames: Sequence[pl.DataFrame]) -> Any:
        """Return the first time at which the updates of files and frames don't cancel; None if there is none, or no row from before the log.

        They cancel where a time was reopened, and the rows that are read then have later times.
        """
        if self.begin is None:
            return None
        (time,) = self.time
        opened: dict[str, Path | PartialParquet] = {}

        def scan(part: FileEntry | pl.DataFrame, *columns: str) -> pl.LazyFrame:
            if isinstance(part, pl.DataFrame):
                return part.lazy()
            source = opened[part.name] = opened.get(part.name) or _source(self.log / part.name)
            return _scanned(source, columns)

        parts = [(part, _least(part)) for part in files] + [(frame, LEAST) for frame in frames]
        after: pl.Expr | bool = True
        while True:
            least: Any = None
            having: list[FileEntry | pl.DataFrame] = []
            for part, lower in parts:
                if least is not None and lower > pl.Series([least]).to_physical()[0]:
                    continue
                at = scan(part, time).filter(after).select(pl.col(time).min()).collect().item()
                if at is not None and (least is None or at <= least):
                    having = [*(having if at == least else ()), part]
                    least = at
            if len(having) < 2:
                return least
            until = scan(having[-1], time).select(pl.col(time).max()).collect().item()
            last, among = pl.Series([until]).to_physical()[0], (pl.col(time) <= until) & after
            names = *self._record, time, DIFF
            concerned = [scan(part, *names) for part, lower in parts if lower <= last]
            some = pl.concat([self.typed(each.filter(among), self._record) for each in concerned])
            net = some.group_by([*self._record, time]).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
            if (first := net.select(pl.col(time).min()).collect().item()) is not None:
                return first
            after = pl.col(time) > until

    def _before_log(self, earlier: Sequence[pl.DataFrame], first: Any) -> list[pl.DataFrame]:
        """Return rows from before the log as updates: none begins at the log's `first` time or later, and all end then."""
        (time,) = self.time
        if first is not None:
            earlier = [
                frame.filter(pl.col(FROM) < until).with_columns(pl.min_horizontal(TO, until).alias(TO))
                for frame in earlier
                for until in [pl.lit(first).cast(frame.schema[FROM])]
            ]
        return [
            frame.filter(pl.col(at).is_not_null()).select(
                *self._record, pl.col(at).alias(time), pl.lit(diff, pl.Int64).alias(DIFF)
            )
            for frame in earlier
            for at, diff in ((FROM, 1), (TO, -1))
        ]

    def _arranged(self, lookup: KeyLookup, keys: pl.DataFrame) -> pl.DataFrame:
        """Return all updates of some keys by the arrangement, as the log would have them."""
        found = lookup.updates(lookup.entry.key, keys)
        return self.typed(
            output_frame(found, lookup.layout.record, lookup.pool, self.time).lazy(), self._record
        ).collect()

    def _intervals(self, updates: pl.DataFrame, diff: int) -> pl.DataFrame:
        """Return the intervals of the records of a log's updates, which have all times of their keys, with a diff.

        Consecutive intervals of a key whose records have the same values in the columns `track` are one, with the last of these records. Raises
        EngineError where a key has several records at one time, or fewer than none.
        """
        (time,) = self.time
        record = [name for name in updates.columns if name not in (time, DIFF)]
        net = updates.group_by([*record, time], maintain_order=True).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
        net = net.sort(time, maintain_order=True).with_columns(
            pl.col(DIFF).cum_sum().over(record).alias("there"), pl.col(time).shift(-1).over(record).alias(TO)
        )
        if (wrong := net.filter(~pl.col("there").is_in([0, 1]))).height:
            raise self._overlap(wrong, wrong[time][0], negative=wrong["there"][0] < 0)
        found = net.filter(pl.col("there") == 1).rename({time: FROM}).select(*record, FROM, TO)
        found = found.sort(FROM, maintain_order=True).with_columns(
            pl.col(FROM).shift(-1).over(self.key).alias("next"), pl.col(TO).shift(1).over(self.key).alias("before")
        )
        lasts = pl.col(TO).is_null() | (pl.col(TO) > pl.col("next"))
        if (wrong := found.filter(pl.col("next").is_not_null() & lasts)).height:
            raise self._overlap(wrong, wrong["next"][0])
        if self.track:
            same = [pl.col(name).eq_missing(pl.col(name).shift(1).over(self.key)) for name in self.track]
            begins = ~(pl.col("before").eq_missing(pl.col(FROM)) & pl.all_horizontal(same))
            found = found.with_columns(begins.cast(pl.Int64).cum_sum().over(self.key).alias("number"))
            others = [name for name in record if name not in self.key]
            found = found.group_by([*self.key, "number"], maintain_order=True).agg(
                *(pl.col(name).last() for name in others), pl.col(FROM).first(), pl.col(TO).last()
            )
        lasting = pl.col(TO).is_null().alias(CURRENT)
        return found.select(*record, FROM, TO, lasting, pl.lit(diff, pl.Int64).alias(DIFF))

    def _overlap(self, wrong: pl.DataFrame, at: object, *, negative: bool = False) -> EngineError:
        """Return the error for a key with two records at one time, or one with a negative multiplicity: the first row's."""
        key = ", ".join(f"{name} = {value}" for name, value in wrong.select(self.key).row(0, named=True).items())
        if negative:
            return EngineError(
                f"output '{self.output}' has a record with a negative multiplicity at {at}, and a history can't hold it: {key}",
                hint=f"{COMMITTED}; withdraw the file with the retraction: `dd retract PIPELINE FILE`, then `dd state reopen`",
            )
        return EngineError(
            f"output '{self.output}' has two records of one key at {at}, and a history has one: {key}",
            hint=f"{COMMITTED}; name more columns in `key`, or keep one record of a key: `- top_k: {{k: 1, ...}}`",
        )

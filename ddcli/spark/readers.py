"""The readers of a log: as of a time, its changes, and a stream of them.

The offsets of a stream are frontiers: a batch has the updates between two of them, of closed times only, so that it has the same rows
whenever it is read again. The offset also has the log's identity: if its writer begins it anew, or opens times again, the stream
can't continue.

Tasks read parts of one state of the log, the one that the query's plan has found. Before the log's upper that holds by itself: closed times never change. Rows at later times belong to
the state if they are among the first rows of the listed files, as many as those had then.

A log is read with Spark's filters as conditions. Spark applies each filter again to the rows that it gets. So a condition may keep too many rows, never too few: what isn't surely the
same in both (a NaN, a type that Spark lacks) is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import and_, eq, ge, gt, itemgetter, le, lt, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
from pyspark.sql import datasource
from pyspark.sql.datasource import InputPartition

from ddcli.engine.times import Frontier
from ddcli.errors import DdError, EngineError, InputError, RewrittenError, StateError, UsageError
from ddcli.sources.change_log import MOST_HELD, ChangeLog
from ddcli.store.files.buckets import adopt_settings, settings_in_use
from ddcli.store.files.gate import side_by_side
from ddcli.store.formats.base import Updates
from ddcli.store.log.progress import read_owned
from ddcli.store.log.reader import LogReader
from ddcli.store.mirrors.spark_table import to_arrow
from ddcli.store.parquet.row_groups import GroupBounds, group_bounds
from ddcli.store.tables.files import READ_ERRORS
from ddcli.store.time_text import format_time, json_time, parse_time
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema, Type
    from ddcli.spark.options import LogOptions
    from ddcli.store.log.progress import Owner
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.state.entries import InputFile, Times
    from ddcli.store.tables.listing import Listing


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, where such a stream is one batch
    SupportsTriggerAvailableNow = object
START = "start"
"""The offset before all times."""
ANEW = "start again with another checkpoint; without `startingTime` its first batch has the contents so far"


class LogBatchReader(datasource.DataSourceReader):
    """A reader of a log as of a time, or of its changes between two times."""

    def __init__(self, options: LogOptions, columns: Schema) -> None:
        self.options, self.columns = options, columns
        self.filters: list[Any] = []

    def partitions(self) -> list[LogPart]:
        options, log = self.options, self.options.open()
        if not options.changes:
            time = None if options.as_of is None else options.time_of(log, "asOf", options.as_of)
            closed = log.progress is not None and time is not None and not log.progress.less_equal(time)
            if time is not None:
                log.refuse_before_horizon(time)
            return parts_of_contents(log, time, closed=closed, count=options.partitions)
        lower = options.since and (options.time_of(log, "startingTime", options.since),)
        upper = options.until and options.box_of(log, "endingTime", options.until)
        closed = log.progress is not None and bool(upper) and Frontier(upper or ()).dominates(log.progress)
        return parts_of_changes(
            log, ChangeInterval(lower or None, upper or ()), closed=closed, count=options.partitions
        )

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        # As of a time, records are summed up before their multiplicity can be compared.
        compared = self.columns if self.options.changes else _without(self.columns, partition.diff)
        condition = keeping(self.filters, compared)
        for frame in rows_of(partition, self.columns, condition):
            yield from to_arrow(frame, self.columns, partition.path)


class FilteringLogBatchReader(LogBatchReader):
    """A reader that takes Spark's filters. Spark refuses one unless its setting allows it."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:  # noqa: N802 - Spark's name
        """Keep the filters to read fewer rows, and have Spark apply all of them again."""
        self.filters = filters
        return filters


class LogStreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of the changes of a log, as its times are closed."""

    def __init__(self, options: LogOptions, columns: Schema) -> None:
        self.options, self.columns = options, columns
        self._target: dict[str, str] | None = None
        self._time: Schema | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the offset of `startingTime`, or that before all times."""
        since = self.options.since
        time = START if since is None else self._text(self._physical(since, "startingTime"))
        return {"time": time, "log": self._progress()[1]}

    def latestOffset(self, start: dict[str, str] | None = None, limit: Any = None) -> dict[str, str]:  # noqa: N802
        """Return the log's upper; Spark before 4.2 doesn't pass the offset of the last batch."""
        if self._target is not None:
            return self._target
        upper, log = self._progress()
        if start is not None and start["time"] != START and upper < self._physical(start["time"]):
            return start
        return {"time": self._text(upper), "log": log}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Let the stream end with the times that are closed now."""
        self._target = self.latestOffset()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[LogPart]:
        place = str(self.options.path)
        if {start["log"], end["log"]} != {self._progress()[1]}:
            problem = "the log was started again, or opened at earlier times, since the stream has read it"
            raise StateError(problem, place=place, hint=ANEW)
        log = self.options.open()
        lower = None if start["time"] == START else self._physical(start["time"])
        upper = self._physical(end["time"])
        if lower is not None and lower >= upper:
            return []
        horizon = log.reader.listing.horizon
        if horizon is not None and (upper if lower is None else lower) <= horizon:
            problem = f"updates up to {self._text(horizon)} were summed up before the stream had read them"
            raise StateError(problem, place=place, hint=ANEW)
        wanted = ChangeInterval(None if lower is None else (lower,), (upper,))
        return parts_of_changes(log, wanted, closed=True, count=self.options.partitions)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for frame in rows_of(partition, self.columns, None):
            yield from to_arrow(frame, self.columns, partition.path)

    def _progress(self) -> tuple[Time, str]:
        """Return the upper of the log and its identity."""
        place = self.options.path
        upper, owner = read_owned(place)
        if upper is None:
            raise InputError(
                "the log has no progress (`_progress.json`), so a stream can't know which of its times are closed",
                place=str(place),
                hint="stream the output of a pipeline, or a log that Spark writes with `format('dd')`",
            )
        if len(upper) != 1 or len(upper[0]) != 1:
            raise UsageError(
                "a stream needs times of one coordinate", place=str(place), hint="read it with `readChangeFeed`"
            )
        return upper[0], _named(owner)

    def _kinds(self) -> Schema:
        """Return the time of the log, which is looked up once: Spark asks for the latest offset many times a second."""
        if self._time is None:
            self._time = self.options.open().time
        return self._time

    def _physical(self, text: str, option: str = "offset") -> Time:
        return parse_time(text, self._kinds(), option, "log's")

    def _text(self, time: Time) -> str:
        return json_time(format_time(time, list(self._kinds().values()))) or ""


def _named(owner: Owner | None) -> str:
    return "" if owner is None else f"{owner.state}/{owner.reopenings}/{owner.log}"


def _without(columns: Schema, name: str) -> Schema:
    return {each: kind for each, kind in columns.items() if each != name}


COMPARED: dict[Any, Callable[[Any, Any], Any]] = {
    datasource.EqualTo: eq,
    datasource.GreaterThan: gt,
    datasource.GreaterThanOrEqual: ge,
    datasource.LessThan: lt,
    datasource.LessThanOrEqual: le,
}
TEXTS: dict[Any, Callable[[pl.Expr, str], pl.Expr]] = {
    datasource.StringStartsWith: lambda column, text: column.str.starts_with(text),
    datasource.StringEndsWith: lambda column, text: column.str.ends_with(text),
    datasource.StringContains: lambda column, text: column.str.contains(text, literal=True),
}
EXACT = {"int8", "int16", "int32", "int64", "float32", "float64", "bool", "date", "string", "decimal", "datetime"}
"""The kinds of values that both compare in the same way, NaN aside."""


def keeping(filters: Iterable[Any], columns: Schema) -> pl.Expr | None:
    """Return the condition of all rows that these filters of Spark may keep; None: it is that of all rows."""
    found = [each for each in (_kept(one, columns) for one in filters) if each is not None]
    return reduce(and_, found) if found else None


def _kept(one: Any, columns: Schema) -> pl.Expr | None:
    """Return the condition of the rows that one filter may keep; None where it has none here."""
    inner = one
    while isinstance(inner, datasource.Not):
        inner = inner.child
    found = _column(inner.attribute, columns)
    if found is None:
        return None
    column, kind = found
    condition = _condition(one, column, kind)
    if condition is None:
        return None
    return condition | column.is_nan() if kind.is_float else condition


def _condition(one: Any, column: pl.Expr, kind: Type) -> pl.Expr | None:
    """Return a filter over a column: null where Spark's is, for values that aren't NaN."""
    if isinstance(one, datasource.Not):
        inner = _condition(one.child, column, kind)
        return None if inner is None else ~inner
    if isinstance(one, datasource.IsNull):
        return column.is_null()
    if isinstance(one, datasource.IsNotNull):
        return column.is_not_null()
    if kind.kind not in EXACT or kind.unit == "ns":
        return None
    if isinstance(one, datasource.In):
        if any(value is None for value in one.value):
            return None  # never false, but null: `not` of it keeps nothing
        return reduce(or_, [column == _literal(value, kind) for value in one.value]) if one.value else None
    if isinstance(one, datasource.EqualNullSafe):
        return column.is_null() if one.value is None else column.eq_missing(_literal(one.value, kind))
    if one.value is None:
        return None
    if (compare := COMPARED.get(type(one))) is not None:
        return compare(column, _literal(one.value, kind))  # type: ignore[no-any-return]
    if kind.kind == "string" and (test := TEXTS.get(type(one))) is not None:
        return test(column, one.value)
    return None


def _column(path: tuple[str, ...], columns: Schema) -> tuple[pl.Expr, Type] | None:
    """Return the column of a path, `a` or a field of a struct `a.b`, with its type; None for one that the log lacks under this name."""
    name, *fields = path
    if name not in columns:
        return None
    column, kind = pl.col(name), columns[name]
    for field in fields:
        inner = dict(kind.fields)
        if field not in inner:
            return None
        column, kind = column.struct.field(field), inner[field]
    return column, kind


def _literal(value: Any, kind: Type) -> pl.Expr:
    """Return a value of a filter, a moment in the zone of its column: polars compares no others."""
    return pl.lit(value).dt.convert_time_zone(kind.zone) if kind.zone else pl.lit(value)


LARGE = 128 << 20
"""Bytes of files that a task reads by default, as Spark's own sources do."""
MANY = 64
"""Tasks that sum up a collection by default, at most: each of them may have to read all files."""
TRIES = 5
"""The looks of a task for the files that have replaced those it has to read, at most."""
HASHED = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "date", "string", "decimal"}
FEW = 4
"""Columns whose statistics are looked at, the first ones: a log of terabytes has half a million row groups."""
RANGED = HASHED - {"bool"} | {"datetime"}
"""Kinds whose values are compared in the same way by Python, by polars and in the statistics of Parquet."""
HASHED |= {"datetime", "duration", "time", "binary"}
"""Kinds whose equal values have equal hashes: floats have two zeros."""


class ChangeInterval(NamedTuple):
    """The updates at or after `lower` (None: all) and not at or after `upper`."""

    lower: Times | None
    upper: Times


class Share(NamedTuple):
    """The records of a collection as of a time (None: after all updates) for which `own` holds: they fall to one task."""

    time: Time | None
    own: pl.Expr | None = None


class LogPart(InputPartition):
    """The rows of a log that one task reads: of its files (`rows`: of its only file from this row on so many), or of all files those records that fall to the task."""

    def __init__(
        self,
        log: ChangeLog,
        wanted: ChangeInterval | Share,
        listing: Listing,
        *,
        closed: bool,
        rows: tuple[int, int] | None = None,
        checked: bool = False,
    ) -> None:
        self.path, self.diff, self.time = str(log.path), log.diff, tuple(log.time)
        self.listing = listing
        self.schema: LogSchema = log.reader.schema
        self.wanted = wanted
        self.closed = closed
        """True: no later commit changes the rows that are wanted."""
        self.rows = rows
        self.checked = checked
        """True: no time and no diff is null, by the footers."""
        self.settings = settings_in_use()
        self.versions = versions()

    def open(self) -> ChangeLog:
        """Return the log of the listed files. Raises DdError where one can't be read."""
        log = Updates(self.time, self.schema.columns, diff=self.diff, absent=tuple(self.schema.columns))
        return ChangeLog(Path(self.path), LogReader(self.listing, log, self.schema, MOST_HELD), self.diff, None)

    def is_gone(self) -> bool:
        """Return whether a listed file is gone: its rows were summed up, or the log was written anew."""
        return not all(self.listing.path(file).exists() for file in self.listing.to_read)


def versions() -> tuple[str, str]:
    """Return the versions that plan and tasks must have in common, and the version of the hash that divides a collection."""
    return __version__, pl.__version__


def parts_of_changes(log: ChangeLog, wanted: ChangeInterval, *, closed: bool, count: int | None) -> list[LogPart]:
    """Return the updates of an interval in parts of some 128 MB, or this many parts: of whole files, and of row groups of larger ones."""
    files = log.reader.listing.to_read
    size = max(1, sum(file.size for file in files) // count) if count else LARGE
    whole = _pinned(log, closed=closed)
    windows = {file: _windows(log, file, size, whole.limits.get(file.path)) for file in files if file.size > size}
    cut = {file: some for file, some in windows.items() if len(some) > 1}
    left = [file for file in files if file not in cut]
    most = max(1, count - sum(map(len, cut.values()))) if count else len(files)
    bins: list[list[InputFile]] = []
    room = 0
    for file in left:
        if room <= 0 and len(bins) < most:
            bins.append([])
            room = size
        bins[-1].append(file)
        room -= file.size
    pieces: list[tuple[tuple[InputFile, ...], tuple[int, int] | None]] = [(tuple(group), None) for group in bins]
    pieces += [((file,), rows) for file, some in cut.items() for rows in some]
    return [
        LogPart(log, wanted, replace(whole, new=some, waiting=()), closed=closed, rows=rows) for some, rows in pieces
    ]


def _windows(log: ChangeLog, file: InputFile, size: int, limit: int | None) -> list[tuple[int, int]]:
    """Return the first row and the number of rows of parts of a file, some row groups with about `size` bytes each; of its first `limit` rows."""
    groups = group_bounds(log.reader.listing.path(file)) if log.reader.seeks else []
    share = sum(group.size for group in groups) / -(-file.size // size)
    found, first, before = list[tuple[int, int]](), 0, 0
    for group in groups:
        count = group.rows if limit is None else max(0, min(group.rows, limit - first))
        if before < len(found) * share:
            found[-1] = (found[-1][0], found[-1][1] + count)
        elif count:
            found.append((first, count))
        first, before = first + count, before + group.size
    return found


def parts_of_contents(log: ChangeLog, time: Time | None, *, closed: bool, count: int | None) -> list[LogPart]:
    """Return a collection in parts: a record is in the part that has its range of a column, or its hash."""
    listing = _pinned(log, closed=closed)
    hashed = [pl.col(name) for name, kind in log.columns.items() if kind.kind in HASHED]
    parts = count or min(MANY, max(1, -(-listing.size // LARGE)))
    if parts == 1 or not hashed:
        return [LogPart(log, Share(time), listing, closed=closed)]
    ranges = _ranges(log, parts)
    own = ranges or [pl.struct(hashed).hash(0) % parts == at for at in range(parts)]
    return [LogPart(log, Share(time, each), listing, closed=closed, checked=bool(ranges)) for each in own]


def _ranges(log: ChangeLog, parts: int) -> list[pl.Expr]:
    """Return the conditions of ranges of a column, one for each part, if a task then reads little more than its rows; else none."""
    if not log.reader.seeks:
        return []
    ranged = [(name, kind) for name, kind in log.columns.items() if kind.kind in RANGED and kind.unit != "ns"]
    columns = dict(ranged[:FEW])
    required = [*log.time, *([log.diff] if log.reader.schema.diff else [])]
    found: dict[Path, list[GroupBounds]] = {}
    paths = [log.reader.listing.path(file) for file in log.reader.listing.to_read]
    side_by_side(lambda path: found.update({path: group_bounds(path, columns, required)}), paths)
    groups = [group for path in paths for group in found[path]]
    if not all(found.values()) or any(group.nulls.get(name) != 0 for group in groups for name in required):
        return []
    total = sum(group.size for group in groups)
    most = min(3 * total // 4, 2 * total // parts + max(group.size for group in groups))
    best: tuple[int, list[pl.Expr]] = most, []
    for name, kind in columns.items():
        bounds = [(group.bounds[name], group.size) for group in groups if name in group.bounds]
        if len(bounds) < len(groups) or len({type(value) for each, _ in bounds for value in each or ()}) != 1:
            continue
        if (cuts := _cuts(bounds, parts)) and (read := _most_read(bounds, cuts)) <= best[0]:
            best = read, _between(pl.col(name), [_literal(cut, kind) for cut in cuts])
    return best[1]


def _cuts(bounds: Sequence[tuple[tuple[Any, Any] | None, int]], parts: int) -> list[Any]:
    """Return the values at which a column is cut into ranges with about as many bytes each, by least values of row groups; none if these are too few."""
    ordered = sorted(((each[0], size) for each, size in bounds if each is not None), key=itemgetter(0))
    total, before, cuts = sum(size for _, size in ordered), 0, list[Any]()
    for low, size in ordered:
        if len(cuts) < parts - 1 and before >= (len(cuts) + 1) * total / parts and low > (cuts or [ordered[0][0]])[-1]:
            cuts.append(low)
        before += size
    return cuts if len(cuts) == parts - 1 else []


def _most_read(bounds: Iterable[tuple[tuple[Any, Any] | None, int]], cuts: Sequence[Any]) -> int:
    """Return the bytes of the row groups that have values of a range, for the range with the most."""
    read = [0] * (len(cuts) + 1)
    for each, size in bounds:
        first, last = (0, 0) if each is None else (bisect_right(cuts, each[0]), bisect_right(cuts, each[1]))
        for at in range(first, last + 1):
            read[at] += size
    return max(read)


def _between(column: pl.Expr, cuts: Sequence[pl.Expr]) -> list[pl.Expr]:
    """Return the conditions of the ranges between some values; the first range has the nulls."""
    middle = [(column >= low) & (column < high) for low, high in pairwise(cuts)]
    return [column.is_null() | (column < cuts[0]), *middle, column >= cuts[-1]]


def _pinned(log: ChangeLog, *, closed: bool) -> Listing:
    """Return the listing of a log's files; if rows may be at times that are open, with the rows that each file has now."""
    listing = replace(log.reader.listing, passed=())
    return listing if closed or log.progress is None else replace(listing, limits=log.reader.row_counts())


def rows_of(part: LogPart, columns: Schema, condition: pl.Expr | None) -> Iterator[pl.DataFrame]:
    """Yield the rows of a part that may meet a condition, with these columns, frame by frame."""
    if part.versions != versions():
        ours, theirs = (f"ddcli {own} with polars {other}" for own, other in (versions(), part.versions))
        raise EngineError(
            f"this executor has {ours}, and the query was planned with {theirs}",
            place=part.path,
            hint="install the same versions everywhere; `dd doctor --spark` shows them",
        )
    adopt_settings(part.settings)
    log = _open(part)
    names = list(columns)
    try:
        yield from _query(part, log, names, condition).collect_batches(chunk_size=1 << 16, maintain_order=False)
    except READ_ERRORS as error:
        if part.is_gone():
            raise _replaced(part) from None
        raise log.refusal(error) from None
    except FileNotFoundError:
        raise _replaced(part) from None


def _open(part: LogPart) -> ChangeLog:
    """Return the log of a part, whose files may have been summed up since: closed times of a collection are in the new ones, too."""
    for _ in range(TRIES):
        try:
            return part.open()
        except (DdError, OSError):
            if not part.is_gone():
                raise
            if not (part.closed and isinstance(part.wanted, Share)):
                raise _replaced(part) from None
        part.listing = ChangeLog.open(part.path, Path("/"), time=part.time, diff=part.diff).reader.listing
    return part.open()


def _query(part: LogPart, log: ChangeLog, names: Sequence[str], condition: pl.Expr | None) -> pl.LazyFrame:
    rows = log.reader.scan(checked=part.checked)
    if part.rows is not None:
        rows = rows.slice(*part.rows)
    if condition is not None:
        rows = rows.filter(condition)
    if isinstance(part.wanted, ChangeInterval):
        return log.between(*part.wanted, rows).select(names)
    time, own = part.wanted
    return log.contents(time, rows if own is None else rows.filter(own)).select(names)


def _replaced(part: LogPart) -> DdError:
    return RewrittenError(
        "files of the log were summed up or rewritten while they were read",
        place=part.path,
        hint="run the query again",
    )

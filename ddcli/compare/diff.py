"""The comparison of two sides: both are read once, divided by key, and compared bucket by bucket; and its result: counts, the columns that differ, and the changed rows, in memory or in scratch files."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import polars as pl

from ddcli.compare.columns import Settings, compare_columns, parse_max_changed, parse_tolerances
from ddcli.compare.pairs import (
    ADDED,
    CHANGE,
    CHANGED,
    COUNT,
    IS,
    KEY,
    NEW,
    OLD,
    REMOVED,
    WEIGHT,
    RecordMatcher,
    Side,
    nearness,
    no_changes,
    replaced_between,
)
from ddcli.compare.sides import SideReader, named_side, open_sides
from ddcli.dataclass import dataclass
from ddcli.errors import EngineError, UsageError, first_line
from ddcli.job.sizes import default_memory
from ddcli.store.files.access import naming
from ddcli.store.scratch.buckets import Buckets, Scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.compare.columns import ColumnDifference, Compared
    from ddcli.compare.pairs import Files
    from ddcli.store.scratch.buckets import Bucket
    from ddcli.store.tables.input_path import Partition

    Named = str | Path | pl.DataFrame | pl.LazyFrame
    Pair = tuple[Bucket, Bucket]
    """The two sides' buckets of one number: rows with the same key are in one pair."""


CHUNK = 1 << 19
"""The most rows that are read at once."""
BASE = 256 << 20
"""The bytes that a process needs before it has read a row."""
DEPTH = 3
"""The most times that a bucket is divided: a bucket that is still too large has rows of few keys."""
PIECE = 1 << 20
"""The bytes of files that are compared at once."""


def diff(
    a: Named,
    b: Named,
    *,
    key: str | Sequence[str] | None = None,
    ignore: Iterable[str] = (),
    ignore_types: bool = False,
    tolerance: Mapping[str, object] | None = None,
    max_changed: object | None = None,
    as_of: Any = None,
    from_time: Any = None,
    to_time: Any = None,
    time: Sequence[str] | None = None,
    memory: int | None = None,
) -> Difference:
    """Compare two collections: paths of change logs or of tables in files, or polars frames.

        >>> import polars as pl
        >>> before = pl.DataFrame({"id": [1, 2, 3], "amount": [10, 20, 30]})
        >>> after = pl.DataFrame({"id": [1, 2, 4], "amount": [10, 25, 40]})
        >>> found = diff(before, after, key="id")
        >>> found.changed.rows(named=True)
        [{'id': 2, 'old.amount': 20, 'new.amount': 25, 'count': 1}]
        >>> found.added["id"].to_list(), found.removed["id"].to_list(), bool(found)
        ([4], [3], True)

    `tolerance` is, by column, the distance at which values still count as equal: `{"amount": 0.01, "share": "0.1%", "at": "5s"}`;
    `max_changed` is the number of rows that may differ while `ok` holds: `10`, `"1%"`. Logs are read as of `as_of`, or A as of
    `from_time` and B as of `to_time`; without these, with all their updates. The sides may be many times larger than `memory`, in bytes.

    Raises UsageError for settings that don't fit the sides, InputError for files that can't be read.
    """
    if (from_time is not None or to_time is not None) and as_of is not None:
        raise ValueError("as_of is one time for both sides: name it, or from_time and to_time")
    texts = [f"{name}={limit}" for name, limit in (tolerance or {}).items()]
    settings = Settings(
        None if key is None else (key,) if isinstance(key, str) else tuple(key),
        frozenset(ignore),
        ignore_types,
        parse_tolerances(texts),
        None if max_changed is None else parse_max_changed(str(max_changed)),
    )
    reading = SideReader(None if time is None else tuple(time))
    sides = [
        (side, replace(reading, as_of=at if as_of is None else as_of)) for side, at in ((a, from_time), (b, to_time))
    ]
    return compare_named(sides[0], sides[1], settings, memory)


def compare_named(
    a: tuple[Named, SideReader], b: tuple[Named, SideReader], settings: Settings, memory: int | None = None
) -> Difference:
    """Compare two named sides, each read with its own options. See `diff`."""
    sides = open_sides(named_side(*a, "A"), named_side(*b, "B"), settings.ignore)
    if a[1].time and not any(side.is_log for side in sides):
        raise UsageError(f"neither side has the time columns {', '.join(a[1].time)}", hint="name them with --time")
    timed = [reading.as_of is not None for _, reading in (a, b)]
    if any(timed) and not any(side.is_log for side, at in zip(sides, timed, strict=True) if at):
        raise UsageError(
            "a time is given for data that is not a change log",
            hint="a log has a time and a diff: name their columns with --time and --diff",
        )
    return compare(*sides, settings, memory)


def compare(a: Side, b: Side, settings: Settings, memory: int | None = None) -> Difference:
    """Compare two open sides, with `memory` bytes for the whole process. Raises UsageError, InputError, EngineError."""
    a, b = _with_columns(a, b), _with_columns(b, a)
    assert a.columns is not None
    assert b.columns is not None
    compared = compare_columns(a.columns, b.columns, settings)
    free = max((memory or default_memory()) - BASE, 64 << 20)
    scratch = Scratch(free // 4)
    found = Difference(
        Tally(a.label, a.kind),
        Tally(b.label, b.kind),
        settings,
        compared,
        ChangedRows(scratch),
        b.at,
        (*a.notes, *b.notes, *replaced_between(a, b)),
    )
    near = {
        name: nearness(name, compared.types[name], one)
        for name, one in settings.tolerances.items()
        if name in compared.types
    }
    matching = RecordMatcher(compared, near, exactly=a.is_log or b.is_log)
    if not a.is_log and not b.is_log and _same_bytes(a.files, b.files):
        found.a.rows = found.b.rows = a.count()
        found.compared = replace(compared, differences=tuple(each for each in compared.differences if each.a != each.b))
        found.notes = (*found.notes, "the files of both sides are the same, byte for byte")
        found.add(no_changes(compared))
        return found
    by = list(compared.key) or compared.names
    rows = min(CHUNK, max(1 << 14, free // 2048))
    sides = []
    for side, tally, columns in ((a, found.a, compared.a), (b, found.b, compared.b)):
        taken = Buckets(by, scratch, seed=0)
        for frame in side.batches(columns, rows):
            tally.rows += int(frame[WEIGHT].cast(pl.Int128).sum())
            taken.add(frame)
        sides.append(taken)
    for pair in _pairs(*sides):
        for small in _small_enough(pair, by, scratch, free // 12):
            _compare_bucket(small, matching, found)
    return found


def unchanged(
    labels: tuple[str, str], kind: str, columns: Mapping[str, pl.DataType], rows: int, settings: Settings
) -> Difference:
    """Return the difference of two sides with the same columns and the same rows. Raises UsageError for settings that don't fit them."""
    compared = compare_columns(columns, columns, settings)
    a, b = (Tally(label, kind, rows) for label in labels)
    found = Difference(a, b, settings, compared, ChangedRows(Scratch(0)))
    found.add(no_changes(compared))
    return found


def _pairs(a: Buckets, b: Buckets) -> Iterator[Pair]:
    """Yield the buckets of both sides in pairs."""
    if not (a.together and b.together):
        a.divide()
        b.divide()
    yield from zip(a.buckets, b.buckets, strict=True)


def _compare_bucket(pair: Pair, matching: RecordMatcher, found: Difference) -> None:
    sides = [list(bucket.frames()) or [_no_rows(matching.compared.types)] for bucket in pair]
    for bucket in pair:
        bucket.clear()
    try:
        if matching.compared.key:
            found.a.repeated += matching.repeated(sides[0])
            found.b.repeated += matching.repeated(sides[1])
        found.add(matching.changes(*sides))
    except pl.exceptions.InvalidOperationError as error:
        problem = f"a sum of diffs is out of the range of 64 bits: {first_line(error)}"
        raise EngineError(problem, hint="a record is in a log too often") from None


def _small_enough(pair: Pair, by: Sequence[str], scratch: Scratch, most: int, depth: int = 1) -> Iterator[Pair]:
    """Yield a pair of buckets; if it is larger than `most` bytes, the pairs into which it is divided."""
    if sum(bucket.size for bucket in pair) <= most or depth > DEPTH:
        yield pair
        return
    apart = []
    for bucket in pair:
        taken = Buckets(by, scratch, seed=depth)
        for frame in bucket.frames():
            taken.add(frame)
        bucket.clear()
        apart.append(taken)
    for smaller in _pairs(*apart):
        yield from _small_enough(smaller, by, scratch, most, depth + 1)


def _with_columns(side: Side, other: Side) -> Side:
    """Return a side with its columns; an empty log takes the other side's columns."""
    if side.columns is not None:
        return side
    columns = other.columns or {"record": pl.Null()}
    return replace(side, columns=columns, scans=[_no_rows(columns).lazy()])


def _no_rows(types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return an empty frame of these columns and weights."""
    return pl.DataFrame(schema={**types, WEIGHT: pl.Int64()})


def _same_bytes(a: Files, b: Files) -> bool:
    """Return whether the files of both sides are the same, byte for byte, and so their rows, however they are read."""
    if not a or [_kind_of(*file) for file in a] != [_kind_of(*file) for file in b]:
        return False
    return all(_same_file(one, other) for (one, _), (other, _) in zip(a, b, strict=True))


def _kind_of(path: Path, partition: Partition) -> tuple[int, list[str], Partition]:
    """Return a file's size, and the properties that affect its rows beside its bytes: its format, the columns in its path."""
    return path.stat().st_size, path.suffixes, partition


def _same_file(a: Path, b: Path) -> bool:
    with a.open("rb") as one, b.open("rb") as other:
        while piece := _piece(a, one):
            if piece != _piece(b, other):
                return False
    return True


def _piece(path: Path, file: BinaryIO) -> bytes:
    with naming(path):
        return file.read(PIECE)


class ChangedRows:
    """The changed rows that `pairs` finds, in no order; those that don't fit in memory are in scratch files."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self._held: list[pl.DataFrame] = []
        self._size = 0
        self._written: list[Path] = []
        self.height = 0

    def add(self, changes: pl.DataFrame) -> None:
        """Add all changes of some keys."""
        self._held.append(changes)
        self.height += changes.height
        self._size += int(changes.estimated_size())
        if self._size > self.scratch.room:
            for frame in self._held:
                path = self.scratch.new_file()
                frame.write_ipc(path, compression="lz4")
                self._written.append(path)
            self._held, self._size = [], 0

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield all changes, grouped by key."""
        yield from self._held
        for path in self._written:
            yield pl.read_ipc(path)

    def ordered(self, by: list[str], limit: int | None = None) -> pl.DataFrame:
        """Return the first changes (None: all) in order."""
        least: pl.DataFrame | None = None
        for frame in self.frames():
            least = frame if least is None else pl.concat([least, frame])
            if limit is not None:
                least = least.sort(by, nulls_last=True).head(limit)
        assert least is not None, "each comparison adds a frame of changes, if an empty one"
        return least.sort(by, nulls_last=True)

    @property
    def fits(self) -> bool:
        """Return whether all changes are in memory."""
        return not self._written


@dataclass
class Tally:
    """One side: its name, its kind, its number of rows, and its number of keys with more than one row."""

    label: str
    kind: str
    rows: int = 0
    repeated: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the side as JSON."""
        return {"name": self.label, "kind": self.kind, "rows": self.rows, "repeated_keys": self.repeated}


@dataclass
class Difference:
    """The changes that turn A into B. It is false if there are none.

    `added`, `removed` and `changed` are frames, with a column `count`: the number of equal rows that each row stands for. `ok` states
    whether the comparison passes: there is no difference, or no more than allowed.
    """

    a: Tally
    b: Tally
    settings: Settings
    compared: Compared
    changes: ChangedRows
    at: Mapping[str, pl.Series] = field(default_factory=dict)
    """The time that B was read as of, by column, if it is a log and was read as of a time."""
    notes: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    cells: Counter[str] = field(default_factory=Counter)
    """The number of changed cells by column."""

    def add(self, changes: pl.DataFrame) -> None:
        """Add all changes of some keys."""
        self.changes.add(changes)
        if not changes.height:
            return
        for change, count in changes.group_by(CHANGE).agg(pl.col(COUNT).sum()).iter_rows():
            self.counts[change] += count
        if self.compared.key and self.compared.values:
            cells = changes.select(
                pl.col(COUNT).filter(pl.col(IS + name)).sum().alias(name) for name in self.compared.values
            )
            self.cells.update(cells.row(0, named=True))

    @property
    def columns(self) -> tuple[ColumnDifference, ...]:
        """The columns that differ."""
        return self.compared.differences

    @property
    def rows(self) -> int:
        """The number of rows that were added, removed or changed."""
        return self.counts.total()

    @property
    def same_rows(self) -> int:
        """The number of rows of A that are unchanged in B."""
        return self.a.rows - self.counts[REMOVED] - self.counts[CHANGED]

    @property
    def tally(self) -> dict[str, int]:
        """The number of rows that are the same, were removed, changed, and added."""
        return {"same": self.same_rows, **{change: self.counts[change] for change in (REMOVED, CHANGED, ADDED)}}

    @property
    def changed_cells(self) -> list[tuple[str, int]]:
        """The columns that have changed cells, each with their number, the greatest first."""
        return sorted(
            ((name, count) for name, count in self.cells.items() if count), key=lambda each: (-each[1], each[0])
        )

    @property
    def counting_columns(self) -> tuple[ColumnDifference, ...]:
        """The differing columns that count: differences of types may be ignored."""
        return tuple(each for each in self.columns if each.change != "type" or not self.settings.ignore_types)

    @property
    def same(self) -> bool:
        """Return whether there is no difference that counts."""
        return not self.rows and not self.counting_columns

    @property
    def ok(self) -> bool:
        """Return whether the sides are the same, or no more rows differ than `max_changed` allows."""
        allowed = self.settings.max_changed
        return self.same or (
            allowed is not None and not self.counting_columns and allowed.allows(self.rows, self.a.rows)
        )

    def __bool__(self) -> bool:
        return not self.same

    @property
    def count(self) -> str:
        """The name of the column with the number of equal rows: `count`, or `count_` beside a column `count`."""
        name = COUNT
        while name in self.compared.types:
            name += "_"
        return name

    @property
    def added(self) -> pl.DataFrame:
        """The rows that only B has, each with its `count`, in order of the key."""
        return self._one_sided(ADDED, NEW)

    @property
    def removed(self) -> pl.DataFrame:
        """The rows that only A has, each with its `count`, in order of the key."""
        return self._one_sided(REMOVED, OLD)

    @property
    def changed(self) -> pl.DataFrame:
        """The changed rows in order of the key: the key, `old.NAME` and `new.NAME` for each other column, and their `count`."""
        values = [prefix + name for name in self.compared.values for prefix in (OLD, NEW)]
        return self._changes(CHANGED).select(*self._key(), *values, pl.col(COUNT).alias(self.count))

    def first(self, limit: int | None) -> pl.DataFrame:
        """Return the first `limit` changes (None: all) in order of the key, or without a key, of their values."""
        return self.changes.ordered(self.order, limit)

    @property
    def order(self) -> list[str]:
        """The columns that changes are sorted by."""
        values = [prefix + name for name in self.compared.values for prefix in (OLD, NEW)]
        return [*(KEY + name for name in self.compared.key), CHANGE, *values]

    def _changes(self, change: str) -> pl.DataFrame:
        return self.first(None).filter(pl.col(CHANGE) == change)

    def _key(self) -> list[pl.Expr]:
        return [pl.col(KEY + name).alias(name) for name in self.compared.key]

    def _one_sided(self, change: str, prefix: str) -> pl.DataFrame:
        values = [pl.col(prefix + name).alias(name) for name in self.compared.values]
        return self._changes(change).select(*self._key(), *values, pl.col(COUNT).alias(self.count))

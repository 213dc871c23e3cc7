"""The comparison of two sides: both are read once, divided by key, and compared bucket by bucket."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

import polars as pl

from ddcli.compare.columns import Settings, compare_columns, parse_max_changed, parse_tolerances
from ddcli.compare.difference import ChangedRows, Difference, Tally
from ddcli.compare.pairs import WEIGHT, RecordMatcher, Side, bound, no_changes, replaced_between
from ddcli.compare.sides import SideReader, named_side, open_sides
from ddcli.dataclass import dataclass
from ddcli.errors import EngineError, UsageError, first_line
from ddcli.job.sizes import default_memory
from ddcli.store.files.access import naming
from ddcli.store.scratch.buckets import Bucket, Buckets, Scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.compare.pairs import Files
    from ddcli.store.tables.input_path import Partition

    Named = str | Path | pl.DataFrame | pl.LazyFrame

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
    bounds = {
        name: bound(name, compared.types[name], one)
        for name, one in settings.tolerances.items()
        if name in compared.types
    }
    matching = RecordMatcher(compared, bounds, exactly=a.is_log or b.is_log)
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


@dataclass(frozen=True)
class _Pair:
    """The two sides' buckets of one number: rows with the same key are in one pair."""

    a: Bucket
    b: Bucket


def _pairs(a: Buckets, b: Buckets) -> Iterator[_Pair]:
    """Yield the buckets of both sides in pairs."""
    if not (a.together and b.together):
        a.divide()
        b.divide()
    yield from map(_Pair, a.buckets, b.buckets)


def _compare_bucket(pair: _Pair, matching: RecordMatcher, found: Difference) -> None:
    sides = [list(bucket.frames()) or [_no_rows(matching.compared.types)] for bucket in (pair.a, pair.b)]
    pair.a.clear()
    pair.b.clear()
    try:
        if matching.compared.key:
            found.a.repeated += matching.repeated(sides[0])
            found.b.repeated += matching.repeated(sides[1])
        found.add(matching.changes(*sides))
    except pl.exceptions.InvalidOperationError as error:
        problem = f"a sum of diffs is out of the range of 64 bits: {first_line(error)}"
        raise EngineError(problem, hint="a record is in a log too often") from None


def _small_enough(pair: _Pair, by: Sequence[str], scratch: Scratch, most: int, depth: int = 1) -> Iterator[_Pair]:
    """Yield a pair of buckets; if it is larger than `most` bytes, the pairs into which it is divided."""
    if pair.a.size + pair.b.size <= most or depth > DEPTH:
        yield pair
        return
    apart = []
    for bucket in (pair.a, pair.b):
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

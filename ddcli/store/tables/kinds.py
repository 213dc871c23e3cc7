"""The kinds of files that tables come in, by the endings of their names. Parquet and Arrow IPC are here.

Parquet, Arrow IPC, ORC and Avro state their columns themselves; of text and workbooks the pipeline states them.

polars reads some values of Parquet and Arrow IPC as others: times outside of a day become null, moments in seconds wrap around. pyarrow reads them as they are, so the columns of
such types, and no others, are read with pyarrow first.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EMFILE, ENOENT
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.io.plugins import register_io_source

from ddcli.errors import InputError, first_line
from ddcli.expressions.types import MAX_PRECISION, NESTED
from ddcli.store.files.access import LIMITS
from ddcli.store.parquet.row_groups import row_count
from ddcli.store.tables import footers
from ddcli.store.tables.compression import DAMAGED, Damage
from ddcli.store.tables.footers import EMPTY
from ddcli.store.tables.input_path import (
    IPC,
    PARQUET,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


DEEPEST = 100
"""The deepest nesting of types that pyarrow reads."""
Footer = dict[str, Any]
"""Types by column: polars' own, or, where polars is not imported, the types of `store.tables.footers`."""


def lazy_frame(frames: Callable[[], Iterable[pl.DataFrame]], schema: pl.Schema) -> pl.LazyFrame:
    """Return the rows of frames of this schema; no frame is taken after the last row that polars wants."""

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        for whole in frames():
            frame = whole.select(columns or pl.all()).head(whole.height if rows is None else rows)
            rows = None if rows is None else rows - frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if rows == 0:
                return

    return register_io_source(source, schema=schema, is_pure=True)


READ_ERRORS = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)  # a damaged page makes polars panic now and then


class Kind(ABC):
    """A kind of file: its columns, its rows and their places, and its damages. By default values have the types of the footer, and no other places than their file."""

    name: str

    @abstractmethod
    def footer(self, path: Path) -> Footer:
        """Return the columns of a file with their polars types; may raise the errors of polars and of the system."""

    @abstractmethod
    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        """Return all columns of files that agree."""

    def failing(self, names: Sequence[str]) -> Mapping[str, pl.Expr]:
        """Return, for those columns of a scan that are still text, the condition that is true for values that their type can't hold."""
        return {}

    def prepared(self, scan: pl.LazyFrame, names: Sequence[str]) -> pl.LazyFrame:
        """Return a scan with the helper columns that `failing` and `typed` need for these columns."""
        return scan

    def typed(self, names: Sequence[str]) -> list[pl.Expr]:
        """Return columns of a scan in the types of the footer."""
        return [pl.col(name) for name in names]

    def place(self, path: Path, row: int) -> str:
        """Return the place of a row for people."""
        return str(path)

    def lines(self, path: Path, rows: Sequence[int]) -> list[int | None]:
        """Return the line of each of some rows, which are in order, where a file has lines."""
        return [None] * len(rows)

    def find_damage(self, path: Path) -> Damage | None:
        """Return the damage of a file that its reader would pass over, if any."""
        return None

    def find_altered(self, path: Path, columns: Footer) -> Damage | None:
        """Return the first value of these columns that its reader would return as another, if any."""
        return None

    @abstractmethod
    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        """Return the damage of a file that can't be read."""

    def known_rows(self, path: Path) -> int | None:
        """Return the number of rows if its footer states it, or it was counted when damage was looked for; None: to be counted."""
        return None


class Parquet(Kind):
    """Parquet."""

    name = PARQUET

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        return pl.scan_parquet([*map(str, paths)], glob=False, hive_partitioning=False)  # a name with * is a name

    def footer(self, path: Path) -> Footer:
        found = self.scan([path]).collect_schema()
        _refuse_deep(path, found)
        return {
            name: footers.Unfit(footers.name_of(dtype)) if _is_beyond(dtype) else dtype for name, dtype in found.items()
        }

    def find_altered(self, path: Path, columns: Footer) -> Damage | None:
        doubtful = [name for name, dtype in columns.items() if _is_doubtful(dtype, seconds=self.name == IPC)]
        if not doubtful:  # nearly always, and then pyarrow is not imported
            return None
        import pyarrow as pa

        first = dict.fromkeys(doubtful, 0)
        try:
            with path.open("rb") as file:
                for name, array in _arrays(file, self.name, doubtful):
                    for values, least, most, hint in _limited(array):
                        if (row := _first_outside(values, least, most)) is not None:
                            whole, value = len(values) == len(array), values[row].value
                            where = f", first in row {first[name] + row} (counted from 0)" if whole else ""
                            problem = f"column '{name}' has a value that {array.type} can't have: {value}{where}"
                            return Damage(problem, str(path), hint)
                    first[name] += len(array)
        except (pa.ArrowException, ValueError) as error:
            raise pl.exceptions.ComputeError(first_line(error)) from None
        return None

    def known_rows(self, path: Path) -> int | None:
        return row_count(path) if self.name == PARQUET else None

    def why_damaged(self, path: Path, error: BaseException) -> Damage:
        if beyond := footers.decimal_beyond(path):
            return Damage(beyond, str(path), "write it with at most 38 digits, or as text")
        problem, hint = footers.why_unread(path, self.name, error)
        return Damage(problem, str(path), hint)


class Ipc(Parquet):
    """Arrow IPC files, also known as Feather; not streams, which have no footer."""

    name = IPC

    def footer(self, path: Path) -> Footer:
        import pyarrow as pa

        odd = dict[str, bool]()
        with path.open("rb") as file, suppress(OSError, pa.ArrowException):  # other checks report a damaged footer
            odd = footers.odd_columns(pa.ipc.open_file(file).schema)  # polars panics at some types
        if not odd:
            return super().footer(path)
        stated = footers.stated(path)  # refuses a file that polars can't read at all
        return super().footer(path) | {name: stated[name] for name in odd}

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        return pl.scan_ipc([*map(str, paths)], glob=False, hive_partitioning=False)


def _refuse_deep(path: Path, found: pl.Schema) -> None:
    """Refuse a file whose columns are nested so deep that a reader runs out of its stack."""
    level = [(name, dtype) for name, dtype in found.items() if dtype.is_nested()]
    for _ in range(DEEPEST):
        level = [(name, inner) for name, dtype in level for inner in _inner(dtype) if inner.is_nested()]
    if level:
        problem = f"column '{level[0][0]}' is nested deeper than {DEEPEST} levels, and so the file can't be read"
        raise InputError(problem, place=str(path), hint="write the file without the column")


def _inner(dtype: object) -> list[Any]:
    """Return the types within a type."""
    if isinstance(dtype, pl.Struct):
        return [field.dtype for field in dtype.fields]
    inner = getattr(dtype, "inner", None)
    return [] if inner is None else [inner]


def _is_beyond(dtype: object, depth: int = 0) -> bool:
    """Return whether a type is, or holds, a decimal of more digits than polars computes with, or is nested deeper than records."""
    if isinstance(dtype, pl.Decimal):
        return dtype.precision > MAX_PRECISION
    return depth > NESTED or any(_is_beyond(each, depth + 1) for each in _inner(dtype))


TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY = 86_400
MOST_SECONDS = (2**63 - 1) // 1_000
"""The seconds that polars holds: it counts them in milliseconds."""
FAR = "write the column in milliseconds, or leave it out of the declared `columns`"


def _is_doubtful(dtype: Any, *, seconds: bool) -> bool:
    """Return whether a type of polars holds times, or moments that may be written in seconds: timestamps only of Arrow IPC."""
    if isinstance(dtype, pl.Struct):
        return any(_is_doubtful(field.dtype, seconds=seconds) for field in dtype.fields)
    if isinstance(dtype, pl.List | pl.Array):
        return _is_doubtful(dtype.inner, seconds=seconds)
    wide = isinstance(dtype, pl.Duration) or (seconds and isinstance(dtype, pl.Datetime))
    return isinstance(dtype, pl.Time) or (wide and dtype.time_unit == "ms")


def _arrays(file: Any, kind: str, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of columns, some rows at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    if kind == PARQUET:
        batches = parquet.ParquetFile(file).iter_batches(columns=list(names))
    else:
        whole = pa.ipc.open_file(file)
        batches = (whole.get_batch(number) for number in range(whole.num_record_batches))
    for batch in batches:
        yield from ((name, batch.column(name)) for name in names)


def _limited(array: Any) -> Iterator[tuple[Any, int, int, str]]:
    """Yield the arrays within one whose values have limits in polars, with the limits, and the hint for values outside."""
    from pyarrow import types

    from ddcli.store.tables.avro import TIME_HINT

    kind = array.type
    if types.is_time(kind):
        yield array, 0, DAY * TICKS[kind.unit] - 1, TIME_HINT
    elif (types.is_timestamp(kind) or types.is_duration(kind)) and kind.unit == "s":
        yield array, -MOST_SECONDS, MOST_SECONDS, FAR
    elif types.is_struct(kind):
        for inner in array.flatten():
            yield from _limited(inner)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from _limited(array.flatten())
    elif types.is_dictionary(kind):
        yield from _limited(array.dictionary)


def _first_outside(array: Any, least: int, most: int) -> int | None:
    import pyarrow as pa
    from pyarrow import compute

    numbers = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64()).cast(pa.int64())
    outside = compute.or_(compute.less(numbers, least), compute.greater(numbers, most))
    row: int = compute.index(outside, value=True).as_py()
    return row if row >= 0 else None


def unreadable(place: str, error: OSError) -> InputError:
    """Return the error for a file that the system does not let be read."""
    hint = LIMITS.get(error.errno or 0, "see its permissions and its directory's")
    why = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):  # of polars without a number
        why, hint = os.strerror(ENOENT), "another program has removed it meanwhile: run again"
    return InputError(f"the file can't be read: {why}", place=place, hint=hint)


@contextmanager
def refused(kind: Kind, path: Path) -> Iterator[None]:
    """Turn errors of a file's reader into errors of the input."""
    try:
        yield
    except OSError as error:
        raise unreadable(str(error.filename or path), error) from None
    except READ_ERRORS as error:
        raise damaged(kind, path, error) from None


def damaged(kind: Kind, path: Path, error: BaseException) -> InputError:
    """Return the error for a file that is not whole."""
    if (why := os.strerror(EMFILE)) in str(error):  # polars panics where it has no file left to begin with
        return InputError(f"the file can't be read: {why}", place=str(path), hint=LIMITS[EMFILE])
    if not path.stat().st_size:
        return InputError(EMPTY, place=str(path), hint=DAMAGED)
    return kind.why_damaged(path, error)

"""Values of Parquet and Arrow IPC that polars reads as others: times outside of a day become null, moments in seconds wrap around.

pyarrow reads them as they are, so the columns of such types, and no others, are read with it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.store.parquet.footers import IPC, PARQUET
from ddcli.store.tables.avro import TIME_HINT
from ddcli.store.tables.csv_records import Damage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY = 86_400
MOST_SECONDS = (2**63 - 1) // 1_000
"""The seconds that polars holds: it counts them in milliseconds."""
FAR = "write the column in milliseconds, or leave it out of the declared `columns`"


def doubtful_columns(kind: str, columns: Mapping[str, Any]) -> list[str]:
    """Return the columns in which polars may read a value as another: nearly always none, and then pyarrow is not imported."""
    return [name for name, dtype in columns.items() if _is_doubtful(dtype, seconds=kind == IPC)]


def find_altered(path: Path, kind: str, doubtful: Sequence[str]) -> Damage | None:
    """Return the first value of these columns that polars would read as another. Raises OSError and the errors of pyarrow."""
    with path.open("rb") as file:
        first = dict.fromkeys(doubtful, 0)
        for name, array in _arrays(file, kind, doubtful):
            for values, least, most, hint in _limited(array):
                if (row := _first_outside(values, least, most)) is not None:
                    where = f", first in row {first[name] + row} (counted from 0)" if len(values) == len(array) else ""
                    problem = f"column '{name}' has a value that {array.type} can't have: {values[row].value}{where}"
                    return Damage(problem, str(path), hint)
            first[name] += len(array)
    return None


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

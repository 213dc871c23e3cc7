"""Python records to matrices and back.

Python values of the library's records take microseconds where a frame would cost milliseconds: integers, floats, booleans and strings are converted
here; values of the other kinds go through polars, a column at a time.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.lanes import NULL, NullInRequired, decode_column, encode_column, float_lanes, float_values, null_mask
from ddcli.errors import InputError
from ddcli.expressions.nanoseconds import to_values
from ddcli.expressions.types import FLAGGED, FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.lanes import Lanes, Layout
    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Type


TOP = 2**63
ACCEPTED: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(INTEGERS, (int,)),
    **dict.fromkeys(FLOATS, (float, int)),
    "bool": (bool,),
    "string": (str,),
    "binary": (bytes,),
}
INTEGER = {int}
RANGES = {kind: (int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in INTEGERS}


def encode_values(values: Sequence[Any], name: str, column: Type, pool: Pool, out: Lanes) -> None:
    """Write the lanes of a column's Python values into `out`, an (n, column.lanes) view of any strides.

    Raises InputError for a value that is not of the type, NullInRequired for None where the type refuses it.
    """
    kind = column.kind
    accepted = ACCEPTED.get(kind)
    if accepted is None:
        _encode_through_polars(values, name, column, pool, out)
        return
    for row, value in enumerate(values):
        if value is None:
            if not column.nullable:
                raise NullInRequired(name, row)
        elif type(value) not in accepted:
            raise _refusal(value, name, column)
    if kind in INTEGERS:
        _encode_integers(values, name, column, out)
    elif kind == "bool":
        out[:, 0] = [value or 0 for value in values]
    elif kind in FLOATS:
        out[:, 0] = _float_lanes(values, name, column)
    else:
        out[:, 0] = pool.intern_bytes(_raw(values, name, column), column)
    if column.nullable:
        mask = [value is None for value in values]
        if kind in FLAGGED:
            out[:, 0] = mask
        else:
            out[:, 0][mask] = NULL


def decode_values(lanes: Lanes, column: Type, pool: Pool) -> list[Any]:
    """Return the Python values of a column's lanes, those with nanoseconds whole; see `expressions.nanoseconds`."""
    kind = column.kind
    if kind in ("string", "binary"):
        found = pool.bytes_of(lanes[:, 0], column)
        return [None if value is None else value.decode() for value in found] if kind == "string" else found
    if kind in INTEGERS:
        values: list[Any] = lanes[:, -1].tolist()
        if kind == "uint64":
            values = [value + TOP for value in values]
    elif kind == "bool":
        values = (lanes[:, 0] != 0).tolist()
    elif kind in FLOATS:
        values = float_values(lanes[:, 0]).tolist()
    else:
        return to_values(decode_column(lanes, column, pool, ""), column)
    mask = null_mask(lanes, column)
    if mask is None:
        return values
    return [None if null else value for value, null in zip(values, mask.tolist(), strict=True)]


def _encode_integers(values: Sequence[int | None], name: str, column: Type, out: Lanes) -> None:
    low, high = RANGES[column.kind]
    for value in values:
        if value is not None and not low <= value <= high:
            raise _refusal(value, name, column)
    shift = TOP if column.kind == "uint64" else 0
    out[:, -1] = [0 if value is None else value - shift for value in values]


def _float_lanes(values: Sequence[float | None], name: str, column: Type) -> Lanes:
    try:
        numbers = np.array([0.0 if value is None else value for value in values], np.float64)
    except OverflowError:  # an integer beyond all floats
        raise _refusal(max(values, key=lambda value: abs(value or 0)), name, column) from None
    if column.kind == "float32":
        with np.errstate(over="ignore"):  # a number too large for it is infinite, as when polars casts
            numbers = numbers.astype(np.float32).astype(np.float64)
    return float_lanes(numbers)


def _raw(values: Sequence[Any], name: str, column: Type) -> list[bytes | None]:
    raw: list[bytes | None] = []
    for value in values:
        try:
            raw.append(value.encode() if isinstance(value, str) else value)
        except UnicodeEncodeError:  # half of a surrogate pair
            raise _refusal(value, name, column) from None
    return raw


def _encode_through_polars(values: Sequence[Any], name: str, column: Type, pool: Pool, out: Lanes) -> None:
    from ddcli.expressions.python_values import UnfitError, to_series  # it takes some ms to import

    try:
        series = to_series(name, values, column)
    except UnfitError as error:
        raise _refusal(values[error.row], name, column) from error
    encode_column(series, column, pool, out)


def _refusal(value: Any, name: str, column: Type) -> InputError:
    return InputError(f"column '{name}' can't hold {value!r}: its type is {column}")


def encode_records(records: Sequence[tuple[Any, ...]], layout: Layout, pool: Pool) -> Lanes:
    """Return the (n, width) matrix of Python records, a tuple of values each in the order of the columns.

    Raises InputError for a value that is not of its column's type or a record of another length, NullInRequired.
    """
    count = len(layout.names)
    for record in records:
        if not isinstance(record, tuple | list):
            raise InputError(
                f"the record {record!r} is not a tuple of values, one for each of: {', '.join(layout.names)}"
            )
        if len(record) != count:
            wanted = ", ".join(layout.names)
            raise InputError(f"the record {record!r} has {len(record)} values, not one for each of: {wanted}")
    if are_integers(records, layout):
        try:
            return np.array(records, np.int64).reshape(-1, count)
        except OverflowError:
            pass  # the general way below reports the column
    out = np.empty((len(records), layout.width), np.int64)
    for position, (name, column) in enumerate(layout.schema.items()):
        lanes = layout.lanes(name)
        values = [record[position] for record in records]
        encode_values(values, name, column, pool, out[:, lanes.start : lanes.stop])
    return out


def are_integers(records: Sequence[tuple[Any, ...]], layout: Layout) -> bool:
    """Return whether a layout has only int64 columns and each record is as many Python integers, of any size."""
    count = len(layout.names)
    if not layout.only_int64 or not count:
        return False
    try:
        lengths = {*map(len, records)}
    except TypeError:  # a value that stands for a record of itself is reported by the general way
        return False
    return lengths == {count} and {*map(type, chain.from_iterable(records))} == INTEGER


def decode_records(matrix: Lanes, layout: Layout, pool: Pool) -> list[tuple[Any, ...]]:
    """Return the Python records of a matrix that begins with a layout's lanes; lanes after them are ignored."""
    if layout.only_int64:
        return list(map(tuple, matrix[:, : layout.width].tolist()))
    columns = []
    for name, column in layout.schema.items():
        lanes = layout.lanes(name)
        columns.append(decode_values(matrix[:, lanes.start : lanes.stop], column, pool))
    return list(zip(*columns, strict=True))

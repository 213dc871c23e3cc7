"""Layouts and matrices: frames and records to int64 matrices and back.

A batch of updates is one C-contiguous int64 matrix `[data lanes | time lanes | diff]`. The lanes of a column are
adjacent and the columns are in the order of the schema, so an operator that only renames, drops or reorders columns, or
splits a record into key and value, permutes lanes and never reads a value. See `columns` for the lanes of each type.

Python values of the library's records take microseconds where a frame would cost milliseconds: integers, floats, booleans and strings are converted
here; values of the other kinds go through polars, a column at a time.
"""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.engine.arrow import series_of
from ddcli.engine.columns import (
    NULL,
    NullInRequired,
    check_column,
    decode_column,
    encode_column,
    float_lanes,
    float_values,
    null_mask,
)
from ddcli.errors import InputError
from ddcli.expressions.nanoseconds import to_values
from ddcli.expressions.python_values import UnfitError, to_series
from ddcli.expressions.types import FLAGGED, FLOATS, INTEGERS, POOLED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.columns import Lanes
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
    try:
        series = to_series(name, values, column)
    except UnfitError as error:
        raise _refusal(values[error.row], name, column) from error
    encode_column(series, column, pool, out)


def _refusal(value: Any, name: str, column: Type) -> InputError:
    return InputError(f"column '{name}' can't hold {value!r}: its type is {column}")


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.engine.columns import Lanes
    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Schema, Type

    Decoded = dict[tuple[int, Type], pl.Series]
    """Columns of a matrix, by their first lane there and their type."""


DIFF = "diff"


def time_names(nt: int) -> list[str]:
    """Return the names of the time columns of a frame of updates: "time", or "time0", "time1".. for a product.

    >>> time_names(2)
    ['time0', 'time1']
    """
    return ["time"] if nt == 1 else [f"time{at}" for at in range(nt)]


def to_frame(updates: np.ndarray, layout: Layout, pool: Pool, nt: int) -> pl.DataFrame:
    """Return updates as a frame: the data columns, then int64 times and diffs, with `_` in front where data have that name."""
    data = decode(updates, layout, pool)
    names = [*time_names(nt), DIFF]
    while set(names) & set(layout.schema):
        names = [f"_{name}" for name in names]
    tail = [series_of(name, updates[:, layout.width + at].copy()) for at, name in enumerate(names)]
    return pl.DataFrame([*data.get_columns(), *tail])


INTEGER = {int}
EXACT = frozenset({*INTEGERS, "bool", "date", "time", "datetime", "duration", "decimal", "string", "binary"})
"""The kinds of types whose values `decode` returns bit for bit as `encode` took them; floats, for one, have a single NaN and a single zero afterwards."""
MANY = 1 << 10
"""Rows from which on a kernel turns lanes into columns."""
BLOCK = 1 << 16
"""Rows encoded together: their columns are near the processor until the last of them is written."""


class Layout:
    """The columns of a record, in order, and their lanes. Immutable."""

    __slots__ = ("_first", "names", "only_int64", "schema", "width")

    def __init__(self, schema: Schema):
        self.schema = dict(schema)
        self.names = tuple(schema)
        widths = [column.lanes for column in schema.values()]
        *first, self.width = accumulate(widths, initial=0)
        self.only_int64 = all(column.kind == "int64" and not column.nullable for column in schema.values())
        self._first = {name: range(at, at + width) for name, at, width in zip(schema, first, widths, strict=True)}

    def lanes(self, name: str) -> range:
        """Return the adjacent lanes of a column."""
        return self._first[name]

    def take(self, names: Iterable[str]) -> list[int]:
        """Return the lanes of these columns, in the order of the names: the permutation that projects to them."""
        return [lane for name in names for lane in self._first[name]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and list(self.schema.items()) == list(other.schema.items())

    def __hash__(self) -> int:
        return hash(tuple(self.schema.items()))

    def __repr__(self) -> str:
        return "Layout(" + ", ".join(f"{name}: {column}" for name, column in self.schema.items()) + ")"


def encode(
    frame: pl.DataFrame,
    layout: Layout,
    pool: Pool,
    out: Lanes | None = None,
    at: int = 0,
    tail: Lanes | None = None,
    rows: Lanes | None = None,
) -> Lanes:
    """Write the layout's columns of a frame into lanes [at, at + width) of `out`, C-contiguous, or of a fresh matrix; return it.

    The lanes of `tail`, or of the given `rows` of it, are written behind them. Other columns of the frame are ignored. A column must have
    its type's dtype: the caller casts. Raises NullInRequired with the column and its first row.
    """
    if out is None:
        out = np.empty((frame.height, at + layout.width), np.int64)
    assert len(out) == frame.height, f"{len(out)} rows of room for {frame.height}"

    dtypes = frame.schema  # read once: each access builds it from all columns
    for name, column in layout.schema.items():
        dtype = dtypes[name]
        assert dtype == column.to_polars(), f"column '{name}' is {dtype}, not {column}"
    columns = np.empty((layout.width, min(frame.height, BLOCK)), np.int64)
    for start in range(0, frame.height, BLOCK):
        block = frame if frame.height <= BLOCK else frame.slice(start, BLOCK)
        # First each column by itself, then row by row: else each value would go to a line of memory that has left the cache since the one before.
        try:
            for name, column in layout.schema.items():
                lanes = layout.lanes(name)
                encode_column(block.get_column(name), column, pool, columns[lanes.start : lanes.stop, : block.height].T)
        except NullInRequired as error:
            raise NullInRequired(error.column, error.row + start, error.what) from None
        kernels.put_columns(columns, out, at, start, block.height, tail, rows)
    return out


def decode(
    matrix: Lanes,
    layout: Layout,
    pool: Pool,
    names: Iterable[str] | None = None,
    at: int = 0,
    decoded: Decoded | None = None,
) -> pl.DataFrame:
    """Return the columns `names` (all, when None) of a matrix whose data lanes begin at `at`.

    The exact inverse of `encode`, but for the one NaN and the one zero. The frame shares no memory with the matrix. Columns that are among
    The `decoded` columns, of this matrix so far, are taken from there; the others are added to it.
    """
    found: Decoded = {} if decoded is None else decoded
    wanted = [(name, layout.schema[name], layout.lanes(name)) for name in (layout.names if names is None else names)]
    unknown = [each for each in wanted if (at + each[2].start, each[1]) not in found]
    turned = None
    if len(matrix) >= MANY and matrix.flags.c_contiguous:
        # Otherwise each column would be read from the whole matrix, more than once where there may be nulls.
        turned = kernels.turned(matrix, [at + lane for _, _, lanes in unknown for lane in lanes])
    first = 0
    for name, kind, lanes in unknown:
        if turned is None:
            some = matrix[:, at + lanes.start : at + lanes.stop]
        else:
            some, first = turned[first : first + len(lanes)].T, first + len(lanes)
        found[at + lanes.start, kind] = decode_column(some, kind, pool, name)
    known = [(name, found[at + lanes.start, kind]) for name, kind, lanes in wanted]
    columns = [series if series.name == name else series.alias(name) for name, series in known]
    return pl.DataFrame(columns) if columns else pl.DataFrame(height=len(matrix))


def fresh(rows: int, lanes: int) -> Lanes:
    """Return a matrix of fresh memory."""
    return np.empty((rows, lanes), np.int64)


class Columns(NamedTuple):
    """Updates as they were read, before their data are in lanes: a frame with the columns of a layout, and `[time lanes | diff]`."""

    frame: pl.DataFrame
    layout: Layout
    pool: Pool
    tail: Lanes

    def check(self) -> None:
        """Raise the errors of `encode` for values without a representation in lanes: so a row is refused even where a later operator drops it."""
        for name, column in self.layout.schema.items():
            check_column(self.frame.get_column(name), column)

    def decoded(self, names: Sequence[str]) -> pl.DataFrame:
        """Return columns as `decode` would return them from the lanes."""
        inexact = Layout({n: kind for n in names if (kind := self.layout.schema[n]).kind not in EXACT})
        found = self.frame.select(names)
        return (
            found.with_columns(decode(encode(found, inexact, self.pool), inexact, self.pool))
            if inexact.names
            else found
        )

    def exact(self) -> Decoded:
        """Return the columns of the frame that `decode` would return unchanged from their lanes."""
        return {
            (self.layout.lanes(name).start, kind): self.frame.get_column(name)
            for name, kind in self.layout.schema.items()
            if kind.kind in EXACT
        }

    def chosen(self, mask: np.ndarray) -> Columns:
        """Return the updates for which a mask is true."""
        return self._replace(frame=self.frame.filter(mask), tail=self.tail[mask])

    def matrix(self, room: Callable[[int, int], Lanes] = fresh) -> Lanes:
        """Return `[data lanes | time lanes | diff]`; `room` returns a matrix with a number of rows and lanes, of any content, for them."""
        matrix = room(self.frame.height, self.layout.width + self.tail.shape[1])
        return encode(self.frame, self.layout, self.pool, matrix, tail=self.tail)


def hashed_lanes(layout: Layout) -> list[int]:
    """Return the lanes that are hashes of values."""
    return [layout.lanes(name).start for name, kind in layout.schema.items() if kind.kind in POOLED]


def ranks(matrix: Lanes, layout: Layout, pool: Pool, at: int = 0) -> Lanes:
    """Return the data lanes of a matrix with ranks in place of hashes: an order that does not depend on the secret."""
    ranked = matrix[:, at : at + layout.width].copy()
    for name, kind in layout.schema.items():
        if kind.kind in POOLED:
            lane = layout.lanes(name).start
            ranked[:, lane] = pool.ranks(ranked[:, lane], kind)
    return ranked


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

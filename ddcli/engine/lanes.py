"""Layouts and matrices: columns and frames to int64 lanes and back.

A batch of updates is one C-contiguous int64 matrix `[data lanes | time lanes | diff]`. The lanes of a column are
adjacent and the columns are in the order of the schema, so an operator that only renames, drops or reorders columns, or
splits a record into key and value, permutes lanes and never reads a value.

The meaning of a lane's 64 bits depends on the kind of type. The order of lanes is the order of values in all kinds but the hashed ones, with null last; and two values are equal exactly when
their lanes are. Kernels compare lanes and nothing else, so these two invariants make sorting and joining of matrices right.

A kind that leaves the pattern `NULL` (the largest int64) free uses it for null. A nullable column of a kind that needs
all 64 bits (`FLAGGED`) has a lane in front instead: 0 = present, 1 = null.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.engine.arrow import chunks, series_of, to_series
from ddcli.errors import InputError
from ddcli.expressions.moments import RANGE, leaves_years, year_of
from ddcli.expressions.types import FLAGGED, INTEGERS, POOLED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Schema, Type

    Lanes = NDArray[np.int64]
    Matrix = Lanes
    """Rows of lanes, C-contiguous."""

    Decoded = dict[tuple[int, Type], pl.Series]
    """Columns of a matrix, by their first lane there and their type."""

NULL = 2**63 - 1
SIGN = np.int64(-(2**63))


class NullInRequired(InputError):
    """A null in a column whose type refuses nulls."""

    def __init__(self, column: str, row: int, what: str = "a null"):
        super().__init__(
            f"column '{column}' has {what} in row {row}, but its type refuses nulls",
            hint=f"write the type of '{column}' with a '?' to allow nulls, or filter them out before",
        )
        self.column = column
        self.row = row
        self.what = what


def float_lanes(values: NDArray[np.float64]) -> Lanes:
    """Return int64 lanes in the order of the floats: -0.0 as 0.0, every NaN as one that sorts after infinity.

    IEEE patterns of positive floats are in order as they are, negative ones in reverse: all bits but the sign flip.
    NaN stays below `NULL`, because its pattern is the canonical quiet one.
    """
    fresh = values + 0.0  # also turns -0.0 into 0.0
    fresh[np.isnan(fresh)] = np.nan  # one sign and payload
    bits: Lanes = fresh.view(np.int64)
    flip = bits >> 63
    flip &= NULL
    bits ^= flip
    return bits


def float_values(lanes: Lanes) -> NDArray[np.float64]:
    """Return the floats of `float_lanes`."""
    flip = lanes >> 63
    flip &= NULL
    flip ^= lanes
    return flip.view(np.float64)


def encode_column(series: pl.Series, column: Type, pool: Pool, out: Lanes) -> None:
    """Write a column's lanes into `out`, an (n, column.lanes) view of any strides.

    Raises NullInRequired, InputError outside the years 1 to 9999; HashCollision from the pool. The dtype must be `column.to_polars()`.
    """
    check_column(series, column)
    nulls, kind = series.null_count(), column.kind
    if kind == "null":
        out[:, 0] = NULL
    elif kind in POOLED:
        out[:, 0] = pool.intern(series, column)
    elif kind == "decimal":
        _encode_decimal(series, column, out)
    elif not nulls:
        out[:, -1] = _physical(series, kind)
        if out.shape[1] == 2:
            out[:, 0] = 0
    else:
        mask = series.is_null().to_numpy()
        out[:, -1] = _physical(_filled(series, kind), kind)
        if kind in FLAGGED:
            np.copyto(out[:, 1], 0, where=mask)
            out[:, 0] = mask
        else:
            np.copyto(out[:, 0], NULL, where=mask)


def check_column(series: pl.Series, column: Type) -> None:
    """Raise NullInRequired, or InputError outside the years 1 to 9999, where a column has a value without a representation in lanes."""
    if not column.nullable and series.null_count():
        raise NullInRequired(series.name, _first_null(series))
    if column.inner is not None:
        _check_elements(series, column.inner)
    if column.fields:
        _check_fields(series, column)
    if column.kind in ("date", "datetime") and leaves_years(series):
        row = next(row for row in range(len(series)) if leaves_years(series[row : row + 1]))
        year = year_of(series[row : row + 1])
        raise InputError(f"column '{series.name}' has a {column.kind} in the year {year}, in row {row}", hint=RANGE)


def decode_column(lanes: Lanes, column: Type, pool: Pool, name: str) -> pl.Series:
    """Return the column whose lanes are `lanes`, an (n, column.lanes) view of any strides. Always copies."""
    kind = column.kind
    if kind == "null":
        return pl.Series(name, [None], dtype=pl.Null).new_from_index(0, len(lanes))
    if kind in POOLED:
        return pool.values(lanes[:, 0], column).alias(name)
    if kind == "decimal":
        return _decode_decimal(lanes, column, name)
    mask = null_mask(lanes, column)
    series = _from_physical(name, lanes[:, -1], column, mask)
    return series if mask is None else series.set(series_of("", mask), None)


def null_mask(lanes: Lanes, column: Type) -> NDArray[np.bool_] | None:
    """Return which rows are null, or None when none is."""
    if not column.nullable:
        return None
    mask: NDArray[np.bool_] = lanes[:, 0] == (1 if column.kind in FLAGGED else NULL)
    return mask if mask.any() else None


def _first_null(series: pl.Series) -> int:
    first = series.is_null().arg_max()
    assert first is not None
    return first


def _check_elements(lists: pl.Series, inner: Type) -> None:
    """Raise NullInRequired where a list has a null that the type of its elements refuses, at any depth."""
    elements = lists.explode(empty_as_null=False, keep_nulls=False)
    if elements.null_count() and not inner.nullable:
        ends = lists.list.len().fill_null(0).cum_sum().to_numpy()
        row = int(np.searchsorted(ends, _first_null(elements), side="right"))
        raise NullInRequired(lists.name, row, "a null in the list")
    if inner.inner is not None:
        _check_elements(elements, inner.inner)
    if inner.fields:
        _check_fields(elements, inner)


def _check_fields(structs: pl.Series, column: Type) -> None:
    """Raise NullInRequired where a struct has a null that the type of its field refuses, at any depth; the row is that among its parts."""
    there = structs.drop_nulls()
    for name, kind in column.fields:
        values = there.struct.field(name)
        if values.null_count() and not kind.nullable:
            row = int(structs.is_not_null().arg_true()[_first_null(values)])
            raise NullInRequired(structs.name, row, f"a null in the field '{name}'")
        if kind.inner is not None:
            _check_elements(values, kind.inner)
        if kind.fields:
            _check_fields(values, kind)


def _filled(series: pl.Series, kind: str) -> pl.Series:
    """Return the series with its nulls as zeros, so that numpy takes it in its own type."""
    if kind == "bool":
        return series.fill_null(value=False)
    if kind in ("date", "time", "datetime", "duration"):
        series = series.cast(pl.Int32 if kind == "date" else pl.Int64)
    return series.fill_null(0)


def _physical(series: pl.Series, kind: str) -> NDArray[np.int64]:
    """Return the lane values of a fixed-width column without nulls. Zero-copy when the column is one int64 chunk."""
    if kind in ("date", "time", "datetime", "duration"):
        series = series.cast(pl.Int32 if kind == "date" else pl.Int64)
    values = series.to_numpy()
    if kind == "uint64":
        return values.view(np.int64) ^ SIGN
    if kind in ("float32", "float64"):
        return float_lanes(values.astype(np.float64, copy=False))
    return values


def _from_physical(name: str, lane: Lanes, column: Type, mask: NDArray[np.bool_] | None) -> pl.Series:
    kind = column.kind
    if mask is not None and kind not in FLAGGED:
        lane = np.where(mask, 0, lane)  # NULL would not fit the narrower physical type
    if kind == "bool":
        return series_of(name, lane != 0)
    if kind in ("float32", "float64"):
        return series_of(name, float_values(lane).astype(kind, copy=False))
    if kind == "uint64":
        return series_of(name, (lane ^ SIGN).view(np.uint64))
    if kind == "date":
        return series_of(name, lane.astype(np.int32)).cast(pl.Date)
    if kind in ("time", "datetime", "duration"):
        return series_of(name, lane.copy()).cast(column.to_polars())
    return series_of(name, lane.astype(kind))  # always a copy: polars keeps the array


def _encode_decimal(series: pl.Series, column: Type, out: Lanes) -> None:
    """Write unscaled values: the low words of polars' 128-bit integers, and the high ones where 18 digits may not do.

    The low word is unsigned, so its sign bit is flipped to put it in order.
    """
    row = 0
    for chunk in chunks(series):
        words, nulls = chunk.words(2), chunk.nulls()
        part = out[row : row + len(words)]
        row += len(words)
        if column.is_wide:
            part[:, 0] = words[:, 1]
            np.bitwise_xor(words[:, 0], SIGN, out=part[:, 1])
        else:
            part[:, 0] = words[:, 0]
        if nulls is not None:
            part[nulls] = [NULL, 0][: part.shape[1]]


def _decode_decimal(lanes: Lanes, column: Type, name: str) -> pl.Series:
    mask = null_mask(lanes, column)
    words = np.empty((len(lanes), 2), np.int64)
    if column.is_wide:
        words[:, 1] = lanes[:, 0]
        np.bitwise_xor(lanes[:, 1], SIGN, out=words[:, 0])
    else:
        words[:, 0] = lanes[:, 0]
        np.right_shift(lanes[:, 0], 63, out=words[:, 1])
    if mask is not None:
        words[mask] = 0
    return to_series(f"d:{column.precision},{column.scale}", len(lanes), [words], mask).alias(name)


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

"""Columns to lanes and back: the meaning of 64 bits in each kind of type.

The order of lanes is the order of values in all kinds but the hashed ones, with null last; and two values are equal exactly when
their lanes are. Kernels compare lanes and nothing else, so these two invariants make sorting and joining of matrices right.

A kind that leaves the pattern `NULL` (the largest int64) free uses it for null. A nullable column of a kind that needs
all 64 bits (`FLAGGED`) has a lane in front instead: 0 = present, 1 = null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine.arrow import chunks, series_of, to_series
from ddcli.errors import InputError
from ddcli.expressions.moments import RANGE, leaves_years, year_of
from ddcli.expressions.types import FLAGGED, POOLED

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Type

    Lanes = NDArray[np.int64]
    Matrix = Lanes
    """Rows of lanes, C-contiguous."""

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
    import polars as pl

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
    import polars as pl

    if kind == "bool":
        return series.fill_null(value=False)
    if kind in ("date", "time", "datetime", "duration"):
        series = series.cast(pl.Int32 if kind == "date" else pl.Int64)
    return series.fill_null(0)


def _physical(series: pl.Series, kind: str) -> NDArray[np.int64]:
    """Return the lane values of a fixed-width column without nulls. Zero-copy when the column is one int64 chunk."""
    import polars as pl

    if kind in ("date", "time", "datetime", "duration"):
        series = series.cast(pl.Int32 if kind == "date" else pl.Int64)
    values = series.to_numpy()
    if kind == "uint64":
        return values.view(np.int64) ^ SIGN
    if kind in ("float32", "float64"):
        return float_lanes(values.astype(np.float64, copy=False))
    return values


def _from_physical(name: str, lane: Lanes, column: Type, mask: NDArray[np.bool_] | None) -> pl.Series:
    import polars as pl

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

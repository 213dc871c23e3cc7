"""Rows of two frames that are equal, in pairs: those at the same places, those with one value in a column that seems to identify rows, and those with one hash.

Rows are compared column by column before they count as equal. Numbers without nulls are compared as the words that they are, by numpy: polars
takes three times as long to put them in another order.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from ddcli.engine.kernels.pairing import deal, keep_equal_texts, pair

FEW = 4
"""Of how many rows one may be left for a comparison place by place to do."""
SAMPLE = 256
"""Rows that are looked at before all are compared place by place, or paired by one column."""
TOGETHER = 14
"""Hashes that are paired together are as many as this power of two, or fewer."""
SPREAD = np.int64(-7046029254386353131)
"""An odd number: no two integers have the same product with it in 64 bits, and those of near ones are far apart."""
NUMBERS = {pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64}
TEXTS = {pl.String, pl.Binary}


def different(left: pl.DataFrame, right: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames without rows that both have, each as often as both have it; some of these may stay.

    >>> left, right = pl.DataFrame({"a": [1, 2, 2, 3]}), pl.DataFrame({"a": [2, 4, 1]})
    >>> [frame["a"].to_list() for frame in different(left, right)]
    [[2, 3], [4]]
    """
    ours, theirs = _Rows(left), _Rows(right)
    if left.height == right.height and _mostly_equal(ours, theirs):
        apart = apart_rows(left, right)
        left, right = left.filter(apart), right.filter(apart)
        if left.height * FEW <= len(apart):
            return left, right
        ours, theirs = _Rows(left), _Rows(right)
    key = _key(ours)
    if key is not None and key not in theirs.nulls:
        left, right = _unpaired(ours, theirs, _spread(ours.words[key]), _spread(theirs.words[key]), known=key)
        ours, theirs = _Rows(left), _Rows(right)
    if left.height and right.height:
        left, right = _unpaired(ours, theirs, _hashes(left), _hashes(right))
    return left, right


class _Rows:
    """A frame, and the values of its columns as far as they can be compared without polars."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self.nulls = {each.name: each.is_null().to_numpy() for each in frame.get_columns() if each.null_count()}

    @cached_property
    def words(self) -> dict[str, np.ndarray[Any, Any]]:
        """Integers for the values of columns of numbers, others for others; for null any. A float may have several: its rows count as different by them."""
        names = [name for name, dtype in self.frame.schema.items() if dtype in NUMBERS or dtype.is_temporal()]
        plain = self.frame.select(pl.col(names).to_physical())
        plain = plain.fill_null(0) if self.nulls.keys() & {*names} else plain
        found = ((each.name, each.to_numpy()) for each in plain.get_columns())
        return {name: values.view(f"i{values.itemsize}") for name, values in found}

    @cached_property
    def texts(self) -> dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Where the values of columns of texts or bytes end, and all of their bytes; those of null are any."""
        found = {}
        for each in self.frame.get_columns():
            if each.dtype in TEXTS:
                array = each.to_arrow(compat_level=pl.CompatLevel.oldest())
                _, ends, data = array.buffers()
                whole = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
                found[each.name] = whole, np.frombuffer(data or b"", np.uint8)
        return found

    @cached_property
    def some(self) -> np.ndarray[Any, Any]:
        """The places of some rows."""
        return np.arange(0, self.frame.height, max(self.frame.height // SAMPLE, 1))


def _mostly_equal(left: _Rows, right: _Rows) -> bool:
    """Say whether of some rows most are those at the same places of a frame of the same height."""
    most = len(left.some) * 3
    apart = np.zeros(len(left.some), np.bool_)
    for name, words in left.words.items():
        apart |= words[left.some] != right.words[name][left.some]
    if left.words:
        return int(apart.sum()) * FEW <= most
    return int(apart_rows(left.frame[left.some], right.frame[left.some]).sum()) * FEW <= most


def _key(rows: _Rows) -> str | None:
    """Return a column whose values seem to identify rows, integers or moments without nulls; None where there is none."""
    if rows.frame.height <= SAMPLE:
        return None
    for name, values in rows.words.items():
        if (
            name not in rows.nulls
            and not rows.frame.schema[name].is_float()
            and len(np.unique(values[rows.some])) == len(rows.some)
        ):
            return name
    return None


def _spread(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a number for each value, others for others."""
    return words.astype(np.int64) * SPREAD


def _hashes(frame: pl.DataFrame) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = frame.hash_rows(1).to_numpy()
    return found.view(np.int64)


def _unpaired(
    left: _Rows,
    right: _Rows,
    ours: np.ndarray[Any, Any],
    theirs: np.ndarray[Any, Any],
    known: str | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames without equal rows with the same number, each paired with another one; those with one number have one value of `known`."""
    found = pairs(ours, theirs)
    places = np.flatnonzero(found >= 0)
    theirs, all_paired = found[places], len(places) == len(found)
    equal = np.ones(len(places), np.uint8)
    for name in left.nulls.keys() | right.nulls.keys():
        mine, its = (side.nulls.get(name, np.zeros(side.frame.height, np.bool_)) for side in (left, right))
        equal &= mine[places] == its[theirs]
    for name, words in left.words.items() if len(places) else ():
        if name != known:
            equal &= (words if all_paired else words[places]) == right.words[name][theirs]
    for name, texts in left.texts.items() if len(places) else ():
        keep_equal_texts(*texts, *right.texts[name], places, theirs, equal)
    others = [name for name in left.frame.columns if name not in left.words and name not in left.texts]
    if others:
        matched = [left.frame.select(others)[places], right.frame.select(others)[theirs]]
        equal &= ~apart_rows(*matched).to_numpy()
    return _without(left.frame, places[equal != 0]), _without(right.frame, theirs[equal != 0])


def apart_rows(left: pl.DataFrame, right: pl.DataFrame) -> pl.Series:
    """Return where two frames of one height have different rows."""
    names = [f"{at}" for at in range(left.width)]
    sides = zip(left.get_columns(), right.get_columns(), names, strict=True)
    both = pl.DataFrame([each for ours, theirs, at in sides for each in (ours.alias(at), theirs.alias(f"-{at}"))])
    return both.select(pl.any_horizontal(pl.col(at).ne_missing(pl.col(f"-{at}")) for at in names)).to_series()


def _without(frame: pl.DataFrame, rows: np.ndarray[Any, Any]) -> pl.DataFrame:
    kept = np.ones(frame.height, np.bool_)
    kept[rows] = False
    return frame.filter(pl.Series(kept))


def pairs(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return for each number on the left the place of an equal one on the right, or -1; no place twice.

    >>> pairs(np.array([5, 7, 9]), np.array([9, 8, 5, 6])).tolist()
    [2, -1, 0]
    """
    bits = max((right.size >> TOGETHER).bit_length(), 1)
    ours, theirs = (_Dealt(side, bits) for side in (left, right))
    largest = int(np.diff(theirs.ends, prepend=0).max())
    firsts, slots = np.empty((2, 4 << largest.bit_length()), np.int64)
    paired, following = np.empty(left.size, np.int64), np.empty(right.size, np.int64)
    pair(ours.numbers, theirs.numbers, ours.ends, theirs.ends, firsts, slots, following, paired)
    found = np.full(left.size, -1)
    found[ours.places] = np.where(paired < 0, -1, theirs.places[paired]) if right.size else -1
    return found


class _Dealt:
    """Numbers in parts by their first bits, and the place of each."""

    def __init__(self, numbers: np.ndarray[Any, Any], bits: int) -> None:
        self.ends = np.zeros(1 << bits, np.int64)
        self.numbers, self.places = np.empty((2, numbers.size), np.int64)
        deal(numbers, 64 - bits, self.ends, self.numbers, self.places)

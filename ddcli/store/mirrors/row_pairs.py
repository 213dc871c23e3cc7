"""Rows of two frames that are equal, in pairs: those at the same places, those with one value in a column that seems to identify rows, and those with one hash.

Rows are compared column by column before they count as equal. Numbers without nulls are compared as the words that they are, by numpy: polars
takes three times as long to put them in another order.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from ddcli.engine.arrow import Chunk, Memory, chunks
from ddcli.engine.kernels.pairs import deal, keep_equal_texts, keep_equal_words, pair, pair_near
from ddcli.engine.kernels.pool_table import view_ranges
from ddcli.named_tuple import NamedTuple

FEW = 4
"""Of how many rows one may be left for a comparison place by place to do."""
SAMPLE = 256
"""Rows that are looked at before all are compared place by place, or paired by one column."""
TOGETHER = 14
"""Hashes that are paired together are as many as this power of two, or fewer."""
NEAR = 4
"""Numbers are near each other whose range is at most so many times as wide as there are of them."""
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
    if left.is_empty() or right.is_empty():
        return left, right
    ours, theirs = _Rows(left), _Rows(right)
    if left.height == right.height and _mostly_equal(ours, theirs):
        apart = apart_rows(left, right)
        left, right = left.filter(apart), right.filter(apart)
        if left.height * FEW <= len(apart):
            return left, right
        ours, theirs = _Rows(left), _Rows(right)
    key = _key(ours)
    if key is not None and key not in theirs.nulls:
        left, right = _unpaired(ours, theirs, pairs(ours.words[key], theirs.words[key], spread=False))
        ours, theirs = _Rows(left), _Rows(right)
    if left.height and right.height:
        left, right = _unpaired(ours, theirs, pairs(_hashes(left), _hashes(right)))
    return left, right


class _Texts(NamedTuple):
    """Where the texts of a column lie, and how long they are; -1: null. `chunks` are what must stay alive for that, `within` where their memory begins and ends."""

    starts: np.ndarray[Any, Any]
    lengths: np.ndarray[Any, Any]
    chunks: list[Chunk]
    within: list[int]


class _Rows:
    """A frame, and the values of its columns as far as they can be compared without polars."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self.nulls = {
            each.name: each.is_null().to_numpy()
            for each in frame.get_columns()
            if each.null_count() and each.dtype not in TEXTS
        }

    @cached_property
    def words(self) -> dict[str, np.ndarray[Any, Any]]:
        """Integers for the values of columns of numbers, others for others; for null any. A float may have several: its rows count as different by them."""
        names = [name for name, dtype in self.frame.schema.items() if dtype in NUMBERS or dtype.is_temporal()]
        plain = self.frame.select(pl.col(names).to_physical())
        plain = plain.fill_null(0) if self.nulls.keys() & {*names} else plain
        found = ((each.name, each.to_numpy()) for each in plain.get_columns())
        return {name: values.view(f"i{values.itemsize}").astype(np.int64, copy=False) for name, values in found}

    @cached_property
    def texts(self) -> dict[str, _Texts]:
        """Where the values of columns of texts or bytes lie."""
        return {each.name: _texts(each) for each in self.frame.get_columns() if each.dtype in TEXTS}

    @cached_property
    def some(self) -> np.ndarray[Any, Any]:
        """The places of some rows."""
        return np.arange(0, self.frame.height, max(self.frame.height // SAMPLE, 1))


def _mostly_equal(left: _Rows, right: _Rows) -> bool:
    """Return whether of some rows most are those at the same places of a frame of the same height."""
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


def _texts(series: pl.Series) -> _Texts:
    starts, lengths = np.empty((2, len(series)), np.int64)
    found = _Texts(starts, lengths, [*chunks(series)], [])
    row = 0
    for chunk in found.chunks:
        views, nulls = chunk.words(2), chunk.nulls()
        own, buffers = views.__array_interface__["data"][0], chunk.viewed()
        rows = slice(row, row := row + len(views))
        view_ranges(views, np.array([at for at, _ in buffers], np.int64), own, starts[rows], lengths[rows])
        if nulls is not None:
            lengths[rows][nulls] = -1
        found.within.extend(end for at, size in [(own, views.nbytes), *buffers] if size for end in (at, at + size))
    return found


def _hashes(frame: pl.DataFrame) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = frame.hash_rows(1).to_numpy()
    return found.view(np.int64)


def _unpaired(left: _Rows, right: _Rows, found: np.ndarray[Any, Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames without rows that are equal to those that they are paired with: `found` has the place of that, or -1."""
    equal = (found >= 0).view(np.uint8)
    for name in left.nulls.keys() | right.nulls.keys():
        mine, its = (side.nulls.get(name, np.zeros(side.frame.height, np.bool_)) for side in (left, right))
        equal &= mine == its[found]
    for name, words in left.words.items():
        keep_equal_words(words, right.words[name], found, equal)
    for name, texts in left.texts.items():
        _keep_equal(texts, right.texts[name], found, equal)
    others = [name for name in left.frame.columns if name not in left.words and name not in left.texts]
    if others:
        places = np.flatnonzero(equal)
        equal[places] = ~apart_rows(left.frame.select(others)[places], right.frame.select(others)[found[places]])
    kept = np.ones(right.frame.height, np.bool_)
    kept[found[equal != 0]] = False
    return left.frame.filter(pl.Series(equal == 0)), right.frame.filter(pl.Series(kept))


def _keep_equal(left: _Texts, right: _Texts, found: np.ndarray[Any, Any], equal: np.ndarray[Any, Any]) -> None:
    """Write 0 for rows of which the texts are others than those of their pairs."""
    within = [*left.within, *right.within]
    if within:
        base = min(within)
        data = np.asarray(Memory(base, (max(within) - base,), "|u1", (left, right)))
        keep_equal_texts(data, base, left.starts, left.lengths, right.starts, right.lengths, found, equal)


def apart_rows(left: pl.DataFrame, right: pl.DataFrame) -> pl.Series:
    """Return where two frames of one height have different rows."""
    names = [f"{at}" for at in range(left.width)]
    sides = zip(left.get_columns(), right.get_columns(), names, strict=True)
    both = pl.DataFrame([each for ours, theirs, at in sides for each in (ours.alias(at), theirs.alias(f"-{at}"))])
    return both.select(pl.any_horizontal(pl.col(at).ne_missing(pl.col(f"-{at}")) for at in names)).to_series()


def pairs(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], *, spread: bool = True) -> np.ndarray[Any, Any]:
    """Return for each number on the left the place of an equal one on the right, or -1; no place twice.

    If they are not `spread`, many may begin with the same bits.

    >>> pairs(np.array([5, 7, 9]), np.array([9, 8, 5, 6])).tolist()
    [2, -1, 0]
    """
    if not right.size:
        return np.full(left.size, -1)
    paired, following = np.empty(left.size, np.int64), np.empty(right.size, np.int64)
    least = int(right.min())
    room = int(right.max()) - least + 1
    if room <= NEAR * right.size:
        pair_near(left, right, least, np.empty(room, np.int64), following, paired)
        return paired
    bits = max((right.size >> TOGETHER).bit_length(), 1)
    ours, theirs = (_Dealt(side if spread else side * SPREAD, bits) for side in (left, right))
    largest = int(np.diff(theirs.ends, prepend=0).max())
    firsts, slots = np.empty((2, 4 << largest.bit_length()), np.int64)
    pair(ours.numbers, theirs.numbers, ours.ends, theirs.ends, firsts, slots, following, paired)
    found = np.empty(left.size, np.int64)
    found[ours.places] = np.where(paired < 0, -1, theirs.places[paired])
    return found


class _Dealt:
    """Numbers in parts by their first bits, and the place of each."""

    def __init__(self, numbers: np.ndarray[Any, Any], bits: int) -> None:
        self.ends = np.zeros(1 << bits, np.int64)
        self.numbers, self.places = np.empty((2, numbers.size), np.int64)
        deal(numbers, 64 - bits, self.ends, self.numbers, self.places)

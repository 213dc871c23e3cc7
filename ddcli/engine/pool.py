"""The pool: the value that each 64-bit hash in a matrix stands for.

Strings, binaries, lists and structs are hashed into their lane (under a secret, the UTF-8, the raw bytes, the lanes of a list's
elements, or of a struct's fields). The pool remembers the bytes, so that lanes can be decoded, and refuses a second value with the hash of a
first one: a collision is an error that names both, never a silent merge, and a run begins again under another secret. The
pool belongs to the process and is no part of the state: files hold real values, and loading them hashes again.

A lane must be a function of the value and the secret alone, as batches of different times and processes are merged by it. So
a collision can't be resolved by giving the second value another lane: other processes don't know which one is second.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from os import urandom
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine.arrow import Memory, chunks, series_of, to_series
from ddcli.engine.kernels.hashes import INITIAL, hash_ranges, keyed_ranges
from ddcli.engine.kernels.pool_table import MEMO_BITS, WINDOW, PoolTable, different_views
from ddcli.engine.lanes import NULL, decode_column, encode_column
from ddcli.errors import EngineError
from ddcli.expressions.types import POOLED, Type, from_polars

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from ddcli.engine.lanes import Lanes

    Hasher = Callable[[Lanes, Lanes, np.ndarray, Lanes], object]


SIZE = 16
"""Bytes of a secret."""
PUBLIC = b""
"""No secret: xxHash64 with seed 0, for values that no order or shard on disk depends on."""


def new_secret() -> bytes:
    """Return a new random secret."""
    return urandom(SIZE)


BLOCK = 1 << 16  # rows whose places, lengths and hashes stay in the cache between the kernels
SHOWN = 200  # characters of a value in a message


class HashCollision(EngineError):
    """Two different values have one 64-bit hash."""

    def __init__(self, first: object, second: object):
        shown = [text if len(text) <= SHOWN else text[:SHOWN] + "..." for text in (repr(first), repr(second))]
        super().__init__(
            f"two different values have the same 64-bit hash: {shown[0]} and {shown[1]}",
            hint="`dd run` chooses another secret for the state, under which they differ",
        )
        self.values = (first, second)


def hasher(secret: bytes) -> Hasher:
    """Return the function that writes the lanes of ranges of bytes."""
    if secret == PUBLIC:
        return hash_ranges
    words = initial_words(secret)
    return lambda starts, lengths, data, out: keyed_ranges(starts, lengths, data, words, out)


def initial_words(secret: bytes) -> np.ndarray:
    """Return the four words with which hashing under a secret of 16 bytes begins."""
    k = [int.from_bytes(secret[at : at + 8], "little") for at in (0, 8)]
    return np.array([word ^ k[at % 2] for at, word in enumerate(INITIAL)], np.uint64)


class Pool:
    """The values behind hashed lanes, a table for each kind of type. Tables are made when values are first interned."""

    def __init__(self, secret: bytes) -> None:
        """Hash under a secret: the secret of the state whose files are read, if there is one."""
        self.secret = secret
        self._hasher = hasher(secret)
        self._tables: dict[Type, PoolTable] = {}

    def forget(self) -> None:
        """Drop all values: no lane that was made before can be decoded any more."""
        self._tables.clear()

    @property
    def size(self) -> int:
        """Return the number of bytes that its values take."""
        return sum(table.size for table in self._tables.values())

    def intern(self, series: pl.Series, column: Type | None = None) -> Lanes:
        """Return the lane of each value of a string, binary, list or struct column; null is `NULL`. Raises HashCollision."""
        column = column or from_polars(series.dtype, nullable=True)
        assert column is not None, f"no lanes for {series.dtype}"
        kind = _kind(column)
        if column.kind == "list":
            return self._intern_lists(series, kind)
        if column.kind == "struct":
            return self._intern_structs(series, kind)
        lanes = np.empty(len(series), np.int64)
        row, none = 0, np.empty(0, np.uint8)
        for chunk in chunks(series):
            views, nulls = chunk.words(2), chunk.nulls()
            if not len(views):
                continue
            own, buffers = views.__array_interface__["data"][0], chunk.viewed()
            # One array over everything from the lowest to the highest byte of the chunk: the kernels read in it only
            # where the views point, and need not know the buffers.
            end = max(own + views.nbytes, *(at + size for at, size in buffers), 0)
            base = min(own, *(at for at, size in buffers if size), own)
            data = np.asarray(Memory(base, (end - base,), "|u1", chunk))
            bases = np.array([at - base for at, _ in buffers], np.int64)
            for at in range(0, len(views), BLOCK):
                block = views[at : at + BLOCK]
                numbers = lanes[row + at : row + at + len(block)]
                starts, lengths = np.empty((2, len(block)), np.int64)
                there = none if nulls is None else nulls[at : at + BLOCK].view(np.uint8)
                memo = np.zeros((1 << MEMO_BITS, 3), np.int64)
                count = different_views(block, there, bases, own - base + 16 * at, memo, numbers, starts, lengths)
                if count == len(block):
                    self._insert(kind, starts, lengths, data, numbers)
                    continue
                found = np.full(count + 1, NULL)  # a null has the number -1
                self._insert(kind, starts[:count], lengths[:count], data, found[:count])
                numbers[:] = found[numbers]
            row += len(views)
        return lanes

    def intern_ranges(self, starts: Lanes, lengths: Lanes, data: np.ndarray, column: Type) -> Lanes:
        """Return the lane of each range of bytes of a string or binary type; a length of -1 stands for null."""
        lanes, kind = np.empty(len(starts), np.int64), _kind(column)
        for at in range(0, len(starts), BLOCK):
            some = slice(at, at + BLOCK)
            self._insert(kind, starts[some], lengths[some], data, lanes[some])
        return lanes

    def intern_bytes(self, values: Sequence[bytes | None], column: Type) -> Lanes:
        """Return the lane of each value of a string or binary type: the quick way for a few of them."""
        data = np.frombuffer(b"".join(value for value in values if value) or b"\0", np.uint8)
        lengths = np.array([-1 if value is None else len(value) for value in values], np.int64)
        starts = np.zeros(len(values), np.int64)
        np.cumsum(np.maximum(lengths[:-1], 0), out=starts[1:])
        lanes = np.empty(len(values), np.int64)
        self._insert(_kind(column), starts, lengths, data, lanes)
        return lanes

    def values(self, lanes: Lanes, column: Type) -> pl.Series:
        """Return the values that lanes of a type stand for; `NULL` becomes null. The bytes are not copied."""
        lanes = np.ascontiguousarray(lanes)
        nulls = lanes == NULL if column.nullable else None
        if nulls is not None and not nulls.any():
            nulls = None
        kind = _kind(column)
        table = self._table(kind)
        if kind.inner is not None:
            return self._list_values(table, lanes, kind.inner, nulls)
        if kind.fields:
            return self._struct_values(table, lanes, kind, nulls)
        views, windows = table.views(lanes)
        sizes = np.array([len(window) for window in windows], np.int64)
        return to_series("vu" if column.kind == "string" else "vz", len(lanes), [views, *windows, sizes], nulls)

    def has(self, lanes: Lanes, column: Type) -> bool:
        """Return whether all lanes of a type stand for values in the pool, or for null."""
        return self._table(_kind(column)).has(np.ascontiguousarray(lanes))

    def bytes_of(self, lanes: Lanes, column: Type) -> list[bytes | None]:
        """Return the bytes that lanes of a string or binary type stand for: the quick way for a few of them."""
        lanes = np.ascontiguousarray(lanes)
        offsets, data = self._table(_kind(column)).bytes_of(lanes)
        ends, whole = offsets.tolist(), data.tobytes()
        return [None if lane == NULL else whole[ends[i] : ends[i + 1]] for i, lane in enumerate(lanes.tolist())]

    @cached_property
    def mark(self) -> str:
        """A mark of the secret that does not reveal it: the hash of the empty text under it, in digits; empty without a secret."""
        lane = np.empty(1, np.int64)
        self._hasher(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.uint8), lane)
        return lane.tobytes().hex() if self.secret != PUBLIC else ""

    def ranks(self, lanes: Lanes, column: Type) -> Lanes:
        """Return ranks of the values that lanes stand for, in an order that does not depend on the secret: the order of their lanes without one."""
        lanes = np.ascontiguousarray(lanes)
        if self.secret == PUBLIC:
            return lanes
        kind = _kind(column)
        offsets, data = self._table(kind).bytes_of(lanes)
        parts = _parts(kind)
        if any(part.kind in POOLED for part in parts):
            matrix = data.view(np.int64).reshape(-1, sum(part.lanes for part in parts)).copy()
            for lane, part in zip(_first_lanes(parts), parts, strict=True):
                if part.kind in POOLED:
                    matrix[:, lane] = self.ranks(matrix[:, lane], part)
            data = matrix.reshape(-1).view(np.uint8)
        lengths = np.diff(offsets)
        lengths[lanes == NULL] = -1
        ranks = np.empty(len(lanes), np.int64)
        hash_ranges(offsets[:-1].copy(), lengths, data, ranks)
        return ranks

    def _table(self, kind: Type) -> PoolTable:
        """Return the table of a kind. `setdefault` is atomic, so that two threads get one table."""
        table = self._tables.get(kind)
        return self._tables.setdefault(kind, PoolTable()) if table is None else table

    def _insert(self, kind: Type, starts: Lanes, lengths: Lanes, data: np.ndarray, out: Lanes) -> None:
        """Hash ranges of bytes into `out` and remember them."""
        longest = int(lengths.max(initial=0))
        if longest >= WINDOW:
            raise EngineError(f"a value of {longest} bytes is too long: values must be shorter than 1 GiB")
        self._hasher(starts, lengths, data, out)
        table = self._table(kind)
        row = table.insert(out, starts, lengths, data)
        if row is not None:
            offsets, old = table.bytes_of(out[row : row + 1])
            new = data[starts[row] : starts[row] + lengths[row]]
            raise HashCollision(self._show(old[offsets[0] :], kind), self._show(new, kind))

    def _intern_lists(self, series: pl.Series, kind: Type) -> Lanes:
        """Hash each list by the lanes of its elements, which are interned first where they are hashed themselves."""
        assert kind.inner is not None
        elements = series.explode(empty_as_null=False, keep_nulls=False)
        matrix = np.empty((len(elements), kind.inner.lanes), np.int64)
        encode_column(elements, kind.inner, self, matrix)
        counts = series.list.len()
        lengths = counts.fill_null(0).to_numpy().astype(np.int64) * (matrix.shape[1] * 8)
        starts = np.cumsum(lengths) - lengths
        if counts.null_count():
            lengths[counts.is_null().to_numpy()] = -1
        lanes = np.empty(len(series), np.int64)
        self._insert(kind, starts, lengths, matrix.reshape(-1).view(np.uint8), lanes)
        return lanes

    def _intern_structs(self, series: pl.Series, kind: Type) -> Lanes:
        """Hash each struct by the lanes of its fields, which are interned first where they are hashed themselves."""
        parts = _parts(kind)
        matrix = np.empty((len(series), sum(part.lanes for part in parts)), np.int64)
        for lane, (name, part) in zip(_first_lanes(parts), kind.fields, strict=True):
            encode_column(series.struct.field(name), part, self, matrix[:, lane : lane + part.lanes])
        lengths = np.full(len(series), matrix.shape[1] * 8)
        starts = np.arange(len(series)) * (matrix.shape[1] * 8)
        if series.null_count():
            lengths[series.is_null().to_numpy()] = -1
        lanes = np.empty(len(series), np.int64)
        self._insert(kind, starts, lengths, matrix.reshape(-1).view(np.uint8), lanes)
        return lanes

    def _struct_values(self, table: PoolTable, lanes: Lanes, kind: Type, nulls: np.ndarray | None) -> pl.Series:
        _, data = table.bytes_of(lanes)
        parts = _parts(kind)
        matrix = np.full((len(lanes), sum(part.lanes for part in parts)), NULL)
        matrix[slice(None) if nulls is None else ~nulls] = data.view(np.int64).reshape(-1, matrix.shape[1])
        found = self._structs(matrix, kind)
        if nulls is None:
            return found
        return found.zip_with(series_of("", ~nulls), _nulls(found))

    def _structs(self, matrix: Lanes, kind: Type) -> pl.Series:
        """Return the structs of the lanes of their fields."""
        import polars as pl

        columns = [
            decode_column(matrix[:, lane : lane + part.lanes], part, self, name)
            for lane, (name, part) in zip(_first_lanes(_parts(kind)), kind.fields, strict=True)
        ]
        return pl.DataFrame(columns).to_struct("")

    def _list_values(self, table: PoolTable, lanes: Lanes, inner: Type, nulls: np.ndarray | None) -> pl.Series:
        import polars as pl

        offsets, data = table.bytes_of(lanes)
        width = inner.lanes
        elements = decode_column(data.view(np.int64).reshape(-1, width), inner, self, "element")
        # Grouped by polars, not handed over as Arrow memory: releasing children that way crashed under Python 3.13.
        rows = series_of("row", np.arange(len(lanes)))
        lengths = np.diff(offsets) // (width * 8)
        owners = series_of("row", np.repeat(np.arange(len(lanes)), lengths))
        lists = pl.DataFrame([owners, elements]).group_by("row", maintain_order=True).agg("element")
        found = pl.DataFrame([rows]).join(lists, on="row", how="left", maintain_order="left")["element"].alias("")
        found = found.fill_null(pl.Series([[]], dtype=found.dtype).first())
        if nulls is None:
            return found
        return found.zip_with(series_of("", ~nulls), _nulls(found))

    def _show(self, data: np.ndarray, kind: Type) -> object:
        """Return the Python value of some bytes, for a message."""
        if kind.inner is not None:
            lanes = np.frombuffer(data.tobytes(), np.int64).reshape(-1, kind.inner.lanes)
            return decode_column(lanes, kind.inner, self, "").to_list()
        if kind.fields:
            return self._structs(np.frombuffer(data.tobytes(), np.int64).reshape(1, -1), kind).item()
        return data.tobytes().decode() if kind.kind == "string" else data.tobytes()


def _kind(column: Type) -> Type:
    """Return the type whose table has a column's values, whether the column is nullable or not.

    The type allows nulls inside of lists and structs, so that a value has the same hash in every column.
    """
    if column.fields:
        return Type("struct", fields=tuple((name, _kind(kind).or_null()) for name, kind in column.fields))
    return Type("list", inner=_kind(column.inner).or_null()) if column.inner else column.required()


def _parts(kind: Type) -> list[Type]:
    """Return the types whose lanes make up a value's bytes, in their order: repeated for a list, none for texts."""
    return [part for _, part in kind.fields] or ([kind.inner] if kind.inner else [])


def _first_lanes(parts: Sequence[Type]) -> list[int]:
    """Return the first lane of each part."""
    return [0, *accumulate(part.lanes for part in parts[:-1])]


def _nulls(series: pl.Series) -> pl.Series:
    """Return as many nulls, of the same type."""
    return type(series)([None], dtype=series.dtype).new_from_index(0, len(series))

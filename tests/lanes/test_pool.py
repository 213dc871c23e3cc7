"""The pool: values by hash, collisions found, growth over many batches."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_series_equal

from ddcli.engine import arrow
from ddcli.engine import pool as pool_module
from ddcli.engine.columns import NULL
from ddcli.engine.kernels import loader, pool_table
from ddcli.engine.kernels.hashing import hash_bytes, hash_ranges
from ddcli.engine.pool import HashCollision, Pool
from ddcli.errors import EngineError
from ddcli.expressions.types import Type

if TYPE_CHECKING:
    from collections.abc import Iterator

STRING, BINARY = Type("string", nullable=True), Type("binary", nullable=True)
# Made with the reference implementation (xxhsum): lengths around each of the algorithm's steps.
PUBLISHED = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"abc": 0x44BC2CF5AD770999,
    b"Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
    bytes(range(4)): 0xFFCED8604453CC1E,
    bytes(range(7)): 0x14CC643F630C72D2,
    bytes(range(8)): 0x884A173614B81B8D,
    bytes(range(12)): 0x424AF23F1F08DCA5,
    bytes(range(31)): 0xC346D2B59B4D8EE1,
    bytes(range(32)): 0xCBF59C5116FF32B4,
    bytes(range(33)): 0x0C535D1ACAFB8EAD,
    bytes(range(63)): 0xE26AA9E2A95F8E4F,
    bytes(range(64)): 0xF7C67301DB6713F0,
    bytes(range(100)): 0x6AC1E58032166597,
}


@pytest.mark.parametrize(("data", "expected"), PUBLISHED.items(), ids=lambda value: str(value)[:12])
def test_hashes_are_the_published_ones(data: bytes, expected: int) -> None:
    lanes = hash_bytes(np.array([0, len(data)]), np.frombuffer(data or b"\0", np.uint8))
    assert lanes.view(np.uint64).tolist() == [expected]


def test_a_hash_that_looks_like_null_is_moved() -> None:
    """The lane of null must be nobody's hash: 8 bytes were searched for backwards through the algorithm."""
    data = np.frombuffer(b"5\xfb\xd2\x0f\tJ_\x84", np.uint8)
    assert hash_bytes(np.array([0, 8]), data).tolist() == [NULL - 1]


def weak(starts: np.ndarray, lengths: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """Hash by length alone."""
    del starts, data
    out[:] = np.where(lengths < 0, NULL, lengths)


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        (STRING, "abc", "abd"),
        (STRING, "twelve bytes", "twelve bytez"),
        (STRING, "12 bytes + 1.", "12 bytes + 1!"),
        (STRING, "a long one that differs here", "a long one that differs hers"),
        (BINARY, b"\x00", b"\xff"),
        (Type("list", inner=Type("int64")), [1, 2], [2, 1]),
        (Type("list", inner=Type("string")), ["ab"], ["abc"]),
    ],
)
def test_a_collision_names_both_values(kind: Type, first: Any, second: Any) -> None:
    pool = Pool(weak)
    dtype = kind.to_polars()
    assert len(set(pool.intern(pl.Series([first, None, first], dtype=dtype)).tolist())) == 2
    with pytest.raises(HashCollision, match="two different values have the same 64-bit hash") as caught:
        pool.intern(pl.Series([None, first, second], dtype=dtype))
    assert caught.value.values == (first, second)
    assert repr(first) in str(caught.value)
    assert repr(second) in str(caught.value)
    assert caught.value.exit_code == 5


def test_a_long_value_is_cut_in_the_message() -> None:
    pool = Pool(weak)
    with pytest.raises(HashCollision) as caught:
        pool.intern(pl.Series(["a" * 5000, "b" * 5000]))
    assert len(caught.value.problem) < 600


def test_kinds_never_mix() -> None:
    """A string and a binary of the same bytes may share a lane, for each kind has its own table."""
    pool = Pool()
    texts = pl.Series(["a", "b"])
    lanes = pool.intern(texts)
    assert pool.intern(texts.cast(pl.Binary)).tolist() == lanes.tolist()
    assert pool.values(lanes, BINARY).to_list() == [b"a", b"b"]
    assert pool.values(lanes, STRING).to_list() == ["a", "b"]


def test_a_list_has_one_lane_whatever_its_type_says_about_nulls() -> None:
    pool = Pool()
    lists = pl.Series([[1, 2], []])
    kinds = [Type("list", inner=Type("int64", nullable=nullable)) for nullable in (False, True)]
    assert pool.intern(lists, kinds[0]).tolist() == pool.intern(lists, kinds[1]).tolist() == pool.intern(lists).tolist()


def test_the_pool_grows_over_many_batches() -> None:
    """Early batches decode as before after every growth."""
    pool, kept = Pool(), []
    for batch in range(60):
        texts = pl.Series([f"{batch * number} of a batch {'.' * (number % 30)}" for number in range(batch, batch + 40)])
        kept.append((texts, pool.intern(texts)))
    for texts, lanes in kept:
        assert_series_equal(pool.values(lanes, STRING), texts)
        assert pool.intern(texts).tolist() == lanes.tolist()


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make windows of 64 bytes instead of 1 GiB: compiled kernels know the real size, so these run as Python."""
    monkeypatch.setenv("DDCLI_KERNELS", "python")
    monkeypatch.setattr(pool_table, "WINDOW_BITS", 6)
    monkeypatch.setattr(pool_table, "WINDOW", 64)
    monkeypatch.setattr(pool_module, "WINDOW", 64)
    loader.reset()
    yield
    monkeypatch.undo()
    loader.reset()


def test_values_lie_in_windows_of_memory(small_windows: None) -> None:
    """A value may begin in one window and end in the next."""
    pool = Pool()
    texts = pl.Series([f"{number}:{'x' * (number % 60)}" for number in range(60)])
    lists = pl.Series([list(range(number % 8)) for number in range(60)], dtype=pl.List(pl.Int32))
    lanes, list_lanes = pool.intern(texts), pool.intern(lists)
    assert_series_equal(pool.values(lanes, STRING), texts)
    assert_series_equal(pool.values(list_lanes, Type("list", inner=Type("int32"))), lists)
    assert pool.intern(texts).tolist() == lanes.tolist()


def test_a_value_longer_than_a_window_is_refused(small_windows: None) -> None:
    with pytest.raises(EngineError, match="a value of 64 bytes is too long"):
        Pool().intern(pl.Series(["x" * 63, "x" * 64]))


@given(st.lists(st.none() | st.text(max_size=15), max_size=30), st.integers(0, 10), st.integers(0, 30))
def test_slices_are_read_where_they_begin(texts: list[str | None], start: int, length: int) -> None:
    """A slice shares its buffers with the whole series; so does its bitmap of nulls."""
    pool, part = Pool(), pl.Series(texts, dtype=pl.String)[start : start + length]
    assert_series_equal(pool.values(pool.intern(part), STRING), part)


@given(st.lists(st.none() | st.binary(max_size=20)))
def test_bytes_go_the_quick_way_to_the_same_lanes(values: list[bytes | None]) -> None:
    pool = Pool()
    lanes = pool.intern_bytes(values, BINARY)
    assert lanes.tolist() == pool.intern(pl.Series(values, dtype=pl.Binary)).tolist()
    assert pool.bytes_of(lanes, BINARY) == values


def test_many_buffers_are_one() -> None:
    """A gathered concatenation points into several buffers of its parts."""
    parts = [pl.Series([f"{number} in the part {'x' * number}" for number in range(50)]) for _ in range(5)]
    whole = pl.concat(parts).gather(list(range(249, -1, -1)))
    pool = Pool()
    assert_series_equal(pool.values(pool.intern(whole), STRING), whole)


def test_decoded_values_outlive_the_pool() -> None:
    """Polars keeps the memory that it was lent, and gives it back."""
    gc.collect()
    before = len(arrow._lent)
    pool, texts = Pool(), pl.Series([None, "short", "long enough to lie in memory"])
    lists = pl.Series([["short"], [], None, ["long enough to lie in memory", None]])
    decoded = pool.values(pool.intern(texts), STRING)
    decoded_lists = pool.values(pool.intern(lists), Type("list", nullable=True, inner=STRING))
    del pool
    gc.collect()
    np.full(100_000, 7)  # would likely land on freed memory
    assert_series_equal(decoded, texts)
    assert_series_equal(decoded_lists, lists)
    assert len(arrow._lent) > before
    del decoded, decoded_lists
    gc.collect()
    assert len(arrow._lent) == before


def test_threads_share_a_pool() -> None:
    """Shards intern at the same time."""
    pool, found = Pool(), {}
    texts = [pl.Series([f"value {number % 997} of the shards" for number in range(at, at + 5000)]) for at in range(8)]

    def work(at: int) -> None:
        found[at] = pool.intern(texts[at])

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at, series in enumerate(texts):
        assert_series_equal(pool.values(found[at], STRING), series)


def test_a_lane_of_no_value_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="lane 5 is not of this pool"):
        Pool().values(np.array([5]), STRING)


def test_an_empty_column_interns_nothing() -> None:
    pool = Pool()
    assert pool.intern(pl.Series([], dtype=pl.String)).tolist() == []
    assert pool.values(np.empty(0, np.int64), STRING).to_list() == []
    hash_ranges(*np.empty((2, 0), np.int64), np.empty(0, np.uint8), np.empty(0, np.int64))

"""The pool: values by hash, collisions found, growth over many batches."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_series_equal

from ddcli.engine import arrow
from ddcli.engine import pool as pool_module
from ddcli.engine.jit import registry
from ddcli.engine.kernels import hashes as siphash_module
from ddcli.engine.kernels import pool_table
from ddcli.engine.kernels.hashes import hash_ranges
from ddcli.engine.lanes import NULL
from ddcli.engine.pool import PUBLIC, HashCollision, Pool
from ddcli.errors import EngineError
from ddcli.expressions.types import Type
from tests.draws import chance, many
from tests.flooding import meeting, meeting_anyhow
from tests.reference.siphash import siphash
from tests.reference.xxhash64 import xxhash64
from tests.secret import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

STRING, BINARY = Type("string", nullable=True), Type("binary", nullable=True)
LIST = Type("list", nullable=True, inner=STRING)
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


def hashed(data: np.ndarray, length: int) -> np.ndarray:
    """Return the lane of the first bytes."""
    lanes = np.empty(1, np.int64)
    hash_ranges(np.zeros(1, np.int64), np.array([length]), data, lanes)
    return lanes


@pytest.mark.parametrize(("data", "expected"), PUBLISHED.items(), ids=lambda value: str(value)[:12])
def test_hashes_are_the_published_ones(data: bytes, expected: int) -> None:
    lanes = hashed(np.frombuffer(data or b"\0", np.uint8), len(data))
    assert lanes.view(np.uint64).tolist() == [expected]


def test_a_hash_that_looks_like_null_is_moved() -> None:
    """The lane of null must be nobody's hash: 8 bytes were searched for backwards through the algorithm."""
    data = np.frombuffer(b"5\xfb\xd2\x0f\tJ_\x84", np.uint8)
    assert hashed(data, 8).tolist() == [NULL - 1]


def pythons(data: list[bytes], seed: int) -> list[int]:
    """Return what a process of this Python with a fixed seed makes of bytes: SipHash-1-3, under a key that it stretches the seed to."""
    script = "import sys; print(*(hash(bytes.fromhex(text)) for text in sys.argv[1:]))"
    given = [sys.executable, "-c", script, *(value.hex() for value in data)]
    done = subprocess.run(given, env={"PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True)
    return list(map(int, done.stdout.split()))


def stretched(seed: int) -> bytes:
    """Return the key that Python makes of a seed: of 0 all zeros, else bytes of a linear congruential generator."""
    found = bytearray()
    while seed and len(found) < 16:
        seed = (seed * 214013 + 2531011) % 2**32
        found.append(seed >> 16 & 0xFF)
    return bytes(found).ljust(16, b"\0")


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="this Python hashes otherwise")
@pytest.mark.parametrize("seed", [0, 1, 2026])
def test_the_reference_of_siphash_is_what_python_hashes_with(seed: int) -> None:
    data = [bytes(range(length, 2 * length)) for length in range(1, 80)]
    signed = [siphash(stretched(seed), value) for value in data]
    signed = [value - 2**64 if value >= 2**63 else value for value in signed]
    assert pythons(data, seed) == [-2 if value == -1 else value for value in signed]


@given(st.lists(st.binary(max_size=70)), st.binary(min_size=16, max_size=16))
def test_hashes_under_a_secret_are_those_of_the_reference(values: list[bytes], secret: bytes) -> None:
    """Wherever the bytes lie: nothing beside them is looked at."""
    lanes = Pool(secret).intern_bytes(values, BINARY)
    assert lanes.view(np.uint64).tolist() == [siphash(secret, value) for value in values]


def test_each_length_is_hashed_as_by_the_reference() -> None:
    for length in (*range(70), 1000, 65_536):
        value = bytes(at * 167 % 256 for at in range(length))
        found = Pool(SECRET).intern_bytes([value], BINARY).view(np.uint64).tolist()
        assert found == [siphash(SECRET, value)], length


def test_a_hash_under_a_secret_that_looks_like_null_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """No value is known whose hash is it, so the kernel runs as Python and is told of one."""
    monkeypatch.setenv("DDCLI_KERNELS", "python")
    monkeypatch.setattr(siphash_module, "siphash13", lambda *_: np.uint64(NULL))
    registry.reset()
    assert Pool(SECRET).intern_bytes([b"x"], BINARY).tolist() == [NULL - 1]
    monkeypatch.undo()
    registry.reset()


@given(st.data())
def test_ranks_are_the_lanes_of_a_pool_without_a_secret(data: st.DataObject) -> None:
    """So who comes first of equals is the same under every secret; for lists, of hashed values at any depth, too."""
    kind = data.draw(st.sampled_from([STRING, BINARY, LIST, Type("list", nullable=True, inner=LIST)]))
    leaf = st.none() | (st.binary(max_size=20) if kind == BINARY else st.text(max_size=20))
    nested = {STRING: leaf, BINARY: leaf, LIST: st.none() | st.lists(leaf, max_size=3)}
    values = data.draw(st.lists(nested.get(kind, st.none() | st.lists(nested[LIST], max_size=3)), max_size=8))
    series, pool = pl.Series(values, dtype=kind.to_polars()), Pool(SECRET)
    assert pool.ranks(pool.intern(series, kind), kind).tolist() == Pool(PUBLIC).intern(series, kind).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_xxhash64_meets_under_its_seed_and_under_any_other(seed: int) -> None:
    """Why it is no hash for values that others choose, however secret its seed."""
    random = Random(seed)
    one, other = meeting(random)
    assert one != other
    assert one.isprintable()
    assert xxhash64(one.encode()) == xxhash64(other.encode())
    with pytest.raises(HashCollision):
        Pool(PUBLIC).intern(pl.Series([one, other]))
    values = meeting_anyhow(random)
    assert len(set(values)) == 3
    for _ in range(50):
        secret = random.getrandbits(64)
        first, *others = (xxhash64(value, secret) for value in values)
        assert others.count(first) == 1
    for _ in range(50):
        lanes = Pool(random.randbytes(16)).intern(pl.Series([one.encode(), other.encode(), *values]))
        assert len(set(lanes.tolist())) == 5


def weak(starts: np.ndarray, lengths: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """Hash by length alone."""
    del starts, data
    out[:] = np.where(lengths < 0, NULL, lengths)


@pytest.fixture
def weakly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pools hash by length alone."""
    monkeypatch.setattr(pool_module, "hasher", lambda secret: weak)


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
def test_a_collision_names_both_values(kind: Type, first: Any, second: Any, weakly: None) -> None:
    pool = Pool(SECRET)
    dtype = kind.to_polars()
    assert len(set(pool.intern(pl.Series([first, None, first], dtype=dtype)).tolist())) == 2
    with pytest.raises(HashCollision, match="two different values have the same 64-bit hash") as caught:
        pool.intern(pl.Series([None, first, second], dtype=dtype))
    assert caught.value.values == (first, second)
    assert repr(first) in str(caught.value)
    assert repr(second) in str(caught.value)
    assert caught.value.exit_code == 5


def test_a_long_value_is_cut_in_the_message(weakly: None) -> None:
    pool = Pool(SECRET)
    with pytest.raises(HashCollision) as caught:
        pool.intern(pl.Series(["a" * 5000, "b" * 5000]))
    assert len(caught.value.problem) < 600


def test_kinds_never_mix() -> None:
    """A string and a binary of the same bytes may share a lane, for each kind has its own table."""
    pool = Pool(SECRET)
    texts = pl.Series(["a", "b"])
    lanes = pool.intern(texts)
    assert pool.intern(texts.cast(pl.Binary)).tolist() == lanes.tolist()
    assert pool.values(lanes, BINARY).to_list() == [b"a", b"b"]
    assert pool.values(lanes, STRING).to_list() == ["a", "b"]


def test_a_list_has_one_lane_whatever_its_type_says_about_nulls() -> None:
    pool = Pool(SECRET)
    lists = pl.Series([[1, 2], []])
    kinds = [Type("list", inner=Type("int64", nullable=nullable)) for nullable in (False, True)]
    assert pool.intern(lists, kinds[0]).tolist() == pool.intern(lists, kinds[1]).tolist() == pool.intern(lists).tolist()


def test_the_pool_grows_over_many_batches() -> None:
    """Early batches decode as before after every growth."""
    pool, kept = Pool(SECRET), []
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
    registry.reset()
    yield
    monkeypatch.undo()
    registry.reset()


def test_values_lie_in_windows_of_memory(small_windows: None) -> None:
    """A value may begin in one window and end in the next."""
    pool = Pool(SECRET)
    texts = pl.Series([f"{number}:{'x' * (number % 60)}" for number in range(60)])
    lists = pl.Series([list(range(number % 8)) for number in range(60)], dtype=pl.List(pl.Int32))
    lanes, list_lanes = pool.intern(texts), pool.intern(lists)
    assert_series_equal(pool.values(lanes, STRING), texts)
    assert_series_equal(pool.values(list_lanes, Type("list", inner=Type("int32"))), lists)
    assert pool.intern(texts).tolist() == lanes.tolist()


def test_a_value_longer_than_a_window_is_refused(small_windows: None) -> None:
    with pytest.raises(EngineError, match="a value of 64 bytes is too long"):
        Pool(SECRET).intern(pl.Series(["x" * 63, "x" * 64]))


@given(st.lists(st.none() | st.text(max_size=15), max_size=30), st.integers(0, 10), st.integers(0, 30))
def test_slices_are_read_where_they_begin(texts: list[str | None], start: int, length: int) -> None:
    """A slice shares its buffers with the whole series; so does its bitmap of nulls."""
    pool, part = Pool(SECRET), pl.Series(texts, dtype=pl.String)[start : start + length]
    assert_series_equal(pool.values(pool.intern(part), STRING), part)


@given(st.lists(st.none() | st.binary(max_size=20)))
def test_bytes_go_the_quick_way_to_the_same_lanes(values: list[bytes | None]) -> None:
    pool = Pool(SECRET)
    lanes = pool.intern_bytes(values, BINARY)
    assert lanes.tolist() == pool.intern(pl.Series(values, dtype=pl.Binary)).tolist()
    assert pool.bytes_of(lanes, BINARY) == values


@pytest.mark.parametrize("seed", range(many(6)))
def test_repeated_values_have_the_lanes_of_each_by_itself(seed: int) -> None:
    """However many differ, in one buffer or several, alike in length and beginning, in one chunk or more."""
    draw = chance("repeated", seed)
    values: list[bytes | None] = [None, b"", b"\0", b"\0\0"] if draw.random() < 0.5 else [b""]
    for _ in range(draw.choice([1, 5, 300, 4000])):
        head = draw.choice([b"", b"abcd", b"abcdefghijkl"])
        values.append(head + bytes(draw.choice(b"xyz") for _ in range(draw.randrange(24))))
    parts = [pl.Series(draw.choices(values, k=draw.randrange(1, 3000)), dtype=pl.Binary) for _ in range(3)]
    whole = pl.concat(parts, rechunk=draw.random() < 0.5).gather(draw.choices(range(sum(map(len, parts))), k=5000))
    whole = pl.concat([whole, parts[0]], rechunk=False)
    pool = Pool(SECRET)
    found = pool.intern(whole)
    assert found.tolist() == Pool(SECRET).intern_bytes(whole.to_list(), BINARY).tolist()
    assert_series_equal(pool.values(found, BINARY), whole)


def test_many_buffers_are_one() -> None:
    """A gathered concatenation points into several buffers of its parts."""
    parts = [pl.Series([f"{number} in the part {'x' * number}" for number in range(50)]) for _ in range(5)]
    whole = pl.concat(parts).gather(list(range(249, -1, -1)))
    pool = Pool(SECRET)
    assert_series_equal(pool.values(pool.intern(whole), STRING), whole)


def test_the_view_of_a_null_may_be_anything() -> None:
    """As Arrow allows, and pyarrow hands on: here it names a buffer that is not there."""
    long = "a" * 100
    views = np.array([[100, 0x61616161, 0, 0], [100, 1, 1 << 30, 7], [100, 0x61616161, 0, 0]], np.uint32)
    buffers = [pa.py_buffer(bytes([0b101])), pa.py_buffer(views.tobytes()), pa.py_buffer(long.encode())]
    texts = pl.Series(pl.from_arrow(pa.Array.from_buffers(pa.string_view(), 3, buffers)))
    pool = Pool(SECRET)
    assert pool.values(pool.intern(texts), STRING).to_list() == [long, None, long]


def outstanding() -> int:
    """Return the number of arrays that are lent."""
    arrow.release_returned()
    return len(arrow._lent)


def test_decoded_values_outlive_the_pool() -> None:
    """Polars keeps the memory that it was lent, and gives it back."""
    gc.collect()
    before = outstanding()
    pool, texts = Pool(SECRET), pl.Series([None, "short", "long enough to lie in memory"])
    lists = pl.Series([["short"], [], None, ["long enough to lie in memory", None]])
    decoded = pool.values(pool.intern(texts), STRING)
    decoded_lists = pool.values(pool.intern(lists), Type("list", nullable=True, inner=STRING))
    del pool
    gc.collect()
    np.full(100_000, 7)  # would likely land on freed memory
    assert_series_equal(decoded, texts)
    assert_series_equal(decoded_lists, lists)
    assert outstanding() > before
    del decoded, decoded_lists
    gc.collect()
    assert outstanding() == before


def test_threads_share_a_pool() -> None:
    """Shards intern at the same time."""
    pool, found = Pool(SECRET), {}
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
        Pool(SECRET).values(np.array([5]), STRING)


def test_an_empty_column_interns_nothing() -> None:
    pool = Pool(SECRET)
    assert pool.intern(pl.Series([], dtype=pl.String)).tolist() == []
    assert pool.values(np.empty(0, np.int64), STRING).to_list() == []
    hash_ranges(*np.empty((2, 0), np.int64), np.empty(0, np.uint8), np.empty(0, np.int64))

"""What is put away comes back as it was, whatever of it was written to the scratch file."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import Pool
from ddcli.errors import EngineError
from ddcli.expressions.types import Type
from ddcli.store.files.gate import Files
from ddcli.store.scratch import spill as spilled
from ddcli.store.scratch.spill import Spill, chunks, from_chunks
from tests.secret import SECRET

NUMBERS = Layout({"a": Type("int64"), "b": Type("int64")})
WORDS = Layout({"word": Type("string", nullable=True), "n": Type("int64")})
EDGES = [0, 1, -1, 255, 256, 2**16, 2**32 - 1, 2**32, -(2**31), 2**63 - 1, -(2**63), -(2**63) + 1]

numbers = st.one_of(st.sampled_from(EDGES), st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))


def rows(matrices):
    return sorted(tuple(row) for matrix in matrices for row in matrix.tolist())


@given(
    parts=st.lists(st.lists(st.tuples(*[numbers] * 4), min_size=1, max_size=6), max_size=5),
    room=st.sampled_from([0, 50, 10**6]),
    twice=st.booleans(),
)
def test_lanes_come_back(tmp_path_factory, parts, room, twice):
    spill = Spill(tmp_path_factory.mktemp("state"), Files(), room)
    bucket, pool = spill.bucket(NUMBERS), Pool(SECRET)
    matrices = [np.array(part, np.int64) for part in parts]
    for matrix in matrices:
        bucket.add(matrix, pool)
    for last in [False] * twice + [True]:
        found = bucket.take(pool, last=last)
        assert rows([] if found is None else [found]) == rows(matrices)
    assert bucket.take(pool, last=True) is None
    spill.clear()
    assert not spill.directory.exists()


@pytest.mark.parametrize("room", [0, 10**6])
def test_values_come_back_in_another_pool(tmp_path, room):
    spill = Spill(tmp_path, Files(), room)
    bucket = spill.bucket(WORDS)
    said = []
    for part in (["ape", None, "x" * 40], ["ape", ""], [None]):
        frame = pl.DataFrame({"word": pl.Series(part, dtype=pl.String), "n": range(len(part))})
        pool = Pool(SECRET)
        matrix = np.empty((len(part), WORDS.width + 2), np.int64)
        encode(frame, WORDS, pool, matrix)
        matrix[:, -2:] = 7, 1
        bucket.add(matrix, pool)
        said += part
    pool = Pool(SECRET)
    found = bucket.take(pool, last=True)
    assert pool.values(found[:, 0], WORDS.schema["word"]).to_list() == said
    assert found[:, -2:].tolist() == [[7, 1]] * len(said)


@given(part=st.lists(st.tuples(*[numbers] * 4), min_size=1, max_size=30), size=st.sampled_from([1, 64, 200, 4 << 20]))
def test_lanes_come_back_from_chunks_of_any_size(part, size):
    matrix, pool = np.array(part, np.int64), Pool(SECRET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spilled, "CHUNK", size)
        found = list(chunks(matrix, NUMBERS, pool))
    assert len(found) == -(-len(part) // max(size // 32, 1))
    assert from_chunks(found, NUMBERS, pool).tolist() == matrix.tolist()


@pytest.mark.parametrize("length", [1, 5_000, 100_000])
def test_long_text_makes_more_chunks(monkeypatch, length):
    monkeypatch.setattr(spilled, "CHUNK", 100_000)
    frame = pl.DataFrame({"word": [f"{at}" * length for at in range(30)], "n": range(30)})
    pool, matrix = Pool(SECRET), np.empty((30, WORDS.width + 2), np.int64)
    encode(frame, WORDS, pool, matrix)
    matrix[:, -2:] = 7, 1
    found = list(chunks(matrix, WORDS, pool))
    assert (len(found) == 1) == (length == 1)
    # A value is in one piece, however long; else a chunk is as large as was asked for, but for what is beside the values.
    assert max(map(len, found)) < max(200_000, 2 * length) + 10_000
    pool = Pool(SECRET)
    back = from_chunks(found, WORDS, pool)
    assert pool.values(back[:, 0], WORDS.schema["word"]).to_list() == frame["word"].to_list()
    assert back[:, -3:].tolist() == [[at, 7, 1] for at in range(30)]


def test_the_largest_are_written_first(tmp_path):
    spill = Spill(tmp_path, Files(), 3_000)
    small, large = spill.bucket(NUMBERS), spill.bucket(NUMBERS)
    wide = np.random.default_rng(1).integers(-(2**62), 2**62, (100, 4))
    small.add(wide[:10], Pool(SECRET))
    large.add(wide, Pool(SECRET))
    assert (small.held, large.held) == (320, 0)
    assert [path.name for path in spill.directory.iterdir()] == [large.path.name]


def test_a_scratch_file_that_was_cut_is_noticed(tmp_path):
    spill = Spill(tmp_path, Files(), 0)
    bucket = spill.bucket(NUMBERS)
    bucket.add(np.arange(40).reshape(10, 4), Pool(SECRET))
    bucket.path.write_bytes(bucket.path.read_bytes()[:-1])
    with pytest.raises(EngineError, match="shorter"):
        bucket.take(Pool(SECRET), last=True)


def test_scratch_files_of_a_run_that_died_are_removed(tmp_path):
    Spill(tmp_path, Files(), 0).bucket(NUMBERS).add(np.arange(8).reshape(2, 4), Pool(SECRET))
    assert list((tmp_path / "spill").iterdir())
    Spill(tmp_path, Files(), 0)
    assert not list((tmp_path / "spill").iterdir())

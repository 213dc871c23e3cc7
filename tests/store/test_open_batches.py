"""Batches that stay open: the same ones are handed out again, only these, and no more than there is room for."""

import os
from dataclasses import replace

import numpy as np
import pytest

from ddcli.engine.lanes import Layout
from ddcli.engine.pool import Pool
from ddcli.errors import StateError
from ddcli.expressions.types import parse_type
from ddcli.store.batch import open_batches
from ddcli.store.batch.file import BatchLayout, footer_checksum
from ddcli.store.batch.open_batches import OpenBatches
from ddcli.store.files.gate import checksum
from ddcli.store.state.entries import FileEntry
from tests.secret import SECRET
from tests.store.support import batch_bytes

LAYOUT = BatchLayout(Layout({"k": parse_type("int64")}), Layout({"v": parse_type("int64")}), 1)
KEYS = np.array([[3]])


def made(folder, name, rows):
    """Write a batch; return its path, entry and updates."""
    matrix = np.array([(at, 7 * at, 0, 1) for at in range(rows)])
    data = batch_bytes(matrix, LAYOUT, Pool(SECRET))
    (folder / name).write_bytes(data)
    entry = FileEntry(name, rows, len(data), checksum(data), ((0,),), ((1,),), ((0,),), footer_checksum(data))
    return folder / name, entry, matrix


@pytest.fixture
def few(monkeypatch):
    """Have batches of more than ten rows stay in their files."""
    monkeypatch.setattr(open_batches, "FEW", 10)


@pytest.mark.usefixtures("few")
def test_small_ones_are_in_memory_and_large_ones_mapped(tmp_path):
    batches = OpenBatches(SECRET, 1 << 20)
    given = [made(tmp_path, name, rows) for name, rows in (("small", 10), ("large", 3000))]
    opened = [batches.batch(path, entry, LAYOUT) for path, entry, _ in given]
    for _ in range(3):
        for batch, (path, entry, matrix) in zip(opened, given, strict=True):
            assert batches.batch(path, entry, LAYOUT) is batch
            assert np.array_equal(batch.for_keys(KEYS), matrix[3:4])
        small, large = opened
        assert small.held == small.matrix().nbytes
        assert large.held > large.entry.size, "the file, and what is known of its pages"
        assert all(batch.file.is_mapped for batch in opened)
        assert batches.end_round()
    batches.batch(*given[0][:2], LAYOUT)
    assert batches.end_round()
    assert batches.batch(*given[1][:2], LAYOUT) is not opened[1], "it was not used, and let go"


@pytest.mark.usefixtures("few")
def test_another_file_is_opened_anew_and_one_that_is_gone_refused(tmp_path):
    batches = OpenBatches(SECRET, 1 << 20)
    path, entry, _ = made(tmp_path, "batch", 10)
    batch = batches.batch(path, entry, LAYOUT)
    batch.for_keys(KEYS)
    assert batches.end_round()
    other = batches.batch(path, replace(entry, run=1), LAYOUT)
    assert other is not batch
    wide = BatchLayout(Layout({"k": parse_type("int64"), "v": parse_type("int64")}), Layout({}), 1)
    assert batches.batch(path, replace(entry, run=1), wide) is not other
    assert batches.end_round()
    again = batches.batch(path, entry, LAYOUT)
    assert batches.end_round()
    path.rename(tmp_path / "copy")
    path.write_bytes((tmp_path / "copy").read_bytes())
    assert batches.batch(path, entry, LAYOUT) is not again, "its number is another"
    assert batches.end_round()
    path.unlink()
    with pytest.raises(StateError, match="can't be read"):
        batches.batch(path, entry, LAYOUT)
    path.write_bytes(b"PAR1")
    with pytest.raises(StateError, match="has 4 bytes"):
        batches.batch(path, entry, LAYOUT)


@pytest.mark.usefixtures("few")
def test_a_file_that_is_changed_in_its_place_is_refused(tmp_path):
    """While it is mapped: what is read of it is checked each time."""
    batches = OpenBatches(SECRET, 1 << 20)
    path, entry, matrix = made(tmp_path, "batch", 3000)
    batch = batches.batch(path, entry, LAYOUT)
    assert np.array_equal(batch.for_keys(KEYS), matrix[3:4])
    with path.open("r+b") as file:
        file.seek(20)
        file.write(bytes(40))
    with pytest.raises(StateError, match="damaged"):
        batch.for_keys(KEYS)
    os.truncate(path, 100)
    with pytest.raises(StateError, match="has 100 bytes"):
        batch.for_keys(KEYS)


@pytest.mark.usefixtures("few")
def test_there_is_an_end_to_what_is_kept(tmp_path, monkeypatch):
    batches = OpenBatches(SECRET, 1000)
    given = [made(tmp_path, str(at), 10) for at in range(9)]
    for _ in range(2):
        opened = [batches.batch(path, entry, LAYOUT) for path, entry, _ in given]
        for batch, (*_, matrix) in zip(opened, given, strict=True):
            assert np.array_equal(batch.for_keys(KEYS), matrix[3:4])
        monkeypatch.setattr(open_batches, "OPEN", 2)
        assert batches.end_round()
        assert sum(batch.held for batch in opened) == 3 * 320
        assert sum(batch.file.is_mapped for batch in opened) == 2
    batches.pool.intern_bytes([b"x" * 2000], parse_type("string"))
    assert not batches.end_round(), "values alone are more than there is room for"


@pytest.mark.usefixtures("few")
def test_files_for_which_there_is_no_room_are_let_go_of(tmp_path):
    """What is kept of them counts; they are looked into as before when they are used again, and every byte is checked then."""
    given = [made(tmp_path, str(at), 3000) for at in range(3)]
    one = OpenBatches(SECRET, 1 << 20).batch(*given[0][:2], LAYOUT)
    one.for_keys(KEYS)
    batches = OpenBatches(SECRET, 2 * one.held + 1)
    for _ in range(3):
        opened = [batches.batch(path, entry, LAYOUT) for path, entry, _ in given]
        for batch, (*_, matrix) in zip(opened, given, strict=True):
            assert np.array_equal(batch.for_keys(KEYS), matrix[3:4])
        assert batches.end_round()
        assert [batch.held > 0 for batch in opened] == [True, True, False]
        assert [batch.file.is_mapped for batch in opened] == [True, True, False]
    index = opened[2].file.index
    with given[2][0].open("r+b") as file:
        file.seek(index.start)
        file.write(bytes([255] * 8))
    with pytest.raises(StateError, match="damaged"):
        opened[2].for_keys(KEYS)


@pytest.mark.usefixtures("few")
def test_what_is_written_is_in_memory_at_once_and_what_is_merged_is_not(tmp_path):
    batches = OpenBatches(SECRET, 1 << 20)
    path, entry, matrix = made(tmp_path, "batch", 10)
    path.unlink()
    batches.add(path, entry, LAYOUT, matrix)
    batches.add(tmp_path / "large", entry, LAYOUT, np.zeros((11, 4), np.int64))
    made(tmp_path, "batch", 10)
    assert batches.end_round()
    assert batches.batch(path, entry, LAYOUT).matrix() is matrix
    batches.drop([path])
    assert batches.end_round()
    assert batches.batch(path, entry, LAYOUT).matrix() is not matrix

"""A flipped or missing byte in a file of the state is noticed, with the file's name, or changes no answer: however the file is read."""

import numpy as np
import polars as pl
import pytest

from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.errors import StateError
from ddcli.expressions.types import parse_type
from ddcli.store.batch import file
from ddcli.store.batch.compaction import NewBatch
from ddcli.store.batch.file import BatchLayout
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.state.contents import batch_directory
from ddcli.store.state.directory import State
from ddcli.store.state.entries import ArrangementEntry
from ddcli.store.state.manifest import Manifest, manifest_path, read_newest
from ddcli.store.state.upkeep import verify_state
from tests.draws import some
from tests.secret import SECRET
from tests.store.support import batch_bytes

pytestmark = pytest.mark.usefixtures("by_pages")

ROWS = 40
LAYOUT = BatchLayout(Layout({"name": parse_type("string?")}), Layout({"age": parse_type("int64?")}), 1)


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Make a state of one batch, of 5 row groups; return its directory, the batch's path and entry, and its updates."""
    directory = tmp_path_factory.mktemp("state").resolve()
    pool = Pool(SECRET)
    frame = pl.DataFrame(
        {"name": [f"somebody called {at}" for at in range(ROWS)], "age": [at if at % 7 else None for at in range(ROWS)]}
    )
    matrix = np.zeros((ROWS, LAYOUT.width), np.int64)
    encode(frame, LAYOUT.record, pool, matrix)
    matrix[:, -2] = np.arange(ROWS) % 3
    matrix[:, -1] = 1
    matrix = np.unique(matrix, axis=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "GROUP", 8)
        patch.setattr(file, "PAGE", 4)
        with State.open(directory, {}) as opened, opened.begin() as transaction:
            data = batch_bytes(matrix, LAYOUT, pool)
            bounds = [Frontier([(time,)]) for time in (0, 9, 0)]
            entry = NewBatch(data, ROWS, *bounds).write(transaction, "people", 0)
            people = ArrangementEntry("f", ((3,),), ((9,),), ("k",), {"k": "int64"}, ((entry,),))
            transaction.commit(Manifest("p", ((9,),), arrangements={"people": people}))
    return directory, batch_directory(directory, "people", 0) / entry.name, entry, matrix


def damages(whole, step=1):
    """Yield the bytes with one bit flipped, for each `step`th byte, and cut off at many places."""
    for at in range(0, len(whole), step):
        yield whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :]
    for size in (0, 1, *range(2, len(whole), 11 * step), len(whole) - 1):
        yield whole[:size]
    yield whole + b"\0"
    yield bytes(len(whole))


def noticed(read, expected, path):
    """Read, and say whether it was refused; an answer must be right and an error must name the file.

    The error is let go of at once: what it holds maps the file, and to write a file takes longer the more often it is mapped.
    """
    try:
        found = read()
    except StateError as error:
        message = error.exit_code, error.place, bool(error.hint)
    else:
        assert np.array_equal(found, expected)
        return False
    assert message == (4, str(path), True)
    return True


READS = {
    "whole": lambda batch, matrix: (batch.matrix(), matrix),
    "one key": lambda batch, matrix: (batch.for_keys(matrix[20:21, :1]), matrix[20:21]),
    "many keys": lambda batch, matrix: (batch.for_keys(np.ascontiguousarray(matrix[::2, :1])), matrix[::2]),
    "a key that is not there": lambda batch, matrix: (batch.for_keys(matrix[20:21, :1] + 1), matrix[:0]),
    "a range": lambda batch, matrix: (batch.between(matrix[9:10, :-2], matrix[30:31, :-2], Pool(SECRET)), matrix[9:30]),
}


@pytest.mark.parametrize("how", READS)
def test_damage_to_a_batch_is_noticed_or_harmless(state, how):
    _, path, entry, matrix = state
    whole = path.read_bytes()
    refused = right = 0
    try:
        for data in some(damages(whole, 3 if how == "whole" else 11)):  # a step that meets every kind of byte
            path.write_bytes(data)

            def read():
                return READS[how](StoredBatch(path, entry, LAYOUT, Pool(SECRET)), matrix)[0]

            expected = READS[how](Memory(matrix), matrix)[1]
            if noticed(read, expected, path):
                refused += 1
            else:
                right += 1
    finally:
        path.write_bytes(whole)
    assert refused
    assert (right == 0) == (how == "whole"), "a byte that nobody checks, or a check of bytes nobody reads"


class Memory:
    """A batch that is not read: only what is expected of it is asked for."""

    def __init__(self, matrix):
        self._matrix = matrix

    def matrix(self):
        return self._matrix

    def for_keys(self, keys, _spared=()):
        return self._matrix

    def between(self, first, end, pool):
        return self._matrix


def test_damage_while_a_batch_is_open_is_noticed(state):
    """Its size and its footer were right when it was opened."""
    _, path, entry, matrix = state
    whole = path.read_bytes()
    try:
        for data in (whole[:100], whole[:50] + b"\xff" + whole[51:]):
            batch = StoredBatch(path, entry, LAYOUT, Pool(SECRET))
            assert len(batch.for_keys(matrix[-1:, :1])) == 1
            path.write_bytes(data)
            assert noticed(batch.matrix, matrix, path)
            path.write_bytes(whole)
    finally:
        path.write_bytes(whole)


def test_verification_notices_every_damage_to_a_batch(state):
    directory, path, _, _ = state
    manifest = read_newest(directory)
    whole = path.read_bytes()
    try:
        for data in some(damages(whole)):
            path.write_bytes(data)
            assert [error.place for error in verify_state(directory, manifest)] == [str(path)]
    finally:
        path.write_bytes(whole)
    assert not list(verify_state(directory, manifest))


def test_damage_to_the_manifest_is_noticed(state):
    directory, *_ = state
    path = manifest_path(directory, 1)
    whole = path.read_bytes()
    try:
        for data in some(damages(whole)):
            path.write_bytes(data)
            with pytest.raises(StateError) as caught:
                read_newest(directory)
            assert caught.value.place == str(path)
    finally:
        path.write_bytes(whole)

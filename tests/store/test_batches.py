"""Batch files: loaded they are the matrix that was written, bit for bit; lookups lose no row and read few row groups."""

import shutil
import threading
from collections import Counter
from dataclasses import replace

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode, encode
from ddcli.engine.pool import PUBLIC, Pool
from ddcli.engine.process import Workers
from ddcli.engine.times import Frontier
from ddcli.errors import StateError
from ddcli.expressions.types import parse_type
from ddcli.store.batch import file, paged_rows
from ddcli.store.batch.compaction import NewBatch
from ddcli.store.batch.file import BatchLayout
from ddcli.store.batch.row_group_file import is_plain, row_group_file
from ddcli.store.batch.stored_batch import StoredBatch, read_lanes
from ddcli.store.batch.writers import is_packed
from ddcli.store.state.contents import batch_path
from ddcli.store.state.directory import State
from ddcli.store.state.entries import ArrangementEntry
from ddcli.store.state.manifest import Manifest
from ddcli.store.state.upkeep import verify_state
from tests.draws import some
from tests.secret import SECRET
from tests.store.domains import TYPES, column
from tests.store.support import batch_bytes

LOWER, UPPER, SINCE = Frontier([(0,)]), Frontier([(9,)]), Frontier([(3,)])


def schema(columns):
    return {name: parse_type(text) for name, text in columns.items()}


def in_order(matrix):
    return np.unique(matrix, axis=0)


def store(directory, matrix, layout, pool, group=None, page=None, *, alone=False, bundled=False):
    """Write a batch and commit it; return its path and entry.

    `alone`: without a library of Parquet, where it has one row group of types for which that can be; `bundled`: into a bundle.
    """
    with pytest.MonkeyPatch.context() as patch:
        if group:
            patch.setattr(file, "GROUP", group)
        if page:
            patch.setattr(file, "PAGE", page)
        with State.open(directory, {}) as state, state.begin(batches=99 if bundled else 1) as transaction:
            if alone and len(matrix) <= file.GROUP and is_plain(layout):
                data = row_group_file(matrix, layout, pool)
            else:
                data = batch_bytes(matrix, layout, pool)
            entry = NewBatch(data, len(matrix), LOWER, UPPER, SINCE).write(transaction, "people", 0)
            people = ArrangementEntry("f", ((3,),), ((9,),), ("k",), {"k": "int64"}, ((entry,),))
            made = transaction.commit(Manifest("p", ((9,),), arrangements={"people": people}))
    ((entry,),) = made.arrangements["people"].shards
    assert bool(entry.bundle) == bundled
    return batch_path(directory.resolve(), "people", 0, entry), entry


pytestmark = pytest.mark.usefixtures("by_pages")


@pytest.fixture
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("state")


texts = st.sampled_from(TYPES)
SIZES = st.sampled_from([(3, 1), (3, 2), (4, 2), (8, 3), (64, 64), (64, 5)])
"""Rows of a row group, and of a page."""


@pytest.mark.parametrize("text", TYPES)
def test_a_key_of_each_type_is_found(place, text):
    """In files of several row groups, beside columns of integers alone."""
    layout, pool = BatchLayout(Layout(schema({"k": text})), Layout(schema({"v": "int64"})), 1), Pool(SECRET)
    matrix = np.ones((60, layout.width), np.int64)
    values = [column("k", text, [at % 20 for at in range(60)]), column("v", "int64", range(60))]
    encode(pl.DataFrame(values), layout.record, pool, matrix)
    matrix = in_order(matrix)
    path, entry = store(place / text, matrix, layout, pool, 16, 4)
    batch = StoredBatch(path, entry, layout, Pool(SECRET))
    check_lookup(batch, matrix, in_order(matrix[::7, : layout.key.width]))
    assert np.array_equal(batch.matrix(), matrix)


@pytest.mark.parametrize("groups", ["aaaa", "aaba", "abmaa", "mab", "bbaab"])
@pytest.mark.parametrize("tail", [0, 3])
def test_times_and_diffs_that_are_the_same_in_some_row_groups(place, groups, tail):
    """One value in a row group, as in the one before or another; several in a group (m); fewer rows in the last one."""
    layout = BatchLayout(Layout(schema({"k": "int64"})), Layout(schema({"v": "int64"})), 1)
    tails = {"a": [[0, 1]] * 4, "b": [[2, -1]] * 4, "m": [[0, 1], [2, 1], [1, -1], [0, 1]]}
    hidden = [row for group in groups for row in tails[group]] + tails[groups[-1]][:tail]
    matrix = np.array([[at, at % 3, *row] for at, row in enumerate(hidden)])
    path, entry = store(place, matrix, layout, Pool(SECRET), 4, 2)
    batch = StoredBatch(path, entry, layout, Pool(SECRET))
    assert np.array_equal(batch.matrix(), matrix)
    check_lookup(batch, matrix, matrix[::3, :1])
    one = {"_time": 0, "_diff": 1} if set(groups) == {"a"} else {}
    assert batch.file.index.constants == one
    assert pl.read_parquet(path).select("_time", "_diff").rows() == [tuple(row) for row in hidden]


@pytest.mark.parametrize("flags", [[True] * 9, [False] * 9, [None] * 9, [True] * 8 + [False], [None] * 8 + [True]])
@pytest.mark.parametrize("at", ["key", "value"])
def test_a_flag_that_is_the_same_in_all_rows_is_not_read(place, flags, at):
    """As the key of all records as one group, or beside another key; in row groups of four, pages of two."""
    flag, number = schema({"f": "bool?"}), schema({"n": "int64"})
    layout = BatchLayout(*map(Layout, (flag, number) if at == "key" else (number, flag)), 1)
    matrix, pool = np.ones((9, layout.width), np.int64), Pool(SECRET)
    encode(pl.DataFrame({"f": pl.Series(flags, dtype=pl.Boolean), "n": range(9)}), layout.record, pool, matrix)
    matrix = in_order(matrix)
    path, entry = store(place, matrix, layout, pool, 4, 2)
    batch = StoredBatch(path, entry, layout, Pool(SECRET))
    assert ("f" in batch.file.index.constants) == (len({*flags}) == 1)
    assert np.array_equal(batch.matrix(), matrix)
    check_lookup(batch, matrix, matrix[::3, : layout.key.width])
    assert Counter(pl.read_parquet(path)["f"].to_list()) == Counter(flags)


@given(
    keys=st.lists(texts, max_size=2),
    values=st.lists(texts, max_size=2),
    rows=st.lists(st.lists(st.integers(0, 99), min_size=6, max_size=6), min_size=1, max_size=30),
    nt=st.integers(1, 2),
    sizes=SIZES,
    alone=st.booleans(),
    bundled=st.booleans(),
    data=st.data(),
)
def test_what_is_loaded_is_what_was_written(tmp_path_factory, keys, values, rows, nt, sizes, alone, bundled, data):
    place = tmp_path_factory.mktemp("state")
    texts = {f"{'_' if at % 2 else ''}c{at}": text for at, text in enumerate([*keys, *values])}
    record = schema(texts)
    key = Layout(dict(list(record.items())[: len(keys)]))
    layout = BatchLayout(key, Layout(dict(list(record.items())[len(keys) :])), nt)
    pool = Pool(SECRET)
    matrix = np.array([[0] * layout.record.width + [row[4] % 3, row[5] % 3][:nt] + [1 + row[5] % 2] for row in rows])
    frame = pl.DataFrame(
        [column(name, text, [row[at] for row in rows]) for at, (name, text) in enumerate(texts.items())]
    )
    if texts:
        encode(frame, layout.record, pool, matrix)
    matrix = in_order(matrix)
    path, entry = store(place, matrix, layout, pool, *sizes, alone=alone, bundled=bundled)
    assert (entry.rows, entry.lower, entry.upper, entry.since) == (len(matrix), ((0,),), ((9,),), ((3,),))
    batch = StoredBatch(path, entry, layout, Pool(SECRET))
    assert (batch.rows, batch.lower, batch.upper, batch.since) == (len(matrix), LOWER, UPPER, SINCE)
    wanted = in_order(matrix[data.draw(st.lists(st.integers(0, len(matrix) - 1), max_size=4)), : key.width])
    for together in (128, 1):
        with pytest.MonkeyPatch.context() as patch:
            for name in ("TOGETHER", "LOOKED_INTO", "APART"):
                patch.setattr(paged_rows, name, together)
            check_lookup(StoredBatch(path, entry, layout, Pool(SECRET)), matrix, wanted)
            check_sparing(StoredBatch(path, entry, layout, Pool(SECRET)), wanted)
            first, end = sorted(data.draw(st.integers(0, len(matrix))) for _ in range(2))
            check_range(batch, matrix, first, end)
    assert np.array_equal(batch.matrix(), matrix)
    assert batch.matrix() is batch.matrix()
    batch.release()
    assert np.array_equal(batch.matrix(), matrix)
    check_lookup(batch, matrix, wanted)
    shutil.rmtree(place)


@given(
    texts=st.lists(
        st.sampled_from([text for text in TYPES if text.startswith(("int", "uint", "date", "time"))]), max_size=4
    ),
    width=st.integers(0, 4),
    rows=st.lists(st.lists(st.integers(0, 99), min_size=5, max_size=5), min_size=1, max_size=30),
    page=st.sampled_from([1, 4, 512]),
    other=st.sampled_from([None, *TYPES]),
)
def test_a_small_file_of_integers_is_read_without_its_index(texts, width, rows, page, other):
    record = schema({f"c{at}": text for at, text in enumerate(texts)})
    key = Layout(dict(list(record.items())[:width]))
    layout, pool = BatchLayout(key, Layout(dict(list(record.items())[width:])), 1), Pool(SECRET)
    matrix = np.array([[0] * layout.record.width + [row[4] % 3, 1 + row[4] % 2] for row in rows])
    if texts:
        values = [
            column(name, text, [row[at] for row in rows])
            for at, (name, text) in enumerate(zip(record, texts, strict=True))
        ]
        encode(pl.DataFrame(values), layout.record, pool, matrix)
    matrix = in_order(matrix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "PAGE", page)
        data = bytes(row_group_file(matrix, layout, pool))
        assert np.array_equal(read_lanes(data, layout, len(matrix)), matrix)
        assert read_lanes(data, layout, len(matrix) + 1) is None
        renamed = BatchLayout(Layout({}), Layout({f"x{name}": kind for name, kind in record.items()}), 1)
        assert not texts or read_lanes(data, renamed, len(matrix)) is None
        if other is not None and not is_packed(BatchLayout(Layout({}), Layout(schema({"c0": other})), 1)):
            own = {name: kind for name, kind in record.items() if name not in key.schema}
            more = BatchLayout(key, Layout({**own, "other": parse_type(other)}), 1)
            assert read_lanes(data, more, len(matrix)) is None
    damaged = bytearray(data)
    for at in range(4, len(data), 7):
        damaged[at] ^= 1 << at % 8
        read_lanes(
            bytes(damaged), layout, len(matrix)
        )  # its bytes are checked before; if they weren't, it would stay within them


def check_sparing(batch, keys):
    """Check that lanes which nobody looks at change nothing in the others, nor the order."""
    found = batch.for_keys(keys)
    values = range(keys.shape[1], batch.layout.record.width)
    for spared in (values, values[::2]):
        other = batch.for_keys(keys, spared)
        read = [lane for lane in range(found.shape[1]) if lane not in spared]
        assert np.array_equal(other[:, read], found[:, read])
        rows = other[:, :-1].tolist()
        assert rows == sorted(rows)


def check_lookup(batch, matrix, keys):
    """Check that every update of the keys is found, that nothing else is made up, and that the order is kept."""
    found = batch.for_keys(keys)
    assert found.shape[1] == matrix.shape[1]
    assert found.flags["C_CONTIGUOUS"]
    wanted = {tuple(key) for key in keys.tolist()}
    held = [row for row in matrix.tolist() if tuple(row[: keys.shape[1]]) in wanted]
    assert found.tolist() in (held, matrix.tolist())


def check_range(batch, matrix, first, end):
    """Check that the rows of the records between two that are there are found, and none of others; None has no bound."""
    width = batch.layout.record.width
    records = [row[:width] for row in matrix.tolist()]
    bounds = [None if at == len(matrix) else matrix[at : at + 1, :width] for at in (first, end)]
    low, high = (None if bound is None or not width else bound[0].tolist() for bound in bounds)
    found = batch.between(*(bound if width else None for bound in bounds), Pool(SECRET))
    expected = [
        row
        for row, record in zip(matrix.tolist(), records, strict=True)
        if (low is None or low <= record) and (high is None or record < high)
    ]
    assert found.tolist() == expected


ends = st.sampled_from([-(2**63), 2**63 - 1, -1, 0, 1, 255, 256]) | st.integers(-5, 5)


@given(
    rows=st.lists(st.tuples(ends, ends), min_size=1, max_size=40),
    keys=st.lists(st.tuples(ends, ends), max_size=6),
    own=st.integers(1, 3),
    asked=st.integers(1, 2),
    sizes=SIZES,
    alone=st.booleans(),
)
def test_lookups_of_any_keys_find_all_of_their_rows(tmp_path_factory, rows, keys, own, asked, sizes, alone):
    """Also keys that are not there, keys whose first lane alone says little, and more or fewer columns than the batch's key has."""
    place = tmp_path_factory.mktemp("state")
    names = ["a", "b", "v"]
    key, values = (dict.fromkeys(some, "int64") for some in (names[:own], names[own:]))
    layout = BatchLayout(Layout(schema(key)), Layout(schema(values)), 1)
    keys = [each[:asked] for each in keys]
    matrix = in_order(np.array([(*row, at, 0, 1) for at, row in enumerate(rows)]))
    path, entry = store(place, matrix, layout, Pool(SECRET), *sizes, alone=alone)
    batch = StoredBatch(path, entry, layout, Pool(SECRET))
    wanted = in_order(np.array(keys, np.int64).reshape(-1, asked))
    check_lookup(batch, matrix, wanted)
    known = {each[: min(asked, own)] for each in keys}  # what an index of a batch's own keys can tell
    held = sum(1 for row in matrix.tolist() if tuple(row[: min(asked, own)]) in known)
    assert sizes[1] * batch.file.pages_read <= held + 2 * sizes[1] * len(
        wanted
    )  # at most one before and one after what the key fills
    shutil.rmtree(place)


NUMBERS = BatchLayout(Layout(schema({"n": "int64"})), Layout({}), 1)
PEOPLE = BatchLayout(Layout(schema({"name": "string?"})), Layout(schema({"age": "int64?"})), 1)


def people(rows=100_000):
    pool = Pool(SECRET)
    frame = pl.DataFrame(
        {"name": [f"p{at}" for at in range(rows)], "age": [at if at % 7 else None for at in range(rows)]}
    )
    matrix = np.zeros((rows, PEOPLE.width), np.int64)
    encode(frame, PEOPLE.record, pool, matrix)
    matrix[:, -1] = 1
    return in_order(matrix), pool


def test_a_batch_of_another_secret_is_looked_into_by_no_key(place):
    """Its rows are in another order, so that what is there would not be found; sorted anew, it is the same batch."""
    matrix, pool = people(1000)
    path, entry = store(place, matrix, PEOPLE, pool)
    for secret in (PUBLIC, bytes(16)):
        other = Pool(secret)
        batch = StoredBatch(path, entry, PEOPLE, other)
        for read in (
            batch.matrix,
            lambda batch=batch: batch.for_keys(matrix[:1, :1]),
            lambda batch=batch: list(batch.parts()),
        ):
            with pytest.raises(StateError, match="the batch was written under another secret"):
                read()
        found = batch.rehashed()
        assert np.array_equal(in_order(found), found)
        assert sorted(decode(found, PEOPLE.record, other).rows(), key=str) == sorted(
            decode(matrix, PEOPLE.record, pool).rows(), key=str
        )


def test_a_lookup_of_few_keys_reads_few_pages(place):
    matrix, pool = people()
    path, entry = store(place, matrix, PEOPLE, pool)
    for rows, pages in (
        ([50_000], 1),
        ([5, 99_999], 2),
        (range(40_000, 40_100), 1),
        ([], 0),
        (range(0, 100_000, 5000), 20),
    ):
        batch = StoredBatch(path, entry, PEOPLE, Pool(SECRET))
        keys = matrix[list(rows), :1].reshape(-1, 1)
        assert np.array_equal(batch.for_keys(keys), matrix[list(rows)])
        assert batch.file.pages_read == pages
        assert batch.file.groups_read == 0


def test_threads_look_into_many_pages(place, monkeypatch):
    """Two of them at the same time; what any of them finds damaged is an error."""
    layout = BatchLayout(Layout(schema({"k": "int64"})), Layout(schema({"v": "int64"})), 1)
    matrix = np.ones((3000, layout.width), np.int64)
    matrix[:, 0], matrix[:, 1] = np.arange(3000), np.arange(3000) ** 2 % 1000
    path, entry = store(place, matrix, layout, Pool(SECRET), 512, 8)
    both, waiting, find_rows = threading.Barrier(2, timeout=300), [True, True], paged_rows.find_rows

    def find_together(*given):
        if waiting and waiting.pop():
            both.wait()
        return find_rows(*given)

    monkeypatch.setattr(paged_rows, "APART", 4)
    monkeypatch.setattr(paged_rows, "LOOKED_INTO", 16)
    monkeypatch.setattr(paged_rows, "find_rows", find_together)
    workers = Workers(3)
    monkeypatch.setattr(paged_rows, "_workers", lambda _threads: workers)
    batch = StoredBatch(path, entry, layout, Pool(SECRET))
    wanted = matrix[::5]
    assert np.array_equal(batch.for_keys(wanted[:, :1]), wanted)
    assert not waiting
    assert (batch.file.pages_read, batch.file.rows_scanned) == (375, 3000)
    whole = path.read_bytes()
    path.write_bytes(whole[:30] + bytes([whole[30] ^ 1]) + whole[31:])
    with pytest.raises(StateError, match="damaged"):
        StoredBatch(path, entry, layout, Pool(SECRET)).for_keys(wanted[:, :1])
    workers.close()
    monkeypatch.undo()
    monkeypatch.setattr(paged_rows, "APART", 4)
    monkeypatch.setattr(Workers, "most", 1)
    monkeypatch.setattr(Workers, "each", None)  # nobody is asked
    path.write_bytes(whole)
    assert np.array_equal(StoredBatch(path, entry, layout, Pool(SECRET)).for_keys(wanted[:, :1]), wanted)


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=40),
    places=st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 10), st.integers(0, 3)), min_size=1, max_size=3),
    sizes=SIZES,
    lanes=st.integers(1, 2),
)
def test_ranges_of_places_have_all_of_their_rows(tmp_path_factory, rows, places, sizes, lanes):
    """What is near a place reaches to either side of it, and is read with nothing of it left out."""
    layout = BatchLayout(Layout(schema({"k": "int64"})), Layout(schema({"o": "int64", "v": "int64"})), 1)
    matrix = kernels.consolidate(np.array([(k, o, at % 3, at % 4, 1) for at, (k, o) in enumerate(rows)]))
    path, entry = store(tmp_path_factory.mktemp("state"), matrix, layout, Pool(SECRET), *sizes)
    first = np.array([(k, o, 0) for k, (o, _) in sorted({k: rest for k, *rest in places}.items())])[:, : 1 + lanes]
    last = first.copy()
    last[:, 1] += [far for _, (_, far) in sorted({k: rest for k, *rest in places}.items())]
    batch = StoredBatch(path, entry, layout, Pool(SECRET))
    low, high = batch.limits(first, last, 1)
    assert (low <= first).all() if lanes == 1 else all(map(list.__le__, low.tolist(), first.tolist()))
    assert all(map(list.__ge__, high.tolist(), last.tolist()))
    for begin, end in ((low, high), (first, last)):
        near = StoredBatch(path, entry, layout, Pool(SECRET))
        found, ranges = near.in_ranges(begin, end, 1), list(zip(begin.tolist(), end.tolist(), strict=True))

        def inside(rows, ranges=ranges):
            return [row for row in rows.tolist() if any(one <= row[: 1 + lanes] <= other for one, other in ranges)]

        assert inside(found) == inside(matrix)


def test_keys_that_are_not_there_read_what_could_have_them(place):
    rows = np.array([[at, 0, 1] for at in range(10, 90, 10)])
    for page in (1, 2):
        path, entry = store(place / str(page), rows, NUMBERS, Pool(SECRET), group=2, page=page)
        for key, read in ((5, 0), (15, 1), (25, 1), (75, 1), (95, 0)):
            batch = StoredBatch(path, entry, NUMBERS, Pool(SECRET))
            assert len(batch.for_keys(np.array([[key]]))) == 0
            assert batch.file.pages_read == read


def test_any_reader_sees_real_columns_and_row_groups_with_statistics(place):
    matrix, pool = people()
    path, _ = store(place, matrix, PEOPLE, pool)
    columns = {"name": pl.String, "age": pl.Int64, "_key": pl.Int64, "_time": pl.Int64, "_diff": pl.Int64}
    assert pl.read_parquet_schema(path) == columns
    frame = PEOPLE.to_frame(matrix, pool)
    assert pl.read_parquet(path).equals(frame.select(list(columns)))
    assert pl.from_arrow(pq.read_table(path)).equals(frame.select(list(columns)))
    sql = f"select count(*), sum(_diff), max(age), count(age) from '{path}' where name = 'p8' or age > 99990"
    assert duckdb.sql(sql).fetchall() == [(9, 9, 99999, 9)]
    groups = duckdb.sql(
        f"select row_group_num_rows, stats_min_value::bigint from parquet_metadata('{path}') where path_in_schema = '_key' order by row_group_id"
    ).fetchall()
    group = file.GROUP
    assert [rows for rows, _ in groups] == [group] * 3 + [100_000 - 3 * group]
    assert [least for _, least in groups] == matrix[::group, 0].tolist()
    integers = BatchLayout(Layout(schema({"k": "int32"})), Layout({}), 2)
    path, _ = store(place / "other", np.array([[1, 0, 0, 1]]), integers, Pool(SECRET))
    assert list(pl.read_parquet_schema(path)) == ["k", "_time0", "_time1", "_diff"]


@pytest.mark.parametrize("text", [*some(TYPES)])
@pytest.mark.parametrize("repeated", [0, 256, None])
def test_other_readers_read_columns_of_every_type(place, text, repeated, monkeypatch):
    """Many pages, and values that are numbered or are not; or a file of one row group."""
    monkeypatch.setattr(file, "REPEATED", repeated or 0)
    layout = BatchLayout(Layout(schema({"k": "int64"})), Layout(schema({"v": text})), 1)
    pool, rows = Pool(SECRET), 3000
    frame = pl.DataFrame([pl.Series("k", range(rows)), column("v", text, list(range(rows)))])
    matrix = np.ones((rows, layout.width), np.int64)
    encode(frame, layout.record, pool, matrix)
    alone = repeated is None
    if alone and not is_plain(layout):
        return
    path, entry = store(place, matrix, layout, pool, group=4000 if alone else 1000, page=100, alone=alone)
    expected = decode(matrix, layout.record, pool)
    assert pl.read_parquet(path, columns=["k", "v"]).equals(expected)
    assert pl.from_arrow(pq.read_table(path, columns=["k", "v"])).equals(expected)
    library = place / "library.parquet"
    library.write_bytes(batch_bytes(matrix, layout, pool))
    types = (duckdb.sql(f"describe select * from '{each}'").fetchall() for each in (path, library))
    assert next(types) == next(types)
    assert duckdb.sql(f"select * from '{path}' except all select * from '{library}'").fetchall() == []
    batch = StoredBatch(path, entry, layout, Pool(SECRET))
    assert np.array_equal(batch.matrix(), matrix)
    assert np.array_equal(StoredBatch(path, entry, layout, Pool(SECRET)).for_keys(matrix[::7, :1]), matrix[::7])


def test_damage_is_noticed_and_named(place):
    matrix, pool = people(1000)
    path, entry = store(place, matrix, PEOPLE, pool)
    whole = path.read_bytes()
    manifest_errors = list(verify_state(place.resolve(), State.open(place, {}).manifest))
    assert manifest_errors == []

    def refused(read):
        with pytest.raises(StateError) as caught:
            read()
        assert caught.value.exit_code == 4
        assert caught.value.place == str(path)
        return caught.value.problem

    path.write_bytes(whole[:-1])
    assert "bytes, the manifest states" in refused(lambda: StoredBatch(path, entry, PEOPLE, pool))
    for at in (100, len(whole) // 2, len(whole) - 6):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        assert "damaged" in refused(StoredBatch(path, entry, PEOPLE, pool).matrix)
    path.write_bytes(bytes(len(whole)))
    assert "damaged" in refused(lambda: StoredBatch(path, entry, PEOPLE, pool).for_keys(matrix[:1, :1]))
    path.unlink()
    assert "can't be read" in refused(lambda: StoredBatch(path, entry, PEOPLE, pool))


def test_verification_finds_every_damaged_file(place):
    matrix, pool = people(1000)
    path, _ = store(place, matrix, PEOPLE, pool)
    manifest = State.open(place, {}).manifest
    data = bytearray(path.read_bytes())
    data[77] ^= 8
    path.write_bytes(data)
    assert [error.place for error in verify_state(place.resolve(), manifest)] == [str(path)]


def test_the_index_knows_rows_row_groups_and_pages(place):
    matrix, pool = people(100_000)
    path, entry = store(place, matrix, PEOPLE, pool)
    index = StoredBatch(path, entry, PEOPLE, Pool(SECRET)).file.index
    assert (index.group, index.groups, index.pages) == (file.GROUP, 4, 64)
    assert np.array_equal(index.records, np.concatenate([matrix[:: index.group, :-2], matrix[-1:, :-2]]))
    fewer = replace(entry, rows=1)
    with pytest.raises(StateError, match="damaged"):
        StoredBatch(path, fewer, PEOPLE, Pool(SECRET)).for_keys(matrix[:1, :1])

"""Bundles: tar archives of Parquet, emptied before they cost much, gone when nobody names a batch of them; states without any go on."""

import io
import tarfile
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddcli.store.batch.file
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.errors import StateError
from ddcli.expressions.types import parse_type
from ddcli.store.batch.checked_files import OpenBundles
from ddcli.store.batch.compaction import NewBatch
from ddcli.store.batch.file import BatchLayout
from ddcli.store.batch.row_group_file import row_group_file
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.files.access import reading
from ddcli.store.state import batch_lists
from ddcli.store.state.batch_lists import Bundle, footprint, inside, worn
from ddcli.store.state.branches import export_state
from ddcli.store.state.contents import batch_path, batches_of
from ddcli.store.state.directory import State
from ddcli.store.state.entries import ArrangementEntry
from ddcli.store.state.manifest import Manifest, manifest_path, read_newest
from ddcli.store.state.upkeep import collect_garbage, compact_state, verify, verify_state
from tests import draws
from tests.draws import many
from tests.secret import SECRET

LAYOUT = BatchLayout(Layout({"k": parse_type("int64")}), Layout({"v": parse_type("string")}), 1)
POOL = Pool(SECRET)


@pytest.fixture(autouse=True)
def early(monkeypatch):
    """Have every batch go into a bundle, and bundles be emptied early; of batches that are not quite small, read pages."""
    monkeypatch.setattr(ddcli.store.batch.file, "WHOLE", 1500)
    for name, value in {"FEW": 0, "SLACK": 4096, "MOST_BUNDLES": 3}.items():
        monkeypatch.setattr(batch_lists, name, value)


def updates(seed, rows):
    """Return sorted updates of random texts."""
    rng = np.random.default_rng(seed)
    texts = pl.Series("v", [f"text {at}" for at in rng.integers(0, 9, rows)])
    frame = pl.DataFrame({"k": pl.Series(np.arange(rows) * 3, dtype=pl.Int64), "v": texts})
    matrix = np.zeros((rows, LAYOUT.width), np.int64)
    encode(frame, LAYOUT.record, POOL, matrix)
    matrix[:, -2:] = 0, 1
    return matrix


def commit(directory, plan, drop=()):
    """Commit a batch of some rows for each arrangement of a plan {name: rows}; those in `drop` lose the others that they have."""
    with State.open(directory, {}) as state:
        before = state.manifest
        made = dict(before.arrangements) if before else {}
        with state.begin(batches=len(plan)) as transaction:
            for name, rows in plan.items():
                matrix = updates(rows, rows)
                data = row_group_file(matrix, LAYOUT, POOL)
                old = made[name].shards[0] if name in made and name not in drop else ()
                times = [((at,),) for at in (0, 1, 0)]
                entry = NewBatch(data, rows, *map(Frontier, times), run=len(old)).write(transaction, name, 0)
                columns = {"k": "int64", "v": "string"}
                made[name] = ArrangementEntry("f", ((0,),), ((1,),), ("k",), columns, ((*old, entry),))
            return transaction.commit(Manifest("p", ((1,),), arrangements=made, secret=SECRET.hex()))


def rows_of(directory):
    """Return what each batch of a state holds, as read by runs; see that files and sizes are those of the manifest."""
    manifest = read_newest(directory)
    found = {}
    for name, shard, file in batches_of(manifest):
        path = batch_path(directory, name, shard, file)
        found[name, file.name] = StoredBatch(path, file, LAYOUT, Pool(SECRET)).matrix().tolist()
    there = {path.name: path.stat().st_size for path in (directory / "bundles").glob("*")}
    assert there == manifest.bundles
    assert {file.bundle for _, _, file in batches_of(manifest)} - {""} == manifest.bundles.keys()
    return found


def test_a_bundle_is_a_tar_archive(tmp_path):
    """Any reader opens what `tar -xf` makes of it, in the state's own folders."""
    commit(tmp_path / "s", {"a": 5, "b-waiting": 700})
    assert not (tmp_path / "s/arrangements").exists()
    with tarfile.open(tmp_path / "s/bundles/000000001.tar") as archive:
        archive.extractall(tmp_path / "x", filter="data")
    for name, rows in (("a", 5), ("b-waiting", 700)):
        frame = pl.read_parquet(tmp_path / f"x/arrangements/{name}/0/000000001-0000.parquet")
        assert frame["k"].to_list() == [3 * at for at in range(rows)]
        assert frame.columns == ["k", "v", "_time", "_diff"]


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=1500)), max_size=6))
def test_a_bundle_has_what_was_added_where_it_says(files):
    made, placed = Bundle(), []
    for at, (shard, data) in enumerate(files):
        path = inside("a" * (1 + at * 20), shard, f"00000000{at}-0000.parquet")
        placed.append((path, made.add(path, data), data))
    assert made.size == sum(footprint(len(data)) for _, _, data in placed)
    with tarfile.open(fileobj=io.BytesIO(made.content())) as archive:
        members = archive.getmembers()
        found = [(one.name, one.offset_data, archive.extractfile(one).read()) for one in members]
    assert found == placed
    assert all(one.isreg() and one.mode == 0o644 and one.uid == one.mtime == 0 for one in members)


@pytest.mark.parametrize(("name", "rows"), [("a" * 190, 3), ("a", 32_000)], ids=["a long path", "a large batch"])
def test_what_does_not_fit_has_a_file_of_its_own(tmp_path, monkeypatch, name, rows):
    monkeypatch.setattr(batch_lists, "SMALL", 40_000)
    commit(tmp_path, {name: rows, "b": 3})
    assert sorted(path.name for path in (tmp_path / "arrangements").iterdir()) == [name]
    assert len(rows_of(tmp_path)) == 2


@settings(max_examples=many(12))
@given(st.lists(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), min_size=1, max_size=5), max_size=9))
def test_commits_in_any_order(tmp_path_factory, steps):
    """Batches are added and dropped: each is read as it was written, bundles stay few and full, and no file is there that nobody names."""
    directory = tmp_path_factory.mktemp("state") / "s"
    meant = {}
    for number, step in enumerate(steps, 1):
        plan = {name: 1 + number * 37 % 90 for name, _ in step}
        drop = {name for name, goes in step if goes}
        commit(directory, plan, drop)
        meant = {place: rows for place, rows in meant.items() if place[0] not in plan or place[0] not in drop}
        meant |= {(name, f"{number:09d}-0000.parquet"): updates(rows, rows).tolist() for name, rows in plan.items()}
        assert rows_of(directory) == meant
        manifest = read_newest(directory)
        alive = Counter()
        for _, _, file in batches_of(manifest):
            alive[file.bundle] += footprint(file.size)
        assert len(alive) <= batch_lists.MOST_BUNDLES + 1
        assert sum(manifest.bundles.values()) <= 2 * alive.total() + batch_lists.SLACK + 1024 * len(alive)
    if steps:
        assert verify(directory)[2] == []
        assert not collect_garbage(directory)


@given(st.dictionaries(st.text("abc", max_size=3), st.tuples(st.integers(1, 100), st.integers(0, 100))))
def test_worn_bundles_are_those_with_the_least_alive(sizes):
    found = {name: (size, size * part // 100) for name, (size, part) in sizes.items()}
    emptied = worn(found)
    kept = [found[name][1] / found[name][0] for name in found.keys() - emptied]
    assert all(found[name][1] / found[name][0] <= min(kept, default=1) for name in emptied)
    assert len(kept) <= batch_lists.MOST_BUNDLES


def test_a_damaged_bundle_is_refused_by_whoever_reads_it(tmp_path):
    manifest = commit(tmp_path, {"a": 20, "b": 20})
    path = tmp_path / "bundles/000000001.tar"
    data = path.read_bytes()
    (_, _, first), _ = batches_of(manifest)
    for at in (first.at, first.at + first.size // 2, first.at + first.size - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(StateError, match="damaged") as caught:
            rows_of(tmp_path)
        assert caught.value.place == str(path)
        assert [error.place for error in verify(tmp_path)[2]] == [str(path)]
    path.write_bytes(data[: first.at + 10])
    with pytest.raises(StateError, match="bytes, the manifest states"):
        rows_of(tmp_path)
    assert len(verify(tmp_path)[2]) == 2
    path.unlink()
    with pytest.raises(StateError, match="can't be read"):
        rows_of(tmp_path)


def test_a_run_opens_a_bundle_once_and_refuses_what_is_damaged_in_it(tmp_path, monkeypatch):
    manifest = commit(tmp_path, {"a": 20, "b": 3000})
    path = tmp_path / "bundles/000000001.tar"
    data, opened = path.read_bytes(), []
    files = {name: file for name, _, file in batches_of(manifest)}
    monkeypatch.setattr("ddcli.store.batch.checked_files.reading", lambda path: opened.append(path) or reading(path))
    together = OpenBundles()
    for name, rows in {"a": 20, "b": 3000}.items():
        batch = StoredBatch(path, files[name], LAYOUT, Pool(SECRET), bundles=together)
        assert len(batch.matrix()) == rows
    assert opened == [path]

    def reads(content):
        path.write_bytes(content)
        return StoredBatch(path, files["b"], LAYOUT, Pool(SECRET), bundles=OpenBundles()).matrix()

    at = files["b"].at + 40
    for content, problem in (
        (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "damaged"),
        (data[:at], "bytes, the manifest states"),
        (b"", "damaged"),
    ):
        with pytest.raises(StateError, match=problem) as caught:
            reads(content)
        assert caught.value.place == str(path)
    path.unlink()
    with pytest.raises(StateError, match="can't be read"):
        StoredBatch(path, files["b"], LAYOUT, Pool(SECRET), bundles=OpenBundles())


@pytest.mark.parametrize("change", [{"bundle": "../x.tar"}, {"bundle": "000000002.tar"}, {"at": -1}, {"at": 1 << 30}])
def test_a_manifest_that_leads_elsewhere_is_refused(tmp_path, change):
    manifest = commit(tmp_path, {"a": 20})
    entry = manifest.arrangements["a"]
    file = replace(entry.shards[0][0], **change)
    path = manifest_path(tmp_path, 1)
    path.write_bytes(replace(manifest, arrangements={"a": replace(entry, shards=((file,),))}).to_bytes())
    with pytest.raises(StateError, match="content that `dd` never writes"):
        read_newest(tmp_path)


def test_a_copy_and_a_compaction_have_files_of_their_own(tmp_path):
    for _ in range(3):
        commit(tmp_path / "s", {"a": 5, "b": 7})
    commit(tmp_path / "s", {"c": 9})
    before = rows_of(tmp_path / "s")
    export_state(tmp_path / "s", tmp_path / "copy")
    assert rows_of(tmp_path / "copy") == before
    manifest = read_newest(tmp_path / "s")
    with_times = replace(
        manifest,
        cache={
            "time": {"time": "int64"},
            "seen": None,
            "plan": {"generations": [], "outline": {"outputs": {}, "nodes": {}}},
        },
    )
    manifest_path(tmp_path / "s", manifest.number).write_bytes(with_times.to_bytes())
    compact_state(tmp_path / "s")
    for place in ("s", "copy"):
        assert read_newest(tmp_path / place).bundles == {}
        assert not [*(tmp_path / place).glob("bundles/*")]
        assert verify(tmp_path / place)[2] == []
    assert sorted(rows_of(tmp_path / "s")) == [
        (name, f"00000000{at}-0000.parquet") for name, at in (("a", 5), ("b", 5), ("c", 4))
    ]


def test_verify_finds_any_bit_of_a_bundle(tmp_path):
    """Beside the batches themselves there are headers, padding and the end, which `tar` reads."""
    manifest = commit(tmp_path, {"a": 3, "b": 40})
    ((path, whole),) = {(path, path.read_bytes()) for path in (tmp_path / "bundles").iterdir()}
    assert not list(verify_state(tmp_path, manifest))
    chance = draws.chance("bundle")
    entries = [file for _, _, file in batches_of(manifest)]
    places = [at for file in entries for at in range(file.at - 512, file.at)]  # headers
    places += [at for file in entries for at in range(file.at + file.size, file.at - 512 + footprint(file.size))]
    places += range(len(whole) - 1024, len(whole))
    for at in [*chance.sample(places, 300), *chance.sample(range(len(whole)), 60)]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        assert [error.place for error in verify_state(tmp_path, manifest)][:1] == [str(path)], at
    for cut in (whole[:-1], whole + b"\0", whole[:-1024]):
        path.write_bytes(cut)
        assert [error.place for error in verify_state(tmp_path, manifest)] == [str(path)]

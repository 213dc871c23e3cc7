"""Registers: what is written is read back, whatever changed when, and a commit writes little of it."""

import json
import random
import shutil
from itertools import pairwise

import pytest

import ddcli.store.state.register
from ddcli.driver.run import run
from ddcli.engine.trace import policy
from ddcli.errors import StateError
from ddcli.store.files.gate import Files, checksum
from ddcli.store.state.branches import export_state
from ddcli.store.state.directory import Hold, State, holding, write_hold
from ddcli.store.state.entries import FileEntry, InputEntry, InputFile, OutputEntry
from ddcli.store.state.manifest import Manifest, manifest_path, read_manifest, read_newest
from ddcli.store.state.register import LATELY, SEGMENTS, Register
from tests.crash.shop import Shop
from tests.draws import many
from tests.store.support import Faulty, names

COLUMNS = {"columns": {}, "time": {"time": "int64"}, "diff": False}
"""What an input keeps of its columns."""


def file(at, **more):
    return InputFile(f"part-{at:06d}.parquet", 1000 + at, 10**18 + at, "ab" * 16, **{"done": True} | more)


def test_files_without_counts_are_read_as_earlier_versions_wrote_them():
    """A state of the version before has no numbers of rows; they are unknown, not 0."""
    plain = ["a.csv", 10, 20, "ab", True]
    rows = [
        ([], {}),
        ([[[3]]], {"since": ((3,),)}),
        ([None, 7], {"at": 7}),
        ([None, 7, True], {"at": 7, "withdrawn": True}),
        ([None, None, False, "a.csv", "", False, "cd"], {"digest": "cd"}),
    ]
    for more, facts in rows:
        found = InputFile.from_row([*plain, *more])
        assert found == InputFile("a.csv", 10, 20, "ab", done=True, **facts)
        assert (found.rows, found.commit, found.late) == (None, 0, 0)
        assert json.loads(json.dumps(found.to_row())) == [*plain, *more], "and written as it was"
        counted = InputFile("a.csv", 10, 20, "ab", done=True, rows=0, commit=4, late=len(facts), **facts)
        assert InputFile.from_row(json.loads(json.dumps(counted.to_row()))) == counted
    archived = ["/old/a.csv", *plain[1:], None, 7, False, "a.csv", "old/a.csv"]
    assert InputFile.from_row(archived).archived == "old/a.csv"


def update(at):
    return FileEntry(f"updates-{at}-{at + 1}.parquet", 1, 10, "00000000", ((at,),), ((at + 1,),))


def commit(directory, inputs, outputs=None, files=None):
    """Commit these files of an input; `outputs` is what an output has, or what it gets more."""
    with State.open(directory, {}, files=files) as state, state.begin() as transaction:
        made = {} if outputs is None else {"out": OutputEntry("../out", {}, outputs)}
        upper = ((transaction.number,),)
        return transaction.commit(Manifest("p", upper, inputs={"in": InputEntry(upper, inputs, COLUMNS)}, outputs=made))


@pytest.mark.parametrize("seed", range(many(6)))
def test_what_was_committed_is_read(tmp_path, seed, monkeypatch):
    """Files come, change, wait, and (in a full refresh) go; the newest manifest says what a dict says."""
    monkeypatch.setattr(ddcli.store.state.register, "LATELY", 3)
    draw, said = random.Random(seed), {}
    wrote = []
    for _ in range(60):
        for _ in range(draw.choice([0, 1, 1, 2, 30])):
            at = draw.randrange(120)
            since = draw.choice([None, ((at,),)])
            said[at] = file(at, done=draw.random() < 0.7, since=since)
        if draw.random() < 0.05:
            said = {at: entry for at, entry in said.items() if draw.random() < 0.5}
        wrote += [update(len(wrote))] * draw.randrange(2)
        meant = [said[at] for at in sorted(said)]
        before = read_newest(tmp_path / "state")
        outputs = before.outputs["out"].files.plus(wrote[len(before.outputs["out"].files) :]) if before else wrote
        commit(tmp_path / "state", tuple(meant), outputs)
        found = read_newest(tmp_path / "state")
        assert sorted(found.inputs["in"].files, key=lambda entry: entry.path) == meant
        assert set(found.inputs["in"].files.keys()) == {entry.path for entry in meant}
        assert list(found.outputs["out"].files) == wrote
        named = {f"{SEGMENTS}/{name}" for name in found.segments()}
        there = names(tmp_path / "state")
        assert named == {name for name in there if name.startswith(SEGMENTS)}, "no more and no less"
        assert len(named) <= 16
    assert named


def test_the_policy_keeps_few_segments_and_writes_each_entry_seldom():
    counts, written, entries = [], 0, 0
    for _ in range(20_000):
        fresh = LATELY + 1
        entries += fresh
        stay = policy.fold([*counts, fresh])
        counts = [*counts[:stay], sum(counts[stay:]) + fresh]
        written += counts[-1]
        assert sum(counts) == entries
        assert all(older >= policy.RATIO * newer for older, newer in pairwise(counts))
    assert len(counts) <= 16
    assert written / entries < 16


def test_what_a_commit_writes_does_not_grow(tmp_path):
    """Bytes of a commit early and after 400 others, on the average."""

    class Counting(Files):
        def __init__(self):
            self.bytes = 0

        def write(self, path, data):
            self.bytes += memoryview(data).nbytes
            return super().write(path, data)

        def sync(self, path):
            """Don't: it takes its time."""

        sync_directory = sync

    sizes, files, outputs = [], (), ()
    with State.open(tmp_path / "state", {}, files=Counting()) as state:
        for at in range(600):
            files = (*files, file(at))
            before = state.files.bytes
            with state.begin() as transaction:
                outputs = state.manifest.outputs["out"].files.plus([update(at)]) if state.manifest else (update(at),)
                upper = ((at,),)
                inputs = {"in": InputEntry(upper, files, COLUMNS)}
                transaction.commit(Manifest("p", upper, inputs=inputs, outputs={"out": OutputEntry("o", {}, outputs)}))
            sizes.append(state.files.bytes - before)
    early, late = sum(sizes[65:195]) / 130, sum(sizes[-195:]) / 195
    assert late < 1.5 * early
    assert late < 16_000, "220 bytes of each of 1 200 would be 264 000"
    assert list(read_newest(tmp_path / "state").inputs["in"].files) == list(files)


def test_a_manifest_that_somebody_reads_by_keeps_its_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(ddcli.store.state.register, "LATELY", 1)
    state = tmp_path / "state"
    first = commit(state, tuple(map(file, range(5))))
    with holding(state, Files()):
        write_hold(state, Hold("reader-01234567", "elsewhere", (), ((1,),), ((1,),), manifest=1), Files())
    for more in range(6, 30):
        commit(state, tuple(map(file, range(more))))
    assert read_manifest(manifest_path(state, 1)) == first
    with holding(state, Files()):
        write_hold(state, Hold("reader-01234567", "elsewhere", (), ((1,),), ((1,),), manifest=None), Files())
    last = commit(state, tuple(map(file, range(40))))
    assert {name for name in names(state) if name.startswith(SEGMENTS)} == {f"{SEGMENTS}/{n}" for n in last.segments()}


def test_a_damaged_or_missing_segment_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(ddcli.store.state.register, "LATELY", 1)
    commit(tmp_path / "state", tuple(map(file, range(5))))
    ddcli.store.state.manifest._LATELY.clear()  # another process reads it
    (path,) = (tmp_path / "state" / SEGMENTS).iterdir()
    data = path.read_bytes()
    for damaged in (data[:-1], bytes([data[0] ^ 1]) + data[1:], b""):
        path.write_bytes(damaged)
        with pytest.raises(StateError, match="damaged") as caught:
            read_newest(tmp_path / "state")
        assert path.name in caught.value.place
    path.unlink()
    with pytest.raises(StateError, match="is gone") as caught:
        read_newest(tmp_path / "state")
    assert caught.value.place == str(path)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[[]]",
        b"[[1]]",
        b'[["a",1]]',
        b"x",
        b'[["../../x",1,1,"",true]]',
        b"[" * 10_000,
        b"[[0],[1],[2],[3],[4]]",
    ],
)
def test_a_segment_that_says_nonsense_is_refused(tmp_path, data, monkeypatch):
    """Its checksum is right: whoever changes a file may compute another."""
    monkeypatch.setattr(ddcli.store.state.register, "LATELY", 1)
    state = tmp_path / "state"
    manifest = commit(state, tuple(map(file, range(5))))
    (segment,) = manifest.inputs["in"].files.segments
    (state / SEGMENTS / segment.name).write_bytes(data)
    entry = Register.from_json(
        InputFile, {"segments": [[segment.name, len(data), checksum(data), 5]], "files": []}, lambda _name: data
    )
    with pytest.raises(StateError):
        list(entry)
    with pytest.raises(StateError):
        entry.keys()


def test_names_that_lead_elsewhere_are_refused():
    for name in ("../x.json", "000000001-0000.json/..", "/etc/passwd", 5, None):
        tree = {"segments": [[name, 1, "00000000", 1]], "files": []}
        with pytest.raises(ValueError, match="no name of"):
            Register.from_json(InputFile, tree, lambda _name: pytest.fail("read"))


def test_a_copy_has_its_registers_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(ddcli.store.state.register, "LATELY", 1)
    shop = Shop.make(tmp_path / "shop")
    for step in range(4):
        shop.supply(step)
        shop.run()
    export_state(shop.state, tmp_path / "copy")
    assert (shop.state / SEGMENTS).exists()
    assert not (tmp_path / "copy" / SEGMENTS).exists()
    for before, after in zip(
        read_newest(shop.state).inputs.values(), read_newest(tmp_path / "copy").inputs.values(), strict=True
    ):
        assert before == after
    shutil.rmtree(shop.state)
    shop.supply(4)
    assert run(shop.folder / "shop.yaml", state=tmp_path / "copy").changed
    assert shop.rows() == shop.meant(5)


def test_a_commit_without_many_changes_writes_no_segment(tmp_path):
    files = Faulty()
    commit(tmp_path / "state", tuple(map(file, range(LATELY))), files=files)
    assert not [path for _, path in files.log if path.parent.name == SEGMENTS]

"""Lists of batches: a manifest and its lists name what one manifest would, whatever was merged when, and a commit writes little of them."""

import json
import random
import threading
from dataclasses import replace

import pytest

from ddcli.errors import StateError
from ddcli.store.files.gate import Files, Written, checksum
from ddcli.store.state import batch_lists, manifest
from ddcli.store.state.batch_lists import LATELY, MOST, BatchList, BatchRegister, list_bytes
from ddcli.store.state.branches import export_state
from ddcli.store.state.directory import Hold, State, holding, write_hold
from ddcli.store.state.document import ARRANGEMENT
from ddcli.store.state.entries import ArrangementEntry, FileEntry
from ddcli.store.state.manifest import Manifest, manifest_path, read_manifest, read_newest
from ddcli.store.state.register import SEGMENTS, Segment
from ddcli.store.state.upkeep import compact_state, reshard_state, verify
from tests.crash.shop import Shop
from tests.draws import many
from tests.store.support import Dead, Faulty, names


@pytest.fixture
def early(monkeypatch):
    """Have lists early, and small ones."""
    monkeypatch.setattr(batch_lists, "LATELY", 6)
    monkeypatch.setattr(batch_lists, "MOST", 16)
    monkeypatch.setattr(batch_lists, "DENSE", 2)
    monkeypatch.setattr(batch_lists, "LISTS", 4)


def batch(commit, number, run=0):
    return FileEntry(
        f"{commit:09d}-{number:04d}.parquet",
        7,
        100,
        f"{number:08x}",
        ((commit,),),
        ((commit + 1,),),
        ((0,),),
        "0badcafe",
        run,
    )


def arrangement(shards):
    return ArrangementEntry("f1", ((0,),), ((9,),), ("a",), {"a": "int64"}, tuple(map(tuple, shards)))


def changed(draw, shards, commit, most):
    """Return the shards after a commit: in some of them a batch came, or the youngest batches were merged, or one moved to a bundle."""
    found = list(shards)
    for number, at in enumerate(draw.sample(range(len(found)), draw.randint(0, min(most, len(found))))):
        files = found[at]
        new = batch(commit, number, max((file.run for file in files), default=-1) + 1)
        match draw.choice(["add", "add", "merge", "move", "drop"]):
            case "add":
                found[at] = (*files, new)
            case "merge":
                kept = files[: draw.randint(0, len(files))]
                found[at] = (*kept, replace(new, run=files[len(kept)].run if len(kept) < len(files) else new.run))
            case "move" if files:
                bundle = f"{commit:09d}.tar"
                found[at] = (*files[:-1], replace(files[-1], bundle=bundle, at=512 * number))
            case "drop":
                found[at] = ()
    return tuple(found)


def indexed(draw, now, commit, write):
    """Return indices that tasks have written of the commit's batches; of some there is none, and others got another run since."""
    new = [
        (name, at, file)
        for name, entry in now.items()
        for at, files in enumerate(entry.shards)
        for file in files
        if file.name.startswith(f"{commit:09d}") and draw.random() < 0.9
    ]
    found = []
    while new:
        count = draw.randint(1, len(new))
        batches, new = (
            tuple((*at, replace(file, run=draw.choice([file.run, file.run, 99]))) for *at, file in new[:count]),
            new[count:],
        )
        name, written = write(list_bytes(batches))
        found.append(BatchList(Segment(name, written.size, written.checksum, count), batches))
    return found


def named(register):
    """Return the names of the lists of a register, and of the indices that they name."""
    every = [each for each, _ in register.lists]
    return {each.file.name for each in every} | {part.name for each in every for part in each.parts}


@pytest.mark.parametrize("seed", range(many(10)))
def test_lists_name_what_one_manifest_would(early, seed):
    """Thousands of commits with merges, moves, and arrangements that come and go; some are of tasks, some are read anew."""
    draw, there, written, joined = random.Random(seed), {}, 0, 0
    now, register = {}, BatchRegister()
    most = draw.choice([3, 40])

    def write(data):
        nonlocal written
        name = f"{commit:09d}-{len(there) % 10_000:04d}.json"
        there[name] = data
        written += 1
        return name, Written(len(data), checksum(data))

    for commit in range(1, 600):
        now = {name: entry for name, entry in now.items() if draw.random() > 0.01}
        for name in ("a1", "b2"):
            count = 30 if name in now and draw.random() < 0.99 else draw.choice([1, 30])
            old = now[name].shards if name in now else ()
            shards = (*old[:count], *[()] * (count - len(old)))
            now[name] = arrangement(changed(draw, shards, commit, most))
        before = named(register)
        indices = indexed(draw, now, commit, write) if draw.random() < 0.5 else []
        register = register.become(now).stored(write, indices)
        joined += bool(indices) and indices[0].file.name in named(register)
        tree = json.loads(json.dumps(register.to_json()))
        known = [each for each, _ in register.lists] if draw.random() < 0.5 else []
        found = BatchRegister.from_json(tree, there.__getitem__, known)
        assert found.shards({name: len(entry.shards) for name, entry in now.items()}) == {
            name: entry.shards for name, entry in now.items()
        }
        assert len(register.latest) <= 6
        total = sum(len(entry.files) for entry in now.values())
        after = named(register)
        assert len(register.lists) <= 2 + total / 2, "each list has batches that are left"
        for name in (before | {each.file.name for each in indices}) - after:
            del there[name]
        assert there.keys() == after
        if draw.random() < 0.2:  # another process continues
            register = found
            register.arrangements = now
    assert written
    assert joined > 20 or most < 6


def test_a_commit_writes_as_much_as_it_changes():
    """With 100 000 batches, and 1 000 of them changed: less than 1 MB, on the average and at the most."""
    draw, sizes, names = random.Random(3), [], iter(range(10**9))

    def write(data):
        sizes[-1] += len(data)
        return f"000000001-{next(names) % 10_000:04d}.json", Written(len(data), checksum(data))

    shards = [[batch(1, 3 * at + run, run) for run in range(4)] for at in range(25_000)]
    now = {"a1": arrangement(shards)}
    sizes.append(0)
    register = BatchRegister().become(now).stored(write)
    whole = sizes.pop()
    assert len(register.lists) == -(-100_000 // MOST)
    for commit in range(2, 2 + many(200)):
        shards = list(now["a1"].shards)
        for number, at in enumerate(draw.sample(range(len(shards)), 1000)):
            kept = shards[at][: draw.choice([0, 1, 2, 3, 3, 3, 3])]
            run = shards[at][len(kept)].run if len(kept) < len(shards[at]) else len(kept)
            shards[at] = (*kept, batch(commit, number, run))
        now = {"a1": arrangement(shards)}
        sizes.append(0)
        register = register.become(now).stored(write)
        sizes[-1] += len(json.dumps(register.to_json(), separators=(",", ":")))
    assert whole > 8_000_000
    assert max(sizes) < 1_000_000
    assert sum(sizes) / len(sizes) < 600_000
    assert register.shards({"a1": len(shards)})["a1"] == tuple(shards)


def commit(directory, shards, files=None):
    """Commit an arrangement of these batches, each with a file."""
    with State.open(directory, {}, files=files) as state, state.begin() as transaction:
        made = []
        for at, batches in enumerate(shards):
            there = []
            for file in batches:
                if isinstance(file, FileEntry):
                    there.append(file)
                    continue
                name, written = transaction.add_batch("a1", at, file)
                run = max((each.run for each in there), default=-1) + 1
                there.append(replace(batch(1, 1, run), name=name, size=written.size, checksum=written.checksum))
            made.append(there)
        upper = ((transaction.number,),)
        return transaction.commit(Manifest("p", upper, arrangements={"a1": arrangement(made)}))


def stepped(draw, shards):
    """Return shards of the next commit: to some a batch is added, in some all are merged into one."""
    found = []
    for files in shards:
        data = b"%d" % draw.randrange(10**6)
        found.append(draw.choice([files, files, (*files, data), (data,)]))
    return found


def test_deaths_at_any_operation(early, tmp_path):
    """The next commit finds the state before or after the one that died, and removes all that neither names."""
    draw, state, ends = random.Random(5), tmp_path / "state", set()
    whole = commit(state, [(b"first",)] * 12)
    for _ in range(many(240)):
        before = read_newest(state)
        assert before == whole
        shards = stepped(draw, before.arrangements["a1"].shards)
        died = draw.random() < 0.7
        files = Faulty(draw.randrange(90) if died else None, after=draw.random() < 0.5)
        try:
            whole = commit(state, shards, files)
        except Dead:
            manifest._LATELY.clear()  # another process opens it
            after = read_newest(state)
            ends.add(after.number - before.number)
            if after.number == before.number:
                assert after == before
            State.open(state, {}).close()
            whole = read_newest(state)
        assert verify(state)[2] == []
        named = {f"{SEGMENTS}/{name}" for name in whole.segments()}
        assert named == {name for name in names(state) if name.startswith(SEGMENTS)}
        there = {name for name in names(state) if name.startswith("arrangements")}
        assert there == {
            f"arrangements/a1/{at}/{file.name}"
            for at, files in enumerate(whole.arrangements["a1"].shards)
            for file in files
        }
    assert ends == {0, 1}
    assert named


def test_readers_see_one_commit_or_the_next(early, tmp_path):
    """A reader may find that a commit has removed a list which it was about to read: then it reads the next manifest."""
    draw, state = random.Random(11), tmp_path / "state"
    said, seen, ended = {}, set(), threading.Event()
    wrong = []

    def read():
        while not ended.is_set():
            manifest._LATELY.clear()
            found = read_newest(state)
            if found is not None:
                seen.add(found.number)
                wrong.extend([found] if found.number in said and said[found.number] != found.arrangements else [])

    readers = [threading.Thread(target=read) for _ in range(2)]
    shards = [(b"first",)] * 12
    first = commit(state, shards)
    for reader in readers:
        reader.start()
    try:
        last = first
        for _ in range(many(120)):
            last = commit(state, stepped(draw, last.arrangements["a1"].shards))
            said[last.number] = last.arrangements
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert not wrong
    assert len(seen) > 3


def test_a_manifest_that_somebody_reads_by_keeps_its_lists(early, tmp_path):
    draw, state = random.Random(2), tmp_path / "state"
    first = commit(state, [(b"first",)] * 20)
    assert {*first.segments()}
    with holding(state, Files()):
        write_hold(state, Hold("reader-01234567", "elsewhere", (), ((1,),), ((1,),), manifest=1), Files())
    last = first
    for _ in range(30):
        last = commit(state, stepped(draw, last.arrangements["a1"].shards))
    manifest._LATELY.clear()
    assert read_manifest(manifest_path(state, 1)).arrangements == first.arrangements
    with holding(state, Files()):
        write_hold(state, Hold("reader-01234567", "elsewhere", (), ((1,),), ((1,),), manifest=None), Files())
    last = commit(state, last.arrangements["a1"].shards)
    assert {name for name in names(state) if name.startswith(SEGMENTS)} == {f"{SEGMENTS}/{n}" for n in last.segments()}


def test_a_small_state_is_one_file(tmp_path):
    files = Faulty()
    commit(tmp_path / "state", [(b"first",)] * LATELY, files=files)
    assert not [path for _, path in files.log if path.parent.name == SEGMENTS]
    commit(tmp_path / "state", [(b"first",)] * (LATELY + 1), files=files)
    assert [path for _, path in files.log if path.parent.name == SEGMENTS]


def test_upkeep_of_a_state_with_lists(early, monkeypatch, tmp_path):
    monkeypatch.setattr(batch_lists, "LATELY", 0)
    shop = Shop.make(tmp_path / "shop")
    for step in range(3):
        shop.supply(step)
        shop.run()
    assert {*read_newest(shop.state).batch_register().lists}
    reshard_state(shop.state, 5)
    compact_state(shop.state)
    export_state(shop.state, tmp_path / "copy")
    assert read_newest(tmp_path / "copy").arrangements == read_newest(shop.state).arrangements
    assert not (tmp_path / "copy" / SEGMENTS).exists()
    manifest._LATELY.clear()
    shop.supply(3)
    shop.run()
    assert shop.rows() == shop.meant(4)
    assert verify(shop.state)[2] == []


def test_a_damaged_or_missing_list_is_named(early, tmp_path):
    made = commit(tmp_path / "state", [(b"first",)] * 20)
    path = tmp_path / "state" / SEGMENTS / next(made.segments())
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        manifest._LATELY.clear()  # another process reads it
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(StateError, match="damaged") as caught:
            read_newest(tmp_path / "state")
        assert path.name in caught.value.place
    path.unlink()
    with pytest.raises(StateError, match="is gone") as caught:
        read_newest(tmp_path / "state")
    assert caught.value.place == str(path)


ROW = json.dumps([0, "000000001-0000.parquet", 1, 1, "00000000", [[0]], [[1]], [[0]], "", 0]).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"{}",
        b"x",
        b"[" * 10_000,
        b'{"a1":5}',
        b'{"a1":[5]}',
        b'{"a1":[[]]}',
        b'{"zz":[' + ROW + b"]}",
        b'{"a1":[' + ROW.replace(b"000000001-0000.parquet", b"../../x.parquet") + b"]}",
        b'{"a1":[' + ROW.replace(b"[0,", b"[1,", 1).replace(b"[0, ", b"[1, ", 1) + b"]}",
        b'{"a1":[' + ROW.replace(b"[0,", b"[-1,", 1) + b"]}",
        b'{"a1":[' + ROW.replace(b"[[1]]", b"null") + b"]}",
        b'{"a1":[' + ROW.replace(b'"", 0', b'"", 0, "../x.tar", 1') + b"]}",
        b'{"a1":[' + ROW.replace(b'"", 0', b'"", 0, "000000001.tar", -1') + b"]}",
        b'{"a1":[' + ROW.replace(b'"", 0', b'"", 0, 1') + b"]}",
        b'{"a1":[' + ROW + b"," + ROW + b"]}",
    ],
)
def test_a_list_that_says_nonsense_is_refused(tmp_path, data):
    """Its checksum is right: whoever changes a file may compute another."""
    name = "000000001-0000.json"
    assert ARRANGEMENT.fullmatch("a1")
    (tmp_path / "manifest").mkdir()
    (tmp_path / SEGMENTS).mkdir()
    given = replace(Manifest("p", ((1,),), arrangements={"a1": arrangement([()])}), number=1).to_bytes()

    def say(content, bits="0"):
        (tmp_path / SEGMENTS / name).write_bytes(content)
        tree = json.loads(given)
        del tree["crc32"]
        tree["batches"]["lists"] = [[name, len(content), checksum(content), 1, bits]]
        rest = json.dumps(tree, separators=(",", ":")).encode()[1:]
        manifest_path(tmp_path, 1).write_bytes(b'{"crc32":"%s",' % checksum(rest).encode() + rest)

    say(b'{"a1":[' + ROW + b"]}")
    assert len(read_newest(tmp_path).arrangements["a1"].files) == 1
    say(data)
    with pytest.raises(StateError):
        read_newest(tmp_path)
    for bits in ("2", "-1", "x", ""):
        say(b'{"a1":[' + ROW + b"]}", bits)
        with pytest.raises(StateError):
            read_newest(tmp_path)

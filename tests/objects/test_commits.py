"""Commits of many files in an object store: their requests go side by side, in phases, and may end in any order within one."""

import random
import threading
import time
from contextlib import contextmanager
from functools import cache
from itertools import count
from types import SimpleNamespace

import pytest

import ddcli.store.files.objects
from ddcli.errors import EngineError, StateError
from ddcli.job.consumed_files import with_archive_paths
from ddcli.store.batch import checked_files
from ddcli.store.batch.checked_files import FETCHED, NEAR, OpenBundles, PartialCopy
from ddcli.store.files import gate
from ddcli.store.files.access import relative
from ddcli.store.files.gate import TEMPORARY, Files
from ddcli.store.files.objects import ObjectPath
from ddcli.store.scratch import attempt
from ddcli.store.scratch.attempt import Attempt
from ddcli.store.state import batch_lists, contents, manifest
from ddcli.store.state.contents import batch_files, unpublished
from ddcli.store.state.directory import State
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.entries import ArrangementEntry, FileEntry, InputFile, OutputEntry
from ddcli.store.state.manifest import Manifest, manifest_path, read_newest
from ddcli.store.state.outputs import write_progress
from ddcli.store.state.register import SEGMENTS
from ddcli.store.state.upkeep import verify_state
from tests.draws import many
from tests.store.support import Dead

NUMBERS = count()


@pytest.fixture
def place(monkeypatch):
    """Return a path in an object store in this process's memory, in which requests go side by side."""
    from obstore.store import MemoryStore

    monkeypatch.setattr(gate, "MANY", 4)
    made = cache(lambda _scheme, _name: MemoryStore())
    monkeypatch.setattr(ddcli.store.files.objects, "bucket", lambda scheme, name, **_: made(scheme, name))
    return ObjectPath.parse(f"s3://memory{next(NUMBERS)}/shop")


class Delayed:
    """A delay of each request, and a count of the requests, also of those on their way together."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.requests = self.together = self.most = 0
        self._lock = threading.Lock()

    def errors(self):
        """Return the replacement of `ObjectPath._errors`, through which each request passes."""
        errors = ObjectPath._errors

        @contextmanager
        def delayed(path):
            with self._lock:
                self.requests += 1
                self.together += 1
                self.most = max(self.most, self.together)
            time.sleep(self.seconds)
            try:
                with errors(path):
                    yield
            finally:
                with self._lock:
                    self.together -= 1

        return delayed


def commit(place, batches, step, files=None, *, keep=(), elsewhere=False, names=("a", "b")):
    """Commit `batches` new batches, one for each of the first shards, beside the files of the shards to `keep`, and a file of each output."""
    outputs = {name: place / "out" / name for name in names}
    with State.open(place / "state", outputs, files=files or Files()) as state, state.begin() as transaction:
        before = state.manifest
        adding = (
            Attempt(place / "state", transaction.number, f"abcdef01-{step}", state.files) if elsewhere else transaction
        )
        if elsewhere:
            transaction.expect(outputs.values())
        bounds = ((step,),), ((step + 1,),)
        shards = []
        for shard in range(max([batches, *(at + 1 for at in keep)])):
            old = before.arrangements["people"].shards[shard] if before and shard in keep else ()
            if shard >= batches:
                shards.append(old)
                continue
            name, written = adding.add_batch("people", shard, b"batch %d %d" % (shard, step))
            entry = FileEntry(name, 1, written.size, written.checksum, *bounds, ((0,),), run=step)
            shards.append((*old, entry))
        if elsewhere:
            made = shards[:batches]
            shards[:batches] = [(*files[:-1], adding.placed("people", at, files[-1])) for at, files in enumerate(made)]
            made = shards[:batches]
            transaction.adopt(adding.finish([("people", at, files[-1]) for at, files in enumerate(made)]))
        found = {}
        for name, path in outputs.items():
            file = path / f"updates-{step}-{step + 1}.parquet"
            written = transaction.add_output(file, b"updates %d" % step)
            write_progress(transaction, path, ((step + 1,),))
            known = before.outputs[name].files if before else ()
            new = FileEntry(file.name, 1, written.size, written.checksum, *bounds)
            found[name] = OutputEntry(relative(path, state.directory), {"a": "int64"}, (*known, new))
        upper = ((step + 1,),)
        people = ArrangementEntry("f1", ((0,),), upper, ("a",), {"a": "int64"}, tuple(shards))
        return transaction.commit(Manifest("p", upper, arrangements={"people": people}, outputs=found))


def test_the_batches_of_a_task_are_two_files(place):
    """A bundle of them and their index, which the manifest names: a commit of a thousand batches of tasks takes a few dozen requests."""
    commit(place, 1000, 0, elsewhere=True)
    delayed = Delayed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectPath, "_errors", delayed.errors())
        made = commit(place, 1000, 1, elsewhere=True)
    assert delayed.requests < 100
    state = place / "state"
    there = [path for part in ("arrangements", "bundles", SEGMENTS) for path, _ in (state / part).below()]
    index, bundle = sorted((path for path in there if "abcdef01-1-" in path.name), key=lambda path: path.suffix)
    assert (index.suffix, bundle.suffix) == (".json", ".tar")
    assert len(manifest_path(state, 2).read_bytes()) < 3000
    manifest._LATELY.clear()
    assert read_newest(state) == made
    assert not list(verify_state(state, made))
    index.put(index.read_bytes()[:-1] + b" ")
    manifest._LATELY.clear()
    with pytest.raises(StateError, match="damaged"):
        read_newest(state)


def read_all(state, made, opened):
    """Return the contents of all batches, each of whose bundles is among those that are open."""
    return [opened.read_checked(path, entry) for path, entry in batch_files(state, made)]


def test_batches_of_a_bundle_are_read_together(place):
    """A request for each block, however many batches are read of it."""
    made, state = commit(place, 1000, 0, elsewhere=True), place / "state"
    delayed, opened = Delayed(0), OpenBundles(made.bundles)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectPath, "_errors", delayed.errors())
        assert read_all(state, made, opened) == [b"batch %d 0" % at for at in range(1000)]
    (size,) = made.bundles.values()
    assert delayed.requests == -(-size // NEAR)
    (path,) = {path for path, _ in batch_files(state, made)}
    data = path.read_bytes()
    for damage, problem in (
        (data[:512] + b"x" + data[513:], "damaged"),
        (data[:515], "bytes, the manifest"),
        (b"", "damaged"),
    ):
        path.put(damage)
        with pytest.raises(StateError, match=problem):
            read_all(state, made, OpenBundles())
    path.unlink()
    with pytest.raises(StateError, match="can't be read"):
        read_all(state, made, OpenBundles())


def test_ranges_of_an_object_that_are_near_each_other_are_fetched_by_one_request(place):
    """What is between them is here then, too; nothing is fetched twice, and an object may end before a range does."""
    data, size = random.Random(1).randbytes(5 << 20), 6 << 20
    place.put(data)
    copy, asked, read_ranges = PartialCopy(place, size), [], ObjectPath.read_ranges
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ObjectPath, "read_ranges", lambda path, ranges: (asked.append(ranges), read_ranges(path, ranges))[1]
        )
        copy.fetch([(900_000, 900_001), (20_000, 20_010), (3_000_000, 3_000_001)])
        copy.fetch([(500_000, 600_000)])
        copy.fetch([(890_000, 1_000_000)])
        copy.fetch([(size - 2_000_000, size)])
    found = [[(start // FETCHED, -(-end // FETCHED)) for start, end in ranges] for ranges in asked]
    assert found == [[(1, 55), (183, 184)], [], [(55, 62)], [(261, 384)]]
    assert copy.has(20_000, 1_000_000)
    assert not copy.has(0, 20_000)
    assert copy.data[16_384:1_000_000] == data[16_384:1_000_000]
    assert copy.data[:16_384] == bytes(16_384)
    assert copy.data[4_500_000:] == data[4_500_000:] + bytes(size - len(data))
    assert copy.fetched == sum(last - first for some in found for first, last in some) * FETCHED


def test_a_large_range_is_fetched_in_parts(place, monkeypatch):
    """No more bytes than a bound are in memory on their way."""
    data = random.Random(1).randbytes(1 << 20)
    place.put(data)
    monkeypatch.setattr(checked_files, "TOGETHER", 16)
    monkeypatch.setattr(checked_files, "NEIGHBOURS", 2)
    asked, read_ranges = [], ObjectPath.read_ranges
    monkeypatch.setattr(
        ObjectPath, "read_ranges", lambda path, ranges: (asked.append(ranges), read_ranges(path, ranges))[1]
    )
    copy = PartialCopy(place, len(data))
    copy.fetch([(0, 10), (5 * FETCHED, 50 * FETCHED), (60 * FETCHED, 61 * FETCHED)])
    assert [sum(end - start for start, end in ranges) // FETCHED for ranges in asked] == [1, 16, 16, 14]
    assert copy.data[5 * FETCHED : 50 * FETCHED] == data[5 * FETCHED : 50 * FETCHED]
    assert copy.has(60 * FETCHED, 61 * FETCHED)


def test_what_is_left_in_a_bundle_is_moved_in_few_requests(place, monkeypatch):
    monkeypatch.setattr(batch_lists, "SLACK", 0)
    commit(place, 400, 0, elsewhere=True)
    delayed = Delayed(0)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectPath, "_errors", delayed.errors())
        made = commit(place, 400, 1, keep=range(0, 400, 4))
    moved = [entry for _, entry in batch_files(place / "state", made) if entry.bundle]
    assert (len(moved), len({entry.bundle for entry in moved})) == (100, 1)
    assert delayed.requests < 400 + len(moved), "one for each new batch, and few more"
    assert not list(verify_state(place / "state", made))


def test_a_commit_of_many_files_waits_for_few_requests(place, monkeypatch):
    """Each file costs one request to write it, and one to remove it later: none to give it a name, none to look for it."""
    commit(place, 1000, 0)
    delayed = Delayed(0.02)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectPath, "_errors", delayed.errors())
        began = time.monotonic()
        commit(place, 1000, 1)
        spent, requests = time.monotonic() - began, delayed.requests
        began = time.monotonic()
        assert not list(verify_state(place / "state", read_newest(place / "state")))
        looked = time.monotonic() - began
    assert requests < 2100
    assert delayed.most > ObjectPath.at_once / 2
    assert spent < requests * delayed.seconds / 4
    assert looked < (delayed.requests - requests) * delayed.seconds / 4
    damaged = paths(place / "state")[::7]
    for path in damaged:
        path.put(b"batch 00000"[: path.head()["size"]])
    assert [error.place for error in verify_state(place / "state", read_newest(place / "state"))] == [
        *map(str, damaged)
    ]


def test_many_outputs_are_looked_at_and_locked_side_by_side(place, monkeypatch):
    names = [f"o{at}" for at in range(40)]
    commit(place, 4, 0, names=names)
    delayed = Delayed(0.02)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectPath, "_errors", delayed.errors())
        began = time.monotonic()
        commit(place, 4, 1, names=names)
        spent = time.monotonic() - began
    assert delayed.requests > 10 * len(names)
    assert spent < delayed.requests * delayed.seconds / 4
    assert delayed.most > len(names) / 2
    assert not [name for name in names if (place / f"out/{name}/_lock").is_file()], "the locks are released"


def test_attempts_that_failed_cost_what_tasks_have_written_to_find(place):
    """However large the state is: after its first commit no listing has the files of earlier ones."""
    commit(place, 3000, 0)
    state, left = place / "state", []

    class Failing(Files):
        """Has another attempt at the task leave files of all kinds before the commit."""

        def do(self, operation, path, action):
            if operation == "create" and not left:
                beside = ["bundles/000000002-abcdef01-7-b0.tar", "registers/000000002-abcdef01-7-0001.json"]
                beside.append("arrangements/people/2/000000002-abcdef01-7-0002.parquet")
                left.extend(state / name for name in beside)
                left.append(place / "out/a/.000000002-abcdef01-7-0003.parquet.000000002.dd-tmp")
                for each in left:
                    each.put(b"of an attempt")
            return super().do(operation, path, action)

    listed, below = [], ObjectPath.below

    def noted(path):
        listed.extend([path] if left else [])
        return below(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempt, "ALONE", 4)
        patch.setattr(contents, "PAGE", 100)  # a listing of all of them would take more requests
        patch.setattr(ObjectPath, "below", noted)
        commit(place, 3, 1, Failing(), keep=range(3000), elsewhere=True)
    assert len(left) == 4
    assert not [path for path in left if path.is_file()]
    assert not listed
    there = {path for path, _ in (state / "arrangements").below()}
    assert there == set(paths(state))


def test_no_file_of_an_output_is_asked_for_by_the_name_that_it_had(place, monkeypatch):
    """After a commit that was published, only the progress of each output, which comes last; after one that wasn't, each file gets its name."""
    commit(place, 4, 0)
    asked, head = [], ObjectPath.head

    def noted(path):
        asked.append(path)
        return head(path)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectPath, "head", noted)
        commit(place, 4, 1)
    waiting = [path.name for path in asked if path.name.endswith(TEMPORARY)]
    assert [name.partition(".json.")[0] for name in waiting] == ["._progress"] * 2

    class Dying(Files):
        def do(self, operation, path, action):
            if operation == "rename" and "progress" in path.name and "/b/" in str(path):
                raise Dead
            return super().do(operation, path, action)

    with pytest.raises(Dead):
        commit(place, 4, 2, Dying())
    assert [target.name for _, target in unpublished(place / "state", read_newest(place / "state"))] == [PROGRESS]
    commit(place, 4, 3)
    assert not list(verify_state(place / "state", read_newest(place / "state")))


def test_an_error_of_one_request_is_reported_with_its_path_when_the_others_are_done(place):
    commit(place, 40, 0)

    class Refusing(Files):
        def do(self, operation, path, action):
            if operation == "write" and "/people/7/" in str(path):
                raise EngineError("the object store refuses", place=str(path))
            time.sleep(0.01)
            return super().do(operation, path, action)

    with pytest.raises(EngineError, match="refuses") as caught:
        commit(place, 40, 1, Refusing())
    assert "/people/7/" in caught.value.place
    state = place / "state"
    assert read_newest(state).number == 1
    assert {path for path, _ in (state / "arrangements").below()} == set(paths(state))


def test_a_file_that_is_taken_back_has_been_written(place, monkeypatch):
    """A run that forgets rows reads the file of an output that it has just added."""
    with State.open(place / "state", {}) as state, state.begin() as transaction:
        delayed = Delayed(0.2)
        with monkeypatch.context() as patch:
            patch.setattr(ObjectPath, "_errors", delayed.errors())
            transaction.add_output(place / "out/updates-0-1.parquet", b"rows")
            assert transaction.withdraw_file(place / "out/updates-0-1.parquet").read_bytes() == b"rows"


def paths(state):
    return [path for path, _ in batch_files(state, read_newest(state))]


class Overlapping(Files):
    """Operations of one phase are on their way together; at the death some of them have happened, and others have not."""

    def __init__(self, at, draw):
        self.at, self.draw = at, draw
        self.count = 0
        self.dead = threading.Event()
        self.lock = threading.Lock()

    def do(self, operation, path, action):
        with self.lock:
            if self.dead.is_set():
                raise Dead
            self.count += 1
            if self.count == self.at:
                self.dead.set()
            happens, late = self.draw.random() < 0.5, self.draw.random() < 0.5
        if late:  # it is still on its way when others begin
            self.dead.wait(0.002)
        if self.dead.is_set() and not happens:
            raise Dead
        result = super().do(operation, path, action)
        if self.dead.is_set():
            raise Dead
        return result


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "by tasks"])
def test_a_run_dies_with_requests_on_their_way(place, elsewhere):
    """The next run finds the state before or after the commit, whole, and removes all that no manifest names."""
    draw, ends = random.Random(7), set()
    for trial in range(max(many(60), 12)):
        shop = place / str(trial)
        commit(shop, 12, 0)
        commit(shop, 12, 1, keep=range(0, 12, 2))
        before = {path: path.read_bytes() for path in paths(shop / "state")}
        files = Overlapping(draw.randrange(2, 52), draw)
        try:
            commit(shop, 12, 2, files, keep=range(0, 12, 3), elsewhere=elsewhere)
        except Dead:
            ends.add(read_newest(shop / "state").number)
        state, found = shop / "state", read_newest(shop / "state")
        if found.number == 2:
            assert {path: path.read_bytes() for path in paths(state)} == before
        outputs = {name: shop / "out" / name for name in ("a", "b")}
        State.open(state, outputs).close()
        assert not list(verify_state(state, read_newest(state))), trial
        there = {path for part in ("arrangements", "bundles") for path, _ in (state / part).below()}
        assert there == set(paths(state))
        assert not [path for path, _ in shop.below() if path.name.endswith(gate.TEMPORARY)]
        assert [path.name for path in (state / "manifest").iterdir()] == [f"{found.number:09d}.json"]
        last = commit(shop, 12, found.number)
        assert last.number == found.number + 1
        assert not list(verify_state(state, last))
    assert ends == {2, 3}


def test_places_in_an_archive_are_looked_for_side_by_side(place, monkeypatch):
    given = SimpleNamespace(archive=SimpleNamespace(value="archive"))
    (place / "archive/7.csv").put(b"another")
    files = [InputFile(f"{at}.csv", 1, 1, done=at % 10 != 9) for at in range(100)]
    delayed = Delayed(0.02)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectPath, "_errors", delayed.errors())
        found = with_archive_paths(given, place, files)
    assert [file.archived for file in found[:10]] == [
        *(f"archive/{at}.csv" for at in range(7)),
        "archive/2/7.csv",
        "archive/8.csv",
        "",
    ]
    assert delayed.most > ObjectPath.at_once / 2


def test_lists_of_batches_are_fetched_side_by_side(place, monkeypatch):
    monkeypatch.setattr(batch_lists, "LATELY", 4)
    monkeypatch.setattr(batch_lists, "MOST", 8)
    commit(place, 800, 0)
    meant = commit(place, 800, 1, keep=range(800))
    count = len(meant.batch_register().lists)
    assert count > 150
    manifest._LATELY.clear()
    delayed = Delayed(0.02)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectPath, "_errors", delayed.errors())
        assert read_newest(place / "state") == meant
    assert count <= delayed.requests < count + 10
    assert delayed.most > ObjectPath.at_once / 2
    manifest._LATELY.clear()
    last = commit(place, 800, 2, keep=range(799))
    delayed.requests = 0
    with monkeypatch.context() as patch:
        patch.setattr(ObjectPath, "_errors", delayed.errors())
        assert read_newest(place / "state") == last, "the lists that the one before has are known"
    assert delayed.requests < 10


def test_readers_see_one_commit_or_the_next(place, monkeypatch):
    """A list may be removed between the moment when a reader finds its name and the moment when it fetches it."""
    monkeypatch.setattr(batch_lists, "LATELY", 4)
    monkeypatch.setattr(batch_lists, "MOST", 8)
    said, wrong, seen, ended = {}, [], set(), threading.Event()

    def read():
        while not ended.is_set():
            manifest._LATELY.clear()
            found = read_newest(place / "state")
            if found is not None:
                seen.add(found.number)
                wrong.extend([found] if found.number in said and said[found.number] != found.arrangements else [])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for step in range(many(60)):
            made = commit(place, 40, step, keep=range(0, 40, 1 + step % 5))
            said[made.number] = made.arrangements
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert not wrong
    assert len(seen) > 2


def test_a_task_that_outlives_its_run_does_no_harm(place):
    """Its files have the number of a commit that others make, and names that these never have; the next run removes them."""
    state, outputs = place / "state", {name: place / "out" / name for name in ("a", "b")}
    commit(place, 4, 0, elsewhere=True)

    def write(count):
        late = Attempt(state, 2, "0123abcd-7")
        for shard in range(count):
            late.add_batch("people", shard, b"late")
        return late.finish([]).paths

    before = write(4)
    with State.open(state, outputs):  # it finds them, and sweeps them away
        assert not [path for path in before if path.is_file()]
        during = write(4)
    made = commit(place, 4, 1)
    after = write(4)
    assert during == after, "it writes them once more"
    assert made.number == 2
    assert read_newest(state) == made
    assert not {*paths(state)} & {*after}
    assert not list(verify_state(state, made))
    State.open(state, outputs).close()
    assert {path for path, _ in (state / "arrangements").below()} == set(paths(state))


@pytest.mark.usefixtures("no_large_copies")
def test_a_large_object_is_written_in_few_parts(bucket, monkeypatch):
    """A store takes 10 000 parts of an object."""
    monkeypatch.setattr(ddcli.store.files.objects, "PART", 5 << 20)
    monkeypatch.setattr(ddcli.store.files.objects, "PARTS", 2)
    data = bytes(range(251)) * (13 << 12)
    (bucket / "from").put(data)
    (bucket / "from").replace(bucket / "to")
    assert (bucket / "to").read_bytes() == data
    if str(bucket).startswith("s3://"):  # elsewhere a tag does not tell the parts
        assert (bucket / "to").head()["e_tag"].strip('"').endswith("-2")
    appender = (bucket / "more").appender()
    appender.write(data[: 10 << 20])
    with pytest.raises(EngineError, match="more bytes than its store takes") as caught:
        appender.write(b".")
    assert caught.value.place == f"{bucket}/more"


@pytest.mark.parametrize("whole", [True, False])
def test_objects_are_removed_many_to_a_request(place, monkeypatch, whole):
    """Or each by itself, in a store that refuses such requests."""
    import obstore

    paths = [place / str(at) for at in range(300)]
    for path in paths:
        path.put(b"x")
    delete = obstore.delete

    def one(store, keys):
        if not isinstance(keys, str):
            raise obstore.exceptions.NotSupportedError("no such request")
        delete(store, keys)

    if not whole:
        monkeypatch.setattr(obstore, "delete", one)
    delayed = Delayed(0)
    monkeypatch.setattr(ObjectPath, "_errors", delayed.errors())
    Files().remove_all(paths[1:])
    assert delayed.requests == (1 if whole else 300)
    assert [path for path, _ in place.below()] == paths[:1]

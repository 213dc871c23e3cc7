"""Commits: wholly or not at all, wherever the process or the disk fails; and one run at a time."""

import concurrent.futures
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import ddcli.store.state.directory
from ddcli.errors import EngineError, LockedError, StateError
from ddcli.store.files import gate
from ddcli.store.files.access import real
from ddcli.store.files.gate import Files, side_by_side
from ddcli.store.files.lock import signature, take_lock
from ddcli.store.state.contents import unpublished
from ddcli.store.state.directory import State
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.entries import ArrangementEntry, FileEntry
from ddcli.store.state.manifest import Manifest, manifest_path, read_newest
from ddcli.store.state.outputs import check_outputs, progress_bytes, read_progress
from tests.store.support import Dead, Faulty, commit_step, little_at_a_time, names, tree


@pytest.fixture
def place(tmp_path):
    return tmp_path / "state", tmp_path / "out"


@pytest.fixture(params=["one by one", "side by side"])
def flushing(request, monkeypatch):
    """Flush and remove files in either way, however few there are."""
    if request.param == "side by side":
        monkeypatch.setattr(gate, "MANY", 1)


def open_state(place, **options):
    return State.open(place[0], {"out": place[1]}, **options)


def run(place, step, files=None, *, replace=False):
    with open_state(place, files=files) as state:
        return commit_step(state, place[1], step, replace=replace)


def test_a_commit_makes_batches_manifest_and_outputs_appear_together(place):
    manifest = run(place, 0)
    assert manifest.number == 1
    assert read_newest(place[0]) == manifest
    assert names(place[0]) == ["arrangements/people/0/000000001-0000.parquet", "manifest/000000001.json"]
    assert names(place[1]) == [PROGRESS, "updates-0-1.parquet"]
    assert unpublished(place[0], manifest) == []


def test_what_the_next_manifest_does_not_name_is_dropped(place):
    run(place, 0)
    run(place, 1, replace=True)
    assert names(place[0]) == ["arrangements/people/0/000000002-0000.parquet", "manifest/000000002.json"]
    assert names(place[1]) == [PROGRESS, "updates-0-1.parquet", "updates-1-2.parquet"]
    assert read_progress(place[1]) == ((2,),)


def test_an_arrangement_that_is_no_longer_named_leaves_no_directory(place):
    run(place, 0)
    with open_state(place) as state, state.begin() as transaction:
        transaction.commit(Manifest("p", ((1,),), outputs=state.manifest.outputs))
    assert names(place[0]) == ["manifest/000000002.json"]
    assert not (place[0] / "arrangements" / "people").exists()


def test_the_order_of_a_commit(place):
    files = Faulty()
    run(place, 0, files)
    done = [(operation, str(path.relative_to(place[0].parent))) for operation, path in files.log]
    manifest = "state/manifest/.000000001.json.000000001.dd-tmp"
    commit = done.index(("rename", manifest))
    batch = "state/arrangements/people/0/000000001-0000.parquet"
    output = "out/.updates-0-1.parquet.000000001.dd-tmp"
    before = [
        ("sync", batch),
        ("sync", output),
        ("sync", "state/arrangements/people/0"),
        ("sync", "out"),
        ("write", manifest),
        ("sync", manifest),
    ]
    assert [step for step in done[:commit] if step in before] == sorted(before, key=done.index)
    assert all(done.index(step) < commit for step in before)
    for directory, file in (("state/arrangements/people/0", batch), ("out", output)):
        assert done.index(("write", file)) < min(done.index(("sync", file)), done.index(("sync", directory)))
    progress = f"out/.{PROGRESS}.000000001.dd-tmp"
    after = [("sync", "state/manifest"), ("rename", output), ("rename", progress), ("sync", "out")]
    assert done[commit + 1 :] == after


def test_a_transaction_without_commit_leaves_nothing(place):
    run(place, 0)
    before = tree(*place)
    with open_state(place) as state, state.begin() as transaction:
        transaction.add_batch("people", 3, b"x")
        transaction.add_output(place[1] / "deep" / "x.parquet", b"x")
    assert tree(*place) == before
    assert not (place[1] / "deep").exists()
    assert not (place[0] / "arrangements" / "people" / "3").exists()


def test_when_a_flush_is_interrupted_nothing_is_left_to_be_done(monkeypatch, tmp_path):
    """Else a thread might remove a file that the next holder of the lock has made meanwhile."""
    done, wait, interruptions = [], concurrent.futures.wait, iter([KeyboardInterrupt])

    def interrupted(futures):
        for error in interruptions:
            raise error
        return wait(futures)

    def act(path):
        time.sleep(0.01)
        done.append(path)

    monkeypatch.setattr(gate, "MANY", 4)
    monkeypatch.setattr(concurrent.futures, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        side_by_side(act, [tmp_path / str(at) for at in range(2000)])
    count = len(done)
    time.sleep(0.05)
    assert len(done) == count < 2000


@pytest.mark.parametrize("commits", [True, False])
def test_threads_add_files_at_once(place, commits):
    with open_state(place) as state, state.begin() as transaction, ThreadPoolExecutor(8) as threads:

        def add(shard):
            named = [transaction.add_batch("people", shard, b"%d %d" % (shard, at))[0] for at in range(3)]
            transaction.add_output(place[1] / str(shard) / "updates.parquet", b"x")
            return named

        named = list(threads.map(add, range(20)))
        assert named == [[f"000000001-000{at}.parquet" for at in range(3)]] * 20
        if commits:
            entries = [tuple(FileEntry(name, 1, 3, "", None, ((1,),)) for name in shard) for shard in named]
            people = ArrangementEntry("f", ((1,),), ((1,),), ("k",), {"k": "int64"}, tuple(entries))
            transaction.commit(Manifest("p", ((1,),), arrangements={"people": people}))
    if not commits:
        assert [path.name for directory in place for path in directory.rglob("*")] == ["LOCK"]
        return
    for shard in range(20):
        assert (place[1] / str(shard) / "updates.parquet").read_bytes() == b"x"
        for at in range(3):
            assert (place[0] / f"arrangements/people/{shard}/000000001-000{at}.parquet").read_bytes() == b"%d %d" % (
                shard,
                at,
            )


def test_beginning_and_opening_write_nothing_but_the_lock(place):
    run(place, 0)
    files = Faulty()
    with open_state(place, files=files) as state:
        state.begin()
    assert [path.name for _, path in files.log] == ["LOCK", "LOCK", "_lock", "_lock"]


def operations(place, base):
    """Return how many operations the second run has."""
    restore(place, base)
    files = Faulty()
    run(place, 1, files, replace=True)
    return len(files.log)


def restore(place, base):
    for directory in place:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(base / directory.name, directory)


def two_runs(place, base):
    """Run twice, keeping what the first run left in `base`; return what there is after each."""
    run(place, 0)
    for directory in place:
        shutil.copytree(directory, base / directory.name)
    before = tree(*place)
    run(place, 1, replace=True)
    return before, tree(*place)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.usefixtures("flushing")
def test_death_at_every_operation_leaves_the_state_before_or_after(place, tmp_path, after):
    base, seen = tmp_path / "base", set()
    before, committed = two_runs(place, base)
    for at in range(operations(place, base)):
        restore(place, base)
        with pytest.raises(Dead):
            run(place, 1, Faulty(at, after=after), replace=True)
        open_state(place).close()
        now = tree(*place)
        assert now in (before, committed), f"operation {at}"
        seen.add(now == committed)
        if now == before:
            run(place, 1, replace=True)
        assert tree(*place) == committed
    assert seen == {False, True}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.usefixtures("flushing")
def test_death_in_the_first_run_leaves_no_trace_that_matters(place, after, monkeypatch):
    monkeypatch.setattr(ddcli.store.state.directory, "new_identity", lambda: "0" * 32)
    run(place, 0)
    committed = tree(*place)
    at = 0
    while True:
        for directory in place:
            shutil.rmtree(directory, ignore_errors=True)
        files = Faulty(at, after=after)
        try:
            run(place, 0, files)
        except Dead:
            pass
        else:
            break
        with open_state(place) as state:
            assert tree(*place) in ({}, committed), f"operation {at}"
            if state.manifest is None:
                commit_step(state, place[1], 0)
        assert tree(*place) == committed
        at += 1
    assert at > 15


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.usefixtures("flushing")
def test_an_error_at_every_operation_is_told_and_leaves_the_state_before_or_after(place, tmp_path, code):
    base = tmp_path / "base"
    before, committed = two_runs(place, base)
    for at in range(operations(place, base)):
        restore(place, base)
        with pytest.raises(EngineError) as caught:
            run(place, 1, Faulty(at, OSError(code, os.strerror(code))), replace=True)
        assert caught.value.exit_code == 5
        assert os.strerror(code) in caught.value.problem
        # Before the manifest is in place everything is cleared away at once; after it the rest waits for the next run.
        if read_newest(place[0]).number == 1:
            assert tree(*place) == before, f"operation {at}"
        open_state(place).close()
        assert tree(*place) in (before, committed), f"operation {at}"


def test_an_attempt_that_died_is_not_published_by_the_commit_before_it(place):
    """Both publish `_progress.json`: the attempt's temporary file must not pass for the commit's."""
    run(place, 0)
    with open_state(place) as state:
        transaction = state.begin()
        transaction.add_output(place[1] / PROGRESS, progress_bytes(((99,),)))
    open_state(place).close()
    assert read_progress(place[1]) == ((1,),)
    assert names(place[1]) == [PROGRESS, "updates-0-1.parquet"]


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "open", little_at_a_time(3))
    Files().write(tmp_path / "f", b"0123456789")
    monkeypatch.undo()
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_a_moved_folder_keeps_its_state(place, tmp_path):
    run(place, 0)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for directory in place:
        directory.rename(moved / directory.name)
    place = (moved / "state", moved / "out")
    run(place, 1)
    assert names(place[1]) == [PROGRESS, "updates-0-1.parquet", "updates-1-2.parquet"]


def test_links_and_relative_paths_lead_to_the_same_outputs(place, tmp_path, monkeypatch):
    run(place, 0)
    (tmp_path / "link").symlink_to(place[1])
    monkeypatch.chdir(tmp_path)
    with State.open(Path("state"), {"out": Path("link")}) as state:
        commit_step(state, real(Path("link")), 1)
    open_state(place).close()


# --- state and outputs that don't belong together -------------------------------------------------------------


def test_outputs_without_their_state_ask_what_to_do(place):
    run(place, 0)
    shutil.rmtree(place[0])
    with pytest.raises(StateError, match="'out' exists, but the state that it was written from is missing") as caught:
        open_state(place)
    assert caught.value.exit_code == 4
    assert "put the state back" in caught.value.hint


def test_an_output_file_that_is_gone_is_noticed(place):
    run(place, 0)
    (place[1] / "updates-0-1.parquet").unlink()
    with pytest.raises(StateError, match="is gone") as caught:
        open_state(place)
    assert caught.value.place.endswith("updates-0-1.parquet")
    with pytest.raises(StateError):
        check_outputs(place[0], read_newest(place[0]), {"out": place[1]})
    State.open(place[0], {}).close()  # an output that the pipeline no longer has may go


def test_updates_that_the_state_does_not_know_are_noticed(place):
    run(place, 0)
    (place[1] / "updates-1-2.parquet").touch()
    with pytest.raises(StateError, match="doesn't know of"):
        open_state(place)


def test_what_a_run_of_another_state_writes_is_left_alone(place, tmp_path):
    """A copy of a state whose original has gone on is refused before it sweeps what the original may be writing."""
    run(place, 0)
    copy = shutil.copytree(place[0], tmp_path / "copy")
    run(place, 1)
    writing = place[1] / ".updates-2-3.parquet.000000003.dd-tmp"
    writing.touch()
    with pytest.raises(StateError):
        open_state((copy, place[1]))
    assert writing.exists()
    open_state(place).close()
    assert not writing.exists()


def test_a_state_of_a_newer_version_is_left_alone(place):
    run(place, 0)
    manifest_path(place[0], 1).write_bytes(b'{"format": 99}')
    before = tree(*place)
    with pytest.raises(StateError, match="newer version"):
        open_state(place)
    assert tree(*place) == before


# --- the lock -------------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from ddcli.store.state.directory import State
with State.open(Path(sys.argv[1]), {}, if_locked=sys.argv[2]):
    print("locked", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def hold(directory, seconds, if_locked="fail"):
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory), if_locked, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_second_run_is_told_who_holds_the_state(place):
    with hold(place[0], 60) as process:
        try:
            assert process.stdout.readline() == "locked\n"
            for if_locked in ("fail", "skip"):
                with pytest.raises(LockedError) as caught:
                    open_state(place, if_locked=if_locked)
                assert caught.value.exit_code == 75
                assert f"process {process.pid} on " in caught.value.problem
                assert "started 20" in caught.value.problem
            holder = json.loads((place[0] / "LOCK").read_text())
            assert set(holder) == {"pid", "host", "command", "started"}
        finally:
            process.kill()
    open_state(place).close()  # a lock whose process is gone is free


def test_a_run_that_waits_comes_after_and_reads_the_newest_manifest(place):
    open_state(place).close()
    state = open_state(place)
    with hold(place[0], 0, "wait") as process:
        time.sleep(0.5)
        assert process.poll() is None
        state.close()
        assert process.stdout.readline() == "locked\n"


RACE = """
import sys
from pathlib import Path
from ddcli.errors import LockedError
from ddcli.store.state.directory import State
from tests.store.support import commit_step
place, done = Path(sys.argv[1]), 0
while done < 20:
    try:
        with State.open(place / "state", {"out": place / "out"}, if_locked=sys.argv[2]) as state:
            commit_step(state, place / "out", state.manifest.number if state.manifest else 0, replace=True)
            done += 1
    except LockedError:
        pass
"""


def test_two_processes_that_race_lose_no_commit(place, tmp_path, root):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path), mode],
            cwd=root,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        for mode in ("fail", "wait")
    ]
    for racer in racers:
        _, errors = racer.communicate(timeout=300)
        assert racer.returncode == 0, errors
    assert read_newest(place[0]).number == 40
    assert names(place[1]) == sorted([PROGRESS, *(f"updates-{i}-{i + 1}.parquet" for i in range(40))])


def test_a_state_whose_manifest_was_lost_keeps_its_batches(tmp_path):
    """Refused while the outputs are there, and nothing is cleared away: the manifest may be put back."""
    out = tmp_path / "out"
    with State.open(tmp_path / "state", {"out": out}) as state, state.begin() as transaction:
        name, written = transaction.add_batch("people", 0, b"batch")
        transaction.add_output(out / "updates-start-1.parquet", b"updates")
        entry = FileEntry(name, 1, written.size, written.checksum, None, ((1,),))
        people = ArrangementEntry("f", ((1,),), ((1,),), ("k",), {"k": "int64"}, ((entry,),))
        transaction.commit(Manifest("p", ((1,),), arrangements={"people": people}))
    (manifest,) = (tmp_path / "state" / "manifest").iterdir()
    manifest.rename(tmp_path / "lost.json")
    with pytest.raises(StateError, match="missing"):
        State.open(tmp_path / "state", {"out": out})
    assert (tmp_path / "state" / "arrangements" / "people" / "0" / name).read_bytes() == b"batch"


EVIL = (
    ("evil.txt", "../elsewhere/.profile"),
    (".updates-0-1.parquet.000000001.dd-tmp", "../elsewhere/updates-0-1.parquet"),
    ("../elsewhere/.updates-0-1.parquet.000000001.dd-tmp", "../elsewhere/updates-0-1.parquet"),
    ("arrangements/people/0/000000001-0000.parquet", "../elsewhere/.profile"),
    ("../out/updates-0-1.parquet", "../out/_progress.json"),
)


@pytest.mark.parametrize("pair", EVIL)
def test_a_manifest_gives_no_file_a_name_elsewhere(place, pair):
    """Whoever writes to a shared disk writes manifests, too, with checksums."""
    manifest = run(place, 0)
    elsewhere = place[0].parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".profile").write_text("mine")
    for at in (elsewhere, place[0], place[1]):
        for name in ("evil.txt", ".updates-0-1.parquet.000000001.dd-tmp"):
            (at / name).write_text("evil")
    before = tree(elsewhere)
    manifest_path(place[0], 1).write_bytes(replace(manifest, publish=(pair,)).to_bytes())
    with pytest.raises(StateError):
        open_state(place).close()
    assert tree(elsewhere) == before
    assert (place[0] / "evil.txt").read_text() == "evil"


def test_only_what_has_a_name_of_ours_is_swept_away(place):
    """Other people's files may lie in directories that are called as ours are."""
    run(place, 0)
    strange = ["arrangements/music/1/take5.parquet", "arrangements/note.txt", "manifest/.draft.dd-tmp", "mine/x"]
    ours = ["arrangements/people/7/000000009-0000.parquet", "manifest/.000000002.json.000000002.dd-tmp"]
    for name in (*strange, *ours):
        (place[0] / name).parent.mkdir(parents=True, exist_ok=True)
        (place[0] / name).write_text("x")
    (place[1] / ".draft.dd-tmp").write_text("x")
    open_state(place).close()
    assert all((place[0] / name).exists() for name in strange)
    assert not any((place[0] / name).exists() for name in ours)
    assert (place[1] / ".draft.dd-tmp").exists()


def test_an_outputs_lock_goes_with_whoever_held_it_and_locks_all_others_out_meanwhile(tmp_path):
    """Of threads that take and release one lock all the time, no two ever hold it: one that waited for a file that is gone begins anew."""
    inside, most = [], []

    def take(_):
        for _ in range(40):
            lock = take_lock(tmp_path, Files(), "wait", tmp_path / "state")
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            lock.release()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(take, range(8)))
    assert most == [1] * 320
    assert not list(tmp_path.iterdir())


def test_many_arrangements_are_committed_and_dropped_together(place, monkeypatch):
    """More files than are flushed one by one: all of them are there, then all but those that are named are gone."""
    monkeypatch.setattr(gate, "MANY", 4)
    count = 3 * gate.MANY

    def commit(step, kept):
        with open_state(place) as state, state.begin() as transaction:
            made = {}
            for at in kept:
                name, written = transaction.add_batch(f"{at:020x}", 0, b"batch %d of step %d" % (at, step))
                bounds = ((step,),), ((step + 1,),)
                file = FileEntry(name, 1, written.size, written.checksum, *bounds)
                made[f"{at:020x}"] = ArrangementEntry(
                    f"{at:020x}", ((step,),), bounds[1], ("k",), {"k": "int64"}, ((file,),)
                )
            transaction.commit(Manifest("p", ((step + 1,),), arrangements=made))

    commit(0, range(count))
    assert len(names(place[0])) == count + 1
    commit(1, range(0, count, 2))
    assert names(place[0]) == [
        *(f"arrangements/{at:020x}/0/000000002-0000.parquet" for at in range(0, count, 2)),
        "manifest/000000002.json",
    ]
    assert len([*(place[0] / "arrangements").iterdir()]) == count // 2


def test_an_interruption_after_the_rename_that_commits_leaves_outputs_to_be_published(tmp_path):
    """A signal may come just then: what waits for its names is not removed, and the next to open the state gives them."""

    class Interrupted(Files):
        def do(self, operation, path, action):
            found = super().do(operation, path, action)
            if operation == "rename" and path.parent.name == "manifest":
                raise KeyboardInterrupt
            return found

    state, out = tmp_path / "s", tmp_path / "out"

    def interrupted():
        with State.open(state, {"out": out}, files=Interrupted()) as opened, opened.begin() as transaction:
            transaction.add_output(out / PROGRESS, progress_bytes(((1,),)))
            transaction.commit(Manifest("p", ((1,),)))

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not (out / PROGRESS).exists()
    with State.open(state, {"out": out}, written=[out]) as opened:
        assert opened.manifest.number == 1
    assert read_progress(out) == ((1,),)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "p.yaml", "--conf", "spark.executorEnv.AWS_SECRET_ACCESS_KEY=MARK"],
        ["run", "p.yaml", "--conf=spark.executorEnv.AWS_SECRET_ACCESS_KEY=MARK"],
        ["forget", "p.yaml", "--where", "name = 'MARK'", "--where=name = 'MARK'"],
    ],
)
def test_a_lock_is_signed_without_values_that_others_must_not_read(monkeypatch, words):
    monkeypatch.setattr("sys.argv", ["dd", *words])
    command = json.loads(signature())["command"]
    assert "MARK" not in command
    assert command.startswith(f"dd {words[0]} p.yaml {words[2].partition('=')[0]}")

"""Whose the directories of outputs are, and what may lie in them."""

import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import polars as pl
import pytest

import ddcli.driver.step
import ddcli.job.sizes
import ddcli.runtime.scheduler
import ddcli.sinks.outputs
import ddcli.store.state.outputs
from ddcli.commands.plan import preview
from ddcli.driver.run import run
from ddcli.driver.step import StepExecutor
from ddcli.errors import LockedError, SpecErrors, StateError
from ddcli.job.sizes import BASE
from ddcli.store.files.gate import Files, checksum
from ddcli.store.files.lock import take_lock
from ddcli.store.parquet.row_groups import footer_of
from ddcli.store.state.branches import export_state
from ddcli.store.state.directory import State
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import Owner, progress_bytes, read_owned
from tests.crash.shop import PIPELINE, Shop
from tests.spark.support import Here, started
from tests.store.support import commit_step, names


@pytest.fixture
def shop(tmp_path):
    """Return a shop that has run once and has something new."""
    made = Shop.make(tmp_path / "shop")
    made.supply(0)
    made.run()
    made.supply(1)
    return made


def refused(shop, match, **options):
    """Check that a run is refused and has changed nothing; return the error."""
    before = shop.files()
    with pytest.raises(StateError, match=match) as caught:
        shop.run(**options)
    assert caught.value.exit_code == 4
    assert shop.files() == before
    return caught.value


# --- what lies there --------------------------------------------------------------------------------------------


PARQUET = "theirs.parquet .hidden.parquet _private.parquet THEIRS.PARQUET deep/down/x.parquet .x/y.parquet updates-8-9.parquet"


@pytest.mark.parametrize("name", [*PARQUET.split(), "part.pq", "rows.csv", "year=2013/rows.ndjson"])
def test_data_of_others_is_refused(shop, name):
    """What a glob, or a reader of a directory, would take for a part of the output."""
    path = shop.folder / "out/known" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"a": [1]}).write_parquet(path)
    error = refused(
        shop, "'known' holds (data that was not written by its pipeline|updates that the state doesn't know)"
    )
    assert error.place == str(path)
    with pytest.raises(StateError):
        preview(shop.folder / "shop.yaml")
    path.unlink()
    assert shop.run().changed


def test_a_run_with_nothing_new_refuses_it_too(shop):
    shop.run()
    pl.DataFrame({"a": [1]}).write_parquet(shop.folder / "out/spent/theirs.parquet")
    refused(shop, "'spent' holds data that was not written by its pipeline")


def test_a_first_run_refuses_it_and_leaves_no_lock(tmp_path):
    shop = Shop.make(tmp_path)
    shop.supply(0)
    (tmp_path / "out/known").mkdir(parents=True)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "out/known/theirs.parquet")
    refused(shop, "holds data that was not written by its pipeline")
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["known", "theirs.parquet"]
    assert not shop.state.exists()


def test_a_link_to_a_directory_is_refused(shop, tmp_path):
    (tmp_path / "theirs").mkdir()
    (shop.folder / "out/known/more").symlink_to(tmp_path / "theirs")
    refused(shop, "holds data that was not written by its pipeline")


@pytest.mark.parametrize("name", ["README.md", "_SUCCESS", ".x.csv", "notes/todo.txt", "rows.csv.tmp"])
def test_what_no_reader_takes_may_lie_there(shop, name):
    path = shop.folder / "out/known" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    assert shop.run().changed
    assert path.read_text() == "mine"


def test_rows_put_aside_in_an_output_are_refused(tmp_path):
    shop = Shop.make(tmp_path)
    text = PIPELINE.replace(
        "  sales: in/sales/", "  sales: {path: in/sales/, late: quarantine, quarantine: out/known/late/}"
    )
    (tmp_path / "shop.yaml").write_text(text)
    shop.supply(0)
    with pytest.raises(
        SpecErrors, match=r"'out/known/' and the directory of the 'inputs.sales.quarantine' contain each other"
    ):
        shop.run()


# --- whose it is ------------------------------------------------------------------------------------------------


def test_an_output_says_whose_it_is(shop):
    manifest = read_newest(shop.state)
    assert len(manifest.identity) == 32
    for name in ("known", "spent"):
        upper, owner = read_owned(shop.folder / "out" / name)
        assert upper == manifest.upper
        assert owner == Owner(manifest.identity, "../../.dd/shop", log=manifest.outputs[name].log)
    shop.run()
    assert read_newest(shop.state).identity == manifest.identity


def test_another_states_output_is_refused_and_both_are_named(shop, tmp_path):
    other = tmp_path / "other"
    error = refused(shop, "'known' belongs to another state", state=other)
    assert f"written from the one at '{shop.state}'" in error.problem
    assert f"this run's is at '{other}'" in error.problem
    assert not other.exists()


def test_an_output_that_moves_to_another_states_is_refused(shop, tmp_path):
    """Both states have manifests: nothing is missing, but one output would have two writers."""
    other = Shop.make(tmp_path / "other")
    other.supply(0)
    other.run()
    other.supply(1)
    path = other.folder / "shop.yaml"
    path.write_text(path.read_text().replace("out/known/", "../shop/out/known/"))
    refused(other, "'known' belongs to another state")
    shutil.rmtree(shop.folder / "out/known")  # given up by its owner
    (shop.folder / "out/known").mkdir()
    other.run()
    assert "'known' belongs to another state" in refused(shop, "gone|belongs").problem


def test_an_output_whose_progress_names_no_owner_gets_it_with_the_next_commit(shop):
    manifest = read_newest(shop.state)
    for name in ("known", "spent"):
        (shop.folder / "out" / name / PROGRESS).write_bytes(progress_bytes(manifest.upper))
    shop.run()
    assert read_owned(shop.folder / "out/known")[1].state == manifest.identity


def test_a_copied_folder_goes_on_by_itself(shop, tmp_path):
    copy = shop.copy(tmp_path / "copy")
    assert copy.run().changed
    assert shop.run().changed
    assert copy.rows() == shop.rows()


def test_of_two_copies_of_a_state_the_one_that_commits_first_goes_on(shop, tmp_path):
    copy = tmp_path / "copy"
    export_state(shop.state, copy)
    shop.run()
    refused(shop, "has another progress than the state", state=copy)
    shutil.rmtree(copy)
    export_state(shop.state, copy)
    shop.supply(2)
    shop.run(state=copy)
    refused(shop, "has another progress than the state")
    assert shop.rows() == shop.meant(3)


def test_a_copy_is_refused_where_only_the_progress_has_moved(tmp_path):
    """No update came of it, so there is no file that would tell."""
    place = tmp_path / "out"
    with State.open(tmp_path / "state", {"out": place}) as state:
        commit_step(state, place, 0)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    with State.open(tmp_path / "copy", {"out": place}) as state:
        commit_step(state, place, 1)
    (place / "updates-1-2.parquet").unlink()
    with pytest.raises(StateError, match="has another progress"):
        State.open(tmp_path / "state", {"out": place})


def test_an_owner_that_makes_no_sense_is_none(tmp_path):
    for owner in (None, 1, [], {}, {"state": 1, "path": ""}, {"state": "x"}):
        (tmp_path / PROGRESS).write_text(json.dumps({"upper": [[1]], "owner": owner}))
        assert read_owned(tmp_path) == (((1,),), None)


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 10_000, "ftp://x", "s3://", "../" * 1_000, "\u202e\x1b[31m"])
def test_an_owner_at_a_strange_place_is_refused_all_the_same(shop, path):
    tree = {"upper": [[1]], "owner": {"state": "f" * 32, "path": path}}
    (shop.folder / "out/known" / PROGRESS).write_text(json.dumps(tree))
    refused(shop, "'known' belongs to another state")


# --- one at a time ----------------------------------------------------------------------------------------------

RUN = "import sys; from pathlib import Path; from ddcli.driver.run import run; from ddcli.errors import DdError\ntry: run(Path(sys.argv[1]), state=Path(sys.argv[2]))\nexcept DdError as error: print(error.render()); sys.exit(error.exit_code)"


def test_two_states_that_begin_at_once(tmp_path):
    """One of them writes the output; the other ends with an error, and nothing is there twice."""
    shop = Shop.make(tmp_path)
    shop.supply(0)
    command = [sys.executable, "-c", RUN, str(tmp_path / "shop.yaml")]
    both = [subprocess.Popen([*command, str(tmp_path / state)], stdout=subprocess.PIPE, text=True) for state in "ab"]
    said = [process.communicate(timeout=300)[0] for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes[0] == 0, said
    assert codes[1] in (4, 75), said
    assert shop.rows() == shop.meant(1)


def test_an_output_that_another_state_is_writing_is_refused(shop, tmp_path, monkeypatch):
    lock = take_lock(shop.folder / "out/known", Files(), writer=tmp_path / "other")
    before = shop.files()
    monkeypatch.setattr(ddcli.driver.execute, "execute", None)  # refused before anything is computed
    with pytest.raises(LockedError) as caught:
        shop.run()
    assert caught.value.exit_code == 75
    assert f"from the state at '{tmp_path / 'other'}'" in caught.value.problem
    assert f"this run's is at '{shop.state}'" in caught.value.problem
    assert shop.files() == before
    monkeypatch.undo()
    lock.release()
    assert shop.run().changed


def test_outputs_are_free_again_after_a_run(shop):
    shop.run()
    for name in ("known", "spent"):
        take_lock(shop.folder / "out" / name, Files(), writer=shop.state).release()
    assert names(shop.folder / "out/known") == [PROGRESS, "updates-1-2.parquet", "updates-start-1.parquet"]
    assert not run(shop.folder / "shop.yaml").changed


# --- files that are not what was written ------------------------------------------------------------------------


def same_size(path, data):
    """Write a Parquet file of other rows, with as many bytes."""
    frame = pl.read_parquet(path)
    out = io.BytesIO()
    frame.with_columns(pl.col("diff") * 2).write_parquet(out, compression="zstd")
    other = out.getvalue()
    footer = footer_of(len(other), lambda start, end: other[start:end])
    body = other[: -len(footer)][: len(data) - len(footer)]
    return body + bytes(len(data) - len(footer) - len(body)) + footer


@pytest.mark.parametrize("how", ["cut", "longer", "other file", "empty", "replaced", "back in time"])
def test_a_file_with_other_bytes_is_found_by_the_next_run(shop, how):
    path = shop.folder / "out/known/updates-start-1.parquet"
    data = path.read_bytes()
    if how in ("replaced", "back in time"):
        before = path.stat()
        place = path.with_name("new")
        place.write_bytes(same_size(path, data))
        assert len(place.read_bytes()) == len(data)
        if how == "back in time":
            os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
        place.rename(path)
    else:
        other = (shop.folder / "out/spent/updates-start-1.parquet").read_bytes()
        path.write_bytes({"cut": data[:-100], "longer": data + b"x", "other file": other, "empty": b""}[how])
    error = refused(shop, "a file of output 'known' is not as it was written")
    assert error.place == str(path)
    path.write_bytes(data)  # put back
    assert shop.run().changed
    assert shop.rows() == shop.meant(2)


def test_a_file_of_each_kind_of_commit_is_known_by_its_footer(tmp_path, monkeypatch):
    """Written at once, put together from parts, or by a task."""
    monkeypatch.setattr(ddcli.sinks.outputs, "LARGE", 1)
    monkeypatch.setattr(ddcli.runtime.scheduler, "INLINE", 0)
    shop = Shop.make(tmp_path)
    text = (tmp_path / "shop.yaml").read_text()
    (tmp_path / "shop.yaml").write_text(text.replace("name: shop\n", "name: shop\nshards: 3\n"))
    with started(Here(7)):
        for step, options in enumerate([{}, {"engine": "spark"}, {"engine": "spark"}, {"memory": BASE}]):
            shop.supply(step)
            shop.run(**options)
    for entry in read_newest(shop.state).outputs.values():
        for file in entry.files:
            data = (shop.state / entry.path / file.name).read_bytes()
            footer = footer_of(len(data), lambda start, end, data=data: data[start:end])
            assert file.footer == checksum(footer)
            assert file.rows == pl.read_parquet(io.BytesIO(data)).height


@pytest.mark.parametrize("kept", [1, 3])
def test_shards_of_a_large_step_leave_one_by_one(tmp_path, monkeypatch, kept):
    """Each as soon as it is known, while others are still to be computed, or with some that wait for the end; in one file."""
    for name in ("STREAMED", "MUCH"):
        monkeypatch.setattr(ddcli.job.sizes, name, 1)
    monkeypatch.setattr(ddcli.sinks.outputs, "LARGE", kept)
    monkeypatch.setattr(ddcli.driver.step, "LARGE", kept)
    shop, left = Shop.make(tmp_path), []
    text = (tmp_path / "shop.yaml").read_text()
    (tmp_path / "shop.yaml").write_text(text.replace("name: shop\n", "name: shop\nshards: 3\n"))
    writes = StepExecutor._writes
    monkeypatch.setattr(
        StepExecutor, "_writes", lambda self, found, gone: left.append(len(gone)) or writes(self, found, gone)
    )
    for step in range(4):
        shop.supply(step)
        shop.run()
    assert any(left), "some were large"
    assert shop.rows() == shop.meant(4)
    assert len(list((tmp_path / "out/known").glob("updates-start-1*.parquet"))) == 1


def test_a_run_looks_at_a_bounded_number_of_files(tmp_path, monkeypatch):
    """Of a long log: the newest, and some of the others, each in its turn; those by their footers, whenever they were changed."""
    monkeypatch.setattr(ddcli.store.state.outputs, "NEWEST", (2, 2))
    monkeypatch.setattr(ddcli.store.state.outputs, "OLDER", (3, 3))
    shop = Shop.make(tmp_path)
    looked, check = [], ddcli.store.state.outputs._check_file

    def noting(path, name, entry, published):
        looked[-1].append(path.name)
        check(path, name, entry, published)

    monkeypatch.setattr(ddcli.store.state.outputs, "_check_file", noting)
    for step in range(12):
        shop.supply(step)
        looked.append([])
        shop.run()
    assert max(map(len, looked)) == 10, "of two outputs"
    assert {name for names in looked[-3:] for name in names} == {
        path.name for path in (tmp_path / "out/known").glob("*.parquet")
    } - {"updates-11-12.parquet"}
    path = tmp_path / "out/known/updates-start-1.parquet"
    path.write_bytes(same_size(path, path.read_bytes()))
    monkeypatch.setattr(ddcli.store.state.outputs, "_check_file", check)
    found = []
    for step in range(12, 18):
        shop.supply(step)
        try:
            shop.run()
        except StateError as error:
            found.append(error.problem)
    assert found
    assert all("its footer is another" in problem for problem in found)


def test_nothing_of_a_lock_stays(shop, tmp_path):
    """Of a run that commits, or fails before there is anything else in the directory of an output."""
    shop.run()
    assert not list((shop.folder / "out").rglob("_lock"))
    other = Shop.make(tmp_path / "other")
    other.supply(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ddcli.driver.execute, "execute", None)
        with pytest.raises(TypeError):
            other.run()
    assert not (other.folder / "out").exists()


def test_who_waits_for_a_lock_that_goes_gets_the_next_one(tmp_path):
    """Two wait; the first is given a file that is gone by then, and both hold the lock in turn, never together."""
    held, seen = take_lock(tmp_path, Files(), writer=tmp_path), []

    def wait(name):
        lock = take_lock(tmp_path, Files(), "wait", writer=tmp_path)
        seen.append(name)
        time.sleep(0.05)
        seen.append(name)
        lock.release()

    threads = [threading.Thread(target=wait, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    held.release()
    for thread in threads:
        thread.join(300)
    assert sorted(seen[::2]) == sorted(seen[1::2]) == [0, 1, 2, 3]
    assert seen[::2] == seen[1::2], "nobody came in between"
    assert not list(tmp_path.iterdir())

"""A disk that is full or fails, at any file operation: an error that names the file, nothing to be seen, the next run right."""

import errno
import os
import shutil
from itertools import count
from pathlib import Path

import pytest

from ddcli.errors import EngineError, StateError
from ddcli.store.files.gate import Files
from ddcli.store.state.branches import export_state
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import reshard_state, verify
from tests.crash.shop import RUNS
from tests.draws import EFFORT, WHOLE, some
from tests.store.support import Dead, Faulty, little_at_a_time, names


@pytest.mark.in_turn
def test_an_error_at_every_operation(stage, tmp_path, through):
    before, again = stage.shop.files(), set()
    for at in some(count()):
        code = (errno.ENOSPC, errno.EIO)[(at + stage.step) % 2]
        shop = stage.shop.copy(tmp_path / "shop")
        files = Faulty(at, OSError(code, os.strerror(code)))
        try:
            through(shop, files)
        except EngineError as error:
            failed = error
        else:
            break
        operation, path = files.log[at]
        assert failed.exit_code == 5
        assert failed.place == str(path)
        assert failed.problem == f"cannot {operation} the file: {os.strerror(code)}"
        if shop.number == stage.step:
            assert shop.files() == before, f"{operation} {path}"
            assert "nothing of this run is visible" in failed.hint
        else:
            assert "the run is committed" in failed.hint
        left = frozenset(shop.files().items())
        if left not in again:  # else the same run was done after an earlier error
            shop.run()
            assert shop.settled() == stage.after, f"{operation} {path}"
            again.add(left)
        shutil.rmtree(shop.folder)
    assert at > 25


def test_an_error_at_every_operation_of_a_reshard(every_stage, tmp_path, through):
    """The state is the old one or the new one, which say the same: the next run is right."""
    stage, seen = every_stage["merge"], set()
    for at in some(count()):
        shop = stage.shop.copy(tmp_path / "shop")
        before = shop.number
        files = Faulty(at, OSError(errno.EIO, os.strerror(errno.EIO)))
        try:
            through(shop, files, lambda shop: reshard_state(shop.state, 3))
        except EngineError:
            pass
        else:
            break
        cut = {len(entry.shards) for entry in read_newest(shop.state).arrangements.values()}
        assert cut == ({1} if shop.number == before else {3})
        seen |= cut
        shop.run()
        assert shop.rows() == shop.meant(RUNS)
        shop.settled()
        assert not verify(shop.state)[2]
        shutil.rmtree(shop.folder)
    assert seen == {1, 3}


def test_an_error_or_death_at_every_operation_of_an_export(every_stage, tmp_path):
    """An error leaves no file, a death the whole copy or no state: a run there goes on or begins."""
    shop, seen = every_stage["merge"].shop, set()
    before = shop.files()
    for at, error in (
        (at, error) for at in some(count()) for error in (OSError(errno.EIO, os.strerror(errno.EIO)), Dead)
    ):
        other = shop.copy(tmp_path / "shop")
        copy = other.folder / "backups/shop"
        try:
            export_state(shop.state, copy, files=Faulty(at, error))
        except EngineError:
            assert not names(copy)
        except Dead:
            whole = read_newest(copy) is not None
            seen.add(whole)
            if whole:
                assert not verify(copy)[2]
            else:
                with pytest.raises(StateError, match="belongs to another state"):
                    other.run(state=copy)
                shutil.rmtree(other.folder / "out")
            other.run(state=copy)
            assert not verify(copy)[2]
            # A run that begins takes in all times together, one that goes on writes only what is new: the rows are the same.
            assert other.rows() == other.meant(RUNS)
        else:
            break
        shutil.rmtree(other.folder)
    assert seen == {False, True} or EFFORT < WHOLE
    assert shop.files() == before


def test_a_disk_that_takes_a_little_at_a_time(stage, tmp_path, monkeypatch):
    shop = stage.shop.copy(tmp_path / "shop")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", little_at_a_time(700))
        shop.run()
    assert shop.settled() == stage.after


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_who_may_not_write_is_not_asked_to_free_space(tmp_path, number):
    def refused():
        raise OSError(number, os.strerror(number))

    with pytest.raises(EngineError) as failed:
        Files().do("write", tmp_path / "a", refused)
    assert failed.value.hint == "nothing of this run is visible; run as somebody who may write there"

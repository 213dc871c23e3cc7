"""The lock of a state in an object store: one run at a time; and where two believe that they are alone, one commit."""

import json
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from ddcli.errors import LockedError
from ddcli.store.files import lock as locks
from ddcli.store.files.gate import Files
from ddcli.store.files.lock import ObjectLock, take_lock
from ddcli.store.state.directory import State
from tests.store.support import LOCKS, commit_step


@pytest.fixture
def place(bucket):
    """Return where a state and an output lie."""
    return bucket / "state", bucket / "out"


def open_state(place, **options):
    return State.open(place[0], {"out": place[1]}, **options)


def sign(place, **who):
    """Put a lock there that another has signed."""
    signed = {"pid": 1, "host": "elsewhere", "started": "2026-01-01", "command": "dd run", "mark": "-x"} | who
    (place[0] / "LOCK").put(json.dumps(signed).encode())


def all_of(place):
    return {str(path): path.read_bytes() for part in place for path, _ in part.below() if path.name != "LOCK"}


def test_a_second_run_is_told_who_holds_the_state(place):
    with open_state(place):
        for if_locked in ("fail", "skip"):
            with pytest.raises(LockedError) as caught:
                open_state(place, if_locked=if_locked)
            assert caught.value.exit_code == 75
            assert f"in use by process {os.getpid()} on {socket.gethostname()}, started 20" in caught.value.problem
    open_state(place).close()
    assert not (place[0] / "LOCK").exists()


def test_a_run_that_waits_comes_after(place, monkeypatch):
    monkeypatch.setattr(locks, "LOOK", 0.01)
    first = open_state(place)
    timer = threading.Timer(0.3, first.close)
    timer.start()
    with open_state(place, if_locked="wait") as second:
        assert not timer.is_alive() or first.lock._ended.is_set()
        commit_step(second, place[1], 0)


def test_the_lock_of_a_process_of_this_machine_that_is_gone_is_taken_over(place):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    sign(place, host=socket.gethostname(), pid=int(ended.stdout))
    with open_state(place) as state:
        assert state.lock.sole
    sign(place, host=socket.gethostname(), pid=os.getpid())  # of a process before us that had our number
    open_state(place).close()
    sign(place, host=socket.gethostname(), pid=os.getppid())
    with pytest.raises(LockedError):
        open_state(place)


def test_a_lock_of_another_machine_is_taken_over_when_it_is_not_renewed(place, monkeypatch):
    sign(place)
    with pytest.raises(LockedError, match="process 1 on elsewhere, started 2026-01-01: dd run"):
        open_state(place)
    monkeypatch.setattr(locks, "EXPIRES", timedelta(seconds=-5))
    with open_state(place) as state:
        assert not state.lock.sole


def test_a_lock_is_renewed_while_it_is_held(place, monkeypatch):
    monkeypatch.setattr(locks, "RENEWED", 0.02)
    renewed, put = threading.Event(), type(place[0]).put

    def counted(path, data, *, mode="overwrite"):
        if isinstance(mode, dict):
            renewed.set()
        return put(path, data, mode=mode)

    monkeypatch.setattr(type(place[0]), "put", counted)
    lock = take_lock(place[0], Files())
    assert renewed.wait(300)
    lock.check()
    sign(place)  # another has taken it over
    lock._ended.wait(0.2)
    with pytest.raises(LockedError, match="another run has taken the lock over"):
        lock.check()
    lock.release()
    assert b"elsewhere" in (place[0] / "LOCK").read_bytes()


def test_of_two_who_take_over_at_once_one_does(place, monkeypatch):
    monkeypatch.setattr(locks, "EXPIRES", timedelta(seconds=-5))
    sign(place)
    looked, start = threading.Barrier(2), ObjectLock._holder

    def together(lock):
        signed = start(lock)
        if b"elsewhere" in signed:
            looked.wait(300)
        return signed

    monkeypatch.setattr(ObjectLock, "_holder", together)
    taken, refused = [], []

    def take():
        try:
            taken.append(take_lock(place[0], Files()))
        except LockedError as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(taken), len(refused)) == (1, 1)
    taken[0].release()


@pytest.mark.parametrize("overtaken", [True, False])
def test_a_run_that_was_held_up_can_do_no_harm(place, monkeypatch, overtaken):
    """It wakes after another has taken the lock over, and goes on: whoever commits first has committed, the other is told so."""
    with open_state(place) as state:
        commit_step(state, place[1], 0)
    monkeypatch.setattr(locks, "EXPIRES", timedelta(seconds=-5))
    monkeypatch.setattr(locks, "_is_gone", lambda _signed: False)
    slow, others, committed = open_state(place), [], []

    def held_up():
        """Stand between the look at the lock and the commit; by then all other files have been written."""
        others.append(open_state(place))
        assert not others[0].lock.sole
        if overtaken:
            commit_step(others[0], place[1], 1)
            committed.append(all_of(place))

    slow.lock.check = held_up
    monkeypatch.setattr(
        State, "check_locks", lambda state: state.lock.check()
    )  # it has looked at those of outputs before
    late = slow
    if not overtaken:
        commit_step(slow, place[1], 1)
        committed.append(all_of(place))
        late = others[0]
    with pytest.raises(LockedError, match="another run has committed first"):
        commit_step(late, place[1], 1)
    # What the late one had written already it has taken away again.
    assert all_of(place) == {path: data for path, data in committed[0].items() if late.lock.mark not in path}
    others[0].close()
    (place[0] / "LOCK").unlink(missing_ok=True)
    with open_state(place) as state:
        assert state.manifest.number == 2
        found = sorted(path.name for path in place[1].iterdir() if path.name not in LOCKS)
        assert found == ["_progress.json", "updates-0-1.parquet", "updates-1-2.parquet"]
        (batches,) = state.manifest.arrangements["people"].shards
        for at, batch in enumerate(batches):
            assert (place[0] / "arrangements/people/0" / batch.name).read_bytes() == b"batch %d" % at

"""Random pipelines run round by round, each keeping what the last one left, whatever happens in between: what comes out is what the
pipeline means, and byte for byte what separate runs write.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ddcli.driver.execute
import ddcli.store.state.batch_lists
import ddcli.store.state.directory
import ddcli.store.state.register
from ddcli.driver.run import run
from ddcli.errors import DdError, LockedError
from ddcli.job import options
from ddcli.job.options import WatchCache
from ddcli.job.sizes import Sizes
from ddcli.runtime import placement
from ddcli.store.batch import open_batches as keeping
from ddcli.store.files.gate import Files
from ddcli.store.files.lock import Lock
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import compact_state, reshard_state, verify
from tests.judge.case import arrive
from tests.judge.harness import judge
from tests.judge.logs import cases
from tests.judge.sizes import cut
from tests.judge.test_changes import edited, judge_changes
from tests.judge.test_random import SEARCH
from tests.secret import SECRET
from tests.store.support import LOCKS, Dead, Faulty

KINDS = st.tuples(st.sampled_from([1, 1, 1, 2]), st.booleans()).flatmap(
    lambda way: cases(nt=way[0], looping=way[1], fallible=not way[1])
)
EVENTS = ["full disk", "interrupted", "dies elsewhere", "locked", "rejected", "elsewhere", "compacted"]
EVENTS += ["restored", "otherwise", "otherwise", "rewritten", "again"]


class Watched:
    """A folder with a case's pipeline, run by rounds that keep what the last one left, and by others in between."""

    def __init__(self, case, root, chance):
        self.case, self.root, self.chance = case, root, chance
        self.path = root / "p.yaml"
        root.mkdir()
        self.path.write_text(case.text, encoding="utf-8")
        self.state = root / ".dd/judged"
        self.watch_cache = WatchCache()
        self.happened = []

    def arrive(self, number):
        """Write what comes before a run."""
        this = self.case.runs[number]
        self.new = arrive(self.case, number, self.root)
        self.until = self.case.until(this)

    def run(self, *, keeping=True):
        """Do a run, return how it ended."""
        try:
            run(self.path, until=self.until, **({"watch_cache": self.watch_cache} if keeping else {}))
        except DdError as error:
            return [type(error).__name__, *(line.replace(str(self.root), "") for line in error.lines())]
        return None

    def through(self, error, *, keeping):
        """Do a run in which some file operation fails; `Dead` fails all that come after it, too."""
        files = Faulty(self.chance.randint(0, 60), error, after=self.chance.random() < 0.5)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ddcli.store.state.directory, "Files", lambda: files)
            try:
                self.run(keeping=keeping)
            except Dead:
                return

    @property
    def committed(self):
        """Whether there is a state."""
        return read_newest(self.state) is not None

    def disturb(self, event):
        """Have something happen between two rounds."""
        self.happened.append(event)
        committed = self.committed
        if event == "full disk":
            self.through(OSError(28, "No space left on device"), keeping=True)
        elif event == "interrupted":
            self.through(Dead, keeping=True)
        elif event == "dies elsewhere":
            self.through(Dead, keeping=False)
        elif event == "locked" and committed:
            lock = Lock(self.state, Files())
            ended = self.run()
            assert ended is None or ended[0] == LockedError.__name__ or "Input" in ended[0], ended
            lock.release()
        elif event == "rejected":
            wrong = self.root / "in" / next(iter(self.case.tree["inputs"])) / "wrong.parquet"
            wrong.parent.mkdir(parents=True, exist_ok=True)
            wrong.write_bytes(b"PAR1" + bytes(40) + b"\x04\x00\x00\x00PAR1")
            before = read_newest(self.state)
            ended = self.run()  # that closes nothing more reads nothing
            assert ended is not None or read_newest(self.state) == before
            wrong.unlink()
        elif event == "elsewhere":
            self.run(keeping=False)
        elif event == "compacted" and committed:
            compact_state(self.state)
        elif event == "restored":
            self.restored(self.chance.random() < 0.7)
        elif event == "otherwise":  # the same commit of other rows, by files of the same names
            some = self.chance.sample(self.new, len(self.new) // 2 + len(self.new) % 2)
            for path in some:
                path.rename(path.with_suffix(".tmp"))
            self.restored(keeping=True)
            for path in some:
                path.with_suffix(".tmp").rename(path)
        elif event == "rewritten":
            self.path.write_text(self.case.text + f"# {self.chance.random()}\n", encoding="utf-8")
        elif event == "again":
            self.run()

    def restored(self, keeping):
        """Do a run, and put back state and outputs as they were before it."""
        places = [self.root / name for name in (".dd", "out")]
        there = [place for place in places if place.is_dir()]
        for place in there:
            shutil.copytree(place, self.root / f"before-{place.name}")
        self.run(keeping=keeping)
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
        for place in there:
            (self.root / f"before-{place.name}").rename(place)

    def outputs(self):
        """Return the bytes of the outputs' files."""
        files = [path for path in (self.root / "out").rglob("*") if path.is_file() and path.name not in LOCKS]
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in files}


@contextmanager
def alike(seed):
    """Have all states be one, under one secret, and all runs of a number cut alike, so that what they write is the same."""
    chance = random.Random(seed)
    shards, outside, kept, lately = (
        chance.choice([1, 1, 3]),
        chance.random() < 0.2,
        chance.random(),
        chance.randint(1, 9),
    )

    def sizes(rows, _width, kept, *_, **__):
        count = max(kept, default=shards)
        return (
            Sizes(shards, max(2, count), 2, 3, 100)
            if outside and rows % 3 == 0 and count == 2
            else Sizes(shards, count, 2)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ddcli.driver.execute, "new_secret", lambda: SECRET)
        patch.setattr(ddcli.store.state.directory, "new_identity", lambda: "0" * 32)
        patch.setattr(ddcli.store.state.register, "LATELY", lately)
        patch.setattr(ddcli.store.state.batch_lists, "LATELY", lately)
        patch.setattr(placement, "sizes", sizes)
        if kept < 0.3:
            patch.setattr(options, "SHARE", 10**9)
        elif kept < 0.5:
            patch.setattr(keeping, "OPEN", 1)
        yield


@SEARCH
@given(KINDS, st.integers(0, 2**32))
def test_rounds_write_what_separate_runs_write(case, seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, alike(seed):
        watched, apart = (Watched(case, Path(folder) / name, chance) for name in ("watched", "apart"))
        for number in range(len(case.runs)):
            for each in (watched, apart):
                each.arrive(number)
            if (
                watched.committed and chance.random() < 0.1
            ):  # both, as files of other shards have their rows in another order
                shards = chance.choice([1, 2, 3])
                for each in (watched, apart):
                    reshard_state(each.state, shards)
            for event in chance.sample(EVENTS, chance.choice([0, 0, 1, 1, 2, 3])):
                watched.disturb(event)
            ended = watched.run(keeping=chance.random() < 0.7)
            assert ended == apart.run(keeping=False), watched.happened
            assert watched.outputs() == apart.outputs(), watched.happened
            if ended:
                return
        if case.runs and read_newest(watched.state) is not None:
            _, _, wrong = verify(watched.state)
            assert not wrong, watched.happened


def sometimes(seed):
    """Return what chooses for each run whether it is a round of one watch, or somebody else's."""
    chance, watch_cache = random.Random(seed), WatchCache()
    return lambda: {"watch_cache": watch_cache} if chance.random() < 0.8 else {}


@SEARCH
@given(KINDS, st.sampled_from([1, 3, 8]), st.integers(0, 2**32))
def test_rounds_mean_what_the_pipeline_means(case, shards, seed):
    """However each is cut, in memory or out of core, with runs of others in between; then in another folder."""
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed):
        judge(case, Path(folder), sometimes(seed))


@SEARCH
@given(edited(), st.sampled_from([1, 3]), st.integers(0, 2**32))
def test_rounds_of_a_pipeline_that_changes(found, shards, seed):
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed):
        judge_changes(*found, Path(folder), sometimes(seed))

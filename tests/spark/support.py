"""A cluster in this process, which goes through all that tasks go through but Spark; and what tests have Spark do."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import subprocess
import sys
from contextlib import contextmanager, nullcontext

import pytest

from ddcli.runtime.chain import ChainedStage
from ddcli.store.state.batch_lists import BUNDLES
from ddcli.store.state.contents import batch_files
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.register import SEGMENTS


class Here:
    """Does tasks one after the other, in any order, some of them twice, as a cluster does that is impatient."""

    page = None
    is_waiting = False
    master = "here"
    calm = False
    """True: each task is done once."""

    def __init__(self, seed: int, slots: int = 2) -> None:
        self.chance = random.Random(seed)
        self.slots = slots
        self.names = itertools.count()
        self.done = 0

    def task_memory(self, here):
        """Return what a run here may have."""
        return here

    def run(self, function, common, tasks, about, progress):
        assert about
        found = {}
        for at in self.chance.sample(range(len(tasks)), len(tasks)):
            for _ in range(self.chance.choice([1, 1, 2])):
                found[at] = function(common, tasks[at], str(next(self.names)))
                self.done += 1
        return [found[at] for at in range(len(tasks))]

    def exchange(self, steps, rows, partitions, about, progress):
        """Shuffle rows and take each partition through each step; some twice, and of either attempt what came out counts."""
        assert about
        rows = list(rows)
        for step, count in zip(steps, partitions, strict=True):
            self.chance.shuffle(rows)
            parts = [[] for _ in range(count)]
            for row in rows:
                parts[row.shard % count].append(row)
            while (
                len(parts) > 1 and not self.calm and self.chance.random() < 0.2
            ):  # adaptive execution may put small ones together
                parts[0] += parts.pop()
            rows = []
            for part in self.chance.sample(parts, len(parts)):
                part.sort(key=lambda row: row[:3])
                times = 1 if self.calm else self.chance.choice([1, 1, 2])
                rows += self.chance.choice([self.stepped(step, part) for _ in range(times)])
        return rows

    def stepped(self, step, part):
        """Take a partition through a step, as pickles."""
        self.done += 1
        function = pickle.loads(pickle.dumps(step))  # noqa: S301
        return list(function(iter(part), str(next(self.names))))

    def close(self) -> None:
        """Stay."""


class Calm(Here):
    """Does each task once, in the same order in each run."""

    calm = True

    def __init__(self) -> None:
        super().__init__(7)

    def run(self, function, common, tasks, about, progress):
        self.done += len(tasks)
        return [function(common, task, str(next(self.names))) for task in tasks]


class Elsewhere(Here):
    """Does each task in a process of its own, on a machine that differs from the driver's while tasks run, as `differ` makes it."""

    program = """
import pickle, sys
from pathlib import Path
path = Path(sys.argv[1])
function, given, *names = pickle.loads(path.read_bytes())
found = function(given if isinstance(given, bytes) else iter(given), *names)
path.write_bytes(pickle.dumps(found if isinstance(found, bytes) else list(found)))
"""

    def __init__(self, folder, differ=nullcontext, lacking=()):
        super().__init__(1)
        self.folder, self.differ = folder, differ
        self.environment = {name: value for name, value in os.environ.items() if name not in lacking}

    def run(self, function, common, tasks, about, progress):
        with self.differ():
            return [self.do(function, common, task, str(next(self.names))) for task in tasks]

    def stepped(self, step, part):
        with self.differ():
            return self.do(step, part, str(next(self.names)))

    def do(self, *given):
        path = self.folder / "task"
        path.write_bytes(pickle.dumps(given))
        subprocess.run([sys.executable, "-c", self.program, path], env=self.environment, check=True)
        return pickle.loads(path.read_bytes())  # noqa: S301


class Told(Here):
    """Remembers what it was told of stages."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.abouts = []

    def run(self, function, common, tasks, about, progress):
        self.abouts.append(about)
        return super().run(function, common, tasks, about, progress)

    def exchange(self, steps, rows, partitions, about, progress):
        self.abouts.append(about)
        return super().exchange(steps, rows, partitions, about, progress)


@contextmanager
def started(cluster):
    """Have runs on Spark done by a cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddcli.runtime.placement.start", lambda *_: cluster)
        yield cluster


def switching(seed: int, share: float = 0.5):
    """Return what chooses an engine for each run."""
    chance = random.Random(seed)
    return lambda: {"engine": "spark" if chance.random() < share else "local"}


class Bug(ChainedStage):
    """Fails as a bug of ours would."""

    def __call__(self, rows, attempt):
        raise KeyError("gone")


class Seen(Here):
    """Remembers the rows of each step."""

    def __init__(self, seed: int, slots: int = 2) -> None:
        super().__init__(seed, slots)
        self.rows = []

    def stepped(self, step, part):
        found = super().stepped(step, part)
        self.rows.append((step, part, found))
        return found


class AtTheSecondTry(ChainedStage):
    """Does a task, but fails after it the first time, at some: a process that has failed is not used again, and dear."""

    def __call__(self, rows, attempt):
        from pyspark import TaskContext

        yield from super().__call__(rows, attempt)
        if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 0:
            raise RuntimeError("at first")


def assert_all_named(state):
    """Compare the files of batches and their indices below a state with those that its newest manifest names."""
    assert not unnamed(state)


def unnamed(state):
    """Return the files of batches and their indices that are below a state or in its newest manifest, but not in both."""
    manifest = read_newest(state)
    named = {path for path, _ in batch_files(state, manifest)} | {
        state / SEGMENTS / name for name in manifest.segments()
    }
    places = [state / name for name in ("arrangements", BUNDLES, SEGMENTS)]
    return {path for place in places for path in place.rglob("*") if path.is_file()} ^ named

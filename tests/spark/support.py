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

from ddcli.runtime.task import perform
from ddcli.store.state.contents import batch_files
from ddcli.store.state.manifest import read_newest


class Here:
    """Does tasks one after the other, in any order, some of them twice, as a cluster does that is impatient."""

    page = None
    master = "here"

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

    def close(self) -> None:
        """Stay."""


class Elsewhere(Here):
    """Does each task in a process of its own, on a machine that differs from the driver's while tasks run, as `differ` makes it."""

    program = """
import pickle, sys
from pathlib import Path
from ddcli.runtime.task import perform
path = Path(sys.argv[1])
path.write_bytes(perform(*pickle.loads(path.read_bytes())))
"""

    def __init__(self, folder, differ=nullcontext, lacking=()):
        super().__init__(1)
        self.folder, self.differ = folder, differ
        self.environment = {name: value for name, value in os.environ.items() if name not in lacking}

    def run(self, function, common, tasks, about, progress):
        with self.differ():
            return [self.do(common, task) for task in tasks]

    def do(self, common, task):
        path = self.folder / "task"
        path.write_bytes(pickle.dumps((common, task, str(next(self.names)))))
        subprocess.run([sys.executable, "-c", self.program, path], env=self.environment, check=True)
        return path.read_bytes()


class Told(Here):
    """Remembers what it was told of stages."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.abouts = []

    def run(self, function, common, tasks, about, progress):
        self.abouts.append(about)
        return super().run(function, common, tasks, about, progress)


@contextmanager
def started(cluster):
    """Have runs on Spark done by a cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddcli.runtime.spark.start.start", lambda *_: cluster)
        yield cluster


def switching(seed: int, share: float = 0.5):
    """Return what chooses an engine for each run."""
    chance = random.Random(seed)
    return lambda: {"engine": "spark" if chance.random() < share else "local"}


def bug(common, task, attempt):
    """Fail as a bug of ours would."""
    raise KeyError("gone")


def at_the_second_try(common, task, attempt):
    """Do a task, but fail after it the first time, at some: a process that has failed is not used again, and dear."""
    from pyspark import TaskContext

    done = perform(common, task, attempt)
    if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 0:
        raise RuntimeError("at first")
    return done


def assert_all_named(state):
    """Compare the batch files below a state with those that its newest manifest names."""
    named = {path for path, _ in batch_files(state, read_newest(state))}
    assert {path for path in (state / "arrangements").rglob("*") if path.is_file()} == named

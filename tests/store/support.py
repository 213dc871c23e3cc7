"""What the store's tests share: file operations that fail or die, and small states."""

import hashlib
import os
import sys
import threading
from pathlib import Path

from ddcli.store.batch.compaction import append, writer_of
from ddcli.store.files.access import relative
from ddcli.store.files.gate import Files
from ddcli.store.files.objects import ObjectPath
from ddcli.store.state.directory import State
from ddcli.store.state.entries import ArrangementEntry, FileEntry, OutputEntry
from ddcli.store.state.manifest import Manifest
from ddcli.store.state.outputs import write_progress

LOCKS = ("LOCK", "_lock")
"""The names of locks: of a state, of an output."""


def batch_bytes(matrix, layout, pool):
    """Return the content of a batch file with sorted, consolidated updates: the same, however many rows its writer expects."""
    content = []
    for about in (0, len(matrix) // 2, len(matrix)):
        writer = writer_of(layout, about)
        append(writer, matrix, layout, pool)
        content.append(writer.finish())
    assert content[0] == content[1] == content[2]
    return content[0]


class Dead(BaseException):
    """The process ended here: nothing catches it, and nothing is done after it."""


class Faulty(Files):
    """Fails operation number `at` with `error`, a write half done; after `Dead` every later operation dies too. Records all."""

    def __init__(self, at=None, error=Dead, after=False):
        self.at, self.error, self.after = at, error, after
        self.log = []
        self.dead = False
        self.noting = threading.Lock()

    @property
    def changes(self):
        """The numbers of the operations that change files: to flush one does not, so who dies before that leaves what who dies after it does."""
        return [at for at, (operation, _) in enumerate(self.log) if operation != "sync"]

    def do(self, operation, path, action):
        if self.dead:
            raise Dead
        with self.noting:
            here = len(self.log) == self.at
            self.log.append((operation, path))
        if not here:
            return super().do(operation, path, action)
        self.dead = self.error is Dead
        if self.after:
            super().do(operation, path, action)
        elif isinstance(path, ObjectPath):
            if operation == "rename":  # copied, but not yet removed
                data = path.read_bytes()
                super().do(operation, path, action)
                path.put(data)
        elif operation == "write" and path.name not in LOCKS:
            super().do(operation, path, action)
            os.truncate(path, path.stat().st_size // 2)
        if self.error is Dead:
            raise Dead

        def fail():
            raise self.error

        return super().do(operation, path, fail)


class Interrupted:
    """Calls `call` before one of the lines that these functions execute: the line number `at`. `where` is that line, None where there are fewer."""

    def __init__(self, functions, at, call):
        self.codes, self.left, self.call = {each.__code__ for each in functions}, at, call
        self.where = self.before = None

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(lambda frame, _event, _argument: self._executed if frame.f_code in self.codes else None)
        return self

    def __exit__(self, *_error):
        sys.settrace(self.before)

    def _executed(self, frame, event, _argument):
        self.left -= event == "line"
        if not self.left and self.where is None:
            self.where = (frame.f_code.co_name, frame.f_lineno)
            self.call()
        return self._executed


def tree(*directories: Path) -> dict[str, str]:
    """Return the content of all files below some directories but locks."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for directory in directories
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in LOCKS
    }


def names(directory: Path) -> list[str]:
    """Return the relative paths of all files below a directory but locks."""
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file() and p.name not in LOCKS)


def commit_step(state: State, output: Path, step: int, *, replace: bool = False) -> Manifest:
    """Commit a batch and an output file for the interval [step, step + 1); with `replace` the batches so far are dropped."""
    before = state.manifest or Manifest("p", ((step,),))
    with state.begin() as transaction:
        name, written = transaction.add_batch("people", 0, b"batch %d" % step)
        batch = FileEntry(name, 1, written.size, written.checksum, ((step,),), ((step + 1,),), ((0,),))
        path = output / f"updates-{step}-{step + 1}.parquet"
        written = transaction.add_output(path, b"updates %d" % step)
        update = FileEntry(path.name, 1, written.size, written.checksum, ((step,),), ((step + 1,),))
        write_progress(transaction, output, ((step + 1,),))
        old = () if replace or not state.manifest else before.arrangements["people"].shards[0]
        files = before.outputs["out"].files if state.manifest else ()
        upper = ((step + 1,),)
        people = ArrangementEntry("f1", ((0,),), upper, ("a",), {"a": "int64"}, ((*old, batch),))
        out = OutputEntry(relative(output, state.directory), {"a": "int64"}, (*files, update))
        return transaction.commit(Manifest("p", upper, arrangements={"people": people}, outputs={"out": out}))


def little_at_a_time(most):
    """Return a `Path.open` of files to be written that take so many bytes at once."""

    class Slow:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def write(self, data):
            return self.file.write(data[:most])

    opened = Path.open

    def slowly(path, mode="r", *rest, **options):
        file = opened(path, mode, *rest, **options)
        return Slow(file) if mode == "wb" else file

    return slowly

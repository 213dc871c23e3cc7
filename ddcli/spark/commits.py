"""The commits of a log that Spark writes: one file each, or a folder, which is there once for each batch, however often Spark repeats it.

A commit is the appearance of its file, under a name that states the interval and the batch. Then the progress follows, with the last
batch of each writer. So a process that dies in between has committed: the next one finds the file, and moves the progress on.
Until then readers leave such a file out, as they leave out the file of a run which is not wholly published.

The files of a large commit are in a folder, as the tasks have written them. A file system shows a folder at once. In an object store its files appear
one after the other, so there the commit is a progress that names them: if its process dies, the next one gives the others their names.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.engine.times import LEAST
from ddcli.errors import DdError, InputError, LockedError, StateError
from ddcli.store.files.access import fs, read_given
from ddcli.store.files.gate import TEMPORARY, Files, Written, one_by_one, side_by_side
from ddcli.store.files.lock import take_lock
from ddcli.store.formats.base import Updates
from ddcli.store.log.joint_files import JointFile
from ddcli.store.log.reader import LogReader
from ddcli.store.log.writer import NAME, WHOLE, beyond, file_name, frontier_name
from ddcli.store.state.document import FOLDER, PART, PROGRESS, count_of
from ddcli.store.state.outputs import progress_bytes, read_owned
from ddcli.store.tables.inventory import list_input
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema, Type

BATCH = re.compile(r".*-spark([0-9a-f]{16})b([0-9]+)(?:\.|/[0-9]+\.)parquet", re.ASCII)
"""The end of the name of a commit's file: writer and batch."""
HIDDEN = re.compile(rf"\.spark-([0-9a-f]{{16}})-([0-9]*)-[0-9a-z]+{re.escape(TEMPORARY)}", re.ASCII)
"""The name of a file or a folder that belongs to no commit yet: writer and batch."""
BEGINNING = "start"
"""The upper of a log without updates, as a writer names it that counts on it."""
WRITERS = "writers"
"""The key of a log's progress with the last batch of each writer."""
PENDING = "pending"
"""The key of a log's progress with the commit whose objects are to get their names: its upper, and the final name of each."""


class TaskFile(NamedTuple):
    """A file that a task has written, with the least and the greatest time of its rows."""

    path: Path
    written: Written
    least: int
    greatest: int


class WriterBatch(NamedTuple):
    """A batch of a writer: of two with the same number only the first counts. Without a number it is the only one."""

    writer: str
    number: int | None = None

    @property
    def key(self) -> str:
        """Return the name of the writer in files."""
        return hashlib.blake2b(self.writer.encode(), digest_size=8).hexdigest()

    @property
    def name(self) -> str:
        """Return the end of the name of its file."""
        return f"-spark{self.key}" + (f"b{self.number}" if self.number is not None else "")

    def hidden(self, name: str) -> str:
        """Return the name of a file that belongs to no commit yet; readers ignore it."""
        return f".spark-{self.key}-{'' if self.number is None else self.number}-{name}{TEMPORARY}"

    def is_done(self, hidden: str) -> bool:
        """Return whether a hidden file is of an earlier batch of the writer, or of its only one."""
        found = HIDDEN.fullmatch(hidden)
        return found is not None and found[1] == self.key and (self.number is None or int(found[2] or 0) < self.number)

    def is_in(self, state: LogState) -> bool:
        """Return whether a log has it, or a later one of the writer."""
        return self.number is not None and state.writers.get(self.key, -1) >= self.number


class LogState(NamedTuple):
    """The times of a log that are closed (None: there is no update yet), the last batch of each writer, and whether the progress has these."""

    upper: int | None
    writers: dict[str, int]
    stated: bool
    pending: Mapping[str, str] = {}
    """The objects of the last commit that may have to get their names yet, and these."""

    def progress(self, after: LogState | None = None) -> bytes:
        """Return the content of the progress; with the state `after` a commit, the progress of a commit whose objects get their names."""
        upper = LEAST if self.upper is None else self.upper
        known = json.loads(progress_bytes(((upper,),))) | {WRITERS: (after or self).writers}
        if after is not None:
            known[PENDING] = {"upper": after.upper, "files": after.pending}
        return json.dumps(known).encode() + b"\n"


def read_state(path: Path, time: Schema, diff: str) -> LogState:
    """Return the state of a log that Spark may write. Raises StateError where a pipeline writes it."""
    upper, owner = read_owned(path)
    if owner is not None:
        raise StateError(
            "the log is the output of a pipeline, whose state is the only one that may write it",
            place=str(path),
            hint="write to a log of its own, and let the pipeline read that as an input",
        )
    if upper is not None and (len(upper) != 1 or len(upper[0]) != 1):
        raise StateError("the times of the log have several coordinates", place=str(path), hint="write to another log")
    writers, coming, pending = _stated(path) if upper is not None else ({}, None, {})
    files = _files(path)
    unstated = beyond(files, upper, time) if upper is not None else files
    for name in unstated:
        if (found := BATCH.fullmatch(name)) is not None:
            writers[found[1]] = max(writers.get(found[1], -1), int(found[2]))
    if coming is not None:
        return LogState(coming, writers, stated=False, pending=pending)
    if upper is None:
        last = _greatest(path, time, diff) if has_rows(path) else None
    else:
        closed = [] if upper == ((LEAST,),) else [upper[0][0] - 1]
        last = max([*closed, *(_greatest(path / name, time, diff) for name in unstated)], default=None)
    return LogState(None if last is None else last + 1, writers, not unstated)


def _files(path: Path) -> list[str]:
    """Return the names of the files of a log's commits."""
    found = fs(path).entries(NAME, FOLDER)
    folders = [each.path for each in found if each.directory and FOLDER.fullmatch(each.path.name)]
    parts = [f"{folder.name}/{part.path.name}" for folder in folders for part in fs(folder).entries(PART) if part.file]
    return [*(each.path.name for each in found if each.file and NAME.fullmatch(each.path.name)), *parts]


def add(
    path: Path, parts: Sequence[TaskFile], batch: WriterBatch, time: Schema, diff: str, after: str | None = None
) -> bool:
    """Add the rows of these parts to a log in one commit; return whether it is new: another attempt at the batch may have made it.

    A commit `after` an upper counts only if the log still has that (LockedError). The parts are removed. Raises InputError if a row has a time that is closed, perhaps by another writer meanwhile.
    """
    files = Files()
    files.make_directory(path)
    lock = take_lock(path, files, "wait", path)
    try:
        state = read_state(path, time, diff)
        _name(files, path, state.pending)
        new = bool(parts) and not batch.is_in(state)
        if new:
            if after is not None and after != (BEGINNING if state.upper is None else str(state.upper)):
                problem = "another writer has changed the log since its contents were compared"
                raise LockedError(problem, place=str(path), hint="run again")
            state = _commit(files, path, parts, batch, time, state)
        if not state.stated and state.upper is not None:
            files.put(path / PROGRESS, state.progress())
    finally:
        lock.release()
        discard(path, parts, batch)
    return new


def refuse_partial(path: Path, time: Schema) -> None:
    """Raise StateError for a log that lacks the file of a commit, as one whose reader archives its files: its contents are unknown."""
    upper, _ = read_owned(path)
    found = [match for name in _files(path) if (match := NAME.fullmatch(name))]
    follows = {match[1]: match[2] for match in found}
    reached = BEGINNING
    while reached in follows:
        reached = follows.pop(reached)
    if follows or upper is None or reached != frontier_name(upper, time):
        raise StateError(
            "the log lacks files of some of its commits, so its contents are unknown",
            place=str(path),
            hint="write to another directory, whose files nobody moves or removes",
        )


def discard(path: Path, parts: Sequence[TaskFile], batch: WriterBatch) -> None:
    """Remove the files of these tasks, and those that died with earlier batches.

    Another attempt at the batch may be at work, in a process that was not killed with the one that has started it, so its files stay.
    """
    with suppress(DdError):  # they are hidden, and nothing depends on them
        pending = _stated(path)[2] if not fs(path).has_directories else {}
        Files().remove_all([part.path for part in parts if part.path.name not in pending])
        for each in fs(path).entries():
            if not batch.is_done(each.path.name) or each.path.name in pending:
                continue
            if each.file:
                Files().remove(each.path)
            else:
                Files().remove_all([part.path for part in fs(each.path).entries()])
                Files().remove_directory(each.path)


def _commit(
    files: Files, path: Path, parts: Sequence[TaskFile], batch: WriterBatch, time: Schema, state: LogState
) -> LogState:
    """Let the file of a commit appear; return the state after it, which the progress doesn't have yet."""
    (kind,) = time.values()
    least = min(part.least for part in parts)
    if state.upper is not None and least < state.upper:
        raise late_error(path, least, state.upper, kind)
    upper = max(part.greatest for part in parts) + 1
    lower = None if state.upper is None else ((state.upper,),)
    final = path / file_name(time, lower, ((upper,),), batch.name)
    numbered = {} if batch.number is None else {batch.key: batch.number}
    after = LogState(upper, state.writers | numbered, stated=False)
    if len(parts) == 1 or sum(part.written.size for part in parts) <= WHOLE:
        _appear_as_file(files, path, parts, batch, final)
        return after
    folder = final.with_suffix("")
    names = {part.path.name: f"{folder.name}/{number:04d}.parquet" for number, part in enumerate(parts, start=1)}
    if not fs(path).has_directories:
        files.put(path / PROGRESS, state.progress(after._replace(pending=names)))
        _name(files, path, names)
    else:
        _appear_as_folder(files, path, names, path / batch.hidden(uuid.uuid4().hex), folder)
    return after


def _appear_as_file(files: Files, path: Path, parts: Sequence[TaskFile], batch: WriterBatch, final: Path) -> None:
    """Copy the row groups of these parts into one file, and let it appear."""
    waiting = final if fs(final).is_durable else path / batch.hidden("commit")
    joint = JointFile(files, waiting)
    for part in parts:
        joint.add_file(part.path, part.written)
    joint.finish()
    if waiting != final:
        files.sync(waiting)
        files.rename(waiting, final)
        files.sync_directory(path)


def _appear_as_folder(files: Files, path: Path, names: Mapping[str, str], waiting: Path, folder: Path) -> None:
    """Move files into a folder under these names, and let it appear. No row is read."""
    files.make_directory(waiting)
    moved = {path / source: waiting / name.rpartition("/")[2] for source, name in names.items()}
    for source, target in moved.items():
        files.rename(source, target)
    side_by_side(files.sync, [*moved.values()])
    files.sync_directory(waiting)
    files.rename(waiting, folder)
    files.sync_directory(path)


def _name(files: Files, path: Path, names: Mapping[str, str]) -> None:
    """Give the objects of a commit their names, those that have none yet. No row is read."""

    def name(source: Path) -> None:
        if source.is_file():
            files.rename(source, path / names[source.name])

    one_by_one(name, [path / source for source in names])


def late_error(path: Path, least: int, upper: int, kind: Type) -> InputError:
    """Return the error for a row at a time that is closed."""
    first, closed = (format_time((time,), [kind]) for time in (least, upper))
    return InputError(
        f"a row has the time {first}, and the log's times before {closed} are closed",
        place=str(path),
        hint="a commit closes the times up to its last one: write later times, or no time column; if another writer was faster, write again",
    )


def next_time(state: LogState, kind: Type) -> int:
    """Return the time of a commit whose rows have none: the present one, or the first that is open."""
    now = dt.datetime.now(dt.UTC)
    least = state.upper if state.upper is not None else 0
    if kind.kind == "date":
        return max((now.date() - dt.date(1970, 1, 1)).days, least)
    if kind.kind == "datetime":
        microseconds = (now - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        return max(microseconds * kind.per_second // 10**6, least)
    return least


def _stated(path: Path) -> tuple[dict[str, int], int | None, dict[str, str]]:
    """Return what a log's progress states of its writers: the last batch of each; the upper of the commit whose objects get their names, and these."""
    try:
        tree: Any = json.loads(read_given(path / PROGRESS))
        coming = tree.get(PENDING, {})
        upper, names = coming.get("upper"), {str(source): str(name) for source, name in coming.get("files", {}).items()}
        writers = {str(key): count_of(number) for key, number in tree.get(WRITERS, {}).items()}
        ours = all(HIDDEN.fullmatch(source) and NAME.fullmatch(name) for source, name in names.items())
    except FileNotFoundError:
        return {}, None, {}
    except (AttributeError, ValueError, TypeError):
        ours = False
    if not ours or not isinstance(upper, int | None):
        raise StateError(
            "the progress of the log can't be read", place=str(path / PROGRESS), hint="put the right one in its place"
        )
    return writers, upper, names


def has_rows(path: Path) -> bool:
    """Return whether a log has a file of updates."""
    return bool(list_input(str(path), path).files) if path.is_dir() else False


def _greatest(path: Path, time: Schema, diff: str) -> int:
    """Return the greatest time of a log, or of a file of it."""
    reader = LogReader(list_input(str(path), path.parent), Updates(tuple(time), diff=diff), most=1)
    largest = reader.largest_time()
    assert largest, "a commit has rows"
    return largest[0]

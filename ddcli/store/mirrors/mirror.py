"""The mirror of a table: a directory of the state with a change log, and a mark of the version that it has reached.

An addition is made wholly or not at all: its files wait under temporary names, the mark that names them is replaced in one step, then the files that they
replace are removed, and they get their names. The process that opens the mirror next finishes that, or removes files that no mark names. The state's
manifest has the files of the log that runs have taken in, as for any input. Imports no third-party library.

A run that takes in rows adds a file, and most of its bytes are its footer. So when there are many small ones, the newest become one file with all of their
updates, together with older ones that are not much larger: so there are few files, and an update is written again a few times in all.
"""

from __future__ import annotations

import io
import math
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ddcli.dataclass import frozen
from ddcli.engine.trace import policy
from ddcli.expressions.types import ARRIVAL, ARRIVAL_TIME
from ddcli.store.batch.checked_files import RESTORE
from ddcli.store.files.access import fs, reading
from ddcli.store.files.gate import temporary
from ddcli.store.state.contents import ours
from ddcli.store.state.document import BATCH, TABLE, WAITING, Document, integer_of, named, tuple_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import polars as pl

    from ddcli.store.files.gate import Files

    Additions: TypeAlias = Iterable[pl.DataFrame] | Callable[[Path, int], list[str]]
    """The updates that an addition with a number adds to a mirror; or a function that writes them there, as `write_frames` does, and returns the names."""

MIRRORS = "tables"
"""The directory of a state with its mirrors, one for each input that is a table."""
ROWS = 1 << 20
"""Rows of a file, at most."""
JOINED = 1 << 24
"""Bytes of small frames that are written to one file, at most."""
LEVEL = 1
"""The level of zstd, as other files of a state have it."""


class UnknownChange(Exception):
    """A change that a table does not remember any more, or not wholly."""


@frozen
class MirrorCursor:
    """The progress of a mirror: up to this version of the table with this identity, which was committed then (microseconds of Unix time).

    `columns` are the table's, with the texts of their types; `files` the files of the last addition, the one with this number.
    """

    identity: str
    version: int
    committed: int
    columns: dict[str, str]
    tip: str = ""
    """The text that distinguishes the log's end at this version from another table's end, or from another past of this one; empty: none."""
    number: int = 0
    files: tuple[str, ...] = ()
    instead_of: int = 0
    """The first of the additions that the last one replaces; 0: none."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The numbers that identify these columns under any name, if the table has such numbers."""


MARKS = Document(
    MirrorCursor,
    "the mark of a table's mirror is damaged",
    RESTORE,
    version=integer_of,
    committed=integer_of,
    files=tuple_of(partial(named, BATCH)),
)


def mirror_of(state: Path, name: str) -> Path:
    """Return the directory in which the table of an input is mirrored."""
    return state / MIRRORS / name


def read_mark(directory: Path) -> MirrorCursor | None:
    """Return the progress of a mirror; None where there is none yet. Raises StateError for a damaged one."""
    return MARKS.read(directory / TABLE)


def is_finished(directory: Path, mark: MirrorCursor) -> bool:
    """Return whether the files of the last addition have their names, the last one gets its own last, and those that it replaces are gone."""
    if mark.files:
        return not fs(temporary(directory / mark.files[-1], mark.number)).exists()
    return not _replaced(directory, mark)


def finish_addition(directory: Path, files: Files) -> None:
    """Finish the last addition to a mirror, and remove the files of an interrupted one."""
    mark = read_mark(directory)
    replaced = [] if mark is None else _replaced(directory, mark)
    for path in replaced:
        files.remove(path)
    waiting = (
        {} if mark is None else {temporary(directory / name, mark.number): directory / name for name in mark.files}
    )
    for source, target in waiting.items():
        if fs(source).exists():
            files.rename(source, target)
    for path in ours(directory, WAITING):
        files.remove(path)
    if waiting or replaced:
        files.sync_directory(directory)


def link_mirror(source: Path, directory: Path, files: Files) -> None:
    """Begin a mirror with the log of another one, which this process has locked: its files never change. The mark comes last."""
    finish_addition(source, files)
    if read_mark(source) is None:
        return
    files.make_directory(directory)
    for path in (*log_files(source), source / TABLE):
        files.link(path, directory / path.name)
    files.sync_directory(directory)


def add(directory: Path, files: Files, updates: Additions, mark: MirrorCursor, instead: Sequence[Path] = ()) -> None:
    """Add updates to a settled mirror, in the place of its last files if these are given as `instead`.

    `mark` is the version that it then has reached, but for its number and files.
    """
    before = read_mark(directory)
    number = (before.number if before else 0) + 1
    files.make_directory(directory)
    names = updates(directory, number) if callable(updates) else write_frames(directory, files, updates, number)
    first = min(map(_addition, instead), default=0)
    mark = replace(mark, number=number, files=tuple(names), instead_of=first)
    MARKS.write(directory / TABLE, mark, files, number)
    finish_addition(directory, files)


def write_frames(
    directory: Path, files: Files, frames: Iterable[pl.DataFrame], number: int, part: int = 0
) -> list[str]:
    """Write updates to files that no mark names yet, from a `part` on; return the names that they get with the addition of this number."""
    names: list[str] = []
    for frame in together(frames, JOINED):
        names.append(f"{number:09d}-{part + len(names):04d}.parquet")
        waiting = temporary(directory / names[-1], number)
        data = io.BytesIO()
        frame.write_parquet(data, compression="zstd", compression_level=LEVEL)
        files.write(waiting, data.getvalue())
        files.sync(waiting)
    return names


def together(frames: Iterable[pl.DataFrame], most: float = math.inf) -> Iterator[pl.DataFrame]:
    """Yield the rows of frames in frames of at most `ROWS`: many small frames are one, of `most` bytes, but for its last part."""
    import polars as pl

    held: list[pl.DataFrame] = []
    rows = size = 0
    for frame in frames:
        for part in frame.iter_slices(ROWS):
            if held and (rows + part.height > ROWS or size > most):
                yield pl.concat(held)
                held, rows, size = [], 0, 0
            if part.height:
                held, rows, size = [*held, part], rows + part.height, size + int(part.estimated_size())
    if held:
        yield pl.concat(held)


def log_files(directory: Path) -> list[Path]:
    """Return the files of a mirror, in order."""
    return sorted(entry.path for entry in fs(directory).entries(BATCH) if entry.file or not entry.directory)


def _replaced(directory: Path, mark: MirrorCursor) -> list[Path]:
    """Return the files that still exist although the last addition has replaced them."""
    if not mark.instead_of:
        return []
    return [path for path in log_files(directory) if mark.instead_of <= _addition(path) < mark.number]


def _addition(path: Path) -> int:
    return int(path.name.partition("-")[0])


FILES = 64
"""Files that become one, at least."""
SMALL = 1 << 16
"""The bytes of a file that counts as small in any case."""


def due(sizes: Sequence[int]) -> int:
    """Return the number of the newest files that become one, 0 for none; `sizes` has the bytes of each, oldest first.

    >>> due([900_000] + [2_000] * 64), due([200_000] + [2_000] * 64), due([2_000] * 63)
    (64, 65, 0)
    """
    count = len(sizes) - policy.fold([*sizes, 0], JOINED, small=SMALL)
    return count if count >= FILES else 0


def joint_updates(files: Sequence[tuple[Path, int | None]]) -> bytes:
    """Return a file with the updates of some files of a mirror, which runs of these times have taken in; None: the times are in the files.

    A column that the table had not yet is null there.
    """
    import polars as pl

    frames = []
    for path, at in files:
        with reading(path) as file:
            frame = pl.read_parquet(file)
        if at is not None and ARRIVAL not in frame.columns:
            frame = frame.with_columns(pl.lit(at, pl.Int64).cast(ARRIVAL_TIME.to_polars()).alias(ARRIVAL))
        frames.append(frame)
    data = io.BytesIO()
    pl.concat(frames, how="diagonal").write_parquet(data, compression="zstd", compression_level=LEVEL)
    return data.getvalue()

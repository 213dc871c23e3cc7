"""Tables of Parquet files that a commit adds and removes: the effect of a change on the files, for all formats; or one file, which each commit replaces.

The rows that a commit adds are sorted by their lanes and cut into files, a run of them. A change rewrites the files whose rows it retracts: a retracted row is in one file of a run, and no
other is read; the newest runs are searched first. Rows that are near each other, such as consecutive numbers and times, are in few files. A run of files is
merged with newer ones that are not much smaller: so there are few runs, and a row is written again a logarithmic number of times. A retracted row
costs one file, whose size is bounded.

A directory of files can't be replaced in one step for readers that glob it. Of contents in one file a reader, or a glob, finds the file before or the one after; so a change costs as much
as the contents.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.engine.trace import policy
from ddcli.errors import StateError, first_line
from ddcli.store.files.access import fs, read_bytes, reading
from ddcli.store.files.gate import temporary
from ddcli.store.log.writer import CHUNK, LEVEL
from ddcli.store.targets.mark import CommitKey, TableFile, Target, size_and_time, strange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ddcli.engine.lanes import Lanes
    from ddcli.expressions.types import Schema, Type
    from ddcli.store.files.gate import Files
    from ddcli.store.targets.change import Change
    from ddcli.store.targets.mark import CommitRecord


SMALL = 1 << 16
"""Rows of a file, at most; more where a table has more than `MANY` such."""
MANY = 256
SPARSE = 8
"""A run is merged when its files have less than this part of the rows that they may."""


class FilePart(NamedTuple):
    """Sorted rows that become a file of a run, with their multiplicities, and the lanes from which on rows are in it."""

    run: int
    first: tuple[int, ...]
    rows: Lanes


class FileRewrite(NamedTuple):
    """The change of a table's files: these stay, and these are new. `missing` are rows to retract that no file has."""

    kept: Sequence[TableFile]
    new: Sequence[FilePart]
    missing: Lanes


def rewrite_files(
    pieces: Iterable[TableFile], updates: Lanes, read: Callable[[TableFile], Lanes], number: int
) -> FileRewrite:
    """Return the change of a table's files by a commit with this number. `read` returns a file's rows, consolidated; not all are read."""
    before = sorted(pieces, key=lambda piece: (-piece.run, piece.first))
    touched, missing = _retracted(before, updates[updates[:, -1] < 0], read)
    parts = [part for part in touched.values() if len(part.rows)]
    kept = [piece for piece in before if piece not in touched]
    added = updates[updates[:, -1] > 0]
    runs = _merged(kept, parts, _count(added))
    if runs or len(added):
        own = [part.rows for part in parts if part.run in runs] + [read(piece) for piece in kept if piece.run in runs]
        parts, kept = [part for part in parts if part.run not in runs], [one for one in kept if one.run not in runs]
        total = sum(piece.rows for piece in kept) + sum(_count(part.rows) for part in parts)
        parts += partitioned(kernels.consolidate(kernels.concat([added, *own])), number, total)
    return FileRewrite(kept, parts, missing)


def partitioned(rows: Lanes, run: int, beside: int = 0) -> list[FilePart]:
    """Return sorted rows as the files of a run, about equally large, of a table that has some rows `beside`."""
    total = _count(rows)
    if not total:
        return []
    size = -(-total // -(-total // max(SMALL, (total + beside) // MANY)))
    files = (np.cumsum(rows[:, -1]) - 1) // size
    parts = np.split(rows, np.flatnonzero(np.diff(files)) + 1)
    return [FilePart(run, tuple(part[0, :-1].tolist()), part) for part in parts]


def _retracted(
    pieces: Sequence[TableFile], gone: Lanes, read: Callable[[TableFile], Lanes]
) -> tuple[dict[TableFile, FilePart], Lanes]:
    """Return the files with retracted rows, each with the rest of its rows, and the retracted rows that none of them has."""
    touched: dict[TableFile, FilePart] = {}
    for run in dict.fromkeys(piece.run for piece in pieces):
        files = [piece for piece in pieces if piece.run == run]
        starts = [start_of(gone, piece.first) for piece in files]
        rest = [gone[: starts[0]]]
        for piece, start, end in zip(files, starts, [*starts[1:], len(gone)], strict=True):
            here = gone[start:end]
            if len(here):
                rows = read(piece)
                both = kernels.consolidate(kernels.concat([rows, here]))
                left, here = both[both[:, -1] > 0], both[both[:, -1] < 0]
                if _count(left) < _count(rows):
                    touched[piece] = FilePart(run, piece.first, left)
            rest.append(here)
        gone = kernels.concat(rest)
        if not len(gone):
            break
    return touched, gone


def start_of(rows: Lanes, first: tuple[int, ...]) -> int:
    """Return the place in sorted rows of the first with these lanes or greater ones."""
    return bisect_left(range(len(rows)), first, key=lambda at: tuple(rows[at, :-1].tolist()))


def _merged(kept: Sequence[TableFile], parts: Sequence[FilePart], added: int) -> set[int]:
    """Return the runs that become one with `added` new rows."""
    rows: dict[int, int] = {}
    files: dict[int, int] = {}
    for run, count in [*((one.run, one.rows) for one in kept), *((one.run, _count(one.rows)) for one in parts)]:
        rows[run], files[run] = rows.get(run, 0) + count, files.get(run, 0) + 1
    most = max(SMALL, (sum(rows.values()) + added) // MANY)
    merged = {run for run in rows if files[run] > 1 and rows[run] * SPARSE < files[run] * most}
    total = added + sum(rows[run] for run in merged)
    others = sorted(rows.keys() - merged)
    return merged | {*others[policy.fold([*(rows[run] for run in others), total]) :]}


def _count(rows: Lanes) -> int:
    return int(rows[:, -1].sum())


ROWS = 1 << 20
"""Rows of a file of a log, at most."""
Write = Callable[[str, pl.DataFrame], Any]
"""A function that writes a file of rows, wherever it runs; it returns the facts of the file that a commit names."""
Frames = list[tuple[TableFile, "Callable[[], pl.DataFrame]"]]


class Loader(Protocol):
    """A way to have the files of a change written elsewhere."""

    def wants(self, change: Change) -> bool:
        """Return whether a change is heavy enough."""

    def load(self, change: Change, number: int, prefix: str, write: Write) -> list[tuple[TableFile, Any]]:
        """Write the files of a change, of a whole log's contents if it is one's; return each with its facts."""


class FileTable(Target):
    """A table in files. Our files have names that begin with `prefix`, which has the state's identity."""

    loader: Loader | None = None
    """Has tasks write the files of a heavy change, if set."""
    _directory: Path
    """The folder of the files, unless they are behind another package's file IO, which reads and lists them then."""
    _files: Files

    def __init__(self, place: str, key: CommitKey, *, contents: bool) -> None:
        self.place, self.key, self.contents = place, key, contents
        self.prefix = f"dd-{key.state[:12]}-"

    @abstractmethod
    def names(self) -> set[str]:
        """Return the names of the files that the table has now."""

    @abstractmethod
    def make(self, columns: Schema, former: Schema | None) -> None:
        """Make the table, without rows, unless it exists. One with the `former` columns gets these by evolution of its schema; one with others is refused."""

    def read(self, name: str) -> pl.DataFrame:
        """Return the rows of a file."""
        return pl.read_parquet(io.BytesIO(read_bytes(self._directory / name)), glob=False)

    @abstractmethod
    def writer(self, footer: Mapping[str, str]) -> Write:
        """Return the function that writes files, with this metadata; tasks get it, too."""

    @abstractmethod
    def adopt(self, name: str, facts: Any) -> None:
        """Take the facts of a written file for the next commit."""

    @abstractmethod
    def commit(self, number: int, new: Sequence[TableFile], gone: Sequence[str]) -> None:
        """Add files to the table and remove others, under a number, all or nothing."""

    def sweep(self, number: int, names: Collection[str]) -> None:
        """Remove other files than these that tasks have written for a commit, where the table's folder can be listed: second attempts leave some."""
        if fs(self._directory).is_dir():
            ours = self._name(number)
            others = [
                path for path in self._directory.iterdir() if path.name.startswith(ours) and path.name not in names
            ]
            self._files.remove_all(others)

    def discard(self, number: int, pieces: Sequence[TableFile]) -> None:
        """Remove the files of a commit that the table doesn't have: a driver that died had not announced the files that tasks were writing."""
        self.sweep(number, self.names())

    def check(self, known: CommitRecord | None) -> None:
        """Refuse files that others added (StateError), and, of a table of contents, that they removed ours."""
        found = self.names()
        if known is None:
            others = sorted(name for name in found if not name.startswith(self.prefix))
            if others:
                raise strange(self.place, f"the table has rows that this pipeline has not written, in '{others[0]}'")
        elif self.contents and (changed := found ^ {piece.name for piece in known.pieces}):
            what = "lacks" if min(changed) not in found else "has, beside the output's rows, the rows of"
            raise strange(self.place, f"another program has changed the table: it {what} the file '{min(changed)}'")

    def publish(
        self, number: int, change: Change, known: CommitRecord | None, announce: Callable[[Sequence[TableFile]], None]
    ) -> None:
        """Commit a change under a number; see `Target`."""
        loader = self.loader if change.whole or not self.contents else None
        loader = loader if loader is not None and loader.wants(change) else None
        kept: Sequence[TableFile] = ()
        new: Frames = []
        if loader is None:
            kept, new = self._contents(number, change, known) if self.contents else ((), self._log(number, change))
        announce([*kept, *(piece for piece, _ in new)])
        if change.whole or change.former is not None:
            self.make(change.columns, change.former)
        stay = {piece.name for piece in kept}
        gone = sorted(self.names() - stay) if self.contents or change.whole else []
        write = self.writer(change.footer)
        if loader is not None:
            made = loader.load(change, number, self._name(number), write)
            announce([piece for piece, _ in made])
        else:
            made = [(piece, write(piece.name, rows_of())) for piece, rows_of in new]
        for piece, facts in made:
            self.adopt(piece.name, facts)
        self.commit(number, [piece for piece, _ in made], gone)
        if loader is not None:
            self.sweep(number, {piece.name for piece, _ in made})

    def difference(self, change: Change) -> tuple[Lanes, int]:
        """Return the difference of the table to the contents of a whole log; see `Target`."""
        return change.difference(map(self.read, sorted(self.names()))), 0

    def _contents(self, number: int, change: Change, known: CommitRecord | None) -> tuple[Sequence[TableFile], Frames]:
        """Return the files that stay, and the new ones."""

        def read(piece: TableFile) -> Lanes:
            frame = self.read(piece.name)
            return kernels.consolidate(change.encoded(frame, np.ones(frame.height, np.int64)))

        updates = change.updates()
        if change.whole or known is None:
            found = FileRewrite((), partitioned(updates, number), updates[:0])
        else:
            found = rewrite_files(known.pieces, updates, read, number)
        change.refuse_negative(found.missing)
        for part in found.new:
            change.refuse_negative(part.rows)
        new: Frames = []
        for at, part in enumerate(found.new):
            count = int(part.rows[:, -1].sum())
            piece = TableFile(self._name(number, at), part.run, count, part.first)
            new.append((piece, partial(change.decoded, part.rows)))
        return found.kept, new

    def _log(self, number: int, change: Change) -> Frames:
        """Return the files of a log's updates."""
        new: Frames = []
        for rows in gathered(change.frames()):
            piece = TableFile(self._name(number, len(new)), number, rows.height)
            new.append((piece, partial(pl.DataFrame.clone, rows)))
        return new

    def _name(self, number: int, at: int | None = None) -> str:
        """Return the name of a file of a commit, by its place, or the beginning of all names."""
        return f"{self.prefix}{number:016x}-{'' if at is None else f'{at:05d}.parquet'}"


def arrow_schema(columns: Schema) -> pa.Schema:
    """Return columns as Arrow's, with which of them have nulls."""
    import pyarrow as pa

    return pa.schema([_field(name, kind) for name, kind in columns.items()])


def _field(name: str, kind: Type) -> pa.Field:
    import pyarrow as pa

    if kind.kind == "list":
        assert kind.inner is not None, "a list is of something"
        return pa.field(name, pa.list_(_field("element", kind.inner)), nullable=kind.nullable)
    if kind.kind == "struct":
        # Of a struct that is null Arrow and its readers take the fields to be null.
        fields = [_field(field, each.or_null(kind.nullable)) for field, each in kind.fields]
        return pa.field(name, pa.struct(fields), nullable=kind.nullable)
    plain = pl.Series(name, [], kind.to_polars()).to_arrow(compat_level=pl.CompatLevel.oldest())
    return pa.field(name, plain.type, nullable=kind.nullable)


def gathered(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield the rows of some frames in frames of `ROWS` rows; the last may have fewer."""
    waiting: list[pl.DataFrame] = []
    for frame in frames:
        waiting.append(frame)
        if sum(one.height for one in waiting) >= ROWS:
            *full, rest = pl.concat(waiting).iter_slices(ROWS)
            yield from full
            waiting = [rest]
    if waiting and (last := pl.concat(waiting)).height:
        yield last


COMMIT = "dd"
"""The entry of the footer that has the key and the number of the commit."""


class ParquetTarget(Target):
    """A Parquet file with the contents of an output."""

    def __init__(self, path: Path, key: CommitKey, files: Files) -> None:
        self._path, self._key, self._files = path, key, files

    def number(self) -> int | None:
        if not fs(self._path).exists():
            return None
        key, _, number = self._entry().rpartition(" ")
        return int(number) if key == str(self._key) else None

    def check(self, known: CommitRecord | None) -> None:
        if known is None and fs(self._path).exists() and self.number() is None:
            raise strange(str(self._path), "the file has rows that this pipeline has not written")

    def publish(
        self, number: int, change: Change, known: CommitRecord | None, announce: Callable[[Sequence[TableFile]], None]
    ) -> None:
        rows = change.updates() if known is None else change.added(change.updates(), self._rows(), 1)
        change.refuse_negative(rows)
        data = io.BytesIO()
        change.decoded(rows).write_parquet(
            data,
            compression="zstd",
            compression_level=LEVEL,
            row_group_size=CHUNK,
            metadata={**change.footer, COMMIT: f"{self._key} {number}"},
        )
        announce(())
        self._files.make_directory(self._path.parent)
        self._files.put(self._path, data.getvalue())

    def difference(self, change: Change) -> tuple[Lanes, int]:
        return change.difference([self._rows()] if fs(self._path).exists() else []), 0

    def _rows(self) -> pl.DataFrame:
        with reading(self._path) as file:
            return pl.read_parquet(file)

    def left(self) -> dict[str, Any]:
        return size_and_time(self._path)

    def discard(self, number: int, pieces: Sequence[TableFile]) -> None:
        self._files.remove(temporary(self._path, 0))

    def _entry(self) -> str:
        try:
            with reading(self._path) as file:
                return pl.read_parquet_metadata(file).get(COMMIT, "")
        except (pl.exceptions.PolarsError, OSError) as error:
            problem = f"the file can't be read: {first_line(error)}"
            hint = "remove it: the next run rewrites it"
            raise StateError(problem, place=str(self._path), hint=hint) from None

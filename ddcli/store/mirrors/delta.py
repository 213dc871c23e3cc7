"""The changes of each version of a table of Delta Lake, as updates: from its change feed or the difference of its files.

If its log or its files are gone (VACUUM), the updates are the difference between the present table and its mirror.
"""

from __future__ import annotations

import json
import re
import time as clock
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import polars as pl

from ddcli.errors import DdError, InputError, first_line
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Literal
from ddcli.store.files.foreign import check_names, check_plain
from ddcli.store.files.gate import one_by_one
from ddcli.store.files.objects import ObjectPath
from ddcli.store.mirrors.cancellation import DIFF, remainder
from ddcli.store.mirrors.delta_commits import COMMIT, LOG, read_commit, tip_of
from ddcli.store.mirrors.equal_parts import FileRows, PieceColumns, pieces_of
from ddcli.store.mirrors.mirror import UnknownChange
from ddcli.store.mirrors.source import BEGIN, MICRO, TableSource
from ddcli.store.tables.footers import TEXT
from ddcli.store.tables.kinds import READ_ERRORS
from ddcli.version import check_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deltalake import DeltaTable, Field

    from ddcli.store.mirrors.delta_commits import DataFile, DeltaCommit
    from ddcli.store.mirrors.equal_parts import RowGroupRange
    from ddcli.store.mirrors.mirror import MirrorCursor


CHECKPOINT = re.compile(r"[0-9]{20}\.checkpoint\..*(parquet|json)")
SIDECARS = "_sidecars"
NAMING = ("add", "cdc", "sidecar")
"""The actions whose files are read. One that is removed is read only by its change, which checks its path."""
IN_FILE = ("p", "u")
"""The kinds of deletion vectors that are in files: by an absolute path, and by an identifier below the table."""


def check_log(table: Path) -> None:
    """Raise InputError for a log with anything but plain files, or with paths that lead out of the table's folder.

    A log in an object store is read by requests side by side. Its paths reach no other place either: the package resolves them in the whole bucket.
    """
    log = table / LOG
    found = [path for path in _files_of(log) if _is_read(path.name)] + [
        path for path in _files_of(log / SIDECARS) if path.name.endswith(".parquet")
    ]
    one_by_one(lambda path: check_names(_named_in(path), str(table)), sorted(found))


def _files_of(folder: Path) -> list[Path]:
    """Return the plain files of a folder. Raises InputError for a pipe or a device."""
    if isinstance(folder, ObjectPath):
        return [path for path, tag in folder.tagged() if tag is not None]
    found = [path for path in folder.glob("*") if not path.is_dir()]
    for path in found:
        check_plain(path)
    return found


def _is_read(name: str) -> bool:
    """Return whether the package reads a file of the log."""
    return COMMIT.fullmatch(name) is not None or CHECKPOINT.fullmatch(name) is not None


def _named_in(path: Path) -> Iterator[str]:
    return _of_commit(path) if path.name.endswith(".json") else _of_checkpoint(path)


def _of_commit(path: Path) -> Iterator[str]:
    try:
        actions = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
        for action in actions:
            for kind, value in action.items():
                if kind in NAMING:
                    yield from _named(value)
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise InputError("the commit of the table can't be read", place=str(path)) from None


def _named(action: dict[str, Any]) -> Iterator[str]:
    yield str(action["path"])
    vector = action.get("deletionVector")
    if vector and vector.get("storageType") in IN_FILE:
        yield from _vector(vector)


def _vector(vector: dict[str, Any]) -> Iterator[str]:
    """Yield a path that leads out for a deletion vector by an absolute path; one by an identifier is always in the table's folder."""
    if vector["storageType"] == "p":
        yield str(vector["pathOrInlineDv"])
    elif re.search(r"\.\.|^/", prefix := str(vector["pathOrInlineDv"])[:-20]):
        yield f"/{prefix}"


def _of_checkpoint(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            scan = pl.scan_parquet(file, glob=False, hive_partitioning=False)
            kinds = scan.collect_schema()
            for kind in NAMING:
                dtype = kinds.get(kind)
                fields = {field.name for field in dtype.fields} if isinstance(dtype, pl.Struct) else set()
                wanted = [name for name in ("path", "deletionVector") if name in fields]
                if "path" not in wanted:
                    continue
                one = pl.col(kind)
                found = scan.select(one.struct.field(name) for name in wanted).filter(pl.col("path").is_not_null())
                for row in found.collect().iter_rows(named=True):
                    yield from _named(row)
    except (OSError, KeyError, *READ_ERRORS):
        raise InputError("the checkpoint of the table can't be read", place=str(path)) from None


CHANGE = "_change_type"
CHANGES = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}
FEATURES = {
    *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"),
    *("variantType", "variantType-preview"),  # deltalake asks for it beside deletion vectors, whatever the columns
}
"""The features that a table may ask of its readers."""
MAPPING = "delta.columnMapping"
BY_NAME = 2
"""The version of the protocol for readers that has column mapping, without a list of features."""
VARIANT = "variant"
"""The type of a column whose bytes only its writers understand; Arrow calls it a struct."""
RESTORED = "put the file back from a backup, or the table to a version without it (`RESTORE`)"
"""The hint for a file of a table that is damaged or gone."""
TAIL = 8
"""Bytes at the end of a Parquet file: the length of its footer, and a mark."""
PLAIN = "write the table without it, or its rows to files of their own, as DuckDB's `delta_scan` reads them"


class DeltaSource(TableSource):
    """A table of Delta Lake as it is now. Raises InputError for one that can't be read, UsageError without the package."""

    def __init__(self, place: Path) -> None:
        check_package("deltalake")
        self.place, self._directory = str(place), place
        with self._errors():
            check_log(place)
            self._table = open_delta(place)
            self.version = self._table.version()
            self.identity = str(self._table.metadata().id)
            fields = self._table.schema().fields
            mapped = self._check_features(fields)
            found = pl.Schema(self._table.schema().to_arrow())
        super().__init__(str(place), found, {field.name: field.nullable for field in fields})
        self._stored = {field.name: str(field.metadata[f"{MAPPING}.physicalName"]) for field in mapped}
        self._logical = {stored: name for name, stored in self._stored.items()}
        self.numbers = {field.name: int(field.metadata[f"{MAPPING}.id"]) for field in mapped}
        self._masks: dict[int, dict[str, pl.Series]] = {}

    def changes(
        self, mark: MirrorCursor, mirrored: Sequence[Path], *, stepwise: bool
    ) -> tuple[MirrorCursor, Iterator[pl.DataFrame]] | None:
        self._check_same(mark)
        if self.version == mark.version:
            return None
        commits = self._commits(mark.version + 1)
        self._check_columns(mark, [(each.version, each.columns) for each in commits if each.columns is not None])
        if not mark.numbers and any(self._stored.get(name, name) != name for name in mark.columns):
            raise UnknownChange  # files of before then have the columns by other names
        steps: list[tuple[MirrorCursor, list[DeltaCommit]]] = []
        committed = mark.committed
        for commit in commits:
            committed = max(committed + 1, commit.committed or 0)
            steps.append((self._mark(commit.version, committed), [commit]))
        end = steps[-1][0]
        return end, self._updates(steps if stepwise else [(end, commits)])

    def _commits(self, first: int) -> list[DeltaCommit]:
        """Return the changes of the versions from one on."""
        versions = range(first, self.version + 1)
        now = bool(self._table.metadata().partition_columns)
        found = [read_commit(self._directory, each, partitioned=now) for each in versions]
        if now or all(each.columns is None for each in found):
            return found
        return [read_commit(self._directory, each, partitioned=True) for each in versions]  # it may have been before

    def _tip(self, version: int) -> str:
        return tip_of(self._directory, version)

    def _committed_now(self, least: int) -> int:
        try:
            found = self._commits(self.version)[0].committed
        except UnknownChange:
            found = None
        return max(least, int(clock.time() * MICRO) if found is None else found)

    def _updates(self, steps: Sequence[tuple[MirrorCursor, list[DeltaCommit]]]) -> Iterator[pl.DataFrame]:
        for end, commits in steps:
            files: dict[DataFile, tuple[int, int]] = {}
            feeds: list[tuple[DataFile, int]] = []
            for commit in commits:
                if commit.feed:
                    feeds += [(file, commit.version) for file in commit.feed]
                    continue
                for file, diff in [*((each, -1) for each in commit.removed), *((each, 1) for each in commit.added)]:
                    # A version that has the file knows its deleted rows: the one before its removal.
                    known = commit.version if diff > 0 else commit.version - 1
                    files[file] = files.get(file, (0, 0))[0] + diff, known
            gone, new = (
                [(file, known) for file, (count, known) in files.items() if count * diff > 0] for diff in (-1, 1)
            )
            if gone or feeds:
                fed = (self._feed(file) for file, _ in feeds)
                yield from self._labelled(self._consolidated(chain(self._changed(gone, new), fed)), end)
            else:
                yield from self._labelled((self._file(*each) for each in new), end)

    def _changed(
        self, gone: Sequence[tuple[DataFile, int]], new: Sequence[tuple[DataFile, int]]
    ) -> Iterator[pl.DataFrame]:
        """Yield the difference of files that are gone and new ones, each with a version that knows its deleted rows."""
        before, after = ({(file.path, file.partition): (file, known) for file, known in side} for side in (gone, new))
        if len(before) < len(gone) or len(after) < len(new):  # no writer has a file twice
            raise UnknownChange
        for key in before.keys() & after.keys():  # only the deleted rows differ
            yield from self._marked(before.pop(key), after.pop(key))
        sides = [[piece for each in side.values() for piece in self._pieces(*each)] for side in (before, after)]
        yield from remainder(*sides)

    def _marked(self, before: tuple[DataFile, int], after: tuple[DataFile, int]) -> Iterator[pl.DataFrame]:
        """Yield the rows of a file that only one of two deletion vectors deletes."""
        frame = self._read(before[0])
        old, new = (self._left(*each, frame.height) for each in (before, after))
        diff = (new.cast(pl.Int64) - old.cast(pl.Int64)).alias(DIFF)
        yield frame.with_columns(diff).filter(pl.col(DIFF) != 0)

    def _pieces(self, file: DataFile, known: int) -> list[FileRows]:
        found, partition = pieces_of(self._path(file)), dict(file.partition)
        if file.deleted or not found:
            least, largest = (found[0].least, found[0].largest) if found else ({}, {})
            rows = sum(each.rows for each in found)
            least, largest = self._renamed(partition | least), self._renamed(partition | largest)
            return [FileRows(lambda: [self._file(file, known)], least, largest, rows=rows)]
        return [self._piece(file, part) for part in found]

    def _piece(self, file: DataFile, part: RowGroupRange) -> FileRows:
        def read(columns: Sequence[str]) -> pl.DataFrame:
            return self._read(file, columns, part.start, part.rows)

        partition = dict(file.partition)
        columns = None
        if part.chunks is not None:
            chunks = replace(part.chunks, columns=self._renamed(part.chunks.columns))
            columns = PieceColumns([*self.columns], read, chunks)
        least, largest = self._renamed(partition | part.least), self._renamed(partition | part.largest)
        return FileRows(lambda: [read([*self.columns])], least, largest, columns, part.rows)

    def _renamed(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is known of columns, by their names in files, by their names in the table."""
        return {self._logical.get(stored, stored): known for stored, known in columns.items()}

    def _rows(self) -> Iterator[pl.DataFrame]:
        with self._errors():
            check_names(read_names(self._table), self.place)
            places = [unquote(uri) for uri in self._table.file_uris()]
        for path in [Path(place) for place in places if "://" not in place]:
            check_plain(path)
            _check_length(path)
        with self._errors(RESTORED):
            partitions = [name for name in self._table.metadata().partition_columns if name in self.columns]
            texts = [name for name in partitions if self.columns[name].kind == "string"]
            for frame in self._framed(self._table.scan(columns=list(self.columns))):
                # An empty text is null by the protocol; the package's scan returns it as it is.
                yield frame.with_columns(pl.when(pl.col(texts) != "").then(pl.col(texts))) if texts else frame

    def _file(self, file: DataFile, version: int) -> pl.DataFrame:
        """Return the rows of a data file that it has in a version."""
        frame = self._read(file)
        return frame.filter(self._left(file, version, frame.height)) if file.deleted else frame

    def _left(self, file: DataFile, version: int, rows: int) -> pl.Series:
        """Return which of its rows a version leaves in a data file."""
        if not file.deleted:
            return pl.repeat(True, rows, dtype=pl.Boolean, eager=True)
        kept = self._deleted(version).get(str(self._path(file)))
        if kept is None:
            raise UnknownChange
        return pl.concat([kept, pl.repeat(True, rows - len(kept), dtype=pl.Boolean, eager=True)])

    def _feed(self, file: DataFile) -> pl.DataFrame:
        frame = self._read(file, [*self.columns, CHANGE])
        strange = set(frame[CHANGE].unique()) - CHANGES.keys()
        if strange:
            problem = f"the table's change feed has a change '{strange.pop()}'"
            raise InputError(problem, place=str(self._path(file)), hint=f"known are {', '.join(CHANGES)}")
        diff = pl.col(CHANGE).replace_strict(CHANGES, return_dtype=pl.Int64).alias(DIFF)
        return frame.select(*self.columns, diff)

    def _read(
        self, file: DataFile, columns: Sequence[str] | None = None, start: int = 0, rows: int | None = None
    ) -> pl.DataFrame:
        """Return the rows of a data file, or some of them: columns that it lacks belong to its partition, or younger than it."""
        path = self._path(file)
        try:
            with path.open("rb") as opened:
                scan = pl.scan_parquet(opened, glob=False, hive_partitioning=False)
                found = scan.collect_schema()
                names = [*self.columns] if columns is None else columns
                known = [self._column(file, name, found) for name in names if name in self.columns]
                return scan.slice(start, rows).with_columns(known).select(names).collect()
        except FileNotFoundError:
            raise UnknownChange(str(path)) from None
        except (OSError, *READ_ERRORS) as error:
            problem = f"the file of the table can't be read: {first_line(error)}"
            raise InputError(problem, place=str(path), hint=RESTORED) from None

    def _column(self, file: DataFile, name: str, schema: pl.Schema) -> pl.Expr:
        kind, dtype = self.columns[name], self.columns[name].to_polars()
        partition, stored = dict(file.partition), self._stored.get(name, name)
        found = schema.get(stored)
        if stored in partition:
            text = partition[stored]
            if not text:  # an empty text is null, too
                return pl.lit(None, dtype).alias(name)
            if kind.kind == "string":
                return pl.lit(text, pl.String).alias(name)
            value = Lowering().value(Cast(Literal(text, TEXT), kind, try_=True))
            if pl.select(value).item() is None:
                problem = f"the log has '{text}' in the partition column '{name}', which is no {kind.required()}"
                raise InputError(problem, place=str(self._path(file)))
            return value.cast(dtype).alias(name)
        if found is None:
            return pl.lit(None, dtype).alias(name)
        column = pl.col(stored)
        if isinstance(found, pl.Datetime) and isinstance(dtype, pl.Datetime) and found.time_zone is None:
            column = column.dt.replace_time_zone(dtype.time_zone)  # as INT96 are, which are in UTC
        return column.cast(dtype).alias(name)

    def _path(self, file: DataFile) -> Path:
        check_names([file.path], self.place)
        path = self._directory / unquote(file.path)
        if isinstance(path, Path):
            check_plain(path)
        return path

    def _deleted(self, version: int) -> dict[str, pl.Series]:
        """Return which rows a version keeps of the files that have deletion vectors, by their paths."""
        if version not in self._masks:
            with self._errors():
                try:
                    table = open_delta(self._directory, version)
                    check_names(read_names(table), self.place)
                except FileNotFoundError:
                    raise UnknownChange from None
                found = {}
                for batch in table.deletion_vectors():
                    names, kept = pl.DataFrame(batch).get_columns()
                    for at, name in enumerate(names):
                        path = name.removeprefix("file://") if "://" in name else name
                        found[unquote(path)] = kept[at]
                self._masks[version] = found
        return self._masks[version]

    def _check_features(self, fields: Sequence[Field]) -> Sequence[Field]:
        """Return the fields whose columns have other names in files. Raises InputError for a table that asks more of its readers than we do."""
        protocol = self._table.protocol()
        features = {*(protocol.reader_features or ())}
        mode = self._table.metadata().configuration.get(f"{MAPPING}.mode", "none")
        # A mode alone changes nothing: the protocol must have the feature, too.
        mapped = mode != "none" and (protocol.min_reader_version == BY_NAME or "columnMapping" in features)
        strange = sorted(features - FEATURES)
        if mapped and mode != "name":
            strange = [f"columnMapping by {mode}"]
        for field in fields:
            text = field.to_json()
            if f'"{VARIANT}"' in text:
                strange = [VARIANT]
            elif mapped and text.count(f"{MAPPING}.physicalName") > 1:
                strange = [f"columnMapping in the struct {field.name}"]
        if strange:
            problem = f"the table has the feature '{strange[0]}', which isn't read"
            raise InputError(problem, place=self.place, hint=PLAIN)
        return fields if mapped else ()

    def _check_same(self, mark: MirrorCursor) -> None:
        self.check_identity(mark)
        if self.version < mark.version:
            problem = f"the table has the version {self.version}, and earlier runs have read {mark.version}"
            raise InputError(problem, place=self.place, hint=BEGIN)
        if mark.tip and tip_of(self._directory, mark.version) not in {"", mark.tip}:
            problem = f"version {mark.version} of the table is another than the one that earlier runs have read"
            raise InputError(problem, place=self.place, hint=BEGIN)

    @contextmanager
    def _errors(self, hint: str | None = None) -> Iterator[None]:
        """Turn errors of the package into errors of the input; errors of rows, which come through Arrow, have no kind of their own."""
        try:
            yield
        except (DdError, UnknownChange):
            raise
        except Exception as error:  # noqa: BLE001 - as above
            problem = f"the table of Delta Lake can't be read: {first_line(error)}"
            raise InputError(problem, place=self.place, hint=hint) from None


def open_delta(place: Path, version: int | None = None) -> DeltaTable:
    """Return a table of the package as of a version, by default the newest."""
    from deltalake import DeltaTable

    return DeltaTable(str(place), version=version)


def read_names(table: DeltaTable) -> set[str]:
    """Return the paths of the data files that a table's log names, as they are in it."""
    return set(pl.DataFrame(table.get_add_actions()).get_column("path").to_list())


def _check_length(path: Path) -> None:
    """Refuse a Parquet file whose footer would begin before the file does: the package ends the process over it. Other errors it reports."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, SEEK_END)
            file.seek(max(size - TAIL, 0))
            length = int.from_bytes(file.read(4), "little")
    except OSError:
        return
    if length > size - TAIL:
        problem = (
            f"the file of the table can't be read: its footer would have {length:,} bytes, and the file has {size:,}"
        )
        raise InputError(problem, place=str(path), hint=RESTORED)

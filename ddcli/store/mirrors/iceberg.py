"""The changes of each snapshot of a table of Iceberg, as updates: from the difference of their data files, without the rows that are deleted in these.

pyiceberg's incremental scans are not used: for a snapshot that deletes rows they return the appended ones, without an error.
Its reader applies deletes by position; deletes by equality, which it refuses (0.12), are applied here: such a file deletes the rows of older data files
of its partition, or of all if it has none, that have the values of one of its rows (Iceberg's specification, "Scan Planning").
"""

from __future__ import annotations

import io
import time as clock
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.dataclass import frozen
from ddcli.errors import DdError, InputError, first_line
from ddcli.store.files.foreign import below, check_plain
from ddcli.store.mirrors.cancellation import remainder
from ddcli.store.mirrors.equal_parts import FileRows, PieceColumns, chunks_of
from ddcli.store.mirrors.mirror import UnknownChange
from ddcli.store.mirrors.source import MICRO, TableSource
from ddcli.version import check_package

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.table.snapshots import Snapshot

    from ddcli.store.mirrors.mirror import MirrorCursor


@cache
def keep_null_lists() -> None:
    """Have pyiceberg's reader keep null lists of structs, in this process from now on. A version that keeps them itself is left as it is.

    The reader (0.12) builds such a list anew from its offsets and its values, and makes a null list an empty one. As a file whose columns are the table's is read without
    pyiceberg, one row would be two different records, depending on its reader.
    """
    import pyarrow as pa
    from pyarrow import compute
    from pyiceberg.io.pyarrow import ArrowProjectionVisitor

    plain = ArrowProjectionVisitor.list

    def list_with_nulls(visitor: Any, kind: Any, lists: Any, values: Any) -> Any:
        found = plain(visitor, kind, lists, values)
        if found is None or found.null_count == lists.null_count:
            return found
        return compute.if_else(lists.is_null(), pa.scalar(None, found.type), found)

    ArrowProjectionVisitor.list = list_with_nulls  # type: ignore[method-assign, assignment]  # there is no other way in


@frozen
class _DataFile:
    """A data file with the files that delete rows of it by position, and those by equality."""

    file: DataFile
    delete_files: Collection[DataFile] = ()
    equality: Collection[DataFile] = ()


REPLACE = "replace"
"""The operation of a snapshot that only rearranges rows."""


class IcebergSource(TableSource):
    """A table of Iceberg as it is now, by its name in a catalog: one of pyiceberg's configuration, or one with these properties.

    Its versions are the sequence numbers of snapshots; a table of the first format has none: there they count the snapshots that are read.
    """

    def __init__(self, name: str, catalog: str, properties: Mapping[str, str]) -> None:
        check_package("pyiceberg")
        self.place = name
        with self._errors():
            from pyiceberg.exceptions import NoSuchTableError
            from pyiceberg.io.pyarrow import schema_to_pyarrow

            from ddcli.store.tables.iceberg_catalog import open_catalog, with_own_files

            try:
                self._table = with_own_files(open_catalog(catalog, properties, writes=False).load_table(name))
            except NoSuchTableError:
                hint = "some catalogs, those in databases for one, keep tables under their own name: it is the catalog's `name`"
                raise InputError(f"the catalog '{catalog}' has no table '{name}'", place=name, hint=hint) from None
            self._snapshot = self._table.current_snapshot()
            fields = self._table.schema().fields
            found = pl.Schema(schema_to_pyarrow(self._table.schema(), include_field_ids=False))
        self.identity = str(self._table.metadata.table_uuid)
        self.version = (self._snapshot and self._snapshot.sequence_number) or 0
        super().__init__(name, found, {field.name: field.optional for field in fields})
        self.numbers = {field.name: field.field_id for field in fields}
        self._gone: dict[str, pl.DataFrame] = {}
        self._known_names: tuple[Any, dict[str, str] | None] = (None, None)

    @property
    def tip(self) -> str:
        """The identity of the newest snapshot."""
        return _id(self._snapshot)

    def changes(
        self, mark: MirrorCursor, mirrored: Sequence[Path], *, stepwise: bool
    ) -> tuple[MirrorCursor, Iterator[pl.DataFrame]] | None:
        if self._is_at(mark):
            return None
        chain = self._since(mark, stepwise=stepwise)
        steps: list[tuple[MirrorCursor, list[Snapshot]]] = []
        end = mark
        for snapshot in chain:
            version = snapshot.sequence_number or end.version + 1
            end = replace(self._mark(version, max(end.committed + 1, snapshot.timestamp_ms * 1000)), tip=_id(snapshot))
            steps.append((end, [snapshot]))
        if not stepwise or not chain:
            end = self._mark(self.version or end.version, end.committed)
            steps = [(end, chain)]
        return end, self._updates(mark.tip, steps)

    def _since(self, mark: MirrorCursor, *, stepwise: bool) -> list[Snapshot]:
        """Return the snapshots after a cursor's, oldest first; only the newest for a table that was rolled back."""
        known = {_id(each): each for each in self._table.metadata.snapshots}
        if mark.tip and mark.tip not in known:
            raise UnknownChange
        chain: list[Snapshot] = []
        at = self._snapshot
        while at is not None and _id(at) != mark.tip:
            chain.append(at)
            parent = at.parent_snapshot_id
            at = known.get(str(parent)) if parent is not None else None
            if at is None and (parent is not None or mark.tip):
                break
        if _id(at) == mark.tip:
            return chain[::-1]
        if stepwise and self.version <= mark.version:
            raise self._rolled_back(mark)
        return [] if self._snapshot is None else [self._snapshot]

    def _updates(self, before: str, steps: Sequence[tuple[MirrorCursor, list[Snapshot]]]) -> Iterator[pl.DataFrame]:
        for end, snapshots in steps:
            old, before = before, end.tip
            rearranged = all(each.summary and each.summary.operation.value == REPLACE for each in snapshots)
            if old == before or (rearranged and snapshots and str(snapshots[0].parent_snapshot_id) == old):
                continue
            gone, new = self._tasks(old), self._tasks(before)
            yield from self._labelled(self._consolidated(self._changed(gone, new)), end)

    def _changed(self, gone: Mapping[Any, Sequence[Any]], new: Mapping[Any, Sequence[Any]]) -> Iterator[pl.DataFrame]:
        """Yield the rows of data files that are read more often, or less, than before, less those that others have, too."""
        sides: list[list[_DataFile]] = [[], []]
        for key in {**gone, **new}:
            count = len(new.get(key, ())) - len(gone.get(key, ()))
            task = (*new.get(key, ()), *gone.get(key, ()))[0]
            sides[count > 0] += [task] * abs(count)
        yield from remainder(*([self._piece(task, compared=all(sides)) for task in side] for side in sides))

    def _piece(self, task: _DataFile, *, compared: bool) -> FileRows:
        least, largest = map(self._bounds, (task.file.lower_bounds, task.file.upper_bounds))
        columns = self._columns(task) if compared else None
        return FileRows(lambda: self._file(task), least, largest, columns, task.file.record_count)

    def _columns(self, task: _DataFile) -> PieceColumns | None:
        """Return the columns of a data file that can be compared by their bytes: it is on this machine and has the table's columns by their names."""
        from pyarrow import ArrowException, parquet

        from ddcli.store.tables.iceberg_catalog import local_path

        path = local_path(task.file.file_path)
        if path is None or not _is_plain(task):
            return None
        try:
            footer = parquet.read_metadata(path)
        except (OSError, ArrowException):
            return None  # the reader of its rows reports the error
        names = self._names(footer.schema.to_arrow_schema())
        if names is None or any(name != own for name, own in names.items()):
            return None

        def read(columns: Sequence[str]) -> pl.DataFrame:
            return pl.concat(frame.select(columns) for frame in self._plainly(task, columns) or self._read([task]))

        chunks = chunks_of(path, footer, range(footer.num_row_groups))
        return None if chunks is None else PieceColumns([*self.columns], read, chunks)

    def _bounds(self, found: Mapping[int, bytes] | None) -> dict[str, Any]:
        """Return values that a manifest has of columns, as far as these are the table's."""
        from pyiceberg.conversions import from_bytes
        from pyiceberg.types import PrimitiveType

        fields = {each.field_id: each for each in self._table.schema().fields}
        bounds: dict[str, Any] = {}
        for number, value in (found or {}).items():
            field = fields.get(number)
            if field is not None and isinstance(field.field_type, PrimitiveType):
                with suppress(Exception):  # of a type that was widened, for one: files are ordered by the others then
                    bounds[field.name] = from_bytes(field.field_type, value)
        return bounds

    def _rows(self) -> Iterator[pl.DataFrame]:
        tasks = [task for tasks in self._tasks(self.tip).values() for task in tasks]
        yield from self._read([task for task in tasks if not task.equality])
        for task in tasks:
            if task.equality:
                yield from self._read([task])

    def _read(self, tasks: Sequence[_DataFile]) -> Iterator[pl.DataFrame]:
        """Yield the rows of data files, or of one that has deletes by equality, less those that their delete files name."""
        with self._errors():
            rows = self._framed(self._scanned(tasks, list(self.columns)))
            gone = [self._deleted(each) for each in (tasks[0].equality if tasks else ())]
            for frame in rows:
                for each in gone:
                    frame = frame.join(each, on=each.columns, how="anti", nulls_equal=True, maintain_order="left")
                yield frame

    def _scanned(self, tasks: Sequence[_DataFile], names: Sequence[str]) -> Iterator[Any]:
        """Return columns of files as the package reads them."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        keep_null_lists()
        schema = self._table.schema().select(*names)
        scan = ArrowScan(self._table.metadata, self._table.io, schema, AlwaysTrue())
        return scan.to_record_batches([FileScanTask(each.file, {*each.delete_files}) for each in tasks])

    def _deleted(self, file: DataFile) -> pl.DataFrame:
        """Return the distinct values of a file that deletes by equality, in the columns that it compares; read once for all data files."""
        if file.file_path not in self._gone:
            self._gone[file.file_path] = self._values(file)
        return self._gone[file.file_path]

    def _values(self, file: DataFile) -> pl.DataFrame:
        """Read those values. Raises InputError for columns that the table has no more."""
        known = {number: name for name, number in self.numbers.items() if name in self.columns}
        numbers = file.equality_ids or ()
        if not numbers or any(number not in known for number in numbers):
            problem = "the table deletes rows by a column that it no longer has, or that the input leaves out"
            raise InputError(
                problem, place=self.place, hint="compact the table, so that its files have no such deletes"
            )
        names = [known[number] for number in numbers]
        kinds = {name: self._dtypes[name] for name in names}
        found = [
            pl.DataFrame(batch).select(names).cast(pl.Schema(kinds))
            for batch in self._scanned([_DataFile(file)], names)
        ]
        return pl.concat([pl.DataFrame(schema=kinds), *found]).unique()

    def _file(self, task: _DataFile) -> Iterable[pl.DataFrame]:
        """Return the rows of a data file."""
        return self._plainly(task) or self._read([task])

    def _plainly(self, task: _DataFile, columns: Sequence[str] | None = None) -> list[pl.DataFrame] | None:
        """Return the rows of a data file of Parquet that has the table's columns as they are, and all of whose rows count; None if pyiceberg has to read it.

        That takes half of the package's time.
        """
        from pyarrow import parquet

        from ddcli.store.tables.iceberg_catalog import local_path

        if not _is_plain(task):
            return None
        path, wanted = local_path(task.file.file_path), [*self.columns] if columns is None else columns
        with self._errors(), path.open("rb") if path else self._fetched(task) as data:
            names = self._names(parquet.read_schema(data))
            if names is None:
                return None
            data.seek(0)
            scan = pl.scan_parquet(data, glob=False, hive_partitioning=False)
            frame = scan.select(pl.col(names[name]).alias(name) for name in wanted)
            kinds = {name: self._dtypes[name] for name in wanted}
            return [frame.collect()] if frame.collect_schema() == kinds else None

    def _fetched(self, task: _DataFile) -> io.BytesIO:
        with self._table.io.new_input(task.file.file_path).open() as opened:
            return io.BytesIO(opened.read())

    def _names(self, physical: Any) -> dict[str, str] | None:
        """Return the names of the table's columns in a file with this schema (pyarrow's); None if some are missing or have other types."""
        from pyiceberg.io.pyarrow import pyarrow_to_schema

        known, names = self._known_names
        if known is not None and physical.equals(known, check_metadata=True):  # as nearly all files
            return names
        metadata = self._table.metadata
        mapping, version = metadata.name_mapping(), metadata.format_version
        with self._errors():
            found = pyarrow_to_schema(physical, mapping, downcast_ns_timestamp_to_us=True, format_version=version)
        files = {field.field_id: (field.name, field.field_type) for field in found.fields}
        wanted = [self._table.schema().find_field(name) for name in self.columns]
        plain = all(files.get(each.field_id, ("", None))[1] == each.field_type for each in wanted)
        names = {each.name: files[each.field_id][0] for each in wanted} if plain else None
        self._known_names = physical, names
        return names

    def _tasks(self, tip: str) -> dict[tuple[str, ...], list[_DataFile]]:
        """Return the data files of a snapshot, by the paths that identify their rows: their own and their delete files' paths."""
        found: dict[tuple[str, ...], list[_DataFile]] = {}
        with self._errors():
            for task in self._planned(int(tip)) if tip else ():
                deletes = sorted(each.file_path for each in (*task.delete_files, *task.equality))
                for location in (task.file.file_path, *deletes):
                    self._check(location)
                found.setdefault((task.file.file_path, *deletes), []).append(task)
        return found

    def _planned(self, snapshot: int) -> Iterator[_DataFile]:
        """Yield the data files of a snapshot, each with the files that delete rows of it."""
        from pyiceberg.manifest import DataFileContent
        from pyiceberg.table import ManifestGroupPlanner

        metadata, files = self._table.metadata, self._table.io
        numbers: dict[str, int] = {}
        deleting: list[ManifestEntry] = []

        def is_known(entry: ManifestEntry) -> bool:
            """Note an entry; return whether the package knows its kind."""
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                deleting.append(entry)
                return False
            if entry.data_file.content == DataFileContent.DATA:
                numbers[entry.data_file.file_path] = entry.sequence_number or 0
            return True

        found = metadata.snapshot_by_id(snapshot)
        if found is None:
            raise UnknownChange
        tasks = ManifestGroupPlanner(metadata, files).plan_files(found.manifests(files), is_known)
        everywhere = {number for number, spec in metadata.specs().items() if spec.is_unpartitioned()}
        for task in tasks:
            file = task.file
            equality = [
                each.data_file
                for each in deleting
                if (each.sequence_number or 0) > numbers[file.file_path]
                and (
                    each.data_file.spec_id in everywhere
                    or (each.data_file.spec_id, each.data_file.partition) == (file.spec_id, file.partition)
                )
            ]
            yield _DataFile(file, task.delete_files, equality)

    def _check(self, location: str) -> None:
        """Raise InputError for a file that isn't a plain one of the table's folder."""
        from ddcli.store.tables.iceberg_catalog import folder_of, local_path

        below(location, folder_of(self._table.metadata_location))
        if (path := local_path(location)) is not None:
            check_plain(path)

    def _tip(self, version: int) -> str:
        return self.tip

    def _committed_now(self, least: int) -> int:
        return max(least, self._snapshot.timestamp_ms * 1000 if self._snapshot else int(clock.time() * MICRO))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the package, which have no common kind, into errors of the input."""
        try:
            yield
        except (DdError, UnknownChange):
            raise
        except FileNotFoundError as error:
            raise UnknownChange(error.filename or first_line(error)) from None
        except Exception as error:  # noqa: BLE001 - as above
            raise InputError(f"the table of Iceberg can't be read: {first_line(error)}", place=self.place) from None


def _is_plain(task: _DataFile) -> bool:
    """Return whether a data file is one of Parquet whose rows all count."""
    from pyiceberg.manifest import FileFormat

    return not task.delete_files and not task.equality and task.file.file_format == FileFormat.PARQUET


def _id(snapshot: Snapshot | None) -> str:
    return "" if snapshot is None else str(snapshot.snapshot_id)

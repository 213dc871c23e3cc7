"""Tables of Iceberg that follow outputs, through pyiceberg: a snapshot adds and removes whole files, and sets our number beside them.

The table's property for repeated commits is 0: else pyiceberg repeats a commit that it believes to have failed, and it counts twice.
No commits of others are lost: the catalog refuses one that is based on another snapshot than the newest.
"""

from __future__ import annotations

import io
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import DdError, EngineError, StateError, first_line
from ddcli.store.files.foreign import below
from ddcli.store.targets.file_table import FileTable, arrow_schema
from ddcli.store.targets.mark import CommitKey, other_columns, overtaken, strange
from ddcli.version import check_package

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from ddcli.expressions.types import Schema
    from ddcli.store.tables.iceberg_catalog import TableFiles
    from ddcli.store.targets.file_table import Write
    from ddcli.store.targets.mark import TableFile

RETRIES = "commit.retry.num-retries"
PROPERTIES = {
    RETRIES: "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""The properties of tables that are made here: the descriptions of old versions go by themselves."""


class IcebergTarget(FileTable):
    """A table of Iceberg, by its name in a catalog: one of pyiceberg's configuration, or one with these properties."""

    def __init__(
        self, name: str, catalog: str, properties: Mapping[str, str], key: CommitKey, *, contents: bool
    ) -> None:
        super().__init__(name, key, contents=contents)
        check_package("pyiceberg")
        from pyiceberg.exceptions import NoSuchTableError

        from ddcli.store.tables.iceberg_catalog import open_catalog, with_own_files

        with _errors_of(self.place):
            self._catalog = open_catalog(catalog, properties, writes=True)
            try:
                self._table: Table | None = with_own_files(self._catalog.load_table(name))
            except NoSuchTableError:
                self._table = None
            if self._table is not None:
                self._check_place(self._table)
        self._data: dict[str, DataFile] | None = None
        self._written: list[DataFile] = []

    def number(self) -> int | None:
        found = None if self._table is None else self._table.properties.get(str(self.key))
        return None if found is None else int(found)

    def names(self) -> set[str]:
        return {*self._data_files()}

    def make(self, columns: Schema, former: Schema | None) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        from ddcli.store.tables.iceberg_catalog import with_own_files

        with _errors_of(self.place):
            if self._table is None:
                self._catalog.create_namespace_if_not_exists(self.place.rpartition(".")[0])
                schema = arrow_schema(columns)
                self._table = with_own_files(self._catalog.create_table(self.place, schema, properties=PROPERTIES))
            table = self._table
            if former is not None:  # a commit of its own, after which the table has the same rows
                with table.update_schema() as update:
                    update.union_by_name(arrow_schema(columns))
            found = pl.Schema(schema_to_pyarrow(table.schema(), include_field_ids=False))
            nullable = {field.name: field.optional for field in table.schema().fields}
        if found != {name: kind.to_polars() for name, kind in columns.items()} or nullable != {
            name: kind.nullable for name, kind in columns.items()
        }:
            raise other_columns(self.place)
        if table.spec().fields:
            raise StateError(
                "the table has partitions, and no rows are distributed to them",
                place=self.place,
                hint="remove the table: the next run rewrites it, without partitions",
            )

    def read(self, name: str) -> pl.DataFrame:
        assert self._table is not None, "it has the file"
        with _errors_of(self.place), self._table.io.new_input(self._data_files()[name].file_path).open() as file:
            return pl.read_parquet(io.BytesIO(file.read()))

    def writer(self, footer: Mapping[str, str]) -> Write:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        assert self._table is not None, "it is made before its files"
        with _errors_of(self.place):
            schema = schema_to_pyarrow(self._table.schema())
        schema = schema.with_metadata({**(schema.metadata or {}), **footer} or None)
        return partial(_write, self.place, self._table.io, self._path(""), schema)

    def adopt(self, name: str, facts: Any) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file  # which reads the facts in the file

        assert self._table is not None, "it is made before its files"
        with _errors_of(self.place):
            found = parquet_file_to_data_file(self._table.io, self._table.metadata, self._path(name))
        self._written.append(found)

    def commit(self, number: int, new: Sequence[TableFile], gone: Sequence[str]) -> None:
        from pyiceberg.exceptions import CommitFailedException

        table, files = self._table, self._data_files()
        assert table is not None, "it is made before its files"
        properties = {str(self.key): str(number)}
        if table.properties.get(RETRIES) != "0":
            properties[RETRIES] = "0"
        try:
            with _errors_of(self.place), table.transaction() as transaction:
                transaction.set_properties(properties)
                updating = transaction.update_snapshot(snapshot_properties={str(self.key): str(number)})
                with updating.overwrite() if gone else updating.fast_append() as snapshot:
                    for file in self._written:
                        snapshot.append_data_file(file)
                    for name in gone:
                        snapshot.delete_data_file(files[name])
        except CommitFailedException:
            raise overtaken(self.place) from None

    def sweep(self, number: int, names: Collection[str]) -> None:
        if self._table is None:
            return
        ours = self._name(number)
        files: TableFiles = self._table.io  # type: ignore[assignment] # by `with_own_files`
        with _errors_of(self.place):
            for name in files.names(self._path("")):
                if name.startswith(ours) and name not in names:
                    files.delete(self._path(name))

    def discard(self, number: int, pieces: Sequence[TableFile]) -> None:
        super().discard(number, pieces)
        if self._table is None:
            return
        for piece in pieces:  # where the folder can't be listed
            with suppress(OSError):  # it is not there
                self._table.io.delete(self._path(piece.name))

    def _check_place(self, table: Table) -> None:
        """Refuse a table into which a commit would write elsewhere than into its folder, or lose properties."""
        from ddcli.store.tables.iceberg_catalog import folder_of, loses_properties

        below(f"{table.location().rstrip('/')}/metadata", folder_of(table.metadata_location))
        if lost := loses_properties(table):
            problem = f"the table has the property '{lost[0]}', which a commit of `dd` would lose"
            raise StateError(problem, place=self.place, hint="remove the property, or have `dd` make the table")

    def _path(self, name: str) -> str:
        assert self._table is not None, "files are in the table"
        return f"{self._table.location().rstrip('/')}/data/{name}"

    def _data_files(self) -> dict[str, DataFile]:
        """Return the files that the table has, by their names."""
        if self._table is None:
            return {}
        if self._data is None:
            with _errors_of(self.place):
                tasks = [*self._table.scan().plan_files()]
            if deleted := [task.file.file_path for task in tasks if task.delete_files]:
                raise strange(self.place, f"another program has deleted rows in the file '{min(deleted)}'")
            self._data = {task.file.file_path.rpartition("/")[2]: task.file for task in tasks}
        return self._data


def _write(place: str, io_of_table: FileIO, directory: str, schema: pa.Schema, name: str, rows: pl.DataFrame) -> None:
    """Write a file of rows."""
    import pyarrow.parquet as pq

    with _errors_of(place):
        data = io.BytesIO()
        pq.write_table(rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema), data, compression="zstd")
        with io_of_table.new_output(f"{directory}{name}").create(overwrite=True) as file:
            file.write(data.getvalue())


@contextmanager
def _errors_of(place: str) -> Iterator[None]:
    """Turn errors of the package, which have no common kind, into errors of the output."""
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

    try:
        yield
    except (DdError, CommitFailedException, NoSuchTableError):
        raise
    except Exception as error:  # noqa: BLE001 - as above
        raise EngineError(f"the table of Iceberg can't be written: {first_line(error)}", place=place) from None

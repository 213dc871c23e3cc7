"""Tables of DuckLake that follow outputs: a commit is one snapshot, made by one transaction of the catalogue.

The catalogue is written by its tables (DuckLake's specification 1.0), so DuckDB's extension is not needed. The number of our last commit is a tag of the table. A commit
finds the files that the table had when it was opened, or does nothing.
"""

from __future__ import annotations

import hashlib
import io
import re
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from ddcli.errors import EngineError, InputError, StateError
from ddcli.expressions.tree import delimited
from ddcli.store.files.access import locate
from ddcli.store.mirrors.ducklake import checked_facts, find_table, named, open_catalogue, within
from ddcli.store.mirrors.ducklake_columns import KINDS
from ddcli.store.mirrors.server_databases import place_of
from ddcli.store.targets.file_table import FileTable, arrow_schema
from ddcli.store.targets.mark import CommitKey, other_columns, overtaken, strange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ddcli.expressions.types import Schema, Type
    from ddcli.store.files.gate import Files
    from ddcli.store.mirrors.ducklake import Ask
    from ddcli.store.targets.change import Change
    from ddcli.store.targets.file_table import Write
    from ddcli.store.targets.mark import CommitRecord, TableFile

NAMES = {ours: theirs for theirs, ours in KINDS.items() if theirs not in ("json", "timestamp_us")}
"""The types of DuckLake by ours."""
Names = tuple[str, ...]
"""The names from a column down to a field or an element."""


class _Column(NamedTuple):
    """A column, a field or an element, as the catalogue has it."""

    type: str
    nullable: bool


class _Found(NamedTuple):
    """A table as it is now: its number in the catalogue, its folder, its columns with their numbers, and its files with theirs."""

    table: int
    folder: str
    columns: dict[Names, _Column]
    numbers: dict[Names, int]
    files: dict[str, int]
    altered: bool
    """True: others have deleted rows in files, or have rows in the catalogue itself."""
    number: int | None


def made_by_duckdb(place: str) -> str:
    """Return the hint for a catalogue that is missing."""
    return f"DuckDB makes one: `attach 'ducklake:{place.replace(':///', ':')}' (data_path 'lake/')`"


class DuckLakeTarget(FileTable):
    """A table of DuckLake by its name, `main.orders`, in the catalogue at `uri`; `file` is the catalogue's, or one beside which relative paths begin."""

    def __init__(self, uri: str, file: Path, table: str, key: CommitKey, files: Files, *, contents: bool) -> None:
        super().__init__(place_of(uri) if uri.startswith("postgres") else uri, key, contents=contents)
        self._uri, self._file, self._files = uri, file, files
        self._schema, self._table = named(table)
        self._columns: Schema = {}
        self._numbers: dict[Names, int] = {}
        self._written: dict[str, tuple[int, int, list[tuple[Names, Any]]]] = {}
        with self._catalogue() as ask:
            facts = checked_facts(ask, self.place)
            self._data = str(locate(file.parent, str(facts["data_path"])))
            self._found = self._look(ask)
        self._directory = locate(file.parent, self._found.folder)

    @contextmanager
    def _catalogue(self, *, write: bool = False) -> Iterator[Ask]:
        try:
            with open_catalogue(self._uri, self._file, write=write) as ask:
                yield ask
        except InputError as error:
            hint = error.hint or made_by_duckdb(self.place)
            raise EngineError(error.problem, place=self.place, hint=hint) from None

    def _look(self, ask: Ask) -> _Found:
        """Return the table as it is; where there is none, with the number -1."""
        found = find_table(ask, self._schema, self._table)
        if found is None:
            return self._missing(ask)
        table, _, _, *paths = found
        rows = ask(
            "select column_id, column_name, column_type, nulls_allowed, parent_column from ducklake_column where table_id = ? and end_snapshot is null order by column_order",
            table,
        )
        names = {row[0]: (row[1], row[4]) for row in rows}

        def path(number: int | None) -> Names:
            return () if number is None else (*path(names[number][1]), names[number][0])

        now = "where table_id = ? and end_snapshot is null"
        deleted = ask(f"select count(*) from ducklake_delete_file {now}", table)[0][0]  # noqa: S608 - as it is above
        inlined = ask("select table_name from ducklake_inlined_data_tables where table_id = ?", table)
        for (name,) in inlined:
            rows_in = f"select count(*) from {delimited(name)} where end_snapshot is null"  # noqa: S608 - a name
            deleted += ask(rows_in)[0][0]
        number = ask(
            "select value from ducklake_tag where object_id = ? and end_snapshot is null and key = ?",
            table,
            str(self.key),
        )
        return _Found(
            table,
            within(self._data, paths),
            {path(row[0]): _Column(row[2], bool(row[3])) for row in rows},
            {path(row[0]): row[0] for row in rows},
            dict(ask(f"select path, data_file_id from ducklake_data_file {now}", table)),  # noqa: S608
            bool(deleted),
            int(number[0][0]) if number else None,
        )

    def _missing(self, ask: Ask) -> _Found:
        paths = ask(
            "select path, path_is_relative from ducklake_schema where end_snapshot is null and schema_name = ?",
            self._schema,
        )
        if not paths:
            hint = f"make it in DuckDB: `create schema {self._schema}`"
            raise StateError(f"the catalogue has no schema '{self._schema}'", place=self.place, hint=hint)
        plain = re.fullmatch(r"\w+", self._table)
        folder = self._table if plain else hashlib.sha256(self._table.encode()).hexdigest()[:32]
        return _Found(-1, within(self._data, [*paths[0], f"{folder}/", True]), {}, {}, {}, altered=False, number=None)

    def publish(
        self, number: int, change: Change, known: CommitRecord | None, announce: Callable[[Sequence[TableFile]], None]
    ) -> None:
        self.make(change.columns, change.former)  # the files need the numbers of the columns; it changes nothing
        super().publish(number, change, known, announce)

    def number(self) -> int | None:
        return self._found.number

    def names(self) -> set[str]:
        if self._found.altered:
            raise strange(self.place, f"another program has changed rows of the table '{self._table}'")
        return {*self._found.files}

    def make(self, columns: Schema, former: Schema | None) -> None:
        self._columns, wanted = columns, _described(columns)
        expected = (wanted, _described(former)) if former is not None else (wanted,)
        if self._found.table >= 0 and self._found.columns not in expected:
            raise other_columns(self.place, "drop")
        self._numbers = dict(self._found.numbers)
        for path in wanted:
            self._numbers.setdefault(path, max(self._numbers.values(), default=0) + 1)

    def writer(self, footer: Mapping[str, str]) -> Write:
        import pyarrow as pa

        self._files.make_directory(self._directory)
        fields = [_numbered(field, (field.name,), self._numbers) for field in arrow_schema(self._columns)]
        return partial(_write, self._directory, self._files, pa.schema(fields, footer or None))

    def adopt(self, name: str, facts: Any) -> None:
        self._written[name] = facts

    def commit(self, number: int, new: Sequence[TableFile], gone: Sequence[str]) -> None:
        found = self._found
        self._files.sync_directory(self._directory)
        with self._catalogue(write=True) as ask:
            now = self._look(ask)
            if (now.table, now.files, now.altered) != (found.table, found.files, found.altered):
                raise overtaken(self.place)
            ((snapshot, schemas, catalogue, files),) = ask(
                "select snapshot_id, schema_version, next_catalog_id, next_file_id from ducklake_snapshot order by snapshot_id desc limit 1"
            )
            snapshot += 1
            table, changes = found.table, []
            if table < 0:
                table, catalogue = catalogue, catalogue + 1
                self._create(ask, snapshot, table)
                schema, name = (each.replace('"', '""') for each in (self._schema, self._table))
                changes.append(f'created_table:"{schema}"."{name}"')
            if wanted := {
                path: each for path, each in _described(self._columns).items() if found.columns.get(path) != each
            }:
                schemas += 1
                _insert(
                    ask, "ducklake_schema_versions (begin_snapshot, schema_version, table_id)", snapshot, schemas, table
                )
                self._alter(ask, snapshot, table, wanted)
                changes += [f"altered_table:{table}"] if found.table >= 0 else []
            for name in gone:
                _end(ask, "ducklake_data_file", snapshot, data_file_id=found.files[name])
            self._add(ask, snapshot, table, files, new)
            changes += [f"inserted_into_table:{table}"] if new else []
            changes += [f"deleted_from_table:{table}"] if gone else []
            _end(ask, "ducklake_tag", snapshot, object_id=table, key=str(self.key))
            _insert(ask, "ducklake_tag", table, snapshot, None, str(self.key), str(number))
            at = datetime.now(UTC).isoformat(" ").replace("+00:00", "+00")
            _insert(ask, "ducklake_snapshot", snapshot, at, schemas, catalogue, files + len(new))
            made = ",".join(changes) or f"altered_table:{table}"
            _insert(ask, "ducklake_snapshot_changes", snapshot, made, "dd", None, None)
            self._found = self._look(ask)
        self._written = {}

    def _create(self, ask: Ask, snapshot: int, table: int) -> None:
        folder = f"{self._found.folder.rpartition('/')[2]}/"
        ask(
            "insert into ducklake_table select ?, ?, ?, null, schema_id, ?, ?, true from ducklake_schema where end_snapshot is null and schema_name = ?",
            table, str(uuid.uuid4()), snapshot, self._table, folder, self._schema,
        )  # fmt: skip
        _insert(ask, "ducklake_table_stats", table, 0, 0, 0)

    def _alter(self, ask: Ask, snapshot: int, table: int, wanted: dict[Names, _Column]) -> None:
        """Insert or replace columns of the table; a wider type keeps a column's number."""
        for path, column in wanted.items():
            number = self._numbers[path]
            _end(ask, "ducklake_column", snapshot, table_id=table, column_id=number)
            described = path[-1], column.type, None, "NULL", column.nullable, self._numbers.get(path[:-1])
            kind = "" if column.type in ("list", "struct") else "literal"
            _insert(ask, "ducklake_column", number, snapshot, None, table, number, *described, kind, "duckdb")

    def _add(self, ask: Ask, snapshot: int, table: int, number: int, new: Sequence[TableFile]) -> None:
        """Add files with the ranges of their values: DuckDB passes files over that have no wanted one."""
        ((row,),) = ask("select next_row_id from ducklake_table_stats where table_id = ?", table)
        for at, piece in enumerate(new, number):
            size, footer, ranges = self._written[piece.name]
            described = piece.name, True, "parquet", piece.rows, size, footer, row
            _insert(ask, "ducklake_data_file", at, table, snapshot, None, None, *described, None, None, None, None)
            row += piece.rows
            for path, facts in ranges:
                _insert(ask, "ducklake_file_column_stats", at, table, self._numbers[path], 0, *facts, None, None)
        total = "(select coalesce(sum({}), 0) from ducklake_data_file where table_id = ? and end_snapshot is null)"
        ask(
            f"update ducklake_table_stats set next_row_id = ?, record_count = {total.format('record_count')}, file_size_bytes = {total.format('file_size_bytes')} where table_id = ?",  # noqa: S608
            row, table, table, table,
        )  # fmt: skip


def _insert(ask: Ask, table: str, *values: Any) -> None:
    """Insert a row into a table of the catalogue."""
    ask(f"insert into {table} values ({', '.join('?' * len(values))})", *values)  # noqa: S608 - a name of ours


def _end(ask: Ask, table: str, snapshot: int, **where: Any) -> None:
    """Have the rows of a table of the catalogue for which this holds count no more from a snapshot on."""
    conditions = "".join(f" and {name} = ?" for name in where)
    query = f"update {table} set end_snapshot = ? where end_snapshot is null{conditions}"  # noqa: S608 - names of ours
    ask(query, snapshot, *where.values())


def _described(columns: Schema) -> dict[Names, _Column]:
    """Return the rows of the catalogue for columns, each before its fields or its elements."""
    found: dict[Names, _Column] = {}

    def describe(path: Names, kind: Type) -> None:
        name = kind.kind if kind.kind in ("list", "struct") else NAMES.get(str(kind.required()))
        found[path] = _Column(name or str(kind.required()).replace(" ", ""), kind.nullable or len(path) > 1)
        if kind.inner is not None:
            describe((*path, "element"), kind.inner)
        for field, each in kind.fields:
            describe((*path, field), each)

    for name, kind in columns.items():
        describe((name,), kind)
    return found


def _numbered(field: pa.Field, path: Names, numbers: dict[Names, int]) -> pa.Field:
    """Return a field with the numbers of the catalogue's columns: DuckDB finds columns in a file by these."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_numbered(kind.value_field, (*path, "element"), numbers))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_numbered(each, (*path, each.name), numbers) for each in kind])
    return pa.field(field.name, kind, field.nullable, {"PARQUET:field_id": str(numbers[path])})


def _write(directory: Path, files: Files, schema: pa.Schema, name: str, rows: pl.DataFrame) -> Any:
    """Write a file of rows; return its size, its footer's size, and the ranges of its columns."""
    import pyarrow.parquet as pq

    data = io.BytesIO()
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema)
    pq.write_table(table, data, compression="zstd")
    whole = data.getvalue()
    files.write(directory / name, whole)
    files.sync(directory / name)
    ranges = [each for field in schema for each in _ranges(field, (field.name,), rows)]
    return len(whole), int.from_bytes(whole[-8:-4], "little"), ranges


def _ranges(field: pa.Field, path: Names, rows: pl.DataFrame) -> Iterator[tuple[Names, Any]]:
    """Yield for each column without parts the number of values, of nulls, the least and the greatest value as text: null where nothing is known."""
    children = [field.type.field(at) for at in range(field.type.num_fields)]
    for child in children:
        yield from _ranges(child, (*path, child.name), rows)
    if not children and len(path) > 1:
        yield path, (None, None, None, None)
    elif not children:
        column = rows[field.name]
        ordered = column.dtype.is_integer() or column.dtype in (pl.Decimal, pl.Date)
        ends = [column.min(), column.max()] if ordered else [None, None]
        texts = [
            None if value is None else f"{value:f}" if column.dtype == pl.Decimal else str(value) for value in ends
        ]
        nulls = column.null_count()
        yield path, (rows.height - nulls, nulls, *texts)

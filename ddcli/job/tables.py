"""Tables of other programs as inputs and outputs of a run: an input is read from its mirror in the state, which a run brings up to the table first; an output follows its log.

If no table is newer, and none is behind its log, that costs a look at a name for each, and no third-party library is imported.
"""

from __future__ import annotations

import hashlib
import os
from configparser import Error, RawConfigParser
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddcli.errors import InputError, StateError, Text, suggestion
from ddcli.expressions.types import Type, parse_type
from ddcli.job.paths import catalog_of, database_file
from ddcli.spec.file import is_given
from ddcli.spec.model import DATABASE, SPARK, TABLE_DIFF, TABLE_TIMES
from ddcli.store.files.access import fs, locate, read_bytes, real
from ddcli.store.files.gate import Files
from ddcli.store.mirrors.delta_commits import has_changed, is_as_left
from ddcli.store.mirrors.mirror import UnknownChange, add, finish_addition, is_finished, log_files, mirror_of, read_mark
from ddcli.store.mirrors.query_reader import Connections
from ddcli.store.state.contents import ours
from ddcli.store.state.document import TABLE, WAITING
from ddcli.store.state.register import keys_of, pick
from ddcli.store.tables.listing import mark_of
from ddcli.store.tables.wider_types import widens
from ddcli.store.targets.mark import directory_of, read_marks, size_and_time
from ddcli.version import check_package

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ddcli.expressions.types import Schema
    from ddcli.spec.model import InputSpec, Spec, TargetSpec
    from ddcli.store.log.rows import RowCondition
    from ddcli.store.mirrors.iceberg import IcebergSource
    from ddcli.store.mirrors.mirror import MirrorCursor
    from ddcli.store.mirrors.query_reader import QueryReader
    from ddcli.store.mirrors.source import DatabaseSource, TableSource
    from ddcli.store.mirrors.spark_table import SparkSource
    from ddcli.store.state.entries import OutputEntry
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.targets.mark import CommitRecord


STARTS = "`dd run FILE --master local[2]` (or your cluster's address), or `ddcli.run(path, spark=session)`; `spark: {master: ...}` in the file names one, too"
"""The ways to a session of Spark."""
TABLE_COLUMNS = {*TABLE_TIMES.values(), TABLE_DIFF}


def at_mirrors(spec: Spec, base: Path, state: Path, *, runs: bool = False) -> Spec:
    """Return the spec with each input that is a table replaced by its mirror in this state, with the mirror's present columns.

    A run finds the columns of a table of Spark when it mirrors it.
    """
    if not any(given.table for given in spec.inputs.values()):
        return spec
    return replace(
        spec,
        inputs={
            name: _at_mirror(given, base, mirror_of(state, name), runs=runs) if given.table else given
            for name, given in spec.inputs.items()
        },
    )


def _at_mirror(given: InputSpec, base: Path, directory: Path, *, runs: bool) -> InputSpec:
    origin = given.origin or given.path
    given = replace(given, path=replace(origin, value=str(directory)), origin=origin)
    mark = read_mark(directory)
    if given.table == SPARK and (mark is None or _lacks_columns(given, mark)):
        return given if runs else with_columns_of(given, declared_columns(given))
    if mark is None:
        return with_columns_of(given, open_table(given, base).columns)
    kinds = {name: parse_type(text) for name, text in mark.columns.items()}
    if _lacks_columns(given, mark):  # the next run mirrors them
        return with_columns_of(given, open_table(given, base).columns)
    return with_columns_of(given, {name: kind for name, kind in kinds.items() if kind is not None})


def _lacks_columns(given: InputSpec, mark: MirrorCursor) -> bool:
    """Return whether a mirror lacks a column that the file declares."""
    return not (given.follows or {*(given.columns or {})} <= mark.columns.keys() | TABLE_COLUMNS)


def declared_columns(given: InputSpec, mark: MirrorCursor | None = None) -> Schema:
    """Return the columns of a table of Spark that its mirror has, or the file declares. Raises InputError where it declares none: only a run asks Spark."""
    if mark is not None and not _lacks_columns(given, mark):
        kinds = {name: parse_type(text) for name, text in mark.columns.items()}
        return {name: kind for name, kind in kinds.items() if kind is not None}
    if given.follows:
        origin = given.origin or given.path
        raise InputError(
            f"inputs.{given.name.value}: no run has read this table of Spark yet, so its columns are unknown",
            span=origin.span,
            hint=f"declare `columns`, or run the pipeline first: {STARTS}",
        )
    return {name: kind for name, (_, kind) in (given.columns or {}).items() if name not in TABLE_COLUMNS}


def with_columns_of(given: InputSpec, columns: Schema) -> InputSpec:
    """Return an input with the columns of its table that the file declares, or all; and its mirror's own."""
    span = given.name.span
    for name, (text, kind) in (given.columns or {}).items() if not given.follows else ():
        actual = columns.get(name)
        if actual is None and name not in TABLE_COLUMNS:
            hint = suggestion(name, columns, f"its columns are: {', '.join(columns)}")
            raise InputError(
                f"inputs.{given.name.value}.columns: the table has no column '{name}'", span=text.span, hint=hint
            )
        if actual is not None and not widens(actual, kind):
            problem = f"inputs.{given.name.value}.columns: '{name}' is {actual.required()} in the table"
            raise InputError(problem, span=text.span, hint=f"declare it so: `{name}: {actual}`")
    own = {TABLE_TIMES["version"]: Type("int64"), TABLE_TIMES["committed"]: Type("datetime", unit="us", zone="UTC")}
    chosen = {name: (Text(name, span), kind) for name, kind in columns.items()} if given.follows else given.columns
    return replace(given, columns={**(chosen or {}), **{name: (Text(name, span), kind) for name, kind in own.items()}})


def open_table(given: InputSpec, base: Path, connections: Connections | None = None) -> TableSource:
    """Return the table that an input names, as it is now. Raises InputError at the input for one that can't be read.

    Tables of one database that are opened by the same `connections` are read as of one moment.
    """
    origin = given.origin or given.path
    try:
        if given.table == "iceberg":
            return _in_catalog(given, origin.value)
        if given.table == "database":
            return _in_database(given, origin.value, base, connections)
        if given.table == "ducklake":
            from ddcli.store.mirrors.ducklake import DuckLakeSource

            assert given.query is not None, "a file names the table"
            check_server(origin.value)
            return DuckLakeSource(origin.value, catalogue_file(origin.value, base), given.query.value)
        if given.table == SPARK:
            return _in_spark(given, connections.session if connections else None)
        from ddcli.store.mirrors.delta import DeltaSource

        return DeltaSource(real(locate(base, origin.value)))
    except InputError as error:
        raise InputError(f"inputs.{given.name.value}: {error.problem}", span=origin.span, hint=error.hint) from None


def _in_catalog(given: InputSpec, name: str) -> IcebergSource:
    from ddcli.store.mirrors.iceberg import IcebergSource

    catalog, properties = catalog_of(given.catalog)
    check_catalog(properties)
    return IcebergSource(name, catalog, properties)


def _in_spark(given: InputSpec, session: Any) -> SparkSource:
    if session is None:
        raise InputError("this is a table of Spark, and no Spark is named to read it", hint=STARTS)
    from ddcli.store.mirrors.spark_table import SparkSource

    origin = given.origin or given.path
    return SparkSource(session, None if given.query else origin.value, given.query.value if given.query else "")


def _in_database(given: InputSpec, uri: str, base: Path, connections: Connections | None) -> DatabaseSource:
    from ddcli.store.mirrors.source import DatabaseSource

    assert given.query is not None, "a file names a table or a query"
    query, cursor = given.query.value, given.cursor.value if given.cursor else None
    declared = {} if given.follows else {name: kind for name, (_, kind) in (given.columns or {}).items()}
    key = tuple(text.value for text in given.unique)
    named = None if given.follows else {*declared, *key, *([cursor] if cursor else [])}
    reader: QueryReader
    if uri.startswith("postgres"):
        from ddcli.store.mirrors.server_databases import PostgresReader

        check_package("psycopg")
        check_server(uri)
        reader = PostgresReader(uri, query, declared, named, connections)
    elif uri.startswith("mysql"):
        from ddcli.store.mirrors.server_databases import MysqlReader

        check_server(uri)
        reader = MysqlReader(uri, query, declared, named, connections)
    elif uri.startswith("duckdb"):
        from ddcli.store.mirrors.file_databases import DuckdbReader

        reader = DuckdbReader(uri, real(locate(base, database_file(uri))), query, named)
    else:
        from ddcli.store.mirrors.file_databases import SqliteReader

        reader = SqliteReader(uri, real(locate(base, database_file(uri))), query, declared, named)
    return DatabaseSource(reader, query, cursor, key)


def is_behind(spec: Spec, base: Path, session: Any = None) -> bool:
    """Return whether a table seems to have changed since it was mirrored. Without a session of Spark its tables count as they were."""
    connections = Connections(session)
    for given in spec.inputs.values():
        if given.origin is not None:
            directory = locate(base, given.path.value)
            mark = read_mark(directory)
            if mark is None or not is_finished(directory, mark) or _has_changed(given, base, mark, connections):
                return True
    return False


def _has_changed(given: InputSpec, base: Path, mark: MirrorCursor, connections: Connections | None = None) -> bool:
    """Return whether a table seems to have changed since its mark. For Delta Lake that takes a look at a name, for others a question to the catalog, or to the database's file."""
    assert given.origin is not None, "the input is at its mirror"
    if given.table == "delta":
        return has_changed(real(locate(base, given.origin.value)), mark.version, mark.tip)
    if given.table == SPARK and (connections is None or connections.session is None):
        return False
    source = open_table(given, base, connections)
    columns = {name: str(kind) for name, kind in source.columns.items()}
    return (source.tip, columns) != (mark.tip, mark.columns) or any(source.renamed(mark, name) for name in columns)


def mirror_tables(
    spec: Spec, base: Path, state: Path, files: Files, manifest: Manifest | None, session: Any = None
) -> Spec:
    """Bring the mirrors up to their tables, and return the spec with the columns that these have then. Needs the state's lock.

    Updates that failed runs added, which are not in the state of `manifest`, are added up with newer ones: where all of them have
    one time, a row that has come and gone since the last commit is left out.
    """
    with Connections(session) as connections:
        for given in spec.tables.values():
            _mirror(given, base, files, manifest, connections)
    return at_mirrors(spec, base, state)


def refuse_rows_there(spec: Spec, base: Path, manifest: Manifest, conditions: Mapping[str, RowCondition]) -> None:
    """Raise StateError for a table that has rows for which a condition holds: they would come back. Rows that it once had are in its mirror, with their retractions.

    A mirror by cursor sees no row go, so the table itself is asked.
    """
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.mirrors.source import count_left, count_selected, frames_of

    for name, condition in conditions.items():
        given = spec.inputs[name]
        if not given.table:
            continue
        directory, entry = locate(base, given.path.value), manifest.inputs[name]
        columns, taken = LogSchema.from_json(entry.schema).columns, {file.path for file in entry.files}
        newer = [path for path in log_files(directory) if path.name not in taken]
        problem = (
            "has changed such rows since the last run" if count_selected(frames_of(newer), condition, columns) else ""
        )
        if given.cursor is not None:
            _, rows = open_table(given, base).whole()
            assert not callable(rows), "a table with a cursor is in a database"
            count = count_selected(rows, condition, columns)
        else:
            count = count_left([directory / path for path in taken], condition, columns)
        if count or problem:
            raise StateError(
                f"the table of the input '{name}' {problem or f'still has such rows ({count:,} different ones)'}",
                span=(given.origin or given.path).span,
                hint="delete them there, have `dd run` take that in, and repeat this command: otherwise they would come back",
            )


def _mirror(given: InputSpec, base: Path, files: Files, manifest: Manifest | None, connections: Connections) -> None:
    """Bring the mirror of a table up to it."""
    directory = locate(base, given.path.value)
    finish_addition(directory, files)
    mark = read_mark(directory)
    if mark is None or _has_changed(given, base, mark, connections):
        source = open_table(given, base, connections)
        taken, rest = _parts(directory, given, manifest)
        try:
            if mark is None or (rest and not taken):
                end, frames = source.whole()
                add(directory, files, frames, end, rest)
            elif (found := source.changes(mark, taken, stepwise=not given.arrives)) is not None:
                end, frames = found
                if rest and not source.counts_from_rows:
                    frames = source.joined(rest, frames, end)
                add(directory, files, frames, end, rest)
        except UnknownChange as unknown:  # the log or a file is gone
            if mark is None:
                raise _incomplete(source, unknown) from None
            try:
                end, frames = source.difference(mark, taken)
                add(directory, files, frames, end, rest)
            except UnknownChange as still:
                raise _incomplete(source, still) from None


def _incomplete(source: TableSource, unknown: UnknownChange) -> InputError:
    """Return the error for a table whose newest version can't be read, as it lacks a file."""
    lacking = f": {unknown}" if str(unknown) else ""
    return InputError(
        f"a file of the table is gone{lacking}",
        place=source.place,
        hint="put the file back from a backup, or the table to a version without it",
    )


def _parts(directory: Path, given: InputSpec, manifest: Manifest | None) -> tuple[list[Path], list[Path]]:
    """Return the files of a mirror that stay, and those after them, which no state has taken in: later updates may be added up with these."""
    found = log_files(directory)
    entry = manifest.inputs.get(given.name.value) if manifest else None
    known = {file.path for file in entry.files} if entry else set()
    first = max((at + 1 for at, path in enumerate(found) if path.name in known), default=0)
    return (found[:first], found[first:]) if given.arrives else (found, [])


@contextmanager
def mirror_apart(
    spec: Spec, base: Path, manifest: Manifest | None, session: Any = None, kept: Collection[str] = ()
) -> Iterator[Spec]:
    """Yield the spec with mirrors that are brought up to their tables in a directory apart, as a run would find them; those in `kept` stay as they are, if they have all columns."""

    def stays(given: InputSpec) -> bool:
        mark = read_mark(locate(base, given.path.value)) if given.name.value in kept else None
        return mark is not None and not _lacks_columns(given, mark)

    moved = replace(spec, inputs={name: given for name, given in spec.tables.items() if not stays(given)})
    if not is_behind(moved, base, session):
        yield spec
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="dd-tables-") as name:
        apart = Path(name)
        for given in moved.tables.values():
            directory = mirror_of(apart, given.name.value)
            directory.mkdir(parents=True)
            _copy(locate(base, given.path.value), directory)
        moved = at_mirrors(moved, base, apart, runs=session is not None)
        moved = mirror_tables(moved, base, apart, Files(), manifest, session)
        yield replace(spec, inputs=spec.inputs | moved.inputs)


def _copy(mirror: Path, directory: Path) -> None:
    """Copy a mirror to another directory: its log by links, which cost nothing."""
    mark = read_mark(mirror)
    if mark is None:
        return
    (directory / TABLE).write_bytes(read_bytes(mirror / TABLE))
    for path in (*log_files(mirror), *ours(mirror, WAITING)):
        if fs(path).is_local:
            (directory / path.name).symlink_to(path)
        else:
            (directory / path.name).write_bytes(path.read_bytes())


LOCAL = {"", "localhost", "127.0.0.1", "::1"}
"""The names of this machine; directories with a socket are on it, too."""


def check_server(uri: str) -> None:
    """Raise InputError if a password of the environment would go to a server that only the file names."""
    if is_given(uri):
        return
    if uri.startswith("mysql"):
        options = _client_options()
        own = [os.environ.get("MYSQL_HOST", ""), options.get("host", "")]
        source = "MYSQL_PWD" if os.environ.get("MYSQL_PWD") else "~/.my.cnf" if options.get("password") else ""
        _check([urlsplit(uri).hostname or ""], own, source, "MYSQL_HOST")
    elif uri.startswith("postgres"):
        from psycopg.conninfo import conninfo_to_dict

        _check_postgres(str(conninfo_to_dict(uri).get("host") or "").split(","))


def check_catalog(properties: Mapping[str, str]) -> None:
    """Raise InputError if a password of the environment would go to the server of a catalog that a file describes."""
    uri = properties.get("uri", "")
    if uri.startswith("postgres") and not is_given(uri):
        from sqlalchemy.engine import make_url

        _check_postgres([make_url(uri).host or ""])


def _check_postgres(hosts: Iterable[str]) -> None:
    _check(hosts, os.environ.get("PGHOST", "").split(","), _password_of_postgres(), "PGHOST")


def _password_of_postgres() -> str:
    """Return the name of the place with a password that libpq would send to any server; a line of ~/.pgpass is for the host that it names."""
    for variable in ("PGPASSWORD", "PGSERVICE"):
        if os.environ.get(variable):
            return variable
    named = os.environ.get("PGPASSFILE") or os.path.expanduser("~/.pgpass")  # noqa: PTH111 - `Path.expanduser` is an error where the user has no home
    try:
        lines = Path(named).read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return f"{named}, which has a line for all hosts," if any(line.startswith("*:") for line in lines) else ""


def _client_options() -> Mapping[str, str]:
    """Return the options of [client] in ~/.my.cnf, which a connection has."""
    found = RawConfigParser(allow_no_value=True, strict=False)
    try:
        found.read(os.path.expanduser("~/.my.cnf"), "utf-8")  # noqa: PTH111 - as above
    except (Error, OSError, UnicodeDecodeError):
        return {"password": "?"}
    return {name: value or "" for name, value in found["client"].items()} if found.has_section("client") else {}


def _check(hosts: Iterable[str], own: Iterable[str], source: str, variable: str) -> None:
    known = {*LOCAL, *(host.strip("'\"").lower() for host in own)}
    for host in hosts:
        if source and host.lower() not in known and not host.startswith("/"):
            more = "; or write it to ~/.pgpass, with this host" if variable == "PGHOST" else ""
            raise InputError(
                f"the password of {source} would go to '{host}', which only the pipeline file names",
                hint=f"if it is yours, set {variable}={host}, or the whole URI as a variable: `${{DATABASE}}`{more}",
            )


def catalogue_file(uri: str, base: Path) -> Path:
    """Return the file of a catalogue of DuckLake; of one on a server a name in the directory where relative paths begin."""
    return real(locate(base, database_file(uri) or "catalogue"))


def is_followed(spec: Spec, base: Path, state: Path, manifest: Manifest) -> bool:
    """Return whether the tables of all outputs seem to be up to their logs, and as their last commits left them."""
    for name, output in spec.outputs.items():
        if output.target is None or name not in manifest.outputs:
            continue
        marks = read_marks(directory_of(state, name))
        if marks.done is None or marks.next is not None:
            return False
        if place_in(manifest.outputs[name], output.target, base) != (marks.done.log, marks.done.upto):
            return False
        if not _is_as_left(output.target, base, marks.done):
            return False
    return True


def place_in(log: OutputEntry, target: TargetSpec, base: Path) -> tuple[str, int]:
    """Return the end of a log: its identity, and the commit that wrote to it last. The identity is another one for each form of a history, and each file that it begins from."""
    keys = [*keys_of(log.files)][-1:]
    identity = log.log
    if target.history:
        parts = [log.log, *([text.value for text in columns] for columns in (target.history, target.track))]
        if target.begin is not None:
            parts.append(_beginning(real(locate(base, target.begin.value))))
        form = repr(tuple(parts))
        identity = hashlib.sha256(form.encode()).hexdigest()[:16]
    return identity, max((file.commit for file in pick(log.files, keys)), default=0)


def _beginning(path: Path) -> list[Any]:
    """Return the identity of a file's content, of an object its tag; without one the history can't be written."""
    try:
        return [str(path), size_and_time(path) or mark_of(path, 0)]
    except FileNotFoundError:
        return [str(path), {}]


def place_of(target: TargetSpec, base: Path) -> Path:
    """Return the path of a table that is in no catalog, or of the file of its database."""
    path = database_file(target.place.value) if target.kind == DATABASE else target.place.value
    return real(locate(base, path))


def stated(target: TargetSpec) -> dict[str, Any]:
    """Return a table's place in a database, or in Spark with its key, as the file states it: anything more would need a server's answer."""
    if target.kind == SPARK:
        return {SPARK: target.place.value, "key": [text.value for text in target.key]}
    return {"to": target.place.value, "table": target.called}


def _is_as_left(target: TargetSpec, base: Path, mark: CommitRecord) -> bool:
    if target.kind == "delta":
        return is_as_left(place_of(target, base), mark.left)
    if target.kind == DATABASE:
        return mark.left == stated(target) and (target.product == "postgres" or fs(place_of(target, base)).exists())
    if target.kind == SPARK:
        return {name: mark.left.get(name) for name in stated(target)} == stated(target)
    if target.kind == "parquet":
        path = place_of(target, base)
        return fs(path).exists() and mark.left == size_and_time(path)
    return True

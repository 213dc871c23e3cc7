"""The target of a name: a database by its URI or its file's ending, else a directory; never a file of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import DdError, UsageError, masked
from ddcli.feed.database_target import DatabaseFeed
from ddcli.feed.parquet_target import ParquetFeed
from ddcli.job.paths import takes
from ddcli.screen import near
from ddcli.store.files.access import is_there, naming, real
from ddcli.store.files.objects import ObjectPath, locate
from ddcli.store.log.progress import PROGRESS
from ddcli.store.state.manifest import NAME as MANIFEST
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.pipeline_file import file_of
from ddcli.store.tables.input_path import ONLY_NAMED, SUFFIXES

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.feed.target import FeedTarget, Subscription
    from ddcli.store.targets.postgres_database import PostgresDatabase

SQLITE, DUCKDB = (".db", ".sqlite", ".sqlite3"), (".duckdb",)
POSTGRES = ("postgresql://", "postgres://")
ENDINGS = "FILE.duckdb, FILE.db, FILE.sqlite or postgresql://..."


def check_table(text: str, table: str) -> None:
    """Refuse a table's name if the target isn't a database, or the name is empty (UsageError)."""
    if not text.lower().endswith((*SQLITE, *DUCKDB)) and not text.startswith(POSTGRES):
        raise UsageError("--table is for a database", hint=f"name one with --into {ENDINGS}")
    if not table:
        raise UsageError("--table is empty", hint="name the table, or leave --table out")


def check_inputs(text: str, base: Path, state: Path) -> None:
    """Refuse a target among the files of an input of this state's pipeline: its next run would take the changes in, or refuse their file (UsageError)."""
    from ddcli.plan.pipeline_file import parse_spec

    manifest = read_newest(state)
    file = file_of(state, manifest) if manifest is not None else None
    if file is None or not is_there(file) or not text or text.startswith(POSTGRES):
        return
    try:
        with naming(file):
            spec = parse_spec(file.read_text(), str(file))
    except (DdError, UnicodeDecodeError):
        return  # a run reports its errors
    path = real(locate(base, text))
    written = path if path.suffix.lower() in (*SQLITE, *DUCKDB) else path / "changes.parquet"
    for name, given in spec.inputs.items():
        if given.in_files and takes(real(locate(file.parent, given.path.value)), written):
            raise UsageError(
                f"the target is among the files of the input '{name}' of {near(str(file))}",
                place=text,
                hint="deliver to another place",
            )


def open_target(text: str, table: str, subscription: Subscription, base: Path) -> FeedTarget:
    """Return the target of a name, relative to `base`: a database's file by its ending, else a directory; `table` is one in a database.

    A name with the ending of a table's file is refused, as it can't mean a directory. No target may lie in the directory of an output
    or of a state, which only have the files of their pipelines.
    """
    if not text:
        raise UsageError("--into is empty", hint=f"name a directory, or a database: {ENDINGS}")
    if text.startswith(POSTGRES):
        return DatabaseFeed(_postgres(text), table.split("."), subscription)
    path = locate(base, text)
    if isinstance(path, ObjectPath):
        raise UsageError(
            "changes are delivered to this machine only",
            place=text,
            hint="name a directory or a database's file here, or postgresql://...",
        )
    whole = real(path)
    for folder in (whole, *whole.parents):
        if (folder / PROGRESS).exists():
            raise UsageError(
                f"the target is in a directory of an output, '{folder}': the pipeline would refuse files of others there",
                place=text,
                hint="deliver to another place",
            )
        if any(MANIFEST.fullmatch(each.name) for each in (folder / "manifest").glob("*.json")):
            raise UsageError(
                f"the target is in a state, '{folder}', which has only files of its own",
                place=text,
                hint="deliver to another place",
            )
    if path.suffix.lower() in DUCKDB:
        from ddcli.store.targets.duckdb_database import DuckdbDatabase

        return DatabaseFeed(DuckdbDatabase(path), [table], subscription)
    if path.suffix.lower() in SQLITE:
        from ddcli.store.targets.sqlite_database import SqliteDatabase

        return DatabaseFeed(SqliteDatabase(path), [table], subscription)
    if path.name.lower().endswith((*SUFFIXES, *ONLY_NAMED)):
        raise UsageError(
            "changes are delivered to a directory of Parquet files or a database",
            place=text,
            hint=f"name a directory, or a database with {ENDINGS}",
        )
    return ParquetFeed(path, subscription)


def _postgres(uri: str) -> PostgresDatabase:
    """Return the database of a URI, which must not have a password: other users may see the command line."""
    if masked(uri) != uri:
        hint = "leave it out: libpq takes it from the variable PGPASSWORD or the file ~/.pgpass"
        raise UsageError("a database's URI has no password in it", hint=hint)
    from ddcli.store.targets.postgres_database import PostgresDatabase

    return PostgresDatabase(uri)

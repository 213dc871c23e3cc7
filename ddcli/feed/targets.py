"""The target of a name: a database by its URI or its file's ending, else a directory; never a file of another kind."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from ddcli.errors import DdError, EngineError, StateError, UsageError, masked
from ddcli.feed.database_target import DatabaseFeed, Subscription, check_subscription, numbered, overtaken
from ddcli.job.paths import takes
from ddcli.screen import near
from ddcli.store.files.access import is_there, naming, real
from ddcli.store.files.gate import TEMPORARY
from ddcli.store.files.objects import ObjectPath, locate
from ddcli.store.log.progress import PROGRESS
from ddcli.store.state.manifest import NAME as MANIFEST
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.names import count_of
from ddcli.store.state.outputs import file_of
from ddcli.store.tables.input_path import ONLY_NAMED, SUFFIXES

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.feed.database_target import Delivery, FeedTarget
    from ddcli.store.targets.postgres_database import PostgresDatabase


META = b"dd.feed"
"""The key of a file's positions and subscription in its metadata."""
NAME = re.compile(r"changes-([0-9]{9,19})\.parquet", re.ASCII)
WAITING = re.compile(rf"\.{NAME.pattern}\.[0-9a-f]{{8}}{re.escape(TEMPORARY)}", re.ASCII)
"""The name of a file until it is whole."""


class ParquetFeed:
    """A directory of Parquet with a file for each delivery, named by the position where it begins, so that no two begin at the same one.

    A file appears whole, under a name that must be new. A reader of all files, through a glob, sees whole deliveries.
    """

    def __init__(self, path: Path, subscription: Subscription) -> None:
        self.path, self.place = path, str(path)
        self._subscription = subscription

    def position(self) -> int:
        """Return the position at the end of the last file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            names = [name for name in os.listdir(self.path) if NAME.fullmatch(name)]  # noqa: PTH208 - names are enough
            if not names:
                return 0
            last = self.path / max(names, key=lambda name: int(NAME.fullmatch(name)[1]))  # type: ignore[index]
            metadata = pq.read_metadata(last).metadata or {}
            tree = json.loads(metadata[META])
            position, found = count_of(tree["position"]), tuple(tree[name] for name in Subscription._fields)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StateError(f"the target can't be read: {error.strerror}", place=self.place) from None
        except (pa.ArrowException, KeyError, ValueError, TypeError, RecursionError):
            hint = "deliver to another directory, or remove the file if it does not belong here"
            raise StateError("`dd feed` did not write this file of changes", place=str(last), hint=hint) from None
        check_subscription(found, self._subscription, self.place)
        return position

    def add(self, delivery: Delivery) -> None:
        """Add a file, which is flushed before it gets its name."""
        import pyarrow.parquet as pq

        if self.position() != delivery.since:
            raise overtaken(self.place)
        tree = self._subscription._asdict() | {"since": delivery.since, "position": delivery.position}
        table = numbered(delivery).to_arrow()
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), META: json.dumps(tree)})
        final = self.path / f"changes-{delivery.since:09d}.parquet"
        waiting = self.path / f".{final.name}.{os.urandom(4).hex()}{TEMPORARY}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                with waiting.open("xb") as file:
                    pq.write_table(table, file, compression="zstd")
                    file.flush()
                    os.fsync(file.fileno())
                final.hardlink_to(waiting)
                _flush(self.path)
            finally:
                for path in (waiting, *self._unfinished()):
                    path.unlink(missing_ok=True)
        except (FileExistsError, FileNotFoundError):
            raise overtaken(self.place) from None
        except OSError as error:
            raise EngineError(f"the changes can't be written: {error.strerror}", place=self.place) from None

    def _unfinished(self) -> list[Path]:
        """Return the unfinished files of processes that died, or were overtaken by another."""
        return [self.path / name for name in os.listdir(self.path) if WAITING.fullmatch(name)]  # noqa: PTH208 - as above


def _flush(directory: Path) -> None:
    """Flush a directory's names to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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

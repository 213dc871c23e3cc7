"""Targets that get each change exactly once: a directory of Parquet, or a table of a database, each with its position.

The position is committed together with the rows, in one Parquet file or in one transaction. So a process that is killed
has delivered all or nothing, and of two that deliver the same changes one succeeds. A target belongs to one consumer of one log. A database is named by its URI or
its file's ending, anything else is a directory, and never a file of another kind.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from ddcli.dataclass import frozen
from ddcli.errors import DdError, EngineError, LockedError, StateError, UsageError, first_line, masked
from ddcli.expressions.tree import delimited
from ddcli.expressions.types import from_polars
from ddcli.job.paths import takes
from ddcli.plan.checks import TABLES, holds, too_long_name
from ddcli.screen import near
from ddcli.store.files.access import fs, locate, naming, real
from ddcli.store.files.gate import TEMPORARY, Files
from ddcli.store.state.consumers import token
from ddcli.store.state.document import PROGRESS, count_of
from ddcli.store.state.manifest import NAME as MANIFEST
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import file_of
from ddcli.store.tables.input_path import ONLY_NAMED, SUFFIXES
from ddcli.store.targets.database import DuckdbDatabase, PostgresDatabase, SqliteDatabase, full_name
from ddcli.store.targets.database_table import LedgerTable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.store.targets.database import Database


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
        """Return the position at the end of the last file; 0 without one. Raises StateError if the directory belongs to another subscription."""
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
        """Add a file, which is flushed before it gets its name. Raises LockedError if the last one doesn't end where the changes begin."""
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
                Files().sync_directory(self.path)
            finally:
                # Processes that died, or were overtaken by another, have left some, too.
                for name in filter(WAITING.fullmatch, os.listdir(self.path)):  # noqa: PTH208 - names are enough
                    (self.path / name).unlink(missing_ok=True)
        except (FileExistsError, FileNotFoundError):
            raise overtaken(self.place) from None
        except OSError as error:
            raise EngineError(f"the changes can't be written: {error.strerror}", place=self.place) from None


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
    if file is None or not fs(file).exists() or not text or text.startswith(POSTGRES):
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


def open_target(text: str, table: str, subscription: Subscription, base: Path) -> ParquetFeed | DatabaseFeed:
    """Return the target of a name, relative to `base`: a database's file by its ending, else a directory; `table` is one in a database.

    A name with the ending of a table's file is refused, as it can't mean a directory. No target may lie in the directory of an output
    or of a state, which only have the files of their pipelines.
    """
    if not text:
        raise UsageError("--into is empty", hint=f"name a directory, or a database: {ENDINGS}")
    if text.startswith(POSTGRES):
        return DatabaseFeed(_postgres(text), table.split("."), subscription)
    path = locate(base, text)
    if not fs(path).is_local:
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
    if path.suffix.lower() in (*DUCKDB, *SQLITE):
        database = (DuckdbDatabase if path.suffix.lower() in DUCKDB else SqliteDatabase)(path)
        return DatabaseFeed(database, [table], subscription)
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
    return PostgresDatabase(uri)


POSITION = "_position"
"""The column with the position up to which a row brings the target."""


class Subscription(NamedTuple):
    """The source and the reader of a feed: a consumer, and the log of a state that it reads."""

    consumer: str
    state: str
    log: str


def check_subscription(found: tuple[str, ...], subscription: Subscription, place: str) -> None:
    """Refuse a target of another consumer or another log (StateError)."""
    if found == tuple(subscription):
        return
    same = found[:1] == subscription[:1]
    raise StateError(
        "the output was rewritten since this was delivered, or is another one"
        if same
        else f"it is of consumer '{found[0]}'",
        place=place,
        hint="deliver to another place"
        + (", or remove this one and `--drop` the consumer: both start again" if same else ""),
    )


def numbered(delivery: Delivery) -> pl.DataFrame:
    """Return the changes with a column of their position."""
    if POSITION in delivery.changes.columns:
        raise UsageError(
            f"the output has a column '{POSITION}', which is the target's own", hint="rename the output's column"
        )
    return delivery.changes.with_columns(pl.lit(delivery.position, pl.Int64).alias(POSITION))


def overtaken(place: str) -> LockedError:
    """Return the error for a target that is no longer at the position where the changes begin."""
    hint = "run again to deliver the new changes"
    return LockedError("another process has delivered these changes first", place=place, hint=hint)


@frozen
class Delivery:
    """The changes of an output from one position to another, netted: each record once, with the sum of its diffs."""

    since: int
    position: int
    changes: pl.DataFrame
    files: int

    @property
    def token(self) -> str:
        """The token that acknowledges the delivery."""
        return token(self.since, self.position)


FEEDS = "dd_feeds"
"""The table with the positions and consumers of the target tables beside it."""
KINDS = "target varchar primary key, consumer varchar, state varchar, log varchar, position bigint, form bigint"
WIDTHS = (("tinyint", "smallint", "integer", "bigint"), ("real", "float", "double", "double precision"))
"""The types of numbers by their size, as databases write them."""
FORM = 1
"""The version of the format of values."""
WANTED = "dd_wanted"
"""The temporary table with the columns of the changes."""


class DatabaseFeed(LedgerTable):
    """A table in a database, whose rows and position, in the table `dd_feeds` beside it, are written in one transaction."""

    def __init__(self, database: Database, table: Sequence[str], subscription: Subscription) -> None:
        if table[-1].lower() in TABLES:
            raise UsageError(f"'{table[-1]}' is a table that `dd` itself makes", hint="name another one with --table")
        for part in table:
            if too_long := too_long_name(database.name.lower(), part):
                raise UsageError(too_long, hint="name a shorter one with --table")
        super().__init__(database, table, FEEDS)
        self._subscription = subscription
        self.place = f"{database.place}: {'.'.join(table)}"

    def position(self) -> int:
        """Return the position of the table; 0 if there is none. Raises StateError if it belongs to another subscription."""
        if not self._database.is_there():
            return 0
        with self._transaction(write=False) as connection:
            return self._position(connection, self._find_table(connection))

    def add(self, delivery: Delivery) -> None:
        """Add rows and the position in one transaction. Raises LockedError if the table is not at the position where they begin."""
        frame = numbered(delivery)
        self._check(frame)
        frame = frame.select(self._held(column) for column in frame)
        kinds = {name: kind for name, dtype in frame.schema.items() if (kind := from_polars(dtype, nullable=True))}
        with self._transaction(write=True) as connection:
            there = self._find_table(connection)
            self._database.exclude_others(connection, self._ledger)
            connection.execute(f"create table if not exists {full_name(self._ledger)} ({KINDS})")
            if self._position(connection, there) != delivery.since:
                raise overtaken(self.place)
            self._make(connection, kinds, there=there)
            self._database.load(connection, self._table, frame)
            facts = self._subscription._asdict() | {"position": delivery.position, "form": FORM}
            self._note(connection, {"target": self._parts[-1]}, facts, known=self._row(connection) is not None)

    def _position(self, connection: Any, there: bool) -> int:
        found = self._row(connection)
        if found is None and there:
            hint = "name another table with --table: this one was not made by a feed"
            raise StateError("the table exists, but has no position", place=self.place, hint=hint)
        if found is None:
            return 0
        if found.get("form") != FORM:
            raise StateError(
                "another version of `dd` wrote the table", place=self.place, hint="deliver to another table"
            )
        position = found["position"]
        if type(position) is not int or position < 0:
            raise StateError(f"the position in {FEEDS} is invalid", place=self.place, hint="deliver to another table")
        check_subscription(tuple(found[name] for name in self._subscription._fields), self._subscription, self.place)
        return position

    def _row(self, connection: Any) -> dict[str, Any] | None:
        """Return the row of `dd_feeds` for this target."""
        return next((each for each in self._entries(connection) if each["target"] == self._parts[-1]), None)

    def _make(self, connection: Any, kinds: Schema, *, there: bool) -> None:
        """Create the table, or give it the columns and wider types that the output has got; refuse one with others."""
        listed = ", ".join(self._database.declared(kinds))
        if not there:
            connection.execute(f"create table {self._table} ({listed})")
            return
        connection.execute(f"create temporary table {WANTED} ({listed}){self._database.fleeting}")
        have, want = (dict(self._database.columns(connection, parts)) for parts in (self._parts, [WANTED]))
        for name, kind in want.items():
            if name not in have:
                change = f"add column {delimited(name)} {kind}"
            elif have[name] == kind:
                continue
            elif _is_wider(kind.lower(), have[name].lower()):
                change = f"alter column {delimited(name)} set data type {kind}"
            else:
                raise self._other_columns()
            connection.execute(f"alter table {self._table} {change}")
        if have.keys() - want.keys():
            raise self._other_columns()

    def _other_columns(self) -> StateError:
        hint = "name another one with --table"
        return StateError("the table has other columns than the output", place=self.place, hint=hint)

    def _check(self, frame: pl.DataFrame) -> None:
        """Refuse values that the database would change."""
        for column in frame:
            kind = from_polars(column.dtype, nullable=True)
            product = self._database.name.lower()
            held = kind is not None and (product == "sqlite" or holds(product, kind, fed=True))
            problem = self._unfit(column) if held else str(column.dtype)
            if problem:
                hint = "cast it in the pipeline, to a string for example, or deliver to a directory of Parquet"
                name = self._database.name
                raise UsageError(
                    f"{name} can't hold the column '{column.name}' as it is: {problem}", place=self.place, hint=hint
                )

    def _unfit(self, column: pl.Series) -> str:
        """Return the problem of a column whose values SQLite would change, such as NaN, which becomes null."""
        if self._database.name != "SQLite":
            return ""
        if column.dtype.is_float() and column.is_nan().any():
            return "NaN in some rows"
        return "too large in some rows" if column.dtype == pl.UInt64() and (column > (1 << 63) - 1).any() else ""

    def _held(self, column: pl.Series) -> pl.Series:
        """Return a column as SQLite holds it: values of a type that SQLite lacks are text, as in CSV."""
        if self._database.name == "SQLite" and isinstance(column.dtype, pl.List | pl.Struct | pl.Duration | pl.Time):
            from ddcli.render.rows import as_text

            return as_text(column)
        return column

    def _transaction(self, *, write: bool) -> AbstractContextManager[Any]:
        def refusal(error: Exception) -> DdError:
            if self._database.is_busy(error):
                return LockedError(
                    "another process is writing to the database", place=self._database.place, hint="try again"
                )
            return EngineError(f"{self._database.name} refuses the changes: {first_line(error)}", place=self.place)

        return self._database.guarded(refusal, write=write)


def _is_wider(kind: str, than: str) -> bool:
    """Return whether a type of a database holds all values of another one of its kind.

    >>> _is_wider("bigint", "integer"), _is_wider("decimal(12,2)", "decimal(10,2)"), _is_wider("decimal(12,4)", "decimal(12,2)")
    (True, True, False)
    """
    digits = [re.fullmatch(r"(?:decimal|numeric)\((\d+), *(\d+)\)", each) for each in (kind, than)]
    if digits[0] and digits[1]:
        (precision, scale), (before, digits_before) = ((int(each[1]), int(each[2])) for each in digits if each)
        return scale >= digits_before and precision - scale >= before - digits_before
    return any(kind in sizes and than in sizes and sizes.index(kind) > sizes.index(than) for sizes in WIDTHS)

"""The target that a name means: a database by its ending, else a directory; never a file of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import UsageError
from ddcli.feed.database_target import DuckdbFeed, SqliteFeed
from ddcli.feed.parquet_target import ParquetFeed
from ddcli.store.files.access import real
from ddcli.store.files.objects import ObjectPath, locate
from ddcli.store.log.progress import PROGRESS
from ddcli.store.tables.input_path import ONLY_NAMED, SUFFIXES

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.feed.target import FeedTarget, Subscription

DATABASES = {".duckdb": DuckdbFeed, ".db": SqliteFeed, ".sqlite": SqliteFeed, ".sqlite3": SqliteFeed}


def check_table(text: str, table: str) -> None:
    """Refuse a table's name where the target isn't a database, or where the name is empty (UsageError)."""
    if not text.lower().endswith(tuple(DATABASES)):
        raise UsageError("--table is for a database", hint="name one with --into FILE.duckdb, FILE.db or FILE.sqlite")
    if not table:
        raise UsageError("--table is empty", hint="name the table, or leave --table out")


def open_target(text: str, table: str, subscription: Subscription, base: Path) -> FeedTarget:
    """Return the target of a name, relative to `base`: a database's file by its ending, else a directory; `table` is one in a database.

    A name with the ending of a file of tables means no directory, and is refused. No target may lie in the directory of an output, which has the files of its pipeline and no others.
    """
    path = locate(base, text)
    if isinstance(path, ObjectPath):
        raise UsageError(
            "changes are delivered to this machine only", place=text, hint="name a directory or a database here"
        )
    whole = real(path)
    for folder in (whole, *whole.parents):
        if (folder / PROGRESS).exists():
            raise UsageError(
                f"the target is in a directory of an output, '{folder}': the pipeline would refuse files of others there",
                place=text,
                hint="deliver to another place",
            )
    database = DATABASES.get(path.suffix.lower())
    if database is not None:
        return database(path, table, subscription)
    if path.name.lower().endswith((*SUFFIXES, *ONLY_NAMED)):
        raise UsageError(
            "changes are delivered to a directory of Parquet files or a database",
            place=text,
            hint="name a directory, or a database with FILE.duckdb, FILE.db or FILE.sqlite",
        )
    return ParquetFeed(path, subscription)

"""The table of a database that follows an output."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ddcli.job.output_tables import place_of, stated
from ddcli.job.passwords import check_server
from ddcli.store.targets.database_table import DatabaseTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from ddcli.spec.model import TargetSpec
    from ddcli.store.targets.database import Database
    from ddcli.store.targets.target import CommitKey


@contextmanager
def opened_table(spec: TargetSpec, base: Path, key: CommitKey, outputs: Collection[str]) -> Iterator[DatabaseTable]:
    """Yield the table that one of a pipeline's outputs names. Only the modules of its database are imported."""
    database: Database
    if spec.product == "postgres":
        from ddcli.store.targets.postgres_database import PostgresDatabase

        database = PostgresDatabase(spec.place.value)
        check_server(spec.place.value)
    elif spec.product == "duckdb":
        from ddcli.store.targets.duckdb_database import DuckdbDatabase

        database = DuckdbDatabase(place_of(spec, base))
    else:
        from ddcli.store.targets.sqlite_database import SqliteDatabase

        database = SqliteDatabase(place_of(spec, base))
    parts = [spec.called] if spec.product == "sqlite" else spec.called.split(".")
    with database.kept_open():
        yield DatabaseTable(database, parts, key, outputs, [text.value for text in spec.key], stated(spec))

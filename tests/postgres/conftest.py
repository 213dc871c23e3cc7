"""What tests over a server of Postgres share."""

import psycopg
import pytest

from tests.crash.nursery import Nursery

LOADED = ("deltalake", "psycopg", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "pyiceberg.table")
"""What real processes import for tables."""


@pytest.fixture
def server(postgres_server):
    """Return the directory in which the server answers."""
    return postgres_server


@pytest.fixture(scope="session")
def nursery(postgres_server):
    """Return the parent of real processes that find the server as psql would."""
    parent = Nursery(LOADED, {"PGHOST": str(postgres_server), "PGUSER": "postgres"})
    yield parent
    parent.close()


@pytest.fixture
def database(postgres_database):
    """Return the URI that `dd` opens an empty database by."""
    return postgres_database


@pytest.fixture
def execute(database):
    """Return what changes the database, and returns the rows of the last statement."""
    with psycopg.connect(database, autocommit=True, prepare_threshold=None) as connection:

        def run(*statements):
            rows = None
            for statement in statements:
                rows = connection.execute(statement)
            return rows.fetchall() if rows is not None and rows.description else None

        yield run

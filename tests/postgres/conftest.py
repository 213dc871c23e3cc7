"""A server of Postgres on this machine, and an empty database for each test."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.crash.nursery import Nursery

HARMLESS = "nobody"
"""Who runs the server where the tests are root, which it refuses."""
LOADED = ("deltalake", "psycopg", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "pyiceberg.table")
"""What real processes import for tables."""
FAST = "-F -c listen_addresses='' -c synchronous_commit=off -c full_page_writes=off -c max_connections=30 -c shared_buffers=16MB"


def programs():
    """Return the directory of the server's programs: the system's, else those of the package pgserver; None where there are none."""
    found = shutil.which("postgres")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if package := importlib.util.find_spec("pgserver"):
        places.append(Path(package.origin).parent / "pginstall/bin")
    return next((place for place in places if (place / "initdb").exists()), None)


@pytest.fixture(scope="session")
def server():
    """Start a server that answers in a directory alone; return that. It is stopped when the tests end."""
    place = programs()
    if place is None:
        pytest.skip("there is no server of Postgres: install postgresql, or pgserver from PyPI")
    root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp(prefix="dd-pg-"))  # a socket's path is short
    who = {"user": HARMLESS, "extra_groups": ()} if root else {}

    def call(*command):
        done = subprocess.run([*command], cwd="/", capture_output=True, text=True, check=False, **who)
        return done.returncode, done.stdout + done.stderr

    if root:
        shutil.chown(folder, HARMLESS)
    try:
        data = str(folder / "data")
        code, said = call(
            place / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C"
        )
        if code:
            pytest.skip(f"no server of Postgres can be made here: {said.strip().splitlines()[-1]}")
        start = ("-D", data, "-l", str(folder / "log"), "-o", f"{FAST} -k {folder}", "start")
        code, said = call(place / "pg_ctl", "-w", *start)
        assert not code, said
        try:
            yield folder
        finally:
            call(place / "pg_ctl", "-m", "immediate", "-D", data, "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def nursery(server):
    """Return the parent of real processes that find the server as psql would."""
    parent = Nursery(LOADED, {"PGHOST": str(server), "PGUSER": "postgres"})
    yield parent
    parent.close()


@pytest.fixture(scope="session")
def shared(server):
    """Return the URI of a database that all tests of a process use, one after the other."""
    uri = f"postgresql://postgres@/shop?host={server}"
    with psycopg.connect(uri.replace("/shop?", "/postgres?"), autocommit=True) as connection:
        connection.execute("create database shop")
        connection.execute("create role guest login")
    return uri


@pytest.fixture
def database(shared):
    """Return the URI that `dd` opens an empty database by."""
    with psycopg.connect(shared, autocommit=True) as connection:
        spaces = "select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'"
        for (name,) in connection.execute(spaces).fetchall():
            connection.execute(SQL("drop schema {} cascade").format(Identifier(name)))
        connection.execute("create schema public")
        connection.execute("grant usage on schema public to guest")
    return shared


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

"""Servers of Postgres, and of MySQL (here MariaDB), on this machine, each with an empty database for each test; and the databases of all kinds by one interface.

A process starts a server for the first test that asks for it, and stops it at the end; without its programs such tests are skipped, with the reason.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psycopg
import pymysql
import pytest
from psycopg.sql import SQL, Identifier

from tests.harness import await_answer

KINDS = ("sqlite", "duckdb", "postgres", "mysql")
HARMLESS = "nobody"
"""Who runs the servers where the tests are root, which Postgres refuses."""
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
def postgres_server():
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
def postgres_shared(postgres_server):
    """Return the URI of a database that all tests of a process use, one after the other."""
    uri = f"postgresql://postgres@/shop?host={postgres_server}"
    with psycopg.connect(uri.replace("/shop?", "/postgres?"), autocommit=True) as connection:
        connection.execute("create database shop")
        connection.execute("create role guest login")
    return uri


@pytest.fixture
def postgres_database(postgres_shared):
    """Return the URI that `dd` opens an empty database by."""
    with psycopg.connect(postgres_shared, autocommit=True) as connection:
        # What a test has left waiting, as one of a silent server does, would be waited for.
        left = "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        connection.execute(left)
        spaces = "select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'"
        for (name,) in connection.execute(spaces).fetchall():
            connection.execute(SQL("drop schema {} cascade").format(Identifier(name)))
        connection.execute("create schema public")
        connection.execute("grant usage on schema public to guest")
    return postgres_shared


@pytest.fixture(scope="session")
def mysql_server():
    """Start a server that answers at a socket alone; return that. It is stopped when the tests end."""
    program, install = (
        shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in ("mariadbd", "mariadb-install-db")
    )
    if not program or not install:
        pytest.skip("there is no server of MariaDB: install mariadb-server-core and mariadb-client-core")
    folder = Path(tempfile.mkdtemp(prefix="dd-my-"))  # a socket's path is short
    who = {"user": HARMLESS, "extra_groups": ()} if os.geteuid() == 0 else {}
    if who:
        shutil.chown(folder, HARMLESS)
    data = f"--datadir={folder}/data"
    try:
        made = [install, "--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(made, cwd="/", capture_output=True, check=True, **who)
        small = ("--innodb-buffer-pool-size=8M", "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=4M")
        line = [
            program,
            "--no-defaults",
            data,
            f"--socket={folder}/s",
            f"--pid-file={folder}/pid",
            "--skip-networking",
            *small,
        ]
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(line, cwd="/", stdout=log, stderr=log, **who) as running,
        ):
            try:
                socket = str(folder / "s")
                await_answer(lambda: pymysql.connect(unix_socket=socket, user="root"), pymysql.Error, running)
                yield folder / "s"
            finally:
                running.kill()
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def mysql_database(mysql_server):
    """Return the URI that `dd` opens an empty database by."""
    with pymysql.connect(unix_socket=str(mysql_server), user="root") as connection, connection.cursor() as cursor:
        cursor.execute("drop database if exists shop")
        cursor.execute("create database shop character set utf8mb4")
    return f"mysql://root@/shop?unix_socket={mysql_server}"


@dataclass(frozen=True)
class Database:
    """A database of a kind: the URI that `dd` opens it by, and the folder of its file."""

    kind: str
    uri: str
    folder: Path

    def __call__(self, *statements):
        """Do statements and return the rows of the last one; a file is closed then, as one that was written a while ago."""
        with closing(self.opened()) as connection:
            cursor, rows = connection.cursor(), []
            for statement in statements:
                cursor.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
            if self.kind == "sqlite":
                connection.commit()
            return [*map(tuple, rows)]

    def opened(self):
        """Return a connection of the database's own client."""
        if self.kind == "postgres":
            return psycopg.connect(self.uri, autocommit=True)
        if self.kind == "mysql":
            socket = self.uri.partition("unix_socket=")[2]
            return pymysql.connect(unix_socket=socket, user="root", database="shop", autocommit=True)
        return (sqlite3 if self.kind == "sqlite" else duckdb).connect(str(self.folder / "shop.db"))


@pytest.fixture
def kind():
    """Return the kind of a test's database; tests of several are parametrized by it."""
    return "sqlite"


@pytest.fixture
def base(kind, tmp_path, request):
    """Return an empty database of the test's kind."""
    uri = f"{kind}:///shop.db" if kind in ("sqlite", "duckdb") else request.getfixturevalue(f"{kind}_database")
    return Database(kind, uri, tmp_path)

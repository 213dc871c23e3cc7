"""A server of MariaDB on this machine, and an empty database for each test."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pymysql
import pytest

from tests.harness import await_answer

HARMLESS = "nobody"
"""Who runs the server where the tests are root."""


@pytest.fixture(scope="session")
def server():
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
def database(server):
    """Return the URI that `dd` opens an empty database by."""
    with pymysql.connect(unix_socket=str(server), user="root") as connection, connection.cursor() as cursor:
        cursor.execute("drop database if exists shop")
        cursor.execute("create database shop character set utf8mb4")
    return f"mysql://root@/shop?unix_socket={server}"


@pytest.fixture
def execute(server, database):
    """Return what changes the database, and returns the rows of the last statement."""
    with pymysql.connect(unix_socket=str(server), user="root", database="shop", autocommit=True) as connection:

        def run(*statements, values=None):
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement, values)
                return cursor.fetchall() if statements else ()

        yield run

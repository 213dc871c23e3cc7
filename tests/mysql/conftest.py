"""What tests over a server of MySQL share."""

import pymysql
import pytest


@pytest.fixture
def server(mysql_server):
    """Return the socket at which the server answers."""
    return mysql_server


@pytest.fixture
def database(mysql_database):
    """Return the URI that `dd` opens an empty database by."""
    return mysql_database


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

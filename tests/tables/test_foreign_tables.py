"""Tables of SQLite and DuckDB that others have declared, as outputs."""

import sqlite3
from contextlib import closing

import duckdb
import pytest

from tests.draws import many
from tests.tables import foreign_tables as judges

CLIENTS = {"sqlite": lambda path: sqlite3.connect(path, isolation_level=None), "duckdb": duckdb.connect}


def client(kind, folder):
    """Return the function that executes statements in a database, and returns the rows of the last one."""

    def execute(*statements):
        with closing(CLIENTS[kind](str(folder / "t.db"))) as opened:
            for statement in statements:
                found = opened.execute(statement)
            return found.fetchall()

    return execute


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.in_turn
def test_random_declarations(tmp_path, kind):
    written = set()
    for seed in range(many(200)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        written.add(judges.judge_declaration(folder, f"{kind}:///t.db", seed, client(kind, folder)))
    assert written == {False, True}


@pytest.mark.parametrize("key", [False, True], ids=["rows", "keyed"])
@pytest.mark.parametrize(("kind", "declared"), [(kind, each) for kind in CLIENTS for each in judges.CHANGED[kind]])
def test_declarations_that_change_rows(tmp_path, kind, declared, key):
    if "nocase" in declared and not key:
        pytest.skip("a row without a key is no other one's")
    judges.judge_changed(tmp_path, f"{kind}:///t.db", declared, client(kind, tmp_path), key=key)

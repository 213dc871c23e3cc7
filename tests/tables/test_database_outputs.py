"""Outputs that are tables of databases: what all kinds have in common, and SQLite and DuckDB; tests/postgres has what Postgres alone can."""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from itertools import product

import duckdb
import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.errors import DdError, EngineError, StateError
from ddcli.expressions.types import parse_type
from ddcli.store.mirrors.file_databases import DuckdbReader, SqliteReader
from ddcli.store.mirrors.server_databases import PostgresReader
from ddcli.store.mirrors.source import DatabaseSource
from tests.draws import chance, many, some
from tests.tables import database_followers as judges
from tests.tables.database_followers import DatabaseFollower
from tests.tables.test_output_types import HELD, ONLY_PARQUET, judge_refusal, write

KINDS = ["sqlite", "duckdb"]


def keyed(*kinds):
    """Have a test make tables with a key, in databases of these kinds."""
    return pytest.mark.parametrize("make", [(kind, True) for kind in kinds], indirect=True, ids=kinds)


@pytest.fixture(
    params=[*some(product([*KINDS, "postgres"], [False, True]))],
    ids=lambda each: f"{each[0]}-{'keyed' if each[1] else 'rows'}",
)
def make(request, tmp_path):
    """Return what makes a pipeline in a folder of its own, over an empty database."""
    kind, keyed = request.param
    uri = request.getfixturevalue("postgres_database") if kind == "postgres" else f"{kind}:///lake/t.db"

    def made(at):
        follower = DatabaseFollower(tmp_path / f"shop{at}", uri, keyed=keyed)
        if kind == "postgres":
            follower.execute("drop schema if exists marts cascade", "create schema marts")
        return follower

    return made


@pytest.mark.in_turn
def test_random_histories(make):
    judges.judge_histories(make, many(1))


@pytest.mark.in_turn
def test_deaths(make, tmp_path):
    def clear(first, rows):
        shutil.rmtree(tmp_path / "dead", ignore_errors=True)
        if first.uri.startswith("postgres"):  # its tables are in no folder that could be copied
            for one in ("t", "dd_commits"):
                first.execute(f"create table if not exists saved_{one} as table marts.{one}", f"truncate marts.{one}")
                first.execute(f"insert into marts.{one} select * from saved_{one}")
            assert len(first.execute("select * from marts.t")) == len(rows)
        return first.copy(tmp_path / "dead")

    judges.judge_deaths(make, clear)


def test_duckdb_is_opened_once_a_run(tmp_path, monkeypatch):
    """Also where the table is made. While another process has it open, a run that has nothing for it passes, and one that has makes up for it later."""
    each, opened, draw = DatabaseFollower(tmp_path, "duckdb:///lake/t.db", keyed=False), [], chance("once")
    plain = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *args, **kwargs: opened.append(kwargs) or plain(*args, **kwargs))
    for _ in range(3):
        each.supply(draw, rows=20)
        opened.clear()
        run(each.folder / "shop.yaml")
        assert [{*each} for each in opened] == [{"config"}]
        each.check()
    script = (
        "import duckdb, sys; held = duckdb.connect(sys.argv[1], read_only=True); print(flush=True); sys.stdin.read()"
    )
    reader = [sys.executable, "-c", script, str(tmp_path / "lake/t.db")]
    with subprocess.Popen(reader, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        place = tmp_path / "lake/t.db"
        os.utime(place)  # a run then looks whether it is still as the last one left it
        run(each.folder / "shop.yaml")
        each.supply(draw, rows=20)
        with pytest.raises(EngineError, match="lock"):
            run(each.folder / "shop.yaml")
        other.stdin.close()
    run(each.folder / "shop.yaml")
    each.check()


def test_racing_runs(make):
    judges.judge_races(make(0))


def test_a_copy_of_the_state(make, tmp_path):
    judges.judge_copies(make(0), tmp_path / "behind")


def test_rows_of_others(make):
    judges.judge_others(make(0))


def test_a_table_that_another_state_writes(make):
    judges.judge_another_writer(make(0))


def test_two_names_of_one_table(make, monkeypatch):
    monkeypatch.setenv("PGOPTIONS", "-c search_path=marts")
    each = make(0)
    names = {"sqlite": ["T"], "duckdb": ["t", "main.T"]}.get(each.uri.partition(":")[0], ["t", "marts.t"])
    judges.judge_names_of_one_table(each, names)


def test_an_output_with_another_name(make):
    judges.judge_a_former_name(make(0))


def test_a_table_that_was_altered(make):
    judges.judge_an_altered_table(make(0))


@pytest.mark.in_turn
def test_verification_finds_what_others_have_changed(make):
    judges.judge_verified(make(0))


def test_a_table_that_was_dropped(make):
    judges.judge_removal(make(0))


@keyed("sqlite", "postgres")
def test_rows_that_swap_the_values_of_another_unique_index(make):
    judges.judge_swaps(make(0))


@keyed(*KINDS, "postgres")
def test_keys_that_are_none(make):
    judges.judge_keys(make(0))


LISTS = {
    "numbers": ("list[decimal(9, 2)?]?", pl.List(pl.Decimal(9, 2)), [[Decimal("1.50"), None], None]),
    "flags": ("list[bool?]", pl.List(pl.Boolean), [[True, None], []]),
}
OWN = {
    "sqlite": {"f32": ("float32?", pl.Float32, [float("inf"), None])},
    "duckdb": {"u64": ONLY_PARQUET["u64"]},
    "postgres": {"text": ("string?", pl.String, ["ä\n\\N\t", None]), **LISTS},
}
"""Columns of a kind alone, or in the place of those that all have."""
LACKING = {"sqlite": ("texts", "lists"), "duckdb": (), "postgres": ("i8", "lists")}
"""Columns that a kind of database can't hold."""


@pytest.mark.parametrize("kind", OWN)
def test_types_come_back(tmp_path, base, kind):
    columns = {name: each for name, each in (HELD | OWN[kind]).items() if name not in LACKING[kind]}
    table = "marts.t" if kind == "postgres" else "t"
    if kind == "postgres":
        base("create schema marts")

    def read(columns):
        kinds = {name: parse_type(each[0]).or_null() for name, each in columns.items()}
        query, file = f"select * from {table}", tmp_path / "shop.db"
        if kind == "postgres":
            reader = PostgresReader(base.uri, query, {}, None, None)
        elif kind == "duckdb":
            reader = DuckdbReader(base.uri, file, query, {*kinds})
        else:
            reader = SqliteReader(base.uri, file, query, kinds, {*kinds})
        return pl.concat(DatabaseSource(reader, "", None, ()).whole()[1]).select(*columns)

    judges.judge_types(tmp_path, base.uri, table, columns, read)


@pytest.mark.parametrize("kind", OWN)
def test_names_that_need_quotes(shop, base, kind):
    given, within = ('x%s" {0}.', '"x%s"" {0}".') if kind == "postgres" else ("", "")
    if within:
        base(f"create schema {within[:-1]}")
    names = judges.judge_names(shop, base.uri, f'{given}a"b; %s {{0}}')
    with closing(base.opened()) as database:
        for at in range(2):
            found = database.cursor()
            found.execute(f'select * from {within}"a""b; %s {{0}}{at}"')
            assert [each[0] for each in found.description] == names
            assert found.fetchall() == [tuple(range(6, 12))]


@pytest.mark.parametrize("kind", KINDS)
def test_what_can_not_be_written(shop, kind):
    """Other columns than the table has; a value that SQLite hasn't; a file that is no database."""
    write(shop.folder, {"x": ("float64?", pl.Float64, [1.0, None])}, f"to: '{kind}:///t.db'")
    run(shop.folder / "p.yaml")
    text = (shop.folder / "p.yaml").read_text()
    if kind == "sqlite":
        (shop.folder / "nan").mkdir()
        write(shop.folder / "nan", {"x": ("float64?", pl.Float64, [float("nan"), None])}, "to: 'sqlite:///n.db'")
        with pytest.raises(EngineError, match="SQLite has no NaN, and the column 'x' has one"):
            run(shop.folder / "nan/p.yaml")
    renamed = "collections: {y: {from: given, apply: [{map: {y: x}}]}}\noutputs:"
    shop.write("p.yaml", text.replace("outputs:", renamed).replace("{as:", "{from: y, as:"))
    with pytest.raises(StateError, match="the table has other columns than the output"):
        run(shop.folder / "p.yaml", apply=True, rewrite=frozenset({"given"}))
    (shop.folder / "t.db").write_bytes(b"no database" * 500)
    with pytest.raises(DdError, match="the table can't be read"):
        run(shop.folder / "p.yaml")


WRONG = {
    "{to: 'sqlite:///t.db'}": "a database has contents, and no log",
    "{as: table, delta: t/, key: a}": "`key` is for tables in databases",
    "{path: out/, table: t}": "`table` is for tables in databases",
    "{as: table, to: 'sqlite:///t.db', key: z}": "outputs.given.key: there is no column 'z'",
    "{as: table, to: 'mysql://h/d'}": "'mysql://h/d' can't be a database",
    "{as: table, to: 'postgresql://me:secret@h/d'}": "a database's URI has no password in it",
    "{as: table, to: 'sqlite:///t.db'}\n  other: {from: given, as: table, to: 'sqlite:///t.db', table: given}": "the output 'given' is in the table 'given', too",
    "{as: table, to: 'sqlite:///t.db', table: DD_Changes}": "'DD_Changes' is a table that `dd` itself makes",
    "{as: table, to: 'duckdb:///t.duckdb', table: main.dd_commits}": "'main.dd_commits' is a table that `dd` itself makes",
    f"{{as: table, to: 'postgresql:///d', table: marts.{'ä' * 32}}}": "Postgres has no names of more than 63 bytes",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_refused_at_its_place(shop, text):
    judge_refusal(shop, text, WRONG[text], "p.yaml:")


REFUSED = {
    "sqlite": [
        ("a", "list[int64]"),
        ("a", "uint64"),
        ("a", "struct[b: int64]"),
        ("rowid", "int64"),
        ("dd_at", "int64"),
    ],
    "duckdb": [
        ("a", "duration[us]"),
        ("a", "struct[b: time]"),
        ("a", "struct[b: int64, B: int64]"),
        ("RowId", "int64"),
    ],
    "postgres": [
        ("a", "list[list[int64]]"),
        ("a", "list[struct[b: int64]]"),
        ("a", "int8"),
        ("a", "uint32"),
        ("ctid", "int64"),
        ("ä" * 32, "int64"),
    ],
}


def test_columns_that_a_table_can_not_have_are_refused(shop):
    for kind, columns in REFUSED.items():
        uri = "postgresql://h/d" if kind == "postgres" else f"{kind}:///t.db"
        for name, typed in columns:
            given = f'{{path: in/, columns: {{"{name}": "{typed}", b: int64}}}}'
            shop.write(
                "p.yaml",
                f"dd: 1\nname: p\ninputs: {{given: {given}}}\noutputs: {{given: {{as: table, to: '{uri}'}}}}\n",
            )
            found = shop("check", "p.yaml")
            assert found.code == 2, (kind, name, typed)
            assert f"outputs.given.to: { ({'sqlite': 'SQLite', 'duckdb': 'DuckDB'}.get(kind, 'Postgres')) }" in (
                found.out + found.err
            ).replace("a table of ", ""), found


def test_a_view_of_duckdb_reads_no_other_file(tmp_path):
    """A database that others have made has views over files in the place of tables."""
    each = DatabaseFollower(tmp_path, "duckdb:///lake/t.db", keyed=False)
    (tmp_path / "other.csv").write_text("city,amount\nx,1\n")
    each.execute(f"create view t as select * from read_csv('{tmp_path}/other.csv')")
    each.supply(chance("views"))
    with pytest.raises(EngineError, match="Cannot access file"):
        each.run()

"""Tables of databases that others have declared: a run leaves the rows of its output in them, as a client reads them, or an error and the table as it was."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.errors import EngineError, StateError
from tests.draws import chance

COLUMNS = {
    "name": ("string", pl.String, ["abc", "ABC", "Abc", "abc ", "a", "7", "007", "2024-01-01", ""]),
    "n": ("int64?", pl.Int64, [0, 1, -1, 127, 300, 40_000, 2**31, 2**53 + 1, None]),
    "price": (
        "decimal(20, 2)?",
        pl.Decimal(20, 2),
        [*map(Decimal, ("1.50", "2.00", "0.01", "123456789012345678.91")), None],
    ),
    "ratio": ("float64?", pl.Float64, [0.5, 1.0, 0.1, 1e300, -2.25, None]),
    "seen": (
        "datetime[us]?",
        pl.Datetime("us"),
        [*map(datetime.fromisoformat, ("2024-01-01", "2024-01-01 09:30:15.123456")), None],
    ),
    "day": ("date?", pl.Date, [date(2024, 1, 1), None]),
}
"""The columns of an output, and values that some types or collations change."""
DECLARED = {
    "sqlite": {
        "name": ["text", "text collate nocase", "text collate rtrim", "varchar(3)", "numeric", "blob", ""],
        "n": ["integer", "bigint", "real", "text", "numeric", ""],
        "price": ["text", "numeric", "decimal(20, 2)", "real", ""],
        "ratio": ["real", "numeric", "integer", "text", ""],
        "seen": ["text", "timestamp", "numeric", ""],
        "day": ["text", "date", "integer"],
    },
    "duckdb": {
        "name": ["varchar", "varchar collate nocase", "varchar collate noaccent", "blob", "integer", "date"],
        "n": ["bigint", "integer", "tinyint", "double", "float", "varchar", "decimal(18, 1)", "hugeint", "boolean"],
        "price": ["decimal(20, 2)", "decimal(20, 1)", "decimal(24, 4)", "double", "varchar", "bigint"],
        "ratio": ["double", "float", "decimal(18, 3)", "varchar", "bigint"],
        "seen": ["timestamp", "timestamp_s", "timestamp_ms", "date", "varchar", "timestamptz"],
        "day": ["date", "timestamp", "varchar"],
    },
    "postgres": {
        "name": [
            "text",
            "varchar(2)",
            "varchar",
            "char(5)",
            "char(1)",
            "text collate loose",
            "name",
            "folded",
            "bytea",
        ],
        "n": ["bigint", "integer", "smallint", "double precision", "real", "text", "numeric", "numeric(20, 1)"],
        "price": ["numeric(20, 2)", "numeric(20, 1)", "numeric(24, 4)", "numeric", "double precision", "real", "money"],
        "ratio": ["double precision", "real", "numeric", "numeric(10, 1)", "text"],
        "seen": ["timestamp", "timestamp(0)", "timestamp(3)", "date", "timestamptz", "text"],
        "day": ["date", "timestamp", "text"],
    },
}
"""How others may declare them; the first is as a run does."""
MORE = {
    "sqlite": [
        "create trigger more after insert on t begin update t set n = n + 1 where rowid = new.rowid; end",
        "create trigger less before insert on t when new.n = 1 begin select raise(ignore); end",
        "create trigger kept before delete on t when old.n = 1 begin select raise(ignore); end",
    ],
    "duckdb": [],
    "postgres": [
        "create trigger more before insert or update on marts.t for each row execute function marts.more()",
        "create trigger less before insert on marts.t for each row execute function marts.less()",
        "create trigger kept before delete on marts.t for each row execute function marts.less()",
        "create rule gone as on insert to marts.t do instead nothing",
        "create rule kept as on delete to marts.t do instead nothing",
    ],
}
"""Triggers and rules that others may add."""
PREPARED = [
    "create schema marts",
    "create collation if not exists loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    "drop domain if exists folded",
    "create domain folded as varchar(3)",
    "create function marts.more() returns trigger language plpgsql as $$ begin new.n = new.n + 1; return new; end $$",
    "create function marts.less() returns trigger language plpgsql as $$ begin if tg_op = 'DELETE' or new.n = 1 then return null; end if; return new; end $$",
]
"""The statements before these in Postgres."""


def write_pipeline(folder, uri, key):
    """Write a pipeline whose output is the table of these columns, `t`, or `marts.t` of Postgres."""
    (folder / "in").mkdir(exist_ok=True)
    declared = ", ".join(f'{name}: "{kind}"' for name, (kind, _, _) in COLUMNS.items())
    table = "marts.t" if uri.startswith("postgres") else "t"
    target = f"as: table, to: '{uri}', table: {table}{', key: name' if key else ''}"
    text = f"dd: 1\nname: p\ninputs: {{given: {{path: in/, columns: {{{declared}}}}}}}\n"
    (folder / "p.yaml").write_text(f"{text}outputs: {{given: {{{target}}}}}\n")


def supply(folder, step, rows):
    """Write changes, each a row and its diff."""
    named = {
        name: pl.Series([row[at] for row, _ in rows], dtype=dtype)
        for at, (name, (_, dtype, _)) in enumerate(COLUMNS.items())
    }
    diffs = pl.Series([diff for _, diff in rows], dtype=pl.Int64)
    pl.DataFrame(named).with_columns(time=pl.lit(step, pl.Int64), diff=diffs).write_parquet(
        folder / f"in/{step}.parquet"
    )


def is_value(found, value):
    """Return whether a client finds the value, if not in its own type then in another one that holds it: 1.50 as the float 1.5, a day as its midnight."""
    if found is None or value is None or isinstance(value, str):
        return type(found) is type(value) and found == value
    try:
        return moment(found) == moment(value) if isinstance(value, date) else number(found) == number(value)
    except ValueError:
        return False


def moment(value):
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found if isinstance(found, datetime) else datetime.combine(found, time())


def number(value):
    """Return an exact number; a float stands for the shortest decimal that it is read from."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def are_rows(found, wanted):
    """Return whether rows of a client are these, in any order."""
    left = [*wanted]
    for row in found:
        at = next((at for at, each in enumerate(left) if all(map(is_value, row, each))), None)
        if at is None:
            return False
        left.pop(at)
    return not left


def judge_declaration(folder, uri, seed, execute):
    """Run over a table that others declared, with some changes; return whether all runs wrote it. `execute` is the database's own client."""
    kind = uri.partition(":")[0].replace("postgresql", "postgres")
    draw = chance("declared", kind, seed)
    key = draw.random() < 0.5
    foreign = draw.sample([*COLUMNS], draw.choice([0, 1, 1, 2]))
    kinds = {name: draw.choice(each) if name in foreign else each[0] for name, each in DECLARED[kind].items()}
    table = "marts.t" if kind == "postgres" else "t"
    listed = ", ".join(f"{name} {each}" for name, each in kinds.items())
    primary = ", primary key (name)" if key and kind != "duckdb" else ""
    more = [draw.choice(MORE[kind])] if MORE[kind] and draw.random() < 0.3 else []
    execute(f"create table {table} ({listed}{primary})", *more)
    write_pipeline(folder, uri, key)
    present = []
    for step in range(3):
        gone = [row for row in present if draw.random() < 0.4]
        present = [row for row in present if row not in gone]
        added = [tuple(draw.choice(values) for _, _, values in COLUMNS.values()) for _ in range(draw.choice([1, 2, 4]))]
        if key:
            added = [*{row[0]: row for row in added if row[0] not in {each[0] for each in present}}.values()]
        supply(folder, step, [*((row, -1) for row in gone), *((row, 1) for row in added)])
        before = execute(f"select * from {table}")
        present += added
        try:
            run(folder / "p.yaml")
        except (EngineError, StateError):
            assert sorted(map(repr, execute(f"select * from {table}"))) == sorted(map(repr, before)), (kinds, more)
            return False
        found = execute(f"select * from {table}")
        assert are_rows(found, present), (kinds, more, key, found, present)
    return True


CHANGED = {
    "sqlite": ["name text collate nocase", "n real", "price numeric"],
    "duckdb": ["name blob", "n double", "price decimal(20, 1)", "ratio float", "seen timestamptz"],
    "postgres": [
        "name char(5)",
        "name text collate loose",
        "n double precision",
        "price numeric(20, 1)",
        "ratio real",
        "seen timestamp(0)",
    ],
}
"""Declarations under which the rows below are no longer the same."""
ROWS = [
    ("abc", 2**53 + 1, Decimal("1.25"), 0.1, datetime.fromisoformat("2024-01-01 09:30:15.6"), None),
    ("ABC", 1, None, None, None, None),
]


def judge_changed(folder, uri, declared, execute, *, key):
    """Refuse a table whose declaration of one column changes rows that a run writes; when it is dropped, the next run makes it."""
    kind = uri.partition(":")[0].replace("postgresql", "postgres")
    foreign, _, _ = declared.partition(" ")
    kinds = [declared if name == foreign else f"{name} {each[0]}" for name, each in DECLARED[kind].items()]
    table = "marts.t" if kind == "postgres" else "t"
    keys = ["primary key (name)"] if key and kind != "duckdb" else []
    execute(f"create table {table} ({', '.join([*kinds, *keys])})")
    write_pipeline(folder, uri, key)
    supply(folder, 0, [(row, 1) for row in ROWS])
    before = execute(f"select * from {table}")
    for _ in range(2):
        with pytest.raises(EngineError) as raised:
            run(folder / "p.yaml")
        assert execute(f"select * from {table}") == before
        assert "the table changes a row that is written to it: name = " in str(raised.value) or "loose" in declared
    execute(f"drop table {table}")
    run(folder / "p.yaml")
    assert are_rows(execute(f"select * from {table}"), ROWS)

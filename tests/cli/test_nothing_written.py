"""Commands that promise to write nothing leave everything as it is, to the byte, whatever a pipeline reads and writes, and in whatever state it is."""

import contextlib
import shlex
import sqlite3

import click
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from ddcli.cli.main import cli
from tests.draws import some

READS = {
    "bisect": [
        "bisect shop.yaml 'select count(*) from log' --bad '> 0'",
        "bisect base.yaml 'select 1 from plain' --good true -o json",
    ],
    "branch ls": ["branch ls base.yaml", "branch ls base.yaml -o json"],
    "check": ["check shop.yaml", "check base.yaml shop.yaml -o json", "check shop.yaml --budget work=change"],
    "checks": ["checks shop.yaml", "checks base.yaml -o json"],
    "completion": ["completion bash"],
    "diff": [
        "diff out/log out/log",
        "diff shop.yaml shop.yaml --select log",
        "diff --against .dd/shop shop.yaml",
        "diff --against .dd/base base.yaml --without in/plain/1.csv",
        "diff base.yaml base.yaml",
        "diff lake/both.parquet in/plain/1.csv --plain --key id",
    ],
    "doctor": ["doctor", "doctor shop.yaml", "doctor shop.yaml -o json"],
    "explain": ["explain shop.yaml", "explain shop.yaml -o json", "explain shop.yaml -o html"],
    "feed": ["feed out/log --list", "feed out/log --list -o json"],
    "functions": ["functions", "functions sum"],
    "inputs": ["inputs shop.yaml", "inputs base.yaml -o json", "inputs reader.yaml --select read"],
    "lineage": ["lineage shop.yaml", "lineage . -o html", "lineage reader.yaml -o json"],
    "log": ["log out/log --as-of latest", "log out/log --consolidate", "log .dd/shop/errors/_unparsed/rejected"],
    "plan": ["plan shop.yaml", "plan shop.yaml --counts", "plan shop.yaml --exit-code -o json", "plan reader.yaml"],
    "query": ["query shop.yaml sums id=1", "query shop.yaml items id=1", "query base.yaml shared id=1"],
    "schema": ["schema"],
    "sql": [
        "sql --from shop.yaml 'select * from sums'",
        "sql --from shop.yaml 'select items.id from items join old using (id)'",
        "sql --from shop.yaml 'select * from all' --as-of latest",
        """sql "select count(*) from 'out/log/'" """,
    ],
    "state ls": ["state ls shop.yaml", "state ls base.yaml -o json"],
    "state show": ["state show base.yaml -a 'plain by id'", "state show shop.yaml -a 1"],
    "state verify": ["state verify shop.yaml", "state verify base.yaml"],
    "test": ["test base.yaml"],
    "verify": ["verify shop.yaml --slice 1/1", "verify base.yaml --all", "verify shop.yaml --all -o json"],
    "wait": ["wait out/log --newer-than 1d --timeout 0"],
    "why": ["why shop.yaml sums id=1", "why shop.yaml sums id=77", "why base.yaml plain id=1"],
}
"""Calls of commands that never write."""
DRY = {
    "branch merge": ["branch merge q4 base.yaml -n", "branch merge q4 base.yaml -n -o json"],
    "forget": [
        "forget shop.yaml --input items --where 'id = 1' -n",
        "forget base.yaml --input plain --where 'id = 1' -n",
    ],
    "log compact": ["log compact shop.yaml -n", "log compact out/log -n"],
    "reset": ["reset shop.yaml -n", "reset shop.yaml --outputs -n"],
    "retract": ["retract base.yaml in/plain/1.csv -n", "retract shop.yaml in/more/1.csv -n"],
    "run": [
        *("run shop.yaml -n", "run base.yaml reader.yaml -n", "run . -n", "run shop.yaml -n --apply"),
        *("run shop.yaml -n --full-refresh all", "run shop.yaml -n --rewrite log"),
    ],
    "state reopen": ["state reopen base.yaml --from 2020-01-01 -n", "state reopen reader.yaml --from 2020-01-01 -n"],
}
"""Calls with --dry-run, for each command that has it."""
WRITES = {
    *(
        "branch drop",
        "branch new",
        "convert",
        "import dbt",
        "import sdp",
        "init",
        "state adopt",
        "state compact",
        "state export",
        "state gc",
        "state release",
    ),
    *("state reshard", "state unlock"),
}
"""Commands that are for writing."""
BASE = """\
dd: 1
name: base
inputs:
  plain: {path: in/plain/, format: append, columns: {id: int64, v: int64}}
collections:
  shared: {from: plain, apply: [{arrange: {by: [id], export: by_id}}]}
outputs:
  base: {from: plain, path: out/base/}
tests:
  - name: a row
    steps: [{given: {plain: [{id: 1, v: 1}]}, expect: {collection: shared, contents: [{id: 1, v: 1}]}}]
"""
SHOP = """\
dd: 1
name: shop
clock: arrival
errors: quarantine
inputs:
  more: {path: in/more/, format: append, columns: {id: int64, w: int64}, consumed: {archive: done/}}
  rejected: {path: in/rejected/, format: append, columns: {id: int64}}
  other: out/base/
  items: {delta: lake/items}
  stock: {iceberg: {catalog: {type: sql, uri: 'sqlite:///PLACE/catalog.db', warehouse: 'PLACE/lake/'}, table: s.stock}}
  old: {database: 'sqlite:///old.db', table: t}
  marts: {database: 'duckdb:///marts.duckdb', table: t}
collections:
  sums: {sql: "select id, sum(w) as w from more group by id"}
  both: {from: items, apply: [{join: {with: other, on: [id]}}]}
  all: {sql: "select id, x from items union all select id, x from stock union all select id, x from old union all select id, x from marts"}
outputs:
  log: {from: sums, path: out/log/}
  copy: {from: all, as: table, delta: lake/copy}
  both: {from: both, as: table, parquet: lake/both.parquet}
  sheet: {from: sums, as: table, to: 'sqlite:///made.db', key: id}
  cube: {from: sums, as: table, to: 'duckdb:///made.duckdb'}
  ice: {from: all, as: table, iceberg: {catalog: {type: sql, uri: 'sqlite:///PLACE/catalog.db', warehouse: 'PLACE/lake/'}, table: s.ice}}
"""
READER = """\
dd: 1
name: reader
inputs:
  base: {import: {state: .dd/base, arrangement: by_id}}
outputs:
  read: {from: base, path: out/read/}
"""
PIPELINES = ("base", "shop", "reader")
ANSWERS = (0, 1, 10)
"""The exit codes of commands that have found an answer."""
BESIDE = (".db-shm", ".db-wal")
"""The ends of files that SQLite itself makes while it reads a database with a write-ahead log."""
STATES = ["fresh", "done", "newer", "edited"]


def commands(command, path=()):
    """Yield the names of all commands and their click commands."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from commands(command.get_command(click.Context(command), name), (*path, name))
    if path and (not isinstance(command, click.Group) or command.invoke_without_command):
        yield " ".join(path), command


def test_each_command_has_its_class():
    """A new command, or a command with a new --dry-run, is named above."""
    known = dict(commands(cli))
    assert {*READS, *DRY, *WRITES} == known.keys() | {"log compact"}
    dry = {name for name, each in known.items() if any("--dry-run" in option.opts for option in each.params)}
    assert dry <= DRY.keys()


def supply(folder, step):
    """Add rows to each input."""
    for name, column in (("plain", "v"), ("more", "w")):
        path = folder / f"in/{name}/{step}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"id,{column}\n{step},{step}\n1,{step}\n")
    (folder / "in/rejected").mkdir(exist_ok=True)
    (folder / f"in/rejected/{step}.csv").write_text(f"id\n{step}\nx\n")
    rows = pl.DataFrame({"id": [1, step], "x": [step, step]}).to_arrow()
    (folder / "lake").mkdir(exist_ok=True)
    write_deltalake(str(folder / "lake/items"), rows, mode="append")
    place = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{folder}/lake/"}
    catalog = load_catalog("default", **place)
    catalog.create_namespace_if_not_exists("s")
    catalog.create_table_if_not_exists("s.stock", rows.schema).append(rows.cast(pa.schema(rows.schema)))
    catalog.close()
    for opened in (sqlite3.connect(folder / "old.db"), duckdb.connect(str(folder / "marts.duckdb"))):
        with contextlib.closing(opened):
            if isinstance(opened, sqlite3.Connection):
                opened.execute("pragma journal_mode = wal")
            opened.execute("create table if not exists t (id integer, x integer)")
            opened.execute("insert into t values (?, ?)", [step, step])
            opened.commit()


def tree(folder):
    """Return all names below a folder, with the content and the time of change of files, and where links lead."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(BESIDE):
            continue
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = path.readlink()
        elif path.is_file():
            found[name] = (path.stat().st_mtime_ns, path.read_bytes())
        else:
            found[name] = None
    return found


@pytest.mark.in_turn
@pytest.mark.parametrize("state", STATES)
def test_commands_that_promise_it_write_nothing(shop, state):
    folder = shop.folder
    shop.write("base.yaml", BASE)
    shop.write("reader.yaml", READER)
    shop.write("shop.yaml", SHOP.replace("PLACE", str(folder)))
    supply(folder, 1)
    for step in (2,) if state == "fresh" else (2, 3):
        for name in PIPELINES[:1] if state == "fresh" else PIPELINES:
            done = shop("run", f"{name}.yaml")
            assert done.code == 0, done.err
        supply(folder, step)
    if state == "done":
        assert [shop("run", f"{name}.yaml").code for name in PIPELINES] == [0, 0, 0]
        assert [shop("feed", "out/log", "--consumer", "a", *more).code for more in ([], ["--ack"])] == [0, 0]
        assert shop("branch", "new", "q4", "base.yaml").code == 0
    if state == "edited":
        shop.write("shop.yaml", SHOP.replace("PLACE", str(folder)).replace("sum(w) as w", "max(w) as w"))
        shop.write("base.yaml", BASE.replace("from: plain, path", "from: shared, path"))
        for lock in folder.rglob("*lock*"):
            lock.write_text(f"{lock.read_text()}\n")
    before = tree(folder)
    codes = {}
    lines = [each for calls in (READS | DRY).values() for each in calls]
    for line in lines if state == "done" else [*some(lines), *DRY["state reopen"]]:
        codes[line] = shop(*shlex.split(line)).code
        after = tree(folder)
        changed = {name for name in after.keys() | before.keys() if after.get(name, 1) != before.get(name, 1)}
        assert not changed, line
    answered = {name for name, calls in (READS | DRY).items() if any(codes.get(each) in ANSWERS for each in calls)}
    assert state != "done" or answered == {*READS, *DRY} - {"state reopen"}
    assert state != "fresh" or "state reopen" in answered

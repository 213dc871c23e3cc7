"""Pipelines of several statements, run after each change of the tables, are what DuckDB makes of each: with edits between the runs, in any sizes.

Nexmark's queries, kept up to date while events come, go and change, are what DuckDB makes of the tables after each batch.
"""

import contextlib
import random
import re
from collections import Counter

import duckdb
import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.errors import DdError, SpecErrors
from ddcli.plan.optimizer import sharing
from tests.draws import chance, many
from tests.harness import called
from tests.judge.sizes import cut, few
from tests.reference.values import plain as unfrozen
from tests.sql import nexmark
from tests.sql.asof import AsofStatements
from tests.sql.changes import ChangingTables
from tests.sql.generate import Statements, for_duckdb
from tests.sql.judge import bound, connect, fill, may_be_several, records, states
from tests.sql.terms import TABLES
from tests.sql.test_judge import STATEMENTS
from tests.sql.warehouse import Warehouse, alike, sorted_rows
from tests.sql.windows import WindowStatements

DRAWN = [Statements, Statements, Statements, WindowStatements, AsofStatements]
TYPES = {"int64": pl.Int64, "string": pl.String, "date": pl.Date, "bool": pl.Boolean, "decimal": pl.Decimal(10, 2)}
TYPES["struct"] = pl.Struct({"i": pl.Int64, "s": pl.String})
NUMBER = re.compile(r"(?<![\w.'])[0-3](?![\w.'])")


def frame_of(name, changes):
    """Return updates of a table as a frame."""
    kinds = {
        column: TYPES[kind.partition("(")[0].partition("[")[0].strip("?")] for column, kind in TABLES[name].items()
    }
    rows = [(*map(unfrozen, record), diff) for record, diff in changes.items()]
    return pl.DataFrame(rows, schema=kinds | {"diff": pl.Int64}, orient="row")


def varied(text, rng):
    """Return a statement with another number in one place, mostly in a condition."""
    places = list(NUMBER.finditer(text))
    if not places:
        return text
    at = rng.choice(places)
    return text[: at.start()] + str(rng.randrange(4)) + text[at.end() :]


JOINING = (
    "select r1.a as x, r1.b as y, r2.c as z from t r1 join u r2 on r1.a = r2.a where {}",
    "select r1.s as x, count(*) as y from t r1, u r2 where r1.a = r2.a and {} group by r1.s",
    "select r2.c as x, r3.x as y from t r1 join u r2 on r1.a = r2.a join v r3 on r3.k = r2.c where {}",
    "select r1.b as x, q.c as y from (select * from t r1 where {}) r1 join (select c, a from u r2 where {}) q on r1.a = q.a",
    "select r2.c as x, r1.b as y from u r2 left join t r1 on r1.a = r2.a where {}",
)
ASKED = ("r1.b <> {}", "r1.a <> {}", "r1.b is not null", "not (r1.a = {})", "(r1.b = {} or r1.a <> {})", "r1.b > {}")
OTHERS = ("r2.c <> {}", "r2.c <> {}", "r2.d is not null", "not (r2.a = {})", "r2.c = {}")


def joining(rng):
    """Return a join of the same tables by the same key as others, each with conditions that most rows pass, or not."""
    text = rng.choice(JOINING)
    inner = "q.a" in text
    one, other = (rng.choice(some).replace("{}", str(rng.randrange(4))) for some in (ASKED, OTHERS))
    return text.format(one, other) if inner else text.format(rng.choice([one, one, other, f"{one} and {other}"]))


class Pipeline:
    """Statements in a file, and the tables that they read."""

    def __init__(self, folder, rng):
        self.folder, self.rng = folder, rng
        self.base = connect()
        self.statements = {}
        self.joins = rng.random() < 0.4
        self.schemas = {}
        self.names = 0
        self.time = -1
        self.before = {name: Counter() for name in TABLES}
        self.rows = dict(self.before)
        for _ in range(rng.randrange(1, 5)):
            self.add(self.drawn())
        self.inputs = sorted(TABLES)

    def drawn(self):
        """Return a statement that both sides take: often one that is there, but for a number."""
        while True:
            if self.joins and self.rng.random() < 0.7:
                text = joining(self.rng)
            elif self.statements and self.rng.random() < 0.2:
                text = varied(self.rng.choice([*self.statements.values()]), self.rng)
            elif self.rng.random() < 0.3:
                text = self.rng.choice(STATEMENTS)
            else:
                text = self.rng.choice(DRAWN)(random.Random(self.rng.random())).statement()
            if self.schema(text):
                return text

    def schema(self, text):
        """Return the columns of a statement's result and their types, None where a side refuses it or it may fail on rows."""
        try:
            self.base.execute(f"explain {for_duckdb(text)}")
            node = bound(text)
        except (DdError, SpecErrors, duckdb.Error):
            return None
        return (
            None
            if may_be_several(node) or {"time", "diff"} & {*node.schema}
            else {name: str(kind).replace("?", "") for name, kind in node.schema.items()}
        )

    def add(self, text):
        """Have one output more."""
        name = f"o{self.names}"
        self.names += 1
        self.statements[name], self.schemas[name] = text, self.schema(text)

    def edit(self):
        """Change a statement, or have one more or one less."""
        name = self.rng.choice(sorted(self.statements))
        way = self.rng.randrange(4)
        if way == 0:
            self.add(self.drawn())
        elif way == 1 and len(self.statements) > 1:
            del self.statements[name]
        else:
            text = varied(self.statements[name], self.rng)
            # With other columns a log would have to begin anew.
            if self.schema(text) == self.schemas[name]:
                self.statements[name] = text

    def write(self):
        """Write the file."""
        lines = ["name: drawn", "inputs:", *(f"  {name}: in/{name}/" for name in self.inputs), "collections:"]
        for name, text in self.statements.items():
            lines += [f"  {name}:", "    sql: |", *(f"      {line}" for line in text.splitlines())]
        lines += ["outputs:", *(f"  {name}: out/{name}/" for name in self.statements), ""]
        (self.folder / "p.yaml").write_text("\n".join(lines))

    def arrive(self, rows):
        """Have tables be these."""
        self.time += 1
        for name, table in rows.items():
            changes = {
                record: change
                for record in sorted(table.keys() | self.before[name].keys(), key=repr)
                if (change := table[record] - self.before[name][record])
            }
            folder = self.folder / "in" / name
            folder.mkdir(parents=True, exist_ok=True)
            if changes or not self.time:
                frame = frame_of(name, changes).with_columns(time=pl.lit(self.time, pl.Int64))
                frame.write_parquet(folder / f"{self.time}.parquet")
        self.before = rows
        fill(self.base, rows)

    def wrong(self):
        """Return how an output differs from what DuckDB makes of its statement."""
        for name, text in self.statements.items():
            try:
                wanted = records((row, 1) for row in self.base.execute(for_duckdb(text)).fetchall())
            except duckdb.Error:
                continue
            got = records(
                (row[:-2], row[-1])
                for file in (self.folder / "out" / name).glob("*.parquet")
                for row in pl.read_parquet(file).iter_rows()
            )
            if got != wanted:
                return f"{name}: {text}\n  tables {self.before}\n  DuckDB {wanted}\n  dd     {got}"
        return None


def judge(folder, seed):
    """Return what is wrong with a pipeline, and how often it was compared. What is expected of filters, and so kept once, is another in each run."""
    rng = random.Random(seed)
    pipeline = Pipeline(folder, rng)
    path, compared = folder / "p.yaml", 0
    with cut(rng.choice([1, 1, 2, 3]), rng.randrange(1 << 32)), few(rng.choice([0, 2, 4096, 4096])):
        for at, rows in enumerate(states(random.Random(rng.random()), changes=rng.randrange(2, 6))):
            pipeline.arrive(rows)
            if at and rng.random() < 0.3:
                pipeline.edit()
            pipeline.write()
            often, most = rng.choice([(0.1, 0.0), (0.1, 0.0), (1, 0.5), (1 << 60, 2.0)])
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(sharing, "OFTEN", often)
                    patch.setattr(sharing, "MOST", most)
                    run(path, apply=True)
            except DdError as error:
                return f"refused: {error} {pipeline.statements}", compared
            if wrong := pipeline.wrong():
                return f"after run {at}: {wrong}", compared
            compared += len(pipeline.statements)
            if rng.random() < 0.2:
                assert not called(["state", "compact", str(path)])
    return None, compared


def test_pipelines_of_statements_are_what_duckdb_makes_of_them(tmp_path):
    """What is shared between statements, kept between runs and brought to an edited file included."""
    rng = chance("pipelines of statements")
    for at in range(many(20)):
        seed = rng.randrange(1 << 32)
        (folder := tmp_path / str(at)).mkdir()
        wrong, _ = judge(folder, seed)
        assert not wrong, f"seed {seed}: {wrong}"


INTERNAL = re.compile(r"[#$]\w+")
"""Names that plans of statements add, and no file has."""


def described(shop):
    """Yield each command that describes a pipeline to a person, with its output."""
    for command in (
        ["check", "p.yaml"],
        ["plan", "p.yaml"],
        ["plan", "p.yaml", "-o", "json"],
        ["explain", "p.yaml"],
        ["explain", "p.yaml", "-o", "json"],
        ["run", "p.yaml"],
        ["run", "p.yaml", "--apply", "--profile"],
        ["lineage", "p.yaml"],
        ["state", "ls", "p.yaml"],
        ["state", "show", "p.yaml", "-o", "json"],
    ):
        found = shop(*command)
        yield " ".join(command), found.out + found.err


def test_no_name_of_the_plan_reaches_a_person(shop):
    """Random statements, edited between runs, in all commands that describe a pipeline."""
    rng = chance("names of the plan")
    for at in range(many(4)):
        pipeline = Pipeline(shop.folder / str(at), random.Random(rng.randrange(1 << 32)))
        shop.folder = pipeline.folder
        for rows in states(random.Random(rng.random()), changes=1):
            pipeline.arrive(rows)
            pipeline.write()
            texts = "\n".join(pipeline.statements.values())
            with contextlib.chdir(pipeline.folder):
                for command, said in described(shop):
                    leaked = [name for name in INTERNAL.findall(said) if name not in texts]
                    assert not leaked, f"{command}: {leaked}\n{texts}\n{said}"
            pipeline.edit()


def test_nexmarks_queries_are_what_duckdb_makes_of_them(tmp_path):
    draw = chance("nexmark")
    tables = ChangingTables(nexmark.tables(draw, 1500), draw)
    warehouse = Warehouse(tmp_path / "nexmark", tables, nexmark.QUERIES)
    warehouse.judge(batches=2, part=0.02)
    assert not warehouse.wrong
    assert warehouse.compared == 3 * len(nexmark.QUERIES)
    assert warehouse.filled == nexmark.QUERIES.keys()
    assert len(nexmark.QUERIES) + len(nexmark.LEFT_OUT) == 23


@pytest.mark.parametrize(("other", "same"), [((1, 2.0000001), True), ((1, 2.1), False), ((2, 2.0), False)])
def test_rows_that_differ_are_found(other, same):
    ours, theirs = (sorted_rows([row], [False, True]) for row in ((1, 2.0), other))
    assert alike(ours[0], theirs[0]) is same


def test_changing_tables_hold_what_their_log_adds_up_to():
    draw = chance("changes")
    tables = ChangingTables(nexmark.tables(draw, 1000), draw)
    logs = [tables.load(), *(tables.change(0.1) for _ in range(3))]
    for name, now in tables.now.items():
        counts = {}
        for log in logs:
            for *row, _, diff in log[name].rows() if name in log else ():
                counts[tuple(row)] = counts.get(tuple(row), 0) + diff
        assert sorted(row for row, count in counts.items() for _ in range(count)) == sorted(now.rows())
    assert {-1, 1} == {diff for log in logs for frame in log.values() for diff in frame["diff"]}

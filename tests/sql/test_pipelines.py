"""Pipelines of several statements, run after each change of the tables, are what DuckDB makes of each: with edits between the runs, in any sizes."""

import random
import re
from collections import Counter

import duckdb
import polars as pl

from ddcli.driver.run import run
from ddcli.errors import DdError, SpecErrors
from tests.draws import chance, many
from tests.harness import called
from tests.judge.sizes import cut, few
from tests.reference.values import plain as unfrozen
from tests.sql.asof import AsofStatements
from tests.sql.generate import Statements, for_duckdb
from tests.sql.judge import bound, connect, fill, may_be_several, records, states
from tests.sql.terms import TABLES
from tests.sql.test_judge import STATEMENTS
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


class Pipeline:
    """Statements in a file, and the tables that they read."""

    def __init__(self, folder, rng):
        self.folder, self.rng = folder, rng
        self.base = connect()
        self.statements = {}
        self.schemas = {}
        self.names = 0
        self.time = -1
        self.before = {name: Counter() for name in TABLES}
        self.rows = dict(self.before)
        for _ in range(rng.randrange(1, 5)):
            self.add(self.drawn())
        self.inputs = sorted(TABLES)

    def drawn(self):
        """Return a statement that both sides take."""
        while True:
            text = (
                self.rng.choice(STATEMENTS)
                if self.rng.random() < 0.3
                else self.rng.choice(DRAWN)(random.Random(self.rng.random())).statement()
            )
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
            text = self.statements[name]
            if places := list(NUMBER.finditer(text)):
                at = self.rng.choice(places)
                text = text[: at.start()] + str(self.rng.randrange(4)) + text[at.end() :]
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
    """Return what is wrong with a pipeline, and how often it was compared."""
    rng = random.Random(seed)
    pipeline = Pipeline(folder, rng)
    path, compared = folder / "p.yaml", 0
    with cut(rng.choice([1, 1, 2, 3]), rng.randrange(1 << 32)), few(rng.choice([0, 2, 4096, 4096])):
        for at, rows in enumerate(states(random.Random(rng.random()), changes=rng.randrange(2, 6))):
            pipeline.arrive(rows)
            if at and rng.random() < 0.3:
                pipeline.edit()
            pipeline.write()
            try:
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

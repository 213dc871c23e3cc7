"""A random history of a pipeline, as a person would have it with the documentation alone, judged after each step by plain Python and DuckDB.

The driver draws inputs and collections, then edits files, the pipeline and the state by the commands. `expected` computes every output from the rows that
the documentation says were read; the outputs' logs are read by DuckDB, at each time that a run has reported. No part of the product computes an expected value.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import io
import json
from collections import Counter
from decimal import Decimal

import duckdb

from tests.harness import called
from tests.histories.inputs import Column, Input, RefusedError, Table, load
from tests.histories.pipelines import Writer

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - logs have times without a zone
TABLES = ("sqlite", "duckdb", "delta")


class WrongError(Exception):
    """The product did something else than its documentation says."""


def said(error):
    return error.strip().splitlines()[0] if error.strip() else ""


class History:
    """The folder of a pipeline, what it should hold, and the steps so far."""

    def __init__(self, folder, chance):
        self.folder, self.chance, self.steps = folder, chance, []
        folder.mkdir(parents=True)
        self.base = duckdb.connect()
        self.base.execute("set threads to 1; set timezone to 'UTC'")
        self.number, self.upper, self.past, self.refusals = 0, 0, [], Counter()
        self.clock = "event" if chance.random() < 0.25 else "arrival"
        self.writer = Writer(chance, clock=self.clock)
        self.inputs = [self.draw_input(f"in{at}") for at in range(chance.randint(1, 3))]
        self.options = {}
        if chance.random() < 0.3:
            self.options["shards"] = chance.choice([1, 2, 3])
        if self.clock == "arrival" and chance.random() < 0.1:
            self.options["history"] = "7 days"
        for each in self.inputs:
            for _ in range(1 if each.tables else chance.randint(1, 3)):
                self.supply(each)
        self.collections, self.outputs = [], {}
        self.draw_pipeline()
        self.present = {}

    def note(self, *words):
        self.steps.append(" ".join(map(str, words)))

    # Inputs.

    def draw_input(self, name):
        chance = self.chance
        columns = [
            Column("id", "int"),
            Column("k", "text", chance.random() < 0.4),
            Column("a", "int", chance.random() < 0.5),
        ]
        columns += [
            Column("b", "int", True),
            Column("d", "dec", chance.random() < 0.5),
            Column("day", "date", chance.random() < 0.3),
        ]
        columns = [columns[0], *chance.sample(columns[1:], chance.randint(2, 4))]
        chance.shuffle(columns)
        if self.clock == "arrival" and chance.random() < 0.2:
            kind = chance.choice(TABLES)
            if kind == "sqlite":
                columns = [column for column in columns if column.kind in ("int", "text")]
            return Table(name, self.folder, kind, columns)
        kind = chance.choice(
            [
                "append",
                "append",
                "upsert",
                "upsert",
                "snapshots",
                "updates",
                *(["debezium"] if self.clock == "arrival" else []),
            ]
        )
        if kind == "debezium":
            columns = [column for column in columns if column.kind in ("int", "text")]
        keyed = kind in ("upsert", "debezium") or (kind == "snapshots" and chance.random() < 0.5)
        made = Input(name, self.folder, kind, columns, ("id",) if keyed else ())
        if kind == "upsert":
            others = [
                column.name
                for column in columns
                if column.kind in ("int", "dec", "date") and not column.nullable and column.name != "id"
            ]
            made.order_by = chance.choice(others) if others and chance.random() < 0.4 else None
            made.delete_when = chance.random() < 0.4
        made.time = "t" if self.clock == "event" else None
        made.changed = chance.choice(["refuse", "replace", "replace", "replace"])
        made.missing = chance.choice([None, None, "retract"])
        made.kinds = (
            ("ndjson",)
            if kind == "debezium"
            else chance.choice([("csv",), ("ndjson",), ("parquet",), ("csv", "ndjson", "parquet")])
        )
        return made

    def times(self, late=False):
        first = max(0, self.upper - (3 if late else 0))
        return range(first, self.upper + 4)

    def rows_for(self, each, number, taken="", late=False):
        rows = each.rows(self.chance, number, self.times(late))
        if each.time and each.key:  # no key has two rows at one time
            known = {(*(row[k] for k in each.key), row[each.time])
                     for files in ({n: e.content for n, e in each.read.items()}, each.disk, each.gone)
                     for name, content in files.items() for row in map(dict, content.rows)}  # fmt: skip
            rows = [row for row in rows if (*(row[k] for k in each.key), row[each.time]) not in known]
        return rows

    def supply(self, each):
        """Have a new file, or other rows in a table."""
        if each.tables:
            before = [
                dict(zip((c.name for c in each.columns), row, strict=True))
                for row in (each.disk["table"].rows if each.disk else ())
            ]
            kept = [row for row in before if self.chance.random() < 0.7]
            each.write_table(kept + each.rows(self.chance, self.chance.randint(0 if each.disk else 1, 5)))
            self.note("table", each.name, each.disk["table"].rows)
            return
        name = f"f{self.chance.randrange(30)}.{self.chance.choice(each.kinds)}"
        if name in each.disk or name in each.read or name in each.withdrawn or name in each.gone:
            return
        rows = self.rows_for(each, self.chance.randint(1, 6))
        if rows and each.time and not self.inputs[0].disk:
            rows[0][each.time] = 0  # totals of no rows exist from the first row of any input on
            rows = [row for at, row in enumerate(rows) if not at or (row["id"], row["t"]) != (rows[0]["id"], 0)]
        if rows:
            each.write(name, rows)
            self.note("write", f"{each.name}/{name}", rows)

    # The pipeline.

    def known(self, upto=None):
        return [Source(each.name, each.seen()) for each in self.inputs] + self.collections[:upto]

    def draw_pipeline(self):
        """Draw collections that both DuckDB and `dd check` accept, and which of them are outputs."""
        wanted = self.chance.randint(2, 5)
        self.outputs = {}
        for at in range(wanted):
            for _ in range(20):
                made = self.writer.collection(f"c{at}", self.known())
                if self.accepts(made):
                    self.collections.append(made)
                    break
        names = [each.name for each in self.collections]
        chosen = {names[-1], *self.chance.sample(names, min(len(names), self.chance.randint(1, 3)))}
        if self.chance.random() < 0.2:
            chosen.add(self.chance.choice(self.inputs).name)
        for name in sorted(chosen):
            self.outputs[f"o_{name}"] = {"path": f"out/{name}/", "from": name}
            if self.chance.random() < 0.25:
                table = (
                    {"parquet": f"lake/{name}.parquet"}
                    if self.chance.random() < 0.5
                    else {"to": "duckdb:///marts.duckdb"}
                )
                self.outputs[f"o_{name}"] |= {"as": "table", **table}
        self.write_pipeline()

    def accepts(self, collection):
        """Return whether DuckDB and `dd check` both take a collection after those that there are."""
        before = self.collections
        try:
            self.collections = [*before, collection]
            self.answers(sample=True)
        except duckdb.Error:
            return False
        finally:
            self.collections = before
        outputs = {"probe": {"path": "probe/", "from": collection.name}}
        (self.folder / "probe.yaml").write_text(self.text([*before, collection], outputs, name="probe"))
        code, _, err = self.quietly("check", "probe.yaml")
        (self.folder / "probe.yaml").unlink()
        if code:
            self.refusals[err[:3000]] += 1
        return code == 0

    def text(self, collections, outputs, name="p"):
        spec = {"dd": 1, "name": name, "clock": self.clock, **self.options}
        spec["inputs"] = {each.name: each.spec() for each in self.inputs}
        spec["collections"] = {each.name: each.spec for each in collections}
        spec["outputs"] = outputs
        return json.dumps(spec, ensure_ascii=False)

    def write_pipeline(self):
        text = self.text(self.collections, self.outputs)
        (self.folder / "p.yaml").write_text(text)
        self.note("pipeline", text)

    # What should be there.

    def answers(self, *, sample=False, until=None, more=(), instead=None):
        """Return the rows of each collection and input, by DuckDB, over what was read; `sample`: over what is on the disk."""
        base = self.base
        for each in self.inputs:
            if sample:
                each = copy.copy(each)
                each.read, each.withdrawn, each.check_late = {}, {}, lambda *_: None
                each.commit(*each.next(1))
            load(base, each.name, each.seen(), (instead or {}).get(each.name, each.present(until)))
        names = [each.name for each in self.inputs]
        for each in self.collections:
            base.execute(f'create or replace table "{each.name}" as {each.sql}')
            names.append(each.name)
        return {name: counted(base.execute(f'from "{name}"')) for name in names}, [
            counted(base.execute(query)) for query in more
        ]

    @property
    def closed(self):
        """The first time that no run has closed; None under `clock: arrival`, where all that was read counts."""
        return self.upper if self.clock == "event" else None

    def expected(self, until=None, instead=None):
        found, _ = self.answers(until=self.closed if until is None else until, instead=instead)
        return {name: found[spec["from"]] for name, spec in self.outputs.items()}

    def shapes(self):
        """Return the columns of each collection and input, with their types in DuckDB, as the last answers have them."""
        return {
            each.name: {*self.base.execute(f'select column_name, column_type from (describe "{each.name}")').fetchall()}
            for each in self.known()
        }

    def log(self, output):
        """Return the updates of an output, as DuckDB reads them: time, record, diff."""
        folder = self.folder / self.outputs[output]["path"]
        files = [str(path) for pattern in ("*.parquet", "updates-*/*.parquet") for path in folder.glob(pattern)]
        read = self.base.execute("select * from read_parquet(?, union_by_name = true)", [files])
        names = [column[0] for column in read.description]
        rows = [dict(zip(names, row, strict=True)) for row in read.fetchall()]
        return [(as_time(row.pop("time")), row.pop("diff"), record(row)) for row in rows]

    def table(self, output, otherwise):
        """Return the contents of an output's table, if it has one."""
        spec = self.outputs[output]
        if "parquet" in spec:
            return counted(self.base.execute("from read_parquet(?)", [str(self.folder / spec["parquet"])]))
        if "to" in spec:
            with duckdb.connect(self.folder / "marts.duckdb", read_only=True) as base:
                return counted(base.execute(f'from "{output}"'))
        return otherwise

    def judge(self, what):
        """Compare each output with what is expected, finally and at each time that a run has reported."""
        self.present = self.expected()
        for output, wanted in self.present.items():
            log = self.log(output)
            self.same(f"{output} after {what}", summed(log), wanted)
            self.same(f"the table of {output} after {what}", self.table(output, wanted), wanted)
            for at, past in self.past:
                if output in past:
                    self.same(f"{output} as of {at} after {what}", summed(log, at), past[output])

    def same(self, what, found, wanted):
        found = {each: count for each, count in found.items() if count}
        wanted = {each: count for each, count in wanted.items() if count}
        if found != wanted:
            less = {each: (count, found.get(each, 0)) for each, count in wanted.items() if found.get(each, 0) != count}
            more = {each: (0, count) for each, count in found.items() if each not in wanted}
            raise WrongError(f"{what}: record: (expected, found):\n  {less}\n  {more}")

    # Commands.

    def quietly(self, *arguments):
        """Call a command in this process; return its code and what it wrote."""
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = called(map(str, arguments))
        out.seek(0)
        text = out.read()
        if code in (70, 5) or "Traceback" in err.getvalue():
            raise WrongError(f"dd {' '.join(map(str, arguments))} ended with {code}:\n{err.getvalue()}")
        return code, text, err.getvalue()

    def dd(self, *arguments, codes=(0,)):
        self.note("$ dd", *arguments)
        code, out, err = self.quietly(*arguments)
        self.note(f"  -> {code}", said(err) if code else "")
        if code not in codes:
            raise WrongError(f"dd {' '.join(map(str, arguments))}: {code}, not {codes}:\n{out[-1500:]}{err[-3000:]}")
        return code, out, err

    def predicted(self, retract=()):
        """Return what each input has read after the next run, or None where it is refused."""
        frontier = self.upper if self.clock == "event" else None
        try:
            return [
                each.next(self.number + 1, retract=[name for at, name in retract if at is each], frontier=frontier)
                for each in self.inputs
            ]
        except RefusedError as refused:
            self.note("expected to be refused:", refused)
            return None

    def run(self, *arguments, command="run", retract=(), codes=(0,)):
        """Run, and judge the outputs. Return the summary, or None where it was refused, as it should."""
        after = self.predicted(retract)
        until = ()
        if self.clock == "event" and command == "run" and self.chance.random() < 0.4:
            until = ("--until", self.upper + self.chance.randint(1, 4))
        code, out, _ = self.dd(
            command, "p.yaml", *arguments, *until, "-o", "json", codes=(3,) if after is None else codes
        )
        if code:
            self.judge(f"a refused {command}")
            return None
        summary = json.loads(out)
        self.note("  ", {key: summary[key] for key in ("changed", "time", "upper", "rebuilt")})
        self.commit(after, summary, None if command == "retract" else until)
        self.judge(command)
        return summary

    def commit(self, after, summary, until=()):
        """Take over what a run has read, and keep what the outputs should be at its time."""
        self.number += 1
        if summary["changed"]:  # files whose rows all wait are not read without a commit
            for each, (read, withdrawn) in zip(self.inputs, after, strict=True):
                each.commit(read, withdrawn)
        if self.clock == "arrival":
            if summary["changed"] and summary["time"]:  # an edit without new rows is at an open time
                self.past.append((as_time(summary["time"]), self.expected()))
            return
        if not summary["changed"]:
            return
        times = [
            row["t"] for each in self.inputs for entry in each.read.values() for row in map(dict, entry.content.rows)
        ]
        upper = max(self.upper, until[1] if until else max(times, default=-1) + 1)
        if until is None:  # a withdrawal closes times only with rows of new files
            upper = int(summary["upper"])
        for at in range(self.upper, upper):
            self.past.append((at, self.expected(at + 1)))
        self.upper = upper
        if int(summary["upper"]) != upper and (summary["changed"] or until):
            raise WrongError(f"a run until {until} closed the times before {summary['upper']}, not {upper}")


class Source:
    """An input, as collections read it."""

    def __init__(self, name, columns):
        self.name, self.columns = name, columns


def all_rows(each):
    """Return all rows that an input has ever been read from or has on the disk."""
    contents = [*each.disk.values(), *(entry.content for entry in each.read.values()), *each.gone.values()]
    names = [column.name for column in each.seen()]
    return [tuple(dict(row)[name] for name in names) for content in contents for row in content.rows]


def summed(log, at=None):
    """Return the contents of a log, as of a time."""
    found = Counter()
    for when, diff, each in log:
        if at is None or when <= at:
            found[each] += diff
    return found


def clean(counts):
    return {each: count for each, count in counts.items() if count}


def as_time(value):
    """Return a time of a log, or of a summary, as an integer: of runs in microseconds."""
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1)
    return value


def record(row):
    """Return a record as pairs of names and values, in the order of the names."""
    return tuple(sorted((name, tuple(value) if isinstance(value, list) else value) for name, value in row.items()))


def counted(read):
    names = [column[0] for column in read.description]
    return Counter(record(dict(zip(names, row, strict=True))) for row in read.fetchall())


def texted(value):
    """Return a value as both JSON and Python have it: numbers as floats, all others as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float, Decimal)):
        return round(float(value), 9)
    if isinstance(value, str):
        try:
            return round(float(value), 9)
        except ValueError:
            return value
    return str(value)


def conditions(each):
    """Return a record as conditions of a command."""
    return [
        f"{name} is null" if value is None else f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in each
    ]

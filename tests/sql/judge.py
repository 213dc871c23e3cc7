"""Statements over small tables with nulls, held against DuckDB after each of several changes of the tables."""

from __future__ import annotations

import random
import re
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb

from ddcli import Dataflow
from ddcli.errors import DdError, Span, SpecErrors, Text
from ddcli.expressions.tree import Call, FilterStep, MapStep
from ddcli.expressions.types import parse_type
from ddcli.plan import groupings, logical
from ddcli.plan.node import Graph
from ddcli.plan.relation import Relation
from ddcli.plan.sql.statement import bind
from tests.reference.expressions import Fails
from tests.reference.model import Model, total
from tests.reference.values import Fields
from tests.reference.values import plain as unfrozen
from tests.sql.generate import for_duckdb
from tests.sql.terms import SQL, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import Node

Rows = dict[str, Counter[tuple[Any, ...]]]


def schema(name: str) -> dict[str, Any]:
    return {column: parse_type(kind) for column, kind in TABLES[name].items()}


def bound(text: str, relations: dict[str, Relation] | None = None) -> Node:
    """Return the node of a statement; DdError if it is refused."""
    return _bound(text, relations)[0].node


def bound_notes(text: str) -> tuple[tuple[Span, str], ...]:
    """Return the notes of a statement."""
    return _bound(text, None)[1]


def _bound(text: str, relations: dict[str, Relation] | None) -> tuple[Relation, tuple[tuple[Span, str], ...]]:
    relations = relations or {name: Relation(logical.Source((), schema(name), name)) for name in TABLES}
    lines = text.split("\n")
    span, *rest = (Span("query", at, 1, len(line), line) for at, line in enumerate(lines, start=1))
    more = tuple(rest)
    return bind(
        Text(text, span, 0, more), lambda name: relations[name], lambda: [each.node for each in relations.values()]
    )


class Engine:
    """A statement in a dataflow, fed with the differences of tables."""

    def __init__(self, text: str) -> None:
        self.dataflow = Dataflow()
        self.inputs = {name: self.dataflow.input(name, TABLES[name]) for name in TABLES}
        relations = {name: session.relation for name, session in self.inputs.items()}
        result = bound(text, relations)
        self.output = self.dataflow.output_of(Relation(result))
        self.rows: Rows = {name: Counter() for name in TABLES}
        self.contents: Counter[tuple[Any, ...]] = Counter()
        self.now = 0

    def advance(self, rows: Rows) -> Counter[tuple[Any, ...]]:
        """Return the result over these tables."""
        for name, table in rows.items():
            for record in table.keys() | self.rows[name].keys():
                if change := table[record] - self.rows[name][record]:
                    self.inputs[name].update(tuple(map(unfrozen, record)), change)
        self.rows, self.now = rows, self.now + 1
        for session in self.inputs.values():
            session.advance_to(self.now)
        self.dataflow.step()
        for record, _, diff in self.output.updates():
            self.contents[tuple(map(plain, record))] += diff
        return records((record, count) for record, count in self.contents.items() if count)


def random_value(rng: random.Random, kind: Any) -> Any:
    """Return a value of few, so that rows meet."""
    import datetime as dt

    if kind.nullable and rng.random() < 0.25:
        return None
    return {
        "int64": lambda: rng.randrange(4),
        "string": lambda: rng.choice(["", "x", "xy", "z"]),
        "date": lambda: dt.date(2020, 1, 1 + rng.randrange(3)),
        "bool": lambda: rng.random() < 0.5,
        "decimal": lambda: Decimal(rng.randrange(-5, 6)) / 4,
        "struct": lambda: Fields((name, random_value(rng, inner)) for name, inner in kind.fields),
    }[kind.kind]()


def random_row(rng: random.Random, name: str) -> tuple[Any, ...]:
    return tuple(random_value(rng, kind) for kind in schema(name).values())


def states(rng: random.Random, changes: int = 5) -> Iterator[Rows]:
    """Yield tables as they are at first and after each of the changes; sometimes one is empty."""
    rows: Rows = {name: Counter(random_row(rng, name) for _ in range(rng.randrange(1, 8))) for name in TABLES}
    yield rows
    for _ in range(changes):
        rows = {name: Counter(table) for name, table in rows.items()}
        for name, table in rows.items():
            if rng.random() < 0.1:
                table.clear()
            for _ in range(rng.randrange(4)):
                present = sorted(table.elements(), key=repr)
                if present and rng.random() < 0.5:
                    table[rng.choice(present)] -= 1
                else:
                    table[random_row(rng, name)] += 1
            rows[name] = +table
        yield rows


def connect() -> duckdb.DuckDBPyConnection:
    """Return an empty database with the tables."""
    base = duckdb.connect(":memory:", config={"threads": 1})
    base.execute("set ieee_floating_point_ops = false")
    for name in TABLES:
        columns = ", ".join(f'"{column}" {SQL[kind.kind]}' for column, kind in schema(name).items())
        base.execute(f"create table {name} ({columns})")
    return base


def fill(base: duckdb.DuckDBPyConnection, rows: Rows) -> None:
    """Have tables hold these rows, and nothing else."""
    base.begin()
    for name, table in rows.items():
        base.execute(f"delete from {name}")
        if records := list(table.elements()):
            row = f"({', '.join('?' * len(records[0]))})"
            values = [unfrozen(value) for record in records for value in record]
            base.execute(f"insert into {name} values {', '.join([row] * len(records))}", values)
    base.commit()


def plain(value: Any) -> Any:
    """Return a value as both sides have it."""
    if isinstance(value, float):
        return Fraction(value).limit_denominator(10**6)
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in value.items())
    return value


def with_names(value: Any) -> Any:
    """Return a value of DuckDB with names for the fields of structs that have none there."""
    if isinstance(value, tuple):
        return {f"f{at}": with_names(each) for at, each in enumerate(value, start=1)}
    return [with_names(each) for each in value] if isinstance(value, list) else value


def records(found: Any) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for record, count in found:
        counts[tuple(map(plain, record))] += count
    return Counter({record: count for record, count in counts.items() if count})


def may_be_several(node: Node) -> bool:
    """Return whether a statement has a subquery that must return one row, and may return several."""
    expressions: list[Expression] = []
    for each in Graph({"": node}).nodes():
        if isinstance(each, logical.Apply) and isinstance(each.step, FilterStep):
            expressions.append(each.step.condition)
        elif isinstance(each, logical.Apply) and isinstance(each.step, MapStep):
            expressions += [expression for _, expression in each.step.columns]
        elif isinstance(each, groupings.Reduce):
            expressions += [argument for call in each.calls for argument in call.args]
    return any(isinstance(part, Call) and part.function == "error" for each in expressions for part in each.walk())


class Judged:
    """How many statements were compared, refused and left out, and why."""

    def __init__(self) -> None:
        self.compared, self.refused, self.left = 0, Counter[str](), Counter[str]()
        self.examples: dict[str, str] = {}


def judge(text: str, seed: int, base: duckdb.DuckDBPyConnection, judged: Judged, *, engine: bool = True) -> str | None:
    """Return how a statement differs from DuckDB, None if it does not or is refused; also whether the engine differs."""
    theirs = for_duckdb(text)
    try:
        base.execute(f"explain {theirs}")
    except duckdb.Error as error:
        judged.left[f"DuckDB: {str(error).split(chr(10))[0][:60]}"] += 1
        return None
    try:
        node = bound(text)
    except (DdError, SpecErrors) as error:
        found = error.errors[0] if isinstance(error, SpecErrors) else error
        judged.refused[found.problem] += 1
        judged.examples.setdefault(found.problem, text)
        return None
    running = Engine(text) if engine else None
    read = set(re.findall(r"\w+", theirs.lower()))
    for rows in states(random.Random(seed)):
        fill(base, {name: table for name, table in rows.items() if name in read})
        if running is not None:
            try:
                there = running.advance(rows)
            except DdError:
                running = None
        try:
            wanted: Any = records((map(with_names, row), 1) for row in base.execute(theirs).fetchall())
        except duckdb.Error:
            judged.left["DuckDB fails on the rows"] += 1  # of a subquery whose value nobody may need
            continue
        inputs = {name: total(table.items()) for name, table in rows.items()}
        try:
            got: Any = records(Model(inputs, (0,), frozenset(TABLES)).output(node).items())
        except Fails as error:
            judged.left["dd fails on the rows"] += 1
            if may_be_several(node):  # a subquery returned several rows, whose value DuckDB did not need
                continue
            got = f"fails: {error}"
        if running is not None and there != got:
            return f"ENGINE {text}\n  model  {got}\n  engine {there}\n {[(name, list(table.elements())) for name, table in rows.items()]}"
        if wanted != got:
            return f"{text}\n  tables {[(name, list(table.elements())) for name, table in rows.items()]}\n  DuckDB {wanted}\n  dd     {got}"
    judged.compared += 1
    return None

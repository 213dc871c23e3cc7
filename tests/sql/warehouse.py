"""Statements over tables of a benchmark as one pipeline, held against DuckDB after the load and after each of several batches."""

from __future__ import annotations

import math
import time
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import sqlglot
from sqlglot import exp

from tests.harness import called

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.sql.changes import ChangingTables, Frames

Row = tuple[Any, ...]


class Warehouse:
    """A pipeline of statements in a folder; `wrong` holds what differed, by statement and time."""

    def __init__(self, folder: Path, tables: ChangingTables, statements: Mapping[str, str]) -> None:
        self.folder, self.tables, self.statements = folder, tables, statements
        self.wrong: dict[tuple[str, int], str] = {}
        self.compared, self.filled, self.changed = 0, set[str](), Counter[str]()
        self.seconds: list[float] = []
        self.before: dict[str, list[Row]] = {}
        folder.mkdir(parents=True)
        (folder / "pipeline.yaml").write_text(pipeline(tables.now, statements))
        self._arrive(tables.load())

    def judge(self, batches: int, part: float) -> None:
        """Run after the load and after each batch, and compare."""
        self._compare()
        for _ in range(batches):
            self._arrive(self.tables.change(part))
            self._compare()

    def _arrive(self, updates: Frames) -> None:
        for name, frame in updates.items():
            place = self.folder / "in" / name
            place.mkdir(parents=True, exist_ok=True)
            frame.write_parquet(place / f"{self.tables.time}.parquet")

    def _compare(self) -> None:
        began = time.perf_counter()
        code = called(["run", str(self.folder / "pipeline.yaml"), "--quiet"])
        self.seconds.append(time.perf_counter() - began)
        if code:
            raise AssertionError(f"dd run ended with {code} at time {self.tables.time}")
        base = connect(self.tables.now)
        for name, text in self.statements.items():
            meant = base.sql(decided(base, text))
            approximate = [str(kind) in ("DOUBLE", "FLOAT") for kind in meant.types]
            theirs = sorted_rows(meant.fetchall(), approximate)
            ours = sorted_rows(output(base, self.folder / "out" / name), approximate)
            self.compared += 1
            if theirs:
                self.filled.add(name)
            self.changed[name] += self.before.get(name, theirs) != theirs
            self.before[name] = theirs
            # A quotient in the middle of two numbers is rounded to the one as a decimal, to the other as a float.
            near = 0.010001 if "round(" in text.lower() else 2e-6
            if len(ours) != len(theirs) or not all(alike(*pair, near) for pair in zip(ours, theirs, strict=True)):
                differing = [pair for pair in zip(ours, theirs, strict=False) if not alike(*pair, near)][:1]
                only = [list((Counter(a) - Counter(b)).elements())[:2] for a, b in ((ours, theirs), (theirs, ours))]
                problem = f"dd has {len(ours)} rows, DuckDB {len(theirs)}; {differing or only}"
                self.wrong[name, self.tables.time] = problem


def pipeline(tables: Mapping[str, object], statements: Mapping[str, str]) -> str:
    """Return a pipeline file with statements as outputs over those of the tables that they read."""
    read = [table for table in tables if any(table in text.lower() for text in statements.values())]
    lines = ["inputs:", *(f"  {table}: in/{table}/" for table in read), "collections:"]
    for name, text in statements.items():
        lines += [f"  {name}:", "    sql: |", *(f"      {line}" for line in text.splitlines())]
    return "\n".join([*lines, "outputs:", *(f"  {name}: out/{name}/" for name in statements), ""])


def connect(tables: Frames) -> duckdb.DuckDBPyConnection:
    """Return a database with tables, which means by a statement what we do where that is a setting."""
    base = duckdb.connect(":memory:", config={"threads": 1})
    for setting in ("ieee_floating_point_ops = false",):
        base.execute(f"set {setting}")
    for name, frame in tables.items():
        base.register(f"frame_{name}", frame.to_arrow())
        base.execute(f"create table {name} as from frame_{name}")
    return base


def decided(base: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return a statement whose limit breaks ties by all of its columns, in their order, as ours does."""
    (tree,) = sqlglot.parse(text, dialect="duckdb")
    order = tree.args.get("order") if tree is not None else None
    if tree is None or order is None or not tree.args.get("limit"):
        return text
    for at in range(len(base.sql(text).columns)):
        order.append("expressions", exp.Ordered(this=exp.Literal.number(at + 1)))
    return tree.sql(dialect="duckdb")


def output(base: duckdb.DuckDBPyConnection, folder: Path) -> list[Row]:
    """Return the rows that an output holds, each as often as it is there."""
    if not any(folder.glob("*.parquet")):
        return []
    found = base.sql(
        f"select * exclude (time, diff), sum(diff)::bigint from '{folder}/*.parquet' group by all having sum(diff) <> 0"
    )
    rows = []
    for *record, count in found.fetchall():
        assert count > 0, f"{record} is there {count} times"
        rows += [tuple(record)] * count
    return rows


def sorted_rows(rows: list[Row], approximate: list[bool]) -> list[Row]:
    """Return rows with numbers as both sides have them, in an order in which alike rows meet."""
    found = [tuple(map(plain, row, approximate)) for row in rows]
    return sorted(found, key=lambda row: [(value is None, type(value).__name__, value) for value in _exact_first(row)])


def _exact_first(row: Row) -> list[Any]:
    floats = [float(f"{value:.5g}") for value in row if isinstance(value, float)]
    return [*(value for value in row if not isinstance(value, float)), *floats]


def plain(value: Any, approximate: bool) -> Any:
    if isinstance(value, Decimal | int | float) and not isinstance(value, bool):
        return float(value) if approximate else Fraction(value)
    return value


def alike(one: Row, other: Row, near: float = 2e-6) -> bool:
    """Return whether two rows are the same, but for the last digits of what DuckDB has as floats, and we to 6 digits."""
    return all(
        math.isclose(a, b, rel_tol=1e-5, abs_tol=near) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(one, other, strict=True)
    )

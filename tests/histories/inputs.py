"""Inputs as a person has them, files that come, change and go and tables, and the rows that a run must have read of them, in plain Python.

Nothing here is computed by the product: each input knows the rows that it wrote itself, and the documentation's rules say which of them count.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sqlite3
from dataclasses import dataclass, field, replace
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

TYPES = {
    "int": ("int64", pa.int64(), "bigint"),
    "text": ("string", pa.string(), "varchar"),
    "dec": ("decimal(9, 2)", pa.decimal128(9, 2), "decimal(9, 2)"),
    "date": ("date", pa.date32(), "date"),
    "bool": ("bool", pa.bool_(), "boolean"),
}
"""The types of columns: in pipeline files, of pyarrow, and in DuckDB."""
TEXTS = ["a", "b", "c", "B", "", "ab", "ä", 'q"x', "a,b", "null", " a"]
FIRST_DAY = dt.date(2024, 2, 27)


class RefusedError(Exception):
    """The documentation says that a run is refused now."""


@dataclass(frozen=True)
class Column:
    """A column of an input or a collection."""

    name: str
    kind: str
    nullable: bool = False

    @property
    def declared(self):
        return TYPES[self.kind][0] + ("?" if self.nullable else "")

    def draw(self, chance):
        """Return a value, from few, so that rows meet."""
        if self.nullable and chance.random() < 0.2:
            return None
        match self.kind:
            case "int":
                return chance.randrange(-1, 5)
            case "text":
                return chance.choice(TEXTS[: 4 if chance.random() < 0.8 else None])
            case "dec":
                return Decimal(chance.randrange(-200, 500)) / 100
            case "date":
                return FIRST_DAY + dt.timedelta(chance.randrange(4))
        return chance.random() < 0.5


@dataclass(frozen=True)
class Content:
    """What is in a file: its rows, and a number that no other content has."""

    rows: tuple
    version: int


@dataclass(frozen=True)
class Entry:
    """What a run has read of a file, and its place in the order of arrival."""

    content: Content
    order: tuple


def natural(name):
    """Return what files of one run are ordered by: numbers in names by size."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


@dataclass
class Input:
    """Files of an input on the disk, and what the last commit has read of them."""

    name: str
    folder: object
    format: str
    columns: list
    key: tuple = ()
    order_by: str | None = None
    delete_when: bool = False
    time: str | None = None
    changed: str = "refuse"
    missing: str | None = None
    kinds: tuple = ("csv", "ndjson", "parquet")
    late: str = "error"
    disk: dict = field(default_factory=dict)
    read: dict = field(default_factory=dict)
    withdrawn: dict = field(default_factory=dict)
    gone: dict = field(default_factory=dict)
    added: dict = field(default_factory=dict)
    versions: int = 0
    known: dict = field(default_factory=dict)
    """The number of each content that was ever written."""

    @property
    def tables(self):
        return False

    # In the pipeline.

    def spec(self):
        """Return the input's part of the pipeline file."""
        said = {"path": f"{self.name}/", "format": self.format}
        said["columns"] = {column.name: column.declared for column in self.written()}
        if self.format == "debezium":
            said["columns"] = {column.name: column.declared for column in self.columns}
        if self.key:
            said["key"] = list(self.key)
        if self.order_by:
            said["order_by"] = self.order_by
        if self.delete_when:
            said["delete_when"] = "op = 'D'"
        if self.time:
            said["time"] = self.time
        if self.changed != "refuse":
            said["changed"] = self.changed
        if self.missing:
            said["missing"] = self.missing
        if self.late != "error":
            said["late"] = self.late
        return said

    def seen(self):
        """Return the columns that the pipeline's collections see."""
        if self.format in ("updates", "debezium"):
            return self.columns
        return [*self.columns, *([Column("op", "text", True)] if self.delete_when else [])]

    def written(self):
        """Return the columns of a file: those that are seen, and the time and the diff."""
        more = [Column(self.time, "int")] if self.time else []
        more += [Column("diff", "int")] if self.format == "updates" else []
        return [*self.seen(), *more]

    # On the disk.

    def rows(self, chance, number, times=None):
        """Draw the rows of a file, as dicts with all written columns; those of a log retract only what is there."""
        drawn, seen = [], set()
        for _ in range(number):
            row = {column.name: column.draw(chance) for column in self.columns}
            if self.delete_when:
                row["op"] = "D" if chance.random() < 0.2 else chance.choice(["I", None])
            if self.time:
                row[self.time] = chance.choice(times)
            if self.format == "updates":
                row["diff"] = chance.choice([1, 1, 1, 2])
            if self.format == "debezium":
                row["lsn"] = self.versions * 100 + len(drawn)
                row["op"] = chance.choice("cuud")
            mark = (*(row[name] for name in self.key), row.get(self.time))
            if self.key and (self.time or self.format == "snapshots"):
                if mark in seen:
                    continue
                seen.add(mark)
            drawn.append(row)
        return drawn

    def write(self, name, rows):
        """Write a file with rows, whose content is new; a snapshot's file is renamed into its place."""
        self.versions += 1
        path = self.folder / self.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        spare = path.with_name(f".{path.name}.tmp")
        if self.format == "debezium":
            spare.write_text("".join(json.dumps(self.event(row)) + "\n" for row in rows))
        else:
            write_rows(spare, path.suffix, self.written(), rows)
        spare.replace(path)
        rows = tuple(map(frozen, rows))
        version = self.known.setdefault((path.suffix, rows), self.versions)
        self.disk[name] = Content(rows, version)

    def event(self, row):
        """Return a row as Debezium writes it: with a key only the new record matters."""
        record = {column.name: plain(row[column.name]) for column in self.columns}
        before = {name: record[name] for name in self.key}
        before = {column.name: before.get(column.name) for column in self.columns}
        deleted = row["op"] == "d"
        return {
            "before": record if deleted else None,
            "after": None if deleted else record,
            "op": row["op"],
            "ts_ms": row["lsn"],
            "source": {"lsn": row["lsn"]},
        }

    def remove(self, name):
        (self.folder / self.name / name).unlink()
        self.gone[name] = self.disk.pop(name)
        kept = self.folder / "kept" / self.name / name
        kept.parent.mkdir(parents=True, exist_ok=True)

    def rename(self, name, other):
        (self.folder / self.name / name).rename(self.folder / self.name / other)
        self.disk[other] = self.disk.pop(name)

    # As the documentation says.

    def next(self, number, *, retract=(), frontier=None):
        """Return what the run `number` has read when it has committed, and what is withdrawn then, or raise that it is refused.

        `retract` names files that it withdraws. `frontier` is the first open time; None under `clock: arrival`.
        """
        read, withdrawn, there = dict(self.read), dict(self.withdrawn), {**self.disk, **self.added}
        for name in retract:
            if name in read:
                entry = read.pop(name)
                if name in there:
                    withdrawn[name] = entry.content.version
        if (self.changed == "replace" or self.missing == "retract") and self.format in ("append", "updates"):
            self.find_renamed(read, withdrawn, there)
        for name, content in there.items():
            if name in read:
                if read[name].content.version != content.version:
                    if self.changed != "replace":
                        raise RefusedError(f"{self.name}/{name} has changed")
                    read[name] = replace(read[name], content=content)
            elif withdrawn.get(name) != content.version:
                read[name] = Entry(content, (number, natural(name)))
                if frontier is not None and name not in withdrawn:
                    self.check_late(name, content, frontier)
                withdrawn.pop(name, None)
        self.find_gone(read, there)
        self.check_keys(read)
        return read, {name: version for name, version in withdrawn.items() if name in there}

    def find_renamed(self, read, withdrawn, there):
        """Have files that were read under other names keep their places."""
        lost = {read[name].content.version: name for name in read if name not in there}
        for name, content in there.items():
            if name not in read and name not in withdrawn and content.version in lost:
                read[name] = read.pop(lost.pop(content.version))

    def find_gone(self, read, there):
        """Take out the rows of files that are gone, or keep them."""
        for name in [name for name in read if name not in there]:
            if self.missing == "retract":
                if not there:
                    raise RefusedError(f"all files of {self.name} are gone")
                del read[name]
            elif self.changed != "replace":
                raise RefusedError(f"{self.name}/{name} is gone")

    def check_late(self, name, content, frontier):
        if any(dict(row)[self.time] < frontier for row in content.rows):
            raise RefusedError(f"{self.name}/{name} has late rows")

    def check_keys(self, read):
        """Raise where a key has two rows at one time, which nothing orders."""
        if not (self.time and self.key) or self.format == "debezium":
            return
        found = {}
        for entry in read.values():
            for row in map(dict, entry.content.rows):
                mark = (*(row[name] for name in self.key), row[self.time])
                if found.setdefault(mark, row) != row:
                    raise RefusedError(f"{self.name} has two rows of {mark}")

    def commit(self, read, withdrawn):
        self.read, self.withdrawn = read, withdrawn

    def present(self, until=None):
        """Return the rows that collections see, before the time `until`, by what the last commit has read."""
        entries = sorted(self.read.values(), key=lambda entry: entry.order)
        rows = [(entry.order, dict(row)) for entry in entries for row in entry.content.rows]
        if self.time:
            rows = [(order, row) for order, row in rows if until is None or row[self.time] < until]
        return [tuple(row[column.name] for column in self.seen()) for row in self.counted(rows)]

    def counted(self, rows):
        match self.format:
            case "append":
                return [row for _, row in rows]
            case "updates":
                return [row for _, row in rows for _ in range(row["diff"])]
            case "snapshots":
                rank = (lambda order, row: row[self.time]) if self.time else (lambda order, row: order)
                newest = max((rank(*pair) for pair in rows), default=None)
                if not self.time:
                    newest = max((entry.order for entry in self.read.values()), default=None)
                return [row for order, row in rows if rank(order, row) == newest]
        current = {}
        for at, (_, row) in enumerate(rows):
            rank = (row[self.time] if self.time else 0, row[self.order_by] if self.order_by else 0, row.get("lsn", 0))
            rank = (*rank, 0 if self.format == "debezium" else at)
            key = tuple(row[name] for name in self.key)
            if key not in current or current[key][0] <= rank:
                current[key] = rank, row
        return [row for _, row in current.values() if not self.deletes(row)]

    def deletes(self, row):
        if self.format == "debezium":
            return row["op"] == "d"
        if self.delete_when:
            return row["op"] == "D"
        others = [column.name for column in self.columns if column.name not in self.key]
        return bool(others) and all(row[name] is None for name in others)


@dataclass
class Table(Input):
    """A table of a database or of Delta Lake, whose rows a run reads as they are."""

    @property
    def tables(self):
        return True

    def spec(self):
        match self.format:
            case "sqlite":
                place = {"database": f"sqlite:///{self.name}.db", "table": self.name}
            case "duckdb":
                place = {"database": f"duckdb:///{self.name}.duckdb", "table": self.name}
            case _:
                return {"delta": f"{self.name}/"}
        return {**place, "columns": {column.name: column.declared for column in self.columns}}

    def seen(self):
        return self.columns

    def write_table(self, rows):
        """Have the table hold these rows."""
        rows = [tuple(row[column.name] for column in self.columns) for row in rows]
        match self.format:
            case "sqlite":
                with sqlite3.connect(self.folder / f"{self.name}.db") as base:
                    columns = ", ".join(f'"{column.name}" {TYPES[column.kind][2]}' for column in self.columns)
                    base.execute(f"drop table if exists {self.name}")
                    base.execute(f"create table {self.name} ({columns})")
                    places = ", ".join("?" * len(self.columns))
                    base.executemany(f"insert into {self.name} values ({places})", rows)
                base.close()
            case "duckdb":
                with duckdb.connect(self.folder / f"{self.name}.duckdb") as base:
                    load(base, self.name, self.columns, rows)
            case _:
                import deltalake

                table = arrow_of(
                    self.columns, [dict(zip((c.name for c in self.columns), row, strict=True)) for row in rows]
                )
                mode = "append" if rows and self.disk and self.versions % 2 else "overwrite"
                if mode == "append":
                    rows = [*self.disk["table"].rows, *rows]
                deltalake.write_deltalake(self.folder / self.name, table, mode=mode)
        self.versions += 1
        self.disk["table"] = Content(tuple(rows), self.versions)  # a branch reads it, too

    def next(self, number, *, retract=(), frontier=None):
        return {name: Entry(content, (0,)) for name, content in self.disk.items()}, {}

    def present(self, until=None):
        return [row for entry in self.read.values() for row in entry.content.rows]


def frozen(row):
    return tuple(row.items())


def plain(value):
    """Return a value as JSON has it."""
    return value.isoformat() if isinstance(value, dt.date) else float(value) if isinstance(value, Decimal) else value


def arrow_of(columns, rows):
    fields = [pa.field(column.name, TYPES[column.kind][1], column.nullable) for column in columns]
    return pa.Table.from_pylist(
        [{column.name: row[column.name] for column in columns} for row in rows], pa.schema(fields)
    )


def write_rows(path, suffix, columns, rows):
    """Write rows in the format that a file's suffix names."""
    match suffix:
        case ".parquet":
            pq.write_table(arrow_of(columns, rows), path)
        case ".ndjson":
            lines = ({column.name: plain(row[column.name]) for column in columns} for row in rows)
            path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        case _:
            with path.open("w", newline="") as file:
                file.write(",".join(column.name for column in columns) + "\n")
                for row in rows:
                    file.write(",".join(field_of(row[column.name]) for column in columns) + "\n")


def field_of(value):
    """Return a value as a field of CSV: null is nothing, empty text is quoted."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if text == "" or any(c in text for c in '",\n') else text


def load(base, name, columns, rows):
    """Make a table of DuckDB with rows, whose columns may be null."""
    types = ", ".join(f'"{column.name}" {TYPES[column.kind][2]}' for column in columns)
    base.execute(f'create or replace table "{name}" ({types})')
    if rows:
        values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
        base.execute(f'insert into "{name}" values {values}')


def literal(value):
    """Return a value as DuckDB's SQL has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"date '{value}'" if isinstance(value, dt.date) else str(value)

"""Outputs in a pipeline file: a log of updates or a table of the contents, and its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddcli.errors import Text
from ddcli.spec import model
from ddcli.spec.column_shapes import COLUMNS, REFERENCE
from ddcli.spec.reader import JsonSchema, NodePlace, Notes, Shape
from ddcli.spec.shapes import As, ByKind, Key, Record
from ddcli.spec.tables import DATABASE_URI, IN_CATALOG, IN_DUCKLAKE, PLACE, SPARK_TABLE
from ddcli.spec.values import Choice, PathWords, Words

if TYPE_CHECKING:
    from ddcli.spec.tree import Node

HISTORY = Words(
    "a length of time",
    r"all|\d+(\s*(second|minute|hour|day|week)s?)?",
    "write a number of times, `7 days` (weeks, hours, minutes, seconds), or `all`",
)
KEEP = Words(
    "a length of time",
    r"\d+(\s*(second|minute|hour|day|week)s?)?",
    "write a number of times, or `90 days` (weeks, hours, minutes, seconds)",
)
PARQUET_FILE = PathWords("a Parquet file", r"(?s).+\.parquet", "a table in Parquet is one file: `marts/totals.parquet`")
BEGINNING = PathWords("a Parquet file", r"(?s).+\.parquet", "write the table to one: `snapshots/customers.parquet`")
TARGETS: dict[str, Shape[Any]] = {
    "delta": PLACE,
    "iceberg": IN_CATALOG,
    "ducklake": IN_DUCKLAKE,
    "parquet": PARQUET_FILE,
    model.DATABASE: DATABASE_URI,
    model.SPARK: SPARK_TABLE,
}
"""The kinds of targets beside an output's log, and the form of each one's place."""
ABOUT = {
    "delta": "directory of a table of Delta Lake that is written, relative to this file, or in an object store",
    "iceberg": "the table of Iceberg that is written, in a catalog",
    "ducklake": "the table of DuckLake that is written",
    "parquet": "the Parquet file that is written, relative to this file, or in an object store; with `as: table`",
    model.DATABASE: "the database that the table is in: sqlite:///shop.db, duckdb:///shop.duckdb, postgresql://user@host/shop; with `as: table`",
    model.SPARK: "the table that Spark writes: catalog.schema.table; with `as: table`",
}
KEYS = {
    "path": Key(
        PLACE,
        about="directory for the change log, relative to this file; with `as: history` alone: for the file of the history",
    ),
    "from": Key(REFERENCE, about="collection or input; default: the one of the output's name", argument="source"),
    "history": Key(HISTORY, about="how much of the past its arrangements keep"),
    "keep": Key(KEEP, about="how far behind the frontier its log keeps times apart; older updates are summed up"),
    "claims": Key(
        KEEP,
        about="with `keep`: how far behind the frontier consumers and readers of its log may be; who is further behind must begin anew",
    ),
    "as": Key(
        Choice("form", ("log", "table", "history")),
        about="what the table of `delta`, `iceberg`, `ducklake`, `parquet` or `to` has: the log of updates (default), the contents as of now, or the interval in which each record held",
        argument="form",
    ),
    **{kind: Key(shape, about=ABOUT[kind]) for kind, shape in TARGETS.items()},
    "table": Key(
        Words("a name"), about="the name of the table in the database; default: the output's", argument="called"
    ),
    "key": Key(
        COLUMNS,
        about="columns that identify a row of the table in the database or of Spark, or a record of the history",
    ),
    "track": Key(COLUMNS, about="with `as: history`: the columns whose changes begin a new row; default: all"),
    "begin": Key(
        BEGINNING,
        about="with `as: history`: the Parquet file with its rows from before the first run, as dbt's snapshots have them",
    ),
}
HISTORY_FILE = "history.parquet"
"""The file of a history whose output names only a directory."""
VALID_FROM = "valid_from"
"""The column of a history that has the beginning of a row's interval."""
EXAMPLE = "{path: marts/orders/}"


def _output(place: NodePlace, arguments: dict[str, Any]) -> model.OutputSpec:
    form = arguments.pop("form", "log")
    called, key = arguments.pop("called", place.word).value, arguments.pop("key", ())
    track, begin = arguments.pop("track", ()), arguments.pop("begin", None)
    found = [_target(kind, arguments.pop(kind), form) for kind in TARGETS if kind in arguments]
    found = [replace(each, called=called, key=key) if each.kind == model.DATABASE else each for each in found]
    found = [replace(each, key=key) if each.kind == model.SPARK else each for each in found]
    if form == "history":
        rows = (*key, Text(VALID_FROM, place.word.span))
        found = [replace(each, history=key, track=track, begin=begin, key=rows if each.key else ()) for each in found]
    return model.OutputSpec(place.word, **({"source": place.word} | arguments), target=found[0] if found else None)


def _target(kind: str, where: Any, form: str) -> model.TargetSpec:
    if kind == "ducklake":
        return model.TargetSpec(kind, where["path"], table=form != "log", called=where["query"].value)
    if isinstance(where, dict):
        return model.TargetSpec(kind, where["path"], where["catalog"], table=form != "log")
    return model.TargetSpec(kind, where, table=form != "log")


class _Mapping(Shape[model.OutputSpec]):
    """A mapping of an output's keys that go together."""

    record: Record[dict[str, Any]] = Record(lambda _, arguments: arguments, KEYS, "a path or a mapping", EXAMPLE)

    def _read(self, node: Node, place: NodePlace, notes: Notes) -> model.OutputSpec:
        arguments = self.record.read(node, place, notes)
        kinds = [kind for kind in TARGETS if kind in arguments]
        if len(kinds) > 1:
            problem = f"an output is in one place, and this names {' and '.join(kinds)}"
            raise notes.refuse(place.path, problem, place.word.span, "write another output `from` the same collection")
        form = arguments.get("form", "log")
        if form == "history" and "key" not in arguments:
            problem = "a history is one of records, and nothing identifies them: the key 'key' is missing"
            raise notes.refuse(place.path, problem, place.word.span, "for example `key: [id]`")
        if form == "history" and "keep" in arguments:
            problem = "`keep` sums up the updates of which a history is made"
            raise notes.refuse(place.path, problem, place.word.span, "leave one of the two out")
        for name in ("track", "begin") if form != "history" else ():
            if name in arguments:
                raise notes.refuse(place.path, f"`{name}` is for histories", place.word.span, "add `as: history`")
        if form == "history" and not kinds and (path := arguments.pop("path", None)) is not None:
            arguments["parquet"], kinds = replace(path, value=f"{path.value.rstrip('/')}/{HISTORY_FILE}"), ["parquet"]
        if form in ("table", "history") and not kinds:
            hint = f"for example `{{as: {form}, delta: lake/orders/}}`; `path` is where its log is"
            raise notes.refuse(place.path, "the table has no place", place.word.span, hint)
        if "claims" in arguments and "keep" not in arguments:
            problem = "`claims` bounds how long a log is kept for others, and this one is kept for ever"
            raise notes.refuse(place.path, problem, place.word.span, "write `keep`, too, or leave `claims` out")
        if "form" in arguments and not kinds:
            raise notes.refuse(
                place.path,
                "`as: log` is for tables of Delta Lake, Iceberg and DuckLake",
                place.word.span,
                "leave it out",
            )
        if kinds == ["parquet"] and form == "log":
            hint = "add `as: table`; a log is a directory of Parquet files: `path: marts/orders/`"
            raise notes.refuse(place.path, "a Parquet file has contents, and no log", place.word.span, hint)
        if kinds == [model.DATABASE] and form == "log":
            raise notes.refuse(place.path, "a database has contents, and no log", place.word.span, "add `as: table`")
        if kinds == [model.SPARK] and form != "table":
            raise notes.refuse(place.path, "Spark writes the contents alone", place.word.span, "add `as: table`")
        keyed = form == "history" or kinds == [model.SPARK]
        if kinds != [model.DATABASE] and (
            named := [name for name in ("called", "key") if name in arguments and not (name == "key" and keyed)]
        ):
            wrong = "table" if named[0] == "called" else "key"
            hint = "leave it out, or name a database: `to: postgresql://user@host/shop`"
            raise notes.refuse(place.path, f"`{wrong}` is for tables in databases", place.word.span, hint)
        if not kinds and "path" not in arguments:
            raise notes.refuse(place.path, "the key 'path' is missing", place.word.span, f"for example `{EXAMPLE}`")
        return _output(place, arguments)

    def _schema(self) -> JsonSchema:
        schema = self.record.schema()
        return schema | {"anyOf": [{"required": [name]} for name in ("path", *TARGETS)]}


OUTPUT = ByKind(
    "a path or a mapping",
    scalar=As(PLACE, lambda place, path: _output(place, {"path": path})),
    mapping=_Mapping(),
    hint="for example `orders: marts/orders/`",
)

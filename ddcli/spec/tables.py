"""The places of tables of other programs, which have versions of their own, and the outputs in a pipeline file that are written as mappings, a log or a table each."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddcli.errors import Text, masked
from ddcli.spec import model
from ddcli.spec.file import is_given
from ddcli.spec.shapes import ByKind, Key, NodePlace, Notes, Record, Shape, shape
from ddcli.spec.values import COLUMN, COLUMNS, PATH, Choice, Words, path_fault, reference

if TYPE_CHECKING:
    from ddcli.spec.tree import Node


SOCKET = r"/[\w./\-]*"
PARAMETERS = {
    "postgresql": {
        "host": SOCKET,
        "port": r"\d+",
        "user": r"[\w.\-]+",
        "dbname": r"[\w.\-]+",
        "connect_timeout": r"\d+",
        "application_name": r"[\w.\-]+",
        "sslmode": "require|verify-ca|verify-full",
    },
    "mysql": {"unix_socket": SOCKET},
}
"""The parameters that a database's URI may have in a file, and their values: none names a server, a file or a setting of the session."""
HINTS = {
    "postgresql": "a file may have host=/FOLDER (of a socket), port, user, dbname, connect_timeout, application_name and sslmode=require, verify-ca "
    "or verify-full; a variable of yours that is the whole URI, such as `${DATABASE}`, may have others",
    "mysql": "a file may have unix_socket=/PATH",
}


def password_fault(uri: str, _: str = "") -> tuple[str, str] | None:
    """Return problem and hint of a database's URI that has a password: states and plans keep the values of a file."""
    if masked(uri) == uri:
        return None
    known = (
        "of the variable MYSQL_PWD or ~/.my.cnf"
        if uri.startswith("mysql")
        else "libpq takes it from the variable PGPASSWORD or the file ~/.pgpass"
    )
    return "a database's URI has no password in it", f"leave it out: {known}"


def database_fault(uri: str, wants: str = "") -> tuple[str, str] | None:
    """Return problem and hint of a database's URI that has a password, or a parameter that it may not have in a file.

    >>> database_fault("postgresql://h/d?connect_timeout=5&sslkey=/home/me/key")[0]
    "a database's URI has the parameter 'sslkey=/home/me/key'"
    """
    scheme, separator, rest = uri.partition("://")
    if (fault := password_fault(uri, wants)) or is_given(uri) or not separator:
        return fault
    product = scheme.replace("postgresql", "postgres").replace("postgres", "postgresql")
    _, question, parameters = rest.partition("?")
    for each in parameters.split("&") if question else ():
        name, _, value = each.partition("=")
        if not re.fullmatch(PARAMETERS.get(product, {}).get(name, "(?!)"), value):
            hint = HINTS.get(product, "a database in a file has none")
            return f"a database's URI has the parameter '{each}'", hint
    return None


DATABASE_URI = Words(
    "a database",
    r"(sqlite|duckdb):///.+|postgres(ql)?://.*",
    "write `sqlite:///shop.db` or `duckdb:///shop.duckdb`, a path relative to this file, `sqlite:////var/shop.db`, or `postgresql://user@host/shop`",
    database_fault,
)
READ_URI = replace(
    DATABASE_URI,
    pattern=rf"{DATABASE_URI.pattern}|mysql://.+",
    rule=f"{DATABASE_URI.rule}, or `mysql://user@host/shop`",
)
CONFIGURED = "other catalogs and properties are for pyiceberg's configuration (~/.pyiceberg.yaml), and the file has `catalog: NAME`"
CATALOG: Record[tuple[tuple[Text, Text], ...]] = Record(
    lambda place, arguments: tuple((Text(name, place.word.span), value) for name, value in sorted(arguments.items())),
    {
        "name": Key(Words("a name"), about="the catalog's name in its database; default: default"),
        "type": Key(Words("a kind of catalog", "sql", CONFIGURED), about="sql: the catalog is in a database"),
        "uri": Key(
            Words(
                "a database",
                r"sqlite:///(?!file:)[^?]+|postgresql(\+psycopg2?)?://[^?]*",
                "write `sqlite:///catalog.db` or `postgresql+psycopg://user@host/catalog`, without parameters",
                password_fault,
            ),
            required=True,
            about="the catalog's database",
        ),
        "warehouse": Key(
            Words("a place"), about="the directory or place in an object store in which new tables are made"
        ),
        "s3.region": Key(
            Words("a region", r"[a-z0-9\-]+", "for example `eu-central-1`"), about="the region of the object store"
        ),
    },
    "a mapping of properties to values",
    "{name: prod, type: sql, uri: 'sqlite:///catalog.db', warehouse: lake/}",
    others=CONFIGURED,
)
"""A catalog that a file describes. A file is a stranger's, so no property of it names code, an endpoint, a proxy or a credential."""
IN_CATALOG: Record[dict[str, Any]] = Record(
    lambda _, arguments: arguments,
    {
        "catalog": Key(
            ByKind(
                "the name of a catalog, or its properties",
                scalar=Words("a name"),
                mapping=CATALOG,
            ),
            required=True,
            about="a catalog of pyiceberg's configuration, or the properties of one",
        ),
        "table": Key(
            Words("a name"), required=True, about="the table's name in the catalog: shop.orders", argument="path"
        ),
    },
    "a mapping",
    "{catalog: default, table: shop.orders}",
)
DATABASE = {
    "table": Key(Words("a name"), about="the table to read", argument="from_table"),
    "query": Key(Words("a query"), about="the query whose rows are read, in the database's SQL"),
    "cursor": Key(COLUMN, about="a column that grows: only rows with greater values are read; default: all"),
    "key": Key(
        COLUMNS,
        about="columns that identify a row; with a cursor, newer rows replace older ones",
        argument="unique",
    ),
}
SPARK_TABLE = Words(
    "a table of Spark",
    r"[\w-]+(\.[\w-]+)*",
    "write its name as `catalog.schema.table`; of letters, digits, `_` and `-`",
)
IN_SPARK: Record[dict[str, Any]] = Record(
    lambda _, arguments: arguments | {"path": arguments.get("path") or arguments.get("query")},
    {
        "table": Key(SPARK_TABLE, about="the table's name in Spark: catalog.schema.table", argument="path"),
        "query": Key(Words("a query"), about="the query whose rows are read, in the SQL of Spark"),
    },
    "a mapping",
    "{table: shop.orders}",
)
IN_DUCKLAKE: Record[dict[str, Any]] = Record(
    lambda _, arguments: arguments,
    {
        "catalog": Key(
            Words(
                "a catalogue",
                r"((sqlite|duckdb):///|postgresql://).+",
                "write `duckdb:///lake.ducklake`, `sqlite:///lake.sqlite` or `postgresql://user@host/lake`",
                database_fault,
            ),
            required=True,
            about="the database with the catalogue: duckdb:///lake.ducklake, sqlite:///lake.sqlite (files, relative to this one), postgresql://user@host/lake",
            argument="path",
        ),
        "table": Key(Words("a name"), required=True, about="the table's name: main.orders", argument="query"),
    },
    "a mapping",
    "{catalog: 'duckdb:///lake.ducklake', table: main.orders}",
)
PLACES: dict[str, Shape[Any]] = {
    "delta": PATH,
    "iceberg": IN_CATALOG,
    "ducklake": IN_DUCKLAKE,
    "database": READ_URI,
    "spark": IN_SPARK,
}
ABOUT = {
    "delta": "directory of a table of Delta Lake, relative to this file, or in an object store",
    "iceberg": "a table of Iceberg in a catalog",
    "ducklake": "a table of DuckLake",
    "database": "a database in a file, relative to this one: sqlite:///shop.db, duckdb:///shop.duckdb; or postgresql://user@host/shop, mysql://user@host/shop",
    "spark": "a table or a query that Spark reads: of Unity, Hive, or any catalog of the session",
}
EXAMPLES = {
    "delta": "{delta: lake/orders/}",
    "iceberg": "{iceberg: {catalog: default, table: shop.orders}}",
    "ducklake": "{ducklake: {catalog: 'duckdb:///lake.ducklake', table: main.orders}}",
    "database": "{database: sqlite:///shop.db, table: orders}",
    "spark": "{spark: {table: shop.orders}}",
}


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
PARQUET_FILE = Words(
    "a Parquet file", r"(?s).+\.parquet", "a table in Parquet is one file: `marts/totals.parquet`", path_fault
)
BEGINNING = replace(PARQUET_FILE, rule="write the table to one: `snapshots/customers.parquet`")
TARGETS: dict[str, Shape[Any]] = {
    "delta": PATH,
    "iceberg": IN_CATALOG,
    "ducklake": IN_DUCKLAKE,
    "parquet": PARQUET_FILE,
    model.DATABASE: DATABASE_URI,
    model.SPARK: SPARK_TABLE,
}
"""The kinds of targets beside an output's log, and the form of each one's place."""
TARGETS_ABOUT = {
    "delta": "directory of a table of Delta Lake that is written, relative to this file, or in an object store",
    "iceberg": "the table of Iceberg that is written, in a catalog",
    "ducklake": "the table of DuckLake that is written",
    "parquet": "the Parquet file that is written, relative to this file, or in an object store; with `as: table`",
    model.DATABASE: "the database that the table is in: sqlite:///shop.db, duckdb:///shop.duckdb, postgresql://user@host/shop; with `as: table`",
    model.SPARK: "the table that Spark writes: catalog.schema.table; with `as: table`",
}
KEYS = {
    "path": Key(
        PATH,
        about="directory for the change log, relative to this file; with `as: history` alone: for the file of the history",
    ),
    "from": Key(reference, about="collection or input; default: the one of the output's name", argument="source"),
    "history": Key(HISTORY, about="how much of the past its arrangements keep"),
    "keep": Key(KEEP, about="how far behind the frontier its log keeps times apart; older updates are summed up"),
    "claims": Key(
        KEEP,
        about="with `keep`: how far behind the frontier consumers and readers of its log may be; who is further behind must start again",
    ),
    "as": Key(
        Choice("form", ("log", "table", "history")),
        about="what the table of `delta`, `iceberg`, `ducklake`, `parquet` or `to` has: the log of updates (default), the contents as of now, or the interval in which each record held",
        argument="form",
    ),
    **{kind: Key(shape, about=TARGETS_ABOUT[kind]) for kind, shape in TARGETS.items()},
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


OUTPUT_KEYS: Record[dict[str, Any]] = Record(lambda _, arguments: arguments, KEYS, "a path or a mapping", EXAMPLE)


@shape(lambda: OUTPUT_KEYS.schema() | {"anyOf": [{"required": [name]} for name in ("path", *TARGETS)]})
def output_mapping(node: Node, place: NodePlace, notes: Notes) -> model.OutputSpec:
    """Return an output from a mapping of keys that go together."""
    arguments = OUTPUT_KEYS.read(node, place, notes)
    kinds = [kind for kind in TARGETS if kind in arguments]
    if len(kinds) > 1:
        problem = f"an output is in one place, and this names {' and '.join(kinds)}"
        raise notes.refuse(place.path, problem, place.word.span, "write another output `from` the same collection")
    form = arguments.get("form", "log")
    if form == "history" and "key" not in arguments:
        problem = "a history needs the columns that identify a record: the key 'key' is missing"
        raise notes.refuse(place.path, problem, place.word.span, "for example `key: [id]`")
    if form == "history" and "keep" in arguments:
        problem = "a history needs all updates, and `keep` sums up old ones"
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

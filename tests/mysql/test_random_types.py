"""Random columns of MySQL, here MariaDB, come over as what they are."""

import datetime as dt
import math
from collections import Counter

import polars as pl

from ddcli.expressions.tree import in_backticks
from ddcli.expressions.types import Type
from ddcli.store.mirrors.server_databases import MysqlReader
from ddcli.store.mirrors.source import DatabaseSource
from tests.draws import chance, many
from tests.tables.random_types import NAMES, drawn_value, plain, rows_of

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - it has no zone
INTEGERS = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}
OTHERS = {"float32": "float", "float64": "double", "string": "varchar(99)", "binary": "varbinary(9)", "date": "date"}
KINDS = (*INTEGERS, *(f"u{kind}" for kind in INTEGERS), *OTHERS, "time", "datetime", "datetime", "decimal", "decimal")


def drawn(draw):
    """Return a type that has a counterpart there."""
    kind, nullable = draw.choice(KINDS), draw.random() < 0.6
    if kind == "decimal":
        precision = draw.randint(1, 38)
        return Type(kind, nullable, precision=precision, scale=draw.randint(0, precision))
    zoned = draw.random() < 0.5
    return (
        Type(kind, nullable, unit="us", zone="UTC" if zoned else None) if kind == "datetime" else Type(kind, nullable)
    )


def written(kind):
    """Return how the database writes a type."""
    null = "null" if kind.nullable else "not null"
    if kind.is_integer:
        name = kind.kind.removeprefix("u")
        return f"{INTEGERS[name]}{' unsigned' if kind.kind != name else ''} {null}"
    if kind.kind == "decimal":
        return f"decimal({kind.precision}, {kind.scale}) {null}"
    if kind.kind == "datetime":
        return f"timestamp(6) {null}{'' if kind.nullable else ' default 0'}" if kind.zone else f"datetime(6) {null}"
    return f"{OTHERS.get(kind.kind, 'time(6)')} {null}"


def usable(value, kind):
    """Return whether the database has a value: it has no NaN, no nanoseconds, and its timestamps are of 68 years."""
    if isinstance(value, float):
        return math.isfinite(value) and (kind.kind == "float64" or value == 0 or abs(value) > 2**-126)
    if kind.kind == "time" and value is not None:
        return value % 1000 == 0
    return not kind.zone or value is None or 0 < value < 2**31 * 10**6 - 1


def literal(value, kind):
    """Return what a statement gets for a value."""
    if value is None or kind.kind not in ("date", "time", "datetime"):
        return value
    per_day = 86_400 * 10**6
    moment = EPOCH + dt.timedelta(
        microseconds=value * per_day if kind.kind == "date" else value // 1000 if kind.kind == "time" else value
    )
    return str(moment.time() if kind.kind == "time" else moment.date() if kind.kind == "date" else moment)


def test_random_columns(database, execute):
    execute("set time_zone = '+00:00', sql_mode = ''")
    for at in range(many(30)):
        draw = chance("types", "mysql", at)
        columns = {name: drawn(draw) for name in draw.sample(sorted({*NAMES} - {"A"}), draw.randint(1, 5))}
        listed = ", ".join(f"{in_backticks(name)} {written(kind)}" for name, kind in columns.items())
        meant = Counter()
        execute(f"create table t{at} ({listed}) character set utf8mb4")
        for _ in range(draw.randint(1, 6)):
            row = [
                next(value for _ in range(1000) if usable(value := drawn_value(draw, kind), kind))
                for kind in columns.values()
            ]
            meant[tuple(map(plain, row))] += 1
            values = [literal(*each) for each in zip(row, columns.values(), strict=True)]
            execute(f"insert into t{at} values ({', '.join(['%s'] * len(row))})", values=values)
        reader = MysqlReader(database, f"select * from t{at}", {}, None, None)
        found = DatabaseSource(reader, "", None, ())
        assert {name: str(kind) for name, kind in found.columns.items()} == {
            name: str(kind.or_null()) for name, kind in columns.items()
        }
        assert rows_of(pl.concat(found.whole()[1]), columns) == meant, listed

"""SQL text means here what it means in DuckDB: random texts, every operator, without redundant parentheses.

Nothing of ours takes part in the judgement but the values: DuckDB reads the same text. `DD_EFFORT=100` asks for more texts.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb
import pytest
from hypothesis import given, settings

from ddcli.errors import InputError, SpecError
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import MapStep
from tests.draws import many
from tests.expressions.grammar import COLUMNS, SQL_TYPES, rows, typed, wild
from tests.expressions.support import frame_of, scalar, schema

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = schema(COLUMNS)
ROWS = rows(40)
FRAME = frame_of(SCHEMA, ROWS)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Return a database with the rows."""
    with duckdb.connect() as connection:
        columns = ", ".join(f"{name} {SQL_TYPES[kind.rstrip('?')]}" for name, kind in COLUMNS.items())
        connection.execute(f"create table rows (n bigint, {columns})")
        marks = ", ".join("?" for _ in range(len(COLUMNS) + 1))
        connection.executemany(f"insert into rows values ({marks})", [[n, *row.values()] for n, row in enumerate(ROWS)])
        yield connection


def theirs(database: duckdb.DuckDBPyConnection, written: str) -> list[object] | None:
    """Return DuckDB's value for each row, None if it doesn't take the text."""
    try:
        return [value for (value,) in database.execute(f"select {written} from rows order by n").fetchall()]
    except duckdb.Error:
        return None


def same(ours: object, other: object) -> bool:
    """Return whether two values are equal. A date plus an interval is a timestamp there."""
    if isinstance(ours, float) or isinstance(other, float):
        if not isinstance(ours, int | float | Decimal) or not isinstance(other, int | float | Decimal):
            return False
        one, two = float(ours), float(other)
        return one == two or math.isclose(one, two, rel_tol=1e-12) or (math.isnan(one) and math.isnan(two))
    if isinstance(ours, bool) != isinstance(other, bool):
        return False
    moments = [
        dt.datetime(each.year, each.month, each.day) if type(each) is dt.date else each  # noqa: DTZ001
        for each in (ours, other)
    ]
    return bool(moments[0] == moments[1])


def check(database: duckdb.DuckDBPyConnection, written: str) -> str:
    """Assert that a text has one meaning; return who took it: both, ours, theirs or nobody."""
    expected = theirs(database, written)
    try:
        expression = scalar(written, COLUMNS)
    except SpecError:
        return "nobody" if expected is None else "theirs"
    if expected is None:
        return "ours"
    try:
        found = FusedSteps(SCHEMA, (MapStep((("value", expression),)),)).run(FRAME).frame["value"].to_list()
    except InputError:
        return "theirs"
    for row, value, wanted in zip(ROWS, found, expected, strict=True):
        assert same(value, wanted), (written, str(expression), row, value, wanted)
    return "both"


TAKEN: dict[str, dict[str, int]] = {"typed": {}, "wild": {}}
"""How many texts each took."""


@settings(max_examples=many(160))
@given(written=typed())
def test_typed_text(database: duckdb.DuckDBPyConnection, written: str) -> None:
    """What has a meaning has DuckDB's."""
    who = check(database, written)
    TAKEN["typed"][who] = TAKEN["typed"].get(who, 0) + 1


@settings(max_examples=many(320))
@given(written=wild())
def test_wild_text(database: duckdb.DuckDBPyConnection, written: str) -> None:
    """What both accept, however odd, both read in the same way."""
    who = check(database, written)
    TAKEN["wild"][who] = TAKEN["wild"].get(who, 0) + 1


def test_most_is_compared() -> None:
    """The texts are not refused by one side: a generator of nonsense would judge nothing."""
    assert TAKEN["typed"]["both"] > 0.8 * sum(TAKEN["typed"].values()), TAKEN
    assert TAKEN["wild"]["both"] > 0.05 * sum(TAKEN["wild"].values()), TAKEN

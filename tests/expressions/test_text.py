"""SQL text means here what it means in DuckDB: random texts, every operator, without redundant parentheses.

Nothing of ours takes part in the judgement but the values: DuckDB reads the same text. `DD_EFFORT=100` asks for more texts.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb
import pytest
from hypothesis import given, settings

from ddcli.errors import InputError, SpecError
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import MapStep
from tests.draws import chance, many
from tests.expressions.grammar import COLUMNS, SQL_TYPES, rows, typed, wild
from tests.expressions.support import frame_of, scalar, schema, values

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


ATOMS = r"""a b 1 . \d \w \s \b \D \W \S \A \z \Z ^ $ [a-c] [^a] [[:alpha:]] [[:^digit:]] [[:letter:]] [[a]b] [a&&b] [a--b] [a~~b] [\d-] []a]
[^]a] [a-] [-a] [a-b-c] [\w-b] [a-\d] [a\]b] [\b] [\pL] [^\d\s] [^\W] [é-ü] \x41 \x{62} \u0061 \101 \0 \1 \pL \PL \p{Lu} \p{Greek} \p{^L} \p{C}
\p{Alphabetic} \p{sc=Greek} \< \> \- \/ \_ \é \a \t \v \Qa.b\E \h \K \G (?=a) (?!a) (?<=a) (?<!a) (?>a) (?#c) (?i) (?s) (?m) (?x) (?U) (?-i) (?R)
(?i:\W) (?i:k) (?P<n>a) (?P=n) (?:a|b) (a) (|b) () | { } ] { # é ß K \u00a0 && ~ \b{start} [ ( )"""
REPEATED = [
    "",
    "",
    "",
    "",
    "*",
    "+",
    "?",
    "*?",
    "+?",
    "??",
    "{2}",
    "{1,2}",
    "{1,}",
    "{0}",
    "{2}?",
    "++",
    "*+",
    "?+",
    "**",
]
REPEATED += ["{2}{2}", "{2}*", "{1001}", "{,3}", "{2,1}", "{ 1}", "{01}"]
MATCHED = [
    "",
    "a",
    "ab",
    "aab1",
    "aB c",
    "A1b2",
    " a\tb\n",
    "b\u0661x",
    "éÉß",
    "\u017fK",
    "a&b",
    "a-b",
    "]a",
    "[a]",
    "a\u00a0b\u2028c",
]
MATCHED += ["αβΓ", "a{2}", "x{start}", "  ab #", "\x0b\x0c", "_a_", "<b>", "aaaa", "k\u212a", "a@b/c-d", None]
LACKING = re.compile(r"\\[01Q]|\\p\{C\}|\(\?[a-zA-Z-]+\)[*+?{]")
"""What RE2 has and we refuse."""


def test_a_regular_expression_means_what_it_does_in_duckdb(database: duckdb.DuckDBPyConnection) -> None:
    """Patterns of parts that engines read differently, without those that match a part of a character there."""
    rng, compared = chance("patterns"), 0
    for _ in range(many(300)):
        drawn = [rng.choice(ATOMS.split()) + rng.choice(REPEATED) for _ in range(rng.choice([1, 1, 2, 3]))]
        pattern = rng.choice(["", "", "(?i)"]) + "".join(drawn)
        written = f"[cast(regexp_matches(x, '{pattern}') as varchar), regexp_extract(x, '{pattern}'), regexp_replace(x, '{pattern}', '-')]"
        try:
            wanted = [
                v for (v,) in database.execute(f"select {written} from (select unnest(?) as x)", [MATCHED]).fetchall()
            ]
        except duckdb.InvalidInputException:
            wanted = None
        try:
            found = values(written, {"x": "string?"}, x=MATCHED)
        except SpecError:
            assert wanted is None or LACKING.search(pattern), pattern
            continue
        assert wanted is not None, pattern
        assert found == wanted, (pattern, found, wanted)
        compared += 1
    assert compared > many(300) / 10

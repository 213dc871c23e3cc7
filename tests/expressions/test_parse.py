"""Reading expressions: types, nullability, names, and mistakes at their places."""

from __future__ import annotations

import pytest
import sqlglot

from ddcli.errors import SpecError
from ddcli.expressions.parse import parse_scalar, parse_table
from ddcli.expressions.tree import PLAIN_NAME, delimited, quoted, to_be_read
from ddcli.expressions.types import ColumnScope
from tests.cases import cases
from tests.draws import some
from tests.expressions.support import scalar, schema, text, value

COLUMNS = {"a": "int64", "b": "int64?", "s": "string?", "f": "float64", "d": "decimal(12, 2)", "t": "timestamp"}
COLUMNS |= {"day": "date", "xs": "list[string]", "Foo": "int32", "u": "uint64", "x y": "int64", "p": "bool"}


@pytest.mark.parametrize(
    ("written", "type_"),
    [
        ("a + b", "int64?"),
        ("foo + 1", "int64"),
        ("FOO", "int32"),
        ('"x y" * 2', "int64"),
        ("a / 2", "float64"),
        ("a // 2", "int64"),
        ("a + f", "float64"),
        ("d + 1.5", "decimal(13, 2)"),
        ("d * 2", "decimal(13, 2)"),
        ("d / 3", "decimal(38, 6)"),
        ("1.5", "decimal(2, 1)"),
        ("1e3", "float64"),
        ("f > 1.5", "bool"),
        ("b > 1", "bool?"),
        ("b is null", "bool"),
        ("coalesce(b, 0)", "int64"),
        ("coalesce(b, null)", "int64?"),
        ("nullif(a, 1)", "int64?"),
        ("case when p then 1 end", "int64?"),
        ("case when p then 1 else 2.5 end", "decimal(20, 1)"),
        ("cast(a as tinyint)", "int8"),
        ("try_cast(a as tinyint)", "int8?"),
        ("cast(a as int8)", "int64"),
        ("try_cast(a as int4)", "int64?"),
        ("a::integer", "int64"),
        ("cast(a as real)", "float32"),
        ("cast(a as float)", "float32"),
        ("a::double precision", "float64"),
        ("cast(null as varchar(10))", "string?"),
        ("cast('x' as character varying (3))", "string"),
        ("cast('2024-01-01' as timestamp with time zone)", "datetime[us, UTC]"),
        ("cast('2024-01-01' as timestamp without time zone)", "datetime[us]"),
        ("cast(a as decimal)", "decimal(18, 3)"),
        ("cast(a as numeric(5))", "decimal(5, 0)"),
        ("cast(a as hugeint)", "decimal(38, 0)"),
        ("try_add(a, 1)", "int64?"),
        ("cast(s as decimal(10,2))", "decimal(10, 2)?"),
        ("cast(day as datetime[ms])", "datetime[ms]"),
        ("day + interval '1' day", "datetime[us]"),
        ("day + 1", "date"),
        ("day + interval '1' hour", "datetime[us]"),
        ("day - day", "int64"),
        ("t - interval '1' month", "datetime[us]"),
        ("xs[1]", "string?"),
        ("split(s, ',')", "list[string]?"),
        ("s || a", "string?"),
        ("u + 1", "int64"),
        ("u > a", "bool"),
        ("round(d, 1)", "decimal(12, 1)"),
        ("sum", "int64"),
    ],
)
def test_types(written: str, type_: str) -> None:
    """An expression's type, nullability included."""
    columns = COLUMNS | {"sum": "int64"}
    assert str(scalar(written, columns).type) == type_
    assert parse_scalar(text(written), ColumnScope(schema(columns))) == scalar(written, columns)


@cases("""
written → column: int → problem → hint
a + foe → 9 → no column is named `foe` → did you mean `Foo`? (in scope: Foo, a,
up.b → 5 → no column is named `up.b` → up.a
lenght(s) → 5 → no function is named `lenght` → `length`
1 + left(a, 2) → 14 → left expects a string as `text`, got int64 → left(text: string, n: integer) -> string
left(s) → 5 → left takes 2 arguments, got 1
a + s → 9 → `+` expects numbers, got string → ||
a and p → 5 → `and` expects conditions, got int64
s = 1 → 9 → needs arguments of one type, got string and int64 → cast
a + → 7 → something is missing after `+`
a b → 7 → unexpected `b`
a || 'x → 10 → never closed
(a + 1 → 10 → expected `)`
 → 5 → missing
a; b → 6 → `;` ends an expression
NINES → 5 → has more than 38 digits
-NINES → 6 → has more than 38 digits
interval '1 month 2 days' + interval '1' day → 14 → months and years differ in length → day + interval '1' month
interval '1' month * 1.5 → 26 → not defined for months → multiplied by integers
interval '1 hour 01:30' → 14 → is no interval
interval '1 day 01:30 ago' → 14 → is no interval
interval '1.5 months' → 14 → a constant whole number
interval '2562047788 hours 2562047788 hours' → 14 → too long
cast('soon' as interval) → 5 → is no interval
timestamp '2017-07-23A13:10:11' → 15 → is not a timestamp
date '2017-W01-1' → 10 → is not a date
time '101112' → 10 → is not a time
cast(1 as uhugeint) → 15 → no type is named
interval 'NINES' day → 14 → too long
cast(a as flaot64) → 15 → no type is named `flaot64` → `float64`
cast(day as int64) → 5 → date can't be cast to int64 → epoch
day >= '2013-02-30' → 12 → is not a date → 2013-01-31
sum(a) → 5 → sum is an aggregate → reduce
now() → 5 → changes by itself
regexp_like(s, '(') → 20 → the pattern is wrong: unclosed group
regexp_like(s, 'ab++') → 20 → `++` repeats a repetition → possessive quantifiers
regexp_like(s, 'a{1001}') → 20 → `{1001}` repeats more than 1000 times
regexp_like(s, '(?x)a') → 20 → it has the flag `x` → one of i, m, s, U
regexp_like(s, '[[:letter:]]') → 20 → it has no class `[:letter:]`
regexp_like(s, '[a') → 20 → unclosed `[`
regexp_like(s, '\\u00e9') → 20 → it has no escape `\\u`
regexp_like(s, '(?=a)') → 20 → look-around
regexp_like(s, '(?>a)') → 20 → the pattern is wrong
regexp_like(s, '(a)\\1') → 20 → backreferences
regexp_like(s, s) → 20 → `pattern` must be a constant
(select 1) → 13 → subqueries → join
count(*) over () → 5 → window
date_trunc('moth', t) → 16 → has no unit 'moth'
lpad(s, 3, 'ab') → 16 → one character
time_bucket(interval '0' day, t) → 26 → must be positive
time_bucket(interval '-1' hour, timestamptz '2024-01-01 00:00:00Z', 'Europe/Berlin') → 26 → must be positive
case when a then 1 end → 15 → expects a condition, got int64
s like 'a!' escape '!' → 12 → escapes nothing
cast(300 as tinyint) → 5 → out of range
? → 5 → not supported
interval '1' fortnight → 14 → unknown unit
* → 5 → only in count(*)
a = any(xs) → 9 → any is an aggregate
""")
def test_mistakes(written: str, column: int, problem: str, hint: str) -> None:
    """Each is told at its place, with a way out."""
    with pytest.raises(SpecError) as caught:
        parse_scalar(text(written.replace("NINES", "9" * 5_000)), ColumnScope(schema(COLUMNS), {("up", "a"): "a"}))
    assert problem in caught.value.problem
    assert hint in (caught.value.hint or "")
    assert caught.value.span
    assert caught.value.span.column == column


def test_names() -> None:
    """Exact first, then without regard to case if that leaves one; qualified names by the scope."""
    scope = ColumnScope(schema({"Id": "int64", "ID": "int64", "m": "int64", "m_up": "int64"}), {("up", "m"): "m_up"})
    assert parse_scalar(text("Id"), scope).columns() == {"Id"}
    assert parse_scalar(text("up.m + M"), scope).columns() == {"m_up", "m"}
    with pytest.raises(SpecError, match="any of 2 columns"):
        parse_scalar(text("id"), scope)


@pytest.mark.parametrize(
    "written",
    [
        "a + b * 2 - -3",
        "case when p then s else 'it''s' end",
        "a between 1 and 2 or not p",
        "s like 'a!%' escape '!'",
        "b in (1, 2, 3)",
        "day + interval '1' day",
        "cast(s as decimal(10, 2)) > 1.5",
        "extract(year from t) = 2013",
        "f > 1.5",
        "t + interval '1' month",
        '"x y" is null',
        "xs[1] || 'x'",
        "try_divide(a, b)",
        "f is not distinct from 0.5",
        "substring(s from 2 for 3)",
    ],
)
def test_text_reads_back(written: str) -> None:
    """Canonical text is SQL that means the same."""
    expression = scalar(written, COLUMNS)
    assert scalar(expression.text(), COLUMNS) == expression


def test_substitute() -> None:
    """Columns are replaced by expressions of their type."""
    expression = scalar("a + b", COLUMNS).substitute({"a": scalar("length(s)", COLUMNS)})
    assert expression.text() == "(length(s) + b)"


def test_the_least_integer() -> None:
    """Unary minus belongs to the number."""
    assert value("-9223372036854775808") == -(2**63)
    assert value("9223372036854775808") == 2**63  # a decimal


@pytest.mark.parametrize(
    ("written", "type_"),
    [("unnest(xs)", "string?"), ("generate_series(1, foo)", "int64"), ("unnest(split(s, ','))", "string?")],
)
def test_tables(written: str, type_: str) -> None:
    """Functions that give rows."""
    found = parse_table(text(written), ColumnScope(schema(COLUMNS))).type
    assert str(found).rstrip("?") == type_.rstrip("?")


@pytest.mark.parametrize("written", ["unnest(a)", "length(s)", "a", "generate_series(1)", "unnest(xs, xs)"])
def test_tables_refused(written: str) -> None:
    """What gives no rows."""
    with pytest.raises(SpecError):
        parse_table(text(written), ColumnScope(schema(COLUMNS)))


def sqlglot_words() -> list[str]:
    """Return the words that sqlglot's dialects have for something."""
    found: set[str] = set()
    for name in sqlglot.Dialect.classes:
        dialect = sqlglot.Dialect.get_or_raise(name)
        found |= {*dialect.tokenizer_class.KEYWORDS, *dialect.parser_class.FUNCTION_PARSERS}
    return sorted(word.lower() for word in found if PLAIN_NAME.fullmatch(word.lower()))


def test_a_name_that_is_to_be_read_again_is_that_name() -> None:
    """Whichever word sqlglot has for something else, wherever it stands."""
    words = sqlglot_words()
    assert {"on", "comment", "where", "all"} < {*words}
    with to_be_read():
        for word in some(words):
            names, column = schema({word: "int64", "other": "int64"}), quoted(word)
            for form in (
                "{}",
                "{} > 1 and other > 0",
                "other + {}",
                "abs({})",
                "coalesce(other, {})",
                "other in ({}, 1)",
            ):
                found = parse_scalar(text(form.format(column)), ColumnScope(names))
                assert found.text() == parse_scalar(text(form.format(delimited(word))), ColumnScope(names)).text()
                assert word in found.columns(), (word, form)

"""The table of functions: every name that an expression may call, with its meaning.

The table is data: documentation is generated from it, each example is a test, and a name that is not here is an error,
never handed to an engine. Operators are in it under their signs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions import operators as rules
from ddcli.expressions.signatures import check_arguments, parse_signature, result_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.operators import Resolved, Rule
    from ddcli.expressions.tree import Expression


@dataclass(frozen=True)
class Function:
    """One function: how it is called, what it means, and an example with its value (both SQL)."""

    name: str
    signature: str
    doc: str
    example: str
    result: str
    rule: Rule | None = None
    calls: str | None = None

    def resolve(self, args: Sequence[Expression]) -> Resolved:
        """Return the converted arguments, the type of the result and the canonical name; raises Mismatch."""
        if self.rule:
            return self.rule(self.name, args)
        signature = parse_signature(self.signature)
        converted = check_arguments(signature, args)
        return converted, result_type(signature, converted), self.calls or self.name


def _rule(name: str, signature: str, doc: str, example: str, result: str, rule: Rule) -> Function:
    return Function(name, signature, doc, example, result, rule)


def _plain(signature: str, doc: str, example: str, result: str, calls: str | None = None) -> Function:
    return Function(signature.partition("(")[0], signature, doc, example, result, calls=calls)


ARITHMETIC = [
    _rule(
        "+",
        "a + b",
        "Sum. Integer overflow is an error. A date plus a constant integer is so many days later.",
        "2 + 3",
        "5",
        rules.arithmetic,
    ),
    _rule("-", "a - b", "Difference; of two dates or timestamps an interval.", "2 - 3", "-1", rules.arithmetic),
    _rule("*", "a * b", "Product. Integer overflow is an error.", "2 * 3", "6", rules.arithmetic),
    _rule(
        "/",
        "a / b",
        "Quotient; of two integers truncated toward zero. Division by zero is an error, for floats too.",
        "-7 / 2",
        "-3",
        rules.arithmetic,
    ),
    _rule("%", "a % b", "Remainder of `/`, with the sign of `a`; not for floats.", "-7 % 2", "-1", rules.arithmetic),
    _rule("mod", "mod(a, b)", "The same as `a % b`.", "mod(7, 3)", "1", rules.arithmetic),
    _rule("try_add", "try_add(a, b)", "`a + b`, null on overflow.", "try_add(1, 2)", "3", rules.arithmetic),
    _rule(
        "try_subtract", "try_subtract(a, b)", "`a - b`, null on overflow.", "try_subtract(1, 2)", "-1", rules.arithmetic
    ),
    _rule(
        "try_multiply", "try_multiply(a, b)", "`a * b`, null on overflow.", "try_multiply(4, 2)", "8", rules.arithmetic
    ),
    _rule(
        "try_divide",
        "try_divide(a, b)",
        "`a / b`, null when `b` is zero.",
        "try_divide(1, 0)",
        "null",
        rules.arithmetic,
    ),
    _rule("negate", "-a", "The value with the other sign.", "-(3)", "-3", rules.negate),
    _rule("abs", "abs(x)", "Absolute value, in the type of x.", "abs(-3)", "3", rules.magnitude),
    _rule(
        "sign", "sign(x)", "-1, 0 or 1; of NaN 1, which sorts after every number.", "sign(-2.5)", "-1", rules.magnitude
    ),
    _rule(
        "round",
        "round(x, digits = 0)",
        "Round half away from zero. Floats: scaled by 10^digits, rounded, scaled back.",
        "round(-2.5)",
        "cast(-3 as decimal(2, 0))",
        rules.rounding,
    ),
    _rule("trunc", "trunc(x, digits = 0)", "Cut digits, toward zero.", "trunc(-2.58, 1)", "-2.5", rules.rounding),
    _rule("floor", "floor(x)", "Largest whole number not above x.", "floor(-2.5e0)", "-3e0", rules.rounding),
    _rule("ceil", "ceil(x)", "Smallest whole number not below x.", "ceil(2.1e0)", "3e0", rules.rounding),
    _plain("sqrt(x: float) -> float64", "Square root; of a negative number an error.", "sqrt(16)", "4e0"),
    _plain(
        "power(x: float, y: float) -> float64",
        "x to the y. Zero to a negative power, or a negative to a broken one, is an error.",
        "power(2, 10)",
        "1024e0",
    ),
    _plain("exp(x: float) -> float64", "e to the x.", "exp(0)", "1e0"),
    _plain("ln(x: float) -> float64", "Natural logarithm; of zero or less an error.", "ln(1)", "0e0"),
    _plain("log10(x: float) -> float64", "Logarithm to base 10; of zero or less an error.", "log10(1000)", "3e0"),
    _plain("log(base: float, x: float) -> float64", "Logarithm of x to a base, in this order.", "log(2, 8)", "3e0"),
    _plain("is_nan(x: float) -> bool", "Whether x is NaN.", "is_nan(cast('nan' as float64))", "true"),
]

CONDITIONS = [
    _rule(
        "=",
        "a = b",
        "Equality. NaN equals NaN, -0.0 equals 0.0; null when a side is.",
        "1 = 1",
        "true",
        rules.comparison,
    ),
    _rule("<>", "a <> b", "Not equal.", "1 <> 1", "false", rules.comparison),
    _rule("<", "a < b", "Less. NaN is above every number; text by code points.", "'a' < 'b'", "true", rules.comparison),
    _rule("<=", "a <= b", "Less or equal.", "1 <= 1", "true", rules.comparison),
    _rule(">", "a > b", "Greater.", "cast('nan' as float64) > 1e308", "true", rules.comparison),
    _rule(">=", "a >= b", "Greater or equal.", "1 >= null", "null", rules.comparison),
    _rule(
        "is distinct from",
        "a is distinct from b",
        "Not equal, null being a value like any other; never null.",
        "1 is distinct from null",
        "true",
        rules.comparison,
    ),
    _rule(
        "is not distinct from",
        "a is not distinct from b",
        "Equal, null being equal to null.",
        "null is not distinct from null",
        "true",
        rules.comparison,
    ),
    _rule("is null", "a is [not] null", "Whether the value is missing.", "1 is null", "false", rules.is_null),
    _rule(
        "in",
        "a in (b, ...)",
        "Whether a equals one of the list; null if unknown.",
        "2 in (1, 2)",
        "true",
        rules.membership,
    ),
    _rule(
        "and",
        "a and b",
        "Three-valued. The right side is not evaluated where the left is false.",
        "false and null",
        "false",
        rules.logic,
    ),
    _rule(
        "or",
        "a or b",
        "Three-valued. The right side is not evaluated where the left is true.",
        "true or null",
        "true",
        rules.logic,
    ),
    _rule("not", "not a", "Negation; null stays null.", "not true", "false", rules.logic),
    _rule(
        "coalesce",
        "coalesce(a, ...)",
        "The first that is not null; later ones are not evaluated.",
        "coalesce(null, 2)",
        "2",
        rules.coalesce,
    ),
    _plain(
        "error(message: constant string) -> null",
        "Fail, with this message: what is reached only where something is wrong.",
        "case when 1 > 2 then error('too large') else 1 end",
        "1",
    ),
    _rule("nullif", "nullif(a, b)", "Null if a equals b, else a.", "nullif(1, 1)", "null", rules.nullif),
    _rule(
        "greatest", "greatest(a, ...)", "The largest; null when one is null.", "greatest(1, 3, 2)", "3", rules.extremum
    ),
    _rule("least", "least(a, ...)", "The smallest; null when one is null.", "least(1, 3, 2)", "1", rules.extremum),
]

TEXT = [
    _rule("concat", "a || b, concat(a, ...)", "Join text; null when one is null.", "'a' || 'b'", "'ab'", rules.concat),
    _plain("length(text: string) -> int64", "Number of characters (code points).", "length('añb')", "3"),
    _plain("upper(text: string) -> string", "In upper case, by Unicode.", "upper('aß')", "'ASS'"),
    _plain("lower(text: string) -> string", "In lower case, by Unicode.", "lower('AÑ')", "'añ'"),
    _plain(
        "trim(text: string, characters: constant string = ' ') -> string",
        "Without the characters at both ends.",
        "trim('  a ')",
        "'a'",
    ),
    _plain(
        "ltrim(text: string, characters: constant string = ' ') -> string",
        "Without the characters at the beginning.",
        "ltrim('xxa', 'x')",
        "'a'",
    ),
    _plain(
        "rtrim(text: string, characters: constant string = ' ') -> string",
        "Without the characters at the end.",
        "rtrim('axx', 'x')",
        "'a'",
    ),
    _plain(
        "substring(text: string, start: integer, length: integer = null) -> string",
        "Characters from position start (the first is 1). A negative length is an error.",
        "substring('hello', 2, 3)",
        "'ell'",
    ),
    _plain(
        "strpos(text: string, part: string) -> int64",
        "Position of the first match, 0 if none.",
        "strpos('añb', 'b')",
        "3",
    ),
    _plain(
        "replace(text: string, old: string, new: string) -> string",
        "Replace every occurrence; an empty `old` replaces nothing.",
        "replace('aba', 'a', 'x')",
        "'xbx'",
    ),
    _plain(
        "starts_with(text: string, part: string) -> bool", "Whether text begins so.", "starts_with('abc', 'ab')", "true"
    ),
    _plain("ends_with(text: string, part: string) -> bool", "Whether text ends so.", "ends_with('abc', 'bc')", "true"),
    _plain("contains(text: string, part: string) -> bool", "Whether part occurs.", "contains('abc', 'b')", "true"),
    _plain(
        "split(text: string, separator: string) -> list[string]",
        "The parts between separators; an empty separator splits nothing.",
        "split('a,b', ',')",
        "['a', 'b']",
    ),
    _plain(
        "split_part(text: string, separator: string, position: integer) -> string",
        "The part at a position between separators, empty where there is none; the first is 1, the last -1.",
        "split_part('a/b/c', '/', 2)",
        "'b'",
    ),
    _plain(
        "lpad(text: string, n: integer, fill: constant string = ' ') -> string",
        "Filled on the left to n characters, or cut to n. The fill is one character.",
        "lpad('7', 3, '0')",
        "'007'",
    ),
    _plain(
        "rpad(text: string, n: integer, fill: constant string = ' ') -> string",
        "Filled on the right to n characters, or cut to n. The fill is one character.",
        "rpad('abc', 2)",
        "'ab'",
    ),
    _plain(
        "left(text: string, n: integer) -> string", "First n characters; all but the last -n.", "left('abc', 2)", "'ab'"
    ),
    _plain(
        "right(text: string, n: integer) -> string",
        "Last n characters; all but the first -n.",
        "right('abc', 2)",
        "'bc'",
    ),
    _plain("reverse(text: string) -> string", "Characters (code points) in reverse order.", "reverse('abc')", "'cba'"),
    _plain(
        "like(text: string, pattern: constant string, escape: constant string = '') -> bool",
        "Whether the whole text matches: `%` is any text, `_` any character. Also `text [not] like pattern escape '!'`.",
        "like('abc', 'a%')",
        "true",
    ),
    _plain(
        "ilike(text: string, pattern: constant string, escape: constant string = '') -> bool",
        "`like` without regard to case.",
        "ilike('ABC', 'a_c')",
        "true",
    ),
    _plain(
        "regexp_like(text: string, pattern: constant string) -> bool",
        "Whether the pattern (Rust's regex syntax) matches anywhere.",
        "regexp_like('ab12', '[0-9]+$')",
        "true",
    ),
    _plain(
        "regexp_replace(text: string, pattern: constant string, new: constant string) -> string",
        "Replace every match; `\\1` in the new text is the first group.",
        "regexp_replace('a1b22', '([0-9]+)', '<\\1>')",
        "'a<1>b<22>'",
    ),
    _plain(
        "regexp_extract(text: string, pattern: constant string, group: constant integer = 0) -> string?",
        "The first match or one of its groups; null if there is none.",
        "regexp_extract('ab12', '[a-z]([0-9])', 1)",
        "'1'",
    ),
]


def _parts() -> list[Function]:
    dated = {
        "year": ("Year.", "2013"),
        "quarter": ("Quarter, 1 to 4.", "2"),
        "month": ("Month, 1 to 12.", "5"),
        "week": ("ISO week, 1 to 53.", "18"),
        "day": ("Day of the month.", "4"),
        "doy": ("Day of the year, from 1.", "124"),
        "dow": ("Day of the week, Sunday 0 to Saturday 6.", "6"),
        "isodow": ("Day of the week, Monday 1 to Sunday 7.", "6"),
    }
    found = [
        _plain(
            f"{name}(x: dated) -> int64", f"{doc} Also `extract({name} from x)`.", f"{name}(date '2013-05-04')", value
        )
        for name, (doc, value) in dated.items()
    ]
    for name, value in (("hour", "7"), ("minute", "8"), ("second", "9")):
        doc = f"The {name}, whole. Also `extract({name} from x)`."
        found.append(_plain(f"{name}(x: timed) -> int64", doc, f"{name}(time '07:08:09.5')", value))
    return found


TIME = [
    *_parts(),
    _plain(
        "epoch(x: timestamp) -> float64",
        "Seconds since 1970-01-01 00:00 (UTC). Also `extract(epoch from x)`.",
        "epoch(timestamp '1970-01-01 00:01:00.5')",
        "60.5e0",
    ),
    _plain(
        "date_trunc(unit: constant string, x: dated) -> x",
        "The beginning of its year, quarter, month, week (Monday), day, hour, minute or second.",
        "date_trunc('month', date '2013-05-04')",
        "date '2013-05-01'",
    ),
    _plain(
        "date_diff(unit: constant string, a: timestamp, b: timestamp) -> int64",
        "Whole weeks, days, hours, minutes, seconds, milliseconds or microseconds from a to b, toward zero.",
        "date_diff('day', date '2013-05-04', date '2013-06-01')",
        "28",
    ),
    _plain(
        "make_date(year: integer, month: integer, day: integer) -> date",
        "The date; one that does not exist is an error.",
        "make_date(2013, 5, 4)",
        "date '2013-05-04'",
    ),
    _plain(
        "add_months(x: dated, n: integer) -> x",
        "So many months later, on the month's last day if it has no such day. Also `x + interval '1' month`.",
        "add_months(date '2013-01-31', 1)",
        "date '2013-02-28'",
    ),
    _plain("seconds(x: duration) -> float64", "An interval in seconds.", "seconds(interval '2' hour)", "7200e0"),
]

LISTS = [
    _rule("array", "[a, ...], array[a, ...]", "A list.", "[1, 2]", "[1, 2]", rules.array),
    _plain("cardinality(x: list) -> int64", "Number of elements, nulls included.", "cardinality([1, null])", "2"),
    _plain("array_length(x: list) -> int64", "The same as cardinality.", "array_length([1, 2])", "2", "cardinality"),
    _plain(
        "element(x: list, n: integer) -> inner?",
        "`x[n]`: the n-th element, the first is 1; null outside the list.",
        "element(['a', 'b'], 2)",
        "'b'",
    ),
    _plain(
        "list_slice(x: list, first: integer, last: integer = cardinality(x)) -> x",
        "`x[first:last]`: the elements from one to another, both included; to the end without `last`.",
        "list_slice(['a', 'b', 'c'], 2, 3)",
        "['b', 'c']",
    ),
    _rule(
        "array_contains",
        "array_contains(x, value)",
        "Whether the list has the value; null elements are passed over.",
        "array_contains([1, 2], 2)",
        "true",
        rules.array_contains,
    ),
]

STRUCTS = [
    _rule(
        "named_struct",
        "{'a': x, ...}, struct_pack(a := x, ...), named_struct('a', x, ...)",
        "A struct: values under names.",
        "{'a': 1, 'b': 'x'}",
        "named_struct('a', 1, 'b', 'x')",
        rules.named_struct,
    ),
    _rule(
        "struct_extract",
        "s.a, s['a'], struct_extract(s, 'a')",
        "A field of a struct; null where the struct is.",
        "({'a': 1, 'b': 'x'}).b",
        "'x'",
        rules.struct_extract,
    ),
]

FUNCTIONS: dict[str, Function] = {f.name: f for f in (*ARITHMETIC, *CONDITIONS, *TEXT, *TIME, *LISTS, *STRUCTS)}

# Other people's names for the same things.
SYNONYMS = {"ceiling": "ceil", "pow": "power", "char_length": "length", "character_length": "length", "len": "length"}
SYNONYMS |= {
    "substr": "substring",
    "position": "strpos",
    "if_null": "coalesce",
    "ifnull": "coalesce",
    "nvl": "coalesce",
}
SYNONYMS |= {"isnan": "is_nan", "truncate": "trunc", "split_to_array": "split", "regexp_matches": "regexp_like"}
SYNONYMS |= {"list_contains": "array_contains", "starts": "starts_with", "dayofweek": "dow", "dayofyear": "doy"}
SYNONYMS |= {
    "dayofmonth": "day",
    "array_slice": "list_slice",
    "list_value": "array",
    "datetrunc": "date_trunc",
    "datediff": "date_diff",
}

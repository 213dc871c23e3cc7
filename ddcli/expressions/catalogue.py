"""The catalogue of functions, for people: `dd functions` lists it, and docs/expressions.md shows it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.expressions import functions
from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES
from ddcli.expressions.functions import ARITHMETIC, BITS, JSON, LISTS, STRUCTS, TEXT
from ddcli.expressions.time_functions import TIME
from ddcli.expressions.windows import WINDOW_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

ERROR = "an error"


@dataclass(frozen=True)
class Elsewhere:
    """An expression, its value here, in DuckDB and in Spark (SQL, or `ERROR`); the functions in it, a replacement, and the reason for the difference."""

    functions: tuple[str, ...]
    expression: str
    here: str
    duckdb: str
    spark: str
    instead: str
    reason: str


SAFER = "an error is safer"
AGREED = "Postgres and Spark agree"
DIFFERENCES = [
    Elsewhere(("/",), "1 / 0", ERROR, "cast('inf' as float64)", ERROR, "try_divide(1, 0)", SAFER),
    Elsewhere(("sqrt", "asin", "acos", "power"), "sqrt(-1)", ERROR, "cast('nan' as float64)", "cast('nan' as float64)", "case when x >= 0 then sqrt(x) end", SAFER),
    Elsewhere(("ln", "log", "log2", "log10"), "ln(0)", ERROR, "cast('-inf' as float64)", "null", "case when x > 0 then ln(x) end", SAFER),
    Elsewhere(("sum", "list_sum"), "list_sum([9223372036854775807, 1])", ERROR, "9223372036854775808", ERROR, "sum(cast(x as decimal(38, 0)))", SAFER),
    Elsewhere(("make_date", "+", "-"), "year(date '9999-12-31' + 1)", ERROR, "10000", "10000", "case when day < date '9999-12-31' then day + 1 end", SAFER),
    Elsewhere(("=",), "'1' = 1", ERROR, "true", "true", "cast('1' as int64) = 1", SAFER),
    Elsewhere((), "cast('1.5' as bigint)", ERROR, "2", ERROR, "cast(cast('1.5' as float64) as bigint)", AGREED),
    Elsewhere(("/", "avg"), "2.0 / 3", "0.666667", "0.6666666666666666e0", "0.666667", "cast(2.0 as float64) / 3", "a decimal stays exact, as in Postgres and Spark"),
    Elsewhere(("median", "quantile_cont"), "median(1.50)", "1.5e0", "1.50", "1.5e0", "cast(median(x) as decimal(12, 2))", AGREED),
    Elsewhere(("corr", "regr_slope"), "corr(1, 1)", "null", "cast('nan' as float64)", "null", "coalesce(corr(y, x), cast('nan' as float64))", AGREED),
    Elsewhere(("array_to_string", "list_aggregate"), "array_to_string([cast(null as varchar)], ',')", "''", "null", "''", "nullif(array_to_string(x, ','), '')", AGREED),
    Elsewhere((), "cast(cast(0.5 as decimal(1, 1)) as varchar)", "'0.5'", "'.5'", "'0.5'", "ltrim(cast(x as varchar), '0')", AGREED),
    Elsewhere(("reverse",), "ascii(reverse('e' || chr(769)))", "769", "101", "769", "reverse(text)", AGREED),
    Elsewhere(("list_distinct", "list_intersect", "list_except"), "list_distinct([1, 2])[1]", "1", "2", "1", "list_sort(list_distinct(x))", "the order there is no function of the list"),
    Elsewhere(("json_extract_string", "json_extract", "json_value"), """json_extract_string('{"a": 1e3}', '$.a')""", "'1e3'", "'1000.0'", "'1000.0'", "cast(cast(x ->> '$.a' as float64) as string)", "numbers keep their digits"),
]  # fmt: skip


def differences_of(name: str) -> list[Elsewhere]:
    """Return the differences of a function, by its name."""
    return [each for each in DIFFERENCES if name in each.functions]


GROUPS = {
    "Numbers": ARITHMETIC,
    "Bits": BITS,
    "Conditions": functions.CONDITIONS,
    "Text": TEXT,
    "JSON in texts": JSON,
    "Dates and times": TIME,
    "Lists": LISTS,
    "Structs": STRUCTS,
}
AGGREGATE = "Aggregates"
"""The group of aggregates."""
WINDOW = "Window functions"


@dataclass(frozen=True)
class Described:
    """A function, an aggregate or a window function, for people; only the first have examples."""

    group: str
    name: str
    signature: str
    meaning: str
    example: str = ""
    value: str = ""
    other_names: tuple[str, ...] = ()

    @cached_property
    def differences(self) -> list[Elsewhere]:
        """Return its differences from other databases."""
        return differences_of(self.name)

    def lines(self) -> list[str]:
        """Return it as text."""
        lines = [self.signature, f"  {self.meaning}"]
        if self.example:
            lines.append(f"  {self.example} is {self.value}")
        if self.other_names:
            lines.append(f"  also: {', '.join(self.other_names)}")
        lines += [
            f"  elsewhere: {each.expression} is {each.here} here, {each.duckdb} in DuckDB, {each.spark} in Spark"
            for each in self.differences
        ]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "group": self.group,
            "name": self.name,
            "signature": self.signature,
            "meaning": self.meaning,
            "example": self.example or None,
            "value": self.value or None,
            "other_names": list(self.other_names),
            "elsewhere": [
                {"expression": each.expression, "here": each.here, "duckdb": each.duckdb, "spark": each.spark}
                for each in self.differences
            ],
        }

    def has(self, word: str) -> bool:
        """Return whether a word is in its name or one of its other names, or in its description."""
        texts = (self.name, self.signature, self.meaning, *self.other_names)
        return any(word.lower() in text.lower() for text in texts)


def catalogue() -> Iterator[Described]:
    """Yield every function, aggregate and window function, group by group."""
    for title, group in GROUPS.items():
        for each in group:
            others = tuple(sorted(name for name, meant in functions.SYNONYMS.items() if meant == each.name))
            yield Described(title, each.name, each.signature, each.doc, each.example, each.result, others)
    for one in AGGREGATES.values():
        others = tuple(sorted(name for name, meant in AGGREGATE_SYNONYMS.items() if meant == one.name))
        yield Described(AGGREGATE, one.name, one.signature, one.doc, other_names=others)
    for called in WINDOW_FUNCTIONS.values():
        yield Described(WINDOW, called.name, called.signature, called.doc)


def search(word: str) -> list[Described]:
    """Return the functions that match a word: with this name first, then with a name that contains it, then others whose entry does."""
    lowered = word.lower()

    def rank(each: Described) -> int:
        names = [name.lower() for name in (each.name, *each.other_names)]
        return 0 if lowered in names else 1 if any(lowered in name for name in names) else 2

    return sorted((each for each in catalogue() if each.has(word)), key=rank)


def names() -> list[str]:
    """Return every name that a function, an aggregate or a window function can be called."""
    return [name for each in catalogue() for name in (each.name, *each.other_names)]

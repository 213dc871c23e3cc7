"""Random calls of every function and operator whose name DuckDB has, too, over columns of every type and constants, with nulls and extremes among their values.

The functions are those of the table: one that is added to it is judged without more. Arguments are drawn by kind where a signature states
it, and at random where a rule types the call; what either side refuses to type is left out.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb

from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES
from ddcli.expressions.functions import FUNCTIONS, LISTS, SYNONYMS
from ddcli.expressions.signatures import parse_signature

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

JSON = [
    None,
    "",
    "null",
    "1",
    "1e3",
    "1.50",
    '"a"',
    '"1"',
    "true",
    "[]",
    "{}",
    "[1,null,[2]]",
    '{"a":{"b":[1,"x"]}}',
    "{",
    " [1] ",
]
JSON += [
    '{"a":1,"a":2}',
    '{"a":null}',
    '{"a":"x\\ny"}',
    '[{"a":"ü"},{"a":1.0}]',
    "12345678901234567890123",
    "-0",
    '{"a":[]}',
]
TEXTS = [
    None,
    "",
    "a",
    "b",
    "ab",
    "aXb",
    "A",
    "ß",
    "ñandú",
    "İi",
    "e\u0301",
    "🙂x",
    " 5 ",
    "12",
    "-7",
    "1.255",
    "0.5",
    "1e3",
    "true",
]
TEXTS += [
    "x,y,,z",
    "nan",
    "%_",
    "a.b",
    "A\nb",
    "abcabc",
    "2013-01-31",
    "2013-01-31 10:20:30.5",
    "07:08:09",
    "\t a",
    "xax",
    "ab12cd3",
]
WHOLE = [None, 0, 1, -1, 2, 3, 5, -2, -3, 7, 10, 63, 64, -64, 100, 2**31, -(2**31) - 1, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [
    None,
    0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.1,
    *([0.35, 2.675, -62.985] if duckdb.__version__ >= "2" else []),  # DuckDB 1 rounds 0.35 to 0.4
    16777217.0,
    1e16,
    2.0**63,
    1e308,
    -1e308,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
]
DAYS = [
    None,
    *(
        dt.date(*each)
        for each in [
            (2024, 1, 31),
            (2024, 2, 29),
            (2023, 12, 31),
            (1970, 1, 1),
            (1969, 12, 28),
            (2000, 3, 1),
            (1, 1, 1),
            (9999, 12, 31),
            (2024, 6, 2),
        ]
    ),
]
MOMENTS: list[dt.datetime | None] = [
    None,
    *(
        dt.datetime(*each)  # noqa: DTZ001
        for each in [
            (2024, 1, 31, 10, 59, 30, 500000),
            (2024, 2, 29),
            (2023, 12, 31, 23, 59, 59, 999999),
            (1969, 12, 31, 23, 59, 59, 999500),
            (1, 1, 1),
            (9999, 12, 31, 23, 59, 59),
            (2024, 2, 1, 11, 1),
            (2000, 1, 3),
            (1969, 12, 31, 23, 59, 59, 999600),
        ]
    ),
]
VALUES: dict[str, list[object]] = {
    "int64?": WHOLE,
    "int8?": [None, 0, 1, -1, 2, 3, 127, -128],
    "uint8?": [None, 0, 1, 2, 255],
    "float64?": FLOATS,
    "float32?": [None, 0.0, 0.5, -1.5, 2.5, 16777216.0, math.inf, math.nan],
    "decimal(6, 2)?": [None, *map(Decimal, ["0.00", "1.50", "-2.25", "0.50", "2.50", "9999.99", "-9999.99", "-0.01"])],
    "decimal(20, 3)?": [None, *map(Decimal, ["0.000", "1.005", "-2.500", "12345678901234567.999", "2.000"])],
    "bool?": [None, True, False],
    "string?": [*TEXTS, *JSON],
    "date?": DAYS,
    "time?": [None, dt.time(0), dt.time(7, 8, 9, 500000), dt.time(23, 59, 59, 999999)],
    "datetime[us]?": MOMENTS,
    "list[int64?]?": [None, [], [None], [1], [1, 2, 3], [3, None, 1, 3], [None, None], [2**62, 2**62]],
    "list[string?]?": [None, [], [None], [""], ["a", "b"], ["b", None, "a", "b"], ["", "a"]],
    "list[float64?]?": [None, [], [None], [math.nan, 1.0], [0.5, -0.5, None], [math.inf, 2.0]],
    "struct[i: int64?, s: string?]?": [None, {"i": 1, "s": "x"}, {"i": None, "s": None}],
    "decimal(3, 3)?": [None, *map(Decimal, ["0.000", "0.005", "-0.500", "0.999", "0.125"])],
    "datetime[ms]?": [None, *(each.replace(microsecond=each.microsecond // 1000 * 1000) for each in MOMENTS[1:])],
    "datetime[ns]?": [None, *(each for each in MOMENTS[1:] if 1700 < each.year < 2200)],
    "uint64?": [None, 0, 1, 255, 2**63 - 1, 2**63, 2**64 - 1],
    "datetime[us, UTC]?": [None, *(each.replace(tzinfo=dt.UTC) for each in MOMENTS if each and 1 < each.year < 9999)],
    "list[list[int64?]?]?": [None, [], [None], [[]], [[1], None, [2, None]], [[3, 1], [3]], [[3, 1]]],
    "list[date?]?": [None, [], [None], [dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)]],
    "list[struct[i: int64?, s: string?]?]?": [None, [], [None, {"i": 1, "s": None}], [{"i": 1, "s": ""}]],
    "binary?": [None, b"", b"a", b"\xff\x00", "ñ".encode(), b"abcd"],
}
"""The values of a column, by its type."""
SQL_TYPES = {
    "int64": "bigint",
    "int8": "tinyint",
    "uint8": "utinyint",
    "uint64": "ubigint",
    "float64": "double",
    "float32": "float",
    "bool": "boolean",
}
SQL_TYPES |= {
    "string": "varchar",
    "datetime[us]": "timestamp",
    "datetime[ms]": "timestamp_ms",
    "datetime[ns]": "timestamp_ns",
    "list[int64?]": "bigint[]",
    "list[string?]": "varchar[]",
}
SQL_TYPES |= {"list[float64?]": "double[]", "struct[i: int64?, s: string?]": "struct(i bigint, s varchar)"}
SQL_TYPES |= {"list[list[int64?]?]": "bigint[][]", "list[date?]": "date[]", "datetime[us, UTC]": "timestamptz"}
SQL_TYPES |= {"list[struct[i: int64?, s: string?]?]": "struct(i bigint, s varchar)[]", "binary": "blob"}
COLUMNS = {f"{'ab'[side]}{at}": kind for at, kind in enumerate(VALUES) for side in (0, 1)}
"""Two columns of each type."""

CONSTANTS = {
    "unit": [
        "year",
        "quarter",
        "month",
        "week",
        "day",
        "hour",
        "minute",
        "second",
        "millisecond",
        "microsecond",
        "decade",
        "century",
    ],
    "part": [
        "year",
        "quarter",
        "month",
        "week",
        "day",
        "dow",
        "isodow",
        "doy",
        "hour",
        "epoch",
        "isoyear",
        "decade",
        "century",
        "second",
    ],
    "format": ["%Y-%m-%d", "%d.%m.%y", "%H:%M:%S", "%a %b %j", "%Y-%m-%d %H:%M:%S.%f", "%%", "%A, %B %-d"],
    "pattern": ["a", "[0-9]+", "", "^", "(a)(b)?", "(?i)A", "b$", ".", "a%", "%", "_", "%b", "x*", "[a-z]([0-9])"],
    "new": ["", "x", "<\\\\1>", "\\\\0", "$1", "xy", "cc"],
    "flags": ["g", "i", "gi", "", "c"],
    "group": ["0", "1", "2"],
    "path": ["$", "$.a", "a", "$.a.b[0]", "$[0]", "$[1].a", "$.a.b", "$[-1]", "/a/b", "$[#-1]", "$.*"],
    "characters": ["x", "", " a", "ab"],
    "fill": ["x", " ", "*"],
    "separator": [",", "", "ab", "-"],
    "escape": ["!", ""],
    "digits": ["0", "1", "2", "-1", "3"],
    "old": ["a", "", "ab"],
    "zone": ["UTC", "Europe/Berlin", "America/New_York"],
}
"""The constants of parameters, by their names."""
STRUCTURES = [
    '["BIGINT"]',
    '["VARCHAR"]',
    '{"a": "VARCHAR"}',
    '{"a": {"b": ["INTEGER"]}, "c": "DOUBLE"}',
    '[{"a": "DOUBLE"}]',
    '"BOOLEAN"',
    '["DECIMAL(9, 2)"]',
    '["DATE"]',
    '[["UTINYINT"]]',
]
TEXT_CONSTANTS = [
    "",
    "a",
    "b",
    ",",
    "sum",
    "max",
    "g",
    "$.a",
    "a.b",
    "x",
    "%",
    "i",
    "s",
    "year",
    "min",
    "avg",
    "count",
    "string_agg",
]
INTERVALS = [
    "interval '1' day",
    "interval '1 month -3 days 01:30'",
    "interval '1.7 days'",
    "interval '1' month",
    "interval '90' minute",
    "interval '-1' year",
    "interval '7' day",
]


def constant(column: str, value: object) -> str:
    """Return a value of a column as a constant, empty for a list or a struct."""
    kind = COLUMNS[column].removesuffix("?")
    if kind.startswith(("list", "struct", "binary")):
        return ""
    written = "null" if value is None else "'" + str(value).replace("'", "''") + "'"
    return f"cast({written} as {SQL_TYPES.get(kind, kind)})"


def same_names(theirs: set[str]) -> list[tuple[str, str]]:
    """Return the names that both have, each with its function's name in the table."""
    named = [(name, name) for name in FUNCTIONS] + list(SYNONYMS.items())
    return [(name, meant) for name, meant in named if name in theirs or not (name.isidentifier()) or name in SYNTAX]


CASTS = ["struct(a bigint)", "struct(b varchar[])", "struct(s varchar, i double)", "varchar[][]", "struct(a varchar)[]"]
"""Lists and structs that no column is."""
SYNTAX = {"coalesce", "ifnull", "in", "and", "or", "not", "like", "ilike", "isnull"}
"""Functions that DuckDB's list lacks, as its grammar has them."""
UNARY = {
    "to_months": "a11 + to_months({})",
    "to_years": "a9 + to_years({})",
    "negate": "-{}",
    "~": "~{}",
    "not": "not {}",
    "is null": "{} is null",
}
OTHER = {
    "datepart": "extract('month' from {})",
    "strftime": "strftime('%Y-%m', {})",
    "isnull": "{} isnull",
    "date_add": "date_add(a9, interval '1' day)",
    **dict.fromkeys(["strptime", "try_strptime"], "strptime(strftime(a18, '%d.%m.%Y'), '%d.%m.%Y')"),
    "timezone": "timezone('Europe/Berlin', cast(a18 as timestamp))",
    "time_bucket": "time_bucket(interval '7' day, cast(a18 as timestamp))",
    "struct_extract": "struct_extract(a15, 'i')",
    "in": "{} in ({}, {})",
    "array": "[{}, {}]",
    "json_extract": "{} -> {}",
    "json_extract_string": "{} ->> {}",
}


BYTES = {"hex", "octet_length", "md5", "sha1", "sha256"}
ROWS_COMPARED = {"=", "<>", "<", ">=", "is distinct from", "is not distinct from"}
FORMS = {
    "list_zip": "@list , @list[int; @list[string; @list[list; true; null , ; true; false; @list[float",
    "list_sort": "@list , 'desc'; 'ASC'; 'desc'",
    "list_reverse_sort": "@list , 'nulls first'; 'NULLS LAST'; ",
    "list_where": "@list , [true, false, true]; [false]; []; null; [a7]; [true, a7]; [b7, a7, true]",
    "list_select": "@list , [1]; [2, 1, -1]; []; [a0 % 5]; [9, 0]; null; [1, null]",
    "flatten": "@list[list; [a14, b14]; [a12]; null",
    "generate_series": "1; a0 % 9; b0 % 9; null; 9223372036854775807 , 3; b0 % 9; 5; null , -1; 0; 2; null; 1; a0 % 4",
    "range": "1; a0 % 9; b0 % 9; null , 3; b0 % 9; 5; null; ",
}
"""Arguments of functions that take no others, with `@` before the kinds of a column; what may be left out is empty."""


class Calls:
    """Draws calls."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def column(self, kinds: str = "") -> str:
        """Return a column whose type begins with one of the words, in parentheses where that is an operand."""
        wanted = tuple(kinds.split()) or ("",)
        return self.rng.choice(
            [name for name, kind in COLUMNS.items() if kind.startswith(wanted) and kind not in NARROW]
        )

    def argument(self, kind: str, name: str = "") -> str:
        """Return an argument of a kind of signature."""
        rng, few = self.rng, self.rng.random()
        if few < 0.04:
            return "null"
        if name in CONSTANTS and rng.random() < 0.8:
            value = rng.choice(CONSTANTS[name])
            return value if name in ("group", "digits") else f"'{value}'"
        kinds = {
            "integer": "int uint",
            "float": "int float decimal",
            "number": "int uint float decimal",
            "dated": "date datetime",
            "timed": "time datetime",
        }
        kinds |= {
            "binary": "binary",
            "timestamp": "datetime date",
            "duration": "duration",
            "list": "list",
            "string": "string",
            "bool": "bool",
            "date": "date?",
        }
        if kind == "duration":
            return rng.choice(INTERVALS)
        if kind == "integer" and rng.random() < 0.5:
            return rng.choice(["0", "1", "2", "-1", "-2", "3", "100"])
        if kind == "string" and rng.random() < 0.4:
            return f"'{rng.choice(TEXT_CONSTANTS)}'"
        return self.column(kinds.get(kind, ""))

    def any(self) -> str:
        """Return an argument of any kind."""
        few = self.rng.random()
        if few < 0.7:
            return self.column()
        if few < 0.75:
            return "null"
        if few < 0.8:
            return self.rng.choice(INTERVALS)
        if few < 0.9:
            return self.rng.choice(["0", "1", "2", "-1", "3", "2.5", "1e0", "0.5e0"])
        return f"'{self.rng.choice(TEXT_CONSTANTS)}'"

    def like(self, one: str) -> str:
        """Return an argument that is often of the type of another."""
        if self.rng.random() < 0.6 and one in COLUMNS:
            return self.rng.choice(["a", "b"]) + one[1:]
        return self.any()

    def of_lambda(self, name: str, meant: str) -> str:
        """Return the call of a function with a lambda, which may read columns; some are written as list comprehensions."""
        rng, one = self.rng, self.column("list[int list[string list[float")
        inner = COLUMNS[one][len("list[") :].partition("?")[0]
        like = rng.choice([self.column(inner + "?"), self.column(inner + "?"), "null", "e"])
        number, text = self.argument("integer"), self.column("string")
        conditions = ["e = {}", "e > {}", "e is null or e <= {}", "e is distinct from {}", "{} is null", "e in ({}, e)"]
        values = ["e", "{}", "coalesce({}, e)", "case when e > {} then e end", "cast(e as varchar)", "nullif(e, {})"]
        values += {
            "string": [
                f"upper(e) || {text}",
                "length(e)",
                f"substring(e, {number})",
                f"strpos({text}, e)",
                f"cast(substring({text}, 1, 1) as int) + cast(e as int)",
                f"cast({text} as double) + cast(e as double)",
                "concat(e, {})",
            ],
            "int64": [
                f"e % 7 + {number} % 5",
                f"e % {number} + 1 % e",
                "-e",
                f"repeat({text}, 2)",
                "list_max([e, {}])",
                f"e + [{number}, e][1]",
            ],
            "float64": ["e * 2", f"round(e, {rng.choice(CONSTANTS['digits'])})", "greatest(e, {})", "e > {}", "abs(e)"],
        }[inner]
        other = self.column(f"list[{inner}")
        values.append(
            f"list_sum(list_transform({other}, lambda f: length(cast(f as varchar)) + length(cast(e as varchar))))"
        )
        condition, value = (rng.choice(each).format(like) for each in (conditions, values))
        if rng.random() < 0.2:
            return f"[{value} for e in {one} if {condition}]"
        body, words = value if meant == "list_transform" else condition, "e"
        if rng.random() < 0.2:
            body, words = (
                {"list_transform": f"[e, e, e][n]; {body}; [n]", "list_filter": f"n > 1; {body}; n % 2 = 1"}[meant],
                "e, n",
            )
            body = rng.choice(body.split("; "))
        return f"{name}({one}, lambda {words}: {body})"

    def of_fold(self, name: str) -> str:
        """Return a call of `list_reduce`, over numbers, texts or lists, from a first value or from the first element, some with positions."""
        rng, one = self.rng, self.column("list[int list[string list[float list[list")
        kind = COLUMNS[one][len("list[") : -len("]?")]
        like = rng.choice([self.column(kind), self.column("int64"), "null"])
        words, bodies = rng.choice([("a, e", []), ("a, e, n", ["n", "a", "case when n % 2 = 0 then e else a end"])])
        bodies += ["e", "coalesce(a, e)", "case when e is null then a else e end", f"coalesce(a, e, {like})", "a"]
        bodies += {
            "string": [
                "a || e",
                "concat(a, '-', e)",
                "upper(e)",
                "substring(a, 2) || e",
                "cast(cast(a as int) + cast(e as int) as varchar)",
            ],
            "int64": [
                "a % 5 + e % 7",
                "a % (e + 1) + a % e",
                "greatest(a, e)",
                "xor(a, e)",
                "a / 2 + e",
                "case when a < e then e - 1 else a end",
            ],
            "float64": ["a + e", "a * e", "least(a, e)"],
        }.get(kind[:-1], ["list_concat(a, e)", "list_intersect(a, e)"])
        first = rng.choice(["", "", f", {self.column(kind)}", f", {like}"])
        return f"{name}({one}, lambda {words}: {rng.choice(bodies)}{first})"

    def call(self, name: str, meant: str) -> str:
        """Return a call."""
        function = FUNCTIONS[meant]
        if meant in ("list_transform", "list_filter", "list_reduce"):
            return self.of_fold(name) if meant == "list_reduce" else self.of_lambda(name, meant)
        if name in ROWS_COMPARED and self.rng.random() < 0.1:
            one, two = self.column(), self.column()
            return f"({one}, {two}) {name} ({'b' + one[1:]}, {self.like(two)})"
        if name in UNARY:
            return UNARY[name].format(self.any())
        if name in OTHER and self.rng.random() < 0.7:
            return OTHER[name].format(
                one := self.any(), self.argument("string", "path") if "json" in name else self.like(one), self.any()
            )
        if not name[0].isalpha() or " " in name or name in ("and", "or", "like", "ilike"):
            one = self.any()
            return f"{one} {name} {self.like(one)}"
        if function.by_signature:
            parameters = parse_signature(function.signature).parameters
            least = sum(each.default is None for each in parameters)
            count = self.rng.randint(least, len(parameters))
            args = [self.argument(each.kind, each.name) for each in parameters[:count]]
        else:
            args = [self.any() for _ in range(self.rng.randint(1, 3))]
            args[1:] = [self.like(args[0]) if "json" not in name else self.argument("string", "path") for _ in args[1:]]
            if meant in ("json_object", "json_array"):
                args = [self.rng.choice([self.any(), "a7 -> '$.a'"]) for _ in range(self.rng.randint(0, 3))]
                args = [
                    each for at, one in enumerate(args) for each in ([f"'{at}'"] * (meant == "json_object") + [one])
                ]
            own = {
                "to_json": lambda: [self.any()],
                "json_merge_patch": lambda: [self.column("string"), self.column("string")],
                "from_json": lambda: [self.argument("string"), f"'{self.rng.choice(STRUCTURES)}'"],
                **dict.fromkeys(
                    BYTES, lambda: [self.column("binary string int" if meant == "hex" else "binary string")]
                ),
            }
            args = own[meant]() if meant in own else args
            if function in LISTS and meant != "array":
                args = self.of_list(name, meant) + args[2 + 9 * (meant in FORMS) :]
            if name in ("round", "trunc"):
                args[1:] = [self.rng.choice(CONSTANTS["digits"]) for _ in args[1:2]]
            if "date" in name:
                args[0] = self.argument("string", "unit")
        if args[:1] and args[0] in COLUMNS and self.rng.random() < 0.1:
            return f"{args[0]}.{name}({', '.join(args[1:])})"
        return f"{name}({', '.join(args)})"

    def of_list(self, name: str, meant: str) -> list[str]:
        """Return a list, and if the function takes something beside it, a list or an element of its type."""
        if meant in FORMS:
            args = [self.rng.choice(each.split("; ")) for each in FORMS[meant].split(" , ")]
            return [self.column(each[1:]) if each.startswith("@") else each for each in args if each]
        one = self.column("list")
        kind = COLUMNS[one]
        two = [self.column(kind), self.column(kind[len("list[") :].partition("?")[0]), "null", self.argument("string")]
        wanted = 0 if any(word in name for word in ("concat", "cat", "intersect", "except", "has_a")) else 1
        if name.removeprefix("list_").removeprefix("array_") in ("sort", "distinct", "min", "max", "sum", "avg"):
            return [one]
        return [one, self.rng.choice([two[wanted], two[wanted], two[wanted], *two])]

    def cast(self) -> str:
        """Return a cast."""
        kinds = [SQL_TYPES.get(kind.rstrip("?"), kind.rstrip("?")) for kind in VALUES]
        nested = [each for each in kinds if "[" in each or "struct" in each]
        if self.rng.random() < 0.2:
            value = self.rng.choice(
                [self.column("list struct"), *["(try_cast(a8 as json) -> '$.a')", "(try_cast(b8 as json) -> '$')"]]
            )
            return f"{self.rng.choice(['cast', 'try_cast'])}({value} as {self.rng.choice([*nested, *CASTS])})"
        value = self.rng.choice(list(COLUMNS)) if self.rng.random() < 0.8 else self.any()
        if self.rng.random() < 0.1:
            value = self.rng.choice(
                ["(try_cast(a8 as json) -> '$.a')", "(try_cast(b8 as json) -> '$[0]')", "(try_cast(b8 as json) -> '$')"]
            )
        return f"{self.rng.choice(['cast', 'try_cast'])}({value} as {self.rng.choice([*(each for each in kinds if each not in nested), 'hugeint'])})"

    def part(self) -> str:
        """Return a subscript or a slice, of JSON too."""
        rng = self.rng
        if rng.random() < 0.1:
            made = rng.choice(["json(a8)", "(b8 -> '$.a')", "to_json(a12)"])
            if rng.random() < 0.3:
                return f"({made}).a.b"
            return f"{made}[{rng.choice(['0', '1', '-1', '0:1', chr(39) + 'a' + chr(39)])}]"
        whole = ["1", "0", "-1", "2", "-2", self.column("int64")]
        bounds = rng.choice(["{}", "{}", "{}:{}", "{}:", ":{}", "{}:{}:2", "{}:{}:-1", "{}:-:-2", ":{}:-1", ":-:3"])
        bounds = bounds.format(rng.choice(whole), rng.choice(whole))
        return f"{self.column('list string')}[{bounds}]"


def _rows() -> Iterator[dict[str, object]]:
    """Yield rows that have the values of columns in different company."""
    for n in range(40):
        row = {}
        for at, values in enumerate(VALUES.values()):
            for side, name in enumerate("ab"):
                # Strides that are coprime to the numbers of values meet all pairs.
                row[f"{name}{at}"] = values[(n * (1 + 2 * side) + side * (n // len(values))) % len(values)]
        yield row


ROWS = list(_rows())
NARROW = {"int8?", "uint8?", "uint64?"}
"""Types in which DuckDB computes with other bits than we do: only casts read their columns."""


class Aggregations:
    """Draws aggregates over groups of rows."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def call(self, name: str, count: int) -> str:
        """Return the call of an aggregate with so many arguments."""
        kinds = [kind for kind in VALUES if kind not in NARROW and "[" not in kind.removeprefix("datetime[us]")]
        if AGGREGATES[AGGREGATE_SYNONYMS.get(name, name)].accepts in ("number", "numbers") or name.startswith("regr"):
            kinds = ["decimal(6, 2)?"]  # sums of squares of others round differently
        if AGGREGATES[AGGREGATE_SYNONYMS.get(name, name)].accepts == "integer":
            kinds = ["int64?"]
        if name in ("sum", "avg", "mean"):  # those of floats are exact here, and by the order of rows there
            kinds.remove("float64?")
        args = [f"{self.rng.choice('ab')}{list(VALUES).index(self.rng.choice(kinds))}" for _ in range(count)]
        if name.endswith("_by") or name.startswith("arg"):
            args[1:] = [self.rng.choice(["n", "nullif(n, 8)", "nullif(n % 10, 3) * 100 + n"])]
        if name.startswith(("quantile", "percentile")):
            args[1:] = [
                self.rng.choice(["0.5", "0.25", "0", "1", "0.9", "[0.5]", "[0, 0.3, 1]", "list_value(0.9, 0.25)"])
            ]
        if name in ("min", "max") and self.rng.random() < 0.5:
            args.append(self.rng.choice(["1", "2", "9"]))
        ordered = name in ("first", "last", "array_agg", "list", "string_agg", "listagg", "group_concat")
        if name in ("string_agg", "listagg", "group_concat"):
            args = [f"{self.rng.choice('ab')}{list(VALUES).index('string?')}", "','"]
        way = self.rng.choice([" desc", "", " nulls first", " desc nulls first"])
        order = f" order by {args[0]}{way}" if ordered else ""
        return f"{name}({', '.join(args)}{order})"

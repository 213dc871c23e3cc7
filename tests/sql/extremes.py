"""Calls of every function, aggregate, cast and form over null, empty and extreme values, as constants and as columns."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING

from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES
from ddcli.expressions.functions import FUNCTIONS, SYNONYMS
from ddcli.expressions.signatures import parse_signature

if TYPE_CHECKING:
    import random

COLUMNS = {
    "i": "int64?",
    "j": "int64",
    "tiny": "uint8?",
    "big": "uint64?",
    "f": "float64?",
    "d": "decimal(6, 2)?",
    "wide": "decimal(38, 0)?",
    "s": "string?",
    "z": "string",
    "b": "bool?",
    "day": "date?",
    "at": "datetime[us]?",
    "clock": "time?",
    "span": "duration[us]?",
    "l": "list[int64?]?",
    "m": "list[string]?",
    "p": "struct[i: int64?, s: string?]?",
}
NOON = dt.datetime(2024, 2, 29, 12)  # noqa: DTZ001
FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
VALUES: dict[str, tuple[object, ...]] = {
    "i": (None, 0, 1, -1, 2**63 - 1, -(2**63), 3),
    "j": (0, 1, -1, 2**63 - 1, -(2**63), 64),
    "tiny": (None, 0, 1, 255),
    "big": (None, 0, 2**64 - 1),
    "f": (None, 0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.5),
    "d": (None, Decimal("0.00"), Decimal("9999.99"), Decimal("-9999.99"), Decimal("0.01")),
    "wide": (None, Decimal(0), Decimal(10**38 - 1), Decimal(1 - 10**38)),
    "s": (None, "", "a", "ab", "%_\\", " ", "ä𝄞", "[1, null]", '{"a": 1}', "1", "2024-02-29", "(", "\n"),
    "z": ("", "b", "aB", "A%b", "0x"),
    "b": (None, True, False),
    "day": (None, FIRST.date(), LAST.date(), NOON.date(), dt.date(1970, 1, 1)),
    "at": (None, FIRST, LAST, NOON),
    "clock": (None, dt.time(0), dt.time(23, 59, 59, 999999)),
    "span": (None, dt.timedelta(0), dt.timedelta(days=-1), dt.timedelta(days=36500), dt.timedelta(microseconds=1)),
    "l": (None, [], [None], [1, None, 1], [2**63 - 1, -(2**63)]),
    "m": (None, [], ["", "a"], ["b"]),
    "p": (None, {"i": None, "s": None}, {"i": 1, "s": ""}),
}
CONSTANTS: dict[str, list[str]] = {
    "integer": ["0", "1", "-1", "3", "9223372036854775807", "-9223372036854775808", "cast(null as int64)", "cast(255 as uint8)"],
    "number": ["0.5", "-9999.99", "99999999999999999999999999999999999999", "cast(null as decimal(4, 1))"],
    "float": ["0e0", "5e-324", "1.7e308", "cast('nan' as float64)", "cast('-inf' as float64)", "cast(null as float64)"],
    "string": ["''", "'a'", "'%'", "'('", "'ä𝄞'", "' '", "'day'", "'%Y'", "'$.a'", "'[1]'", "'x1'", "cast(null as string)"],
    "bool": ["true", "false", "cast(null as bool)"],
    "date": ["date '0001-01-01'", "date '9999-12-31'", "date '2024-02-29'", "cast(null as date)"],
    "datetime": ["timestamp '0001-01-01 00:00:00'", "timestamp '9999-12-31 23:59:59.999999'", "cast(null as datetime[us])"],
    "time": ["time '00:00:00'", "time '23:59:59.999999'", "cast(null as time)"],
    "duration": ["interval '0' day", "interval '1' month", "interval '-1' day", "interval '3000000' day", "cast(null as duration[us])"],
    "list": ["[]", "[null]", "[1, null]", "['']", "cast(null as list[int64])", "[[]]"],
    "struct": ["{'i': 1, 's': ''}", "{'i': null, 's': 'a'}"],
}  # fmt: skip
OF_COLUMN = {
    "i": "integer",
    "j": "integer",
    "tiny": "integer",
    "big": "integer",
    "f": "float",
    "d": "number",
    "wide": "number",
}
OF_COLUMN |= {"s": "string", "z": "string", "b": "bool", "day": "date", "at": "datetime"}
OF_COLUMN |= {"clock": "time", "span": "duration", "l": "list", "m": "list", "p": "struct"}
KINDS = {
    "integer": ("integer",),
    "number": ("integer", "number", "float"),
    "float": ("integer", "number", "float"),
    "dated": ("date", "datetime"),
    "timed": ("time", "datetime"),
    "timestamp": ("date", "datetime"),
    "moment": ("date", "datetime", "time"),
}
"""The kinds of values that a parameter of a kind takes, if not just its own."""
FORMS = """
@ + @ ; @ - @ ; @ * @ ; @ / @ ; @ // @ ; @ % @ ; -@ ; ~@ ; @ & @ ; @ | @ ; @ << @ ; @ >> @ ; @ || @ ; @ = @ ; @ <> @ ; @ < @ ; @ >= @
@ is null ; @ is not distinct from @ ; @ in (@, @) ; @ not in (@) ; @ between @ and @ ; @ and @ ; @ or @ ; not @ ; @ is true
@ like @ ; @ ilike @ ; @ like @ escape @ ; case when @ then @ else @ end ; case @ when @ then @ end ; if(@, @, @)
(@)[@] ; (@)[@:@] ; [@, @] ; {'a': @, 'b': @} ; (@).i ; (@) ->> @ ; (@) -> @ ; (@ = any(@)) ; @ <= all(@) ; extract(year from @)
extract(epoch from @) ; date_part(@, @) ; array(@, @)[@] ; trim(both @ from @) ; position(@ in @)
"""
TYPES = (
    "bool",
    "int8",
    "int64",
    "uint64",
    "float32",
    "float64",
    "decimal(3, 1)",
    "decimal(38, 10)",
    "string",
    "date",
    "time",
)
TYPES += (
    "datetime[us]",
    "duration[us]",
    "list[int64]",
    "list[string]",
    "struct[i: int64?, s: string?]",
)


class Calls:
    """Makes calls; the arguments of most are of the kinds that the function takes."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def value(self, kind: str = "") -> str:
        """Return a constant or a column of a kind, sometimes of any."""
        draw = self.draw
        if draw.random() < 0.12:
            return "null"
        if (kind not in CONSTANTS and kind not in KINDS) or draw.random() < 0.05:
            kind = draw.choice(list(CONSTANTS))
        kind = draw.choice(KINDS.get(kind, (kind,)))
        columns = [name for name, other in OF_COLUMN.items() if other == kind]
        return draw.choice(CONSTANTS[kind] if draw.random() < 0.5 else columns)

    def scalar(self, name: str) -> str:
        """Return a call of a function."""
        function = FUNCTIONS[SYNONYMS.get(name, name)]
        if function.by_signature:
            signature = parse_signature(function.signature)
            kinds = [each.kind for each in signature.parameters]
            least = signature.least
            kinds = kinds[: self.draw.randint(least, len(kinds))] + kinds[-1:] * (
                signature.repeats and self.draw.randrange(3)
            )
        else:
            same = self.draw.choice(list(CONSTANTS))
            kinds = [self.draw.choice([same, same, "integer", "string"]) for _ in range(self.draw.randint(1, 3))]
        return f"{name}({', '.join(self.value(kind) for kind in kinds)})"

    def form(self, form: str) -> str:
        """Return a form with values in its holes, most of one kind."""
        same = self.draw.choice(list(CONSTANTS))
        parts = form.split("@")
        kinds = [same if self.draw.random() < 0.7 else "" for _ in parts[1:]]
        return parts[0] + "".join(self.value(kind) + part for kind, part in zip(kinds, parts[1:], strict=True))

    def cast(self) -> str:
        return f"{self.draw.choice(['cast', 'try_cast'])}({self.value()} as {self.draw.choice(TYPES)})"

    def aggregate(self, name: str) -> str:
        """Return a call of an aggregate."""
        known = AGGREGATES[AGGREGATE_SYNONYMS.get(name, name)]
        kind = {"numbers": "number", "number": "number", "summable": "number", "bool": "bool", "string": "string"}
        kind["integer"] = "integer"
        values = [self.value(kind.get(known.accepts, "")) for _ in range(known.args)]
        if known.args == 2 and known.accepts != "numbers" and self.draw.random() < 0.8:
            values[1] = (
                "','"
                if name in ("string_agg", "listagg", "group_concat")
                else self.draw.choice(["0", "0.5", "1", "null", "2"])
            )
        if name.startswith("arg") or name in ("min_by", "max_by") or (name.startswith("regr") and known.args == 1):
            values.append(self.value("number"))
        distinct = "distinct " if self.draw.random() < 0.15 else ""
        order = ""
        if known.ordered and "by" not in name and not name.startswith("arg"):
            keys = [values[0]] if distinct else [self.value() for _ in range(self.draw.randint(1, 2))]
            order = " order by " + ", ".join(f"{key}{self.draw.choice(['', ' desc', ' nulls first'])}" for key in keys)
        condition = f" filter (where {self.value('bool')})" if self.draw.random() < 0.2 else ""
        return f"{name}({distinct}{', '.join(values)}{order}){condition}"

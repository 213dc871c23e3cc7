"""Keys and times as people write them, and as they are shown. Imports nothing heavy.

Times are integers, dates, timestamps, products of those, which lanes hold as integers. Keys are `name=value`, each value in the type of its column.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
from typing import TYPE_CHECKING, Any

from ddcli.engine.times import BEYOND, box
from ddcli.errors import UsageError, suggestion
from ddcli.expressions.nanoseconds import EPOCH, beyond_microseconds, fraction_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.engine.times import Frontier, Time
    from ddcli.expressions.types import Schema, Type


LARGEST = 2**63 - 1
WORDS = {"now": None, "today": 0, "yesterday": 1}
"""Moments that have a name: the present one, and days ago the beginning of a day of UTC."""
AGO = re.compile(r"-(\d{1,6})\s*(s|m|h|d|w)")
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
"""Lengths of time as a pipeline file names them."""
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
EXAMPLES = {"date": "2013-01-31", "datetime": "2013-01-31 06:00"}


def parse_until(text: str, time: Schema) -> Frontier:
    """Return the frontier that closes the times before `text`: of a product the box before `x,y`.

    A date means its midnight, in UTC for timestamps.

    >>> from ddcli.expressions.types import Type
    >>> parse_until("1970-01-03", {"time": Type("date")}).corners()
    ((2,),)
    >>> parse_until("3,4", {"epoch": Type("int64"), "version": Type("int64")}).corners()
    ((3, 4),)
    """
    return box(parse_time(text, time, "--until"))


def parse_time(text: str, time: Schema, option: str, whose: str = "inputs'") -> Time:
    """Return the time that a person writes, of a product as `x,y`; messages name the `option`, and `whose` time it is.

    A date or timestamp may also be `now`, `today` or `yesterday` (their first moment, in UTC), or a span before now: `-90m`, `-3d`, `-2w`.

    >>> from ddcli.expressions.types import Type
    >>> parse_time("1970-01-03,7", {"day": Type("date"), "version": Type("int64")}, "--as-of")
    (2, 7)
    """
    words = text.split(",") if len(time) > 1 else [text]
    example = ",".join(EXAMPLES.get(kind.kind, "720") for kind in time.values())
    hint = f"write it as in `{option} {shlex.quote(example)}`"
    if len(time) == 1 and example != "720":
        hint += ", or as `now`, `today`, `yesterday`, `-3d`"
    if len(words) != len(time):
        problem = f"'{text}' is {len(words)} of the {len(time)} coordinates of the {whose} time, {', '.join(time)}"
        raise UsageError(problem, hint=hint)
    return tuple(
        _parse(word, kind, f"{whose} {name}", hint) for word, (name, kind) in zip(words, time.items(), strict=True)
    )


def _parse(text: str, kind: Type, what: str, hint: str) -> int:
    """Return the physical integer of one coordinate."""
    try:
        value = _physical(text.strip(), kind)
    except ValueError:
        raise UsageError(f"'{text}' is not a time: the {what} is {kind}", hint=hint) from None
    if not -LARGEST <= value <= LARGEST:
        raise UsageError(f"'{text}' is out of the range of {kind}", hint=f"times are between {-LARGEST} and {LARGEST}")
    return value


def _physical(text: str, kind: Type) -> int:
    if kind.kind in EXAMPLES and (moment := _relative(text)) is not None:
        text = str(moment.date()) if kind.kind == "date" else moment.isoformat()
    if kind.kind == "date":
        return (dt.date.fromisoformat(text) - EPOCH.date()).days
    if kind.kind == "datetime":
        moment = dt.datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        microseconds = (moment - EPOCH) // dt.timedelta(microseconds=1)
        # Times that are nanoseconds differ in the digits that Python cuts.
        nanoseconds = microseconds * 1000 + beyond_microseconds(fraction_of(text))
        return nanoseconds * kind.per_second // 10**9
    return int(text)


def _relative(text: str) -> dt.datetime | None:
    """Return the moment that a word states relative to the present one; raise ValueError for one that no calendar has."""
    now = dt.datetime.now(dt.UTC)
    if (ago := AGO.fullmatch(text)) is not None:
        try:
            return now - dt.timedelta(**{UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            raise ValueError(text) from None
    if text not in WORDS:
        return None
    days = WORDS[text]
    return now if days is None else dt.datetime.combine(now.date(), dt.time(), dt.UTC) - dt.timedelta(days=days)


def format_frontier(frontier: Frontier, kinds: Sequence[Type]) -> str:
    """Return the times that a frontier closes, as a person reads "before": boxes, mostly one.

    >>> from ddcli.expressions.types import Type
    >>> format_frontier(box((3, 4)).join(box((5, 2))), [Type("int64"), Type("int64")])
    '3,4 or 5,2'
    """
    return " or ".join(format_time(corner, kinds) for corner in frontier.corners()) or "the beginning"


def format_time(time: Time, kinds: Sequence[Type]) -> str:
    """Return a time as a person writes it; `*` is a coordinate after all others, the side of a box that has no end.

    >>> from ddcli.expressions.types import Type
    >>> format_time((2, 7, BEYOND), [Type("date"), Type("int64"), Type("int64")])
    '1970-01-03,7,*'
    """
    return ",".join("*" if value == BEYOND else _format(value, kind) for value, kind in zip(time, kinds, strict=True))


TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)")
FRONTIERS = {"lower", "upper", "since", "through"}
"""The names of times in the facts of a state."""


def json_time(text: str | None) -> str | None:
    """Return a time or frontier for JSON: its timestamps are as ISO 8601 has them, in UTC, which the options that take times read as well.

    >>> json_time("2024-01-02 09:00:00.5,7"), json_time("2024-01-02"), json_time(None)
    ('2024-01-02T09:00:00.5Z,7', '2024-01-02', None)
    """
    return text and TIMESTAMP.sub(r"\1T\2Z", text)


def json_times(tree: Any) -> Any:
    """Return facts of a state for JSON, with their times as `json_time` has them."""
    if isinstance(tree, dict):
        return {name: json_time(each) if name in FRONTIERS else json_times(each) for name, each in tree.items()}
    return [json_times(each) for each in tree] if isinstance(tree, list | tuple) else tree


def _format(value: int, kind: Type) -> str:
    try:
        if kind.kind == "date":
            return (EPOCH.date() + dt.timedelta(days=value)).isoformat()
        if kind.kind == "datetime":
            seconds, rest = divmod(value, kind.per_second)
            text = (EPOCH + dt.timedelta(seconds=seconds)).replace(tzinfo=None).isoformat(" ")
            return f"{text}.{rest:0{kind.second_digits}d}" if rest else text
    except OverflowError:
        pass
    return str(value)


CONDITION = "write it as `column=value`, or as 'column is null'"
IS_NULL = re.compile(r"(.+?)\s+is\s+null", re.IGNORECASE | re.DOTALL)
UNWRITTEN = ("list", "struct", "binary", "duration")
"""The kinds of types whose values can't be written as text here."""


def parse_keys(texts: Iterable[str], schema: Schema) -> dict[str, Any]:
    """Return the values of columns that conditions state, as Python has them: see `parse_condition`.

    A value is read as `cast(text as type)` reads it; a timestamp of a type with a zone is in UTC
    unless an offset follows it, as commands print it. Raises UsageError.

    >>> from ddcli.expressions.types import Type
    >>> parse_keys(["id=7", "region is null"], {"id": Type("int64"), "region": Type("string", nullable=True)})
    {'id': 7, 'region': None}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, value = parse_condition(text, schema)
        if name in found:
            raise UsageError(f"'{name}' is given twice", hint="a record has one value of a column")
        found[name] = None if value is None else _value(name, value, schema[name])
    return found


def parse_condition(text: str, schema: Schema) -> tuple[str, str | None]:
    """Return the column and the value of a condition `name=value` or `name is null`; None for null. Raises UsageError.

    `name=null` is `name is null`, but where the column has texts, among which 'null' may be one.

    >>> from ddcli.expressions.types import Type
    >>> schema = {"id": Type("int64"), "region": Type("string", nullable=True)}
    >>> parse_condition("id=null", schema), parse_condition("region=null", schema), parse_condition("region is NULL", schema)
    (('id', None), ('region', 'null'), ('region', None))
    """
    name, equals, value = text.partition("=")
    if not equals and (null := IS_NULL.fullmatch(text)):
        kind_of_column(null[1], schema)
        return null[1], None
    if not equals:
        raise UsageError(f"'{text}' is not a condition", hint=CONDITION)
    is_text = kind_of_column(name, schema).kind == "string"
    if not value and not is_text:
        raise UsageError(f"'{text}' names no value", hint=CONDITION)
    return name, None if value.lower() == "null" and not is_text else value


def null_hint(key: Mapping[str, Any]) -> str | None:
    """Return a hint for a condition that found nothing and names the text 'null', which may mean null.

    >>> null_hint({"id": 7, "region": "null"})
    "'null' is a text here: 'region is null' selects records without a value"
    """
    for name, value in key.items():
        if isinstance(value, str) and value.lower() == "null":
            return f"'{value}' is a text here: '{name} is null' selects records without a value"
    return None


def kind_of_column(name: str, schema: Schema) -> Type:
    """Return the type of a column that a person named. Raises UsageError."""
    if name not in schema:
        hint = suggestion(name, schema, f"columns: {', '.join(schema)}")
        raise UsageError(f"there is no column '{name}'", hint=hint)
    return schema[name]


def _value(name: str, text: str, kind: Type) -> Any:
    import polars as pl

    from ddcli.expressions.lower import Lowering
    from ddcli.expressions.tree import Cast, Literal
    from ddcli.expressions.types import Type

    if kind.kind == "string":
        return text
    if kind.kind in UNWRITTEN:
        raise UsageError(f"column '{name}' is {kind.required()}, whose values can't be written here")
    value = pl.select(Lowering().value(Cast(Literal(text, Type("string", nullable=True)), kind.or_null(), try_=True)))
    found = value.item()
    if found is None:
        raise UsageError(f"'{text}' is not {kind.required()}, the type of the column '{name}'")
    # Python would cut nanoseconds: polars takes their number for the value.
    number = value.to_series().to_physical().item()
    finer = (kind.kind == "time" or kind.unit == "ns") and number % 1000
    return number if finer else found


def key_text(key: Mapping[str, Any]) -> str:
    """Return a key for a message.

    >>> key_text({"id": 7, "region": None})
    'id = 7, region is null'
    """
    return ", ".join(f"{name} is null" if value is None else f"{name} = {value}" for name, value in key.items())

"""Times as people write them and as lanes hold them: integers, dates, timestamps, products of those. Imports nothing heavy."""

from __future__ import annotations

import datetime as dt
import re
import shlex
from typing import TYPE_CHECKING, Any

from ddcli.engine.times import BEYOND, box
from ddcli.errors import UsageError
from ddcli.expressions.nanoseconds import EPOCH, beyond_microseconds, fraction_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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

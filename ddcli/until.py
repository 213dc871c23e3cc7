"""Times as people write them and as lanes hold them: integers, dates, timestamps. Imports nothing heavy."""

from __future__ import annotations

import datetime as dt
import shlex
from typing import TYPE_CHECKING

from ddcli.errors import UsageError

if TYPE_CHECKING:
    from ddcli.expressions.types import Type

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
LARGEST = 2**63 - 1


def parse_time(text: str, kind: Type) -> int:
    """Return the physical integer of a time written as text; a date means its midnight (UTC for timestamps).

    >>> from ddcli.expressions.types import Type
    >>> parse_time("1970-01-03", Type("date"))
    2
    """
    try:
        value = _physical(text.strip(), kind)
    except ValueError:
        example = {"date": "2013-01-31", "datetime": "2013-01-31 06:00"}.get(kind.kind, "720")
        raise UsageError(
            f"'{text}' is no time: the inputs' time is {kind}", hint=f"write it as in `--until {shlex.quote(example)}`"
        ) from None
    if not -LARGEST <= value <= LARGEST:
        raise UsageError(f"'{text}' is out of the range of {kind}", hint=f"times are between {-LARGEST} and {LARGEST}")
    return value


def _physical(text: str, kind: Type) -> int:
    if kind.kind == "date":
        return (dt.date.fromisoformat(text) - EPOCH.date()).days
    if kind.kind == "datetime":
        moment = dt.datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        microseconds = (moment - EPOCH) // dt.timedelta(microseconds=1)
        return microseconds * PER_SECOND[kind.unit or "us"] // 10**6
    return int(text)


def format_time(value: int, kind: Type) -> str:
    """Return a physical time as a person writes it.

    >>> from ddcli.expressions.types import Type
    >>> format_time(2, Type("date"))
    '1970-01-03'
    """
    try:
        if kind.kind == "date":
            return (EPOCH.date() + dt.timedelta(days=value)).isoformat()
        if kind.kind == "datetime":
            per_second = PER_SECOND[kind.unit or "us"]
            seconds, rest = divmod(value, per_second)
            text = (EPOCH + dt.timedelta(seconds=seconds)).replace(tzinfo=None).isoformat(" ")
            return f"{text}.{rest:0{len(str(per_second)) - 1}d}" if rest else text
    except OverflowError:
        pass
    return str(value)

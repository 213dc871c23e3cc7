"""Values as a pipeline file writes them, in the types of columns: the rows of tests. Reads no data."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from ddcli.errors import SpecError
from ddcli.expressions.casts import FLOAT32_END
from ddcli.expressions.coerce import fits_decimal, rescaled
from ddcli.expressions.moments import counted, instant, within
from ddcli.expressions.nanoseconds import FRACTION, beyond_microseconds, finer, fraction_of
from ddcli.expressions.types import SECOND_DIGITS
from ddcli.spec.reader import describe
from ddcli.spec.tree import Broken, Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from ddcli.expressions.types import Type

WRITTEN = {
    "bool": "true or false",
    "date": "a date, 2013-01-31",
    "time": "a time, 06:30:00",
    "datetime": "a timestamp, 2013-01-31 06:30:00",
    "duration": "a length of time, 01:30:00",
    "binary": "bytes in hex, 0x6464",
    "list": "a list in brackets",
    "struct": "a mapping in braces, {a: 1}",
    "string": "a text",
}
NUMBERS = ("int", "float")
INFINITE = ("NaN", "Infinity", "-Infinity")
"""Floats that every command writes as these texts."""


def read_value(node: Node, kind: Type, what: str) -> Any:
    """Return the Python value of a node, of the type of a column; `what` is the column's name in the error, a SpecError.

    Numbers are numbers and not texts: `id: '1'` is refused for an int64 column, as `id: 1` is for one of texts.
    """
    if isinstance(node, Scalar) and node.kind == "null":
        if not kind.nullable:
            hint = f"its type is {kind}; a `?` behind it would allow null"
            raise SpecError(f"{what} is null, which it can't be", span=node.span, hint=hint)
        return None
    if kind.kind == "list" and isinstance(node, Sequence):
        assert kind.inner is not None
        return [read_value(item, kind.inner, f"an element of {what}") for item in node.items]
    if kind.kind == "struct" and isinstance(node, Mapping):
        return _read_fields(node, kind, what)
    try:
        if isinstance(node, Scalar) and kind.kind not in ("list", "struct"):
            return _read(node, kind)
    except (ValueError, InvalidOperation, OverflowError):
        pass
    wants = WRITTEN.get(kind.kind, f"a number ({kind})" if kind.is_numeric else str(kind))
    text = node.text.value if isinstance(node, Scalar) else None
    quote = f"quote it: '{text}'" if text and kind.kind == "string" else None
    found = "nothing" if isinstance(node, Broken) else describe(node)
    raise SpecError(f"{what} is {wants}, found {found}", span=node.span, hint=quote)


def _read_fields(node: Mapping, kind: Type, what: str) -> dict[str, Any]:
    """Return the value of a struct, which must have all its fields."""
    known = dict(kind.fields)
    for name, _ in node.entries:
        if name.value not in known:
            raise SpecError(f"{what} has no field '{name.value}'", span=name.span, hint=f"it has {', '.join(known)}")
    found = {name: node.get(name) for name in known}
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise SpecError(f"{what} lacks its field '{missing[0]}'", span=node.span, hint=f"{missing[0]}: null, if it is")
    return {
        name: read_value(value, known[name], f"the field '{name}' of {what}")
        for name, value in found.items()
        if value is not None
    }


def _read(node: Scalar, kind: Type) -> Any:
    """Return the value of a scalar. Raises ValueError if it is not of the type."""
    text = node.text.value
    if kind.is_integer:
        if node.kind != "int":
            raise ValueError(text)
        value = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        bits = int(kind.kind.lstrip("uint"))
        low, high = (0, 2**bits) if kind.kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        if not low <= value < high:
            raise ValueError(text)
        return value
    if kind.is_float:
        if node.kind not in NUMBERS and text not in INFINITE:
            raise ValueError(text)
        return _float(text, kind)
    if kind.kind == "decimal":
        return _decimal(node, kind)
    if kind.kind == "bool":
        if node.kind != "bool":
            raise ValueError(text)
        return text.lower() == "true"
    return _read_text(node, kind)


def _float(text: str, kind: Type) -> float:
    """Return a float; ValueError if its digits are beyond the largest of the type."""
    value = float(text.replace(".inf", "inf").replace(".nan", "nan").replace(".Inf", "inf").replace(".NaN", "nan"))
    written = any(character.isdigit() for character in text)
    if written and (math.isinf(value) or (kind.kind == "float32" and abs(value) >= FLOAT32_END)):
        raise ValueError(text)
    return value


def _decimal(node: Scalar, kind: Type) -> Decimal:
    value = Decimal(node.text.value)
    if node.kind not in (*NUMBERS, "str") or not value.is_finite():
        raise ValueError(node.text.value)
    if not fits_decimal(value, kind) or rescaled(value, kind) != value:
        raise ValueError(node.text.value)
    return rescaled(value, kind)


def _read_text(node: Scalar, kind: Type) -> Any:
    text = node.text.value
    match kind.kind:
        case "string":
            if node.kind != "str":
                raise ValueError(text)
            return text
        case "binary":
            return bytes.fromhex(text.removeprefix("0x"))
        case "date":
            return dt.date.fromisoformat(text)
        case "time":
            clock = dt.time.fromisoformat(text)
            if clock.tzinfo is not None:
                raise ValueError(text)
            return finer(clock, _nanoseconds(text, kind))
        case "datetime":
            return _moment(text, kind)
        case "duration":
            return _duration(text, kind)
    raise ValueError(text)


def _nanoseconds(text: str, kind: Type) -> int:
    """Return the nanoseconds of a second beyond its microseconds, which Python cuts. Raises ValueError if it has digits that the column lacks."""
    digits = fraction_of(text)
    if digits[kind.second_digits :].strip("0"):
        raise ValueError(text)
    return beyond_microseconds(digits)


def _moment(text: str, kind: Type) -> Any:
    """Return a timestamp; one with a zone, and without an offset, is a time on clocks of the zone."""
    more = _nanoseconds(text, kind)
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None and kind.zone:
        moment = instant(moment, kind.zone)
    utc = (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    if not within(utc, kind):
        raise ValueError(text)
    return finer(utc.replace(tzinfo=None) if kind.zone is None else utc.astimezone(ZoneInfo(kind.zone)), more)


def _duration(text: str, kind: Type) -> Any:
    """Return a length of time, [days ]hours:minutes:seconds."""
    more = _nanoseconds(text, kind)
    days, _, clock = text.rpartition(" ")
    hours, minutes, seconds = clock.split(":")
    cut = float(FRACTION.sub(lambda found: found[0][: 1 + SECOND_DIGITS["us"]], seconds))
    length = dt.timedelta(days=int(days or 0), hours=int(hours), minutes=int(minutes), seconds=cut)
    if not -(2**63) <= counted(length, kind) < 2**63 - more:
        raise ValueError(text)
    return finer(length, more)

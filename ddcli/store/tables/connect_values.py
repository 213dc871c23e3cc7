"""Values as Kafka Connect and Debezium write them by default: days, milliseconds or microseconds, and decimals as bytes in base64.

The schema beside the payload names the encoding. A value is decoded if its column is declared as what it means, `date` for days; an
int64 stays as it is written. A value that the encoding can't have stays as it is, too, so that a cast refuses it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as Base64Error
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from ddcli.expressions.json_text import Digits, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddcli.expressions.types import Schema

    Decode = Callable[[Any], str]
    Step = tuple[tuple[str, ...], Decode]

DEBEZIUM, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
DAYS = (f"{DEBEZIUM}Date", f"{CONNECT}Date")
TICKS = {"Timestamp": 3, "MicroTimestamp": 6, "NanoTimestamp": 9, "Time": 3, "MicroTime": 6, "NanoTime": 9}
"""The decimal places of a second that numbers of these types count."""
DECIMAL, VARIABLE = f"{CONNECT}Decimal", "io.debezium.data.VariableScaleDecimal"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400


class ConnectValues:
    """Decodes the rows of an input, whose columns are declared; a name with a dot is a field of a struct if they are `nested`."""

    def __init__(self, declared: Schema, *, nested: bool) -> None:
        self._wanted = {
            tuple(name.partition(".")[::2]) if nested and "." in name else (name,): kind.kind
            for name, kind in declared.items()
            if kind.kind in ("date", "time", "datetime", "decimal")
        }
        self._steps: dict[str, list[Step]] = {}

    def decoded(self, payload: bytes, schema: str) -> bytes:
        """Return an object with its encoded values decoded, by its schema, which is JSON."""
        if (steps := self._steps.get(schema)) is None:
            steps = self._steps[schema] = list(self._decoders(schema)) if self._wanted else []
        if not steps:
            return payload
        tree = json.loads(payload, parse_int=Digits, parse_float=Digits)
        for path, decode in steps:
            _decode(tree, path, decode)
        return written(tree).encode()

    def _decoders(self, schema: str) -> Iterator[Step]:
        """Yield the columns that are encoded, and how they are decoded."""
        try:
            whole = json.loads(schema)["fields"]
            named: list[tuple[dict[str, Any], tuple[str, ...]]] = [(field, (field["field"],)) for field in whole]
            named += [(each, (field["field"], each["field"])) for field in whole for each in field.get("fields", ())]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return
        for field, path in named:
            kind = self._wanted.get(path)
            if kind is not None and (decode := _decoder(field, kind)) is not None:
                yield path, decode


def _decoder(field: dict[str, Any], kind: str) -> Decode | None:
    """Return how a field's value becomes a text of the declared kind of type; None where it is not encoded."""
    name = str(field.get("name", ""))
    if kind == "decimal":
        if name == VARIABLE:
            return _variable
        scale = (field.get("parameters") or {}).get("scale", "0")
        return partial(_decimal, scale=int(scale)) if name == DECIMAL and str(scale).isdecimal() else None
    if name in DAYS:
        return _date if kind in ("date", "datetime") else None
    if not name.startswith((DEBEZIUM, CONNECT)):
        return None
    short = name.rpartition(".")[2]
    places = TICKS.get(short)
    if places is None or short.endswith("Time") != (kind == "time"):
        return None
    return partial(_time if kind == "time" else _moment, places=places)


def _decode(tree: Any, path: tuple[str, ...], decode: Decode) -> None:
    """Put the decoded value in place of the one at a path, if there is one that can be decoded."""
    *outer, name = path
    for each in outer:
        tree = tree.get(each) if isinstance(tree, dict) else None
    if isinstance(tree, dict) and tree.get(name) is not None:
        try:
            tree[name] = decode(tree[name])
        except (ValueError, OverflowError, TypeError, KeyError, Base64Error):
            return


def _date(days: str) -> str:
    return (EPOCH + timedelta(days=int(days))).date().isoformat()


def _moment(ticks: str, places: int) -> str:
    """Return the text of a timestamp.

    >>> _moment("-1", places=6)
    '1969-12-31 23:59:59.999999'
    """
    seconds, rest = divmod(int(ticks), 10**places)
    return f"{(EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat(' ')}.{rest:0{places}}"


def _time(ticks: str, places: int) -> str:
    """Return the text of a time of a day.

    >>> _time("45000123", places=3)
    '12:30:00.123'
    """
    seconds, rest = divmod(int(ticks), 10**places)
    if not 0 <= seconds < DAY:
        raise ValueError(ticks)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:0{places}}"


def _decimal(value: str, scale: int) -> str:
    """Return the digits of a number whose bytes are in base64, the highest first.

    >>> _decimal("/w==", scale=2), _decimal("AfQ=", scale=2), _decimal("AfQ=", scale=0)
    ('-0.01', '5.00', '500')
    """
    if isinstance(value, Digits):
        raise TypeError(value)
    number = int.from_bytes(b64decode(value, validate=True), "big", signed=True)
    digits = str(abs(number)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' * (number < 0)}{whole}{'.' * bool(scale)}{fraction}"


def _variable(value: dict[str, Any]) -> str:
    """Return the digits of a number that has its scale beside it."""
    return _decimal(value["value"], scale=int(value["scale"]))

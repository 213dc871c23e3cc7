"""Parts of JSON in a text: the steps of a path, and the value at its end, as text.

Numbers stay as they are written, so that no digit is lost. If several members have one name the first counts.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = r"""([^\s."'*$#@?()\[\]\\](?:[^."*\[\]\\]*[^\s."*\[\]\\])?)"""
"""A name without quotes."""
STEP = re.compile(rf"""\.{NAME}|\."((?:[^"\\]|\\.)*)"|\[((?:\#?-)?\d{{1,9}})\]|\['([^']*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
EACH = "[*]"
"""The end of a path to each element of a list."""
DEEP = 100
"""The depth to which lists and objects may be nested: the same wherever a text is read, however much of Python's stack is in use."""
QUOTED = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
BRACKET = re.compile(r"[][{}]")
MISSING = object()
"""The value at a path that does not exist."""


class NoJsonError(ValueError):
    """A text that is not JSON."""


class Members(list[tuple[str, Any]]):
    """The members of an object, in their order."""

    __slots__ = ()


class Digits(str):
    """A number with its written digits."""

    __slots__ = ()


def steps_of(path: str) -> tuple[str | int, ...] | None:
    """Return the names and positions of a path, those below zero counted from the end, None if it has another form.

    >>> steps_of('$.a[0]."b c"')
    ('a', 0, 'b c')
    >>> steps_of("a")
    ('a',)
    """
    if not path.startswith("$"):
        return (path,) if path and path[0] not in "/[." else None
    found: list[str | int] = []
    at = 1
    while at < len(path):
        match = STEP.match(path, at)
        if match is None:
            return None
        name, quoted, position, other, again = match.groups()
        escaped = quoted if quoted is not None else again
        if position == "#-0":
            return None
        step = int(position.removeprefix("#")) if position else name or other
        found.append(step if escaped is None else re.sub(r'\\(["\\])', r"\1", escaped))
        at = match.end()
    return tuple(found)


def part_of(text: str, steps: Sequence[str | int]) -> Any:
    """Return the value at a path in a JSON text, or MISSING. Raises NoJsonError."""
    found = read_json(text)
    for step in steps:
        if isinstance(step, str):
            named = (value for name, value in found if name == step) if isinstance(found, Members) else iter(())
            found = next(named, MISSING)
        else:
            found = found[step] if is_array(found) and -len(found) <= step < len(found) else MISSING
    return found


def is_array(value: Any) -> bool:
    """Return whether a value is a list of JSON."""
    return isinstance(value, list) and not isinstance(value, Members)


def is_json(text: str) -> bool:
    """Return whether a text is JSON."""
    try:
        read_json(text)
    except NoJsonError:
        return False
    return True


def written(value: Any) -> str:
    """Return a value as JSON without spaces."""
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, Members):
        return "{" + ",".join(f"{written(name)}:{written(each)}" for name, each in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def as_text(value: Any) -> str | None:
    """Return a value as text: one in quotes without them, `null` as null, the rest as JSON."""
    if value is MISSING or value is None:
        return None
    return value if isinstance(value, str) else written(value)


def read_json(text: str) -> Any:
    """Return the value of a JSON text. Raises NoJsonError."""
    if text.count("[") + text.count("{") > DEEP:
        _check_depth(text)
    try:
        found = json.loads(
            text, parse_int=Digits, parse_float=Digits, parse_constant=_constant, object_pairs_hook=Members
        )
        if "\\u" in text:
            written(found).encode()  # half of a pair is no character
    except ValueError:
        raise NoJsonError from None
    return found


def _check_depth(text: str) -> None:
    depth = 0
    for bracket in BRACKET.finditer(QUOTED.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEP:
            raise NoJsonError


def _constant(word: str) -> NoReturn:
    raise NoJsonError(word)

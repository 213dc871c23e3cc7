"""Immutable objects as a table of JSON: each once, after its parts, so that no depth is too great.

A value is a scalar as JSON has it, or `[n]`, the n-th entry of the table. A long text is an entry, too: each place in a file has its whole line.
An entry is a list: its kind, then its parts. The kind is one of the plain
ones in `PLAIN`, or a dataclass that the caller lists: `read` makes nothing else, and a table names no code.
An object that two others share remains one, and equal objects become one where no reader could distinguish them.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

Table = list[list[Any]]
SCALARS = frozenset({str, int, float, bool, type(None)})
LONG = 100
"""Characters of a text above which it is in a table but once."""


@cache
def _decimal() -> type[Any]:
    """Return the class of decimals, which few tables have: it takes 5 ms to import."""
    from decimal import Decimal

    return Decimal


def _number(text: str) -> Any:
    return _decimal()(text)


PLAIN: dict[str, Callable[..., Any]] = {
    "tuple": lambda *parts: parts,
    "list": lambda *parts: [*parts],
    "dict": lambda *parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    "set": lambda *parts: frozenset(parts),
    "decimal": _number,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
    "interval": dt.timedelta,
    "path": Path,
    "text": str,
}
"""The kinds that need no permission, each with the function that makes it of its parts."""
_KINDS: dict[type, str] = {tuple: "tuple", list: "list", dict: "dict", frozenset: "set"}
_OWN = {"list", "dict"}
"""The mutable kinds: two equal objects remain two, since each may change."""


class Unlisted(ValueError):
    """An object of a class that is not allowed."""


@dataclass(frozen=True)
class Listed:
    """The classes that may be in a table: the dataclasses of some packages, but for those whose names have one of the words `without`."""

    packages: tuple[str, ...]
    without: tuple[str, ...] = ()

    @cache  # noqa: B019 - there are few of them, which stay
    def name(self, kind: type) -> str:
        """Return the name of a class in tables. Raises Unlisted."""
        inside = any(f"{kind.__module__}.".startswith(f"{package}.") for package in self.packages)
        if not inside or any(word in kind.__name__ for word in self.without) or not is_dataclass(kind):
            raise Unlisted(f"{kind.__module__}.{kind.__qualname__}")
        return f"{kind.__module__}:{kind.__name__}"

    def find(self, name: str) -> type:
        """Return the class of a name. Raises as `read` does; imports nothing that is not in the packages."""
        module, _, word = name.partition(":")
        if not any(f"{module}.".startswith(f"{package}.") for package in self.packages):
            raise Unlisted(name)
        kind = vars(import_module(module))[word]
        if not isinstance(kind, type) or self.name(kind) != name:
            raise Unlisted(name)
        return kind


def write(root: Any, listed: Listed) -> Table:
    """Return the table of an object, its own entry the last.

    Raises Unlisted for an object of another class.
    """
    table: Table = []
    known: dict[int, list[int]] = {}
    equal: dict[str, list[int]] = {}
    texts: dict[str, list[int]] = {}
    left = [root]
    while left:
        value = left[-1]
        if id(value) in known:
            left.pop()
            continue
        kind, parts = _taken_apart(value, listed)
        entry: list[Any] = [kind]
        unknown = []
        for part in parts:
            if type(part) is str and len(part) > LONG:
                if part not in texts:
                    texts[part] = [len(table)]
                    table.append(["text", part])
                entry.append(texts[part])
            elif type(part) in SCALARS:
                entry.append(part)
            elif id(part) in known:
                entry.append(known[id(part)])
            else:
                unknown.append(part)
        if unknown:
            left += unknown
            continue
        same = repr(entry) if kind not in _OWN else ""
        if same in equal:
            known[id(value)] = equal[same]
            continue
        known[id(value)] = [len(table)]
        table.append(entry)
        if same:
            equal[same] = known[id(value)]
    return table


def read(table: Table, listed: Listed) -> Any:
    """Return the object of a table. Raises ValueError, TypeError, KeyError or IndexError for a table that `write` hasn't made."""
    made: list[Any] = []
    classes: dict[str, tuple[type, tuple[str, ...]]] = {}
    for kind, *parts in table:
        values = [_value(part, made) for part in parts]
        if kind in PLAIN:
            made.append(PLAIN[kind](*values))
            continue
        if kind not in classes:
            found = listed.find(kind)
            classes[kind] = found, _fields(found)
        cls, names = classes[kind]
        made.append(cls(**dict(zip(names, values, strict=True))))
    return made[-1]


def _value(part: Any, made: list[Any]) -> Any:
    if not isinstance(part, list):
        return part
    (at,) = part
    if not 0 <= at < len(made):
        raise ValueError("an entry that is not there yet")
    return made[at]


def _taken_apart(value: Any, listed: Listed) -> tuple[str, tuple[Any, ...]]:
    """Return a value's kind and its parts."""
    kind: Any = type(value)
    if kind in _KINDS:
        parts = tuple(part for item in value.items() for part in item) if kind is dict else tuple(value)
        return _KINDS[kind], parts
    if kind in (dt.date, dt.time, dt.datetime) and not (getattr(value, "tzinfo", None) or getattr(value, "fold", 0)):
        return kind.__name__, (value.isoformat(),)
    if kind is dt.timedelta:
        return "interval", (value.days, value.seconds, value.microseconds)
    if kind.__name__ == "Decimal" and kind is _decimal():
        return "decimal", (str(value),)
    if kind is type(Path()):
        return "path", (str(value),)
    return listed.name(kind), tuple(getattr(value, field) for field in _fields(kind))


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.init)

"""Values as the reference compares them: one NaN, one zero, lists that can be keys, and the order in which they sort."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddcli.expressions.types import Type

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without a zone
PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
NAN = float("nan")
"""The only NaN there is. A tuple that holds it equals another that does, because Python compares identities first."""


class Failed:
    """Stands where an expression had no value. Nobody minds it as long as nobody reads it."""

    def __repr__(self) -> str:
        return "FAILED"


FAILED = Failed()


def canonical(value: Any) -> Any:
    """Return the value under which all that are equal to it are the same dictionary key."""
    if isinstance(value, float):
        return NAN if value != value else value + 0.0  # noqa: PLR0124 - NaN is what differs from itself
    if isinstance(value, dict):
        return Fields((name, canonical(each)) for name, each in value.items())
    if isinstance(value, Fields):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(canonical(element) for element in value)
    return value


class Fields(tuple[tuple[str, Any], ...]):
    """A struct that can be a key: its fields' names with their values."""

    __slots__ = ()


def plain(value: Any) -> Any:
    """Return the value as expressions and functions want it: lists as lists, structs as dictionaries."""
    if isinstance(value, Fields):
        return {name: plain(each) for name, each in value}
    return [plain(element) for element in value] if isinstance(value, tuple) else value


def time_value(time: int, kind: Type) -> Any:
    """Return a time, which the model counts in integers, as expressions of its type hold it.

    >>> from ddcli.expressions.types import Type
    >>> time_value(2, Type("date"))
    datetime.date(1970, 1, 3)
    """
    if kind.kind == "date":
        return EPOCH.date() + dt.timedelta(time)
    if kind.kind == "datetime":
        return EPOCH + dt.timedelta(microseconds=time * 10**6 // PER_SECOND[kind.unit])
    return time


def order(value: Any) -> tuple[Any, ...]:
    """Return a sort key: NaN after all numbers, null after everything.

    >>> sorted([None, NAN, 1.0, float("inf")], key=order)
    [1.0, inf, nan, None]
    """
    if value is None:
        return (2,)
    if value is NAN:
        return (1,)
    if isinstance(value, tuple):
        return (0, tuple(order(element) for element in value))
    return (0, value)


class Descending:
    """A sort key turned round."""

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.key = key

    def __lt__(self, other: Descending) -> bool:
        return other.key < self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and self.key == other.key

    __hash__ = None  # type: ignore[assignment]

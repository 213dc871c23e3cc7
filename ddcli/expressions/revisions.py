"""Calls whose values an earlier version computed differently: a state that was made with them has another plan now, and the next run computes it anew.

Otherwise this version could not retract the records that the earlier one inserted.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from ddcli.expressions.tree import Call, Expression, Literal
from ddcli.expressions.types import Type

REVISION = "rounded once, by the clocks of zones"
"""The word in the identity of a node with such a call: quotients by one number for all rows, and texts and months of timestamps with a zone."""
QUOTIENTS = {"/", "try_divide"}
ROUNDED = {"round", "trunc"}
BY_CLOCKS = {"strftime", "last_day"}


def is_revised(value: Any) -> bool:
    """Return whether a part of a node has such a call."""
    if isinstance(value, Expression):
        return any(isinstance(each, Call) and _is_revised_call(each) for each in value.walk())
    if isinstance(value, tuple | list):
        return any(map(is_revised, value))
    if isinstance(value, dict):
        return any(map(is_revised, value.values()))
    if is_dataclass(value) and not isinstance(value, Type):
        return any(is_revised(getattr(value, each.name)) for each in fields(value))
    return False


def _is_revised_call(call: Call) -> bool:
    function, args, kind = call.function, call.args, call.type
    if function in QUOTIENTS:
        return kind.is_float and bool(args[0].columns()) and not args[1].columns()
    if function in ROUNDED:
        return kind.is_float and len(args) > 1 and isinstance(args[1], Literal) and bool(args[1].value)
    if function in BY_CLOCKS:
        return args[0].type.zone not in {None, "UTC"}
    if function == "date_diff":
        return len({arg.type.zone for arg in args[1:]}) > 1 or any(arg.type.unit == "ns" for arg in args[1:])
    if function == "list_avg":
        inner = args[0].type.inner
        return inner is not None and bool(inner.scale)
    return function in {"epoch", "seconds", "log", "log10"}

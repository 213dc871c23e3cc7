"""The clock of a dataflow: times as a program writes them and as the engine holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.lanes import Layout, decode, decode_records, encode_records, time_names
from ddcli.engine.pool import PUBLIC, Pool
from ddcli.engine.times import LEAST, Frontier, Time
from ddcli.errors import InputError, UsageError
from ddcli.expressions.types import Type, parse_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl


KINDS = ("int64", "date", "datetime")


class Clock:
    """The coordinates of a dataflow's time: a number of integers, or their types, one or several.

    >>> Clock(2).time((3, 4))
    (3, 4)
    >>> import datetime as dt
    >>> Clock("date").time(dt.date(1970, 1, 3))
    (2,)
    """

    def __init__(self, time: int | str | Type | Sequence[str | Type] = 1):
        given = ["int64"] * time if isinstance(time, int) else [time] if isinstance(time, str | Type) else list(time)
        kinds = [parse_type(kind) if isinstance(kind, str) else kind for kind in given]
        for text, kind in zip(given, kinds, strict=True):
            if kind is None or kind.kind not in KINDS or kind.nullable:
                hint = "a coordinate is int64, date or datetime, and never null; `time=2` is a pair of integers"
                raise UsageError(f"'{text}' is not a type of time", hint=hint)
        if not kinds:
            raise UsageError("a time has at least one coordinate", hint="`time=1` is an integer, `time=2` a pair")
        self.kinds = tuple(kind for kind in kinds if kind is not None)
        self.count = len(self.kinds)
        self.names = time_names(self.count)
        self._pool = Pool(PUBLIC)  # it stays empty: times are in lanes of their own
        self._layout = Layout(dict(zip(self.names, self.kinds, strict=True)))
        self._plain = all(kind.kind == "int64" for kind in self.kinds)
        self.start: Time = tuple(0 if kind.kind == "int64" else LEAST for kind in self.kinds)
        """The first time: integers count from 0, dates and timestamps begin before all."""

    def time(self, value: Any) -> Time:
        """Return a time as the engine holds it. Raises UsageError for a value that is not a time."""
        if type(value) is int and self._plain and self.count == 1 and -LEAST > value > LEAST:
            return (value,)
        values = (value,) if self.count == 1 and not isinstance(value, tuple) else value
        if isinstance(values, tuple) and len(values) == self.count:
            values = tuple(int(each) if isinstance(each, np.integer) else each for each in values)
            if self._plain and all(type(each) is int and -LEAST > each > LEAST for each in values):
                return values
            try:
                return tuple(encode_records([values], self._layout, self._pool)[0].tolist())
            except InputError:
                pass
        kinds = ", ".join(map(str, self.kinds))
        raise UsageError(f"{value!r} is not a time: here it is {f'a tuple ({kinds})' if self.count > 1 else kinds}")

    def value(self, time: Time) -> Any:
        """Return a time as the program's value; None for one before the least value."""
        if self._plain:
            return time if self.count > 1 else time[0]
        return None if LEAST in time else self.values(np.array([time], np.int64))[0]

    def values(self, lanes: np.ndarray) -> list[Any]:
        """Return the times in a matrix as the program's values."""
        if self._plain and self.count == 1:
            found: list[Any] = lanes[:, 0].tolist()
            return found
        records = decode_records(np.ascontiguousarray(lanes), self._layout, self._pool)
        return records if self.count > 1 else [time for (time,) in records]

    def columns(self, lanes: np.ndarray) -> list[pl.Series]:
        """Return the times in a matrix as columns of a frame."""
        return decode(np.ascontiguousarray(lanes), self._layout, self._pool).get_columns()

    def frontier(self, given: Any) -> Frontier:
        """Return the frontier of one time or several; a frontier is returned as it is. A list of no times closes everything.

        >>> Clock(2).frontier([(0, 3), (1, 2), (1, 4)])
        Frontier(elements=((0, 3), (1, 2)))
        """
        if type(given) is int:
            return Frontier((self.time(given),))
        if isinstance(given, Frontier):
            if any(len(time) != self.count for time in given):
                raise UsageError(f"the frontier {given} is not of times with {self.count} coordinates")
            return given
        if isinstance(given, list | set | frozenset):
            return Frontier(self.time(time) for time in given)
        return Frontier([self.time(given)])

    def show(self, frontier: Frontier) -> str:
        """Return a frontier in words, for messages."""
        return " ".join(str(self.value(time)) for time in frontier) or str(frontier)

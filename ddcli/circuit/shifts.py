"""Operators of functions in Python that return updates, `record -> (record, time, diff)*`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.lanes import Layout
from ddcli.engine.operators.shift import PythonShift
from ddcli.engine.times import LEAST
from ddcli.engine.updates import DIFF, time_names
from ddcli.expressions.python_calls import Foreign, MisshapenError
from ddcli.expressions.steps import PythonStep
from ddcli.expressions.types import Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    import polars as pl

    from ddcli.engine.pool import Pool
    from ddcli.plan import physical

INT64 = Type("int64")


def python_shift(node: physical.PythonShift, pool: Pool, time: Sequence[Type], nt: int) -> PythonShift:
    """Return the operator of a function whose times are of the types `time`, one an input coordinate; `nt` counts rounds, too.

    A function for records returns (record, time, diff); one for batches returns columns of those names beside
    the record's. Both become columns of one output, checked like the output of any Python function.
    """
    (child,) = node.inputs
    names = [*time_names(len(time)), DIFF] if node.batch else [f"${at}" for at in range(len(time) + 1)]
    added = dict(zip(names, [*(kind.or_null() for kind in time), INT64], strict=True))
    foreign = Foreign(PythonStep(node.function, node.batch, tuple((node.schema | added).items())), child.schema)
    if not node.batch:
        foreign.function = _flat(foreign.function, names, node.schema.keys())
        foreign.parts = dict.fromkeys(names[:-1], "the time") | {names[-1]: "the diff"}

    def logic(frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
        found, rows, _ = foreign.run((frame, None, None))
        times = np.empty((found.height, len(time)), np.int64)
        for at, name in enumerate(names[:-1]):
            times[:, at] = found[name].to_physical().cast(INT64.to_polars()).fill_null(LEAST).to_numpy()
        return found.select(list(node.schema)), rows, found[names[-1]].to_numpy(), times

    return PythonShift(logic, Layout(child.schema), Layout(node.schema), pool, nt)


def _flat(
    function: Callable[..., Iterable[Any]], names: Sequence[str], columns: AbstractSet[str]
) -> Callable[..., Iterator[Any]]:
    """Return the function with each (record, time, diff) as one record, in which time and diff have these names."""

    def flat(record: dict[str, Any]) -> Iterator[Any]:
        found = function(record)
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise MisshapenError(f"returned {found!r}, expected a list of (record, time, diff)")
        for given in found:
            if not isinstance(given, tuple) or len(given) != 3 or not isinstance(given[0], dict):
                raise MisshapenError(f"returned {given!r}, expected (record, time, diff), the record as a dict")
            data, time, diff = given
            if data.keys() != columns:
                raise MisshapenError(f"returned the keys {sorted(data)}, expected the keys {sorted(columns)}")
            times = time if isinstance(time, tuple) else (time,) * (len(names) - 1) if time is None else (time,)
            if len(times) != len(names) - 1:
                raise MisshapenError(f"returned the time {time!r}, expected {len(names) - 1} coordinates, or None")
            yield data | dict(zip(names, (*times, diff), strict=True))

    return flat

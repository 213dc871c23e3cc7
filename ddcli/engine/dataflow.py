"""A scope: operators in the order of their data, stepped together over one closed interval of times.

A step hands every operator all new updates of its inputs for the whole interval, however many times it holds. Traces
take in the step's updates when all their readers have stepped, so operators see "before" and "new" apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddcli.engine.operators.base import Delta, Interval, Operator, empty

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.engine.times import Frontier


@dataclass(frozen=True, slots=True)
class Handle:
    """A place in a scope whose updates others may read."""

    index: int


@dataclass(slots=True)
class _Place:
    operator: Operator | None
    inputs: tuple[int, ...]
    width: int
    readers: int = 0


@dataclass
class Scope:
    """Operators that step together. `frontier` is the lower bound of all times yet to come."""

    frontier: Frontier
    nt: int = 1
    _places: list[_Place] = field(default_factory=list)
    _outputs: dict[str, int] = field(default_factory=dict)
    _operators: list[Operator] = field(default_factory=list)

    def source(self, width: int) -> Handle:
        """Add a place that is fed from outside, with `width` data lanes."""
        self._places.append(_Place(None, (), width + self.nt + 1))
        return Handle(len(self._places) - 1)

    def add(self, operator: Operator, *inputs: Handle) -> Handle:
        """Add an operator that reads the given places, all added before it."""
        for handle in inputs:
            self._places[handle.index].readers += 1
        self._places.append(_Place(operator, tuple(handle.index for handle in inputs), 0))
        self._operators.append(operator)
        return Handle(len(self._places) - 1)

    def output(self, name: str, handle: Handle) -> None:
        """Let the updates of a place leave the scope under a name."""
        self._places[handle.index].readers += 1
        self._outputs[name] = handle.index

    def step(self, fed: Mapping[int, Delta], upper: Frontier) -> dict[str, Delta]:
        """Close the times before `upper`: run every operator once and return what leaves, by name.

        `fed` gives sources' updates by index; all their times are at or after `frontier` and not at or after `upper`.
        A delta is let go when its last reader has stepped.
        """
        interval = Interval(self.frontier, upper)
        deltas: dict[int, Delta] = {}
        waiting = [place.readers for place in self._places]
        outputs = {}
        for index, place in enumerate(self._places):
            if place.operator is None:
                delta = fed.get(index) or Delta(empty(place.width), distinct=True)
            else:
                delta = place.operator.step(self._take(deltas, place.inputs, waiting), interval)
            if waiting[index]:
                deltas[index] = delta
            del delta
        for name, index in self._outputs.items():
            outputs[name] = deltas[index]
        deltas.clear()
        for operator in self._operators:
            operator.seal(interval)
        self.frontier = upper
        return outputs

    @staticmethod
    def _take(deltas: dict[int, Delta], inputs: Sequence[int], waiting: list[int]) -> list[Delta]:
        taken = [deltas[index] for index in inputs]
        for index in inputs:
            waiting[index] -= 1
            if not waiting[index]:
                deltas.pop(index, None)
        return taken

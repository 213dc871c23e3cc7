"""A scope: operators in the order of their data, stepped together; at the top over intervals of times, in a loop by rounds.

A step hands every operator all new updates of its inputs for the whole interval, however many times it holds. Traces
take in the step's updates when all their readers have stepped, so operators see "before" and "new" apart. What has nothing
to do is not stepped.

Every collection is in shards, by the hash of a key where an operator needs its groups whole: a shard of an operator has
traces of its own, and the shards step side by side.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, Interval, Operator, empty
from ddcli.engine.rounds import split_rounds
from ddcli.engine.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np

    from ddcli.engine.rounds import Rounds

Deltas = list[Delta]
"""The new updates of a collection, a delta a shard."""


@dataclass(frozen=True, slots=True)
class Handle:
    """A place in a scope whose updates others may read."""

    index: int


class Inner(Protocol):
    """A scope within a scope: one place that is stepped, and gives several collections."""

    wakes: list[Rounds]

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        """Return the rounds of the scope around in which something waits since earlier intervals."""

    def step(self, deltas: Sequence[Deltas | None], interval: Interval) -> list[Deltas | None]:
        """Return what leaves; None stands for no updates."""

    def close(self, interval: Interval) -> None:
        """Learn that the interval is done."""


@dataclass(slots=True)
class _Place:
    """`shards` are the operators, none for a place that is fed. `route`: by which lanes of the input rows find their shard."""

    inputs: tuple[int, ...]
    none: Delta
    shards: Sequence[Operator] = ()
    inner: Inner | None = None
    ports: tuple[int, ...] = ()
    route: tuple[int, ...] = ()
    shifts: bool = False
    late: dict[Rounds, list[Deltas]] = field(default_factory=dict)
    frees: tuple[int, ...] = ()
    nones: tuple[Delta, ...] = ()


class Scope:
    """Operators that step together, over times of `nt` lanes, the last `depth` of them rounds."""

    def __init__(self, nt: int = 1, depth: int = 0, workers: Workers | None = None) -> None:
        self.nt = nt
        self.depth = depth
        self.workers = workers or Workers()
        self._places: list[_Place] = []
        self._kept: set[int] = set()
        self._agenda: dict[Rounds, set[int]] = {}
        self._stepped: list[_Place] = []
        self._ready = False

    # --- building -------------------------------------------------------------------------------------------------

    def source(self, width: int) -> Handle:
        """Add a place that is fed from outside, with `width` data lanes."""
        return self._add(_Place((), self._none(width)))

    def fed(self, shards: Sequence[Operator], width: int) -> Handle:
        """Add operators that are fed from outside, each shard with its own updates, of `width` lanes in all."""
        return self._add(_Place((len(self._places),), Delta(empty(width), distinct=True), shards))

    def add(
        self, shards: Sequence[Operator], *inputs: Handle, width: int, route: Sequence[int] = (), shifts: bool = False
    ) -> Handle:
        """Add an operator that reads the given places, all added before it, and gives `width` data lanes.

        `shifts` says that its updates may lie in later rounds.
        """
        places = tuple(handle.index for handle in inputs)
        return self._add(
            _Place(places, self._none(width), shards, route=tuple(route), shifts=shifts and self.depth > 0)
        )

    def add_inner(self, inner: Inner, *inputs: Handle, widths: Sequence[int]) -> list[Handle]:
        """Add a scope within this one, whose collections leave with `widths` data lanes."""
        place = _Place(tuple(handle.index for handle in inputs), self._none(0), inner=inner)
        self._add(place)
        handles = [self.source(width) for width in widths]
        place.ports = tuple(handle.index for handle in handles)
        return handles

    def keep(self, handle: Handle) -> None:
        """Have `turn` return the updates of a place."""
        self._kept.add(handle.index)

    def _none(self, width: int) -> Delta:
        return Delta(empty(width + self.nt + 1), distinct=True)

    def _add(self, place: _Place) -> Handle:
        assert not self._ready, "a scope that has stepped is fixed"
        self._places.append(place)
        return Handle(len(self._places) - 1)

    def _prepare(self) -> None:
        """Find out when the updates of each place have been read by all, so that they can be let go."""
        last: dict[int, int] = {}
        for index, place in enumerate(self._places):
            last.update(dict.fromkeys((*place.inputs, index), index))
        for index, place in enumerate(self._places):
            place.nones = tuple(self._places[i].none for i in place.inputs)
            place.frees = tuple(i for i in (*place.inputs, index) if last[i] == index and i not in self._kept)
        self._ready = True

    # --- stepping -------------------------------------------------------------------------------------------------

    def step(self, fed: Mapping[int, Delta | Deltas], interval: Interval) -> dict[int, Deltas]:
        """Close the interval: run what has something to do and return the updates of the places that are kept.

        `fed` gives sources' updates by index, by shard where they have one; all their times are in the interval. For the
        outermost scope.
        """
        self.begin(interval)
        dealt = {index: given if isinstance(given, list) else self._dealt(given) for index, given in fed.items()}
        filled = {index: deltas for index, deltas in dealt.items() if any(len(delta.updates) for delta in deltas)}
        found = self.turn(filled, interval)
        # Nobody asks for a time before the upper any more, so what is sealed now may be compacted up to there.
        self.close(interval)
        self.seal(interval)
        return found

    def begin(self, interval: Interval) -> list[Rounds]:
        """Note in which rounds something waits since earlier intervals, and return them."""
        if not self._ready:
            self._prepare()
        for index, place in enumerate(self._places):
            for operator in place.shards or ((place.inner,) if place.inner else ()):
                for rounds in operator.begin(interval):
                    self._agenda.setdefault(rounds, set()).add(index)
        return list(self._agenda)

    def turn(self, fed: Mapping[int, Deltas], interval: Interval) -> dict[int, Deltas]:
        """Step the operators that have something to do at the interval's rounds, in order; traces take nothing in yet."""
        rounds = interval.rounds
        due = self._agenda.pop(rounds, ())
        deltas: list[Deltas | None] = [None] * len(self._places)
        kept = {}
        for index, place in enumerate(self._places):
            if index in fed:
                deltas[index] = fed[index]
            given = [deltas[i] for i in place.inputs]
            if index in due or any(given):
                if place.inner:
                    for port, left in zip(place.ports, place.inner.step(given, interval), strict=True):
                        deltas[port] = left
                    self._wake(index, place.inner.wakes)
                    place.inner.wakes.clear()
                elif place.shards:
                    deltas[index] = self._stepped_shards(index, place, given, interval)
                if rounds in place.late:
                    here = deltas[index]
                    deltas[index] = self._joined([*place.late.pop(rounds), *([here] if here else [])])
            found = deltas[index]
            if found and index in self._kept:
                kept[index] = found
            del given
            for i in place.frees:
                deltas[i] = None
        return kept

    def seal(self, interval: Interval) -> None:
        """Take the updates of the last turn into the traces."""
        for place in self._stepped:
            for operator in place.shards:
                operator.seal(interval)
        self._stepped.clear()

    def close(self, interval: Interval) -> None:
        """Let go of what nobody reads before the interval's upper."""
        for place in self._places:
            for operator in place.shards:
                operator.close(interval)
            if place.inner:
                place.inner.close(interval)

    # --- rounds ---------------------------------------------------------------------------------------------------

    def later(self, index: int, rounds: Rounds, deltas: Deltas) -> None:
        """Have updates appear at a place in a later round."""
        self._places[index].late.setdefault(rounds, []).append(deltas)
        self._agenda.setdefault(rounds, set()).add(index)

    def next_round(self, outer: Rounds) -> int | None:
        """Return the first round, in these rounds of the loops around, in which there is something to do."""
        return min((rounds[-1] for rounds in self._agenda if rounds[:-1] == outer), default=None)

    def waits(self) -> set[Rounds]:
        """Return the rounds of the loops around in which there is something to do."""
        return {rounds[:-1] for rounds in self._agenda}

    def drop(self, outer: Rounds) -> None:
        """Forget what there is to do in these rounds of the loops around."""
        for rounds in [rounds for rounds in self._agenda if rounds[:-1] == outer]:
            for index in self._agenda.pop(rounds):
                self._places[index].late.pop(rounds, None)

    def _wake(self, index: int, wakes: list[Rounds]) -> None:
        for rounds in wakes:
            self._agenda.setdefault(rounds, set()).add(index)

    def _hold(self, index: int, deltas: Deltas, rounds: Rounds) -> Deltas | None:
        """Return the updates of these rounds; the others are held at their place until their round comes."""
        if all(_all_at(delta.updates, rounds) for delta in deltas):
            return deltas
        depth = self.depth
        here = [self._places[index].none] * len(deltas)
        for shard, delta in enumerate(deltas):
            for when, updates in split_rounds(delta.updates, delta.updates.shape[1] - 1 - depth, depth):
                part = Delta(updates, delta.distinct)
                if when == rounds:
                    here[shard] = part
                else:
                    held = [self._places[index].none] * len(deltas)
                    held[shard] = part
                    self.later(index, when, held)
        return here if any(len(delta.updates) for delta in here) else None

    # --- shards ---------------------------------------------------------------------------------------------------

    def _stepped_shards(
        self, index: int, place: _Place, given: Sequence[Deltas | None], interval: Interval
    ) -> Deltas | None:
        if self.workers.count == 1:
            (operator,) = place.shards
            found = [operator.step([d[0] if d else none for d, none in zip(given, place.nones, strict=True)], interval)]
            wakes = operator.wakes
        else:
            found = self._side_by_side(place, given, interval)
            wakes = [rounds for operator in place.shards for rounds in operator.wakes]
        self._stepped.append(place)
        if wakes:
            self._wake(index, wakes)
            for operator in place.shards:
                operator.wakes.clear()
        assert found[0].updates.shape[1] == place.none.updates.shape[1]
        if not any(len(delta.updates) for delta in found):
            return None
        return self._hold(index, found, interval.rounds) if place.shifts else found

    def _side_by_side(self, place: _Place, given: Sequence[Deltas | None], interval: Interval) -> Deltas:
        inputs = [deltas or [none] * self.workers.count for deltas, none in zip(given, place.nones, strict=True)]
        if place.route:
            inputs = [self._exchanged(inputs[0], place.route)]
        rows = sum(len(delta.updates) for deltas in inputs for delta in deltas)

        def step(shard: int) -> Delta:
            return place.shards[shard].step([deltas[shard] for deltas in inputs], interval)

        return self.workers.each(step, range(self.workers.count), rows)

    def _exchanged(self, deltas: Deltas, route: tuple[int, ...]) -> Deltas:
        """Bring each update to the shard that owns its key."""
        sources = [delta.updates for delta in deltas]
        # Equal rows have equal keys, but rows that are distinct within two shards may be equal.
        return [Delta(part) for part in kernels.exchange(sources, route, self.workers.count, self.workers.each)]

    def gathered(self, deltas: Deltas) -> Deltas:
        """Bring equal updates to one shard."""
        if self.workers.count == 1:
            return deltas
        return self._exchanged(deltas, tuple(range(deltas[0].updates.shape[1] - 1 - self.nt)))

    def _dealt(self, delta: Delta) -> Deltas:
        """Spread what is fed evenly."""
        count = self.workers.count
        ends = [len(delta.updates) * shard // count for shard in range(count + 1)]
        return [Delta(delta.updates[a:b], delta.distinct) for a, b in itertools.pairwise(ends)]

    def whole(self, handle: Handle, found: Mapping[int, Deltas]) -> Delta:
        """Return the updates of all shards of a place as one delta, of what `step` found."""
        filled = [delta for delta in found.get(handle.index, ()) if len(delta.updates)]
        if len(filled) < 2:
            return filled[0] if filled else self._places[handle.index].none
        # Rows of two shards may be equal where the key that they were dealt by is gone.
        return Delta(kernels.concat([delta.updates for delta in filled]))

    @staticmethod
    def _joined(parts: Sequence[Deltas]) -> Deltas:
        """Return the sum of updates, shard by shard."""
        if len(parts) == 1:
            return parts[0]
        summed = []
        for deltas in zip(*parts, strict=True):
            filled = [delta for delta in deltas if len(delta.updates)]
            summed.append(filled[0] if len(filled) == 1 else Delta(kernels.concat([d.updates for d in deltas])))
        return summed


def _all_at(updates: np.ndarray, rounds: Rounds) -> bool:
    return kernels.rounds_equal(updates, updates.shape[1] - 1 - len(rounds), rounds)

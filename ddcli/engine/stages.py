"""The structure of a scope: its operators as places in the order of their data, the places that each reads, and the stages of places.

A stage is the operators that a shard passes through together, between one exchange and the next. An operator that needs its groups whole reads the
updates of all shards, so it is of a later stage than they; so is a scope within, which takes all shards at once. All others stay with the shard that
they read.

Large steps in memory have smaller stages: places of one level that share nothing are stages of their own, one after the other, so
that only the working set of one of them is in memory at once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.engine.counts import RowCounts
from ddcli.engine.operators.base import Delta

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ddcli.engine.lanes import Layout
    from ddcli.engine.operators.base import Operator
    from ddcli.engine.rounds import Rounds
    from ddcli.engine.scope_tree import LoopScope


@frozen
class Stage:
    """Places of one level, or some that share nothing with the others, in order; a scope within is alone.

    `reads` are the places of earlier stages that it reads, and its own places that are fed; `exports` its own places
    that later stages read, `leaves` these and those whose updates the scope keeps. `frees` has, by place, the places whose updates it is the last of the stage to read. `seals` are the places, of this or
    earlier stages, without readers after this one. The `first` level reads only inputs, row by row, so they may be cut anywhere.

    For a few rows most places have no work. A bit stands for a place, in order: `begins` has the places to step first where a place has
    updates at first, `goes_on` those that read its updates.
    """

    places: tuple[int, ...]
    whole: bool
    first: bool
    members: frozenset[int]
    reads: frozenset[int]
    exports: frozenset[int]
    leaves: frozenset[int]
    frees: tuple[tuple[int, ...], ...]
    seals: frozenset[int]
    begins: dict[int, int]
    goes_on: dict[int, int]

    def takes_in(self, index: int, *, shared: bool) -> bool:
        """Return whether a trace takes in its updates after this stage: its last reader's where others read it, else its own."""
        return index in (self.seals if shared else self.members)


def stages(
    places: Sequence[OperatorSlot], kept: Collection[int] = (), *, sharded: bool, apart: bool = False
) -> list[Stage]:
    """Return the stages in their order; with one shard nothing is exchanged, and only scopes within are stages of their own.

    The scope keeps the updates of places in `kept`. With `apart` places of one level that share nothing are stages of their own, too.
    """
    numbers, first = _numbers(places, sharded=sharded, apart=apart)
    last = list(numbers)
    for index in reversed(range(len(places))):
        for i in places[index].inputs:
            last[i] = max(last[i], last[index] if places[index].wraps else numbers[index])
    owned, sealed = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    exported = set[int]()
    for index, place in enumerate(places):
        owned[numbers[index]].append(index)
        sealed[last[index]].append(index)
        exported.update(i for i in place.inputs if numbers[i] != numbers[index])
    found = []
    for number in range(max(numbers, default=-1) + 1):
        own = owned[number]
        read = {i for index in own for i in places[index].inputs}
        reads = {i for i in read if numbers[i] != number} | {
            i for i in own if not places[i].inputs or i in places[i].inputs
        }
        exports = exported.intersection(own)
        final = {i: i for i in {*own, *read}} | {i: index for index in own for i in places[index].inputs}
        freed = defaultdict[int, list[int]](list)
        for i, at in final.items():
            if i not in exports:
                freed[at].append(i)
        begins, goes_on = defaultdict[int, int](int), defaultdict[int, int](int)
        for at, index in enumerate(own):
            begins[index] |= 1 << at
            for i in places[index].inputs:
                begins[i] |= 1 << at
                if i != index:
                    goes_on[i] |= 1 << at
        found.append(
            Stage(
                tuple(own),
                places[own[0]].whole,
                number < first,
                frozenset(own),
                frozenset(reads),
                frozenset(exports),
                frozenset(exports.union(i for i in own if i in kept)),
                tuple(tuple(freed[index]) for index in own),
                frozenset(sealed[number]),
                dict(begins),
                dict(goes_on),
            )
        )
    return found


def _numbers(places: Sequence[OperatorSlot], *, sharded: bool, apart: bool) -> tuple[list[int], int]:
    """Return the stage of each place, and how many of the first stages read only inputs."""
    levels = [0] * len(places)
    for index, place in enumerate(places):
        above = max((levels[i] for i in place.inputs if i != index), default=0)
        levels[index] = max(levels[index], above + (place.whole or (sharded and place.gathers)))
        for port in place.ports:
            levels[port] = levels[index] + 1
    groups = _connected(places, levels) if apart else [0] * len(places)
    # The readers of a port are of a later level than the scope that fills it, so at its own level a scope may come first.
    keys = [
        (level, 0, at) if places[at].whole else (level, 1, group)
        for at, (level, group) in enumerate(zip(levels, groups, strict=True))
    ]
    order = _in_turn(places, keys) if apart else sorted(set(keys))
    numbers = {key: number for number, key in enumerate(order)}
    first = [key[:2] for key in order].count((0, 1))
    return [numbers[key] for key in keys], first if order and order[0][:2] == (0, 1) else 0


def _connected(places: Sequence[OperatorSlot], levels: Sequence[int]) -> list[int]:
    """Return, for each place, the first place in its connected component on the same level."""
    found = list(range(len(places)))

    def first(index: int) -> int:
        while found[index] != index:
            found[index] = found[found[index]]
            index = found[index]
        return index

    for index, place in enumerate(places):
        for i in place.inputs:
            if levels[i] == levels[index]:
                one, other = sorted((first(i), first(index)))
                found[other] = one
    return [first(index) for index in range(len(places))]


Key = tuple[int, int, int]


def _in_turn(places: Sequence[OperatorSlot], keys: Sequence[Key]) -> list[Key]:
    """Return the stages so that each comes after the stages that it reads; then the stages of sources, and places that were added early, first.

    The readers of a stage follow it soon, as places are added in the order of outputs, so few updates wait for long.
    """
    below, left = defaultdict[Key, set[Key]](set), dict.fromkeys(keys, 0)
    for index, place in enumerate(places):
        for above, at in [(i, index) for i in place.inputs] + [(index, port) for port in place.ports]:
            if keys[above] != keys[at] and keys[at] not in below[keys[above]]:
                below[keys[above]].add(keys[at])
                left[keys[at]] += 1
    rank = {key: (key[:2] != (0, 1), at) for at, key in reversed(list(enumerate(keys)))}
    ready = [(rank[key], key) for key, count in left.items() if not count]
    heapify(ready)
    found = []
    while ready:
        _, key = heappop(ready)
        found.append(key)
        for other in below[key]:
            left[other] -= 1
            if not left[other]:
                heappush(ready, (rank[other], other))
    return found


Deltas = list[Delta]
"""The new updates of a collection: one delta for each shard."""


@frozen
class Handle:
    """A place in a scope whose updates others may read."""

    index: int


@dataclass(slots=True)
class OperatorSlot:
    """An operator in a scope. `shards` are its operators, none for a place that is fed; `route` are the lanes of the input that decide a row's shard.

    `layout` has the types of the lanes, for writers of rows, which need the values behind hashes. `name` identifies the place in counts,
    `label` for people; `counts` has each shard's counts, of rows in where it `takes` them, of rows out where it `emits` them. A place that
    `keeps_signs` returns only insertions for insertions.
    """

    inputs: tuple[int, ...]
    none: Delta
    layout: Layout | None = None
    shards: Sequence[Operator] = ()
    inner: LoopScope | None = None
    ports: tuple[int, ...] = ()
    route: tuple[int, ...] = ()
    shifts: bool = False
    wraps: bool = False
    arranges: bool = False
    fed: bool = False
    reads: tuple[tuple[int, Delta], ...] = ()
    name: str = ""
    label: str = ""
    keeps_signs: bool = False
    takes: bool = True
    emits: bool = True
    counts: dict[int, RowCounts] = field(default_factory=dict)

    @property
    def gathers(self) -> bool:
        """Return whether its input is exchanged by key, or comes by shard from outside."""
        return bool(self.route) or self.fed

    @property
    def whole(self) -> bool:
        """Return whether it takes all shards at once."""
        return self.inner is not None

    def count(self, shard: int) -> RowCounts:
        """Return the counts of a shard, which one thread steps at a time."""
        found = self.counts.get(shard)
        if found is None:
            found = self.counts[shard] = RowCounts()
        return found

    def counted(self, shard: int, given: Sequence[Delta], found: Delta, seconds: float) -> Delta:
        """Count a step of a shard; return its updates, marked if all are known to insert: the updates of a first load are read once for that."""
        count, rows, rows_in, known = self.count(shard), len(found.updates), 0, self.keeps_signs
        for delta in given:  # a loop, as each round of a loop runs this
            if len(delta.updates):
                rows_in += len(delta.updates)
                known = known and delta.inserts
        inserted = rows if known or found.inserts else kernels.inserted(found.updates)
        if self.takes:
            count.rows_in += rows_in
        if self.emits:
            count.rows_out += rows
            count.inserted += inserted
        count.seconds += seconds
        inserts = inserted == rows
        return found if inserts == found.inserts else found._replace(inserts=inserts)


@dataclass(slots=True)
class StageInput:
    """The input of a shard in a stage: what it reads of others and what was held for these rounds, by place; what was exchanged for it, by place and input; the called places.

    In one shard nothing is exchanged: then `routed` is None.
    """

    deltas: dict[int, Delta] = field(default_factory=dict)
    late: dict[int, Delta] = field(default_factory=dict)
    routed: dict[tuple[int, int], Delta] | None = None
    due: set[int] = field(default_factory=set)


@dataclass(slots=True)
class StageResult:
    """The result of a shard in a stage: updates by place, with later rounds apart, the places that it woke, the places that stepped, and the number of rows."""

    found: dict[int, Delta] = field(default_factory=dict)
    later: list[tuple[int, Rounds, Delta]] = field(default_factory=list)
    wakes: list[tuple[int, Rounds]] = field(default_factory=list)
    stepped: list[int] = field(default_factory=list)
    rows: int = 0


NOTHING = StageResult()
"""The result of a shard without work."""

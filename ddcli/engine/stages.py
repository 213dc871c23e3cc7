"""Stages: which operators a shard goes through in one go, between one exchange and the next.

An operator that needs its groups whole reads what all shards gave, so it is of a later stage than they; so is a scope within,
which takes all shards at once. All others stay with the shard that they read.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence


class StagedPlace(Protocol):
    """What is asked of a place."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """Return the places that it reads, all before it; one that is fed by shard reads itself."""

    @property
    def gathers(self) -> bool:
        """Return whether what it reads is brought to the shards that own its keys."""

    @property
    def whole(self) -> bool:
        """Return whether it is a scope within, which takes all shards at once."""

    @property
    def ports(self) -> tuple[int, ...]:
        """Return the places that a scope within fills."""

    @property
    def wraps(self) -> bool:
        """Return whether who reads it reads, through it, what its input keeps."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Places of one level, in order; a scope within is alone.

    `reads` are the places of earlier stages that it reads, and those of its own that are fed; `exports` those of its own
    that later stages read. `frees` says, by place, what nobody of the stage reads after it. `seals` are the places, of this or
    earlier stages, that nobody reads after this one. The `first` level reads nothing but what is fed, row by row: any cut will do.
    """

    places: tuple[int, ...]
    whole: bool
    first: bool
    members: frozenset[int]
    reads: frozenset[int]
    exports: frozenset[int]
    frees: tuple[tuple[int, ...], ...]
    seals: frozenset[int]

    def takes_in(self, index: int, *, shared: bool) -> bool:
        """Say whether a trace takes in its updates after this stage: its last reader's where others read it, else its own."""
        return index in (self.seals if shared else self.members)


def stages(places: Sequence[StagedPlace], *, sharded: bool) -> list[Stage]:
    """Return the stages in their order; with one shard nothing is exchanged, and only scopes within stand apart."""
    numbers, first = _numbers(places, sharded=sharded)
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
        found.append(
            Stage(
                tuple(own),
                places[own[0]].whole,
                number == 0 and first,
                frozenset(own),
                frozenset(reads),
                frozenset(exports),
                tuple(tuple(freed[index]) for index in own),
                frozenset(sealed[number]),
            )
        )
    return found


def _numbers(places: Sequence[StagedPlace], *, sharded: bool) -> tuple[list[int], bool]:
    """Return the stage of each place, and whether the first of them reads nothing but what is fed."""
    levels = [0] * len(places)
    for index, place in enumerate(places):
        above = max((levels[i] for i in place.inputs if i != index), default=0)
        levels[index] = max(levels[index], above + (place.whole or (sharded and place.gathers)))
        for port in place.ports:
            levels[port] = levels[index] + 1
    # What reads a port is of a later level than the scope that fills it, so at its own level a scope may come first.
    keys = [(level, 0, at) if places[at].whole else (level, 1, 0) for at, level in enumerate(levels)]
    order = sorted(set(keys))
    numbers = {key: number for number, key in enumerate(order)}
    return [numbers[key] for key in keys], bool(order) and order[0] == (0, 1, 0)

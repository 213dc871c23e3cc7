"""The inside of a loop as tasks: what a shard of it does before, between and after the rounds, and what goes from one task to the next.

In memory an operator goes from round to round as it is. As tasks each round has operators of its own. What they must know of the rounds
before is put off as updates: what their traces took in, which groups are to be looked at and when, what a variable is
in the next round, what has left. A loop, or the rest of it, can as well be gone through in memory, from what was put off.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.lanes import Layout
from ddcli.engine.loop import GATHERING
from ddcli.engine.nest import APART, BROUGHT, CALLED, HERE, KEPT, Address, Path, Wake, within
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.join import Entered
from ddcli.engine.rounds import with_rounds, without_rounds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.engine.operators.base import Interval, Operator
    from ddcli.engine.outofcore import OutOfCore
    from ddcli.engine.rounds import Rounds
    from ddcli.engine.stages import Stage

LANES = Layout({})
"""Of keys: nobody asks for the values behind their hashes before he has read the groups, which bring them."""


def enter(step: OutOfCore, path: Path, shard: int, interval: Interval) -> None:
    """Begin a loop, in the interval's rounds of those around: have its initials and what else enters come to a shard.

    Where none is around, find out as well in which rounds something waits since earlier intervals.
    """
    loop, outer = step.nest.loop(path), interval.rounds
    if len(path) == 1:
        for inner, scope in step.nest.below(path):
            for index in range(len(scope.places)):
                for operator in step.operator((*inner, index), shard):
                    step.wakes += [Wake((*inner, index), rounds, shard) for rounds in operator.begin(interval)]
    for at, (source, place) in enumerate(zip(step.nest.fed(path), step.nest.inputs(path), strict=True)):
        to = (*path, source.index)
        if to in step.nest.origins:  # it is read where it is
            continue
        updates = step.exchange.take(
            Address(place, HERE, shard, outer), step.layout(place), step.pools[shard], last=False
        )
        if updates is None:
            continue
        step.send(to, shard, with_rounds(updates, (0,), 1), (*outer, 0))
        if at < len(loop.variables):
            back = with_rounds(updates, (1,), 1)
            np.multiply(back[:, -1], -1, out=back[:, -1])
            step.send(to, shard, back, (*outer, 1))


def leave(step: OutOfCore, place: Path, shard: int, delta: Delta, rounds: Rounds) -> None:
    """Have what a place of a loop gave in a round leave the loop, and come back in the next one, as far as it does."""
    path, index = place[:-1], place[-1]
    loop = step.nest.loop(path)
    if index in loop.leaving:
        port = step.nest.scopes[path[:-1]].places[path[-1]].ports[loop.leaving.index(index)]
        step.stays((*path[:-1], port), shard, without_rounds(delta.updates, 1), rounds[:-1])
    if loop.limit.bound is None and rounds[-1] >= loop.limit.guard:
        loop.check_settled({index: [delta]})
    results = [variable for variable in loop.variables if variable.result.index == index]
    if not results:
        return
    updates = delta.updates if delta.distinct else kernels.consolidate(delta.updates)
    updates = updates.copy() if updates is delta.updates else updates
    updates[:, -2] += 1
    later = (*rounds[:-1], rounds[-1] + 1)
    for variable in results:
        to = (*path, variable.place.index)
        if later[-1] % GATHERING:
            step.send(to, shard, updates, later)
        else:
            layout = step.layout(to)
            step.deal(Address(to, APART, shard, later), updates, layout, range(layout.width))


def add_up(step: OutOfCore, path: Path, shard: int, interval: Interval) -> None:
    """Have variables come to a shard whose updates were dealt by whole records: what cancels would go round for ever."""
    for variable in step.nest.loop(path).variables:
        place = (*path, variable.place.index)
        at = Address(place, APART, shard, interval.rounds)
        updates = step.exchange.take(at, step.layout(place), step.pools[shard], last=True)
        if updates is not None:
            step.send(place, shard, kernels.consolidate(updates), interval.rounds)


def end(step: OutOfCore, path: Path, stage: Stage, shard: int, interval: Interval) -> None:
    """End a loop that no other is around: hand its traces over, and those that were read by it last. `stage` is the loop's."""
    for inner, scope in step.nest.below(path):
        for index in range(len(scope.places)):
            place = (*inner, index)
            for operator in step.operator(place, shard) if place not in step.nest.origins else ():
                step.go_on(place, shard, interval)
                operator.close(interval)
                for trace in operator.traces:
                    step.hand_over(trace)
    for place in dict.fromkeys(step.nest.inputs(path)):
        updates = step.exchange.take(Address(place, HERE, shard), step.layout(place), step.pools[shard], last=False)
        if updates is not None:
            step.resumed(place, shard, updates)
    step.seal((), stage, shard, interval)


def go_through(
    step: OutOfCore,
    path: Path,
    stage: Stage,
    interval: Interval,
    pending: Iterable[Address | Wake],
    *,
    begun: bool,
) -> None:
    """Go through all rounds of a loop that are left in these rounds of those around, in memory; if not `begun`, from its beginning on."""
    loop, outer, shards = step.nest.loop(path), interval.rounds, range(step.scope.workers.count)
    for inner, scope in step.nest.below(path):
        for index in range(len(scope.places)):
            if (*inner, index) not in step.nest.origins:
                for shard in shards:
                    step.go_on((*inner, index), shard, interval)
    loop.begin(interval)
    _schedule(step, [each for each in pending if within(each, path, outer)], interval)
    given = step.given(path, stage, interval)
    left = loop.go_on(given, interval) if begun else loop.step(given, interval)
    for port, deltas in zip(step.nest.scopes[path[:-1]].places[path[-1]].ports, left, strict=True):
        for shard, delta in enumerate(deltas or ()):
            if len(delta.updates):
                step.stays((*path[:-1], port), shard, delta.updates, outer)
    loop.wakes.clear()
    for inner, scope in step.nest.below(path):
        step.wakes += [
            Wake((*inner, index), rounds, shard)
            for index, rounds in scope.agenda()
            if rounds[: len(outer)] != outer
            for shard in shards
        ]
        for index in range(len(scope.places)):
            for shard in shards:
                for operator in step.operator((*inner, index), shard):
                    put_off(step, operator, (*inner, index), shard, outer)


def _schedule(step: OutOfCore, pending: Iterable[Address | Wake], interval: Interval) -> None:
    """Have what waits in a loop wait in memory."""
    waiting = defaultdict(set)
    for each in pending:
        if isinstance(each, Wake):
            step.nest.scopes[each.place[:-1]].wake(each.place[-1], each.rounds)
        elif each.what == CALLED:
            keys = step.exchange.parts(each, LANES, step.pools[each.shard])
            for operator in step.operator(each.place, each.shard):
                assert operator.revisiting is not None
                operator.revisiting.recall(interval, {each.rounds: keys}, None)
        elif each.what != KEPT:
            waiting[each.place, each.rounds].add(each.what)
    for (place, rounds), kinds in waiting.items():
        _postpone(step, place, rounds, kinds - {BROUGHT})
        source = (*place[:-1], *step.nest.scopes[place[:-1]].places[place[-1]].inputs[:1])
        # What was brought to all who read a variable so is all of it: of one it is taken, if nobody finds it where it is.
        found_there = HERE in waiting.get((source, rounds), ())
        if BROUGHT in kinds and step.readers[source][0] == place[-1] and not found_there:
            _postpone(step, place, rounds, {BROUGHT}, source)


def _postpone(step: OutOfCore, place: Path, rounds: Rounds, kinds: Iterable[str], source: Path | None = None) -> None:
    """Have what waits at a place as some things appear in its rounds, there or at the one that it came from."""
    at = source or place
    scope, index = step.nest.scopes[at[:-1]], at[-1]
    for what in kinds:
        deltas = []
        for shard in range(step.scope.workers.count):
            address = Address(place, what, shard, rounds)
            updates = step.exchange.take(address, step.layout(at), step.pools[shard], last=True)
            deltas.append(scope.places[index].none if updates is None else Delta(kernels.consolidate(updates)))
        scope.later(index, rounds, deltas)


# --- operators ----------------------------------------------------------------------------------------------------


def recall(step: OutOfCore, operator: Operator, place: Path, shard: int, interval: Interval) -> None:
    """Have an operator know what those put off who stepped it in earlier rounds than the interval's."""
    pool, rounds = step.pools[shard], interval.rounds
    if isinstance(operator, Entered):
        origin = step.nest.origins[place]
        step.go_on(origin, shard, interval)
        if rounds[-1]:
            here = Address(origin, HERE, shard, rounds[:-1])
            updates = step.exchange.take(here, step.layout(origin), pool, last=False)
            if updates is not None:
                operator.go_on(updates)
        return
    for at, trace in enumerate(operator.traces):
        assert trace.layout is not None, "the traces of a state have layouts"
        trace.resume(step.exchange.parts(Address(place, KEPT, shard, trace=at), trace.layout, pool))
    if operator.revisiting is not None:
        keys = step.exchange.parts(Address(place, CALLED, shard, rounds), LANES, pool)
        operator.revisiting.recall(interval, {rounds: keys} if keys else {}, step.memos.get((place, shard)))


def put_off(step: OutOfCore, operator: Operator, place: Path, shard: int, but: Rounds | None = None) -> None:
    """Put off what others must know of an operator's rounds; `but` those rounds of the loops around are over."""
    pool = step.pools[shard]
    for at, trace in enumerate(operator.traces):
        assert trace.layout is not None, "the traces of a state have layouts"
        if trace.fresh:
            updates = kernels.merge(trace.fresh)
            step.exchange.add(Address(place, KEPT, shard, trace=at), updates, trace.layout, pool)
    if operator.revisiting is not None:
        called, step.memos[place, shard] = operator.revisiting.put_off()
        for rounds, keys in called.items():
            if but is None or rounds[: len(but)] != but:
                step.exchange.add(Address(place, CALLED, shard, rounds), keys, LANES, pool)

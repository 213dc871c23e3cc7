"""The schedule by itself: random scopes with toys for operators, and tokens for updates. Whoever does the work_items, the same happens.

What has to happen is found without a schedule, token by token in any order. Then the work items are done as tasks do them, as they are done in
memory, and in mixtures; each token has to be where it belongs exactly once, in no round that is over, and what is kept of a
trace is found by all who read it. `DD_EFFORT=100 pytest tests/test_schedule.py` draws more.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine.process import Workers
from ddcli.engine.schedule import Schedule
from ddcli.engine.scope import Scope
from ddcli.engine.scope_tree import (
    APART,
    EXCHANGED,
    HERE,
    KEPT,
    LATE,
    Address,
    LoopEntry,
    LoopScope,
    ScheduledActivation,
    ScopeTree,
    VariablePlaces,
)
from ddcli.errors import Text
from tests.judge.test_random import SEARCH

if TYPE_CHECKING:
    from ddcli.engine.stages import Handle

DEEPEST = 3
GATHERING = 2


class Toy:
    """Stands for an operator."""

    shared = False


def mixed(*parts) -> int:
    """Return a number that depends on all parts."""
    return hash((17, *parts)) % (1 << 40)


@dataclass
class ToyTree:
    """A random tree of scopes, and what its toys do: all of it depends on nothing but what they are given."""

    chance: random.Random
    shards: int
    nest: ScopeTree = field(init=False)
    fed: list[tuple[int, int]] = field(default_factory=list)
    """Places outside of loops, and the tokens that they are fed."""

    def __post_init__(self) -> None:
        scope = self._scope(0)
        sources = [scope.source(1) for _ in range(3)]
        self._fill(scope, list(sources), 0)
        self.nest = ScopeTree(scope)
        filled = self.chance.sample(sources, self.chance.choice([1, 2]))
        self.fed = [(self.chance.choice(filled).index, at) for at in range(self.chance.randint(1, 6))]

    def _scope(self, depth: int) -> Scope:
        return Scope(1 + depth, depth, Workers(self.shards, 1))

    def _fill(self, scope: Scope, handles: list[Handle], depth: int) -> None:
        """Add operators and loops that read what is there."""
        arranged: set[int] = set()
        for _ in range(self.chance.randint(2, 5)):
            if depth < DEEPEST and self.chance.random() < 0.35:
                handles += self._loop(scope, handles, arranged, depth + 1)
                continue
            inputs = self.chance.sample(handles, min(len(handles), self.chance.choice([1, 1, 2])))
            route = [0] if len(inputs) == 1 and self.chance.random() < 0.5 else []
            arranges = bool(route) and self.chance.random() < 0.5
            shifts = not arranges and self.chance.random() < 0.3
            toys = [Toy() for _ in range(self.shards)]
            handle = scope.add(toys, *inputs, width=1, route=route, shifts=shifts, arranges=arranges)
            handles.append(handle)
            if arranges:
                arranged.add(handle.index)

    def _loop(self, outside: Scope, handles: list[Handle], arranged: set[int], depth: int) -> list[Handle]:
        """Add a loop, and return its ports."""
        scope = self._scope(depth)
        initials = self.chance.sample(handles, min(len(handles), self.chance.choice([1, 2])))
        entering = self.chance.sample(handles, self.chance.randint(0, min(2, len(handles))))
        kept = [handle for handle in handles if handle.index in arranged and handle not in entering]
        entering += kept if self.chance.random() < 0.5 else []
        variables = [scope.source(1) for _ in initials]
        entries = []
        for handle in entering:
            if handle.index in arranged:
                toys = [Toy() for _ in range(self.shards)]
                entries.append(LoopEntry(scope.fed(toys, 1 + 1 + depth), toys))
            else:
                entries.append(LoopEntry(scope.source(1)))
        inside = [*variables, *(entry.place for entry in entries)]
        self._fill(scope, inside, depth)
        results = [self.chance.choice(inside[len(variables) :] or inside) for _ in variables]
        leaving = self.chance.sample(inside, min(len(inside), self.chance.choice([1, 2])))
        bound = self.chance.choice([None, None, 1, 2, 3])
        made = [VariablePlaces(v, r, Text("v", None)) for v, r in zip(variables, results, strict=True)]
        loop = LoopScope(scope, made, entries, leaving, bound, 1_000, lambda *_: "")
        return outside.add_inner(loop, *initials, *entering, widths=[1 for _ in leaving])

    def gives(self, place, rounds, by, token):
        """Return when an operator gives which token for one that it reads, if any; and when it wants to be called."""
        fuel = token % 8
        here = mixed(place, by, token)
        if not fuel or here % 5 == 0:
            return None, None
        scope, then = self.nest.scopes[place[:-1]], rounds
        if scope.places[place[-1]].shifts and here % 3 == 0:
            # A join of what is of other rounds: of loops around as well.
            then = tuple(each + mixed(here, at) % 3 % 2 for at, each in enumerate(rounds))
        wanted = tuple(each + mixed(here, at, 1) % 2 for at, each in enumerate(rounds))
        wakes = wanted if rounds and wanted != rounds and here % 4 == 0 else None
        return (then, lowered(here, fuel)), wakes

    def back(self, token):
        """Return the token that takes another back."""
        return lowered(mixed(-1, token), token % 8) if token % 8 else None


def lowered(number: int, fuel: int) -> int:
    """Return a token that goes less far."""
    return number - number % 8 + fuel - 1


@dataclass
class Truth:
    """What happens, found token by token: which token is given where in which rounds, and who is called."""

    tree: ToyTree
    given: Counter = field(default_factory=Counter)
    called: set = field(default_factory=set)
    left: list = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = [((index,), (), token * 8 + 7) for index, token in self.tree.fed]
        while self.left:
            self._appear(*self.left.pop())

    def _appear(self, place, rounds, token) -> None:
        nest = self.tree.nest
        path, index = place[:-1], place[-1]
        for depth in range(1, len(path) + 1):
            bound = nest.loop(path[:depth]).bound
            if bound is not None and rounds[depth - 1] >= bound:
                return
        if index not in nest.feeds(path):  # what a loop is fed is seen by who reads it
            self.given[place, rounds, token] += 1
        scope = nest.scopes[path]
        for at, reader in enumerate(scope.places):
            if index not in reader.inputs or at == index:
                continue
            if reader.inner is None:
                for by, i in enumerate(reader.inputs):
                    if i == index:
                        self._step((*path, at), rounds, by, token)
            else:
                self._enter((*path, at), rounds, index, token)
        if path:
            loop = nest.loop(path)
            for number, leaving in enumerate(loop.leaving):
                if leaving == index:
                    port = nest.scopes[path[:-1]].places[path[-1]].ports[number]
                    self.left.append(((*path[:-1], port), rounds[:-1], left(token, rounds[-1])))
            for number, variable in enumerate(loop.variables):
                if variable.result.index == index and token % 8:
                    then = (*rounds[:-1], rounds[-1] + 1)
                    self.left.append(((*path, variable.place.index), then, fed_back(token, number)))

    def _step(self, place, rounds, by, token) -> None:
        gives, wakes = self.tree.gives(place, rounds, by, token)
        if gives:
            self.left.append((place, *gives))
        if wakes and not self._is_over(place[:-1], wakes):
            self.called.add((place, wakes))

    def _is_over(self, path, rounds) -> bool:
        bounds = [self.tree.nest.loop(path[:depth]).bound for depth in range(1, len(path) + 1)]
        return any(bound is not None and at >= bound for at, bound in zip(rounds, bounds, strict=True))

    def _enter(self, path, outer, index, token) -> None:
        for to, number, entering in entered(self.tree, path, index, token):
            self.left.append((to, (*outer, number), entering))


def left(token, number):
    return mixed(-2, token, number) // 8 * 8 + token % 8


def fed_back(token, number):
    return lowered(mixed(-3, token, number), token % 8)


def entered(tree, path, index, token):
    """Yield what a loop is fed for a token of a place that it reads: where, in which round."""
    loop = tree.nest.loop(path)
    for at, (handle, place) in enumerate(zip(tree.nest.fed(path), tree.nest.inputs(path), strict=True)):
        if place[-1] == index:
            yield (*path, handle.index), 0, token
            if at < len(loop.variables) and (back := tree.back(token)) is not None:
                yield (*path, handle.index), 1, back


@dataclass
class Doing:
    """The work items of a schedule, done with tokens: as tasks, or in memory where `resident`."""

    tree: ToyTree
    resident: bool
    little: object = None
    given: Counter = field(default_factory=Counter)
    called: set = field(default_factory=set)
    kept: dict = field(default_factory=lambda: defaultdict(set))
    """What the traces of arrangements have taken in: what whoever reads them has to find."""

    def __post_init__(self) -> None:
        size = {} if self.resident else {"little": self.little, "size": lambda _: 1}
        self.schedule = Schedule(self.tree.nest, range(self.tree.shards), **size)
        self.now: dict = {}

    def run(self) -> None:
        for index, token in self.tree.fed:
            self._here((index,), token % len(self.schedule.shards), token * 8 + 7, ())
        self.go(self.schedule.work_items())
        moving, wakes = self.schedule.left()
        assert not moving
        assert not wakes

    def go(self, work_items) -> None:
        for item, found in work_items:
            match item.action:
                case "stage" | "round":
                    self._note(item)
                    for shard in item.shards:
                        self._stage(item, shard, found)
                case "enter":
                    self.now.pop(item.path, None)
                    for at, tokens in found.items():
                        for token in tokens:
                            self._enter(item.path, item.rounds, at, token)
                case "sum":
                    for at, tokens in found.items():
                        for token in tokens:
                            self._send(at.place, at.shard, token, at.rounds)
                case "whole" | "rest":
                    self._go_through(item, found)
                case _:
                    assert item.action in ("seal", "end")

    def _note(self, item) -> None:
        """Refuse a round that comes after a later one of its loop."""
        if item.path:
            before = self.now.get(item.path)
            assert before is None or before[:-1] != item.rounds[:-1] or before <= item.rounds, (before, item)
            self.now[item.path] = item.rounds

    def _stage(self, item, shard, found) -> None:
        nest, path, rounds = self.tree.nest, item.path, item.rounds
        scope = nest.scopes[path]
        stage = scope.stages[item.stage]
        mine = {at: tokens for at, tokens in found.items() if at.shard == shard}
        called = {(wake.place, wake.rounds) for wake in item.due if wake.shard == shard}
        self.called |= {(place, when) for place, when in called if place not in nest.origins}
        if path and not self.resident:
            self._check_kept(item, stage, shard, mine)
        tokens = self._read(path, rounds, stage, mine)
        fed = nest.feeds(path) if path else {i for i, place in enumerate(scope.places) if not place.inputs}
        for index in stage.places:
            if index not in fed and scope.places[index].shards:
                tokens[index] += self._operate((*path, index), rounds, shard, tokens, mine)
            for token in tokens[index]:
                self._gives(item, stage, index, shard, token)
        for index in stage.seals if not self.resident else ():
            if scope.places[index].arranges:
                here = tokens[index] if index in stage.members else []
                self._take_in((*path, index), shard, here or self._waiting(mine, (*path, index), HERE, rounds))

    def _read(self, path, rounds, stage, mine) -> dict[int, list[int]]:
        """Return what a stage reads of others, and is fed."""
        tokens = defaultdict(list)
        for index in stage.reads:
            tokens[index] += self._waiting(mine, (*path, index), HERE, rounds)
        for place, origin in self.tree.nest.entered_traces(path) if path and not rounds[-1] else ():
            if place[-1] in stage.members:
                tokens[place[-1]] += self._waiting(mine, origin, HERE, rounds[:-1])
        return tokens

    def _waiting(self, mine, place, what, rounds) -> list[int]:
        return [token for at, some in mine.items() if at[:2] == (place, what) and at.rounds == rounds for token in some]

    def _operate(self, at, rounds, shard, tokens, mine) -> list[int]:
        """Return what an operator gives in these rounds; what it gives for others, and when it is to be called, waits."""
        place, here = self.tree.nest.scopes[at[:-1]].places[at[-1]], []
        for by, index in enumerate(place.inputs):
            brought = place.route and not self.resident
            for token in self._waiting(mine, at, EXCHANGED, rounds) if brought else tokens[index]:
                gives, wakes = self.tree.gives(at, rounds, by, token)
                if gives and gives[0] == rounds:
                    here.append(gives[1])
                elif gives:
                    self.schedule.add(Address(at, LATE, shard, gives[0]), gives[1])
                if wakes:
                    self.schedule.wake(ScheduledActivation(at, wakes, shard))
        return here + self._waiting(mine, at, LATE, rounds)

    def _gives(self, item, stage, index, shard, token) -> None:
        path, rounds = item.path, item.rounds
        scope, at = self.tree.nest.scopes[path], (*path, index)
        if index not in self.tree.nest.feeds(path):
            self.given[at, rounds, token] += 1
        if path and index in scope.kept:
            self._leave(path, index, shard, token, rounds)
        if index in stage.exports and (index not in self.tree.nest.feeds(path) or at in self.tree.nest.origins):
            self._send(at, shard, token, rounds)

    def _take_in(self, place, shard, tokens) -> None:
        """Have a trace take in what its place gave."""
        if len(place) > 1:
            for token in tokens:
                self.schedule.add(Address(place, KEPT, shard), token)
                self.kept[place, shard].add(token)

    def _check_kept(self, item, stage, shard, mine) -> None:
        """Refuse a stage that is not given what traces, of its scope or a loop around, have taken in by now."""
        for place in self.tree.nest.read(item.path, stage):
            found = {token for at, some in mine.items() if (at.place, at.what) == (place, KEPT) for token in some}
            assert self.kept[place, shard] <= found, (item, place, shard)

    def _leave(self, path, index, shard, token, rounds) -> None:
        nest = self.tree.nest
        loop = nest.loop(path)
        for number, leaving in enumerate(loop.leaving):
            if leaving == index:
                port = nest.scopes[path[:-1]].places[path[-1]].ports[number]
                self._here((*path[:-1], port), shard, left(token, rounds[-1]), rounds[:-1])
        then = (*rounds[:-1], rounds[-1] + 1)
        for number, variable in enumerate(loop.variables):
            if variable.result.index == index and token % 8:
                to, back = (*path, variable.place.index), fed_back(token, number)
                if then[-1] % GATHERING or self.tree.shards == 1:
                    self._send(to, shard, back, then)
                else:
                    self.schedule.add(Address(to, APART, back % self.tree.shards, then), back)

    def _enter(self, path, outer, at, token) -> None:
        for to, number, entering in entered(self.tree, path, at.place[-1], token):
            if to not in self.tree.nest.origins:
                self._send(to, at.shard, entering, (*outer, number))

    def _here(self, place, shard, token, rounds) -> None:
        self.schedule.add(Address(place, HERE, shard, rounds), token)

    def _send(self, place, shard, token, rounds) -> None:
        scope, index = self.tree.nest.scopes[place[:-1]], place[-1]
        if self.resident:
            self._here(place, shard, token, rounds)
            return
        for at, reader in enumerate(scope.places):
            if index in reader.inputs and reader.route:
                to = (*place[:-1], at)
                self.schedule.add(Address(to, EXCHANGED, token // 8 % self.tree.shards, rounds), token)
        if any(index in other.inputs and not other.route for other in scope.places) or (
            len(place) > 1 and index in scope.kept
        ):
            self._here(place, shard, token, rounds)

    def _go_through(self, item, found) -> None:
        """Do a loop, or the rest of it, in memory."""
        nest, path, outer = self.tree.nest, item.path, item.rounds
        memory = Doing(self.tree, resident=True, given=self.given, called=self.called)
        given = nest.given(path)
        for wake in item.due:
            memory.schedule.wake(wake)
        for at, tokens in found.items():
            place, inside = at.place, at.place[: len(path)] == path != at.place
            if at.what == KEPT or not (inside or (at.place in given and at.rounds == outer)):
                continue
            if at.what == EXCHANGED:
                source = (*place[:-1], *nest.scopes[place[:-1]].places[place[-1]].inputs)
                readers = [
                    i for i, p in enumerate(nest.scopes[place[:-1]].places) if source[-1] in p.inputs and p.route
                ]
                if readers[0] != place[-1] or any(
                    (o.place, o.what, o.rounds) == (source, HERE, at.rounds) for o in found
                ):
                    continue
                place = source
            for token in tokens:
                memory.schedule.add(Address(place, LATE if at.what == LATE else HERE, at.shard, at.rounds), token)
        memory.go(memory.schedule.loop(path, outer, item.stage, begun=item.action == "rest"))
        moving, wakes = memory.schedule.left()
        for at, tokens in moving.items():
            for token in tokens if at.place not in given else ():
                self.schedule.add(at, token)
        for wake in wakes:
            self.schedule.wake(wake)


@pytest.mark.parametrize("way", ["memory", "tasks", "mixed"])
@SEARCH
@given(st.integers(0, 2**32))
def test_all_that_has_to_happen_does_once(way, seed):
    """In memory, round by round as tasks, and where some loops, or the rest of some, are done in memory."""
    chance = random.Random(seed)
    tree = ToyTree(chance, 1 if way == "memory" else chance.randint(2, 3))
    truth = Truth(tree)
    doing = Doing(tree, way == "memory", lambda *_: way == "mixed" and chance.random() < 0.3)
    doing.run()
    assert doing.given == truth.given
    assert truth.called <= doing.called

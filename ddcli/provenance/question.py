"""A question about records at a time: the world of the updates that may matter to them, and explanations that pass the check."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.circuit.trial import Trial, as_of, closed
from ddcli.dataclass import dataclass
from ddcli.driver.prepare import before
from ddcli.engine.lanes import Layout
from ddcli.errors import DdError
from ddcli.plan import logical
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph
from ddcli.provenance.inputs import Restrictions
from ddcli.provenance.sentences import Reason
from ddcli.provenance.trace import Tracer
from ddcli.provenance.worlds import ROUND, Contents, EvaluatedPlan, Opaque, Values, advanced, raw_sources
from ddcli.sources.input_format import InputFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddcli.engine.columns import Matrix
    from ddcli.engine.times import Time
    from ddcli.plan.node import Node
    from ddcli.provenance.inputs import Inputs, Where
    from ddcli.provenance.sentences import Leaf
    from ddcli.provenance.worlds import Record

PRUNED = 16
"""The most updates of an explanation for which each is tried to be left out."""


@dataclass(frozen=True)
class Explained:
    """A record, its multiplicity, and its explanation, whose `scope` is `witness` (enough of the records that it is made of), `whole` (all
    of them) or `everything` (all updates that may matter); `checked`: a run over these updates alone returns the record.
    """

    record: Record
    count: int
    reason: Reason
    scope: str
    checked: bool
    updates: int


class Question:
    """A question for a collection's records with some values, at a time: the updates that may matter, and their world.

    Updates that join with none of the records in question matter only where these are `missing`.
    """

    def __init__(
        self,
        inputs: Inputs,
        node: Node,
        values: Mapping[str, Any],
        time: Time,
        limit: int,
        fed: Mapping[str, Matrix] | None = None,
        *,
        missing: bool = False,
    ) -> None:
        self.inputs, self.node, self.values, self.time, self.limit = inputs, node, dict(values), time, limit
        self.graph = Graph({"": node})
        self.sources = logical.sources(self.graph)
        upper = before(time)
        keys = None if missing else inputs.keys(upper)
        self.fed = dict(fed or inputs.updates(self.sources, upper, Restrictions(node, self.values, keys)))
        self.facts = {name: facts for name, facts in inputs.facts(upper).items() if name in self.sources}
        self.known = Values(inputs.pool, inputs.answers)
        self.named = frozenset(relation.node.fingerprint for relation in inputs.relations.values())

    @cached_property
    def world(self) -> EvaluatedPlan:
        """All collections as of the time."""
        return EvaluatedPlan(self.graph.nodes(), self.fed, self.time, self.inputs.kinds, self.known, self.facts)

    def at(self, time: Time) -> Question:
        """Return the same question about an earlier time."""
        upper = before(time)
        times = slice(-len(time) - 1, -1)
        fed = {name: matrix[closed(upper, matrix[:, times])] for name, matrix in self.fed.items()}
        return Question(self.inputs, self.node, self.values, time, self.limit, fed)

    def records(self) -> Contents:
        """Return the records in question."""
        return self.world.contents(self.node).where(self.values)

    def history(self) -> Contents:
        """Return all updates of the records in question up to the time: records with a time, and the change of each multiplicity."""
        found = self._run(self.fed, self.facts)
        times = {f"\0time{at}": ROUND for at in range(len(self.time))}
        return Contents(found, self.node.schema | times, self.known).where(self.values)

    def explained(self, record: Record, count: int) -> Explained:
        """Return the smallest explanation of a record that passes the check."""
        reason = self._traced(self.world, record, count, witnesses=True)
        if self.reproduces(reason, record, count):
            reason = self._pruned(reason, record, count)
            return Explained(record, count, reason, "witness", True, len(reason.leaves))
        if not reason.everything:
            whole = self._traced(self.world, record, count, witnesses=False)
            if self.reproduces(whole, record, count):
                return Explained(record, count, whole, "whole", True, len(whole.leaves))
        alone = self.count_in(self.fed, self.facts, record) == count
        return Explained(record, count, reason, "everything", alone, sum(map(len, self.fed.values())))

    def _traced(self, world: EvaluatedPlan, record: Record, count: int, *, witnesses: bool) -> Reason:
        try:
            return Tracer(world, self.limit, self.named, witnesses).reason(world, self.node, record)
        except Opaque as error:
            return Reason(self.node, "", record, count, notes=[f"{error} can't be traced"], everything=True)

    def _pruned(self, reason: Reason, record: Record, count: int) -> Reason:
        """Return an explanation without the updates that it does not need, if there are not too many to try.

        Witnesses are chosen one by one, so the leaves of one may be enough for another, too. Rows of keys and of tables are not tried.
        """
        if self.facts or not 1 < len(reason.leaves) <= PRUNED:
            return reason
        left = set(reason.leaves)
        for leaf in sorted(reason.leaves):
            less = replace(reason, leaves=frozenset(left - {leaf}))
            if self.reproduces(less, record, count):
                left.discard(leaf)
        if len(left) == len(reason.leaves):
            return reason
        alone = {name: self._neutralized(name, left) for name in self.fed}
        world = EvaluatedPlan(
            self.graph.nodes(), alone, self.time, self.inputs.kinds, self.known, self._facts_of(alone)
        )
        found = self._traced(world, record, count, witnesses=True)
        return found if self.reproduces(found, record, count) else reason

    def _neutralized(self, name: str, leaves: set[Leaf]) -> Matrix:
        """Return the updates of an input under their numbers; those that are no leaves get the diff 0, and so no effect."""
        matrix = self.fed[name].copy()
        rest = np.setdiff1d(np.arange(len(matrix)), [at for of, at in leaves if of == name])
        matrix[rest, -1] = 0
        return matrix

    def reproduces(self, reason: Reason, record: Record, count: int) -> bool:
        """Return whether the pipeline, run over the reason's leaves alone, returns the record with the multiplicity `count`."""
        if reason.everything:
            return False
        alone = leaves_of(self.fed, reason)
        try:
            return self.count_in(alone, self._facts_of(alone), record) == count
        except DdError:
            return False

    def _facts_of(self, alone: Mapping[str, Matrix]) -> dict[str, InputFacts]:
        """Return the facts of inputs that are cut to the updates `alone`: their tables (snapshots), and no truncations."""
        times = {name: {int(time) for time in alone[name][:, -2]} for name in self.facts}
        return {
            name: InputFacts(known.given, known.reader, [time for time in known.snapshots if time in times[name]])
            for name, known in self.facts.items()
        }

    def count_in(self, fed: Mapping[str, Matrix], facts: Mapping[str, InputFacts], record: Record) -> int:
        """Return the multiplicity of a record in the collection after a run over some updates."""
        return self.contents_in(fed, facts).count(record)

    def contents_in(self, fed: Mapping[str, Matrix], facts: Mapping[str, InputFacts]) -> Contents:
        """Return the collection after a run over some updates."""
        return self.contents_of(self.narrowed(fed), facts)

    def contents_of(self, narrowed: Mapping[str, Matrix], facts: Mapping[str, InputFacts]) -> Contents:
        """Return the collection after a run over updates as `narrowed` returns them, also of several calls together."""
        found = self._trial(facts).close(before(self.time), narrowed)[""]
        return Contents(as_of(found, len(self.time), self.time), self.node.schema, self.known)

    def narrowed(self, fed: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Return updates in the columns that the plan reads, summed up at the question's time where that has the same result."""
        return advanced(self._read_columns(fed), raw_sources(self.graph.nodes()), self.time)

    def _read_columns(self, fed: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Return updates in the columns that the plan reads."""
        given = {}
        for name, layout in self._layouts.items():
            whole = Layout(self.sources[name].schema)
            lanes = [*whole.take(layout.names), *range(whole.width, whole.width + len(self.time) + 1)]
            given[name] = np.ascontiguousarray(fed[name][:, lanes])
        return given

    def _run(self, fed: Mapping[str, Matrix], facts: Mapping[str, InputFacts]) -> Matrix:
        """Return the collection's updates after a run over some updates of the inputs."""
        return self._trial(facts).close(before(self.time), self._read_columns(fed))[""]

    @cached_property
    def _layouts(self) -> dict[str, Layout]:
        """The columns of each input that the plan reads."""
        return self._trial(self.facts).layouts

    def _trial(self, facts: Mapping[str, InputFacts]) -> Trial:
        return Trial(
            lower(self.graph),
            self.inputs.kinds,
            self.inputs.pool,
            facts=facts,
            lenient=True,
            answers=self.inputs.answers,
        )

    def places(self, leaves: Iterable[Leaf]) -> dict[Leaf, list[Where]]:
        """Return the places of some updates."""
        numbers: dict[str, list[int]] = {}
        for name, number in sorted(leaves):
            numbers.setdefault(name, []).append(number)
        found: dict[Leaf, list[Where]] = {}
        for name, ordered in numbers.items():
            rows = np.ascontiguousarray(self.fed[name][np.array(ordered, np.int64)])
            places = self.inputs.places(name, self.sources[name], rows)
            for number, row in zip(ordered, rows, strict=True):
                found[name, number] = places[row.tobytes()]
        return found


def shown_leaves(reason: Reason) -> set[Leaf]:
    """Return the updates that a tree of reasons shows: of many that make a record, the first."""
    shown: set[Leaf] = set()
    pending, seen = [reason], set()
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen.add(id(each))
            pending += each.because
            if each.source is not None and each.updates is not None:
                shown.update((each.source.name, number) for number in each.updates.tolist())
    return shown


def leaves_of(fed: Mapping[str, Matrix], reason: Reason) -> dict[str, Matrix]:
    """Return the updates that are the leaves of a reason."""
    return {
        name: matrix[np.array(sorted(at for of, at in reason.leaves if of == name), np.int64)]
        for name, matrix in fed.items()
    }

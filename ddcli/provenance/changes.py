"""The reasons why a record has changed at a time: traced back through the changes below it, to the updates of inputs at that time.

Two evaluated plans are compared, as of just before the time and as of it. A record whose multiplicity differs has changed because a record that
it is made of has; unchanged records explain nothing. A record that was replaced by another one (the right side of an antijoin, a smaller
value) is found the same way. In loops, the derivation before or after the change leads to the changed records outside of the loop.

The check: the earlier updates, and of those at that time only the explanation's, change the record as much.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import field
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.errors import DdError
from ddcli.plan import groupings, logical, loops, temporal
from ddcli.plan.node import Graph, Node
from ddcli.provenance.evaluated_plan import Contents, Opaque, Record
from ddcli.provenance.question import Explained, Question
from ddcli.provenance.sentences import Reason, each_of, readable, show, walk
from ddcli.provenance.trace import MOST, Tracer, matching
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from ddcli.engine.lanes import Matrix
    from ddcli.provenance.evaluated_plan import Numbers


Changed = tuple[Node, Record]
"""A node, and a record of it that has changed."""
Steps = Generator[Changed, Reason, Reason]
"""A search that yields the changed records below it and gets their reasons."""


@dataclass
class Changes:
    """The changes between two questions for the same records, the second at the time right after the first."""

    before: Question
    now: Question
    _known: dict[Hashable, Reason] = field(default_factory=dict)
    _begun: set[Hashable] = field(default_factory=set)

    def explained(self, record: Record, diff: int) -> Explained:
        """Return the smallest explanation of a record's change that passes the check."""
        everything = Reason(self.now.node, "", record, diff, everything=True, change=True)
        try:
            reason = self.reason(self.now.node, record)
        except Opaque as error:
            reason = everything
            reason.notes.append(f"{error} can't be traced")
        if not reason.everything and self.reproduces(reason, record, diff):
            return Explained(record, diff, reason, "witness", True, len(reason.leaves))
        news = sum(int(self._is_new(name).sum()) for name in self.now.fed)
        return Explained(record, diff, reason, "everything", True, news)

    def reproduces(self, reason: Reason, record: Record, diff: int) -> bool:
        """Return whether the leaves alone, added to all earlier updates, change a record's multiplicity by `diff`."""
        fed = {}
        for name, matrix in self.now.fed.items():
            kept = ~self._is_new(name)
            kept[np.array([at for of, at in reason.leaves if of == name], np.int64)] = True
            fed[name] = matrix[kept]
        earlier = self.before.evaluated.contents(self.now.node).count(record)
        try:
            return self.now.count_in(fed, self.now.facts, record) == earlier + diff
        except DdError:
            return False

    def _is_new(self, name: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return the mask of an input's updates that are at the time."""
        news: np.ndarray[Any, np.dtype[np.bool_]] = self.now.fed[name][:, -2] == self.now.time[0]
        return news

    # --- changed records ------------------------------------------------------------------------------------------

    def differing(self, node: Node, values: Mapping[str, Any]) -> Contents:
        """Return the changed records of a node with these values, with the change of each multiplicity."""
        new, old = (evaluated.contents(node).where(values) for evaluated in (self.now.evaluated, self.before.evaluated))
        return Contents(kernels.difference(new.matrix, old.matrix), dict(node.schema), new.values)

    def diff(self, node: Node, record: Record) -> int:
        """Return the change of a record's multiplicity."""
        return self.now.evaluated.contents(node).count(record) - self.before.evaluated.contents(node).count(record)

    def reason(self, node: Node, record: Record) -> Reason:
        """Return the reason why a record of a node has changed."""
        return walk((node, record), self._known, _key, self._explained)

    def _explained(self, changed: Changed) -> Reason | Steps:
        self._begun.add(_key(changed))
        return self._below(*changed)

    def _new(self, node: Node, record: Record, says: str) -> Reason:
        return Reason(node, readable(says, node), record, self.diff(node, record), change=True)

    def _made_of(self, reason: Reason, changed: Iterable[tuple[Node, Contents]]) -> Steps:
        """Return the reason, with the reasons of these changed records below it."""
        reasons: list[Reason] = []
        shown = self.now.limit
        for node, records in changed:
            if len(records) > MOST:
                reason.everything, reason.more = True, reason.more + len(records) - shown
                records = records.rows(np.arange(shown))
            reasons += yield from each_of((node, record) for record in records.records())
        return reason.made_of(reasons, shown)

    def _simplified(self, node: Node, record: Record, says: str, changed: Iterable[tuple[Node, Contents]]) -> Steps:
        """Return the reason made of these changes; of an unnamed node without words, the only reason below it."""
        reason = yield from self._made_of(self._new(node, record, says), changed)
        if len(reason.because) == 1 and not reason.more and not says and node.fingerprint not in self.now.named:
            return reason.because[0]
        return reason

    @singledispatchmethod
    def _below(self, node: Node, record: Record) -> Reason | Steps:
        """Return the reason why a record has changed: by default, since the inputs' records that it can depend on have."""
        changed = matching(node, record, self.differing, self.now.evaluated)
        return self._simplified(node, record, node.title, changed)

    @_below.register
    def _(self, node: temporal.Temporal, record: Record) -> Steps:
        changed = matching(node, record, self.differing, self.now.evaluated)
        reason = yield from self._made_of(self._new(node, record, node.title), changed)
        if not any(len(records) for _, records in changed):
            came = "has come" if reason.count > 0 else "is over"
            reason.notes.append(f"its time {came}: now is {format_time(self.now.time, self.now.inputs.kinds)}")
        return reason

    @_below.register
    def _(self, node: temporal.JoinFunction, record: Record) -> Reason:
        raise Opaque("a `join_function`")

    # --- loops ----------------------------------------------------------------------------------------------------

    @_below.register
    def _(self, node: loops.Leave, record: Record) -> Steps:
        """Return the changes of the records outside of the loop that the record's present derivation, or its former one, uses."""
        reason = self._new(node, record, "iterate")
        entering = {child.fingerprint: child for child in _outer_nodes(node)}
        changed = [
            (each.node, self.differing(each.node, dict(zip(each.node.schema, each.record, strict=True))))
            for each in self._derived(node, record, entering)
        ]
        if not changed and (others := self._replacements(node, record)) is not None:
            reason.notes.append(
                "another record took its place" if reason.count < 0 else "it took another record's place"
            )
            changed = [(node, others)]
        if not changed:
            reason.notes.append(
                "its derivation is unchanged; these are the changes of all collections that enter the loop"
            )
            changed = [(child, self.differing(child, {})) for child in entering.values()]
        return self._made_of(reason, changed)

    def _derived(self, node: loops.Leave, record: Record, entering: Mapping[str, Node]) -> Iterator[Reason]:
        """Yield the reasons of the changed records outside of a loop that a derivation uses."""
        question = self.now if self.diff(node, record) > 0 else self.before
        derivation = Tracer(question.evaluated, self.now.limit, frozenset(entering)).reason(
            question.evaluated, node, record
        )
        pending, seen = [derivation], set()
        while pending:
            each = pending.pop()
            if id(each) not in seen:
                seen.add(id(each))
                if each.number is None and each.node.fingerprint in entering and self.diff(each.node, each.record):
                    yield each
                else:
                    pending += each.because

    def _replacements(self, node: loops.Leave, record: Record) -> Contents | None:
        """Return the records of the same group that replaced this one, or that it replaced, if a loop returns one record for each group."""
        (iterate,) = node.inputs
        assert isinstance(iterate, loops.Iterate)
        body = iterate.bodies[node.which]
        if not isinstance(body, groupings.Reduce | groupings.Grouped):
            return None
        by = [each if isinstance(each, str) else each[0] for each in body.by]
        values = dict(zip(node.schema, record, strict=True))
        group = self.differing(node, {name: values[name] for name in by})
        opposite = group.rows(np.flatnonzero(np.sign(group.matrix[:, -1]) == -np.sign(self.diff(node, record))))
        keys = [_key((node, other)) for other in opposite.records()]
        known = any(key in self._begun and key not in self._known for key in keys)
        return opposite if len(opposite) and not known else None

    # --- inputs ---------------------------------------------------------------------------------------------------

    @_below.register
    def _(self, node: logical.Source, record: Record) -> Reason:
        values = dict(zip(node.schema, record, strict=True))
        return self._new(node, record, "").made_by(node, self._rows(node, values))

    @_below.register
    def _(self, node: logical.Upsert, record: Record) -> Reason:
        (source,) = node.inputs
        assert isinstance(source, logical.Source)
        values = dict(zip(node.schema, record, strict=True))
        listed = ", ".join(f"{name} = {show(values[name])}" for name in node.key)
        reason = self._new(node, record, f"the rows of {listed}")
        return reason.made_by(source, self._rows(source, {name: values[name] for name in node.key}))

    @_below.register
    def _(self, node: logical.Snapshots, record: Record) -> Reason:
        """Return all rows of the new table as leaves: a record that is not in it is gone."""
        (source,) = node.inputs
        assert isinstance(source, logical.Source)
        reason = self._new(node, record, "in the new table" if self.diff(node, record) > 0 else "not in the new table")
        rows = self._rows(source, dict(zip(node.schema, record, strict=True)))
        table = np.flatnonzero(self._is_new(source.name))
        reason = reason.made_by(source, rows)
        reason.leaves = frozenset((source.name, number) for number in table.tolist())
        return reason

    def _rows(self, source: logical.Source, values: Mapping[str, Any]) -> Numbers:
        """Return the updates at the time whose records have these values."""
        matrix: Matrix = self.now.fed[source.name]
        contents = self.now.evaluated.updates(source)
        numbers = contents.numbers(values)
        return numbers[np.flatnonzero(matrix[numbers, -2] == self.now.time[0])]


def _key(changed: Changed) -> Hashable:
    node, record = changed
    return node.fingerprint, repr(record)


def _outer_nodes(node: loops.Leave) -> list[Node]:
    """Return the nodes outside of an outermost loop that it reads."""
    (iterate,) = node.inputs
    assert isinstance(iterate, loops.Iterate)
    found: dict[str, Node] = {each.fingerprint: each for each in iterate.initials}
    for each in Graph({str(at): body for at, body in enumerate(iterate.bodies)}).nodes():
        if each.level > 0:
            found |= {child.fingerprint: child for child in each.inputs if not child.level and child.schema}
    return list(found.values())

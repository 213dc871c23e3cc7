"""Traces: from a record back to the records that it is made of, operator by operator.

A record is traced in one of two ways: with its multiplicity (for a count, a sum, a join), or only for its existence (for distinct, the
partner of a semijoin), for which one witness is enough. Of the first few witnesses the one with the fewest leaves is taken. A window function's value is traced to the rows of its
partition that it can depend on. In a loop a record is traced in the first round in which it exists: it was made of records of the round before, so a derivation has as few
rounds as possible.

A trace is a guess that is checked afterwards, on its leaves alone: it may be wrong if other records hide an effect (counts that cancel,
a top-k that keeps only some copies of a record).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import field
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout
from ddcli.expressions.tree import MapStep
from ddcli.plan import asof, groupings, joins, logical, loops, temporal, windows
from ddcli.plan.memo import MemoizedCalls
from ddcli.plan.words import OWN
from ddcli.privacy import preview
from ddcli.provenance.evaluated_plan import Contents, EvaluatedPlan, Place, Record, Round, SourceRows, entered
from ddcli.provenance.inputs import in_reach
from ddcli.provenance.sentences import Reason, each_of, readable, show, walk
from ddcli.screen import plural
from ddcli.store.batch.file import batch_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import polars as pl

    from ddcli.plan.node import Node, Values
    from ddcli.provenance.evaluated_plan import Numbers


MOST = 5_000
"""The most records of a group that are traced one by one; a larger group is explained by all updates that may matter."""
TRIED = 4
"""The number of witnesses that are compared."""
PATIENCE = 400
"""The number of traced records after which the first witness is taken without a comparison."""
EXTREMES = ("min", "max")
NAN = "NaN"
"""The value that stands for NaN in a key: as a key it equals itself."""


class Traced(NamedTuple):
    """A record to trace: in a node's collection at a place, with its multiplicity, or (not `exact`) for its existence alone."""

    place: Place
    node: Node
    record: Record
    exact: bool


Steps = Generator[Traced, Reason, Reason]
"""A trace that yields the records below it and gets their reasons."""
Parts = Generator[Traced, Reason, list[Reason]]


@dataclass
class Tracer:
    """The tracer of records in one evaluated plan. Without `witnesses`, a reason has all records that a record is made of. `shown` is the number of
    records that a reason keeps of a group; `named` are the fingerprints of the nodes that have a name, and so reasons of their own.
    """

    evaluated: EvaluatedPlan
    shown: int
    named: frozenset[str]
    witnesses: bool = True
    _known: dict[Hashable, Reason] = field(default_factory=dict)
    _rows: dict[str, SourceRows] = field(default_factory=dict)

    def reason(self, place: Place, node: Node, record: Record, *, exact: bool = True) -> Reason:
        """Return the reason why a record is in a node's collection at a place: with its multiplicity, or (not `exact`) at all."""
        return walk(self._traced(place, node, record, exact=exact), self._known, _key, self._explained)

    def _traced(self, place: Place, node: Node, record: Record, *, exact: bool = True) -> Traced:
        return Traced(place.home(node), node, record, exact or not self.witnesses)

    def _explained(self, wanted: Traced) -> Reason | Steps:
        return self._below(wanted.node, wanted.place, wanted.record, wanted.exact)

    def _new(self, node: Node, place: Place, record: Record, says: str) -> Reason:
        number = place.number if isinstance(place, Round) else None
        return Reason(node, readable(says, node), record, place.contents(node).count(record), number)

    def _best(self, witnesses: Sequence[tuple[Place, Node, Record]]) -> Steps:
        """Return the reason with the fewest leaves among the first few witnesses."""
        tried = witnesses[: TRIED if len(self._known) < PATIENCE else 1]
        reasons: list[Reason] = yield from each_of(self._traced(*witness, exact=False) for witness in tried)
        return min(reasons, key=lambda reason: (reason.everything, len(reason.leaves)))

    def _some(self, place: Place, node: Node, found: Contents, *, exact: bool) -> Parts:
        """Return the reasons of a node's records: of all, or of one that exists."""
        if exact:
            return (yield from each_of(self._traced(place, node, record) for record in found.records()))
        there = found.rows(np.flatnonzero(found.matrix[:, -1] > 0)[:TRIED]).records()
        return [(yield from self._best([(place, node, record) for record in there]))] if there else []

    # --- linear operators -----------------------------------------------------------------------------------------

    @singledispatchmethod
    def _below(self, node: Node, place: Place, record: Record, exact: bool) -> Reason | Steps:
        """Return the reason of a record: by default, the inputs' records that it can depend on."""
        exact, reasons = exact if node.reads_counts is None else node.reads_counts, []
        for child, found in self._matching(node, place, record):
            reasons += yield from self._some(place, child, found, exact=exact)
        return self._simplified(node, place, record, node.title, reasons)

    def _matching(self, node: Node, place: Place, record: Record) -> list[tuple[Node, Contents]]:
        return matching(node, record, lambda child, values: self._where(place, child, values), place.evaluated)

    def _where(self, place: Place, node: Node, values: Values) -> Contents:
        return place.home(node).contents(node).where(values)

    def _simplified(self, node: Node, place: Place, record: Record, says: str, reasons: list[Reason]) -> Reason:
        """Return the reason made of these reasons; of an unnamed node without words, the only reason below it."""
        if len(reasons) == 1 and not says and node.fingerprint not in self.named:
            return reasons[0]
        return self._new(node, place, record, says).made_of(reasons)

    @_below.register
    def _(self, node: logical.SignedSum, place: Place, record: Record, exact: bool) -> Steps:
        if -1 in node.signs:
            return self._simplified(
                node, place, record, "negate", [(yield self._traced(place, node.inputs[0], record))]
            )
        counts = [place.home(child).contents(child).count(record) for child in node.inputs]
        there = [child for child, count in zip(node.inputs, counts, strict=True) if count > 0 or (exact and count)]
        # A collection that is summed twice has one reason, with twice the count.
        there = list({child.fingerprint: child for child in there}.values())
        if exact:
            reasons = yield from each_of(self._traced(place, child, record) for child in there)
        else:
            there.sort(
                key=lambda child: child.level
            )  # a collection that is the same in all rounds needs no earlier round
            if there and there[0].level < there[-1].level:
                there = there[:1]
            reasons = [(yield from self._best([(place, child, record) for child in there]))] if there else []
        return self._simplified(node, place, record, "" if len(reasons) == 1 else "concat", reasons)

    @_below.register
    def _(self, node: temporal.JoinFunction, place: Place, record: Record, exact: bool) -> Steps:
        from ddcli.circuit.python_calls import python_shift

        (child,) = node.inputs
        candidates, evaluated = place.home(child).contents(child), self.evaluated
        function = python_shift(node, evaluated.values.pool, evaluated.kinds, len(evaluated.kinds))
        frame, rows, _, times = function.logic(candidates.frame())
        giving = rows_giving(frame, None, record, node, place.evaluated)
        if times is not None:
            giving = giving[(times[giving] <= np.array(evaluated.time)).all(axis=1)]
        giving = giving if rows is None else rows[giving]
        reasons = yield from self._some(place, child, candidates.rows(np.unique(giving)), exact=True)
        return self._new(node, place, record, node.title).made_of(reasons)

    # --- joins ----------------------------------------------------------------------------------------------------

    @_below.register
    def _(self, node: joins.BinaryNode, place: Place, record: Record, exact: bool) -> Steps:
        """Return the reasons of a pair of records, the pair with the fewest leaves; or of one record that has no partner."""
        reason = self._new(node, place, record, node.title)
        given = node.sides(dict(zip(node.schema, record, strict=True)))
        lefts, rights = (
            self._where(place, side, _ordered(side, values)) if values is not None else None
            for side, values in zip(node.inputs, given, strict=True)
        )
        assert lefts is not None
        if rights is not None and (partners := partners_of(node, lefts, rights)):
            if exact:
                both = [np.concatenate([pair[side] for pair in partners]) for side in (0, 1)]
                partners = [(both[0], both[1])]
            tried = partners[: TRIED if len(self._known) < PATIENCE else 1]
            all_rights = (
                not self.witnesses if node.partners_only else exact
            )  # of partners that only decide one is enough
            made = []
            for mine, theirs in tried:
                ours = yield from self._some(place, node.left, lefts.rows(mine), exact=exact)
                yours = yield from self._some(place, node.right, rights.rows(theirs), exact=all_rights)
                made.append([*ours, *yours])
            return reason.made_of(min(made, key=lambda reasons: sum(len(each.leaves) for each in reasons)))
        for at, (side, found) in enumerate(((node.left, lefts), (node.right, rights))):
            if found is not None and len(found):
                reason.notes.append(f"no record on the {('right', 'left')[at]} {_lacking(node, at, side, found)}")
                return reason.made_of((yield from self._some(place, side, found, exact=exact)))
        return reason

    # --- groups ---------------------------------------------------------------------------------------------------

    @_below.register
    def _(self, node: groupings.Reduce, place: Place, record: Record, exact: bool) -> Steps:
        ((_, group),) = self._matching(node, place, record)
        return (yield from self._grouped(node, place, record, node.title, group, self._extremes(node, group)))

    def _extremes(self, node: groupings.Reduce, group: Contents) -> Contents | None:
        """Return rows of a group that suffice for its least and greatest values; None if the reduction computes anything else."""
        if not self.witnesses or not node.calls or not len(group):
            return None
        if any(call.function not in EXTREMES for call in node.calls):
            return None
        chosen: set[int] = set()
        there = group.matrix[:, -1] > 0
        for call in node.calls:
            values, kept = group.through(MapStep((("$value", call.args[0]),)))
            if len(kept) < len(group):
                return None
            found = values.frame["$value"]
            found = found.to_physical() if found.dtype.is_temporal() else found  # Python would cut nanoseconds
            order = found.arg_sort(descending=call.function == "max", nulls_last=True).to_numpy()
            valid = [at for at in order.tolist() if there[at]]
            if not valid:
                return None
            best = found[valid[0]]
            same = [at for at in valid if found[at] == best or found[at] is best]
            chosen.add(next((at for at in same if at in chosen), same[0] if same else valid[0]))
        return group.rows(np.array(sorted(chosen), np.int64))

    def _grouped(
        self, node: Node, place: Place, record: Record, says: str, group: Contents, witness: Contents | None = None
    ) -> Steps:
        """Return the reason of a group's record: all rows of the group, or the rows of `witness`, which are enough."""
        (child,) = node.inputs
        text = f"{says}: {len(group):,} {plural(len(group), 'record')}"
        if witness is not None:
            enough = f", {len(witness)} {'is' if len(witness) == 1 else 'are'} enough"
            reason = self._new(node, place, record, text + enough * (len(witness) < len(group)))
            # The least value doesn't depend on its multiplicity.
            least = (self._traced(place, child, each, exact=False) for each in witness.records())
            return reason.made_of((yield from each_of(least)))
        reason = self._new(node, place, record, text)
        if len(group) <= MOST:
            return reason.made_of((yield from self._some(place, child, group, exact=True)), self.shown)
        reason.everything, reason.more = True, len(group) - self.shown
        return reason.made_of((yield from self._some(place, child, group.rows(np.arange(self.shown)), exact=True)))

    @_below.register
    def _(self, node: groupings.Grouped, place: Place, record: Record, exact: bool) -> Steps:
        (child,) = node.inputs
        values = dict(zip(node.schema, record, strict=True))
        ((_, group),) = self._matching(node, place, record)
        if not node.leaves_out(values):
            return (yield from self._grouped(node, place, record, node.title, group))
        reason = self._new(node, place, record, f"{node.title}: of {len(group):,} records")
        own = group.where(values)
        if self.witnesses and own.counts() == [reason.count]:
            return reason.made_of((yield from self._some(place, child, own, exact=exact)))
        # Some copies of the record are left out because of the records before it.
        kept = place.contents(node).where({name: values[name] for name in node.by})
        traced = (self._traced(place, child, each) for each in kept.records())
        return reason.made_of((yield from each_of(traced)), self.shown)

    @_below.register
    def _(self, node: windows.Window, place: Place, record: Record, exact: bool) -> Steps:
        """Return the rows that frames and distances reach from the record's, the nearest first."""
        (child,) = node.inputs
        values = dict(zip(node.schema, record, strict=True))
        ((_, group),) = self._matching(node, place, record)
        near, reached = in_reach(node, group, {name: values[name] for name in child.schema})
        ordered = group.rows(near)
        if not self.witnesses or reached == len(group) or reached > MOST:
            return (yield from self._grouped(node, place, record, node.title, ordered))
        says = f"{node.title}: of {len(group):,} records the {reached:,} that it can depend on"
        rows = ordered.rows(np.arange(reached))
        return self._new(node, place, record, says).made_of(
            (yield from self._some(place, child, rows, exact=True)), self.shown
        )

    # --- loops ----------------------------------------------------------------------------------------------------

    @_below.register
    def _(self, node: loops.Leave, place: Place, record: Record, exact: bool) -> Steps:
        (iterate,) = node.inputs
        assert isinstance(iterate, loops.Iterate)
        rounds, body = self.evaluated.rounds(iterate, place), iterate.bodies[node.which]
        inner = rounds.round(rounds.last).home(body)
        if not isinstance(inner, Round) or inner.all is not rounds:
            return self._simplified(node, place, record, "", [(yield self._traced(inner, body, record, exact=exact))])
        first = rounds.first(body, record, rounds.last)
        of = f"{rounds.last + 1} {plural(rounds.last + 1, 'round')}"
        reason = self._new(node, place, record, f"iterate: from round {first + 1} of {of} on")
        return reason.made_of([(yield self._traced(rounds.round(first), body, record, exact=exact))])

    @_below.register
    def _(self, node: loops.LoopVariable, place: Place, record: Record, exact: bool) -> Steps:
        while isinstance(place, Round) and place.all.loop.loop != node.loop:
            assert isinstance(place.all.around, Round)
            place = place.all.around
        assert isinstance(place, Round)
        iterate, rounds = place.all.loop, place.all
        if place.number == 0:
            return (yield self._traced(rounds.around, iterate.initials[node.index], record, exact=exact))
        body = iterate.bodies[node.index]
        if body.level < iterate.depth:
            return (yield self._traced(rounds.around, body, record, exact=exact))
        return (
            yield self._traced(rounds.round(rounds.first(body, record, place.number - 1)), body, record, exact=exact)
        )

    @_below.register
    def _(self, node: loops.Enter, place: Place, record: Record, exact: bool) -> Steps:
        (child,) = node.inputs
        found = place.home(child).contents(child).where(dict(zip(child.schema, record, strict=True)))
        at = int(max(entered(node, found)[0][0], 0)) if len(found) else 0
        says = f"enter in round {at + 1}"
        return self._simplified(node, place, record, says, [(yield self._traced(place, child, record, exact=exact))])

    # --- inputs ---------------------------------------------------------------------------------------------------

    @_below.register
    def _(self, node: logical.Source, place: Place, record: Record, exact: bool) -> Reason:
        source = self._source(node)
        return self._new(node, place, record, "").made_by(node, source.last(source.of(record), exact=exact))

    @_below.register
    def _(self, node: logical.Upsert, place: Place, record: Record, exact: bool) -> Reason:
        """Return the last row of the key, which determines its record."""
        (child,) = node.inputs
        assert isinstance(child, logical.Source)
        values = dict(zip(node.schema, record, strict=True))
        source = self._source(child)
        numbers = source.where({name: values[name] for name in node.key})
        order = source.matrix[numbers, source.layout.lanes(logical.ORDER).start]
        by = [order, source.matrix[numbers, -2]]
        if node.lasting:
            lanes = [source.layout.lanes(name).start for name in (logical.SEQUENCE, logical.MOMENT)]
            by = [*(source.matrix[numbers, lane] for lane in lanes), order]
        last = numbers[np.lexsort(by)[-1:]]
        listed = ", ".join(f"{name} = {show(values[name])}" for name in node.key)
        return self._new(node, place, record, f"the last row of {listed}").made_by(child, last)

    @_below.register
    def _(self, node: logical.Snapshots, place: Place, record: Record, exact: bool) -> Reason:
        (child,) = node.inputs
        assert isinstance(child, logical.Source)
        source = self._source(child)
        numbers = source.of(record)
        times = source.matrix[numbers, -2]
        return self._new(node, place, record, "in the last table").made_by(child, numbers[times == times.max()])

    def _source(self, node: logical.Source) -> SourceRows:
        if node.name not in self._rows:
            self._rows[node.name] = SourceRows(node.schema, self.evaluated.updates(node), self.evaluated.time)
        return self._rows[node.name]


def _key(traced: Traced) -> Hashable:
    return id(traced.place), traced.node.fingerprint, repr(traced.record), traced.exact


def partners_of(node: joins.BinaryNode, lefts: Contents, rights: Contents) -> list[tuple[Numbers, Numbers]]:
    """Return the numbers of the records on both sides that have one key, for each key that both sides have; a null key equals none.

    The result of a join may lack its key: then records of several keys may be on either side of it.
    """
    if not node.on:
        return [(np.arange(len(lefts)), np.arange(len(rights)))] if len(lefts) and len(rights) else []
    keyed: list[dict[Record, list[int]]] = []
    for side, names in zip((lefts, rights), zip(*node.on, strict=True), strict=True):
        numbers: dict[Record, list[int]] = {}
        for at, key in enumerate(side.taken(names)):
            if None not in key:
                numbers.setdefault(tuple(map(_comparable, key)), []).append(at)
        keyed.append(numbers)
    mine, theirs = keyed
    return [(np.array(mine[key], np.int64), np.array(theirs[key], np.int64)) for key in mine if key in theirs]


def _comparable(value: Any) -> Any:
    """Return a key's value as one that can be hashed, and equals itself."""
    if isinstance(value, dict | list):
        return repr(value)
    return NAN if isinstance(value, float) and math.isnan(value) else value


def matching(
    node: Node, record: Record, where: Callable[[Node, Values], Contents], evaluated: EvaluatedPlan
) -> list[tuple[Node, Contents]]:
    """Return the records of each input, as `where` finds them by values, that a record can depend on: a step that computes values must return it."""
    values = dict(zip(node.schema, record, strict=True))
    given = {
        (child.fingerprint, repr(known)): (child, known)
        for child, known in zip(node.inputs, node.restriction(values), strict=True)
    }
    found = [(child, where(child, _ordered(child, known))) for child, known in given.values()]
    if isinstance(node, MemoizedCalls):
        ((child, candidates),) = found
        return [(child, candidates.rows(_answered(node, values, candidates, len(evaluated.kinds))))]
    if node.computed is None:
        return found
    ((child, candidates),) = found
    if len(candidates):
        made, candidates = candidates.through(node.computed)
        candidates = candidates.rows(rows_giving(made.frame, made.rows, record, node, evaluated))
    return [(child, candidates)]


def _answered(node: MemoizedCalls, values: Values, candidates: Contents, nt: int) -> Numbers:
    """Return the numbers of the candidates that have a record with these values among their remembered results."""
    key, value = Layout(node.inputs[0].schema), Layout(node.results)
    known = candidates.values
    if node.answers not in known.results:
        none = np.empty((0, key.width + value.width + nt + 1), np.int64)
        kept = known.answers.batches(node.answers, batch_layout(key, value, nt), known.pool) if known.answers else []
        answers = np.concatenate([none, *(batch.matrix() for batch in kept)])
        known.results[node.answers] = Contents(answers, {**key.schema, **value.schema}, known)
    giving = known.results[node.answers].where({f"${name}": each for name, each in values.items()}).matrix
    keys = kernels.distinct_keys(kernels.sort_by(giving, range(key.width)), key.width)
    bounds = kernels.locate(keys, [candidates.matrix])[0]
    return np.concatenate([np.arange(0), *(np.arange(*each) for each in bounds.tolist())])


def _ordered(node: Node, values: Values) -> Values:
    """Return values in the order of a node's columns, as whole records are found by an index."""
    return {name: values[name] for name in node.schema if name in values}


def rows_giving(
    frame: pl.DataFrame, rows: Numbers | None, record: Record, node: Node, evaluated: EvaluatedPlan
) -> Numbers:
    """Return the rows of a stage's input that produce a record: the stage returned `frame`, from its input's `rows`."""
    values = {name: value for name, value in zip(node.schema, record, strict=True) if name in frame.columns}
    schema = {name: node.schema[name] for name in values}
    same = Contents(np.empty((0, 0), np.int64), schema, evaluated.values).same(frame, values)
    return same if rows is None else np.unique(rows[same])


def _lacking(node: joins.BinaryNode, at: int, side: Node, found: Contents) -> str:
    """Return what no record on the other side has: all keys of the first record found on this one, which has no partner."""
    if isinstance(node, asof.AsofJoin):
        return "is near it"
    record = dict(zip(side.schema, found.records()[0], strict=True))
    keys = [(on[1 - at], show(preview(on[at], record[on[at]]))) for on in node.on]
    if not keys or any(OWN.fullmatch(name) for name, _ in keys):  # the file has no name for such a key
        return "matches"
    return "has " + " and ".join(f"{name} = {value}" for name, value in keys)

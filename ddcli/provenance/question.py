"""A question about records at a time: the plan evaluated over the updates that may matter to them, and explanations that pass the check; and the reasons why no record with some values exists.

The reasons are followed down to the operators that drop such records. At each operator, either the records that it would be made of are
missing, too, and the search continues below; or they exist, and the operator is the reason: its condition is not true of them, another
record excludes them, or a bound of time does.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import field, replace
from functools import cached_property, singledispatchmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.circuit.trial import Trial, closed
from ddcli.dataclass import dataclass
from ddcli.engine.lanes import Layout
from ddcli.engine.times import up_to
from ddcli.errors import DdError
from ddcli.plan import asof, groupings, joins, logical, loops, temporal, windows
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph, Node, Values
from ddcli.privacy import previewed
from ddcli.provenance.evaluated_plan import ROUND, Contents, EncodedValues, EvaluatedPlan, Opaque, advanced, raw_sources
from ddcli.provenance.inputs import Restrictions
from ddcli.provenance.sentences import Reason, each_of, named_values, readable, show, walk
from ddcli.provenance.trace import Tracer
from ddcli.screen import plural
from ddcli.sources.slices import InputFacts
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from ddcli.engine.lanes import Matrix
    from ddcli.engine.times import Time
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.provenance.evaluated_plan import Record
    from ddcli.provenance.inputs import Inputs, Where
    from ddcli.provenance.sentences import Leaf


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
    """A question for a collection's records with some values, at a time: the updates that may matter, and the plan evaluated over them.

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
        upper = up_to(time)
        keys = None if missing else inputs.keys(upper)
        self.fed = dict(fed or inputs.updates(self.sources, upper, Restrictions(node, self.values, keys)))
        self.facts = {name: facts for name, facts in inputs.facts(upper).items() if name in self.sources}
        self.known = EncodedValues(inputs.pool, inputs.answers)
        self.named = frozenset(relation.node.fingerprint for relation in inputs.relations.values())

    @cached_property
    def evaluated(self) -> EvaluatedPlan:
        """All collections as of the time."""
        return EvaluatedPlan(self.graph.nodes(), self.fed, self.time, self.inputs.kinds, self.known, self.facts)

    def at(self, time: Time) -> Question:
        """Return the same question about an earlier time."""
        upper = up_to(time)
        times = slice(-len(time) - 1, -1)
        fed = {name: matrix[closed(upper, matrix[:, times])] for name, matrix in self.fed.items()}
        return Question(self.inputs, self.node, self.values, time, self.limit, fed)

    def records(self) -> Contents:
        """Return the records in question."""
        return self.evaluated.contents(self.node).where(self.values)

    def history(self) -> Contents:
        """Return all updates of the records in question up to the time: records with a time, and the change of each multiplicity."""
        found = self._trial(self.facts).close(up_to(self.time), self._read_columns(self.fed))[""]
        times = {f"\0time{at}": ROUND for at in range(len(self.time))}
        return Contents(found, self.node.schema | times, self.known).where(self.values)

    def explained(self, record: Record, count: int) -> Explained:
        """Return the smallest explanation of a record that passes the check."""
        reason = self._traced(self.evaluated, record, count, witnesses=True)
        if self.reproduces(reason, record, count):
            reason = self._pruned(reason, record, count)
            return Explained(record, count, reason, "witness", True, len(reason.leaves))
        if not reason.everything:
            whole = self._traced(self.evaluated, record, count, witnesses=False)
            if self.reproduces(whole, record, count):
                return Explained(record, count, whole, "whole", True, len(whole.leaves))
        alone = self.count_in(self.fed, self.facts, record) == count
        return Explained(record, count, reason, "everything", alone, sum(map(len, self.fed.values())))

    def _traced(self, evaluated: EvaluatedPlan, record: Record, count: int, *, witnesses: bool) -> Reason:
        try:
            return Tracer(evaluated, self.limit, self.named, witnesses).reason(evaluated, self.node, record)
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
        evaluated = EvaluatedPlan(
            self.graph.nodes(), alone, self.time, self.inputs.kinds, self.known, self._facts_of(alone)
        )
        found = self._traced(evaluated, record, count, witnesses=True)
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
        found = self._trial(facts).contents(self.time, narrowed)[""]
        return Contents(found, self.node.schema, self.known)

    def narrowed(self, fed: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Return updates in the columns that the plan reads, summed up at the question's time where that has the same result."""
        return advanced(self._read_columns(fed), raw_sources(self.graph.nodes()), self.time)

    def _read_columns(self, fed: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Return updates in the columns that the plan reads."""
        given = {}
        for name, scan in self._plan.scans().items():
            whole = Layout(self.sources[name].schema)
            lanes = [*whole.take(scan.schema), *range(whole.width, whole.width + len(self.time) + 1)]
            given[name] = np.ascontiguousarray(fed[name][:, lanes])
        return given

    @cached_property
    def _plan(self) -> PhysicalGraph:
        """The plan of the collection alone."""
        return lower(self.graph)

    def _trial(self, facts: Mapping[str, InputFacts]) -> Trial:
        inputs = self.inputs
        return Trial(self._plan, inputs.kinds, inputs.pool, facts=facts, lenient=True, answers=inputs.answers)

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


@dataclass(eq=False)
class Missing:
    """The absence of records with these values from a node's collection: the reason, if it lies here, and the records missing below; or
    the `hindrance`, the explanation of an existing record that excludes them.
    """

    node: Node
    values: Values
    why: str = ""
    because: list[Missing] = field(default_factory=list)
    hindrance: Reason | None = None


Lacking = tuple[Node, Values]
"""A node, and the values that no record of its collection has."""
Steps = Generator[Lacking, Missing, Missing]
"""A search that yields the records whose absence it needs and gets the reasons."""


@dataclass(frozen=True)
class Absence:
    """The search for the reasons why the records of a question are missing."""

    question: Question
    _known: dict[Hashable, Missing] = field(default_factory=dict)

    def of(self, node: Node, values: Values) -> Missing:
        """Return the reason why no record of a node outside of loops has these values; the same object at each call."""
        return walk((node, values), self._known, _key, self._explained)

    def _explained(self, wanted: Lacking) -> Missing | Steps:
        node, values = wanted
        found = self._contents(node, values)
        return Missing(node, values, f"exists: {self._text(node, found)}") if len(found) else self._below(node, values)

    def _because(self, node: Node, values: Values, why: str, lacking: Iterable[Lacking]) -> Steps:
        """Return the absence that follows from the absence of other records."""
        return Missing(node, values, why, (yield from each_of(lacking)))

    def _contents(self, node: Node, values: Values) -> Contents:
        return self.question.evaluated.contents(node).where(values)

    def _through(self, node: Node, values: Values, inside: Values, says: str) -> Missing | Steps:
        """Return the absence of the records that it would be made of; or, if they exist, the reason `says` why the operator drops them."""
        (child,) = node.inputs
        found = self._contents(child, inside)
        if not len(found):
            return self._because(node, values, "", [(child, inside)])
        return Missing(node, values, f"{readable(says, node)}: {self._text(child, found)}")

    def _text(self, node: Node, found: Contents) -> str:
        """Return the first few records in words, and the number of the others."""
        records = [_shown(node, record) for record in found.records()[: self.question.limit]]
        more = len(found) - len(records)
        return ", ".join(records) + (f" and {more:,} more" if more else "")

    @singledispatchmethod
    def _below(self, node: Node, values: Values) -> Missing | Steps:
        """Return the reason why a record of a node is missing; by default, as of Python functions, there is none to find."""
        if why := node.leaves_out(values):
            inside = values if isinstance(node, groupings.Grouped) else node.restriction(values)[0]
            now = f"now is {format_time(self.question.time, self.question.inputs.kinds)}, and "
            return self._through(node, values, inside, now * isinstance(node, temporal.Temporal) + why)
        if node.column_origins().keys() >= node.schema.keys():  # it has its inputs' records
            inputs = {child.fingerprint: child for child in node.inputs}.values()
            return self._because(node, values, "", [(child, values) for child in inputs])
        return Missing(node, values, "none of the collections below it has such a record")

    @_below.register
    def _(self, node: loops.Leave, values: Values) -> Missing | Steps:
        """Return the absence from all rounds, and from the variable's initial collection."""
        (iterate,) = node.inputs
        assert isinstance(iterate, loops.Iterate)
        try:
            rounds = self.question.evaluated.rounds(iterate, self.question.evaluated).last + 1
        except Opaque as error:
            return Missing(node, values, f"{error} can't be traced")
        initials = iterate.initials[node.which : node.which + 1]
        why = f"not in the last of the loop's {rounds} {plural(rounds, 'round')}"
        return self._because(node, values, why, [(each, values) for each in initials])

    @_below.register
    def _(self, node: windows.Window, values: Values) -> Missing | Steps:
        calls = {name for name, _ in node.calls}
        inside = {name: value for name, value in values.items() if name not in calls}
        found = self._contents(node, inside)
        if len(found):
            return Missing(node, values, f"its window returns other values: {self._text(node, found)}")
        return self._through(node, values, inside, "its multiplicity is not positive")

    @_below.register
    def _(self, node: groupings.Reduce, values: Values) -> Missing | Steps:
        keys = {name: values[name] for name, _ in node.by if name in values}
        group = self._contents(node, keys)
        if len(group):
            return Missing(node, values, f"the group has other values: {self._text(node, group)}")
        (child,) = node.inputs
        (inside,) = node.restriction(values)
        return self._because(node, values, "", [(child, inside)])

    @_below.register
    def _(self, node: joins.BinaryNode, values: Values) -> Missing | Steps:
        left, right = node.sides(values)
        sides = [(node.left, left), (node.right, right or {})]
        missing = [(side, given) for side, given in sides if not len(self._contents(side, given))]
        if missing:
            return self._because(node, values, "", missing)
        pairs = [(readable(one, node), readable(other, node)) for one, other in node.on]
        on = " and ".join(f"the same {one}" if one == other else f"{one} = {other}" for one, other in pairs)
        return Missing(node, values, f"both sides have such records, but no two with {on}")

    @_below.register
    def _(self, node: asof.AsofJoin, values: Values) -> Missing | Steps:
        left, _ = node.sides(values)
        if not len(self._contents(node.left, left)):
            return self._because(node, values, "", [(node.left, left)])
        mine = {name: values[name] for name, side, _ in node.columns if side != "right" and name in values}
        found = self._contents(node, mine)
        if len(found):
            return Missing(node, values, f"the nearest on the right is another: {self._text(node, found)}")
        key = {other: left[one] for one, other in node.on if one in left}
        return self._because(node, values, f"no record on the right has {node.condition}", [(node.right, key)])

    @_below.register
    def _(self, node: joins.Semijoin, values: Values) -> Missing | Steps:
        """Return the record on the right that excludes one on the left (of an antijoin), or the absence of a partner."""
        left, right = node.inputs
        found = self._contents(left, values)
        if not len(found):
            return self._because(node, values, "", [(left, values)])
        record = dict(zip(left.schema, found.records()[0], strict=True))
        key = {other: record[one] for one, other in node.on}
        partners = self._contents(right, key)
        text = _shown(left, found.records()[0])
        if not node.anti:
            listed = " and ".join(f"{name} = {show(value)}" for name, value in previewed(key).items())
            return self._because(node, values, f"no record on the right has {listed}: {text}", [(right, key)])
        question = self.question
        tracer = Tracer(question.evaluated, question.limit, question.named)
        excluding = [each for each, count in zip(partners.records(), partners.counts(), strict=True) if count > 0][:1]
        reason = tracer.reason(question.evaluated, right, excluding[0], exact=False) if excluding else None
        return Missing(node, values, f"a record on the right excludes {text}", hindrance=reason)

    @_below.register
    def _(self, node: logical.Source, values: Values) -> Missing:
        updates = self.question.evaluated.updates(node)
        numbers = updates.numbers(values)
        if not len(numbers):
            return Missing(node, values, "no update has these values")
        return Missing(node, values, f"retracted: {len(numbers)} {plural(len(numbers), 'update')} sum to zero")

    @_below.register
    def _(self, node: logical.Upsert, values: Values) -> Missing:
        keys = {name: values[name] for name in node.key if name in values}
        current = self._contents(node, keys)
        text = f"the last row is another: {self._text(node, current)}" if len(current) else "no such key, or deleted"
        return Missing(node, values, text)

    @_below.register
    def _(self, node: logical.Snapshots, values: Values) -> Missing:
        return Missing(node, values, "not in the last table")


def _key(lacking: Lacking) -> Hashable:
    node, values = lacking
    return node.fingerprint, repr(values)


def _shown(node: Node, record: Record) -> str:
    return "{" + ", ".join(f"{name}: {show(value)}" for name, value in named_values(node, record).items()) + "}"


def below(missing: Missing | None) -> Iterator[Missing]:
    """Yield an absence and all absences below it, each once."""
    left, seen = [missing] if missing is not None else [], set[int]()
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            left += reversed(each.because)


def hindrances(missing: Missing | None) -> Iterator[Reason]:
    """Yield the explanations of the records that exclude others."""
    return (each.hindrance for each in below(missing) if each.hindrance is not None)

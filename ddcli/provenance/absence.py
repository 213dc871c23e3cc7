"""The reasons why no record with some values exists, followed down to the operators that drop such records.

At each operator, either the records that it would be made of are missing, too, and the search continues below; or they exist, and the
operator is the reason: its condition is not true of them, another record excludes them, or a bound of time does.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import field
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.job.summary import plural
from ddcli.plan import asof, groupings, joins, logical, loops, windows
from ddcli.plan.node import Node, Values
from ddcli.privacy import previewed
from ddcli.provenance.sentences import each_of, named_values, readable, show, walk
from ddcli.provenance.trace import Tracer
from ddcli.provenance.worlds import Opaque
from ddcli.store.time_text import format_time

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from ddcli.provenance.question import Question
    from ddcli.provenance.sentences import Reason
    from ddcli.provenance.worlds import Contents, Record


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
        return self.question.world.contents(node).where(values)

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
            return self._through(node, values, inside, now * isinstance(node, logical.Temporal) + why)
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
            rounds = self.question.world.rounds(iterate).last + 1
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
    def _(self, node: joins.Join, values: Values) -> Missing | Steps:
        left, right = node.sides(values)
        sides = [(node.left, left), (node.right, right)]
        missing = [(side, given) for side, given in sides if not len(self._contents(side, given))]
        if missing:
            return self._because(node, values, "", missing)
        on = " and ".join(f"{one} = {other}" for one, other in node.on)
        return Missing(node, values, f"both sides have such records, but none with {on}")

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
        tracer = Tracer(question.world, question.limit, question.named)
        excluding = [each for each, count in zip(partners.records(), partners.counts(), strict=True) if count > 0][:1]
        reason = tracer.reason(question.world, right, excluding[0], exact=False) if excluding else None
        return Missing(node, values, f"a record on the right excludes {text}", hindrance=reason)

    @_below.register
    def _(self, node: logical.Source, values: Values) -> Missing:
        updates = self.question.world.updates(node)
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

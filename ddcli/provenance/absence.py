"""The reasons why no record with some values exists, followed down to the operators at which such records end.

At each operator either the records of which it would be made are missing too, and the question continues below; or they exist, and the operator has
a reason that drops them: a condition that is not true, a record that stands in the way, a bound of time.
"""

from __future__ import annotations

from dataclasses import field
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.steps import FilterStep, MapStep, Step, UnnestStep
from ddcli.job.summary import plural
from ddcli.plan import groupings, logical, loops
from ddcli.provenance.depth import by_type
from ddcli.provenance.restriction import SAME, Values, renamed
from ddcli.provenance.sentences import bare, bounds, named_values, show, step_text
from ddcli.provenance.trace import Tracer
from ddcli.provenance.worlds import Opaque
from ddcli.store.time_text import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddcli.plan.node import Node
    from ddcli.provenance.contents import Contents, Record
    from ddcli.provenance.question import Question
    from ddcli.provenance.reasons import Reason


@dataclass(eq=False)
class Missing:
    """The absence of records of a node with these values: the reason, if it is known here, and the absences below; or the explanation of a
    record that keeps them out.
    """

    node: Node
    values: Values
    why: str = ""
    because: list[Missing] = field(default_factory=list)
    hindrance: Reason | None = None


@dataclass(frozen=True)
class Absence:
    """Finds out why records are missing that a question asks for."""

    question: Question
    _known: dict[tuple[str, str], Missing] = field(default_factory=dict)

    def of(self, node: Node, values: Values) -> Missing:
        """Return why no record of a node outside of loops has these values; asked twice, it is the same object."""
        at = node.fingerprint, repr(values)
        if at not in self._known:
            found = self._contents(node, values)
            there = Missing(node, values, f"there: {self._text(node, found)}") if len(found) else None
            self._known[at] = there or _below(type(node))(self, node, values)
        return self._known[at]

    def _contents(self, node: Node, values: Values) -> Contents:
        return self.question.world.contents(node).where(values)

    def _through(self, node: Node, values: Values, inside: Values, says: str) -> Missing:
        """Return the absence below, or, if there are records below, `says` as the reason why they end here."""
        (child,) = node.inputs
        found = self._contents(child, inside)
        if not len(found):
            return Missing(node, values, because=[self.of(child, inside)])
        return Missing(node, values, f"{says}: {self._text(child, found)}")

    def _text(self, node: Node, found: Contents) -> str:
        """Return some records in words."""
        records = [_shown(node, record) for record in found.records()[: self.question.limit]]
        more = len(found) - len(records)
        return ", ".join(records) + (f" and {more:,} more" if more else "")

    @singledispatchmethod
    def _below(self, node: Node, values: Values) -> Missing:
        """Return the absence of a record of an opaque node: functions in Python."""
        if isinstance(node, SAME):
            inputs = {child.fingerprint: child for child in node.inputs}.values()
            return Missing(node, values, because=[self.of(child, values) for child in inputs])
        if isinstance(node, groupings.Grouped) and node.leaves_out:
            return self._through(node, values, values, node.leaves_out)
        return Missing(node, values, "none of the collections below it has such a record")

    @_below.register
    def _(self, node: loops.Leave, values: Values) -> Missing:
        """Return that no round has it, and whether the loop begins with it."""
        (iterate,) = node.inputs
        assert isinstance(iterate, loops.Iterate)
        try:
            rounds = self.question.world.rounds(iterate).last + 1
        except Opaque as error:
            return Missing(node, values, f"{error} can't be looked into")
        initials = iterate.initials[node.which : node.which + 1]
        why = f"not in the last of the loop's {rounds} {plural(rounds, 'round')}"
        return Missing(node, values, why, [self.of(each, values) for each in initials])

    @_below.register
    def _(self, node: groupings.Threshold, values: Values) -> Missing:
        says = "its multiplicity is not positive" if node.function is None else f"{bare(node.function)} is not above 0"
        return self._through(node, values, values, says)

    @_below.register
    def _(self, node: logical.Apply, values: Values) -> Missing:
        step = node.step
        if isinstance(step, FilterStep):
            return self._through(node, values, values, f"{bare(step.condition)} is not true of")
        if isinstance(step, MapStep):
            inside = renamed(values, step.columns)
        elif isinstance(step, UnnestStep):
            inside = {name: value for name, value in values.items() if name != step.name}
        else:
            inside = {}
        others = " and ".join(name for name in values if name not in _names(step, inside))
        return self._through(node, values, inside, f"{step_text(step)} returns another {others} for")

    @_below.register
    def _(self, node: logical.Temporal, values: Values) -> Missing:
        now = format_time(self.question.time, self.question.inputs.kinds)
        return self._through(node, values, values, f"now is {now}, and the record exists while {bounds(node)}")

    @_below.register
    def _(self, node: groupings.Window, values: Values) -> Missing:
        calls = {name for name, _ in node.calls}
        inside = {name: value for name, value in values.items() if name not in calls}
        found = self._contents(node, inside)
        if len(found):
            return Missing(node, values, f"its window returns other values: {self._text(node, found)}")
        return self._through(node, values, inside, "its multiplicity is not positive")

    @_below.register
    def _(self, node: groupings.Reduce, values: Values) -> Missing:
        keys = {name: values[name] for name, _ in node.by if name in values}
        group = self._contents(node, keys)
        if len(group):
            return Missing(node, values, f"the group has other values: {self._text(node, group)}")
        (child,) = node.inputs
        return Missing(node, values, because=[self.of(child, renamed(values, node.by))])

    @_below.register
    def _(self, node: logical.Join, values: Values) -> Missing:
        keys = {c: values[name] for name, side, c in node.columns if side == "key" and name in values}
        left = keys | {c: values[name] for name, side, c in node.columns if side == "left" and name in values}
        right = {c: values[name] for name, side, c in node.columns if side == "right" and name in values}
        right |= {other: keys[one] for one, other in node.on if one in keys}
        sides = [(node.left, left), (node.right, right)]
        missing = [self.of(side, given) for side, given in sides if not len(self._contents(side, given))]
        if missing:
            return Missing(node, values, because=missing)
        on = " and ".join(f"{one} = {other}" for one, other in node.on)
        return Missing(node, values, f"both sides have such records, but none with {on}")

    @_below.register
    def _(self, node: logical.AsofJoin, values: Values) -> Missing:
        left, _ = node.sides(values)
        if not len(self._contents(node.left, left)):
            return Missing(node, values, because=[self.of(node.left, left)])
        mine = {name: values[name] for name, side, _ in node.columns if side != "right" and name in values}
        found = self._contents(node, mine)
        if len(found):
            return Missing(node, values, f"the nearest on the right is another: {self._text(node, found)}")
        key = {other: left[one] for one, other in node.on if one in left}
        return Missing(node, values, f"nothing on the right has {node.condition}", [self.of(node.right, key)])

    @_below.register
    def _(self, node: logical.Semijoin, values: Values) -> Missing:
        """Return which record stands in the way of one on the left, or that there is none to go with it."""
        left, right = node.inputs
        found = self._contents(left, values)
        if not len(found):
            return Missing(node, values, because=[self.of(left, values)])
        record = dict(zip(left.schema, found.records()[0], strict=True))
        key = {other: record[one] for one, other in node.on}
        partners = self._contents(right, key)
        text = _shown(left, found.records()[0])
        if not node.anti:
            listed = " and ".join(f"{name} = {show(value)}" for name, value in key.items())
            return Missing(node, values, f"nothing on the right has {listed}: {text}", [self.of(right, key)])
        question = self.question
        tracer = Tracer(question.world, question.limit, question.named)
        way = [each for each, count in zip(partners.records(), partners.counts(), strict=True) if count > 0][:1]
        reason = tracer.reason(question.world, right, way[0], exact=False) if way else None
        return Missing(node, values, f"something on the right stands in the way of {text}", hindrance=reason)

    @_below.register
    def _(self, node: logical.Source, values: Values) -> Missing:
        updates = self.question.world.updates(node)
        numbers = updates.numbers(values)
        if not len(numbers):
            return Missing(node, values, "no update has these values")
        return Missing(node, values, f"taken back: {len(numbers)} {plural(len(numbers), 'update')} add up to none")

    @_below.register
    def _(self, node: logical.Upsert, values: Values) -> Missing:
        keys = {name: values[name] for name in node.key if name in values}
        current = self._contents(node, keys)
        text = f"the last row is another: {self._text(node, current)}" if len(current) else "no such key, or deleted"
        return Missing(node, values, text)

    @_below.register
    def _(self, node: logical.Snapshots, values: Values) -> Missing:
        return Missing(node, values, "not in the last table")


_below = by_type(Absence, "_below")


def _names(step: Step, inside: Values) -> Iterable[str]:
    """Return the columns of a step's result whose values were pushed through it."""
    if isinstance(step, MapStep):
        return [name for name, expression in step.columns if getattr(expression, "name", None) in inside]
    return inside


def _shown(node: Node, record: Record) -> str:
    return "{" + ", ".join(f"{name}: {show(value)}" for name, value in named_values(node, record).items()) + "}"


def below(missing: Missing | None) -> Iterator[Missing]:
    """Yield a missing record and all that are missing below it, each once."""
    left, seen = [missing] if missing is not None else [], set[int]()
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            left += reversed(each.because)


def hindrances(missing: Missing | None) -> Iterator[Reason]:
    """Yield the reasons of the records that keep others out."""
    return (each.hindrance for each in below(missing) if each.hindrance is not None)

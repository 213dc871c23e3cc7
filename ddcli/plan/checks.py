"""Checks in the plan: inputs without the rows that are put aside, the columns of violations in their logs, and the types of measures."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from ddcli.errors import SpecError, Text
from ddcli.plan.operators.table import apply_operators
from ddcli.plan.relation import concat
from ddcli.plan.words import Unbuilt, placing
from ddcli.spec import operator_model
from ddcli.spec.model import UNCHECKED, owners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddcli.expressions.types import Schema
    from ddcli.plan.operators.row import BindContext
    from ddcli.plan.relation import Relation
    from ddcli.spec import model
    from ddcli.spec.model import CheckSpec


def checked_input(
    raw: Relation, name: str, spec: model.Spec, around: BindContext, named: Callable[[str], Relation | None]
) -> Relation:
    """Return an input without the rows that its checks put aside; `named` returns other collections.

    Each row is kept or put aside by itself, so a row comes back as soon as what it refers to is there.
    """

    def source(given: operator_model.Source) -> Relation:
        assert isinstance(given, Text), "checks refer to collections by name"
        found = named(given.value)
        if found is None:
            raise Unbuilt
        return found

    found = raw
    for each in spec.quarantines.get(name, ()):
        check = spec.checks[each.check.value]
        with placing(check.place, check.span):
            parts = [apply_operators(found, part, source, around) for part in each.parts]
            found = parts[0] if len(parts) == 1 else concat(parts, check.span, "from")
    return found


def logged(relation: Relation, check: CheckSpec, own: Sequence[str], around: BindContext) -> Relation:
    """Return the violations of a check as its log has them: columns that the log has itself, `time` and `diff`, get other names."""
    renamed: list[tuple[Text, Text]] = []
    for name in own:
        if name in relation.schema:
            number = 1
            while f"{name}_{number}" in relation.schema:
                number += 1
            renamed.append((Text(name, check.span), Text(f"{name}_{number}", check.span)))
    if not renamed:
        return relation

    def none(_: operator_model.Source) -> Relation:
        raise AssertionError("renaming has no other side")

    rename = operator_model.Operator("rename", {"columns": tuple(renamed)}, check.span, check.place)
    return apply_operators(relation, (rename,), none, around)


def refused_measures(check: CheckSpec, schema: Schema) -> Iterator[SpecError]:
    """Yield an error for each measure whose values have no change that is a number, or no age."""
    for measure in check.measures:
        kind = schema.get(measure.column or "")
        if kind is None:
            continue
        timed = kind.kind in ("date", "datetime")
        if check.kind == "fresh" and not timed:
            problem = f"{check.place}.fresh: '{measure.name}' is {kind.required()}, and a time has an age"
            yield SpecError(problem, span=check.span, hint="for example `fresh: {max(updated_at): 2h}`")
        if check.kind == "change" and not kind.is_numeric:
            problem = (
                f"{check.place}.change: '{measure.name}' is {kind.required()}, and a change is measured of numbers"
            )
            yield SpecError(problem, span=check.span, hint="for example `change: {sum(amount): [-20%, +30%]}`")


def circles(spec: model.Spec, references: Callable[[model.CollectionSpec], Iterator[str]]) -> list[SpecError]:
    """Return an error for a check that puts rows of an input aside for a collection that is computed from that input: its rows would decide about themselves."""
    if not spec.quarantines:
        return []
    uses: dict[str, list[str]] = {name: list(references(each)) for name, each in spec.collections.items()}
    owner = owners(spec.collections)
    for name, given in spec.quarantines.items():
        uses[name] = [other for each in given for other in _others(spec.collections[each.check.value], references)]
    graph = {name: [owner.get(other, other) for other in others] for name, others in uses.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1][::-1]
        (name,) = [each for each in dict.fromkeys(circle) if each in spec.quarantines][:1] or [""]
        check = spec.checks[spec.quarantines[name][0].check.value] if name else next(iter(spec.checks.values()))
        problem = f"{check.place}: rows of '{name}' would be put aside for a collection that is computed from them: {' -> '.join(circle)}"
        return [SpecError(problem, span=check.span, hint="use `otherwise: fail`, or refer to another input")]
    return []


def _others(collection: model.CollectionSpec, references: Callable[[model.CollectionSpec], Iterator[str]]) -> list[str]:
    """Return the names to which the collection of a check refers beside its input."""
    return [name for name in references(collection) if not name.endswith(UNCHECKED)]


def raw_name(name: str, quarantines: Mapping[str, object]) -> str:
    """Return the input that a name means: one with the ending of checks means the input with all of its rows."""
    raw = name.removesuffix(UNCHECKED)
    return raw if raw in quarantines else name

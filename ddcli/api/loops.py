"""Loops: variables, which in each round are the body's results of the last one.

    labels.iterate(lambda best: best.join(links, ...)...)               # one variable
    df.iterate({"a": a, "b": b}, lambda a, b: (next_a, next_b))         # several, which may refer to each other
    with df.loop() as loop:                                             # the same, step by step
        best = loop.variable(labels)
        best.set(best.join(links, ...)...)
        found = best.leave()

Outer collections that the body reads exist in every round; `enter(at=...)` lets each record enter at a round of its own. A body may have
loops. A collection leaves as of the last round: when nothing changes any more, or after `max_rounds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.api.collection import Collection
from ddcli.api.functions import HERE, text
from ddcli.api.functions import schema as schema_of
from ddcli.errors import SpecError, UsageError
from ddcli.plan.loops import closed, iterate, opened, variable, widened
from ddcli.plan.relation import common_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.api.dataflow import Dataflow
    from ddcli.errors import Text
    from ddcli.expressions.types import Schema, Type
    from ddcli.plan.node import LoopName
    from ddcli.plan.relation import Relation


def iterated(
    dataflow: Dataflow,
    variables: Mapping[str, Collection],
    body: Callable[..., Any],
    max_rounds: int | None,
    guard: int,
) -> Any:
    """Return the results of a loop, in the form in which `body` returns them; see `Dataflow.iterate`."""
    check_rounds(max_rounds, guard)
    if not variables:
        raise UsageError("a loop has at least one variable")
    for name, initial in variables.items():
        _check_own(initial, dataflow, f"the variable '{name}' begins as")
    form: Any = None
    order: list[Any] = []

    def bodies(loop: LoopName, given: Sequence[Relation]) -> tuple[list[Relation], list[Relation]]:
        nonlocal form, order
        with dataflow.inside(loop):
            form = body(*(Collection(dataflow, relation) for relation in given))
        found = _results(form, list(variables))
        order = list(found)
        for name, result in found.items():
            _check_own(result, dataflow, f"the body of a loop returns for {name!r}")
        relations = [result.relation for result in found.values()]
        return relations[: len(variables)], relations[len(variables) :]

    initials = [(text(name), initial.relation) for name, initial in variables.items()]
    left = [
        Collection(dataflow, relation)
        for relation in iterate(initials, bodies, dataflow.surroundings.loop, bound=max_rounds, guard=guard)
    ]
    if isinstance(form, Collection):
        return left[0]
    return dict(zip(order, left, strict=True)) if hasattr(form, "keys") else tuple(left)


def _results(given: Any, variables: list[str]) -> dict[Any, Collection]:
    """Return a body's results by name or position: a collection for each variable, in their order, then the others that leave."""
    if hasattr(given, "keys"):
        missing = [name for name in variables if name not in given]
        others = [name for name in given if name not in variables]
        found = {name: given[name] for name in [*variables, *others] if name in given}
    else:
        several = list(given) if isinstance(given, tuple | list) else [given]
        missing = variables[len(several) :]
        found = dict(enumerate(several))
    if missing:
        raise UsageError(
            f"the body of a loop does not return its variable '{missing[0]}'",
            hint="return a collection for each variable: one, a tuple in their order, or a dictionary by name",
        )
    return found


def _check_own(given: object, dataflow: Dataflow, what: str) -> None:
    """Refuse an argument that is not a collection of the dataflow."""
    if not isinstance(given, Collection) or given.dataflow is not dataflow:
        raise UsageError(f"{what} {given!r}, which is not a collection of this dataflow")


def check_rounds(max_rounds: int | None, guard: int) -> None:
    """Refuse numbers of rounds below 1."""
    for name, rounds in (("max_rounds", max_rounds), ("guard", guard)):
        if rounds is not None and rounds < 1:
            raise UsageError(f"`{name}` is a number of rounds, at least 1, not {rounds!r}")


class Variable(Collection):
    """A collection of a loop that, in the next round, is the collection to which it is `set` in this one."""

    def __init__(self, dataflow: Dataflow, relation: Relation, name: str, initial: Relation):
        super().__init__(dataflow, relation)
        self.name = name
        self.initial = initial
        self.result: Relation | None = None

    def set(self, result: Collection) -> None:
        """Set the variable's value in the next round."""
        if self.result is not None:
            raise UsageError(f"the variable '{self.name}' is set already")
        _check_own(result, self.dataflow, f"the variable '{self.name}' is set to")
        self.result = result.relation


class LeaveScope(Collection):
    """A collection that leaves a loop, and can be read when the loop is closed."""

    def __init__(self, dataflow: Dataflow, inside: Collection):
        self.dataflow = dataflow
        self.inside = inside
        self.outside: Relation | None = None

    @property
    def relation(self) -> Relation:
        """The collection outside of the loop."""
        if self.outside is None:
            raise UsageError(
                "a collection that leaves a loop is read outside of it", hint="continue after the `with` block"
            )
        return self.outside


class Loop:
    """A loop whose body is written step by step, in a `with` block."""

    def __init__(self, dataflow: Dataflow, max_rounds: int | None, guard: int):
        check_rounds(max_rounds, guard)
        self.dataflow = dataflow
        self.max_rounds = max_rounds
        self.guard = guard
        self._around = dataflow.surroundings.loop
        self.name = opened(self._around)
        self._variables: list[Variable] = []
        self._leaving: list[LeaveScope] = []

    def variable(
        self, initial: Collection, columns: Mapping[str, str | Type] | None = None, name: str | None = None
    ) -> Variable:
        """Return a new variable that is `initial` in the first round.

        It has its columns, or `columns`, whose types must hold all values that the variable ever has. `name` is
        its name in messages.
        """
        _check_own(initial, self.dataflow, "a variable begins as")
        if self.name in initial.relation.node.free:
            raise UsageError(
                "a variable can't begin with a collection in its own loop", hint="begin with a collection from outside"
            )
        name = name or f"variable {len(self._variables)}"
        schema: Schema = dict(initial.schema)
        if columns is not None:
            given = schema_of(columns, f"the variable '{name}'")
            rule, places = f"the variable '{name}' has the columns that it begins with", ("as declared", "at first")
            if common_schema(given, schema, rule, f"the variable '{name}'", places, HERE) != given:
                raise UsageError(
                    f"the variable '{name}' can't hold the collection that it begins with",
                    hint=_types(schema),
                )
            schema = given
        made = Variable(self.dataflow, variable(self.name, len(self._variables), schema), name, initial.relation)
        self._variables.append(made)
        return made

    def leave(self, collection: Collection) -> Collection:
        """Return a collection of the body as it is in the last round, to be read outside; for a variable the collection to which it is set then."""
        left = LeaveScope(self.dataflow, collection)
        self._leaving.append(left)
        return left

    def close(self) -> None:
        """Close the loop: collections that leave it can be read from now on."""
        if not self._variables:
            raise UsageError("a loop has at least one variable", hint="`loop.variable(initial)` makes one")
        results = []
        for each in self._variables:
            if each.result is None:
                raise UsageError(
                    f"the variable '{each.name}' is never set", hint="`variable.set(result)` sets its next value"
                )
            results.append(each.result)
        names: list[Text] = [text(each.name) for each in self._variables]
        schemas = [each.schema for each in self._variables]
        for name, have, want in zip(names, schemas, widened(names, schemas, results), strict=True):
            if have != want:
                problem = f"the types of the variable '{name.value}' can't hold the values that the body sets"
                raise SpecError(problem, span=name.span, hint=_types(want))
        # A variable leaves as its result, which leaves anyway.
        others = [leaving for leaving in self._leaving if not any(leaving.inside is each for each in self._variables)]
        left = closed(
            self.name,
            self._around,
            [(name, each.initial) for name, each in zip(names, self._variables, strict=True)],
            schemas,
            results,
            [leaving.inside.relation for leaving in others],
            bound=self.max_rounds,
            guard=self.guard,
        )
        bodies: list[Collection] = [*self._variables, *(leaving.inside for leaving in others)]
        for body, relation in zip(bodies, left, strict=True):
            for leaving in self._leaving:
                if leaving.inside is body:
                    leaving.outside = relation


def _types(schema: Schema) -> str:
    """Return a hint with the types that a variable needs."""
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in schema.items())
    return f"declare them: variable(initial, columns={{{columns}}})"

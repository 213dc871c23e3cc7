"""A loop closed over relations: the types of its variables, its body, its identity. For pipeline files and programs alike."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from ddcli.errors import DdError, SpecError, SpecErrors, Text
from ddcli.plan.loops import Iterate, Leave, LoopVariable, identified
from ddcli.plan.node import LoopName
from ddcli.plan.relation import Relation
from ddcli.plan.union import common_schema, with_schema
from ddcli.spec.model import GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.expressions.types import Schema

    Bodies = Callable[[LoopName, Sequence[Relation]], tuple[Sequence[Relation], Sequence[Relation]]]

_opened = count()


def iterate(
    initials: Sequence[tuple[Text, Relation]],
    bodies: Bodies,
    around: LoopName | None = None,
    *,
    bound: int | None = None,
    guard: int = GUARD,
) -> list[Relation]:
    """Return the relations that leave a loop of these variables, each given by name with its initial value.

    `bodies(loop, variables)` builds the body inside of `loop` and returns the relation that each variable is in the next round,
    then the other relations that leave; all of these leave, in this order. A variable has the columns of its initial, of types
    that hold all values that it ever has: if the body returns wider ones, it is built again. `around` is the loop in whose
    body this one is. Raise SpecError where a variable's columns don't fit, and where a body reads a variable of
    another loop.
    """
    schemas = [dict(relation.schema) for _, relation in initials]
    stable = False
    while not stable:
        loop = opened(around)
        results, others = bodies(loop, [variable(loop, at, schema) for at, schema in enumerate(schemas)])
        wider = widened([name for name, _ in initials], schemas, results)
        stable, schemas = wider == schemas, wider
    return closed(loop, around, initials, schemas, results, others, bound=bound, guard=guard)


def opened(around: LoopName | None) -> LoopName:
    """Return a loop to build a body in, with a new name, so that variables of loops can't be confused."""
    return LoopName(around.depth + 1 if around else 1, f"open {next(_opened)}")


def variable(loop: LoopName, index: int, schema: Schema) -> Relation:
    """Return the `index`-th variable of a loop that is being built."""
    return Relation(LoopVariable((), schema, loop.name, loop.depth, index))


def closed(
    loop: LoopName,
    around: LoopName | None,
    initials: Sequence[tuple[Text, Relation]],
    schemas: Sequence[Schema],
    results: Sequence[Relation],
    others: Sequence[Relation],
    *,
    bound: int | None = None,
    guard: int = GUARD,
) -> list[Relation]:
    """Return the relations that leave a loop whose body is built: the results, then the others. `schemas` must hold all values of the variables."""
    inputs = [with_schema(relation.node, schema) for (_, relation), schema in zip(initials, schemas, strict=True)]
    inputs += [with_schema(relation.node, schema) for relation, schema in zip(results, schemas, strict=True)]
    inputs += [relation.node for relation in others]
    apart = {free for node in inputs for free in node.free if free not in (loop, around)}
    if any(free.depth >= loop.depth - 1 for free in apart):
        problem = "the body of a loop reads a collection of the body of another"
        raise SpecError(problem, span=initials[0][0].span, hint="let it leave that loop first")
    names = tuple(name for name, _ in initials)
    node = identified(Iterate(tuple(inputs), {}, loop.name, loop.depth, len(initials), names, bound, guard))
    return [Relation(Leave((node,), body.schema, which)) for which, body in enumerate(node.bodies)]


def widened(names: Sequence[Text], schemas: Sequence[Schema], results: Sequence[Relation]) -> list[Schema]:
    """Return the variables' columns, of types that hold the results too."""
    found: list[Schema] = []
    errors: list[DdError] = []
    for name, schema, result in zip(names, schemas, results, strict=True):
        what = f"the variable '{name.value}'"
        rule = f"{what} has the same columns in every round"
        try:
            found.append(common_schema(schema, result.schema, rule, what, ("at first", "in the body"), name.span))
        except SpecError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else SpecErrors(errors)
    return found

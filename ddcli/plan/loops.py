"""Loops in a graph: variables, collections that enter, and the node that binds them.

The body of a loop is made of nodes like all others. A node belongs to a body if it depends on the loop's round: a
`LoopVariable` or an `Enter` of the loop is below it. A node without any is the same in every round and stays outside,
even if it was written inside.

A loop's identity is its meaning. While its body is built, `loop` is a mere token; then `identified` replaces it by a
hash of the whole loop, so that new names change nothing, the same loop written twice is one, and the bodies of two
different loops share no node that depends on a round.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.errors import DdError, SpecError, SpecErrors, Text
from ddcli.expressions.tree import Cast
from ddcli.expressions.types import Type
from ddcli.plan.node import LoopName, Node, below, digest, inherited
from ddcli.plan.relation import Relation, common_schema, with_schema
from ddcli.plan.shape import conform, with_columns
from ddcli.spec.model import GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.errors import Text
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema
    from ddcli.plan.lower import GraphLowering
    from ddcli.plan.node import Columns, Origins, Values, Writer, Written

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


INT64 = Type("int64")


class OfLoop(Node):
    """A node of the loop `loop`, the `depth`-th from outside of the loops around its body, counted from 1."""

    loop: str
    depth: int

    @inherited
    def free(self) -> frozenset[LoopName]:
        """The loops whose round the collection depends on: this one, and the inputs' loops."""
        return _free(self.inputs) | {LoopName(self.depth, self.loop)}


class LoopVariable(OfLoop):
    """The loop's `index`-th variable at the current round. A leaf: its definition is an input of the `Iterate`."""

    kind: ClassVar[str] = "variable"
    index: int
    is_physical: bool = False

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (self.loop, self.depth, self.index)

    @property
    def work(self) -> None:
        return None

    def lowered(self, lowering: GraphLowering) -> Node:
        return conform(replace(self, is_physical=True), lowering.schema(self))


class Enter(OfLoop):
    """Each record of the input from the round `max(0, at)` on; `at` is an integer that is never null."""

    at: Expression

    def column_origins(self) -> Origins:
        return self.unchanged()

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted | self.at.columns()]

    def lowered(self, lowering: GraphLowering) -> Node:
        at = self.at if self.at.type == INT64 else Cast(self.at, INT64)
        return EnterAt((with_columns(lowering, self, {"$round": at}),), lowering.schema(self), self.loop, self.depth)


class EnterAt(OfLoop):
    """Each record of the input from the loop's round on that is in its last column, "$round"; without that column."""

    kind: ClassVar[str] = "enter"
    forwards: ClassVar[bool] = True

    def searched(self, known: Values) -> list[tuple[Node, Values]] | None:
        return [(self.inputs[0], known)]


class Iterate(OfLoop):
    """A loop. Its inputs are the `variables` initial collections, as many results, and the other collections that leave.

    At one time it means: the variables are the initials; evaluate results and others with them (and, of collections that enter,
    the records whose round is at most the number of repetitions so far); the variables are the results; and so on,
    until the variables and all that enters have settled or, with a `bound`, exactly that many times. After `guard`
    repetitions without settling it is an error. Names and guard change no collection, so they are no part of `identity_values`.
    """

    kind: ClassVar[str] = "loop"
    variables: int
    names: tuple[Text, ...]
    bound: int | None
    guard: int

    @property
    def work(self) -> None:
        return None

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return (self.loop, self.depth, self.variables, self.bound)

    @property
    def initials(self) -> tuple[Node, ...]:
        return self.inputs[: self.variables]

    @property
    def bodies(self) -> tuple[Node, ...]:
        """The results, one for each variable, then the others that leave."""
        return self.inputs[self.variables :]

    @inherited
    def free(self) -> frozenset[LoopName]:
        """The loops around this one whose round it depends on: its own round ends here."""
        return _free(self.initials) | (_free(self.bodies) - {LoopName(self.depth, self.loop)})

    def lowered(self, lowering: GraphLowering) -> Node:
        """Identify the loop by its lowered nodes: a column outside that no node reads is no part of it."""
        inputs = tuple(lowering.exactly(child, child.schema) for child in self.inputs)
        return identified(replace(self, inputs=inputs))

    def details(self) -> list[str]:
        names = ", ".join(name.value for name in self.names)
        return [f"{names}, {self.bound} rounds" if self.bound is not None else names]


class Leave(Node):
    """The `which`-th of the bodies of the input, an `Iterate`, after its last round."""

    kind: ClassVar[str] = "leave"
    forwards: ClassVar[bool] = True
    which: int

    def searched(self, known: Values) -> list[tuple[Node, Values]] | None:
        (iterate,) = self.inputs
        assert isinstance(iterate, Iterate)
        return [(iterate.bodies[self.which], known)]

    @property
    def work(self) -> None:
        return None

    def written(self, writer: Writer) -> Written:
        return writer.left(self)

    def lowered(self, lowering: GraphLowering) -> Node:
        return conform(replace(self, inputs=(lowering.node(self.inputs[0]),)), lowering.schema(self))


def outer_nodes(iterate: Iterate) -> list[Node]:
    """Return the nodes around a loop that its body, or a loop in it, reads."""
    inside: set[str] = set()
    outside: dict[str, Node] = {}

    def known(node: Node) -> bool:
        if node.level < iterate.depth:
            outside[node.fingerprint] = node
        return node.fingerprint in inside or node.fingerprint in outside

    for body in iterate.bodies:
        for node in below(body, known) if not known(body) else ():
            inside.add(node.fingerprint)
    return list(outside.values())


def identified(iterate: Iterate) -> Iterate:
    """Return the loop under its identity: at the least depth it can have, named by the hash of all it does.

    That hash is the loop's fingerprint while it and the loops inside are called 0, 1, ... in the order they are met.
    Those inside are named by it too, so that under two outer loops they are two. A loop inside of the body that does
    not depend on this one stands outside, as any such node, and keeps its name.
    """
    depth = 1 + max((loop.depth for loop in iterate.free), default=0)
    numbers = {iterate.loop: "0"}
    plain = _renamed(iterate, lambda loop: numbers.setdefault(loop, str(len(numbers))), iterate.depth - depth)
    return _renamed(plain, lambda loop: digest(plain.fingerprint, loop), 0)


def _renamed(iterate: Iterate, name: Callable[[str], str], rise: int) -> Iterate:
    """Return the loop with other names for it and the loops inside, all `rise` less deep.

    A node whose level is less than the loop's depth belongs to its surroundings and stays as it is.
    """
    done: dict[str, Node] = {}

    def outside(node: Node) -> bool:
        return node.level < iterate.depth

    def moved(node: Node, inputs: Iterable[Node]) -> Node:
        new = tuple(child if outside(child) else done[child.fingerprint] for child in inputs)
        if isinstance(node, OfLoop):
            return replace(node, inputs=new, loop=name(node.loop), depth=node.depth - rise)
        return replace(node, inputs=new)

    for body in iterate.bodies:
        for node in below(body, lambda known: outside(known) or known.fingerprint in done):
            done[node.fingerprint] = moved(node, node.inputs)
    found = moved(iterate, iterate.inputs)
    assert isinstance(found, Iterate)
    return found


def _free(nodes: Iterable[Node]) -> frozenset[LoopName]:
    return frozenset[LoopName]().union(*(node.free for node in nodes))

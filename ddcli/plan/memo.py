"""Functions that remember: each record is given to the function once, and from then on has the results of that call.

The results are an arrangement, from the function's fingerprint and its arguments. A retraction reads the results that its insertion got, so that both cancel
even if the function returns something else at each call.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.expressions.tree import identity
from ddcli.expressions.types import Type
from ddcli.plan.node import Node, digest
from ddcli.plan.shape import conform

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.expressions.types import Schema
    from ddcli.plan.lower import GraphLowering

OUTCOME, REASON = "#outcome", "#reason"
"""A column of the results: 1, or 0 for a record without any; and the column of records that wait: why their call failed."""


class MemoizedCalls(Node):
    """The records that a Python function returned when a record was first given to it. State.

    `memory` is a word of the file: another one is another memory. A run makes at most `calls` calls.
    """

    kind: ClassVar[str] = "memo"
    function: str
    batch: bool
    memory: str
    calls: int | None

    @property
    def identity_values(self) -> tuple[Any, ...]:
        return identity(self.function), self.batch, self.memory

    @property
    def wording(self) -> tuple[str, str]:
        return self.kind, " ".join(filter(None, (self.function, self.memory)))

    @property
    def title(self) -> str:
        return f"the remembered results of {self.function}"

    @cached_property
    def results(self) -> Schema:
        """The columns of a call's result in the state. A record without any has nulls."""
        return {OUTCOME: Type("int64")} | {f"${name}": kind.or_null() for name, kind in self.schema.items()}

    @cached_property
    def answers(self) -> str:
        """The identity of the arrangement of results: whatever collection the function is applied to."""
        columns = [[(name, str(kind)) for name, kind in each.items()] for each in (self.inputs[0].schema, self.schema)]
        return digest("answers", self.identity_values, columns)

    @cached_property
    def waiting(self) -> str:
        """The identity of the arrangement of records whose call failed."""
        return digest("waiting", self.answers)

    @property
    def exchanged_by(self) -> tuple[str, ...]:
        return tuple(self.inputs[0].schema)

    def lowered(self, lowering: GraphLowering) -> Node:
        (child,) = self.inputs
        called = replace(self, inputs=(lowering.exactly(child, child.schema),))
        return conform(called, lowering.schema(self), fuse=True)

    def details(self) -> list[str]:
        return [self.function]


def remembered(nodes: Iterable[Node]) -> dict[str, MemoizedCalls]:
    """Return the nodes whose functions remember, by the identities of their arrangements."""
    found = [node for node in nodes if isinstance(node, MemoizedCalls)]
    return {identity: node for node in found for identity in (node.answers, node.waiting)}

"""Operators whose updates are at later times than their inputs': temporal filters and join functions. A `Delay` keeps these updates until their times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from ddcli.plan import words
from ddcli.plan.logical import columns_of
from ddcli.plan.node import Node
from ddcli.plan.physical import WholeRecords
from ddcli.plan.shape import conform, with_columns

if TYPE_CHECKING:
    from ddcli.expressions.tree import Expression
    from ddcli.plan.lower import GraphLowering
    from ddcli.plan.node import Columns, Origins, Values, Writer, Written


class JoinFunction(Node):
    """The records that a Python function makes of each record, each with a time that is joined with the record's own,
    and a factor of its diff. With `batch` it is given frames. As of `Shift`, a `Delay` reads its updates.
    """

    kind: ClassVar[str] = "join_function"
    physical_name: ClassVar[str] = "PythonShift"
    function: str
    batch: bool

    @property
    def title(self) -> str:
        return f"join_function {self.function}"

    def lowered(self, lowering: GraphLowering) -> Node:
        shift = replace(self, inputs=(lowering.exactly(self.inputs[0], self.inputs[0].schema),))
        return conform(Delay((shift,), self.schema), lowering.schema(self), fuse=False)

    def details(self) -> list[str]:
        return [self.function]


class Temporal(Node):
    """Each record while `lower <= now < upper`, `now` being the time one reads at. The bounds have the time's type.

    None is no bound on that side; where a bound's value is null, the record is never there.
    """

    lower: Expression | None
    upper: Expression | None

    @property
    def title(self) -> str:
        lower = f"{words.without_parentheses(self.lower.text())} <= " if self.lower is not None else ""
        upper = f" < {words.without_parentheses(self.upper.text())}" if self.upper is not None else ""
        return f"while {lower}now{upper}"

    def leaves_out(self, values: Values) -> str:
        return f"the record exists {self.title}"

    def column_origins(self) -> Origins:
        return self.unchanged()

    def reads(self, wanted: Columns) -> list[Columns]:
        return [wanted | columns_of(bound for bound in (self.lower, self.upper) if bound)]

    def written(self, writer: Writer) -> Written:
        bounds = {"from": self.lower, "until": self.upper}
        return writer.after(self, {"temporal_filter": {name: str(each) for name, each in bounds.items() if each}})

    def lowered(self, lowering: GraphLowering) -> Node:
        bounds = {"$from": self.lower, "$until": self.upper}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        child = with_columns(lowering, self, given)
        shift = Shift((child,), lowering.schema(self), self.lower is not None, self.upper is not None)
        return Delay((shift,), shift.schema)


class Shift(Node):
    """Each record of the input from the time "$from" to the time "$until", its last columns; without these.

    `lower` and `upper` are true if these exist. Its updates may be at future times, so a `Delay` reads it.
    """

    kind: ClassVar[str] = "temporal_filter"
    lower: bool
    upper: bool

    def details(self) -> list[str]:
        return [" ".join(word for word, given in (("from", self.lower), ("until", self.upper)) if given)]


class Delay(WholeRecords):
    """The input, whose updates at future times are kept until these times are reached. State."""

    kind: ClassVar[str] = "delay"

    def searched(self, known: Values) -> list[tuple[Node, Values]] | None:
        (shift,) = self.inputs
        return [(shift.inputs[0], known)] if isinstance(shift, Shift) else None

    def keeps_state(self, times: int) -> bool:
        return True

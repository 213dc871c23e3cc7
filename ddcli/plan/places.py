"""Where in the pipeline file the operators of a plan are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.plan.descriptions import kind

if TYPE_CHECKING:
    from ddcli.errors import Span
    from ddcli.plan.bound import BoundPipeline
    from ddcli.plan.generations import Plan


@dataclass(frozen=True, slots=True)
class OperatorPlace:
    """The path of an operator in the file, `collections.big.apply[2].join`, its place, and what it does, in a word.

    What an operator of the file is made of has its place; of a query, and of what several operators share, the first to compute it.
    """

    path: str
    span: Span
    kind: str

    @property
    def collection(self) -> str | None:
        """The collection of the file, or the output or input's `None`."""
        section, _, rest = self.path.partition(".")
        return rest.partition(".")[0] if section == "collections" else None

    @property
    def words(self) -> str:
        """What the operator is, and where: `join of collections.big.apply[2].join`."""
        return f"{self.kind} of {self.path}"


def places(bound: BoundPipeline, plan: Plan) -> dict[str, OperatorPlace]:
    """Return the place of each physical node of a plan, by fingerprint."""
    written, found = bound.graph.places, dict[str, OperatorPlace]()
    for generation, part in zip(plan.generations, plan.parts, strict=True):
        lowered = generation.nodes(part)
        for node in part.nodes():  # inputs come before their readers
            place = written.get(node.fingerprint)
            left = [lowered[node.fingerprint]] if place else []
            while left:
                each = left.pop()
                if place and each.fingerprint not in found:
                    found[each.fingerprint] = OperatorPlace(*place, kind(each))
                    left += each.inputs
    return found

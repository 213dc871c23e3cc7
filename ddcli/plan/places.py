"""The places of a plan's operators in the pipeline file, and the collections that do more work than before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.spec.model import WORK_CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.errors import Span
    from ddcli.plan.generations import Plan
    from ddcli.plan.node import Graph, Node
    from ddcli.plan.pipeline_file import BoundPipeline


@frozen
class OperatorPlace:
    """The path of an operator in the file, `collections.big.apply[2].join`, its place, and a word for its work.

    All nodes of a file's operator have its place; nodes of a query, and those that several operators share, have that of the first that computes them.
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
        """Return the operator's kind and its place: `join of collections.big.apply[2].join`."""
        return f"{self.kind} of {self.path}"


def places(bound: BoundPipeline, plan: Plan) -> dict[str, OperatorPlace]:
    """Return the place of each physical node of a plan, by fingerprint."""
    found: dict[str, OperatorPlace] = {}
    for generation, part in zip(plan.generations, plan.parts, strict=True):
        found = places_of(bound, part, generation.operators(part)) | found
    return found


def places_of(bound: BoundPipeline, graph: Graph, lowered: Mapping[str, Node]) -> dict[str, OperatorPlace]:
    """Return the place of each physical node by fingerprint; `lowered` has the physical node of each logical one."""
    found: dict[str, OperatorPlace] = {}
    for node in graph.nodes():  # inputs come before their readers
        place = bound.graph.places.get(node.fingerprint)
        left = [lowered[node.fingerprint]] if place and node.fingerprint in lowered else []
        while left:
            each = left.pop()
            if place and each.fingerprint not in found:
                found[each.fingerprint] = OperatorPlace(*place, each.kind)
                left += each.inputs
    return found


def classes_of_work(bound: BoundPipeline, plan: Plan) -> dict[str, str]:
    """Return the worst class of work of each collection of the file, as far as its operators are in the plan."""
    found: dict[str, str] = {}
    at = places(bound, plan)
    for node in plan.graph.nodes:
        place, own = at.get(node.fingerprint), node.work
        if place is not None and place.collection is not None and own is not None:
            found[place.collection] = worse(found.get(place.collection, own), own)
    return found


def work_regressions(
    before: Mapping[str, str], bound: BoundPipeline, plan: Plan
) -> list[tuple[OperatorPlace, str, str]]:
    """Return the first operator of each collection whose class of work is worse than the collection's class `before`, and both classes.

    A new collection has no class before, so none of its operators is returned.
    """
    found: dict[str, tuple[OperatorPlace, str, str]] = {}
    at = places(bound, plan)
    for node in plan.graph.nodes:
        place, own = at.get(node.fingerprint), node.work
        if place is None or own is None or place.collection is None or place.collection not in before:
            continue
        known = found[place.collection][2] if place.collection in found else before[place.collection]
        if worse(known, own) != known:
            found[place.collection] = place, before[place.collection], own
    return list(found.values())


def worse(one: str, other: str) -> str:
    """Return the worse of two classes; an unknown one is worse than all."""
    known = [*WORK_CLASSES]
    return max(one, other, key=lambda each: known.index(each) if each in known else len(known))

"""Pipeline files read with the table of operators, to a checked model, with every error at its place; and bound to the columns of their inputs.

The readers are imported when they are first called: they need a YAML parser.
A bound pipeline has all that a plan depends on, wherever the columns come from.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass, frozen
from ddcli.errors import SpecErrors
from ddcli.privacy import hide
from ddcli.spec.model import WORK_CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ddcli.errors import Span, SpecError
    from ddcli.expressions.types import Schema, Type
    from ddcli.plan.build import Section
    from ddcli.plan.generations import Plan
    from ddcli.plan.node import Graph, Node
    from ddcli.plan.relation import Relation
    from ddcli.spec.model import Spec


def load_spec(path: Path) -> Spec:
    """Return the model of a pipeline file, or raise `SpecErrors` with everything that is wrong in it.

    Raises `UsageError` for a file that can't be read or is not UTF-8.
    """
    from ddcli.spec.file import check_used, read_text

    spec = parse_spec(read_text(path), str(path))
    check_used()
    return spec


def parse_spec(text: str, file: str, queries: Mapping[str, Sequence[str]] | None = None) -> Spec:
    """Return the model of a pipeline file's text, or raise `SpecErrors` with everything that is wrong in it. `file` is the name that errors show.

    `queries` are the tables of queries that were parsed before (`tables_of_queries`): where they are in the file, the model has no place of their tables.
    """
    spec, errors = parse_partly(text, file, queries)
    if queries and errors:  # their places may be in these queries
        spec, errors = parse_partly(text, file)
    if errors or spec is None:
        raise SpecErrors(errors)
    return spec


def read_spec(path: Path) -> tuple[Spec | None, list[SpecError]]:
    """Return the valid part of a pipeline file and all its errors. The valid part is complete enough to check names.

    Raises `UsageError` as `load_spec` does.
    """
    from ddcli.spec.file import read_text

    return parse_partly(read_text(path), str(path))


def parse_partly(
    text: str, file: str, queries: Mapping[str, Sequence[str]] | None = None
) -> tuple[Spec | None, list[SpecError]]:
    """Return the valid part of a pipeline file's text and all its errors.

    Inputs, collections and outputs with errors are left out, so others may refer to names that are missing from the result. Without
    a pipeline name, inputs and outputs there is no valid part: None.
    """
    from ddcli.plan.operators.table import OPERATORS
    from ddcli.spec import document

    return document.parse_partly(text, file, OPERATORS, queries)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of pipeline files, for editors.

    It knows shapes and keys; names, types of columns and expressions are checked by `load_spec` and the planner.
    """
    from ddcli.plan.operators.table import OPERATORS
    from ddcli.spec import document

    return document.json_schema(OPERATORS)


@dataclass
class BoundPipeline:
    """A pipeline file with the columns of each input without its times, and the columns of the time that the inputs share.

    `keys` belong to inputs that another pipeline keeps arranged; a caller that reads such an input as a log leaves them out. The modules
    that build the graph and the plan are imported when these are asked for: a warm run needs none of them.
    """

    spec: Spec
    schemas: Mapping[str, Schema]
    time: Schema
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sizes: Callable[[], Mapping[str, int]] = dict
    """Returns the known sizes of inputs in bytes, on which the choices of a new plan depend."""

    @property
    def kinds(self) -> list[Type]:
        """The types of the coordinates of time."""
        return list(self.time.values())

    @cached_property
    def section(self) -> Section:
        """The file's collections, built, with all errors."""
        from ddcli.plan.build import built

        return built(self.spec, self.schemas, self.kinds, self.keys)

    @cached_property
    def graph(self) -> Graph:
        """The logical graph of the outputs and exports. Raises SpecErrors with all errors of the file."""
        from ddcli.plan.build import graph_of

        found = graph_of(self.section, self.spec, self.kinds)
        hide(found.tags.get("", {}))
        return found

    @cached_property
    def relations(self) -> dict[str, Relation]:
        """Every input and collection by name. Raises SpecErrors with all errors of the file."""
        from ddcli.plan.build import relations_of

        found = relations_of(self.section, self.spec)
        if any(self.spec.tags.values()):
            from ddcli.plan.lineage import hide_tagged

            hide_tagged(self.spec.tags, [relation.node for relation in found.values()])
        return found

    def plan(self, cached: Mapping[str, Any] | None = None) -> Plan:
        """Return the plan; `cached` is the plan of a state (`Plan.to_json`), whose choices are kept for the nodes that it has."""
        from ddcli.plan.generations import by_sizes, known_generations, plan

        return plan(self.graph, known_generations(cached), by_sizes(self.sizes()))


@frozen
class OperatorPlace:
    """The path of an operator in the file, `collections.big.apply[2].join`, its place, and a word for its work.

    All nodes of a file's operator have its place; nodes of a query, and those that several operators share, have the place of the first that computes them.
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

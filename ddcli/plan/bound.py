"""A pipeline bound to the columns of its inputs: all that a plan depends on, wherever the columns come from."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.privacy import hide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ddcli.expressions.types import Schema, Type
    from ddcli.plan.generations import Plan
    from ddcli.plan.node import Graph
    from ddcli.plan.relation import Relation
    from ddcli.spec.model import Spec


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
    def graph(self) -> Graph:
        """The logical graph of the outputs and exports. Raises SpecErrors with all errors of the file."""
        from ddcli.plan.build import build

        found = build(self.spec, self.schemas, self.kinds, self.keys)
        hide(found.tags.get("", {}))
        return found

    @cached_property
    def relations(self) -> dict[str, Relation]:
        """Every input and collection by name. Raises SpecErrors with all errors of the file."""
        from ddcli.plan.build import build_collections
        from ddcli.plan.lineage import hide_tagged

        found = build_collections(self.spec, self.schemas, self.kinds, self.keys)
        hide_tagged(self.spec.tags, [relation.node for relation in found.values()])
        return found

    def plan(self, cached: Mapping[str, Any] | None = None) -> Plan:
        """Return the plan; `cached` is the plan of a state (`Plan.to_json`), whose choices are kept for the nodes that it has."""
        from ddcli.plan.generations import by_sizes, known_generations, plan

        return plan(self.graph, known_generations(cached), by_sizes(self.sizes()))

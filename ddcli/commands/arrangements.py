"""Descriptions of the arrangements of a state, in the names of its pipeline file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.driver.prepare import bind_remembered
from ddcli.errors import DdError
from ddcli.job.request import read_request
from ddcli.plan.changes import describe
from ddcli.plan.memo import remembered
from ddcli.plan.physical import WAITING, Arrangement, Linear
from ddcli.plan.pipeline_file import places
from ddcli.plan.relation import PRESENCE
from ddcli.plan.words import ALL, OWN, copied, named
from ddcli.store.state.outputs import file_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ddcli.plan.generations import Plan
    from ddcli.plan.node import Node
    from ddcli.plan.pipeline_file import BoundPipeline, OperatorPlace
    from ddcli.store.state.manifest import Manifest

COMPUTED = "computed"
"""The column of a key that a query computes."""


def names_of(directory: Path, manifest: Manifest, pipeline: Path | None) -> dict[str, str]:
    """Return a description of each arrangement, by its identity: `orders by customer`; none if the file has changed since.

    The default file is the one whose path is in the state.
    """
    file = pipeline or file_of(directory, manifest)
    try:
        if file is None or not file.is_file():
            return {}
        bound = bind_remembered(read_request(file, directory), manifest)
        plan = bound.plan(manifest.cache["plan"])
    except (DdError, KeyError):  # a file that is gone, broken, or has other inputs by now
        return {}
    if plan.fingerprint != manifest.plan:
        return {}
    names, at = _collections(bound, plan), places(bound, plan)
    found = {node.fingerprint: _name(node, names, at) for node in plan.graph.nodes}
    for identity, node in remembered(plan.graph.nodes).items():
        found[identity] = node.title if identity == node.answers else f"records that wait for {node.function}"
    return {one: found[bare] for one in manifest.arrangements if (bare := one.removesuffix(WAITING)) in found}


def columns_of_file(key: Iterable[str]) -> list[str]:
    """Return the columns of a key without those that the plan adds for a single group of all rows; one that a query computes has no name."""
    whole = tuple(key)
    shown = [copied(name, whole) for name in whole if name not in {ALL, PRESENCE}]
    return [COMPUTED if OWN.fullmatch(name) else named(name) for name in shown]


def _collections(bound: BoundPipeline, plan: Plan) -> dict[str, str]:
    """Return the names of inputs and collections by the nodes that have their records, or from which linear operators compute these.

    A node below several collections has the name of the nearest.
    """
    found: dict[str, tuple[int, str]] = {}
    for name, relation in bound.relations.items():
        for node in plan.lowered(relation.node):
            steps, below = 0, node
            while True:
                found[below.fingerprint] = min(found.get(below.fingerprint, (steps, name)), (steps, name))
                if not isinstance(below, Linear):
                    break
                steps, below = steps + 1, below.inputs[0]
    return {fingerprint: name for fingerprint, (_, name) in found.items()}


def _name(node: Node, names: Mapping[str, str], at: Mapping[str, OperatorPlace]) -> str:
    """Return the collection that an arrangement has; of one between the operators of a collection its words, and the collection's name."""
    if isinstance(node, Arrangement) and node.inputs[0].fingerprint in names:
        by = node.groups
        return f"{names[node.inputs[0].fingerprint]} by {by}" if by else names[node.inputs[0].fingerprint]
    if node.fingerprint in names:
        return names[node.fingerprint]
    place = at.get(node.fingerprint)
    return describe(node) + (f" ({place.collection})" if place is not None and place.collection else "")

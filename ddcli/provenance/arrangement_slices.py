"""Slices of a state's arrangements: the rows whose value of a key column is in the slice, as they are stored and computed from the inputs.

An arrangement is compared if some column of its key divides it and restricts all inputs below, so that its slice costs what its rows cost. The physical graph is
then run in memory over the rows that matter, all arrangements that the same rows decide at once. Others, as of totals and loops, are compared where everything is computed anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.circuit.trial import Trial
from ddcli.driver.prepare import before, bind_remembered
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode
from ddcli.plan import words
from ddcli.plan.physical import WAITING
from ddcli.plan.physical_graph import physical_graph
from ddcli.provenance.inputs import KeySet
from ddcli.sources.arrangement_input import SharedReader
from ddcli.store.batch.layout import BatchLayout
from ddcli.store.batch.stored_batch import stored_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ddcli.engine.columns import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.job.request import Request
    from ddcli.plan.node import Node
    from ddcli.provenance.inputs import Restrictions
    from ddcli.provenance.slices import SliceNumber, Slices
    from ddcli.store.state.manifest import Manifest


def verify_arrangements(slices: Slices, manifest: Manifest, part: SliceNumber) -> dict[str, bool]:
    """Return the verdicts on the slices of a state's arrangements, by the operators that keep them: True is right. Times have one coordinate."""
    found = dict[str, bool]()
    plan = bind_remembered(slices.inputs.request, manifest).plan(manifest.cache["plan"])
    if plan.fingerprint == manifest.plan:
        for nodes, restrictions in _together(slices, manifest, part, plan.graph.nodes):
            found |= _compared(slices, manifest, part, nodes, restrictions)
    return by_title(found, slices.inputs.request, manifest)


def by_title(verdicts: Mapping[str, bool], request: Request, manifest: Manifest) -> dict[str, bool]:
    """Return verdicts on arrangements by the words of their operators: False where that of one is."""
    outline, found = manifest.cache["plan"]["outline"]["nodes"], dict[str, bool]()
    nodes = bind_remembered(request, manifest).plan(manifest.cache["plan"]).graph.nodes if verdicts else ()
    texts = {node.fingerprint: (node.kind, _described(node)) for node in nodes}
    for identity, same in verdicts.items():
        title = " ".join(filter(None, (outline.get(identity) or texts.get(identity) or [identity])[:2]))
        found[title] = found.get(title, True) and same
    return found


def _described(node: Node) -> str:
    """Return the details of a node and its columns, without those that are the plan's own."""
    shown = dict.fromkeys(words.named(name) for name in node.schema if not words.OWN.fullmatch(name))
    return f"{'; '.join(node.details())} ({', '.join(shown)})"


def _together(
    slices: Slices, manifest: Manifest, part: SliceNumber, plan: Iterable[Node]
) -> Iterator[tuple[dict[str, tuple[Node, str]], Restrictions]]:
    """Yield the nodes whose arrangements can be sliced, each with its column, and the restrictions of the inputs that they share."""
    values: dict[str, KeySet] = {}
    groups: dict[str, tuple[dict[str, tuple[Node, str]], Restrictions]] = {}
    for node in plan:
        entry = manifest.arrangements.get(node.fingerprint)
        column = _column(slices, node, entry.key) if entry is not None and not node.free else None
        if column is None:
            continue
        origins = repr([(source.fingerprint, own) for source, own in slices.origins(node, column) or ()])
        if origins not in values:
            values[origins] = KeySet(slices.values(node, column, part))
        restrictions = slices.restrictions(node, {column: values[origins]})
        nodes, _ = groups.setdefault(repr(sorted(restrictions.sources.items())), ({}, restrictions))
        nodes[node.fingerprint] = node, column
    yield from groups.values()


def _column(slices: Slices, node: Node, key: tuple[str, ...]) -> str | None:
    """Return a column of a key that divides the node's arrangement and restricts all inputs below it."""
    for name in key:
        restricted = slices.restricted(node, name) if name in node.schema else None
        if restricted is not None and all(
            restricted.alternatives(source) is not None and not isinstance(slices.inputs.readers[source], SharedReader)
            for source in restricted.sources
        ):
            return name
    return None


def _compared(
    slices: Slices,
    manifest: Manifest,
    part: SliceNumber,
    nodes: Mapping[str, tuple[Node, str]],
    restrictions: Restrictions,
) -> dict[str, bool]:
    """Return the verdicts on the slices of some arrangements, by identity."""
    inputs, upper = slices.inputs, before(slices.at)
    graph = physical_graph({identity: node for identity, (node, _) in nodes.items()})
    scans = graph.scans()
    facts = {name: each for name, each in inputs.facts(upper).items() if name in scans}
    trial = Trial(graph, inputs.kinds, inputs.pool, facts=facts, lenient=True, answers=inputs.answers)
    trial.close(upper, inputs.updates({name: scans[name] for name in trial.layouts}, upper, restrictions))
    found = {}
    for kept in trial.kept:
        if kept.identity not in nodes or kept.identity.endswith(WAITING):
            continue
        column = nodes[kept.identity][1]
        layout = BatchLayout.of(manifest.arrangements[kept.identity], 1)
        made = [(kernels.matrix(rows), inputs.pool) for rows in kept.trace.resident()]
        stored = _stored(slices, manifest, kept.identity)
        anew, kept_rows = (_slice(parts, layout, column, part) for parts in (made, stored))
        found[kept.identity] = np.array_equal(anew, kept_rows)
    return found


def _stored(slices: Slices, manifest: Manifest, identity: str) -> Iterator[tuple[Matrix, Pool]]:
    """Yield the updates of an arrangement in parts, with the pool of each."""
    entry, inputs = manifest.arrangements[identity], slices.inputs
    for shard in range(len(entry.shards)):
        _, batches = stored_batches(inputs.request.state, identity, entry, shard, inputs.pool.secret)
        for batch in batches:
            yield from batch.parts()


def _slice(parts: Iterable[tuple[Matrix, Pool]], layout: BatchLayout, column: str, part: SliceNumber) -> Matrix:
    """Return the rows of an arrangement in a slice, with their multiplicities and without times."""
    lanes, kind = layout.record.lanes(column), {column: layout.record.schema[column]}
    found = [np.empty((0, layout.record.width + 1), np.int64)]
    for matrix, pool in parts:
        values = decode(matrix, Layout(kind), pool, at=lanes.start)[column]
        chosen = matrix[part.has(values).to_numpy()]
        found.append(chosen[:, [*range(layout.record.width), -1]])
    return kernels.consolidate(np.ascontiguousarray(np.concatenate(found)))

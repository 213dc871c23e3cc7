"""Rows that are forgotten at the cost of what they touch: of state, outputs and ledgers only the files that hold something of them are written again.

The graph is computed in memory over the partitions of these rows alone (see `plan.lineage`), with and without them: at once, or, where outputs keep
rows apart by different columns, the outputs by each of these, and those that mix all rows over all of them. The difference, at all
times, is added to the batches and to the files of outputs that have these times, so that nothing is left there that came from the rows alone. Each record of the
difference is looked up in all files before, and what it then has there must be what the computation says; else, and where the conditions below don't
hold, everything is computed anew by `migration`.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.dataclass import dataclass
from ddcli.driver import forgotten_parts
from ddcli.driver.check_gate import CheckGate
from ddcli.driver.forgotten_parts import ComputedUpdates, ForgottenPart, forgetting_of
from ddcli.driver.ledgers import with_clean_ledgers
from ddcli.driver.rebuild import readers_of
from ddcli.driver.step import OWN_TIMES, commit
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout
from ddcli.engine.pool import Pool
from ddcli.engine.times import LEAST, Frontier
from ddcli.errors import DdError
from ddcli.job.sizes import rows_held
from ddcli.plan.lineage import Partitions
from ddcli.plan.memo import remembered
from ddcli.plan.physical import WAITING, physical_graph
from ddcli.sinks.replacement import CorrectingWriter, Uncorrectable, has_times, replace_archived, spans
from ddcli.sinks.side_logs import NotedUpdates
from ddcli.sources.readers import FORGOTTEN_ROWS, UNCLEAN, find_forgotten, in_files
from ddcli.store.batch.checked_files import OpenBundles
from ddcli.store.batch.compaction import Fresh, compact_together
from ddcli.store.batch.correction import Correction, advanced, records_of
from ddcli.store.batch.file import BatchLayout
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.log.writer import output_frame
from ddcli.store.state.contents import batch_path, ours
from ddcli.store.state.document import OF_LOG
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.driver.rebuild import Rebuild
    from ddcli.engine.lanes import Matrix
    from ddcli.job.corrections import ErasureRequest
    from ddcli.plan.node import Node
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.store.log.reader import LogReader
    from ddcli.store.log.rows import RowCondition
    from ddcli.store.state.directory import State
    from ddcli.store.state.entries import ArrangementEntry, Times
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction


def erase(rebuild: Rebuild, state: State | None) -> Manifest | None:
    """Forget the rows of a request, and commit that to `state`; in a dry run find them only. Return the manifest, or None where everything is to be computed anew."""
    forgetting = rebuild.request.decided.forgetting
    assert forgetting is not None, "the request forgets rows"
    graph = rebuild.changes.plan.graph
    if not _is_possible(rebuild, graph):
        return None
    names = frozenset(forgetting.conditions) & graph.scans().keys()
    graphs = _graphs(graph, names)
    readers, _ = readers_of(rebuild, graph)
    own = in_files(readers)
    if state is not None and any(
        _rows_read_whole(*each, own, rebuild.manifest.upper) > forgotten_parts.MOST for each in graphs
    ):
        return None
    find_forgotten(forgetting, rebuild.manifest, readers, rows_held(rebuild.request.asked.resources.memory))
    if state is None:
        return rebuild.manifest
    if not all(_has_same_tables(own[name], forgetting.conditions[name], rebuild.manifest.upper) for name in names):
        return None
    erasure = _Erasure(rebuild, graph, graphs, own, state)
    try:
        computed = erasure.computed()
    except (DdError, Uncorrectable):
        return None  # if there is something wrong, the other way reports it
    try:
        return erasure.commit(*computed)
    except Uncorrectable:
        return None


def forgotten_notes(forgetting: ErasureRequest, number: int) -> dict[str, Any]:
    """Return the notes on forgotten rows of a commit with this number: the files that still have them, with digests of the rows."""
    return {UNCLEAN: forgetting.unclean, FORGOTTEN_ROWS: forgetting.digests, "forgot": number}


def _rows_read_whole(
    graph: PhysicalGraph, partitions: Partitions, readers: Mapping[str, LogReader], upper: Times
) -> int:
    """Return the number of rows, at most, of inputs that a graph reads as a whole, as they have no partitions."""
    whole = [name for name, scan in graph.scans().items() if not partitions.has(scan)]
    return sum(readers[name].take((), None, upper).rows for name in whole)


def _graphs(graph: PhysicalGraph, names: frozenset[str]) -> list[tuple[PhysicalGraph, Partitions]]:
    """Return the graphs to compute, each with its partitions by columns of some inputs: the whole one, or the graphs of those outputs that have the same ones.

    Outputs that mix all rows are in the last one, which has no such columns. What is computed from other inputs alone is in none of them.
    """
    if (whole := _partitions(graph, names)).columns:
        return [(graph, whole)]
    outputs: dict[tuple[str, ...], dict[str, Node]] = {}
    for name, node in graph.outputs.items():
        own = physical_graph({name: node})
        if some := names & own.scans().keys():
            outputs.setdefault(_partitions(own, some).columns, {})[name] = node
    graphs = [physical_graph(each) for _, each in sorted(outputs.items(), key=lambda pair: not pair[0])]
    return [(each, _partitions(each, names & each.scans().keys())) for each in graphs]


def _partitions(graph: PhysicalGraph, names: frozenset[str]) -> Partitions:
    """Return the partitions of a graph by columns of some inputs: of others, too, if they have these columns and nothing of their other rows is needed."""
    found = Partitions(graph, names)
    if not found.columns:
        return found
    others = {name for name, scan in graph.scans().items() if any(column in scan.schema for column in found.columns)}
    wider = Partitions(graph, names | others)
    return wider if wider.columns else found


def _is_possible(rebuild: Rebuild, graph: PhysicalGraph) -> bool:
    """Return whether all updates of state and outputs are at the times of the rows that they come from, and these rows can be read as they were."""
    request, manifest = rebuild.request, rebuild.manifest
    unclean = manifest.cache.get(UNCLEAN, {})
    return (
        bool(manifest.upper)
        and manifest.cache.get(OWN_TIMES, False)
        and not remembered(graph.nodes)
        and not any(ours(directory, OF_LOG) for directory in request.side_logs)
        and all(
            has_times(lower, upper) for entry in manifest.outputs.values() for _, lower, upper in spans(entry.files)
        )
        and all(
            given.shared is None
            and given.progress is None
            and not given.listing.growing
            and not given.listing.summed
            and {file.key: file.fingerprint for file in given.listing.to_read}
            == {file.key: file.fingerprint for file in manifest.inputs[name].files if not file.withdrawn}
            and not any(file.since or file.forgotten for file in manifest.inputs[name].files)
            and not any(unclean.get(name, {}).get(file.key) == file.fingerprint for file in given.listing.to_read)
            for name, given in rebuild.found.items()
        )
    )


def _has_same_tables(reader: LogReader, condition: RowCondition, upper: Times) -> bool:
    """Return whether an input whose rows are whole tables has the same ones, at the same times, without the rows for which a condition holds.

    A time all of whose rows are forgotten has none, and where tables have an order, the rows with the greatest may be forgotten.
    """
    if not reader.log.tables:
        return True
    found = []
    for without in (condition, None):
        reader.without = without
        reader.follow(None)
        found.append((reader.snapshot_times(None, upper), reader.tables))
    return found[0] == found[1]


@dataclass
class _Erasure:
    """The way to forget rows of the partitions of some graphs, which have all that depends on them of the whole `graph`."""

    rebuild: Rebuild
    graph: PhysicalGraph
    graphs: Sequence[tuple[PhysicalGraph, Partitions]]
    readers: Mapping[str, LogReader]
    state: State

    @cached_property
    def pool(self) -> Pool:
        """The pool of all values, of the state's lanes."""
        return Pool(self.rebuild.secret)

    def computed(self) -> tuple[ComputedUpdates, ComputedUpdates, dict[str, Layout]]:
        """Return what the graphs compute of their partitions with the rows, and without them, and the layouts of outputs."""
        found, layouts = (ComputedUpdates({}, {}), ComputedUpdates({}, {})), dict[str, Layout]()
        for graph, partitions in self.graphs:
            part = ForgottenPart(self.rebuild, graph, partitions, self.readers, self.pool)
            *both, outputs = part.computed()
            layouts.update(outputs)
            for each, more in zip(found, both, strict=True):
                each.outputs.update(more.outputs)
                each.arrangements.update(more.arrangements | each.arrangements)
        return *found, layouts

    @cached_property
    def _apart(self) -> frozenset[str]:
        """The fingerprints of nodes on which nothing depends that is computed."""
        computed = {name for graph, _ in self.graphs for name in graph.outputs}
        others = {name: node for name, node in self.graph.outputs.items() if name not in computed}
        return frozenset(node.fingerprint for node in physical_graph(others).nodes)

    def commit(self, old: ComputedUpdates, new: ComputedUpdates, layouts: dict[str, Layout]) -> Manifest:
        """Commit what is left without the rows; return the manifest. Raises Uncorrectable."""
        rebuild, manifest = self.rebuild, self.rebuild.manifest
        with (
            self.state.begin(batches=sum(len(entry.shards) for entry in manifest.arrangements.values())) as transaction,
            ThreadPoolExecutor(1, "dd-erase") as beside,
        ):
            transaction.erases = True
            if not old.arrangements.keys() <= manifest.arrangements.keys():
                raise Uncorrectable
            arrangements = beside.submit(self._arrangements, old, new, transaction)
            forgetting = self._forgetting
            called = f"-forgotten{transaction.number}"
            writer = CorrectingWriter(
                rebuild.request,
                rebuild.time,
                None,
                manifest.upper,
                layouts,
                transaction,
                called=called,
                reopenings=manifest.reopenings,
                orders=self.graph.orders,
                tags=self.graph.tags,
                secret=rebuild.secret,
            )
            outputs = {}
            for name, entry in manifest.outputs.items():
                outputs[name] = entry
                if name in layouts and len(updates := kernels.difference(new.outputs[name], old.outputs[name])):
                    outputs[name], found, horizon = writer.correct(
                        name,
                        entry,
                        updates,
                        self.pool,
                        forgetting,
                        self._placed(self.graph.outputs[name].fingerprint) or (),
                    )
                    self._prove_log(name, updates, found, horizon, (old.outputs[name], new.outputs[name]))
                else:
                    forgetting.kept.extend(entry.files)
            inputs = dict(manifest.inputs) | replace_archived(forgetting, transaction, self.readers, manifest.inputs)
            inputs = with_clean_ledgers(transaction, inputs, forgetting)
            built = dict(manifest.cache.get("built", {})) | dict.fromkeys(
                self.graph.exports.values(), transaction.number
            )
            gate = CheckGate(rebuild.request, manifest, self._noted(old, new, layouts), Counter(), lambda _name: True)
            gate.judge()
            kept = replace(
                manifest,
                engine=__version__,
                inputs=inputs,
                arrangements=arrangements.result(),
                outputs=outputs,
                cache=manifest.cache
                | forgotten_notes(forgetting, transaction.number)
                | ({"built": built} if built else {}),
            )
            return commit(rebuild.request, transaction, gate.written(kept), self.readers)

    @property
    def _forgetting(self) -> ErasureRequest:
        return forgetting_of(self.rebuild)

    def _noted(
        self, old: ComputedUpdates, new: ComputedUpdates, layouts: Mapping[str, Layout]
    ) -> dict[str, NotedUpdates]:
        """Return the updates of the checks' collections that are computed."""
        time, found = self.rebuild.time, {}
        for name in self.rebuild.request.spec.checks.keys() & layouts.keys():
            found[name] = NotedUpdates([*time])
            if len(updates := kernels.difference(new.outputs[name], old.outputs[name])):
                found[name].add(output_frame(updates, layouts[name], self.pool, time))
        return found

    def _arrangements(
        self, old: ComputedUpdates, new: ComputedUpdates, transaction: Transaction
    ) -> dict[str, ArrangementEntry]:
        """Return the entries of all arrangements without what came from the rows alone."""
        entries = self.rebuild.manifest.arrangements.items()
        return {identity: self._arrangement(identity, entry, old, new, transaction) for identity, entry in entries}

    def _arrangement(
        self,
        identity: str,
        entry: ArrangementEntry,
        old: ComputedUpdates,
        new: ComputedUpdates,
        transaction: Transaction,
    ) -> ArrangementEntry:
        """Return the entry of an arrangement without what came from the rows alone."""
        if identity not in old.arrangements:
            if identity.removesuffix(WAITING) in self._apart:
                return entry
            raise Uncorrectable
        before, after = old.arrangements[identity], new.arrangements[identity]
        updates, waiting = kernels.difference(after, before), identity.endswith(WAITING)
        left = waiting and any(identity.removesuffix(WAITING) in each.places for _, each in self.graphs)
        if not len(updates) and not left:
            return entry
        # In a loop times have rounds, too.
        nt = before.shape[1] - BatchLayout.of(entry, 0).record.width - 1
        layout, shards, opened = BatchLayout.of(entry, nt), list(entry.shards), OpenBundles()
        lanes = [*layout.shard_lanes(waiting=waiting)]
        parts = [
            kernels.shard_of(kernels.take(rows, lanes), len(lanes), len(shards))
            if len(shards) > 1
            else np.zeros(len(rows), np.int64)
            for rows in (updates, before, after)
        ]
        since, upper = Frontier(entry.since or ()), Frontier(entry.upper)
        for at, files in enumerate(shards):
            own, there, remaining = (
                np.ascontiguousarray(rows[part == at])
                for rows, part in zip((updates, before, after), parts, strict=True)
            )
            if not len(own) and not (left and len(files) > 1):
                continue
            stored = [
                StoredBatch(
                    batch_path(self.rebuild.request.state, identity, at, file), file, layout, self.pool, bundles=opened
                )
                for file in files
            ]
            if waiting:
                # What waited once is in one batch, and was taken back in another one when its time came.
                fresh = Fresh(own, Frontier([(LEAST,) * nt]), upper, self.pool) if len(own) else None
                compaction = compact_together(layout, stored, fresh, since)
            else:
                correction = Correction(layout, stored, own, self.pool, since, upper)
                if self._placed(identity) is not None and not correction.is_proved(there, remaining):
                    raise Uncorrectable
                compaction = correction.compaction
            shards[at] = compaction.write(transaction, identity, at)
        return replace(entry, shards=tuple(shards))

    def _placed(self, fingerprint: str) -> tuple[str, ...] | None:
        """Return the columns of a node's records that have the values of the partitions' columns: then no other records can be in the same ones; None if one is gone."""
        partitions = next((each for _, each in self.graphs if fingerprint in each.places), None)
        if partitions is None:
            return None
        found = [sorted(partitions.places[fingerprint].get(name, ())) for name in partitions.columns]
        return tuple(some[0] for some in found) if all(found) else None

    def _prove_log(
        self,
        name: str,
        updates: Matrix,
        found: Sequence[tuple[Matrix, Matrix]],
        horizon: Frontier,
        computed: tuple[Matrix, Matrix],
    ) -> None:
        """Raise Uncorrectable if the files of a log had, or have, other updates of the corrected records than were computed."""
        if self._placed(self.graph.outputs[name].fingerprint) is None:
            return
        nt = self.rebuild.nt
        width = updates.shape[1] - nt - 1
        records = kernels.distinct_keys(updates, width)
        for at, wanted in enumerate(computed):
            there = np.concatenate([wanted[:0], *(records_of(pair[at], records) for pair in found)])
            if not np.array_equal(kernels.consolidate(there), advanced(records_of(wanted, records), horizon, nt)):
                raise Uncorrectable

"""The updates of a graph over the partitions of rows that are forgotten, computed in memory with these rows and without them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.circuit.trial import Trial
from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout
from ddcli.engine.times import Frontier
from ddcli.job.sizes import rows_held
from ddcli.sinks.replacement import Uncorrectable
from ddcli.sources.readers import facts_of, in_files, open_logs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddcli.driver.rebuild import Rebuild
    from ddcli.engine.lanes import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.job.corrections import ErasureRequest
    from ddcli.plan.lineage import Partitions
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.store.log.reader import LogReader
    from ddcli.store.log.rows import RowCondition, Rows

MOST = 1 << 20
"""Rows of the partitions, or of the inputs of outputs that mix all rows, above which computing everything anew is no slower: it computes once, in several threads."""


@frozen
class ComputedUpdates:
    """The updates of all outputs, and of all arrangements, of some rows."""

    outputs: dict[str, Matrix]
    arrangements: dict[str, Matrix]


@dataclass
class ForgottenPart:
    """A graph, computed over the partitions of the forgotten rows, by columns of inputs."""

    rebuild: Rebuild
    graph: PhysicalGraph
    partitions: Partitions
    readers: Mapping[str, LogReader]
    pool: Pool

    @cached_property
    def _forgetting(self) -> ErasureRequest:
        return forgetting_of(self.rebuild)

    @cached_property
    def _conditions(self) -> Mapping[str, RowCondition]:
        """The conditions on inputs that the graph reads."""
        return {name: each for name, each in self._forgetting.conditions.items() if name in self.graph.scans()}

    def computed(self) -> tuple[ComputedUpdates, ComputedUpdates, dict[str, Layout]]:
        """Return what the graph computes of the partitions with the rows, and without them, and the layouts of outputs."""
        fed: tuple[dict[str, Matrix], dict[str, Matrix]] = ({}, {})
        values = self._values()
        total = 0
        for name, scan in self.graph.scans().items():
            parts: tuple[list[Matrix], list[Matrix]] = ([], [])
            layout = Layout(scan.schema)
            for rows, gone in self._rows(name, values):
                rows = rows._replace(frame=rows.frame.select(list(scan.schema)))
                matrix = rows.matrix(layout, self.pool)
                total += len(matrix)
                if total > MOST:
                    raise Uncorrectable
                parts[0].append(matrix)
                parts[1].append(matrix[~gone] if gone is not None else matrix)
            nothing = np.empty((0, layout.width + self.rebuild.nt + 1), np.int64)
            for each, some in zip(fed, parts, strict=True):
                each[name] = np.ascontiguousarray(np.concatenate([nothing, *some]))
        upper = Frontier(self.rebuild.manifest.upper)
        facts = facts_of(self.rebuild.request.spec, self.readers, None, upper.elements)
        found = []
        layouts: dict[str, Layout] = {}
        for each in fed:
            trial = Trial(self.graph, self.rebuild.kinds, self.pool, facts=facts)
            outputs = trial.close(upper, each)
            contents = {
                kept.identity: kernels.consolidate(np.concatenate(matrices))
                if (matrices := kept.trace.matrices())
                else np.empty((0, kept.key.width + kept.value.width + kept.trace.nt + 1), np.int64)
                for kept in trial.kept
            }
            found.append(ComputedUpdates(outputs, contents))
            layouts = dict(trial.outputs)
        return found[0], found[1], layouts

    def _values(self) -> pl.DataFrame | None:
        """Return the values of the partitions' columns in the rows that are forgotten; None where the condition alone decides which these are."""
        columns = self.partitions.columns
        if not columns or self._decided:
            return None
        found = [
            rows.frame.filter(pl.Series(gone)).select(columns).unique()
            for name in self._conditions
            for rows, gone in self._read(self._unclean(name), name, columns)
            if gone is not None
        ]
        return pl.concat(found).unique() if found else None

    @property
    def _decided(self) -> bool:
        """Return whether all rows of a partition are forgotten, or none, and only inputs with such rows have partitions."""
        wide = {name for name in self.graph.scans() if self._is_parted(name)}
        conditions = self._conditions
        return wide <= conditions.keys() and all(
            set(condition.columns) <= {*self.partitions.columns} for condition in conditions.values()
        )

    def _is_parted(self, name: str) -> bool:
        """Return whether an input has the partitions."""
        return self.partitions.has(self.graph.scans()[name])

    def _rows(self, name: str, values: pl.DataFrame | None) -> Iterator[tuple[Rows, np.ndarray[Any, Any] | None]]:
        """Yield the rows of an input that matter, and which of them are forgotten, of an input that has such rows."""
        scan = self.graph.scans()[name]
        if not self._is_parted(name):
            yield from self._read(self.readers[name], name, tuple(scan.schema))
            return
        reader = self._unclean(name) if self._decided else self.readers[name]
        for rows, gone in self._read(reader, name, tuple(scan.schema)):
            if self._decided:
                assert gone is not None
                inside = gone
            elif values is None:
                continue
            else:
                columns = [*self.partitions.columns]
                numbers = rows.frame.select(columns).with_row_index("\0row")
                found = numbers.join(values, on=columns, how="semi", nulls_equal=True)["\0row"]
                inside = np.zeros(rows.frame.height, np.bool_)
                inside[found.to_numpy()] = True
            if inside.any():
                yield rows.chosen(pl.Series(inside)), None if gone is None else gone[inside]

    def _read(
        self, reader: LogReader, name: str, columns: Sequence[str]
    ) -> Iterator[tuple[Rows, np.ndarray[Any, Any] | None]]:
        """Yield the rows of an input's files before the frontier, and which of them are forgotten."""
        condition = self._forgetting.conditions.get(name)
        wanted = columns if condition is None else tuple(dict.fromkeys((*columns, *condition.columns)))
        reader.without = None
        most = rows_held(self.rebuild.request.asked.resources.memory)
        for part in reader.take(wanted, None, self.rebuild.manifest.upper, most).slices:
            rows = part.read()
            yield rows, None if condition is None else (~condition.keeps(rows.frame)).to_numpy()

    def _unclean(self, name: str) -> LogReader:
        """Return a reader of the files of an input that have rows that are forgotten."""
        forgetting, given = self._forgetting, self.rebuild.found[name]
        keys = {*forgetting.unclean.get(name, ()), *(file.key for file, _ in forgetting.archived.get(name, ()))}
        listing = given.listing
        tables = self.readers[name].tables
        if keys.issuperset(file.key for file in listing.to_read) or (tables is not None and tables.newest is not None):
            return self.readers[name]  # which of ordered tables count is only known from all files
        if tables is not None:
            keys &= {file.key for at, file in enumerate(listing.to_read) if at in tables.files}
        some = replace(
            given,
            listing=replace(
                listing,
                new=tuple(file for file in listing.new if file.key in keys),
                waiting=tuple(file for file in listing.waiting if file.key in keys),
            ),
        )
        before = self.rebuild.manifest.read_anew()
        most = rows_held(self.rebuild.request.asked.resources.memory)
        (reader,) = in_files(open_logs(self.rebuild.request, before, {name: some}, most)).values()
        return reader


def forgetting_of(rebuild: Rebuild) -> ErasureRequest:
    """Return the rows that a rebuild forgets."""
    forgetting = rebuild.request.decided.forgetting
    assert forgetting is not None
    return forgetting

"""The inputs of a pipeline as of a time: the updates that may matter, as matrices, and where each of them is written."""

from __future__ import annotations

from dataclasses import field
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.driver.prepare import prepare
from ddcli.engine.lanes import Layout, decode_records
from ddcli.engine.pool import Pool
from ddcli.engine.secret import new_secret
from ddcli.engine.times import BEYOND, Frontier, Time, box
from ddcli.job.functions import load_functions
from ddcli.job.request import newest_of
from ddcli.sources.imported import SharedReader
from ddcli.sources.input_format import InputFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.circuit.trial import Matrix
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.request import Request
    from ddcli.plan import logical
    from ddcli.plan.relation import Relation
    from ddcli.provenance.restriction import Restrictions
    from ddcli.sources.readers import Reader
    from ddcli.store.log.rows import Rows

TOGETHER = 1 << 20
"""Rows that are read together."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where an update is written: a line of a file of text (`orders.csv:7`), else a file and the row in it, counted from 0."""

    file: str
    row: int | None


@dataclass
class Inputs:
    """The inputs of a request, open. `sources` are their nodes in the graph, by name."""

    request: Request
    readers: dict[str, Reader]
    time: Schema
    relations: dict[str, Relation]
    pool: Pool = field(default_factory=lambda: Pool(new_secret()))

    @classmethod
    def of(cls, request: Request) -> Inputs:
        """Open the inputs of a request and build its collections."""
        ready = prepare(request, newest_of(request), TOGETHER, whole=True)
        relations = ready.bound.relations
        load_functions(request.spec, request.base)
        return cls(request, ready.readers, ready.bound.time, relations)

    @property
    def kinds(self) -> Sequence[Type]:
        """The types of the coordinates of time."""
        return list(self.time.values())

    def latest(self) -> Time | None:
        """Return the largest value of each coordinate of time that there is."""
        found = [time for reader in self.readers.values() if (time := _latest(reader))]
        return tuple(map(max, zip(*found, strict=True))) if found else None

    def updates(
        self, sources: Mapping[str, logical.Source], upper: Frontier, restrictions: Restrictions
    ) -> dict[str, Matrix]:
        """Return the updates before a frontier that may matter, of all columns of each source."""
        return {name: self._read(name, source, upper, restrictions) for name, source in sources.items()}

    def _read(self, name: str, source: logical.Source, upper: Frontier, restrictions: Restrictions) -> Matrix:
        reader, layout = self.readers[name], Layout(source.schema)
        parts = [np.empty((0, layout.width + len(self.time) + 1), np.int64)]
        alternatives = restrictions.alternatives(name)
        for piece in reader.take(layout.names, None, upper.elements, TOGETHER).slices:
            if isinstance(reader, SharedReader):
                parts.append(piece.matrix(layout, self.pool))
            else:
                parts.append(_kept(piece.read(), alternatives).matrix(layout, self.pool))
        return np.concatenate(parts)

    def facts(self, upper: Frontier) -> dict[str, InputFacts]:
        """Return what operators of inputs with keys or tables must know, before a frontier."""
        found = {}
        for name, reader in self.readers.items():
            given = self.request.spec.inputs[name]
            if isinstance(reader, SharedReader):
                continue
            if given.format == "snapshots":
                found[name] = InputFacts(given, reader, reader.snapshot_times(None, upper.elements))
            elif given.key or given.negative != "allow":
                found[name] = InputFacts(given, reader, truncations=reader.truncations(None, upper.elements))
        return found

    def places(self, name: str, source: logical.Source, wanted: Matrix) -> dict[bytes, list[Where]]:
        """Return where some updates of an input are written, by the bytes of their rows: one that is written twice is in two places."""
        reader, layout = self.readers[name], Layout(source.schema)
        if isinstance(reader, SharedReader):  # its rows have no place of their own
            return {row.tobytes(): [Where(_near(str(reader.listing.root)), None)] for row in wanted}
        found: dict[bytes, list[Where]] = {row.tobytes(): [] for row in wanted}
        width = layout.width
        times = [np.unique(column) for column in wanted[:, width:-1].T]
        for path, first, rows in reader.parts(layout.names, TOGETHER):
            mask = np.ones(len(rows.diffs), np.bool_)
            for column, values in zip(rows.times.iter_columns(), times, strict=True):
                mask &= np.isin(column.to_numpy(), values)
            chosen = rows.chosen(pl.Series(mask))
            assert chosen.rows is not None
            for of, row in zip(chosen.rows, chosen.matrix(layout, self.pool), strict=True):
                if (at := row.tobytes()) in found:
                    found[at].append(_where(reader.place(path, first + of), path, first + of))
        return found

    def show(self, source: logical.Source, matrix: Matrix) -> list[tuple[dict[str, Any], Time, int]]:
        """Return updates as values: data columns by name, time, diff."""
        layout = Layout(source.schema)
        records = decode_records(matrix, layout, self.pool)
        rest = matrix[:, layout.width :].tolist()
        return [
            ({n: v for n, v in zip(layout.names, record, strict=True) if not n.startswith("$")}, tuple(time), diff)
            for record, (*time, diff) in zip(records, rest, strict=True)
        ]


def before(time: Time) -> Frontier:
    """Return the frontier that closes the times up to one."""
    return box(tuple(value + 1 for value in time))


def _latest(reader: Reader) -> Time | None:
    """Return the largest value of each coordinate of time in an input; of one that another pipeline keeps, the last that it has closed."""
    if not isinstance(reader, SharedReader):
        return reader.largest_time()
    corners = Frontier(reader.shared.manifest.upper).corners() if reader.shared.manifest.upper else ()
    return tuple(value - 1 for value in corners[0]) if len(corners) == 1 and BEYOND not in corners[0] else None


def _near(place: str) -> str:
    """Return a place from where we are, if it is below."""
    path = Path(place)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else place


def _where(place: str, path: Path, row: int) -> Where:
    """Return the file and line of a row, by the reader's `place`."""
    return Where(_near(place), row if place == str(path) else None)


def _kept(rows: Rows, alternatives: Iterable[dict[str, Any]] | None) -> Rows:
    """Return the rows that are one of the alternatives, or all."""
    if alternatives is None:
        return rows
    each = [
        reduce(and_, (pl.col(name).eq_missing(pl.lit(value)) for name, value in one.items())) for one in alternatives
    ]
    return rows.chosen(rows.frame.select(reduce(or_, each, pl.lit(value=False))).to_series())

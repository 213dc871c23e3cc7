"""The inputs of a pipeline from their beginning: their updates before a frontier, as matrices, whether or not a state has taken them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Self

import numpy as np

from ddcli.circuit.traces import StateAnswers
from ddcli.dataclass import dataclass
from ddcli.driver.prepare import prepare
from ddcli.engine.pool import Pool, new_secret
from ddcli.engine.times import BEYOND, Frontier, Time, box
from ddcli.job.functions import load_functions
from ddcli.job.request import newest_of
from ddcli.sources.arrangement_input import SharedReader
from ddcli.sources.input_format import InputFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.driver.prepare import Prepared
    from ddcli.engine.columns import Matrix
    from ddcli.engine.lanes import Layout
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.request import Request
    from ddcli.plan.relation import Relation
    from ddcli.sources.readers import Reader
    from ddcli.store.log.rows import Rows

TOGETHER = 1 << 20
"""Rows that are read together."""


@dataclass
class WholeInputs:
    """The inputs of a request, open, and its collections. All values are in `pool`. `answers` are the results of functions that remember."""

    request: Request
    ready: Prepared
    pool: Pool = field(default_factory=lambda: Pool(new_secret()))
    answers: StateAnswers | None = None

    @classmethod
    def of(cls, request: Request, *, taken: bool = False) -> Self:
        """Open the inputs of a request, or the files of them that its state has `taken`, and build its collections."""
        manifest = newest_of(request)
        found = cls(request, prepare(request, manifest, TOGETHER, whole=True, taken=taken))
        if manifest is not None:
            found.pool, found.answers = Pool(manifest.secret_bytes), StateAnswers(request.state, manifest)
        _ = found.relations  # errors of the file come before its functions' errors
        load_functions(request.spec)
        return found

    @classmethod
    def stateless(cls, request: Request) -> Self:
        """Open the inputs of a request that has neither a state nor a pipeline file."""
        return cls(request, prepare(request, None, TOGETHER, whole=True))

    @property
    def readers(self) -> dict[str, Reader]:
        """The inputs' readers."""
        return self.ready.readers

    @property
    def relations(self) -> dict[str, Relation]:
        """The inputs and collections by name."""
        return self.ready.bound.relations

    @property
    def time(self) -> Schema:
        """The columns of the time."""
        return self.ready.bound.time

    @property
    def kinds(self) -> Sequence[Type]:
        """The types of the coordinates of time."""
        return list(self.time.values())

    def latest(self) -> Time | None:
        """Return the largest value of each coordinate of time in the inputs; None without rows."""
        found = [time for reader in self.readers.values() if (time := _latest(reader))]
        return tuple(map(max, zip(*found, strict=True))) if found else None

    def matrix(
        self, name: str, layout: Layout, upper: Frontier, kept: Callable[[Rows], Rows] = lambda rows: rows
    ) -> Matrix:
        """Return an input's updates before a frontier, in the columns of a layout; `kept` selects the rows of a log."""
        parts = [np.empty((0, layout.width + len(self.time) + 1), np.int64)]
        reader = self.readers[name]
        for piece in reader.take(layout.names, None, upper.elements, TOGETHER).slices:
            if isinstance(reader, SharedReader):
                parts.append(piece.matrix(layout, self.pool))
            else:
                parts.append(kept(piece.read()).matrix(layout, self.pool))
        return np.concatenate(parts)

    def facts(self, upper: Frontier) -> dict[str, InputFacts]:
        """Return the facts that operators of inputs with keys or tables need, before a frontier."""
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


def before(time: Time) -> Frontier:
    """Return the frontier that closes the times up to one."""
    return box(tuple(value + 1 for value in time))


def _latest(reader: Reader) -> Time | None:
    """Return the largest value of each coordinate of time in an input; for another pipeline's arrangement, the last time that it has closed."""
    if not isinstance(reader, SharedReader):
        return reader.largest_time()
    corners = Frontier(reader.shared.manifest.upper).corners() if reader.shared.manifest.upper else ()
    return tuple(value - 1 for value in corners[0]) if len(corners) == 1 and BEYOND not in corners[0] else None

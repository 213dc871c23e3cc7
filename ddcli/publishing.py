"""The outputs of a run: updates become files of their logs, one by one or by shard, all published with the commit."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ddcli.store.manifest import OutputEntry
from ddcli.store.output import output_bytes, write_progress, write_updates
from ddcli.store.state import relative_output
from ddcli.summary import OutputSummary

if TYPE_CHECKING:
    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Schema
    from ddcli.request import Request
    from ddcli.store.manifest import FileEntry, Manifest, Times
    from ddcli.store.state import Transaction


@dataclass
class Publishing:
    """What a run over times up to `upper` adds to the outputs; without a transaction, in a dry run, it is only counted."""

    request: Request
    manifest: Manifest | None
    time: Schema
    upper: Times
    layouts: dict[str, Layout]
    meanings: dict[str, str]
    transaction: Transaction | None
    _counts: dict[str, OutputSummary] = field(default_factory=dict)
    _files: dict[str, list[tuple[int, FileEntry]]] = field(default_factory=lambda: defaultdict(list))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, updates: np.ndarray, pool: Pool, part: int | None = None) -> None:
        """Add the consolidated updates of an output, or a part of them that shares no record with another. Threads may."""
        if not len(updates):
            return
        inserted = int(np.count_nonzero(updates[:, -1] > 0))
        rows, entry = len(updates), None
        if self.transaction is not None:
            data = output_bytes(updates, self.layouts[name], pool, self.time)
            before = self.manifest.upper if self.manifest else None
            directory = self.request.outputs[name]
            entry = write_updates(
                self.transaction,
                directory,
                data,
                rows,
                self.time,
                before,
                self.upper,
                "" if part is None else f"-{part:04d}",
            )
        with self._lock:
            self._counts[name] = _sum(self._counts.get(name), OutputSummary(rows, inserted, rows - inserted, None))
            if entry is not None:
                self._files[name].append((part or 0, entry))

    def entries(self) -> dict[str, OutputEntry]:
        """Write the logs' progress, last, and return the outputs as the next manifest has them."""
        assert self.transaction is not None, "a dry run writes nothing"
        found = {}
        for name, layout in self.layouts.items():
            directory = self.request.outputs[name]
            write_progress(self.transaction, directory, self.upper)
            known = self.manifest.outputs[name] if self.manifest else None
            schema = {column: str(kind) for column, kind in layout.schema.items()}
            files = (*(known.files if known else ()), *(file for _, file in sorted(self._files[name], key=_part)))
            says = known.fingerprint if known else self.meanings[name]
            found[name] = OutputEntry(relative_output(self.request.state, directory), schema, files, says)
        return found

    def summaries(self) -> dict[str, OutputSummary]:
        """Return what was added to each output."""
        none = OutputSummary(0, 0, 0, None)
        found = {}
        for name in self.layouts:
            files = [str(self.request.outputs[name] / file.name) for _, file in sorted(self._files[name], key=_part)]
            made = self._counts.get(name, none)
            found[name] = OutputSummary(
                made.rows, made.inserted, made.retracted, files[0] if files else None, len(files)
            )
        return found


def _part(numbered: tuple[int, FileEntry]) -> int:
    return numbered[0]


def _sum(one: OutputSummary | None, other: OutputSummary) -> OutputSummary:
    if one is None:
        return other
    return OutputSummary(one.rows + other.rows, one.inserted + other.inserted, one.retracted + other.retracted, None)

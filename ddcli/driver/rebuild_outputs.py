"""Outputs and side logs after a rebuild: each gets the difference to all of its updates."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.driver.requested_changes import renamed
from ddcli.engine.times import Frontier
from ddcli.job.request import error_directory
from ddcli.sinks.side_logs import Correction, ErrorLog
from ddcli.sources.arrangement_input import SharedReader
from ddcli.store.files.access import is_there

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ddcli.expressions.types import Schema, Type
    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.plan.changes import PlanChanges
    from ddcli.sinks.outputs import OutputWriter
    from ddcli.sources.readers import Reader
    from ddcli.store.state.entries import FileEntry, OutputEntry
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction


def name_ending(rebuild: Rebuild, transaction: Transaction | None, count: int) -> str:
    """Return the addition to the names of a commit's files, given the number of reopenings."""
    if rebuild.reopens or transaction is None:
        return f"-reopened{count}" if rebuild.reopens else ""
    return f"-{'change' if rebuild.request.decided.forgetting is None else 'forgotten'}{transaction.number}"


def correct_side_logs(
    rebuild: Rebuild, readers: dict[str, Reader], transaction: Transaction, errors: ErrorLog, called: str, *, anew: bool
) -> None:
    """Correct all side logs; of inputs if these are taken in `anew`, or something is taken back."""
    aside, times = error_directory(rebuild.request), rebuild.upper.elements
    if (
        rebuild.request.decided.withdrawn or rebuild.reopens or rebuild.request.decided.refreshes_all
    ):  # all of it is computed
        errors.correct(transaction, aside, rebuild.opened, (rebuild.manifest.upper, times), called)
    elif (
        rebuild.request.decided.refresh and rebuild.manifest.pipeline == rebuild.request.digest
    ):  # the records that failed before
        errors.add_missing(transaction, aside, (times, times), called)
    else:
        errors.write(transaction, aside, (times, times), f"-{rebuild.changes.plan.fingerprint}")
    if anew or rebuild.request.decided.withdrawn or rebuild.reopens:
        _correct_aside(rebuild, readers, transaction, called)


def _correct_aside(rebuild: Rebuild, readers: dict[str, Reader], transaction: Transaction, called: str) -> None:
    """Correct the logs of late rows, and of rows that can't be read, to those that the files have now."""
    correction = Correction(
        rebuild.request, transaction, rebuild.time, (rebuild.manifest.upper, rebuild.upper.elements), called
    )
    for name, reader in readers.items():
        before = rebuild.manifest.inputs.get(name)
        if before is None or isinstance(reader, SharedReader):
            continue
        now = {(file.path, file.fingerprint) for file in reader.listing.files}
        again = not rebuild.reopens and (
            name in rebuild.request.decided.withdrawn or not rebuild.request.decided.withdrawn
        )
        if reader.log.quarantines and again:
            correction.of_unparsed(name, reader)
        if rebuild.reopens:
            changed = any(
                file.since and Frontier(file.since) != rebuild.upper.meet(Frontier(file.since)) for file in before.files
            )
        else:
            changed = any(file.since and (file.path, file.fingerprint) not in now for file in before.files)
        if changed:
            correction.of_late(name, reader)


def corrected_outputs(rebuild: Rebuild, publishing: OutputWriter) -> dict[str, OutputEntry]:
    """Return the outputs with their differences. One that is no longer in the plan is dropped; its files stay."""
    entries = {}
    for name, meaning in rebuild.changes.plan.meanings.items():
        if name not in rebuild.request.outputs:
            continue
        known = rebuild.known(name)
        if rebuild.changes.outputs[name] != "same":
            if rebuild.request.decided.forgetting is not None:
                before = rebuild.manifest.outputs.get(renamed(rebuild.request, rebuild.manifest).get(name, ""))
                entries[name] = publishing.replace(name, before, meaning, rebuild.request.decided.forgetting)
            else:
                entries[name] = publishing.entry(name, known, meaning)
        else:
            assert known is not None, "an output that stays the same has a log"
            entries[name] = replace(known, fingerprint=meaning)
            if rebuild.at is not None and publishing.transaction is not None:
                publishing.progress(rebuild.request.outputs[name], known.horizon, name, known.log)
    return entries


def retire_rewritten(rebuild: Rebuild, transaction: Transaction) -> None:
    """Have the commit remove the existing files of outputs that are written from the beginning."""
    for name, before in renamed(rebuild.request, rebuild.manifest).items():
        if name in rebuild.request.decided.rewrite:
            for file in rebuild.manifest.outputs[before].files:
                path = rebuild.request.outputs[name] / file.name
                if is_there(path):
                    transaction.retire(path)


@dataclass
class Rebuild:
    """The parts of a state that are built anew, their sources, and the frontier that they are built as of."""

    request: Request
    manifest: Manifest
    changes: PlanChanges
    found: dict[str, InputFiles]
    time: Schema
    at: int | None = None
    """The time of a run at which files are withdrawn, or all is taken in anew: under the clock of arrivals."""

    waiting: Mapping[Path, Path] = field(default_factory=dict)
    """The places of files of outputs that commits of this run have written, and that have no names yet."""

    def written(self, name: str, file: FileEntry) -> Path:
        """Return the place of a file of an output's log."""
        path = self.request.outputs[name] / file.name
        if path.parent in self.waiting:  # the folder of a large commit
            return self.waiting[path.parent] / path.name
        return self.waiting.get(path, path)

    @cached_property
    def secret(self) -> bytes:
        """The secret of the state."""
        return self.manifest.secret_bytes

    @property
    def nt(self) -> int:
        return len(self.time)

    @property
    def kinds(self) -> tuple[Type, ...]:
        return tuple(self.time.values())

    @cached_property
    def upper(self) -> Frontier:
        """The frontier after the rebuild: that of the state, an earlier one, or just after the time of the run that withdraws files or takes all in anew."""
        if self.request.decided.reopened is not None:
            return self.request.decided.reopened
        return Frontier(self.manifest.upper) if self.at is None else Frontier([(self.at + 1,)])

    @property
    def reopens(self) -> bool:
        """Return whether the state is taken back to an earlier frontier."""
        return self.request.decided.reopened is not None

    @cached_property
    def opened(self) -> Frontier:
        """The frontier of the times at which outputs may change."""
        return self.upper if self.at is None else Frontier([(self.at,)])

    def known(self, name: str) -> OutputEntry | None:
        """Return the state's entry of an output, under the name that it had; None for one that is written from the beginning."""
        if name in self.request.decided.rewrite:
            return None
        return self.manifest.outputs.get(renamed(self.request, self.manifest).get(name, ""))

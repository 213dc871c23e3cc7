"""Outputs and side logs after a rebuild: each gets the difference to all of its updates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.driver.requested_changes import (
    renamed,
)
from ddcli.engine.times import Frontier
from ddcli.job.request import error_directory
from ddcli.sinks.side_logs import Correction, ErrorLog
from ddcli.sources.arrangement_input import SharedReader
from ddcli.store.files.access import is_there

if TYPE_CHECKING:
    from ddcli.driver.rebuild import Rebuild
    from ddcli.sinks.outputs import OutputWriter
    from ddcli.sources.readers import Reader
    from ddcli.store.state.entries import OutputEntry
    from ddcli.store.state.transaction import Transaction


def name_ending(rebuild: Rebuild, transaction: Transaction | None, count: int) -> str:
    """Return the addition to the names of a commit's files, given the number of reopenings."""
    if rebuild.reopens or transaction is None:
        return f"-reopened{count}" if rebuild.reopens else ""
    return f"-{'change' if rebuild.request.decided.forgetting is None else 'forgotten'}{transaction.number}"


def correct_side_logs(
    rebuild: Rebuild, readers: dict[str, Reader], transaction: Transaction, errors: ErrorLog, called: str, *, anew: bool
) -> None:
    """Correct all side logs; those of inputs if these are taken in `anew`, or something is taken back."""
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

"""Both ends of a rebuild: its sources, and outputs and side logs, which get the difference to all of their updates.

The sources are rows of inputs before the frontier, kept contents, and the logs of outputs so far.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.driver.requested_changes import renamed
from ddcli.engine.times import Frontier
from ddcli.errors import StateError
from ddcli.expressions.types import parse_schema
from ddcli.job.sizes import rows_held
from ddcli.plan.changes import CONTENTS
from ddcli.plan.logical import Once, SignedSum, Table
from ddcli.plan.physical import Scan, physical_graph
from ddcli.plan.shape import conform
from ddcli.sinks.side_logs import ErrorLog, SideLogs
from ddcli.sources.arrangement_input import SharedReader, continued
from ddcli.sources.readers import open_logs, refuse_unclean
from ddcli.sources.slices import ArrangementFile, InputSlice, LoggedRows, Settled
from ddcli.store.batch.checked_files import check_bytes
from ddcli.store.batch.file import BatchLayout
from ddcli.store.files.access import fs
from ddcli.store.log.schema import logged_columns
from ddcli.store.state.contents import batch_path
from ddcli.store.state.entries import InputEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ddcli.expressions.types import Schema, Type
    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.plan.changes import PlanChanges
    from ddcli.plan.node import Node
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.sinks.replacement import CorrectingWriter
    from ddcli.sources.readers import Reader
    from ddcli.sources.slices import Slice
    from ddcli.store.log.pieces import ConsumedRange
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
    times = rebuild.upper.elements
    logs = SideLogs(rebuild.request, transaction, rebuild.time, (rebuild.manifest.upper, times), called)
    now = replace(logs, interval=(times, times))
    if (
        rebuild.request.decided.withdrawn or rebuild.reopens or rebuild.request.decided.refreshes_all
    ):  # all of it is computed
        logs.correct_errors(errors, rebuild.opened)
    elif (
        rebuild.request.decided.refresh and rebuild.manifest.pipeline == rebuild.request.digest
    ):  # the records that failed before
        now.add_missing_errors(errors)
    else:
        replace(now, called=f"-{rebuild.changes.plan.fingerprint}").add_errors(errors)
    if anew or rebuild.request.decided.withdrawn or rebuild.reopens:
        _correct_aside(rebuild, readers, logs)


def _correct_aside(rebuild: Rebuild, readers: dict[str, Reader], logs: SideLogs) -> None:
    """Correct the logs of late rows, and of rows that can't be read, to those that the files have now."""
    for name, reader in readers.items():
        before = rebuild.manifest.inputs.get(name)
        if before is None or isinstance(reader, SharedReader):
            continue
        now = {(file.path, file.fingerprint) for file in reader.listing.files}
        again = not rebuild.reopens and (
            name in rebuild.request.decided.withdrawn or not rebuild.request.decided.withdrawn
        )
        if reader.log.quarantines and again:
            logs.correct_unparsed(name, reader)
        if rebuild.reopens:
            changed = any(
                file.since and Frontier(file.since) != rebuild.upper.meet(Frontier(file.since)) for file in before.files
            )
        else:
            changed = any(file.since and (file.path, file.fingerprint) not in now for file in before.files)
        if changed:
            logs.correct_late(name, reader)


def corrected_outputs(rebuild: Rebuild, publishing: CorrectingWriter) -> dict[str, OutputEntry]:
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
                if fs(path).exists():
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
    """The places of files of outputs that commits of this run have written, and that have no names yet; of a dry run, its copies."""

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
        """The frontier after the rebuild: unchanged by default, earlier where times are reopened, just after the run's own time where it withdraws files or takes everything in anew."""
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


WRITTEN = "written:"
"""The prefix of sources that hold the updates of an output so far; no input's name has a colon."""


def _timed(graph: PhysicalGraph) -> frozenset[str]:
    """Return the inputs whose updates must keep their times: those with keys, and those whose records may have existed for a time only."""
    keyed = {node.name for node in graph.nodes if isinstance(node, Table)}
    standing: dict[str, Node] = {str(at): node for at, node in enumerate(graph.nodes) if isinstance(node, Once)}
    return frozenset(keyed | physical_graph(standing).scans().keys())


def with_corrections(rebuild: Rebuild, graph: PhysicalGraph) -> PhysicalGraph:
    """Return the graph with, for each output that changed, its new collection less its updates so far."""
    outputs = dict(graph.outputs)
    for name, change in rebuild.changes.outputs.items():
        if change == "changed":
            schema = _logged_columns(rebuild, name, outputs[name].schema)
            _check_files(rebuild, name)
            written = Scan((), schema, WRITTEN + name, rebuild.nt)
            outputs[name] = SignedSum((conform(outputs[name], schema), written), schema, (1, -1))
    return physical_graph(outputs, graph.engines)


def _logged_columns(rebuild: Rebuild, name: str, schema: Schema) -> Schema:
    """Return the columns of an output's log with its correction, as the new collection has them. Refuse a column that is gone, or of a type that doesn't hold all values."""
    entry = rebuild.known(name)
    before = parse_schema(entry.schema) if entry is not None else {}
    logged = logged_columns(before, schema)
    if logged is None:
        columns = [", ".join(f"{column}: {kind}" for column, kind in each.items()) for each in (before, schema)]
        raise StateError(
            f"output '{name}' would have other columns ({columns[1]}) than its log has ({columns[0]})",
            place=str(rebuild.request.spec.path),
            hint="a log may get new columns and wider types, but keeps its columns: give the output another `path`, where it starts again, "
            f"or rewrite its log with `--rewrite {name}`",
        )
    return logged


def _check_files(rebuild: Rebuild, name: str) -> None:
    """Refuse an output whose files aren't as they were written: the difference to lost updates would be wrong."""
    entry = rebuild.known(name)
    for file in entry.files if entry else ():
        check_bytes(rebuild.written(name, file), file)


def readers_of(rebuild: Rebuild, graph: PhysicalGraph) -> tuple[dict[str, Reader], frozenset[str]]:
    """Return readers of the inputs that are read again or for the first time, and the inputs that the state knows.

    Of known inputs only the files that were taken in are read.
    """
    known, needed = rebuild.changes.known.inputs, graph.scans()
    past = {name: given.past() if name in known else given for name, given in rebuild.found.items()}
    again = past if rebuild.reopens else rebuild.request.decided.withdrawn
    read = {name: given for name, given in past.items() if name in needed or name not in known or name in again}
    before = rebuild.manifest.read_anew()
    if rebuild.reopens or rebuild.request.decided.forgetting is not None:
        # An import begins anew, as of its present frontier.
        own = {name: entry for name, entry in before.inputs.items() if past[name].shared is None}
        before = replace(before, inputs=own)
    elif not known:  # all is computed anew: an import goes on, if it can
        before = replace(before, inputs=continued(before, past))
    readers = open_logs(rebuild.request, before, read, rows_held(rebuild.request.asked.resources.memory))
    if rebuild.request.decided.forgetting is None:
        refuse_unclean(rebuild.manifest, read)
    return readers, known


def inputs_after(
    rebuild: Rebuild, readers: Mapping[str, Reader], taken: Mapping[str, ConsumedRange], known: frozenset[str]
) -> dict[str, InputEntry]:
    """Return the inputs as the next manifest has them."""
    times = rebuild.upper.elements
    inputs = {name: replace(rebuild.manifest.inputs[name], upper=times) for name in rebuild.found if name in known}
    for name, reader in readers.items():
        whole = name not in known or name in rebuild.request.decided.withdrawn or rebuild.reopens
        files = taken[name].files if whole else inputs[name].files
        inputs[name] = InputEntry(times, files, reader.kept())
    return {name: inputs[name] for name in rebuild.found}


def settled_inputs(rebuild: Rebuild, graph: PhysicalGraph, taken: Mapping[str, ConsumedRange]) -> dict[str, InputSlice]:
    """Return the rows of the graph's inputs before the frontier.

    Rows that set a key's values from their time on keep their times; for others only the sum matters.
    """
    timed, forgets = _timed(graph), rebuild.request.decided.forgetting is not None
    return {
        name: InputSlice(
            tuple(part if forgets or name in timed else _settled(rebuild, part) for part in taken[name].slices),
            taken[name].rows,
        )
        for name in graph.scans()
        if name in taken
    }


def kept_sources(rebuild: Rebuild, scans: Iterable[str], most: int) -> dict[str, InputSlice]:
    """Return the sources of a graph that the state has: collections' contents, and outputs' updates so far, at most `most` of them together."""
    sources = {}
    for name in scans:
        if name.startswith(CONTENTS):
            sources[name] = _contents(rebuild, name.removeprefix(CONTENTS))
        elif name.startswith(WRITTEN):
            sources[name] = _written(rebuild, name.removeprefix(WRITTEN), most)
    return sources


def _contents(rebuild: Rebuild, identity: str) -> InputSlice:
    """Return the contents of an arrangement in the state, as of the frontier, a file at a time."""
    entry = rebuild.manifest.arrangements[identity]
    layout, place = BatchLayout.of(entry, rebuild.nt), rebuild.request.state
    files = [(at, file) for at, each in enumerate(entry.shards) for file in each]
    slices = [
        _settled(rebuild, ArrangementFile(batch_path(place, identity, at, file), file, layout)) for at, file in files
    ]
    return InputSlice(tuple(slices), sum(file.rows for _, file in files))


def _written(rebuild: Rebuild, name: str, most: int) -> InputSlice:
    """Return all updates of an output so far, from its own files."""
    entry = rebuild.known(name)
    assert entry is not None, "an output that changed has a log"
    slices = []
    for file in entry.files:
        path = rebuild.written(name, file)
        slices += [LoggedRows(path, at, most, tuple(rebuild.time)) for at in range(0, file.rows, most)]
    return InputSlice(tuple(slices), sum(file.rows for file in entry.files))


def _settled(rebuild: Rebuild, part: Slice) -> Settled:
    return Settled(part, rebuild.upper, rebuild.nt)

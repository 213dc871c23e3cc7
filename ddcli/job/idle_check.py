"""The test whether a run has anything to do at all.

A run with nothing new, the usual case under cron, is recognized here by names and sizes of files, before a heavy
library is imported.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.engine.times import Frontier
from ddcli.errors import StateError
from ddcli.job.inputs import find_inputs, find_seen, find_time, find_upper
from ddcli.job.request import functions_of, time_text
from ddcli.job.summary import InputSummary, RunSummary
from ddcli.store.state.contents import unpublished
from ddcli.store.state.directory import is_reading
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import check_outputs, same_outputs
from ddcli.store.state.shared_arrangements import reader_name
from ddcli.store.texts import format_frontier
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.store.state.manifest import Manifest


def is_changed(request: Request, manifest: Manifest, fingerprint: str) -> bool:
    """Return whether a state was made by another plan than this one, has its outputs in other places, or is to be computed anew."""
    if (
        request.decided.refresh is not None
        or request.decided.rewrite
        or (request.decided.withdrawn and not request.decided.copies)
        or request.decided.reopened is not None
    ):
        return True
    if manifest.plan != fingerprint:
        return True
    return same_outputs(request.state, manifest, request.outputs).keys() != request.outputs.keys()


def idle_summary(request: Request, manifest: Manifest, found: Mapping[str, InputFiles] | None = None) -> RunSummary:
    """Return the summary of a run that has nothing to do; `found` are the inputs, if they were looked at. Raises CheckError where rows that must be fresh have become too old."""
    upper = Frontier(manifest.upper)
    closed = format_frontier(upper, list(find_time(manifest).values()))
    size = manifest.size
    time = time_text(request.clock, upper)
    gone = {name: tuple(sorted(given.listing.gone)) for name, given in (found or {}).items()}
    summary = RunSummary(
        request.spec.name.value,
        None,
        closed,
        changed=False,
        inputs={name: InputSummary(0, 0, 0, gone=files) for name, files in gone.items() if files},
        time=time,
        state_bytes=size.bytes,
        state_rows=size.rows,
    )
    if not request.spec.checks:
        return summary
    from ddcli.job.verdict import refuse, verdicts_of

    verdicts = verdicts_of(request.spec, manifest, request.clock.now)
    if request.decided.closes:
        judged = {name: each for name, each in verdicts.items() if each.kind == "fresh"}
        refuse(
            request.spec,
            {name: judged[name] for name in judged if name not in request.decided.accepts},
            "nothing is new",
        )
    return replace(summary, checks=verdicts)


@frozen
class InputCheck:
    """The result of looking for work: whether there is none, and the inputs as they were found, where a run may take them in without listing them again."""

    idle: bool
    found: dict[str, InputFiles] | None = None


def look_for_work(request: Request, manifest: Manifest, *, locks: bool) -> InputCheck:
    """Return whether no file is new, no progress has moved, and no row that waits may be taken now. Raises StateError for outputs that are not the state's.

    A caller that `locks` the state looks at the outputs again under the lock.
    """
    if (
        request.decided.refresh is not None
        or request.decided.rewrite
        or manifest.pipeline != request.digest
        or (request.decided.apply and any(functions_of(request.spec)))  # their code may be another
        or manifest.engine != __version__
        or unpublished(request.state, manifest)
    ):
        return InputCheck(idle=False)
    checked = _check_inputs(request, manifest)
    if locks and not checked.idle:
        return checked
    try:
        check_outputs(request.state, manifest, request.outputs)
    except StateError:
        newest = read_newest(request.state)
        if newest is None or newest.number == manifest.number:
            raise
        return InputCheck(idle=False)  # another run has committed since
    return checked


def _check_inputs(request: Request, manifest: Manifest) -> InputCheck:
    """Return whether the inputs alone have nothing new."""
    time, before = find_time(manifest), Frontier(manifest.upper)
    if request.asked.until is not None and find_upper(request, time, {}, manifest, None) != before:
        return InputCheck(idle=False)
    if request.spec.tables:
        from ddcli.job.tables import is_behind

        if is_behind(request.spec, request.base, request.asked.resources.spark.session):
            return InputCheck(idle=False)
    if request.spec.has_targets:
        from ddcli.job.tables import is_followed

        if not is_followed(request.spec, request.base, request.state, manifest):
            return InputCheck(idle=False)
    found = find_inputs(request, manifest)
    idle = _has_nothing(request, manifest, found) and (
        # A row that waits and may be taken would move the upper: it is at or after the old one.
        find_upper(request, time, found, manifest, find_seen(manifest)) == before
    )
    moves = request.spec.tables or any(each.arrangement or each.archive for each in request.spec.inputs.values())
    return InputCheck(idle, None if moves else found)


def _has_nothing(request: Request, manifest: Manifest, found: dict[str, InputFiles]) -> bool:
    """Return whether no file of an input is new, and no imported arrangement has changed."""
    for name, given in found.items():
        entry = manifest.inputs[name]
        if given.shared and (given.shared.identity, given.shared.built) != (entry.identity, entry.built):
            return False
        if given.shared and not given.shared.continues(entry):
            return False
        if given.shared and is_reading(given.shared.state, reader_name(request.spec.name.value, request.state)):
            return False  # it holds files, which are released after a run
    for given in found.values():
        if given.listing.new or given.listing.changed or given.listing.grown or given.listing.unmoved:
            return False
        if request.clock.arrival and given.listing.waiting:  # only a command that takes nothing in has read it
            return False
    return True

"""A run that has something to do: its attempts, and the migration of the state to a changed plan before them."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.driver.check_gate import refuse_waiting
from ddcli.driver.prepare import RunPlan, copy_directory, prepare, prepare_run
from ddcli.driver.replacement import open_replacements, seen_with, with_copies
from ddcli.driver.single_run import SingleRun, state_size
from ddcli.engine.counts import Counts
from ddcli.engine.pool import HashCollision, new_secret
from ddcli.engine.times import Frontier
from ddcli.errors import UsageError
from ddcli.job.idle_check import idle_summary, is_changed
from ddcli.job.inputs import TAGS, find_upper, tags_of_exports
from ddcli.job.request import load_functions, time_text
from ddcli.job.sizes import rows_held
from ddcli.job.summary import RunSummary
from ddcli.runtime.placement import Placement
from ddcli.sources.readers import (
    find_rewritten,
    largest_seen,
    late_upper,
    refuse_ahead,
    refuse_unparsed,
)
from ddcli.store.state.outputs import read_owned, write_progress
from ddcli.store.texts import format_frontier

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from ddcli.driver.prepare import Prepared
    from ddcli.driver.replacement import Replacement
    from ddcli.expressions.types import Schema
    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.sources.readers import Reader
    from ddcli.store.state.directory import State
    from ddcli.store.state.manifest import Manifest

ATTEMPTS = 3
"""Attempts at a run, each with a new secret: a collision in the second is as good as impossible already."""


def execute(
    request: Request, manifest: Manifest | None, state: State | None, found: dict[str, InputFiles] | None = None
) -> RunSummary:
    """Take in all rows that are new now and commit that to `state`; without a state, in a dry run, commit nothing.

    `found` are the inputs, if they were found beside this manifest already.

    Should two values have one hash, the state gets another secret, and the run begins again; so it does if another pipeline writes a log
    anew meanwhile.
    """
    secret = None
    for left in reversed(range(ATTEMPTS)):
        opened: dict[str, Reader] = {}
        try:
            with closing(Placement(request)) as placement, copy_directory() as copies:
                return _attempt(request, manifest, state, placement, secret, opened, found, copies)
        except HashCollision as collision:
            found = None
            if not left or (manifest is not None and state is None):
                raise
            request.asked.say(f"{collision.problem}; the run starts again with another secret")
            secret = new_secret()
            if state is not None and state.manifest is not None:
                from ddcli.store.state.upkeep import rekey

                manifest = rekey(state, secret, request.asked.say)
        except Exception as error:
            found, rewritten = None, find_rewritten(opened)
            if rewritten is None or (state is not None and state.manifest is not manifest):
                raise
            if not left:
                raise rewritten from error
    raise AssertionError("the last attempt returns or raises")


def _attempt(
    request: Request,
    manifest: Manifest | None,
    state: State | None,
    placement: Placement,
    secret: bytes | None,
    opened: dict[str, Reader],
    found: dict[str, InputFiles] | None,
    copies: Callable[[], Path],
) -> RunSummary:
    """Bring the state to the plan, if that has changed, then take in new rows; both in one commit where files are replaced or withdrawn, or there are checks. The readers are added to `opened`.

    A state without a manifest begins with `secret`, or with its imports' secret if it is None.
    """
    rebuilt: RunSummary | None = None
    asked = request.spec
    with ExitStack() as whole:
        while True:
            request, ready, planning, replacements = _planned(request, manifest, opened, found, copies)
            if manifest is None or not is_changed(request, manifest, planning.graph.fingerprint):
                break
            joins = request.decided.closes and (request.decided.withdrawn or asked.checks)
            if state is not None and state.staged is None and joins:
                whole.enter_context(state.joined())
            after, done = _rebuild(request, manifest, state, planning, ready.bound.time, placement)
            rebuilt = _joined(rebuilt, done) if rebuilt else done
            if state is None and found is not None and request.asked.receives is not None:
                if request.decided.withdrawn:
                    problem = "files can't be added and left out in one comparison: leaving one out"
                    hint = "compare them one after the other, or in a branch: `dd branch new`"
                else:
                    problem = "the added files can't be compared: a new column"
                    hint = "add them in a branch: `dd branch new`"
                problem += " rebuilds a part of the state"
                raise UsageError(problem, place=str(request.spec.path), hint=hint)
            if state is None or not request.decided.closes:
                return rebuilt
            manifest, request, found = after, replace(_after_rebuild(request), spec=asked), None
        summary = _take_in(request, manifest, state, ready, planning, placement, secret, replacements)
    if rebuilt is None:
        return summary
    return _joined(rebuilt, summary) if summary.changed else rebuilt


def _planned(
    request: Request,
    manifest: Manifest | None,
    opened: dict[str, Reader],
    found: dict[str, InputFiles] | None,
    copies: Callable[[], Path],
) -> tuple[Request, Prepared, RunPlan, dict[str, Replacement]]:
    """Return the request, which withdraws files that others replace, its inputs, the plan, and the replacements that the run takes in as differences."""
    request.asked.progress.begin("looking at the inputs")
    most = rows_held(request.asked.resources.memory)
    request, ready = prepare_run(request, manifest, most, found)
    planning = RunPlan(request, manifest, ready.bound)
    replacements: dict[str, Replacement] | None = {}
    if manifest is not None and request.decided.changed:
        from ddcli.driver.changed_rows import open_changes

        replacements = open_changes(request, manifest, ready, planning.graph)
        if replacements is not None:
            request = request.deciding(withdrawn={})
            planning = RunPlan(request, manifest, ready.bound)
    elif manifest is not None and request.decided.withdrawn:
        by_copies = with_copies(request, manifest, ready, planning.graph, copies)
        if by_copies is not request:
            again = prepare(by_copies, manifest, most)
            replacements = open_replacements(by_copies, manifest, again, most)
            if replacements is not None:
                request, ready = by_copies, again
                planning = RunPlan(request, manifest, ready.bound)
    opened |= ready.readers
    _ = planning.graph  # an error of the plan comes before all others
    planning.check_work()
    if request.asked.planned is not None:
        request.asked.planned(planning.bound, planning.plan)
    if request.kept is None or request.kept.spec is None:  # a kept plan calls no function
        load_functions(request.spec)  # one that can't be loaded ends the run before anything is done
    return request, ready, planning, replacements or {}


def _take_in(
    request: Request,
    manifest: Manifest | None,
    state: State | None,
    ready: Prepared,
    planning: RunPlan,
    placement: Placement,
    secret: bytes | None,
    replacements: dict[str, Replacement],
) -> RunSummary:
    """Take in new rows, if there are any, by the plan that made the state."""
    if manifest is not None:
        if state is not None:
            planning.keep(manifest.cache["plan"]["generations"])
        if not request.decided.closes and not replacements:
            return idle_summary(request, manifest)
    readers, time = ready.readers, ready.bound.time
    refuse_ahead(request, ready.found, readers)
    seen = largest_seen(manifest, readers)
    if replacements:
        refuse_ahead(request, ready.found, {name: each.after for name, each in replacements.items()})
        seen = seen_with(request, manifest, seen, replacements)
    upper = find_upper(request, time, ready.found, manifest, seen)
    if replacements and manifest is not None:
        if not request.decided.closes:
            upper = Frontier(manifest.upper)
        elif upper == Frontier(manifest.upper):
            upper = late_upper(request, manifest, ready.found, readers) or upper
    elif upper is None or (manifest is not None and upper == Frontier(manifest.upper)):
        if manifest is None:
            refuse_unparsed(readers)
            return RunSummary(request.spec.name.value, None, None, changed=False)
        upper = late_upper(request, manifest, ready.found, readers)
        if upper is None:
            refuse_waiting(state)
            return _with_file(request, manifest, state, planning)
    assert upper is not None, "a run without rows to read has ended"
    secret = manifest.secret_bytes if manifest else secret or _first_secret(ready.found)
    rows = readers, seen, upper, replacements
    run = SingleRun(request, manifest, state, planning, placement, time, secret, *rows)
    summary = run.run()
    if manifest is None or not replacements:
        return summary
    left = {name: frozenset(file.key for file in each.after.listing.to_read) for name, each in replacements.items()}
    withdrawn, replaced = _corrections(request, manifest, left)
    return replace(summary, withdrawn=withdrawn, replaced=replaced)


def _first_secret(found: Mapping[str, InputFiles]) -> bytes:
    """Return the secret that a state begins with: the first imported arrangement's, which is then read without hashing keys again."""
    known = (given.shared.manifest.secret_bytes for given in found.values() if given.shared)
    return next(filter(None, known), None) or new_secret()


def _with_file(request: Request, manifest: Manifest, state: State | None, planning: RunPlan) -> RunSummary:
    """Return the summary of a run without new rows. After an edit of the file that changes no row it commits the file, and the tags of outputs' columns where their logs have others."""
    graph = planning.graph
    found = {name: read_owned(path)[1] for name, path in request.outputs.items()} if state is not None else {}
    stale = {name: each for name, each in found.items() if each and each.tags != graph.tags.get(name, {})}
    exported = tags_of_exports(graph)
    edited = manifest.pipeline != request.digest or manifest.cache.get(TAGS, {}) != exported.get(TAGS, {})
    if state is not None and (stale or edited):
        cache = {name: each for name, each in manifest.cache.items() if name != TAGS}
        cache |= {"plan": planning.outline_of(manifest)} | exported
        noted = replace(manifest, pipeline=request.digest, cache=cache)
        with state.begin() as transaction:
            for name, owner in stale.items():
                owner = owner._replace(reopenings=noted.reopenings, tags=graph.tags.get(name, {}))
                write_progress(transaction, request.outputs[name], noted.upper, owner)
            transaction.commit(noted)
    return idle_summary(request, manifest)


def _rebuild(
    request: Request, manifest: Manifest, state: State | None, planning: RunPlan, time: Schema, placement: Placement
) -> tuple[Manifest, RunSummary]:
    """Bring the state to a changed plan, if that is wanted; return its manifest and the summary of this alone."""
    from ddcli.driver.migration import rebuild

    rebuilt, wrote, counts, spark, verdicts, left = rebuild(request, manifest, state, planning, time, placement)
    lower, upper = (format_frontier(Frontier(each.upper), list(time.values())) for each in (manifest, rebuilt))
    rows, size = state_size(rebuilt) if state else (None, None)
    withdrawn, replaced = _corrections(request, manifest, left)
    return rebuilt, RunSummary(
        request.spec.name.value,
        lower,
        upper,
        changed=True,
        time=time_text(request.clock, Frontier(rebuilt.upper)) if withdrawn or replaced else None,
        withdrawn=withdrawn,
        replaced=replaced,
        reopened=None
        if request.decided.reopened is None
        else format_frontier(request.decided.reopened, list(time.values())),
        rebuilt=wrote,
        state_rows=rows,
        state_bytes=size,
        spark=spark,
        counts=counts,
        dry=state is None,
        checks=verdicts,
    )


def _after_rebuild(request: Request) -> Request:
    """Return the request to take in new rows once the state was rebuilt."""
    clock = replace(request.clock, given=False)  # the time that was given has been taken
    return replace(request, clock=clock).deciding(refresh=None, rewrite=frozenset(), withdrawn={})


def _joined(rebuilt: RunSummary, summary: RunSummary) -> RunSummary:
    """Return the summary of a rebuild and of the run after it."""
    counts = Counts()
    for each in (rebuilt, summary):
        counts.add(each.counts or Counts())
    return replace(
        summary,
        rebuilt=rebuilt.rebuilt,
        withdrawn=rebuilt.withdrawn,
        replaced=rebuilt.replaced,
        spark=rebuilt.spark.and_then(summary.spark) if rebuilt.spark else summary.spark,
        counts=counts,
    )


def _corrections(
    request: Request, manifest: Manifest, left: Mapping[str, frozenset[str]]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the files that were withdrawn, and those that were replaced, by input, as a summary has them; `left` are the files that are there now."""
    withdrawn, replaced = dict[str, list[str]](), dict[str, list[str]]()
    for name, keys in request.decided.withdrawn.items():
        for named, chosen in ((withdrawn, keys - left[name]), (replaced, keys & left[name])):
            if paths := _paths(manifest, name, chosen):
                named[name] = paths
    return withdrawn, replaced


def _paths(manifest: Manifest, name: str, keys: Collection[str]) -> list[str]:
    """Return the paths of an input's files that are withdrawn, and were not before."""
    files = (file for file in manifest.inputs[name].files if file.key in keys and not file.withdrawn)
    return sorted(file.archived or file.path for file in files)

"""A run that has something to do: its attempts, and the migration of the state to a changed plan before them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.driver.prepare import prepare, with_amended_files
from ddcli.driver.run_plan import RunPlan
from ddcli.driver.single_run import SingleRun, state_size
from ddcli.engine.counts import Counts
from ddcli.engine.pool import HashCollision
from ddcli.engine.secret import new_secret
from ddcli.engine.times import Frontier
from ddcli.job.clock import time_text
from ddcli.job.frontier import find_upper
from ddcli.job.functions import load_functions
from ddcli.job.idle_check import idle_summary, is_changed
from ddcli.job.sizes import rows_held
from ddcli.job.summary import RunSummary
from ddcli.runtime.placement import Choosing
from ddcli.sources.arrangement_input import first_secret
from ddcli.sources.readers import find_rewritten, largest_seen, late_upper, refuse_ahead, refuse_unparsed
from ddcli.store.log.reader import LogReader
from ddcli.store.time_text import format_frontier

if TYPE_CHECKING:
    from collections.abc import Collection

    from ddcli.expressions.types import Schema
    from ddcli.job.request import Request
    from ddcli.sources.readers import Reader
    from ddcli.store.state.directory import State
    from ddcli.store.state.manifest import Manifest

ATTEMPTS = 3
"""Attempts at a run, each with a new secret: a collision in the second is as good as impossible already."""


def execute(request: Request, manifest: Manifest | None, state: State | None) -> RunSummary:
    """Take in all rows that are new now and commit that to `state`; without a state, in a dry run, commit nothing.

    Should two values have one hash, the state gets another secret, and the run begins again; so it does if another pipeline writes a log
    anew meanwhile.
    """
    secret = None
    for left in reversed(range(ATTEMPTS)):
        opened: dict[str, Reader] = {}
        try:
            with closing(Choosing(request)) as choosing:
                return _execute(request, manifest, state, choosing, secret, opened)
        except HashCollision as collision:
            if not left or (manifest is not None and state is None):
                raise
            request.say(f"{collision.problem}; the run begins again under another secret")
            secret = new_secret()
            if state is not None and state.manifest is not None:
                from ddcli.store.state.upkeep import rekey

                manifest = rekey(state, secret, request.say)
        except Exception as error:
            rewritten = find_rewritten(opened)
            if rewritten is None or (state is not None and state.manifest is not manifest):
                raise
            if not left:
                raise rewritten from error
    raise AssertionError("the last attempt returns or raises")


def _execute(
    request: Request,
    manifest: Manifest | None,
    state: State | None,
    choosing: Choosing,
    secret: bytes | None,
    opened: dict[str, Reader],
) -> RunSummary:
    """Make one attempt; a state without a manifest begins with `secret`, or with that of its imports if it is None. The readers are added to `opened`."""
    request.progress.begin("looking at the inputs")
    ready = prepare(request, manifest, rows_held(request.memory))
    if amended := with_amended_files(request, manifest, ready):
        return _execute(amended, manifest, state, choosing, secret, opened)
    readers, time = ready.readers, ready.bound.time
    opened |= readers
    for reader in readers.values():
        if isinstance(reader, LogReader):
            reader.read_ahead()
    planning = RunPlan(request, manifest, ready.bound)
    graph = planning.graph
    planning.check_work()
    if request.kept is None or request.kept.spec is None:  # a kept plan calls no function
        load_functions(request.spec, request.base)  # one that can't be loaded ends the run before anything is done
    if manifest is not None:
        if is_changed(request, manifest, graph.fingerprint):
            return _changed(request, manifest, state, planning, time, choosing, opened)
        if state is not None:
            planning.keep(manifest.cache["plan"]["generations"])
        if not request.closes:
            return idle_summary(request, manifest)
    before = Frontier(manifest.upper) if manifest else None
    for name, scan in graph.scans().items():
        if isinstance(reader := readers[name], LogReader):
            reader.expect(tuple(scan.schema))
    refuse_ahead(request, ready.found, readers)
    seen = largest_seen(manifest, readers)
    upper = find_upper(request, time, ready.found, manifest, seen)
    if upper is None or upper == before:
        if manifest is None:
            refuse_unparsed(readers)
            return RunSummary(request.spec.name.value, None, None, changed=False)
        upper = late_upper(request, manifest, ready.found, readers)
        if upper is None:
            return idle_summary(request, manifest)
    secret = manifest.secret_bytes if manifest else secret or first_secret(ready.found)
    return SingleRun(request, manifest, state, secret, planning, readers, time, seen, upper, choosing).run()


def _changed(
    request: Request,
    manifest: Manifest,
    state: State | None,
    planning: RunPlan,
    time: Schema,
    choosing: Choosing,
    opened: dict[str, Reader],
) -> RunSummary:
    """Bring the state to a changed plan, if that is wanted, then take in new rows."""
    from ddcli.driver.migration import rebuild

    rebuilt, wrote, counts, spark = rebuild(request, manifest, state, planning, time, choosing)
    lower, upper = (format_frontier(Frontier(each.upper), list(time.values())) for each in (manifest, rebuilt))
    rows, size = state_size(rebuilt) if state else (None, None)
    withdrawn = {name: paths for name, keys in request.withdrawn.items() if (paths := _paths(manifest, name, keys))}
    alone = RunSummary(
        request.spec.name.value,
        lower,
        upper,
        changed=True,
        time=time_text(request.clock, Frontier(rebuilt.upper)) if withdrawn else None,
        withdrawn=withdrawn,
        reopened=None if request.reopened is None else format_frontier(request.reopened, list(time.values())),
        rebuilt=wrote,
        state_rows=rows,
        state_bytes=size,
        spark=spark,
        counts=counts,
    )
    if state is None:
        return replace(alone, dry=True)
    if not request.closes:
        return alone
    if withdrawn:  # the withdrawal is done even if a file that replaces one of these is refused
        request.say(f"withdrawn: {', '.join(path for files in withdrawn.values() for path in files)}")
    clock = replace(request.clock, given=False)  # the time that was given has been taken
    request = replace(request, refresh=None, rewrite=frozenset(), withdrawn={}, clock=clock)
    summary = _execute(request, rebuilt, state, choosing, None, opened)
    if not summary.changed:
        return alone
    counts.add(summary.counts or Counts())
    return replace(
        summary,
        rebuilt=wrote,
        withdrawn=withdrawn,
        spark=spark.and_then(summary.spark) if spark else summary.spark,
        counts=counts,
    )


def _paths(manifest: Manifest, name: str, keys: Collection[str]) -> list[str]:
    """Return the paths of an input's files that are withdrawn, and were not before."""
    files = (file for file in manifest.inputs[name].files if file.key in keys and not file.withdrawn)
    return sorted(file.archived or file.path for file in files)

"""The driver: spec to plan to dataflow, inputs in, one commit, outputs published.

A run closes an interval of times. It takes from each input the updates of that interval, steps the dataflow once over
all of them, and commits inputs taken, arrangements and output updates as one manifest.
"""

from __future__ import annotations

import time as clock
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Protocol

from ddcli.driver.tables import (
    errors_at_tables,
    join_mirrors,
    read_settled,
    tables_as_now,
    update_followers,
    update_mirrors,
    with_session,
)
from ddcli.engine.counts import Counts
from ddcli.engine.jit.settings import set_announce, set_cache_dir
from ddcli.engine.process import Workers
from ddcli.errors import DdError, EngineError
from ddcli.job.budget import run_budget
from ddcli.job.consumed_files import archive, not_taken_in
from ddcli.job.idle_check import InputCheck, idle_summary, look_for_work
from ddcli.job.inputs import find_inputs, find_time
from ddcli.job.options import RunOptions
from ddcli.job.request import check_outputs, imports, newest_of, read_request, refuse_clock, refuse_code
from ddcli.job.sizes import SparkOptions
from ddcli.screen import near
from ddcli.store.files.access import locate
from ddcli.store.files.gate import INVISIBLE
from ddcli.store.state.contents import unpublished
from ddcli.store.state.directory import State
from ddcli.store.state.outputs import check_aside, check_pipeline
from ddcli.store.state.shared_arrangements import advance_holds, reading, taken_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.job.summary import ClaimSummary, RunSummary
    from ddcli.store.files.lock import IfLocked
    from ddcli.store.state.manifest import Manifest


P = ParamSpec("P")


class WithOptions(Protocol[P]):
    """A function of a pipeline file that takes the options of a run as keywords."""

    def __call__(self, path: Path | str, *args: P.args, **options: P.kwargs) -> RunSummary: ...


def with_options(
    options: Callable[P, RunOptions],
) -> Callable[[Callable[[Path | str, RunOptions], RunSummary]], WithOptions[P]]:
    """Return a decorator that has a function take these options as keywords."""

    def keywords(function: Callable[[Path | str, RunOptions], RunSummary]) -> WithOptions[P]:
        @wraps(function)
        def called(path: Path | str, *args: P.args, **given: P.kwargs) -> RunSummary:
            try:
                chosen = options(*args, **given)
            except TypeError as error:  # the caller knows the function's name, not its options' class
                problem = str(error).replace(f"{options.__name__}.__init__", function.__name__)
                hint = "; `ddcli.spark.run` takes frames as inputs" if "'inputs'" in problem else ""
                raise TypeError(problem + hint) from None
            return function(path, chosen)

        return called

    return keywords


@with_options(RunOptions)
def run(path: Path | str, options: RunOptions) -> RunSummary:
    """Bring the outputs of the pipeline file at `path` up to date and return the summary. Options are given as keywords: see `RunOptions`.

    Closes the times before `until`. A run with nothing new takes no lock and changes no file.

    Raises a DdError, after which state and outputs are as they were; but a change of the pipeline is committed by itself,
    before new rows are taken in.
    """
    started, began = clock.perf_counter(), datetime.now(UTC)
    pipeline = Path(path)
    asked = _requested(pipeline, options)
    with with_session(asked) if asked.spec.tables else nullcontext(asked) as request:
        return _run(request, pipeline, options, started, began)


def _run(request: Request, pipeline: Path, options: RunOptions, started: float, began: datetime) -> RunSummary:
    """Run a request, as `run` does; its tables of Spark have a session."""
    watch_cache, reopen = options.watch_cache, options.reopen
    manifest = newest_of(request)
    request = _with_corrections(request, manifest, options)
    if (
        manifest is not None
        and reopen is None
        and (note := refuse_clock(request.clock, manifest, pipeline)) is not None
    ):
        request.asked.say(note)
    checked = InputCheck(idle=False)
    if manifest is not None:
        checked = _look_for_work(request, manifest, reopen, locks=not options.dry_run)
        if checked.idle:
            return idle_summary(request, manifest, checked.found)
    left = not_taken_in(request.spec, request.base) if manifest is None and request.spec.archives else {}
    check_aside(request.aside)
    if options.dry_run:
        summary = read_settled(request, lambda: _dry_run(request, manifest, checked.found))
        summary = replace(summary, seconds=clock.perf_counter() - started)
    else:
        # The lock first: once polars is imported, a wait for it can't be interrupted, as polars has system calls restarted.
        with open_state(request, options.if_locked, manifest) as opened:
            found = checked.found
            if options.check is not None:
                options.check(opened.manifest)
            if opened.manifest is not None:
                if manifest is None or manifest.number != opened.manifest.number:  # another run has committed since
                    request, found = _with_corrections(request, opened.manifest, options), None
                if (
                    reopen is not None and request.decided.reopened is None
                ):  # the outputs of a dead run are published now
                    return idle_summary(request, opened.manifest)
            record = partial(_record, opened, request, began, started)
            summary = _commit(request, opened, options.if_locked, record, found)
    if summary.changed or watch_cache is None:
        for name, note in left.items():
            request.asked.say(f"inputs.{name}: {note}")
    return summary


def _requested(pipeline: Path, options: RunOptions) -> Request:
    """Return the request of a pipeline file under these options. Raises UsageError for options that don't fit the file."""
    say = options.say or (lambda _line: None)
    set_announce(say)
    if options.cache_dir is not None:
        set_cache_dir(options.cache_dir)
    place = SparkOptions.of(options.master, options.remote, options.conf, options.spark)
    state = options.state
    directory = None if state is None else locate(Path.cwd(), str(state))
    request = read_request(pipeline, directory, options.until, say, runs=True, now=options.now)
    check_outputs(request.spec, options.rewrite | (options.refresh or frozenset()))
    engine = "spark" if options.spark is not None and options.engine == "auto" else options.engine
    resources = request.asked.resources.limited(options.memory, options.workers, engine, place)
    Workers.most = resources.workers
    refuse_code(request.spec, no_code=options.no_code)
    if options.watch_cache is not None:
        resources = replace(resources, memory=options.watch_cache.left(resources.memory))
    request = request.asking(
        resources=resources,
        ready=options.ready,
        progress=options.progress,
        watch_cache=options.watch_cache,
        budget=run_budget(request.spec.budget, options.budget or {}) if request.spec.budget or options.budget else None,
    )
    refreshes = options.refresh is not None
    if options.accept or options.reason is not None:
        from ddcli.driver.check_gate import accepting

        request = request.deciding(accepts=accepting(request.spec, options.accept, options.reason))
    return request.deciding(apply=options.apply or refreshes, refresh=options.refresh, rewrite=options.rewrite)


def _with_corrections(request: Request, manifest: Manifest | None, options: RunOptions) -> Request:
    """Return a request with the files to withdraw and the time to reopen. The modules for these are imported only if there are some."""
    if options.withdraw or options.withdraw_missing:
        from ddcli.job.corrections import with_withdrawn_files

        request = with_withdrawn_files(
            request,
            manifest,
            options.withdraw,
            missing=options.withdraw_missing,
            strict=options.strict,
            again=options.again,
        )
    if options.added:
        from ddcli.job.corrections import with_added_files

        request = with_added_files(request, manifest, options.added)
    if options.joint:
        request = request.deciding(joint=True, closes=True)
    if options.reopen is not None:
        from ddcli.job.corrections import with_reopened_times

        request = with_reopened_times(request, manifest, options.reopen)
    return request


def _look_for_work(request: Request, manifest: Manifest, reopen: str | None, *, locks: bool) -> InputCheck:
    """Return whether a run has nothing to do, even while another run joins files of mirrors."""
    if reopen is not None:
        return InputCheck(request.decided.reopened is None and not (locks and unpublished(request.state, manifest)))
    if request.decided.withdrawn or request.decided.added:
        return InputCheck(idle=False)

    def look() -> InputCheck:
        newest = newest_of(request) if request.spec.tables else manifest
        return InputCheck(idle=False) if newest is None else look_for_work(request, newest, locks=locks)

    return read_settled(request, look)


def _dry_run(request: Request, manifest: Manifest | None, found: dict[str, InputFiles] | None) -> RunSummary:
    """Return the summary of the run that would happen, with tables as they are now."""
    with tables_as_now(request) as now:
        return dry_run(now, newest_of(now) if now.spec.tables else manifest, found)


def dry_run(request: Request, manifest: Manifest | None, found: dict[str, InputFiles] | None = None) -> RunSummary:
    """Return the summary of a run on top of a commit, with tables as its mirrors have them; commit nothing."""
    from ddcli.driver.execute import execute

    try:
        with errors_at_tables(request):
            return execute(request, manifest, None, found)
    finally:
        request.asked.progress.end()


def _commit(
    request: Request,
    state: State,
    if_locked: IfLocked,
    record: Callable[[RunSummary], RunSummary],
    found: dict[str, InputFiles] | None,
) -> RunSummary:
    """Take in the new updates of all inputs, then bring the followers of the commit up to it: tables, logs, archives and holds.

    `record` gets the summary, also if a step after the commit fails, and returns it with the run's seconds.
    """
    name, wanted = request.spec.name.value, imports(request)
    if request.spec.tables:
        request = update_mirrors(request, state)
    summary = None
    try:
        with ExitStack() as holds:
            shared = holds.enter_context(reading(name, request.state, wanted, if_locked)) if wanted else {}
            try:
                request = _with_refresh(request.deciding(shared=shared), state.manifest)
                with ExitStack() as around:
                    if request.spec.tables:
                        around.enter_context(errors_at_tables(request))
                    followed = request.spec.has_targets
                    tables = around.enter_context(update_followers(request, state)) if followed else {}
                    summary = _execute(request, state, found)
            finally:
                request.asked.progress.end()
        done = replace(_compact(request, state, summary), tables=tables)
        if state.manifest is not None:
            if request.spec.archives:
                archive(request.spec, request.base, state.manifest, state.files)
            if wanted:
                advance_holds(name, request.state, taken_of(state.manifest, wanted))
    except DdError as error:
        if summary is not None:
            record(summary)
            say_committed(error, committed=summary.changed)
        raise
    return record(done)


def _execute(request: Request, state: State, found: dict[str, InputFiles] | None) -> RunSummary:
    """Do what a request asks for: in one commit if it is `joint`.

    An edit comes before withdrawals: files are withdrawn from what the edited file has made.
    """
    from ddcli.driver.execute import execute

    decided = request.decided
    if not decided.joint or state.manifest is None:
        return execute(request, state.manifest, state, found)
    with state.joined():
        if not (decided.apply and decided.withdrawn):
            return execute(request, state.manifest, state, found)
        edited = execute(request.deciding(withdrawn={}, added={}, closes=False), state.manifest, state)
        summary = execute(request, state.manifest, state)
        return replace(summary, rebuilt={**edited.rebuilt, **summary.rebuilt}) if summary.changed else edited


def say_committed(error: DdError, *, committed: bool) -> None:
    """Correct the hint of an error that came after the commit, whose results are visible."""
    if committed and error.hint:
        error.hint = error.hint.replace(INVISIBLE, "the run is committed")


@contextmanager
def open_state(request: Request, if_locked: IfLocked, before: Manifest | None) -> Iterator[State]:
    """Open the state that a request is to change, and archive files that a dead run has taken in. Raises StateError where it is another pipeline's.

    `before` is its newest manifest, as it was read without the lock.
    """
    clean = request.asked.watch_cache.clean(request.state) if request.asked.watch_cache else None
    with State.open(
        request.state,
        request.outputs,
        written=request.written,
        anew=request.decided.rewrite,
        if_locked=if_locked,
        clean=clean,
        before=before,
    ) as state:
        if state.manifest is not None:
            check_pipeline(request.state, state.manifest, request.spec.path)  # its first run may have come between
            if request.spec.archives:
                archive(request.spec, request.base, state.manifest, state.files)
        yield state


def _with_refresh(request: Request, manifest: Manifest | None) -> Request:
    """Return a request that recomputes everything if an imported arrangement was rebuilt to forget rows, so that outputs get the difference; else the same request.

    Raises InputError where a file of another input is not as it was taken in.
    """
    as_made = manifest is not None and (request.decided.apply or manifest.pipeline == request.digest)
    if (
        manifest is None
        or not as_made
        or request.decided.refresh is not None
        or request.decided.withdrawn
        or request.decided.reopened
    ):
        return request
    for name, shared in request.decided.shared.items():
        entry = manifest.inputs.get(name)
        if (
            entry
            and entry.is_imported
            and entry.identity == shared.identity
            and entry.built != shared.built == shared.forgot
        ):
            find_inputs(request, manifest)
            request.asked.say(
                f"inputs.{name}: some of its rows were forgotten: everything is recomputed; outputs get the difference"
            )
            return request.deciding(refresh=frozenset(), apply=True)
    return request


def _compact(request: Request, state: State, summary: RunSummary) -> RunSummary:
    """Join small files of mirrors and sum up old updates in the outputs' logs; return the summary with the claims on them. The modules for it are imported only if they are needed."""
    if not summary.changed:
        return summary
    if request.spec.tables:
        join_mirrors(request, state)
    if any(each.keep for each in request.spec.outputs.values()):
        return replace(summary, claims=_keep_logs(request, state))
    return summary


def _keep_logs(request: Request, state: State) -> tuple[ClaimSummary, ...]:
    """Sum up the updates that outputs' logs needn't keep apart by the file's `keep`, and commit that; return the claims that prevent it or were passed."""
    from ddcli.circuit.retention import claimed_logs, kept_logs
    from ddcli.sinks.log_compaction import pays, sum_up

    manifest = state.manifest
    assert manifest is not None, "a run that changed something has committed"
    if not manifest.upper:
        return ()
    ((upper,),) = manifest.upper
    kinds = [*find_time(manifest).values()]
    lengths, claims = kept_logs(request.spec, kinds), claimed_logs(request.spec, kinds)
    bounds = {name: (length, claims.get(name)) for name, length in lengths.items() if name in manifest.outputs}
    found: list[ClaimSummary] = []
    for length, claimed in dict.fromkeys(bounds.values()):
        names = [name for name, each in bounds.items() if each == (length, claimed)]
        unclaimed = None if claimed is None else upper - claimed
        done = sum_up(state, names, upper - length, unclaimed=unclaimed, pays=pays)
        found += [claim for each in done for claim in each.claims]
    return tuple(found)


def _record(state: State, request: Request, began: datetime, started: float, summary: RunSummary) -> RunSummary:
    """Return the summary with the run's seconds, and keep a record of it, if the run has changed anything.

    A record is for people: if it can't be written the run has succeeded all the same.
    """
    timed = replace(summary, seconds=clock.perf_counter() - started)
    if not summary.changed:
        return timed
    from ddcli.job.summary import RunRecord, write_run

    assert state.manifest is not None, "a run that changed something has committed"
    when = began.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        write_run(
            state.directory,
            RunRecord(state.manifest.number, when, timed.to_json(), summary.counts or Counts()),
            state.files,
        )
    except EngineError as error:
        request.asked.say(f"no record of this run is kept: {error.problem}: {near(error.place or '')}")
    return timed

"""The driver: spec to plan to dataflow, inputs in, one commit, outputs published.

A run closes an interval of times. It takes from each input the updates of that interval, steps the dataflow once over
all of them, and commits inputs taken, arrangements and output updates as one manifest.
"""

from __future__ import annotations

import time as clock
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.driver.libraries import map_ahead
from ddcli.driver.tables import (
    errors_at_tables,
    join_mirrors,
    read_settled,
    tables_as_now,
    update_followers,
    update_mirrors,
)
from ddcli.engine.jit.settings import set_announce, set_cache_dir
from ddcli.engine.progress import SILENT, Progress
from ddcli.engine.workers import Allowed
from ddcli.errors import DdError, EngineError
from ddcli.job.clock import refuse_clock
from ddcli.job.consumed_files import archive, not_taken_in
from ddcli.job.functions import refuse_code
from ddcli.job.idle_check import idle_summary, is_idle
from ddcli.job.inputs import find_inputs
from ddcli.job.options import SparkOptions
from ddcli.job.request import check_outputs, imports, newest_of, read_request
from ddcli.screen import near
from ddcli.store.files.gate import INVISIBLE
from ddcli.store.files.objects import locate
from ddcli.store.state.contents import unpublished
from ddcli.store.state.directory import State
from ddcli.store.state.outputs import check_aside
from ddcli.store.state.pipeline_file import check_pipeline
from ddcli.store.state.shared_arrangements import advance_holds, reading, taken_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddcli.job.options import Engine
    from ddcli.job.request import Request
    from ddcli.job.standby import WatchCache
    from ddcli.job.summary import RunSummary
    from ddcli.store.files.lock_holder import IfLocked
    from ddcli.store.state.manifest import Manifest


def run(
    path: Path | str,
    *,
    state: Path | str | None = None,
    until: str | None = None,
    dry_run: bool = False,
    apply: bool = False,
    refresh: frozenset[str] | None = None,
    rewrite: frozenset[str] = frozenset(),
    memory: int | None = None,
    workers: int | None = None,
    engine: Engine = "auto",
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    spark: Any = None,
    if_locked: IfLocked = "fail",
    no_code: bool = False,
    cache_dir: Path | None = None,
    say: Callable[[str], None] | None = None,
    ready: Callable[[Path], bool] | None = None,
    progress: Progress = SILENT,
    standby: WatchCache | None = None,
    now: str | None = None,
    withdraw: Sequence[Path] = (),
    reopen: str | None = None,
    budget: Mapping[str, str] | None = None,
) -> RunSummary:
    """Bring the outputs of the pipeline file at `path` up to date and return the summary.

    Closes the times before `until` (of a product the box before "x,y"); without it, those before the least upper of the
    inputs that carry their progress, else all seen. A run with nothing new takes no lock and changes no file. With
    `apply`, outputs get the difference that a change of the pipeline makes; `refresh` names outputs to compute anew
    (empty: all); `rewrite` those to write from the beginning. `memory` bounds the bytes that the process has resident (default: three quarters of the machine's),
    `workers` is the number of threads that step shards (default: the number of processors). `say` gets lines for people,
    `progress` is notified of the run's progress; `ready` returns whether a new file may be read now. `standby` has the leftovers of the last
    of a watch's rounds, and takes those of this one.

    Under the clock of arrivals new rows get the time `now`, a timestamp in UTC (default: the present time), which is
    after that of the last run.

    `engine` chooses where the run is computed: here (`local`), as tasks on Spark (`spark`: at `master`, at `remote`, the address
    of a Spark Connect, with the settings `conf`, or in the session `spark`), or wherever it is quicker (`auto`). The state is the
    same, so each run may choose anew.

    `withdraw` names files of inputs that earlier runs took in: they are taken back before anything is read; under the clock of events
    no time is closed then. With `reopen` the run only takes the state back to that time: the times from it on are open again.

    `budget` bounds the cost of the run, as the command's option does: `{"rows": "1e6", "operator.seconds": "5min"}`. Each bound replaces
    the file's; a run that exceeds one raises BudgetError.

    With `no_code`, or DDCLI_NO_CODE=1, a pipeline that names Python functions is refused: a run calls them.

    Raises a DdError, after which state and outputs are as they were; but a change of the pipeline is committed by itself,
    before new rows are taken in.
    """
    started, began = clock.perf_counter(), datetime.now(UTC)
    say = say or (lambda _line: None)
    set_announce(say)
    if cache_dir is not None:
        set_cache_dir(cache_dir)
    place = SparkOptions.of(master, remote, conf, spark)
    pipeline, directory = Path(path), locate(Path.cwd(), state) if isinstance(state, str) else state
    request = read_request(pipeline, directory, until, say, runs=True, now=now)
    check_outputs(request.spec, rewrite | (refresh or frozenset()))
    request = replace(
        request,
        apply=apply or refresh is not None,
        refresh=refresh,
        rewrite=rewrite,
        memory=memory or request.memory,
        workers=workers or request.workers,
        engine="spark" if spark is not None and engine == "auto" else engine,
        spark=place.before(request.spark),
        ready=ready,
    )
    Allowed.threads = request.workers
    refuse_code(request.spec, no_code=no_code)
    request = _with_budget(request, budget)
    if standby is not None:
        request = replace(request, standby=standby, memory=standby.left(request.memory))
    manifest = newest_of(request)
    request = _with_corrections(request, manifest, withdraw, reopen)
    if (
        manifest is not None
        and reopen is None
        and (note := refuse_clock(request.clock, manifest, pipeline)) is not None
    ):
        say(note)
    if manifest is not None and _is_idle(request, manifest, reopen, locks=not dry_run):
        return idle_summary(request, manifest)
    left = not_taken_in(request.spec, request.base) if manifest is None else {}
    check_aside(request.aside)
    map_ahead()
    if dry_run:
        summary = read_settled(request, lambda: _dry_run(request, manifest, if_locked, progress))
        summary = replace(summary, seconds=clock.perf_counter() - started)
    else:
        # The lock first: once polars is imported, a wait for it can't be interrupted, as polars has system calls restarted.
        with open_state(request, if_locked) as opened:
            if opened.manifest is not None:
                if manifest is None or manifest.number != opened.manifest.number:  # another run has committed since
                    request = _with_corrections(request, opened.manifest, withdraw, reopen)
                if reopen is not None and request.reopened is None:  # the outputs of a dead run are published now
                    return idle_summary(request, opened.manifest)
            record = partial(_record, opened, request, began, started)
            summary = _commit(replace(request, progress=progress), opened, if_locked, record)
    if summary.changed or standby is None:
        for name, note in left.items():
            say(f"inputs.{name}: {note}")
    return summary


def _with_budget(request: Request, budget: Mapping[str, str] | None) -> Request:
    """Return a request with its budget. The module of budgets is imported only if there is a bound."""
    if not budget and request.spec.budget is None:
        return request
    from ddcli.job.budget import run_budget

    return replace(request, budget=run_budget(request.spec.budget, budget or {}))


def _with_corrections(
    request: Request, manifest: Manifest | None, withdraw: Sequence[Path], reopen: str | None
) -> Request:
    """Return a request with the files to withdraw and the time to reopen. The modules for these are imported only if there are some."""
    if withdraw:
        from ddcli.job.withdrawal import with_withdrawn_files

        request = with_withdrawn_files(request, manifest, withdraw)
    if reopen is not None:
        from ddcli.job.reopened_times import with_reopened_times

        request = with_reopened_times(request, manifest, reopen)
    return request


def _is_idle(request: Request, manifest: Manifest, reopen: str | None, *, locks: bool) -> bool:
    """Return whether a run has nothing to do, even while another run joins files of mirrors."""
    if reopen is not None:
        return request.reopened is None and not (locks and unpublished(request.state, manifest))
    if request.withdrawn:
        return False

    def look() -> bool:
        newest = newest_of(request) if request.spec.tables else manifest
        return newest is not None and is_idle(request, newest, locks=locks)

    return read_settled(request, look)


def _dry_run(request: Request, manifest: Manifest | None, if_locked: IfLocked, progress: Progress) -> RunSummary:
    """Return the summary of the run that would happen; commit nothing."""
    from ddcli.driver.execute import execute

    with tables_as_now(request) as now, reading(request.spec.name.value, request.state, {}, if_locked) as shared:
        now = replace(now, shared=shared, progress=progress)
        try:
            with errors_at_tables(now):
                return execute(now, newest_of(now) if now.spec.tables else manifest, None)
        finally:
            progress.end()


def _commit(
    request: Request, state: State, if_locked: IfLocked, record: Callable[[RunSummary], RunSummary]
) -> RunSummary:
    """Take in the new updates of all inputs, then bring the followers of the commit up to it: tables, logs, archives and holds.

    `record` gets the summary, also if a step after the commit fails, and returns it with the run's seconds.
    """
    from ddcli.driver.execute import execute

    name, wanted = request.spec.name.value, imports(request)
    request = update_mirrors(request, state)
    summary = None
    try:
        with reading(name, request.state, wanted, if_locked) as shared:
            try:
                request = _with_refresh(replace(request, shared=shared), state.manifest)
                with errors_at_tables(request), update_followers(request, state) as tables:
                    summary = execute(request, state.manifest, state)
            finally:
                request.progress.end()
        done = replace(_compact(request, state, summary), tables=tables)
        if state.manifest is not None:
            archive(request.spec, request.base, state.manifest, state.files)
            if wanted:
                advance_holds(name, request.state, taken_of(state.manifest, wanted))
    except DdError as error:
        if summary is not None:
            record(summary)
            say_committed(error, committed=summary.changed)
        raise
    return record(done)


def say_committed(error: DdError, *, committed: bool) -> None:
    """Correct the hint of an error that came after the commit, whose results are visible."""
    if committed and error.hint:
        error.hint = error.hint.replace(INVISIBLE, "the run is committed")


@contextmanager
def open_state(request: Request, if_locked: IfLocked) -> Iterator[State]:
    """Open the state that a request is to change, and archive files that a dead run has taken in. Raises StateError where it is another pipeline's."""
    clean = request.standby.clean(request.state) if request.standby else None
    with State.open(
        request.state, request.outputs, written=request.written, anew=request.rewrite, if_locked=if_locked, clean=clean
    ) as state:
        if state.manifest is not None:
            check_pipeline(request.state, state.manifest, request.spec.path)  # its first run may have come between
            archive(request.spec, request.base, state.manifest, state.files)
        yield state


def _with_refresh(request: Request, manifest: Manifest | None) -> Request:
    """Return a request that computes all anew where an arrangement that it imports was built anew to forget rows; outputs get the difference.

    Raises InputError where a file of another input is not as it was taken in.
    """
    as_made = manifest is not None and (request.apply or manifest.pipeline == request.digest)
    if manifest is None or not as_made or request.refresh is not None or request.withdrawn or request.reopened:
        return request
    for name, shared in request.shared.items():
        entry = manifest.inputs.get(name)
        if (
            entry
            and entry.is_imported
            and entry.identity == shared.identity
            and entry.built != shared.built == shared.forgot
        ):
            find_inputs(request, manifest)
            request.say(f"inputs.{name}: rows of it were forgotten: all is computed anew; outputs get the difference")
            return replace(request, refresh=frozenset(), apply=True)
    return request


def _compact(request: Request, state: State, summary: RunSummary) -> RunSummary:
    """Join small files of mirrors and sum up old updates in the outputs' logs; return the summary with the claims on them. The modules for it are imported only if they are needed."""
    if not summary.changed:
        return summary
    if request.spec.tables:
        join_mirrors(request, state)
    if any(each.keep for each in request.spec.outputs.values()):
        from ddcli.driver.keep import keep_logs

        return replace(summary, claims=keep_logs(request, state))
    return summary


def _record(state: State, request: Request, began: datetime, started: float, summary: RunSummary) -> RunSummary:
    """Return the summary with the run's seconds, and keep a record of it, if the run has changed anything.

    A record is for people: if it can't be written the run has succeeded all the same.
    """
    timed = replace(summary, seconds=clock.perf_counter() - started)
    if not summary.changed:
        return timed
    from ddcli.engine.counts import Counts
    from ddcli.store.state.runs import RunRecord, write_run

    assert state.manifest is not None, "a run that changed something has committed"
    when = began.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        write_run(
            state.directory,
            RunRecord(state.manifest.number, when, timed.to_json(), summary.counts or Counts()),
            state.files,
        )
    except EngineError as error:
        request.say(f"no record of this run is kept: {error.problem}: {near(error.place or '')}")
    return timed

"""`dd run`: read new input, commit, publish."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ddcli.cli.arguments import (
    ACCEPT,
    BRANCH,
    CONF,
    DRY_RUN,
    NO_CODE,
    NOW,
    OUTPUT,
    OUTPUTS,
    PIPELINES,
    QUIET,
    REASON,
    REMOTE,
    SHOW,
    STATE,
    VAR,
    MemorySize,
    added_files,
    budget,
    file_option,
)
from ddcli.errors import CheckError, CheckErrors, UsageError
from ddcli.screen import columns, json_text, near, say
from ddcli.spec.file import AT, file_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.cli.messages import MessagePrinter, Records
    from ddcli.engine.counts import Progress
    from ddcli.job.options import WatchCache
    from ddcli.job.summary import RunSummary
    from ddcli.render.text import Profile
    from ddcli.store.files.lock import IfLocked

OPENLINEAGE = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
"""The beginnings of variables that name a receiver of OpenLineage's events, in the ways of the standard's client."""
LEAST_MEMORY = 256 << 20


@click.command("run", short_help="Read new input and write the changes of outputs.")
@PIPELINES
@click.option(
    "--select",
    metavar="NAME",
    type=OUTPUTS,
    multiple=True,
    help="Run only the pipeline that writes the output NAME; +NAME: also the pipelines that it reads from; NAME+: also those "
    "that read from it; repeatable.",
)
@click.option(
    "--until",
    metavar="T",
    help="Close the times before T: an integer, a date or a timestamp, like the inputs' time. For a product, X,Y closes the times "
    "before X in the first and before Y in the second coordinate. [default: all complete times]",
)
@NOW
@BRANCH
@click.option(
    "--with",
    "added",
    metavar="INPUT+=FILE",
    multiple=True,
    help="In a branch: read this file as a part of the input, from any place, in this run and later ones; repeatable.",
)
@click.option(
    "--without",
    metavar="FILE",
    multiple=True,
    help="In a branch: withdraw this file of an input, as `dd retract` does; repeatable.",
)
@file_option(
    "--scenarios", help="Print the output rows that each scenario of FILE would add and remove, and write nothing."
)
@STATE
@DRY_RUN
@click.option(
    "--apply",
    is_flag=True,
    help="Accept a changed pipeline file, and write the difference that it makes to the outputs. See `dd plan`.",
)
@click.option(
    "--full-refresh",
    metavar="NAME",
    type=OUTPUT,
    multiple=True,
    help="Recompute the output NAME and write the difference; repeatable. `all` means every output, from the "
    "present inputs.",
)
@click.option(
    "--rewrite",
    metavar="NAME",
    type=OUTPUT,
    multiple=True,
    help="Replace the files of the output NAME by one file with its contents; repeatable.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    type=MemorySize(LEAST_MEMORY),
    help="Limit the memory of the process: 2GiB, 500MB. A larger step is computed shard by shard, through scratch files. "
    "[default: three quarters of the machine's]",
)
@click.option(
    "-w",
    "--workers",
    type=click.IntRange(1),
    help="Number of threads. [default: one for each processor]",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="Compute on this machine, or as tasks on Spark. auto: stages that exceed this machine's memory run on Spark, if it is "
    "configured, all others here.",
)
@click.option(
    "--master", metavar="URL", help="Address of Spark: local[4], spark://HOST:7077, yarn. [default: the file's]"
)
@REMOTE
@CONF
@click.option(
    "--if-locked",
    type=click.Choice(["fail", "wait", "skip"]),
    default="fail",
    show_default=True,
    help="Fail, wait or skip the run if another run holds the state.",
)
@budget(
    "Limit the cost of the run, overriding the file's bound: rows=1e6, seconds=5min, bytes=2GiB, operator.rows=1e5 (each "
    "operator), rows=none; repeatable. A run that exceeds a bound commits nothing and exits with 6."
)
@ACCEPT
@REASON
@NO_CODE
@click.option("--watch", is_flag=True, help="Keep running, and run again whenever inputs change, until Ctrl-C.")
@QUIET
@click.option("--profile", is_flag=True, help="Print each operator's time and rows.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also print written files, unchanged inputs and outputs, bytes read, and rows per second.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of stderr: text for people, or one JSON object on each line.",
)
@file_option("--summary", "summary_file", help="Write the summary of the run, or its error, to FILE as JSON.")
@file_option(
    "--junit",
    help="Write the verdicts of the checks to FILE as JUnit XML, a suite for each pipeline, even if a check stops the run.",
)
@file_option("--metrics", "metrics_file", help="Write counts and times of the run to FILE for Prometheus.")
@click.option(
    "--openlineage",
    metavar="URL|FILE",
    help="Send OpenLineage events to a server, or append them to FILE. [default: the receiver that OPENLINEAGE_URL names, if it is set]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Format of the summary: lines on stderr, or JSON on stdout.",
)
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of compiled kernels. [default: the platform's cache directory]",
)
@SHOW
@VAR
def command(
    pipelines: tuple[Path, ...],
    select: tuple[str, ...],
    until: str | None,
    now: str | None,
    branch: str | None,
    added: tuple[str, ...],
    without: tuple[str, ...],
    scenarios: Path | None,
    state: Path | None,
    dry_run: bool,
    full_refresh: tuple[str, ...],
    rewrite: tuple[str, ...],
    memory: int | None,
    if_locked: IfLocked,
    accept: tuple[str, ...],
    no_code: bool,
    watch: bool,
    quiet: bool,
    profile: bool,
    verbose: bool,
    log_format: Literal["text", "json"],
    summary_file: Path | None,
    junit: Path | None,
    metrics_file: Path | None,
    openlineage: str | None,
    output: str,
    **given: Any,
) -> None:
    """Bring the outputs of PIPELINE up to date. Several pipelines run in order, each after those that it reads from.

    A directory means the pipeline files in it. If a pipeline fails, the pipelines that read from it are skipped. The exit code is the first failure's.

    Reads only new rows, does work in proportion to them, and commits inputs, state and outputs together: a run that
    dies changes nothing, and a run with nothing new changes no file.

    To run a branch (`dd branch new`), name its file, sales@q4.yaml, or use --branch. With --with and --without, all changes of the run are one commit.

    --scenarios runs what-ifs on top of the newest commit: FILE maps names to `{with: [INPUT+=FILE], without: [FILE], set: {INPUT: {COLUMN: EXPRESSION, where: CONDITION}}}`,
    paths relative to it; `set` gives columns new values in the rows for which `where` holds. It prints
    a table for each changed output, with the scenario, the record, and the change of its multiplicity; JSON: {OUTPUT: [{scenario, ..., diff}]}.

    --watch starts a run after each change of the inputs. It waits for a file that is still being written, reports a
    rejected input or a broken pipeline file and keeps running. An error that needs a decision ends it with that error's exit code.
    Ctrl-C or SIGTERM ends it with 0. In the middle of a run the code is 130 or 143, and the run changes nothing.

    JSON: {name, lower, upper, time, changed, seconds, inputs: {NAME: {rows, files, bytes, waiting, late, aside, negative, example,
    unparsed, unparsed_in}},
    outputs: {NAME: {rows, inserted, retracted, file}}, rebuilt: as outputs, state_rows, state_bytes, dry, failed, errors,
    withdrawn: {INPUT: [FILE]} (by `dd retract`), replaced: {INPUT: [FILE]}, reopened: T (by `dd state reopen`), tables: {OUTPUT: PLACE}, spark,
    claims: [{output, kind, name, since, files, until, passed}], checks: {NAME: {title, place, kind, of, otherwise, passed, violations, new, first: [TEXT], problems: [TEXT], accepted}}}. With --profile also `operators`: [{id, kind, names, says,
    rows_in, rows_out, inserted, retracted, seconds, share}]. Of a run that a check stops: {error: as in --summary}.
    --summary FILE: {pipeline, began, ended, exit_code, summary: the JSON above, skipped: why, error: {problem, place, hint,
    exit_code}}; two of the last three are null; the error of failed checks also has `checks: [as above]`. Timestamps are ISO 8601 in UTC; the state's size is null in a dry run. For several pipelines, and for a directory, both are {exit_code, pipelines: [...]}, with
    one such object for each pipeline.
    --log-format json: {at, level, event, message, ...} on each line; `level` is info, warning or error.

    \b
    A line of a crontab (`ddcli` by its whole path, as cron finds the system's dd first):
      */5 * * * * cd /srv/shop && .venv/bin/ddcli run orders.yaml --quiet --if-locked skip --summary run.json

    In GitHub Actions errors become annotations, and the workflow run's page shows the summary.

    \b
    Examples:
      dd run pipelines/airborne.yaml --until 720
      dd run pipelines/airborne.yaml --if-locked skip --log-format json --summary run.json
      dd run pipelines/airborne.yaml pipelines/scc.yaml --select +airborne
    """
    from ddcli.cli.messages import MessagePrinter, Records, ending
    from ddcli.driver.run import run
    from ddcli.engine.counts import SILENT
    from ddcli.engine.process import keep_freed_memory
    from ddcli.job.options import WatchCache

    unfit = {"--dry-run": dry_run, "--until": until is not None, "--now": now is not None, "--accept": bool(accept)}
    if watch and any(unfit.values()):
        raise UsageError(
            f"--watch and {next(option for option, given in unfit.items() if given)} don't go together",
            hint="leave out one of them: --watch runs again and again, and each run commits",
        )
    _refuse_missing_folders(summary=summary_file, junit=junit, metrics=metrics_file)
    if scenarios is not None:
        from ddcli.cli.diff import print_scenarios

        print_scenarios(pipelines, branch, scenarios, state, memory, output, no_code=no_code)
        return
    pipelines, changes = _of_branch(pipelines, branch, added, without, watch=watch)
    several = len(pipelines) > 1 or bool(select) or pipelines[0].is_dir()
    refreshed, rewritten = frozenset(full_refresh) - {"all"} if full_refresh else None, frozenset(rewrite)
    if several and (watch or state is not None or refreshed or rewrite or profile or accept):
        raise UsageError(
            "--watch, --state, --profile, --accept, --rewrite and the --full-refresh of an output are for one pipeline",
            hint="name one pipeline file",
        )
    keep_freed_memory()
    live = None
    if sys.stderr.isatty() and not quiet and log_format == "text":
        from ddcli.render.live import LiveProgress

        live = LiveProgress()
    speaker = MessagePrinter(log_format, quiet, live.say if live else partial(say, err=True))
    run_one: Callable[..., RunSummary] = partial(
        run,
        state=state,
        until=until,
        dry_run=dry_run,
        memory=memory,
        if_locked=if_locked,
        accept=accept,
        no_code=no_code,
        **given,
        **changes,
        say=speaker.say,
        progress=live or SILENT,
        now=now,
    )
    if not dry_run and (openlineage is not None or _names_a_receiver(*OPENLINEAGE)):
        from ddcli.cli.openlineage import emitting

        run_one = emitting(run_one, openlineage, partial(speaker.say, event="openlineage", level="warning"))
    run_one = _reporting_checks(run_one, state, json=output == "json" and not several)
    skips = if_locked == "skip"
    reports = _reports(summary_file, metrics_file, junit, state)
    if not dry_run and _names_a_receiver("OTEL_EXPORTER_OTLP_"):
        run_one = _telemetry(run_one, reports, state, speaker, live or SILENT)
    put = partial(_put, reports)
    if several:
        from ddcli.cli.run_several import run_several

        each = partial(run_one, refresh=refreshed)
        run_several(pipelines, select, each, speaker, put, json=output == "json", verbose=verbose, skips=skips)
        return
    (pipeline,) = pipelines
    records, watch_cache = Records(pipeline, put), WatchCache() if watch else None

    def once(ready: Callable[[Path], bool] | None = None) -> RunSummary:
        nonlocal refreshed, rewritten
        summary = run_one(pipeline, refresh=refreshed, rewrite=rewritten, ready=ready, watch_cache=watch_cache)
        refreshed, rewritten = None, frozenset()
        return summary

    def tell(summary: RunSummary) -> None:
        records.done(summary)
        if watch and not summary.changed:
            return
        found = profile_of(pipeline, state, summary) if profile and summary.changed else None
        if output == "json":
            say(json_text(summary.to_json() | ({"operators": found.operators} if found else {})))
        else:
            speaker.summary(summary, verbose=verbose)
            if found:
                speaker.lines(found.lines(columns(sys.stderr)), "profile", operators=found.operators)

    with ending(speaker, records, skips=skips):
        if watch_cache is not None:
            watch_inputs(pipeline, state, watch_cache, once, tell, speaker, records, skips=skips)
        else:
            tell(once())


def _of_branch(
    pipelines: tuple[Path, ...], branch: str | None, added: Sequence[str], without: Sequence[str], *, watch: bool
) -> tuple[tuple[Path, ...], dict[str, Any]]:
    """Return the pipeline files of a branch, and the options of a run that changes its inputs. Raises UsageError for such a run elsewhere."""
    from ddcli.store.files.access import locate

    pipelines = tuple(file_at(each, branch) for each in pipelines)
    if not (added or without):
        return pipelines, {}
    if watch or len(pipelines) > 1 or AT not in pipelines[0].stem:
        hint = "name it: `--branch q4`, or its file: `dd run sales@q4.yaml`; `dd branch new` begins one"
        raise UsageError("--with and --without are for a run of a branch", hint=hint)
    withdraw = [locate(Path.cwd(), text) for text in without]
    return pipelines, {"added": added_files(added), "withdraw": withdraw, "strict": True, "joint": True}


def _reporting_checks(run: Callable[..., RunSummary], state: Path | None, *, json: bool) -> Callable[..., RunSummary]:
    """Return a function that runs a pipeline as `run` does; the error of failed checks names the rows of files that violate them.

    With `json` it prints the error on stdout, too, where the summary would be.
    """

    def named(pipeline: Path, **options: Any) -> RunSummary:
        from ddcli.cli.messages import error_values

        try:
            return run(pipeline, **options)
        except (CheckError, CheckErrors) as error:
            from ddcli.provenance.explanation import name_rows

            name_rows(error, pipeline, state)
            if json:
                say(json_text({"error": error_values(error, error.exit_code)}))
            raise

    return named


def _reports(
    summary: Path | None, metrics: Path | None, junit: Path | None, state: Path | None
) -> list[Callable[[dict[str, Any]], None]]:
    """Return functions that write the record of a run, or of several, to the files that a person names. Raises UsageError where a package that one needs is missing."""
    from ddcli.cli.messages import put_file

    found: list[Callable[[dict[str, Any]], None]] = [partial(put_file, summary)]
    if metrics is not None:
        from ddcli.cli.telemetry import put_metrics
        from ddcli.version import check_package

        check_package("prometheus_client")
        found.append(partial(put_metrics, metrics, state))
    if junit is not None:
        from ddcli.commands.checks import put_junit

        found.append(partial(put_junit, junit, state))
    return found


def _put(reports: Sequence[Callable[[dict[str, Any]], None]], record: dict[str, Any]) -> None:
    for report in reports:
        report(record)


def _telemetry(
    run: Callable[..., RunSummary],
    reports: list[Callable[[dict[str, Any]], None]],
    state: Path | None,
    speaker: MessagePrinter,
    progress: Progress,
) -> Callable[..., RunSummary]:
    """Return a function that runs a pipeline as `run` does and sends its spans to OpenTelemetry's receiver; add one to the reports that sends its metrics."""
    from ddcli.cli.telemetry import Telemetry

    telemetry = Telemetry(state, partial(speaker.say, event="telemetry", level="warning"))
    reports.append(telemetry.measure)
    return partial(telemetry.traced(run), progress=progress)


def _refuse_missing_folders(**files: Path | None) -> None:
    """Raise UsageError where the folder of a file that the run writes at its end is missing."""
    for name, file in files.items():
        if file is not None and not file.absolute().parent.is_dir():
            problem = f"the folder of the {name} does not exist: '{file.parent}'"
            raise UsageError(problem, hint="make it, or name another")


def _names_a_receiver(*names: str) -> bool:
    """Return whether a variable of the environment that begins with one of these names a receiver."""
    return any(name.startswith(names) for name in os.environ)


def profile_of(pipeline: Path, state: Path | None, summary: RunSummary) -> Profile:
    """Return a run's profile: its operators by their time."""
    from ddcli.commands.explain import explain
    from ddcli.render.text import profile

    return profile(explain(pipeline, state), summary)


def watch_inputs(
    pipeline: Path,
    state: Path | None,
    watch_cache: WatchCache,
    once: Callable[[Callable[[Path], bool]], RunSummary],
    tell: Callable[[RunSummary], None],
    speaker: MessagePrinter,
    records: Records,
    *,
    skips: bool,
) -> None:
    """Run whenever inputs change, until a signal or an error ends the watch."""
    from ddcli.cli.messages import SIGNALLED, refused
    from ddcli.driver.watch import Stopped, WatchLoop

    def incomplete(path: Path) -> None:
        speaker.say(f"{near(str(path))} is not whole yet: it is read when it is", "incomplete", file=str(path))

    speaker.say(f"watching the inputs of {pipeline}; Ctrl-C ends it", "watching")
    try:
        refuse = partial(refused, speaker, records, skips=skips)
        WatchLoop(pipeline, state, once, tell, refuse, incomplete, watch_cache).run()
    except Stopped as stopped:
        code = SIGNALLED + stopped.signal
        records.failed(stopped, code)
        speaker.say("interrupted; state and outputs are as they were", "stopped", "error")
        raise click.exceptions.Exit(code) from None
    speaker.say("stopped", "stopped")

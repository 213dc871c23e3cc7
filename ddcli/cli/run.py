"""`dd run`: take in what is new, commit, publish."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ddcli.cli.arguments import NO_CODE, OUTPUT, PIPELINE, MemorySize
from ddcli.screen import json_text, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ddcli.cli.messages import Records, Speaker
    from ddcli.errors import DdError
    from ddcli.job.options import Engine
    from ddcli.job.summary import RunSummary
    from ddcli.render.profile import Profile

LEAST_MEMORY = 256 << 20
BUG, INTERRUPTED, SIGNALLED = 70, 130, 128
"""Exit codes; of a signal, what its number is added to."""


def settings(_context: click.Context, _option: click.Parameter, given: Iterable[str]) -> dict[str, str]:
    """Return Spark's settings by name."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and name):
            raise click.BadParameter(f"'{text}' is no setting; write it as spark.executor.memory=4g")
        found[name] = value
    return found


@click.command("run", short_help="Take in what is new, and write what changed.")
@click.argument("pipeline", type=PIPELINE)
@click.option(
    "--until",
    metavar="T",
    help="Close the times before T: an integer, a date or a timestamp, as the inputs' time is; of a product, X,Y: "
    "those before X in the first and before Y in the second coordinate. [default: all that is complete]",
)
@click.option(
    "--state",
    type=click.Path(path_type=str, file_okay=False),
    help="The state's directory, which may be s3://BUCKET/PREFIX. [default: the file's `state`, else .dd/NAME/ beside it]",
)
@click.option("-n", "--dry-run", is_flag=True, help="Compute, show the summary, commit nothing.")
@click.option(
    "--apply",
    is_flag=True,
    help="Where the pipeline has changed, write the difference to outputs that would change. See `dd plan`.",
)
@click.option(
    "--full-refresh",
    metavar="NAME",
    type=OUTPUT,
    multiple=True,
    help="Compute the output NAME anew and write the difference; may be given several times. `all`: all of them, from the "
    "inputs as they are now.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    type=MemorySize(LEAST_MEMORY),
    help="What the process may have resident, as 2GiB or 500MB; what doesn't fit is taken shard by shard. "
    "[default: three quarters of the machine's]",
)
@click.option(
    "-w",
    "--workers",
    type=click.IntRange(1),
    help="Threads that shards are stepped in. [default: one a processor]",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="Where to compute: here, or as tasks on Spark. auto: on Spark, if it is said where that is, what the memory here "
    "would not hold.",
)
@click.option(
    "--master", metavar="URL", help="Where Spark is: local[4], spark://HOST:7077, yarn. [default: the file's]"
)
@click.option("--remote", metavar="URL", help="Where Spark Connect is, in place of a master: sc://HOST:15002.")
@click.option(
    "--conf",
    metavar="KEY=VALUE",
    multiple=True,
    callback=settings,
    help="A setting of Spark; may be given several times.",
)
@click.option(
    "--if-locked",
    type=click.Choice(["fail", "wait", "skip"]),
    default="fail",
    show_default=True,
    help="When another run holds the state.",
)
@NO_CODE
@click.option("--watch", is_flag=True, help="Then wait for the inputs to change, and run again, until Ctrl-C.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.option("--profile", is_flag=True, help="Say how long each operator took, and how many rows went through it.")
@click.option("-v", "--verbose", is_flag=True, help="Say how large what was read is, and how fast it went.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What stderr carries: lines for a person, or one JSON object a line.",
)
@click.option(
    "--summary",
    "summary_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Put what the run did, or why it failed, into FILE as JSON.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How to give the summary: lines on stderr, or JSON on stdout.",
)
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where compiled kernels are kept. [default: the platform's cache directory]",
)
def command(
    pipeline: Path,
    until: str | None,
    state: str | None,
    dry_run: bool,
    apply: bool,
    full_refresh: tuple[str, ...],
    memory: int | None,
    workers: int | None,
    engine: Engine,
    master: str | None,
    remote: str | None,
    conf: dict[str, str],
    if_locked: str,
    no_code: bool,
    watch: bool,
    quiet: bool,
    profile: bool,
    verbose: bool,
    log_format: Literal["text", "json"],
    summary_file: Path | None,
    output: str,
    cache_dir: Path | None,
) -> None:
    """Bring the outputs of PIPELINE up to date.

    Reads only what is new in the inputs, does work in proportion to it, and commits inputs taken, state and
    outputs together: a run that dies changes nothing. A run with nothing new changes no file.

    With --watch each change of the inputs is followed by a run of its own. A file that is still being written is left alone
    until it is whole. An input that is refused is told of, and taken when it has been corrected; what needs a decision ends the
    watch, with the exit code that a run has. Ctrl-C or SIGTERM ends it with 0, or, in the middle of a run, which is
    given up, with 130 or 143.

    JSON: {name, lower, upper, changed, seconds, inputs: {NAME: {rows, files, bytes, waiting, late, aside, negative, example}},
    outputs: {NAME: {rows, inserted, retracted, file}}, rebuilt: as outputs, state_rows, state_bytes, dry, failed, errors,
    spark}. With --profile it has `operators` too: [{id, kind, names, says,
    rows_in, rows_out, inserted, retracted, seconds, share}].
    --summary FILE: {pipeline, began, ended, exit_code, summary: the JSON above, skipped: why, error: {problem, place, hint,
    exit_code}}; of the last three, two are null.
    --log-format json: {at, level, event, message, ...} a line; `level` is info, warning or error.

    \b
    A line of a crontab (cron finds the system's dd first, so it is told `ddcli`, by its whole path):
      */5 * * * * cd /srv/shop && .venv/bin/ddcli run orders.yaml --quiet --if-locked skip --summary run.json

    In GitHub Actions errors are annotations, and the summary is added to the page of the workflow's run.

    \b
    Examples:
      dd run pipelines/airborne.yaml --until 720
      dd run pipelines/airborne.yaml --if-locked skip --log-format json --summary run.json
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
    from ddcli.cli.memory import keep_freed_memory
    from ddcli.cli.messages import Records, Speaker
    from ddcli.driver.run import run
    from ddcli.errors import UsageError
    from ddcli.progress import SILENT
    from ddcli.render.live import LiveProgress
    from ddcli.store.files.objects import locate

    if watch and (dry_run or until is not None):
        raise UsageError(
            f"--watch goes on for good, {'a dry run commits nothing' if dry_run else '--until is one time'}",
            hint="give the one or the other",
        )
    if summary_file is not None and not summary_file.absolute().parent.is_dir():
        raise UsageError(
            f"there is no folder for the summary: '{summary_file.parent}'", hint="make it, or name another"
        )
    keep_freed_memory()
    live = LiveProgress() if sys.stderr.isatty() and not quiet and log_format == "text" else None
    speaker = Speaker(log_format, quiet, live.say if live else partial(say, err=True))
    records = Records(pipeline, summary_file)
    state_directory = None if state is None else locate(Path.cwd(), state)
    refreshed = frozenset(full_refresh) - {"all"} if full_refresh else None

    def once(ready: Callable[[Path], bool] | None = None) -> RunSummary:
        nonlocal refreshed
        summary = run(
            pipeline,
            state=state_directory,
            until=until,
            dry_run=dry_run,
            apply=apply,
            refresh=refreshed,
            memory=memory,
            workers=workers,
            engine=engine,
            master=master,
            remote=remote,
            conf=conf,
            if_locked=if_locked,  # type: ignore[arg-type]
            no_code=no_code,
            cache_dir=cache_dir,
            say=speaker.say,
            ready=ready,
            progress=live or SILENT,
        )
        refreshed = None
        return summary

    def tell(summary: RunSummary) -> None:
        records.done(summary)
        if watch and not summary.changed:
            return
        found = profile_of(pipeline, state_directory, summary) if profile and summary.changed else None
        if output == "json":
            say(json_text(summary.to_json() | ({"operators": found.to_json()} if found else {})))
        else:
            speaker.summary(summary, rates=verbose)
            if found:
                speaker.lines(found.lines(), "profile", operators=found.to_json())

    with ending(speaker, records, skips=if_locked == "skip"):
        if watch:
            stand(pipeline, state_directory, once, tell, speaker, records, skips=if_locked == "skip")
        else:
            tell(once())


def profile_of(pipeline: Path, state: Path | None, summary: RunSummary) -> Profile:
    """Return where the time of a run went."""
    from ddcli.commands.explain import explain
    from ddcli.render.profile import profile

    return profile(explain(pipeline, state), summary)


@contextmanager
def ending(speaker: Speaker, records: Records, *, skips: bool) -> Iterator[None]:
    """Have the end of a run told as it is to be told, and recorded, whatever it is."""
    from ddcli.errors import DdError, LockedError

    try:
        yield
    except click.exceptions.Exit:
        raise
    except LockedError as error:
        if skips:
            skipped(speaker, records, error)
            return
        ended(speaker, records, error, error.exit_code)
        raise
    except DdError as error:
        ended(speaker, records, error, error.exit_code)
        raise
    except KeyboardInterrupt as error:
        ended(speaker, records, error, INTERRUPTED)
        raise
    except Exception as error:
        ended(speaker, records, error, BUG)
        raise


def skipped(speaker: Speaker, records: Records, error: DdError) -> None:
    """Record and say that another run holds the state, and that this one lets it."""
    records.skipped(error.problem)
    speaker.say(f"skipped: {error.problem}", "skipped")


def ended(speaker: Speaker, records: Records, error: BaseException, code: int) -> None:
    """Record how a run failed; where it is to be told as JSON, do so and exit: else whoever called us tells it as text."""
    records.failed(error, code)
    speaker.annotate(error)
    if speaker.form == "json":
        speaker.error(error, code)
        raise click.exceptions.Exit(code) from None


def stand(
    pipeline: Path,
    state: Path | None,
    once: Callable[[Callable[[Path], bool]], RunSummary],
    tell: Callable[[RunSummary], None],
    speaker: Speaker,
    records: Records,
    *,
    skips: bool,
) -> None:
    """Run whenever inputs change, until it is told to stop."""
    from ddcli.driver.watch import Standing, Stopped
    from ddcli.errors import LockedError
    from ddcli.job.summary import near

    def refused(error: DdError) -> None:
        if skips and isinstance(error, LockedError):
            skipped(speaker, records, error)
            return
        records.failed(error, error.exit_code)
        speaker.annotate(error)
        speaker.error(error, error.exit_code)

    def incomplete(path: Path) -> None:
        speaker.say(f"{near(str(path))} is not whole yet: it is taken in when it is", "incomplete", file=str(path))

    speaker.say(f"watching the inputs of {pipeline}; Ctrl-C ends it", "watching")
    try:
        Standing(pipeline, state, once, tell, refused, incomplete).run()
    except Stopped as stopped:
        code = SIGNALLED + stopped.signal
        records.failed(stopped, code)
        speaker.say("interrupted; state and outputs are as they were", "stopped", "error")
        raise click.exceptions.Exit(code) from None
    speaker.say("stopped", "stopped")

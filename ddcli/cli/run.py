"""`dd run`: take in what is new, commit, publish."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import OUTPUT, PIPELINE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.runtime.options import Engine

LEAST_MEMORY = 256 << 20


def _size(text: str | None) -> int | None:
    """Return a size of memory in bytes."""
    from ddcli.sizes import parse_size

    if text is None:
        return None
    try:
        size = parse_size(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' is no size; write it as 2GiB or 500MB") from None
    if size < LEAST_MEMORY:
        raise click.BadParameter(f"{text} is less than a run needs before it has read a row; give it 256MiB at least")
    return size


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
    callback=lambda _context, _option, text: _size(text),
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
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
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
    quiet: bool,
    output: str,
    cache_dir: Path | None,
) -> None:
    """Bring the outputs of PIPELINE up to date.

    Reads only what is new in the inputs, does work in proportion to it, and commits inputs taken, state and
    outputs together: a run that dies changes nothing. A run with nothing new changes no file.

    \b
    Examples:
      dd run pipelines/airborne.yaml --until 720
      dd run pipelines/airborne.yaml -o json
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
    from ddcli.cli.memory import keep_freed_memory
    from ddcli.errors import LockedError
    from ddcli.pipeline import run
    from ddcli.progress import SILENT
    from ddcli.report.live import LiveProgress
    from ddcli.store.objects import locate

    keep_freed_memory()
    live = LiveProgress() if sys.stderr.isatty() and not quiet else None
    speak = live.say if live else lambda line: click.echo(line, err=True)
    try:
        summary = run(
            pipeline,
            state=None if state is None else locate(Path.cwd(), state),
            until=until,
            dry_run=dry_run,
            apply=apply,
            refresh=frozenset(full_refresh) - {"all"} if full_refresh else None,
            memory=memory,
            workers=workers,
            engine=engine,
            master=master,
            remote=remote,
            conf=conf,
            if_locked=if_locked,  # type: ignore[arg-type]
            cache_dir=cache_dir,
            say=None if quiet else speak,
            progress=live or SILENT,
        )
    except LockedError as error:
        if if_locked != "skip":
            raise
        if not quiet:
            click.echo(f"skipped: {error.problem}", err=True)
        return
    if output == "json":
        import json

        click.echo(json.dumps(summary.to_json()))
    elif not quiet:
        for line in summary.lines():
            click.echo(line, err=True)

"""`dd state reopen`: take a state back to a time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from ddcli.cli.arguments import IF_LOCKED, NO_CODE, PIPELINE, REPORT, STATE, VAR
from ddcli.screen import json_text, say


@click.command("reopen", short_help="Open times again that runs have closed.")
@click.argument("pipeline", type=PIPELINE, required=False)
@click.option("--from", "start", required=True, metavar="T", help="The first time that is open again; a product: X,Y.")
@click.option(
    "--rewrite", multiple=True, metavar="NAME", help="Write the output NAME from the beginning instead; repeatable."
)
@STATE
@click.option("-n", "--dry-run", is_flag=True, help="Compute and show the summary, but commit nothing.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@IF_LOCKED
@NO_CODE
@REPORT
@VAR
def command(
    pipeline: Path | None,
    start: str,
    rewrite: tuple[str, ...],
    state: str | None,
    dry_run: bool,
    quiet: bool,
    if_locked: str,
    no_code: bool,
    output: str,
) -> None:
    """Take the state of PIPELINE back to the time T: T and later times are open again, and rows at them are not late.

    Under `clock: event`. The state is built anew from the files that it has taken in, which must be as they were, with their rows before T; later rows wait in them, and the
    next run takes them in with what is new. Rows put aside as late are among them where they are not before T. The outputs keep their files. Each gets one
    that takes back what it says of the times from T on; so readers that have closed these times get late rows, and are reopened in turn. With --rewrite NAME an output is begun anew instead.

    A row that closes too many times is withdrawn first, with its file: `dd retract PIPELINE FILE`; the next run would close them again.

    JSON: {name, lower, upper, reopened: T, rebuilt: {NAME: {rows, inserted, retracted, file}}, ...}: all keys of `dd run -o json`.

    \b
    Example:
      dd state reopen pipelines/airborne.yaml --from 480
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
    from ddcli.cli.memory import keep_freed_memory
    from ddcli.driver.run import run
    from ddcli.errors import UsageError
    from ddcli.store.files.objects import locate

    if pipeline is None:
        raise UsageError("no pipeline is named", hint="name the pipeline file: dd state reopen PIPELINE --from T")
    keep_freed_memory()
    summary = run(
        pipeline,
        state=None if state is None else locate(Path.cwd(), state),
        rewrite=frozenset(rewrite),
        dry_run=dry_run,
        if_locked=if_locked,  # type: ignore[arg-type]
        no_code=no_code,
        reopen=start,
        say=None if quiet else partial(say, err=True),
    )
    if output == "json":
        say(json_text(summary.to_json()))
    else:
        for line in [] if quiet else summary.lines():
            say(line, err=True)

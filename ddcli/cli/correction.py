"""The common part of `dd retract`, `dd state reopen` and `dd forget`: their options, and the call that corrects a state; and `dd state reopen`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ddcli.cli.arguments import DRY_RUN, IF_LOCKED, NO_CODE, PIPELINE, QUIET, REPORT, STATE, VAR
from ddcli.screen import json_text, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.job.forgotten_rows import ForgettingSummary
    from ddcli.job.summary import RunSummary
    from ddcli.store.files.lock import IfLocked


F = TypeVar("F", bound="Callable[..., Any]")


def corrects(command: F) -> F:
    """Return a command with the options that `correct` takes."""
    for option in (VAR, REPORT, NO_CODE, IF_LOCKED, QUIET, DRY_RUN, STATE):
        command = option(command)
    return command


def correct(
    pipeline: Path,
    *arguments: Any,
    by: Callable[..., RunSummary | ForgettingSummary] | None = None,
    state: str | None,
    dry_run: bool,
    quiet: bool,
    if_locked: IfLocked,
    no_code: bool,
    output: str,
    **asked: Any,
) -> None:
    """Correct a state `by` a function of the driver (default: `ddcli.driver.run.run`) with the arguments `asked`, and print the result."""
    from ddcli.cli.startup.process import keep_freed_memory
    from ddcli.driver.run import run
    from ddcli.store.files.objects import locate

    keep_freed_memory()
    summary = (by or run)(
        pipeline,
        *arguments,
        state=None if state is None else locate(Path.cwd(), state),
        dry_run=dry_run,
        if_locked=if_locked,
        no_code=no_code,
        say=None if quiet else partial(say, err=True),
        **asked,
    )
    if output == "json":
        say(json_text(summary.to_json()))
    else:
        for line in [] if quiet else summary.lines():
            say(line, err=True)


@click.command("reopen", short_help="Open times again that runs have closed.")
@click.argument("pipeline", type=PIPELINE, required=False)
@click.option("--from", "start", required=True, metavar="T", help="The first time that is open again; a product: X,Y.")
@click.option(
    "--rewrite",
    multiple=True,
    metavar="NAME",
    help="Write the output NAME anew, as one file of its contents; repeatable.",
)
@corrects
def reopen(pipeline: Path | None, start: str, rewrite: tuple[str, ...], **options: Any) -> None:
    """Take the state of PIPELINE back to the time T: T and later times are open again, and rows at them are not late.

    The command builds the state anew from the rows before T of the files that it has read, which must be unchanged. Rows at T or
    later wait in their files, and the next run reads them with new rows, also those that were put aside as late. The outputs keep their files, and each
    gets one more file that retracts its updates from T on. A pipeline that reads an output and has closed these times gets late rows: reopen it, too. --rewrite NAME writes an
    output anew instead.

    Under `clock: arrival` this takes back the runs from T on, as after a run under a clock that was ahead: the next run reads their files again, at its own time.

    If a row with a wrong time has closed too many times, withdraw its file first (`dd retract PIPELINE FILE`): else the next run closes them again.

    JSON: {name, lower, upper, reopened: T, rebuilt: {NAME: {rows, inserted, retracted, file}}, ...}: all keys of `dd run -o json`.

    \b
    Example:
      dd state reopen pipelines/airborne.yaml --from 480
    """
    from ddcli.errors import UsageError

    if pipeline is None:
        raise UsageError("no pipeline is named", hint="name the pipeline file: dd state reopen PIPELINE --from T")
    correct(pipeline, rewrite=frozenset(rewrite), reopen=start, **options)

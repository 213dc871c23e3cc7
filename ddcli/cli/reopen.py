"""`dd state reopen`: take a state back to a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddcli.cli.arguments import PIPELINE
from ddcli.cli.correction import correct, corrects

if TYPE_CHECKING:
    from pathlib import Path


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
def command(pipeline: Path | None, start: str, rewrite: tuple[str, ...], **options: Any) -> None:
    """Take the state of PIPELINE back to the time T: T and later times are open again, and rows at them are not late.

    The command builds the state anew from the rows before T of the files that it has taken in, which must be unchanged. Rows at T or
    later wait in their files, and the next run takes them in with new rows, also those that were put aside as late. The outputs keep their files, and each
    gets one more file that retracts its updates from T on. A pipeline that reads an output and has closed these times gets late rows: reopen it, too. --rewrite NAME writes an
    output anew instead.

    Under `clock: arrival` this takes back the runs from T on, as after a run under a clock that was ahead: the next run takes in their files again, at its own time.

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

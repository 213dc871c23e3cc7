"""`dd forget`: remove rows of inputs from all that a pipeline has made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddcli.cli.arguments import PIPELINE, NameIn
from ddcli.cli.correction import correct, corrects

if TYPE_CHECKING:
    from pathlib import Path


@click.command("forget", short_help="Remove rows of inputs from state, outputs and logs.")
@click.argument("pipeline", type=PIPELINE)
@click.option(
    "--where", required=True, metavar="CONDITION", help="The condition of the rows to remove, over an input's columns."
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=NameIn("inputs"),
    metavar="NAME",
    help="The input of the rows; repeatable. [default: the only one that has these columns]",
)
@corrects
def command(pipeline: Path, where: str, inputs: tuple[str, ...], **options: Any) -> None:
    """Remove the rows of an input for which CONDITION holds from the state of PIPELINE, its outputs, and its logs of late and failed rows, as if
    they had never existed.

    No file keeps a row that was computed from them, and neither does the past of outputs and state: it becomes the past of the other
    rows. No time is closed. The command reads the files of the inputs again, does not change them, and lists those that hold such rows. Remove the rows
    from these files, too. If you do that afterwards, repeat the command: until then no command reads these files again.

    If the command is killed, repeat it: it has changed everything or nothing, except for files that it still has to remove.

    JSON: {name, seconds, dry, inputs: {NAME: {rows, undecided}}, rewritten: [{was: FILE or null, file: FILE or null, bytes_before, bytes}],
    kept_files, kept_bytes, state_bytes_before, state_bytes, still_in: [FILE], versions_in: [OUTPUT], readers: [NAME]}.

    \b
    Examples:
      dd forget pipelines/airborne.yaml --input flights --where "carrier = 'HA'" --dry-run
    """
    from ddcli.driver.forget import forget

    correct(pipeline, where, inputs, by=forget, **options)

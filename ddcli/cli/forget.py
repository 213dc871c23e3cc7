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
@click.option("--where", required=True, metavar="CONDITION", help="The rows: a condition over an input's columns.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=NameIn("inputs"),
    metavar="NAME",
    help="The input whose rows they are; repeatable. [default: the only one that has these columns]",
)
@corrects
def command(pipeline: Path, where: str, inputs: tuple[str, ...], **options: Any) -> None:
    """Remove the rows of an input for which CONDITION holds from the state of PIPELINE, its outputs, and its logs of late and failed rows, as if
    they had never existed.

    No row that is made of them is left in any file, nor in the past that outputs and state keep: their history becomes that of the other
    rows. No time is closed. The files of the inputs are read again, and stay as they are; those that hold such rows are listed. Remove the rows
    from these files too. If you do that afterwards, repeat the command: until then no command reads these files again.

    If the command is killed, repeat it: it has done everything or nothing, but for files that it still has to remove.

    JSON: {name, seconds, dry, inputs: {NAME: {rows, undecided}}, rewritten: [{was: FILE or null, file: FILE or null, bytes_before, bytes}],
    kept_files, kept_bytes, state_bytes_before, state_bytes, still_in: [FILE], versions_in: [OUTPUT], readers: [NAME]}.

    \b
    Examples:
      dd forget pipelines/airborne.yaml --input flights --where "carrier = 'HA'" --dry-run
    """
    from ddcli.driver.forget import forget

    correct(pipeline, where, inputs, by=forget, **options)

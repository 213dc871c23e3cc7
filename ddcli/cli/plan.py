"""`dd plan`: what a run would do."""

from __future__ import annotations

from pathlib import Path

import click

from ddcli.cli.arguments import PIPELINE
from ddcli.screen import json_text, say

WORK = 10
"""The exit code of `--exit-code` where there is something to do."""


@click.command("plan", short_help="Show what a run would do.")
@click.argument("pipeline", type=PIPELINE)
@click.option("--until", metavar="T", help="As for `dd run`.")
@click.option(
    "--state",
    type=click.Path(path_type=str, file_okay=False),
    help="The state's directory. [default: the file's `state`, else .dd/NAME/ beside it]",
)
@click.option("--exit-code", is_flag=True, help="Exit with 10 if there is something to do.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Lines, or JSON.")
def command(pipeline: Path, until: str | None, state: str | None, exit_code: bool, output: str) -> None:
    """Show what a run of PIPELINE would do: files and rows to take in; and if the file has changed, which arrangements
    are kept and which are built anew, why, and which outputs would change.

    Computes nothing, changes nothing, waits for nobody. `rows` may be more than will be taken where files hold rows of
    other times, too.

    \b
    JSON: {name, lower, upper, work, needs_apply, inputs: {NAME: {rows, new_files, waiting_files,
          again_files, again_bytes}}, kept | built | dropped: [{of, rows, bytes, why: [TEXT]}],
          outputs: {NAME: {change: "same" | "new" | "changed" | "removed", why: [TEXT]}}}

    \b
    Examples:
      dd plan pipelines/airborne.yaml
      dd plan pipelines/airborne.yaml --exit-code -o json      # exit 10
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
    from ddcli.commands.plan import preview
    from ddcli.store.files.objects import locate

    found = preview(pipeline, state=None if state is None else locate(Path.cwd(), state), until=until)
    if output == "json":
        say(json_text(found.to_json()))
    else:
        for line in found.lines():
            say(line)
    if exit_code and found.work:
        raise click.exceptions.Exit(WORK)

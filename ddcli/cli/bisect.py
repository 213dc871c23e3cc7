"""`dd bisect`: the run, the files and the rows that made a number wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ddcli.cli.arguments import NO_CODE, PIPELINE, SHOW, STATE, VAR, formats
from ddcli.screen import json_text, say


@click.command("bisect", short_help="Find the run, files and rows that made a number wrong.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("query")
@click.option(
    "--good", metavar="CONDITION", help="The condition of each row while all was well: `> 1000`, `amount is not null`."
)
@click.option("--bad", metavar="CONDITION", help="The condition of a row that is wrong: `count(*) > 0`.")
@click.option("--between", nargs=2, metavar="T1 T2", help="Search only times after T1, up to T2.")
@STATE
@NO_CODE
@formats("text", "json", about="Format: lines, or JSON.")
@SHOW
@VAR
def command(
    pipeline: Path,
    query: str,
    good: str | None,
    bad: str | None,
    between: tuple[str, str] | None,
    state: str | None,
    no_code: bool,
    output: str,
) -> None:
    """Find the first time at which a condition on the SQL QUERY over outputs of PIPELINE fails after it held, and the cause.

    In place of a query the name of a check asks when it got its first violation after it had none.

    A condition is an SQL expression over the columns of the query; one that begins with a comparison is about the first column. It may have aggregates.
    Prints the value before and at that time, the run that committed it, whether the run computed collections anew because the pipeline file had been edited,
    and the fewest updates of inputs at that time without which the condition would hold, with their files and lines.

    Reads the outputs' logs once, and of the inputs only the rows that may matter to the records that changed. Computes nothing of the pipeline but these records. Writes nothing, takes no lock.

    Exits with 1 if the condition does not fail.

    JSON: {"condition", "at", "before": [ROW], "now": [ROW], "without": [ROW]|null, "run": {"number", "began"}|null, "rebuilt": [COLLECTION],
    "updates": [{"input", "record", "diff", "at": [{"file", "row"}]}], "holds_again": T|null, "notes"}

    \b
    Examples:
      dd bisect pipelines/airborne.yaml "select sum(flights) from airborne" --good "< 100"
      dd bisect pipelines/airborne.yaml "select * from airborne" --bad "count(*) > 12" --between 0 900
    """
    from ddcli.engine.counts import SILENT
    from ddcli.provenance.bisection import bisect
    from ddcli.provenance.trees import bisection_json, bisection_lines
    from ddcli.store.files.objects import locate

    where = None if state is None else locate(Path.cwd(), state)
    progress = SILENT
    if sys.stderr.isatty():
        from ddcli.render.live import LiveProgress

        progress = LiveProgress()
    found = bisect(
        pipeline, query, good=good, bad=bad, between=between, state=where, no_code=no_code, progress=progress
    )
    if output == "json":
        say(json_text(bisection_json(found)))
        return
    for line in bisection_lines(found):
        say(line)
    for note in found.notes:
        say(f"note: {note}", err=True)

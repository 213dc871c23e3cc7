"""`dd why` and `dd bisect`: the updates of inputs that explain a record; the run, the files and the rows that made a number wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ddcli.cli.arguments import COLLECTION, NO_CODE, PIPELINE, SHOW, STATE, VAR, ColumnOf, Renamed, formats
from ddcli.screen import json_text, say

UNWRAPPED = 1 << 16
"""The width of a stream that is not a terminal: no line is wrapped there."""


@click.command("why", short_help="Show the input rows that explain a record.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("collection", type=COLLECTION)
@click.argument("keys", type=ColumnOf("collection"), metavar="COLUMN=VALUE...", nargs=-1, required=True)
@click.option(
    "--as-of",
    "at",
    cls=Renamed,
    old=["--at"],
    metavar="T",
    help="Explain the records at T. [default: the last closed time, or the last of the inputs]",
)
@click.option(
    "--change",
    is_flag=True,
    help="Explain how records changed or vanished at that time. [default time: the last with a change]",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Explain at most N records, and show at most N of a group.",
    metavar="N",
)
@STATE
@NO_CODE
@formats("text", "json", about="Format: trees, or JSON.")
@SHOW
@VAR
def why_command(
    pipeline: Path,
    collection: str,
    keys: tuple[str, ...],
    at: str | None,
    change: bool,
    limit: int,
    state: str | None,
    no_code: bool,
    output: str,
) -> None:
    """Show why records with these values are in a COLLECTION of PIPELINE: an input, a collection or an output. 'COLUMN is null' asks for records without a value.

    A tree leads from the record through the operators to the input updates that it comes from, each with its file and
    the line (of text) or the row (counted from 0) in it. If a few updates suffice (a minimum, a distinct record), the tree shows only these; it derives a record of a loop
    in as few rounds as possible. The explanation is checked: the pipeline, run over these updates alone, must produce the record with
    the same multiplicity. If it does not, a wider explanation is tried and reported.

    If no such record exists, the tree shows why: a false condition, a record that excludes it, or an input without such a row.

    With --change the tree leads to the updates of that one time that added or removed records, or changed their
    multiplicity, such as a new record that displaced another. This is checked, too: added to the contents before, they must make that change.

    Reads the inputs again, but only rows that may matter; writes nothing.

    Exits with 1 if no such record exists, or if none has changed.

    \b
    JSON: {"pipeline", "collection", "at", "change", "matching", "read", "seconds", "missing": MISSING|null, "records": [{"record", "count",
           "scope": "witness"|"whole"|"everything", "checked", "updates", "reason": REASON}]}
           REASON: {"collection", "operator", "round", "record", "count", "notes", "because": [REASON], "more",
           "updates": [{"input", "record", "time", "diff", "at": [{"file", "row", "came", "went"}]}]}
           MISSING: {"collection", "values", "why", "hindrance": REASON|null, "because": [MISSING]}

    \b
    Examples:
      dd why pipelines/airborne.yaml airborne carrier=HA
      dd why pipelines/reachable.yaml reachable origin=BOS dest=SAN --as-of 2013-02-08
      dd why pipelines/risk.yaml at_risk person=Fantine --change
      dd why pipelines/risk.yaml accused person=Javert  # exit 1
      dd why pipelines/risk.yaml at_risk person=Fantine --as-of 1 -o json
    """
    from ddcli.engine.counts import SILENT
    from ddcli.job.summary import plural
    from ddcli.provenance import trees
    from ddcli.provenance.explanation import explain, not_there
    from ddcli.store.files.objects import locate

    where = None if state is None else locate(Path.cwd(), state)
    progress = SILENT
    if sys.stderr.isatty():
        from ddcli.render.live import LiveProgress

        progress = LiveProgress()
    answer = explain(
        pipeline, collection, keys, at=at, change=change, state=where, limit=limit, no_code=no_code, progress=progress
    )
    if output == "json":
        say(json_text(trees.to_json(answer)))
        if answer.missing is not None:
            raise not_there(answer)
        return
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = UNWRAPPED
    for tree, each in zip(trees.trees(answer), answer.explained, strict=True):
        console.print(tree)
        say(trees.verdict(each), err=True)
    if answer.missing is not None:
        console.print(trees.missing_tree(answer, answer.missing))
        raise not_there(answer)
    if answer.matching > len(answer.explained):
        say(f"and {answer.matching - len(answer.explained):,} more records", err=True)
    say(f"{answer.read:,} {plural(answer.read, 'update')} read, {answer.seconds:.2f} s", err=True)


@click.command("bisect", short_help="Find the run, files and rows that made a number wrong.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("query")
@click.option(
    "--good",
    metavar="CONDITION",
    help="The condition that each row fulfilled while all was well: `> 1000`, `amount is not null`.",
)
@click.option("--bad", metavar="CONDITION", help="The condition of a wrong row: `count(*) > 0`.")
@click.option("--between", nargs=2, metavar="T1 T2", help="Search only times after T1, up to T2.")
@STATE
@NO_CODE
@formats("text", "json", about="Format: lines, or JSON.")
@SHOW
@VAR
def bisect_command(
    pipeline: Path,
    query: str,
    good: str | None,
    bad: str | None,
    between: tuple[str, str] | None,
    state: str | None,
    no_code: bool,
    output: str,
) -> None:
    """Find the first time at which a condition on the SQL QUERY over outputs of PIPELINE fails, and the cause.

    Instead of a query, name a check to find when it got its first violation after it had none.

    A condition is an SQL expression over the columns of the query; one that begins with a comparison is about the first column. It may have aggregates.
    Prints the value before and at that time; the run that committed it, and whether that run recomputed collections because the pipeline file had been edited; and a
    minimal set of input updates that makes the condition fail, with their files and lines.

    Reads the outputs' logs once, and only the input rows that may matter to the changed records. Computes only these records. Writes nothing, takes no lock.

    Exits with 1 if the condition does not fail.

    JSON: {"condition", "at", "before": [ROW], "now": [ROW], "without": [ROW]|null, "run": {"number", "began"}|null, "rebuilt": [COLLECTION], "replaced": [FILE],
    "updates": [{"input", "record", "diff", "went", "at": [{"file", "row"}]}], "holds_again": T|null, "notes"}

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

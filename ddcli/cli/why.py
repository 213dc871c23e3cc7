"""`dd why`: the updates of inputs that explain a record."""

from __future__ import annotations

from pathlib import Path

import click

from ddcli.cli.arguments import COLLECTION, NO_CODE, PIPELINE
from ddcli.screen import json_text, say

UNWRAPPED = 1 << 16
"""The width of what is no terminal: there a line is a line."""


@click.command("why", short_help="Show which updates of inputs explain a record.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("collection", type=COLLECTION)
@click.argument("keys", metavar="COLUMN=VALUE...", nargs=-1, required=True)
@click.option(
    "--at", metavar="T", help="The time to look at. [default: the last that runs have closed, or of the inputs]"
)
@click.option(
    "--change",
    is_flag=True,
    help="Explain how records changed at the time, those that went too. [default time: the last at which one did]",
)
@click.option(
    "--limit", type=click.IntRange(1), default=5, show_default=True, help="Records to explain, and to show of a group."
)
@click.option(
    "--state",
    type=click.Path(path_type=str, file_okay=False),
    help="The state's directory. [default: the file's `state`, else .dd/NAME/ beside it]",
)
@NO_CODE
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Trees, or JSON.")
def command(
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
    """Show why records are in a collection of PIPELINE, an output or any other: those that have these values.

    The tree leads from the record through the operators to the updates of inputs that it comes from, each with its file and
    row (counted from 0). Where a few of them are enough (a minimum, a distinct record), these few are shown; a record of a loop is
    derived in as few rounds as can be. The explanation is checked: the pipeline is run over these updates alone, and must
    give the record as often as it is there. Where that fails, a wider explanation is tried, and told.

    Where there is no such record, the tree leads down to where such records end: at a condition that is not true, at a record that
    stands in the way, at an input that has none.

    With --change the tree leads to the updates of that one time that made records come, go, or be there more or less often: also
    the record that came and drove another one out. Checked, too: added to what was there before, they must make that change.

    The inputs are read again, of their rows those that may matter; nothing is written.

    Exit code 1: no such record is there, or none has changed.

    \b
    JSON: {"pipeline", "collection", "at", "change", "matching", "read", "seconds", "missing": MISSING|null, "records": [{"record", "count",
           "scope": "witness"|"whole"|"everything", "checked", "updates", "reason": REASON}]}
           REASON: {"collection", "operator", "round", "record", "count", "notes", "because": [REASON], "more",
           "updates": [{"input", "record", "time", "diff", "at": [{"file", "row"}]}]}
           MISSING: {"collection", "values", "why", "hindrance": REASON|null, "because": [MISSING]}

    \b
    Examples:
      dd why pipelines/airborne.yaml airborne carrier=HA
      dd why pipelines/reachable.yaml reachable origin=BOS dest=SAN --at 2013-02-08
      dd why pipelines/risk.yaml at_risk person=Fantine --change
      dd why pipelines/risk.yaml accused person=Javert  # exit 1
      dd why pipelines/risk.yaml at_risk person=Fantine --at 1 -o json
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
    from ddcli.job.summary import plural
    from ddcli.provenance import trees
    from ddcli.provenance.explanation import explain, not_there
    from ddcli.store.files.objects import locate

    where = None if state is None else locate(Path.cwd(), state)
    answer = explain(pipeline, collection, keys, at=at, change=change, state=where, limit=limit, no_code=no_code)
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
        say(f"and {answer.matching - len(answer.explained):,} records more", err=True)
    say(f"{answer.read:,} {plural(answer.read, 'update')} read, {answer.seconds:.2f} s", err=True)

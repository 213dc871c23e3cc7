"""`dd why`, `dd bisect` and `dd verify`: the updates of inputs that explain a record; the run, the files and the rows that made a number wrong; proof that outputs follow from their inputs."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import (
    COLLECTION,
    NO_CODE,
    ONLY_PIPELINE,
    PIPELINE,
    REPORT,
    SHOW,
    STATE,
    VAR,
    MemorySize,
    Renamed,
    column_of,
    formats,
    report,
)
from ddcli.cli.diff import DIFFERENT, LEAST_MEMORY
from ddcli.errors import UsageError
from ddcli.screen import json_text, plural, say

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.engine.counts import Progress

UNWRAPPED = 1 << 16
"""The width of a stream that is not a terminal: no line is wrapped there."""


def _progress() -> Progress:
    """Return a display of progress, if a person looks at stderr."""
    if sys.stderr.isatty():
        from ddcli.render.live import LiveProgress

        return LiveProgress()
    from ddcli.engine.counts import SILENT

    return SILENT


@click.command("why", short_help="Show the input rows that explain a record.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("collection", type=COLLECTION)
@click.argument("keys", type=column_of("collection"), metavar="COLUMN=VALUE...", nargs=-1, required=True)
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
    state: Path | None,
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
    from ddcli.provenance import trees
    from ddcli.provenance.explanation import explain, not_there

    answer = explain(
        pipeline,
        collection,
        keys,
        at=at,
        change=change,
        state=state,
        limit=limit,
        no_code=no_code,
        progress=_progress(),
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
@REPORT
@SHOW
@VAR
def bisect_command(
    pipeline: Path,
    query: str,
    good: str | None,
    bad: str | None,
    between: tuple[str, str] | None,
    state: Path | None,
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
    from ddcli.provenance.bisection import bisect
    from ddcli.provenance.trees import bisection_json, bisection_lines

    found = bisect(
        pipeline, query, good=good, bad=bad, between=between, state=state, no_code=no_code, progress=_progress()
    )
    report(output, bisection_json(found), bisection_lines(found))
    for note in found.notes if output != "json" else ():
        say(f"note: {note}", err=True)


SHARE = re.compile(r"(\d+(?:\.\d+)?) ?%")
NUMBERED = re.compile(r"(\d+)/(\d+)")


@click.command("verify", short_help="Prove that outputs follow from their inputs.")
@ONLY_PIPELINE
@click.option(
    "--slice",
    "part",
    metavar="P%|K/N",
    default="1%",
    show_default=True,
    help="Verify this share of each output's values, a random one that was not covered yet, or the K-th of N disjoint slices.",
)
@click.option(
    "--all", "whole", is_flag=True, help="Verify everything: recompute it from the files that the state has read."
)
@click.option("--select", metavar="OUTPUT", multiple=True, help="Verify this output; repeatable. [default: all]")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Show at most N differing records of each output.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    type=MemorySize(LEAST_MEMORY),
    help="With --all: limit the memory of the process: 2GiB, 500MB. [default: three quarters of the machine's]",
)
@click.option("--strict", is_flag=True, help="Also exit with 1 if an output was not verified, or a table not compared.")
@STATE
@NO_CODE
@REPORT
@SHOW
@VAR
def verify_command(
    pipeline: Path,
    part: str,
    whole: bool,
    select: tuple[str, ...],
    limit: int,
    memory: int | None,
    strict: bool,
    state: Path | None,
    no_code: bool,
    output: str,
) -> None:
    """Compare the committed outputs of PIPELINE with what follows from the input files. Exits with 1 if they differ.

    A slice is computed differently from a run. It is the values of one output column whose hash falls into the slice. The command reads only the input rows
    on which records with these values can depend, and runs the pipeline over them in memory, without its state. So a slice takes seconds, and N disjoint
    slices prove everything. For shares, the state remembers which slices were right: each call takes another one, and starts over once all are covered.

    If no column of an output decides which rows matter, as for a total, the output is listed as not verified, and only --all verifies it; with --strict
    the command exits with 1 then. Arrangements of the state are
    compared slice by slice, too, if one of their columns restricts all inputs; others are listed. Results of functions that remember are read from the
    state. Rows with null in the column are in the first slice.

    --all recomputes everything as a run does, even if it exceeds the memory, from the input files that the state has read, without using anything in the state.
    It also verifies all arrangements of the state.

    Each commit keeps a fingerprint of each output: a number that depends only on its records. Each call compares it with the whole log. Copies of a state
    and its outputs are equal if their fingerprints are.

    Tables that follow outputs, such as a Delta or database table, are compared with the outputs' whole logs.

    `dd state verify` proves that the files of the state and the outputs are unchanged; this command proves that they were right. Takes no lock, and for
    shares writes only which slices were covered.

    \b
    JSON: {"pipeline", "at", "same", "slice": {"number", "parts", "covered"|null}|null, "outputs": {NAME: {"column", "values", "records", "differ",
           "first": [{"diff", "record"}]}}, "tables": {NAME: {"place", "differ", "first", "fault"|null}}, "logs": {NAME: {"fingerprint", "fault"|null}},
           "arrangements": {OPERATOR: right}, "uncompared": {OPERATOR: reason}, "not_compared": {NAME: reason}, "unproven": {NAME: reason}, "seconds"}

    \b
    Examples:
      dd verify pipelines/airborne.yaml --slice 50%
      dd verify pipelines/airborne.yaml --slice 3/7 -o json
      dd verify pipelines/airborne.yaml --all
    """
    from ddcli.provenance.trees import verification_json, verification_lines
    from ddcli.provenance.verification import verify

    found = verify(
        pipeline,
        None if whole else _slice(part),
        state=state,
        select=select,
        memory=memory,
        no_code=no_code,
        say=partial(say, err=True),
    )
    report(output, verification_json(found, limit), verification_lines(found, limit))
    if not found.same or (strict and (found.unproven or found.lagging)):
        raise click.exceptions.Exit(DIFFERENT)


def _slice(text: str) -> tuple[int | None, int]:
    """Return the number of a slice, from 0, or None for a share, and how many slices there are.

    >>> _slice("3/10"), _slice("0.1%")
    ((2, 10), (None, 1000))
    """
    numbered, share = NUMBERED.fullmatch(text), SHARE.fullmatch(text)
    if numbered and 1 <= int(numbered[1]) <= int(numbered[2]):
        return int(numbered[1]) - 1, int(numbered[2])
    if share and 0 < float(share[1]) <= 100:
        return None, max(1, round(100 / float(share[1])))
    raise UsageError(f"--slice {text}: there is no such slice", hint="write a share, 0.1%, or a number, 3/100")

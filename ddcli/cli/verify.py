"""`dd verify`: proof that outputs follow from their inputs."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import click

from ddcli.cli.arguments import NO_CODE, ONLY_PIPELINE, SHOW, STATE, VAR, MemorySize, formats
from ddcli.cli.diff import DIFFERENT, LEAST_MEMORY
from ddcli.errors import UsageError
from ddcli.screen import json_text, say

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
@STATE
@NO_CODE
@formats("text", "json", about="Format: lines, or JSON.")
@SHOW
@VAR
def command(
    pipeline: Path,
    part: str,
    whole: bool,
    select: tuple[str, ...],
    limit: int,
    memory: int | None,
    state: str | None,
    no_code: bool,
    output: str,
) -> None:
    """Compare the committed outputs of PIPELINE with what follows from the input files. Exits with 1 if they differ.

    A slice is computed differently from a run. It is the values of one output column whose hash falls into the slice. The command reads only the input rows
    on which records with these values can depend, and runs the pipeline over them in memory, without its state. So a slice takes seconds, and N disjoint
    slices prove everything. For shares, the state remembers which slices were right: each call takes another one, and starts over once all are covered.

    If no column of an output decides which rows matter, as for a total, the output is listed, and only --all verifies it. Arrangements of the state are
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
    from ddcli.store.files.objects import locate

    found = verify(
        pipeline,
        None if whole else _slice(part),
        state=None if state is None else locate(Path.cwd(), state),
        select=select,
        memory=memory,
        no_code=no_code,
        say=partial(say, err=True),
    )
    if output == "json":
        say(json_text(verification_json(found, limit)))
    else:
        for line in verification_lines(found, limit):
            say(line)
    if not found.same:
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

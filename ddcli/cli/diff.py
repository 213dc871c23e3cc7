"""`dd diff`: the difference of two collections, or of two pipelines' outputs; and `dd run --scenarios`, the differences that other inputs would make."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import CSV_OPTION, NO_CODE, SHOW, VAR, MemorySize, added_files, formats, log_options, parse_csv
from ddcli.engine.process import give_freed_memory_back, keep_freed_memory
from ddcli.errors import UsageError
from ddcli.screen import json_text, near, say
from ddcli.spec.file import AT, ENDINGS, branch_file, file_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.compare.against import Samples
    from ddcli.compare.diff import Difference
    from ddcli.compare.output import Form
    from ddcli.compare.pipelines import Differences

DIFFERENT = 1
SHOWN = 20
"""The most changed rows that are shown by default."""
ALL_SHOWN = ("jsonl", "parquet")
LEAST_MEMORY = 384 << 20
NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*|([^,]*)),')
"""A column's name before a comma: in double quotes, or as it is; not by the module `csv`, which refuses line breaks."""


SAMPLE = re.compile(r"\s*(.+?)\s*%\s*(\d{1,18})\s*=\s*(\d{1,18})\s*")


@click.command("diff", short_help="Compare logs, tables, or the outputs of two pipelines.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@click.option(
    "-k",
    "--key",
    metavar="COLUMN,...",
    multiple=True,
    help="Columns that identify records, so that rows are added, removed or changed. OUTPUT=COLUMN,... is for one output of pipelines; repeatable. Write a name with a comma in double quotes. [default: compare whole rows]",
)
@click.option("--ignore", metavar="COLUMN", multiple=True, help="Leave a column out; repeatable.")
@click.option(
    "--ignore-types",
    is_flag=True,
    help="Ignore differences of types. Values are always compared by their meaning.",
)
@click.option(
    "--tolerance",
    metavar="COLUMN=LIMIT",
    multiple=True,
    help="Treat values of COLUMN as equal if they differ by at most LIMIT: amount=0.01, amount=0.1% of the larger one, at=5s; repeatable.",
)
@click.option(
    "--max-changed",
    metavar="N|P%",
    help="Exit with 0 if at most this many rows were added, removed and changed: a number, or a percentage of A's rows.",
)
@click.option("--as-of", metavar="T", help="Compare the logs' collections at T. [default: after all updates]")
@click.option("--from", "from_time", metavar="T", help="Read A as of T.")
@click.option("--to", "to_time", metavar="T", help="Read B as of T; without B, read A again as of T.")
@log_options(
    "The time columns of a log, in order; repeatable. [default: time]",
    "The diff column of a log. Files without this column are a table.",
    metavar="COLUMN,...",
)
@CSV_OPTION
@click.option(
    "--base",
    metavar="REV",
    help="Compare the pipeline file A with its version in this git revision, on the present inputs.",
)
@click.option(
    "--against",
    metavar="STATE",
    help="Compare the outputs in this state, a directory or s3://BUCKET/PREFIX, with those that the pipeline file A would make of the same rows. Nothing is written.",
)
@click.option(
    "--with",
    "added",
    metavar="INPUT+=FILE",
    multiple=True,
    help="With --against: add the rows of a file to an input, before it is delivered; repeatable.",
)
@click.option(
    "--without",
    metavar="FILE",
    multiple=True,
    help="With --against: leave out the rows of this input file, as `dd retract` would; repeatable.",
)
@click.option(
    "--sample",
    metavar="COLUMN%N=K",
    help="With --against: compare only the records whose COLUMN leaves the remainder K when divided by N (text and dates by their hash). Reads only input rows that these depend on.",
)
@click.option("--plain", is_flag=True, help="Compare the rows of files as they are, even the updates of a log.")
@click.option(
    "--select",
    metavar="OUTPUT",
    multiple=True,
    help="Compare this output of two pipelines; repeatable. [default: all]",
)
@NO_CODE
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0),
    help=f"Show at most N changed rows. [default: {SHOWN}; all with jsonl and parquet]",
)
@click.option(
    "--memory",
    metavar="SIZE",
    type=MemorySize(LEAST_MEMORY),
    help="Limit the memory of the process: 2GiB, 500MB. Larger sides are written to scratch files below $TMPDIR. [default: three quarters of the machine's]",
)
@formats(
    "text", "json", "jsonl", "markdown", "html", "parquet", about="Format. parquet: a change log that turns A into B."
)
@SHOW
@VAR
def command(
    a: str,
    b: str | None,
    key: tuple[str, ...],
    ignore: tuple[str, ...],
    ignore_types: bool,
    tolerance: tuple[str, ...],
    max_changed: str | None,
    as_of: str | None,
    from_time: str | None,
    to_time: str | None,
    time: tuple[str, ...],
    diff: str,
    csv: str | None,
    base: str | None,
    against: str | None,
    added: tuple[str, ...],
    without: tuple[str, ...],
    sample: str | None,
    plain: bool,
    select: tuple[str, ...],
    no_code: bool,
    limit: int | None,
    memory: int | None,
    output: Form,
) -> None:
    """Compare A with B. Exits with 0 if they are the same, with 1 if they differ.

    A side is a change log (files with a time and a diff: its collection is compared), or a table in Parquet, Arrow, CSV or
    NDJSON; a directory, a file or a glob. One log is compared at two times: `--from T --to T`. Two pipeline files are compared output by output, over the present inputs; they run in temporary states, so no state and no output changes.

    With `--base REV` one file is enough: A is the file in that revision, with its includes and Python modules, B the present one.
    With `--against STATE` A is what the state has committed, B what the file would make of the rows that the state has read.
    Only what lies above the edit is computed. The state is only read; its pipeline may run elsewhere.

    Branches (`dd branch`) are compared as committed, without a run: `sales.yaml@main sales.yaml@q4`, or `out@q4/` with `out/`.

    A different type is a difference, and so is a column on one side only. Text (CSV, NDJSON) is read in the types of the other side, or if both are text, in types that fit the values.

    \b
    Examples:
      dd diff out/airborne --from 540 --to 600 --key carrier,name     # exit 1
      dd diff out/airborne --from 540 --to 600 --key carrier,name --max-changed 80%
      dd diff pipelines/airborne.yaml pipelines/airborne.yaml --key carrier --as-of 600 -o json
      dd diff fixtures/flights/airlines.parquet fixtures/flights/airlines.parquet -o markdown

    \b
    JSON: {"same": true, "ok": true, "verdict": "same",
           "a": {"name": "old/", "kind": "change log", "rows": 3, "repeated_keys": 0}, "b": ...,
           "key": ["id"], "max_changed": "1%", "rows": {"same": 3, "removed": 0, "changed": 0, "added": 0},
           "cells": {"amount": 1}, "columns": [{"column": "at", "change": "type|only_a|only_b", "a": "datetime[ms]",
           "b": "datetime[us]", "note": "compared as datetime[us]"}], "notes": [],
           "changes": [{"change": "changed", "count": 1, "key": {"id": 7}, "cells": {"amount": {"old": 1, "new": 2}}},
                       {"change": "added", "count": 1, "key": {"id": 8}, "row": {"amount": 1}}], "changes_left_out": 0}
    Of pipelines: {"same": ..., "ok": ..., "outputs": {NAME: as above}, "only_a": [NAME], "only_b": [NAME], "failing_checks": [CHECK], "notes": []}
    """
    if base is not None:
        if b is not None or not a.endswith(ENDINGS):
            raise UsageError("--base is for one pipeline file", hint="for example `dd diff --base main orders.yaml`")
        b = a
    a, b = _of_branch(a), b and _of_branch(b)
    pipelines = _are_pipelines(a, b, against)
    timed = from_time is not None or to_time is not None
    if output == "parquet" and sys.stdout.isatty():
        raise UsageError("a terminal can't show Parquet", hint="write it to a file: `-o parquet > changes.parquet`")
    if as_of is not None and (timed or against is not None):
        other = "--from and --to" if timed else "--against, which compares what the state has committed last"
        raise UsageError("--as-of is one time for both sides", hint=f"leave it out, or {other}")
    _refuse_files(added, without, against, sample)
    if b is None and against is None and not timed:
        raise UsageError("there is nothing to compare A with", hint="name B; or, of a log, two times: --from T --to T")
    if select and not pipelines:
        raise UsageError("--select is for pipelines, and the sides are data")
    if pipelines and (timed or time or plain or csv):
        raise UsageError("--from, --to, --time, --csv and --plain are for data, and the sides are pipelines")
    if memory is None:
        keep_freed_memory()
    else:
        give_freed_memory_back()

    from ddcli.compare.columns import Settings, parse_max_changed, parse_tolerances
    from ddcli.compare.diff import compare_named
    from ddcli.compare.output import show
    from ddcli.compare.sides import SideReader

    tolerances = parse_tolerances(tolerance)
    allowed = None if max_changed is None else parse_max_changed(max_changed)
    keys = parse_keys(key, of_outputs=pipelines)

    def settings(name: str | None) -> Settings:
        return Settings(keys.get(name, keys[None]), frozenset(ignore), ignore_types, tolerances, allowed)

    found: Difference | Differences
    if against is not None:
        from ddcli.compare.against import compare_against
        from ddcli.store.files.access import locate

        found = compare_against(
            Path(a),
            locate(Path.cwd(), against),
            settings,
            added=added_files(added),
            without=[locate(Path.cwd(), text) for text in without],
            select=select,
            memory=memory,
            no_code=no_code,
            sampled=None if sample is None else _sampled(sample),
            say=partial(say, err=True),
        )
    elif b is not None and base is None and _is_of_branches(a, b):
        from ddcli.compare.pipelines import compare_branches

        found = compare_branches(Path(a), Path(b), settings, select=select, as_of=as_of, memory=memory)
    elif b is not None and pipelines:
        import tempfile

        from ddcli.compare.pipelines import at_revision, compare_pipelines, present

        with tempfile.TemporaryDirectory(prefix="dd-base-", ignore_cleanup_errors=True) as scratch:
            found = compare_pipelines(
                present(Path(a)) if base is None else at_revision(Path(a), base, Path(scratch)),
                present(Path(b)),
                settings,
                select=select,
                as_of=as_of,
                memory=memory,
                no_code=no_code,
                say=partial(say, err=True),
            )
    else:
        from ddcli.expressions.csv_dialect import DEFAULT

        dialect = parse_csv(csv) if csv else DEFAULT
        read = SideReader(tuple(",".join(time).split(",")) if time else None, diff, plain=plain, dialect=dialect)
        left = (a, replace(read, as_of=as_of or from_time))
        right = (a if b is None else b, replace(read, as_of=as_of or to_time))
        found = compare_named(left, right, settings(None), memory)
    show(found, output, limit if limit is not None or output in ALL_SHOWN else SHOWN, sys.stdout.buffer)
    if not found.ok:
        raise click.exceptions.Exit(DIFFERENT)


def _sampled(text: str) -> partial[Samples]:
    """Return the sample of outputs that a person names.

    >>> _sampled("customer%100=7").args[0].words
    'customer%100=7'
    """
    from ddcli.provenance.slices import Sample
    from ddcli.provenance.verification import sampled_outputs

    found = SAMPLE.fullmatch(text)
    if found is None or int(found[3]) >= int(found[2]):
        raise UsageError(
            f"--sample {text}: there is no such sample", hint="write a column, a number and a remainder: customer%100=7"
        )
    return partial(sampled_outputs, Sample(found[1], int(found[2]), int(found[3])))


def _of_branch(side: str) -> str:
    """Return the pipeline file that `sales.yaml@q4` stands for; any other side as it is.

    >>> [_of_branch(side) for side in ("sales.yaml@q4", "sales.yaml@main", "out@q4/")]
    ['sales@q4.yaml', 'sales.yaml', 'out@q4/']
    """
    path, _, name = side.rpartition(AT)
    if not path.endswith(ENDINGS):
        return side
    return path if name == "main" else str(branch_file(Path(path), name))


def _refuse_files(added: Sequence[str], without: Sequence[str], against: str | None, sample: str | None) -> None:
    """Raise UsageError for files and a sample that fit no comparison."""
    if sample is not None and against is None:
        raise UsageError("--sample is for --against", hint="name the state: --against .dd/orders")
    if sample is not None and (added or without):
        raise UsageError(
            "--sample is for an edit, and --with and --without read no input again", hint="leave out --sample"
        )
    if (without or added) and against is None:
        raise UsageError("--with and --without are for --against", hint="name the state: --against .dd/orders")
    if without and added:
        raise UsageError("--with and --without are two comparisons", hint="make one after the other")


def _is_of_branches(a: str, b: str) -> bool:
    """Return whether the sides are pipeline files, and one is a branch's."""
    return all(side.endswith(ENDINGS) for side in (a, b)) and any(AT in Path(side).stem for side in (a, b))


def _are_pipelines(a: str, b: str | None, against: str | None) -> bool:
    """Return whether pipelines are compared, not data. Raises UsageError for sides of both kinds, and for two sides against a state."""
    if against is not None:
        if b is not None or not a.endswith(ENDINGS):
            raise UsageError(
                "--against is for one pipeline file", hint="for example `dd diff --against .dd/orders orders.yaml`"
            )
        return True
    pipelines = [side is not None and side.endswith(ENDINGS) for side in (a, b)]
    if any(pipelines) and not all(pipelines):
        raise UsageError(
            "a pipeline file can only be compared with another one",
            hint=("run it, and name its output's directory", "with a commit of git: `dd diff --base main orders.yaml`"),
        )
    return all(pipelines)


def parse_keys(texts: Sequence[str], *, of_outputs: bool) -> dict[str | None, tuple[str, ...] | None]:
    """Return the key columns by output, under None for all others; only pipelines have outputs. A name with a comma is in double quotes.

    >>> parse_keys(["id", 'sales="a,b",region'], of_outputs=True)
    {None: ('id',), 'sales': ('a,b', 'region')}
    """
    keys: dict[str | None, tuple[str, ...] | None] = {None: None}
    for text in texts:
        name, equals, columns = text.partition("=")
        output = name if of_outputs and equals else None
        listed = NAME.findall((text if output is None else columns) + ",")
        named = tuple((quoted.replace('""', '"') or plain).strip() for quoted, plain in listed)
        if not all(named):
            raise UsageError(f"'{text}' names no columns", hint="write it as --key id, or --key region,day")
        keys[output] = (*(keys.get(output) or ()), *named)
    return keys


def print_scenarios(
    pipelines: tuple[Path, ...],
    branch: str | None,
    file: Path,
    state: Path | None,
    memory: int | None,
    output: str,
    *,
    no_code: bool,
) -> None:
    """Print the rows that scenarios change. Raises UsageError for options of runs that commit."""
    from ddcli.compare.scenarios import scenarios
    from ddcli.render.rows import write_rows

    context = click.get_current_context()
    fit = {"pipelines", "scenarios", "state", "memory", "no_code", "output", "branch", "var", "show"}
    typed = click.core.ParameterSource.COMMANDLINE
    given = [name for name in context.params if name not in fit and context.get_parameter_source(name) is typed]
    if given or len(pipelines) > 1:
        option = f"--{given[0].replace('_', '-')}" if given else "a second pipeline"
        raise UsageError(f"--scenarios and {option} don't go together", hint="leave out one of them")
    pipeline = file_at(pipelines[0], branch)
    found = scenarios(pipeline, file, state, memory, no_code=no_code, say=partial(say, err=True))
    if output == "json":
        rows = {}
        for name, frame in found.items():
            write_rows([frame], "json", text := io.BytesIO())
            rows[name] = json.loads(text.getvalue())
        say(json_text(rows))
        return
    for name, frame in found.items():
        say(f"{near(name)}:")
        write_rows([frame], "text", sys.stdout.buffer)
    if not found:
        say("no scenario changes an output", err=True)

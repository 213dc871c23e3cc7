"""`dd sql`: a query over a pipeline, or over files, answered once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import BRANCH, CSV_OPTION, NO_CODE, PIPELINE, ROWS, SHOW, STATE, VAR, parse_csv
from ddcli.screen import say
from ddcli.spec.file import file_at

if TYPE_CHECKING:
    from ddcli.render.rows import RowFormat


@click.command("sql", short_help="Answer an SQL query over a pipeline once.")
@click.argument("query")
@click.option(
    "--from",
    "pipeline",
    type=PIPELINE,
    metavar="PIPELINE",
    help="The pipeline file whose inputs, collections and outputs the query names; without it the query names files.",
)
@click.option(
    "--as-of",
    metavar="T",
    help="Answer as of T; `latest`: with the rows of the inputs that no run has read yet. [default: the last commit]",
)
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Print at most N rows.")
@CSV_OPTION
@BRANCH
@STATE
@NO_CODE
@ROWS
@SHOW
@VAR
def command(
    query: str,
    pipeline: Path | None,
    as_of: str | None,
    limit: int | None,
    csv: str | None,
    branch: str | None,
    state: str | None,
    no_code: bool,
    output: RowFormat,
) -> None:
    """Answer the SQL QUERY once, without a run. Writes nothing and takes no lock. `-` reads the query from stdin.

    With --from the query names inputs, collections and outputs of a pipeline file, and has the meaning that it would have as a collection of that file.
    The answer is as of the last commit: collections that the state keeps are read from it, all others are computed in memory from the inputs.
    Without a state the answer is that of a first run.

    Without --from the query names files, directories and globs in quotes; each row of a file is a record. Text has the columns that
    `columns: infer` finds. CSV is read as it looks: a note states its delimiter, and that the first line is a row and no header
    (columns are then column0, column1, ...), unless --csv states them.

    Rows are in the order of `order by`, else of their columns; a row of multiplicity n is printed n times. JSON: [{column: value, ...}].

    \b
    Examples:
      dd sql 'select carrier, flights from airborne order by flights desc limit 3' --from pipelines/airborne.yaml
      dd sql 'select status, count(*) as flights from flights group by all' --from pipelines/airborne.yaml --as-of 600 -o csv
      dd sql "select count(*) as n from 'fixtures/flights/flights/'"
    """
    from ddcli.errors import UsageError
    from ddcli.query.statement import answer, answer_of_files
    from ddcli.render.rows import write_rows
    from ddcli.store.files.objects import locate

    if output == "parquet" and sys.stdout.isatty():
        raise UsageError("a terminal can't show Parquet", hint="write it to a file: `-o parquet > rows.parquet`")
    text = sys.stdin.read() if query == "-" else query
    if pipeline is None:
        for option, value in (("--as-of", as_of), ("--state", state), ("--branch", branch)):
            if value is not None:
                raise UsageError(f"`{option}` needs a pipeline", hint="name its file: `--from PIPELINE`")
        found = answer_of_files(text, None if csv is None else parse_csv(csv))
    else:
        if csv is not None:
            raise UsageError(
                "`--csv` is for files that the query names", hint="the pipeline states how its files are written"
            )
        where = None if state is None else locate(Path.cwd(), state)
        found = answer(
            file_at(pipeline, branch),
            text,
            state=where,
            as_of=as_of,
            no_code=no_code,
        )
    for span, note in found.notes:
        say(f"{span}: note: {note}", err=True)
    _, cut = write_rows([found.rows], output, sys.stdout.buffer, limit)
    if cut:
        say(f"cut by --limit: there are {found.rows.height:,} rows", err=True)

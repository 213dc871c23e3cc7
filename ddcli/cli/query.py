"""`dd query`, `dd sql` and `dd feed`: answers from a pipeline's state without a run, by key or by a statement, also over files; the changes of an output that a consumer has not acknowledged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddcli.cli.arguments import (
    BRANCH,
    COLLECTION,
    CSV_OPTION,
    NO_CODE,
    PIPELINE,
    ROWS,
    SHOW,
    STATE,
    VAR,
    check_following,
    column_of,
    following,
    formats,
    parse_csv,
)
from ddcli.errors import UsageError
from ddcli.screen import in_columns, json_text, near, plural, say, shell
from ddcli.spec.file import file_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from ddcli.feed.delivery import OutputFeed
    from ddcli.query import Lookup
    from ddcli.render.rows import RowFormat


NOTHING = 1
"""The exit code if no such record exists."""


@click.command("query", short_help="Look up a key in the state, without a run.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("name", type=COLLECTION)
@click.argument("key", type=column_of("name"), nargs=-1, metavar="[COLUMN=VALUE]...")
@click.option(
    "--as-of", metavar="T", help="Answer as of T, within the past that `history` keeps. [default: the newest commit]"
)
@STATE
@NO_CODE
@following("Keep running, and print the changes of each commit, until Ctrl-C.")
@formats("text", "json", "jsonl", about="Format of the records on stdout.")
@SHOW
@VAR
def query_command(
    pipeline: Path,
    name: str,
    key: tuple[str, ...],
    as_of: str | None,
    state: Path | None,
    no_code: bool,
    follow: bool,
    count: int | None,
    timeout: float | None,
    output: RowFormat,
) -> None:
    """Look up the records with these values in an input, a collection or an output NAME of PIPELINE, without a run.

    'COLUMN is null' asks for records without a value. The answer comes from the state: by the key of an arrangement, a reduction or a join, or by the first columns of such a key.
    For other columns the error lists the keys that work. Reads only the parts of files that may contain the key; takes no lock.

    With --follow rows also have the column `commit`: the run closed the times before it. Their diffs are the changes.

    Exits with 1 if no such record exists. JSON: [{column: value, ..., diff: integer}]; with --follow one such object on each line.

    \b
    Examples:
      dd query pipelines/airborne.yaml airborne carrier=UA
      dd query pipelines/airborne.yaml airborne carrier=UA --follow --timeout 1 -o jsonl
    """
    from ddcli.query import Lookup
    from ddcli.render.rows import write_rows
    from ddcli.store.texts import null_hint, parse_keys

    if follow and as_of is not None:
        raise UsageError(
            "--as-of and --follow don't go together",
            hint="leave out one of them: --as-of reads the past, --follow waits for commits",
        )
    check_following(count, timeout, follow=follow)
    lookup = Lookup.open(pipeline, name, state=state, no_code=no_code)
    wanted = parse_keys(key, lookup.known)
    if follow:
        write_rows(changes(lookup, wanted, count, timeout), "jsonl" if output == "json" else output, sys.stdout.buffer)
        return
    rows = lookup.rows(wanted, as_of=as_of)
    write_rows([rows], output, sys.stdout.buffer)
    if rows.is_empty():
        if hint := null_hint(wanted):
            say(f"hint: {hint}", err=True)
        raise click.exceptions.Exit(NOTHING)


def changes(lookup: Lookup, key: dict[str, Any], count: int | None, timeout: float | None) -> Iterator[pl.DataFrame]:
    """Yield the records of a key, then after each commit their changes; the caller prints each batch before it takes the next."""
    import polars as pl

    from ddcli.store.files.changes import commits

    before: pl.DataFrame | None = None
    for _ in commits(lookup.request.state, lookup.refresh, count, timeout):
        now = lookup.rows(key)
        found = now if before is None else difference(before, now, lookup.diff)
        before = now
        yield found.select(pl.lit(lookup.upper).alias("commit"), *found.columns)
        sys.stdout.flush()


def difference(before: pl.DataFrame, now: pl.DataFrame, diff: str) -> pl.DataFrame:
    """Return the difference of two collections, the updates that turn `before` into `now`; `diff` is the column of multiplicities."""
    import polars as pl

    names = [name for name in now.columns if name != diff]
    both = pl.concat([now, before.with_columns(-pl.col(diff))])
    summed = both.group_by(names, maintain_order=True).agg(pl.col(diff).sum()) if names else both.sum()
    return summed.filter(pl.col(diff) != 0).sort([*names, diff], nulls_last=True)


@click.command("sql", short_help="Answer an SQL query over a pipeline once.")
@click.argument("query")
@click.option(
    "--from",
    "pipeline",
    type=PIPELINE,
    metavar="PIPELINE",
    help="The pipeline file with the inputs, collections and outputs of the query; without it the query names files.",
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
def sql_command(
    query: str,
    pipeline: Path | None,
    as_of: str | None,
    limit: int | None,
    csv: str | None,
    branch: str | None,
    state: Path | None,
    no_code: bool,
    output: RowFormat,
) -> None:
    """Answer the SQL QUERY once, without a run. Writes nothing and takes no lock. `-` reads the query from stdin.

    With --from the query names inputs, collections and outputs of a pipeline file, and means the same as a collection of that file.
    The answer is as of the last commit: collections that the state keeps are read from it, all others are computed in memory from the inputs.
    Without a state the answer is a first run's.

    Without --from the query names files, directories and globs in quotes; each row of a file is a record. Text has the columns that
    `columns: infer` finds. Without --csv, the command guesses the delimiter of CSV, and whether the first
    line is a row (columns are then column0, column1, ...), and notes its guesses.

    Rows are in the order of `order by`, or else of their columns; a row of multiplicity n is printed n times. JSON: [{column: value, ...}].

    \b
    Examples:
      dd sql 'select carrier, flights from airborne order by flights desc limit 3' --from pipelines/airborne.yaml
      dd sql 'select status, count(*) as flights from flights group by all' --from pipelines/airborne.yaml --as-of 600 -o csv
      dd sql "select count(*) as n from 'fixtures/flights/flights/'"
    """
    from ddcli.query.statement import answer, answer_of_files
    from ddcli.render.rows import write_rows

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
        found = answer(
            file_at(pipeline, branch),
            text,
            state=state,
            as_of=as_of,
            no_code=no_code,
        )
    for span, note in found.notes:
        say(f"{span}: note: {note}", err=True)
    _, cut = write_rows([found.rows], output, sys.stdout.buffer, limit)
    if cut:
        say(f"cut by --limit: there are {found.rows.height:,} rows", err=True)


LAST = "last"
"""The position that `--ack` without one acknowledges."""


@click.command("feed", short_help="Print the changes of an output that a consumer has not acknowledged.")
@click.argument("directory", metavar="OUTPUT")
@click.option("--consumer", metavar="NAME", help="The consumer's name. Each consumer has its own position.")
@click.option(
    "--ack",
    is_flag=False,
    flag_value=LAST,
    metavar="[POSITION]",
    help="Acknowledge the changes printed last, or those up to POSITION, and print nothing.",
)
@click.option("--drop", is_flag=True, help="Forget the consumer; if it comes back, it starts again.")
@click.option(
    "--into",
    metavar="TARGET",
    help="Deliver exactly once instead of printing: to a directory of Parquet, or a database, FILE.duckdb, FILE.db, FILE.sqlite or postgresql://....",
)
@click.option("--table", metavar="NAME", help="The table of a database. [default: the name of OUTPUT's directory]")
@following("Keep running, and continue with the changes of each commit, until Ctrl-C.")
@click.option("--list", "listed", is_flag=True, help="List the consumers of OUTPUT.")
@click.option("--state", metavar="DIRECTORY", help="The state's directory. [default: the one that OUTPUT names]")
@ROWS
def feed_command(
    directory: str,
    consumer: str | None,
    ack: str | None,
    drop: bool,
    into: str | None,
    table: str | None,
    follow: bool,
    count: int | None,
    timeout: float | None,
    listed: bool,
    state: str | None,
    output: RowFormat,
) -> None:
    """Print the changes of OUTPUT, the directory of an output, since the consumer NAME last acknowledged.

    Each changed record is printed once, with the sum of its diffs, however often it has changed. A new consumer gets the
    whole contents. The position, FROM-TO, is printed to stderr. Each call prints the unacknowledged changes again, with newer ones, so a consumer that is killed in
    between loses nothing. If two processes of one consumer get the same changes, one of them can acknowledge them; the other ends with 75.

    --into commits the changes to TARGET together with the position, then acknowledges them: a command that is killed has delivered all of
    them or none. It adds rows with their `diff` and with `_position`, the position that TARGET has reached after the delivery.

    JSON: [{column: value, ..., diff: integer}]; of --list: [{consumer, acknowledged, offered: [position], files, passed}], `files` are those still to
    come; a consumer is `passed` if some of them were summed up, or the output was written anew: its calls end with 4 until it is dropped. With --follow one such object on each line.

    \b
    Examples:
      dd feed out/airborne --consumer mail
      dd feed out/airborne --consumer mail --ack # the changes that the line before printed
      dd feed out/airborne --consumer index --into out/changes.duckdb --follow --timeout 1
      dd feed out/airborne --list
    """
    from ddcli.feed.delivery import OutputFeed, parse_token
    from ddcli.feed.targets import check_table
    from ddcli.render.rows import write_rows
    from ddcli.store.files.access import locate
    from ddcli.store.files.changes import commits

    if sum((ack is not None, drop, listed, into is not None)) > 1:
        raise UsageError("--ack, --drop, --into and --list exclude each other", hint="name one of them")
    check_following(count, timeout, follow=follow)
    if follow and (listed or drop or ack is not None):
        raise UsageError("--follow waits for changes", hint="leave it out")
    if table is not None:
        check_table(into or "", table)
    if listed == (consumer is not None):
        hint = "leave out --consumer: all are listed" if listed else "name it with --consumer NAME"
        raise UsageError("--list is about all consumers" if listed else "a consumer is missing", hint=hint)
    where = Path.cwd()
    feed = OutputFeed.open(directory, where, None if state is None else locate(where, state))
    if listed or consumer is None:
        _list(feed, output)
        return
    if drop:
        say(f"dropped: consumer '{consumer}' was at {feed.drop(consumer).acknowledged}", err=True)
        return
    if ack is not None:
        now = feed.acknowledge(consumer) if ack == LAST else feed.acknowledge(consumer, *parse_token(ack))
        say(f"consumer '{consumer}' is at {now.acknowledged}", err=True)
        return
    if output == "parquet" and (follow or sys.stdout.isatty()) and into is None:
        problem = "Parquet has an end" if follow else "a terminal can't show Parquet"
        raise UsageError(problem, hint="write it to a file: `-o parquet > changes.parquet`")
    waits = commits(feed.state, feed.newer(), count, timeout) if follow else iter([None])
    if into is not None:
        _transfer(feed, consumer, waits, into, table or feed.path.name)
        return
    write_rows(
        _unread(feed, consumer, waits),
        "jsonl" if follow and output == "json" else output,
        sys.stdout.buffer,
        hides=False,
    )


def _unread(feed: OutputFeed, consumer: str, waits: Iterator[None]) -> Iterator[pl.DataFrame]:
    """Yield the changes of each delivery, and print after each the command that acknowledges it."""
    for found in feed.follow(consumer, waits):
        yield found.changes
        sys.stdout.flush()
        if found.files:
            say(f"position {found.token}: acknowledge it with `--ack {found.token}`, or `--ack` for the last", err=True)
        else:
            say(f"nothing new since {found.position}", err=True)


def _transfer(feed: OutputFeed, consumer: str, waits: Iterator[None], into: str, table: str) -> None:
    """Deliver the changes of each commit to a target, and report them."""
    from ddcli.feed.targets import check_inputs, open_target

    check_inputs(into, Path.cwd(), feed.state)
    for _ in waits:
        found, place = feed.transfer(consumer, lambda each: open_target(into, table, each, Path.cwd()))
        rows = found.changes.height
        what = f"{rows:,} {plural(rows, 'change')}, {found.token}"
        say(f"{near(place)}: {what if found.files else f'nothing new since {found.since}'}", err=True)


def _list(feed: OutputFeed, output: RowFormat) -> None:
    """Print the consumers of an output."""
    passed, consumers = feed.passed(), feed.consumers()
    facts = [
        {"consumer": one.name, "acknowledged": one.acknowledged, "offered": list(one.offered), "files": files}
        | {"passed": one.name in passed}
        for one, files in consumers
    ]
    if output == "json":
        say(json_text(facts))
        return
    rows = [
        (one.name, str(one.acknowledged), f"{passed[one.name]}: --drop it" if one.name in passed else str(files))
        for one, files in consumers
    ]
    if rows:
        say(*in_columns([("consumer", "acknowledged", "files to come"), *rows], right=(1, 2)))
    else:
        say(f"no consumers; `dd feed {shell(near(str(feed.path)))} --consumer NAME` begins one", err=True)

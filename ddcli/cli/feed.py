"""`dd feed`: the changes of an output since a consumer last acknowledged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import ROWS, check_following, following
from ddcli.screen import in_columns, json_text, near, say, shell

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from ddcli.feed.delivery import OutputFeed
    from ddcli.render.rows import RowFormat

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
def command(
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
    from ddcli.errors import UsageError
    from ddcli.feed.delivery import OutputFeed, parse_token
    from ddcli.feed.targets import check_table
    from ddcli.render.rows import write_rows
    from ddcli.store.files.changes import commits
    from ddcli.store.files.objects import locate

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
        _changes(feed, consumer, waits),
        "jsonl" if follow and output == "json" else output,
        sys.stdout.buffer,
        hides=False,
    )


def _changes(feed: OutputFeed, consumer: str, waits: Iterator[None]) -> Iterator[pl.DataFrame]:
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
    from ddcli.job.summary import plural

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

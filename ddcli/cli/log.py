"""`dd log`: what a change log holds at a time, what changed, and the history of a record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddcli.screen import say

if TYPE_CHECKING:
    from ddcli.render.rows import RowFormat

NOTHING = 1
"""The exit code where no record has the key."""


@click.command("log", short_help="Show a change log: as of a time, or its changes.")
@click.argument("log")
@click.option(
    "--as-of",
    metavar="T",
    help="The collection at T, with how often each record is there; `latest`: all updates count. Of a product: X,Y.",
)
@click.option("--since", metavar="T", help="Only updates at T or later.")
@click.option("--until", metavar="U", help="Only updates before U.")
@click.option(
    "-k",
    "--key",
    metavar="NAME=VALUE",
    multiple=True,
    help="Only records with this value; 'NAME is null' for none. May be given several times.",
)
@click.option("--consolidate", is_flag=True, help="Sum the diffs of a record at a time; leave out what is zero.")
@click.option("-n", "--limit", type=click.IntRange(0), metavar="N", help="At most N rows.")
@click.option(
    "--time",
    metavar="NAME",
    multiple=True,
    help="The time column; several times, in order, for a product. [default: `time`, or as the log's progress says]",
)
@click.option("--diff", metavar="NAME", default="diff", show_default=True, help="The diff column, if there is one.")
@click.option(
    "--columns",
    metavar="MAPPING",
    help="Names and types, as in a pipeline file: '{id: int64, name: string?}'; a log in CSV or NDJSON needs them.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "jsonl", "csv", "parquet"]),
    default="text",
    show_default=True,
    help="How to write the rows on stdout.",
)
def command(
    log: str,
    as_of: str | None,
    since: str | None,
    until: str | None,
    key: tuple[str, ...],
    consolidate: bool,
    limit: int | None,
    time: tuple[str, ...],
    diff: str,
    columns: str | None,
    output: RowFormat,
) -> None:
    """Show what is in LOG, the output or an input of a pipeline: a directory, a file or a glob; s3:// as well.

    Without --as-of these are updates, in order of time; with it, the collection at that time. A log that is in order
    streams by; --as-of holds the collection that it gives.

    Exits with 1 if no row has the --key. JSON: [{column: value, ..., time: value, diff: integer}], without the time for
    --as-of; times and dates are texts, and so are "NaN", "Infinity" and "-Infinity".

    \b
    Examples:
      dd log out/airborne/ --as-of 600
      dd log out/airborne/ --since 600 --until 660 -o csv
      dd log fixtures/flights/flights --key carrier=HA --key flight=51 --limit 10
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
    from ddcli.cli.columns import parse_columns
    from ddcli.errors import UsageError
    from ddcli.render.rows import batches, write_rows
    from ddcli.sources.change_log import ChangeLog
    from ddcli.store.key_text import parse_keys
    from ddcli.store.tables.files import READ_ERRORS

    if as_of is not None and (since is not None or until is not None):
        raise UsageError(
            "--as-of is one time, --since and --until are a range",
            hint="`--as-of T` shows the collection, `--since` and `--until` its changes: give the one or the others",
        )
    if output == "parquet" and sys.stdout.isatty():
        raise UsageError("Parquet is nothing for a terminal", hint="send it to a file: `-o parquet > log.parquet`")
    types = None if columns is None else parse_columns(columns)
    found = ChangeLog.open(log, Path.cwd(), time=time, diff=diff, columns=types)
    for note in found.notes:
        say(f"note: {note}", err=True)
    wanted = parse_keys(key, found.columns)
    if as_of is not None:
        rows = found.as_of(as_of, wanted)
        if closed := found.open_from(as_of):
            say(f"note: the log is complete before {closed}; at {as_of} it may still change", err=True)
    else:
        rows = found.updates(since, until, wanted, consolidate=consolidate)
    try:
        count, cut = write_rows(batches(rows), output, sys.stdout.buffer, limit)
    except READ_ERRORS as error:
        raise found.refusal(error) from None
    if cut:
        say(f"cut after {count:,} rows, as --limit says: there are more", err=True)
    if wanted and not count and not cut:
        from ddcli.store.key_text import told

        say(f"nothing with {told(wanted)}", err=True)
        raise click.exceptions.Exit(NOTHING)

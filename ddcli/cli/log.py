"""`dd log`: a change log as of a time, its changes, and the history of a record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddcli.cli.arguments import ROWS, SHOW, Renamed
from ddcli.cli.columns import columns_option, log_options, parse_columns
from ddcli.screen import say

if TYPE_CHECKING:
    from ddcli.render.rows import RowFormat

NOTHING = 1
"""The exit code if no record has the values."""


class LogCommand(click.Command):
    """A command with inner commands, like a group: their names take the place of a log's. A log with such a name is written `./compact`."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return ["compact"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        from ddcli.cli.log_compact import command as compact

        return compact

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the inner command whose name comes first, if one does."""
        inner = self.get_command(click.Context(self, parent, info_name), args[0]) if args else None
        if inner is None:
            return super().make_context(info_name, args, parent, **extra)
        return inner.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        inner = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(80)) for name, command in inner if command])


@click.command("log", cls=LogCommand, short_help="Show a change log: as of a time, or its changes.")
@click.argument("log")
@click.argument("values", metavar="[COLUMN=VALUE]...", nargs=-1)
@click.option(
    "--as-of",
    metavar="T",
    help="Print the collection at T, with the multiplicity of each record; `latest`: after all updates; X,Y for a product. "
    "A date or timestamp may be `now`, `today`, `yesterday`, or a time before now: `-90m`, `-3d`, `-2w`.",
)
@click.option("--since", metavar="T", help="Print only updates at T or later.")
@click.option("--until", metavar="U", help="Print only updates before U.")
@click.option("-k", "--key", multiple=True, hidden=True, help="Another spelling of COLUMN=VALUE.")
@click.option("--consolidate", is_flag=True, help="Sum the diffs of equal records at a time; leave out zeros.")
@click.option("--limit", cls=Renamed, old=["-n"], type=click.IntRange(0), metavar="N", help="Print at most N rows.")
@log_options(
    "The time column; repeated, in order, for a product. [default: `time`, or the log's own]",
    "The diff column, if the log has one.",
)
@columns_option("A log in CSV or NDJSON needs them.")
@SHOW
@ROWS
def command(
    log: str,
    values: tuple[str, ...],
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
    """Show the change log LOG, an output or an input of a pipeline: a directory, a file or a glob; also s3://.

    Prints its updates in order of time; with --as-of, the collection at that time, in the order of the `order by` of its query, else
    of its columns. COLUMN=VALUE selects records with this value, 'COLUMN is null' those without one; a record must fulfil all conditions. Streams a
    log that is in order of time; --as-of holds the collection in memory.

    Exits with 1 if no row has these values. JSON: [{column: value, ..., time: value, diff: integer}], without the time for
    --as-of; times and dates are texts, and so are "NaN", "Infinity" and "-Infinity".

    \b
    Examples:
      dd log out/airborne/ --as-of 600
      dd log out/airborne/ --since 600 --until 660 -o csv
      dd log fixtures/flights/flights carrier=HA flight=51 --limit 10
    """
    from ddcli.errors import InputError, UsageError
    from ddcli.render.rows import batches, write_rows
    from ddcli.sources.change_log import ChangeLog, by_option
    from ddcli.store.files.access import unreadable
    from ddcli.store.key_text import parse_keys
    from ddcli.store.tables.files import READ_ERRORS

    if as_of is not None and (since is not None or until is not None):
        raise UsageError(
            "--as-of is one time, --since and --until are a range",
            hint="--as-of shows the collection, --since and --until its changes: leave out one or the others",
        )
    if output == "parquet" and sys.stdout.isatty():
        raise UsageError("a terminal can't show Parquet", hint="write it to a file: `-o parquet > log.parquet`")
    types = None if columns is None else parse_columns(columns)
    try:
        found = ChangeLog.open(log, Path.cwd(), time=time, diff=diff, columns=types)
    except InputError as error:
        error.hint = by_option(error.hint)
        raise
    for note in found.notes:
        say(f"note: {note}", err=True)
    wanted = parse_keys((*values, *key), found.columns)
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
    except OSError as error:
        if error.errno is not None:  # of the output: polars' errors have none
            raise
        raise unreadable(found.path, error) from None
    if cut:
        from ddcli.job.summary import plural

        say(f"cut after {count:,} {plural(count, 'row')} by --limit; the log has more", err=True)
    if wanted and not count and not cut:
        from ddcli.store.key_text import key_text, null_hint

        say(f"no rows with {key_text(wanted)}", err=True)
        if hint := null_hint(wanted):
            say(f"hint: {hint}", err=True)
        raise click.exceptions.Exit(NOTHING)

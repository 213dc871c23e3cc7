"""`dd log`, `dd log compact` and `dd convert`: a change log shown, summed up, and written from any input or as a table."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddcli.cli.arguments import (
    CSV_OPTION,
    IF_LOCKED,
    REPORT,
    ROWS,
    SHOW,
    VAR,
    Renamed,
    columns_option,
    formats,
    log_options,
    parse_columns,
    parse_csv,
)
from ddcli.errors import InputError, UsageError
from ddcli.screen import json_text, near, plural, say
from ddcli.spec.model import FORMATS

if TYPE_CHECKING:
    from ddcli.job.summary import RunSummary
    from ddcli.render.rows import RowFormat
    from ddcli.store.files.lock import IfLocked


NOTHING = 1
"""The exit code if no record has the values."""


class LogCommand(click.Command):
    """A command with inner commands, like a group: their names take the place of a log's. A log with such a name is written `./compact`."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return ["compact"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(ctx):
            return None
        return compact_command

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
@click.option("--since", metavar="T", help="Print only updates at T or later; `latest`: at the last time.")
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
def log_command(
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

    Prints its updates in order of time; with --as-of, the collection at that time, in the order of its query's `order by` or of its columns.
    COLUMN=VALUE selects records with this value, 'COLUMN is null' records without one; all conditions must hold. Streams a
    log that is in order of time; --as-of holds the collection in memory.

    Exits with 1 if no row has these values. JSON: [{column: value, ..., time: value, diff: integer}], without the time for
    --as-of; times and dates are texts, and so are "NaN", "Infinity" and "-Infinity".

    \b
    Examples:
      dd log out/airborne/ --as-of 600
      dd log out/airborne/ --since 600 --until 660 -o csv
      dd log fixtures/flights/flights carrier=HA flight=51 --limit 10
    """
    from ddcli.render.rows import batches, write_rows
    from ddcli.sources.change_log import ChangeLog, by_option
    from ddcli.store.files.access import unreadable
    from ddcli.store.tables.kinds import READ_ERRORS
    from ddcli.store.texts import parse_keys

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
        say(f"cut after {count:,} {plural(count, 'row')} by --limit; the log has more", err=True)
    if wanted and not count and not cut:
        from ddcli.store.texts import key_text, null_hint

        say(f"no rows with {key_text(wanted)}", err=True)
        if hint := null_hint(wanted):
            say(f"hint: {hint}", err=True)
        raise click.exceptions.Exit(NOTHING)


@click.command("compact", short_help="Sum up the old updates of an output's log.")
@click.argument("target", metavar="OUTPUT|PIPELINE")
@click.option("--before", metavar="T", help="Sum up the updates before T. [default: all updates at closed times]")
@click.option("-n", "--dry-run", is_flag=True, help="Show the result, but change nothing.")
@click.option(
    "--pass-claims",
    is_flag=True,
    help="Also sum up updates that consumers and readers have not read: they must start again.",
)
@IF_LOCKED
@REPORT
@VAR
def compact_command(
    target: str, before: str | None, dry_run: bool, pass_claims: bool, if_locked: IfLocked, output: str
) -> None:
    """Sum up the older updates of OUTPUT, the directory of an output, or of all outputs of PIPELINE.

    One file replaces the oldest ones. It has the contents of the log as of the last of their times, the horizon. From the horizon on
    the log has the same contents as before; `dd log --as-of` of an earlier time is refused. Only whole files are summed up: files with updates at T or later stay, and
    so do files that a consumer (`dd feed`) or a pipeline that reads the log has not read yet. With --pass-claims these are summed up, too, and the command
    names the consumers and pipelines. The next time they read, a consumer ends with 4 and a pipeline with 3, and they must start again.
    Takes the lock, and commits like a run; with --dry-run it takes none and writes nothing.

    JSON: [{output, path, horizon, files, rows_before, bytes_before, rows, bytes,
    claims: [{output, kind, name, since, files, until, passed}]}]; the horizon of a log without updates that old is null.

    \b
    Examples:
      dd log compact out/airborne --before 540
      dd log compact pipelines/airborne.yaml --dry-run
    """
    from ddcli.job.summary import size_of
    from ddcli.sinks.log_compaction import compact

    done = compact(target, Path.cwd(), before, pass_claims=pass_claims, if_locked=if_locked, dry=dry_run)
    if output == "json":
        say(json_text([each.to_json() for each in done]))
        return
    for each in done:
        if each.horizon is None:
            say(f"{each.output}: nothing to sum up", *(claim.line() for claim in each.claims))
            continue
        what = f"{each.files:,} {plural(each.files, 'file')} of {each.rows_before:,} {plural(each.rows_before, 'row')}, {size_of(each.bytes_before)}"
        became = f"one of {each.rows:,} {plural(each.rows, 'row')}, {size_of(each.bytes)}, as of {each.horizon}"
        say(
            f"{each.output}: {what} {'would become' if dry_run else 'are'} {became}: {near(each.path)}",
            *(claim.line() for claim in each.claims),
        )


@click.command("convert", short_help="Write an input as a change log, or a log as a table.")
@click.argument("source")
@click.argument("target")
@click.option("--input", "name", metavar="NAME", help="SOURCE is a pipeline file: convert its input NAME.")
@click.option(
    "--as-of", metavar="T", help="SOURCE is a log: write its collection at T (`latest`: after all updates) as a table."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="The format of SOURCE, as an input's `format`. [default: updates]",
)
@click.option("--time", metavar="COLUMN", multiple=True, help="The time column; repeated, in order, for a product.")
@click.option("--diff", metavar="COLUMN", help="The diff column, for updates. [default: diff]")
@click.option(
    "-k",
    "--key",
    metavar="COLUMN",
    multiple=True,
    help="A column that identifies records, for upserts, snapshots and Debezium; repeatable.",
)
@click.option(
    "--order-by",
    metavar="EXPRESSION",
    help="The order of a key's rows at one time, for upserts and Debezium: the greatest value counts.",
)
@click.option(
    "--delete-when",
    metavar="EXPRESSION",
    help="The condition of rows that delete, for upserts. [default: all other columns are null]",
)
@click.option("--flattened", is_flag=True, help="Read rows as ExtractNewRecordState writes them, for Debezium.")
@click.option("--file-name", metavar="PATTERN", help="Columns in the names of files: 'people-{day}.csv'.")
@columns_option("CSV and NDJSON need them.")
@CSV_OPTION
@click.option("--until", metavar="T", help="Convert only times before T. [default: all]")
@click.option("--force", is_flag=True, help="Replace the log or file at TARGET.")
@formats("text", "json", about="Format of the report.")
@VAR
def convert_command(
    source: str,
    target: str,
    name: str | None,
    as_of: str | None,
    form: str | None,
    time: tuple[str, ...],
    diff: str | None,
    key: tuple[str, ...],
    order_by: str | None,
    delete_when: str | None,
    flattened: bool,
    file_name: str | None,
    columns: str | None,
    csv: str | None,
    until: str | None,
    force: bool,
    output: str,
) -> None:
    """Write SOURCE as a change log to the directory TARGET, or with --as-of a log's collection as a table to the file TARGET.

    SOURCE is a pipeline file; or a directory, a file or a glob of Parquet, Arrow, CSV or NDJSON files. The options have the
    names of an input's keys. The command reads and refuses the same files as a run. The ending of TARGET selects a table's
    format: .parquet, .csv, .ndjson, .arrow. TARGET appears whole, or not at all.

    JSON: as `dd run -o json` prints; for a table: {target, rows}.

    \b
    Examples:
      dd convert fixtures/flights/airlines.parquet out/airlines --diff diff
      dd convert pipelines/airborne.yaml out/flights --input flights
      dd convert out/airborne out/airborne-600.csv --as-of 600
    """
    from ddcli.store.files.access import locate

    where = locate(Path.cwd(), target)
    options: dict[str, Any] = {"format": form, "key": list(key), "order_by": order_by, "delete_when": delete_when}
    options |= {"flattened": flattened, "file_name": file_name, "diff": diff, "time": list(time)}
    options |= {"columns": columns, "csv": csv}
    if as_of is not None:
        _table(source, where, as_of, options, until=until, name=name, force=force, output=output)
        return
    from ddcli.commands.convert import convert_files, convert_input
    from ddcli.engine.process import keep_freed_memory

    keep_freed_memory()
    if name is not None:
        _refuse(options, "--input", "the pipeline file describes the input")
        _say(convert_input(Path(source), name, where, until=until, force=force), where, output)
        return
    given = {option: value for option, value in options.items() if value and option != "csv"}
    if len(time) == 1:
        given["time"] = time[0]
    if columns is not None:
        given["columns"] = {column: str(kind) for column, kind in parse_columns(columns).items()}
    written = None if csv is None else parse_csv(csv)
    _say(convert_files({"path": source, **given}, where, csv=written, until=until, force=force), where, output)


def _table(
    source: str,
    target: Path,
    as_of: str,
    options: dict[str, Any],
    *,
    until: str | None,
    name: str | None,
    force: bool,
    output: str,
) -> None:
    """Write a log's collection at a time to a table, and report its rows."""
    from ddcli.commands.convert import write_table
    from ddcli.expressions.csv_dialect import DEFAULT
    from ddcli.sources.change_log import DIFF, ChangeLog

    time, diff, columns, csv = options.pop("time"), options.pop("diff"), options.pop("columns"), options.pop("csv")
    _refuse(options | {"until": until, "input": name}, "--as-of", "it is for a log, whose rows are updates")
    types = None if columns is None else parse_columns(columns)
    dialect = DEFAULT if csv is None else replace(parse_csv(csv), names=tuple(types or ()))
    log = ChangeLog.open(source, Path.cwd(), time=time, diff=diff or DIFF, columns=types, dialect=dialect)
    rows = write_table(log, as_of, target, force=force)
    if output == "json":
        say(json_text({"target": str(target), "rows": rows}))
    else:
        say(f"{near(str(target))}: {rows:,} {plural(rows, 'row')}", err=True)


def _refuse(options: dict[str, Any], option: str, why: str) -> None:
    """Refuse options that can't be combined with an option."""
    found = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if found:
        raise UsageError(f"{option} and {found[0]} don't go together: {why}", hint=f"leave out {found[0]}")


def _say(summary: RunSummary, target: Path, output: str) -> None:
    """Print the numbers of rows that were read and written."""
    if output == "json":
        say(json_text(summary.to_json()))
        return
    (read,), (wrote,) = summary.inputs.values() or [None], summary.outputs.values() or [None]
    if read is None or wrote is None:
        say(f"{near(str(target))}: nothing to convert", err=True)
        return
    say(
        f"{near(str(target))}: {wrote.rows:,} updates (+{wrote.inserted:,} -{wrote.retracted:,}) at times before {summary.upper}, "
        f"of {read.rows:,} rows in {read.files} {plural(read.files, 'file')}, {summary.seconds:.2f} s",
        err=True,
    )

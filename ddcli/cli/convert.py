"""`dd convert`: any input to a change log, and a log as of a time to a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddcli.cli.arguments import CSV_OPTION, VAR, columns_option, formats, parse_columns, parse_csv
from ddcli.screen import json_text, near, say
from ddcli.spec.model import FORMATS

if TYPE_CHECKING:
    from ddcli.job.summary import RunSummary


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
def command(
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

    SOURCE is a directory, a file or a glob, of Parquet, Arrow, CSV or NDJSON files, which the options describe as the keys of an input
    do; or a pipeline file. The command reads and refuses the same files as a run. The ending of TARGET selects a table's
    format: .parquet, .csv, .ndjson, .arrow. TARGET appears whole, or not at all.

    JSON: as `dd run -o json` prints; for a table: {target, rows}.

    \b
    Examples:
      dd convert fixtures/flights/airlines.parquet out/airlines --diff diff
      dd convert pipelines/airborne.yaml out/flights --input flights
      dd convert out/airborne out/airborne-600.csv --as-of 600
    """
    from ddcli.store.files.objects import locate

    where = locate(Path.cwd(), target)
    options: dict[str, Any] = {"format": form, "key": list(key), "order_by": order_by, "delete_when": delete_when}
    options |= {"flattened": flattened, "file_name": file_name, "diff": diff, "time": list(time)}
    options |= {"columns": columns, "csv": csv}
    if as_of is not None:
        _table(source, where, as_of, options, until=until, name=name, force=force, output=output)
        return
    from ddcli.cli.startup.process import keep_freed_memory
    from ddcli.commands.convert import convert_files, convert_input

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
    from dataclasses import replace

    from ddcli.commands.convert import write_table
    from ddcli.expressions.csv_dialect import DEFAULT
    from ddcli.job.summary import plural
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
    from ddcli.errors import UsageError

    found = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if found:
        raise UsageError(f"{option} and {found[0]} don't go together: {why}", hint=f"leave out {found[0]}")


def _say(summary: RunSummary, target: Path, output: str) -> None:
    """Print the numbers of rows that were read and written."""
    from ddcli.job.summary import plural

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

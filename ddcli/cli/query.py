"""`dd query`: look keys up in what a pipeline keeps, without running it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddcli.cli.arguments import COLLECTION, NO_CODE, PIPELINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from ddcli.query import Lookup
    from ddcli.render.rows import RowFormat

NOTHING = 1
"""The exit code where there is no such record."""


@click.command("query", short_help="Look a key up in what is kept, without running.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("name", type=COLLECTION)
@click.argument("key", nargs=-1, metavar="[COLUMN=VALUE]...")
@click.option(
    "--as-of", metavar="T", help="As of T, of the past that is kept: see `history`. [default: the newest commit]"
)
@click.option(
    "--state",
    type=click.Path(path_type=str, file_okay=False),
    help="The state's directory. [default: the file's `state`, else .dd/NAME/ beside it]",
)
@NO_CODE
@click.option("-f", "--follow", is_flag=True, help="Then print what changes, as runs commit it, until Ctrl-C.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="With --follow: end after N commits.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="With --follow: end after so long.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "jsonl"]),
    default="text",
    show_default=True,
    help="How to write the records on stdout.",
)
def command(
    pipeline: Path,
    name: str,
    key: tuple[str, ...],
    as_of: str | None,
    state: str | None,
    no_code: bool,
    follow: bool,
    count: int | None,
    timeout: float | None,
    output: RowFormat,
) -> None:
    """Look up the records of the collection, input or output NAME of PIPELINE that have these values, without running.

    It is answered from what is kept between runs: by the key of an arrangement, a reduction, a join, or by the first columns of
    one. By which keys a collection can be asked is told if it can't be by yours. Reads only what can have the key, locks nothing.

    With --follow a row has one more column, `commit`: the time before which that run closed; its diffs are what changed.

    Exits with 1 if there is no such record. JSON: [{column: value, ..., diff: integer}]; with --follow one such object a line.

    \b
    Examples:
      dd query pipelines/airborne.yaml airborne carrier=UA
      dd query pipelines/airborne.yaml airborne carrier=UA --follow --timeout 1 -o jsonl
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
    from ddcli.errors import UsageError
    from ddcli.query import Lookup
    from ddcli.render.rows import write_rows
    from ddcli.store.files.objects import locate
    from ddcli.store.key_text import parse_keys

    if follow and as_of is not None:
        raise UsageError("--as-of is of the past, and --follow of what is to come", hint="give the one or the other")
    if (count is not None or timeout is not None) and not follow:
        raise UsageError("--count and --timeout say when --follow is to end", hint="give --follow, too")
    where = None if state is None else locate(Path.cwd(), state)
    lookup = Lookup.open(pipeline, name, state=where, no_code=no_code)
    wanted = parse_keys(key, lookup.known)
    if follow:
        write_rows(changes(lookup, wanted, count, timeout), "jsonl" if output == "json" else output, sys.stdout.buffer)
        return
    rows = lookup.rows(wanted, as_of=as_of)
    write_rows([rows], output, sys.stdout.buffer)
    if rows.is_empty():
        raise click.exceptions.Exit(NOTHING)


def changes(lookup: Lookup, key: dict[str, Any], count: int | None, timeout: float | None) -> Iterator[pl.DataFrame]:
    """Yield the records of a key, then after each commit what changed; each batch is to be shown before the next is asked for."""
    import polars as pl

    from ddcli.query.commits import commits

    before: pl.DataFrame | None = None
    for _ in commits(lookup, count, timeout):
        now = lookup.rows(key)
        found = now if before is None else difference(before, now, lookup.diff)
        before = now
        yield found.select(pl.lit(lookup.upper).alias("commit"), *found.columns)
        sys.stdout.flush()


def difference(before: pl.DataFrame, now: pl.DataFrame, diff: str) -> pl.DataFrame:
    """Return what has to be added to one collection to give another; `diff` is the column of multiplicities."""
    import polars as pl

    names = [name for name in now.columns if name != diff]
    both = pl.concat([now, before.with_columns(-pl.col(diff))])
    summed = both.group_by(names, maintain_order=True).agg(pl.col(diff).sum()) if names else both.sum()
    return summed.filter(pl.col(diff) != 0).sort([*names, diff], nulls_last=True)

"""`dd functions`: the functions of expressions, listed and searched."""

from __future__ import annotations

import click

from ddcli.cli.arguments import REPORT
from ddcli.screen import json_text, say

NOTHING = 1
"""The exit code if no function is found."""
LIST = "`from t, unnest(t.tags) as x(tag)`"
IN_FROM = {
    **dict.fromkeys(("unnest", "explode"), LIST),
    "json_each": "`from t, unnest(t.payload -> '$.items[*]') as x(item)`",
    **dict.fromkeys(("generate_series", "range", "sequence"), "`from t, generate_series(1, t.n) as g(i)`"),
}
"""The words for functions that make rows, each with an example: no expression has one."""


@click.command("functions", short_help="List and search the functions of expressions.")
@click.argument("word", required=False)
@REPORT
def command(word: str | None, output: str) -> None:
    """List the functions and aggregates of expressions and SQL, or those that have WORD in one of their names, or in their meaning.

    Each has its signature, its meaning, an example with its value, and the differences in DuckDB or Spark.

    Exits with 1 if WORD finds nothing. JSON: [{group, name, signature, meaning, example, value, other_names, elsewhere: [{expression, here,
    duckdb, spark}]}].

    \b
    Examples:
      dd functions substring
      dd functions week -o json
    """
    from ddcli.errors import suggestion
    from ddcli.expressions.catalogue import catalogue, names, search

    found = list(catalogue()) if word is None else search(word)
    if output == "json":
        say(json_text([each.to_json() for each in found]))
    group = ""
    for each in found if output == "text" else ():
        if word is None and each.group != group:
            group = each.group
            say(*([""] if each is not found[0] else []), group)
        say(*each.lines())
    if not found:
        hint = suggestion(word or "", names(), "")
        if word is not None and word.lower() in IN_FROM:
            hint = f"it makes rows, so it is written in `from`: {IN_FROM[word.lower()]}; see docs/sql.md"
        say(f"no function has '{word}' in it", *([f"hint: {hint}"] if hint else []), err=True)
        raise click.exceptions.Exit(NOTHING)

"""Commands that need no pipeline: `dd completion`, `dd functions` and `dd schema`."""

from __future__ import annotations

import click

from ddcli.cli.arguments import REPORT
from ddcli.screen import json_text, say, say_own

PROGRAM = "ddcli"
ALSO = {
    "bash": "complete -o nosort -o default -F _ddcli_completion dd",
    "zsh": "compdef _ddcli_completion dd",
    "fish": 'complete --no-files --command dd --arguments "(_ddcli_completion)"',
}
"""The settings that complete `dd` like `ddcli`; in bash, words that have no completion, such as `if=FILE`, like files."""


@click.command("completion", short_help="Print a script for completion in a shell.")
@click.argument("shell", type=click.Choice(list(ALSO)))
def completion_command(shell: str) -> None:
    """Print a script with which SHELL completes commands, options, pipeline files and the names in them.

    \b
    bash:  eval "$(ddcli completion bash)"                                  in ~/.bashrc
    zsh:   eval "$(ddcli completion zsh)"                                   in ~/.zshrc, after compinit
    fish:  ddcli completion fish > ~/.config/fish/completions/ddcli.fish

    The script calls `ddcli`, never the system's `dd`, even if that is first on the PATH.

    \b
    Examples:
      dd completion bash
      dd completion fish
    """
    from click.shell_completion import get_completion_class

    from ddcli.cli.main import COMPLETE, cli

    kind = get_completion_class(shell)
    assert kind is not None, shell
    complete = kind(cli, {}, PROGRAM, COMPLETE)
    # Not `complete.source()`: for bash that runs a bash, and warns of versions before 4.4 on stderr.
    script = complete.source_template % complete.source_vars()
    say_own(script.replace("$1)", f"{PROGRAM})") + ALSO[shell])


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
def functions_command(word: str | None, output: str) -> None:
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


@click.command("schema", short_help="Print the JSON Schema of pipeline files, for editors.")
def schema_command() -> None:
    """Print the JSON Schema (draft 2020-12) of pipeline files: an editor completes keys by it and marks errors.

    Editors with the YAML language server (VS Code, Neovim, JetBrains, ...) find it by a comment at the top of a pipeline:
    `# yaml-language-server: $schema=dd.schema.json`. Names, types and expressions are checked by `dd check`.

    \b
    Example:
      dd schema > dd.schema.json
    """
    from ddcli.plan.pipeline_file import json_schema

    say(*json_text(json_schema(), indent=2).split("\n"))

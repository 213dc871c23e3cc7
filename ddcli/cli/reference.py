"""Commands that need no pipeline: `dd completion`, `dd functions` and `dd schema`.

docs/expressions.md shows the catalogue of functions as `dd functions` prints it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from ddcli.cli.arguments import REPORT
from ddcli.dataclass import dataclass
from ddcli.errors import suggestion
from ddcli.expressions import functions
from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES
from ddcli.expressions.functions import ARITHMETIC, BITS, JSON, LISTS, STRUCTS, TEXT
from ddcli.expressions.time_functions import TIME
from ddcli.expressions.windows import WINDOW_FUNCTIONS
from ddcli.screen import json_text, say, say_own

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    """Print a script that completes commands, options, pipeline files and the names in them in SHELL.

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
    **dict.fromkeys(("generate_series", "range", "sequence"), "`from t, generate_series(1, t.n) as g(i)`"),
}
"""The words for functions that make rows, each with an example: no expression has one."""


@click.command("functions", short_help="List and search the functions of expressions.")
@click.argument("word", required=False)
@REPORT
def functions_command(word: str | None, output: str) -> None:
    """List the functions and aggregates of expressions and SQL, or only those with WORD in their names or meaning.

    Each has its signature, its meaning, an example with its value, and the differences in DuckDB or Spark.

    Exits with 1 if WORD finds nothing. JSON: [{group, name, signature, meaning, example, value, other_names, elsewhere: [{expression, here,
    duckdb, spark}]}].

    \b
    Examples:
      dd functions substring
      dd functions week -o json
    """
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
    """Print the JSON Schema (draft 2020-12) of pipeline files: editors use it to complete keys and mark errors.

    Editors with the YAML language server (VS Code, Neovim, JetBrains, ...) find it by a comment at the top of a pipeline:
    `# yaml-language-server: $schema=dd.schema.json`. Names, types and expressions are checked by `dd check`.

    \b
    Example:
      dd schema > dd.schema.json
    """
    from ddcli.plan.pipeline_file import json_schema

    say(*json_text(json_schema(), indent=2).split("\n"))


ERROR = "an error"


@dataclass(frozen=True)
class Elsewhere:
    """An expression, its value here, in DuckDB and in Spark (SQL, or `ERROR`); the functions in it, a replacement, and the reason for the difference."""

    functions: tuple[str, ...]
    expression: str
    here: str
    duckdb: str
    spark: str
    instead: str
    reason: str


SAFER = "an error is safer"
AGREED = "Postgres and Spark agree"
DIFFERENCES = [
    Elsewhere(("/",), "1 / 0", ERROR, "cast('inf' as float64)", ERROR, "try_divide(1, 0)", SAFER),
    Elsewhere(("sqrt", "asin", "acos", "power"), "sqrt(-1)", ERROR, "cast('nan' as float64)", "cast('nan' as float64)", "case when x >= 0 then sqrt(x) end", SAFER),
    Elsewhere(("ln", "log", "log2", "log10"), "ln(0)", ERROR, "cast('-inf' as float64)", "null", "case when x > 0 then ln(x) end", SAFER),
    Elsewhere(("sum", "list_sum"), "list_sum([9223372036854775807, 1])", ERROR, "9223372036854775808", ERROR, "sum(cast(x as decimal(38, 0)))", SAFER),
    Elsewhere(("make_date", "+", "-"), "year(date '9999-12-31' + 1)", ERROR, "10000", "10000", "case when day < date '9999-12-31' then day + 1 end", SAFER),
    Elsewhere(("=",), "'1' = 1", ERROR, "true", "true", "cast('1' as int64) = 1", SAFER),
    Elsewhere((), "cast('1.5' as bigint)", ERROR, "2", ERROR, "cast(cast('1.5' as float64) as bigint)", AGREED),
    Elsewhere(("/", "avg"), "2.0 / 3", "0.666667", "0.6666666666666666e0", "0.666667", "cast(2.0 as float64) / 3", "a decimal stays exact, as in Postgres and Spark"),
    Elsewhere(("median", "quantile_cont"), "median(1.50)", "1.5e0", "1.50", "1.5e0", "cast(median(x) as decimal(12, 2))", AGREED),
    Elsewhere(("corr", "regr_slope"), "corr(1, 1)", "null", "cast('nan' as float64)", "null", "coalesce(corr(y, x), cast('nan' as float64))", AGREED),
    Elsewhere(("array_to_string", "list_aggregate"), "array_to_string([cast(null as varchar)], ',')", "''", "null", "''", "nullif(array_to_string(x, ','), '')", AGREED),
    Elsewhere((), "cast(cast(0.5 as decimal(1, 1)) as varchar)", "'0.5'", "'.5'", "'0.5'", "ltrim(cast(x as varchar), '0')", AGREED),
    Elsewhere(("reverse",), "ascii(reverse('e' || chr(769)))", "769", "101", "769", "reverse(text)", AGREED),
    Elsewhere(("list_distinct", "list_intersect", "list_except"), "list_distinct([1, 2])[1]", "1", "2", "1", "list_sort(list_distinct(x))", "the order there is no function of the list"),
    Elsewhere(("json_extract_string", "json_extract", "json_value"), """json_extract_string('{"a": 1e3}', '$.a')""", "'1e3'", "'1000.0'", "'1000.0'", "cast(cast(x ->> '$.a' as float64) as string)", "numbers keep their digits"),
]  # fmt: skip


GROUPS = {
    "Numbers": ARITHMETIC,
    "Bits": BITS,
    "Conditions": functions.CONDITIONS,
    "Text": TEXT,
    "JSON in texts": JSON,
    "Dates and times": TIME,
    "Lists": LISTS,
    "Structs": STRUCTS,
}
AGGREGATE = "Aggregates"
"""The group of aggregates."""
WINDOW = "Window functions"


@dataclass(frozen=True)
class FunctionHelp:
    """A function, an aggregate or a window function, for people; only the first have examples."""

    group: str
    name: str
    signature: str
    meaning: str
    example: str = ""
    value: str = ""
    other_names: tuple[str, ...] = ()

    @cached_property
    def differences(self) -> list[Elsewhere]:
        """Return its differences from other databases."""
        return [each for each in DIFFERENCES if self.name in each.functions]

    def lines(self) -> list[str]:
        """Return it as text."""
        lines = [self.signature, f"  {self.meaning}"]
        if self.example:
            lines.append(f"  {self.example} is {self.value}")
        if self.other_names:
            lines.append(f"  also: {', '.join(self.other_names)}")
        lines += [
            f"  elsewhere: {each.expression} is {each.here} here, {each.duckdb} in DuckDB, {each.spark} in Spark"
            for each in self.differences
        ]
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "group": self.group,
            "name": self.name,
            "signature": self.signature,
            "meaning": self.meaning,
            "example": self.example or None,
            "value": self.value or None,
            "other_names": list(self.other_names),
            "elsewhere": [
                {"expression": each.expression, "here": each.here, "duckdb": each.duckdb, "spark": each.spark}
                for each in self.differences
            ],
        }

    def has(self, word: str) -> bool:
        """Return whether a word is in its name or one of its other names, or in its description."""
        texts = (self.name, self.signature, self.meaning, *self.other_names)
        return any(word.lower() in text.lower() for text in texts)


def catalogue() -> Iterator[FunctionHelp]:
    """Yield every function, aggregate and window function, group by group."""
    for title, group in GROUPS.items():
        for each in group:
            others = tuple(sorted(name for name, meant in functions.SYNONYMS.items() if meant == each.name))
            yield FunctionHelp(title, each.name, each.signature, each.doc, each.example, each.result, others)
    for one in AGGREGATES.values():
        others = tuple(sorted(name for name, meant in AGGREGATE_SYNONYMS.items() if meant == one.name))
        yield FunctionHelp(AGGREGATE, one.name, one.signature, one.doc, other_names=others)
    for called in WINDOW_FUNCTIONS.values():
        yield FunctionHelp(WINDOW, called.name, called.signature, called.doc)


def search(word: str) -> list[FunctionHelp]:
    """Return the functions that match a word: with this name first, then with a name that contains it, then others whose entry does."""
    lowered = word.lower()

    def rank(each: FunctionHelp) -> int:
        names = [name.lower() for name in (each.name, *each.other_names)]
        return 0 if lowered in names else 1 if any(lowered in name for name in names) else 2

    return sorted((each for each in catalogue() if each.has(word)), key=rank)


def names() -> list[str]:
    """Return every name that a function, an aggregate or a window function can be called."""
    return [name for each in catalogue() for name in (each.name, *each.other_names)]

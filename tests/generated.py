"""The generated parts of the documentation: the commands from their help, functions and operators from their tables, and the pictures.

    python -m tests.generated       # writes it

A section stands between `<!-- NAME -->` and `<!-- /NAME -->`, wherever these are.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from pathlib import Path

import click

from ddcli.cli.main import cli
from ddcli.cli.reference import AGGREGATE, DIFFERENCES, ERROR, GROUPS, WINDOW, catalogue
from ddcli.expressions import functions
from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS
from ddcli.plan.operators.groups import PYTHON, PYTHON_REDUCE, PythonOr, reduce_arguments
from ddcli.plan.operators.table import OPERATORS
from ddcli.spec.shapes import ByKind, Record
from tests.diagram import diagram
from tests.harness import copy_root, run

DOCS = Path(__file__).resolve().parent.parent / "docs"


def commands_of(group, path=()):
    """Yield every command of a group but groups, with its path of names; `dd log` is one, and has others."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not isinstance(command, click.Group):
            yield (*path, name), command
        if hasattr(command, "list_commands"):
            yield from commands_of(command, (*path, name))


def commands():
    """Return usage, purpose and options of every command."""
    return "\n\n".join(command_text(path, command) for path, command in commands_of(cli))


def command_text(path, command):
    """Return the part of one command: its options a line each, with the first sentence of their help."""
    context = click.Context(command, info_name="dd " + " ".join(path))
    usage = " ".join([context.info_name, *command.collect_usage_pieces(context)]).replace("[OPTIONS] ", "")
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    rows = [(declared(each, context), first_sentence(each.help)) for each in options]
    width = max((len(names) for names, _ in rows), default=0)
    lines = [f"  {names.ljust(width)}  {text}" for names, text in rows]
    return "\n".join([f"## dd {' '.join(path)}", "", command.short_help, "", "```text", usage, *lines, "```"])


def declared(option, context):
    """Return an option as it is written: its names, and what it takes."""
    names, _ = option.get_help_record(context)
    return re.sub(r"(INTEGER|FLOAT) RANGE|INTEGER|FLOAT", "N", names)


def first_sentence(text):
    """Return the first sentence of a help text."""
    return re.split(r"(?<=\.) ", inspect.cleandoc(text), maxsplit=1)[0].replace("\n", " ")


def function_tables():
    """Return the functions of expressions, group by group."""
    parts = [f"## {title}\n\n{table(title)}" for title in GROUPS]
    parts.append(f"Other names: {synonyms(functions.SYNONYMS)}.")
    parts.append(f"## Aggregates\n\nIn `reduce`, and in SQL with `group by`.\n\n{call_table(AGGREGATE)}")
    parts.append(f"Other names: {synonyms(AGGREGATE_SYNONYMS)}.")
    parts.append(
        f"## Window functions\n\nIn `window`, and in SQL before `over`. Aggregates work there, too.\n\n{call_table(WINDOW)}"
    )
    return "\n\n".join(parts)


def table(group):
    """Return the table of the functions of a group."""
    rows = ["| call | meaning | example |", "| --- | --- | --- |"]
    for each in catalogue():
        if each.group == group:
            example = f"{code(each.example)} is {code(each.value)}"
            rows.append(f"| {code(each.signature)} | {cell(each.meaning)} | {example} |")
    return "\n".join(rows)


def operators():
    """Return the table of operators: each with its example, its result and its keys, and as a function if it takes one."""
    rows = ["| operator | result | keys |", "| --- | --- | --- |"]
    for row in OPERATORS.values():
        shape = row.shape.mapping if isinstance(row.shape, ByKind) else row.shape
        keys = shape.keys if isinstance(shape, Record) else {}
        about = "; ".join(f"`{name}`: {key.about}" if key.about else f"`{name}`" for name, key in keys.items())
        if isinstance(shape, PythonOr) or shape is reduce_arguments:
            example = (PYTHON if isinstance(shape, PythonOr) else PYTHON_REDUCE).example
            about = f"or with a Python function: {code(example)}"
        rows.append(f"| {code(row.example)} | {cell(row.about)} | {cell(about)} |")
    return "\n".join(rows)


def call_table(group):
    """Return the table of aggregates, or of window functions: calls without examples."""
    rows = [f"| {code(each.signature)} | {cell(each.meaning)} |" for each in catalogue() if each.group == group]
    return "\n".join(["| call | meaning |", "| --- | --- |", *rows])


def differences():
    """Return the table of what other databases answer differently."""
    rows = ["| expression | here | DuckDB | Spark | why | as elsewhere |", "| --- | --- | --- | --- | --- | --- |"]
    for each in DIFFERENCES:
        values = [value if value == ERROR else code(value) for value in (each.here, each.duckdb, each.spark)]
        rows.append(f"| {code(each.expression)} | {' | '.join(values)} | {each.reason} | {code(each.instead)} |")
    return "\n".join(rows)


def synonyms(names):
    """Return other names of the same, sorted."""
    return ", ".join(f"`{other}` for `{name}`" for other, name in sorted(names.items()))


def code(text):
    """Return a text as code in a table's cell, where a bar must be escaped."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}".replace("|", "\\|")


def cell(text):
    """Return a text in a table's cell."""
    return text.replace("|", "\\|")


SECTIONS = {
    "commands": commands,
    "functions": function_tables,
    "differences": differences,
    "operators": operators,
}
PAGES = {
    "commands.md": "commands",
    "expressions.md": "functions",
    "sql.md": "differences",
    "pipelines.md": "operators",
}
"""Which page has which section."""


def written(text, name):
    """Return a page with its generated section as it is to be. It stands in it once."""
    parts = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    assert len(parts.findall(text)) == 1, f"`<!-- {name} -->` and its end must be in the page once"
    return parts.sub(lambda found: f"{found[1]}\n{SECTIONS[name]()}\n\n{found[2]}", text)


def pipeline():
    """Return the README's picture: what `dd explain` draws of a pipeline that has not run yet."""
    with tempfile.TemporaryDirectory() as place:
        folder = copy_root(Path(place) / "root")
        result = run("dd explain pipelines/airborne.yaml --out airborne.svg", folder)
        assert result.code == 0, result.said
        return (folder / "airborne.svg").read_text()


PICTURES = {"airborne.svg": pipeline, "times.svg": diagram}


if __name__ == "__main__":
    for picture, draw in PICTURES.items():
        (DOCS / picture).write_text(draw())
    for page, section in PAGES.items():
        (DOCS / page).write_text(written((DOCS / page).read_text(), section))

"""Columns and options of CSV on command lines: written as in a pipeline file, and parsed by the same code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.expressions.types import Schema
    from ddcli.spec.model import InputSpec

F = TypeVar("F", bound="Callable[..., Any]")
CSV_OPTION = click.option(
    "--csv",
    metavar="OPTIONS",
    help='The dialect of CSV files, as in a pipeline file: \'{delimiter: ";", decimal: ","}\'.',
)


def columns_option(about: str) -> Callable[[F], F]:
    """Return the option of the columns of files that state no types of their own."""
    shown = f"Names and types, as in a pipeline file: '{{id: int64, name: string?}}'. {about}"
    return click.option("--columns", metavar="MAPPING", help=shown)


def log_options(time: str, diff: str, *, metavar: str = "COLUMN") -> Callable[[F], F]:
    """Return the options of the time columns and the diff column of a log."""
    first = click.option("--time", metavar=metavar, multiple=True, help=time)
    then = click.option("--diff", metavar="COLUMN", default="diff", show_default=True, help=diff)
    return lambda command: first(then(command))


def parse_columns(text: str) -> Schema:
    """Parse a mapping of columns, `{id: int64, name: string?}`, with or without its braces.

    >>> {name: str(kind) for name, kind in parse_columns("id: int64, name: string?").items()}
    {'id': 'int64', 'name': 'string?'}
    """
    given = _parsed("columns", text, "a mapping of columns to types", "{id: int64, name: string?}")
    return {} if given.columns is None else {name: kind for name, (_, kind) in given.columns.items()}


def parse_csv(text: str) -> Dialect:
    """Parse a mapping of CSV options, `{delimiter: ";", encoding: latin-1}`, with or without its braces.

    >>> parse_csv('delimiter: ";", skip: 2').stated()
    [('delimiter', ';'), ('skip', 2)]
    """
    given = _parsed(
        "csv", text, "a mapping of options of CSV", '{delimiter: ";", encoding: latin-1}', "columns: {a: int64}, "
    )
    assert given.csv is not None
    return given.csv


def _parsed(key: str, text: str, what: str, example: str, beside: str = "") -> InputSpec:
    """Parse an input of a pipeline file with a key whose value is a mapping."""
    from ddcli.errors import UsageError
    from ddcli.plan.pipeline_file import parse_spec

    inner = text.strip()
    mapping = inner if inner.startswith("{") else f"{{{inner}}}"
    try:
        spec = parse_spec(
            f"{{dd: 1, name: a, inputs: {{a: {{path: a, {beside}{key}: {mapping}}}}}, outputs: {{a: b}}}}", key
        )
    except UsageError as errors:
        problem = getattr(errors, "errors", (errors,))[0].problem.removeprefix(f"inputs.a.{key}")
        raise click.BadParameter(f"'{text}' is not {what} ({problem.lstrip(':. ')}); write it as '{example}'") from None
    return spec.inputs["a"]

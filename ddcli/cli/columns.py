"""Columns and their types as options say them: written as in a pipeline file, and read by the same code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ddcli.expressions.types import Schema


def parse_columns(text: str) -> Schema:
    """Return the columns of a mapping, `{id: int64, name: string?}`, with or without its braces.

    >>> {name: str(kind) for name, kind in parse_columns("id: int64, name: string?").items()}
    {'id': 'int64', 'name': 'string?'}
    """
    from ddcli.errors import UsageError
    from ddcli.spec import parse_spec

    inner = text.strip()
    mapping = inner if inner.startswith("{") else f"{{{inner}}}"
    try:
        spec = parse_spec(
            f"{{dd: 1, name: a, inputs: {{a: {{path: a, columns: {mapping}}}}}, outputs: {{a: b}}}}", "columns"
        )
    except UsageError as errors:
        problem = getattr(errors, "errors", (errors,))[0].problem.removeprefix("inputs.a.columns")
        raise click.BadParameter(
            f"'{text}' is not a mapping of columns to types ({problem.lstrip(':. ')}); write it as '{{id: int64, name: string?}}'"
        ) from None
    found = spec.inputs["a"].columns
    return {} if found is None else {name: kind for name, (_, kind) in found.items()}

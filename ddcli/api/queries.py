"""SQL queries over the collections of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import Span, Text, UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.api.program import Program
    from ddcli.plan.relation import Relation


def queried(dataflow: Program, query: str, relations: Mapping[str, Relation]) -> Relation:
    """Return the result of a query over collections by name. Raises SpecError at the place of a mistake in the text."""
    from ddcli.expressions.statement import read_statement, tables_of
    from ddcli.plan.sql.statement import bind

    lines = query.split("\n")
    first, *more = (Span("query", at, 1, max(1, len(line)), line) for at, line in enumerate(lines, start=1))
    text = Text(query, first, 0, tuple(more))
    for table in tables_of(read_statement(text)):
        if table.value not in relations:
            near = did_you_mean(table.value, relations)
            known = f"collections given: {', '.join(relations) or 'none'}"
            hint = f"did you mean `{near}`? ({known})" if near else known
            raise UsageError(f"no collection is named `{table.value}`", span=table.span, hint=hint)
    around = dataflow.surroundings
    found, _ = bind(text, relations.__getitem__, around.inputs, around.loop, len(around.time))
    return found

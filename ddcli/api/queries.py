"""SQL queries over the collections of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.api.program import Program
    from ddcli.plan.relation import Relation


def queried(dataflow: Program, query: str, relations: Mapping[str, Relation]) -> Relation:
    """Return the result of a query over collections by name. Raises SpecError at the place of a mistake in the text."""
    from ddcli.expressions.statement import check_tables, query_text
    from ddcli.expressions.zones import in_zone
    from ddcli.plan.sql.context import Times
    from ddcli.plan.sql.statement import bind

    text = query_text(query)
    check_tables(text, relations, "collections given")
    around = dataflow.surroundings
    with in_zone(dataflow.timezone):
        found, _ = bind(text, relations.__getitem__, around.inputs, around.loop, Times(around.time))
    return found

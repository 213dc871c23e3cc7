"""Operators and values in words."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ddcli.expressions.steps import ExplodeStep, MapStep, PythonStep, Step, UnnestStep
from ddcli.expressions.tree import Call, Column, Literal, quoted
from ddcli.expressions.types import no_column
from ddcli.plan import asof, groupings, logical, presence
from ddcli.screen import json_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import Node

HIDDEN = re.compile(
    r'"?#(all|argument|around|found|grouping|holds|items|key|known|left|n|one|order|part(?:ition)?|right|rows?|some|sort|value|window)\d*(#\d+)?"?'
)
"""The names of columns that SQL statements have beside their own, quoted or not."""
COPY = re.compile(r"#?(.+?)(#\d+)?", re.DOTALL)
"""The name of a column, as a second one of that name in a statement is called."""
DEEPEST = 6
"""The most rounds of replacing a column of the plan by its expression, which may have others."""


def step_text(step: Step) -> str:
    """Return a linear step in words; the empty text for one that only picks and renames columns."""
    if isinstance(step, MapStep):
        computed = [
            bare(e) if HIDDEN.fullmatch(n) else f"{quoted(n)}: {bare(e)}"
            for n, e in step.columns
            if not isinstance(e, Column) and not (HIDDEN.fullmatch(n) and isinstance(e, Literal))
        ]
        return f"map {', '.join(computed)}" if computed else ""
    if isinstance(step, PythonStep):
        return f"function {step.function}"
    if isinstance(step, UnnestStep):
        return f"flat_map {quoted(step.name)}: {step.call.text()}"
    if isinstance(step, ExplodeStep):
        return f"explode {bare(step.weight)}"
    return f"filter {bare(step.condition)}"


def bare(expression: Expression) -> str:
    """Return the text of an expression without its outer parentheses.

    >>> from ddcli.expressions.tree import Call, Literal
    >>> from ddcli.expressions.types import Type
    >>> bare(Call("<", (Literal(1, Type("int64")), Literal(2, Type("int64"))), Type("bool")))
    '1 < 2'
    """
    text = expression.text()
    return text[1:-1] if isinstance(expression, Call) and text.startswith("(") and text.endswith(")") else text


def readable(text: str, node: Node) -> str:
    """Return the words for an operator with the expressions in place of the columns that the plan has made of them for it."""
    if not HIDDEN.search(text):
        return text
    made: dict[str, str] = {}
    waiting, seen = list(node.inputs), set()
    while waiting:
        below = waiting.pop(0)
        if id(below) in seen:
            continue
        seen.add(id(below))
        waiting += below.inputs
        for name, words in _computed(below):
            if HIDDEN.fullmatch(name) and words.strip('"') != name:
                made.setdefault(name, words)
    for _ in range(DEEPEST):
        text = HIDDEN.sub(lambda found: made.get(found[0].strip('"'), found[0]), text)
    return HIDDEN.sub(r"\1", text)


def _computed(node: Node) -> Iterable[tuple[str, str]]:
    """Yield the columns that a node computes, with the expressions for them in words."""
    if isinstance(node, logical.Apply) and isinstance(node.step, MapStep):
        yield from ((name, bare(expression)) for name, expression in node.step.columns)
    elif isinstance(node, groupings.Reduce):
        yield from ((name, bare(expression)) for name, expression in node.by)
        for name, expression in node.results:
            words = bare(expression)
            for at, call in enumerate(node.calls):
                words = words.replace(quoted(f"${at}"), call.text())
            yield name, words


def bounds(node: logical.Temporal) -> str:
    """Return the times at which a record exists, in words."""
    lower = f"{bare(node.lower)} <= " if node.lower is not None else ""
    upper = f" < {bare(node.upper)}" if node.upper is not None else ""
    return f"{lower}now{upper}"


def reduce_text(node: groupings.Reduce) -> str:
    """Return a reduction in words; one without calls returns only its groups."""
    by = ", ".join(name for name, _ in node.by)
    calls = ", ".join(call.text() for call in node.calls)
    return " ".join(filter(None, ["reduce", calls, by and f"by {by}"]))


def group_text(node: groupings.Grouped, order_by: Iterable[tuple[str, bool]] = ()) -> str:
    """Return an operator over groups in words."""
    by = f" by {', '.join(node.by)}" if node.by else ""
    order = ", ".join(name + " desc" * descending for name, descending in order_by)
    return f"{node.title}{by}{f' in the order of {order}' if order else ''}"


def asof_text(node: asof.AsofJoin) -> str:
    """Return an as-of join in words."""
    on = [one if one == other else f"{one} = {other}" for one, other in node.on]
    kind = "" if node.how == "inner" else f"{node.how} "
    return f"{kind}asof_join on {', '.join([*on, node.condition])}"


def show(value: Any) -> str:
    """Return a value for a sentence, texts in quotes.

    >>> show(None), show("a"), show(True), show(float("inf"))
    ('null', "'a'", 'true', 'Infinity')
    """
    return repr(value) if isinstance(value, str) else shown_value(value)


def shown_value(value: Any) -> str:
    """Return a value for a record, written as in other commands' messages and in JSON."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return str(json_number(value) if isinstance(value, float) else value)


def named_values(node: Node, record: Sequence[Any]) -> dict[str, Any]:
    """Return the values of a record by column, without the columns that the plan adds to the pipeline file's."""
    values = zip(node.schema, record, strict=False)
    hidden = (
        name for name in node.schema if no_column(name) is not None or HIDDEN.fullmatch(name) or _is_copy(name, node)
    )
    left_out = {presence.NAME, *hidden}
    return {name: value for name, value in values if name not in left_out}


def asked_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are asked for, without the columns that the plan adds."""
    return {name: value for name, value in values.items() if not HIDDEN.fullmatch(name)}


def _is_copy(name: str, node: Node) -> bool:
    """Return whether a column is another's copy, as a statement has it that names the same column twice."""
    found = COPY.fullmatch(name)
    return found is not None and found[1] != name and found[1] in node.schema

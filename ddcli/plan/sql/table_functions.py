"""Functions that return rows: the elements of a list, or the numbers or moments of a series, each beside the row that it was called for.

They are called in a `from`, and `unnest` also in the list of a `select`, where it means the same as in a `lateral` behind the tables.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError
from ddcli.expressions.coerce import INT64, STRING, TIMESTAMP, Mismatch, convert
from ddcli.expressions.moments import UTC
from ddcli.expressions.parse import expanded
from ddcli.expressions.tree import Column, Expression, Literal, TableCall, UnnestStep
from ddcli.plan import logical
from ddcli.plan.conditions import call
from ddcli.plan.sql import nodes
from ddcli.plan.sql.calls import outermost
from ddcli.plan.sql.names import renamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddcli.plan.node import Node
    from ddcli.plan.sql.block import Block
    from ddcli.plan.sql.statement import Statement

SERIES = ("generate_series", "range")
JSON_ROWS = ("json_each", "json_tree")
DAY = 86_400_000_000
"""Microseconds of a day."""
LISTS = "split(text, ',') makes a list; of a list in a JSON text write unnest(x -> '$[*]')"


def with_rows(
    block: Block, node: exp.Expr, taken: Iterable[str]
) -> tuple[Node, tuple[tuple[str, str], ...], str | None]:
    """Return a block's rows, each with each row of a table function: the node, the function's columns, (name, column) in order, and the name of its table, if it has several columns.

    The columns are not in `taken`.
    """
    statement = block.statement
    take, place = statement.tree.take, statement.tree.place
    if isinstance(node, exp.Unnest):
        (written,) = take(node, "expressions", "alias", "offset", "joins")[:1]
        if node.args.get("offset"):
            raise SpecError("`with ordinality` is not supported", span=place(node))
        name = "unnest"
    else:
        function = node.this if isinstance(node, exp.Table) else node
        if isinstance(node, exp.Table):
            take(node, "this", "alias", "joins")
        name, written = take(function, "this", "expressions")
        name = str(name).lower()
    series = name
    ends: Sequence[exp.Expr] = written or ()
    if name == "unnest" and len(ends) == 1 and isinstance(ends[0], exp.Anonymous) and ends[0].name.lower() in SERIES:
        series, inner = ends[0].name.lower(), ends[0].expressions
        if len(inner) == 3 and isinstance(inner[2], exp.Interval):
            (ends,) = take(ends[0], "expressions", "this")[:1]
    args = [block.reader.expression(each) for each in ends]
    (column,) = renamed([name], {*taken, *block.schema}).values()
    if series in SERIES and len(args) == 3 and args[2].type.kind in ("duration", "months"):
        try:
            return _moments(block, series, args, column), ((name, column),), None
        except Mismatch as mismatch:
            raise SpecError(mismatch.problem, span=place(node), hint=mismatch.hint) from None
    if name in JSON_ROWS:
        args = [block.reader.resolve(node, name, args)]
    table = _called("unnest" if name in JSON_ROWS else name, args, node, statement)
    found = logical.Apply((block.node,), block.schema | {column: table.type}, UnnestStep(column, table))
    if name not in JSON_ROWS:
        return found, ((name, column),), None
    names = renamed([field for field, _ in table.type.fields], {*taken, *found.schema})
    row = Column(column, table.type)
    parts = {
        names[field]: block.reader.resolve(node, "struct_extract", [row, Literal(field, STRING)])
        for field, _ in table.type.fields
    }
    return nodes.mapped(found, nodes.every(found, block.schema) | parts), tuple(names.items()), name


def _called(name: str, args: list[Expression], node: exp.Expr, statement: Statement) -> TableCall:
    """Return the call of a table function."""
    place = statement.tree.place
    if name == "unnest":
        if len(args) != 1 or args[0].type.kind != "list" or args[0].type.inner is None:
            raise SpecError("unnest takes one list", span=place(node), hint=LISTS)
        return TableCall(name, tuple(args), args[0].type.inner)
    if name in SERIES and 1 <= len(args) <= 3 and all(arg.type.is_integer for arg in args):
        ends = [Literal(0 if name == "range" else 1, INT64), *args] if len(args) == 1 else args
        first, last, *step = [convert(each, INT64) for each in ends]
        if name == "range" and step:
            last = expanded("b - sign(n)", {"b": last, "n": step[0]}, place(node))
        elif name == "range":
            last = call("-", last, nodes.ONE)
        return TableCall("generate_series", (first, last, *(step or [nodes.ONE])), INT64)
    hint = "unnest(list), generate_series(first, last), generate_series(day, day, interval 1 day), range(end)"
    if name.startswith("read_"):
        hint = "`dd sql` without `--from` names files: `from 'orders.csv'`; of a pipeline they are inputs"
    problem = f"no function that returns rows is named `{name}`, or it takes other arguments"
    raise SpecError(problem, span=place(node), hint=hint)


def _moments(block: Block, name: str, args: Sequence[Expression], column: str) -> Node:
    """Return a block's rows, each with each timestamp of a series: its first one and a number of steps. Raises Mismatch."""
    first, last, step = args
    if not isinstance(step, Literal) or not all(end.type.kind in ("date", "datetime") for end in (first, last)):
        raise Mismatch(
            f"{name} takes two dates or timestamps and a constant interval", hint=f"{name}(a, b, interval 1 day)"
        )
    size = step.value // dt.timedelta(microseconds=1) if isinstance(step.value, dt.timedelta) else int(str(step.value))
    if not size:
        raise Mismatch(f"the interval of {name} is 0")
    if step.type.kind == "months":
        count, value = f"date_sub('month', a, b) // {size}", f"add_months(a, n * {size})"
    else:
        count, value = f"(epoch_us(b) - epoch_us(a)) // {size}", "a + n * step"
        if step.in_days and first.type.zone not in {None, UTC}:  # by the calendar, whose days may be an hour shorter
            count, value = f"{count} + 1", f"add_days(a, n * {size // DAY})"
    (number,) = renamed(["#n"], {*block.schema, column}).values()
    first, last = (convert(end, TIMESTAMP) if end.type.kind == "date" else end for end in (first, last))
    ends = {"a": first, "b": last, "step": step}
    steps = TableCall("generate_series", (Literal(0, INT64), expanded(count, ends, step.span), nodes.ONE), INT64)
    rows = logical.Apply((block.node,), block.schema | {number: INT64}, UnnestStep(number, steps))
    moment = expanded(value, ends | {"n": Column(number, INT64)}, step.span)
    found = nodes.mapped(rows, nodes.every(rows, block.schema) | {column: moment})
    sign = ("<" if size > 0 else ">") + ("" if name == "range" else "=")
    return nodes.filtered(found, expanded(f"m {sign} b", {"m": Column(column, moment.type), "b": last}, step.span))


def find_unnested(written: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the calls of `unnest` in expressions, without those in subqueries."""
    return outermost(written, lambda node: isinstance(node, exp.Anonymous) and str(node.this).lower() == "unnest")


def spread_list(block: Block, call: exp.Expr) -> None:
    """Replace a block's rows by one row for each element of a list; from then on the call of `unnest` is read as that element."""
    block.node, ((_, column),), _ = with_rows(block, call, ())
    block.known[id(call)] = Column(column, block.schema[column], span=block.statement.tree.place(call))

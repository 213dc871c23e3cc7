"""Window functions of a `select`: their calls over partitions and orders, named windows, and `qualify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError, did_you_mean
from ddcli.expressions.window_calls import CallReader, OrderedBy
from ddcli.plan.sql.calls import outermost
from ddcli.plan.sql.names import renamed
from ddcli.plan.sql.nodes import column
from ddcli.plan.sql.reader import AggregateCalls
from ddcli.plan.sql.top import order_keys
from ddcli.plan.windows import windowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.expressions.windows import WindowCall
    from ddcli.plan.sql.block import Block
    from ddcli.plan.sql.context import QueryLowering
    from ddcli.plan.sql.entries import Entry


def find_windows(nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the window calls in expressions, without those in subqueries and in other window calls."""
    return outermost(nodes, lambda node: isinstance(node, exp.Window))


def window_clauses(node: exp.Select) -> list[exp.Expr]:
    """Return the clauses of a `select` beside its list that may have window calls."""
    clauses = [node.args.get(name) for name in ("order", "qualify", "distinct")]
    return [clause for clause in clauses if clause is not None]


def attach(
    statement: QueryLowering, block: Block, node: exp.Select, entries: Sequence[Entry], keys: Sequence[str]
) -> None:
    """Add columns with the values of a `select`'s window calls, by row of the outer `keys`; then keep the rows for which `qualify` is true."""
    definitions = _definitions(statement, node)
    written = [entry.written for entry in entries if entry.written is not None]
    calls = find_windows([*written, *window_clauses(node)])
    reader = AggregateCalls(statement.tree, block)
    reader.inner = block.reader  # type: ignore[assignment]
    inner = CallReader(block.reader, reader)
    around: list[Expression] = [column(block.node, key) for key in keys]
    # All calls are read before any is computed: a subquery in one of them adds columns to the rows of all.
    groups: dict[tuple[str, ...], tuple[list[Expression], OrderedBy, dict[str, WindowCall]]] = {}
    places: dict[int, tuple[tuple[str, ...], str]] = {}
    for each in calls:
        called, partition, order_by, spec = _resolved(statement, each, definitions)
        by = [block.reader.expression(part) for part in partition]
        for part, expression in zip(partition, by, strict=True):
            if expression.type.kind in ("null", "months"):
                problem = f"can't partition by {expression.type.required()}"
                raise SpecError(problem, span=statement.tree.place(part))
        count = len(order_by.expressions) if order_by is not None else 0
        order = OrderedBy(tuple(order_keys(statement, order_by, block.reader.expression)), count)
        call = inner.call(called, order, inner.frame(spec, order) if spec is not None else None)
        text = (*(part.text() for part in by), "order", *(f"{key.text()} {down}" for key, down in order.keys))
        mine = groups.setdefault(text, ([*around, *by], order, {}))[2]
        mine.setdefault(call.text(), call)
        places[id(each)] = text, call.text()
    used = {each.args["alias"].name.lower() for each in [*calls, *definitions.values()] if each.args.get("alias")}
    for name, definition in definitions.items():
        if name not in used:
            span = statement.tree.place(definition)
            raise SpecError(f"no function uses the window `{name}`", span=span, hint="leave it out")
    for text, (by, order, wanted) in groups.items():
        names = list(renamed([f"#window{at}" for at in range(len(wanted))], block.schema).values())
        block.node = windowed(block.node, by, order, dict(zip(names, wanted.values(), strict=True)), "#")
        named = dict(zip(wanted, names, strict=True))
        for at, (own, call_text) in places.items():
            if own == text:
                block.known[at] = column(block.node, named[call_text])
    qualify = node.args.get("qualify")
    if qualify is not None:
        if not calls:
            raise SpecError(
                "`qualify` without a window function",
                span=statement.tree.place(qualify),
                hint="write `where` or `having`",
            )
        block.where(statement.tree.take(qualify, "this")[0])


def _definitions(statement: QueryLowering, node: exp.Select) -> dict[str, exp.Window]:
    """Return the named windows of a `select`, by name in lower case."""
    found: dict[str, exp.Window] = {}
    for each in node.args.get("windows") or ():
        name = statement.identifier(each.this)
        if name.lower() in found:
            raise SpecError(f"two windows are named `{name}`", span=statement.tree.place(each))
        found[name.lower()] = each
    return found


def _resolved(
    statement: QueryLowering, node: exp.Expr, definitions: Mapping[str, exp.Window], depth: int = 0
) -> tuple[exp.Expr, list[exp.Expr], exp.Order | None, exp.WindowSpec | None]:
    """Return a window's call, or its name, with its partition, order and frame, including parts of the named window that it extends."""
    tree = statement.tree
    called, partition, order, spec, alias = tree.take(node, "this", "partition_by", "order", "spec", "alias", "over")[
        :5
    ]
    partition = list(partition or ())
    if alias is None:
        return called, partition, order, spec
    name = statement.identifier(alias)
    base = definitions.get(name.lower())
    if base is None or depth > len(definitions):
        near = did_you_mean(name.lower(), definitions)
        hint = f"did you mean `{near}`?" if near else "name it behind `from`: window w as (partition by ...)"
        raise SpecError(f"no window is named `{name}`", span=tree.place(node), hint=hint)
    _, its_partition, its_order, its_spec = _resolved(statement, base, definitions, depth + 1)
    if partition:
        raise SpecError(f"the window `{name}` has its partition already", span=tree.place(node))
    if order is not None and its_order is not None:
        raise SpecError(f"the window `{name}` has an order already", span=tree.place(node))
    return called, its_partition, order or its_order, spec or its_spec

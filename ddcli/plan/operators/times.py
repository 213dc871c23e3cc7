"""Operators on times and loops, indexes, and a look at updates; bounds of times in the unit of the pipeline's time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.errors import SpecError, Text
from ddcli.expressions.arithmetic import as_date
from ddcli.expressions.tree import Cast, ColumnScope
from ddcli.plan import logical, loops
from ddcli.plan.operators.functions import PYTHON, defined
from ddcli.plan.operators.row import argument, integer, operator, require
from ddcli.plan.relation import Relation
from ddcli.spec.column_shapes import COLUMNS, EXPRESSION, NAME
from ddcli.spec.shapes import Key, Record
from ddcli.spec.values import Words

if TYPE_CHECKING:
    from ddcli.errors import Span
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Type
    from ddcli.plan.operators.row import Operands
    from ddcli.spec.operator_model import PythonFunction


FORMS = {
    "int64": "an integer, as time is",
    "date": "a date, as time is: `cast(... as date)`",
    "datetime": "a timestamp, as time is: `cast(... as timestamp)`",
}


def bound(expression: Expression, text: Text, time: Type) -> Expression:
    """Return a bound of a temporal filter as a time. A time of a coarser unit is rounded up: there `<=` and `<` are exact."""
    given, wanted = expression.type.required(), time.or_null(expression.type.nullable)
    if given == time:
        return expression
    if time.is_integer and given.is_integer:
        return Cast(expression, wanted, span=expression.span)
    if time.kind == "datetime" and given.kind == "date" and not time.zone:
        return Cast(expression, wanted, span=expression.span)
    if time.kind == given.kind == "datetime" and bool(time.zone) == bool(given.zone):
        finer = given.second_digits > time.second_digits
        return _rounded_up(expression, wanted, text.span) if finer else Cast(expression, wanted, span=expression.span)
    if time.kind == "date" and given.kind == "datetime" and (day := as_date(expression)) is not None:
        return day  # `placed + interval '7' day` is a timestamp that begins a day
    problem = f"a bound is of the type of the pipeline's time, {time}, not {given}"
    raise SpecError(problem, span=text.span, hint=f"give {FORMS[time.kind]}")


def _rounded_up(expression: Expression, time: Type, span: Span) -> Expression:
    """Return the first time in a coarser unit that is not before a time in a finer one; a cast alone rounds down."""
    from ddcli.expressions.parse import parse_scalar

    down, unit = f"cast(x as {time.required()})", {"ms": "millisecond", "us": "microsecond"}[time.unit or "us"]
    up = f"cast({down} + interval '1' {unit} as {time.required()})"
    text = f"case when cast({down} as {expression.type.required()}) < x then {up} else {down} end"
    return parse_scalar(Text(text, span), ColumnScope({"x": expression.type})).substitute({"x": expression})


WHILE: Record[dict[str, Any]] = Record(
    lambda _, arguments: arguments,
    {
        "from": Key(EXPRESSION, about="the first time of a record; without: always before `until`", argument="lower"),
        "until": Key(EXPRESSION, about="the first time at which it is gone; without: never gone", argument="upper"),
    },
    "a mapping with `from`, `until` or both",
    "temporal_filter: {from: placed_at, until: closed_at}",
    least=1,
)


@operator("temporal_filter", "{from: placed_at, until: closed_at}", WHILE, keeps_columns=True)
def temporal_filter(operands: Operands, lower: Text | None = None, upper: Text | None = None) -> Relation:
    """Keep each record while `from` <= now < `until`, at least one of them given; now is the time one reads at."""
    time, relation = operands.around.time, operands.relation
    if len(time) > 1:
        problem = f"a temporal_filter needs one time coordinate; here time has {len(time)}"
        raise SpecError(problem, hint="now is not before or after a bound where times have no order")
    bounds = [bound(relation.scalar(text), text, time[0]) if text else None for text in (lower, upper)]
    return relation.over(logical.Temporal((relation.node,), relation.schema, *bounds))


@operator("join_function", "{function: 'prices:changes', columns: {price: int64}}", argument("function", PYTHON))
def join_function(operands: Operands, function: PythonFunction) -> Relation:
    """Turn each record into records of the function's columns, each with a time from which on it exists, and a diff."""
    name, schema = defined(function, 1, operands.around)
    time = operands.around.time
    several = len(time) > 1
    own = {"row", "diff", *(f"time{at}" if several else "time" for at, _ in enumerate(time))}
    for column, (text, _) in function.columns.items():
        problem = f"the column '{column}' would hide the frame's own: it holds the row, time and diff of each update"
        require(not function.batch or column not in own, text, problem, "rename it, or leave `batch` out")
    return Relation(logical.JoinFunction((operands.relation.node,), schema, name, function.batch))


@operator(
    "enter",
    "{at: priority}",
    {"at": Key(EXPRESSION, required=True, about="the round, an integer; below 0 it is the first")},
    keeps_columns=True,
    in_loop=True,
)
def enter(operands: Operands, at: Text) -> Relation:
    """Let each record enter the loop around it from the round on that the integer expression `at` returns."""
    relation, loop = operands.relation, operands.around.loop
    if loop is None:
        raise SpecError("`enter` is outside of a loop", hint="it sets the round of a loop in which a record enters")
    first = integer(relation, at, "enter takes", "lets records in at once whose round is null")
    return relation.over(loops.Enter((relation.node,), relation.schema, loop.name, loop.depth, first))


@operator(
    "arrange",
    "{by: [customer_id]}",
    {
        "by": Key(COLUMNS, required=True, about="the key"),
        "export": Key(NAME, about="its name for the pipelines that import it"),
    },
    keeps_columns=True,
)
def arrange(operands: Operands, by: tuple[Text, ...], export: Text | None = None) -> Relation:
    """Index by columns, for all joins and reductions by these; under the name `export`, for other pipelines too."""
    relation, around = operands.relation, operands.around
    found = relation.over(logical.Arrange((relation.node,), relation.schema, tuple(map(relation.column, by))))
    if export is not None:
        name = export.value
        require(around.loop is None, export, "an arrangement of a loop's body can't be exported", "let it leave")
        require(name not in around.exports, export, f"two arrangements are exported as '{name}'")
        around.exports[name] = found.node
    return found


@operator("inspect", "orders", argument("label", Words("a label")), other_words="debug print log tap")
def inspect(operands: Operands, label: Text) -> Relation:
    """Show the updates that pass, under a label."""
    relation = operands.relation
    return relation.over(logical.Inspect((relation.node,), relation.schema, label.value))

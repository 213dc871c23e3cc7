"""Operators on times and loops, indexes, and a look at updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.errors import SpecError
from ddcli.plan import logical, loops
from ddcli.plan.operators.functions import PYTHON, defined
from ddcli.plan.operators.row import argument, integer, operator, require
from ddcli.plan.relation import Relation
from ddcli.plan.temporal import bound
from ddcli.spec.column_shapes import COLUMNS, EXPRESSION, NAME
from ddcli.spec.shapes import Key, Record
from ddcli.spec.values import Words

if TYPE_CHECKING:
    from ddcli.errors import Text
    from ddcli.plan.operators.row import Operands
    from ddcli.spec.operator_model import PythonFunction

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

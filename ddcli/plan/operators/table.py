"""The table of operators, and the collections that operators of a pipeline file return; rows for groups are in `groups`."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

from ddcli.errors import Expanded, SpecError, Text, Unbuilt, noting, placing, raise_all
from ddcli.expressions.coerce import as_date
from ddcli.expressions.tree import Cast, Column, ExplodeStep, FilterStep, UnnestStep, quoted
from ddcli.expressions.types import ColumnScope
from ddcli.plan import joins, logical, loops, temporal
from ddcli.plan.asof import asof_join
from ddcli.plan.operators import groups
from ddcli.plan.operators.groups import (
    MEMOIZABLE,
    NOTHING,
    ON_KEY,
    PYTHON,
    RIGHT,
    OperatorRow,
    PythonOr,
    applied_function,
    argument,
    defined,
    operator,
)
from ddcli.plan.relation import BindContext, Operands, Relation, columns_of, concat, integer, mapped, parse_all, require
from ddcli.spec.shapes import As, ByKind, Key, Pairs, Record
from ddcli.spec.values import (
    ALIAS,
    ASSIGNMENTS,
    COLUMN,
    COLUMNS,
    EXPRESSION,
    NAME,
    ON,
    SOURCES,
    Choice,
    ExpressionText,
    Words,
    flag,
    percentage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ddcli.errors import DdError, Span
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Type
    from ddcli.spec.model import Assignments, Operator, PythonFunction, Source
    from ddcli.spec.shapes import Shape


ONE_TABLE: Shape[dict[str, Any]] = As(
    Pairs(COLUMN, ExpressionText("unnest(...) or generate_series(...)"), "one column and its table expression", most=1),
    lambda _, pairs: dict(zip(("column", "expression"), pairs[0], strict=True)),
)


@operator(
    "map",
    "{id: id, total: price * amount}",
    PythonOr(argument("function", MEMOIZABLE), argument("columns", ASSIGNMENTS)),
    other_words="select transform",
)
def map_records(operands: Operands, columns: Assignments = (), function: PythonFunction | None = None) -> Relation:
    """Compute exactly these columns, or turn each record into one record with a function's columns."""
    if function is not None:
        return applied_function(operands, function)
    return mapped(operands.relation, parse_all(operands.relation, columns))


@operator(
    "extend",
    "{total: price * amount}",
    argument("columns", ASSIGNMENTS),
    other_words="withcolumn withcolumns assign mutate derive",
)
def extend(operands: Operands, columns: Assignments) -> Relation:
    """Add or replace columns."""
    relation = operands.relation
    found = columns_of(relation.schema) | dict(parse_all(relation, columns))
    return relation.over(mapped(relation, found.items()).node)


@operator("project", "[id, region]", argument("columns", COLUMNS))
def project(operands: Operands, columns: tuple[Text, ...]) -> Relation:
    """Keep these columns, in this order."""
    relation = operands.relation
    kept = {text.value: relation.column(text) for text in columns}
    return relation.over(mapped(relation, [(n, Column(c, relation.schema[c])) for n, c in kept.items()]).node)


@operator("drop", "[region]", argument("columns", COLUMNS))
def drop(operands: Operands, columns: tuple[Text, ...]) -> Relation:
    """Leave these columns out."""
    relation = operands.relation
    dropped = {relation.column(text) for text in columns}
    kept = columns_of({name: kind for name, kind in relation.schema.items() if name not in dropped})
    return relation.over(mapped(relation, kept.items()).node)


@operator("rename", "{id: order_id}", argument("columns", Pairs(COLUMN, COLUMN, "a mapping of old to new names")))
def rename(operands: Operands, columns: Assignments) -> Relation:
    """Rename columns: old name, new name."""
    relation = operands.relation
    new = {relation.column(old): to.value for old, to in columns}
    names = [new.get(name, name) for name in relation.schema]
    for _, to in columns:
        problem = f"two columns would be named '{to.value}'"
        require(names.count(to.value) <= 1, to, problem, "drop or rename the other one")
    return mapped(relation, [(new.get(name, name), column) for name, column in columns_of(relation.schema).items()])


@operator(
    "filter",
    "amount > 0",
    argument("condition", ExpressionText("a condition")),
    other_words="where having",
    keeps_columns=True,
)
def filter_records(
    operands: Operands, condition: Text | None = None, function: PythonFunction | None = None
) -> Relation:
    """Keep the records for which the condition is true."""
    relation = operands.relation
    if function is not None:
        return relation.over(applied_function(operands, function).node)
    assert condition is not None
    if isinstance(condition, Expanded) and condition.encloses and condition.written is not None:
        _condition(relation, condition.written, "a condition")
    found = _condition(relation, condition, "a filter")
    return relation.over(logical.Apply((relation.node,), relation.schema, FilterStep(found)))


UNSAMPLED = ("float32", "float64", "binary", "duration", "list", "struct")
"""Kinds of values without one text for each: equal floats, 0 and -0, have two, the others none."""


@operator(
    "sample",
    "{by: [customer_id], percent: 10}",
    {
        "by": Key(COLUMNS, required=True, about="the columns whose values are hashed"),
        "percent": Key(percentage, required=True, about="the share of these values to keep, such as 0.5"),
    },
    other_words="tablesample",
    keeps_columns=True,
)
def sample(operands: Operands, by: tuple[Text, ...], percent: Text) -> Relation:
    """Keep the records of a share of the values of `by`, chosen by their hash: the same values in each run and each collection."""
    relation = operands.relation
    for text in by:
        kind = relation.schema[relation.column(text)]
        problem, hint = (
            f"values of type {kind.required()} are not sampled",
            "name columns of integers, text, dates or times",
        )
        require(kind.kind not in UNSAMPLED, text, problem, hint)
    share = Fraction(percent.value) / 100
    require(0 < share <= 1, percent, "a sample is of more than 0 and at most 100 percent")
    greatest = ceil(share * (1 << 32)) - 1
    values = ", ".join(quoted(relation.column(text)) for text in by)
    condition = f"left(md5(concat_ws(',', {values})), 8) <= '{greatest:08x}'"
    kept = relation.scalar(Text(condition, operands.span))
    return relation.over(logical.Apply((relation.node,), relation.schema, FilterStep(kept)))


def _condition(relation: Relation, text: Text, what: str) -> Expression:
    found = relation.scalar(text)
    hint = "compare it, for example with `= 1` or `is not null`"
    require(found.type.kind in ("bool", "null"), text, f"{what} is a bool, not {found.type}", hint)
    return found


@operator(
    "flat_map",
    "{tag: 'unnest(tags)'}",
    PythonOr(argument("function", MEMOIZABLE), ONE_TABLE),
    other_words="unnest flatten lateral",
)
def flat_map(
    operands: Operands,
    column: Text | None = None,
    expression: Text | None = None,
    function: PythonFunction | None = None,
) -> Relation:
    """Turn each record into one record for each element of `unnest(list)` or `generate_series(first, last)`, with the element in a column; or into any number of records with a function's columns."""
    if function is not None:
        return applied_function(operands, function)
    assert column is not None
    assert expression is not None
    relation = operands.relation
    call = relation.table(expression)
    schema = relation.schema | {column.value: call.type}
    return relation.over(logical.Apply((relation.node,), schema, UnnestStep(column.value, call)))


@operator("explode", "amount", argument("weight", EXPRESSION), keeps_columns=True)
def explode(operands: Operands, weight: Text) -> Relation:
    """Multiply the diff by an integer expression; columns stay as they are."""
    relation = operands.relation
    found = integer(relation, weight, "explode takes", "drops records whose weight is null")
    return relation.over(logical.Apply((relation.node,), relation.schema, ExplodeStep(found)))


AS = Key(ALIAS, about="qualifies the right side's columns", argument="name")


@operator("negate", "", NOTHING)
def negate(operands: Operands) -> Relation:
    """Change the sign of every diff."""
    return operands.relation.over(logical.negated(operands.relation.node))


@operator("concat", "[returns]", argument("inputs", SOURCES), other_words="union unionall append")
def concat_with(operands: Operands, refers: Assignments = ()) -> Relation:
    """Add the updates of other collections."""
    relation = operands.relation
    # A check that refers to columns of the other collection has its own names for them here.
    for column, other in refers:
        kinds = relation.schema[column.value], operands.right.schema[column.value]
        require(
            joins.comparable(*kinds),
            column,
            f"'{column.value}' is {kinds[0]}, and '{other.value}', to which it refers, is {kinds[1]}",
            "a column refers to one of its type",
        )
    return relation.over(concat([relation, *operands.others], operands.span, "concat").node)


@operator("consolidate", "", NOTHING)
def consolidate(operands: Operands) -> Relation:
    """Sum the diffs of equal updates."""
    relation = operands.relation
    return relation.over(logical.Consolidate((relation.node,), relation.schema))


@operator(
    "join",
    "{with: customers, on: [customer_id]}",
    {
        "with": RIGHT,
        "as": AS,
        "on": ON_KEY,
        "how": Key(
            Choice("kind of join", ("inner", "left", "right", "full")), about="inner (default), left, right or full"
        ),
    },
    other_words="leftjoin innerjoin rightjoin outerjoin fulljoin lookup",
)
def join(operands: Operands, on: Assignments, how: str = "inner", name: Text | None = None) -> Relation:
    """Join with another collection where pairs of columns are equal."""
    return joins.join(operands.relation, operands.right, on, how, operands.qualifier(name), operands.span)


@operator(
    "asof_join",
    "{with: quotes, on: [symbol], at: time, as: quote}",
    {
        "with": RIGHT,
        "as": AS,
        "on": Key(ON, about="common columns, or left column: right column; without: all records are one group"),
        "at": Key(
            ByKind(
                "a common column, or a mapping of a left to a right column",
                scalar=As(COLUMN, lambda _, name: ((name, name),)),
                mapping=Pairs(COLUMN, COLUMN, "a mapping of a left to a right column", most=1),
                hint="write `at: time` or `at: {sold_at: quoted_at}`",
            ),
            required=True,
            about="the column that is compared, or left column: right column",
        ),
        "how": Key(Choice("kind of as-of join", ("inner", "left")), about="inner (default) or left"),
        "direction": Key(
            Choice("direction", ("backward", "forward")),
            about="the last at or before (default), or the first at or after",
        ),
        "strict": Key(flag, about="an equal value does not match"),
    },
    other_words="joinasof asof mergeasof",
)
def join_nearest(
    operands: Operands,
    at: Assignments,
    on: Assignments = (),
    how: str = "inner",
    direction: str = "backward",
    strict: bool = False,
    name: Text | None = None,
) -> Relation:
    """Join each record with the nearest record of another collection by a pair of columns, among records where other pairs are equal."""
    forward, qualifier = direction == "forward", operands.qualifier(name)
    return asof_join(operands.relation, operands.right, at[0], on, how, forward, strict, qualifier, operands.span)


@operator(
    "semijoin",
    "{with: customers, on: [customer_id]}",
    {"with": RIGHT, "on": ON_KEY},
    other_words="semi intersect exists",
)
def semijoin(operands: Operands, on: Assignments) -> Relation:
    """Keep the records that have a match in another collection."""
    return joins.semijoin(operands.relation, operands.right, on)


@operator(
    "antijoin",
    "{with: customers, on: [customer_id]}",
    {"with": RIGHT, "on": ON_KEY},
    other_words="anti except minus",
    keeps_columns=True,
)
def antijoin(operands: Operands, on: Assignments) -> Relation:
    """Keep the records that have no match in another collection."""
    return joins.semijoin(operands.relation, operands.right, on, anti=True)


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
    """Keep each record while `from` <= now < `until`, with at least one of them. Now is the time at which the collection is read."""
    time, relation = operands.around.time, operands.relation
    if len(time) > 1:
        problem = f"a temporal_filter needs one time coordinate; here time has {len(time)}"
        raise SpecError(problem, hint="now is not before or after a bound where times have no order")
    bounds = [bound(relation.scalar(text), text, time[0]) if text else None for text in (lower, upper)]
    return relation.over(temporal.Temporal((relation.node,), relation.schema, *bounds))


@operator("join_function", "{function: 'prices:changes', columns: {price: int64}}", argument("function", PYTHON))
def join_function(operands: Operands, function: PythonFunction) -> Relation:
    """Turn each record into records with the function's columns, each with the time from which on it exists, and a diff."""
    name, schema = defined(function, 1, operands.around)
    time = operands.around.time
    several = len(time) > 1
    own = {"row", "diff", *(f"time{at}" if several else "time" for at, _ in enumerate(time))}
    for column, (text, _) in function.columns.items():
        problem = f"the column '{column}' would hide the frame's own: it holds the row, time and diff of each update"
        require(not function.batch or column not in own, text, problem, "rename it, or leave `batch` out")
    return Relation(temporal.JoinFunction((operands.relation.node,), schema, name, function.batch))


@operator(
    "enter",
    "{at: priority}",
    {"at": Key(EXPRESSION, required=True, about="the round, an integer; below 0 it is the first")},
    keeps_columns=True,
    in_loop=True,
)
def enter(operands: Operands, at: Text) -> Relation:
    """Let each record enter the enclosing loop in the round that the integer expression `at` returns."""
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
    """Print the updates that pass, with a label."""
    relation = operands.relation
    return relation.over(logical.Inspect((relation.node,), relation.schema, label.value))


OPERATORS: dict[str, OperatorRow] = {
    row.name: row for row in (*globals().values(), *vars(groups).values()) if isinstance(row, OperatorRow)
}
for last in ("temporal_filter", "join_function", "enter", "arrange", "inspect"):
    OPERATORS[last] = OPERATORS.pop(last)
"""All operators by name, in the order in which messages and the schema list them."""
HERE = BindContext()


def apply_operators(
    relation: Relation,
    operators: Iterable[Operator],
    source: Callable[[Source], Relation],
    around: BindContext = HERE,
) -> Relation:
    """Return `relation` with the operators applied in order; `source` returns the relation that a name means.

    Raises the errors of all operators up to one whose columns can't be known.
    """
    errors: list[DdError] = []
    for each in operators:
        before = len(errors)
        try:
            with noting(errors), placing(each.place, each.span):
                others = tuple(source(name) for name in each.inputs)
                names = tuple(name.value if isinstance(name, Text) else None for name in each.inputs)
                operands = Operands(relation, each.span, around, others, names)
                relation = applied(each.name, operands, each.arguments, each.place)
        except Unbuilt:
            raise_all(errors)
            raise
        if len(errors) > before and not OPERATORS[each.name].keeps_columns:
            break
    raise_all(errors)
    return relation


def applied(name: str, operands: Operands, arguments: dict[str, Any], place: str) -> Relation:
    """Return the result of an operator, given the arguments of its constructor; `place` is its path in the file."""
    found = OPERATORS[name].build(operands, **arguments)
    operands.around.places.setdefault(found.node.fingerprint, (place, operands.span))
    return found

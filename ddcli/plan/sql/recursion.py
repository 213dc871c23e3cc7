"""`with recursive` as a loop, and `union`, `intersect`, `except`.

A table is a fixed point of its query, and the least one if more rows only lead to more rows. With `union` that is SQL's definition, and a part in
which more rows may lead to fewer is refused: databases look at the rows of one round there. With `union all`
a row's multiplicity is the number of ways to reach it. The rounds add these up if each row leads to further rows by itself, so no other query
is accepted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, Text
from ddcli.expressions.aggregates import AggregateCall
from ddcli.expressions.coerce import BOOL, INT64, Mismatch, convert, meet
from ddcli.expressions.syntax_tree import names_some, table_name, tables_in
from ddcli.expressions.tree import Column, ExplodeStep, Expression, Literal
from ddcli.expressions.types import Type, fresh, renamed
from ddcli.plan import groupings, logical
from ddcli.plan.conditions import call
from ddcli.plan.loops import iterate
from ddcli.plan.relation import Relation
from ddcli.plan.sql import nodes
from ddcli.plan.sql.calls import find_aggregates
from ddcli.plan.sql.context import Environment, QueryResult
from ddcli.plan.sql.nodes import column
from ddcli.plan.sql.select import find_windows, window_clauses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.plan.node import LoopName, Node
    from ddcli.plan.sql.statement import Statement


ALL_ROUNDS = "{} all rows found so far, and in DuckDB only the rows of the last round"


@dataclass(frozen=True, eq=False)
class Recursive:
    """A table of a `with recursive`: its name, the names of its columns, its query, and the tables of the `with` that the query names."""

    name: str
    columns: list[exp.Expr]
    query: exp.Expr
    place: exp.Expr
    names: frozenset[str]


def recursive(statement: Statement, tables: Sequence[exp.CTE], environment: Environment) -> Environment:
    """Return the environment with the tables of a `with recursive`; tables that refer to each other become one loop."""
    defined: dict[str, Recursive] = {}
    words = {each.alias.lower() for each in tables}
    for each in tables:
        name, columns, query = statement.definition(each)
        used = {
            table_name(table).lower() for table in query.find_all(exp.Table) if isinstance(table.this, exp.Identifier)
        }
        word = statement.identifier(name)
        if word.lower() in defined:
            raise SpecError(f"two tables are named `{word}`", span=statement.tree.place(name))
        defined[word.lower()] = Recursive(word, columns, query, name, frozenset(used & words))
    for group in _groups(defined):
        known = Environment(environment.tables)
        if len(group) == 1 and group[0].name.lower() not in group[0].names:
            (one,) = group
            found = [statement.query(one.query, known)]
            named = [
                replace(found[0], columns=statement.columns_named(found[0].columns, one.columns, one.name, one.place))
            ]
        else:
            named = _loop(statement, group, known)
        tables_ = dict(environment.tables) | {
            each.name.lower(): result for each, result in zip(group, named, strict=True)
        }
        environment = replace(environment, tables=tables_)
    return environment


def _groups(defined: dict[str, Recursive]) -> list[list[Recursive]]:
    """Return the tables in groups that refer to each other, each group after the groups that it names."""
    reached = {name: set(each.names) for name, each in defined.items()}
    for middle in defined:
        for found in reached.values():
            if middle in found:
                found |= reached[middle]
    groups: list[list[Recursive]] = []
    done: set[str] = set()
    left = list(defined)
    while left:
        name = next(each for each in left if all(one in done or each in reached[one] for one in reached[each]))
        together = [each for each in left if each == name or (each in reached[name] and name in reached[each])]
        groups.append([defined[each] for each in together])
        done |= set(together)
        left = [each for each in left if each not in done]
    return groups


def _loop(statement: Statement, group: Sequence[Recursive], known: Environment) -> list[QueryResult]:
    """Return the tables of a group, as the results of a loop."""
    members = frozenset(each.name.lower() for each in group)
    for each in group:
        _check_counts(statement, each, members)
    begun = _initials(statement, group, members, known)
    listed = [
        statement.columns_named(result.columns, each.columns, each.name, each.place)
        for each, result in zip(group, begun, strict=True)
    ]
    around = statement.loop

    def relation(result: QueryResult, names: Sequence[tuple[str, str]]) -> Relation:
        given = {
            name: nodes.column(result.node, column)
            for (name, _), (_, column) in zip(names, result.columns, strict=True)
        }
        return Relation(nodes.mapped(result.node, given))

    def bodies(loop: LoopName, variables: Sequence[Relation]) -> tuple[list[Relation], list[Relation]]:
        statement.loop = loop
        try:
            inside = {each.name.lower(): _table(variable) for each, variable in zip(group, variables, strict=True)}
            environment = Environment({**known.tables, **inside})
            results = [statement.query(each.query, environment) for each in group]
        finally:
            statement.loop = around
        return [relation(result, names) for result, names in zip(results, listed, strict=True)], []

    for each, names in zip(group, listed, strict=True):
        if len({name for name, _ in names}) < len(names):
            raise SpecError(f"two columns of `{each.name}` have one name", span=statement.tree.place(each.place))
    initials = [
        (Text(each.name, statement.tree.place(each.place)), relation(result, names))
        for each, result, names in zip(group, begun, listed, strict=True)
    ]
    return [_table(each) for each in iterate(initials, bodies, around)]


def _table(relation: Relation) -> QueryResult:
    return QueryResult(relation.node, (), tuple((name, name) for name in relation.schema))


def _initials(
    statement: Statement, group: Sequence[Recursive], members: frozenset[str], known: Environment
) -> list[QueryResult]:
    """Return the initial values of tables: empty, with the columns of their first parts that name no table of the group."""
    found: dict[str, QueryResult] = {}
    left = list(group)
    while left:
        progress = False
        for each in list(left):
            begin = _first_part(each.query, members)
            query = begin if begin is not None else each.query
            if (
                begin is None
                and not (each.names & members) <= found.keys()
                and not _has_start_for_each(each.query, members)
            ):
                continue
            result = statement.recursion_start(query, Environment({**known.tables, **found}), members - found.keys())
            empty = nodes.filtered(result.node, Literal(False, BOOL))
            columns = statement.columns_named(result.columns, each.columns, each.name, each.place)
            found[each.name.lower()] = replace(result, node=empty, columns=columns)
            left.remove(each)
            progress = True
        if not progress:
            problem = f"`{left[0].name}` refers to itself, and has no part to begin with"
            hint = "write `select ... union select ... from` it: the first part names no table that refers to it"
            raise SpecError(problem, span=statement.tree.place(left[0].place), hint=hint)
    return [found[each.name.lower()] for each in group]


def _first_part(query: exp.Expr, members: frozenset[str]) -> exp.Expr | None:
    """Return the first part of a union that names no table of the group."""
    while True:
        if not tables_in(query, members):
            return query
        inner = query.this if isinstance(query, exp.Union | exp.Subquery) else None
        if not isinstance(inner, exp.Query | exp.Values):
            return None
        query = inner


def _has_start_for_each(query: exp.Expr, members: frozenset[str]) -> bool:
    """Return whether each part of a query that names a table of the group is a side of a union whose other side names none."""
    return all(
        any(
            isinstance(around, exp.Union)
            and not (names_some(around.this, members) and names_some(around.expression, members))
            for around in _around(table, query)
        )
        for table in tables_in(query, members)
    )


def _around(node: exp.Expr, query: exp.Expr) -> list[exp.Expr]:
    """Return a node's ancestors, innermost first, up to `query`, which is left out."""
    found: list[exp.Expr] = []
    while node is not query and node.parent is not None:
        node = node.parent
        found.append(node)
    return found


def _check_counts(statement: Statement, table: Recursive, members: frozenset[str]) -> None:
    """Raise SpecError for a `union all` whose recursive part does not map each row by itself."""
    query = table.query
    while isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.SetOperation):
        return
    if cut := next((query.args[each] for each in ("limit", "offset", "order") if query.args.get(each)), None):
        problem = "a recursive table has no `order by` and no `limit` of its own"
        raise SpecError(problem, span=statement.tree.place(cut), hint="write them in the query that reads it")
    if isinstance(query, exp.Union) and query.args.get("distinct"):
        _check_growth(statement, query, members)
        return
    hint = "write `union`, with which each row counts once"
    if not isinstance(query, exp.Union):
        raise SpecError(
            "`with recursive` does not support `intersect` and `except`",
            span=statement.tree.place(table.place),
            hint=hint,
        )
    parts: list[exp.Expr] = []
    left: list[exp.Expr] = [query]
    while left:
        each = left.pop()
        if isinstance(each, exp.Union) and not each.args.get("distinct"):
            left += [each.expression, each.this]
        else:
            parts.append(each)
    for part in parts:
        inner = part
        while isinstance(inner, exp.Subquery):
            inner = inner.this
        found = tables_in(inner, members)
        if found and not _is_linear(inner, found, table.name):
            problem = "with `union all`, a recursive part is a plain `select` that names the table itself once, in its own `from`"
            raise SpecError(problem, span=statement.tree.place(found[0]), hint=hint)


def _check_growth(statement: Statement, query: exp.Union, members: frozenset[str]) -> None:
    """Raise SpecError for a `union` with a part in which more rows of the tables may lead to fewer rows.

    Note a part whose rows are others in a database that shows it only the rows of the last round.
    """
    found = tables_in(query, members)
    selects = Counter(id(table.parent_select) for table in found)
    for table in found:
        inner: exp.Expr = table
        if any(isinstance(around, exp.Select) and around.args.get("group") for around in _around(table, query)):
            statement.note(table, ALL_ROUNDS.format("groups here have"))
        elif selects[id(table.parent_select)] > 1:
            statement.note(table, ALL_ROUNDS.format("each side of a join here has"))
        for around in _around(table, query):
            if _may_shrink(around, inner):
                hint = "aggregate around the union, as in `select a, min(b) from (... union all ...) group by a`, or in the query that reads the table"
                problem = "with `union`, a recursive part has no windows, limits, outer joins, negations or aggregates without groups over the table itself"
                raise SpecError(problem, span=statement.tree.place(table), hint=hint)
            inner = around


def _may_shrink(query: exp.Expr, inner: exp.Expr) -> bool:
    """Return whether more rows of a part of a query may lead to fewer rows of the query."""
    if isinstance(query, exp.Select):
        if any(query.args.get(clause) for clause in ("limit", "offset", "qualify")):
            return True
        distinct = query.args.get("distinct")
        written = [*query.expressions, *window_clauses(query)]
        joins = query.args.get("joins") or ()
        outer = any(join.args.get("side") or join.args.get("kind") == "ANTI" for join in joins)
        in_from = isinstance(inner, exp.From | exp.Join)
        apart = in_from and (outer or (distinct is not None and distinct.args.get("on") is not None))
        # Groups are allowed: the least value of each, for example, becomes only less.
        whole = not query.args.get("group") and find_aggregates(query.expressions)
        return apart or bool(whole or find_windows(written))
    if isinstance(query, exp.SetOperation) and query.args.get("limit"):
        return True
    if isinstance(query, exp.Except):
        return query.expression is inner
    return isinstance(query, exp.Not | exp.All | exp.Case)


def _is_linear(query: exp.Expr, found: Sequence[exp.Table], name: str) -> bool:
    """Return whether a query maps each row of a table by itself, so that its result for a sum of rows is the sum of its results."""
    if not isinstance(query, exp.Select) or len(found) != 1 or table_name(found[0]).lower() != name.lower():
        return False
    if any(query.args.get(clause) for clause in ("group", "having", "distinct", "limit", "offset")):
        return False
    if find_aggregates(query.expressions) or find_windows([*query.expressions, *window_clauses(query)]):
        return False
    joins = query.args.get("joins") or ()
    if any(join.args.get("side") or join.args.get("kind") in ("SEMI", "ANTI") for join in joins):
        return False
    return found[0].parent_select is query and isinstance(found[0].parent, exp.From | exp.Join)


LEFT, RIGHT = "#left", "#right"


def set_operation(statement: Statement, node: exp.SetOperation, environment: Environment) -> QueryResult:
    """Return the result of a set operation, with the left side's column names."""
    union = ("by_name",) if isinstance(node, exp.Union) else ()
    left, right, distinct = statement.tree.take(
        node, "this", "expression", "distinct", "with_", "order", "limit", "offset", *union
    )[:3]
    if isinstance(node, exp.Union) and statement.leaving:
        sides = [side for side in (left, right) if not names_some(side, statement.leaving)]
        if len(sides) == 1:
            return statement.query(sides[0], environment)
    both = [statement.query(left, environment), statement.query(right, environment)]
    if node.args.get("by_name"):
        for side in both:
            names = [name.lower() for name, _ in side.columns]
            if len(set(names)) < len(names):
                raise SpecError("a side of `by name` has two columns of one name", span=statement.tree.place(node))
        both = [padded(both[0], both[1]), padded(both[1], both[0])]
        order = {name.lower(): at for at, (name, _) in enumerate(both[0].columns)}
        both[1] = replace(both[1], columns=tuple(sorted(both[1].columns, key=lambda each: order[each[0].lower()])))
    one, other = aligned(statement, node, both, environment)
    return combined(node, one, other, distinct=bool(distinct))


def padded(side: QueryResult, other: QueryResult) -> QueryResult:
    """Return a side of a `union by name` with the columns that only the other side has added, null in all rows."""
    own = {name.lower() for name, _ in side.columns}
    missing = {name: each for name, each in other.columns if name.lower() not in own}
    names = dict(zip(missing, renamed(missing, side.node.schema).values(), strict=True))
    nulls = {names[name]: Literal(None, other.node.schema[each].or_null()) for name, each in missing.items()}
    return replace(side, node=nodes.extended(side.node, nulls), columns=(*side.columns, *names.items()))


def combined(node: exp.SetOperation, one: QueryResult, other: QueryResult, *, distinct: bool) -> QueryResult:
    """Return the set operation on two results with equal columns."""
    if isinstance(node, exp.Union):
        both = nodes.concat([one.node, other.node])
        return replace(one, node=groupings.distinct(both) if distinct else both)
    names = list(one.node.schema)
    left_, right_ = renamed([LEFT, RIGHT], names).values()
    sides = [
        nodes.extended(side.node, {left_: Literal(int(at == 0), INT64), right_: Literal(int(at == 1), INT64)})
        for at, side in enumerate((one, other))
    ]
    both = nodes.concat(sides)
    calls = [AggregateCall("sum", (column(both, name),), False, (), INT64) for name in (left_, right_)]
    counted = nodes.reduced(both, nodes.every(both, names), calls, [left_, right_])
    left, right, none = column(counted, left_), column(counted, right_), Literal(0, INT64)
    if distinct:
        is_there = call(">" if isinstance(node, exp.Intersect) else "<=", right, none)
        found = nodes.filtered(counted, call("and", call(">", left, none), is_there))
    else:
        wanted = (
            call("least", left, right)
            if isinstance(node, exp.Intersect)
            else call("greatest", call("-", left, right), none)
        )
        kept = nodes.filtered(counted, call(">", wanted, none))
        found = logical.Apply((kept,), kept.schema, ExplodeStep(wanted))
    return replace(one, node=nodes.projected(found, names))


def aligned(
    statement: Statement, node: exp.Expr, sides: list[QueryResult], environment: Environment
) -> list[QueryResult]:
    """Return results with the same columns, in the same order, of common types, and with all outer columns as keys."""
    counts = [len(side.columns) for side in sides]
    if len(set(counts)) > 1:
        problem = f"the sides have {counts[0]} and {counts[1]} columns"
        raise SpecError(problem, span=statement.tree.place(node), hint="list as many columns on both sides")
    keys = tuple(environment.outer.node.schema) if environment.outer is not None else ()
    names: list[str] = []
    for name, _ in sides[0].columns:  # a list may have the same name twice
        names.append(fresh(name, {*keys, *names}))
    expressions: list[list[Expression]] = [[column(side.node, each) for _, each in side.columns] for side in sides]
    for at, (name, _) in enumerate(sides[0].columns):
        common = expressions[0][at].type
        for other in expressions[1:]:
            found = meet(common, other[at].type)
            if found is None:
                problem = (
                    f"column `{name}` is {common.required()} on one side and {other[at].type.required()} on the other"
                )
                raise SpecError(problem, span=statement.tree.place(node), hint="cast one of them")
            common = found
        for each in expressions:
            each[at] = converted(each[at], common)
    made = []
    for side, own in zip(sides, expressions, strict=True):
        whole, renames = spread(side, environment)
        bound = {old: Column(new, whole.schema[new]) for old, new in renames.items()}
        columns: dict[str, Expression] = {key: column(whole, key) for key in keys}
        columns |= {name: each.substitute(bound) for name, each in zip(names, own, strict=True)}
        made.append(nodes.mapped(whole, columns))
    columns_ = tuple((name, given) for (name, _), given in zip(sides[0].columns, names, strict=True))
    return [QueryResult(each, keys, columns_) for each in made]


def converted(expression: Expression, kind: object) -> Expression:
    """Return an expression converted to the common type `kind`, which holds all its values."""
    assert isinstance(kind, Type)
    if expression.type.kind == "null":
        return Literal(None, kind.or_null())
    try:
        return convert(expression, kind)
    except Mismatch as mismatch:  # pragma: no cover - `meet` found the type
        raise SpecError(mismatch.problem, hint=mismatch.hint) from None


def spread(side: QueryResult, environment: Environment) -> tuple[Node, dict[str, str]]:
    """Return a result's node with all outer columns, one copy for each outer row, and the new names of its columns."""
    if environment.outer is None or len(side.keys) == len(environment.outer.node.schema):
        return side.node, {name: name for name in side.node.schema}
    around = environment.outer.node
    result, keys = side.apart(around.schema)
    renames = dict(zip(side.node.schema, result.node.schema, strict=True))
    return nodes.joined(around, result.node, nodes.same(keys, around, result.node)), renames

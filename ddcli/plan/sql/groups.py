"""The list of a `select` with `*`, `group by`, aggregates, grouping sets."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, suggestion
from ddcli.expressions.aggregates import AggregateCall
from ddcli.expressions.coerce import INT64
from ddcli.expressions.dialect import WRITTEN
from ddcli.expressions.tree import Column, Expression, Literal
from ddcli.expressions.types import renamed
from ddcli.plan import logical
from ddcli.plan.conditions import call
from ddcli.plan.sql import nodes
from ddcli.plan.sql.block import Block
from ddcli.plan.sql.calls import find_aggregates, find_groupings
from ddcli.plan.sql.context import Groups, Name, Names
from ddcli.plan.sql.nodes import column
from ddcli.plan.sql.reader import AggregateCalls, RowExpressions, contains_query

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from ddcli.errors import Span
    from ddcli.plan.node import Node
    from ddcli.plan.sql.statement import Statement

    Call = tuple[AggregateCall, Expression | None]

    """An aggregate, and the condition of the rows that it is of, None where it is of all."""


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of a `select` list: its name, and either its expression as written or a column that `*` stands for."""

    name: str
    written: exp.Expr | None
    column: str = ""


def listed_entries(statement: Statement, scope: Names, node: exp.Select) -> list[Entry]:
    """Return the entries of a `select` list, with `*` expanded."""
    found: list[Entry] = []
    for each in node.expressions:
        if isinstance(each, exp.Star):
            found += _star(statement, scope, each, None)
        elif isinstance(each, exp.Column) and isinstance(each.this, exp.Star):
            star, table = statement.tree.take(each, "this", "table")
            found += _star(statement, scope, star, statement.identifier(table))
        elif isinstance(each, exp.Alias):
            inner, alias = statement.tree.take(each, "this", "alias")
            found.append(Entry(statement.column_name(alias), inner))
        elif isinstance(each, exp.Subquery) and each.args.get("alias") is not None:
            alias, columns = statement.tree.take(each.args["alias"], "this", "columns")
            if columns:
                raise SpecError("a value has no list of columns", span=statement.tree.place(each))
            found.append(Entry(statement.column_name(alias), each))
        elif isinstance(each, exp.Column):
            found.append(Entry(each.name, each))
        else:
            found.append(Entry(" ".join(str(each.meta[WRITTEN]).split()), each))
    if not found:
        raise SpecError("a `select` needs a list", span=statement.tree.place(node))
    return found


def _star(statement: Statement, scope: Names, star: exp.Star, table: str | None) -> list[Entry]:
    """Return the columns that `*` stands for, without those that it excludes, and with its replacements."""
    excluded, replaced = statement.tree.take(star, "except_", "replace")
    names = scope.of(table)
    span = statement.tree.place(star)
    if not names:
        raise SpecError(f"no table is named `{table}`" if table else "there is no `from` for `*`", span=span)
    leaving = [
        statement.identifier(each)
        for each in (excluded if isinstance(excluded, list) else [excluded] if excluded else [])
    ]
    instead: dict[str, exp.Expr] = {}
    for each in replaced or ():
        written, alias = statement.tree.take(each, "this", "alias")
        instead[statement.identifier(alias).lower()] = written
    known = {each.name.lower() for each in names}
    for name in [*leaving, *instead]:
        if name.lower() not in known:
            hint = suggestion(name.lower(), known, f"it has {', '.join(each.name for each in names)}", mark="`")
            raise SpecError(f"`*` has no column `{name}`", span=span, hint=hint)
    gone = {name.lower() for name in leaving}
    return [
        Entry(each.name, instead.get(each.name.lower()), each.column) for each in names if each.name.lower() not in gone
    ]


BITS = 63
"""The most expressions of a `grouping(...)`, whose value has a bit for each."""
MOST = 64
"""The most grouping sets that a `group by` may expand to."""
TOO_MANY = f"more than {MOST} sets of columns are grouped by"


def is_grouped(node: exp.Select, written: list[exp.Expr]) -> bool:
    """Return whether a `select` is over groups."""
    if node.args.get("group") is not None or node.args.get("having") is not None:
        return True
    return bool(find_aggregates([*written, *_clauses(node, "order", "qualify"), *(node.args.get("windows") or ())]))


def _clauses(node: exp.Select, *names: str) -> list[exp.Expr]:
    """Return the named clauses that a `select` has."""
    return [node.args[name] for name in names if node.args.get(name) is not None]


def grouped(
    statement: Statement,
    block: Block,
    node: exp.Select,
    entries: Sequence[Entry],
    owned: Sequence[exp.Expr],
    *,
    deferred: bool,
) -> tuple[Block, bool]:
    """Return the block of the groups, and whether each outer row has exactly one; `owned` are aggregates in subqueries over this query's rows.

    With `deferred`, a group of no rows is missing, and an aggregate that is null there is read as its value over no rows.
    """
    keys, sets = _sets(statement, block, node, entries)
    written = [entry.written for entry in entries if entry.written is not None]
    written += [*_clauses(node, "having", "order", "qualify"), *(node.args.get("windows") or ())]
    marks = {id(each): _grouping(statement, block, each, entries, keys) for each in find_groupings(written)}
    reader = AggregateCalls(statement.tree, block)
    calls: dict[str, Call] = {}
    found: dict[int, str] = {}
    places: dict[int, Span] = {}
    for aggregate in [*find_aggregates(written), *owned]:
        call_, condition = reader.called(aggregate)
        text = call_.text() + (f" filter {condition.text()}" if condition is not None else "")
        calls.setdefault(text, (call_, condition))
        found[id(aggregate)] = text
        places[id(aggregate)] = statement.tree.place(aggregate)
    around = tuple(block.environment.outer.node.schema) if block.environment.outer is not None else ()
    plain = {text: key.name for text, key in keys.items() if isinstance(key, Column)}
    others = [text for text in keys if text not in plain]
    fresh_names = renamed([f"#key{at}" for at in range(len(others))], block.schema)
    names = plain | dict(zip(others, fresh_names.values(), strict=True))
    results = list(renamed([f"#value{at}" for at in range(len(calls))], [*block.schema, *names.values()]).values())
    named = dict(zip(calls, results, strict=True))
    taken = [*block.schema, *names.values(), *results]
    listed = dict(zip(marks, renamed([f"#grouping{at}" for at in range(len(marks))], taken).values(), strict=True))
    whole = len(sets) == 1 and not sets[0]
    parts = []
    for members in sets:
        by: dict[str, Expression] = {key: column(block.node, key) for key in around}
        by |= {names[text]: keys[text] for text in members}
        part = _reduced(block.node, by, dict(zip(results, calls.values(), strict=True)))
        if not members and not deferred:
            counts = {name for name, call_ in zip(results, calls.values(), strict=True) if call_[0].function == "count"}
            part = _with_nothing(statement, node, block, part, around, counts)
        spread = _spread(part, around, names, keys)
        ungrouped = {name: Literal(_mask(marks[number], members), INT64) for number, name in listed.items()}
        parts.append(nodes.extended(spread, ungrouped))
    joined = nodes.concat(parts) if not deferred else parts[0]
    scope = Names([each for each in block.scope.names if each.column in joined.schema], block.scope.outer)
    scope.hint = "columns that are grouped by, and aggregates"
    over: dict[str, Expression] = {text: column(joined, name) for text, name in names.items()}
    values = {
        number: _or_nothing(
            calls[text][0],
            Column(named[text], joined.schema[named[text]].or_null(deferred), span=places[number]),
            deferred=deferred,
        )
        for number, text in found.items()
    }
    for aggregate in owned:
        value = values[id(aggregate)]
        assert isinstance(value, Column)
        statement.outer.values[id(aggregate)] = value
        scope.names.append(Name(None, f"\0{value.name}", value.name, bare=False))
    values |= {number: column(joined, name) for number, name in listed.items()}
    rows = RowExpressions(statement.tree, block)
    aliases = {each.name.lower(): each.written for each in entries if each.written is not None}
    subqueries = {text: key.text() for text, key in block.keys.items()}
    groups = Groups(rows, block.scope, block.schema, over, values, aliases, subqueries)
    statement.forget_columns()  # over groups a query may read other columns
    return Block(statement, block.environment, scope, joined, groups), whole


def _grouping(
    statement: Statement, block: Block, node: exp.Expr, entries: Sequence[Entry], keys: Mapping[str, Expression]
) -> list[str]:
    """Return the texts of the arguments of a `grouping(...)`."""
    _, written = statement.tree.take(node, "this", "expressions")
    found = [_key(statement, block, each, entries).text() for each in written or ()]
    if not found or any(text not in keys for text in found):
        hint = "grouping(a) is 1 in rows of a `rollup`, `cube` or `grouping sets` where `a` is not grouped by, else 0"
        raise SpecError("grouping takes expressions that are grouped by", span=statement.tree.place(node), hint=hint)
    if len(found) > BITS:
        raise SpecError(f"grouping takes at most {BITS} expressions", span=statement.tree.place(node))
    return found


def _mask(texts: Sequence[str], members: Sequence[str]) -> int:
    """Return the bits of a `grouping(...)`, the first expression's the highest: 1 if an expression is not in the grouping set."""
    return sum((text not in members) << at for at, text in enumerate(reversed(texts)))


def _or_nothing(call_: AggregateCall, found: Expression, *, deferred: bool) -> Expression:
    """Return an aggregate's value; with `deferred` it may be missing, and a count is then 0."""
    if deferred and not call_.type.nullable and call_.function == "count":
        return call("coalesce", found, Literal(0, INT64))
    return found


def _reduced(node: Node, by: Mapping[str, Expression], calls: Mapping[str, Call]) -> Node:
    """Return one record for each group: its key, and the values of aggregates by name, null for an aggregate whose filter keeps none of the rows."""
    apart = {condition.text(): condition for _, condition in calls.values() if condition is not None}
    own = {name: each for name, (each, condition) in calls.items() if condition is None}
    if not own and (apart or not by):
        (rows,) = renamed(["#rows"], [*by, *calls]).values()
        own = {rows: AggregateCall("count", (), False, (), INT64)}
    whole = nodes.reduced(node, by, list(own.values()), list(own))
    if not apart:
        return whole
    for text, kept in apart.items():
        some = {
            name: each
            for name, (each, condition) in calls.items()
            if condition is not None and condition.text() == text
        }
        keys = renamed(by, [*whole.schema, *calls])
        found = nodes.reduced(
            nodes.filtered(node, kept), {keys[name]: each for name, each in by.items()}, list(some.values()), list(some)
        )
        pairs = [nodes.Pair(column(whole, name), column(found, keys[name]), null_safe=True) for name in by]
        whole = nodes.joined(whole, found, pairs, "left")
    return nodes.projected(whole, [*by, *calls])


def _with_nothing(
    statement: Statement,
    node: exp.Select,
    block: Block,
    part: Node,
    around: tuple[str, ...],
    counts: Container[str],
) -> Node:
    """Return the groups of `part` with a group for each outer row that has no rows: counts are 0 there, other aggregates null.

    An empty group is added for each outer row and subtracted again for those that have a group: a difference suffices, since none has two.
    """
    every = statement.one(block.environment, statement.tree.place(node))
    nothing: dict[str, Expression] = {
        name: Literal(0, INT64) if name in counts else Literal(None, kind.or_null())
        for name, kind in part.schema.items()
        if name not in around
    }
    empty = nodes.mapped(every, nodes.every(every, around) | nothing)
    there = nodes.mapped(
        part, {key: Column(key, kind) for key, kind in empty.schema.items() if key in around} | nothing
    )
    return nodes.concat([part, empty, logical.negated(there)])


def _spread(part: Node, around: tuple[str, ...], names: dict[str, str], keys: dict[str, Expression]) -> Node:
    """Return the groups of one grouping set with the columns of all sets, null for those that are not in it."""
    columns: dict[str, Expression] = {key: column(part, key) for key in around}
    for text, name in names.items():
        columns[name] = column(part, name) if name in part.schema else Literal(None, keys[text].type.or_null())
    columns |= {name: column(part, name) for name in part.schema if name not in columns}
    return nodes.mapped(part, columns)


def check_groups(statement: Statement, key: Expression, written: exp.Expr) -> None:
    """Refuse a key that has no values to group by: an interval of months, or nothing but null."""
    if key.type.kind in ("null", "months"):
        raise SpecError(f"can't group by {key.type.required()}", span=statement.tree.place(written))


def _sets(
    statement: Statement, block: Block, node: exp.Select, entries: Sequence[Entry]
) -> tuple[dict[str, Expression], list[list[str]]]:
    """Return the grouping expressions by their text, and the grouping sets, as lists of texts."""
    keys: dict[str, Expression] = {}
    group = node.args.get("group")
    if group is None:
        return keys, [[]]

    def key(written: exp.Expr) -> list[str]:
        if isinstance(written, exp.Paren):
            return key(statement.tree.take(written, "this")[0])
        if isinstance(written, exp.Tuple):
            return [text for part in statement.tree.take(written, "expressions")[0] or () for text in key(part)]
        found = _key(statement, block, written, entries)
        check_groups(statement, found, written)
        keys.setdefault(found.text(), found)
        return [found.text()]

    def sets(written: exp.Expr) -> list[list[str]]:
        if not isinstance(written, exp.GroupingSets | exp.Rollup | exp.Cube):
            return [key(written)]
        (inner,) = statement.tree.take(written, "expressions")
        if isinstance(written, exp.GroupingSets):
            return [each for part in inner for each in sets(part)]
        found = _expanded([key(part) for part in inner], rollup=isinstance(written, exp.Rollup))
        if found is None:
            raise SpecError(TOO_MANY, span=statement.tree.place(written))
        return found

    written, everything = statement.tree.take(group, "expressions", "all")
    if everything:
        written = _ungrouped(block, entries, keys)
    found = [list(keys)]
    for each in written or ():
        found = [[*one, *other] for one in found for other in sets(each)]
        if len(found) > MOST:
            raise SpecError(TOO_MANY, span=statement.tree.place(group))
    _refuse_outer(statement, block, group, keys if len(found) > 1 else {})
    return keys, [list(dict.fromkeys(each)) for each in found]


def _ungrouped(block: Block, entries: Sequence[Entry], keys: dict[str, Expression]) -> list[exp.Expr]:
    """Return the entries of a list without aggregates, of `group by all`; columns that `*` stands for become keys."""
    listed = [each for each in entries if each.written is None or not find_aggregates([each.written])]
    for each in listed:
        if each.written is None:
            plain = column(block.node, each.column)
            keys.setdefault(plain.text(), plain)
    return [each.written for each in listed if each.written is not None]


def _expanded(parts: list[list[str]], *, rollup: bool) -> list[list[str]] | None:
    """Return the grouping sets of a `rollup`, the beginnings of its parts, or of a `cube`, all their combinations; None if these are too many."""
    if rollup:
        return [[text for part in parts[:end] for text in part] for end in range(len(parts), -1, -1)]
    if 2 ** len(parts) > MOST:
        return None
    kept = product((True, False), repeat=len(parts))
    return [[text for part, is_in in zip(parts, each, strict=True) if is_in for text in part] for each in kept]


def _refuse_outer(statement: Statement, block: Block, group: exp.Expr, keys: Mapping[str, Expression]) -> None:
    """Raise SpecError for a grouping expression of several sets that reads the query around: it would be null in some of them, and its value in others."""
    around = block.environment.outer.node.schema if block.environment.outer is not None else {}
    read = {name for each in keys.values() for name in each.columns() if name in around}
    if not all(map(block.scope.owns, read)):
        hint = "it is the same in all rows: group by the others, and compare it in `where`"
        problem = "grouping sets can't have a column of the query around this one"
        raise SpecError(problem, span=statement.tree.place(group), hint=hint)


def _key(statement: Statement, block: Block, written: exp.Expr, entries: Sequence[Entry]) -> Expression:
    """Return a grouping expression. A subquery is computed once, however often it is written."""
    meant = _meant(statement, block, written, entries)
    if isinstance(meant, Column):
        return meant
    if found := find_aggregates([meant]):
        at = written if meant is not written else found[0]
        raise SpecError("an aggregate can't be grouped by", span=statement.tree.place(at))
    if not contains_query(meant):
        return block.reader.expression(meant)
    text = meant.sql()
    known = block.keys.get(text)
    if known is None:
        known = block.keys[text] = block.reader.expression(meant)
    statement.tree.take_all(meant)
    return known


def _meant(statement: Statement, block: Block, written: exp.Expr, entries: Sequence[Entry]) -> exp.Expr | Column:
    """Return the meaning of an entry of a `group by`: an entry of the list by its position, an expression over the rows, or an entry by its name."""
    position = position_of(statement, written, len(entries))
    if position is not None:
        entry = entries[position]
        return column(block.node, entry.column) if entry.written is None else entry.written
    if isinstance(written, exp.Column) and not written.args.get("table"):
        same = [
            each.written for each in entries if each.written is not None and each.name.lower() == written.name.lower()
        ]
        try:
            block.reader.expression(written)
        except SpecError:
            if not same:
                raise
            statement.identifier(written)
            return same[0]
    return written


def position_of(statement: Statement, node: exp.Expr, count: int) -> int | None:
    """Return the index of the column that a whole number in `group by` and `order by` means; None for another node."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    text, _ = statement.tree.take(node, "this", "is_string")
    if not str(text).isdigit() or not 1 <= int(str(text)) <= count:
        hint = f"the first is 1, the last {count}"
        raise SpecError(f"there is no column {text}", span=statement.tree.place(node), hint=hint)
    return int(str(text)) - 1

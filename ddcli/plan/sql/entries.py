"""The list of a `select`: its entries with their names, and the expansion of `*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError, suggestion
from ddcli.expressions.dialect import WRITTEN

if TYPE_CHECKING:
    from ddcli.plan.sql.context import QueryLowering
    from ddcli.plan.sql.names import Names


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of a `select` list: its name, and either its expression as written or a column that `*` stands for."""

    name: str
    written: exp.Expr | None
    column: str = ""


def listed_entries(statement: QueryLowering, scope: Names, node: exp.Select) -> list[Entry]:
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


def _star(statement: QueryLowering, scope: Names, star: exp.Star, table: str | None) -> list[Entry]:
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

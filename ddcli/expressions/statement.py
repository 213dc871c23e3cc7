"""SQL statements as syntax: their tree, and the names of their tables, before these are bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import Span, SpecError, Text, UsageError, did_you_mean
from ddcli.expressions.sql import read
from ddcli.expressions.syntax_tree import Tree, pivoted

if TYPE_CHECKING:
    from collections.abc import Collection


def query_text(query: str) -> Text:
    """Return the text of a query that is not in a file."""
    lines = query.split("\n")
    first, *more = (Span("query", at, 1, max(1, len(line)), line) for at, line in enumerate(lines, start=1))
    return Text(query, first, 0, tuple(more))


def check_tables(text: Text, known: Collection[str], listed: str) -> None:
    """Raise UsageError for a query that names an unknown table; `listed` introduces the known ones in the hint."""
    for table in tables_of(read_statement(text)):
        if table.value not in known:
            near = did_you_mean(table.value, known)
            names = f"{listed}: {', '.join(known) or 'none'}"
            hint = f"did you mean `{near}`? ({names})" if near else names
            raise UsageError(f"no collection is named `{table.value}`", span=table.span, hint=hint)


def read_statement(text: Text) -> Tree:
    """Return the syntax tree of a query; raises SpecError at the place of a mistake.

    The latest trees are cached: a file's reader needs the tables that they name, and the plan needs the rest.
    """
    known = _KNOWN.get(text.value)
    if known is not None:
        return known.at(text)
    tree = read(text, "a query")
    if isinstance(tree.root, exp.Pivot):
        raise pivoted(tree.place(tree.root))
    if not isinstance(tree.root, exp.Query | exp.Values):
        hint = "a query begins with `select`, `with`, `values` or `from`"
        raise SpecError("this is not a query", span=tree.place(tree.root), hint=hint)
    while len(_KNOWN) >= REMEMBERED:
        _KNOWN.pop(next(iter(_KNOWN)), None)
    _KNOWN[text.value] = tree
    return tree


REMEMBERED = 32
_KNOWN: dict[str, Tree] = {}


def tables_of(tree: Tree) -> tuple[Text, ...]:
    """Return the inputs and collections that a statement names, each with the place of its first mention."""
    found: dict[str, Text] = {}
    for node in tree.nodes:
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            name = table_name(node)
            if node.args.get("db") or not is_own(node, name):
                found.setdefault(name, Text(name, tree.place(node.this)))
    return tuple(found.values())


def table_name(node: exp.Table) -> str:
    """Return the name of a table as it is written: a loop's result is `loop.result`."""
    return ".".join(part.name for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part)


def tables_in(query: exp.Expr, names: Collection[str]) -> list[exp.Table]:
    """Return the nodes of a query that name a table of `names`, in lower case."""
    tables = [each for each in query.find_all(exp.Table) if isinstance(each.this, exp.Identifier)]
    return [each for each in tables if table_name(each).lower() in names]


def names_some(query: exp.Expr, names: Collection[str]) -> bool:
    """Return whether a query names a table of `names`."""
    return bool(tables_in(query, names))


def is_own(node: exp.Expr, name: str) -> bool:
    """Return whether a name means a table that a `with` around the node defines."""
    inside: exp.Expr = node
    around = node.parent
    while around is not None:
        if isinstance(around, exp.With):
            seen = around.expressions if around.args.get("recursive") else _before(around.expressions, inside)
        else:
            defined = around.args.get("with_")
            seen = [] if defined is None or defined is inside else defined.expressions
        if any(each.alias.lower() == name.lower() for each in seen):
            return True
        inside, around = around, around.parent
    return False


def _before(each: list[exp.Expr], last: exp.Expr) -> list[exp.Expr]:
    """Return the elements of a list before one of them."""
    at = next((index for index, one in enumerate(each) if one is last), len(each))
    return each[:at]

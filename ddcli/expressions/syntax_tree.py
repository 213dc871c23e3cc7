"""A syntax tree with the places of its nodes; checks for deep nesting, ambiguous operators, and words that sqlglot drops; the tables of a statement.

The reader must take every part of the tree: a node that is not taken, or an argument of a node that the reader doesn't name, is refused.
So new syntax of sqlglot is an error here until it has a meaning.
"""

from __future__ import annotations

import re
from collections import Counter
from copy import copy
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from ddcli.errors import Span, SpecError, Text, UsageError, suggestion_and_list
from ddcli.expressions.dialect import parsed, tokenized
from ddcli.expressions.tree import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlglot.tokenizer_core import Token


SHOWN = 60
"""The number of letters of a part that a message shows."""


class Tree:
    """A syntax tree whose every part must be used."""

    def __init__(self, text: Text, root: exp.Expr):
        self.text, self.root = text, root
        self.nodes: list[exp.Expr] = list(root.walk())
        self._places = _places(text.value, self.nodes)
        self._taken: set[int] = set()

    def at(self, text: Text) -> Tree:
        """Return the tree of the same text at another place, with no part used yet."""
        found = copy(self)
        found.text, found._taken = text, set()  # noqa: SLF001 - its own class
        return found

    def place(self, node: exp.Expr) -> Span:
        """Return the span of a syntax node. Without one of its own it is the union of its parts' spans; without parts, as for `null`, its parent's."""
        within: exp.Expr | None = node
        while within is not None and id(within) not in self._places:
            within = within.parent
        found = self._places.get(id(within))
        return self.text.at(found[0], found[1] - found[0]) if found else self.text.span

    def written(self, node: exp.Expr) -> str:
        """Return a node's text, cut if it is long."""
        start, end = self._places.get(id(node), (0, len(self.text.value)))
        return self.text.value[start:end] if end - start <= SHOWN else self.text.value[start : start + SHOWN] + " ..."

    def take(self, node: exp.Expr, *names: str) -> list[Any]:
        """Return arguments of a node by name, None for one that isn't set. Raises SpecError if any other argument is set."""
        self._taken.add(id(node))
        for name, value in node.args.items():
            if name not in names and value is not None and value is not False and value != []:
                parts = value if isinstance(value, list) else [value]
                at = next((part for part in parts if isinstance(part, exp.Expr)), node)
                if name == "pivots":
                    raise pivoted(self.place(at))
                written = name.strip("_").replace("_", " ")
                hint = "the table of functions has those that are"
                raise SpecError(
                    f"`{written}` is not supported in `{self.written(node)}`", span=self.place(at), hint=hint
                )
        return [node.args.get(name) for name in names]

    def take_all(self, node: exp.Expr) -> None:
        """Mark all of a node as used: one with the same text has been read in its place."""
        self._taken.update(id(each) for each in node.walk())

    def finish(self) -> None:
        """Raise SpecError for the first node that was never taken."""
        for node in self.nodes:
            if id(node) not in self._taken:
                raise SpecError(f"`{self.written(node)}` is not supported here", span=self.place(node))


def pivoted(span: Span) -> SpecError:
    """Return the error for a `pivot` or an `unpivot`."""
    hint = "group, with a column for each value: `sum(x) filter (where kind = 'a') as a`; to unpivot, `union all` the columns"
    return SpecError("`pivot` and `unpivot` are not supported", span=span, hint=hint)


def _places(text: str, nodes: list[exp.Expr]) -> dict[int, tuple[int, int]]:
    """Return the begin and end of nodes, each spanning its parts. `nodes` has every parent before its children."""
    found: dict[int, tuple[int, int]] = {}
    for node in reversed(nodes):
        mark = node.meta if "start" in node.meta else None
        own = (mark["start"], mark["end"] + 1) if mark else None
        start, end = _hull(own, found.get(id(node))) or (-1, -1)
        if start < 0:
            continue
        if isinstance(node, exp.Anonymous | exp.Paren | exp.Extract | exp.Filter):
            closing = CLOSING.match(text, end)
            end = closing.end() if closing else end
        found[id(node)] = (start, end)
        if node.parent is not None:
            found[id(node.parent)] = _hull((start, end), found.get(id(node.parent))) or (start, end)
    return found


CLOSING = re.compile(r"\s*\)")


def _hull(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


MAX_NESTING = 100
"""The depth to which parentheses, calls, lists, `case` and prefix operators may be nested."""
OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
CLOSED = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
PREFIX = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.INTERVAL}


def check_nesting(text: Text, tokens: list[Token]) -> None:
    """Raise SpecError for text that is nested too deeply for the parser's recursion, at the place where it gets too deep."""
    levels: list[int] = []
    depth = prefixes = 0
    for token in tokens:
        kind = token.token_type
        prefixes += kind in PREFIX
        if depth + prefixes + (kind in OPENING) > MAX_NESTING:
            raise SpecError(
                f"this is nested more than {MAX_NESTING} deep",
                span=text.at(token.start, token.end + 1 - token.start),
                hint="compute a part of it in a `map` before",
            )
        if kind in OPENING:
            levels.append(prefixes + 1)
            depth += prefixes + 1
        elif kind in CLOSED and levels:
            depth -= levels.pop()
        if kind not in PREFIX:
            prefixes = 0


def check_depth(tree: Tree) -> None:
    """Raise SpecError for a tree that is too deep for recursion: operators in a row nest without parentheses."""
    depths: dict[int, int] = {}
    for node in tree.nodes:  # parents come first
        above = depths.get(id(node.parent), 0)
        connected = isinstance(node, exp.And | exp.Or) and type(node) is type(node.parent)
        depths[id(node)] = above if connected else above + 1
        if depths[id(node)] > 3 * MAX_DEPTH:
            raise too_deep(tree.place(node))


def too_deep(span: Span | None) -> SpecError:
    """Return the error for operators that are nested too deeply."""
    hint = "compute a part of it in a `map` before; any number of conditions may be connected by `and` or `or`"
    return SpecError(f"operators are nested more than {MAX_DEPTH} deep inside each other", span=span, hint=hint)


WORDS = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING}
"""The tokens that carry a name or a constant."""
GRAMMAR = {
    "by",
    "current",
    "exclude",
    "first",
    "following",
    "group",
    "groups",
    "if",
    "ignore",
    "lambda",
    "last",
    "name",
    "no",
    "nulls",
    "only",
}
GRAMMAR |= {
    "ordinality",
    "others",
    "percent",
    "preceding",
    "replace",
    "respect",
    "symmetric",
    "ties",
    "unbounded",
    "within",
}
GRAMMAR |= {"at", "time", "zone", "asymmetric", "to", "materialized", "view", "both", "leading", "trailing"}
"""The names that sqlglot reads as parts of other syntax."""


def check_pairs(tree: Tree, tokens: Sequence[Token]) -> None:
    """Raise SpecError for words and signs that sqlglot drops before or behind another: nothing between commas, a word that makes a map of a struct, one directly behind a number, as in `1_000`."""
    for first, behind in pairwise(tokens):
        kinds = (first.token_type, behind.token_type)
        span = tree.text.at(behind.start, behind.end + 1 - behind.start)
        if kinds == (TokenType.COMMA, TokenType.COMMA):
            raise SpecError("a value is missing between these commas", span=span)
        if kinds[0] == TokenType.R_PAREN and behind.text.lower() == "export_state":
            raise SpecError("`export_state` is not supported", span=span, hint="an alias of this name needs `as`")
        if first.text.lower() == "map" and kinds[1] == TokenType.L_BRACE:
            hint = "a struct is {'a': 1}, and a list of pairs [{'key': 1, 'value': 'x'}]"
            raise SpecError("maps are not supported", span=tree.text.at(first.start, len(first.text)), hint=hint)
        if kinds == (TokenType.L_BRACE, TokenType.NUMBER):
            raise SpecError("a field is written with its name", span=span, hint="{'a': 1, 'b': 'x'}")
        if kinds == (TokenType.NUMBER, TokenType.VAR) and behind.start == first.end + 1:
            raise SpecError(f"`{first.text}{behind.text}` is not a number", span=span, hint="write its digits alone")


def check_words(tree: Tree, tokens: Sequence[Token]) -> None:
    """Raise SpecError for a name or a constant that no node has, since sqlglot has dropped it."""
    placed = set[int]()
    loose = Counter[str]()
    for node in tree.nodes:
        if "start" in node.meta:
            placed.update(range(node.meta["start"], node.meta["end"] + 1))
        elif isinstance(
            node, exp.Identifier | exp.Literal | exp.Var | exp.Placeholder
        ):  # sqlglot made it of one with a place
            loose.update(str(node.this).lower().split())
    for token in tokens:
        if token.token_type not in WORDS or token.start in placed or token.text.lower() in GRAMMAR:
            continue
        words = Counter(token.text.lower().split())
        if words - loose:
            span = tree.text.at(token.start, token.end + 1 - token.start)
            raise SpecError(f"`{token.text}` is not supported here", span=span)
        loose -= words


COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
TESTS = (exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ)
RANGES = (exp.Between, exp.In, exp.Like, exp.ILike)


def check_comparisons(tree: Tree) -> None:
    """Raise SpecError for comparisons in a row: `a = b is null` is `(a = b) is null` in most databases, and `a = (b is null)` to sqlglot."""
    for node in tree.nodes:
        if isinstance(node, (*COMPARISONS, *TESTS[1:])):
            left, right = _bare(node.this), _bare(node.expression)
            # `a is null = b` has one reading.
            apart = not isinstance(left, (*COMPARISONS, *TESTS[1:])) and not isinstance(right, (*COMPARISONS, *TESTS))
        elif isinstance(node, RANGES):
            apart = not isinstance(_bare(node.this), TESTS)
        else:
            continue
        if not apart:
            hint = "put one of them in parentheses, or join them by `and`"
            raise SpecError("chained comparisons can be read in two ways", span=tree.place(node), hint=hint)


ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
JSON_PARTS = (exp.JSONExtract, exp.JSONExtractScalar)
BITS: dict[type[exp.Expr], int] = {
    exp.BitwiseOr: 1,
    exp.BitwiseAnd: 2,
    exp.BitwiseLeftShift: 3,
    exp.BitwiseRightShift: 3,
}
"""The strength with which operators of bits bind in Spark and MySQL; in DuckDB, Postgres and sqlglot all bind alike."""


def check_precedence(tree: Tree) -> None:
    """Raise SpecError for operators that databases group in two ways: `~a + b`, `a | b & c`, `a || b -> 'c'`."""
    for node in tree.nodes:
        if isinstance(node, ARITHMETIC):
            apart = not isinstance(_last(node.this), exp.BitwiseNot)
        elif type(node) in BITS:
            apart = BITS[type(node)] <= BITS.get(type(node.this), 3)
        elif isinstance(node, exp.DPipe):
            apart = not isinstance(_first(node.expression), JSON_PARTS)
        else:
            continue
        if not apart:
            hint = "put in parentheses what belongs together"
            raise SpecError(f"`{tree.written(node)}` can be read in two ways", span=tree.place(node), hint=hint)


def _last(node: object) -> object:
    """Return the `~` in the last position of an operand without parentheses, else its last operand."""
    while isinstance(node, (*ARITHMETIC, exp.Neg)):
        node = node.this if isinstance(node, exp.Neg) else node.expression
    return node


def _first(node: object) -> object:
    """Return the innermost first operand, or a part of JSON on the way to it: `j -> 'a'` of `(j -> 'a')::int64`."""
    while isinstance(node, exp.Cast | exp.Bracket):
        node = node.this
    return node


def _bare(node: object) -> object:
    """Return an operand without the `not` and the parentheses that sqlglot adds; written ones stay."""
    while isinstance(node, exp.Not) or (isinstance(node, exp.Paren) and "start" not in node.meta):
        node = node.this
    return node


def read(text: Text, what: str = "an expression") -> Tree:
    """Return the syntax tree of one expression, or of a statement (`what`); raises SpecError at the place of a mistake."""
    tokens = tokenized(text)
    check_nesting(text, tokens)
    tree = Tree(text, parsed(text, tokens, what))
    check_depth(tree)
    check_pairs(tree, tokens)
    check_words(tree, tokens)
    check_comparisons(tree)
    check_precedence(tree)
    return tree


def query_text(query: str) -> Text:
    """Return the text of a query that is not in a file."""
    lines = query.split("\n")
    first, *more = (Span("query", at, 1, max(1, len(line)), line) for at, line in enumerate(lines, start=1))
    return Text(query, first, 0, tuple(more))


def check_tables(text: Text, known: Collection[str], listed: str) -> None:
    """Raise UsageError for a query that names an unknown table; `listed` introduces the known ones in the hint."""
    for table in tables_of(read_statement(text)):
        if table.value not in known:
            hint = suggestion_and_list(table.value, known, f"{listed}: {', '.join(known) or 'none'}")
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

"""Text to sqlglot's syntax tree, with places. The grammar is in `dialect`.

The dialect is our own and has no functions: every call stays a plain name with arguments, so that our table alone decides
which functions exist, and no meaning of another database (argument orders, silent rewrites) slips in. The reader must take
every part of the tree: a node that is not taken, or an argument of a node that the reader doesn't name, is refused. So new syntax of
sqlglot is an error here until it has a meaning.
"""

from __future__ import annotations

import logging
import re
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ddcli.errors import SpecError
from ddcli.expressions.dialect import SqlDialect
from ddcli.expressions.tree import KEYWORDS, MAX_DEPTH, deep_calls

if TYPE_CHECKING:
    from ddcli.errors import Span, Text

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings are of what is refused here, with its place

MAX_NESTING = 100
"""The depth to which parentheses, calls, lists, `case` and prefix operators may be nested."""
SHOWN = 60
"""The number of letters of a part that a message shows."""


def read(text: Text, what: str = "an expression") -> Tree:
    """Return the syntax tree of one expression, or of a statement (`what`); raises SpecError at the place of a mistake."""
    dialect = SqlDialect()
    try:
        tokens = _signs_apart(dialect.tokenize(text.value), text.value)
        _check_nesting(text, tokens)
        with deep_calls():
            trees = dialect.parser().parse(tokens, text.value)
    except RecursionError:
        raise SpecError("this is nested too deeply", span=text.span) from None
    except ParseError as error:
        _refuse(text, error, what)
    except TokenError:
        start = _open_quote(text.value)
        hint = "text goes in single quotes, names in double quotes; a quote within is doubled"
        raise SpecError("this quote is never closed", span=text.at(start), hint=hint) from None
    found = trees[0] if trees else None
    if found is None:
        raise SpecError(f"{what} is missing", span=text.span)
    if len(trees) > 1 or isinstance(found, exp.Block):
        raise SpecError(f"`;` ends {what}, but more follows", span=text.at(text.value.find(";")))
    tree = Tree(text, found)
    _check_depth(tree)
    _check_comparisons(tree)
    _check_precedence(tree)
    return tree


class Tree:
    """A syntax tree of which every part must be used."""

    def __init__(self, text: Text, root: exp.Expr):
        self.text, self.root = text, root
        self.nodes: list[exp.Expr] = list(root.walk())
        self._places = _places(text.value, self.nodes)
        self._taken: set[int] = set()

    def at(self, text: Text) -> Tree:
        """Return the tree of the same text at another place, of which no part is used yet."""
        found = copy(self)
        found.text, found._taken = text, set()  # noqa: SLF001 - its own class
        return found

    def place(self, node: exp.Expr) -> Span:
        """Return the place of a syntax node: without its own, that of its parts together; without parts, as for `null`, that of its parent."""
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
            if name not in names and _is_set(value):
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

    def finish(self) -> None:
        """Raise SpecError for the first node that was never taken."""
        for node in self.nodes:
            if id(node) not in self._taken:
                raise SpecError(f"`{self.written(node)}` is not supported here", span=self.place(node))


def pivoted(span: Span) -> SpecError:
    """Return the error for a `pivot` or an `unpivot`."""
    hint = "group, with a column for each value: `sum(x) filter (where kind = 'a') as a`; to unpivot, `union all` the columns"
    return SpecError("`pivot` and `unpivot` are not supported", span=span, hint=hint)


def _is_set(value: object) -> bool:
    """Return whether an argument was written: sqlglot omits others, or sets them to one of these values."""
    return value is not None and value is not False and value != []


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


NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
SIGNS = {"+": TokenType.PLUS, "-": TokenType.DASH}


def _signs_apart(tokens: list[Token], text: str) -> list[Token]:
    """Return the tokens with `1e0+2e0` split into three: sqlglot reads a sign after any digit of an exponent as part of it."""
    found: list[Token] = []
    done = 0
    for token in tokens:
        if token.end < done:
            continue
        if token.start < done:
            found.append(_cut(token, TokenType.VAR, text, done, token.end + 1))
            continue
        number = NUMBER.match(text, token.start) if token.token_type == TokenType.NUMBER else None
        if number is None or number.end() > token.end or text[number.end()] not in SIGNS:
            found.append(token)
            continue
        while number is not None:
            done = number.end()
            found.append(_cut(token, TokenType.NUMBER, text, number.start(), done))
            number = NUMBER.match(text, done + 1) if text[done : done + 1] in SIGNS else None
            if number is not None:
                found.append(_cut(token, SIGNS[text[done]], text, done, done + 1))
    return found


def _cut(token: Token, kind: TokenType, text: str, start: int, end: int) -> Token:
    """Return a piece of the text, on a token's line, as a token."""
    return Token(kind, text[start:end], token.line, token.col + end - 1 - token.end, start, end - 1)


OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
CLOSED = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
PREFIX = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.INTERVAL}


def _check_nesting(text: Text, tokens: list[Token]) -> None:
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


def _check_depth(tree: Tree) -> None:
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


COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
TESTS = (exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ)
RANGES = (exp.Between, exp.In, exp.Like, exp.ILike)


def _check_comparisons(tree: Tree) -> None:
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
            raise SpecError("comparisons in a row can be read in two ways", span=tree.place(node), hint=hint)


ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
JSON_PARTS = (exp.JSONExtract, exp.JSONExtractScalar)
BITS: dict[type[exp.Expr], int] = {
    exp.BitwiseOr: 1,
    exp.BitwiseAnd: 2,
    exp.BitwiseLeftShift: 3,
    exp.BitwiseRightShift: 3,
}
"""The strength with which operators of bits bind in Spark and MySQL; in DuckDB, Postgres and sqlglot all bind alike."""


def _check_precedence(tree: Tree) -> None:
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


ELSEWHERE = {
    "&&": "write `and`",
    "&": "write `and`",
    "!": "write `not`",
    "?": "write `case when ... then ... else ... end`",
    "`": 'names go in double quotes: "name"',
}
"""The hints for signs of other languages."""


KEYWORD = 'a name that is a keyword goes in double quotes: "{}"'


def keyword_hint(token: str) -> str | None:
    """Return the hint for a word that may be meant as a name, and is a keyword."""
    return KEYWORD.format(token) if token.lower() in KEYWORDS else None


def _refuse(text: Text, error: ParseError, what: str) -> NoReturn:
    """Raise SpecError for an error of the parser, at the token at which it stopped."""
    if not error.errors:
        raise SpecError(f"{what} is missing", span=text.span)
    first = error.errors[0]
    lines = text.value.split("\n")
    line, token = int(first.get("line") or 1), first.get("highlight") or ""
    start = sum(len(each) + 1 for each in lines[: line - 1]) + int(first.get("col") or 1) - len(token)
    complaint, hint = str(first.get("description") or ""), ELSEWHERE.get(token)
    if match := re.match(r"Required (?:argument|keyword): '(\w+)' missing", complaint):
        problem = (
            f"something is missing after `{token}`" if match[1] == "expression" else f"wrong syntax near `{token}`"
        )
    elif match := re.match(r"Expect(?:ing|ed) (.+)", complaint):
        wanted, got, _ = match[1].lower().partition(" but got <token ")
        problem = f"expected {'a ' + wanted if got else f'`{wanted}`'} near `{token}`"
        hint = KEYWORD.format(token) if got else None
    else:
        shown = f"`{token}`".replace("```", "backtick")
        problem = f"unexpected {shown}" if token else "wrong syntax"
    hint = hint or keyword_hint(token)
    raise SpecError(problem, span=text.at(max(start, 0), max(len(token), 1)), hint=hint) from None


def _open_quote(text: str) -> int:
    """Return the offset of the first quote that has no end."""
    open_, start = "", 0
    for offset, character in enumerate(text):
        if open_:
            open_ = "" if character == open_ else open_
        elif character in "'\"":
            open_, start = character, offset
    return start

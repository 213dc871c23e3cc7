"""SQL as syntax: text to a tree, and the names of a statement's tables, before these are bound. The grammar is in `dialect`, the tree in `syntax_tree`.

The dialect is our own and has no functions: every call stays a plain name with arguments, so that our table alone decides
which functions exist, and no meaning of another database (argument orders, silent rewrites) slips in. The reader must take
every part of the tree: a node that is not taken, or an argument of a node that the reader doesn't name, is refused. So new syntax of
sqlglot is an error here until it has a meaning.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ddcli.errors import Span, SpecError, Text, UsageError, did_you_mean
from ddcli.expressions.dialect import SqlDialect
from ddcli.expressions.syntax_tree import (
    Tree,
    check_comparisons,
    check_depth,
    check_nesting,
    check_pairs,
    check_precedence,
    check_words,
    pivoted,
)
from ddcli.expressions.tree import KEYWORDS, deep_calls

if TYPE_CHECKING:
    from collections.abc import Collection


logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings are of what is refused here, with its place


def read(text: Text, what: str = "an expression") -> Tree:
    """Return the syntax tree of one expression, or of a statement (`what`); raises SpecError at the place of a mistake."""
    dialect = SqlDialect()
    try:
        tokens = _signs_apart(dialect.tokenize(text.value), text.value)
        check_nesting(text, tokens)
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
    check_depth(tree)
    check_pairs(tree, tokens)
    check_words(tree, tokens)
    check_comparisons(tree)
    check_precedence(tree)
    return tree


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


ELSEWHERE = {
    "&&": "write `and`",
    "&": "write `and`",
    "!": "write `not`",
    "?": "write `case when ... then ... else ... end`",
    "`": 'names go in double quotes: "name"',
}
"""The hints for signs of other languages."""


FIRST = ("select", "with", "values", "from")
"""The words with which a query begins."""
CLAUSES = ("select", "from", "where", "group", "order", "having", "limit", "join", "union")
"""The words with which a clause begins."""
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
        if text.value[: max(start, 0)].rstrip().endswith("**"):
            hint = "for `a ** b` write `power(a, b)`"
    hint = hint or (_misspelt(text.value, start) if what == "a query" else None)
    hint = hint or keyword_hint(token)
    raise SpecError(problem, span=text.at(max(start, 0), max(len(token), 1)), hint=hint) from None


def _misspelt(query: str, stop: int) -> str | None:
    """Return the hint for a keyword that is misspelt just before the place at which the parser stopped, or as the first word.

    >>> _misspelt("selct a from t", 8), _misspelt("select a form t", 14)
    ('did you mean `select` instead of `selct`?', 'did you mean `from` instead of `form`?')
    """
    before, first = re.search(r"(\w+)\s*$", query[:stop]), re.match(r"\W*(\w+)", query)
    if before and (word := before[1].lower()) in ("group", "order"):
        return f"write `{word} by`"
    for found, known in ((before, CLAUSES), (first, FIRST)):
        word = found[1].lower() if found else ""
        near = did_you_mean(word, known) if word not in known else None
        if near is not None:
            return f"did you mean `{near}` instead of `{word}`?"
    return None


def _open_quote(text: str) -> int:
    """Return the offset of the first quote that has no end."""
    open_, start = "", 0
    for offset, character in enumerate(text):
        if open_:
            open_ = "" if character == open_ else open_
        elif character in "'\"":
            open_, start = character, offset
    return start


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

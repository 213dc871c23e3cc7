"""Text to sqlglot's syntax tree, with places: the one module that knows sqlglot's parser.

The dialect is our own and knows no function: every call stays a plain name with arguments, so that our table alone decides
what exists, and no other database's meaning (argument orders, silent rewrites) slips in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import TokenType

from ddcli.errors import SpecError

if TYPE_CHECKING:
    from ddcli.errors import Span, Text


class _Parser(Parser):
    """sqlglot's parser without its functions."""

    def _called(self, start: int, name: str, *args: exp.Expr | None) -> exp.Anonymous:
        """Return a call by name, placed at its name: two tokens before its first argument."""
        found = exp.Anonymous(this=name, expressions=[arg for arg in args if arg is not None])
        found.update_positions(self._tokens[start - 2])
        return found

    def _typed_cast(self, name: str) -> exp.Expr:
        """Read `cast(x as type)`, the type as text: its names are ours (`int64`, `datetime[us, UTC]`)."""
        start, value = self._index, self._parse_disjunction()
        if not self._match(TokenType.ALIAS):
            self.raise_error("Expected AS")
        first, last, depth = self._curr, None, 0
        while self._curr and (depth or self._curr.token_type != TokenType.R_PAREN):
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            last = self._curr
            self._advance()
        if not first or not last:
            self.raise_error("Expected a type")
        assert first
        assert last
        return self._called(start, name, value, exp.Literal.string(self._find_sql(first, last)).update_positions(first))

    def _from_for(self) -> exp.Expr:
        """Read `substring(x from 2 for 3)` or its form with commas."""
        start = self._index
        args: list[exp.Expr | None] = list(self._parse_csv(self._parse_disjunction))
        if self._match(TokenType.FROM):
            args.append(self._parse_disjunction())
        if self._match(TokenType.FOR):
            args.append(self._parse_disjunction())
        return self._called(start, "substring", *args)

    def _trimmed(self) -> exp.Expr:
        """Read `trim(both 'x' from s)` or its form with commas."""
        start = self._index
        side = self._match_texts(("BOTH", "LEADING", "TRAILING")) and self._prev.text.lower()
        name = {"leading": "ltrim", "trailing": "rtrim"}.get(side or "", "trim")
        args: list[exp.Expr | None] = []
        args += [] if side and self._match(TokenType.FROM, advance=False) else self._parse_csv(self._parse_disjunction)
        if self._match(TokenType.FROM):
            args.insert(0, self._parse_disjunction())
        return self._called(start, name, *args)

    def _positioned(self) -> exp.Expr:
        """Read `position('a' in s)`."""
        start, part = self._index, self._parse_bitwise()
        if not self._match(TokenType.IN):
            self.raise_error("Expected IN")
        return self._called(start, "strpos", self._parse_bitwise(), part)

    def _extracted(self) -> exp.Expr:
        """Read `extract(year from x)`, placed at its name."""
        token = self._tokens[self._index - 2]
        return self._parse_extract().update_positions(token)

    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {
        "CAST": lambda self: self._typed_cast("cast"),
        "TRY_CAST": lambda self: self._typed_cast("try_cast"),
        "EXTRACT": lambda self: self._extracted(),
        "SUBSTRING": lambda self: self._from_for(),
        "POSITION": lambda self: self._positioned(),
        "TRIM": lambda self: self._trimmed(),
    }
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


class _Sql(Dialect):
    """Plain SQL: double quotes for names, single for text."""

    Parser = _Parser


def read(text: Text) -> exp.Expr:
    """Return the syntax tree of one expression; raises SpecError at the place of a mistake."""
    try:
        trees = _Sql().parse(text.value)
    except ParseError as error:
        _refuse(text, error)
    except TokenError:
        start = _open_quote(text.value)
        hint = "text goes in single quotes, names in double quotes; a quote within is doubled"
        raise SpecError("this quote is never closed", span=text.at(start), hint=hint) from None
    found = trees[0] if trees else None
    if found is None:
        raise SpecError("an expression is missing", span=text.span)
    if len(trees) > 1 or isinstance(found, exp.Block):
        raise SpecError("`;` ends an expression, but more follows", span=text.at(text.value.find(";")))
    return found


ELSEWHERE = {
    "&&": "write `and`",
    "&": "write `and`",
    "!": "write `not`",
    "?": "write `case when ... then ... else ... end`",
}
"""What signs of other languages are here."""


def _refuse(text: Text, error: ParseError) -> NoReturn:
    """Raise a parser's complaint as ours, at the token it stopped at."""
    if not error.errors:
        raise SpecError("an expression is missing", span=text.span)
    first = error.errors[0]
    lines = text.value.split("\n")
    line, token = int(first.get("line") or 1), first.get("highlight") or ""
    start = sum(len(each) + 1 for each in lines[: line - 1]) + int(first.get("col") or 1) - len(token)
    complaint = str(first.get("description") or "")
    if match := re.match(r"Required (?:argument|keyword): '(\w+)' missing", complaint):
        problem = (
            f"something is missing after `{token}`" if match[1] == "expression" else f"wrong syntax near `{token}`"
        )
    elif match := re.match(r"Expect(?:ing|ed) (.+)", complaint):
        problem = f"expected `{match[1].lower()}` near `{token}`"
    else:
        problem = f"unexpected `{token}`" if token else "wrong syntax"
    raise SpecError(problem, span=text.at(max(start, 0), max(len(token), 1)), hint=ELSEWHERE.get(token)) from None


def _open_quote(text: str) -> int:
    """Return where the quote begins that has no end."""
    open_, start = "", 0
    for offset, character in enumerate(text):
        if open_:
            open_ = "" if character == open_ else open_
        elif character in "'\"":
            open_, start = character, offset
    return start


def place(text: Text, node: exp.Expr) -> Span:
    """Return where a syntax node stands; a node without a place of its own spans its parts."""
    marks = [each.meta for each in node.walk() if each.meta and "start" in each.meta]
    if not marks:
        return text.span
    start, end = min(mark["start"] for mark in marks), max(mark["end"] for mark in marks) + 1
    if isinstance(node, exp.Anonymous | exp.Paren | exp.Extract):
        rest = text.value[end:]
        end += len(rest) - len(rest.lstrip()) + 1 if rest.lstrip().startswith(")") else 0
    return text.at(start, end - start)

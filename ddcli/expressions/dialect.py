"""The SQL that is read: sqlglot's grammar without its functions, with types and calls as text; and errors of syntax.

The dialect is our own and has no functions: every call stays a plain name with arguments, so that our table alone decides
which functions exist, and no meaning of another database (argument orders, silent rewrites) slips in.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser, binary_range_parser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from ddcli.errors import SpecError, Text, did_you_mean
from ddcli.expressions.tree import KEYWORDS, deep_calls

if TYPE_CHECKING:
    from collections.abc import Sequence


logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings are of what is refused here, with its place

WRITTEN = "written"
"""The key of an entry's text in the metadata of its syntax node."""
COMMA = ","
"""The kind of a join that is an entry behind a comma."""
WITHIN = {("mode", 0), ("percentile_cont", 1), ("percentile_disc", 1), ("quantile_cont", 1), ("quantile_disc", 1)}
"""The aggregates that have their value behind `within group`, each with its number of arguments before."""


LAMBDAS = {
    **dict.fromkeys(
        ["list_transform", "list_apply", "array_transform", "array_apply", "apply", "transform"], "list_transform"
    ),
    **dict.fromkeys(["list_filter", "array_filter", "filter"], "list_filter"),
    **dict.fromkeys(["list_reduce", "array_reduce", "reduce"], "list_reduce"),
}
"""The functions that take a lambda, by their names."""
COMPREHENSION = "comprehension"
"""The key in the metadata of a call that was written as a list comprehension."""


class _Parser(Parser):
    """sqlglot's parser without its functions."""

    def _called(self, start: int, name: str, *args: exp.Expr | None) -> exp.Anonymous:
        """Return a call by name, placed at its name: two tokens before its first argument."""
        found = exp.Anonymous(this=name, expressions=[arg for arg in args if arg is not None])
        found.update_positions(self._tokens[start - 2])
        return found

    def _parse_interval(self, *args: Any, **options: Any) -> exp.Add | exp.Interval | None:
        """Read `interval '1 day 2 hours'` as its text: sqlglot would take it apart by rules of its own."""
        first, text = self._tokens[self._index : self._index + 2] if self._next else (None, None)
        tokens = [each.token_type for each in (first, text) if each]
        if tokens != [TokenType.INTERVAL, TokenType.STRING] or not (text and re.search("(?i)[a-z:]", text.text)):
            return super()._parse_interval(*args, **options)
        self._advance()
        return self.expression(exp.Interval(this=self._parse_primary()))

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
        return self._called(start, name, value, self._type(first, last))

    def _type(self, first: Token, last: Token) -> exp.Expr:
        """Return a type as text, placed from its first token to its last."""
        found = exp.Literal.string(self._find_sql(first, last)).update_positions(first)
        found.meta["end"] = last.end
        return found

    def _from_for(self) -> exp.Expr:
        """Read `substring(x from 2 for 3)` or its form with commas."""
        start = self._index
        args: list[exp.Expr | None] = list(self._parse_csv(self._parse_disjunction))
        if self._match(TokenType.FROM):
            args.append(self._parse_disjunction())
        if self._match(TokenType.FOR):
            args += [exp.Literal.number(1)] if len(args) == 1 else []
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

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        """Read a `select` list; each entry keeps its text, all of it: its parts don't know where brackets behind them end."""
        return self._parse_csv(self._parse_entry), None

    def _parse_entry(self) -> exp.Expr | None:
        first, found = self._curr, self._parse_expression()
        if found is not None:
            found.meta[WRITTEN] = self._find_sql(first, self._prev)
        return found

    def _parse_paren(self) -> exp.Expr | None:
        """Return parentheses with their place: those that sqlglot adds have none."""
        opening, found = self._curr, super()._parse_paren()
        if isinstance(found, exp.Paren):
            found.update_positions(opening)
        return found

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        """Read a subscript behind a call as one of its value: sqlglot reads `array(a, b)[2]` as `array[2]`."""
        return super()._parse_bracket(
            exp.Paren(this=this)
            if isinstance(this, exp.Anonymous) and self._match(TokenType.L_BRACKET, advance=False)
            else this
        )

    def _parse_field(self, *args: Any, **options: Any) -> exp.Expr | None:
        """Read a call behind a point in parentheses: sqlglot would make names of the columns before it."""
        follows_point = self._prev.token_type == TokenType.DOT
        found = super()._parse_field(*args, **options)
        if not follows_point or not isinstance(found, exp.Func | exp.Window | exp.Filter):
            return found
        apart = exp.Paren(this=found)
        apart.meta[METHOD] = True
        return apart

    def _parse_column_ops(self, this: exp.Expr | None) -> exp.Expr | None:
        """Read `name.upper()` as `upper(name)`."""
        found = super()._parse_column_ops(this)
        return found if found is None else _methods(found)

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        """Read `lambda x: x + 1`, and `x -> x + 1` as an argument of a function that takes a lambda; elsewhere `->` is a part of JSON."""
        first = self._curr
        behind = [each.token_type for each in self._tokens[self._index + 1 : self._index + 3]]
        if first and first.text.lower() == "lambda" and behind[1:] in ([TokenType.COLON], [TokenType.COMMA]):
            self._advance()
            names: list[exp.Expr | None] = [*self._parse_csv(self._parse_id_var)]
            if not self._match(TokenType.COLON):
                self.raise_error("Expected :")
        elif first and first.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and self._takes_lambda(behind):
            names = [self._parse_id_var()]
            self._advance()
        elif first and first.token_type == TokenType.L_PAREN and self._takes_lambda(self._behind_parentheses()):
            names = [*self._parse_wrapped_csv(self._parse_id_var)]
            self._advance()
        else:
            return super()._parse_lambda(alias)
        return _lambda(names, self._parse_disjunction()).update_positions(first)

    def _takes_lambda(self, behind: list[TokenType]) -> bool:
        """Return whether an arrow follows, and the call around takes a lambda here: behind its list, which may be a part of JSON."""
        if behind[:1] != [TokenType.ARROW]:
            return False
        depth, at = 0, self._index
        while at and depth <= 0:
            at -= 1
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._tokens[at].token_type, 0)
        if depth <= 0 or not at or self._tokens[at - 1].text.lower() not in LAMBDAS:
            return False
        return at + 1 < self._index or (at > 1 and self._tokens[at - 2].token_type == TokenType.DOT)

    def _behind_parentheses(self) -> list[TokenType]:
        """Return what follows names in parentheses, `(x, y)`, or nothing if there are none."""
        found = [each.token_type for each in self._tokens[self._index :]]
        end = found.index(TokenType.R_PAREN) if TokenType.R_PAREN in found else 0
        return found[end + 1 : end + 2] if TokenType.COMMA in found[1:end] else []

    def _parse_bracket_key_value(self, is_map: bool = False) -> exp.Expr | None:
        """Read an element of a list, all of it before the `for` of a comprehension."""
        found = super()._parse_bracket_key_value(is_map)
        return self._comprehension(found) if self._match(TokenType.FOR) else found

    def _comprehension(self, this: exp.Expr | None) -> exp.Expr | None:
        """Read `x + 1 for x in list if x > 0` as `list_transform(list_filter(...), ...)`."""
        start, found = self._prev, self._parse_comprehension(this)
        if not isinstance(found, exp.Comprehension) or found.args.get("position"):
            return found
        values: exp.Expr = found.args["iterator"].pop()
        name: exp.Expr = found.expression
        name = name.this if isinstance(name, exp.Column) else name
        for function, body in (("list_filter", found.args.get("condition")), ("list_transform", found.this)):
            if body is not None:
                made = _lambda([name.copy()], body.pop()).update_positions(start)
                values = exp.Anonymous(this=function, expressions=[values, made]).update_positions(start)
        values.meta[COMPREHENSION] = True
        return values

    def _parse_join(self, *args: Any, **options: Any) -> exp.Join | None:
        """Read an entry of a `from` behind a comma as a join of the kind `,`: sqlglot reads it as a `join` without a condition."""
        follows_comma = self._match(TokenType.COMMA, advance=False)
        found = super()._parse_join(*args, **options)
        if found is not None and follows_comma:
            found.set("kind", COMMA)
        return found

    def _parse_dcolon(self) -> exp.Expr | None:
        """Read the type behind `::` as text: a name, and its parentheses or brackets, which are never a subscript."""
        first = last = self._curr
        if not first:
            self.raise_error("Expected a type")
        self._advance()
        if self._match_text_seq("WITH", "TIME", "ZONE") or self._match_text_seq("WITHOUT", "TIME", "ZONE"):
            last = self._prev
        closing = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.L_BRACKET: TokenType.R_BRACKET}
        while self._curr and self._curr.token_type in closing:
            opening, end = self._curr.token_type, closing[self._curr.token_type]
            depth = 0
            while self._curr:
                depth += {opening: 1, end: -1}.get(self._curr.token_type, 0)
                if not depth:
                    break
                self._advance()
            last = self._curr or last
            self._advance()
        return self._type(first, last)

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        """Read the order of `within group` as arguments of the aggregate before it."""
        if isinstance(this, exp.Anonymous) and self._match_text_seq("WITHIN", "GROUP"):
            this = self._within(this, self._parse_wrapped(self._parse_order))
        return super()._parse_window(this, alias)

    def _within(self, call: exp.Anonymous, order: exp.Expr | None) -> exp.Expr:
        """Return `mode(x)` of `mode() within group (order by x)`, and so on; other forms keep their own syntax, which is refused."""
        name, args, keys = str(call.this).lower(), call.expressions, order.expressions if order is not None else []
        value = keys[0].this if len(keys) == 1 and not keys[0].args.get("desc") else None
        if value is not None and (name, len(args)) in WITHIN:
            call.set("expressions", [value, *args])
        elif (
            args
            and not isinstance(args[-1], exp.Order)
            and name in ("string_agg", "listagg", "group_concat", "array_agg")
        ):
            call.set("expressions", [*args[:-1], exp.Order(this=args[-1], expressions=keys)])
        else:
            return self.expression(exp.WithinGroup(this=call, expression=order))
        return call

    COLUMN_OPERATORS: ClassVar = {
        **Parser.COLUMN_OPERATORS,
        # sqlglot's own readers parse paths by their own rules.
        TokenType.ARROW: lambda _, this, path: exp.JSONExtract(this=this, expression=path),
        TokenType.DARROW: lambda _, this, path: exp.JSONExtractScalar(this=this, expression=path),
    }
    RANGE_PARSERS: ClassVar = {**Parser.RANGE_PARSERS, TokenType.TILDE: binary_range_parser(exp.RegexpLike)}
    RANGE_PARSERS.pop(TokenType.FOR)
    # `->` behind an argument is a part of JSON there, too.
    LAMBDAS: ClassVar = {TokenType.FARROW: Parser.LAMBDAS[TokenType.FARROW]}
    # Types are read as text: `range < 5` compares a column.
    NESTED_TYPE_TOKENS: ClassVar = set()
    STRUCT_TYPE_TOKENS: ClassVar = set()
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


def _lambda(names: Sequence[exp.Expr | None], body: exp.Expr | None) -> exp.Lambda:
    """Return a lambda, in whose body the columns of its parameters' names are parameters."""
    found = exp.Lambda(this=body, expressions=list(names))
    words = {name.name.lower() for name in names if name is not None}
    for column in list(found.this.find_all(exp.Column)) if body is not None else []:
        first, *fields = [each for part in reversed(PARTS) if (each := column.args.get(part)) is not None]
        if isinstance(first, exp.Identifier) and first.name.lower() in words:
            made: exp.Expr = exp.Parameter(this=first.pop())
            for field in fields:
                made = exp.Dot(this=made, expression=field.pop())
            column.replace(made)
    return found


def _methods(node: exp.Expr) -> exp.Expr:
    """Return a value with its parts, in which a call behind a value has that as its first argument."""
    inner = node.args.get("this")
    if isinstance(inner, exp.Expr) and isinstance(node, (exp.Dot, exp.Bracket, exp.Cast, exp.JSONExtract)):
        node.set("this", _methods(inner))
    if isinstance(node, exp.Dot) and METHOD in node.expression.meta:
        return _behind(node.this.pop(), node.expression)
    parts = [each for part in reversed(PARTS) if (each := node.args.get(part)) is not None]
    if not isinstance(node, exp.Column) or not any(METHOD in each.meta for each in parts):
        return node
    first = next(at for at, each in enumerate(parts) if METHOD in each.meta)
    found: exp.Expr = exp.Column(**dict(zip(PARTS, (each.pop() for each in reversed(parts[:first])), strict=False)))
    for part in parts[first:]:
        found = _behind(found, part) if METHOD in part.meta else exp.Dot(this=found, expression=part.pop())
    return found


def _behind(value: exp.Expr, written: exp.Expr) -> exp.Expr:
    """Return the call that is written behind a value, with it as the first argument."""
    found = call = written.this.pop()
    while isinstance(call, exp.Window | exp.Filter):
        call = call.this
    first = call.expressions[0] if call.expressions else None
    if isinstance(first, exp.Order) and first.this is None:  # `x.list(order by y)`
        first.set("this", value)
    else:
        call.set("expressions", [value, *call.expressions])
    return found  # type: ignore[no-any-return]


METHOD = "method"
"""The key in the metadata of parentheses around a call that is written behind a point."""
PARTS = ("this", "table", "db", "catalog")
"""The names of a column, from the last to the first."""


class _Tokenizer(Tokenizer):
    """sqlglot's tokenizer, which also knows `//`."""

    KEYWORDS: ClassVar = {**Tokenizer.KEYWORDS, "//": TokenType.DIV}


class SqlDialect(Dialect):
    """Plain SQL: double quotes for names, single for text. Null is the last value of every order."""

    Parser = _Parser
    Tokenizer = _Tokenizer
    NULL_ORDERING = "nulls_are_last"
    STRICT_STRING_CONCAT = True


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


def tokenized(text: Text) -> list[Token]:
    """Return the tokens of a text; raises SpecError for a quote that is never closed."""
    try:
        return _signs_apart(SqlDialect().tokenize(text.value), text.value)
    except TokenError:
        start = _open_quote(text.value)
        hint = "text goes in single quotes, names in double quotes; a quote within is doubled"
        raise SpecError("this quote is never closed", span=text.at(start), hint=hint) from None


def parsed(text: Text, tokens: list[Token], what: str) -> exp.Expr:
    """Return the syntax of one expression or statement (`what`); raises SpecError at the place of a mistake."""
    try:
        with deep_calls():
            trees = SqlDialect().parser().parse(tokens, text.value)
    except RecursionError:
        raise SpecError("this is nested too deeply", span=text.span) from None
    except ParseError as error:
        _refuse(text, error, what)
    found = trees[0] if trees else None
    if found is None:
        raise SpecError(f"{what} is missing", span=text.span)
    if len(trees) > 1 or isinstance(found, exp.Block):
        raise SpecError(f"`;` ends {what}, but more follows", span=text.at(text.value.find(";")))
    return found

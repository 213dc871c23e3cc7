"""A query of Spark's as dd's SQL: streams as tables, names and texts in dd's quotes, and the place of nulls in each order.

The text stays the same but for single words, so a place in one has a place in the other. Words with another meaning here are refused, and so
are expressions whose types give them another value (`differences`). sqlglot's transpiler to DuckDB is no way around that: of 562 expressions
that Spark computes it gave 71 other values without a word, as for `date_add`, `left(s, -1)` and `trunc(day, 'month')`, and 50 errors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from ddcli.commands.projects import UNWRITABLE, Edit, Translation, edited, quoted, span, table_edits, unreadable
from ddcli.commands.sdp.definitions import word_of
from ddcli.commands.sdp.functions import function_edits
from ddcli.dataclass import frozen
from ddcli.errors import SpecError
from ddcli.expressions.syntax_tree import is_own
from ddcli.expressions.tree import deep_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ddcli.commands.sdp.definitions import SparkDefinition
    from ddcli.errors import Span

ENDS = {"LIMIT", "OFFSET", "ROWS", "RANGE", "GROUPS", "UNION", "EXCEPT", "INTERSECT", "MINUS", "WINDOW"}
"""The words before which an `order by` ends."""
CLAUSES = {"SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "WINDOW", "ON", "USING"}
REFUSED = {
    "DAYOFWEEK": (
        "the week begins with 1 in Spark and with 0 here",
        "leave it to the pipeline file, where it is `dow(day) + 1`",
    ),
    "CONCAT": ("`concat` of a null is null in Spark, and passes over it here", "write `a || b`"),
    **dict.fromkeys(
        ("MAX_BY", "MIN_BY"),
        ("a row whose value is null counts in Spark, and not here", "write it with `filter (where value is not null)`"),
    ),
    "SORT BY": ("`sort by` orders parts of a result", "write `order by`"),
}


@frozen
class SparkQuery:
    """A parsed query of Spark's: the names of the tables that it reads, in lower case, and whether one is a stream."""

    definition: SparkDefinition
    tree: exp.Expr
    edits: tuple[Edit, ...]
    tables: tuple[tuple[str, ...], ...]
    streams: bool

    @property
    def is_copy(self) -> bool:
        """True if the query is `select * from` a table, and nothing else."""
        return re.fullmatch(r"SELECT \* FROM [\w.`]+", self.tree.sql("spark")) is not None

    def place(self, table: tuple[str, ...]) -> Span:
        """Return the first place at which the query reads a table."""
        for node in _tables(self.tree):
            if _key(node) == table:
                start, end = _extent(node)
                return span(self.definition.file, self.definition.text, start, end - start)
        return self.definition.place

    def translation(self, names: Mapping[tuple[str, ...], str]) -> Translation:
        """Return the query with the names of its tables in the pipeline."""
        text, file = self.definition.text, self.definition.file
        tables = table_edits(self.tree, text, file, names)
        taken = [range(start, max(end, start + 1)) for start, end, _ in tables]
        edits = [each for each in self.edits if not any(each[0] in inside for inside in taken)]
        edits = sorted([*edits, *tables])
        return Translation(edited(text, edits), file, text, tuple(edits))


def read_query(definition: SparkDefinition) -> SparkQuery:
    """Parse a definition's query. Raises SpecError if it can't be imported."""
    text, tokens = definition.text, definition.query
    start, end = tokens[0].start, tokens[-1].end + 1
    if bad := UNWRITABLE.search(text, start, end):
        raise SpecError("a pipeline file can't hold this character", span=span(definition.file, text, bad.start()))
    edits = [(0, start, ""), (end, len(text), ""), *_words(definition, tokens), *_orders(tokens)]
    edits += function_edits(text, definition.file, tokens)
    streams = list(_streams(tokens))
    edits += [(first, last, "") for first, last in streams]
    # Text around the query is blanked, so that places stay the same.
    blank = list(re.sub(r"[^\n]", " ", text[:start]) + text[start:end])
    for first, last in streams:
        blank[first:last] = " " * (last - first)
    try:
        with deep_calls():
            tree = sqlglot.parse_one("".join(blank), dialect="spark")
    except (SqlglotError, RecursionError) as error:
        line, column, problem = unreadable(error, definition.place.line)
        offset = sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1
        raise SpecError(problem, span=span(definition.file, text, offset)) from None
    if not isinstance(tree, exp.Query):
        raise SpecError("this is not a query", span=span(definition.file, text, start))
    tables = tuple(dict.fromkeys(_key(node) for node in _tables(tree)))
    return SparkQuery(definition, tree, tuple(edits), tables, bool(streams))


def read_expression(definition: SparkDefinition, tokens: Sequence[Token]) -> str:
    """Return a condition or another expression of a definition as dd's SQL. Raises SpecError if it can't be imported."""
    text, start, end = definition.text, tokens[0].start, tokens[-1].end + 1
    if bad := UNWRITABLE.search(text, start, end):
        raise SpecError("a pipeline file can't hold this character", span=span(definition.file, text, bad.start()))
    edits = sorted([*_words(definition, tokens), *_orders(tokens), *function_edits(text, definition.file, tokens)])
    return edited(text[:end], [(0, start, ""), *edits])


def _tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """Yield the tables that a query reads, without those that it defines itself."""
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Identifier) and not (len(_key(node)) == 1 and is_own(node, node.name)):
            yield node


def _parts(node: exp.Table) -> list[exp.Identifier]:
    return [part for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part]


def _key(node: exp.Table) -> tuple[str, ...]:
    return tuple(part.name.lower() for part in _parts(node))


def _extent(node: exp.Table) -> tuple[int, int]:
    parts = _parts(node)
    return parts[0].meta["start"], parts[-1].meta["end"] + 1


def _streams(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield the places of the words that make a table a stream, and of their parentheses, if they have some."""
    clauses = [""]
    """The current clause in each open parenthesis."""
    for at, token in enumerate(tokens[:-1]):
        word, before = word_of(token), word_of(tokens[at - 1]) if at else ""
        if word == "(":
            clauses.append("")
        elif word == ")":
            clauses = clauses[:-1] or [""]
        elif word in CLAUSES or word.endswith("JOIN"):
            clauses[-1] = word
        listed = before == "," and clauses[-1] == "FROM"
        if word != "STREAM" or not (before == "FROM" or before.endswith("JOIN") or listed):
            continue
        after = tokens[at + 1]
        if word_of(after) == "(":
            yield token.start, after.end + 1
            closing = next((each for each in tokens[at + 2 :] if word_of(each) == ")"), after)
            yield closing.start, closing.end + 1
        elif after.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
            yield token.start, token.end + 1


def _words(definition: SparkDefinition, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield edits that put names and texts in dd's quotes; refuse words with another meaning here."""
    text = definition.text
    for at, token in enumerate(tokens):
        start, end, word = token.start, token.end + 1, word_of(token)
        place = span(definition.file, text, start, end - start)
        after = word_of(tokens[at + 1]) if at + 1 < len(tokens) else ""
        if token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
            raw = text[start:end]
            # The tokenizer splits a text at a doubled quote: the second part follows the first directly.
            beside = at > 0 and tokens[at - 1].token_type == TokenType.STRING
            doubled = beside and raw[0] == "'" == text[start - 1]
            if token.token_type == TokenType.RAW_STRING or "\\" in raw:
                raise SpecError(
                    "a text with a backslash can't be imported", span=place, hint="write the character itself"
                )
            if beside and not doubled:
                raise SpecError(
                    "texts side by side are one in Spark", span=place, hint="write them as one, or with `||`"
                )
            yield start, end, "'" + _plain(token.text.replace("'", "''")) + "'"
        elif token.token_type == TokenType.IDENTIFIER:
            yield start, end, _plain(quoted(token.text))
        elif word in REFUSED and (after == "(" or " " in word):
            problem, hint = REFUSED[word]
            raise SpecError(problem, span=place, hint=hint)
        elif word in ("TRIM", "LTRIM", "RTRIM") and after == "(" and _has_comma(tokens[at + 1 :]):
            problem = f"`{word.lower()}` takes the characters first in Spark, and last here"
            raise SpecError(problem, span=place, hint="write `trim(both 'x' from a)`")


def _plain(text: str) -> str:
    """Return a text for a pipeline file, in which `${` would begin a variable."""
    return text.replace("${", "$${")


def _has_comma(tokens: Sequence[Token]) -> bool:
    """Return whether the parentheses at the start of the tokens have a comma of their own."""
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(word_of(token), 0)
        if depth == 1 and word_of(token) == ",":
            return True
        if not depth:
            break
    return False


def _orders(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield edits that add the place of nulls to each order: null is the least value in Spark, and the last here."""
    for at, token in enumerate(tokens):
        if word_of(token) != "ORDER BY":
            continue
        depth, words, last = 0, list[str](), token
        for each in [*tokens[at + 1 :], None]:
            word = "" if each is None else word_of(each)
            ends = each is None or (not depth and (word in ENDS or word == ")"))
            if ends or (not depth and word == ","):
                if words and not " ".join(words).endswith(("NULLS FIRST", "NULLS LAST")):
                    yield last.end + 1, last.end + 1, " nulls last" if words[-1] == "DESC" else " nulls first"
                words = []
                if ends:
                    break
                continue
            assert each is not None, "the end was reached"
            depth += {"(": 1, ")": -1}.get(word, 0)
            words += [word] if not depth else []
            last = each

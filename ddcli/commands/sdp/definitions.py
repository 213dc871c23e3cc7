"""The tables, views and flows that an SQL file of Spark's declarative pipelines defines, statement by statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from ddcli.commands.projects.translation import span
from ddcli.dataclass import frozen
from ddcli.errors import SpecError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.errors import Span

KINDS = {
    ("MATERIALIZED", "VIEW"): "materialized view",
    ("STREAMING", "TABLE"): "streaming table",
    ("TEMPORARY", "VIEW"): "temporary view",
    ("TEMP", "VIEW"): "temporary view",
    ("VIEW",): "view",
    ("FLOW",): "flow",
}
NAMED = (TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER)
"""The tokens that are never words."""
LAYOUT = ("TBLPROPERTIES", "PARTITIONED BY", "CLUSTER BY", "OPTIONS")
"""Clauses in parentheses about a table's storage, not its rows."""


@frozen
class SparkDefinition:
    """A table, a view or a flow, whose name begins at the character `start`; the target table of a flow; and the tokens of the query,
    if there is one.
    """

    kind: str
    name: tuple[str, ...]
    target: tuple[str, ...]
    file: str
    text: str
    place: Span
    start: int
    query: tuple[Token, ...] = ()


def read_definitions(file: str, text: str) -> tuple[list[SparkDefinition], list[SpecError]]:
    """Return the definitions of a file, and an error for each that can't be imported."""
    found: list[SparkDefinition] = []
    errors: list[SpecError] = []
    try:
        tokens = Spark().tokenize(text)
    except (SqlglotError, RecursionError) as error:
        return [], [SpecError(f"this can't be read as SQL: {first_line(error):.200}", span=span(file, text, 0))]
    for statement in _statements(tokens):
        try:
            found.append(_SparkStatement(file, text, statement).read())
        except SpecError as error:
            errors.append(error)
    return found, errors


def _statements(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    some: list[Token] = []
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            some.append(token)
        elif some:
            yield some
            some = []
    if some:
        yield some


def word_of(token: Token) -> str:
    """Return a token's word in capitals; of a quoted name or a text, an empty text."""
    return "" if token.token_type in NAMED else " ".join(token.text.upper().split())


class _SparkStatement:
    """The parser of one statement, from its beginning."""

    def __init__(self, file: str, text: str, tokens: list[Token]) -> None:
        self.file, self.text, self.tokens, self.at = file, text, tokens, 0

    def read(self) -> SparkDefinition:
        if not self.take("CREATE"):
            raise self.error(f"`{self.here()}` can't be imported")
        if self.take("OR"):
            self.at += 1
        kind = next((kind for words, kind in KINDS.items() if self.take(*words)), None)
        if kind is None:
            raise self.error(f"`create {self.here().lower()}` can't be imported")
        self.take("IF", "NOT", "EXISTS")
        place, start = self.place(), self.tokens[min(self.at, len(self.tokens) - 1)].start
        name, target = self.name(), tuple[str, ...]()
        if kind != "flow" and self.word() == "(":
            raise self.error("its columns are declared", "cast and name them in the query")
        self.clauses()
        if kind == "flow":
            if not self.take("AS", "INSERT", "INTO"):
                raise self.error("a flow that is not an `insert into` can't be imported")
            target = self.name()
            self.take("BY", "NAME")
        elif not self.take("AS"):
            if self.at < len(self.tokens) or kind != "streaming table":
                raise self.error("this clause can't be imported" if self.at < len(self.tokens) else "there is no query")
            return SparkDefinition(kind, name, target, self.file, self.text, place, start)
        query = tuple(self.tokens[self.at :])
        if not query:
            raise self.error("there is no query")
        return SparkDefinition(kind, name, target, self.file, self.text, place, start, query)

    def clauses(self) -> None:
        """Skip comments, and clauses about a table's storage."""
        while True:
            if self.take("COMMENT") or self.take("USING"):
                self.at += 1
            elif self.word() in LAYOUT or f"{self.word()} {self.word(1)}" in LAYOUT:
                self.at += 1 if self.word() in LAYOUT else 2
                self.parentheses()
            else:
                return

    def parentheses(self) -> None:
        depth = 0
        while self.at < len(self.tokens):
            depth += {"(": 1, ")": -1}.get(self.word(), 0)
            self.at += 1
            if not depth:
                return
        raise self.error("a parenthesis is not closed")

    def name(self) -> tuple[str, ...]:
        """Read a name and return its parts."""
        parts = []
        while self.at < len(self.tokens) and self.here():
            parts.append(self.tokens[self.at].text)
            self.at += 1
            if self.word() != ".":
                break
            self.at += 1
        if not parts or parts == ["("]:
            raise self.error("there is no name")
        return tuple(parts)

    def take(self, *words: str) -> bool:
        """Skip some words if they are next, and return whether they were."""
        known = [word for at in range(len(words)) for word in self.word(at).split(" ")][: len(words)]
        if known != list(words):
            return False
        while words:
            words = words[len(self.word().split(" ")) :]
            self.at += 1
        return True

    def word(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return word_of(self.tokens[at]) if at < len(self.tokens) else ""

    def here(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def place(self) -> Span:
        token = self.tokens[min(self.at, len(self.tokens) - 1)]
        return span(self.file, self.text, token.start, token.end + 1 - token.start)

    def error(self, problem: str, hint: str | None = None) -> SpecError:
        return SpecError(problem, span=self.place(), hint=hint)

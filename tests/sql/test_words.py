"""Each name and each constant of a statement matters: with another in its place the tree is another one, or the statement is refused.

A subquery of each kind in each clause: the statement is what DuckDB makes of it.
"""

import random

import pytest

from ddcli.errors import DdError
from ddcli.expressions.dialect import SqlDialect
from ddcli.expressions.syntax_tree import WORDS, query_text, read_statement
from tests.draws import chance, many, some
from tests.sql.clauses import CLAUSES, lines, statement
from tests.sql.generate import Statements
from tests.sql.judge import Judged, connect, judge
from tests.sql.test_judge import STATEMENTS
from tests.sql.windows import WindowStatements

ODD = [
    "select array(a, b)[2] as x, list(a order by b)[1] as y, array(a)[1][1] as z from t",
    "select a from t limit 3 offset 1",
    "select a from t fetch first 3 rows only",
    "select interval 3 day as x, interval '2 hours' as y from t",
    "select sum(a) over (partition by b order by a rows between 2 preceding and 1 following exclude ties) as x from t",
    "select a from t order by a nulls first limit 5",
]


def tree(text: str) -> str:
    """Return the tree of a statement as text, empty if it is refused."""
    try:
        return repr(read_statement(query_text(text)).root)
    except DdError:
        return ""


def check_words(text: str) -> None:
    whole = tree(text)
    for token in SqlDialect().tokenize(text):
        if token.token_type in WORDS:
            other = "77" if token.text.isdigit() else "'other'" if text[token.start] == "'" else "other"
            changed = text[: token.start] + other + text[token.end + 1 :]
            assert tree(changed) != whole, f"`{token.text}` does not matter in {text}"


def test_each_word_of_a_statement_matters():
    for text in ODD:
        assert tree(text), text
        check_words(text)
    for text in chance("words").sample(STATEMENTS, many(60)):
        check_words(text)


def test_each_word_of_a_random_statement_matters():
    draw = chance("random words")
    for _ in range(many(60)):
        kind = draw.choice([Statements, WindowStatements])
        check_words(kind(random.Random(draw.randrange(1 << 32))).statement())


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("select a from t using sample 10", "sample"),
        ("select a from t at ( version => 3)", "version"),
        ("select a from t union all corresponding select b from t", "corresponding"),
    ],
)
def test_a_word_that_the_parser_drops_is_refused(text, word):
    with pytest.raises(DdError) as found:
        read_statement(query_text(text))
    assert found.value.problem == f"`{word}` is not supported here"
    assert found.value.span is not None
    assert found.value.span.column == text.index(f" {word} ") + 2


@pytest.fixture(scope="module")
def base():
    return connect()


@pytest.mark.parametrize("clause", [*some(lines(CLAUSES))])
def test_a_clause_with_any_subquery_is_what_duckdb_makes_of_it(clause, base):
    draw = chance("clauses", clause)
    for _ in range(many(1)):
        judged = Judged()
        assert judge(statement(draw, clause), draw.randrange(1 << 32), base, judged) is None
        assert all("aggregates only columns of the query around" in problem for problem in judged.refused)

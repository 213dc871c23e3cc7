"""A subquery of each kind in each clause: the statement is what DuckDB makes of it."""

import pytest

from tests.draws import chance, many, some
from tests.sql.clauses import CLAUSES, lines, statement
from tests.sql.judge import Judged, connect, judge


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

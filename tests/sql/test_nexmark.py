"""Nexmark's queries, kept up to date while events come, go and change, are what DuckDB makes of the tables after each batch."""

import pytest

from tests.draws import chance
from tests.sql import nexmark
from tests.sql.changes import ChangingTables
from tests.sql.warehouse import Warehouse, alike, sorted_rows


def test_nexmarks_queries_are_what_duckdb_makes_of_them(tmp_path):
    draw = chance("nexmark")
    tables = ChangingTables(nexmark.tables(draw, 1500), draw)
    warehouse = Warehouse(tmp_path / "nexmark", tables, nexmark.QUERIES)
    warehouse.judge(batches=2, part=0.02)
    assert not warehouse.wrong
    assert warehouse.compared == 3 * len(nexmark.QUERIES)
    assert warehouse.filled == nexmark.QUERIES.keys()
    assert len(nexmark.QUERIES) + len(nexmark.LEFT_OUT) == 23


@pytest.mark.parametrize(("other", "same"), [((1, 2.0000001), True), ((1, 2.1), False), ((2, 2.0), False)])
def test_rows_that_differ_are_found(other, same):
    ours, theirs = (sorted_rows([row], [False, True]) for row in ((1, 2.0), other))
    assert alike(ours[0], theirs[0]) is same


def test_changing_tables_hold_what_their_log_adds_up_to():
    draw = chance("changes")
    tables = ChangingTables(nexmark.tables(draw, 1000), draw)
    logs = [tables.load(), *(tables.change(0.1) for _ in range(3))]
    for name, now in tables.now.items():
        counts = {}
        for log in logs:
            for *row, _, diff in log[name].rows() if name in log else ():
                counts[tuple(row)] = counts.get(tuple(row), 0) + diff
        assert sorted(row for row, count in counts.items() for _ in range(count)) == sorted(now.rows())
    assert {-1, 1} == {diff for log in logs for frame in log.values() for diff in frame["diff"]}

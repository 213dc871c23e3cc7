"""Times yet to come in runs: what waits in the state between them, until a run closes its time."""

import datetime as dt
import json

import polars as pl
import pytest

from tests.harness import read_log, snapshot

LOANS = """\
dd: 1
name: loans
inputs: {loans: {path: loans/, time: day}}
collections:
  out: {from: loans, apply: [{temporal_filter: {from: lent, until: due}}, {project: [book]}]}
  number: {from: out, apply: [{reduce: {by: [], books: count(*)}}]}
outputs: {out: out/out/, number: out/number/}
"""


def day(number):
    return dt.date(2013, 1, number)


@pytest.mark.parametrize("untils", [[31], [2, 3, 5, 31], [*range(1, 13)], [6, 6, 12]])
def test_what_is_yet_to_come_waits_in_the_state(shop, untils):
    """A run that only moves the time on, with no new row, makes the changes that fall due."""
    shop.write("loans.yaml", LOANS)
    loans = [
        ("a", day(2), day(5), day(1), 1),
        ("b", day(1), day(9), day(3), 1),
        ("b", day(1), day(9), day(7), -1),
        ("c", day(11), day(11), day(1), 1),
    ]
    shop.log("loans/1.parquet", loans, book=pl.String, lent=pl.Date, due=pl.Date, day=pl.Date, diff=pl.Int64)
    for until in untils:
        result = shop("run", "loans.yaml", "--until", day(until))
        assert result.code == 0, result.err
        assert "nothing new" in shop("run", "loans.yaml", "--until", day(until)).err
    assert sorted(read_log(shop.folder / "out/out").rows()) == [
        ("a", day(2), 1),
        ("a", day(5), -1),
        ("b", day(3), 1),
        ("b", day(7), -1),
    ]
    assert sorted(read_log(shop.folder / "out/number").sort("time", "diff").rows()) == [
        (1, day(2), 1),
        (1, day(3), -1),
        (1, day(5), 1),
        (1, day(7), -1),
        (2, day(3), 1),
        (2, day(5), -1),
    ]


def test_a_plain_run_has_nothing_to_do_before_time_moves_on(shop):
    shop.write("loans.yaml", LOANS)
    loan = {"book": pl.String, "lent": pl.Date, "due": pl.Date, "day": pl.Date, "diff": pl.Int64}
    shop.log("loans/1.parquet", [("a", day(1), day(5), day(1), 1)], **loan)
    assert shop("run", "loans.yaml").code == 0
    before = snapshot(*shop.kept)
    assert "nothing new (times before 2013-01-02 are closed)" in shop("run", "loans.yaml").err
    assert snapshot(*shop.kept) == before
    (shop.folder / "loans/_progress.json").write_text('{"upper": [[15711]]}')  # of the 6th: the day has come
    result = shop("run", "loans.yaml", "-o", "json")
    assert result.code == 0
    found = json.loads(result.out)["inputs"]["loans"]
    assert [found[name] for name in ("rows", "files", "waiting")] == [0, 0, 0]
    assert sorted(read_log(shop.folder / "out/out").rows()) == [("a", day(1), 1), ("a", day(5), -1)]

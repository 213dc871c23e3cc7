"""The time column of an input is a data column, too, where something in the pipeline names it."""

import polars as pl
import pytest

from tests.harness import contents

FILE = """\
dd: 1
name: p
inputs: {{a: {{path: a/, {keys}}}}}
collections: {{c: {{from: a, apply: [{apply}]}}}}
outputs: {{c: out/}}
"""
ROWS = [(1, "x", 3), (2, "y", 4), (1, "z", 5)]
TYPES = {"id": pl.Int64, "v": pl.String, "day": pl.Int64}


@pytest.mark.parametrize(
    ("keys", "apply", "want"),
    [
        ("format: append, time: day", "{filter: day >= 4}, {project: [v]}", {("y",): 1, ("z",): 1}),
        ("format: append, time: day", "{map: {d: day + 1}}", {(4,): 1, (5,): 1, (6,): 1}),
        ("format: append, time: day", "{reduce: {by: [day], n: count(*)}}", {(3, 1): 1, (4, 1): 1, (5, 1): 1}),
        ("format: append, time: day", "{project: [v]}", {("x",): 1, ("y",): 1, ("z",): 1}),
        ("format: upsert, key: id, time: day", "{extend: {d: day}}, {project: [id, d]}", {(1, 5): 1, (2, 4): 1}),
        ("format: upsert, key: id, time: day, late: arrive, order_by: day", "{project: [v]}", {("y",): 1, ("z",): 1}),
        ("format: snapshots, time: day", "{filter: day > 0}, {project: [v]}", {("z",): 1}),
    ],
)
def test_an_expression_may_name_it(shop, keys, apply, want):
    shop.log("a/1.parquet", ROWS, **TYPES)
    shop.write("p.yaml", FILE.format(keys=keys, apply=apply))
    assert shop("check", "p.yaml").code == 0
    for _ in range(2):
        assert shop("run", "p.yaml").code == 0
        assert contents(shop.folder / "out") == want


def test_of_keyed_events_it_is_that_of_the_last(shop):
    events = [
        '{"op": "c", "before": null, "after": {"id": 1, "v": "x"}, "ts_ms": 3, "source": {"lsn": 1}}',
        '{"op": "u", "before": null, "after": {"id": 1, "v": "y"}, "ts_ms": 4, "source": {"lsn": 2}}',
    ]
    shop.write("a/1.ndjson", "\n".join(events) + "\n")
    keys = "format: debezium, key: id, columns: {id: int64, v: string}"
    shop.write("p.yaml", FILE.format(keys=keys, apply="{project: [v, ts_ms]}"))
    result = shop("run", "p.yaml")
    assert result.code == 0, result.err
    assert contents(shop.folder / "out") == {("y", 4): 1}


def test_of_a_log_the_error_says_why_not(shop):
    shop.log("a/1.parquet", ROWS, **TYPES)
    shop.write("p.yaml", FILE.format(keys="time: day", apply="{map: {d: day}}"))
    result = shop("check", "p.yaml")
    assert result.code == 2
    assert "what is retracted at another time would never cancel" in result.err


def test_outputs_that_do_not_name_it_stay_as_they_are(shop):
    shop.log("a/1.parquet", ROWS, **TYPES)
    text = FILE.format(keys="format: append, time: day", apply="{filter: v > ''}")
    shop.write("p.yaml", text)
    assert shop("run", "p.yaml").code == 0
    assert contents(shop.folder / "out") == {row[:2]: 1 for row in ROWS}

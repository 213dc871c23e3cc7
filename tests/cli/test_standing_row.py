"""The row of an aggregate over nothing, in a state whose pipeline is changed."""

import polars as pl
import pytest

from tests.harness import contents

TYPES = {"v": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
PIPELINE = """\
inputs: {p: {path: in/}}
collections:
  total: {sql: "select count(*) as n, sum(v) as s from p"}
  more: {sql: "select count(*) + 10 as n, max(v) as s from p"}
outputs:
  total: out/total/
"""


@pytest.mark.parametrize("gone", [False, True])
def test_an_output_that_is_added_has_the_row_of_nothing(shop, gone):
    shop.write("p.yaml", PIPELINE)
    shop.log("in/1.parquet", [(1, 1, 1), (2, 2, 1)], **TYPES)
    assert shop("run", "p.yaml").code == 0
    if gone:
        shop.log("in/2.parquet", [(1, 3, -1), (2, 4, -1)], **TYPES)
        assert shop("run", "p.yaml").code == 0
    expected = {(0, None): 1} if gone else {(2, 3): 1}
    assert contents(shop.folder / "out/total") == expected
    shop.write("p.yaml", PIPELINE + "  more: out/more/\n")
    result = shop("run", "p.yaml")
    assert result.code == 0, result.err
    assert contents(shop.folder / "out/more") == ({(10, None): 1} if gone else {(12, 2): 1})
    assert shop("run", "p.yaml", "--full-refresh", "all").code == 0
    assert contents(shop.folder / "out/total") == expected
    shop.log("in/3.parquet", [(7, 9, 1)], **TYPES)
    assert shop("run", "p.yaml").code == 0
    assert contents(shop.folder / "out/total") == ({(1, 7): 1} if gone else {(3, 10): 1})
    assert contents(shop.folder / "out/more") == ({(11, 7): 1} if gone else {(13, 7): 1})

"""Failures of random histories, made small; what is expected is worked out in plain Python."""

import duckdb
import pytest

from ddcli.job.sizes import Sizes
from ddcli.runtime import placement
from tests.spark.support import Here, started

PIPELINE = """\
name: p
clock: arrival
inputs:
  orders: {path: orders/, format: append, columns: {id: int64}}
  closed: {path: closed/, format: upsert, key: id, delete_when: op = 'D', columns: {id: int64, op: string?}}
collections:
  ids: {from: closed, apply: [{project: [id]}]}
  open: {from: orders, apply: [{antijoin: {with: ids, on: [id]}}]}
outputs: {open: open/}
"""


@pytest.mark.parametrize("columns", ["{id: int64, op: string?}", "{id: int64}"])
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_keys_whose_readers_are_partitioned_again_stay_in_the_state(shop, monkeypatch, engine, columns):
    """The first run is out of core, or by tasks; later ones take keys away again, or an edit reads the keys of the state."""
    text = PIPELINE.replace("{id: int64, op: string?}", columns)
    if "op" not in columns:
        text = text.replace("delete_when: op = 'D', ", "").replace(
            "ids: {from: closed, apply: [{project: [id]}]}\n  ", ""
        )
        text = text.replace("with: ids", "with: closed")
    shop.write("p.yaml", text)
    shop.write("orders/1.csv", "id\n1\n2\n3\n4\n")
    shop.write("closed/1.csv", "id,op\n2,I\n3,I\n" if "op" in columns else "id\n2\n3\n")
    with monkeypatch.context() as patch, started(Here(0)):
        if engine == "local":
            patch.setattr(placement, "sizes", lambda *_, **__: Sizes(1, 2, 1, 3, 100))
        assert shop("run", "p.yaml", "--engine", engine).code == 0

    def found():
        files = str(shop.folder / "open/**/*.parquet")
        return duckdb.execute(
            "select id, sum(diff) from read_parquet(?) group by id having sum(diff) <> 0 order by id", [files]
        ).fetchall()

    assert found() == [(1, 1), (4, 1)]
    assert "not what the inputs say" not in shop("verify", "p.yaml", "--all").out
    if "op" in columns:
        shop.write("closed/2.csv", "id,op\n2,D\n")
        assert shop("run", "p.yaml").code == 0
        assert found() == [(1, 1), (2, 1), (4, 1)]
    else:
        shop.write("p.yaml", text.replace("on: [id]}}", "on: [id]}}, {filter: id >= 2}"))
        assert shop("run", "p.yaml", "--apply").code == 0
        assert found() == [(4, 1)]

"""How much memory tasks are told to have, and that runs are cut by it."""

from __future__ import annotations

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.runtime import placement
from ddcli.runtime.spark.session import share
from tests.spark.support import Here, started

GIB = 1 << 30
STANDALONE = {"spark.master": "spark://host:7077"}


@pytest.mark.parametrize(
    ("settings", "cores", "mebibytes"),
    [
        (STANDALONE, 1, (1024 + 384) // 2),
        (STANDALONE | {"spark.executor.memory": "8g"}, 4, (8192 + 819 - 512 - 2048) // 4),
        (
            STANDALONE | {"spark.executor.memory": "8g", "spark.executor.memoryOverhead": "4096"},
            4,
            (12288 - 512 - 2048) // 4,
        ),
        (STANDALONE | {"spark.executor.memory": "8g", "spark.executor.pyspark.memory": "8g"}, 4, 2048 - 1200),
        (STANDALONE | {"spark.executor.memory": "8g", "spark.executor.pyspark.memory": "1g"}, 1, 256),
        ({"spark.master": "k8s://https://host", "spark.executor.memory": "10g"}, 2, (14336 - 512 - 2048) // 2),
        (STANDALONE | {"spark.executor.memory": "512m"}, 1, (512 + 384) // 2),
    ],
)
def test_a_task_has_its_part_of_what_an_executor_has(settings, cores, mebibytes):
    assert share(settings, cores, 100, 64 * GIB) >> 20 == mebibytes


def test_on_this_machine_tasks_share_what_a_run_may_have():
    assert share({"spark.master": "local[4]"}, 1, 4, 2 * GIB) == GIB // 2


@pytest.mark.spark
def test_a_session_tells(spark):
    assert spark.task_memory(2 * GIB) == GIB


def test_a_run_is_cut_by_it(tmp_path, monkeypatch):
    class Small(Here):
        def task_memory(self, here):
            return 181 << 20

    (tmp_path / "in").mkdir()
    pl.DataFrame({"k": range(60_000), "time": 0, "diff": 1}).write_parquet(tmp_path / "in/0.parquet")
    (tmp_path / "p.yaml").write_text(
        "dd: 1\nname: few\ninputs: {a: {path: in/, columns: {k: int64}}}\n"
        "collections: {b: {from: a, apply: [distinct]}}\noutputs: {b: out/b/}\n"
    )
    cuts = []
    sizes = placement.sizes
    monkeypatch.setattr(placement, "sizes", lambda *given, **more: cuts.append(sizes(*given, **more)) or cuts[-1])
    with started(Small(1)):
        run(tmp_path / "p.yaml", engine="local", memory=4 * GIB, dry_run=True)
        run(tmp_path / "p.yaml", engine="spark", memory=4 * GIB)
    here, there = cuts
    assert here.passes == 1, "it fits here"
    assert there.passes > 1, "and not there"
    assert pl.read_parquet(tmp_path / "out/b/*.parquet").height == 60_000

"""Which engine a run takes, and what it says where that one is not to be had."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import polars as pl
import pytest

from ddcli.driver.run import run
from ddcli.errors import SpecErrors, UsageError
from ddcli.job.request import read_request
from ddcli.runtime import placement
from ddcli.runtime.placement import Placement
from ddcli.store.state.manifest import read_newest
from ddcli.version import install_command
from tests.spark.support import Here, Told, started

PIPELINE = """
dd: 1
name: few
inputs: {a: {path: in/, columns: {k: int64}}}
collections: {b: {from: a, apply: [distinct]}}
outputs: {b: out/b/}
"""
SPARK = "spark: {master: 'local[2,4]', conf: {spark.ui.enabled: false}}\n"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "in").mkdir()
    more(tmp_path, 0)
    found = tmp_path / "p.yaml"
    found.write_text(PIPELINE + SPARK)
    return found


def more(folder, time):
    pl.DataFrame({"k": [time, time + 1], "time": time, "diff": 1}).write_parquet(folder / f"in/{time}.parquet")


def refuse(*_):
    raise AssertionError("Spark was started")


def large(monkeypatch):
    """Let a few rows be much."""
    monkeypatch.setattr(placement, "HEAVY", 1)


def test_a_small_change_starts_no_spark(path, monkeypatch):
    """Whoever did the load, and though the file says where Spark is."""
    with started(Here(1)) as cluster:
        summary = run(path, engine="spark")
        assert 0 < summary.spark.tasks <= cluster.done
    monkeypatch.setattr("ddcli.runtime.placement.start", refuse)
    more(path.parent, 1)
    assert run(path).spark is None


def test_what_is_much_goes_to_a_spark_that_is_said(path, monkeypatch):
    large(monkeypatch)
    with started(Here(1)):
        assert run(path).spark.tasks


def test_what_is_more_than_the_memory_holds_is_much(path):
    request = read_request(path)
    rule = Placement(request.asking(resources=request.asked.resources.limited(memory=1 << 20))).rule
    assert not rule.wants_spark((), 50_000)
    assert rule.wants_spark((), 150_000)


def test_without_one_it_is_done_here(path, monkeypatch):
    large(monkeypatch)
    monkeypatch.setattr("ddcli.runtime.placement.start", refuse)
    path.write_text(PIPELINE)
    assert run(path).spark is None


def test_local_is_local(path, monkeypatch):
    large(monkeypatch)
    monkeypatch.setattr("ddcli.runtime.placement.start", refuse)
    assert run(path, engine="local").spark is None


STAGES = """
dd: 1
name: stages
inputs: {a: {path: in/, columns: {k: int64}}}
collections:
  few: {from: a, apply: [{count: {by: [k], as: n}}]}
  many: {from: few, apply: [{filter: n < 5}, {reduce: {by: [n], least: min(k)}}], on: spark}
  last: {from: many, apply: [{count: {by: [least], as: times}}]}
outputs: {last: out/}
"""


@pytest.fixture
def stages(path):
    path.write_text(STAGES)
    return path


def test_a_collection_that_is_to_be_on_spark_is_the_only_one_there(stages):
    with started(Told(1)) as cluster:
        summary = run(stages)
    (about,) = cluster.abouts
    assert about.startswith("stage 3 of 4: ")
    assert summary.spark.stages == 1
    assert summary.spark.stages_here == 4
    assert pl.read_parquet(stages.parent / "out/*.parquet").rows() == [(0, 1, 0, 1)]


def test_a_collection_that_is_to_be_here_is_not_on_spark(stages, monkeypatch):
    large(monkeypatch)
    stages.write_text(STAGES.replace("on: spark", "on: local") + SPARK)
    with started(Told(1)) as cluster:
        summary = run(stages)
    assert [about.partition(":")[0] for about in cluster.abouts] == ["stages 1 to 2 of 4", "stage 4 of 4"]
    assert summary.spark.stages == 3
    assert summary.spark.stages_here == 2
    assert not any("stage 3" in about for about in cluster.abouts)


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_what_the_call_says_counts_more_than_where_a_collection_is_to_be(stages, engine, monkeypatch):
    with started(Told(1)) as cluster:
        run(stages, engine=engine)
    assert len(cluster.abouts) == (2 if engine == "spark" else 0), "a chain, and merging"


def test_where_a_collection_is_computed_changes_nothing_of_what_it_is(stages):
    with started(Told(1)):
        run(stages)
    before = read_newest(stages.parent / ".dd/stages")
    stages.write_text(STAGES.replace(", on: spark", ""))
    more(stages.parent, 1)
    run(stages)
    after = read_newest(stages.parent / ".dd/stages")
    assert after.number == before.number + 1
    assert after.plan == before.plan
    assert after.arrangements.keys() == before.arrangements.keys()


def test_nothing_new_starts_no_spark_whoever_wants_it(stages):
    """There is no row for the stage, though times are closed."""
    with started(Told(1)) as cluster:
        run(stages)
        pl.DataFrame({"k": [], "time": [], "diff": []}, dict.fromkeys(("k", "time", "diff"), pl.Int64)).write_parquet(
            stages.parent / "in/1.parquet"
        )
        run(stages, until="9")
    assert len(cluster.abouts) == 1


def test_where_spark_is_wanted_and_missing_the_place_is_told(stages, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(UsageError, match="needs pyspark") as caught:
        run(stages)
    assert caught.value.span.line == 7
    assert caught.value.hint == f"{install_command('spark')}; or compute all of it here, with --engine local"
    assert run(stages, engine="local").changed


def test_a_loop_that_is_to_be_on_spark_goes_there(path):
    path.write_text(
        PIPELINE.replace(
            "{from: a, apply: [distinct]}",
            "{iterate: {variables: {x: a}, body: {x: {from: x, apply: [distinct]}}, result: x}, on: spark}",
        )
    )
    with started(Told(1)) as cluster:
        run(path)
    assert [about.partition(",")[0] for about in cluster.abouts] == ["stage 2 of 4: loop", "stage 3 of 4: inputs"]
    assert pl.read_parquet(path.parent / "out/b/*.parquet").sort("k").rows() == [(0, 0, 1), (1, 0, 1)]


def test_the_body_of_a_loop_is_where_the_loop_is(path):
    path.write_text(
        PIPELINE.replace(
            "{from: a, apply: [distinct]}",
            "{iterate: {variables: {x: a}, body: {x: {from: x, apply: [distinct], on: spark}}, result: x}, on: local}",
        )
    )
    with pytest.raises(SpecErrors, match="a loop is computed as a whole"):
        run(path)


def test_the_call_counts_more_than_the_file(path, monkeypatch):
    asked = []
    monkeypatch.setattr("ddcli.runtime.placement.start", lambda options, *_: asked.append(options) or Here(1))
    run(path, engine="spark", master="local[3]", conf={"spark.ui.enabled": "true", "spark.x": "1"})
    (options,) = asked
    assert options.master == "local[3]"
    assert options.conf == {"spark.ui.enabled": "true", "spark.x": "1"}


def test_without_pyspark_a_person_is_told_how_to_get_it(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(UsageError, match="needs pyspark") as caught:
        run(path, engine="spark")
    assert caught.value.hint == install_command("spark")
    assert not (path.parent / "out").exists()


class Old:
    """A session of a Spark from before."""

    version = "4.0.3"
    sparkContext = SimpleNamespace(master="local[2]")  # noqa: N815 - Spark's name


def test_a_spark_that_is_too_old_is_refused(path):
    with pytest.raises(UsageError, match=r"needs Spark 4\.1 or newer, and this is 4\.0\.3") as caught:
        run(path, spark=Old())
    assert caught.value.place == "local[2]"
    assert not (path.parent / "out").exists()


def test_what_spark_cannot_be_told_is_refused_in_the_file(path):
    path.write_text(PIPELINE + "spark: {master: [1], conf: {driver.memory: 1g, spark.x: }}\n")
    with pytest.raises(SpecErrors) as caught:
        run(path)
    assert len(caught.value.errors) == 3


def test_a_setting_without_a_value_is_refused(path):
    done = subprocess.run(
        [sys.executable, "-m", "ddcli", "run", path, "--conf", "spark.x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "write it as spark.executor.memory=4g" in done.stderr

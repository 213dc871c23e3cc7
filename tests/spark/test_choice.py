"""Which engine a run takes, and what it says where that one is not to be had."""

from __future__ import annotations

import json
import subprocess
import sys

import polars as pl
import pytest

from ddcli import execute
from ddcli.errors import SpecErrors, UsageError
from ddcli.pipeline import run
from ddcli.sizes import Sizes
from tests.spark.support import Here, started

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
    """Let a few rows be more than the memory holds."""
    monkeypatch.setattr(execute, "sizes", lambda *_: Sizes(1, 2, 1, 100, 0))


def test_a_small_change_starts_no_spark(path, monkeypatch):
    """Whoever did the load, and though the file says where Spark is."""
    with started(Here(1)) as cluster:
        summary = run(path, engine="spark")
        assert 0 < summary.spark.tasks <= cluster.done
    monkeypatch.setattr(execute, "start", refuse)
    more(path.parent, 1)
    assert run(path).spark is None


def test_what_the_memory_would_not_hold_goes_to_a_spark_that_is_said(path, monkeypatch):
    large(monkeypatch)
    with started(Here(1)):
        assert run(path).spark.tasks


def test_without_one_it_is_done_here(path, monkeypatch):
    large(monkeypatch)
    monkeypatch.setattr(execute, "start", refuse)
    path.write_text(PIPELINE)
    assert run(path).spark is None


def test_local_is_local(path, monkeypatch):
    large(monkeypatch)
    monkeypatch.setattr(execute, "start", refuse)
    assert run(path, engine="local").spark is None


def test_the_call_counts_more_than_the_file(path, monkeypatch):
    asked = []
    monkeypatch.setattr(execute, "start", lambda options, *_: asked.append(options) or Here(1))
    run(path, engine="spark", master="local[3]", conf={"spark.ui.enabled": "true", "spark.x": "1"})
    (options,) = asked
    assert options.master == "local[3]"
    assert options.conf == {"spark.ui.enabled": "true", "spark.x": "1"}


def test_without_pyspark_a_person_is_told_how_to_get_it(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(UsageError, match="needs pyspark") as caught:
        run(path, engine="spark")
    assert caught.value.hint == "pip install 'ddcli[spark]'"
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


@pytest.mark.spark
def test_the_summary_says_what_spark_did(path):
    command = [sys.executable, "-m", "ddcli", "run", path, "--engine", "spark", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["spark"]["master"] == "local[2,4]"
    assert said["spark"]["stages"] >= 2

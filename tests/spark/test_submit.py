"""A run that spark-submit starts: it says where Spark is, the program doesn't."""

from __future__ import annotations

import json
import subprocess

import polars as pl
import pytest

from tests.harness import ROOT
from tests.spark.servers import SMALL, environment, home

PIPELINE = """
dd: 1
name: few
inputs: {a: {path: in/, columns: {k: int64}}}
collections: {b: {from: a, apply: [{count: {by: [k], as: n}}]}}
outputs: {b: out/b/}
"""
MAIN = """
import sys
from ddcli.cli.main import main

main(["run", "p.yaml", "-o", "json", *sys.argv[1:]])
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.in_turn(9)
def test_spark_submit(tmp_path):
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "in").mkdir()
    pl.DataFrame({"k": [at % 10 for at in range(100)], "time": 0, "diff": 1}).write_parquet(tmp_path / "in/0.parquet")
    settings = ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    submit = [
        home() / "bin/spark-submit",
        "--master",
        "local[2,4]",
        "--driver-java-options",
        SMALL,
        *settings,
        "main.py",
        "--engine",
        "spark",
    ]
    places = environment() | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(submit, cwd=tmp_path, env=places, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said["spark"]["master"] == "local[2,4]"
    assert said["spark"]["tasks"] >= 2
    assert said["spark"]["stages"] >= 2
    assert pl.read_parquet(tmp_path / "out/b/*.parquet").sort("k").rows() == [(at, 10, 0, 1) for at in range(10)]

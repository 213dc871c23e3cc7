"""`auto cdc` beside Spark's own pipelines: the imported pipeline and Spark's tables have the same rows after each of some runs over changes that arrive in any order.

`python test_auto_cdc.py FOLDER RUNS` lets Spark run the project in a folder, once for each of so many parts of the changes, and writes the rows of its tables.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyspark
import pytest

MERGING = Path(__file__).with_name("MergeCatalog.java")
NAMES, DELETES = ("k", "v", "W", "op", "s"), "apply as delete when op = 'd'"
EVERY = [*NAMES]
FLOWS = {
    "sequence by s stored as scd type 1": (EVERY, EVERY, False, False),
    f"{DELETES} sequence by s columns * except (op, s)": (["k", "v", "W"], EVERY, False, True),
    "sequence by s stored as scd type 2": (EVERY, EVERY, True, False),
    f"{DELETES} sequence by s columns (k, W, v) stored as scd type 2": (["k", "v", "W"], EVERY, True, True),
    f"{DELETES} sequence by s stored as scd type 2 track history on (v)": (EVERY, ["v"], True, True),
    f"{DELETES} sequence by s columns * except (op, s) stored as scd type 2 track history on * except (W)": (
        *(["k", "v", "W"], ["k", "v"]),
        *(True, True),
    ),
}
"""Flows with their meaning: the columns of the target, those that are tracked, whether it is a history, and whether changes delete."""


def by_spark(folder: Path, runs: int) -> None:
    """Run the project of a folder in Spark after each part of the changes has come, and write `spark-RUN.json`, the rows of each table."""
    from pyspark import pipelines
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, handle_pipeline_events, start_run
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote("local[1]").config("spark.sql.catalog.lake", "MergeCatalog").getOrCreate()
    text, flows = (folder / "p/sql/0.sql").read_text(), json.loads((folder / "flows.json").read_text())

    def cdc():
        return spark.readStream.schema("k long, v string, W long, op string, s long").json(str(folder / "there"))

    for run in range(runs):
        (folder / "there").mkdir(exist_ok=True)
        shutil.copy(folder / f"parts/{run}.jsonl", folder / "there")
        graph = create_dataflow_graph(spark, default_catalog="lake", default_database="shop", sql_conf={})
        registry = SparkConnectGraphElementRegistry(spark, graph)
        with graph_element_registration_context(registry):
            pipelines.temporary_view(name="cdc")(cdc)
            registry.register_sql(text, Path("0.sql"))
        none = {"full_refresh": [], "full_refresh_all": False, "refresh": [], "dry": False}
        handle_pipeline_events(start_run(spark, graph, **none, storage=f"file://{folder}/storage"))
        tables = {}
        for at, (columns, _, history, _) in enumerate(flows):
            wanted = [*columns, *["__START_AT", "__END_AT"] * history]
            tables[at] = [[*row] for row in spark.table(f"lake.shop.t{at}").select(*wanted).collect()]
        (folder / f"spark-{run}.json").write_text(json.dumps([*tables.values()]))
    spark.stop()


@pytest.mark.slow
@pytest.mark.in_turn(9)
@pytest.mark.skipif(not shutil.which("javac"), reason="a catalog with merge is compiled by javac")
def test_changes_are_applied_as_by_spark(shop):
    pytest.importorskip("grpc")
    pytest.importorskip("pyspark.pipelines")
    import polars as pl

    from tests.cli.test_import_sdp import CDC, SPEC, applied, events, imported
    from tests.draws import chance, some

    draw, runs, flows = chance("auto cdc by spark"), 2, dict(some(FLOWS.items()))
    shop.write("flows.json", json.dumps([*flows.values()]))
    sql = "".join(
        f"create streaming table t{at};\ncreate flow f{at} as auto cdc into t{at} from stream(cdc) keys (k) {text};\n"
        for at, text in enumerate(flows)
    )
    imported(shop, sql, spec=SPEC + f"configuration:\n  {CDC}\n".replace("path: cdc/", "path: ../cdc/"))
    places = {}
    rows = [row for _ in range(4) for row in events(draw)]
    rows = [row for row in rows if places.setdefault((row[0], row[4]), row) == row]
    ends = [len(rows) * (run + 1) // runs for run in range(runs)]
    for folder in ("parts", "classes", "cdc"):
        (shop.folder / folder).mkdir()
    for run, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
        lines = [json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in rows[first:last]]
        shop.write(f"parts/{run}.jsonl", "".join(lines))
    jars = str(Path(pyspark.__file__).parent / "jars/*")
    command = ["javac", "-nowarn", "-d", shop.folder / "classes", "-cp", jars, MERGING]
    subprocess.run(command, check=True, capture_output=True)
    options = f"--driver-class-path {shop.folder / 'classes'} pyspark-shell"
    ran = subprocess.run(
        [sys.executable, __file__, str(shop.folder), str(runs)],
        # While it tests, Spark takes any free port.
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": options, "SPARK_TESTING": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        cwd=shop.folder,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    for run, last in enumerate(ends):
        shutil.copy(shop.folder / f"parts/{run}.jsonl", shop.folder / "cdc")
        assert shop("run", "p/dd.yaml", "--quiet").code == 0
        by_spark = json.loads((shop.folder / f"spark-{run}.json").read_text())
        for at, (text, (columns, track, history, deletes)) in enumerate(flows.items()):
            log = pl.read_parquet(shop.folder / f"p/out/t{at}/*.parquet").rename(str.lower)
            found = Counter()
            for *row, diff in log.select(
                *map(str.lower, columns), *["__start_at", "__end_at"] * history, "diff"
            ).rows():
                found[tuple(row)] += diff
            clauses = {"columns": columns, "track": track, "deletes": deletes, "ignores": False, "history": history}
            assert +found == applied(rows[:last], clauses), text
            assert +found == Counter(map(tuple, by_spark[at])), text


if __name__ == "__main__":
    by_spark(Path(sys.argv[1]), int(sys.argv[2]))

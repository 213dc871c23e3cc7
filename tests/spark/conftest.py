"""One Spark for all tests: starting it takes longer than they do."""

from __future__ import annotations

import os

import pytest

from ddcli.engine.jit.settings import cache_dir
from ddcli.job.sizes import SparkOptions
from ddcli.runtime.placement import start
from tests.spark.servers import FOUND, SMALL

MASTER = "local[2,4]"
"""Two tasks at once, each tried four times."""

SETTINGS = {
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": SMALL,
    "spark.python.authenticate.socketTimeout": "300s",
}
"""What makes Spark and SQL quick to start, and patient with Python on a busy machine."""


@pytest.fixture(scope="session", autouse=True)
def defaults(tmp_path_factory):
    """Have each Spark that a test starts in another process begin with these settings."""
    folder = tmp_path_factory.mktemp("spark")
    settings = SETTINGS | {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder))
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Return the running Spark, which runs with the engine spark find by themselves."""
    pytest.importorskip("pyspark")
    settings = SETTINGS | {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.extraClassPath": str(tmp_path_factory.mktemp("classes")),  # tests put classes of Java there
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(FOUND), prepend=os.pathsep)
        found = start(SparkOptions(MASTER, settings), "tests", cache_dir())
    yield found
    found.close()

"""Logs of changes in Spark: `spark.read.format("dd")`, `spark.readStream`, `df.write` and `writeStream`.

Spark finds the format by itself where `ddcli` is installed (the module `pyspark_dd`). `register` also lets newer versions push filters down.

* commits: the commits of a log that Spark writes: one file each, once for each batch
* parts: the parts of a log that tasks read
* pipelines: a pipeline between frames of Spark; tables of Spark's catalogs, and other frames, as logs that pipelines read
* sinks: the writers of a log: the rows of a task, the commit of a job or of a stream's batch
* source: the format `dd`, its options, and its readers: of a log as of a time, of its changes, and of a stream of them; Spark's filters as conditions
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""The setting without which Spark refuses a source in Python that takes filters. It is off by default."""
SCOPED = "spark.sql.python.limitPushdown.enabled"
"""A setting that only versions of Spark have that forget the filters of a query: 4.3.0 applies them to the next query over the same frame, too."""


PUBLIC = {"run": "ddcli.spark.pipelines", "write_difference": "ddcli.spark.pipelines"}
"""The modules of public names that are imported when they are first used."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name in PUBLIC:
        return getattr(import_module(PUBLIC[name]), name)
    message = f"module 'ddcli.spark' has no attribute '{name}'"
    raise AttributeError(message)


def register(spark: SparkSession | Any) -> None:
    """Let a session, classic or Connect, read and write logs by `format("dd")`, and push filters down to them, if its version of Spark does so rightly."""
    from ddcli.spark.source import FilteringLogSource, LogSource

    if not spark.conf.isModifiable(SCOPED):
        spark.dataSource.register(LogSource)
        return
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(FilteringLogSource)

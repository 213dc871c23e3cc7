"""The place where Spark looks for the format `dd`: it imports each module whose name begins with `pyspark_`, and registers its `DefaultSource`."""  # noqa: INP001 - a module at the top of an installation

from ddcli.spark.source import LogSource as DefaultSource

__all__ = ["DefaultSource"]

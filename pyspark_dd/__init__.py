"""The place where Spark looks for the format `dd`: it imports each module whose name begins with `pyspark_`, and registers its `DefaultSource`."""

from ddcli.spark.source import LogSource as DefaultSource

__all__ = ["DefaultSource"]

"""The Spark of a request: the session's, one that runs in this process already, or a new one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ddcli.errors import UsageError
from ddcli.job.options import REMOTE
from ddcli.version import install_command

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.job.options import SparkOptions
    from ddcli.runtime.spark.classic import Classic
    from ddcli.runtime.spark.connect import Connect
    from ddcli.runtime.spark.plans import Spark

OLDEST = (4, 1)
"""The first version that brings rows to their shards by number (`repartitionById`)."""


def check_installed(options: SparkOptions) -> None:
    """Raise UsageError where there is no pyspark: a session brings its own."""
    if options.session is None and find_spec("pyspark") is None:
        raise UsageError("the engine spark needs pyspark, which is not installed", hint=install_command("spark"))


def start(options: SparkOptions, name: str, cache: Path) -> Spark:
    """Return the Spark of a request: the session's, one that runs in this process already, or a new one.

    Raises UsageError where pyspark or Java is missing or Spark is too old, EngineError where Spark doesn't start or answer.
    """
    check_installed(options)
    found = _start(options, name, cache)
    version, place = found.version, found.master
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        found.close()
        problem = f"the engine spark needs Spark 4.1 or newer, and this is {version}"
        hint = "use a newer one, or compute all of it here, with --engine local"
        raise UsageError(problem, place=place, hint=hint)
    return found


def _start(options: SparkOptions, name: str, cache: Path) -> Classic | Connect:
    session, master = options.session, options.master
    if session is not None:
        if is_remote(session):
            from ddcli.runtime.spark.connect import Connect

            return Connect(session, owned=False)
        from ddcli.runtime.spark.classic import Classic

        return Classic(session, owned=False)
    if master is not None and master.startswith(REMOTE):
        from ddcli.runtime.spark.connect import connect

        return connect(options)
    from ddcli.runtime.spark.classic import launch

    return launch(options, name, cache)


def is_remote(session: Any) -> bool:
    """Return whether a session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect.")

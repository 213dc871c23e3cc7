"""A Spark whose driver is behind an address: Spark Connect."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddcli.engine.counts import SILENT
from ddcli.errors import DdError, EngineError, UsageError
from ddcli.job.sizes import REMOTE
from ddcli.runtime.spark.plans import Spark
from ddcli.runtime.spark.session import explained, share, shortened
from ddcli.version import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.counts import Progress
    from ddcli.job.sizes import SparkOptions

PORT = 15002
"""The default port of Spark Connect."""
PATIENCE = 10
"""Seconds in which an address must answer."""
RETRIES = 5
"""Attempts, over 17 seconds in all, to reach a server that has answered before; pyspark's own 15 take ten minutes."""
FAULTS = "spark.sql.execution.pyspark.udf.faulthandler.enabled", "true"
"""The setting that lets a process that crashes prints its line."""
GONE = ("RETRIES_EXCEEDED", "StatusCode.UNAVAILABLE", "INVALID_HANDLE")
"""Parts of the error messages when a server or its session has ended."""


class Connect(Spark):
    """A Spark by a session of Spark Connect."""

    page = None
    is_waiting = False
    """False: the server doesn't report its executors, and `slots` has run a task."""

    def __init__(self, session: Any, *, owned: bool) -> None:
        self.session = session
        self.owned = owned

    @cached_property
    def slots(self) -> int:
        """Return the number of tasks that run at once. A client can't ask for it, but by default a range has as many partitions."""
        from pyspark.sql.connect import functions

        with explained(self._error):
            parts = self.session.range(1 << 12).select(functions.spark_partition_id().alias("at"))
            return int(parts.agg(functions.max("at")).collect()[0][0]) + 1

    def task_memory(self, here: int) -> int:
        with explained(self._error):
            settings = self.session.conf.getAll
        return share(settings, int(settings.get("spark.executor.cores", "1")), self.slots, here)

    @property
    def master(self) -> str:
        return f"{REMOTE}{self.session.client.host}"

    @contextmanager
    def _named(self, tag: str, about: str) -> Iterator[None]:
        session, tags = (
            self.session,
            (tag, about.replace(",", ";")),
        )  # its web pages show them; a tag can't have a comma
        for each in tags:
            session.addTag(each)
        try:
            yield
        except KeyboardInterrupt:
            session.interruptTag(tag)
            raise
        finally:
            for each in tags:
                session.removeTag(each)

    @contextmanager
    def _followed(self, tag: str, partitions: Sequence[int], progress: Progress) -> Iterator[None]:
        def follow(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ARG001 - pyspark names them
            completed = sum(stage.num_completed_tasks for stage in stages or ())
            progress.follow(min(completed, sum(partitions)), inflight_tasks, 0)

        if progress is SILENT:
            yield
            return
        self.session.registerProgressHandler(follow)
        try:
            yield
        finally:
            self.session.removeProgressHandler(follow)

    def _error(self, error: Exception) -> DdError:
        if any(word in str(error) for word in GONE):
            return EngineError(
                "Spark does not answer any more, or somebody ended its session",
                place=self.master,
                hint="nothing of this run is visible; run again when the server runs",
            )
        return shortened(str(error))

    def close(self) -> None:
        if self.owned:
            self.session.stop()


def connect(options: SparkOptions) -> Connect:
    """Return a session with the server at an address.

    Raises UsageError for a missing package, a wrong address or a setting that the server refuses, EngineError if the server doesn't answer.
    """
    address = options.master or ""
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        hint = install_command("spark")
        raise UsageError(f"Spark Connect needs more packages: {error}", place=address, hint=hint) from error
    _reach(address)
    try:
        session = SparkSession.builder.remote(address).create()
        session.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
        session.conf.set(*FAULTS)
    except Exception as error:
        raise EngineError(
            f"Spark Connect does not start: {shortened(str(error)).problem}", place=address, hint="is a server there?"
        ) from error
    found = Connect(session, owned=True)
    for name, value in options.conf.items():
        try:
            session.conf.set(name, value)
        except Exception as error:
            found.close()
            hint = "a server has its settings from its start: leave it out, or give it to the server"
            raise UsageError(
                f"the setting {name} can't be made: {shortened(str(error)).problem}", place=address, hint=hint
            ) from error
    return found


def _reach(address: str) -> None:
    """Raise EngineError if no server answers at an address: pyspark itself would try for ten minutes."""
    try:
        place = urlsplit(address)
        host, port = place.hostname, place.port or PORT
    except ValueError:
        host = None
    if not host:
        raise UsageError("this is not an address of Spark Connect", place=address, hint="write it as sc://host:15002")
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except OSError as error:
        raise EngineError(
            f"Spark Connect does not answer: {error.strerror or error}",
            place=f"{REMOTE}{host}:{port}",
            hint="is the address right? A server starts with `start-connect-server.sh` of Spark",
        ) from error

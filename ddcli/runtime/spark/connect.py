"""A Spark whose driver is behind an address: Spark Connect.

It runs plans of DataFrames, no plain functions, so the tasks are the rows of a small DataFrame, each in its own partition, and a function
over Arrow batches runs them. That function carries the data that all tasks share; Spark sends it to an executor once a stage.
"""

from __future__ import annotations

import pickle
import secrets
import socket
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddcli.engine.progress import SILENT
from ddcli.errors import DdError, EngineError, UsageError
from ddcli.job.options import REMOTE
from ddcli.runtime.spark.session import explained, share, shortened
from ddcli.version import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from ddcli.engine.progress import Progress
    from ddcli.job.options import SparkOptions
    from ddcli.runtime.spark.session import Function

PORT = 15002
"""The default port of Spark Connect."""
PATIENCE = 10
"""Seconds in which an address must answer."""
RETRIES = 5
"""Attempts, over 17 seconds in all, to reach a server that has answered before; pyspark's own 15 take ten minutes."""
FAULTS = "spark.sql.execution.pyspark.udf.faulthandler.enabled", "true"
"""The setting by which a process that crashes prints its line."""
DONE = "id int, done binary"
GONE = ("RETRIES_EXCEEDED", "StatusCode.UNAVAILABLE", "INVALID_HANDLE")
"""Parts of the error messages when a server or its session has ended."""


class Connect:
    """A Spark by a session of Spark Connect (the protocol `Spark`)."""

    page = None

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

    def run(
        self, function: Function, common: bytes, tasks: Sequence[bytes], about: str, progress: Progress
    ) -> list[bytes]:
        import pyarrow as pa

        session, tag = self.session, f"dd-{secrets.token_hex(4)}"
        rows = pa.table({"id": pa.array(range(len(tasks)), pa.int32()), "task": pa.array(tasks, pa.binary())})
        session.addTag(tag)
        session.addTag(about.replace(",", ";"))  # its web pages show the tags of a job; a tag can't have a comma
        try:
            with explained(self._error), self._followed(len(tasks), progress):
                frame = session.createDataFrame(rows).repartitionById(len(tasks), "id")
                done = frame.mapInArrow(_partition_function(pickle.dumps(function), common), DONE).toArrow()
        except KeyboardInterrupt:
            session.interruptTag(tag)
            raise
        finally:
            session.clearTags()
        found: dict[int, bytes] = dict(zip(done["id"].to_pylist(), done["done"].to_pylist(), strict=True))
        return [found[at] for at in range(len(tasks))]

    @contextmanager
    def _followed(self, tasks: int, progress: Progress) -> Iterator[None]:
        """Show the progress of the tasks, which the server reports with its answers, unless `progress` is silent."""

        def follow(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ARG001 - pyspark names them
            ours = [stage for stage in stages or () if stage.num_tasks == tasks]
            if ours:  # the last: the one before puts each task into a partition
                progress.follow(max(ours, key=lambda stage: stage.stage_id).num_completed_tasks, inflight_tasks, 0)

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


def _partition_function(
    function: bytes, common: bytes
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that runs the tasks of a partition. It is pickled with its code, and imports ddcli only where it runs."""

    def do(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import pickle

        import pyarrow as pa
        from pyspark import TaskContext

        # A task has one core; libraries would take all.
        for name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        call, here = pickle.loads(function), TaskContext.get()  # noqa: S301
        assert here is not None
        for batch in batches:
            for at, task in zip(batch["id"].to_pylist(), batch["task"].to_pylist(), strict=True):
                done = call(common, task, str(here.taskAttemptId()))
                arrays = [pa.array([at], pa.int32()), pa.array([done], pa.binary())]
                yield pa.RecordBatch.from_arrays(arrays, names=["id", "done"])

    return do


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

"""A Spark whose driver is behind an address: Spark Connect.

It takes plans of DataFrames, no plain functions, so the tasks are rows of a small one, each a partition of its own, and a function over
Arrow batches does them. What all tasks know is in that function, which Spark sends to an executor once a stage.
"""

from __future__ import annotations

import pickle
import secrets
import socket
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ddcli.errors import DdError, EngineError, UsageError
from ddcli.job.options import REMOTE
from ddcli.progress import SILENT
from ddcli.runtime.spark.session import share, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from ddcli.job.options import SparkOptions
    from ddcli.progress import Progress
    from ddcli.runtime.spark.session import Function

PORT = 15002
"""Where Spark Connect listens if nothing else is said."""
PATIENCE = 10
"""Seconds in which an address must answer."""
RETRIES = 5
"""Attempts, over 17 seconds in all, to reach a server that was there before; pyspark's own 15 take ten minutes."""
TELLING = "spark.sql.execution.pyspark.udf.faulthandler.enabled", "true"
"""A process that crashes says at which line."""
DONE = "id int, done binary"
GONE = ("RETRIES_EXCEEDED", "StatusCode.UNAVAILABLE", "INVALID_HANDLE")
"""What is in the errors of a server, or of its session, that is not there any more."""


class Connect:
    """A Spark by a session of Spark Connect (the protocol `Spark`)."""

    page = None

    def __init__(self, session: Any, *, owned: bool) -> None:
        self.session = session
        self.owned = owned

    @cached_property
    def slots(self) -> int:
        """How many tasks are done at once. A client isn't told; but a range without more ado has as many partitions."""
        from pyspark.sql.connect import functions

        try:
            parts = self.session.range(1 << 12).select(functions.spark_partition_id().alias("at"))
            return int(parts.agg(functions.max("at")).collect()[0][0]) + 1
        except Exception as error:
            raise self._told(error) from error

    def task_memory(self, here: int) -> int:
        try:
            settings = self.session.conf.getAll
        except Exception as error:
            raise self._told(error) from error
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
        session.addTag(about.replace(",", ";"))  # what its pages show of a job; no tag has a comma
        try:
            with self._followed(len(tasks), progress):
                frame = session.createDataFrame(rows).repartitionById(len(tasks), "id")
                done = frame.mapInArrow(_doing(pickle.dumps(function), common), DONE).toArrow()
        except KeyboardInterrupt:
            session.interruptTag(tag)
            raise
        except Exception as error:
            raise self._told(error) from error
        finally:
            session.clearTags()
        found: dict[int, bytes] = dict(zip(done["id"].to_pylist(), done["done"].to_pylist(), strict=True))
        return [found[at] for at in range(len(tasks))]

    @contextmanager
    def _followed(self, tasks: int, progress: Progress) -> Iterator[None]:
        """Tell how far the tasks are, where somebody listens, as the server tells with its answers."""

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

    def _told(self, error: Exception) -> DdError:
        if any(word in str(error) for word in GONE):
            return EngineError(
                "Spark does not answer any more, or somebody ended its session",
                place=self.master,
                hint="nothing of this run is visible; run again when it is there",
            )
        return told(str(error))

    def close(self) -> None:
        if self.owned:
            self.session.stop()


def _doing(function: bytes, common: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what does the tasks of a partition. It is sent as it is: what it needs of ddcli is found when it runs."""

    def do(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import pickle

        import pyarrow as pa
        from pyspark import TaskContext

        # A task has one core; what it calls would take them all.
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

    Raises UsageError where a package is missing, the address is none or a setting can't be made, EngineError where nobody answers.
    """
    address = options.master or ""
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        hint = "pip install 'ddcli[spark]'"
        raise UsageError(f"Spark Connect needs more packages: {error}", place=address, hint=hint) from error
    _reach(address)
    try:
        session = SparkSession.builder.remote(address).create()
        session.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
        session.conf.set(*TELLING)
    except Exception as error:
        raise EngineError(
            f"Spark Connect does not start: {told(str(error)).problem}", place=address, hint="is a server there?"
        ) from error
    found = Connect(session, owned=True)
    for name, value in options.conf.items():
        try:
            session.conf.set(name, value)
        except Exception as error:
            found.close()
            hint = "a server has its settings from its start: leave it out, or give it to the server"
            raise UsageError(
                f"the setting {name} can't be made: {told(str(error)).problem}", place=address, hint=hint
            ) from error
    return found


def _reach(address: str) -> None:
    """Refuse an address where nobody answers: pyspark itself would try for ten minutes."""
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

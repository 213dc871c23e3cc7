"""Tasks on Spark. Nothing else of the program knows of it.

Spark schedules tasks, does failed ones again, and brings small results back. It sees no rows: tasks read and write files
themselves, so no Spark type ever meets one of ours. What is here is the same wherever Spark's driver is: in this process (`classic`),
or behind an address (`connect`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from ddcli.errors import DdError, EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.progress import Progress

    Function = Callable[[bytes, bytes, str], bytes]

PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?P<stack>(?:[ \t].*\n|\n)*)(?P<said>\S.*)")
SIZE = re.compile(r"(\d+)([kmgt]?)b?")
LEAST_OVERHEAD = 384 << 20
"""What Spark gives executors beside the heap at the least."""
MAPPED = 1200 << 20
"""Address space of a task's process that is not resident: libraries, stacks of threads, arenas. Measured; `BASE` is resident."""
JVM = 512 << 20
"""What an executor's JVM has resident when it only starts Python processes and carries small results."""
MISMATCH = re.compile(r"\[PYTHON_VERSION_MISMATCH\] .*?: (\S+) than that in driver: ([\d.]+\d)")
LOST = re.compile(r"Lost task .*?\((?P<host>\S+) executor \S+\): (?P<why>.*)")
CONDITION = re.compile(r"\[[A-Z][A-Z_.]+\].*")
KILLED = re.compile(
    r"exit(?:ed with)? (?:code|status):? (?:137|52)\b|OutOfMemory|out of memory|OOM|Container killed", re.IGNORECASE
)
"""What tells that a process had too little memory: the system's killer, Spark's own end on a full heap, YARN, Kubernetes."""
NO_MEMORY = re.compile(
    r"^(?:\S*\.)?\w*MemoryError\b|Cannot allocate memory|failed to map segment|can't start new thread", re.MULTILINE
)
"""What a process says that has reached its limit of address space, which is what `spark.executor.pyspark.memory` sets."""
NO_PYTHON = re.compile(r'Cannot run program "(.*?)"')
DIED = "Python worker exited unexpectedly"
CRASHED = re.compile(r"Fatal Python error: (?P<what>.*)\n(?:.*\n)*?Current thread .*\n(?P<stack>(?:  File .*\n)*)")
FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
AGAIN = "nothing of this run is visible; run again"
LESS = (
    "nothing of this run is visible; give executors more with --conf spark.executor.memoryOverhead=... (or spark.executor.pyspark.memory, "
    "if you set that), or tasks less with more shards, on a local master with --memory"
)


class Spark(Protocol):
    """A Spark that does tasks (the driver's protocol `Cluster`). One that was started here is stopped in the end."""

    @property
    def slots(self) -> int:
        """Return how many tasks it does at once."""

    @property
    def master(self) -> str:
        """Return where it is."""

    def task_memory(self, here: int) -> int:
        """Return the bytes that a task may have, where all that is done on this machine may have `here`."""

    @property
    def page(self) -> str | None:
        """Return the address of its pages for people."""

    def run(
        self, function: Function, common: bytes, tasks: Sequence[bytes], about: str, progress: Progress
    ) -> list[bytes]:
        """Return what `function(common, task, attempt)` gives for each task; `attempt` is a name that no other attempt has."""

    def close(self) -> None:
        """Let go of what was sent to executors, and of Spark, if it was started here."""


def share(settings: Mapping[str, str], cores: int, slots: int, here: int) -> int:
    """Return the bytes that a task may have: of this machine, or of an executor that does `cores` tasks at once.

    Rows are in Python processes, outside of the JVM's heap: what limits them is `spark.executor.pyspark.memory`, which counts what
    is mapped, or what an executor has in all, as YARN and Kubernetes hold it to. Of that the JVM takes little, as it never sees a row.

    >>> conf = {"spark.master": "yarn", "spark.executor.memory": "8g", "spark.executor.memoryOverhead": "2g"}
    >>> share(conf, 4, 100, 0) >> 20
    2432
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
    said = settings.get("spark.executor.memoryOverhead")
    whole = heap + (bytes_of(said) if said else max(LEAST_OVERHEAD, int(heap * factor)))
    return max(whole - JVM, whole // 2) // cores


def bytes_of(text: str) -> int:
    """Return the bytes of a size as Spark's settings have it: a number alone counts MiB.

    >>> bytes_of("512m") == bytes_of("512"), bytes_of("2gb") >> 30
    (True, 2)
    """
    number, unit = SIZE.fullmatch(text.strip().lower()).groups()  # type: ignore[union-attr] # Spark has refused others
    return int(number) << {"k": 10, "m": 20, "g": 30, "t": 40}[unit or "m"]


def told(text: str) -> DdError:
    """Return what a person needs of an error of Spark, which may be 12 kB of Java: one line.

    >>> print(told("Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.1 executor 2): ExecutorLostFailure (killed)").problem)
    an executor was lost: ExecutorLostFailure (killed)
    """
    python = list(PYTHON.finditer(text))
    if python:
        said = python[-1]["said"].strip()
        other = MISMATCH.search(said)
        if other:
            return EngineError(
                f"executors have Python {other[1]}, and this is {other[2]}",
                hint="have the same minor version everywhere, and name it with PYSPARK_PYTHON",
            )
        if NO_MEMORY.search(text):
            what = f": {said.partition(': ')[2]}" if "MemoryError: " in said else ""
            return EngineError(f"a task ran out of memory{what}", hint=LESS)
        if said.startswith("ModuleNotFoundError"):
            return EngineError(
                f"a Python process of an executor lacks a package: {said.partition(': ')[2]}",
                hint="install ddcli and what it needs there, and name that Python with PYSPARK_PYTHON",
            )
        return EngineError(f"a task failed: {said}", hint=AGAIN)
    lost = list(LOST.finditer(text))
    if lost:
        on, why = f" on {lost[-1]['host']}", lost[-1]["why"].strip()
        if DIED in why:
            return _died(text, on)
        no_python = NO_PYTHON.search(why)
        if no_python:
            return EngineError(
                f"there is no Python{on} at {no_python[1]}", hint="name one that is, with PYSPARK_PYTHON"
            )
        if KILLED.search(why):
            return EngineError(f"a process of an executor ran out of memory: {why}", hint=LESS)
        what = "an executor was lost" if "ExecutorLost" in why or "exited" in why else "a task failed"
        return EngineError(f"{what}: {why}", hint=f"{AGAIN}, perhaps with more memory or less at once")
    condition = CONDITION.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason was given"]
    java = next((line for line in lines if line.startswith(": ")), lines[0])  # what py4j has from Java
    return EngineError(condition[0] if condition else java.removeprefix(": "))


def _died(text: str, on: str) -> EngineError:
    """Return what to tell of a Python process that ended by itself or was killed: where it was, if it had the time to say so."""
    crashed = CRASHED.search(text)
    if crashed is None:
        problem = f"a Python process of an executor was killed{on}, or ended itself: perhaps it ran out of memory"
        return EngineError(problem, hint=LESS)
    frames = FRAME.findall(crashed["stack"])
    # Innermost first. What our code has called is a file of the pipeline's functions, or a package: the innermost line there tells most.
    ours = next((at for at, (file, _, _) in enumerate(frames) if "/ddcli/" in file), len(frames))
    called = frames[max(ours - 1, 0)][0] if frames else None
    file, line, function = next((frame for frame in frames if frame[0] == called), ("?", "?", "?"))
    problem = f"a Python process of an executor crashed{on}: {crashed['what']}, in {function} at {file}:{line}"
    # Compiled code that gets no memory aborts.
    return EngineError(problem, hint=LESS if crashed["what"] == "Aborted" else AGAIN)

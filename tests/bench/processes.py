"""Run a program and say what it took: as the system counted it for that one process when it ended."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent.parent
# Linux counts the peak in kilobytes, macOS in bytes.
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024
# Settings of whoever measures that would slow a program down: without its bytecode kept, each run of ours would compile
# all of its own sources again, while installed peers have theirs.
UNUSUAL = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME"}


@dataclass(frozen=True, slots=True)
class Run:
    """What one process took: seconds of the clock and of the processors, bytes resident at its peak; and what it said."""

    wall: float
    cpu: float
    peak: int
    stdout: str
    stderr: str


def measure(command: list[str], environment: dict[str, str] | None = None) -> Run:
    """Run `command` from the project's root to its end; raises RuntimeError with its stderr where it fails.

    What earlier runs left to be written goes to disk first, so that no run pays for another's output. A small process in
    between starts the program: a new process counts the memory of the one that it was forked from as its own peak, and
    ours may have grown large while it compared results.
    """
    os.sync()
    with tempfile.TemporaryDirectory() as folder:
        result, out, err = (Path(folder) / name for name in ("result", "stdout", "stderr"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            launcher = [sys.executable, "-I", "-S", __file__, str(result), *command]
            status = subprocess.run(
                launcher,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={name: value for name, value in (environment or os.environ).items() if name not in UNUSUAL},
                check=False,
            ).returncode
        if status:
            raise RuntimeError(f"{' '.join(command)} ended with {status}:\n{err.read_text()}{out.read_text()}")
        return Run(*json.loads(result.read_text()), out.read_text(), err.read_text())


class ProcessorTime:
    """The seconds of processors that this process has taken so far, and all that it has started, also those that have ended.

    A thread looks every fifth of a second, as the system forgets some: pyspark's daemon ignores the signal of a worker that ends, so nobody is told its time.
    """

    def __init__(self, but: Iterable[int] = ()) -> None:
        self._but = frozenset(but)
        """Processes that don't count, nor those that they have started."""
        self._known: dict[tuple[int, int], float] = {}
        self._own = 0.0
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def seconds(self) -> float:
        """Return the seconds so far, without what looking has taken."""
        with self._lock:
            self._look()
            return sum(self._known.values()) - self._own

    def _watch(self) -> None:
        while True:
            time.sleep(0.2)
            with self._lock:
                self._look()
                self._own = time.thread_time()

    def _look(self) -> None:
        present = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has just ended
                fields = path.read_text().rpartition(")")[2].split()
                spent = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                present[int(path.parent.name)] = int(fields[1]), int(fields[19]), spent
        for process, (_, began, spent) in present.items():
            if (process, began) in self._known or self._is_ours(process, present):
                self._known[process, began] = spent

    def _is_ours(self, process: int, present: dict[int, tuple[int, int, float]]) -> bool:
        while process in present and process not in self._but:
            if process == os.getpid():
                return True
            process = present[process][0]
        return False


def peak_of_this_process() -> int:
    """Return the bytes that were resident here at most, so far: what comes after is not counted."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT


def python(*arguments: str | Path) -> list[str]:
    """Return the command that runs this Python."""
    return [sys.executable, *map(str, arguments)]


def dd(*arguments: str | Path) -> list[str]:
    """Return the command that runs our `dd`, as its script does, on the sources of this tree."""
    return python("-c", "from ddcli.cli.coreutils import main; main()", *arguments)


def launch(result: str, command: list[str]) -> int:
    """Run `command`, write what it took to the file `result`, and return its exit code."""
    start = time.perf_counter()
    process = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(process, 0)
    wall = time.perf_counter() - start
    Path(result).write_text(json.dumps([wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * PEAK_UNIT]))
    return abs(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1], sys.argv[2:]))

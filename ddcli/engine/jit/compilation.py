"""Compilation: processes that compile kernels one after the other in the background, while this one continues.

The kernel of the newest call comes next; the others that a first run calls follow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ddcli.engine.jit.registry import KernelError
from ddcli.engine.jit.settings import AARCH64, V3, announce, targets

if TYPE_CHECKING:
    from collections.abc import Mapping

PROCESSES = min(4, os.cpu_count() or 1)
REPORTED = 5.0
"""Seconds between two reports to who waits."""


class Compiler:
    """A process that compiles kernels for a target into files of a folder. It ends when this one does, but for the kernel that it is at."""

    def __init__(self, target: str, folder: Path) -> None:
        """Start it in the folder: where it is, numba looks for its settings."""
        self.folder = folder
        # We may have been found through a folder that is not on the path any more: that of `python -m`.
        ours = str(Path(__file__).parents[3])
        settings = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, (*sys.path, ours)))
        if target in {V3, AARCH64}:  # ARM's vectors are as long as those that all of x86-64 have
            settings |= {"NUMBA_CPU_NAME": V3 if target == V3 else "x86-64", "NUMBA_CPU_FEATURES": ""}
        self.complaints: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        # -P: the sources are this process's, not modules in the current folder.
        command = [sys.executable, "-P", "-m", f"{__package__}.compile", *([target] if target == AARCH64 else [])]
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(  # noqa: S603 - this Python, our own module
                command, env=settings, cwd=folder, stdin=pipe, stdout=pipe, stderr=self.complaints, text=True
            )
        except OSError as error:
            raise failure(str(error)) from error

    def compile(self, kernel: str, file: str) -> None:
        """Compile a kernel into a file. Raises KernelError with the compiler's own words; the process has ended then."""
        asked, answers = self.process.stdin, self.process.stdout
        assert asked is not None
        assert answers is not None
        with suppress(BrokenPipeError):
            asked.write(f"{kernel}={file}\n")
            asked.flush()
        if any(line == f"{kernel}\n" for line in answers):
            return
        self.process.wait()
        self.complaints.seek(0)
        raise failure(self.complaints.read().strip()[-2000:])

    def close(self) -> None:
        """End it."""
        self.process.communicate()
        self.complaints.close()


def failure(why: str) -> KernelError:
    """Return the error for a compiler that failed."""
    hint = "set DDCLI_KERNELS=python to run without compiled kernels (slow)"
    return KernelError(f"kernels could not be compiled: {why}", hint=hint)


class Compilation:
    """The kernels that are to be compiled for this processor, each into a file, and the threads that have it done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, Path] = {}
        self._ends: dict[Path, Future[None]] = {}
        self._threads = 0
        self._wanted = self._made = 0
        """The kernels that were to be compiled since the last time that none was missing, and the compiled ones among them."""
        self._begun = self._reported = 0.0

    def begin(self, kernel: str, files: Mapping[str, Path]) -> Future[None]:
        """Return the end of the compilation of a kernel into its file; all that `files` names follows. It raises KernelError if it can't be."""
        with self._lock:
            new = [name for name, path in files.items() if path not in self._ends or self._ends[path].done()]
            self._ends |= {files[name]: Future() for name in new}
            if not self._waiting and not self._threads:
                self._wanted = self._made = 0
                self._begun = self._reported = time.monotonic()
            if new and not self._wanted:
                announce(
                    f"compiling {len(new)} kernel{'s' * (len(new) > 1)}, once on this machine; small steps don't wait for them"
                )
            self._wanted += len(new)
            next_ones = {name: path for name, path in files.items() if not self._ends[path].running()}
            self._waiting = next_ones | self._waiting
            while self._threads < min(PROCESSES, len(self._waiting)):
                self._threads += 1
                threading.Thread(target=self._work, daemon=True).start()
            return self._ends[files[kernel]]

    def wait_for(self, end: Future[None]) -> None:
        """Return when a compilation has ended, which comes next; reports meanwhile what is compiled. Raises KernelError if it failed."""
        with self._lock:
            first = {name: path for name, path in self._waiting.items() if self._ends[path] is end}
            self._waiting = first | self._waiting
        while True:
            if wait((end,), REPORTED).done:
                return end.result()
            with self._lock:
                now = time.monotonic()
                if now >= self._reported + REPORTED:
                    self._reported = now
                    announce(f"compiling kernels: {self._made} of {self._wanted} after {now - self._begun:.0f} s")

    def _work(self) -> None:
        """Compile the waiting kernels, the first first, until none waits."""
        compiler: Compiler | None = None
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    break
                kernel = next(iter(self._waiting))
                path = self._waiting.pop(kernel)
                end = self._ends[path]
                end.set_running_or_notify_cancel()
            try:
                if compiler is None or compiler.folder != path.parent:
                    compiler = Compiler(targets()[0], path.parent)
                compiler.compile(kernel, path.name)
            except BaseException as error:  # noqa: BLE001 - who waits is to have it
                compiler = None
                end.set_exception(error)
            else:
                with self._lock:
                    self._made += 1
                end.set_result(None)
        if compiler is not None:
            compiler.close()


COMPILATION = Compilation()
"""That of this process."""

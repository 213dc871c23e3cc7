"""The process of a command: without most of the time that Python spends on itself at the start and the end, and with freed memory reused.

A run makes and drops matrices of hundreds of megabytes. Giving each back to the system and asking for the next costs more than
half of a large run's time in page faults; a command ends soon, and returns everything then.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
from typing import NoReturn

from ddcli.cli.startup.library_parts import defer

PLAIN = "DDCLI_PLAIN_START"
"""A variable: with any value, imports and the end of the process are Python's own. It shows whether a fault comes from ours."""
OPENBLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""OpenBLAS's threads spin while numpy is imported (50 ms of processor time). Rows are computed in threads of ours, one for each processor, in any case."""
YOUNG = 200_000
"""New objects after which Python looks for cycles: with its own 700 to 2 000 it would look some 300 times during imports, which make 100 000 objects."""


def run_and_leave() -> NoReturn:
    """Run the command line and end the process with its exit code, as soon as its output is flushed.

    Python would first release modules, the libraries' tables and every value of the run (0.25 s of a run over 10 M rows). The necessary
    work of an end is done: exit handlers are called, and buffers are written.
    """
    _take_streams()
    gc.set_threshold(YOUNG)
    os.environ.setdefault(OPENBLAS_THREADS, "1")
    if os.environ.get(PLAIN):
        _run_plainly()
    defer()
    from ddcli.cli.main import main  # not before: it imports parts that may wait

    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    atexit._run_exitfuncs()  # noqa: SLF001 - the interpreter's own call, which `os._exit` leaves out; there is no public one
    os._exit(flushed() or code)


def _run_plainly() -> NoReturn:
    """Run the command line, and let Python end the process."""
    from ddcli.cli.main import main

    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    if failed := flushed():
        os._exit(failed)  # Python would try to write it again, and end with a code of its own
    sys.exit(code)


def _take_streams() -> None:
    """Open the numbers of stdin, stdout and stderr where a caller has closed them: a file that gets one of them would have messages in it.

    This comes before any other file is opened, which could have such a number for a while.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the least number that is free


def flushed() -> int:
    """Flush stdout and stderr; return 0, or the exit code if that fails."""
    from ddcli.cli.main import NO_READER, unwritten

    code = 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BrokenPipeError:
            code = NO_READER
        except OSError as error:
            os.write(2, f"{unwritten(error)}\n".encode())
            code = 5
    return code


M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # parameters of glibc's mallopt
SETTING, LEFT = "_RJEM_MALLOC_CONF", "dirty_decay_ms:500,muzzy_decay_ms:1000"
"""The setting of polars' allocator, and its value that polars' import sets, which processes started by a program with polars inherit."""
SHARED = f"{LEFT},narenas:"
"""The beginning of our own setting; the number of arenas follows."""


def keep_freed_memory() -> None:
    """Have the allocators of numpy (glibc's) and polars (jemalloc) keep freed memory, the latter for a second. Call it before polars is imported.

    If polars kept its freed memory for ever, a load of 10 M rows would have 1.42 GB resident instead of 1.12, and with 400 MiB allowed 720 MB instead of 490, in the same time.

    All threads and libraries should be able to use kept memory: so pyarrow takes its memory from glibc, too, and all threads take it from one
    arena. Else each keeps the memory that it once used: a run with 300 MiB allowed had 438 resident, and now has 349.
    Without glibc, numpy's memory is handled as usual. polars would have four arenas a processor: with one for two processors, a sum of
    6 M rows had 0.34 GB resident instead of 0.40, in the same time.
    """
    from ddcli.engine.workers import processors

    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _set(f"{SHARED}{max(1, processors() // 2)}")
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(M_ARENA_MAX, 1)


def give_freed_memory_back() -> None:
    """Have polars' allocator return freed memory at once. Call it before polars is imported.

    With a small limit, caches are most of the process's memory: without this, a comparison under a limit of 384 MiB had 550 resident,
    with it 411, for a third more time.
    """
    _set("dirty_decay_ms:0,muzzy_decay_ms:0")


def _set(setting: str) -> None:
    """Set polars' allocator, unless the user has set it."""
    made = os.environ.get(SETTING, LEFT)
    if made == LEFT or made.startswith(SHARED):
        os.environ[SETTING] = setting

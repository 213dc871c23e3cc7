"""The wait for changes of files: notified by the system if it can, else by a look every few seconds.

Network file systems and object stores send no notifications, and a link's target may be anywhere. So the wait looks for changes
by itself, too; the system's notification only makes it quicker.
"""

from __future__ import annotations

import threading
import time
from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.store.files.access import fs, real

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


QUIET = 1.0
"""Seconds without a change after which a text file counts as written."""
MAGIC, ENCRYPTED, ARROW = b"PAR1", b"PARE", b"ARROW1"
LEAST = 12
"""Bytes of the smallest Parquet file: its magic twice, and the size of its footer."""
PARQUET_ENDINGS, ARROW_ENDINGS = (".parquet", ".parq", ".pq"), (".arrow", ".ipc", ".feather")


@dataclass
class Wholeness:
    """Decides whether files are whole, and reports each that lacks its end, once."""

    tell: Callable[[Path], None]
    unsettled: bool = False
    """True: one of them may be whole soon, without a further change."""
    _reported: set[Path] = field(default_factory=set)

    def __call__(self, path: Path) -> bool:
        """Return whether a file is whole."""
        try:
            whole = fs(path).is_durable or self._is_whole(path)
        except OSError:
            return True  # it can't be read: its reader reports why
        if path.suffix.lower() not in (*PARQUET_ENDINGS, *ARROW_ENDINGS):
            self.unsettled = self.unsettled or not whole
        elif whole:
            self._reported.discard(path)
        elif path not in self._reported:
            self._reported.add(path)
            self.tell(path)
        return whole

    def _is_whole(self, path: Path) -> bool:
        if path.suffix.lower() in (*PARQUET_ENDINGS, *ARROW_ENDINGS):
            return _ends(path)
        return abs(time.time() - path.stat().st_mtime) >= QUIET


def has_end(path: Path) -> bool:
    """Return whether a file is of a kind that has an end, and has it; an unreadable file has none."""
    try:
        return path.suffix.lower() in (*PARQUET_ENDINGS, *ARROW_ENDINGS) and _ends(path)
    except OSError:
        return False


def _ends(path: Path) -> bool:
    """Return whether a Parquet or Arrow file has its end."""
    return _is_parquet(path) if path.suffix.lower() in PARQUET_ENDINGS else _begins_and_ends(path, ARROW)


def _is_parquet(path: Path) -> bool:
    size = path.stat().st_size
    if size < LEAST:
        return False
    with path.open("rb", buffering=0) as file:
        first = file.read(4)
        file.seek(size - 8)
        length, last = int.from_bytes(file.read(4), "little"), file.read(4)
    return first == last and last in {MAGIC, ENCRYPTED} and LEAST + length <= size


def _begins_and_ends(path: Path, magic: bytes) -> bool:
    size = path.stat().st_size
    with path.open("rb", buffering=0) as file:
        first = file.read(len(magic))
        file.seek(max(0, size - len(magic)))
        return size >= 2 * len(magic) and first == file.read(len(magic)) == magic


PATIENCE = 1.0
"""Seconds between looks for a commit: not every file system notifies of changes, and an object store never does."""
STEP = 1
"""Milliseconds without a change after which a change is reported: files that are renamed together come together."""


class Waker:
    """Waits for changes in directories, no longer than `patience` seconds at a time, or until `stop` is set."""

    def __init__(self, patience: float, stop: threading.Event | None = None) -> None:
        self.patience = patience
        self.stop = stop or threading.Event()
        self._watched: frozenset[Path] = frozenset()
        self._changes: Iterator[object] | None = None

    def wait(self, directories: Iterable[Path], most: float | None = None) -> None:
        """Return when something may have changed below one of the directories, or when it is time to look; at most `most` seconds."""
        if most is not None and most < self.patience:
            self.stop.wait(most)
            return
        here = [path for path in directories if fs(path).is_local]
        there = frozenset(real(path) for path in here if path.is_dir())
        if not there:
            self.stop.wait(self.patience)
            return
        if self._changes is None or there != self._watched:
            self._watched, self._changes = there, self._watch(there)
        if next(self._changes, None) is None:  # stopped, or a directory went away
            self._changes = None

    def _watch(self, directories: Iterable[Path]) -> Iterator[object]:
        """Watch from now on: a change between two waits is not missed."""
        from watchfiles import watch

        return watch(
            *directories,
            watch_filter=None,
            debounce=500,
            step=STEP,
            stop_event=self.stop,
            rust_timeout=max(1, int(self.patience * 1000)),
            yield_on_timeout=True,
            raise_interrupt=True,
        )


def commits(state: Path, refresh: Callable[[], bool], count: int | None, timeout: float | None) -> Iterator[None]:
    """Yield at once, and then whenever `refresh` returns that it has moved to a newer commit: `count` times, or for `timeout` seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    yield
    left, waker = count, Waker(PATIENCE)
    while left is None or left > 0:
        rest = None if end is None else end - time.monotonic()
        if rest is not None and rest <= 0:
            return
        waker.wait([state / "manifest"], rest)
        if refresh():
            left = None if left is None else left - 1
            yield

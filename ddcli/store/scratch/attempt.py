"""The files of one attempt at a task, for a transaction that is open elsewhere.

Batches have their own names at once, as no manifest names them yet; the parts of outputs have temporary ones. No reader opens files that
the transaction doesn't adopt, because the attempt failed or another was quicker: the next sweep removes them.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import DdError
from ddcli.store.files.gate import Files, PendingWrites, Written, temporary
from ddcli.store.state.contents import batch_directory

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Attempt:
    """Writes files for the commit with a number into a state's directory and those of outputs; `name` is no other attempt's.

    Objects are on their way while the task continues: it has to `finish` the attempt before it hands over their names.
    """

    directory: Path
    number: int
    name: str
    files: Files = field(default_factory=Files)
    _batches: list[Path] = field(default_factory=list)
    _pending: PendingWrites = field(init=False)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._pending = PendingWrites(self.files)

    def finish(self) -> list[Path]:
        """Wait for all writes, and raise the first error; return the paths of the batch files."""
        self._pending.finish()
        return self._batches

    def abandon(self) -> list[Path]:
        """Wait for all writes, also those that fail; return the paths of the batch files, for their removal."""
        with suppress(DdError, OSError):
            self._pending.finish()
        return self._batches

    def add_batch(self, arrangement: str, shard: int, data: bytes | memoryview) -> tuple[str, Written]:
        """Write a batch file of an arrangement's shard; return its name, and its size and checksum."""
        path = batch_directory(self.directory, arrangement, shard) / f"{self._next()}.parquet"
        self._batches.append(path)
        return path.name, self._write(path, data)

    def add_output(self, directory: Path, data: bytes | memoryview) -> tuple[Path, Written]:
        """Write a file of an output; return its temporary path, and its size and checksum."""
        waiting = temporary(directory / f"{self._next()}.parquet", self.number)
        return waiting, self._write(waiting, data)

    def _next(self) -> str:
        with self._lock:
            self._count += 1
            return f"{self.number:09d}-{self.name}-{self._count:04d}"

    def _write(self, path: Path, data: bytes | memoryview) -> Written:
        self.files.make_directory(path.parent)
        written = self._pending.add(path, data)
        self.files.sync(path)  # here: the machine that commits may have no part in these bytes
        return written

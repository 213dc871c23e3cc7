"""A directory of Parquet as the target of changes, with a file for each delivery."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from ddcli.errors import EngineError, StateError
from ddcli.feed.target import Subscription, check_subscription, numbered, overtaken
from ddcli.store.files.gate import TEMPORARY
from ddcli.store.state.names import count_of

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.feed.target import Delivery

META = b"dd.feed"
"""The key of a file's positions and subscription in its metadata."""
NAME = re.compile(r"changes-([0-9]{9,19})\.parquet", re.ASCII)
WAITING = re.compile(rf"\.{NAME.pattern}\.[0-9a-f]{{8}}{re.escape(TEMPORARY)}", re.ASCII)
"""The name of a file until it is whole."""


class ParquetFeed:
    """A directory of Parquet with a file for each delivery, named by the position where it begins, so that no two begin at the same one.

    A file appears whole, under a name that must be new. A reader of all files, through a glob, sees whole deliveries.
    """

    def __init__(self, path: Path, subscription: Subscription) -> None:
        self.path, self.place = path, str(path)
        self._subscription = subscription

    def position(self) -> int:
        """Return the position at the end of the last file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            names = [name for name in os.listdir(self.path) if NAME.fullmatch(name)]  # noqa: PTH208 - names are enough
            if not names:
                return 0
            last = self.path / max(names, key=lambda name: int(NAME.fullmatch(name)[1]))  # type: ignore[index]
            metadata = pq.read_metadata(last).metadata or {}
            tree = json.loads(metadata[META])
            position, found = count_of(tree["position"]), tuple(tree[name] for name in Subscription._fields)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StateError(f"the target can't be read: {error.strerror}", place=self.place) from None
        except (pa.ArrowException, KeyError, ValueError, TypeError, RecursionError):
            hint = "deliver to another directory, or remove the file if it does not belong here"
            raise StateError("`dd feed` did not write this file of changes", place=str(last), hint=hint) from None
        check_subscription(found, self._subscription, self.place)
        return position

    def add(self, delivery: Delivery) -> None:
        """Add a file, which is flushed before it gets its name."""
        import pyarrow.parquet as pq

        if self.position() != delivery.since:
            raise overtaken(self.place)
        tree = self._subscription._asdict() | {"since": delivery.since, "position": delivery.position}
        table = numbered(delivery).to_arrow()
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), META: json.dumps(tree)})
        final = self.path / f"changes-{delivery.since:09d}.parquet"
        waiting = self.path / f".{final.name}.{os.urandom(4).hex()}{TEMPORARY}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                with waiting.open("xb") as file:
                    pq.write_table(table, file, compression="zstd")
                    file.flush()
                    os.fsync(file.fileno())
                final.hardlink_to(waiting)
                _flush(self.path)
            finally:
                for path in (waiting, *self._unfinished()):
                    path.unlink(missing_ok=True)
        except (FileExistsError, FileNotFoundError):
            raise overtaken(self.place) from None
        except OSError as error:
            raise EngineError(f"the changes can't be written: {error.strerror}", place=self.place) from None

    def _unfinished(self) -> list[Path]:
        """Return the unfinished files of processes that died, or were overtaken by another."""
        return [self.path / name for name in os.listdir(self.path) if WAITING.fullmatch(name)]  # noqa: PTH208 - as above


def _flush(directory: Path) -> None:
    """Flush a directory's names to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""A tree that nobody may touch: it lies around a shop, with names that look like ours in it; and all of the shop but its rooms."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILES = {
    ".profile": b"export PATH=/usr/bin\n",
    "docs/letter.txt": b"dear reader\n",
    "docs/000000": b"what a scratch file is called\n",
    "people/0/000000001-0000.parquet": b"what a batch is called\n",
    "0/000000001-0000.parquet": b"what a batch is called\n",
    "000000001-0000.parquet": b"what a batch is called\n",
    ".000000001-0000.parquet.000000001.dd-tmp": b"what a batch is called that waits\n",
    "updates-start-2.parquet": b"what a file of an output is called\n",
    ".updates-start-2.parquet.000000001.dd-tmp": b"what a file of an output is called that waits\n",
    "_progress.json": b'{"upper": [[1]]}\n',
    "000000001.json": b"{}\n",
    ".000000002.json.000000002.dd-tmp": b"{}\n",
    "LOCK": b"",
    "reader-12345678.json": b"{}\n",
    "empty": b"",
}
LOOKED_AT = 1 << 24
"""Bytes of a file that are looked at, and its size: a hostile one may be larger than memory."""


@dataclass
class Canary:
    """The files around a shop, as they were."""

    folder: Path
    shop: str = "shop"
    rooms: tuple[str, ...] = ()
    """What in the folder of the shop isn't looked at: there commands write."""
    kept: tuple[str, ...] = ()
    """What is in one of the rooms and must stay all the same."""
    adds: tuple[str, ...] = ()
    """Directories around the shop into which something new may come; what is there must stay."""
    before: dict[str, Any] = field(default_factory=dict)

    @property
    def tree(self) -> Path:
        """The tree that links may lead to."""
        return self.folder / "elsewhere"

    def make(self) -> None:
        """Make the tree."""
        for name, data in FILES.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (self.tree / "empty-directory").mkdir()
        (self.tree / "link").symlink_to("docs")

    def look(self) -> None:
        """Remember what is there."""
        self.before = self.seen()

    def touched(self) -> list[str]:
        """Return what isn't as it was."""
        now = self.seen()
        names = sorted(name for name in self.before.keys() | now.keys() if self.before.get(name) != now.get(name))
        return [name for name in names if not self._may_be_added(name, now)]

    def seen(self) -> dict[str, Any]:
        """Return what tells each file, link and directory: of those around the shop, in it outside of its rooms, and those kept in these."""
        found: dict[str, Any] = {}
        shop = self.folder / self.shop
        for root in (self.folder, *(shop / name for name in self.kept)):
            self._look_at(root, found)
            for directory, names, files in os.walk(root):
                if Path(directory) == shop:
                    names[:] = [name for name in names if name not in self.rooms]
                    files = [name for name in files if name not in self.rooms]
                for name in (*names, *files):
                    self._look_at(Path(directory) / name, found)
        return found

    def _look_at(self, path: Path, found: dict[str, Any]) -> None:
        try:
            status = path.lstat()
        except FileNotFoundError:
            return
        content: object = None
        if stat.S_ISREG(status.st_mode):
            with path.open("rb") as file:
                content = status.st_size, file.read(LOOKED_AT)
        elif stat.S_ISLNK(status.st_mode):
            content = path.readlink()
        grows = path in {self.folder, self.folder / self.shop}  # where a room may be made
        time = None if grows else status.st_mtime_ns
        found[str(path.relative_to(self.folder))] = (status.st_mode, status.st_uid, time, content)

    def _may_be_added(self, name: str, now: dict[str, Any]) -> bool:
        inside = any(name == place or name.startswith(f"{place}/") for place in self.adds)
        was, is_ = self.before.get(name), now.get(name)
        return inside and (was is None or (is_ is not None and stat.S_ISDIR(is_[0]) and was[:2] == is_[:2]))

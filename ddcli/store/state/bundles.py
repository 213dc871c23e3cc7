"""Bundles: the small batch files of one commit, or most of a task's, in one file, so that it costs one write and one flush, not one for each arrangement.

A bundle is a tar archive whose members have the paths that the files would have in the state: `tar -xf` makes Parquet of it that any
reader opens. The manifest has, for each batch in a bundle, the bundle and the offset in it. A bundle never changes. It is removed when no manifest
names a batch of it any more; and since most of its batches may be dead long before, a commit copies the live ones of the worst bundle into its own.
Bundles of tasks are as many as these were, and large: tasks empty them, and a commit of one process copies no more of them than it writes itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.store.state.entries import FileEntry

BUNDLES = "bundles"
"""The directory of a state with its bundles."""
FEW = 8
"""The number of a commit's batch files up to which each is a file of its own: these are flushed together in little more time than one."""
SMALL = 64 << 10
"""The bytes of the largest batch file that is put into a bundle."""
FULL = 8 << 20
"""Bytes of new batches that a bundle takes: they are in memory until the commit. Further batches get files of their own."""
MOST = 32
"""Bundles of a state that runs in one process have written: each has to be opened by a run that reads a batch of it."""
SLACK = 1 << 20
"""The bytes of dead batches that may be in bundles, beside as many as are alive."""
BLOCK = 512
"""Bytes of a block of tar: a member's header is one, and its content is filled up to whole ones."""
END = bytes(2 * BLOCK)
NAME, PREFIX = 100, 155
"""The bytes that tar has for the last part of a path, and for the parts before it."""


class Bundle:
    """A bundle in the making."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []

    def add(self, path: str, data: bytes) -> int:
        """Add a file that would have this path in the state; return at which byte it begins."""
        at = self.size + BLOCK
        self._parts += [_header(path, len(data)), data, bytes(-len(data) % BLOCK)]
        self.size += footprint(len(data))
        return at

    def content(self) -> bytes:
        """Return its bytes."""
        return b"".join([*self._parts, END])


def members(content: bytes) -> dict[int, int] | None:
    """Return the size of each member of a bundle by its offset; None where headers, padding or end are not as `Bundle` writes them."""
    found, at = {}, 0
    while any(header := content[at : at + BLOCK]):
        try:
            name, size, folder = header[:NAME], int(header[124:135], 8), header[345 : 345 + PREFIX]
            path = b"/".join(part.rstrip(b"\0") for part in (folder, name)).decode()
        except ValueError:
            return None
        data, end = at + BLOCK, at + footprint(size)
        if header != _header(path, size) or any(content[data + size : end]):
            return None
        found[data], at = size, end
    return found if content[at:] == END else None


def inside(arrangement: str, shard: int, name: str) -> str:
    """Return the path in a state that a batch file has, and its member of a bundle."""
    return f"arrangements/{arrangement}/{shard}/{name}"


def worthwhile(batches: int, *, often: bool) -> bool:
    """Return whether a commit of `batches` batches makes a bundle; if commits come `often`, two batches are enough.

    >>> worthwhile(3, often=False), worthwhile(3, often=True)
    (False, True)
    """
    return batches > (1 if often else FEW)


def fits(path: str, size: int, most: int | None = None) -> bool:
    """Return whether a file may go into a bundle: it has `most` bytes at most, and tar has room for its path."""
    folder, _, name = path.rpartition("/")
    return size <= (SMALL if most is None else most) and len(name) <= NAME and len(folder) <= PREFIX


def alone(file: FileEntry) -> FileEntry:
    """Return the entry of a batch when it has a file of its own."""
    return replace(file, bundle="", at=0) if file.bundle else file


def footprint(size: int) -> int:
    """Return the number of bytes of a bundle that a file of this size takes.

    >>> footprint(1), footprint(512), footprint(513)
    (1024, 1024, 1536)
    """
    return BLOCK - -size // BLOCK * BLOCK


def is_of_task(name: str) -> bool:
    """Return whether a task has written the bundle of this name, which then has the number of its bundle at the end."""
    return "-b" in name


def worn(bundles: Mapping[str, tuple[int, int]], written: int = 0) -> set[str]:
    """Return which bundles, of (bytes, bytes alive), to empty in a commit that has `written` so many bytes itself, those with the smallest part alive first.

    As many as it takes until no more is dead in all others than is alive, `SLACK` aside, and there are no more than `MOST`. Bundles of tasks are judged by
    themselves: they may be any number, and no more than `FULL` bytes of them are copied, or as many as were written.

    >>> worn({"1": (9 << 20, 1 << 20), "2": (9 << 20, 8 << 20), "3": (1 << 20, 1 << 20)})
    set()
    >>> sorted(worn({"1": (12 << 20, 1 << 20), "2": (9 << 20, 8 << 20), "3": (1 << 20, 0)}))
    ['1', '3']
    """
    emptied = set()
    for of_tasks in (False, True):
        some = {name: each for name, each in bundles.items() if is_of_task(name) == of_tasks}
        size, alive = (sum(each[at] for each in some.values()) for at in (0, 1))
        left, room = len(some), max(FULL, written)
        for name in sorted(some, key=lambda name: (bundles[name][1] / max(1, bundles[name][0]), name)):
            if size <= 2 * alive + SLACK and (of_tasks or left <= MOST):
                break
            room -= some[name][1]
            if of_tasks and room < 0:
                break
            size, left = size - (some[name][0] - some[name][1]), left - 1
            emptied.add(name)
    return emptied


def _header(path: str, size: int) -> bytes:
    """Return the header of a member, as POSIX has it: a plain file that its owner may write and all may read, of no time and no owner."""
    folder, _, name = path.rpartition("/")
    fields = [name.encode().ljust(NAME, b"\0"), b"0000644\0", b"0000000\0" * 2, b"%011o\0" % size, b"00000000000\0"]
    rest = b"0".ljust(101, b"\0") + b"ustar\x0000".ljust(88, b"\0") + folder.encode().ljust(PREFIX, b"\0")
    before = b"".join(fields)
    total = sum(before) + 8 * ord(" ") + sum(rest)
    return (before + b"%06o\0 " % total + rest).ljust(BLOCK, b"\0")

"""A disk with a journal that loses its power: what may be on it then, of a recorded run.

What is promised: the bytes of a file that was flushed, and the names of a directory that was flushed. Of what came after
the last flush of a directory, its changes may have happened up to any one of them, in their order. A file that was not
flushed may be empty, cut, or full of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ddcli.store.files.gate import Files
from ddcli.store.files.lock import OF_OUTPUT

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


class Operation(NamedTuple):
    """One file operation: what was done to which path; the bytes written or the name given."""

    name: str
    path: Path
    data: bytes = b""
    target: Path | None = None


class Recorder(Files):
    """Does all operations and writes them down."""

    def __init__(self):
        self.log: list[Operation] = []

    def do(self, operation, path, action):
        if operation in {"sync", "remove"} and path.is_dir():
            operation += " directory"
        result = super().do(operation, path, action)
        if path.name != OF_OUTPUT and operation != "open":  # nothing hangs on who wrote an output last
            self.log.append(Operation(operation, path, path.read_bytes() if operation == "write" else b""))
        return result

    def rename(self, source, target):
        super().rename(source, target)
        self.log[-1] = self.log[-1]._replace(target=target)


@dataclass
class File:
    """A file: the bytes that are safe, and those that aren't yet."""

    safe: bytes
    written: bytes | None = None

    def after_loss(self, draw: Random) -> bytes:
        if self.written is None:
            return self.safe
        cut = self.written[: draw.randrange(len(self.written) + 1)]
        return draw.choice([self.safe, cut, bytes(len(self.written)), self.written])


@dataclass
class Directory:
    """A directory: the names that are safe, and the changes since, each a dict of names and what they became."""

    names: dict[str, File | Directory] = field(default_factory=dict)
    changes: list[dict[str, File | Directory | None]] = field(default_factory=list)

    @property
    def now(self) -> dict[str, File | Directory]:
        return self.after(len(self.changes))

    def after(self, count: int) -> dict[str, File | Directory]:
        """Return the names after some of the changes."""
        names = dict(self.names)
        for change in self.changes[:count]:
            names.update(change)
        return {name: thing for name, thing in names.items() if thing is not None}

    @classmethod
    def read(cls, path: Path) -> Directory:
        """Return what is in a folder, all safe."""
        return cls(
            {entry.name: cls.read(entry) if entry.is_dir() else File(entry.read_bytes()) for entry in path.iterdir()}
        )

    def write(self, path: Path, draw: Random) -> None:
        """Write what is left of it after the loss of power into a folder."""
        path.mkdir(exist_ok=True)
        for name, thing in self.after(draw.choice([0, len(self.changes), draw.randint(0, len(self.changes))])).items():
            if isinstance(thing, Directory):
                thing.write(path / name, draw)
            else:
                (path / name).write_bytes(thing.after_loss(draw))


class Disk:
    """The disk under a folder, to which recorded operations are done one by one."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.root = Directory.read(folder)

    def directory(self, path: Path) -> Directory:
        found = self.root
        for name in path.relative_to(self.folder).parts:
            found = found.now[name]
        return found

    def do(self, operation: Operation) -> None:
        name, path, data, target = operation
        if name == "sync directory":
            flushed = self.directory(path)
            flushed.names, flushed.changes = flushed.now, []
            return
        parent = self.directory(path.parent)
        there = parent.now.get(path.name)
        if name == "make":
            parent.changes.append({path.name: Directory()})
        elif name == "write":
            if there is None:
                there = File(b"")
                parent.changes.append({path.name: there})
            there.written = data
        elif name == "sync":
            there.safe, there.written = there.written if there.written is not None else there.safe, None
        elif name == "rename":
            assert target.parent == path.parent, (
                "a rename from one directory to another is two changes that may be parted"
            )
            parent.changes.append({path.name: None, target.name: there})
        else:
            assert name in {"remove", "remove directory"}, name
            parent.changes.append({path.name: None})

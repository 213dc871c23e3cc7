"""The removal of a state and its outputs: first the files in their directories are listed, for a person to look at, then removed under the lock.

Only files with names of ours are removed, from the state's directory and from outputs that are the state's; all other files stay.
Outputs are removed first, and the manifest before all files that it names: an interrupted removal leaves a state that can be removed again.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from itertools import groupby
from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.errors import StateError
from ddcli.store.files.access import fs, locate, real
from ddcli.store.files.gate import Files, one_by_one
from ddcli.store.files.lock import NAME as LOCK
from ddcli.store.files.lock import OF_OUTPUT as LOCK_OF_OUTPUT
from ddcli.store.files.lock import take_lock
from ddcli.store.state.batch_lists import BUNDLES
from ddcli.store.state.consumers import CONSUMERS, read_consumers
from ddcli.store.state.contents import LEDGER, LOGS, SPILL, TABLES_OUT, ours
from ddcli.store.state.directory import read_holds
from ddcli.store.state.document import (
    ARRANGEMENT,
    BATCH,
    BRANCH,
    BRANCHES,
    BUNDLE,
    FOLDER,
    HALF_CONSUMER,
    HALF_HOLD,
    HALF_MANIFEST,
    HALF_VERIFIED,
    HOLD,
    NAMED,
    OF_CONSUMER,
    OF_OUTPUT,
    PART,
    PROGRESS,
    RUN,
    RUNS,
    SCRATCH,
    SEGMENT,
    SHARD,
    TABLE,
    UPDATES,
    VERIFIED,
    WAITING,
    WAITING_FOLDER,
)
from ddcli.store.state.manifest import NAME as MANIFEST
from ddcli.store.state.outputs import output_files, read_owned
from ddcli.store.state.register import SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ddcli.store.files.lock import IfLocked, Lock, ObjectLock
    from ddcli.store.state.manifest import Manifest


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    Layout = list[tuple[re.Pattern[str], "Layout | None"]]


def _either(*forms: str | re.Pattern[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(form) if isinstance(form, str) else form.pattern for form in forms))


_UPDATES: Layout = [(_either(UPDATES, WAITING), None)]
STATE: Layout = [
    (_either(LOCK), None),
    (_either("manifest"), [(_either(MANIFEST, HALF_MANIFEST), None)]),
    (_either(SEGMENTS), [(_either(SEGMENT, WAITING), None)]),
    (_either("arrangements"), [(ARRANGEMENT, [(SHARD, [(_either(BATCH, WAITING), None)])])]),
    (_either(LEDGER), [(_either(BATCH, WAITING), None)]),
    (_either(BUNDLES), [(_either(BUNDLE, WAITING), None)]),
    (_either("holds"), [(_either(LOCK, HOLD, HALF_HOLD), None)]),
    (_either(CONSUMERS), [(_either(LOCK, OF_CONSUMER, HALF_CONSUMER), None)]),
    (_either(RUNS), [(RUN, None)]),
    (_either(VERIFIED, HALF_VERIFIED), None),
    (_either(SPILL), [(SCRATCH, None)]),
    (_either("errors"), [*_UPDATES, (_either("_unparsed"), [(NAMED, _UPDATES)])]),
    (_either("tables"), [(NAMED, [(_either(BATCH, WAITING, TABLE), None)])]),
    (_either(TABLES_OUT), [(NAMED, [(_either(WAITING, TABLE), None)])]),
    (
        _either(LOGS),
        [
            (
                NAMED,
                [
                    (_either(OF_OUTPUT, WAITING, LOCK_OF_OUTPUT), None),
                    (_either(FOLDER, WAITING_FOLDER), [(PART, None)]),
                ],
            )
        ],
    ),
    (_either("late"), [(NAMED, _UPDATES)]),
]
"""The names in the directory of a state: files' names, and directories' with the names in these."""
STATE.append((_either(BRANCHES), [(BRANCH, [*STATE])]))


FILE, DIRECTORY, FOREIGN = range(3)


def find_foreign_files(directory: Path) -> list[Path]:
    """Return the files and directories of a state's directory that have no name of ours, in order; a directory without those inside it."""
    return [path for path, kind in _walked(directory) if kind == FOREIGN]


def _walked(directory: Path, layout: Layout | None = None) -> Iterator[tuple[Path, int]]:
    """Yield the paths in a state's directory, each a file or a directory of ours or foreign: a directory after those inside it, unless it is foreign. An object store has files only."""
    layout = layout or STATE
    if not fs(directory).has_directories:
        for path in sorted(fs(directory).files_below()):
            yield path, FILE if _is_ours(path.parts[len(directory.parts) :], layout) else FOREIGN
        return
    for entry in fs(directory).entries():
        known, below = _find(entry.path.name, layout)
        if not known or not (entry.file if below is None else entry.directory):
            yield entry.path, FOREIGN
        elif below is None:
            yield entry.path, FILE
        else:
            yield from _walked(entry.path, below)
            yield entry.path, DIRECTORY


def _is_ours(names: Sequence[str], layout: Layout) -> bool:
    known, below = _find(names[0], layout)
    return known and (len(names) == 1 if below is None else len(names) > 1 and _is_ours(names[1:], below))


def _find(name: str, layout: Layout) -> tuple[bool, Layout | None]:
    """Return whether a name is in a layout, and, of a directory, the names in it."""
    return next(((True, below) for form, below in layout if form.fullmatch(name)), (False, None))


@frozen
class Removal:
    """The files to remove, of a state and of outputs by name, with their sizes; other files there, which stay; the state's readers."""

    state: Path
    files: Sequence[tuple[Path, int]]
    outputs: Mapping[str, tuple[Path, Sequence[tuple[Path, int]]]]
    left: Sequence[Path]
    readers: Sequence[str]

    @property
    def count(self) -> int:
        """Return the number of files to remove."""
        return len(self.files) + sum(len(files) for _, files in self.outputs.values())

    @property
    def bytes(self) -> int:
        """Return the bytes of the files to remove."""
        return _size(self.files) + sum(_size(files) for _, files in self.outputs.values())

    def to_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "state": {"path": str(self.state), "files": len(self.files), "bytes": _size(self.files)},
            "outputs": {
                name: {"path": str(path), "files": len(files), "bytes": _size(files)}
                for name, (path, files) in self.outputs.items()
            },
            "left": [str(path) for path in self.left],
            "readers": list(self.readers),
        }


def find_removal(directory: Path, manifest: Manifest | None, outputs: Mapping[str, Path]) -> Removal:
    """Return the files of a state and of its pipeline's outputs, as they exist. Raises StateError for an output of another state.

    `manifest` is None if there is none, or it can't be read: then outputs must name this state as their owner themselves.
    """
    directory = real(directory)
    named = {real(path) for path, _ in output_files(directory, manifest)} if manifest else set()
    walked = [*_walked(directory)]
    found, left = {}, [path for path, kind in walked if kind == FOREIGN]
    for name, path in outputs.items():
        place = real(path)
        if place.is_relative_to(directory):  # its files are among the state's
            continue
        owned = _is_own(name, directory, place, manifest)
        mine, others = [], []
        folders = [*ours(place, FOLDER, WAITING_FOLDER, directories=True)] if owned else []
        parts = [ours(folder, PART) for folder in folders]
        mine += [part for some in parts for part in some]
        others += [
            each.path
            for folder, some in zip(folders, parts, strict=True)
            for each in fs(folder).entries()
            if each.path not in some
        ]
        for entry in fs(place).entries():
            if entry.path in folders:
                continue
            ours_by_name = owned and (OF_OUTPUT.fullmatch(entry.path.name) or WAITING.fullmatch(entry.path.name))
            if entry.file and (ours_by_name or entry.path in named):
                mine.append(entry.path)
            elif entry.path not in (directory, place / LOCK_OF_OUTPUT):
                others.append(entry.path)
        # Progress is removed last: it names the owner of the other files.
        mine.sort(key=lambda path: (path.name == PROGRESS, path))
        if mine:
            found[name] = (place, _with_sizes(mine))
            left += others
    files = _with_sizes([path for path, kind in walked if kind == FILE and path != directory / LOCK])
    readers = [*(hold.reader for hold in read_holds(directory)), *(each.name for each in read_consumers(directory))]
    return Removal(directory, files, found, left, readers)


def remove(
    shown: Removal, find: Callable[[], Removal], *, if_locked: IfLocked = "fail", lock: Lock | ObjectLock | None = None
) -> None:
    """Remove the files that were `shown`; `find` lists them again, under the state's lock, which the caller may hold.

    Raises LockedError while a run holds the state, StateError if the files are others by now.
    """
    files = Files()
    with ExitStack() as held:
        if lock is not None or fs(shown.state).is_dir():
            held.callback((lock or take_lock(shown.state, files, if_locked)).release)
        for path, _ in shown.outputs.values():
            held.callback(take_lock(path, files, if_locked, shown.state).release)
        if find() != shown:
            raise StateError(
                "the state has changed since it was looked at",
                place=str(shown.state),
                hint="run the command again to see its present files",
            )
        outputs = [file for _, mine in shown.outputs.values() for file, _ in mine]
        for last in (False, True):
            files.remove_all([file for file in outputs if (file.name == PROGRESS) == last])
        for _, some in groupby(sorted((file for file, _ in shown.files), key=_order), lambda file: _order(file)[0]):
            files.remove_all(list(some))
        if fs(shown.state).is_local:  # where a lock is an object, its release removes it
            files.remove(shown.state / LOCK)
    for path, _ in shown.outputs.values():
        for folder in ours(path, FOLDER, WAITING_FOLDER, directories=True) if fs(path).has_directories else ():
            if not fs(folder).entries():
                files.remove_directory(folder)
        if fs(path).is_dir() and not fs(path).entries():
            files.remove_directory(path)
    folders = [path for path, kind in _walked(shown.state) if kind == DIRECTORY]
    for folder in [*folders, shown.state] if fs(shown.state).has_directories else ():
        if not fs(folder).entries():
            files.remove_directory(folder)


def _order(path: Path) -> tuple[bool, str]:
    """Return the place of a file in the order of removal: manifests come before the files that they name."""
    return path.parent.name != "manifest", str(path)


def _is_own(name: str, directory: Path, path: Path, manifest: Manifest | None) -> bool:
    """Return whether an output's directory is this state's; False if it names no owner. Raises StateError for another state's."""
    _, owner = read_owned(path)
    if owner is None:
        return False
    if owner.state == manifest.identity if manifest else real(locate(path, owner.path)) == directory:
        return True
    raise StateError(
        f"output '{name}' belongs to another state, the one at '{locate(path, owner.path)}'",
        place=str(path),
        hint="leave out --outputs, or reset the pipeline whose output it is",
    )


def _with_sizes(paths: Sequence[Path]) -> list[tuple[Path, int]]:
    sizes: dict[Path, int] = {}
    one_by_one(lambda path: sizes.update({path: _size_of(path)}), paths)
    return [(path, sizes[path]) for path in paths]


def _size_of(path: Path) -> int:
    try:
        return fs(path).size()
    except FileNotFoundError:
        return 0


def _size(files: Sequence[tuple[Path, int]]) -> int:
    return sum(size for _, size in files)

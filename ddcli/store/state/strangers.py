"""The files in the directory of a state: those that have names of ours, and those that `dd` did not write, which are never removed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddcli.store.files.access import entries
from ddcli.store.files.lock import NAME as LOCK
from ddcli.store.files.lock import OF_OUTPUT as LOCK_OF_OUTPUT
from ddcli.store.files.objects import ObjectPath
from ddcli.store.state.bundles import BUNDLES
from ddcli.store.state.consumers import CONSUMERS
from ddcli.store.state.contents import LEDGER, LOGS, SPILL, TABLES_OUT
from ddcli.store.state.manifest import NAME as MANIFEST
from ddcli.store.state.names import (
    ARRANGEMENT,
    BATCH,
    BRANCH,
    BRANCHES,
    BUNDLE,
    FOLDER,
    HALF_CONSUMER,
    HALF_HOLD,
    HALF_MANIFEST,
    HOLD,
    NAMED,
    OF_CONSUMER,
    OF_OUTPUT,
    PART,
    RUN,
    SCRATCH,
    SEGMENT,
    SHARD,
    TABLE,
    UPDATES,
    WAITING,
    WAITING_FOLDER,
)
from ddcli.store.state.register import SEGMENTS
from ddcli.store.state.runs import RUNS

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


def find_strangers(directory: Path) -> list[Path]:
    """Return the files and directories of a state's directory that have no name of ours, in order; a directory without those inside it."""
    if isinstance(directory, ObjectPath):
        depth = len(directory.parts)
        return sorted(path for path, _ in directory.below() if not _is_ours(path.parts[depth:], STATE))
    return list(_strange(directory, STATE))


def find_own(directory: Path) -> list[Path]:
    """Return the files in a state's directory that have names of ours, in order."""
    if isinstance(directory, ObjectPath):
        depth = len(directory.parts)
        return sorted(path for path, _ in directory.below() if _is_ours(path.parts[depth:], STATE))
    return [path for path, is_file in _own(directory, STATE) if is_file]


def own_directories(directory: Path) -> list[Path]:
    """Return a state's directory and those in it that have names of ours, inner ones first; none in an object store."""
    if isinstance(directory, ObjectPath):
        return []
    return [*(path for path, is_file in _own(directory, STATE) if not is_file), directory]


def _own(directory: Path, layout: Layout) -> Iterator[tuple[Path, bool]]:
    """Yield the paths that have names of ours, and whether each is a file; those inside a directory before it."""
    for entry in entries(directory):
        known, below = _find(entry.path.name, layout)
        if known and below is None and entry.file:
            yield entry.path, True
        elif known and below is not None and entry.directory:
            yield from _own(entry.path, below)
            yield entry.path, False


def _strange(directory: Path, layout: Layout) -> Iterator[Path]:
    for entry in entries(directory):
        known, below = _find(entry.path.name, layout)
        if not known or not (entry.file if below is None else entry.directory):
            yield entry.path
        elif below is not None:
            yield from _strange(entry.path, below)


def _is_ours(names: Sequence[str], layout: Layout) -> bool:
    known, below = _find(names[0], layout)
    return known and (len(names) == 1 if below is None else len(names) > 1 and _is_ours(names[1:], below))


def _find(name: str, layout: Layout) -> tuple[bool, Layout | None]:
    """Return whether a name is in a layout, and, of a directory, the names in it."""
    return next(((True, below) for form, below in layout if form.fullmatch(name)), (False, None))

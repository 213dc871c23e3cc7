"""Whether the files of a state are what its manifest says: sizes when one is opened, checksums when one is read whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import StateError
from ddcli.store.files import checksum
from ddcli.store.manifest import RESTORE, FileEntry, Manifest
from ddcli.store.state import batch_files, output_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def check_size(path: Path, entry: FileEntry) -> None:
    """Refuse a file that is gone or has another size than the manifest says (StateError)."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise StateError(
            f"a file of the state can't be read: {error.strerror}", place=str(path), hint=RESTORE
        ) from None
    if size != entry.size:
        raise StateError(f"the file has {size} bytes, the manifest says {entry.size}", place=str(path), hint=RESTORE)


def read_verified(path: Path, entry: FileEntry) -> bytes:
    """Return the bytes of a file, which are those that were written, or refuse it (StateError)."""
    check_size(path, entry)
    data = path.read_bytes()
    if checksum(data) != entry.checksum:
        raise damaged(path)
    return data


def damaged(path: Path) -> StateError:
    """Return the error for a file whose bytes are not those that were written."""
    return StateError("the file is damaged: it isn't what was written", place=str(path), hint=RESTORE)


def verify_state(directory: Path, manifest: Manifest) -> Iterator[StateError]:
    """Read every file that a manifest names, and yield what is wrong with each."""
    for path, entry in (*batch_files(directory, manifest), *output_files(directory, manifest)):
        try:
            read_verified(path, entry)
        except StateError as error:
            yield error

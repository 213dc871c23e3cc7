"""The pipeline file that a state belongs to: two files of one name would undo each other's results in turn.

The manifest has the file's path relative to the state, so that a folder can be moved as a whole. A state whose file is gone passes
to the file that is run on it: the file was moved. Imports no third-party library: a run with nothing new looks here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import StateError, UsageError
from ddcli.screen import near
from ddcli.store.files.access import is_there, real
from ddcli.store.files.objects import locate, relative

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.store.state.manifest import Manifest


def relative_file(state: Path, file: Path) -> str:
    """Return a pipeline file's path as a manifest keeps it; "" for one that can't be named in a manifest."""
    try:
        locate(state, str(file))
    except UsageError:
        return ""
    return relative(real(file), real(state))


def file_of(state: Path, manifest: Manifest) -> Path | None:
    """Return the pipeline file that a state belongs to, if it remembers one; the file may have been removed since."""
    return locate(real(state), manifest.file) if manifest.file else None


def check_pipeline(state: Path, manifest: Manifest, file: Path) -> None:
    """Refuse a state that belongs to another pipeline file, if that exists (StateError)."""
    if not manifest.file or manifest.file == relative_file(state, file):
        return
    other = file_of(state, manifest)
    if other is not None and is_there(other) and not other.samefile(file):
        raise StateError(
            f"the state of '{manifest.name}' belongs to another pipeline file, {near(str(other))}",
            place=str(file),
            hint="give this pipeline another `name`, or another `state`; `dd state adopt` binds the existing state to it",
        )

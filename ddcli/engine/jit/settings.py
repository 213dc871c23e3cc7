"""Settings of kernels: the folder for compiled ones, and the listener for reports of compilations."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ddcli.engine.jit.ownership import find_foreign_owner

if TYPE_CHECKING:
    from collections.abc import Callable


def to_stderr(line: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(line + "\n")


_cache_dir: Path | None = None
_refused: set[Path] = set()
"""The folders whose refusal was reported."""
_listener: Callable[[str], None] = to_stderr


def set_cache_dir(folder: Path | None) -> None:
    """Keep compiled kernels in `folder` (None: in the place that the environment names)."""
    global _cache_dir  # noqa: PLW0603 - a setting of the process
    _cache_dir = folder


def cache_dir() -> Path:
    """Return the folder for compiled kernels and kept plans: the named one if it is this user's
    alone, else a private one, with a message. Its path has no links, so it stays the one that was checked.
    """
    folder = named_dir()
    try:
        found = folder.resolve()
        why = find_foreign_owner(found)
    except (OSError, RuntimeError) as error:  # links in a circle
        why = str(error)
    if why is None:
        return found
    private = private_dir()
    if folder not in _refused:
        _refused.add(folder)
        announce(f"compiled kernels are kept in {private}, not in {folder}: {why}")
    return private


@cache
def private_dir() -> Path:
    """Return a folder for temporary files that is this user's alone; if its place is taken, one that is removed with the process."""
    import tempfile

    folder = Path(tempfile.gettempdir()).resolve() / f"ddcli-{os.getuid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_dir() and find_foreign_owner(folder) is None:
        return folder
    import atexit
    import shutil

    try:
        own = Path(tempfile.mkdtemp(prefix="ddcli-"))
    except OSError:
        return folder  # nothing can be made there: a write will report it
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


def named_dir() -> Path:
    """Return the folder that is named: as set, else DDCLI_CACHE_DIR, else the user's cache folder; a private one where the user has no home."""
    if _cache_dir is not None:
        return _cache_dir
    named = os.environ.get("DDCLI_CACHE_DIR")
    if named:
        return Path(named)
    named = os.environ.get("XDG_CACHE_HOME")
    if named and sys.platform != "darwin":
        return Path(named) / "ddcli"
    try:
        home = Path.home()
    except RuntimeError:  # a container's user, a number that has no name
        return private_dir()
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "ddcli"


def set_announce(listener: Callable[[str], None]) -> None:
    """Send the line that reports a compilation of kernels to `listener` instead of stderr."""
    global _listener  # noqa: PLW0603 - a setting of the process
    _listener = listener


def announce(line: str) -> None:
    """Report to the listener a wait of the process."""
    _listener(line)

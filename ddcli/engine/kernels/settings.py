"""What a person chooses about kernels: where compiled ones are kept, and who hears that they are being compiled."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def to_stderr(line: str) -> None:
    """Write a line for the person who waits."""
    sys.stderr.write(line + "\n")


_cache_dir: Path | None = None
_listener: Callable[[str], None] = to_stderr


def set_cache_dir(folder: Path | None) -> None:
    """Keep compiled kernels in `folder` (None: in the place that the environment says)."""
    global _cache_dir  # noqa: PLW0603 - a setting of the process
    _cache_dir = folder


def cache_dir() -> Path:
    """Return the folder for compiled kernels: as set, else DDCLI_CACHE_DIR, else the user's cache folder."""
    if _cache_dir is not None:
        return _cache_dir
    named = os.environ.get("DDCLI_CACHE_DIR")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ddcli"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddcli"


def set_announce(listener: Callable[[str], None]) -> None:
    """Send the line that says that kernels are being compiled to `listener` instead of stderr."""
    global _listener  # noqa: PLW0603 - a setting of the process
    _listener = listener


def announce(line: str) -> None:
    """Tell the person who waits."""
    _listener(line)

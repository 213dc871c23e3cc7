"""The files of tables of other programs: plain files below a table's folder alone.

Who writes a table's log or metadata chooses these paths, and another one would bring rows of any file that you can read into outputs, or have requests
with your credentials sent elsewhere. Imports no third-party library.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ddcli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


HINT = "`dd` reads and writes a table's files only below its own folder: copy the table, with its data files, to a folder of its own"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that readers of URLs leave out: `.<tab>.` would be two dots."""


def leads_out(name: str) -> bool:
    r"""Return whether a path may lead out of the folder that it is relative to, for any reader of URLs or of paths.

    >>> [leads_out(name) for name in ("data/a.parquet", "day=2024-01-01 10:00/a", "../a", "a/%2e%2e/b", "a\\..\\b", "/a", "file:a", "s3://a/b")]
    [False, False, True, True, True, True, True, True]
    """
    while True:
        if name.startswith(("/", "\\")) or _SCHEME.match(name) or _CONTROL.search(name):
            return True
        if ".." in re.split(r"[/\\]", name):
            return True
        decoded = unquote(name)
        if decoded == name:
            return False
        name = decoded


def check_names(names: Iterable[str], folder: str) -> None:
    """Raise InputError for a path that leads out of a table's folder."""
    for name in names:
        if leads_out(name):
            raise InputError(f"the table names a file outside of its folder: '{name}'", place=folder, hint=HINT)


def below(location: str, folder: str) -> str:
    """Return an absolute location relative to a table's folder. Raises InputError for one elsewhere.

    >>> below("s3a://lake/shop/items/data/a.parquet", "s3://lake/shop/items")
    'data/a.parquet'
    """
    found, start = _absolute(location), _absolute(folder).rstrip("/") + "/"
    name = found.removeprefix(start)
    if not found.startswith(start) or leads_out(name):
        raise InputError(f"the table names a file outside of its folder: '{location}'", place=folder, hint=HINT)
    return name


def _absolute(location: str) -> str:
    """Return a location in one spelling: without the scheme of files, and with one for object stores of S3."""
    path = re.sub(r"^file:(//(?=/)|(?=/(?!/)))", "", location)
    if _SCHEME.match(path):
        return re.sub(r"^s3[an]:", "s3:", path)
    return str(Path.cwd() / path) if not path.startswith("/") else path


def check_plain(path: Path) -> None:
    """Raise InputError for a path to something else than a file, such as a pipe, which would never end. Links are followed; nothing may be there."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return  # the reader of the file reports that
    if not stat.S_ISREG(found.st_mode):
        raise InputError("the file of the table is not a plain file", place=str(path), hint="put a file in its place")

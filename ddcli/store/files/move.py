"""The move of a file that another program owns: to another directory, also of another file system, without ever replacing a file.

A process that dies on the way leaves the file in its old place, or in both: done again, the move is completed.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ddcli.errors import EngineError
from ddcli.store.files.access import real
from ddcli.store.files.gate import TEMPORARY
from ddcli.store.files.objects import ObjectPath

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ddcli.store.files.gate import Files

NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EACCES}
"""The errors of making a second name for a file where it can have none: another file system, one without links, another's file."""
BLOCK = 1 << 20


def move(files: Files, source: Path, target: Path, is_read: Callable[[Path], bool]) -> None:
    """Move a file to `target`, if it still is the one that was read: a program may have put another in its place at any moment, which stays.

    Raises EngineError if another file is at `target`; one with the same bytes is the file itself.
    """
    if isinstance(source, ObjectPath) and isinstance(target, ObjectPath):
        tag = source.head()["e_tag"]
        if is_read(source) or target.is_copy(tag):
            files.do("archive", source, partial(_copy_object, source, target, tag))
            files.do("archive", source, partial(_drop_object, source, target, tag))
        return
    source, target = real(source.parent) / source.name, real(target.parent) / target.name
    files.make_directory(target.parent)
    if files.do("archive", source, partial(_name, source, target, is_read)):
        files.sync_directory(target.parent)
        files.do("archive", source, partial(_drop, source, target))
        files.sync_directory(source.parent)


def _name(source: Path, target: Path, is_read: Callable[[Path], bool]) -> bool:
    """Give a file its second name, or write its copy; return False if it is not the file that was read."""
    if source.is_symlink():  # its target stays where it is
        return _copy(source, target, is_read)
    try:
        os.link(source, target)
    except FileNotFoundError:
        return False
    except FileExistsError:
        return _is_there(source, target, is_read)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _copy(source, target, is_read)
    if not is_read(target):  # what has the new name is looked at: the old one may belong to another file by now
        target.unlink()
        return False
    return True


def _is_there(source: Path, target: Path, is_read: Callable[[Path], bool]) -> bool:
    """Return whether the file at `target` is the source, of a run that died; False if the source is another file by now."""
    if _same(source, target):
        return True
    if target.is_file() and not target.is_symlink() and is_read(target):
        return False
    raise _taken(source, target)


def _copy(source: Path, target: Path, is_read: Callable[[Path], bool]) -> bool:
    """Write a copy of a file, which appears whole; return False if it is not the file that was read. The copy of a run that died is written again."""
    if target.exists() or target.is_symlink():
        return _is_there(source, target, is_read)
    waiting = target.with_name(f".{target.name}{TEMPORARY}")
    try:
        shutil.copy2(source, waiting)
    except FileNotFoundError:
        return False
    if not is_read(waiting):
        waiting.unlink()
        return False
    descriptor = os.open(waiting, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(waiting, target)  # fails where a file has come meanwhile
        waiting.unlink()
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        waiting.rename(target)
    return True


def _taken(source: Path, target: Path) -> EngineError:
    return EngineError(f"the file can't be archived: another file is at '{target}'", place=str(source))


def _copy_object(source: ObjectPath, target: ObjectPath, tag: str) -> None:
    """Write a copy of an object. One that a run has written which died is the same."""
    try:
        source.copy_apart(target, tag)
    except FileExistsError:
        if not target.is_copy(tag):
            raise _taken(source, target) from None


def _drop_object(source: ObjectPath, target: ObjectPath, tag: str) -> None:
    """Remove an object that has a copy, if it has not changed since."""
    if target.is_copy(tag) and source.head()["e_tag"] == tag:
        source.unlink()


def _drop(source: Path, target: Path) -> None:
    """Remove the file `source`, if it still is the file `target`, or equal to it.

    It is taken aside first: between a look at a name and its removal another file may get it.
    """
    aside = source.with_name(f".{source.name}{TEMPORARY}")
    with suppress(FileNotFoundError):
        source.rename(aside)
        if not (aside.samefile(target) or _same(aside, target)):
            with suppress(FileExistsError):  # a still newer file has replaced it
                _put_back(aside, source)
        aside.unlink(missing_ok=True)


def _put_back(aside: Path, source: Path) -> None:
    try:
        os.link(aside, source, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        aside.rename(source)


def _same(one: Path, other: Path) -> bool:
    """Return whether two files have the same bytes."""
    if other.is_symlink() or not other.is_file() or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        while True:
            block = first.read(BLOCK)
            if block != second.read(BLOCK):
                return False
            if not block:
                return True

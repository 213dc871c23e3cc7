"""The ownership of a directory: processes run the code in it, so only this user may write there, or replace it."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

DIGEST = 32
"""Bytes of the digest that a file there begins with."""
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def find_foreign_owner(folder: Path) -> str | None:
    """Return the reason why others could write into a directory, or replace it; None if they can't. It need not exist yet.

    `folder` has no links in it (`Path.resolve`). A user who may write into a parent could put another directory in its place. In a
    sticky one like /tmp, in which all may write, only an entry's owner can. Root may do anything in any case.
    """
    for path in (folder, *folder.parents):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{path} can't be looked at: {error.strerror}"
        if status.st_uid not in (0, os.getuid()):
            return f"{path} belongs to another user"
        sticky = path != folder and status.st_mode & stat.S_ISVTX
        if status.st_mode & OTHERS and not sticky and not _is_private(status):
            return f"others may write into {path}"
    return None


def is_own(status: os.stat_result) -> bool:
    """Return whether an open file is a plain one that only this user, or root, may write."""
    own = status.st_uid in (0, os.getuid()) and (not status.st_mode & OTHERS or _is_private(status))
    return own and stat.S_ISREG(status.st_mode)


def _is_private(status: os.stat_result) -> bool:
    """Return whether the only other writer is the user's own group, of the same name and without other members: many systems give each user one."""
    if status.st_mode & stat.S_IWOTH:
        return False
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def write_whole(path: Path, body: bytes) -> None:
    """Write a file, behind its digest, in one step: readers see all of it or nothing. Raises OSError."""
    # Not `tempfile`: it imports all libraries of compression.
    temporary = path.with_name(f".{os.urandom(8).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_room(folder: Path, most: int) -> None:
    """Remove the files of a directory that were written longest ago, where there are as many as there may be."""
    files = [entry for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
    if len(files) >= most:
        files.sort(key=lambda entry: entry.stat().st_mtime_ns)
        for entry in files[: len(files) - most * 3 // 4]:
            Path(entry.path).unlink(missing_ok=True)


def unsealed(data: bytes) -> bytes | None:
    """Return the content behind the digest, None where the digest is of another content."""
    body = data[DIGEST:]
    return body if hashlib.sha256(body).digest() == data[:DIGEST] else None

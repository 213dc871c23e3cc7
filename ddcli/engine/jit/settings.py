"""Settings of kernels: the folder for compiled ones, the kind of processor, and the listener for reports of compilations.

Processes run the code in the folder, so only this user may write there, or replace it. A name of a processor identifies its instructions.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


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


V3 = "x86-64-v3"
"""LLVM's name of the processors that have AVX2: Intel's since 2013, AMD's since 2015."""
HAS_V3 = {
    *("abm", "avx", "avx2", "bmi1", "bmi2", "cx16", "f16c", "fma", "lahf_lm", "movbe", "pni", "popcnt", "sse4_1"),
    *("sse4_2", "ssse3"),
}
"""Linux's names of the instructions that these have beyond those that all of x86-64 have."""
AARCH64 = "aarch64"
"""Linux's name of the processors of ARM with 64 bits: code for the first of them runs on all."""
FACTS = Path("/proc/cpuinfo")
IDENTITY = ("vendor_id", "cpu family", "model", "stepping", "flags")
IDENTITY_OF_ARM = ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features")


def takes_images() -> bool:
    """Return whether code for this machine is linked to images that any process loads; elsewhere LLVM loads it."""
    return sys.platform == "linux" and os.uname().machine == "x86_64" and sys.maxsize > 1 << 32


@cache
def targets() -> tuple[str, ...]:
    """Return the targets whose code this processor runs; the first is the processor itself. Empty if nothing is known of it."""
    machine = os.uname().machine if sys.platform == "linux" and sys.maxsize > 1 << 32 else ""
    names = {"x86_64": IDENTITY, AARCH64: IDENTITY_OF_ARM}.get(machine, ())
    facts = _facts() if names else {}
    known = bool(names) and all(name in facts for name in names)
    own = (" ".join(facts[name] for name in names),) if known else _described_by_llvm()
    if machine == AARCH64:
        return (*own, AARCH64)
    return (*own, V3) if known and HAS_V3.issubset(facts["flags"].split()) else own


def _facts() -> dict[str, str]:
    """Return Linux's facts of the first processor; empty if it does not show them."""
    found = {}
    try:
        with FACTS.open(encoding="ascii", errors="replace") as file:
            for line in iter(file.readline, ""):
                name, mark, value = line.partition(":")
                if not mark:
                    break
                found[name.strip()] = value.strip()
    except OSError:
        pass
    return found


def _described_by_llvm() -> tuple[str, ...]:
    try:
        import llvmlite.binding as llvm
    except ImportError:  # nothing is compiled either
        return ()
    return (" ".join([llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]),)

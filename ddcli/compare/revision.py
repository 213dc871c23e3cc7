"""The pipeline file of a git revision, with the files that it includes and its Python modules, written to a scratch directory.

Its data stay where they are: relative paths in it are relative to the directory of the present file.
"""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

from ddcli.dataclass import frozen
from ddcli.errors import UsageError
from ddcli.spec.file import ENDINGS

WRITTEN = (*ENDINGS, ".py")
"""The endings of the files that a pipeline file may need."""
REGULAR = (b"100644", b"100755")
"""The modes of regular files: a link is not written."""
PATIENCE = 120
"""The most seconds for a call of git."""


@frozen
class Version:
    """A version of a pipeline file: `path` is its text, `base` the directory of its relative paths, `label` its name for people."""

    path: Path
    base: Path
    label: str


def present(path: Path) -> Version:
    """Return the version of a pipeline file that is in the directory."""
    return Version(path, path.absolute().parent, str(path))


def at_revision(path: Path, revision: str, scratch: Path) -> Version:
    """Write the pipeline files and Python modules of a revision below `scratch`, and return the version of `path` among them.

    Raises UsageError if there is no repository, revision, or file in it.
    """
    base = path.absolute().parent
    top = Path(_git(base, "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    # Below the root git names files with links resolved, so `path` has to be named so, too.
    own = PurePosixPath((path.absolute().parent.resolve() / path.name).relative_to(top.resolve()))
    commit = _git(base, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", of=revision)
    tree = _git(top, "ls-tree", "-r", "-z", commit.decode().strip())
    objects: dict[bytes, str] = {}
    for line in filter(None, tree.split(b"\0")):
        facts, _, file = line.partition(b"\t")
        mode, _, name = facts.split(b" ")
        if mode in REGULAR and file.decode(errors="surrogateescape").endswith(WRITTEN):
            objects[file] = name.decode()
    if str(own).encode() not in objects:
        raise UsageError(f"the revision '{revision}' has no such file", place=str(path), hint="name one that has it")
    texts = _git(top, "cat-file", "--batch", given="".join(f"{name}\n" for name in objects.values()).encode())
    for file in objects:
        header, _, texts = texts.partition(b"\n")
        size = int(header.split(b" ")[2])
        place = scratch / file.decode(errors="surrogateescape")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(texts[:size])
        texts = texts[size + 1 :]
    return Version(scratch / own, base, f"{path} at {revision}")


def _git(folder: Path, *words: str, given: bytes = b"", of: str | None = None) -> bytes:
    """Return the output of a call of git in a directory. `of` is the revision that it looks for."""
    try:
        done = subprocess.run(  # noqa: S603 - no shell; a revision stands behind --end-of-options
            ["git", "-C", str(folder), *words],  # noqa: S607 - the person's git
            input=given,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
    except FileNotFoundError:
        raise UsageError("`--base` needs git, and there is none on the PATH", hint="install git") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git has not answered in {PATIENCE} seconds", place=str(folder)) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
        if of is not None:
            raise UsageError(f"git knows no revision '{of}'", place=str(folder), hint="fetch it first: `git fetch`")
        raise UsageError(f"git: {said}", place=str(folder))
    return done.stdout

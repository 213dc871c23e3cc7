"""The bytes of a pipeline file, as text."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from ddcli.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

ENDINGS = (".yaml", ".yml")
"""The endings of pipeline files' names."""
AT = "@"
"""Separates the name of a branch in the names of its pipeline file and its outputs: sales@q4.yaml, out@q4/."""
LARGEST = 16 << 20
"""Bytes of all files together that one includes."""


def branch_file(pipeline: Path, name: str) -> Path:
    """Return the pipeline file of a branch.

    >>> from pathlib import PurePath
    >>> str(branch_file(PurePath("shop/sales.yaml"), "q4"))
    'shop/sales@q4.yaml'
    """
    return pipeline.with_name(f"{pipeline.stem}{AT}{name}{pipeline.suffix}")


def read_text(path: Path) -> str:
    """Return the text of a pipeline file. Raises `UsageError` for one that can't be read or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        there = [each.name for each in (*path.parent.glob("*.yaml"), *path.parent.glob("*.yml"))]
        near = did_you_mean(path.name, there)
        hint = f"did you mean '{path.with_name(near)}'?" if near else "see `dd init` for one to start from"
        raise UsageError("there is no such pipeline file", place=str(path), hint=hint) from None
    except IsADirectoryError:
        raise UsageError("a directory, not a pipeline file", place=str(path), hint="name the YAML file in it") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"not UTF-8 at byte {error.start}", place=str(path), hint="save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"can't read the pipeline file: {problem}", place=str(path)) from None


def read_fragment(path: Path) -> str:
    """Return the text of a file to include. Raises UsageError where it is no plain file, or a large one, and OSError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise UsageError("not a plain file", place=str(path), hint="name a YAML file")
    if status.st_size > LARGEST:
        raise UsageError(f"larger than {LARGEST >> 20} MiB", place=str(path), hint="name a YAML file")
    return read_text(path)

"""The bytes of a pipeline file, as text."""

from __future__ import annotations

import stat
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from ddcli.errors import UsageError, did_you_mean
from ddcli.spec.model import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.errors import Span
    from ddcli.spec.model import Spec


def excerpts(spec: Spec) -> dict[str, str]:
    """Return the text of each collection, by name; none of a file that can't be read. Variables are in it by name, not by value."""
    files: dict[str, Sequence[str]] = {}
    for collection in spec.collections.values():
        file = collection.name.span.file
        if file not in files:
            try:
                files[file] = Path(file).read_text(encoding="utf-8").splitlines()
            except (OSError, ValueError):
                files[file] = ()
    found = {name: _entry(files[each.name.span.file], each.name.span) for name, each in spec.collections.items()}
    return {name: text for name, text in found.items() if text}


def queries(spec: Spec) -> frozenset[str]:
    """Return the names of the collections that are SQL."""
    return frozenset(name for name, each in spec.collections.items() if isinstance(each.sources, Query))


def _entry(lines: Sequence[str], key: Span) -> str:
    """Return the lines of an entry of a mapping: the one of its key, and those that are indented more; without lines of comments."""
    if not 0 < key.line <= len(lines):
        return ""
    found = [" " * (key.column - 1) + lines[key.line - 1][key.column - 1 :]]
    for line in lines[key.line :]:
        inside = len(line) - len(line.lstrip())
        if line.strip() and inside < key.column:
            break
        found.append(line)
    kept = [line.rstrip() for line in found if line.strip() and not line.lstrip().startswith("#")]
    return textwrap.dedent("\n".join(kept))


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


def file_at(pipeline: Path, branch: str | None) -> Path:
    """Return the pipeline file that `--branch` chooses: without one, or for `main`, the pipeline's own. Raises UsageError if there is no such branch."""
    if branch is None or branch == "main":
        return pipeline
    file = branch_file(pipeline, branch)
    if not file.exists():
        hint = "`dd branch ls PIPELINE` lists the branches, and `dd branch new` begins one"
        raise UsageError(f"there is no branch '{branch}'", place=str(pipeline), hint=hint)
    return file


def _files_in(folder: Path) -> list[Path]:
    """Return the YAML files of a folder."""
    return [path for ending in ENDINGS for path in folder.glob(f"*{ending}")]


def read_text(path: Path, kind: str = "pipeline file") -> str:
    """Return the text of a YAML file of such a kind. Raises `UsageError` for one that can't be read or is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        near = did_you_mean(path.name, [each.name for each in _files_in(path.parent)])
        start = "see `dd init` for one to start from" if kind == "pipeline file" else None
        hint = f"did you mean '{path.with_name(near)}'?" if near else start
        raise UsageError(f"there is no such {kind}", place=str(path), hint=hint) from None
    except IsADirectoryError:
        there = _files_in(path)
        hint = f"did you mean '{there[0]}'?" if len(there) == 1 else "name the YAML file in it"
        raise UsageError(f"a directory, not a {kind}", place=str(path), hint=hint) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"not UTF-8 at byte {error.start}", place=str(path), hint="save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"can't read the {kind}: {problem}", place=str(path)) from None


def read_fragment(path: Path) -> str:
    """Return the text of a file to include. Raises UsageError where it is no plain file, or a large one, and OSError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise UsageError("not a plain file", place=str(path), hint="name a YAML file")
    if status.st_size > LARGEST:
        raise UsageError(f"larger than {LARGEST >> 20} MiB", place=str(path), hint="name a YAML file")
    return read_text(path)

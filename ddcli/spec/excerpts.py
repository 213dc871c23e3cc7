"""The texts of collections as their files have them: a message about a changed pipeline shows them as the person wrote them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

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

"""The edits of a pipeline file behind a changed output: the collections whose text differs, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.dataclass import frozen
from ddcli.plan.node import Graph

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

SHOWN = 12
"""The lines of a difference that are shown, at most."""


@frozen
class Edit:
    """A collection as the state's pipeline had it (None: it had none of this name), and as the file has it."""

    name: str
    query: bool
    before: str | None
    now: str

    @property
    def words(self) -> str:
        """Return the edit in a few words: collection `daily`: SQL changed."""
        how = "new" if self.before is None else "SQL changed" if self.query else "changed"
        return f"collection `{self.name}`: {how}"

    def lines(self) -> list[str]:
        """Return the lines that were removed, with a `-`, and those that were added, with a `+`; none of a new collection."""
        if self.before is None:
            return []
        found = [*_difference(self.before.splitlines(), self.now.splitlines())]
        indent = min(len(line) - len(line[1:].lstrip()) - 1 for line in found) if found else 0
        short = [f"{line[0]} {line[1 + indent :]}" for line in found]
        left = len(short) - SHOWN
        return short if left <= 1 else [*short[:SHOWN], f"... and {left} more lines"]


def shown(edits: Collection[Edit]) -> list[str]:
    """Return the lines of edits; each of several has its words above."""
    return [line for edit in edits for line in ([edit.words] * (len(edits) > 1) + edit.lines())]


def _difference(before: list[str], now: list[str]) -> Iterator[str]:
    """Yield the lines that differ, each with its sign before it."""
    import difflib

    for line in difflib.unified_diff(before, now, n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield line


def collections_of(graph: Graph, output: str) -> set[str]:
    """Return the names of the collections that an output is computed from."""
    paths = [graph.places.get(node.fingerprint, ("",))[0] for node in Graph({output: graph.outputs[output]}).nodes()]
    return {path.split(".")[1] for path in paths if path.startswith("collections.")}


def edits(before: Mapping[str, str], now: Mapping[str, str], queries: frozenset[str]) -> dict[str, Edit]:
    """Return the edits between the texts of a state's collections and the file's texts, by name."""
    found = {}
    for name, text in now.items():
        known = before.get(name)
        others = before.values() if known is None else (known,)
        if not any(_is_same(text, other) for other in others):
            found[name] = Edit(name, name in queries, known, text)
    return found


def _is_same(one: str, other: str) -> bool:
    """Return whether two texts differ in nothing but white space and the name of the collection."""
    return "".join(one.partition(":")[2].split()) == "".join(other.partition(":")[2].split())

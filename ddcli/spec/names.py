"""Names across a file: each used one exists, none means two things, none needs itself, no path is written twice."""

from __future__ import annotations

import posixpath
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from ddcli.spec.reading import Notes, Reference, suggest
from ddcli.spec.tree import Mapping, Node

if TYPE_CHECKING:
    from ddcli.errors import Text
    from ddcli.spec.model import Input, Output


def check_names(root: Mapping, found: dict[str, Any], notes: Notes) -> None:
    """Note what is wrong with names. Sections that could not be read still give theirs, so that one error hides no other."""
    inputs, collections = _names(root.get("inputs")), _names(root.get("collections"))
    for name, text in collections.items():
        if name in inputs:
            problem = f"an input is named {name!r} too, at {inputs[name].span}"
            notes.refuse(
                f"collections.{name}", problem, text.span, "inputs and collections share their names: rename one"
            )
    known = [*inputs, *collections]
    for reference in [*notes.references, *_implied(root.get("outputs"))]:
        name = reference.name.value
        if name not in known:
            scope = sorted(word for word in known if f"collections.{word}" != _thing(reference.owner))
            hint = suggest(name, scope, f"(in scope: {', '.join(scope) or 'nothing'})")
            notes.refuse(reference.owner, f"no input or collection is named {name!r}", reference.name.span, hint)
    _check_circles(notes, collections)
    _check_paths(found, notes)


def _thing(owner: str) -> str:
    """Return the path of the input, collection or output that a path lies in.

    >>> _thing("collections.big.apply[0].join")
    'collections.big'
    """
    return ".".join(owner.split(".")[:2])


def _names(section: Node | None) -> dict[str, Text]:
    return {text.value: text for text, _ in section.entries} if isinstance(section, Mapping) else {}


def _implied(outputs: Node | None) -> list[Reference]:
    """Return the references of outputs that don't say `from`: they write what has their name."""
    entries = outputs.entries if isinstance(outputs, Mapping) else ()
    silent = [text for text, node in entries if not (isinstance(node, Mapping) and node.get("from"))]
    return [Reference(text, f"outputs.{text.value}") for text in silent]


def _check_circles(notes: Notes, collections: dict[str, Text]) -> None:
    """Note each circle of collections once, at a reference that closes it."""
    uses: dict[str, dict[str, Text]] = {name: {} for name in collections}
    for reference in notes.references:
        section, _, user = _thing(reference.owner).partition(".")
        if section == "collections" and user in uses and reference.name.value in collections:
            uses[user].setdefault(reference.name.value, reference.name)
    while circle := _circle(uses):
        first = circle.index(next(name for name in collections if name in circle))
        circle = [*circle[first:], *circle[:first]]
        shown = " -> ".join([*circle, circle[0]])
        place = uses[circle[0]][circle[1 % len(circle)]]
        hint = "collections may refer to each other in any order, but not in a circle"
        notes.refuse(f"collections.{circle[0]}", f"needs itself: {shown}", place.span, hint)
        for user, used in zip(circle, [*circle[1:], circle[0]], strict=True):
            uses[user].pop(used)


def _circle(uses: dict[str, dict[str, Text]]) -> list[str] | None:
    """Return names of which each uses the next and the last the first, or None."""
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        nodes: list[str] = error.args[1]
        return nodes[:0:-1]
    return None


def _check_paths(found: dict[str, Any], notes: Notes) -> None:
    """Note outputs that write where another one writes or an input reads."""
    inputs: list[tuple[Text, Input]] = list(found.get("inputs", ()))
    outputs: list[tuple[Text, Output]] = list(found.get("outputs", ()))
    read = {posixpath.normpath(value.path.value): name for name, value in inputs}
    written: dict[str, Text] = {}
    for name, output in outputs:
        path = posixpath.normpath(output.path.value)
        if path in read:
            problem = f"writes where the input {read[path].value!r} reads"
            notes.refuse(f"outputs.{name.value}", problem, output.path.span, "give the output a directory of its own")
        elif path in written:
            problem = f"writes to the same path as the output {written[path].value!r}"
            notes.refuse(f"outputs.{name.value}", problem, output.path.span, "give each output a directory of its own")
        written.setdefault(path, name)

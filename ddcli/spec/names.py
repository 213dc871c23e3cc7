"""Names across a file: each used one exists, none means two things, none depends on itself, no path is written twice.

Names are looked up from inside out: in the body of a loop among its variables and collections, then around it.
"""

from __future__ import annotations

import posixpath
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.errors import suggestion_and_list
from ddcli.spec.shapes import Notes, Reference
from ddcli.spec.tree import Mapping, Node, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.errors import Text
    from ddcli.spec.model import InputSpec, OutputSpec
    from ddcli.spec.tests import WrittenTest

NO_ONE = "a loop with a list of results is not one collection"


@dataclass(eq=False, repr=False, slots=True)
class _Scope:
    """The collections of a section at `path`: the file's, or the collections of a loop's body, which `owner` is.

    `words` are its keys; `others` are names of other things: inputs, or the loop's variables. `given` has, for
    each name of a collection, its key: `a.b` is a result of `a`. `names` has the place of each name with
    a meaning. `uses` collects the collections that each one needs.
    """

    path: str
    words: dict[str, Text]
    others: dict[str, Text]
    given: dict[str, str]
    outer: _Scope | None = None
    owner: str = ""
    names: dict[str, Text] = field(init=False)
    uses: dict[str, dict[str, Text]] = field(init=False)

    def __post_init__(self) -> None:
        self.names = {name: self.words[word] for name, word in self.given.items()} | self.others
        self.uses = {name: {} for name in self.words}

    def user(self, path: str) -> str:
        """Return the collection of this section that a path leads into, or ""."""
        before, _, inside = path.partition(self.path + ".")
        name = inside.partition(".")[0]
        return name if not before and name in self.words else ""

    def around(self) -> Iterator[_Scope]:
        """Yield this scope and those around it, from inside out."""
        scope: _Scope | None = self
        while scope:
            yield scope
            scope = scope.outer

    def hidden(self, name: str) -> Text | None:
        """Return the other meaning that a name would have here, if any. The name of a loop itself can't be meant inside it, so it is free."""
        for inner in self.around():
            outer = inner.outer
            if outer and name in outer.names and (name in outer.others or outer.given[name] != inner.owner):
                return outer.names[name]
        return None


def check_names(root: Mapping, found: dict[str, Any], notes: Notes) -> None:
    """Report errors of names. Sections that could not be read still have names, so that one error hides no other."""
    inputs = _names(root.get("inputs"))
    top = _scope("collections", root.get("collections"), inputs)
    for name, text in top.words.items():
        if name in inputs:
            problem = f"an input is named {name!r} too, at {inputs[name].span}"
            notes.refuse(
                f"collections.{name}", problem, text.span, "inputs and collections share their names: rename one"
            )
    scopes = [top, *_bodies(top, root.get("collections"), notes)]
    for reference in [*notes.references, *_implied(root.get("outputs"))]:
        _check_reference(reference, _innermost(scopes, reference.owner), notes)
    for place in notes.entering:
        if _innermost(scopes, place.path) is top:
            hint = (
                "it sets the round of the loop around it in which a record enters: put it into the `body` of `iterate`"
            )
            notes.refuse(place.path, "`enter` is outside of a loop", place.word.span, hint)
    for scope in scopes:
        _check_circles(scope, notes)
    _check_tests(found.get("tests", ()), inputs, top, _names(root.get("outputs")), notes)
    _check_paths(found, notes)
    for name, _ in found["budget"].collections if "budget" in found else ():
        if name.value not in top.words:
            listed = f"collections: {', '.join(top.words)}"
            problem = f"no collection is named {name.value!r}"
            notes.refuse("budget.collections", problem, name.span, suggestion_and_list(name.value, top.words, listed))


def _names(section: Node | None) -> dict[str, Text]:
    return {text.value: text for text, _ in section.entries} if isinstance(section, Mapping) else {}


def _scope(
    path: str, section: Node | None, others: dict[str, Text], outer: _Scope | None = None, owner: str = ""
) -> _Scope:
    words = _names(section)
    given: dict[str, str] = {}
    for word, node in section.entries if isinstance(section, Mapping) else ():
        results = _loop(node).get("result")
        if isinstance(results, Sequence):
            given |= {f"{word.value}.{result.value}": word.value for result in _texts(results)}
        else:
            given[word.value] = word.value
    return _Scope(path, words, others, given, outer, owner)


def _loop(collection: Node) -> Mapping:
    """Return the mapping under a collection's `iterate`; an empty one if there is none."""
    loop = collection.get("iterate") if isinstance(collection, Mapping) else None
    return loop if isinstance(loop, Mapping) else Mapping((), collection.span, flow=True)


def _texts(results: Node | None) -> list[Text]:
    """Return the names in the result of a loop, one or a list."""
    items = results.items if isinstance(results, Sequence) else (results,)
    return [item.text for item in items if isinstance(item, Scalar) and item.kind != "null"]


def _bodies(outer: _Scope, section: Node | None, notes: Notes) -> Iterator[_Scope]:
    """Yield the scopes of all bodies in a section, outer ones first, and report errors of their own names."""
    for word, node in section.entries if isinstance(section, Mapping) else ():
        loop = _loop(node)
        body = loop.get("body")
        path = f"{outer.path}.{word.value}.iterate"
        scope = _scope(f"{path}.body", body, _names(loop.get("variables")), outer, word.value)
        if isinstance(body, Mapping):
            _check_loop(path, scope, _texts(loop.get("result")), notes)
            yield scope
            yield from _bodies(scope, body, notes)


def _check_loop(path: str, scope: _Scope, results: list[Text], notes: Notes) -> None:
    """Note variables and results that are not in the body, and names that hide others."""
    inside = f"in the body: {', '.join(scope.given)}"
    for name, text in scope.others.items():
        if name not in scope.given:
            hint = suggestion_and_list(name, scope.given, f"add `{name}:` to `body`; {inside}")
            if name in scope.words:
                hint = f"{NO_ONE}: name one result without brackets"
            notes.refuse(f"{path}.variables", f"the body does not compute {name!r} for the next round", text.span, hint)
    for text in results:
        if text.value not in scope.given:
            hint = suggestion_and_list(text.value, scope.given, inside)
            notes.refuse(f"{path}.result", f"no collection of the body is named {text.value!r}", text.span, hint)
    for name, text in scope.names.items():
        if other := scope.hidden(name):
            section = "variables" if name in scope.others else "body"
            problem = f"{name!r} is a name outside of the loop too, at {other.span}"
            hint = "inside it would be hidden: rename one of the two"
            notes.refuse(f"{path}.{section}", problem, text.span, hint)


def _innermost(scopes: list[_Scope], path: str) -> _Scope:
    """Return the innermost scope of a path, in which its names are looked up."""
    return max((scope for scope in scopes if scope.user(path)), key=lambda scope: len(scope.path), default=scopes[0])


def _check_reference(reference: Reference, scope: _Scope, notes: Notes) -> None:
    """Report a name that is unknown at its place; else record that a collection needs it."""
    name, owner = reference.name.value, reference.owner
    for each in scope.around():
        if name in each.others:
            return
        if name in each.given:
            if user := each.user(owner):
                each.uses[user].setdefault(each.given[name], reference.name)
            return
        if name in each.words:
            hint = f"{NO_ONE}; name one: {', '.join(word for word, given in each.given.items() if given == name)}"
            notes.refuse(reference.path or owner, f"{name!r} names several collections", reference.name.span, hint)
            return
    known = {
        word
        for each in scope.around()
        for word in each.names
        if word in each.others or each.given[word] != each.user(owner)
    }
    hint = suggestion_and_list(name, sorted(known), f"in scope: {', '.join(sorted(known)) or 'nothing'}")
    notes.refuse(reference.path or owner, f"no input or collection is named {name!r}", reference.name.span, hint)


def _implied(outputs: Node | None) -> list[Reference]:
    """Return the references of outputs without `from`: they write the collection of their name."""
    entries = outputs.entries if isinstance(outputs, Mapping) else ()
    silent = [text for text, node in entries if not (isinstance(node, Mapping) and node.get("from"))]
    return [Reference(text, f"outputs.{text.value}") for text in silent]


def _check_circles(scope: _Scope, notes: Notes) -> None:
    """Note each circle of a scope's collections once, at a reference that closes it."""
    if scope.outer and not scope.others:  # the name may be one of the variables that could not be read
        return
    uses = scope.uses
    while circle := _circle(uses):
        first = circle.index(next(name for name in scope.words if name in circle))
        circle = [*circle[first:], *circle[:first]]
        shown = " -> ".join([*circle, circle[0]])
        place = uses[circle[0]][circle[1 % len(circle)]]
        hint = "collections may refer to each other in any order, but not in a circle"
        hint += ": only a variable refers to the round before" if scope.outer else ": that takes `iterate`"
        notes.refuse(f"{scope.path}.{circle[0]}", f"depends on itself: {shown}", place.span, hint)
        for user, used in zip(circle, [*circle[1:], circle[0]], strict=True):
            uses[user].pop(used)


def _circle(uses: dict[str, dict[str, Text]]) -> list[str] | None:
    """Return a circle of names, in which each uses the next and the last uses the first, or None."""
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        nodes: list[str] = error.args[1]
        return nodes[:0:-1]
    return None


def _check_tests(
    tests: tuple[WrittenTest, ...], inputs: dict[str, Text], top: _Scope, outputs: dict[str, Text], notes: Notes
) -> None:
    """Report the inputs and collections that tests name and the file does not have."""
    known = {**inputs, **top.given, **outputs}
    steps = [step for test in tests for step in test.steps]
    for name, _ in [given for step in steps for given in step.given]:
        if name.value not in inputs:
            hint = suggestion_and_list(name.value, inputs, f"inputs: {', '.join(inputs)}")
            notes.refuse("tests", f"no input is named {name.value!r}", name.span, hint)
    for each in [*(one for test in tests for one in test.expect), *(one for step in steps for one in step.expect)]:
        if each.collection.value not in known:
            hint = suggestion_and_list(each.collection.value, known, f"known: {', '.join(known)}")
            problem = f"no input, collection or output is named {each.collection.value!r}"
            notes.refuse(each.place, problem, each.collection.span, hint)


def _check_paths(found: dict[str, Any], notes: Notes) -> None:
    """Note outputs that write where another one writes or an input reads."""
    inputs: list[tuple[Text, InputSpec]] = list(found.get("inputs", ()))
    outputs: list[tuple[Text, OutputSpec]] = list(found.get("outputs", ()))
    read = {posixpath.normpath(value.path.value): name for name, value in inputs}
    written: dict[str, Text] = {}
    for name, output in outputs:
        if output.path is None:
            continue
        path = posixpath.normpath(output.path.value)
        if path in read:
            problem = f"writes where the input {read[path].value!r} reads"
            notes.refuse(f"outputs.{name.value}", problem, output.path.span, "give the output a directory of its own")
        elif path in written:
            problem = f"writes to the same path as the output {written[path].value!r}"
            notes.refuse(f"outputs.{name.value}", problem, output.path.span, "give each output a directory of its own")
        written.setdefault(path, name)

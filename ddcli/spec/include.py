"""`include: other.yaml`: inputs, collections, outputs, checks and tests of other files, as if they were in the file that names these.

A fragment's own paths are relative to the fragment. A file is read once, even if several others include it, and each error points into the file
that has it.
"""

from __future__ import annotations

import glob
import os
import posixpath
import re
from pathlib import Path

from ddcli.errors import Span, Text, UsageError, suggestion_and_list
from ddcli.spec.file import LARGEST, digest_of, read_fragment
from ddcli.spec.shapes import Notes, describe
from ddcli.spec.tree import MAX_NODES, Broken, Mapping, Node, Scalar, Sequence, parse_tree

KEY = "include"
ANCHORS = "x-"
"""The prefix of a file's keys for anchors; their values are read where an alias names them."""
SHARED = ("inputs", "collections", "outputs")
"""The sections of a fragment whose names become the including file's."""
LISTS = ("checks", "tests")
"""The sections of a fragment whose items become the including file's, before its own."""
KEYS = (*SHARED, *LISTS, KEY, f"{ANCHORS}...")
ALONE, ALIKE = ("dd", "name"), ("clock", "timezone")
"""The keys of a file that also runs by itself: its own, and those whose values must be the including file's."""
MOST, DEEPEST = 100, 10
"""Files that one may include, directly or not, and files from it to the innermost."""
Paths = dict[str, "bool | Paths"]
"""The keys of a mapping, "" any, under which there are paths (True: they may be patterns), or mappings with these."""
IN_INPUTS: Paths = {"path": True, "quarantine": True, "import": {"state": True}, "consumed": {"archive": True}}
IN_OUTPUTS: Paths = dict.fromkeys(("path", "delta", "parquet", "to", "begin"), False)
"""The URI of a database, under `to`, may be a file."""
IN_TESTS: Paths = {"given": {"": False}, "contents": False, "changes": False}
IN_TESTS |= {"steps": IN_TESTS, "expect": IN_TESTS}
"""Rows may be in files."""
FILE_URI = re.compile(r"((?:sqlite|duckdb):///)(?!/)(.+)")


class Includes:
    """The files that a pipeline file includes, and their sections with it, as they are read."""

    def __init__(self, file: str, notes: Notes, variables: dict[str, str | None]) -> None:
        self.base = Path(file).absolute().parent
        self.notes = notes
        self.variables = variables
        self.fragments: list[tuple[str, str]] = []
        self.entries: dict[str, dict[str, tuple[Text, Node]]] = {name: {} for name in SHARED}
        self.items: dict[str, list[Node]] = {name: [] for name in LISTS}
        self.own = Mapping((), Span(file, 1, 1), flow=False)
        self.seen: set[Path] = set()
        self.open = [(Path(file).resolve(), file)]
        self.size = self.nodes = 0

    def merged(self, root: Mapping) -> Mapping:
        """Return a file's tree with the sections of all that it includes. Notes names that two files have."""
        written = root.get(KEY)
        if written is None:
            return root
        self.own = root
        self._include(written, Path(self.open[0][1]).parent)
        whole = {word.value: (word, node) for word, node in root.entries if word.value != KEY}
        for section, found in self.entries.items():
            if not found:
                continue
            word, own = whole.get(section, (Text(section, written.span), Mapping((), written.span, flow=False)))
            if isinstance(own, Mapping):
                self._add(section, own, found)
                whole[section] = word, Mapping(tuple(found.values()), own.span, own.flow)
        for section, items in self.items.items():
            word, listed = whole.get(section, (Text(section, written.span), Sequence((), written.span, flow=False)))
            if items and isinstance(listed, Sequence):
                whole[section] = word, Sequence((*items, *listed.items), listed.span, listed.flow)
        return Mapping(tuple(whole.values()), root.span, root.flow)

    def _include(self, written: Node, folder: Path) -> None:
        """Read the value of `include` in a file in this folder."""
        nodes = written.items if isinstance(written, Sequence) else (written,)
        named: set[str] = set()
        for node in nodes:
            if isinstance(node, Broken):
                continue
            if not isinstance(node, Scalar) or node.kind == "null" or not node.text.value:
                hint = "for example `include: shared/inputs.yaml`"
                self.notes.refuse(KEY, f"must be a file or a list of files, found {describe(node)}", node.span, hint)
            elif node.text.value in named:
                self.notes.refuse(KEY, f"'{node.text.value}' is listed twice", node.span, "leave one of them out")
            else:
                named.add(node.text.value)
                self._file(node, folder)

    def _file(self, node: Scalar, folder: Path) -> None:
        name = node.text.value
        if "://" in name:
            self.notes.refuse(KEY, f"'{name}' is not a file of this machine", node.span, "copy it next to this file")
            return
        path = Path(os.path.normpath(folder / name))
        self.fragments.append((str(path), ""))
        try:
            real = path.resolve(strict=True)
            known = real in self.seen or real in (one for one, _ in self.open)
            text = "" if known else read_fragment(path)
        except UsageError as error:
            self.notes.refuse(KEY, f"'{name}': {error.problem}", node.span, error.hint)
            return
        except (OSError, ValueError, RuntimeError) as error:
            missing = isinstance(error, FileNotFoundError)
            problem = "there is no such file" if missing else getattr(error, "strerror", None) or str(error)
            hint = f"the path is relative to {folder.absolute()}" if missing else None
            self.notes.refuse(KEY, f"'{name}': {problem}", node.span, hint)
            return
        if real in (one for one, _ in self.open):
            circle = [shown for one, shown in self.open[[one for one, _ in self.open].index(real) :]]
            shown = " -> ".join([*circle, circle[0]])
            self.notes.refuse(KEY, f"the file includes itself: {shown}", node.span, "leave one of these out")
            return
        if real in self.seen:
            self.fragments.pop()
            return
        self.seen.add(real)
        self.size += len(text)
        if len(self.open) > DEEPEST or len(self.seen) > MOST or self.size > LARGEST:
            hint = f"at most {MOST} files, {DEEPEST} inside each other, {LARGEST >> 20} MiB together"
            self.notes.refuse(KEY, "includes too much", node.span, hint)
            return
        self.open.append((real, str(path)))
        self._fragment(path, text, node)
        self.open.pop()

    def _fragment(self, path: Path, text: str, node: Scalar) -> None:
        """Take in the sections of a file."""
        self.fragments[-1] = (str(path), digest_of(text))
        tree = parse_tree(text, str(path))
        self.nodes += tree.size
        if self.nodes > MAX_NODES:
            self.notes.refuse(KEY, "includes too much", node.span, f"at most {MAX_NODES} nodes together")
            return
        self.notes.errors += tree.errors
        self.variables |= tree.variables
        if not isinstance(tree.root, Mapping):
            if tree.root is not None:
                problem = f"'{node.text.value}': must be a mapping, found {describe(tree.root)}"
                self.notes.refuse(KEY, problem, node.span)
            return
        for word, value in tree.root.entries:
            if word.value == KEY:
                self._include(value, path.parent)
            elif word.value in SHARED:
                self._section(word, value, path.parent)
            elif word.value in LISTS:
                self._list(word, value, path.parent)
            elif word.value in ALIKE:
                self._alike(word, value)
            elif not word.value.startswith(ANCHORS) and not (
                word.value in ALONE
                and (isinstance(value, Scalar) and (word.value == "name" or value.text.value == "1"))
            ):
                problem = f"an included file has no key {word.value!r}"
                hint = suggestion_and_list(word.value, (*SHARED, *LISTS), f"keys: {', '.join(KEYS)}")
                self.notes.refuse("", problem, word.span, hint)

    def _alike(self, word: Text, value: Node) -> None:
        """Refuse a setting of the whole pipeline that is another one in the including file."""
        own = self.own.get(word.value)
        found = value.text.value if isinstance(value, Scalar) else None
        if found is None or not isinstance(own, Scalar) or own.text.value != found:
            problem = f"the including file has another `{word.value}`"
            self.notes.refuse("", problem, word.span, f"write `{word.value}: {found}` there, too, or leave it out here")

    def _section(self, word: Text, value: Node, folder: Path) -> None:
        if isinstance(value, Mapping):
            moved = value if word.value == "collections" else self._moved(value, folder, word.value)
            self._add(word.value, moved, self.entries[word.value])
        elif not isinstance(value, Broken):
            self.notes.refuse(word.value, f"must be a mapping of names, found {describe(value)}", value.span)

    def _list(self, word: Text, value: Node, folder: Path) -> None:
        if isinstance(value, Sequence):
            between = os.path.relpath(folder.absolute(), self.base)
            away = word.value == "tests" and between != "."
            self.items[word.value] += [_relocated(item, between, IN_TESTS) if away else item for item in value.items]
        elif not isinstance(value, Broken):
            self.notes.refuse(word.value, f"must be a list, found {describe(value)}", value.span)

    def _add(self, section: str, more: Mapping, found: dict[str, tuple[Text, Node]]) -> None:
        """Add the entries of a file to the entries of others. Names belong to one of them."""
        for name, node in more.entries:
            if name.value in found:
                first = found[name.value][0].span
                problem = f"defined a second time, first at {first}"
                self.notes.refuse(f"{section}.{name.value}", problem, name.span, "keep one of the two, or rename it")
            else:
                found[name.value] = name, node

    def _moved(self, things: Mapping, folder: Path, section: str) -> Mapping:
        """Return inputs or outputs whose paths are relative to the including file's folder."""
        between = os.path.relpath(folder.absolute(), self.base)
        if between == ".":
            return things
        alone, named = (True, IN_INPUTS) if section == "inputs" else (False, IN_OUTPUTS)
        entries = (
            (name, _relocated(node, between, alone if isinstance(node, Scalar) else named))
            for name, node in things.entries
        )
        return Mapping(tuple(entries), things.span, things.flow)


def _relocated(node: Node, between: str, paths: Paths | bool) -> Node:
    """Return a node whose own paths begin with those between two folders; of a list of tests, or of their parts, each element's."""
    if isinstance(node, Scalar):
        return _under(node, between, pattern=paths) if isinstance(paths, bool) else node
    if isinstance(node, Sequence) and paths is IN_TESTS:
        return Sequence(tuple(_relocated(item, between, paths) for item in node.items), node.span, node.flow)
    if isinstance(paths, bool) or not isinstance(node, Mapping):
        return node
    found = ((word, value, paths.get(word.value, paths.get(""))) for word, value in node.entries)
    entries = ((word, value if own is None else _relocated(value, between, own)) for word, value, own in found)
    return Mapping(tuple(entries), node.span, node.flow)


def _under(path: Scalar, between: str, *, pattern: bool = True) -> Scalar:
    """Return a path, or a `pattern` of paths, that begins with the path between two folders, if it is relative."""
    text = path.text
    if (uri := FILE_URI.fullmatch(text.value)) is not None and not pattern:
        return Scalar(Text(uri[1] + posixpath.join(between, uri[2]), text.span), path.kind, path.plain, path.comment)
    if not text.value or path.kind == "null" or "://" in text.value or text.value.startswith("/"):
        return path
    joined = posixpath.join(glob.escape(between) if pattern else between, text.value)
    return Scalar(Text(joined, text.span), path.kind, path.plain, path.comment)

"""The view of a pipeline that `dd explain` draws: the plan of the next run, the state, and the records of runs; and its SQL written as operators, for `-o yaml`.

As operators, a chain over one input is a collection. The other sides of joins and sums, and nodes with several readers, are further collections. The
written operators return the same records at each time. Their types may be wider: a column that is never null may become nullable.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from itertools import count
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

from ddcli.commands.check import bound_pipeline
from ddcli.dataclass import dataclass
from ddcli.expressions.tree import quoted, to_be_read
from ddcli.expressions.types import in_zone, renamed
from ddcli.job.paths import at_branch, state_at, state_of
from ddcli.job.summary import read_runs
from ddcli.job.verdict import verdicts_of
from ddcli.plan import loops
from ddcli.plan.node import Graph, Unwritten
from ddcli.plan.words import NO_COLUMN
from ddcli.render.view import View, view_of
from ddcli.spec import model
from ddcli.spec.file import AT, read_text
from ddcli.spec.tree import compose
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import check_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddcli.expressions.types import Schema
    from ddcli.plan.joins import BinaryNode
    from ddcli.plan.node import Node, Written
    from ddcli.plan.pipeline_file import BoundPipeline
    from ddcli.spec.model import Spec
    from ddcli.store.state.manifest import Manifest


def explain(path: Path | str, state: Path | None = None) -> View:
    """Return the view of the pipeline file at `path`, or raise its errors. A notebook shows it as a drawing. No row is read, nothing written, no lock taken.

    An input with declared columns needs no file; the columns of others are read from the files' footers.
    """
    path = Path(path)
    bound = bound_pipeline(path)
    spec = bound.spec
    main = state or state_of(spec, path.absolute().parent)
    state = state_at(path, main)
    manifest = read_newest(state)
    if manifest is not None:
        check_pipeline(state, manifest, path)
    wanted = bound.plan(manifest.cache["plan"] if manifest else None)
    names = {name: relation.node.fingerprint for name, relation in bound.relations.items()}
    written = spec if state == main else at_branch(spec, path.stem.partition(AT)[2])
    paths = {name: output.place.value for name, output in written.outputs.items()}
    return view_of(spec.name.value, wanted, names, paths, manifest, read_runs(state), _verdicts(spec, manifest))


def _verdicts(spec: Spec, manifest: Manifest | None) -> dict[str, str]:
    """Return the verdicts of checks at the last commit, in words."""
    judged = verdicts_of(spec, manifest, time_ns() // 1000) if manifest is not None and spec.checks else {}
    words = {name: "ok" if verdict.passed else verdict.words for name, verdict in judged.items()}
    return {name: f"check: {words.get(name, 'no run has judged it')}" for name in spec.checks}


WIDE = 1 << 20
"""The most columns of a line, so that none is broken."""

ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""The characters that JSON's texts may have and YAML's may not, or that it would change."""


def written_pipeline(path: Path) -> tuple[str, dict[str, str]]:
    """Return the text of the pipeline file at `path` with operators in place of its queries, and the collections that stay SQL, with the reason; or raise its errors.

    All else in the file stays as it is written, and so do queries in included files and in the bodies of loops.
    """
    import yaml

    bound = bound_pipeline(path)
    text = read_text(path).removeprefix("\ufeff")
    root = compose(text)
    several = _shared(root)
    taken = set(bound.relations)
    left: dict[str, str] = {}
    edits: list[tuple[int, int, str]] = []
    for section, collections in root.value:
        if section.value != "collections" or not isinstance(collections, yaml.MappingNode):
            continue
        for key, value in collections.value:
            spec = bound.spec.collections.get(key.value)
            if spec is None or not isinstance(spec.sources, model.Query) or not isinstance(value, yaml.MappingNode):
                continue
            (sql,) = [entry for entry in value.value if entry[0].value == "sql"]
            if several & {id(node) for node in (collections, key, value, *sql)}:
                left[key.value] = "text that has an alias"
                continue
            try:
                made = _written(bound, key.value, spec.sources, taken)
            except Unwritten as reason:
                left[key.value] = str(reason)
                continue
            edits += _edits(text, key, value, sql, made, collections)
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text, left


def _written(bound: BoundPipeline, name: str, query: model.Query, taken: set[str]) -> dict[str, Any]:
    """Return the collections of operators that compute a query, the last under the query's name."""
    from ddcli.plan.sql.context import Times
    from ddcli.plan.sql.statement import bind

    relations = bound.relations
    inputs = [relations[each].node for each in bound.spec.inputs]
    times = Times(tuple(bound.time.values()), bound.spec.clock == "arrival")
    with in_zone(bound.spec.timezone):
        found, _ = bind(query.text, relations.__getitem__, lambda: inputs, None, times)
    known = {relations[each.value].node.fingerprint: each.value for each in query.tables}
    return written(name, found.node, known, taken)


def _shared(root: Any) -> set[int]:
    """Return the ids of a tree's nodes that aliases repeat: an edit of one would be an edit of all."""
    found: set[int] = set()
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            found.add(id(node))
            continue
        seen.add(id(node))
        if node.id == "sequence":
            waiting += node.value
        elif node.id == "mapping":
            waiting += [each for entry in node.value for each in entry]
    return found


def _edits(
    text: str, key: Any, value: Any, sql: Any, made: dict[str, Any], collections: Any
) -> list[tuple[int, int, str]]:
    """Return edits that replace a collection's entry `sql`, and put further collections before it."""
    *others, own = made.items()
    further = any(entry[0].value == "apply" for entry in value.value)
    if further and "apply" in own[1]:  # the query's own operators come before those behind it
        name = f"{own[0]}_1"
        others, own = [*others, (name, own[1])], (own[0], {"from": name})
    start, end = sql[0].start_mark.index, sql[1].end_mark.index
    end -= len(text[start:end]) - len(text[start:end].rstrip())
    edits = [(start, end, _entries(own[1], value, sql[0].start_mark.column))]
    if others:
        at = key.start_mark
        before = _entries(dict(others), collections, at.column)
        between = ", " if collections.flow_style else "\n" + " " * at.column
        edits.append((at.index, at.index, before + between))
    return edits


def _entries(values: dict[str, Any], mapping: Any, column: int) -> str:
    """Return entries in the style of a mapping: in braces, or each on a line of its own, indented to a column."""
    import yaml

    values = _escaped(values)
    if mapping.flow_style:
        written = ", ".join(
            f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()
        )
        return ESCAPED.sub(lambda each: f"\\u{ord(each[0]):04x}", written)
    lines = yaml.safe_dump(values, sort_keys=False, width=WIDE, allow_unicode=True).rstrip("\n").split("\n")
    return ("\n" + " " * column).join(lines)


def _escaped(value: Any) -> Any:
    """Return a value in whose texts `${` is escaped, so that it begins no variable."""
    if isinstance(value, dict):
        return {_escaped(name): _escaped(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return value.replace("${", "$${") if isinstance(value, str) else value


def written(name: str, node: Node, known: Mapping[str, str], taken: set[str]) -> dict[str, Any]:
    """Return the collections, by name, that compute a query's collection `name`; the last is this collection.

    `known` has the names of existing collections by their nodes' fingerprints, `taken` the names that are not free. Raises Unwritten.
    """
    writer = _QueryWriter(name, dict(known), taken, _readers(node))
    with to_be_read():
        source, operators = writer.chain(node, alone=True)
    return writer.made | {name: _collection(source, operators)}


def _readers(node: Node) -> dict[str, int]:
    """Return the number of readers of each node, by fingerprint."""
    counts: dict[str, int] = {}
    for each in Graph({"": node}).nodes():
        for child in each.inputs:
            counts[child.fingerprint] = counts.get(child.fingerprint, 0) + 1
    return counts


def _collection(source: str | dict[str, Any], operators: list[Any]) -> dict[str, Any]:
    if isinstance(source, dict):
        return source | ({"apply": operators} if operators else {})
    return {"from": source} | ({"apply": operators} if operators else {})


@dataclass(eq=False)
class _QueryWriter:
    """The writer of nodes as collections; `made` has those written so far."""

    name: str
    known: dict[str, str]
    taken: set[str]
    readers: dict[str, int]
    made: dict[str, Any] = field(default_factory=dict)
    bodies: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The collections of the loops that are being written, by depth."""
    leaving: dict[str, list[str]] = field(default_factory=dict)
    """The names of the collections that leave each loop."""

    def chain(self, node: Node, *, alone: bool = False) -> Written:
        """Return a source and the operators that compute a node's records from it, also with `alone` for a node that several read."""
        if (name := self.known.get(node.fingerprint)) is not None:
            return name, []
        if not alone and self.readers.get(node.fingerprint, 0) > 1:
            return self.named(node), []
        return node.written(self)

    def named(self, node: Node) -> str:
        """Return the name of a collection with a node's records, written if there is none."""
        source, operators = self.chain(node, alone=True)
        if isinstance(source, str) and not operators:
            return source
        name = self.free(self.name)
        self.section(node)[name] = _collection(source, operators)
        self.known[node.fingerprint] = name
        return name

    def section(self, node: Node) -> dict[str, Any]:
        """Return the collections to which a node's is added: the collections of the innermost loop on whose round it depends, or the file's."""
        return self.bodies[node.level] if node.level else self.made

    def free(self, stem: str) -> str:
        """Return a name that is not taken, and record it as taken."""
        stem = re.sub(r"[^\w-]", "_", stem)
        name = next(each for at in count(2) if (each := f"{stem}_{at}") not in self.taken)
        self.taken.add(name)
        return name

    def after(self, node: Node, *operators: Any) -> Written:
        """Return a node's first input with operators after it."""
        source, before = self.chain(node.inputs[0])
        return source, [*before, *operators]

    def matched(self, node: BinaryNode, word: str) -> Written:
        """Return the left records of a node that have partners in the right ones, or none: `word` is its operator."""
        left, right = node.inputs
        mine, theirs = (
            _JoinSide("other", side.schema, dict(zip(side.schema, side.schema, strict=True))) for side in (left, right)
        )
        on: dict[str, str] = {}
        for one, other in node.on:
            a = mine.copy(one) if one in on else one
            on[a] = theirs.copy(other) if other in on.values() else other
        source, operators = self.chain(left)
        name = self.named(right)
        with_: Any = {"from": name, "apply": [{"extend": theirs.extended()}]} if theirs.copies else name
        before = [{"extend": mine.extended()}] if mine.copies else []
        after = [{"drop": list(mine.copies)}] if mine.copies else []
        return source, [*operators, *before, {word: {"with": with_, "on": on}}, *after]

    def joined(
        self,
        node: BinaryNode,
        word: str,
        how: str,
        columns: Iterable[tuple[str, str, str]],
        at: tuple[str, str] | None = None,
        **more: Any,
    ) -> Written:
        """Return a join with these columns of its sides, whose operator is `word`; `at` is a pair of columns that it compares."""
        # A join returns one of two equal columns, and compares each with one other: further uses of a column get a copy of it.
        left, right = node.inputs
        source, operators = self.chain(left)
        name = self.named(right)
        mine = _JoinSide("left", left.schema, dict(zip(left.schema, left.schema, strict=True)))
        theirs = _JoinSide("right", right.schema, renamed(right.schema, left.schema))
        on: dict[str, str] = {}
        for one, other in node.on:
            a = mine.copy(one, theirs.given.values()) if one in on else one
            b = theirs.given[other]
            on[a] = theirs.copy(other, mine.given.values()) if b in on.values() else b
        found = {}
        for column, side, each in columns:
            if side == "right":
                own = theirs.given[each]
                own = theirs.copy(each, mine.given.values()) if own in on.values() else own
            else:
                own = (
                    mine.copy(each, theirs.given.values()) if side == "left" and how == "full" and each in on else each
                )
            found[column] = quoted(own)
        if mine.copies:
            operators = [*operators, {"extend": mine.extended()}]
        given = {new: quoted(old) for old, new in theirs.given.items()} | theirs.extended()
        plain = all(old == new for old, new in theirs.given.items()) and not theirs.copies
        with_: Any = name if plain else {"from": name, "apply": [{"map": given}]}
        where: dict[str, Any] = {"at": {at[0]: theirs.given[at[1]]}} if at else {}
        where |= {"on": on} if on or not at else {}
        joined = {word: {"with": with_} | where | {"how": how} | more}
        rest = [each for each in [*theirs.given.values(), *theirs.copies] if each not in on.values()]
        if [*found.items()] == [(each, quoted(each)) for each in [*left.schema, *mine.copies, *rest]]:
            return source, [*operators, joined]
        return source, [*operators, joined, {"map": found or NO_COLUMN}]

    def left(self, node: loops.Leave) -> Written:
        """Return a collection that leaves a loop, which is written when the first one leaves."""
        (loop,) = node.inputs
        assert isinstance(loop, loops.Iterate)
        if loop.fingerprint not in self.leaving:
            self.leaving[loop.fingerprint] = self.looped(loop)
        return self.leaving[loop.fingerprint][node.which], []

    def looped(self, loop: loops.Iterate) -> list[str]:
        """Write a loop; return the names of the collections that leave it."""
        name = self.free(self.name)
        names = [self.free(str(each.value)) for each in loop.names]
        initials = [self.named(each) for each in loop.initials]
        for each in Graph({"": loop}).nodes():
            if isinstance(each, loops.LoopVariable) and each.loop == loop.loop:
                self.known[each.fingerprint] = names[each.index]
        before, self.bodies[loop.depth] = self.bodies.get(loop.depth), {}
        for variable, body in zip(names, loop.bodies, strict=True):
            source, operators = self.chain(body, alone=True)
            self.bodies[loop.depth][variable] = _collection(source, operators)
        inside = self.bodies.pop(loop.depth)
        if before is not None:
            self.bodies[loop.depth] = before
        result = names[0] if len(names) == 1 else names
        rounds = {"max_rounds": loop.bound} if loop.bound is not None else {}
        variables = dict(zip(names, initials, strict=True))
        made = {"iterate": {"variables": variables, "body": inside, "result": result} | rounds}
        self.section(loop)[name] = made
        return [name] if len(names) == 1 else [f"{name}.{each}" for each in names]


@dataclass(eq=False)
class _JoinSide:
    """A side of a join: the names of its columns in the join, and the columns that are copied, by the copies' names."""

    word: str
    schema: Schema
    given: dict[str, str]
    copies: dict[str, str] = field(default_factory=dict)

    def extended(self) -> dict[str, str]:
        """Return the copies as columns of an `extend`."""
        return {new: quoted(old) for new, old in self.copies.items()}

    def copy(self, column: str, others: Iterable[str] = ()) -> str:
        """Add a copy of a column, and return its name, which neither this side nor `others` have."""
        taken = [*self.schema, *self.given.values(), *self.copies, *others]
        (name,) = renamed([f"{self.word} {column}"], taken).values()
        self.copies[name] = column
        return name

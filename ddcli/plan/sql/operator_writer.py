"""A query's nodes written as operators of a pipeline file, for `dd explain -o yaml`.

A chain of operators over one input is a collection. The other sides of joins and sums, and nodes with several readers, are further collections. The
written operators return the same records at each time. Their types may be wider: a column that is never null may become nullable.
"""

from __future__ import annotations

import re
from dataclasses import field, replace
from functools import singledispatchmethod
from itertools import count
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import dataclass
from ddcli.expressions.steps import ExplodeStep, FilterStep, MapStep, UnnestStep
from ddcli.expressions.tree import Column, Expression, quoted, to_be_read
from ddcli.plan import asof, groupings, joins, logical, loops, windows
from ddcli.plan.node import Graph
from ddcli.plan.sql.names import renamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.expressions.types import Schema
    from ddcli.expressions.windows import WindowCall
    from ddcli.plan.node import Node

Operators = list[Any]
WORDS = ("by", "function")
"""The names that a `reduce` can't give to columns, since they are its own words."""

DISTANCE = re.compile(r"^range between (?!unbounded preceding and (current row|unbounded following)$)")
"""The text of a frame whose bounds are distances in values."""
NO_COLUMN = {"#row": "1"}
"""The column for records without columns, which a pipeline file can't state."""


class Unwritten(Exception):
    """A node for which a pipeline file has no operators; the message names it."""


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


def _collection(source: str | dict[str, Any], operators: Operators) -> dict[str, Any]:
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

    def chain(self, node: Node, *, alone: bool = False) -> tuple[str | dict[str, Any], Operators]:
        """Return a source and the operators that compute a node's records from it, also with `alone` for a node that several read."""
        if (name := self.known.get(node.fingerprint)) is not None:
            return name, []
        if not alone and self.readers.get(node.fingerprint, 0) > 1:
            return self.named(node), []
        return self.operator(node)

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
        """Return the collections to which a node's is added: those of the innermost loop on whose round it depends, or the file's."""
        return self.bodies[loops.level(node)] if loops.level(node) else self.made

    def free(self, stem: str) -> str:
        """Return a name that is not taken, and record it as taken."""
        stem = re.sub(r"[^\w-]", "_", stem)
        name = next(each for at in count(2) if (each := f"{stem}_{at}") not in self.taken)
        self.taken.add(name)
        return name

    def after(self, node: Node, *operators: Any) -> tuple[str | dict[str, Any], Operators]:
        """Return a node's first input with operators after it."""
        source, before = self.chain(node.inputs[0])
        return source, [*before, *operators]

    @singledispatchmethod
    def operator(self, node: Node) -> tuple[str | dict[str, Any], Operators]:
        """Return the source and the operators that compute a node's records."""
        raise Unwritten(node.operator)

    @operator.register
    def _(self, node: logical.Once) -> tuple[str | dict[str, Any], Operators]:
        (column,) = node.schema
        return {"sql": f"select 1 as {quoted(column)}"}, []

    @operator.register
    def _(self, node: logical.Apply) -> tuple[str | dict[str, Any], Operators]:
        step = node.step
        if isinstance(step, FilterStep):
            return self.after(node, {"filter": str(step.condition)})
        if isinstance(step, ExplodeStep):
            return self.after(node, {"explode": str(step.weight)})
        if isinstance(step, UnnestStep):
            return self.after(node, {"flat_map": {step.name: step.call.text()}})
        if isinstance(step, MapStep):
            return self.after(node, *_mapping(step.columns, node.inputs[0].schema))
        raise Unwritten("a Python function")

    @operator.register
    def _(self, node: logical.Temporal) -> tuple[str | dict[str, Any], Operators]:
        bounds = {"from": node.lower, "until": node.upper}
        return self.after(node, {"temporal_filter": {name: str(each) for name, each in bounds.items() if each}})

    @operator.register
    def _(self, node: logical.SignedSum) -> tuple[str | dict[str, Any], Operators]:
        if -1 in node.signs:
            return self.after(node, "negate")
        first, *others = node.inputs
        source, operators = self.chain(first)
        return source, [*operators, {"concat": [self.named(each) for each in others]}]

    @operator.register
    def _(self, node: groupings.Threshold) -> tuple[str | dict[str, Any], Operators]:
        return self.after(node, "distinct" if node.function is None else {"threshold": str(node.function)})

    @operator.register
    def _(self, node: joins.Semijoin) -> tuple[str | dict[str, Any], Operators]:
        word = "antijoin" if node.anti else "semijoin"
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

    @operator.register
    def _(self, node: groupings.TopK) -> tuple[str | dict[str, Any], Operators]:
        order = _order(node.order_by)
        by = {"by": list(node.by)} if node.by else {}
        # Without an order, records are ordered by all columns in turn.
        return self.after(node, {"top_k": by | {"k": node.k, "order_by": order or [quoted(next(iter(node.schema)))]}})

    @operator.register(joins.Join | asof.AsofJoin)
    def _(self, node: joins.Join | asof.AsofJoin) -> tuple[str | dict[str, Any], Operators]:
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
        for column, side, each in node.columns:
            if side == "right":
                own = theirs.given[each]
                own = theirs.copy(each, mine.given.values()) if own in on.values() else own
            else:
                own = (
                    mine.copy(each, theirs.given.values())
                    if side == "left" and node.how == "full" and each in on
                    else each
                )
            found[column] = quoted(own)
        if mine.copies:
            operators = [*operators, {"extend": mine.extended()}]
        columns = {new: quoted(old) for old, new in theirs.given.items()}
        columns |= theirs.extended()
        plain = all(old == new for old, new in theirs.given.items()) and not theirs.copies
        with_: Any = name if plain else {"from": name, "apply": [{"map": columns}]}
        joined: dict[str, Any] = {"join": {"with": with_, "on": on, "how": node.how}}
        if isinstance(node, asof.AsofJoin):
            where = {"at": {node.at[0]: theirs.given[node.at[1]]}} | ({"on": on} if on else {})
            ways: dict[str, Any] = {"direction": "forward"} if node.forward else {}
            ways |= {"strict": True} if node.strict else {}
            joined = {"asof_join": {"with": with_} | where | {"how": node.how} | ways}
        rest = [each for each in [*theirs.given.values(), *theirs.copies] if each not in on.values()]
        if [*found.items()] == [(each, quoted(each)) for each in [*left.schema, *mine.copies, *rest]]:
            return source, [*operators, joined]
        return source, [*operators, joined, {"map": found or NO_COLUMN}]

    @operator.register
    def _(self, node: windows.Window) -> tuple[str | dict[str, Any], Operators]:
        frames = {call.frame.text() for _, call in node.calls if call.frame is not None}
        if len(frames) > 1:  # separate operators might order equal rows differently
            raise Unwritten("a window with several frames")
        if len(node.order_by) > 1 and any(DISTANCE.search(frame) for frame in frames):
            raise Unwritten("a frame by a distance of values, of keys that may be null")
        window: dict[str, Any] = {"by": list(node.by)} if node.by else {}
        window |= {"order_by": _order(node.order_by)} if node.order_by else {}
        window |= {"frame": frames.pop()} if frames else {}
        return self.after(node, {"window": window | {"columns": {name: _called(call) for name, call in node.calls}}})

    @operator.register
    def _(self, node: loops.Leave) -> tuple[str | dict[str, Any], Operators]:
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

    @operator.register
    def _(self, node: groupings.Reduce) -> tuple[str | dict[str, Any], Operators]:
        if not node.results:
            return self.after(node, {"map": _texts(node.by) or NO_COLUMN}, "distinct")
        names = renamed([name if name not in WORDS else f"{name} of rows" for name, _ in node.results], dict(node.by))
        given = dict(zip((name for name, _ in node.results), names.values(), strict=True))
        plain = all(isinstance(each, Column) and each.name == name for name, each in node.by)
        by: Any = [name for name, _ in node.by] if plain else _texts(node.by)
        calls = {quoted(f"${at}"): call.text() for at, call in enumerate(node.calls)}
        reduced = {given[name]: _with_calls(result, calls) for name, result in node.results}
        operators: Operators = [{"reduce": ({"by": by} if node.by else {}) | reduced}]
        if any(old != new for old, new in given.items()):
            operators.append({"rename": {new: old for old, new in given.items() if new != old}})
        return self.after(node, *operators)


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


def _order(keys: Sequence[tuple[str, bool]]) -> list[str]:
    return [quoted(name) + (" desc" if descending else "") for name, descending in keys]


def _called(call: WindowCall) -> str:
    """Return a call over a window without its frame."""
    if call.function in ("lag", "lead"):  # without a number they mean one row away
        value, *default = (each.text() for each in call.args)
        return f"{call.function}({', '.join([value, str(call.number), *default])})"
    return replace(call, frame=None).text()


def _mapping(columns: Sequence[tuple[str, Expression]], below: Schema) -> Operators:
    """Return the operators that compute columns from those of the input, `below`."""
    same = [name for name, each in columns if isinstance(each, Column) and each.name == name]
    if not columns:
        return [{"map": NO_COLUMN}]
    if len(same) == len(columns):
        return [] if same == list(below) else [{"project": same}]
    if below and same == list(below) == [name for name, _ in columns[: len(same)]]:
        return [{"extend": _texts(columns[len(same) :])}]
    return [{"map": _texts(columns)}]


def _texts(columns: Sequence[tuple[str, Expression]]) -> dict[str, str]:
    return {name: str(each) for name, each in columns}


def _with_calls(result: Expression, calls: Mapping[str, str]) -> str:
    """Return an expression as text, with its columns `$0`, `$1` and so on replaced by the texts of aggregate calls."""
    text = str(result)
    for name, call in calls.items():
        text = text.replace(name, call)
    return text

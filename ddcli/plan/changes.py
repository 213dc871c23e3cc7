"""The consequences of a changed pipeline for its state: the parts that are kept, those that are built anew and why, the outputs that change.

Identity is the fingerprint: an arrangement is kept if the new plan has a node of that identity, an output has the same contents
if its plan by itself has the same fingerprint as before. Pure: a manifest and a plan in, words out; `migration` does the work.
"""

from __future__ import annotations

import json
import re
from dataclasses import field, replace
from functools import cached_property
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal

from ddcli.dataclass import dataclass, frozen
from ddcli.errors import DdError
from ddcli.plan import groupings, logical, physical
from ddcli.plan.build import references
from ddcli.plan.generations import substitute
from ddcli.plan.logical import INPUT
from ddcli.plan.memo import remembered
from ddcli.plan.node import Graph
from ddcli.plan.physical import EXPORT, WAITING, physical_graph
from ddcli.plan.pipeline_file import BoundPipeline, parse_spec
from ddcli.spec.file import identities
from ddcli.spec.model import owners

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ddcli.plan.generations import Plan
    from ddcli.plan.node import Node
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.spec.model import Spec


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


WORD = re.compile("[A-Z][a-z]*")
"""A word in the name of an operator."""
INTERNAL = re.compile(r'"?[#$]\w')
"""A name that a query's plan adds, and no file has."""
LOOP = re.compile("[0-9a-f]{20}, ")
"""The name of a loop in the words of a node of it: a digest of all that it does, inputs included."""
CONTENTS = "="
"""The prefix of scans of an arrangement's contents, instead of an input."""

OF_INPUTS = re.compile(rf"{INPUT}:|{INPUT} `[^`]*` is (upserts|snapshots) now|(upserts|snapshots) is")
"""The beginnings of reasons that are changes of inputs: of their columns, and of their formats."""
RECORDS = logical.Table | logical.Watched | groupings.Accumulate | groupings.Group
"""The nodes whose records the state keeps: records of an input as they are, and results of groups."""

Change = Literal["same", "changed", "new"]


@dataclass(frozen=True)
class Known:
    """The facts of a state with which a plan is compared: its arrangements' identities, its outputs' meanings, its inputs, and its nodes for people."""

    arrangements: frozenset[str]
    meanings: Mapping[str, str]
    inputs: frozenset[str]
    outline: Mapping[str, Any]


@dataclass(frozen=True)
class PlanChanges:
    """The difference between the present plan and the plan of a state. `refresh` names outputs that are to be computed anew, changed or not;
    rows of the inputs `withdrawn` are taken back.
    """

    plan: Plan
    known: Known
    times: int
    refresh: frozenset[str] = frozenset()
    withdrawn: frozenset[str] = frozenset()
    edits: Mapping[str, Edit] = field(default_factory=dict)
    """The edited collections of the file, by name."""

    @cached_property
    def touched(self) -> frozenset[str]:
        """The nodes that may depend on rows that are taken back, by fingerprint."""
        found: set[str] = set()
        for node in self.plan.graph.nodes if self.withdrawn else ():  # inputs come before readers
            own = isinstance(node, physical.Scan) and node.name in self.withdrawn
            if own or any(child.fingerprint in found for child in node.inputs):
                found.add(node.fingerprint)
        for name, node in self.plan.graph.outputs.items():
            if node.fingerprint in found:  # a node in a loop depends on all that enters it
                found |= {each.fingerprint for each in physical_graph({name: node}).nodes if each.level > 0}
        return frozenset(found)

    @cached_property
    def outputs(self) -> dict[str, Change]:
        """The change of each output of the plan."""
        found: dict[str, Change] = {}
        for name, meaning in self.plan.meanings.items():
            if name.startswith(EXPORT):
                continue
            before = self.known.meanings.get(name)
            again = (
                name in self.refresh or meaning != before or self.plan.graph.outputs[name].fingerprint in self.touched
            )
            found[name] = "new" if before is None else "changed" if again else "same"
        return found

    @cached_property
    def removed(self) -> list[str]:
        """The outputs that the plan no longer has."""
        return [name for name in self.known.meanings if name not in self.plan.meanings]

    @cached_property
    def stateful(self) -> list[Node]:
        """The nodes that keep state."""
        return [node for node in self.plan.graph.nodes if node.keeps_state(self.times)]

    @cached_property
    def built(self) -> dict[str, Node]:
        """The nodes whose state is to be built, by fingerprint."""
        again: set[str] = {*self.touched}
        for name in self.refresh:
            if name in self.plan.graph.outputs:
                whole = physical_graph({name: self.plan.graph.outputs[name]})
                again |= {node.fingerprint for node in whole.nodes}
        return {
            node.fingerprint: node
            for node in self.stateful
            if node.fingerprint in again or not self._has(node.fingerprint)
        }

    @cached_property
    def kept(self) -> dict[str, Node]:
        """The nodes whose state stays as it is, by fingerprint."""
        return {node.fingerprint: node for node in self.stateful if node.fingerprint not in self.built}

    @cached_property
    def remembered(self) -> frozenset[str]:
        """The identities of the results of functions that remember: they stay, and are read in place of a call, whatever is built."""
        return frozenset(remembered(self.plan.graph.nodes))

    @cached_property
    def dropped(self) -> list[str]:
        """The identities in the state that no node of the plan has."""
        wanted = {node.fingerprint for node in self.stateful} | self.remembered
        return sorted(name for name in self.known.arrangements if name.removesuffix(WAITING) not in wanted)

    @property
    def rewritten(self) -> list[str]:
        """The outputs that have a log whose contents may change."""
        return [name for name, change in self.outputs.items() if change == "changed"]

    def cut(self) -> PhysicalGraph:
        """Return the graph that builds the new nodes and computes the changed outputs, from as little as possible.

        A kept arrangement is read instead of computed; but none in a loop is read from the
        state, as its rounds are only useful with the rounds of all its nodes.
        """
        graph = self.plan.graph
        missing = {*self.built}
        needed = {
            name: node
            for name, node in graph.outputs.items()
            if self.outputs.get(name, "same") != "same"
            or any(n.fingerprint in missing for n in physical_graph({name: node}).nodes)
        }
        sources = {
            name: as_source(node, self.times)
            for name, node in self.kept.items()
            if isinstance(node, physical.Arrangement | RECORDS) and node.level == 0
        }
        return physical_graph(substitute(needed, sources.get), graph.engines)

    def why(self, name: str) -> list[str]:
        """Return the reasons why an output changes, in few words."""
        if name.startswith(EXPORT):
            return ["it is exported"]
        if name in self.refresh:
            return ["it is recomputed"]
        if self.outputs[name] == "new":
            return ["it is new"]
        before = self.known.outline["outputs"].get(name)
        reasons = self._compare(self.plan.logical.outputs[name], before) if before else []
        edits = [edit.words for edit in self.edits_of(name)]
        # An edited collection explains all changes but changes of inputs.
        return edits + [reason for reason in reasons if not edits or OF_INPUTS.match(reason)]

    def edits_of(self, name: str) -> list[Edit]:
        """Return the edits behind the change of an output."""
        read = collections_of(self.plan.logical, name) if self.edits else ()
        return [edit for each, edit in self.edits.items() if each in read]

    def why_built(self, fingerprint: str) -> list[str]:
        """Return the reasons why a node is built: the changes of the outputs that read it."""
        found = []
        for name, node in self.plan.graph.outputs.items():
            if any(each.fingerprint == fingerprint for each in physical_graph({name: node}).nodes):
                what = f"output '{name}'" if not name.startswith(EXPORT) else f"'{name.removeprefix(EXPORT)}'"
                found += [f"{what}: {reason}" for reason in self.why(name)]
        return found

    def _compare(self, node: Node, old: str) -> list[str]:
        """Return the differences of a logical node and those below it from the nodes in their places before."""
        before = self.known.outline["nodes"]
        if node.fingerprint == old or old not in before:
            return []
        kind, words, inputs = before[old]
        same = len(inputs) == len(node.inputs)
        below = [self._compare(child, other) for child, other in zip(node.inputs, inputs, strict=True)] if same else []
        reasons = list(dict.fromkeys(reason for each in below for reason in each))
        now_kind, now = node.wording
        unchanged = (kind, LOOP.sub("", words)) == (now_kind, LOOP.sub("", now))
        return reasons if unchanged else [_differ(kind, words, now_kind, now), *reasons]

    def _has(self, fingerprint: str) -> bool:
        return fingerprint in self.known.arrangements or fingerprint + WAITING in self.known.arrangements


def as_source(node: Node, times: int) -> Node:
    """Return the source that replaces a node whose collection the state holds: a kept arrangement, or its own records."""
    name = CONTENTS + node.fingerprint
    if not isinstance(node, physical.Arrangement):
        return physical.StateContents((), node.schema, name, times, identity=node.fingerprint)
    scan = physical.Scan((), node.schema, name, times)
    return physical.KeptArrangement((scan,), node.schema, node.key, node.fingerprint)


def describe(node: Node) -> str:
    """Return a description of the collection that a node's state holds: `orders by customer`, `sums by region of orders`."""
    inputs = sorted({each.name for each in _scans(node)})
    of = ", ".join(inputs) or "a loop's variable"
    grouped = f" by {node.groups}" if node.groups else ""
    return (
        f"{of}{grouped}"
        if isinstance(node, physical.Arrangement)
        else f"{' '.join(WORD.findall(node.operator)).lower()}{grouped} of {of}"
    )


def _scans(node: Node) -> list[physical.Scan | physical.Pick]:
    return [each for each in physical_graph({"": node}).nodes if isinstance(each, physical.Scan | physical.Pick)]


def _differ(kind: str, words: str, now_kind: str, now: str) -> str:
    if kind != now_kind:
        was, now_is = (
            f"{each} `{text.partition(' (')[0]}`" if each == INPUT else each
            for each, text in ((kind, words), (now_kind, now))
        )
        return f"{was} is {now_is} now"
    if INTERNAL.search(words + now) or LOOP.match(now):
        return f"{kind} changed"
    return f"{kind}: {_short(words)} is {_short(now)} now"


def _short(text: str, most: int = 120) -> str:
    return f"`{text if len(text) <= most else text[: most - 3] + '...'}`"


def present(names: Collection[str]) -> str:
    """Return names as a list for people."""
    return ", ".join(f"'{name}'" for name in names)


SECTIONS = re.compile(
    r"^(?:collections|outputs|budget|checks|tests|include):.*?(?=^[^\s#]|\Z)", re.MULTILINE | re.DOTALL
)
"""The sections of a file that collections of an earlier text replace, or that need other collections."""
NAME = re.compile(r"\w+")


def reached_outputs(spec: Spec, outline: Mapping[str, Any]) -> frozenset[str]:
    """Return the outputs that an edit of a file may change: the outputs whose text, or a collection's below them, was another one when the state's plan was made.

    All of them, if anything else in the file was, or if an earlier version made the plan.
    """
    known, now = outline.get("identities"), identities(spec)
    if known is None or known["rest"] != now["rest"] or spec.quarantines:
        return frozenset(spec.outputs)
    owner = owners(spec.collections)
    readers: dict[str, list[str]] = {}
    for key, each in spec.collections.items():
        for name in references(each):
            readers.setdefault(owner.get(name, name), []).append(key)
    left = [key for key, identity in now["collections"].items() if known["collections"].get(key) != identity]
    met = set(left)
    while left:
        more = [key for key in readers.get(left.pop(), ()) if key not in met]
        met.update(more)
        left += more
    return frozenset(
        name
        for name, each in spec.outputs.items()
        if known["outputs"].get(name) != now["outputs"][name] or owner.get(each.source.value) in met
    )


def only(spec: Spec, outputs: Collection[str]) -> Spec:
    """Return a file with some outputs alone, and the collections and checks that they need."""
    owner = owners(spec.collections)
    left, met = [spec.outputs[name].source.value for name in outputs], set[str]()
    while left:
        key = owner.get(left.pop())
        if key is not None and key not in met:
            met.add(key)
            left += references(spec.collections[key])
    return replace(
        spec,
        collections={key: each for key, each in spec.collections.items() if key in met},
        outputs={name: each for name, each in spec.outputs.items() if name in outputs},
        checks={name: each for name, each in spec.checks.items() if name in outputs},
    )


def before_edits(now: BoundPipeline, outline: Mapping[str, Any]) -> BoundPipeline | None:
    """Return the pipeline with the collections that a state's plan was made of, by their texts in its outline; None where they can't be read any more.

    Without the collections that are neither in the file nor needed by one that is.
    """
    texts = {name: text for name, text in outline.get("collections", {}).items() if text.startswith(f"{name}:")}
    left, met = [name for name in now.spec.collections if name in texts], dict[str, str]()
    while left:
        if (name := left.pop()) not in met:
            met[name] = texts[name]
            left += texts.keys() & NAME.findall(texts[name])
    collections = indent("\n".join(text for name, text in texts.items() if name in met), "  ")
    try:
        rest = SECTIONS.sub("", now.spec.path.read_text(encoding="utf-8"))
        outputs = json.dumps({"any": {"from": next(iter(now.spec.inputs)), "path": "any/"}})
        text = f"{rest}\noutputs: {outputs}\ncollections:\n{collections}\n"
        spec = replace(parse_spec(text, str(now.spec.path), outline.get("tables")), outputs=now.spec.outputs)
        found = BoundPipeline(spec, now.schemas, now.time, now.keys)
        _ = found.relations
    except (DdError, OSError, ValueError):
        return None
    return found

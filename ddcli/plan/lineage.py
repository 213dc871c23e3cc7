"""Column lineage: the columns of inputs that a collection's columns come from, or that decide them; and the columns that have the tags of inputs' columns.

A column of a collection has *sources*, which its values are made of, and *influences*, which only decide which value a record has or which
records there are: conditions, join keys, groups, orders. Both are found by walking down from the column over the facts of each node
(`value_sources`, `value_dependencies`, `presence_dependencies`). The walk is over columns of nodes, each once as a source and once as an
influence; so loops, whose variables are read by their own definitions, end.

It is an upper bound, and holds for every content of the inputs whose multiplicities are not negative: if the values of an input's column
change, only columns change that have it as a source or an influence.

Tags follow sources alone: a column has the tags of the columns that its values are made of.

Some columns partition a dataflow: the records that rows of inputs lead to depend on no row with other values there. So these rows can be taken back, at all times, by computing the graph over the rows of their partitions alone, with and without them: the difference
in each arrangement and each output is the same as if all rows were computed. That is exact because operators over groups depend on the records of a
group alone, and each group lies in one partition.

An edit of a file gives columns another meaning, and reaches columns of outputs through them. A column of a collection is edited if it is computed in another way from the columns of other collections and inputs, and so are a collection's records
if other ones are there: a filter, a join, a group. Both are compared between collections of one name, each only up to the collections that it names.
So an edit is found once, where it was made, and is followed from there as lineage is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli import privacy
from ddcli.expressions.tree import MapStep
from ddcli.plan import groupings, joins, logical, physical, physical_joins, temporal
from ddcli.plan.logical import Source
from ddcli.plan.loops import Iterate, Leave, LoopVariable, OfLoop
from ddcli.plan.node import Graph, below, digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ddcli.plan.node import Columns, Node, Origins
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.plan.pipeline_file import BoundPipeline
    from ddcli.plan.relation import Relation
    from ddcli.privacy import Tags

    Places = Mapping[str, Columns]
    """The columns of a collection that have the value of a column of the inputs in each record, by that column."""


SourceColumn = tuple[str, str]
"""An input's name, and one of its columns."""


PRESENCE = None
"""The records that a node has, in place of a column's name."""
Step = tuple["Node", str | None, bool]
"""A column of a node or its `PRESENCE`, and whether all on the way to it were sources."""


def lineage(node: Node, name: str) -> tuple[list[SourceColumn], list[SourceColumn]]:
    """Return the columns of inputs that a column of a logical node comes from: by value, and because they decide about it. Each is in one of both, in order."""
    loops = _loops(node)
    sources, influences = set[SourceColumn](), set[SourceColumn]()
    met = set[tuple[str, str | None, bool]]()
    left: list[Step] = [(node, name, True), (node, PRESENCE, False)]
    while left:
        here, column, by_value = left.pop()
        known = here.fingerprint, column, by_value
        if known in met:
            continue
        met.add(known)
        if isinstance(here, Source):
            if column is not PRESENCE:
                (sources if by_value else influences).add((here.name, column))
        else:
            left += _steps(here, column, by_value, loops)
    return sorted(sources), sorted(influences - sources)


def _steps(node: Node, column: str | None, by_value: bool, loops: dict[str, Iterate]) -> Iterator[Step]:
    """Yield the columns and presences of other nodes on which a node's column, or its presence, depends directly."""
    through = _forwarded(node, loops)
    if through is not None:
        yield from ((each, column, by_value) for each in through)
    elif column is PRESENCE:
        yield from ((child, PRESENCE, False) for child in node.inputs)
        yield from ((node.inputs[at], name, False) for at, name in node.presence_dependencies())
    else:
        sources = node.value_sources(column)
        yield from ((node.inputs[at], name, by_value) for at, name in sources)
        others = [each for each in node.value_dependencies(column) if each not in sources]
        yield from ((node.inputs[at], name, False) for at, name in others)


def _forwarded(node: Node, loops: dict[str, Iterate]) -> Iterable[Node] | None:
    """Return the nodes that have the same records as a node, where it only brings records into a loop, round it, or out of it."""
    if isinstance(node, LoopVariable):
        loop = loops[node.loop]
        return loop.initials[node.index], loop.bodies[node.index]
    if isinstance(node, Leave):
        (left,) = node.inputs
        assert isinstance(left, Iterate)
        # Without rounds a variable is its initial collection.
        return (left.bodies[node.which], *left.initials[node.which : node.which + 1])
    return None


def _loops(node: Node) -> dict[str, Iterate]:
    """Return the loops below a node by name."""
    found: dict[str, Iterate] = {}
    known = set[str]()
    for each in below(node, lambda known_node: known_node.fingerprint in known):
        known.add(each.fingerprint)
        if isinstance(each, Iterate):
            found[each.loop] = each
    return found


Place = tuple[str, str | None]
"""The fingerprint of a node, and one of its columns or its `PRESENCE`."""


def readers_of(nodes: Iterable[Node]) -> dict[bool, dict[Place, list[Place]]]:
    """Return the columns and presences that each column and presence goes into by value (True), and all that depend on it (False)."""
    every = [*nodes]
    loops = {each.loop: each for each in every if isinstance(each, Iterate)}
    found = {by_value: defaultdict[Place, list[Place]](list) for by_value in (True, False)}
    for node in every:
        for column in () if isinstance(node, Source) else (*node.schema, PRESENCE):
            for child, name, by_value in _steps(node, column, True, loops):
                found[False][child.fingerprint, name].append((node.fingerprint, column))
                if by_value and column is not PRESENCE:
                    found[True][child.fingerprint, name].append((node.fingerprint, column))
    return {by_value: dict(each) for by_value, each in found.items()}


def reached(starts: Iterable[Place], readers: Mapping[Place, list[Place]]) -> set[Place]:
    """Return the places that can be reached from some places, and these themselves."""
    found = set(starts)
    left = [*found]
    while left:
        new = [each for each in readers.get(left.pop(), ()) if each not in found]
        found.update(new)
        left += new
    return found


def tags_of(sources: Mapping[str, Tags], nodes: Mapping[str, Node]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the tags of the columns of some named nodes, and under "" the tags of all columns below them, by their names; `sources` has inputs' own tags."""
    if not any(sources.values()):
        return {}
    every = Graph(dict(nodes)).nodes()
    readers = readers_of(every)[True]
    found = defaultdict[Place, set[str]](set)
    for source in (node for node in every if isinstance(node, Source)):
        for column, tags in sources.get(source.name, {}).items():
            for place in reached({(source.fingerprint, column)}, readers):
                found[place].update(tags)
    union = defaultdict[str, set[str]](set)
    for (_, named), every_tag in found.items():
        union[str(named)] |= every_tag
    own = {
        name: {column: found[node.fingerprint, column] for column in node.schema if found[node.fingerprint, column]}
        for name, node in nodes.items()
    }
    return {
        name: {column: tuple(sorted(tags)) for column, tags in columns.items()}
        for name, columns in ({"": union} | own).items()
        if columns
    }


def hide_tagged(sources: Mapping[str, Tags], nodes: Iterable[Node]) -> None:
    """Hide the columns that have tags of these sources in some nodes, and below them, from now on."""
    privacy.hide(tags_of(sources, {str(at): node for at, node in enumerate(nodes)}).get("", {}))


EXACT = frozenset(
    ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "string", "date", "datetime", "bool")
)
"""The kinds of columns whose values are equal exactly if those in files are."""
LINEAR = (
    physical.Linear,
    physical.Arrangement,
    physical.OrderLanes,
    temporal.Shift,
    temporal.JoinFunction,
    temporal.Delay,
    physical_joins.FewerRows,
    physical_joins.DeltaJoin,
    logical.SignedSum,
    logical.Passthrough,
)
"""Nodes that take each record by itself. Joins of two collections that both change are none."""


class Partitions:
    """The partitions of a graph by columns of the inputs `names`, which all of these have: `columns`, none if its operators mix all rows.

    `places` has, by fingerprint, where the records of a node that depends on these inputs have these columns.
    """

    def __init__(self, graph: PhysicalGraph, names: Collection[str]) -> None:
        self.places: dict[str, Places] = {}
        self._lost: set[str] = set()
        scans = [scan for name, scan in graph.scans().items() if name in names]
        common = dict(scans[0].schema) if scans else {}
        for scan in scans[1:]:
            common = {name: kind for name, kind in common.items() if scan.schema.get(name) == kind}
        self._wanted = [name for name, kind in common.items() if kind.kind in EXACT and not name.startswith("$")]
        for node in graph.nodes:  # inputs come before readers
            if isinstance(node, physical.Scan):
                if node.name in names:
                    self.places[node.fingerprint] = {name: frozenset({name}) for name in self._wanted}
            elif any(child.fingerprint in self.places for child in _decisive(node)):
                self.places[node.fingerprint] = self._placed(node)
                if node.free:
                    self._lost.update(self._wanted)
        self.columns = tuple(name for name in self._wanted if name not in self._lost)

    def has(self, scan: physical.Scan) -> bool:
        """Return whether an input has the partitions."""
        return bool(self.columns) and scan.fingerprint in self.places

    def _placed(self, node: Node) -> Places:
        """Return the places of the columns in a node's records; columns that do not partition it are lost."""
        inputs = [self.places.get(child.fingerprint) for child in node.inputs]
        if isinstance(node, physical.EquiJoin):
            left, right = node.sides
            self._require_pairs(inputs, [*zip(left.key, right.key, strict=True)])
            return self._joined(inputs, node.column_origins())
        if isinstance(node, physical_joins.HalfJoin):
            self._require_pairs(inputs, node.on)
            return self._joined(inputs, physical.origins_of_pairs(node.columns, node.on))
        if isinstance(node, physical_joins.RowCount):
            return self._kept(inputs[:1], frozenset(node.schema))
        if isinstance(node, physical.Linear):
            return self._joined(inputs, node.column_origins())
        if isinstance(node, temporal.JoinFunction):
            return dict.fromkeys(self._wanted, frozenset())
        if isinstance(node, physical.OfGroups):
            return self._grouped(inputs, node.arranged.key)
        if isinstance(node, groupings.Accumulate):
            return self._grouped(inputs, node.by)
        if isinstance(node, logical.Upsert):
            return self._grouped(inputs, node.key)
        if isinstance(node, logical.Snapshots):  # which tables there are is known apart from their rows
            return self._kept(inputs, frozenset(node.schema))
        found = self._kept(inputs, frozenset(node.schema))
        if not isinstance(node, LINEAR):
            self._lost.update(self._wanted)
        return found

    def _kept(self, inputs: Collection[Places | None], columns: Columns) -> Places:
        """Return the places of the columns in records that have the inputs' columns under the same names."""
        known = [each for each in inputs if each is not None]
        return {
            name: columns.intersection(*(each[name] for each in known)) if known else frozenset()
            for name in self._wanted
        }

    def _grouped(self, inputs: Collection[Places | None], key: Collection[str]) -> Places:
        """Return the places of the columns in the records of groups, whose key must have them."""
        found = self._kept(inputs, frozenset(key))
        self._lost.update(name for name, places in found.items() if not places)
        return found

    def _require_pairs(self, inputs: Collection[Places | None], on: Collection[tuple[str, str]]) -> None:
        """Lose the columns that two joined collections both have, and that are not among those that are compared."""
        left, right = inputs
        if left is None or right is None:
            return
        for name in self._wanted:
            if not any(one in left[name] and other in right[name] for one, other in on):
                self._lost.add(name)

    def _joined(self, inputs: Collection[Places | None], origins: Origins) -> Places:
        """Return the places of the columns in records whose columns have these origins."""
        known = [each or dict.fromkeys(self._wanted, frozenset[str]()) for each in inputs]
        return {
            name: frozenset(
                column for column, found in origins.items() if any(own in known[at][name] for at, own in found)
            )
            for name in self._wanted
        }


def _decisive(node: Node) -> Collection[Node]:
    """Return the inputs that decide a node's records: which of several lookups an update takes, by the rows that it finds, changes no result."""
    return node.inputs[:1] if isinstance(node, physical_joins.RowCount) else node.inputs


Meanings = dict[str | None, str]
"""The digest of the meaning of each column, and of a collection's records under `PRESENCE`."""
MOST = 12
"""Columns that a line names, at most."""


class Reach(NamedTuple):
    """The columns of outputs that an edited column, or the records of an edited collection, reaches: by value, or because it decides about them."""

    edited: str
    values: tuple[str, ...]
    decides: tuple[str, ...]

    @property
    def words(self) -> str:
        """Return the reach in a line."""
        parts = [
            (verb, _listed(names))
            for verb, names in (("goes into", self.values), ("decides about", self.decides))
            if names
        ]
        return f"{self.edited}: {'; '.join(f'{verb} {names}' for verb, names in parts) or 'reaches no output'}"

    @property
    def note(self) -> str:
        """Return the reach as a comparison's note."""
        return f"edited: {self.words}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST
    return ", ".join(names[:MOST] if more > 1 else names) + (f" and {more} more" if more > 1 else "")


def reach_of_edits(before: BoundPipeline | None, now: BoundPipeline) -> list[Reach]:
    """Return what each edit reaches among the outputs that both have; all columns count as edited of a collection with a new name, and of an output of another one.

    Without `before` nothing is known to be edited.
    """
    if before is None:
        return []
    known, present = _meanings(before.relations), _meanings(now.relations)
    named = {name: relation.node for name, relation in now.relations.items()}
    sources = {name: output.source.value for name, output in before.spec.outputs.items() if name not in now.spec.checks}
    outputs = {name: output.source.value for name, output in now.spec.outputs.items() if name in sources}
    readers = readers_of(Graph(named).nodes())
    columns = [
        (output, named[source].fingerprint, column)
        for output, source in outputs.items()
        for column in named[source].schema
    ]
    found = [
        Reach(f"outputs.{name}", tuple(f"{name}.{column}" for column in named[source].schema), ())
        for name, source in outputs.items()
        if source != sources[name]
    ]
    for name, meanings in ((each, found) for each, found in present.items() if each not in now.spec.checks):
        for column in (each for each, meaning in meanings.items() if known.get(name, {}).get(each) != meaning):
            at = named[name].fingerprint, column
            by_value = reached([at], readers[True]) if column is not PRESENCE else set()
            every = reached({at, *by_value}, readers[False])
            values = [f"{output}.{each}" for output, node, each in columns if (node, each) in by_value]
            decides = [f"{output}.{each}" for output, node, each in columns if {(node, each), (node, PRESENCE)} & every]
            if name not in known and not values and not decides:
                continue
            edited = f"records of {name}" if column is PRESENCE else f"{name}.{column}"
            found.append(Reach(edited, tuple(values), tuple(each for each in decides if each not in values)))
    return found


def _meanings(relations: Mapping[str, Relation]) -> dict[str, Meanings]:
    """Return the meanings of the columns of each collection and input, up to the others that it names."""
    names: dict[str, str] = {}
    for name, relation in relations.items():
        names.setdefault(relation.node.fingerprint, name)
    every: dict[str, Meanings] = {}

    def of(node: Node, column: str | None) -> str:
        name = names.get(node.fingerprint)
        return every[node.fingerprint][column] if name is None else digest(["named", name, column])

    for node in Graph({name: relation.node for name, relation in relations.items()}).nodes():
        every[node.fingerprint] = dict(_of_node(node, of))
    return {name: every[relation.node.fingerprint] for name, relation in relations.items()}


def _of_node(node: Node, of: Any) -> Iterator[tuple[str | None, str]]:
    if isinstance(node, OfLoop | Leave):  # a loop is edited as a whole
        yield from ((each, digest([node.fingerprint, each])) for each in (PRESENCE, *node.schema))
        return
    whole = [type(node).__name__, *map(str, node.wording)]
    computed, records = dict(_expressions(node)), whole
    if isinstance(node, logical.Apply) and isinstance(node.step, MapStep):
        records = []
    elif isinstance(node, groupings.Reduce):
        records = [expression.text() for _, expression in node.by]
    for column, kind in node.schema.items():
        # One that only passes has the meaning that it has below, whatever else the operator does.
        sources = [of(node.inputs[at], name) for at, name in node.value_sources(column)]
        if column in computed:
            own: Any = computed[column]
        elif isinstance(node, logical.Apply | joins.Join) and node.column_origins().get(column):
            own = None
        else:
            own = [whole, column, [of(node.inputs[at], name) for at, name in node.value_dependencies(column)]]
        yield column, digest([str(kind), own, sources])
    needs = [of(node.inputs[at], name) for at, name in node.presence_dependencies()]
    yield PRESENCE, digest([records, [of(child, PRESENCE) for child in node.inputs], needs])


def _expressions(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the texts of the columns that a map or a reduction computes."""
    if isinstance(node, logical.Apply) and isinstance(node.step, MapStep):
        yield from ((name, expression.text()) for name, expression in node.step.columns)
    elif isinstance(node, groupings.Reduce):
        yield from ((name, expression.text()) for name, expression in node.by)
        calls = [call.text() for call in node.calls]
        for name, expression in node.results:
            used = [
                calls[int(each[1:])] for each in expression.columns() if each.startswith("$") and each[1:].isdecimal()
            ]
            yield name, f"{expression.text()} {used}"

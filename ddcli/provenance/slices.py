"""Slices: the values of a column by their hash, the column that divides a collection, and the rows of inputs and arrangements that have them.

A column divides a collection if its values decide which rows of the inputs matter. They are followed down to inputs, and through functions that remember by
the results that the state keeps: of the records that a function was given, those matter that it gave a record with one of the values.

An arrangement is compared by slices if some column divides it and restricts all inputs below, so that its slice costs what its rows cost; one of its key
is preferred. The physical graph is then run in memory over the rows that matter, all arrangements that the same rows decide at once. Rows with null in that
column are in the first slice. Others, as of totals and loops, are named, and compared where everything is computed anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import polars as pl

from ddcli.circuit.trial import Trial
from ddcli.dataclass import frozen
from ddcli.driver.prepare import TOGETHER, bind_remembered
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode
from ddcli.engine.times import up_to
from ddcli.plan import logical, physical, words
from ddcli.plan.memo import OUTCOME, MemoizedCalls, remembered
from ddcli.plan.node import Graph
from ddcli.plan.physical import WAITING, physical_graph
from ddcli.provenance.inputs import EXACT, Inputs, KeySet, Restrictions
from ddcli.sources.arrangement_input import SharedReader
from ddcli.store.batch.file import BatchLayout, batch_layout
from ddcli.store.batch.stored_batch import stored_batches

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from ddcli.engine.lanes import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Frontier, Time
    from ddcli.job.request import Request
    from ddcli.plan.node import Node, Values
    from ddcli.store.state.manifest import Manifest


SEED = 0
"""The seed of the hashes of values. With it the slices of one number are the same in each call."""


@frozen
class SliceNumber:
    """The `number`-th, from 0, of `parts` disjoint slices."""

    number: int
    parts: int
    covered: int | None = None
    """The number of slices that were found right with this one, since all were; None: the state does not remember them."""

    def of(self, values: pl.Series) -> pl.Series:
        """Return the values that are in the slice."""
        return values.filter(self.has(values))

    def has(self, values: pl.Series) -> pl.Series:
        """Return for each value whether it is in the slice; a null is in none."""
        return (values.hash(SEED) % self.parts == self.number) & values.is_not_null()

    @property
    def words(self) -> str:
        covered = "" if self.covered is None else f" ({self.covered:,} covered)"
        return f"slice {self.number + 1:,} of {self.parts:,}{covered}"


@frozen
class Sample:
    """The records of outputs whose value of a column leaves a remainder: an integer itself, the hash of another value. A null leaves none."""

    column: str
    parts: int
    number: int

    def of(self, values: pl.Series) -> pl.Series:
        """Return the values that are in the sample."""
        return values.filter(self.has(values))

    def has(self, values: pl.Series) -> pl.Series:
        """Return for each value whether it is in the sample; a null is not."""
        remainders = (values if values.dtype.is_integer() else values.hash(SEED)) % self.parts
        return (remainders == self.number) & values.is_not_null()

    @property
    def words(self) -> str:
        return f"{self.column}%{self.parts}={self.number}"


RowChoice = Callable[[pl.Series], pl.Series]
"""Returns for each value of the column that divides a collection whether its rows are compared."""
UNDIVIDED = "no column's values decide which rows of all inputs matter to them"
RETURNED = "the functions' results are what they returned"
OPEN = "they are of times that are open"
ELSEWHERE = "no operator of the pipeline computes them"
Found = TypeVar("Found", bool, str)
Origin = tuple[logical.Source | physical.Scan | MemoizedCalls, str]
"""An input, or a function that remembers, and one of its columns."""


class Slices:
    """The restrictions of a pipeline's collections to values of a column, as of the time `at`, or with all updates before a frontier `closed`; with `remembered` through functions that remember."""

    def __init__(self, inputs: Inputs, at: Time, *, closed: Frontier | None = None, remembered: bool = True) -> None:
        self.inputs, self.closed = inputs, closed or up_to(at)
        self.answers = inputs.answers if remembered else None
        self._results: dict[str, pl.DataFrame] = {}
        self._arguments: dict[tuple[str, str], tuple[Values, Values]] = {}
        # With the values that were asked for: the text of a `KeySet` is its own only while it is there.

    def restrictions(self, node: Node, values: Values) -> Restrictions:
        """Return the rows that can matter to a node's records with some values."""
        return Restrictions(node, values, self.inputs.keys(self.closed), self._remembered)

    @property
    def _remembered(self) -> Self | None:
        return None if self.answers is None else self

    def updates(self, node: Node, values: Mapping[str, Any]) -> dict[str, Matrix]:
        """Return the updates of inputs that can matter to a node's records with some values."""
        sources = logical.sources(Graph({"": node}))
        return self.inputs.updates(sources, self.closed, self.restrictions(node, dict(values)))

    def column(self, node: Node) -> str | None:
        """Return the column whose values restrict the most inputs; None if none restricts any. A column whose values are not compared exactly is not taken."""
        best, most = None, 0
        for name in node.schema:
            restricted = self.restricted(node, name)
            count = (
                sum(restricted.alternatives(source) is not None for source in restricted.sources) if restricted else 0
            )
            if count > most:
                best, most = name, count
        return best

    def restricted(self, node: Node, column: str) -> Restrictions | None:
        """Return the restrictions by a column, without values; None if its values aren't compared exactly, or aren't known from below."""
        kind = node.schema[column]
        if str(kind.required()) not in EXACT or self.origins(node, column) is None:
            return None
        none = KeySet(pl.Series(column, [], dtype=kind.to_polars()))
        return Restrictions(node, {column: none}, _no_keys, self._remembered)

    def origins(self, node: Node, column: str) -> list[Origin] | None:
        """Return the columns of inputs, and of remembered results, among whose values are all that the column has but null; None if they aren't known."""
        if isinstance(node, logical.Source | physical.Scan):
            return [(node, column)]
        if isinstance(node, MemoizedCalls):
            return [(node, column)] if self.answers is not None else None
        if isinstance(node, logical.SignedSum):
            below = [(child, column) for child in node.inputs]
        elif isinstance(node, logical.Upsert | logical.Snapshots):
            below = [(node.inputs[0], column)]
        else:
            below = [(node.inputs[which], own) for which, own in node.column_origins().get(column, [])[:1]]
        found = []
        for child, own in below:
            alike = own in child.schema and child.schema[own].required() == node.schema[column].required()
            origins = self.origins(child, own) if alike else None
            if origins is None:
                return None
            found += origins
        return found or None

    def values(self, node: Node, column: str, part: SliceNumber | Sample) -> pl.Series:
        """Return the values in a slice that the column may have by the inputs."""
        kind = node.schema[column].to_polars()
        found = [pl.Series(column, [], dtype=kind)]
        for source, own in self.origins(node, column) or ():
            if isinstance(source, MemoizedCalls):
                found.append(part.of(self.results(source)[f"${own}"].unique().cast(kind)).alias(column))
                continue
            reader = self.inputs.readers[source.name]
            if isinstance(reader, SharedReader):
                continue
            for piece in reader.take([own], None, self.closed.elements, TOGETHER).slices:
                values = piece.read().frame[own].drop_nulls().unique()
                found.append(part.of(values.cast(kind)).alias(column))
        return pl.concat(found).unique()

    def results(self, node: MemoizedCalls) -> pl.DataFrame:
        """Return what the state keeps of a function's calls: the columns that it was given, and `$column` for each that it returned."""
        if node.answers not in self._results:
            key, value = Layout(node.inputs[0].schema), Layout(node.results)
            layout = batch_layout(key, value, len(self.inputs.time))
            frames = [pl.DataFrame(schema={name: kind.to_polars() for name, kind in layout.record.schema.items()})]
            kept = self.answers.batches(node.answers, layout, self.inputs.pool) if self.answers else []
            for batch in kept:
                frames += [decode(matrix, layout.record, pool) for matrix, pool in batch.parts()]
            self._results[node.answers] = pl.concat(frames).filter(pl.col(OUTCOME) != 0).drop(OUTCOME)
        return self._results[node.answers]

    def arguments(self, node: MemoizedCalls, values: Values) -> Values:
        """Return the values of the records for which a function returned some with these values. Columns that may be null are left out: a null is no key."""
        if not values:
            return {}
        at = node.answers, repr(sorted(values.items(), key=lambda item: item[0]))
        if at not in self._arguments:
            found, kinds = self._with(node, values), node.inputs[0].schema
            exact = [name for name, kind in kinds.items() if str(kind) in EXACT]
            self._arguments[at] = values, {name: KeySet(found[name].unique()) for name in exact}
        return self._arguments[at][1]

    def returned(self, node: MemoizedCalls, values: Values, column: str) -> KeySet:
        """Return the values of a column in the records with these values that a function returned."""
        return KeySet(self._with(node, values)[f"${column}"].unique())

    def _with(self, node: MemoizedCalls, values: Values) -> pl.DataFrame:
        """Return the calls of a function that returned records with some values."""
        found = self.results(node)
        for name, value in values.items():
            column = pl.col(f"${name}")
            several = isinstance(value, KeySet)
            equal = (
                column.is_in(value.values.implode(), nulls_equal=True) if several else column.eq_missing(pl.lit(value))
            )
            found = found.filter(equal)
        return found


def _no_keys(source: logical.Source, _values: Values, column: str, /) -> KeySet:
    """Return no values of an input's column: what they would restrict is known without reading them."""
    return KeySet(pl.Series(column, [], dtype=source.schema[column].to_polars()))


def verify_arrangements(
    slices: Slices, manifest: Manifest, part: SliceNumber
) -> tuple[dict[str, bool], dict[str, str]]:
    """Return the verdicts on the slices of a state's arrangements, by the operators that keep them: True is right; and the reasons why others are not compared."""
    request, found = slices.inputs.request, dict[str, bool]()
    plan = bind_remembered(request, manifest).plan(manifest.cache["plan"])
    known = plan.fingerprint == manifest.plan
    if known:
        for nodes, restrictions, chosen in _together(slices, manifest, part, plan.graph.nodes):
            for identity, same in _compared(slices, manifest, chosen, nodes, restrictions).items():
                found[identity] = found.get(identity, True) and same
    return by_title(found, request, manifest), uncompared(found, UNDIVIDED if known else ELSEWHERE, request, manifest)


def uncompared(compared: Container[str], why: str, request: Request, manifest: Manifest) -> dict[str, str]:
    """Return the reasons why the other arrangements of a state are not compared, by the operators that keep them; `why` is the reason of most."""
    left = [identity for identity in manifest.arrangements if identity not in compared]
    returned = remembered(_nodes(request, manifest)) if left else {}
    reasons = {}
    for identity in left:
        transient = RETURNED if identity in returned else OPEN if identity.endswith(WAITING) else None
        if transient is None or any(file.rows for file in manifest.arrangements[identity].files):
            reasons[identity] = transient or why
    return by_title(reasons, request, manifest)


def by_title(found: Mapping[str, Found], request: Request, manifest: Manifest) -> dict[str, Found]:
    """Return what was found of arrangements by the words of their operators: of several with the same words False, or the first text."""
    outline, titles = manifest.cache["plan"]["outline"]["nodes"], dict[str, Found]()
    nodes = _nodes(request, manifest) if found else ()
    texts = {node.fingerprint: (node.kind, _described(node)) for node in nodes}
    for identity, node in remembered(nodes).items():
        texts[identity] = (
            node.title if identity == node.answers else f"the records whose call of {node.function} failed",
            "",
        )
    for identity, value in found.items():
        own = identity.removesuffix(WAITING)
        title = " ".join(filter(None, (outline.get(own) or texts.get(own) or [own])[:2]))
        title += ", until their time" if own != identity else ""
        titles[title] = min(titles.get(title, value), value)
    return titles


def _nodes(request: Request, manifest: Manifest) -> Sequence[Node]:
    return bind_remembered(request, manifest).plan(manifest.cache["plan"]).graph.nodes


def _described(node: Node) -> str:
    """Return the details of a node and its columns, without those that are the plan's own."""
    shown = dict.fromkeys(words.named(name) for name in node.schema if not words.OWN.fullmatch(name))
    return f"{'; '.join(node.details())} ({', '.join(shown)})".lstrip()


def _together(
    slices: Slices, manifest: Manifest, part: SliceNumber, plan: Iterable[Node]
) -> Iterator[tuple[dict[str, tuple[Node, str]], Restrictions, RowChoice]]:
    """Yield the nodes whose arrangements can be sliced, each with its column, the restrictions of the inputs that they share, and the choice of their rows."""
    values: dict[str, KeySet] = {}
    groups: dict[tuple[str, bool], tuple[dict[str, tuple[Node, str]], Restrictions, RowChoice]] = {}
    for node in plan:
        entry = manifest.arrangements.get(node.fingerprint)
        column = _column(slices, node, entry.key) if entry is not None and not node.free else None
        if column is None:
            continue
        origins = repr([(source.fingerprint, own) for source, own in slices.origins(node, column) or ()])
        if origins not in values:
            values[origins] = KeySet(slices.values(node, column, part))
        questions: list[tuple[Any, RowChoice]] = [(values[origins], part.has)]
        if part.number == 0 and node.schema[column].nullable:
            questions.append((None, pl.Series.is_null))
        for value, chosen in questions:
            restrictions = slices.restrictions(node, {column: value})
            at = repr(sorted(restrictions.sources.items())), value is None
            groups.setdefault(at, ({}, restrictions, chosen))[0][node.fingerprint] = node, column
    yield from groups.values()


def _column(slices: Slices, node: Node, key: tuple[str, ...]) -> str | None:
    """Return a column that divides the node's arrangement and restricts all inputs below it, of its key if possible."""
    for name in dict.fromkeys([*key, *node.schema]):
        restricted = slices.restricted(node, name) if name in node.schema else None
        if restricted is not None and all(
            restricted.alternatives(source) is not None and not isinstance(slices.inputs.readers[source], SharedReader)
            for source in restricted.sources
        ):
            return name
    return None


def _compared(
    slices: Slices,
    manifest: Manifest,
    chosen: RowChoice,
    nodes: Mapping[str, tuple[Node, str]],
    restrictions: Restrictions,
) -> dict[str, bool]:
    """Return the verdicts on the chosen rows of some arrangements, by identity."""
    inputs, upper = slices.inputs, slices.closed
    graph = physical_graph({identity: node for identity, (node, _) in nodes.items()})
    scans = graph.scans()
    facts = {name: each for name, each in inputs.facts(upper).items() if name in scans}
    trial = Trial(graph, inputs.kinds, inputs.pool, facts=facts, lenient=True, answers=inputs.answers)
    trial.close(upper, inputs.updates({name: scans[name] for name in trial.layouts}, upper, restrictions))
    found = {}
    for kept in trial.kept:
        if kept.identity in nodes:
            column = nodes[kept.identity][1]
            layout = BatchLayout.of(manifest.arrangements[kept.identity], len(inputs.time))
            made = [(kernels.matrix(rows), inputs.pool) for rows in kept.trace.resident()]
            stored = _stored(slices, manifest, kept.identity)
            anew, kept_rows = (_chosen_rows(parts, layout, column, chosen) for parts in (made, stored))
            found[kept.identity] = np.array_equal(anew, kept_rows)
    return found


def _stored(slices: Slices, manifest: Manifest, identity: str) -> Iterator[tuple[Matrix, Pool]]:
    """Yield the updates of an arrangement in parts, with the pool of each."""
    entry, inputs = manifest.arrangements[identity], slices.inputs
    for shard in range(len(entry.shards)):
        _, batches = stored_batches(inputs.request.state, identity, entry, shard, inputs.pool.secret)
        for batch in batches:
            yield from batch.parts()


def _chosen_rows(parts: Iterable[tuple[Matrix, Pool]], layout: BatchLayout, column: str, chosen: RowChoice) -> Matrix:
    """Return the rows of an arrangement whose values of a column are chosen, with their multiplicities and without times."""
    lanes, kind = layout.record.lanes(column), {column: layout.record.schema[column]}
    found = [np.empty((0, layout.record.width + 1), np.int64)]
    for matrix, pool in parts:
        values = decode(matrix, Layout(kind), pool, at=lanes.start)[column]
        found.append(matrix[chosen(values).to_numpy()][:, [*range(layout.record.width), -1]])
    return kernels.consolidate(np.ascontiguousarray(np.concatenate(found)))

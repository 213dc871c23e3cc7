"""Why a record is in a collection: traced, and checked by running the pipeline over nothing but the updates that were found."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.lanes import Layout
from ddcli.engine.times import BEYOND, Frontier, Time
from ddcli.errors import DdError, Span, SpecError, Text, UsageError, did_you_mean
from ddcli.facts import InputFacts
from ddcli.plan import logical
from ddcli.plan.literals import read_value
from ddcli.plan.lower import lower
from ddcli.plan.testing import meant
from ddcli.request import read_request
from ddcli.spec.tree import Scalar, scalar_kind
from ddcli.store.manifest import read_newest
from ddcli.store.time_text import format_time, parse_until
from ddcli.trial import Trial, as_of
from ddcli.why.contents import Contents, Values
from ddcli.why.inputs import Inputs, before
from ddcli.why.reasons import Reason
from ddcli.why.restrict import Restrictions
from ddcli.why.trace import Tracer
from ddcli.why.worlds import Opaque, World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.plan.logical import Node
    from ddcli.trial import Matrix
    from ddcli.why.contents import Record
    from ddcli.why.inputs import Where
    from ddcli.why.reasons import Leaf


PRUNED = 16
"""Updates of an explanation that are tried to be left out, one by one."""


class NotThere(DdError):
    """No such record is in the collection: the answer is no."""

    exit_code = 1


@dataclass(frozen=True)
class Explained:
    """A record, how often it is there, and why. `scope` says what the explanation holds: `witness` (enough of what it is made of),
    `whole` (all that it is made of) or `everything` (all updates that may matter); `checked`: run alone, they give the record.
    """

    record: Record
    count: int
    reason: Reason
    scope: str
    checked: bool
    updates: int


@dataclass(frozen=True)
class Answer:
    """The records that were asked for, the first of `matching`, each explained, as of the time `at`."""

    inputs: Inputs
    collection: str
    node: Node
    at: Time
    matching: int
    explained: tuple[Explained, ...]
    seconds: float
    read: int
    names: dict[str, str]
    fed: dict[str, Matrix]
    places: dict[Leaf, list[Where]] = field(default_factory=dict)

    @property
    def time(self) -> str:
        """The time, as a person writes it."""
        return format_time(self.at, self.inputs.kinds)


def explain(
    path: Path,
    collection: str,
    keys: Sequence[str],
    *,
    at: str | None = None,
    state: Path | None = None,
    limit: int = 5,
) -> Answer:
    """Return why the records of a collection that have the values `keys` (`column=value`) are there at the time `at`.

    Without a time, at the last that runs have closed, or if there were none, at the last in the inputs. At most `limit` records are
    explained, and of a group so many shown. Raises NotThere where there is none.
    """
    started = clock.perf_counter()
    request = read_request(path, state, None, lambda _line: None)
    inputs = Inputs.of(request)
    known = {**inputs.relations, **request.spec.outputs}
    if collection not in known:
        near = did_you_mean(collection, known)
        hint = f"did you mean '{near}'?" if near else f"collections: {', '.join(known)}"
        raise UsageError(f"no collection, input or output is named '{collection}'", place=str(path), hint=hint)
    node = inputs.relations[meant(request.spec, collection)].node
    values = read_keys(keys, node.schema)
    time = _time(inputs, at)
    question = Question(inputs, node, values, time, limit)
    found = question.world.contents(node).where(values)
    if not len(found):
        raise question.not_there(collection, keys)
    records = list(zip(found.records(), found.counts(), strict=True))
    explained = tuple(question.explained(record, count) for record, count in records[:limit])
    names = {relation.node.fingerprint: name for name, relation in reversed(inputs.relations.items())}
    answer = Answer(
        inputs,
        collection,
        node,
        time,
        len(records),
        explained,
        clock.perf_counter() - started,
        sum(map(len, question.fed.values())),
        names,
        question.fed,
    )
    for each in explained:
        answer.places.update(question.places(each.reason))
    return answer


def _time(inputs: Inputs, at: str | None) -> Time:
    """Return the time to look at."""
    if at is not None:
        try:
            (corner,) = parse_until(at, inputs.time).corners()
        except UsageError as error:
            raise UsageError(error.problem, hint=(error.hint or "").replace("--until", "--at")) from None
        return corner
    manifest = read_newest(inputs.request.state)
    if manifest is not None and manifest.upper:
        corners = Frontier(manifest.upper).corners()
        if len(corners) == 1 and BEYOND not in corners[0]:
            return tuple(value - 1 for value in corners[0])
    latest = inputs.latest()
    if latest is None:
        raise UsageError(
            "the inputs have no rows yet", place=str(inputs.request.spec.path), hint="say a time with `--at`"
        )
    return latest


def read_keys(keys: Sequence[str], schema: Schema) -> dict[str, Any]:
    """Return values of columns that are written `column=value`, in the types of the columns."""
    values: dict[str, Any] = {}
    for key in keys:
        name, equals, written = key.partition("=")
        if not equals:
            raise UsageError(f"'{key}' is no condition", hint="write it as `column=value`")
        if name not in schema:
            near = did_you_mean(name, schema)
            hint = f"did you mean '{near}'?" if near else f"columns: {', '.join(schema)}"
            raise UsageError(f"there is no column '{name}'", hint=hint)
        values[name] = _value(name, written, schema)
    return values


def _value(name: str, written: str, schema: Schema) -> Any:
    kind = schema[name]
    of_text = kind.kind != "bool" and not kind.is_numeric and not (kind.nullable and written == "null")
    scalar = Scalar(Text(written, Span("", 1, 1)), "str" if of_text else scalar_kind(written), plain=True)
    try:
        return read_value(scalar, kind, f"'{name}'")
    except SpecError as error:
        raise UsageError(error.problem, hint=error.hint) from None


class Question:
    """A collection's records with some values, at a time: what may matter to them, the world made of it, and explanations in it."""

    def __init__(self, inputs: Inputs, node: Node, values: Mapping[str, Any], time: Time, limit: int) -> None:
        self.inputs, self.node, self.values, self.time, self.limit = inputs, node, dict(values), time, limit
        self.graph = logical.Graph({"": node})
        self.sources = self.graph.sources()
        self.restrictions = Restrictions(node, self.values)
        self.fed = inputs.updates(self.sources, before(time), self.restrictions)
        self.facts = {name: facts for name, facts in inputs.facts(before(time)).items() if name in self.sources}
        self.known = Values(inputs.pool)
        self.world = World(self.graph.nodes(), self.fed, time, inputs.kinds, self.known, self.facts)
        self.named = frozenset(relation.node.fingerprint for relation in inputs.relations.values())

    def explained(self, record: Record, count: int) -> Explained:
        """Return why a record is there, by the smallest explanation that passes the check."""
        reason = self._traced(self.world, record, count, witnesses=True)
        if self.gives(reason, record, count):
            reason = self._pruned(reason, record, count)
            return Explained(record, count, reason, "witness", True, len(reason.leaves))
        if not reason.everything:
            whole = self._traced(self.world, record, count, witnesses=False)
            if self.gives(whole, record, count):
                return Explained(record, count, whole, "whole", True, len(whole.leaves))
        alone = self.count_in(self.fed, self.facts, record) == count
        return Explained(record, count, reason, "everything", alone, sum(map(len, self.fed.values())))

    def _traced(self, world: World, record: Record, count: int, *, witnesses: bool) -> Reason:
        try:
            return Tracer(world, self.limit, self.named, witnesses).reason(world, self.node, record)
        except Opaque as error:
            return Reason(self.node, "", record, count, notes=[f"{error} can't be looked into"], everything=True)

    def _pruned(self, reason: Reason, record: Record, count: int) -> Reason:
        """Return an explanation that no update can be left out of, if there are not too many to try.

        Witnesses are chosen one by one: what one of them rests on may do for another, too. Rows of keys and of tables are left as they are.
        """
        if self.facts or not 1 < len(reason.leaves) <= PRUNED:
            return reason
        left = set(reason.leaves)
        for leaf in sorted(reason.leaves):
            less = replace(reason, leaves=frozenset(left - {leaf}))
            if self.gives(less, record, count):
                left.discard(leaf)
        if len(left) == len(reason.leaves):
            return reason
        alone = {name: self._but(name, left) for name in self.fed}
        world = World(self.graph.nodes(), alone, self.time, self.inputs.kinds, self.known, self._facts_of(alone))
        found = self._traced(world, record, count, witnesses=True)
        return found if self.gives(found, record, count) else reason

    def _but(self, name: str, leaves: set[Leaf]) -> Matrix:
        """Return the updates of an input in their places, those that are no leaves without effect: nothing is there no times."""
        matrix = self.fed[name].copy()
        rest = np.setdiff1d(np.arange(len(matrix)), [at for of, at in leaves if of == name])
        matrix[rest, -1] = 0
        return matrix

    def gives(self, reason: Reason, record: Record, count: int) -> bool:
        """Say whether the pipeline gives a record as often as it is there, run over the leaves of its reason and nothing else."""
        if reason.everything:
            return False
        alone = leaves_of(self.fed, reason)
        try:
            return self.count_in(alone, self._facts_of(alone), record) == count
        except DdError:
            return False

    def _facts_of(self, alone: Mapping[str, Matrix]) -> dict[str, InputFacts]:
        """Return what is known of inputs of which there are only some rows: the tables that these are of, and no truncations."""
        times = {name: {int(time) for time in alone[name][:, -2]} for name in self.facts}
        return {
            name: InputFacts(known.given, known.reader, [time for time in known.snapshots if time in times[name]])
            for name, known in self.facts.items()
        }

    def count_in(self, fed: Mapping[str, Matrix], facts: Mapping[str, InputFacts], record: Record) -> int:
        """Return how often a record is in the collection, run over some updates."""
        trial = Trial(lower(self.graph), self.inputs.kinds, self.inputs.pool, facts=facts, lenient=True)
        given = {}
        for name, layout in trial.layouts.items():
            whole = Layout(self.sources[name].schema)
            lanes = [*whole.take(layout.names), *range(whole.width, whole.width + len(self.time) + 1)]
            given[name] = np.ascontiguousarray(fed[name][:, lanes])
        found = trial.close(before(self.time), given)[""]
        return Contents(as_of(found, len(self.time), self.time), self.node.schema, self.known).count(record)

    def places(self, reason: Reason) -> dict[Leaf, list[Where]]:
        """Return where the updates that a tree of reasons shows are written."""
        shown: dict[str, set[int]] = {}
        pending, seen = [reason], set()
        while pending:
            each = pending.pop()
            if id(each) not in seen:
                seen.add(id(each))
                pending += each.because
                if each.updates is not None and len(each.updates):
                    assert isinstance(each.node, logical.Source)
                    shown.setdefault(each.node.name, set()).update(each.updates.tolist())
        found: dict[Leaf, list[Where]] = {}
        for name, numbers in shown.items():
            ordered = sorted(numbers)
            rows = np.ascontiguousarray(self.fed[name][np.array(ordered, np.int64)])
            places = self.inputs.places(name, self.sources[name], rows)
            for number, row in zip(ordered, rows, strict=True):
                found[name, number] = places[row.tobytes()]
        return found

    def not_there(self, collection: str, keys: Sequence[str]) -> NotThere:
        """Return the error for records that are not there, which says when they were, if they were before."""
        told = f"no record of '{collection}' has {' and '.join(keys)} at {format_time(self.time, self.inputs.kinds)}"
        return NotThere(told, hint=None)


def leaves_of(fed: Mapping[str, Matrix], reason: Reason) -> dict[str, Matrix]:
    """Return the updates that are the leaves of a reason."""
    return {
        name: matrix[np.array(sorted(at for of, at in reason.leaves if of == name), np.int64)]
        for name, matrix in fed.items()
    }

"""The meaning of a logical graph: every collection at a time, recomputed from the definition.

A collection is a dictionary from records (tuples in schema order) to counts that are not zero. Each operator is a
function from collections to a collection and knows no time but the one that is now, so what the engine does with changes
can be judged by doing nothing of the kind: accumulate the inputs, run the pipeline from scratch, and its loops from their
first round.
"""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.expressions.tree import ExplodeStep, FilterStep, MapStep, PythonStep, Step, UnnestStep
from ddcli.plan import asof, groupings, joins, logical, loops, temporal, windows
from ddcli.plan.node import Graph
from tests.reference.aggregates import aggregated, is_present
from tests.reference.expressions import Fails, evaluate
from tests.reference.values import FAILED, Descending, canonical, order, plain, time_value
from tests.reference.windows import Ordered
from tests.reference.xxhash64 import text_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ddcli.expressions import stage
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import Node

Record = tuple[Any, ...]
Time = tuple[int, ...]
Collection = dict[Record, int]
Update = tuple[Record, Time, int]


def sources_of(node: Node) -> list[logical.Source]:
    """Return the inputs below a node."""
    return [each for each in Graph({"": node}).nodes() if isinstance(each, logical.Source)]


def less_equal(one: Time, other: Time) -> bool:
    """Compare times of a product order: component by component."""
    return all(a <= b for a, b in zip(one, other, strict=True))


def lattice_join(one: Time, other: Time) -> Time:
    """Return the least time that both are at or before."""
    return tuple(map(max, one, other))


def accumulate(updates: Iterable[Update], time: Time) -> Collection:
    """Return the collection at a time: the sum of the diffs at or before it.

    >>> accumulate([(("a",), (0, 1), 2), (("b",), (1, 0), 1), (("a",), (1, 1), -2)], (0, 1))
    {('a',): 2}
    """
    return total((record, diff) for record, when, diff in updates if less_equal(when, time))


def total(counted: Iterable[tuple[Record, int]]) -> Collection:
    """Return the sum of counted records, without those that cancel."""
    counts: dict[Record, int] = defaultdict(int)
    for record, count in counted:
        counts[canonical(record)] += count
    return {record: count for record, count in counts.items() if count}


class LoopDiverges(Exception):
    """A loop changes for longer than its guard allows."""


class Row(dict[str, Any]):
    """A record by column names. To read a value whose expression failed is to fail."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is FAILED:
            raise Fails(name)
        return value


class Model:
    """A graph over inputs accumulated at a time, `now`.

    `collection(node)` raises Fails when an expression fails on a record and its value is used, LoopDiverges when a loop
    has no result. `failed` tells that an expression failed at all: whether a value that nobody needs is computed is the
    engine's choice.
    """

    depth = 0

    def __init__(self, inputs: Mapping[str, Collection], now: Time, began: frozenset[str] = frozenset()) -> None:
        """Take the collections of the inputs now; `began` are those that had a record at some time before."""
        self.inputs = inputs
        self.began = began
        self.now = now
        self.failed = False
        self._known: dict[str, Collection] = {}
        self._looped: dict[str, list[Collection]] = {}

    def collection(self, node: Node) -> Collection:
        """Return what a node's collection is."""
        if node.fingerprint not in self._known:
            self._known[node.fingerprint] = total(self._counted(node).items())
        return self._known[node.fingerprint]

    def output(self, node: Node) -> Collection:
        """Return the collection of an output, in which every value is used."""
        return self._used(self.collection(node))

    def _input(self, node: Node, index: int = 0) -> Collection:
        return self.collection(node.inputs[index])

    @staticmethod
    def _used(collection: Collection) -> Collection:
        if any(FAILED in record for record in collection):
            raise Fails
        return collection

    def _rows(self, node: Node) -> Iterator[tuple[Row, Record, int]]:
        for record, count in self.collection(node).items():
            yield Row(zip(node.schema, map(plain, record), strict=True)), record, count

    def _value(self, expression: Expression, row: Row) -> Any:
        """Evaluate, or leave a value that fails whoever reads it."""
        try:
            return canonical(evaluate(expression, row))
        except Fails:
            self.failed = True
            return FAILED

    def _needed(self, expression: Expression, row: Row) -> Any:
        value = self._value(expression, row)
        if value is FAILED:
            raise Fails(str(expression))
        return value

    # --- one method an operator ---------------------------------------------------------------------------------

    @singledispatchmethod
    def _counted(self, node: Node) -> Collection:
        raise NotImplementedError(type(node))

    @_counted.register
    def _(self, node: logical.Source) -> Collection:
        return self.inputs[node.name]

    @_counted.register(logical.Consolidate)
    @_counted.register(logical.Arrange)
    @_counted.register(logical.Inspect)
    def _(self, node: Node) -> Collection:
        return self._input(node)

    @_counted.register
    def _(self, node: logical.SignedSum) -> Collection:
        return total(
            (record, sign * count)
            for index, sign in enumerate(node.signs)
            for record, count in self._input(node, index).items()
        )

    @_counted.register
    def _(self, node: logical.Apply) -> Collection:
        return total(pair for row in self._rows(node.inputs[0]) for pair in self._step(node.step, node.schema, *row))

    def _step(
        self, step: Step, schema: Iterable[str], row: Row, record: Record, count: int
    ) -> Iterator[tuple[Record, int]]:
        if isinstance(step, FilterStep):
            if self._needed(step.condition, row) is True:
                yield record, count
        elif isinstance(step, MapStep):
            yield tuple(self._value(expression, row) for _, expression in step.columns), count
        elif isinstance(step, ExplodeStep):
            yield record, count * self._needed(step.weight, row)
        elif isinstance(step, UnnestStep):
            for element in self._elements(step.call, row):
                wider = {**dict(zip(row, record, strict=True)), step.name: canonical(element)}
                yield tuple(wider[name] for name in schema), count
        else:
            assert isinstance(step, PythonStep)
            names = [name for name, _ in step.output]
            for result in python_rows(step, {name: row[name] for name in row}):
                yield tuple(result[name] for name in names), count

    def _elements(self, call: stage.TableCall, row: Row) -> Iterable[Any]:
        """Give the rows of a table function; of null there are none."""
        args = [self._needed(arg, row) for arg in call.args]
        if None in args:
            return []
        if call.function == "unnest":
            return args[0]
        first, last, step = args
        if step == 0:
            raise Fails("a series with step 0")
        return range(first, last + (1 if step > 0 else -1), step)

    @_counted.register
    def _(self, node: joins.Join) -> Collection:
        left, right = node.inputs
        keys_left, keys_right = zip(*node.on, strict=True)
        partners = defaultdict(list)
        for row, _, count in self._rows(right):
            partners[key_of(row, keys_right)].append((row, count))

        def joined(one: Row | None, other: Row | None) -> Record:
            values = []
            for _, side, name in node.columns:
                if side == "key":
                    values.append(one[name] if one is not None else other[dict(reversed(node.on))[name]])
                else:
                    row = one if side == "left" else other
                    values.append(None if row is None else dict.__getitem__(row, name))
            return tuple(values)

        result = []
        for row, _, count in self._rows(left):
            key = key_of(row, keys_left)
            result += [(joined(row, other), count * times) for other, times in partners[key] if key is not None]
        if node.how in {"left", "full"}:
            result += [
                (joined(row, None), count) for row, _, count in self._unmatched(left, keys_left, right, keys_right)
            ]
        if node.how in {"right", "full"}:
            result += [
                (joined(None, row), count) for row, _, count in self._unmatched(right, keys_right, left, keys_left)
            ]
        return total(result)

    def _unmatched(self, node: Node, keys: Names, other: Node, others: Names) -> Iterator:
        there = self._present(other, others)
        return (row for row in self._rows(node) if key_of(row[0], keys) not in there)

    def _present(self, node: Node, keys: Names) -> set[Record]:
        """Return the keys of which there are more than none."""
        counts = total((key, count) for row, _, count in self._rows(node) if (key := key_of(row, keys)) is not None)
        return {key for key, count in counts.items() if count > 0}

    @_counted.register
    def _(self, node: asof.AsofJoin) -> Collection:
        """Look at each left row for the best of all right rows of its key on the right side of its value; ties by all other columns."""
        mine, theirs = node.at
        others = [other for _, other in node.on]
        sources = [source for _, side, source in node.columns if side == "right"]
        read = [*others, theirs, *sources]
        counts = total((canonical([row[name] for name in read]), count) for row, _, count in self._rows(node.right))
        rights = defaultdict(list)
        for record, count in counts.items():
            key, at, values = record[: len(others)], record[len(others)], record[len(others) + 1 :]
            if count > 0 and None not in key and at is not None:
                ranks = [order(text_rank(value) if isinstance(value, str) else value) for value in values]
                rights[key].append((order(at), ranks, dict(zip(sources, values, strict=True))))

        def is_near(value: Any, other: Any) -> bool:
            one, two = (value, other) if not node.forward else (other, value)
            return two < one or (two == one and not node.strict)

        result = []
        for row, _, count in self._rows(node.left):
            key = key_of(row, [one for one, _ in node.on])
            found = []
            if key is not None and row[mine] is not None:
                found = [each for each in rights[key] if is_near(order(canonical(row[mine])), each[0])]
            ways = [(at if node.forward else Descending(at), ranks, values) for at, ranks, values in found]
            nearest = min(ways, key=lambda each: each[:2])[2] if ways else None
            if nearest is not None or node.how == "left":
                sides = {"key": row, "left": row, "right": nearest}
                values = [(sides[side], source) for _, side, source in node.columns]
                result.append(
                    (tuple(None if one is None else dict.__getitem__(one, source) for one, source in values), count)
                )
        return total(result)

    @_counted.register
    def _(self, node: logical.Once) -> Collection:
        began = any(each.name in self.began or self.inputs[each.name] for each in sources_of(node))
        return {(1,): 1} if began else {}

    @_counted.register
    def _(self, node: joins.Semijoin) -> Collection:
        left, right = node.inputs
        keys_left, keys_right = zip(*node.on, strict=True)
        there = self._present(right, keys_right)
        return total((r, count) for row, r, count in self._rows(left) if (key_of(row, keys_left) in there) != node.anti)

    @_counted.register
    def _(self, node: groupings.Threshold) -> Collection:
        def times(count: int) -> int:
            return int(count > 0) if node.function is None else self._needed(node.function, Row(count=count))

        return total((record, times(count)) for record, count in self._used(self._input(node)).items())

    @_counted.register
    def _(self, node: groupings.TopK) -> Collection:
        """Take rows in the order of the `order_by` columns; ties by all the others, ascending, texts by their hashes."""
        ordered = dict(node.order_by)
        ties = [name for name in node.schema if name not in ordered and name not in node.by]

        def position(row: Row) -> list[Any]:
            keys = [(order(canonical(row[name])), descending) for name, descending in node.order_by]
            found: list[Any] = [Descending(key) if descending else key for key, descending in keys]
            values = [canonical(row[name]) for name in ties]
            return found + [order(text_rank(value) if isinstance(value, str) else value) for value in values]

        self._used(self._input(node))
        groups = defaultdict(list)
        for row, record, count in self._rows(node.inputs[0]):
            if count > 0:
                groups[canonical([row[name] for name in node.by])].append((position(row), record, count))
        result = []
        for rows in groups.values():
            left = node.k
            for _, record, count in sorted(rows, key=lambda each: each[0]):
                result.append((record, min(count, left)))
                left -= min(count, left)
        return total(result)

    @_counted.register
    def _(self, node: windows.Window) -> Collection:
        """Put the copies of records in the order of the window, and ask each call at each of them."""
        (child,) = node.inputs
        self._used(self._input(node))
        partitions: dict[Record, list[tuple[Row, Record]]] = defaultdict(list)
        for row, record, count in self._rows(child):
            partitions[canonical([row[name] for name in node.by])] += [(row, record)] * max(count, 0)
        result = []
        for rows in partitions.values():
            ordered = Ordered(node, rows)
            for at, (_, record) in enumerate(ordered.rows):
                result.append(((*record, *(canonical(ordered.value(call, at)) for _, call in node.calls)), 1))
        return total(result)

    @_counted.register
    def _(self, node: groupings.Reduce) -> Collection:
        """Add up rows that are equal in all that the aggregates read, before anything else."""
        read = [part for call in node.calls for part in call_parts(call)]
        groups: dict[Record, list[tuple[Record, Row, int]]] = defaultdict(list)
        for row, _, count in self._rows(node.inputs[0]):
            key = canonical([self._needed(expression, row) for _, expression in node.by])
            groups[key].append((canonical([self._needed(part, row) for part in read]), row, count))
        result = []
        for key, rows in groups.items():
            added = netted(rows)
            if is_present(node.calls, added):
                found = Row({f"${at}": aggregated(call, added) for at, call in enumerate(node.calls)})
                if all(call.type.nullable or found[f"${at}"] is not None for at, call in enumerate(node.calls)):
                    result.append(((*key, *(self._value(expression, found) for _, expression in node.results)), 1))
        return total(result)

    @_counted.register
    def _(self, node: groupings.PythonReduce) -> Collection:
        groups: dict[Record, Collection] = defaultdict(lambda: defaultdict(int))
        for row, _, count in self._rows(node.inputs[0]):
            groups[canonical([row[name] for name in node.by])][canonical([row[name] for name in node.values])] += count
        function = load(node.function)
        result = []
        for key, counts in groups.items():
            rows = [(plain_record(record), count) for record, count in counts.items() if count]
            if rows:
                result += [((*key, *record), count) for record, count in function(plain_record(key), rows)]
        return total(result)

    @_counted.register
    def _(self, node: temporal.Temporal) -> Collection:
        (now,) = self.now

        def there(row: Row) -> bool:
            """Return whether lower <= now < upper; a bound that is null is never met."""
            lower, upper = (self._needed(bound, row) if bound else ... for bound in (node.lower, node.upper))
            from_then = lower is ... or (lower is not None and lower <= time_value(now, node.lower.type))
            return from_then and (upper is ... or (upper is not None and time_value(now, node.upper.type) < upper))

        return total((record, count) for row, record, count in self._rows(node.inputs[0]) if there(row))

    @_counted.register
    def _(self, node: temporal.JoinFunction) -> Collection:
        return total(
            (tuple(result[name] for name in node.schema), count * diff)
            for row, _, count in self._rows(node.inputs[0])
            for result, time, diff in python_updates(node, dict(row.items()))
            if time is None or less_equal(time, self.now)
        )

    # --- loops --------------------------------------------------------------------------------------------------

    @_counted.register
    def _(self, node: loops.Leave) -> Collection:
        (iterate,) = node.inputs
        if iterate.fingerprint not in self._looped:
            self._looped[iterate.fingerprint] = self._iterated(iterate)
        return self._looped[iterate.fingerprint][node.which]

    def _iterated(self, node: loops.Iterate) -> list[Collection]:
        """Return the bodies after the last round: the `bound`-th, or one that gives the variables as they were.

        After `guard` rounds the variables must change no more.
        """
        variables = [self.collection(initial) for initial in node.initials]
        number = 0
        while True:
            this = Round(self, node.depth, variables, number)
            bodies = [this.collection(body) for body in node.bodies]
            self.failed = self.failed or this.failed
            number += 1
            changing = bodies[: node.variables] != variables
            if number == node.bound or not (changing or this.entering):
                return bodies
            if node.bound is None and changing and number > node.guard:
                raise LoopDiverges(node.names)
            variables = bodies[: node.variables]


class Round(Model):
    """A round of a loop, counted from 0. What does not depend on it is what it is in the model around.

    `entering` tells that something comes in at a later round.
    """

    def __init__(self, around: Model, depth: int, variables: list[Collection], number: int) -> None:
        super().__init__(around.inputs, around.now)
        self.around = around
        self.depth = depth
        self.variables = variables
        self.number = number
        self.entering = False

    def collection(self, node: Node) -> Collection:
        return self.around.collection(node) if node.level < self.depth else super().collection(node)

    @singledispatchmethod
    def _counted(self, node: Node) -> Collection:
        return super()._counted(node)

    @_counted.register
    def _(self, node: loops.LoopVariable) -> Collection:
        return self.variables[node.index]

    @_counted.register
    def _(self, node: loops.Enter) -> Collection:
        rounds = [(self._needed(node.at, row), record, count) for row, record, count in self._rows(node.inputs[0])]
        self.entering = self.entering or any(at > self.number for at, _, _ in rounds)
        return total((record, count) for at, record, count in rounds if at <= self.number)


Names = tuple[str, ...]


def key_of(row: Row, names: Names) -> Record | None:
    """Return the key of a row, or None when a part of it is null: such a key equals none."""
    key = canonical([row[name] for name in names])
    return None if None in key else key


def call_parts(call: AggregateCall) -> list[Expression]:
    """Return the expressions of a call that are evaluated on each row."""
    return [*call.args, *(key for key, _ in call.order_by)]


def netted(rows: Iterable[tuple[Record, Row, int]]) -> list[tuple[Row, int]]:
    """Return rows with their counts, one for each combination of values; what cancels is gone."""
    rows = list(rows)
    some = {values: row for values, row, _ in rows}
    return [(some[values], count) for values, count in total((values, count) for values, _, count in rows).items()]


def python_rows(step: PythonStep, record: dict[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the records that a Python function makes of one; in batches, a batch of one."""
    function = load(step.function)
    if step.batch:
        return function(batch_of_one(record)).iter_rows(named=True)
    given = function(record)
    return [given] if isinstance(given, dict) else given


def python_updates(
    node: temporal.JoinFunction, record: dict[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Time, int]]:
    """Give the updates that a Python function makes of one record, times as tuples; in batches, of a batch of one."""
    function = load(node.function)
    if node.batch:
        for row in function(batch_of_one(record)).iter_rows(named=True):
            times = tuple(row[name] for name in row if name == "time" or re.fullmatch("time[0-9]", name))
            yield row, None if None in times else times, row["diff"]
    else:
        for result, time, diff in function(record):
            yield result, time if time is None or isinstance(time, tuple) else (time,), diff


def batch_of_one(record: dict[str, Any]) -> pl.DataFrame:
    """Return a record as functions that take batches are given it."""
    return pl.DataFrame({**{name: [value] for name, value in record.items()}, "row": [0]}, strict=False)


def plain_record(record: Record) -> Record:
    """Return a record as Python functions are given it."""
    return tuple(map(plain, record))


def load(name: str) -> Callable[..., Any]:
    """Import `module:function`."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)

"""The operators over groups of records: reductions, the first of a group, multiplicities; as they are written, and as the engine computes them.

A reduction's aggregate calls are computed in cells (see `cells`); its results are expressions over those. When every call is a sum or a
count, the cells are the state and the input is not kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.expressions.tree import Cast, Column, Expression, FilterStep, Literal, MapStep, quoted
from ddcli.expressions.types import POOLED, renamed
from ddcli.plan import physical, words
from ddcli.plan.logical import columns_of
from ddcli.plan.node import NO_KEYS, Node, inherited, pairs_of
from ddcli.plan.shape import (
    INT64,
    RECORDS,
    accumulated,
    arrange,
    cells,
    conform,
    finished,
    has_value,
    is_accumulable,
    linear,
    project,
)
from ddcli.plan.words import ALL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Step
    from ddcli.expressions.types import Schema
    from ddcli.plan.estimates import PastRows
    from ddcli.plan.lower import GraphLowering
    from ddcli.plan.node import Columns, InputColumn, Keys, Origins, Partition, Values, Writer, Written


OWN_WORDS = ("by", "function")
"""The names that a `reduce` of a pipeline file can't give to columns, since they are its own words."""


class Reduce(Node):
    """One record a group: the `by` expressions, then `results`, expressions over "$i", the i-th of `calls`."""

    by: tuple[tuple[str, Expression], ...]
    calls: tuple[AggregateCall, ...]
    results: tuple[tuple[str, Expression], ...]
    gathers: ClassVar[bool] = True

    @property
    def title(self) -> str:
        """The reduction in words; one without calls returns only its groups."""
        by = ", ".join(name for name, _ in self.by)
        calls = ", ".join(call.text() for call in self.calls)
        return " ".join(filter(None, ["reduce", calls, by and f"by {by}"]))

    @property
    def computed(self) -> Step | None:
        keys = tuple(pair for pair in self.by if not isinstance(pair[1], Column))
        return MapStep(keys) if keys else None

    @property
    def lets_pass(self) -> bool:
        from ddcli.plan.conditions import is_certain, is_certain_call  # only an optimizer asks

        expressions = [expression for _, expression in (*self.by, *self.results)]
        return all(map(is_certain, expressions)) and all(map(is_certain_call, self.calls))

    def over_input(self, at: int) -> dict[str, Expression]:
        return dict(self.by)

    def column_origins(self) -> Origins:
        return {name: [(0, each.name)] for name, each in self.by if isinstance(each, Column)}

    def reads(self, wanted: Columns) -> list[Columns]:  # a group's presence needs its keys
        arguments = [argument for call in self.calls for argument in call.args]
        order = [expression for call in self.calls for expression, _ in call.order_by]
        return [columns_of([expression for _, expression in self.by] + arguments + order)]

    def value_sources(self, name: str) -> list[InputColumn]:
        if name in dict(self.by):
            return pairs_of([dict(self.by)[name].columns()])
        return pairs_of([columns_of(arg for call in self._calls_of(name) for arg in call.args)])

    def value_dependencies(self, name: str) -> list[InputColumn]:
        called = frozenset[str]().union(*(call.columns() for call in self._calls_of(name)))
        return pairs_of([called | columns_of(expression for _, expression in self.by)])

    def presence_dependencies(self) -> list[InputColumn]:
        return pairs_of([columns_of(expression for _, expression in self.by)])

    def _calls_of(self, name: str) -> list[AggregateCall]:
        """Return the calls that a result is made of; none for a column of the key."""
        read = dict(self.results)[name].columns() if name in dict(self.results) else frozenset[str]()
        return [call for at, call in enumerate(self.calls) if f"${at}" in read]

    @inherited
    def unique(self) -> Keys:
        return frozenset({frozenset(name for name, _ in self.by)})

    @property
    def wording(self) -> tuple[str, str]:
        by = ", ".join(
            name if expression.text() == Column(name, expression.type).text() else f"{name}: {expression.text()}"
            for name, expression in self.by
        )
        results = []
        for name, expression in self.results:
            text = expression.text()
            for at, call in enumerate(self.calls):
                text = text.replace(Column(f"${at}", call.type).text(), call.text())
            results.append(f"{name}: {text}")
        return "reduce", f"by {by}: {', '.join(results)}" if by else ", ".join(results)

    def written(self, writer: Writer) -> Written:
        if not self.results:
            return writer.after(self, {"map": words.assignments(self.by) or words.NO_COLUMN}, "distinct")
        free = [name if name not in OWN_WORDS else f"{name} of rows" for name, _ in self.results]
        given = dict(zip((name for name, _ in self.results), renamed(free, dict(self.by)).values(), strict=True))
        plain = all(isinstance(each, Column) and each.name == name for name, each in self.by)
        by: Any = [name for name, _ in self.by] if plain else words.assignments(self.by)
        calls = {quoted(f"${at}"): call.text() for at, call in enumerate(self.calls)}
        reduced: dict[str, Any] = {"by": by} if self.by else {}
        for name, result in self.results:
            text = str(result)
            for column, call in calls.items():
                text = text.replace(column, call)
            reduced[given[name]] = text
        changed = {new: old for old, new in given.items() if new != old}
        return writer.after(self, {"reduce": reduced}, *([{"rename": changed}] if changed else []))

    def lowered(self, lowering: GraphLowering) -> Node:
        (child,) = self.inputs
        by = dict(self.by) or {ALL: Literal(0, INT64)}
        arguments = _Arguments(by)
        calls = tuple(arguments.rewritten(call) for call in self.calls)
        given = {name: expression.type for name, expression in arguments.columns.items()}
        prepared = project(lowering.node(child), arguments.columns, given, fuse=lowering.read_once(child))
        schema: Schema = {name: given[name] for name in by}
        key = tuple(by)
        if lowering.two_steps and calls and all(call.distinct and call.function == "count" for call in calls):
            prepared, calls = _each_once(prepared, calls)
        bindings = {f"${at}": finished(at, call) for at, call in enumerate(calls)}
        reduced: Node
        if all(is_accumulable(call) for call in calls):
            schema |= {RECORDS: INT64}
            for at, call in accumulated(calls).items():
                schema |= cells(at, call)
            bindings |= {f"${at}": Column(RECORDS, INT64) for at in range(len(calls)) if at not in accumulated(calls)}
            reduced = Accumulate((prepared,), schema, key, calls)
        else:
            for at, call in enumerate(calls):
                schema |= cells(at, call)
            reduced = Group((arrange(prepared, key),), schema, key, calls)
        for at, call in enumerate(calls):
            some = has_value(at, call)
            if some is not None:
                reduced = linear(reduced, [FilterStep(some)], reduced.schema, fuse=True)
        results: dict[str, Expression] = {name: Column(name, given[name]) for name, _ in self.by}
        results |= {name: expression.substitute(bindings) for name, expression in self.results}
        types = {name: expression.type for name, expression in results.items()}
        return conform(project(reduced, results, types, fuse=True), lowering.schema(self), fuse=True)


def _each_once(rows: Node, calls: tuple[AggregateCall, ...]) -> tuple[Node, tuple[AggregateCall, ...]]:
    """Return a group's values, each once, and the calls that count them, for calls that count the distinct values of one column; else both as they are.

    The first step is by group and value, so a large group is in all shards, and a change reads only the values that it
    names. A value counts while its multiplicity isn't zero: so the second step counts what it does over all rows.
    """
    if len({call.args for call in calls}) > 1:
        return rows, calls
    values = Accumulate((rows,), {**rows.schema, RECORDS: INT64}, tuple(rows.schema), ())
    return conform(values, rows.schema, fuse=True), tuple(replace(call, distinct=False) for call in calls)


class Grouped(Node, ABC):
    """An operator whose records of a group, those with equal `by` columns, depend on all of the input's records of the group and on no others."""

    gathers: ClassVar[bool] = True
    by: tuple[str, ...]

    def column_origins(self) -> Origins:
        return {name: [(0, name)] for name in self.by}

    @property
    @abstractmethod
    def name(self) -> str:
        """The operator's name for people, without its groups and its order."""

    @property
    def title(self) -> str:
        by = f" by {', '.join(self.by)}" if self.by else ""
        order = ", ".join(name + " desc" * descending for name, descending in self.order)
        return f"{self.name}{by}{f' in the order of {order}' if order else ''}"

    @property
    def order(self) -> tuple[tuple[str, bool], ...]:
        """The columns that it orders a group by, each with whether it descends."""
        return ()


class PythonReduce(Grouped, physical.OfGroups):
    """A Python reducer: `(key, [(value, count), ...]) -> [(value, count), ...]` a group; tuples of columns.

    The engine computes it over an arrangement by the groups' columns. State.
    """

    kind: ClassVar[str] = "reduce"
    physical_name: ClassVar[str] = "PythonGroup"
    values: tuple[str, ...]
    function: str

    @property
    def name(self) -> str:
        return f"reduce {self.function}"

    def lowered(self, lowering: GraphLowering) -> Node:
        child = lowering.node(self.inputs[0])
        columns = {name: Column(name, child.schema[name]) for name in dict.fromkeys(self.by + self.values)}
        prepared, key = grouped(child, columns, self.by)
        schema = {name: prepared.schema[name] for name in key} | self.schema
        group = replace(self, inputs=(arrange(prepared, key),), schema=schema, by=key)
        return conform(group, lowering.schema(self), fuse=True)

    def keeps_state(self, times: int) -> bool:
        return True

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        return emitted_of_groups(self, self.by, inputs, past)

    def details(self) -> list[str]:
        return [f"by {words.key(self.by, {})}", self.function]

    @property
    def groups(self) -> str:
        names = [name for name in self.by if name != ALL]
        return words.key(names, {}) if names else ""


class Computed(Node):
    """A reduction by `calls`, one record for each group of the `by` columns. State."""

    kind: ClassVar[str] = "reduce"
    by: tuple[str, ...]
    calls: tuple[AggregateCall, ...]

    def column_origins(self) -> Origins:
        return {name: [(0, name)] for name in self.by}

    def keeps_state(self, times: int) -> bool:
        return True

    @property
    def kept_by(self) -> tuple[str, ...]:
        return self.by

    def emitted(self, inputs: Sequence[float], past: PastRows) -> float:
        return emitted_of_groups(self, self.by, inputs, past)

    def details(self) -> list[str]:
        texts = physical.argument_texts(self)
        calls = ", ".join(words.expression(call.text(), texts) for call in self.calls)
        return [f"by {words.key(self.by, texts)}", *([calls] if calls else [])]

    @property
    def groups(self) -> str:
        names = [name for name in self.by if name != ALL]
        return words.key(names, physical.argument_texts(self)) if names else ""

    def texts(self) -> dict[str, str]:
        return self.result_texts()

    def result_texts(self) -> dict[str, str]:
        texts = physical.argument_texts(self)
        found = {quoted(RECORDS): "count(*)"} | {own: texts[own] for own in map(quoted, self.by) if own in texts}
        for at, call in enumerate(self.calls):
            text = words.expression(call.text(), texts)
            counted = ", ".join(words.expression(argument.text(), texts) for argument in call.args)
            found |= {finished(at, call).text(): text, quoted(f"${at}"): text, quoted(f"${at}.n"): f"count({counted})"}
        return found


class Accumulate(Computed):
    """Sums of a group that continue from themselves: counts and sums of `calls`. Keeps them, not the input.

    The input is `by` then one column for each call's argument; the schema has the columns of `accumulators`. State.
    """

    @property
    def exchanged_by(self) -> tuple[str, ...]:
        return self.by

    def partition(self, times: int) -> Partition:
        return self.partition_by(self.by)


class Group(Computed, physical.OfGroups):
    """A reduction that reads the rows of its groups: `Arrangement` input, one value for each call, kept beside it. State."""


class Threshold(physical.OfGroups):
    """Each record with the multiplicity that `function` (an expression over "count") returns; None is distinct.

    The engine computes it over an arrangement whose key are all columns. State.
    """

    physical_name: ClassVar[str] = "Multiplicity"
    gathers: ClassVar[bool] = True
    function: Expression | None

    @property
    def title(self) -> str:
        return "distinct" if self.function is None else f"threshold {words.without_parentheses(self.function.text())}"

    def leaves_out(self, values: Values) -> str:
        text = None if self.function is None else words.without_parentheses(self.function.text())
        return "its multiplicity is not positive" if text is None else f"{text} is not above 0"

    @property
    def reads_counts(self) -> bool:
        return self.function is not None

    @property
    def lets_pass(self) -> bool:
        return self.function is None

    @property
    def kind(self) -> str:
        """The word for it by its function."""
        return "threshold" if self.function else "distinct"

    @property
    def work(self) -> str:
        return "change"

    def column_origins(self) -> Origins:
        return self.unchanged()

    @inherited
    def unique(self) -> Keys:
        return frozenset({frozenset(self.schema)}) if self.function is None else NO_KEYS

    def lowered(self, lowering: GraphLowering) -> Node:
        child = lowering.exactly(self.inputs[0], self.schema)
        found = Threshold((arrange(child, tuple(self.schema)),), self.schema, self.function)
        return conform(found, lowering.schema(self), fuse=True)

    def written(self, writer: Writer) -> Written:
        return writer.after(self, "distinct" if self.function is None else {"threshold": str(self.function)})

    def keeps_state(self, times: int) -> bool:
        return times > 1 or self.level > 0  # in totally ordered time, counts are read from the arrangement

    def searched(self, known: Values) -> list[tuple[Node, Values]] | None:
        return [(self.inputs[0], known)]

    def details(self) -> list[str]:
        return [words.without_parentheses(self.function.text())] if self.function else []


class TopK(Grouped, physical.OfGroups):
    """The first `k` records of each group, counting multiplicities, in the order of `order_by` (a column and
    whether it descends), ties by the remaining columns in lane order.

    The engine computes it over an arrangement by the groups' columns. State.
    """

    kind: ClassVar[str] = "top_k"
    physical_name: ClassVar[str] = "Top"
    lets_pass: ClassVar[bool] = True
    k: int
    order_by: tuple[tuple[str, bool], ...]

    @property
    def identity_values(self) -> tuple[Any, ...]:
        # The groups of a physical node are the key of its input, an arrangement.
        return (self.k, self.order_by) if self.is_physical else (self.by, self.k, self.order_by)

    def value_sources(self, name: str) -> list[InputColumn]:
        return [(0, name)]

    @property
    def name(self) -> str:
        return f"top {self.k}"

    @property
    def order(self) -> tuple[tuple[str, bool], ...]:
        return self.order_by

    def leaves_out(self, values: Values) -> str:
        return f"not among the first {self.k}"

    @inherited
    def unique(self) -> Keys:
        return self.inputs[0].unique | {frozenset(self.by)} if self.k == 1 else self.inputs[0].unique

    def lowered(self, lowering: GraphLowering) -> Node:
        child = lowering.exactly(self.inputs[0], self.schema)
        columns = {name: Column(name, kind) for name, kind in child.schema.items()}
        prepared, key = grouped(child, columns, self.by)
        if all(child.schema[name].kind not in POOLED for name, _ in self.order_by):
            prepared = ranked(prepared, key, self.order_by)
        schema = {name: prepared.schema[name] for name in key} | self.schema
        found = TopK((arrange(prepared, key),), schema, key, self.k, self.order_by)
        return conform(found, lowering.schema(self), fuse=True)

    def written(self, writer: Writer) -> Written:
        by = {"by": list(self.by)} if self.by else {}
        # Without an order, records are ordered by all columns in turn.
        order = words.sort_keys(self.order_by) or [quoted(next(iter(self.schema)))]
        return writer.after(self, {"top_k": by | {"k": self.k, "order_by": order}})

    def keeps_state(self, times: int) -> bool:
        return True

    def details(self) -> list[str]:
        texts = self.arranged.texts()
        order = ", ".join(words.key([name], texts) + " desc" * descending for name, descending in self.order_by)
        return [f"{self.k} by {order}", f"of each {self.arranged.key_text()}"]


def distinct(node: Node) -> Node:
    """Return the distinct records of a node."""
    return Threshold((node,), node.schema, None)


def first(node: Node, by: Iterable[str], k: int, order_by: Iterable[tuple[str, bool]]) -> Node:
    """Return the first `k` records of each group in an order of columns, given as (column, descending)."""
    return TopK((node,), node.schema, tuple(by), k, tuple(order_by))


def emitted_of_groups(node: Node, by: Sequence[str], inputs: Sequence[float], past: PastRows) -> float:
    """Return the rows that a reduction is expected to emit; of a single group its record before and after."""
    found = past.groups(node.fingerprint, inputs[0])
    return found if [*by] != [ALL] else min(found, 2.0)


def grouped(child: Node, columns: Mapping[str, Expression], by: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
    """Return `child` with these columns, and the key to group it by: a constant where all of it is one group."""
    key = by or (ALL,)
    if not by:
        columns = {ALL: Literal(0, INT64), **columns}
    return project(child, columns, {name: expression.type for name, expression in columns.items()}, fuse=False), key


def ranked(child: Node, key: tuple[str, ...], order_by: tuple[tuple[str, bool], ...]) -> Node:
    """Return `child` with the lanes of its order columns in front of its values, inverted where the order descends."""
    lanes = tuple((physical.lane_column(at), name, descending) for at, (name, descending) in enumerate(order_by))
    schema = {name: child.schema[name] for name in key}
    for name, source, _ in lanes:
        schema |= physical.lane_columns(name, child.schema[source])
    schema |= child.schema
    return physical.OrderLanes((child,), schema, lanes)


class _Arguments:
    """The columns that the calls read, each computed once; a plain column keeps its name, so that arrangements are shared.

    An aggregated key is also a value: aggregates read only values.
    """

    def __init__(self, by: dict[str, Expression]):
        self.by = by
        self.columns: dict[str, Expression] = dict(by)

    def rewritten(self, call: AggregateCall) -> AggregateCall:
        """Return the call over columns alone. Constants (a separator, a fraction) stay."""
        given = [_narrow(arg) if call.function in ("sum", "avg") else arg for arg in call.values]
        args = (*(self._column(arg) for arg in given), *call.args[len(given) :])
        order = tuple((self._column(key), descending) for key, descending in call.order_by)
        return replace(call, args=args, order_by=order)

    def _column(self, expression: Expression) -> Column:
        for name, known in self.columns.items():
            if known == expression and name not in self.by:
                return Column(name, expression.type, span=expression.span)
        name = expression.name if isinstance(expression, Column) else f"$value{len(self.columns)}"
        if name in self.columns:
            name = f"$value{len(self.columns)}"
        self.columns[name] = expression
        return Column(name, expression.type, span=expression.span)


def _narrow(argument: Expression) -> Expression:
    """Return the argument without a widening to int64: the sum adds the same integers either way."""
    if isinstance(argument, Cast) and argument.type.kind == "int64" and not argument.try_:
        inner = argument.argument.type
        if inner.is_integer and inner.kind != "uint64":
            return argument.argument
    return argument

"""Windows: as they are written, and as the engine computes them. The arguments of calls are computed before them, the expressions around them after."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ddcli.errors import SpecError, noting, raise_all
from ddcli.expressions.coerce import Mismatch
from ddcli.expressions.operators import keys_of, stored
from ddcli.expressions.tree import Column, MapStep, quoted
from ddcli.expressions.types import POOLED
from ddcli.plan import logical, physical, words
from ddcli.plan.groupings import Grouped, grouped, ranked
from ddcli.plan.node import Unwritten, pairs_of
from ddcli.plan.shape import arrange, conform, project, way, window_cells, window_finished
from ddcli.plan.words import ALL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.errors import DdError, Text
    from ddcli.expressions.operators import Key
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema, Type
    from ddcli.expressions.window_calls import OrderedBy
    from ddcli.expressions.windows import WindowCall
    from ddcli.plan.lower import GraphLowering
    from ddcli.plan.node import InputColumn, Node, Values, Writer, Written
    from ddcli.plan.relation import Relation
    from ddcli.spec.model import Assignments, Order


DISTANCE = re.compile(r"^range between (?!unbounded preceding and (current row|unbounded following)$)")
"""The text of a frame whose bounds are distances in values."""


class Window(Grouped):
    """Each row, copies of a record being rows of their own, with the values of `calls` over the ordered rows of its partition, in additional columns.

    The order is by `order_by` (a column and whether it descends), ties by the remaining columns in lane order. A record whose
    multiplicity is negative is no row.
    """

    order_by: tuple[tuple[str, bool], ...]
    calls: tuple[tuple[str, WindowCall], ...]

    @property
    def lets_pass(self) -> bool:
        return all(_is_certain(call) for _, call in self.calls)

    @property
    def name(self) -> str:
        return f"window {', '.join(call.text() for _, call in self.calls)}"

    @property
    def order(self) -> tuple[tuple[str, bool], ...]:
        return self.order_by

    def value_sources(self, name: str) -> list[InputColumn]:
        calls = dict(self.calls)
        return pairs_of([calls[name].columns()]) if name in calls else [(0, name)]

    def value_dependencies(self, name: str) -> list[InputColumn]:
        return super().value_dependencies(name) if name in dict(self.calls) else [(0, name)]

    def presence_dependencies(self) -> list[InputColumn]:
        return []

    def written(self, writer: Writer) -> Written:
        frames = {call.frame.text() for _, call in self.calls if call.frame is not None}
        if len(frames) > 1:  # separate operators might order equal rows differently
            raise Unwritten("a window with several frames")
        if len(self.order_by) > 1 and any(DISTANCE.search(frame) for frame in frames):
            raise Unwritten("a frame by a distance of values, of keys that may be null")
        window: dict[str, Any] = {"by": list(self.by)} if self.by else {}
        window |= {"order_by": words.sort_keys(self.order_by)} if self.order_by else {}
        window |= {"frame": frames.pop()} if frames else {}
        return writer.after(self, {"window": window | {"columns": {name: _called(call) for name, call in self.calls}}})

    def lowered(self, lowering: GraphLowering) -> Node:
        wanted = lowering.schema(self)
        child = lowering.exactly(self.inputs[0], self.inputs[0].schema)
        calls = [(name, call) for name, call in self.calls if name in wanted]
        columns = {name: Column(name, kind) for name, kind in child.schema.items()}
        prepared, key = grouped(child, columns, self.by)
        kinds = [child.schema[name].kind for name, _ in self.order_by]
        ordered = bool(kinds) and not POOLED.intersection(kinds)
        near = all(call.reach is not None for _, call in calls)
        ways = {way(call) for _, call in calls}
        running = ordered and not near and len(ways) == 1 and 0 not in ways
        if running:
            prepared = ranked(
                prepared, key, tuple((name, descending ^ (-1 in ways)) for name, descending in self.order_by)
            )
        elif ordered and near:
            prepared = ranked(prepared, key, self.order_by)
        carried = {name: kind for name, kind in wanted.items() if name in child.schema}
        schema: Schema = {name: prepared.schema[name] for name in key} | carried
        results: dict[str, Expression] = {name: Column(name, kind) for name, kind in carried.items()}
        for at, (name, call) in enumerate(calls):
            schema |= window_cells(at, call)
            results[name] = window_finished(at, call)
        given = (arrange(prepared, key),), schema, self.order_by, tuple(call for _, call in calls)
        found = RunningGroup(*given, -1 in ways) if running else WindowedGroup(*given)
        types = {name: expression.type for name, expression in results.items()}
        return conform(project(found, results, types, fuse=True), wanted, fuse=True)


def _called(call: WindowCall) -> str:
    """Return a call over a window without its frame, as a pipeline file has it."""
    if call.function in ("lag", "lead"):  # without a number they mean one row away
        value, *default = (each.text() for each in call.args)
        ignored = " ignore nulls" if call.ignores_nulls else ""
        return f"{call.function}({', '.join([value, str(call.number), *default])}{ignored})"
    return replace(call, frame=None).text()


def _is_certain(call: WindowCall) -> bool:
    """Return whether a window's value fails on no partition: a frame's end at a distance in values may overflow."""
    from ddcli.plan.conditions import is_certain, is_certain_call  # only an optimizer asks

    ends = () if call.frame is None or call.frame.unit != "range" else (call.frame.start, call.frame.end)
    certain = all(end.offset is None for end in ends) and all(map(is_certain, call.args))
    return certain and (call.aggregate is None or is_certain_call(call.aggregate))


class WindowedGroup(physical.OfGroups):
    """The rows of each group of an `Arrangement` input in the order of `order_by`, each with the cells of `calls`. State."""

    kind: ClassVar[str] = "window"
    order_by: tuple[tuple[str, bool], ...]
    calls: tuple[WindowCall, ...]

    @property
    def reach(self) -> int | None:
        """The number of rows on each side of a change that affect its result; None if that has no bound, or the input is not in order."""
        reaches = [call.reach for call in self.calls]
        known = [each for each in reaches if each is not None]
        if not known or len(known) < len(reaches) or physical.lane_column(0) not in self.inputs[0].schema:
            return None
        return max(before for before, _ in known) + max(after for _, after in known)

    @property
    def work(self) -> str:
        near = self.reach is not None and physical.in_order_of_time(self)
        return "change" if near else self.work_of_groups("partition")

    def keeps_state(self, times: int) -> bool:
        # In totally ordered time, a row's neighbours are read from the arrangement.
        return self.reach is None or times > 1 or self.level > 0

    def searched(self, known: Values) -> list[tuple[Node, Values]] | None:
        by = [name for name in self.arranged.key if name != ALL]  # a row's values depend on all rows of its partition
        return [(self.arranged, {name: known[name] for name in by})] if known.keys() >= {*by} else None

    @property
    def read(self) -> str:
        """The rows that it reads for a change, in words."""
        if self.reach is None or not physical.in_order_of_time(self):
            return "reads whole partitions"
        return f"reads {self.reach} {'row' if self.reach == 1 else 'rows'} on each side of a change"

    def details(self) -> list[str]:
        texts = physical.argument_texts(self)
        order = ", ".join(
            words.without_parentheses(words.expression(quoted(name), texts)) + " desc" * descends
            for name, descends in self.order_by
        )
        calls = ", ".join(words.expression(call.text(), texts) for call in self.calls)
        ordered = [f"in the order of {order}"] if order else []
        return [f"of each {self.arranged.key_text()}", *ordered, self.read, calls]

    def texts(self) -> dict[str, str]:
        return self.result_texts()

    def result_texts(self) -> dict[str, str]:
        texts = physical.argument_texts(self)
        called = [words.expression(call.text(), texts) for call in self.calls]
        values = [window_finished(at, call).text() for at, call in enumerate(self.calls)]
        return dict(zip(values, called, strict=True)) | {quoted(f"${at}"): text for at, text in enumerate(called)}


class RunningGroup(WindowedGroup):
    """A window whose calls all continue from row to row; `backwards`: from the last row to the first, in which order its input is arranged. State."""

    backwards: bool

    @property
    def work(self) -> str:
        return "output" if physical.in_order_of_time(self) else super().work

    @property
    def read(self) -> str:
        if not physical.in_order_of_time(self):
            return "reads whole partitions"
        return f"reads {'back' if self.backwards else 'on'} from a change as far as it reaches"


def windowed(
    node: Node, by: Sequence[Expression], order: OrderedBy, calls: Mapping[str, WindowCall], prefix: str = "$"
) -> Node:
    """Return a node with the values of calls in additional columns, over one partition and order. Names must not be taken.

    Values that are computed only for them are in columns that begin with the prefix, which are dropped after it.
    """
    hidden: dict[str, Expression] = {}

    def column(expression: Expression, stem: str, kind: Type | None = None) -> Column:
        kind = kind or expression.type
        if isinstance(expression, Column) and expression.type == kind and expression.name not in keys:
            return Column(expression.name, kind)
        if expression.type != kind:  # differs in nulls alone: the same values, in lanes that may have null
            expression = replace(expression, type=kind)  # type: ignore[type-var]
        for name, known in hidden.items():
            if known == expression and known.type == kind and name not in keys:
                return Column(name, kind)
        name = f"{prefix}{stem}{len(hidden)}"
        hidden[name] = expression
        return Column(name, kind)

    keys: set[str] = set()
    partition = tuple(dict.fromkeys(column(each, "partition").name for each in by))
    keys |= set(partition)
    ordered = tuple((column(stored(each), "sort").name, descending) for each, descending in order.keys)
    made = []
    for name, call in calls.items():
        aggregate = call.aggregate
        if aggregate is not None:
            empty = call.frame is not None and call.frame.may_be_empty
            args: tuple[Expression, ...] = tuple(
                column(arg, "argument", arg.type.or_null(empty and not at)) for at, arg in enumerate(aggregate.values)
            )
            args += aggregate.args[len(args) :]
            own = tuple((column(key, "argument"), descending) for key, descending in aggregate.order_by)
            aggregate = replace(aggregate, args=args, order_by=own)
        args = tuple(column(arg, "argument", call.type) for arg in call.args)
        made.append((name, replace(call, args=args, aggregate=aggregate)))
    schema = {name: call.type for name, call in made}
    prepared = node
    if hidden:
        columns: dict[str, Expression] = {name: Column(name, kind) for name, kind in node.schema.items()} | hidden
        types = node.schema | {name: expression.type for name, expression in hidden.items()}
        prepared = logical.Apply((node,), types, MapStep(tuple(columns.items())))
    found = Window((prepared,), prepared.schema | schema, partition, ordered, tuple(made))
    if not hidden:
        return found
    kept = {name: Column(name, kind) for name, kind in (node.schema | schema).items()}
    return logical.Apply((found,), node.schema | schema, MapStep(tuple(kept.items())))


def with_window(
    relation: Relation, columns: Assignments, by: Sequence[Text], order_by: Sequence[Order], frame: Text | None
) -> Relation:
    """Return a relation with further columns, computed over windows of its rows."""
    from ddcli.expressions.window_calls import CALLED, OrderedBy, parse_frame

    errors: list[DdError] = []
    partition: list[Expression] = []
    for text in by:
        with noting(errors):
            name = relation.column(text)
            partition.append(Column(name, relation.schema[name]))
    keys: list[Key] = []
    for item in order_by:
        with noting(errors):
            key = relation.scalar(item.expression)
            try:
                keys += keys_of(key, item.descending, item.nulls_first)
            except Mismatch as mismatch:
                raise SpecError(mismatch.problem, span=item.expression.span) from None
    raise_all(errors)
    order = OrderedBy(tuple(keys), len(order_by))
    bounds = parse_frame(frame, order) if frame is not None else None
    calls: list[WindowCall] = []
    results: list[tuple[str, Expression]] = []
    for name_text, text in columns:
        with noting(errors):
            made, result = relation.windowed(text, order, bounds)
            places: dict[str, Expression] = {}
            for at, call in enumerate(made):
                if call not in calls:
                    calls.append(call)
                places[f"{CALLED}{at}"] = Column(f"{CALLED}{calls.index(call)}", call.type)
            results.append((name_text.value, result.substitute(places)))
    raise_all(errors)
    node = windowed(relation.node, partition, order, {f"{CALLED}{at}": call for at, call in enumerate(calls)})
    found_columns: dict[str, Expression] = {name: Column(name, kind) for name, kind in relation.schema.items()}
    found_columns |= dict(results)
    schema = {name: expression.type for name, expression in found_columns.items()}
    return relation.over(logical.Apply((node,), schema, MapStep(tuple(found_columns.items()))))

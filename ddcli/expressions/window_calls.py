"""The readers of window functions: calls, orders and frames, each error at its place.

In a pipeline file `amount - lag(amount)` is an expression over the row's columns and calls, `$window0`, `$window1` ...; the operator's other
keys are the partition, the order and the frame. In SQL each call has its own after `over`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp

from ddcli.errors import SpecError, Text
from ddcli.expressions.aggregates import AGGREGATE_SYNONYMS, AGGREGATES
from ddcli.expressions.coerce import FLOAT64, INT64, Mismatch, adapts, convert, integer_range, unify
from ddcli.expressions.parse import ExpressionReader, check_depth
from ddcli.expressions.reductions import ReductionReader
from ddcli.expressions.syntax_tree import read
from ddcli.expressions.tree import Column, Expression, Literal
from ddcli.expressions.types import UTC, ColumnScope
from ddcli.expressions.windows import RUNNING, WHOLE, WINDOW_FUNCTIONS, Frame, FrameBound, WindowCall, WindowFunction

if TYPE_CHECKING:
    from typing import NoReturn

    from ddcli.expressions.syntax_tree import Tree
    from ddcli.expressions.windows import Unit

CALLED = "$window"
"""The prefix of a call's column in an expression over calls."""
OVER = "count(*) over (order by 0 "
"""The text before a frame when it is parsed: without an order, `groups` would be the name of a window."""
KNOWN = f"one of {', '.join(WINDOW_FUNCTIONS)}, or an aggregate"
"""The functions that are allowed before `over`."""
NULLS = exp.IgnoreNulls | exp.RespectNulls
PICKS = {"first": "first_value", "arbitrary": "first_value", "any_value": "first_value", "last": "last_value"}
"""The window functions that aggregates are which take a row of an ordered window; `any_value` ignores nulls."""
TEMPORAL = ("date", "datetime", "time", "duration")


class OrderedBy(NamedTuple):
    """The keys of an order, each with whether it descends. If nulls are not at the large end, a key before it orders them."""

    keys: tuple[tuple[Expression, bool], ...]
    written: int
    """The number of keys that were written."""


def is_window_function(name: str) -> bool:
    """Return whether a name, in lower case, is the name of a window function or an aggregate."""
    return name in WINDOW_FUNCTIONS or AGGREGATE_SYNONYMS.get(name, name) in AGGREGATES


class CallReader:
    """The reader of calls over windows, which has readers for their arguments."""

    def __init__(self, reader: ExpressionReader, aggregates: ReductionReader):
        self.reader, self.aggregates = reader, aggregates
        self.take, self.fail = reader.take, reader.fail

    def call(self, node: exp.Expr, order: OrderedBy, frame: Frame | None) -> WindowCall:
        """Return the call of a node over this order and frame; None: no frame is written."""
        condition = None
        inner, nulls = node, None
        if isinstance(inner, NULLS):
            inner, nulls = self.take(inner, "this")[0], inner
        if isinstance(inner, exp.Filter):
            inner, where = self.take(inner, "this", "expression")
            (condition,) = self.take(where, "this")
        if not isinstance(inner, exp.Anonymous):
            self.fail(node, "a window function is expected before `over`", KNOWN)
        written = str(inner.this).lower()
        function = WINDOW_FUNCTIONS.get(written)
        plain = condition is None and not any(isinstance(each, exp.Order | exp.Distinct) for each in inner.expressions)
        if written in PICKS and order.keys and plain:
            function = WINDOW_FUNCTIONS[PICKS[written]]
            nulls = exp.IgnoreNulls() if written == "any_value" else nulls
        if inner.expressions and isinstance(inner.expressions[-1], NULLS):  # behind the last argument
            nulls = inner.expressions[-1]
        if nulls is not None and not (function and function.picks):
            functions = ", ".join(each.name for each in WINDOW_FUNCTIONS.values() if each.picks)
            word = "ignore" if isinstance(nulls, exp.IgnoreNulls) else "respect"
            self.fail(node, f"`{word} nulls` is not supported for {written}", f"it is allowed in {functions}")
        if function is not None:
            if condition is not None:
                self.fail(node, f"`filter` is not supported for {written}", "it is allowed behind an aggregate")
            return self._function(inner, function, order, frame, nulls)
        name = AGGREGATE_SYNONYMS.get(written, written)
        if name not in AGGREGATES:
            self.fail(node, f"{written} is not a window function", KNOWN)
        return self._aggregate(inner, written, condition, order, frame)

    def _no_order(self, node: exp.Expr, what: str) -> NoReturn:
        hint = "add `order by` to the window (`order_by` in a pipeline file)"
        self.fail(node, f"{what} needs an order: a collection has no order", hint)

    def _function(
        self,
        node: exp.Anonymous,
        function: WindowFunction,
        order: OrderedBy,
        frame: Frame | None,
        nulls: exp.Expr | None,
    ) -> WindowCall:
        nodes = [*(self.take(node, "this", "expressions")[1] or [])]
        if nodes and nodes[-1] is nulls:
            nodes[-1] = self.take(nulls, "this")[0]
        if not function.least <= len(nodes) <= function.most:
            wanted = str(function.least) if function.least == function.most else f"{function.least} to {function.most}"
            self.fail(
                node,
                f"{function.name} takes {wanted} argument{'s' * (wanted != '1')}, got {len(nodes)}",
                function.signature,
            )
        if function.ordered and not order.keys:
            self._no_order(node, function.name)
        name = function.name
        if name == "ntile":
            return WindowCall(name, (), INT64, self._number(nodes[0], "ntile", 1))
        if not nodes:
            return WindowCall(name, (), FLOAT64 if name in ("percent_rank", "cume_dist") else INT64)
        value = self._value(nodes[0])
        ignores = isinstance(nulls, exp.IgnoreNulls) and value.type.nullable
        if name in ("lag", "lead"):
            number = self._number(nodes[1], name, 0) if len(nodes) > 1 else 1
            ignores &= number > 0
            if len(nodes) < 3:
                return WindowCall(name, (value,), value.type.or_null(), number, ignores_nulls=ignores)
            try:
                args, kind = unify([value, self._value(nodes[2])], f"`{name}`")
            except Mismatch as mismatch:
                raise mismatch.at(self.reader.place(node)) from None
            return WindowCall(name, tuple(args), kind, number, ignores_nulls=ignores)
        frame = frame or RUNNING
        number = self._number(nodes[1], name, 1) if name == "nth_value" else 0
        kind = value.type.or_null(frame.may_be_empty or name == "nth_value")
        return WindowCall(name, (value,), kind, number, frame, ignores_nulls=ignores)

    def _value(self, node: exp.Expr) -> Expression:
        found = self.reader.read(node)
        check_depth(found)
        if found.type.kind in ("null", "months"):
            self.fail(node, f"a window function does not take {found.type.required()}")
        return found

    def _number(self, node: exp.Expr, name: str, least: int) -> int:
        found = self.reader.read(node)
        if not isinstance(found, Literal) or type(found.value) is not int or not least <= found.value < 2**62:
            hint = {"lag": "`lead` looks the other way", "lead": "`lag` looks the other way"}.get(name)
            self.fail(node, f"{name} takes a constant whole number from {least} on", hint)
        return found.value

    def _aggregate(
        self, node: exp.Anonymous, written: str, condition: exp.Expr | None, order: OrderedBy, frame: Frame | None
    ) -> WindowCall:
        name = AGGREGATE_SYNONYMS.get(written, written)
        found = self.aggregates.aggregate(node, AGGREGATES[name], written)
        if condition is not None:
            kept = getattr(self.aggregates, "kept", None)
            if kept is None:
                self.fail(
                    condition, "`filter (where ...)` is not supported", "write sum(case when condition then x end)"
                )
            found = kept(found, self.reader.condition(condition, "a filter"), node, written)  # type: ignore[attr-defined]
        frame = frame or (RUNNING if order.keys else WHOLE)
        if frame.may_be_empty and found.args:
            # Over no rows the aggregate is null: its argument is made nullable, so its type is nullable.
            first = found.args[0]
            kind = found.result(first.type.or_null())
            found = replace(found, type=kind.or_null(name != "count"))
        return WindowCall(name, (), found.type, 0, frame, found)

    # --- orders and frames ---------------------------------------------------------------------------------------

    def frame(self, node: exp.WindowSpec, order: OrderedBy) -> Frame:
        """Return the frame as written."""
        kind, start, start_side, end, end_side, exclude = self.take(
            node, "kind", "start", "start_side", "end", "end_side", "exclude"
        )
        unit: Unit = str(kind).lower()  # type: ignore[assignment]
        bounds = [
            self._bound(node, unit, value, str(side or "").lower(), order)
            for value, side in ((start, start_side), (end or "CURRENT ROW", end_side))
        ]
        if unit != "range" and not order.keys:
            self._no_order(node, f"a frame of {unit}")
        if bounds[0].direction > bounds[1].direction or _is_far(bounds[0], 1) or _is_far(bounds[1], -1):
            self.fail(node, "this frame ends before it begins", "write `between` the earlier bound `and` the later one")
        word = (
            "" if exclude is None else str(*self.take(exclude, "this")).lower() if isinstance(exclude, exp.Var) else "?"
        )
        if word not in ("", "no others", "current row", "group", "ties"):
            self.fail(node, "a frame excludes `current row`, `group`, `ties` or `no others`")
        return Frame(unit, bounds[0], bounds[1], "" if word == "no others" else word)  # type: ignore[arg-type]

    def _bound(self, node: exp.Expr, unit: str, value: object, side: str, order: OrderedBy) -> FrameBound:
        if str(value).upper() == "CURRENT ROW":
            return FrameBound(0)
        direction = -1 if side == "preceding" else 1
        if str(value).upper() == "UNBOUNDED":
            return FrameBound(direction)
        if not isinstance(value, exp.Expr) or side not in ("preceding", "following"):
            hint = f"write `{unit} between 2 preceding and current row`"
            self.fail(node, "a frame begins and ends at `current row`, or so many `preceding` or `following`", hint)
        offset = self.reader.read(value)
        if not isinstance(offset, Literal) or offset.value is None:
            self.fail(value, "a frame's bound is a constant")
        if unit == "range":
            distance = self._distance(value, offset, order)
            zone = order.keys[-1][0].type.zone
            return FrameBound(direction, distance, offset.days if zone not in {None, UTC} else 0)
        if type(offset.value) is not int or not 0 <= offset.value < 2**62:
            self.fail(value, f"a bound in {unit} is a whole number, from 0 on")
        return FrameBound(direction, offset)

    def _distance(self, node: exp.Expr, offset: Literal, order: OrderedBy) -> Literal:
        """Return the offset of a frame by values, in the type of the order's key."""
        if order.written != 1:
            self.fail(node, "a frame by a distance of values needs an order by one key", "write `rows` or `groups`")
        kind = order.keys[-1][0].type.required()
        if offset.type.kind == "months" and kind.kind in ("date", "datetime"):
            negative = offset.value < 0  # type: ignore[operator]
        elif kind.kind in TEMPORAL:
            if offset.type.kind != "duration":
                self.fail(node, f"the distance of a {kind} is an interval", "for example interval '7' day")
            negative = offset.value.days < 0  # type: ignore[union-attr]
        elif kind.is_numeric:
            if not offset.type.is_numeric or not (kind.is_float or adapts(offset, kind) or adapts(offset, INT64)):
                self.fail(node, f"the distance of a {kind} is a number of that type")
            if kind.is_integer and offset.value > integer_range("int64")[1]:  # type: ignore[operator]
                self.fail(node, "this distance is too large")
            whole = convert(offset, INT64 if kind.is_integer else FLOAT64 if kind.is_float else kind)
            if not isinstance(whole, Literal):
                self.fail(node, f"the distance of a {kind} is a number of that type")
            rounded = kind.kind == "float32" and not offset.type.is_float  # as in a sum of both
            offset = replace(whole, type=kind) if rounded else whole
            negative = offset.value < 0  # type: ignore[operator]
        else:
            self.fail(node, f"a {kind} has no distances", "write `rows` or `groups`, or order by a number or a time")
        if negative:
            self.fail(node, "a frame's distance is not negative")
        return offset


def _is_far(bound: FrameBound, direction: int) -> bool:
    return bound.direction == direction and bound.offset is None


class WindowReader(ExpressionReader):
    """The reader of a pipeline file's expressions over a row's columns and calls over its window."""

    def __init__(self, tree: Tree, scope: ColumnScope, order: OrderedBy, frame: Frame | None):
        super().__init__(tree, scope)
        self.order, self.frame = order, frame
        self.calls: list[WindowCall] = []
        self.inner = CallReader(ExpressionReader(tree, scope), ReductionReader(tree, scope))

    def call(self, node: exp.Anonymous) -> Expression:
        written = str(node.this).lower()
        if not is_window_function(written):
            return super().call(node)
        found = self.inner.call(node, self.order, self.frame)
        if found not in self.calls:
            self.calls.append(found)
        return Column(f"{CALLED}{self.calls.index(found)}", found.type, span=self.place(node))

    def unknown_form(self, node: exp.Expr) -> NoReturn:
        if isinstance(node, exp.Window):
            self.fail(node, "`over` is not allowed here", "`by`, `order_by` and `frame` of the operator take its place")
        if isinstance(node, NULLS):
            self.fail(node, "this is not allowed here", "write it behind the last argument: lag(x ignore nulls)")
        super().unknown_form(node)


def parse_windowed(
    text: Text, scope: ColumnScope, order: OrderedBy, frame: Frame | None
) -> tuple[tuple[WindowCall, ...], Expression]:
    """Return the calls of a text, and the expression over the row's columns and theirs; raises SpecError at the place of the mistake."""
    reader = WindowReader(read(text), scope, order, frame)
    result = reader.whole()
    if not reader.calls:
        hint = f"{', '.join(f'{name}(...)' for name in WINDOW_FUNCTIONS)}, or an aggregate; a column without one belongs in `extend`"
        raise SpecError("this has no window function", span=text.span, hint=hint)
    return tuple(reader.calls), result


def parse_frame(text: Text, order: OrderedBy) -> Frame:
    """Return the frame that a text describes, such as `rows between 2 preceding and current row`."""
    span = replace(text.span, column=text.span.column - len(OVER), length=text.span.length + len(OVER) + 1)
    wrong = SpecError("this is not a frame", span=text.span, hint="write `rows between 2 preceding and current row`")
    if not text.value.lower().lstrip().startswith(("rows", "range", "groups")):
        raise wrong
    tree = _read_frame(Text(f"{OVER}{text.value})", span, text.inset), text)
    root = tree.root
    if not isinstance(root, exp.Window) or any(
        value for name, value in root.args.items() if name not in ("this", "order", "spec", "over")
    ):
        raise wrong
    spec = root.args.get("spec")
    if not isinstance(spec, exp.WindowSpec):
        raise wrong
    reader = ExpressionReader(tree, ColumnScope({}))
    try:
        return CallReader(reader, ReductionReader(tree, ColumnScope({}))).frame(spec, order)
    except SpecError as error:
        raise _placed(error, text) from None


def _read_frame(whole: Text, text: Text) -> Tree:
    try:
        return read(whole, "a frame")
    except SpecError as error:
        raise _placed(error, text) from None


def _placed(error: SpecError, text: Text) -> SpecError:
    """Return an error with its place moved into the text."""
    if error.span is None or error.span.column < text.span.column:
        error.span = text.span
    return error

"""The inputs of a pipeline as of a time: the updates that may matter, as matrices, and the place of each in its file.

The rows on which some records can depend have the values of columns that are pushed down from a collection to the inputs below. Rows of an input with
other values can't matter to the records in question. Where a join's one side is restricted and its other side is not, the keys of the rows that the
restricted side can be made of restrict the other: of orders, the orders of the customers in one city. The restriction is sound, not sharp: below a
loop, or a Python function, any row may matter. A window function's value depends on the rows of its partition that its frame reaches.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.driver.prepare import TOGETHER, WholeInputs
from ddcli.engine.lanes import Layout
from ddcli.engine.records import decode_records
from ddcli.errors import InputError
from ddcli.expressions.lower import literal
from ddcli.expressions.nanoseconds import Fine, to_values
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import Column, MapStep
from ddcli.expressions.types import no_column
from ddcli.plan import joins, logical, physical, windows
from ddcli.plan.memo import MemoizedCalls
from ddcli.sources.arrangement_input import SharedReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ddcli.engine.lanes import Matrix
    from ddcli.engine.times import Frontier, Time
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema, Type
    from ddcli.expressions.windows import Frame, FrameBound, WindowCall
    from ddcli.plan.node import Node, Values
    from ddcli.provenance.evaluated_plan import Contents, Numbers
    from ddcli.provenance.slices import Slices
    from ddcli.store.log.rows import Rows

    Mask = np.ndarray[Any, np.dtype[np.bool_]]


MOST_KEYS = 1_000_000
"""The most keys of a join that restrict its other side."""
EXACT = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "string", "date", "bool")
"""Types of keys whose values are equal exactly if the values of their columns in files are."""


class KeySet:
    """The values that a column may have, in place of one value, null too if it is among them: the other side's keys, at any time up to the question's.

    It equals itself alone, in `repr` too.
    """

    def __init__(self, values: pl.Series) -> None:
        self.values = values


class Restrictions:
    """The alternatives that each input's rows may match: a row matters only if it has the values of one. An empty one matches all rows.

    With a `read`, they hold for records that exist at some time, not for the partners that a missing record lacks. `results` restrict
    what functions that remember were given; without them all of that may matter.
    """

    def __init__(
        self,
        node: Node,
        values: Values,
        read: Callable[[logical.Source, Values, str], KeySet | None] | None = None,
        results: Slices | None = None,
    ) -> None:
        self._read, self._results = read, results
        self._keys: dict[tuple[str, str, str], KeySet | None] = {}
        self._restricted: dict[tuple[str, str], list[Values]] = {}
        self.sources: dict[str, list[Values]] = {}
        left: list[tuple[Node, Values]] = [(node, values)]
        seen: set[tuple[str, str]] = set()
        while left:
            below, given = left.pop()
            values = _plain(given)
            at = below.fingerprint, _text(values)
            if at in seen:
                continue
            seen.add(at)
            if isinstance(below, logical.Source | physical.Scan):
                self.sources.setdefault(below.name, []).append(values)
            left += zip(below.inputs, self._restriction(below, values), strict=True)

    def alternatives(self, name: str) -> list[Values] | None:
        """Return the alternatives; a row of an input must match one of them; None if all rows may matter."""
        found = self.sources.get(name, [])
        return None if any(not values for values in found) else found

    def _restriction(self, node: Node, values: Values) -> list[Values]:
        """Return the restriction of each input, with the keys of a join's restricted side for its other side."""
        at = node.fingerprint, _text(values)
        if at not in self._restricted:
            self._restricted[at] = self._restrict(node, values)
        return self._restricted[at]

    def _restrict(self, node: Node, values: Values) -> list[Values]:
        if isinstance(node, MemoizedCalls) and self._results is not None:
            return [self._results.arguments(node, values)]
        found = [_plain(each) for each in node.restriction(values)]
        if self._read is None:
            return found
        if isinstance(node.computed, MapStep):
            (child,) = node.inputs
            for name, expression in node.computed.columns:
                known = self._evaluated(child, found[0], expression) if name in values else None
                if known is not None and known[0].name not in found[0]:
                    taken, results = known
                    has = _has(results.name, values[name], expression.type)
                    found[0] |= {taken.name: KeySet(taken.filter(results.to_frame().select(has).to_series()))}
            return found
        if isinstance(node, logical.Upsert | logical.Snapshots):
            return [self._of_keys(node.inputs[0], node.key, values, found[0])]
        if isinstance(node, windows.Window) and self._results is None:
            (child,) = node.inputs
            given = {name: value for name, value in values.items() if name in child.schema}
            return [self._of_keys(child, node.by, given, found[0])]
        if not isinstance(node, joins.BinaryNode) or not node.read_by:
            return found
        if not node.requires_partner:
            return found
        for here, other in ((0, 1), (1, 0)):
            if found[other] or not found[here]:
                continue
            for own, theirs in zip(node.read_by[here], node.read_by[other], strict=True):
                kinds = node.inputs[here].schema[own].required(), node.inputs[other].schema[theirs].required()
                if kinds[0] == kinds[1] and str(kinds[0]) in EXACT:
                    keys = self._values(node.inputs[here], found[here], own)
                    if keys is not None:  # null is no key
                        found[other] |= {theirs: KeySet(keys.values.drop_nulls()) if keys.values.null_count() else keys}
            break
        return found

    def _of_keys(self, rows: Node, key: Iterable[str], values: Values, found: Values) -> Values:
        """Return the restriction of a node's rows: to all that have the key of one with the `values`."""
        for name in key:
            if name not in found and values and str(rows.schema[name].required()) in EXACT:
                keys = self._values(rows, values, name)
                found |= {name: keys} if keys is not None else {}
        return found

    def _values(self, node: Node, values: Values, column: str) -> KeySet | None:
        """Return values among which are all that the column has in the node's records with the `values`, at any time, null too; None if none are known."""
        at = node.fingerprint, _text(values), column
        if at not in self._keys:
            self._keys[at] = self._sought(node, values, column)
        return self._keys[at]

    def _sought(self, node: Node, values: Values, column: str) -> KeySet | None:
        if isinstance(node, logical.Source):
            assert self._read is not None
            return self._read(node, values, column)
        if isinstance(node, MemoizedCalls) and self._results is not None:
            return self._results.returned(node, values, column)
        if isinstance(
            node, logical.Upsert | logical.Snapshots
        ):  # each record is one row's, not of all rows with its key
            return self._values(node.inputs[0], values, column)
        if isinstance(node, logical.SignedSum):
            parts = [self._values(child, values, column) for child in node.inputs]
            known = [each.values for each in parts if each is not None]
            return KeySet(pl.concat(known).unique()) if len(known) == len(parts) else None
        if isinstance(node.computed, MapStep) and column in (computed := dict(node.computed.columns)):
            evaluated = self._evaluated(node.inputs[0], self._restriction(node, values)[0], computed[column])
            if evaluated is not None:
                return KeySet(evaluated[1].unique())
        origins = node.column_origins().get(column, [])[:1]
        if not origins or (isinstance(node, joins.BinaryNode) and node.is_outer):
            return None
        ((which, own),) = origins
        return self._values(node.inputs[which], self._restriction(node, values)[which], own)

    def _evaluated(self, rows: Node, values: Values, expression: Expression) -> tuple[pl.Series, pl.Series] | None:
        """Return the values of the only column that an expression reads, in records with the `values`, and its results; None if they aren't known."""
        kinds = {own: rows.schema[own] for own in expression.columns()}
        exact = all(str(kind.required()) in EXACT for kind in (*kinds.values(), expression.type))
        if len(kinds) != 1 or isinstance(expression, Column) or not exact:
            return None
        ((own, kind),) = kinds.items()
        keys = self._values(rows, values, own)
        if keys is None:
            return None
        given = keys.values.alias(own).cast(kind.to_polars())
        try:
            found = FusedSteps(kinds, (MapStep((("result", expression),)),)).run(given.to_frame())
        except InputError:
            return None
        return given, found.frame["result"]


def _plain(values: Values) -> Values:
    return {name: value for name, value in values.items() if not isinstance(value, list)}


def _text(values: Values) -> str:
    return repr(sorted(values.items(), key=lambda item: item[0]))


@frozen
class Where:
    """The place of an update: a line of a file of text (`orders.csv:7`), else a file and the row in it, counted from 0; and the runs with which it came and went, of a file that was replaced."""

    file: str
    row: int | None
    came: str | None = None
    went: str | None = None

    def __str__(self) -> str:
        return self.file if self.row is None else f"{self.file}, row {self.row}"


@dataclass
class Inputs(WholeInputs):
    """The opened inputs of a request."""

    lifetimes: Callable[[Inputs, logical.Source, str, Matrix], Mapping[bytes, tuple[str | None, str | None]]] | None = (
        None
    )
    """Returns the runs with which rows of a file, of this path, came and went, if it was replaced; None: no file was."""
    copied: Mapping[str, str] = field(default_factory=dict)
    """The paths of files by the paths of the copies that are read in their places."""
    files_at: int | None = None
    """The time of the files; None: now."""

    def updates(
        self, sources: Mapping[str, logical.Source | physical.Scan], upper: Frontier, restrictions: Restrictions
    ) -> dict[str, Matrix]:
        """Return the updates before a frontier that may matter, of all columns of each source."""
        return {name: self._read(name, source, upper, restrictions) for name, source in sources.items()}

    def keys(self, upper: Frontier) -> Callable[[logical.Source, Values, str], KeySet | None]:
        """Return the reader of the different values of a column before a frontier, null too; it returns None if there are too many."""

        def read(source: logical.Source, values: Values, column: str) -> KeySet | None:
            reader, names = self.readers[source.name], list(dict.fromkeys([*values, column]))
            if isinstance(reader, SharedReader):
                return None
            found: list[pl.Series] = []
            for piece in reader.take(names, None, upper.elements, TOGETHER).slices:
                found.append(_kept(piece.read(), [values] if values else None, source.schema).frame[column].unique())
                if sum(map(len, found)) > MOST_KEYS:
                    return None
            kind = source.schema[column].to_polars()
            return KeySet(pl.concat([pl.Series(column, [], dtype=kind), *found]).unique())

        return read

    def _read(
        self, name: str, source: logical.Source | physical.Scan, upper: Frontier, restrictions: Restrictions
    ) -> Matrix:
        alternatives = restrictions.alternatives(name)
        return self.matrix(name, Layout(source.schema), upper, lambda rows: _kept(rows, alternatives, source.schema))

    def places(self, name: str, source: logical.Source, wanted: Matrix) -> dict[bytes, list[Where]]:
        """Return the places of some updates of an input, by the bytes of their rows: an update that is written twice has two."""
        reader, layout = self.readers[name], Layout(source.schema)
        if isinstance(reader, SharedReader):  # its rows have no place of their own
            return {row.tobytes(): [Where(near(str(reader.listing.root)), None)] for row in wanted}
        found: dict[bytes, list[Where]] = {row.tobytes(): [] for row in wanted}
        width = layout.width
        times = [np.unique(column) for column in wanted[:, width:-1].T]
        files = {reader.listing.path(file): file.path for file in reader.listing.files}
        copied = {str(copy): str(reader.listing.root / key) for key, copy in reader.listing.copies.items()}
        for path, first, rows in reader.parts(layout.names, TOGETHER):
            mask = np.ones(len(rows.diffs), np.bool_)
            for column, values in zip(rows.times.iter_columns(), times, strict=True):
                mask &= np.isin(column.to_numpy(), values)
            chosen = rows.chosen(pl.Series(mask))
            assert chosen.rows is not None
            matrix = chosen.matrix(layout, self.pool)
            near_ones = _alike(matrix, wanted)
            there = [
                (of, row)
                for of, row in zip(chosen.rows.gather(near_ones), matrix[near_ones], strict=True)
                if row.tobytes() in found
            ]
            lives = (
                self.lifetimes(self, source, files[path], np.array([row for _, row in there]))
                if there and self.lifetimes
                else {}
            )
            for of, row in there:
                shown = copied.get(str(path)) or self.copied.get(str(path), str(path))
                place = _where(reader.place(path, first + of), path, shown, first + of)
                came, went = lives.get(row.tobytes(), (place.came, place.went))
                found[row.tobytes()].append(replace(place, came=came, went=went))
        return found

    def show(self, source: logical.Source, matrix: Matrix) -> list[tuple[dict[str, Any], Time, int]]:
        """Return updates as values: the data columns by name, the time, the diff."""
        layout = Layout(source.schema)
        records = decode_records(matrix, layout, self.pool)
        rest = matrix[:, layout.width :].tolist()
        return [
            ({n: v for n, v in zip(layout.names, record, strict=True) if no_column(n) is None}, tuple(time), diff)
            for record, (*time, diff) in zip(records, rest, strict=True)
        ]


def _alike(matrix: Matrix, wanted: Matrix) -> Matrix:
    """Return the numbers of the rows that have in each lane a value of some wanted row: among these are all that equal one."""
    rows = np.arange(len(matrix))
    for lane in range(matrix.shape[1]):
        rows = rows[np.isin(matrix[rows, lane], np.unique(wanted[:, lane]))]
    return rows


def near(place: str) -> str:
    """Return a place relative to the current directory, if it lies below it."""
    path = Path(place)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else place


def _kept(rows: Rows, alternatives: Iterable[dict[str, Any]] | None, schema: Schema) -> Rows:
    """Return the rows that match one of the alternatives; None lets all rows in."""
    if alternatives is None:
        return rows
    each = [
        reduce(and_, (_has(name, value, schema[name]) for name, value in one.items()), pl.lit(value=True))
        for one in alternatives
    ]
    return rows.chosen(rows.frame.select(reduce(or_, each, pl.lit(value=False))).to_series())


def _has(name: str, value: Any, kind: Type) -> pl.Expr:
    """Return the condition that a column has a value, or one of some keys."""
    if isinstance(value, KeySet):
        return pl.col(name).is_in(value.values.implode(), nulls_equal=True)
    return pl.col(name).eq_missing(literal(value, kind) if isinstance(value, Fine) else pl.lit(value))


def _where(place: str, path: Path, shown: str, row: int) -> Where:
    """Return the file and line of a row, by the reader's `place`; a copy of a file is `shown` as that file."""
    return Where(near(place.replace(str(path), shown, 1)), row if place == str(path) else None)


RANKS = ("row_number", "rank", "dense_rank")
"""Functions whose value depends on the rows up to the current one and its peers."""
ROW = "\0row"
"""The name of the column with a row's number, beside a record's own columns."""


def in_reach(node: windows.Window, group: Contents, values: Mapping[str, Any]) -> tuple[Numbers, int]:
    """Return the numbers of a partition's records, the nearest to the one with these `values` first, and how many of these can affect it.

    The order is the window's: a number of rows is one of rows of multiplicity 1. Of a frame by values or groups of peers, all rows
    between its bounds can, those that it excludes, too.
    """
    if not len(group):
        return np.zeros(0, np.int64), 0
    frame = group.frame().with_columns(pl.Series(ROW, np.arange(len(group))))
    keys = [name for name, _ in node.order_by]
    descends = [descending for _, descending in node.order_by]
    if keys:  # null is the largest value; ties stay in the order of lanes
        frame = frame.sort(keys, descending=descends, nulls_last=[not each for each in descends], maintain_order=True)
    order = frame[ROW].to_numpy()
    counts = np.maximum(group.matrix[order, -1], 0)
    ends = np.cumsum(counts)
    starts = ends - counts
    own = np.flatnonzero(np.isin(order, group.numbers(values)))
    if not len(own):
        return order, len(order)
    at = int(own[0])
    distances = np.where(starts < starts[at], starts[at] - ends + 1, starts - ends[at] + 1)
    distances[at] = 0
    nearest = np.lexsort([np.arange(len(order)) > at, np.abs(distances)])
    ordered = _Ordered(node, frame, np.where(np.arange(len(order)) < at, -distances, distances), at)
    reached = np.logical_or.reduce([ordered.seen(call) for _, call in node.calls]) & (counts > 0)
    reached[at] = True
    chosen = [each for each in nearest.tolist() if reached[each]]
    left = [each for each in nearest.tolist() if not reached[each]]
    return order[np.array(chosen + left, np.int64)], len(chosen)


class _Ordered:
    """The rows of a partition in the window's order, as the row `at` sees them: `distances` are the rows between, negative before it."""

    def __init__(self, node: windows.Window, frame: pl.DataFrame, distances: Numbers, at: int) -> None:
        self.node, self.frame, self.distances, self.at = node, frame, distances, at
        differs = [frame[name].ne_missing(frame[name].shift()).to_numpy() for name, _ in node.order_by]
        groups = np.cumsum(np.logical_or.reduce(differs)) if differs else np.zeros(len(frame), np.int64)
        self.groups: Numbers = groups - groups[at]
        self.everything = np.ones(len(frame), np.bool_)

    def seen(self, call: WindowCall) -> Mask:
        """Return the rows that a call's value can depend on."""
        if call.function in ("lag", "lead"):
            backwards = self.distances if call.function == "lag" else -self.distances
            return (backwards <= 0) & (call.ignores_nulls | (backwards >= -call.number))
        if call.function in RANKS:
            return self.groups <= 0
        if call.frame is None:
            return self.everything
        return self._within(call.frame, call.frame.start, -1) & self._within(call.frame, call.frame.end, 1)

    def _within(self, frame: Frame, bound: FrameBound, side: int) -> Mask:
        """Return the rows at or after the start of a frame (`side` -1), or at or before its end (1), and those that these are counted by."""
        if bound.direction and bound.offset is None:
            return self.everything
        if frame.unit == "range" and bound.offset is not None:
            return self._within_values(bound, side)
        far = int(bound.offset.value) if bound.offset is not None and bound.direction == side else 0  # type: ignore[arg-type]
        return (self.distances if frame.unit == "rows" else self.groups) * side <= far

    def _within_values(self, bound: FrameBound, side: int) -> Mask:
        """Return the rows on the inner side of a value: the current row's, moved by the bound's offset. Null has null alone near it."""
        assert bound.offset is not None
        name, descending = self.node.order_by[-1]
        values = to_values(self.frame[name], self.node.schema[name])
        mine: Any = values[self.at]
        if mine is None:
            return self.groups * side <= 0
        rising = -1 if descending else 1
        upwards = side * rising > 0
        if bound.by_calendar:
            keys, limits = bound.limits(self.frame.select(name), name, self.node.schema[name], descending=descending)
            limit = limits.slice(self.at, 1)
            if limit.null_count():
                return self.everything
            seen: Mask = ((keys <= limit) if upwards else (keys >= limit)).fill_null(value=False).to_numpy()
            return seen
        far: Any = bound.offset.value
        if bound.offset.type.kind == "float32":
            mine, far = np.float32(mine), np.float32(far)
        try:
            with np.errstate(over="ignore"):  # no value is beyond an infinity
                limit = mine + far if bound.direction * rising > 0 else mine - far
        except (OverflowError, TypeError):  # beyond all values of the type, or none that Python can move
            return self.everything
        return np.array([value is not None and (value <= limit if upwards else value >= limit) for value in values])

"""Collections: multisets of records that change with time. Methods return new ones, and are named like a pipeline file's operators."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from ddcli.api.functions import (
    HERE,
    assign,
    expressions_of,
    filtering,
    flat_mapping,
    joining,
    keys,
    mapping,
    needed,
    orders,
    pairs,
    parameter_name,
    reducing,
    text,
    texts,
)
from ddcli.api.traces import Probe, TraceHandle
from ddcli.errors import UsageError, placing
from ddcli.expressions.types import in_zone
from ddcli.plan import logical
from ddcli.plan.operators.table import applied
from ddcli.plan.relation import Operands
from ddcli.spec import model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.api.dataflow import Dataflow
    from ddcli.api.functions import Columns
    from ddcli.api.traces import KeptTraces, Output
    from ddcli.expressions.types import Schema
    from ddcli.plan.relation import Relation

    How = Literal["inner", "left", "right", "full"]


class Collection:
    """A multiset of records that changes with time. Methods return new collections, and are named like a pipeline's operators."""

    def __init__(self, dataflow: Dataflow, relation: Relation):
        self.dataflow = dataflow
        self._relation = relation

    @property
    def relation(self) -> Relation:
        """The plan's node of the collection."""
        return self._relation

    @property
    def schema(self) -> Schema:
        """The columns, in order, with their types."""
        return self.relation.schema

    # --- record by record -----------------------------------------------------------------------------------------

    def map(
        self,
        to: Callable[..., Any] | Mapping[str, str] | None = None,
        /,
        *,
        columns: Columns | None = None,
        batch: bool = False,
        **expressions: str,
    ) -> Collection:
        """Return exactly these columns, each by an expression; or the result of a function for each record, of the types `columns`.

        The function receives a tuple with named fields, and returns a tuple or a dictionary. With `batch` it receives a
        DataFrame with an additional column `row`, and returns one whose `row` has the row that each of its rows came from.

        >>> from ddcli import Dataflow
        >>> edges = Dataflow().input("edges", {"src": "int64", "dst": "int64"})
        >>> edges.map(src="dst", dst="src").schema == edges.map(lambda e: (e[1], e["src"]), columns=edges.schema).schema
        True
        """
        if to is not None and not isinstance(to, Mapping):
            given = mapping(to, self.schema, needed(columns, "map"), batch=batch)
            return self._apply("map", function=given)
        return self._apply("map", columns=assign(expressions_of(to, expressions, columns, "map")))

    def extend(self, to: Mapping[str, str] | None = None, /, **expressions: str) -> Collection:
        """Add or replace columns."""
        return self._apply("extend", columns=assign(expressions_of(to, expressions, None, "extend")))

    def project(self, *columns: str) -> Collection:
        """Keep these columns, in this order."""
        return self._apply("project", columns=texts(columns))

    def drop(self, *columns: str) -> Collection:
        """Leave these columns out."""
        return self._apply("drop", columns=texts(columns))

    def rename(self, **columns: str) -> Collection:
        """Rename columns, old=new."""
        return self._apply("rename", columns=assign(columns))

    def filter(self, condition: str | Callable[..., Any]) -> Collection:
        """Keep the records for which the condition is true: an expression, or a function of the record."""
        if isinstance(condition, str):
            return self._apply("filter", condition=text(condition))
        function = filtering(condition, self.schema)
        kept = self._apply("filter", function=function)
        return Collection(self.dataflow, self.relation.over(kept.relation.node))

    def sample(self, by: Sequence[str], percent: float) -> Collection:
        """Keep the records of a share of the values of `by`, chosen by their hash: the same values in each program and each collection.

        A smaller share of the same columns is a part of a greater one.

        >>> from ddcli import Dataflow
        >>> df = Dataflow()
        >>> orders = df.input("orders", {"id": "int64", "customer": "int64"})
        >>> kept = orders.sample(["customer"], percent=80).output()
        >>> for order in [(1, 1), (2, 2), (3, 3), (4, 2)]:
        ...     orders.insert(order)
        >>> orders.close()
        >>> df.step_while(lambda: True)
        >>> sorted(record for record, _, _ in kept.updates())
        [(1, 1), (2, 2), (4, 2)]
        """
        if not by or not 0 < percent <= 100:
            raise UsageError("`sample` takes columns, and more than 0 and at most 100 percent of their values")
        return self._apply("sample", by=texts(by), percent=text(format(Decimal(str(percent)), "f")))

    def flat_map(
        self,
        to: Callable[..., Any] | Mapping[str, str] | None = None,
        /,
        *,
        columns: Columns | None = None,
        batch: bool = False,
        **expressions: str,
    ) -> Collection:
        """Return a record for each element of a table expression, `word="unnest(split(text, ' '))"`, in a column beside the others.

        With a function, return all records that it returns for each record; see `map`.
        """
        if to is not None and not isinstance(to, Mapping):
            given = flat_mapping(to, self.schema, needed(columns, "flat_map"), batch=batch)
            return self._apply("flat_map", function=given)
        ((column, expression), *more) = assign(expressions_of(to, expressions, columns, "flat_map"))
        if more:
            raise UsageError("`flat_map` takes one expression", hint="write a `flat_map` for each")
        return self._apply("flat_map", column=column, expression=expression)

    def join_function(self, function: Callable[..., Any], columns: Columns, *, batch: bool = False) -> Collection:
        """Return the updates that a function returns for each record: any number of (record, time, diff).

        Each exists from `time` on, or from the record's own time if that is later, with the record's multiplicity times `diff`; None as the time is no delay.
        `map`, `filter`, `flat_map`, `explode` and `temporal_filter` are instances of it.
        """
        given = joining(function, self.schema, columns, batch=batch)
        return self._apply("join_function", function=given)

    def temporal_filter(self, from_: str | None = None, until: str | None = None) -> Collection:
        """Keep each record while `from_ <= now < until`, two expressions of the type of time; now is the time at which the collection is read."""
        lower, upper = (None if bound is None else text(bound) for bound in (from_, until))
        if lower is upper:
            raise UsageError("`temporal_filter` takes at least one of `from_` and `until`")
        return self._apply("temporal_filter", lower=lower, upper=upper)

    def explode(self, weight: str) -> Collection:
        """Multiply each diff by an integer expression."""
        return self._apply("explode", weight=text(weight))

    # --- all together ---------------------------------------------------------------------------------------------

    def negate(self) -> Collection:
        """Change the sign of every diff."""
        return self._apply("negate")

    def concat(self, *others: Collection) -> Collection:
        """Add the updates of other collections."""
        return self._apply("concat", *others)

    def consolidate(self) -> Collection:
        """Return the collection with at most one update for a record and time."""
        return self._apply("consolidate")

    # --- arrangements ---------------------------------------------------------------------------------------------

    def arrange_by_key(self, *columns: str) -> Arranged:
        """Return the collection indexed by columns. The index is kept from the first step on, for every join or reduction by them.

        The key is the columns in the order of their names. Outside of loops `trace` returns handles to read it by. A join leaves
        nulls out of its keys: one by a column that may be null has an arrangement of its own.
        """
        if not columns:
            raise UsageError("`arrange_by_key` takes the columns of the key", hint="`arrange_by_self()` takes all")
        return self._arranged(sorted(columns))

    def arrange_by_self(self) -> Arranged:
        """Return the collection indexed by whole records, for operators that count or look up records."""
        return self._arranged(list(self.schema))

    def _arranged(self, key: Sequence[str]) -> Arranged:
        arranged = self._apply("arrange", by=texts(key))
        found: Arranged = self.dataflow.arranged(arranged.relation)
        return found

    # --- by key ---------------------------------------------------------------------------------------------------

    def join(
        self,
        other: Collection,
        on: Sequence[str] | Mapping[str, str],
        how: How = "inner",
        name: str | None = None,
    ) -> Collection:
        """Join by equal columns; `name` qualifies the other side's columns in expressions."""
        return self._apply("join", other, on=pairs(on), how=how, name=text(name) if name else None)

    def asof_join(
        self,
        other: Collection,
        at: str | Mapping[str, str],
        on: Sequence[str] | Mapping[str, str] = (),
        how: Literal["inner", "left"] = "inner",
        name: str | None = None,
        *,
        direction: Literal["backward", "forward"] = "backward",
        strict: bool = False,
    ) -> Collection:
        """Join each record with the nearest of `other` by the column `at`, of those with equal columns `on`: the last at or before it.

        With the direction `forward` that is the first at or after it; `strict` leaves equal values out.

        >>> from ddcli import Dataflow
        >>> df = Dataflow()
        >>> trades = df.input("trades", {"symbol": "string", "at": "int64"})
        >>> quotes = df.input("quotes", {"symbol": "string", "at": "int64", "price": "int64"})
        >>> list(trades.asof_join(quotes, "at", on=["symbol"], name="quote").schema)
        ['symbol', 'at', 'quote.at', 'price']
        """
        compared = pairs([at] if isinstance(at, str) else at)
        if len(compared) != 1:
            raise UsageError(
                f"`asof_join` compares one pair of columns, not {len(compared)}", hint="give the others as `on`"
            )
        if how not in ("inner", "left"):
            raise UsageError(f"`how` of `asof_join` is inner or left, not {how!r}")
        if direction not in ("backward", "forward"):
            raise UsageError(f"the direction of `asof_join` is backward or forward, not {direction!r}")
        return self._apply(
            "asof_join",
            other,
            at=compared,
            on=pairs(on),
            how=how,
            direction=direction,
            strict=strict,
            name=text(name) if name else None,
        )

    def semijoin(self, other: Collection, on: Sequence[str] | Mapping[str, str]) -> Collection:
        """Keep the records that have a match in `other`."""
        return self._apply("semijoin", other, on=pairs(on))

    def antijoin(self, other: Collection, on: Sequence[str] | Mapping[str, str]) -> Collection:
        """Keep the records that have no match in `other`."""
        return self._apply("antijoin", other, on=pairs(on))

    def reduce(
        self,
        by: Sequence[str] | Mapping[str, str],
        to: Callable[..., Any] | Mapping[str, str] | None = None,
        *,
        columns: Columns | None = None,
        values: Sequence[str] | None = None,
        **aggregates: str,
    ) -> Collection:
        """Aggregate each group: the columns are `by`, then these, each by an expression of aggregates.

        Or `by` and the result of a function for each group, of the types `columns`: it receives (key, [(value, count), ...]) and returns
        [(value, count), ...], all tuples; a value has the columns `values`, by default all that are not in `by`.
        """
        if to is not None and not isinstance(to, Mapping):
            function = reducing(to, needed(columns, "reduce"))
            chosen = None if values is None else texts(values)
            return self._apply("reduce", by=keys(by), function=function, values=chosen)
        given = expressions_of(to, aggregates, columns or values, "reduce")
        return self._apply("reduce", by=keys(by), columns=assign(given))

    def count(self, by: Sequence[str] | None = None, name: str = "count") -> Collection:
        """Return each record with its multiplicity in a column, or, with `by`, the number of records of each group."""
        return self._apply("count", name=name, by=None if by is None else texts(by))

    def distinct(self) -> Collection:
        """Return each record whose multiplicity is positive, once."""
        return self._apply("distinct")

    def threshold(self, multiplicity: str) -> Collection:
        """Return each record with the multiplicity that an expression over `count` returns."""
        return self._apply("threshold", multiplicity=text(multiplicity))

    def top_k(self, k: int, order_by: Sequence[str], by: Sequence[str] = ()) -> Collection:
        """Keep the first `k` records of each group; an order is a column or expression, perhaps with ` desc`."""
        return self._apply("top_k", k=k, order_by=orders(order_by), by=texts(by))

    def window(
        self,
        columns: Mapping[str, str] | None = None,
        /,
        *,
        by: Sequence[str] = (),
        order_by: Sequence[str] = (),
        frame: str | None = None,
        **named: str,
    ) -> Collection:
        """Add columns computed from the rows around each row: in its partition `by`, in an order, within a frame.

        >>> from ddcli import Dataflow
        >>> visits = Dataflow().input("visits", {"user": "int64", "at": "int64"})
        >>> list(visits.window(by=["user"], order_by=["at"], n="row_number()", pause="at - lag(at)").schema)
        ['user', 'at', 'n', 'pause']
        """
        given = assign(expressions_of(columns, named, None, "window"))
        bounds = None if frame is None else text(frame)
        order = orders(order_by)
        return self._apply("window", columns=given, by=texts(by), order_by=order, frame=bounds)

    # --- loops ----------------------------------------------------------------------------------------------------

    def iterate(
        self, body: Callable[[Collection], Any], *, max_rounds: int | None = None, guard: int = model.GUARD
    ) -> Any:
        """Return the collection after `body` has been applied again and again until nothing changes.

        The body receives the loop's variable and returns its collection in the next round. Or it returns a tuple: that, and other
        collections that leave the loop; then a tuple is returned. See `Dataflow.iterate` for the rest.

        >>> from ddcli import Dataflow
        >>> df = Dataflow()
        >>> links = df.input("links", {"src": "int64", "dst": "int64"})
        >>> reached = links.iterate(
        ...     lambda far: far.join(links, on={"dst": "src"}, name="next").map(src="src", dst="next.dst").concat(links).distinct()
        ... ).output()
        >>> for link in [(1, 2), (2, 3)]:
        ...     links.insert(link)
        >>> links.close()
        >>> df.step_while(lambda: True)
        >>> sorted(reached.updates())
        [((1, 2), 0, 1), ((1, 3), 0, 1), ((2, 3), 0, 1)]
        """
        return self.dataflow.iterate({parameter_name(body): self}, body, max_rounds=max_rounds, guard=guard)

    def enter(self, at: str | None = None) -> Collection:
        """Return the collection inside of the loop whose body is being written, where it exists in every round.

        A body may read outer collections directly; this is for `at`, an integer expression: each record exists from that round on.
        """
        if self.dataflow.surroundings.loop is None:
            raise UsageError("`enter` is outside of a loop", hint="call it in the body of one")
        return self if at is None else self._apply("enter", at=text(at))

    def leave(self) -> Collection:
        """Return the collection after the last round of the `with df.loop()` around it; it can be read after the block."""
        left: Collection = self.dataflow.leave(self)
        return left

    def sql(self, query: str, **others: Collection) -> Collection:
        """Return the result of an SQL query over this collection, named `self`, and others, under their keywords.

        >>> from ddcli import Dataflow
        >>> edges = Dataflow().input("edges", {"src": "int64", "dst": "int64"})
        >>> list(edges.sql("select src, count(*) as degree from self group by src").schema)
        ['src', 'degree']
        """
        found: Collection = self.dataflow.sql(query, self=self, **others)
        return found

    # --- looking --------------------------------------------------------------------------------------------------

    def inspect(self, show: str | Callable[[tuple[Any, Any, int]], Any] = "") -> Collection:
        """Return the collection unchanged, and show each of its updates, (record, time, diff): print it under a label, or call a function.

        In a loop the time is a tuple that ends with the loops' rounds.
        """
        label = self.dataflow.shown(show, len(self.schema))
        passed = self._apply("inspect", label=text(label))
        self.dataflow.watch(label, passed.relation)
        return passed

    def output(self) -> Output:
        """Return a handle from which the collection's updates can be read."""
        found: Output = self.dataflow.output_of(self.relation)
        return found

    def probe(self) -> Probe:
        """Return a handle that reports which times can still change."""
        return Probe(self.dataflow)

    def _apply(self, name: str, /, *others: Collection, **arguments: Any) -> Collection:
        """Return the result of an operator of the table over this collection and others, given the arguments of its constructor."""
        if any(other.dataflow is not self.dataflow for other in others):
            raise UsageError(f"`{name}` is given a collection of another dataflow")
        given = tuple(other.relation for other in others)
        operands = Operands(self.relation, HERE, self.dataflow.surroundings, given, ("right",) * len(given))
        with in_zone(self.dataflow.timezone), placing(name, HERE):
            return Collection(self.dataflow, applied(name, operands, arguments, name))


class Arranged(Collection):
    """A collection indexed by `key`. Joins and reductions by that key, which is also their default, read this one arrangement."""

    def __init__(
        self,
        dataflow: Dataflow,
        relation: Relation,
        key: tuple[str, ...],
        kept: KeptTraces | None,
        conditions: tuple[str, ...] = (),
    ):
        super().__init__(dataflow, relation)
        self.key = key
        self.kept = kept
        self._conditions = conditions

    def as_collection(self) -> Collection:
        """Return the collection by itself."""
        return Collection(self.dataflow, self.relation)

    def filter(self, condition: str | Callable[..., Any]) -> Collection:
        """Keep the records for which the condition is true.

        With an expression the result is arranged, too, without another arrangement: a join by the key reads this one, and evaluates
        the condition for the records that it finds.
        """
        found = super().filter(condition)
        if not isinstance(condition, str):
            return found
        node = self.relation.node
        if not isinstance(node, logical.Arrange | logical.FilterOnRead):
            node = logical.Arrange((node,), node.schema, self.key)
        asked = found.relation.node
        assert isinstance(asked, logical.Apply)
        relation = found.relation.over(logical.FilterOnRead((node,), asked.schema, asked.step))
        return Arranged(self.dataflow, relation, self.key, self.kept, (*self._conditions, condition))

    def join(
        self,
        other: Collection,
        on: Sequence[str] | Mapping[str, str] | None = None,
        how: How = "inner",
        name: str | None = None,
    ) -> Collection:
        """Join, by default by the keys of both sides, or the columns of the same names in `other`."""
        if on is None:
            theirs = other.key if isinstance(other, Arranged) else self.key
            if len(theirs) != len(self.key):
                raise UsageError(
                    f"the sides are arranged by {', '.join(self.key)} and by {', '.join(theirs)}",
                    hint="name the columns in `on`",
                )
            on = dict(zip(self.key, theirs, strict=True))
        return super().join(other, on, how, name)

    def reduce(
        self,
        by: Sequence[str] | Mapping[str, str] | None = None,
        to: Callable[..., Any] | Mapping[str, str] | None = None,
        *,
        columns: Columns | None = None,
        values: Sequence[str] | None = None,
        **aggregates: str,
    ) -> Collection:
        """Aggregate each group, by the arrangement's key unless `by` names other columns."""
        by = self.key if by is None else by
        return super().reduce(by, to, columns=columns, values=values, **aggregates)

    def trace(self) -> TraceHandle:
        """Return a handle on the arrangement: from its first time on, or, once it has stepped, from the first time that can still be read."""
        if self.kept is None:
            raise UsageError(
                "this arrangement is kept elsewhere: in a loop, or by the dataflow that it is imported from",
                hint="take the handle there, where `arrange_by_key` was called outside of a loop",
            )
        shards = self.kept.shards
        handle = TraceHandle(self.kept, shards[0].since if shards else self.dataflow.frontier)
        for condition in self._conditions:
            with handle:
                handle = handle.filter(condition)
        return handle

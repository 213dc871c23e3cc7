"""Collections: multisets of records that change with time. Methods give new ones, named as the operators of a pipeline file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import Text, UsageError
from ddcli.library.outputs import Probe
from ddcli.library.words import assign, keys, orders, pairs, place, text, texts
from ddcli.plan.operators import apply_operators
from ddcli.spec import model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.types import Schema
    from ddcli.library.dataflow import Dataflow
    from ddcli.library.outputs import Output
    from ddcli.plan.relation import Relation


class Collection:
    """A multiset of records that changes with time. Methods give new collections, named as the operators of a pipeline."""

    def __init__(self, dataflow: Dataflow, relation: Relation):
        self.dataflow = dataflow
        self.relation = relation

    @property
    def schema(self) -> Schema:
        """The columns, in order, with their types."""
        return self.relation.schema

    def map(self, **columns: str) -> Collection:
        """Give exactly these columns, each by an expression."""
        return self._apply(model.Map(**place("map"), columns=assign(columns)))

    def extend(self, **columns: str) -> Collection:
        """Add or replace columns."""
        return self._apply(model.Extend(**place("extend"), columns=assign(columns)))

    def project(self, *columns: str) -> Collection:
        """Keep these columns, in this order."""
        return self._apply(model.Project(**place("project"), columns=texts(columns)))

    def drop(self, *columns: str) -> Collection:
        """Leave these columns out."""
        return self._apply(model.Drop(**place("drop"), columns=texts(columns)))

    def rename(self, **columns: str) -> Collection:
        """Rename columns, old=new."""
        return self._apply(model.Rename(**place("rename"), columns=assign(columns)))

    def filter(self, condition: str) -> Collection:
        """Keep the records for which the condition is true."""
        return self._apply(model.Filter(**place("filter"), condition=text(condition)))

    def flat_map(self, column: str, expression: str) -> Collection:
        """Give one record for each element of a table expression, `unnest(...)` or `generate_series(...)`, in `column`."""
        return self._apply(model.FlatMap(**place("flat_map"), column=text(column), expression=text(expression)))

    def explode(self, weight: str) -> Collection:
        """Multiply each diff by an integer expression."""
        return self._apply(model.Explode(**place("explode"), weight=text(weight)))

    def negate(self) -> Collection:
        """Change the sign of every diff."""
        return self._apply(model.Negate(**place("negate")))

    def concat(self, *others: Collection) -> Collection:
        """Add the updates of other collections."""
        names = texts(str(at) for at, _ in enumerate(others))
        return self._apply(model.Concat(**place("concat"), sources=names), *others)

    def consolidate(self) -> Collection:
        """Give at most one update for a record and time."""
        return self._apply(model.Consolidate(**place("consolidate")))

    def join(
        self,
        other: Collection,
        on: Sequence[str] | Mapping[str, str],
        how: model.How = "inner",
        name: str | None = None,
    ) -> Collection:
        """Join by equal columns; `name` qualifies the other side's columns in expressions."""
        operator = model.Join(**place("join"), right=text("0"), on=pairs(on), how=how, name=text(name or "right"))
        return self._apply(operator, other)

    def semijoin(self, other: Collection, on: Sequence[str] | Mapping[str, str]) -> Collection:
        """Keep the records that have a match in `other`."""
        return self._apply(model.Semijoin(**place("semijoin"), right=text("0"), on=pairs(on)), other)

    def antijoin(self, other: Collection, on: Sequence[str] | Mapping[str, str]) -> Collection:
        """Keep the records that have no match in `other`."""
        return self._apply(model.Antijoin(**place("antijoin"), right=text("0"), on=pairs(on)), other)

    def reduce(self, by: Sequence[str] | Mapping[str, str], **columns: str) -> Collection:
        """Aggregate each group: the columns are `by`, then these."""
        return self._apply(model.Reduce(**place("reduce"), by=keys(by), columns=assign(columns)))

    def count(self, by: Sequence[str] | None = None, name: str = "count") -> Collection:
        """Count how often each record occurs, or, with `by`, the records of each group."""
        return self._apply(model.Count(**place("count"), name=name, by=None if by is None else texts(by)))

    def distinct(self) -> Collection:
        """Give each record that is present once."""
        return self._apply(model.Distinct(**place("distinct")))

    def threshold(self, multiplicity: str) -> Collection:
        """Give each record the multiplicity that an expression over `count` says."""
        return self._apply(model.Threshold(**place("threshold"), multiplicity=text(multiplicity)))

    def top_k(self, k: int, order_by: Sequence[str], by: Sequence[str] = ()) -> Collection:
        """Keep the first `k` records of each group; an order is a column or expression, perhaps with ` desc`."""
        return self._apply(model.TopK(**place("top_k"), k=k, order_by=orders(order_by), by=texts(by)))

    def output(self) -> Output:
        """Return a handle from which the collection's updates can be read."""
        return self.dataflow.output_of(self.relation)

    def probe(self) -> Probe:
        """Return a handle that says which times can still change."""
        return Probe(self.dataflow)

    def _apply(self, operator: model.Operator, *others: Collection) -> Collection:
        if any(other.dataflow is not self.dataflow for other in others):
            raise UsageError(f"`{operator.place}` is given a collection of another dataflow")
        relations = {str(at): other.relation for at, other in enumerate(others)}

        def other(source: model.Source) -> Relation:
            assert isinstance(source, Text), "operators made here refer to others by name"
            return relations[source.value]

        relation = apply_operators(self.relation, [operator], other, self.dataflow.surroundings)
        return Collection(self.dataflow, relation)

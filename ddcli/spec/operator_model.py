"""The operators of a pipeline file, as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ddcli.dataclass import dataclass, frozen

if TYPE_CHECKING:
    from ddcli.errors import Span, Text
    from ddcli.expressions.types import Type


Columns = dict[str, tuple["Text", "Type"]]
"""Declared columns by name, in order; the text is the name where it is written."""


Assignments = tuple[tuple["Text", "Text"], ...]
"""(column, expression) in order; columns are distinct."""


How = Literal["inner", "left", "right", "full"]


Direction = Literal["backward", "forward"]


@frozen
class GroupColumn:
    """A grouping column: the `expression` that computes it, or None for the column of that very name."""

    name: Text
    expression: Text | None = None


@frozen
class Order:
    """A sort key. `expression` is the text without its `asc` or `desc`, and `nulls first` or `nulls last`."""

    expression: Text
    descending: bool = False
    nulls_first: bool = False


@frozen
class PythonFunction:
    """A Python function `module:function` and the columns it returns. By record, or a batch (a DataFrame) at a time."""

    name: Text
    columns: Columns
    batch: bool = False


@frozen
class Inline:
    """A collection without a name, written where another refers to it. `place` is its path in the file."""

    sources: tuple[Source, ...]
    apply: tuple[Operator, ...]
    span: Span
    place: str


Source: TypeAlias = "Text | Inline"
"""The name of an input or collection (known to exist), or a collection written in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One step of `apply`. `place` is its path, `collections.big.apply[2].join`; `span` is its name in the file."""

    span: Span
    place: str


@frozen
class Map(Operator):
    """Compute exactly these columns."""

    columns: Assignments


@frozen
class PythonMap(Operator):
    """Turn each record into one record of the function's columns."""

    function: PythonFunction


@frozen
class Extend(Operator):
    """Add or replace columns."""

    columns: Assignments


@frozen
class Project(Operator):
    """Keep these columns, in this order."""

    columns: tuple[Text, ...]


@frozen
class Drop(Operator):
    """Leave these columns out."""

    columns: tuple[Text, ...]


@frozen
class Rename(Operator):
    """Rename columns: pairs of (old, new)."""

    columns: tuple[tuple[Text, Text], ...]


@frozen
class Filter(Operator):
    """Keep the records for which the condition is true."""

    condition: Text


@frozen
class FlatMap(Operator):
    """Turn each record into one for each element of a table expression (`unnest(...)`, `generate_series(...)`), with the element in `column`."""

    column: Text
    expression: Text


@frozen
class PythonFlatMap(Operator):
    """Turn each record into any number of records of the function's columns."""

    function: PythonFunction


@frozen
class Explode(Operator):
    """Multiply the diff by an integer expression; columns stay as they are."""

    weight: Text


@frozen
class Negate(Operator):
    """Change the sign of every diff."""


@frozen
class Concat(Operator):
    """Add the updates of other collections."""

    sources: tuple[Source, ...]


@frozen
class Consolidate(Operator):
    """Sum the diffs of equal updates."""


@frozen
class Join(Operator):
    """Join with `right` where the pairs of columns `on` (left, right) are equal; `name` qualifies the right side."""

    right: Source
    on: tuple[tuple[Text, Text], ...]
    how: How = "inner"
    name: Text | None = None


@frozen
class AsofJoin(Operator):
    """Join each record with the nearest of `right` by the pair of columns `at`, of those where the pairs `on` are equal."""

    right: Source
    at: tuple[tuple[Text, Text], ...]
    on: tuple[tuple[Text, Text], ...] = ()
    how: Literal["inner", "left"] = "inner"
    direction: Direction = "backward"
    strict: bool = False
    name: Text | None = None


@frozen
class Semijoin(Operator):
    """Keep the records that have a match in `right`."""

    right: Source
    on: tuple[tuple[Text, Text], ...]


@frozen
class Antijoin(Operator):
    """Keep the records that have no match in `right`."""

    right: Source
    on: tuple[tuple[Text, Text], ...]


@frozen
class Reduce(Operator):
    """Aggregate each group: the columns are `by` and then `columns`. Empty `by`: the collection is one group."""

    by: tuple[GroupColumn, ...]
    columns: Assignments


@frozen
class PythonReduce(Operator):
    """Reduce each group by a function. `values` are the columns it is given; None is all that are not in `by`."""

    by: tuple[GroupColumn, ...]
    function: PythonFunction
    values: tuple[Text, ...] | None = None


@frozen
class Count(Operator):
    """Count records. `by` None: how often each distinct record occurs, beside it; else: records in each group."""

    name: str = "count"
    by: tuple[Text, ...] | None = None


@frozen
class Distinct(Operator):
    """Keep each record once whose multiplicity is positive."""


@frozen
class Threshold(Operator):
    """Set each record's multiplicity to the value of an expression over `count`, its multiplicity now."""

    multiplicity: Text


@frozen
class TopK(Operator):
    """Keep the first `k` records of each group in an order. Empty `by`: the collection is one group."""

    k: int
    order_by: tuple[Order, ...]
    by: tuple[Text, ...] = ()


@frozen
class Window(Operator):
    """Add columns that see the rows around each row, in its partition `by` and an order. `frame`: which of them aggregates see."""

    columns: Assignments
    by: tuple[Text, ...] = ()
    order_by: tuple[Order, ...] = ()
    frame: Text | None = None


@frozen
class TemporalFilter(Operator):
    """Keep each record while `lower` <= now < `upper`, at least one of them given; now is the time one reads at."""

    lower: Text | None = None
    upper: Text | None = None


@frozen
class JoinFunction(Operator):
    """Turn each record into records of the function's columns, each with a time from which on it exists, and a diff."""

    function: PythonFunction


@frozen
class Enter(Operator):
    """Let each record enter the loop around it from the round on that the integer expression `at` returns."""

    at: Text


@frozen
class Arrange(Operator):
    """Index by columns, for all joins and reductions by these; under the name `export`, for other pipelines too."""

    by: tuple[Text, ...]
    export: Text | None = None


@frozen
class Inspect(Operator):
    """Show the updates that pass, under a label."""

    label: Text

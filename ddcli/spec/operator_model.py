"""The operators of a pipeline file and their arguments, as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ddcli.dataclass import frozen

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
    """A Python function `module:function` and the columns it returns. By record, or a batch (a DataFrame) at a time.

    With a `memo`, the name of its memory, it remembers its results; a run calls it for at most `calls` records.
    """

    name: Text
    columns: Columns
    batch: bool = False
    memo: str | None = None
    calls: int | None = None


@frozen
class Inline:
    """A collection without a name, written where another refers to it. `place` is its path in the file."""

    sources: tuple[Source, ...]
    apply: tuple[Operator, ...]
    span: Span
    place: str


Source: TypeAlias = "Text | Inline"
"""The name of an input or collection (known to exist), or a collection written in place."""


@frozen
class Operator:
    """One item of `apply`: an operator of the table `plan/operators`, its further inputs, and the arguments of its constructor.

    `place` is its path, `collections.big.apply[2].join`; `span` is its name in the file.
    """

    name: str
    arguments: dict[str, Any]
    span: Span
    place: str
    inputs: tuple[Source, ...] = ()

"""The linear steps that a stage fuses, and the state of a frame between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ddcli.dataclass import dataclass
from ddcli.expressions.tree import Column

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import polars as pl

    from ddcli.expressions.tree import Expression, TableCall
    from ddcli.expressions.types import Type

    Names = Iterable[str]
    State = tuple[pl.DataFrame, np.ndarray | None, np.ndarray | None]
    """The frame so far, the input row of each of its rows, the factors of their diffs (None as in StageResult)."""


@dataclass(frozen=True)
class FilterStep:
    """Keep the rows where the condition is true (not null)."""

    kind: ClassVar[str] = "filter"
    condition: Expression

    def origins(self, given: Names) -> dict[str, str]:
        """Return each column of the result, from the columns `given`, that has the value of one of these, and that one."""
        return {name: name for name in given}


@dataclass(frozen=True)
class MapStep:
    """Compute exactly these columns."""

    columns: tuple[tuple[str, Expression], ...]

    @property
    def kind(self) -> str:
        """The word for the step: "project" if it computes nothing."""
        return "project" if all(isinstance(expression, Column) for _, expression in self.columns) else "map"

    def origins(self, given: Names) -> dict[str, str]:
        return {name: expression.name for name, expression in self.columns if isinstance(expression, Column)}


@dataclass(frozen=True)
class UnnestStep:
    """Add (or replace) a column, with one row for each element of a table function's value; without elements, no row."""

    kind: ClassVar[str] = "flat_map"
    name: str
    call: TableCall

    def origins(self, given: Names) -> dict[str, str]:
        return {name: name for name in given if name != self.name}


@dataclass(frozen=True)
class ExplodeStep:
    """Multiply the diff by an integer. The columns stay."""

    kind: ClassVar[str] = "explode"
    weight: Expression

    def origins(self, given: Names) -> dict[str, str]:
        return {name: name for name in given}


@dataclass(frozen=True)
class PythonStep:
    """Call `module:function`: a record (dict) in, records out; or, in batches, a frame in and a frame out.

    The batch's frame has a further column `row`. In the frame that the function returns, this column names the row that each row came from. The function
    must be deterministic, and a batch's rows independent of each other: the engine cuts and repeats batches as it needs.
    """

    kind: ClassVar[str] = "flat_map"
    function: str
    batch: bool
    output: tuple[tuple[str, Type], ...]

    def origins(self, given: Names) -> dict[str, str]:
        return {}


Step = FilterStep | MapStep | UnnestStep | ExplodeStep | PythonStep


class StageResult(NamedTuple):
    """The result of a run. `rows`: the input row of each output row (None: all, in order). `weights`: factors of the diff (None: 1)."""

    frame: pl.DataFrame
    rows: np.ndarray | None
    weights: np.ndarray | None

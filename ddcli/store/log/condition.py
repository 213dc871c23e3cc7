"""A condition over the rows of a log, as a person states it, and the rows for which it holds."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.expressions.execute import Evaluation, evaluation
from ddcli.expressions.functions import ARITHMETIC, TEXT
from ddcli.expressions.time_functions import TIME
from ddcli.expressions.tree import Call, Case
from ddcli.store.log.rows import PRESENT

if TYPE_CHECKING:
    from ddcli.expressions.tree import Expression

HOLDS = "holds"
STRICT = {function.name for function in (*ARITHMETIC, *TEXT, *TIME)} - {"concat_ws"}
PASSING = STRICT | {"=", "<>", "<", "<=", ">", ">=", "in", "and", "or", "not"}
"""The functions that are null for a null, or whose value doesn't depend on it (`false and null`)."""


@dataclass(frozen=True)
class RowCondition:
    """A condition over the columns of a log, which are `known`. Rows of a log with a `key` may have values in that alone."""

    expression: Expression
    known: frozenset[str]
    key: frozenset[str] = frozenset()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(sorted(self.expression.columns()))

    @property
    def sees_nulls(self) -> bool:
        """Return whether the condition may be true or false for a null, not only null: `x is null` holds for a value that can't be read, though the value is unknown."""
        return any(
            isinstance(node, Case) or (isinstance(node, Call) and node.function not in PASSING)
            for node in self.expression.walk()
        )

    @cached_property
    def _evaluation(self) -> Evaluation:
        return evaluation([(HOLDS, self.expression)])

    def of(self, frame: pl.DataFrame) -> pl.Series:
        """Return for each row whether the condition holds; null where a value that it reads is null.

        A row that deletes a key has nothing but the key: its other columns have fillers.
        """
        if PRESENT in frame.columns:
            others = [name for name in self.columns if name not in self.key]
            frame = frame.with_columns(pl.when(pl.col(PRESENT) != 0).then(pl.col(name)).alias(name) for name in others)
        return self._evaluation.run(frame.select(self.columns)).to_series()

    def keeps(self, frame: pl.DataFrame) -> pl.Series:
        """Return for each row whether it is left where all are dropped for which the condition holds."""
        return ~self.of(frame).fill_null(value=False)

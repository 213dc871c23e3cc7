"""A stage: linear steps fused into one run over a frame.

A stage is a function of the row alone, so it can be run on any part of the input. It is made once and run often, on three rows or on
ten million: its types, needed columns, polars expressions and checks, which depend only on its steps, are computed once.
Unneeded columns are neither read nor evaluated, and a row that a filter drops is not evaluated by later steps.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import InputError
from ddcli.expressions.tree import StageResult, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from ddcli.expressions.execute import StageProgram
    from ddcli.expressions.types import Schema


PARTS = 16
"""The number of parts into which a frame is cut in the search for a failing row."""


@dataclass(frozen=True)
class FusedSteps:
    """Steps over rows of a schema, first to last."""

    schema_in: Schema
    steps: tuple[Step, ...]

    @cached_property
    def schemas(self) -> tuple[Schema, ...]:
        """The schema before each step, and after the last."""
        found = [dict(self.schema_in)]
        for step in self.steps:
            found.append(step.schema(found[-1]))
        return tuple(found)

    @property
    def schema(self) -> Schema:
        """The columns of the output, in order."""
        return self.schemas[-1]

    @cached_property
    def kept(self) -> tuple[tuple[str, ...], ...]:
        """The columns needed before each step, and after the last, in order.

        At least one column, if there is any: a frame without columns has no number of rows.
        """
        found = [tuple(self.schema)]
        for step, before in zip(reversed(self.steps), reversed(self.schemas[:-1]), strict=True):
            needed = step.reads(frozenset(found[-1]), before)
            ordered = tuple(name for name in before if name in needed)
            found.append(ordered or _cheapest(before))
        return tuple(reversed(found))

    @property
    def needs(self) -> frozenset[str]:
        """The input columns that a run's frame must have, at least one."""
        return frozenset(self.kept[0])

    @cached_property
    def _program(self) -> StageProgram:
        from ddcli.expressions.execute import StageProgram

        return StageProgram(self.steps, self.schemas, self.kept)

    def failing(self, frame: pl.DataFrame) -> Iterator[tuple[int, InputError]]:
        """Yield the rows on which the stage fails, each with its error."""
        return failing(self.run, frame)

    def run(self, frame: pl.DataFrame) -> StageResult:
        """Return the output for a frame with the needed columns, of the types of `schema_in`; other columns are ignored.

        Raises InputError naming the expression, the problem and the first failing row's values.
        """
        return StageResult(*self._program.run(frame))


def failing(run: Callable[[pl.DataFrame], object], frame: pl.DataFrame) -> Iterator[tuple[int, InputError]]:
    """Yield the rows on which `run` fails, each with its error: it runs ever smaller parts of the frame.

    A stage is a function of the row alone, so if a part of the frame fails, one of its rows fails by itself.
    """
    parts = [(0, frame.height)]
    while parts:
        start, end = parts.pop()
        try:
            run(frame.slice(start, end - start))
        except InputError as error:
            if end - start == 1:
                yield start, error
                continue
            size = -(-(end - start) // PARTS)
            parts += [(at, min(at + size, end)) for at in reversed(range(start, end, size))]


def _cheapest(schema: Schema) -> tuple[str, ...]:
    """Return a column to count rows by: one of fixed width if there is one."""
    variable = ("string", "binary", "list", "struct")
    return tuple(sorted(schema, key=lambda name: schema[name].kind in variable)[:1])

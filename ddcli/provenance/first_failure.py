"""The first time at which a condition on outputs fails: the outputs' logs are fed to a dataflow of the query, once.

The updates of its result are the times at which the condition may change, so nothing of the pipeline is computed. Changes of the logs can be
tried in it afterwards.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.circuit.trial import Trial, as_of
from ddcli.engine import kernels
from ddcli.engine.lanes import decode, encode
from ddcli.engine.times import up_to
from ddcli.errors import NegativeAnswer, Span, SpecError, UsageError
from ddcli.expressions.syntax_tree import check_tables, query_text, read, read_statement, tables_of
from ddcli.expressions.tree import quoted
from ddcli.expressions.types import in_zone
from ddcli.plan import logical
from ddcli.plan.lineage import hide_tagged
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph
from ddcli.plan.relation import Relation
from ddcli.plan.sql.context import Times
from ddcli.plan.sql.statement import ORDER, bind_in_order
from ddcli.sources.change_log import ChangeLog
from ddcli.store.texts import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

    from ddcli.engine.lanes import Matrix
    from ddcli.engine.times import Time
    from ddcli.provenance.inputs import Inputs

VALUE, VERDICT = "value", "verdict"
OPERATORS = ("<", ">", "=", "!", "is ", "in ", "in(", "between ", "like ", "not ")
"""The beginnings of conditions on the value of the query's first column."""


@contextmanager
def _errors_at(condition: str) -> Iterator[None]:
    """Have errors of a query in which a condition begins on the second line point at the condition alone."""
    try:
        yield
    except SpecError as error:
        span = error.span
        if span is None or not 1 < span.line <= len(condition.splitlines()) + 1:
            raise _unfinished(condition) from None
        place = Span("condition", span.line - 1, span.column, span.length, span.source)
        raise SpecError(error.problem, span=place, hint=error.hint) from None
    try:
        read(query_text(condition))
    except SpecError:  # the query is one only as the condition closes its parenthesis: `v > 0) as x, (1`
        raise _unfinished(condition) from None


def _unfinished(condition: str) -> UsageError:
    return UsageError(f"`{condition}` is not a whole condition", hint="for example `> 1000`, or `amount is not null`")


class Search:
    """The dataflow of a query and a condition, fed with the logs of the outputs that the query names."""

    def __init__(
        self, inputs: Inputs, query: str, condition: str, *, good: bool, between: tuple[str, str] | None
    ) -> None:
        self.inputs, self.good = inputs, good
        request = inputs.request
        check_tables(query_text(query), request.outputs, "the outputs are")
        names = {table.value for table in tables_of(read_statement(query_text(query)))}
        self.logs = {name: ChangeLog.open(str(request.outputs[name]), Path.cwd()) for name in sorted(names)}
        if not self.logs:
            raise UsageError("the query reads no output", hint=f"outputs: {', '.join(request.outputs)}")
        limits: list[int | None] = [parse_time(each, inputs.time, "--between", "log's")[0] for each in between or ()]
        self.since, self.until = limits or [None, None]
        sources = {name: logical.Source((), dict(log.columns), name) for name, log in self.logs.items()}

        def bound(text: str) -> Relation:
            times = Times(tuple(inputs.kinds), request.clock.arrival)
            with in_zone(request.spec.timezone):
                found, _ = bind_in_order(
                    query_text(text), lambda name: Relation(sources[name]), lambda: [*sources.values()], times
                )
            return found

        value = bound(query)
        hide_tagged({name: log.tags for name, log in self.logs.items()}, [value.node])
        (first, *_) = (name for name in value.schema if not name.startswith(ORDER))
        compared = condition.strip().lower().startswith(OPERATORS)
        self.condition = f"{quoted(first)} {condition.strip()}" if compared else condition.strip()
        with _errors_at(self.condition):
            verdict = bound(f"select (\n{self.condition}\n) as verdict from ({query}\n) as answer")  # noqa: S608 - it is the person's own query
        if str(verdict.schema["verdict"].required()) != "bool":
            raise UsageError(
                f"the condition `{self.condition}` is {verdict.schema['verdict'].required()}, not true or false"
            )
        self.trial = Trial(lower(Graph({VALUE: value.node, VERDICT: verdict.node})), inputs.kinds, inputs.pool)
        upper = () if self.until is None else up_to((self.until,)).elements
        self.fed = {}
        for name, layout in self.trial.layouts.items():
            slices = self.logs[name].reader.take(layout.names, None, upper).slices
            parts = [piece.matrix(layout, inputs.pool) for piece in slices]
            nothing = np.empty((0, layout.width + 2), np.int64)
            self.fed[name] = parts[0] if len(parts) == 1 else np.concatenate([nothing, *parts])
        self.tick = max((int(matrix[:, -2].max()) for matrix in self.fed.values() if len(matrix)), default=0) + 1
        self.history = self.trial.close(up_to((self.tick,)), self.fed)
        self.undo: dict[str, Matrix] = {}
        """What takes back the changes of the logs that are tried."""

    # --- the time of the failure ------------------------------------------------------------------------------------

    def failure(self) -> tuple[int, int | None]:
        """Return the first time at which the condition fails after it held, and the next time at which it holds again, if there is one."""
        failed: int | None = None
        held, fails = not self.good, False  # a query without rows has none that is bad
        for time, fails in self._verdicts():
            inside = self.since is None or time > self.since
            if failed is None and fails and held and inside:
                failed = time
            elif failed is not None and not fails:
                return failed, time
            held = held or not fails
        if failed is not None:
            return failed, None
        if not held:
            raise NegativeAnswer(
                f"the condition `{self.condition}` has never held", hint="choose one that held at first"
            )
        raise NegativeAnswer(f"the condition `{self.condition}` does not fail", hint="`--between` limits the times")

    def _verdicts(self) -> Iterator[tuple[int, bool]]:
        """Yield the times at which the condition's result changes, in order, with whether it fails there."""
        matrix = self.history[VERDICT]
        matrix = matrix[np.argsort(matrix[:, -2], kind="stable")]
        values = decode(matrix, self.trial.outputs[VERDICT], self.inputs.pool).to_series().to_list()
        counts = Counter[bool | None]()
        for time, rows in groupby(
            zip(values, matrix[:, -2].tolist(), matrix[:, -1].tolist(), strict=True), itemgetter(1)
        ):
            for value, _, diff in rows:
                counts[value] += diff
            yield time, self._failing({value for value, count in counts.items() if count > 0})

    def _failing(self, verdicts: set[bool | None]) -> bool:
        return not verdicts <= {True} if self.good else True in verdicts

    def _rows(self, output: str, time: Time) -> pl.DataFrame:
        matrix = as_of(self.history[output], 1, time)
        return decode(matrix[matrix[:, -1] > 0], self.trial.outputs[output], self.inputs.pool)

    def rows(self, at: int) -> pl.DataFrame:
        """Return the rows of the query at a time."""
        found = self._rows(VALUE, (at,))
        return found.select([name for name in found.columns if not name.startswith(ORDER)])

    # --- changes of the logs, tried ---------------------------------------------------------------------------------

    def go_back(self, at: int) -> None:
        """Take the updates after a time out of the logs."""
        later = {name: matrix[matrix[:, -2] > at] for name, matrix in self.fed.items()}
        self._moved({name: kernels.negated(np.delete(matrix, -2, axis=1)) for name, matrix in later.items()})

    def _moved(self, changes: Mapping[str, Matrix]) -> int:
        """Feed changes of the logs, `[data lanes | count]`, at a new time, and return it."""
        self.tick += 1
        fed = {}
        for name, layout in self.trial.layouts.items():
            change = changes.get(name, np.empty((0, layout.width + 1), np.int64))
            fed[name] = np.ascontiguousarray(np.insert(change, layout.width, self.tick, axis=1))
        found = self.trial.close(up_to((self.tick,)), fed)
        self.history = {name: np.concatenate([matrix, found[name]]) for name, matrix in self.history.items()}
        return self.tick

    def put(self, changes: Mapping[str, Matrix]) -> int:
        """Have these changes of the logs in place of those tried before, and return the time at which it is so."""
        steps = {
            name: kernels.consolidate(
                np.concatenate([part for part in (changes.get(name), self.undo.get(name)) if part is not None])
            )
            for name in changes.keys() | self.undo.keys()
        }
        self.undo = {name: kernels.negated(matrix) for name, matrix in changes.items()}
        return self._moved(steps)

    def holds_with(self, changes: Mapping[str, Matrix]) -> bool:
        """Return whether the condition would hold with changes of the logs."""
        verdicts = self._rows(VERDICT, (self.put(changes),))
        return not self._failing({value for (value,) in verdicts.iter_rows()})

    def lanes(self, name: str, frame: pl.DataFrame, counts: np.ndarray[Any, Any]) -> Matrix:
        """Return records as `[data lanes | count]` in the columns of a log that the query reads."""
        layout = self.trial.layouts[name]
        data = (
            encode(frame.select(layout.names), layout, self.inputs.pool)
            if layout.width
            else np.empty((len(counts), 0), np.int64)
        )
        return np.ascontiguousarray(np.column_stack([data, counts]))

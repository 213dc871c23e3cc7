"""A statement answered once, from a state and the inputs, without a run: nothing is written, no lock taken.

It is bound like a collection of the pipeline, and run in memory as of one time. The collections below it that the state keeps whole are
read from there (see `contents`), and only the rest is computed. As of "latest" all is computed from the inputs, as the state lacks
pending rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddcli.circuit.trial import Trial, as_of
from ddcli.dataclass import dataclass
from ddcli.driver.prepare import bind_remembered
from ddcli.driver.tables import read_settled, tables_as_now
from ddcli.driver.whole_inputs import WholeInputs, before
from ddcli.engine.lanes import decode
from ddcli.engine.times import BEYOND, Frontier
from ddcli.errors import EngineError, SpecError, StateError, UsageError
from ddcli.expressions.row_order import in_order
from ddcli.expressions.statement import check_tables, query_text
from ddcli.expressions.zones import in_zone
from ddcli.job.frontier import find_upper
from ddcli.job.functions import load_functions, refuse_code
from ddcli.job.request import newest_of, read_request
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph
from ddcli.plan.sql.context import Times
from ddcli.plan.sql.statement import ORDER, bind_in_order
from ddcli.query.contents import ALWAYS, FoundContents
from ddcli.query.files import named_files
from ddcli.query.lookup import ATTEMPTS, asked_time
from ddcli.sources.readers import largest_seen
from ddcli.store.time_text import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from ddcli.engine.times import Time
    from ddcli.errors import Span
    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.expressions.row_order import RowOrder
    from ddcli.expressions.types import Type
    from ddcli.job.request import Request
    from ddcli.plan.bound import BoundPipeline
    from ddcli.plan.relation import Relation
    from ddcli.spec.model import Spec
    from ddcli.store.state.manifest import Manifest

LATEST = "latest"
"""As of this, all rows of the inputs count, including those that no run has taken in."""
ANSWER = "answer"


@dataclass(frozen=True)
class QueryAnswer:
    """The rows of a statement, each repeated by its multiplicity; their time in words; and notes, each at its place in the statement."""

    rows: pl.DataFrame
    time: str
    notes: tuple[tuple[Span, str], ...] = ()


def answer(
    pipeline: Path, query: str, *, state: Path | None = None, as_of: str | None = None, no_code: bool = False
) -> QueryAnswer:
    """Return the rows of a query over the inputs, collections and outputs of a pipeline file.

    They are as of the last commit of its state; or of `as_of`, an earlier time; or as a run would find them now, "latest", the default
    without a state. Raises SpecError at the place of a mistake in the query, UsageError for an unknown table and a time that is not closed.
    """
    request = read_request(pipeline, state)
    refuse_code(request.spec, no_code=no_code)
    text = query_text(query)
    spec = request.spec
    known = [*spec.inputs, *(name for one in spec.collections.values() for name in one.names)]
    check_tables(text, dict.fromkeys([*known, *spec.outputs]), "there are")
    load_functions(spec)

    def look() -> QueryAnswer:
        with tables_as_now(request, wanted=as_of == LATEST or newest_of(request) is None) as now:
            return _answer(now, query, as_of)

    return read_settled(request, look)


def _answer(request: Request, query: str, as_of: str | None) -> QueryAnswer:
    for _ in range(ATTEMPTS):
        manifest = newest_of(request)
        try:
            return _Statement(request, manifest, as_of).answer(query)
        except StateError:
            # Its files are gone because there is a newer commit, or something is wrong with them.
            newest = newest_of(request)
            if manifest is None or newest is None or newest.number == manifest.number:
                raise
    raise StateError("the state is committed faster than it can be read", place=str(request.state))


def answer_of_files(query: str, dialect: Dialect | None = None) -> QueryAnswer:
    """Return the rows of a query over the files that it names. Raises SpecError and UsageError as `answer` does."""
    files = named_files(query_text(query), dialect)
    try:
        statement = _Statement(files.request, None, LATEST)
        found = statement.answer(query)
    except SpecError as error:
        raise files.explained(error) from None
    assert statement.inputs is not None
    return replace(found, notes=(*files.notes, *files.doubts(statement.inputs.readers), *found.notes))


class _Statement:
    """The state and inputs of a request at one commit and time, to answer a query."""

    def __init__(self, request: Request, manifest: Manifest | None, when: str | None) -> None:
        self.request, self.manifest = request, manifest
        if not request.outputs:  # there is no pipeline file
            self.inputs: WholeInputs | None = WholeInputs.stateless(request)
            self.bound = self.inputs.ready.bound
        elif manifest is not None and manifest.pipeline == request.digest and when != LATEST:
            self.bound = bind_remembered(request, manifest)
            self.inputs = None
        else:
            self.inputs = WholeInputs.of(request, taken=when != LATEST)
            self.bound = self.inputs.ready.bound
        # Arrangements lack the rows that no run has taken in: as of "latest", all is computed from the inputs.
        self.kept = None if when == LATEST else manifest
        self.kinds: Sequence[Type] = self.bound.kinds
        self.at, self.known = self._time(when)

    def answer(self, query: str) -> QueryAnswer:
        """Return the rows of a query."""
        relations = _named(self.bound, self.request.spec)
        times = Times(tuple(self.kinds), self.request.clock.arrival)
        with in_zone(self.request.spec.timezone):
            bound, notes = bind_in_order(query_text(query), relations.__getitem__, lambda: [ALWAYS], times)
        contents = FoundContents(self.request, self.kept, self.bound, self.at, self.known, self.inputs)
        node = contents.cut(bound.node)
        lenient = self.request.spec.errors is not None
        trial = Trial(
            lower(Graph({ANSWER: node})), self.kinds, contents.pool, facts={}, lenient=lenient, answers=contents.answers
        )
        fed = {name: contents.fed(name, layout) for name, layout in trial.layouts.items()}
        found = as_of(trial.close(frontier_closing(self.at), fed)[ANSWER], len(self.kinds), self.at)
        rows = decode(found, trial.outputs[ANSWER], contents.pool)
        return QueryAnswer(_in_order(rows, found[:, -1], bound.order), self._shown_time(), notes)

    def _time(self, when: str | None) -> tuple[Time, Time | None]:
        """Return the time in question as `asked_time` does."""
        if self.manifest is not None and when != LATEST:
            return asked_time(self.manifest, self.kinds, when)
        assert self.inputs is not None
        manifest, readers = self.manifest, self.inputs.readers
        if when not in (None, LATEST):
            at = parse_time(str(when), self.bound.time, "--as-of", "inputs'")
            return at, at
        upper = find_upper(
            self.request, self.bound.time, self.inputs.ready.found, manifest, largest_seen(manifest, readers)
        )
        if upper is None:
            at = tuple(0 for _ in self.kinds)  # no row anywhere: any time will do
            return at, at
        corners = upper.corners() if upper else ((BEYOND,) * len(self.kinds),)
        if len(corners) > 1:
            raise UsageError("the inputs' progress has no last time that is closed", hint="choose one with --as-of")
        at = tuple(value - 1 for value in corners[0])
        return at, at

    def _shown_time(self) -> str:
        return "the end" if BEYOND - 1 in self.at else format_time(self.at, self.kinds)


def frontier_closing(at: Time) -> Frontier:
    """Return the frontier that closes the times up to and including one, which may be the last possible."""
    return Frontier([time for time in before(at) if BEYOND not in time])


def _named(bound: BoundPipeline, spec: Spec) -> Mapping[str, Relation]:
    """Return the relations of inputs, collections and outputs by name."""
    outputs = {name: bound.relations[output.source.value] for name, output in spec.outputs.items()}
    return outputs | bound.relations


def _in_order(rows: pl.DataFrame, counts: np.ndarray, order: RowOrder) -> pl.DataFrame:
    """Return records, each repeated by its multiplicity, in the query's order, else by all columns; null is the largest value."""
    if (counts < 0).any():
        wrong = rows.row(int(np.flatnonzero(counts < 0)[0]), named=True)
        shown = ", ".join(f"{name}={value}" for name, value in wrong.items() if not name.startswith(ORDER))
        problem = f"a row has a negative multiplicity: {shown}"
        raise EngineError(problem, hint="an input retracts more than it has: `dd query` shows multiplicities")
    plain = [name for name in rows.columns if not name.startswith(ORDER)]
    if rows.width and (counts > 1).any():
        rows = rows[np.repeat(np.arange(rows.height), counts)]
    return in_order(rows, order, plain).select(plain)

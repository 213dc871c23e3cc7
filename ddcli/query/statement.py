"""A statement answered once, from a state and the inputs, without a run: nothing is written, no lock taken.

It is bound like a collection of the pipeline, and run in memory as of one time. The collections below it that the state keeps whole are
read from there (see `contents`), and only the rest is computed. As of "latest" all is computed from the inputs, as the state lacks
pending rows.

Files that a query names itself, `from 'orders.csv'`, are the inputs of a request that has no pipeline file.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from ddcli.circuit.trial import Trial
from ddcli.dataclass import dataclass
from ddcli.driver.prepare import WholeInputs, bind_remembered
from ddcli.driver.tables import read_settled, tables_as_now
from ddcli.engine.lanes import decode
from ddcli.engine.times import BEYOND
from ddcli.errors import EngineError, SpecError, StateError, Text, UsageError
from ddcli.expressions.csv_dialect import DEFAULT
from ddcli.expressions.syntax_tree import check_tables, query_text, read_statement, tables_of
from ddcli.expressions.types import ARRIVAL, in_order, in_zone
from ddcli.job.inputs import find_upper
from ddcli.job.paths import DEFAULT_STATE
from ddcli.job.request import Request, RunClock, load_functions, newest_of, read_request, refuse_code, time_now
from ddcli.plan.lineage import hide_tagged
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph
from ddcli.plan.sql.context import Times
from ddcli.plan.sql.statement import ORDER, bind_in_order
from ddcli.privacy import previewed
from ddcli.query.lookup import ALWAYS, ATTEMPTS, FoundContents, asked_time
from ddcli.sources.change_log import tags_of_files
from ddcli.sources.readers import largest_seen
from ddcli.spec.model import InputSpec, Spec
from ddcli.store.files.access import locate
from ddcli.store.log.reader import LogReader
from ddcli.store.log.schema import shown_doubt, type_of
from ddcli.store.tables.csv_records import refuse_encoding
from ddcli.store.tables.files import Tables
from ddcli.store.tables.input_path import CSV, TEXTS, NothingFound, bare, name_of_kind
from ddcli.store.tables.inventory import list_input
from ddcli.store.texts import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    import polars as pl

    from ddcli.engine.times import Time
    from ddcli.errors import Span
    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.expressions.types import RowOrder, Type
    from ddcli.sources.readers import Reader
    from ddcli.store.state.manifest import Manifest


QUOTES = ("'", '"')


@dataclass
class NamedFiles:
    """The files of a query as the inputs of a request; notes on them, and the columns that are left out of each file, with their types."""

    request: Request
    notes: tuple[tuple[Span, str], ...]
    left_out: Mapping[str, Mapping[str, str]]
    places: Mapping[str, Span]
    columns: AbstractSet[str] | None
    """The names in the query, in small letters; None if it reads all columns."""

    def doubts(self, readers: Mapping[str, Reader]) -> list[tuple[Span, str]]:
        """Return notes on doubts about the columns that the query reads."""
        return [
            (self.places[path], f"'{path}': {shown_doubt((name, doubt))}")
            for path, reader in readers.items()
            if isinstance(reader, LogReader) and reader.pinned is not None
            for name, doubt in reader.pinned.doubts.items()
            if self.columns is None or name.lower() in self.columns
        ]

    def explained(self, error: SpecError) -> SpecError:
        """Return an error of a query; if it lacks a column that was left out, the error that states why."""
        if error.span is None or not error.problem.startswith(("no column", "no table")):
            return error
        at = error.span.column - 1
        parts = error.span.source[at : at + error.span.length].lower().replace('"', "").split(".")
        for path, columns in self.left_out.items():
            for name, kind in columns.items():
                if name.lower() in parts:
                    problem = f"column '{name}' of '{path}' is {kind}, a type that records can't have"
                    return SpecError(problem, span=error.span, hint="write its parts as columns of their own")
        return error


def named_files(text: Text, dialect: Dialect | None = None) -> NamedFiles:
    """Return a request whose inputs are the files of a query, named by their paths; each of their rows is a record. `dialect` is for CSV.

    The request's state is never read. Raises UsageError for a table without quotes, which can't be a file.
    """
    inputs: dict[str, InputSpec] = {}
    notes: list[tuple[Span, str]] = []
    left_out: dict[str, Mapping[str, str]] = {}
    base, tree = Path.cwd(), read_statement(text)
    all_columns = any(
        isinstance(node, exp.Star) and isinstance(node.parent, exp.Select | exp.Column) for node in tree.nodes
    )
    for each in tables_of(tree):
        if each.span.source[each.span.column - 1 : each.span.column] not in QUOTES:
            path = each.value if "." in each.value else f"{each.value}.csv"
            hint = f"write a file in quotes, `from '{path}'`; a pipeline's table needs `--from PIPELINE`"
            raise UsageError(f"no table is named `{each.value}`: the query has no pipeline", span=each.span, hint=hint)
        if not each.value.strip():
            raise UsageError("the path of a file is empty", span=each.span, hint="name one: `from 'orders.csv'`")
        try:
            listing = list_input(each.value, base)
        except NothingFound as error:
            error.hint = "check the path; it is relative to the current directory"
            raise
        paths = [listing.path(file) for file in listing.files]
        csv, look = _dialect(paths, dialect)
        if look:
            notes.append(
                (each.span, f"'{each.value}' is read as {_shown(look)}, by its appearance; `--csv` overrides this")
            )
        left = left_out[each.value] = _unfit(paths)
        if left and all_columns:
            shown = ", ".join(f"'{name}' ({kind})" for name, kind in left.items())
            notes.append((each.span, f"'{each.value}' has columns of types that records can't have, left out: {shown}"))
        time = (Text(ARRIVAL, each.span),)
        tags = dict(tags_of_files(locate(base, each.value), paths))
        given = InputSpec(each, each, time, format="append", csv=csv, ignored=tuple(left), infers=True, tags=tags)
        inputs[each.value] = given
    spec = Spec(Text("query", text.span), base / "query", inputs, {}, {}, clock="arrival")
    clock = RunClock(arrival=True, now=time_now(None))
    request = Request(spec, "", base, base / DEFAULT_STATE, {}, clock=clock)
    names = None if all_columns else {node.name.lower() for node in tree.nodes if isinstance(node, exp.Identifier)}
    places = {name: given.path.span for name, given in inputs.items()}
    return NamedFiles(request, tuple(notes), left_out, places, names)


def _dialect(paths: Sequence[Path], stated: Dialect | None) -> tuple[Dialect | None, dict[str, Any]]:
    """Return the dialect of CSV files, None for other files, and the options that the first file shows."""
    path = next((path for path in paths if name_of_kind(path) == CSV), None)
    if path is None:
        return None, {}
    from ddcli.store.tables.column_types import look_of

    dialect = stated or DEFAULT
    refuse_encoding(path, dialect)
    look = look_of(path, dialect)
    # What is settled is not looked at again.
    settled = replace(dialect, delimiter=dialect.of(bare(path.name), ()).separator, header=dialect.has_header)
    return replace(settled, **look), look


def _shown(options: Mapping[str, object]) -> str:
    """Return options of CSV as a pipeline file has them."""
    return "`csv: {" + ", ".join(f"{name}: {json.dumps(value)}" for name, value in options.items()) + "}`"


def _unfit(paths: Sequence[Path]) -> dict[str, str]:
    """Return the columns, of the first file that states its columns' types, whose type records can't have."""
    path = next((path for path in paths if name_of_kind(path) not in TEXTS), None)
    if path is None:
        return {}
    return {name: str(kind) for name, kind in Tables().footer(path).items() if type_of(kind) is None}


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
        relations = {
            name: self.bound.relations[output.source.value] for name, output in self.request.spec.outputs.items()
        }
        relations |= self.bound.relations
        times = Times(tuple(self.kinds), self.request.clock.arrival)
        with in_zone(self.request.spec.timezone):
            bound, notes = bind_in_order(query_text(query), relations.__getitem__, lambda: [ALWAYS], times)
        hide_tagged(self.bound.spec.tags, [bound.node])
        contents = FoundContents(self.request, self.kept, self.bound, self.at, self.known, self.inputs)
        node = contents.cut(bound.node)
        lenient = self.request.spec.errors is not None
        trial = Trial(
            lower(Graph({ANSWER: node})), self.kinds, contents.pool, facts={}, lenient=lenient, answers=contents.answers
        )
        fed = {name: contents.fed(name, layout) for name, layout in trial.layouts.items()}
        found = trial.contents(self.at, fed)[ANSWER]
        rows = decode(found, trial.outputs[ANSWER], contents.pool)
        shown = "the end" if BEYOND - 1 in self.at else format_time(self.at, self.kinds)
        return QueryAnswer(_in_order(rows, found[:, -1], bound.order), shown, notes)

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
            # No row anywhere: it is now by the clock of arrivals, and any time by the clock of events.
            at = (self.request.clock.now,) if self.request.clock.arrival else tuple(0 for _ in self.kinds)
            return at, at
        corners = upper.corners() if upper else ((BEYOND,) * len(self.kinds),)
        if len(corners) > 1:
            raise UsageError("the inputs' progress has no last time that is closed", hint="choose one with --as-of")
        at = tuple(value - 1 for value in corners[0])
        return at, at


def _in_order(rows: pl.DataFrame, counts: np.ndarray, order: RowOrder) -> pl.DataFrame:
    """Return records, each repeated by its multiplicity, in the query's order, else by all columns; null is the largest value."""
    if (counts < 0).any():
        wrong = rows.row(int(np.flatnonzero(counts < 0)[0]), named=True)
        shown = ", ".join(f"{name}={value}" for name, value in previewed(wrong).items() if not name.startswith(ORDER))
        problem = f"a row has a negative multiplicity: {shown}"
        raise EngineError(problem, hint="an input retracts more than it has: `dd query` shows multiplicities")
    plain = [name for name in rows.columns if not name.startswith(ORDER)]
    if rows.width and (counts > 1).any():
        rows = rows[np.repeat(np.arange(rows.height), counts)]
    return in_order(rows, order, plain).select(plain)

"""A pipeline under test, with the columns of its inputs, its time and its collections; and the rows that a test feeds to inputs, as updates: written to files of each input's format, and read as a run reads them.

Replays run the same updates in other cuts. A pipeline's result must not depend on how its input was cut, so all must agree: a replay that
disagrees has found a Python function that is not pure (it keeps a state, or reads a clock), or a bug of the engine.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

from ddcli.circuit.trial import Trial, closed
from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.pool import Pool, new_secret
from ddcli.engine.times import LEAST, Frontier, join, up_to
from ddcli.errors import DdError, InputError, SpecError
from ddcli.expressions.csv_dialect import DEFAULT
from ddcli.expressions.python_values import to_series
from ddcli.expressions.types import Type
from ddcli.job.consumed_files import list_here
from ddcli.job.inputs import format_of
from ddcli.job.request import load_functions
from ddcli.pipeline_tests.expectation import engine_time
from ddcli.plan import logical, temporal
from ddcli.plan.pipeline_file import BoundPipeline
from ddcli.plan.test_steps import DIFF, collection_named, file_columns, tested_collections, typed_tests
from ddcli.sources.arrangement_input import SharedReader
from ddcli.sources.inference import pinned, with_columns
from ddcli.sources.readers import time_columns
from ddcli.sources.slices import InputFacts
from ddcli.spec.inputs import IMPORT
from ddcli.store.files.access import locate
from ddcli.store.log.reader import LogReader
from ddcli.store.log.schema import LogSchema
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.shared_arrangements import find_shared
from ddcli.store.tables.input_path import TEXTS, name_of_kind
from ddcli.store.tables.inventory import list_input
from ddcli.store.tables.listing import Listing
from ddcli.store.texts import format_frontier

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from ddcli.engine.lanes import Layout, Matrix
    from ddcli.engine.times import Time
    from ddcli.errors import Span
    from ddcli.expressions.types import Schema
    from ddcli.job.request import Request
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.plan.relation import Relation
    from ddcli.plan.test_steps import GivenRows, Test
    from ddcli.sources.readers import Reader
    from ddcli.spec.model import InputSpec, Spec
    from ddcli.store.formats.base import Format
    from ddcli.store.state.entries import InputEntry


WHOLE = ("updates", "append", "snapshots", IMPORT)
"""The formats in which each row has all columns; in the others, rows of deletions lack some."""


@dataclass
class Material:
    """The rows that a test's steps feed: each input's updates, and the frontier up to which each step closes the times.

    It is a context manager, which keeps files with the rows in a temporary directory; errors in one of them are moved to its
    place in the pipeline file.
    """

    subject: Subject
    test: Test
    layouts: Mapping[str, Layout]
    updates: dict[str, Matrix] = field(default_factory=dict)
    facts: dict[str, InputFacts] = field(default_factory=dict)
    uppers: list[Frontier] = field(default_factory=list)
    _places: dict[str, Span] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="dd-test-")
        try:
            self._read()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._directory.cleanup()
        if isinstance(error, DdError) and error.span is None and error.place is not None:
            name = Path(error.place.partition(":")[0]).stem
            error.span, error.place = self._places.get(name, self.test.span), None

    def _read(self) -> None:
        width = len(self.subject.time)
        parts: dict[str, list[Matrix]] = {name: [] for name in self.layouts}
        snapshots: dict[str, set[int]] = {}
        upper, seen = Frontier([(LEAST,) * width]), (LEAST,) * width
        for number, step in enumerate(self.test.steps):
            seen = join(seen, engine_time(step.time, self.subject)) if None not in step.time else seen
            for name, given in step.given:
                path = self._write(name, given, f"{number}-{name}")
                reader = self._reader(name, path, *engine_time(step.time, self.subject)[:1])
                largest = reader.largest_time()
                seen = join(seen, largest) if largest else seen
                if name in self.layouts:
                    self._check(name, given)
                    parts[name].append(self._matrix(reader, name, given, upper))
                self._note_facts(name, reader)
                if self.subject.spec.inputs[name].format == "snapshots":
                    times = reader.snapshot_times(None, ()) or [*engine_time(step.time, self.subject)]
                    snapshots.setdefault(name, set()).update(times)
            upper = up_to(seen).join(upper)
            self.uppers.append(upper)
        for name, tables in snapshots.items():
            self.facts[name].snapshots = sorted(tables)
        for name, layout in self.layouts.items():
            none = np.empty((0, layout.width + width + 1), np.int64)
            self.updates[name] = np.concatenate([none, *parts[name]])
            if name not in self.facts and self._needs_facts(name):
                self._note_facts(name, self._reader(name, self._write(name, None, f"none-{name}")))

    # --- files ----------------------------------------------------------------------------------------------------

    def _write(self, name: str, given: GivenRows | None, stem: str) -> Path:
        """Write the given rows, or copy the given file, to a file of its own, and return its path."""
        folder = Path(self._directory.name)
        if given is not None:
            self._places[stem] = given.span
        if given is not None and given.file is not None:
            source = locate(self.subject.request.base, given.file.value)
            path = folder / f"{stem}{''.join(source.suffixes[-2:])}"
            try:
                if not source.is_file():
                    hint = "it is relative to the pipeline file"
                    raise SpecError(f"there is no file '{given.file.value}'", span=given.file.span, hint=hint)
                shutil.copyfile(source, path)
            except OSError as error:
                problem = f"the file '{given.file.value}' can't be read: {error.strerror or error}"
                raise SpecError(problem, span=given.file.span) from None
            return path
        subject = self.subject
        columns = (
            given.columns if given else file_columns(subject.spec.inputs[name], subject.inputs[name], subject.time)
        )
        rows = [row for row, _ in given.rows] if given else []
        diff = self._format(name).diff
        frame = pl.DataFrame(
            [
                to_series(column, [row.get(column, 1 if column == diff else None) for row in rows], _type(kind))
                for column, kind in columns.items()
            ]
        )
        path = folder / f"{stem}.parquet"
        frame.write_parquet(path)
        return path

    def _format(self, name: str) -> Format:
        """Return the format of an input for our files: without the file's name, and without quarantine."""
        given = self.subject.spec.inputs[name]
        log = replace(format_of(given), file_name=None, quarantines=False)
        return replace(log, diff=DIFF) if given.format == IMPORT or given.table else log

    def _reader(self, name: str, path: Path, time: int = 0) -> LogReader:
        log = self._format(name)
        if name_of_kind(path) not in TEXTS:  # the options of an input's text are none of the rows in the pipeline file
            log = replace(log, dialect=DEFAULT, rounds=False)
        times = dict(zip(log.time, self.subject.kinds, strict=True))
        known = LogSchema(self.subject.inputs[name], times, diff=True)
        return LogReader(list_input(path.name, path.parent).with_arrival(time), log, known)

    def _check(self, name: str, given: GivenRows) -> None:
        """Refuse a row without a column that the pipeline reads and that is never null."""
        if self.subject.spec.inputs[name].format not in WHOLE:
            return
        schema = self.subject.inputs[name]
        for row, span in given.rows:
            for column in self.layouts[name].names:
                if column in schema and not schema[column].nullable and column not in row:
                    hint = "columns that no collection tested here reads may be left out"
                    raise SpecError(f"the row lacks '{column}', which is read and never null", span=span, hint=hint)

    def _matrix(self, reader: LogReader, name: str, given: GivenRows, before: Frontier) -> Matrix:
        """Return the updates of a file. Refuses updates at times that the step before has closed."""
        layout = self.layouts[name]
        taken = reader.take(layout.names, None, ())
        none = np.empty((0, layout.width + len(self.subject.time) + 1), np.int64)
        matrix = np.concatenate([none, *(part.matrix(layout, self.subject.pool) for part in taken.slices)])
        late = np.flatnonzero(closed(before, matrix[:, layout.width : -1]))
        if len(late):
            same = len(given.rows) == len(matrix)
            upper = format_frontier(before, self.subject.kinds)
            raise SpecError(
                f"a row comes too late: the step before has closed the times before {upper}",
                span=given.rows[late[0]][1] if same else given.span,
                hint="a step closes the times up to the last that it names; give the row a later `time`",
            )
        return matrix

    # --- facts ----------------------------------------------------------------------------------------------------

    def _needs_facts(self, name: str) -> bool:
        given = self.subject.spec.inputs[name]
        return bool(given.key) or given.format == "snapshots" or given.negative != "allow"

    def _note_facts(self, name: str, reader: LogReader) -> None:
        """Record the facts that the operators of an input with keys or tables need."""
        if not self._needs_facts(name):
            return
        if name not in self.facts:
            self.facts[name] = InputFacts(self.subject.spec.inputs[name], reader)
        if self.subject.spec.inputs[name].format != "snapshots":
            self.facts[name].truncations += reader.truncations(None, ())


def _type(kind: Type | dict[str, Type]) -> Type:
    return kind if isinstance(kind, Type) else Type("struct", True, fields=tuple(kind.items()))


@dataclass(frozen=True)
class Subject:
    """A pipeline under test: the columns of its inputs and of its time, and its collections. `pool` has the values of all tests."""

    request: Request
    inputs: dict[str, Schema]
    time: Schema
    relations: dict[str, Relation]
    pool: Pool

    @classmethod
    def of(cls, request: Request) -> Subject:
        """Return the pipeline of a request. At most one footer of each input is read; an input that declares its columns needs no file."""
        request = _declared(request)
        readers = {name: _reader(request, given) for name, given in request.spec.inputs.items()}
        inputs = {name: dict(reader.schema.columns) for name, reader in readers.items()}
        bound = BoundPipeline(request.spec, inputs, time_columns(request, None, readers))
        relations = bound.relations
        load_functions(request.spec)
        return cls(request, inputs, bound.time, relations, Pool(new_secret()))

    @property
    def spec(self) -> Spec:
        """The model of the pipeline file."""
        return self.request.spec

    @property
    def kinds(self) -> Sequence[Type]:
        """The types of the coordinates of time."""
        return list(self.time.values())

    @property
    def lenient(self) -> bool:
        """Return whether records on which an expression fails are put aside."""
        return self.spec.errors is not None

    def relation(self, name: str) -> Relation:
        """Return the collection, input or output of a name."""
        return self.relations[collection_named(self.spec, name)]

    @cached_property
    def tests(self) -> tuple[Test, ...]:
        """The tests of the file, in the types of the columns. Raises SpecErrors with all errors in them."""
        relations = {name: self.relations[of] for name, of in tested_collections(self.spec).items()}
        return typed_tests(self.spec, self.inputs, self.time, relations)


def _reader(request: Request, given: InputSpec) -> Reader:
    """Return a reader of one file of an input, for the input's columns."""
    directory = locate(request.base, given.path.value)
    if given.arrangement is not None:
        shared = find_shared(directory, given.arrangement.value)
        return SharedReader(shared, [text.value for text in given.time], Listing(directory, ()), None)
    try:
        listing = list_here(given, request.base, _entry(request, given))
    except InputError as error:
        if given.columns is None:
            hint = "declare its `columns`: then its tests need no files"
            raise InputError(f"inputs.{given.name.value}: {error.problem}", span=given.path.span, hint=hint) from None
        listing = Listing(request.base, ())
    return LogReader(
        Listing(listing.root, listing.new[:1], base=listing.base, unmoved=listing.unmoved), format_of(given)
    )


def _entry(request: Request, given: InputSpec) -> InputEntry | None:
    """Return the state's entry of an input, if its inferred columns or its consumed files are known only there."""
    manifest = read_newest(request.state) if given.infers or given.consumed != "keep" else None
    return manifest.inputs.get(given.name.value) if manifest else None


def _declared(request: Request) -> Request:
    """Return a request whose inputs declare their inferred columns, taken from the state or else from the files."""
    if not any(given.infers for given in request.spec.inputs.values()):
        return request
    inputs = {}
    for name, given in request.spec.inputs.items():
        if given.infers:
            entry = _entry(request, given)
            inputs[name] = with_columns(given, pinned(given, list_here(given, request.base, entry), entry))
    return replace(request, spec=replace(request.spec, inputs=request.spec.inputs | inputs))


SHUFFLES = 3
MOST_SHARDS = 4
BOUND_TO_TIME = (
    logical.Upsert,
    logical.Snapshots,
    temporal.Shift,
    temporal.JoinFunction,
    logical.Once,
)
"""The operators whose result depends on the times themselves, so that updates of one time can't be fed at different times."""


@dataclass(frozen=True)
class Disagreement:
    """A replay whose output differs from the steps' output, first in this collection: the updates that only one of both has."""

    replay: str
    collection: str
    only_steps: Matrix
    only_replay: Matrix


@dataclass(frozen=True)
class Replays:
    """The replays of a test over a graph; `logs` are the outputs of the steps."""

    material: Material
    graph: PhysicalGraph
    logs: Mapping[str, Matrix]

    def disagreement(self) -> tuple[int, Disagreement | None]:
        """Return the number of replays, and the first that disagrees."""
        tried = 0
        for name, log in self._replays():
            tried += 1
            for collection, found in log.items():
                steps = self.logs[collection]
                if not np.array_equal(found, steps):
                    differing = kernels.difference(steps, found)
                    more, fewer = differing[differing[:, -1] > 0], kernels.negated(differing[differing[:, -1] < 0])
                    return tried, Disagreement(name, collection, more, fewer)
        return tried, None

    def _replays(self) -> Iterator[tuple[str, dict[str, Matrix]]]:
        yield "all at once", self._run(self.material.updates, [self._last])
        one_by_one = [closing_up_to(time, self._times) for time in self._times]
        yield "one time at a time", self._run(self.material.updates, [*one_by_one, self._last])
        if (
            not any(isinstance(node, BOUND_TO_TIME) for node in self.graph.nodes)
            and len(self.material.subject.time) == 1
        ):
            # The state between two updates of one time may be one that the pipeline rightly rejects.
            with suppress(DdError):
                found = self._update_by_update()
                yield "one update at a time", found
        draw = random.Random(self.material.test.name)  # noqa: S311 - the same shuffles each time
        for number in range(1, SHUFFLES + 1):
            yield f"shuffled {number}", self._shuffled(draw)

    @property
    def _last(self) -> Frontier:
        return self.material.uppers[-1]

    @property
    def _times(self) -> list[Time]:
        """The times of all updates, in an order that extends their partial order."""
        nt = len(self.material.subject.time)
        found = {tuple(row) for matrix in self.material.updates.values() for row in matrix[:, -nt - 1 : -1].tolist()}
        return sorted(found, key=lambda time: (sum(time), time))

    def _run(self, updates: Mapping[str, Matrix], uppers: Sequence[Frontier], shards: int = 1) -> dict[str, Matrix]:
        """Run over updates, closing the times up to each frontier in turn, and return the outputs' logs."""
        subject = self.material.subject
        trial = Trial(
            self.graph,
            subject.kinds,
            subject.pool,
            facts=self.material.facts,
            shards=shards,
            lenient=subject.lenient,
        )
        return total(stepped(trial, updates, uppers))

    def _shuffled(self, draw: random.Random) -> dict[str, Matrix]:
        """Run over rows in another order, on another number of shards, cut at some of the times."""
        order = np.random.default_rng(draw.getrandbits(32))
        rows = {name: order.permutation(matrix) for name, matrix in self.material.updates.items()}
        cuts = [time for time in self._times if draw.random() < 0.5]
        uppers = [closing_up_to(time, self._times) for time in cuts]
        return self._run(rows, [*uppers, self._last], draw.randint(2, MOST_SHARDS))

    def _update_by_update(self) -> dict[str, Matrix]:
        """Run over the updates as if each were at a time of its own; of one time, retractions come first.

        In the returned logs, the changes at all these times are moved back to the original time.
        """
        parts = [
            (time, diff, name, at)
            for name, matrix in self.material.updates.items()
            for at, (time, diff) in enumerate(matrix[:, -2:].tolist())
        ]
        parts.sort(key=lambda part: part[:2])
        spread = {name: matrix.copy() for name, matrix in self.material.updates.items()}
        meant = np.empty(len(parts), np.int64)
        for number, (time, _, name, at) in enumerate(parts):
            spread[name][at, -2], meant[number] = number, time
        logs = self._run(spread, [Frontier([(number + 1,)]) for number in range(len(parts))] or [self._last])
        for log in logs.values():
            log[:, -2] = meant[log[:, -2]]
        return {name: kernels.consolidate(log) for name, log in logs.items()}


def stepped(trial: Trial, updates: Mapping[str, Matrix], uppers: Sequence[Frontier]) -> Iterator[dict[str, Matrix]]:
    """Yield the result of each step of a trial; a step closes the times up to the next frontier."""
    nt = trial.times
    for lower, upper in pairwise([Frontier([(LEAST,) * nt]), *uppers]):
        fed = {}
        for name in trial.layouts:
            times = updates[name][:, -nt - 1 : -1]
            fed[name] = np.ascontiguousarray(updates[name][closed(upper, times) & ~closed(lower, times)])
        yield trial.close(upper, fed)


def total(steps: Iterator[dict[str, Matrix]]) -> dict[str, Matrix]:
    """Return the logs of all steps together."""
    gathered: dict[str, list[Matrix]] = {}
    for step in steps:
        for name, matrix in step.items():
            gathered.setdefault(name, []).append(matrix)
    return {name: kernels.consolidate(np.concatenate(parts)) for name, parts in gathered.items()}


def closing_up_to(time: Time, times: Sequence[Time]) -> Frontier:
    """Return a frontier that closes the ordered `times` up to `time`, and no later ones."""
    upper = Frontier([(LEAST,) * len(time)])
    for each in times[: times.index(time) + 1]:
        upper = upper.join(up_to(each))
    return upper

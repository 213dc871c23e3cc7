"""Preparation before any work on a pipeline's data: its inputs are found and opened, the file is bound to their columns, and planned if no plan is kept."""

from __future__ import annotations

import time as clock
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ddcli.circuit.traces import StateAnswers
from ddcli.dataclass import dataclass, frozen
from ddcli.engine.counts import OUTPUT
from ddcli.engine.pool import Pool, new_secret
from ddcli.engine.times import BEYOND, Frontier, Time
from ddcli.job.budget import RunCost, written_bytes
from ddcli.job.inputs import (
    find_inputs,
    find_time,
    refuse_beyond_imports,
    refuse_changed,
    with_replaced_files,
    with_tags,
    with_tags_of_logs,
)
from ddcli.job.kept_plan import conditions_of
from ddcli.job.request import load_functions, newest_of, run_time
from ddcli.plan.physical import latest_horizon
from ddcli.plan.pipeline_file import BoundPipeline, OperatorPlace, classes_of_work, places
from ddcli.privacy import hide
from ddcli.sources.arrangement_input import SharedReader
from ddcli.sources.readers import facts_of, import_keys, open_logs, refuse_unclean, time_columns, with_grown_columns
from ddcli.spec.file import excerpts, identities, tables_of_queries
from ddcli.store.files.access import locate
from ddcli.store.log.reader import LogReader
from ddcli.store.log.schema import LogSchema
from ddcli.store.state.shared_arrangements import find_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ddcli.engine.counts import Counts
    from ddcli.engine.lanes import Layout, Matrix
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.plan.generations import Plan
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.plan.relation import Relation
    from ddcli.sinks.outputs import OutputWriter
    from ddcli.sources.readers import Reader
    from ddcli.sources.slices import InputFacts
    from ddcli.spec.model import Spec
    from ddcli.store.log.rows import Rows
    from ddcli.store.state.entries import ArrangementEntry
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.transaction import Transaction
    from ddcli.store.tables.listing import Listing


TOGETHER = 1 << 20
"""Rows that are read together."""


@dataclass
class WholeInputs:
    """The inputs of a request, open, and its collections. All values are in `pool`. `answers` are the results of functions that remember."""

    request: Request
    ready: Prepared
    pool: Pool = field(default_factory=lambda: Pool(new_secret()))
    answers: StateAnswers | None = None

    @classmethod
    def of(cls, request: Request, *, taken: bool = False, manifest: Manifest | None = None) -> Self:
        """Open the inputs of a request, or the files of them that its state has `taken` by its newest commit or `manifest`, and build its collections."""
        manifest = manifest or newest_of(request)
        found = cls(request, prepare(request, manifest, TOGETHER, whole=True, taken=taken))
        if manifest is not None:
            found.pool, found.answers = Pool(manifest.secret_bytes), StateAnswers(request.state, manifest)
        _ = found.relations  # errors of the file come before its functions' errors
        load_functions(request.spec)
        return found

    @classmethod
    def stateless(cls, request: Request) -> Self:
        """Open the inputs of a request that has neither a state nor a pipeline file."""
        return cls(request, prepare(request, None, TOGETHER, whole=True))

    @property
    def readers(self) -> dict[str, Reader]:
        """The inputs' readers."""
        return self.ready.readers

    @property
    def relations(self) -> dict[str, Relation]:
        """The inputs and collections by name."""
        return self.ready.bound.relations

    @property
    def time(self) -> Schema:
        """The columns of the time."""
        return self.ready.bound.time

    @property
    def kinds(self) -> Sequence[Type]:
        """The types of the coordinates of time."""
        return list(self.time.values())

    def latest(self) -> Time | None:
        """Return the largest value of each coordinate of time in the inputs; None without rows."""
        found = [time for reader in self.readers.values() if (time := _latest(reader))]
        return tuple(map(max, zip(*found, strict=True))) if found else None

    def matrix(
        self, name: str, layout: Layout, upper: Frontier, kept: Callable[[Rows], Rows] = lambda rows: rows
    ) -> Matrix:
        """Return an input's updates before a frontier, in the columns of a layout; `kept` selects the rows of a log."""
        parts = [np.empty((0, layout.width + len(self.time) + 1), np.int64)]
        reader = self.readers[name]
        for piece in reader.take(layout.names, None, upper.elements, TOGETHER).slices:
            if isinstance(reader, SharedReader):
                parts.append(piece.matrix(layout, self.pool))
            else:
                parts.append(kept(piece.read()).matrix(layout, self.pool))
        return np.concatenate(parts)

    def facts(self, upper: Frontier) -> dict[str, InputFacts]:
        """Return the facts that operators of inputs with keys or tables need, before a frontier."""
        return facts_of(self.request.spec, self.readers, None, upper.elements)


def _latest(reader: Reader) -> Time | None:
    """Return the largest value of each coordinate of time in an input; for another pipeline's arrangement, the last time that it has closed."""
    if not isinstance(reader, SharedReader):
        return reader.largest_time()
    corners = Frontier(reader.shared.manifest.upper).corners() if reader.shared.manifest.upper else ()
    return tuple(value - 1 for value in corners[0]) if len(corners) == 1 and BEYOND not in corners[0] else None


@frozen
class Prepared:
    """A request's inputs, found and open, and its file bound to their columns."""

    found: dict[str, InputFiles]
    readers: dict[str, Reader]
    bound: BoundPipeline


def bind_remembered(request: Request, manifest: Manifest) -> BoundPipeline:
    """Return a request's file bound to the columns of its inputs that a state remembers; no input is opened."""
    spec = request.spec
    schemas = {
        name: LogSchema.from_json(entry.schema).columns
        for name, entry in manifest.inputs.items()
        if name in spec.inputs
    }
    keys = {
        name: find_shared(locate(request.base, given.path.value), given.arrangement.value).entry.key
        for name, given in spec.inputs.items()
        if given.arrangement is not None
    }
    return BoundPipeline(with_tags_of_logs(spec, request.base), schemas, find_time(manifest), keys)


def prepare(
    request: Request,
    manifest: Manifest | None,
    most: int | None = None,
    *,
    found: dict[str, InputFiles] | None = None,
    whole: bool = False,
    taken: bool = False,
) -> Prepared:
    """Return the part of each input that the state of `manifest` has not taken, held to its columns and its times.

    `most` rows may be in memory at once; `found` are the inputs, if they were found beside this manifest already. With `whole`, return all of each input, arrangements of others as logs, and hold
    nothing to the state but an import, which began with it; with `taken`, without the files that are new to an input of the state.
    """
    before = manifest
    known = pins = None if request.decided.refreshes_all else manifest
    if found is None:
        found = find_inputs(request, manifest, anew=request.decided.refreshes_all)
    refuse_changed(found)
    if request.clock.arrival:
        at = run_time(request.clock, manifest)
        found = {name: given.with_arrival(at) for name, given in found.items()}
    if whole:
        past = manifest.inputs if taken and manifest is not None else ()
        found = {name: given.past() if name in past else given.whole() for name, given in found.items()}
        known, manifest = _imports_of(manifest), None
    if request.decided.forgetting is None:
        refuse_unclean(before, found)
    readers = open_logs(request, known, found, most, pins)
    time = time_columns(request, manifest, readers)
    if whole and known is not None:
        refuse_beyond_imports(
            request,
            time,
            {name: found[name] for name in known.inputs if name in found},
            Frontier(known.upper),
            asked=request.asked.until is not None,
        )
    schemas = {name: reader.schema.columns for name, reader in readers.items()}
    keys = {} if whole else import_keys(readers)
    spec = with_tags(request.spec, {name: given.tags for name, given in found.items()})
    return Prepared(found, readers, BoundPipeline(spec, schemas, time, keys, lambda: sizes(found)))


def prepare_run(
    request: Request, manifest: Manifest | None, most: int | None, found: dict[str, InputFiles] | None
) -> tuple[Request, Prepared]:
    """Return the request of a run that takes in new rows, with the files that others replace and the columns that its inputs have got, and its inputs, as `prepare` does."""
    request, found = with_replaced_files(request, manifest, found)
    ready = prepare(request, manifest, most, found=found)
    request = with_grown_columns(request, ready.readers)
    if amended := _with_amended_files(request, manifest, ready):
        return amended, prepare(amended, manifest, most)
    return request, ready


def _with_amended_files(request: Request, manifest: Manifest | None, ready: Prepared) -> Request | None:
    """Return the request that takes in files that replace withdrawn ones with the times of their rows, where some are late.

    None where there are no such files: then they are new like any other.
    """
    if (
        manifest is None
        or not manifest.upper
        or request.decided.withdrawn
        or request.clock.arrival
        or request.decided.refreshes_all
    ):
        return None
    found = {
        name: reader.listing.amended
        for name, reader in ready.readers.items()
        if reader.listing.amended and isinstance(reader, LogReader) and reader.late_times(manifest.upper) is not None
    }
    return request.deciding(withdrawn=found) if found else None


def _imports_of(manifest: Manifest | None) -> Manifest | None:
    """Return a manifest with those inputs alone that are arrangements of other pipelines; None where it has none."""
    imports = {name: entry for name, entry in (manifest.inputs if manifest else {}).items() if entry.is_imported}
    return replace(manifest, inputs=imports) if manifest and imports else None


def input_horizons(request: Request, listings: Mapping[str, Listing]) -> dict[str, int]:
    """Return, for each input that is a log with a summed-up past, the time from which on it has its updates.

    Under the clock of arrivals all rows are new to a pipeline that reads them first; to one that forgets others of them, they all came with the last file.
    """
    if request.clock.arrival:
        times = {
            name: [file.at for file in each.files if file.path in each.summed and file.at is not None]
            for name, each in listings.items()
        }
        return {name: max(each) for name, each in times.items() if each and request.decided.forgetting is not None}
    return {name: each.horizon[0] for name, each in listings.items() if each.horizon is not None}


def horizons_of(request: Request, graph: PhysicalGraph, listings: Mapping[str, Listing]) -> dict[str, int]:
    """Return, for outputs over logs with a summed-up past, the time from which on they have their updates if they are written from the beginning."""
    horizons = input_horizons(request, listings)
    found = {name: latest_horizon(node, horizons) for name, node in graph.outputs.items()} if horizons else {}
    return {name: time for name, time in found.items() if time is not None}


def sizes(found: Mapping[str, InputFiles]) -> dict[str, int]:
    """Return the bytes of the files of each input that has any."""
    return {name: given.listing.size for name, given in found.items() if given.listing.size}


def _outline_of_file(spec: Spec) -> dict[str, Any]:
    """Return what a state keeps of the file itself: the texts of collections, for people, the identities of its parts, and the tables of its queries."""
    return {"collections": excerpts(spec), "identities": identities(spec), "tables": tables_of_queries(spec)}


@dataclass
class RunPlan:
    """The plan of a run: the graph that an earlier run kept, if inputs, file and state are the same, else a new plan, with all its parts."""

    request: Request
    manifest: Manifest | None
    bound: BoundPipeline

    @cached_property
    def plan(self) -> Plan:
        """The plan made from the file, with the decisions of the state's plan; a refresh of everything plans anew, but for one that forgets rows."""
        kept = (
            self.manifest
            if not self.request.decided.refreshes_all or self.request.decided.forgetting is not None
            else None
        )
        return self.bound.plan(kept.cache["plan"] if kept else None)

    @cached_property
    def known(self) -> PhysicalGraph | None:
        """The graph that an earlier run kept, if the state was made by it."""
        kept, manifest = self.request.kept, self.manifest
        if kept is None or manifest is None or self.request.decided.refreshes_all:
            return None
        return kept.graph(conditions_of(self.bound, manifest.cache["plan"]["generations"]), manifest.plan)

    @property
    def graph(self) -> PhysicalGraph:
        """The graph to compute."""
        found = self.known or self.plan.graph
        hide(found.tags.get("", {}))
        return found

    @cached_property
    def places(self) -> dict[str, OperatorPlace]:
        """The places in the file of counted operators and outputs. Computed only for messages, as that takes the whole plan."""
        outputs = {
            OUTPUT + name: OperatorPlace(f"outputs.{name}", output.name.span, "output")
            for name, output in self.request.spec.outputs.items()
        }
        return places(self.bound, self.plan) | outputs

    def outline(self) -> dict[str, Any]:
        """Return the JSON that a manifest keeps of the plan."""
        kept = self.plan.to_json()
        outline = kept["outline"] | _outline_of_file(self.request.spec)
        return kept | {"outline": outline, "work": classes_of_work(self.bound, self.plan)}

    def outline_of(self, manifest: Manifest) -> dict[str, Any]:
        """Return the JSON that a state keeps of its own plan, with the present texts of its collections."""
        kept: dict[str, Any] = manifest.cache["plan"]
        described = manifest.pipeline == self.request.digest and kept["outline"].keys() >= {
            "collections",
            "identities",
            "tables",
        }
        if described and self.known is not None:  # a plan that was kept is by this very version of dd
            return kept
        return kept | {"outline": kept["outline"] | _outline_of_file(self.request.spec)}

    def check_work(self) -> None:
        """Raise the first error of operators that may do more work than the budget allows; a kept plan passed this check when it was made."""
        if self.request.asked.budget is not None and self.known is None:
            errors = self.request.asked.budget.check_work(self.plan.graph, lambda: self.places)
            if errors:
                raise errors[0]

    def check_spent(self, counts: Counts, written: Callable[[], Mapping[str, int]] = dict) -> None:
        """Raise BudgetError if a run took more than its budget so far; `written` returns the bytes that it wrote, by operator and output."""
        budget = self.request.asked.budget
        if budget is not None:
            budget.check(RunCost(counts, clock.perf_counter() - budget.began, written()), lambda: self.places)

    def check_written(
        self,
        transaction: Transaction,
        counts: Counts,
        arrangements: Mapping[str, ArrangementEntry],
        publishing: OutputWriter,
    ) -> None:
        """Raise BudgetError if a run is about to commit more than its budget: these `arrangements`, as it leaves them, and outputs."""
        files = written_bytes(transaction.number, arrangements, publishing.written())
        self.check_spent(counts, lambda: files)

    def keep(self, generations: Any) -> None:
        """Keep the plan for runs on a state that remembers these generations."""
        kept = self.request.kept
        if kept is not None and self.known is None:
            # The decisions that a plan remembers are made again as they were: no need to do that twice.
            kept.keep(self.request.spec, conditions_of(self.bound, generations), self.plan.graph)


@contextmanager
def copy_directory() -> Iterator[Callable[[], Path]]:
    """Yield a function that returns a temporary directory for copies of files, which is made when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda: Path(stack.enter_context(TemporaryDirectory(prefix="dd-"))))

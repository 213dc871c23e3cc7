"""The files of inputs as they were before runs replaced or withdrew them, read from the copies that a state keeps.

As of a time an input has, of each path, the version that was replaced first after it; without one the present file. That is what the outputs held at
that time, under either clock: the difference between two versions counts from the first open time of the run that replaced one. A withdrawn file that is
still in its place is its own copy. A version without a copy is unknown: the present file stands for it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddcli.driver.prepare import TOGETHER, prepare
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout
from ddcli.errors import DdError
from ddcli.expressions.types import ARRIVAL_TIME, no_column
from ddcli.job.inputs import InputFiles, find_inputs
from ddcli.job.request import load_functions, newest_of
from ddcli.job.summary import run_text
from ddcli.provenance.inputs import Inputs, near
from ddcli.provenance.question import Question
from ddcli.sources.readers import in_files, open_logs
from ddcli.store.state.ledger import restore
from ddcli.store.tables.listing import Listing
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from ddcli.engine.lanes import Matrix
    from ddcli.job.request import Request
    from ddcli.plan import logical
    from ddcli.provenance.evaluated_plan import Contents
    from ddcli.provenance.inputs import Where
    from ddcli.store.state.entries import InputFile, ReplacedFile


TRIED = 8
"""The newest runs with replaced files that may have changed a record: for each the rows that may matter are read twice."""

SHOWN = 3
"""The rows that a message names."""


class FileHistory:
    """The replaced and withdrawn files of a request's inputs, whose copies are put into a directory; with `taken` without files that no run has read."""

    def __init__(self, request: Request, copies: Callable[[], Path], *, taken: bool = False) -> None:
        self.request, self.taken = request, taken
        self.manifest = newest_of(request)
        entries = self.manifest.inputs if self.manifest is not None else {}
        self.replaced: Mapping[str, tuple[ReplacedFile, ...]] = {
            name: entry.replaced for name, entry in entries.items() if entry.replaced and name in request.spec.inputs
        }
        self._copies = copies
        self._places: dict[tuple[str, int], Path | None] = {}
        self.copied: dict[str, str] = {}
        """The paths of files by the paths of their copies."""

    @cached_property
    def _found(self) -> dict[str, InputFiles]:
        return find_inputs(self.request, self.manifest)

    def changes(self, names: Collection[str]) -> list[int]:
        """Return the times, in order, at which files of some inputs were replaced or withdrawn."""
        return sorted({each.until for name in names for each in self.replaced.get(name, ())})

    def files(self, names: Iterable[str], until: int) -> list[str]:
        """Return the files of some inputs that were replaced or withdrawn at a time."""
        gone = ((name, each) for name in names for each in self.replaced.get(name, ()) if each.until == until)
        return [str(self._found[name].listing.root / each.path) for name, each in gone]

    def run(self, until: int) -> str:
        """Return the run that replaced or withdrew files at a time, by its clock."""
        return next(self._run(each) for files in self.replaced.values() for each in files if each.until == until)

    def _run(self, replaced: ReplacedFile) -> str:
        assert self.manifest is not None, "it has the file"
        return run_text(self.request.state, self.manifest, replaced)

    def inputs(self, now: Inputs, time: int) -> Inputs:
        """Return the inputs with the files that they had at a time, in the pool of their present values."""
        now.lifetimes = self.lifetimes if self.replaced else None
        if not any(until > time for until in self.changes(self.replaced)):
            return now
        found = dict(self._found)
        for name, files in self.replaced.items():
            former = {each.path: at for at, each in reversed([*enumerate(files)]) if each.until > time}
            kept = [self._as_copied(name, at) for at in former.values()]
            unknown = [files[at].path for at, file in zip(former.values(), kept, strict=True) if file is None]
            for path in unknown:
                self.request.asked.say(
                    f"{path} of {name} is read as it is now: the state no longer has a copy of what it was"
                )
            found[name] = replace(
                found[name], listing=_with(found[name].listing, {*former} - {*unknown}, [file for file in kept if file])
            )
        ready = prepare(self.request, self.manifest, TOGETHER, found=found, whole=True, taken=self.taken)
        inputs = Inputs(self.request, ready, now.pool, now.answers)
        inputs.lifetimes, inputs.copied, inputs.files_at = self.lifetimes, self.copied, time
        _ = inputs.relations
        load_functions(self.request.spec)
        return inputs

    def lifetimes(
        self, inputs: Inputs, source: logical.Source, path: str, wanted: Matrix
    ) -> dict[bytes, tuple[str | None, str | None]]:
        """Return the runs with which rows of a file came and went (None: unknown, or not yet), by the bytes of the rows, if the file has been replaced."""
        name = source.name
        versions = [(at, each) for at, each in enumerate(self.replaced.get(name, ())) if each.path == path]
        if not versions:
            return {}
        listing, layout = self._found[name].listing, Layout(source.schema)
        files: list[InputFile | None] = [self._as_copied(name, at) for at, _ in versions]
        files += [next((file for file in listing.files if file.path == path and not file.archived), None)]
        rows = [self._rows(inputs, name, layout, file) for file in files]
        time = inputs.files_at
        now = (
            len(versions)
            if time is None
            else next((at for at, (_, each) in enumerate(versions) if each.until > time), len(versions))
        )
        found = {}
        for row, key in zip(wanted, _keys(inputs, layout, wanted), strict=True):
            first = last = now
            while first and _follows(files, first) and key in rows[first - 1]:
                first -= 1
            while last < len(versions) and _follows(files, last + 1) and key in rows[last + 1]:
                last += 1
            file = files[first]
            came = format_time((file.at,), [ARRIVAL_TIME]) if file is not None and file.at is not None else None
            if first and _follows(files, first):
                came = self._run(versions[first - 1][1]) if files[first - 1] else None
            went = self._run(versions[last][1]) if last < len(versions) else None
            found[row.tobytes()] = came, went
        return found

    def _rows(self, inputs: Inputs, name: str, layout: Layout, file: InputFile | None) -> frozenset[bytes]:
        """Return the rows of one file, without what depends on its place among others."""
        if file is None:
            return frozenset()
        listing = self._found[name].listing
        one = Listing(listing.root, (), (file,), base=listing.base, gone=listing.gone)
        alone = replace(self._found[name], listing=one)
        found = set[bytes]()
        try:
            reader = in_files(open_logs(self.request, None, {name: alone}, TOGETHER, self.manifest))[name]
            for _, _, rows in reader.parts(layout.names, TOGETHER):
                found.update(_keys(inputs, layout, rows.matrix(layout, inputs.pool)))
        except DdError:
            return frozenset()  # of other columns than now
        return frozenset(found)

    def _as_copied(self, name: str, at: int) -> InputFile | None:
        """Return a replaced file as an archived one, in the place of its copy, or in its own where it was withdrawn and is still there; None without one."""
        each = self.replaced[name][at]
        if (name, at) not in self._places:
            assert self.manifest is not None, "it has the file"
            place, listing = self._copies() / f"{len(self._places)}", self._found[name].listing
            known = restore(self.request.state, self.manifest.inputs[name].ledger, [each.file], place)
            last = all(other.path != each.path for other in self.replaced[name][at + 1 :])
            there = [listing.path(file) for file in listing.withdrawn if last and file.key == each.file.key]
            self._places[name, at] = place / each.file.path if known else next(iter(there), None)
            self.copied[str(place / each.file.path)] = str(listing.root / each.file.path)
        path = self._places[name, at]
        return None if path is None else replace(each.file, fingerprint="", archived=str(path))

    def last(self, collection: str, asked: Question, only: int | None = None) -> ReplacedBy | None:
        """Return the last of the newest runs up to a question's time, or the one at the time `only`, with whose replaced or withdrawn files its records changed; None without one."""
        names, (time, *more) = [*asked.sources], asked.time
        times = [] if more else [until for until in self.changes(names) if until <= time and only in (None, until)]
        for until in reversed(times[-TRIED:]):
            # At one time, so that new files of the run don't count.
            now, before = (self._with_files(collection, asked, at, until) for at in (until, until - 1))
            each = [question.records() for question in (now, before)]
            if len(kernels.difference(*(found.matrix for found in each))):
                run, files = self.run(until), self.files(names, until)
                places = [[*_places(*pair)] for pair in zip((now, before), each, strict=True)]
                came = [place for place in places[0] if place.came == run]
                went = [place for place in places[1] if place.went == run]
                named = {place.file.rpartition(":")[0] if place.row is None else place.file for place in (*came, *went)}
                shown = [near(file) for file in files]
                some = tuple(file for file in shown if file in named or not named.intersection(shown))
                return ReplacedBy(until, run, some, *(tuple(dict.fromkeys(map(str, rows))) for rows in (came, went)))
        return None

    def _with_files(self, collection: str, asked: Question, at: int, time: int) -> Question:
        """Return a question about a time, over the files as of another."""
        inputs = self.inputs(asked.inputs, at)
        return Question(inputs, inputs.relations[collection].node, asked.values, (time,), asked.limit)


def _with(listing: Listing, paths: Collection[str], files: list[InputFile]) -> Listing:
    """Return a listing with files in the places of those that have these paths now."""
    new, waiting, done = (
        tuple(file for file in each if file.path not in paths) for each in (listing.new, listing.waiting, listing.done)
    )
    return replace(listing, new=new, waiting=waiting, done=(*done, *files))


def _follows(files: list[InputFile | None], at: int) -> bool:
    """Return whether a version of a file has replaced the one before it: else the file was withdrawn, and has come anew."""
    before, now = files[at - 1], files[at]
    return before is None or now is None or before.at == now.at


def _keys(inputs: Inputs, layout: Layout, matrix: Matrix) -> list[bytes]:
    """Return the values of rows, with their own times, as bytes."""
    lanes = layout.take([name for name in layout.names if no_column(name) is None])
    times = [] if inputs.request.clock.arrival else range(layout.width, matrix.shape[1] - 1)
    return [row.tobytes() for row in np.ascontiguousarray(matrix[:, [*lanes, *times, -1]])]


class ReplacedBy(NamedTuple):
    """A run that replaced or withdrew files, the first time at which that counts, the files that changed some records, and the places of rows that came and went."""

    until: int
    run: str
    files: tuple[str, ...]
    came: tuple[str, ...] = ()
    went: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Return the run in words."""
        return f"the run of {self.run}, which replaced or withdrew {', '.join(self.files)}"

    @property
    def rows(self) -> str:
        """Return the rows in words."""
        parts = [(f"{_listed(each)} {word}") for each, word in ((self.went, "went"), (self.came, "came")) if each]
        return " and ".join(parts)


def _listed(places: tuple[str, ...]) -> str:
    """Return places in words, of many the first."""
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return ", ".join(places[:SHOWN]) + more


def _places(question: Question, found: Contents) -> Iterator[Where]:
    """Yield the places of the updates that explain the first of some records."""
    for first in found.first(question.limit):
        for places in question.places(question.explained(*first).reason.leaves).values():
            yield from places

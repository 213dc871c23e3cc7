"""Files that come again, or are withdrawn, at the cost of their rows: by the ledger of their input, which has them as they were taken in.

The run that takes in new rows takes back the rows of the copies and inserts the rows of the present files, in its one commit. Both have the
time of the run, so that their common rows cancel where they are first consolidated.

That is exact where the records of an input add up: at each time the input then holds what it would hold if the files had always been as they are now, and all
operators are functions of that. Rows with keys, and tables, depend on the order of files (see below). Others are left to `migration`, which reads the input
again: a standing record of SQL on rows that ever were; rows that can't be read are in a side log. So is a state without copies.

Of rows with keys, each key whose row differs between the two gets its newest row, as a row of the run. A file keeps its place in the order of arrival, and
a row its time and order, so other files may have newer rows. The newest row of a key is in a replaced file or in another one: if the newest row among the replaced files stays
the same, and in the same place, so does the key's record. All other keys are looked up in the files that came with the replaced ones or later, and if they are not
there, in the earlier ones, because the state has only the newest row. That may read the input, but computes only the changes of these keys.

Of tables the newest counts: the table of the files as they are now is a table of the run, unless the run has a newer one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.circuit.retention import kept_past
from ddcli.dataclass import dataclass
from ddcli.driver.ledgers import has_ledger
from ddcli.engine.operators.upsert import CORRECTS, NOTHING_LEFT
from ddcli.engine.times import Frontier
from ddcli.expressions.types import ARRIVAL
from ddcli.job.idle_check import is_changed
from ddcli.job.inputs import InputFiles, find_seen, find_time
from ddcli.job.request import run_time
from ddcli.plan.logical import Once
from ddcli.plan.physical import physical_graph
from ddcli.plan.temporal import Delay
from ddcli.sources.readers import in_files, open_logs, refuse_unclean
from ddcli.sources.slices import Corrected, InputFacts, InputSlice, Settled
from ddcli.store.log.pieces import WITHIN, LogSlice, natural
from ddcli.store.log.reader import LogReader
from ddcli.store.log.rows import MOMENT, ORDER, PRESENT, SEQUENCE, Rows
from ddcli.store.state.ledger import holding, read_keys, restore
from ddcli.store.tables.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.driver.prepare import Prepared
    from ddcli.engine.times import Time
    from ddcli.job.request import Request
    from ddcli.plan.node import Node
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.sources.readers import Reader
    from ddcli.sources.slices import Feed, Slice
    from ddcli.store.formats.base import Format
    from ddcli.store.state.entries import InputFile, Times
    from ddcli.store.state.manifest import Manifest

SMALL = 64
"""The part of the memory that replaced files may have on disk, where a run may be on Spark: this process reads them, and sends their rows to tasks."""
SEARCHED = 8
"""The part of the memory that all files of an input with keys may have then: this process holds the hashes of their keys, and looks keys up in them."""


FILE = "$file"
"""The column with the path of a row's file."""
KEY = "$key"
"""The column with the number of a row's key, of those that are looked up."""
TURNS = 3
"""The times that files are chosen by the keys that they may have, the newest ones first; the last time all that are left."""
BEFORE_ALL = -(1 << 63)
"""The order of the rows that correct a key: other rows of the run come later."""


@dataclass
class Replacement:
    """Some files of an input as they were taken in, and the files that are in their places now, if there are any."""

    before: LogReader
    after: LogReader
    time: Time
    closed: Times
    """The frontier up to which the rows of the earlier files were taken."""

    def rows(self, upper: Times) -> int:
        """Return an upper bound of the number of updates that the replacement makes before a frontier."""
        return self.before.take((), None, self.closed).rows + self.after.take((), None, upper).rows

    def taken(self, columns: Iterable[str], upper: Times, most: int | None = None) -> InputSlice:
        """Return the difference that the replacement makes before a frontier, in slices of at most `most` rows."""
        before, after = (
            self.before.take(columns, None, self.closed, most),
            self.after.take(columns, None, upper, most),
        )
        taken = ((before, -1), (after, 1))
        slices = [Corrected(part, self.time, sign) for each, sign in taken for part in each.slices]
        return InputSlice(slices, sum(each.rows for each, _ in taken))

    def files(self, upper: Times) -> tuple[InputFile, ...]:
        """Return the files that are there now, as the next manifest is to have them."""
        return self.after.take((), None, upper).files


def read_slice(part: Slice) -> Slice:
    """Return a slice with its rows, which any process can take, if it is of files."""
    if isinstance(part, Corrected | Settled) and isinstance(part.part, LogSlice):
        return replace(part, part=part.part.read())
    return part.read() if isinstance(part, LogSlice) else part


def with_copied_rows(sources: Mapping[str, Feed], readers: Mapping[str, Reader]) -> dict[str, Feed]:
    """Return the sources of a run on Spark with the rows of inputs some of whose files are gone: tasks on other machines lack the copies."""
    return {
        name: InputSlice([*map(read_slice, each.slices)], each.rows)
        if name in readers and readers[name].listing.copies
        else each
        for name, each in sources.items()
    }


@dataclass
class KeyedReplacement(Replacement):
    """Some files of rows with keys as they were read, and those that are in their places now."""

    every: Sequence[InputFile]
    """All files as they are now, without new ones."""
    opened: Callable[[Sequence[InputFile]], LogReader]
    """The reader of some of these."""
    most: int
    """The number of rows that may be in memory."""
    hashes: Callable[[], Mapping[str, bytes]]
    """The hashes of the keys of these files, by path, as far as the state has them."""
    facts: InputFacts
    """The descriptions of errors."""

    def taken(self, columns: Iterable[str], upper: Times, most: int | None = None) -> InputSlice:
        columns = tuple(columns)
        open_rows = self.after.take(columns, self.closed, upper, most)
        frames = [[*self._placed(reader, columns)] for reader in (self.before, self.after)]
        some = [*frames[0], *frames[1]][:1]
        if not some:
            return InputSlice(open_rows.slices, open_rows.rows)
        old, new = (self._newest(pl.concat([some[0].clear(), *each])) for each in frames)
        changed = self._differing(old, new)
        if not changed.height:
            return InputSlice(open_rows.slices, open_rows.rows)
        rows = self._now(columns, changed, old.drop(FILE, strict=False), new)
        (time,) = self.before.schema.time
        times = pl.DataFrame({time: pl.repeat(self.time[0], rows.height, dtype=pl.Int64, eager=True)})
        if not self._lasting:
            rows = rows.with_columns(pl.lit(BEFORE_ALL, pl.Int64).alias(ORDER)).drop(MOMENT)
        diffs = pl.repeat(1, rows.height, dtype=pl.Int64, eager=True)
        return InputSlice((Rows(rows, diffs, times), *open_rows.slices), rows.height + open_rows.rows)

    @property
    def _keys(self) -> list[str]:
        return list(self.before.log.key)

    @property
    def _lasting(self) -> bool:
        """Return whether the order of a key's rows decides across times."""
        return self.before.log.lasting

    @property
    def _arrives(self) -> bool:
        """Return whether rows have the time at which their file arrived."""
        return ARRIVAL in self.before.log.time

    def _now(
        self, columns: tuple[str, ...], changed: pl.DataFrame, old: pl.DataFrame, new: pl.DataFrame
    ) -> pl.DataFrame:
        """Return the newest row of each changed key; for one without any, its old row, which deletes it. `new` are the newest rows of the files that replace others.

        Where rows are as new as their files, only keys without a row in the replaced files, or later ones, are looked up in earlier files. Only
        files are read that may have such a key, by the hashes of their keys.
        """
        on, now = self._keys, old.clear()
        for files in self._newest_first():
            left = changed.join(now, on=on, how="anti", nulls_equal=True)
            if files and left.height:
                now = pl.concat([now, *self._looked_up(columns, files, left, old.clear(), new)])
        gone = old.join(changed, on=on, how="semi", nulls_equal=True).join(now, on=on, how="anti", nulls_equal=True)
        if not self._lasting:
            return pl.concat([now, gone.with_columns(pl.lit(0, pl.Int64).alias(PRESENT))])
        return pl.concat(
            [
                now.with_columns(pl.col(PRESENT) + CORRECTS),
                gone.with_columns(
                    pl.lit(NOTHING_LEFT, pl.Int64).alias(PRESENT),
                    *(pl.lit(BEFORE_ALL, pl.Int64).alias(name) for name in (ORDER, MOMENT, SEQUENCE)),
                ),
            ]
        )

    def _looked_up(
        self,
        columns: tuple[str, ...],
        files: Sequence[InputFile],
        left: pl.DataFrame,
        nothing: pl.DataFrame,
        new: pl.DataFrame,
    ) -> Iterator[pl.DataFrame]:
        """Yield the newest rows in some files of those keys `left` that have one there.

        Where rows are as new as their files, the `new` rows of files that replace others come first, then the newest file that may have a key, and files
        whose keys aren't known. A row counts if no newer file may have its key; else its file may have to be read again.
        """
        files = sorted(files, key=lambda file: (file.at or 0, natural(file.path)))
        may_have, known = holding(self.hashes(), self.before.key_kinds, [file.path for file in files], left)
        if self._lasting or not self._arrives:
            some = [files[at] for at in np.flatnonzero(may_have.any(axis=1)).tolist()]
            if not some:
                return
            reader = self.opened(some)
            frames = _frames(reader, columns, self.closed, self.most)
            every = pl.concat(
                [nothing, *(frame.join(left, on=self._keys, how="semi", nulls_equal=True) for frame in frames)]
            )
            found = self._newest(every)
            if not self._arrives:
                self._refuse_ties(every, found)
            yield found
            return
        number = {file.path: at for at, file in enumerate(files)}
        left = left.with_row_index(KEY)
        read = {file.path for file in self.after.listing.to_read}
        chosen = np.array([at for at, file in enumerate(files) if file.path in read], np.int64)
        placed: Iterable[pl.DataFrame] = [new] if len(chosen) else []
        for turn in range(TURNS + 1):
            if turn:
                first = np.isin(np.arange(len(files)), _last(may_have)) | ~known
                chosen = np.flatnonzero(first & may_have.any(axis=1) if turn < TURNS else may_have.any(axis=1))
                if not len(chosen):
                    return
                placed = self._placed(self.opened([files[at] for at in chosen.tolist()]), columns, self.most)
            there = [frame.join(left, on=self._keys, how="inner", nulls_equal=True) for frame in placed]
            may_have[chosen] = False
            if not there:
                continue
            found = self._newest(pl.concat(there))
            keys, places = found[KEY].to_numpy(), found[FILE].replace_strict(number, return_dtype=pl.Int64).to_numpy()
            sure = places > _last(may_have)[keys]
            may_have[:, keys[sure]] = False
            may_have[places[~sure], keys[~sure]] = True
            done = found.filter(pl.Series(sure))
            left = left.join(done, on=KEY, how="anti")
            yield done.select(nothing.columns)

    def _newest_first(self) -> Sequence[Sequence[InputFile]]:
        """Return the files in parts, the part with the newest rows first."""
        if self._lasting or not self._arrives:
            return [self.every]
        first = min(file.at or 0 for file in self.before.listing.to_read)
        later = [file for file in self.every if (file.at or 0) >= first]
        return later, [file for file in self.every if (file.at or 0) < first]

    def _newest(self, rows: pl.DataFrame) -> pl.DataFrame:
        return newest_rows(rows, self.before.log)

    def _refuse_ties(self, rows: pl.DataFrame, newest: pl.DataFrame) -> None:
        """Raise InputError where a key has different rows that are the newest."""
        place = [*self._keys, MOMENT, ORDER]
        tied = rows.join(newest, on=place, how="semi", nulls_equal=True).unique(maintain_order=True)
        twice = tied.filter(pl.struct(place).is_duplicated())
        if twice.height:
            row = twice.row(0, named=True)
            raise self.facts.tied({name: row[name] for name in self._keys}, row[MOMENT])

    def _placed(self, reader: LogReader, columns: tuple[str, ...], most: int | None = None) -> Iterable[pl.DataFrame]:
        """Yield the rows of files with their times, and under the clock of arrivals the paths of their files, which the order shows."""
        paths = pl.Series(FILE, sorted((file.path for file in reader.listing.to_read), key=natural), pl.String)
        for frame in _frames(reader, columns, self.closed, most):
            order = frame[SEQUENCE if self._lasting else ORDER]
            yield frame.with_columns(paths[order // (1 << WITHIN)]) if self._arrives else frame

    def _differing(self, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
        """Return the keys whose rows differ, or are in different places; all of both, where values of a type may be equal to polars that are not the same."""
        both = [old, new]
        beside = (MOMENT, SEQUENCE if self._lasting else ORDER) if self._arrives else ()
        values = [name for name in old.columns if name not in beside]
        if not any(kind.is_float() or kind.is_nested() for kind in old.schema.values()):
            both = [one.join(other, on=values, how="anti", nulls_equal=True) for one, other in ((old, new), (new, old))]
        return pl.concat([each.select(self._keys) for each in both]).unique()


def newest_rows(rows: pl.DataFrame, log: Format) -> pl.DataFrame:
    """Return the newest row of each key of a log, whose rows have their times."""
    by = (ORDER, MOMENT, SEQUENCE) if log.lasting else (MOMENT, ORDER)
    return rows.sort(by).unique(list(log.key), keep="last", maintain_order=True)


def _last(may_have: np.ndarray) -> np.ndarray:
    """Return the number of the last file that may have each key, -1 for none."""
    count = len(may_have)
    return np.where(may_have.any(axis=0), count - 1 - may_have[::-1].argmax(axis=0), -1)


def _frames(
    reader: LogReader, columns: tuple[str, ...], upper: Times, most: int | None = None
) -> Iterable[pl.DataFrame]:
    """Yield the rows of files with their times."""
    for part in reader.take(columns, None, upper, most).slices:
        rows = part.read()
        yield rows.frame.with_columns(rows.times.to_series().cast(pl.Int64).alias(MOMENT))


@dataclass
class TableReplacement(Replacement):
    """Some files of tables as they were read, and those that are in their places now. The reader of new files, `new`, learns the tables of the run from it."""

    whole: LogReader
    """The reader of all files as they are now, without new ones."""
    new: LogReader

    def __post_init__(self) -> None:
        self.whole.follow(None)
        self.new.follow(self.whole)
        self.new.more_tables.update(self.time)

    @property
    def _newest(self) -> list[int]:
        """The time of the newest table of the files as they are now, if there is one."""
        return self.whole.snapshot_times(None, self.closed)[-1:]

    def rows(self, upper: Times) -> int:
        return self.taken((), upper).rows

    def taken(self, columns: Iterable[str], upper: Times, most: int | None = None) -> InputSlice:
        columns = tuple(columns)
        opened = self.after.take(columns, self.closed, upper, most)
        coming = {*self.new.tables_in(self.closed, upper), *self.after.snapshot_times(self.closed, upper)}
        self.new.more_tables |= {*self.after.snapshot_times(self.closed, upper)}
        slices: list[Slice] = [*opened.slices]
        rows = opened.rows
        if self._newest and self.time[0] not in coming:
            table = self.whole.take(columns, ((self._newest[0],),), self.closed, most)
            slices += [Corrected(part, self.time, 1) for part in table.slices]
            rows += table.rows
        return InputSlice(slices, rows)


def with_copies(
    request: Request, manifest: Manifest, ready: Prepared, graph: PhysicalGraph, place: Callable[[], Path]
) -> Request:
    """Return the request that replaces the files that it withdraws by the state's copies of them, which are put below `place`; the same one where that can't be done."""
    decided = request.decided
    if (
        not decided.withdrawn
        or decided.refreshes_all
        or (  # a comparison has no run of its own that could have a table
            request.asked.receives is not None
            and any(request.spec.inputs[name].format == "snapshots" for name in decided.withdrawn)
        )
        or decided.forgetting is not None
        or any(
            given.grows for given in request.spec.inputs.values()
        )  # new files may add columns, after which the plan is another
        or is_changed(request.deciding(withdrawn={}), manifest, graph.fingerprint)
        or _has_standing_record(graph, decided.withdrawn)
        or not (request.clock.arrival or may_emit_ahead(request, manifest, graph))
        or not all(
            has_ledger(request, name, reader := ready.readers[name]) and is_corrected_by_rows(request, reader)
            for name in decided.withdrawn
        )
        or (_may_be_on_spark(request, graph) and not _is_small(request, manifest, ready))
    ):
        return request
    copies = {}
    for name, keys in decided.withdrawn.items():
        entry = manifest.inputs[name]
        files = [file for file in entry.files if file.key in keys and not file.withdrawn]
        if not entry.ledger or any(file.since is not None for file in entry.files if file.key in keys):
            return request
        copies[name] = place() / name
        if not restore(request.state, entry.ledger, files, copies[name]):
            return request
    return request.deciding(copies=copies)


def open_replacements(
    request: Request, manifest: Manifest, ready: Prepared, most: int
) -> dict[str, Replacement] | None:
    """Return the replacements of a request with copies; None where rows that can't be read are among theirs."""
    ((first,),) = manifest.upper
    at = run_time(request.clock, manifest) if request.clock.arrival else first
    before, after = dict[str, InputFiles](), dict[str, InputFiles]()
    for name, root in request.decided.copies.items():
        keys = request.decided.withdrawn[name]
        files = (file for file in manifest.inputs[name].files if file.key in keys and not file.withdrawn)
        # The copies are known by the ledger: in an object store a fingerprint is no digest.
        before[name] = InputFiles(None, Listing(root, (), tuple(replace(file, fingerprint="") for file in files)))
        replacing = ready.found[name].replacing
        assert replacing is not None, "the input has copies"
        after[name] = InputFiles(None, replacing)
    refuse_unclean(manifest, after)
    both = [in_files(open_logs(request, manifest, each, most)) for each in (before, after)]
    if any(reader.unparsed for readers in both for reader in readers.values()):
        return None
    found = dict[str, Replacement]()
    for name, (old, new) in ((name, (both[0][name], both[1][name])) for name in before):
        every = old, new, (at,), manifest.upper
        if old.log.adds_up:
            found[name] = Replacement(*every)
            continue
        past = ready.found[name].listing.past()
        present = sorted((*past.waiting, *new.listing.to_read), key=lambda file: file.path)

        def opened(some: Sequence[InputFile], name: str = name, past: Listing = past) -> LogReader:
            (reader,) = open_logs(
                request, manifest, {name: replace(ready.found[name], listing=replace(past, waiting=tuple(some)))}, most
            ).values()
            assert isinstance(reader, LogReader), "a reader of files"
            return reader

        if old.log.tables:
            found[name] = TableReplacement(*every, opened(present), in_files(ready.readers)[name])
            continue
        if old.log.truncating() and any(each.truncations(None, manifest.upper) for each in (old, opened(present))):
            return None
        hashes = cache(partial(read_keys, request.state, manifest.inputs[name].keys, present))
        found[name] = KeyedReplacement(
            *every, present, opened, most, hashes, InputFacts(request.spec.inputs[name], new)
        )
    return found


def seen_with(
    request: Request, manifest: Manifest | None, seen: Time | None, replacements: Mapping[str, Replacement]
) -> Time | None:
    """Return the largest time in all files, given the largest in the files of a run that replace none: under the clock of arrivals the run's own."""
    if request.clock.arrival:
        return (run_time(request.clock, manifest),)
    times = [seen, *(each.after.largest_time() for each in replacements.values())]
    return max((time for time in times if time is not None), default=None)


def may_emit_ahead(request: Request, manifest: Manifest, graph: PhysicalGraph) -> bool:
    """Return whether a step may emit updates at the first open time without closing it: under the clock of events a correction comes without a time of its own.

    Such a step would release what waits for that time. Readers of arrangements that have read up to there, or that ask for closed times, would miss its
    updates. Rows that wait for later times have closed nothing, once they are withdrawn.
    """
    seen = find_seen(manifest)
    return (
        len(manifest.upper) == len(manifest.cache["time"]) == 1
        and (seen is None or not Frontier(manifest.upper).less_equal(seen))
        and not manifest.exports
        and request.asked.watch_cache is None
        and not any(isinstance(node, Delay) for node in graph.nodes)
        and not kept_past(request.spec, graph, list(find_time(manifest).values()))
    )


def is_corrected_by_rows(request: Request, reader: Reader) -> bool:
    """Return whether rows of an input that were taken in can be taken back by rows with their values.

    Rows with keys that were late, and moved, are not where they would be if they were read again. Values of a key must be equal to polars exactly if they are the same.
    """
    assert isinstance(reader, LogReader), "it has a ledger"
    if reader.log.adds_up or reader.log.tables:
        return True
    kinds = [reader.schema.columns[each].to_polars() for each in reader.log.key if each in reader.schema.columns]
    moved = not request.clock.arrival and reader.log.late == "arrive"
    return not moved and not any(kind.is_float() or kind.is_nested() for kind in kinds)


def _may_be_on_spark(request: Request, graph: PhysicalGraph) -> bool:
    """Return whether a run may be done on Spark."""
    resources = request.asked.resources
    return resources.engine == "spark" or resources.spark.ready or any(graph.engines.values())


def _is_small(request: Request, manifest: Manifest, ready: Prepared) -> bool:
    """Return whether this process can read all that replaces rows of withdrawn files, where a run may be on Spark: these files, of tables all, and the keys of all others."""
    read = searched = 0
    for name, reader in in_files(ready.readers).items():
        keys = request.decided.withdrawn.get(name, ())
        for file in manifest.inputs[name].files if keys else ():
            read += file.size if reader.log.tables or file.key in keys else 0
            searched += 0 if reader.log.adds_up else file.size
    memory = request.asked.resources.memory
    return read <= memory // SMALL and searched <= memory // SEARCHED


def _has_standing_record(graph: PhysicalGraph, names: Iterable[str]) -> bool:
    """Return whether a record of the plan depends on whether an input of these ever had one."""
    standing: dict[str, Node] = {str(at): node for at, node in enumerate(graph.nodes) if isinstance(node, Once)}
    return not physical_graph(standing).scans().keys().isdisjoint(names)

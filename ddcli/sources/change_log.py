"""A change log for people: its updates, the collection that it holds at a time, the history of a record.

    read_log("out/airborne/", as_of=540)                    # the collection then: each record with its multiplicity
    read_log("out/airborne/", since=480, until=540)         # what changed in between
    read_log("out/airborne/", key={"carrier": "UA"})        # one record's history

A log is a directory, a file or a glob; on this machine or in an object store.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine.times import Frontier, box
from ddcli.errors import DdError, EngineError, InputError, UsageError, first_line, suggestion
from ddcli.expressions.csv_dialect import DEFAULT, Dialect
from ddcli.expressions.types import in_order, order_among
from ddcli.privacy import hide
from ddcli.store.files.access import locate
from ddcli.store.formats.base import Updates
from ddcli.store.log.joint_files import read_metadata
from ddcli.store.log.log_files import not_after, physically
from ddcli.store.log.pieces import within
from ddcli.store.log.reader import LogReader
from ddcli.store.log.writer import beyond
from ddcli.store.state.entries import InputFile
from ddcli.store.state.outputs import read_owned, tags_within
from ddcli.store.tables.files import Tables
from ddcli.store.tables.input_path import NOT_THERE, PARQUET, name_of_kind
from ddcli.store.tables.inventory import list_input
from ddcli.store.tables.kinds import READ_ERRORS
from ddcli.store.tables.listing import Listing
from ddcli.store.texts import format_frontier, format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.engine.times import Time
    from ddcli.expressions.types import RowOrder, Schema
    from ddcli.privacy import Tags
    from ddcli.store.state.entries import FileEntry, Times
    from ddcli.store.state.outputs import Owner

LATEST = "latest"
"""As of this, all updates count."""
DIFF, TIME = "diff", "time"
READERS = 16
"""The footers that are read at a time, which costs a request each in an object store."""
UNFINISHED = "the last commit isn't fully published, and is left out; the pipeline's next run finishes it"
NO_UPDATES = "its collection is empty: the pipeline has run, and its output had no record so far"
MOST_HELD = 10_000_000
"""Times that are read at once, to see whether rows are in order."""
At = Any
"""A time as programs have it: an integer, a date, a datetime, its text, or a tuple of those."""


def read_log(
    path: str | Path,
    *,
    as_of: At | None = None,
    since: At | None = None,
    until: At | None = None,
    key: Mapping[str, Any] | None = None,
    consolidate: bool = False,
    time: Sequence[str] | None = None,
    diff: str = DIFF,
    columns: Schema | None = None,
) -> pl.DataFrame:
    """Return the updates of a change log, with a column for the diff, in order: as of a time in the order of its query, else of its columns.

    With `as_of` (a time, or "latest") the collection then: each record once, with its multiplicity as diff. Else its
    updates, in order of time, those at or after `since` and before `until`; with `consolidate` at most one of a record at a
    time. `key` has the columns and values that records must have. `time` names the columns of the time (default: `time`, or as
    many before the diff as the log's progress has), `columns` the types of columns in CSV and NDJSON.

    Reads the existing files once; holds the result in memory, and as much again to sort it. Raises UsageError for arguments
    that don't fit the log, InputError for files that can't be read.
    """
    log = ChangeLog.open(str(path), Path.cwd(), time=time, diff=diff, columns=columns)
    if as_of is not None:
        if since is not None or until is not None:
            raise UsageError("as_of is one time, since and until are a range", hint="give the one or the other")
        wanted = log.as_of(as_of, key)
    else:
        wanted = log.updates(since, until, key, consolidate=consolidate)
    try:
        return wanted.collect()
    except READ_ERRORS as error:
        raise log.refusal(error) from None


DECLARED = re.compile(r"declare them under the input's `columns`(?:.*`columns: (?P<proposed>\{.*\})`)?", re.DOTALL)
TIMED = "name the time column under the input's `time`"


def by_option(hint: str | None) -> str | None:
    """Return a hint about the columns of a pipeline's input as one about the options of a command.

    >>> by_option("declare them under the input's `columns`, or write `columns: infer`; by its first rows, `columns: {a: string?}`")
    "name them: --columns '{a: string?}'"
    """
    if hint and TIMED in hint:
        return hint.partition(TIMED)[0] + "name the time column with --time"
    return hint and DECLARED.sub(
        lambda found: f"name them: --columns {quote(found['proposed'] or '{id: int64}')}", hint
    )


@dataclass(frozen=True)
class ChangeLog:
    """A log that is open to be read lazily: its files' footers have been checked; rows are read as they are collected."""

    path: Path
    reader: LogReader
    diff: str
    progress: Frontier | None
    """The upper that the log carries, if it does."""
    left_out: int = 0
    """Files of a commit that isn't wholly published: they are not read."""
    order: RowOrder = ()
    """That in which its contents are shown, before their columns decide."""
    tags: Tags = field(default_factory=dict)
    """The tags of columns that previews hide."""

    @classmethod
    def of_files(cls, path: Path, files: Sequence[FileEntry], log: Updates) -> ChangeLog:
        """Return the log of some files of an output."""
        listed = tuple(InputFile(file.name, file.size, 0) for file in files)
        return cls(path, LogReader(Listing(path, listed), log), DIFF, None)

    @classmethod
    def open(
        cls,
        path: str,
        base: Path,
        *,
        time: Sequence[str] | None = None,
        diff: str = DIFF,
        columns: Schema | None = None,
        dialect: Dialect = DEFAULT,
    ) -> ChangeLog:
        """Open a log whose path is relative to `base`. See `read_log`."""
        whole = locate(base, path)
        progress, owner = read_owned(whole)  # before the files are listed: those that it covers exist then
        try:
            listing = list_input(path, base)
        except InputError as error:
            if error.hint in (None, NOT_THERE):
                error.hint = "name a directory, a file or a glob of a change log"
            raise
        if not listing.files and progress is not None:
            raise InputError(
                "the log has no updates yet, so its columns are unknown", place=str(whole), hint=NO_UPDATES
            )
        if not listing.files:
            raise InputError("the log has no files of updates", place=str(whole), hint="check the path")
        names = tuple(time) if time else _time_columns(listing, progress, Tables(columns, dialect=dialect), diff)
        tags = tags_of_files(whole, [listing.path(file) for file in listing.files], owner)
        hide(tags)
        log = Updates(names, columns, diff=diff, dialect=dialect, unites=owner is not None)
        reader = LogReader(listing, log, most=MOST_HELD)
        if owner is not None and owner.horizon is not None:
            listing = listing.not_before((owner.horizon,))
            reader.listing = listing
        if progress is None:
            return cls(whole, reader, diff, None, tags=tags)
        order = order_among(owner.order, reader.schema.columns) if owner else ()
        there = (file.path for file in listing.new)
        unfinished = beyond(there, progress, reader.schema.time, owner.reopenings if owner else 0)
        if unfinished:
            listing = replace(listing, new=tuple(file for file in listing.new if file.path not in unfinished))
            if not listing.files:
                raise InputError("the log has no files of updates", place=str(whole), hint=UNFINISHED)
            reader = LogReader(listing, log, most=MOST_HELD)
        return cls(whole, reader, diff, Frontier(progress), len(unfinished), order, tags)

    @property
    def columns(self) -> Schema:
        """The columns of its records."""
        return self.reader.schema.columns

    @property
    def time(self) -> Schema:
        """The columns of its time."""
        return self.reader.schema.time

    def at(self, given: At, option: str) -> Time:
        """Return a time as lanes have it; `option` is its name in a message."""
        words = given if isinstance(given, tuple | list) else [given]
        return parse_time(",".join(map(str, words)), self.time, option, "log's")

    def as_of(self, time: At, key: Mapping[str, Any] | None = None, rows: pl.LazyFrame | None = None) -> pl.LazyFrame:
        """Return the records as of a time, in the log's order, with their multiplicities: the sum of all rows, or of these. Holds the collection in memory, not the log."""
        then = None if time == LATEST else self.at(time, "--as-of")
        return in_order(self.contents(then, self._having(key, rows)), self.order, self.columns)

    def contents(self, time: Time | None, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return the sum of the rows that are not after a time (None: of all), in no order."""
        if time is not None:
            self.refuse_before_horizon(time)
            rows = rows.filter(not_after(list(self.time), time))
        return self._summed(rows, list(self.columns))

    def updates(
        self,
        since: At | None = None,
        until: At | None = None,
        key: Mapping[str, Any] | None = None,
        *,
        consolidate: bool = False,
    ) -> pl.LazyFrame:
        """Return the updates at or after `since` and before `until` in order of time.

        Since "latest" are the updates at the last time. If the files are in that order, as in each log that `dd` writes, rows are streamed, and none is held.
        """
        names = list(self.time)
        ordered = None if consolidate else self._ordered()
        rows = self._having(key, ordered)
        if since == LATEST and len(self.time) == 1:
            latest = self.reader.largest_time()
            lower = None if latest is None else (latest,)
        else:
            lower = None if since is None else (self.at(since, "--since"),)
        upper = () if until is None else box(self.at(until, "--until")).elements
        rows = self.between(lower, upper, rows)
        if consolidate:
            rows = self._summed(rows, [*self.columns, *names])
        return rows if ordered is not None else in_order(rows, (), [*names, *self.columns])

    def between(self, lower: Times | None, upper: Times, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows whose times are at or after `lower` (None: all) and not at or after `upper`, in their order."""
        if lower is None and not upper:
            return rows
        names = list(self.time)
        integers = {f"{name} as lanes have it": column for name, column in zip(names, physically(names), strict=True)}
        return rows.with_columns(**integers).filter(within(list(integers), lower, upper)).drop(*integers)

    def refuse_before_horizon(self, time: Time) -> None:
        """Refuse a time before the horizon of the updates that were summed up."""
        horizon = self.reader.listing.horizon
        if horizon is not None and len(horizon) == len(time) and time < horizon:
            begin = format_time(horizon, list(self.time.values()))
            raise UsageError(
                f"the log remembers nothing before {begin}: older updates were summed up as of then",
                place=str(self.path),
                hint=f"ask as of {begin} or later",
            )

    def open_from(self, time: At) -> str | None:
        """Return up to where the log is complete, in words, if it may still change at a time; None where it can't."""
        if self.progress is None or time == LATEST or not self.progress.less_equal(self.at(time, "--as-of")):
            return None
        return format_frontier(self.progress, list(self.time.values()))

    @property
    def notes(self) -> list[str]:
        """Return notes on the log for its human reader."""
        horizon = self.reader.listing.horizon
        known = [] if horizon is None else [format_time(horizon, list(self.time.values()))]
        summed = [f"{self.path}: updates before {time} were summed up as of then" for time in known]
        return [*([f"{self.path}: {UNFINISHED}"] if self.left_out else []), *summed]

    def refusal(self, error: BaseException) -> InputError | EngineError:
        """Return the error to report when reading has failed: which file is damaged, or that a sum is too large."""
        if (damaged := self.reader.damaged()) is not None:
            return damaged
        return EngineError(
            f"the log can't be read: {first_line(error)}",
            place=str(self.path),
            hint="a sum of diffs, or a value, is out of the range of its type",
        )

    def _having(self, key: Mapping[str, Any] | None, ordered: pl.LazyFrame | None = None) -> pl.LazyFrame:
        """Return the rows whose record has these values, of `ordered` in its order."""
        rows = self.reader.scan() if ordered is None else ordered
        for name, value in (key or {}).items():
            if name not in self.columns:
                hint = suggestion(name, self.columns, f"the columns are: {', '.join(self.columns)}")
                raise UsageError(f"the log has no column '{name}'", place=str(self.path), hint=hint)
            rows = rows.filter(pl.col(name).eq_missing(pl.lit(value, self.columns[name].to_polars())))
        return rows

    def _summed(self, rows: pl.LazyFrame, by: list[str]) -> pl.LazyFrame:
        # In 128 bits: a sum that is too large for a diff fails as it is made one, instead of wrapping around.
        total = pl.col(self.diff).cast(pl.Int128).sum()
        summed = rows.group_by(by).agg(total) if by else rows.select(total)
        return summed.filter(pl.col(self.diff) != 0).with_columns(pl.col(self.diff).cast(pl.Int64))

    def _ordered(self) -> pl.LazyFrame | None:
        """Return all rows in order of time without a sort, if the times of their files don't overlap; else None."""
        found = [(span, file) for file, span in enumerate(self.reader.spans()) if span is not None]
        if len(found) < len(self.reader.spans()):
            return None
        found.sort()
        apart = all(before[0][1] <= after[0][0] for before, after in pairwise(found))
        return self.reader.scan([file for _, file in found]) if apart else None


def tags_of_files(place: Path, files: Sequence[Path], owner: Owner | None = None) -> Tags:
    """Return the tags of the columns of files: those in the progress of their log, else in the metadata of each, as tables and rows that are put aside have them.

    From now on the identity of their state, which is there, too, is the key of digests, unless the command has another one.
    """
    owner = owner or read_owned(place)[1]
    if owner is not None:
        hide({}, owner.state)
        return owner.tags
    owners = {folder: _owner_of(folder) for folder in dict.fromkeys(file.parent for file in files)}
    marked = [(each.tags, each.state) for each in owners.values() if each is not None]
    loose = [file for file in files if owners[file.parent] is None and name_of_kind(file) == PARQUET]
    with ThreadPoolExecutor(READERS) as threads:
        marked += threads.map(lambda file: tags_within(read_metadata(file)), loose)
    found: dict[str, tuple[str, ...]] = {}
    for tags, state in marked:
        hide({}, state)
        for name, each in tags.items():
            found[name] = tuple(dict.fromkeys((*found.get(name, ()), *each)))
    return found


def _owner_of(folder: Path) -> Owner | None:
    """Return the writer of the log in a folder, some of whose files are named; None where there is none, or its progress can't be read."""
    try:
        return read_owned(folder)[1]
    except DdError:
        return None


def _time_columns(listing: Listing, progress: Times | None, tables: Tables, diff: str) -> tuple[str, ...]:
    """Return the time columns of a log for which none are named: the times of a product are before the diff."""
    if progress is None or not progress or len(progress[0]) == 1:
        return (TIME,)
    names = [name for name in tables.footer(listing.path(listing.files[0])) if name != diff]
    return tuple(names[-len(progress[0]) :])

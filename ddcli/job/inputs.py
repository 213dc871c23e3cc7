"""The files and progress of each input of a run, and the frontier up to which the run closes the times."""

from __future__ import annotations

import re
from dataclasses import field, replace
from functools import reduce
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.engine.times import BEYOND, Frontier, box
from ddcli.errors import InputError, SpecError, StateError, UsageError
from ddcli.expressions.types import ARRIVAL, ARRIVAL_TIME, parse_type
from ddcli.job.consumed_files import apart, gone_files, refuse_shared_files, withdrawn_files
from ddcli.job.request import Request, _of_writer, is_due, run_time
from ddcli.screen import shell
from ddcli.store.batch.checked_files import RESTORE
from ddcli.store.files.access import fs, locate
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.manifest import manifest_path, read_newest
from ddcli.store.state.outputs import read_owned, tags_from
from ddcli.store.state.shared_arrangements import find_shared, reader_name
from ddcli.store.tables.input_path import named_by, partition_of
from ddcli.store.tables.inventory import NEVER, ChangeRules, list_input
from ddcli.store.tables.listing import Listing
from ddcli.store.texts import SECONDS, format_frontier, parse_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Any, Literal

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.privacy import Tags
    from ddcli.spec.model import InputSpec, Spec
    from ddcli.store.formats.base import Format
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.state.entries import FileEntry, InputEntry, InputFile
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.state.outputs import Owner
    from ddcli.store.state.shared_arrangements import Shared
    from ddcli.store.tables.inventory import MayRename


TAGS = "tags"
"""The name of exported columns' tags in the cache of a manifest."""


@dataclass(frozen=True)
class InputFiles:
    """The files of an input, and the upper of its progress, if it carries one."""

    progress: Frontier | None
    listing: Listing
    shared: Shared | None = None
    replacing: Listing | None = None
    """The files that replace others of their names, where the state has copies of these: a run takes in the difference."""
    tags: Tags = field(default_factory=dict)
    """The tags of columns that another pipeline's log states."""
    ledger: tuple[FileEntry, ...] = ()
    """The state's copies of files, if some are gone and keep their rows."""

    def past(self) -> InputFiles:
        """Return the files that were taken in already."""
        return replace(self, listing=self.listing.past())

    def whole(self) -> InputFiles:
        """Return all files of the input, to be read from the beginning."""
        return replace(self, listing=self.listing.whole())

    def with_arrival(self, time: int) -> InputFiles:
        """Return the same with `time` as the arrival of new files."""
        return replace(self, listing=self.listing.with_arrival(time))

    def mended(self, before: InputEntry, at: int | None = None) -> InputFiles:
        """Return the same after files were withdrawn, with new ones of the same names in their places, or as they arrive at the time `at`."""
        return replace(self, listing=self.listing.mended(before.files, at))

    def known(self, before: InputEntry) -> InputFiles:
        """Return the same for an input that is read again: the files that the state has taken in. Raises InputError where one is gone."""
        return replace(self, listing=self.listing.known(before.files))

    def reopened(self, frontier: Frontier, last: int | None) -> InputFiles:
        """Return the same for a state that is taken back to a frontier: rows at or after it are no longer late.

        Under the clock of arrivals, where `last` is the time of the last run, files that came at or after it are new again.
        """
        if last is None:
            return replace(self, listing=self.listing.reopened(frontier.elements))
        return replace(self, listing=self.listing.before_arrival(frontier.as_time()[0], last))

    def marked(self, before: InputEntry | None, last: int | None) -> InputFiles:
        """Return the same for an input that is read again, without the rows that earlier runs put aside; files whose arrival is not
        recorded get the time of the `last` run.
        """
        return self if before is None else replace(self, listing=self.listing.marked(before.files, last))


def with_tags_of_logs(spec: Spec, base: Path, *, local: bool = False) -> Spec:
    """Return the spec with the tags that other pipelines' logs have among its inputs, beside those that the file declares. If `local`, no object store is asked."""
    found: dict[str, Tags] = {}
    for name, given in spec.inputs.items():
        if given.format != "updates" or given.table:
            continue
        path = locate(base, given.path.value)
        if local and not fs(path).is_local:
            continue
        if given.arrangement is None:
            found[name] = _tags_of(given, read_owned(path)[1])
        elif (exporter := read_newest(path)) is not None:
            found[name] = _tags_of_export(exporter, given.arrangement.value)
    return with_tags(spec, found)


def with_tags(spec: Spec, found: Mapping[str, Tags]) -> Spec:
    """Return the spec with the tags of columns that were `found` for its inputs, beside those that the file declares."""
    inputs = {name: replace(spec.inputs[name], tags={**tags, **spec.inputs[name].tags}) for name, tags in found.items()}
    return replace(spec, inputs={**spec.inputs, **inputs})


def _tags_of(given: InputSpec, owner: Owner | None) -> Tags:
    """Return the tags that the state which writes a log has for its columns, if an input reads it as updates."""
    return owner.tags if owner is not None and given.format == "updates" and not given.table else {}


def tags_of_exports(graph: PhysicalGraph) -> dict[str, Any]:
    """Return what a manifest's cache has of the tags of exported arrangements' columns; nothing where these have none."""
    if not graph.tags:
        return {}
    from ddcli.plan.physical import EXPORT

    own = {name: graph.tags.get(EXPORT + name) for name in graph.exports}
    found = {name: {column: list(each) for column, each in tags.items()} for name, tags in own.items() if tags}
    return {TAGS: found} if found else {}


def _tags_of_export(exporter: Manifest, name: str) -> Tags:
    """Return the tags that a state has for the columns of an arrangement that it exports."""
    found = exporter.cache.get(TAGS)
    return tags_from(found.get(name)) if isinstance(found, dict) else {}


def find_inputs(request: Request, manifest: Manifest | None, *, anew: bool = False) -> dict[str, InputFiles]:
    """Return the files of each input. Progress is read before files are listed: its writer works in the opposite order.

    With `anew` all files are new, taken in or not, but those that were withdrawn. For a request that
    withdraws files only files with the same names are new, and under the clock of arrivals not even these; for one
    that reopens the state none is.
    """
    _refuse_other_names(request, manifest)
    found = {}
    for name, given in request.spec.inputs.items():
        directory = locate(request.base, given.path.value)
        if given.arrangement is not None:
            reader = reader_name(request.spec.name.value, request.state)
            shared = request.decided.shared.get(name) or find_shared(directory, given.arrangement.value, reader)
            if len(shared.manifest.cache["time"]) != len(given.time):
                raise _other_times("imported arrangement", len(shared.manifest.cache["time"]), given, directory)
            tags = _tags_of_export(shared.manifest, given.arrangement.value)
            found[name] = InputFiles(Frontier(shared.manifest.upper), Listing(directory, ()), shared, tags=tags)
            continue
        progress, owner = read_owned(directory)
        if progress and len(progress[0]) != len(given.time):
            raise _other_times("progress", len(progress[0]), given, directory / PROGRESS)
        if progress is not None and given.archive is not None:
            raise InputError(
                f"the input '{name}' is a log that somebody writes: its files are not archived",
                place=str(directory / PROGRESS),
                hint="leave `consumed` out; what has been read of a log costs nothing",
            )
        entry = manifest.inputs.get(name) if manifest else None
        consumed: Iterable[InputFile] = entry.files if entry else request.decided.earlier.get(name, ())
        begins = anew or entry is None
        keeps = keeps_gone_files(given) and progress is None
        if begins and consumed:
            kept = gone_files(given, request.base, consumed, renaming(given, consumed)) if keeps else []
            consumed = [*apart(given, request.base, consumed), *kept]
        gone = request.decided.withdrawn.get(name, frozenset())
        named = {file.path for file in consumed if file.key in gone} if gone else set[str]()
        consumed = withdrawn_files(consumed, gone) if gone else consumed
        # A watch has listed the files before the progress was read, which may count files that have come since.
        seen = (
            request.asked.watch_cache.listing(given.path.value, request.base)
            if request.asked.watch_cache and progress is None
            else None
        )
        listing = list_input(
            given.path.value,
            request.base,
            consumed,
            change_rules(given, request.clock.now, consumed, written=progress is not None, begins=begins),
            emptied=entry is not None and not entry.files,
            snapshot=seen,
        )
        if added := request.decided.added.get(name):
            known = {each.key for each in (*listing.files, *listing.withdrawn)}
            listing = replace(listing, new=(*listing.new, *(each for each in added if each.key not in known)))
        if progress is not None:
            listing = _of_writer(listing, owner)
        _mind_horizon(request, name, listing, begins=begins)
        if begins:
            listing = listing.anew()
        if request.decided.forgetting is not None:
            listing = listing.archived_as_now()
        joint = bool(request.decided.copies) and request.decided.closes
        if (request.decided.withdrawn and not joint) or request.decided.reopened is not None:
            left = {file.path for file in listing.new if file.path not in named}
            listing = listing.without(left, consumed)
        replacing = None
        if name in request.decided.copies:
            listing, replacing = listing.apart(named, consumed)
        if request.asked.ready is not None:
            listing = listing.only(request.asked.ready)
        upper = None if progress is None else Frontier(progress)
        ledger = entry.ledger if entry is not None and listing.gone else ()
        found[name] = InputFiles(upper, listing, replacing=replacing, tags=_tags_of(given, owner), ledger=ledger)
    if request.spec.archives:
        refuse_shared_files(request.spec, {name: given.listing for name, given in found.items()})
    return found


def change_rules(
    given: InputSpec, now: int, consumed: Iterable[InputFile], *, written: bool = False, begins: bool = False
) -> ChangeRules:
    """Return the fate of an input's files that change, vanish or get another name; `now` is in microseconds. Of a log that somebody writes none is replaced."""
    return ChangeRules(
        forgets=given.consumed == "forget",
        replaced_since=replaced_since(given, now) if given.changed == "replace" and not written else NEVER,
        retracts=given.missing == "retract" and not written,
        keeps=keeps_gone_files(given) and not written,
        may_rename=None if written or begins else renaming(given, consumed),
    )


def keeps_gone_files(given: InputSpec) -> bool:
    """Return whether the rows of an input's files stay when these are gone."""
    return given.changed == "replace" and given.missing != "retract"


def replaced_since(given: InputSpec, now: int) -> int:
    """Return the time, in nanoseconds, from which on files of an input must have been written if they may be replaced; `now` is in microseconds."""
    if given.replaced_within is None:
        return 0
    count, unit = re.fullmatch(r"(\d+)\s*(\w+?)s?", given.replaced_within.value).groups()  # type: ignore[union-attr]
    return (now - int(count) * SECONDS[unit] * 1_000_000) * 1000


def renaming(given: InputSpec, consumed: Iterable[InputFile]) -> MayRename | None:
    """Return the decision about a file under another name, for an input whose files may come again or go; None for others.

    Its rows are the same if the names have the same columns. Where the newest row of a key counts, the file must also have the time at which it was written,
    as another one of the same content is newer, and the same place among the files that arrived with it. Where columns differ, the rows are replaced
    if all that counts is their sum.
    """
    if given.changed != "replace" and given.missing != "retract":
        return None
    files = tuple(consumed)

    def decide(before: InputFile, now: InputFile) -> Literal["same", "other", ""]:
        from ddcli.store.log.pieces import natural  # only where a file has another name

        pattern = given.file_name.value if given.file_name else None
        parts = [(partition_of(file.path), pattern and named_by(pattern, file.path)) for file in (before, now)]
        ordered = bool(given.key) or given.format == "snapshots"
        if parts[0] != parts[1]:
            return "" if ordered else "other"
        if ordered and before.mtime_ns != now.mtime_ns:
            return ""
        beside = [natural(file.path) for file in files if file.at == before.at and file.path != before.path]
        places = [[name < natural(file.path) for name in beside] for file in (before, now)]
        return "same" if places[0] == places[1] or not ordered else ""

    return decide


def with_replaced_files(
    request: Request, manifest: Manifest | None, found: dict[str, InputFiles] | None
) -> tuple[Request, dict[str, InputFiles] | None]:
    """Return the request that replaces the rows of files that have changed, and takes out the rows of missing ones, where inputs ask for that, and the inputs, None where they are to be found again.

    A comparison is about the files as they were read, and does neither.
    The files are withdrawn and taken in again in one commit, which keeps the places that they have in the order of arrival: by the state's copies of
    them (see `driver.replacement`), else by reading their inputs again (see `driver.migration`).
    """
    asks = (given.changed == "replace" or given.missing == "retract" for given in request.spec.inputs.values())
    if manifest is None or request.asked.receives is not None or not any(asks):
        return request, found
    if found is None:
        found = find_inputs(request, manifest, anew=request.decided.refreshes_all)
    changed = {name: given.listing.changed for name, given in found.items() if given.listing.changed}
    if not changed:
        return request, found
    withdrawn = {name: request.decided.withdrawn.get(name, frozenset()) | files for name, files in changed.items()}
    return request.deciding(withdrawn={**request.decided.withdrawn, **withdrawn}), None


def refuse_changed(found: Mapping[str, InputFiles]) -> None:
    """Raise InputError for a file that has changed since a run began to replace others, or for a command that replaces none."""
    for given in found.values():
        if given.listing.changed:
            place = given.listing.root / min(given.listing.changed)
            hint = "run the pipeline first, which takes that in, or put the file back"
            raise InputError("a file that was already read has changed, or is gone", place=str(place), hint=hint)


def _other_times(what: str, count: int, given: InputSpec, place: Path) -> InputError:
    """Return the error for a log whose times have another number of coordinates than the input's."""
    problem = f"the {what} has times of {count} coordinates, the input of {len(given.time)}"
    return InputError(problem, place=str(place), hint="name the time's columns under the input's `time`")


def _refuse_other_names(request: Request, manifest: Manifest | None) -> None:
    """Raise StateError where a state has other inputs or outputs than the pipeline file that made it: their rows would be taken in once more."""
    if manifest is None or manifest.pipeline != request.digest:
        return
    for what, kept, written in (
        ("input", manifest.inputs, request.spec.inputs),
        ("output", manifest.outputs, request.spec.outputs),
    ):
        for name in sorted(kept.keys() ^ written.keys()):
            differs = (
                "is not in the pipeline that made it" if name in kept else "of the pipeline that made it is missing"
            )
            raise StateError(
                f"the manifest of the state has content that `dd` never writes: the {what} '{name}' {differs}",
                place=str(manifest_path(request.state, manifest.number)),
                hint=RESTORE,
            )


def _mind_horizon(request: Request, name: str, listing: Listing, *, begins: bool) -> None:
    """Print a note if an input's log is read from its beginning, but has no times before its horizon; refuse to take a state back to before that."""
    if listing.horizon is None:
        return
    if begins:
        request.say_once(
            f"inputs.{name}: older updates in its log are summed up; outputs have nothing from before that"
        )
    if request.decided.reopened is not None and request.decided.reopened.less_equal(listing.horizon):
        raise InputError(
            f"the log of the input '{name}' can't be taken back so far: its updates from then on were summed up",
            place=str(listing.root),
            hint="reopen from a later time, or start again: `dd run --full-refresh all`",
        )


def find_time(manifest: Manifest) -> Schema:
    """Return the time columns of the outputs and their types, as the first run found them."""
    types = {name: parse_type(text) for name, text in manifest.cache["time"].items()}
    return {name: kind for name, kind in types.items() if kind is not None}


def find_upper(
    request: Request, time: Schema, found: Mapping[str, InputFiles], manifest: Manifest | None, seen: Time | None
) -> Frontier | None:
    """Return the frontier up to which a run closes the times, its state's or one after it; None if nothing decides it.

    It is the `--until` given; else the least upper of the inputs that carry their progress (a closed input delays no
    other); else the box up to `seen`, the largest value of each coordinate in all files so far. Under the clock of arrivals
    that is the time of this run, if a file is new or something is due.
    """
    before = Frontier(manifest.upper) if manifest else None
    arrival = request.clock.arrival
    carried = [given.progress for given in found.values() if given.progress and not arrival]
    if arrival and manifest is not None and is_due(manifest, at := run_time(request.clock, manifest)):
        asked = box((_after(at),))
    elif request.asked.until is not None:
        asked = parse_until(request.asked.until, time)
    elif carried:
        asked = reduce(Frontier.meet, carried)
    elif seen is not None:
        asked = box(tuple(map(_after, seen)))
    else:
        return before
    upper = asked.join(before) if before else asked
    refuse_beyond_imports(request, time, found, upper, asked=request.asked.until is not None)
    return upper


def refuse_beyond_imports(
    request: Request, time: Schema, found: Mapping[str, InputFiles], upper: Frontier, *, asked: bool = False
) -> None:
    """Refuse to close times that are open in a pipeline from which an arrangement is imported: its rows at these would never be taken.

    `asked`: the frontier is given by `--until`.
    """
    for name, given in found.items():
        if (
            given.shared is None
            or request.clock.arrival
            or upper.dominates(theirs := Frontier(given.shared.manifest.upper))
        ):
            continue
        until = format_frontier(theirs, list(time.values()))
        problem = f"the input '{name}' is an arrangement of the pipeline '{given.shared.manifest.name}', which has closed the times before {until} only"
        if asked:
            raise UsageError(
                f"{problem}: later ones can't be closed here", hint="leave out `--until`, or give an earlier time"
            )
        raise StateError(
            f"{problem}: it was reopened, or restored from an older copy, and its rows from there on would be missing here",
            place=str(given.shared.state),
            hint=f"reopen this pipeline from there too: `{shell('dd', 'state', 'reopen', request.spec.path, '--from', until)}`",
        )


def _after(value: int) -> int:
    """Return the upper that closes a value of a coordinate."""
    if value == BEYOND - 1:
        raise InputError(
            f"the time {value} is the largest there is: no upper could close it", hint="use an earlier one"
        )
    return value + 1


def find_seen(manifest: Manifest | None) -> Time | None:
    """Return the largest value of each time coordinate in the files that earlier runs have read."""
    seen = manifest.cache["seen"] if manifest else None
    return None if seen is None else tuple(seen)


def format_of(given: InputSpec) -> Format:
    """Return the format of an input's rows."""
    from ddcli.store.formats.base import (  # not for a run with nothing new
        Append,
        SnapshotsFormat,
        Updates,
        UpsertFormat,
    )

    columns = {column: kind for column, (_, kind) in given.columns.items()} if given.columns is not None else None
    if given.arrives and columns is not None:
        columns[ARRIVAL] = ARRIVAL_TIME
    every: tuple[Any, ...] = tuple(text.value for text in given.time), columns
    file_name = given.file_name.value if given.file_name else None
    common: dict[str, Any] = {"file_name": file_name, "late": given.late, "ignored": given.ignored}
    common |= {"lasting": given.lasting, "quarantines": given.quarantines, "inferred": given.inferred}
    common["rounds"] = given.rounding is not None
    common["former"] = given.former
    if given.beside:
        common["clock_hint"] = given.clock_hint
    common["absent"] = given.optional
    if given.table and columns is not None:
        common["absent"] = tuple(name for name, kind in columns.items() if kind.nullable)
    if given.csv is not None:
        common["dialect"] = replace(given.csv, names=tuple(name for name in columns or () if name != ARRIVAL))
    key = tuple(text.value for text in given.key)
    match given.format:
        case "append":
            return Append(*every, **common)
        case "delta_cdf":
            from ddcli.store.formats.delta_cdf import DeltaCdf

            return DeltaCdf(*every, **common)
        case "snapshots":
            return SnapshotsFormat(*every, **common, key=key, order_by=given.order_by)
        case "debezium" if not given.flattened:
            from ddcli.store.formats.debezium import Debezium

            order = given.order_by.value if given.order_by else "source.lsn"
            return Debezium(*every, **common, key=key, order=order)
        case "upsert" | "debezium":
            kind = UpsertFormat
            if given.flattened:
                from ddcli.store.formats.debezium import Flattened as kind  # noqa: N813 - it is one

            return kind(*every, **common, key=key, delete_when=given.delete_when, order_by=given.order_by)
    return Updates(*every, **common, diff=given.diff.value if given.diff else None)


TIME = "time"
"""The name of the time column of an output where the time has one coordinate."""


def shared_time(spec: Spec, schemas: Mapping[str, LogSchema]) -> Schema:
    """Return the outputs' time columns, of the types that all inputs' times have, or refuse a mixture.

    A single time is called `time`, the coordinates of a product as in the inputs; where there is no input, it is the time of arrivals.
    """
    if not schemas:
        return {TIME: ARRIVAL_TIME}
    # A log without files has no types; where no log has any, times are supposed to be integers.
    known = {name: tuple(schema.time.values()) for name, schema in schemas.items() if schema.diff is not None}
    columns = next(iter(schemas.values())).time
    first, kinds = next(iter(known.items()), ("", tuple(columns.values())))
    for name, other in known.items():
        if other != kinds:
            times = [", ".join(map(str, each)) for each in (other, kinds)]
            raise SpecError(
                f"the time of input '{name}' is {times[0]}, that of '{first}' is {times[1]}",
                span=spec.inputs[name].name.span,
                hint="the inputs of a pipeline share one time: write them with the same type",
            )
    return dict(zip(columns if len(kinds) > 1 else (TIME,), kinds, strict=True))

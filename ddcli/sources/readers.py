"""The inputs of a run: a reader of the new updates of each, and the time that they share. The rows of files are read by `ddcli.store.log.reader`."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from weakref import finalize

from ddcli.engine.lanes import Layout
from ddcli.engine.times import Frontier, join, up_to
from ddcli.errors import InputError, RewrittenError, SpecError, StateError
from ddcli.expressions.types import ARRIVAL_TIME
from ddcli.job.inputs import find_seen, find_time, format_of, shared_time
from ddcli.job.request import kept_clock
from ddcli.job.sizes import rows_held, rows_together
from ddcli.privacy import preview
from ddcli.sources.arrangement_input import SharedReader
from ddcli.sources.slices import InputFacts
from ddcli.store.log.joint_files import read_versions
from ddcli.store.log.pieces import ConsumedRange, Newest
from ddcli.store.log.reader import LogReader
from ddcli.store.log.schema import LogSchema
from ddcli.store.tables.input_path import NDJSON, name_of_kind
from ddcli.store.texts import SECONDS, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.job.corrections import ErasureRequest
    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.job.sizes import Sizes
    from ddcli.plan.physical import Scan
    from ddcli.spec.model import InputSpec, Spec
    from ddcli.store.state.entries import InputEntry, InputFile, Times
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.tables.listing import Listing


Reader = LogReader | SharedReader
SECOND = 1_000_000
UNCLEAN = "unclean"
"""The key of a manifest's cache under which it names the files of inputs that hold forgotten rows, each with its fingerprint."""
AHEAD = "1 day"
"""The distance that rows may be ahead of the clock where an input has no `max_ahead`."""


def open_logs(
    request: Request,
    manifest: Manifest | None,
    found: dict[str, InputFiles],
    most: int | None = None,
    pins: Manifest | None = None,
) -> dict[str, Reader]:
    """Return a reader for each input that was found, held to the columns of earlier runs; `most` rows may be in memory at once.

    `pins` has the columns that were inferred where the manifest is None.
    """
    readers: dict[str, Reader] = {}
    for name, there in found.items():
        given = request.spec.inputs[name]
        entry = manifest.inputs.get(name) if manifest else None
        if there.shared is not None:
            readers[name] = SharedReader(there.shared, [text.value for text in given.time], there.listing, entry)
            continue
        there = _with_copies(request, name, there)
        _refuse_gone(name, there.listing)
        known = LogSchema.from_json(entry.schema) if entry else None
        if entry is not None:
            _refuse_other_names(given, there.listing, entry)
        newest = Newest(*entry.schema["newest"]) if entry and "newest" in entry.schema else None
        inferred = given.pinned
        if given.infers and inferred is None:
            from ddcli.sources.inference import pinned, with_columns

            former = entry or (pins.inputs.get(name) if pins else None)
            inferred = pinned(given, there.listing, former)
            given = with_columns(given, inferred)
        readers[name] = reader = LogReader(there.listing, format_of(given), known, most, newest, inferred)
        if given.changed == "replace" and reader.has_latest_rows and request.asked.resources.engine != "spark":
            from ddcli.store.state.ledger import KeyHashes

            reader.keys = KeyHashes(reader.key_kinds, rows_held(request.asked.resources.memory))
        reader.changed = request.decided.changed.get(name)
    return readers


def with_grown_columns(request: Request, readers: Mapping[str, Reader]) -> Request:
    """Return the request whose growing inputs declare the columns that their readers have, so that older files are read with these, too."""
    inputs = {}
    for name, reader in readers.items():
        if isinstance(reader, LogReader) and reader.pinned is not None and reader.pinned.grows:
            from ddcli.sources.inference import with_columns

            inputs[name] = replace(with_columns(request.spec.inputs[name], reader.pinned), pinned=reader.pinned)
            for line in reader.pinned.news:
                request.say_once(f"inputs.{name}: {line}")
    return replace(request, spec=replace(request.spec, inputs={**request.spec.inputs, **inputs})) if inputs else request


def take(
    readers: Mapping[str, Reader], scans: Mapping[str, Scan], lower: Times | None, upper: Times
) -> dict[str, ConsumedRange]:
    """Take the updates of each input at or after `lower` (None: from the beginning) and not at or after `upper`, to be read in the columns of its scan.

    An input that no output reads is only checked.
    """
    return {name: reader.take(columns_read(scans, name), lower, upper) for name, reader in readers.items()}


def take_in_parts(
    taken: dict[str, ConsumedRange],
    readers: Mapping[str, Reader],
    scans: Mapping[str, Scan],
    lower: Times | None,
    upper: Times,
    rows: int,
    cut: Sizes,
) -> None:
    """Take the updates of inputs once more, in slices, where a run of these sizes doesn't read all its `rows` together."""
    for name, reader in readers.items():
        width = (Layout(scans[name].schema).width + scans[name].nt if name in scans else 0) + 1
        most = rows_together(rows, width, cut, apart=reader.seeks)
        if most is not None:
            taken[name] = reader.take(columns_read(scans, name), lower, upper, most)


def columns_read(scans: Mapping[str, Scan], name: str) -> tuple[str, ...]:
    """Return the columns of an input that a plan reads."""
    return tuple(scans[name].schema) if name in scans else ()


def in_files(readers: Mapping[str, Reader]) -> dict[str, LogReader]:
    """Return those readers that read files of their own input."""
    return {name: reader for name, reader in readers.items() if isinstance(reader, LogReader)}


FORGOTTEN_ROWS = "forgotten_rows"
"""The key of a manifest's cache under which it has, for each of those files, a digest of the numbers of the rows that were forgotten."""


def find_forgotten(forgetting: ErasureRequest, manifest: Manifest, readers: Mapping[str, Reader], most: int) -> None:
    """Have readers pass over the rows that are forgotten; note how many these are, and which files have them.

    Raises StateError for a file that still has other rows which an earlier command has removed: they would come back.
    """
    from ddcli.job.corrections import ForgottenRows, digest_of

    forgetting.begin()
    for name, condition in forgetting.conditions.items():
        reader = readers[name]
        if isinstance(reader, SharedReader):
            if any(condition.of(frame).any() for frame in reader.frames(condition.columns)):
                raise StateError(
                    f"the input '{name}' is an arrangement of the pipeline '{reader.shared.manifest.name}', which has such rows",
                    place=str(reader.shared.state),
                    hint="have that pipeline forget them first; then run this one, and repeat the command",
                )
            forgetting.inputs[name] = ForgottenRows()
            continue
        reader.without = condition
        rows, unclean, whole = 0, {}, reader.taken_whole(manifest.upper)
        for file, numbers in reader.where(condition, most):
            rows += len(numbers)
            if numbers:
                forgetting.counts.setdefault(name, {})[file.key] = len(numbers) if file.key in whole else None
            if numbers and (file.archived or name in forgetting.mirrored):
                forgetting.archived.setdefault(name, []).append((file, numbers))
            elif numbers:
                unclean[file.key] = file.fingerprint
                forgetting.digests.setdefault(name, {})[file.key] = digest_of(numbers)
                if file.key not in reader.listing.gone:
                    forgetting.still_in.append(str(reader.listing.path(file)))
        undecided = sum(each.drop(condition)[1] for each in reader.unparsed.values())
        forgetting.inputs[name] = ForgottenRows(rows, undecided)
        if unclean:
            forgetting.unclean[name] = unclean
    digests = manifest.cache.get(FORGOTTEN_ROWS, {})
    for name, path, file in _unclean(manifest, {name: reader.listing for name, reader in readers.items()}):
        before, now = (each.get(name, {}).get(file.key) for each in (digests, forgetting.digests))
        if now is None or before not in (None, now):
            raise StateError(
                f"a file of the input '{name}' still holds other rows that an earlier `dd forget` has removed: they would come back",
                place=str(path),
                hint="remove those rows from the file first, and repeat `dd forget` with their condition",
            )


def refuse_unclean(manifest: Manifest | None, found: Mapping[str, InputFiles]) -> None:
    """Raise StateError where a file is about to be read that still holds rows which were forgotten."""
    for name, path, file in _unclean(manifest, {name: given.listing for name, given in found.items()}):
        gone = file.key in found[name].listing.gone
        raise StateError(
            f"a file of the input '{name}' still holds rows that `dd forget` has removed: they would come back",
            place=str(path),
            hint="it is gone: put it back without the rows, or withdraw it: `dd retract PIPELINE FILE`"
            if gone
            else "remove the rows from the file, and repeat `dd forget` with the same condition",
        )


def _unclean(manifest: Manifest | None, listings: Mapping[str, Listing]) -> Iterator[tuple[str, Path, InputFile]]:
    """Yield the files to read that still hold rows which were forgotten, each with its input and its path."""
    unclean = manifest.cache.get(UNCLEAN, {}) if manifest is not None else {}
    for name, files in unclean.items():
        for file in listings[name].to_read if name in listings else ():
            if files.get(file.key) == file.fingerprint:
                yield name, listings[name].path(file), file


class CopyPaths(dict[str, Path]):
    """The copies of an input's files by their keys, in a directory that exists as long as this mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(mkdtemp(prefix="dd-"))
        finalize(self, rmtree, self.directory, ignore_errors=True)


def _with_copies(request: Request, name: str, there: InputFiles) -> InputFiles:
    """Return an input with the state's copies of the files to read that are gone. Raises InputError for one without a copy."""
    listing = there.listing
    wanted = [file for file in listing.to_read if file.key in listing.gone]
    if not wanted:
        return there
    from ddcli.store.state.ledger import identity_of, known_files, restore

    known = known_files(request.state, there.ledger)
    for file in wanted:
        if identity_of(file) not in known:
            raise InputError(
                f"the input '{name}' can't be read again: '{file.path}' is gone, and the state has no copy of it",
                place=str(listing.root / file.path),
                hint="put it back, or withdraw its rows: `dd retract PIPELINE FILE`",
            )
    copies = CopyPaths()
    restore(request.state, there.ledger, wanted, copies.directory)
    copies.update((file.key, copies.directory / file.path) for file in wanted)
    return replace(there, listing=replace(listing, copies=copies))


def _refuse_gone(name: str, listing: Listing) -> None:
    """Raise InputError for an input that is read again, and has files that are gone: forgotten, or no longer in the archive."""
    gone = sorted(file.path for file in listing.to_read if file.forgotten)
    if gone:
        count = f"{len(gone)} of its files are gone" if len(gone) > 1 else "a file of it is gone"
        raise InputError(
            f"the input '{name}' can't be read again: {count} (`consumed: forget`), '{gone[0]}'",
            place=str(listing.root / gone[0]),
            hint="put it back, or undo the change that needs it; `dd reset PIPELINE --outputs` starts again with the files that are there",
        )
    for file in listing.waiting if listing.growing else ():
        if file.at is not None and file.path not in listing.grown and read_versions(listing.path(file)):
            raise InputError(
                f"the input '{name}' can't be read again: rows of a file may have come with several runs, which gave them their times",
                place=str(listing.path(file)),
                hint="recompute everything, all rows arriving now: `dd run --full-refresh all`",
            )
    for file in listing.to_read:
        if file.archived and not listing.path(file).exists():
            raise InputError(
                f"the input '{name}' can't be read again: an archived file of it is gone",
                place=str(listing.path(file)),
                hint="put it back, or withdraw it: `dd retract PIPELINE FILE`",
            )


def _refuse_other_names(given: InputSpec, listing: Listing, entry: InputEntry) -> None:
    """Raise InputError if files that were read would have other rows by the names that their columns have now: in JSON a missing name is null, elsewhere an optional column.

    Files of other kinds are refused without a column, so those that were read had it.
    """
    before = {name: tuple(others) for name, others in entry.schema.get("former", {}).items()}
    nullable = [name for name, (_, kind) in (given.columns or {}).items() if kind.nullable]
    optional = {*given.optional, *entry.schema.get("optional", ())}
    for name in nullable if before != given.former else ():
        if before.get(name) == given.former.get(name) or name not in entry.schema["columns"]:
            continue
        for file in (*listing.done, *listing.waiting):
            if name_of_kind(listing.path(file)) == NDJSON or name in optional:
                raise InputError(
                    f"files of the input '{given.name.value}' were read with other names of its column '{name}', which may be null where they have one",
                    place=str(listing.path(file)),
                    hint="recompute everything: `dd run --full-refresh all`",
                )


def refuse_rewritten(readers: Mapping[str, Reader]) -> None:
    """Raise RewrittenError if a log has been rewritten since it was read, for a run that is about to commit its rows."""
    for reader in readers.values():
        if isinstance(reader, LogReader):
            reader.refuse_rewritten()


def find_rewritten(readers: Mapping[str, Reader]) -> RewrittenError | None:
    """Return the error that `refuse_rewritten` raises, if it does: another error of a run may be its consequence."""
    try:
        refuse_rewritten(readers)
    except RewrittenError as error:
        return error
    return None


def import_keys(readers: Mapping[str, Reader]) -> dict[str, tuple[str, ...]]:
    """Return the keys of the inputs that are arrangements of other pipelines."""
    return {name: reader.key for name, reader in readers.items() if isinstance(reader, SharedReader)}


def time_columns(request: Request, manifest: Manifest | None, readers: Mapping[str, Reader]) -> Schema:
    """Return the outputs' time columns and their types, which must be the same as in earlier runs."""
    time = shared_time(request.spec, {name: reader.schema for name, reader in readers.items()})
    if manifest is not None and kept_clock(manifest) != request.spec.clock:
        arrives = request.clock.arrival
        now, then = ("times of runs", "the inputs' own") if arrives else ("the inputs' own", "times of runs")
        raise StateError(
            f"the times are {now} (`clock: {request.spec.clock}`), the state and the outputs have {then}",
            place=str(request.spec.path),
            hint=f"write `clock: {kept_clock(manifest)}` into the file, or remove the state and the outputs to compute them anew",
        )
    if manifest is not None and [*(before := find_time(manifest)).items()] != [*time.items()]:
        times = [", ".join(f"{name}: {kind}" for name, kind in one.items()) for one in (time, before)]
        raise StateError(
            f"the times of the inputs are {times[0]}, the times of the state and the outputs are {times[1]}",
            place=str(request.spec.path),
            hint="write the inputs as they were, or start again: `dd reset PIPELINE --outputs`",
        )
    return time


def refuse_ahead(request: Request, found: dict[str, InputFiles], readers: Mapping[str, Reader]) -> None:
    """Refuse rows far ahead of the clock where a run closes the times up to the last one it sees: one such row would close all before."""
    if request.asked.until is not None or request.clock.arrival or any(given.progress for given in found.values()):
        return
    for name, reader in readers.items():
        if isinstance(reader, LogReader):
            limits = ahead_limits(request.spec.inputs[name], reader.schema.time, request.clock.now)
            if any(limit is not None for limit in limits):
                reader.refuse_after(limits, format_time((request.clock.now // SECOND * SECOND,), [ARRIVAL_TIME]))


def ahead_limits(given: InputSpec, time: Schema, now: int) -> tuple[int | None, ...]:
    """Return the last time of each coordinate that a row may have; None: any."""
    text = given.max_ahead
    if text is not None and not any(kind.kind in ("date", "datetime") for kind in time.values()):
        hint = "leave it out, or declare the time as a date or a timestamp under `columns`"
        raise SpecError("`max_ahead` is of dates and timestamps, and the time is a number", span=text.span, hint=hint)
    if text is not None and text.value == "none":
        return (None,) * len(time)
    count, unit = re.fullmatch(r"(\d+)\s*(\w+?)s?", text.value if text else AHEAD).groups()  # type: ignore[union-attr]
    end = now + int(count) * SECONDS[unit] * SECOND
    return tuple(
        end // (86_400 * SECOND)
        if kind.kind == "date"
        else end * kind.per_second // SECOND
        if kind.kind == "datetime"
        else None
        for kind in time.values()
    )


def refuse_unparsed(readers: Mapping[str, Reader]) -> None:
    """Refuse rows that can't be read if no other row has a time: then there is no commit that could put them aside."""
    for reader in readers.values():
        for path, each in reader.unparsed.items() if isinstance(reader, LogReader) else ():
            line, column, text, reason = each.frame.row(0)[:4]
            problem = f"column '{column}': {preview(column, text)!r} is {reason}" if column else reason
            hint = "correct the file, or declare other types under the input's `columns`"
            raise InputError(
                f"no row can be read; the first: {problem}", place=f"{path}:{line}" if line else str(path), hint=hint
            )


def late_upper(
    request: Request, manifest: Manifest, found: dict[str, InputFiles], readers: Mapping[str, Reader]
) -> Frontier | None:
    """Return the frontier of a run that has only late rows: unchanged if they are put aside, the next
    one if they are moved up and no other input's progress holds it back. Rows that can't be read are put aside, too.
    None without such rows.

    Raises InputError if late rows are refused.
    """
    upper = Frontier(manifest.upper)
    taken = [reader.take((), manifest.upper, manifest.upper) for reader in readers.values()]
    late = [each for each in taken if each.late or each.unparsed]
    free = request.asked.until is None and not any(given.progress for given in found.values())
    moved = [
        time
        for reader in readers.values()
        if isinstance(reader, LogReader) and reader.log.late == "arrive" and manifest.upper and free
        if (time := reader.late_times(manifest.upper)) is not None
    ]
    if moved:
        return upper.join(up_to(reduce(join, moved)))
    return upper if late else None


def largest_seen(manifest: Manifest | None, readers: Mapping[str, Reader]) -> Time | None:
    """Return the largest value of each time coordinate in all files so far, None without a row."""
    found = [find_seen(manifest), *(reader.largest_time() for reader in readers.values())]
    return reduce(join, [time for time in found if time is not None]) if any(found) else None


def facts_of(
    spec: Spec, readers: Mapping[str, LogReader | SharedReader], lower: Times | None, upper: Times
) -> dict[str, InputFacts]:
    """Return the facts of the inputs that have keys or tables, for the times of an interval."""
    from ddcli.sources.arrangement_input import SharedReader

    found = {}
    for name, reader in readers.items():
        given = spec.inputs[name]
        if isinstance(reader, SharedReader):
            continue
        if given.format == "snapshots":
            found[name] = InputFacts(given, reader, reader.snapshot_times(lower, upper))
        elif given.key or given.negative != "allow":
            found[name] = InputFacts(given, reader, truncations=reader.truncations(lower, upper))
    return found

"""The inputs of a run: readers of what is new in each, the time that they share, and their updates as matrices."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from ddcli.engine.times import join
from ddcli.errors import StateError
from ddcli.job.request import find_seen, find_time
from ddcli.sources.imported import SharedReader
from ddcli.sources.input_format import format_of, shared_time
from ddcli.store.log.reader import LogReader
from ddcli.store.log.schema import LogSchema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.job.request import InputFiles, Request
    from ddcli.store.state.manifest import Manifest

Reader = LogReader | SharedReader


def open_logs(
    request: Request, manifest: Manifest | None, found: dict[str, InputFiles], most: int | None = None
) -> dict[str, Reader]:
    """Return a reader for each input that was found, held to the columns of earlier runs; `most` rows may be in memory at once."""
    readers: dict[str, Reader] = {}
    for name, there in found.items():
        given = request.spec.inputs[name]
        entry = manifest.inputs.get(name) if manifest else None
        if there.shared is not None:
            readers[name] = SharedReader(there.shared, [text.value for text in given.time], there.listing, entry)
            continue
        known = LogSchema.from_json(entry.schema) if entry else None
        readers[name] = LogReader(there.listing, format_of(given), known, most)
    return readers


def import_keys(readers: Mapping[str, Reader]) -> dict[str, tuple[str, ...]]:
    """Return the keys of the inputs that are arrangements of other pipelines."""
    return {name: reader.key for name, reader in readers.items() if isinstance(reader, SharedReader)}


def time_columns(request: Request, manifest: Manifest | None, readers: Mapping[str, Reader]) -> Schema:
    """Return the outputs' time columns and their types, which must be those of earlier runs."""
    time = shared_time(request.spec, {name: reader.schema for name, reader in readers.items()})
    if manifest is not None and [*(before := find_time(manifest)).items()] != [*time.items()]:
        times = [", ".join(f"{name}: {kind}" for name, kind in one.items()) for one in (time, before)]
        raise StateError(
            f"the times of the inputs are {times[0]}, those of the state and the outputs are {times[1]}",
            place=str(request.spec.path),
            hint="write the inputs as they were, or begin anew: `dd reset PIPELINE --outputs`",
        )
    return time


def largest_seen(manifest: Manifest | None, readers: Mapping[str, Reader]) -> Time | None:
    """Return the largest value of each time coordinate in all files so far, None without a row."""
    found = [find_seen(manifest), *(reader.largest_time() for reader in readers.values())]
    return reduce(join, [time for time in found if time is not None]) if any(found) else None

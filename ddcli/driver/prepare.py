"""What comes before all work on a pipeline's data: its inputs are found, opened, and the file is bound to their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.job.request import find_inputs
from ddcli.plan.bound import BoundPipeline
from ddcli.sources.readers import import_keys, open_logs, time_columns

if TYPE_CHECKING:
    from ddcli.job.request import InputFiles, Request
    from ddcli.sources.readers import Reader
    from ddcli.store.state.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request's inputs, found and open, and its file bound to their columns."""

    found: dict[str, InputFiles]
    readers: dict[str, Reader]
    bound: BoundPipeline


def prepare(request: Request, manifest: Manifest | None, most: int | None = None, *, whole: bool = False) -> Prepared:
    """Return what there is of each input beyond what the state of `manifest` has taken, held to its columns and its times.

    `most` rows may be in memory at once. With `whole`, return all that there is, arrangements of others as logs, and hold
    nothing to the state.
    """
    known = None if request.refreshes_all else manifest
    found = find_inputs(request, known)
    if whole:
        found = {name: given.whole() for name, given in found.items()}
        known = manifest = None
    readers = open_logs(request, known, found, most)
    time = time_columns(request, manifest, readers)
    schemas = {name: reader.schema.columns for name, reader in readers.items()}
    return Prepared(found, readers, BoundPipeline(request.spec, schemas, time, {} if whole else import_keys(readers)))

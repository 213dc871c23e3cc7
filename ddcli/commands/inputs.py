"""The files of a pipeline's inputs, each with its state: read, new, changed, withdrawn and so on; for `dd inputs`."""

from __future__ import annotations

from datetime import UTC, datetime
from time import time_ns
from typing import TYPE_CHECKING, Any

from ddcli.errors import InputError
from ddcli.job.frontier import find_time
from ddcli.job.inputs import renaming, replaced_since
from ddcli.job.paths import state_of
from ddcli.named_tuple import NamedTuple
from ddcli.plan.pipeline_file import load_spec
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import check_pipeline
from ddcli.store.tables.inventory import list_input
from ddcli.store.time_text import format_time, json_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Type
    from ddcli.spec.model import InputSpec
    from ddcli.store.state.entries import InputFile
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.tables.inventory import RefusedFile

STATES = (
    "new", "waiting", "read", "grown", "changed", "missing", "repaired", "withdrawn", "archived", "forgotten", "skipped",
)  # fmt: skip
"""The states of a file, in the order of its life; `docs/running.md` explains them."""


class InputFileState(NamedTuple):
    """A file of an input and its state, one of `STATES`. `read_at` is the time of the run that read it, where files have one; `why` the error, or the reason why it is skipped."""

    file: str
    state: str
    bytes: int | None = None
    modified: str | None = None
    read_at: str | None = None
    why: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return self._asdict() | {"read_at": json_time(self.read_at)}


def input_files(path: Path, state: Path | None = None) -> dict[str, list[InputFileState]]:
    """Return the files of each input of a pipeline file, in the order of their paths; none for tables and arrangements.

    Reads no rows, writes nothing and takes no lock. Raises InputError for an input whose path is missing and that nothing was read of.
    """
    spec, base = load_spec(path), path.absolute().parent
    state = state or state_of(spec, base)
    manifest = read_newest(state)
    if manifest is not None:
        check_pipeline(state, manifest, path)
    return {
        name: sorted(_of_input(given, base, name, manifest)) if given.in_files and not given.arrangement else []
        for name, given in spec.inputs.items()
    }


def _of_input(given: InputSpec, base: Path, name: str, manifest: Manifest | None) -> Iterator[InputFileState]:
    entry = manifest.inputs.get(name) if manifest is not None else None
    consumed = entry.files if entry is not None else ()
    kinds = list(find_time(manifest).values()) if manifest is not None else []
    refused: list[RefusedFile] = []
    try:
        listing = list_input(
            given.path.value,
            base,
            consumed,
            forgets=given.consumed == "forget",
            replaces=given.changed == "replace",
            replaced_since=replaced_since(given, time_ns() // 1000),
            retracts=given.missing == "retract",
            emptied=entry is not None and not entry.files,
            refused=refused,
            may_rename=renaming(given, consumed),
        )
    except InputError as error:
        if not consumed:
            raise
        yield from (_state(file, "missing", kinds, error.problem) for file in consumed if not file.withdrawn)
        return
    for file in listing.new:
        yield _state(file, "repaired" if file.path in listing.amended else "new", kinds)
    for file in listing.waiting:
        yield _state(file, "grown" if file.path in listing.grown else "waiting", kinds)
    for file in listing.done:
        was = listing.renamed.get(file.path)
        why = f"it was read as '{was}', and is the same" if was is not None else None
        yield _state(file, "archived" if file.archived else "forgotten" if file.forgotten else "read", kinds, why)
    yield from (_state(file, "withdrawn", kinds) for file in listing.withdrawn)
    for file in consumed:
        if file.key in listing.changed:
            gone = not listing.path(file).exists()
            what = ("missing", "takes out") if gone else ("changed", "replaces")
            yield _state(file, what[0], kinds, f"the next run {what[1]} its rows")
    for each in refused:
        gone = not listing.path(each.file).exists()
        yield _state(each.file, "missing" if gone else "changed", kinds, each.error.problem)
    withdrawn = {file.path for file in listing.withdrawn}
    yield from (
        InputFileState(each.path, "skipped", why=each.why) for each in listing.passed if each.path not in withdrawn
    )


def _state(file: InputFile, state: str, kinds: Sequence[Type], why: str | None = None) -> InputFileState:
    modified = datetime.fromtimestamp(file.mtime_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    read_at = None if file.at is None else format_time((file.at,), kinds)
    return InputFileState(file.archived or file.path, state, file.size, modified, read_at, why)

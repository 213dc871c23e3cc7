"""Outputs that are tables of other programs: whether each is up to its log. Imports no third-party library: a run with nothing new looks here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.store.files.access import is_there, real
from ddcli.store.files.objects import locate
from ddcli.store.state.register import keys_of, pick
from ddcli.store.targets.mark import directory_of, read_marks

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.spec.model import Spec, TargetSpec
    from ddcli.store.state.entries import OutputEntry
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.targets.mark import CommitMark


def is_followed(spec: Spec, base: Path, state: Path, manifest: Manifest) -> bool:
    """Say whether the tables of all outputs seem to be up to their logs, and as their last commits left them."""
    for name, output in spec.outputs.items():
        if output.target is None or name not in manifest.outputs:
            continue
        marks = read_marks(directory_of(state, name))
        if (
            marks.done is None
            or marks.next is not None
            or place_in(manifest.outputs[name]) != (marks.done.count, marks.done.last)
        ):
            return False
        if not _is_as_left(output.target, base, marks.done):
            return False
    return True


def place_in(log: OutputEntry, count: int | None = None) -> tuple[int, str]:
    """Return how many files a log has, or so many, and which one is the last of them."""
    keys = [*keys_of(log.files)][:count]
    if not keys:
        return 0, ""
    (last,) = pick(log.files, keys[-1:])
    return len(keys), f"{last.name} {last.checksum}"


def place_of(target: TargetSpec, base: Path) -> Path:
    """Return where a table is that is no name in a catalog."""
    return real(locate(base, target.place.value))


def _is_as_left(target: TargetSpec, base: Path, mark: CommitMark) -> bool:
    if target.kind == "delta":
        from ddcli.store.targets.delta import is_as_left

        return is_as_left(place_of(target, base), mark)
    if target.kind == "parquet":
        return is_there(place_of(target, base))
    return True

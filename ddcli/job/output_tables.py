"""Outputs that are tables of other programs, and the test whether each is up to its log. Imports no third-party library: a run with nothing new looks here."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ddcli.spec.model import DATABASE, SPARK, database_file
from ddcli.store.files.access import is_there, real
from ddcli.store.files.objects import locate
from ddcli.store.mirrors.delta_commits import is_as_left
from ddcli.store.mirrors.file_stamp import size_and_time
from ddcli.store.state.register import keys_of, pick
from ddcli.store.targets.mark import directory_of, read_marks

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.spec.model import Spec, TargetSpec
    from ddcli.store.state.entries import OutputEntry
    from ddcli.store.state.manifest import Manifest
    from ddcli.store.targets.mark import CommitRecord


def is_followed(spec: Spec, base: Path, state: Path, manifest: Manifest) -> bool:
    """Return whether the tables of all outputs seem to be up to their logs, and as their last commits left them."""
    for name, output in spec.outputs.items():
        if output.target is None or name not in manifest.outputs:
            continue
        marks = read_marks(directory_of(state, name))
        if marks.done is None or marks.next is not None:
            return False
        if place_in(manifest.outputs[name], output.target) != (marks.done.log, marks.done.upto):
            return False
        if not _is_as_left(output.target, base, marks.done):
            return False
    return True


def place_in(log: OutputEntry, target: TargetSpec) -> tuple[str, int]:
    """Return the end of a log: its identity, and the commit that wrote to it last. The identity is another one for each form of a history."""
    keys = [*keys_of(log.files)][-1:]
    identity = log.log
    if target.history:
        form = repr((log.log, *([text.value for text in columns] for columns in (target.history, target.track))))
        identity = hashlib.sha256(form.encode()).hexdigest()[:16]
    return identity, max((file.commit for file in pick(log.files, keys)), default=0)


def place_of(target: TargetSpec, base: Path) -> Path:
    """Return the path of a table that is in no catalog, or of the file of its database."""
    path = database_file(target.place.value) if target.kind == DATABASE else target.place.value
    return real(locate(base, path))


def stated(target: TargetSpec) -> dict[str, Any]:
    """Return a table's place in a database, or in Spark with its key, as the file states it: anything more would need a server's answer."""
    if target.kind == SPARK:
        return {SPARK: target.place.value, "key": [text.value for text in target.key]}
    return {"to": target.place.value, "table": target.called}


def _is_as_left(target: TargetSpec, base: Path, mark: CommitRecord) -> bool:
    if target.kind == "delta":
        return is_as_left(place_of(target, base), mark.left)
    if target.kind == DATABASE:
        return mark.left == stated(target) and (target.product == "postgres" or is_there(place_of(target, base)))
    if target.kind == SPARK:
        return {name: mark.left.get(name) for name in stated(target)} == stated(target)
    if target.kind == "parquet":
        path = place_of(target, base)
        return is_there(path) and mark.left == size_and_time(path)
    return True

"""What a run is asked for, and whether there is anything to do at all.

A run with nothing new, the usual case under cron, is found out here from names and sizes of files, before a heavy
library is imported.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddcli import __version__
from ddcli.errors import SpecError, SpecErrors, UsageError
from ddcli.expressions.types import Type, parse_type
from ddcli.spec import load_spec
from ddcli.store.listing import Listing, list_input
from ddcli.store.progress import read_progress
from ddcli.store.state import check_outputs, unpublished
from ddcli.summary import RunSummary
from ddcli.until import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.errors import Text
    from ddcli.spec.model import Spec
    from ddcli.store.manifest import Manifest, Times

DEFAULT_STATE = ".dd"


@dataclass(frozen=True)
class Request:
    """One run as it was asked for, beside what the pipeline file says. Paths are absolute; `digest` is the file's."""

    spec: Spec
    digest: str
    base: Path
    state: Path
    outputs: dict[str, Path]
    until: str | None
    say: Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """What there is of an input: the upper of its progress, if it carries one, and its files."""

    progress: Times | None
    listing: Listing


def read_request(path: Path, state: Path | None, until: str | None, say: Callable[[str], None]) -> Request:
    """Read the pipeline file and return what is asked for, or refuse the file and the paths in it."""
    spec = load_spec(path)
    base = path.absolute().parent
    if state is None:
        state = _normal(base, spec.state.value if spec.state else f"{DEFAULT_STATE}/{spec.name.value}")
    outputs = {name: _normal(base, output.path.value) for name, output in spec.outputs.items()}
    if not outputs:
        raise UsageError("the pipeline has no outputs, so there is nothing to keep up to date", span=spec.name.span)
    _check_paths(spec, base, state.absolute())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Request(spec, digest, base, state.absolute(), outputs, until, say)


def _normal(base: Path, path: str) -> Path:
    """Return a path of the file without `..`, as inputs are looked up: what one pipeline writes another finds."""
    return Path(os.path.normpath(base / path))


def _check_paths(spec: Spec, base: Path, state: Path) -> None:
    """Refuse outputs that are files, that lie in the state or around it or in each other, and what an input would take in."""
    errors = []
    written: list[tuple[str, Text]] = [(f"outputs.{name}", output.path) for name, output in spec.outputs.items()]
    for what, text in [*written, *([("state", spec.state)] if spec.state else [])]:
        path = _normal(base, text.value)
        for name, given in spec.inputs.items():
            if _takes(_normal(base, given.path.value), path / "updates.parquet"):
                errors.append(
                    SpecError(
                        f"{what}: writes into '{given.path.value}', where the input '{name}' reads",
                        span=text.span,
                        hint="give it a directory outside of the inputs'",
                    )
                )
        if path.exists() and not path.is_dir():
            errors.append(SpecError(f"{what}: '{text.value}' is a file", span=text.span, hint="name a directory"))
    for name, output in spec.outputs.items():
        path = _normal(base, output.path.value)
        others = {f"output '{other}'": _normal(base, found.path.value) for other, found in spec.outputs.items()}
        del others[f"output '{name}'"]
        near = [what for what, other in others.items() if _takes(other, path / "updates.parquet")]
        if path.is_relative_to(state) or _takes(path, state / "batch.parquet"):
            near.append("state")
        for what in near:
            problem = f"outputs.{name}: '{output.path.value}' and the directory of the {what} lie in each other"
            errors.append(SpecError(problem, span=output.path.span, hint="give each a directory of its own"))
    if errors:
        raise SpecErrors(errors)


def _takes(given: Path, file: Path) -> bool:
    """Say whether an input, a directory or a glob, would take in a file; one under a hidden or private name it would not."""
    if file.match(str(given)):
        return True
    if not file.is_relative_to(given):
        return False
    return not any(part.startswith((".", "_")) for part in file.relative_to(given).parts)


def find_inputs(request: Request, manifest: Manifest | None) -> dict[str, Found]:
    """Return what there is of each input. Progress is read before files are listed: its writer goes the other way."""
    found = {}
    for name, given in request.spec.inputs.items():
        progress = read_progress(request.base / given.path.value)
        entry = manifest.inputs.get(name) if manifest else None
        found[name] = Found(progress, list_input(given.path.value, request.base, entry.files if entry else ()))
    return found


def time_type(manifest: Manifest) -> Type:
    """Return the type of the pipeline's time, as the first run found it."""
    return parse_type(manifest.cache.get("time", "int64")) or Type("int64")


def nothing_new(request: Request, manifest: Manifest) -> RunSummary:
    """Return the summary of a run that has nothing to do."""
    (upper,) = manifest.upper[0]
    return RunSummary(request.spec.name.value, None, format_time(upper, time_type(manifest)), changed=False)


def is_idle(request: Request, manifest: Manifest) -> bool:
    """Say whether no file is new, no progress has moved, and no row that waits may be taken now."""
    if manifest.pipeline != request.digest or manifest.engine != __version__ or unpublished(request.state, manifest):
        return False
    check_outputs(request.state, manifest, request.outputs)
    if request.until is not None and parse_time(request.until, time_type(manifest)) <= manifest.upper[0][0]:
        return True
    found = find_inputs(request, manifest)
    if any(given.listing.new for given in found.values()) or request.until is not None:
        return False
    uppers = [given.progress[0][0] for given in found.values() if given.progress]
    carried = any(given.progress is not None for given in found.values())
    if uppers and min(uppers) > manifest.upper[0][0]:
        return False
    return carried or not any(given.listing.waiting for given in found.values())

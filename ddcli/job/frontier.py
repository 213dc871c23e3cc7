"""The frontier up to which a run closes the times."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from ddcli.engine.times import BEYOND, Frontier, box
from ddcli.errors import InputError, StateError, UsageError
from ddcli.expressions.types import parse_type
from ddcli.job.clock import is_due, run_time
from ddcli.screen import shell
from ddcli.store.time_text import format_frontier, parse_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.store.state.manifest import Manifest


def find_time(manifest: Manifest) -> Schema:
    """Return the time columns of the outputs and their types, as the first run found them."""
    types = {name: parse_type(text) for name, text in manifest.cache["time"].items()}
    return {name: kind for name, kind in types.items() if kind is not None}


def find_upper(
    request: Request, time: Schema, found: Mapping[str, InputFiles], manifest: Manifest | None, seen: Time | None
) -> Frontier | None:
    """Return the frontier up to which a run closes the times, that of its state or one after it; None if nothing decides it.

    It is the `--until` given; else the least upper of the inputs that carry their progress (a closed input delays no
    other); else the box up to `seen`, the largest value of each coordinate in all files so far. Under the clock of arrivals
    that is the time of this run, if a file is new or something is due.
    """
    before = Frontier(manifest.upper) if manifest else None
    arrival = request.clock.arrival
    carried = [given.progress for given in found.values() if given.progress and not arrival]
    if arrival and manifest is not None and is_due(manifest, at := run_time(request.clock, manifest)):
        asked = box((_after(at),))
    elif request.until is not None:
        asked = parse_until(request.until, time)
    elif carried:
        asked = reduce(Frontier.meet, carried)
    elif seen is not None:
        asked = box(tuple(map(_after, seen)))
    else:
        return before
    upper = asked.join(before) if before else asked
    refuse_beyond_imports(request, time, found, upper, asked=request.until is not None)
    return upper


def refuse_beyond_imports(
    request: Request, time: Schema, found: Mapping[str, InputFiles], upper: Frontier, *, asked: bool = False
) -> None:
    """Refuse to close times that are open in a pipeline from which an arrangement is imported: its rows at these would never be taken.

    `asked`: the frontier is that of `--until`.
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

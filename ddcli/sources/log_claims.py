"""The claims of a pipeline on other pipelines' logs that it reads: updates that it has not read are not summed up.

A hold in the state that writes a log, under a name of its own beside that of imports, has the frontier up to which all is taken. If that state
can't be found or written to there is no hold: then a log that was summed up too far is refused when it is read.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ddcli.errors import DdError
from ddcli.store.files.access import real
from ddcli.store.files.gate import Files
from ddcli.store.files.objects import locate
from ddcli.store.log.progress import read_owned
from ddcli.store.state.holds import Hold, find_hold, holding, reader_name, write_hold
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import output_paths

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ddcli.store.state.entries import Times

LOGS = "-logs"
"""Ends the name of a reader that holds logs."""


def claim_logs(pipeline: str, own: Path, directories: Iterable[Path], upper: Times) -> None:
    """Record that the pipeline with the state `own` has taken the updates before a frontier of the logs in these directories."""
    name = f"{reader_name(pipeline, own)}{LOGS}"
    logs: dict[Path, set[str]] = {}
    for directory in directories:
        with suppress(DdError, OSError):
            place = real(directory)
            _, owner = read_owned(place)
            state = real(locate(place, owner.path)) if owner else None
            manifest = read_newest(state) if state else None
            if owner and state and manifest and manifest.identity == owner.state:
                paths = output_paths(state, manifest)
                logs.setdefault(state, set()).update(
                    manifest.outputs[each].log for each, path in paths.items() if real(path) == place
                )
    for state, found in logs.items():
        hold = Hold(name, str(own), tuple(sorted(found)), upper, upper)
        with suppress(DdError, OSError):
            if find_hold(state, name) != hold:
                with holding(state, Files()):
                    write_hold(state, hold, Files())

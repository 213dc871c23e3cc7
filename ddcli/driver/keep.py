"""`keep:` of an output: after a run, what is older in its log is summed up, when that pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.circuit.retention import kept_logs
from ddcli.job.frontier import find_time
from ddcli.sinks.log_compaction import sum_up
from ddcli.store.log.summary import NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.job.request import Request
    from ddcli.store.state.directory import State
    from ddcli.store.state.entries import FileEntry

FILES = 8
"""Old files of a log from which on they are summed up: a commit of its own."""


def keep_logs(request: Request, state: State) -> None:
    """Sum up what outputs' logs needn't keep apart by the file's `keep`, and commit that."""
    manifest = state.manifest
    assert manifest is not None, "a run that changed something has committed"
    if not manifest.upper:
        return
    ((upper,),) = manifest.upper
    lengths = kept_logs(request.spec, [*find_time(manifest).values()])
    for length in {*lengths.values()}:
        names = [name for name, each in lengths.items() if each == length and name in manifest.outputs]
        sum_up(state, names, upper - length, pays=pays)


def pays(files: Sequence[FileEntry]) -> bool:
    """Say whether old files, the first of which may stand for others, are worth summing up: there are some, and they are as large as half of that.

    So a byte of the log is written again a few times in all.
    """
    summed = sum(file.size for file in files if NAME.fullmatch(file.name))
    others = [file.size for file in files if not NAME.fullmatch(file.name)]
    return len(others) >= FILES and 2 * sum(others) >= summed

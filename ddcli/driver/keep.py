"""`keep:` of an output: after a run, old updates in its log are summed up, if that pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.circuit.retention import claimed_logs, kept_logs
from ddcli.job.inputs import find_time
from ddcli.sinks.log_compaction import sum_up
from ddcli.store.state.consumers import is_summed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.job.request import Request
    from ddcli.job.summary import ClaimSummary
    from ddcli.store.state.directory import State
    from ddcli.store.state.entries import FileEntry

FILES = 8
"""Old files of a log from which on they are summed up: a commit of its own."""


def keep_logs(request: Request, state: State) -> tuple[ClaimSummary, ...]:
    """Sum up the updates that outputs' logs needn't keep apart by the file's `keep`, and commit that; return the claims that prevent it or were passed."""
    manifest = state.manifest
    assert manifest is not None, "a run that changed something has committed"
    if not manifest.upper:
        return ()
    ((upper,),) = manifest.upper
    kinds = [*find_time(manifest).values()]
    lengths, claims = kept_logs(request.spec, kinds), claimed_logs(request.spec, kinds)
    bounds = {name: (length, claims.get(name)) for name, length in lengths.items() if name in manifest.outputs}
    found: list[ClaimSummary] = []
    for length, claimed in dict.fromkeys(bounds.values()):
        names = [name for name, each in bounds.items() if each == (length, claimed)]
        unclaimed = None if claimed is None else upper - claimed
        done = sum_up(state, names, upper - length, unclaimed=unclaimed, pays=pays)
        found += [claim for each in done for claim in each.claims]
    return tuple(found)


def pays(files: Sequence[FileEntry]) -> bool:
    """Return whether old files of a log are worth summing up: there are `FILES` since the last sum, and they are half as large as it, or larger.

    So each byte of the log is written again a few times in all.
    """
    summed = sum(file.size for file in files if is_summed(file))
    others = [file.size for file in files if not is_summed(file)]
    return len(others) >= FILES and 2 * sum(others) >= summed

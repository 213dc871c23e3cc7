"""The view of a pipeline that `dd explain` draws: the plan of the next run, the state, and the records of runs."""

from __future__ import annotations

from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

from ddcli.commands.check import bound_pipeline
from ddcli.job.paths import state_of
from ddcli.job.verdict import verdicts_of
from ddcli.render.view import View, view_of
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import check_pipeline
from ddcli.store.state.runs import read_runs

if TYPE_CHECKING:
    from ddcli.spec.model import Spec
    from ddcli.store.state.manifest import Manifest


def explain(path: Path | str, state: Path | None = None) -> View:
    """Return the view of the pipeline file at `path`, or raise its errors. A notebook shows it as a drawing. No row is read, nothing written, no lock taken.

    An input with declared columns needs no file; the columns of others are read from the files' footers.
    """
    path = Path(path)
    bound = bound_pipeline(path)
    spec = bound.spec
    state = state or state_of(spec, path.absolute().parent)
    manifest = read_newest(state)
    if manifest is not None:
        check_pipeline(state, manifest, path)
    wanted = bound.plan(manifest.cache["plan"] if manifest else None)
    names = {name: relation.node.fingerprint for name, relation in bound.relations.items()}
    paths = {name: output.place.value for name, output in spec.outputs.items()}
    return view_of(spec.name.value, wanted, names, paths, manifest, read_runs(state), _verdicts(spec, manifest))


def _verdicts(spec: Spec, manifest: Manifest | None) -> dict[str, str]:
    """Return the verdicts of checks at the last commit, in words."""
    judged = verdicts_of(spec, manifest, time_ns() // 1000) if manifest is not None and spec.checks else {}
    words = {name: "ok" if verdict.passed else verdict.words for name, verdict in judged.items()}
    return {name: f"check: {words.get(name, 'no run has judged it')}" for name in spec.checks}

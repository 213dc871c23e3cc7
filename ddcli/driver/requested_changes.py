"""The consequences of a request for the plan and the state: the changes, and the refusals before anything is built anew."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ddcli.engine.times import Frontier
from ddcli.errors import ChangedError, DdError, StateError
from ddcli.expressions.types import parse_schema
from ddcli.job.idle_check import is_changed
from ddcli.job.request import functions_of, is_due, run_time
from ddcli.plan.changes import Known, PlanChanges, edits, present, shown
from ddcli.plan.logical import INPUT
from ddcli.screen import plural, shell
from ddcli.spec.file import excerpts, queries
from ddcli.store.log.schema import keeps_columns
from ddcli.store.state.directory import read_holds
from ddcli.store.state.outputs import same_outputs
from ddcli.store.texts import format_frontier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ddcli.expressions.types import Schema
    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.job.summary import OutputSummary
    from ddcli.plan.generations import Plan
    from ddcli.spec.model import Spec
    from ddcli.store.state.manifest import Manifest

COUNTED = 16 << 20
"""Bytes of inputs up to which a refused run computes how many rows would change."""


def find_changes(request: Request, manifest: Manifest, plan: Plan) -> PlanChanges:
    """Return the changes that the plan makes to a state, with all that the request wants to be computed anew."""
    everything = request.decided.refreshes_all or request.decided.reopened is not None
    # A record fails where it is computed; and kept arrangements lack the updates that have become due.
    whole = bool(request.decided.withdrawn) and (
        request.spec.errors is not None
        or (request.clock.arrival and is_due(manifest, run_time(request.clock, manifest)))
    )
    known = Known(
        frozenset() if everything or whole else frozenset(manifest.arrangements),
        {
            now: manifest.outputs[before].fingerprint
            for now, before in renamed(request, manifest).items()
            if now not in request.decided.rewrite
        },
        frozenset() if request.decided.refreshes_all else frozenset(manifest.inputs),
        manifest.cache["plan"]["outline"],
    )
    refresh = frozenset(plan.meanings) if everything or whole else frozenset(request.decided.refresh or ())
    before = known.outline.get("collections")  # none in a state without a run
    written = {} if before is None else edits(before, excerpts(request.spec), queries(request.spec))
    return PlanChanges(plan, known, len(manifest.cache["time"]), refresh, frozenset(request.decided.withdrawn), written)


def renamed(request: Request, manifest: Manifest) -> dict[str, str]:
    """Return the name in the state of each output, by its present name; an output that is gone keeps its own."""
    found = same_outputs(request.state, manifest, request.outputs)
    gone = {name: name for name in manifest.outputs if name not in request.outputs and name not in found.values()}
    return gone | found


def with_new_columns(request: Request, manifest: Manifest, plan: Plan) -> Request:
    """Return the request with a rewrite of each check that has other columns than its log: no one chose these columns. So of outputs, if their updates are only received."""
    found: set[str] = set()
    for name, before in renamed(request, manifest).items():
        node = plan.graph.outputs.get(name)
        free = name in request.spec.checks or request.asked.receives is not None
        if not free or before not in manifest.outputs or node is None:
            continue
        if not keeps_columns(parse_schema(manifest.outputs[before].schema), node.schema):
            found.add(name)
    return request.deciding(rewrite=request.decided.rewrite | found) if found else request


def needs_apply(request: Request, manifest: Manifest, changes: PlanChanges) -> bool:
    """Return whether outputs would change in a way that a person has to ask for.

    That is not so if the state was made by this very file, and the file depends on no code or state beside it that may have changed: then only
    this version of dd plans differently, or inputs have more columns.
    """
    beside = depends_on_more(request.spec)
    if has_grown(request, manifest):
        reasons = [reason for name in changes.rewritten for reason in changes.why(name)]
        beside = beside and not all(reason.startswith(f"{INPUT}:") for reason in reasons)
    return bool(changes.rewritten) and (beside or manifest.pipeline != request.digest)


def depends_on_more(spec: Spec) -> bool:
    """Return whether a pipeline depends on more than its file and inputs: on the code of functions, or on another pipeline's state."""
    return any(functions_of(spec)) or any(given.arrangement is not None for given in spec.inputs.values())


def has_grown(request: Request, manifest: Manifest) -> bool:
    """Return whether the file is the one that made the state, and an input has got columns, or wider types, since."""
    pinned = [given.pinned for given in request.spec.inputs.values() if given.pinned is not None]
    return manifest.pipeline == request.digest and any(each.news for each in pinned)


def refuse_rewriting(
    request: Request,
    manifest: Manifest,
    changes: PlanChanges,
    computed: Callable[[Request], Mapping[str, OutputSummary]],
) -> None:
    """Raise StateError if outputs would change and neither `--apply` nor `--full-refresh` allows it.

    `computed` returns the changes of outputs that a request makes, without committing them. Over small inputs the error has them.
    """
    if request.decided.apply or not needs_apply(request, manifest, changes):
        return
    reasons = dict.fromkeys(reason for name in changes.rewritten for reason in changes.why(name))
    edited = {edit.name: edit for name in changes.rewritten for edit in changes.edits_of(name)}
    outputs = f"{plural(len(changes.rewritten), 'output')} {present(changes.rewritten)}"
    file = request.spec.path
    counts = _counts(request, manifest, computed)
    written = f"`{shell('dd', 'run', file, '--apply')}` writes these changes to the outputs"
    counted = (
        f"`{shell('dd', 'run', file, '--apply', '--dry-run')}` counts the changes, without `--dry-run` it writes "
        "them to the outputs"
    )
    raise ChangedError(
        f"the pipeline has changed since its state was made, and the {outputs} would change: {'; '.join(reasons) or 'changed'}",
        [*shown(edited.values()), *counts],
        place=str(file),
        hint=f"{written if counts else counted}; see also `{shell('dd', 'plan', file)}`; or put the file back",
    )


def _counts(
    request: Request, manifest: Manifest, computed: Callable[[Request], Mapping[str, OutputSummary]]
) -> list[str]:
    """Return a line for each output that would change; none where computing that might take long, or fails."""
    size = sum(file.size for entry in manifest.inputs.values() for file in entry.files)
    imported = any(entry.is_imported for entry in manifest.inputs.values())
    if size > COUNTED or imported or request.asked.resources.engine == "spark":
        return []
    try:
        found = computed(request.deciding(apply=True))
    except DdError:
        return []  # the run that applies the change reports it
    return [f"{name}: {made.words}" for name, made in found.items()]


def refuse_taking_back(request: Request, manifest: Manifest, changes: PlanChanges) -> None:
    """Raise StateError if the pipeline has changed since, or another pipeline reads an arrangement in which something is taken back: it would
    not notice.
    """
    reopens = request.decided.reopened is not None
    as_before = request.deciding(withdrawn={}, reopened=None, rewrite=frozenset())
    if request.decided.forgetting is not None:
        as_before = as_before.deciding(refresh=None)
    grown = not reopens and request.decided.forgetting is None and has_grown(request, manifest)
    if is_changed(as_before, manifest, changes.plan.fingerprint) and not grown:
        what = "it is reopened as it was made" if reopens else "a file is withdrawn from what the state was made by"
        what = what if request.decided.forgetting is None else "rows are forgotten of what the state was made by"
        if any(request.spec.inputs[name].changed == "replace" for name in request.decided.withdrawn):
            anew = shell("dd", "run", request.spec.path, "--full-refresh", "all")
            raise StateError(
                "the pipeline and a file that was already read have both changed since the last run",
                place=str(request.spec.path),
                hint=f"restore the pipeline file and run it once, which replaces the file's rows; or recompute everything: `{anew}`",
            )
        raise StateError(
            f"the pipeline has changed since its state was made: {what}",
            place=str(request.spec.path),
            hint=f"bring the state to the new pipeline with `{shell('dd', 'run', '--apply', request.spec.path)}`, or put the file back, and "
            f"{'reopen' if reopens else 'retract' if request.decided.forgetting is None else 'forget'} then",
        )
    if request.decided.forgetting is not None:
        return  # readers begin anew
    exported = {name for name, identity in manifest.exports.items() if reopens or identity in changes.touched}
    held = {identity for name, identity in manifest.exports.items() if name in exported}
    for hold in read_holds(request.state) if held else ():
        if held & set(hold.arrangements):
            raise StateError(
                f"another pipeline, '{hold.reader}', reads rows that would be withdrawn: the exported {present(sorted(exported))}",
                place=str(request.state),
                hint=f"drop its hold, `dd state release PIPELINE --reader {shlex.quote(hold.reader)}`, "
                + (
                    "reopen this state, and then its own from the same time"
                    if reopens
                    else "retract, and have it start again with `dd run --full-refresh all`"
                ),
            )


def refuse_other_frontiers(reopened: Frontier, found: dict[str, InputFiles], time: Schema) -> None:
    """Raise StateError where a pipeline from which an arrangement is imported has closed other times: it no longer keeps earlier times apart."""
    for name, given in found.items():
        if given.shared is not None and Frontier(given.shared.manifest.upper) != reopened:
            kinds = list(time.values())
            theirs = Frontier(given.shared.manifest.upper)
            raise StateError(
                f"the input '{name}' is an arrangement of the pipeline '{given.shared.manifest.name}', which has closed the times before "
                f"{format_frontier(theirs, kinds) if theirs else 'the end'}, and no longer keeps those apart",
                place=str(given.shared.state),
                hint="reopen that pipeline from this time first, or this one from where that one is",
            )


def refuse_later_imports(manifest: Manifest, found: dict[str, InputFiles]) -> None:
    """Raise StateError where a pipeline from which an arrangement is imported has run since: it no longer keeps the earlier times apart."""
    for name, given in found.items():
        if given.shared is not None and not Frontier(given.shared.manifest.upper).dominates(Frontier(manifest.upper)):
            raise StateError(
                f"the input '{name}' is an arrangement of the pipeline '{given.shared.manifest.name}', which has run since this one did",
                place=str(given.shared.state),
                hint="run this pipeline first, and forget then",
            )

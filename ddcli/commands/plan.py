"""The preview of a run: the changes that it would make, for `dd plan`."""

from __future__ import annotations

from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import frozen
from ddcli.driver.tables import read_settled, tables_as_now
from ddcli.engine.times import Frontier
from ddcli.job.idle_check import is_changed, look_for_work
from ddcli.job.inputs import find_time, find_upper
from ddcli.job.request import newest_of, read_request
from ddcli.job.summary import size_of
from ddcli.plan.changes import before_edits, describe, shown
from ddcli.plan.estimates import estimated_rows
from ddcli.plan.lineage import reach_of_edits
from ddcli.plan.physical import EXPORT, WAITING
from ddcli.plan.pipeline_file import work_regressions
from ddcli.screen import plural
from ddcli.store.state.entries import Size
from ddcli.store.state.outputs import check_outputs
from ddcli.store.texts import format_frontier, json_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ddcli.driver.prepare import Prepared
    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.plan.changes import Edit, PlanChanges
    from ddcli.plan.choices import PlanChoice
    from ddcli.plan.generations import Plan
    from ddcli.plan.lineage import Reach
    from ddcli.plan.pipeline_file import BoundPipeline
    from ddcli.store.state.entries import ArrangementEntry
    from ddcli.store.state.manifest import Manifest


@frozen
class InputWork:
    """The most rows that a run would take from an input, from new files and files with waiting rows; and the files that it would read again."""

    rows: int
    new_files: int
    waiting_files: int
    again_files: int = 0
    again_bytes: int = 0


@frozen
class ArrangementWork:
    """An arrangement that is kept (with its size), built, or dropped, and the reasons. A dropped one has only its identity.

    One that is built in a new state has an estimate of its rows.
    """

    of: str
    rows: int = 0
    bytes: int = 0
    why: tuple[str, ...] = ()
    estimated: int | None = None


@frozen
class UpdateCounts:
    """The number of updates, and the sums of their positive and of their negative diffs."""

    rows: int
    inserted: int
    retracted: int


@frozen
class OutputWork:
    """The change of an output: "same", "new", "changed" (it gets the difference), or "removed"; and the reasons."""

    change: str
    why: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    """The edited collections behind it."""
    updates: UpdateCounts | None = None
    """The updates that the change would add to it, if they were counted."""


@frozen
class Preview:
    """The changes that a run would make."""

    name: str
    lower: str | None
    upper: str | None
    work: bool
    needs_apply: bool = False
    inputs: dict[str, InputWork] = field(default_factory=dict)
    kept: tuple[ArrangementWork, ...] = ()
    built: tuple[ArrangementWork, ...] = ()
    dropped: tuple[ArrangementWork, ...] = ()
    outputs: dict[str, OutputWork] = field(default_factory=dict)
    worsened: tuple[str, ...] = ()
    """A line for each collection whose operators may do more work for a change than in the last run, with its place."""
    inferred: dict[str, str] = field(default_factory=dict)
    """The inferred columns of inputs, as far as they are known."""
    reached: tuple[Reach, ...] = ()
    """The columns of outputs that each edited column reaches."""
    choices: tuple[PlanChoice, ...] = ()
    """The plan's choices, with their reasons."""

    def to_json(self) -> dict[str, Any]:
        """Return the preview as JSON."""
        reached = [each._asdict() for each in self.reached]
        return asdict(self) | {"lower": json_time(self.lower), "upper": json_time(self.upper), "reached": reached}

    def lines(self, pipeline: str) -> list[str]:
        """Return the preview as lines of text, with the commands that the file `pipeline` needs next."""
        if not self.work:
            at = f" (times before {self.upper} are closed)" if self.upper else ""
            return [f"{self.name}: nothing to do{at}"]
        since = f" from {self.lower}" if self.lower else ""
        closes = self.upper is not None and self.lower != self.upper
        lines = [f"{self.name}: times{since} until {self.upper}" if closes else f"{self.name}: no new times"]
        for name, given in self.inputs.items():
            if given.new_files or given.waiting_files:
                waiting = f", {given.waiting_files} with rows at later times" if given.waiting_files else ""
                files = f"{given.new_files} new {plural(given.new_files, 'file')}{waiting}"
                lines.append(f"  read    {name}: {files}, {given.rows:,} {plural(given.rows, 'update')}")
            if given.again_files:
                files = f"{given.again_files} {plural(given.again_files, 'file')}"
                why = "to build what is new" if self.outputs else "for the rows that differ"
                lines.append(f"  again   {name}: {files}, {size_of(given.again_bytes)}, {why}")
        lines += [f"  columns {name}: {remark}" for name, remark in self.inferred.items()]
        if self.kept:
            rows = sum(each.rows for each in self.kept)
            count = f"{len(self.kept)} {plural(len(self.kept), 'arrangement')}"
            lines.append(
                f"  keep    {count}, {rows:,} {plural(rows, 'row')}, {size_of(sum(e.bytes for e in self.kept))}"
            )
        built = dict.fromkeys(f"  build   {each.of}{_estimate(each.estimated)}" for each in self.built)
        lines += built
        if self.dropped:
            count = f"{len(self.dropped)} {plural(len(self.dropped), 'arrangement')}"
            lines.append(f"  drop    {count}, {size_of(sum(each.bytes for each in self.dropped))}")
        words = {"new": "begin", "changed": "change", "removed": "forget"}
        for name, output in self.outputs.items():
            if output.change in words:
                why = f": {'; '.join(output.why)}" if output.why else ""
                rest = "; its files stay" if output.change == "removed" else ""
                lines.append(f"  {words[output.change]:7} {name}{_counted(output.updates)}{why}{rest}")
        edited = {edit.name: edit for output in self.outputs.values() for edit in output.edits}
        lines += [f"          {line}" for line in shown(edited.values())]
        lines += [f"  reach   {each.words}" for each in self.reached]
        lines += [f"  work    {line}" for line in self.worsened]
        if self.built:
            lines += [f"  choose  {each.kind}: {each.at}: {each.chosen}; {each.why}" for each in self.choices]
        if self.needs_apply:
            lines.append(
                f"  `dd run {pipeline} --apply` writes the difference to the outputs that change, from the frontier on"
            )
            if not any(output.updates for output in self.outputs.values()):
                lines.append(f"  `dd plan {pipeline} --counts` computes how many rows that is")
        return lines


def _estimate(rows: int | None) -> str:
    return "" if rows is None else f", about {rows:,} {plural(rows, 'row')}"


def _counted(updates: UpdateCounts | None) -> str:
    if updates is None:
        return ""
    return f": {updates.rows:,} {plural(updates.rows, 'update')} (+{updates.inserted:,} -{updates.retracted:,})"


def preview(path: Path, *, state: Path | None = None, until: str | None = None, counts: bool = False) -> Preview:
    """Return the work that a run of the pipeline file at `path` would do, or raise the run's error. Writes nothing, takes no lock.

    With `counts` the changes that an edited file makes to outputs are computed, as a dry run does.
    """
    request = read_request(path, state, until)
    found = read_settled(request, lambda: _preview_now(request))
    return _with_counts(found, path, state, until) if counts and found.needs_apply else found


def _with_counts(found: Preview, path: Path, state: Path | None, until: str | None) -> Preview:
    from ddcli.driver.run import run

    summary = run(path, state=state, until=until, apply=True, dry_run=True)
    outputs = dict(found.outputs)
    for name, made in summary.rebuilt.items():
        if name in outputs:
            updates = UpdateCounts(made.rows, made.inserted, made.retracted)
            outputs[name] = replace(outputs[name], updates=updates)
    return replace(found, outputs=outputs)


def _preview_now(request: Request) -> Preview:
    manifest = newest_of(request)
    check_outputs(request.state, manifest, request.outputs)
    checked = None if manifest is None else look_for_work(request.deciding(apply=True), manifest, locks=False)
    if manifest is not None and checked is not None and checked.idle:
        upper = format_frontier(Frontier(manifest.upper), list(find_time(manifest).values()))
        return Preview(request.spec.name.value, upper, upper, work=False)
    with tables_as_now(request) as now:
        return _preview(now, manifest, checked.found if checked else None)


def _preview(request: Request, manifest: Manifest | None, found: dict[str, InputFiles] | None) -> Preview:
    from ddcli.driver.prepare import copy_directory, prepare, prepare_run
    from ddcli.driver.replacement import with_copies
    from ddcli.driver.requested_changes import find_changes, needs_apply
    from ddcli.plan.choices import plan_choices
    from ddcli.sources.readers import largest_seen, late_upper, refuse_ahead
    from ddcli.store.log.reader import LogReader

    request, ready = prepare_run(request, manifest, None, found)
    wanted = ready.bound.plan(manifest.cache["plan"] if manifest else None)
    if manifest is not None and request.decided.withdrawn:
        with copy_directory() as copies:
            by_copies = with_copies(request, manifest, ready, wanted.graph, copies)
        if by_copies is not request:
            request, ready = by_copies, prepare(by_copies, manifest)
    before = Frontier(manifest.upper) if manifest else None
    upper = find_upper(request, ready.bound.time, ready.found, manifest, largest_seen(manifest, ready.readers))
    refuse_ahead(request, ready.found, ready.readers)
    if manifest is not None and upper == before and not request.decided.withdrawn:
        upper = late_upper(request, manifest, ready.found, ready.readers) or upper
    changes = (
        find_changes(request, manifest, wanted)
        if manifest and is_changed(request, manifest, wanted.fingerprint)
        else None
    )
    again = _read_again(changes, ready.found) | _read_anew(ready)
    inputs = {}
    for name, reader in ready.readers.items():
        known = manifest is not None and name in manifest.inputs
        closed = manifest.upper if manifest is not None and known else None
        rows = 0 if upper is None or name in request.decided.withdrawn else reader.take((), closed, upper.elements).rows
        inputs[name] = InputWork(rows, len(reader.listing.new), len(reader.listing.waiting), *again.get(name, (0, 0)))
    kinds = ready.bound.kinds
    expected = {} if manifest else estimated_rows(wanted.graph, {name: each.rows for name, each in inputs.items()}, {})
    return Preview(
        request.spec.name.value,
        format_frontier(before, kinds) if before else None,
        format_frontier(upper, kinds) if upper else None,
        work=upper != before or changes is not None or bool(request.decided.copies),
        needs_apply=bool(
            manifest and changes and not request.decided.withdrawn and needs_apply(request, manifest, changes)
        ),
        inputs=inputs,
        worsened=_regressions(ready.bound, wanted, manifest) if changes else (),
        reached=tuple(reach_of_edits(before_edits(ready.bound, manifest.cache["plan"]["outline"]), ready.bound))
        if changes and manifest
        else (),
        inferred={
            name: reader.pinned.note
            for name, reader in ready.readers.items()
            if isinstance(reader, LogReader) and reader.pinned is not None
        },
        choices=tuple(plan_choices(ready.bound, wanted, expected)),
        **_state_work(wanted, changes, manifest, expected),
    )


def _regressions(bound: BoundPipeline, wanted: Plan, manifest: Manifest | None) -> tuple[str, ...]:
    """Return a line for each collection in a worse class of work than in the plan that made the state."""
    known = manifest.cache["plan"].get("work") if manifest else None
    found = work_regressions(known or {}, bound, wanted)  # states of earlier versions lack the classes
    return tuple(f"{place.span}: {place.words}: {own}, {before} before" for place, before, own in found)


def _read_again(changes: PlanChanges | None, found: dict[str, InputFiles]) -> dict[str, tuple[int, int]]:
    """Return the number of files and bytes that must be read again, by input."""
    if changes is None:
        return {}
    read = [name for name in changes.cut().scans() if name in changes.known.inputs]
    files = {name: found[name].listing.past().to_read for name in read}
    return {name: (len(each), sum(file.size for file in each)) for name, each in files.items() if each}


def _read_anew(ready: Prepared) -> dict[str, tuple[int, int]]:
    """Return the number of files and bytes that replaced files make a run read, by input: of upserts all files, if their keys differ."""
    from ddcli.store.log.reader import LogReader

    found = {}
    for name, given in ready.found.items():
        if given.replacing is not None:
            files = given.replacing.to_read
            reader = ready.readers[name]
            if isinstance(reader, LogReader) and not reader.log.adds_up:
                files = (*given.listing.past().to_read, *files)
            found[name] = len(files), sum(file.size for file in files)
    return found


def _state_work(
    wanted: Plan, changes: PlanChanges | None, manifest: Manifest | None, expected: Mapping[str, float]
) -> dict[str, Any]:
    """Return the work on arrangements and outputs; `expected` are the estimated rows of a new state's arrangements, by fingerprint."""
    if manifest is None:
        times = next((node.nt for node in wanted.graph.scans().values()), 1)
        built = [
            ArrangementWork(
                describe(node), estimated=round(expected[node.fingerprint]) if node.fingerprint in expected else None
            )
            for node in wanted.graph.nodes
            if node.keeps_state(times)
        ]
        outputs = {name: OutputWork("new") for name in wanted.graph.outputs if not name.startswith(EXPORT)}
        return {"built": tuple(built), "outputs": outputs}
    if changes is None:
        return {}

    def held(entries: list[ArrangementEntry]) -> tuple[int, int]:
        size = Size.of([file for entry in entries for file in entry.files])
        return size.rows, size.bytes

    def entries(fingerprint: str) -> list[ArrangementEntry]:
        names = (fingerprint, fingerprint + WAITING)
        return [manifest.arrangements[name] for name in names if name in manifest.arrangements]

    outputs = {
        name: OutputWork("changed", tuple(changes.why(name)), tuple(changes.edits_of(name)))
        if change == "changed"
        else OutputWork(change)
        for name, change in changes.outputs.items()
    }
    return {
        "kept": tuple(ArrangementWork(describe(node), *held(entries(name))) for name, node in changes.kept.items()),
        "built": tuple(
            ArrangementWork(describe(node), why=tuple(changes.why_built(name))) for name, node in changes.built.items()
        ),
        "dropped": tuple(ArrangementWork(name, *held([manifest.arrangements[name]])) for name in changes.dropped),
        "outputs": outputs | {name: OutputWork("removed") for name in changes.removed},
    }

"""The comparison of a pipeline file with a state: the effect that an edit, or a file less, would have on its outputs.

The state is opened read-only at its newest commit: without a lock, and nothing is written to it, to its inputs or its outputs. A dry run
builds what lies above the edit from the arrangements that the state keeps, as `dd run --apply` does, and the updates that it would add to
the outputs are the difference. Inputs are as the state has read them, so rows that are new since then make none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from glob import has_magic, iglob
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from ddcli.compare.diff import compare, unchanged
from ddcli.compare.pairs import WEIGHT, Side
from ddcli.compare.pipelines import Differences, chosen_outputs, regressions
from ddcli.driver.prepare import bind_remembered
from ddcli.driver.requested_changes import depends_on_more
from ddcli.errors import BudgetError, StateError, UsageError
from ddcli.expressions.types import parse_schema
from ddcli.job.budget import run_budget
from ddcli.job.corrections import with_added_files, with_withdrawn_files
from ddcli.job.inputs import find_inputs
from ddcli.job.paths import DEFAULT_STATE
from ddcli.job.request import read_request, refuse_code
from ddcli.job.verdict import KEPT
from ddcli.plan.changes import before_edits, only, reached_outputs
from ddcli.plan.lineage import reach_of_edits
from ddcli.screen import near, shell
from ddcli.sinks.side_logs import ReceivedUpdates
from ddcli.spec.file import ENDINGS
from ddcli.store.files.access import fs, locate
from ddcli.store.log.log_files import scan_entries
from ddcli.store.log.schema import keeps_columns
from ddcli.store.log.writer import DIFF
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import file_of, output_paths, same_outputs
from ddcli.store.state.upkeep import on_newest
from ddcli.store.tables.input_path import pattern_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.compare.columns import Settings
    from ddcli.compare.diff import Difference
    from ddcli.expressions.types import Schema
    from ddcli.job.inputs import InputFiles
    from ddcli.job.request import Request
    from ddcli.job.summary import RunSummary
    from ddcli.plan.generations import Plan
    from ddcli.plan.pipeline_file import BoundPipeline
    from ddcli.spec.model import Spec
    from ddcli.store.state.manifest import Manifest

LOG = "change log"
MOST_STATES = 3
"""The most states that a hint names."""


def compare_against(
    path: Path,
    state: Path,
    settings: Callable[[str], Settings],
    *,
    added: Sequence[tuple[str, Path]] = (),
    without: Sequence[Path] = (),
    select: Sequence[str] = (),
    memory: int | None = None,
    no_code: bool = False,
    sampled: Sampled | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Differences:
    """Compare the outputs as a state has committed them (A) with those that the pipeline file at `path` would make of the rows that the state has read (B).

    `added` are files that an input of B has beside those that were read, `without` are files that B lacks; the pipeline file must be the state's then. `settings` returns the settings of an output. With `sampled` only a sample of each output is compared,
    and neither checks nor budgets are judged.
    Raises StateError if there is no state, or if it is another pipeline's, and the errors of a run.
    """

    def attempt(manifest: Manifest) -> Differences:
        request = base_request(path, state, manifest, memory, say)
        refuse_code(request.spec, no_code=no_code)
        known = same_outputs(request.state, manifest, request.outputs)
        checks = {*request.spec.checks, *manifest.cache.get(KEPT, ())}
        gone = [name for name in manifest.outputs if name not in known.values() and name not in checks]
        present = [name for name in request.outputs if name not in checks]
        chosen = chosen_outputs([*dict.fromkeys([*gone, *present])], select)
        request, inputs = chosen_files(request, manifest, added, without)
        computed = _reached(request, manifest, inputs)
        found = Differences.of(chosen, [*known, *gone], request.outputs)
        both = {name: known[name] for name in chosen if name in known and name in request.outputs}
        if sampled is not None:
            if computed.outputs and computed.spec.inputs.keys() <= manifest.inputs.keys():
                bound = bind_remembered(computed, manifest)
                found.notes = _notes(manifest, bound, bound.plan(manifest.cache["plan"]))
            _compare_samples(found, request, [*both], known, sampled(request, manifest), settings, memory)
            return found
        with tempfile.TemporaryDirectory(prefix="dd-against-", ignore_cleanup_errors=True) as scratch:
            received = ReceivedUpdates(Path(scratch))
            schemas: dict[str, Schema] = {}
            if computed.outputs:
                planned: list[tuple[BoundPipeline, Plan]] = []
                run = computed.asking(receives=received.add, planned=lambda *made: planned.append(made))
                summary, exceeded = _effect(run, manifest, inputs)
                found.notes = (*_notes(manifest, *planned[-1]), *exceeded)
                schemas = {name: node.schema for name, node in planned[-1][1].graph.outputs.items()}
                found.failing = tuple(
                    f"{one.title}: {one.words}"
                    for one in summary.checks.values()
                    if not one.passed and one.otherwise == "fail"
                )
            rows = _rows(request, manifest, both)
            for name, before in both.items():
                found.outputs[name] = _difference(
                    request, manifest, name, before, rows[name], schemas.get(name), received, settings(name), memory
                )
        return found

    return compare_on_newest(state, attempt, say)


def compare_on_newest(state: Path, attempt: Callable[[Manifest], Found], say: Callable[[str], None]) -> Found:
    """Return the result of an attempt that reads a state's newest commit and its logs; it is made again if `dd forget` has rewritten logs meanwhile."""
    found, stands = on_newest(
        lambda: newest_manifest(state),
        attempt,
        lambda _, before: before.cache.get("forgot") == newest_manifest(state).cache.get("forgot"),
        lambda: say("the state was committed meanwhile: the comparison starts again on its newest commit"),
    )
    if not stands:
        problem, hint = "rows were forgotten while the state was read, each time", "repeat it after `dd forget`"
        raise StateError(problem, place=str(state), hint=hint)
    return found


Found = TypeVar("Found")
Samples = Callable[[str, str], "tuple[pl.DataFrame, pl.DataFrame] | str"]
"""Returns the samples of an output in a state's log, by its name there, and of the output of a file; or the reason why they can't be compared."""
Sampled = Callable[["Request", "Manifest"], Samples]
"""Returns the samples of a commit's outputs and of a request's."""


def _compare_samples(
    found: Differences,
    request: Request,
    names: Sequence[str],
    known: Mapping[str, str],
    samples: Samples,
    settings: Callable[[str], Settings],
    memory: int | None,
) -> None:
    """Compare the samples of outputs. Raises UsageError if none can be compared."""
    left = {}
    for name in names:
        sides = samples(name, known[name])
        if isinstance(sides, str):
            left[name] = sides
            continue
        labels = [f"{near(str(side))}: {name}" for side in (request.state, request.spec.path)]
        a, b = (
            _side(label, dict([*frame.schema.items()][:-1]), [frame.lazy().rename({frame.columns[-1]: WEIGHT})])
            for label, frame in zip(labels, sides, strict=True)
        )
        found.outputs[name] = compare(a, b, settings(name), memory)
    if left and not found.outputs:
        name, why = next(iter(left.items()))
        raise UsageError(f"no output can be sampled: {name}: {why}", hint="name a column of an output")
    found.notes += tuple(f"{name}: not compared: {why}" for name, why in left.items())
    found.notes += ("a sample is compared: checks and budgets are not judged",)


def newest_manifest(state: Path) -> Manifest:
    """Return the newest commit of a state to compare with. Raises StateError if there is none."""
    manifest = read_newest(state)
    if manifest is None:
        hint = "name a state's directory, or s3://BUCKET/PREFIX: `dd state ls` shows where a pipeline keeps its state"
        if found := _states_near(state):
            hint = f"name a state: {' or '.join(f'`--against {shell(near(str(each)))}`' for each in found)}"
        raise StateError("there is no state to compare with", place=str(state), hint=hint)
    return manifest


def _states_near(place: Path) -> list[Path]:
    """Return the states in a directory or beside a pipeline file, which a person may have named in place of a state."""
    if not fs(place).is_local:
        return []
    folder = place.parent if place.suffix in ENDINGS else place
    found = {each.parent for below in ("*", f"{DEFAULT_STATE}/*") for each in folder.glob(f"{below}/manifest")}
    return sorted(found)[:MOST_STATES]


def _rows(request: Request, manifest: Manifest, outputs: Mapping[str, str]) -> dict[str, int]:
    """Return the number of rows of outputs, as the state has committed them; `outputs` has the name that each has there."""
    weight = pl.col(DIFF).sum()
    scans = {
        name: [*scan_entries(request.outputs[name], manifest.outputs[before].files, {}, [DIFF])]
        for name, before in outputs.items()
    }
    sums = [pl.concat([each.select(weight) for each in found]).select(weight) for found in scans.values() if found]
    rows = iter(pl.collect_all(sums, engine="streaming"))
    return {name: int(next(rows).item()) if found else 0 for name, found in scans.items()}


def _scans(request: Request, manifest: Manifest, name: str, before: str) -> list[pl.LazyFrame]:
    """Return the updates in the log of an output, with `WEIGHT`."""
    entry = manifest.outputs[before]
    found = scan_entries(request.outputs[name], entry.files, parse_schema(entry.schema), [DIFF])
    return [each.rename({DIFF: WEIGHT}) for each in found]


def chosen_files(
    request: Request, manifest: Manifest, added: Sequence[tuple[str, Path]], without: Sequence[Path]
) -> tuple[Request, dict[str, InputFiles] | None]:
    """Return the request of a dry run with files more and less than the state has read, whatever its checks find, and the inputs if files are added."""
    if without:
        request = with_withdrawn_files(request, manifest, without, strict=True)
    inputs = _with_files(request, manifest, added) if added else None
    accepts = dict.fromkeys(request.spec.checks, "a comparison")
    return request.deciding(closes=bool(added), apply=True, accepts=accepts), inputs


def _reached(request: Request, manifest: Manifest, inputs: Mapping[str, InputFiles] | None) -> Request:
    """Return the request with the outputs alone that may differ from the state's, and with all checks, which are judged anew; without any for the file that made the state."""
    spec = request.spec
    if inputs is not None or request.decided.withdrawn or depends_on_more(spec):
        return request
    edited = manifest.pipeline != request.digest
    names = (
        reached_outputs(spec, manifest.cache["plan"]["outline"]) | spec.checks.keys() if edited else frozenset[str]()
    )
    outputs = {name: place for name, place in request.outputs.items() if name in names}
    return replace(request, spec=only(spec, names), outputs=outputs)


def _notes(manifest: Manifest, bound: BoundPipeline, plan: Plan) -> tuple[str, ...]:
    """Return a line for each collection that may do more work than in the state, and one for each column that the file computes in another way."""
    edits = reach_of_edits(before_edits(bound, manifest.cache["plan"]["outline"]), bound)
    return (*regressions(manifest, bound, plan, "in the state"), *(each.note for each in edits))


def base_request(
    path: Path, state: Path, manifest: Manifest, memory: int | None, say: Callable[[str], None]
) -> Request:
    """Return the request of the file over the state, with the inputs and the outputs where the state has them."""
    own = file_of(state, manifest)
    base = own.parent if own is not None and fs(own.parent).exists() else None
    queries = manifest.cache["plan"]["outline"].get("tables")
    request = read_request(path, state, say=say, base=base, branches=False, queries=queries)
    if request.spec.name.value != manifest.name:
        raise StateError(
            f"the state is of the pipeline '{manifest.name}', and the file is '{request.spec.name.value}'",
            place=str(state),
            hint="name the state of this pipeline",
        )
    if base is not None:
        request = replace(request, spec=_with_own_inputs(request.spec, manifest, path.absolute().parent))
    there = output_paths(state, manifest)
    outputs = {name: there.get(name, place) for name, place in request.outputs.items()}
    resources = request.asked.resources.limited(memory, engine="local")
    return replace(request, outputs=outputs).asking(claims=False, resources=resources)


def _with_own_inputs(spec: Spec, manifest: Manifest, folder: Path) -> Spec:
    """Return a file whose new inputs, which the state has not read, are read in its own folder, where that has them."""
    inputs = {}
    for name, given in spec.inputs.items():
        if name in manifest.inputs or given.table or given.arrangement is not None:
            continue
        _, pattern = pattern_of(given.path.value, folder)
        if any(iglob(pattern, recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute pattern
            value = pattern if has_magic(given.path.value) else str(locate(folder, given.path.value))
            inputs[name] = replace(given, path=replace(given.path, value=value))
    return replace(spec, inputs=spec.inputs | inputs)


def _with_files(request: Request, manifest: Manifest, added: Sequence[tuple[str, Path]]) -> dict[str, InputFiles]:
    """Return the inputs as the state has read them, with these files, by input, as all that is new. Raises UsageError and InputError for files that can't be added."""
    if manifest.pipeline != request.digest:
        raise UsageError(
            "the pipeline has changed since its state was made: an edit and files are compared one after the other",
            place=str(request.spec.path),
            hint="compare the edit alone, or the files by the file that made the state",
        )
    request = with_added_files(request, manifest, added)
    found = {}
    for name, given in find_inputs(request, manifest).items():
        new = tuple(file for file in given.listing.new if file in request.decided.added.get(name, ()))
        found[name] = replace(
            given, progress=None, listing=replace(given.listing, new=new, waiting=(), changed=frozenset(), grown={})
        )
    return found


def _effect(
    request: Request, manifest: Manifest, inputs: dict[str, InputFiles] | None
) -> tuple[RunSummary, tuple[str, ...]]:
    """Run the request dry, and return its summary, with a note if that exceeds the budget of the file. Tables that the state knows are as it has read them."""
    from ddcli.driver.run import dry_run
    from ddcli.job.tables import mirror_apart

    session, budget = request.asked.resources.spark.session, run_budget(request.spec.budget, {})
    with mirror_apart(request.spec, request.base, manifest, session, manifest.inputs) as spec:
        request = replace(request, spec=spec)
        try:
            return dry_run(request.asking(budget=budget), manifest, found=inputs), ()
        except BudgetError as error:
            return dry_run(request, manifest, found=inputs), (f"budget: {error.problem}",)


def _difference(
    request: Request,
    manifest: Manifest,
    name: str,
    before: str,
    rows: int,
    schema: Schema | None,
    received: ReceivedUpdates,
    settings: Settings,
    memory: int | None,
) -> Difference:
    """Return the difference of an output that has `rows`, and would have the columns `schema` (None if it was not computed): of its updates alone, or, where its columns change, of all that the log has and would have."""
    logged = parse_schema(manifest.outputs[before].schema)
    known = {column: kind.to_polars() for column, kind in logged.items()}
    labels = f"{near(str(request.state))}: {name}", f"{near(str(request.spec.path))}: {name}"
    anew = schema is not None and not keeps_columns(logged, schema)
    if schema is None or not (anew or received.files.get(name)):
        return unchanged(labels, LOG, known, rows, settings)
    columns = {column: kind.to_polars() for column, kind in schema.items()}
    if anew:
        a = [each.select(*known, WEIGHT) for each in _scans(request, manifest, name, before)]
        b = list(received.scan(name, list(columns), WEIGHT))
        return compare(_side(labels[0], known, a), _side(labels[1], columns, b), settings, memory)
    weight = pl.col(WEIGHT)
    updates = list(received.scan(name, list(columns), WEIGHT))
    a = [each.filter(weight < 0).with_columns(-weight) for each in updates]
    b = [each.filter(weight > 0) for each in updates]
    found = compare(_side(labels[0], columns, a), _side(labels[1], columns, b), settings, memory)
    found.a.rows, found.b.rows = rows, rows + found.b.rows - found.a.rows
    return found


def _side(label: str, columns: Mapping[str, pl.DataType], scans: Sequence[pl.LazyFrame]) -> Side:
    none = pl.LazyFrame(schema={**columns, WEIGHT: pl.Int64()})
    return Side(label, LOG, columns, [none, *scans], sliced=True, is_log=True)

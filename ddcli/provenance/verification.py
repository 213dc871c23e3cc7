"""`dd verify`: outputs as they are committed against the same by their inputs, computed in another way than by a run.

A *slice* is a part of the values of one column of an output, by their hash. The rows of the inputs on which records with these values can depend are
read from the files, the pipeline is run over them alone in memory, without the state, and the records are compared with those in the output's log. So
a slice costs what its rows cost, and disjoint slices together prove all records. Values that only the inputs have count too: a record may be missing.

All of a pipeline is verified by computing it anew from the files that the state has read, without what the state keeps, in a dry run. That also builds the
arrangements of the state, which are compared by their fingerprints. The log of each output is compared with the fingerprint that the commits have kept of it.

`dd diff --against --sample` compares the outputs of an edited file with a state's in the same way, by a sample of a column's values.
"""

from __future__ import annotations

import random
import tempfile
import time as clock
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.driver.run import dry_run
from ddcli.engine.times import BEYOND, Frontier
from ddcli.errors import DdError, InputError, StateError, UsageError, first_line, suggestion
from ddcli.expressions.types import parse_schema
from ddcli.job.request import newest_of, read_request, refuse_code
from ddcli.plan.test_steps import collection_named
from ddcli.provenance.inputs import EXACT, Inputs, KeySet
from ddcli.provenance.question import Question
from ddcli.provenance.slices import ELSEWHERE, Sample, SliceNumber, Slices, by_title, uncompared, verify_arrangements
from ddcli.screen import shell
from ddcli.sinks.followers import TableBehind, compare_table
from ddcli.sinks.side_logs import ReceivedUpdates
from ddcli.store.batch.checked_files import check_bytes, read_checked
from ddcli.store.files.access import fs
from ddcli.store.files.gate import Files
from ddcli.store.log.writer import DIFF
from ddcli.store.state.document import VERIFIED, Document
from ddcli.store.state.fingerprint import COUNT, LogProof, read_log, stored_numbers
from ddcli.store.state.outputs import same_outputs
from ddcli.store.state.upkeep import on_newest
from ddcli.store.tables.kinds import READ_ERRORS
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.engine.times import Time
    from ddcli.job.request import Request
    from ddcli.plan.node import Node
    from ddcli.store.state.entries import OutputEntry
    from ddcli.store.state.manifest import Manifest


@frozen
class CoveredSlices:
    """The slices of `parts` disjoint ones that were found right since all of them were last, by their numbers."""

    parts: int
    numbers: tuple[int, ...]


def _check(found: CoveredSlices, _path: Path) -> None:
    if sorted({*found.numbers}) != [*found.numbers] or not all(each < found.parts for each in found.numbers):
        raise ValueError(found)


COVERED = Document(
    CoveredSlices,
    "the slices that were verified can't be read",
    "remove the file: then all slices are verified again",
    _check,
)


@dataclass
class OutputProof:
    """An output's records that were verified, and those that differ.

    `differing` are records with the column COUNT: the multiplicity by the inputs less that in the log.
    """

    name: str
    column: str | None
    """The column whose values are sliced; None: all records were verified."""
    values: int
    rows: int
    """The number of verified records, in the log or by the inputs."""
    differing: pl.DataFrame

    @property
    def same(self) -> bool:
        """Return whether the log is right by the inputs."""
        return not self.differing.height

    def first(self, limit: int) -> list[tuple[dict[str, Any], int]]:
        """Return the first records that differ, each with its multiplicity by the inputs less that in the log."""
        return _records(self.differing, limit)


@frozen
class TableProof:
    """The table that follows an output, compared with the output's whole log."""

    place: str
    differing: pl.DataFrame
    """Records with the column COUNT: the multiplicity by the log less the table's."""
    others: int
    """The number of further rows of the table that are like no record of the log."""
    fault: str | None = None
    """The reason why the table can't be one with the contents of the log, where its rows can't be compared."""

    @property
    def same(self) -> bool:
        """Return whether the table has the contents of the log."""
        return not self.differing.height and not self.others and self.fault is None

    def first(self, limit: int) -> list[tuple[dict[str, Any], int]]:
        """Return the first records that differ, each with its multiplicity by the log less that in the table."""
        return _records(self.differing, limit)


@dataclass
class Verification:
    """The proofs of a pipeline's outputs as of the last closed time `at`, and the reasons why others can't be verified by slices."""

    pipeline: str
    at: str | None
    slice: SliceNumber | None
    proofs: list[OutputProof] = field(default_factory=list)
    unproven: dict[str, str] = field(default_factory=dict)
    tables: dict[str, TableProof] = field(default_factory=dict)
    """The tables that follow outputs, by output."""
    logs: dict[str, LogProof] = field(default_factory=dict)
    """The logs of the outputs."""
    arrangements: dict[str, bool] = field(default_factory=dict)
    """The verdicts on the arrangements that were computed, by the operators that keep them: True is right."""
    uncompared: dict[str, str] = field(default_factory=dict)
    """The reasons why other arrangements of the state are not compared, by the operators that keep them."""
    lagging: dict[str, str] = field(default_factory=dict)
    """The reasons why a table is not compared with its output's log: the next run completes it."""
    seconds: float = 0.0

    @property
    def same(self) -> bool:
        """Return whether all that was verified is right."""
        proofs = [each.same for each in self.proofs] + [each.same for each in self.tables.values()]
        return all((*proofs, *self.arrangements.values(), *(log.fault is None for log in self.logs.values())))


def verify(
    path: Path,
    part: tuple[int | None, int] | None,
    *,
    state: Path | None = None,
    select: Sequence[str] = (),
    memory: int | None = None,
    no_code: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> Verification:
    """Verify the slice `part` of each output of the pipeline file at `path`, (number from 0, how many), or without one all of them. Takes no lock.

    Without a number it is a random slice among those that the state does not have as covered, and if it is right the state remembers it; nothing else is written.
    Raises StateError if there is no state, or if the file has changed since the state was made: the state can't be right by another file.
    """
    began = clock.perf_counter()
    request = read_request(path, state, say=say)
    refuse_code(request.spec, no_code=no_code)
    number, parts = part or (None, 0)
    remembered = _covered(request, parts) if part is not None and number is None else None
    if remembered is not None:
        number = _other(remembered)
    chosen = None if number is None else SliceNumber(number, parts)

    def newest() -> Manifest:
        if (manifest := newest_of(request)) is None:
            hint = f"run it first: `{shell('dd', 'run', path)}`"
            raise StateError("there is no state to verify", place=str(request.state), hint=hint)
        return manifest

    def attempt(manifest: Manifest) -> Verification:
        try:
            return _verified(request, manifest, chosen, select, memory)
        except (
            OSError,
            InputError,
            *READ_ERRORS,
        ):  # of a file that is gone or can't be read: which, its checksum shows
            for name, entry in _chosen(request, manifest, select).items():
                for file in entry.files:
                    check_bytes(request.outputs[name] / file.name, file)
            raise

    found, _ = on_newest(
        newest,
        attempt,
        lambda made, before: made.same or newest().number == before.number,
        lambda: say("the state was committed meanwhile: the verification starts again on its newest commit"),
    )
    if remembered is not None and not select and found.slice is not None:
        found.slice = _remember(request, remembered, found.slice, say) if found.same else found.slice
    found.seconds = clock.perf_counter() - began
    return found


def _covered(request: Request, parts: int) -> CoveredSlices:
    """Return the slices, of `parts`, that the state remembers; none once all were covered, or if it remembers slices of another number."""
    known = COVERED.read(request.state / VERIFIED)
    return CoveredSlices(parts, ()) if known is None or known.parts != parts or len(known.numbers) == parts else known


def _other(covered: CoveredSlices) -> int:
    """Return a random slice that is not covered."""
    number = random.randrange(covered.parts - len(covered.numbers))  # noqa: S311 - a sample, no secret
    for each in covered.numbers:
        number += each <= number
    return number


def _remember(request: Request, known: CoveredSlices, part: SliceNumber, say: Callable[[str], None]) -> SliceNumber:
    """Have the state remember one more slice, and return that with the number of those it has; a state that can't be written remembers none."""
    numbers = tuple(sorted({*known.numbers, part.number}))
    try:
        COVERED.write(request.state / VERIFIED, CoveredSlices(part.parts, numbers), Files())
    except DdError as error:
        say(f"the state does not remember the slice: {error.problem}")
        return part
    return replace(part, covered=len(numbers))


def _verified(
    request: Request, manifest: Manifest, part: SliceNumber | None, select: Sequence[str], memory: int | None
) -> Verification:
    """Verify the outputs of one commit."""
    if manifest.pipeline != request.digest:
        raise StateError(
            "the pipeline file has changed since its outputs were made",
            place=str(request.spec.path),
            hint=f"run it first; `{shell('dd', 'diff', '--against', request.state, request.spec.path)}` shows what the change would do",
        )
    outputs = _chosen(request, manifest, select)
    found = (
        _verify_all(
            request.asking(resources=request.asked.resources.limited(memory, engine="local")), manifest, outputs
        )
        if part is None
        else _verify_slice(request, manifest, outputs, part)
    )
    for name, entry in outputs.items():
        if name not in found.logs:
            found.logs[name], _, _ = read_log(request.outputs[name], manifest, entry)
        try:
            table = _table_proof(request, manifest, name)
        except TableBehind as error:
            found.lagging[name] = error.problem
            continue
        if table is not None:
            found.tables[name] = table
    return found


def _table_proof(request: Request, manifest: Manifest, name: str) -> TableProof | None:
    """Compare the table that follows an output with the log, if there is one. A table that can't be read, or lacks columns, is wrong too: as it was written it could be."""
    try:
        table = compare_table(request, manifest, name)
    except TableBehind:
        raise
    except (DdError, OSError, *READ_ERRORS) as error:
        target = request.spec.outputs[name].target
        assert target is not None, "without a table there is none to compare"
        fault = error.problem if isinstance(error, DdError) else f"it can't be read: {first_line(error)}"
        return TableProof(target.place.value, pl.DataFrame(), 0, fault)
    if table is None:
        return None
    place, rows, others = table
    return TableProof(place, rows.rename({DIFF: COUNT}), others)


def _chosen(request: Request, manifest: Manifest, select: Sequence[str]) -> dict[str, OutputEntry]:
    """Return the state's entries of the chosen outputs, without the entries of checks. Raises UsageError for an unknown output."""
    known = same_outputs(request.state, manifest, request.outputs)
    outputs = {
        name: manifest.outputs[known[name]]
        for name in request.outputs
        if name in known and name not in request.spec.checks
    }
    for name in select:
        if name not in outputs:
            hint = suggestion(name, outputs, f"outputs: {', '.join(outputs)}")
            raise UsageError(f"there is no output '{name}'", place=str(request.spec.path), hint=hint)
    return {name: entry for name, entry in outputs.items() if not select or name in select}


def _records(differing: pl.DataFrame, limit: int) -> list[tuple[dict[str, Any], int]]:
    rows = differing.head(limit).iter_rows(named=True)
    return [({name: value for name, value in row.items() if name != COUNT}, row[COUNT]) for row in rows]


# --- slices ------------------------------------------------------------------------------------------------------------


def _verify_slice(
    request: Request, manifest: Manifest, outputs: Mapping[str, OutputEntry], part: SliceNumber
) -> Verification:
    inputs = Inputs.of(request, taken=True)
    at = _last_closed(inputs, manifest)
    found = Verification(request.spec.name.value, None if at is None else format_time(at, inputs.kinds), part)
    if at is None:
        found.unproven = dict.fromkeys(outputs, "no time is closed in it")
        found.uncompared = uncompared((), "no time is closed", request, manifest)
        return found
    slices = Slices(inputs, at)
    for name, entry in outputs.items():
        node = inputs.relations[collection_named(request.spec, name)].node
        column = slices.column(node)
        if column is None:
            found.unproven[name] = "no column's values decide which rows of the inputs matter to it"
            continue
        nulls = part.number == 0 and node.schema[column].nullable

        def chosen(frame: pl.DataFrame, column: str = column, nulls: bool = nulls) -> pl.Series:
            values = frame[column]
            return part.has(values) | values.is_null() if nulls else part.has(values)

        found.logs[name], records, edited = read_log(request.outputs[name], manifest, entry, chosen, at)
        if edited:
            found.unproven[name] = "an edit has changed it at times that are open"
        else:
            found.proofs.append(_proof(slices, at, name, records, node, column, part, nulls))
    several = len(inputs.time) > 1 and bool(manifest.upper)  # they hold all that is closed, before `at` or not
    closed = Slices(inputs, at, closed=Frontier(manifest.upper)) if several else slices
    found.arrangements, found.uncompared = verify_arrangements(closed, manifest, part)
    return found


def _last_closed(inputs: Inputs, manifest: Manifest) -> Time | None:
    """Return the last closed time, or one of them; of a pipeline that has closed all times, the last in the inputs."""
    if not manifest.upper:
        return inputs.latest()
    corner = next(iter(Frontier(manifest.upper).corners()), None)
    if corner is None:  # no time is closed
        return None
    latest = inputs.latest()
    if BEYOND not in corner:
        return tuple(value - 1 for value in corner)
    if latest is None:
        return None
    return tuple(last if value == BEYOND else value - 1 for value, last in zip(corner, latest, strict=True))


def _proof(
    slices: Slices, at: Time, name: str, log: pl.DataFrame, node: Node, column: str, part: SliceNumber, nulls: bool
) -> OutputProof:
    """Compare the records of a log in a slice with those by the inputs, also those with null in the column if it has them."""
    inputs = slices.inputs
    values = pl.concat([slices.values(node, column, part), log[column].drop_nulls().unique()]).unique()
    wanted: list[tuple[Mapping[str, Any], pl.Expr]] = [
        ({column: KeySet(values)}, pl.col(column).is_in(values.implode()))
    ]
    if nulls:
        wanted.append(({column: None}, pl.col(column).is_null()))
    said = []
    for given, held in wanted:  # a row that one question takes into an input may give wrong records of the other one's
        question = Question(inputs, node, given, at, 0, slices.updates(node, given))
        contents = question.contents_in(question.fed, question.facts)
        said.append(contents.frame().with_columns(pl.Series(COUNT, contents.counts(), pl.Int64)).filter(held))
    columns = list(node.schema)
    logged = log.select(*columns, -pl.col(COUNT))
    both = pl.concat([*(frame.select(*columns, COUNT) for frame in said), logged], how="vertical_relaxed")
    summed = both.group_by(columns).agg(pl.col(COUNT).sum().alias(COUNT), pl.len().alias("\0rows"))
    differing = summed.filter(pl.col(COUNT) != 0).drop("\0rows").sort(column, *columns, nulls_last=True)
    return OutputProof(name, column, values.len() + int(nulls), summed.height, differing)


# --- samples -----------------------------------------------------------------------------------------------------------


def sampled_outputs(
    sample: Sample, request: Request, manifest: Manifest
) -> Callable[[str, str], tuple[pl.DataFrame, pl.DataFrame] | str]:
    """Return a function that restricts an output to a sample, as of the last closed time.

    It returns the records in the log of an output, by its name in the state, and the records of the edited pipeline file's, each with its multiplicity as
    the last column; or the reason why they can't be compared. Of the inputs, the rows are read that records with the values of the sample can depend on.
    """
    column, inputs = sample.column, Inputs.of(request, taken=True, manifest=manifest)
    at = _last_closed(inputs, manifest)

    def sides(name: str, before: str) -> tuple[pl.DataFrame, pl.DataFrame] | str:
        entry = manifest.outputs[before]
        node = inputs.relations[collection_named(inputs.request.spec, name)].node
        old, new = parse_schema(entry.schema).get(column), node.schema.get(column)
        if at is None:
            return "no time is closed in it"
        if old is None or new is None:
            return f"it has no column '{column}'"
        for kind in (old.required(), new.required()):
            if str(kind) not in EXACT:
                return f"values of type {kind} are not sampled"
        _, log, _ = read_log(inputs.request.outputs[name], manifest, entry, lambda frame: sample.has(frame[column]), at)
        values = log[column].unique()
        wanted: dict[str, Any] = {}
        slices = Slices(inputs, at, remembered=False)
        if old.required() == new.required() and slices.origins(node, column) is not None:
            known = pl.concat([slices.values(node, column, sample), values]).unique()
            wanted[column] = KeySet(known)
        question = Question(inputs, node, wanted, at, 0)
        contents = question.contents_in(question.fed, question.facts)
        made = contents.frame().with_columns(pl.Series(COUNT, contents.counts(), pl.Int64))
        chosen = sample.of(made[column].unique())
        return log, made.filter(pl.col(column).is_in(chosen.implode())).select(*node.schema, COUNT)

    return sides


# --- everything --------------------------------------------------------------------------------------------------------


def _verify_all(request: Request, manifest: Manifest, outputs: Mapping[str, OutputEntry]) -> Verification:
    """Compute all from the files that the state has read, without its arrangements: the difference to an output's log is its fault."""
    upper, found = Frontier(manifest.upper), Verification(request.spec.name.value, None, None)
    with tempfile.TemporaryDirectory(prefix="dd-verify-", ignore_cleanup_errors=True) as scratch:
        received = ReceivedUpdates(Path(scratch))
        built: dict[str, int] = {}
        places = {name: _at_hand(request.outputs[name], entry, Path(scratch)) for name, entry in outputs.items()}
        copies = {
            request.outputs[name] / file.name: places[name] / file.name
            for name, entry in outputs.items()
            for file in entry.files
        }
        anew = request.asking(receives=received.add, arranged=built.update, claims=False, at_hand=copies)
        dry_run(anew.deciding(reopened=upper, closes=False, apply=True), manifest)
        stored = stored_numbers(request.state, manifest, built)
        same = {identity: number == built[identity] % (1 << 64) for identity, number in stored}
        found.arrangements = by_title(same, request, manifest)
        found.uncompared = uncompared(same, ELSEWHERE, request, manifest)
        for name, entry in outputs.items():
            columns = list(entry.schema)
            none = pl.LazyFrame(schema={**dict.fromkeys(columns, pl.Null()), COUNT: pl.Int64()})
            frames = [*received.scan(name, columns, COUNT)]
            summed = pl.concat(frames).group_by(columns).agg(pl.col(COUNT).sum()) if frames else none
            differing = summed.filter(pl.col(COUNT) != 0).sort(columns, nulls_last=True).collect()
            found.proofs.append(OutputProof(name, None, 0, sum(file.rows for file in entry.files), differing))
            found.logs[name], _, _ = read_log(places[name], manifest, entry)
    return found


def _at_hand(directory: Path, entry: OutputEntry, scratch: Path) -> Path:
    """Return the directory to read an output's log in: of an object store one with copies, checked, as each file is read three times. Raises StateError for a file that is not as it was written."""
    if fs(directory).is_local:
        return directory
    place = Path(tempfile.mkdtemp(dir=scratch))
    for file in entry.files:
        copy = place / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(read_checked(directory / file.name, file))
    return place

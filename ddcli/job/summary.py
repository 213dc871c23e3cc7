"""The summary of a run, in a few lines for a person or as JSON for a program; and the records of the last runs in a state, a small file each, `<state>/runs/<number of the commit>.json`.

Nothing depends on the records. So one is written after the commit and not flushed: a machine that stops may lose it, or
leave a torn one, which is no JSON and is ignored.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any, Self

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.counts import Counts, RowCounts
from ddcli.expressions.types import ARRIVAL_TIME
from ddcli.screen import markdown, markup, near, plural
from ddcli.store.files.access import fs, read_bytes
from ddcli.store.state.document import DAMAGED, RUN, RUNS, count_of, parsed
from ddcli.store.texts import format_time, json_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ddcli.job.verdict import Verdict
    from ddcli.store.files.gate import Files
    from ddcli.store.state.entries import ReplacedFile
    from ddcli.store.state.manifest import Manifest


SHOWN = 5
"""The number of skipped files that a summary names."""
NAMED = 3
"""The number of unchanged inputs or outputs that a summary names; more are counted."""


@frozen
class InputSummary:
    """The updates that were taken from an input, and the files that were read."""

    rows: int
    files: int
    waiting: int
    """The number of files that still hold rows at or after the run's upper."""
    late: int = 0
    """The number of rows at times that earlier runs had closed: they were moved up to the first open time, or put aside."""
    aside: str | None = None
    """The place of late rows."""
    negative: int = 0
    """The number of updates after which a record's multiplicity was negative, if the input warns of them instead of refusing them."""
    example: str | None = None
    bytes: int = 0
    """The size of the files."""
    unparsed: int = 0
    """The number of rows that can't be read."""
    unparsed_in: str | None = None
    """The place of rows that can't be read."""
    passed: dict[str, str] = field(default_factory=dict)
    """The files and directories that are not read, each with the reason."""
    gone: tuple[str, ...] = ()
    """The files that are gone although their rows stay."""


@frozen
class OutputSummary:
    """The updates that were added to an output's log, the sums of their positive and of their negative diffs, and their file, if there is one."""

    rows: int
    inserted: int
    retracted: int
    file: str | None

    @property
    def words(self) -> str:
        """Return the updates in words."""
        return f"{self.rows:,} {plural(self.rows, 'update')} (+{self.inserted:,} -{self.retracted:,})"


@frozen
class SparkSummary:
    """The share of Spark in a run: its master, the number of its tasks and stages, and of those that were done here."""

    master: str
    tasks: int
    stages: int
    tasks_here: int = 0
    stages_here: int = 0

    def and_then(self, other: SparkSummary | None) -> SparkSummary:
        """Return the sum of this part of a run and another."""
        if other is None:
            return self
        return SparkSummary(
            self.master,
            self.tasks + other.tasks,
            self.stages + other.stages,
            self.tasks_here + other.tasks_here,
            self.stages_here + other.stages_here,
        )


@frozen
class ClaimSummary:
    """A claim on updates of an output's log that are older than the log keeps: `files` files are held back, or were summed up before the claimant read them.

    `since` is the time from which on the claimant lacks updates, if that is known; the claim is passed when times before `until` are closed, or never.
    """

    output: str
    kind: str
    name: str
    since: str | None
    files: int
    until: str | None
    passed: bool

    def line(self) -> str:
        """Return the claim as a line for people."""
        files = f"{self.files:,} {plural(self.files, 'file')}{f' from {self.since} on' if self.since else ''}"
        who = f"  claim  {self.output}: {self.kind} '{self.name}'"
        if self.passed:
            return f"{who} is too far behind: {files} that it has not read are summed up; it must start over"
        until = f"until times before {self.until} are closed" if self.until else "without a bound: `claims` sets one"
        return f"{who} holds back {files}, {until}"


@frozen
class RunSummary:
    """A run: the interval of times that it closed, as texts, the updates that it read and those that it wrote.

    Under the clock of arrivals `time` is the time of the run; for a run with nothing new the last run's time.
    """

    name: str
    lower: str | None
    upper: str | None
    changed: bool
    seconds: float = 0.0
    inputs: dict[str, InputSummary] = field(default_factory=dict)
    outputs: dict[str, OutputSummary] = field(default_factory=dict)
    state_bytes: int | None = 0
    """The size of the state; None in a dry run, which makes none."""
    state_rows: int | None = 0
    dry: bool = False
    failed: int = 0
    """The number of records on which an expression failed; they are in the log of errors."""
    errors: str | None = None
    rebuilt: dict[str, OutputSummary] = field(default_factory=dict)
    """The updates that a change of the pipeline added to outputs, before new rows were taken in."""
    spark: SparkSummary | None = None
    """The share of Spark; None if all was done here."""
    time: str | None = None
    withdrawn: dict[str, list[str]] = field(default_factory=dict)
    """The files that were withdrawn from each input, before new rows were taken in."""
    replaced: dict[str, list[str]] = field(default_factory=dict)
    """The files of each input that were read again, with other content, in the commit that took their former rows out."""
    reopened: str | None = None
    """The frontier to which the state was taken back, if it was."""
    tables: dict[str, str] = field(default_factory=dict)
    """The places of tables that are outputs and that the run has brought up to their logs."""
    claims: tuple[ClaimSummary, ...] = ()
    """The claims that hold back updates which outputs' logs needn't keep, and those that were passed."""
    checks: dict[str, Verdict] = field(default_factory=dict)
    """The verdicts of checks."""
    counts: Counts | None = None
    """The counts of each operator; they are kept with the run's record, and are no part of the summary's JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain values."""
        tree = {
            name: value for name, value in asdict(replace(self, counts=None, checks={})).items() if name != "counts"
        }
        tree["checks"] = {name: verdict.to_json() for name, verdict in self.checks.items()}
        return tree | {name: json_time(tree[name]) for name in ("lower", "upper", "time", "reopened")}

    def _repr_html_(self) -> str:
        """Return the summary as a notebook shows it."""
        return f"<pre>{markup(chr(10).join(self.lines()))}</pre>"

    @property
    def head(self) -> str:
        """Return the first line of the summary: the times that the run closed."""
        if not self.changed:
            at = f" (times before {self.upper} are closed)" if self.upper else ""
            hint = (
                ""
                if self.time or self.upper
                else ", and nothing read so far: `dd inputs` shows which files are skipped, and why"
            )
            return f"{self.name}: nothing new{f' since {self.time}' if self.time else at}{hint}"
        since = f" from {self.lower}" if self.lower else ""
        if self.reopened is not None:
            what = f"times from {self.reopened} until {self.lower} are open again"
            return f"{self.name}: {what}, {self.seconds:.2f} s" + (", dry run" if self.dry else "")
        # If the pipeline changed, and nothing is new, no time is closed.
        closed = f"at {self.time}" if self.time else f"times{since} until {self.upper}"
        changed = (
            "outputs corrected, no new times" if self.rebuilt or self.withdrawn or self.replaced else "no time closed"
        )
        what = closed if self.lower != self.upper else changed
        return f"{self.name}: {what}, {self.seconds:.2f} s" + (", dry run" if self.dry else "")

    def lines(self, *, verbose: bool = False) -> list[str]:
        """Return the summary as lines of text; all that is unchanged is one line.

        With `verbose`, also each of these, the files, the bytes that were read, and the rows a second.
        """
        tables = [f"  table  {name} -> {near(place)}" for name, place in self.tables.items()]
        checks = [each.line() for each in self.checks.values() if not each.passed]
        if not self.changed:
            stale = [each.line() for each in self.checks.values() if each.kind == "fresh" and not each.passed]
            gone = [line for name, given in self.inputs.items() for line in _warnings(name, given)]
            return [self.head, *gone, *tables, *stale]
        lines = [self.head]
        lines += _corrected("withdrew", "from", self.withdrawn, None if verbose else SHOWN)
        lines += _corrected("replaced", "in", self.replaced, None if verbose else SHOWN)
        same: dict[str, list[str]] = {"input": [], "output": []}
        for name, given in self.inputs.items():
            if not (given.rows or given.files or verbose):
                same["input"].append(name)
                continue
            size = f", {size_of(given.bytes)}" if verbose else ""
            waiting = f", {given.waiting} with rows at later times" if given.waiting else ""
            lines.append(
                f"  read   {name}: {given.rows:,} {plural(given.rows, 'update')} in {given.files} {plural(given.files, 'file')}{size}{waiting}"
            )
        lines += [line for name, given in self.inputs.items() for line in _warnings(name, given)]
        lines += [f"  changed {name}: {made.words}" for name, made in self.rebuilt.items() if made.rows]
        if unchanged := [name for name, made in self.rebuilt.items() if not made.rows]:
            lines.append(f"  changed nothing in {_listed('output', unchanged)}")
        for name, made in self.outputs.items():
            if not (made.rows or verbose):
                same["output"] += [name] * (name not in self.rebuilt)
                continue
            file = f" -> {near(made.file)}" if verbose and made.file else ""
            lines.append(f"  wrote  {name}: {made.words if made.rows else 'no change'}{file}")
        if folded := [_listed(kind, names) for kind, names in same.items() if names]:
            lines.append(f"  same   {', '.join(folded)}")
        lines += tables
        lines += [claim.line() for claim in self.claims]
        lines += checks
        if passed := sum(each.passed for each in self.checks.values()):
            lines.append(f"  ok     {passed} {plural(passed, 'check')}")
        if self.failed:
            lines.append(self._failed())
        if self.spark:
            lines.append(f"  spark  {_tasks(self.spark.tasks, self.spark.stages)} at {self.spark.master}")
            if self.spark.tasks_here:
                lines.append(f"  here   {_tasks(self.spark.tasks_here, self.spark.stages_here)}")
        if size := self._size():
            lines.append(f"  state  {size}")
        if verbose and self.seconds:
            rows, size = (sum(getattr(given, what) for given in self.inputs.values()) for what in ("rows", "bytes"))
            lines.append(f"  rate   {rows / self.seconds:,.0f} updates/s, {size_of(size / self.seconds)}/s")
        return lines

    def warnings(self) -> list[str]:
        """Return the warnings of the summary, one line for each."""
        found = [line for name, given in self.inputs.items() for line in _warnings(name, given)]
        found += [claim.line() for claim in self.claims]
        found += [each.line() for each in self.checks.values() if not each.passed]
        return [line.strip() for line in [*found, *([self._failed()] if self.failed else [])]]

    def markdown(self) -> list[str]:
        """Return the summary for the page of a workflow."""
        lines = [f"### {markdown(self.head)}"]
        if not self.changed:
            return lines
        lines += ["", "| | | updates | inserted | retracted |", "| --- | --- | ---: | ---: | ---: |"]
        lines += [f"| read | `{name}` | {given.rows:,} | | |" for name, given in self.inputs.items()]
        made = [("changed", self.rebuilt), ("wrote", self.outputs)]
        lines += [
            f"| {word} | `{name}` | {one.rows:,} | {one.inserted:,} | {one.retracted:,} |"
            for word, outputs in made
            for name, one in outputs.items()
        ]
        lines += ["", f"State: {size}."] if (size := self._size()) else []
        return [*lines, *(f"- {markdown(warning)}" for warning in self.warnings())]

    def _size(self) -> str:
        """Return the size of the state in words, "" where it is unknown."""
        if self.state_rows is None or self.state_bytes is None:
            return ""
        return f"{self.state_rows:,} {plural(self.state_rows, 'row')}, {size_of(self.state_bytes)}"

    def _failed(self) -> str:
        return f"  failed {self.failed:,} {plural(self.failed, 'record')} -> {near(self.errors or '')}"


def _corrected(word: str, where: str, inputs: Mapping[str, Sequence[str]], most: int | None) -> list[str]:
    """Return a line for each of the files of inputs, at most so many of each, and one with the number of the others."""
    found = []
    for name, files in inputs.items():
        found += [f"  {word} {near(path)} {where} {name}" for path in files[:most]]
        if most is not None and len(files) > most:
            found.append(f"  {word} {len(files) - most:,} more {where} {name}")
    return found


def _warnings(name: str, given: InputSummary) -> list[str]:
    """Return the warnings about an input, one line for each."""
    lines = []
    if given.late:
        done = f"put aside -> {near(given.aside)}" if given.aside else "moved up to the first open time"
        lines.append(f"  late   {name}: {given.late:,} {plural(given.late, 'row')} {done}")
    if given.unparsed:
        rows = f"{given.unparsed:,} {plural(given.unparsed, 'row')}"
        lines.append(f"  failed {name}: {rows} that can't be read -> {near(given.unparsed_in or '')}")
    for path, why in list(given.passed.items())[:SHOWN]:
        lines.append(f"  skipped {name}: {near(path)}: {why}")
    if len(given.passed) > SHOWN:
        lines.append(f"  skipped {name}: and {len(given.passed) - SHOWN:,} more")
    if given.gone:
        more = f" and {len(given.gone) - SHOWN:,} more" if len(given.gone) > SHOWN else ""
        what = "is gone, and its rows stay" if len(given.gone) == 1 else "are gone, and their rows stay"
        lines.append(f"  gone   {name}: {', '.join(map(near, given.gone[:SHOWN]))}{more} {what}")
    if given.negative:
        updates = plural(given.negative, "update")
        lines.append(f"  warn   {name}: {given.negative:,} {updates} to negative multiplicities; {given.example}")
    return lines


def _listed(kind: str, names: Sequence[str]) -> str:
    """Return the names of inputs or outputs, or their number if there are many."""
    if len(names) > NAMED:
        return f"{len(names)} {kind}s"
    return f"{plural(len(names), kind)} {', '.join(names)}"


def _tasks(tasks: int, stages: int) -> str:
    return f"{tasks} {plural(tasks, 'task')} in {stages} {plural(stages, 'stage')}"


def size_of(count: float) -> str:
    """Return a number of bytes for people.

    >>> size_of(1_500_000)
    '1.5 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.1f} TB"


KEPT = 100
"""The number of commits whose records are kept."""
FORMAT = 1


@dataclass(frozen=True)
class RunRecord:
    """A run: the number of its commit, its begin (ISO 8601, UTC), its summary as plain values, and the counts of each operator."""

    number: int
    began: str
    summary: Mapping[str, Any]
    operators: Counts

    @property
    def seconds(self) -> float:
        """Return the run's seconds."""
        return float(self.summary["seconds"])

    @property
    def rows(self) -> int:
        """Return the number of updates that it read."""
        return sum(int(given["rows"]) for given in self.summary["inputs"].values())

    @property
    def state_bytes(self) -> int:
        """Return the bytes of the state after it."""
        return int(self.summary["state_bytes"])

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a file holds of it."""
        operators = {name: count.to_json() for name, count in self.operators.items()}
        return {
            "format": FORMAT,
            "number": self.number,
            "began": self.began,
            "summary": self.summary,
            "operators": operators,
        }

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Self:
        """Return the record that a file holds as `tree`; raise KeyError, TypeError or ValueError where it holds none."""
        if tree["format"] != FORMAT:
            raise ValueError(tree["format"])
        operators = Counts({name: _count(count) for name, count in tree["operators"].items()})
        found = cls(int(tree["number"]), str(tree["began"]), tree["summary"], operators)
        found.seconds, found.rows, found.state_bytes  # noqa: B018 - a file without these is no record
        for made in found.summary["outputs"].values():
            count_of(made["rows"]), count_of(made["inserted"])
        return found


def _count(tree: Mapping[str, Any]) -> RowCounts:
    """Return the counts of an operator from a file."""
    found = RowCounts(**tree)
    rows = found.rows_in, found.rows_out, found.inserted, found.rows_read, found.rows_scanned
    for number in (*rows, found.turns, *found.rounds):
        count_of(number)
    if not 0 <= float(found.seconds) < math.inf:
        raise ValueError(tree)
    return found


def write_run(directory: Path, record: RunRecord, files: Files) -> None:
    """Keep a run's record in its state, and drop those more than `KEPT` commits older. Raises EngineError.

    A run removes the one record that is due, and now and then all that others may have left.
    """
    place = directory / RUNS
    # The record isn't flushed either: after a power cut it may be missing.
    files.make_directory(place, flush=False)
    data = json.dumps(record.to_json(), separators=(",", ":")).encode()
    files.write(place / f"{record.number:09d}.json", data)
    due = place / f"{record.number - KEPT:09d}.json"
    if record.number % KEPT:
        if record.number > KEPT:
            files.remove(due)
        return
    for entry in fs(place).entries(RUN):
        if entry.path.name <= due.name:
            files.remove(entry.path)


def forget_examples(directory: Path, files: Files) -> None:
    """Remove the records that quote a row of an input, a violation of a check, or a measure."""
    for record in read_runs(directory):
        inputs, checks = record.summary["inputs"].values(), record.summary.get("checks", {}).values()
        if any(given.get("example") for given in inputs) or any(
            each.get("first") or each.get("problems") for each in checks
        ):
            files.remove(directory / RUNS / f"{record.number:09d}.json")


def run_text(directory: Path, manifest: Manifest, replaced: ReplacedFile) -> str:
    """Return the time of the run that replaced or withdrew a file, or its commit where its record is gone."""
    if manifest.cache.get("clock") == "arrival":
        return format_time((replaced.until,), [ARRIVAL_TIME])
    began = next((each.began for each in read_runs(directory) if each.number >= replaced.commit), None)
    return f"commit {replaced.commit}" if began is None else shown_time(began)


def shown_time(began: str) -> str:
    """Return the time at which a run began as other times are shown: in UTC, without an offset."""
    return began.replace("T", " ").replace("Z", "").partition("+")[0]


def read_runs(directory: Path) -> list[RunRecord]:
    """Return the records in a state, oldest first. Takes no lock: one that is removed meanwhile, or torn, is ignored."""
    found = []
    for path in (entry.path for entry in fs(directory / RUNS).entries() if RUN.fullmatch(entry.path.name)):
        try:
            found.append(RunRecord.from_json(parsed(read_bytes(path))))
        except (FileNotFoundError, *DAMAGED):
            continue
    return found

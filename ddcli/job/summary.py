"""The summary of a run, in a few lines for a person or as JSON for a program."""

from __future__ import annotations

from dataclasses import asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import frozen
from ddcli.screen import markdown, markup, near, plural
from ddcli.store.texts import json_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.engine.counts import Counts
    from ddcli.spec.model import Otherwise


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
class Verdict:
    """The result of a check at a commit.

    `new` are the violations that the commit adds, None if they are too many to be told from others; `first` are the first of these as text, `records` the same as values: notebooks and logs keep the `repr`, which has none.
    `problems` are the measures that are out of their range. `accepted` names who let the commit pass, and why.
    """

    title: str
    place: str
    kind: str
    of: str | None
    otherwise: Otherwise
    violations: int = 0
    new: int | None = 0
    first: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    accepted: str | None = None
    records: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def passed(self) -> bool:
        """Return whether there is no violation."""
        return self.violations == 0 and not self.problems

    @property
    def stops(self) -> bool:
        """Return whether the run must not commit."""
        return self.otherwise == "fail" and not self.passed and self.accepted is None

    @property
    def words(self) -> str:
        """Return the violations in words."""
        if self.problems:
            return "; ".join(self.problems)
        count = f"{self.violations:,} {plural(self.violations, 'violation')}"
        if self.otherwise == "quarantine":
            count = f"{self.violations:,} {plural(self.violations, 'row')} put aside"
        if self.new is None or not self.violations:
            return count
        known = max(0, self.violations - self.new)
        return f"{count}: {self.new:,} new" + (f", {known:,} known" if known else "")

    def line(self) -> str:
        """Return the verdict as a line of a summary."""
        word = "aside " if self.otherwise == "quarantine" else "accept" if self.accepted else "warn  "
        return f"  {word} {self.title}: {self.words}" + (f" (accepted by {self.accepted})" if self.accepted else "")

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "records"} | {
            "passed": self.passed
        }


@frozen
class RunSummary:
    """A run: the interval of times that it closed, as texts, the updates that it read and those that it wrote.

    Under the clock of arrivals `time` is the time of the run; for a run with nothing new that of the last one.
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

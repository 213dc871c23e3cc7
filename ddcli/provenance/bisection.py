"""`dd bisect`: the first time at which a condition on outputs fails, the run that made it fail, and the fewest input rows that did.

Once the time is known (`first_failure`), the log is taken back to it, and changes are tried in memory: first the output records
without whose change the condition would hold, then, for the input rows of that time that can matter to these records, by delta
debugging, the rows without which it would: without any one of them it would still fail.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.driver.prepare import copy_directory
from ddcli.driver.tables import read_settled, tables_as_now
from ddcli.engine import kernels
from ddcli.engine.counts import SILENT
from ddcli.engine.lanes import Layout
from ddcli.engine.times import up_to
from ddcli.errors import UsageError, suggestion
from ddcli.expressions.tree import quoted
from ddcli.job.request import newest_of, read_request, refuse_code
from ddcli.job.summary import RunRecord, read_runs
from ddcli.provenance.evaluated_plan import raw_sources
from ddcli.provenance.file_history import FileHistory
from ddcli.provenance.first_failure import Search
from ddcli.provenance.inputs import EXACT, Inputs, KeySet, Restrictions, Where
from ddcli.provenance.question import Question
from ddcli.store.texts import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.engine.counts import Progress
    from ddcli.engine.lanes import Matrix
    from ddcli.job.request import Request
    from ddcli.plan.node import Node

COUNT = "\0count"
MOST_RECORDS = 10_000
"""The most changed records of outputs whose input rows are looked for."""
MOST_TRIALS = 1_000
"""The most sets of rows that are tried."""


@frozen
class Culprit:
    """Update of an input: its record, its diff, and its places in files. One that `went` was in a file until that was replaced or withdrawn."""

    input: str
    record: dict[str, Any]
    diff: int
    at: tuple[Where, ...]
    time: int
    went: bool


@dataclass(frozen=True)
class Bisection:
    """The first failure of a condition on a query.

    The rows of the query `before` the time `at`, `now`, and `without` the `culprits`, the fewest updates of inputs at that time that make it fail.
    `run` is the record of the run that committed the time, if the state still has it; `holds_again` the next time at which the condition holds.
    """

    condition: str
    at: str
    before: pl.DataFrame
    now: pl.DataFrame
    run: RunRecord | None
    culprits: tuple[Culprit, ...] = ()
    without: pl.DataFrame | None = None
    holds_again: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def rebuilt(self) -> dict[str, Any]:
        """Return the collections that the run computed anew, as the pipeline file had been edited before it, or files of inputs."""
        return dict(self.run.summary.get("rebuilt") or {}) if self.run is not None else {}

    @property
    def corrected(self) -> list[str]:
        """Return the files that the run replaced or withdrew."""
        return [] if self.run is None else corrected_by(self.run)


def corrected_by(run: RunRecord) -> list[str]:
    """Return the files that a run replaced or withdrew."""
    parts = [run.summary.get(part) or {} for part in ("replaced", "withdrawn")]
    return [file for part in parts for files in part.values() for file in files]


def bisect(
    path: Path,
    query: str,
    *,
    good: str | None = None,
    bad: str | None = None,
    between: tuple[str, str] | None = None,
    state: Path | None = None,
    no_code: bool = False,
    progress: Progress = SILENT,
) -> Bisection:
    """Return the first time at which a condition on a query over outputs fails after it held: `good` is not true of a row, or `bad` is of one.

    A condition may begin with a comparison, `> 1000`, of the query's first column. The name of a check, in place of a query, asks when it got its first violation. `between` are the first and the last time that are searched.
    Writes nothing and takes no lock. Raises NegativeAnswer if it does not fail.
    """
    request = read_request(path, state)
    if (check := _check_named(request, query)) is not None:
        if good is not None or bad is not None:
            raise UsageError(
                f"'{query}' is a check, which has a condition of its own", hint="leave out --good and --bad"
            )
        query, bad = f"select * from {quoted(check)}", "count(*) > 0"  # noqa: S608 - a name of the file, quoted
    if (good is None) == (bad is None):
        if good is None and len(query.split()) == 1:  # no query, but a name
            titles = [check.title for check in request.spec.checks.values()]
            hint = suggestion(query, titles, f"checks: {', '.join(titles) or 'none'}")
            raise UsageError(f"no check is named '{query}'", place=str(path), hint=hint)
        problem = "a condition is needed" if good is None else "there are two conditions"
        raise UsageError(problem, hint="state one condition, `--good` or `--bad`")
    refuse_code(request.spec, no_code=no_code)
    manifest = newest_of(request)
    if manifest is None:
        raise UsageError(
            "the state has no commit yet", place=str(request.state), hint="run the pipeline first: `dd run`"
        )

    def look() -> Bisection:
        with tables_as_now(request, wanted=False) as now, copy_directory() as copies:
            history = FileHistory(now, copies, taken=True)
            return _bisect(Inputs.of(now, taken=True), history, query, good, bad, between, progress)

    try:
        return read_settled(request, look)
    finally:
        progress.end()


def _check_named(request: Request, name: str) -> str | None:
    """Return the collection of violations of the check with this name or title; None if there is none. Raises UsageError for a check that has no violating rows."""
    named = {check.title: key for key, check in request.spec.checks.items()} | {key: key for key in request.spec.checks}
    found = named.get(name)
    if found is not None and request.spec.checks[found].measures:
        raise UsageError(
            f"the check '{name}' compares each commit with the one before: it has no rows to search for",
            hint="`dd checks` shows its verdict, and the runs' summaries have the earlier ones",
        )
    return found


def _bisect(
    inputs: Inputs,
    history: FileHistory,
    query: str,
    good: str | None,
    bad: str | None,
    between: tuple[str, str] | None,
    progress: Progress,
) -> Bisection:
    if len(inputs.kinds) > 1:
        raise UsageError("times with several coordinates have no first one", place=str(inputs.request.spec.path))
    progress.begin("reading the outputs' logs")
    search = Search(inputs, query, good or bad or "", good=good is not None, between=between)
    at, again = search.failure()
    progress.begin("looking for the rows without which the condition would hold")
    former = history.inputs(inputs, at - 1) if at in history.changes(history.replaced) else None
    culprits, without, notes = _Rows(search, history.inputs(inputs, at), former).culprits(at)
    return Bisection(
        condition=f"{'good' if good is not None else 'bad'}: {search.condition}",
        at=format_time((at,), inputs.kinds),
        before=search.rows(at - 1),
        now=search.rows(at),
        run=_run_of(read_runs(inputs.request.state), at, inputs, culprits),
        culprits=culprits,
        without=without,
        holds_again=None if again is None else format_time((again,), inputs.kinds),
        notes=notes,
    )


def _run_of(runs: Sequence[RunRecord], at: int, inputs: Inputs, culprits: Sequence[Culprit]) -> RunRecord | None:
    """Return the first run that closed a time; None if its record is gone, or may be.

    Where no rows of that time are the cause, a run that corrected outputs there comes first: at the frontier, which it did not close. Of several such runs it is the last that replaced or withdrew a culprit's file.
    """
    by_rows = any(each.time == at and not each.went for each in culprits)
    correcting = []
    for run in () if by_rows else runs:
        lower, upper = run.summary.get("lower"), run.summary.get("upper")
        corrected = any(run.summary.get(part) for part in ("rebuilt", "replaced", "withdrawn"))
        # One that closed times has its corrections at these.
        if (
            corrected
            and upper is not None
            and lower == upper
            and parse_time(str(upper), inputs.time, "upper", "log's")[0] == at
        ):
            correcting.append(run)
    if correcting:
        named = {part for each in culprits for place in each.at for part in (place.file, place.file.rpartition(":")[0])}
        ends = {Path(*Path(one).parts[first:]) for one in named for first in range(len(Path(one).parts))}
        concerned = [run for run in correcting if any(Path(file) in ends for file in corrected_by(run))]
        return concerned[-1] if concerned else correcting[0]
    for run in runs:
        upper, lower_bound = run.summary.get("upper"), run.summary.get("lower")
        if upper is None:
            return run
        if parse_time(str(upper), inputs.time, "upper", "log's")[0] > at:
            covered = lower_bound is None or parse_time(str(lower_bound), inputs.time, "lower", "log's")[0] <= at
            return run if covered else None
    return None


class _Rows:
    """The rows of inputs that made a condition fail. `former` are the inputs as before some files were replaced or withdrawn at that time."""

    def __init__(self, search: Search, inputs: Inputs, former: Inputs | None) -> None:
        self.search, self.inputs, self.former = search, inputs, former

    def culprits(self, at: int) -> tuple[tuple[Culprit, ...], pl.DataFrame | None, list[str]]:
        """Return the fewest updates of inputs at a time without which the condition would hold, the query's rows without them, and notes."""
        search = self.search
        search.go_back(at)
        changed = [change for name in search.logs for change in self._changed(name, at)]
        tries = _Tries()
        records = tries.least(changed, lambda some: search.holds_with(self._undone(some)))
        if len(records) > MOST_RECORDS:
            return (
                (),
                None,
                [f"{len(records):,} records of the outputs changed together: no few rows of the inputs explain them"],
            )
        effects = [
            _Effect(self, some, at) for name in search.logs if (some := [each for each in records if each.log == name])
        ]
        rows = list(dict.fromkeys(row for effect in effects for row in effect.rows))

        def without(some: Sequence[Row]) -> dict[str, Matrix]:
            left = set(some)
            parts: dict[str, list[Matrix]] = {}
            for effect in effects:
                parts.setdefault(effect.log, []).append(effect.without(left))
            return {name: np.concatenate(each) for name, each in parts.items()}

        if not rows or not search.holds_with(without(rows)):
            return (
                (),
                None,
                [
                    "no rows of the inputs make the difference: replaced or withdrawn files without a copy in the state do, the pipeline file, or time alone"
                ],
            )
        least = tries.least(rows, lambda some: search.holds_with(without(some)))
        notes = [] if tries.left else [f"there may be fewer: only {MOST_TRIALS:,} sets of rows were tried"]
        shown = search.rows(search.put(without(least)))
        return self._placed(least, effects), shown, notes

    def _changed(self, name: str, at: int) -> list[Change]:
        """Return the changes of an output at a time; a record and the one that took its place are one change, as the same input rows matter to both."""
        log = self.search.logs[name]
        frame = log.between(((at,),), up_to((at,)).elements, log.reader.scan()).collect()
        node = self.inputs.relations[self.inputs.request.spec.outputs[name].source.value].node
        by = [column for column in log.columns if _restricts(node, column)]
        lanes = self.search.lanes(
            name, frame, frame[log.diff].to_numpy()
        )  # of all at once: there may be thousands of keys
        if not by:
            return [Change(name, frame.select(), lanes)]
        numbered = frame.select(*by, pl.int_range(pl.len()).alias(COUNT)).group_by(by, maintain_order=True).agg(COUNT)
        keys = numbered.select(by)
        return [Change(name, keys[at], lanes[rows.to_numpy()]) for at, rows in enumerate(numbered[COUNT])]

    def _undone(self, changes: Sequence[Change]) -> dict[str, Matrix]:
        """Return the changes of the logs that take these back."""
        parts: dict[str, list[Matrix]] = {}
        for each in changes:
            parts.setdefault(each.log, []).append(kernels.negated(each.lanes))
        return {name: np.concatenate(found) for name, found in parts.items()}

    def _placed(self, rows: Sequence[Row], effects: Sequence[_Effect]) -> tuple[Culprit, ...]:
        """Return updates of inputs with their places in files."""
        found = []
        for name in dict.fromkeys(name for name, _ in rows):
            source = next(effect.question.sources[name] for effect in effects if name in effect.question.sources)
            width = Layout(source.schema).width + 2
            gone = frozenset[Row]().union(*(effect.went for effect in effects))
            for inputs, went in ((self.inputs, False), (self.former, True)):
                mine = [row for row in rows if row[0] == name and (row in gone) == went]
                if inputs is None or not mine:
                    continue
                wanted = np.stack([np.frombuffer(data, np.int64) for _, data in mine]).reshape(-1, width)
                wanted = kernels.negated(wanted) if went else wanted
                places = inputs.places(name, source, wanted)
                for row, (record, (time,), diff) in zip(wanted, inputs.show(source, wanted), strict=True):
                    found.append(Culprit(name, record, diff, tuple(places[row.tobytes()]), time, went))
        return tuple(found)


Row = tuple[str, bytes]
"""An update of an input: the input's name, and the bytes of the update's lanes."""


@dataclass(frozen=True, eq=False)
class Change:
    """The updates at a time of the records of an output's log that have one key."""

    log: str
    key: pl.DataFrame
    """The key, in a row; without columns where the log has none."""
    lanes: Matrix


class _Effect:
    """The input rows of a time that can matter to changed records of an output, and those records without some of the rows."""

    def __init__(self, rows: _Rows, changes: Sequence[Change], at: int) -> None:
        self.search, self.log = rows.search, changes[0].log
        self.keys = pl.concat([change.key for change in changes]).unique()
        node = rows.inputs.relations[rows.inputs.request.spec.outputs[self.log].source.value].node
        values: dict[str, Any] = {}
        for name in self.keys.columns:
            different = self.keys[name].unique()
            if len(different) == 1:
                values[name] = different[0]
            elif str(node.schema[name].required()) in EXACT and not different.null_count():
                values[name] = KeySet(different)
        self.question = question = Question(rows.inputs, node, values, (at,), 1)
        former = question.fed if rows.former is None else Question(rows.former, node, values, (at,), 1).fed
        came = {name: _came(matrix, former[name]) | (matrix[:, -2] == at) for name, matrix in question.fed.items()}
        self.went = {
            (name, kernels.negated(row[np.newaxis]).tobytes())
            for name, matrix in former.items()
            for row in matrix[_came(matrix, question.fed[name])]
        }
        """The updates that the replaced files had, negated: to leave one out is to have it again."""
        self.rows = [(name, row.tobytes()) for name, matrix in question.fed.items() for row in matrix[came[name]]]
        self.rows += sorted(self.went)
        raw = raw_sources(question.graph.nodes())
        earlier = {name: matrix[:0] if name in raw else matrix[~came[name]] for name, matrix in question.fed.items()}
        self.earlier = question.narrowed(earlier)
        """The other updates, summed up once: only updates at the failing time, and rows of replaced files, are tried."""
        self.tried = {name: matrix if name in raw else matrix[came[name]] for name, matrix in question.fed.items()}
        self._leaves = {name: came[name] if name in raw else came[name][came[name]] for name in self.tried}
        self.now = self._records(set())

    def without(self, rows: set[Row]) -> Matrix:
        """Return the change of the log's records if these rows were not there."""
        return kernels.difference(self._records(rows), self.now)

    def _records(self, without: set[Row]) -> Matrix:
        question, fed = self.question, {}
        for name, matrix in self.tried.items():
            kept = np.ones(len(matrix), np.bool_)
            for number in np.flatnonzero(self._leaves[name]).tolist() if without else ():
                kept[number] = (name, matrix[number].tobytes()) not in without
            again = [np.frombuffer(row, np.int64) for of, row in without & self.went if of == name]
            fed[name] = np.concatenate([matrix[kept], *(kernels.negated(row[np.newaxis]) for row in again)])
        given = {name: np.concatenate([self.earlier[name], some]) for name, some in question.narrowed(fed).items()}
        contents = question.contents_of(given, question.facts)
        frame = contents.frame().with_columns(pl.Series(COUNT, contents.matrix[:, -1]))
        if self.keys.width:
            frame = frame.join(self.keys, on=self.keys.columns, how="semi", nulls_equal=True)
        return self.search.lanes(self.log, frame, frame[COUNT].to_numpy())


class _Tries:
    """The sets of elements that are tried, up to a bound."""

    def __init__(self) -> None:
        self.left = MOST_TRIALS

    def least(self, elements: list[Any], works: Callable[[list[Any]], bool]) -> list[Any]:
        """Return some of the elements that work together, all of them needed; all elements together are known to work, and none to fail.

        The fewest first elements that work have a last one, which is needed; so has what works of those before, together with it. A search begins as far
        from the end as the one before ended, so `k` needed elements of `n` take about `k` log(`n` / `k`) tries.
        """
        needed: list[Any] = []
        low, gap = 0, -(-len(elements) // 2)
        while elements:
            high = len(elements)  # the needed elements work together with so many first ones, and fail with `low`
            middle = max(high - gap, low + 1)
            while high - low > 1 and self.left:
                if self._works([*needed, *elements[:middle]], works):
                    high = middle
                else:
                    low = middle
                middle = (low + high) // 2
            if not self.left:
                return [*needed, *elements[:high]]
            if not high:
                break
            gap = len(elements) - high + 1
            needed.append(elements[high - 1])
            elements, low = elements[: high - 1], -1
        at = 0
        while len(needed) > 1 and at < len(needed):  # fewer may work where more fail
            rest = needed[:at] + needed[at + 1 :]
            needed, at = (rest, 0) if self._works(rest, works) else (needed, at + 1)
        return needed

    def _works(self, some: list[Any], works: Callable[[list[Any]], bool]) -> bool:
        self.left = max(0, self.left - 1)
        return self.left > 0 and works(some)


def _restricts(node: Node, column: str) -> bool:
    """Return whether a value of a column restricts the input rows that can matter to a record."""
    found = Restrictions(node, {column: column})
    return any(values for alternatives in found.sources.values() for values in alternatives)


def _came(now: Matrix, before: Matrix) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows are not among others, or not as often."""
    if now is before:
        return np.zeros(len(now), np.bool_)
    different = kernels.difference(now, before)
    row = np.dtype((np.void, 8 * (now.shape[1] - 1)))
    known, changed = (np.ascontiguousarray(each[:, :-1]).view(row).ravel() for each in (now, different))
    return np.isin(known, changed)

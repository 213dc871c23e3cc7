"""Run a case as a person would, run by run, and hold what is written against the meaning of the pipeline.

After each run, for each output: the log accumulates to the reference's collection at every input time and output time
that is closed (in a product order also at their pairwise lattice joins); each new row lies in the interval that the run
closed; a record has at most one row for a time, and no row is zero; what earlier runs wrote is as it was. In the end the
log is the one that a single run over everything writes. A run whose input an expression fails on is refused, and leaves
no trace.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import polars as pl

from ddcli.errors import InputError
from ddcli.expressions import stage
from ddcli.pipeline import run
from ddcli.plan import logical
from ddcli.plan.build import build
from ddcli.spec.document import parse_spec
from ddcli.store.progress import PROGRESS, read_progress
from tests.judge.case import write_file
from tests.reference.expressions import Fails
from tests.reference.model import Collection, Model, Time, accumulate, lattice_join, less_equal
from tests.reference.values import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ddcli.plan.logical import Graph
    from tests.judge.case import Case
    from tests.reference.model import Record

Log = dict[tuple["Record", "Time"], int]


def judge(case: Case, root: Path) -> None:
    """Run a case in an empty directory; raise AssertionError if what it writes is wrong."""
    there = _Judged(case, root / "cut")
    if there.run_all():
        once = _Judged(case.at_once(), root / "once")
        assert once.run_all(), "one run over everything was refused"
        for name in there.graph.outputs:
            assert there.logs[name] == once.logs[name], f"the log of {name} depends on how the input was cut"


def graph_of(case: Case) -> Graph:
    """Return the logical graph of a case's pipeline."""
    spec = parse_spec(case.text, "p.yaml")
    return build(spec, {name: case.schema(name) for name in spec.inputs})


def expected(case: Case, graph: Graph, time: Time) -> tuple[dict[str, Collection], bool]:
    """Return what the outputs are at a time, and whether an expression failed whose value is not needed.

    Raises Fails when a needed one does.
    """
    model = Model({name: accumulate(case.updates(name), time) for name in graph.sources()})
    return {name: model.output(node) for name, node in graph.outputs.items()}, model.failed


@dataclass
class _Judged:
    """A case in a directory, some of its runs done. `upper` is the time before which all is closed."""

    case: Case
    root: Path
    upper: Time | None = None
    seen: list[Time] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.graph = graph_of(self.case)
        self.root.mkdir(parents=True)
        self.path = self.root / "p.yaml"
        self.path.write_text(self.case.text, encoding="utf-8")
        self.logs: dict[str, Log] = {name: {} for name in self.graph.outputs}
        self.known: dict[str, set[str]] = {name: set() for name in self.graph.outputs}
        times = {time for name in self.graph.sources() for _, time, _ in self.case.updates(name)}
        self.times = sorted(times | {lattice_join(*pair) for pair in combinations(times, 2)})

    def run_all(self) -> bool:
        """Do the runs; return False if one was refused, as it had to be."""
        return all(self._run(number) for number in range(len(self.case.runs)))

    def _run(self, number: int) -> bool:
        this = self.case.runs[number]
        for at, file in enumerate(this.files):
            write_file(self.case, file, self.root / "in" / file.input / f"{number}-{at}.parquet")
            self.seen += [time for _, time, _ in file.updates]
        lower, upper = self.upper, self._next_upper(this.until)
        closing = [t for t in self.times if upper and t < upper and not (lower and t < lower)]
        must_fail, may_fail, collections = False, self._cancels(), {}
        for time in closing:
            try:
                collections[time], failed = expected(self.case, self.graph, time)
                may_fail = may_fail or failed
            except Fails:
                must_fail = True
        before = self._snapshot()
        try:
            run(self.path, until=this.until)
        except InputError as error:
            if not (must_fail or (may_fail and self._fallible())):
                raise AssertionError("the run was refused") from error
            _same_files(self._snapshot(), before, "a refused run")
            return False
        assert not must_fail, f"run {number} was not refused, though an expression fails on a row"
        after = self._snapshot()
        assert {
            name: after.get(name) for name in before if name.startswith("out/") and not name.endswith(PROGRESS)
        } == {name: data for name, data in before.items() if name.startswith("out/") and not name.endswith(PROGRESS)}, (
            "an earlier file changed"
        )
        if upper == lower and not this.files:
            assert after == before, "a run with nothing new changed a file"
        self.upper = upper
        for name in self.graph.outputs:
            self._check_new(name, lower, upper)
            for time in sorted({*closing, *(t for _, t in self.logs[name] if lower is None or t >= lower)}):
                wanted = collections[time] if time in collections else expected(self.case, self.graph, time)[0]
                got = accumulate([(record, t, diff) for (record, t), diff in self.logs[name].items()], time)
                _same(got, wanted[name], f"{name} at {time} after run {number}")
        return True

    def _next_upper(self, until: str | None) -> Time | None:
        """Return the upper of a run: what it is told, else one past all that was seen, never back."""
        told = (
            [(int(until),)] if until is not None else [(max(time[0] for time in self.seen) + 1,)] if self.seen else []
        )
        return max([*told, *([self.upper] if self.upper else [])], default=None)

    def _fallible(self) -> bool:
        """Say whether any expression of the pipeline may fail."""
        return " / " in self.case.text or "as int64)" in self.case.text

    def _cancels(self) -> bool:
        """Say whether rows may pass an expression that are in no collection, because others take them back at once."""
        inputs = [
            canonical([record, time]) for name in self.graph.sources() for record, time, _ in self.case.updates(name)
        ]
        return len(set(inputs)) < len(inputs) or any(map(_cancels, self.graph.nodes()))

    def _snapshot(self) -> dict[str, bytes]:
        """Return the bytes of state and outputs."""
        files = [path for path in self.root.rglob("*") if path.is_file() and path.name != "LOCK"]
        named = {path.relative_to(self.root).as_posix(): path for path in files}
        return {name: path.read_bytes() for name, path in named.items() if not name.startswith("in/")}

    def _check_new(self, name: str, lower: Time | None, upper: Time | None) -> None:
        """Add the files that a run wrote to a log, each row checked by itself."""
        folder = self.root / "out" / name
        schema = {column: kind.to_polars() for column, kind in self.graph.outputs[name].schema.items()}
        schema |= {"time": pl.Int64(), "diff": pl.Int64()}
        if upper is not None:
            assert read_progress(folder) == (upper,), f"the progress of {name} is {read_progress(folder)}, not {upper}"
        for path in sorted(folder.glob("*.parquet")):
            if path.name in self.known[name]:
                continue
            self.known[name].add(path.name)
            assert path.name.startswith("updates-"), path.name
            frame = pl.read_parquet(path)
            assert dict(frame.schema) == schema, f"{name}: {frame.schema}, not {schema}"
            assert frame["time"].is_sorted(), f"{path.name} is not in the order of time"
            for *record, time, diff in frame.rows():
                row = (canonical(record), (time,))
                assert diff != 0, f"{name}: zero at {row}"
                assert row not in self.logs[name], f"{name}: more than one row for {row}"
                assert lower is None or less_equal(lower, row[1]), f"{name}: {row} was closed before, up to {lower}"
                assert upper is not None, f"{name}: {row} though nothing was closed"
                assert row[1] < upper, f"{name}: {row} is early, the run closed {upper}"
                self.logs[name][row] = diff


def _cancels(node: logical.Node) -> bool:
    if isinstance(node, logical.Apply):
        return isinstance(node.step, stage.Explode)
    outer = isinstance(node, logical.Join) and node.how != "inner"
    return (
        outer or isinstance(node, logical.Negate | logical.Concat) or (isinstance(node, logical.Semijoin) and node.anti)
    )


def _same_files(now: dict[str, bytes | None], before: dict[str, bytes], who: str) -> None:
    changed = sorted(name for name in {*now, *before} if now.get(name) != before.get(name))
    assert not changed, f"{who} changed {changed}"


def _same(got: Collection, wanted: Collection, what: str) -> None:
    if got != wanted:
        wrong = [record for record in sorted({*got, *wanted}, key=repr) if got.get(record) != wanted.get(record)]
        lines = [f"{record}: {got.get(record, 0)} times, should be {wanted.get(record, 0)}" for record in wrong]
        raise AssertionError("\n  ".join([what, *lines]))


def operators_used(cases: Iterable[Case]) -> Counter[str]:
    """Count node classes of cases' graphs: what a search has covered."""
    return Counter(type(node).__name__ for case in cases for node in graph_of(case).nodes())

"""Run a case as a person would, run by run, and hold what is written against the meaning of the pipeline.

After each run, for each output: the log accumulates to the reference's collection at every closed time whose coordinates
are those of some input's or output's times, which their lattice joins are among; each new row lies in what the run
closed; a record has at most one row for a time, and no row is zero; what earlier runs wrote is as it was. In the end the
log is the one that a single run over everything writes. A run whose input an expression fails on, or in which a loop
changes for longer than it may, is refused, and leaves no trace.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq

from ddcli.driver.run import run
from ddcli.errors import EngineError, InputError
from ddcli.expressions.tree import ExplodeStep
from ddcli.job.request import read_request
from ddcli.plan import joins, logical, temporal
from ddcli.plan.build import build
from ddcli.plan.pipeline_file import parse_spec
from ddcli.store.log.writer import number_in
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.fingerprint import log_number
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import read_progress
from tests.judge.case import arrive
from tests.judge.frontiers import BEGINNING, Frontier, grid, is_closed
from tests.reference.expressions import Fails
from tests.reference.model import Collection, LoopDiverges, Model, Time, accumulate
from tests.reference.values import canonical
from tests.store.support import LOCKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ddcli.plan.node import Graph, Node
    from tests.judge.case import Case
    from tests.reference.model import Record

SOON = 9
Log = dict[tuple["Record", "Time"], int]


def judge(
    case: Case,
    root: Path,
    how: Callable[[], dict[str, Any]] = dict,
    once: dict[str, Log] | None = None,
    meaning: Meaning | None = None,
) -> dict[str, Log] | None:
    """Run a case in an empty directory; raise AssertionError if what it writes is wrong. `how` gives options, run by run.

    Return the logs of a single run over everything, None where there are none: `once` of a case with the same rows that are cut in another way,
    whose `meaning` is the same as well.
    """
    meaning = meaning or Meaning(case)
    there = _Judged(case, meaning, root / "cut", how)
    if not there.run_all():
        return once
    if once is None:
        whole = _Judged(case.at_once(), meaning, root / "once", how)
        if not whole.run_all():
            assert whole.told != there.upper, "one run over everything was refused"
            return None
        once = whole.logs
    for name, log in once.items():
        closed = {row: diff for row, diff in log.items() if is_closed(there.upper, row[1])}
        assert there.logs[name] == closed, f"the log of {name} depends on how the input was cut"
    return once


def graph_of(case: Case) -> Graph:
    """Return the logical graph of a case's pipeline."""
    spec = parse_spec(case.text, "p.yaml")
    return build(spec, {name: case.schema(name) for name in spec.inputs}, case.time_types)


@dataclass
class Meaning:
    """What the outputs of a case are at a time, and whether an expression failed whose value is not needed; or why not.

    A loop that goes on for longer than its guard allows has no meaning, and a record that a needed expression fails on.
    """

    case: Case
    known: dict[Time, tuple[dict[str, Collection], bool] | Fails | LoopDiverges] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = graph_of(self.case)

    def at(self, time: Time) -> tuple[dict[str, Collection], bool] | Fails | LoopDiverges:
        if time not in self.known:
            model = Model(
                {name: accumulate(self.case.updates(name), time) for name in logical.sources(self.graph)}, time
            )
            try:
                outputs = {name: model.output(node) for name, node in self.graph.outputs.items()}
                self.known[time] = outputs, model.failed
            except (Fails, LoopDiverges) as error:
                self.known[time] = error
        return self.known[time]

    def times(self) -> list[Time]:
        """Return the times at which an output may change, and more: what is moved to later times is not moved far."""
        times = {time for name in logical.sources(self.graph) for _, time, _ in self.case.updates(name)}
        if any(isinstance(node, temporal.Temporal | temporal.JoinFunction) for node in self.graph.nodes()):
            coordinates = len(self.case.times)
            times |= {(soon,) * coordinates for soon in range(SOON if coordinates == 1 else 3)}
        return grid(times)


@dataclass
class _Judged:
    """A case in a directory, some of its runs done: what they closed, and what the last one was `told` to close."""

    case: Case
    meaning: Meaning
    root: Path
    how: Callable[[], dict[str, Any]]

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)
        self.path = self.root / "p.yaml"
        self.path.write_text(self.case.text, encoding="utf-8")
        self.graph = self.meaning.graph
        self.logs: dict[str, Log] = {name: {} for name in self.graph.outputs}
        self.known: dict[str, set[str]] = {name: set() for name in self.graph.outputs}
        self.times = self.meaning.times()
        self.uppers = self.case.uppers()
        self.upper = self.told = ((BEGINNING,) * len(self.case.times),)

    def run_all(self) -> bool:
        """Do the runs; return False if one was refused, as it had to be."""
        done = all(map(self._run, range(len(self.case.runs))))
        self._check_fingerprints()
        return done

    def _check_fingerprints(self) -> None:
        """Compare the fingerprints that the commits have kept with the logs, however the runs were done."""
        request = read_request(self.path)
        manifest = read_newest(request.state)
        for name, entry in manifest.outputs.items() if manifest else ():
            known = number_in(manifest.secret_bytes, entry.contents)
            if known is None and entry.contents:  # made under another secret: the next commit hashes the log anew
                continue
            assert known == log_number(manifest.secret_bytes, request.outputs[name], entry), (
                f"the fingerprint of {name}"
            )

    def _run(self, number: int) -> bool:
        this = self.case.runs[number]
        arrive(self.case, number, self.root)
        lower, upper = self.upper, self.uppers[number]
        self.told = upper
        closing = [time for time in self.times if is_closed(upper, time) and not is_closed(lower, time)]
        meant = {time: self.meaning.at(time) for time in closing}
        options = self.how()  # which may do something to the state
        before = self._snapshot()
        try:
            run(self.path, until=self.case.until(this), **options)
        except (InputError, EngineError) as error:
            if not self._may_refuse(error, meant.values()):
                raise AssertionError("the run was refused") from error
            _same_files(self._snapshot(), before, "a refused run")
            return False
        for time, found in meant.items():
            assert not isinstance(found, Exception), f"run {number} was not refused: {found!r} at {time}"
        after = self._snapshot()
        old = [name for name in before if name.startswith("out/") and not name.endswith(PROGRESS)]
        _same_files({name: after.get(name) for name in old}, {name: before[name] for name in old}, "a run")
        if upper == lower and not this.files:
            assert after == before, "a run with nothing new changed a file"
        self.upper = upper
        for name in self.graph.outputs:
            self._check_new(name, lower, upper)
            for time in sorted({*closing, *(t for _, t in self.logs[name] if not is_closed(lower, t))}):
                got = accumulate([(record, t, diff) for (record, t), diff in self.logs[name].items()], time)
                same(got, self.meaning.at(time)[0][name], f"{name} at {time} after run {number}")
        return True

    def _may_refuse(self, error: Exception, meant: Iterable) -> bool:
        """Return whether a run may be refused with an error, from what the times mean that it was to close."""
        meant = list(meant)
        failing = any(isinstance(found, Fails) for found in meant)
        if isinstance(error, EngineError):
            # Where an expression fails nothing is known of loops.
            return failing or any(isinstance(found, LoopDiverges) for found in meant)
        odd = any(isinstance(found, LoopDiverges) or (isinstance(found, tuple) and found[1]) for found in meant)
        return failing or (self._fallible() and (odd or self._cancels()))

    def _fallible(self) -> bool:
        """Return whether any expression of the pipeline may fail."""
        return " / " in self.case.text or "as int64)" in self.case.text

    def _cancels(self) -> bool:
        """Return whether rows may pass an expression that are in no collection, because others take them back at once."""
        inputs = [
            canonical([record, time])
            for name in logical.sources(self.graph)
            for record, time, _ in self.case.updates(name)
        ]
        return len(set(inputs)) < len(inputs) or any(map(_cancels, self.graph.nodes()))

    def _snapshot(self) -> dict[str, bytes]:
        """Return the bytes of state and outputs."""
        found, root = {}, str(self.root)
        for folder, folders, names in os.walk(root):
            if folder == root and "in" in folders:
                folders.remove("in")
            for name in names:
                if name not in LOCKS:
                    with open(path := f"{folder}/{name}", "rb") as file:  # noqa: PTH123 - there are thousands
                        found[path[len(root) + 1 :]] = file.read()
        return found

    def _check_new(self, name: str, lower: Frontier, upper: Frontier) -> None:
        """Add the files that a run wrote to a log, each row checked by itself."""
        folder, times = self.root / "out" / name, self.case.times
        schema = {column: kind.to_polars() for column, kind in self.graph.outputs[name].schema.items()}
        types = [kind.to_polars() for kind in self.case.time_types]
        schema |= dict(zip(times, types, strict=True)) | {"diff": pl.Int64()}
        if any(BEGINNING not in time for time in upper) or len(upper) > 1:
            assert read_progress(folder) == upper, f"the progress of {name} is {read_progress(folder)}, not {upper}"
        for path in sorted(folder.rglob("*.parquet")):  # a large commit is a folder
            file = str(path.relative_to(folder))
            if file in self.known[name]:
                continue
            self.known[name].add(file)
            assert file.startswith("updates-"), file
            frame = pl.read_parquet(path)
            assert dict(frame.schema) == schema, f"{name}: {frame.schema}, not {schema}"
            for part in row_groups(path, frame.select(times)):
                assert part.equals(part.sort(times)), f"{path.name} has rows that are not in order of time"
            for *values, diff in frame.with_columns(pl.col(times).to_physical()).rows():
                record, time = values[: -len(times)], tuple(values[-len(times) :])
                row = (canonical(record), time)
                assert diff != 0, f"{name}: zero at {row}"
                assert row not in self.logs[name], f"{name}: more than one row for {row}"
                assert not is_closed(lower, time), f"{name}: {row} was closed before, up to {lower}"
                assert is_closed(upper, time), f"{name}: {row} is early, the run closed {upper}"
                self.logs[name][row] = diff


def _cancels(node: Node) -> bool:
    if isinstance(node, logical.Apply):
        return isinstance(node.step, ExplodeStep)
    outer = isinstance(node, joins.Join) and node.how != "inner"
    return outer or isinstance(node, logical.SignedSum) or (isinstance(node, joins.Semijoin) and node.anti)


def _same_files(now: dict[str, bytes | None], before: dict[str, bytes], who: str) -> None:
    changed = sorted(name for name in {*now, *before} if now.get(name) != before.get(name))
    assert not changed, f"{who} changed {changed}"


def same(got: Collection, wanted: Collection, what: str) -> None:
    """Assert that two collections are equal, or say in which records they differ."""
    if got != wanted:
        wrong = [record for record in sorted({*got, *wanted}, key=repr) if got.get(record) != wanted.get(record)]
        lines = [f"{record}: {got.get(record, 0)} times, should be {wanted.get(record, 0)}" for record in wrong]
        raise AssertionError("\n  ".join([what, *lines]))


def row_groups(path, frame):
    """Yield the rows of each row group of a file: a file that was written in parts is in order of time in each of them."""
    metadata, start = pq.read_metadata(path), 0
    for at in range(metadata.num_row_groups):
        count = metadata.row_group(at).num_rows
        yield frame[start : start + count]
        start += count
    assert start == frame.height, path

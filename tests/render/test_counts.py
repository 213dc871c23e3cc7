"""What is counted of each operator: the same in memory, out of core, on several shards and as tasks; and the records of runs."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.engine.counts import ROUNDS, Counts, Progress, RowCounts
from ddcli.engine.scope import Scope
from ddcli.engine.stages import OperatorSlot
from ddcli.errors import BudgetError, EngineError, InputError
from ddcli.job.sizes import Sizes
from ddcli.job.summary import KEPT, RunRecord, read_runs, write_run
from ddcli.runtime import placement
from ddcli.store.files.gate import Files
from ddcli.store.state.document import RUNS
from tests.draws import many
from tests.judge.case import arrive
from tests.judge.logs import cases
from tests.judge.memory import judge_in_memory
from tests.judge.test_windows import windowed
from tests.spark.support import Here, Told, started

PIPELINE = """
dd: 1
name: friends
inputs:
  pairs: {path: in/, columns: {a: int64, b: int64}}
collections:
  both:
    from: pairs
    apply:
      - filter: a <> b
      - concat: {from: pairs, apply: [{map: {a: b, b: a}}]}
  often:
    from: both
    apply: [{reduce: {by: [a], n: count(*)}}]
  reach:
    iterate:
      variables: {reach: {from: pairs, apply: [distinct]}}
      body:
        reach:
          from: reach
          apply: [{join: {with: pairs, as: more, on: {b: a}}}, {map: {a: a, b: more.b}}, {concat: pairs}, distinct]
      result: reach
  least:
    from: both
    apply:
      - reduce: {by: [a], least: min(b), all: array_agg(b order by b)}
      - window: {order_by: a, columns: {before: lag(least), at: row_number()}}
outputs:
  often: out/often/
  least: out/least/
  reach: out/reach/
"""
WAYS = {
    "in memory": Sizes(1, 1, 1),
    "on shards": Sizes(3, 3, 2),
    "out of core": Sizes(2, 4, 2, 3, 0),
    "as tasks": Sizes(2, 4, 1, 3, 0),
}


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "p.yaml"
    found.write_text(PIPELINE)
    more(tmp_path, 0, [(at, at + 1, 1) for at in range(8)])
    return found


def more(folder, time, rows):
    (folder / "in").mkdir(exist_ok=True)
    frame = pl.DataFrame([(a, b, time, diff) for a, b, diff in rows], schema=["a", "b", "time", "diff"], orient="row")
    frame.write_parquet(folder / f"in/{time}.parquet")


def counted(path, way, monkeypatch, until=None):
    """Run, cut in one way; return what was counted, without times and what hangs on the cut."""
    monkeypatch.setattr(placement, "sizes", lambda *_, **__: WAYS[way])
    monkeypatch.setattr(Sizes, "spread", lambda self, *_, **__: self)
    with started(Here(1)):
        summary = run(path, engine="spark" if way == "as tasks" else "local", until=until)
    return {
        name: (count.rows_in, count.rows_out, count.inserted, count.rows_read)
        for name, count in (summary.counts or {}).items()
        if not name.startswith("output:") and not count.turns
    }


def test_counts_are_those_of_the_operators(path, monkeypatch):
    """The first load: eight pairs, each both ways; then one is taken back."""
    found = sorted(counted(path, "in memory", monkeypatch).values())
    assert (0, 8, 8, 0) in found, "the scan"
    assert (16, 9, 9, 0) in found, "the reduction has a group a number"
    more(path.parent, 1, [(0, 1, -1)])
    found = counted(path, "in memory", monkeypatch).values()
    assert (0, 1, 0, 0) in found
    assert (2, 3, 1, 0) in found, "0 has no pair any more, 1 has one less"
    assert (2, 3, 1, 1) in found, "of the groups 0 and 1 all rows are read: one"


@pytest.mark.parametrize("way", [way for way in WAYS if way != "in memory"])
def test_counts_do_not_depend_on_where_it_runs(path, way, tmp_path, monkeypatch):
    """In a loop, too: here no rows of two shards cancel."""
    (tmp_path / "other").mkdir()
    there = tmp_path / "other" / "p.yaml"
    there.write_text(PIPELINE.replace("path: in/", "path: ../in/"))
    assert counted(there, way, monkeypatch) == counted(path, "in memory", monkeypatch)
    more(path.parent, 1, [(0, 1, -1), (3, 4, 1), (9, 3, 1)])
    assert counted(there, way, monkeypatch) == counted(path, "in memory", monkeypatch)


@settings(max_examples=many(6))
@given(
    st.one_of(windowed(), cases(nt=1, looping=False), cases(nt=1, looping=True), cases(nt=2, looping=False)),
    st.sampled_from([way for way in WAYS if way != "in memory"]),
)
def test_counts_of_any_pipeline_do_not_depend_on_where_it_runs(case, way):
    """Run by run; what counts nothing may be left out."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        paths = {each: Path(folder, each.replace(" ", "-"), "p.yaml") for each in ("in memory", way)}
        for path in paths.values():
            path.parent.mkdir()
            path.write_text(case.text)
        for number, this in enumerate(case.runs):
            found = []
            for each, path in paths.items():
                arrive(case, number, path.parent)
                try:
                    counts = counted(path, each, patch, case.until(this))
                except (InputError, EngineError):
                    return
                found.append({name: count for name, count in counts.items() if any(count)})
            assert found[0] == found[1]


def test_a_budget_ends_a_run_of_tasks_before_its_next_stage(path, monkeypatch):
    """Nothing of it is committed, and the next run does all of it."""
    monkeypatch.setattr(placement, "sizes", lambda *_, **__: WAYS["as tasks"])
    monkeypatch.setattr(Sizes, "spread", lambda self, *_, **__: self)
    with started(Told(1)) as cluster:
        with pytest.raises(BudgetError, match="the budget is 10 rows"):
            run(path, engine="spark", budget={"rows": "10"})
        begun = len(cluster.abouts)
        assert not list(path.parent.glob("out/*/*.parquet"))
        run(path, engine="spark", budget={"rows": "1e6"})
    assert 0 < begun < (len(cluster.abouts) - begun) / 2


@pytest.mark.parametrize("way", WAYS)
def test_reading_and_writing_take_time(path, way, monkeypatch):
    """That of the inputs and the outputs is counted with them, wherever it is spent."""
    monkeypatch.setattr(placement, "sizes", lambda *_, **__: WAYS[way])
    monkeypatch.setattr(Sizes, "spread", lambda self, *_, **__: self)
    with started(Here(1)):
        counts = run(path, engine="spark" if way == "as tasks" else "local").counts
    assert all(counts[f"output:{name}"].seconds > 0 for name in ("often", "reach"))
    assert all(
        count.seconds > 0 for count in counts.values() if count.rows_out == count.inserted == 8 and not count.rows_in
    )


def test_rounds_of_a_loop(path):
    (loop,) = [count for count in run(path).counts.values() if count.turns]
    assert loop.turns == len(loop.rounds) >= 8
    assert all(loop.rounds)
    assert loop.rows_out == 8 * 9 // 2


@settings(max_examples=many(25))
@given(
    st.tuples(st.sampled_from([1, 1, 2]), st.booleans()).flatmap(lambda way: cases(nt=way[0], looping=way[1])),
    st.sampled_from([1, 3]),
)
def test_what_is_known_of_signs_is_so(case, shards):
    """Where rows are not looked at, as nothing but inserting rows went in, none that came out retracts."""
    plain, seen = OperatorSlot.counted, []

    def checked(place, shard, given, found, seconds):
        before = place.count(shard).inserted
        result = plain(place, shard, given, found, seconds)
        inserted = int((found.updates[:, -1] > 0).sum())
        assert place.count(shard).inserted - before == inserted, place.label
        assert not result.inserts or inserted == len(result.updates)
        seen.append(result.inserts)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OperatorSlot, "counted", checked)
        patch.setitem(Scope.__init__.__kwdefaults__, "counted", True)
        judge_in_memory(case, shards)
    event(f"known: {any(seen)}")


def test_counts_add_up():
    one, other = RowCounts(1, 2, 1, 0.5), RowCounts(10, 20, 10, 0.5)
    one.turn(0, 3)
    other.turn(0, 4)
    other.turn(ROUNDS + 5, 6)
    counts = Counts.of([("x", one)])
    counts.add(Counts.of([("x", other), ("y", RowCounts(1))]))
    assert one.rows_in == 1, "what is added up stays as it was"
    assert counts["y"].rows_in == 1
    found = counts["x"]
    assert (found.rows_in, found.rows_out, found.inserted, found.retracted, found.seconds) == (11, 22, 11, 11, 1.0)
    assert (found.turns, found.rounds[0], found.rounds[-1], len(found.rounds)) == (3, 7, 6, ROUNDS)


class Heard(Progress):
    """Writes down what a run tells."""

    def __init__(self):
        self.stages, self.read_rows, self.read_bytes, self.written, self.ends = [], 0, 0, 0, 0

    def begin(self, what, tasks=None):
        self.stages.append([what, tasks, 0])

    def advance(self, tasks=1):
        self.stages[-1][2] += tasks

    def read(self, rows, size=0):
        self.read_rows += rows
        self.read_bytes += size

    def wrote(self, rows, size=0):
        self.written += rows

    def end(self):
        self.ends += 1


@pytest.mark.parametrize("way", WAYS)
def test_progress_is_told(path, way, monkeypatch):
    monkeypatch.setattr(placement, "sizes", lambda *_, **__: WAYS[way])
    monkeypatch.setattr(Sizes, "spread", lambda self, *_, **__: self)
    heard = Heard()
    with started(Here(1)):
        summary = run(path, engine="spark" if way == "as tasks" else "local", progress=heard)
    stages = [stage for stage in heard.stages if re.match(r"stages? \d", stage[0])]
    first = (
        "stages 1 to 2 of 6: " if way == "as tasks" else f"stage 1 of {len(stages)}: "
    )  # consecutive ones are one job of Spark
    assert stages[0][0].startswith(first)
    assert any("loop" in what for what, _, _ in stages)
    assert heard.ends == 1
    if way == "out of core":
        assert all(done == tasks for _, tasks, done in stages if tasks > 1)
    assert heard.read_rows == 8
    assert abs(heard.read_bytes - (path.parent / "in/0.parquet").stat().st_size) <= 8
    there = sum(made.rows for made in summary.outputs.values()) + summary.state_rows
    # What several passes over a shard have written may be merged.
    assert heard.written == there if way == "in memory" else heard.written >= there


def test_the_end_is_told_of_a_run_that_fails(path):
    heard = Heard()
    (path.parent / "in/1.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(InputError):
        run(path, progress=heard)
    assert heard.ends == 1


# --- records --------------------------------------------------------------------------------------------------------


def test_a_run_that_commits_is_recorded(path):
    summary = run(path)
    state = path.parent / ".dd/friends"
    (record,) = read_runs(state)
    assert (record.number, record.rows, record.state_bytes) == (1, 8, summary.state_bytes)
    assert record.operators == summary.counts
    assert 0 < record.seconds <= summary.seconds
    run(path)  # nothing is new
    more(path.parent, 1, [(0, 5, 1)])
    run(path, dry_run=True)
    assert [each.number for each in read_runs(state)] == [1]
    run(path)
    assert [each.number for each in read_runs(state)] == [1, 2]


def test_what_is_torn_is_no_record(path):
    run(path)
    place = path.parent / ".dd/friends" / RUNS
    whole = (place / "000000001.json").read_bytes()
    tree = json.loads(whole)
    for at, data in enumerate(
        [b"", whole[:-1], bytes(len(whole)), b"[]", b"7", json.dumps(tree | {"summary": {}}).encode()], start=2
    ):
        (place / f"{at:09d}.json").write_bytes(data)
    assert [record.number for record in read_runs(place.parent)] == [1]
    more(path.parent, 1, [(0, 5, 1)])
    assert run(path).changed


def test_only_the_last_are_kept(tmp_path):
    summary = {"seconds": 1.0, "inputs": {}, "outputs": {}, "state_bytes": 0}
    for number in range(1, KEPT + 5):
        write_run(tmp_path, RunRecord(number, "", summary, Counts()), Files())
    found = [record.number for record in read_runs(tmp_path)]
    assert found == list(range(5, KEPT + 5))


def test_old_records_that_others_left_go_in_time(tmp_path: Path) -> None:
    """A run drops the record that is due; each hundredth one drops whatever is older."""
    summary = {"seconds": 0.1, "inputs": {}, "outputs": {}, "state_bytes": 0}
    for number in (1, 2, KEPT + 2, 2 * KEPT - 1):
        write_run(tmp_path, RunRecord(number, "", summary, Counts()), Files())
    assert [record.number for record in read_runs(tmp_path)] == [1, KEPT + 2, 2 * KEPT - 1]
    write_run(tmp_path, RunRecord(2 * KEPT, "", summary, Counts()), Files())
    assert [record.number for record in read_runs(tmp_path)] == [KEPT + 2, 2 * KEPT - 1, 2 * KEPT]


def test_a_record_that_can_not_be_written_is_said(path, monkeypatch):
    """The run has committed all the same."""

    def full(*_):
        raise EngineError("cannot write the file: no space left on device", place="runs/1.json")

    monkeypatch.setattr("ddcli.job.summary.write_run", full)
    said = []
    assert run(path, say=said.append).changed
    assert said == ["no record of this run is kept: cannot write the file: no space left on device: runs/1.json"]
    assert not run(path).changed


def test_a_rebuild_is_counted(path):
    """What a change of the pipeline computes belongs to the run, beside what is new."""
    run(path)
    path.write_text(PIPELINE.replace("filter: a <> b", "filter: a <> b and a <> 3"))
    more(path.parent, 1, [(0, 5, 1)])
    summary = run(path, apply=True)
    assert summary.rebuilt
    read = [count.rows_out for count in summary.counts.values() if not count.rows_in and not count.turns]
    assert 9 in read, "the eight rows of before, and the new one"
    (_, record) = read_runs(path.parent / ".dd/friends")
    assert record.operators == summary.counts

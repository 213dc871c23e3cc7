"""Compaction: the policy by simulation; what it merges says the same as before; and state stays in proportion to what is live.

The order that the runs of several shards are put in.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.expressions.types import parse_type
from ddcli.store.batch import compaction, file
from ddcli.store.batch.compaction import FUEL, LEAST, MOST, RATIO, Fresh, compact, compact_wholly, gathered
from ddcli.store.batch.file import BatchLayout
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.files.gate import Files
from ddcli.store.state.contents import batch_directory
from ddcli.store.state.directory import State
from ddcli.store.state.entries import ArrangementEntry, FileEntry
from ddcli.store.state.manifest import Manifest
from tests.draws import many
from tests.secret import SECRET

NONE = Frontier()
PAIRS = BatchLayout(Layout({"k": parse_type("int64")}), Layout({"v": parse_type("int64")}), 1)
NAMES = BatchLayout(Layout({"k": parse_type("string?")}), Layout({"v": parse_type("string")}), 1)


# The policy, on files that are no more than sizes and ranges.


@dataclass(frozen=True)
class File:
    """A file over a range of keys in [0, 1), evenly filled; stands for a stored batch."""

    rows: int
    first: float
    last: float
    run: int

    @property
    def entry(self):
        return SimpleNamespace(run=self.run)

    def starts(self, width):
        return np.array([self.first, self.last])


def simulate(inserts):
    """Insert this many rows of random keys at a time; yield (runs' rows, rows merged) after each."""
    files = []
    for rows in inserts:
        fresh = SimpleNamespace(updates=range(rows))
        number = max((file.run for file in files), default=-1) + 1
        limit = max(LEAST, FUEL * rows)
        work = 0
        for merge in list(compaction._spine(PAIRS, compaction._runs(files), fresh, limit, NONE, number)):
            taken = [*merge.stored, *([File(rows, 0.0, 1.0, 0)] if merge.fresh else [])]
            total = sum(file.rows for file in taken)
            if merge.stored:
                work += total
            files = [file for file in files if not any(file is other for other in merge.stored)]
            first, last = min(file.first for file in taken), max(file.last for file in taken)
            count = -(-total // MOST)
            for at in range(count):
                ends = [first + (last - first) * (at + side) / count for side in (0, 0.999999)]
                files.append(File(total // count, *ends, merge.run))
        yield [sum(file.rows for file in run) for run in compaction._runs(files)], work


@pytest.mark.parametrize(
    "inserts", [[1_000] * 3_000, [40_000] * 1_500, [20_000_000, *[300_000] * 300], [50_000_000, *[1_000] * 500]]
)
def test_runs_stay_few_and_work_stays_in_proportion(inserts):
    merged = inserted = most = 0
    for at, (sizes, work) in enumerate(simulate(inserts)):
        rows = inserts[at]
        inserted += rows
        merged += work
        most = max(most, len(sizes))
        assert work <= max(LEAST, FUEL * rows) + 2 * (RATIO + 2) * MOST
        if at == 0:
            assert not work
    assert most <= 12
    assert merged <= 40 * (inserted - inserts[0] * (inserts[0] > inserts[1])) + LEAST
    assert sum(sizes) == pytest.approx(inserted, rel=0.01)


def test_a_small_change_leaves_a_large_batch_alone():
    *_, (sizes, work) = simulate([50_000_000, *[1_000] * 50])
    assert sizes[0] == pytest.approx(50_000_000, rel=0.001)
    assert work <= LEAST


def test_what_is_due_is_done_a_portion_at_a_time():
    older = [compaction.FileRange(10, at, at + 0.9) for at in range(10)]
    younger = [compaction.FileRange(40, at, at + 2.9) for at in range(0, 9, 3)]
    assert compaction.portion(older, younger, 1) == ({0, 1, 2}, {0})
    assert compaction.portion(older, younger, 140) == ({0, 1, 2, 3, 4, 5}, {0, 1})
    assert compaction.portion(older[:2], younger[1:2], 1) == (set(), {0})
    few = [compaction.FileRange(10, at, at + 2.9) for at in range(0, 9, 3)]
    assert compaction.portion(older, few, 1000) == ({0, 1, 2}, {0}), "more than is due"
    assert compaction.portion(older, [*few, compaction.FileRange(10, 4, 4)], 1) == ({4}, {3})


# The merging, on real files.


class Shard:
    """A shard in a directory: rows come in at increasing times, and what is in its files is told from what came in."""

    def __init__(self, directory, layout=PAIRS):
        self.directory, self.layout = directory, layout
        self.entries, self.time, self.number = (), 0, 0
        self.came = Counter()

    def stored(self, pool=None):
        return [
            StoredBatch(self.directory / entry.name, entry, self.layout, pool or Pool(SECRET)) for entry in self.entries
        ]

    def updates(self, records):
        """Return the fresh updates of records {(k, v): diff}, at the next time."""
        records = {record: diff for record, diff in records.items() if diff}
        pool = Pool(SECRET)
        columns = list(zip(*records, strict=True)) or [[], []]
        schema = {name: kind.to_polars() for name, kind in self.layout.record.schema.items()}
        frame = pl.DataFrame(dict(zip(schema, columns, strict=True)), schema=schema)
        matrix = np.full((len(records), self.layout.width), self.time, np.int64)
        encode(frame, self.layout.record, pool, matrix)
        matrix[:, -1] = list(records.values())
        for record, diff in records.items():
            self.came[record, self.time] += diff
        self.time += 1
        return Fresh(kernels.consolidate(matrix), Frontier([(self.time - 1,)]), Frontier([(self.time,)]), pool)

    def do(self, work):
        """Write what a compaction makes, and drop what it takes the place of."""
        kept = {entry.name for entry in work.kept}
        made = [batch.write(self, "a", 0) for batch in work.made()]
        for entry in self.entries:
            if entry.name not in kept:
                (self.directory / entry.name).unlink()
        self.entries = compaction.in_order([*work.kept, *made])

    def add_batch(self, arrangement, shard, data):
        self.number += 1
        path = self.directory / f"{self.number:06d}.parquet"
        return path.name, Files().write(path, data)

    def contents(self, time):
        """Return the collection that the files say there is at a time, in values."""
        found = Counter()
        for batch in self.stored():
            times, diffs = batch.matrix()[:, -2], batch.matrix()[:, -1]
            names = list(self.layout.record.names)
            for record, at, diff in zip(
                pl.read_parquet(batch.path, columns=names).rows(), times.tolist(), diffs.tolist(), strict=True
            ):
                if at <= time:
                    found[record] += diff
        return {record: diff for record, diff in found.items() if diff}

    def expected(self, time):
        found = Counter()
        for (record, at), diff in self.came.items():
            if at <= time:
                found[record] += diff
        return {record: diff for record, diff in found.items() if diff}


def small(patch):
    """Make files, ranges and portions small, so that a few rows go through all of it."""
    for module, name, value in (
        (file, "GROUP", 3),
        (file, "PAGE", 2),
        (compaction, "GROUP", 3),
        (compaction, "MOST", 12),
        (compaction, "CHUNK", 6),
        (compaction, "LEAST", 10),
        (compaction, "FUEL", 2),
        (compaction, "BLOCK", 2),
    ):
        patch.setattr(module, name, value)


steps = st.lists(
    st.tuples(
        st.dictionaries(st.tuples(st.integers(0, 12), st.integers(0, 2)), st.integers(-2, 2), max_size=25),
        st.integers(0, 3),  # how far since moves
        st.sampled_from(["fresh", "fresh", "fresh", "none", "wholly"]),
        st.booleans(),  # whether a holder takes all there is
    ),
    max_size=12,
)


@given(steps=steps, named=st.booleans(), holds=st.booleans())
def test_what_is_merged_says_the_same(tmp_path_factory, steps, named, holds):
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        shard = Shard(tmp_path_factory.mktemp("shard"), NAMES if named else PAIRS)
        since = taken = 0
        seen = shard.expected(-1)
        for records, further, how, takes in steps:
            if named:
                records = {(None if k == 5 else f"key {k}", f"value {v}"): diff for (k, v), diff in records.items()}
            through = Frontier([(taken,)]) if holds else NONE
            since = min(since + further, shard.time, taken if holds else shard.time)
            bounds = {"since": Frontier([(since,)]), "through": through}
            if how == "wholly":
                shard.do(compact_wholly(shard.layout, shard.stored(), **bounds))
                runs = {entry.run for entry in shard.entries if Frontier(entry.upper).dominates(through)}
                assert len(runs) < 2
            else:
                fresh = shard.updates(records) if how == "fresh" else None
                shard.do(compact(shard.layout, shard.stored(), fresh, **bounds))
            for time in range(since, shard.time + 1):
                assert shard.contents(time) == shard.expected(time)
            # The holder has taken whole batches, and tells by time what is new in the others.
            rest = [batch for batch in shard.stored() if not batch.upper.dominates(Frontier([(taken,)]))]
            new = sum(int(batch.matrix()[batch.matrix()[:, -2] >= taken][:, -1].sum()) for batch in rest)
            if holds:
                assert new == sum(diff for (_, at), diff in shard.came.items() if at >= taken)
            assert [entry.run for entry in shard.entries] == sorted(entry.run for entry in shard.entries)
            taken = shard.time if takes else taken
        assert seen == {}


@pytest.mark.parametrize("named", [False, True])
def test_rows_that_wait_for_their_row_group_stay_as_they_were(tmp_path, monkeypatch, named):
    """The last row of a range waits alone, while the next range is advanced in the same room."""
    small(monkeypatch)
    monkeypatch.setattr(compaction, "GROUP", 7)
    shard = Shard(tmp_path, NAMES if named else PAIRS)
    records = {(f"key {k}" if named else k, f"value {k}" if named else k): k + 1 for k in range(28)}
    shard.do(compact(shard.layout, [], shard.updates(records), since=Frontier([(1,)]), through=NONE))
    assert shard.contents(1) == records


@pytest.mark.parametrize("count", [3, 4, 20])
def test_records_that_are_there_twice_are_written_once(tmp_path, monkeypatch, count):
    """Also where there are more of them, each as often as it is there, than a row group has rows."""
    small(monkeypatch)
    shard = Shard(tmp_path)
    fresh = shard.updates({(k, k): 1 + (k % 2) for k in range(count)})
    data = np.repeat(fresh.updates[:, :2], fresh.updates[:, -1], axis=0)
    uniform = kernels.Uniform(data, np.array([0, 1]))
    shard.do(compact(PAIRS, [], replace(fresh, updates=uniform), since=Frontier([(1,)]), through=NONE))
    assert shard.contents(1) == shard.expected(1)


def test_large_runs_are_merged_range_by_range_into_files_of_one_size(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "GROUP", 100)
    monkeypatch.setattr(file, "PAGE", 10)
    monkeypatch.setattr(compaction, "GROUP", 100)
    monkeypatch.setattr(compaction, "MOST", 2000)
    monkeypatch.setattr(compaction, "CHUNK", 500)
    monkeypatch.setattr(compaction, "FUEL", 0)
    monkeypatch.setattr(compaction, "LEAST", 0)
    shard = Shard(tmp_path)
    rng = random.Random(1)
    bounds = {"since": Frontier([(0,)]), "through": NONE}
    for _ in range(2):
        records = {(rng.randrange(10**6), at): 1 for at in range(5000)}
        shard.do(compact(PAIRS, shard.stored(), shard.updates(records), **bounds))
    assert [(entry.rows, entry.run) for entry in shard.entries] == [
        (rows, run) for run in (0, 1) for rows in (1700, 1600, 1700)
    ]
    largest = 0
    merge = kernels.merge

    def watched(parts):
        nonlocal largest
        largest = max(largest, sum(map(len, parts)))
        return merge(parts)

    monkeypatch.setattr(kernels, "merge", watched)
    shard.do(compact_wholly(PAIRS, shard.stored(), **bounds))
    assert largest <= 1.5 * 500
    assert {entry.run for entry in shard.entries} == {0}
    assert all(1000 <= entry.rows <= 2700 for entry in shard.entries), [entry.rows for entry in shard.entries]
    assert shard.contents(9) == shard.expected(9)
    ranges = [batch.starts(2)[[0, -1]].tolist() for batch in shard.stored()]
    assert all(last < first for (_, last), (first, _) in pairwise(ranges))


class Quick(Files):
    """Files that leave out what only the loss of power would tell."""

    def do(self, operation, path, action):
        return None if operation == "sync" else super().do(operation, path, action)


def test_state_stays_in_proportion_to_what_is_live_over_a_thousand_runs_of_churn(tmp_path):
    """Each of 200 keys has one value; every run changes some. Through commits, sweeps and real files."""
    rng = random.Random(4)
    live, sizes, shard = {}, [], Shard(tmp_path)
    for _ in range(max(many(1000), 100)):  # fewer are no churn: sizes are compared from the 20th run on
        records = Counter()
        for key in rng.sample(range(200), rng.choice([1, 5, 40])):
            if key in live:
                records[key, live[key]] -= 1
            live[key] = rng.randrange(10**9)
            records[key, live[key]] += 1
        with State.open(tmp_path, {}, files=Quick()) as state:
            entries = state.manifest.arrangements["a"].shards[0] if state.manifest else ()
            directory = batch_directory(state.directory, "a", 0)
            stored = [StoredBatch(directory / entry.name, entry, PAIRS, Pool(SECRET)) for entry in entries]
            fresh = shard.updates(records)
            with state.begin() as transaction:
                work = compact(PAIRS, stored, fresh, since=fresh.upper, through=NONE)
                files = work.write(transaction, "a", 0)
                times = fresh.upper.elements
                arrangement = ArrangementEntry("a", times, times, ("k",), {"k": "int64"}, (files,))
                transaction.commit(Manifest("p", times, arrangements={"a": arrangement}))
        on_disk = list(Path(directory).iterdir())
        assert {path.name for path in on_disk} == {entry.name for entry in files}
        sizes.append((sum(path.stat().st_size for path in on_disk), sum(entry.rows for entry in files), len(files)))
    assert max(rows for _, rows, _ in sizes) <= 2 * 200
    assert max(count for *_, count in sizes) <= 5
    assert max(size for size, *_ in sizes[len(sizes) // 2 :]) <= 2 * max(size for size, *_ in sizes[20:120])
    found = Counter()
    for entry in files:
        for key, value, _, diff in pl.read_parquet(directory / entry.name).rows():
            found[key, value] += diff
    assert {record for record, diff in found.items() if diff} == set(live.items())


def entry(name, run, lower, upper):
    return FileEntry(name, 1, 1, "", ((lower,),), ((upper,),), ((lower,),), "", run)


def runs(files):
    """Return what each run's files are called, the oldest run first."""
    found = {}
    for each in files:
        found.setdefault(each.run, []).append(each.name)
    return [sorted(names) for _, names in sorted(found.items())]


def test_the_runs_of_one_shard_stay_as_they_are():
    # Of run 1, files that ended at 9 went into run 0: what is left of it ends earlier, and is younger all the same.
    one = [entry("a", 0, 0, 9), entry("b", 0, 0, 5), entry("c", 1, 5, 7), entry("d", 4, 9, 12)]
    assert runs(gathered({3: one})) == [["a", "b"], ["c"], ["d"]]


def test_those_of_several_are_in_order_of_time():
    """A reader that has taken what is before 5 has wholly taken the first four, and nothing of the others."""
    one = [entry("a", 0, 0, 5), entry("b", 1, 5, 9)]
    other = [entry("c", 0, 0, 3), entry("d", 1, 3, 5), entry("e", 2, 5, 9), entry("f", 2, 5, 9)]
    found = gathered({0: one, 1: other})
    assert runs(found) == [["c"], ["a"], ["d"], ["b"], ["e", "f"]]
    assert [file.upper for file in found] == sorted(file.upper for file in found)


def test_a_closed_frontier_is_the_last():
    last = FileEntry("z", 1, 1, "", ((3,),), (), ((3,),), "", 1)
    assert runs(gathered({0: [entry("a", 0, 0, 3), last], 1: [entry("b", 5, 0, 3)]})) == [["a"], ["b"], ["z"]]


def test_no_files_are_no_runs():
    assert gathered({}) == ()

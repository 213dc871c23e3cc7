"""Random pipelines whose state is cut into another number of shards, or hashed anew, between runs, whichever way these are done."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ddcli.store.batch.file import KEY
from ddcli.store.batch.stored_batch import stored_batches
from ddcli.store.state.directory import State
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import compact_state, rekey, reshard_state, verify
from tests.judge.case import Arrival, Case, Run
from tests.judge.harness import judge
from tests.judge.logs import cases
from tests.judge.sizes import cut
from tests.judge.test_random import SEARCH
from tests.spark.support import Here, started, switching


def contents(directory, manifest):
    """Return the updates of each arrangement, as values."""
    found = {}
    for name, entry in manifest.arrangements.items():
        found[name] = Counter()
        for shard in range(len(entry.shards)):
            layout, stored = stored_batches(directory, name, entry, shard, manifest.secret_bytes)
            for batch in stored:
                frame = layout.to_frame(batch.matrix(), batch.pool).drop(
                    KEY, strict=False
                )  # its number depends on the secret
                for *record, diff in frame.rows():
                    found[name][repr(record)] += diff
    return found


def resharded(directory, shards):
    """Cut a state into so many shards; nothing else of it may change."""
    before = read_newest(directory)
    held = contents(directory, before)
    reshard_state(directory, shards)
    after = read_newest(directory)
    assert after.number == before.number + any(len(entry.shards) != shards for entry in before.arrangements.values())
    assert {len(entry.shards) for entry in after.arrangements.values()} <= {shards}
    assert contents(directory, after) == held
    for name, entry in after.arrangements.items():
        assert (entry.since, entry.upper) == (before.arrangements[name].since, before.arrangements[name].upper)
    _, _, wrong = verify(directory)
    assert not wrong


def hashed_anew(directory, secret):
    """Hash a state's values under another secret; nothing that it holds may change."""
    held = contents(directory, read_newest(directory))
    with State.open(directory, {}) as state:
        rekey(state, secret)
    assert contents(directory, read_newest(directory)) == held
    _, _, wrong = verify(directory)
    assert not wrong


@SEARCH
@given(
    st.tuples(st.sampled_from([1, 1, 2, 3]), st.booleans()).flatmap(lambda way: cases(nt=way[0], looping=way[1])),
    st.sampled_from([1, 2, 3]),
    st.integers(0, 2**32),
)
def test_the_number_of_shards_and_the_secret_may_change_between_runs(case, shards, seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed), started(Here(seed)):
        engines = switching(seed, 0.3)

        def how():
            for directory in Path(folder).glob("*/.dd/*"):
                if read_newest(directory) is not None and chance.random() < 0.7:
                    resharded(directory, chance.choice([1, 2, 3, 4, 6, 8]))
                    if chance.random() < 0.2:
                        compact_state(directory)
                    if chance.random() < 0.4:
                        hashed_anew(directory, chance.randbytes(16))
            return engines()

        judge(case, Path(folder), how)


JOIN = """
dd: 1
name: judged
shards: 3
inputs:
  p: {path: in/p/, columns: {k: int64, v: string}, time: [x, y]}
  q: {path: in/q/, columns: {k: int64}, time: [x, y]}
collections:
  j: {from: p, apply: [{join: {with: q, on: [k]}}, {count: {by: [v], as: n}}]}
outputs: {j: out/j/}
"""


def test_what_waits_for_a_time_is_where_runs_look_for_it(tmp_path):
    """It is arranged by its time, but lies in shards by its data."""
    one = Arrival("p", tuple(((key, f"v{key % 5}"), (0, 1), 1) for key in range(20)))
    other = Arrival("q", tuple(((key,), (1, 0), 1) for key in range(20)))
    known = tuple((name, ((0, 2), (1, 1), (2, 0))) for name in "pq")  # at (1, 1) they meet
    runs = [Run((one, other), None, known), Run((), None, known), Run((), "3,3")]
    counts = iter([None, 4, 2])
    directory = tmp_path / "cut/.dd/judged"

    def how():
        if shards := next(counts, None):
            manifest = read_newest(directory)
            held = contents(directory, manifest)
            assert any(len(rows) > 3 for name, rows in held.items() if name.endswith("-waiting"))
            resharded(directory, shards)
        return {}

    judge(Case(JOIN, tuple(runs)), tmp_path, how)

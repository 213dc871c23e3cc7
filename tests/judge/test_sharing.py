"""Random arrangements, exported and imported, the two pipelines run in any order, the state compacted between: what comes out
is what one pipeline would give.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import polars as pl
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.job import sizes
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import compact_state, reshard_state
from tests.judge.frontiers import box, is_closed
from tests.judge.logs import LATEST
from tests.judge.test_random import SEARCH
from tests.reference.model import accumulate, less_equal
from tests.spark.support import Here, started, switching

KEYS = st.integers(0, 3)
VALUES = st.integers(0, 2)


@st.composite
def histories(draw):
    """Give the number of coordinates of times, updates of two inputs, and what happens: runs of either side up to a time."""
    nt = draw(st.sampled_from([1, 1, 2]))
    times = st.tuples(*[st.integers(0, LATEST[nt])] * nt)
    updates = st.lists(st.tuples(KEYS, VALUES, times, st.sampled_from([1, 1, -1, 2])), max_size=12)
    corners = st.tuples(*[st.integers(0, LATEST[nt] + 1)] * nt)
    steps = st.lists(
        st.tuples(st.sampled_from(["export", "export", "import", "compact", "reshard"]), corners),
        min_size=2,
        max_size=7,
    )
    return nt, draw(updates), draw(updates), draw(steps), draw(st.tuples(*[st.sampled_from([1, 2, 3])] * 2))


def meaning(left, right, time):
    """Return the join of two inputs by their first column at a time."""
    found = Counter()
    for k, v, t, d in left:
        for k2, v2, t2, d2 in right:
            if k == k2 and less_equal(t, time) and less_equal(t2, time):
                found[k, v, v2] += d * d2
    return {record: count for record, count in found.items() if count}


def write(path, updates, names):
    rows = [(k, v, *t, d) for k, v, t, d in updates]
    path.parent.mkdir(parents=True)
    pl.DataFrame(rows, schema=dict.fromkeys(["k", "v", *names, "diff"], pl.Int64), orient="row").write_parquet(path)


def shards(patch, count):
    """Have arrangements made with so many shards."""
    plain = sizes.sizes

    def sized(rows, width, kept, threads, memory, wanted=None, **_):
        return plain(rows, width, kept, threads, memory, count)

    patch.setattr("ddcli.runtime.placement.sizes", sized)


def pipelines(root, nt):
    """Write an exporter, an importer that joins what it imports with an input of its own, and one that does so with an output."""
    time = {} if nt == 1 else {"time": ["x", "y"]}
    by_k = {"arrange": {"by": ["k"], "export": "by_k"}}
    one = {"dd": 1, "name": "one", "inputs": {"a": {"path": "a/"} | time}}
    one |= {"collections": {"c": {"from": "a", "apply": [by_k]}}, "outputs": {"c": "out/c/"}}
    join = {"join": {"with": "own", "as": "own", "on": ["k"]}}
    shared = {"import": {"state": ".dd/one", "arrangement": "by_k"}} | time
    two = {"dd": 1, "name": "two", "inputs": {"c": shared, "own": {"path": "b/"} | time}}
    columns = {"k": "k", "v": "v", "w": "own.v"}
    two |= {
        "collections": {"j": {"from": "c", "apply": [join, {"map": columns}]}},
        "outputs": {"j": "out/j/", "c": "out/c2/"},
    }
    three = {
        "dd": 1,
        "name": "three",
        "inputs": {
            "c": {"path": "out/c/", "columns": {"k": "int64?", "v": "int64?"}} | time,
            "own": {"path": "b/"} | time,
        },
    }
    three |= {"collections": {"j": two["collections"]["j"]}, "outputs": {"j": "out/j3/"}}
    for tree in (one, two, three):
        (root / f"{tree['name']}.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))


def upper_of(state, nt):
    manifest = read_newest(state)
    return manifest.upper if manifest else box((-(2**63),) * nt)


def log(folder, names):
    frames = [pl.read_parquet(path) for path in sorted(folder.glob("*.parquet"))]
    rows = [row for frame in frames for row in frame.rows()]
    nt = len(names)
    return [(row[: -nt - 1], row[-nt - 1 : -1], row[-1]) for row in rows]


@SEARCH
@given(histories(), st.integers(0, 2**32))
def test_an_imported_arrangement_is_the_collection_from_its_beginning_on(history, seed):
    """At every time that is closed in the importer, and after the frontier at which it first held the arrangement, by any engine."""
    from _pytest.monkeypatch import MonkeyPatch

    nt, left, right, steps, (one_shards, two_shards) = history
    names = ["time"] if nt == 1 else ["x", "y"]
    how = switching(seed)
    with tempfile.TemporaryDirectory() as folder, started(Here(seed)), MonkeyPatch.context() as patch:
        root = Path(folder)
        pipelines(root, nt)
        write(root / "a" / "1.parquet", left, names)
        write(root / "b" / "1.parquet", right, names)
        shards(patch, one_shards)
        run(root / "one.yaml", until=",".join("0" * nt))
        begin = None
        for who, corner in [*steps, ("export", (9,) * nt), ("import", (9,) * nt)]:
            shards(patch, one_shards if who == "export" else two_shards)
            if who == "export":
                run(root / "one.yaml", until=",".join(map(str, corner)), **how())
                continue
            if who == "compact":
                compact_state(root / ".dd/one")
                continue
            if who == "reshard":
                one_shards = one_shards % 3 + 1
                reshard_state(root / ".dd/one", one_shards)
                continue
            if begin is None:
                begin = read_newest(root / ".dd/one").upper
            run(root / "two.yaml", **how())
            run(root / "three.yaml", **how())
            chained, upper = log(root / "out/j3", names), upper_of(root / ".dd/three", nt)
            for time in [(x,) if nt == 1 else (x, y) for x in range(10) for y in range(10 if nt == 2 else 1)]:
                if is_closed(upper, time):
                    assert accumulate(chained, time) == meaning(left, right, time), f"the join with an output at {time}"
            upper = upper_of(root / ".dd/two", nt)
            joined, copied = log(root / "out/j", names), log(root / "out/c2", names)
            for time in [(x,) if nt == 1 else (x, y) for x in range(10) for y in range(10 if nt == 2 else 1)]:
                if is_closed(upper, time) and not is_closed(begin, time):
                    assert accumulate(joined, time) == meaning(left, right, time), f"the join at {time}"
                    plain = accumulate([((k, v), t, d) for k, v, t, d in left], time)
                    assert accumulate(copied, time) == plain, f"the import at {time}"
        manifest = read_newest(root / ".dd/two")
        kept = [file for entry in manifest.arrangements.values() for shard in entry.shards for file in shard]
        assert sum(file.rows for file in kept) <= len(right) * (1 if nt == 1 else 3) + 9 * nt, "a copy is kept"

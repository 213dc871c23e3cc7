"""One trace over all shards of a state reads near places what the traces of its shards would."""

import numpy as np
import pytest

from ddcli.circuit.traces import StateTraces
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.engine.trace.trace_import import nearby
from ddcli.expressions.types import parse_type
from ddcli.job.sizes import Sizes
from ddcli.store.batch import compaction, file, stored_batch
from ddcli.store.state.directory import State
from ddcli.store.state.manifest import Manifest, read_newest
from tests.draws import chance, many
from tests.secret import SECRET

NAME = "arranged"
SHARDS = 3
KEY, VALUE = (Layout({name: parse_type("int64")}) for name in "kv")
NOTHING = {"generations": [], "outline": {"outputs": {}, "nodes": {}}}


def traces(directory, passes, upper):
    """Return a state's traces, and those of one arrangement, each of a pass."""
    pools = [Pool(SECRET) for _ in range(passes)]
    kept = StateTraces(directory, read_newest(directory), pools, upper, Sizes(SHARDS, passes, 1))
    return kept, [kept.trace(NAME, KEY, VALUE, 1, shard) for shard in range(passes)]


def write(directory, rows):
    """Keep rows (key, value) in a state of several shards."""
    kept, (trace,) = traces(directory, 1, Frontier([(0,)]))
    trace.insert(kernels.consolidate(np.array([(k, v, 0, 1) for k, v in rows], np.int64)), Frontier([(1,)]))
    with State.open(directory, {}) as state, state.begin() as transaction:
        kept.write(trace, transaction, Frontier([(1,)]))
        cache = {"time": {"t0": "int64"}, "seen": None, "plan": NOTHING}
        entries = kept.entries(Frontier([(1,)]))
        transaction.commit(Manifest("p", ((1,),), arrangements=entries, cache=cache, secret=SECRET.hex()))


@pytest.mark.parametrize("seed", range(many(20)))
def test_what_is_near_is_as_wide_as_in_the_shards(tmp_path, monkeypatch, seed):
    draw = chance("shards", seed)
    for module, name, value in (
        (file, "GROUP", 2),
        (file, "PAGE", 1),
        (compaction, "GROUP", 2),
        (stored_batch, "FEW", 2),
    ):
        monkeypatch.setattr(module, name, value)
    rows = sorted({(draw.randrange(8), draw.randrange(60)) for _ in range(200)})
    write(tmp_path, rows)
    places = {k: v for k, v in rows if draw.random() < 0.3}
    first = np.array(sorted(places.items()), np.int64).reshape(-1, 2)
    last = first + np.array([0, 3])
    _, (together,) = traces(tmp_path, 1, Frontier([(1,)]))
    _, apart = traces(tmp_path, SHARDS, Frontier([(1,)]))
    whole = nearby(together, first, last, 1)
    shards = kernels.shard_of(np.ascontiguousarray(first[:, :1]), 1, SHARDS)
    for shard, trace in enumerate(apart):
        mine = np.flatnonzero(shards == shard)
        near = nearby(trace, first[mine], last[mine], 1) if len(mine) else None
        if near is not None:
            assert np.array_equal(whole.low[mine], near.low)
            assert np.array_equal(whole.high[mine], near.high)
    if whole is not None:
        found = {(k, v) for matrix in whole.matrices for k, v, *_ in matrix.tolist()}
        for low, high in zip(whole.low.tolist(), whole.high.tolist(), strict=True):
            assert {(k, v) for k, v in rows if low <= [k, v] <= high} <= found

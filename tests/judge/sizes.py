"""The sizes at which the engine goes another way, made so small that the judge's few records go that way too."""

from __future__ import annotations

import math
import random
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import strategies as st

from ddcli.driver import migration, step
from ddcli.engine import executor, heap, kernels, memory_store, process, scope_tree
from ddcli.engine.kernels import sort, uniform
from ddcli.engine.operators import reduce, revisit, running_windows, sweep
from ddcli.engine.operators.reduce import Reduce
from ddcli.engine.trace import policy
from ddcli.job import sizes as job_sizes
from ddcli.job.sizes import Sizes
from ddcli.runtime import placement, scheduler
from ddcli.sinks import outputs
from ddcli.store.batch import compaction, file
from ddcli.store.scratch import attempt
from ddcli.store.state import batch_lists

kernel_join = sys.modules["ddcli.engine.kernels.join"]
"""The module: the package has a function of that name."""

AS_THEY_ARE = 4_096
"""Histories that are walked at most: with all sizes as they are. No history of the judge's is longer."""


MOST_WALKED = st.sampled_from([AS_THEY_ARE, 0, 5])
"""What `few` is called with."""
IN_MEMORY = (MOST_WALKED, st.integers(1, 3), st.booleans())
"""How a case is judged in memory: what `few` is called with, on how many workers, and whether in many small steps."""


def written_over(m, *, owned=False):
    """Consolidate, and write over what nobody else is to have, as is done with many rows."""
    found = sort.consolidate(m)
    if owned and len(m) and not np.may_share_memory(found, m):
        m[:] = 7
    return found


@contextmanager
def few(rows: int):
    """Have loops walk histories of at most so many rows, and sweep the others; other sizes are small unless it is as it is."""
    with pytest.MonkeyPatch.context() as patch:
        if rows < AS_THEY_ARE:
            patch.setattr(revisit, "FEW", rows)
            patch.setattr(revisit, "RUNS", 1)
            patch.setattr(revisit, "ONCE", 0)
            patch.setattr(sweep, "CANCELLED", rows)
            patch.setattr(revisit, "GROUPS", rows)
            patch.setattr(revisit, "ROWS", 2 * rows)
            patch.setattr(revisit, "BATCHES", 1 + rows)
            patch.setattr(kernel_join, "FEW", rows)
            patch.setattr(kernels, "FEW", rows)
            patch.setattr(kernels, "LARGE", 0)
            patch.setattr(kernels, "consolidate", written_over)
            patch.setattr(sort, "CUT", 0)
            patch.setattr(uniform, "LEAST", 1 + rows)
            patch.setattr(uniform, "REPEATED", 2)
            patch.setattr(memory_store, "MANY", rows)
            patch.setattr(policy, "LITTLE", rows)
            patch.setattr(policy, "MOST_RUNS", 2)
            patch.setattr(policy, "LEAST_FUEL", 1)
            patch.setattr(scope_tree, "LITTLE", rows)
            patch.setattr(process, "FEW", rows)
            for name, value in {"BLOCK": 1 + rows, "TOGETHER": 2 + rows, "FEW": 4 * rows, "PROBED": 1}.items():
                patch.setattr(running_windows, name, value)
            patch.setattr(running_windows, "ONE_IN", 63)
            for module in (file, compaction):
                patch.setattr(module, "GROUP", 2)
            patch.setattr(file, "PAGE", 1)
            patch.setitem(Reduce.__init__.__kwdefaults__, "chunk", 1 + rows)
        yield


@contextmanager
def cut(shards: int, seed: int, *, streams: bool = False):
    """Have runs cut as chance will have it: in memory or out of core, in as many passes as the state has shards, in more, or in one.

    Those that are to stream are in memory, read in small parts, which wait packed until they are brought to their shards. Joins have room for few
    rows: then a run in memory begins again out of core, where a join emits part after part.
    """
    chance = random.Random(seed)

    def sizes(_rows, _width, kept, *_, apart=False, joined=0, **__):
        common = math.lcm(*kept, shards)
        passes, threads = common * chance.choice([1, 1, 2]), chance.randint(1, 3)
        pairs = chance.choice([1, 200, job_sizes.SLICED, job_sizes.SLICED])
        if streams and not joined:
            return Sizes(shards, max(passes, 2), threads, joined=pairs)
        if chance.random() < 0.5 and not joined:
            passes, threads = (1, 1) if chance.random() < 0.3 and not apart else (passes, threads)
            return Sizes(shards, passes, threads, joined=pairs)
        passes = max(passes, 2 * common if common == 1 else common)
        return Sizes(shards, passes, threads, chance.randint(1, 4), chance.choice([0, 100, 1_000_000]), pairs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "sizes", sizes)
        patch.setattr(migration, "rows_read", lambda _memory: chance.randint(1, 4))
        patch.setattr(process, "FEW", chance.choice([0, process.FEW]))
        patch.setattr(kernel_join, "FEW", chance.choice([0, 2, kernel_join.FEW]))
        patch.setattr(job_sizes, "LEAST_ROWS", 1 if streams else chance.choice([1, job_sizes.LEAST_ROWS]))
        patch.setattr(job_sizes, "STREAMED", 0 if streams else chance.choice([0, job_sizes.STREAMED]))
        patch.setattr(executor, "SETTLED", chance.choice([0, 3, executor.SETTLED]))
        patch.setattr(reduce, "LEAST", chance.choice([1, 3]))
        patch.setattr(uniform, "LEAST", chance.choice([1, 3, uniform.LEAST]))
        patch.setattr(uniform, "REPEATED", chance.choice([1, 2, 8]))
        patch.setattr(reduce, "FEWER", chance.choice([0, 1, 2]))
        patch.setattr(job_sizes, "PART", chance.choice([1, 100, 100 if streams else job_sizes.PART]))
        for module in (outputs, step):
            patch.setattr(module, "LARGE", chance.choice([2, outputs.LARGE]))
        if streams or chance.random() < 0.5:
            patch.setattr(heap, "LARGE", 1)
        patch.setattr(file, "WHOLE", chance.choice([0, file.WHOLE]))
        patch.setattr(attempt, "ALONE", chance.choice([900, attempt.ALONE]))
        patch.setattr(attempt, "FULL", chance.choice([2000, attempt.FULL]))
        patch.setattr(batch_lists, "SLACK", chance.choice([0, batch_lists.SLACK]))
        patch.setattr(batch_lists, "LATELY", chance.choice([1, batch_lists.LATELY]))
        patch.setattr(batch_lists, "DENSE", chance.choice([1, 2, batch_lists.DENSE]))
        patch.setattr(scheduler, "INLINE", chance.choice([0, scheduler.INLINE]))
        patch.setattr(outputs, "WHOLE", chance.choice([1, 3000, outputs.WHOLE]))
        yield

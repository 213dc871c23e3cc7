"""Functions over matrices of updates: sort, consolidate, merge, join. Nothing here knows a column's name.

A matrix is C-contiguous int64, [data lanes | time lanes | diff], a row an update; rows are compared as signed integers, lane by lane.
How kernels are written, compiled and kept is in `loader` and `cache`.
"""

from ddcli.engine.kernels.errors import DiffOverflow, KernelError
from ddcli.engine.kernels.hashing import hash_bytes
from ddcli.engine.kernels.joining import join, join_chunks
from ddcli.engine.kernels.merging import Merge, merge
from ddcli.engine.kernels.partitioning import exchange
from ddcli.engine.kernels.picking import concat, distinct_keys, gather, gather_bounds, inserted, locate, take
from ddcli.engine.kernels.pool_table import PoolTable
from ddcli.engine.kernels.settings import set_announce, set_cache_dir
from ddcli.engine.kernels.shards import shard_of
from ddcli.engine.kernels.shifting import enter_at, join_times, shift
from ddcli.engine.kernels.sorting import consolidate, is_consolidated, is_sorted, sort_by
from ddcli.engine.kernels.times import advance, rounds_equal
from ddcli.engine.kernels.walking import walk

__all__ = [
    "DiffOverflow",
    "KernelError",
    "Merge",
    "PoolTable",
    "advance",
    "concat",
    "consolidate",
    "distinct_keys",
    "enter_at",
    "exchange",
    "gather",
    "gather_bounds",
    "hash_bytes",
    "inserted",
    "is_consolidated",
    "is_sorted",
    "join",
    "join_chunks",
    "join_times",
    "locate",
    "merge",
    "rounds_equal",
    "set_announce",
    "set_cache_dir",
    "shard_of",
    "shift",
    "sort_by",
    "take",
    "walk",
]

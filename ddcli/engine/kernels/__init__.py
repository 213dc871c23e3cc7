"""Functions over matrices of updates: sort, consolidate, merge, join. Nothing here knows a column's name.

A matrix is C-contiguous int64, [data lanes | time lanes | diff], a row an update; rows are compared as signed integers, lane by lane.
How kernels are written, compiled and kept is in `engine.jit`.

* gather: pick rows by key or by comparisons, lanes by number; lanes as columns, and columns as lanes
* hashes: xxHash64 and SipHash-1-3; hashes of rows: the shard of a key, the fingerprint of a multiset
* join: join sorted matrices by key
* merge: merge sorted matrices; take one matrix from another
* neighbours: the rows around changes of an ordered group; the nearest rows of an ordered group, and the rows that they are nearest to
* packed_rows: rows that wait, in less memory
* page_headers: the places of Parquet's pages, and the sizes of row groups
* page_values: values of a page of Parquet, read in place
* page_writer: integers as pages of Parquet; values packed for pages of Parquet
* pages: pages of a batch file: those that can have a key, looked up and read in place
* pairs: pair equal numbers
* partition: rows distributed to shards
* pool_table: the hash table of the pool
* ordered_values: the first k values of a group
* reduce_rows: the rows of the touched keys at each instance
* reduce_sums: running sums of integers and decimals; float sums, rounded once
* reduce_times: the interesting times of a reduction
* reduce_turns: reductions in totally ordered time
* revisit: a few groups in a loop: their histories, and a step of a reduction
* rows: compare, seek, copy: helpers compiled into each kernel
* sort: sort and consolidate; rows distributed by their leading bits into pieces to sort
* sort_rows: the order of some rows, found within the cache
* text_syntax: field counts of CSV, keys of JSON
* times: advance times to a frontier; move updates to later times
* uniform: rows that share one time and diff
* upsert: from values by key to updates; multiplicities at each instance
* value_pairs: the products of a join's values
"""

from ddcli.engine.jit.registry import DiffOverflow, KernelError
from ddcli.engine.jit.settings import set_announce, set_cache_dir
from ddcli.engine.kernels.gather import (
    LARGE,
    concat,
    concat_out_of,
    distinct_keys,
    gather,
    gather_bounds,
    inserted,
    locate,
    put_columns,
    select,
    take,
    take_sums,
    turned,
)
from ddcli.engine.kernels.hashes import multiset_hash, shard_of
from ddcli.engine.kernels.join import FEW, JoinOfFew, ManyPairs, join, join_chunks
from ddcli.engine.kernels.merge import Merge, difference, merge, merge_out_of, negate, negated
from ddcli.engine.kernels.packed_rows import packed
from ddcli.engine.kernels.partition import distributed_packed, exchange, unpacked
from ddcli.engine.kernels.pool_table import PoolTable
from ddcli.engine.kernels.revisit import Histories, walk
from ddcli.engine.kernels.sort import arranged, consolidate, is_consolidated, is_sorted, sort_by
from ddcli.engine.kernels.times import advance, enter_at, join_times, shift
from ddcli.engine.kernels.uniform import (
    Rows,
    Uniform,
    common_tail,
    consolidated_parts,
    leading,
    matrix,
    rounds_equal,
    rows_within,
    shared,
)

__all__ = [
    "FEW",
    "LARGE",
    "DiffOverflow",
    "Histories",
    "JoinOfFew",
    "KernelError",
    "ManyPairs",
    "Merge",
    "PoolTable",
    "Rows",
    "Uniform",
    "advance",
    "arranged",
    "common_tail",
    "concat",
    "concat_out_of",
    "consolidate",
    "consolidated_parts",
    "difference",
    "distinct_keys",
    "distributed_packed",
    "enter_at",
    "exchange",
    "gather",
    "gather_bounds",
    "inserted",
    "is_consolidated",
    "is_sorted",
    "join",
    "join_chunks",
    "join_times",
    "leading",
    "locate",
    "matrix",
    "merge",
    "merge_out_of",
    "multiset_hash",
    "negate",
    "negated",
    "packed",
    "put_columns",
    "rounds_equal",
    "rows_within",
    "select",
    "set_announce",
    "set_cache_dir",
    "shard_of",
    "shared",
    "shift",
    "sort_by",
    "take",
    "take_sums",
    "turned",
    "unpacked",
    "walk",
]

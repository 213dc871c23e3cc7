"""Functions over matrices of updates: sort, consolidate, merge, join. Nothing here knows a column's name."""

from ddcli.engine.kernels.errors import DiffOverflow, KernelError
from ddcli.engine.kernels.merging import Merge, merge
from ddcli.engine.kernels.settings import set_announce, set_cache_dir

__all__ = ["DiffOverflow", "KernelError", "Merge", "merge", "set_announce", "set_cache_dir"]

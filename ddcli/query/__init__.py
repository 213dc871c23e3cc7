"""Lookups of keys in a pipeline's state, and queries answered once, without a run.

    with_state = Lookup.open(Path("orders.yaml"), "revenue_by_region")
    with_state.rows({"region": "north"})

A state keeps arrangements: collections indexed by key. Another collection is computed, for the wanted keys,
of those below it: a join's rows of both of its sides, a reduction's of its state by group, with the operators that
runs use.

* answer: the records of a collection for some keys
* contents: the contents of collections in state, outputs and inputs for a statement
* files: files that a query names, as inputs
* lookup: a state opened for lookups
* statement: an SQL statement answered once
* stored_arrangements: records of arrangements, read from files by key
* ways: the arrangements that answer a lookup
"""

from ddcli.query.lookup import Lookup

__all__ = ["Lookup"]

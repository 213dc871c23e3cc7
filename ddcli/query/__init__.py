"""Look-ups of records by key in a pipeline's state, without a run.

    with_state = Lookup.open(Path("orders.yaml"), "revenue_by_region")
    with_state.rows({"region": "north"})

A state keeps arrangements: collections indexed by key. Any other collection is computed, for the wanted keys alone, from the arrangements
below it, by the operators that runs use: a join from both of its sides, a reduction from its groups.

* answer: the arrangements that answer a question, and the records of a collection for some keys
* lookup: a state that is open for look-ups by key; the contents that a statement reads from the state and the inputs
* statement: an SQL statement answered once, also over files that it names
"""

from ddcli.query.lookup import Lookup

__all__ = ["Lookup"]

"""Looking keys up in what a pipeline keeps between runs, without running it.

    with_state = Lookup.open(Path("orders.yaml"), "revenue_by_region")
    with_state.rows({"region": "north"})

What a state keeps are arrangements: collections indexed by key. A collection that is none of them is made, for the keys that are
asked for, of those below it: a join's rows of both of its sides, a reduction's of what it keeps by group. The operators that
do it are the ones that runs use.

* answer: the records of a collection for some keys
* contents: what a statement reads of the state and of the inputs
* files: files that a query names, as inputs
* lookup: a state opened for questions
* statement: an SQL statement answered once
* stored_arrangements: records of arrangements, read from files by key
* ways: which arrangements answer a question
"""

from ddcli.query.lookup import Lookup

__all__ = ["Lookup"]

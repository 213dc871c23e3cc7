"""Plain words for the operators of a plan: one sentence for each kind, which needs no knowledge of the engine."""

from __future__ import annotations

MEANINGS = {
    "arrange": "Keeps all rows in the state, sorted by these columns, so that the operators below find the rows of a key without reading the others.",
    "asof_join": "Joins each row with the nearest row of the other side, in the order of a column such as a time.",
    "choose": "Keeps the changed rows that are cheaper to join with this collection first.",
    "concat": "Puts the rows of several collections together; equal rows stay apart (`union all`).",
    "consolidate": "Adds up the changes of equal rows: what one change adds and another removes is gone.",
    "contents": "Reads rows that the state already holds, in place of computing them again.",
    "count matches": "Counts the rows that each changed row would be joined with, to choose the cheaper order of joins.",
    "delay": "Keeps changes that lie in the future until their time comes.",
    "delta join": "Puts together the joins of the changes of each collection, without keeping the rows of joins in between.",
    "distinct": "Keeps each row once, however often it comes in.",
    "enter": "Brings rows into a loop, each from the round that its expression states.",
    "explode": "Repeats each row as often as an expression states; a negative number removes rows.",
    "filter": "Keeps the rows for which the condition is true.",
    "filter on read": "Keeps the rows for which the condition is true, as they are read from an arrangement: it needs no copy of them.",
    "flat_map": "Makes none, one or several rows of each row.",
    "half join": "Joins the changed rows of one collection with the rows of another.",
    "input": "Reads what is new in the input since the last run.",
    "inspect": "Prints the changes that pass, and leaves them as they are.",
    "join": "Pairs each row with the rows of the other side that have equal values in these columns. A change on either side looks up its partners in the arrangement of the other.",
    "join_function": "Makes rows with times and diffs of each row, by a Python function.",
    "leave": "Takes the rows of the loop's last round out of the loop.",
    "loop": "Repeats its operators until nothing changes, or for a stated number of rounds.",
    "map": "Computes new columns of each row.",
    "negate": "Turns added rows into removed ones, and removed ones into added ones.",
    "once": "Keeps a row from the first time at which it exists, for good.",
    "order": "Adds columns that sort as an `order by` does: text, descending columns and nulls become integers.",
    "output": "Writes the changes of the collection to the output.",
    "project": "Keeps some of the columns, or gives them other names; it computes nothing.",
    "reduce": "Computes one row for each group, such as counts, sums or the smallest value. After a change it computes only the groups that changed, and replaces their rows.",
    "snapshots": "Compares each new snapshot of the input with the one before; the rows that came or went are the changes.",
    "subtract": "Removes the rows of one collection from another, as often as they are there.",
    "temporal_filter": "Shows each row for a span of time: adds it when the span begins, and removes it when it ends.",
    "threshold": "Computes from how often a row comes in how often it goes out, by an expression.",
    "top_k": "Keeps the first rows of each group, in an order.",
    "upserts": "Keeps the newest row of each key: a row with a known key replaces the row before it.",
    "variable": "Holds the loop's rows as the round before left them.",
    "watch": "Keeps the input's rows to find an error: a row that is removed more often than it was added.",
    "window": "Computes a column of each row from the other rows of its partition, such as a rank, a running sum or the row before.",
}
"""The work of each kind of operator; a chain of steps that are fused into one has the kinds of all of them, joined by " + "."""

BOUNDS = {
    "change": "Its work grows with the change alone.",
    "output": "Its work grows with the change and the rows that it emits.",
    "groups": "For a changed row it may read all rows of the row's group.",
    "partition": "For a changed row it may read all rows of the row's partition.",
    "everything": "For any change it may read all of its rows.",
}
"""The bound of an operator's work, by its class."""


def meaning(kind: str, work: str | None) -> list[str]:
    """Return sentences on the work of an operator of a kind, and on the bound of it; a kind without a sentence of its own has none.

    >>> meaning("filter + project", "change")[1:]
    ['Keeps some of the columns, or gives them other names; it computes nothing.', 'Its work grows with the change alone.']
    """
    found = [MEANINGS[word] for word in kind.split(" + ") if word in MEANINGS]
    return found + ([BOUNDS[work]] if work in BOUNDS else [])

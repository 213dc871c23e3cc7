"""Made-up views: graphs of any shape, with boxes in boxes, and names that nobody should give."""

from __future__ import annotations

from hypothesis import strategies as st

from ddcli.engine.counts import Counts, RowCounts
from ddcli.job.summary import RunRecord
from ddcli.render.view import HeldState, LoopView, OperatorView, View


@st.composite
def shapes(draw, most=14):
    """Return the edges of a graph of numbers, each from a smaller to a larger one, and groups: (first, last), one in the other or apart."""
    count = draw(st.integers(1, most))
    edges = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=2 * count))
    groups = []
    for first, last in draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=4)):
        if first < last and all(
            last < a or first > b or (a <= first and last <= b) or (first <= a and b <= last) for a, b in groups
        ):
            groups.append((first, last))
    return count, sorted((a, b) for a, b in edges if a < b), sorted(set(groups), key=lambda g: g[0] - g[1])


def view_of_shape(shape, name="made up", runs=0):
    """Return a view of such a graph: operators are called by their numbers; the last of a group comes back as its first."""
    count, edges, groups = shape
    around = {at: [g for g in groups if g[0] <= at <= g[1]] for at in range(count)}
    ids = {group: f"loop {group[0]} {group[1]}" for group in groups}
    readers = {at: tuple(str(b) for a, b in edges if a == at) for at in range(count)}
    operators = [
        OperatorView(
            id=str(at),
            kind="arrange" if at % 3 == 1 else "join",
            names=(f"c{at}",),
            says=(f"by k{at}",),
            columns={"k": "int64"},
            inputs=tuple(str(a) for a, b in edges if b == at),
            readers=readers[at],
            loop=ids[around[at][-1]] if around[at] else None,
            keeps=at % 3 == 1,
            held=HeldState(10 * at, 100 * at, 1) if at % 3 == 1 else None,
        )
        for at in range(count)
    ]
    loops = [
        LoopView(
            ids[group],
            (f"v{group[0]}",),
            ids[outer[-1]]
            if (
                outer := [
                    g
                    for g in around[group[0]]
                    if g != group and g[1] >= group[1] and groups.index(g) < groups.index(group)
                ]
            )
            else None,
            None,
            ((str(group[1]), str(group[0])),) if around[group[1]][-1] == group == around[group[0]][-1] else (),
        )
        for group in groups
    ]
    records = tuple(record(number, [each.id for each in operators]) for number in range(1, runs + 1))
    return View(name, tuple(operators), tuple(loops), {}, records)


def record(number, names):
    """Return a record of a run that counted something everywhere."""
    summary = {
        "seconds": 0.5 * number,
        "inputs": {"a": {"rows": 1000 * number}},
        "outputs": {},
        "state_bytes": 1_000_000 + number,
        "upper": str(number),
    }
    counts = {name: RowCounts(10 * at, 10_000_000 + at, 7_000_000, 0.001 * at) for at, name in enumerate(names)}
    return RunRecord(number, f"2026-01-0{number}T00:00:00.000Z", summary, Counts(counts))


EVIL = "<script>document.title='taken'</script>\"'&amp;日本\u202e\x07"


def evil():
    """Return a view all of whose texts would do harm in a page that doesn't escape them."""
    operators = (
        OperatorView(EVIL, "input", (EVIL,), (EVIL,), {EVIL: EVIL}, (), ("b",)),
        OperatorView("b", "output", ("]]>-->", "`${1}`"), ("x" * 300, "</style></svg>"), {}, (EVIL,), ()),
    )
    return View(EVIL, operators, (), {}, (record(1, [EVIL, "b"]),))

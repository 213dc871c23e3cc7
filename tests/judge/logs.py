"""Random change logs: few keys, few values, nulls and the odd floats, few times; and the runs they are cut into."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.judge.case import Arrival, Case, Run
from tests.judge.columns import VALUES
from tests.judge.frontiers import BEGINNING, both, box, either, is_closed
from tests.judge.pipelines import pipelines
from tests.reference.model import less_equal
from tests.reference.values import canonical

if TYPE_CHECKING:
    from tests.judge.frontiers import Frontier
    from tests.reference.model import Record

LATEST = {1: 6, 2: 3, 3: 2}
"""The largest value of a time's coordinate, by the number of coordinates."""
NODES = 8
COMMON = ["int64", "int64?", "string?", "float64?", "string"]


@st.composite
def declared_columns(draw, *, looping: bool) -> dict[str, str]:
    """Give the columns of an input with their types, a key first; for loops mostly two that name things of a kind."""
    if looping and draw(st.integers(0, 4)):
        kind = draw(st.sampled_from(["int64", "int64", "int64?"]))
        return {"k": kind, "v": kind}
    columns = {"k": draw(st.sampled_from(["int64", "int64?", "int32", "int32?"]))}
    for name in draw(st.lists(st.sampled_from(["v", "s", "x"]), max_size=2, unique=True)):
        rare = draw(st.integers(0, 2)) == 2
        columns[name] = draw(st.sampled_from([*VALUES, *(f"{kind}?" for kind in VALUES)] if rare else COMMON))
    return columns


@st.composite
def updates(draw, columns: dict[str, str], nt: int, *, valid: bool, looping: bool) -> list:
    """Give updates of an input, in any order; with `valid`, no record ever has a negative count. Sometimes most rows have one key.

    For loops most lead from one of a few nodes to one that is near, so that ways are long.
    """
    values = {kind: st.sampled_from(VALUES[kind]) for kind in VALUES}
    fields = [
        st.one_of(values[kind.removesuffix("?")], st.none()) if kind.endswith("?") else values[kind]
        for kind in columns.values()
    ]
    if draw(st.integers(0, 3)) == 3:
        fields[0] = st.one_of(*[st.just(draw(fields[0]))] * 5, fields[0])
    records = st.tuples(*fields)
    if looping and list(columns) == ["k", "v"] and {*columns.values()} <= {"int64", "int64?"}:
        steps = st.tuples(st.integers(0, NODES - 1), st.sampled_from([1, 1, 1, 2, 5]))
        records = st.one_of(steps.map(lambda step: (step[0], sum(step) % NODES)), records)
    times = st.tuples(*[st.integers(0, LATEST[nt])] * nt)
    change = st.tuples(records, times, st.sampled_from([1, -1, 1, 2, -2]))
    # A fixed number of which some are nothing: lists of any length would mostly be short, and those find little.
    number = draw(st.sampled_from([12, 16] if looping else [4, 8, 12, 16]))
    slots = draw(st.lists(st.tuples(st.integers(0, 3), change), min_size=number, max_size=number))
    drawn = [update for there, update in slots if there]
    if not valid:
        return drawn
    kept: dict[Record, list] = defaultdict(list)
    for record, time, diff in sorted(drawn, key=lambda update: update[1]):
        same = kept[canonical(record)]
        later = [when for when in product(range(LATEST[nt] + 1), repeat=nt) if less_equal(time, when)]
        there = min(sum(d for _, t, d in same if less_equal(t, when)) for when in later)
        same.append((record, time, diff if there + diff >= 0 else -diff))
    return [update for same in kept.values() for update in same]


@st.composite
def uppers(draw, nt: int) -> list[tuple[str | None, Frontier]]:
    """Give what each run but the last is told with `--until`, and what is closed after it."""
    number = draw(st.sampled_from([1, 2, 3, 0]))
    corners = draw(st.lists(st.tuples(*[st.integers(0, LATEST[nt] + 1)] * nt), min_size=number, max_size=number))
    told, closed = [], ((BEGINNING,) * nt,)
    for corner in sorted(corners) if nt == 1 or draw(st.booleans()) else corners:
        closed = both(closed, box(corner))
        told.append((",".join(map(str, corner)), closed))
    return told


@st.composite
def staircases(draw, nt: int, names: list[str]) -> list[tuple[tuple[tuple[str, Frontier], ...], Frontier]]:
    """Give the progress that inputs carry in each run, and what is closed after it: any antichains, forwards only."""
    carrying = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    corners = st.lists(st.tuples(*[st.integers(0, LATEST[nt] + 1)] * nt), max_size=3)
    said, told = dict.fromkeys(carrying, ((BEGINNING,) * nt,)), []
    for _ in range(draw(st.integers(1, 3))):
        for name in carrying:
            said[name] = reduce(both, map(box, draw(corners)), said[name])
        told.append((tuple(said.items()), either(said.values())))
    return told


@st.composite
def cuts(draw, inputs: dict[str, list], nt: int = 1) -> tuple[Run, ...]:
    """Give runs over the updates: each arrives before the run that closes its time, or earlier and waits."""
    carried = draw(st.integers(0, 3)) == 3
    told = draw(staircases(nt, list(inputs))) if carried else [*draw(uppers(nt)), (None, ())]
    arriving: list[dict[str, list]] = [defaultdict(list) for _ in told]
    for name, rows in inputs.items():
        arriving[0][name] = []  # an input whose files are all still to come has an empty one
        for update in rows:
            last = next((run for run, (_, upper) in enumerate(told) if is_closed(upper, update[1])), len(told) - 1)
            arriving[draw(st.integers(0, last)) if draw(st.booleans()) else last][name].append(update)
    runs = []
    for files, (say, _) in zip(arriving, told, strict=True):
        arrivals = []
        for name, rows in files.items():
            at = draw(st.integers(0, len(rows))) if draw(st.booleans()) else len(rows)
            parts = [rows[:at], rows[at:]] if 0 < at < len(rows) else [rows]
            arrivals += [Arrival(name, tuple(part)) for part in parts]
        runs.append(Run(tuple(arrivals), progress=say) if carried else Run(tuple(arrivals), say))
    if not carried and draw(st.integers(0, 4)) == 4:
        runs[-1] = Run(runs[-1].files, ",".join([str(LATEST[nt])] * nt))
    return tuple(runs)


@st.composite
def cases(draw, *, nt: int = 1, looping: bool = False, nested: bool = False, fallible: bool = False) -> Case:
    """Give a pipeline over 1 to 3 inputs whose times have `nt` coordinates, their logs, and the runs."""
    columns = {name: draw(declared_columns(looping=looping)) for name in ("p", "q", "w")[: draw(st.integers(1, 3))]}
    valid = draw(st.booleans())
    logs = {name: draw(updates(kinds, nt, valid=valid, looping=looping)) for name, kinds in columns.items()}
    runs = draw(cuts(logs, nt))
    return Case(draw(pipelines(columns, nt=nt, looping=looping, nested=nested, fallible=fallible)), runs)

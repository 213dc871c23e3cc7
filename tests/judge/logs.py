"""Random change logs: few keys, few values, nulls and the odd floats; and the runs they are cut into."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import strategies as st

from tests.judge.case import Arrival, Case, Run
from tests.judge.columns import VALUES
from tests.judge.pipelines import pipelines
from tests.reference.values import canonical

LATEST = 6
COMMON = ["int64", "int64?", "string?", "float64?", "string"]


@st.composite
def declared_columns(draw) -> dict[str, str]:
    """Give the columns of an input with their types, a key first."""
    columns = {"k": draw(st.sampled_from(["int64", "int64?", "int32", "int32?"]))}
    for name in draw(st.lists(st.sampled_from(["v", "s", "x"]), max_size=2, unique=True)):
        rare = draw(st.integers(0, 2)) == 2
        columns[name] = draw(st.sampled_from([*VALUES, *(f"{kind}?" for kind in VALUES)] if rare else COMMON))
    return columns


@st.composite
def updates(draw, columns: dict[str, str], *, valid: bool) -> list:
    """Give updates of an input, in any order; with `valid`, no record ever has a negative count."""
    values = {kind: st.sampled_from(VALUES[kind]) for kind in VALUES}
    fields = [
        st.one_of(values[kind.removesuffix("?")], st.none()) if kind.endswith("?") else values[kind]
        for kind in columns.values()
    ]
    change = st.tuples(st.tuples(*fields), st.tuples(st.integers(0, LATEST)), st.sampled_from([1, -1, 1, 2, -2]))
    # A fixed number of which some are nothing: lists of any length would mostly be short, and those find little.
    number = draw(st.sampled_from([4, 8, 12, 16]))
    slots = draw(st.lists(st.one_of(st.none(), change, change), min_size=number, max_size=number))
    drawn = [update for update in slots if update]
    if not valid:
        return drawn
    kept, counts = [], defaultdict(int)
    for record, time, diff in sorted(drawn, key=lambda update: update[1]):
        change = diff if counts[canonical(record)] + diff >= 0 else -diff
        counts[canonical(record)] += change
        kept.append((record, time, change))
    return kept


@st.composite
def cuts(draw, inputs: dict[str, list]) -> tuple[Run, ...]:
    """Give runs over the updates: each arrives before the run that closes its time, or earlier and waits."""
    number = draw(st.integers(0, 3))
    untils = sorted(draw(st.lists(st.integers(0, LATEST + 1), min_size=number, max_size=number)))
    arriving: list[dict[str, list]] = [defaultdict(list) for _ in range(len(untils) + 1)]
    for name, rows in inputs.items():
        arriving[0][name] = []  # an input whose files are all still to come has an empty one
        for update in rows:
            last = next((run for run, until in enumerate(untils) if update[1][0] < until), len(untils))
            arriving[draw(st.integers(0, last)) if draw(st.booleans()) else last][name].append(update)
    runs = []
    for files, until in zip(arriving, [*untils, None], strict=True):
        arrivals = []
        for name, rows in files.items():
            at = draw(st.integers(0, len(rows))) if draw(st.booleans()) else len(rows)
            parts = [rows[:at], rows[at:]] if 0 < at < len(rows) else [rows]
            arrivals += [Arrival(name, tuple(part)) for part in parts]
        runs.append(Run(tuple(arrivals), None if until is None else str(until)))
    if draw(st.integers(0, 4)) == 4:
        runs[-1] = Run(runs[-1].files, str(LATEST))
    return tuple(runs)


@st.composite
def cases(draw, *, fallible: bool = False) -> Case:
    """Give a pipeline over 1 to 3 inputs, their logs, and the runs."""
    columns = {name: draw(declared_columns()) for name in ("p", "q", "w")[: draw(st.integers(1, 3))]}
    valid = draw(st.booleans())
    runs = draw(cuts({name: draw(updates(kinds, valid=valid)) for name, kinds in columns.items()}))
    return Case(draw(pipelines(columns, fallible=fallible)), runs)

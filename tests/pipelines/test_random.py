"""The same pipeline files over small random graphs whose edges come and go, cut into runs anywhere.

Few nodes and many times: cycles form, lose the edge that fed them and live on in the history; several epochs go through
a loop in one run, and a later run changes what an earlier one has left at rounds in between.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import chance, many
from tests.pipelines.support import Copy

EPOCHS = 6
NODES = "abcdef"
DAYS = range(0, 150, 25)  # in and out of the 60 days for which an attendance counts

node = st.sampled_from(NODES)
leg = st.tuples(st.sampled_from("XY"), node, node, st.integers(1, 9))
RECORDS = {
    "reachable": {"legs": leg},
    "components": {"attendance": st.tuples(node, st.sampled_from(["E1", "E2", "E3", "E4"]), st.sampled_from(DAYS))},
    "risk": {
        "dealings": st.tuples(node, node, st.integers(1, 5)),
        "accusations": st.tuples(node, node),
        "vetted": st.tuples(node),
    },
    "shortest": {"legs": leg, "starts": st.tuples(node)},
    "scc": {"legs": leg},
}
# A loop over all legs needs many of them, and few who start.
MOST = {"legs": 14, "attendance": 10, "dealings": 10, "accusations": 3, "vetted": 2, "starts": 2}
DATES = {"reachable", "shortest", "scc"}


def epoch(name, number):
    """Return a time of the kind that a pipeline's logs have."""
    if name in DATES:
        return dt.date(2013, 2, 1) + dt.timedelta(days=number)
    return DAYS[number] if name == "components" else number


@st.composite
def logs_of(draw, name):
    """Draw how often each of some records is there at each epoch, and return the logs that say so."""
    logs = {}
    for source, records in RECORDS[name].items():
        drawn = draw(st.lists(records, max_size=MOST[source], unique=True))
        most = 2 if name in {"reachable", "scc", "risk"} and source != "vetted" else 1
        log = []
        for record in drawn:
            before = 0
            for number in range(EPOCHS):
                now = draw(st.integers(0, most))
                if now != before:
                    log.append((record, epoch(name, number), now - before))
                before = now
        logs[source] = sorted(log, key=lambda update: update[1])
    return logs


@settings(max_examples=many(5))
@pytest.mark.parametrize("name", RECORDS)
@given(data=st.data())
def test_random_graphs(name, data):
    logs = data.draw(logs_of(name), label="logs")
    cuts = data.draw(st.sets(st.integers(1, EPOCHS - 1)), label="cuts")
    upper = 250 if name == "components" else epoch(name, EPOCHS - 1) + (1 if name == "risk" else dt.timedelta(days=1))
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy.make(name, Path(folder) / "copy", logs)
        for number in sorted(cuts):
            copy.run(epoch(name, number))
        copy.run(upper)
        copy.check(epoch(name, 0), upper)


def test_long_ways(tmp_path):
    """Rings of twenty, opened, closed and short-cut: changes at one round matter many rounds later."""
    choice = chance("long ways")
    legs = [("X", f"{ring}{at:02}", f"{ring}{(at + 1) % 20:02}", 1 + at % 3) for ring in "ab" for at in range(20)]
    legs += [("X", "a05", "b10", 1), ("X", "b15", "a03", 7), ("X", "a00", "a13", 2), ("X", "b19", "b02", 90)]
    log = []
    for leg in legs:
        there = 0
        for number in range(10):
            now = choice.random() < 0.9  # so that a ring is whole at one time in ten, or nearly so
            log.append((leg, epoch("scc", number), now - there))
            there = now
    logs = {"legs": [update for update in log if update[2]], "starts": [(("a00",), epoch("scc", 0), 1)]}
    for name in ("reachable", "shortest", "scc"):
        copy = Copy.make(name, tmp_path / name, logs)
        for number in sorted({*choice.sample(range(1, 10), 3), 10}):
            copy.run(epoch(name, number))
        copy.check(epoch(name, 0), epoch(name, 10))

"""Each pipeline with a loop over its real log, at every time of it: in one run, and cut into several."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.draws import chance
from tests.pipelines.support import Copy, accumulate, every_time

MARCH = dt.date(2013, 3, 1)
UPPER = {"reachable": MARCH, "components": 400, "risk": 13, "shortest": MARCH, "scc": MARCH}
FIRST = {name: dt.date(2013, 2, 1) if upper == MARCH else 0 for name, upper in UPPER.items()}


@pytest.fixture(scope="module", params=UPPER)
def done(request, tmp_path_factory):
    """Return a pipeline that has run once over everything."""
    copy = Copy.make(request.param, tmp_path_factory.mktemp(request.param) / "once")
    copy.run(UPPER[copy.name])
    return copy


def test_every_output_is_what_it_means_at_every_time(done):
    done.check(FIRST[done.name], UPPER[done.name])


def test_the_answer_does_not_depend_on_the_runs(done, tmp_path):
    upper = UPPER[done.name]
    copy = Copy.make(done.name, tmp_path / "cut")
    cuts = sorted(chance("cuts", done.name).sample(every_time(FIRST[done.name], upper)[1:], 4))
    for until in (*cuts, upper):
        copy.run(until)
        assert all(time < until for log in copy.outputs().values() for _, time, _ in log)
    for name, log in copy.outputs().items():
        assert sorted(log) == sorted(done.outputs()[name]), f"{name}, cut at {cuts}"


def test_an_accusation_withdrawn_clears_who_was_at_risk_through_it_alone(tmp_path):
    copy = Copy.make("risk", tmp_path / "once")
    copy.run()
    at = [{person for (person,) in accumulate(copy.outputs()["at_risk"], now)} for now in range(13)]
    assert [len(people) for people in at] == [0, 41, 0, 6, 6, 0, 55, 54, 54, 54, 29, 14, 9]
    assert {"Fantine", "Cosette", "Gavroche"} < at[1]
    assert at[3] == {"Champmathieu", "Brevet", "Chenildieu", "Cochepaille", "Bamatabois", "Judge"}
    assert at[10] - at[11] >= {"Enjolras", "Courfeyrac", "Gavroche"}  # who all had dealings with each other


def test_the_blizzard_cuts_airports_off(tmp_path):
    copy = Copy.make("reachable", tmp_path / "once")
    copy.run()
    log = copy.outputs()["reachable"]
    pairs = [len(accumulate(log, dt.date(2013, 2, day))) for day in range(7, 11)]
    assert pairs == [5400, 2343, 1206, 4770]


def test_circles_come_together_and_fall_apart(tmp_path):
    copy = Copy.make("components", tmp_path / "once")
    copy.run(400)
    log = copy.outputs()["component"]

    def circles(day):
        women = [(node, label) for node, label in accumulate(log, day) if not node.startswith("E") or " " in node]
        labels = [label for _, label in women]
        return sorted(map(labels.count, set(labels)))

    assert {day: circles(day) for day in (54, 56, 74, 98, 162, 199, 259, 329, 385)} == {
        54: [4],
        56: [4, 8],
        74: [14],
        98: [18],
        162: [12],
        199: [3, 5],
        259: [15],
        329: [3],
        385: [],
    }

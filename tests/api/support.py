"""Random dataflows through the library, in random steps, held against the reference at every closed time."""

from __future__ import annotations

import itertools
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st

from ddcli.api import passes
from ddcli.engine import process
from ddcli.engine.times import Frontier, Time
from tests.reference.model import Model, accumulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddcli.api import Collection, Dataflow

COLUMNS = {"k": "int64", "v": "int64"}
SIDE = 4
"""Coordinates of times are below this."""

# Each takes two collections with the columns k and v and gives one.
OPERATORS = {
    "filter": lambda one, other: one.filter("k >= v"),
    "sample": lambda one, other: one.sample(["v"], percent=50),
    "map": lambda one, other: one.map(k="v", v="k"),
    "flat_map": lambda one, other: one.flat_map(v="generate_series(0, v)"),
    "explode": lambda one, other: one.explode("v - 1"),
    "negate": lambda one, other: one.negate(),
    "concat": lambda one, other: one.concat(other),
    "distinct": lambda one, other: one.distinct(),
    "threshold": lambda one, other: one.threshold("count - 1"),
    "count": lambda one, other: one.project("k").count(name="v"),
    "count by": lambda one, other: one.count(by=["k"], name="v"),
    "sum": lambda one, other: one.reduce(["k"], v="sum(v)").map(k="k", v="v % 3"),
    "min": lambda one, other: one.reduce(["k"], v="min(v)"),
    "max": lambda one, other: one.reduce(["k"], v="max(v)"),
    "count distinct": lambda one, other: one.reduce(["k"], v="count(distinct v)"),
    "all": lambda one, other: one.reduce([], k="max(v)", v="count(*)").filter("v < 100").map(k="k % 3", v="v % 3"),
    "top_k": lambda one, other: one.top_k(2, order_by=["v desc"], by=["k"]),
    "window": lambda one, other: one.window({"n": "lag(v, 1, 3)"}, by=["k"], order_by=["v"]).map(
        k="k", v="(v + n) % 3"
    ),
    "join": lambda one, other: one.join(other, on=["k"]).map(k="k", v="right.v"),
    "asof_join": lambda one, other: one.asof_join(other, "v", on=["k"], how="left").map(
        k="k", v="coalesce(right.v, 0)"
    ),
    "asof_join forward": lambda one, other: one.asof_join(other, {"k": "v"}, direction="forward", strict=True).map(
        k="right.k", v="v"
    ),
    "join on v": lambda one, other: one.join(other, on={"v": "k"}).map(k="k", v="right.v"),
    "left join": lambda one, other: one.join(other, on=["k"], how="left").map(k="k", v="coalesce(right.v, 0)"),
    "arranged": lambda one, other: (
        one.arrange_by_key("k").join(other.arrange_by_key("k"), name="o").map(k="k", v="o.v")
    ),
    "filtered": lambda one, other: (
        one.arrange_by_key("k")
        .filter("v > 0")
        .join(other.arrange_by_key("k").filter("v < 2"), name="o")
        .map(k="k", v="o.v")
    ),
    "left filtered": lambda one, other: one.join(
        other.arrange_by_key("k").filter("v > 0"), on=["k"], how="left", name="o"
    ).map(k="k", v="coalesce(o.v, 3)"),
    "antijoin filtered": lambda one, other: (
        one.arrange_by_key("k").filter("v < 2").antijoin(other.arrange_by_key("k").filter("v > 0"), on=["k"])
    ),
    "semijoin": lambda one, other: one.semijoin(other, on=["k"]),
    "antijoin": lambda one, other: one.antijoin(other, on=["k"]),
}
INPUTS = ("one", "other")


@dataclass
class Plan:
    """A random dataflow: operators that each read two of the collections before, and the inputs' updates and frontiers."""

    operators: list[tuple[str, int, int]]
    updates: dict[str, list[tuple[tuple[int, int], Time, int]]]
    frontiers: dict[str, list[Frontier]]
    nt: int

    def build(self, dataflow: Dataflow) -> list[Collection]:
        """Make the inputs and the collections over them."""
        collections: list[Collection] = [dataflow.input(name, COLUMNS) for name in INPUTS]
        for name, one, other in self.operators:
            collections.append(OPERATORS[name](collections[one], collections[other]))
        return collections


def times(nt: int) -> list[Time]:
    """Return all times of the domain."""
    return list(itertools.product(range(SIDE), repeat=nt))


@st.composite
def updates(draw, nt: int, most: int = 8):
    """Give updates of records (k, v)."""
    record = st.tuples(st.integers(0, 2), st.integers(0, 2))
    time = st.tuples(*[st.integers(0, SIDE - 1)] * nt)
    return draw(st.lists(st.tuples(record, time, st.sampled_from([1, 1, -1, 2])), max_size=most))


@st.composite
def frontiers(draw, nt: int, steps: int, *, boxes: bool = False) -> list[Frontier]:
    """Give frontiers that each are at or after the one before; `boxes` close the times before a corner in all coordinates."""
    found, corner = [Frontier([(0,) * nt])], (0,) * nt
    for _ in range(steps):
        times = draw(st.lists(st.tuples(*[st.integers(0, SIDE)] * nt), min_size=1, max_size=1 if boxes else 3))
        if boxes:
            corner = tuple(map(max, corner, times[0]))
            times = [tuple(x * (at == which) for at, x in enumerate(corner)) for which in range(nt)]
        found.append(found[-1].join(Frontier(times)))
    return found[1:]


@st.composite
def plans(draw, nt: int, most: int = 5, *, boxes: bool = False) -> Plan:
    """Give a dataflow of a few operators."""
    operators = []
    for at in range(draw(st.integers(1, most))):
        reads = st.integers(0, at + 1)
        operators.append((draw(st.sampled_from(list(OPERATORS))), draw(reads), draw(reads)))
    steps = draw(st.integers(1, 4))
    return Plan(
        operators,
        {name: draw(updates(nt)) for name in INPUTS},
        {name: draw(frontiers(nt, steps, boxes=boxes)) for name in INPUTS},
        nt,
    )


def plain(time: Time) -> int | Time:
    """Return a time as a program says it."""
    return time[0] if len(time) == 1 else time


def engine(time: int | Time) -> Time:
    """Return a time as a tuple."""
    return (time,) if isinstance(time, int) else time


def run(plan: Plan, dataflow: Dataflow, reads: list[int]) -> list[dict]:
    """Run a plan; return, for each of the collections that are read, {(record, time): diff}, all checked on the way."""
    collections = plan.build(dataflow)
    outputs = [collections[at].output() for at in reads]
    logs: list[dict] = [defaultdict(int) for _ in reads]
    sessions = dict(zip(INPUTS, collections, strict=False))
    left = {name: list(plan.updates[name]) for name in INPUTS}
    for step in range(len(plan.frontiers[INPUTS[0]]) + 1):
        for name, session in sessions.items():
            frontier = plan.frontiers[name][step] if step < len(plan.frontiers[name]) else Frontier()
            late = [each for each in left[name] if not frontier.less_equal(each[1])]
            # Of those that could come later some come now.
            early = [each for at, each in enumerate(left[name]) if each not in late and (at + step) % 3 == 0]
            for record, time, diff in [*late, *early]:
                session.update_at(record, plain(time), diff)
                left[name].remove((record, time, diff))
            session.advance_to(frontier)
        lower = dataflow.frontier
        dataflow.step()
        for log, output in zip(logs, outputs, strict=True):
            for record, time, diff in output.updates():
                assert lower.less_equal(engine(time)), f"{record} at {time} was closed before: {lower}"
                assert not dataflow.frontier.less_equal(engine(time)), (
                    f"{record} at {time} is open: {dataflow.frontier}"
                )
                assert diff
                log[record, engine(time)] += diff
        for log, at in zip(logs, reads, strict=True):
            check(plan, collections[at], log, dataflow.frontier)
    return logs


def check(plan: Plan, collection: Collection, log: dict, closed: Frontier) -> None:
    """Compare what was emitted with the meaning of the collection, at every time that is closed."""
    found = [(record, time, diff) for (record, time), diff in log.items()]
    for time in times(plan.nt):
        if not closed.less_equal(time):
            given = {name: accumulate(plan.updates[name], time) for name in INPUTS}
            wanted = Model(given, time).output(collection.relation.node)
            got = accumulate(found, time)
            assert got == wanted, f"at {time}, closed to {closed}"


@contextmanager
def sharing(data: st.DataObject) -> Iterator[None]:
    """Have several workers share a step of more than some updates, however few; of fewer, one takes all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "FEW", 0)
        patch.setattr(passes, "FEW", data.draw(st.sampled_from([0, 2, 3, 5, passes.FEW]), label="updates of one pass"))
        yield


def kept_by(dataflow: Dataflow) -> int:
    """Return how many traces a dataflow of one worker keeps."""
    return len(list(dataflow.assemble().scope.traces()))

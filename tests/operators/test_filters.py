"""Filters over columns of every type: compared lane by lane, evaluated by polars, and by the reference, the same rows are kept; in loops, too.

A record that stays from the first time at which its input holds it, against the input's multiplicity at every time.
"""

from __future__ import annotations

import datetime as dt
import itertools
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.circuit import linear
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.linear import Consolidate, Once, Select
from ddcli.engine.pool import Pool
from ddcli.engine.records import decode_records
from ddcli.engine.rounds import Interval
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import Trace
from ddcli.errors import InputError, SpecError
from ddcli.expressions.parse import parse_scalar
from ddcli.expressions.tree import Column, FilterStep, MapStep
from ddcli.expressions.types import ColumnScope
from ddcli.plan import physical
from tests.draws import chance, many
from tests.expressions.support import schema, text
from tests.judge.case import Case
from tests.judge.columns import VALUES
from tests.judge.logs import cuts, updates
from tests.judge.memory import judge_in_memory
from tests.operators.test_linear import INTERVAL
from tests.reference.expressions import evaluate
from tests.reference.values import canonical
from tests.secret import SECRET
from tests.yaml_text import write_yaml

if TYPE_CHECKING:
    from ddcli.expressions.types import Schema


ORDERS = ("<", "<=", "=", "<>", ">=", ">")
POOLS = VALUES | {
    "int8": [0, 1, -128, 127],
    "uint8": [0, 1, 255],
    "uint32": [0, 1, 2**32 - 1],
    "int64": [0, 1, 3, -1, 2**63 - 1, -(2**63)],
    "time": [dt.time(0), dt.time(23, 59, 59, 999_999)],
    "binary": [b"", b"a", "é".encode()],
    "datetime[ms]": [dt.datetime(2024, 2, 28, 1), dt.datetime(1969, 12, 31, 23, 59, 59)],  # noqa: DTZ001 - without zone
}
"""A few values of each type, so that many are equal."""
WHOLE = [kind for kind in POOLS if "int" in kind.partition("[")[0]]
NUMBERS = ("0", "1", "3", "-1", "127", "-128", "255", "9223372036854775807", "-9223372036854775808", "1.5")
OTHERS = ("'a'", "''", "true", "date '1969-12-31'", "date '2024-02-28'", "1.50", "timestamp '2024-02-28 01:00:00'")


def condition(draw: Random, scope: Schema) -> FilterStep:
    """Return comparisons of some columns, of each with another or a literal, as far as their types can be compared."""
    for _ in range(20):
        parts = []
        for _ in range(draw.choice([1, 1, 2, 3])):
            one = draw.choice([*scope])
            others = [name for name in scope if name != one] or [one]
            sides = [one, draw.choice([*others, *others, draw.choice(NUMBERS), draw.choice(OTHERS)])]
            draw.shuffle(sides)
            parts.append(f"({sides[0]} {draw.choice(ORDERS)} {sides[1]})")
        with suppress(SpecError):
            return parsed(draw.choice([" and ", " and ", " or "]).join(parts), scope)
    return parsed("1 < 2", scope)  # some types can't be compared


def parsed(asked: str, scope: Schema) -> FilterStep:
    return FilterStep(parse_scalar(text(asked), ColumnScope(scope)))


def chain(draw: Random) -> tuple[pl.DataFrame, Schema, list[Any]]:
    """Return a frame, its types, and filters over it, between which columns may change their names."""
    few = draw.choice([[*POOLS], WHOLE])
    first = draw.choice(few)
    kinds = [first, *(draw.choice([first, first, *few]) for _ in range(draw.randrange(3)))]
    nullable = [not draw.randrange(4) for _ in kinds]
    given = schema({f"c{at}": kind + "?" * null for at, (kind, null) in enumerate(zip(kinds, nullable, strict=True))})
    frame = pl.DataFrame(
        [
            pl.Series(name, [draw.choice(POOLS[kind] + [None] * null) for _ in range(9)], dtype=given[name].to_polars())
            for name, kind, null in zip(given, kinds, nullable, strict=True)
        ]
    )
    scope, steps = given, list[Any]()
    for at in range(draw.choice([1, 1, 2])):
        steps.append(condition(draw, scope))
        if not draw.randrange(3):
            turned = draw.sample([*scope], len(scope))
            steps.append(MapStep(tuple((f"d{at}{name}", Column(name, scope[name])) for name in turned)))
            scope = {f"d{at}{name}": scope[name] for name in turned}
    return frame, given, steps


def kept(node: physical.Linear, delta: Delta, pool: Pool) -> list | None:
    """Return the updates that a filter keeps; None where it fails on some."""
    try:
        return linear.linear_operator(node, pool, 1).step([delta], INTERVAL).updates.tolist()
    except InputError:
        return None


@pytest.mark.parametrize("seed", range(many(6)))
def test_the_same_rows_are_kept_however_they_are_compared(seed):
    """A hundred chains each, where all are tried."""
    draw = chance("filters", seed)
    chains = [chain(draw) for _ in range(100)]
    for each in chains[: many(100)]:
        judge(*each)
    # Of how many the operator compares lanes is known without judging them.
    compared = [type(linear.linear_operator(node_of(given, steps), Pool(SECRET), 1)) for _, given, steps in chains]
    assert compared.count(Select) > len(compared) // 10


def node_of(given, steps):
    """Return the node of a chain."""
    there = given
    for step in steps:
        if isinstance(step, MapStep):
            there = {name: column.type for name, column in step.columns}
    return physical.Linear((physical.Scan((), given, "a", 1),), there, tuple(steps))


def judge(frame, given, steps):
    """Judge a chain: what its operator returns is what comparing values returns, and what the reference makes of each record."""
    pool, layout, node = Pool(SECRET), Layout(given), node_of(given, steps)
    tail = np.stack([np.zeros(frame.height, np.int64), np.arange(1, frame.height + 1)], axis=1)
    delta = Delta(np.concatenate([encode(frame, layout, pool), tail], axis=1))
    found = kept(node, delta, pool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "_comparisons", lambda *_: None)
        assert found == kept(node, delta, pool)
    if found is None:  # a decimal has no place for a number
        return
    meant = []
    for number, row in enumerate(frame.rows(), start=1):
        record = meaning(dict(zip(frame.columns, row, strict=True)), steps)
        if record is not None:
            meant.append((number, canonical([*record.values()])))
    records = decode_records(
        np.array(found, np.int64).reshape(len(found), delta.updates.shape[1]), Layout(node.schema), pool
    )
    assert [(row[-1], canonical(each)) for row, each in zip(found, records, strict=True)] == meant, [
        str(step) for step in steps
    ]


def meaning(record, steps):
    """Return what the reference makes of a record; None where a filter drops it."""
    for step in steps:
        if isinstance(step, MapStep):
            record = {name: evaluate(column, record) for name, column in step.columns}
        elif evaluate(step.condition, record) is not True:
            return None
    return record


@pytest.mark.parametrize(
    ("asked", "by_lanes"),
    [
        *((f"i {order} 3", True) for order in ORDERS),
        *((f"3 {order} i", True) for order in ORDERS),
        ("i = h and i < 1 and d >= e", True),
        ("s <> t", True),
        ("s < t", False),
        ("u < 3", False),
        ("n = 3", False),
        ("i < 1.5", False),
        ("i = 3 or h = 1", False),
    ],
)
def test_what_is_compared_by_lanes(asked, by_lanes):
    kinds = {
        "i": "int64",
        "h": "int16",
        "u": "uint64",
        "n": "int64?",
        "d": "date",
        "e": "date",
        "s": "string",
        "t": "string",
    }
    given = schema(kinds)
    step = parsed(asked, given)
    node = physical.Linear((physical.Scan((), given, "a", 1),), given, (step,))
    assert isinstance(linear.linear_operator(node, Pool(SECRET), 1), Select) == by_lanes


@st.composite
def filtered_loops(draw):
    """Give a loop that walks along numbers, in whose body a condition is asked of columns of any type."""
    nt = draw(st.sampled_from([1, 1, 2]))
    declared = {"k": "int64", "v": draw(st.sampled_from([*VALUES])), "w": "int16"}
    declared["x"] = draw(st.sampled_from([declared["v"], "int32", "int64?"]))
    asked = condition(Random(draw(st.integers(0, 1 << 32))), schema(declared)).condition.span.source.strip()
    log = draw(updates(declared, nt, valid=True, looping=False))
    body = [
        {"map": {"k": "(k + 1) % 5", "v": "v", "w": "w", "x": "x"}},
        {"filter": asked},
        {"concat": "p"},
        "distinct",
    ]
    loop = {"variables": {"r": "p"}, "body": {"r": {"from": "r", "apply": body}}, "result": "r"}
    time = {} if nt == 1 else {"time": ["t0", "t1"]}
    tree = {
        "dd": 1,
        "name": "filtered",
        "inputs": {"p": {"path": "in/p/", "columns": declared} | time},
        "collections": {"reached": {"iterate": loop}},
        "outputs": {"reached": "out/reached/"},
    }
    return Case(write_yaml(tree, allow_unicode=True), draw(cuts({"p": log}, nt)))


@settings(max_examples=many(40))
@given(filtered_loops(), st.integers(1, 3), st.booleans())
def test_filters_in_loops(case, shards, finely):
    judge_in_memory(case, shards, finely=finely)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "_comparisons", lambda *_: None)
        judge_in_memory(case, shards, finely=finely)


UPDATES = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-2, -1, 1, 2])), max_size=10)


@given(UPDATES, st.sets(st.integers(1, 5), max_size=3), st.booleans(), st.integers(1, 5))
def test_a_record_stays_from_the_first_time_at_which_there_is_one(updates, cuts, ordered, most):
    """Cut into any steps, each fed as it is and summed up in parts of `most` rows, in order or not; the input is never negative."""
    counts = list(itertools.accumulate(sum(diff for at, diff in updates if at == time) for time in range(6)))
    updates = [*updates, *((time, -count) for time, count in enumerate(counts) if count < 0)]
    counts = list(itertools.accumulate(sum(diff for at, diff in updates if at == time) for time in range(6)))
    updates = sorted(updates) if ordered else updates
    operators = [Once(Trace(1, 0, 1, since=Frontier([(0,)]))) for _ in range(2)]
    found: list[list[list[int]]] = [[], []]
    for lower, upper in itertools.pairwise(sorted({0, *cuts, 6})):
        rows = np.array([(7, at, diff) for at, diff in updates if lower <= at < upper], np.int64).reshape(-1, 3)
        interval = Interval(Frontier([(lower,)]), Frontier([(upper,)]))
        parts = [Delta(rows[at : at + most]) for at in range(0, len(rows), most)]
        summed = [Consolidate(sorted_ones=True).step([part], interval).updates for part in parts]
        for each, operator, given_rows in zip(
            found, operators, (rows, np.concatenate([rows[:0], *summed])), strict=True
        ):
            each += operator.step([Delta(given_rows)], interval).updates.tolist()
            operator.close(interval)
            operator.seal(interval)
    first = next((time for time, count in enumerate(counts) if count > 0), None)
    assert found == [[] if first is None else [[7, first, 1]]] * 2


def test_parts_in_order_are_a_row_for_each_time():
    interval = Interval(Frontier([(0,)]), Frontier([(3,)]))
    rows = [[7, 0, 1], [7, 0, 1], [7, 1, 2], [7, 2, 1], [7, 2, -1]]
    assert Consolidate(sorted_ones=True).step([Delta(np.array(rows))], interval).updates.tolist() == [
        [7, 0, 2],
        [7, 1, 2],
    ]

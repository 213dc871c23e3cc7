"""Python functions beside expressions: they give the same, and all record-by-record operators are instances of one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.api import Dataflow, followed_by
from ddcli.errors import InputError, UsageError
from tests.api.support import COLUMNS, SIDE, updates
from tests.draws import many


def run(build, given, step=1, nt=1):
    """Return the updates of several collections over one input, closed `step` times at a time; `build` gives them."""
    dataflow = Dataflow(time=nt)
    numbers = dataflow.input("numbers", COLUMNS)
    outputs = [collection.output() for collection in build(numbers)]
    found = [[] for _ in outputs]
    for record, time, diff in given:
        numbers.update_at(record, time[0] if nt == 1 else time, diff)
    for now in range(step, 2 * SIDE + step, step):
        numbers.advance_to(now if nt == 1 else (now,) * nt)
        dataflow.step()
        for log, output in zip(found, outputs, strict=True):
            log.append(sorted(output.updates()))
    return found


INSTANCES = {
    "map": (lambda c: c.map(k="v + 1", v="k"), lambda r: [((r["v"] + 1, r["k"]), None, 1)]),
    "filter": (lambda c: c.filter("k >= v"), lambda r: [(r, None, 1)] if r[0] >= r[1] else []),
    "flat_map": (
        lambda c: c.flat_map(v="generate_series(0, v)"),
        lambda r: [((r["k"], n), None, 1) for n in range(r["v"] + 1)],
    ),
    "explode": (lambda c: c.explode("v - 1"), lambda r: [(r, None, r["v"] - 1)]),
    "negate": (lambda c: c.negate(), lambda r: [({**r}, None, -1)]),
    "temporal_filter": (
        lambda c: c.temporal_filter(from_="k", until="k + v"),
        lambda r: [(r, r["k"], 1), (r, max(r["k"], r["k"] + r["v"]), -1)],
    ),
    "temporal_filter from": (lambda c: c.temporal_filter(from_="v + 1"), lambda r: [(r, r["v"] + 1, 1)]),
    "temporal_filter until": (lambda c: c.temporal_filter(until="k"), lambda r: [(r, None, 1), (r, r["k"], -1)]),
}


@pytest.mark.parametrize("name", INSTANCES)
@settings(max_examples=many(25))
@given(given=updates(1), step=st.integers(1, SIDE))
def test_an_instance_of_join_function(name, given, step):
    operator, function = INSTANCES[name]
    one, other = run(lambda c: [operator(c), c.join_function(function, COLUMNS)], given, step)
    assert one == other


@settings(max_examples=many(25))
@given(given=updates(1), step=st.integers(1, SIDE))
def test_followed_by_is_one_after_the_other(given, step):
    def later(r):
        k, v = r
        return [((k, v), k + 1, 1), ((v, k), v + 2, -2)]

    def twice(r):
        return [(r, None, 2), ((r[1], 0), 3, 1)]

    one, other = run(
        lambda c: [
            c.join_function(later, COLUMNS).join_function(twice, COLUMNS),
            c.join_function(followed_by(later, twice), COLUMNS),
        ],
        given,
        step,
    )
    assert one == other


def test_followed_by_joins_times_of_products():
    def first(r):
        return [(r, (2, 0), 1)]

    def second(r):
        return [(r, (0, 3), 3), (r, None, 1)]

    given = [((1, 1), (0, 1), 1)]
    (found,) = run(lambda c: [c.join_function(followed_by(first, second), COLUMNS)], given, nt=2)
    assert [update for log in found for update in log] == [((1, 1), (2, 1), 1), ((1, 1), (2, 3), 3)]


FUNCTIONS = {
    "map to tuples": lambda c: (c.map(lambda r: (r[1], r["k"]), columns=COLUMNS), c.map(k="v", v="k")),
    "map to dictionaries": lambda c: (c.map(lambda r: {**r, "k": 7}, columns=COLUMNS), c.extend(k="7")),
    "map by unpacking": lambda c: (c.map(lambda r: sum_of(*r), columns={"n": "int64"}), c.map(n="k + v")),
    "filter": lambda c: (c.filter(lambda r: r["k"] > 0), c.filter("k > 0")),
    "flat_map": lambda c: (
        c.flat_map(lambda r: [(r[0], n) for n in range(r[1])], columns=COLUMNS),
        c.flat_map(v="generate_series(0, v - 1)"),
    ),
    "reduce": lambda c: (
        c.reduce(["k"], lambda key, rows: [((sum(v * n for (v,), n in rows),), 1)], columns={"s": "int64"}),
        c.reduce(["k"], s="sum(v)", x="count(distinct v)").project("k", "s"),
    ),
    "reduce of chosen values": lambda c: (
        c.reduce({"odd": "v % 2"}, lambda key, rows: [((len(rows),), 1)], columns={"n": "int64"}, values=["k"]),
        c.reduce({"odd": "v % 2"}, n="count(distinct k)"),
    ),
    "map in batches": lambda c: (
        c.map(lambda frame: frame.select("row", n=frame["k"] * 2), columns={"n": "int64"}, batch=True),
        c.map(n="k * 2"),
    ),
}


def sum_of(one, other):
    return (one + other,)


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=many(15))
@given(given=updates(1), step=st.integers(1, SIDE))
def test_a_function_gives_what_an_expression_does(name, given, step):
    one, other = run(FUNCTIONS[name], given, step)
    assert one == other


def test_functions_keep_qualified_names_of_what_they_filter():
    dataflow = Dataflow()
    numbers = dataflow.input("numbers", COLUMNS)
    joined = numbers.join(numbers, on={"v": "k"}, name="up").filter(lambda r: r["up.v"] == 3)
    output = joined.map(k="k", v="up.v").output()
    numbers.insert((1, 2))
    numbers.insert((2, 3))
    numbers.advance_to(1)
    dataflow.step()
    assert output.updates() == [((1, 3), 0, 1)]


def test_functions_that_look_alike_are_told_apart():
    """Equal subgraphs are one; functions are equal only as one object, in one role."""
    dataflow = Dataflow()
    numbers = dataflow.input("numbers", {"n": "int64"})

    def adding(by):
        return lambda r: (r[0] + by,)

    same = adding(5)
    columns = {"n": "int64"}
    outputs = [numbers.map(adding(by), columns=columns).output() for by in range(3)]
    outputs += [numbers.map(same, columns=columns).output(), numbers.map(same, columns=columns).output()]
    numbers.insert((1,))
    numbers.advance_to(1)
    dataflow.step()
    assert [output.updates() for output in outputs] == [[((n,), 0, 1)] for n in (1, 2, 3, 6, 6)]


WRONG = {
    "a number": (lambda r: 5, "returned 5, expected a tuple"),
    "too short": (lambda r: (1,), "expected a tuple"),
    "another type": (lambda r: ("a", 1), "returned 'a' for `k`, expected int64"),
    "null": (lambda r: (None, 1), "returned null for `k`"),
    "another key": (lambda r: {"k": 1}, "returned the keys"),
    "an unknown column": (lambda r: (r["x"], 1), "KeyError: 'x'"),
    "it fails": (lambda r: (1 // 0, 1), "ZeroDivisionError"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_function_gives_is_checked(name):
    function, message = WRONG[name]
    with pytest.raises(InputError, match=message) as caught:
        run(lambda c: [c.map(function, columns=COLUMNS)], [((1, 2), (0,), 1)])
    assert "for the row {'k': 1, 'v': 2}" in caught.value.problem


def test_what_is_no_function_is_refused_at_once():
    numbers = Dataflow().input("numbers", COLUMNS)
    for refused, message in [
        (lambda: numbers.map(lambda r: r), "takes the columns that it returns"),
        (lambda: numbers.map(7, columns=COLUMNS), "not 7"),
        (lambda: numbers.map(columns=COLUMNS), "with a function only"),
        (lambda: numbers.map(lambda r: r, columns={"k": "int65"}), "unknown type 'int65'"),
        (numbers.map, "takes expressions by column, or a function"),
        (lambda: numbers.flat_map(k="unnest([1])", v="unnest([1])"), "one expression"),
        (numbers.temporal_filter, "at least one"),
    ]:
        with pytest.raises(UsageError, match=message):
            refused()


def test_columns_of_any_name_are_said_in_a_mapping():
    numbers = Dataflow().input("numbers", COLUMNS)
    assert list(numbers.map({"columns": "k", "batch": "v"}).schema) == ["columns", "batch"]
    assert list(numbers.reduce(["k"], {"values": "sum(v)"}).schema) == ["k", "values"]
    assert list(numbers.flat_map({"batch": "unnest([k, v])"}).schema) == ["k", "v", "batch"]


def test_inspect_shows_updates_that_nobody_reads(capsys):
    dataflow = Dataflow(workers=2)
    numbers = dataflow.input("numbers", COLUMNS)
    seen = []
    numbers.inspect(seen.append).filter("k > 1").inspect("large")
    numbers.inspect("many").project("k").output()
    for record in [(1, 2), (3, 4)]:
        numbers.insert(record)
    numbers.advance_to(2)
    dataflow.step()
    assert sorted(seen) == [((1, 2), 0, 1), ((3, 4), 0, 1)]
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "large: ((3, 4), 0, 1)",
        "many: ((1, 2), 0, 1)",
        "many: ((3, 4), 0, 1)",
    ]

"""Operators as methods: each gives what it does in a pipeline file, and says what is wrong where it is made."""

import hashlib
from fractions import Fraction

import pytest

from ddcli.api import Dataflow
from ddcli.api.collection import Collection
from ddcli.errors import SpecError, UsageError
from ddcli.plan.operators.table import OPERATORS


def test_operators_in_a_program():
    dataflow = Dataflow()
    given = dataflow.input("given", {"k": "string", "v": "int64", "unread": "string"})
    outputs = {
        "filter": given.filter("v > 1").project("k").output(),
        "extend": given.extend(w="v * 2").rename(k="key").project("key", "w").output(),
        "explode": given.explode("v").project("k").output(),
        "concat": given.project("k").concat(given.project("k").negate()).consolidate().output(),
        "semijoin": given.project("v").semijoin(given.filter("k = 'b'"), on=["v"]).output(),
        "reduce": given.reduce(by=["k"], total="sum(v)", most="max(v)").output(),
        "reduce all": given.reduce(by={}, n="count(*)").output(),
        "count": given.project("k").count(name="n").output(),
        "threshold": given.project("k").threshold("count * 10").output(),
        "top_k": given.project("k", "v").top_k(1, order_by=["v desc"], by=["k"]).output(),
        "window": given.project("k", "v")
        .window(by=["k"], order_by=["v desc"], n="row_number()", d="v - lag(v)")
        .output(),
        "asof_join": given.project("k", "v")
        .asof_join(given.project("v").filter("v <> 2"), {"v": "v"}, name="last")
        .project("k", "last.v")
        .output(),
        "left": given.project("k").join(given.filter("v > 2").project("k", "v"), on=["k"], how="left").output(),
    }
    for record in [("a", 1, "-"), ("a", 2, "-"), ("b", 3, "-")]:
        given.insert(record)
    given.advance_to(1)
    dataflow.step()
    assert {
        name: sorted((record, diff) for record, _, diff in output.updates()) for name, output in outputs.items()
    } == {
        "filter": [(("a",), 1), (("b",), 1)],
        "extend": [(("a", 2), 1), (("a", 4), 1), (("b", 6), 1)],
        "explode": [(("a",), 3), (("b",), 3)],
        "concat": [],
        "semijoin": [((3,), 1)],
        "reduce": [(("a", 3, 2), 1), (("b", 3, 3), 1)],
        "reduce all": [((3,), 1)],
        "count": [(("a", 2), 1), (("b", 1), 1)],
        "threshold": [(("a",), 20), (("b",), 10)],
        "top_k": [(("a", 2), 1), (("b", 3), 1)],
        "window": [(("a", 1, 2, -1), 1), (("a", 2, 1, None), 1), (("b", 3, 1, None), 1)],
        "asof_join": [(("a", 1), 2), (("b", 3), 1)],
        "left": [(("a", None), 2), (("b", 3), 1)],
    }


@pytest.mark.parametrize("percent", [0.00001, 0.1, 12.5, 50, 100])
def test_a_sample_keeps_the_values_whose_hash_is_below_its_share(percent):
    """Exactly: also of shares that Python writes with an exponent, and for a null beside a value; a smaller share is a part of a greater."""
    values = [(k, s) for k in range(300) for s in (None, "é")]
    dataflow = Dataflow()
    given = dataflow.input("given", {"k": "int64", "s": "string?"})
    outputs = [given.sample(["k", "s"], each).output() for each in (percent, min(percent * 2, 100))]
    for record in values:
        given.insert(record)
    given.advance_to(1)
    dataflow.step()
    kept, more = ({record for record, _, _ in output.updates()} for output in outputs)

    def number(k, s):
        text = f"{k},{s}" if s is not None else str(k)
        return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8], 16)

    assert kept == {record for record in values if number(*record) < Fraction(str(percent)) / 100 * 2**32}
    assert kept <= more


def test_what_is_wrong_is_told_where_it_is_made():
    dataflow = Dataflow()
    given = dataflow.input("given", {"k": "int64"})
    with pytest.raises(SpecError, match="no column is named `kk`"):
        given.filter("kk > 1")
    with pytest.raises(SpecError, match="there is no column 'kk'"):
        given.project("kk")
    with pytest.raises(UsageError, match="an input 'given' exists already"):
        dataflow.input("given", {"k": "int64"})
    with pytest.raises(UsageError, match="column 'x' has an unknown type 'int65'"):
        dataflow.input("other", {"x": "int65"})
    with pytest.raises(UsageError, match="`asof_join` compares one pair of columns, not 2"):
        given.asof_join(given, {"k": "k", "j": "k"})
    with pytest.raises(UsageError, match="the direction of `asof_join` is backward or forward, not 'nearest'"):
        given.asof_join(given, "k", direction="nearest")
    with pytest.raises(UsageError, match="`how` of `asof_join` is inner or left, not 'full'"):
        given.asof_join(given, "k", how="full")
    for by, percent in ((["k"], 0), (["k"], 100.5), (["k"], float("nan")), ([], 1)):
        with pytest.raises(UsageError, match="`sample` takes columns, and more than 0 and at most 100 percent"):
            given.sample(by, percent)
    with pytest.raises(UsageError, match="one worker"):
        Dataflow(workers=0)


def test_collections_of_another_dataflow_are_refused():
    one, other = Dataflow(), Dataflow()
    left, right = one.input("left", {"k": "int64"}), other.input("right", {"k": "int64"})
    with pytest.raises(UsageError, match="another dataflow"):
        left.concat(right)


@pytest.mark.parametrize(
    "query",
    [
        "select v, row_number() over (order by k, v) as n from r",
        "select v, sum(v) over (partition by k % 2 order by v) as n from r",
        "select v, lag(v) over (partition by k % 2 order by v) as n from r",
        "select v, ntile(2) over (partition by k % 2 order by v) as n from r",
        "select a.v, count(*) as n from r a join r b on a.v = b.k join r c on b.v = c.k group by a.v",
        "select k, v as n from r qualify row_number() over (partition by k order by v desc) = 1",
    ],
)
def test_the_last_time_that_there_is_is_a_time_as_any(query):
    """Rows before it stay rows before it."""
    steps = [[(1, 1), (3, 3)], [(2, 2), (5, 5), (1, 3)], [(0, 0), (4, 4), (3, 5)]]

    def updates_from(first):
        df = Dataflow()
        session = df.input("r", {"k": "int64", "v": "int64"})
        output, found = df.sql(query, r=session).output(), []
        for at, rows in enumerate(steps):
            session.advance_to(first + at)
            df.step()
            found += output.updates()
            for row in rows:
                session.insert(row)
        session.close()
        df.step()
        return [(row, time - first, diff) for row, time, diff in found + output.updates()]

    assert updates_from(2**63 - len(steps)) == updates_from(1)


def test_filters_move_as_in_a_pipeline_file():
    """Else the join would hold each pair of records of the two sides."""
    df = Dataflow()
    left, right = df.input("l", {"a": "int64"}), df.input("r", {"b": "int64"})
    output = df.sql("select a, b from (select a, b from l, r) where a = b and a > 1", l=left, r=right).output()
    for at in range(4):
        left.insert((at,))
        right.insert((at + 1,))
    left.advance_to(1)
    right.advance_to(1)
    df.step()
    assert sorted(output.updates()) == [((2, 2), 0, 1), ((3, 3), 0, 1)]
    (join,) = [node for node in df._graph().nodes if type(node).__name__ == "EquiJoin"]
    assert [side.key for side in join.inputs] == [("a",), ("b",)]


def test_every_operator_of_the_table_is_a_method():
    names = {"arrange": "arrange_by_key"}
    missing = [name for name in OPERATORS if not hasattr(Collection, names.get(name, name))]
    assert missing == [], "write the method in ddcli/api/collection.py, or its other name here"

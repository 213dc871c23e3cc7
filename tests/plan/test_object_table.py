"""Objects as tables of JSON: what is read is what was written, and nothing is made that isn't listed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.dataclass import dataclass
from ddcli.expressions.types import Type
from ddcli.job import kept_plan
from ddcli.job.kept_plan import WRONG

LISTED = kept_plan.ClassList((__name__, "ddcli.expressions.types"), ("Other",))


@dataclass(frozen=True)
class Pair:
    """Two things."""

    one: object
    other: object


@dataclass(frozen=True)
class Other:
    """What nobody listed."""

    one: object = None


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.dates(), st.times().map(lambda time: time.replace(fold=0)), st.datetimes().map(lambda time: time.replace(fold=0)),
    st.timedeltas(), st.decimals(allow_nan=False), st.builds(Type, st.sampled_from(["int64", "date"]), st.booleans()),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda parts: st.one_of(
        st.lists(parts), st.lists(parts).map(tuple), st.dictionaries(st.text(), parts), st.builds(Pair, parts, parts)
    ),
)


def through_json(value):
    """Return a value as it is read again."""
    return kept_plan.read(json.loads(json.dumps(kept_plan.write(value, LISTED))), LISTED)


def exactly(value):
    """Return a text that tells values apart which are equal, such as 1, 1.0 and True."""
    return repr(value)


@given(VALUES, VALUES)
def test_what_is_read_is_what_was_written(one, other):
    given_ = Pair(one, (other, one))
    found = through_json(given_)
    assert found == given_
    assert exactly(found) == exactly(given_)


def test_what_is_one_stays_one_and_what_may_change_stays_two():
    shared, schema = Pair(1, 2), {"a": 1}
    found = through_json(Pair((shared, shared, Pair(1, 2)), [schema, schema, {"a": 1}]))
    assert found.one[0] is found.one[1]
    assert found.other[0] is found.other[1]
    assert found.other[0] is not found.other[2]


def test_a_long_text_is_written_once():
    """A pipeline file in one line has this line at each of its places."""
    line, short = "x" * 50_000, "y" * 20
    found = through_json(given_ := [Pair(at, f"{line}"[:50_000]) for at in range(1000)] + [short, line])
    assert found == given_
    assert len(json.dumps(kept_plan.write(given_, LISTED))) < 2 * len(line)


def test_no_depth_is_too_great():
    deep = Pair(0, 0)
    for at in range(50_000):
        deep = Pair(at, deep)
    found, left = through_json(deep), 50_000
    while left:
        found, left = found.other, left - 1
    assert (found.one, found.other) == (0, 0)


class Text(str):
    """A text with more to it, as a function's name is."""

    __slots__ = ()


@pytest.mark.parametrize("value", [Other(), Text("os:system"), print, object(), 1j, b"bytes", Pair, ValueError()])
def test_what_is_not_listed_is_not_written(value):
    with pytest.raises(kept_plan.UnlistedClass):
        kept_plan.write(Pair(1, [value]), LISTED)


HOSTILE = [
    [],
    [[]],
    {},
    None,
    [["os.system", "id"]],
    [[f"{__name__}:Other", 1]],
    [[f"{__name__}:pytest", 1]],
    [[f"{__name__}:LISTED", 1]],
    [[f"{__name__}:Text", "x"]],
    [["ddcli.expressions:Type", "int64"]],
    [["os:Pair", 1, 2]],
    [["ddcli.expressions.types:replace", 1]],
    [["builtins.eval", "1"]],
    [["model.Function", "a", "b"]],
    [[f"{__name__}:Pair", 1]],
    [[f"{__name__}:Pair", 1, 2, 3]],
    [[f"{__name__}:Pair", 1, [0]]],
    [[f"{__name__}:Pair", 1, [-1]]],
    [[f"{__name__}:Pair", 1, [5]]],
    [["tuple", [0, 1]]],
    [["tuple", {}], ["dict", [0]]],
    [["date", "never"]],
    [["datetime", 5]],
    [["interval", "x"]],
    [["decimal", "x"]],
    [["path", 7]],
    [[["tuple"], 1]],
    ["tuple"],
]


@pytest.mark.parametrize("table", HOSTILE, ids=str)
def test_a_table_that_says_something_else_is_an_error_that_is_expected(table):
    try:
        found = kept_plan.read(table, LISTED)
    except WRONG:
        return
    assert isinstance(found, tuple), "scalars in a tuple are harmless"

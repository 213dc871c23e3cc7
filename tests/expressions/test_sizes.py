"""Expressions of any length: they work, in a time that grows as they do, or a limit is named with its place."""

from __future__ import annotations

import time
from itertools import chain

import pytest

from ddcli.errors import InputError, SpecError
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import MAX_DEPTH
from tests.expressions.support import reduction, scalar, value, values

COLUMNS = {"k": "int64", "b": "bool?", "s": "string?", "x": "float64?"}
ROW: dict[str, list[object]] = {"k": [3], "b": [None], "s": ["x"], "x": [1.25]}


def run(written: str) -> object:
    """Return an expression's value in the one row."""
    (found,) = values(written, COLUMNS, **ROW)
    return found


@pytest.mark.in_turn
@pytest.mark.parametrize("number", [300, pytest.param(1_000, marks=pytest.mark.slow)])
def test_conditions_in_a_row(number: int) -> None:
    """Any number."""
    for written, wanted in (
        (" or ".join(f"k = {n + 4}" for n in range(number)), False),
        (" or ".join(f"k = {n + 4}" for n in reversed(range(-1, number))), True),
        (" and ".join(f"k <> {n + 4}" for n in range(number)), True),
        (" or ".join(["b"] * number), None),
        (" or ".join(f"(k = {n} and x > {n})" for n in range(number // 2)), False),
    ):
        assert run(written) is wanted


def lowered(written: str) -> int:
    """Return the length of all that polars computes for an expression."""
    low = Lowering()
    values = low.values([scalar(written, {"k": "int64", "t": "datetime[us]"})])
    return sum(len(str(each)) for each in [*values, *chain(*low.parts), *(check.failing for check in low.checks)])


@pytest.mark.parametrize(
    "nested",
    [
        "{} + to_hours(k % 5)",
        "add_months({}, k % 5)",
        "{} + k * interval '1' day",
        "date_trunc('month', add_months({}, k))",
        "time_bucket(interval '1' hour, {} + k * interval '1' hour)",
    ],
)
def test_nested_times_are_computed_once_each(nested: str) -> None:
    """What checks a time names it several times: nested, its parts would multiply."""
    two = nested.format(nested.format("t"))
    four = nested.format(nested.format(two))
    assert lowered(four) < 4 * lowered(two)


def test_nested_remainders_are_computed_once_each() -> None:
    assert lowered("k % 9 // 2 % 7 // 3 % 5 // 2") < 4 * lowered("k % 9 // 2 % 7")


def test_conditions_that_are_not_reached_do_not_fail() -> None:
    """What comes first decides: the same in a balanced tree as in a row."""
    zeros = [f"1 / (k - 3) = {n}" for n in range(400)]
    assert run(" or ".join(["k = 3", *zeros])) is True
    assert run(" and ".join(["k <> 3", *zeros])) is False
    assert run(" or ".join([*[f"k = {n + 4}" for n in range(300)], "k = 3", *zeros])) is True
    with pytest.raises(InputError, match="division by zero"):
        run(" or ".join([*zeros, "k = 3"]))


@pytest.mark.in_turn
@pytest.mark.parametrize("number", [15, 16, 17, 33, pytest.param(300, marks=pytest.mark.slow)])
def test_many_branches(number: int) -> None:
    """Any number, in a time that grows as they do: the first that holds counts."""
    for hit in (0, number // 2, number - 1):
        whens = " ".join(f"when k = {3 if n in (hit, number - 1) else n + 10} then {n}" for n in range(number))
        assert run(f"case {whens} end") == hit
        assert run(f"case {whens.replace('k = 3 ', 'b ')} else k end") == 3
        assert run(f"case k {whens.replace('k = ', '')} else -1 end + 1") == hit + 1
        missing = [f"nullif({n}, k + {n - 3})" if n == hit else "nullif(k, 3)" for n in range(number)]
        assert run(f"coalesce({', '.join(missing)}, -1)") == -1
        missing[hit] = str(hit)
        assert run(f"coalesce({', '.join(missing)}, -1)") == hit


@pytest.mark.in_turn
@pytest.mark.parametrize("number", [16, 17, pytest.param(100, marks=pytest.mark.slow)])
def test_branches_that_are_not_taken_do_not_fail(number: int) -> None:
    """Neither their conditions nor their values, wherever the one is that is taken; one that is reached does."""
    whens = [f"when 1 / (k - 3) = {n} then 1 / (k - 3)" for n in range(number)]
    passed = [f"when k = {n + 10} then 1 / (k - 3)" for n in range(number)]
    assert run(f"case {' '.join([*passed, 'when k = 3 then 7', *whens])} end") == 7
    assert run(f"case {' '.join(passed)} else 8 end") == 8
    fails = ", ".join(["1 / (k - 3)"] * number)
    assert run(f"coalesce({', '.join(['nullif(k, 3)'] * number)}, 9, {fails})") == 9
    inner = f"case when k = 3 then 5 else coalesce({fails}) end"
    assert run(f"case {' '.join(passed)} when k = 3 then {inner} else {fails.split(',')[0]} end") == 5
    for wrong in (
        f"case {' '.join([*passed, *whens])} end",
        f"coalesce({', '.join(['nullif(k, 3)'] * number)}, {fails})",
    ):
        with pytest.raises(InputError, match="division by zero"):
            run(wrong)


@pytest.mark.slow
def test_a_list_of_many() -> None:
    """A null in it makes unknown of what is not found."""
    assert run(f"k in ({', '.join(map(str, range(100, 30_100)))})") is False
    numbers = ", ".join(map(str, range(100, 2_000)))
    assert run(f"k not in ({numbers}, 3)") is False
    assert run(f"k in ({numbers}, null)") is None
    assert run(f"k in (null, {numbers}, 3)") is True
    assert run(f"k in ({', '.join(['k + 1'] * 2000)}, 3, null)") is True


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("before", "inside", "after", "wanted"),
    [
        ("(", "k", ")", 3),
        ("not ", "b", "", None),
        ("- ", "k", "", 3),
        ("abs(", "k", ")", 3),
        ("coalesce(", "k", ", 1)", 3),
        ("greatest(", "k", ", 1)", 3),
        ("nullif(", "k", ", 1)", 3),
        ("round(", "x", ", 1)", 1.3),
        ("case when b then 1 else ", "k", " end", 3),
        ("cast(", "k", " as int64)", 3),
    ],
)
def test_nesting(before: str, inside: str, after: str, wanted: object) -> None:
    """A hundred levels work, and take no time that doubles with each; more are refused where they begin."""
    began = time.process_time()
    assert run(before * 100 + inside + after * 100) == wanted
    assert time.process_time() - began < 20
    for levels in (101, 4_000):
        with pytest.raises(SpecError, match="nested more than 100 deep") as caught:
            scalar(before * levels + inside + after * levels, COLUMNS)
        assert caught.value.span
        assert (caught.value.span.column - 5) // len(before) == 100


@pytest.mark.parametrize(
    ("first", "more", "wanted"),
    [("k", " + k", 3 * (MAX_DEPTH + 1)), ("s", " || s", "x" * (MAX_DEPTH + 1)), ("x", " - x", -1.25 * (MAX_DEPTH - 1))],
)
def test_operators_in_a_row(first: str, more: str, wanted: object) -> None:
    """Operators that can't be put in another order are read one inside the other, up to a depth."""
    assert run(first + more * MAX_DEPTH) == wanted
    for number in (MAX_DEPTH + 1, 4_000):
        with pytest.raises(SpecError, match=f"more than {MAX_DEPTH} deep") as caught:
            scalar(first + more * number, COLUMNS)
        assert caught.value.span
        with pytest.raises(SpecError, match=f"more than {MAX_DEPTH} deep"):
            reduction(f"min({first + more * number})", COLUMNS)


@pytest.mark.parametrize(
    "opening", ["(", "[", "case when ", "not ", "f(", "-", "x[", "cast(", "interval ", "a := ", "{'a': "]
)
def test_what_never_ends(opening: str) -> None:
    """A mistake of any length has a place."""
    with pytest.raises(SpecError) as caught:
        scalar(opening * 4_000, COLUMNS)
    assert caught.value.span


def test_many_arguments() -> None:
    """Functions of any number of arguments take it."""
    assert value(f"greatest({', '.join(map(str, range(2000)))})") == 1999
    assert run(f"greatest({', '.join(['k', '1'] * 1000)})") == 3
    assert run(f"least({', '.join(['x', '2e0'] * 1000)})") == 1.25
    assert run(f"length(concat({', '.join(['s'] * 5000)}))") == 5000

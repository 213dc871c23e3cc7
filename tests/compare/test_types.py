"""Types that differ are said, and values are compared by what they mean."""
# ruff: noqa: DTZ001 - timestamps without a zone are a type of their own

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest

from ddcli import diff
from ddcli.errors import DdError, UsageError

NOON = datetime(2024, 5, 1, 12)


def side(values, dtype):
    return pl.DataFrame({"id": range(len(values)), "v": pl.Series(values, dtype=dtype)})


@pytest.mark.parametrize(
    ("a", "b", "types"),
    [
        (([1, None, 3], pl.Int32), ([1, None, 3], pl.Int64), ("int32", "int64", "compared as int64")),
        (([2**63 - 1], pl.Int64), ([2**63 - 1], pl.UInt64), ("int64", "uint64", "compared as Int128")),
        (([1, 2], pl.Int64), ([1.0, 2.0], pl.Float64), ("int64", "float64", "compared as float64")),
        (([0.5], pl.Float32), ([0.5], pl.Float64), ("float32", "float64", "compared as float64")),
        (
            ([Decimal("1.5")], pl.Decimal(9, 1)),
            ([Decimal("1.500")], pl.Decimal(12, 3)),
            ("decimal(9, 1)", "decimal(12, 3)", "compared as decimal(38, 3)"),
        ),
        (
            ([7], pl.Int64),
            ([Decimal("7.00")], pl.Decimal(9, 2)),
            ("int64", "decimal(9, 2)", "compared as decimal(38, 2)"),
        ),
        (
            ([NOON], pl.Datetime("ms")),
            ([NOON], pl.Datetime("us")),
            ("datetime[ms]", "datetime[us]", "compared as datetime[us]"),
        ),
        (
            ([NOON], pl.Datetime("us")),
            ([NOON.replace(tzinfo=UTC)], pl.Datetime("us", "Europe/Berlin")),
            ("datetime[us]", "datetime[us, Europe/Berlin]", "compared as datetime[us, UTC]"),
        ),
        (
            ([date(2024, 5, 1)], pl.Date),
            ([datetime(2024, 5, 1)], pl.Datetime("ns")),
            ("date", "datetime[ns]", "compared as datetime[ns]"),
        ),
        (
            ([timedelta(seconds=1)], pl.Duration("ms")),
            ([timedelta(seconds=1)], pl.Duration("ns")),
            ("duration[ms]", "duration[ns]", "compared as duration[ns]"),
        ),
        ((["12", None], pl.String), ([12, None], pl.Int64), ("string", "int64", "compared as string")),
    ],
)
def test_a_type_is_a_difference_and_values_are_the_same(a, b, types):
    found = diff(side(*a), side(*b), key="id")
    (column,) = found.columns
    assert (column.column, column.change, column.a, column.b, column.note) == ("v", "type", *types)
    assert found.rows == 0
    assert not found.same
    assert not found.ok
    assert diff(side(*a), side(*b), key="id", ignore_types=True).ok


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (([1], pl.Int32), ([2], pl.Int64)),
        (([2**63 - 1], pl.Int64), ([2**63], pl.UInt64)),
        (([Decimal("1.5")], pl.Decimal(9, 1)), ([Decimal("1.501")], pl.Decimal(12, 3))),
        (([NOON], pl.Datetime("ms")), ([NOON + timedelta(microseconds=1)], pl.Datetime("us"))),
        (
            ([NOON], pl.Datetime("us", "UTC")),
            ([NOON.replace(tzinfo=UTC) + timedelta(hours=2)], pl.Datetime("us", "Europe/Berlin")),
        ),
        (([date(2024, 5, 1)], pl.Date), ([datetime(2024, 5, 1, 1)], pl.Datetime("us"))),
        ((["012"], pl.String), ([12], pl.Int64)),
    ],
)
def test_values_of_different_types_that_differ(a, b):
    found = diff(side(*a), side(*b), key="id", ignore_types=True)
    assert found.counts == {"changed": 1}
    assert found.cells == {"v": 1}


def test_text_in_a_dictionary_is_text():
    found = diff(side(["x", "y"], pl.String), side(["x", "y"], pl.Categorical))
    assert found.same
    assert not found.columns


def test_a_column_of_nulls_alone_has_any_type():
    assert diff(side([None], pl.Null), side([None], pl.Int64)).same
    assert diff(side([None], pl.Null), side([1], pl.Int64), key="id").cells == {"v": 1}


def test_a_column_that_one_side_has_is_a_difference_unless_it_is_ignored():
    a = pl.DataFrame({"id": [1], "old": [1], "v": [1]})
    b = pl.DataFrame({"id": [1], "v": [1], "new": ["x"]})
    found = diff(a, b, key="id", ignore_types=True, max_changed=10)
    assert [(each.column, each.change) for each in found.columns] == [("old", "only_a"), ("new", "only_b")]
    assert not found.ok
    assert diff(a, b, key="id", ignore=["old", "new"]).same


def test_a_value_out_of_the_common_types_range_is_told_with_its_column():
    with pytest.raises(DdError, match=r"'v'.*3000-01-01") as told:
        diff(side([datetime(3000, 1, 1)], pl.Datetime("ms")), side([NOON], pl.Datetime("ns")))
    assert told.value.exit_code == 3
    assert "--ignore" in str(told.value)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([[1.0], [float("nan")], None, []], pl.List(pl.Float64)),
        ([{"x": 1}, {"x": None}, None, {"x": 2}], pl.Struct({"x": pl.Int64})),
        ([b"a", b"\xff", None, b""], pl.Binary),
        ([[1, 2], [3, 4], None, [5, 6]], pl.Array(pl.Int64, 2)),
        ([True, False, None, True], pl.Boolean),
        ([timedelta(1), None, timedelta(0), timedelta(-1)], pl.Duration("ns")),
    ],
)
def test_other_types(values, dtype):
    found = diff(side(values, dtype), side([*values[1:], values[0]], dtype), key="id")
    assert found.cells == {"v": len([1 for a, b in zip(values, [*values[1:], values[0]], strict=True) if a != b])}
    assert diff(side(values, dtype), side(values, dtype)).same


def test_types_without_anything_in_common_are_not_compared():
    found = diff(side([[1]], pl.List(pl.Int64)), side(["x"], pl.String), ignore_types=True)
    assert found.columns[0].note == "not compared"
    assert found.compared.names == ["id"]
    with pytest.raises(UsageError, match="the key's column 'v' is list"):
        diff(side([[1]], pl.List(pl.Int64)), side(["x"], pl.String), key="v")


@pytest.mark.parametrize(
    ("values", "dtype", "tolerance", "same"),
    [
        ((1.0, 1.5), pl.Float64, 0.5, True),
        ((1.0, 1.5), pl.Float64, 0.49, False),
        ((10, 11), pl.Int64, 1, True),
        ((10, 11), pl.Int64, 0.9, False),
        ((-(2**63), 2**63 - 1), pl.Int64, 2**64 - 1, True),
        ((-(2**63), 2**63 - 1), pl.Int64, 2**64 - 2, False),
        ((2**60, 2**60 + 1), pl.Int64, 0, False),
        ((Decimal("1.10"), Decimal("1.00")), pl.Decimal(9, 2), 0.1, True),
        ((Decimal("1.10"), Decimal("1.00")), pl.Decimal(9, 2), 0.09, False),
        ((100.0, 101.0), pl.Float64, "1%", True),
        ((100.0, 102.0), pl.Float64, "1%", False),
        ((0.0, 1e-300), pl.Float64, "1%", False),
        ((None, 0.0), pl.Float64, 5, False),
        ((float("nan"), 0.0), pl.Float64, 5, False),
        ((float("nan"), float("nan")), pl.Float64, 0, True),
        ((float("inf"), 1.0), pl.Float64, "50%", False),
        ((float("inf"), float("inf")), pl.Float64, "50%", True),
        ((NOON, NOON + timedelta(seconds=5)), pl.Datetime("us"), "5s", True),
        ((NOON, NOON + timedelta(seconds=5)), pl.Datetime("us"), "4999.999ms", False),
        ((NOON, NOON + timedelta(milliseconds=1)), pl.Datetime("ms"), "999us", False),
        ((date(2024, 1, 1), date(2024, 1, 2)), pl.Date, "1d", True),
        ((date(2024, 1, 1), date(2024, 1, 2)), pl.Date, "23h", False),
        ((timedelta(0), timedelta(minutes=1)), pl.Duration("ns"), "1m", True),
    ],
)
def test_edges_of_tolerances(values, dtype, tolerance, same):
    sides = [side([value], dtype) for value in values]
    assert diff(*sides, key="id", tolerance={"v": tolerance}).same is same
    assert diff(*reversed(sides), key="id", tolerance={"v": tolerance}).same is same


@pytest.mark.parametrize(
    ("dtype", "tolerance", "said"),
    [
        (pl.String, 1, "only numbers and times can"),
        (pl.Date, 1, "its tolerance must be a duration"),
        (pl.Int64, "5s", "its tolerance must be a number or a share"),
        (pl.Int64, "-1", "is not a tolerance"),
        (pl.Int64, "nan", "is not a tolerance"),
    ],
)
def test_tolerances_that_mean_nothing(dtype, tolerance, said):
    with pytest.raises(UsageError, match=said):
        diff(side([None], dtype), side([None], dtype), key="id", tolerance={"v": tolerance})


def test_a_cell_within_its_tolerance_is_no_changed_cell_of_a_changed_row():
    a = pl.DataFrame({"id": [1], "v": [1.0], "w": [1]})
    b = pl.DataFrame({"id": [1], "v": [1.1], "w": [2]})
    found = diff(a, b, key="id", tolerance={"v": 0.2})
    assert +found.cells == {"w": 1}

"""Python values as columns: what a value becomes is its own affair, whatever stands before it in the column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.expressions import python_values
from ddcli.expressions.python_values import UnfitError, records_of, to_series
from ddcli.expressions.types import Type, parse_type

DAY, MOMENT = dt.date(2024, 1, 2), dt.datetime.fromisoformat("2024-01-02 03:04:05.678901")
ABROAD = MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))
VALUES: list[Any] = [
    None, True, 1, -1, 1.5, 2**63, 10**30, float("nan"), "a", "2024-01-02", "5", b"x", "\ud800", Decimal("1.239"), Decimal("nan"), Decimal(5), Decimal(2**127),
    np.int64(3), np.float64(2.5), np.datetime64("2024-01-02"), DAY, MOMENT, ABROAD, dt.time(1, 2, 3, 4), dt.timedelta(microseconds=1), dt.timedelta(days=1),
    [], [1, None], [1, "a"], (1, 2), {1}, {}, {"a": 1}, {"a": 1.5}, {"a": 1, "b": 2}, {"b": [DAY]}, {"b": [MOMENT]}, np.array([1, 2]),
]  # fmt: skip
KINDS = [
    "int64", "int8", "uint64", "float64", "float32", "bool", "string", "binary", "date", "time", "datetime[us]", "datetime[ms]", "datetime[ns]",
    "datetime[us, UTC]", "datetime[us, Europe/Berlin]", "duration[us]", "duration[ms]", "decimal(10, 2)", "list[int64?]", "list[string?]",
    "struct[a: int64?, b: list[date?]?]",
]  # fmt: skip


def kind_of(text: str) -> Type:
    found = parse_type(text)
    assert found is not None
    return found


def alone(value: Any, column: Type) -> tuple[Any, ...] | None:
    try:
        return tuple(to_series("x", [value], column).to_list())
    except UnfitError:
        return None


@given(st.sampled_from(KINDS), st.lists(st.sampled_from(VALUES), max_size=4))
def test_a_column_is_its_values_one_by_one(text: str, values: list[Any]) -> None:
    column = kind_of(text)
    each = [alone(value, column) for value in values]
    if None in each:
        with pytest.raises(UnfitError) as caught:
            to_series("x", values, column)
        assert each[caught.value.row] is None
    else:
        found = to_series("x", values, column)
        assert found.dtype == column.to_polars()
        assert repr(found.to_list()) == repr([value for one in each for value in one or ()])


@pytest.mark.parametrize(
    ("text", "value", "kept"),
    [
        ("date", DAY, DAY),
        ("date", np.datetime64("2024-01-02"), DAY),
        ("datetime[us]", DAY, dt.datetime.fromisoformat("2024-01-02")),
        ("datetime[us]", MOMENT, MOMENT),
        ("datetime[us, UTC]", MOMENT, MOMENT.replace(tzinfo=dt.UTC)),
        ("datetime[us, UTC]", ABROAD, ABROAD),
        ("datetime[us, Europe/Berlin]", MOMENT, MOMENT.replace(tzinfo=dt.UTC)),
        ("datetime[ms]", MOMENT.replace(microsecond=678000), MOMENT.replace(microsecond=678000)),
        ("duration[us]", dt.timedelta(microseconds=1), dt.timedelta(microseconds=1)),
        ("decimal(10, 2)", Decimal("1.239"), Decimal("1.24")),
        ("decimal(10, 2)", 5, Decimal(5)),
        ("list[int64?]", (1, None), [1, None]),
        ("list[int64?]", np.array([1, 2]), [1, 2]),
        ("struct[a: int64?, b: list[date?]?]", {"b": [DAY]}, {"a": None, "b": [DAY]}),
    ],
)
def test_values_that_a_type_holds(text: str, value: Any, kept: Any) -> None:
    assert to_series("x", [value], kind_of(text)).to_list() == [kept]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("date", [MOMENT, 5, True, "2024-01-02"]),
        ("datetime[us]", [ABROAD, 5, "2024-01-02"]),
        ("datetime[ms]", [MOMENT]),
        ("time", [5, MOMENT]),
        ("duration[ms]", [dt.timedelta(microseconds=1), 5]),
        ("decimal(10, 2)", [True, "5", Decimal("nan"), float("nan"), 10**30]),
        ("list[int64?]", [b"x", {1, 2}, [True], [1.5], 5]),
        ("struct[a: int64?, b: list[date?]?]", [5, {"a": 1.5}, {"c": 1}, {"a": "7"}, {"b": [MOMENT]}, "5"]),
    ],
)
def test_values_that_a_type_does_not_hold(text: str, values: list[Any]) -> None:
    assert [alone(value, kind_of(text)) for value in values] == [None] * len(values)


def test_records_are_those_of_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_values, "TOGETHER", 2)
    held: dict[str, list[Any]] = {text: [value for value in VALUES if alone(value, kind_of(text))] for text in KINDS}
    rows = max(map(len, held.values()))
    columns = [to_series(text, (values * rows)[:rows], kind_of(text)) for text, values in held.items()]
    frame = pl.DataFrame(columns)
    assert repr([*records_of(frame)]) == repr([*frame.iter_rows(named=True)])
    assert not [*records_of(frame.clear())]

"""Dates and timestamps outside the years 1 to 9999, and floats outside their range, are refused wherever they arise."""

from __future__ import annotations

import datetime as dt
import re

import numpy as np
import polars as pl
import pytest

from ddcli import Dataflow
from ddcli.engine.lanes import encode_column
from ddcli.engine.pool import Pool
from ddcli.errors import InputError, SpecError
from ddcli.expressions.types import Type
from ddcli.store.tables.wider_types import widen
from tests.expressions.support import value, values
from tests.secret import SECRET

FIRST, LAST = "date '0001-01-01'", "date '9999-12-31'"


@pytest.mark.parametrize(
    "written",
    [
        f"{LAST} + interval '1' day",
        f"{FIRST} - interval '1' day",
        f"{LAST} + interval '1' month",
        f"{FIRST} - interval '1' month",
        f"{LAST} + interval '25' hour",
        f"add_months({LAST}, 1200000)",
        f"add_months({FIRST}, -9223372036854775808)",
        "timestamp '9999-12-31 23:59:59' + interval '1' second",
        "timestamp '0001-01-01' - interval '1' microsecond",
        "timestamp '2013-01-01' + interval '106751990' day",
        "timestamp '2013-01-01' - interval '106751990' day",
        "cast('0000-01-01' as date)",
        "cast('0000-12-31 23:59:59' as timestamp)",
        "cast('9999-12-31 23:59:59' as datetime[ns])",
        "cast('1600-01-01' as datetime[ns])",
        "cast('2262-04-11 23:47:16.854775808' as datetime[ns])",
        "cast('1677-09-21 00:12:43.145224191' as datetime[ns])",
        "make_date(0, 12, 31)",
        "make_date(10000, 1, 1)",
        "make_date(-1, 1, 1)",
        "cast('1e400' as float64)",
        "cast('-1e400' as float64)",
        "cast('1e39' as float32)",
        "cast(1e308 as float32)",
        "cast(3.4028235677973367e38 as float32)",
        "cast(0 - 1e39 as float32)",
    ],
)
def test_refused(written: str) -> None:
    """A constant of an expression, and the same of a column; `try_cast` gives null."""
    with pytest.raises((InputError, SpecError)):
        value(written)
    for constant, kind in (("date ", "date"), ("timestamp ", "datetime[us]"), ("", "string")):
        head, quote, rest = written.partition(constant + "'")
        text, _, tail = rest.partition("'")
        if quote:
            with pytest.raises(InputError):
                values(f"{head}cast(x as {kind}){tail}", {"x": "string"}, x=[text])
            break
    if written.startswith("cast("):
        assert value("try_" + written) is None


@pytest.mark.parametrize(
    "written", ["year({})", "cast({} as string)", "cast(date_trunc('week', {}) as date)", "extract(doy from {})"]
)
def test_what_is_not_reached_stops_nothing(written: str) -> None:
    """A calendar that has no such day is never asked for it: neither in rows that fail nor in those that are passed over."""
    far = "d + 106751990"
    columns = {"d": "date", "p": "bool"}
    given = {"d": [dt.date(2013, 1, 1), dt.date(9999, 12, 31)], "p": [False, False]}
    assert values(f"case when p then {written.format(far)} end", columns, **given) == [None, None]
    with pytest.raises(InputError, match="date out of range"):
        values(written.format(far), columns, **given)


def test_ends_are_inside() -> None:
    """The first and the last day, and the last microsecond, are values like others."""
    assert value(f"{LAST} - 3652058") == dt.date(1, 1, 1)
    assert value(f"add_months({FIRST}, 119987)") == dt.date(9999, 12, 1)
    assert value("cast('9999-12-31 23:59:59.999999' as timestamp)") == dt.datetime.fromisoformat(
        "9999-12-31 23:59:59.999999"
    )
    assert value("make_date(1, 1, 1)") == dt.date(1, 1, 1)
    assert value("try_cast('inf' as float32)") == float("inf")
    assert value("cast(cast('-inf' as float64) as float32)") == float("-inf")
    assert value("cast(3.4028235e38 as float32)") == float(np.float32(3.4028235e38))


@pytest.mark.parametrize(
    "series",
    [
        pl.Series([0, 2_932_897], dtype=pl.Int32).cast(pl.Date),
        pl.Series([0, -719_163], dtype=pl.Int32).cast(pl.Date),
        pl.Series([None, 2**31 - 1], dtype=pl.Int32).cast(pl.Date),
        pl.Series([0, 253_402_300_800_000]).cast(pl.Datetime("ms")),
        pl.Series([0, 2**63 - 1]).cast(pl.Datetime("us")),
        pl.Series([0, 253_402_300_799_999_999]).cast(pl.Datetime("us", "Asia/Tokyo")),
        pl.Series([0, -62_135_596_800_000_000]).cast(pl.Datetime("us", "America/New_York")),
    ],
)
def test_columns_from_elsewhere(series: pl.Series) -> None:
    """A file's column is refused where it is read, any other (of a Python function) where it becomes lanes."""
    zone = getattr(series.dtype, "time_zone", None)
    unit = getattr(series.dtype, "time_unit", None)
    type_ = Type("datetime" if unit else "date", True, unit=unit, zone=zone)
    with pytest.raises(OverflowError):
        widen(series, type_)
    with pytest.raises(InputError, match="in the year"):
        encode_column(series, type_, Pool(SECRET), np.empty((len(series), type_.lanes), np.int64))


@pytest.mark.parametrize("zone", ["", ", UTC"])
@pytest.mark.parametrize("form", ["x < {}", "x between {} and x", "x in (x, {})", "coalesce(x, {}) = x"])
def test_a_constant_beyond_nanoseconds(zone: str, form: str) -> None:
    """A constant beside nanoseconds, which reach from 1677 to 2262, is one of them."""
    columns, offset = {"x": f"datetime[ns{zone}]?"}, "Z" if zone else ""
    for written in ("1000-01-01T00:00:00", "9999-01-01T00:00:00"):
        with pytest.raises(SpecError, match="is out of range for datetime"):
            values(form.format(f"'{written}{offset}'"), columns, x=[None])
    assert values(form.format(f"'2262-01-01T00:00:00{offset}'"), columns, x=[None]) != [False]


@pytest.mark.parametrize("kind", ["datetime[ns]", "time"])
def test_constants_have_nanoseconds(kind: str) -> None:
    """A constant text beside a column has all of its digits, and so has a cast of it."""
    day = "" if kind == "time" else "2024-01-01 "
    text, less, more = (f"{day}10:00:00.123456{digits}" for digits in ("789", "788", "79"))
    constants = [f"cast('{text}' as {kind})", f"'{text}'", *([f"time '{text}'"] if kind == "time" else [])]
    for constant in constants:
        found = values(f"cast(x as {kind}) = {constant}", {"x": "string"}, x=[text, less, more])
        assert found == [True, False, False]
    column = f"cast(x as {kind})"
    for condition in (f"{column} between '{text}' and '{text}'", f"{column} in ('{text}', '{day}10:00:00')"):
        assert values(condition, {"x": "string"}, x=[text, less, more]) == [True, False, False]
    assert values(f"{column} >= '{more}'", {"x": "string"}, x=[text, less, more]) == [False, False, True]
    with pytest.raises(SpecError, match="is not a t"):
        values(f"{column} = '{text}x'", {"x": "string"}, x=[text])
    comma = text.replace(".", ",")  # casts read none, so the constant is refused where it would lose digits
    with pytest.raises(InputError, match="a value is no"):
        values(f"{column} = '{comma}'", {"x": "string"}, x=[text])


@pytest.mark.parametrize(("kind", "digits"), [("datetime[us]", 6), ("datetime[ms]", 3)])
def test_a_constant_with_more_digits_than_its_type_is_refused(kind: str, digits: int) -> None:
    """A cut constant would be equal to values that it is not equal to."""
    text = f"2024-01-01 10:00:00.{'123456789'[:digits]}"
    for constant in (f"{text}000", text):
        assert values(f"cast(x as {kind}) = '{constant}'", {"x": "string"}, x=[text]) == [True]
    for form in ("= '{}'", "in ('{}', null)"):
        with pytest.raises(SpecError, match=f"has more digits of a second than {re.escape(kind)} holds"):
            values(f"cast(x as {kind}) {form.format(text + '001')}", {"x": "string"}, x=[text])


def test_a_timestamp_with_nanoseconds_is_refused() -> None:
    with pytest.raises(SpecError, match="has more digits of a second") as caught:
        value("timestamp '2024-01-01 10:00:00.123456789'")
    cast = "cast('2024-01-01 10:00:00.123456789' as datetime[ns])"
    assert caught.value.hint == f"write at most 6; {cast} keeps nine"
    assert value(f"{cast} = {cast}") is True


def test_an_offset_of_a_time_of_day_is_refused() -> None:
    with pytest.raises(SpecError, match="has an offset from UTC"):
        value("time '10:00:00+02:00'")
    assert value("time '10:00:00'") == dt.time(10)


def test_zones() -> None:
    """A constant beside a timestamp with a zone has its year in UTC."""
    columns = {"x": "datetime[us, UTC]"}
    for written in ("0001-01-01T00:00:00+02:00", "9999-12-31T23:59:00-02:00"):
        with pytest.raises(SpecError, match="outside of the years 1 to 9999 in UTC"):
            values(f"x < '{written}'", columns, x=[])


def test_a_constant_that_leaves_the_years_in_its_zone_is_refused() -> None:
    """In New York it is in the year 0, which Python lacks: the constant is computed before any row."""
    dataflow = Dataflow(timezone="America/New_York")
    rows = dataflow.input("t", {"x": "int64"})
    rows.sql("select make_timestamptz(1, 1, 1, 0, 0, 0.0, 'UTC') as z from t", t=rows).output()
    rows.insert((1,))
    rows.advance_to(1)
    with pytest.raises(InputError, match="column 'z' has a datetime in the year 1"):
        dataflow.step()

"""Values as files of tests and `dd why` write them: either exactly what a cast of the text holds, or refused."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from ddcli.errors import Span, SpecError, Text, UsageError
from ddcli.expressions.lower import Lowering
from ddcli.expressions.python_values import to_series
from ddcli.expressions.tree import Cast, Column
from ddcli.expressions.types import parse_type
from ddcli.plan.test_steps import read_value
from ddcli.spec.tree import Scalar, scalar_kind
from ddcli.store.texts import parse_keys
from tests.draws import chance, many

TEXT = parse_type("string?")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")
DECIMALS = ("decimal(5, 2)", "decimal(38, 0)", "decimal(38, 38)", "decimal(20, 4)")
FLOATS = ("float32", "float64")
MOMENTS = ("datetime[ms]", "datetime[us]", "datetime[ns]", "datetime[us, UTC]", "datetime[ns, UTC]")
DIGITS = {"ms": 3, "us": 6, "ns": 9}
YEARS = ("0000", "0001", "1600", "1677", "1678", "1970", "2024", "2261", "2262", "2263", "9999")


def scalar(text, kind):
    of_text = kind.kind != "bool" and not kind.is_numeric
    return Scalar(Text(text, Span("", 1, 1)), "str" if of_text else scalar_kind(text), plain=True)


def series(text, kind):
    """Return the column that has the value, None if it is refused."""
    try:
        value = read_value(scalar(text, kind), kind, "'v'")
    except SpecError:
        return None
    return to_series("v", [value], kind)


def cast(texts, kind):
    """Return the values that casts of the texts hold, null where they fail; digits beyond the type are rounded."""
    found = Lowering().value(Cast(Column("v", TEXT), kind.or_null(), try_=True))
    return pl.DataFrame({"v": texts}).select(found.alias("v").to_physical()).to_series().to_list()


def number(draw):
    digits = "".join(draw.choice("0199") for _ in range(draw.choice((1, 3, 5, 19, 20, 38, 39))))
    text = draw.choice(("0", digits.lstrip("0").rjust(1, "0")))
    text = f"-{text}" if draw.random() < 0.3 and text != "0" else text
    if draw.random() < 0.5:
        text += "." + "".join(draw.choice("0019") for _ in range(draw.choice((1, 2, 4, 38, 39))))
    return text


def moment(draw):
    day = draw.choice(("01-01", "04-10", "04-11", "04-12", "09-20", "09-21", "09-22", "12-31"))
    text = f"{draw.choice(YEARS)}-{day} {draw.choice(('00:00:00', '00:12:44', '23:47:16', '23:59:59'))}"
    if draw.random() < 0.5:
        text += "." + "".join(draw.choice("059") for _ in range(draw.choice((3, 6, 7, 9))))
    return text


def clock(draw):
    return moment(draw).partition(" ")[2]


@pytest.mark.parametrize("kind", [*INTEGERS, *DECIMALS, *FLOATS, *MOMENTS, "time"])
def test_a_value_is_what_a_cast_of_its_text_holds_or_is_refused(kind):
    draw, type_ = chance(kind), parse_type(kind)
    written = {"datetime": moment, "time": clock}.get(type_.kind, number)
    texts = [written(draw) for _ in range(many(2000))]
    taken = 0
    for text, wanted in zip(texts, cast(texts, type_), strict=True):
        found = series(text, type_)
        if found is not None:
            taken += 1
            assert found.to_physical().to_list() == [wanted] != [None], text
        elif wanted is not None:
            assert beyond(text, type_), text
    assert taken > 5


def beyond(text, type_):
    """Return whether the text has digits that the column has not, or is no number of the type."""
    fraction = text.partition(".")[2].rstrip("0")
    if type_.kind == "decimal":
        return len(fraction) > type_.scale
    if type_.kind == "datetime":
        return len(fraction) > DIGITS[type_.unit]
    return type_.is_integer and "." in text


@pytest.mark.parametrize("unit", DIGITS)
@pytest.mark.parametrize("days", ["", "3 ", "-1 "])
def test_a_length_of_time_has_the_digits_of_its_type(unit, days):
    seconds = int(days or 0) * 86_400 + 3600 + 2 * 60 + 3
    for digits in ("", ".9", ".999", ".000001", ".999999999", ".000000501", ".123456789", ".1234567890"):
        found = series(f"{days}01:02:03{digits}", parse_type(f"duration[{unit}]"))
        fraction = digits[1:].rstrip("0")
        if len(fraction) > DIGITS[unit]:
            assert found is None, digits
        else:
            wanted = seconds * 10 ** DIGITS[unit] + int(fraction.ljust(DIGITS[unit], "0"))
            assert found.to_physical().to_list() == [wanted], digits


def test_numbers_beyond_a_type_are_refused():
    for kind, text in (
        ("decimal(12, 2)", "1e999999"),
        ("decimal(12, 2)", "1e-999999999"),
        ("float64", "1e400"),
        ("float32", "1e300"),
        ("time", "10:00:00+01:00"),
        ("duration[ns]", "106752 01:00:00"),
    ):
        assert series(text, parse_type(kind)) is None, text
    assert series("-.inf", parse_type("float32")).to_list() == [float("-inf")]


@pytest.mark.parametrize("kind", ["datetime[us, UTC]", "datetime[ms, Europe/Berlin]", "datetime[ns, America/New_York]"])
def test_a_moment_is_found_as_commands_print_it(kind):
    type_ = parse_type(kind)
    moment = datetime(2024, 3, 31, 1, 30, tzinfo=UTC)
    shown = moment.astimezone(ZoneInfo(type_.zone)).replace(tzinfo=None)
    for text in (str(shown), "2024-03-31T03:30:00+02:00", "2024-03-30 21:30:00-04:00", "2024-03-31T01:30Z"):
        assert parse_keys([f"z={text}"], {"z": type_}) == {"z": moment}, text
        assert series(text, type_).to_list() == [moment], text
    with pytest.raises(UsageError, match="is not datetime"):
        parse_keys(["z=2024-03-31 01:30:00+2"], {"z": type_})


@pytest.mark.parametrize("kind", ["datetime[ns]", "datetime[ns, Europe/Berlin]", "time"])
def test_nanoseconds_of_a_condition_are_kept(kind):
    type_ = parse_type(kind)
    text = ("" if kind == "time" else "2024-01-01 ") + "10:00:00.123456789"
    for written, physical in ((text, 789), (text[:-3], 0)):
        value = parse_keys([f"z={written}"], {"z": type_})["z"]
        for found in (
            pl.select(pl.lit(value, type_.to_polars())),
            pl.Series([value], dtype=type_.to_polars()).to_frame(),
        ):
            assert found.to_series().to_physical().item() % 1000 == physical
            assert found.to_series().to_physical().item() // 1000 % 1000 == 456

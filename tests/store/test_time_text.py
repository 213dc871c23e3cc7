"""Times as people write and read them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ddcli.expressions.types import parse_type
from ddcli.store.texts import format_time, parse_time

YEARS = 1_900 * 365 * 24 * 3600


@given(st.integers(-YEARS, YEARS), st.integers(0, 10**9 - 1))
@example(0, 1)
@example(-1, 999_999_999)
@pytest.mark.parametrize(("kind", "digits"), [("datetime[ms]", 3), ("datetime[us]", 6), ("datetime[ns]", 9)])
def test_a_time_is_read_as_it_is_printed(kind, digits, second, nanosecond):
    """Also its nanoseconds, which datetimes of Python don't have."""
    if digits == 9:
        second = second % (18 * 10**9) - 9 * 10**9
    value = second * 10**digits + nanosecond // 10 ** (9 - digits)
    times = {"at": parse_type(kind)}
    assert parse_time(format_time((value,), [*times.values()]), times, "--as-of") == (value,)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("00:00:00.1234567", 123_456_700), ("00:00:00,000000001", 1), ("00:00:01.0000000019", 1_000_000_001)],
)
def test_digits_beyond_microseconds_count(text, nanoseconds):
    assert parse_time(f"1970-01-01 {text}", {"at": parse_type("datetime[ns]")}, "--as-of") == (nanoseconds,)
    assert parse_time(f"1970-01-01 {text}", {"at": parse_type("datetime[us]")}, "--as-of") == (nanoseconds // 1000,)

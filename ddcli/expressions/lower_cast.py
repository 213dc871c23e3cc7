"""Casts in polars: exact or an error. Decimals are rounded half away from zero, floats that become integers half to even.

polars' own casts cut floats, round decimals half to even, and read text by their own rules; here text must have the form of
the type (white space around it is ignored), and a value that doesn't fit fails its row.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.expressions.coerce import DIGITS, integer_range
from ddcli.expressions.lower_number import grown, minus, scaled, shrunk, too_long, unscaled, wide
from ddcli.expressions.moments import clocks, instants, outside
from ddcli.expressions.types import MAX_PRECISION, SIGNED, UTC, Type

if TYPE_CHECKING:
    from ddcli.expressions.lower import Lowering
    from ddcli.expressions.tree import Cast

INTEGER = r"^[+-]?[0-9]+$"
DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$"
EXPONENT = r"(?i)^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)e[+-]?[0-9]{1,9}$"
FLOAT = r"(?i)^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$|^[+-]?(inf|infinity|nan)$"
DAY = r"^[0-9]{4}(?:-[0-9]{1,2}-|/[0-9]{1,2}/)[0-9]{1,2}"
TRUE, FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
"""The texts that are conditions, in lower case."""
CLOCK = r"(?:[01]?[0-9]|2[0-3]):(?:[0-5]?[0-9](?::(?:[0-5]?[0-9](?:\.[0-9]*)?)?)?)?"
"""A time on a clock, as DuckDB reads it: digits may be missing behind a colon or a point."""
TIME = f"^{CLOCK}$"
OFFSET = "( ?UTC|Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9](?::[0-5][0-9])?)?)$"
TIMESTAMP = f"{DAY}(?:[ T]{CLOCK})?$"
DATE = f"{DAY}(?:[ T]{CLOCK}(?:{OFFSET.removesuffix('$')})?)?$"
"""A day; a time behind it is ignored."""
SPACES = " \t\n\v\f\r"
"""The characters around a text that a cast ignores."""


def lower_cast(low: Lowering, cast: Cast, value: pl.Expr) -> pl.Expr:
    """Return the converted value; adds the checks for the rows on which the cast fails."""
    source, target = cast.argument.type, cast.type
    if source.kind in ("null", "list", "struct"):
        return value.cast(target.to_polars())
    if source.kind == "string":
        return _from_text(low, cast, value.str.strip_chars(SPACES))
    if target.kind == "string":
        return to_text(source, value)
    if source.kind == "decimal" or target.kind == "decimal":
        return _decimal(low, cast, value)
    if source.is_numeric and target.is_numeric:
        return _number(low, cast, value)
    if target.kind == "bool":
        return value != 0
    if source.kind == "bool":
        return value.cast(target.to_polars())
    return _temporal(low, cast, value)


def _fail(low: Lowering, cast: Cast, failing: pl.Expr, why: str = "is out of range for") -> None:
    low.fail(cast, failing, f"a value {why} {cast.type.required()}", cast.hint or "use try_cast for null")


def _number(low: Lowering, cast: Cast, value: pl.Expr) -> pl.Expr:
    source, target = cast.argument.type, cast.type
    dtype = target.to_polars()
    if target.is_float:
        result = value.cast(dtype)
        if target.kind == "float32" and source.kind == "float64":
            _fail(low, cast, result.is_infinite() & value.is_finite())
        return result
    rounded = value.round(0, mode="half_to_even") if source.is_float else value
    low_, high = integer_range(target.kind)
    if source.is_integer:
        from_, to = integer_range(source.kind)
        if low_ <= from_ and to <= high:
            return value.cast(dtype)
    result = rounded.cast(dtype, strict=False)
    _fail(low, cast, result.is_null() & value.is_not_null())
    return result


def _decimal(low: Lowering, cast: Cast, value: pl.Expr) -> pl.Expr:
    source, target = cast.argument.type, cast.type
    if target.is_float:
        return value.cast(target.to_polars())
    if target.is_integer:
        number = shrunk(unscaled(value), source.scale)
        least, most = integer_range(target.kind)
        if source.precision - source.scale >= len(str(most)):
            _fail(low, cast, (number < wide(least)) | (number > wide(most)))
        elif least == 0:
            _fail(low, cast, number < 0)
        return number.cast(target.to_polars(), strict=False)
    if source.is_float:
        moved = (value.cast(pl.Float64) * float(10**target.scale)).round(0, mode="half_away_from_zero")
        # 2**127 is past 38 digits, so a value that does not fit 128 bits is null here and fails with the rest.
        number = moved.cast(pl.Int128, strict=False)
        _fail(low, cast, (number.is_null() & value.is_not_null()) | too_long(number, target.precision))
        return _fitting(number, target, target.precision)
    if source.kind == "decimal":
        number, digits, shift = unscaled(value), source.precision, target.scale - source.scale
    else:
        number, digits, shift = value.cast(pl.Int128), DIGITS[source.kind], target.scale
    if shift >= 0:
        if digits + shift > target.precision:
            _fail(low, cast, too_long(number, target.precision - shift))
            return _fitting(number, target, target.precision - shift, shift)
        return scaled(grown(number, shift), target)
    number = shrunk(number, -shift)
    # One digit more: 9.99 rounds to 10.0.
    if digits + shift + 1 > target.precision:
        _fail(low, cast, too_long(number, target.precision))
        return _fitting(number, target, target.precision)
    return scaled(number, target)


def _fitting(number: pl.Expr, target: Type, digits: int, shift: int = 0) -> pl.Expr:
    """Return the decimal of values that have no more digits; polars raises on the others, which fail their rows anyway."""
    return scaled(grown(pl.when(too_long(number, digits)).then(None).otherwise(number), shift), target)


def _from_text(low: Lowering, cast: Cast, text: pl.Expr) -> pl.Expr:
    target = cast.type
    dtype = target.to_polars()
    if target.kind == "decimal":
        result, fits = _text_to_decimal(text, target)
        _fail(low, cast, ~fits, "is no")
        return result
    if target.kind == "bool":
        lowered = text.str.to_lowercase()
        result = pl.when(lowered.is_in(TRUE)).then(True).when(lowered.is_in(FALSE)).then(False)
    elif target.is_integer:
        plain = text if target.kind in SIGNED else text.str.replace("^-(0+)$", "$1")
        result = pl.when(text.str.contains(INTEGER)).then(plain.cast(dtype, strict=False))
    elif target.is_float:
        # "+nan" and the like: the sign of NaN has no meaning.
        plain = text.str.to_lowercase().str.replace(r"^[+-]nan$", "nan")
        number = plain.cast(pl.Float64, strict=False).cast(dtype)
        # A text with digits that is infinite was too large.
        fits = text.str.contains(FLOAT) & (number.is_finite() | ~text.str.contains("[0-9]"))
        result = pl.when(fits).then(number)
    elif target.kind == "date":
        day = text.str.extract(f"({DAY})").str.replace_all("/", "-", literal=True).str.to_date("%Y-%m-%d", strict=False)
        result = _dated(pl.when(text.str.contains(DATE)).then(day), target)
    elif target.kind == "time":
        clock = _whole_clock(text).str.to_time("%H:%M:%S%.f", strict=False)
        result = pl.when(text.str.contains(TIME)).then(clock)
    else:
        result = moment_in(text, target)
    _fail(low, cast, text.is_not_null() & result.is_null(), "is no")
    return result


def _whole_clock(text: pl.Expr) -> pl.Expr:
    """Return times with minutes, seconds, and at most nine digits of a second: `11:` is 11:00:00, and `11:00:00.` too."""
    whole = text.str.replace(":$", ":00")
    whole = pl.when(whole.str.count_matches(":", literal=True) == 1).then(whole + ":00").otherwise(whole)
    return whole.str.replace(r"(\.[0-9]{9})[0-9]+$", "$1").str.strip_suffix(".")


def _dated(value: pl.Expr, target: Type) -> pl.Expr:
    """Return dates or timestamps in the years 1 to 9999, null for others: four digits may be 0000."""
    return pl.when(~outside(value.to_physical(), target)).then(value)


def moment_in(text: pl.Expr, target: Type) -> pl.Expr:
    """Return the timestamps that text in ISO 8601 holds, in the years 1 to 9999; null for other text."""
    return _dated(_text_to_moment(text, target), target)


def _text_to_moment(text: pl.Expr, target: Type) -> pl.Expr:
    """Return the timestamps, null for other text. If the type has a zone, an offset from UTC may follow; without one the text is a time on clocks of the zone."""
    # A date ends like an offset: `-01`.
    offset = pl.when(text.str.len_chars() > len("2013-01-01")).then(text.str.extract(OFFSET)) if target.zone else None
    bare = text if offset is None else pl.when(offset.is_null()).then(text).otherwise(text.str.replace(OFFSET, ""))
    moments = bare.str.replace("T", " ", literal=True).str.replace_all("/", "-", literal=True)
    timed = pl.when(moments.str.contains(":", literal=True)).then(moments).otherwise(moments + " 00:")
    full = _whole_clock(timed)

    def read(unit: Any) -> pl.Expr:
        local = full.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit=unit, strict=False)
        if offset is None:
            return local
        # In the same unit: microseconds would cut nanoseconds.
        by_offset = (local - _offset_length(offset, unit)).dt.replace_time_zone("UTC")
        by_offset = by_offset.dt.convert_time_zone(target.zone or UTC)
        return pl.when(offset.is_null()).then(instants(local, replace(target, unit=unit))).otherwise(by_offset)

    if target.unit == "ms":  # rounded, as from a timestamp of microseconds
        moment = rounded_unit(read("us").to_physical(), 1000).cast(target.to_polars())
    else:
        moment = read(target.unit or "us")
    if target.unit == "ns":
        # polars wraps nanoseconds before 1677 and after 2262 around, but no microseconds in the years 1 to 9999.
        moment = pl.when(moment.to_physical() // 1000 == read("us").to_physical()).then(moment)
    return pl.when(bare.str.contains(TIMESTAMP)).then(moment)


def _offset_length(offset: pl.Expr, unit: Any) -> pl.Expr:
    """Return the length of time that an offset from UTC stands for, as `+05:30`; none for `Z` and null."""
    digits = offset.str.replace_all(":", "", literal=True)
    hours, minutes, seconds = (digits.str.slice(at, 2).cast(pl.Int64, strict=False).fill_null(0) for at in (1, 3, 5))
    sign = pl.when(offset.str.starts_with("-")).then(-1).otherwise(1)
    return pl.duration(seconds=sign * (3600 * hours + 60 * minutes + seconds), time_unit=unit)


def _with_exponents(text: pl.Expr, target: Type) -> pl.Expr:
    """Return the decimals of numbers such as `1.5e-05`, null for other texts.

    polars computes a function of Python for each mention anew: it stands behind what is computed of other texts, not before it.
    """
    dtype = target.to_polars()
    digits, unit = Context(prec=target.precision), Decimal(1).scaleb(-target.scale)

    def of(values: pl.Series) -> pl.Series:
        at = values.str.contains("[eE]").arg_true()
        if at.is_empty():
            return pl.repeat(None, len(values), dtype=dtype, eager=True)
        found: list[Decimal | None] = [None] * len(values)
        for place, number in zip(at, values.gather(at).str.extract(EXPONENT, 0), strict=True):
            if number is not None:
                with suppress(InvalidOperation):  # too many digits
                    found[place] = Decimal(number).quantize(unit, ROUND_HALF_UP, digits)
        return pl.Series(values.name, found, dtype)

    return text.map_batches(of, return_dtype=dtype, is_elementwise=True)


def _text_to_decimal(text: pl.Expr, target: Type) -> tuple[pl.Expr, pl.Expr]:
    """Return the decimals, and a mask of the texts that are numbers. Only the first digit that is cut decides the rounding half away from zero."""
    digits = text.str.strip_chars_start("+-")
    whole = digits.str.split(".").list.get(0, null_on_oob=True).str.strip_chars_start("0")
    fraction = digits.str.split(".").list.get(1, null_on_oob=True).fill_null("")
    kept = fraction.str.slice(0, target.scale).str.pad_end(target.scale, "0")
    up = fraction.str.slice(target.scale, 1).fill_null("").is_in(pl.Series(["5", "6", "7", "8", "9"]).implode())
    number = ("0" + whole + kept).cast(pl.Int128, strict=False) + up.cast(pl.Int128)
    fits = text.str.contains(DECIMAL) & (whole.str.len_chars() <= MAX_PRECISION) & ~too_long(number, target.precision)
    fits = fits.fill_null(value=False)
    signed = pl.when(text.str.starts_with("-")).then(minus(number)).otherwise(number)
    moved = _with_exponents(text, target)
    plain = scaled(pl.when(fits).then(signed), target)
    return pl.when(fits).then(plain).otherwise(moved), fits | text.is_null() | moved.is_not_null()


def to_text(source: Type, value: pl.Expr) -> pl.Expr:
    """Return values as texts."""
    if source.zone:
        return to_text(replace(source, zone=None), clocks(value, source)) + value.dt.to_string("%::z").str.replace(
            r"(:00){1,2}$", ""
        )
    if source.kind in ("datetime", "time"):
        written = value.dt.to_string("%H:%M:%S%.f" if source.kind == "time" else "%Y-%m-%d %H:%M:%S%.f")
        return written.str.replace(r"(\.[0-9]*?)0+$", "$1").str.strip_suffix(".")
    if source.is_float:
        # Lanes have no -0.0, so text must have none either.
        return pl.when(value == 0).then(pl.lit("0.0")).otherwise(_float_text(value))
    return value.cast(pl.String)


def _float_text(value: pl.Expr) -> pl.Expr:
    """Return floats as DuckDB and Python write them: polars writes other exponents below 0.0001, and `NaN`."""
    written = value.cast(pl.String).str.replace("NaN", "nan", literal=True)
    for zeros in (5, 6):
        written = written.str.replace(f"^(-?)0[.]0{{{zeros - 1}}}([1-9])([0-9]*)$", f"${{1}}${{2}}.${{3}}e-0{zeros}")
    return written.str.replace(".e", "e", literal=True).str.replace("e-([0-9])$", "e-0${1}")


def _temporal(low: Lowering, cast: Cast, value: pl.Expr) -> pl.Expr:
    """Convert between dates, times, timestamps and lengths of time: with and without a zone by the times on its clocks."""
    source, target = cast.argument.type, cast.type
    if bool(source.zone) != bool(target.zone):
        if source.zone:
            found = _moved(low, cast, clocks(value, source), replace(source, zone=None), target)
        else:
            local = replace(target, zone=None)
            found = instants(_moved(low, cast, value, source, local), target)
        beyond = outside(found.to_physical(), target)
        _fail(low, cast, beyond)
        return pl.when(~beyond).then(found)
    return _moved(low, cast, value, source, target)


def _moved(low: Lowering, cast: Cast, value: pl.Expr, source: Type, target: Type) -> pl.Expr:
    dtype = target.to_polars()
    if source == target:
        return value
    if source.kind == "date":
        most = integer_range("int64")[1] // (86400 * target.per_second)
        days = value.to_physical()
        _fail(low, cast, (days > most) | (days < -most))
        return (days.cast(pl.Int64) * (86400 * target.per_second)).cast(dtype)
    if source.unit == "ns" and target.kind == "date":  # as in DuckDB by way of microseconds
        source = replace(source, unit="us")
        value = rounded_unit(value.to_physical(), 1000).cast(source.to_polars())
    if target.kind == "date":
        return (value.to_physical() // (86400 * source.per_second)).cast(pl.Int32).cast(pl.Date)
    if target.kind == "time":
        return value.dt.time()
    before, after = source.per_second, target.per_second
    number = value.to_physical()
    if after > before:
        factor = after // before
        most = integer_range("int64")[1] // factor
        _fail(low, cast, (number > most) | (number < -most))
        number = number * factor
    elif after < before:
        number = rounded_unit(number, before // after)
    return number.cast(dtype)


def rounded_unit(number: pl.Expr, size: int) -> pl.Expr:
    """Return integers in a unit that is so many times as large, rounded half away from zero."""
    whole, rest = number // size, number % size
    return whole + ((2 * rest > size) | ((2 * rest == size) & (number > 0))).cast(pl.Int64)

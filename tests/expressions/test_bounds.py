"""Ranges of expressions: every value lies within, and what they prove needs no check is computed as with the check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from ddcli.errors import InputError, SpecError
from ddcli.expressions import stage
from ddcli.expressions.parse import parse_scalar
from ddcli.expressions.ranges import bounds, is_safe
from ddcli.expressions.stage import evaluation
from ddcli.expressions.tree import Call
from ddcli.expressions.types import ColumnScope
from tests.draws import chance, many
from tests.expressions.support import schema, text

if TYPE_CHECKING:
    from random import Random

    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema

TYPES = ("decimal(38, 0)", "decimal(38, 10)", "decimal(20, 18)?", "decimal(15, 2)", "decimal(4, 4)", "int64?", "uint8")
LITERALS = (
    "1",
    "0",
    "-3",
    "0.5",
    "1.0000000001",
    "99999999999999999999",
    "12345678901234567890.123456789012345678",
    "null",
)

FORMS = (
    *("({} + {})", "({} - {})", "({} * {})", "({} * {})", "({} / {})", "({} % {})", "-({})", "abs({})", "round({}, 1)"),
    *("coalesce({}, {})", "greatest({}, {})", "least({}, {})", "case when a > 0 then {} else {} end"),
    *("try_add({}, {})", "try_multiply({}, {})", "cast({} as decimal(38, 3))", "cast({} as decimal(10, 0))"),
    "try_cast({} as decimal(38, 20))",
)


def written(draw: Random, columns: list[str], depth: int) -> str:
    """Return a text of sums, products, choices and casts."""
    if not depth or draw.random() < 0.2:
        return draw.choice([*columns, *columns, draw.choice(LITERALS)])
    one, other = (written(draw, columns, depth - 1) for _ in range(2))
    return draw.choice(FORMS).format(one, other)


def frame_of(draw: Random, given: Schema) -> pl.DataFrame:
    """Return some rows, of whose columns a few reach the ends of their types."""
    found: dict[str, Any] = {}
    for name, kind in given.items():
        most = 255 if kind.kind == "uint8" else 2**63 - 1 if kind.is_integer else 10**kind.precision - 1
        most = draw.choice([most, most, draw.choice([1, 10**9, 10**17]) % (most + 1)])
        values = [draw.choice([most, -most, 0, 1, -1, draw.randint(-most, most)]) for _ in range(5)]
        values = [abs(value) if kind.kind == "uint8" else value for value in values]
        series = pl.Series(name, values, dtype=pl.Int128)
        series = series.cast(kind.to_polars()) if kind.is_integer else series.reinterpret(dtype=kind.to_polars())
        found[name] = series.set(pl.Series([draw.random() < 0.2 for _ in values]), None) if kind.nullable else series
    return pl.DataFrame(found)


def unscaled(series: pl.Series) -> list[int]:
    return [int(value) for value in series.drop_nulls().to_physical().cast(pl.Int128).to_list()]


def outcome(expression: Expression, frame: pl.DataFrame) -> Any:
    try:
        return evaluation([("x", expression)]).run(frame)["x"].to_list()
    except InputError as error:
        return error.problem


@pytest.mark.in_turn
@pytest.mark.parametrize("seed", range(many(30)))
def test_ranges_hold_every_value_and_prove_what_they_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = chance("bounds", seed)
    proved = 0
    for _ in range(30):
        given = schema({name: draw.choice(TYPES) for name in "abc"})
        try:
            expression = parse_scalar(text(written(draw, [*given], draw.choice([1, 2, 3]))), ColumnScope(given))
        except SpecError:
            continue
        frame = frame_of(draw, given)
        with monkeypatch.context() as patch:
            patch.setattr(stage, "LARGE", 10**9)
            meant = outcome(expression, frame)
            patch.setattr(stage, "LARGE", 1)
            assert outcome(expression, frame) == meant
            ranges = {name: (min(each), max(each)) for name in given if (each := unscaled(frame[name]))}
            for node in expression.walk():
                if isinstance(node, Call) and node.type.kind == "decimal" and is_safe(node, ranges):
                    proved += 1
                    assert not isinstance(outcome(node, frame), str) or any(
                        isinstance(outcome(child, frame), str) for child in node.children
                    )
                if node.columns() and (node.type.is_integer or node.type.kind == "decimal"):
                    found, within = outcome(node, frame), bounds(node, ranges)
                    if isinstance(found, str) or within is None:
                        continue
                    dtype = node.type.to_polars()
                    for value in unscaled(pl.Series(found, dtype=dtype)):
                        assert within[0] <= value <= within[1], (str(node), value, within)
    assert proved


SIZES = [0, 1, 7, 8, 1000, 10**6, 10**9, 10**18]


@pytest.mark.parametrize(
    ("kind", "factor", "most", "needed"),
    [
        ("int64", 1000, 2**63 - 1, 2),
        ("decimal(19, 0)", 10**14, 10**38 - 1, 1),
    ],  # 19 digits, 14, and few of the other column
)
def test_each_frame_is_checked_by_what_it_holds(
    kind: str, factor: int, most: int, needed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame after one that can't fail is checked where its own values can; one that fails leaves those after it alone."""
    monkeypatch.setattr(stage, "LARGE", 1)
    given = schema({"a": kind, "b": kind})
    asked = evaluation([("x", parse_scalar(text(f"a * b * {factor}"), ColumnScope(given)))])
    draw, failed = chance("frames", 0), 0
    drawn = [([1, -1][at % 2] * draw.choice(SIZES), draw.choice(SIZES)) for at in range(40)]
    for a, b in [(1, 7), *drawn]:
        rows = [(a, b), (1, draw.choice([1, 2]))]
        frame = pl.DataFrame({name: [row[at] for row in rows] for at, name in enumerate("ab")}).cast(
            {name: column.to_polars() for name, column in given.items()}
        )
        if abs(factor * a * b) > most:
            failed += 1
            with pytest.raises(InputError, match="overflow"):
                asked.run(frame)
        else:
            assert [int(x) for x in asked.run(frame)["x"]] == [factor * a * b for a, b in rows]
    assert 0 < failed < len(drawn)
    asked.run(frame[1:])
    assert len(asked._wide[0]) == needed


def test_small_values_of_wide_decimals_need_no_check() -> None:
    given = schema({"a": "decimal(31, 4)", "b": "decimal(16, 2)", "c": "decimal(38, 0)"})
    ranges = {"a": (-(10**12), 10**12), "b": (0, 110), "c": (0, 10**36)}
    proved = {"a * b": True, "a * c": False, "c + 1": True, "c + 0.5": True, "c - 0.001": False, "a * a * a": True}
    for asked, safe in proved.items():
        expression = parse_scalar(text(asked), ColumnScope(given))
        assert is_safe(expression, ranges) == safe, asked
    # A term that has no room in the scale of the sum fails, whatever is taken off.
    terms = schema({"c": "decimal(38, 0)", "d": "decimal(38, 1)"})
    assert not is_safe(
        parse_scalar(text("c - d"), ColumnScope(terms)),
        {"c": (2 * 10**37, 2 * 10**37), "d": (15 * 10**37, 15 * 10**37)},
    )
    assert not is_safe(parse_scalar(text("a * b"), ColumnScope(given)), {"a": (0, 10**31 - 1), "b": (0, 10**16 - 1)})
    assert bounds(parse_scalar(text("b * 1.5"), ColumnScope(given)), ranges) == (0, 1650)
    assert bounds(parse_scalar(text("cast(b as decimal(10, 0))"), ColumnScope(given)), ranges) == (0, 2)
    assert evaluation([("x", parse_scalar(text("a * b"), ColumnScope(given)))]).ranged == ["a", "b"]

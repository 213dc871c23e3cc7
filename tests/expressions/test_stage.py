"""Stages: fused steps, row numbers, weights, masks, failing rows, Python functions."""

from __future__ import annotations

import sys
import types
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from ddcli.errors import InputError, SpecError
from ddcli.expressions import stage
from ddcli.expressions.parse import parse_scalar, parse_table
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import ExplodeStep, FilterStep, MapStep, PythonStep, Step, UnnestStep, text_of
from ddcli.expressions.types import ColumnScope
from tests.expressions.support import frame_of, schema, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema

SCHEMA = schema({"a": "int64", "b": "int64?", "s": "string?", "xs": "list[int64]?"})


def read(written: str, columns: Schema = SCHEMA) -> Expression:
    return parse_scalar(text(written), ColumnScope(columns))


def mapped(columns: Schema = SCHEMA, **expressions: str) -> MapStep:
    return MapStep(tuple((name, read(written, columns)) for name, written in expressions.items()))


def run(
    steps: tuple[Step, ...], **data: list[object]
) -> tuple[list[dict[str, object]], list[int] | None, list[int] | None]:
    stage = FusedSteps(SCHEMA, steps)
    result = stage.run(pl.DataFrame([pl.Series(n, v, dtype=SCHEMA[n].to_polars()) for n, v in data.items()]))
    assert dict(result.frame.schema) == {name: type_.to_polars() for name, type_ in stage.schema.items()}
    rows, weights = (None if each is None else each.tolist() for each in result[1:])
    return result.frame.to_dicts(), rows, weights


@pytest.fixture(params=["small", "large"], autouse=True)
def frame_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run everything by the path of large frames too."""
    monkeypatch.setattr(stage, "LARGE", 1 if request.param == "large" else 10**9)


def test_filter_and_map() -> None:
    steps = (FilterStep(read("a > 1")), mapped(x="a * 2", one="1"))
    assert FusedSteps(SCHEMA, steps).needs == {"a"}
    assert run(steps, a=[1, 2, 3]) == ([{"x": 4, "one": 1}, {"x": 6, "one": 1}], [1, 2], None)
    assert run(steps, a=[]) == ([], None, None)
    assert run(steps, a=[5]) == ([{"x": 10, "one": 1}], None, None)


def test_a_constant_needs_a_column_to_count() -> None:
    stage = FusedSteps(SCHEMA, (mapped(one="1"),))
    assert stage.needs == {"a"}
    assert run((mapped(one="1"),), a=[7, 8])[0] == [{"one": 1}, {"one": 1}]
    assert run((FilterStep(read("true")), mapped(a="a")), a=[7, 8])[0] == [{"a": 7}, {"a": 8}]
    assert run((FilterStep(read("null")), mapped(a="a")), a=[7, 8]) == ([], [], None)


def test_filter_drops_null() -> None:
    assert run((FilterStep(read("b > 1")), mapped(b="b")), a=[0, 0, 0], b=[None, 1, 2]) == ([{"b": 2}], [2], None)


def test_rows_are_composed() -> None:
    steps = (FilterStep(read("a > 1")), mapped(y="a"), FilterStep(read("y < 4", schema({"y": "int64"}))))
    assert run(steps, a=[1, 2, 5, 3]) == ([{"y": 2}, {"y": 3}], [1, 3], None)


def test_unnest() -> None:
    steps = (UnnestStep("x", parse_table(text("unnest(xs)"), ColumnScope(SCHEMA))), mapped(a="a"))
    assert run(steps, a=[1, 2, 3, 4], xs=[[10, None], [], None, [7]]) == (
        [{"a": 1}, {"a": 1}, {"a": 4}],
        [0, 0, 3],
        None,
    )
    steps = (UnnestStep("x", parse_table(text("unnest(xs)"), ColumnScope(SCHEMA))),)
    found, rows, _ = run(steps, a=[1, 2], b=[0, 0], s=["", ""], xs=[[10, None], [7]])
    assert [row["x"] for row in found] == [10, None, 7]
    assert rows == [0, 0, 1]


def test_generate_series(monkeypatch: pytest.MonkeyPatch) -> None:
    def series(written: str, **data: list[object]) -> list[object]:
        call = parse_table(text(written), ColumnScope(SCHEMA))
        return [
            row["s"]
            for row in run((UnnestStep("s", call), MapStep((("s", read("s", {**SCHEMA, "s": call.type})),))), **data)[0]
        ]

    assert series("generate_series(1, a)", a=[3, 0]) == [1, 2, 3]
    assert series("generate_series(a, 1, -2)", a=[5]) == [5, 3, 1]
    assert series("generate_series(1, b)", a=[0, 0], b=[None, 2]) == [1, 2]
    assert series("generate_series(1, 2)", a=[0, 0]) == [1, 2, 1, 2]
    with pytest.raises(InputError, match="step of zero"):
        series("generate_series(1, 2, a)", a=[0])
    for written in ("1, a", "a, 1, -1", "0, 10 * a, 10"):
        with pytest.raises(InputError, match=r"a series of too many values(.|\n)*at most 10 000 000 records"):
            series(f"generate_series({written})", a=[1, 10**17])
    with monkeypatch.context() as patch:
        patch.setattr(stage, "LONGEST_SERIES", 3)
        assert series("generate_series(1, a)", a=[3]) == [1, 2, 3]
        assert series("generate_series(a, 1, -2)", a=[6]) == [6, 4, 2]
        for a in (4, 2**63 - 1):
            with pytest.raises(InputError, match=r"too many values|integer overflow"):
                series("generate_series(1, a)", a=[a])


def test_explode() -> None:
    steps = (ExplodeStep(read("a")), FilterStep(read("a <> 2")), ExplodeStep(read("a + 1")), mapped(a="a"))
    assert run(steps, a=[1, 2, 3]) == ([{"a": 1}, {"a": 3}], [0, 2], [2, 12])
    with pytest.raises(InputError, match="null multiplicity"):
        run((ExplodeStep(read("b")),), a=[1], b=[None], s=[""], xs=[[]])
    with pytest.raises(InputError, match="overflow in multiplicities"):
        run((ExplodeStep(read("a")), ExplodeStep(read("a"))), a=[2**40], b=[1], s=[""], xs=[[]])


@pytest.mark.parametrize(
    ("written", "data", "problem"),
    [
        ("a / b", {"a": [1, 3], "b": [1, 0]}, "division by zero in `a / b`, in the row where a = 3, b = 0"),
        ("a + 1", {"a": [1, 2**63 - 1]}, "integer overflow in `a + 1`, in the row where a = 9223372036854775807"),
        ("-a", {"a": [-(2**63)]}, "integer overflow"),
        ("a * a", {"a": [2**32]}, "integer overflow"),
        ("a // -1", {"a": [-(2**63)]}, "integer overflow"),
        (
            "cast(s as int64)",
            {"a": [0, 0], "s": ["1", "x"]},
            "a value is no int64 in `cast(s as int64)`, in the row where s = 'x'",
        ),
        ("list_sum(xs)", {"xs": [[1], [2**63 - 1, 1]]}, "in the row where xs = [9223372036854775807, 1]"),
        ("cast(a as tinyint)", {"a": [128]}, "out of range for int8"),
        ("cast(a as int)", {"a": [2**31]}, "out of range for int32"),
        ("1 / (a - a)", {"a": [1]}, "division by zero"),
        ("sqrt(a)", {"a": [-1]}, "square root"),
        ("1 / 0", {"a": [1]}, "division by zero"),
    ],
)
def test_failing_rows(written: str, data: dict[str, list[object]], problem: str) -> None:
    """The problem, the expression as written, and the row."""
    with pytest.raises(InputError) as caught:
        run((mapped(x=written),), **data)
    assert problem in caught.value.problem
    assert caught.value.span
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("case when b <> 0 then a / b else 0 end", [2, 0, 0]),
        ("coalesce(b, a / 0)", None),
        ("b <> 0 and a / b > 1", [True, False, None]),
        ("b = 0 or a / b > 1", [True, True, None]),
        ("case when b = 0 then 0 when a / b > 1 then 1 else 2 end", [1, 0, 2]),
        ("if(b is null, 0, if(b = 0, 1, a / b))", [2, 1, 0]),
        ("try_divide(a, b)", [2, None, None]),
        ("a / nullif(b, 0)", [2, None, None]),
        ("try_cast(s as int64)", [1, None, None]),
    ],
)
def test_what_is_not_reached_does_not_fail(written: str, expected: list[object] | None) -> None:
    """Masks: branches not taken, and the right sides of `and` and `or`."""
    data = {"a": [4, 4, 4], "b": [2, 0, None], "s": ["1", "x", None]}
    if expected is None:
        with pytest.raises(InputError, match="division by zero"):
            run((mapped(x=written),), **data)
        expected, data = [2, 0], {"a": [4, 4], "b": [2, 0], "s": ["1", "x"]}
    assert [row["x"] for row in run((mapped(x=written),), **data)[0]] == expected


def test_filtered_rows_do_not_fail() -> None:
    steps = (FilterStep(read("b <> 0")), mapped(x="a / b"))
    assert run(steps, a=[4, 4, 6], b=[0, None, 2]) == ([{"x": 3}], [2], None)


def test_what_nothing_needs_is_not_evaluated() -> None:
    columns = schema({"x": "int64", "y": "int64"})
    steps = (mapped(x="a", y="a / 0"), mapped(columns, x="x"))
    assert run(steps, a=[1])[0] == [{"x": 1}]


@pytest.fixture(autouse=True)
def functions() -> Iterator[types.ModuleType]:
    """Offer a module of a user's functions."""
    module = types.ModuleType("functions_of_tests")

    def words(record: dict[str, str]) -> Iterator[dict[str, object]]:
        for word in (record["s"] or "").split():
            yield {"word": word, "size": len(word)}

    def broken(record: dict[str, int]) -> list[dict[str, object]]:
        return [{"word": "x" * (6 // record["a"]), "size": 1}]

    def misshapen(record: dict[str, int]) -> dict[str, object]:
        return {"word": record["a"], "size": 1}

    def doubled(frame: pl.DataFrame) -> pl.DataFrame:
        given = frame.select("row", word="s", size=pl.col("a").cast(pl.Int32))
        return pl.concat([given, given]).sort("row")

    for function in (words, broken, misshapen, doubled):
        setattr(module, function.__name__, function)
    module.nulls = lambda _: [{"word": None, "size": 1}]  # type: ignore[attr-defined]
    module.missing = lambda _: [{"word": ""}]  # type: ignore[attr-defined]
    module.no_frame = lambda _: 1  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def step(name: str, *, batch: bool = False) -> PythonStep:
    return PythonStep(f"functions_of_tests:{name}", batch, tuple(schema({"word": "string", "size": "int64"}).items()))


DATA: dict[str, list[object]] = {"a": [1, 0, 2], "b": [None] * 3, "s": ["a bc", None, "d"], "xs": [None] * 3}


def test_python_by_record() -> None:
    found = [{"word": "a", "size": 1}, {"word": "bc", "size": 2}, {"word": "d", "size": 1}]
    assert run((step("words"),), **DATA) == (found, [0, 0, 2], None)


def test_python_in_batches() -> None:
    data = {**DATA, "s": ["x", "y", "z"]}
    found, rows, _ = run((step("doubled", batch=True),), **data)
    assert rows == [0, 0, 1, 1, 2, 2]
    assert found[0] == {"word": "x", "size": 1}


@pytest.mark.parametrize(
    ("name", "batch", "problem"),
    [
        ("broken", False, "functions_of_tests:broken raised ZeroDivisionError: "),
        ("misshapen", False, "returned 1 for `word`, expected string"),
        ("nulls", False, "returned null for `word`"),
        ("missing", False, "returned the keys ['word'], expected the keys ['size', 'word']"),
        ("no_frame", True, "returned int, expected a polars DataFrame"),
        ("words", True, "returned generator, expected"),
    ],
)
def test_python_functions_that_fail(name: str, batch: bool, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        run((step(name, batch=batch),), **DATA)
    assert problem in caught.value.problem


def test_python_functions_that_are_missing() -> None:
    with pytest.raises(SpecError, match="no function `wrods`"):
        run((step("wrods"),), **DATA)
    missing = PythonStep("no_such_module:f", batch=False, output=())
    with pytest.raises(SpecError, match="can't be imported"):
        run((missing,), **DATA)


def test_text_names_the_steps() -> None:
    steps = (FilterStep(read("a > 1")), ExplodeStep(read("a")), mapped(x="a"), step("words"))
    assert text_of(steps) == (
        "filter (a > 1); explode a; map x: a; python functions_of_tests:words -> word: string, size: int64"
    )


def test_ranges_settle_checks() -> None:
    """Column ranges prove what rows need not be asked for; the doubtful case is still found."""
    n = 50
    frame = frame_of(schema({"a": "int64"}), [{"a": i} for i in range(n)])
    stage = FusedSteps(schema({"a": "int64"}), (mapped(schema({"a": "int64"}), x="a * 1000 + a // (a + 1)"),))
    assert stage.run(frame).frame["x"].to_list() == [i * 1000 for i in range(n)]
    assert np.all(np.diff(stage.run(frame).frame["x"].to_numpy()) > 0)


def test_equal_constants_that_fail_do_so_each_at_its_place() -> None:
    places = []
    for written in ("a + 1 / 0", "a +   1 / 0"):
        with pytest.raises(InputError) as found:
            run((mapped(x=written),), a=[1], b=[1], s=["x"], xs=[[1]])
        places.append(str(found.value.span))
    assert places[0] != places[1]


def test_a_cast_to_a_decimal_calls_python_for_its_value_and_for_its_check_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A function of Python is called once by polars for each place of an expression that names its result."""
    calls: list[int] = []
    map_batches = pl.Expr.map_batches

    def counted(self: pl.Expr, function: Callable[[pl.Series], pl.Series], **options: Any) -> pl.Expr:
        def called(values: pl.Series) -> pl.Series:
            calls.append(len(values))
            return function(values)

        return map_batches(self, called, **options)

    monkeypatch.setattr(pl.Expr, "map_batches", counted)
    stage = FusedSteps(SCHEMA, (mapped(x="cast(s as decimal(6, 2))"),))
    found = stage.run(frame_of(SCHEMA, [{"a": 1, "b": 1, "s": each, "xs": None} for each in ["1.255", "-12e-1"]])).frame
    assert found["x"].to_list() == [Decimal("1.26"), Decimal("-1.20")]
    assert sum(calls) <= 2 * 2


def test_a_decimal_that_its_neighbour_makes_too_long_has_a_hint_for_the_neighbour() -> None:
    """DuckDB refuses it, too: both sides become decimal(38, 32), which has six digits before the point."""
    columns = schema({"d": "decimal(38, 2)", "e": "decimal(38, 32)"})
    few = pl.DataFrame(
        [
            pl.Series(name, [Decimal(value)], columns[name].to_polars())
            for name, value in (("d", "8023425.24"), ("e", "1"))
        ]
    )
    with pytest.raises(InputError, match=r"out of range for decimal\(38, 32\)") as caught:
        FusedSteps(columns, (FilterStep(read("d > e", columns)),)).run(few)
    assert (
        caught.value.hint == "it becomes a decimal(38, 32) for a value beside it: cast that one to fewer decimal places"
    )

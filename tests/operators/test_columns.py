"""Updates whose data are in columns still: operators make of them what they make of lanes, to the order of rows and the errors."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.circuit.linear import linear_operator
from ddcli.engine import lanes
from ddcli.engine.heap import BufferPool
from ddcli.engine.lanes import Columns, Layout, NullInRequired
from ddcli.engine.operators.base import Delta, Operator
from ddcli.engine.operators.linear import Constant, Permute
from ddcli.engine.pool import Pool
from ddcli.engine.rounds import Interval
from ddcli.engine.scope import Scope
from ddcli.engine.times import Frontier
from ddcli.errors import InputError, SpecError
from ddcli.expressions.parse import parse_scalar
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import ExplodeStep, FilterStep, MapStep
from ddcli.expressions.types import ColumnScope, Type
from ddcli.plan import physical
from tests.draws import many
from tests.expressions.grammar import COLUMNS, VALUES, typed
from tests.expressions.support import schema, text
from tests.secret import SECRET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.tree import Step

INTERVAL = Interval(Frontier([(0,)]), Frontier([(3,)]))
GIVEN = schema(COLUMNS | {"l": "list[float64?]?"})
POOLS: dict[str, Sequence[Any]] = VALUES | {"l": (None, [], [0.0, -0.0, None], [float("nan")])}
POOLS["f"] = (*VALUES["f"], -0.0, -float("nan"))


def read(written: str) -> Any:
    return parse_scalar(text(written), ColumnScope(GIVEN))


@st.composite
def chains(draw: st.DrawFn) -> list[Step]:
    """Draw a filter, a map of columns that pass and others that are computed, and a weight: some of these, in this order."""
    steps: list[Step] = []
    try:
        if draw(st.integers(0, 2)):
            kept = draw(st.sampled_from(["p", "r", "j > 0", "8 / j < 5"]))
            steps.append(FilterStep(read(f"({draw(typed(3))}) is not null and {kept}")))
        if draw(st.integers(0, 5)) == 0:
            steps.append(ExplodeStep(read(draw(st.sampled_from(["j", "1", "10 / j"])))))
        passing = draw(st.lists(st.sampled_from([*GIVEN]), max_size=4))
        written = {f"x{at}": name for at, name in enumerate(passing)}
        written |= {f"y{at}": draw(typed(3)) for at in range(draw(st.integers(0, 2)))}
        written |= dict.fromkeys(
            draw(st.sampled_from([[], [], ["z"]])), draw(st.sampled_from(["7", "8 / j", "j + 1", "cast(f as varchar)"]))
        )
        steps.append(MapStep(tuple((name, read(each)) for name, each in written.items() or {"one": "1"}.items())))
    except SpecError:
        return [MapStep((("l", read("l")),))]
    return steps


def updates(seed: int, pool: Pool) -> Columns:
    """Return updates of up to twenty rows, in columns."""
    random = Random(seed)
    height = random.randrange(20)
    columns = [
        pl.Series(name, [random.choice(POOLS[name]) for _ in range(height)], dtype=kind.to_polars())
        for name, kind in GIVEN.items()
    ]
    tail = np.array([[random.randrange(3), random.choice([1, 1, 2, -1])] for _ in range(height)], np.int64)
    return Columns(pl.DataFrame(columns), Layout(GIVEN), pool, tail.reshape(height, 2))


@settings(max_examples=many(100))
@given(chains(), st.integers(0, 2**32), st.booleans())
def test_a_chain_makes_the_same_of_columns_as_of_lanes(steps: list[Step], seed: int, lenient: bool) -> None:
    pool = Pool(SECRET)
    given_columns = updates(seed, pool)
    node = physical.Linear((physical.Scan((), GIVEN, "a", 1),), FusedSteps(GIVEN, tuple(steps)).schema, tuple(steps))
    results = []
    for delta in (Delta(given_columns.matrix()), Delta(given_columns.tail, columns=given_columns)):
        left: list[Any] = []
        failed = (
            (lambda rows, problems, left=left: left.extend(zip(rows.tolist(), problems, strict=True)))
            if lenient
            else None
        )
        operator = linear_operator(node, pool, 1, failed)
        if not operator.takes_columns:
            return
        try:
            found = operator.step([delta], INTERVAL).updates
            assert found.shape[1] == Layout(node.schema).width + 2
            results.append((found.tolist(), left))
        except InputError as error:
            results.append((error.problem, left))
    assert results[0] == results[1]


def test_what_looks_at_rows_alone_takes_columns() -> None:
    kinds = {"c": "int64", "f": "float64", "l": "list[int64]"}
    for written, takes in {"c": False, "c + 1": False, "c * 2": True, "f * c": True, "l[1]": False, "1": True}.items():
        given_kinds = schema(kinds)
        steps = (MapStep((("x", parse_scalar(text(written), ColumnScope(given_kinds))),)),)
        node = physical.Linear((physical.Scan((), given_kinds, "a", 1),), FusedSteps(given_kinds, steps).schema, steps)
        assert linear_operator(node, Pool(SECRET), 1).takes_columns == takes, written
    assert not Permute([], 1).takes_columns
    assert not Permute([Constant(1), 0], 1).takes_columns


class Seen(Operator):
    """Passes on the deltas, and keeps them."""

    def __init__(self, *, takes_columns: bool) -> None:
        self.takes_columns = takes_columns
        self.deltas: list[Delta] = []

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        self.deltas += deltas
        return Delta(np.ones((deltas[0].rows, 3), np.int64))


def first_stage(readers: Sequence[Seen], found: Columns) -> None:
    """Take updates through the stage of a source and of these readers."""
    scope = Scope(streams=True, counted=True)
    source = scope.source(found.layout.width, found.layout)
    for reader in readers:
        scope.add([reader], source, width=1)
    scope.prepare()
    scope.through_first(scope.stages[0], 0, source.index, found, INTERVAL, BufferPool())


@pytest.mark.parametrize("takes", [[True], [True, True], [True, False], [False]])
def test_columns_stay_where_all_readers_take_them(takes: list[bool]) -> None:
    found = updates(3, Pool(SECRET))
    assert len(found.tail)
    readers = [Seen(takes_columns=each) for each in takes]
    first_stage(readers, found)
    for reader in readers:
        (delta,) = reader.deltas
        assert (delta.columns is not None) == all(takes)
        assert delta.updates.tolist() == (found.tail if all(takes) else found.matrix()).tolist()


@pytest.mark.parametrize(
    ("kind", "values", "row"),
    [
        (Type("int64"), [1, 2, None, 4, 5], 2),
        (Type("list", inner=Type("int64")), [[1], [2], [3], [4, None], [5]], 3),
        (Type("struct", fields=(("a", Type("int64")),)), [{"a": 1}, {"a": None}, {"a": 1}, {"a": 1}, {"a": 1}], 1),
    ],
)
def test_a_value_that_no_lanes_stand_for_is_refused_whoever_drops_it(
    kind: Type, values: list[Any], row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with its row among all, as `encode` names it."""
    monkeypatch.setattr(lanes, "BLOCK", 2)
    given_kinds = {"k": Type("int64"), "x": kind}
    frame = pl.DataFrame({"k": range(5), "x": pl.Series(values, dtype=given_kinds["x"].to_polars())})
    found = Columns(frame, Layout(given_kinds), Pool(SECRET), np.ones((5, 2), np.int64))
    for takes in (True, False):
        with pytest.raises(NullInRequired) as caught:
            first_stage([Seen(takes_columns=takes)], found)
        assert (caught.value.column, caught.value.row) == ("x", row)


def test_a_date_outside_of_the_years_is_refused_whoever_drops_it() -> None:
    frame = pl.DataFrame({"x": pl.Series([0, 3_000_000], dtype=pl.Int32).cast(pl.Date)})
    found = Columns(frame, Layout({"x": Type("date")}), Pool(SECRET), np.ones((2, 2), np.int64))
    for takes in (True, False):
        with pytest.raises(InputError, match="in row 1"):
            first_stage([Seen(takes_columns=takes)], found)


def test_logic_sees_the_one_zero_and_the_one_nan() -> None:
    """To the bit, as of lanes: in whatever order columns are asked for."""
    values = [-0.0, 0.0, 1.5, float("nan"), -float("nan"), None]
    kinds = {"f": Type("float64").or_null(), "n": Type("int64"), "g": Type("float32").or_null()}
    frame = pl.DataFrame({"f": values, "n": range(6), "g": values}, schema={n: k.to_polars() for n, k in kinds.items()})
    found = Columns(frame, Layout(kinds), Pool(SECRET), np.ones((6, 2), np.int64))
    shown = found.decoded(["g", "n", "f"])
    meant = lanes.decode(found.matrix(), found.layout, found.pool, ["g", "n", "f"])
    assert shown.columns == meant.columns == ["g", "n", "f"]
    for name in shown.columns:
        assert shown[name].drop_nulls().to_numpy().tobytes() == meant[name].drop_nulls().to_numpy().tobytes()
        assert shown[name].null_count() == meant[name].null_count()

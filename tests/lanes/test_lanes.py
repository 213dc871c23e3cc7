"""Frames to matrices and back: nothing is lost, and lanes compare as values do.

The strategies draw from small domains that collide and from the ends of each range.
"""

from __future__ import annotations

import copy
import datetime as dt
import math
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal, assert_series_equal

from ddcli.engine import lanes
from ddcli.engine.lanes import NULL, Columns, Layout, NullInRequired, decode, encode
from ddcli.engine.pool import Pool
from ddcli.engine.records import decode_records, encode_records
from ddcli.errors import InputError
from ddcli.expressions.moments import limits
from ddcli.expressions.nanoseconds import Fine
from ddcli.expressions.types import INTEGERS, Type
from tests.draws import many
from tests.secret import SECRET

FIXED = [
    *(Type(kind) for kind in (*INTEGERS, "float32", "float64", "bool", "date", "time")),
    *(Type("datetime", unit=unit, zone=zone) for unit in ("ms", "us", "ns") for zone in (None, "Europe/Paris")),
    *(Type("duration", unit=unit) for unit in ("ms", "us", "ns")),
    *(Type("decimal", precision=p, scale=s) for p, s in ((1, 0), (12, 2), (18, 18), (19, 4), (38, 0), (38, 38))),
]
POOLED = [
    Type("string"),
    Type("binary"),
    Type("list", inner=Type("int64", nullable=True)),
    Type("list", inner=Type("uint8")),
    Type("list", inner=Type("string", nullable=True)),
    Type("list", inner=Type("decimal", nullable=True, precision=30, scale=3)),
    Type("list", inner=Type("list", nullable=True, inner=Type("float64", nullable=True))),
    Type("struct", fields=(("a", Type("int64", nullable=True)), ("b", Type("string", nullable=True)))),
    Type("list", inner=Type("struct", nullable=True, fields=(("d", Type("decimal", precision=30, scale=3)),))),
    Type(
        "struct",
        fields=(
            ("s", Type("struct", nullable=True, fields=(("x", Type("float64")),))),
            ("l", Type("list", inner=Type("string"))),
        ),
    ),
]
TYPES = [*FIXED, *POOLED]
TEXTS = [
    "",
    "a",
    "b",
    "\x00",
    "é",
    "twelve bytes",
    "thirteen byte",
    "thirteen bytf",
    "long enough for eight-byte words and more",
    "🦆" * 9,
]


def values(column: Type) -> st.SearchStrategy[Any]:
    """Return a strategy of non-null physical values of a type (see `series`)."""
    kind = column.kind
    if kind in INTEGERS:
        info = np.iinfo(kind)
        return st.sampled_from([0, 1, info.min, info.max, info.max - 1]) | st.integers(int(info.min), int(info.max))
    if kind in ("float32", "float64"):
        special = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 5e-324 if kind == "float64" else 2**-149]
        return st.sampled_from(special) | st.floats(width=32 if kind == "float32" else 64)
    if kind == "bool":
        return st.booleans()
    if kind == "date":
        return st.dates() | st.just(dt.date(1969, 12, 31))
    if kind == "time":
        return st.sampled_from([0, 1, 86_399_999_999_999]) | st.integers(0, 86_399_999_999_999)
    if kind == "datetime":
        first, last = limits(column)
        if column.zone and column.unit != "ns":  # in its zone, too, it is in these years
            first, last = first + 86_400 * column.per_second, last - 86_400 * column.per_second
        return st.sampled_from([0, -1, 1, first, last]) | st.integers(first, last)
    if kind == "duration":
        return st.sampled_from([0, -1, 1, -(2**63), 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
    if kind == "decimal":
        most = 10**column.precision - 1
        unscaled = st.sampled_from([0, 1, -1, most, -most]) | st.integers(-most, most)
        return unscaled.map(lambda number: Decimal(f"{number}e-{column.scale}"))
    if kind == "string":
        return st.sampled_from(TEXTS) | st.text(max_size=20)
    if kind == "binary":
        return st.sampled_from(TEXTS).map(str.encode) | st.binary(max_size=40)
    if column.fields:
        return st.fixed_dictionaries({name: maybe_null(kind) for name, kind in column.fields})
    assert column.inner is not None
    return st.lists(maybe_null(column.inner), max_size=4)


def maybe_null(column: Type) -> st.SearchStrategy[Any]:
    """Return a strategy of values of a type, with nulls where it allows them."""
    return values(column) | st.none() if column.nullable else values(column)


def series(items: list[Any], column: Type, name: str = "x") -> pl.Series:
    """Return a series of a type from Python values; times, datetimes and durations are given as physical integers."""
    dtype = column.to_polars()
    if column.kind in ("time", "datetime", "duration"):
        return pl.Series(name, items, dtype=pl.Int64).cast(dtype)
    return pl.Series(name, items, dtype=dtype)


@st.composite
def columns(draw: st.DrawFn, types: list[Type] = TYPES) -> tuple[Type, pl.Series]:
    """Draw a type, nullable or not, and a series of it in one or several chunks."""
    column = draw(st.sampled_from(types)).or_null(draw(st.booleans()))
    items = draw(st.lists(maybe_null(column), max_size=12))
    whole = series(items, column)
    cut = draw(st.integers(0, len(items)))
    if draw(st.booleans()):
        whole = pl.concat([whole[:cut], whole[cut:]], rechunk=False)
    return column, whole


def side_by_side(typed: list[tuple[Type, pl.Series]]) -> tuple[pl.DataFrame, Layout]:
    """Return columns as a frame of as many rows as the shortest of them has, and its layout."""
    height = min((len(whole) for _, whole in typed), default=0)
    frame = pl.DataFrame([whole[:height].alias(f"c{i}") for i, (_, whole) in enumerate(typed)])
    return frame, Layout({f"c{i}": column for i, (column, _) in enumerate(typed)})


@given(st.lists(columns(), min_size=1, max_size=4), st.integers(0, 2), st.data())
def test_columns_of_many_rows_are_decoded_as_those_of_few(
    typed: list[tuple[Type, pl.Series]], at: int, data: Any
) -> None:
    """Lanes are turned as a whole, those that are known aside; and what was read is what decoding it returns."""
    frame, layout = side_by_side(typed)
    pool = Pool(SECRET)
    out = encode(frame, layout, pool, np.full((frame.height, layout.width + 3), 77, np.int64), at)
    names = data.draw(st.lists(st.sampled_from(layout.names), unique=True))
    wanted = decode(out, layout, pool, names, at)
    known = Columns(frame, layout, pool, out[:, -3:]).exact() if not at and data.draw(st.booleans()) else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "MANY", 0)
        assert_frame_equal(decode(out, layout, pool, names, at, known), wanted)
        assert_frame_equal(decode(out, layout, pool, names, at, known), wanted)


@settings(max_examples=many(25))
@given(columns())
def test_a_column_survives(typed: tuple[Type, pl.Series]) -> None:
    """Encode, then decode: the same values, nulls and dtype."""
    column, whole = typed
    pool, layout = Pool(SECRET), Layout({"x": column})
    matrix = encode(whole.to_frame(), layout, pool)
    assert matrix.shape == (len(whole), layout.width)
    assert_series_equal(decode(matrix, layout, pool)["x"], whole)


@given(st.lists(columns(), min_size=1, max_size=4), st.randoms())
def test_a_frame_survives_between_other_lanes(typed: list[tuple[Type, pl.Series]], random: Any) -> None:
    """Encode into the middle of a wider matrix, and decode some columns in another order."""
    frame, layout = side_by_side(typed)
    pool = Pool(SECRET)
    out = np.full((frame.height, layout.width + 3), 77, np.int64)
    assert encode(frame, layout, pool, out, 2) is out
    assert (out[:, [0, 1, -1]] == 77).all()
    names = random.sample(layout.names, random.randint(1, len(layout.names)))
    assert_frame_equal(decode(out, layout, pool, names, at=2), frame.select(names))
    shuffled = Layout({name: layout.schema[name] for name in names})
    moved = out[:, 2:][:, layout.take(names)]
    assert_frame_equal(decode(moved, shuffled, pool), frame.select(names))


@given(st.lists(columns(), min_size=2, max_size=4))
def test_columns_are_decoded_once_for_readers_of_other_names(typed: list[tuple[Type, pl.Series]]) -> None:
    """Readers that call columns otherwise get what is decoded already, and never another column or type."""
    frame, layout = side_by_side(typed)
    pool = Pool(SECRET)
    out, decoded = encode(frame, layout, pool), {}
    assert_frame_equal(decode(out, layout, pool, ["c1"], decoded=decoded), frame.select("c1"))
    called = {name: f"d{i}" for i, name in enumerate(reversed(layout.names))}
    other = Layout({called[name]: kind for name, kind in layout.schema.items()})
    assert_frame_equal(decode(out, other, pool, decoded=decoded), frame.rename(called))
    assert len(decoded) == len(typed)
    assert_frame_equal(decode(out, layout, pool, decoded=decoded), frame)
    assert len(decoded) == len(typed)


def before(one: Any, other: Any) -> int:
    """Compare two values as a person sorts them: null last, NaN after every number, and one zero."""
    ranks = [(x is None, isinstance(x, float) and math.isnan(x)) for x in (one, other)]
    if ranks[0] != ranks[1] or any(ranks[0]):
        return (ranks[0] > ranks[1]) - (ranks[0] < ranks[1])
    return (one > other) - (one < other)


@pytest.mark.parametrize("column", FIXED, ids=str)
@settings(max_examples=many(20))
@given(data=st.data())
def test_lanes_are_ordered_as_values(column: Type, data: st.DataObject) -> None:
    """Sorting tuples of lanes sorts values, nulls last, and equal lanes are equal values."""
    column = column.or_null(data.draw(st.booleans()))
    items = data.draw(st.lists(maybe_null(column), max_size=12))
    lanes = encode(series(items, column).to_frame(), Layout({"x": column}), Pool(SECRET))
    keys = [tuple(row) for row in lanes.tolist()]
    for item, key in zip(items, keys, strict=True):
        for item_2, key_2 in zip(items, keys, strict=True):
            assert before(item, item_2) == (key > key_2) - (key < key_2)
    assert sorted(keys) == [
        key for _, key in sorted(zip(items, keys, strict=True), key=cmp_to_key(lambda x, y: before(x[0], y[0])))
    ]


@pytest.mark.parametrize("column", TYPES, ids=str)
@settings(max_examples=many(20))
@given(data=st.data())
def test_lanes_are_equal_as_values(column: Type, data: st.DataObject) -> None:
    """Two values of a type share their lanes exactly when they are equal, in whichever batch they come."""
    column = column.or_null(data.draw(st.booleans()))
    items = data.draw(st.lists(maybe_null(column), max_size=8))
    pool, layout = Pool(SECRET), Layout({"x": column})
    frames = [series([item], column).to_frame() for item in items]
    keys = [tuple(encode(frame, layout, pool)[0].tolist()) for frame in frames]
    for frame, key in zip(frames, keys, strict=True):
        for frame_2, key_2 in zip(frames, keys, strict=True):
            assert frame.equals(frame_2) == (key == key_2)


@pytest.mark.parametrize("column", TYPES, ids=str)
def test_a_null_where_none_is_allowed_is_refused(column: Type) -> None:
    """Name the column and the first row."""
    nulls = series([None], column, "fare")
    present = encode(nulls.to_frame(), Layout({"fare": column.or_null()}), Pool(SECRET))
    assert NULL in present[0] or present[0].tolist() == [1, 0]
    frame = pl.concat([series([], column, "fare"), nulls]).to_frame()
    with pytest.raises(NullInRequired, match="column 'fare' has a null in row 0") as caught:
        encode(frame, Layout({"fare": column}), Pool(SECRET))
    assert (caught.value.column, caught.value.row, caught.value.exit_code) == ("fare", 0, 3)


def test_the_null_type_is_all_nulls() -> None:
    """Carry a column that never had a value."""
    layout, frame = Layout({"x": Type("null", nullable=True)}), pl.DataFrame({"x": [None, None]})
    matrix = encode(frame, layout, Pool(SECRET))
    assert matrix.tolist() == [[NULL], [NULL]]
    assert_frame_equal(decode(matrix, layout, Pool(SECRET)), frame)


def test_integers_are_not_copied_into_the_pool() -> None:
    """Encode integers with no pool at all."""
    layout, frame = Layout({"x": Type("int64"), "y": Type("int32", nullable=True)}), pl.DataFrame({"x": [1], "y": [2]})
    frame = frame.cast({"y": pl.Int32})
    nothing: Any = None
    assert encode(frame, layout, nothing).tolist() == [[1, 2]]


def test_a_frame_of_another_dtype_is_a_bug_of_the_caller() -> None:
    """Refuse to guess a cast."""
    with pytest.raises(AssertionError, match="column 'x' is Int32, not int64"):
        encode(pl.DataFrame({"x": [1]}).cast(pl.Int32), Layout({"x": Type("int64")}), Pool(SECRET))


def test_a_layout_knows_the_lanes_of_its_columns() -> None:
    """Give a flag to nullable kinds that use all 64 bits, and two lanes to wide decimals."""
    wide, flagged = Type("decimal", nullable=True, precision=38), Type("int64", nullable=True)
    layout = Layout({"a": Type("int64"), "b": flagged, "c": wide, "d": Type("int32", nullable=True)})
    assert layout.width == 6
    assert [layout.lanes(name) for name in "abcd"] == [range(1), range(1, 3), range(3, 5), range(5, 6)]
    assert layout.take("db") == [5, 1, 2]
    assert layout == Layout(layout.schema)
    assert layout != Layout(dict(reversed(layout.schema.items())))


def test_a_record_without_columns_keeps_its_rows() -> None:
    """Count rows even where nothing is in them."""
    assert decode(np.empty((3, 2), np.int64), Layout({}), Pool(SECRET)).height == 3


# Python's own times end at microseconds; see the next tests.
PLAIN = [column for column in TYPES if column.kind not in ("time", "datetime", "duration")]


@given(st.lists(columns(PLAIN), max_size=4))
def test_records_and_frames_have_the_same_lanes(typed) -> None:
    """Python records encode as the frame of the same values does, and come back as polars gives them."""
    frame, layout = side_by_side(typed)
    pool = Pool(SECRET)
    matrix = encode(frame, layout, pool) if typed else np.empty((3, 0), np.int64)
    records = frame.rows() if typed else [()] * 3
    found = decode_records(np.column_stack([matrix, matrix[:, :0]]), layout, pool)
    assert repr(found).replace("-0.0", "0.0") == repr(records).replace("-0.0", "0.0")
    assert encode_records(records, layout, pool).tolist() == matrix.tolist()


NEAR = [0, 1, 2, 999, 1000, 1001, 1999, 86_399_999_999, 10**18]
"""Counts of a type's units: of nanoseconds several are in one microsecond, of all units none is beyond Python's years."""
TIMED = [column for column in TYPES if column.kind in ("time", "datetime", "duration")]
TIMED += [Type("list", inner=column.or_null()) for column in TIMED]
TIMED += [Type("struct", fields=(("a", column.or_null()), ("b", Type("int64", True)))) for column in TIMED]


@st.composite
def counts(draw, column: Type) -> Any:
    """Draw a value of a type as the integers that polars takes for it."""
    if draw(st.integers(0, 5)) == 0 and column.nullable:
        return None
    if column.inner:
        return draw(st.lists(counts(column.inner), max_size=3))
    if column.fields:
        return {name: draw(counts(kind)) for name, kind in column.fields}
    count = draw(st.sampled_from(NEAR))
    count = (
        count % (86_400 * 10**9) if column.kind == "time" else count // {"ms": 10**5, "us": 10**3}.get(column.unit, 1)
    )
    return -count if column.kind in ("datetime", "duration") and draw(st.booleans()) else count


@given(st.sampled_from(TIMED).flatmap(lambda column: st.tuples(st.just(column), st.lists(counts(column), max_size=4))))
def test_times_go_there_and_back(drawn) -> None:
    """A record has all digits of its times, written as a frame has them, and two are equal and in order as their counts are."""
    column, values = drawn
    pool, layout = Pool(SECRET), Layout({"t": column})
    frame = pl.DataFrame([pl.Series("t", values, dtype=column.to_polars())])
    matrix = encode(frame, layout, pool)
    records = decode_records(matrix, layout, pool)
    assert encode_records(records, layout, pool).tolist() == matrix.tolist()
    assert [record == other for (record,) in records for (other,) in records] == [
        a == b for a in values for b in values
    ]
    if column.inner or column.fields:
        return
    assert [record < other for (record,) in records for (other,) in records] == [a < b for a in values for b in values]
    for (record,), text in zip(records, frame["t"].to_list(), strict=True):
        assert copy.copy(record) == record
        assert len({record, text}) == 1 + isinstance(record, Fine)
    if column.kind == "datetime" and column.unit == "ns":
        shown = [str(record).partition("+")[0].ljust(20, ".").ljust(29, "0") for (record,) in records]
        assert shown == frame["t"].dt.strftime("%Y-%m-%d %H:%M:%S.%9f").to_list()


def test_records_of_times_are_encoded() -> None:
    """Values within Python's reach go there and back."""
    moment = dt.datetime(2013, 1, 1, 5, 17, 0, 1)  # noqa: DTZ001 - a column without a zone
    layout = Layout({"t": Type("datetime", unit="us"), "d": Type("duration", True, unit="us"), "c": Type("time")})
    records = [(moment, dt.timedelta(days=-1, microseconds=1), dt.time(23, 59)), (moment, None, dt.time(0, 0))]
    assert decode_records(encode_records(records, layout, Pool(SECRET)), layout, Pool(SECRET)) == records


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (Type("int64"), 2**63),
        (Type("int64"), "1"),
        (Type("int64"), 1.0),
        (Type("int64"), True),
        (Type("int8"), 128),
        (Type("uint64"), -1),
        (Type("bool"), 1),
        (Type("float64"), "1.0"),
        (Type("float64"), 10**309),
        (Type("string"), "\ud800"),
        (Type("string"), b"a"),
        (Type("binary"), "a"),
        (Type("date"), "tomorrow"),
        (Type("list", inner=Type("int64")), ["a"]),
    ],
)
def test_a_value_of_another_type_is_refused(column: Type, value: Any) -> None:
    """Name the column, the value and the type."""
    with pytest.raises(InputError, match="column 'x' can't hold") as caught:
        encode_records([(value,)], Layout({"x": column}), Pool(SECRET))
    assert repr(value) in caught.value.problem
    assert str(column) in caught.value.problem


def test_a_record_of_another_length_is_refused() -> None:
    """Say what columns there are."""
    layout = Layout({"p": Type("int64"), "m": Type("int64")})
    with pytest.raises(InputError, match=r"the record \(1,\) has 1 values, not one for each of: p, m"):
        encode_records([(1, 2), (1,)], layout, Pool(SECRET))
    with pytest.raises(NullInRequired, match="column 'm' has a null in row 1"):
        encode_records([(1, 2), (1, None)], layout, Pool(SECRET))

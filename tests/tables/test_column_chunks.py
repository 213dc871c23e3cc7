"""Columns that are equal by their bytes have equal values, and what is left of files that share such columns adds up to their difference."""

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from ddcli.store.mirrors import cancellation, equal_parts
from ddcli.store.mirrors.cancellation import DIFF, consolidated, remainder
from ddcli.store.mirrors.equal_parts import FileRows, PieceColumns, equal_columns, partners, pieces_of
from ddcli.store.scratch import buckets
from tests.draws import chance, many

FLOATS = [0.0, -0.0, float("nan"), None, 1.5]
KINDS = {
    "i": (pl.Int64, [None, 0, 1, -7, 1 << 40]),
    "f": (pl.Float64, FLOATS),
    "t": (pl.String, [None, "", "a", "a text of more than twelve bytes"]),
    "l": (pl.List(pl.Float64), [None, [], *([each] for each in FLOATS), [1.5, None]]),
    "s": (
        pl.Struct({"a": pl.Int64, "b": pl.List(pl.String)}),
        [None, {"a": None, "b": None}, {"a": 1, "b": []}, {"a": 1, "b": ["x", None]}],
    ),
    "d": (pl.Date, [None, date(2000, 1, 1), date(1969, 12, 31)]),
    "m": (pl.Datetime("us", "UTC"), [None, datetime(2000, 1, 1, tzinfo=UTC)]),
    "n": (pl.Decimal(9, 2), [None, Decimal("1.50"), Decimal("-0.01")]),
    "b": (pl.Boolean, [None, True, False]),
}
SCHEMA = {name: dtype for name, (dtype, _) in KINDS.items()}


def row(draw, key):
    return [key, *(draw.choice(values) for _, values in KINDS.values())]


def framed(rows, names):
    return pl.DataFrame(rows, {"k": pl.Int64, **SCHEMA}, orient="row").select(names)


def rewritten(draw, rows):
    """Return rows as whoever rewrites a file leaves them: in their places, if most of them."""
    rows = [[*each] for each in rows]
    how = draw.choice(["column", "cells", "rows", "deleted", "order", "none", "none"])
    at = draw.randrange(len(KINDS)) + 1
    values = [*KINDS.values()][at - 1][1]
    for number, each in enumerate(rows):
        if how == "column" or (how == "cells" and draw.random() < 0.1):
            each[at] = draw.choice(values)
        elif how == "rows" and draw.random() < 0.1:
            each[1:] = row(draw, 0)[1:]
        elif how == "order" and draw.random() < 0.1:
            other = draw.randrange(len(rows))
            rows[number], rows[other] = rows[other], rows[number]
    return [each for each in rows if how != "deleted" or draw.random() < 0.9]


def options(draw):
    """Return how a file is written."""
    return {
        "compression": draw.choice(["snappy", "zstd", "none"]),
        "use_dictionary": draw.random() < 0.7,
        "data_page_version": draw.choice(["1.0", "2.0"]),
        "data_page_size": draw.choice([64, 1 << 20]),
        "row_group_size": draw.choice([3, 20, 1000]),
        "write_statistics": draw.random() < 0.9,
    }


def write(frame, path, how):
    parquet.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), path, **how)


def pieces(path, names):
    """Return the pieces of a file; columns that it hasn't are null."""
    found = pieces_of(path) if path.stat().st_size else []
    for part in found:

        def read(columns, part=part):
            frame = pl.read_parquet(path, glob=False).slice(part.start, part.rows)
            return frame.with_columns(
                pl.lit(None, SCHEMA[name]).alias(name) for name in columns if name not in frame.columns
            ).select(columns)

        columns = PieceColumns(names, read, part.chunks) if part.chunks else None
        yield FileRows(lambda read=read: [read(names)], part.least, part.largest, columns)


def plain(value):
    """Return a value as text, -0.0 as 0.0, which is equal to it."""
    if isinstance(value, list | tuple):
        return str([plain(each) for each in value])
    if isinstance(value, dict):
        return str({name: plain(each) for name, each in value.items()})
    return str(0.0 if value == 0.0 and isinstance(value, float) else value)


def total(frames, names):
    found = Counter()
    for frame in frames:
        for *values, diff in frame.select(*names, DIFF).rows():
            found[plain(values)] += diff
    return {each: count for each, count in found.items() if count}


@pytest.mark.parametrize("seed", range(many(60)))
def test_what_is_left_of_rewritten_files_adds_up_to_the_difference(tmp_path, monkeypatch, seed):
    draw = chance("chunks", seed)
    monkeypatch.setattr(equal_parts, "LEAST", 1)
    monkeypatch.setattr(equal_parts, "WINDOW", draw.choice([7, 1 << 20]))
    monkeypatch.setattr(equal_parts, "PIECE", draw.choice([1, 30, 1 << 18]))
    monkeypatch.setattr(buckets, "HELD", draw.choice([2000, 1 << 28]))
    monkeypatch.setattr(cancellation, "FEWEST", draw.choice([0, 1 << 17]))
    names = ["k", *draw.sample([*KINDS], draw.randrange(1, len(KINDS) + 1))]
    how = options(draw)
    sides = [[], []]
    frames = []
    for number in range(draw.randrange(1, 5)):
        rows = [row(draw, number * 100 + at) for at in range(draw.choice([1, 30, 90]))]
        before, after = framed(rows, names), framed(rewritten(draw, rows), names)
        absent = draw.choice(names[1:]) if draw.random() < 0.2 and len(names) > 2 else None
        for side, (frame, diff) in enumerate([(before, -1), (after, 1)]):
            path = tmp_path / f"{number}-{side}.parquet"
            if draw.random() < 0.1:
                how = options(draw)
            if absent and (side == 0 or draw.random() < 0.5):
                frame = frame.with_columns(pl.lit(None, SCHEMA[absent]).alias(absent))
                write(frame.drop(absent), path, how)
            else:
                write(frame, path, how)
            frames.append(frame.with_columns(pl.lit(diff, pl.Int64).alias(DIFF)))
            sides[side] += pieces(path, names)
    for side in sides:
        draw.shuffle(side)
    found = list(remainder(*sides))
    meant = total(frames, names)
    assert total(found, names) == meant
    assert sum(map(abs, total(consolidated(found), names).values())) == sum(map(abs, meant.values()))


@pytest.mark.parametrize("seed", range(many(30)))
def test_columns_of_equal_bytes_have_equal_values(tmp_path, monkeypatch, seed):
    draw = chance("bytes", seed)
    monkeypatch.setattr(equal_parts, "LEAST", 1)
    rows = [row(draw, at) for at in range(40)]
    names, how = ["k", *KINDS], options(draw) | {"row_group_size": 40}
    sides = framed(rows, names), framed(rewritten(draw, rows), names)
    for side, frame in enumerate(sides):
        write(frame, tmp_path / f"{side}.parquet", how)
    (one,), (other,) = (pieces_of(tmp_path / f"{side}.parquet") for side in range(2))
    same = equal_columns(one.chunks, other.chunks)
    equal = {name for name in names if plain(sides[0][name].to_list()) == plain(sides[1][name].to_list())}
    assert {*same} <= equal
    assert sides[0].height != sides[1].height or equal - {"f", "l"} <= {*same}  # -0.0 and 0.0 have other bytes


def one_file(path, array, field=None, **how):
    """Write a file of one column; return where that lies."""
    table = pa.table([array], schema=pa.schema([field or pa.field("c", array.type)]))
    parquet.write_table(table, path, **({"write_statistics": False, "store_schema": False} | how))
    return pieces_of(path)[0].chunks


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (([1, 2], pa.int32()), ([1, 2], pa.date32())),
        (([1, 2], pa.timestamp("us")), ([1, 2], pa.timestamp("us", "UTC"))),
        (([1, 2], pa.timestamp("us")), ([1, 2], pa.timestamp("ms"))),
        (([1, 2], pa.int64()), ([1, 2], pa.uint64())),
        (([b"a"], pa.binary()), (["a"], pa.string())),
        (([1], pa.decimal128(9, 2)), ([10], pa.decimal128(9, 1))),
    ],
)
def test_columns_of_other_types_are_others(tmp_path, monkeypatch, one, other):
    monkeypatch.setattr(equal_parts, "LEAST", 1)
    # Not made where tests are collected: pyarrow imports pandas to make the first array.
    sides = [one_file(tmp_path / f"{at}.parquet", pa.array(*each)) for at, each in enumerate((one, other))]
    assert equal_columns(*sides) == []
    assert equal_columns(sides[0], sides[0]) == ["c"]


def test_where_what_is_null_is_another_the_column_is(tmp_path, monkeypatch):
    """A struct that may be null with a field that may not has the bytes of one that may not with a field that may."""
    monkeypatch.setattr(equal_parts, "LEAST", 1)
    array, fields = pa.array([1, None]), []
    for outer in (True, False):
        kind = pa.struct([pa.field("a", pa.int64(), nullable=not outer)])
        inner = pa.array([1, 0]) if outer else array
        values = pa.StructArray.from_arrays([inner], fields=[*kind], mask=pa.array([False, True]) if outer else None)
        fields.append(one_file(tmp_path / f"{outer}.parquet", values, pa.field("c", kind, nullable=outer)))
    assert fields[0].columns["c"][1] == fields[1].columns["c"][1]
    assert equal_columns(*fields) == []


def test_damaged_and_missing_files_have_no_equal_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(equal_parts, "LEAST", 1)
    whole, cut = (one_file(tmp_path / f"{name}.parquet", pa.array([1, 2])) for name in "ab")
    assert equal_columns(whole, cut) == ["c"]
    (tmp_path / "b.parquet").write_bytes((tmp_path / "b.parquet").read_bytes()[:20])
    assert equal_columns(whole, cut) == equal_columns(cut, cut) == []
    (tmp_path / "b.parquet").unlink()
    assert equal_columns(whole, cut) == []


def test_small_row_groups_are_not_looked_at(tmp_path):
    assert one_file(tmp_path / "a.parquet", pa.array(range(equal_parts.LEAST - 1))) is None
    assert one_file(tmp_path / "b.parquet", pa.array(range(equal_parts.LEAST))) is not None


def test_partners_are_those_with_most_in_common():
    assert partners(["abx", "cdx"], ["cdx", "abx", "abx", "x"]) == [(1, 0), (0, 1)]
    assert partners([], ["a"]) == partners(["a"], []) == partners(["x", "x"], ["x", "x"]) == []

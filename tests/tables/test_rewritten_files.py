"""What is left of Parquet files and what they were rewritten to adds up to their difference, whatever their types, row groups and columns."""

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest
from pyarrow import parquet

from ddcli.store.mirrors import cancellation
from ddcli.store.mirrors.cancellation import DIFF, FileRows, consolidated, pieces_of, remainder
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

        yield FileRows(lambda read=read: [read(names)], part.least, part.largest)


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
    draw = chance("rewritten", seed)
    monkeypatch.setattr(cancellation, "PIECE", draw.choice([1, 30, 1 << 18]))
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

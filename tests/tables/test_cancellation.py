"""What is left of two sides of rows adds up to their difference, whatever their order and files."""

import random
from collections import Counter
from datetime import UTC, date, datetime

import polars as pl
import pytest

from ddcli.store.mirrors import cancellation, equal_parts
from ddcli.store.mirrors.cancellation import DIFF, consolidated, remainder
from ddcli.store.mirrors.equal_parts import FileRows, RowGroupRange, different, in_order, pieces_of
from ddcli.store.scratch import buckets
from tests.draws import chance, many

SCHEMA = {"a": pl.Int64, "f": pl.Float64, "t": pl.String, "l": pl.List(pl.Float64)}


def rows(draw, count):
    """Return some rows, many of which are equal."""
    floats = [0.0, -0.0, float("nan"), None, 1.5]
    return [
        (
            draw.randrange(30),
            draw.choice(floats),
            draw.choice(["a", None, "", "a text of more than twelve bytes"]),
            draw.choice([None, [], [draw.choice(floats)]]),
        )
        for _ in range(count)
    ]


def rewritten(draw, given):
    """Return rows of which some are others, some gone or new, or all in another order, as those who rewrite files do it."""
    found = list(given)
    how = draw.choice(["in place", "deleted", "inserted", "shuffled", "moved", "all", "none"])
    for _ in range(draw.randrange(4) if found else 0):
        at = draw.randrange(len(found) + 1)
        if how == "in place" and at < len(found):
            found[at] = rows(draw, 1)[0]
        elif how == "deleted":
            del found[at : at + 1]
        elif how == "inserted":
            found.insert(at, rows(draw, 1)[0])
        elif how == "moved":
            found = found[at:] + found[:at]
    if how == "shuffled":
        draw.shuffle(found)
    return rows(draw, len(found)) if how == "all" else found


def framed(given):
    return pl.DataFrame(given, SCHEMA, orient="row")


def plain(value):
    """Return a value as text, -0.0 as 0.0, which is equal to it."""
    return str([plain(each) for each in value]) if isinstance(value, list) else str(0.0 if value == 0.0 else value)


def total(frames):
    """Return what updates add up to."""
    found = Counter()
    for frame in frames:
        for *row, diff in frame.select(*SCHEMA, DIFF).rows():
            found[plain(row)] += diff
    return {row: diff for row, diff in found.items() if diff}


def updates(given, diff):
    return framed(given).with_columns(pl.lit(diff, pl.Int64).alias(DIFF))


def cut(draw, given):
    """Return rows in parts."""
    ends = sorted(draw.randrange(len(given) + 1) for _ in range(draw.randrange(5)))
    return [given[start:end] for start, end in zip([0, *ends], [*ends, len(given)], strict=True)]


def piece(given):
    keys = [row[0] for row in given]
    return FileRows(lambda: [framed(given)], {"a": min(keys)} if keys else {})


@pytest.mark.parametrize("seed", range(many(60)))
def test_what_is_left_adds_up_to_the_difference(monkeypatch, seed):
    draw = chance("cancellation", seed)
    monkeypatch.setattr(buckets, "HELD", draw.choice([1, 2000, 1 << 28]))
    monkeypatch.setattr(cancellation, "FEWEST", draw.choice([0, 9, 1 << 17]))
    monkeypatch.setattr(equal_parts, "SAMPLE", draw.choice([1, 256]))
    monkeypatch.setattr(equal_parts, "NEAR", draw.choice([0, 4]))
    gone = [rows(draw, draw.choice([0, 3, 40])) for _ in range(draw.randrange(6))]
    new = [rewritten(draw, part) for part in gone]
    if draw.random() < 0.5:
        new = cut(draw, [row for part in new for row in part])
    draw.shuffle(new)
    found = list(remainder(*([piece(part) for part in side] for side in (gone, new))))
    meant = total([updates(part, diff) for side, diff in ((gone, -1), (new, 1)) for part in side])
    assert total(found) == meant
    more = updates(rows(draw, 5), draw.choice([1, -1, 3]))
    (last,) = consolidated([*found, more])
    assert total([last]) == total([*found, more])
    assert last.height == len(total([last]))


@pytest.mark.parametrize(("gone", "new"), [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2)])
def test_a_side_may_have_one_file_or_none(gone, new):
    part = [(at, 0.5, None, None) for at in range(8)]
    found = list(remainder([piece(part)] * gone, [piece(part)] * new))
    assert total(found) == {plain(list(row)): new - gone for row in part if new != gone}


def test_rows_are_found_whatever_their_order():
    draw = chance("shuffled")
    given = [(at, 0.5, None, None) for at in range(100)]
    other = [(at, 0.5, "new" if at in {7, 50} else None, None) for at in range(100) if at != 30]
    draw.shuffle(other)
    left, right = different(framed(given), framed(other))
    assert sorted(left["a"]) == [7, 30, 50]
    assert sorted(right["a"]) == [7, 50]


def test_rows_are_paired_by_what_seems_to_be_a_key():
    """A column that identifies rows where one looks may not elsewhere, and have nulls; others decide, too."""
    draw = chance("key")
    for _ in range(many(20)):
        count, others = draw.randrange(600, 1500), draw.choice([0, 0.1])
        keys = [draw.choice([None, 0, at - 1]) if draw.random() < others else at for at in range(count)]
        values = [[0.0, 0.5, None], ["", "a", None, "a text of more than twelve bytes"], [None, [0.5]]]
        given = [(key, *map(draw.choice, values)) for key in keys]
        other = [
            (key, *map(draw.choice, values)) if draw.random() < 0.02 else (key, *more)
            for key, *more in given
            if draw.random() < 0.99
        ]
        draw.shuffle(other)
        left, right = different(framed(given), framed(other))
        frames = [updates(side.rows(), diff) for side, diff in ((left, -1), (right, 1))]
        meant = total([updates(side, diff) for side, diff in ((given, -1), (other, 1))])
        assert total(frames) == meant
        assert left.height + right.height == sum(map(abs, meant.values()))


def test_rows_of_one_hash_are_compared(monkeypatch):
    """Rows of which all hashes are equal are told apart."""
    monkeypatch.setattr(
        pl.DataFrame, "hash_rows", lambda frame, *_: pl.repeat(1, frame.height, dtype=pl.UInt64, eager=True)
    )
    given, other = (
        framed([(1, None, "a", None), (2, None, "b", None)]),
        framed([(2, None, "b", None), (3, None, "c", None), (1, None, "a", None)]),
    )
    frames = [side.with_columns(pl.lit(diff, pl.Int64).alias(DIFF)) for side, diff in ((given, -1), (other, 1))]
    assert total(consolidated(frames)) == {plain([3, None, "c", None]): 1}


def test_files_that_were_rewritten_meet(monkeypatch):
    """Of 30 files that lie in another order each is compared with what it was rewritten to: few rows are held."""
    monkeypatch.setattr(buckets, "HELD", 2000)
    draw = chance("meet")
    gone = [[(at * 10 + row, None, "a", None) for row in range(10)] for at in range(30)]
    new = [[(key, None, "b" if key % 10 == 5 else "a", None) for key, *_ in part] for part in gone]
    draw.shuffle(new)
    found = list(remainder(*([piece(part) for part in side] for side in (gone, new))))
    assert sum(frame.height for frame in found) == 60


def test_rows_that_were_moved_between_files_meet(monkeypatch):
    """Who rewrites 30 files to ten mixes the rows of three in each, which begin with a row of one of the others: few are yielded, and few held."""
    monkeypatch.setattr(buckets, "HELD", 20_000)
    monkeypatch.setattr(cancellation, "FEWEST", 16)
    draw = random.Random("0 moved")  # how many meet depends on the order: the same one each time
    gone = [[(at * 10 + row, None, "a", None) for row in range(10)] for at in range(30)]
    new = [[row for part in gone[at : at + 3] for row in part] for at in range(0, 30, 3)]
    for at, part in enumerate(new):
        part.append(new[at - 1].pop(3))
        draw.shuffle(part)
    new[4][5] = (1, 1.5, "new", None)
    found = list(remainder(*([piece(part) for part in side] for side in (gone, new))))
    assert sum(frame.height for frame in found) < 10
    assert sum(abs(count) for count in total(found).values()) == 2


@pytest.mark.parametrize(("kept", "size"), [(10, 117), (2, 30), (1, 7)])
def test_files_that_become_others_meet(monkeypatch, kept, size):
    """Who writes 100 files as others keeps most of their order, if not all rows: both sides go on together, whichever has more rows in a file."""
    monkeypatch.setattr(buckets, "HELD", 18_000)
    monkeypatch.setattr(cancellation, "FEWEST", 16)
    draw = chance("others", kept)
    gone = [[(at * 10 + row, None, "a", None) for row in range(10)] for at in range(100)]
    left = [(key, None, "b" if key % 100 == 7 else "a", None) for key in range(1000) if (key + 3) % 10 < kept]
    for start in range(0, len(left), 20):
        left[start : start + 20] = draw.sample(left[start : start + 20], len(left[start : start + 20]))
    new = [left[start : start + size] for start in range(0, len(left), size)]
    found = list(remainder(*([piece(part) for part in side] for side in (gone, new))))
    meant = total([updates(part, diff) for side, diff in ((gone, -1), (new, 1)) for part in side])
    assert total(found) == meant
    assert sum(frame.height for frame in found) < len(meant) + 100


def test_files_are_ordered_by_the_column_that_parts_them():
    """Who writes 30 files as four keeps few of the least keys, and most of the least texts: these are no order."""
    draw = chance("clustered")
    texts = [draw.choice("abcdefghijklmnop") for _ in range(300)]

    def files(size):
        starts = range(0, 300, size)
        parts = [(start, texts[start : start + size]) for start in starts]
        found = [
            FileRows(list, {"a": start + size // 25, "t": min(part)}, {"a": start + size - 1, "t": max(part)})
            for start, part in parts
        ]
        draw.shuffle(found)
        return found

    for side in in_order(files(10), files(75)):
        keys = [piece.least["a"] for _, piece in side]
        assert keys == sorted(keys)


def test_pieces_are_row_groups_with_their_least_values(tmp_path, monkeypatch):
    frame = pl.DataFrame(
        {"a": [5, 3, 4, 9, 1], "t": ["b", "c", None, "a", "z"], "n": [None] * 5},
        {"a": pl.Int64, "t": pl.String, "n": pl.Int64},
    )
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=2)
    assert pieces_of(tmp_path / "a.parquet") == [RowGroupRange(0, 5, {"a": 1, "t": b"a"}, {"a": 9, "t": b"z"})]
    monkeypatch.setattr(equal_parts, "PIECE", 2)
    found = pieces_of(tmp_path / "a.parquet")
    assert found == [
        RowGroupRange(0, 2, {"a": 3, "t": b"b"}, {"a": 5, "t": b"c"}),
        RowGroupRange(2, 2, {"a": 4, "t": b"a"}, {"a": 9, "t": b"a"}),
        RowGroupRange(4, 1, {"a": 1, "t": b"z"}, {"a": 1, "t": b"z"}),
    ]
    monkeypatch.setattr(equal_parts, "PIECE", 3)
    assert [each[:2] for each in pieces_of(tmp_path / "a.parquet")] == [(0, 4), (4, 1)]
    (tmp_path / "b.parquet").write_bytes(b"none")
    assert pieces_of(tmp_path / "b.parquet") == pieces_of(tmp_path / "c.parquet") == []


def test_least_values_may_be_such_as_python_has_no_date_for(tmp_path):
    frame = pl.DataFrame({"a": [1, 2], "d": [-800_000, 3]}, {"a": pl.Int64, "d": pl.Int32})
    frame = frame.with_columns(pl.col("d").cast(pl.Date), (pl.col("a") * -(10**17)).cast(pl.Datetime("us")).alias("t"))
    frame.write_parquet(tmp_path / "a.parquet")
    assert pieces_of(tmp_path / "a.parquet") == [
        RowGroupRange(0, 2, {"a": 1, "d": -800_000, "t": -2 * 10**17}, {"a": 2, "d": 3, "t": -(10**17)})
    ]


def test_files_whose_least_values_have_no_order_are_compared_too():
    """The type of a column was changed between files: dates are times since."""
    day, later = date(2000, 1, 1), datetime(2000, 1, 2, tzinfo=UTC)
    part = [(at, 0.5, None, None) for at in range(8)]
    sides = [[FileRows(lambda: [framed(part)], {"a": least}) for least in (day, later)]] * 2
    assert not [frame for frame in remainder(*sides) if frame.height]

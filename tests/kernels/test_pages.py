"""Integers in pages of Parquet, written by pyarrow and read in place: what was written, or refused, and never a byte outside."""

import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine.kernels import page_headers, page_writer
from ddcli.engine.kernels import pages as kernels
from ddcli.engine.kernels.hashes import NULL, hash_ranges
from ddcli.engine.kernels.page_headers import END, HEADER, PAGE, VALUES
from ddcli.engine.kernels.page_values import (
    FLAGGED,
    FLIPPED,
    FLOAT,
    NARROW,
    NULLABLE,
    NUMBERED,
    PLAIN,
    SLACK,
    TEXT,
    UNSIGNED,
    WIDTH,
)
from ddcli.store.batch.page_index import decimal_width, leaf_length, leaf_of
from tests.draws import many
from tests.kernels.support import interpreted

ENDS = [0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**57, 2**56 - 1]
WIDE = st.sampled_from(ENDS) | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9)
MORE = st.integers(0, 2**40).map(lambda seed: np.random.default_rng(seed).integers(0, 1 << seed % 62 + 1, 300).tolist())
NARROW_ONES = st.sampled_from(ENDS[:5]) | st.integers(-(2**31), 2**31 - 1) | st.integers(0, 9)
UNSIGNED_ONES = st.sampled_from([0, 1, 2**31, 2**32 - 1]) | st.integers(0, 9)


def columns():
    """Draw a column: its type, its form, and its values."""

    def drawn(kind, form, values):
        rows = st.lists(values, min_size=1, max_size=90)
        rows = rows | MORE if kind == pa.int64() else rows
        nullable = st.lists(st.none() | values, min_size=1, max_size=90)
        return st.booleans().flatmap(
            lambda numbered: st.one_of(
                st.tuples(st.just(kind), st.just(form | NUMBERED * numbered), rows),
                st.tuples(st.just(kind), st.just(form | NULLABLE | NUMBERED * numbered), nullable),
            )
        )

    return st.one_of(
        drawn(pa.int64(), 0, WIDE),
        drawn(pa.int32(), NARROW, NARROW_ONES),
        drawn(pa.uint32(), NARROW | UNSIGNED, UNSIGNED_ONES),
    )


def written(kind, form, values, rows):
    """Return the bytes of a file with a column, and its pages as kernels take them."""
    sink = io.BytesIO()
    schema = pa.schema([pa.field("v", kind, nullable=bool(form & NULLABLE))])
    numbered = bool(form & NUMBERED)
    encoding = {} if numbered or form & PLAIN else {"column_encoding": {"v": "DELTA_BINARY_PACKED"}}
    writer = pq.ParquetWriter(
        sink,
        schema,
        use_dictionary=numbered,
        compression="none",
        max_rows_per_page=rows,
        write_statistics=True,
        **encoding,
    )
    writer.write_table(pa.table([pa.array(values, kind)], schema=schema))
    end = sink.tell()
    writer.close()
    data = np.frombuffer(sink.getvalue(), np.uint8)
    found = np.zeros((len(values) + 1, page_headers.SIZE + 1), np.int64)
    count = page_headers.walk_pages(data, 4, end, found)
    table, begin, dictionary = [], 4, (0, 0)
    for row in found[:count].tolist():
        body = begin + row[HEADER], row[END]
        begin = row[END]
        if row[PAGE] == page_headers.DICTIONARY_PAGE:
            dictionary = body
        else:
            table.append((*body, row[VALUES], *dictionary))
    assert begin == end
    return data, np.array(table, np.int64).reshape(-1, 5)


def picked(data, table, form, counts=(), rows=(), lanes=1):
    """Return the lanes that `pick_values` writes, None where it refuses."""
    scratch = np.empty((2, max(1, int(table[:, 2].max(initial=0)))), np.uint64)
    total = len(rows) if len(counts) else int(table[:, 2].sum())
    out = np.full((total, lanes), -7, np.int64)
    chosen = np.array(counts, np.int64), np.array(rows, np.int64)
    found = kernels.pick_values(data, table, *chosen, *scratch, out, 0, form)
    return out if found == total else None


@given(columns(), st.integers(1, 50), st.data())
def test_integers_are_those_that_were_written(column, size, data):
    """All of them, and some rows of each page."""
    kind, form, values = column
    content, table = written(kind, form, values, size)
    assert table[:, 2].tolist() == [min(size, len(values) - at) for at in range(0, len(values), size)]
    lanes = [NULL if value is None else value for value in values]
    out = picked(content, table, form)
    assert out is not None
    assert out.reshape(-1).tolist() == lanes
    some = [sorted(data.draw(st.sets(st.integers(0, rows - 1), max_size=4))) for rows in table[:, 2].tolist()]
    out = picked(content, table, form, [len(rows) for rows in some], [row for rows in some for row in rows])
    expected = [lanes[size * page + row] for page, rows in enumerate(some) for row in rows]
    assert out is not None
    assert out.reshape(-1).tolist() == expected


@settings(max_examples=many(10))
@given(columns(), st.integers(1, 50))
def test_kernels_say_the_same_as_plain_python(column, size):
    kind, form, values = column
    compiled = picked(*written(kind, form, values, size), form)
    with interpreted():
        assert np.array_equal(picked(*written(kind, form, values, size), form), compiled)


@settings(max_examples=many(5))
@given(columns(), st.integers(1, 50), st.sampled_from([0, 4]))
def test_pages_are_described_as_they_are(column, size, start):
    """By kernels and plain Python alike; and those of other rows, or encoded in another way, are refused."""
    kind, form, values = column
    content, table = written(kind, form, values, size)
    end = int(table[-1, 1])
    data = content[start:end]
    rows, keys = table[:, 2].copy(), np.arange(len(table) + 1).reshape(-1, 1)
    length = leaf_length(len(rows) + 2, 1, 1)
    leaf = leaf_of(data, start, [form], keys, rows, length)
    with interpreted():
        assert np.array_equal(leaf_of(data, start, [form], keys, rows, length), leaf)
    wide = len(rows) + 2
    assert leaf[:wide].tolist() == [*range(len(rows)), *[len(rows)] * 2]
    ends = leaf[wide + 2 : 2 * wide + 2] >> page_writer.SIZES
    assert ends.tolist() == [*table[:, 1].tolist(), end, end]
    bodies = (leaf[wide + 1 : 2 * wide + 1] >> page_writer.SIZES) + (leaf[wide + 2 : 2 * wide + 2] & 255)
    assert bodies[: len(rows)].tolist() == table[:, 0].tolist()
    starts = leaf[wide + 1 : 2 * wide + 2] >> page_writer.SIZES
    for at, (begin, finish) in enumerate(zip(starts[:-1].tolist(), ends.tolist(), strict=True)):
        out = np.empty(1, np.int64)
        hash_ranges(np.array([begin]), np.array([finish - begin]), content, out)
        assert leaf[2 * wide + 3 + at] == out[0]
    for wrong, others in ((form ^ NUMBERED, rows), (form, rows + 1), (form, rows[1:]), (form, np.append(rows, 1))):
        with pytest.raises(AssertionError, match="other pages"):
            leaf_of(data, start, [wrong], keys[: len(others) + 1], others, length)


@given(st.lists(WIDE, min_size=1, max_size=90), st.lists(WIDE, max_size=20), st.integers(1, 30), st.booleans())
def test_rows_of_wanted_numbers_are_found(values, others, size, numbered):
    values.sort()
    form = NUMBERED * numbered
    content, table = written(pa.int64(), form, values, size)
    wanted = np.array(sorted({*values[::3], *others}), np.int64)
    scratch = np.empty((2, size), np.uint64)
    counts, rows, lanes = (np.empty(count, np.int64) for count in (len(table), len(values), len(values)))
    found = kernels.find_rows(content, table, wanted, *scratch, counts, rows, lanes, form)
    pages = np.repeat(np.arange(len(table)), counts)
    held = [at for at, value in enumerate(values) if value in set(wanted.tolist())]
    assert (pages * size + rows[:found]).tolist() == held
    assert lanes[:found].tolist() == [values[at] for at in held]


def test_flags_floats_and_signs():
    values = [3, None, -(2**63)]
    content, table = written(pa.int64(), NULLABLE, values, 2)
    out = picked(content, table, NULLABLE | FLAGGED, lanes=2)
    assert out.tolist() == [[0, 3], [1, 0], [0, -(2**63)]]
    content, table = written(pa.uint64(), 0, [0, 2**64 - 1], 2)
    assert picked(content, table, FLIPPED).tolist() == [[-(2**63)], [2**63 - 1]]
    floats = [-1e300, -0.5, 0.0, 2.5, float("inf"), float("nan")]
    content, table = written(pa.float64(), NUMBERED, floats, 4)
    out = picked(content, table, NUMBERED | FLOAT)
    assert out.reshape(-1).tolist() == sorted(out.reshape(-1).tolist())
    assert out[2, 0] == 0


@given(columns(), st.integers(1, 50), st.integers(0, 2**32), st.integers(0, 2**32))
def test_damage_is_refused_or_read_as_something_else(column, size, at, bit):
    """Nobody reads a page that hasn't been checked; if somebody did, no byte outside would be read or written."""
    kind, form, values = column
    content, table = written(kind, form, values, size)
    begin, end = int(table[0, 0]), int(table[-1, 1])
    damaged = content[: end + SLACK].copy()
    damaged[begin + at % (end - begin)] ^= 1 << bit % 8
    picked(damaged, table, form)
    picked(damaged, table, form ^ NUMBERED)
    page_headers.walk_pages(damaged, 4, end, np.empty((len(values) + 1, page_headers.SIZE + 1), np.int64))


@pytest.mark.parametrize("change", [(0, -1), (1, 10**6), (2, 10**6), (2, -1), (3, -5), (4, 10**6)])
def test_pages_that_are_not_in_the_file_are_refused(change):
    content, table = written(pa.int64(), NUMBERED, [5, 6, 5], 3)
    assert picked(content, table, NUMBERED).reshape(-1).tolist() == [5, 6, 5]
    lane, value = change
    table[0, lane] = value
    scratch, out, none = np.empty((2, 3), np.uint64), np.empty((3, 1), np.int64), np.empty(0, np.int64)
    assert kernels.pick_values(content, table, none, none, *scratch, out, 0, NUMBERED) == -1


WIDE_DIGITS = st.integers(19, 38)


@given(
    WIDE_DIGITS.flatmap(
        lambda digits: st.tuples(
            st.just(digits),
            st.lists(
                st.none()
                | st.integers(1 - 10**digits, 10**digits - 1)
                | st.integers(-2, 2)
                | st.sampled_from([2**63, -(2**63), 2**63 - 1, -(2**63) - 1]),
                min_size=1,
                max_size=60,
            ),
        )
    ),
    st.booleans(),
    st.integers(1, 30),
    st.integers(0, 2**32),
    st.data(),
)
def test_wide_decimals_are_those_that_were_written(column, numbered, size, at, data):
    """All of them, and some rows of each page; of a page that is damaged other ones, but no byte from outside."""
    digits, values = column
    values = [value if value is None or abs(value) < 10**digits else 0 for value in values]
    numbers = [None if value is None else Decimal(value) for value in values]
    form = decimal_width(digits) << WIDTH | NULLABLE | (NUMBERED if numbered else PLAIN)
    content, table = written(pa.decimal128(digits, 0), form, numbers, size)
    halves = [(value or 0) & (1 << 64) - 1 for value in values]
    lanes = [
        [NULL, 0] if value is None else [value >> 64, half - 2**63] for value, half in zip(values, halves, strict=True)
    ]
    out = picked(content, table, form, lanes=2)
    assert out is not None
    assert out.tolist() == lanes
    some = [sorted(data.draw(st.sets(st.integers(0, rows - 1), max_size=4))) for rows in table[:, 2].tolist()]
    out = picked(content, table, form, list(map(len, some)), [row for rows in some for row in rows], lanes=2)
    assert out is not None
    assert out.tolist() == [lanes[size * page + row] for page, rows in enumerate(some) for row in rows]
    with interpreted():
        assert picked(content, table, form, lanes=2).tolist() == lanes
    assert picked(content, table, form, lanes=1) is None
    begin, end = int(table[0, 0]), int(table[-1, 1])
    damaged = content[: end + SLACK].copy()
    damaged[begin + at % (end - begin)] ^= 1 << at % 8
    for other in (form, form ^ NUMBERED ^ PLAIN):
        picked(damaged, table, other, lanes=2)
    for width in (-1, 1, 8, 17, 1 << 50):
        other = width << WIDTH | form & (1 << WIDTH) - 1
        assert picked(content, table, other, lanes=2) is None


def test_no_page_is_found_where_none_is():
    found = np.empty((9, page_headers.SIZE + 1), np.int64)
    for data in (b"\x15", b"\x15\x00\x15", b"\xff" * 30, b"\x00", b"\x15\x00\x15\x7f\x15\x7f\x00"):
        assert page_headers.walk_pages(np.frombuffer(data, np.uint8), 0, len(data), found) == -1
    assert page_headers.walk_pages(np.empty(0, np.uint8), 0, 0, found) == 0
    assert page_headers.walk_pages(np.empty(0, np.uint8), 0, 1, found) == -1


def text_pages(values, rows, *, numbered=False):
    """Return the bytes of a file with a column of texts, and its pages."""
    sink = io.BytesIO()
    schema = pa.schema([pa.field("v", pa.string())])
    writer = pq.ParquetWriter(sink, schema, use_dictionary=numbered, compression="none", max_rows_per_page=rows)
    writer.write_table(pa.table([pa.array(values, pa.string())], schema=schema))
    end = sink.tell()
    writer.close()
    data = np.frombuffer(sink.getvalue(), np.uint8)
    found = np.zeros((len(values) + 1, page_headers.SIZE + 1), np.int64)
    count = page_headers.walk_pages(data, 4, end, found)
    begins = [4, *found[: count - 1, END].tolist()]
    table = [
        (begin + row[HEADER], row[END], row[VALUES], 0, 0)
        for begin, row in zip(begins, found[:count].tolist(), strict=True)
    ]
    return data, np.array(table, np.int64)


def texts_of(data, table, form, counts=(), rows=()):
    """Return the texts that `pick_texts` finds, None where it refuses."""
    size = len(rows) if len(counts) else int(table[:, 2].sum())
    starts, lengths = np.full((2, size), -7)
    levels = np.empty(int(table[:, 2].max(initial=0)), np.uint64)
    chosen = np.array(counts, np.int64), np.array(rows, np.int64)
    if kernels.pick_texts(data, table, *chosen, levels, starts, lengths, form) != size:
        return None
    ranges = zip(starts.tolist(), lengths.tolist(), strict=True)
    return [
        None if length < 0 else data[at : at + length].tobytes().decode("utf-8", "replace") for at, length in ranges
    ]


TEXTS = st.lists(st.none() | st.text("aé\0", max_size=9), min_size=1, max_size=40)


@given(TEXTS, st.integers(1, 12), st.integers(0, 2**32), st.data())
def test_texts_are_those_that_were_written(values, size, at, data):
    """All of them, and some; of a page that is damaged some others, but none from outside."""
    form = TEXT | PLAIN | NULLABLE
    content, table = text_pages(values, size)
    assert texts_of(content, table, form) == values
    some = [sorted(data.draw(st.sets(st.integers(0, rows - 1), max_size=4))) for rows in table[:, 2].tolist()]
    expected = [values[size * page + row] for page, rows in enumerate(some) for row in rows]
    assert texts_of(content, table, form, list(map(len, some)), [row for rows in some for row in rows]) == expected
    begin, end = int(table[0, 0]), int(table[-1, 1])
    damaged = content[: end + SLACK].copy()
    damaged[begin + at % (end - begin)] ^= 1 << at % 8
    texts_of(damaged, table, form)


@given(st.sets(st.text("aé\0", max_size=9), min_size=1, max_size=40))
def test_texts_of_a_dictionary(values):
    ordered = sorted(values)
    content, table = text_pages(ordered, 50, numbered=True)
    start, end = int(table[0, 0]), int(table[0, 1])
    starts, lengths = np.empty((2, len(values)), np.int64)
    assert kernels.split_texts(content, start, end, starts, lengths) == len(values)
    found = [
        content[at : at + size].tobytes().decode() for at, size in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    assert found == ordered
    assert kernels.split_texts(content, start, end, starts[1:], lengths[1:]) == -1
    assert kernels.split_texts(content, start, end - 1, starts, lengths) == -1
    assert kernels.split_texts(content, start, len(content), starts, lengths) == -1


@given(columns(), st.integers(1, 50))
def test_integers_that_were_packed_are_read(column, page):
    """By us, of all pages; interpreted, the same bytes are packed."""
    _, form, values = column
    lanes = np.array([[NULL if value is None else value, 7] for value in values], np.int64)
    values = [None if form & NULLABLE and value == NULL else value for value in values]
    numbered, rows = form & NUMBERED, len(values)

    def packed():
        words = np.zeros(2 * rows + page_writer.PAGE_BYTES // 8 * (2 + -(-rows // page)), np.uint64)
        there, found, numbers, steps = (np.empty(max(rows, 128), np.int64) for _ in range(4))
        known, out = np.empty(rows, np.int64), words.view(np.uint8)
        if not numbered:
            return out[: page_writer.pack_differences(lanes, 0, form, page, there, found, steps, out, words)].copy(), 0
        table = np.zeros(2 << rows.bit_length(), np.uint32)
        distinct = page_writer.number_values(lanes, 0, form, there, found, numbers, known, table)
        assert distinct == len({value for value in values if value is not None})
        size = page_writer.pack_numbers(rows, form, page, there, numbers, known, distinct, out, words)
        return out[:size].copy(), int(known[0])

    content, dictionary = packed()
    with interpreted():
        assert np.array_equal(packed()[0], content)
    found = np.zeros((rows + 1, page_headers.SIZE + 1), np.int64)
    count = page_headers.walk_pages(content, 0, len(content), found)
    assert count == -(-rows // page) + bool(numbered)
    pages, begin, table = found[:count].tolist(), 0, []
    before = (0, 0)
    for row in pages:
        body = begin + row[HEADER], row[END]
        begin = row[END]
        if row[PAGE] == page_headers.DICTIONARY_PAGE:
            assert row[END] == dictionary
            before = body
        else:
            table.append((*body, row[VALUES], *before))
    assert begin == len(content)
    padded = np.concatenate([content, np.zeros(SLACK, np.uint8)])
    out = picked(padded, np.array(table, np.int64), form)
    assert out is not None
    assert out[:, 0].tolist() == [NULL if value is None else value for value in values]

"""Which pages of a batch file can have a key, and whether they are as they were written: as plain Python looks it up."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine.kernels.hashes import hash_ranges
from ddcli.engine.kernels.page_writer import SIZES
from ddcli.engine.kernels.pages import are_sound, find_pages, locate_pages
from ddcli.store.batch.page_index import leaf_length
from tests.kernels.support import interpreted

LANE = st.integers(0, 12)


@st.composite
def looked_up(draw):
    """Draw sorted records, by how many lanes of them leaves and keys go, rows of a page, pages of a leaf, and sorted distinct keys."""
    lanes = draw(st.integers(1, 3))
    records = sorted(draw(st.lists(st.tuples(*[LANE] * lanes), min_size=1, max_size=60)))
    asked = draw(st.integers(1, lanes))
    keys = sorted(draw(st.sets(st.tuples(*[LANE] * asked), max_size=8)))
    return records, keys, asked, draw(st.integers(1, 5)), draw(st.integers(1, 4))


@given(looked_up())
def test_pages_that_can_have_a_key_are_found(case):
    """Those that have one are; others only where a key lies between their first record and the next page's."""
    records, keys, asked, page, pages = case
    lanes, group = len(records[0]), page * pages
    firsts = [records[at : at + group] for at in range(0, len(records), group)]
    leaves = np.array([[(each[at:] or records[-1:])[0] for at in range(0, group, page)] for each in firsts], np.int64)
    leaves = leaves.reshape(len(firsts), pages * lanes)
    after = np.array([(records[at + group :] or records[-1:])[0][:asked] for at in range(0, len(records), group)])
    heights = np.array([len(each) for each in firsts])
    wanted = np.array(keys, np.int64).reshape(len(keys), asked)

    def found():
        out = np.empty((leaves.shape[0] * pages, 3), np.int64)
        count = find_pages(leaves, after, heights, wanted, pages, page, lanes, out)
        return [tuple(row) for row in out[:count].tolist()]

    there = found()
    with interpreted():
        assert found() == there
    meant = []
    for start in range(0, len(records), page):
        rows = records[start : start + page]
        if start // group != (start + page - 1) // group:
            rows = rows[: group - start % group]
        end = (records[start + page :] or records[-1:])[0]
        if any(rows[0][:asked] <= key <= end[:asked] for key in keys):
            meant.append((start // group, start % group // page, len(rows)))
    assert there == meant
    has = {at // page for at, record in enumerate(records) if record[:asked] in keys}
    assert has <= {place * pages + number for place, number, _ in there}


@given(st.lists(st.binary(min_size=2, max_size=40), min_size=2, max_size=6), st.integers(0, 2**32), st.booleans())
def test_any_flipped_bit_of_a_page_is_noticed(parts, bit, numbered):
    """Of what lies before the pages too, where the column's values are numbered; else nobody looks at it."""
    pages, data = len(parts) - 1, np.frombuffer(b"".join(parts), np.uint8).copy()
    ends = np.cumsum([len(part) for part in parts])
    sums = [checksum_of(part) for part in parts]
    # Each begins with a header of one byte.
    leaf = np.array([[0, *((end << SIZES) + 1 for end in ends.tolist()), *sums]], np.int64)
    assert leaf.shape[1] == leaf_length(pages, 0, 1)
    chosen = np.array([[0, number, 1] for number in range(pages)])

    def sound():
        starts, table = np.empty(pages, np.int64), np.empty((pages, 5), np.int64)
        assert locate_pages(leaf, chosen, 0, pages, starts, table) == 0
        assert starts.tolist() == ends[:-1].tolist()
        assert (table[:, 0] == starts + 1).all()
        return are_sound(data, leaf, chosen, 0, pages, int(numbered), starts, table)

    assert sound() == 1
    at = bit % (8 * len(data))
    data[at // 8] ^= 1 << at % 8
    kept = at // 8 < len(parts[0]) and not numbered
    assert sound() == kept
    with interpreted():
        assert sound() == kept


def checksum_of(part):
    """Return the checksum of some bytes, as leaves have it."""
    found = np.empty(1, np.int64)
    hash_ranges(np.array([0]), np.array([len(part)]), np.frombuffer(part, np.uint8), found)
    return int(found[0])

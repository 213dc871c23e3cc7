"""The drawing for terminals: its lanes lead from who is read to who reads, and it fits."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.render.drawing import mermaid
from ddcli.render.text import PIECES, ordered, text
from ddcli.render.units import cells, clipped, duration, wrapped
from tests.render.graphs import EVIL, evil, shapes, view_of_shape

SIGNS = "○◎●■↻"
UP = {piece for (up, *_), piece in PIECES.items() if up}
ACROSS = {*PIECES.values(), "─", "│"}


def drawn(view, width=100):
    return [click.unstyle(line) for line in text(view, width)]


def readings(lines, names):
    """Return who reads whom, as the lanes say: followed from each sign up to the signs that they come from.

    `names` are those of the signs, in their order.
    """
    signs = [
        (row, min(line.index(sign) for sign in SIGNS if sign in line))
        for row, line in enumerate(lines)
        if any(s in line for s in SIGNS)
    ]
    at_sign = dict(zip(signs, names, strict=True))

    def follow(row, column):
        """Go straight up along a lane."""
        while (row, column) not in at_sign:
            assert lines[row][column] in UP | {"│"}, (lines[row], column)
            row -= 1
        return at_sign[row, column]

    found = {}
    for (row, column), name in at_sign.items():
        above = lines[row - 1].ljust(column + 1)[column] if row else " "
        if above in PIECES.values():
            beside = range(column, -1, -1), range(column + 1, len(lines[row - 1]))
            joints = []
            for columns in beside:
                for at in columns:
                    if lines[row - 1][at] not in ACROSS:
                        break
                    joints.append(at)
            ends = [at for at in joints if lines[row - 1][at] in UP]
            found[name] = {follow(row - 2, at) if (row - 1, at) not in at_sign else None for at in ends}
        elif above == "│" or (row - 1, column) in at_sign:
            found[name] = {follow(row - 1, column)}
        else:
            found[name] = set()
    return found


@given(shapes())
def test_lanes_lead_from_who_is_read_to_who_reads(shape):
    view = view_of_shape(shape, runs=1)
    names = [name for what, name in ordered(view) if what == "row"]
    room = max(line.index("c") for line in drawn(view) if "  c" in line)
    lanes = [line[:room] for line in drawn(view)]
    widest = min(line.index(word) for line in drawn(view) for word in ("arrange", "join", "rows") if word in line)
    meant = {each.id: set(each.inputs) for each in view.operators}
    assert readings([line[:widest] for line in lanes], names) == meant


@given(shapes())
def test_order(shape):
    """Inputs come before their readers, a loop's rows are together, and each is there once."""
    view = view_of_shape(shape)
    steps = ordered(view)
    rows = [name for what, name in steps if what == "row"]
    assert sorted(rows) == sorted(each.id for each in view.operators)
    place = {name: at for at, name in enumerate(rows)}
    assert all(place[source] < place[each.id] for each in view.operators for source in each.inputs)
    around = {each.id: each.loop for each in view.operators}
    opened = []
    for what, name in steps:
        if what == "open":
            opened.append(name)
        elif what == "close":
            assert opened.pop() == name
        else:
            assert around[name] == (opened[-1] if opened else None)
    assert not opened


def test_a_drawing():
    """Two read a; c is an arrangement that comes back as itself in a loop."""
    view = view_of_shape((4, [(0, 1), (0, 2), (1, 2), (2, 3)], [(1, 2)]), runs=1)
    assert drawn(view) == [
        "●   join  c0  by k0",
        "│   10.0 M rows  +7.0 M -3.0 M",
        "│   ╭ loop v1",
        "├─╮ ┆",
        "│ ■ ┆ arrange  c1  by k1",
        "│ │ ┆ 10 → 10.0 M rows  +7.0 M -3.0 M · 1.0 ms · state 10 rows, 100 B",
        "├─╯ ┆",
        "●   ┆ join  c2  by k2",
        "│   ┆ 20 → 10.0 M rows  +7.0 M -3.0 M · 2.0 ms",
        "│   ┆ ↻ is c1 in the next round",
        "│   ╰",
        "●   join  c3  by k3",
        "    30 → 10.0 M rows  +7.0 M -3.0 M · 3.0 ms",
    ]


@given(shapes(), st.integers(80, 120))
def test_it_fits_and_needs_no_more_than_ascii(shape, width):
    view = view_of_shape(shape, runs=2)
    lanes = max(line.find("c") for line in drawn(view))
    assert all(cells(line) <= max(width, lanes + 40) for line in drawn(view, width))
    for line in text(view, width, ascii_only=True):
        assert click.unstyle(line).isascii()


def test_evil_names_stay_on_their_line():
    lines = drawn(evil())
    assert len(lines) == 4
    assert all(cells(line) <= 100 for line in lines)
    assert all(letter.isprintable() for line in lines for letter in line)
    for line in mermaid(evil()):
        assert "<script" not in line
        assert "\n" not in line
        assert line.count('"') in {0, 2}


def test_mermaid():
    lines = mermaid(view_of_shape((3, [(0, 1), (0, 2), (1, 2)], [(1, 2)])))
    assert lines[:6] == [
        "flowchart TD",
        '  n0["<b>join</b> c0<br/>by k0"]',
        '  subgraph l0["loop v1"]',
        '    n1["<b>arrange</b> c1<br/>by k1<br/>state 10 rows, 100 B"]',
        '    n2["<b>join</b> c2<br/>by k2"]',
        "  end",
    ]
    assert "  n2 -. next round .-> n1" in lines


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.0009996, "1.0 ms"), (0.9996, "1.00 s"), (59.4, "59.40 s"), (3599.6, "1:00 h")]
)
def test_durations(seconds, told):
    assert duration(seconds) == told


def test_words_are_clipped_by_what_they_take():
    assert clipped("日本語", 5) == "日本…"
    assert clipped("e\u0301" * 3, 2) == "e\u0301…"
    assert clipped("x" * 300_000, 3) == "xx…"  # in linear time: a `map` has any number of columns
    assert cells(clipped(EVIL, 20)) <= 20
    assert wrapped(["a" * 50, "b", "c"], 20, 3) == ["a" * 20, "a" * 20, "a" * 10 + " …"]

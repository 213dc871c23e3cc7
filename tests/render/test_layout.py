"""Where boxes and lines go: no two boxes meet, no line crosses one, and every line comes from what is read to who reads it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.render.layout import Box, layout, spaced
from ddcli.render.view import OperatorView, View, folded
from tests.render.graphs import shapes

EDGE = 0.01


def placed(shape, widths=(120.0,), heights=(48.0,)):
    count, edges, groups = shape
    ids = {group: f"g{at}" for at, group in enumerate(groups)}

    def innermost(first, last, own=None):
        around = [
            g
            for g in groups
            if g != own and g[0] <= first and last <= g[1] and (own is None or groups.index(g) < groups.index(own))
        ]
        return ids[around[-1]] if around else None

    items = [
        Box(str(at), widths[at % len(widths)], heights[at % len(heights)], innermost(at, at)) for at in range(count)
    ]
    boxes = [Box(ids[g], 90.0, 20.0, innermost(*g, own=g), ((str(g[1]), str(g[0])),)) for g in groups]
    return items, boxes, layout(items, boxes, [(str(a), str(b)) for a, b in edges])


def path_of(line):
    """Yield points along a line, close to each other, as it is drawn."""
    for before, after in itertools.pairwise(line.points):
        straight = line.back or before.x == after.x
        for at in range(21):
            t = at / 20
            if straight:
                yield before.x + (after.x - before.x) * t, before.y + (after.y - before.y) * t
            else:  # a curve that begins and ends downwards
                yield before.x + (after.x - before.x) * (3 * t * t - 2 * t**3), before.y + (after.y - before.y) * t


def overlap(one, other):
    return (
        one.x < other.x + other.width - EDGE
        and other.x < one.x + one.width - EDGE
        and one.y < other.y + other.height - EDGE
        and other.y < one.y + one.height - EDGE
    )


def contains(outer, inner):
    return (
        outer.x <= inner.x + EDGE
        and outer.y <= inner.y + EDGE
        and inner.x + inner.width <= outer.x + outer.width + EDGE
        and inner.y + inner.height <= outer.y + outer.height + EDGE
    )


@given(
    shapes(),
    st.lists(st.sampled_from([40.0, 130.0, 300.0]), min_size=1, max_size=3),
    st.sampled_from([(48.0,), (20.0, 90.0)]),
)
def test_boxes_and_lines(shape, widths, heights):
    items, groups, found = placed(shape, widths, heights)
    for one, other in itertools.combinations(items, 2):
        assert not overlap(found.items[one.id], found.items[other.id]), (one, other)
    around = {group.id: group.group for group in groups}

    def chain(group):
        while group is not None:
            yield group
            group = around[group]

    for group in groups:
        box = found.groups[group.id]
        for item in items:
            inside = group.id in chain(item.group)
            assert contains(box, found.items[item.id]) if inside else not overlap(box, found.items[item.id]), (
                group,
                item,
            )
        for other in groups:
            if other != group and group.id not in chain(other.group) and other.id not in chain(group.group):
                assert not overlap(box, found.groups[other.id])
        if group.group:
            assert contains(found.groups[group.group], box)
    for rect in (*found.items.values(), *found.groups.values()):
        assert contains(type(rect)(0, 0, found.width, found.height), rect)
    for line in found.lines:
        for x, y in path_of(line):
            assert -EDGE <= x <= found.width + EDGE
            assert -EDGE <= y <= found.height + EDGE
            for name, rect in found.items.items():
                within = (
                    rect.x + EDGE < x < rect.x + rect.width - EDGE and rect.y + EDGE < y < rect.y + rect.height - EDGE
                )
                assert not within, (line, name)


@given(shapes())
def test_every_edge_is_a_way_along_lines(shape):
    _, edges, groups = shape
    _, boxes, found = placed(shape)
    ends = {(line.source, line.target) for line in found.lines if line.target and not line.back}
    assert ends == {(str(a), str(b)) for a, b in edges}
    for source in {a for a, _ in edges}:
        mine = [line for line in found.lines if line.source == str(source) and not line.back]
        rect = found.items[str(source)]
        reached = {(round(line.points[-1].x, 3), round(line.points[-1].y, 3)) for line in mine}
        for line in mine:
            start = line.points[0]
            at_the_box = abs(start.y - rect.y - rect.height) < EDGE and rect.x < start.x < rect.x + rect.width
            near = any(abs(start.x - x) < 0.01 and abs(start.y - y) < 0.01 for x, y in reached)
            assert at_the_box or near, line
    back = [line for line in found.lines if line.back]
    assert len(back) == sum(
        {str(first), str(last)} <= {name for name in found.items if _innermost(name, groups) == (first, last)}
        for first, last in groups
    )
    assert len(boxes) == len(found.groups)


def _innermost(name, groups):
    around = [g for g in groups if g[0] <= int(name) <= g[1]]
    return around[-1] if around else None


def test_a_chain_is_straight_and_nothing_is_nothing():
    _, _, found = placed((6, [(at, at + 1) for at in range(5)], []), widths=(40.0, 300.0))
    middles = {round(rect.x + rect.width / 2, 3) for rect in found.items.values()}
    assert len(middles) == 1
    assert layout([], [], []).items == {}


@given(
    st.lists(st.tuples(st.floats(-100, 100), st.floats(0.1, 10), st.floats(1, 50)), min_size=1, max_size=6),
    st.floats(0, 9),
)
def test_spaced_keeps_order_and_distance(boxes, gap):
    wanted, weights, widths = map(list, zip(*boxes, strict=True))
    found = spaced(wanted, weights, widths, gap)
    for at, (before, after) in enumerate(itertools.pairwise(found)):
        assert after >= before + widths[at] + gap - 1e-6
    apart = all(b >= a + w + gap for (a, b), w in zip(itertools.pairwise(wanted), widths, strict=False))
    if apart:
        assert found == pytest.approx(wanted)


def test_an_arrangement_that_nothing_reads_has_the_name_of_what_it_reads():
    """As that of a history, which has no collection of its own."""
    read = OperatorView("f1", "input", ("customers",), (), {}, (), ("f2",))
    step = OperatorView("f2", "map", (), (), {}, ("f1",), ("f3",))
    kept = OperatorView("f3", "arrange", (), ("for the history h",), {}, ("f2",), ())
    boxes = folded(View("p", (read, step, kept), (), {}, ()))[0].operators
    assert [(box.kind, box.names) for box in boxes] == [("input", ("customers",)), ("collection", ("customers",))]

"""Times and frontiers are lattices: every law is tried on a domain small enough that times meet."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.rounds import split_rounds
from ddcli.engine.times import BEYOND, LEAST, Frontier, Time, box, join, less_equal, less_than, meet

DOMAINS = {nt: list(itertools.product(range(4), repeat=nt)) for nt in (1, 2, 3)}


@st.composite
def drawn(draw: st.DrawFn, frontiers: int = 1, count: int = 1) -> tuple[list[Frontier], list[Time], list[Time]]:
    """Draw some frontiers, some times, and give the whole domain that they come from."""
    domain = DOMAINS[draw(st.integers(1, 3))]
    sets = [draw(st.lists(st.sampled_from(domain), max_size=5)) for _ in range(frontiers)]
    return [Frontier(one) for one in sets], [draw(st.sampled_from(domain)) for _ in range(count)], domain


@given(drawn(count=2))
def test_join_and_meet_are_the_least_and_the_greatest(case) -> None:
    _, (one, two), domain = case
    for time in domain:
        assert less_equal(join(one, two), time) == (less_equal(one, time) and less_equal(two, time))
        assert less_equal(time, meet(one, two)) == (less_equal(time, one) and less_equal(time, two))
    assert less_than(one, two) == (less_equal(one, two) and not less_equal(two, one))


@given(st.lists(st.sampled_from(DOMAINS[2]), max_size=6), st.randoms())
def test_a_frontier_is_an_antichain_that_allows_what_its_times_do(items, random) -> None:
    frontier = Frontier(items)
    for one, two in itertools.permutations(frontier, 2):
        assert not less_equal(one, two)
    for time in DOMAINS[2]:
        assert frontier.less_equal(time) == any(less_equal(item, time) for item in items)
        assert frontier.less_than(time) == any(less_than(item, time) for item in items)
    shuffled = random.sample(items, len(items))
    assert frontier == Frontier(shuffled)
    assert hash(frontier) == hash(Frontier(shuffled))


@given(drawn(frontiers=2))
def test_join_and_meet_of_frontiers_allow_both_and_either(case) -> None:
    (one, two), _, domain = case
    for time in domain:
        assert one.join(two).less_equal(time) == (one.less_equal(time) and two.less_equal(time))
        assert one.meet(two).less_equal(time) == (one.less_equal(time) or two.less_equal(time))
    allowed = [{time for time in domain if frontier.less_equal(time)} for frontier in (one, two)]
    assert one.dominates(two) == (allowed[0] >= allowed[1])


@given(drawn(count=2))
def test_advancing_is_unseen_from_since_on_and_as_far_as_can_be(case) -> None:
    """The advanced time is before the same readable times, and times that look alike become one."""
    (since,), (one, two), domain = case
    readable = [time for time in domain if since.less_equal(time)]
    seen = [[less_equal(time, reader) for reader in readable] for time in (one, two)]
    moved = [join(time, since.as_time()) if since else time for time in (one, two)]
    assert [less_equal(moved[0], reader) for reader in readable] == seen[0]
    if since and seen[0] == seen[1]:
        assert moved[0] == moved[1]
    if since:
        assert join(moved[0], since.as_time()) == moved[0]
        assert moved[0] == reduce(meet, (join(one, element) for element in since))


@given(drawn())
def test_the_corners_are_the_largest_boxes_of_closed_times(case) -> None:
    (frontier,), (time,), domain = case
    if not frontier:
        return
    corners = frontier.corners()
    for one in domain:
        inside = [all(x < y for x, y in zip(one, corner, strict=True)) for corner in corners]
        assert any(inside) != frontier.less_equal(one)
    for one, two in itertools.permutations(corners, 2):
        assert not less_equal(one, two)
    assert box(time).corners() == (time,)
    closed = {one for one in domain if all(x < y for x, y in zip(one, time, strict=True))}
    assert {one for one in domain if not box(time).less_equal(one)} == closed


def test_a_side_without_an_end_and_nothing_closed() -> None:
    assert Frontier([(3, 4)]).corners() == ((3, BEYOND), (BEYOND, 4))
    assert Frontier([(LEAST, LEAST)]).corners() == ()
    assert box((LEAST, 4)) == Frontier([(LEAST, LEAST)])


@pytest.mark.parametrize(
    ("frontier", "text"),
    [
        (Frontier(), "closed"),
        (Frontier([(42,), (43,)]), "42"),
        (Frontier([(-3,)]), "-3"),
        (Frontier([(1, 0), (0, 1), (1, 1)]), "(0,1) (1,0)"),
    ],
)
def test_the_text_form(frontier: Frontier, text: str) -> None:
    assert str(frontier) == text
    assert bool(frontier) == (text != "closed")


def test_a_closed_frontier_is_no_time() -> None:
    assert Frontier([(1, 3), (3, 1)]).as_time() == (1, 1)
    with pytest.raises(AssertionError, match="a closed frontier is no time"):
        Frontier().as_time()


def test_times_of_different_lengths_do_not_compare() -> None:
    with pytest.raises(ValueError, match="zip"):
        less_equal((1,), (1, 2))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12), st.integers(1, 2), st.booleans())
def test_rows_are_split_by_rounds_alike_whether_they_are_few_or_many(drawn, depth, many) -> None:
    repeated = drawn * (kernels.FEW + 1) if many else drawn
    rows = np.array([(number, *rounds) for number, rounds in enumerate(repeated)], np.int64).reshape(-1, 3)
    at = 3 - depth
    expected: dict[Time, list[int]] = {}
    for number, *lanes in rows.tolist():
        expected.setdefault(tuple(lanes[at - 1 :]), []).append(number)
    found = [(rounds, part[:, 0].tolist()) for rounds, part in split_rounds(rows, at, depth)]
    assert found == sorted(expected.items())

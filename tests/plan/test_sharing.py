"""Which collections are kept whole in the place of what filters leave of them, and what a state makes of that."""

from __future__ import annotations

import pytest

from ddcli.plan import generations
from ddcli.plan.optimizer import sharing
from tests.plan.support import chain, logical, nodes

JOINED = "{join: {with: u, as: o, on: [k]}}"


def pipeline(*conditions, operator=JOINED, before=(), after=("map: {k: k, v: v, w: o.w}",)):
    """Return the graph of collections that filter an input otherwise, each before it is joined."""
    names = [f"c{at}" for at, _ in enumerate(conditions)]
    lines = [
        chain(*before, *([f"filter: {each}"] if each else []), operator, *after, name=name)
        for name, each in zip(names, conditions, strict=True)
    ]
    return logical("".join(lines), "{" + ", ".join(f"{name}: {name}/" for name in names) + "}")


def kept(graph, **options):
    """Return how many arrangements and joins there are."""
    found = generations.plan(graph, **options).graph
    return len(nodes(found, "Arrangement")), len(nodes(found, "EquiJoin"))


def test_filters_that_most_rows_pass_leave_one_arrangement_and_one_join():
    assert kept(pipeline("v <> 1", "v <> 2", "v <> 3")) == (2, 1)
    assert kept(pipeline("v <> 1", "v <> 2", "v <> 3"), share=lambda _: 0.0) == (4, 3)
    assert kept(pipeline("v <> 1", "v <> 2", "v <> 3"), choices=None) == (4, 3)


def test_others_stay_where_they_are():
    assert kept(pipeline("v <> 1", "v <> 2")) == (3, 2)  # less than twice the rows
    assert kept(pipeline("v = 1", "v = 2", "v = 3")) == (4, 3)
    assert kept(pipeline("v <> 1", "v <> 2", "v <> 3", "v = 4")) == (3, 2)  # but for the one that few rows pass
    assert kept(pipeline("v <> 1", "v <> 1", "v <> 1")) == (2, 1)  # one filter
    assert kept(pipeline("1 / v <> 1", "1 / v <> 2", "1 / v <> 3")) == (
        4,
        3,
    )  # who fails on which rows is no matter of what is kept


def test_who_reads_all_rows_counts_too():
    assert kept(pipeline("", "v <> 1", "v <> 2")) == (2, 1)


def test_projections_between_are_seen_through():
    renamed = "map: {k: k, v: n, w: v}"
    graph = pipeline("v <> 1", "v <> 2", "v <> 3", before=(renamed,), after=("map: {k: k, v: v, x: o.w}",))
    assert kept(graph) == (2, 1)


@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_only_inner_joins_are_asked(how):
    operator = f"{{join: {{with: u, as: o, on: [k], how: {how}}}}}"
    graph = pipeline("v <> 1", "v <> 2", "v <> 3", operator=operator)
    assert kept(graph) == kept(graph, share=lambda _: 0.0)


def test_what_joins_of_what_is_kept_once_filter_is_kept_once():
    """The next join is by another key, of what the first returns."""
    again = "{join: {with: m, as: x, on: {o.w: manager}}}"
    graph = pipeline("v <> 1", "v <> 2", "v <> 3", after=(f"{again[1:-1]}", "map: {k: k, v: v, e: x.employee}"))
    assert kept(graph) == (4, 2)


def test_a_state_keeps_what_it_keeps(monkeypatch):
    """Whatever is expected now; what is new joins what is kept whole, if it needs no other columns, and is apart where nothing is."""
    three, four = pipeline("v <> 1", "v <> 2", "v <> 3"), pipeline("v <> 1", "v <> 2", "v <> 3", "v <> 4")
    whole = generations.plan(three)
    apart = generations.plan(three, share=lambda _: 0.0)
    for before, arrangements in ((whole, 2), (apart, 4)):
        known = generations.known_generations(before.to_json())
        for often, most in ((2, 0.5), (1 << 60, 2.0), (0.1, 0.0)):
            monkeypatch.setattr(sharing, "OFTEN", often)
            monkeypatch.setattr(sharing, "MOST", most)
            again = generations.plan(three, known)
            assert (again.fingerprint, again.to_json()) == (before.fingerprint, before.to_json())
        monkeypatch.undo()
        found = nodes(generations.plan(four, known).graph, "Arrangement")
        assert len(found) == (arrangements if before is whole else arrangements + 1)
        assert {each.fingerprint for each in nodes(before.graph, "Arrangement")} <= {each.fingerprint for each in found}


def test_a_state_of_an_earlier_version_stays_as_it_is():
    """It does not know of collections that are kept whole."""
    graph = pipeline("v <> 1", "v <> 2", "v <> 3")
    apart = generations.plan(graph, share=lambda _: 0.0)
    tree = apart.to_json()
    for each in tree["generations"]:
        del each["wholes"]
    again = generations.plan(graph, generations.known_generations(tree))
    assert (again.fingerprint, again.to_json()["generations"]) == (apart.fingerprint, tree["generations"])

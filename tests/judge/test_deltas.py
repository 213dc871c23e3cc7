"""Joins of a collection with itself, several times over, as delta joins: what is written, however they are stepped."""

from __future__ import annotations

import random
import tempfile
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.plan import generations
from ddcli.plan.lower import lower
from ddcli.plan.optimizer.delta_joins import delta_joins, with_delta_joins
from ddcli.plan.physical import physical_graph
from tests.draws import many
from tests.judge.case import Case
from tests.judge.harness import judge
from tests.judge.logs import cuts, updates
from tests.judge.memory import judge_by_rounds, judge_in_memory
from tests.judge.sizes import IN_MEMORY, cut, few
from tests.judge.test_changes import judge_changes
from tests.yaml_text import write_yaml

FORMS = {
    "triangles": [[("v", 0, "k")], [("v", 1, "k"), ("k", 0, "v")]],
    "shortcuts": [[("v", 0, "k")], [("v", 1, "v"), ("k", 0, "k")]],
    "paths": [[("v", 0, "k")], [("v", 1, "k")]],
    "squares": [[("v", 0, "k")], [("v", 1, "k")], [("v", 2, "k"), ("k", 0, "v")]],
    "cliques": [[("v", 0, "k")], [("v", 1, "v"), ("k", 0, "k")], [("v", 2, "k"), ("k", 0, "k"), ("v", 1, "v")]],
    "stars": [[("k", 0, "k")], [("k", 0, "k")], [("v", 0, "v"), ("k", 2, "k")]],
}
"""For each further side the columns that are equal: of an earlier side, by its number, and its own."""


@st.composite
def sides(draw, source, kinds):
    """Give joins of a collection of nodes `k` and `v` with itself or others, and what is read of them."""
    form = FORMS[draw(st.sampled_from([*FORMS]))]
    if not draw(st.integers(0, 3)):
        some = st.lists(
            st.tuples(st.sampled_from("kv"), st.integers(0, 8), st.sampled_from("kv")), min_size=1, max_size=2
        )
        form = draw(st.lists(some, min_size=2, max_size=4))
    apply = []
    for at, pairs in enumerate(form):
        known = [(f"e{of % (at + 1)}.{one}" if of % (at + 1) else one, other) for one, of, other in pairs]
        if len(dict(known)) < len(known) or len({other for _, other in known}) < len(known):
            known = known[:1]
        other = draw(st.sampled_from([source] * 7 + [each for each in kinds if each != source]))
        apply.append({"join": {"with": other, "as": f"e{at + 1}", "on": dict(known)}})
    columns = [f"e{at}.{name}" if at else name for at in range(len(form) + 1) for name in "kv"]
    read = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=4))
    return [*apply, {"map": {f"c{at}": _own(column) for at, column in enumerate(read)}}]


def _own(column):
    return ".".join(f'"{part}"' if part in ("k", "v") else part for part in column.split("."))


@st.composite
def joined_cases(draw, nt=1, *, looping=False):
    """Give a pipeline of such joins, at the top or in a loop, its logs, and the runs."""
    kind = draw(
        st.sampled_from(["int64", "string", "int64?", "decimal(30, 1)?"] if not looping else ["int64", "int64?"])
    )
    kinds = {name: {"k": kind, "v": kind} for name in ("p", "q")[: draw(st.integers(1, 2))]}
    if draw(st.booleans()):
        kinds["p"]["x"] = "string"
    if draw(st.booleans()):
        kinds["p"] = dict(reversed(kinds["p"].items()))
    logs = {name: draw(updates(columns, nt, valid=looping, looping=True)) for name, columns in kinds.items()}
    collections = {}
    if looping:
        apply = draw(sides("x", ["x"]))
        apply[-1] = {"map": dict(zip("kv", ([*apply[-1]["map"].values()] * 2)[:2], strict=True))}
        again = {"from": "x", "apply": [*apply, {"concat": "s"}, "distinct"]}
        collections["s"] = {"from": "p", "apply": [{"project": ["k", "v"]}, "distinct"]}
        collections["c"] = {"iterate": {"variables": {"x": "s"}, "body": {"x": again}, "result": "x"}}
    else:
        collections["c"] = {"from": "p", "apply": draw(sides("p", [*kinds]))}
        if draw(st.booleans()):
            collections["d"] = {"from": "p", "apply": draw(sides("p", [*kinds]))}
    time = {} if nt == 1 else {"time": [f"t{at}" for at in range(nt)]}
    tree = {"dd": 1, "name": "judged", "inputs": {}, "collections": collections}
    tree["inputs"] = {name: {"path": f"in/{name}/", "columns": columns} | time for name, columns in kinds.items()}
    tree["outputs"] = {name: f"out/{name}/" for name in collections if name != "s"}
    return Case(write_yaml(tree), draw(cuts(logs, nt)))


def lowered(graph):
    """Return a graph with delta joins wherever there may be some."""
    plain = lower(graph)
    return physical_graph(with_delta_joins(plain.outputs, delta_joins(plain.outputs, lambda _: True)))


CASES = st.tuples(st.sampled_from([1, 1, 2, 3]), st.booleans()).flatmap(
    lambda way: joined_cases(nt=way[0], looping=way[1])
)


@settings(max_examples=many(24))
@given(CASES, *IN_MEMORY, st.integers(0, 2**32))
def test_delta_joins_mean_what_is_written(case, most, shards, finely, seed):
    """In memory on several workers, and as tasks, at times of several coordinates, in loops, with negative multiplicities."""
    with few(most), tempfile.TemporaryDirectory() as folder:
        judge_in_memory(case, shards, finely=finely, lowered=lowered)
        judge_by_rounds(case, shards + 1, random.Random(seed), Path(folder), finely=finely, lowered=lowered)


@contextmanager
def chosen(seed, shards):
    """Have runs cut as chance will have it, and joins of which the state knows nothing be delta joins or not."""
    chance = random.Random(seed)
    with cut(shards, seed), pytest.MonkeyPatch.context() as patch:

        def options():
            patch.setitem(generations.plan.__kwdefaults__, "deltas", chance.random() < 0.6)
            return {}

        yield options


@settings(max_examples=many(4))
@given(CASES, st.sampled_from([1, 3]), st.integers(0, 2**32))
def test_runs_go_on_with_the_joins_that_they_have(case, shards, seed):
    """In memory or out of core, whatever would be chosen by now."""
    with tempfile.TemporaryDirectory() as folder, chosen(seed, shards) as options:
        judge(case, Path(folder), options)


@settings(max_examples=many(4))
@given(st.sampled_from([1, 1, 2]).flatmap(joined_cases), st.sampled_from([1, 3]), st.integers(0, 2**32))
def test_a_pipeline_may_come_to_keep_what_lies_between(case, shards, seed):
    """Where another output reads it from some run on, or none does any more."""
    chance, tree = random.Random(seed), case.tree
    more = deepcopy(tree)
    between = [each for each in tree["collections"]["c"]["apply"] if "join" in each][:-1]
    more["collections"]["m"] = {"from": "p", "apply": [*between, {"map": {"n": "v"}}]}
    more["outputs"]["m"] = "out/m/"
    texts = [write_yaml(chance.choice([tree, more])) for _ in (*case.runs, None)]
    with tempfile.TemporaryDirectory() as folder, chosen(seed, shards) as options:
        judge_changes(case, texts, Path(folder), options)

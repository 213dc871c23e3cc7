"""Where incremental computation goes wrong: known traps, each through the whole path from files to files and in many cuts."""

from __future__ import annotations

from itertools import pairwise, permutations

import polars as pl
import pytest

from ddcli.driver.run import run
from tests.draws import some
from tests.judge.case import Arrival, Case, Run, write_file
from tests.judge.frontiers import closing
from tests.judge.harness import Meaning, judge
from tests.judge.sizes import AS_THEY_ARE, few
from tests.loops import LEAST_LABEL, indented

small_and_large = pytest.mark.parametrize("most", [*some([AS_THEY_ARE, 0])])


def orders(times: list, most: int = 2):
    """Give ways to take times one after the other, none before one that is before it."""
    coordinates = range(len(times[0]))
    found = [sorted(times, key=lambda time: [time[at] for at in order]) for order in permutations(coordinates)]
    found.append(sorted(times, key=lambda time: (sum(time), time)))
    return [list(order) for order in dict.fromkeys(map(tuple, found))][:most]


def cuts(times: list):
    """Give where to cut an order of times: everywhere, at each place alone. The judge itself leaves it whole as well."""
    return dict.fromkeys([tuple(range(1, len(times))), *((at,) for at in range(1, len(times)))])


def judge_cuts(tmp_path, head: str, logs: dict[str, list], most: int = AS_THEY_ARE) -> None:
    """Judge a pipeline over logs of updates, cut at their times in many ways; `most` as in `few`."""
    times = sorted({time for rows in logs.values() for _, time, _ in rows})
    number, once, meaning = 0, None, None
    for order in orders(times):
        for cut in some(cuts(order)):
            runs = []
            for start, end in zip((0, *cut), (*cut, len(order)), strict=True):
                files = tuple(
                    Arrival(name, tuple(update for update in rows if update[1] in order[start:end]))
                    for name, rows in logs.items()
                )
                upper = closing(order[:end], times)
                runs.append(Run(files, progress=((next(iter(logs)), upper),)))
            number += 1
            case = Case(head, tuple(runs))
            meaning = meaning or Meaning(case)
            with few(most):
                once = judge(case, tmp_path / str(number), once=once, meaning=meaning)


def head(columns: str, time: str, collections: str, *outputs: str) -> str:
    """Return a pipeline over inputs `name: columns; ...`, with these collections as they stand in a file."""
    inputs = "\n".join(
        f"  {name}: {{path: in/{name}/, time: {time}, columns: {{{kinds}}}}}"
        for name, kinds in (line.split(": ", 1) for line in columns.split("; "))
    )
    written = ", ".join(f"{name}: out/{name}/" for name in outputs)
    return f"dd: 1\nname: trap\ninputs:\n{inputs}\ncollections:\n{collections}outputs: {{{written}}}\n"


LABELLED = "links: src: int64, dst: int64; labels: node: int64, label: int64"
LEAST_LABELS = "  best:\n" + indented(4, LEAST_LABEL)


def chain(start: int, length: int, end: int) -> list:
    """Return links of a way of so many from a node to another, over nodes that nobody else has."""
    nodes = [start, *(100 * start + at for at in range(1, length)), end]
    return list(pairwise(nodes))


@small_and_large
def test_a_change_at_an_early_round_is_reconsidered_at_later_ones(most, tmp_path):
    """At node 1 the least label sinks at rounds 4, 7 and 9; from time 1 to 2 another label comes at round 3.

    It is the least until round 7, so what time 0 did at rounds 4 and 7 must be looked at again there, and not in between.
    """
    text = head(LABELLED, "time", LEAST_LABELS, "best")
    ways = [(4, 4, 8), (7, 7, 6), (9, 9, 5), (3, 3, 7)]
    links = [(link, (0,), 1) for start, length, _ in ways for link in chain(start, length, 1)] + [((1, 2), (0,), 1)]
    labels = [((1, 9), (0,), 1), *(((start, label), (0,), 1) for start, _, label in ways[:3])]
    labels += [((3, 7), (1,), 1), ((3, 7), (2,), -1), ((3, 6), (3,), 1), ((9, 5), (3,), -1), ((7, 6), (4,), -1)]
    judge_cuts(tmp_path, text, {"links": links, "labels": labels}, most)


@small_and_large
def test_groups_that_change_first_at_incomparable_times_are_each_reconsidered(most, tmp_path):
    """Nodes 1 and 2 are as above, but what comes at round 3 comes to one in one coordinate, to the other in the other."""
    text = head(LABELLED, "[x, y]", LEAST_LABELS, "best")
    links, labels = [], [((1, 9), (0, 0), 1), ((2, 9), (0, 0), 1)]
    for node, time in ((1, (1, 0)), (2, (0, 1))):
        ways = [(10 * node + length, length, label) for length, label in ((3, 7), (4, 8), (6, 5))]
        links += [(link, (0, 0), 1) for start, length, _ in ways for link in chain(start, length, node)]
        labels += [((start, label), time if label == 7 else (0, 0), 1) for start, _, label in ways]
    judge_cuts(tmp_path, text, {"links": links, "labels": [*labels, ((16, 5), (1, 1), -1)]}, most)


ALL_LABELS = """\
  both:
    iterate:
      variables: {known: labels}
      body:
        known:
          from: known
          apply: [{join: {with: links, on: {n: a}}}, {map: {n: b, l: l}}, {concat: labels}, distinct]
        low:
          iterate:
            variables: {y: known}
            body:
              y: {from: [y, known], apply: [{reduce: {by: [n], l: min(l)}}]}
            result: y
      result: [known, low]
"""


@small_and_large
def test_a_reduction_in_a_loop_inside_is_reconsidered_at_later_rounds_around(most, tmp_path):
    """The same as the first, with the least label found in a loop inside of that in which labels come."""
    text = head("links: a: int64, b: int64; labels: n: int64, l: int64", "time", ALL_LABELS, "low")
    text = text.replace("low: out/low/", "low: {path: out/low/, from: both.low}, k: {path: out/k/, from: both.known}")
    ways = [(4, 4, 8), (6, 6, 6), (3, 3, 7)]
    links = [(link, (0,), 1) for start, length, _ in ways for link in chain(start, length, 1)]
    labels = [((1, 9), (0,), 1), ((4, 8), (0,), 1), ((6, 6), (0,), 1)]
    labels += [((3, 7), (1,), 1), ((3, 7), (2,), -1), ((3, 6), (3,), 1), ((6, 6), (3,), -1)]
    judge_cuts(tmp_path, text, {"links": links, "labels": labels}, most)


AXES = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
"""Three times, pairwise incomparable, whose joins of two are none of all three."""
TRIPLE = [((1, 0), (0, 0, 0), -2), ((1, 9), (0, 0, 0), 1), *(((1, 0), time, 1) for time in AXES)]


@pytest.mark.parametrize(
    "operator",
    [
        "reduce: {by: [k], v: min(v)}",
        "reduce: {by: [k], v: sum(v + 1)}",
        "top_k: {by: [k], k: 1, order_by: [v]}",
        "distinct",
        "antijoin: {with: {from: p, apply: [filter: v = 0]}, on: [k]}",
    ],
)
def test_three_incomparable_times_meet_in_a_triple_join(operator, tmp_path):
    """The record that outweighs the others is there only where all three times have come."""
    text = head("p: k: int64, v: int64", "[x, y, z]", f"  c: {{from: p, apply: [{operator}]}}\n", "c")
    judge_cuts(tmp_path, text, {"p": TRIPLE})


def limited(time: str, rounds: int) -> str:
    """Return the pipeline of the least labels over a time, in so many rounds at most."""
    body = LEAST_LABELS.replace("      result: best\n", f"      result: best\n      max_rounds: {rounds}\n")
    return head(LABELLED, time, body, "best")


@small_and_large
def test_two_coordinates_and_a_round_meet_in_a_triple_join(most, tmp_path):
    """The label 0 is there -2 times, once more from either time on, and once more when it has come along three links."""
    text = limited("[x, y]", 6)
    links = [(link, (0, 0), 1) for link in [*chain(5, 3, 1), (1, 2)]]
    labels = [((1, 0), (0, 0), -2), ((1, 9), (0, 0), 1), ((5, 0), (0, 0), 1)]
    labels += [((1, 0), (1, 0), 1), ((1, 0), (0, 1), 1)]
    judge_cuts(tmp_path, text, {"links": links, "labels": labels}, most)


@small_and_large
def test_three_coordinates_and_a_round(most, tmp_path):
    """All three times meet within a loop, so that four coordinates do."""
    text = limited("[x, y, z]", 5)
    links = [(link, (0, 0, 0), 1) for link in [*chain(5, 2, 1), (1, 2)]]
    labels = [((1, 0), (0, 0, 0), -3), ((1, 9), (0, 0, 0), 1), ((5, 0), (0, 0, 0), 1)]
    judge_cuts(tmp_path, text, {"links": links, "labels": [*labels, *(((1, 0), time, 1) for time in AXES)]}, most)


def least(value: int, time: tuple, diff: int) -> tuple:
    return (1, value), time, diff


def test_a_retraction_that_meets_what_compaction_moved_onto_its_time(tmp_path):
    """After a run, older updates stand at its upper: a retraction there cancels, but its time is interesting all the same."""
    text = head("p: k: int64, v: int64", "time", "  c: {from: p, apply: [{reduce: {by: [k], v: min(v)}}]}\n", "c")
    rows = [least(5, (0,), 1), least(7, (0,), 1), least(5, (3,), -1), least(5, (4,), 1), least(5, (5,), -1)]
    judge_cuts(tmp_path, text, {"p": [*rows, least(7, (6,), -1), least(7, (7,), 1), least(7, (8,), -1)]})


@pytest.mark.parametrize("upper", [((2, 0),), ((2, 1), (3, 0)), ((2, 0), (1, 2))])
def test_such_a_retraction_at_times_of_two_coordinates(upper, tmp_path):
    """The history of the first run stands at the meet of its upper or after it, where the next run's retraction comes."""
    text = head("p: k: int64, v: int64", "[x, y]", "  c: {from: p, apply: [{reduce: {by: [k], v: min(v)}}]}\n", "c")
    early = [least(7, (0, 0), 1), least(5, (1, 1) if upper[0][0] == 2 else (0, 1), 1), least(4, (0, 0), 1)]
    late = [least(5, (2, 2), -1), least(4, (3, 1), -1), least(4, (2, 3), -1), least(4, (3, 3), 1)]
    runs = (Run((Arrival("p", tuple(early)),), progress=(("p", upper),)),)
    runs += (Run((Arrival("p", tuple(late)),), progress=(("p", ((3, 2), (2, 3))),)), Run(progress=(("p", ((4, 4),)),)))
    judge(Case(text, runs), tmp_path)


REACHED = """\
  near: {from: starts, apply: [distinct]}
  reached:
    iterate:
      variables: {people: near}
      body:
        people:
          from: people
          apply:
            - join: {with: links, on: {n: a}}
            - map: {n: b}
            - concat: near
            - distinct
      result: people
  counted: {from: reached, apply: [{reduce: {n: count(*)}}]}
"""
TWO = "links: a: int64, b: int64; starts: n: int64"


@small_and_large
def test_mutual_support_keeps_nothing_alive(most, tmp_path):
    """1, 2 and 3 lead to each other: when nothing leads to them any more they are gone, and they come back whole."""
    text = head(TWO, "time", REACHED, "reached", "counted")
    links = [((a, b), (0,), 1) for a, b in [(0, 1), (1, 2), (2, 3), (3, 1), (2, 1), (3, 3), (3, 4)]]
    starts = [((0,), (0,), 1), ((2,), (1,), 1), ((0,), (2,), -1), ((2,), (3,), -1), ((3,), (4,), 1)]
    links += [((0, 1), (1,), -1), ((3, 1), (4,), -1)]
    judge_cuts(tmp_path, text, {"links": links, "starts": starts}, most)


@small_and_large
def test_a_loop_over_a_collection_that_becomes_empty(most, tmp_path):
    """Nothing at first, then something, nothing again, then the same once more."""
    text = head(TWO, "time", REACHED, "reached", "counted")
    all_links = [(0, 1), (1, 2), (2, 0)]
    links = [(link, (time,), diff) for time, diff in [(1, 1), (2, -1), (4, 1)] for link in all_links]
    starts = [((0,), (0,), 1), ((0,), (3,), -1), ((1,), (4,), 1), ((1,), (5,), -1)]
    judge_cuts(tmp_path, text, {"links": links, "starts": starts}, most)


def test_a_loop_whose_input_is_empty_for_ever(tmp_path):
    text = head(TWO, "time", REACHED, "reached", "counted")
    judge(Case(text, (Run((Arrival("links", ()), Arrival("starts", ()))), Run(until="3"), Run(until="5"))), tmp_path)


NEGATIVE = """\
  c: {from: p, apply: [{reduce: {by: [k], n: count(*), s: sum(v), lo: min(v), d: count(distinct v)}}]}
  d: {from: p, apply: [distinct]}
  l:
    iterate:
      variables: {x: p}
      body:
        half: {from: x, apply: [{reduce: {by: [k], v: sum(v)}}, {map: {k: k, v: v % 3}}]}
        x: {from: half, apply: [{concat: p}, negate, {threshold: 'greatest(least(count, 2), -2)'}]}
      result: [x, half]
      max_rounds: 5
"""


@pytest.mark.parametrize("time", ["time", "[x, y]"])
@small_and_large
def test_less_than_nothing_passes_through_reductions(time, most, tmp_path):
    """Retractions come before their insertions, so that counts are negative, in and out of a loop."""
    text = head("p: k: int64, v: int64", time, NEGATIVE, "c", "d")
    text = text.replace("d: out/d/", "d: out/d/, x: {path: out/x/, from: l.x}, h: {path: out/h/, from: l.half}")
    rows = [((1, 2), 0, -2), ((1, 1), 0, 1), ((2, 2), 0, -1), ((1, 2), 1, 1), ((2, 2), 1, 2), ((1, 1), 2, -2)]
    rows += [((1, 2), 3, 2), ((1, 1), 3, 1), ((2, 2), 3, -1)]
    place = {0: (0, 0), 1: (0, 1), 2: (1, 0), 3: (1, 1)}
    judge_cuts(tmp_path, text, {"p": [(r, (t,) if time == "time" else place[t], diff) for r, t, diff in rows]}, most)


NESTED = (
    """\
  kept:
    iterate:
      variables: {kept: links}
      body:
        own: {from: kept, apply: [{map: {node: src, label: src}}, distinct]}
        first:
"""
    + indented(10, LEAST_LABEL.replace("links", "kept").replace("labels", "own"))
    + """\
        kept:
          from: kept
          apply:
            - join: {with: first, as: one, on: {src: node}}
            - join: {with: first, as: other, on: {dst: node}}
            - filter: label = other.label
            - map: {src: dst, dst: src}
      result: kept
"""
)


@small_and_large
def test_circles_within_circles(most, tmp_path):
    """Strongly connected components: a link that closes a circle is set and taken away, and another circle with it."""
    text = head(
        "links: src: int64, dst: int64",
        "time",
        NESTED.replace("      result: kept\n", "      result: kept\n      max_rounds: 8\n"),
        "kept",
    )
    links = [((a, b), (0,), 1) for a, b in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 2), (5, 0)]]
    links += [((3, 0), (1,), 1), ((1, 2), (2,), -1), ((4, 5), (3,), 1), ((1, 2), (3,), 1), ((2, 3), (4,), -1)]
    judge_cuts(tmp_path, text, {"links": links}, most)


WORDS = [("a", (0, 0), 1), ("b", (0, 0), 3), ("cc", (0, 0), 2), ("a", (0, 1), -1), ("b", (0, 1), -3)]
WORDS += [("a", (1, 0), -1), ("b", (1, 0), -1)]
LAST = [("a", (1, 1), 1), ("b", (1, 1), 2)]
SAID = {(0, 0): {(1, 2): 1, (2, 1): 1}, (0, 1): {(1, 2): -1}, (1, 0): {(1, 1): 1, (1, 2): -1}}


@pytest.mark.parametrize(
    ("words", "corner"), [([*WORDS, *LAST], {(1, 2): 1}), (WORDS, {(1, 1): -1, (1, 2): 2})], ids=["full", "short"]
)
def test_the_first_example_of_partial_order(words, corner, tmp_path):
    """How many distinct words of each length: at (1, 1) that changes even where nothing arrives there."""
    apply = "[{reduce: {by: {len: length(s)}, n: count(distinct s)}}]"
    text = head("words: s: string", "[x, y]", f"  c: {{from: words, apply: {apply}}}\n", "c")
    rows = [((word,), time, diff) for word, time, diff in words]
    judge_cuts(tmp_path / "cuts", text, {"words": rows})
    case = Case(text, (Run((Arrival("words", tuple(rows)),)),))
    write_file(case, case.runs[0].files[0], tmp_path / "in/words/1.parquet")
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    run(tmp_path / "p.yaml", until="2,2")
    log = {}
    for length, n, x, y, diff in pl.read_parquet(tmp_path / "out/c/*.parquet").rows():
        log.setdefault((x, y), {})[length, n] = diff
    assert log == {**SAID, (1, 1): corner}

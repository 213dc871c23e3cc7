"""The reference against examples whose answers were worked out by hand."""

from __future__ import annotations

import pytest

from ddcli.expressions.types import parse_type
from ddcli.plan.build import build
from ddcli.plan.pipeline_file import parse_spec
from tests.loops import LEAST_LABEL, REACHED, indented
from tests.reference.model import LoopDiverges, Model, accumulate, less_equal

HEAD = "dd: 1\nname: example\n"


def outputs(text, schemas, updates, times):
    """Return the output `out` of a pipeline at times, recomputed at each."""
    types = {name: {column: parse_type(kind) for column, kind in columns.items()} for name, columns in schemas.items()}
    node = build(parse_spec(HEAD + text, "p.yaml"), types).outputs["out"]
    found = {}
    for time in times:
        found[time] = Model({name: accumulate(rows, time) for name, rows in updates.items()}, time).output(node)
    return found


def differences(collections):
    """Return the differences whose accumulation the collections are: what of each its predecessors don't explain."""
    found = {}
    for time in sorted(collections):
        change = dict(collections[time])
        for earlier, difference in found.items():
            for record, diff in difference.items() if less_equal(earlier, time) else ():
                change[record] = change.get(record, 0) - diff
        found[time] = {record: diff for record, diff in change.items() if diff}
    return found


SKIP_LEVEL = """
inputs: {manages: m/}
collections:
  out:
    from: manages
    apply:
      - join: {with: manages, as: up, on: {manager: employee}}
      - map: {employee: employee, manager: manager, skip: up.manager}
outputs: {out: out/}
"""


def test_skip_level():
    """A change of one manager changes whoever is two levels below."""
    schemas = {"manages": {"manager": "int64", "employee": "int64"}}
    updates = [((1, 2), (0,), 1), ((2, 3), (0,), 1), ((2, 4), (1,), 1), ((1, 2), (2,), -1), ((5, 2), (2,), 1)]
    found = outputs(SKIP_LEVEL, schemas, {"manages": updates}, [(0,), (1,), (2,)])
    assert found[0,] == {(3, 2, 1): 1}
    assert found[1,] == {(3, 2, 1): 1, (4, 2, 1): 1}
    assert found[2,] == {(3, 2, 5): 1, (4, 2, 5): 1}


DELAYS = """
inputs: {flights: f/}
collections:
  out:
    from: flights
    apply:
      - filter: delay is not null
      - reduce: {by: [origin], flights: count(*), mean: avg(delay), worst: max(delay)}
outputs: {out: out/}
"""


def test_delays():
    """A correction of a delay is a retraction and an insertion; a group whose last flight goes is gone."""
    schemas = {"flights": {"origin": "string", "delay": "int64?"}}
    updates = [(("JFK", 10), (0,), 2), (("JFK", None), (0,), 1), (("LGA", 1), (0,), 1)]
    updates += [(("JFK", 10), (1,), -1), (("JFK", 40), (1,), 1), (("LGA", 1), (1,), -1)]
    found = outputs(DELAYS, schemas, {"flights": updates}, [(0,), (1,)])
    assert found[0,] == {("JFK", 2, 10.0, 10): 1, ("LGA", 1, 1.0, 1): 1}
    assert found[1,] == {("JFK", 2, 25.0, 40): 1}


PARTIAL = """
inputs: {words: {path: w/, time: [x, y]}}
collections:
  out:
    from: words
    apply: [{reduce: {by: {len: length(s)}, n: count(distinct s)}}]
outputs: {out: out/}
"""
WORDS = [("a", (0, 0), 1), ("b", (0, 0), 3), ("cc", (0, 0), 2), ("a", (0, 1), -1), ("b", (0, 1), -3)]
WORDS += [("a", (1, 0), -1), ("b", (1, 0), -1)]
CORNERS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def words(updates):
    """Return the output differences of the example at each corner."""
    rows = {"words": [((word,), time, diff) for word, time, diff in updates]}
    return differences(outputs(PARTIAL, {"words": {"s": "string"}}, rows, CORNERS))


def test_partial_order():
    """The example from the literature: two coordinates, compared one by one."""
    found = words([*WORDS, ("a", (1, 1), 1), ("b", (1, 1), 2)])
    assert found[0, 0] == {(1, 2): 1, (2, 1): 1}
    assert found[0, 1] == {(1, 2): -1}
    assert found[1, 0] == {(1, 1): 1, (1, 2): -1}
    assert found[1, 1] == {(1, 2): 1}


def test_partial_order_where_nothing_arrives():
    """Without the last input the output changes at (1, 1) all the same: both words are there, -1 times each."""
    assert words(WORDS)[1, 1] == {(1, 1): -1, (1, 2): 2}


LABELS = (
    """
inputs: {links: l/, labels: n/}
collections:
  out:
"""
    + indented(4, LEAST_LABEL.replace("concat: labels", "concat: {from: labels, apply: [AT]}"))
    + """\
      max_rounds: ROUNDS
outputs: {out: out/}
"""
)
SCHEMAS = {"links": {"src": "int64", "dst": "int64"}, "labels": {"node": "int64", "label": "int64"}}
RING = {"links": [((at, (at + 1) % 5), (0,), 1) for at in range(5)], "labels": [((0, 7), (0,), 1), ((2, 5), (0,), 1)]}


def labelled(rounds, at="consolidate"):
    """Return the labels that five nodes in a ring have after so many rounds."""
    (found,) = outputs(LABELS.replace("ROUNDS", rounds).replace("AT", at), SCHEMAS, RING, [(0,)]).values()
    assert set(found.values()) <= {1}
    return dict(sorted(found))


def test_a_loop_after_each_round():
    """A round takes each label one link further; in the sixth nothing changes any more."""
    assert labelled("1") == {0: 7, 1: 7, 2: 5, 3: 5}
    assert labelled("2") == {0: 7, 1: 7, 2: 5, 3: 5, 4: 5}
    assert labelled("4") == {0: 5, 1: 5, 2: 5, 3: 5, 4: 5}
    assert labelled("{guard: 4}") == labelled("4") == labelled("{guard: 100}") == labelled("100")


def test_a_loop_that_changes_longer_than_it_may():
    """After three rounds one label is still to come."""
    with pytest.raises(LoopDiverges):
        labelled("{guard: 3}")


def test_labels_that_enter_later():
    """The label 5 is at node 2 in the beginning, runs off along the ring, and is there for good from round 3 on."""
    at = "{enter: {at: 'case when label = 5 then 3 else -1 end'}}"
    assert labelled("1", at) == {0: 7, 1: 7, 3: 5}
    assert labelled("3", at) == {0: 5, 1: 7, 2: 7, 3: 7}
    assert labelled("4", at) == {0: 7, 1: 5, 2: 5, 3: 7, 4: 7}
    assert labelled("{guard: 20}", at) == {0: 5, 1: 5, 2: 5, 3: 5, 4: 5}


MUTUAL = """
inputs: {links: l/, starts: s/}
collections:
  both:
    iterate:
      variables: {even: starts, odd: {from: starts, apply: [filter: 'false']}}
      body:
        even: {from: odd, apply: [{join: {with: links, on: {n: a}}}, {map: {n: b}}, {concat: starts}, distinct]}
        odd: {from: even, apply: [{join: {with: links, on: {n: a}}}, {map: {n: b}}, distinct]}
      result: [even, odd]
  out: {from: both.even, apply: [{antijoin: {with: both.odd, on: [n]}}]}
outputs: {out: out/}
"""


def test_mutual_recursion():
    """Nodes that only an even number of links leads to."""
    schemas = {"links": {"a": "int64", "b": "int64"}, "starts": {"n": "int64"}}
    links = [((a, b), (0,), 1) for a, b in [(0, 1), (1, 2), (2, 3), (3, 4), (1, 5)]] + [((5, 3), (1,), 1)]
    found = outputs(MUTUAL, schemas, {"links": links, "starts": [((0,), (0,), 1)]}, [(0,), (1,)])
    assert found[0,] == {(0,): 1, (2,): 1, (4,): 1, (5,): 1}
    assert found[1,] == found[0,]
    ring = {"links": [*links, ((2, 0), (1,), 1)], "starts": [((0,), (0,), 1)]}
    assert outputs(MUTUAL, schemas, ring, [(1,)])[1,] == {}


NESTED = (
    """
inputs: {links: l/}
collections:
  out:
    iterate:
      variables: {kept: links}
      body:
        near:
"""
    + indented(10, REACHED.replace("links", "kept"))
    + """\
        kept: {from: kept, apply: [{semijoin: {with: near, on: {src: dst, dst: src}}}]}
      result: kept
outputs: {out: out/}
"""
)


def test_a_loop_in_a_loop():
    """What is left of links are those that lie on circles."""
    links = [((a, b), (0,), 1) for a, b in [(0, 1), (1, 0), (1, 2), (2, 3), (3, 4), (4, 2), (5, 0)]]
    found = outputs(NESTED, {"links": SCHEMAS["links"]}, {"links": [*links, ((3, 4), (1,), -1)]}, [(0,), (1,)])
    assert set(found[0,]) == {(0, 1), (1, 0), (2, 3), (3, 4), (4, 2)}
    assert set(found[1,]) == {(0, 1), (1, 0)}


STAYS = """
inputs: {stays: s/}
collections:
  out: {from: stays, apply: [{temporal_filter: {from: since, until: upto}}]}
outputs: {out: out/}
"""


def test_now():
    """A record is there from the first to before the last; never where the two are the wrong way round or unknown."""
    rows = [(("a", 1, 3), (0,), 2), (("b", 0, 9), (2,), 1), (("c", 3, 1), (0,), 1), (("d", None, 9), (0,), 1)]
    schemas = {"stays": {"who": "string", "since": "int64?", "upto": "int64"}}
    found = outputs(STAYS, schemas, {"stays": rows}, [(0,), (1,), (2,), (3,)])
    assert list(found.values()) == [{}, {("a", 1, 3): 2}, {("a", 1, 3): 2, ("b", 0, 9): 1}, {("b", 0, 9): 1}]


MOVED = """
inputs: {p: {path: p/, time: TIME}}
collections:
  out: {from: p, apply: [{join_function: {function: 'tests.judge.functions:later', columns: {k: int64, n: int64}}}]}
outputs: {out: out/}
"""


def test_functions_of_time():
    """The function gives (3, 0) at once, (3, 1) twice from 3 on and none from 4 on, (3, 2) -1 times from 4 on."""
    found = outputs(
        MOVED.replace("TIME", "time"), {"p": {"k": "int64"}}, {"p": [((3,), (1,), 1)]}, [(0,), (1,), (3,), (4,)]
    )
    assert list(found.values()) == [{}, {(3, 0): 1}, {(3, 0): 1, (3, 1): 2}, {(3, 0): 1, (3, 2): -1}]

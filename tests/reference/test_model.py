"""The reference against examples whose answers were worked out by hand."""

from __future__ import annotations

from ddcli.expressions.types import parse_type
from ddcli.plan.build import build
from ddcli.spec.document import parse_spec
from tests.reference.model import Model, accumulate, less_equal

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

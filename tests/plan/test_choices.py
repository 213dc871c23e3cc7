"""What a plan says of its choices: each that was made, those that were not, and by which figures."""

from __future__ import annotations

from ddcli.expressions.types import parse_type
from ddcli.plan import generations
from ddcli.plan.choices import plan_choices
from ddcli.plan.estimates import estimated_rows
from ddcli.plan.pipeline_file import BoundPipeline, parse_spec
from tests.plan.support import HEAD, SCHEMAS, chain
from tests.plan.test_delta_joins import triangles
from tests.plan.test_reordering import LOOKED_UP


def choices(collections, sizes=None, known=None, outputs="{c: out/}", rows=None):
    """Return what is chosen, as (kind, at, what, why), and the plan, for inputs of these sizes, and so many rows of each in a first run."""
    spec = parse_spec(f"{HEAD}{collections}outputs: {outputs}\n", "p.yaml")
    schemas = {name: {c: parse_type(kind) for c, kind in columns.items()} for name, columns in SCHEMAS.items()}
    bound = BoundPipeline(spec, schemas, {"time": parse_type("int64")}, sizes=lambda: sizes or {})
    plan = bound.plan(known)
    expected = estimated_rows(plan.graph, dict.fromkeys(plan.graph.scans(), rows), {}) if rows else {}
    return [(each.kind, each.at, each.chosen, each.why) for each in plan_choices(bound, plan, expected)], plan


def of(kind, found):
    return [each[1:] for each in found if each[0] == kind]


def test_columns_filters_and_what_is_shared():
    text = chain(
        "filter: v > 3",
        "{join: {with: u, as: o, on: [k]}}",
        "filter: v < 9 and o.w = 1 and v <> o.w",
        "map: {k: k, w: o.w, v: v}",
    )
    again = chain("{join: {with: c, as: x, on: [k]}}", "map: {k: k}", source="c", name="d")
    found, _ = choices(text + again, outputs="{c: c/, d: d/}")
    assert of("columns", found) == [
        ("inputs.t", "reads 2 of 6 columns", "nothing reads the others"),
        ("inputs.u", "reads 2 of 3 columns", "nothing reads the others"),
    ]
    why = "it fails on no record, and the operators that it passes have no other reader"
    assert of("filter", found) == [("inputs.t", "applies v < 9 to t", why), ("inputs.u", "applies w = 1 to u", why)]
    assert of("shared", found) == [("collections", "t, u by k is kept once", "2 operators read the same")]
    assert not of("join order", found) + of("delta join", found)


def filtered(*conditions):
    """Return collections that filter an input otherwise, each before it is joined, and their outputs."""
    joined = "{join: {with: u, as: o, on: [k]}}"
    text = "".join(chain(f"filter: {each}", joined, name=f"c{at}") for at, each in enumerate(conditions))
    names = [f"c{at}" for at, _ in enumerate(conditions)]
    return text, "{" + ", ".join(f"{name}: {name}/" for name in names) + "}"


def test_what_is_kept_once():
    """With the rows that are expected, and, where none are, with how many times as many they would be."""
    text, outputs = filtered("v <> 1", "v <> 2", "v <> 3")
    words = "keeps t by k once instead of its 3 filtered parts; the filters apply to the joins' results"
    found, plan = choices(text, outputs=outputs, rows=1000)
    why = "1,000 rows are expected instead of 2,700, 2.7 times as many; 2 times is worth it"
    assert of("kept once", found) == [("collections", words, why)]
    assert not of("apart", found) + of("filter", found)
    later, _ = choices(text, outputs=outputs, known=plan.to_json())
    why = "apart they are expected to keep 2.7 times its rows; 2 times is worth it"
    assert of("kept once", later) == [("collections", words, why)]


def test_arrangements_of_rows_that_overlap_are_counted():
    """Where they are expected to have at least twice the rows of the whole, and are kept apart all the same; filters that few rows pass are no loss."""
    text, outputs = filtered(*(f"v > {at}" for at in range(7)))
    found, _ = choices(text, outputs=outputs, rows=1000)
    assert of("apart", found) == [
        (
            "collections",
            "keeps t by k 7 times, each with its own filter",
            "2,333 rows are expected, 1,000 without the filters: as one collection of the join, which the others filter, it is kept once",
        )
    ]
    assert not of("kept once", found)
    assert not of("apart", choices(text, outputs=outputs)[0])
    for conditions in (("v = 1", "v = 2", "v = 3"), ("v <> 1", "v <> 2"), ("v <> 1", "v <> 1", "v <> 1")):
        text, outputs = filtered(*conditions)
        found, _ = choices(text, outputs=outputs, rows=1000)
        assert not of("apart", found) + of("kept once", found)


def test_the_order_of_joins_has_the_sizes_by_which_it_was_chosen():
    at = "collections.c.apply[1].join"
    first, written = "joins u with m first, then t with that", "joins t with u, then with m, as it is written"
    for sizes, chosen, why in (
        (
            {"t": 6400, "u": 100, "m": 10},
            first,
            "6,400 bytes of files against 100 and 10, 64 times as much; 32 times is worth it",
        ),
        (
            {"t": 250, "u": 100, "m": 10},
            written,
            "250 bytes of files against 100 and 10, 2.5 times as much; 32 times is worth it",
        ),
        ({"t": 6400, "u": 100}, written, "how large the inputs are is not known"),
    ):
        found, plan = choices(LOOKED_UP, sizes)
        assert of("join order", found) == [(at, chosen, why)]
        later, _ = choices(LOOKED_UP, {"t": 1, "u": 1, "m": 1}, plan.to_json())
        assert [each[:2] for each in of("join order", later)] == [(at, chosen)]


def test_delta_joins():
    found, _ = choices(triangles())
    words = "keeps no intermediate results of the joins of t"
    assert of("delta join", found) == [
        ("collections.c.sql", words, "2 arrangements of its sides are enough for all lookups")
    ]
    spec = triangles()
    _, plan = choices(spec)
    kept = generations.plan(plan.logical, deltas=False).to_json()
    found, _ = choices(spec, known=kept)
    assert of("delta join", found) == [("collections", "joins t two by two", "the state was made so")]

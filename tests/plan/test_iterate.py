"""Loops of a pipeline file, and made by a program: types, identities, what is wrong."""

import re

import pytest

from ddcli.errors import Span, SpecError, Text
from ddcli.expressions.tree import Literal, MapStep
from ddcli.expressions.types import Type
from ddcli.plan import logical as nodes
from ddcli.plan.groupings import Threshold
from ddcli.plan.joins import Semijoin
from ddcli.plan.loops import Enter, Iterate, Leave, LoopVariable, iterate
from ddcli.plan.node import Graph
from ddcli.plan.relation import Relation
from tests.plan.support import SCHEMAS, chain, logical, plan, problems

LABELS = chain("project: [k, v]", "distinct", name="labels")


def loop(body="{best: {from: best}}", variables="{best: labels}", result="best", name="c", rest=""):
    """Return a loop over `labels`, as it is written; its `iterate` is on line 11, variables on 12, and the body on 13."""
    lines = ["iterate:", f"  variables: {variables}", f"  body: {body}", f"  result: {result}", *rest.split("\n")]
    return f"{LABELS}  {name}:\n" + "".join(f"    {line}\n" for line in lines if line)


def looped(*args, outputs="{c: out/}", **kwargs):
    """Return the nodes of a graph with a loop."""
    return logical(loop(*args, **kwargs), outputs).nodes()


def of(found, kind):
    return [node for node in found if isinstance(node, kind)]


def texts(schema):
    return {name: str(kind) for name, kind in schema.items()}


REACH = (
    "{best: {from: best, apply: [{join: {with: u, as: r, on: [k]}}, {map: {k: w, v: v}}, {concat: labels}, distinct]}}"
)


def test_a_loop_gives_its_result_after_the_last_round():
    found = looped(REACH)
    (iterate_,) = of(found, Iterate)
    (variable,) = of(found, LoopVariable)
    (leave,) = of(found, Leave)
    assert ([name.value for name in iterate_.names], iterate_.bound, iterate_.guard, iterate_.depth) == (
        ["best"],
        None,
        10_000,
        1,
    )
    assert (variable.loop, variable.depth, variable.index) == (iterate_.loop, 1, 0)
    assert (leave.inputs, leave.which) == ((iterate_,), 0)
    assert iterate_.bodies[0].level == 1
    assert iterate_.initials[0].level == leave.level == 0


def test_rounds_have_a_bound_or_a_guard():
    found = [of(looped(rest=f"  max_rounds: {rounds}"), Iterate)[0] for rounds in ("7", "{guard: 7}")]
    assert [(each.bound, each.guard) for each in found] == [(7, 10_000), (None, 7)]


def test_several_variables_and_others_leave():
    body = "{a: {from: [a, b]}, b: {from: b, apply: [{join: {with: x, on: [k, v]}}]}, x: {from: a, apply: [distinct]}}"
    outputs = "{x: {from: c.x, path: x/}, b: {from: c.b, path: b/}, again: {from: c.x, path: y/}}"
    graph = logical(loop(body, "{a: labels, b: labels}", "[x, b]"), outputs)
    (iterate_,) = of(graph.nodes(), Iterate)
    assert [name.value for name in iterate_.names] == ["a", "b"]
    assert len(iterate_.inputs) == 2 + 2 + 1
    assert {name: node.which for name, node in graph.outputs.items()} == {"x": 2, "b": 1, "again": 2}
    assert isinstance(iterate_.bodies[2], Threshold)


def test_operators_on_the_result():
    assert texts(logical(loop(rest="apply: [{count: {by: [k]}}]")).outputs["c"].schema) == {
        "k": "int64",
        "count": "int64",
    }


def test_a_body_may_read_what_is_around_it():
    """A variable's name means the variable, in its own definition too; others the body's, then those around."""
    body = "{best: {from: [best, mine]}, mine: {from: labels, apply: [{semijoin: {with: u, on: [k]}}]}}"
    (iterate_,) = of(looped(body), Iterate)
    assert isinstance(iterate_.bodies[0], nodes.SignedSum)
    assert [type(each) for each in iterate_.bodies[0].inputs] == [LoopVariable, Semijoin]
    assert [each.level for each in iterate_.bodies[0].inputs] == [1, 0]


NESTED = """\
  c:
    iterate:
      variables: {out: labels}
      body:
        out:
          iterate:
            variables: {in: out}
            body:
              in: {from: [in, out, mine, far]}
              far: {from: mine, apply: [{enter: {at: k}}, {concat: deep}]}
              deep: {iterate: {variables: {d: in}, body: {d: {from: [d, in, out]}}, result: d}}
            result: in
        mine: {from: out, apply: [{enter: {at: v}}]}
      result: out
"""


def test_loops_nest():
    found = logical(LABELS + NESTED).nodes()
    deep, inner, outer = of(found, Iterate)
    assert [each.depth for each in (deep, inner, outer)] == [3, 2, 1]
    assert [[name.value for name in each.names] for each in (deep, inner, outer)] == [["d"], ["in"], ["out"]]
    assert [each.level for each in (deep, inner, outer)] == [2, 1, 0]
    assert sorted((each.depth, each.at.text(), each.loop) for each in of(found, Enter)) == [
        (1, "v", outer.loop),
        (2, "k", inner.loop),
    ]
    assert {(each.depth, each.loop) for each in of(found, LoopVariable)} == {
        (each.depth, each.loop) for each in (deep, inner, outer)
    }


def fingerprints(collections, outputs="{c: out/}"):
    return plan(collections, outputs).fingerprint, logical(collections, outputs).fingerprint


NEW_NAMES = {"best": "nearest", "out": "o", "in": "i", "deep": "dp", "d": "e", "far": "f1", "mine": "m1", "labels": "l"}


def test_names_are_no_part_of_a_loop():
    for text in (loop(REACH), LABELS + NESTED):
        renamed = re.sub(r"\b(\w+)\b", lambda word: NEW_NAMES.get(word[0], word[0]), text)
        assert renamed != text
        assert fingerprints(renamed) == fingerprints(text)


def test_another_body_is_another_loop():
    texts_ = [loop(REACH), loop(REACH.replace("v: v", "v: w")), loop(REACH.replace("u,", "t,").replace("w,", "k,"))]
    texts_ += [loop(REACH, rest="  max_rounds: 3"), loop(REACH, "{best: {from: labels, apply: [negate]}}")]
    texts_ += [
        LABELS + NESTED,
        LABELS + NESTED.replace("at: k", "at: v"),
        LABELS + NESTED.replace("[d, in, out]", "[d, out]"),
    ]
    found = [fingerprints(text) for text in texts_]
    assert len({logical_ for _, logical_ in found}) == len({physical for physical, _ in found}) == len(texts_)


def bound(graph):
    """Return the nodes that depend on a round."""
    return {node for node in (graph.nodes if isinstance(graph.nodes, tuple) else graph.nodes()) if node.level}


@pytest.mark.parametrize("kind", [logical, plan])
def test_two_loops_share_nothing_of_their_bodies(kind):
    one, other = loop(REACH), loop(REACH, rest="  max_rounds: 3")
    assert bound(kind(one))
    assert not bound(kind(one)) & bound(kind(other))


@pytest.mark.parametrize("kind", [logical, plan])
def test_the_same_loop_written_twice_is_one(kind):
    twice = loop(REACH) + loop(REACH.replace("best", "x"), "{x: labels}", "x", "e").removeprefix(LABELS)
    assert bound(kind(twice, "{c: c/, e: e/}")) == bound(kind(loop(REACH)))


@pytest.mark.parametrize("kind", [logical, plan])
def test_an_unrelated_loop_changes_nothing_of_another(kind):
    both = loop(REACH) + NESTED.replace("  c:", "  e:")
    graph = kind(both, "{c: c/, e: e/}")
    assert bound(kind(loop(REACH))) < bound(graph)
    assert graph.outputs["c"] == kind(loop(REACH)).outputs["c"]
    assert graph.outputs["e"] == kind(LABELS + NESTED).outputs["c"]


@pytest.mark.parametrize("kind", [logical, plan])
def test_one_loop_inside_of_two_others_shares_nothing(kind):
    inner = "{iterate: {variables: {i: best}, body: {i: {from: [i, best, labels]}}, result: i}}"
    one = loop(f"{{best: {inner}}}")
    other = loop(f"{{best: {{from: [x, labels]}}, x: {inner}}}")
    assert len(of(bound(kind(one)), Iterate)) == len(of(bound(kind(other)), Iterate)) == 1
    assert not bound(kind(one)) & bound(kind(other))


def test_a_loop_inside_that_reads_no_round_outside_stands_outside():
    inner = "{iterate: {variables: {i: labels}, body: {i: {from: [i, u2]}}, result: i}}"
    u2 = chain("map: {k: k, v: w}", source="u", name="u2")
    found = logical(u2 + loop(f"{{best: {{from: [best, x]}}, x: {inner}}}")).nodes()
    alone, outer = of(found, Iterate)
    assert (alone.depth, outer.depth) == (1, 1)
    assert alone.level == 0
    top = logical(u2 + loop("{i: {from: [i, u2]}}", "{i: labels}", "i"))
    assert top.outputs["c"].inputs == (alone,)


def test_a_column_that_nothing_reads_is_no_part_of_a_state(monkeypatch):
    """A new column of an input costs no state: a loop's name in the plan is that of what is planned."""
    before = fingerprints(LABELS + NESTED)
    monkeypatch.setitem(SCHEMAS, "t", SCHEMAS["t"] | {"new": "int64"})
    after = fingerprints(LABELS + NESTED)
    assert after[0] == before[0]
    assert after[1] != before[1]


@pytest.mark.parametrize(
    ("initial", "body", "columns"),
    [
        ("{k: k}", "{k: n}", {"k": "int64?"}),
        ("{k: cast(k as int32)}", "{k: k}", {"k": "int64"}),
        ("{k: cast(k as int32)}", "{k: cast(k as int16)}", {"k": "int64"}),
        ("{k: cast(f as float32)}", "{k: f}", {"k": "float64"}),
        ("{k: cast(null as string)}", "{k: s}", {"k": "string?"}),
        ("{a: k, b: v}", "{b: n, a: v}", {"a": "int64", "b": "int64?"}),
    ],
)
def test_a_variable_has_a_type_for_all_its_rounds(initial, body, columns):
    first = f"{{from: t, apply: [{{map: {initial}}}]}}"
    found = looped(f"{{best: {{from: t, apply: [{{map: {body}}}]}}}}", f"{{best: {first}}}")
    (iterate_,) = of(found, Iterate)
    assert all(texts(each.schema) == columns and list(each.schema) == list(columns) for each in iterate_.inputs)


def test_types_widen_through_other_variables_until_they_are_stable():
    body = "{a: {from: b}, b: {from: [b, c2]}, c2: {from: t, apply: [{map: {x: n}}]}}"
    first = "{from: t, apply: [{map: {x: cast(k as int8)}}]}"
    found = looped(body, f"{{a: {first}, b: {first}}}", "[a]", outputs="{c: {from: c.a, path: c/}}")
    assert [texts(each.schema) for each in of(found, LoopVariable)] == [{"x": "int64?"}]
    assert all(texts(each.schema) == {"x": "int64?"} for each in of(found, Iterate)[0].inputs)
    inner = "{iterate: {variables: {i: best}, body: {i: {from: t, apply: [{map: {x: n}}]}}, result: i}}"
    (deep, outer) = of(looped(f"{{best: {inner}}}", f"{{best: {first}}}"), Iterate)[-2:]
    assert {str(each.schema["x"]) for each in (*deep.inputs, *outer.inputs)} == {"int64?"}


# what: the loop's body and variables, then problems and hints
WRONG = {
    "columns": (("{best: {from: best, apply: [drop: [v]]}}",), ["12:19 collections.c.iterate: the variable 'best' has the same columns in every round; these are not in all of them: v"]),
    "types": (("{best: {from: best, apply: [{extend: {v: cast(v as string)}}]}}",), ["12:19 collections.c.iterate: the variable 'best': column 'v' is int64 at first and string in the body"]),
    "two": (
        ("{a: {from: a, apply: [drop: [v]]}, b: {from: a, apply: [drop: [k]]}}", "{a: labels, b: labels}", "a"),
        [
            "12:19 collections.c.iterate: the variable 'a' has the same columns in every round; these are not in all of them: v",
            "12:30 collections.c.iterate: the variable 'b' has the same columns in every round; these are not in all of them: k",
        ],
    ),
    "bodies": (
        ("{best: {from: [best, y], apply: [project: [q]]}, x: {from: best, apply: [{filter: v}]}, y: {from: x}}",),
        ["13:95 collections.c.iterate.body.x.apply[0].filter: a filter is a bool, not int64"],
    ),
    "bodies2": (
        ("{best: {from: best, apply: [project: [q]]}, x: {from: best, apply: [{filter: v}]}}",),
        [
            "13:51 collections.c.iterate.body.best.apply[0].project: there is no column 'q'",
            "13:90 collections.c.iterate.body.x.apply[0].filter: a filter is a bool, not int64",
        ],
    ),
    "null": (("{best: {from: best, apply: [explode: v, map: {k: k, v: cast(null as int64)}]}}",), ["13:50 collections.c.iterate.body.best.apply[0].explode: explode takes an integer that is never null, not int64?"]),
    "initials": (
        ("{a: {from: a}, b: {from: b}}", "{a: {from: labels, apply: [project: [q]]}, b: {from: labels, apply: [project: [r]]}}", "a"),
        [
            "12:55 collections.c.iterate.variables.a.apply[0].project: there is no column 'q'",
            "12:97 collections.c.iterate.variables.b.apply[0].project: there is no column 'r'",
        ],
    ),
    "inner": (
        ("{best: {iterate: {variables: {i: best}, body: {i: {from: i, apply: [drop: [k]]}}, result: i}}}",),
        ["13:43 collections.c.iterate.body.best.iterate: the variable 'i' has the same columns in every round; these are not in all of them: k"],
    ),
    "enter": (("{best: {from: best, apply: [{enter: {at: v / 2.5}}]}}",), ["13:54 collections.c.iterate.body.best.apply[0].enter: enter takes an integer that is never null, not decimal(38, 6)"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_loop(case):
    written, expected = WRONG[case]
    assert [problem for problem, _ in problems(loop(*written))] == expected


def test_a_null_round_is_refused_with_a_hint():
    body = (
        "{best: {from: [best, x]}, x: {from: t, apply: [{map: {k: k, v: n}}, {enter: {at: v}}, {map: {k: k, v: k}}]}}"
    )
    ((problem, hint),) = problems(loop(body))
    assert "enter takes an integer that is never null, not int64?" in problem
    assert hint == "coalesce(v, 0) lets records in at once whose round is null"


def test_what_hangs_on_a_loop_that_could_not_be_built_says_nothing():
    text = loop("{best: {from: best, apply: [project: [q]]}}") + chain("project: [z]", source="c", name="e")
    assert [problem.split(":")[0] for problem, _ in problems(text)] == ["13"]


# Loops made by a program

T = Relation(nodes.Source((), {"k": Type("int64"), "v": Type("int32")}, "t"))


def named(name):
    return Text(name, Span("<python>", 1, 1))


def mapped(relation, **columns):
    schema = {name: expression.type for name, expression in columns.items()}
    return Relation(nodes.Apply((relation.node,), schema, MapStep(tuple(columns.items()))))


def test_a_program_closes_a_loop():
    seen = []

    def bodies(loop, variables):
        seen.append((loop, [texts(each.schema) for each in variables]))
        (x,) = variables
        return [mapped(x, v=Literal(None, Type("int64", nullable=True)), k=Literal(1, Type("int64")))], [x]

    result, other = iterate([(named("x"), T)], bodies, bound=3)
    assert [columns for _, columns in seen] == [
        [{"k": "int64", "v": "int32"}],
        [{"k": "int64", "v": "int64?"}],
    ]
    assert texts(result.schema) == texts(other.schema) == {"k": "int64", "v": "int64?"}
    assert (result.node.which, other.node.which, result.node.inputs[0].bound) == (0, 1, 3)
    # Each building has a name of its own, and none of them is left.
    assert len({loop.name for loop, _ in seen}) == 2
    assert not {loop.name for loop, _ in seen} & {
        each.loop for each in of(Graph({"": result.node}).nodes(), LoopVariable)
    }


def test_a_program_nests_loops():
    def outer(around, variables):
        def inner(_, deep):
            return [Relation(nodes.summed((deep[0].node, variables[0].node), T.schema))], []

        return iterate([(named("y"), T)], inner, around), []

    (left,) = iterate([(named("x"), T)], outer)
    assert [each.depth for each in of(Graph({"": left.node}).nodes(), Iterate)] == [2, 1]


def test_a_variable_of_another_loop_is_refused():
    """It would be taken for this loop's own: both are the first variable of a loop of depth 1."""
    leaked = []

    def leaks(_, variables):
        leaked.extend(variables)
        return variables, []

    def takes(_, variables):
        return [Relation(nodes.summed((variables[0].node, leaked[0].node), T.schema))], []

    iterate([(named("x"), T)], leaks)
    with pytest.raises(SpecError, match="reads a collection of the body of another"):
        iterate([(named("x"), T)], takes)


def test_a_variable_of_an_earlier_building_is_refused():
    kept = []

    def bodies(_, variables):
        kept.extend(variables)
        return [mapped(kept[0], k=Literal(1, Type("int64")), v=Literal(None, Type("int32", nullable=True)))], []

    with pytest.raises(SpecError, match="reads a collection of the body of another"):
        iterate([(named("x"), T)], bodies)

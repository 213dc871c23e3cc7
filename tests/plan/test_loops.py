"""Loops in a graph: what depends on a round, and what a loop is called."""

from dataclasses import replace

import pytest

from ddcli.errors import UsageError
from ddcli.expressions.tree import Column, FilterStep, Literal, MapStep
from ddcli.expressions.types import Type
from ddcli.plan import logical, loops, temporal
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph

INT = Type("int64")
KV = {"k": INT, "v": INT}
T = logical.Source((), KV, "t")
U = logical.Source((), KV, "u")


def node(*inputs):
    return logical.summed(inputs, KV)


def variable(depth=1, index=0, name="open"):
    return loops.LoopVariable((), KV, f"{name}{depth}", depth, index)


def loop(initials, bodies, depth=1, name="open", **changes):
    names = tuple(f"v{at}" for at, _ in enumerate(initials))
    fields = {"variables": len(initials), "names": names, "bound": None, "guard": 10} | changes
    return loops.identified(loops.Iterate((*initials, *bodies), {}, f"{name}{depth}", depth, **fields))


def leave(iterate, which=0):
    return loops.Leave((iterate,), iterate.bodies[which].schema, which)


def bound(iterate):
    """Return the nodes of a loop that depend on its round."""
    return {each for each in Graph({"": iterate}).nodes() if each.level >= iterate.depth}


def test_a_level_is_the_depth_of_the_innermost_loop_that_is_not_closed():
    entered = loops.Enter((T,), KV, "open2", 2, Column("k", INT))
    assert [each.level for each in (T, variable(), variable(2), entered)] == [0, 1, 2, 2]
    assert node(variable(), node(T, variable(2))).level == 2
    inner = loop([variable()], [node(variable(2), U)], depth=2)
    assert inner.level == 1
    assert leave(inner).level == 1
    assert loop([T], [node(variable(), leave(inner))]).level == 0
    assert loop([T], [node(variable(2), variable(1))], depth=2).depth == 2


def test_a_loop_that_depends_on_no_round_outside_is_no_inner_loop():
    inside = loop([T], [node(variable(2), U)], depth=2)
    assert inside == loop([T], [node(variable(1), U)])
    deep = loop([T], [node(variable(3), U, variable(1))], depth=3)
    assert deep == loop([T], [node(variable(2), U, variable(1))], depth=2)

    def nested(depth):
        inner = loop([T], [node(variable(depth + 1), variable(depth))], depth=depth + 1)
        return loop([T], [node(variable(depth), leave(inner))], depth=depth)

    assert nested(2) == nested(1)
    assert nested(2).depth == 1


def test_names_and_guards_are_no_part_of_a_loop():
    plain = loop([T], [node(variable(), U)])
    assert plain == loop([T], [node(variable(name="other"), U)], name="other", names=("best",), guard=3)
    others = [
        loop([T], [node(variable(), U)], bound=3),
        loop([T], [node(variable(), T)]),
        loop([U], [node(variable(), U)]),
        loop([T, T], [node(variable(), U), node(variable(), U)]),
        loop([T, T], [node(variable(), U), node(variable(index=1), U)]),
        loop([T], [node(variable(), U), node(variable())]),
        loop([T], [node(loops.Enter((U,), KV, "open1", 1, Column("k", INT)), variable())]),
        loop([T], [node(loops.Enter((U,), KV, "open1", 1, Column("v", INT)), variable())]),
    ]
    assert len({each.fingerprint for each in [plain, *others]}) == 1 + len(others)


def test_two_loops_share_no_node_that_depends_on_a_round():
    common = node(variable(), U)
    one, other = loop([T], [common]), loop([U], [common])
    assert bound(one)
    assert not bound(one) & bound(other)
    # What depends on no round is one in both.
    assert not bound(one) & {T, U}


def test_one_loop_under_two_others_is_two():
    inner = loop([variable()], [node(variable(2), U)], depth=2)
    one, other = loop([T], [leave(inner)]), loop([U], [leave(inner)])
    assert len(bound(one)) == len(bound(other)) == len({*bound(one), *bound(other)}) / 2
    # One that depends on neither is the same for both.
    alone = loop([U], [node(variable(2), U)], depth=2)
    one, other = loop([T], [node(leave(alone), variable())]), loop([U], [node(leave(alone), variable())])
    assert alone in set(one.bodies[0].inputs[0].inputs) & set(other.bodies[0].inputs[0].inputs)


def test_inputs_come_before_their_readers():
    inner = loop([variable()], [node(variable(2), variable())], depth=2)
    order = Graph({"": leave(loop([T, U], [leave(inner), node(variable(), variable(index=1))]))}).nodes()
    assert all(order.index(child) < at for at, each in enumerate(order) for child in each.inputs)
    assert [each.index for each in order if isinstance(each, loops.LoopVariable)] == [0, 0, 1]


def lowered(*outputs):
    return lower(Graph({str(at): each for at, each in enumerate(outputs)}))


def of(graph, kind):
    return [each for each in graph.nodes if isinstance(each, kind)]


def test_a_loop_keeps_all_columns_and_its_readers_what_they_read():
    body = logical.Apply((variable(),), KV, FilterStep(Column("v", Type("bool"))))
    narrow = MapStep((("v", Column("v", INT)),))
    graph = lowered(logical.Apply((leave(loop([T], [body])),), {"v": INT}, narrow))
    (iterate,) = of(graph, loops.Iterate)
    assert [list(each.schema) for each in iterate.inputs] == [["k", "v"], ["k", "v"]]
    assert list(graph.outputs["0"].schema) == ["v"]
    assert of(graph, loops.Leave)[0].schema == KV


def test_a_column_outside_that_nothing_reads_is_no_part_of_a_loop():
    def graph(source):
        read = logical.Apply((source,), KV, MapStep(tuple((name, Column(name, INT)) for name in KV)))
        inner = loop([variable()], [node(variable(2), variable(), read)], depth=2)
        return lowered(leave(loop([read], [leave(inner)])))

    assert graph(T).fingerprint == graph(replace(T, schema=KV | {"unread": INT})).fingerprint


def test_what_enters_has_its_round_last():
    entered = loops.Enter((T,), KV, "open1", 1, Column("v", Type("int32")))
    graph = lowered(leave(loop([T], [node(variable(), entered)])))
    (enter,) = of(graph, loops.EnterAt)
    (linear,) = enter.inputs
    assert [(name, str(kind)) for name, kind in linear.schema.items()] == [
        ("k", "int64"), ("v", "int64"), ("$round", "int64"),
    ]  # fmt: skip
    assert enter.schema == KV
    assert enter.level == 1
    assert enter.loop == of(graph, loops.Iterate)[0].loop


def test_a_temporal_filter_is_a_shift_and_a_delay():
    bounds = Column("k", INT), Column("n", Type("int64", nullable=True))
    source = logical.Source((), KV | {"n": bounds[1].type, "unread": INT}, "s")
    node = temporal.Temporal((source,), source.schema, *bounds)
    graph = lowered(logical.Apply((node,), {"v": INT}, MapStep((("v", Column("v", INT)),))))
    scan, linear, shift, delay = graph.nodes[:4]
    assert list(scan.schema) == ["k", "v", "n"]
    assert [(name, str(kind)) for name, kind in linear.schema.items()] == [
        ("v", "int64"), ("$from", "int64"), ("$until", "int64"),
    ]  # fmt: skip
    assert '(not ("$until" is null))' in linear.identity_values[0]
    assert (shift.lower, shift.upper, list(shift.schema)) == (True, True, ["v"])
    assert isinstance(delay, temporal.Delay)
    assert [type(each) for each in delay.inputs] == [temporal.Shift]
    (one,) = of(lowered(temporal.Temporal((T,), KV, None, Literal(3, INT))), temporal.Shift)
    assert (one.lower, one.upper) == (False, True)


def test_a_join_function_is_given_all_columns():
    node = temporal.JoinFunction((T,), {"a": INT, "b": INT}, "module:function", batch=False)
    graph = lowered(logical.Apply((node,), {"b": INT}, MapStep((("b", Column("b", INT)),))))
    assert [type(each).__name__ for each in graph.nodes] == ["Scan", "JoinFunction", "Delay", "Linear"]
    assert list(graph.nodes[0].schema) == ["k", "v"]
    assert list(graph.nodes[2].schema) == ["a", "b"]


def test_what_depends_on_a_round_is_no_output():
    with pytest.raises(UsageError, match="read outside of the loop"):
        lowered(node(T, variable()))

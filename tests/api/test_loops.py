"""Loops in a program: one variable or several, nested, with rounds of their own, against their meaning at every time."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.api import Dataflow
from ddcli.engine.operators import revisit, sweep
from ddcli.errors import EngineError, SpecError, UsageError
from tests.api.support import COLUMNS, INPUTS, Plan, frontiers, run, sharing, updates
from tests.draws import many

# --- what loops mean, against the reference -----------------------------------------------------------------------


def reach(one, other):
    """Give what is reached from where, over the pairs of one."""
    pairs = one.distinct()
    return pairs.iterate(
        lambda far: far.join(pairs, on={"v": "k"}, name="up").map(k="k", v="up.v").concat(pairs).distinct()
    )


def least(one, other):
    """Give the least number that reaches each node; what enters late does not change it."""
    starts = one.map(k="k", v="k").distinct()

    def body(best):
        late = starts.enter(at="v")
        return best.join(one, on=["k"], name="e").map(k="e.v", v="v").concat(late).reduce(["k"], v="min(v)")

    return starts.iterate(body)


def mutual(one, other):
    """Give, of two collections that feed each other, both and their sum."""

    def body(left, right):
        return {
            "left": right.filter("v < 2").extend(v="v + 1").concat(one).distinct(),
            "right": left.map(k="v % 3", v="k").concat(other).distinct(),
            "both": left.concat(right),
        }

    found = one.dataflow.iterate({"left": one.distinct(), "right": other.distinct()}, body)
    return found["left"].concat(found["right"].negate(), found["both"])


def stepwise(one, other):
    """Give the same as `mutual`, written step by step."""
    with one.dataflow.loop() as loop:
        left, right = loop.variable(one.distinct()), loop.variable(other.distinct(), name="right")
        new = right.filter("v < 2").extend(v="v + 1").concat(one).distinct()
        more = left.map(k="v % 3", v="k").concat(other).distinct()
        left.set(new)
        right.set(more)
        both = left.concat(right).leave()
        left, right = left.leave(), loop.leave(more)
    return left.concat(right.negate(), both)


def nested(one, other):
    """Trim nodes that reach nothing of the other collection, then go on with what is left: a loop in a loop."""

    def trim(left):
        reached = left.iterate(
            lambda far: far.join(left, on={"v": "k"}, name="up").map(k="k", v="up.v").concat(left).distinct()
        )
        return left.semijoin(reached.filter("k = v"), on=["k"])

    return one.concat(other).distinct().iterate(trim)


def nested_stepwise(one, other):
    """Give the same as `nested`, written step by step."""
    with one.dataflow.loop() as outer:
        left = outer.variable(one.concat(other).distinct())
        with one.dataflow.loop() as inner:
            far = inner.variable(left)
            far.set(far.join(left, on={"v": "k"}, name="up").map(k="k", v="up.v").concat(left).distinct())
            reached = far.leave()
        kept = left.semijoin(reached.filter("k = v"), on=["k"])
        left.set(kept)
        return kept.leave()


def bounded(one, other):
    """Take three rounds of something that never settles."""
    return one.iterate(lambda x: x.map(k="v", v="(k + 1) % 3").concat(other), max_rounds=3)


LOOPS = {
    "reach": reach,
    "least": least,
    "mutual": mutual,
    "stepwise": stepwise,
    "nested": nested,
    "nested stepwise": nested_stepwise,
    "bounded": bounded,
}


class Looped(Plan):
    """A plan that is a loop."""

    def build(self, dataflow):
        inputs = [dataflow.input(name, COLUMNS) for name in INPUTS]
        return [*inputs, LOOPS[self.operators](*inputs)]


@pytest.mark.parametrize("nt", [1, 2])
@pytest.mark.parametrize("name", LOOPS)
@settings(max_examples=many(12))
@given(data=st.data())
def test_a_loop_gives_what_it_means(name, nt, data):
    given = {each: data.draw(updates(nt, most=6)) for each in INPUTS}
    if name in {"least", "bounded"}:  # what is there less than zero times has no least
        given = {each: [(record, time, abs(diff)) for record, time, diff in rows] for each, rows in given.items()}
    steps = data.draw(st.integers(1, 3))
    closing = {each: data.draw(frontiers(nt, steps)) for each in INPUTS}
    run(Looped(name, given, closing, nt), Dataflow(time=nt), [2])


@settings(max_examples=many(10))
@given(data=st.data())
def test_loops_step_in_shards(data):
    given = {each: data.draw(updates(1)) for each in INPUTS}
    closing = {each: data.draw(frontiers(1, 3)) for each in INPUTS}
    for name in ("mutual", "nested"):
        with sharing(data), Dataflow(workers=3) as dataflow:
            run(Looped(name, given, closing, 1), dataflow, [2])


def ends(one, other):
    """Give the least and the greatest label, where there is one, that come within some rounds; multiplicities may be negative."""

    def body(low, high):
        steps = {"on": {"k": "src"}, "name": "e"}
        found = (each.join(other.map(src="k", dst="v"), **steps) for each in (low, high))
        lows, highs = (each.map(k="e.dst", v="nullif(v, 2)") for each in found)
        return lows.concat(one).reduce(["k"], v="min(v)"), highs.concat(one).reduce(["k"], v="max(v)")

    one = one.extend(v="nullif(v, 2)")
    found = one.dataflow.iterate({"low": one, "high": one}, body, max_rounds=5)
    return found[0].concat(found[1].negate())


def inner(one, other):
    """Give the edges at whose ends the same least node arrives, again and again until all are such."""
    labels = one.concat(one.map(k="v", v="k")).map(k="k", v="k").distinct()

    def agreed(left):
        best = labels.iterate(
            lambda best: (
                best.join(left, on=["k"], name="e").map(k="e.v", v="v").concat(labels).reduce(["k"], v="min(v)")
            )
        )
        both = one.join(best, on=["k"], name="a").join(best, on={"v": "k"}, name="b")
        return both.filter("a.v = b.v").map(k="v", v="k")

    return one.iterate(agreed)


@pytest.mark.parametrize("loop", [least, ends, inner])
@settings(max_examples=many(8))
@given(seed=st.integers(0, 1 << 30))
def test_few_groups_are_reduced_as_many_are(loop, seed):
    """Each step gives what it gives where no group is done in one call, and where all are swept: in what was appended, or in copies of it."""
    found = [list(stepped(loop, seed))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revisit, "GROUPS", 0)
        found.append(list(stepped(loop, seed)))
        patch.setattr(revisit, "FEW", 0)
        for cancelled in (0, 1, 1 << 60):
            patch.setattr(sweep, "CANCELLED", cancelled)
            found.append(list(stepped(loop, seed)))
    assert all(other == found[0] for other in found)


def stepped(loop, seed):
    """Yield what random changes of a small graph give, step by step."""
    chance = random.Random(seed)
    dataflow = Dataflow()
    sessions = [dataflow.input(name, COLUMNS) for name in INPUTS]
    output = loop(*sessions).output()
    there = []
    for step in range(12):
        time = sessions[0].time
        for session in sessions:
            for _ in range(chance.choice([0, 1, 1, 2, 6] if step else [1, 6, 12])):
                at = time + chance.randrange(3)
                if loop is ends:
                    session.update_at((chance.randrange(4), chance.randrange(4)), at, chance.choice([-1, 1, 1, 2]))
                elif there and chance.random() < 0.4:
                    session, edge, since = there.pop(chance.randrange(len(there)))
                    session.update_at(edge, max(at, since), -1)
                else:
                    there.append((session, (chance.randrange(9), chance.randrange(9)), at))
                    session.update_at(there[-1][1], at, 1)
        upper = time + chance.choice([1, 3])
        for session in sessions:
            session.advance_to(upper)
        dataflow.step()
        yield sorted(output.updates(), key=repr)


# --- what they say --------------------------------------------------------------------------------------------------


@pytest.fixture
def edges():
    return Dataflow().input("edges", COLUMNS)


def test_a_variable_takes_the_types_that_its_body_gives(edges):
    found = edges.iterate(lambda x: x.extend(v="nullif(v, 2)").concat(edges).distinct())
    assert str(found.schema["v"]) == "int64?"
    written = edges.dataflow.loop()
    loop = written.__enter__()
    x = loop.variable(edges, name="x")
    x.set(x.extend(v="nullif(v, 2)"))
    with pytest.raises(SpecError, match="can't hold the values that the body sets") as caught:
        written.__exit__(None, None, None)
    assert "columns={'k': 'int64', 'v': 'int64?'}" in caught.value.hint
    with edges.dataflow.loop() as loop:
        x = loop.variable(edges, columns={"k": "int64", "v": "int64?"})
        x.set(x.extend(v="nullif(v, 2)").concat(edges).distinct())
        left = x.leave()
    assert left.schema == found.schema
    assert left.relation.node == found.relation.node, "the same loop written twice is one"


def test_what_a_body_shows_has_rounds(edges):
    seen = []
    edges.iterate(lambda x: x.filter("v < 3").extend(v="v + 1").inspect(seen.append).concat(edges).distinct()).output()
    edges.insert((7, 1))
    edges.close()
    edges.dataflow.step()
    assert sorted(seen) == [((7, 2), (0, 0), 1), ((7, 3), (0, 1), 1)]


def test_a_loop_that_does_not_settle_says_so(edges):
    edges.iterate(lambda walking: walking.extend(v="v + 1"), guard=20).output()
    edges.insert((1, 2))
    edges.close()
    with pytest.raises(EngineError, match=r"not settled after 20 rounds.*'walking'.*\(1, 2"):
        edges.dataflow.step()


def test_what_is_of_a_body_stays_inside(edges):
    kept = []

    def body(x):
        kept.append(x)
        return x.distinct()

    edges.iterate(body)
    with pytest.raises(UsageError, match="read outside of the loop"):
        kept[0].output()
    with pytest.raises(SpecError, match="a collection of the body of another"):
        edges.iterate(lambda x: x.concat(kept[0]).distinct())
    with edges.dataflow.loop() as loop:
        x = loop.variable(edges)
        x.set(x.distinct())
        left = x.leave()
        with pytest.raises(UsageError, match="read outside of it"):
            left.distinct()
        with pytest.raises(UsageError, match="in its own loop"):
            loop.variable(x.distinct())
    assert left.distinct().schema == edges.schema


def test_what_a_loop_needs_is_asked_for(edges):
    dataflow = edges.dataflow
    other = Dataflow().input("edges", COLUMNS)
    for refused, message in [
        (lambda: edges.iterate(lambda x: None), "returns for"),
        (lambda: edges.iterate(lambda x: other), "not a collection of this dataflow"),
        (lambda: edges.iterate(lambda x: x.project("k")), "not in all of them: v"),
        (lambda: edges.iterate(lambda x: x, max_rounds=0), "at least 1"),
        (lambda: dataflow.iterate({}, lambda: ()), "at least one variable"),
        (lambda: dataflow.iterate({"a": edges, "b": edges}, lambda a, b: (a,)), "does not return its variable 'b'"),
        (lambda: dataflow.iterate({"a": edges}, lambda a: {"c": a}), "does not return its variable 'a'"),
        (lambda: dataflow.iterate({"a": other}, lambda a: a), "begins as"),
        (edges.leave, "written step by step"),
        (lambda: edges.iterate(lambda x: x.leave()), "written step by step"),
        (edges.enter, "outside of a loop"),
    ]:
        with pytest.raises((UsageError, SpecError), match=message):
            refused()
    with pytest.raises(UsageError, match="at least one variable"), dataflow.loop():
        pass
    with pytest.raises(UsageError, match="never set"), dataflow.loop() as loop:
        loop.variable(edges)
    with dataflow.loop() as loop:
        x = loop.variable(edges)
        x.set(x)
        with pytest.raises(UsageError, match="set already"):
            x.set(x)
        with pytest.raises(UsageError, match="hold the collection that it begins with"):
            loop.variable(x.dataflow.input("nulls", {"k": "int64?"}), columns={"k": "int64"})
    assert dataflow.surroundings.loop is None


def test_what_leaves_keeps_the_form_in_which_the_body_gives_it(edges):
    alone = edges.iterate(lambda x: x.distinct())
    pair = edges.iterate(lambda x: (x.distinct(), x.negate()))
    named = edges.dataflow.iterate({"x": edges}, lambda x: {"more": x.negate(), "x": x.distinct()})
    assert isinstance(pair, tuple)
    assert list(named) == ["x", "more"]
    outputs = [each.output() for each in (alone, *pair, *named.values())]
    edges.update((1, 2), 3)
    edges.close()
    edges.dataflow.step()
    once, negated = [((1, 2), 0, 1)], [((1, 2), 0, -1)]
    assert [output.updates() for output in outputs] == [once, once, negated, once, negated]

"""Arrangements and their traces: shared, held, read as of a time, imported while they go on."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.api import Dataflow
from ddcli.engine.times import Frontier
from ddcli.errors import SpecError, UsageError
from tests.api.support import COLUMNS, INPUTS, Plan, check, engine, frontiers, kept_by, plain, sharing, times, updates
from tests.draws import many
from tests.reference.model import accumulate


@pytest.fixture
def numbers():
    return Dataflow().input("numbers", COLUMNS)


# --- sharing --------------------------------------------------------------------------------------------------------


def test_joins_and_reductions_by_the_key_share_the_arrangement(numbers):
    arranged = numbers.arrange_by_key("k")
    arranged.join(arranged, name="other").output()
    arranged.reduce(v="min(v)").output()
    arranged.as_collection().join(numbers, on=["k"], how="inner", name="again").map(k="k", w="again.v").output()
    arranged.trace()
    assert kept_by(numbers.dataflow) == 2, "the arrangement, and what the reduction gives"


def test_whole_records_share_one_arrangement(numbers):
    arranged = numbers.arrange_by_self()
    arranged.distinct().output()
    arranged.threshold("count - 1").output()
    assert arranged.key == ("k", "v")
    assert kept_by(numbers.dataflow) == 1


def test_an_arrangement_is_a_collection(numbers):
    arranged = numbers.arrange_by_key("v", "k")
    other = numbers.map(a="v", b="k").arrange_by_key("b", "a")
    outputs = [
        arranged.output(),
        arranged.as_collection().filter("v > 1").output(),
        arranged.join(other).output(),
        arranged.reduce(n="count(*)").output(),
        arranged.iterate(
            lambda x: x.join(arranged.enter(), on=["k"]).map(k="k", v="v").concat(arranged).distinct()
        ).output(),
    ]
    numbers.insert((1, 2))
    numbers.close()
    numbers.dataflow.step()
    assert arranged.key == ("k", "v")
    assert [output.updates() for output in outputs] == [
        [((1, 2), 0, 1)],
        [((1, 2), 0, 1)],
        [],
        [((1, 2, 1), 0, 1)],
        [((1, 2), 0, 1)],
    ]


def test_a_filter_of_an_arrangement_is_one_and_keeps_nothing(numbers):
    arranged = numbers.arrange_by_key("k")
    large = arranged.filter("v > 0").filter("v < 3")
    small = large.filter(lambda r: r["v"] == 1)
    outputs = [
        large.join(arranged, name="o").map(k="k", v="v", w="o.v").output(),
        arranged.join(large, name="o", how="left").map(k="k", v="v", w="o.v").output(),
        arranged.antijoin(large, on=["k"]).output(),
        large.output(),
        small.output(),
        large.reduce(n="count(*)").output(),
    ]
    trace = large.trace()
    for record in [(1, 0), (1, 2), (2, 5), (3, 1)]:
        numbers.insert(record)
    numbers.close()
    numbers.dataflow.step()
    assert [sorted(record for record, _, _ in output.updates()) for output in outputs] == [
        [(1, 2, 0), (1, 2, 2), (3, 1, 1)],
        [(1, 0, 2), (1, 2, 2), (2, 5, None), (3, 1, 1)],
        [(2, 5)],
        [(1, 2), (3, 1)],
        [(3, 1)],
        [(1, 1), (3, 1)],
    ]
    assert sorted(trace.read(0)) == [((1, 2), 1), ((3, 1), 1)]
    other = Dataflow().input("numbers", COLUMNS)
    by_key = other.arrange_by_key("k")
    by_key.filter("v > 1").join(by_key.filter("v < 3"), name="o").output()
    assert kept_by(other.dataflow) == 1


def test_an_arrangement_enters_a_loop_as_it_is(numbers):
    arranged = numbers.arrange_by_key("k")
    many = arranged.filter("v > 0")
    numbers.iterate(
        lambda x: (
            x.arrange_by_key("k")
            .join(arranged.enter(), name="o")
            .map(k="k", v="o.v")
            .concat(x.join(many.enter(), on=["k"], name="p").map(k="k", v="p.v"), numbers)
            .distinct()
        )
    ).output()
    # That of the numbers; in the loop the variable by key, and what is made distinct with its result and what it gives.
    assert kept_by(numbers.dataflow) == 4


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nt", [1, 2])
@pytest.mark.parametrize("workers", [1, 2])
@settings(max_examples=many(20))
@given(data=st.data())
def test_a_handle_reads_every_time_that_it_holds(nt, workers, data):
    """Whatever is merged and advanced meanwhile, for several handles that go forward each at its own pace."""
    given = {"one": data.draw(updates(nt, most=12)), "other": []}
    steps = data.draw(st.integers(1, 4))
    plan = Plan([("distinct", 0, 0)], given, {name: data.draw(frontiers(nt, steps)) for name in INPUTS}, nt)
    with sharing(data), Dataflow(time=nt, workers=workers) as dataflow:
        one = dataflow.input("one", COLUMNS)
        whole = one.arrange_by_key("k").trace()
        once = one.distinct().arrange_by_self().trace()
        handles = [(whole, lambda c: c), (once, lambda c: {r: 1 for r, n in c.items() if n > 0})]
        handles += [(whole.filter("v > 0"), lambda c: {r: n for r, n in c.items() if r[1] > 0})]
        left = list(given["one"])
        for frontier in [*plan.frontiers["one"], Frontier()]:
            for update in [each for each in left if not frontier.less_equal(each[1])]:
                one.update_at(update[0], plain(update[1]), update[2])
                left.remove(update)
            one.advance_to(frontier)
            dataflow.step()
            for handle, meaning in handles:
                for time in times(nt):
                    if handle.since.less_equal(time) and not handle.upper.less_equal(time):
                        wanted = meaning(accumulate(given["one"], time))
                        assert dict(handle.read(plain(time))) == wanted
                        assert Counter(dict(handle.read(plain(time), key=key_of(handle, (1, 1))))) == Counter(
                            {r: n for r, n in wanted.items() if key_of(handle, r) == key_of(handle, (1, 1))}
                        )
                    else:
                        with pytest.raises(UsageError, match=r"can't be read any more|is open"):
                            handle.read(plain(time))
                forward = data.draw(st.lists(st.sampled_from(times(nt)), max_size=2))
                if forward:
                    handle.set_logical_compaction(handle.since.join(Frontier(forward)))


def key_of(handle, record):
    return tuple(value for name, value in zip(handle.columns, record, strict=True) if name in handle.key)


def test_a_handle_of_later_reads_from_where_the_trace_is(numbers):
    dataflow, arranged = numbers.dataflow, numbers.arrange_by_key("k")
    first = arranged.trace()
    numbers.insert((1, 10))
    numbers.advance_to(3)
    dataflow.step()
    second = arranged.trace()
    assert first.since == second.since == Frontier([(0,)]), "the first handle holds it"
    first.set_logical_compaction(2)
    second.close()
    third = arranged.trace()
    assert third.since == Frontier([(2,)])
    first.close()
    assert third.read(2) == [((1, 10), 1)]
    third.close()
    fourth = arranged.trace()
    assert fourth.since == Frontier([(3,)])
    with pytest.raises(UsageError, match="is open"):
        fourth.read(3)
    with pytest.raises(UsageError, match="closed"):
        first.read(2)


def test_a_handle_only_goes_forward(numbers):
    trace = numbers.arrange_by_key("k").trace()
    trace.set_logical_compaction(4)
    for refused in (lambda: trace.set_logical_compaction(3), lambda: trace.read(3), lambda: trace.updates(5)):
        with pytest.raises(UsageError):
            refused()
    numbers.advance_to(6)
    numbers.dataflow.step()
    with pytest.raises(UsageError, match="merged up to 6 already"):
        trace.set_physical_compaction(5)
    trace.set_physical_compaction(7)
    with pytest.raises(UsageError, match="merged up to 7 already"):
        trace.set_physical_compaction(6)
    trace.set_logical_compaction([])
    with pytest.raises(UsageError, match="can't be read any more"):
        trace.read(5)


def test_what_is_held_apart_is_read_apart(numbers):
    """Updates are read from each frontier that the handle stays at, and merged as soon as it goes on."""
    dataflow = numbers.dataflow
    with numbers.arrange_by_key("k").trace() as trace:
        dataflow.step()
        trace.set_physical_compaction(dataflow.time)
        sent = []
        for time in range(50):
            numbers.update_at((time % 3, time), time, 1)
            sent.append(((time % 3, time), time, 1))
            numbers.advance_to(time + 1)
            dataflow.step()
            if time % 7 == 6:
                assert trace.updates(time - 2) == sent[-3:]
                (shard,) = trace._traces()
                assert len(shard.batches) >= 7
                trace.set_physical_compaction(time + 1)
                assert trace.updates(time + 1) == []
                assert len(shard.batches) <= 7
                with pytest.raises(UsageError, match="kept apart from"):
                    trace.updates(time)
        assert sorted(trace.read(49)) == sorted((record, 1) for record, _, _ in sent)


def test_a_closed_handle_lets_the_trace_compact(numbers):
    dataflow, arranged = numbers.dataflow, numbers.arrange_by_key("k")
    trace = arranged.trace()
    trace.set_physical_compaction(0)
    for time in range(600):
        numbers.update_at((0, 0), time, 1)
        numbers.advance_to(time + 1)
        dataflow.step()
    (shard,) = trace._traces()
    assert len(shard.batches) == 600
    trace.close()
    assert len(shard.batches) == 1
    for time in range(600, 610):
        numbers.update_at((0, 0), time, 1)
        numbers.advance_to(time + 1)
        dataflow.step()
    assert shard.rows < 20


def test_filters_are_asked_as_the_trace_is_read(numbers):
    trace = numbers.arrange_by_key("v").trace()
    large, odd = trace.filter("v > 1"), trace.filter(lambda r: r["k"] % 2 == 1)
    both = large.filter(lambda r: r[0] % 2 == 1)
    with pytest.raises(SpecError, match="no column is named `w`"):
        trace.filter("w > 1")
    for record in itertools.product(range(3), repeat=2):
        numbers.insert(record)
    numbers.close()
    numbers.dataflow.step()
    assert sorted(large.read(0)) == [((k, 2), 1) for k in range(3)]
    assert sorted(odd.read(0)) == [((1, v), 1) for v in range(3)]
    assert both.read(0) == [((1, 2), 1)]
    assert both.read(0, key=(1,)) == []


def test_texts_are_read_as_texts():
    dataflow = Dataflow()
    words = dataflow.input("words", {"word": "string?", "n": "int64?"})
    trace = words.arrange_by_key("word").trace()
    for record in [("ä", 1), (None, None), ("", 2)]:
        words.insert(record)
    words.close()
    dataflow.step()
    assert sorted(trace.read(7), key=repr) == [(("", 2), 1), (("ä", 1), 1), ((None, None), 1)]
    assert trace.read(7, key=(None,)) == [((None, None), 1)]


def test_a_trace_of_a_loop_is_the_loops_own(numbers):
    kept = []

    def body(x):
        kept.append(x.arrange_by_key("k"))
        return x.join(kept[-1], on=["k"], name="o").map(k="k", v="o.v").concat(numbers).distinct()

    numbers.iterate(body).output()
    with pytest.raises(UsageError, match="in a loop"):
        kept[0].trace()
    numbers.dataflow.assemble()
    with pytest.raises(UsageError, match="its graph is fixed"):
        numbers.arrange_by_key("v")


# --- importing ------------------------------------------------------------------------------------------------------


# Collections of k and v over an arrangement by k, and one more that is not arranged: all ways to read the first.
READERS = {
    "itself": lambda arranged, more: arranged.as_collection(),
    "join": lambda arranged, more: arranged.join(more.arrange_by_key("k"), name="more").map(k="k", v="more.v"),
    "join from the other side": lambda arranged, more: more.join(arranged, on=["k"], name="it").map(k="v", v="it.v"),
    "by another key": lambda arranged, more: more.join(arranged, on={"k": "v"}, name="it").map(k="k", v="it.k"),
    "min": lambda arranged, more: arranged.reduce(v="min(v)"),
    "sum": lambda arranged, more: arranged.reduce(v="sum(v)"),
    "count": lambda arranged, more: arranged.count(by=["k"], name="v"),
    "distinct": lambda arranged, more: arranged.distinct(),
    "antijoin": lambda arranged, more: more.antijoin(arranged, on=["k"]),
    "loop": lambda arranged, more: more.distinct().iterate(
        lambda x: x.join(arranged, on={"v": "k"}, name="up").map(k="k", v="up.v").concat(more.distinct()).distinct()
    ),
}


@pytest.mark.parametrize("nt", [1, 2])
@pytest.mark.parametrize("workers", [1, 2])
@settings(max_examples=many(25))
@given(data=st.data())
def test_an_import_is_the_collection_from_since_on(nt, workers, data):
    """One dataflow goes on while the other reads it, in steps of its own, with an input of its own."""
    given = {name: data.draw(updates(nt, most=10)) for name in INPUTS}
    which = data.draw(st.sampled_from(sorted(READERS)))
    if which == "loop":  # joined with less than nothing it might never settle
        given["one"] = [(record, time, abs(diff)) for record, time, diff in given["one"]]
    steps = data.draw(st.integers(1, 4))
    ahead, before, own = (data.draw(frontiers(nt, steps)) for _ in range(3))
    since = data.draw(st.sampled_from(times(nt)))
    with sharing(data):
        source, target = Dataflow(time=nt, workers=workers), Dataflow(time=nt, workers=workers)
        one = source.input("one", COLUMNS)
        arranged = one.arrange_by_key("k")
        left = list(given["one"])

        def feed(session, left, frontier):
            for update in [each for each in left if not frontier.less_equal(each[1])]:
                session.update_at(update[0], plain(update[1]), update[2])
                left.remove(update)
            session.advance_to(frontier)

        with arranged.trace() as handle:
            for frontier in before[: data.draw(st.integers(0, steps))]:
                feed(one, left, frontier)
                source.step()
            begin = source.frontier.join(Frontier([since])) if data.draw(st.booleans()) else Frontier([since])
            handle.set_logical_compaction(begin)
            imported = target.import_trace(handle, "one")
        other = target.input("other", COLUMNS)
        collection = READERS[which](imported, other)
        output = collection.output()
        log, others = Counter(), list(given["other"])
        # The import begins with the contents as of then: earlier updates are at that time.
        meant = [(record, tuple(map(max, time, begin.as_time())), diff) for record, time, diff in given["one"]]
        plan = Plan([], {"one": meant, "other": given["other"]}, {}, nt)
        for at in range(steps + 1):
            if data.draw(st.booleans()) or at == steps:
                feed(one, left, one.frontier.join(ahead[at]) if at < steps else Frontier())
                source.step()
            if data.draw(st.booleans()) or at == steps:
                feed(other, others, own[at] if at < steps else Frontier())
            lower = target.frontier
            target.step()
            for record, time, diff in output.updates():
                assert lower.less_equal(engine(time))
                assert not target.frontier.less_equal(engine(time))
                log[record, engine(time)] += diff
            check(plan, collection, log, target.frontier)
        assert not target.frontier
        target.close()
        (hold, *_) = [trace._holds for trace in arranged.kept.shards]
        assert not hold


def test_an_import_shares_the_rows():
    source, target = Dataflow(), Dataflow()
    numbers = source.input("numbers", COLUMNS)
    with numbers.arrange_by_key("k").trace() as handle:
        imported = target.import_trace(handle)
    imported.join(imported, name="again").output()
    assert kept_by(target) == 0, "the join reads the one trace on both sides"


def test_texts_of_an_import_are_known_where_it_is_read():
    source, target = Dataflow(), Dataflow()
    words = source.input("words", {"id": "int64", "word": "string?", "parts": "list[string?]"})
    imported = target.import_trace(words.arrange_by_key("id").trace())
    output = imported.map(word="upper(word)", parts="parts").output()
    words.insert((1, "ä" * 40, ["x", None]))
    words.insert((2, None, []))
    words.advance_to(1)
    target.step()
    assert output.updates() == []
    source.step()
    target.step()
    assert sorted(output.updates(), key=repr) == [(("Ä" * 40, ["x", None]), 0, 1), ((None, []), 0, 1)]


def test_a_filter_is_imported_as_one():
    source, target = Dataflow(), Dataflow()
    numbers = source.input("numbers", COLUMNS)
    with numbers.arrange_by_key("k").trace() as handle:
        imported = target.import_trace(handle.filter("v > 1"))
    outputs = [
        each.output() for each in (imported, imported.join(imported, name="o").project("v"), imported.distinct())
    ]
    for record in itertools.product(range(2), range(3)):
        numbers.insert(record)
    numbers.advance_to(1)
    source.step()
    target.step()
    assert [sorted(output.updates()) for output in outputs] == [
        [((0, 2), 0, 1), ((1, 2), 0, 1)],
        [((2,), 0, 2)],
        [((0, 2), 0, 1), ((1, 2), 0, 1)],
    ]


def test_what_cannot_be_imported_is_refused(numbers):
    handle = numbers.arrange_by_key("k").trace()
    for target, message in [
        (numbers.dataflow, "imports from others"),
        (Dataflow(time=2), "the same type of time"),
        (Dataflow(workers=2), "as many workers"),
    ]:
        with pytest.raises(UsageError, match=message):
            target.import_trace(handle)
    target = Dataflow()
    imported = target.import_trace(handle, "numbers")
    with pytest.raises(UsageError, match="an input 'numbers' exists already"):
        target.import_trace(handle, "numbers")
    with pytest.raises(UsageError, match="imported from"):
        imported.trace()
    handle.close()
    with pytest.raises(UsageError, match="closed"):
        Dataflow().import_trace(handle)
    target.step()
    target.close()
    with pytest.raises(UsageError, match="closed"):
        target.step()

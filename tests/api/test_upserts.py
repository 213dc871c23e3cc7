"""Upsert sessions: a key has what was said of it last."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.api import Dataflow
from ddcli.errors import InputError, UsageError
from tests.api.support import kept_by, sharing
from tests.draws import many
from tests.reference.model import accumulate

TIMES = 6
ROW = st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2)), st.integers(0, TIMES - 1))


def meaning(upserts, time):
    """Return the collection at a time: of each key the last upsert of the latest time."""
    ordered = sorted((each for each in upserts if each[2] <= time), key=lambda each: each[2])
    held = {key: value for key, value, _ in ordered}
    return {(key, value): 1 for key, value in held.items() if value is not None}


@settings(max_examples=many(80))
@given(
    upserts=st.lists(ROW, max_size=14),
    cuts=st.lists(st.integers(0, TIMES), max_size=3),
    workers=st.sampled_from([1, 2]),
    early=st.booleans(),
    data=st.data(),
)
def test_a_key_has_what_was_said_last(upserts, cuts, workers, early, data):
    """However the session advances; early upserts of later times are kept until then."""
    with sharing(data), Dataflow(workers=workers) as dataflow:
        session = dataflow.upsert_input("held", {"v": "int64", "k": "int64"}, key=["k"])
        output = session.output()
        joined = session.join(session, on=["k"], name="again").map(k="k", v="again.v").output()
        values = session.reduce(["v"], n="count(*)").output()
        log, other, counts = [], [], []
        left = list(upserts)
        for cut in [*sorted(cuts), TIMES]:
            for key, value, time in [each for each in left if early or each[2] < cut]:
                session.upsert_at(key, value, time)
            left = [] if early else [each for each in left if each[2] >= cut]
            session.advance_to(cut)
            dataflow.step()
            log += [((k, v), (time,), diff) for (v, k), time, diff in output.updates()]
            other += [(record, (time,), diff) for record, time, diff in joined.updates()]
            counts += [(record, (time,), diff) for record, time, diff in values.updates()]
            for time in range(cut):
                wanted = meaning(upserts, time)
                assert accumulate(log, (time,)) == accumulate(other, (time,)) == wanted
                by_value = [v for _, v in wanted]
                assert accumulate(counts, (time,)) == {(v, by_value.count(v)): 1 for v in by_value}


def test_keys_and_values_of_several_columns_are_tuples():
    dataflow = Dataflow()
    held = dataflow.upsert_input("held", {"a": "string", "x": "int64?", "b": "int64", "y": "string"}, key=["a", "b"])
    outputs = [held.output(), held.project("y").output(), held.arrange_by_key("a", "b").reduce(n="count(*)").output()]
    trace = held.arrange_by_key("a", "b").trace()
    held.upsert(("k", 1), (None, "first"))
    held.upsert(("k", 1), (7, "second"))
    held.upsert(("k", 2), (8, "other"))
    held.upsert(("k", 2), None)
    held.upsert(("never", 2), None)
    held.close()
    dataflow.step()
    assert [output.updates() for output in outputs] == [
        [(("k", 7, 1, "second"), 0, 1)],
        [(("second",), 0, 1)],
        [(("k", 1, 1), 0, 1)],
    ]
    assert trace.read(0, key=("k", 1)) == [(("k", 7, 1, "second"), 1)]


def test_the_state_of_upserts_is_the_arrangement_by_their_key():
    dataflow = Dataflow()
    held = dataflow.upsert_input("held", {"k": "int64", "v": "int64"}, key=["k"])
    held.join(held, on=["k"], name="again").output()
    assert kept_by(dataflow) == 1


def test_what_does_not_fit_is_refused():
    dataflow = Dataflow()
    held = dataflow.upsert_input("held", {"k": "int64", "v": "int64"}, key=["k"])
    output = held.output()
    for key, value in [("a", 1), (1, "b"), (None, 1), ((1, 2), 3), (1, (2, 3))]:
        held.upsert(key, value)
        with pytest.raises(InputError):
            held.flush()
    held.advance_to(2)
    with pytest.raises(UsageError, match="time 1 is closed"):
        held.upsert_at(1, 1, 1)
    dataflow.step()
    assert output.updates() == []
    for schema, key in [({"k": "int64"}, []), ({"k": "int64"}, ["j"])]:
        with pytest.raises(UsageError, match="the key is some of its columns"):
            Dataflow().upsert_input("held", schema, key=key)
    with pytest.raises(UsageError, match="none of them is the last"):
        Dataflow(time=2).upsert_input("held", {"k": "int64"}, key=["k"])

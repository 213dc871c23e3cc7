"""Random pipelines at random times: what explains a record gives it, by the reference as well; and little more than that.

The reference is run over nothing but the updates of an explanation: that the command has checked it is not believed.
"""

from __future__ import annotations

import datetime as dt
import random
import tempfile
from collections import Counter, deque
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine.lanes import Layout
from ddcli.engine.records import decode_records
from ddcli.expressions.nanoseconds import finer
from ddcli.expressions.types import parse_type
from ddcli.job.request import read_request
from ddcli.plan.logical import sources
from ddcli.provenance.changes import Changes
from ddcli.provenance.inputs import Inputs
from ddcli.provenance.question import Absence, Question, leaves_of
from tests.draws import many
from tests.judge.case import Arrival, Case, Run, write_file
from tests.judge.harness import Meaning, graph_of
from tests.judge.logs import cases
from tests.loops import REACHED, indented
from tests.reference.expressions import Fails
from tests.reference.model import LoopDiverges, Model, accumulate
from tests.reference.values import canonical, plain

SEARCH = settings(max_examples=many(12))
SCOPES: Counter[str] = Counter()


def opened(case, folder):
    """Write the logs of a case, and return its inputs, open."""
    path = Path(folder) / "p.yaml"
    path.write_text(case.text, encoding="utf-8")
    for number, run in enumerate(case.runs):
        for at, file in enumerate(run.files):
            write_file(case, file, Path(folder) / "in" / file.input / f"{number}-{at}.parquet")
    for name in case.tree["inputs"]:
        (Path(folder) / "in" / name).mkdir(parents=True, exist_ok=True)
    return Inputs.of(read_request(path))


def explanations(case, inputs, name, time, *, keyed, most=3):
    """Give each record of an output at a time with its explanation, the first few of them."""
    node = inputs.relations[inputs.request.spec.outputs[name].source.value].node
    whole = Question(inputs, node, {}, time, 3)
    found = whole.evaluated.contents(node)
    for record, count in list(zip(found.records(), found.counts(), strict=True))[:most]:
        values = dict(zip(node.schema, record, strict=True))
        draw = random.Random(repr(record))
        asked = {column: value for column, value in values.items() if draw.random() < 0.6}
        question = Question(inputs, node, asked, time, 3) if keyed else whole
        there = question.evaluated.contents(node).where(values)
        assert (list(map(canonical, there.records())), there.counts()) == ([canonical(record)], [count]), (
            "all that matters is read"
        )
        yield record, count, question, question.explained(record, count)


def updates_of(case, question, explained):
    """Return the updates that explain something, by input."""
    alone = question.fed if explained.scope == "everything" else leaves_of(question.fed, explained.reason)
    updates = {}
    for of, source in sources(graph_of(case)).items():
        matrix = alone.get(of, np.empty((0, 0), np.int64))
        layout = Layout(source.schema)
        records = decode_records(matrix, layout, question.inputs.pool) if len(matrix) else []
        rest = matrix[:, layout.width :].tolist()
        updates[of] = [(canonical(r), tuple(t), d) for r, (*t, d) in zip(records, rest, strict=True)]
    return updates


def given_by(case, question, explained, name, without=None):
    """Return how often the reference has a record, run over what explains it, or all of that but one update."""
    updates = updates_of(case, question, explained)
    if without is not None:
        of, at = without
        del updates[of][at]
    time = question.time
    model = Model({of: accumulate(rows, time) for of, rows in updates.items()}, time)
    return model.output(graph_of(case).outputs[name]).get(canonical(explained.record), 0), updates


@SEARCH
@given(
    st.sampled_from([1, 1, 1, 2]).flatmap(lambda nt: st.booleans().flatmap(lambda loop: cases(nt=nt, looping=loop))),
    st.integers(0, 2**16),
)
def test_what_explains_a_record_gives_it(case, seed):
    """At a random time of each output, with the values of the record pushed down to the inputs or without."""
    draw = random.Random(seed)
    meaning = Meaning(case)
    times = meaning.times()
    if not times:
        return
    time = draw.choice(times)
    meant = meaning.at(time)
    if isinstance(meant, Fails | LoopDiverges):
        return
    with tempfile.TemporaryDirectory() as folder:
        inputs = opened(case, folder)
        for name, collection in meant[0].items():
            for record, count, question, explained in explanations(case, inputs, name, time, keyed=draw.random() < 0.5):
                assert collection[canonical(record)] == count
                assert explained.checked, f"{name}: {record} at {time}"
                got, _ = given_by(case, question, explained, name)
                assert got == count, f"{name}: {record} at {time} by {explained.scope}"
                SCOPES[explained.scope] += 1


@SEARCH
@given(st.booleans().flatmap(lambda looping: cases(looping=looping)), st.integers(0, 2**16))
def test_what_explains_a_change_makes_it(case, seed):
    """Of the updates at a time only those, after all that came before."""
    draw = random.Random(seed)
    meaning = Meaning(case)
    times = [time for time in meaning.times() if time[0] > 0]
    if not times:
        return
    time = draw.choice(times)
    earlier = (time[0] - 1,)
    if any(isinstance(meaning.at(at), Fails | LoopDiverges) for at in (time, earlier)):
        return
    graph = graph_of(case)
    with tempfile.TemporaryDirectory() as folder:
        inputs = opened(case, folder)
        for name in graph.outputs:
            node = inputs.relations[inputs.request.spec.outputs[name].source.value].node
            now = Question(inputs, node, {}, time, 3)
            changes = Changes(now.at(earlier), now)
            found = changes.differing(node, {})
            for record, diff in list(zip(found.records(), found.counts(), strict=True))[:3]:
                explained = changes.explained(record, diff)
                SCOPES[f"change {explained.scope}"] += 1
                if explained.scope == "everything":
                    continue
                rows = {of: accumulate(case.updates(of), earlier) for of in sources(graph)}
                made = updates_of(case, now, explained)
                for of, updates in made.items():
                    assert all(at == time for _, at, _ in updates)
                    rows[of] = accumulate([*((r, earlier, n) for r, n in rows[of].items()), *updates], time)
                got = Model(rows, time).output(graph.outputs[name]).get(canonical(record), 0)
                assert got == meaning.at(earlier)[0][name].get(canonical(record), 0) + diff, f"{record} {diff:+d}"


@settings(SEARCH, max_examples=many(6))
@given(st.booleans().flatmap(lambda looping: cases(looping=looping)), st.integers(0, 2**16))
def test_what_is_missing_is_followed_to_where_it_ends(case, seed):
    """Records of other times, that are not there now: something is said at the end of each branch."""
    draw = random.Random(seed)
    meaning = Meaning(case)
    times = meaning.times()
    if len(times) < 2 or any(isinstance(meaning.at(time), Fails | LoopDiverges) for time in times):
        return
    time, other = draw.sample(times, 2)
    with tempfile.TemporaryDirectory() as folder:
        inputs = opened(case, folder)
        for name, collection in meaning.at(other)[0].items():
            node = inputs.relations[inputs.request.spec.outputs[name].source.value].node
            gone = [record for record in collection if record not in meaning.at(time)[0][name]][:2]
            for record in gone:
                values = {column: plain(value) for column, value in zip(node.schema, record, strict=True)}
                question = Question(inputs, node, values, time, 3)
                assert not len(question.records())
                pending = [Absence(question).of(node, values)]
                while pending:
                    each = pending.pop()
                    assert each.why or each.because
                    pending += each.because


POSITIVE = [
    "filter: k > 0",
    "map: {k: k % 3, v: v}",
    "map: {k: v, v: k}",
    "distinct",
    "join: {with: q, 'on': [k]}",
    "asof_join: {with: q, 'on': [k], at: v}",
    "semijoin: {with: r, 'on': [k]}",
    "concat: w",
    "project: [k, v]",
    "flat_map: {v: 'unnest([v, v + 1])'}",
    "reduce: {by: [k], v: min(v)}",
    "reduce: {by: [k], v: max(v)}",
]


@SEARCH
@given(st.lists(st.sampled_from(POSITIVE), min_size=1, max_size=4), st.integers(0, 2**16))
def test_a_witness_of_a_positive_pipeline_is_minimal(operators, seed):
    """Without any one of its updates the record is not there as often.

    A collection that is added both below and above a least or greatest value is none of this kind: that of fewer rows may be the record, too.
    """
    draw = random.Random(seed)
    apply, joined = [], 0
    for at, operator in enumerate(operators):
        text = operator
        if operator.startswith("concat") and any(each.startswith("reduce") for each in operators[:at]):
            continue
        if operator.startswith(("join", "asof_join")):
            joined += 1
            apply += [yaml.safe_load(f"- {operator}")[0], {"map": {"k": "k", "v": "v"}}]
            apply[-2][operator.partition(":")[0]]["as"] = f"j{joined}"
            continue
        apply += yaml.safe_load(f"- {text}")
    columns = {"k": "int64", "v": "int64"}
    inputs = {name: {"path": f"in/{name}/", "columns": columns} for name in "pqrw"}
    tree = {
        "dd": 1,
        "name": "j",
        "inputs": inputs,
        "collections": {"c": {"from": "p", "apply": apply or ["distinct"]}},
        "outputs": {"c": "out/"},
    }
    files = tuple(
        Arrival(name, tuple(((draw.randrange(4), draw.randrange(4)), (draw.randrange(3),), 1) for _ in range(8)))
        for name in "pqrw"
    )
    case = Case(yaml.safe_dump(tree, sort_keys=False), (Run(files),))
    with tempfile.TemporaryDirectory() as folder:
        found = opened(case, folder)
        for record, count, question, explained in explanations(case, found, "c", (2,), keyed=False):
            assert (explained.scope, explained.checked) == ("witness", True)
            got, updates = given_by(case, question, explained, "c")
            assert got == count
            for name, rows in updates.items():
                for at in range(len(rows)):
                    less, _ = given_by(case, question, explained, "c", without=(name, at))
                    assert less != count, f"{record} is there without {rows[at]} of {name}, too: {updates}"


TIMED = [
    "filter: k > 0",
    "project: [k, at]",
    "extend: {later: at}",
    "distinct",
    "distinct",
    "join: {with: q, 'on': [at], as: other}",
    "semijoin: {with: r, 'on': [at]}",
    "antijoin: {with: r, 'on': [at, k]}",
    "asof_join: {with: {from: q, apply: [{map: {k: k, at: at, of: k}}]}, 'on': [k], at: at, as: near}",
    "concat: w",
    "reduce: {by: [k], at: max(at)}",
    "reduce: {by: [at], k: count(*)}",
    "reduce: {by: [k], at: min(at), n: count(*)}",
    "top_k: {by: [k], k: 1, order_by: [at]}",
]


@pytest.mark.parametrize("kind", ["datetime[ns]", "time", "duration[ns]"])
@SEARCH
@given(st.data())
def test_values_within_a_microsecond_are_told_apart(kind, data):
    """Records that differ in nanoseconds alone: each is found by its values, and explained by its own rows, by the reference as well."""
    whole, nothing = parse_type(kind), dt.timedelta(microseconds=2)
    plain = {
        "datetime": dt.datetime.fromisoformat("2024-01-01") + nothing,
        "time": dt.time(1, 2, 3, 4),
        "duration": -nothing,
    }[whole.kind]
    apply, joined = [], 0
    for operator in data.draw(st.lists(st.sampled_from(TIMED), min_size=1, max_size=3)):
        if ("asof" in operator and whole.kind != "datetime") or (joined and "join" in operator.partition(":")[0]):
            continue
        joined += "as:" in operator
        apply += yaml.safe_load(f"- {operator}")
        if operator.startswith(("extend", "join", "asof", "reduce")):
            apply += [{"map": {"k": "k", "at": "at"}}]
    inputs = {name: {"path": f"in/{name}/", "columns": {"k": "int64", "at": kind}} for name in "pqrw"}
    tree = {
        "dd": 1,
        "name": "j",
        "inputs": inputs,
        "collections": {"c": {"from": "p", "apply": apply or ["distinct"]}},
        "outputs": {"c": "out/"},
    }
    rows = st.tuples(st.integers(0, 2), st.sampled_from([finer(plain, each) for each in (0, 1, 999)]))
    updates = st.lists(st.tuples(rows, st.just((1,)), st.sampled_from([1, 1, 2])), max_size=6)
    files = tuple(Arrival(name, tuple(data.draw(updates))) for name in "pqrw")
    case = Case(yaml.safe_dump(tree, sort_keys=False), (Run(files),))
    meant = Meaning(case).at((1,))[0]["c"]
    with tempfile.TemporaryDirectory() as folder:
        if not any(file.updates for file in files):
            return
        found = opened(case, folder)
        seen = {}
        for record, count, question, explained in explanations(case, found, "c", (1,), keyed=True, most=100):
            seen[canonical(record)] = count
            assert explained.checked
            assert given_by(case, question, explained, "c")[0] == count
        assert seen == {record: count for record, count in meant.items() if count}


@pytest.mark.parametrize("seed", range(2))
def test_a_loop_is_explained_by_a_shortest_derivation(shop, seed):
    """What is reachable by as many edges as breadth-first search finds it to take."""
    draw = random.Random(seed)
    edges = {(draw.randrange(8), draw.randrange(8)) for _ in range(13)}
    path = shop.write(
        "p.yaml",
        """\
dd: 1
name: reach
inputs: {edges: {path: in/edges/, columns: {src: int64, dst: int64}}}
collections:
  links: {from: edges, apply: [distinct]}
  reach:
"""
        + indented(4, REACHED)
        + "outputs: {reach: out/}\n",
    )
    rows = [(*edge, time) for edge in sorted(edges) for time in range(2)]
    (shop.folder / "in/edges").mkdir(parents=True)
    pl.DataFrame(rows, schema=["src", "dst", "time"], orient="row").write_parquet(shop.folder / "in/edges/1.parquet")
    inputs = Inputs.of(read_request(path))
    node = inputs.relations["reach"].node
    question = Question(inputs, node, {}, (1,), 3)
    pairs = question.evaluated.contents(node).records()
    assert set(pairs) == {(src, dst) for src in range(8) for dst in distances(edges, src)}
    for src, dst in pairs:
        explained = question.explained((src, dst), 1)
        assert (explained.scope, explained.checked) == ("witness", True)
        assert explained.updates == distances(edges, src)[dst]


def distances(edges, start):
    """Return how many edges it takes to each node that can be reached, by one edge at least."""
    found, waiting = {}, deque([(start, 0)])
    while waiting:
        node, far = waiting.popleft()
        for src, dst in edges:
            if src == node and dst not in found:
                found[dst] = far + 1
                waiting.append((dst, far + 1))
    return found


def test_most_explanations_are_witnesses():
    """What falls back to wider ones is the exception, of what the search before has found."""
    there = SCOPES["witness"] + SCOPES["whole"] + SCOPES["everything"]
    changed = SCOPES["change witness"] + SCOPES["change everything"]
    if there > 50:
        assert SCOPES["witness"] > 0.7 * there, SCOPES
    if changed > 50:
        assert SCOPES["change witness"] > 0.7 * changed, SCOPES

"""Column lineage of random pipelines, judged by the reference: where one column of an input has other values, or the file is edited, what is not reached stays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ddcli.expressions.tree import Column, Literal, MapStep
from ddcli.expressions.types import Type
from ddcli.plan import logical, temporal
from ddcli.plan.lineage import lineage, reach_of_edits
from ddcli.plan.pipeline_file import BoundPipeline, parse_spec
from tests.draws import many
from tests.judge.columns import VALUES
from tests.judge.edits import edits
from tests.judge.harness import Meaning
from tests.judge.logs import cases
from tests.judge.test_asof import asof
from tests.judge.test_windows import windowed

ONE = "one"


def positive(case):
    """Return a case without retractions: where a multiplicity is negative, any column may decide which records there are."""
    runs = [
        replace(
            run,
            files=tuple(replace(file, updates=tuple((r, t, abs(d)) for r, t, d in file.updates)) for file in run.files),
        )
        for run in case.runs
    ]
    return replace(case, runs=tuple(runs))


def counted(node):
    """Return a collection with a further column of a constant, which only depends on which records there are."""
    columns = {name: Column(name, kind) for name, kind in node.schema.items()} | {ONE: Literal(1, Type("int64"))}
    schema = {name: each.type for name, each in columns.items()}
    return logical.Apply((node,), schema, MapStep(tuple(columns.items())))


def projected(collection, names, kept):
    """Return a collection's records with some of their columns."""
    at = [names.index(name) for name in kept]
    found = Counter()
    for record, count in collection.items():
        found[tuple(record[place] for place in at)] += count
    return {record: count for record, count in found.items() if count}


@settings(max_examples=many(150))
@given(st.one_of(st.booleans().flatmap(lambda loops: cases(looping=loops)), windowed(), asof()), st.data())
def test_a_column_that_an_input_s_column_does_not_reach_stays_as_it_is(case, data):
    case = positive(case)
    meaning = Meaning(case)
    nodes = meaning.graph.nodes()
    assume(not any(isinstance(node, temporal.JoinFunction) for node in nodes))
    assume(not {"negate", "explode"} & {node.wording[0] for node in nodes})
    name = data.draw(st.sampled_from(sorted(case.tree["inputs"])))
    columns = case.tree["inputs"][name]["columns"]
    column = data.draw(st.sampled_from(list(columns)))
    kind, at = columns[column], list(columns).index(column)
    values = st.sampled_from(VALUES[kind.removesuffix("?")])
    values = st.one_of(values, st.none()) if kind.endswith("?") else values

    def changed(record):
        return (*record[:at], data.draw(values), *record[at + 1 :])

    runs = [
        replace(
            run,
            files=tuple(
                replace(file, updates=tuple((changed(r), t, d) for r, t, d in file.updates))
                if file.input == name
                else file
                for file in run.files
            ),
        )
        for run in case.runs
    ]
    other = Meaning(replace(case, runs=tuple(runs)))
    reached = {
        (output, each)
        for output, node in meaning.graph.outputs.items()
        for each in (*node.schema, ONE)
        if any((name, column) in found for found in lineage(counted(node), each))
    }
    for time in meaning.times():
        before, after = meaning.at(time), other.at(time)
        if not (isinstance(before, tuple) and isinstance(after, tuple)):
            continue
        for output, node in meaning.graph.outputs.items():
            names = list(node.schema)
            if (output, ONE) not in reached:
                kept = [each for each in names if (output, each) not in reached]
                assert projected(before[0][output], names, kept) == projected(after[0][output], names, kept)


def bound_of(case):
    """Return a case's pipeline, bound to its inputs' columns."""
    spec = parse_spec(case.text, "p.yaml")
    schemas = {name: case.schema(name) for name in spec.inputs}
    return BoundPipeline(spec, schemas, {f"time{at}": kind for at, kind in enumerate(case.time_types)})


@settings(max_examples=many(80))
@given(st.booleans().flatmap(lambda loops: cases(looping=loops)), st.data())
def test_a_column_that_no_edit_reaches_stays_as_it_is(case, data):
    case = positive(case)
    other = replace(case, text=data.draw(edits(case.text)))
    meanings = [Meaning(each) for each in (case, other)]
    for meaning in meanings:
        assume(not {"negate", "explode"} & {node.wording[0] for node in meaning.graph.nodes()})
    found = reach_of_edits(bound_of(case), bound_of(other))
    reached = {column for each in found for column in (*each.values, *each.decides)}
    for time in meanings[0].times():
        before, after = (meaning.at(time) for meaning in meanings)
        if not (isinstance(before, tuple) and isinstance(after, tuple)):
            continue
        for output in before[0].keys() & after[0].keys():
            names = [[*meaning.graph.outputs[output].schema] for meaning in meanings]
            kept = [each for each in names[1] if f"{output}.{each}" not in reached and each in names[0]]
            if kept:
                assert projected(before[0][output], names[0], kept) == projected(after[0][output], names[1], kept)

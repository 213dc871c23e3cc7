"""Random pipelines: for every key, what a lookup finds is what the collection is, by the reference; now and in the kept past."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import event, given, settings

from ddcli.engine.times import Frontier
from ddcli.errors import UsageError
from ddcli.plan.build import build_collections
from ddcli.plan.pipeline_file import parse_spec
from ddcli.query import Lookup
from tests.draws import many
from tests.judge.columns import VALUES
from tests.judge.frontiers import is_closed
from tests.judge.harness import same
from tests.judge.test_windows import windowed
from tests.query.support import PIPELINES, ask_after_runs
from tests.reference.expressions import Fails
from tests.reference.model import LoopDiverges, Model, accumulate
from tests.reference.values import canonical

MOST_KEYS = 12
"""Keys that are asked for of a collection at a time."""


@settings(max_examples=many(10))
@given(*PIPELINES)
def test_every_key_is_found(case, history, seed):
    """By every key that is offered, by its first column alone, and keys of which there are no records."""
    ask_after_runs(case, history, seed, ask)


@settings(max_examples=many(6))
@given(windowed(), PIPELINES[1], PIPELINES[2])
def test_every_partition_of_a_window_is_found(case, history, seed):
    """Computed of the partition's rows, whatever a state keeps for the window itself."""
    ask_after_runs(case, history, seed, ask)


def ask(case, path, upper, rng, history):
    """Ask for keys of all that has a name."""
    spec = parse_spec(case.text, "p.yaml")
    found = build_collections(spec, {name: case.schema(name) for name in spec.inputs}, case.time_types)
    closed = [time for time in product(range(8), repeat=len(case.times)) if is_closed(upper, time)]
    for name, relation in found.items():
        try:
            lookup = Lookup.open(path, name)
        except Exception as error:
            if "no output reads" in str(error):
                continue
            raise
        corners = Frontier(lookup.manifest.upper).corners()
        times = [None] if len(corners) == 1 else []
        if closed and (history == "all" or len(case.times) > 1):
            times.append(rng.choice(closed))
        for as_of in times:
            at = as_of or tuple(value - 1 for value in corners[0])
            model = Model({each: accumulate(case.updates(each), at) for each in spec.inputs}, at)
            try:
                whole = model.output(relation.node)
            except (Fails, LoopDiverges):
                continue
            try:
                check(lookup, relation, whole, as_of, rng)
            except UsageError as error:
                if as_of is None or history == "all" or "no longer keeps" not in str(error):
                    raise


def check(lookup, relation, whole, as_of, rng):
    names = list(relation.node.schema)
    kept = [names.index(column) for column in lookup.columns]
    records = Counter()
    for record, count in whole.items():
        records[tuple(record[at] for at in kept)] += count
    for key in {*lookup.keys, *(key[:1] for key in lookup.keys)}:
        event(f"{len(key)} columns, {type(relation.node).__name__}")
        if any(relation.node.schema[name].kind == "list" for name in key):
            continue
        at = [list(lookup.columns).index(name) for name in key]
        there = sorted({tuple(record[each] for each in at) for record in records}, key=repr)
        wanted = rng.sample(there, min(len(there), MOST_KEYS))
        absent = tuple(
            rng.choice(
                [*VALUES.get(relation.node.schema[name].kind, []), *(there[0][n : n + 1] if there else [])] or [0]
            )
            for n, name in enumerate(key)
        )
        for values in [*wanted, absent]:
            asked = dict(zip(key, values, strict=True))
            if not lookup.answers(asked):
                assert None in values or len(key) < len(max(lookup.keys, key=len)), "a whole key answers"
                continue
            rows = lookup.rows(asked, as_of=as_of)
            got = Counter({canonical(row[:-1]): row[-1] for row in rows.rows()})
            meant = {
                record: count
                for record, count in records.items()
                if count and tuple(record[each] for each in at) == canonical(values)
            }
            same(dict(got), meant, f"{lookup.name} by {asked} as of {as_of}")

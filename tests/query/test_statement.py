"""`dd sql`: of random pipelines each collection is what the reference says, read from the state, the inputs, or both."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import event, given, settings

from ddcli.engine.times import Frontier
from ddcli.errors import EngineError
from ddcli.plan.build import build_collections
from ddcli.query.statement import answer
from ddcli.spec.document import parse_spec
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.judge.frontiers import is_closed
from tests.judge.harness import same
from tests.query.support import PIPELINES, ask_after_runs
from tests.reference.expressions import Fails
from tests.reference.model import LoopDiverges, Model, accumulate
from tests.reference.values import canonical


@settings(max_examples=many(10))
@given(*PIPELINES)
def test_a_collection_is_what_it_is_by_the_reference(case, history, seed):
    ask_after_runs(case, history, seed, ask)


def ask(case, path, upper, rng, _history):
    """Ask for all of what has a name, and for the number of its rows."""
    spec = parse_spec(case.text, "p.yaml")
    found = build_collections(spec, {name: case.schema(name) for name in spec.inputs}, case.time_types)
    closed = [time for time in product(range(8), repeat=len(case.times)) if is_closed(upper, time)]
    corners = Frontier(read_newest(path.parent / ".dd" / "judged").upper).corners()
    times = ([None] if len(corners) == 1 else []) + ([rng.choice(closed)] if closed else [])
    for name, relation in found.items():
        for as_of in times:
            at = as_of or tuple(value - 1 for value in corners[0])
            model = Model({each: accumulate(case.updates(each), at) for each in spec.inputs}, at)
            try:
                wanted = model.output(relation.node)
            except (Fails, LoopDiverges):
                continue
            event(type(relation.node).__name__)
            when = None if as_of is None else ",".join(map(str, as_of))
            query = f'select * from "{name}"'
            if any(count < 0 for count in wanted.values()):
                with pytest.raises(EngineError, match="less than no times"):
                    answer(path, query, as_of=when)
                continue
            rows = answer(path, query, as_of=when).rows
            got = Counter(canonical(row) for row in rows.rows())
            same(dict(got), dict(wanted), f"{name} as of {at}")

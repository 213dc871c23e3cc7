"""`dd sql`: of random pipelines each collection is what the reference says, read from the state, the inputs, or both."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import yaml
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.engine.times import Frontier
from ddcli.errors import EngineError, InputError
from ddcli.plan.build import build_collections
from ddcli.query.statement import answer
from ddcli.spec.document import parse_spec
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.judge.case import write_file
from tests.judge.frontiers import is_closed
from tests.judge.harness import same
from tests.judge.logs import cases
from tests.reference.expressions import Fails
from tests.reference.model import LoopDiverges, Model, accumulate
from tests.reference.values import canonical


@settings(max_examples=many(10))
@given(
    st.tuples(st.sampled_from([1, 1, 1, 2]), st.booleans()).flatmap(lambda way: cases(nt=way[0], looping=way[1])),
    st.sampled_from([None, None, 2, "all"]),
    st.integers(0, 2**32),
)
def test_a_collection_is_what_it_is_by_the_reference(case, history, seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        tree = case.tree | ({"history": history} if history else {})
        path = root / "p.yaml"
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
        for number, (this, upper) in enumerate(zip(case.runs, case.uppers(), strict=True)):
            for at, file in enumerate(this.files):
                write_file(case, file, root / "in" / file.input / f"{number}-{at}.parquet")
            if this.progress:
                return  # frontiers of several corners have no last time
            try:
                run(path, until=case.until(this))
            except (InputError, EngineError):
                return
            if (root / ".dd" / "judged" / "manifest").is_dir() and rng.random() < 0.7:
                ask(case, path, upper, rng)


def ask(case, path, upper, rng):
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
            if len(at) == 1 and rng.random() < 0.5:
                counted = answer(path, f'select count(*) as n from "{name}"', as_of=when).rows["n"].to_list()
                assert counted == [sum(wanted.values())] or (counted == [] and not wanted), name
                continue
            rows = answer(path, query, as_of=when).rows
            got = Counter(canonical(row) for row in rows.rows())
            same(dict(got), dict(wanted), f"{name} as of {at}")

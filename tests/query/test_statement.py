"""`dd sql`: of random pipelines each collection is what the reference says, read from the state, the inputs, or both.

A lookup that is asked several times in one process.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path

import polars as pl
import pytest
import yaml
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.engine.times import Frontier
from ddcli.errors import EngineError
from ddcli.expressions.types import parse_type
from ddcli.plan.build import build_collections
from ddcli.plan.pipeline_file import parse_spec
from ddcli.query import Lookup
from ddcli.query.statement import LATEST, answer
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.judge.frontiers import is_closed
from tests.judge.harness import same
from tests.query.support import PIPELINES, ask_after_runs
from tests.reference.expressions import Fails
from tests.reference.model import LoopDiverges, Model, accumulate
from tests.reference.values import canonical

ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["ann", "bob", "zed"]), st.sampled_from([None, 1, 1, 2, 3])),
    max_size=4,
)
COLUMNS = {"id": "int64", "k": "string", "v": "int64?"}
QUERIES = (
    "select max(v) as n, count(*) as c from t",
    "select max(k) as n from t",
    "select k, count(*) as c from t group by k",
    "select id, k, v from t order by v desc, id, k limit 1",
    "select id, k, rank() over (order by id) as n from t",
    "select k, row_number() over (partition by k order by id, v) as n from t",
    "select id, k, (select count(*) from t) as n from t where v > 0",
    "select id from t where v > (select avg(v) from t)",
    "select id from t where not exists (select 1 as x from t where v = 3)",
    "select a.k, b.id from t as a cross join t as b",
    "select distinct k from t",
)
"""Of one table: what is of all of its rows, and what is of those of a key."""


@settings(max_examples=many(6))
@given(*PIPELINES)
def test_a_collection_is_what_it_is_by_the_reference(case, history, seed):
    ask_after_runs(case, history, seed, ask, partial(ask, latest=True))


def ask(case, path, upper, rng, _history=None, *, latest=False):
    """Ask for all of what has a name, and for the number of its rows; as of what is closed, or of the `latest` time that there is."""
    spec = parse_spec(case.text, "p.yaml")
    found = build_collections(spec, {name: case.schema(name) for name in spec.inputs}, case.time_types)
    closed = [time for time in product(range(8), repeat=len(case.times)) if is_closed(upper, time)]
    times: list = [rng.choice(closed)] if closed else []
    if latest:
        times = [LATEST]
        corners = [max([upper[0], *((time[0] + 1,) for name in spec.inputs for _, time, _ in case.updates(name))])]
    else:
        corners = Frontier(read_newest(path.parent / ".dd" / "judged").upper).corners()
        times += [None] if len(corners) == 1 else []
    for name, relation in found.items():
        for as_of in times:
            at = as_of if isinstance(as_of, tuple) else tuple(value - 1 for value in corners[0])
            model = Model({each: accumulate(case.updates(each), at) for each in spec.inputs}, at)
            try:
                wanted = model.output(relation.node)
            except (Fails, LoopDiverges):
                continue
            event(type(relation.node).__name__)
            when = ",".join(map(str, as_of)) if isinstance(as_of, tuple) else as_of
            query = f'select * from "{name}"'
            if any(count < 0 for count in wanted.values()):
                with pytest.raises(EngineError, match="negative multiplicity"):
                    answer(path, query, as_of=when)
                continue
            if len(at) == 1 and rng.random() < 0.5:
                counted = answer(path, f'select count(*) as n from "{name}"', as_of=when).rows["n"].to_list()
                assert counted == [sum(wanted.values())] or (counted == [] and not wanted), name
                continue
            rows = answer(path, query, as_of=when).rows
            got = Counter(canonical(row) for row in rows.rows())
            same(dict(got), dict(wanted), f"{name} as of {at}")


@settings(max_examples=many(9))
@given(
    st.lists(ROWS, min_size=2, max_size=3).filter(lambda files: files[0]),
    st.lists(st.sampled_from(QUERIES), min_size=1, max_size=2, unique=True),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_queries_as_of_latest_count_files_that_no_run_has_taken(files, kept, arrival, rng):
    """Whatever the pipeline keeps, the queries that it keeps and others; as of the last commit those files do not count, late as their rows may be."""
    given = {"path": "in/", "format": "append"} if arrival else {"path": "in/", "late": "arrive"}
    tree = {
        "inputs": {"t": given | {"columns": COLUMNS}},
        "outputs": {f"q{QUERIES.index(each)}": "out/" for each in kept},
    }
    tree["outputs"] = {name: f"out/{name}" for name in tree["outputs"]}
    tree["collections"] = {f"q{at}": {"sql": query} for at, query in enumerate(QUERIES)}
    schema = {name: parse_type(kind) for name, kind in COLUMNS.items()}
    meant = build_collections(parse_spec(yaml.safe_dump(tree), "p.yaml"), {"t": schema}, [parse_type("int64")])
    tree["collections"] = {name: each for name, each in tree["collections"].items() if name in tree["outputs"]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "p.yaml")
        path.write_text(yaml.safe_dump(tree))
        (path.parent / "in").mkdir()
        there: Counter = Counter()
        for number, rows in enumerate(files):
            before = there.copy()
            there.update(rows)
            written = pl.DataFrame(rows, {name: kind.to_polars() for name, kind in schema.items()}, orient="row")
            if not arrival:
                written = written.with_columns(time=pl.lit(rng.choice([0, number]), pl.Int64), diff=pl.lit(1, pl.Int64))
            written.write_parquet(path.parent / "in" / f"{number}.parquet")
            if number and rng.random() < 0.5:  # another pipeline than that of the state, which has all of it
                tree["collections"]["more"] = {"sql": "select distinct id from t"}
                path.write_text(yaml.safe_dump(tree))
            for when, rows_then in ((None, before), ("latest", there)) if number else ():
                model = Model({"t": dict(rows_then)}, (number,))
                for at, query in rng.sample([*enumerate(QUERIES)], 4):
                    text = f"select * from q{at}" if f"q{at}" in tree["outputs"] and rng.random() < 0.5 else query
                    rows = answer(path, text, as_of=when).rows
                    wanted = dict(model.output(meant[f"q{at}"].node))
                    same(dict(Counter(canonical(row) for row in rows.rows())), wanted, f"{text} as of {when}")
            run(path)


PIPELINE = """
dd: 1
name: shop
history: all
inputs:
  sales: {path: in/}
collections:
  best:
    from: sales
    apply:
      - reduce: {by: [item], price: max(price)}
outputs: {best: out/}
"""


def test_what_was_asked_for_before_changes_no_answer(tmp_path):
    """A small batch stays in memory as it was read: the times in it are those of the state, whatever was asked."""
    path = tmp_path / "shop.yaml"
    path.write_text(PIPELINE)
    (tmp_path / "in").mkdir()
    sales = {"item": [1, 1, 1], "price": [3, 5, 7], "time": [0, 1, 2], "diff": [1, 1, 1]}
    pl.DataFrame(sales).write_parquet(tmp_path / "in" / "sales.parquet")
    run(path)
    lookup = Lookup.open(path, "best")
    asked = [lookup.rows({"item": 1}, as_of=as_of)["price"].to_list() for as_of in (0, None, 0, 1)]
    assert asked == [[3], [7], [3], [5]]

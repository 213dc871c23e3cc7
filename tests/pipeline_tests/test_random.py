"""Random pipelines with the tests that their meaning writes: what the reference says of every time is what is expected, and holds."""

from __future__ import annotations

import datetime as dt
import random
import tempfile
from decimal import Decimal
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.cli.test import to_json
from ddcli.pipeline_tests.run import run_tests
from tests.draws import many
from tests.judge.harness import Meaning
from tests.judge.logs import cases
from tests.reference.values import plain

SEARCH = settings(max_examples=many(12))


def written(value):
    """Return a value as a file has it."""
    value = plain(value)
    if isinstance(value, list):
        return [written(each) for each in value]
    if isinstance(value, dict):
        return {name: written(each) for name, each in value.items()}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.date | dt.datetime | dt.time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | dt.timedelta) else value


def rows(records, names, *beside):
    return {"columns": [*names, *beside], "rows": [[written(value) for value in record] for record in records]}


def with_tests(case, draw):
    """Return the text of a case with a test, its updates given in several steps; None where a time has no meaning."""
    meaning = Meaning(case)
    times = meaning.times()
    given = {
        name: [(*record, *time, diff) for record, time, diff in case.updates(name)] for name in case.tree["inputs"]
    }
    found = {time: meaning.at(time) for time in times}
    if not times or any(isinstance(each, Exception) for each in found.values()):
        return None
    last = [max(values) for values in zip(*times, strict=True)]
    cuts = sorted(draw.sample(range(last[0]), min(last[0], 2))) if len(last) == 1 else []
    steps, before = [], -1
    for upto in [*cuts, last[0]]:
        here = {
            name: rows(
                [row for row in each if len(last) > 1 or before < row[-2] <= upto],
                case.schema(name),
                *case.times,
                "diff",
            )
            for name, each in given.items()
        }
        expect = [
            {
                "collection": name,
                "at": list(time) if len(time) > 1 else time[0],
                "contents": rows(
                    [(*record, count) for record, count in collection.items()],
                    meaning.graph.outputs[name].schema,
                    "diff",
                ),
            }
            for time, (outputs, _) in found.items()
            if len(last) > 1 or time[0] <= upto
            for name, collection in outputs.items()
        ]
        steps.append({"time": last if len(last) > 1 else upto, "given": here} | ({"expect": expect} if expect else {}))
        before = upto
    tree = case.tree | {"tests": [{"name": "meaning", "steps": steps}]}
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=10_000)


@SEARCH
@given(
    st.sampled_from([1, 1, 1, 2, 3]).flatmap(
        lambda nt: st.booleans().flatmap(lambda looping: cases(nt=nt, looping=looping))
    ),
    st.randoms(use_true_random=False),
)
def test_what_a_pipeline_means_is_what_its_test_finds(case, draw):
    """And something else is found to be something else."""
    text = with_tests(case, draw if isinstance(draw, random.Random) else random.Random(0))
    if text is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.yaml"
        path.write_text(text, encoding="utf-8")
        report = to_json(run_tests(path))
    assert report["failed"] == 0, report["tests"][0]["failures"][:1]

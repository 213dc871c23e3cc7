"""The plans of many pipelines are those that states were written with: a change of the planner's code leaves their fingerprints alone.

`golden.jsonl.xz` has texts of pipelines that tests wrote, each with the columns of its inputs, and the fingerprints of its logical graph and
of its plan, and a digest of the places by which states know its collections. A state of a pipeline whose fingerprints change is rebuilt, which takes as long as a first run; a change of meaning must
do that (see `expressions/revisions.py`). Then write the file anew, and say in the commit which plans changed, and why:

    python -m tests.plan.test_golden
"""

import json
import lzma
import sys
from pathlib import Path

from ddcli.expressions.types import parse_type
from ddcli.plan.node import digest
from ddcli.plan.pipeline_file import BoundPipeline, parse_spec
from tests.draws import some

FILE = Path(__file__).with_name("golden.jsonl.xz")


def golden():
    """Return the pipelines of the file."""
    with lzma.open(FILE, "rt") as lines:
        return [json.loads(line) for line in lines]


def fingerprints(case):
    """Return the fingerprints of a pipeline's logical graph, and of the plan of its first run, and the digest of the outputs' places."""
    spec = parse_spec(case["text"], "p.yaml")
    schemas = {
        name: {column: parse_type(kind) for column, kind in columns.items()}
        for name, columns in case["schemas"].items()
    }
    bound = BoundPipeline(spec, schemas, {f"t{at}": parse_type(kind) for at, kind in enumerate(case["time"])})
    places = {name: node.place for name, node in bound.graph.outputs.items()}
    return {"logical": bound.graph.fingerprint, "places": digest(places), "plan": bound.plan().fingerprint}


def test_plans_have_the_fingerprints_that_states_were_written_with():
    cases = golden()
    assert len(cases) > 1000
    changed = [case for case in some(cases) if any(case[name] != value for name, value in fingerprints(case).items())]
    texts = "\n\n".join(case["text"] for case in changed[:3])
    assert not changed, f"{len(changed)} plans have other fingerprints, as of\n{texts}"


def rewrite(cases):
    """Write the file anew with these pipelines."""
    found = [{name: case[name] for name in ("text", "schemas", "time")} | fingerprints(case) for case in cases]
    with lzma.open(FILE, "wt", preset=9) as lines:
        lines.writelines(json.dumps(case) + "\n" for case in found)


if __name__ == "__main__":
    before = golden()
    rewrite(before)
    after = golden()
    sys.stdout.write(
        f"{sum(any(old.get(each, new[each]) != new[each] for each in new) for old, new in zip(before, after, strict=True))} of {len(after)} plans changed\n"
    )

"""Random pipelines, run by run, whose collections are asked for after some of the runs."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import yaml
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.errors import EngineError, InputError
from tests.judge.case import arrive
from tests.judge.logs import cases

PIPELINES = (
    st.tuples(st.sampled_from([1, 1, 1, 2]), st.booleans()).flatmap(lambda way: cases(nt=way[0], looping=way[1])),
    st.sampled_from([None, None, 2, "all"]),
    st.integers(0, 2**32),
)
"""A case, what its pipeline keeps of the past, and a seed."""


def ask_after_runs(case, history, seed, ask, ask_latest=None):
    """Run a case, and after most runs ask: `ask(case, path, upper, rng, history)`.

    Before most, `ask_latest(case, path, upper, rng)` what the files say that have arrived, in one coordinate of time.
    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        tree = case.tree | ({"history": history} if history else {})
        path = root / "p.yaml"
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
        for number, (this, upper) in enumerate(zip(case.runs, case.uppers(), strict=True)):
            arrive(case, number, root)
            if this.progress:
                return  # frontiers of several corners have no last time
            if ask_latest and number and len(case.times) == 1 and rng.random() < 0.7:
                arrived = replace(case, runs=case.runs[: number + 1])
                ask_latest(arrived, path, case.uppers()[number - 1], rng)
            try:
                run(path, until=case.until(this))
            except (InputError, EngineError):
                return
            if (root / ".dd" / "judged" / "manifest").is_dir() and rng.random() < 0.7:
                ask(case, path, upper, rng, history)

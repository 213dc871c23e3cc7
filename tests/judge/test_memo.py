"""Functions that remember, in random histories: the function answers differently at each call, and each record keeps the first answer that was committed."""

from __future__ import annotations

import random
import tempfile
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ddcli.store.state.directory
from ddcli.driver.run import run
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.judge.sizes import cut
from tests.store.support import Dead, Faulty

MODULE = """\
from pathlib import Path

HERE = Path(__file__).parent


def each(record):
    calls = HERE / "calls"
    number = calls.read_text().count("\\n") if calls.exists() else 0
    fails = record["k"] % 4 == 3 and not (HERE / "mended").exists()
    with calls.open("a") as file:
        file.write(f"{record['k']} {record['w']} {-1 if fails else number}\\n")
    if fails:
        raise ValueError("busy")
    return [{"k": record["k"], "answer": str(number)} for _ in range(number % 3)]


def together(frame):
    import polars as pl

    found = [{"row": row["row"], **one} for row in frame.iter_rows(named=True) for one in each(row)]
    return pl.DataFrame(found, schema={"row": pl.Int64, "k": pl.Int64, "answer": pl.String})
"""
PIPELINE = """\
dd: 1
name: p
clock: event
errors: ERRORS
inputs:
  rows: {path: rows/, columns: {k: int64, w: 'string?', time: int64, diff: int64}}
collections:
  answers:
    from: rows
    apply:
      - flat_map: {function: {call: 'm:FUNCTION', memo: true}, batch: BATCH, columns: {k: int64, answer: string}}
  counts: {from: answers, apply: [{filter: k > LEAST}, {reduce: {by: [k], n: count(*)}}]}
outputs: {answers: answers/, counts: counts/}
"""
ROWS = st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["x", "y", None]), st.integers(0, 2)), max_size=5)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "run", "run", "dies", "refresh", "edit", "mend"]), ROWS), max_size=9
)


class History:
    """A pipeline whose function remembers, and the answers that were committed."""

    def __init__(self, root, chance, *, batch=False):
        self.root, self.chance, self.time, self.files, self.least = root, chance, 0, 0, 0
        self.batch = batch
        self.updates: list[tuple[tuple[int, str | None], int, int]] = []
        self.answers: dict[tuple[int, str | None], tuple[int, int]] = {}
        """By record, the answer and the first time at which the output has it."""
        self.doubtful: set[tuple[int, str | None]] = set()
        """Records whose answers a run has got that died."""
        self.text = PIPELINE.replace("BATCH", str(batch).lower()).replace("FUNCTION", "together" if batch else "each")
        (root / "m.py").write_text(MODULE)
        (root / "rows").mkdir()
        self.path = root / "p.yaml"

    def write(self, errors="quarantine"):
        self.path.write_text(self.text.replace("LEAST", str(self.least)).replace("ERRORS", errors))

    def add(self, rows):
        """Write a file of insertions, and retractions of records that are there."""
        there = Counter()
        for record, _, diff in self.updates:
            there[record] += diff
        found = []
        for k, w, later in rows:
            diff = -1 if there[k, w] > 0 and self.chance.random() < 0.5 else 1
            there[k, w] += diff
            found.append(((k, w), self.time + later, diff))
        self.updates += found
        frame = pl.DataFrame(
            [(*record, time, diff) for record, time, diff in found],
            schema={"k": pl.Int64, "w": pl.String, "time": pl.Int64, "diff": pl.Int64},
            orient="row",
        )
        frame.write_parquet(self.root / f"rows/{self.files:03}.parquet")
        self.files, self.time = self.files + 1, self.time + 3

    def called(self):
        """Return the records for which the function was called, each with its answer, -1 where it failed."""
        calls = self.root / "calls"
        found = [line.split() for line in calls.read_text().splitlines()] if calls.exists() else []
        return [((int(k), None if w == "None" else w), int(number)) for k, w, number in found]

    def run(self, **options):
        """Run, and take in the answers of the commits that it has made."""
        state, before = self.root / ".dd/p", len(self.called())
        known = read_newest(state)
        lower = known.upper[0][0] if known is not None else -1
        self.write()
        done = False
        try:
            with cut(self.chance.randint(1, 3), self.chance.randint(0, 1000)):
                run(self.path, apply=True, **options)
            done = True
        finally:
            calls = self.called()[before:]
            answered = Counter(record for record, number in calls if number >= 0)
            # A batch that fails is tried in parts, so that some of its records are given to the function again.
            assert self.batch or not done or max(answered.values(), default=0) < 2
            for record, number in dict(calls).items():
                assert record not in self.answers or record in self.doubtful, (
                    "a record with an answer is asked for again"
                )
                self.doubtful.discard(record)
                if number >= 0:
                    self.answers[record] = number, lower
                    # A run that died may have committed nothing; then it asks again.
                    self.doubtful |= set() if done else {record}
        if (now := read_newest(state)) is not None:
            self.judge(now.upper[0][0])

    def judge(self, upper):
        """Compare both outputs at each time with the committed answers."""
        logs = {name: pl.read_parquet(self.root / name / "*.parquet") for name in ("answers", "counts")}
        for time in range(upper):
            wanted: Counter[tuple[int, str]] = Counter()
            for record, at, diff in self.updates:
                if at <= time and record in self.answers and self.answers[record][1] <= time:
                    number = self.answers[record][0]
                    wanted[record[0], str(number)] += diff * (number % 3)
            assert held(logs["answers"], time) == +wanted
            counts: dict[int, int] = defaultdict(int)
            for (k, _), count in wanted.items():
                counts[k] += count
            if time == upper - 1:  # an edit corrects no closed time
                assert held(logs["counts"], time) == {(k, n): 1 for k, n in counts.items() if n and k > self.least}


def held(log, time):
    """Return the records of a log at a time, with their multiplicities."""
    found: Counter[tuple[object, ...]] = Counter()
    for *record, at, diff in log.iter_rows():
        if at <= time:
            found[tuple(record)] += diff
    return {record: count for record, count in found.items() if count}


@given(STEPS, st.booleans(), st.integers(0, 10_000))
@settings(max_examples=many(60), deadline=None, suppress_health_check=[*HealthCheck])
def test_each_record_keeps_its_first_answer(steps, batch, seed):
    """After runs, deaths, refreshes and edits both outputs are at each time what the answers that were committed first make of the rows."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), random.Random(seed), batch=batch)
        for step, rows in [*steps, ("run", [])]:
            if step == "add":
                history.add(rows)
            elif step == "mend":
                (history.root / "mended").touch()
            elif step == "edit":
                history.least = history.chance.randint(0, 5)
            elif step == "dies":
                files = Faulty(history.chance.randint(0, 40), Dead, after=history.chance.random() < 0.5)
                with pytest.MonkeyPatch.context() as patch, suppress(Dead):
                    patch.setattr(ddcli.store.state.directory, "Files", lambda files=files: files)
                    history.run()
            else:
                history.run(**({"refresh": frozenset()} if step == "refresh" else {}))

"""Functions that remember, in random histories: the function answers differently at each call, and each record keeps the first answer that was committed."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ddcli.store.state.directory
from ddcli.driver.forget import forget
from ddcli.driver.run import run
from ddcli.engine import process
from ddcli.engine.operators import memo
from ddcli.job import sizes as job_sizes
from ddcli.store.state.manifest import read_newest
from tests.cases import cases
from tests.draws import many, some
from tests.judge.sizes import cut
from tests.spark.support import Here, started, switching
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
    st.tuples(st.sampled_from(["add", "add", "run", "run", "dies", "refresh", "edit", "mend", "forget"]), ROWS),
    max_size=9,
)


class History:
    """A pipeline whose function remembers, and the answers that were committed."""

    def __init__(self, root, chance, *, batch=False, where=dict):
        self.root, self.chance, self.time, self.files, self.least = root, chance, 0, 0, 0
        self.batch, self.where = batch, where
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
            with cut(self.chance.randint(1, 3), self.chance.randint(0, 1000), streams=self.chance.random() < 0.3):
                run(self.path, apply=True, **options, **self.where())
            done = True
        finally:
            calls = self.called()[before:]
            answered = Counter(record for record, number in calls if number >= 0)
            # A batch that fails is tried in parts, and a task may be done twice: so some records are given to the function again.
            assert self.batch or self.where is not dict or not done or max(answered.values(), default=0) < 2
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

    def forget(self):
        """Have all rows of a key forgotten, in the files and in the state: they have no answers then, and the others are in the outputs from their own times on."""
        self.run()
        keys = sorted({k for (k, _), _, _ in self.updates})
        if not keys:
            return
        forgotten, before = self.chance.choice(keys), len(self.called())
        self.updates = [update for update in self.updates if update[0][0] != forgotten]
        for file in (self.root / "rows").iterdir():
            rows = pl.read_parquet(file)
            left = rows.filter(pl.col("k") != forgotten)
            if left.height < rows.height:
                left.write_parquet(file)
        forget(self.path, f"k = {forgotten}")
        summed: Counter[tuple[tuple[int, str | None], int]] = Counter()
        for record, at, diff in self.updates:
            summed[record, at] += diff
        there = {record for (record, _), diff in summed.items() if diff}
        self.answers = {record: (number, 0) for record, (number, _) in self.answers.items() if record in there}
        for record, number in self.called()[before:]:
            assert record not in self.answers, "a record with an answer is asked for again"
            if number >= 0:
                self.answers[record] = number, 0
        self.judge(read_newest(self.root / ".dd/p").upper[0][0])

    def judge(self, upper):
        """Compare the outputs with the committed answers: at each closed time, and in the end, with what was corrected at the frontier."""
        logs = {name: pl.read_parquet([*(self.root / name).rglob("*.parquet")]) for name in ("answers", "counts")}
        for time in range(upper + 1):
            wanted: Counter[tuple[int, str]] = Counter()
            counts: Counter[int] = Counter()
            for record, at, diff in self.updates:
                number, since = self.answers.get(record, (0, 0))
                if at <= time and at < upper and since <= time and number % 3:
                    wanted[record[0], str(number)] += diff * (number % 3)
                    counts[record[0]] += diff * (number % 3)
            assert held(logs["answers"], time) == {record: count for record, count in wanted.items() if count}
            if time == upper:
                assert held(logs["counts"], time) == {(k, n): 1 for k, n in counts.items() if n and k > self.least}


def held(log, time):
    """Return the records of a log at a time, with their multiplicities."""
    found: Counter[tuple[object, ...]] = Counter()
    for *record, at, diff in log.iter_rows():
        if at <= time:
            found[tuple(record)] += diff
    return {record: count for record, count in found.items() if count}


@given(STEPS, st.booleans(), st.booleans(), st.integers(0, 10_000))
@settings(max_examples=many(16), deadline=None, suppress_health_check=[*HealthCheck])
def test_each_record_keeps_its_first_answer(steps, batch, tasks, seed):
    """After runs, deaths, refreshes, edits and forgotten keys, by tasks too, some of which are done twice, both outputs are at each time what the answers that were committed first make of the rows."""
    with tempfile.TemporaryDirectory() as folder, started(Here(seed)) if tasks else nullcontext():
        where = switching(seed, 0.7) if tasks else dict
        history = History(Path(folder), random.Random(seed), batch=batch, where=where)
        for step, rows in [*steps, ("run", [])]:
            if step == "add":
                history.add(rows)
            elif step == "mend":
                (history.root / "mended").touch()
            elif step == "edit":
                history.least = history.chance.randint(0, 5)
            elif step == "forget":
                history.forget()
            elif step == "dies":
                files = Faulty(history.chance.randint(0, 40), Dead, after=history.chance.random() < 0.5)
                with pytest.MonkeyPatch.context() as patch, suppress(Dead):
                    patch.setattr(ddcli.store.state.directory, "Files", lambda files=files: files)
                    history.run()
            else:
                history.run(**({"refresh": frozenset()} if step == "refresh" else {}))


@pytest.fixture
def remembering(shop):
    """Return a folder whose pipeline has been run over three records, and the function that lists the calls so far."""
    (shop.folder / "m.py").write_text(MODULE)
    text = PIPELINE.replace("FUNCTION", "each").replace("BATCH", "false").replace("LEAST", "-1")
    shop.write("p.yaml", text.replace("ERRORS", "quarantine"))
    add(shop, [(0, "x"), (1, "y"), (2, "z")])
    assert shop("run", "p.yaml").code == 0
    return shop, lambda: (shop.folder / "calls").read_text().split("\n")[:-1]


def add(shop, records):
    """Write a file of insertions at a time of its own."""
    at = len([*(shop.folder / "rows").glob("*")]) if (shop.folder / "rows").exists() else 0
    schema = {"k": pl.Int64, "w": pl.String, "time": pl.Int64, "diff": pl.Int64}
    shop.log(f"rows/{at}.parquet", [(*record, at, 1) for record in records], **schema)


def edit(shop, old, new):
    """Change the pipeline."""
    text = (shop.folder / "p.yaml").read_text()
    assert old in text
    shop.write("p.yaml", text.replace(old, new))


def test_readers_of_a_state_call_nothing(remembering):
    """`dd why`, `verify`, `sql`, `diff --against` and a dry run read the answers of the state."""
    shop, calls = remembering
    before = calls()
    why = shop("why", "p.yaml", "answers", "k=1")
    assert "checked: this 1 update alone produces it" in why.err
    assert "{k: 1, w: y}" in why.out
    assert "answers: 2 updates: right" in shop("verify", "p.yaml", "--all").out
    results = "the remembered results of m:each"
    uncompared = json.loads(shop("verify", "p.yaml", "-o", "json").out)["uncompared"]
    assert uncompared == {results: "the functions' results are what they returned"}
    assert (
        shop("sql", "select k, answer from answers order by k", "--from", "p.yaml", "-o", "csv").out
        == "k,answer\n1,1\n2,2\n2,2\n"
    )
    assert shop("diff", "p.yaml", "--against", ".dd/p").out == "same: answers, counts\n"
    assert shop("run", "p.yaml", "--dry-run", "--full-refresh", "all").code == 0
    assert calls() == before


def test_slices_follow_the_answers(remembering):
    """`dd verify` divides what is above a function by its results, calls nothing, and finds a changed answer and a lost record."""
    shop, calls = remembering
    for number in range(1, 4):
        result = shop("verify", "p.yaml", "--slice", f"{number}/3", "-o", "json")
        found = json.loads(result.out)
        assert (result.code, found["unproven"], [*found["outputs"]]) == (0, {}, ["answers", "counts"])
        assert found["arrangements"]
    assert calls() == ["0 x 0", "1 y 1", "2 z 2"]
    (log,) = (shop.folder / "answers").rglob("*.parquet")
    kept = pl.read_parquet(log)
    for other in (kept.with_columns(answer=pl.lit("9")), kept.filter(pl.col("k") != 2)):
        other.write_parquet(log)
        found = [shop("verify", "p.yaml", "--slice", f"{number}/3", "-o", "json") for number in range(1, 4)]
        assert any(not each["same"] for each in (json.loads(one.out) for one in found))
        differing = [one for each in found for one in json.loads(each.out)["outputs"]["answers"]["first"]]
        assert {("k", 2)} <= {("k", one["record"]["k"]) for one in differing if one["diff"] > 0}
    assert len(calls()) == 3


def test_forgotten_rows_take_their_answers_along(remembering):
    """After `dd forget` no answer of the rows is left, so one that comes again is asked for again; the others stay."""
    shop, calls = remembering
    assert shop("forget", "p.yaml", "--where", "k = 1").code == 0
    (shop.folder / "rows/0.parquet").unlink()
    add(shop, [(0, "x"), (2, "z")])
    assert shop("forget", "p.yaml", "--where", "k = 1").code == 0
    assert calls() == ["0 x 0", "1 y 1", "2 z 2"]
    add(shop, [(1, "y"), (2, "z")])
    assert shop("run", "p.yaml").code == 0
    assert calls()[3:] == ["1 y 3"]


def test_records_beyond_the_budget_wait_for_the_next_run(remembering):
    """A run calls for as many records as `calls` allows; others are put aside with the reason, and the next run calls for them."""
    shop, calls = remembering
    edit(shop, "memo: true", "memo: true, calls: 2")
    add(shop, [(4, "a"), (5, "b"), (6, "c")])
    assert "failed 1 record" in shop("run", "p.yaml").err
    assert len(calls()) == 5
    add(shop, [(8, "d")])
    assert "failed" not in shop("run", "p.yaml").err
    assert len(calls()) == 7
    failed = pl.read_parquet(shop.folder / ".dd/p/errors/*.parquet")
    assert failed["diff"].sum() == 0
    assert "m:each was not called, as the run had used up its `calls: 2`, for the row {'k': " in failed["error"][0]


def test_records_whose_calls_fail_hold_up_no_others(remembering):
    """New records come first, and of those that wait others at each time, so that each has its turn."""
    shop, calls = remembering
    edit(shop, "memo: true", "memo: true, calls: 2")
    for records in ([3, 7, 11], [4, 5], [8, 9, 10]):
        before = len(calls())
        add(shop, [(k, "a") for k in records])
        assert shop("run", "p.yaml").code == 0
        assert {int(line.split()[0]) for line in calls()[before:]} <= {*records}
    for k in (12, 13, 16, 17):
        add(shop, [(k, "a")])
        assert shop("run", "p.yaml").code == 0
    assert {int(line.split()[0]) for line in calls()} >= {4, 5, 8, 9, 10, 12, 13, 16, 17}


def test_a_call_that_fails_ends_a_run_without_a_quarantine(remembering):
    """Without `errors: quarantine` the run commits nothing, and names the record."""
    shop, _ = remembering
    edit(shop, "errors: quarantine", "errors: fail")
    add(shop, [(3, "a")])
    result = shop("run", "p.yaml")
    assert result.code == 3
    assert "raised ValueError: busy for the row {'k': 3, 'w': 'a'}" in result.err


@pytest.mark.parametrize("memo", ["true", "false"])
@pytest.mark.parametrize("batch", [False, True])
def test_a_null_inside_a_list_is_an_error_of_its_record(shop, memo, batch):
    """A null at a depth where its type refuses it puts the record aside, as one in place of a value does; without a quarantine the run names the record."""
    shop.write(
        "m.py",
        "import polars as pl\n"
        "def each(record):\n"
        "    return {'k': record['k'], 'tags': [[{'t': 'a'}], [{'t': None if record['k'] == 1 else 'b'}]]}\n"
        "def together(frame):\n"
        "    found = pl.DataFrame([each(record) for record in frame.to_dicts()], schema_overrides={'k': pl.Int64})\n"
        "    return found.with_columns(frame['row'])\n",
    )
    function = f"{{call: 'm:{'together' if batch else 'each'}', memo: {memo}}}, batch: {str(batch).lower()}"
    shop.write(
        "p.yaml",
        "errors: quarantine\ninputs: {rows: {path: rows/}}\noutputs: {made: out/}\ncollections:\n  made:\n    from: rows\n    apply:\n"
        f"      - project: [k]\n      - map: {{function: {function}, columns: {{k: int64, tags: 'list[list[struct[t: string]]]'}}}}\n",
    )
    add(shop, [(0, "x"), (1, "y"), (2, "z")])
    assert shop("run", "p.yaml").code == 0
    found = pl.read_parquet(shop.folder / "out" / "updates-*.parquet").sort("k")
    assert found["k"].to_list() == [0, 2]
    assert found["tags"].to_list() == [[[{"t": "a"}], [{"t": "b"}]]] * 2
    (problem,) = pl.read_parquet(shop.folder / ".dd" / "p" / "errors" / "updates-*.parquet")["error"]
    assert problem == f"m:{'together' if batch else 'each'} returned null inside `tags` for the row {{'k': 1}}"
    edit(shop, "errors: quarantine", "errors: fail")
    shop.write("p.yaml", (shop.folder / "p.yaml").read_text().replace("out/", "other/"))
    assert problem in shop("run", "p.yaml", "--state", ".dd/other").err


def test_one_thread_calls_at_a_time(shop, monkeypatch):
    """Threads share a large run, so that one calls while another encodes and writes results; none calls while another does, and each record has one result."""
    (shop.folder / "m.py").write_text(
        "import threading, time\nwithin, threads = [], set()\n"
        "def each(record):\n"
        "    within.append(record)\n    threads.add(threading.get_ident())\n    time.sleep(0.002)\n"
        "    alone = len(within) == 1\n    within.clear()\n"
        "    return {'k': record['k'], 'answer': f'{alone} {len(threads)}'}\n"
    )
    text = PIPELINE.replace("FUNCTION", "each").replace("BATCH", "false").replace("LEAST", "-1")
    shop.write("p.yaml", text.replace("ERRORS", "fail"))
    add(shop, [(k, "x") for k in range(40)])
    for name in ("STREAMED", "MUCH"):
        monkeypatch.setattr(job_sizes, name, 10)
    monkeypatch.setattr(process, "FEW", 0)
    monkeypatch.setattr(memo, "TOGETHER", 4)
    assert shop("run", "p.yaml", "--workers", "2").code == 0
    found = pl.read_parquet(shop.folder / "answers/*.parquet")
    assert sorted(found["k"]) == [*range(40)]
    assert {*found["answer"].str.split(" ").list.first()} == {"True"}
    assert found["answer"].str.ends_with(" 2").any()


def test_another_memory_is_empty(remembering):
    """Another name of the memory has all records called for again; so has another function, and both correct the output."""
    shop, calls = remembering
    edit(shop, "memo: true", "memo: second")
    assert shop("run", "p.yaml", "--apply").code == 0
    assert calls()[3:] == ["0 x 3", "1 y 4", "2 z 5"]
    assert "the remembered results of m:each" in shop("state", "ls", "p.yaml").out


@cases("""
    old → new → problem
    memo: true → calls: 2 → `calls` is the budget of a function that remembers
    memo: true → memo: true, calls: 0 → must be a whole number from 1
    memo: true → memo: [] → must be true, false or the name of a memory
    m:each → m:none → module `m` has no function `none`
    outputs: → AGAIN⏎outputs: → `m:each` remembers its results for another collection already
""")
def test_refused(shop, old, new, problem):
    """A budget without a memory, and a memory that two collections would share are refused at their place."""
    (shop.folder / "m.py").write_text(MODULE)
    text = (
        PIPELINE.replace("FUNCTION", "each").replace("BATCH", "false").replace("LEAST", "-1").replace("ERRORS", "fail")
    )
    mapped = "{map: {function: {call: 'm:each', memo: true}, columns: {k: int64, answer: string}}}"
    text = text.replace(old, new).replace("AGAIN", f"  again: {{from: rows, apply: [{{filter: k > 1}}, {mapped}]}}")
    shop.write("p.yaml", text)
    add(shop, [(0, "x")])
    result = shop("check", "p.yaml")
    assert result.code == 2
    assert problem in result.err
    assert "p.yaml:" in result.err


@pytest.mark.parametrize("seed", [*some(range(4))])
def test_what_is_read_and_what_is_remembered_are_of_one_attempt(tmp_path, seed):
    """Where each stage runs as tasks, some of them twice, the output has the answers that the state keeps."""
    with started(Here(seed)):
        history = History(tmp_path, random.Random(seed), where=switching(seed, 1))
        for w in "xy":
            history.add([(k, w, 0) for k in (0, 1, 2, 4, 5, 6)])
            history.run()


def test_tasks_refuse_a_budget(remembering):
    """Tasks in several processes can't count their calls together, so a run that would have some commits nothing."""
    shop, calls = remembering
    edit(shop, "memo: true", "memo: true, calls: 2")
    add(shop, [(4, "a")])
    with started(Here(0)):
        result = shop("run", "p.yaml", "--engine", "spark")
    assert result.code == 2
    assert "`m:each` has a budget of calls, which tasks can't keep together" in result.err
    assert len(calls()) == 3

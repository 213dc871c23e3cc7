"""Memory: a run keeps to what it was given, whatever the sizes of inputs, state and change; and leaves no scratch files.

What a command does with the memory that is freed, whoever started it.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine.process import LEFT, SETTING, SHARED, processors
from ddcli.job.sizes import BASE, LEAST_ROWS, MUCH, WORKING, parse_size, sizes
from tests.bench.processes import dd, measure
from tests.bench.workspace import BOTH_WAYS, LABELS, Workspace

if TYPE_CHECKING:
    from pathlib import Path


# How a run is cut.

KEPT = st.frozensets(st.sampled_from([1, 2, 3, 4, 6, 8, 32, 100]), max_size=3)
ROWS = st.integers(0, 10**10)
WIDTH = st.integers(2, 40)
THREADS = st.integers(1, 64)
MEMORY = st.integers(1 << 20, 1 << 40)
WANTED = st.none() | st.integers(1, 4096)


@given(rows=ROWS, width=WIDTH, kept=KEPT, threads=THREADS, memory=MEMORY, wanted=WANTED)
def test_a_cut_suits_the_state_and_the_memory(rows, width, kept, threads, memory, wanted):
    cut = sizes(rows, width, kept, threads, memory, wanted)
    for count in (*kept, cut.shards):
        assert cut.passes % count == 0 or (rows < MUCH and cut.passes == 1), "a pass reads of one shard, or of all"
    if kept:
        assert cut.shards == max(kept), "what is made now is as what is there"
    else:
        assert wanted is None or cut.shards == wanted
    assert 1 <= cut.threads <= min(threads, cut.passes)
    fits = rows * width * 8 * WORKING + BASE <= memory
    assert (cut.most is None) == (cut.room is None) == fits, "in memory just where it fits"
    if not fits:
        assert cut.passes > 1
        assert cut.most >= LEAST_ROWS
        assert cut.room <= memory / 5
        assert cut.most == LEAST_ROWS or cut.most * width * 8 * cut.threads <= memory
        common = math.lcm(*kept, cut.shards)
        a_pass = rows * width * 8 / cut.passes
        free = max(memory - BASE, memory // 4)
        assert a_pass * WORKING * threads <= 0.6 * free * 1.001 or cut.passes >= 4096 * common, "a pass a thread fits"


@given(
    rows=st.tuples(ROWS, ROWS), width=WIDTH, kept=KEPT, threads=THREADS, memory=st.tuples(MEMORY, MEMORY), wanted=WANTED
)
def test_more_rows_or_less_memory_are_cut_no_coarser(rows, width, kept, threads, memory, wanted):
    (few, many), (little, much) = sorted(rows), sorted(memory)
    one = sizes(few, width, kept, threads, much, wanted)
    two = sizes(many, width, kept, threads, little, wanted)
    assert one.shards <= two.shards
    if wanted or kept:  # else passes are a multiple of the shards that are made
        assert one.passes <= two.passes
    if one.room is not None:
        assert two.room is not None
        assert two.room <= one.room
        assert two.most <= one.most


@given(
    st.integers(0, 10**6), st.sampled_from(["", "k", "m", "g", "t", "K", "G"]), st.sampled_from(["", "b", "ib", "iB"])
)
def test_sizes_are_read_as_people_write_them(count, unit, end):
    text = f"{count}{unit}{end}"
    if not unit and end.lower() == "ib":
        with pytest.raises(ValueError, match=text):
            parse_size(text)
        return
    base = 1000 if end == "b" else 1024
    assert parse_size(text) == parse_size(f" {text.upper()} ") == count * base ** " kmgt".index(unit.lower() or " ")


# What a process has resident.

MEMORY_GIVEN = 300 << 20
MORE = 1.3
SALES = """\
dd: 1
name: sales
shards: 2
inputs:
  orders: {folder}/orders/
  people: {folder}/people/
collections:
  placed:
    from: orders
    apply: [{{join: {{with: people, on: [customer]}}}}]
  totals:
    from: placed
    apply: [{{reduce: {{by: [town], orders: count(*), amount: sum(amount)}}}}]
  best:
    from: orders
    apply: [{{reduce: {{by: [customer], best: max(amount)}}}}]
outputs:
  totals: out/totals/
  best: out/best/
"""


@dataclass(frozen=True)
class Sales:
    """Orders of customers, who live in towns: in a folder with two pipelines over the same logs."""

    folder: Path
    customers: int

    def orders(self, first, count, time):
        ids = np.arange(first, first + count)
        columns = {"id": ids, "customer": self.called("customer number {}", ids * 7919 % self.customers)}
        columns |= {"amount": ids * 31 % 1000, "time": np.full(count, time), "diff": np.ones(count, np.int64)}
        self.write(f"orders/{time}", columns)

    def people(self):
        ids = np.arange(self.customers)
        columns = {"customer": self.called("customer number {}", ids), "town": self.called("town {}", ids % 5000)}
        columns |= {"time": np.zeros_like(ids), "diff": np.ones_like(ids)}
        self.write("people/0", columns)

    @staticmethod
    def called(text, ids):
        return pl.select(pl.format(text, pl.lit(pl.Series(ids)))).to_series()

    def write(self, name, columns):
        path = self.folder / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pl.DataFrame(columns).write_parquet(path)

    def pipeline(self, name):
        path = self.folder / name / "sales.yaml"
        path.parent.mkdir()
        path.write_text(SALES.format(folder=self.folder))
        return path


def log(folder):
    """Return the rows of an output log in order."""
    frame = pl.read_parquet(folder / "*.parquet")
    return frame.sort(frame.columns)


@pytest.mark.in_turn(9)
@pytest.mark.slow
def test_a_run_keeps_to_its_memory(tmp_path):
    """A load, a change as large as half of it over a state of few shards, and compaction; all in one run in memory needs more."""
    rows = 1_500_000
    sales = Sales(tmp_path, rows // 5)
    sales.people()
    sales.orders(0, rows, 0)
    sales.orders(rows, rows // 2, 1)
    little = sales.pipeline("little")
    for what in (
        ["run", little, "--memory", str(MEMORY_GIVEN), "--until", "1"],
        ["run", little, "--memory", str(MEMORY_GIVEN)],
        ["state", "compact", little],
    ):
        took = measure(dd(*what))
        assert took.peak <= MORE * MEMORY_GIVEN, f"{what}: {took.peak >> 20} MiB were resident"
    large = sales.pipeline("large")
    assert measure(dd("run", large, "--memory", "100GiB")).peak > 1.2 * MEMORY_GIVEN, "else this says nothing"
    for name in ("totals", "best"):
        one, other = (log(path.parent / "out" / name) for path in (little, large))
        assert one.height >= sales.customers or name == "totals"
        assert one.equals(other)
    assert not (little.parent / ".dd/sales/spill").exists()


@pytest.mark.in_turn(9)
@pytest.mark.slow
def test_a_loop_keeps_to_its_memory(tmp_path):
    """Round by round, a shard at a time; what the rounds add is many times what it is fed."""
    edges = np.random.default_rng(1).integers(0, 100_000, (200_000, 2))
    links = pl.DataFrame({"src": edges[:, 0], "dst": edges[:, 1], "time": 0, "diff": 1})
    given, peaks = 512 << 20, {}
    for name, memory in (("little", str(given)), ("large", "100GiB")):
        place = Workspace(tmp_path / name, LABELS.replace("%s", BOTH_WAYS))
        links.write_parquet(place.input / "0.parquet")
        peaks[name] = measure(dd("run", place.folder / "pipeline.yaml", "--memory", memory)).peak
    assert peaks["little"] <= MORE * given, f"{peaks['little'] >> 20} MiB were resident"
    assert peaks["large"] > MORE * given, "else this says nothing"
    one, other = (log(tmp_path / name / "out") for name in peaks)
    assert one.equals(other)
    assert not (tmp_path / "little/.dd/labels/spill").exists()


ONE_KEY = """\
dd: 1
name: one_key
inputs: {a: {folder}/a/, b: {folder}/b/}
collections:
  pairs: {from: a, apply: [{join: {with: b, on: [k]}}]}
  sums: {from: pairs, apply: [{reduce: {by: [b], n: count(*), t: sum(a)}}]}
  middle: {from: pairs, apply: [{filter: a % 3 = 0}, {reduce: {by: [b], m: median(a)}}]}
  all: {from: pairs, apply: [{reduce: {by: [k], n: count(*)}}]}
outputs: {pairs: out/pairs/, sums: out/sums/, middle: out/middle/, all: out/all/}
"""


@pytest.mark.in_turn(9)
@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), [(280_000, 25), (2650, 2650)])
def test_a_join_of_one_key_keeps_to_its_memory(tmp_path, left, right):
    """Seven million pairs, which would take 700 MB at once, of inputs that fit in memory; then a few rows more, each with many matches."""
    given = 400 << 20
    for name, rows in (("a", left), ("b", right)):
        (tmp_path / name).mkdir()
        frame = pl.DataFrame({"k": np.zeros(rows, np.int64), name: np.arange(rows), "time": 0, "diff": 1})
        frame.write_parquet(tmp_path / name / "0.parquet")
    (tmp_path / "p.yaml").write_text(ONE_KEY.replace("{folder}", str(tmp_path)))
    for time, more in enumerate([0, 8], 1):
        if more:
            pl.DataFrame({"k": [0] * more, "b": range(right, right + more), "time": 1, "diff": 1}).write_parquet(
                tmp_path / "b" / "1.parquet"
            )
        peak = measure(dd("run", tmp_path / "p.yaml", "--memory", str(given), "--until", str(time))).peak
        assert peak <= MORE * given, f"{peak >> 20} MiB were resident"
        count, total = right + more, left * (left - 1) // 2
        held = log(tmp_path / "out/sums").filter(pl.col("diff") > 0)
        assert held.select("b", "n", "t").rows() == [(b, left, total) for b in range(count)]
        pairs = pl.scan_parquet(tmp_path / "out/pairs/*.parquet")
        assert pairs.select(pl.len(), pl.col("diff").sum(), pl.struct("k", "a", "b").n_unique()).collect().row(0) == (
            (left * count,) * 3
        )
        now = log(tmp_path / "out/all").group_by("n").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
        assert now.rows() == [(left * count, 1)]


LARGE_GROUPS = """\
dd: 1
name: p
inputs: {a: a.parquet}
collections:
  c: {from: a, apply: [{filter: k < 1000000}, {reduce: {by: [v], n: count(*), w: sum(w)}}]}
outputs: {c: out/}
"""


@pytest.mark.in_turn(9)
@pytest.mark.slow
@pytest.mark.parametrize("equal", [False, True], ids=["different rows", "equal rows"])
def test_a_row_group_larger_than_memory_is_read_in_parts(tmp_path, equal):
    """Of different rows its columns don't fit, as they are on disk; equal ones are a few pages, and all of one key."""
    rows, given = 12_000_000, 300 << 20
    k, v, w = (np.zeros(rows, np.int64),) * 3
    if not equal:
        k, v, w = np.random.default_rng(1).integers(0, 1 << 62, (3, rows))
        k[::1000] = 5
    frame = pl.DataFrame({"k": k, "v": v, "w": w, "time": 0, "diff": 1})
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=rows)
    (tmp_path / "p.yaml").write_text(LARGE_GROUPS)
    peak = measure(dd("run", tmp_path / "p.yaml", "--memory", str(given))).peak
    assert peak <= MORE * given, f"{peak >> 20} MiB were resident"
    kept = frame.filter(pl.col("k") < 1_000_000).group_by("v").agg(n=pl.len().cast(pl.Int64), w=pl.col("w").sum())
    assert log(tmp_path / "out").select("v", "n", "w").sort("v").equals(kept.sort("v"))


# What is put away.

DEADLY = """\
import os, signal
from pathlib import Path

def total(key, rows):
    if Path("kill").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if Path("fail").exists():
        raise ValueError("no more")
    return [((sum(value * count for (value,), count in rows),), 1)]
"""
PIPELINE = """\
dd: 1
name: deadly
inputs:
  p: in/
collections:
  c:
    from: p
    apply: [{reduce: {by: [word], function: 'deadly:total', columns: {total: int64}}}]
outputs:
  c: out/
"""
OUT_OF_CORE = """\
from pathlib import Path
from ddcli.driver.run import run
run(Path("deadly.yaml"), memory=1 << 20)
"""
# The command asks for more, with which 20 000 rows would not be put away.


@pytest.fixture
def deadly(shop):
    """Return a shop with a pipeline whose reducer fails, or ends its process, where there is a file that tells it to."""
    shop.write("deadly.py", DEADLY)
    shop.write("deadly.yaml", PIPELINE)
    rows = [(f"word {n % 50}", n, 0, 1) for n in range(20_000)]
    shop.log("in/0.parquet", rows, word=pl.String, n=pl.Int64, time=pl.Int64, diff=pl.Int64)
    return shop


def scratch(shop):
    return shop.folder / ".dd/deadly/spill"


def answer(shop):
    frame = pl.read_parquet(shop.folder / "out/*.parquet")
    return dict(frame.select("word", "total").rows())


TOTALS = {f"word {n}": sum(range(n, 20_000, 50)) for n in range(50)}


def test_scratch_files_are_gone_after_a_run_that_failed(deadly):
    deadly.write("fail", "")
    done = deadly.process(script=OUT_OF_CORE)
    assert done.code
    assert "no more" in done.err
    assert not scratch(deadly).exists()
    assert not (deadly.folder / "out").exists()


def test_scratch_files_of_a_run_that_was_killed_are_gone_after_the_next(deadly):
    kill = deadly.write("kill", "")
    assert deadly.process(script=OUT_OF_CORE).code == -signal.SIGKILL
    assert [*scratch(deadly).iterdir()]
    kill.unlink()
    done = deadly.process(script=OUT_OF_CORE)
    assert done.code == 0, done.err
    assert not scratch(deadly).exists()
    assert answer(deadly) == TOTALS


def test_scratch_files_of_a_run_that_was_killed_are_gone_after_one_in_memory(deadly):
    kill = deadly.write("kill", "")
    assert deadly.process(script=OUT_OF_CORE).code == -signal.SIGKILL
    assert [*scratch(deadly).iterdir()]
    kill.unlink()
    done = deadly.process("run", "deadly.yaml")
    assert done.code == 0, done.err
    assert not scratch(deadly).exists()


CALL = "import os; from ddcli.engine import process; process.{}(); print(os.environ[process.SETTING])"


def setting(function, inherited=None):
    """Return the setting of polars' allocator after a call in a process that has inherited one."""
    environment = {name: value for name, value in os.environ.items() if name != SETTING}
    given = environment if inherited is None else environment | {SETTING: inherited}
    command = [sys.executable, "-c", CALL.format(function)]
    return subprocess.run(command, env=given, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("inherited", [None, LEFT, f"{SHARED}64"])
def test_what_polars_or_a_command_leaves_to_the_processes_that_it_starts_is_not_asked_for(inherited):
    assert setting("keep_freed_memory", inherited) == f"{SHARED}{max(1, processors() // 2)}"
    assert setting("give_freed_memory_back", inherited) == "dirty_decay_ms:0,muzzy_decay_ms:0"


def test_a_setting_that_somebody_made_stays():
    for function in ("keep_freed_memory", "give_freed_memory_back"):
        assert setting(function, "dirty_decay_ms:7") == "dirty_decay_ms:7"


KEEP = """
from ddcli.engine.heap import heap_of_tasks
heap = heap_of_tasks()
import numpy as np
before = heap._resident()
for most in (1 << 30, 0):
    np.ones(50_000_000)
    heap.give_back(most)
    print((heap._resident() - before) >> 20)
"""


def test_a_process_keeps_the_memory_of_a_task_up_to_its_part():
    done = subprocess.run([sys.executable, "-c", KEEP], check=True, capture_output=True, text=True)
    kept, left = map(int, done.stdout.split())
    assert kept >= 380
    assert left < 50


def test_polars_leaves_what_is_known_of_it():
    code = "import os, polars; print(os.environ['_RJEM_MALLOC_CONF'])"
    environment = {name: value for name, value in os.environ.items() if name not in {SETTING, "POLARS_THP"}}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == LEFT

"""Pipelines on Spark: what they give, what is left when a task fails, and what other users of Spark read of it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.errors import CheckError, EngineError, InputError
from ddcli.provenance.verification import verify
from ddcli.runtime import scheduler
from ddcli.runtime.spark.session import explained, shortened
from ddcli.store.state.branches import export_state
from ddcli.store.state.contents import batch_files
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.judge.harness import judge
from tests.judge.logs import cases
from tests.judge.sizes import cut
from tests.judge.test_arrival import FORMATS, histories, judge_arrivals
from tests.judge.test_random import SEARCH
from tests.spark.support import AtTheSecondTry, Bug, assert_all_named, switching
from tests.store.support import LOCKS

pytestmark = pytest.mark.spark

SPARK = {"engine": "spark"}
PIPELINE = """
dd: 1
name: sums
inputs:
  sales: {path: in/sales/, columns: {shop: string, amount: int64}}
  shops: {path: in/shops/, columns: {shop: string, city: string}}
collections:
  sums:
    from: sales
    apply:
      - reduce: {by: [shop], amount: sum(amount), sales: count(*)}
      - join: {with: shops, on: [shop]}
outputs:
  sums: out/sums/
"""


@pytest.fixture
def shop(tmp_path):
    """Return a pipeline file with inputs, and what gives it more."""
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE)
    names = [f"s{at}" for at in range(50)]
    shops = pl.DataFrame({"shop": names, "city": [f"c{at % 7}" for at in range(50)], "time": 0, "diff": 1})
    for folder in ("sales", "shops"):
        (tmp_path / "in" / folder).mkdir(parents=True)
    shops.write_parquet(tmp_path / "in/shops/0.parquet")
    more(path, 0, 1_000)
    return path


def more(path, time, count):
    """Add sales at a time."""
    chance = random.Random(time)
    rows = [(f"s{chance.randrange(50)}", chance.randrange(100), time, 1) for _ in range(count)]
    frame = pl.DataFrame(
        rows, {"shop": pl.String, "amount": pl.Int64, "time": pl.Int64, "diff": pl.Int64}, orient="row"
    )
    frame.write_parquet(path.parent / f"in/sales/{time}.parquet")


def log(path, name="sums"):
    """Return what an output says at the end."""
    frame = pl.read_parquet(path.parent / "out" / name / "*.parquet")
    others = [column for column in frame.columns if column not in ("time", "diff")]
    return frame.group_by(others).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0).sort(others)


def wanted(path):
    """Return what polars says that it must say."""
    sales, shops = (pl.read_parquet(path.parent / "in" / name / "*.parquet") for name in ("sales", "shops"))
    sums = sales.group_by("shop").agg(pl.col("amount").sum(), pl.len().cast(pl.Int64).alias("sales"))
    return sums.join(shops.drop("time", "diff"), on="shop").with_columns(diff=pl.lit(1, pl.Int64)).sort("shop")


def files(path):
    """Return what is beside a pipeline, but for what Python keeps of the modules that it imports."""
    return {
        found: found.read_bytes()
        for found in path.parent.rglob("*")
        if found.is_file() and found.name not in LOCKS and found.suffix != ".pyc"
    }


@pytest.mark.in_turn
def test_a_run_that_a_check_stops_leaves_every_byte(spark, shop):
    """So does an edit, or a refresh, whose new files violate the check."""
    shop.write_text(PIPELINE + "checks: [{row: amount < 1000000, of: sums}]\n")
    run(shop, **SPARK)
    first = wanted(shop)
    assert log(shop).equals(first)
    wrong = [("s1", 2_000_000, 1, 1), *[(f"s{at}", 1, 1, 1) for at in range(50)]]
    place = shop.parent / "in/sales/1.parquet"
    pl.DataFrame(
        wrong, {"shop": pl.String, "amount": pl.Int64, "time": pl.Int64, "diff": pl.Int64}, orient="row"
    ).write_parquet(place)
    for text, decided in ((None, {}), (None, {"refresh": frozenset()}), ("sum(amount + 1)", {"apply": True})):
        if text is not None:
            shop.write_text(shop.read_text().replace("sum(amount)", text))
        before = files(shop)
        with pytest.raises(CheckError, match="nothing is committed"):
            run(shop, **decided, **SPARK)
        assert files(shop) == before
    shop.write_text(shop.read_text().replace("sum(amount + 1)", "sum(amount)"))
    pl.read_parquet(place).filter(pl.col("amount") == 1).write_parquet(place)
    run(shop, **SPARK)
    assert log(shop).equals(wanted(shop))


@pytest.mark.in_turn
@settings(SEARCH, max_examples=many(3))
@given(
    st.tuples(st.sampled_from([1, 1, 2]), st.booleans()).flatmap(lambda way: cases(nt=way[0], looping=way[1])),
    st.sampled_from([1, 3]),
    st.integers(0, 2**32),
)
def test_outputs_are_right_whichever_engine_did_the_run_before(spark, case, shards, seed):
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed):
        judge(case, Path(folder), switching(seed, 0.7))


@settings(SEARCH, max_examples=many(3))
@given(st.sampled_from(list(FORMATS)), histories(), st.none() | st.integers(0, 4), st.integers(0, 2**32))
def test_rows_that_arrive_are_right_whichever_engine_did_the_run_before(spark, format_, history, change, seed):
    living = [(files, None) for files, _ in history][:3]
    with tempfile.TemporaryDirectory() as folder, cut(1, seed):
        judge_arrivals(Path(folder), format_, living, "parquet", change, switching(seed, 0.7))


def rows_counted(summary):
    return {
        name: (count.rows_in, count.rows_out, count.inserted, count.rows_read)
        for name, count in summary.counts.items()
        if count.rows and not name.startswith("output:")
    }


def test_engines_continue_each_others_states(spark, shop):
    """And count the same rows as one that does all runs."""
    alone = Path(shutil.copytree(shop.parent, shop.parent / "alone"), shop.name)
    for time, engine in enumerate(["spark", "local", "spark", "spark", "local"]):
        if time:
            more(shop, time, 100)
            more(alone, time, 100)
        summary = run(shop, engine=engine)
        assert summary.inputs["sales"].rows == (100 if time else 1_000)
        assert log(shop).equals(wanted(shop).select(log(shop).columns)), f"wrong after {engine}"
        assert rows_counted(summary) == rows_counted(run(alone, engine="local")), f"counted by {engine}"
    assert not (shop.parent / ".dd/sums/spill").exists()


@pytest.mark.in_turn
def test_a_changed_pipeline_is_brought_up(spark, shop):
    """And the summary says what of both, what changed and what is new, was done there."""
    run(shop, engine="local")
    alone = run(shop, engine="spark", refresh=frozenset({"sums"})).spark
    shop.write_text(PIPELINE.replace("sum(amount)", "sum(amount * 2)"))
    more(shop, 1, 100)
    both = run(shop, engine="spark", apply=True)
    meant = wanted(shop).with_columns(pl.col("amount") * 2)
    assert log(shop).equals(meant.select(log(shop).columns))
    assert both.rebuilt["sums"].rows == 100, "the sums of 50 shops, before and now"
    assert alone.tasks > 0
    assert both.spark.tasks > alone.tasks


def test_a_large_output_is_written_by_the_tasks(spark, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        "dd: 1\nname: big\ninputs: {a: {path: in/, columns: {k: int64, word: string}}}\n"
        "collections: {b: {from: a, apply: [distinct]}}\noutputs: {b: out/b/}\n"
    )
    (tmp_path / "in").mkdir()
    count = 60_000
    frame = pl.DataFrame({"k": range(count), "word": [f"w{at % 1000}" for at in range(count)]})
    frame.with_columns(time=0, diff=1).write_parquet(tmp_path / "in/0.parquet")
    run(path, **SPARK)
    assert [path.name for path in (tmp_path / "out/b").glob("*.parquet")] == ["updates-start-1.parquet"]
    assert log(path, "b").drop("diff").equals(frame.sort("k"))


def test_a_dry_run_writes_nothing(spark, shop):
    before = files(shop)
    summary = run(shop, dry_run=True, **SPARK)
    assert summary.outputs["sums"].rows == wanted(shop).height
    assert files(shop) == before


def test_a_python_error_in_a_task_names_function_and_row_and_leaves_nothing(spark, shop):
    (shop.parent / "odd_functions.py").write_text(
        "def odd(record):\n    if record['amount'] == 13:\n        raise ValueError('unlucky')\n    return record\n"
    )
    shop.write_text(
        PIPELINE.replace(
            "      - reduce",
            "      - map: {function: odd_functions:odd, columns: {shop: string, amount: int64}}\n      - reduce",
        )
    )
    before = files(shop)
    with pytest.raises(InputError) as caught:
        run(shop, **SPARK)
    assert "odd_functions:odd" in caught.value.problem
    assert "unlucky" in caught.value.problem
    assert files(shop) == before


def test_tasks_look_for_modules_where_the_driver_does(spark, shop):
    """Neither in the folder that Spark was started in, nor, once a function's module is imported, in the pipeline's."""
    (shop.parent / "looking_functions.py").write_text(
        "import os\nimport sys\n\n\ndef looks(record):\n    here = os.path.dirname(__file__)\n"
        "    raise ValueError(f'{sys.flags.safe_path} {here in sys.path}')\n"
    )
    function = "{function: looking_functions:looks, columns: {shop: string, amount: int64}}"
    shop.write_text(PIPELINE.replace("      - reduce", f"      - map: {function}\n      - reduce"))
    with pytest.raises(InputError, match="ValueError: True False"):
        run(shop, **SPARK)


@pytest.mark.in_turn
def test_a_bug_in_a_task_is_told_in_a_line_and_leaves_nothing(spark, shop, monkeypatch):
    monkeypatch.setattr(scheduler, "ChainedStage", Bug)
    before = files(shop)
    with pytest.raises(EngineError, match=rf"a task failed on {os.uname().nodename}: KeyError: 'gone'"):
        run(shop, **SPARK)
    assert files(shop) == before


@pytest.mark.in_turn
def test_a_task_that_fails_at_first_is_done_again(spark, shop, monkeypatch):
    """What its first attempt wrote is gone."""
    monkeypatch.setattr(scheduler, "ChainedStage", AtTheSecondTry)
    run(shop, **SPARK)
    assert log(shop).equals(wanted(shop).select(log(shop).columns))
    state = shop.parent / ".dd/sums"
    assert_all_named(state)
    assert [path.name for path in (shop.parent / "out/sums").iterdir() if path.name.startswith(".")] == []


def test_tasks_remember_what_a_function_returned(spark, tmp_path, monkeypatch):
    """A function that answers differently each time: rows that come again, or are retracted by another engine, have the answer that was committed, also where a task had to call again."""
    (tmp_path / "oracle_functions.py").write_text(
        "import uuid\n\n\ndef asked(record):\n    return record | {'answer': uuid.uuid4().hex}\n"
    )
    path = tmp_path / "p.yaml"
    path.write_text(
        "dd: 1\nname: oracle\ninputs: {rows: {path: in/, columns: {k: int64}}}\ncollections:\n  answers:\n    from: rows\n    apply:\n"
        "      - map: {function: {call: 'oracle_functions:asked', memo: true}, columns: {k: int64, answer: string}}\noutputs: {answers: out/answers/}\n"
    )
    (tmp_path / "in").mkdir()
    added = [dict.fromkeys(range(300), 1), {0: -1, 1: 1, 300: 2}, {1: -2, 2: -1, 0: 1, 301: 1}, {301: -1, 302: 1}]
    counts, known = Counter(), {}
    for time, (rows, engine) in enumerate(zip(added, ("spark", "local", "spark", "spark"), strict=True)):
        frame = pl.DataFrame({"k": [*rows], "diff": [*rows.values()]}).with_columns(time=pl.lit(time, pl.Int64))
        frame.write_parquet(tmp_path / f"in/{time}.parquet")
        counts.update(rows)
        with monkeypatch.context() as patched:
            if engine == "spark":
                patched.setattr(scheduler, "ChainedStage", AtTheSecondTry)
            summary = run(path, engine=engine)
        assert engine == "local" or summary.spark.tasks > 0
        found = log(path, "answers")
        assert dict(found.select("k", "diff").iter_rows()) == {k: count for k, count in counts.items() if count}
        for k, answer in found.select("k", "answer").iter_rows():
            assert known.setdefault(k, answer) == answer, k
    assert len({*known.values()}) == len(known) == 303
    assert verify(path, None).same


BROADCAST = (
    "An error occurred while calling o9.getResult.\n: org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat x\n"
    "Caused by: org.apache.spark.SparkException: Failed to get broadcast_3_piece0 of broadcast_3\n\t... 3 more\n"
)
ROLLBACK = BROADCAST.replace(
    "Failed to get broadcast_3_piece0 of broadcast_3",
    "Job aborted due to stage failure: A shuffle map stage with indeterminate output was failed and retried. However, Spark cannot rollback "
    "the ResultStage 29 to re-process the input data, and has to fail this job. Please eliminate the indeterminacy by checkpointing the RDD "
    "before repartition and try again.",
)
CANCELLED = BROADCAST.replace(
    "Failed to get broadcast_3_piece0 of broadcast_3",
    "[SPARK_JOB_CANCELLED] Job 0 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA",
)
FULL = BROADCAST.replace(
    "SparkException: Failed to get broadcast_3_piece0 of broadcast_3", "X: No space left on device"
)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("errors", "problem"),
    [
        ([ROLLBACK], None),
        ([BROADCAST, ROLLBACK], "has waited for another one in vain: Failed to get"),
        ([ROLLBACK] * 2, "an executor was lost with rows that others have read in part"),
        ([FULL], "can't write"),
        ([CANCELLED], "somebody has ended the job on Spark: Job 0 cancelled as part of cancellation of all jobs\n"),
    ],
    ids=["once", "twice", "read in part", "another error", "cancelled"],
)
def test_a_plan_is_done_once_more_where_spark_has_waited_in_vain(spark, shop, monkeypatch, errors, problem):
    """What the tasks of the first time have written is gone, and no row counts twice. Each plan runs, and fails in the end."""
    from pyspark.sql.classic.dataframe import DataFrame

    done, left = DataFrame.toArrow, list(errors)

    def failing(frame):
        rows = done(frame)
        if left:
            raise RuntimeError(left.pop())
        return rows

    monkeypatch.setattr(DataFrame, "toArrow", failing)
    before = files(shop)
    if problem:
        with pytest.raises(EngineError, match=problem):
            run(shop, **SPARK)
        assert files(shop) == before
        assert not left
        return
    run(shop, **SPARK)
    assert log(shop).equals(wanted(shop).select(log(shop).columns))
    assert_all_named(shop.parent / ".dd/sums")
    assert [path.name for path in (shop.parent / "out/sums").iterdir() if path.name.startswith(".")] == []


def test_spark_sql_reads_arrangements_and_outputs(spark, shop):
    from pyspark.sql import SparkSession

    run(shop, **SPARK)
    session = SparkSession(spark.context)
    rows = session.read.parquet(str(shop.parent / "out/sums")).groupBy("shop", "amount", "sales", "city").sum("diff")
    found = {tuple(row)[:4] for row in rows.collect() if row[4]}
    assert found == set(wanted(shop).select("shop", "amount", "sales", "city").rows())
    state = shop.parent / ".dd/sums"
    held, copy = {}, shop.parent / "copy"
    export_state(state, copy)  # in which each batch has a file of its own
    for name, entry in read_newest(copy).arrangements.items():
        frame = session.read.parquet(
            *(str(path) for path, _ in batch_files(copy, read_newest(copy)) if name in str(path))
        )
        held[frozenset(entry.schema)] = frame.groupBy(*entry.schema).sum("_diff").count()
    assert held[frozenset({"shop", "city"})] == 50


def test_an_existing_session_is_used_and_left(spark, shop):
    from pyspark.sql import SparkSession

    session = SparkSession(spark.context)
    run(shop, spark=session)
    assert session.range(3).count() == 3
    assert log(shop).equals(wanted(shop).select(log(shop).columns))


def test_errors_of_spark_are_told_in_a_line():
    text = "Py4JJavaError: An error occurred\n: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 9) (10.0.0.2 executor 1): ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Remote RPC client disassociated.\n\tat x"
    assert shortened(text).problem.startswith(
        "an executor was lost on 10.0.0.2: ExecutorLostFailure (executor 1 exited"
    )
    text = "x\nTraceback (most recent call last):\n  File \"a.py\", line 3, in f\n    g()\nModuleNotFoundError: No module named 'polars'\n\n\tat org.apache"
    assert "lacks a package: No module named 'polars'" in shortened(text).problem
    text = "x\nTraceback (most recent call last):\n  File x\nSystemError: error return without exception set\ndd: on far\n\n\tat y"
    problem = "a task failed on far: SystemError: error return without exception set: perhaps it ran out of memory"
    assert (shortened(text).problem, "memoryOverhead" in shortened(text).hint) == (problem, True)
    text = "Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 times, most recent failure: Lost task 1.3 in stage 3.0 (TID 9) (10.0.0.2 executor 1): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider"
    assert shortened(text).problem.startswith("a Python process of an executor was killed")
    text = text.replace(
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Command exited with code 137",
    )
    assert shortened(text).problem.startswith(
        "a process of an executor ran out of memory on 10.0.0.2: ExecutorLostFailure"
    )
    assert "spark.executor.memoryOverhead" in shortened(text).hint
    lost = "Lost task 1.3 in stage 3.0 (TID 9) (10.0.0.2 executor 1): "
    text = f'{lost}java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory'
    assert shortened(text).problem == "there is no Python on 10.0.0.2 at /no/python"
    text = (
        "SparkException: Exception thrown in awaitResult: \n\tat x\nCaused by: org.apache.spark.SparkException: Job aborted due to stage failure: "
        "ShuffleMapStage 5 (toArrow at plans.py:89) has failed the maximum allowable number of times: 4. Most recent failure reason:\n"
        "org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location for shuffle 1 partition 1"
    )
    assert shortened(text).problem.startswith(
        "executors were lost with rows that others need, and Spark has tried 4 times"
    )
    assert "memoryOverhead" in shortened(text).hint
    text = "Job aborted: Total size of serialized results of 2 tasks (2.9 MiB) is bigger than spark.driver.maxResultSize (2.0 MiB)"
    assert shortened(text).problem.startswith("the results of 2 tasks take 2.9 MiB, more than the 2.0 MiB that")
    assert "maxResultSize" in shortened(text).hint
    text = f"{lost}TaskResultLost (result lost from block manager)"  # with a limit of 1k
    assert shortened(text).problem == "the result of a task was lost on its way on 10.0.0.2"
    assert "maxResultSize" in shortened(text).hint
    assert (
        shortened("[MASTER_URL_INVALID] Could not parse 'x'\n\tat y").problem
        == "[MASTER_URL_INVALID] Could not parse 'x'"
    )


def test_an_interruption_whose_jobs_have_ended_is_no_error_of_theirs():
    """Pyspark waits for a cancelled job before it lets the interruption pass."""

    def wait():
        try:
            signal.default_int_handler(signal.SIGINT, None)
        except KeyboardInterrupt:
            raise RuntimeError("Job 0 cancelled as part of cancellation of all jobs") from None

    with pytest.raises(KeyboardInterrupt), explained(lambda error: EngineError(str(error))):
        wait()


WAITS = {
    "java.io.IOException: Failed to connect to /10.0.0.3:40913": "can't reach another one at 10.0.0.3:40913",
    "io.netty.channel.AbstractChannel$AnnotatedConnectException: Connection refused: vm/10.0.0.3:7077": "one at vm/10.0.0.3:7077",
    "java.io.IOException: Connection from /10.0.0.3:40913 closed": "can't reach another one at 10.0.0.3:40913",
    "java.util.concurrent.TimeoutException: Futures timed out after [120 seconds]. This timeout is controlled by spark.rpc.askTimeout": "has not answered within 120 seconds",
    "java.io.IOException: No space left on device": "can't write the rows that it exchanges",
    "java.io.FileNotFoundException: /tmp/blockmgr-1/0c/temp_shuffle (No space left on device)": "at /tmp/blockmgr-1/0c/temp_shuffle: ",
    "java.io.IOException: Failed to create local dir in /no/place.": "at /no/place: Failed to create local dir in",
    "java.lang.OutOfMemoryError: Java heap space": "ran out of memory",
    "org.apache.spark.SparkException: Could not find CoarseGrainedScheduler.": "has ended while another one waited for it",
    "java.io.IOException: Connection reset by peer": "has ended while another one waited for it",
    "org.apache.spark.SparkException: Failed to get broadcast_3_piece0 of broadcast_3": ": Failed to get broadcast_3_piece0 of broadcast_3",
    "": "a process of Spark has waited for another one in vain",
}


@pytest.mark.parametrize("cause", WAITS)
@pytest.mark.parametrize("lost", [True, False])
def test_a_wait_in_vain_is_explained_by_its_innermost_cause(cause, lost):
    """With the machine where Spark names it, and a remedy; Java's words for the wait alone explain nothing."""
    waited = (
        "org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat org.apache.spark.util.ThreadUtils\n"
    )
    where = (
        "Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.2 executor 2): "
        if lost
        else "An error occurred while calling x.\n: "
    )
    inner = f"Caused by: {cause}\n\tat java.x\n\t... 3 more\n" if cause else ""
    error = shortened(f"{where}{waited}Caused by: {waited}{inner}")
    assert WAITS[cause] in error.problem
    assert "awaitResult" not in error.problem
    assert "\n" not in error.problem
    assert (" on 10.0.0.2" in error.problem) == lost
    assert error.hint.startswith("nothing of this run is visible")


@pytest.mark.parametrize(
    "said",
    [
        "MemoryError: in f:late",
        "numpy._core._exceptions._ArrayMemoryError: in f:late",
        "RuntimeError: can't start new thread",
        (
            "OSError: x.so: failed to map segment from shared object\n\nDuring handling of it:\n\n"
            "Traceback (most recent call last):\n  File x\nOSError: Could not find/load x.so"
        ),
    ],
)
def test_that_memory_ran_out_is_told_whoever_noticed(said):
    problem = f"a task ran out of memory{': in f:late' if 'late' in said else ''}"
    thrown = "PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    text = f"{thrown}Traceback (most recent call last):\n  File x\n{said}\n\n\tat y"
    assert shortened(text).problem == problem
    noted = text.replace("\n\n\tat y", "\ndd: on far\n\n\tat y")
    assert shortened(noted).problem == problem.replace("memory", "memory on far", 1)
    lost = f"Lost task 1.3 in stage 3.0 (TID 9) (10.0.0.2 executor 1): {text}"
    assert shortened(lost).problem == problem.replace("memory", "memory on 10.0.0.2", 1)


FRAMES = """\
  File "/v/polars/x.py", line 1 in y
  File "/u/f.py", line 2 in inner
  File "/u/f.py", line 3 in outer
  File "/v/ddcli/expressions/python.py", line 4 in _call
"""


@pytest.mark.parametrize(
    ("what", "frames", "where", "hint"),
    [
        ("Segmentation fault", FRAMES, "inner at /u/f.py:2", "run again"),
        ("Aborted", FRAMES, "inner at /u/f.py:2", "memory"),
        (
            "Aborted",
            FRAMES[FRAMES.index('  File "/v/ddcli') :],
            "_call at /v/ddcli/expressions/python.py:4",
            "memory",
        ),
    ],
)
def test_a_crash_is_told_of_at_the_innermost_line_of_what_our_code_called(what, frames, where, hint):
    lost = "Lost task 1.3 in stage 3.0 (TID 9) (10.0.0.2 executor 1): org.apache.spark.SparkException: "
    others = (
        "Thread 0x1 (most recent call first):\n  <no Python frame>\n\nCurrent thread 0x2 (most recent call first):\n"
    )
    error = shortened(
        f"{lost}Python worker exited unexpectedly (crashed): Fatal Python error: {what}\n\n{others}{frames}\n"
    )
    assert error.problem == f"a Python process of an executor crashed on 10.0.0.2: {what}, in {where}"
    assert hint in error.hint

"""The format `dd` in Spark itself: what it reads is what Spark would find itself, what it writes is there once, whatever begins again."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from decimal import Decimal

import polars as pl
import pyspark.errors
import pytest

import ddcli
import ddcli.spark
from ddcli.driver.run import run
from ddcli.errors import UsageError
from ddcli.spark import register, write_difference
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.outputs import progress_bytes
from tests.draws import chance, many
from tests.harness import ROOT, contents, copy_root, write_log
from tests.reference.values import canonical
from tests.spark.servers import environment

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark):
    """Return a session that has no settings of other tests, finds the format by itself, and has moments in another zone than the machine."""
    from pyspark.sql import SparkSession

    found = SparkSession(spark.context).newSession()
    found.conf.set("spark.sql.session.timeZone", "America/New_York")
    return found


def rows(frame):
    """Return the rows of Spark's frame as a multiset."""
    return Counter(map(canonical, pl.from_arrow(frame.toArrow()).rows()))


def read(session, path, **options):
    return session.read.format("dd").options(**options).load(str(path))


TYPES = {
    "i": pl.Int32,
    "x": pl.Float64,
    "d": pl.Decimal(9, 2),
    "s": pl.String,
    "b": pl.Boolean,
    "day": pl.Date,
    "at": pl.Datetime("ms", "Europe/Berlin"),
    "naive": pl.Datetime("us"),
    "n": pl.Struct({"i": pl.Int64, "s": pl.String}),
    "l": pl.List(pl.Int64),
    "u": pl.UInt32,
}
VALUES = {
    "i": [None, -1, 0, 7],
    "x": [None, float("nan"), float("inf"), -0.0, 0.0, 1.5],
    "d": [None, Decimal("-1.50"), Decimal("0.00"), Decimal("7.25")],
    "s": [None, "", "a", "ab", "ba", "é"],
    "b": [None, True, False],
    "day": [None, dt.date(1960, 1, 1), dt.date(2024, 2, 29)],
    "at": [None, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 7, 1, 1, 2, 3, tzinfo=dt.UTC)],
    "naive": [None, dt.datetime(2024, 1, 1), dt.datetime(1969, 1, 1, 1, 2, 3, 4)],  # noqa: DTZ001 - it has no zone
    "n": [None, {"i": None, "s": "a"}, {"i": 3, "s": None}],
    "l": [None, [], [1, None]],
    "u": [None, 0, 2**32 - 1],
}
CONDITIONS = """\
i = 7
i <> 7
i is null
i is not null and i < 5
i in (0, 7, 8)
i not in (0, 7)
i not in (0, null)
i <=> null
i <=> 7
i > 2147483648
x > 1
x <= 0
x = 0
x <> 0
x = double('nan')
not (x > 1)
x in (0, double('nan'))
d > 0.5
d = 7.250
d < 1e10
s = ''
s > 'a'
s like 'a%'
s like '%b'
s like '%b%'
s not like 'a%'
upper(s) = 'A'
b
not b
day >= date'2000-01-01'
day < '1970-01-01'
at > timestamp'2024-03-01 00:00:00'
at = timestamp'2024-01-01 00:00:00 UTC'
naive < timestamp_ntz'1970-01-01 00:00:00'
n.i = 3
n.s is null
n is null
not (n.i = 3)
size(l) = 2
u > 5
u = 4294967295
i = 7 or s = 'a'
i >= 0 and s >= 'a' and b is not null
diff > 1
diff = 1 and i = 0"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Return a log with every kind of value."""
    folder, draw = tmp_path_factory.mktemp("mixed"), random.Random(1)
    drawn = [tuple(draw.choice(values) for values in VALUES.values()) for _ in range(200)]
    updates = [(*record, draw.randrange(4), draw.choice([1, 1, 2, -1])) for record in drawn]
    for at in range(3):
        write_log(folder / f"{at}.parquet", updates[at::3], TYPES | {"time": pl.Int64, "diff": pl.Int64})
    (folder / PROGRESS).write_bytes(progress_bytes(((3,),)))
    return folder


@pytest.mark.in_turn
def test_spark_finds_the_format_by_itself(session, mixed):
    wide = {"u": pl.Int64, "at": pl.Datetime("us", "UTC")}
    changes = ddcli.read_log(mixed).cast(wide)
    assert rows(read(session, mixed, readChangeFeed="true")) == Counter(map(canonical, changes.rows()))
    latest = ddcli.read_log(mixed, as_of="latest").cast(wide)
    assert rows(read(session, mixed, partitions=3)) == Counter(map(canonical, latest.rows()))
    assert read(session, mixed, partitions=3).rdd.getNumPartitions() == 3
    earlier = ddcli.read_log(mixed, as_of=1).cast(wide)
    assert rows(read(session, mixed, asOf=1)) == Counter(map(canonical, earlier.rows()))
    assert read(session, mixed).select("s", "diff").filter("i = 7").count() == latest.filter(pl.col("i") == 7).height


@pytest.mark.in_turn
def test_spark_sums_up_the_changes_as_the_page_says(session, mixed):
    (program,) = re.findall(r"```python\n(# contents\.py\n.*?)```", (ROOT / "docs/spark.md").read_text(), re.DOTALL)
    given = {}
    exec(program, given)  # noqa: S102 - our own
    plain = read(session, mixed).select("i", "d", "s", "b", "day", "at", "naive", "n", "l", "u", "diff")
    assert rows(given["contents"](session, str(mixed)).select(plain.columns)) == rows(plain)


@pytest.mark.in_turn
def test_filters_that_are_pushed_down_keep_what_spark_keeps(session, mixed):
    register(session)
    every = CONDITIONS.splitlines()
    conditions = chance("filters").sample(every, min(len(every), many(20)))  # each is a query, which takes seconds
    for options in ({}, {"readChangeFeed": "true"}):
        frame = read(session, mixed, **options)
        plain = session.createDataFrame(frame.toArrow(), frame.schema)
        judged = plain.selectExpr("*", *(f"({each}) as c{at}" for at, each in enumerate(conditions))).toArrow()
        for at, condition in enumerate(conditions):
            kept = pl.from_arrow(judged).filter(pl.col(f"c{at}")).select(frame.columns)
            assert rows(frame.filter(condition)) == Counter(map(canonical, kept.rows())), condition


def test_a_query_keeps_no_filter_of_another_over_its_frame(session, mixed):
    """Spark 4.3.0 has one reader for all queries over a frame, and asks it for filters only where a query has some."""
    register(session)
    frame, whole = read(session, mixed), ddcli.read_log(mixed, as_of="latest")
    assert frame.filter("i = 7").count() == whole.filter(pl.col("i") == 7).height
    assert frame.count() == whole.height
    assert frame.filter("size(l) = 2").count() == whole.filter(pl.col("l").list.len() == 2).height


def test_errors_name_place_and_way_out(session, tmp_path):
    with pytest.raises(Exception, match=r"(?s)error: there is no file or directory.*hint: name a directory"):
        read(session, tmp_path / "gone")
    write_log(tmp_path / "log/a.parquet", [(1, 0, 1)], ["k", "time", "diff"])
    with pytest.raises(Exception, match=r"(?s)no option 'versionasof'.*hint: the options are: path, asOf"):
        read(session, tmp_path / "log", versionAsOf=3)
    (tmp_path / "log/b.parquet").write_bytes(b"no Parquet")
    with pytest.raises(Exception, match=r"b\.parquet: error: "):
        read(session, tmp_path / "log")


PIPELINE = """\
name: p
inputs: {rows: in/}
collections: {sums: {from: rows, apply: [{reduce: {by: [k], n: count(*)}}]}}
outputs: {sums: out/sums/}
"""


class Chain:
    """A pipeline, a stream of its output into a log, and a pipeline that reads that log; the stream begins again at any batch."""

    def __init__(self, session, folder, draw):
        self.session, self.folder, self.draw, self.time, self.rows = session, folder, draw, 0, []
        (folder / "p.yaml").write_text(PIPELINE)
        reader = "name: q\ninputs: {changes: copy/}\noutputs: {changes: out/changes/}\n"
        (folder / "q.yaml").write_text(reader)

    def run(self):
        added = [(self.draw.randrange(3), self.time, 1) for _ in range(self.draw.randrange(1, 4))]
        self.rows += added
        write_log(self.folder / f"in/{self.time}.parquet", added, ["k", "time", "diff"])
        self.time += 1
        run(self.folder / "p.yaml")

    def stream(self):
        changes = self.session.readStream.format("dd").option("readChangeFeed", "true")
        to = changes.load(str(self.folder / "out/sums")).writeStream.format("dd")
        to = to.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(availableNow=True)
        begun = time.monotonic()
        while True:
            query = to.start(str(self.folder / "copy"))
            try:
                query.awaitTermination()
            except pyspark.errors.StreamingQueryException as error:
                # Spark waits 10 s for Python to start, which a busy machine may exceed: then the stream begins again, as it may after any batch.
                if "failed to connect back" not in str(error) or time.monotonic() > begun + 300:
                    raise
            else:
                assert query.exception() is None
                return

    def forget(self):
        """Let Spark forget that its last batch is done, as if it had died before it wrote that down."""
        folder = self.folder / "checkpoint/commits"
        last = max((path.name for path in folder.iterdir() if path.name.isdecimal()), key=int)
        (folder / last).unlink()
        (folder / f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("seed", range(many(2)))
@pytest.mark.in_turn
def test_a_stream_through_spark_has_each_change_once(session, tmp_path, seed):
    chain = Chain(session, tmp_path, chance("stream", seed))
    chain.run()
    for _ in range(3):
        chain.stream()
        if chain.draw.random() < 0.7:
            chain.forget()
        if chain.draw.random() < 0.8:
            chain.run()
    chain.stream()
    meant = dict.fromkeys(Counter(k for k, _, _ in chain.rows).items(), 1)
    assert contents(tmp_path / "out/sums") == contents(tmp_path / "copy") == meant
    times = pl.read_parquet(tmp_path / "copy/*.parquet")
    assert times.sort(times.columns).equals(
        pl.read_parquet(tmp_path / "out/sums/*.parquet").select(times.columns).sort(times.columns)
    )
    run(tmp_path / "q.yaml")
    assert contents(tmp_path / "out/changes") == meant


@pytest.mark.in_turn
def test_a_frame_is_appended_once_for_each_batch(session, tmp_path):
    frame = session.range(6).selectExpr("id % 2 as k", "cast(id as string) as s").repartition(3)
    for batch in (0, 0, 1, 0):
        frame.write.format("dd").mode("append").option("writer", "me").option("batch", batch).save(
            str(tmp_path / "log")
        )
    frame.write.format("dd").mode("append").save(str(tmp_path / "log"))
    assert rows(read(session, tmp_path / "log")) == Counter({(at % 2, str(at), 3): 1 for at in range(6)})
    with pytest.raises(Exception, match="a log is only appended to"):
        frame.write.format("dd").mode("overwrite").save(str(tmp_path / "log"))
    assert len(list((tmp_path / "log").iterdir())) == 4, "a file a commit, and the progress"


@pytest.mark.in_turn
@pytest.mark.parametrize("seed", range(many(2)))
def test_a_frame_becomes_the_contents_of_a_log(session, tmp_path, seed):
    """Whatever frame follows another, of every kind of value; a commit in between, or a death, is noticed."""
    draw, path = chance("frames", seed), tmp_path / "in"
    types = {name: kind for name, kind in TYPES.items() if name != "u"}
    schema = "i int, x double, d decimal(9,2), s string, b boolean, day date, at timestamp, naive timestamp_ntz, n struct<i: bigint, s: string>, l array<bigint>"
    for at in range(3):
        drawn = [tuple(draw.choice(VALUES[name][:3]) for name in types) for _ in range(draw.randrange(30))]
        drawn += drawn[:2]
        rows_ = pl.DataFrame(drawn, types, orient="row").cast({"at": pl.Datetime("us", "UTC")})
        frame = session.createDataFrame(rows_.to_arrow(compat_level=pl.CompatLevel.oldest()), schema)
        write_difference(frame, str(path))
        if at == 1:
            (path / PROGRESS).unlink()  # it died just before
            write_difference(frame, str(path))
        meant = Counter(map(canonical, rows_.rows()))
        found = ddcli.read_log(path, as_of="latest") if drawn or path.exists() else None
        assert found is None or Counter({canonical(row[:-1]): row[-1] for row in found.rows()}) == meant
        before = sorted(path.glob("*"))
        write_difference(frame, str(path))
        assert sorted(path.glob("*")) == before, "the same rows are no commit"
    (tmp_path / "p.yaml").write_text("name: p\ninputs: {rows: in/}\noutputs: {rows: out/}\n")
    run(tmp_path / "p.yaml")
    assert ddcli.read_log(tmp_path / "out", as_of="latest")["diff"].sum() == meant.total()


def test_a_table_of_a_catalog_feeds_a_pipeline(session, tmp_path):
    session.sql(f"create table orders (id int, region string) using parquet location '{tmp_path / 'table'}'")
    try:
        session.sql("insert into orders values (1, 'north'), (2, 'south'), (2, 'south')")
        (tmp_path / "p.yaml").write_text(PIPELINE.replace("by: [k]", "by: [region]"))
        for regions in (["north", "south", "south"], ["north"]):
            write_difference(session.table("orders"), str(tmp_path / "in"))
            run(tmp_path / "p.yaml")
            assert contents(tmp_path / "out/sums") == dict.fromkeys(Counter(regions).items(), 1)
            session.sql("insert overwrite orders values (1, 'north')")
        with pytest.raises(UsageError, match="the frame has the columns id, and the log has id, region"):
            write_difference(session.table("orders").select("id"), str(tmp_path / "in"))
        with pytest.raises(UsageError, match="the frame has a column 'Time'"):
            write_difference(session.sql("select 1 as Time"), str(tmp_path / "other"))
    finally:
        session.sql("drop table orders")


def test_a_pipeline_between_frames(session, tmp_path):
    (tmp_path / "p.yaml").write_text(PIPELINE)
    for values in ([1, 1, 2], [1], [1]):
        frame = session.createDataFrame([(value,) for value in values], "k long")
        done = ddcli.spark.run(tmp_path / "p.yaml", session, {"rows": frame}, engine="local")
        assert rows(done.outputs["sums"]) == Counter({(k, n, 1): 1 for k, n in Counter(values).items()})
    assert [*done.outputs] == ["sums"]
    with pytest.raises(UsageError, match="no input 'row'"):
        ddcli.spark.run(tmp_path / "p.yaml", session, {"row": frame})
    keyed = PIPELINE.replace("{rows: in/}", "{rows: {path: in/, format: upsert, key: [k], columns: {k: int64}}}")
    (tmp_path / "p.yaml").write_text(keyed)
    with pytest.raises(UsageError, match="the input 'rows' is not a log of changes"):
        ddcli.spark.run(tmp_path / "p.yaml", session, {"rows": frame})


def test_a_difference_from_contents_that_have_changed_is_refused(session, tmp_path):
    frame = session.range(3).selectExpr("id as k")
    write_difference(frame, str(tmp_path / "in"))
    upper = json.loads((tmp_path / "in" / PROGRESS).read_text())["upper"][0][0]
    frame.write.format("dd").mode("append").option("after", upper).save(str(tmp_path / "in"))
    with pytest.raises(Exception, match="another writer has changed the log"):
        frame.write.format("dd").mode("append").option("after", upper).save(str(tmp_path / "in"))


def test_a_task_that_fails_leaves_nothing(session, tmp_path):
    frame = session.range(100, numPartitions=2).selectExpr("id as k", "id as time", "if(id = 99, null, 1) as diff")
    with pytest.raises(Exception, match="the column 'diff' has a null"):
        frame.write.format("dd").mode("append").save(str(tmp_path / "log"))
    assert list((tmp_path / "log").glob("*")) == []


@pytest.mark.in_turn(9)
def test_the_program_of_the_page(tmp_path):
    (program,) = re.findall(r"```python\n(# report\.py\n.*?)```", (ROOT / "docs/spark.md").read_text(), re.DOTALL)
    copy_root(tmp_path / "root")
    run(tmp_path / "root/pipelines/airborne.yaml", until="600")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path / "root",
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    log = tmp_path / "root/out/airborne"
    counts = {
        "now": ddcli.read_log(log, as_of="latest").filter(pl.col("flights") > 30).height,
        "at 540": ddcli.read_log(log, as_of=540).height,
        "changes": ddcli.read_log(log, since=590, until=592).height,
        "seats": 2,
    }
    assert done.stdout == "".join(f"{name} {count}\n" for name, count in counts.items()), done.stderr[-2000:]
    assert contents(tmp_path / "root/copy") == contents(log)


WRITER = """
import sys
from pyspark.sql import SparkSession
folder = sys.argv[1]
spark = SparkSession.builder.master("local[1]").getOrCreate()
rows = spark.readStream.schema("k int").option("maxFilesPerTrigger", 1).json(f"{folder}/rows")
query = rows.writeStream.format("dd").option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start(f"{folder}/log")
query.awaitTermination()
"""


@pytest.mark.slow
@pytest.mark.in_turn(9)
def test_a_stream_whose_processes_are_killed_writes_each_row_once(tmp_path):
    """JVM and Python processes at once, at any moment; a reader meanwhile sees whole batches alone."""
    draw, files = chance("killed"), 4 + 4 * many(4)
    (tmp_path / "rows").mkdir()
    deaths = written = 0
    while True:
        for at in range(written, files):
            (tmp_path / f"rows/{at:03}.json").write_text("".join(f'{{"k": {at}}}\n' for _ in range(3)))
        written = files
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            env=environment(),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        seen, until = set(tmp_path.glob("log/*.parquet")), None
        before = len(seen)
        while process.poll() is None:
            found = set(tmp_path.glob("log/*.parquet"))
            if found - seen:
                seen = found
                counts = Counter(ddcli.read_log(tmp_path / "log")["k"])
                assert set(counts.values()) <= {3}, "a batch is whole, or not there"
            if until is None and len(found) > before and deaths < many(4):
                until = time.monotonic() + draw.random()
            if until is not None and time.monotonic() > until:
                os.killpg(process.pid, signal.SIGKILL)
                deaths += 1
            time.sleep(0.02)
        if process.wait() == 0 and deaths:
            break
        files += not process.returncode  # one that came to its end before it was to die: there is more to write
    assert Counter(ddcli.read_log(tmp_path / "log")["k"]) == dict.fromkeys(range(files), 3)
    shutil.rmtree(tmp_path / "checkpoint")

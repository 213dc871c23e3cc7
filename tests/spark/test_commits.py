"""The commits of a log that Spark writes, without Spark: each batch is there once, or not at all, whatever dies where."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
import threading
from collections import Counter
from decimal import Decimal

import polars as pl
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types
from pyspark.sql.datasource import CaseInsensitiveDict

import ddcli
from ddcli.driver.run import run
from ddcli.errors import InputError, StateError, UsageError
from ddcli.expressions.types import parse_type
from ddcli.spark import commits, sinks
from ddcli.spark.commits import WriterBatch
from ddcli.spark.sinks import LogTarget
from ddcli.spark.source import LogSource
from ddcli.store.state.document import PROGRESS
from tests.draws import many, some
from tests.harness import contents, write_log
from tests.spark.formats import added, moved, read, stream
from tests.store.support import Dead, Faulty

ROWS = types.StructType([types.StructField("k", types.LongType()), types.StructField("s", types.StringType())])
TIMED = types.StructType(
    [*ROWS.fields, types.StructField("time", types.LongType()), types.StructField("diff", types.IntegerType())]
)


def target(path, schema=ROWS):
    return LogTarget.open(path, "time", "diff", schema)


def batches(rows, schema=ROWS):
    """Return rows as Spark's tasks get them."""
    names = {"bigint": pl.Int64, "string": pl.String, "int": pl.Int32}
    frame = pl.DataFrame(
        rows, {field.name: names[field.dataType.simpleString()] for field in schema.fields}, orient="row"
    )
    return frame.to_arrow().to_batches(max_chunksize=2)


def write(path, rows, batch, schema=ROWS, tasks=2):
    """Write rows as a job does, in tasks of their own processes."""
    to = moved(target(path, schema))
    written = [to.write(batches(rows[at::tasks], schema), batch) for at in range(tasks)]
    moved(to).commit([part for parts in moved(written) for part in parts], batch)


def there(path):
    """Return the records of a log."""
    return Counter({row[:-1]: row[-1] for row in ddcli.read_log(path, as_of="latest").rows()})


def names(path):
    return sorted(each.name for each in path.iterdir())


def test_rows_are_inserts_at_the_time_of_their_commit(tmp_path):
    write(tmp_path / "in", [(1, "a"), (2, None), (1, "a")], WriterBatch("x", 0))
    write(tmp_path / "in", [(3, "c")], WriterBatch("x", 1))
    assert there(tmp_path / "in") == {(1, "a"): 2, (2, None): 1, (3, "c"): 1}
    log = ddcli.read_log(tmp_path / "in")
    assert log.schema["time"] == pl.Datetime("us")
    assert log["time"].n_unique() == 2
    assert len(names(tmp_path / "in")) == 3, "a file a commit, and the progress"


def test_times_and_diffs_are_those_of_the_rows(tmp_path):
    write(tmp_path / "in", [(1, "a", 3, 1), (2, "b", 5, 2), (2, "b", 4, 0)], WriterBatch("x"), TIMED)
    write(tmp_path / "in", [(2, "b", 6, -2)], WriterBatch("y"), TIMED)
    assert ddcli.read_log(tmp_path / "in").rows() == [(1, "a", 3, 1), (2, "b", 5, 2), (2, "b", 6, -2)]
    assert json.loads((tmp_path / "in" / PROGRESS).read_text()) == {"upper": [[7]], "writers": {}}
    with pytest.raises(InputError, match="a row has the time 6, and the log's times before 7 are closed"):
        write(tmp_path / "in", [(2, "b", 8, 1), (2, "b", 6, 1)], WriterBatch("z"), TIMED)
    with pytest.raises(InputError, match="'diff' has a null"):
        write(tmp_path / "in", [(2, "b", 8, None)], WriterBatch("z"), TIMED)
    assert len(names(tmp_path / "in")) == 3, "what was refused has left nothing"
    write(tmp_path / "in", [(4, "d")], WriterBatch("z"))
    assert ddcli.read_log(tmp_path / "in", since=7).rows() == [(4, "d", 7, 1)], "the first open time"


def test_a_batch_is_written_once(tmp_path):
    for batch, rows in ((0, [(1, "a")]), (0, [(1, "a")]), (1, [(2, "b")]), (0, [(1, "a")]), (1, [(2, "b")])):
        write(tmp_path / "in", rows, WriterBatch("orders", batch))
    write(tmp_path / "in", [(1, "a")], WriterBatch("others", 0))
    assert there(tmp_path / "in") == {(1, "a"): 2, (2, "b"): 1}
    (tmp_path / "in" / PROGRESS).unlink()  # what it had is in the names of files, too
    write(tmp_path / "in", [(1, "a")], WriterBatch("orders", 0))
    assert there(tmp_path / "in") == {(1, "a"): 2, (2, "b"): 1}


def test_a_commit_leaves_the_files_of_other_attempts_that_may_be_at_work(tmp_path):
    """A process that outlives the one that has started it commits a batch while the next attempt writes it, or a later one."""
    path, rows, other = tmp_path / "log", [(1, "a", 1, 1), (2, "b", 1, 1)], [(3, "c", 2, 1)]
    to = target(path, TIMED)
    again = to.write(batches(rows, TIMED), WriterBatch("me", 1))
    later = to.write(batches(other, TIMED), WriterBatch("me", 2))
    write(path, rows, WriterBatch("me", 1), TIMED)
    to.commit(again, WriterBatch("me", 1))
    to.commit(later, WriterBatch("me", 2))
    assert Counter(ddcli.read_log(path).select("k", "s", "time", "diff").rows()) == Counter([*rows, *other])
    to.write(batches(rows, TIMED), WriterBatch("me", 3))  # it dies
    write(path, [(4, "d", 3, 1)], WriterBatch("me", 4), TIMED)
    assert not [each for each in path.iterdir() if each.name.startswith(".")]


def test_a_log_without_the_files_of_some_commits_has_no_known_contents(tmp_path):
    """As one whose reader archives what it has taken: the difference from the rest would be another one."""
    kind = {"time": parse_type("datetime[us]")}
    for number in range(4):
        write(tmp_path / "in", [(number, "a")], WriterBatch("x", number))
        commits.refuse_partial(tmp_path / "in", kind)
    for path in sorted((tmp_path / "in").glob("*.parquet")):
        path.rename(tmp_path / "away")
        with pytest.raises(StateError, match="lacks files of some of its commits"):
            commits.refuse_partial(tmp_path / "in", kind)
        (tmp_path / "away").rename(path)
    write_log(tmp_path / "mine/a.parquet", [(1, "a", 0, 1)], ["k", "s", "time", "diff"])
    write(tmp_path / "mine", [(1, "a", 9, 1)], WriterBatch("x"), TIMED)
    with pytest.raises(StateError, match="lacks files"):
        commits.refuse_partial(tmp_path / "mine", {"time": parse_type("int64")})


def test_a_job_without_rows_writes_nothing(tmp_path):
    write(tmp_path / "in", [], WriterBatch("x", 0))
    assert names(tmp_path / "in") == []


@pytest.mark.parametrize("whole", [*some([0, 1 << 30])])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_a_commit_that_dies_is_whole_or_absent_and_is_there_once_when_it_is_repeated(
    tmp_path, monkeypatch, after, first, whole
):
    """At each file operation, for readers of the log's own list, for those by glob, and for a pipeline that reads the log; also where it is a folder."""
    monkeypatch.setattr(commits, "WHOLE", whole)

    def begin(path):
        path.parent.mkdir()
        return Counter() if first or write(path, [(7, "z")], WriterBatch("x", 0)) else Counter({(7, "z"): 1})

    counter = Faulty()
    begin(tmp_path / "count/in")
    with monkeypatch.context() as patch:
        patch.setattr(commits, "Files", lambda: counter)
        patch.setattr(sinks, "Files", lambda: counter)
        write(tmp_path / "count/in", [(1, "a"), (2, "b")], WriterBatch("x", 1))
    assert len(counter.log) > 10
    for at in some(range(len(counter.log))):
        path = tmp_path / f"{at}/in"
        before = begin(path)
        whole = before + Counter({(1, "a"): 1, (2, "b"): 1})
        files = Faulty(at, after=after)
        with monkeypatch.context() as patch:
            patch.setattr(commits, "Files", lambda files=files: files)
            patch.setattr(sinks, "Files", lambda files=files: files)
            with pytest.raises(Dead):
                write(path, [(1, "a"), (2, "b")], WriterBatch("x", 1))
        (path.parent / "p.yaml").write_text("name: p\nclock: arrival\ninputs: {rows: in/}\noutputs: {rows: out/}\n")
        shown = shown_files(path)
        if shown:
            assert there(path) in (before, whole)
            assert Counter(seen(path)) in (before, whole)
            run(path.parent / "p.yaml")
        write(path, [(1, "a"), (2, "b")], WriterBatch("x", 1))
        assert there(path) == whole == Counter(seen(path))
        write(path, [(3, "c")], WriterBatch("x", 2))
        assert there(path) == whole + Counter({(3, "c"): 1})
        run(path.parent / "p.yaml")
        assert Counter(contents(path.parent / "out")) == there(path)
        assert not [name for name in names(path) if name.startswith(".") or name == "_lock"], "nothing is left over"


def shown_files(path):
    """Return the files that a reader of a log finds by both patterns."""
    return [*path.glob("*.parquet"), *path.glob("updates-*/*.parquet")] if path.exists() else []


def test_a_large_commit_is_a_folder_of_the_files_of_its_tasks(tmp_path, monkeypatch):
    """None of their rows is read for it; a task begins another file where one is large."""
    monkeypatch.setattr(commits, "WHOLE", 0)
    monkeypatch.setattr(sinks, "WHOLE", 1)
    monkeypatch.setattr(sinks, "CHUNK", 2)
    path, rows = tmp_path / "in", [(at, "a", 3 + at, 1) for at in range(11)]
    to, batch = target(path, TIMED), WriterBatch("x", 4)
    parts = [to.write(batches(rows[at::2], TIMED), batch) for at in range(2)]
    assert [len(each) for each in parts] == [3, 3]
    before = sorted(part.path.read_bytes() for each in parts for part in each)
    to.commit([part for each in moved(parts) for part in each], batch)
    assert names(path) == ["_progress.json", f"updates-start-14-spark{batch.key}b4"]
    assert sorted(each.read_bytes() for each in shown_files(path)) == before
    assert Counter(ddcli.read_log(path).rows()) == Counter(rows) == Counter(stream(path)[0].rows())
    write(path, rows, batch, TIMED)
    write(path, [(99, "z", 14, 1)], WriterBatch("x", 5), TIMED)
    assert there(path) == Counter({(at, "a"): 1 for at in range(11)} | {(99, "z"): 1})
    commits.refuse_partial(path, {"time": parse_type("int64")})
    (path / PROGRESS).unlink()
    write(path, rows, batch, TIMED)
    assert there(path).total() == 12, "the names of files and folders have the batches"


def seen(path):
    """Return the records of a log for a reader of all its files."""
    frame = pl.read_parquet(shown_files(path))
    return {row[:-1]: row[-1] for row in frame.group_by("k", "s").agg(pl.col("diff").sum()).rows()}


@pytest.mark.parametrize("seed", range(many(3)))
def test_writers_at_once_and_readers_meanwhile(tmp_path, seed):
    """Each writer's batches are there once, in order; a stream of the log has each row once; what is closed doesn't change."""
    chance = random.Random(seed)
    write(tmp_path / "in", [(-1, "0")], WriterBatch("begin"))
    errors = []

    def writer(name):
        for number in range(4):
            for _ in range(chance.choice([1, 2])):
                while True:
                    try:
                        write(tmp_path / "in", [(number, name)], WriterBatch(name, number))
                        break
                    except InputError as error:
                        if "if another writer was faster, write again" not in error.hint:
                            raise
                    except BaseException as error:
                        errors.append(error)
                        raise

    held, offset = Counter(), None
    threads = [threading.Thread(target=writer, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        rows, _, offset = stream(tmp_path / "in", offset)
        held.update(added(rows))
    rows, _, offset = stream(tmp_path / "in", offset)
    held.update(added(rows))
    assert not errors
    assert (
        held == there(tmp_path / "in") == Counter({(-1, "0"): 1} | dict.fromkeys(itertools.product(range(4), "abc"), 1))
    )


def test_logs_that_spark_may_not_write(tmp_path):
    write_log(tmp_path / "rows/a.parquet", [(1, "a", 0, 1)], ["k", "s", "time", "diff"])
    (tmp_path / "p.yaml").write_text("name: p\ninputs: {rows: rows/}\noutputs: {rows: out/}\n")
    run(tmp_path / "p.yaml")
    with pytest.raises(StateError, match="the log is the output of a pipeline"):
        write(tmp_path / "out", [(1, "a", 9, 1)], WriterBatch("x"), TIMED)
    write(tmp_path / "rows", [(1, "a", 9, 1)], WriterBatch("x"), TIMED)
    assert ddcli.read_log(tmp_path / "rows").rows() == [(1, "a", 0, 1), (1, "a", 9, 1)]
    with pytest.raises(InputError, match="before 10 are closed"):
        write(tmp_path / "rows", [(1, "a", 9, 1)], WriterBatch("y"), TIMED)
    few = types.StructType(TIMED.fields[1:])
    with pytest.raises(UsageError, match="the rows have the columns s string, and the log has k bigint, s string"):
        target(tmp_path / "rows", few)
    wrong = types.StructType([*ROWS.fields, types.StructField("time", types.DateType())])
    with pytest.raises(UsageError, match="the time column 'time' is date"):
        target(tmp_path / "rows", wrong)
    maps = types.StructType([types.StructField("m", types.MapType(types.StringType(), types.LongType()))])
    with pytest.raises(UsageError, match="column 'm' is map<string,bigint>"):
        target(tmp_path / "maps", maps)
    source = LogSource(CaseInsensitiveDict({"path": str(tmp_path / "new")}))
    with pytest.raises(UsageError, match="only appended to"):
        source.writer(ROWS, overwrite=True)
    with pytest.raises(UsageError, match="belong together"):
        LogSource(CaseInsensitiveDict({"path": str(tmp_path / "new"), "writer": "me"})).writer(ROWS, overwrite=False)
    with pytest.raises(UsageError, match="no option 'mergeschema' to write with"):
        LogSource(CaseInsensitiveDict({"path": str(tmp_path / "new"), "mergeSchema": "true"})).writer(
            ROWS, overwrite=False
        )


KINDS = {
    types.ByteType(): [None, -128, 127],
    types.ShortType(): [None, 7],
    types.IntegerType(): [None, -1],
    types.LongType(): [None, 2**62],
    types.FloatType(): [None, 1.5, float("inf")],
    types.DoubleType(): [None, -0.25],
    types.BooleanType(): [None, True],
    types.StringType(): [None, "", "é"],
    types.BinaryType(): [None, b"\0\xff"],
    types.DateType(): [None, dt.date(1960, 2, 29)],
    types.TimestampType(): [None, dt.datetime(2024, 7, 1, 1, 2, 3, 4, tzinfo=dt.UTC)],
    types.TimestampNTZType(): [None, dt.datetime(2024, 7, 1, 1, 2, 3, 4)],  # noqa: DTZ001 - it has no zone
    types.DecimalType(38, 4): [None, Decimal("-1.5000")],
    types.DayTimeIntervalType(): [None, dt.timedelta(days=-1, microseconds=5)],
    types.ArrayType(types.StringType()): [None, [], ["a", None]],
    types.StructType(
        [types.StructField("a", types.LongType()), types.StructField("b", types.ArrayType(types.DateType()))]
    ): [None, {"a": None, "b": [dt.date(2024, 1, 1)]}],
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.simpleString())
def test_a_value_comes_back_as_it_was_written(tmp_path, kind):
    import pyarrow as pa

    from ddcli.store.mirrors.spark_table import arrow_type, our_type

    schema = types.StructType([types.StructField("v", kind)])
    to = target(tmp_path / "in", schema)
    batch = pa.RecordBatch.from_pydict({"v": KINDS[kind]}, pa.schema([("v", arrow_type(our_type(kind)))]))
    to.commit(to.write([batch], WriterBatch("x")), WriterBatch("x"))
    source = LogSource(CaseInsensitiveDict({"path": str(tmp_path / "in")}))
    assert source.schema()["v"].dataType == kind
    found, _ = read(tmp_path / "in")
    values = found["v"].to_list()
    assert len(values) == len(KINDS[kind])
    assert all(value in values for value in KINDS[kind])

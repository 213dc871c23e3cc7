"""The format `dd`, without Spark: what its parts hold is what `read_log` and sums in plain Python say, whatever happens to the log meanwhile."""

from __future__ import annotations

import datetime as dt
import random
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("pyspark")

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructField, StructType

import ddcli
from ddcli.driver.run import run
from ddcli.errors import EngineError, InputError, RewrittenError, StateError, UsageError
from ddcli.expressions.types import parse_type
from ddcli.sinks.log_compaction import compact
from ddcli.spark import parts as parts_module
from ddcli.spark.source import FilteringLogSource, LogSource, keeping, located
from ddcli.store.log import joint_files
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.outputs import progress_bytes
from tests.changelog.test_read_log import COLUMNS, TIMES, drawn, plain, summed
from tests.draws import many
from tests.harness import write_log
from tests.judge.harness import judge
from tests.judge.logs import cases
from tests.judge.test_random import SEARCH
from tests.reference.values import canonical
from tests.spark.formats import added, again, collected, counted, read, stream


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("seed", range(many(5)))
def test_a_log_has_the_rows_that_plain_sums_have(tmp_path, kind, seed):
    """As of any time, between any two, in any number of parts: in whatever files and order the updates stand."""
    rng = random.Random(f"{kind} {seed}")
    names, dtype, said = TIMES[kind]
    updates = [drawn(rng, len(names)) for _ in range(rng.randrange(1, 40))]
    every = [(a, b) for a in range(5) for b in range(5)] if said is None else [(a,) for a in range(5)]
    shown = {time: time if said is None else (said(time),) for time in every}
    rows = [(*record, *shown[time], diff) for record, time, diff in updates]
    schema = COLUMNS | dict.fromkeys(names, dtype) | {"diff": pl.Int64}
    cuts = sorted(rng.sample(range(len(rows) + 1), 2)) if len(rows) > 1 else [0, 1]
    for at, part in enumerate([rows[: cuts[0]], rows[cuts[0] : cuts[1]], rows[cuts[1] :]]):
        write_log(tmp_path / f"{at}.parquet", part, schema)
    if rng.random() < 0.7:
        (tmp_path / PROGRESS).write_bytes(progress_bytes(((rng.randrange(6),) * len(names),)))
    options = {"time": ", ".join(names)} | ({"partitions": str(rng.randrange(1, 5))} if rng.random() < 0.7 else {})

    changes, _ = read(tmp_path, readChangeFeed="true", **options)
    assert counted(changes) == Counter(map(canonical, ddcli.read_log(tmp_path, time=names).rows()))
    latest, count = read(tmp_path, **options)
    assert count == int(options.get("partitions", 1))
    assert plain(latest, 0) == summed(((canonical(record), ()), diff) for record, _, diff in updates)
    for time in {tuple(rng.randrange(4) for _ in names) for _ in range(3)}:
        text = ",".join(map(str, shown[time]))
        before = [(r, d) for r, t, d in updates if all(x <= y for x, y in zip(t, time, strict=True))]
        found, _ = read(tmp_path, asOf=text, **options)
        assert plain(found, 0) == summed(((canonical(record), ()), diff) for record, diff in before)
        assert counted(found) == counted(ddcli.read_log(tmp_path, time=names, as_of=text))
        until = tuple(x + rng.randrange(2) for x in time)
        end = ",".join(map(str, shown[until]))
        between = ddcli.read_log(tmp_path, time=names, since=text, until=end)
        found, _ = read(tmp_path, readChangeFeed="true", startingTime=text, endingTime=end, **options)
        assert counted(found) == counted(between)


@settings(SEARCH, max_examples=many(8))
@given(st.sampled_from([1, 1, 2]).flatmap(lambda nt: cases(nt=nt)), st.randoms(use_true_random=False))
def test_outputs_of_random_pipelines(case, chance):
    """Each output, as of some of its times and as changes, is what its log says."""
    with tempfile.TemporaryDirectory() as folder:
        judge(case, Path(folder))
        for progress in Path(folder).rglob(PROGRESS):
            log = progress.parent
            if not list(log.glob("*.parquet")):
                continue
            whole = ddcli.read_log(log)
            types = [
                parse for parse in whole.schema.values() if str(parse).startswith(("UInt", "Time", "Duration", "Null"))
            ]
            if types:  # Spark has them in other types
                continue
            options = {"partitions": str(chance.randrange(1, 4))}
            assert counted(read(log, readChangeFeed="true", **options)[0]) == counted(whole)
            assert counted(read(log, **options)[0]) == counted(ddcli.read_log(log, as_of="latest"))


def test_a_log_that_got_a_column(tmp_path):
    """Its rows from before have null there, as a collection and as changes."""
    (tmp_path / "a.yaml").write_text(
        "name: a\ninputs: {t: {path: in/, format: append, columns: grow}}\noutputs: {t: out/}\n"
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("k\n1\n")
    run(tmp_path / "a.yaml")
    (tmp_path / "in/2.csv").write_text("k,w\n2,x\n")
    run(tmp_path / "a.yaml")
    found, _ = read(tmp_path / "out")
    assert sorted(found.select("k", "w").rows()) == [(1, None), (2, "x")]
    changes, _ = read(tmp_path / "out", readChangeFeed="true")
    assert sorted(changes.select("k", "w", "diff").rows()) == [(1, None, 1), (2, "x", 1)]


GROWING = """\
dd: 1
name: a
inputs: {rows: in/}
collections:
  sums: {from: rows, apply: [{reduce: {by: [k], n: count(*), last: max(v)}}]}
outputs: {sums: {path: out/sums/, keep: 4}}
"""


class Growing:
    """A log that grows by runs, whose files grow, are summed up, and are opened again; and the collections that it has had."""

    def __init__(self, folder, chance):
        self.folder, self.chance, self.time = folder, chance, 0
        self.log = folder / "out/sums"
        self.rows, self.meant = [], {}
        (folder / "a.yaml").write_text(GROWING)

    def run(self):
        for _ in range(self.chance.randrange(1, 3)):
            added = [(self.chance.randrange(4), self.chance.randrange(9), self.time, 1) for _ in range(3)]
            self.rows += added
            write_log(self.folder / f"in/{self.time}.parquet", added, ["k", "v", "time", "diff"])
            groups = {}
            for k, v, _, _ in self.rows:
                groups.setdefault(k, []).append(v)
            self.meant[self.time] = Counter({(k, len(vs), max(vs)): 1 for k, vs in groups.items()})
            self.time += 1
        run(self.folder / "a.yaml")


@pytest.fixture
def growing(tmp_path, monkeypatch):
    monkeypatch.setattr(joint_files, "APART", 1)
    monkeypatch.setattr(joint_files, "COMMITS", 2)
    return lambda seed: Growing(tmp_path, random.Random(seed))


@pytest.mark.parametrize("seed", range(many(6)))
def test_a_stream_has_each_change_once_wherever_it_begins_again(growing, seed):
    log = growing(seed)
    log.run()
    held, offset, batches = Counter(), None, []
    for _ in range(12):
        if log.chance.random() < 0.6:
            log.run()
        rows, start, end = stream(log.log, offset)
        if log.chance.random() < 0.3:  # it dies before it has noted the batch, and reads the same one again, later
            log.run()
            assert added(again(log.log, start, end)) == added(rows)
            if end["time"] != start["time"]:
                assert counted(again(log.log, start, end)) == counted(rows)
        held.update(added(rows))
        held = Counter({record: n for record, n in held.items() if n})
        offset = end
        batches.append(rows.height)
        assert held == log.meant[int(end["time"]) - 1]
    rows, _, end = stream(log.log, offset)
    assert stream(log.log, end)[0].height == 0
    for time in range(max(0, log.time - 4), log.time):
        assert added(read(log.log, asOf=str(time), partitions="3")[0]) == log.meant[time]


def test_a_stream_whose_updates_were_summed_up_is_refused(growing):
    log = growing(1)
    log.run()
    _, _, first = stream(log.log)
    for _ in range(4):
        log.run()
    compact("a.yaml", log.folder, None)
    with pytest.raises(StateError, match="were summed up before the stream had read them"):
        stream(log.log, first)
    rows, _, _ = stream(log.log)
    assert added(rows) == log.meant[log.time - 1]
    with pytest.raises(UsageError, match="remembers nothing before"):
        read(log.log, asOf="0")


def test_a_stream_of_a_log_that_was_opened_again_is_refused(growing):
    log = growing(2)
    for _ in range(3):
        log.run()
    _, _, offset = stream(log.log)
    ddcli.run(log.folder / "a.yaml", reopen="2")
    for _ in range(2):
        log.run()
    with pytest.raises(StateError, match="started again, or opened at earlier times"):
        stream(log.log, offset)


@pytest.mark.parametrize("later", [False, True])
def test_a_stream_of_a_log_that_was_written_anew_is_refused(growing, later):
    """Its contents are there again, at an open time: a stream that continued would have them twice."""
    log = growing(5)
    for _ in range(3):
        log.run()
    _, _, offset = stream(log.log)
    run(log.folder / "a.yaml", rewrite=frozenset({"sums"}))
    if later:
        log.run()
    with pytest.raises(StateError, match="started again"):
        stream(log.log, offset)
    log.run()
    assert added(stream(log.log)[0]) == log.meant[log.time - 1]


def test_files_that_are_summed_up_while_a_query_reads_them(growing):
    """A collection as of a closed time is read from the new files; changes are refused, as their times are gone."""
    log = growing(3)
    for _ in range(6):
        log.run()
    source = LogSource(CaseInsensitiveDict({"path": str(log.log), "asOf": str(log.time - 1), "partitions": "2"}))
    changes = LogSource(CaseInsensitiveDict({"path": str(log.log), "readChangeFeed": "true"}))
    reader, other = source.reader(source.schema()), changes.reader(changes.schema())
    parts, others = reader.partitions(), other.partitions()
    compact("a.yaml", log.folder, None)
    assert added(collected(reader, parts, source.schema())[0]) == log.meant[log.time - 1]
    with pytest.raises(RewrittenError, match="summed up or rewritten"):
        collected(other, others, changes.schema())


def test_what_a_later_commit_adds_is_not_in_a_query_that_was_planned_before(growing):
    """Also where it adds to the file that the query reads, and the query asks for open times."""
    log = growing(4)
    for _ in range(2):
        log.run()
    source = LogSource(CaseInsensitiveDict({"path": str(log.log), "readChangeFeed": "true"}))
    whole = LogSource(CaseInsensitiveDict({"path": str(log.log)}))
    reader, sums = source.reader(source.schema()), whole.reader(whole.schema())
    parts, shares = reader.partitions(), sums.partitions()
    before, meant = ddcli.read_log(log.log), log.meant[log.time - 1]
    files = {path.name for path in log.log.glob("*.parquet")}
    log.run()
    assert files == {path.name for path in log.log.glob("*.parquet")}, "the newest file has grown"
    assert counted(collected(reader, parts, source.schema())[0]) == counted(before)
    assert added(collected(sums, shares, whole.schema())[0]) == meant


ORDERED = {
    "int16": (pl.Int16, lambda at: at - 300),
    "uint64": (pl.UInt64, lambda at: 2**64 - 1000 + at),
    "date": (pl.Date, lambda at: dt.date(2023, 11, 1) + dt.timedelta(at)),
    "datetime": (
        pl.Datetime("ms", "Europe/Berlin"),
        lambda at: dt.datetime(2024, 3, 31, tzinfo=dt.UTC) + dt.timedelta(minutes=at),
    ),
    "naive": (pl.Datetime("us"), lambda at: dt.datetime(1969, 12, 31) + dt.timedelta(minutes=7 * at)),  # noqa: DTZ001 - it has no zone
    "decimal": (pl.Decimal(12, 3), lambda at: Decimal(at - 300) / 8),
    "string": (pl.String, lambda at: f"é{at:04}"),
}
"""Types of columns with their values in order."""
GROUP = 10
"""Rows of a row group."""


def ordered_log(folder, kind, chance, *, nulls):
    """Write a log whose first file has its rows in the order of a column, in row groups, and whose later ones are small; return its updates."""
    dtype, value = ORDERED[kind]
    keys = sorted(chance.choices(range(600), k=400))
    updates = [(value(key), chance.choice("ab"), 0, 1) for key in keys]
    later = [
        (
            None if nulls and chance.random() < 0.3 else value(chance.choice(keys)),
            chance.choice("ab"),
            at,
            chance.choice([1, -1]),
        )
        for at in (1, 2)
        for _ in range(4)
    ]
    schema = {"k": dtype, "s": pl.String, "time": pl.Int64, "diff": pl.Int64}
    files = {"0": updates, "1": later[:4], "2": later[4:]}
    for name, rows in files.items():
        pl.DataFrame(rows, schema, orient="row").write_parquet(folder / f"{name}.parquet", row_group_size=GROUP)
    return updates + later


def without(path, kept):
    """Overwrite the values of the row groups of a file but for some, so that nobody can read them."""
    from pyarrow import parquet

    data, footer = bytearray(path.read_bytes()), parquet.read_metadata(path)
    for group in {*range(footer.num_row_groups)} - {*kept}:
        columns = [footer.row_group(group).column(at) for at in range(footer.num_columns)]
        for column in columns:
            start = column.dictionary_page_offset or column.data_page_offset
            data[start : start + column.total_compressed_size] = b"?" * column.total_compressed_size
    path.write_bytes(data)


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", ORDERED)
def test_a_log_in_the_order_of_a_column_is_read_in_ranges_of_it(tmp_path, kind, nulls):
    """Each task has the records of its range, and reads no row group without any of these."""
    chance = random.Random(f"{kind} {nulls}")
    updates = ordered_log(tmp_path, kind, chance, nulls=nulls)
    whole, count = read(tmp_path, partitions="4")
    assert count == 4
    meant = summed((canonical(row[:2]), row[-1]) for row in updates)
    assert Counter({canonical(record): diff for record, diff in added(whole).items()}) == meant
    source = FilteringLogSource(CaseInsensitiveDict({"path": str(tmp_path), "partitions": "4"}))
    schema = source.schema()
    reader = source.reader(schema)
    parts = reader.partitions()
    first = tmp_path / "0.parquet"
    content, keys = first.read_bytes(), pl.read_parquet(first)["k"]
    for part in parts:
        found, _ = collected(reader, [part], schema)
        assert 50 < found.height < 200, "about a quarter"
        low, high = (pl.Series([each]).cast(keys.dtype)[0] for each in (found["k"].min(), found["k"].max()))
        kept = {row // GROUP for row in (keys.is_between(low, high)).arg_true()}
        assert len(kept) < 20
        without(first, kept | {min(kept) - 1, max(kept) + 1})
        assert counted(collected(reader, [part], schema)[0]) == counted(found)
        first.write_bytes(content)


def test_a_log_in_no_order_is_read_by_hashes(tmp_path):
    """Ranges of a column with few values, or in no order, would have tasks read all files and hold more than their part."""
    chance = random.Random(1)
    rows = [(chance.randrange(1000), chance.choice([1, 2]), at // 10, 0, 1) for at in range(400)]
    frame = pl.DataFrame(rows, ["a", "b", "c", "time", "diff"], orient="row")
    frame.write_parquet(tmp_path / "0.parquet", row_group_size=GROUP)
    source = LogSource(CaseInsensitiveDict({"path": str(tmp_path), "partitions": "3"}))
    for other, checked in ((frame, True), (frame.drop("c"), False), (frame.with_columns(c=pl.lit(1)), False)):
        other.write_parquet(tmp_path / "0.parquet", row_group_size=GROUP)
        found, count = read(tmp_path, partitions="3")
        assert (count, added(found)) == (3, added(other))
        assert [part.checked for part in source.reader(source.schema()).partitions()] == [checked] * 3
    frame.with_columns(diff=pl.when(pl.col("a") > 0).then("diff")).vstack(
        frame.head(1).with_columns(diff=pl.lit(None, pl.Int64))
    ).write_parquet(tmp_path / "0.parquet", row_group_size=GROUP)
    with pytest.raises(InputError, match="null"):
        read(tmp_path, partitions="3")


def test_the_changes_of_a_large_file_are_read_in_parts(tmp_path):
    """Each part reads its own row groups; rows that are added later, at open times, are in none."""
    chance = random.Random(2)
    updates = ordered_log(tmp_path, "string", chance, nulls=True)
    first = tmp_path / "0.parquet"
    (tmp_path / PROGRESS).write_bytes(progress_bytes(((2,),)))
    source = LogSource(CaseInsensitiveDict({"path": str(tmp_path), "partitions": "4", "readChangeFeed": "true"}))
    reader = source.reader(source.schema())
    parts = reader.partitions()
    large = [part for part in parts if part.rows is not None]
    assert len(large) >= 3
    assert [sum(each) for each in [part.rows for part in large][:-1]] == [part.rows[0] for part in large[1:]]
    frame = pl.read_parquet(first)
    frame.vstack(frame.head(3).with_columns(time=pl.lit(5, pl.Int64))).write_parquet(first, row_group_size=GROUP)
    found, _ = collected(reader, parts, source.schema())
    assert counted(found) == Counter(map(canonical, updates))
    for part in large:
        content = first.read_bytes()
        start, rows = part.rows
        without(first, range(start // GROUP, -(-(start + rows) // GROUP)))
        part.checked = True  # the times of all files are looked at, if this is not known
        one, _ = collected(reader, [part], source.schema())
        first.write_bytes(content)
        assert counted(one) == counted(frame[start : start + rows])


def test_tasks_of_another_version_are_refused(tmp_path, monkeypatch):
    write_log(tmp_path / "a.parquet", [(1, 0, 1)], ["k", "time", "diff"])
    source = LogSource(CaseInsensitiveDict({"path": str(tmp_path)}))
    reader = source.reader(source.schema())
    parts = reader.partitions()
    monkeypatch.setattr(parts_module, "versions", lambda: ("0.0.1", "1.0"))
    other = r"an executor on \S+ has ddcli 0\.0\.1 with polars 1\.0"
    with pytest.raises(EngineError, match=other):
        collected(reader, parts, source.schema())
    with pytest.raises(EngineError, match=other):
        source.writer(StructType([StructField("k", LongType())]), overwrite=False).write(iter(()))


def test_a_relative_path_is_refused_where_spark_connect_has_a_directory_of_its_own(tmp_path, monkeypatch):
    write_log(tmp_path / "log/a.parquet", [(1, 0, 1)], ["k", "time", "diff"])
    monkeypatch.chdir(tmp_path)
    relative, whole = ({"path": str(path)} for path in ("log", tmp_path / "log"))
    assert len(LogSource(CaseInsensitiveDict(relative)).schema()) == 2
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "0b7e")
    assert len(LogSource(CaseInsensitiveDict(whole)).schema()) == 2
    assert str(located("s3a://lake/log")) == "s3://lake/log"
    with pytest.raises(UsageError, match="a relative path means nothing in Spark Connect"):
        LogSource(CaseInsensitiveDict(relative)).schema()


MANY = {
    "i": parse_type("int32?"),
    "x": parse_type("float64?"),
    "d": parse_type("decimal(9, 2)?"),
    "s": parse_type("string?"),
    "b": parse_type("bool?"),
    "day": parse_type("date?"),
    "at": parse_type("datetime[ms, Europe/Berlin]?"),
    "naive": parse_type("datetime[us]?"),
    "n": parse_type("struct[i: int64?, s: string?]?"),
}
ZONE = dt.timezone(dt.timedelta(hours=2))
VALUES = {
    "i": [None, -1, 0, 7],
    "x": [None, float("nan"), float("-inf"), -0.0, 0.0, 1.5],
    "d": [None, Decimal("-1.50"), Decimal("0.00"), Decimal("7.25")],
    "s": [None, "", "a", "ab", "ba", "%", "é"],
    "b": [None, True, False],
    "day": [None, dt.date(1960, 1, 1), dt.date(2024, 2, 29)],
    "at": [None, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 7, 1, 1, tzinfo=ZONE)],
    "naive": [None, dt.datetime(2024, 1, 1), dt.datetime(1969, 1, 1, 1, 2, 3, 4)],  # noqa: DTZ001 - it has no zone
    "n": [None, {"i": None, "s": "a"}, {"i": 3, "s": None}, {"i": 3, "s": "ab"}],
}
COMPARE = {
    spark.EqualTo: lambda one, other: one == other,
    spark.GreaterThan: lambda one, other: one > other,
    spark.GreaterThanOrEqual: lambda one, other: one >= other,
    spark.LessThan: lambda one, other: one < other,
    spark.LessThanOrEqual: lambda one, other: one <= other,
    spark.StringStartsWith: str.startswith,
    spark.StringEndsWith: str.endswith,
    spark.StringContains: lambda one, other: other in one,
}


def meaning(filter_, row):
    """Return what Spark says of a row: true, false or null. A NaN is the greatest number, and equal to itself."""
    if isinstance(filter_, spark.Not):
        inner = meaning(filter_.child, row)
        return None if inner is None else not inner
    value = row
    for name in filter_.attribute:
        value = None if value is None else value[name]
    if isinstance(filter_, spark.IsNull | spark.IsNotNull):
        return (value is None) == isinstance(filter_, spark.IsNull)
    if isinstance(filter_, spark.EqualNullSafe):
        return value is filter_.value if None in (value, filter_.value) else key(value) == key(filter_.value)
    if value is None:
        return None
    if isinstance(filter_, spark.In):
        equal = any(other is not None and key(value) == key(other) for other in filter_.value)
        return True if equal else None if None in filter_.value else False
    if isinstance(value, str) and type(filter_) in {spark.StringStartsWith, spark.StringEndsWith, spark.StringContains}:
        return COMPARE[type(filter_)](value, filter_.value)
    return COMPARE[type(filter_)](key(value), key(filter_.value))


def key(value):
    return (value != value, 0 if value != value else value) if isinstance(value, float) else value  # noqa: PLR0124 - NaN


@st.composite
def filters(draw):
    """Return a filter of Spark over one of the columns, or a field of one."""
    name = draw(st.sampled_from([*MANY]))
    path, values = (name,), [value for value in VALUES[name] if value is not None]
    if name == "n":
        path = (name, draw(st.sampled_from(["i", "s"])))
        values = {"i": [3, 4], "s": ["a", "ab"]}[path[1]]
    forms = [*list(COMPARE)[:5], spark.IsNull, spark.IsNotNull, spark.In, spark.EqualNullSafe]
    forms += [*list(COMPARE)[5:]] if isinstance(values[0], str) else []
    form = draw(st.sampled_from(forms))
    if form in (spark.IsNull, spark.IsNotNull):
        found = form(path)
    elif form is spark.In:
        found = form(path, tuple(draw(st.lists(st.sampled_from([*values, None]), min_size=1, max_size=3))))
    else:
        found = form(path, draw(st.sampled_from(values)))
    return spark.Not(found) if draw(st.booleans()) else found


@settings(SEARCH, max_examples=many(200))
@given(st.lists(filters(), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_filters_keep_all_rows_that_spark_keeps(given_, chance):
    rows = [{name: chance.choice(values) for name, values in VALUES.items()} for _ in range(60)]
    frame = pl.DataFrame(rows, schema={name: kind.to_polars() for name, kind in MANY.items()})
    condition = keeping(given_, MANY)
    kept = [*range(60)] if condition is None else frame.with_row_index("row").filter(condition)["row"].to_list()
    wanted = {at for at, row in enumerate(rows) if all(meaning(each, row) for each in given_)}
    assert wanted <= {*kept}
    surely = all(
        MANY[each.attribute[0] if not isinstance(each, spark.Not) else each.child.attribute[0]].kind != "float64"
        for each in given_
    )
    asks_null = any(
        None in getattr(getattr(each, "child", each), "value", ())
        for each in given_
        if isinstance(getattr(each, "child", each), spark.In)
    )
    if surely and not asks_null:
        assert wanted == {*kept}, "and no others"


def test_filters_and_columns_are_read_alone(tmp_path):
    rows = [(k, f"s{k}", k / 2, 0, 1) for k in range(100)]
    write_log(tmp_path / "a.parquet", rows, ["k", "s", "x", "time", "diff"])
    few, _ = read(tmp_path, [spark.LessThan(("k",), 3), spark.EqualTo(("diff",), 2)])
    assert few["k"].sort().to_list() == [0, 1, 2], "the multiplicity is known after the sum alone"
    few, _ = read(tmp_path, [spark.EqualTo(("diff",), 2)], readChangeFeed="true")
    assert few.height == 0
    some, _ = read(tmp_path, [spark.StringStartsWith(("s",), "s7")], ["s", "diff"])
    assert sorted(some["s"]) == ["s7", *(f"s7{digit}" for digit in range(10))]
    with pytest.raises(UsageError, match="the schema lacks 'diff'"):
        read(tmp_path, names=["s"])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"asof": "0", "readchangefeed": "true"}, "asOf is one time"),
        ({"startingtime": "0"}, "a range of changes"),
        ({"readchangefeed": "yes"}, "readChangeFeed is 'yes'"),
        ({"partitions": "0"}, "partitions is '0'"),
        ({"asof": "noon"}, "'noon' is not a time"),
        ({"versionasof": "0"}, "no option 'versionasof'"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, problem):
    write_log(tmp_path / "a.parquet", [(1, 0, 1)], ["k", "time", "diff"])
    with pytest.raises(UsageError, match=problem):
        read(tmp_path, **options)


def test_logs_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="no file or directory"):
        read(tmp_path / "gone")
    write_log(tmp_path / "bare/a.parquet", [(1, 0, 1)], ["k", "time", "diff"])
    with pytest.raises(InputError, match="the log has no progress"):
        stream(tmp_path / "bare")
    write_log(tmp_path / "product/a.parquet", [(1, 0, 0, 1)], ["k", "a", "b", "diff"])
    (tmp_path / "product" / PROGRESS).write_bytes(progress_bytes(((1, 1),)))
    with pytest.raises(UsageError, match="times of one coordinate"):
        stream(tmp_path / "product")
    write_log(tmp_path / "finer/a.parquet", [(1, 0, 1)], {"at": pl.Datetime("ns"), "time": pl.Int64, "diff": pl.Int64})
    with pytest.raises(InputError, match="Spark has no room for one of its values"):
        read(tmp_path / "finer")

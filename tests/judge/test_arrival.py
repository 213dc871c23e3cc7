"""Rows with the time of the run that takes them in: files of every format that come in any order, over any cut into runs, each of
which may die at any file operation. What an output holds at each time is what plain Python says of all that had arrived by then.
"""

from __future__ import annotations

import datetime as dt
import re
import tempfile
from collections import Counter, defaultdict
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ddcli.store.state.directory
from ddcli.driver.run import run
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.judge.sizes import cut
from tests.store.support import Dead, Faulty

BEFORE = 1_704_067_200_000_000
"""Microseconds of the epoch's own time."""
EPOCH = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - times have no zone
COLUMNS = {"k": "int64", "v": "string?", "n": "int64", "op": "string", "diff": "int64", "time": "int64"}
SCHEMA = pl.Schema({"k": pl.Int64, "v": pl.String, "n": pl.Int64, "op": pl.String, "diff": pl.Int64, "time": pl.Int64})
WRITERS = {
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
    "csv": pl.DataFrame.write_csv,
    "ndjson": pl.DataFrame.write_ndjson,
}
row = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["x", "y", None]),
    st.integers(0, 4),
    st.sampled_from("UUUD"),
    st.sampled_from([1, 1, -1]),
    st.integers(0, 5),
)
name = st.builds(
    "{}{}-{}".format, st.sampled_from(["", "", "day=3/", "day=10/"]), st.sampled_from("ab"), st.integers(0, 20)
)


def in_order(files):
    """Return files of one run in the order in which they count: numbers in their names by size."""
    return sorted(
        files, key=lambda file: [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", file[0])]
    )


def appended(arrived):
    return Counter((k, v) for _, files in arrived for _, rows in files for k, v, *_ in rows)


def updated(arrived):
    found = Counter()
    for _, files in arrived:
        for _, rows in files:
            for k, v, _, _, diff, _ in rows:
                found[k, v] += diff
    return found


def upserted(arrived):
    has = {}
    for _, files in arrived:
        for _, rows in in_order(files):
            for k, v, _, op, *_ in rows:
                has[k] = None if op == "D" else (k, v)
    return Counter(row for row in has.values() if row)


def ordered(arrived):
    has = {}
    for _, files in arrived:
        for _, rows in in_order(files):
            for k, v, n, op, *_ in rows:
                if n >= has.get(k, (None, n))[1]:
                    has[k] = (None if op == "D" else (k, v), n)
    return Counter(row for row, _ in has.values() if row)


def last_table(arrived):
    table = Counter()
    for _, files in arrived:
        tables = defaultdict(list)
        for path, rows in files:
            tables[path.rpartition("/")[0] or path] += rows
        last = in_order(tables.items())[-1:]
        table = Counter((k, v) for k, v, *_ in last[0][1]) if last else table
    return table


def newest_table(arrived):
    table, before = Counter(), None
    for _, files in arrived:
        rows = [each for _, rows in files for each in rows]
        newest = max((n for _, _, n, *_ in rows), default=None)
        if newest is not None and (before is None or newest >= before):
            table, before = Counter((k, v) for k, v, n, *_ in rows if n == newest), newest
    return table


FORMATS = {
    "append": ({"format": "append"}, appended),
    "log": ({}, updated),
    "upsert": ({"format": "upsert", "key": ["k"], "delete_when": "op = 'D'"}, upserted),
    "ordered": ({"format": "upsert", "key": ["k"], "delete_when": "op = 'D'", "order_by": "n"}, ordered),
    "snapshots": ({"format": "snapshots"}, last_table),
    "newest": ({"format": "snapshots", "order_by": "n"}, newest_table),
}


@st.composite
def histories(draw):
    """Give for each run the files that come before it, and at which of its file operations it dies, if it does."""
    names = draw(st.lists(name, unique_by=lambda each: each, max_size=7))
    runs = draw(st.lists(st.none() | st.integers(0, 40), min_size=1, max_size=5))
    came = [draw(st.integers(0, len(runs) - 1)) for _ in names]
    rows = [draw(st.lists(row, max_size=5)) for _ in names]
    return [
        ([(path, lines) for path, at, lines in zip(names, came, rows, strict=True) if at == number], death)
        for number, death in enumerate(runs)
    ]


def held(folder, time):
    """Return what the output holds at a time."""
    found = Counter()
    for file in sorted((folder / "out").rglob("*.parquet")):  # a large commit is a folder
        for k, v, diff in pl.read_parquet(file).filter(pl.col("time") <= time).select("k", "v", "diff").iter_rows():
            found[k, v] += diff
    return {each: count for each, count in found.items() if count}


def write(folder, path, rows, kind):
    """Write a file of the input."""
    place = folder / "in" / f"{path}.{kind}"
    place.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[kind](pl.DataFrame(rows, SCHEMA, orient="row"), place)


def die(folder, pipeline, now, death, **options):
    """Run, dying at a file operation; say whether the run came to its end."""
    files = Faulty(death)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ddcli.store.state.directory, "Files", lambda: files)
        try:
            run(pipeline, now=now, **options)
        except Dead:
            return False
    return True


def judge_arrivals(folder, format_, history, kind, change, options=dict):
    """Run as a history has it, each run with some `options`, and hold what the output says at each time against the definition."""
    keys, meaning = FORMATS[format_]
    pipeline = folder / "p.yaml"
    given_ = {"path": "in/", "columns": COLUMNS, **keys}
    if format_ != "log":
        given_["columns"] = {column: kind_ for column, kind_ in COLUMNS.items() if column != "diff"}
    said = {"dd": 1, "name": "p", "clock": "arrival", "inputs": {"a": given_}, "outputs": {"c": "out/"}}
    said["collections"] = {"c": {"from": "a", "apply": [{"project": ["k", "v"]}]}}
    (folder / "in").mkdir()
    known: dict[str, list] = {}
    now, times = 0, []
    for number, (files, death) in enumerate(history):
        for path, rows in files:
            write(folder, path, rows, kind)
            known[f"{path}.{kind}"] = rows
        if number == change:  # the same meaning, of another plan
            said["collections"]["c"]["apply"].insert(0, {"filter": "k >= 0"})
        pipeline.write_text(yaml.safe_dump(said, sort_keys=False))
        deaths = [death] if death is not None else []
        while True:
            now += 7
            text = (EPOCH + dt.timedelta(microseconds=now)).isoformat()
            if not deaths:
                run(pipeline, now=text, apply=True, **options())
                break
            if number == change or die(folder, pipeline, text, deaths.pop(), **options()):
                deaths = []
        times.append(now)
    manifest = read_newest(folder / ".dd/p")
    if manifest is None:
        assert not known
        return
    taken = {file.path: file.at for file in manifest.inputs["a"].files}
    assert taken.keys() == known.keys()
    arrived = [(at, [(p, known[p]) for p in taken if taken[p] == at]) for at in sorted({*taken.values()})]
    for at in {*taken.values()}:
        time = EPOCH + dt.timedelta(microseconds=at - BEFORE)
        wanted = meaning([each for each in arrived if each[0] <= at])
        assert held(folder, time) == {each: count for each, count in wanted.items() if count}, (format_, at)


@settings(
    max_examples=many(12), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@pytest.mark.parametrize("format_", FORMATS)
@given(
    history=histories(),
    kind=st.sampled_from(list(WRITERS)),
    chance=st.none() | st.tuples(st.sampled_from([1, 3]), st.integers(0, 9)),
    change=st.none() | st.integers(0, 4),
)
def test_arrivals(format_, history, kind, chance, change):
    with tempfile.TemporaryDirectory() as place, nullcontext() if chance is None else cut(*chance):
        judge_arrivals(Path(place), format_, history, kind, change)

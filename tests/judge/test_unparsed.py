"""Rows that can't be read: what a pipeline makes of files with some is what it makes of the files without them, run by run and wherever a run
dies; and each such row is in the side log once, with its place, its text and what could be read of it.
"""

import datetime as dt
import json
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.errors import InputError
from tests.draws import many
from tests.judge.sizes import cut
from tests.judge.test_arrival import die
from tests.spark.support import Here, started

START = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - times have no zone
COLUMNS = {"k": "int64", "v": "string?", "n": "decimal(9, 2)?", "d": "date", "op": "string?", "at": "int64"}
GOOD = {
    "k": ["0", "1", "2"],
    "v": ["x", "y", None],
    "n": ["1.50", "2", None],
    "d": ["2024-01-01", "2024-01-02"],
    "op": ["U", "D", None],
    "at": ["1", "2", "3", "4", "5"],
}
BAD = {"k": ["q", "1.5", None], "n": ["1,5", "9999999999"], "d": ["31.12.2024", None], "at": ["soon", None]}
ORDER = list(COLUMNS)
FORMATS = {
    "append": {"format": "append"},
    "upsert": {"format": "upsert", "key": ["k"], "delete_when": "op = 'D'"},
    "ordered": {"format": "upsert", "key": ["k"], "delete_when": "op = 'D'", "order_by": "n"},
    "snapshots": {"format": "snapshots"},
}


@st.composite
def rows_of_files(draw):
    """Give the rows of some files, texts by column, each with the number of the run that it comes before; some can't be read."""
    row = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in GOOD.items()})
    files = []
    for number in range(draw(st.integers(1, 4))):
        rows = []
        for _ in range(draw(st.integers(1, 6))):
            one = draw(row)
            for name in draw(st.sets(st.sampled_from(list(BAD)), max_size=1 + draw(st.integers(0, 1)))):
                one[name] = draw(st.sampled_from(BAD[name]))
            rows.append(one)
        files.append((draw(st.integers(0, 2)), f"{number}", rows))
    return files


def problem(row, named, form, clock):
    """Return the column of which a row can't be read and its text, if it can't: first values of no type, then nulls."""
    used = [name for name in named if name in BAD]
    for name in used:
        if row[name] is not None and row[name] in BAD[name]:
            return name, row[name]
    nulls = [name for name in used if row[name] is None and None in BAD[name]]
    if "at" in nulls and clock == "event":
        return "at", None
    if form == "ordered" and row["n"] is None:
        return None, None
    if form in ("upsert", "ordered") and row["op"] == "D":  # a deletion needs its key alone
        nulls = [name for name in nulls if name == "k"]
    if nulls:
        return nulls[0], None
    return None


def write(path, rows, kind):
    """Write the rows of a file, and return the line of each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "csv":
        lines = [",".join(ORDER)]
        lines += [
            ",".join('"' * (row[name] == "1,5") + (row[name] or "") + '"' * (row[name] == "1,5") for name in ORDER)
            for row in rows
        ]
        path.write_text("\n".join(lines) + "\n")
        return range(2, len(rows) + 2)
    texts = [json.dumps({name: value for name, value in row.items() if value is not None}) for row in rows]
    path.write_text("[" + ",\n".join(texts) + "]" if kind == "json" else "\n\n".join(texts) + "\n")
    return range(1, len(rows) + 1) if kind == "json" else range(1, 2 * len(rows) + 1, 2)


def log_of(folder):
    """Return the updates of a log, as text."""
    found = Counter()
    for file in sorted(folder.glob("*.parquet")):
        for *values, diff in pl.read_parquet(file).iter_rows():
            found[str(values)] += diff
    return {values: diff for values, diff in found.items() if diff}


@pytest.mark.in_turn
@settings(max_examples=many(4), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@pytest.mark.parametrize("form", FORMATS)
@given(
    clock=st.sampled_from(["arrival", "event"]),
    files=rows_of_files(),
    kind=st.sampled_from(["csv", "ndjson", "json"]),
    chance=st.none() | st.tuples(st.sampled_from([1, 3]), st.integers(0, 9)),
    seed=st.none() | st.integers(0, 9),
    deaths=st.lists(st.none() | st.integers(0, 40), min_size=3, max_size=3),
    declared=st.sampled_from([ORDER, ["k", "v", "d", "op", "n", "at"], ["k", "v", "n", "op", "at"]]),
)
def test_a_pipeline_goes_on_without_rows_that_can_not_be_read(form, clock, files, kind, chance, seed, deaths, declared):
    keys = {**FORMATS[form], "path": f"in/*.{kind}", "columns": {name: COLUMNS[name] for name in declared}}
    if clock == "event":
        keys |= {"time": "at", "late": "quarantine"}
    said = {"clock": clock, "errors": "quarantine", "inputs": {"a": keys}, "outputs": {"c": "out/"}}
    said["collections"] = {"c": {"from": "a", "apply": [{"project": ["k", "v"]}]}}
    with (
        tempfile.TemporaryDirectory() as place,
        nullcontext() if chance is None else cut(*chance),
        started(Here(seed or 0)),
    ):
        whole, clean = Path(place, "whole"), Path(place, "clean")
        wanted = Counter()
        for number in range(3):
            now = 0
            for run_of, name, rows in files:
                if run_of != number:
                    continue
                good = [row for row in rows if problem(row, declared, form, clock) is None]
                if not good:  # a file without rows is another thing in JSON
                    good = [{name: values[0] for name, values in GOOD.items()}]
                    rows = [*rows, *good]
                lines = write(whole / f"in/{name}.{kind}", rows, kind)
                write(clean / f"in/{name}.{kind}", good, kind)
                for row, line in zip(rows, lines, strict=True):
                    if found := problem(row, declared, form, clock):
                        wanted[f"{name}.{kind}", line, *found] += 1
            for folder in (whole, clean):
                folder.mkdir(exist_ok=True)
                (folder / "p.yaml").write_text(yaml.safe_dump(said, sort_keys=False))
            if not (whole / "in").exists():
                continue
            now = (START + dt.timedelta(days=number)).isoformat()
            engine = "local" if seed is None or (seed + number) % 2 else "spark"
            ends = [ended(whole, clock, now, deaths[number], engine), ended(clean, clock, now, None, "local")]
            assert ends[0] == ends[1]
            if ends[0] is not None:  # as of two rows of a key
                return
            assert contents(whole) == contents(clean)
        side = whole / ".dd/p/errors/_unparsed/a"
        found = Counter()
        for path in sorted(side.glob("*.parquet")):
            frame = pl.read_parquet(path)
            assert frame.columns[5:] == [name for name in declared if clock == "arrival" or name != "at"] + [
                "time",
                "diff",
            ]
            for file, line, column, text, diff in frame.select("file", "line", "column", "text", "diff").iter_rows():
                found[file, line, column, text] += diff
            kept = [name for name in ("k", "n") if name in frame.columns]
            for column, *values in frame.select("column", *kept).iter_rows():
                assert all(value is None for name, value in zip(kept, values, strict=True) if name == column)
        assert found == wanted


def ended(folder, clock, now, death, engine):
    """Run, and again if the first run dies; return what is wrong, if anything is."""
    texts = [None, None] if clock == "event" else [now, f"{now[:-1]}1"]
    try:
        if death is None or not die(folder, folder / "p.yaml", texts[0], death, engine=engine):
            run(folder / "p.yaml", now=texts[1], engine=engine)
    except InputError as error:
        return error.problem
    return None


def contents(folder):
    """Return all that a folder's pipeline wrote but the log of rows that can't be read; of times only those of events."""
    logs = {path.name: log_of(path) for path in (folder / "out", folder / ".dd/p/late/a")}
    return {name: {values.replace("0, 1)", "0)"): diff for values, diff in log.items()} for name, log in logs.items()}

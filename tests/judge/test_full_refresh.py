"""A full refresh under `clock: arrival` is one change at one time, however its inputs were replaced: at no time, nor for any reader meanwhile, do
outputs hold something else than before it or after it.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ddcli.store.state.directory
from ddcli.driver.run import run
from ddcli.errors import InputError
from ddcli.sinks.log_compaction import compact
from ddcli.store.files.gate import Files
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.judge.test_arrival import BEFORE, EPOCH
from tests.store.support import Dead, Faulty

WRITER = """\
name: writer
clock: event
inputs: {rows: in/}
collections: {}
outputs: {rows: log/}
"""
READER = """\
name: reader
clock: arrival
errors: quarantine
inputs:
  rows: {path: INPUT, columns: {k: int64, diff: int64, TIME}}
collections:
  c: {from: rows, apply: [{map: {k: k, r: "6 / k"}}]}
  n: {from: rows, apply: [{reduce: {by: [k], n: count(*)}}]}
outputs: {c: c/, n: n/}
"""
ROWS = st.lists(st.integers(0, 3), max_size=4)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "run", "compact", "replace", "refresh", "refresh", "one"]),
        ROWS,
        st.none() | st.integers(0, 60),
    ),
    min_size=3,
    max_size=9,
)


class Shop:
    """A reader of files, or of the log that another pipeline writes of them."""

    def __init__(self, folder, *, logged):
        self.folder, self.logged, self.now, self.count = folder, logged, 0, 0
        self.disk, self.before = {}, {}
        (folder / "in").mkdir()
        (folder / "writer.yaml").write_text(WRITER)
        reader = READER.replace("INPUT", "log/" if logged else "in/").replace("TIME", "time: int64")
        (folder / "reader.yaml").write_text(reader)
        self.write([1])

    def write(self, rows):
        """Have a file come, and the log of it where there is one."""
        self.count += 1
        name = f"{self.count}.parquet"
        frame = pl.DataFrame(
            {"k": rows, "time": [self.count] * len(rows), "diff": [1] * len(rows)},
            {"k": pl.Int64, "time": pl.Int64, "diff": pl.Int64},
        )
        frame.write_parquet(self.folder / "in" / name)
        self.disk[name] = rows
        if self.logged:
            run(self.folder / "writer.yaml")

    def replace(self, rows):
        """Have one file hold what all have held, and more."""
        if self.logged:
            return
        for name in self.disk:
            (self.folder / "in" / name).unlink()
        whole = [k for each in self.disk.values() for k in each]
        self.disk = {}
        self.write([*whole, *rows])

    def compact(self):
        """Sum the log up, whoever has not read it."""
        if self.logged:
            compact("log", self.folder, pass_claims=True)

    def reads(self, death, **options):
        """Run the reader, and again if it dies; what outputs hold meanwhile is what they did, or what they are to hold."""
        before, after = self.before, self.wanted()
        for at in [death, None] if death is not None else [None]:
            files = Faulty(at) if at is not None else Files()
            self.now += 7
            text = (EPOCH + dt.timedelta(microseconds=self.now)).isoformat()
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(ddcli.store.state.directory, "Files", lambda files=files: files)
                    run(self.folder / "reader.yaml", now=text, **options)
            except Dead:
                assert self.held() in (before, after)
            except InputError:  # files are gone, or were summed up before they were read
                assert options.get("refresh") != frozenset()
                return
            else:
                break
        self.before = self.held()
        assert self.before == after
        failed = [pl.read_parquet(file)["diff"].sum() for file in (self.folder / ".dd/reader/errors").glob("*.parquet")]
        assert sum(failed) == sum(rows.count(0) for rows in self.disk.values())
        times = {
            time
            for output in "cn"
            for file in (self.folder / output).rglob("*.parquet")
            for time in pl.read_parquet(file)["time"]
        }
        ((upper,),) = read_newest(self.folder / ".dd/reader").upper
        first = EPOCH + dt.timedelta(microseconds=self.since)
        for time in sorted(each for each in times if each > first):
            assert self.held(time) in (before, after), time
        self.since = upper - 1 - BEFORE

    since = -1

    def wanted(self):
        found = Counter(k for rows in self.disk.values() for k in rows)
        return {("n", (k, n)): 1 for k, n in found.items()} | {("c", (k, 6 / k)): n for k, n in found.items() if k}

    def held(self, time=None):
        """Return what the outputs hold at a time, or now."""
        found = Counter()
        for output, columns in {"c": ["k", "r", "diff"], "n": ["k", "n", "diff"]}.items():
            for file in sorted((self.folder / output).rglob("*.parquet")):
                frame = pl.read_parquet(file)
                frame = frame if time is None else frame.filter(pl.col("time") <= time)
                for *row, diff in frame.select(columns).iter_rows():
                    found[output, tuple(row)] += diff
        return {row: count for row, count in found.items() if count}


@settings(max_examples=many(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, logged=st.booleans())
def test_a_full_refresh_is_one_change(steps, logged):
    with tempfile.TemporaryDirectory() as place:
        shop = Shop(Path(place), logged=logged)
        shop.reads(None)
        for step, rows, death in [*steps, ("refresh", [], None)]:
            if step == "write":
                shop.write(rows)
            elif step == "replace":
                shop.replace(rows)
            elif step == "compact":
                shop.compact()
            elif step == "run":
                shop.reads(death)
            else:
                shop.reads(death, refresh=frozenset("c" if step == "one" else ()))


def test_a_record_that_fails_is_logged_once(tmp_path):
    """Whichever outputs are computed anew, and however often; not those that begin to fail with a change of the pipeline."""
    shop = Shop(tmp_path, logged=False)
    shop.write([0, 0, 2])
    for refresh in [None, frozenset("c"), frozenset("cn"), frozenset("n"), frozenset()]:
        shop.reads(None, **({} if refresh is None else {"refresh": refresh}))
    file = tmp_path / "reader.yaml"
    file.write_text(
        file.read_text().replace("  n: {from", '  e: {from: rows, apply: [{map: {k: k, s: "6 / k"}}]}\n  n: {from')
    )
    file.write_text(file.read_text().replace("n: n/", "n: n/, e: e/"))
    run(file, apply=True)
    run(file, refresh=frozenset("e"))
    failed = [pl.read_parquet(each)["diff"].sum() for each in (tmp_path / ".dd/reader/errors").glob("*.parquet")]
    assert sum(failed) == 4

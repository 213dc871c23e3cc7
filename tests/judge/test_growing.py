"""Logs whose files grow, and pipelines that read them: all that comes out is what comes out where each commit has a file of its own."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.driver.run import run
from ddcli.errors import DdError
from ddcli.sources.change_log import read_log
from ddcli.store.log import joint_files
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import verify_state
from tests.draws import many
from tests.harness import write_log

LAST = 12
PRODUCER = """\
dd: 1
name: a
inputs: {rows: in/}
collections: {c: {from: rows, apply: [{reduce: {by: [k], n: count(*), v: max(v)}}]}}
outputs: {c: out/c/, rows: out/rows/}
"""
READER = """\
dd: 1
name: b
inputs: {c: {path: out/c/, columns: {k: int64, n: int64, v: int64?}}, rows: out/rows/}
collections:
  d: {from: c, apply: [{join: {with: rows, on: [k, v]}}, {reduce: {by: [n], m: count(*)}}]}
outputs: {d: out/d/}
"""
CHANGED = READER.replace("m: count(*)", "m: sum(k)")
ARRIVING = """\
dd: 1
name: e
clock: arrival
inputs: {c: out/c/}
outputs: {c: out/e/}
"""
KEYS, VALUES, TIMES = st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)
ROWS = st.lists(st.tuples(KEYS, VALUES, TIMES, st.sampled_from([1, 1, 1, -1])), min_size=1, max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), ROWS),
        st.tuples(st.just("produce"), ROWS),
        st.tuples(st.just("produce"), ROWS),
        st.tuples(st.just("read"), st.sampled_from([None, None, None, 2, 5, 9])),
        st.tuples(st.just("arrive"), st.none()),
        st.tuples(st.sampled_from(["reopen", "reopen reader"]), st.integers(0, 8)),
        st.tuples(st.sampled_from(["change", "refresh", "rewrite"]), st.none()),
    ),
    min_size=3,
    max_size=14,
)


class Twin:
    """A folder with the three pipelines; its logs' files grow from so many on."""

    def __init__(self, folder: Path, apart: int, commits: int) -> None:
        self.folder, self.apart, self.commits = folder, apart, commits
        self.files = self.upper = 0
        folder.mkdir()
        for name, text in (("a", PRODUCER), ("b", READER), ("e", ARRIVING)):
            (folder / f"{name}.yaml").write_text(text)

    def do(self, step: tuple, at: int) -> str | None:
        """Do a step; return the kind of error that it ends with."""
        what, given_ = step
        with mock.patch.multiple(joint_files, APART=self.apart, COMMITS=self.commits):
            try:
                self._do(what, given_, at)
            except DdError as error:
                return type(error).__name__
        return None

    def _do(self, what: str, given_: object, at: int) -> None:
        if what == "produce":
            rows = [(k, v, self.upper + time, diff) for k, v, time, diff in given_]
            write_log(self.folder / f"in/{at}.parquet", rows, ["k", "v", "time", "diff"])
            self.upper = max(time for _, _, time, _ in rows) + 1
            run(self.folder / "a.yaml")
        elif what == "read":
            run(self.folder / "b.yaml", until=None if given_ is None else str(given_))
        elif what == "arrive":
            run(self.folder / "e.yaml", now=f"2020-01-01T00:00:{at:02}")
        elif what in ("reopen", "reopen reader"):
            run(self.folder / ("a.yaml" if what == "reopen" else "b.yaml"), reopen=str(given_))
            if what == "reopen":
                self.upper = min(self.upper, given_)
        elif what == "change":
            (self.folder / "b.yaml").write_text(CHANGED)
            run(self.folder / "b.yaml", apply=True)
        elif what == "refresh":
            run(self.folder / "b.yaml", refresh=frozenset(), apply=True)
        else:
            run(self.folder / "a.yaml", rewrite=frozenset({"c"}))

    def seen(self) -> dict[str, Counter]:
        """Return the updates of each output, whatever files they are in, as a glob sees them, and as `dd log` does."""
        found = {}
        for name in ("c", "rows", "d", "e"):
            directory = self.folder / "out" / name
            if not [*directory.glob("*.parquet")]:
                continue
            frame = pl.read_parquet(directory / "*.parquet")
            shown = read_log(directory, consolidate=True)
            found[name] = Counter()
            for *record, diff in frame.iter_rows():
                found[name][tuple(record)] += diff
            found[name] = {record: diff for record, diff in found[name].items() if diff}
            assert found[name] == {tuple(record): diff for *record, diff in shown.iter_rows()}
        return found

    def check(self) -> None:
        """Look whether states and outputs are whole."""
        for name in ("a", "b", "e"):
            state = self.folder / ".dd" / name
            if (manifest := read_newest(state)) is not None:
                assert not [*verify_state(state, manifest)]


@settings(max_examples=many(10))
@given(STEPS, st.integers(0, 2), st.sampled_from([2, 4, 100]))
def test_growing_files_change_nothing_for_their_readers(steps, apart, commits):
    with tempfile.TemporaryDirectory() as folder:
        growing, plain = (
            Twin(Path(folder) / name, *each)
            for name, each in (("growing", (apart, commits)), ("plain", (1 << 30, commits)))
        )
        for at, step in enumerate(steps):
            ends = {growing.do(step, at), plain.do(step, at)}
            assert len(ends) == 1, (at, step, ends)
            assert growing.seen() == plain.seen(), (at, step)
        growing.check()

"""States that are taken back to a time: files of every format that come in any order over any cut into runs, and reopenings between these,
each of which may die at any file operation. What outputs hold at every open time is what plain Python says of all rows that count, and at
every time that stayed closed what they held before.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ddcli.store.state.directory
from ddcli.driver.run import run
from ddcli.engine.times import Frontier, box
from ddcli.errors import EngineError, InputError
from ddcli.sources.change_log import read_log
from ddcli.store.files.gate import Files
from ddcli.store.state.manifest import read_newest
from ddcli.store.texts import format_time
from tests.draws import many
from tests.judge.case import arrive
from tests.judge.frontiers import BEGINNING, is_closed
from tests.judge.harness import Meaning, same
from tests.judge.logs import cases
from tests.judge.sizes import cut
from tests.reference.model import accumulate
from tests.reference.values import canonical
from tests.store.support import Dead, Faulty

WRITERS = {
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
    "csv": pl.DataFrame.write_csv,
    "ndjson": pl.DataFrame.write_ndjson,
}
OTHERS = {"x": ["one", "two"], "y": ["two"]}
"""What the other input has, by the column on which the two are joined."""
MOST = 9
"""The times of rows are before this one."""
TYPES = {"k": pl.Int64, "v": pl.String, "u": pl.Int64, "time": pl.Int64, "diff": pl.Int64}


def log(rows, _late):
    found = Counter()
    for k, v, _, _, diff in rows:
        found[k, v] += diff
    return found


def append(rows, _late):
    return Counter((k, v) for k, v, *_ in rows)


def upsert(rows, late):
    """Return the last row of each key: by time, and by order where rows may be late."""
    rows = sorted(rows, key=lambda row: row[2] if late == "arrive" else (row[3], row[2]))
    return Counter({k: (k, v) for k, v, *_ in rows}.values())


def snapshots(rows, _late):
    last = max((time for *_, time, _ in rows), default=None)
    return Counter((k, v) for k, v, _, time, _ in rows if time == last)


FORMATS = {
    "log": ({}, log),
    "append": ({"format": "append"}, append),
    "upsert": ({"format": "upsert", "key": ["k"], "order_by": "u"}, upsert),
    "snapshots": ({"format": "snapshots"}, snapshots),
}


def wanted(table):
    """Return what the outputs hold where the first one holds a table."""
    table = {row: count for row, count in table.items() if count}
    counts, pairs = Counter(), Counter()
    for (k, v), count in table.items():
        counts[v] += count
        for w in OTHERS.get(v, []):
            pairs[k, v, w] += count
    return table, {(v, n): 1 for v, n in counts.items() if n}, {pair: count for pair, count in pairs.items() if count}


COLUMNS = {"c": ["k", "v", "diff"], "n": ["v", "n", "diff"], "p": ["k", "v", "w", "diff"]}


class Shop:
    """A folder with a pipeline, and what is known of its files."""

    def __init__(self, folder, format_, kind, late, consumed):
        self.folder, self.kind, self.late, self.format = folder, kind, late, format_
        self.rows: dict[str, list] = {}
        """The rows of each file."""
        self.since: dict[str, int] = {}
        """Of each file that was taken in, before which time its rows were put aside."""
        self.past: dict[int, tuple] = {}
        """What the outputs held at each closed time."""
        self.begun = -1
        """The first time at which all logs are exact: what corrects the times before, or is begun anew, is said there."""
        self.numbers = iter(range(10_000))
        keys, self.meaning = FORMATS[format_]
        columns = {"k": "int64", "v": "string", "u": "int64"}
        a = {"path": "in/", "columns": columns, "late": late, "consumed": consumed, **keys}
        count = {"reduce": {"by": ["v"], "n": "count(*)"}}
        pipeline = {
            "clock": "event",
            "inputs": {"a": a, "b": {"path": "b.parquet"}},
            "collections": {
                "c": {"from": "a", "apply": [{"project": ["k", "v"]}]},
                "n": {"from": "c", "apply": [count]},
                "p": {"from": "c", "apply": [{"join": {"with": "b", "on": ["v"]}}]},
            },
            "outputs": {"c": "c/", "n": "n/", "p": "p/"},
        }
        self.pipeline = folder / "p.yaml"
        self.pipeline.write_text(yaml.safe_dump(pipeline, sort_keys=False))
        (folder / "in").mkdir()
        others = [(v, w, -1, 1) for v, ws in OTHERS.items() for w in ws]
        pl.DataFrame(others, ["v", "w", "time", "diff"], orient="row").write_parquet(folder / "b.parquet")

    @property
    def manifest(self):
        return read_newest(self.folder / ".dd/p")

    @property
    def upper(self):
        manifest = self.manifest
        return manifest.upper[0][0] if manifest else None

    def write(self, rows):
        name = f"{next(self.numbers)}.{self.kind}"
        self.rows[name] = [(k, v, next(self.numbers), time, diff) for k, v, time, diff in rows]
        frame = pl.DataFrame(self.rows[name], TYPES, orient="row")
        WRITERS[self.kind](frame if self.format == "log" else frame.drop("diff"), self.folder / "in" / name)
        return name

    def do(self, death, **options):
        """Run or reopen, and again if it dies."""
        for at in [death, None] if death is not None else [None]:
            files = Faulty(at) if at is not None else Files()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ddcli.store.state.directory, "Files", lambda files=files: files)
                lower = self.upper
                try:
                    run(self.pipeline, **options)
                except Dead:
                    self.note(lower)
                else:
                    self.note(lower)
                    return

    def note(self, lower):
        """Note which files have been taken in since the times before `lower` were closed."""
        for file in self.manifest.inputs["a"].files if self.manifest else ():
            if file.path not in self.since and not file.withdrawn:
                late = lower is not None and self.late == "quarantine"
                self.since[file.path] = lower if late else -100

    def come(self, files, until, death):
        new = [self.write(rows) for rows in files]
        try:
            self.do(death, until=None if until is None else str(until))
        except InputError as refused:
            said = refused.render()
        else:
            return
        assert "late rows" in said
        assert self.late == "error"
        for name in new:
            self.since.pop(name, None)
            (self.folder / "in" / name).unlink()
            del self.rows[name]

    def withdraw(self, number, death):
        if not self.since:
            return
        name = sorted(self.since)[number % len(self.since)]
        self.do(death, withdraw=[self.folder / "in" / name])
        del self.since[name]
        self.begun = max(self.begun, self.upper)

    def reopen(self, time, death, rewrite):
        upper = self.upper
        if upper is None:
            return
        self.do(death, reopen=str(time), rewrite=rewrite)
        if time < upper:
            self.begun = time if rewrite else min(time, self.begun)
        self.past = {at: held for at, held in self.past.items() if at < time and not rewrite}
        self.since = {name: min(since, time) for name, since in self.since.items()}
        assert self.upper == min(upper, time)

    def check(self):
        upper = self.upper
        if upper is None:
            return
        taken = [row for name, since in self.since.items() for row in self.rows[name] if row[3] >= since]
        before = [row for row in taken if row[3] < upper]
        assert self.held(MOST + 100) == wanted(self.meaning(before, self.late))
        for time in range(-1, min(upper, MOST)):
            there = self.held(time)
            assert self.past.setdefault(time, there) == there, time
            if self.late == "error" and time >= self.begun:
                assert there == wanted(self.meaning([row for row in taken if row[3] <= time], self.late)), time
        if self.late == "quarantine":
            aside = Counter(
                (k, v, time)
                for name, since in self.since.items()
                for k, v, _, time, diff in self.rows[name]
                for _ in range(diff if self.format == "log" else 1)
                if time < since
            )
            assert self.aside() == +aside

    def held(self, time):
        """Return what the outputs hold at a time."""
        return tuple(self.output(name, time) for name in "cnp")

    def output(self, name, time):
        found = Counter()
        for file in sorted((self.folder / name).glob("*.parquet")):
            frame = pl.read_parquet(file).filter(pl.col("time") <= time).select(COLUMNS[name])
            for *record, diff in frame.iter_rows():
                found[tuple(record)] += diff
        return {each: count for each, count in found.items() if count}

    def aside(self):
        found = Counter()
        for file in sorted((self.folder / ".dd/p/late/a").glob("*.parquet")):
            for k, v, time, diff in pl.read_parquet(file).select("k", "v", "time", "diff").iter_rows():
                found[k, v, time] += diff
        return Counter({each: count for each, count in found.items() if count})


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["x", "y", "z"]), st.integers(0, MOST - 1), st.just(1)),
    max_size=4,
)
COME = st.tuples(
    st.just("come"),
    st.lists(ROWS, max_size=2),
    st.none() | st.integers(0, MOST),
    st.none() | st.integers(0, 50),
)
WITHDRAW = st.tuples(st.just("withdraw"), st.integers(0, 9), st.none() | st.integers(0, 50))
REOPEN = st.tuples(
    st.just("reopen"),
    st.integers(-1, MOST),
    st.none() | st.integers(0, 60),
    st.sampled_from([frozenset(), frozenset(), frozenset({"n"}), frozenset("cnp")]),
)


@settings(max_examples=many(14), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    history=st.lists(COME | COME | COME | REOPEN | REOPEN | WITHDRAW, min_size=2, max_size=7),
    format_=st.sampled_from(list(FORMATS)),
    kind=st.sampled_from(list(WRITERS)),
    late=st.sampled_from(["error", "arrive", "quarantine"]),
    chance=st.none() | st.tuples(st.sampled_from([1, 3]), st.integers(0, 9)),
    archived=st.booleans(),
)
def test_reopened(history, format_, kind, late, chance, archived):
    late = "quarantine" if (format_, late) == ("snapshots", "arrive") else late
    with tempfile.TemporaryDirectory() as place, nullcontext() if chance is None else cut(*chance):
        shop = Shop(Path(place), format_, kind, late, {"archive": "done/"} if archived else "keep")
        for step, *rest in history:
            getattr(shop, step)(*rest)
            shop.check()
        if shop.upper is not None and any((shop.folder / "c").glob("*.parquet")):
            assert read_log(shop.folder / "c", as_of="latest").height == len(shop.output("c", MOST + 100))


def judge_reopenings(case, opened, root):
    """Run a case, and after its runs open the times again that are drawn; hold what each closed time says against its meaning."""
    path = root / "p.yaml"
    path.write_text(case.text, encoding="utf-8")
    meaning = Meaning(case)
    times, kinds = meaning.times(), case.time_types
    frontier, logs, seen = ((BEGINNING,) * len(case.times),), {}, set()
    steps = [(number, this, at) for number, (this, at) in enumerate(zip(case.runs, opened, strict=True))]
    for number, this, at in [*steps, (None, case.runs[-1], None)]:
        if number is not None:
            arrive(case, number, root)
        for options in [{"until": case.until(this)}, *([{"reopen": format_time(at, kinds)}] if at else [])]:
            if "reopen" in options and read_newest(root / ".dd" / "judged") is None:
                continue
            try:
                run(path, **options)
            except (InputError, EngineError):
                meant = [meaning.at(time) for time in times]
                assert any(not isinstance(found, tuple) or found[1] for found in meant), "the run was refused"
                return
            manifest = read_newest(root / ".dd" / "judged")
            lower, frontier = frontier, manifest.upper if manifest else frontier
            if at and "reopen" in options:
                assert Frontier(frontier) == box(at).meet(Frontier(lower))
                lower = frontier
            for name, node in meaning.graph.outputs.items():
                log = logs.setdefault(name, Counter())
                for file in sorted({*(root / "out" / name).rglob("*.parquet")} - seen):
                    seen.add(file)
                    frame = pl.read_parquet(file).with_columns(pl.col(case.times).to_physical())
                    for *row, diff in frame.rows():
                        time = tuple(row[len(node.schema) :])
                        assert not is_closed(lower, time), f"{file.name}: {row} was closed before, up to {lower}"
                        log[canonical(row[: len(node.schema)]), time] += diff
                updates = [(record, time, diff) for (record, time), diff in log.items()]
                for time in times:
                    if is_closed(frontier, time):
                        same(accumulate(updates, time), meaning.at(time)[0][name], f"{name} at {time} of run {number}")


@st.composite
def reopened(draw, **options):
    """Give a case, and for each of its runs the time from which on times are opened after it, if they are."""
    case = draw(cases(**options))
    time = st.tuples(*[st.integers(-1, 6)] * len(case.times))
    return case, [draw(st.none() | time) for _ in case.runs]


@settings(max_examples=many(6))
@given(
    st.tuples(st.sampled_from([1, 1, 1, 2, 3]), st.booleans()).flatmap(lambda way: reopened(nt=way[0], looping=way[1])),
    st.sampled_from([1, 3]),
    st.integers(0, 2**32),
)
def test_random_pipelines(found, shards, seed):
    """Whatever the operators keep of the past, in loops and out of core, in times of any number of coordinates."""
    with tempfile.TemporaryDirectory() as folder, cut(shards, seed):
        judge_reopenings(*found, Path(folder))

"""Random pipelines of which rows are forgotten, by a command that may die at any file operation: state and outputs are then what they are
where these rows never came, of all times that are closed; and so they stay in later runs, when the rows are gone from the inputs, too.
"""

from __future__ import annotations

import datetime as dt
import re
import tarfile
import tempfile
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType

import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ddcli.store.state.directory
from ddcli.driver import forgotten_parts, migration
from ddcli.driver.forget import forget
from ddcli.driver.run import run
from ddcli.engine.times import Frontier
from ddcli.errors import EngineError, InputError, StateError
from ddcli.runtime import scheduler
from ddcli.sinks import outputs, pieces
from ddcli.sinks.log_compaction import compact
from ddcli.store.files.gate import Files
from ddcli.store.log import joint_files
from ddcli.store.log.joint_files import read_summary
from ddcli.store.state import batch_lists
from ddcli.store.state.contents import batch_path, batches_of
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import read_owned
from ddcli.store.tables import listing
from tests.draws import chance, many
from tests.judge import test_arrival as arrival
from tests.judge.case import write_file
from tests.judge.logs import cases
from tests.judge.test_full_refresh import Shop
from tests.judge.test_withdrawal import NESTED
from tests.spark.support import Here, started, switching
from tests.store.support import Dead, Faulty

CONDITIONS = {"k = 1": lambda k: k == 1, "k <> 1 or k is null": lambda k: k != 1, "k in (0, 2)": lambda k: k in (0, 2)}
STATE = ".dd/judged"


def log_of(folder, horizon=None):
    """Return the updates of a log, whatever files they are in, those before a horizon as of then."""
    found = Counter()
    for path in sorted(folder.rglob("*.parquet")):
        for *row, diff in pl.read_parquet(path).iter_rows():
            if horizon is not None:
                row[-1] = max(row[-1], horizon)
            found[repr(row)] += diff
    return {row: diff for row, diff in found.items() if diff}


def logs_of(root, horizons=MappingProxyType({})):
    found = {path.name: log_of(path, horizons.get(path.name)) for path in sorted((root / "out").glob("*"))}
    return {name: log for name, log in found.items() if log}


def horizons_of(root):
    """Return as of when the older part of logs is summed up, by their names."""
    summed = {path.parent.name: read_summary(path) for path in (root / "out").glob("*/*-summed*.parquet")}
    return {name: summary.horizon[0] for name, summary in summed.items()}


def state_of(root, *, history):
    """Return what the arrangements of a state hold, with times where the past is kept."""
    found = {}
    manifest = read_newest(root / STATE)
    for identity, shard, file in batches_of(manifest):
        data = batch_path(root / STATE, identity, shard, file).read_bytes()[file.at : file.at + file.size]
        rows = found.setdefault(identity, Counter())
        frame = pl.read_parquet(data).drop("_key", strict=False)
        times = () if history else ("^_time.*$",)
        for *row, diff in frame.select(pl.exclude("_diff", *times), "_diff").iter_rows():
            rows[repr(row)] += diff
    return {name: {row: n for row, n in rows.items() if n} for name, rows in found.items() if any(rows.values())}


def without(file, inputs, holds):
    """Return a file without the rows that are forgotten."""
    if file.input not in inputs:
        return file
    return replace(file, updates=tuple(update for update in file.updates if not holds(update[0][0])))


def supply(case, root, number, turn=lambda file: file):
    for at, file in enumerate(case.runs[number].files):
        write_file(case, turn(file), root / "in" / file.input / f"{number}-{at}.parquet")


def counted(case, manifest, inputs, number, holds):
    """Return how many rows of each input are forgotten, of the files that the state has taken in."""
    taken = {name: {file.path for file in manifest.inputs[name].files} for name in inputs}
    rows = dict.fromkeys(inputs, 0)
    for each in range(number + 1):
        for at, file in enumerate(case.runs[each].files):
            if f"{each}-{at}.parquet" in taken.get(file.input, ()):
                rows[file.input] += sum(holds(record[0]) for record, _, _ in file.updates)
    return rows


def forgotten(root, where, inputs, death, name="p.yaml"):
    """Forget rows, and again if the process dies."""
    files = Faulty(death) if death is not None else Files()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ddcli.store.state.directory, "Files", lambda: files)
        try:
            return forget(root / name, where, inputs)
        except Dead:
            pass
    return forget(root / name, where, inputs)


@settings(max_examples=many(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=cases() | cases() | cases(nt=2),
    where=st.sampled_from(list(CONDITIONS)),
    number=st.integers(0, 9),
    chosen=st.integers(0, 9),
    death=st.none() | st.integers(0, 40),
    settings_=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_state_and_outputs_are_those_without_the_rows(case, where, number, chosen, death, settings_):
    history, growing, summed = settings_
    case = replace(case, runs=tuple(replace(each, progress=()) for each in case.runs))
    case = replace(case, text=case.text + "history: all\n" * history)
    names = list(case.tree["inputs"])
    inputs = names if chosen % 3 == 0 else [names[chosen % len(names)]]
    number, holds = number % len(case.runs), CONDITIONS[where]
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_files, "APART", 0 if growing else joint_files.APART)
        root, clean = Path(place) / "cut", Path(place) / "clean"
        for folder in (root, clean):
            folder.mkdir()
            (folder / "p.yaml").write_text(case.text)
        try:
            for at in range(number + 1):
                supply(case, root, at)
                run(root / "p.yaml", until=case.until(case.runs[at]))
        except (InputError, EngineError):
            return  # an expression fails, or a loop doesn't end: others judge that
        manifest = read_newest(root / STATE)
        if manifest is None:
            return
        if summed and len(manifest.upper and manifest.upper[0]) < 2:
            compact(str(root / "p.yaml"), root)
        horizons = horizons_of(root)
        corners = Frontier(manifest.upper).corners()
        for at in range(number + 1):
            supply(case, clean, at, lambda file: without(file, inputs, holds))
        try:
            for corner in corners:
                run(clean / "p.yaml", until=",".join(map(str, corner)))
        except (InputError, EngineError):
            with pytest.raises((InputError, EngineError)):
                forgotten(root, where, inputs, None)
            return
        found = forgotten(root, where, inputs, death)
        rows = counted(case, manifest, inputs, number, holds)
        assert {name: each.rows for name, each in found.inputs.items()} == rows
        assert horizons_of(root) == horizons
        assert logs_of(root) == logs_of(clean, horizons)
        assert state_of(root, history=history) == state_of(clean, history=history)
        listed = {path for path in root.rglob("*") if path.is_file()}
        assert not [path for path in listed if path.name.endswith(".dd-tmp")]
        if any(rows.values()):
            with pytest.raises(StateError, match="would come back"):
                run(root / "p.yaml", refresh=frozenset())
        if number + 1 == len(case.runs):
            return
        for at in range(number + 1):
            supply(case, root, at, lambda file: without(file, inputs, holds))
        again = forgotten(root, where, inputs, None)
        assert not again.still_in
        assert not again.rewritten
        try:
            for folder in (root, clean):
                supply(case, folder, number + 1, lambda file: without(file, inputs, holds))
                run(folder / "p.yaml", until=",".join(str(max(each) + 2) for each in zip(*corners, strict=True)))
        except (InputError, EngineError):
            return
        assert logs_of(root) == logs_of(clean, horizons)


ROWS = {
    "k = 1": lambda row, _keyed: row[0] == 1,
    "v = 'x'": lambda row, keyed: row[1] == "x" and not (keyed and row[3] == "D"),
}
"""The rows for which a condition holds: one that deletes a key has no other values."""


def arrive(folder, format_, kind, clock, consumed, late):
    """Make a folder with a pipeline over files of a format."""
    (folder / "in").mkdir(parents=True)
    keys = (NESTED if format_ in NESTED else arrival.FORMATS)[format_][0]
    columns = {name: type_ for name, type_ in arrival.COLUMNS.items() if name != "diff" or format_ == "log"}
    columns = {"k": "int64", "v": "string?"} if format_ in NESTED else columns
    late = {"late": late} if clock == "event" else {}
    tree = {
        "dd": 1,
        "name": "p",
        "clock": clock,
        "errors": "quarantine",
        "inputs": {"a": {"path": "in/", "columns": columns, "consumed": consumed, **keys, **late}},
        "collections": {
            "c": {"from": "a", "apply": [{"project": ["k", "v"]}]},
            "n": {"from": "c", "apply": [{"reduce": {"by": ["v"], "n": "count(*)", "least": "min(k)"}}]},
            "f": {"from": "c", "apply": [{"map": {"w": "10 / (k - 2)"}}]},
        },
        "outputs": {"c": "out/c/", "n": "out/n/", "f": "out/f/"},
    }
    (folder / "p.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))


def bring(folder, format_, kind, path, rows):
    place = folder / "in" / f"{path}.{kind}"
    place.parent.mkdir(parents=True, exist_ok=True)
    turn, schema = NESTED[format_][2:] if format_ in NESTED else (list, arrival.SCHEMA)
    arrival.WRITERS[kind](pl.DataFrame([*turn(rows)], schema, orient="row"), place)


def asides(root):
    """Return what the logs of late and failed rows hold."""
    found = Counter()
    for path in sorted((root / ".dd/p").rglob("updates-*.parquet")):
        for *row, diff in pl.read_parquet(path).iter_rows():
            found[path.parent.name, repr(row)] += diff
    return {row: diff for row, diff in found.items() if diff}


@settings(max_examples=many(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    history=arrival.histories(),
    format_=st.sampled_from([*arrival.FORMATS, *NESTED]),
    kind=st.sampled_from(["parquet", "ndjson", "csv"]),
    where=st.sampled_from(list(ROWS)),
    number=st.integers(0, 4),
    clock=st.sampled_from(["arrival", "arrival", "event"]),
    consumed=st.sampled_from(["keep", {"archive": "done/"}]),
    late=st.sampled_from(["quarantine", "arrive"]),
)
def test_formats(history, format_, kind, where, number, clock, consumed, late):
    kind = kind if format_ not in NESTED or kind != "csv" else "ndjson"
    keyed = "key" in (NESTED if format_ in NESTED else arrival.FORMATS)[format_][0]
    late = "quarantine" if format_ == "snapshots" else late
    clock = "arrival" if keyed or format_ in {*NESTED, "newest"} else clock  # rows of a key at one time are refused
    with tempfile.TemporaryDirectory() as place:
        root, clean = Path(place) / "cut", Path(place) / "clean"
        for folder in (root, clean):
            arrive(folder, format_, kind, clock, consumed, late)
        number, now = number % len(history), 0
        for at, (files, death) in enumerate(history):
            now += 7
            text = (arrival.EPOCH + dt.timedelta(microseconds=now)).isoformat()
            for path, rows in files:
                left = [row for row in rows if not ROWS[where](row, keyed)]
                bring(clean, format_, kind, path, left)
                bring(root, format_, kind, path, left if at > number else rows)
            for folder in (root, clean):
                there, here = (read_newest(each / ".dd/p") for each in (root, clean))
                told = folder == clean and clock == "event" and there and (here is None or here.upper != there.upper)
                until = str(there.upper[0][0]) if told else None
                run(folder / "p.yaml", until=until, **({"now": text} if clock == "arrival" else {}))
            if at != number or read_newest(root / ".dd/p") is None:
                continue
            forgotten(root, where, ["a"], death)
            if late == "arrive" and clock == "event":
                once = Path(place) / "once"
                arrive(once, format_, kind, clock, consumed, late)
                taken = [file.path for file in read_newest(root / ".dd/p").inputs["a"].files]
                for path, rows in [each for files_, _ in history[: at + 1] for each in files_]:
                    if f"{path}.{kind}" in taken:
                        bring(once, format_, kind, path, [row for row in rows if not ROWS[where](row, keyed)])
                run(once / "p.yaml", until=str(read_newest(root / ".dd/p").upper[0][0]))
                assert logs_of(root) == logs_of(once)
                return
            assert logs_of(root) == logs_of(clean)
            assert asides(root) == asides(clean)
            for path in (clean / "done").rglob("*.*"):
                other = root / path.relative_to(clean)
                if kind == "parquet":
                    assert pl.read_parquet(path).equals(pl.read_parquet(other))
                else:
                    assert path.read_bytes() == other.read_bytes()
            for files_, _ in history[: at + 1] if consumed == "keep" else ():
                for path, rows in files_:
                    bring(root, format_, kind, path, [row for row in rows if not ROWS[where](row, keyed)])
            assert not forgotten(root, where, ["a"], None).still_in
        assert logs_of(root) == logs_of(clean)
        assert asides(root) == asides(clean)


def test_what_has_come_before_rows_are_forgotten_is_taken_in_by_the_next_run(tmp_path):
    """A command that takes nothing in has seen the file, so that it is not new to the run."""
    shop = Shop(tmp_path, logged=True)
    shop.reads(None)
    shop.write([2, 2])
    forgotten(tmp_path, "k = 99", ["rows"], None, "reader.yaml")
    shop.reads(None)


class Groups(Shop):
    """A reader, by arrival, of a log that is summed up, and what it took in at which time: all that was summed up came with the last of it."""

    def __init__(self, folder):
        super().__init__(folder, logged=True)
        self.groups, self.pending, self.lost = [], [1], False

    def write(self, rows):
        if self.count:
            self.pending = [*self.pending, *rows]
        super().write(rows)

    def compact(self):
        super().compact()
        self.lost |= bool(self.pending)
        if self.groups and not self.lost:
            self.groups = [(self.groups[-1][0], [k for _, rows in self.groups for k in rows])]

    def take(self, *, anew):
        if anew and self.lost:
            self.groups, self.pending, self.lost = (
                [],
                [k for _, rows in self.groups for k in rows] + self.pending,
                False,
            )
        if not self.lost:
            self.reads(None, **({"refresh": frozenset()} if anew else {}))
            if self.pending:
                self.groups.append((self.since, self.pending))
            self.pending = []

    def forget(self, death):
        """Forget what is not there, and see each time that the log has still."""
        if self.lost or not self.groups:
            return
        forgotten(self.folder, "k = 99", ["rows"], death, "reader.yaml")
        assert self.held() == self.before
        summed = bool([*(self.folder / "log").glob("*-summed*")])
        for output in "cn":
            (_, owner) = read_owned(self.folder / output)
            assert owner.horizon == (arrival.BEFORE + self.groups[0][0] if summed else None)
        held = []
        for time, rows in self.groups:
            held += rows
            found = Counter(held)
            meant = {("n", (k, n)): 1 for k, n in found.items()} | {("c", (k, 6 / k)): n for k, n in found.items() if k}
            assert self.held(arrival.EPOCH + dt.timedelta(microseconds=time)) == meant


@pytest.mark.parametrize("seed", range(many(12)))
def test_what_was_summed_up_of_a_log_came_with_the_last_of_it(tmp_path, seed):
    draw = chance("groups", seed)
    shop = Groups(tmp_path)
    shop.take(anew=False)
    for _ in range(draw.randrange(3, 7)):
        for _ in range(draw.randrange(3)):
            shop.write([draw.randrange(4) for _ in range(draw.randrange(3))])
        if draw.random() < 0.8:
            shop.take(anew=False)
        if draw.random() < 0.4:
            shop.compact()
        if draw.random() < 0.3:
            shop.take(anew=True)
        if draw.random() < 0.3:
            shop.forget(draw.choice([None, draw.randrange(60)]))
    shop.forget(None)


def test_a_state_that_has_no_time_of_what_was_summed_up_loses_nothing(tmp_path, monkeypatch):
    """Versions before noted none, and then forgot all rows of the log."""
    shop = Groups(tmp_path)
    shop.take(anew=False)
    shop.write([2])
    shop.take(anew=False)
    shop.compact()
    plain = listing.taken_as
    with monkeypatch.context() as patch:
        patch.setattr(listing, "taken_as", lambda *given: replace(plain(*given), at=None))
        shop.write([3])
        shop.take(anew=False)
    files = read_newest(tmp_path / ".dd/reader").inputs["rows"].files
    assert [file.at is None for file in files] == ["-summed" in file.path for file in files]
    shop.groups = [(shop.since, [1, 2, 3])]
    shop.forget(None)


COLLECTIONS = {
    "kept": "{from: sales, apply: [{project: [k, v, w]}]}",
    "words": "{from: sales, apply: [{filter: n <> 2}, {map: {w: w}}]}",
    "sums": "{from: sales, apply: [{reduce: {by: [k], n: count(*), s: sum(n), w: max(w)}}]}",
    "pairs": "{from: sales, apply: [{reduce: {by: [v, k], n: count(*)}}]}",
    "first": "{from: sales, apply: [{top_k: {by: [k], k: 1, order_by: [n desc]}}]}",
    "alike": "{from: sales, apply: [{project: [k, v]}, distinct]}",
    "named": "{from: sales, apply: [{join: {with: people, on: [k]}}, {project: [k, w, email]}]}",
    "all": "{from: sales, apply: [{join: {with: people, on: [k], how: left}}, {map: {w: w, email: email}}]}",
    "strange": "{from: sales, apply: [{antijoin: {with: people, on: [k]}}]}",
    "rated": "{from: sales, apply: [{join: {with: rates, on: [v]}}, {reduce: {by: [k], r: sum(n * rate)}}]}",
    "ranked": "{from: sales, apply: [{window: {by: [k], order_by: [n, w], columns: {at: row_number()}}}]}",
    "while": "{from: sales, apply: [{temporal_filter: {from: day + n, until: day + 2 * n + 1}}]}",
    "by_day": "{from: sales, apply: [{reduce: {by: [day], n: count(*), s: sum(n)}}]}",
    "by_value": "{from: sales, apply: [{reduce: {by: [v], n: count(*), least: min(n), first: min(w)}}]}",
    "total": "{from: sales, apply: [{reduce: {n: count(*), s: sum(n), some: count(k)}}]}",
    "least": "{from: sales, apply: [{reduce: {v: min(v), w: max(w), all: count(distinct w)}}]}",
    "top": "{from: sales, apply: [{top_k: {k: 2, order_by: [n desc, w]}}]}",
    "whole": "{from: sales, apply: [{reduce: {t: sum(n)}}, {map: {t: t, one: 1}}]}",
    "persons": "{from: sums, apply: [{reduce: {n: count(*), s: sum(s), w: min(w)}}]}",
    "shares": "{from: sales, apply: [{map: {w: w, n: n, one: 1}}, {join: {with: whole, on: [one]}}, {map: {w: w, share: 100 * n, t: t}}]}",
    "linked": "{iterate: {variables: {c: edges}, body: {c: {from: c, apply: [{join: {with: edges, as: e, on: {b: a}}}, {map: {a: a, b: e.b, w: w}}, {concat: edges}, distinct]}}, result: c}}",
    "edges": "{from: sales, apply: [{map: {a: v, b: n, w: w}}, distinct]}",
    "emails": "{from: people, apply: [{project: [email]}]}",
}
BELOW = {"persons": "sums", "shares": "whole", "linked": "edges"}
"""The collections that others read."""
CHECKS = """\
checks:
  - {unique: [k, day], of: sales, otherwise: warn}
  - {not_null: [k], of: sales, otherwise: CONSEQUENCE}
  - {row: n <> 2, of: sales, otherwise: CONSEQUENCE}
  - {refers: {k: people.k}, of: sales, otherwise: CONSEQUENCE}
  - {in: {email: ['ann-MARK@1.']}, of: people, otherwise: warn}
  - {change: {rows: 50%, sum(n): 1000}, of: sales, otherwise: warn}
  - {change: {max(length(email)): 100}, of: people, otherwise: warn}
"""
INPUTS = """\
  sales: {path: in/sales/, format: append, columns: {k: "string?", v: int64, n: int64, w: string, day: int64}, time: day, changed: replace}
  people: {path: in/people/, format: upsert, key: [k], columns: {k: "string?", email: "string?"}, time: day}
  rates: {path: in/rates/, format: append, columns: {v: int64, rate: int64}, time: day}
"""


def given_files(draw, runs):
    """Return the rows of each run's files: of sales, of people, and of rates, with a mark in each text of a person."""
    found = []
    for at in range(runs):
        files = {}
        for part in range(draw.randrange(1, 3)):
            sales = [
                (
                    draw.choice(["ann", "bob", "eve", None]),
                    draw.randrange(3),
                    draw.randrange(4),
                    draw.randrange(3 * at, 3 * at + 3),
                )
                for _ in range(draw.randrange(8))
            ]
            files[f"sales/{at}-{part}"] = [(k, v, n, f"{k}-MARK-{v}.", day) for k, v, n, day in sales]
        people = {
            (draw.choice(["ann", "bob", "eve"]), draw.randrange(3 * at, 3 * at + 3)) for _ in range(draw.randrange(4))
        }
        files[f"people/{at}"] = [(k, draw.choice([f"{k}-MARK@{day}.", None]), day) for k, day in sorted(people)]
        files[f"rates/{at}"] = [(draw.randrange(3), draw.randrange(5), 3 * at) for _ in range(draw.randrange(3))]
        found.append(files)
    return found


SCHEMAS = {
    "sales": {"k": pl.String, "v": pl.Int64, "n": pl.Int64, "w": pl.String, "day": pl.Int64},
    "people": {"k": pl.String, "email": pl.String, "day": pl.Int64},
    "rates": {"v": pl.Int64, "rate": pl.Int64, "day": pl.Int64},
}


def bring_files(folder, files, gone, inputs):
    for path, rows in files.items():
        name, place = path.split("/")[0], folder / f"in/{path}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        left = [row for row in rows if name not in inputs or not gone(dict(zip(SCHEMAS[name], row, strict=True)))]
        pl.DataFrame(left, SCHEMAS[name], orient="row").write_parquet(place)


def texts_in(folder, places=(".dd", "out")):
    """Return the marks in the bytes of state and outputs, as they are and decoded, and of the copies of files in them."""
    found = set()
    for path in (path for place in places for path in (folder / place).rglob("*") if path.is_file()):
        parts = [path.read_bytes()]
        if path.suffix == ".tar":
            with tarfile.open(path) as bundle:
                parts += [bundle.extractfile(member).read() for member in bundle]
        while parts:
            part = parts.pop()
            found.update(MARKED.findall(part))
            if part[:4] == b"PAR1":
                frame = pl.read_parquet(part)
                parts += frame["content"].to_list() if "content" in frame.columns else []
                found.update(MARKED.findall(frame.drop("content", strict=False).write_json().encode()))
    return found


MARKED = re.compile(rb"(?:ann|bob|eve|None)-MARK[-@][0-9]+[.]")
WHERES = {
    "k = 'ann'": (["sales", "people"], lambda row: row["k"] == "ann"),
    "k in ('ann', 'eve')": (["sales"], lambda row: row["k"] in ("ann", "eve")),
    "k = 'bob' ": (["people"], lambda row: row["k"] == "bob"),
    "n = 1": (["sales"], lambda row: row["n"] == 1),
    "k is null": (["sales"], lambda row: row["k"] is None),
}


@pytest.mark.parametrize("seed", range(many(6)))
def test_tables_keep_rows_apart(tmp_path, seed, monkeypatch):
    """Each file is the whole table, so what is written are the files with the rows. A table is there also if all its rows are forgotten.

    By the times of rows it is not, and of ordered tables another is the newest then: where that is so, all is computed anew.
    """
    draw = chance("tables", seed)
    key, kind = draw.choice(["", "key: [k], "]), draw.choice(["", "", "event", "ordered"])
    more = {"": "", "event": ", day: int64", "ordered": ", day: int64"}[kind]
    asked = {"": "", "event": "time: day, ", "ordered": "order_by: day, "}[kind]
    text = "clock: event\n" if kind == "event" else ""
    text += f"name: judged\ninputs:\n  sales: {{path: in/sales/, format: snapshots, {key}{asked}columns: {{k: string?, n: int64, w: string{more}}}}}\n"
    people = (
        "k: string?, email: string?, day: int64}, time: day}" if kind == "event" else "k: string?, email: string?}}"
    )
    text += f"  people: {{path: in/people/, format: upsert, key: [k], columns: {{{people}\n"
    text = text.replace("string?", '"string?"') + draw.choice(["", "history: all\n"])
    names = draw.sample(["kept", "sums", "first", "named", "strange"], 3)
    collections = {
        "kept": "{from: sales, apply: [{project: [k, n, w]}]}",
        "sums": "{from: sales, apply: [{reduce: {by: [k], n: count(*), w: max(w)}}]}",
        **{name: COLLECTIONS[name] for name in ("first", "named", "strange")},
    }
    text += "collections:\n" + "".join(f"  {name}: {collections[name]}\n" for name in names)
    text += "outputs:\n" + "".join(f"  {name}: out/{name}/\n" for name in names)
    gone = draw.choice([["ann"], ["ann", "bob"], ["eve"]])
    where = f"k in ({', '.join(map(repr, gone))})"
    whole, clean = tmp_path / "whole", tmp_path / "clean"
    schemas = {"sales": {"k": pl.String, "n": pl.Int64, "w": pl.String}, "people": {"k": pl.String, "email": pl.String}}
    for name in {"": (), "event": ("sales", "people"), "ordered": ("sales",)}[kind]:
        schemas[name]["day"] = pl.Int64
    for folder in (whole, clean):
        folder.mkdir()
        (folder / "p.yaml").write_text(text)

    tables = {whole: [], clean: []}

    def counting(folder):
        """Return the tables that count, each by its order."""
        found, newest = [], -1
        for orders in tables[folder] if kind else ():
            newest = max([newest, *orders])
            found.append(newest if newest in orders else None)
        return found

    def bring(at, *, all_rows):
        people = ["ann", "bob", "eve", *([] if key else [None])]
        chosen = draw.sample(people, draw.randrange(len(people))) if draw.random() < 0.8 else gone[:1]
        rows = {
            f"sales/{at}": [(k, draw.randrange(3), f"{k}-MARK-{draw.randrange(2)}.") for k in chosen],
            f"people/{at}": [(k, f"{k}-MARK@{at}.") for k in draw.sample(people[:3], draw.randrange(3))],
        }
        day = at if kind == "event" else draw.choice([at, at, at - 1, 3])
        apart = kind == "ordered" and draw.random() < 0.4  # rows of several tables, of which one counts
        rows = {
            path: [
                (*row, day - (apart and not draw.randrange(3))) if "day" in schemas[path.split("/")[0]] else row
                for row in every
            ]
            for path, every in rows.items()
        }
        for folder in (whole, clean):
            for path, every in rows.items():
                place = folder / f"in/{path}.parquet"
                place.parent.mkdir(parents=True, exist_ok=True)
                kept = [row for row in every if folder == all_rows or row[0] not in gone]
                pl.DataFrame(kept, schemas[path.split("/")[0]], orient="row").write_parquet(place)
                if path.startswith("sales"):
                    tables[folder].append([row[-1] for row in kept])
            run(folder / "p.yaml", **({"until": str(at + 1)} if kind == "event" else {"now": f"2021-01-{at + 1:02}"}))

    for at in range(draw.randrange(1, 5)):
        bring(at, all_rows=whole)
    ways, erase = [], migration.erase
    monkeypatch.setattr(migration, "erase", lambda *given: ways.append(erase(*given)) or ways[-1])
    forgotten(whole, where, ["sales", "people"], None)
    assert None not in ways or counting(whole) != counting(clean)
    assert logs_of(whole) == logs_of(clean)
    assert state_of(whole, history="all" in text) == state_of(clean, history="all" in text)
    assert texts_in(whole) <= texts_in(clean)
    for at in range(9):
        for name in ("sales", "people"):
            if (place := whole / f"in/{name}/{at}.parquet").exists():
                place.write_bytes((clean / f"in/{name}/{at}.parquet").read_bytes())
    assert not forgotten(whole, where, ["sales", "people"], None).still_in
    bring(9, all_rows=None)
    assert logs_of(whole) == logs_of(clean)


def verdicts_in(root):
    """Return the violations of each check as the manifest counts them, and as they are in its log, and its measures."""
    kept = read_newest(root / STATE).cache.get("checks", {})
    logs = {name: sum(log_of(root / STATE / "logs" / name).values()) for name in kept}
    return {name: (entry["violations"], entry.get("measures"), logs[name]) for name, entry in kept.items()}


@pytest.mark.parametrize("seed", [*range(many(10)), 697, 775])
def test_only_what_the_rows_touch_is_written(tmp_path, seed, monkeypatch):
    """Where all operators keep the rows of a person apart nothing is computed anew, and the results are those of a pipeline that never had the rows.

    In 697 and 775 batches of tasks have the same times, and the keys of one are around those of another.
    """
    draw = chance("partitions", seed)
    where = draw.choice(list(WHERES))
    inputs, gone = WHERES[where]
    runs = given_files(draw, draw.randrange(1, 5))
    names = draw.sample(list(COLLECTIONS), draw.randrange(1, 6))
    history = draw.choice(["", "history: all\n", "history: 2\n"])
    text = f"dd: 1\nname: judged\n{history}inputs:\n{INPUTS}collections:\n"
    text += "".join(f"  {name}: {COLLECTIONS[name]}\n" for name in sorted({*names, *map(BELOW.get, names)} - {None}))
    text += "outputs:\n" + "".join(f"  {name}: out/{name}/\n" for name in names)
    if draw.random() < 0.4:
        text += CHECKS.replace("CONSEQUENCE", draw.choice(["warn", "quarantine"]))
    untils = [str(3 * at + draw.choice([1, 3])) for at in range(len(runs) - 1)] + [str(3 * len(runs))]
    monkeypatch.setattr(batch_lists, "FEW", draw.choice([0, 8]))
    monkeypatch.setattr(joint_files, "APART", draw.choice([0, joint_files.APART]))
    whole, clean = tmp_path / "whole", tmp_path / "clean"
    for folder in (whole, clean):
        folder.mkdir()
        (folder / "p.yaml").write_text(text)
        tasks = switching(seed) if folder == whole and seed % 3 == 1 else dict
        with started(Here(seed)), monkeypatch.context() as patch:
            patch.setattr(pieces, "INLINE", 0)
            patch.setattr(scheduler, "INLINE", 0)
            patch.setattr(outputs, "WHOLE", 1)  # a commit by tasks is a folder of files
            for files, until in zip(runs, untils, strict=True):
                bring_files(folder, files, gone, inputs if folder == clean else ())
                run(folder / "p.yaml", until=until, **tasks())
    if read_newest(whole / STATE) is None:
        return
    if draw.random() < 0.3:
        compact(str(whole / "p.yaml"), whole)
    horizons, ways, erase = horizons_of(whole), [], migration.erase
    monkeypatch.setattr(migration, "erase", lambda *given: ways.append(erase(*given)) or ways[-1])
    death = draw.choice([None, draw.randrange(30)])
    most = draw.choice([forgotten_parts.MOST] * 4 + [3])  # more rows than that are computed anew
    monkeypatch.setattr(forgotten_parts, "MOST", most)
    forgotten(whole, where.strip(), inputs, death)
    assert None not in ways or death is not None or most == 3  # one that is repeated after its commit reads all files
    assert logs_of(whole) == logs_of(clean, horizons)
    assert state_of(whole, history="all" in history) == state_of(clean, history="all" in history)
    # Tasks may keep a row that its batch would have cancelled here: it is one of the inputs.
    assert texts_in(whole) <= texts_in(clean, (".dd", "out", "in"))
    assert verdicts_in(whole) == verdicts_in(clean)
    for files in runs:
        bring_files(whole, files, gone, inputs)
    assert not forgotten(whole, where.strip(), inputs, None).still_in
    for folder in (whole, clean):
        bring_files(folder, {"sales/9-0": [("eve", 1, 3, "eve-MARK-9.", 40)]}, gone, ())
        run(folder / "p.yaml", until="45")
    assert logs_of(whole) == logs_of(clean, horizons)


OF_SALES = ("kept", "words", "sums", "pairs", "first", "alike", "ranked", "by_value", "total", "persons", "linked")
"""The collections of sales alone, whose times may have two coordinates."""


@pytest.mark.parametrize("seed", range(many(6)))
def test_rows_with_two_times_are_taken_out_of_the_files_that_have_them(tmp_path, seed, monkeypatch):
    """Each file of a log has the times that its commit closed, between two frontiers of several elements, and so has each batch."""
    draw = chance("two times", seed)
    people = ["ann", "bob", "eve", None]
    names = draw.sample(OF_SALES, draw.randrange(1, 5))
    text = "dd: 1\nname: judged\ninputs:\n  sales:\n    path: in/sales/\n    format: append\n    time: [day, version]\n"
    text += '    columns: {k: "string?", v: int64, n: int64, w: string, day: int64, version: int64}\ncollections:\n'
    text += "".join(f"  {name}: {COLLECTIONS[name]}\n" for name in sorted({*names, *map(BELOW.get, names)} - {None}))
    text += "outputs:\n" + "".join(f"  {name}: out/{name}/\n" for name in names)
    gone, corner = draw.choice([["ann"], ["ann", "eve"]]), (0, 0)
    schema = {**SCHEMAS["sales"], "version": pl.Int64}
    whole, clean = tmp_path / "whole", tmp_path / "clean"
    monkeypatch.setattr(batch_lists, "FEW", draw.choice([0, 8]))

    def bring(at, until, *, rows, all_rows):
        for folder in (whole, clean):
            (folder / "in/sales").mkdir(parents=True, exist_ok=True)
            (folder / "p.yaml").write_text(text)
            kept = [row for row in rows if folder == all_rows or row[0] not in gone]
            pl.DataFrame(kept, schema, orient="row").write_parquet(folder / f"in/sales/{at}.parquet")
            run(folder / "p.yaml", until=",".join(map(str, until)))

    def drawn(corner):
        """Return rows at times that a corner leaves open."""
        some = ((draw.choice(people), draw.randrange(3), draw.randrange(4)) for _ in range(draw.randrange(1, 9)))
        times = [time for time in product(range(7), range(4)) if time[0] >= corner[0] or time[1] >= corner[1]]
        return [(k, v, n, f"{k}-MARK-{v}.", *draw.choice(times)) for k, v, n in some]

    for at in range(draw.randrange(1, 5)):
        rows = drawn(corner)
        corner = corner[0] + draw.randrange(3), corner[1] + draw.randrange(2)
        corner = tuple(max(each, 1) for each in corner)
        bring(at, corner, rows=rows, all_rows=whole)
    ways, erase = [], migration.erase
    monkeypatch.setattr(migration, "erase", lambda *given: ways.append(erase(*given)) or ways[-1])
    where, death = f"k in ({', '.join(map(repr, gone))})", draw.choice([None, draw.randrange(30)])
    forgotten(whole, where, ["sales"], death)
    assert None not in ways or death is not None
    assert logs_of(whole) == logs_of(clean)
    assert state_of(whole, history=True) == state_of(clean, history=True)
    assert texts_in(whole) <= texts_in(clean)
    for place in (clean / "in/sales").iterdir():
        (whole / "in/sales" / place.name).write_bytes(place.read_bytes())
    found = forgotten(whole, where, ["sales"], None)
    assert not found.still_in
    assert not found.rewritten
    bring(9, (9, 9), rows=drawn(corner), all_rows=None)
    assert logs_of(whole) == logs_of(clean)

"""Histories of outputs against intervals that plain Python builds from the updates, over random logs with corrections of the past."""

import datetime as dt
import shutil
import sqlite3
from contextlib import closing

import duckdb
import polars as pl
import psycopg
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from ddcli.commands.check import check
from ddcli.driver.run import run
from ddcli.errors import EngineError, SpecErrors
from ddcli.plan.pipeline_file import parse_spec
from ddcli.store.targets import change
from ddcli.store.targets.change import HistoryChange
from tests.draws import chance, many
from tests.harness import Folder, write_log
from tests.judge.test_arrival import die
from tests.tables.followers import make_lake
from tests.tables.histories import properties_of

PLACES = {
    "parquet": "parquet: h.parquet",
    "path": "path: h",
    "delta": "delta: h/",
    "iceberg": "iceberg: {{catalog: {{{listed}}}, table: shop.h}}",
    "sqlite": "to: 'sqlite:///h.db'",
    "duckdb": "to: 'duckdb:///h.duckdb'",
    "postgres": "to: '{uri}', table: '{table}'",
    "ducklake": "ducklake: {{catalog: 'sqlite:///lake/lake.sqlite', table: main.h}}",
}
PIPELINE = """\
inputs: {{a: {{path: in/, columns: {{id: {id}, name: string?, city: string}}}}}}
outputs: {{h: {{from: a, as: history, key: [id], {track}{begin}{place}}}}}
"""
SCHEMA = {"id": pl.Int64, "name": pl.String, "city": pl.String, "time": pl.Int64, "diff": pl.Int64}


def built(updates, track, begin=()):
    """Return the intervals of a log's updates by looking at each time, key by key; up to the first time those of the rows of `begin` hold."""
    rows = set()
    first = min((row[3] for row in updates), default=None)
    ends = {end for row in begin for end in row[3:] if end is not None and (first is None or end < first)}
    times = sorted({row[3] for row in updates} | ends)
    for key in {row[0] for row in [*updates, *begin]}:
        open_ = None
        for time in times:
            held = {}
            for *record, at, diff in updates:
                if at <= time and record[0] == key:
                    held[tuple(record)] = held.get(tuple(record), 0) + diff
            for *record, since, until in begin:
                before = first is None or time < first
                if before and record[0] == key and since <= time and (until is None or time < until):
                    held[tuple(record)] = 1
            (now,) = [record for record, count in held.items() if count] or [None]
            if open_ is not None and now is not None and all(open_[0][at] == now[at] for at in track):
                open_ = (now, open_[1])
            elif open_ is not None:
                rows.add((*open_[0], open_[1], time, False))
                open_ = None if now is None else (now, time)
            elif now is not None:
                open_ = (now, time)
        if open_ is not None:
            rows.add((*open_[0], open_[1], None, True))
    return rows


def placed(kind, folder, uri):
    """Return the place of a history as a pipeline file has it; in a server's database its table has the folder's name."""
    if kind == "ducklake":
        make_lake(folder / "lake")
    if kind == "iceberg":
        (folder / "lake").mkdir()
    listed = ", ".join(f"{key}: '{value}'" for key, value in properties_of(folder / "lake").items())
    return PLACES[kind].format(listed=listed, uri=uri, table=f"h{folder.name}")


def held(folder, kind, uri=None):
    """Return the rows of a history; each is there once."""
    columns = "id, name, city, valid_from, valid_to, is_current"
    if kind in ("parquet", "path"):
        (path,) = [folder / "h.parquet"] if kind == "parquet" else (folder / "h").iterdir()
        rows = pl.read_parquet(path).rows()
    elif kind == "iceberg":
        table = load_catalog("default", **properties_of(folder / "lake")).load_table("shop.h")
        rows = pl.from_arrow(table.scan().to_arrow()).rows()
    elif kind == "duckdb":
        with duckdb.connect(folder / "h.duckdb") as base:
            rows = base.execute(f"select {columns} from h").fetchall()
    elif kind == "postgres":
        with psycopg.connect(uri) as base:
            rows = base.execute(f"select {columns} from h{folder.name}").fetchall()
    elif kind == "ducklake":
        named = "select path from ducklake_data_file where end_snapshot is null"
        with closing(sqlite3.connect(folder / "lake/lake.sqlite")) as catalogue:
            assert not catalogue.execute("select * from ducklake_delete_file where end_snapshot is null").fetchall()
            paths = [folder / "lake/data/main/h" / name for (name,) in catalogue.execute(named)]
        rows = [row for path in paths for row in pl.read_parquet(path).rows()]
    elif kind == "delta":
        rows = pl.from_arrow(DeltaTable(folder / "h").to_pyarrow_table()).rows()
    else:
        with sqlite3.connect(folder / "h.db") as base:
            rows = base.execute(f"select {columns} from h").fetchall()
        base.close()
        rows = [(*row[:-1], bool(row[-1])) for row in rows]
    assert len(rows) == len(set(rows))
    return set(rows)


def earlier_rows(draw, keys):
    """Return rows of a history from before a log, some of which last into it: one of a key at a time."""
    rows = []
    for key in keys:
        since = draw.randint(-9, -6)
        while since < 3:
            until = draw.choice([None, since + draw.randint(1, 4)])
            rows.append((key, draw.choice([None, "x"]), draw.choice(["Rome", "Oslo"]), since, until))
            if until is None:
                break
            since = until + draw.randint(0, 2)
    return rows


class Steps:
    """The updates of runs by their numbers: each moves keys from record to record, at later and later times; the last ones can be taken back."""

    def __init__(self, draw, keys):
        self.draw, self.keys = draw, keys
        self.after = [({}, 0)]
        """The records that are there, and the time, before all runs and after each."""

    def next(self):
        draw, (now, time) = self.draw, self.after[-1]
        now, found = {**now}, []
        for _ in range(draw.randint(1, 3)):
            time += draw.randint(1, 2)
            for key in draw.sample(self.keys, draw.randint(1, 3)):
                before = now.pop(key, None)
                if before is not None:
                    found.append((*before, time, -1))
                if draw.random() < 0.2:  # a record that is there for no time
                    between = self.record(key)
                    found += [(*between, time, 1), (*between, time, -1)]
                if before is None or draw.random() < 0.7:
                    now[key] = self.record(key)
                    found.append((*now[key], time, 1))
        self.after.append((now, time))
        return found

    def record(self, key):
        return key, self.draw.choice([None, "x", "y"]), self.draw.choice(["Rome", "Oslo"])

    def back(self):
        """Take back some of the last steps, and return the number of those that are left, and the time from which on none is."""
        kept = self.draw.randrange(len(self.after) - 1)
        del self.after[kept + 1 :]
        return kept, self.after[-1][1] + 1


def without(pipeline, hidden):
    """Return the pipeline with an output that lacks the rows of a key."""
    filtered = f"collections: {{c: {{from: a, apply: [{{filter: 'coalesce(id, 9) <> {hidden}'}}]}}}}\n"
    return filtered + pipeline.replace("from: a, as:", "from: c, as:")


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", PLACES)
def test_random_logs(tmp_path, kind, monkeypatch, request):
    uri = request.getfixturevalue("postgres_database") if kind == "postgres" else None
    looked_up, plain = [], False
    arranged = HistoryChange._arranged
    monkeypatch.setattr(HistoryChange, "_arranged", lambda *given: looked_up.append(1) or arranged(*given))
    for seed in range(many(20)):
        draw = chance("history", kind, seed)
        track = draw.choice([(), (2,), (1, 2)])
        written = f"track: [{', '.join(('id', 'name', 'city')[at] for at in track)}], " if track else ""
        folder = tmp_path / str(seed)
        folder.mkdir()
        id_, keys = draw.choice([("int64", range(4)), ("int64?", (0, 1, None))])
        begin = earlier_rows(draw, [*keys, 7]) if draw.random() < 0.5 else []
        prefix = draw.choice(["", "dbt_"])
        kinds = {name: kind for name, kind in SCHEMA.items() if name not in ("time", "diff")}
        kinds |= {f"{prefix}{name}": pl.Int64 for name in ("valid_from", "valid_to")}
        pl.DataFrame(begin, kinds, orient="row").write_parquet(folder / "before.parquet")
        text = {"track": written, "begin": "begin: before.parquet, " if begin else ""}
        pipeline = PIPELINE.format(id=id_, place=placed(kind, folder, uri), **text)
        (folder / "p.yaml").write_text(without(pipeline, 5))
        steps, taken, hidden, edits, log = Steps(draw, keys), [], 5, draw.random() < 0.3, []
        for number in range(draw.randint(4, 7)):
            changes = taken and draw.random() < 0.25
            plain |= id_ == "int64" and number > 1 and not changes and not edits and len(taken) == number
            if changes and edits:  # another pipeline: its output differs from then on
                (now, time), before, hidden = steps.after[-1], hidden, draw.choice([5, 0, 1])
                (folder / "p.yaml").write_text(without(pipeline, hidden))
                run(folder / "p.yaml", apply=True)
                log += [(*record, time + 1, (key != hidden) - (key != before)) for key, record in now.items()]
            elif changes:  # the past is corrected: in place of the last files others are read
                kept, since = steps.back()
                run(folder / "p.yaml", reopen=str(since))
                for path, _ in taken[kept:]:
                    path.unlink()
                run(folder / "p.yaml", withdraw_missing=True)
                del taken[kept:]
                log = [row for _, rows in taken for row in rows]
                assert held(folder, kind, uri) == built(log, track or (0, 1, 2), begin), (seed, number, kept)
            taken.append((folder / f"in/{number}.parquet", steps.next()))
            log += [row for row in taken[-1][1] if row[0] != hidden]
            write_log(*taken[-1], SCHEMA)
            if draw.random() < 0.5 or not die(folder, folder / "p.yaml", None, draw.randrange(60)):
                run(folder / "p.yaml")
            assert held(folder, kind, uri) == built(log, track or (0, 1, 2), begin), (seed, number)
        shutil.rmtree(folder)
    assert looked_up or not plain  # in the state, not in all of the log


def test_under_the_clock_of_arrivals(shop):
    text = "inputs: {a: {path: in/, format: upsert, key: [id], columns: {id: int64, name: string}}}\n"
    shop.write("p.yaml", text + "outputs: {h: {from: a, as: history, key: [id], parquet: h.parquet}}\n")
    for day, name in enumerate(["Ann", "Ann", "Bo"], 1):
        shop.write(f"in/{day}.csv", f"id,name\n1,{name}\n")
        assert shop("run", "p.yaml", "--now", f"2024-01-0{day}").code == 0
    assert pl.read_parquet(shop.folder / "h.parquet").sort("valid_from").rows() == [
        (1, "Ann", dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 3), False),  # noqa: DTZ001 - as the table has it
        (1, "Bo", dt.datetime(2024, 1, 3), None, True),  # noqa: DTZ001
    ]
    shop.write("p.yaml", text + "outputs: {h: {from: a, as: history, key: [id], track: [id], parquet: h.parquet}}\n")
    assert shop("run", "p.yaml").code == 0  # another form of it
    assert pl.read_parquet(shop.folder / "h.parquet").rows() == [
        (1, "Bo", dt.datetime(2024, 1, 1), None, True)  # noqa: DTZ001
    ]


def test_two_records_of_a_key(tmp_path):
    (tmp_path / "p.yaml").write_text(PIPELINE.format(id="int64", track="", begin="", place=PLACES["parquet"]))
    write_log(tmp_path / "in/0.parquet", [(1, "x", "Rome", 0, 1), (1, "y", "Rome", 3, 1)], SCHEMA)
    with pytest.raises(EngineError, match=r"two records of one key at 3, and a history has one: id = 1"):
        run(tmp_path / "p.yaml")


def test_a_retraction_of_what_is_not_there(tmp_path):
    (tmp_path / "p.yaml").write_text(PIPELINE.format(id="int64", track="", begin="", place=PLACES["parquet"]))
    write_log(tmp_path / "in/0.parquet", [(1, "x", "Rome", 0, 1), (1, "x", "Rome", 2, -2)], SCHEMA)
    with pytest.raises(EngineError, match=r"a record with a negative multiplicity at 2, and a history .*: id = 1"):
        run(tmp_path / "p.yaml")


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (None, "the history begins from this file, which can't be read"),
        ({"id": pl.Int64, "name": pl.String, "valid_from": pl.Int64, "valid_to": pl.Int64}, "no column 'city'"),
        ({**SCHEMA, "dbt_valid_from": pl.Int64}, "no column 'dbt_valid_to'"),
        ({**SCHEMA, "valid_from": pl.Date, "valid_to": pl.Date}, "'valid_from' is Date in the file, and int64 in"),
    ],
)
def test_a_file_that_no_history_begins_from(tmp_path, columns, problem):
    """The table is written by the first run after the file is right."""
    text = PIPELINE.format(id="int64", track="", begin="begin: b.parquet, ", place=PLACES["parquet"])
    (tmp_path / "p.yaml").write_text(text)
    write_log(tmp_path / "in/0.parquet", [(1, "x", "Rome", 0, 1)], SCHEMA)
    if columns is not None:
        pl.DataFrame(schema=columns).write_parquet(tmp_path / "b.parquet")
    (error,) = check(tmp_path / "p.yaml").errors
    assert problem in str(error)
    assert error.span.line == 2
    with pytest.raises(EngineError, match=problem):
        run(tmp_path / "p.yaml")
    kinds = {"id": pl.Int64, "name": pl.String, "city": pl.String, "valid_from": pl.Int64, "valid_to": pl.Int64}
    rows = [(1, "x", "Rome", -5, None), (2, "y", "Oslo", -5, -3)]
    pl.DataFrame([*rows], kinds, orient="row").write_parquet(tmp_path / "b.parquet")
    assert not check(tmp_path / "p.yaml").errors
    run(tmp_path / "p.yaml")
    assert held(tmp_path, "parquet") == {(*row, row[-1] is None) for row in rows}


def test_later_commits_read_the_rows_of_their_keys(tmp_path, monkeypatch):
    """Of the file from which a history begins."""
    counts = []
    read = change.read_beginning
    monkeypatch.setattr(change, "read_beginning", lambda *given: counts.append((found := read(*given)).height) or found)
    text = PIPELINE.format(id="int64", track="", begin="begin: b.parquet, ", place=PLACES["parquet"])
    (tmp_path / "p.yaml").write_text(text)
    kinds = {"id": pl.Int64, "name": pl.String, "city": pl.String, "valid_from": pl.Int64, "valid_to": pl.Int64}
    rows = [(key, "x", "Rome", -5, None) for key in range(1000)]
    pl.DataFrame(rows, kinds, orient="row").write_parquet(tmp_path / "b.parquet")
    write_log(tmp_path / "in/0.parquet", [(key, "x", "Rome", 0, 1) for key in range(1000)], SCHEMA)
    run(tmp_path / "p.yaml")
    write_log(tmp_path / "in/1.parquet", [(7, "x", "Rome", 2, -1), (7, "x", "Oslo", 2, 1)], SCHEMA)
    run(tmp_path / "p.yaml")
    assert counts == [1000, 1]
    others = {(*row, True) for row in rows if row[0] != 7}
    assert held(tmp_path, "parquet") == {*others, (7, "x", "Rome", -5, 2, False), (7, "x", "Oslo", 2, None, True)}


WRONG = {
    "{from: a, as: history, parquet: h.parquet}": "the key 'key' is missing",
    "{from: a, as: history, key: [id]}": "the table has no place",
    "{from: a, as: table, path: out/}": "the table has no place",
    "{from: a, as: history, key: [id], keep: 3, parquet: h.parquet}": "and `keep` sums up old ones",
    "{from: a, as: table, track: [id], parquet: h.parquet}": "`track` is for histories",
    "{from: a, as: table, begin: b.parquet, parquet: h.parquet}": "`begin` is for histories",
    "{from: a, as: table, key: [id], parquet: h.parquet}": "`key` is for tables in databases",
}


@pytest.mark.parametrize("output", WRONG)
def test_refused_outputs(output):
    with pytest.raises(SpecErrors) as caught:
        parse_spec(f"inputs: {{a: in/}}\noutputs: {{h: {output}}}\n", "p.yaml")
    assert WRONG[output] in str(caught.value)


def test_refused_columns(shop: Folder):
    text = "inputs: {a: {path: in/, columns: {id: int64, valid_to: int64}}}\n"
    shop.write("p.yaml", text + "outputs: {h: {from: a, as: history, key: [idd], parquet: h.parquet}}\n")
    err = shop("check", "p.yaml").err
    assert "outputs.h.key: there is no column 'idd'" in err
    assert "'a' has a column 'valid_to', as the history itself has" in err

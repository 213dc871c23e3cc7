"""Files that are withdrawn and mended: of every format, that come in any order over any cut into runs, each of which may die at any file
operation. What outputs hold is what plain Python says of all that was taken in and not withdrawn, and what they held at earlier times stays.
"""

from __future__ import annotations

import datetime as dt
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
from ddcli.errors import InputError
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.judge import test_arrival as arrival
from tests.judge.sizes import cut
from tests.store.support import Dead, Faulty

OTHERS = {"x": ["one", "two"], "y": ["two"]}
"""What the other input has, by the column on which the two are joined."""
COLUMNS = {"c": ["k", "v", "diff"], "n": ["v", "n", "diff"], "p": ["v", "k", "w", "diff"]}
EVENTS = pl.Schema(
    {
        "before": pl.Struct({"k": pl.Int64, "v": pl.String}),
        "after": pl.Struct({"k": pl.Int64, "v": pl.String}),
        "op": pl.String,
        "ts_ms": pl.Int64,
        "source": pl.Struct({"lsn": pl.Int64}),
    }
)
FEED = pl.Schema({"k": pl.Int64, "v": pl.String, "_change_type": pl.String, "_commit_version": pl.Int64})


def events(rows):
    """Return rows as events: those with the op D delete, the others insert."""
    for k, v, n, op, _, time in rows:
        row = {"k": k, "v": v}
        images = (row, None, "d") if op == "D" else (None, row, "u")
        yield (*images, time, {"lsn": n})


def inserts(rows):
    for before, after, op, *rest in events(rows):
        yield (before, after, "c" if op == "u" else op, *rest)


def feed(rows):
    for k, v, n, op, *_ in rows:
        yield (k, v, "delete" if op == "D" else "insert", n)


def signed(arrived):
    found = Counter()
    for _, files in arrived:
        for _, rows in files:
            for k, v, _, op, *_ in rows:
                found[k, v] += -1 if op == "D" else 1
    return found


NESTED = {
    "events": ({"format": "debezium"}, signed, inserts, EVENTS),
    "keyed events": ({"format": "debezium", "key": ["k"]}, arrival.ordered, events, EVENTS),
    "feed": ({"format": "delta_cdf"}, signed, feed, FEED),
}
FORMATS = [*arrival.FORMATS, *NESTED]
STEPS = st.sampled_from(["come", "come", "withdraw", "mend", "mend", "lose", "again"])


@st.composite
def histories(draw):
    """Give steps: what happens, to which file (a number), its rows, and at which file operation the run dies, if it does."""
    return draw(
        st.lists(
            st.tuples(
                STEPS,
                st.integers(0, 5),
                st.lists(
                    st.tuples(arrival.name, st.lists(arrival.row, max_size=4)), max_size=3, unique_by=lambda f: f[0]
                ),
                st.none() | st.integers(0, 60),
            ),
            min_size=2,
            max_size=6,
        )
    )


def held(folder, output, time):
    """Return what an output holds at a time."""
    found = Counter()
    for file in sorted((folder / output).glob("*.parquet")):
        frame = pl.read_parquet(file).filter(pl.col("time") <= time).select(COLUMNS[output])
        for *record, diff in frame.iter_rows():
            found[tuple(record)] += diff
    return {each: count for each, count in found.items() if count}


def wanted(table):
    """Return what the outputs hold where the first one holds a table."""
    table = {row: count for row, count in table.items() if count}
    counts, pairs = Counter(), Counter()
    for (k, v), count in table.items():
        counts[v] += count
        for w in OTHERS.get(v, []):
            pairs[v, k, w] += count
    return table, {(v, n): 1 for v, n in counts.items() if n}, {pair: count for pair, count in pairs.items() if count}


class Shop:
    """A folder with a pipeline, and what is known of its files."""

    def __init__(self, folder, format_, kind):
        self.folder, self.format, self.kind = folder, format_, kind
        self.now = 0
        self.known: dict[tuple[str, int], list] = {}
        """The rows of each file by the time at which it was taken in."""
        self.disk: dict[str, list] = {}
        self.seen: dict[int, tuple] = {}
        keys, self.meaning, *self.nested = NESTED[format_] if format_ in NESTED else arrival.FORMATS[format_]
        declared = {k: kind for k, kind in arrival.COLUMNS.items() if k != "diff" or format_ == "log"}
        if self.nested:
            declared = {"k": "int64", "v": "string?"}
        a = {"path": "in/", "columns": declared, **keys}
        b = {"path": "b.csv", "format": "append", "columns": {"v": "string", "w": "string"}}
        count = {"reduce": {"by": ["v"], "n": "count(*)"}}
        pipeline = {
            "clock": "arrival",
            "inputs": {"a": a, "b": b},
            "collections": {
                "c": {"from": "a", "apply": [{"project": ["k", "v"]}]},
                "n": {"from": "c", "apply": [count]},
                "p": {"from": "c", "apply": [{"filter": "v is not null"}, {"join": {"with": "b", "on": ["v"]}}]},
            },
            "outputs": {"c": "c/", "n": "n/", "p": "p/"},
        }
        self.pipeline = folder / "p.yaml"
        self.pipeline.write_text(yaml.safe_dump(pipeline, sort_keys=False))
        (folder / "in").mkdir()
        (folder / "b.csv").write_text("v,w\n" + "".join(f"{v},{w}\n" for v, ws in OTHERS.items() for w in ws))

    def write(self, name, rows):
        path = self.folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.disk[name] = rows
        if not self.nested:
            arrival.WRITERS[self.kind](pl.DataFrame(rows, arrival.SCHEMA, orient="row"), path)
            return
        turn, schema = self.nested
        arrival.WRITERS[self.kind](pl.DataFrame([*turn(rows)], schema, orient="row"), path)

    def run(self, death, *withdraw):
        """Run, and again if it dies."""
        for at in (death, None):
            self.now += 7
            text = (arrival.EPOCH + dt.timedelta(microseconds=self.now)).isoformat()
            files = Faulty(at) if at is not None else None
            with pytest.MonkeyPatch.context() as patch:
                if files is not None:
                    patch.setattr(ddcli.store.state.directory, "Files", lambda files=files: files)
                try:
                    run(self.pipeline, now=text, withdraw=[self.folder / "in" / name for name in withdraw])
                except Dead:
                    self.note()
                    continue
                except InputError as error:
                    if "no run has taken in" not in error.problem:
                        raise
                    withdraw = ()  # it died after it had taken back a file that is gone
                    run(self.pipeline, now=(arrival.EPOCH + dt.timedelta(microseconds=self.now + 3)).isoformat())
            self.note()
            if at is None or death is None:
                return

    def taken(self):
        """Return the files that are in the state, with the times at which they came."""
        manifest = read_newest(self.folder / ".dd/p")
        files = manifest.inputs["a"].files if manifest else ()
        return {file.path: file.at for file in files if not file.withdrawn}

    def note(self):
        """Look what is in the state now, and that outputs hold just that."""
        manifest = read_newest(self.folder / ".dd/p")
        if manifest is None:
            return
        taken = self.taken()
        for path, at in taken.items():
            self.known.setdefault((path, at), self.disk.get(path))
        arrived = [(at, [(p, self.known[p, at]) for p in taken if taken[p] == at]) for at in sorted({*taken.values()})]
        ((upper,),) = manifest.upper
        self.seen[upper - 1] = wanted(self.meaning(arrived))

    def check(self):
        for at, tables in self.seen.items():
            time = arrival.EPOCH + dt.timedelta(microseconds=at - arrival.BEFORE)
            for output, table in zip("cnp", tables, strict=True):
                assert held(self.folder, output, time) == table, (output, at)


@settings(
    max_examples=many(16), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    history=histories(),
    format_=st.sampled_from(FORMATS),
    kind=st.sampled_from(["parquet", "ndjson", "arrow", "csv"]),
    chance=st.none() | st.tuples(st.sampled_from([1, 3]), st.integers(0, 9)),
)
def test_withdrawn_and_mended(history, format_, kind, chance):
    kind = kind if format_ not in NESTED or kind != "csv" else "ndjson"
    with tempfile.TemporaryDirectory() as place, nullcontext() if chance is None else cut(*chance):
        shop = Shop(Path(place), format_, kind)
        for step, number, files, death in history:
            there = sorted(shop.taken())
            if step == "come" or not there:
                for name, rows in files:
                    if f"{name}.{kind}" not in shop.disk:
                        shop.write(f"{name}.{kind}", rows)
                shop.run(death)
                continue
            path = there[number % len(there)]
            if step == "mend" and files:
                shop.write(path, files[0][1])
            elif step == "lose":
                (shop.folder / "in" / path).unlink()
                del shop.disk[path]
            shop.run(death, path)
            if step == "again":
                shop.run(None, path)
        shop.check()

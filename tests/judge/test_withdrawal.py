"""Files that are withdrawn, mended, archived and lost: of every format, that come in any order over any cut into runs, each of which may
die at any file operation. What outputs hold is what plain Python says of all that was taken in and not withdrawn, and what they held at
earlier times stays.
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
from ddcli.store.files.gate import Files
from ddcli.store.state.manifest import read_newest
from tests.draws import many
from tests.judge import test_arrival as arrival
from tests.judge.sizes import cut
from tests.judge.test_reopening import OTHERS, wanted
from tests.store.support import Dead, Faulty

COLUMNS = {"c": ["k", "v", "diff"], "n": ["v", "n", "diff"], "p": ["k", "v", "w", "diff"]}
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
    for file in sorted((folder / output).rglob("*.parquet")):
        frame = pl.read_parquet(file).filter(pl.col("time") <= time).select(COLUMNS[output])
        for *record, diff in frame.iter_rows():
            found[tuple(record)] += diff
    return {each: count for each, count in found.items() if count}


class Shop:
    """A folder with a pipeline, and what is known of its files."""

    def __init__(self, folder, format_, kind, consumed):
        self.folder, self.kind, self.consumed = folder, kind, consumed
        self.now = 0
        self.known: dict[tuple[str, int], list] = {}
        """The rows of each file by the time at which it was taken in."""
        self.disk: dict[str, list] = {}
        self.seen: dict[int, tuple] = {}
        keys, self.meaning, *self.nested = NESTED[format_] if format_ in NESTED else arrival.FORMATS[format_]
        declared = {k: kind for k, kind in arrival.COLUMNS.items() if k != "diff" or format_ == "log"}
        if self.nested:
            declared = {"k": "int64", "v": "string?"}
        a = {"path": "in/", "columns": declared, "consumed": consumed, **keys}
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
        turn, schema = self.nested or (list, arrival.SCHEMA)
        arrival.WRITERS[self.kind](pl.DataFrame([*turn(rows)], schema, orient="row"), path)

    def place(self, file):
        """Return where a file lies, or lay."""
        return self.folder / (file.archived or f"in/{file.path}")

    def run(self, death, *withdraw, again=False):
        """Run, and again if it dies. Where the first has withdrawn and read a repaired file, the second is refused: it would lose the repaired rows."""
        for at in [death, None] if death is not None else [None]:
            files = Faulty(at) if at is not None else Files()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ddcli.store.state.directory, "Files", lambda files=files: files)
                try:
                    self.run_once(withdraw, again=again)
                except Dead:
                    taken = {self.place(file): file for file in self.taken()}
                    withdraw = [path for path in withdraw if path in taken]
                else:
                    at = None
            self.note()
            if at is None:
                return
            if not again and any(self.is_repaired(taken[path]) for path in withdraw):
                self.refused(*withdraw)
                withdraw = ()

    def run_once(self, withdraw, *, again=False):
        self.now += 7
        text = (arrival.EPOCH + dt.timedelta(microseconds=self.now)).isoformat()
        run(self.pipeline, now=text, withdraw=withdraw, again=again)

    def refused(self, *withdraw):
        """Try to withdraw a repaired file: only with `again` it is done."""
        with pytest.raises(InputError, match="it has not changed since"):
            self.run_once(withdraw)

    def is_repaired(self, file):
        """Return whether a file was withdrawn before, and lies where it came as it was read after that."""
        lies = not file.archived and self.place(file).exists()
        as_read = self.disk.get(file.path) == self.known.get((file.path, file.at))
        return lies and as_read and any(path == file.path and at < file.at for path, at in self.known)

    def taken(self):
        """Return the files that are in the state."""
        manifest = read_newest(self.folder / ".dd/p")
        files = manifest.inputs["a"].files if manifest else ()
        return sorted((file for file in files if not file.withdrawn), key=lambda file: file.key)

    def note(self):
        """Look what is in the state now, and know that outputs are to hold just that."""
        manifest = read_newest(self.folder / ".dd/p")
        if manifest is None:
            return
        taken = [(file.path, file.at) for file in self.taken()]
        for path, at in taken:
            self.known.setdefault((path, at), self.disk.get(path))
        times = sorted({at for _, at in taken})
        arrived = [(time, [(path, self.known[path, at]) for path, at in taken if at == time]) for time in times]
        ((upper,),) = manifest.upper
        self.seen[upper - 1] = wanted(self.meaning(arrived))

    def step(self, step, number, files, death):
        taken = self.taken()
        if step == "come" or not taken:
            for name, rows in files:
                name = f"{name}.{self.kind}"
                if not (self.folder / "in" / name).exists() and (self.consumed != "forget" or name not in self.disk):
                    self.write(name, rows)
            self.run(death)
            return
        file = taken[number % len(taken)]
        place = self.place(file)
        lost = [other for other in taken if other != file and not self.place(other).exists()]
        if step == "lose":
            place.unlink(missing_ok=True)
            if self.consumed == "forget":
                self.run(death)
                return
        if step == "mend" and files and not lost:
            self.write(file.path, files[0][1])
        again = self.is_repaired(file)
        if again:
            self.refused(place)
        if lost:
            with pytest.raises(InputError, match="can't be read again"):
                self.run(None, place, again=again)
            return
        self.run(death, place, again=again)
        if step != "mend" and self.consumed in ("keep", "forget"):
            assert file.path not in {each.path for each in self.taken()}
        if step == "again" and place.exists() and self.consumed == "keep":
            self.run(None, place)

    def lies(self, path):
        """Return whether a file lies where it came because it was withdrawn before it was moved."""
        manifest = read_newest(self.folder / ".dd/p")
        return any(file.withdrawn and self.folder / "in" / file.path == path for file in manifest.inputs["a"].files)

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
    consumed=st.sampled_from(["keep", "keep", {"archive": "done/"}, "forget"]),
)
def test_withdrawn_and_mended(history, format_, kind, chance, consumed):
    kind = kind if format_ not in NESTED or kind != "csv" else "ndjson"
    with tempfile.TemporaryDirectory() as place, nullcontext() if chance is None else cut(*chance):
        shop = Shop(Path(place), format_, kind, consumed)
        for each in history:
            shop.step(*each)
        shop.check()
        if consumed not in ("keep", "forget"):
            assert not [path for path in (shop.folder / "in").rglob("*") if path.is_file() and not shop.lies(path)]


TIMED = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["x", "y"]), st.sampled_from([1, 1, -1]), st.integers(0, 5)),
    max_size=5,
)


@settings(max_examples=many(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    history=st.lists(
        st.tuples(
            st.sampled_from(["come", "withdraw", "mend"]),
            st.integers(0, 5),
            TIMED,
            st.integers(0, 4),
            st.none() | st.integers(0, 50),
        ),
        min_size=2,
        max_size=6,
    ),
    keyed=st.booleans(),
)
def test_under_the_clock_of_events(history, keyed):
    """At every open time outputs hold what remains, each row at its own time, mended ones too; closed times stay as they were."""
    with tempfile.TemporaryDirectory() as place:
        folder, disk, upper, numbers, past = Path(place), {}, 0, iter(range(10_000)), {}
        repaired: dict[Path, bytes] = {}
        keys = {"format": "upsert", "key": ["k"], "order_by": "u"} if keyed else {}
        pipeline = {
            "clock": "event",
            "inputs": {"a": {"path": "in/", **keys}},
            "collections": {
                "c": {"from": "a", "apply": [{"project": ["k", "v"]}]},
                "n": {"from": "c", "apply": [{"reduce": {"by": ["v"], "n": "count(*)"}}]},
            },
            "outputs": {"c": "c/", "n": "n/"},
        }
        (folder / "p.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False))
        (folder / "in").mkdir()
        for step, number, rows, more, death in history:
            manifest = read_newest(folder / ".dd/p")
            taken = sorted(file.path for file in manifest.inputs["a"].files if not file.withdrawn) if manifest else []
            first = upper if step == "come" or not taken else 0
            rows = [(k, v, next(numbers), diff, first + time) for k, v, diff, time in rows]
            withdraw, until = [], upper + more
            name = f"{next(numbers)}.parquet"
            if step != "come" and taken:
                name = taken[number % len(taken)]
                withdraw, until = [folder / "in" / name], upper
                del disk[name]
            path = folder / "in" / name
            if step != "withdraw" or not withdraw:
                disk[name] = rows
                frame = pl.DataFrame(rows, ["k", "v", "u", "diff", "time"], orient="row")
                frame = frame.cast({"k": pl.Int64, "v": pl.String, "u": pl.Int64, "diff": pl.Int64, "time": pl.Int64})
                (frame.drop("diff") if keyed else frame).write_parquet(path)
            elif death is not None:
                path.unlink()
            before = number_of(folder)
            again = path in repaired and path.exists() and path.read_bytes() == repaired[path]
            if again:
                with pytest.raises(InputError, match="it has not changed since"):
                    run(folder / "p.yaml", until=str(until), withdraw=withdraw)
            if step == "mend" and withdraw:
                repaired[path] = path.read_bytes()
            for at in [death, None] if death is not None else [None]:
                files = Faulty(at) if at is not None else Files()
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(ddcli.store.state.directory, "Files", lambda files=files: files)
                    try:
                        run(folder / "p.yaml", until=str(until), withdraw=withdraw, again=again)
                        break
                    except Dead:
                        if (
                            number_of(folder) != before
                        ):  # it has committed: another time it would withdraw what was mended
                            withdraw = []
            manifest = read_newest(folder / ".dd/p")
            if manifest is None:
                continue
            ((upper,),) = manifest.upper
            for time in range(upper):
                past.setdefault(time, held_at(folder, time))
                assert held_at(folder, time) == past[time], time
            assert held_at(folder, upper + 9) == timed(disk.values(), upper, keyed=keyed)


def number_of(folder):
    manifest = read_newest(folder / ".dd/p")
    return manifest and manifest.number


def held_at(folder, time):
    return held(folder, "c", time), held(folder, "n", time)


def timed(files, upper, *, keyed):
    """Return what outputs hold of some files' rows before a time."""
    table, has = Counter(), {}
    for k, v, _, diff, _ in sorted(
        (row for rows in files for row in rows if row[4] < upper), key=lambda row: (row[4], row[2])
    ):
        table[k, v] += diff
        has[k] = (k, v)
    return wanted(Counter(has.values()) if keyed else table)[:2]

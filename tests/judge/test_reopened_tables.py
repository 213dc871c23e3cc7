"""States over tables of other programs that are taken back to a time, between runs that see some of the table's versions: what an output
holds at each version that is closed is what the table had then, as its own package reads it.
"""

import random
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from functools import partial
from itertools import product

import duckdb
import polars as pl
import pytest
import yaml

import ddcli.store.state.directory
from ddcli.driver.run import run
from ddcli.errors import InputError
from ddcli.expressions.types import Type
from ddcli.store.state.manifest import read_newest
from ddcli.store.texts import format_time
from tests.draws import SEED, many, some
from tests.store.support import Dead, Faulty
from tests.tables.histories import DeltaHistory, IcebergHistory, properties_of

KEPT = ["k", "v"]
TYPES = {"version": Type("int64"), "committed": Type("datetime", unit="us", zone="UTC")}
COLUMNS = {"version": "_commit_version", "committed": "_commit_timestamp"}


class DatabaseHistory:
    """A table of SQLite or DuckDB that changes at random: only what a run sees is a version."""

    def __init__(self, connect, path, draw):
        self.connect, self.path, self.draw = connect, str(path), draw
        self._do("create table orders (k integer, v varchar)", "insert into orders values (0, 'a'), (7, null)")

    def _do(self, *statements):
        with closing(self.connect(self.path)) as database:
            for statement in ("begin", *statements, "commit"):
                database.execute(statement)

    def change(self):
        key, word = self.draw.randrange(3), self.draw.choice(["'a'", "'b'", "null"])
        self._do(
            self.draw.choice([f"insert into orders values ({key}, {word})", f"delete from orders where k = {key}"]),
            f"update orders set v = {word} where k = {self.draw.randrange(3)}",
        )

    def contents(self, _version):
        with closing(self.connect(self.path)) as database:
            return Counter(database.execute("select k, v from orders").fetchall())


class Delta(DeltaHistory):
    def change(self):
        steps = ("append", "update", "delete", "overwrite", "compact", "merge")
        super().change(self.random.choice([step for step in steps if step in self.steps]))

    def contents(self, version):
        return super().contents(version, KEPT)


class Iceberg(IcebergHistory):
    def __init__(self, path, draw):
        path.mkdir()
        super().__init__(path, draw)

    def change(self):
        self.table.append(self.rows().to_arrow())
        if self.random.random() < 0.5:
            self.table.delete(f"k = {min(k for k, _ in self.contents())}")


HISTORIES = {
    "delta": (Delta, "{delta: table/"),
    "iceberg": (Iceberg, None),
    "sqlite": (partial(DatabaseHistory, sqlite3.connect), "{database: 'sqlite:///table', table: orders"),
    "duckdb": (partial(DatabaseHistory, duckdb.connect), "{database: 'duckdb:///table', table: orders"),
}


class Reopened:
    """A pipeline over a table, and what is known of the table's versions."""

    def __init__(self, folder, kind, time, draw):
        self.folder, self.time = folder, time
        make, given = HISTORIES[kind]
        if kind == "iceberg":
            catalog = ", ".join(f"{name}: '{value}'" for name, value in properties_of(folder / "table").items())
            given = f"{{iceberg: {{catalog: {{{catalog}}}, table: shop.orders}}"
        self.table = make(folder / "table", draw)
        self.known: dict[int, Counter] = {}
        """What the table had at each version that a run has seen, by time."""
        self.begun = -(2**62)
        """The first time at which the logs of outputs are exact: those that are written anew say there what they held before."""
        pipeline = {
            "clock": "event",
            "inputs": {"orders": yaml.safe_load(f'{given}, columns: {{k: "int64?", v: "string?"}}, time: {time}}}')},
            "collections": {"n": {"from": "orders", "apply": [{"reduce": {"by": ["v"], "n": "count(*)"}}]}},
            "outputs": {"orders": "o/", "n": "n/"},
        }
        self.pipeline = folder / "p.yaml"
        self.pipeline.write_text(yaml.safe_dump(pipeline))

    @property
    def upper(self):
        manifest = read_newest(self.folder / ".dd/p")
        return manifest.upper[0][0] if manifest else None

    def text(self, time):
        return format_time((time,), [TYPES[self.time]])

    def see(self):
        """Note the versions that the mirror has, and hold those against what the table's package reads."""
        for file in sorted((self.folder / ".dd/p/tables/orders").glob("*.parquet")):
            mirror = pl.read_parquet(file).with_columns(pl.col(COLUMNS["committed"]).dt.epoch("us"))
            for both in mirror.select(COLUMNS.values()).unique().rows():
                times = dict(zip(TYPES, both, strict=True))
                if times[self.time] not in self.known:
                    self.known[times[self.time]] = self.table.contents(times["version"])

    def run(self, death=None, **options):
        """Run or reopen, and again if that dies at an operation."""
        if death is not None:
            with pytest.MonkeyPatch.context() as patch, suppress(Dead):
                patch.setattr(ddcli.store.state.directory, "Files", lambda: Faulty(death))
                run(self.pipeline, **options)
        run(self.pipeline, **options)

    def reopen(self, time, rewrite, death):
        upper = self.upper
        self.run(death, reopen=self.text(time), rewrite=rewrite)
        if time < upper:
            self.begun = time if rewrite else min(time, self.begun)
        assert self.upper == min(upper, time)

    def check(self):
        upper = self.upper
        logs = {name: self.log(name, width) for name, width in (("o", 2), ("n", 2))}
        for time in {*self.known, upper - 1}:
            if self.begun <= time < upper:
                then = max((at for at in self.known if at <= time), default=None)
                rows = +self.known.get(then, Counter())
                counts = Counter()
                for (_, v), count in rows.items():
                    counts[v] += count
                assert held(logs["o"], time) == rows, (time, self.known)
                assert held(logs["n"], time) == Counter(dict.fromkeys(counts.items(), 1)), time

    def log(self, name, width):
        frames = [pl.read_parquet(file) for file in sorted((self.folder / name).glob("*.parquet"))]
        if not frames:
            return []
        frame = pl.concat(frames)
        return [(row[:width], *row[width:]) for row in frame.with_columns(pl.col("time").to_physical()).rows()]


def held(log, time):
    found = Counter()
    for record, at, diff in log:
        if at <= time:
            found[record] += diff
    return Counter({record: count for record, count in found.items() if count})


@pytest.mark.in_turn
@pytest.mark.parametrize(("kind", "time"), [*some(product(HISTORIES, TYPES))])
@pytest.mark.parametrize("seed", range(many(1)))
def test_reopened(tmp_path, kind, time, seed):
    draw = random.Random(f"{SEED}-{seed}-{kind}-{time}")
    shop = Reopened(tmp_path, kind, time, draw)
    for _ in range(4):
        for _ in range(draw.randrange(3) if kind == "delta" else 1):
            shop.table.change()
        until = draw.choice([None, None, *shop.known])
        shop.run(draw.choice([None, draw.randrange(40)]), until=None if until is None else shop.text(until))
        shop.see()
        shop.check()
        if draw.random() < 0.6:
            at = draw.choice([*shop.known]) + draw.randrange(-1, 2)
            if draw.random() < 0.4:
                shop.table.change()  # no reopening takes it in
            shop.reopen(
                at,
                draw.choice([frozenset(), frozenset(), frozenset({"n"}), frozenset({"n", "orders"})]),
                draw.choice([None, draw.randrange(40)]),
            )
            shop.see()
            shop.check()
    run(shop.pipeline)
    shop.see()
    assert shop.upper == max(shop.known) + 1
    shop.check()


@pytest.mark.parametrize("kind", ["delta", "sqlite"])
def test_files_of_tables_are_not_withdrawn(tmp_path, kind):
    """Neither the table's nor its mirror's; those of an input whose directory has a longer name are."""
    shop = Reopened(tmp_path, kind, "version", random.Random(1))
    (tmp_path / "table2").mkdir()
    other = tmp_path / "table2" / "1.parquet"
    pl.DataFrame({"k": [1], "time": [0]}).write_parquet(other)
    pipeline = yaml.safe_load(shop.pipeline.read_text())
    pipeline["inputs"]["b"] = {"path": "table2/", "format": "append", "columns": {"k": "int64"}, "late": "arrive"}
    pipeline["outputs"]["b"] = "b/"
    shop.pipeline.write_text(yaml.safe_dump(pipeline))
    run(shop.pipeline)
    mirror = next((tmp_path / ".dd/p/tables/orders").glob("*.parquet"))
    table = tmp_path / "table"
    for path in (mirror, table if kind == "sqlite" else next(table.glob("*.parquet"))):
        with pytest.raises(InputError, match="the input 'orders' is a table: its files are not withdrawn"):
            run(shop.pipeline, withdraw=[path])
    run(shop.pipeline, withdraw=[other])
    assert (
        held(
            [(row[:1], *row[1:]) for row in pl.concat(map(pl.read_parquet, (tmp_path / "b").glob("*.parquet"))).rows()],
            99,
        )
        == {}
    )

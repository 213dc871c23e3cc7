"""A pipeline whose outputs are tables, changed at random: what each table has is held against the log of its input."""

import json
import shutil
import sqlite3
import tarfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import ddcli.store.state.directory
from ddcli.driver.run import run
from tests.draws import chance
from tests.harness import contents, write_log
from tests.tables.histories import named, properties_of

KINDS = ("delta", "iceberg", "ducklake", "parquet")
"""What a table can be. A further one: its place in `PLACES`, what its own reader reads in `read`, and its commits in `commits`."""
PLACES = {"delta": "lake/t", "iceberg": "lake/t", "ducklake": "lake/data/main/t", "parquet": "lake/t.parquet"}
COLUMNS = {"city": pl.String, "amount": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
PIPELINE = """\
dd: 1
name: shop
inputs: {{sales: in/}}
outputs:
  t: {{from: sales, as: {form}, {kind}: {place}}}
"""


def make_lake(folder: Path) -> None:
    """Make an empty lake: the tables of a catalogue that DuckDB made."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "lake.sqlite").exists():
        return
    with tarfile.open(Path(__file__).with_name("ducklake.tar.xz")) as found:
        (folder / "lake.sqlite").write_bytes(found.extractfile("./sqlite.lake.1").read())
    with closing(sqlite3.connect(folder / "lake.sqlite")) as catalogue, catalogue:
        kept = ("ducklake_metadata", "ducklake_schema", "ducklake_snapshot", "ducklake_snapshot_changes")
        for (name,) in catalogue.execute("select name from sqlite_master where type = 'table'").fetchall():
            if "_inlined_" in name and name != "ducklake_inlined_data_tables":
                catalogue.execute(f"drop table {name}")
            elif name not in kept:
                catalogue.execute(f"delete from {name}")
        catalogue.execute("delete from ducklake_snapshot where snapshot_id > 0")
        catalogue.execute("delete from ducklake_snapshot_changes where snapshot_id > 0")
        catalogue.execute("update ducklake_metadata set value = 'data/' where key = 'data_path'")


class Follower:
    """A folder with the pipeline; the table is `form` of the input's log."""

    def __init__(self, folder: Path, kind: str, form: str = "table") -> None:
        self.folder, self.kind, self.form = folder, kind, form
        self.path = folder / PLACES[kind]
        self.step = 0
        folder.mkdir(parents=True, exist_ok=True)
        place = PLACES[kind]
        if kind == "iceberg":
            self.path.mkdir(parents=True, exist_ok=True)
            place = f"{{catalog: {named(self.properties)}, table: shop.t}}"
        if kind == "ducklake":
            make_lake(folder / "lake")
            place = "{catalog: 'sqlite:///lake/lake.sqlite', table: main.t}"
        text = PIPELINE.format(form=form, kind=kind, place=place)
        (folder / "shop.yaml").write_text(text)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the catalog."""
        return properties_of(self.path)

    @property
    def iceberg(self):
        """The table, as its own package has it."""
        return load_catalog("default", **self.properties).load_table("shop.t")

    def catalogue(self, statement: str) -> list[tuple]:
        """Return what the catalogue of the lake answers."""
        with closing(sqlite3.connect(self.folder / "lake/lake.sqlite")) as opened, opened:
            return opened.execute(statement).fetchall()

    def save(self) -> Path:
        """Keep what the folder has now, for `restore`: catalogs hold absolute paths, so it can't be copied to another place."""
        saved = self.folder.with_name(f"{self.folder.name} saved")
        shutil.copytree(self.folder, saved)
        return saved

    def restore(self, saved: Path) -> None:
        """Put back what the folder had."""
        shutil.rmtree(self.folder)
        shutil.copytree(saved, self.folder)

    def remove(self) -> None:
        """Remove the table."""
        if self.kind == "ducklake":
            self.catalogue("update ducklake_table set end_snapshot = 1 << 60")
        elif self.kind == "iceberg":
            load_catalog("default", **self.properties).drop_table("shop.t")
        elif self.kind == "delta":
            shutil.rmtree(self.path)
        else:
            self.path.unlink()

    def supply(self, draw, rows=8) -> None:
        """Write random changes at the next time: rows come, several times perhaps, and some of those that are there go."""
        change = Counter((draw.choice("ab"), draw.randrange(30)) for _ in range(draw.randrange(rows)))
        for record, count in contents(self.folder / "in").items() if self.step else ():
            if draw.random() < 0.3:
                change[record] -= draw.randint(1, count)
        found = [(*record, self.step, diff) for record, diff in change.items() if diff]
        write_log(self.folder / f"in/{self.step:03d}.parquet", found or [("a", -1, self.step, 1)], COLUMNS)
        self.step += 1

    def run(self, files=None, **options):
        """Run the pipeline, perhaps through these file operations."""
        with through(files):
            return run(self.folder / "shop.yaml", **options)

    def meant(self) -> Counter:
        """Return what the table must have: the rows of the input with their multiplicities, or its updates."""
        if self.form == "log":
            return Counter(pl.read_parquet(self.folder / "in/*.parquet").select(*COLUMNS).iter_rows())
        return Counter(contents(self.folder / "in"))

    def read(self) -> Counter:
        """Return what the table has, as its own reader reads it."""
        if self.kind == "delta":
            frame = pl.DataFrame(DeltaTable(str(self.path)).to_pyarrow_table())
        elif self.kind == "iceberg":
            frame = pl.DataFrame(self.iceberg.scan().to_arrow())
        elif self.kind == "ducklake":
            found = "select f.path from ducklake_data_file f join ducklake_table t using (table_id) where f.end_snapshot is null and t.end_snapshot is null"
            files = [pl.read_parquet(self.path / name) for (name,) in self.catalogue(found)]
            frame = pl.concat(files) if files else pl.DataFrame()
        else:
            frame = pl.read_parquet(self.path.parent / "*.parquet")
        return Counter(frame.iter_rows())

    def commits(self) -> list[int]:
        """Return the numbers of our commits that the table says it has."""
        if self.kind == "iceberg":
            summaries = [one.summary.additional_properties for one in self.iceberg.metadata.snapshots]
            return [int(value) for summary in summaries for name, value in summary.items() if name.startswith("dd/")]
        if self.kind == "ducklake":
            return [int(number) for (number,) in self.catalogue("select value from ducklake_tag where key like 'dd/%'")]
        assert self.kind == "delta", "a Parquet file says the last one"
        lines = [line for path in sorted(self.path.glob("_delta_log/*.json")) for line in path.read_text().splitlines()]
        return [found["txn"]["version"] for line in lines if "txn" in (found := json.loads(line))]

    def leavings(self) -> list[str]:
        """Return the files of the table that none of its versions has."""
        if self.kind == "parquet":
            return [path.name for path in self.path.parent.iterdir() if path != self.path]
        if self.kind == "ducklake":
            named = {name for (name,) in self.catalogue("select path from ducklake_data_file")}
            return [path.name for path in self.path.glob("*") if path.name not in named]
        if self.kind == "iceberg":
            named = {entry["file_path"] for entry in self.iceberg.inspect.all_files().to_pylist()}
            return [
                path.name for path in self.path.glob("**/data/*") if not any(one.endswith(path.name) for one in named)
            ]
        log = "".join(path.read_text() for path in self.path.glob("_delta_log/*.json"))
        found = [path.name for path in self.path.iterdir() if path.is_file() and path.name not in log]
        return found + [path.name for path in self.path.glob("_delta_log/*") if path.suffix != ".json"]

    def check(self) -> None:
        """Hold the table against what it must have."""
        assert self.read() == self.meant()


def race(follower) -> None:
    """Have two runs at once take in what is new, three times: the table is right."""
    draw = chance("races")
    for _ in range(3):
        follower.supply(draw)
        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(follower.run, if_locked="wait") for _ in range(2)]:
                done.result()
        follower.check()


@contextmanager
def through(files):
    """Have runs go through these file operations."""
    with pytest.MonkeyPatch.context() as patch:
        if files is not None:
            patch.setattr(ddcli.store.state.directory, "Files", lambda: files)
        yield


@contextmanager
def small_files():
    """Have tables of few rows be in several files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddcli.store.targets.file_table.SMALL", 4)
        patch.setattr("ddcli.store.targets.file_table.MANY", 8)
        patch.setattr("ddcli.store.targets.file_table.ROWS", 6)
        yield

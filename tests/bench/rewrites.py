"""The cases of tables: 1 000 rows of 100 files are updated, in each way in which writers of Delta Lake and Iceberg do that."""

from __future__ import annotations

import json
import os
import shutil
import statistics
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tests.bench.data import CHANGED, KEYS, SEED
from tests.bench.files import size
from tests.bench.processes import dd, measure
from tests.bench.table import Asked, Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.bench.files import Session

FILES = 100
RUNS = 3
"""Runs of which the median counts, at most."""
ASKED = Asked(seconds=2)
PIPELINE = """\
dd: 1
name: rewrites
inputs: {{orders: {table}}}
collections:
  totals: {{from: orders, apply: [{{reduce: {{by: [customer], n: count(*), placed: max(placed)}}}}]}}
outputs: {{totals: out}}
"""
NAME = "shop.orders"


def part(rows: int, at: int) -> pl.DataFrame:
    """Return the rows of a file: six columns of five types."""
    count = rows // FILES
    random = np.random.default_rng([SEED, at])
    customer = random.integers(0, max(rows // KEYS, 1), count).astype(np.int32)
    placed = random.integers(1_600_000_000_000_000, 1_700_000_000_000_000, count)
    return pl.DataFrame(
        {
            "id": np.arange(at * count, (at + 1) * count),
            "customer": customer,
            "amount": random.random(count) * 1000,
            "price": random.integers(0, 100_000, count) / 100,
            "placed": pl.Series(placed).cast(pl.Datetime("us", "UTC")),
        }
    ).select("id", "customer", pl.format("customer number {}", "customer").alias("name"), "amount", "price", "placed")


def chosen(at: int, count: int) -> np.ndarray:
    """Return the places of a file's rows that are updated, in order."""
    return np.sort(np.random.default_rng([SEED, at, 1]).choice(count, CHANGED // FILES, replace=False))


def updated(rows: int, at: int, places: np.ndarray) -> pl.DataFrame:
    """Return the rows of a file of which some belong to another customer."""
    frame = part(rows, at)
    other = np.array(frame["customer"])
    other[places] = (other[places] + 1) % max(rows // KEYS, 1)
    return frame.with_columns(
        pl.Series("customer", other), pl.format("customer number {}", pl.Series(other)).alias("name")
    )


class DataFiles:
    """The data files of all tables, in a folder where the next call finds them: `base-000`, ... and what each becomes."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows, self.count = folder, rows, rows // FILES
        folder.mkdir(parents=True, exist_ok=True)

    def paths(self, kind: str) -> list[Path]:
        """Return where the files of a kind lie, and write those that are not there yet, several side by side."""
        with ThreadPoolExecutor() as threads:
            return list(threads.map(lambda at: self._path(kind, at), [7] if kind == "one" else range(FILES)))

    def _path(self, kind: str, at: int) -> Path:
        path = self.folder / f"{kind}-{at:03d}.parquet"
        if not path.exists():
            half = path.with_suffix(".half")
            write(half, self._frame(kind, at))
            half.rename(path)
        return path

    def _frame(self, kind: str, at: int) -> pl.DataFrame:
        if kind == "base":
            return part(self.rows, at)
        if kind == "one":
            return updated(self.rows, at, np.arange(CHANGED) % self.count)
        frame = updated(self.rows, at, chosen(at, self.count))
        return frame.sample(fraction=1, shuffle=True, seed=at) if kind == "shuffled" else frame

    def changed(self, most: int) -> pl.DataFrame:
        """Return the rows that are updated, of the first `most` of each file, as they become."""
        found = []
        for at in range(FILES):
            places = chosen(at, min(self.count, most))
            found.append(updated(self.rows, at, places)[places])
        return pl.concat(found)


class DeltaTables:
    """A table of Delta Lake, whose data files are written by pyarrow."""

    described = ("table/_delta_log",)
    """What says which files the table has."""

    def __init__(self, folder: Path, files: DataFiles) -> None:
        self.folder, self.files = folder, files
        self.table = folder / "table"

    @property
    def input(self) -> str:
        """What a pipeline reads."""
        return "{delta: table}"

    def make(self) -> None:
        """Write the table."""
        from deltalake import write_deltalake

        write_deltalake(str(self.table), part(self.files.rows, 0).head(0))
        self.commit([self.add(path) for path in self.files.paths("base")])

    def add(self, path: Path, **more: Any) -> dict[str, Any]:
        """Have a data file in the table's directory, and return the action that adds it."""
        place = self.table / path.name
        if not place.exists():
            os.link(path, place)
        common = {"partitionValues": {}, "dataChange": True, "modificationTime": 1_700_000_000_000}
        return {"add": {"path": path.name, "size": path.stat().st_size, **common, **more}}

    def remove(self, path: Path) -> dict[str, Any]:
        """Return the action that removes a data file."""
        return {"remove": {"path": path.name, "dataChange": True, "deletionTimestamp": 1_700_000_000_000}}

    def commit(self, actions: list[dict[str, Any]]) -> None:
        """Write the next version."""
        from tests.tables.histories import commit

        commit(str(self.table), *actions)

    def replace(self, kind: str) -> None:
        """Commit files of a kind in the place of those that they were."""
        base = self.files.paths("base")
        for_each = zip(base[7:8] if kind == "one" else base, self.files.paths(kind), strict=True)
        self.commit([action for old, new in for_each for action in (self.remove(old), self.add(new))])

    def vectors(self) -> None:
        """Delete rows of every file by deletion vectors, and append what becomes of them."""
        from tests.tables.histories import deletion_vector

        actions, most = [], 1 << 16
        for at, path in enumerate(self.files.paths("base")):
            vector = deletion_vector(chosen(at, min(self.files.count, most)).tolist())
            stats = json.dumps({"numRecords": self.files.count})
            actions += [self.remove(path), self.add(path, deletionVector=vector, stats=stats)]
        new = self.files.folder / "vectors.parquet"
        write(new, self.files.changed(most))
        features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7} | features
        self.commit([{"protocol": protocol}, *actions, self.add(new)])

    def update(self) -> None:
        """Let the package update the rows."""
        from deltalake import DeltaTable

        DeltaTable(str(self.table)).update(
            predicate=f"id % {self.files.rows // CHANGED} = 7", updates={"customer": "cast(customer / 2 as int)"}
        )

    def merge(self) -> None:
        """Let the package merge rows in."""
        from deltalake import DeltaTable

        new = self.files.changed(self.files.count)
        merge = DeltaTable(str(self.table)).merge(new, predicate="s.id = t.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().execute()

    def now(self) -> pl.DataFrame:
        """Return how many orders each customer has, as the package reads the table."""
        from deltalake import DeltaTable

        return pl.DataFrame(DeltaTable(str(self.table)).scan(columns=["customer"]))


def write(path: Path, frame: pl.DataFrame) -> None:
    """Write a data file as Spark would: dictionaries, pages of 1 MB, snappy."""
    from pyarrow import parquet

    parquet.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), path, row_group_size=1 << 20)


class IcebergTables:
    """A table of Iceberg, whose data files are written by pyarrow."""

    described = ("catalog.db", "warehouse/shop/orders/metadata")
    """What says which files the table has."""

    def __init__(self, folder: Path, files: DataFiles) -> None:
        self.folder, self.files = folder, files

    def _location(self, path: Path) -> str:
        """Have a data file in the table's folder, as a table may not name others, and return its location."""
        place = self.folder / "warehouse/shop/orders/data" / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            os.link(path, place)
        return f"file://{place}"

    @property
    def input(self) -> str:
        """What a pipeline reads."""
        from tests.tables.histories import properties_of

        properties = ", ".join(f"{key}: '{value}'" for key, value in properties_of(self.folder).items())
        return f"{{iceberg: {{catalog: {{{properties}}}, table: {NAME}}}}}"

    @property
    def table(self) -> Any:
        """The table as it is now."""
        from pyiceberg.catalog import load_catalog

        from tests.tables.histories import properties_of

        return load_catalog("default", **properties_of(self.folder)).load_table(NAME)

    def make(self) -> None:
        """Write the table."""
        from pyiceberg.catalog import load_catalog

        from tests.tables.histories import properties_of

        catalog = load_catalog("default", **properties_of(self.folder))
        catalog.create_namespace("shop")
        catalog.create_table(NAME, part(self.files.rows, 0).to_arrow(compat_level=pl.CompatLevel.oldest()).schema)
        self._commit([], self.files.paths("base"))

    def replace(self, kind: str) -> None:
        """Commit files of a kind in the place of those that they were."""
        self._commit(self.files.paths("base"), self.files.paths(kind))

    def _commit(self, gone: list[Path], new: list[Path]) -> None:
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        table = self.table
        names = set(map(self._location, gone))
        old = [task.file for task in table.scan().plan_files() if task.file.file_path in names] if gone else []
        with table.transaction() as transaction:
            if transaction.table_metadata.name_mapping() is None:
                transaction.set_properties(
                    **{"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()}
                )
            with transaction.update_snapshot().overwrite() as snapshot:
                for file in old:
                    snapshot.delete_data_file(file)
                paths = map(self._location, new)
                for file in parquet_files_to_data_files(table.io, transaction.table_metadata, paths):
                    snapshot.append_data_file(file)

    def now(self) -> pl.DataFrame:
        """Return how many orders each customer has, as the package reads the table."""
        return pl.DataFrame(self.table.scan(selected_fields=("customer",)).to_arrow())


WAYS: dict[str, tuple[type, dict[str, Callable[[Any], None]]]] = {
    "Delta Lake": (
        DeltaTables,
        {
            "one file": lambda table: table.replace("one"),
            "every file, in place": lambda table: table.replace("place"),
            "every file, shuffled": lambda table: table.replace("shuffled"),
            "deletion vectors": lambda table: table.vectors(),
            "deltalake's update": lambda table: table.update(),
            "deltalake's merge": lambda table: table.merge(),
        },
    ),
    "Iceberg": (
        IcebergTables,
        {
            "every file, in place": lambda table: table.replace("place"),
            "every file, shuffled": lambda table: table.replace("shuffled"),
        },
    ),
}


def rewrites(session: Session) -> list[Figure]:
    """Take in 1 000 updated rows on a loaded state, by the clock and by the processors' time. Each kind of table is loaded once."""
    found = []
    files = DataFiles(session.folder / f"rewrites-{session.rows}-{FILES}", session.rows)
    for title, (kind, ways) in WAYS.items():
        folder = session.place("rewrites")
        folder.mkdir()
        table = kind(folder, files)
        table.make()
        file = folder / "pipeline.yaml"
        file.write_text(PIPELINE.format(table=table.input))
        command = dd("run", file)
        measure(command)
        loaded = session.place("rewrites-loaded")
        kept = (".dd", "out")
        bring(folder, loaded, (*kept, *table.described))
        for way, change in ways.items():
            bring(loaded, folder, table.described)
            change(table)
            runs = []
            for _ in range(min(session.runs, RUNS)):
                bring(loaded, folder, kept)
                runs.append(measure(command))
            check(f"{title}, {way}", folder, table.now())
            label = f"1 000 updated rows of {size(session.rows)} in {FILES} files: {title}, {way}"
            for what, each in (("", [run.wall for run in runs]), (", processor time", [run.cpu for run in runs])):
                found.append(
                    Figure(
                        label + what,
                        statistics.median(each),
                        ASKED,
                        peak=max(run.peak for run in runs),
                        full=session.full,
                        runs=tuple(each),
                    )
                )
        for made in (folder, loaded):
            shutil.rmtree(made)
    return found


def bring(source: Path, target: Path, names: Iterable[str]) -> None:
    """Have files and directories below a folder be as below another one. Parquet files, which nobody changes, are there by links."""
    for name in names:
        place = target / name
        if place.is_dir():
            shutil.rmtree(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, place, copy_function=_link)
        else:
            shutil.copy2(source / name, place)


def _link(source: str, target: str) -> None:
    (os.link if source.endswith(".parquet") else shutil.copy2)(source, target)


def check(name: str, folder: Path, now: pl.DataFrame) -> None:
    """Refuse figures of a wrong answer."""
    from ddcli import read_log

    ours = read_log(folder / "out", as_of="latest").select("customer", "n").sort("customer")
    meant = now.group_by("customer").agg(pl.len().cast(pl.Int64).alias("n")).sort("customer")
    if not ours.equals(meant):
        raise AssertionError(f"dd and the table's package disagree: {name}")

"""The cases of tables: 1 000 rows of 100 files are updated, in each way in which writers of Delta Lake and Iceberg do that."""

from __future__ import annotations

import json
import os
import shutil
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tests.bench.data import CHANGED, KEYS, SEED
from tests.bench.files import size
from tests.bench.processes import dd, measure
from tests.bench.table import Asked, Figure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.bench.files import Session

FILES = 100
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


class DeltaFiles:
    """A table of Delta Lake, whose data files are written by pyarrow."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self.table = folder / "table"

    @property
    def input(self) -> str:
        """What a pipeline reads."""
        return "{delta: table}"

    def make(self) -> None:
        """Write the table."""
        from deltalake import write_deltalake

        write_deltalake(str(self.table), part(self.rows, 0).head(0))
        self.commit([self.add(f"base-{at:03d}", part(self.rows, at)) for at in range(FILES)])

    def add(self, name: str, frame: pl.DataFrame) -> dict[str, Any]:
        """Write a data file, and return the action that adds it."""
        path = self.table / f"{name}.parquet"
        write(path, frame)
        common = {"partitionValues": {}, "dataChange": True, "modificationTime": 1_700_000_000_000}
        return {"add": {"path": path.name, "size": path.stat().st_size, **common}}

    def remove(self, name: str) -> dict[str, Any]:
        """Return the action that removes a data file."""
        return {"remove": {"path": f"{name}.parquet", "dataChange": True, "deletionTimestamp": 1_700_000_000_000}}

    def commit(self, actions: list[dict[str, Any]]) -> None:
        """Write the next version."""
        from tests.tables.histories import commit

        commit(str(self.table), *actions)

    def one_file(self) -> None:
        """Rewrite one file."""
        places = np.arange(CHANGED) % (self.rows // FILES)
        self.commit([self.remove("base-007"), self.add("new", updated(self.rows, 7, places))])

    def every_file(self, *, shuffle: bool = False) -> None:
        """Rewrite every file in place, or in another order."""
        actions = []
        for at in range(FILES):
            frame = updated(self.rows, at, chosen(at, self.rows // FILES))
            frame = frame.sample(fraction=1, shuffle=True, seed=at) if shuffle else frame
            actions += [self.remove(f"base-{at:03d}"), self.add(f"new-{at:03d}", frame)]
        self.commit(actions)

    def vectors(self) -> None:
        """Delete rows of every file by deletion vectors, and append what becomes of them."""
        from tests.tables.histories import deletion_vector

        actions, new = [], []
        for at in range(FILES):
            places = chosen(at, min(self.rows // FILES, 1 << 16))
            new.append(updated(self.rows, at, places)[places])
            vector = deletion_vector(places.tolist())
            common = {"partitionValues": {}, "dataChange": True, "modificationTime": 1_700_000_000_000}
            path = self.table / f"base-{at:03d}.parquet"
            file = {"path": path.name, "size": path.stat().st_size, "deletionVector": vector, **common}
            stats = json.dumps({"numRecords": self.rows // FILES})
            actions += [self.remove(f"base-{at:03d}"), {"add": file | {"stats": stats}}]
        features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        self.commit(
            [
                {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features},
                *actions,
                self.add("new", pl.concat(new)),
            ]
        )

    def update(self) -> None:
        """Let the package update the rows."""
        from deltalake import DeltaTable

        DeltaTable(str(self.table)).update(
            predicate=f"id % {self.rows // CHANGED} = 7", updates={"customer": "cast(customer / 2 as int)"}
        )

    def merge(self) -> None:
        """Let the package merge rows in."""
        from deltalake import DeltaTable

        new = pl.concat(
            [
                updated(self.rows, at, places)[places]
                for at in range(FILES)
                for places in [chosen(at, self.rows // FILES)]
            ]
        )
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


class IcebergFiles:
    """A table of Iceberg, whose data files are written by pyarrow."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows

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

    def path(self, name: str) -> Path:
        """Return where a data file lies."""
        return self.folder / "files" / f"{name}.parquet"

    def make(self) -> None:
        """Write the table."""
        from pyiceberg.catalog import load_catalog

        from tests.tables.histories import properties_of

        self.path("").parent.mkdir()
        catalog = load_catalog("default", **properties_of(self.folder))
        catalog.create_namespace("shop")
        catalog.create_table(NAME, part(self.rows, 0).to_arrow(compat_level=pl.CompatLevel.oldest()).schema)
        self.replace([], {f"base-{at:03d}": part(self.rows, at) for at in range(FILES)})

    def replace(self, gone: list[str], new: dict[str, pl.DataFrame]) -> None:
        """Commit files in the place of others."""
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        for name, frame in new.items():
            write(self.path(name), frame)
        table = self.table
        names = {f"file://{self.path(name)}" for name in gone}
        old = [task.file for task in table.scan().plan_files() if task.file.file_path in names] if gone else []
        with table.transaction() as transaction:
            if transaction.table_metadata.name_mapping() is None:
                transaction.set_properties(
                    **{"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()}
                )
            with transaction.update_snapshot().overwrite() as snapshot:
                for file in old:
                    snapshot.delete_data_file(file)
                paths = [f"file://{self.path(name)}" for name in new]
                for file in parquet_files_to_data_files(table.io, transaction.table_metadata, iter(paths)):
                    snapshot.append_data_file(file)

    def every_file(self, *, shuffle: bool = False) -> None:
        """Rewrite every file in place, or in another order."""
        frames = {}
        for at in range(FILES):
            frame = updated(self.rows, at, chosen(at, self.rows // FILES))
            frames[f"new-{at:03d}"] = frame.sample(fraction=1, shuffle=True, seed=at) if shuffle else frame
        self.replace([f"base-{at:03d}" for at in range(FILES)], frames)

    def now(self) -> pl.DataFrame:
        """Return how many orders each customer has, as the package reads the table."""
        return pl.DataFrame(self.table.scan(selected_fields=("customer",)).to_arrow())


WAYS: dict[str, tuple[type, str, Callable[[Any], None]]] = {
    "Delta Lake, one file": (DeltaFiles, "one", lambda table: table.one_file()),
    "Delta Lake, every file, in place": (DeltaFiles, "place", lambda table: table.every_file()),
    "Delta Lake, every file, shuffled": (DeltaFiles, "shuffled", lambda table: table.every_file(shuffle=True)),
    "Delta Lake, deletion vectors": (DeltaFiles, "vectors", lambda table: table.vectors()),
    "Delta Lake, deltalake's update": (DeltaFiles, "update", lambda table: table.update()),
    "Delta Lake, deltalake's merge": (DeltaFiles, "merge", lambda table: table.merge()),
    "Iceberg, every file, in place": (IcebergFiles, "iceberg-place", lambda table: table.every_file()),
    "Iceberg, every file, shuffled": (IcebergFiles, "iceberg-shuffled", lambda table: table.every_file(shuffle=True)),
}


def rewrites(session: Session) -> list[Figure]:
    """Take in 1 000 updated rows on a loaded state, by the clock and by the processors' time."""
    found = []
    for title, (kind, name, change) in WAYS.items():
        folder = session.place(f"rewrites-{name}")
        folder.mkdir()
        table = kind(folder, session.rows)
        table.make()
        file = folder / "pipeline.yaml"
        file.write_text(PIPELINE.format(table=table.input))
        command = dd("run", file)
        measure(command)
        shutil.copytree(
            folder,
            folder.with_name(f"{folder.name}-loaded"),
            copy_function=os.link,
            ignore=lambda *_: {"table", "files", "warehouse"},
        )
        change(table)
        runs = []
        for _ in range(session.runs):
            for part in (".dd", "out"):
                shutil.rmtree(folder / part)
                shutil.copytree(folder.with_name(f"{folder.name}-loaded") / part, folder / part)
            runs.append(measure(command))
        check(name, folder, table.now())
        label = f"1 000 updated rows of {size(session.rows)} in {FILES} files: {title}"
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
        for made in (folder, folder.with_name(f"{folder.name}-loaded")):
            shutil.rmtree(made)
    return found


def check(name: str, folder: Path, now: pl.DataFrame) -> None:
    """Refuse figures of a wrong answer."""
    from ddcli import read_log

    ours = read_log(folder / "out", as_of="latest").select("customer", "n").sort("customer")
    meant = now.group_by("customer").agg(pl.len().cast(pl.Int64).alias("n")).sort("customer")
    if not ours.equals(meant):
        raise AssertionError(f"dd and the table's package disagree: {name}")

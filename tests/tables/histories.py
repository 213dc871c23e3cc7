"""Random histories of a table of Delta Lake or Iceberg, and what its own package reads at each version."""

import json
import struct
from collections import Counter
from pathlib import Path
from random import Random
from time import time_ns
from urllib.parse import unquote
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType

MAPPED = {"delta.columnMapping.mode": "name"}
UNMAPPED = ("compact", "add_column")
"""The steps that deltalake 1.6 refuses where columns have other names in files."""
FEED = {"delta.enableChangeDataFeed": "true"}
STEPS = ("append", "append", "update", "delete", "merge", "overwrite", "replace", "compact", "add_column", "checkpoint")
VECTORS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "changeDataFeed", "appendOnly", "invariants"],
}
"""The protocol of tables with deletion vectors."""


class DeltaHistory:
    """A table in a directory that changes at random. `held` has its contents by version, in the columns that it has now."""

    def __init__(self, path, random: Random):
        self.path, self.random = str(path), random
        self.schema = {"k": pl.Int64, "v": pl.String, "p": pl.String, "at": pl.Datetime("us", "UTC")}
        options = {"configuration": FEED} if random.random() < 0.5 else {}
        if random.random() < 0.5:
            options["partition_by"] = ["p"]
        elif random.random() < 0.5:  # the package writes a log that it can't read of one with both
            options["configuration"] = options.get("configuration", {}) | MAPPED
        self.steps = (*STEPS, "vector", "vector")
        if options.get("configuration", {}).keys() & MAPPED.keys():
            self.steps = tuple(step for step in self.steps if step not in UNMAPPED)
        write_deltalake(self.path, self.rows(), **options)
        self.added = 0

    def rows(self):
        """Return some rows, many of which are equal."""
        draw = self.random
        rows = [
            {"k": draw.randrange(4), "v": draw.choice(["a", "b", None]), "p": draw.choice(["x", "y z/ä", None])}
            for _ in range(draw.randrange(1, 6))
        ]
        return (
            pl.DataFrame(rows, {name: kind for name, kind in self.schema.items() if name != "at"})
            .with_columns(pl.lit(draw.choice([None, 1_000_000]), pl.Int64).cast(self.schema["at"]).alias("at"))
            .select(*self.schema)
        )

    def change(self, step=None):
        """Change the table; return the step."""
        table, key = DeltaTable(self.path), self.random.randrange(4)
        step = step or self.random.choice(self.steps)
        if step == "append":
            write_deltalake(self.path, self.rows(), mode="append")
        elif step == "update":
            table.update(predicate=f"k >= {key}", updates={"v": "'u'"})
        elif step == "delete":
            table.delete(f"k = {key}")
        elif step == "merge":
            source = self.rows().unique("k", keep="first", maintain_order=True)
            merge = table.merge(source, predicate="s.k = t.k", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        elif step == "overwrite":
            write_deltalake(self.path, self.rows(), mode="overwrite")
        elif step == "replace":
            write_deltalake(
                self.path, self.rows().with_columns(k=pl.lit(key)), mode="overwrite", predicate=f"k = {key}"
            )
        elif step == "compact":
            table.optimize.compact()
        elif step == "add_column":
            self.schema[f"new{self.added}"] = pl.Float64
            self.added += 1
            write_deltalake(self.path, self._with_new(), mode="append", schema_mode="merge")
        elif step == "checkpoint":
            table.create_checkpoint()
        elif step == "vector":
            self._vector()
        return step

    def _vector(self):
        """Delete rows of a data file by a deletion vector, as Spark does, or bring some of them back: its rows stay in the file."""
        files = {}
        for path in sorted((Path(self.path) / "_delta_log").glob("*.json")):
            for kind, action in (item for line in path.read_text().splitlines() for item in json.loads(line).items()):
                if kind in {"add", "remove"}:
                    files.pop(action["path"], None)
                if kind == "add":
                    files[action["path"]] = action
        if not files:
            return
        added = self.random.choice([*files.values()])
        rows = pl.scan_parquet(Path(self.path) / unquote(added["path"]), glob=False).select(pl.len()).collect().item()
        gone = sorted(self.random.sample(range(rows), self.random.randrange(1, rows + 1)))
        if added.get("deletionVector") == deletion_vector(gone):
            return  # no version has a file both added and removed
        removed = {name: added[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in added}
        mapped = ["columnMapping"] if MAPPED.items() <= DeltaTable(self.path).metadata().configuration.items() else []
        features = {kind: VECTORS[kind] + mapped for kind in ("readerFeatures", "writerFeatures")}
        protocol = [] if DeltaTable(self.path).protocol().reader_features else [{"protocol": VECTORS | features}]
        new = {"add": added | {"deletionVector": deletion_vector(gone), "dataChange": True}}
        now = time_ns() // 1_000_000
        commit(self.path, *protocol, {"remove": removed | {"dataChange": True}}, new, timestamp=now)

    def _with_new(self):
        names = [name for name in self.schema if name.startswith("new")]
        base = {name: kind for name, kind in self.schema.items() if name not in names}
        frame = pl.DataFrame([{"k": 9, "v": "n", "p": "x", "at": None}], base)
        return frame.with_columns(pl.lit(1.5).alias(name) for name in names)

    @property
    def version(self):
        """The newest version."""
        return DeltaTable(self.path).version()

    def contents(self, version=None, columns=None):
        """Return the rows that the package reads, with how often each is there."""
        frame = pl.DataFrame(DeltaTable(self.path, version=version).scan())
        columns = columns or list(self.schema)
        missing = [pl.lit(None).alias(name) for name in columns if name not in frame.columns]
        return Counter(frame.with_columns(missing).select(columns).rows())


def checkpoint_with_sidecar(place, *, alone=False):
    """Write a checkpoint of the second kind: a file that names another one, in which the table's files are. `alone`: without the commits before it.

    The package reads these checkpoints, and doesn't write them.
    """
    table, log = DeltaTable(str(place)), Path(place) / "_delta_log"
    version = table.version()
    table.create_checkpoint()
    plain = log / f"{version:020d}.checkpoint.parquet"
    rows = pl.read_parquet(plain)
    side = log / "_sidecars" / f"{uuid4()}.parquet"
    side.parent.mkdir(exist_ok=True)
    named = pl.any_horizontal(pl.col(kind).struct.field("path").is_not_null() for kind in ("add", "remove"))
    rows.filter(named).select("add", "remove").write_parquet(side)
    read, metadata = table.protocol().reader_features or [], table.metadata()
    features = {"readerFeatures": sorted({*read, "v2Checkpoint"}), "writerFeatures": sorted({*(table.protocol().writer_features or []), "v2Checkpoint"})}  # fmt: skip
    described = {
        "id": str(metadata.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": metadata.partition_columns,
        "configuration": metadata.configuration,
    }
    actions = [
        {"checkpointMetadata": {"version": version}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"metaData": described},
        {"sidecar": {"path": side.name, "sizeInBytes": side.stat().st_size, "modificationTime": 1}},
    ]
    (log / f"{version:020d}.checkpoint.{uuid4()}.json").write_text("\n".join(map(json.dumps, actions)))
    plain.unlink()
    (log / "_last_checkpoint").unlink()
    for path in log.glob("*.json") if alone else ():
        if int(path.name.partition(".")[0]) < version:
            path.unlink()


class IcebergHistory:
    """A table of Iceberg in a catalog of its own that changes at random."""

    def __init__(self, folder, random: Random):
        self.folder, self.random = folder, random
        self.catalog = load_catalog("default", **properties_of(folder))
        self.catalog.create_namespace("shop")
        table = self.catalog.create_table("shop.orders", self.rows().to_arrow().schema)
        table.append(self.rows().to_arrow())
        self.added = 0

    @property
    def table(self):
        """The table as it is now."""
        return self.catalog.load_table("shop.orders")

    def rows(self):
        """Return some rows, many of which are equal."""
        draw = self.random
        rows = [(draw.randrange(4), draw.choice(["a", "b", None])) for _ in range(draw.randrange(1, 6))]
        return pl.DataFrame(rows, {"k": pl.Int64, "v": pl.String}, orient="row")

    def change(self):
        """Change the table; return the step."""
        table, key = self.table, self.random.randrange(4)
        steps = [
            "append",
            "delete",
            "overwrite",
            "replace",
            "add_column",
            "rewrite",
            "upsert",
            "positions",
            "positions",
        ]
        step = self.random.choice(steps)
        if step == "append":
            table.append(self._whole(self.rows()))
        elif step == "delete":
            table.delete(f"k = {key}")
        elif step == "overwrite":
            table.overwrite(self._whole(self.rows()))
        elif step == "replace":
            table.overwrite(self._whole(self.rows().with_columns(k=pl.lit(key))), f"k = {key}")
        elif step == "upsert" and table.scan().to_arrow().num_rows:
            table.overwrite(self._whole(self.rows().unique("k")))
            source = self.rows().unique("k").with_columns(v=pl.lit("up"))
            self.table.upsert(self._whole(source), join_cols=["k"])
        elif step == "positions" and (tasks := list(table.scan().plan_files())):
            task = self.random.choice(tasks)
            rows = range(task.file.record_count)
            delete_positions(
                table, task.file.file_path, self.random.sample(rows, self.random.randrange(1, len(rows) + 1))
            )
        elif step == "rewrite":
            table.overwrite(table.scan().to_arrow())
        elif step == "add_column":
            self.added += 1
            with table.update_schema() as update:
                update.add_column(f"new{self.added}", DoubleType())
        return step

    def _whole(self, frame):
        added = [pl.lit(self.random.choice([None, 1.5]), pl.Float64).alias(f"new{at + 1}") for at in range(self.added)]
        return frame.with_columns(added).to_arrow()

    def contents(self, version=None):
        """Return the rows that the package reads, in their first columns, with how often each is there."""
        table = self.table
        found = [each.snapshot_id for each in table.snapshots() if each.sequence_number == version]
        scan = table.scan(snapshot_id=found[0]) if version is not None else table.scan()
        return Counter(pl.DataFrame(scan.to_arrow()).select("k", "v").rows())


def properties_of(folder):
    """Return the properties of a catalog in a folder."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def named(properties):
    """Return a catalog as pipeline files name it: a server's by a name of pyiceberg's configuration, as it takes credentials."""
    if properties["type"] == "rest":
        return "prod"
    return "{" + ", ".join(f"{key}: '{value}'" for key, value in properties.items()) + "}"


# Commits that the packages don't write.


class DeletesAdded(_FastAppendFiles):
    """A snapshot that adds files of rows that are deleted, partitioned by the spec with a number; pyiceberg writes none."""

    def new_manifest_writer(self, spec):
        writer = super().new_manifest_writer(self.spec(self.number))
        writer.__class__ = DeleteManifest
        return writer


class DeleteManifest(ManifestWriterV2):
    """A manifest of files with positions."""

    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return super()._meta | {"content": "deletes"}


def delete_positions(table, path, rows):
    """Delete rows of a data file by a file with their positions."""
    positions = {"file_path": [path] * len(rows), "pos": pa.array(sorted(rows), pa.int64())}
    _delete(
        table, pa.table(positions), table.spec().spec_id, content=DataFileContent.POSITION_DELETES, partition=Record()
    )


def delete_equal(table, names, rows, partition=None):
    """Delete the rows that have some values in the columns of these names, of one partition or, by the spec that the table was made with, of all."""
    schema = schema_to_pyarrow(table.schema().select(*names))
    frame = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)
    numbers = [table.schema().find_field(name).field_id for name in names]
    where, number = (Record(), 0) if partition is None else (Record(partition), table.spec().spec_id)
    _delete(table, frame, number, content=DataFileContent.EQUALITY_DELETES, partition=where, equality_ids=numbers)


def _delete(table, frame, number, **facts):
    """Add a snapshot with a file that deletes rows."""
    name = f"{table.location()}/data/{uuid4()}-deletes.parquet"
    pq.write_table(frame, name.removeprefix("file://"))
    facts |= {"file_format": FileFormat.PARQUET, "record_count": len(frame)}
    facts["file_size_in_bytes"] = Path(name.removeprefix("file://")).stat().st_size
    deletes = DataFile.from_args(file_path=name, **facts)
    deletes.spec_id = number
    with table.transaction() as transaction:
        snapshot = DeletesAdded(Operation.DELETE, transaction, table.io)
        snapshot.number = number
        snapshot.append_data_file(deletes).commit()


Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
MAGIC = 1681511377


def commit(table, *actions, engine="Apache-Spark/4.0.0", timestamp=1_800_000_000_000):
    """Write the next commit of a table; return its version."""
    version = DeltaTable(table).version() + 1
    lines = [{"commitInfo": {"timestamp": timestamp, "engineInfo": engine, "operation": "WRITE"}}, *actions]
    path = Path(table) / "_delta_log" / f"{version:020d}.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return version


def actions_of(table, kind):
    """Return the actions of a kind in the log, in order."""
    lines = [
        line for path in sorted((Path(table) / "_delta_log").glob("*.json")) for line in path.read_text().splitlines()
    ]
    return [found[kind] for line in lines if kind in (found := json.loads(line))]


def deletion_vector(rows):
    """Return the vector that deletes these rows, as the log has it in place: a roaring bitmap in Z85."""
    array = struct.pack(f"<{len(rows)}H", *sorted(rows))
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + array
    data = struct.pack("<IQI", MAGIC, 1, 0) + bitmap
    padded = data + bytes(-len(data) % 4)
    text = ""
    for (word,) in struct.iter_unpack(">I", padded):
        digits = [word // 85**power % 85 for power in (4, 3, 2, 1, 0)]
        text += "".join(Z85[digit] for digit in digits)
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(rows)}

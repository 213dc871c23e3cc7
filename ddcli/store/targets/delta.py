"""Tables of Delta Lake that follow outputs: commits are written into the table's log here, as deltalake has no commit that removes named files.

A commit is a file with the version's number, which only one writer makes. It names our number beside the files (`txn`), and readers
keep that in checkpoints. The package deltalake makes tables, reads logs and writes checkpoints; if no other writer has committed
since our last commit, it is not imported.
"""

from __future__ import annotations

import json
import time as clock
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ddcli.errors import EngineError, StateError, first_line
from ddcli.store.files.access import fs
from ddcli.store.files.foreign import check_names
from ddcli.store.files.gate import temporary
from ddcli.store.log.writer import parquet_bytes
from ddcli.store.mirrors.delta import check_log, open_delta, read_names
from ddcli.store.mirrors.delta_commits import LOG, is_as_left, tip_of
from ddcli.store.targets.file_table import FileTable, arrow_schema
from ddcli.store.targets.mark import other_columns, overtaken
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl
    from deltalake import DeltaTable
    from deltalake import Schema as DeltaSchema

    from ddcli.expressions.types import Schema
    from ddcli.store.files.gate import Files
    from ddcli.store.targets.file_table import Write
    from ddcli.store.targets.mark import CommitKey, CommitRecord, TableFile

CHECKPOINTS = 20
"""Versions after which a checkpoint is written."""
SWEEPS = 200
"""Versions after which files are removed that no version of the last week has."""
FEATURES = {"timestampNtz", "vacuumProtocolCheck", "appendOnly", "invariants"}
"""The features that a table may ask of its writers: all that tables that we make ask."""


class DeltaTarget(FileTable):
    """A table of Delta Lake in a directory; `known` is the last commit of ours."""

    def __init__(
        self, directory: Path, key: CommitKey, files: Files, known: CommitRecord | None, *, contents: bool
    ) -> None:
        super().__init__(str(directory), key, contents=contents)
        self._directory, self._files = directory, files
        self._known = known if known is not None and is_as_left(directory, known.left) else None
        self._version = self._known.left["version"] if self._known else -1
        self._opened: DeltaTable | None = None
        self._sizes: dict[str, int] = {}
        self._metadata: dict[str, Any] | None = None
        """The description of the table with other columns, which the next commit has."""

    def number(self) -> int | None:
        if self._known is not None:
            return self._known.number
        return None if (table := self._table()) is None else table.transaction_version(str(self.key))

    def left(self) -> dict[str, Any]:
        return {"version": self._version, "tip": tip_of(self._directory, self._version)}

    def names(self) -> set[str]:
        if self._known is not None and self.contents:
            return {piece.name for piece in self._known.pieces}
        table = self._table()
        if table is None:
            return set()
        self._check_features(table)
        with self._errors():
            names = read_names(table)
        check_names(names, self.place)
        return names

    def make(self, columns: Schema, former: Schema | None) -> None:
        table = self._table()
        from deltalake import DeltaTable
        from deltalake import Schema as DeltaSchema

        schema = DeltaSchema.from_arrow(arrow_schema(columns))
        with self._errors():
            if table is None:
                DeltaTable.create(str(self._directory), schema=schema)
                table = self._table()
            assert table is not None, "it was just made"
            if table.schema() == schema:
                return
            if former is not None and table.schema() == DeltaSchema.from_arrow(arrow_schema(former)):
                self._metadata = _metadata(table, schema)
            else:
                raise other_columns(self.place)

    def writer(self, footer: Mapping[str, str]) -> Write:
        return partial(_write, self._directory, self._files, dict(footer) or None)

    def adopt(self, name: str, facts: Any) -> None:
        self._sizes[name] = facts

    def commit(self, number: int, new: Sequence[TableFile], gone: Sequence[str]) -> None:
        self._files.sync_directory(self._directory)
        version, now = self._version + 1, int(clock.time() * 1000)
        info = {"timestamp": now, "operation": "WRITE", "operationParameters": {}, "engineInfo": f"ddcli:{__version__}"}
        actions: list[dict[str, Any]] = [
            {"commitInfo": info},
            *([{"metaData": self._metadata}] if self._metadata else []),
            {"txn": {"appId": str(self.key), "version": number, "lastUpdated": now}},
            *({"remove": _removed(name, now)} for name in gone),
            *({"add": _added(piece, self._sizes[piece.name], now)} for piece in new),
        ]
        data = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()
        if not self._files.claim(self._directory / LOG / f"{version:020d}.json", data):
            raise overtaken(self.place)
        self._version, self._metadata = version, None
        self._tidy()

    def discard(self, number: int, pieces: Sequence[TableFile]) -> None:
        super().discard(number, pieces)
        if self._version >= 0 or self._table() is not None:
            for version in (self._version, self._version + 1):
                self._files.remove(temporary(self._directory / LOG / f"{version:020d}.json", 0))

    def _check_features(self, table: DeltaTable) -> None:
        """Refuse a table with features that this writer lacks: deletion vectors, for instance."""
        features = {*(table.protocol().writer_features or ())} - FEATURES
        if features or table.metadata().partition_columns:
            raise StateError(
                f"the table asks of its writers what `dd` doesn't do: {', '.join(sorted(features)) or 'partitions'}",
                place=self.place,
                hint="remove the table: the next run rewrites it",
            )

    def _table(self) -> DeltaTable | None:
        """Return the table as it is now, once; None where there is none."""
        if self._opened is None and fs(self._directory / LOG).exists():
            with self._errors():
                check_log(self._directory)
                self._opened = open_delta(self._directory)
                self._version = self._opened.version()
        return self._opened

    def _tidy(self) -> None:
        """Write a checkpoint now and then, and remove files that no version of the last week has. After a failure a later commit does it."""
        if self._version % CHECKPOINTS:
            return
        try:
            with self._errors():
                table = open_delta(self._directory)
                table.create_checkpoint()
                if self._version % SWEEPS == 0:
                    table.vacuum(dry_run=False)
                    table.cleanup_metadata()
                    self._version = table.version()
        except EngineError:
            return

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the package into errors of the output."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            raise EngineError(
                f"the table of Delta Lake can't be written: {first_line(error)}", place=self.place
            ) from None


def _metadata(table: DeltaTable, schema: DeltaSchema) -> dict[str, Any]:
    """Return the description of a table that has these columns from now on; all else stays."""
    known = table.metadata()
    named = {"name": known.name, "description": known.description}
    return {
        "id": str(known.id),
        **{name: text for name, text in named.items() if text},
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.to_json(),
        "partitionColumns": [],
        "configuration": dict(known.configuration),
        "createdTime": known.created_time,
    }


def _write(directory: Path, files: Files, footer: dict[str, str] | None, name: str, rows: pl.DataFrame) -> int:
    """Write a file of rows; return its size."""
    data = parquet_bytes(rows.height, lambda start, end: rows[start:end], footer)
    files.write(directory / name, data)
    files.sync(directory / name)
    return data.nbytes


def _added(piece: TableFile, size: int, now: int) -> dict[str, Any]:
    stats = json.dumps({"numRecords": piece.rows})
    return {
        "path": piece.name,
        "partitionValues": {},
        "size": size,
        "modificationTime": now,
        "dataChange": True,
        "stats": stats,
    }


def _removed(name: str, now: int) -> dict[str, Any]:
    return {"path": name, "deletionTimestamp": now, "dataChange": True, "partitionValues": {}}

"""Who reads the outputs of the shop, at any moment, without asking anybody: what each of them sees.

Run as a program it looks again and again until its input ends, and then writes all that it has seen, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

import ddcli
from ddcli.errors import InputError, RewrittenError
from ddcli.store.files.objects import ObjectPath
from tests.crash.shop import OUTPUTS
from tests.harness import ROOT

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return the one database of this process, as opening one takes longer than what is read with it; it keeps nothing of files."""
    return duckdb.connect(config={"enable_external_file_cache": "false"})


FOLDERS = "updates-*/*.parquet"
"""The files of large commits, below a log's directory."""


SUM = "select * exclude (diff), sum(diff)::bigint from read_parquet({}) group by all having sum(diff) <> 0"


def by_duckdb(directory: Path) -> list[tuple]:
    if isinstance(directory, ObjectPath):
        return by_duckdb_in_store(directory)
    globs = [f"{directory}/*.parquet", *([f"{directory}/{FOLDERS}"] if any(directory.glob(FOLDERS)) else [])]
    try:
        found = database().cursor().sql(SUM.format(globs)).fetchall()
    except duckdb.IOException:
        return []
    return found if len(globs) > 1 or not any(directory.glob(FOLDERS)) else by_duckdb(directory)


def by_duckdb_in_store(directory: ObjectPath) -> list[tuple]:
    """Read the objects that are listed, without folders of large commits; again where one has changed meanwhile.

    They are copied first: DuckDB's own client of S3 can't be had here, and through fsspec it sometimes reads other bytes than an object has
    that was written once.
    """
    before = dict(directory.tagged())
    files = [path for path in before if path.suffix == ".parquet" and not path.name.startswith(".")]
    with tempfile.TemporaryDirectory() as folder:
        try:
            for path in files:
                Path(folder, path.name).write_bytes(path.read_bytes())
        except FileNotFoundError:
            return by_duckdb_in_store(directory)
        found = database().cursor().sql(SUM.format([f"{folder}/*.parquet"])).fetchall() if files else []
    return found if dict(directory.tagged()) == before else by_duckdb_in_store(directory)


def by_polars(directory: Path) -> list[tuple]:
    try:
        log = pl.scan_parquet([directory / "*.parquet", directory / FOLDERS]).collect()
    except (pl.exceptions.ComputeError, FileNotFoundError):
        return []
    summed = log.group_by(pl.exclude("diff")).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    return summed.rows()


def by_log(directory: Path) -> list[tuple]:
    try:
        return ddcli.read_log(directory, consolidate=True).rows()
    except InputError:
        return []


def by_format(directory: Path) -> list[tuple]:
    """Read by Spark's `format("dd")`, whose tasks are here; it may refuse a log that changes under it, never show another one."""
    from tests.spark.formats import read

    try:
        log, _ = read(directory, readChangeFeed="true", partitions="2")
    except InputError:
        return []
    except RewrittenError:
        return by_format(directory)
    summed = log.group_by(pl.exclude("diff")).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    return summed.rows()


LOOKED = "looked\n"
"""What a process writes when it has looked once."""
READERS: dict[str, Callable[[Path], list[tuple]]] = {"duckdb": by_duckdb, "polars": by_polars, "dd log": by_log}
if find_spec("pyspark") is not None:
    READERS["format dd"] = by_format


def digest(rows: list[tuple]) -> str:
    """Return what tells contents apart."""
    return hashlib.sha256(repr(sorted(map(tuple, rows))).encode()).hexdigest()


def look(folder: Path) -> dict[str, dict[str, str]]:
    """Return what each reader sees of each output, as digests."""
    return {reader: {name: digest(read(folder / "out" / name)) for name in OUTPUTS} for reader, read in READERS.items()}


def contents(rows: dict[str, Counter], before: int) -> dict[str, str]:
    """Return the digests of outputs with these accumulated updates, of which those before a time count."""
    return {
        name: digest([(*update, diff) for update, diff in found.items() if diff and update[-1] < before])
        for name, found in rows.items()
    }


@contextmanager
def looping(folder: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Have a process for each reader look again and again, from the beginning on; fills in what it has seen, and how often it has looked."""
    found: dict[str, dict[str, Any]] = {}
    command = [sys.executable, "-m", "tests.crash.readers", str(folder)]
    processes = {
        reader: subprocess.Popen([*command, reader], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for reader in READERS
    }
    try:
        for process in processes.values():
            assert process.stdout.readline() == LOOKED
        yield found
    finally:
        for reader, process in processes.items():
            said, _ = process.communicate("", timeout=300)
            found[reader] = json.loads(said)


def main(folder: Path, reader: str) -> None:
    """Look until the input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    seen: dict[str, set[str]] = {name: set() for name in OUTPUTS}
    looks = 0
    while not ended.is_set():
        for name in OUTPUTS:
            seen[name].add(digest(READERS[reader](folder / "out" / name)))
        looks += 1
        if looks == 1:
            print(LOOKED, end="", flush=True)
    print(json.dumps({"looks": looks, "seen": {name: sorted(digests) for name, digests in seen.items()}}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

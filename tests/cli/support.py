"""What the tests of commands share: pipelines and logs in a folder, commands run in this process or their own, snapshots."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ddcli.cli.main import main
from tests.store.support import LOCKS

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


def write_log(path, rows, schema, **options):
    """Write rows (data, time, diff) as a Parquet file; `schema` gives their columns' polars types."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(path, **options)


def read_log(directory):
    """Return all updates of an output log as DuckDB and polars see them: `*.parquet` in the directory."""
    return pl.read_parquet(directory / "*.parquet")


def contents(directory, until=None):
    """Return the collection that a log holds before a time: each record with its multiplicity."""
    log = read_log(directory)
    if until is not None:
        log = log.filter(pl.col("time") < until)
    columns = [name for name in log.columns if name not in ("time", "diff")]
    summed = log.group_by(columns).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    return {tuple(row[:-1]): row[-1] for row in summed.rows()}


def snapshot(*directories):
    """Return bytes and modification times of all files below some directories, and the directories themselves."""
    found = {}
    for directory in directories:
        for path in [directory, *sorted(directory.rglob("*"))] if directory.exists() else ():
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, path.read_bytes() if path.is_file() else None)
    return found


def files(*directories):
    """Return the bytes of all files below some directories but locks, whose holder a run may note without harm."""
    found = snapshot(*directories).items()
    return {path: data for path, (_, data) in found if data is not None and path.name not in LOCKS}


@dataclass
class Shop:
    """A folder with pipelines and logs, in which commands run."""

    folder: Path
    capture: object

    def __call__(self, *arguments):
        """Run a command in this process."""
        self.capture.readouterr()
        code = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        out, err = self.capture.readouterr()
        return Result(code, out, err)

    def process(self, *arguments, script=None, **options):
        """Run a command, or a Python script, in a process of its own."""
        command = [sys.executable, *(["-c", script] if script else ["-m", "ddcli"]), *map(str, arguments)]
        env = os.environ | {"PYTHONPATH": str(ROOT)} | options.pop("env", {})
        options = {"capture_output": True, "text": True, "timeout": 300} | options
        done = subprocess.run(command, cwd=self.folder, env=env, check=False, **options)
        return Result(done.returncode, done.stdout or "", done.stderr or "")

    def write(self, name, text):
        """Write a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def log(self, name, rows, **types):
        """Write a file of a log: rows of the columns `types`, time and diff."""
        write_log(self.folder / name, rows, types)

    @property
    def kept(self):
        """The folders that a run must leave as they are when it fails."""
        return self.folder / ".dd", self.folder / "out"

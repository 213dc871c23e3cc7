"""A pipeline of pipelines/ in a folder of its own, over its own logs or others, and its outputs at any time."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import yaml

from ddcli.driver.run import run
from tests.draws import some
from tests.harness import ROOT
from tests.pipelines.meaning import MEANING

if TYPE_CHECKING:
    from pathlib import Path

Time = int | dt.date
Record = tuple[Any, ...]
Update = tuple[Record, Time, int]


@dataclass(frozen=True)
class Copy:
    """A pipeline file and its logs, copied."""

    name: str
    folder: Path

    @classmethod
    def make(cls, name: str, folder: Path, logs: dict[str, list[Update]] | None = None) -> Copy:
        """Copy a pipeline into an empty folder, with other logs in the columns of its own if some are given."""
        copy = cls(name, folder)
        (folder / "pipelines").mkdir(parents=True)
        shutil.copy(ROOT / "pipelines" / f"{name}.yaml", copy.path)
        for source in copy.inputs:
            original, target = ROOT / "pipelines" / copy.inputs[source], copy.path.parent / copy.inputs[source]
            target.parent.mkdir(parents=True, exist_ok=True)
            if logs is None:
                shutil.copy(original, target)
            else:
                write_log(target, logs[source], like=original)
        return copy

    @property
    def path(self) -> Path:
        return self.folder / "pipelines" / f"{self.name}.yaml"

    @property
    def tree(self) -> dict[str, Any]:
        return yaml.safe_load(self.path.read_text())

    @property
    def inputs(self) -> dict[str, str]:
        """Return the inputs' paths."""
        return {name: declared["path"] for name, declared in self.tree["inputs"].items()}

    def run(self, until: Time | None = None) -> None:
        """Close the times before `until`, or all there is."""
        run(self.path, until=None if until is None else str(until))

    def logs(self) -> dict[str, list[Update]]:
        """Return all updates of each input."""
        return {name: read_log(self.path.parent / path) for name, path in self.inputs.items()}

    def outputs(self) -> dict[str, list[Update]]:
        """Return all updates of each output so far."""
        found = {}
        for name, declared in self.tree["outputs"].items():
            path = declared if isinstance(declared, str) else declared["path"]
            found[name] = [
                update for file in sorted((self.path.parent / path).glob("*.parquet")) for update in read_log(file)
            ]
        return found

    def check(self, first: Time, upper: Time) -> None:
        """Hold the outputs against their meaning at every time from `first` to before `upper`, which is all that there are, or at each third."""
        inputs, outputs = self.logs(), self.outputs()
        for name, log in outputs.items():
            assert all(first <= time < upper for _, time, _ in log), f"{name} has an update out of its times"
        for now in some(reversed(every_time(first, upper))):
            meant = MEANING[self.name]({name: accumulate(log, now) for name, log in inputs.items()}, now)
            assert set(meant) == set(outputs)
            for name, records in meant.items():
                assert accumulate(outputs[name], now) == Counter(records), f"{name} at {now}"


def every_time(first: Time, upper: Time) -> list[Time]:
    """Return the times from `first` to before `upper`, one by one."""
    if isinstance(first, int):
        return list(range(first, upper))
    return [first + dt.timedelta(days=days) for days in range((upper - first).days)]


def accumulate(log: list[Update], now: Time) -> Counter[Record]:
    """Return the records that are there at a time, with their multiplicities."""
    counts: Counter[Record] = Counter()
    for record, time, diff in log:
        if time <= now:
            counts[record] += diff
    return Counter({record: count for record, count in counts.items() if count})


def read_log(path: Path) -> list[Update]:
    """Return the updates of a file."""
    frame = pl.read_parquet(path)
    if "diff" not in frame.columns:
        frame = frame.with_columns(diff=pl.lit(1))
    return [
        (row[:-2], row[-2], row[-1]) for row in frame.select(pl.exclude("time", "diff"), "time", "diff").iter_rows()
    ]


def write_log(path: Path, log: list[Update], like: Path) -> None:
    """Write updates into a file with the columns of another."""
    schema = pl.read_parquet_schema(like)
    names = [name for name in schema if name not in {"time", "diff"}]
    types = {name: schema.get(name, pl.Int64) for name in (*names, "time", "diff")}
    pl.DataFrame([(*record, time, diff) for record, time, diff in log], types, orient="row").write_parquet(path)

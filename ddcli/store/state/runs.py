"""Records of the last runs, for people: a small file each, `<state>/runs/<number of the commit>.json`.

Nothing depends on them. So a record is written after the commit and not flushed: a machine that stops may lose it, or
leave a torn one, which is no JSON and is ignored.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Self

from ddcli.dataclass import dataclass
from ddcli.engine.counts import Counts, RowCounts
from ddcli.expressions.types import ARRIVAL_TIME
from ddcli.store.files.access import fs, read_bytes
from ddcli.store.state.document import DAMAGED, RUN, count_of, parsed
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ddcli.store.files.gate import Files
    from ddcli.store.state.entries import ReplacedFile
    from ddcli.store.state.manifest import Manifest

RUNS = "runs"
KEPT = 100
"""The number of commits whose records are kept."""
FORMAT = 1


@dataclass(frozen=True)
class RunRecord:
    """A run: the number of its commit, its begin (ISO 8601, UTC), its summary as plain values, and the counts of each operator."""

    number: int
    began: str
    summary: Mapping[str, Any]
    operators: Counts

    @property
    def seconds(self) -> float:
        """Return the run's seconds."""
        return float(self.summary["seconds"])

    @property
    def rows(self) -> int:
        """Return the number of updates that it read."""
        return sum(int(given["rows"]) for given in self.summary["inputs"].values())

    @property
    def state_bytes(self) -> int:
        """Return the bytes of the state after it."""
        return int(self.summary["state_bytes"])

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that a file holds of it."""
        operators = {name: count.to_json() for name, count in self.operators.items()}
        return {
            "format": FORMAT,
            "number": self.number,
            "began": self.began,
            "summary": self.summary,
            "operators": operators,
        }

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Self:
        """Return the record that a file holds as `tree`; raise KeyError, TypeError or ValueError where it holds none."""
        if tree["format"] != FORMAT:
            raise ValueError(tree["format"])
        operators = Counts({name: _count(count) for name, count in tree["operators"].items()})
        found = cls(int(tree["number"]), str(tree["began"]), tree["summary"], operators)
        found.seconds, found.rows, found.state_bytes  # noqa: B018 - a file without these is no record
        for made in found.summary["outputs"].values():
            count_of(made["rows"]), count_of(made["inserted"])
        return found


def _count(tree: Mapping[str, Any]) -> RowCounts:
    """Return the counts of an operator from a file."""
    found = RowCounts(**tree)
    rows = found.rows_in, found.rows_out, found.inserted, found.rows_read, found.rows_scanned
    for number in (*rows, found.turns, *found.rounds):
        count_of(number)
    if not 0 <= float(found.seconds) < math.inf:
        raise ValueError(tree)
    return found


def write_run(directory: Path, record: RunRecord, files: Files) -> None:
    """Keep a run's record in its state, and drop those more than `KEPT` commits older. Raises EngineError.

    A run removes the one record that is due, and now and then all that others may have left.
    """
    place = directory / RUNS
    # The record isn't flushed either: after a power cut it may be missing.
    files.make_directory(place, flush=False)
    data = json.dumps(record.to_json(), separators=(",", ":")).encode()
    files.write(place / f"{record.number:09d}.json", data)
    due = place / f"{record.number - KEPT:09d}.json"
    if record.number % KEPT:
        if record.number > KEPT:
            files.remove(due)
        return
    for entry in fs(place).entries(RUN):
        if entry.path.name <= due.name:
            files.remove(entry.path)


def forget_examples(directory: Path, files: Files) -> None:
    """Remove the records that quote a row of an input, a violation of a check, or a measure."""
    for record in read_runs(directory):
        inputs, checks = record.summary["inputs"].values(), record.summary.get("checks", {}).values()
        if any(given.get("example") for given in inputs) or any(
            each.get("first") or each.get("problems") for each in checks
        ):
            files.remove(directory / RUNS / f"{record.number:09d}.json")


def run_text(directory: Path, manifest: Manifest, replaced: ReplacedFile) -> str:
    """Return the time of the run that replaced or withdrew a file, or its commit where its record is gone."""
    if manifest.cache.get("clock") == "arrival":
        return format_time((replaced.until,), [ARRIVAL_TIME])
    began = next((each.began for each in read_runs(directory) if each.number >= replaced.commit), None)
    return f"commit {replaced.commit}" if began is None else shown_time(began)


def shown_time(began: str) -> str:
    """Return the time at which a run began as other times are shown: in UTC, without an offset."""
    return began.replace("T", " ").replace("Z", "").partition("+")[0]


def read_runs(directory: Path) -> list[RunRecord]:
    """Return the records in a state, oldest first. Takes no lock: one that is removed meanwhile, or torn, is ignored."""
    found = []
    for path in (entry.path for entry in fs(directory / RUNS).entries() if RUN.fullmatch(entry.path.name)):
        try:
            found.append(RunRecord.from_json(parsed(read_bytes(path))))
        except (FileNotFoundError, *DAMAGED):
            continue
    return found

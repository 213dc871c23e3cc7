"""A case to judge: a pipeline file, what is in its inputs, and how both are cut into runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import yaml

from ddcli.expressions.types import Schema, parse_type

if TYPE_CHECKING:
    from pathlib import Path

    from tests.reference.model import Record, Time


@dataclass(frozen=True)
class Arrival:
    """One new file of an input, in the order of its rows: (record, time, diff)."""

    input: str
    updates: tuple[tuple[Record, Time, int], ...]


@dataclass(frozen=True)
class Run:
    """Files that arrive, then a run of the pipeline that closes the times before `until` (None: all it has seen)."""

    files: tuple[Arrival, ...] = ()
    until: str | None = None


@dataclass(frozen=True, repr=False)
class Case:
    """A pipeline and its runs. Inputs are declared in it with their columns, and lie in `in/<name>/`.

    Its `repr` is Python text that makes it again, to be pasted into a test.
    """

    text: str
    runs: tuple[Run, ...]
    tree: dict[str, Any] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", yaml.safe_load(self.text))

    def at_once(self) -> Case:
        """Return the case with the same files taken in by one run."""
        untils = [run.until for run in self.runs]
        until = None if untils[-1] is None else max(until for until in untils if until is not None)
        return Case(self.text, (Run(tuple(file for run in self.runs for file in run.files), until),))

    def schema(self, name: str) -> Schema:
        """Return the declared columns of an input."""
        return {column: parse_type(kind) for column, kind in self.tree["inputs"][name]["columns"].items()}

    def times(self, name: str) -> list[str]:
        """Return the time columns of an input."""
        declared = self.tree["inputs"][name].get("time", "time")
        return [declared] if isinstance(declared, str) else declared

    def updates(self, name: str) -> list[tuple[Record, Time, int]]:
        """Return all the updates of an input, of every run."""
        files = [file for run in self.runs for file in run.files if file.input == name]
        return [update for file in files for update in file.updates]

    def __repr__(self) -> str:
        lines = [f'Case(\n    """\\\n{self.text}""",\n    (']
        for run in self.runs:
            lines.append("        Run(\n            (")
            for file in run.files:
                lines.append(f"                Arrival({file.input!r}, (")
                lines += [f"                    {update!r}," for update in file.updates]
                lines.append("                )),")
            lines.append(f"            ),\n            until={run.until!r},\n        ),")
        return "\n".join(lines).replace("datetime.", "dt.") + "\n    ),\n)"


def write_file(case: Case, file: Arrival, path: Path) -> None:
    """Write one file of an input's log."""
    schema = case.schema(file.input)
    columns = {}
    for at, (name, kind) in enumerate(schema.items()):
        columns[name] = pl.Series(
            name, [record[at] for record, _, _ in file.updates], dtype=kind.to_polars(), strict=True
        )
    for at, name in enumerate(case.times(file.input)):
        columns[name] = pl.Series(name, [time[at] for _, time, _ in file.updates], dtype=pl.Int64)
    columns["diff"] = pl.Series("diff", [diff for _, _, diff in file.updates], dtype=pl.Int64)
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_parquet(path)

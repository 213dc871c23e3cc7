"""A case to judge: a pipeline file, what is in its inputs, and how both are cut into runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.driver.run import run
from ddcli.errors import EngineError, InputError
from ddcli.expressions.python_values import to_series
from ddcli.expressions.types import Schema, Type, parse_type
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.outputs import progress_bytes
from tests.judge.frontiers import BEGINNING, Frontier, both, box, either
from tests.reference.values import plain, time_value
from tests.yaml_text import read_yaml

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
    """Files that arrive, then a run of the pipeline that closes the times before `until`: "3", or "3,5" for a box.

    None: what the inputs' `progress` says that was ever given, (input, upper); without any, all it has seen.
    """

    files: tuple[Arrival, ...] = ()
    until: str | None = None
    progress: tuple[tuple[str, Frontier], ...] = ()


@dataclass(frozen=True, repr=False)
class Case:
    """A pipeline and its runs. Inputs are declared in it with their columns, and lie in `in/<name>/`.

    `time` is the type of the coordinates of times, which are integers here all the same. Its `repr` is Python text that
    makes it again, to be pasted into a test.
    """

    text: str
    runs: tuple[Run, ...]
    time: str = "int64"
    tree: dict[str, Any] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", read_yaml(self.text))

    def at_once(self) -> Case:
        """Return the case with the same files taken in by one run, which closes no less."""
        files = tuple(file for run in self.runs for file in run.files)
        corners = [corner_of(run.until) for run in self.runs if run.until is not None]
        if corners and self.runs[-1].until is None:
            corners += [tuple(x + 1 for x in time) for file in files for _, time, _ in file.updates]
        until = ",".join(str(max(values)) for values in zip(*corners, strict=True)) or None
        progress = dict(said for run in self.runs for said in run.progress)
        return replace(self, runs=(Run(files, until, tuple(progress.items())),))

    def schema(self, name: str) -> Schema:
        """Return the declared columns of an input."""
        return {column: parse_type(kind) for column, kind in self.tree["inputs"][name]["columns"].items()}

    @property
    def times(self) -> list[str]:
        """Return the time columns, which all inputs have."""
        declared = next(iter(self.tree["inputs"].values())).get("time", "time")
        return [declared] if isinstance(declared, str) else declared

    @property
    def time_types(self) -> list[Type]:
        """Return the type of each coordinate of times."""
        return [parse_type(self.time)] * len(self.times)

    def until(self, run: Run) -> str | None:
        """Return what a run is told with `--until`, as a person writes it."""
        kind = self.time_types[0]
        if run.until is None or kind.is_integer:
            return run.until
        return ",".join(str(time_value(time, kind)) for time in corner_of(run.until))

    def updates(self, name: str) -> list[tuple[Record, Time, int]]:
        """Return all the updates of an input, of every run."""
        files = [file for run in self.runs for file in run.files if file.input == name]
        return [update for file in files for update in file.updates]

    def uppers(self) -> list[Frontier]:
        """Return what is closed after each run: what it is told to close, and all that was before."""
        closed, found, seen = ((BEGINNING,) * len(self.times),), [], []
        progress: dict[str, Frontier] = {}
        for each in self.runs:
            seen += [time for file in each.files for _, time, _ in file.updates]
            progress |= dict(each.progress)
            if each.until is not None:
                closed = both(closed, box(corner_of(each.until)))
            elif progress:
                closed = both(closed, either(progress.values()))
            elif seen:
                closed = both(closed, box(tuple(max(values) + 1 for values in zip(*seen, strict=True))))
            found.append(closed)
        return found

    def __repr__(self) -> str:
        lines = [f'Case(\n    """\\\n{self.text}""",\n    (']
        for each in self.runs:
            lines.append("        Run(\n            (")
            for file in each.files:
                lines.append(f"                Arrival({file.input!r}, (")
                lines += [f"                    {update!r}," for update in file.updates]
                lines.append("                )),")
            lines.append(f"            ),\n            until={each.until!r},")
            lines += [f"            progress={each.progress!r},"] if each.progress else []
            lines.append("        ),")
        kind = "" if self.time == "int64" else f"    {self.time!r},\n"
        return "\n".join(lines).replace("datetime.", "dt.") + f"\n    ),\n{kind})"


def physical(times: pl.Series, kind: Type) -> pl.Series:
    """Return integers as wide as those that stand for a type of time."""
    return times.cast(pl.Int32 if kind.kind == "date" else pl.Int64)


def corner_of(until: str) -> Time:
    """Return the time that `--until` names."""
    return tuple(map(int, until.split(",")))


def arrive(case: Case, number: int, root: Path) -> list[Path]:
    """Write the files that come before a run of a case, and what they say of progress; return the files."""
    this, paths = case.runs[number], []
    for at, file in enumerate(this.files):
        paths.append(root / "in" / file.input / f"{number}-{at}.parquet")
        write_file(case, file, paths[-1])
    for name, said in this.progress:
        (root / "in" / name / PROGRESS).write_bytes(progress_bytes(said))
    return paths


def ran(case: Case, root: Path) -> Path | None:
    """Run a case; return the path of its file, or None if its inputs are refused."""
    path = root / "p.yaml"
    path.write_text(case.text, encoding="utf-8")
    for number, this in enumerate(case.runs):
        arrive(case, number, root)
        try:
            run(path, until=case.until(this))
        except (InputError, EngineError):
            return None
    return path


def write_file(case: Case, file: Arrival, path: Path) -> None:
    """Write one file of an input's log."""
    schema = case.schema(file.input)
    columns = {}
    for at, (name, kind) in enumerate(schema.items()):
        columns[name] = to_series(name, [plain(record[at]) for record, _, _ in file.updates], kind)
    for at, name in enumerate(case.times):
        times = pl.Series(name, [time[at] for _, time, _ in file.updates], dtype=pl.Int64)
        columns[name] = physical(times, case.time_types[at]).cast(case.time_types[at].to_polars())
    columns["diff"] = pl.Series("diff", [diff for _, _, diff in file.updates], dtype=pl.Int64)
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_parquet(path)

"""The conversion of any input to a change log of its own, and of a log's collection at a time to a plain table.

An input is converted by a run of a pipeline that copies it, with a temporary state. So it is read like any pipeline's input, in the same
bounded memory, with the same errors. The target appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time as clock
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import polars as pl

from ddcli.driver.execute import execute
from ddcli.errors import DdError, InputError, SpecErrors, Text, UsageError, suggestion
from ddcli.job.paths import problems_of
from ddcli.job.request import CallOptions, Request, RunClock, time_now
from ddcli.job.sizes import Resources
from ddcli.plan.pipeline_file import load_spec, parse_spec
from ddcli.privacy import previewed
from ddcli.render.rows import batches, write_rows
from ddcli.screen import visible
from ddcli.spec.model import OutputSpec, Spec
from ddcli.store.files.access import fs, real
from ddcli.store.state.directory import State
from ddcli.store.state.document import PROGRESS
from ddcli.store.state.entries import UPDATES
from ddcli.store.tables.kinds import READ_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.job.summary import RunSummary
    from ddcli.render.rows import RowFormat
    from ddcli.sources.change_log import ChangeLog

OPTIONS = "options"
"""The file name of the pipeline that is made of options; no message has a place in it."""
NAME = "log"
MISSING = re.compile(r".*the key '(\w+)' is missing")
KINDS: dict[str, RowFormat] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".ndjson": "jsonl",
    ".jsonl": "jsonl",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
"""The kind of file to which a table is written, by the ending of its name."""


def convert_input(
    pipeline: Path, name: str, target: Path, *, until: str | None = None, force: bool = False
) -> RunSummary:
    """Write an input of a pipeline file as a change log into the directory `target`; return the summary.

    It closes the times that a run would. Raises a run's errors, and UsageError if `target` is not empty, unless it is a log and `force`
    allows to replace it.
    """
    spec = load_spec(pipeline)
    # No row is left out: beside a log there is no place for unreadable rows.
    spec = replace(spec, inputs={one: replace(given, quarantines=False) for one, given in spec.inputs.items()})
    if name not in spec.inputs:
        hint = suggestion(name, spec.inputs, f"inputs: {', '.join(spec.inputs)}")
        raise UsageError(f"no input is named '{name}'", place=str(pipeline), hint=hint)
    if spec.inputs[name].arrangement is not None:
        raise UsageError(f"'{name}' is kept by another pipeline: it has no files", span=spec.inputs[name].name.span)
    return _converted(spec, name, pipeline.absolute().parent, target, until, force=force)


def convert_files(
    given: Mapping[str, Any],
    target: Path,
    *,
    csv: Dialect | None = None,
    until: str | None = None,
    force: bool = False,
) -> RunSummary:
    """Write files as a change log; `given` and `csv` describe them as an input of a pipeline file. See `convert_input`."""
    tree = {"dd": 1, "name": NAME, "clock": "event", "inputs": {NAME: dict(given)}, "outputs": {NAME: str(target)}}
    with _without_places():
        text = json.dumps(tree, ensure_ascii=False).replace("${", "$${")  # file names have no variables
        spec = parse_spec(visible(text), OPTIONS)  # these are escapes in YAML, too
        if csv is not None:
            spec = replace(spec, inputs={NAME: replace(spec.inputs[NAME], csv=csv)})
        return _converted(spec, NAME, Path.cwd(), target, until, force=force)


def write_table(log: ChangeLog, as_of: Any, target: Path, *, force: bool = False) -> int:
    """Write the collection of a log at a time as a plain table into a file; return the number of its rows.

    A record of multiplicity two is written twice; a negative multiplicity is an InputError. The ending of the
    name determines the kind of file. It takes the memory of the collection.
    """
    kind = KINDS.get(target.suffix.lower())
    if kind is None:
        hint = f"name it with one of these endings: {', '.join(KINDS)}"
        raise UsageError(f"'{target.name}' does not end like a known kind of file", hint=hint)
    if not fs(target).is_local:
        raise UsageError("a table is written to a file on this machine", hint="write it here, then copy it")
    if target.exists() and not force:
        raise UsageError("the file exists already", place=str(target), hint="--force replaces it")
    rows = log.as_of(as_of)
    with _new_file(target) as file:
        try:
            count, _ = write_rows((_repeated(batch, log) for batch in batches(rows)), kind, file, hides=False)
        except READ_ERRORS as error:
            raise log.refusal(error) from None
    return count


def _repeated(batch: pl.DataFrame, log: ChangeLog) -> pl.DataFrame:
    """Return the records of a batch, each repeated by its multiplicity."""
    counts = batch[log.diff]
    if (counts < 0).any():
        row = batch.row((counts < 0).arg_max() or 0, named=True)
        record = ", ".join(f"{name} = {value!r}" for name, value in previewed(row).items() if name != log.diff)
        raise InputError(
            f"the record {record} has the multiplicity {row[log.diff]}, which a table can't hold",
            place=str(log.path),
            hint="`dd log --as-of` writes records with their counts",
        )
    data = batch.drop(log.diff)
    if (counts == 1).all():
        return data
    return data[pl.int_range(batch.height, eager=True).repeat_by(counts).explode(empty_as_null=False)]


def _converted(spec: Spec, name: str, base: Path, target: Path, until: str | None, *, force: bool) -> RunSummary:
    given = replace(spec.inputs[name], late="error", quarantine=None)
    with _new_log(target, force=force) as directory, tempfile.TemporaryDirectory(prefix="dd-convert-") as place:
        output = OutputSpec(spec.name, Text(name, given.name.span), Text(str(target), given.path.span))
        alone = Spec(spec.name, spec.path, {name: given}, {}, {name: output}, clock=spec.clock)
        state, directory = real(Path(place)) / "state", real(directory)
        if problems := problems_of(alone, base, state):
            raise SpecErrors(problems)
        request = Request(
            alone,
            "",
            base,
            state,
            {name: directory},
            CallOptions(until, Resources(engine="local")),
            RunClock(spec.clock == "arrival", time_now(None)),
        )
        started = clock.perf_counter()
        with State.open(state, request.outputs) as opened:
            summary = execute(request, None, opened)
    return replace(summary, seconds=clock.perf_counter() - started)


@contextmanager
def _new_log(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield a directory for a log, which is renamed to `target` when it is whole; in an object store, `target` itself."""
    there = _entries(target)
    if there and not force:
        raise UsageError("the target is not empty", place=str(target), hint="--force replaces a log")
    strange = [path.name for path in there if not (path.name.startswith(UPDATES) or path.name == PROGRESS)]
    if strange:
        problem = f"'{strange[0]}' is not part of a log that `dd` wrote"
        raise UsageError(problem, place=str(target), hint="remove the directory by hand, or name another")
    if not fs(target).is_local:
        if there:
            raise UsageError("a log in an object store is not replaced", place=str(target), hint="remove it first")
        yield target
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        made = place / "log"
        made.mkdir()
        yield made
        if target.exists():
            target.rename(place / "before")
        made.rename(target)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _new_file(target: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which is renamed to `target` when it is whole, and then replaces the old one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    waiting = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with waiting.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        waiting.replace(target)
    finally:
        waiting.unlink(missing_ok=True)


def _entries(directory: Path) -> list[Path]:
    if directory.exists() and not directory.is_dir():
        raise UsageError("it is a file, and a log is a directory", place=str(directory))
    try:
        return list(directory.iterdir())
    except FileNotFoundError:
        return []


@contextmanager
def _without_places() -> Iterator[None]:
    """Remove the places from errors about options, which are in no file."""
    try:
        yield
    except SpecErrors as errors:
        raise SpecErrors([_placeless(error) for error in errors.errors]) from None
    except DdError as error:
        raise _placeless(error) from None


def _placeless(error: DdError) -> DdError:
    if error.span is not None and error.span.file == OPTIONS:
        error.span = None
    if (missing := MISSING.fullmatch(error.problem)) is not None:
        error.problem, error.hint = f"--{missing[1].replace('_', '-')} is missing", None
    for prefix in (f"inputs.{NAME}: ", f"inputs.{NAME}.", f"outputs.{NAME}: "):
        error.problem = error.problem.removeprefix(prefix)
    if error.hint and "it is relative to the pipeline file" in error.hint:
        error.hint = "name a directory, a file or a glob; a path is relative to the current directory"
    from ddcli.sources.change_log import by_option

    error.hint = by_option(error.hint)
    return error

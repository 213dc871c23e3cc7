"""Scenarios: what the outputs of a pipeline would be if its inputs had other files, several times over, in one call.

Each scenario is a dry run of its own above the newest commit, with the files that it adds and leaves out. It reads of the state the rows with the keys of its changes, and no scenario
sees another's: so ten of them cost ten small changes and one start. A result is the difference to the committed outputs, which is exact.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.compare.against import base_request, chosen_files, newest_manifest
from ddcli.dataclass import dataclass
from ddcli.driver.run import dry_run
from ddcli.errors import SpecErrors, Text, UsageError
from ddcli.job.functions import refuse_code
from ddcli.job.request import read_request
from ddcli.sinks.side_logs import DIFF, ReceivedUpdates
from ddcli.spec.file import read_text
from ddcli.spec.reader import NodePlace, Notes, Refused
from ddcli.spec.shapes import Key, Many, Pairs, Record
from ddcli.spec.syntax import parse_tree
from ddcli.spec.values import PathWords, Words
from ddcli.store.files.objects import locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddcli.job.request import Request
    from ddcli.store.state.manifest import Manifest

SCENARIO = "scenario"
EXAMPLE = "{with: orders+=fix.csv, without: data/orders/2024-01-02.csv}"


@dataclass
class Scenario:
    """The files that inputs have beside those that were read, and the files that they lack."""

    added: list[tuple[str, Path]]
    without: list[Path]


def scenarios(
    pipeline: Path,
    file: Path,
    state: Path | None = None,
    memory: int | None = None,
    *,
    no_code: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> dict[str, pl.DataFrame]:
    """Return, by output, the rows that come and go in the scenarios of a file: each scenario's name, the record, and the change of its multiplicity.

    Writes nothing, takes no lock. Raises SpecErrors for a file of another form, StateError without a state, and the errors of a run.
    """
    wanted = read_scenarios(file)
    directory = read_request(pipeline, state, say=say).state
    manifest = newest_manifest(directory)
    request = base_request(pipeline, directory, manifest, memory, say)
    refuse_code(request.spec, no_code=no_code)
    if manifest.pipeline != request.digest:
        hint = "run it first; `dd diff --against` shows what an edit would do"
        raise UsageError("the pipeline has changed since its state was made", place=str(pipeline), hint=hint)
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in request.outputs if name not in request.spec.checks}
    for name, scenario in wanted.items():
        for output, rows in _changes(request, manifest, scenario):
            if output in parts:
                parts[output].append(rows.select(pl.lit(name).alias(SCENARIO), pl.all()))
    return {output: pl.concat(each) for output, each in parts.items() if each}


def _changes(request: Request, manifest: Manifest, scenario: Scenario) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each output that a scenario changes, with the records that it adds and takes away."""
    request, found = chosen_files(request, manifest, scenario.added, scenario.without)
    with tempfile.TemporaryDirectory(prefix="dd-scenario-", ignore_cleanup_errors=True) as scratch:
        received = ReceivedUpdates(Path(scratch))
        dry_run(replace(request, receives=received.add), manifest, found=found)
        for name, files in received.files.items():
            columns = [
                column for column in pl.read_ipc_schema(files[0]) if column not in {DIFF, *manifest.cache["time"]}
            ]
            parts = [*received.scan(name, columns, DIFF)]
            summed = pl.concat(parts).group_by(columns).agg(pl.col(DIFF).sum()).filter(pl.col(DIFF) != 0)
            if (rows := summed.collect()).height:
                yield name, rows.sort([each for each, kind in rows.schema.items() if not kind.is_nested()])


def read_scenarios(file: Path) -> dict[str, Scenario]:
    """Return the scenarios of a file, by name. Paths are relative to it. Raises SpecErrors with everything that is wrong."""
    tree = parse_tree(read_text(file, "file of scenarios"), str(file))
    notes, base = Notes(errors=tree.errors), file.parent

    def built(_: NodePlace, given: dict[str, Any]) -> Scenario:
        added = []
        for text in given.get("added", ()):
            name, sign, path = text.value.partition("+=")
            if not (name and sign and path):
                raise notes.refuse(
                    "", f"{text.value!r} names no input and file", text.span, "for example orders+=fix.csv"
                )
            added.append((name, locate(base, path)))
        return Scenario(added, [locate(base, text.value) for text in given.get("without", ())])

    files = Many(PathWords("a file"), "files", alone=True)
    keys = {
        "with": Key(files, argument="added", about="files that inputs have beside theirs"),
        "without": Key(files, about="files of inputs that are left out"),
    }
    shape = Pairs(
        Words("a name"), Record(built, keys, "a scenario", EXAMPLE, least=1), "a mapping of scenarios", things=True
    )
    try:
        if tree.root is None:
            raise UsageError("the file has no scenarios", place=str(file), hint=f"for example `fix: {EXAMPLE}`")
        found = shape.read(tree.root, NodePlace("", Text("", tree.root.span), ""), notes)
    except Refused:
        found = ()
    if notes.errors:
        raise SpecErrors(notes.errors)
    return {name.value: scenario for name, scenario in found}

"""`dd reset`: remove a state, and the outputs that it wrote."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import IF_LOCKED, PIPELINE, REPORT, STATE, VAR
from ddcli.screen import json_text, near, say

if TYPE_CHECKING:
    from ddcli.store.files.lock import IfLocked
    from ddcli.store.state.removal import Removal


@click.command("reset", short_help="Remove a state and, with --outputs, its outputs.")
@click.argument("pipeline", type=PIPELINE)
@STATE
@click.option("--outputs", is_flag=True, help="Remove the logs of the outputs, too.")
@click.option("-n", "--dry-run", is_flag=True, help="List the files, and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@IF_LOCKED
@REPORT
@VAR
def command(
    pipeline: Path, state: str | None, outputs: bool, dry_run: bool, yes: bool, if_locked: IfLocked, output: str
) -> None:
    """Remove the state of PIPELINE, so that the next run begins from nothing. Lists the files to remove, and asks.

    Inputs stay. Without --outputs the logs of outputs stay, too: move them away, as the next run refuses to write beside them.
    Files that `dd` did not write stay, and the command names them; so do logs of late or failed rows outside of the state.
    The command refuses a state of another pipeline file, and an output of another state.

    JSON: {state: {path, files, bytes}, outputs: {NAME: {path, files, bytes}}, left: [FILE], readers: [NAME], removed}.

    \b
    Examples:
      dd reset pipelines/airborne.yaml --outputs --dry-run
      dd reset pipelines/airborne.yaml --yes
    """
    from ddcli.errors import StateError, UsageError
    from ddcli.job.request import imports, read_request
    from ddcli.job.summary import plural, size_of
    from ddcli.store.files.objects import locate
    from ddcli.store.state.holds import read_holds
    from ddcli.store.state.manifest import read_newest
    from ddcli.store.state.outputs import check_pipeline
    from ddcli.store.state.removal import find_removal, remove
    from ddcli.store.state.shared_arrangements import forget

    place = None if state is None else locate(Path.cwd(), state)
    request = read_request(pipeline, place)

    def find() -> Removal:
        try:
            manifest = read_newest(request.state)
        except StateError as error:  # a damaged state can be removed all the same
            say(f"note: {error.problem}", err=True)
            manifest = None
        if manifest is not None:
            check_pipeline(request.state, manifest, pipeline)
        return find_removal(request.state, manifest, request.outputs if outputs else {})

    kept = [hold.branch for hold in read_holds(request.state) if hold.branch]
    if kept:
        hint = f"drop them first: `dd branch drop {kept[0]} {near(str(pipeline))}`"
        raise StateError(
            f"the state has branches that read its files: {', '.join(kept)}", place=str(request.state), hint=hint
        )
    found = find()
    if output == "text":
        for line in _lines(found):
            say(line)
        for name, one in request.spec.outputs.items():
            if one.target is not None:
                say(
                    f"note: the table of the output '{name}' stays, and a new state refuses to write to it: {one.place.value}"
                )
    removes = bool(found.count) and not dry_run
    if removes and not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                "stdin is not a terminal, so nobody can confirm",
                hint="pass --yes to remove it, or --dry-run to see the files",
            )
        question = f"Remove {found.count} {plural(found.count, 'file')}, {size_of(found.bytes)}?"
        removes = click.confirm(question, err=True)
    if removes:
        remove(found, find, if_locked=if_locked)
        forget(request.state, {place for place, _ in imports(request).values()})
    if output == "json":
        say(json_text(found.to_json() | {"removed": removes}))
    elif removes:
        say(f"removed {found.count} {plural(found.count, 'file')}, {size_of(found.bytes)}", err=True)
    else:
        say("nothing removed" if found.count else "nothing to remove", err=True)


def _lines(found: Removal) -> list[str]:
    """Return lines that list the files to remove and those that stay."""
    from ddcli.job.summary import plural, size_of

    lines = []
    places = [("state", "", found.state, found.files)]
    places += [("output", f" {name}", path, files) for name, (path, files) in found.outputs.items()]
    for what, name, path, files in places:
        if files:
            size = size_of(sum(size for _, size in files))
            lines.append(f"{what}{name}: {near(str(path))}: {len(files)} {plural(len(files), 'file')}, {size}")
    lines += [f"stays: {near(str(path))}: `dd` did not write it" for path in found.left]
    lines += [f"note: {reader} reads from this state or its outputs, and has to begin anew" for reader in found.readers]
    return lines

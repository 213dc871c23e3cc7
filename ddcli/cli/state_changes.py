"""The commands that change or remove a state: `dd state compact`, `reshard`, `gc`, `release`, `adopt`, `unlock`, and `dd reset`."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ddcli.cli.arguments import IF_LOCKED, PIPELINE, REPORT, STATE, VAR, StateDirectory, only_pipeline, report
from ddcli.errors import LockedError, StateError, UsageError
from ddcli.screen import json_text, near, plural, say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ddcli.store.files.lock import IfLocked
    from ddcli.store.state.entries import Size
    from ddcli.store.state.removal import Removal


Function = TypeVar("Function", bound="Callable[..., Any]")


def on_a_state(function: Function) -> Function:
    """Add the argument PIPELINE, `--state`, `-o` and `--var` to a command."""
    return click.argument("pipeline", type=PIPELINE, required=False)(with_options(function))


def with_options(function: Function) -> Function:
    """Add `--state`, `-o` and `--var` to a command."""
    state = click.option(
        "--state",
        metavar="DIRECTORY",
        type=StateDirectory(),
        help="The state's directory, or a path in an object store (s3://BUCKET/PREFIX, gs://, az://).",
    )
    return state(REPORT(VAR(function)))


def directory_of(pipeline: Path | None, state: Path | None) -> Path:
    """Return the state's directory."""
    return places_of(pipeline, state)[0]


def places_of(pipeline: Path | None, state: Path | None) -> tuple[Path, list[Path] | None]:
    """Return the state's directory, and the directories that the pipeline writes to, if one is named."""
    from ddcli.store.files.access import real

    given = None if state is None else real(state)
    if pipeline is None and given is None:
        pipeline = only_pipeline()
    if pipeline is not None:
        from ddcli.job.request import read_request

        request = read_request(pipeline, given)
        return request.state, request.written
    assert given is not None
    return given, None


def name_foreign_files(directory: Path) -> None:
    """Print a note on each file in a state that `dd` did not write."""
    from ddcli.store.state.removal import find_foreign_files

    for path in find_foreign_files(directory):
        say(f"{near(str(path))}: note: left alone, as `dd` did not write it", err=True)


@click.command("compact", short_help="Merge each shard's batches into one.")
@IF_LOCKED
@on_a_state
def compact(pipeline: Path | None, state: Path | None, if_locked: IfLocked, output: str) -> None:
    """Merge the batches of each shard into one, and drop updates that cancel. Optional: runs merge by themselves.

    Batches that other pipelines have not read yet stay separate.
    Takes the lock, and commits like a run.
    JSON: {before: {rows, bytes, batches}, after: {rows, bytes, batches}}.

    \b
    Example:
      dd state compact pipelines/airborne.yaml
    """
    from dataclasses import asdict

    from ddcli.store.state.upkeep import compact_state

    directory, written = places_of(pipeline, state)
    before, after = compact_state(directory, written=written, if_locked=if_locked, say=partial(say, err=True))
    change = _size_change(before, after, "" if before != after else "nothing to compact")
    report(output, {"before": asdict(before), "after": asdict(after)}, [change])


@click.command("reshard", short_help="Partition a state into more shards, or fewer.")
@click.option("--shards", type=click.IntRange(1, 4096), required=True, help="The number of shards of each arrangement.")
@IF_LOCKED
@on_a_state
def reshard(pipeline: Path | None, state: Path | None, shards: int, if_locked: IfLocked, output: str) -> None:
    """Partition every arrangement into another number of shards, the number of tasks that can work on it at once. Each shard must fit into memory.

    Reads and writes the state once and computes nothing; runs continue from there, here or on Spark. After fewer shards, `compact` merges
    their parts. Takes the lock, and is committed like a run.
    JSON: {shards, arrangements, before: {rows, bytes, batches}, after: {rows, bytes, batches}}; `arrangements` counts the repartitioned ones.

    \b
    Example:
      dd state reshard pipelines/airborne.yaml --shards 4
    """
    from dataclasses import asdict

    from ddcli.store.state.upkeep import reshard_state

    directory, written = places_of(pipeline, state)
    count, before, after = reshard_state(
        directory, shards, written=written, if_locked=if_locked, say=partial(say, err=True)
    )
    sizes = {"before": asdict(before), "after": asdict(after)}
    change = _size_change(before, after, "" if count else "nothing to reshard")
    report(output, {"shards": shards, "arrangements": count, **sizes}, [change])


@click.command("gc", short_help="Remove files that no manifest names.")
@IF_LOCKED
@on_a_state
def gc(pipeline: Path | None, state: Path | None, if_locked: IfLocked, output: str) -> None:
    """Remove files that no manifest names, which runs that died have left. Each run does so when it begins.

    Names files that `dd` did not write, and leaves them alone. JSON: {removed: [{file, bytes}], bytes, strange: [file]}.

    \b
    Example:
      dd state gc pipelines/airborne.yaml
    """
    from ddcli.job.summary import size_of
    from ddcli.store.state.removal import find_foreign_files
    from ddcli.store.state.upkeep import collect_garbage

    directory, written = places_of(pipeline, state)
    removed = collect_garbage(directory, written=written, if_locked=if_locked)
    total = sum(size for _, size in removed)
    if output == "json":
        files = [{"file": str(path), "bytes": size} for path, size in removed]
        strange = [str(path) for path in find_foreign_files(directory)]
        say(json_text({"removed": files, "bytes": total, "strange": strange}))
        return
    for path, _ in removed:
        say(near(str(path)))
    name_foreign_files(directory)
    say(f"removed {len(removed)} {plural(len(removed), 'file')}, {size_of(total)}", err=True)


@click.command("release", short_help="Drop the hold of a reader.")
@click.option("--reader", required=True, metavar="NAME", help="The reader's name in `dd state ls`.")
@on_a_state
def release(pipeline: Path | None, state: Path | None, reader: str, output: str) -> None:
    """Drop the hold of a reader in another pipeline, so that batches it has not read may be compacted.

    Use it for readers that no longer exist: one that comes back must start again.

    JSON: {released: {reader, state, arrangements, since, through, manifest}}.

    \b
    Example:
      dd state release pipelines/airborne.yaml --reader report-0c4d1a2b      # from `dd state ls`
    """
    from ddcli.store.state.upkeep import release_hold, shown

    found = release_hold(directory_of(pipeline, state), reader)
    report(output, {"released": shown(found)}, [f"released: {found.reader}, whose state is {found.state}"])


@click.command("adopt", short_help="Give a state to another pipeline file.")
@IF_LOCKED
@on_a_state
def adopt(pipeline: Path | None, state: Path | None, if_locked: IfLocked, output: str) -> None:
    """Give the state of another pipeline file to the file PIPELINE. A run refuses the state of another file.

    A state whose file was moved or renamed needs no adoption, as its old file is gone. The next run treats the differences between the
    files as a change of the pipeline. Takes the lock, and commits like a run. JSON: {state, file, before}.

    \b
    Example:
      dd state adopt pipelines/airborne.yaml
    """
    from ddcli.plan.pipeline_file import load_spec
    from ddcli.store.state.upkeep import adopt as give

    if pipeline is None:
        raise UsageError("no pipeline is named", hint="name the pipeline file: dd state adopt PIPELINE")
    directory, written = places_of(pipeline, state)
    assert written is not None
    before = give(directory, pipeline, load_spec(pipeline).name.value, written=written, if_locked=if_locked)
    facts = {"state": str(directory), "file": str(pipeline), "before": before and str(before)}
    others = f", and not to {near(str(before))} any more" if before else ""
    report(output, facts, [f"{near(str(directory))} belongs to {near(str(pipeline))}{others}"])


@click.command("unlock", short_help="Show the process that holds the lock.")
@click.option("--force", is_flag=True, help="Take the lock away from a live process. It must not be writing.")
@on_a_state
def unlock(pipeline: Path | None, state: Path | None, force: bool, output: str) -> None:
    """Show the process that holds the lock of a state. The lock of an ended process is released automatically.

    Exits with 75 while a process holds it. --force lets the next run start in spite of that process: use it only if the process hangs on a machine where nobody can end it. JSON: {locked, holder, forced}.

    \b
    Example:
      dd state unlock pipelines/airborne.yaml
    """
    from ddcli.store.state.upkeep import lock_holder, manifest_of, remove_lock

    directory = directory_of(pipeline, state)
    manifest_of(directory)
    error = lock_holder(directory)
    forced = error is not None and force
    if forced:
        remove_lock(directory)
    if output == "json":
        say(json_text({"locked": error is not None, "holder": error and error.problem, "forced": forced}))
    elif error is None:
        say("free: no process holds the lock")
    elif forced:
        say(f"taken away: {error.problem}")
    else:
        say(*error.lines(), err=True)
    if error is not None and not forced:
        raise click.exceptions.Exit(LockedError.exit_code)


def _size_change(before: Size, after: Size, nothing: str) -> str:
    """Return the sizes before and after in a line; or one of them with the reason `nothing` why there is no change."""
    from ddcli.job.summary import size_of

    texts = [
        f"{size.rows:,} {plural(size.rows, 'row')}, {size_of(size.bytes)} in "
        f"{size.batches} {plural(size.batches, 'batch')}"
        for size in (before, after)
    ]
    return f"{texts[0]}: {nothing}" if nothing else f"{texts[0]} -> {texts[1]}"


@click.command("reset", short_help="Remove a state and, with --outputs, its outputs.")
@click.argument("pipeline", type=PIPELINE)
@STATE
@click.option("--outputs", is_flag=True, help="Remove the logs of the outputs, too.")
@click.option("-n", "--dry-run", is_flag=True, help="List the files, and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@IF_LOCKED
@REPORT
@VAR
def reset_command(
    pipeline: Path, state: Path | None, outputs: bool, dry_run: bool, yes: bool, if_locked: IfLocked, output: str
) -> None:
    """Remove the state of PIPELINE, so that the next run starts from scratch. Lists the files to remove, and asks.

    Inputs stay. Without --outputs the logs of outputs stay, too: move them away, as the next run refuses to write next to them.
    Files that `dd` did not write stay, and the command names them; so do logs of late or failed rows outside of the state.
    The command refuses a state of another pipeline file, and an output of another state.

    JSON: {state: {path, files, bytes}, outputs: {NAME: {path, files, bytes}}, left: [FILE], readers: [NAME], removed}.

    \b
    Examples:
      dd reset pipelines/airborne.yaml --outputs --dry-run
      dd reset pipelines/airborne.yaml --yes
    """
    from ddcli.job.request import imports, read_request
    from ddcli.job.summary import size_of
    from ddcli.store.state.directory import read_holds
    from ddcli.store.state.manifest import read_newest
    from ddcli.store.state.outputs import check_pipeline
    from ddcli.store.state.removal import find_removal, remove
    from ddcli.store.state.shared_arrangements import forget

    request = read_request(pipeline, state)

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
    from ddcli.job.summary import size_of

    lines = []
    places = [("state", "", found.state, found.files)]
    places += [("output", f" {name}", path, files) for name, (path, files) in found.outputs.items()]
    for what, name, path, files in places:
        if files:
            size = size_of(sum(size for _, size in files))
            lines.append(f"{what}{name}: {near(str(path))}: {len(files)} {plural(len(files), 'file')}, {size}")
    lines += [f"stays: {near(str(path))}: `dd` did not write it" for path in found.left]
    lines += [
        f"note: {reader} reads from this state or its outputs, and has to start again" for reader in found.readers
    ]
    return lines

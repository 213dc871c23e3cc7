"""`dd state`: the commands that list, show, verify and copy a state; and those that correct one: `dd retract`, `dd forget` and `dd state reopen`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ddcli.cli.arguments import (
    ACCEPT,
    DRY_RUN,
    IF_LOCKED,
    NO_CODE,
    NOW,
    PIPELINE,
    QUIET,
    REASON,
    REPORT,
    STATE,
    VAR,
    name_in,
    report,
)
from ddcli.cli.state_changes import (
    adopt,
    compact,
    directory_of,
    gc,
    name_foreign_files,
    on_a_state,
    release,
    reshard,
    unlock,
    with_options,
)
from ddcli.errors import StateError, UsageError
from ddcli.screen import in_columns, json_text, near, plural, say, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ddcli.job.corrections import ForgettingSummary
    from ddcli.job.summary import RunSummary
    from ddcli.store.files.lock import IfLocked


F = TypeVar("F", bound="Callable[..., Any]")


def corrects(command: F) -> F:
    """Return a command with the options that `correct` takes."""
    for option in (VAR, REPORT, NO_CODE, IF_LOCKED, QUIET, DRY_RUN, STATE):
        command = option(command)
    return command


def correct(
    pipeline: Path,
    *arguments: Any,
    by: Callable[..., RunSummary | ForgettingSummary] | None = None,
    state: Path | None,
    dry_run: bool,
    quiet: bool,
    if_locked: IfLocked,
    no_code: bool,
    output: str,
    **asked: Any,
) -> None:
    """Correct a state `by` a function of the driver (default: `ddcli.driver.run.run`) with the arguments `asked`, and print the result."""
    from ddcli.driver.run import run
    from ddcli.engine.process import keep_freed_memory

    keep_freed_memory()
    summary = (by or run)(
        pipeline,
        *arguments,
        state=state,
        dry_run=dry_run,
        if_locked=if_locked,
        no_code=no_code,
        say=None if quiet else partial(say, err=True),
        **asked,
    )
    if output == "json":
        say(json_text(summary.to_json()))
    else:
        for line in [] if quiet else summary.lines():
            say(line, err=True)


@click.command("reopen", short_help="Open closed times again.")
@click.argument("pipeline", type=PIPELINE, required=False)
@click.option("--from", "start", required=True, metavar="T", help="The first time that is open again; a product: X,Y.")
@click.option(
    "--rewrite",
    multiple=True,
    metavar="NAME",
    help="Rewrite the output NAME as one file with its contents; repeatable.",
)
@corrects
def reopen(pipeline: Path | None, start: str, rewrite: tuple[str, ...], **options: Any) -> None:
    """Take the state of PIPELINE back to the time T: T and later times are open again, and rows at them are not late.

    The command rebuilds the state from the rows before T of the files that it has read, which must be unchanged. Rows at T or
    later wait in their files, and the next run reads them with new rows, even if they were put aside as late. The outputs keep their files, and each
    gets one more file that retracts its updates from T on. A pipeline that reads an output and has closed these times gets late rows: reopen it, too. --rewrite NAME rewrites an
    output instead.

    Under `clock: arrival` this takes back the runs from T on, for example if the clock was ahead: the next run reads their files again, at its own time.

    If a row with a wrong time has closed too many times, withdraw its file first (`dd retract PIPELINE FILE`); otherwise the next run closes them again.

    JSON: {name, lower, upper, reopened: T, rebuilt: {NAME: {rows, inserted, retracted, file}}, ...}: all keys of `dd run -o json`.

    \b
    Example:
      dd state reopen pipelines/airborne.yaml --from 480
    """
    if pipeline is None:
        raise UsageError("no pipeline is named", hint="name the pipeline file: dd state reopen PIPELINE --from T")
    correct(pipeline, rewrite=frozenset(rewrite), reopen=start, **options)


@click.command("forget", short_help="Remove rows of inputs from state, outputs and logs.")
@click.argument("pipeline", type=PIPELINE)
@click.option(
    "--where", required=True, metavar="CONDITION", help="The condition of the rows to remove, over an input's columns."
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=name_in("inputs"),
    metavar="NAME",
    help="The input of the rows; repeatable. [default: the only one that has these columns]",
)
@corrects
def forget_command(pipeline: Path, where: str, inputs: tuple[str, ...], **options: Any) -> None:
    """Remove the rows of an input for which CONDITION holds from the state of PIPELINE, its outputs, and its logs of late and failed rows, as if
    they had never existed.

    No file keeps a row that was computed from them, not even in the past of outputs and state. No time is closed. The command reads the files of
    the inputs again, does not change them, and lists those that contain such rows. Remove the rows from these files, too. If you do that afterwards,
    repeat the command: until then no command reads these files again.

    If the command is killed, repeat it: it has changed everything or nothing, except for files that it still has to remove.

    JSON: {name, seconds, dry, inputs: {NAME: {rows, undecided}}, rewritten: [{was: FILE or null, file: FILE or null, bytes_before, bytes}],
    kept_files, kept_bytes, state_bytes_before, state_bytes, still_in: [FILE], versions_in: [OUTPUT], readers: [NAME]}.

    \b
    Examples:
      dd forget pipelines/airborne.yaml --input flights --where "carrier = 'HA'" --dry-run
    """
    from ddcli.driver.forget import forget

    correct(pipeline, where, inputs, by=forget, **options)


@click.command("retract", short_help="Withdraw files that were read.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option(
    "--missing",
    is_flag=True,
    help="Withdraw all files that were read and are gone; under `changed: replace` except renamed files.",
)
@click.option("--strict", is_flag=True, help="Withdraw nothing if no run has read one of the files.")
@click.option("--again", is_flag=True, help="Also withdraw a repaired file that a run has read since it was withdrawn.")
@NOW
@ACCEPT
@REASON
@corrects
def retract_command(
    pipeline: Path, files: tuple[str, ...], *, missing: bool, strict: bool, again: bool, now: str | None, **options: Any
) -> None:
    """Withdraw files of inputs from PIPELINE, as if it had never read them.

    The outputs get the difference. Under `clock: arrival` it is at the time of the run, which also reads new files; under `clock: event` at the first open time,
    and no time is closed. A key's record is then the one in the other files, and a table has their rows. The file may be changed or gone: under
    `changed: replace` the command reads the state's copy. Without copies it reads all other files of the same inputs again, so they must exist.

    If the file still exists unchanged, later runs ignore it. If it has changed, it is read in the same commit, so
    outputs get the difference between its old and new rows; if it is unreadable, nothing has changed. Rows of the file in logs of late or failed rows are retracted, too.

    A FILE that no run has read is reported and skipped if there are others. If it was withdrawn, repaired and read, and has not changed since, it is
    refused, as a repeated command would lose its rows: --again withdraws it.

    JSON: as `dd run -o json`; `withdrawn` lists the files of each input, `replaced` those that were read again.

    \b
    Examples:
      dd retract pipelines/airborne.yaml fixtures/flights/flights/from-minute-000000.parquet --dry-run
    """
    from ddcli.store.files.access import locate

    if not (files or missing):
        raise click.UsageError("Name files to withdraw, or state --missing.")
    withdraw = [locate(Path.cwd(), text) for text in files]
    correct(pipeline, now=now, withdraw=withdraw, withdraw_missing=missing, strict=strict, again=again, **options)


@click.group("state", short_help="Look at, check, compact and tidy up a state.")
def command() -> None:
    """List, check, compact and tidy up the state that a pipeline keeps between runs.

    PIPELINE names the state by its pipeline file, --state by its directory.

    \b
    Examples:
      dd state ls pipelines/airborne.yaml
      dd state verify --state pipelines/.dd/airborne
    """


for each in (adopt, compact, gc, release, reopen, reshard, unlock):
    command.add_command(each)


@command.command("ls", short_help="List arrangements, outputs and holds.")
@on_a_state
def ls(pipeline: Path | None, state: Path | None, output: str) -> None:
    """List the arrangements and outputs of a state, holds of readers in other pipelines, consumers of outputs, and rows that were put aside.

    An arrangement has the name of its collection, and its key, if the pipeline file is the one of the state.
    JSON: {name, state, manifest, upper, rows, bytes, arrangements: [{name, of, key, columns, rows, bytes, shards, batches,
    since, upper}], outputs: [{name, path, files, rows, bytes}], holds: [{reader, since, through, manifest, passed:
    [output]}], consumers: [{consumer, output, acknowledged, passed}], aside: [{why, of, rows, path}]}. `aside` are logs with rows that were put aside and are
    not back: `why` is late, failed, unreadable, or check. `passed` are logs that are summed up beyond the updates that a reader has taken, and consumers that lack
    some of the summed-up updates. Frontiers are texts: times before them are closed.

    \b
    Example:
      dd state ls pipelines/airborne.yaml
    """
    from ddcli.commands.arrangements import columns_of_file, names_of
    from ddcli.commands.checks import rows_aside
    from ddcli.job.summary import size_of
    from ddcli.store.state.upkeep import manifest_of, overview
    from ddcli.store.texts import json_times

    directory = directory_of(pipeline, state)
    manifest = manifest_of(directory)
    facts = overview(directory, manifest, names_of(directory, manifest, pipeline))
    facts["aside"] = rows_aside(directory, manifest, pipeline)
    for one in facts["arrangements"]:
        one["key"] = columns_of_file(one["key"])
    if output == "json":
        say(json_text(json_times(facts)))
        return
    say(
        f"{facts['name']}: times before {facts['upper']} are closed; {facts['rows']:,} {plural(facts['rows'], 'row')}, {size_of(facts['bytes'])}"
    )
    arrangements = {"of": "of", "arrangement": "name", "key": "key", "rows": "rows", "size": "bytes"}
    arrangements |= {name: name for name in ("shards", "batches", "since", "upper")}
    _table(arrangements, facts["arrangements"], right=range(3, 7))
    logs = {"output": "name", "path": "path", "updates": "rows", "size": "bytes", "files": "files"}
    _table(logs, facts["outputs"], right=range(2, 5))
    for one in facts["holds"]:
        one["through"] += f", too far behind in {', '.join(one['passed'])}" if one["passed"] else ""
    _table({"held by": "reader", "since": "since", "taken": "through"}, facts["holds"])
    for one in facts["consumers"]:
        one["acknowledged"] = f"{one['acknowledged']}{', too far behind' if one['passed'] else ''}"
    fed = {"consumer": "consumer", "of": "output", "acknowledged": "acknowledged"}
    _table(fed, facts["consumers"], right=(2,))
    _table({"put aside": "why", "of": "of", "rows": "rows", "log": "path"}, facts["aside"], right=(2,))


@command.command("show", short_help="Show one arrangement, batch by batch.")
@click.option(
    "-a",
    "--arrangement",
    required=True,
    metavar="NAME",
    help="The arrangement: the name of its collection, as in `ls`, or the beginning of its hash.",
)
@on_a_state
def show(pipeline: Path | None, state: Path | None, arrangement: str, output: str) -> None:
    """Show one arrangement: its key and columns, and the batches of each shard.

    JSON: {its fields in `ls`, files: [{shard, file, run, rows, bytes, lower, upper, since}]}. The files of one run hold
    a key range each.

    \b
    Example:
      dd state show pipelines/airborne.yaml --arrangement 45e9      # from `dd state ls`
    """
    from ddcli.commands.arrangements import columns_of_file, names_of
    from ddcli.job.summary import size_of
    from ddcli.store.state.upkeep import details, manifest_of
    from ddcli.store.texts import json_times

    directory = directory_of(pipeline, state)
    manifest = manifest_of(directory)
    facts = details(manifest, arrangement, names_of(directory, manifest, pipeline))
    facts["key"] = columns_of_file(facts["key"])
    if output == "json":
        say(json_text(json_times(facts)))
        return
    of = f": {facts['of']}" if facts["of"] else ""
    say(f"arrangement {facts['name']}{of}")
    say(f"  key      {', '.join(facts['key']) or 'all'}")
    say(f"  columns  {', '.join(f'{name}: {kind}' for name, kind in facts['columns'].items())}")
    rows, batches = facts["rows"], facts["batches"]
    held = f"{rows:,} {plural(rows, 'row')}, {size_of(facts['bytes'])}"
    say(f"  holds    {held}, in {batches} {plural(batches, 'batch')}")
    say(f"  times    since {facts['since']} (earlier ones are merged), closed before {facts['upper']}")
    files = {"shard": "shard", "run": "run", "file": "file", "rows": "rows", "size": "bytes"}
    _table(files | {"from": "lower", "before": "upper", "since": "since"}, facts["files"], right=(0, 1, 3, 4))


@command.command("verify", short_help="Read every file and report damage.")
@on_a_state
def verify(pipeline: Path | None, state: Path | None, output: str) -> None:
    """Read every file of a state and of its outputs, and compare it with the manifest.

    Names each file that is damaged or missing, and exits with 4 if there is one. Names files in the state that `dd` did not write.
    JSON: {manifest, files, bytes, bad: [{file, problem, hint}], strange: [file]}.

    \b
    Example:
      dd state verify pipelines/airborne.yaml
    """
    from ddcli.job.summary import size_of
    from ddcli.store.state.removal import find_foreign_files
    from ddcli.store.state.upkeep import verify as read

    directory = directory_of(pipeline, state)
    number, size, wrong = read(directory)
    if output == "json":
        bad = [{"file": error.place, "problem": error.problem, "hint": error.hint} for error in wrong]
        strange = [str(path) for path in find_foreign_files(directory)]
        facts = {"manifest": number, "files": size.batches, "bytes": size.bytes, "bad": bad, "strange": strange}
        say(json_text(facts))
    else:
        for error in wrong:
            say(*error.lines(), err=True)
        name_foreign_files(directory)
        files = f"{size.batches} {plural(size.batches, 'file')}"
        say(f"{files}, {size_of(size.bytes)}: {f'{len(wrong)} bad' if wrong else 'all as written'}")
    if wrong:
        raise click.exceptions.Exit(StateError.exit_code)


@command.command("export", short_help="Copy a state as of its newest commit.")
@click.argument("pipelines", type=PIPELINE, nargs=-1, metavar="[PIPELINE]")  # so that a single path is the last one
@click.argument("directory")
@with_options
def export(pipelines: tuple[Path, ...], directory: str, state: Path | None, output: str) -> None:
    """Copy a state as of its newest commit into DIRECTORY, which is new or empty and may be s3://BUCKET/PREFIX.

    Compares every file with its checksums; exits with 4 if one is damaged, and names it. Runs may continue meanwhile. If the command is killed,
    the partial copy is not a state. Outputs, and logs of late or failed rows, are not copied: they are in the directories that the pipeline file names.
    A run with `--state DIRECTORY` continues from the copy, with the outputs as
    they were then. The copy has no holds on states that the pipeline imports from: such a run needs `--full-refresh all`. JSON: {copy, manifest, files, bytes}.

    \b
    Example:
      dd state export pipelines/airborne.yaml backup/airborne
    """
    from ddcli.job.summary import size_of
    from ddcli.store.files.access import locate
    from ddcli.store.state.branches import export_state

    if len(pipelines) > 1:
        raise UsageError("a state is copied into one directory", hint="dd state export PIPELINE DIRECTORY")
    if not pipelines and state is None:
        raise UsageError(
            "no state is named",
            hint="name the pipeline file, `dd state export PIPELINE DIRECTORY`, or the state's directory with --state",
        )
    target = locate(Path.cwd(), directory)
    manifest, size = export_state(directory_of(next(iter(pipelines), None), state), target)
    facts = {"copy": str(target), "manifest": manifest.number, "files": size.batches, "bytes": size.bytes}
    copied = f"{size.batches} {plural(size.batches, 'file')}, {size_of(size.bytes)} -> {near(str(target))}"
    report(output, facts, [copied])


def _table(columns: Mapping[str, str], entries: Sequence[Mapping[str, Any]], right: Collection[int] = ()) -> None:
    """Print entries as a table: for each heading the values of this name, in the columns `right` aligned to the right; nothing if there are none."""
    if entries:
        rows = [[_cell(name, entry[name]) for name in columns.values()] for entry in entries]
        say("", *in_columns([list(columns), *rows], right))


def _cell(name: str, value: Any) -> str:
    from ddcli.job.summary import size_of

    shown: dict[str, Callable[[Any], str]] = {
        "rows": "{:,}".format,
        "bytes": size_of,
        "path": near,
        "key": lambda key: ", ".join(key) or "all",
    }
    return "" if value is None else visible(shown.get(name, str)(value))

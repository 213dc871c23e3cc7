"""`dd state`: the commands that list, show, verify and copy a state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import PIPELINE
from ddcli.cli.correction import reopen
from ddcli.cli.state_changes import (
    adopt,
    compact,
    directory_of,
    gc,
    name_strangers,
    on_a_state,
    release,
    reshard,
    unlock,
    with_options,
)
from ddcli.errors import StateError, UsageError
from ddcli.screen import in_columns, json_text, near, say, visible

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


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
    from ddcli.job.summary import plural, size_of
    from ddcli.store.state.upkeep import manifest_of, overview
    from ddcli.store.time_text import json_times

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
    rows = [
        (
            one["of"] or "",
            one["name"],
            ", ".join(one["key"]) or "all",
            f"{one['rows']:,}",
            size_of(one["bytes"]),
            str(one["shards"]),
            str(one["batches"]),
            one["since"] or "",
            one["upper"] or "",
        )
        for one in facts["arrangements"]
    ]
    _table(("of", "arrangement", "key", "rows", "size", "shards", "batches", "since", "upper"), rows, right=range(3, 7))
    logs = [
        (one["name"], near(one["path"]), f"{one['rows']:,}", size_of(one["bytes"]), str(one["files"]))
        for one in facts["outputs"]
    ]
    _table(("output", "path", "updates", "size", "files"), logs, right=range(2, 5))
    held = [
        (
            one["reader"],
            one["since"],
            one["through"] + (f", too far behind in {', '.join(one['passed'])}" if one["passed"] else ""),
        )
        for one in facts["holds"]
    ]
    _table(("held by", "since", "taken"), held)
    fed = [
        (one["consumer"], one["output"], f"{one['acknowledged']}{', too far behind' if one['passed'] else ''}")
        for one in facts["consumers"]
    ]
    _table(("consumer", "of", "acknowledged"), fed, right=(2,))
    aside = [(one["why"], one["of"], f"{one['rows']:,}", near(one["path"])) for one in facts["aside"]]
    _table(("put aside", "of", "rows", "log"), aside, right=(2,))


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
    from ddcli.job.summary import plural, size_of
    from ddcli.store.state.upkeep import details, manifest_of
    from ddcli.store.time_text import json_times

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
    rows = [
        (
            *(str(one[name]) for name in ("shard", "run")),
            one["file"],
            f"{one['rows']:,}",
            size_of(one["bytes"]),
            *(one[name] or "" for name in ("lower", "upper", "since")),
        )
        for one in facts["files"]
    ]
    _table(("shard", "run", "file", "rows", "size", "from", "before", "since"), rows, right=(0, 1, 3, 4))


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
    from ddcli.job.summary import plural, size_of
    from ddcli.store.state.removal import find_strangers
    from ddcli.store.state.upkeep import verify as read

    directory = directory_of(pipeline, state)
    number, size, wrong = read(directory)
    if output == "json":
        bad = [{"file": error.place, "problem": error.problem, "hint": error.hint} for error in wrong]
        strange = [str(path) for path in find_strangers(directory)]
        facts = {"manifest": number, "files": size.batches, "bytes": size.bytes, "bad": bad, "strange": strange}
        say(json_text(facts))
    else:
        for error in wrong:
            say(*error.lines(), err=True)
        name_strangers(directory)
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
    from ddcli.job.summary import plural, size_of
    from ddcli.store.files.objects import locate
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
    if output == "json":
        facts = {"copy": str(target), "manifest": manifest.number, "files": size.batches, "bytes": size.bytes}
        say(json_text(facts))
        return
    say(f"{size.batches} {plural(size.batches, 'file')}, {size_of(size.bytes)} -> {near(str(target))}")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Print a table of texts, with the columns `right` aligned to the right; nothing if it has no rows."""
    if not rows:
        return
    shown = [heads, *([visible(text) for text in row] for row in rows)]
    say("", *in_columns(shown, right))

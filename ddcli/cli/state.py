"""`dd state`: look at a state, check it, compact it, tidy it up."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ddcli.cli.arguments import IF_LOCKED, PIPELINE, REPORT, VAR
from ddcli.cli.reopen import command as reopen
from ddcli.screen import in_columns, json_text, near, say, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ddcli.store.state.upkeep import Size

Function = TypeVar("Function", bound="Callable[..., Any]")


@click.group("state", short_help="Look at, check, compact and tidy up a state.")
def command() -> None:
    """Look at, check, compact and tidy up what a pipeline keeps between runs.

    PIPELINE names the state by its pipeline file, --state by its directory.

    \b
    Examples:
      dd state ls pipelines/airborne.yaml
      dd state verify --state pipelines/.dd/airborne
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are


command.add_command(reopen)


def on_a_state(function: Function) -> Function:
    """Add to a command the argument PIPELINE, `--state` and `-o`."""
    return click.argument("pipeline", type=PIPELINE, required=False)(with_options(function))


def with_options(function: Function) -> Function:
    """Add `--state`, `-o` and `--var` to a command."""
    state = click.option("--state", metavar="DIRECTORY", help="The state's directory, or s3://BUCKET/PREFIX.")
    return state(REPORT(VAR(function)))


@command.command("ls", short_help="List arrangements, outputs and holds.")
@on_a_state
def ls(pipeline: Path | None, state: str | None, output: str) -> None:
    """List the arrangements and outputs of a state, the holds of readers in other pipelines, and consumers of outputs.

    An arrangement is named by the collection that it is of, and its key, as far as the pipeline file is that of the state.
    JSON: {name, state, manifest, upper, rows, bytes, arrangements: [{name, of, key, columns, rows, bytes, shards, batches,
    since, upper}], outputs: [{name, path, files, rows, bytes}], holds: [{reader, since, through, manifest}],
    consumers: [{consumer, output, acknowledged}]}. Frontiers are texts: times before them are closed.

    \b
    Example:
      dd state ls pipelines/airborne.yaml
    """  # noqa: D301 - as above
    from ddcli.commands.arrangements import names_of
    from ddcli.job.summary import size_of
    from ddcli.store.state.upkeep import manifest_of, overview

    directory = _directory(pipeline, state)
    manifest = manifest_of(directory)
    facts = overview(directory, manifest, names_of(directory, manifest, pipeline))
    if output == "json":
        say(json_text(facts))
        return
    say(f"{facts['name']}: times before {facts['upper']} are closed; {facts['rows']:,} rows, {size_of(facts['bytes'])}")
    rows = [
        (
            one["of"] or "",
            one["name"],
            ", ".join(one["key"]),
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
        (one["name"], one["path"], f"{one['rows']:,}", size_of(one["bytes"]), str(one["files"]))
        for one in facts["outputs"]
    ]
    _table(("output", "path", "updates", "size", "files"), logs, right=range(2, 5))
    _table(("held by", "since", "taken"), [(one["reader"], one["since"], one["through"]) for one in facts["holds"]])
    fed = [(one["consumer"], one["output"], str(one["acknowledged"])) for one in facts["consumers"]]
    _table(("consumer", "of", "acknowledged"), fed, right=(2,))


@command.command("show", short_help="Show one arrangement, batch by batch.")
@click.option(
    "-a",
    "--arrangement",
    required=True,
    metavar="NAME",
    help="What it is of, as in `ls`, or the beginning of its hash.",
)
@on_a_state
def show(pipeline: Path | None, state: str | None, arrangement: str, output: str) -> None:
    """Show one arrangement: its key and columns, and the batches of each shard.

    JSON: {its fields in `ls`, files: [{shard, file, run, rows, bytes, lower, upper, since}]}. The files of one run hold
    a key range each.

    \b
    Example:
      dd state show pipelines/airborne.yaml --arrangement 45e9      # from `dd state ls`
    """  # noqa: D301 - as above
    from ddcli.commands.arrangements import names_of
    from ddcli.job.summary import size_of
    from ddcli.store.state.upkeep import details, manifest_of

    directory = _directory(pipeline, state)
    manifest = manifest_of(directory)
    facts = details(manifest, arrangement, names_of(directory, manifest, pipeline))
    if output == "json":
        say(json_text(facts))
        return
    of = f": {facts['of']}" if facts["of"] else ""
    say(f"arrangement {facts['name']}{of}")
    say(f"  key      {', '.join(facts['key']) or 'none'}")
    say(f"  columns  {', '.join(f'{name}: {kind}' for name, kind in facts['columns'].items())}")
    say(f"  holds    {facts['rows']:,} rows, {size_of(facts['bytes'])}, in {facts['batches']} batches")
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
def verify(pipeline: Path | None, state: str | None, output: str) -> None:
    """Read every file of a state and of its outputs, and compare it with the manifest.

    Names each file that is damaged or missing, and exits with 4 if there is one. Names files in the state that `dd` did not write.
    JSON: {manifest, files, bytes, bad: [{file, problem, hint}], strange: [file]}.

    \b
    Example:
      dd state verify pipelines/airborne.yaml
    """  # noqa: D301 - as above
    from ddcli.errors import StateError
    from ddcli.job.summary import plural, size_of
    from ddcli.store.state.strangers import find_strangers
    from ddcli.store.state.upkeep import verify as read

    directory = _directory(pipeline, state)
    number, size, wrong = read(directory)
    if output == "json":
        bad = [{"file": error.place, "problem": error.problem, "hint": error.hint} for error in wrong]
        strange = [str(path) for path in find_strangers(directory)]
        facts = {"manifest": number, "files": size.batches, "bytes": size.bytes, "bad": bad, "strange": strange}
        say(json_text(facts))
    else:
        for error in wrong:
            say(*error.lines(), err=True)
        _name_strangers(directory)
        files = f"{size.batches} {plural(size.batches, 'file')}"
        say(f"{files}, {size_of(size.bytes)}: {f'{len(wrong)} bad' if wrong else 'all as written'}")
    if wrong:
        raise click.exceptions.Exit(StateError.exit_code)


@command.command("compact", short_help="Merge each shard's batches into one.")
@IF_LOCKED
@on_a_state
def compact(pipeline: Path | None, state: str | None, if_locked: str, output: str) -> None:
    """Merge the batches of each shard into one, and drop updates that cancel. Optional: runs merge as much as pays.

    Batches that other pipelines have not read yet stay apart.
    Takes the lock, and commits like a run.
    JSON: {before: {rows, bytes, batches}, after: {rows, bytes, batches}}.

    \b
    Example:
      dd state compact pipelines/airborne.yaml
    """  # noqa: D301 - as above
    from dataclasses import asdict

    from ddcli.store.state.upkeep import compact_state

    directory, written = _places(pipeline, state)
    before, after = compact_state(
        directory,
        written=written,
        if_locked=if_locked,  # type: ignore[arg-type]
        say=partial(say, err=True),
    )
    if output == "json":
        say(json_text({"before": asdict(before), "after": asdict(after)}))
        return
    say(_went(before, after, "" if before != after else "nothing to compact"))


@command.command("reshard", short_help="Cut what is kept into more shards, or fewer.")
@click.option(
    "--shards", type=click.IntRange(1, 4096), required=True, help="Into how many parts each arrangement is cut."
)
@IF_LOCKED
@on_a_state
def reshard(pipeline: Path | None, state: str | None, shards: int, if_locked: str, output: str) -> None:
    """Cut every arrangement into so many shards: as many as may be worked on at once, each of which has to fit into memory.

    Reads and writes the state once and computes nothing; runs go on from there, here or on Spark. After fewer, `compact` merges
    what lies side by side. Takes the lock, and is committed like a run.
    JSON: {shards, arrangements, before: {rows, bytes, batches}, after: {rows, bytes, batches}}; `arrangements` counts those that
    were cut anew.

    \b
    Example:
      dd state reshard pipelines/airborne.yaml --shards 4
    """  # noqa: D301 - as above
    from dataclasses import asdict

    from ddcli.store.state.upkeep import reshard_state

    directory, written = _places(pipeline, state)
    count, before, after = reshard_state(
        directory,
        shards,
        written=written,
        if_locked=if_locked,  # type: ignore[arg-type]
        say=partial(say, err=True),
    )
    if output == "json":
        sizes = {"before": asdict(before), "after": asdict(after)}
        say(json_text({"shards": shards, "arrangements": count, **sizes}))
        return
    say(_went(before, after, "" if count else "nothing to reshard"))


@command.command("export", short_help="Copy it as of its newest commit.")
@click.argument("pipelines", type=PIPELINE, nargs=-1, metavar="[PIPELINE]")  # so that a single path is the last one
@click.argument("directory")
@with_options
def export(pipelines: tuple[Path, ...], directory: str, state: str | None, output: str) -> None:
    """Copy a state as of its newest commit into DIRECTORY, which is new or empty and may be s3://BUCKET/PREFIX.

    Every file is compared with what was written; exits with 4 if one is damaged, and names it. Runs may go on meanwhile. What is
    left of a copy that dies is no state. Outputs, and logs of what was late or failed, are not copied: they are logs of
    their own, and outputs lie where the pipeline file says. A run with `--state DIRECTORY` goes on from the copy, with the outputs as
    they were then; one of a pipeline that imports from another has no hold there, and needs `--full-refresh all`. JSON: {copy, manifest, files, bytes}.

    \b
    Example:
      dd state export pipelines/airborne.yaml backup/airborne
    """  # noqa: D301 - as above
    from ddcli.errors import UsageError
    from ddcli.job.summary import plural, size_of
    from ddcli.store.files.objects import locate
    from ddcli.store.state.export import export_state

    if len(pipelines) > 1:
        raise UsageError("a state is copied into one directory", hint="dd state export PIPELINE DIRECTORY")
    target = locate(Path.cwd(), directory)
    manifest, size = export_state(_directory(next(iter(pipelines), None), state), target)
    if output == "json":
        facts = {"copy": str(target), "manifest": manifest.number, "files": size.batches, "bytes": size.bytes}
        say(json_text(facts))
        return
    say(f"{size.batches} {plural(size.batches, 'file')}, {size_of(size.bytes)} -> {near(str(target))}")


@command.command("gc", short_help="Remove files that no manifest names.")
@IF_LOCKED
@on_a_state
def gc(pipeline: Path | None, state: str | None, if_locked: str, output: str) -> None:
    """Remove files that no manifest names: the leavings of runs that died. Each run does so when it begins.

    Files that `dd` did not write are left alone and named. JSON: {removed: [{file, bytes}], bytes, strange: [file]}.

    \b
    Example:
      dd state gc pipelines/airborne.yaml
    """  # noqa: D301 - as above
    from ddcli.job.summary import plural, size_of
    from ddcli.store.state.strangers import find_strangers
    from ddcli.store.state.upkeep import collect_garbage

    directory, written = _places(pipeline, state)
    removed = collect_garbage(directory, written=written, if_locked=if_locked)  # type: ignore[arg-type]
    total = sum(size for _, size in removed)
    if output == "json":
        files = [{"file": str(path), "bytes": size} for path, size in removed]
        strange = [str(path) for path in find_strangers(directory)]
        say(json_text({"removed": files, "bytes": total, "strange": strange}))
        return
    for path, _ in removed:
        say(near(str(path)))
    _name_strangers(directory)
    say(f"removed {len(removed)} {plural(len(removed), 'file')}, {size_of(total)}", err=True)


@command.command("release", short_help="Drop the hold of a reader.")
@click.option("--reader", required=True, metavar="NAME", help="Its name in `dd state ls`.")
@on_a_state
def release(pipeline: Path | None, state: str | None, reader: str, output: str) -> None:
    """Drop the hold of a reader in another pipeline, so that batches it has not read may be compacted.

    For readers that are gone: one that comes back must begin anew.

    JSON: {released: {reader, state, arrangements, since, through, manifest}}.

    \b
    Example:
      dd state release pipelines/airborne.yaml --reader report-0c4d1a2b      # from `dd state ls`
    """  # noqa: D301 - as above
    from dataclasses import asdict

    from ddcli.store.state.upkeep import release_hold

    found = release_hold(_directory(pipeline, state), reader)
    if output == "json":
        say(json_text({"released": asdict(found)}))
        return
    say(f"released: {found.reader}, whose state is {found.state}")


@command.command("adopt", short_help="Give it to another pipeline file.")
@IF_LOCKED
@on_a_state
def adopt(pipeline: Path | None, state: str | None, if_locked: str, output: str) -> None:
    """Give a state to the file PIPELINE, where it has belonged to another one: a run refuses the state of another file.

    A state whose file was moved or renamed needs no adoption, as its old file is gone. The next run treats what differs between the
    files as a change of the pipeline. Takes the lock, and commits like a run. JSON: {state, file, before}.

    \b
    Example:
      dd state adopt pipelines/airborne.yaml
    """  # noqa: D301 - as above
    from ddcli.errors import UsageError
    from ddcli.spec import load_spec
    from ddcli.store.state.upkeep import adopt as give

    directory, written = _places(pipeline, state)
    if pipeline is None or written is None:
        raise UsageError("no pipeline is named", hint="dd state adopt PIPELINE")
    before = give(
        directory,
        pipeline,
        load_spec(pipeline).name.value,
        written=written,
        if_locked=if_locked,  # type: ignore[arg-type]
    )
    if output == "json":
        say(json_text({"state": str(directory), "file": str(pipeline), "before": before and str(before)}))
        return
    say(
        f"{near(str(directory))} belongs to {near(str(pipeline))}{f', and not to {near(str(before))} any more' if before else ''}"
    )


@command.command("unlock", short_help="Show who holds the lock.")
@click.option("--force", is_flag=True, help="Take the lock away from a live process. It must not be writing.")
@on_a_state
def unlock(pipeline: Path | None, state: str | None, force: bool, output: str) -> None:
    """Show who holds the lock of a state. The lock of an ended process is free by itself: there is nothing to unlock.

    Exits with 75 while a process holds it. --force lets the next run start beside that process: only if it hangs for good, on
    a machine where nobody can end it. JSON: {locked, holder, forced}.

    \b
    Example:
      dd state unlock pipelines/airborne.yaml
    """  # noqa: D301 - as above
    from ddcli.errors import LockedError
    from ddcli.store.state.upkeep import lock_holder, manifest_of, remove_lock

    directory = _directory(pipeline, state)
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


def _name_strangers(directory: Path) -> None:
    """Name on stderr the files in a state that `dd` did not write."""
    from ddcli.store.state.strangers import find_strangers

    for path in find_strangers(directory):
        say(f"{near(str(path))}: note: left alone, as `dd` did not write it", err=True)


def _went(before: Size, after: Size, nothing: str) -> str:
    """Return the sizes before and after in a line, or `nothing`, why they are the same."""
    from ddcli.job.summary import plural, size_of

    texts = [
        f"{size.rows:,} {plural(size.rows, 'row')}, {size_of(size.bytes)} in "
        f"{size.batches} batch{'' if size.batches == 1 else 'es'}"
        for size in (before, after)
    ]
    return f"{texts[0]}: {nothing}" if nothing else f"{texts[0]} -> {texts[1]}"


def _directory(pipeline: Path | None, state: str | None) -> Path:
    """Return the state's directory."""
    return _places(pipeline, state)[0]


def _places(pipeline: Path | None, state: str | None) -> tuple[Path, list[Path] | None]:
    """Return the state's directory, and those that the named pipeline writes to, if one is named."""
    from ddcli.errors import UsageError
    from ddcli.store.files.access import real
    from ddcli.store.files.objects import locate

    given = None if state is None else real(locate(Path.cwd(), state))
    if pipeline is not None:
        from ddcli.job.request import read_request

        request = read_request(pipeline, given, None, lambda _line: None)
        return request.state, request.written
    if given is None:
        raise UsageError("no state is named", hint="name the pipeline file, or the state's directory with --state")
    return given, None


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Print a table of texts, those columns to the right; nothing where it has no rows."""
    if not rows:
        return
    shown = [heads, *([visible(text) for text in row] for row in rows)]
    say("", *in_columns(shown, right))

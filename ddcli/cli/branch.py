"""`dd branch`: branches of a pipeline, begun without a copy, merged by their inputs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import IF_LOCKED, ONLY_PIPELINE, REPORT, SHOW, STATE, VAR, report
from ddcli.screen import json_text, near, say, shell

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.commands.branch import BranchChanges
    from ddcli.store.files.lock import IfLocked

CONFLICTS = 1
"""The exit code of a merge with conflicts."""


@click.group("branch", short_help="Try changes beside a pipeline's state, and merge them.")
def command() -> None:
    """Try changes of inputs and of the pipeline file beside a pipeline's state, and merge or drop them.

    A branch q4 of sales.yaml has a copy of that file: every command that gets sales@q4.yaml works on the branch. It begins with main's state, without a copy,
    and its outputs are beside main's: out@q4/. Main runs on meanwhile.

    \b
    Example:
      dd branch ls pipelines/airborne.yaml
    """


@command.command("new", short_help="Begin a branch at the last commit.")
@click.argument("name")
@ONLY_PIPELINE
@STATE
@IF_LOCKED
@REPORT
@VAR
def new(name: str, pipeline: Path, state: Path | None, if_locked: IfLocked, output: str) -> None:
    """Begin the branch NAME of PIPELINE at the last commit of its state.

    It shares main's batches, which stay as long as the branch exists, and links the files of the outputs' logs; an object store copies these itself.
    Input files must stay where they are. Input tables are as main has read them; the branch's own runs read newer versions. A branch writes to no
    table, and has no consumers.

    JSON: as `dd branch ls -o json`, of the one branch.

    \b
    Example:
      dd branch new q4 sales.yaml      # sales.yaml has run before
    """
    from ddcli.commands.branch import begin

    made = begin(name, pipeline, state, if_locked, partial(say, err=True))
    begins = f"branch {made.name} begins at commit {made.commit}: `dd run {near(str(made.file))}` runs it"
    report(output, made.to_json(), [begins])


@command.command("ls", short_help="List branches and their changes.")
@ONLY_PIPELINE
@STATE
@REPORT
@VAR
def ls(pipeline: Path, state: Path | None, output: str) -> None:
    """List the branches of PIPELINE with their changes: added files, withdrawn files, edits of the pipeline file.

    JSON: [{branch, state, file, commit, added: {INPUT: [FILE]}, withdrawn: {INPUT: [FILE]}, edited}].

    \b
    Example:
      dd branch ls pipelines/airborne.yaml
    """
    from ddcli.commands.branch import branches

    found = branches(pipeline, state)
    if output == "json":
        say(json_text([each.to_json() for each in found]))
        return
    for each in found:
        _show(each)
    if not found:
        say(f"no branches; `dd branch new NAME {shell(near(str(pipeline)))}` begins one", err=True)


@command.command("merge", short_help="Bring a branch's changes of inputs and file to main.")
@click.argument("name")
@ONLY_PIPELINE
@STATE
@click.option("-n", "--dry-run", is_flag=True, help="List the changes and the conflicts, and write nothing.")
@IF_LOCKED
@REPORT
@SHOW
@VAR
def merge(name: str, pipeline: Path, state: Path | None, dry_run: bool, if_locked: IfLocked, output: str) -> None:
    """Bring the changes of the branch NAME to PIPELINE with a run, in one commit, and drop the branch.

    The changes are added files, withdrawn files, and the edit of the branch's file, which main's file gets.
    Results are not merged: main recomputes them from its present inputs. Added files stay where they are. Exits with 75, with nothing done, while a run holds the branch or main.

    It is a conflict if main, too, has changed a file, a key of an input with a key, or the pipeline file since the branch began. If there are conflicts,
    the command lists them, exits with 1, and writes nothing.

    JSON: {branch, state, file, commit, added, withdrawn, edited} as `dd branch ls -o json`, conflicts: [{what, main, branch}], run: as `dd run -o json`, or null.

    \b
    Examples:
      dd branch merge q4 sales.yaml --dry-run      # after dd branch new
      dd branch merge q4 sales.yaml      # after dd branch new
    """
    from dataclasses import asdict

    from ddcli.cli.messages import MessagePrinter
    from ddcli.commands.branch import merge as take_in

    changes, conflicts, summary = take_in(name, pipeline, state, if_locked, dry_run=dry_run, say=partial(say, err=True))
    if output == "json":
        rest = {"conflicts": [asdict(each) for each in conflicts], "run": summary.to_json() if summary else None}
        say(json_text(changes.to_json() | rest))
    else:
        for each in conflicts:
            for line in (f"conflict: {each.what}", f"  main:   {each.main}", f"  branch: {each.branch}"):
                say(line)
        if summary is not None:
            if changes.edited:
                say(f"{near(str(pipeline))} has the edit of the branch", err=True)
            MessagePrinter("text", False, partial(say, err=True)).summary(summary, verbose=False)
        elif not conflicts:
            _show(changes)
    if conflicts:
        raise click.exceptions.Exit(CONFLICTS)


@command.command("drop", short_help="Remove a branch and its outputs.")
@click.argument("name")
@ONLY_PIPELINE
@STATE
@IF_LOCKED
@REPORT
@VAR
def drop(name: str, pipeline: Path, state: Path | None, if_locked: IfLocked, output: str) -> None:
    """Remove the branch NAME of PIPELINE: its state, its outputs, and its file unless that differs from main's.

    Main then removes the old files that it kept for the branch, with its next commit. JSON: {dropped, files}.

    \b
    Example:
      dd branch drop q4 sales.yaml      # after dd branch new
    """
    from ddcli.commands.branch import drop as remove

    count = remove(name, pipeline, state, if_locked, partial(say, err=True))
    report(output, {"dropped": name, "files": count}, [f"dropped {name}: {count} files removed"])


def _show(branch: BranchChanges) -> None:
    """Print a branch and its changes."""
    edited = ", edited" if branch.edited else ""
    say(f"{branch.name}: from commit {branch.commit}, {near(str(branch.file))}{edited}")
    for name, files in branch.added.items():
        for file in files:
            say(f"  {name} += {near(file.archived)}")
    for name, files in branch.withdrawn.items():
        for file in files:
            say(f"  {name} -= {near(file.path)}")

"""`dd run` with several pipelines: one after the other, in the order in which they read from each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ddcli.cli.messages import Records, code_of, refused, skipped
from ddcli.commands.pipelines import find_pipelines, select
from ddcli.errors import DdError, LockedError, name_pipeline
from ddcli.screen import json_text, near, plural, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ddcli.cli.messages import MessagePrinter
    from ddcli.commands.pipelines import Pipeline
    from ddcli.job.summary import RunSummary


def run_several(
    paths: Sequence[Path],
    wanted: Sequence[str],
    once: Callable[[Path], RunSummary],
    speaker: MessagePrinter,
    put: Callable[[dict[str, Any]], None],
    *,
    json: bool,
    verbose: bool,
    skips: bool,
) -> None:
    """Run the pipelines of some paths, or those that write the `wanted` outputs, and record them together.

    A failing pipeline is reported, and those that need it are skipped; the others run. Exits with the code of the first failure.
    """
    pipelines, passed = find_pipelines(paths)
    for path in passed:
        speaker.say(f"{near(str(path))}: skipped, as it has neither inputs nor outputs")
    if wanted:
        pipelines = select(pipelines, wanted)
    done: list[dict[str, Any]] = []
    failed: list[Pipeline] = []
    first = 0
    for pipeline in pipelines:
        records = Records(pipeline.path, done.append)
        if broken := [need for need in pipeline.needs if need in failed]:
            failed.append(pipeline)
            why = f"{near(str(broken[0].path))}, which it reads from, was not brought up to date"
            records.skipped(why)
            speaker.say(f"{near(str(pipeline.path))}: skipped: {why}", "skipped", "warning")
            continue
        name_pipeline(pipeline.path)
        try:
            summary = once(pipeline.path)
        except DdError as error:
            if skips and isinstance(error, LockedError):
                skipped(speaker, records, error, f"{near(str(pipeline.path))}: ")
                continue
            failed.append(pipeline)
            first = first or error.exit_code
            refused(speaker, records, error, skips=False)
        except BaseException as error:
            records.failed(error, code_of(error))
            put({"exit_code": done[-1]["exit_code"], "pipelines": done})
            raise
        else:
            records.done(summary)
            if not json:
                speaker.summary(summary, verbose=verbose)
        finally:
            name_pipeline(None)
    tree = {"exit_code": first, "pipelines": done}
    put(tree)
    if json:
        say(json_text(tree))
    speaker.say(_counted(done), "pipelines")
    if first:
        raise click.exceptions.Exit(first)


def _counted(done: Sequence[dict[str, Any]]) -> str:
    """Return a line that counts the runs by their outcome."""
    changed = sum(bool(each["summary"] and each["summary"]["changed"]) for each in done)
    failed = sum(each["error"] is not None for each in done)
    skipped = sum(each["skipped"] is not None for each in done)
    idle = len(done) - changed - failed - skipped
    parts = [(changed, "brought up to date"), (idle, "with nothing new"), (failed, "failed"), (skipped, "skipped")]
    listed = ", ".join(f"{count} {what}" for count, what in parts if count)
    return f"{len(done)} {plural(len(done), 'pipeline')}: {listed}"

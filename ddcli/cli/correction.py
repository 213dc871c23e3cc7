"""The common part of `dd retract`, `dd state reopen` and `dd forget`: their options, and the call that corrects a state."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ddcli.cli.arguments import DRY_RUN, IF_LOCKED, NO_CODE, QUIET, REPORT, STATE, VAR
from ddcli.screen import json_text, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.job.forgotten_rows import ForgettingSummary
    from ddcli.job.summary import RunSummary
    from ddcli.store.files.lock_holder import IfLocked

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
    state: str | None,
    dry_run: bool,
    quiet: bool,
    if_locked: IfLocked,
    no_code: bool,
    output: str,
    **asked: Any,
) -> None:
    """Correct a state `by` a function of the driver (default: `ddcli.driver.run.run`) with the arguments `asked`, and print the result."""
    from ddcli.cli.startup.memory import keep_freed_memory
    from ddcli.driver.run import run
    from ddcli.store.files.objects import locate

    keep_freed_memory()
    summary = (by or run)(
        pipeline,
        *arguments,
        state=None if state is None else locate(Path.cwd(), state),
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

"""The argument of commands on a state: the pipeline file, or the state's directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ddcli.cli.arguments import PIPELINE, REPORT, VAR, only_pipeline
from ddcli.screen import near, say

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., Any]")


def on_a_state(function: Function) -> Function:
    """Add the argument PIPELINE, `--state`, `-o` and `--var` to a command."""
    return click.argument("pipeline", type=PIPELINE, required=False)(with_options(function))


def with_options(function: Function) -> Function:
    """Add `--state`, `-o` and `--var` to a command."""
    state = click.option(
        "--state",
        metavar="DIRECTORY",
        help="The state's directory, or a path in an object store (s3://BUCKET/PREFIX, gs://, az://).",
    )
    return state(REPORT(VAR(function)))


def directory_of(pipeline: Path | None, state: str | None) -> Path:
    """Return the state's directory."""
    return places_of(pipeline, state)[0]


def places_of(pipeline: Path | None, state: str | None) -> tuple[Path, list[Path] | None]:
    """Return the state's directory, and the directories that the pipeline writes to, if one is named."""
    from ddcli.store.files.access import real
    from ddcli.store.files.objects import locate

    given = None if state is None else real(locate(Path.cwd(), state))
    if pipeline is None and given is None:
        pipeline = only_pipeline()
    if pipeline is not None:
        from ddcli.job.request import read_request

        request = read_request(pipeline, given)
        return request.state, request.written
    assert given is not None
    return given, None


def name_strangers(directory: Path) -> None:
    """Print a note on each file in a state that `dd` did not write."""
    from ddcli.store.state.strangers import find_strangers

    for path in find_strangers(directory):
        say(f"{near(str(path))}: note: left alone, as `dd` did not write it", err=True)

"""Errors as GitHub shows them beside the lines of a pull request: workflow commands, `::error file=...::message`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ddcli.errors import CheckErrors, Span, SpecErrors
from ddcli.screen import visible

if TYPE_CHECKING:
    from ddcli.errors import DdError

TITLES = {
    2: "pipeline file",
    3: "input refused",
    4: "the state needs a decision",
    7: "check failed",
    75: "the state is in use",
}
PLACE = re.compile(r"(?P<file>.+?)(:(?P<line>\d+)(:(?P<column>\d+))?)?")


def annotation(error: DdError) -> str:
    """Return an error as a workflow command on one line; SpecErrors as a line for each error.

    GitHub reads them from stdout or stderr, and takes file names as relative to the root of the repository, wherever a step runs.
    """
    if isinstance(error, SpecErrors | CheckErrors):
        return "\n".join(map(annotation, error.errors))
    span = error.span or _span(error.place)
    where = {} if span is None else {"file": _from_the_root(span.file)}
    if span is not None and span.line:
        where |= {"line": str(span.line)}
    if span is not None and span.column:
        where |= {"col": str(span.column), "endColumn": str(span.column + max(span.length, 1) - 1)}
    where["title"] = f"dd: {TITLES.get(error.exit_code, 'failed')}"
    problem = error.problem if span is not None or error.place is None else f"{error.place}: {error.problem}"
    lines = [problem, *error.detail, *([f"hint: {error.hint}"] if error.hint else [])]
    message = "\n".join(map(visible, lines))
    properties = ",".join(f"{name}={_escaped(visible(text), ',:')}" for name, text in where.items())
    return f"::error {properties}::{_escaped(message)}"


def _span(place: str | None) -> Span | None:
    """Return a place in a file, perhaps with a line and a column; None for any other place, such as an object in a store."""
    found = PLACE.fullmatch(place or "")
    if found is None or not os.path.isfile(found["file"]):  # noqa: PTH113  an error's place may be any text
        return None
    return Span(found["file"], int(found["line"] or 0), int(found["column"] or 0))


def _from_the_root(file: str) -> str:
    """Return a file's path relative to the root of the repository that Actions has checked out."""
    root = os.environ.get("GITHUB_WORKSPACE")
    if not root:
        return file
    path = os.path.relpath(file, root)
    return file if path.startswith(os.pardir) else path


def _escaped(text: str, also: str = "") -> str:
    """Return a text for a workflow command: letters that would end it, or one of its properties, are replaced by their codes."""
    return "".join(f"%{ord(letter):02X}" if letter in "%\r\n" + also else letter for letter in text)

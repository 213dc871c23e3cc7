"""The messages of a run: lines for people, or objects for programs; and the records that it writes to files.

With `--log-format json` every line on stderr is one object: {at, level, event, message, ...}. `level` is info, warning or error.
Some events have further fields: `run` the `summary` (see `--summary`), `error` the `error: {problem, place, hint, exit_code}`,
`profile` the `operators`, `incomplete` the `file` that is not whole yet; `skipped`, `watching`, `stopped` and `message` have none.

GitHub shows errors beside the lines of a pull request by workflow commands, `::error file=...::message`.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ddcli.dataclass import dataclass
from ddcli.errors import CheckErrors, DdError, LockedError, Span, SpecErrors, failed_checks
from ddcli.screen import in_actions, json_text, say, say_own, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddcli.job.summary import RunSummary


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


Level = Literal["info", "warning", "error"]
BUG, INTERRUPTED, SIGNALLED = 70, 130, 128
"""Exit codes; a signal's is its number added to SIGNALLED."""


@dataclass(frozen=True)
class MessagePrinter:
    """The printer of messages on stderr: text or JSON, all or errors only. `line` writes any text as one line."""

    form: Literal["text", "json"]
    quiet: bool
    line: Callable[[str], None]

    def say(self, message: str, event: str = "message", level: Level = "info", **facts: Any) -> None:
        """Print a message of one line."""
        self.lines([message], event, level, **facts)

    def lines(self, lines: list[str], event: str, level: Level = "info", **facts: Any) -> None:
        """Print a message of several lines."""
        if self.quiet and level != "error":
            return
        if self.form == "text":
            for line in lines:
                self.line(line)
            return
        message = "\n".join(lines)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        say(json_text({"at": at, "level": level, "event": event, "message": message, **facts}), err=True)

    def summary(self, summary: RunSummary, *, verbose: bool) -> None:
        """Print a run's summary; in JSON each warning is an object of its own."""
        if self.quiet:
            return
        lines = summary.lines(verbose=verbose)
        if self.form == "text":
            for line in lines:
                self.say(line)
            return
        self.say(lines[0], "run", summary=summary.to_json())
        for warning in summary.warnings():
            self.say(warning, "message", "warning")

    def error(self, error: BaseException, code: int) -> None:
        """Print an error."""
        lines = error.lines() if isinstance(error, DdError) else [error_values(error, code)["problem"]]
        self.lines(lines, "error", "error", error=error_values(error, code))

    def annotate(self, error: BaseException) -> None:
        """Print an error as an annotation of the pull request, in GitHub Actions."""
        if in_actions() and isinstance(error, DdError):
            say_own(annotation(error), err=True)


def error_values(error: BaseException, code: int) -> dict[str, Any]:
    """Return an error as JSON."""
    if isinstance(error, DdError):
        place = str(error.span) if error.span else error.place
        found: dict[str, Any] = {"problem": error.problem, "place": place, "hint": error.hint, "exit_code": code}
        if checks := failed_checks(error):
            found["checks"] = [each.verdict for each in checks]
        return found
    interrupted = code > SIGNALLED
    problem = "interrupted; state and outputs are as they were" if interrupted else f"{type(error).__name__}: {error}"
    return {"problem": problem, "place": None, "hint": None, "exit_code": code}


@dataclass
class Records:
    """The reports of a run beside its outputs: its summary, for `put`, and a part of the page of a GitHub workflow."""

    pipeline: Path
    put: Callable[[dict[str, Any]], None]
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def done(self, summary: RunSummary) -> None:
        """Record a run that succeeded."""
        self._write(exit_code=0, summary=summary.to_json())
        self._append(summary.markdown)

    def skipped(self, why: str) -> None:
        """Record that the run was skipped, and why."""
        self._write(exit_code=0, skipped=why)

    def failed(self, error: BaseException, exit_code: int) -> None:
        """Record a run that failed, or was interrupted."""
        self._write(exit_code=exit_code, error=error_values(error, exit_code))
        if isinstance(error, DdError):
            self._append(lambda: [f"### {self.pipeline.stem}: failed", "", "```text", *error.lines(), "```"])

    def _write(self, exit_code: int, **facts: Any) -> None:
        now = datetime.now(UTC)
        tree = {
            "pipeline": str(self.pipeline),
            "began": self.began.isoformat(timespec="milliseconds"),
            "ended": now.isoformat(timespec="milliseconds"),
            "exit_code": exit_code,
        }
        self.began = now
        self.put(tree | {"summary": None, "skipped": None, "error": None} | facts)

    def _append(self, made: Callable[[], list[str]]) -> None:
        """Add lines to the page of the workflow's run, in GitHub Actions."""
        page = os.environ.get("GITHUB_STEP_SUMMARY")
        if page and in_actions() and (lines := made()):
            with Path(page).open("a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n\n")


@contextmanager
def ending(speaker: MessagePrinter, records: Records, *, skips: bool) -> Iterator[None]:
    """Report and record the end of the run in the block; with JSON on stderr, exit. Else the command line reports an error as text."""
    try:
        yield
    except click.exceptions.Exit:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if skips and isinstance(error, LockedError):
            skipped(speaker, records, error)
            return
        code = code_of(error)
        records.failed(error, code)
        speaker.annotate(error)
        if speaker.form == "json":
            speaker.error(error, code)
            raise click.exceptions.Exit(code) from None
        raise


def code_of(error: BaseException) -> int:
    """Return the exit code of a run that ends with an error."""
    if isinstance(error, DdError):
        return error.exit_code
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else BUG


def skipped(speaker: MessagePrinter, records: Records, error: DdError, place: str = "") -> None:
    """Record and report that the run was skipped, as another holds the state; `place` is where, if there are several."""
    records.skipped(error.problem)
    speaker.say(f"{place}skipped: {error.problem}", "skipped")


def refused(speaker: MessagePrinter, records: Records, error: DdError, *, skips: bool) -> None:
    """Record and report the failure of a run that others follow."""
    if skips and isinstance(error, LockedError):
        skipped(speaker, records, error)
        return
    records.failed(error, error.exit_code)
    speaker.annotate(error)
    speaker.error(error, error.exit_code)


def put_file(path: Path | None, tree: dict[str, Any]) -> None:
    """Replace a file by JSON, if one is named, in one step: a reader always finds a whole file."""
    if path is None:
        return
    from ddcli.store.files.access import real
    from ddcli.store.files.gate import Files

    file = real(path.parent) / path.name
    Files().create(file, json_text(tree, indent=2).encode() + b"\n", file.with_name(f".{file.name}.{os.getpid()}.tmp"))
